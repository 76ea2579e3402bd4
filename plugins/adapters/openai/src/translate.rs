//! Chat Completions and Images, in and out, as plain functions from bytes to bytes.
//!
//! Options of the upstream cover the differences between servers of this dialect:
//!
//! | option | values | |
//! |---|---|---|
//! | `output-limit-field` | `max_completion_tokens` (default), `max_tokens` | the server's name of the output limit |
//! | `stream-usage` | `true` (default), `false` | whether to request usage in a stream; for servers that refuse
//! `stream_options` |
//! | `reasoning-field` | `none` (default), `reasoning_content`, `reasoning`, `reasoning_details` | the field in which
//! an assistant message sends its reasoning back; the last one with its proofs, as OpenRouter does |
//! | `end-user-field` | `user` (default), `safety_identifier`, `none` | the field for the end user's id; for servers
//! that refuse unknown fields |
//! | `pass-fields` | names, separated by commas | fields to pass beside those that `request` always passes |
//!
//! The base URL ends where the dialect begins: `https://api.openai.com/v1`.
//!
//! **Invariant:** a streamed response and a non-streamed one yield the same blocks, and each ends with exactly one
//! finish event, after all usage.
//! **Invariant:** a field that changes the response is never dropped, but refused by name. Any other omitted field is
//! named as ignored.
//!
//! To send a new field to the upstream, edit `request`; to read a new field, `answer`; for images, both are in
//! `images`; to classify another error, `refusal`; to add an option, `options`.

mod answer;
mod images;
mod options;
mod refusal;
mod request;

use answer::Answer;
use images::Images;
use options::Options;
use weir_sdk::adapter::{
    Begun, CredentialSlot, Description, Event, Exchange, Failure, HttpRequest, HttpResponseHead,
    RefusedSetting, Request, Setting, Step, Task,
};
use weir_sdk::failure::{self, MAX_ERROR_BODY_BYTES};
use weir_sdk::response::{Guess, Looks};
use weir_sdk::sse::{Sse, SseEvent};

/// The name of this dialect, here and in clients that speak it.
const DIALECT: &str = "openai-chat";

/// The request path of chat completions.
const PATH: &str = "/chat/completions";

/// Maximum size of a non-streamed response, in bytes: 30 times a model's output of 32,000 tokens, and small enough to
/// be parsed within a guest's memory.
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// One chat completion, or images.
#[derive(Debug)]
pub struct OpenAi {
    asked_for_stream: bool,
    response: Response,
    guess: Guess,
    reader: Reader,
}

/// The reader of a response.
#[derive(Debug)]
enum Reader {
    Chat(Answer),
    Images(Images),
}

/// The kind of the response.
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
            name: DIALECT.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            dialect: DIALECT.to_owned(),
            credential: CredentialSlot::Bearer,
            capabilities: vec!["chat".to_owned(), "images".to_owned()],
            options: options::NAMES.map(str::to_owned).to_vec(),
            request_headers: vec!["content-type".to_owned()],
            // The headers that every adapter gets are enough.
            response_headers: Vec::new(),
            path_prefixes: vec![PATH.to_owned(), images::PATHS.to_owned()],
        }
    }

    fn configure(options: &[Setting]) -> Result<Vec<u8>, RefusedSetting> {
        Ok(Options::from_settings(options)?.to_bytes())
    }

    fn begin(request: Request, configuration: &[u8]) -> Result<Begun<Self>, Failure> {
        let options = Options::from_bytes(configuration)?;
        let chat = match &request.task {
            Task::Chat(chat) => chat,
            Task::Image(image) => return images::begin(image, &request, &options),
        };
        let written = request::write(chat, &request, &options)?;
        Ok(Begun {
            exchange: Self {
                asked_for_stream: chat.stream,
                response: Response::Whole(Vec::new()),
                guess: Guess::default(),
                reader: Reader::Chat(Answer::new(request::asks_for_logprobs(chat))),
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
            // A login page, or a proxy's page.
            return Err(Failure::malformed(
                "the upstream answered with HTML; is its base URL right?",
            ));
        } else if content_type.contains("json") || !self.asked_for_stream {
            Response::Whole(Vec::new())
        } else {
            // Some servers label a stream `text/plain`, or not at all.
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
                self.response = Response::Whole(Vec::new());
            }
            _ => {}
        }
        let mut rest = Vec::new();
        // Content before an invalid image is still read.
        let (bytes, lifted) = match &mut self.reader {
            Reader::Images(images) => {
                let lifted = images.lift(bytes, &mut rest, events);
                (&rest[..], lifted)
            }
            Reader::Chat(_) => (bytes, Ok(())),
        };
        match &mut self.response {
            Response::Whole(body) if body.len() + bytes.len() > MAX_ANSWER_BYTES => {
                return Err(Failure::malformed(format!(
                    "the answer exceeds {MAX_ANSWER_BYTES} bytes"
                )));
            }
            Response::Whole(body) => body.extend_from_slice(bytes),
            Response::Stream(stream) => {
                stream.push(bytes);
                while let Some(event) = stream.next()? {
                    self.reader.read_event(event, events)?;
                }
            }
            Response::Refused { body, .. } => {
                let room = MAX_ERROR_BODY_BYTES - body.len();
                body.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
        }
        lifted
    }

    fn end(&mut self, events: &mut Vec<Event>) -> Result<(), Failure> {
        match &mut self.response {
            Response::Whole(body) => self.reader.read_whole(body, events)?,
            Response::Stream(stream) => {
                if let Some(event) = stream.finish()? {
                    self.reader.read_event(event, events)?;
                }
                if let Some(failure) = refusal::behind_the_stream(stream.stray()) {
                    return Err(failure);
                }
            }
            Response::Refused { head, body } => return Err(refusal::from_response(head, body)),
        }
        match &mut self.reader {
            Reader::Chat(answer) => answer.conclude(events),
            Reader::Images(images) => images.conclude(events),
        }
    }
}

impl Reader {
    fn read_event(&mut self, event: SseEvent<'_>, events: &mut Vec<Event>) -> Result<(), Failure> {
        match self {
            Self::Chat(answer) => answer.read_event(event, events),
            Self::Images(images) => images.read_event(event, events),
        }
    }

    fn read_whole(&mut self, body: &[u8], events: &mut Vec<Event>) -> Result<(), Failure> {
        match self {
            Self::Chat(answer) => answer.read_whole(body, events),
            Self::Images(images) => images.read_whole(body, events),
        }
    }
}
