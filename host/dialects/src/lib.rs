//! Dialects: the request and response formats of weir's clients.
//!
//! A dialect parses a request body into a [`ChatCall`] or an [`ImageCall`], and writes the response: whole ([`Whole`]), as a stream
//! ([`Chunks`]), or as an error ([`ErrorWords`]). Each dialect is a folder:
//!
//! - `openai_chat`: OpenAI's Chat Completions, which weir's own endpoints use, too.
//! - `openai_responses`: OpenAI's Responses.
//! - `openai_images`: OpenAI's Images.
//! - `anthropic_messages`: Anthropic's Messages.
//!
//! [`json`] has the shared parsing: paths in errors, repeated fields, null as absent.
//!
//! **Invariant:** no other crate knows which dialect a client uses; only the endpoints under `/v1` name a vendor.
//! **Invariant:** the chunks of a response add up to the whole response to the same events.
//!
//! To add a dialect: a folder with a reader, a writer and its error words; a variant in [`Dialect`], [`Whole`], [`Chunks`] and
//! [`ErrorWords`]; endpoints in `weir/src/inference/vendors/`.

pub mod anthropic_messages;
mod error_words;
pub(crate) mod json;
pub(crate) mod openai;
pub mod openai_chat;
pub mod openai_images;
pub mod openai_responses;

pub use error_words::ErrorWords;
pub use json::ADAPTERS_OWN;

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::Value;
use weir_ledger::{Credits, TokenCounts};
use weir_sandbox::adapter::bindings::adapter::Client;
use weir_sandbox::adapter::bindings::chat::{self, ChatRequest, Event, ImageRequest, Source};

use weir_errors::ApiError;

/// A request, whatever dialect it came in.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatCall {
    /// The request in the plugins' vocabulary. `model` is what the client named, and `max_output_tokens` is 0: both
    /// are for the host to resolve.
    pub request: ChatRequest,
    /// The bytes that the request's images, recordings and documents are in, by their index.
    pub attachments: Vec<Attachment>,
    /// Where each of the request's messages stands in what the client sent.
    pub origins: Vec<Origin>,
    /// Bytes of the body that it came in, and of what a session had.
    pub body_bytes: usize,
    /// Who asks, as far as an upstream may care.
    pub client: Client,
    /// The client's own limit on output tokens, at least 1.
    pub output_limit: Option<u32>,
    /// The field that set it, for an error about it.
    pub output_limit_param: &'static str,
    /// Whether only a model that can call tools will do.
    pub needs_tools: bool,
    /// Which earlier answer it goes on with, in dialects whose answers can be gone on with by their ids.
    pub chain: Option<Chain>,
    /// How it is answered.
    pub dialect: Dialect,
}

/// Where a message of a request stands in what its client sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// In the list of messages, or what the dialect has in its place, at this index.
    Listed(usize),
    /// In a field of its own, as a system prompt does.
    Apart,
    /// Nowhere: a session had it.
    Session,
}

/// What a client calls one of its conversations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conversation {
    /// What it calls it in this request.
    pub name: Option<String>,
    /// What it will call it in the next one, where that is known and another.
    pub next: Option<String>,
}

/// A request as a link in a chain of answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The id of the answer that it goes on with, as clients name it.
    pub previous: Option<String>,
    /// The field that names it, for an error about it.
    pub param: &'static str,
    /// Whether another request may go on with its answer.
    pub is_kept: bool,
    /// What stands before an answer's id as clients name it.
    pub prefix: &'static str,
    /// How many of its first messages are for this request alone: instructions.
    pub leading: usize,
    /// Where parts of earlier answers stand by their ids, in order.
    pub references: Vec<Reference>,
}

/// A place in a request where a part of an earlier answer stands by its id. So far nothing is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The place: the message's index behind those that are for this request alone, and the part's in it.
    pub message: usize,
    /// See above.
    pub part: usize,
    /// The answer's id, as clients name it.
    pub answer: String,
    /// The first of the answer's blocks that are meant.
    pub block: usize,
    /// Whether what proves the block is meant alone, where it is no reasoning.
    pub is_proof: bool,
    /// The field that names it, for an error about it.
    pub param: String,
}

/// A request for images, whatever dialect it came in.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageCall {
    /// The request in the plugins' vocabulary. `model` is what the client named.
    pub request: ImageRequest,
    /// The bytes that the request's images are in, by their index.
    pub attachments: Vec<Attachment>,
    /// Bytes of the body that it came in.
    pub body_bytes: usize,
    /// Who asks, as far as an upstream may care.
    pub client: Client,
    /// How it is answered.
    pub dialect: Dialect,
}

