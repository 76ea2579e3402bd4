//! Dialects: the request and response formats of weir's clients.
//!
//! A dialect parses a request body into a [`ChatCall`] or an [`ImageCall`], and writes the response: whole
//! ([`WholeAnswer`]), as a stream ([`AnswerStream`]), or as an error ([`ErrorWords`]). Each dialect is a folder:
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
//! To add a dialect: a folder with a reader, a writer and its error words; a variant in [`Dialect`], [`WholeAnswer`],
//! [`AnswerStream`] and [`ErrorWords`]; endpoints in `weir/src/inference/vendors/`.

pub mod anthropic_messages;
mod error_words;
pub(crate) mod json;
pub(crate) mod openai;
pub mod openai_chat;
pub mod openai_images;
pub mod openai_responses;
mod openai_tools;

pub use error_words::ErrorWords;
pub use json::ADAPTERS_OWN;

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::Value;
use weir_ledger::{Credits, TokenCounts};
use weir_sandbox::adapter::bindings::adapter::Client;
use weir_sandbox::adapter::bindings::chat::{self, ChatRequest, Event, ImageRequest, Source};

use weir_errors::ApiError;

/// A chat request in any dialect.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatCall {
    /// The request in the plugins' vocabulary. `model` is the client's name, and `max_output_tokens` is 0: the host
    /// resolves both.
    pub request: ChatRequest,
    /// The bytes of the request's images, audio and documents, by index.
    pub attachments: Vec<Attachment>,
    /// The position of each message in the client's body.
    pub origins: Vec<Origin>,
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

/// The position of a message in the client's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// An index in the list of messages, or in the dialect's equivalent.
    Listed(usize),
    /// A separate field, such as a system prompt.
    Apart,
    /// A stored session, not the body.
    Session,
}

/// The client's names of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conversation {
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
    pub references: Vec<Reference>,
}

/// A reference to a part of an earlier response, in a request. Its place holds an empty part until it is resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
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

/// An image request in any dialect.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageCall {
    /// The request in the plugins' vocabulary. `model` is the client's name.
    pub request: ImageRequest,
    /// The bytes of the request's images, by index.
    pub attachments: Vec<Attachment>,
    /// The bytes of the body.
    pub body_bytes: usize,
    /// The client, as far as an upstream needs it.
    pub client: Client,
    /// The dialect of the response.
    pub dialect: Dialect,
}

/// A request of either kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    /// A chat request.
    Chat(Box<ChatCall>),
    /// An image request.
    Images(Box<ImageCall>),
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

    /// The approximate bytes that an adapter receives: the body without attachments.
    pub fn text_bytes(&self) -> usize {
        let attached = self.attachments.iter();
        let in_base64 = attached
            .map(|attachment| attachment.data.len() / 3 * 4)
            .sum();
        self.body_bytes.saturating_sub(in_base64)
    }
}

impl ImageCall {
    /// The approximate bytes that an adapter receives.
    pub fn text_bytes(&self) -> usize {
        let request = &self.request;
        let extra = request.extra.iter();
        request.prompt.len()
            + extra
                .map(|(name, json)| name.len() + json.len())
                .sum::<usize>()
    }
}

/// Collects the attachments of a body during parsing.
#[derive(Debug, Default)]
pub(crate) struct Attachments(Vec<Attachment>);

impl Attachments {
    /// Adds an attachment, and returns its reference.
    pub(crate) fn add(&mut self, attachment: Attachment) -> Source {
        let index = u32::try_from(self.0.len()).expect("a body has fewer bytes than that");
        self.0.push(attachment);
        Source::Attachment(index)
    }

    /// Returns all attachments, by index.
    pub(crate) fn into_vec(self) -> Vec<Attachment> {
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

/// The dialect of a response, with the client's preferences.
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

/// The parts of a response besides the model's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerHead {
    /// The response's id without the dialect's prefix: 32 hexadecimal digits.
    pub id: String,
    /// The time, in seconds since the epoch.
    pub created: i64,
    /// The model's name in the client's request.
    pub model: String,
}

/// The price in a response: charge and usage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Billed {
    /// The tokens.
    pub tokens: TokenCounts,
    /// The charged credits.
    pub credits: Credits,
}

