//! Images: from a prompt (`POST /images/generations`), or from other images (`POST /images/edits`).
//!
//! The guest does not hold bytes of images. The host inserts a request's bytes, and receives a response's as they
//! arrive.

mod answer;
mod request;

use weir_sdk::adapter::{Failure, HttpRequest, Request, StartedExchange, Step};
use weir_sdk::chat::ImageRequest;
use weir_sdk::response::ResponseReader;

use super::options::Options;
use super::{OpenAi, Reader};
pub(super) use answer::Images;

/// Prefix of each path for images.
pub(super) const PATHS: &str = "/images/";

pub(super) fn begin(
    image: &ImageRequest,
    request: &Request,
    options: &Options<'_>,
) -> Result<StartedExchange<OpenAi>, Failure> {
    let written = request::write(image, request, options)?;
    Ok(StartedExchange {
        exchange: ResponseReader::new(
            written.asks_for_stream,
            Reader::Images(Images::new(image.media_type.as_deref())),
        ),
        step: Step::Send(HttpRequest {
            method: "POST".to_owned(),
            path: options.path(written.path, &image.model),
            headers: vec![("content-type".to_owned(), written.content_type)],
            body: written.body,
        }),
        ignored: written.ignored,
    })
}
