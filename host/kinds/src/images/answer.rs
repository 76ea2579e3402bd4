//! The response: one object with a list of images, or events.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use weir_dialects::other::{PlainWriter, StreamWriter};
use weir_dialects::schema::{Described as _, Schemas};
use weir_dialects::written;
use weir_dialects::{AnswerHead, BilledUsage};
use weir_ledger::Credits;
use weir_sandbox::adapter::bindings::chat::{Event, Media, Usage};

use super::ImageOperation;

/// A plain response under construction.
#[derive(Debug, Clone)]
pub struct ImagesResponse {
    created: i64,
    images: Images,
}

/// Writes a stream: previews as they arrive, and the image after its charge.
#[derive(Debug)]
pub struct ImageStream {
    created: i64,
    made: ImageOperation,
    previews: u32,
    images: Images,
}

/// The images of the response.
#[derive(Debug, Clone, Default)]
struct Images {
    data: Vec<ImageItem>,
    output_format: Option<String>,
    /// Tokens of input images, as counted by the upstream.
    input_image_tokens: u64,
}

written! {
    /// An image that the model has made.
    #[derive(Debug, Clone)]
    struct ImageItem as "GeneratedImage" {
        /// The image in base64.
        #[serde(skip_serializing_if = "Option::is_none")]
        b64_json: Option<String>,
        /// The URL of the image.
        #[serde(skip_serializing_if = "Option::is_none")]
        url: Option<String>,
        /// The description that the model has used.
        #[serde(skip_serializing_if = "Option::is_none")]
        revised_prompt: Option<String>,
    }
}

written! {
    /// Images that the model has made.
    struct ImagesBody<'a> as "ImagesAnswer" {
        /// The time of the response, in seconds since 1970.
        created: i64,
        /// The images.
        data: &'a [ImageItem],
        /// The format of the images.
        #[serde(skip_serializing_if = "Option::is_none")]
        output_format: Option<&'a str>,
        /// The token usage.
        usage: ImagesUsage,
    }
}

written! {
    /// An event of a stream in Images: a preview, or the image.
    struct ImageEvent<'a> as "ImageEvent" {
        /// The kind of the event.
        #[serde(rename = "type")]
        kind: &'a str = [OneOf(&KINDS)],
        #[serde(flatten)]
        item: &'a ImageItem,
        /// The number of the preview, from 0.
        #[serde(skip_serializing_if = "Option::is_none")]
        partial_image_index: Option<u32>,
        /// The time of the response, in seconds since 1970.
        created_at: i64,
        /// The format of the image.
        #[serde(skip_serializing_if = "Option::is_none")]
        output_format: Option<&'a str>,
        /// With the image: the token usage.
        #[serde(skip_serializing_if = "Option::is_none")]
        usage: Option<ImagesUsage>,
    }
}

written! {
    /// The token usage and its charge.
    struct ImagesUsage as "ImagesUsage" {
        /// The tokens of the input.
        input_tokens: u64,
        /// The tokens of the images.
        output_tokens: u64,
        /// The tokens of both.
        total_tokens: u64,
        /// The tokens of the input, by kind.
        input_tokens_details: InputTokensDetails,
        /// The charge of the request, in credits. It is a field of weir.
        credits: Credits,
    }
}

written! {
    /// The tokens of the input, by kind.
    struct InputTokensDetails as "ImagesInputTokens" {
        /// The tokens of texts.
        text_tokens: u64,
        /// The tokens of images.
        image_tokens: u64,
    }
}

/// The kinds of events.
const KINDS: [&str; 4] = [
    "image_generation.partial_image",
    "image_generation.completed",
    "image_edit.partial_image",
    "image_edit.completed",
];

/// Adds the schemas of a response and of an event.
pub(super) fn describe(schemas: &mut Schemas) {
    ImagesBody::schema(schemas);
    ImageEvent::schema(schemas);
}

impl ImagesResponse {
    /// Returns a response without images.
    pub fn new(head: &AnswerHead) -> Self {
        Self {
            created: head.created,
            images: Images::default(),
        }
    }
}

