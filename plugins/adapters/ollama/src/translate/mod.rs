//! Ollama's chat, in and out, as plain functions from bytes to bytes.
//!
//! Options of the upstream cover the differences between servers:
//!
//! | option | values | |
//! |---|---|---|
//! | `context-tokens` | a number; the server's own choice by default | the context size of a loaded model |
//!
//! The base URL ends where the API begins: `http://localhost:11434/api`. A local server needs no credential.
//!
//! **Invariant:** a streamed response and a non-streamed one yield the same blocks, and each ends with exactly one
//! finish event, after all usage.
//! **Invariant:** a field that changes the question is never dropped, but refused by name. Any other omitted field is
//! named as ignored. The adapter tells the server to refuse input that exceeds its context, which the server would
//! otherwise truncate silently.
//!
//! To send a new field to the upstream, edit `request`, or `embeddings`; to read a new field, `response`; to classify another error,
//! `errors`.

mod embeddings;
mod errors;
mod fit;
mod request;
mod response;

use response::ChatResponse;
use weir_sdk::adapter::{
    CredentialSlot, Description, EmbeddingsRequest, Failure, HttpRequest, RefusedSetting, Request,
    Setting, StartedExchange, Step, Task,
};
use weir_sdk::fit::Rules;
use weir_sdk::long_texts;
use weir_sdk::response::{ProviderApi, ResponseReader};

const DIALECT: &str = "ollama-chat";

const PATH: &str = "/chat";

/// The request path of texts with a suffix.
const FILL_PATH: &str = "/generate";

/// The only option.
const CONTEXT_TOKENS: &str = "context-tokens";

pub type Ollama = ResponseReader<ChatResponse>;

impl ProviderApi for ChatResponse {
    fn describe() -> Description {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        Description {
            name: "ollama".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            dialect: DIALECT.to_owned(),
            credential: CredentialSlot::Bearer,
            capabilities: words(&["chat", "embeddings", long_texts::CAPABILITY]),
            options: words(&[CONTEXT_TOKENS]),
            request_headers: words(&["content-type"]),
            // The headers that every adapter gets are enough.
            response_headers: Vec::new(),
            path_prefixes: words(&[PATH, FILL_PATH, embeddings::PATH]),
        }
    }

    fn configure(options: &[Setting]) -> Result<Vec<u8>, RefusedSetting> {
        let mut configuration = Vec::new();
        for (name, value) in options {
            let why = match (name.as_str(), value.parse::<u32>()) {
                (CONTEXT_TOKENS, Ok(1..)) => {
                    configuration = value.clone().into_bytes();
                    continue;
                }
                (CONTEXT_TOKENS, _) => "must be a number of tokens, at least 1",
                _ => "is not an option of this adapter",
            };
            return Err(RefusedSetting {
                name: name.clone(),
                why: why.to_owned(),
            });
        }
        Ok(configuration)
    }

    fn rules(_request: &Request, _configuration: &[u8]) -> Rules {
        fit::RULES
    }

    fn begin(request: Request, configuration: &[u8]) -> Result<StartedExchange<Ollama>, Failure> {
        let Task::Chat(chat) = &request.task else {
            return Err(Failure::unsupported("image requests"));
        };
        let context_tokens = str::from_utf8(configuration).ok();
        let context_tokens = context_tokens.and_then(|tokens| tokens.parse().ok());
        let suffix = request::suffix(chat, &request)?;
        let path = match suffix {
            Some(_) => FILL_PATH,
            None => PATH,
        };
        let upstream_request = request::write(chat, &request, context_tokens, suffix)?;
        Ok(StartedExchange {
            exchange: ResponseReader::new(
                chat.stream,
                ChatResponse::new(weir_sdk::custom::names(chat)),
            ),
            step: Step::Send(HttpRequest::post_json(
                path.to_owned(),
                upstream_request.body,
            )),
            ignored: upstream_request.ignored,
        })
    }

    fn begin_embeddings(
        request: EmbeddingsRequest,
        _configuration: &[u8],
    ) -> Result<StartedExchange<Ollama>, Failure> {
        embeddings::begin(&request)
    }
}
