//! In whose words a client is told an error.

use http::StatusCode;
use serde_json::Value;

use super::openai_chat;
use crate::error::ApiError;

/// In whose words a client is told an error: a vendor's where its SDKs and agents call, which act on its codes and on
/// its wording; weir's own elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorWords {
    /// weir's own.
    Own,
    /// OpenAI's.
    OpenAi,
}

impl ErrorWords {
    /// By the path of the request.
    pub fn of_path(path: &str) -> Self {
        match path.starts_with("/v1/") {
            true => Self::OpenAi,
            false => Self::Own,
        }
    }

    /// The status that it is told by.
    pub fn status(self, error: &ApiError) -> StatusCode {
        match self {
            Self::Own => error.status(),
            Self::OpenAi => openai_chat::errors::status(error),
        }
    }

    /// The body of a response, or the data of a stream's event.
    pub fn body(self, error: &ApiError, request_id: &str) -> Value {
        match self {
            Self::Own => error.body(request_id),
            Self::OpenAi => openai_chat::errors::body(error, request_id),
        }
    }
}
