//! A recorded exchange: an adapter's request, in the contract's vocabulary, and its upstream's responses.
//!
//! Dialects, sessions and filters precede an adapter, so its request has no dialect. The recording leaves out fields
//! that name the user or the conversation; it contains the prompts themselves. The responses are as the adapter
//! received them: without the provider's credential.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use weir_dialects::Attachment;
use weir_sandbox::adapter::bindings::adapter::{Client, Header, Request, Task};
use weir_sandbox::adapter::bindings::chat::{ChatRequest, ImageRequest};

/// Clients' fields that name a person or a conversation.
const PERSONAL: [&str; 6] = [
    "user",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
    "session_id",
    "previous_response_id",
];

/// A recorded exchange.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RecordedExchange {
    /// The request: a `NAME.json`.
    pub request: RecordedRequest,
    /// The responses, in order: a `NAME.http`, a `NAME.2.http` and so on.
    pub answers: Vec<RecordedAnswer>,
}

/// The request of an adapter.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedRequest {
    /// The task.
    pub recorded: RecordedTask,
    /// The attachments.
    #[serde(default)]
    pub attachments: Vec<RecordedAttachment>,
    /// The client's dialect.
    pub dialect: String,
    /// The client's headers in the request.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
}

/// The task of a request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordedTask {
    /// A chat request.
    Chat(Box<ChatRequest>),
    /// An image request.
    Image(Box<ImageRequest>),
}

/// An image or a file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedAttachment {
    /// The media type.
    pub media_type: String,
    /// The bytes, in Base64.
    pub data: String,
}

/// An upstream's response.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RecordedAnswer {
    /// The status.
    pub status: u16,
    /// The headers that the adapter received.
    pub headers: Vec<Header>,
    /// The body, in Base64.
    #[serde(with = "in_base64")]
    pub body: Vec<u8>,
}

impl RecordedRequest {
    /// Records an adapter's request.
    pub fn of(request: &Request, attachments: &[Attachment]) -> Self {
        let recorded = match &request.task {
            Task::Chat(chat) => {
                let mut chat = Box::new(chat.clone());
                chat.extra.retain(|(name, _)| !is_personal(name));
                RecordedTask::Chat(chat)
            }
            Task::Image(image) => {
                let mut image = Box::new(image.clone());
                image.extra.retain(|(name, _)| !is_personal(name));
                RecordedTask::Image(image)
            }
        };
        let attachments = attachments.iter().map(|attachment| RecordedAttachment {
            media_type: attachment.media_type.clone(),
            data: BASE64.encode(&attachment.data),
        });
        Self {
            recorded,
            attachments: attachments.collect(),
            dialect: request.client.dialect.clone(),
            headers: request.client.headers.clone(),
        }
    }

    /// The client as the adapter sees it.
    pub fn client(&self) -> Client {
        Client {
            dialect: self.dialect.clone(),
            headers: self.headers.clone(),
            end_user: None,
        }
    }

    /// Returns the attachments in the host's form.
    ///
    /// # Errors
    ///
    /// Fails if an attachment is not valid Base64.
    pub fn attachments(&self) -> Result<Vec<Attachment>, base64::DecodeError> {
        let decoded = self.attachments.iter().map(|attachment| {
            Ok(Attachment {
                media_type: attachment.media_type.clone(),
                data: BASE64.decode(&attachment.data)?.into(),
            })
        });
        decoded.collect()
    }
}

fn is_personal(name: &str) -> bool {
    PERSONAL.contains(&name)
}

mod in_base64 {
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    use base64::Engine as _;

    use super::BASE64;

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        BASE64.decode(text).map_err(de::Error::custom)
    }
}