/// A plain response under construction.
#[derive(Debug, Clone)]
pub enum WholeAnswer {
    /// In OpenAI's Chat Completions.
    OpenAiChat(openai_chat::Completion),
    /// In OpenAI's Responses.
    OpenAiResponses(openai_responses::Response),
    /// In OpenAI's Images.
    OpenAiImages(openai_images::Answer),
    /// In Anthropic's Messages.
    AnthropicMessages(anthropic_messages::Message),
}

/// A writer of a stream.
#[derive(Debug)]
pub enum AnswerStream {
    /// In OpenAI's Chat Completions.
    OpenAiChat(openai_chat::CompletionStream),
    /// In OpenAI's Responses.
    OpenAiResponses(openai_responses::ResponseStream),
    /// In OpenAI's Images.
    OpenAiImages(openai_images::ImageStream),
    /// In Anthropic's Messages.
    AnthropicMessages(anthropic_messages::MessageStream),
}

/// Reads the body of weir's own endpoints, whose dialect is OpenAI's Chat Completions.
///
/// # Errors
///
/// 400 `INVALID_REQUEST`, with the path of the field as `param` unless the body is not JSON.
pub fn read_own(body: &[u8]) -> Result<ChatCall, ApiError> {
    openai_chat::read(body)
}

/// Reads any input of an adapter: a chat request of weir's own endpoints, or an image request, which has a `prompt` and
/// no `messages`.
///
/// # Errors
///
/// Fails like [`read_own`].
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

/// Reads a request in the format of `POST /v1/messages`, for content that [`read_own`] cannot express.
///
/// # Errors
///
/// Fails like [`read_own`].
pub fn read_messages(body: &[u8]) -> Result<ChatCall, ApiError> {
    anthropic_messages::read(body, &http::HeaderMap::new())
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

/// Writes a message in the format of weir's own endpoints.
pub fn write_message(message: &chat::Message, attachments: &[Attachment]) -> Value {
    openai_chat::write_message(message, attachments)
}

impl Dialect {
    /// Starts a plain response.
    pub fn whole_answer(&self, head: AnswerHead) -> WholeAnswer {
        match self {
            Self::OpenAiChat(_) => WholeAnswer::OpenAiChat(openai_chat::Completion::new(head)),
            Self::OpenAiResponses(echo) => {
                WholeAnswer::OpenAiResponses(openai_responses::Response::new(head, echo.clone()))
            }
            Self::OpenAiImages(_) => WholeAnswer::OpenAiImages(openai_images::Answer::new(&head)),
            Self::AnthropicMessages => {
                WholeAnswer::AnthropicMessages(anthropic_messages::Message::new(head))
            }
        }
    }

    /// Returns the keep-alive data of a silent stream.
    pub fn keep_alive(&self) -> Bytes {
        match self {
            Self::OpenAiChat(_) | Self::OpenAiImages(_) => openai_chat::KEEP_ALIVE,
            Self::OpenAiResponses(_) => openai_responses::KEEP_ALIVE,
            Self::AnthropicMessages => anthropic_messages::KEEP_ALIVE,
        }
    }

    /// Returns the dialect's name of a field; adapters use its name in Chat Completions.
    pub fn field<'name>(&self, name: &'name str) -> Cow<'name, str> {
        match self {
            Self::OpenAiChat(_) | Self::OpenAiImages(_) | Self::AnthropicMessages => name.into(),
            Self::OpenAiResponses(_) => openai_responses::field(name),
        }
    }

    /// Returns the dialect's path of a message.
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

    /// Translates an adapter's error about a message, counted in the request, into the client's path:
    /// `messages[3].name`, or `messages[3]: a name`. Returns `None` for other errors.
    pub fn of_message(&self, said: &str, origins: &[Origin]) -> Option<String> {
        let (index, rest) = said.strip_prefix("messages[")?.split_once(']')?;
        let origin = *origins.get(index.parse::<usize>().ok()?)?;
        let rest = match origin {
            // The client has not sent the contents of a session's message.
            Origin::Session => rest.find(':').map_or("", |colon| &rest[colon..]),
            Origin::Listed(_) | Origin::Apart => rest,
        };
        Some(self.place(origin) + rest)
    }

    /// Starts a stream.
    pub fn answer_stream(&self, head: AnswerHead) -> AnswerStream {
        match self {
            Self::OpenAiChat(preferences) => {
                AnswerStream::OpenAiChat(openai_chat::CompletionStream::new(&head, *preferences))
            }
            Self::OpenAiResponses(echo) => AnswerStream::OpenAiResponses(
                openai_responses::ResponseStream::new(head, echo.clone()),
            ),
            Self::OpenAiImages(made) => {
                AnswerStream::OpenAiImages(openai_images::ImageStream::new(&head, *made))
            }
            Self::AnthropicMessages => {
                AnswerStream::AnthropicMessages(anthropic_messages::MessageStream::new(head))
            }
        }
    }
}

