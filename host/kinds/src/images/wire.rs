//! The JSON of a request. [`super::request`] interprets the values.

use weir_dialects::json::{BoundedList, ExtraFields, MAX_EXTRA, MAX_ID_CHARS, RefusedFields, Text};
use weir_dialects::object;
use weir_dialects::openai::{MAX_MODEL_CHARS, MAX_USER_CHARS};
use weir_dialects::schema::KnownFields;

/// The maximum input images; OpenAI accepts 16.
pub(super) const MAX_IMAGES: usize = 16;
/// The maximum characters of a prompt, as with OpenAI; some models accept fewer.
pub(super) const MAX_PROMPT_CHARS: usize = 32_000;
/// The maximum images of one request.
pub(super) const MAX_COUNT: u32 = 10;
/// The maximum previews of an image.
pub(super) const MAX_PREVIEWS: u32 = 3;
/// The maximum characters of a size, a quality or a similar word.
pub(super) const MAX_WORD_CHARS: usize = 32;

/// Fields of OpenAI's servers (openai 3.57.0, `types/image_generate_params.py` and `types/image_edit_params.py`).
const PASSED_ON: KnownFields = &[
    ("reasoning", "The settings of the model's reasoning."),
    (
        "safety_identifier",
        "A stable id of the end user, for the provider's checks of abuse.",
    ),
    ("svg", "The settings of an image in SVG."),
];

object! {
    /// A request in OpenAI's Images. Fields that weir does not know go on to the provider.
    struct ImageRequestBody<'de> as "ImageEditRequest" {
        /// The id of a model that makes images.
        "model": model: Text<'de> = [Required, Chars(1, MAX_MODEL_CHARS)],
        /// The description of the image.
        "prompt": prompt: String = [Required, Chars(1, MAX_PROMPT_CHARS)],
        /// The source images.
        "images": images: BoundedList<ImageUrlReference<'de>, MAX_IMAGES> = [Required, Items(1)],
        /// An image whose transparent parts mark what the model may change.
        "mask": mask: ImageUrlReference<'de>,
        /// The number of images, up to the model's limit; 1 for a stream.
        "n": n: u32 = [Between(1.0, MAX_COUNT as f64)],
        /// The size of the images, such as `1024x1024`.
        "size": size: String = [Chars(1, MAX_WORD_CHARS)],
        /// The quality of the images, such as `low` or `high`.
        "quality": quality: String = [Chars(1, MAX_WORD_CHARS)],
        /// The background of the images, such as `transparent`.
        "background": background: String = [Chars(1, MAX_WORD_CHARS)],
        /// The format of the images.
        "output_format": output_format: Text<'de> = [OneOf(&["png", "jpeg", "webp"])],
        /// The quality of a compressed image, in percent.
        "output_compression": output_compression: u32 = [Between(0.0, 100.0)],
        /// The strictness of the provider's checks of content.
        "moderation": moderation: Text<'de> = [OneOf(&["auto", "low"])],
        /// Whether the response has URLs or the images themselves.
        "response_format": response_format: Text<'de> = [OneOf(&["url", "b64_json"])],
        /// The likeness to the source images. A high one is not supported, because it has another price.
        "input_fidelity": input_fidelity: Text<'de> = [OneOf(&["low"])],
        /// The style of the images.
        "style": style: Text<'de> = [OneOf(&["vivid", "natural"])],
        /// Whether weir streams the image as server-sent events.
        "stream": stream: bool,
        /// The number of previews in a stream.
        "partial_images": partial_images: u32 = [Between(0.0, MAX_PREVIEWS as f64)],
        /// The id of the end user.
        "user": user: String = [Chars(0, MAX_USER_CHARS)],
        others: ExtraFields<'de, MAX_EXTRA> = PASSED_ON,
    }
}

object! {
    /// An image, by its URL or by an id.
    struct ImageUrlReference<'de> as "ImageReference" {
        /// An `https` URL, or a data URL such as `data:image/png;base64,…`.
        "image_url": image_url: Text<'de>,
        /// The id of a file that the provider keeps.
        "file_id": file_id: String = [Chars(1, MAX_ID_CHARS)],
        others: RefusedFields,
    }
}
