//! Converse, in and out, as plain functions from bytes to bytes.
//!
//! Options of the upstream cover the differences between models:
//!
//! | option | values | |
//! |---|---|---|
//! | `thinking` | `none` (default), `adaptive`, `budget` | Claude's form of reasoning, into which the adapter translates others:
//! none, adaptive, or with a budget and without efforts |
//! | `sampling` | `true` (default), `false` | whether the model takes `temperature` and `top_p` |
//! | `cache-points` | `true` (default), `false` | whether the model has a prompt cache: others refuse cache marks |
//!
//! The base URL is `https://bedrock-runtime.REGION.amazonaws.com`. A Bedrock API key is a bearer token; the host signs requests
//! with other credentials of AWS.
//!
//! Source: the operations `Converse` and `ConverseStream` of `bedrock-runtime`, version 2023-09-30, in botocore 1.44.8.
//!
//! **Invariant:** a streamed response and a non-streamed one yield the same blocks, and each ends with exactly one
//! finish event, after all usage.
//! **Invariant:** a field that changes the question or its cost is refused by name, unless a rule of the provider leaves no place for it
//! (`fit`). Any omitted field is named as ignored.
//!
//! To send a new field to the upstream, edit `request`; to read a new field, `response`; to add an option, `options`. Errors are in
//! the SDK's `aws`.

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
use weir_sdk::path::encode_segment;
use weir_sdk::response::{ProviderApi, ResponseReader};

const DIALECT: &str = "bedrock-converse";

/// Prefix of each path; the model and the operation follow.
const PATH: &str = "/model/";

pub type Bedrock = ResponseReader<ChatResponse>;

impl ProviderApi for ChatResponse {
    fn describe() -> Description {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        Description {
            name: "bedrock".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            dialect: DIALECT.to_owned(),
            credential: CredentialSlot::Bearer,
            capabilities: words(&["chat", long_texts::CAPABILITY]),
            options: words(&options::NAMES),
            request_headers: words(&["content-type"]),
            response_headers: words(&[aws::ERROR_HEADER]),
            path_prefixes: words(&[PATH]),
        }
    }

    fn configure(options: &[Setting]) -> Result<Vec<u8>, RefusedSetting> {
        Ok(Options::from_settings(options)?.to_bytes())
    }

    fn rules(_request: &Request, _configuration: &[u8]) -> Rules {
        fit::RULES
    }

    fn begin(request: Request, configuration: &[u8]) -> Result<StartedExchange<Bedrock>, Failure> {
        let Task::Chat(chat) = &request.task else {
            return Err(Failure::unsupported("image requests"));
        };
        let options = Options::from_bytes(configuration)?;
        let upstream_request = request::write(chat, &request, &options)?;
        let operation = match chat.stream {
            true => "converse-stream",
            false => "converse",
        };
        let path = format!("{PATH}{}/{operation}", encode_segment(&chat.model));
        Ok(StartedExchange {
            exchange: ResponseReader::new(
                chat.stream,
                ChatResponse::new(weir_sdk::custom::names(chat)),
            ),
            step: Step::Send(HttpRequest::post_json(path, upstream_request.body)),
            ignored: upstream_request.ignored,
        })
    }
}
