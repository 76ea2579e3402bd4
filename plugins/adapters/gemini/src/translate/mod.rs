//! `generateContent`, in and out, as plain functions from bytes to bytes.
//!
//! The base URL ends where the models begin: `https://generativelanguage.googleapis.com/v1beta`.
//!
//! **Invariant:** a streamed response and a non-streamed one yield the same blocks, and each ends with exactly one
//! finish event, after all usage.
//! **Invariant:** a field that changes the question or its cost is refused by name, unless a rule of the provider leaves no place for it
//! (`fit`). Any omitted field is named as ignored.
//!
//! To send a new field to the upstream, edit `request`, `images` or `embeddings`; to read a new field, `response`; to classify
//! another error, `errors`.

mod embeddings;
mod errors;
mod fit;
mod images;
mod request;
mod response;

use response::ChatResponse;
use weir_sdk::adapter::{
    CredentialSlot, Description, EmbeddingsRequest, Failure, HttpRequest, Request, StartedExchange,
    Step, Task,
};
use weir_sdk::fit::Rules;
use weir_sdk::long_texts;
use weir_sdk::response::{ProviderApi, ResponseReader};

const DIALECT: &str = "gemini-generate-content";

/// Prefix of each path; the model and the method follow.
const PATH: &str = "/models/";

pub type Gemini = ResponseReader<ChatResponse>;

impl ProviderApi for ChatResponse {
    fn describe() -> Description {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        Description {
            name: "gemini".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            dialect: DIALECT.to_owned(),
            credential: CredentialSlot::Header("x-goog-api-key".to_owned()),
            capabilities: words(&["chat", "images", "embeddings", long_texts::CAPABILITY]),
            options: Vec::new(),
            request_headers: words(&["content-type"]),
            // The headers that every adapter gets are enough.
            response_headers: Vec::new(),
            path_prefixes: words(&[PATH]),
        }
    }

    fn rules(request: &Request, _configuration: &[u8]) -> Rules {
        match request.client.dialect == DIALECT {
            true => fit::OWN_RULES,
            false => fit::RULES,
        }
    }

    fn begin(request: Request, _configuration: &[u8]) -> Result<StartedExchange<Gemini>, Failure> {
        let image_chat;
        let (chat, image) = match &request.task {
            Task::Chat(chat) => (chat, None),
            Task::Image(image) => {
                image_chat = images::as_chat(image)?;
                (&image_chat, Some(images::ImageConfig::of(image)?))
            }
        };
        let upstream_request = request::write(chat, image.as_ref(), &request)?;
        Ok(StartedExchange {
            exchange: ResponseReader::new(
                chat.stream,
                ChatResponse::new(weir_sdk::custom::names(chat), image.is_some()),
            ),
            step: Step::Send(HttpRequest::post_json(
                upstream_request.path,
                upstream_request.body,
            )),
            ignored: upstream_request.ignored,
        })
    }

    fn begin_embeddings(
        request: EmbeddingsRequest,
        _configuration: &[u8],
    ) -> Result<StartedExchange<Gemini>, Failure> {
        embeddings::begin(&request)
    }
}