impl PlainWriter for ImagesResponse {
    fn push(&mut self, event: &Event) {
        self.images.read(event);
    }

    fn clear(&mut self) {
        self.images = Images::default();
    }

    fn into_body(self: Box<Self>, billed: &BilledUsage) -> Vec<u8> {
        let images = &self.images;
        let body = ImagesBody {
            created: self.created,
            data: &images.data,
            output_format: images.output_format.as_deref(),
            usage: images.usage(billed),
        };
        let image_bytes = images.data.iter();
        let image_bytes: usize = image_bytes
            .filter_map(|item| Some(item.b64_json.as_ref()?.len()))
            .sum();
        let mut bytes = Vec::with_capacity(image_bytes + 1_024);
        json(&body, &mut bytes);
        bytes
    }
}

impl ImageStream {
    /// Returns a stream without images.
    pub fn new(head: &AnswerHead, made: ImageOperation) -> Self {
        Self {
            created: head.created,
            made,
            previews: 0,
            images: Images::default(),
        }
    }

    fn write(
        &self,
        item: &ImageItem,
        output_format: Option<&str>,
        partial_image_index: Option<u32>,
        usage: Option<ImagesUsage>,
        out: &mut Vec<u8>,
    ) {
        let kind = match (self.made, partial_image_index) {
            (ImageOperation::Generation, Some(_)) => "image_generation.partial_image",
            (ImageOperation::Generation, None) => "image_generation.completed",
            (ImageOperation::Edit, Some(_)) => "image_edit.partial_image",
            (ImageOperation::Edit, None) => "image_edit.completed",
        };
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\ndata: ");
        let event = ImageEvent {
            kind,
            item,
            partial_image_index,
            created_at: self.created,
            output_format,
            usage,
        };
        json(&event, out);
        out.extend_from_slice(b"\n\n");
    }
}

impl StreamWriter for ImageStream {
    fn event(&mut self, event: &Event, out: &mut Vec<u8>) {
        self.images.read(event);
        if let Event::Media(media) = event
            && media.is_preview
        {
            let index = self.previews;
            self.previews += 1;
            let (item, output_format) = (ImageItem::new(media), output_format(media));
            self.write(&item, output_format, Some(index), None, out);
        }
    }

    fn finish(&mut self, billed: &BilledUsage, out: &mut Vec<u8>) {
        for item in &self.images.data {
            let format = self.images.output_format.as_deref();
            let usage = self.images.usage(billed);
            self.write(item, format, None, Some(usage), out);
        }
    }
}

impl Images {
    fn read(&mut self, event: &Event) {
        match event {
            Event::Media(media) if !media.is_preview => {
                self.output_format = output_format(media).map(str::to_owned);
                self.data.push(ImageItem::new(media));
            }
            Event::Usage(usage) => self.input_image_tokens = input_image_tokens(usage),
            _ => {}
        }
    }

    fn usage(&self, billed: &BilledUsage) -> ImagesUsage {
        let (input, output) = (billed.tokens.input, billed.tokens.output);
        let image_tokens = self.input_image_tokens.min(input);
        ImagesUsage {
            input_tokens: input,
            output_tokens: output,
            total_tokens: input.saturating_add(output),
            input_tokens_details: InputTokensDetails {
                text_tokens: input - image_tokens,
                image_tokens,
            },
            credits: billed.credits,
        }
    }
}

impl ImageItem {
    fn new(media: &Media) -> Self {
        let b64_json = media.url.is_none().then(|| STANDARD.encode(&media.data));
        Self {
            b64_json,
            url: media.url.clone(),
            revised_prompt: media.revised_prompt.clone(),
        }
    }
}

/// Returns the name of an image's format, if its bytes are present.
fn output_format(media: &Media) -> Option<&str> {
    match media.url {
        None => media.media_type.strip_prefix("image/"),
        Some(_) => None,
    }
}

fn input_image_tokens(usage: &Usage) -> u64 {
    let mut other = usage.other.iter();
    let found = other.find(|count| count.name == "image-input-tokens");
    found.map_or(0, |count| count.count)
}

fn json<T: Serialize>(value: &T, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("plain structs serialize, and a Vec takes every byte");
}
