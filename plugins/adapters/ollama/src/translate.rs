//! Ollama's chat, in and out, as plain functions from bytes to bytes.
//!
//! What differs between servers is an option of the upstream:
//!
//! | option | values | |
//! |---|---|---|
//! | `context-tokens` | a number; the server's own choice by default | how large a context a model is loaded with |
//!
//! The base URL ends where the API begins: `http://localhost:11434/api`. A server of one's own needs
//! no credential.
//!
//! **Invariant:** an answer that is streamed and one that is not yield the same blocks, and each
//! ends with exactly one finish event, after all usage.
//! **Invariant:** nothing is dropped that changes what is asked; such a field is refused by name. What
//! else is left out is named as ignored. The server is told to do likewise with what does not fit
//! into its context, which it would cut in silence.
//!
//! To say something new to the upstream, edit `request`; to read something new, `answer`; to
//! tell another refusal apart, `refusal`.

mod answer;
mod refusal;
mod request;

use answer::Answer;
use weir_sdk::adapter::{
    Begun, CredentialSlot, Description, Failure, HttpRequest, RefusedSetting, Request, Setting,
    Step, Task,
};
use weir_sdk::response::{ProviderApi, ResponseReader};

/// What this dialect is called.
const DIALECT: &str = "ollama-chat";

/// The only path that is asked for.
const PATH: &str = "/chat";

/// The only option.
const CONTEXT_TOKENS: &str = "context-tokens";

/// One answer.
pub type Ollama = ResponseReader<Answer>;

impl ProviderApi for Answer {
    fn describe() -> Description {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        Description {
            name: "ollama".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            dialect: DIALECT.to_owned(),
            credential: CredentialSlot::Bearer,
            capabilities: words(&["chat"]),
            options: words(&[CONTEXT_TOKENS]),
            request_headers: words(&["content-type"]),
            // What every adapter gets is enough.
            response_headers: Vec::new(),
            path_prefixes: words(&[PATH]),
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

    fn begin(request: Request, configuration: &[u8]) -> Result<Begun<Ollama>, Failure> {
        let Task::Chat(chat) = &request.task else {
            return Err(Failure::unsupported("image requests"));
        };
        let context_tokens = str::from_utf8(configuration).ok();
        let context_tokens = context_tokens.and_then(|tokens| tokens.parse().ok());
        let written = request::write(chat, &request, context_tokens)?;
        Ok(Begun {
            exchange: ResponseReader::new(chat.stream, Answer::new(weir_sdk::custom::names(chat))),
            step: Step::Send(HttpRequest::post_json(PATH.to_owned(), written.body)),
            ignored: written.ignored,
        })
    }
}
