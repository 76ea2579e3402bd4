//! One message of a client: its request, its protocol revision, and the check of its headers against the body.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, StatusCode};
use rmcp::model::{ErrorCode, ErrorData, ProtocolVersion, RequestId, RequestMetaObject};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use weir_sandbox::printable;

/// The supported revisions, newest first.
pub(super) const VERSIONS: [ProtocolVersion; 4] = [
    ProtocolVersion::V_2026_07_28,
    ProtocolVersion::V_2025_11_25,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_03_26,
];

/// The revision of a request without the header, which later revisions require.
const UNNAMED: ProtocolVersion = ProtocolVersion::V_2025_03_26;

const VERSION_HEADER: &str = "mcp-protocol-version";
const METHOD_HEADER: &str = "mcp-method";
const NAME_HEADER: &str = "mcp-name";

/// The maximum bytes of a client's text in an error.
const MAX_SHOWN_BYTES: usize = 64;

/// A valid message.
pub(super) enum IncomingMessage {
    /// A message with a response.
    Request(McpRequest),
    /// A message without a response.
    Notification,
}

pub(super) struct McpRequest {
    pub(super) id: RequestId,
    pub(super) method: String,
    /// The method's parameters, an object.
    pub(super) params: Value,
    /// Whether the revision has no `initialize`.
    pub(super) is_modern: bool,
}

/// An error response to a message.
pub(super) struct McpRefusal {
    pub(super) status: StatusCode,
    /// The request's id, if it could be read.
    pub(super) id: Option<RequestId>,
    pub(super) error: ErrorData,
}

#[derive(Deserialize)]
struct JsonRpcFields {
    jsonrpc: String,
    id: Option<Value>,
    method: Option<String>,
    params: Option<Value>,
}

impl IncomingMessage {
    /// Reads a message, and compares it with the request's headers.
    pub(super) fn read(headers: &HeaderMap, body: &[u8]) -> Result<Self, McpRefusal> {
        let value: Value = serde_json::from_slice(body).map_err(|error| {
            let why = format!("The body is not JSON: {error}.");
            refused(None, ErrorCode::PARSE_ERROR, why)
        })?;
        if value.is_array() {
            let why = "Send one message at a time: this server does not accept batches.";
            return Err(refused(None, ErrorCode::INVALID_REQUEST, why));
        }
        let written: JsonRpcFields = serde_json::from_value(value).map_err(|error| {
            let why = format!("The body is not a JSON-RPC message: {error}.");
            refused(None, ErrorCode::INVALID_REQUEST, why)
        })?;
        let id = written.id.map(serde_json::from_value).transpose();
        let Ok(id) = id else {
            let why = "`id` is a text or an integer.";
            return Err(refused(None, ErrorCode::INVALID_REQUEST, why));
        };
        let invalid = |why: &str| Err(refused(id.clone(), ErrorCode::INVALID_REQUEST, why));
        if written.jsonrpc != "2.0" {
            return invalid("`jsonrpc` is \"2.0\".");
        }
        let Some(method) = written.method else {
            return invalid("`method` is missing: this server has sent no request to respond to.");
        };
        let params = written.params.unwrap_or_else(|| json!({}));
        if !params.is_object() {
            return invalid("`params` is an object.");
        }
        let Some(id) = id else {
            version_of(headers, None)?;
            return Ok(Self::Notification);
        };
        let mut request = McpRequest {
            id,
            method,
            params,
            is_modern: false,
        };
        request.is_modern = request.check(headers)?;
        Ok(Self::Request(request))
    }
}

impl McpRequest {
    /// Parses the method's parameters.
    pub(super) fn params<T: DeserializeOwned>(&self) -> Result<T, McpRefusal> {
        serde_json::from_value(self.params.clone()).map_err(|error| {
            let why = format!("`params` do not fit: {error}.");
            self.refuse(ErrorCode::INVALID_PARAMS, why)
        })
    }

    pub(super) fn refuse(&self, code: ErrorCode, why: impl Into<String>) -> McpRefusal {
        let status = match code {
            ErrorCode::METHOD_NOT_FOUND if self.is_modern => StatusCode::NOT_FOUND,
            _ => StatusCode::OK,
        };
        McpRefusal {
            status,
            ..refused(Some(self.id.clone()), code, why)
        }
    }

