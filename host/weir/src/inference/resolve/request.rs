//! A request that fits its model.

use std::sync::Arc;

use weir_dialects::{Attachment, MessageOrigin};
use weir_sandbox::adapter::bindings::adapter::{Client, Task};
use weir_upstream::usage::{ModelLimits, RequestSize};

use crate::catalog::Model;

/// A request that fits its model.
pub struct ResolvedRequest {
    /// The model, with the upstreams that serve it.
    pub model: Arc<Model>,
    /// The allowed upstreams, as indexes into the model's candidates; never empty.
    pub allowed: Vec<usize>,
    /// Whether weir must keep this order, regardless of weights.
    pub is_ordered: bool,
    /// The request, with its output limit.
    pub task: Task,
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
