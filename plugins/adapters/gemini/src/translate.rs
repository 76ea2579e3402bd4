//! `generateContent`, in and out, as plain functions from bytes to bytes.
//!
//! The base URL ends where the models begin: `https://generativelanguage.googleapis.com/v1beta`.
//!
//! **Invariant:** a streamed response and a non-streamed one yield the same blocks, and each ends with exactly one
//! finish event, after all usage.
//! **Invariant:** a field that changes the question or its cost is never dropped, but refused by name. Any other
//! omitted field is named as ignored.
//!
//! To send a new field to the upstream, edit `request`, or `images`; to read a new field, `answer`; to classify
//! another error, `refusal`.

mod answer;
mod images;
mod refusal;
mod request;

use answer::Answer;
use weir_sdk::adapter::{
    Begun, CredentialSlot, Description, Event, Exchange, Failure, HttpRequest, HttpResponseHead,
    Request, Step, Task,
};
use weir_sdk::response::{self, Guess, Looks, Refused, Whole};
use weir_sdk::sse::Sse;

/// The name of this dialect.
const DIALECT: &str = "gemini-generate-content";

/// Prefix of each path; the model and the method follow.
const PATH: &str = "/models/";

/// One response.
#[derive(Debug)]
pub struct Gemini {
    asked_for_stream: bool,
    response: Response,
    guess: Guess,
    answer: Answer,
}

/// The kind of the response.
#[derive(Debug)]
enum Response {
    /// A non-streamed response, or (from servers without `alt=sse`) a list of its chunks.
    Whole(Whole),
    Stream(Sse),
    Refused(Refused),
}

impl Exchange for Gemini {
    fn describe() -> Description {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        Description {
            name: "gemini".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            dialect: DIALECT.to_owned(),
            credential: CredentialSlot::Header("x-goog-api-key".to_owned()),
            capabilities: words(&["chat", "images"]),
            options: Vec::new(),
            request_headers: words(&["content-type"]),
            // The headers that every adapter gets are enough.
            response_headers: Vec::new(),
            path_prefixes: words(&[PATH]),
        }
    }

    fn begin(request: Request, _configuration: &[u8]) -> Result<Begun<Self>, Failure> {
        let of_image;
        let (chat, image) = match &request.task {
            Task::Chat(chat) => (chat, None),
            Task::Image(image) => {
                of_image = images::as_chat(image)?;
                (&of_image, Some(images::ImageConfig::of(image)?))
            }
        };
        let written = request::write(chat, image.as_ref(), &request)?;
        Ok(Begun {
            exchange: Self {
                asked_for_stream: chat.stream,
                response: Response::Whole(Whole::default()),
                guess: Guess::default(),
                answer: Answer::new(weir_sdk::custom::names(chat), image.is_some()),
            },
            step: Step::Send(HttpRequest {
                method: "POST".to_owned(),
                path: written.path,
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
        let mut rest = Vec::with_capacity(bytes.len());
        // Content before an invalid image is still read.
        let lifted = self.answer.lift(bytes, &mut rest, events);
        match &mut self.response {
            Response::Whole(whole) => whole.push(&rest)?,
            Response::Stream(stream) => {
                stream.push(&rest);
                while let Some(event) = stream.next()? {
                    self.answer.read_chunk(event.data, events)?;
                }
            }
            Response::Refused(refused) => refused.push(&rest),
        }
        lifted
    }

    fn end(&mut self, events: &mut Vec<Event>) -> Result<(), Failure> {
        match &mut self.response {
            Response::Whole(whole) => self.answer.read_whole(&whole.text(), events)?,
            Response::Stream(stream) => {
                if let Some(event) = stream.finish()? {
                    self.answer.read_chunk(event.data, events)?;
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
