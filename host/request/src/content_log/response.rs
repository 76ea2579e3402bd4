//! Collects the content of a response from its events.

use std::collections::HashMap;

use weir_sandbox::adapter::bindings::chat::{Block, Event, FinishReason, Media};

use super::content::{LoggedPart, LoggedResponse, Room};
use super::reading::without_bytes;

/// The maximum bytes of data that are not text, such as an order of documents.
const DATA_BYTES: usize = 4 << 10;

/// The content of a response under construction.
pub struct ResponseContent {
    response: LoggedResponse,
    room: Room,
    /// The place of each open block.
    blocks: HashMap<u32, usize>,
    /// The bytes of each incomplete image or recording.
    media: HashMap<u32, u64>,
}

impl Default for ResponseContent {
    fn default() -> Self {
        Self {
            response: LoggedResponse::default(),
            room: Room::of_side(),
            blocks: HashMap::new(),
            media: HashMap::new(),
        }
    }
}

impl ResponseContent {
    /// Adds the next events.
    pub fn events(&mut self, events: &[Event]) {
        for event in events {
            self.event(event);
        }
    }

    /// Records that the response is the stored one of an earlier request with the same `Idempotency-Key`.
    pub fn replayed(&mut self) {
        self.push("other", Some("stored response of an earlier request"));
    }

    /// Returns the content so far.
    pub fn finish(mut self) -> LoggedResponse {
        self.response.truncated = self.room.is_cut;
        self.response
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::BlockStart(start) => {
                let (kind, name) = match &start.block {
                    Block::Text => ("text", None),
                    Block::Refusal => ("refusal", None),
                    Block::Reasoning => ("reasoning", None),
                    Block::ToolCall(call) => ("tool_call", Some(&*call.name)),
                };
                if let Some(place) = self.push(kind, name) {
                    self.blocks.insert(start.index, place);
                }
            }
            Event::Fragment(piece) => {
                // A block that did not fit has no place.
                let Some(place) = self.blocks.get(&piece.index) else {
                    return;
                };
                let text = self.room.fit(&piece.text);
                let part = &mut self.response.parts[*place];
                part.text.get_or_insert_default().push_str(text);
            }
            Event::Opaque(opaque) => {
                let json = without_bytes(&opaque.block.json);
                if let Some(place) = self.push("other", Some(&opaque.block.kind)) {
                    let text = self.room.fit(&json).to_owned();
                    self.response.parts[place].text = Some(text);
                }
            }
            Event::MediaBytes(piece) => {
                *self.media.entry(piece.id).or_default() += piece.data.len() as u64;
            }
            Event::Media(media) => self.media(media),
            Event::Finish(reason) => {
                self.response.finish_reason = Some(reason_name(reason).to_owned());
            }
            Event::Started(_)
            | Event::Signature(_)
            | Event::Sealed(_)
            | Event::Logprobs(_)
            | Event::Citation(_)
            | Event::BlockEnd(_)
            | Event::Usage(_) => {}
        }
    }

    fn media(&mut self, media: &Media) {
        let before = media.bytes_before.and_then(|id| self.media.remove(&id));
        let bytes = before.unwrap_or_default() + media.data.len() as u64;
        let kind = kind_of(&media.media_type);
        let Some(place) = self.push(kind, None) else {
            return;
        };
        let text = match (kind, &media.url) {
            (_, Some(url)) => Some(&**url),
            // A list of numbers is a vector.
            ("data", None) => str::from_utf8(&media.data)
                .ok()
                .filter(|text| !text.starts_with('[')),
            _ => media.revised_prompt.as_deref(),
        };
        let text = text.map(|text| {
            let end = text.floor_char_boundary(match kind {
                "data" => DATA_BYTES,
                _ => usize::MAX,
            });
            self.room.is_cut |= end < text.len();
            self.room.fit(&text[..end]).to_owned()
        });
        let media_type = self.room.fit(&media.media_type).to_owned();
        let part = &mut self.response.parts[place];
        part.text = text;
        part.media_type = Some(media_type);
        part.size_bytes = Some(bytes);
    }

    /// Adds a part, and returns its place; `None` if there is no room.
    fn push(&mut self, kind: &str, name: Option<&str>) -> Option<usize> {
        if !self.room.has_part() {
            return None;
        }
        self.response.parts.push(LoggedPart {
            kind: kind.to_owned(),
            name: name.map(|name| self.room.fit(name).to_owned()),
            ..LoggedPart::default()
        });
        Some(self.response.parts.len() - 1)
    }
}

fn kind_of(media_type: &str) -> &'static str {
    match media_type.split('/').next() {
        Some("image") => "image",
        Some("audio") => "audio",
        _ if media_type.starts_with("application/json") => "data",
        _ => "file",
    }
}

fn reason_name(reason: &FinishReason) -> &str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::StopSequence(_) => "stop_sequence",
        FinishReason::Length => "length",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::ContentFilter => "content_filter",
        FinishReason::Refusal => "refusal",
        FinishReason::PauseTurn => "pause_turn",
        FinishReason::ContextWindow => "context_window",
        FinishReason::MalformedCall => "malformed_call",
        FinishReason::Other(word) => {
            let end = word.floor_char_boundary(64);
            &word[..end]
        }
    }
}