/// A request for either.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    /// For a chat.
    Chat(Box<ChatCall>),
    /// For images.
    Images(Box<ImageCall>),
}

/// Bytes that a client sent inside its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// An IANA media type, e.g. `image/png`.
    pub media_type: String,
    /// The bytes, decoded.
    pub data: Bytes,
}

impl ChatCall {
    /// What the client calls the conversation that this is part of, if it says so: to providers, which keep its prompt in
    /// their caches, or to weir, whose session it is. Where it goes on with answers by their ids, this one has `answer_id`,
    /// without what the dialect puts before it.
    pub fn conversation(&self, answer_id: &str) -> Conversation {
        let text = |name: &str| {
            let (_, json) = self.request.extra.iter().find(|(field, _)| field == name)?;
            serde_json::from_str::<Value>(json).ok()
        };
        let named = ["session_id", "prompt_cache_key"]
            .into_iter()
            .find_map(text);
        let named = named.or_else(|| text("metadata")?.get_mut("user_id").map(Value::take));
        match (named, &self.chain) {
            (Some(Value::String(name)), _) => Conversation {
                name: Some(name),
                next: None,
            },
            (_, Some(chain)) => Conversation {
                name: chain.previous.clone(),
                next: chain
                    .is_kept
                    .then(|| format!("{}{answer_id}", chain.prefix)),
            },
            _ => Conversation::default(),
        }
    }

    /// Bytes of the body without what is now in attachments: what an adapter is handed, more or less.
    pub fn text_bytes(&self) -> usize {
        let attached = self.attachments.iter();
        let in_base64 = attached
            .map(|attachment| attachment.data.len() / 3 * 4)
            .sum();
        self.body_bytes.saturating_sub(in_base64)
    }
}

impl ImageCall {
    /// Bytes of what an adapter is handed, more or less.
    pub fn text_bytes(&self) -> usize {
        let request = &self.request;
        let extra = request.extra.iter();
        request.prompt.len()
            + extra
                .map(|(name, json)| name.len() + json.len())
                .sum::<usize>()
    }
}

/// Collects the attachments that a body holds, as its reader comes across them.
#[derive(Debug, Default)]
pub(crate) struct Attachments(Vec<Attachment>);

impl Attachments {
    /// Keeps one, and says how content refers to it.
    pub(crate) fn add(&mut self, attachment: Attachment) -> Source {
        let index = u32::try_from(self.0.len()).expect("a body has fewer bytes than that");
        self.0.push(attachment);
        Source::Attachment(index)
    }

    /// All of them, in the order of their indexes.
    pub(crate) fn into_vec(self) -> Vec<Attachment> {
        self.0
    }
}

impl Attachment {
    /// What an adapter is told of it: everything but the bytes.
    pub fn described(&self) -> chat::Attachment {
        chat::Attachment {
            media_type: self.media_type.clone(),
            size_bytes: self.data.len() as u64,
        }
    }
}

/// A dialect to answer in, with what the client asked of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dialect {
    /// OpenAI's Chat Completions.
    OpenAiChat(openai_chat::Preferences),
    /// OpenAI's Responses.
    OpenAiResponses(openai_responses::Echo),
    /// OpenAI's Images.
    OpenAiImages(openai_images::Made),
    /// Anthropic's Messages.
    AnthropicMessages,
}

/// What stands in an answer besides what the model said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerHead {
    /// The answer's id without what a dialect puts before it: 32 hexadecimal digits.
    pub id: String,
    /// Seconds since the epoch.
    pub created: i64,
    /// The model, by the name that the client used.
    pub model: String,
}

/// What an answer says of its price: what was charged, and for what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Billed {
    /// The tokens.
    pub tokens: TokenCounts,
    /// The credits that the account paid.
    pub credits: Credits,
}

/// An answer that is not streamed, as far as it has come.
#[derive(Debug, Clone)]
pub enum Whole {
    /// In OpenAI's Chat Completions.
    OpenAiChat(openai_chat::Completion),
    /// In OpenAI's Responses.
    OpenAiResponses(openai_responses::Response),
    /// In OpenAI's Images.
    OpenAiImages(openai_images::Answer),
    /// In Anthropic's Messages.
    AnthropicMessages(anthropic_messages::Message),
}

