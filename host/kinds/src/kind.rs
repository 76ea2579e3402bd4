//! The rules of a kind, and a request of a kind.

use serde_json::Value;
use weir_dialects::other::{OtherFormat, ResponseFormat};
use weir_dialects::{Attachment, Dialect};
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::Unit;
use weir_sandbox::adapter::OtherRequest;
use weir_sandbox::adapter::bindings::chat::ExtraField;
use weir_upstream::audio_length::RecordingLength;
use weir_upstream::usage::{BYTES_PER_TOKEN, RequestSize};

/// A request of a kind besides chats and images, in any dialect.
#[derive(Debug, Clone, PartialEq)]
pub struct KindCall {
    /// The request in the plugins' vocabulary. `model` is the client's name.
    pub request: OtherRequest,
    /// The bytes of its files.
    pub attachments: Vec<Attachment>,
    /// The bytes of the body.
    pub body_bytes: usize,
    /// The dialect of the response.
    pub dialect: Dialect,
}

/// The rules of a kind of work.
pub trait Kind {
    /// Returns the parts of the request that filters see and may change.
    fn screened_mut(&mut self) -> ScreenedFields<'_>;

    /// Checks that the request has only contents that filters can see.
    ///
    /// # Errors
    ///
    /// 400 that names the field.
    fn check_screened(&self) -> Result<(), ApiError> {
        Ok(())
    }

    /// Returns whether filters see the response.
    fn screened_response(&self) -> ScreenedResponse {
        ScreenedResponse::None
    }

    /// Returns the contents of the request for the content log.
    fn contents(&self) -> Contents<'_>;

    /// Returns the size of the request, before its recording is read.
    fn size(&self) -> RequestSize;

    /// Checks the request against the limits of its model, and returns its bounds.
    ///
    /// # Errors
    ///
    /// 400 that names the field.
    fn bounds(&self, model: &ModelTerms<'_>) -> Result<KindBounds, ApiError>;

    /// Returns the bounds of a request whose recording has this length, like [`Self::bounds`].
    fn bounds_of_recording(
        &self,
        _model: &ModelTerms<'_>,
        _length: RecordingLength,
    ) -> Result<KindBounds, ApiError> {
        Err(ApiError::internal())
    }

    /// Returns whether the response cache is for the kind.
    fn is_cacheable(&self) -> bool {
        false
    }

    /// Returns what tells the request from others whose responses may differ; `None` if the cache is not for the kind.
    fn cache_key(&self) -> Option<Vec<u8>> {
        None
    }

    /// Returns whether the client wants a stream.
    fn is_stream(&self) -> bool {
        false
    }

    /// Returns whether the upstream sends its response in pieces of text.
    fn is_streamed_upstream(&self) -> bool {
        false
    }

    /// Returns the word of the conventions for traces for output that is no text.
    fn output_type(&self) -> Option<&'static str> {
        None
    }
}

/// The limits of a model, as far as requests of these kinds depend on them.
#[derive(Debug, Clone, Copy)]
pub struct ModelTerms<'a> {
    /// The model's id.
    pub id: &'a str,
    /// The maximum tokens of a text, or the maximum characters or seconds if the price counts these.
    pub context_window: u32,
    /// The maximum tokens of the output; 0 if the model has no limit of its own.
    pub max_output_tokens: u32,
    /// The unit in which the price counts.
    pub price_unit: Unit,
}

/// The bounds of a request: they limit its price.
#[derive(Debug, Clone, Copy)]
pub struct KindBounds {
    /// The size.
    pub size: RequestSize,
    /// The maximum tokens of the response.
    pub output_limit: u32,
}

/// The fields of a request that filters see and may change.
pub struct ScreenedFields<'a> {
    /// The texts.
    pub texts: Vec<&'a mut String>,
    /// Words that the client chooses freely, such as the name of a file, by the names of their fields.
    pub words: Vec<(&'static str, &'a mut String)>,
    /// The fields beyond the vocabulary.
    pub extra: &'a mut Vec<ExtraField>,
}

/// The part of a response that filters see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScreenedResponse {
    /// Nothing.
    None,
    /// The text.
    Text,
    /// A text with timings, which no filter may change.
    TimedText,
}

