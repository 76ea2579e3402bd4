//! A response with images, non-streamed or as a stream of previews and the image.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use weir_sdk::adapter::{Event, Failure};
use weir_sdk::chat::{FinishReason, Media, NamedCount, Usage};
use weir_sdk::media::ImageExtractor;
use weir_sdk::response;
use weir_sdk::sse::SseEvent;
use weir_sdk::text;

use crate::translate::errors;

/// Paths of images in a response, and of the one image in an event of a stream.
const IMAGES: &[&[&str]] = &[&["data", "b64_json"], &["b64_json"]];

/// The parsed part of the response.
#[derive(Debug)]
pub struct ImagesResponse {
    extractor: ImageExtractor,
    /// The requested media type, for images without one.
    media_type: String,
    count: u32,
}

/// A response, or an event of a stream.
#[derive(Deserialize)]
struct ImagesBody<'a> {
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    data: Option<Vec<ImageItem>>,
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(flatten)]
    item: ImageItem,
    output_format: Option<String>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ImageItem {
    b64_json: Option<String>,
    url: Option<String>,
    revised_prompt: Option<String>,
    /// xAI's field.
    mime_type: Option<String>,
}

#[derive(Deserialize)]
struct WireUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    input_tokens_details: Option<TokenDetails>,
}

#[derive(Deserialize)]
struct TokenDetails {
    image_tokens: Option<u64>,
}

impl ImagesResponse {
    pub(super) fn new(media_type: Option<&str>) -> Self {
        Self {
            extractor: ImageExtractor::new(IMAGES),
            media_type: media_type.unwrap_or("image/png").to_owned(),
            count: 0,
        }
    }

    /// Extracts images from the next bytes.
    pub(in crate::translate) fn lift(
        &mut self,
        bytes: &[u8],
        events: &mut Vec<Event>,
    ) -> (Cow<'static, [u8]>, Result<(), Failure>) {
        self.extractor.lift(bytes, events)
    }

    pub(in crate::translate) fn read_whole(
        &mut self,
        body: &[u8],
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let json = text::lossy(body);
        let body: ImagesBody<'_> = read(&json)?;
        if body.error.is_some() {
            return Err(errors::from_error(&json));
        }
        let declared_type = body.output_format.map(media_type_of);
        for item in body.data.into_iter().flatten() {
            self.read_item(item, declared_type.as_deref(), false, events)?;
        }
        self.read_usage(body.usage, events);
        Ok(())
    }

    pub(in crate::translate) fn read_event(
        &mut self,
        event: SseEvent<'_>,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let data = event.data.trim();
        if data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        let body: ImagesBody<'_> = read(data)?;
        if body.error.is_some() || event.name == "error" {
            return Err(errors::from_error(data));
        }
        let kind = body.kind.as_deref().unwrap_or(event.name);
        let is_preview = kind.ends_with(".partial_image");
        if is_preview || kind.ends_with(".completed") {
            let declared_type = body.output_format.map(media_type_of);
            self.read_item(body.item, declared_type.as_deref(), is_preview, events)?;
        }
        if self.count > 0 {
            self.read_usage(body.usage, events);
        }
        Ok(())
    }

    /// Ends the response.
    ///
    /// # Errors
    ///
    /// [`FailureKind::Malformed`](weir_sdk::adapter::FailureKind::Malformed) for a response without an image.
    pub(in crate::translate) fn conclude(
        &mut self,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        if self.count == 0 {
            return Err(Failure::malformed("the answer has no image"));
        }
        events.push(Event::Finish(FinishReason::Stop));
        Ok(())
    }

    fn read_item(
        &mut self,
        item: ImageItem,
        declared_type: Option<&str>,
        is_preview: bool,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let declared_type = item.mime_type.as_deref().or(declared_type);
        let mut media = match (item.b64_json, item.url) {
            (Some(text), _) => {
                self.extractor
                    .image(&text, declared_type, &self.media_type, events)?
            }
            (None, Some(url)) => Media {
                media_type: declared_type.unwrap_or(&self.media_type).to_owned(),
                data: Vec::new(),
                bytes_before: None,
                url: Some(url),
                revised_prompt: None,
                is_preview: false,
            },
            // A filtered image, while others were made.
            (None, None) => return Ok(()),
        };
        media.revised_prompt = item.revised_prompt.filter(|prompt| !prompt.is_empty());
        media.is_preview = is_preview;
        self.count += u32::from(!is_preview);
        events.push(Event::Media(media));
        Ok(())
    }

    /// Emits the number of images, and the upstream's counts. An invalid count is ignored.
    fn read_usage(&self, raw: Option<&RawValue>, events: &mut Vec<Event>) {
        let usage: Option<WireUsage> = raw.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let input_image_tokens = usage
            .as_ref()
            .and_then(|usage| usage.input_tokens_details.as_ref()?.image_tokens);
        let other = input_image_tokens.map(|count| NamedCount {
            name: "image-input-tokens".to_owned(),
            count,
        });
        events.push(Event::Usage(Usage {
            input_tokens: usage.as_ref().and_then(|usage| usage.input_tokens),
            cache_read_tokens: None,
            cache_write_short_tokens: None,
            cache_write_long_tokens: None,
            output_tokens: usage.as_ref().and_then(|usage| usage.output_tokens),
            reasoning_tokens: None,
            images: (self.count > 0).then_some(self.count),
            other: other.into_iter().collect(),
        }));
    }
}

fn read<'a>(text: &'a str) -> Result<ImagesBody<'a>, Failure> {
    serde_json::from_str(text).map_err(|error| response::unreadable("one of images", &error))
}

fn media_type_of(format: String) -> String {
    format!("image/{format}")
}
