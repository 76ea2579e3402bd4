//! A request that fits its model.

use std::sync::Arc;

use weir_catalog::Model;
use weir_dialects::{Attachment, AudioTask, MessageOrigin, RetrievalTask};
use weir_sandbox::adapter::bindings::adapter::{Client, Request, Task};
use weir_sandbox::adapter::bindings::{embeddings, moderation, rerank, speech, transcription};
use weir_sandbox::adapter::{AdapterRequest, OtherRequest};
use weir_upstream::usage::{ModelLimits, RequestSize};

/// A request that fits its model.
pub struct ResolvedRequest {
    /// The model, with the upstreams that serve it.
    pub model: Arc<Model>,
    /// The allowed upstreams, as indexes into the model's candidates; never empty.
    pub allowed: Vec<usize>,
    /// Whether weir must keep this order, regardless of weights.
    pub is_ordered: bool,
    /// The request, with its output limit.
    pub task: ResolvedTask,
    /// The maximum tokens of the response.
    pub output_limit: u32,
    /// The largest output limit that weir may choose; `None` if the client has set the limit.
    pub widest_output: Option<u32>,
    /// The requested number of images.
    pub images: u32,
    /// The names of advisory fields that the model does not receive.
    pub ignored: Vec<String>,
    /// The bytes of its images, audio and documents.
    pub attachments: Vec<Attachment>,
    /// The position of each message in the client's body.
    pub origins: Vec<MessageOrigin>,
    /// The client, as far as an upstream needs it.
    pub client: Client,
    /// The size of the request for the model.
    pub size: RequestSize,
    /// The bytes of the client's body.
    pub body_bytes: usize,
    /// The approximate bytes that an adapter receives.
    pub text_bytes: usize,
}

/// The task of a request that fits its model.
#[derive(Debug, Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "most requests are chats, and a box would cost each an allocation"
)]
pub enum ResolvedTask {
    /// A chat, or images.
    Model(Task),
    /// Data about texts.
    Retrieval(RetrievalTask),
    /// A spoken text, or the words of a recording.
    Audio(AudioTask),
}

impl ResolvedTask {
    /// Returns the request for adapters, before its first attempt.
    pub fn request(self, attachments: &[Attachment], client: Client) -> AdapterRequest {
        let (attempt, deadline_ms) = (0, 0);
        /// Makes the request of a kind around its task.
        macro_rules! request {
            ($kind:ident of $module:ident, $task:expr) => {
                OtherRequest::$kind($module::Request {
                    task: $task,
                    client,
                    attempt,
                    deadline_ms,
                })
            };
        }
        let mut files = attachments.iter().map(Attachment::described);
        AdapterRequest::Other(match self {
            Self::Model(task) => {
                return AdapterRequest::Task(Request {
                    task,
                    attachments: files.collect(),
                    client,
                    attempt,
                    deadline_ms,
                });
            }
            Self::Retrieval(RetrievalTask::Embeddings(task)) => {
                request!(Embeddings of embeddings, task)
            }
            Self::Retrieval(RetrievalTask::Rerank(task)) => request!(Rerank of rerank, task),
            Self::Retrieval(RetrievalTask::Moderation(task)) => {
                request!(Moderation of moderation, task)
            }
            Self::Audio(AudioTask::Speech(task)) => request!(Speech of speech, task),
            Self::Audio(AudioTask::Transcription(task)) => {
                OtherRequest::Transcription(transcription::Request {
                    task,
                    recording: files.next().expect("a transcription has a recording"),
                    client,
                    attempt,
                    deadline_ms,
                })
            }
        })
    }
}

impl ResolvedRequest {
    /// Returns the limits of the model with the request's output limit.
    pub fn limits(&self) -> ModelLimits {
        ModelLimits {
            context_window: self.model.context_window.into(),
            max_image_tokens: self.model.max_image_tokens.into(),
            output_limit: self.output_limit.into(),
        }
    }
}
