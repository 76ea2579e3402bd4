//! The requests of all dialects, in the plugins' vocabulary.

use bytes::Bytes;
use serde_json::Value;
use weir_sandbox::adapter::bindings::adapter::Client;
use weir_sandbox::adapter::bindings::chat::{self, ChatRequest, ImageRequest, Source};
use weir_sandbox::adapter::bindings::embeddings::{EmbeddingRequest, Input};
use weir_sandbox::adapter::bindings::moderation::ModerationRequest;
use weir_sandbox::adapter::bindings::rerank::RerankRequest;
use weir_sandbox::adapter::bindings::speech::{SpeechRequest, Voice};
use weir_sandbox::adapter::bindings::transcription::TranscriptionRequest;

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

/// A request for data about texts: vectors, an order of documents, or verdicts.
#[derive(Debug, Clone, PartialEq)]
pub struct RetrievalCall {
    /// The request in the plugins' vocabulary. `model` is the client's name.
    pub task: RetrievalTask,
    /// The bytes of the body.
    pub body_bytes: usize,
    /// The client, as far as an upstream needs it.
    pub client: Client,
    /// The dialect of the response.
    pub dialect: Dialect,
}

/// The kinds of such requests.
#[derive(Debug, Clone, PartialEq)]
pub enum RetrievalTask {
    /// Vectors of texts.
    Embeddings(EmbeddingRequest),
    /// An order of documents.
    Rerank(RerankRequest),
    /// Harmful content in texts.
    Moderation(ModerationRequest),
}

/// A request about audio.
#[derive(Debug, Clone, PartialEq)]
pub struct AudioCall {
    /// The request in the plugins' vocabulary. `model` is the client's name.
    pub task: AudioTask,
    /// The client's recording.
    pub recording: Option<Attachment>,
    /// The bytes of the body.
    pub body_bytes: usize,
    /// The client, as far as an upstream needs it.
    pub client: Client,
    /// The dialect of the response.
    pub dialect: Dialect,
}

/// The kinds of such requests.
#[derive(Debug, Clone, PartialEq)]
pub enum AudioTask {
    /// A spoken text.
    Speech(SpeechRequest),
    /// The words of a recording.
    Transcription(TranscriptionRequest),
}

/// A request of either kind.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientCall {
    /// A chat request.
    Chat(Box<ChatCall>),
    /// An image request.
    Images(Box<ImageCall>),
}

/// The fields of a request that filters see and may change.
pub struct ScreenedFields<'a> {
    /// The texts.
    pub texts: Vec<&'a mut String>,
    /// Words that the client chooses freely, such as the name of a file, by the names of their fields.
    pub words: Vec<(&'static str, &'a mut String)>,
    /// The fields beyond the vocabulary.
    pub extra: &'a mut Vec<chat::ExtraField>,
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

impl RetrievalTask {
    /// The model's name.
    pub fn model(&self) -> &str {
        match self {
            Self::Embeddings(task) => &task.model,
            Self::Rerank(task) => &task.model,
            Self::Moderation(task) => &task.model,
        }
    }

    /// The model's name.
    pub fn model_mut(&mut self) -> &mut String {
        match self {
            Self::Embeddings(task) => &mut task.model,
            Self::Rerank(task) => &mut task.model,
            Self::Moderation(task) => &mut task.model,
        }
    }

    /// The fields that the adapter handles.
    pub fn extra(&self) -> &[chat::ExtraField] {
        match self {
            Self::Embeddings(task) => &task.extra,
            Self::Rerank(task) => &task.extra,
            Self::Moderation(task) => &task.extra,
        }
    }

    /// The fields that filters see.
    pub fn screened_mut(&mut self) -> ScreenedFields<'_> {
        match self {
            Self::Embeddings(EmbeddingRequest {
                model: _,
                inputs,
                dimensions: _,
                input_type,
                base64: _,
                extra,
            }) => {
                let texts = inputs.iter_mut().filter_map(|input| match input {
                    Input::Text(text) => Some(text),
                    Input::Tokens(_) => None,
                });
                ScreenedFields {
                    texts: texts.collect(),
                    words: input_type
                        .iter_mut()
                        .map(|word| ("input_type", word))
                        .collect(),
                    extra,
                }
            }
            Self::Rerank(RerankRequest {
                model: _,
                query,
                documents,
                top_n: _,
                extra,
            }) => ScreenedFields {
                texts: [query].into_iter().chain(documents).collect(),
                words: Vec::new(),
                extra,
            },
            Self::Moderation(ModerationRequest {
                model: _,
                inputs,
                extra,
            }) => ScreenedFields {
                texts: inputs.iter_mut().collect(),
                words: Vec::new(),
                extra,
            },
        }
    }
}

impl AudioCall {
    /// The approximate bytes that an adapter receives.
    pub fn text_bytes(&self) -> usize {
        let recorded = self.recording.as_ref();
        let recorded = recorded.map_or(0, |recording| recording.data.len());
        self.body_bytes.saturating_sub(recorded)
    }
}

impl AudioTask {
    /// The model's name.
    pub fn model(&self) -> &str {
        match self {
            Self::Speech(task) => &task.model,
            Self::Transcription(task) => &task.model,
        }
    }

    /// The model's name.
    pub fn model_mut(&mut self) -> &mut String {
        match self {
            Self::Speech(task) => &mut task.model,
            Self::Transcription(task) => &mut task.model,
        }
    }

    /// The fields that the adapter handles.
    pub fn extra(&self) -> &[chat::ExtraField] {
        match self {
            Self::Speech(task) => &task.extra,
            Self::Transcription(task) => &task.extra,
        }
    }

    /// The texts of the request.
    pub fn texts(&self) -> impl Iterator<Item = &String> {
        let (first, second) = match self {
            Self::Speech(task) => (Some(&task.input), task.instructions.as_ref()),
            Self::Transcription(task) => (None, task.prompt.as_ref()),
        };
        first.into_iter().chain(second)
    }

    /// The fields that filters see.
    pub fn screened_mut(&mut self) -> ScreenedFields<'_> {
        match self {
            Self::Speech(SpeechRequest {
                model: _,
                input,
                voice: Voice::Name(voice) | Voice::Id(voice),
                instructions,
                // A format that the dialect knows.
                format: _,
                speed: _,
                extra,
            }) => ScreenedFields {
                texts: [input].into_iter().chain(instructions).collect(),
                words: vec![("voice", voice)],
                extra,
            },
            Self::Transcription(TranscriptionRequest {
                model: _,
                file_name,
                translate: _,
                language,
                prompt,
                temperature: _,
                form: _,
                // Words that the dialect knows.
                timings: _,
                extra,
                stream: _,
            }) => {
                let language = language.iter_mut().map(|word| ("language", word));
                ScreenedFields {
                    texts: prompt.iter_mut().collect(),
                    words: [("file_name", file_name)]
                        .into_iter()
                        .chain(language)
                        .collect(),
                    extra,
                }
            }
        }
    }

    /// Whether the response arrives in pieces. A recording always does.
    pub fn is_stream(&self) -> bool {
        match self {
            Self::Speech(_) => true,
            Self::Transcription(task) => task.stream,
        }
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
