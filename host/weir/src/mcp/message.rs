//! One message of a client's: what it asks for, by which revision, and whether its headers say the same.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, StatusCode};
use rmcp::model::{ErrorCode, ErrorData, ProtocolVersion, RequestId, RequestMetaObject};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use weir_sandbox::printable;

/// The revisions that are spoken, the newest first.
pub(super) const VERSIONS: [ProtocolVersion; 4] = [
    ProtocolVersion::V_2026_07_28,
    ProtocolVersion::V_2025_11_25,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_03_26,
];

/// What a client's request without the header speaks: later revisions ask for it.
const UNNAMED: ProtocolVersion = ProtocolVersion::V_2025_03_26;

const VERSION_HEADER: &str = "mcp-protocol-version";
const METHOD_HEADER: &str = "mcp-method";
const NAME_HEADER: &str = "mcp-name";

/// Bytes of a client's text that are repeated to it.
const MAX_SHOWN_BYTES: usize = 64;

/// A message that can be gone into.
pub(super) enum Message {
    /// It is to be answered.
    Request(Request),
    /// It is not.
    Notification,
}

/// A message that is to be answered.
pub(super) struct Request {
    pub(super) id: RequestId,
    pub(super) method: String,
    /// Of the method's own shape; an object.
    pub(super) params: Value,
    /// Whether it is of a revision without `initialize`.
    pub(super) is_modern: bool,
}

/// Why a message is not gone into, or what its answer is in the place of a result.
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    /// Where it could be read.
    pub(super) id: Option<RequestId>,
    pub(super) error: ErrorData,
}

#[derive(Deserialize)]
struct Written {
    jsonrpc: String,
    id: Option<Value>,
    method: Option<String>,
    params: Option<Value>,
}

impl Message {
    /// Reads a message, and compares it with the request's head.
    pub(super) fn read(headers: &HeaderMap, body: &[u8]) -> Result<Self, Refusal> {
        let value: Value = serde_json::from_slice(body).map_err(|error| {
            let why = format!("The body is no JSON: {error}.");
            refused(None, ErrorCode::PARSE_ERROR, why)
        })?;
        if value.is_array() {
            let why = "Send one message at a time: lists of them are not taken.";
            return Err(refused(None, ErrorCode::INVALID_REQUEST, why));
        }
        let written: Written = serde_json::from_value(value).map_err(|error| {
            let why = format!("The body is no message of JSON-RPC: {error}.");
            refused(None, ErrorCode::INVALID_REQUEST, why)
        })?;
        let id = written.id.map(serde_json::from_value).transpose();
        let Ok(id) = id else {
            let why = "`id` is a text or a whole number.";
            return Err(refused(None, ErrorCode::INVALID_REQUEST, why));
        };
        let invalid = |why: &str| Err(refused(id.clone(), ErrorCode::INVALID_REQUEST, why));
        if written.jsonrpc != "2.0" {
            return invalid("`jsonrpc` is \"2.0\".");
        }
        let Some(method) = written.method else {
            return invalid("`method` is missing: nobody here has asked for an answer.");
        };
        let params = written.params.unwrap_or_else(|| json!({}));
        if !params.is_object() {
            return invalid("`params` is an object.");
        }
        let Some(id) = id else {
            version_of(headers, None)?;
            return Ok(Self::Notification);
        };
        let mut request = Request {
            id,
            method,
            params,
            is_modern: false,
        };
        request.is_modern = request.check(headers)?;
        Ok(Self::Request(request))
    }
}

impl Request {
    /// What the method takes.
    pub(super) fn params<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        serde_json::from_value(self.params.clone()).map_err(|error| {
            let why = format!("`params` do not fit: {error}.");
            self.refuse(ErrorCode::INVALID_PARAMS, why)
        })
    }

    /// Its answer is an error.
    pub(super) fn refuse(&self, code: ErrorCode, why: impl Into<String>) -> Refusal {
        let status = match code {
            ErrorCode::METHOD_NOT_FOUND if self.is_modern => StatusCode::NOT_FOUND,
            _ => StatusCode::OK,
        };
        Refusal {
            status,
            ..refused(Some(self.id.clone()), code, why)
        }
    }

    /// Compares it with its head. Returns whether it is of a revision without `initialize`.
    fn check(&self, headers: &HeaderMap) -> Result<bool, Refusal> {
        // What opens the way of older clients names what it would like to speak in its parameters.
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

    /// Refuses a header that is missing or says something else than the body.
    fn matches(&self, headers: &HeaderMap, name: &str, body: &str) -> Result<(), Refusal> {
        let mut values = headers.get_all(name).iter();
        let value = match (values.next(), values.next()) {
            (Some(value), None) => value.to_str().ok(),
            _ => None,
        };
        if value.is_some_and(|value| decoded(value).as_deref() == Some(body)) {
            return Ok(());
        }
        let why = format!("Header mismatch: {name} is to be what the body says.");
        let id = Some(self.id.clone());
        Err(refused(id, ErrorCode::HEADER_MISMATCH, why))
    }
}

/// The revision that the head names, if it names one; refused if it is none that is spoken here.
fn version_of(
    headers: &HeaderMap,
    id: Option<&RequestId>,
) -> Result<Option<ProtocolVersion>, Refusal> {
    let Some(value) = headers.get(VERSION_HEADER) else {
        return Ok(None);
    };
    let value = value.to_str().unwrap_or_default();
    match VERSIONS.into_iter().find(|known| known.as_str() == value) {
        Some(version) => Ok(Some(version)),
        None => Err(unsupported(id, value)),
    }
}

/// A header's value as it was before it was made fit for a header: `=?base64?…?=` stands for what does not fit.
fn decoded(value: &str) -> Option<String> {
    let encoded = value.strip_prefix("=?base64?");
    match encoded.and_then(|rest| rest.strip_suffix("?=")) {
        None => Some(value.to_owned()),
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?).ok(),
    }
}

fn unsupported(id: Option<&RequestId>, requested: &str) -> Refusal {
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

/// 400, with this error.
fn refused(id: Option<RequestId>, code: ErrorCode, why: impl Into<String>) -> Refusal {
    Refusal {
        status: StatusCode::BAD_REQUEST,
        id,
        error: ErrorData::new(code, why.into(), None),
    }
}

/// A client's text, fit to be repeated to it.
pub(super) fn shown(text: &str) -> String {
    printable(text, MAX_SHOWN_BYTES)
}
