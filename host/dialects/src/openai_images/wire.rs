//! The JSON of a request. [`super::request`] interprets the values.

use crate::json::{BoundedList, ExtraFields, MAX_EXTRA, RefusedFields, Text, object};

/// The maximum input images; OpenAI accepts 16.
pub(super) const MAX_IMAGES: usize = 16;

object! {
    struct ImageRequestBody<'de> {
        "model": model: Text<'de>,
        "prompt": prompt: String,
        "images": images: BoundedList<ImageUrlReference<'de>, MAX_IMAGES>,
        "mask": mask: ImageUrlReference<'de>,
        "n": n: u32,
        "size": size: String,
        "quality": quality: String,
        "background": background: String,
        "output_format": output_format: Text<'de>,
        "output_compression": output_compression: u32,
        "moderation": moderation: Text<'de>,
        "response_format": response_format: Text<'de>,
        "input_fidelity": input_fidelity: Text<'de>,
        "style": style: Text<'de>,
        "stream": stream: bool,
        "partial_images": partial_images: u32,
        "user": user: String,
        others: ExtraFields<'de, MAX_EXTRA>,
    }
}

object! {
    /// An image at a URL or in a data URL.
    struct ImageUrlReference<'de> {
        "image_url": image_url: Text<'de>,
        "file_id": file_id: String,
        others: RefusedFields,
    }
}
