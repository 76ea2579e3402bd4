//! Errors in the format of SCIM (RFC 7644 §3.12).

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use weir_errors::{ApiError, ErrorCode, ProtocolErrorBody};

/// An error of a directory's request.
#[derive(Debug)]
pub(super) struct ScimError {
    error: ApiError,
    /// The keyword of the standard, for statuses 400 and 409.
    keyword: Option<&'static str>,
}

impl ScimError {
    fn invalid(keyword: &'static str, what: impl Into<String>) -> Self {
        Self {
            error: ApiError::invalid_request("", what),
            keyword: Some(keyword),
        }
    }

    /// 400: a missing or invalid value; the path names its attribute.
    pub(super) fn value(path: &str, what: &str) -> Self {
        Self::invalid("invalidValue", format!("`{path}`: {what}"))
    }

    /// 400: the body is not a document of the protocol.
    pub(super) fn syntax(what: impl Into<String>) -> Self {
        Self::invalid("invalidSyntax", what)
    }

    /// 400: a filter that weir does not know.
    pub(super) fn filter(what: impl Into<String>) -> Self {
        Self::invalid("invalidFilter", what)
    }

    /// 400: the path of a patch is malformed.
    pub(super) fn path(path: &str) -> Self {
        Self::invalid("invalidPath", format!("{path:?} is no path."))
    }

    /// 400: the path of a patch selects nothing.
    pub(super) fn target(path: &str) -> Self {
        Self::invalid("noTarget", format!("{path:?} selects no value."))
    }

    /// 400: the attribute cannot be removed.
    pub(super) fn mutability(path: &str) -> Self {
        Self::invalid("mutability", format!("`{path}` cannot be removed."))
    }

    /// 409: another user of the directory has this value.
    pub(super) fn taken(path: &str) -> Self {
        let what = format!("Another user has this `{path}`.");
        Self {
            error: ApiError::new(ErrorCode::NotPossible, what),
            keyword: Some("uniqueness"),
        }
    }

    /// 404: the directory has no such resource, or the path does not exist.
    pub(super) fn not_found(what: &str) -> Self {
        ApiError::new(ErrorCode::NotFound, what).into()
    }

    /// 403: the request must not be served as it is.
    pub(super) fn forbidden(what: &str) -> Self {
        ApiError::new(ErrorCode::Forbidden, what).into()
    }

    /// 405.
    pub(super) fn method() -> Self {
        let what = "This path does not support the method.";
        ApiError::new(ErrorCode::MethodNotAllowed, what).into()
    }

    /// 501: an optional part of the standard.
    pub(super) fn not_implemented(what: &str) -> Self {
        ApiError::new(ErrorCode::NotFound, what)
            .with_status(StatusCode::NOT_IMPLEMENTED)
            .into()
    }

    /// 503, or 500 after a defect of the statement.
    pub(super) fn database(error: sqlx::Error) -> Self {
        ApiError::of_database(&error, "about a directory").into()
    }
}

impl From<ApiError> for ScimError {
    fn from(error: ApiError) -> Self {
        Self {
            error,
            keyword: None,
        }
    }
}

impl IntoResponse for ScimError {
    fn into_response(self) -> Response {
        let status: StatusCode = self.error.status();
        let mut body = json!({
            "schemas": ["urn:ietf:params:scim:api:messages:2.0:Error"],
            "status": status.as_str(),
            "detail": self.error.message(),
        });
        if let Some(keyword) = self.keyword {
            body["scimType"] = Value::from(keyword);
        }
        let mut response = self.error.render(status, &body);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, CONTENT_TYPE);
        response.extensions_mut().insert(ProtocolErrorBody);
        response
    }
}

/// The media type of all documents (RFC 7644 §3.1).
pub(super) const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/scim+json");