/// Writes a streamed answer, piece by piece.
#[derive(Debug)]
pub enum Chunks {
    /// In OpenAI's Chat Completions.
    OpenAiChat(openai_chat::Chunks),
    /// In OpenAI's Responses.
    OpenAiResponses(openai_responses::Chunks),
    /// In OpenAI's Images.
    OpenAiImages(openai_images::Chunks),
    /// In Anthropic's Messages.
    AnthropicMessages(anthropic_messages::Chunks),
}

/// Reads the body of weir's own endpoints, whose dialect is OpenAI's Chat Completions.
///
/// # Errors
///
/// 400 `INVALID_REQUEST`, with the path of the field as `param` unless the body is not JSON.
pub fn read_own(body: &[u8]) -> Result<ChatCall, ApiError> {
    openai_chat::read(body)
}

/// Reads what an adapter is asked: a chat request of weir's own endpoints, or one for images, which has a `prompt` and no
/// `messages`.
///
/// # Errors
///
/// As for [`read_own`].
pub fn read_any(body: &[u8]) -> Result<Call, ApiError> {
    let fields: Option<Value> = serde_json::from_slice(body).ok();
    let has = |field: &str| {
        fields
            .as_ref()
            .is_some_and(|fields| fields.get(field).is_some())
    };
    if !has("prompt") || has("messages") {
        return read_own(body).map(|call| Call::Chat(Box::new(call)));
    }
    let made = match has("images") {
        true => openai_images::Made::Edit,
        false => openai_images::Made::Generation,
    };
    openai_images::read(body, made).map(|call| Call::Images(Box::new(call)))
}

/// Reads a request for what [`read_own`] has no words for, as `POST /v1/messages` takes it.
///
/// # Errors
///
/// As for [`read_own`].
pub fn read_messages(body: &[u8]) -> Result<ChatCall, ApiError> {
    anthropic_messages::read(body, &http::HeaderMap::new())
}

/// A part of a message that says this and no more.
pub fn plain(content: chat::Content) -> chat::Part {
    chat::Part {
        content,
        cache: None,
        signature: None,
        provider: None,
        extra: Vec::new(),
    }
}

/// Writes a message as weir's own endpoints have it.
pub fn write_message(message: &chat::Message, attachments: &[Attachment]) -> Value {
    openai_chat::write_message(message, attachments)
}

impl Dialect {
    /// An answer that is not streamed.
    pub fn whole(&self, head: AnswerHead) -> Whole {
        match self {
            Self::OpenAiChat(_) => Whole::OpenAiChat(openai_chat::Completion::new(head)),
            Self::OpenAiResponses(echo) => {
                Whole::OpenAiResponses(openai_responses::Response::new(head, echo.clone()))
            }
            Self::OpenAiImages(_) => Whole::OpenAiImages(openai_images::Answer::new(&head)),
            Self::AnthropicMessages => {
                Whole::AnthropicMessages(anthropic_messages::Message::new(head))
            }
        }
    }

    /// What keeps a silent stream alive, and says nothing.
    pub fn keep_alive(&self) -> Bytes {
        match self {
            Self::OpenAiChat(_) | Self::OpenAiImages(_) => openai_chat::KEEP_ALIVE,
            Self::OpenAiResponses(_) => openai_responses::KEEP_ALIVE,
            Self::AnthropicMessages => anthropic_messages::KEEP_ALIVE,
        }
    }

    /// What its clients call a field, of which adapters speak by its name in Chat Completions.
    pub fn field<'name>(&self, name: &'name str) -> Cow<'name, str> {
        match self {
            Self::OpenAiChat(_) | Self::OpenAiImages(_) | Self::AnthropicMessages => name.into(),
            Self::OpenAiResponses(_) => openai_responses::field(name),
        }
    }

    /// What its clients call the place of a message.
    pub fn place(&self, origin: Origin) -> String {
        match (origin, self) {
            (Origin::Listed(index), Self::OpenAiResponses(_)) => format!("input[{index}]"),
            (Origin::Listed(index), _) => format!("messages[{index}]"),
            (Origin::Apart, Self::OpenAiResponses(_)) => "instructions".to_owned(),
            (Origin::Apart, _) => "system".to_owned(),
            (Origin::Session, Self::OpenAiResponses(_)) => "previous_response_id".to_owned(),
            (Origin::Session, _) => "session_id".to_owned(),
        }
    }

    /// Says the same of a client's message as an adapter, which counts those of the request: `messages[3].name`, or
    /// `messages[3]: a name`. Nothing where it speaks of something else.
    pub fn of_message(&self, said: &str, origins: &[Origin]) -> Option<String> {
        let (index, rest) = said.strip_prefix("messages[")?.split_once(']')?;
        let origin = *origins.get(index.parse::<usize>().ok()?)?;
        let rest = match origin {
            // What is in it the client did not send now.
            Origin::Session => rest.find(':').map_or("", |colon| &rest[colon..]),
            Origin::Listed(_) | Origin::Apart => rest,
        };
        Some(self.place(origin) + rest)
    }

    /// An answer that is.
    pub fn chunks(&self, head: AnswerHead) -> Chunks {
        match self {
            Self::OpenAiChat(preferences) => {
                Chunks::OpenAiChat(openai_chat::Chunks::new(&head, *preferences))
            }
            Self::OpenAiResponses(echo) => {
                Chunks::OpenAiResponses(openai_responses::Chunks::new(head, echo.clone()))
            }
            Self::OpenAiImages(made) => {
                Chunks::OpenAiImages(openai_images::Chunks::new(&head, *made))
            }
            Self::AnthropicMessages => {
                Chunks::AnthropicMessages(anthropic_messages::Chunks::new(head))
            }
        }
    }
}

