//! A client's request of any kind of work.

use weir_dialects::{ChatCall, Dialect};
use weir_kinds::KindCall;
use weir_kinds::images::ImageCall;
use weir_request::content_log::LoggedRequest;
use weir_sandbox::adapter::AdapterRequest;
use weir_sandbox::adapter::bindings::adapter::Task;

/// A client's request. Chats and images have an interface of the contract together, and each other kind has its own.
#[expect(
    clippy::large_enum_variant,
    reason = "most requests are chats, and a box would cost each an allocation"
)]
pub enum Work {
    /// A chat.
    Chat(ChatCall),
    /// A request for images.
    Images(ImageCall),
    /// A request of another kind.
    Other(KindCall),
}

impl From<ChatCall> for Work {
    fn from(call: ChatCall) -> Self {
        Self::Chat(call)
    }
}

impl From<ImageCall> for Work {
    fn from(call: ImageCall) -> Self {
        Self::Images(call)
    }
}

impl From<KindCall> for Work {
    fn from(call: KindCall) -> Self {
        Self::Other(call)
    }
}

impl Work {
    /// Returns the name of the model.
    pub(crate) fn model(&self) -> &str {
        match self {
            Self::Chat(call) => &call.request.model,
            Self::Images(call) => &call.request.model,
            Self::Other(call) => call.request.model(),
        }
    }

    /// Returns the name of the model, to change it.
    pub(crate) fn model_mut(&mut self) -> &mut String {
        match self {
            Self::Chat(call) => &mut call.request.model,
            Self::Images(call) => &mut call.request.model,
            Self::Other(call) => call.request.model_mut(),
        }
    }

    /// Returns the dialect of the response.
    pub(crate) fn dialect(&self) -> &Dialect {
        match self {
            Self::Chat(call) => &call.dialect,
            Self::Images(call) => &call.dialect,
            Self::Other(call) => &call.dialect,
        }
    }

    /// Whether the client wants a stream.
    pub(crate) fn is_stream(&self) -> bool {
        match self {
            Self::Chat(call) => call.request.stream,
            Self::Images(call) => call.request.stream,
            Self::Other(call) => weir_kinds::kind(&call.request).is_stream(),
        }
    }

    /// Whether the response cache is for requests of this kind.
    pub(crate) fn is_cacheable(&self) -> bool {
        match self {
            Self::Chat(_) => true,
            Self::Images(_) => false,
            Self::Other(call) => weir_kinds::kind(&call.request).is_cacheable(),
        }
    }

    /// Returns the contents for the content log.
    pub(crate) fn logged(&self) -> LoggedRequest {
        match self {
            Self::Chat(call) => LoggedRequest::of_chat(call),
            Self::Images(call) => LoggedRequest::of_images(call),
            Self::Other(call) => LoggedRequest::of_kind(call),
        }
    }
}

/// Returns the word of the conventions for traces for the output of a request, unless it is text or data.
pub(crate) fn output_type(request: &AdapterRequest) -> Option<&'static str> {
    match request {
        AdapterRequest::Task(request) => match request.task {
            Task::Chat(_) => None,
            Task::Image(_) => Some("image"),
        },
        AdapterRequest::Other(request) => weir_kinds::kind(request).output_type(),
    }
}
