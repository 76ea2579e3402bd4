//! Messages, in and out, as plain functions from bytes to bytes.
//!
//! What differs between the servers that speak this dialect is an option of the upstream:
//!
//! | option | values | |
//! |---|---|---|
//! | `thinking` | `auto` (default), `adaptive`, `budget` | how a model that has no other word for it is asked to reason with some effort: it decides for itself how long, or it gets a budget; `auto` goes by the model's name |
//! | `betas` | names, separated by commas | betas to ask for beside those of a client that speaks this dialect |
//! | `pass-fields` | names, separated by commas | fields to let through although they change the price: `speed`, `inference_geo`, `fallbacks` |
//!
//! The base URL ends where the dialect begins: `https://api.anthropic.com/v1`.
//!
//! **Invariant:** an answer that is streamed and one that is not yield the same blocks, and each
//! ends with exactly one finish event, after all usage.
//! **Invariant:** nothing is dropped that changes what is asked or what it costs; such a field is
//! refused by name. What else is left out is named as ignored.
//!
//! To say something new to the upstream, edit `request`; to read something new, `answer`; to
//! tell another refusal apart, `refusal`; to add an option, `options`.

mod answer;
mod options;
mod refusal;
mod request;

use answer::Answer;
use options::Options;
use weir_sdk::adapter::{
    Begun, CredentialSlot, Description, Failure, HttpRequest, RefusedSetting, Request, Setting,
    Step, Task,
};
use weir_sdk::response::{ProviderApi, ResponseReader};

/// What this dialect is called, here and by clients that speak it themselves.
const DIALECT: &str = "anthropic-messages";

/// The only path that is asked for.
const PATH: &str = "/messages";

/// One message.
pub type Anthropic = ResponseReader<Answer>;

impl ProviderApi for Answer {
    fn describe() -> Description {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        Description {
            name: "anthropic".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            dialect: DIALECT.to_owned(),
            credential: CredentialSlot::Header("x-api-key".to_owned()),
            capabilities: words(&["chat"]),
            options: words(&options::NAMES),
            request_headers: words(&["content-type", "anthropic-version", "anthropic-beta"]),
            // What every adapter gets is enough.
            response_headers: Vec::new(),
            path_prefixes: words(&[PATH]),
        }
    }

    fn configure(options: &[Setting]) -> Result<Vec<u8>, RefusedSetting> {
        Ok(Options::from_settings(options)?.to_bytes())
    }

    fn begin(request: Request, configuration: &[u8]) -> Result<Begun<Anthropic>, Failure> {
        let Task::Chat(chat) = &request.task else {
            return Err(Failure::unsupported("image requests"));
        };
        let options = Options::from_bytes(configuration)?;
        let written = request::write(chat, &request, &options)?;
        Ok(Begun {
            exchange: ResponseReader::new(chat.stream, Answer::new(weir_sdk::custom::names(chat))),
            step: Step::Send(HttpRequest {
                method: "POST".to_owned(),
                path: PATH.to_owned(),
                headers: written.headers,
                body: written.body,
            }),
            ignored: written.ignored,
        })
    }
}