impl Whole {
    /// Adds what an event says.
    pub fn push(&mut self, event: Event) {
        match self {
            Self::OpenAiChat(completion) => completion.push(event),
            Self::OpenAiResponses(response) => response.push(&event),
            Self::OpenAiImages(answer) => answer.push(&event),
            Self::AnthropicMessages(message) => message.push(&event),
        }
    }

    /// Notes which provider answers from here on, by its name in the configuration: what only that one can read again,
    /// such as sealed reasoning, carries its name.
    pub fn answered_by(&mut self, provider: &str) {
        match self {
            Self::OpenAiChat(completion) => completion.answered_by(provider),
            Self::OpenAiResponses(response) => response.answered_by(provider),
            Self::OpenAiImages(_) => {}
            Self::AnthropicMessages(message) => message.answered_by(provider),
        }
    }

    /// Forgets an attempt that yielded nothing.
    pub fn clear(&mut self) {
        match self {
            Self::OpenAiChat(completion) => completion.clear(),
            Self::OpenAiResponses(response) => response.clear(),
            Self::OpenAiImages(answer) => answer.clear(),
            Self::AnthropicMessages(message) => message.clear(),
        }
    }

    /// The body of the answer.
    pub fn into_body(self, billed: &Billed) -> Vec<u8> {
        match self {
            Self::OpenAiChat(completion) => completion.into_body(billed),
            Self::OpenAiResponses(response) => response.into_body(billed),
            Self::OpenAiImages(answer) => answer.into_body(billed),
            Self::AnthropicMessages(message) => message.into_body(billed),
        }
    }
}

impl Chunks {
    /// The same as [`Whole::answered_by`].
    pub fn answered_by(&mut self, provider: &str) {
        match self {
            Self::OpenAiChat(chunks) => chunks.answered_by(provider),
            Self::OpenAiResponses(chunks) => chunks.answered_by(provider),
            Self::OpenAiImages(_) => {}
            Self::AnthropicMessages(chunks) => chunks.answered_by(provider),
        }
    }

    /// Appends what an event says, if that has a place in the stream. The end is written by [`Self::finish`], once the
    /// answer is settled.
    pub fn event(&mut self, event: &Event, out: &mut Vec<u8>) {
        match self {
            Self::OpenAiChat(chunks) => chunks.event(event, out),
            Self::OpenAiResponses(chunks) => chunks.event(event, out),
            Self::OpenAiImages(chunks) => chunks.event(event, out),
            Self::AnthropicMessages(chunks) => chunks.event(event, out),
        }
    }

    /// Appends the end of a whole answer.
    pub fn finish(&mut self, billed: &Billed, out: &mut Vec<u8>) {
        match self {
            Self::OpenAiChat(chunks) => chunks.finish(billed, out),
            Self::OpenAiResponses(chunks) => chunks.finish(billed, out),
            Self::OpenAiImages(chunks) => chunks.finish(billed, out),
            Self::AnthropicMessages(chunks) => chunks.finish(billed, out),
        }
    }

    /// Appends an error, as [`ErrorWords`] tell it, which ends the stream. Nothing may follow that would say that the
    /// answer is whole.
    pub fn error(&mut self, error: &Value, out: &mut Vec<u8>) {
        match self {
            Self::OpenAiChat(_) => openai_chat::Chunks::error(error, out),
            Self::OpenAiResponses(chunks) => chunks.error(error, out),
            Self::OpenAiImages(_) => openai_images::Chunks::error(error, out),
            Self::AnthropicMessages(_) => anthropic_messages::Chunks::error(error, out),
        }
    }
}
