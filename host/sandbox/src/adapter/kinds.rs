//! The kinds of requests besides chats and images. Each has an optional interface of the contract, whose only function
//! begins an exchange.

use wasmtime::component::InstancePre;

use super::bindings::adapter::{Begun, Client, Description, Failure};
use super::bindings::chat::Attachment;
use super::bindings::{embeddings, moderation, rerank, speech, transcription};
use super::call_error::{AdapterCallError, incapable};
use super::description;
use crate::exports::{Interface, exports};
use crate::guest::Guest;
use crate::world::{Instance, World};

exports! {
    /// The function of the interface `embeddings`.
    EmbeddingExports of "weir:plugin/embeddings@0.2.3" {
        begin: BeginEmbeddings = "begin" (&'a embeddings::Request, &'a [u8]) -> (Result<Begun, Failure>,);
    }
}

exports! {
    /// The function of the interface `rerank`.
    RerankExports of "weir:plugin/rerank@0.2.3" {
        begin: BeginRerank = "begin" (&'a rerank::Request, &'a [u8]) -> (Result<Begun, Failure>,);
    }
}

exports! {
    /// The function of the interface `moderation`.
    ModerationExports of "weir:plugin/moderation@0.2.3" {
        begin: BeginModeration = "begin" (&'a moderation::Request, &'a [u8]) -> (Result<Begun, Failure>,);
    }
}

exports! {
    /// The function of the interface `speech`.
    SpeechExports of "weir:plugin/speech@0.2.3" {
        begin: BeginSpeech = "begin" (&'a speech::Request, &'a [u8]) -> (Result<Begun, Failure>,);
    }
}

exports! {
    /// The function of the interface `transcription`.
    TranscriptionExports of "weir:plugin/transcription@0.2.3" {
        begin: BeginTranscription = "begin" (&'a transcription::Request, &'a [u8]) -> (Result<Begun, Failure>,);
    }
}

/// The optional functions of an adapter.
#[derive(Clone, Copy)]
pub(super) struct KindExports {
    embeddings: Option<EmbeddingExports>,
    rerank: Option<RerankExports>,
    moderation: Option<ModerationExports>,
    speech: Option<SpeechExports>,
    transcription: Option<TranscriptionExports>,
}

/// A request of one of these kinds.
#[derive(Debug, Clone, PartialEq)]
pub enum OtherRequest {
    /// Vectors of texts.
    Embeddings(embeddings::Request),
    /// An order of documents.
    Rerank(rerank::Request),
    /// Harmful content in texts.
    Moderation(moderation::Request),
    /// A spoken text.
    Speech(speech::Request),
    /// The words of a recording.
    Transcription(transcription::Request),
}

/// Evaluates an expression of a request of any kind.
macro_rules! of_any {
    ($self:expr, $request:ident => $value:expr) => {
        match $self {
            OtherRequest::Embeddings($request) => $value,
            OtherRequest::Rerank($request) => $value,
            OtherRequest::Moderation($request) => $value,
            OtherRequest::Speech($request) => $value,
            OtherRequest::Transcription($request) => $value,
        }
    };
}

impl KindExports {
    /// Finds the interfaces that a component exports, and checks their types.
    pub(super) fn find(component: &InstancePre<Guest<()>>) -> wasmtime::Result<Self> {
        let has = |interface| Interface::is_exported(component, interface);
        let embeddings = has("weir:plugin/embeddings").then(|| EmbeddingExports::find(component));
        let rerank = has("weir:plugin/rerank").then(|| RerankExports::find(component));
        let moderation = has("weir:plugin/moderation").then(|| ModerationExports::find(component));
        let speech = has("weir:plugin/speech").then(|| SpeechExports::find(component));
        let transcription =
            has("weir:plugin/transcription").then(|| TranscriptionExports::find(component));
        Ok(Self {
            embeddings: embeddings.transpose()?,
            rerank: rerank.transpose()?,
            moderation: moderation.transpose()?,
            speech: speech.transpose()?,
            transcription: transcription.transpose()?,
        })
    }

    /// Checks that a component exports the interface of each kind that it claims to serve.
    pub(super) fn check(&self, description: &Description) -> Result<(), String> {
        for (kind, is_exported) in [
            (description::EMBEDDINGS, self.embeddings.is_some()),
            (description::RERANK, self.rerank.is_some()),
            (description::MODERATION, self.moderation.is_some()),
            (description::SPEECH, self.speech.is_some()),
            (description::TRANSCRIPTION, self.transcription.is_some()),
        ] {
            if !is_exported && description.capabilities.iter().any(|named| named == kind) {
                return Err(format!(
                    "its capabilities include {kind}, but it does not export weir:plugin/{kind}"
                ));
            }
        }
        Ok(())
    }