    /// Compares the message with the headers. Returns whether the revision has no `initialize`.
    fn check(&self, headers: &HeaderMap) -> Result<bool, McpRefusal> {
        // `initialize` of older clients names the wanted revision in its parameters.
        if self.method == "initialize" {
            return Ok(false);
        }
        let version = version_of(headers, Some(&self.id))?;
        let meta = self.params.get("_meta").cloned().unwrap_or_default();
        let meta: RequestMetaObject = serde_json::from_value(meta).unwrap_or_default();
        let is_modern = meta.protocol_version().is_some()
            || self.method == "server/discover"
            || version
                .as_ref()
                .is_some_and(|version| !version.has_initialize());
        if !is_modern {
            return Ok(false);
        }
        let missing = meta.missing_required_keys(&ProtocolVersion::V_2026_07_28);
        if !missing.is_empty() {
            let why = format!("`params._meta` lacks {}.", missing.join(", "));
            return Err(refused(
                Some(self.id.clone()),
                ErrorCode::INVALID_PARAMS,
                why,
            ));
        }
        let wanted = meta.protocol_version().unwrap_or(UNNAMED);
        self.matches(headers, VERSION_HEADER, wanted.as_str())?;
        if !VERSIONS.contains(&wanted) || wanted.has_initialize() {
            return Err(unsupported(Some(&self.id), wanted.as_str()));
        }
        self.matches(headers, METHOD_HEADER, &self.method)?;
        if self.method == "tools/call" {
            let name = self.params["name"].as_str().unwrap_or_default();
            self.matches(headers, NAME_HEADER, name)?;
        }
        Ok(true)
    }

    /// Refuses a header that is missing or differs from the body.
    fn matches(&self, headers: &HeaderMap, name: &str, body: &str) -> Result<(), McpRefusal> {
        let mut values = headers.get_all(name).iter();
        let value = match (values.next(), values.next()) {
            (Some(value), None) => value.to_str().ok(),
            _ => None,
        };
        if value.is_some_and(|value| decoded(value).as_deref() == Some(body)) {
            return Ok(());
        }
        let why = format!("Header mismatch: {name} must equal the value in the body.");
        let id = Some(self.id.clone());
        Err(refused(id, ErrorCode::HEADER_MISMATCH, why))
    }
}

/// Returns the revision in the headers, if any; refuses an unsupported one.
fn version_of(
    headers: &HeaderMap,
    id: Option<&RequestId>,
) -> Result<Option<ProtocolVersion>, McpRefusal> {
    let Some(value) = headers.get(VERSION_HEADER) else {
        return Ok(None);
    };
    let value = value.to_str().unwrap_or_default();
    match VERSIONS.into_iter().find(|known| known.as_str() == value) {
        Some(version) => Ok(Some(version)),
        None => Err(unsupported(id, value)),
    }
}

/// Decodes a header's value: `=?base64?…?=` encodes values that are not valid in a header.
fn decoded(value: &str) -> Option<String> {
    let encoded = value.strip_prefix("=?base64?");
    match encoded.and_then(|rest| rest.strip_suffix("?=")) {
        None => Some(value.to_owned()),
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?).ok(),
    }
}

fn unsupported(id: Option<&RequestId>, requested: &str) -> McpRefusal {
    let supported: Vec<_> = VERSIONS.iter().map(ProtocolVersion::as_str).collect();
    let mut refusal = refused(
        id.cloned(),
        ErrorCode::UNSUPPORTED_PROTOCOL_VERSION,
        "Unsupported protocol version",
    );
    refusal.error.data = Some(json!({
        "supported": supported, "requested": printable(requested, MAX_SHOWN_BYTES),
    }));
    refusal
}

/// Returns 400 with this error.
fn refused(id: Option<RequestId>, code: ErrorCode, why: impl Into<String>) -> McpRefusal {
    McpRefusal {
        status: StatusCode::BAD_REQUEST,
        id,
        error: ErrorData::new(code, why.into(), None),
    }
}

/// Shortens a client's text for an error.
pub(super) fn shown(text: &str) -> String {
    printable(text, MAX_SHOWN_BYTES)
}
