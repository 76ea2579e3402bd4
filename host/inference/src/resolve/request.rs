//! A request that fits its model.

use std::sync::Arc;

use weir_catalog::Model;
use weir_dialects::{Attachment, MessageOrigin};
use weir_errors::ApiError;
use weir_sandbox::adapter::AdapterRequest;
use weir_sandbox::adapter::bindings::adapter::{Client, Request, Task};
use weir_upstream::audio_length::RecordingLength;
use weir_upstream::usage::{ModelLimits, RequestSize};

/// A request that fits its model.
pub struct ResolvedRequest {
    /// The model, with the upstreams that serve it.
    pub model: Arc<Model>,
    /// The allowed upstreams, as indexes into the model's candidates; never empty.
    pub allowed: Vec<usize>,
    /// Whether weir must keep this order, regardless of weights.
    pub is_ordered: bool,
    /// The request for adapters, with its output limit, before its first attempt.
    pub request: AdapterRequest,
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
    /// The size of the request for the model.
    pub size: RequestSize,
    /// The bytes of the client's body.
    pub body_bytes: usize,
    /// The approximate bytes that an adapter receives.
    pub text_bytes: usize,
}

/// Returns the request for adapters of a chat or of images, before its first attempt.
pub(super) fn adapter_request(
    task: Task,
    attachments: &[Attachment],
    client: Client,
) -> AdapterRequest {
    AdapterRequest::Task(Request {
        task,
        attachments: attachments.iter().map(Attachment::described).collect(),
        client,
        attempt: 0,
        deadline_ms: 0,
    })
}

impl ResolvedRequest {
    /// Sets the length of the request's recording, and checks it against the limits of the model.
    pub fn set_recording_length(&mut self, length: RecordingLength) -> Result<(), ApiError> {
        let AdapterRequest::Other(request) = &self.request else {
            return Err(ApiError::internal());
        };
        let rules = weir_kinds::kind(request);
        let bounds = rules.bounds_of_recording(&self.model.terms(), length)?;
        (self.size, self.output_limit) = (bounds.size, bounds.output_limit);
        Ok(())
    }

    /// Returns the limits of the model with the request's output limit.
    pub fn limits(&self) -> ModelLimits {
        ModelLimits {
            context_window: self.model.context_window.into(),
            max_image_tokens: self.model.max_image_tokens.into(),
            output_limit: self.output_limit.into(),
        }
    }
}