    /// Begins an exchange in an instance of the component.
    pub(super) async fn begin<W: World<Host = ()>>(
        self,
        instance: &mut Instance<W>,
        request: &OtherRequest,
        bytes: usize,
        configuration: &[u8],
    ) -> Result<(Result<Begun, Failure>,), AdapterCallError> {
        macro_rules! begin {
            ($export:expr, $request:expr) => {{
                let export = $export.ok_or_else(|| incapable(request.kind()))?;
                let parameters = ($request, configuration);
                let called = instance.call_with(bytes, |_| export.begin, parameters);
                Ok(called.await?)
            }};
        }
        match request {
            OtherRequest::Embeddings(request) => begin!(self.embeddings, request),
            OtherRequest::Rerank(request) => begin!(self.rerank, request),
            OtherRequest::Moderation(request) => begin!(self.moderation, request),
            OtherRequest::Speech(request) => begin!(self.speech, request),
            OtherRequest::Transcription(request) => begin!(self.transcription, request),
        }
    }
}

impl OtherRequest {
    /// The capability that an adapter needs for it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Embeddings(_) => description::EMBEDDINGS,
            Self::Rerank(_) => description::RERANK,
            Self::Moderation(_) => description::MODERATION,
            Self::Speech(_) => description::SPEECH,
            Self::Transcription(_) => description::TRANSCRIPTION,
        }
    }

    /// Returns a request of each kind that any component of this kind can process.
    pub fn examples() -> [Self; 5] {
        let (attempt, deadline_ms) = (1, 60_000);
        let model = || "self-test".to_owned();
        let text = || "Hello".to_owned();
        [
            Self::Embeddings(embeddings::Request {
                task: embeddings::EmbeddingRequest {
                    model: model(),
                    inputs: vec![embeddings::Input::Text(text())],
                    dimensions: None,
                    input_type: None,
                    base64: false,
                    extra: Vec::new(),
                },
                client: stock_client(),
                attempt,
                deadline_ms,
            }),
            Self::Rerank(rerank::Request {
                task: rerank::RerankRequest {
                    model: model(),
                    query: text(),
                    documents: vec![text()],
                    top_n: None,
                    extra: Vec::new(),
                },
                client: stock_client(),
                attempt,
                deadline_ms,
            }),
            Self::Moderation(moderation::Request {
                task: moderation::ModerationRequest {
                    model: model(),
                    inputs: vec![text()],
                    extra: Vec::new(),
                },
                client: stock_client(),
                attempt,
                deadline_ms,
            }),
            Self::Speech(speech::Request {
                task: speech::SpeechRequest {
                    model: model(),
                    input: text(),
                    voice: speech::Voice::Name("alloy".into()),
                    instructions: None,
                    format: "wav".into(),
                    speed: None,
                    extra: Vec::new(),
                },
                client: stock_client(),
                attempt,
                deadline_ms,
            }),
            Self::Transcription(transcription::Request {
                task: transcription::TranscriptionRequest {
                    model: model(),
                    file_name: "self-test.wav".into(),
                    translate: false,
                    language: None,
                    prompt: None,
                    temperature: None,
                    form: transcription::TranscriptForm::Text,
                    timings: Vec::new(),
                    extra: Vec::new(),
                    stream: false,
                },
                recording: Attachment {
                    media_type: "audio/wav".into(),
                    size_bytes: 1_000,
                },
                client: stock_client(),
                attempt,
                deadline_ms,
            }),
        ]
    }

    pub(super) fn client(&self) -> &Client {
        of_any!(self, request => &request.client)
    }

    pub(super) fn model_mut(&mut self) -> &mut String {
        of_any!(self, request => &mut request.task.model)
    }

    pub(super) fn begin_attempt(&mut self, number: u32, deadline_ms: u64) {
        of_any!(self, request => {
            (request.attempt, request.deadline_ms) = (number, deadline_ms);
        });
    }
}

/// Returns a client that no request needs.
pub(super) fn stock_client() -> Client {
    Client {
        dialect: "self-test".into(),
        headers: Vec::new(),
        end_user: None,
    }
}
