//! The choice of an error's format.

use http::{HeaderMap, HeaderName, StatusCode};
use serde_json::Value;
use weir_errors::ApiError;

use super::{anthropic_messages, gemini_generate, openai_chat, openai_responses};

/// The format of an error: a vendor's if the vendor's SDKs and agents call, because they depend on its codes and
/// wording; else weir's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorFormat {
    /// weir's own.
    Own,
    /// OpenAI's.
    OpenAi,
    /// OpenAI's, with the field names of Responses.
    OpenAiResponses,
    /// Anthropic's.
    Anthropic,
    /// Google's.
    Google,
}

impl ErrorFormat {
    /// Chooses by the path, and if several vendors share it, by the headers of Anthropic's and Google's SDKs.
    pub fn of(path: &str, headers: &HeaderMap) -> Self {
        if gemini_generate::is_endpoint(path) {
            return Self::Google;
        }
        let Some(path) = path.strip_prefix("/v1/") else {
            return Self::Own;
        };
        let is_at = |endpoint: &str| {
            let rest = path.strip_prefix(endpoint);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if is_at("responses") {
            return Self::OpenAiResponses;
        }
        if is_at("models") && headers.contains_key(gemini_generate::KEY_HEADER) {
            return Self::Google;
        }
        match is_at("messages") || is_at("models") && headers.contains_key("anthropic-version") {
            true => Self::Anthropic,
            false => Self::OpenAi,
        }
    }

    /// The vendor's header for a request's id, besides weir's own.
    pub fn id_header(self) -> Option<HeaderName> {
        match self {
            Self::Own | Self::OpenAi | Self::OpenAiResponses | Self::Google => None,
            Self::Anthropic => Some(anthropic_messages::errors::REQUEST_ID),
        }
    }

    /// The status of the error.
    pub fn status(self, error: &ApiError) -> StatusCode {
        match self {
            Self::Own => error.status(),
            Self::OpenAi | Self::OpenAiResponses => openai_chat::errors::status(error),
            Self::Anthropic => anthropic_messages::errors::status(error),
            Self::Google => gemini_generate::errors::status(error),
        }
    }

    /// The body of a response, or the data of a stream's event.
    pub fn body(self, error: &ApiError, request_id: &str) -> Value {
        match self {
            Self::Own => error.body(request_id),
            Self::OpenAi => openai_chat::errors::body(error, request_id),
            Self::OpenAiResponses => {
                let param = error.param().map(openai_responses::field);
                let error = error.clone().with_param(param.unwrap_or_default());
                openai_chat::errors::body(&error, request_id)
            }
            Self::Anthropic => anthropic_messages::errors::body(error, request_id),
            Self::Google => gemini_generate::errors::body(error, request_id),
        }
    }
}