impl WholeAnswer {
    /// Adds an event.
    pub fn push(&mut self, event: Event) {
        match self {
            Self::OpenAiChat(completion) => completion.push(event),
            Self::OpenAiResponses(response) => response.push(&event),
            Self::OpenAiImages(answer) => answer.push(&event),
            Self::AnthropicMessages(message) => message.push(&event),
        }
    }

    /// Sets the provider of the following events, by its name in the configuration: parts that only this provider can
    /// read, such as sealed reasoning, carry the name.
    pub fn answered_by(&mut self, provider: &str) {
        match self {
            Self::OpenAiChat(completion) => completion.answered_by(provider),
            Self::OpenAiResponses(response) => response.answered_by(provider),
            Self::OpenAiImages(_) => {}
            Self::AnthropicMessages(message) => message.answered_by(provider),
        }
    }

    /// Discards an attempt without output.
    pub fn clear(&mut self) {
        match self {
            Self::OpenAiChat(completion) => completion.clear(),
            Self::OpenAiResponses(response) => response.clear(),
            Self::OpenAiImages(answer) => answer.clear(),
            Self::AnthropicMessages(message) => message.clear(),
        }
    }

    /// Returns the body of the response.
    pub fn into_body(self, billed: &Billed) -> Vec<u8> {
        match self {
            Self::OpenAiChat(completion) => completion.into_body(billed),
            Self::OpenAiResponses(response) => response.into_body(billed),
            Self::OpenAiImages(answer) => answer.into_body(billed),
            Self::AnthropicMessages(message) => message.into_body(billed),
        }
    }
}

impl AnswerStream {
    /// Sets the provider, like [`WholeAnswer::answered_by`].
    pub fn answered_by(&mut self, provider: &str) {
        match self {
            Self::OpenAiChat(chunks) => chunks.answered_by(provider),
            Self::OpenAiResponses(chunks) => chunks.answered_by(provider),
            Self::OpenAiImages(_) => {}
            Self::AnthropicMessages(chunks) => chunks.answered_by(provider),
        }
    }

    /// Appends the data of an event, if it has any. [`Self::finish`] writes the end after the settlement.
    pub fn event(&mut self, event: &Event, out: &mut Vec<u8>) {
        match self {
            Self::OpenAiChat(chunks) => chunks.event(event, out),
            Self::OpenAiResponses(chunks) => chunks.event(event, out),
            Self::OpenAiImages(chunks) => chunks.event(event, out),
            Self::AnthropicMessages(chunks) => chunks.event(event, out),
        }
    }

    /// Appends the end of a complete response.
    pub fn finish(&mut self, billed: &Billed, out: &mut Vec<u8>) {
        match self {
            Self::OpenAiChat(chunks) => chunks.finish(billed, out),
            Self::OpenAiResponses(chunks) => chunks.finish(billed, out),
            Self::OpenAiImages(chunks) => chunks.finish(billed, out),
            Self::AnthropicMessages(chunks) => chunks.finish(billed, out),
        }
    }

    /// Appends an error, as [`ErrorWords`] write it, and ends the stream. No end marker may follow, because it would
    /// mark the response as complete.
    pub fn error(&mut self, error: &Value, out: &mut Vec<u8>) {
        match self {
            Self::OpenAiChat(_) => openai_chat::CompletionStream::error(error, out),
            Self::OpenAiResponses(chunks) => chunks.error(error, out),
            Self::OpenAiImages(_) => openai_images::ImageStream::error(error, out),
            Self::AnthropicMessages(_) => anthropic_messages::MessageStream::error(error, out),
        }
    }
}
