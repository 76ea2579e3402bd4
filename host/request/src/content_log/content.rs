//! The content of a request, as it is stored and shown.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_upstream::redact::redact_shapes;

/// The maximum bytes of text of a request, and of a response.
pub(super) const SIDE_BYTES: usize = 256 << 10;

/// The bytes that are collected beyond that, so that no credential is cut before it is redacted.
const SLACK_BYTES: usize = 8 << 10;

/// The bytes for which a part counts besides its texts.
const PART_BYTES: usize = 128;

/// The prompt and the response of a request.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoggedContent {
    /// The request as its provider got it; `None` if weir rejected it before.
    pub request: Option<LoggedRequest>,
    /// The response as its client got it.
    pub response: LoggedResponse,
    /// The error that ended the request.
    pub error: Option<LoggedError>,
}

/// A request as its provider got it.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LoggedRequest {
    /// `chat`, `images`, `embeddings`, `rerank`, `moderation`, `speech` or `transcription`.
    pub kind: String,
    /// The model's id.
    pub model: String,
    /// The messages, the system prompt first.
    pub messages: Vec<LoggedMessage>,
    /// The names of the tools.
    pub tools: Vec<String>,
    /// Further parameters, each as JSON.
    pub parameters: BTreeMap<String, String>,
    /// Whether the rest is missing: weir stores 256 KiB.
    pub truncated: bool,
}

/// A message of a request.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LoggedMessage {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The parts, in order.
    pub parts: Vec<LoggedPart>,
}

/// A part of a message or a response.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LoggedPart {
    /// `text`, `refusal`, `reasoning`, `tool_call`, `tool_result`, `image`, `audio`, `file`, `data`, or `other` for a block
    /// of a provider.
    pub kind: String,
    /// The name of the tool, the file or the block.
    pub name: Option<String>,
    /// The text, the arguments of a call, or the URL of a file.
    pub text: Option<String>,
    /// The media type of an image, a recording or a file, whose bytes weir does not store.
    pub media_type: Option<String>,
    /// The number of those bytes.
    pub size_bytes: Option<u64>,
}

/// A response as its client got it.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LoggedResponse {
    /// The parts, in order.
    pub parts: Vec<LoggedPart>,
    /// The reason of its end; null if it did not end by itself.
    pub finish_reason: Option<String>,
    /// Whether the rest is missing: weir stores 256 KiB.
    pub truncated: bool,
}

/// The error that ended a request.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LoggedError {
    /// The code.
    pub code: String,
    /// The message for the client.
    pub message: String,
}

/// The room that is left for the texts of one side.
pub(super) struct Room {
    left: usize,
    /// Whether a text did not fit.
    pub(super) is_cut: bool,
}

impl Room {
    /// The room of a side while it is collected.
    pub(super) fn of_side() -> Self {
        Self {
            left: SIDE_BYTES + SLACK_BYTES,
            is_cut: false,
        }
    }

    /// Returns whether a further part fits.
    pub(super) fn has_part(&mut self) -> bool {
        match self.left.checked_sub(PART_BYTES) {
            Some(left) => {
                self.left = left;
                true
            }
            None => {
                self.is_cut = true;
                false
            }
        }
    }

    /// Returns the beginning of a text that fits.
    pub(super) fn fit<'a>(&mut self, text: &'a str) -> &'a str {
        let end = text.floor_char_boundary(self.left);
        self.is_cut |= end < text.len();
        self.left -= end;
        &text[..end]
    }
}

impl LoggedContent {
    /// Returns whether there is nothing to store.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns about as many bytes as the content takes.
    pub(super) fn bytes(&mut self) -> usize {
        let mut bytes = PART_BYTES;
        let mut count = |text: &mut String| bytes += text.len() + PART_BYTES;
        if let Some(request) = &mut self.request {
            request.each_text(&mut count);
        }
        self.response.each_text(&mut count);
        bytes
    }

    /// Redacts credentials, and then cuts each side to its maximum.
    pub(super) fn redact(&mut self) {
        if let Some(request) = &mut self.request {
            let mut room = Room {
                left: SIDE_BYTES,
                is_cut: request.truncated,
            };
            request.each_text(&mut |text| redact_in(text, &mut room));
            request.truncated = room.is_cut;
        }
        let response = &mut self.response;
        let mut room = Room {
            left: SIDE_BYTES,
            is_cut: response.truncated,
        };
        response.each_text(&mut |text| redact_in(text, &mut room));
        response.truncated = room.is_cut;
        if let Some(error) = &mut self.error {
            redact_shapes(&mut error.message);
        }
    }
}

fn redact_in(text: &mut String, room: &mut Room) {
    redact_shapes(text);
    let end = room.fit(text).len();
    text.truncate(end);
}

impl LoggedRequest {
    fn each_text(&mut self, visit: &mut impl FnMut(&mut String)) {
        visit(&mut self.model);
        for part in self.messages.iter_mut().flat_map(|one| &mut one.parts) {
            part.each_text(visit);
        }
        self.tools.iter_mut().for_each(&mut *visit);
        self.parameters.values_mut().for_each(visit);
    }
}

impl LoggedResponse {
    fn each_text(&mut self, visit: &mut impl FnMut(&mut String)) {
        for part in &mut self.parts {
            part.each_text(visit);
        }
        if let Some(reason) = &mut self.finish_reason {
            visit(reason);
        }
    }
}

impl LoggedPart {
    fn each_text(&mut self, visit: &mut impl FnMut(&mut String)) {
        let texts = [&mut self.name, &mut self.text, &mut self.media_type];
        texts.into_iter().flatten().for_each(visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_is_cut_after_its_credentials_are_redacted() {
        let key = "sk-0123456789abcdef0123456789";
        let filler = "x ".repeat(SIDE_BYTES / 2 - 5);
        let text = format!("{filler}{key} the end");
        let mut room = Room::of_side();
        let collected = room.fit(&text).to_owned();
        let mut content = LoggedContent {
            request: None,
            response: LoggedResponse {
                parts: vec![LoggedPart {
                    text: Some(collected),
                    ..LoggedPart::default()
                }],
                ..LoggedResponse::default()
            },
            error: None,
        };
        content.redact();
        let shown = content.response.parts[0].text.clone().unwrap_or_default();
        assert_eq!(shown.len(), SIDE_BYTES);
        assert!(content.response.truncated);
        assert!(
            shown.ends_with(" **********"),
            "{}",
            &shown[shown.len() - 20..]
        );
    }

    #[test]
    fn a_room_cuts_between_characters_and_counts_parts() {
        let mut room = Room {
            left: PART_BYTES + 3,
            is_cut: false,
        };
        assert!(room.has_part());
        assert_eq!(room.fit("aüü"), "aü");
        assert!(room.is_cut);
        assert_eq!((room.fit("x"), room.has_part()), ("", false));
    }
}
