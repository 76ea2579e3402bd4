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
//! To send a new field to the upstream, edit `request`; to read a new field, `answer`; to classify another error,
//! `refusal`.

mod answer;
mod refusal;
mod request;

use answer::Answer;
use weir_sdk::adapter::{
    Begun, CredentialSlot, Description, Event, Exchange, Failure, HttpRequest, HttpResponseHead,
    RefusedSetting, Request, Setting, Step, Task,
};
use weir_sdk::lines::Lines;
use weir_sdk::response::{self, Refused, Whole};

/// The name of this dialect.
const DIALECT: &str = "ollama-chat";

/// The only request path.
const PATH: &str = "/chat";

/// The only option.
const CONTEXT_TOKENS: &str = "context-tokens";

/// One response.
#[derive(Debug)]
pub struct Ollama {
    asked_for_stream: bool,
    response: Response,
    answer: Answer,
}

/// The kind of the response.
#[derive(Debug)]
enum Response {
    /// A non-streamed response, or lines of a stream under another media type.
    Whole(Whole),
    Stream(Lines),
    Refused(Refused),
}

impl Exchange for Ollama {
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
            // The headers that every adapter gets are enough.
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

    fn begin(request: Request, configuration: &[u8]) -> Result<Begun<Self>, Failure> {
        let Task::Chat(chat) = &request.task else {
            return Err(Failure::unsupported("image requests"));
        };
        let context_tokens = str::from_utf8(configuration).ok();
        let context_tokens = context_tokens.and_then(|tokens| tokens.parse().ok());
        let written = request::write(chat, &request, context_tokens)?;
        Ok(Begun {
            exchange: Self {
                asked_for_stream: chat.stream,
                response: Response::Whole(Whole::default()),
                answer: Answer::new(weir_sdk::custom::names(chat)),
            },
            step: Step::Send(HttpRequest {
                method: "POST".to_owned(),
                path: PATH.to_owned(),
                headers: vec![("content-type".to_owned(), "application/json".to_owned())],
                body: written.body,
            }),
            ignored: written.ignored,
        })
    }

    fn next(&mut self) -> Result<Step, Failure> {
        Ok(Step::Done)
    }

    fn head(&mut self, head: HttpResponseHead) -> Result<(), Failure> {
        let content_type = response::content_type(&head);
        self.response = if !(200..300).contains(&head.status) {
            Response::Refused(Refused::new(head))
        } else if content_type.contains("ndjson") {
            Response::Stream(Lines::default())
        } else if content_type.contains("html") {
            return Err(response::html());
        } else if content_type.contains("json") || !self.asked_for_stream {
            Response::Whole(Whole::default())
        } else {
            Response::Stream(Lines::default())
        };
        Ok(())
    }

    fn body(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), Failure> {
        match &mut self.response {
            Response::Whole(whole) => whole.push(bytes)?,
            Response::Stream(lines) => {
                lines.push(bytes);
                while let Some(line) = lines.next()? {
                    self.answer.read(&String::from_utf8_lossy(line), events)?;
                }
            }
            Response::Refused(refused) => refused.push(bytes),
        }
        Ok(())
    }

    fn end(&mut self, events: &mut Vec<Event>) -> Result<(), Failure> {
        match &mut self.response {
            Response::Whole(whole) => self.answer.read(&whole.text(), events)?,
            Response::Stream(lines) => {
                if let Some(line) = lines.finish() {
                    self.answer.read(&String::from_utf8_lossy(line), events)?;
                }
            }
            Response::Refused(refused) => return Err(refusal::from_response(refused)),
        }
        self.answer.conclude(events)
    }
}
