//! The one error shape that clients see.
//!
//! `{"error":{"code","type","message","param","request_id", …details}}`: OpenAI's SDKs read `type`,
//! `code` and `param` from it, people read `message`. `code` is stable and upper case, `type` is
//! OpenAI's vocabulary, `param` is the path of the field that is wrong.
//!
//! Under `/v1`, SDKs and agents expect the error format of a vendor. There, a dialect writes the error (`ErrorFormat` in
//! `weir-dialects`), with this `code` as `weir_code`.
//!
//! [`ErrorCode`] lists all codes. Each feature has an error enum and converts it to [`ApiError`] in its handlers. The
//! layer around all routes (`request_layer.rs` in `weir`) writes the body, because it knows the request's id.
//!
//! **Invariant:** a message never holds a key, a token, a prompt, an upstream's address or a cause chain. Details for
//! operators go to the log.

mod codes;

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Map, Value, json};
use weir_storage::database;

pub use self::codes::ErrorCode;

/// An error response.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError(Box<ErrorParts>);

/// A marker in a response whose error body a protocol already wrote; the error layer leaves that body unchanged.
#[derive(Debug, Clone, Copy)]
pub struct ProtocolErrorBody;

#[derive(Debug, Clone, PartialEq)]
struct ErrorParts {
    status: StatusCode,
    code: ErrorCode,
    message: String,
    /// The bytes of the message before the text of a provider, if it has one.
    own_bytes: Option<usize>,
    param: Option<String>,
    retry_after: Option<Duration>,
    no_retry: bool,
    details: Map<String, Value>,
    upstream: Option<Value>,
}

