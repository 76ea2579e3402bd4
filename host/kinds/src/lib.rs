//! The kinds of work besides chats: vectors, rankings, verdicts on texts, recordings and their words; and images.
//!
//! A kind is one folder. It has the reader of a client's body and the writer of the response, and the rules of the kind
//! ([`Kind`]): what filters and the content log see of a request, its size, and its limits at a model. The pipeline in
//! the crate `inference` knows no kind by name.
//!
//! To add a kind: its interface in `wit/`, a row in `sandbox/src/adapter/kinds.rs`, a folder or a file here and a row below,
//! and its endpoint in `inference/src/vendors/`.

pub mod embeddings;
pub mod images;
mod kind;
pub mod moderation;
pub mod rerank;
#[cfg(test)]
mod schema_tests;
pub mod speech;
pub mod transcription;

use serde_json::{Map, Value};
use weir_dialects::schema::Schemas;
use weir_dialects::{ChatCall, read_own};
use weir_errors::ApiError;
use weir_sandbox::adapter::{OtherRequest, WorkKind};

use self::images::{ImageCall, ImageOperation};
pub use self::kind::{
    ContentPart, Contents, Kind, KindBounds, KindCall, ModelTerms, ScreenedFields,
    ScreenedResponse, fields_with_effect,
};

/// Declares the kinds: for each, its module, and what its models do, for errors.
macro_rules! kinds {
    ($($kind:ident of $module:ident: $what:literal;)*) => {
        /// Returns the rules of a request's kind.
        pub fn kind(request: &OtherRequest) -> &dyn Kind {
            match request {
                $(OtherRequest::$kind(request) => request,)*
            }
        }

        /// Returns the rules of a request's kind, to change the request.
        pub fn kind_mut(request: &mut OtherRequest) -> &mut dyn Kind {
            match request {
                $(OtherRequest::$kind(request) => request,)*
            }
        }

        /// Says what models of a kind do, and where.
        pub fn purpose(kind: WorkKind) -> &'static str {
            match kind {
                WorkKind::Chat | WorkKind::Images => "is for chats or images: use another endpoint",
                $(WorkKind::$kind => $what,)*
            }
        }

        /// Returns the schemas of requests, responses and events by name.
        pub fn schemas() -> Map<String, Value> {
            let mut schemas = Schemas::default();
            images::describe(&mut schemas);
            $($module::describe(&mut schemas);)*
            let mut schemas = schemas.into_components();
            images::add_variants(&mut schemas);
            transcription::add_variants(&mut schemas);
            schemas
        }
    };
}

kinds! {
    Embeddings of embeddings: "makes embeddings: use /v1/embeddings";
    Rerank of rerank: "orders documents: use /v1/rerank";
    Moderation of moderation: "finds harmful content: use /v1/moderations";
    Speech of speech: "speaks: use /v1/audio/speech";
    Transcription of transcription: "hears: use /v1/audio/transcriptions";
}

/// A chat or a request for images.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientCall {
    /// A chat.
    Chat(Box<ChatCall>),
    /// A request for images.
    Images(Box<ImageCall>),
}

/// Reads a chat request of weir's own endpoints, or an image request, which has a `prompt` and no `messages`.
///
/// # Errors
///
/// Fails like [`read_own`].
pub fn read_any(body: &[u8]) -> Result<ClientCall, ApiError> {
    let fields: Option<Value> = serde_json::from_slice(body).ok();
    let has = |field: &str| {
        fields
            .as_ref()
            .is_some_and(|fields| fields.get(field).is_some())
    };
    if !has("prompt") || has("messages") {
        return read_own(body).map(|call| ClientCall::Chat(Box::new(call)));
    }
    let made = match has("images") {
        true => ImageOperation::Edit,
        false => ImageOperation::Generation,
    };
    images::read(body, made).map(|call| ClientCall::Images(Box::new(call)))
}
