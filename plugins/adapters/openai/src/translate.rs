//! Chat Completions and Images, in and out, as plain functions from bytes to bytes.
//!
//! What differs between the servers that speak this dialect is an option of the upstream:
//!
//! | option | values | |
//! |---|---|---|
//! | `output-limit-field` | `max_completion_tokens` (default), `max_tokens` | what the server calls the output limit |
//! | `stream-usage` | `true` (default), `false` | whether to ask for usage in a stream; for servers that refuse `stream_options` |
//! | `reasoning-field` | `none` (default), `reasoning_content`, `reasoning`, `reasoning_details` | where an assistant message carries its reasoning back; the last one with its proofs, as OpenRouter has it |
//! | `end-user-field` | `user` (default), `safety_identifier`, `none` | where the id of the end user goes; for servers that refuse fields they do not know |
//! | `pass-fields` | names, separated by commas | fields to let through beside those that `request` always does |
//!
//! The base URL ends where the dialect begins: `https://api.openai.com/v1`.
//!
//! **Invariant:** an answer that is streamed and one that is not yield the same blocks, and each
//! ends with exactly one finish event, after all usage.
//! **Invariant:** nothing is dropped that changes what is answered; such a field is refused by name.
//! What else is left out is named as ignored.
//!
//! To say something new to the upstream, edit `request`; to read something new, `answer`; of images,
//! both are in `images`; to tell another refusal apart, `refusal`; to add an option, `options`.

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

/// What this dialect is called, here and by clients that speak it themselves.
const DIALECT: &str = "openai-chat";

/// Where chat completions are asked for.
const PATH: &str = "/chat/completions";

/// The most that is taken of an answer that is not streamed: 30 times what a model writes in
/// 32,000 tokens, and little enough to be parsed within a guest's memory.
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// One chat completion, or images.
#[derive(Debug)]
pub struct OpenAi {
    asked_for_stream: bool,
    response: Response,
    guess: Guess,
    reader: Reader,
}

/// What reads an answer.
#[derive(Debug)]
enum Reader {
    Chat(Answer),
    Images(Images),
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
            name: DIALECT.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            dialect: DIALECT.to_owned(),
            credential: CredentialSlot::Bearer,
            capabilities: vec!["chat".to_owned(), "images".to_owned()],
            options: options::NAMES.map(str::to_owned).to_vec(),
            request_headers: vec!["content-type".to_owned()],
            // What every adapter gets is enough.
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
            // A login page, or that of a proxy in between.
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
        // Where an image is none, what came before it is read all the same.
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