impl ApiError {
    /// An error with the status of its code, and a sentence for people.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self(Box::new(ErrorParts {
            status: code.status(),
            code,
            message: message.into(),
            own_bytes: None,
            param: None,
            retry_after: None,
            no_retry: false,
            details: Map::new(),
            upstream: None,
        }))
    }

    /// 400: the field at `param` (e.g. `messages[0].content`) is wrong.
    pub fn invalid_request(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidRequest, message).with_param(param)
    }

    /// 401: the credentials are missing or invalid. The message never says which part failed.
    pub fn unauthenticated() -> Self {
        Self::new(
            ErrorCode::Unauthenticated,
            "Send a valid API key in the X-Api-Key header or as a bearer token.",
        )
    }

    /// 500. 500: the caller of this function logs the cause.
    pub fn internal() -> Self {
        Self::new(ErrorCode::Internal, "weir failed unexpectedly.")
    }

    /// 503 if the database does not respond, else 500. `when` names the operation in the log.
    pub fn of_database(error: &sqlx::Error, when: &'static str) -> Self {
        tracing::error!(%error, "the database, {when}");
        match database::is_outage(error) {
            true => Self::store_unavailable(),
            false => Self::internal(),
        }
    }

    /// 503: the database does not respond. The caller of this function logs the cause.
    pub fn store_unavailable() -> Self {
        Self::new(
            ErrorCode::StoreUnavailable,
            "The database does not respond; retry later.",
        )
        .with_retry_after(Duration::from_secs(1))
    }

    /// 503: the gateway has no capacity left.
    pub fn overloaded() -> Self {
        let message = "The gateway serves too many requests; retry shortly.";
        Self::new(ErrorCode::Overloaded, message).with_retry_after(Duration::from_secs(1))
    }

    /// 429: the caller has too many concurrent requests.
    pub fn too_many_at_once(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::TooManyAtOnce, message).with_retry_after(Duration::from_secs(1))
    }

    /// 503: the cache does not respond, so limits and revocations are unknown.
    pub fn cache_unavailable(message: &'static str) -> Self {
        Self::new(ErrorCode::CacheUnavailable, message).with_retry_after(Duration::from_secs(1))
    }

    /// Overrides the status of the code.
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.0.status = status;
        self
    }

    /// Replaces the sentence for people.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.0.message = message.into();
        self.0.own_bytes = None;
        self
    }

    /// Appends a provider's text to the sentence for people: `sentence: text`. Records of the error leave it out,
    /// because it may quote the request.
    #[must_use]
    pub fn with_provider_text(mut self, text: &str) -> Self {
        self.0.own_bytes = Some(self.0.message.len());
        self.0.message.push_str(": ");
        self.0.message.push_str(text);
        self
    }

    /// Names the field of the request that is wrong.
    #[must_use]
    pub fn with_param(mut self, param: impl Into<String>) -> Self {
        let param = param.into();
        self.0.param = (!param.is_empty()).then_some(param);
        self
    }

    /// Sets `Retry-After`, rounded up to whole seconds.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after = Some(after);
        self
    }

    /// Sets `x-should-retry: false`: the SDKs of OpenAI and Anthropic do not retry then.
    #[must_use]
    pub fn with_no_retry(mut self) -> Self {
        self.0.no_retry = true;
        self
    }

    /// Adds a field to the error object.
    #[must_use]
    pub fn with_detail(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.details.insert(name.to_owned(), value.into());
        self
    }

    /// Adds the error object of an upstream that speaks the client's dialect.
    #[must_use]
    pub fn with_upstream(mut self, error: Option<Value>) -> Self {
        self.0.upstream = error;
        self
    }

    /// The upstream's error object. Dialects rewrite it if the client's request caused the error.
    pub fn upstream(&self) -> Option<&Value> {
        self.0.upstream.as_ref()
    }

    /// The HTTP status; a dialect may map it to another.
    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    /// The stable code, e.g. `UNKNOWN_MODEL`.
    pub fn code(&self) -> &'static str {
        self.0.code.as_str()
    }

    /// The path of the field that is wrong, if one is.
    pub fn param(&self) -> Option<&str> {
        self.0.param.as_deref()
    }

    /// The sentence for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The sentence for people, without the text of a provider.
    pub fn own_message(&self) -> &str {
        match self.0.own_bytes {
            Some(bytes) => &self.0.message[..bytes],
            None => &self.0.message,
        }
    }

    /// The seconds in `Retry-After`, if the response has it.
    pub fn retry_after_seconds(&self) -> Option<u128> {
        let after = self.0.retry_after?;
        Some(after.as_millis().div_ceil(1000).max(1))
    }

    /// A field that [`with_detail`](Self::with_detail) added.
    pub fn detail(&self, name: &str) -> Option<&Value> {
        self.0.details.get(name)
    }

    /// All fields that [`with_detail`](Self::with_detail) added.
    pub fn details(&self) -> &Map<String, Value> {
        &self.0.details
    }

    /// The error in weir's own format, as the value of a response body or of a stream's `error` event.
    pub fn body(&self, request_id: &str) -> Value {
        let mut error = self.0.details.clone();
        error.insert("code".into(), self.0.code.as_str().into());
        error.insert("type".into(), self.kind().into());
        error.insert("message".into(), self.0.message.as_str().into());
        error.insert("param".into(), self.0.param.as_deref().into());
        error.insert("request_id".into(), request_id.into());
        json!({ "error": error })
    }

    /// The complete response, with a status and a body in the client's dialect.
    pub fn render(&self, status: StatusCode, body: &Value) -> Response {
        let mut response = (
            status,
            [(header::CONTENT_TYPE, "application/json")],
            body.to_string(),
        )
            .into_response();
        if let Some(seconds) = self.retry_after_seconds()
            && let Ok(value) = HeaderValue::try_from(seconds.to_string())
        {
            response.headers_mut().insert(header::RETRY_AFTER, value);
        }
        if self.0.no_retry {
            response
                .headers_mut()
                .insert("x-should-retry", HeaderValue::from_static("false"));
        }
        if self.0.status == StatusCode::UNAUTHORIZED {
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }

    /// OpenAI's type for this class of error, by status.
    fn kind(&self) -> &'static str {
        match self.0.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            400..=499 => "invalid_request_error",
            503 => "overloaded_error",
            _ => "api_error",
        }
    }
}

impl IntoResponse for ApiError {
    /// A response without a body that carries the error; the error layer adds the body with the request's id.
    fn into_response(self) -> Response {
        let mut response = self.0.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}
