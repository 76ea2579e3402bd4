//! The dialect of a response, with the client's preferences for it.

use std::sync::Arc;

use crate::other::OtherFormat;
use crate::tool_names::ToolNames;

/// The dialect of a response, with the client's preferences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dialect {
    /// OpenAI's Chat Completions.
    OpenAiChat(Preferences),
    /// OpenAI's Responses.
    OpenAiResponses(EchoedFields),
    /// OpenAI's Completions.
    OpenAiCompletions(Preferences),
    /// Anthropic's Messages.
    AnthropicMessages,
    /// Google's `generateContent`.
    GeminiGenerate(StreamForm),
    /// The format of another kind of work.
    Other(OtherFormat),
}

/// The position of a message in the client's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageOrigin {
    /// An index in the list of messages, or in the dialect's equivalent.
    Listed(usize),
    /// A separate field, such as a system prompt.
    Apart,
    /// A stored session, not the body.
    Session,
}

/// The client's preferences for a response in Chat Completions or Completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preferences {
    /// Whether a stream ends with an additional chunk for usage.
    pub include_usage: bool,
}

/// The form of a stream of `generateContent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamForm {
    /// Server-sent events.
    Events,
    /// A JSON array whose items arrive one by one.
    List,
}

/// The parts of a request of Responses that its response repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EchoedFields {
    /// Fields of a JSON object, without its braces.
    pub(crate) json: Arc<str>,
    /// The names of tools in namespaces.
    pub(crate) names: Arc<ToolNames>,
}

impl Dialect {
    /// Whether every request has an output limit, so that a client may not know the model's own.
    pub fn requires_output_limit(&self) -> bool {
        matches!(self, Self::AnthropicMessages)
    }

    /// Whether a response has a place for images.
    pub fn has_images(&self) -> bool {
        !matches!(self, Self::OpenAiCompletions(_))
    }

    /// Returns the dialect's path of a message.
    pub fn place(&self, origin: MessageOrigin) -> String {
        match (origin, self) {
            (_, Self::OpenAiCompletions(_)) => "prompt".to_owned(),
            (MessageOrigin::Listed(index), Self::OpenAiResponses(_)) => format!("input[{index}]"),
            (MessageOrigin::Listed(index), Self::GeminiGenerate(_)) => format!("contents[{index}]"),
            (MessageOrigin::Listed(index), _) => format!("messages[{index}]"),
            (MessageOrigin::Apart, Self::OpenAiResponses(_)) => "instructions".to_owned(),
            (MessageOrigin::Apart, Self::GeminiGenerate(_)) => "systemInstruction".to_owned(),
            (MessageOrigin::Apart, _) => "system".to_owned(),
            (MessageOrigin::Session, Self::OpenAiResponses(_)) => "previous_response_id".to_owned(),
            (MessageOrigin::Session, _) => "session_id".to_owned(),
        }
    }

    /// Returns the dialect's path of a message's content.
    pub fn content_place(&self, origin: MessageOrigin) -> String {
        let content = match self {
            Self::GeminiGenerate(_) => ".parts",
            Self::OpenAiCompletions(_) => "",
            _ => ".content",
        };
        self.place(origin) + content
    }

    /// Translates an adapter's error about a message, counted in the request, into the client's path:
    /// `messages[3].name`, or `messages[3]: a name`. Returns `None` for other errors.
    pub fn of_message(&self, said: &str, origins: &[MessageOrigin]) -> Option<String> {
        let (index, rest) = said.strip_prefix("messages[")?.split_once(']')?;
        let origin = *origins.get(index.parse::<usize>().ok()?)?;
        let rest = match origin {
            // The client has not sent the contents of a session's message.
            MessageOrigin::Session => rest.find(':').map_or("", |colon| &rest[colon..]),
            MessageOrigin::Listed(_) | MessageOrigin::Apart => rest,
        };
        Some(self.place(origin) + rest)
    }
}
