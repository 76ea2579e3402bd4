//! Messages, in and out, as plain functions from bytes to bytes.
//!
//! Options of the upstream cover the differences between servers of this dialect:
//!
//! | option | values | |
//! |---|---|---|
//! | `thinking` | `auto` (default), `adaptive`, `budget`, `none` | the model's form of reasoning, into which the adapter
//! translates others: adaptive, with a budget and without efforts, or no reasoning. `auto` sends the client's form |
//! | `sampling` | `true` (default), `false` | whether the model takes `temperature`, `top_p` and `top_k` |
//! | `betas` | names, separated by commas | betas to request beside those of a client that speaks this dialect |
//! | `pass-fields` | names, separated by commas | fields and tools that the host lets through although weir does not see their
//! cost or state, such as `speed`, `thread`, `mcp_servers`, `code_execution` |
//! | `platform` | `anthropic` (default), `vertex`, `bedrock` | the platform that serves the models |
//!
//! The base URL ends where the dialect begins: `https://api.anthropic.com/v1`. On Vertex AI, it is
//! `https://REGION-aiplatform.googleapis.com/v1/projects/PROJECT/locations/REGION/publishers/anthropic`; on Bedrock,
//! `https://bedrock-runtime.REGION.amazonaws.com`.
//!
//! **Invariant:** a streamed response and a non-streamed one yield the same blocks, and each ends with exactly one
//! finish event, after all usage.
//! **Invariant:** a field that changes the question or its cost is refused by name, unless a rule of the provider leaves no place for it
//! (`fit`). Any omitted field is named as ignored.
//!
//! For another rule of the upstream, edit `fit`; to send a new field to the upstream, edit `request`; to read a new field, `response`; to classify another error,
//! `errors`; to add an option, `options`.

mod errors;
mod fit;
mod options;
mod request;
mod response;

use options::Options;
use response::ChatResponse;
use weir_sdk::adapter::{
    CredentialSlot, Description, Failure, HttpRequest, RefusedSetting, Request, Setting,
    StartedExchange, Step, Task,
};
use weir_sdk::aws;
use weir_sdk::fit::Rules;
use weir_sdk::long_texts;
use weir_sdk::response::{ProviderApi, ResponseReader};

/// The name of this dialect, here and in clients that speak it.
const DIALECT: &str = "anthropic-messages";

const MESSAGES_PATH: &str = "/messages";

/// Prefixes of the paths on other platforms; the model and the method follow.
const VERTEX_PATH: &str = "/models/";
const BEDROCK_PATH: &str = "/model/";

pub type Anthropic = ResponseReader<ChatResponse>;

impl ProviderApi for ChatResponse {
    fn describe() -> Description {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        Description {
            name: "anthropic".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            dialect: DIALECT.to_owned(),
            credential: CredentialSlot::Header("x-api-key".to_owned()),
            capabilities: words(&["chat", long_texts::CAPABILITY]),
            options: words(&options::NAMES),
            request_headers: words(&["content-type", "anthropic-version", "anthropic-beta"]),
            response_headers: words(&[aws::ERROR_HEADER]),
            path_prefixes: words(&[MESSAGES_PATH, VERTEX_PATH, BEDROCK_PATH]),
        }
    }

    fn configure(options: &[Setting]) -> Result<Vec<u8>, RefusedSetting> {
        Ok(Options::from_settings(options)?.to_bytes())
    }

    fn rules(request: &Request, _configuration: &[u8]) -> Rules {
        match request.client.dialect == DIALECT {
            true => fit::OWN_RULES,
            false => fit::RULES,
        }
    }

    fn begin(
        mut request: Request,
        configuration: &[u8],
    ) -> Result<StartedExchange<Anthropic>, Failure> {
        fit::prefill(&mut request);
        let Task::Chat(chat) = &request.task else {
            return Err(Failure::unsupported("image requests"));
        };
        let options = Options::from_bytes(configuration)?;
        let upstream_request = request::write(chat, &request, &options)?;
        Ok(StartedExchange {
            exchange: ResponseReader::new(
                chat.stream,
                ChatResponse::new(
                    weir_sdk::custom::names(chat),
                    request.client.dialect == DIALECT,
                ),
            ),
            step: Step::Send(HttpRequest {
                method: "POST".to_owned(),
                path: upstream_request.path,
                headers: upstream_request.headers,
                body: upstream_request.body,
            }),
            ignored: upstream_request.ignored,
        })
    }
}
