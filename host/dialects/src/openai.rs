//! Shared parts of OpenAI's dialects: files, tool names, reasoning effort, default fields.

use serde_json::{Value, json};
use weir_sandbox::adapter::bindings::adapter::Client;
use weir_sandbox::adapter::bindings::chat::{ExtraField, ReasoningEffort, Source};

use super::Attachments;
use super::dialect::Preferences;
use super::json::{
    FieldFault, ListItem, MAX_STOPS, RefusedFields, Text, TextOr, check_at_most, check_https_url,
    check_length, check_not_empty, data_url, each, object, required,
};
use crate::schema::Schemas;

/// The maximum characters of a model's name.
pub const MAX_MODEL_CHARS: usize = 256;
/// The maximum characters of a stop sequence.
pub const MAX_STOP_CHARS: usize = 1_024;
/// The maximum characters of an end user's id.
pub const MAX_USER_CHARS: usize = 512;

/// The maximum characters of the id of a provider's file.
pub const MAX_FILE_ID_CHARS: usize = 256;
/// The maximum characters of a file's name.
pub const MAX_FILE_NAME_CHARS: usize = 1_024;
/// The maximum characters of a name in an earlier call; a request's tools have shorter names.
pub const MAX_CALLED_NAME_CHARS: usize = 256;

/// The words for the effort of reasoning. The highest effort has had two names.
pub const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

object! {
    /// The settings of a stream.
    struct StreamOptions<'de> as "StreamOptions" {
        /// Whether the last chunk has the token usage and no choice.
        "include_usage": include_usage: bool,
        /// Padding of chunks, which is not supported: `false`.
        "include_obfuscation": include_obfuscation: bool = [Always(false)],
        others: RefusedFields,
    }
}

/// One stop sequence, or a list of them.
pub type Stop = TextOr<String, MAX_STOPS>;

impl ListItem for String {
    const PLURAL: &'static str = "strings";
}

/// Returns the client of a request with these fields beyond the vocabulary, in the dialect of this name.
pub fn client(dialect: &str, extra: &[ExtraField]) -> Result<Client, FieldFault> {
    let user = extra.iter().find(|(name, _)| name == "user");
    let end_user: Option<String> = user.and_then(|(_, json)| serde_json::from_str(json).ok());
    if let Some(user) = &end_user {
        check_at_most(user, MAX_USER_CHARS, "user")?;
    }
    Ok(Client {
        dialect: dialect.into(),
        headers: Vec::new(),
        end_user,
    })
}

/// Returns the client's preferences for a stream.
pub(crate) fn preferences(options: Option<StreamOptions<'_>>) -> Result<Preferences, FieldFault> {
    let options = options.unwrap_or_default();
    if options.include_obfuscation == Some(true) {
        return Err(FieldFault::new(
            "stream_options.include_obfuscation",
            "is not supported",
        ));
    }
    Ok(Preferences {
        include_usage: options.include_usage == Some(true),
    })
}

/// Returns the stop sequences.
pub fn stop(stop: Option<Stop>) -> Result<Vec<String>, FieldFault> {
    match stop {
        None => Ok(Vec::new()),
        Some(Stop::Text(text)) => {
            check_stop(&text, "stop")?;
            Ok(vec![text])
        }
        Some(Stop::List(list)) => each(list.0, "stop", |text| {
            check_stop(&text, "")?;
            Ok(text)
        }),
    }
}

/// The schema of [`Stop`].
pub fn stop_schema(_: &mut Schemas) -> Value {
    let text = json!({ "type": "string", "minLength": 1, "maxLength": MAX_STOP_CHARS });
    json!({ "anyOf": [text, { "type": "array", "items": text, "maxItems": MAX_STOPS }] })
}

fn check_stop(text: &str, field: &str) -> Result<(), FieldFault> {
    check_not_empty(text, field)?;
    check_at_most(text, MAX_STOP_CHARS, field)
}

/// Returns the source of an image by the URL in the field `field`.
pub fn image_source(
    url: Text<'_>,
    field: &str,
    attachments: &mut Attachments,
) -> Result<Source, FieldFault> {
    if let Some(attachment) = data_url(url.as_str(), field)? {
        if !attachment.media_type.starts_with("image/") {
            return Err(FieldFault::new(
                field,
                "must be of a media type such as image/png",
            ));
        }
        return Ok(attachments.add(attachment));
    }
    check_https_url(
        url.as_str(),
        field,
        "must be an https URL or a base64 data URL",
    )?;
    Ok(Source::Url(url.into_string()))
}

/// Returns the document in `file_data`, and its media type.
pub fn inline_file(
    data: Text<'_>,
    attachments: &mut Attachments,
) -> Result<(Source, String), FieldFault> {
    let attachment = data_url(data.as_str(), "file_data")?.ok_or_else(|| {
        FieldFault::new(
            "file_data",
            "must be a base64 data URL, e.g. data:application/pdf;base64,…",
        )
    })?;
    let media_type = attachment.media_type.clone();
    Ok((attachments.add(attachment), media_type))
}

/// Checks an upstream's file id.
pub fn check_file_id(id: &str) -> Result<(), FieldFault> {
    check_length(id, MAX_FILE_ID_CHARS, "file_id")
}

/// Checks a file name.
pub fn check_file_name(name: Option<&str>) -> Result<(), FieldFault> {
    check_at_most(name.unwrap_or_default(), MAX_FILE_NAME_CHARS, "filename")
}

/// Checks the name in an earlier call.
pub fn called_name(name: Option<String>) -> Result<String, FieldFault> {
    let name = required(name, "name")?;
    check_not_empty(&name, "name")?;
    check_at_most(&name, MAX_CALLED_NAME_CHARS, "name")?;
    Ok(name)
}

/// Returns the reasoning effort for the word in the field `field`.
pub fn effort(word: Option<&Text<'_>>, field: &str) -> Result<Option<ReasoningEffort>, FieldFault> {
    Ok(Some(match word.map(Text::as_str) {
        None => return Ok(None),
        Some("none") => ReasoningEffort::Off,
        Some("minimal") => ReasoningEffort::Minimal,
        Some("low") => ReasoningEffort::Low,
        Some("medium") => ReasoningEffort::Medium,
        Some("high") => ReasoningEffort::High,
        Some("xhigh" | "max") => ReasoningEffort::Highest,
        Some(_) => {
            return Err(FieldFault::new(
                field,
                "must be one of none, minimal, low, medium, high, xhigh, max",
            ));
        }
    }))
}

/// Whether an unknown field has its default value: clients and SDKs write such defaults, and adapters need not know
/// them.
pub fn says_nothing(name: &str, json: &str) -> bool {
    match name {
        "store" => json == "false",
        "service_tier" => json == "\"auto\"",
        // A longer value is not a default.
        "metadata" | "logit_bias" if json.len() < 16 => {
            matches!(serde_json::from_str(json), Ok(Value::Object(fields)) if fields.is_empty())
        }
        _ => false,
    }
}
