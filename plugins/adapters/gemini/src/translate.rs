//! `generateContent`, in and out, as plain functions from bytes to bytes.
//!
//! The base URL ends where the models begin: `https://generativelanguage.googleapis.com/v1beta`.
//!
//! **Invariant:** a streamed response and a non-streamed one yield the same blocks, and each ends with exactly one
//! finish event, after all usage.
//! **Invariant:** a field that changes the question or its cost is never dropped, but refused by name. Any other
//! omitted field is named as ignored.
//!
//! To send a new field to the upstream, edit `request`, `images` or `embeddings`; to read a new field, `answer`; to classify
//! another error, `refusal`.

mod answer;
mod embeddings;
mod images;
mod refusal;
mod request;

use answer::Answer;
use weir_sdk::adapter::{
    CredentialSlot, Description, EmbeddingsRequest, Failure, HttpRequest, Request, StartedExchange,
    Step, Task,
};
use weir_sdk::response::{ProviderApi, ResponseReader};

/// The name of this dialect.
const DIALECT: &str = "gemini-generate-content";

/// Prefix of each path; the model and the method follow.
const PATH: &str = "/models/";

/// One response.
pub type Gemini = ResponseReader<Answer>;

impl ProviderApi for Answer {
    fn describe() -> Description {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        Description {
            name: "gemini".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            dialect: DIALECT.to_owned(),
            credential: CredentialSlot::Header("x-goog-api-key".to_owned()),
            capabilities: words(&["chat", "images", "embeddings"]),
            options: Vec::new(),
            request_headers: words(&["content-type"]),
            // The headers that every adapter gets are enough.
            response_headers: Vec::new(),
            path_prefixes: words(&[PATH]),
        }
    }

    fn begin(request: Request, _configuration: &[u8]) -> Result<StartedExchange<Gemini>, Failure> {
        let of_image;
        let (chat, image) = match &request.task {
            Task::Chat(chat) => (chat, None),
            Task::Image(image) => {
                of_image = images::as_chat(image)?;
                (&of_image, Some(images::ImageConfig::of(image)?))
            }
        };
        let written = request::write(chat, image.as_ref(), &request)?;
        Ok(StartedExchange {
            exchange: ResponseReader::new(
                chat.stream,
                Answer::new(weir_sdk::custom::names(chat), image.is_some()),
            ),
            step: Step::Send(HttpRequest::post_json(written.path, written.body)),
            ignored: written.ignored,
        })
    }

    fn begin_embeddings(
        request: EmbeddingsRequest,
        _configuration: &[u8],
    ) -> Result<StartedExchange<Gemini>, Failure> {
        embeddings::begin(&request)
    }
}
