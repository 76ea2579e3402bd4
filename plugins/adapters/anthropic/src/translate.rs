//! Messages, in and out, as plain functions from bytes to bytes.
//!
//! Servers of this dialect differ. The upstream's options say how:
//!
//! | option | values | |
//! |---|---|---|
//! | `thinking` | `auto` (default), `adaptive`, `budget` | how a model that has no other word for it is asked to reason with some effort: it decides for itself how long, or it gets a budget; `auto` goes by the model's name |
//! | `betas` | names, separated by commas | betas to ask for beside those of a client that speaks this dialect |
//! | `pass-fields` | names, separated by commas | fields to let through although they change the price: `speed`, `inference_geo`, `fallbacks` |
//!
//! The base URL ends where the dialect begins: `https://api.anthropic.com/v1`.
//!
//! **Invariant:** a streamed answer and a whole answer yield the same blocks. Each ends with exactly one finish event, after
//! all usage.
//! **Invariant:** the adapter refuses, by name, each field that would change the question or its price and that it cannot
//! send. It names all other fields that it leaves out as ignored.
//!
//! To send a new field, edit `request`; to read one, `answer`; to map another error, `refusal`; to add an option, `options`.

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

/// The dialect's name, also for clients that speak it.
const DIALECT: &str = "anthropic-messages";

/// The path of all requests.
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
            // Every adapter gets the standard headers, which are enough.
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
