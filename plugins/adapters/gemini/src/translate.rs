//! `generateContent`, in and out, as plain functions from bytes to bytes.
//!
//! The base URL ends where the models begin: `https://generativelanguage.googleapis.com/v1beta`.
//!
//! **Invariant:** a streamed answer and a whole answer yield the same blocks. Each ends with exactly one finish event, after
//! all usage.
//! **Invariant:** the adapter refuses, by name, each field that would change the question or its price and that it cannot
//! send. It names all other fields that it leaves out as ignored.
//!
//! To send a new field, edit `request` or `images`; to read one, `answer`; to map another error, `refusal`.

mod answer;
mod images;
mod refusal;
mod request;

use answer::Answer;
use weir_sdk::adapter::{
    Begun, CredentialSlot, Description, Failure, HttpRequest, Request, Step, Task,
};
use weir_sdk::response::{ProviderApi, ResponseReader};

/// The dialect's name.
const DIALECT: &str = "gemini-generate-content";

/// The prefix of each path, before the model and the method.
const PATH: &str = "/models/";

/// One answer.
pub type Gemini = ResponseReader<Answer>;

impl ProviderApi for Answer {
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
            // Every adapter gets the standard headers, which are enough.
            response_headers: Vec::new(),
            path_prefixes: words(&[PATH]),
        }
    }

    fn begin(request: Request, _configuration: &[u8]) -> Result<Begun<Gemini>, Failure> {
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
            exchange: ResponseReader::new(
                chat.stream,
                Answer::new(weir_sdk::custom::names(chat), image.is_some()),
            ),
            step: Step::Send(HttpRequest::post_json(written.path, written.body)),
            ignored: written.ignored,
        })
    }
}