/// The contents of a request, for the content log.
#[derive(Debug, Default)]
pub struct Contents<'a> {
    /// The user's messages, each with its parts.
    pub messages: Vec<Vec<ContentPart<'a>>>,
    /// The settings that the client has chosen, by the names of their fields.
    pub settings: Vec<(&'static str, Option<Value>)>,
    /// The fields beyond the vocabulary.
    pub extra: &'a [ExtraField],
}

/// A part of a message.
#[derive(Debug, PartialEq)]
pub enum ContentPart<'a> {
    /// A text.
    Text(&'a str),
    /// A document.
    Document(&'a str),
    /// Data, described in words.
    Data(String),
    /// The recording, with the name of its file.
    Recording(&'a str),
}

impl KindCall {
    /// Returns a call without files.
    pub(crate) fn new(
        request: OtherRequest,
        body_bytes: usize,
        format: impl ResponseFormat + 'static,
    ) -> Self {
        Self {
            request,
            attachments: Vec::new(),
            body_bytes,
            dialect: Dialect::Other(OtherFormat::from(format)),
        }
    }

    /// Returns the approximate bytes that an adapter receives.
    pub fn text_bytes(&self) -> usize {
        let files = self.attachments.iter().map(|file| file.data.len());
        self.body_bytes.saturating_sub(files.sum())
    }
}

impl ModelTerms<'_> {
    /// Refuses a request whose input, in a field, has more units than the model takes.
    pub(crate) fn check_window(&self, count: u64, unit: &str, field: &str) -> Result<(), ApiError> {
        let window = u64::from(self.context_window);
        if count <= window {
            return Ok(());
        }
        let message = format!(
            "The model {} takes {window} {unit}; {field} has about {count}.",
            self.id
        );
        Err(too_long(message, field, window))
    }

    /// Refuses a text that is longer than the model takes, by its estimated tokens.
    pub(crate) fn check_text(
        &self,
        bytes: u64,
        field: impl Fn() -> String,
    ) -> Result<(), ApiError> {
        let tokens = bytes.div_ceil(BYTES_PER_TOKEN);
        let window = u64::from(self.context_window);
        if tokens <= window {
            return Ok(());
        }
        let field = field();
        let message = format!(
            "The model {} takes {window} tokens for each text; {field} has about {tokens}.",
            self.id
        );
        Err(too_long(message, &field, window))
    }

    /// Refuses texts of the field `input` that are longer than the model takes.
    pub(crate) fn check_inputs(
        &self,
        inputs: impl ExactSizeIterator<Item = u64>,
    ) -> Result<(), ApiError> {
        let is_alone = inputs.len() == 1;
        for (index, bytes) in inputs.enumerate() {
            self.check_text(bytes, || match is_alone {
                true => "input".to_owned(),
                false => format!("input[{index}]"),
            })?;
        }
        Ok(())
    }

    /// Returns the output limit of audio with so many tokens.
    pub(crate) fn audio_output_limit(&self, tokens: u64) -> u32 {
        let tokens = u32::try_from(tokens.saturating_add(FREE_TOKENS)).unwrap_or(u32::MAX);
        match self.max_output_tokens {
            0 => tokens,
            most => tokens.min(most),
        }
    }
}

/// The output tokens that need no character and no second.
const FREE_TOKENS: u64 = 256;

impl KindBounds {
    /// Returns the bounds of a request whose response is data: it has no text, but each result has a few bytes around its
    /// data.
    pub(crate) fn of_data(size: RequestSize, results: usize) -> Self {
        Self {
            size,
            output_limit: u32::try_from(results).unwrap_or(u32::MAX),
        }
    }
}

/// Returns the fields that may change a response, independent of their order in the body.
pub fn fields_with_effect(extra: &[ExtraField]) -> Vec<&ExtraField> {
    let is_counted = |field: &&ExtraField| !WITHOUT_EFFECT.contains(&&*field.0);
    let mut extra: Vec<_> = extra.iter().filter(is_counted).collect();
    extra.sort();
    extra
}

/// Fields about the end user and the provider's caches, which change no response.
const WITHOUT_EFFECT: [&str; 4] = ["metadata", "prompt_cache_key", "safety_identifier", "user"];

fn too_long(message: String, field: &str, window: u64) -> ApiError {
    ApiError::new(ErrorCode::ContextLengthExceeded, message)
        .with_param(field)
        .with_detail("context_window", window)
}
