//! Chat requests of all dialects, in the plugins' vocabulary.

use bytes::Bytes;
use serde_json::Value;
use weir_sandbox::adapter::bindings::adapter::Client;
use weir_sandbox::adapter::bindings::chat::{self, ChatRequest, Source};

use crate::dialect::{Dialect, MessageOrigin};

/// A chat request in any dialect.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatCall {
    /// The request in the plugins' vocabulary. `model` is the client's name, and `max_output_tokens` is 0: the host
    /// resolves both.
    pub request: ChatRequest,
    /// The bytes of the request's images, audio and documents, by index.
    pub attachments: Vec<Attachment>,
    /// The position of each message in the client's body.
    pub origins: Vec<MessageOrigin>,
    /// The bytes of the body, and of the session's messages.
    pub body_bytes: usize,
    /// The client, as far as an upstream needs it.
    pub client: Client,
    /// The client's own limit on output tokens, at least 1.
    pub output_limit: Option<u32>,
    /// The field of the limit, for errors.
    pub output_limit_param: &'static str,
    /// Whether the model must support tools.
    pub needs_tools: bool,
    /// The link to an earlier response, in dialects that continue responses by id.
    pub chain: Option<Chain>,
    /// The dialect of the response.
    pub dialect: Dialect,
}

/// The client's names of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConversationNames {
    /// The name in this request.
    pub name: Option<String>,
    /// The name in the next request, if it is known and different.
    pub next: Option<String>,
}

/// A request as a link in a chain of responses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The previous response's id, in the client's form.
    pub previous: Option<String>,
    /// The field of that id, for errors.
    pub param: &'static str,
    /// Whether another request may continue its response.
    pub is_kept: bool,
    /// The prefix of response ids in the client's form.
    pub prefix: &'static str,
    /// The number of leading messages for this request alone: instructions.
    pub leading: usize,
    /// The references to parts of earlier responses, in order.
    pub references: Vec<PartReference>,
}

/// A reference to a part of an earlier response, in a request. Its place holds an empty part until it is resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartReference {
    /// The message's index, counted after the leading messages; `part` is the index within the message.
    pub message: usize,
    /// The part's index; see `message`.
    pub part: usize,
    /// The response's id, in the client's form.
    pub answer: String,
    /// The first referenced block of the response.
    pub block: usize,
    /// Whether the reference means only the proof of a block that is not reasoning.
    pub is_proof: bool,
    /// The field of the reference, for errors.
    pub param: String,
}

/// A file that a client sent within its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The IANA media type, e.g. `image/png`.
    pub media_type: String,
    /// The bytes, decoded.
    pub data: Bytes,
}

impl ChatCall {
    /// Returns the client's names of the conversation, if any: for providers' prompt caches, or for weir's sessions. In
    /// a chain of responses, this response has `answer_id`, without the dialect's prefix.
    pub fn conversation(&self, answer_id: &str) -> ConversationNames {
        let text = |name: &str| {
            let (_, json) = self.request.extra.iter().find(|(field, _)| field == name)?;
            serde_json::from_str::<Value>(json).ok()
        };
        let named = ["session_id", "prompt_cache_key"]
            .into_iter()
            .find_map(text);
        let named = named.or_else(|| text("metadata")?.get_mut("user_id").map(Value::take));
        match (named, &self.chain) {
            (Some(Value::String(name)), _) => ConversationNames {
                name: Some(name),
                next: None,
            },
            (_, Some(chain)) => ConversationNames {
                name: chain.previous.clone(),
                next: chain
                    .is_kept
                    .then(|| format!("{}{answer_id}", chain.prefix)),
            },
            _ => ConversationNames::default(),
        }
    }

    /// Whether the request continues a conversation that weir stores.
    pub fn continues_stored(&self) -> bool {
        let mut fields = self.request.extra.iter();
        let refers = |chain: &Chain| chain.previous.is_some() || !chain.references.is_empty();
        fields.any(|(field, _)| field == "session_id") || self.chain.as_ref().is_some_and(refers)
    }

    /// The approximate bytes that an adapter receives: the body without attachments.
    pub fn text_bytes(&self) -> usize {
        let attached = self.attachments.iter();
        let in_base64 = attached
            .map(|attachment| attachment.data.len() / 3 * 4)
            .sum();
        self.body_bytes.saturating_sub(in_base64)
    }
}

/// Collects the attachments of a body during parsing.
#[derive(Debug, Default)]
pub struct Attachments(Vec<Attachment>);

impl Attachments {
    /// Adds an attachment, and returns its reference.
    pub fn add(&mut self, attachment: Attachment) -> Source {
        let index = u32::try_from(self.0.len()).expect("a body has fewer bytes than that");
        self.0.push(attachment);
        Source::Attachment(index)
    }

    /// Returns all attachments, by index.
    pub fn into_vec(self) -> Vec<Attachment> {
        self.0
    }
}

impl Attachment {
    /// Describes the attachment to an adapter, without its bytes.
    pub fn described(&self) -> chat::Attachment {
        chat::Attachment {
            media_type: self.media_type.clone(),
            size_bytes: self.data.len() as u64,
        }
    }
}

/// Takes the id of the end user from the fields again, after filters have changed them.
pub fn take_end_user(client: &mut Client, extra: &[chat::ExtraField]) {
    if client.end_user.is_none() {
        return;
    }
    let field = |name: &str| {
        let (_, json) = extra.iter().find(|(field, _)| field == name)?;
        serde_json::from_str::<Value>(json).ok()
    };
    let of_metadata = || field("metadata")?.get_mut("user_id").map(Value::take);
    let id = field("user").or_else(|| field("safety_identifier"));
    client.end_user = match id.or_else(of_metadata) {
        Some(Value::String(id)) => Some(id),
        _ => None,
    };
}

/// Returns a part of a message with this content only.
pub fn plain(content: chat::Content) -> chat::Part {
    chat::Part {
        content,
        cache: None,
        signature: None,
        provider: None,
        extra: Vec::new(),
    }
}
