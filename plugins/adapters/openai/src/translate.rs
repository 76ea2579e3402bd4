//! Chat Completions, in and out, as plain functions from bytes to bytes.
//!
//! What differs between the servers that speak this dialect is an option of the upstream:
//!
//! | option | values | |
//! |---|---|---|
//! | `output-limit-field` | `max_completion_tokens` (default), `max_tokens` | what the server calls the output limit |
//! | `stream-usage` | `true` (default), `false` | whether to ask for usage in a stream; for servers that refuse `stream_options` |
//! | `reasoning-field` | `none` (default), `reasoning_content`, `reasoning` | where an assistant message carries its reasoning back |
//! | `pass-fields` | names, separated by commas | fields to let through beside those that `request` always does |
//!
//! The base URL ends where the dialect begins: `https://api.openai.com/v1`.
//!
//! **Invariant:** an answer that is streamed and one that is not yield the same blocks, and each
//! ends with exactly one finish event, after all usage.
//! **Invariant:** nothing is dropped that changes what is asked or what it costs; such a field is
//! refused by name.
//!
//! To say something new to the upstream, edit `request`; to read something new, `answer`; to
//! tell another refusal apart, `refusal`.

mod answer;
mod refusal;
mod request;

use answer::Answer;
use request::Options;
use weir_sdk::adapter::{
    CredentialSlot, Description, Event, Exchange, Failure, HttpRequest, HttpResponseHead, Request,
    Setting, Step,
};
use weir_sdk::failure::{self, MAX_ERROR_BODY_BYTES};
use weir_sdk::sse::Sse;

/// The most that is taken of an answer that is not streamed: 30 times what a model writes in
/// 32,000 tokens, and little enough to be parsed within a guest's memory.
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// One chat completion.
#[derive(Debug)]
pub struct OpenAi {
    /// The request's body, until it is sent.
    unsent: Option<Vec<u8>>,
    asked_for_stream: bool,
    response: Response,
    answer: Answer,
}

/// What the response turned out to be.
#[derive(Debug)]
enum Response {
    Whole(Vec<u8>),
    Stream(Sse),
    Refused {
        head: HttpResponseHead,
        body: Vec<u8>,
    },
}

impl Exchange for OpenAi {
    fn describe() -> Description {
        Description {
            name: "openai-chat".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            credential: CredentialSlot::Bearer,
            serves_chat: true,
            serves_images: false,
            options: request::OPTIONS.map(str::to_owned).to_vec(),
        }
    }

    fn begin(request: Request, options: Vec<Setting>) -> Result<Self, Failure> {
        let Request::Chat(chat) = request else {
            return Err(Failure::Unsupported("image requests".to_owned()));
        };
        let options = Options::parse(&options)?;
        Ok(Self {
            unsent: Some(request::write(&chat, &options)?),
            asked_for_stream: chat.stream,
            response: Response::Whole(Vec::new()),
            answer: Answer::default(),
        })
    }

    fn next(&mut self) -> Result<Step, Failure> {
        let Some(body) = self.unsent.take() else {
            return Ok(Step::Done);
        };
        Ok(Step::Send(HttpRequest {
            method: "POST".to_owned(),
            path: "/chat/completions".to_owned(),
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            body,
        }))
    }

    fn head(&mut self, head: HttpResponseHead) -> Result<(), Failure> {
        let content_type = failure::header(&head.headers, "content-type")
            .unwrap_or_default()
            .to_ascii_lowercase();
        self.response = if !(200..300).contains(&head.status) {
            Response::Refused {
                head,
                body: Vec::new(),
            }
        } else if content_type.contains("event-stream") {
            Response::Stream(Sse::default())
        } else if content_type.contains("html") {
            // A login page, or that of a proxy in between.
            return Err(Failure::Malformed(
                "the upstream answered with HTML; is its base URL right?".to_owned(),
            ));
        } else if content_type.contains("json") || !self.asked_for_stream {
            Response::Whole(Vec::new())
        } else {
            // Some servers label a stream `text/plain`, or not at all.
            Response::Stream(Sse::default())
        };
        Ok(())
    }

    fn body(&mut self, bytes: &[u8]) -> Result<Vec<Event>, Failure> {
        let mut events = Vec::new();
        match &mut self.response {
            Response::Whole(body) if body.len() + bytes.len() > MAX_ANSWER_BYTES => {
                return Err(Failure::Malformed(format!(
                    "the answer exceeds {MAX_ANSWER_BYTES} bytes"
                )));
            }
            Response::Whole(body) => body.extend_from_slice(bytes),
            Response::Stream(stream) => {
                stream.push(bytes);
                while let Some(event) = stream.next()? {
                    self.answer.read_event(event, &mut events)?;
                }
            }
            Response::Refused { body, .. } => {
                let room = MAX_ERROR_BODY_BYTES - body.len();
                body.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
        }
        Ok(events)
    }

    fn end(&mut self) -> Result<Vec<Event>, Failure> {
        let mut events = Vec::new();
        match &mut self.response {
            Response::Whole(body) => self.answer.read_whole(body, &mut events)?,
            Response::Stream(stream) => {
                if let Some(event) = stream.finish()? {
                    self.answer.read_event(event, &mut events)?;
                }
            }
            Response::Refused { head, body } => return Err(refusal::from_response(head, body)),
        }
        self.answer.conclude(&mut events)?;
        Ok(events)
    }
}
