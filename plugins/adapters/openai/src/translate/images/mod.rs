//! Images: from a prompt (`POST /images/generations`), or from other images (`POST /images/edits`).
//!
//! The guest does not hold bytes of images. The host inserts a request's bytes, and receives a response's as they
//! arrive.

mod request;
mod response;

use weir_sdk::adapter::{Failure, HttpRequest, Request, StartedExchange, Step};
use weir_sdk::chat::ImageRequest;
use weir_sdk::response::ResponseReader;

use super::options::Options;
use super::{OpenAi, OpenAiReader};
pub(super) use response::ImagesResponse;

/// Prefix of each path for images.
pub(super) const PATHS: &str = "/images/";

pub(super) fn begin(
    image: &ImageRequest,
    request: &Request,
    options: &Options<'_>,
) -> Result<StartedExchange<OpenAi>, Failure> {
    let upstream_request = request::write(image, request, options)?;
    Ok(StartedExchange {
        exchange: ResponseReader::new(
            upstream_request.asks_for_stream,
            OpenAiReader::Images(ImagesResponse::new(image.media_type.as_deref())),
        ),
        step: Step::Send(HttpRequest {
            method: "POST".to_owned(),
            path: options.path(upstream_request.path, &image.model),
            headers: vec![("content-type".to_owned(), upstream_request.content_type)],
            body: upstream_request.body,
        }),
        ignored: upstream_request.ignored,
    })
}
