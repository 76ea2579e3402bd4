//! The dialect of a response, with the client's preferences for it.

use std::sync::Arc;

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
    /// OpenAI's Images.
    OpenAiImages(ImageOperation),
    /// OpenAI's Embeddings.
    OpenAiEmbeddings(EmbeddingForm),
    /// Cohere's Rerank.
    Rerank(RankingForm),
    /// OpenAI's Moderations, with this number of inputs.
    OpenAiModeration(usize),
    /// OpenAI's Speech.
    OpenAiSpeech(SpeechForm),
    /// OpenAI's Transcriptions and Translations.
    OpenAiTranscription(TranscriptionForm),
    /// Anthropic's Messages.
    AnthropicMessages,
    /// Google's `generateContent`.
    GeminiGenerate(StreamForm),
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

/// The kind of an image request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageOperation {
    /// Images from a prompt.
    Generation,
    /// Images from other images.
    Edit,
}

/// The form of a response with vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbeddingForm {
    /// Whether vectors are in base64, instead of lists of numbers.
    pub base64: bool,
    /// The number of vectors.
    pub inputs: usize,
    /// The number of dimensions, if the client wants a certain one.
    pub dimensions: Option<u32>,
}

/// The form of a response with a ranking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankingForm {
    /// The number of documents in the request.
    pub documents: usize,
    /// The number of documents in the response.
    pub results: usize,
    /// The documents, if the response repeats them.
    pub texts: Option<Arc<[String]>>,
}

/// The form of a response with a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpeechForm {
    /// Whether it is events, instead of bytes.
    pub has_events: bool,
    /// The media type of the recording.
    pub media_type: &'static str,
}

/// The form of a response with the words of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TranscriptionForm {
    /// The format of a plain response.
    pub format: TranscriptFormat,
    /// Whether the words are in English, instead of the language of the recording.
    pub translates: bool,
}

/// The format of such a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TranscriptFormat {
    /// An object with the text.
    Json,
    /// An object with the text and its timings.
    VerboseJson,
    /// Text, or subtitles.
    Text,
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
