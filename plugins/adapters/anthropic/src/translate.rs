//! Messages, in and out, as plain functions from bytes to bytes.
//!
//! Options of the upstream cover the differences between servers of this dialect:
//!
//! | option | values | |
//! |---|---|---|
//! | `thinking` | `auto` (default), `adaptive`, `budget` | how the adapter requests reasoning from a model without
//! another field for it: adaptive, or with a budget; `auto` decides by the model's name |
//! | `betas` | names, separated by commas | betas to request beside those of a client that speaks this dialect |
//! | `pass-fields` | names, separated by commas | fields to let through although they change the price: `speed`, `inference_geo`, `fallbacks` |
//!
//! The base URL ends where the dialect begins: `https://api.anthropic.com/v1`.
//!
//! **Invariant:** a streamed response and a non-streamed one yield the same blocks, and each ends with exactly one
//! finish event, after all usage.
//! **Invariant:** a field that changes the question or its cost is never dropped, but refused by name. Any other
//! omitted field is named as ignored.
//!
//! To send a new field to the upstream, edit `request`; to read a new field, `answer`; to classify another error,
//! `refusal`; to add an option, `options`.

mod answer;
mod options;
mod refusal;
mod request;

use answer::Answer;
use options::Options;
use weir_sdk::adapter::{
    Begun, CredentialSlot, Description, Event, Exchange, Failure, HttpRequest, HttpResponseHead,
    RefusedSetting, Request, Setting, Step, Task,
};
use weir_sdk::response::{self, Guess, Looks, Refused, Whole};
use weir_sdk::sse::Sse;

/// The name of this dialect, here and in clients that speak it.
const DIALECT: &str = "anthropic-messages";

/// The only request path.
const PATH: &str = "/messages";

/// One message.
#[derive(Debug)]
pub struct Anthropic {
    asked_for_stream: bool,
    response: Response,
    guess: Guess,
    answer: Answer,
}

/// The kind of the response.
#[derive(Debug)]
enum Response {
    Whole(Whole),
    Stream(Sse),
    Refused(Refused),
}

impl Exchange for Anthropic {
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
            // The headers that every adapter gets are enough.
            response_headers: Vec::new(),
            path_prefixes: words(&[PATH]),
        }
    }

    fn configure(options: &[Setting]) -> Result<Vec<u8>, RefusedSetting> {
        Ok(Options::from_settings(options)?.to_bytes())
    }

    fn begin(request: Request, configuration: &[u8]) -> Result<Begun<Self>, Failure> {
        let Task::Chat(chat) = &request.task else {
            return Err(Failure::unsupported("image requests"));
        };
        let options = Options::from_bytes(configuration)?;
        let written = request::write(chat, &request, &options)?;
        Ok(Begun {
            exchange: Self {
                asked_for_stream: chat.stream,
                response: Response::Whole(Whole::default()),
                guess: Guess::default(),
                answer: Answer::new(weir_sdk::custom::names(chat)),
            },
            step: Step::Send(HttpRequest {
                method: "POST".to_owned(),
                path: PATH.to_owned(),
                headers: written.headers,
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
        } else if content_type.contains("event-stream") {
            Response::Stream(Sse::default())
        } else if content_type.contains("html") {
            return Err(response::html());
        } else if content_type.contains("json") || !self.asked_for_stream {
            Response::Whole(Whole::default())
        } else {
            Response::Stream(Sse::default())
        };
        Ok(())
    }

    fn body(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), Failure> {
        match (self.guess.guess(bytes), &self.response) {
            (Some(Looks::Events), Response::Whole(_)) => {
                self.response = Response::Stream(Sse::default());
            }
            (Some(Looks::Json), Response::Stream(_)) => {
                self.response = Response::Whole(Whole::default());
            }
            _ => {}
        }
        match &mut self.response {
            Response::Whole(whole) => whole.push(bytes)?,
            Response::Stream(stream) => {
                stream.push(bytes);
                while let Some(event) = stream.next()? {
                    self.answer.read_event(event, events)?;
                }
            }
            Response::Refused(refused) => refused.push(bytes),
        }
        Ok(())
    }

    fn end(&mut self, events: &mut Vec<Event>) -> Result<(), Failure> {
        match &mut self.response {
            Response::Whole(whole) => self.answer.read_whole(&whole.text(), events)?,
            Response::Stream(stream) => {
                if let Some(event) = stream.finish()? {
                    self.answer.read_event(event, events)?;
                }
                if let Some(failure) = refusal::behind_the_stream(stream.stray()) {
                    return Err(failure);
                }
            }
            Response::Refused(refused) => return Err(refusal::from_response(refused)),
        }
        self.answer.conclude(events)
    }
}
