//! Bodies for handlers: JSON text, a form, or a component.

use std::sync::Arc;

use axum::extract::{FromRef, FromRequest, Request};
use bytes::{Bytes, BytesMut};
use http::{HeaderValue, StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::AccountId;
use weir_sandbox::limits::COMPONENT_BYTES;

use crate::admission::{Admission, BodyMemory, BodyReservation};
use crate::limits::settings::BodyLimits;

/// The limits of request bodies, and their shared memory. Cheap to clone.
#[derive(Clone)]
pub struct BodyReader {
    /// The memory for bodies.
    pub admission: Arc<Admission>,
    /// The limits of a body's size and time.
    pub limits: BodyLimits,
}

/// The body of a request with a JSON content type, within the limits of size and time.
pub struct JsonBody {
    /// The complete text.
    pub bytes: Bytes,
    /// The body's share of the memory for bodies; held as long as a copy of the body exists.
    pub room: BodyReservation,
}

/// The body of a request with a form or JSON content type, within the limits of size and time.
pub struct FormOrJsonBody {
    pub bytes: Bytes,
    /// The boundary of a form's parts; none for JSON.
    pub boundary: Option<String>,
    /// The body's share of the memory for bodies; held as long as a copy of the body exists.
    pub room: BodyReservation,
}

/// The body of a request with a form (`multipart/form-data`), within the limits of size and time.
pub struct FormBody {
    pub bytes: Bytes,
    /// The boundary of the form's parts.
    pub boundary: String,
    /// The body's share of the memory for bodies; held as long as a copy of the body exists.
    pub room: BodyReservation,
}

/// The body of a page's form, within the limits of size and time.
pub struct UrlEncodedBody(pub Bytes);

/// Maximum bytes of a page's form.
const FORM_BYTES: usize = 64 << 10;

/// A WebAssembly component as a request's body, within the limits of a component's size and a body's time.
pub struct ComponentBody {
    pub bytes: Bytes,
    /// The body's share of the memory for bodies.
    pub room: BodyReservation,
}

impl<S: Send + Sync> FromRequest<S> for ComponentBody
where
    BodyReader: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let reader = &BodyReader::from_ref(state);
        let content_type = request.headers().get(header::CONTENT_TYPE);
        let is_component = content_type.is_some_and(|content_type| {
            let essence = essence(content_type.as_bytes());
            essence.eq_ignore_ascii_case(b"application/wasm")
                || essence.eq_ignore_ascii_case(b"application/octet-stream")
        });
        if !is_component {
            return Err(ApiError::new(
                ErrorCode::UnsupportedMediaType,
                "Send the component's bytes as application/wasm.",
            ));
        }
        let room = room_of(&request, reader);
        let (bytes, room) =
            read(request, reader, room, COMPONENT_BYTES, component_too_large).await?;
        Ok(Self { bytes, room })
    }
}

impl<S: Send + Sync> FromRequest<S> for JsonBody
where
    BodyReader: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let reader = &BodyReader::from_ref(state);
        Self::read(request, reader, reader.limits.body_bytes.get()).await
    }
}

impl<S: Send + Sync> FromRequest<S> for UrlEncodedBody
where
    BodyReader: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let reader = &BodyReader::from_ref(state);
        let content_type = request.headers().get(header::CONTENT_TYPE);
        let is_form = content_type.is_some_and(|content_type| {
            let essence = essence(content_type.as_bytes());
            essence.eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
        });
        if !is_form {
            return Err(ApiError::new(
                ErrorCode::UnsupportedMediaType,
                "Send the form as application/x-www-form-urlencoded.",
            ));
        }
        let room = room_of(&request, reader);
        let (bytes, _) = read(request, reader, room, FORM_BYTES, too_large).await?;
        Ok(Self(bytes))
    }
}

impl JsonBody {
    /// Reads a body of at most `limit` bytes.
    pub async fn read(
        request: Request,
        reader: &BodyReader,
        limit: usize,
    ) -> Result<Self, ApiError> {
        let room = room_of(&request, reader);
        Self::read_in(room, request, reader, limit).await
    }

    /// Does the same within this memory.
    pub async fn read_in(
        room: BodyMemory<'_>,
        request: Request,
        reader: &BodyReader,
        limit: usize,
    ) -> Result<Self, ApiError> {
        let headers = request.headers();
        let content_type = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        // A request without a body needs no content type; a handler that requires a body finds it empty.
        let bodiless = content_type.is_none() && request.body().is_end_stream();
        if !bodiless && !is_json(content_type) {
            return Err(ApiError::new(
                ErrorCode::UnsupportedMediaType,
                "Send the body as application/json.",
            ));
        }
        let (bytes, room) = read(request, reader, room, limit, too_large).await?;
        Ok(Self { bytes, room })
    }
}

impl<S: Send + Sync> FromRequest<S> for FormOrJsonBody
where
    BodyReader: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let reader = &BodyReader::from_ref(state);
        let content_type = request.headers().get(header::CONTENT_TYPE);
        let boundary = boundary(content_type);
        if boundary.is_none() && !is_json(content_type.map(HeaderValue::as_bytes)) {
            return Err(ApiError::new(
                ErrorCode::UnsupportedMediaType,
                "Send the body as multipart/form-data, or as application/json.",
            ));
        }
        let limit = reader.limits.body_bytes.get();
        let room = room_of(&request, reader);
        let (bytes, room) = read(request, reader, room, limit, too_large).await?;
        Ok(Self {
            bytes,
            boundary,
            room,
        })
    }
}

impl<S: Send + Sync> FromRequest<S> for FormBody
where
    BodyReader: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let reader = &BodyReader::from_ref(state);
        let boundary = boundary(request.headers().get(header::CONTENT_TYPE));
        let boundary = boundary.ok_or_else(|| {
            let message = "Send the body as multipart/form-data.";
            ApiError::new(ErrorCode::UnsupportedMediaType, message)
        })?;
        let limit = reader.limits.body_bytes.get();
        let room = room_of(&request, reader);
        let (bytes, room) = read(request, reader, room, limit, too_large).await?;
        Ok(Self {
            bytes,
            boundary,
            room,
        })
    }
}

/// Returns the boundary of a form's parts from its content type.
fn boundary(content_type: Option<&HeaderValue>) -> Option<String> {
    multer::parse_boundary(content_type?.to_str().ok()?).ok()
}

fn room_of<'a>(request: &Request, reader: &'a BodyReader) -> BodyMemory<'a> {
    let account = request.extensions().get::<AccountId>();
    reader.admission.body_room(account)
}

/// Reads a body within the limit of bytes and time. A rejected body stays unread; the connection handles it.
async fn read(
    request: Request,
    reader: &BodyReader,
    mut room: BodyMemory<'_>,
    limit: usize,
    too_large: fn(usize) -> ApiError,
) -> Result<(Bytes, BodyReservation), ApiError> {
    let headers = request.headers();
    let encoding = headers.get(header::CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(ApiError::new(
            ErrorCode::UnsupportedMediaType,
            "Send the body without a content encoding.",
        ));
    }
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > limit) {
        return Err(too_large(limit));
    }
    let mut body = request.into_body();
    let began = Instant::now();
    let mut bytes = BytesMut::with_capacity(length.unwrap_or_default());
    loop {
        let deadline = began + reader.limits.body_timeout(bytes.len());
        let frame = timeout_at(deadline, body.frame());
        let Some(frame) = frame.await.map_err(|_| too_slow())? else {
            return Ok((bytes.freeze(), room.held()));
        };
        let Ok(data) = frame.map_err(|_| broke_off())?.into_data() else {
            continue;
        };
        let length = bytes.len() + data.len();
        if length > limit {
            return Err(too_large(limit));
        }
        // Memory is reserved as the bytes arrive: a client that announces a large body and sends it slowly must not take
        // memory from others.
        room.grow_to(length).await?;
        bytes.extend_from_slice(&data);
    }
}

fn too_slow() -> ApiError {
    ApiError::new(
        ErrorCode::RequestTimeout,
        "The body took too long to arrive.",
    )
}

fn broke_off() -> ApiError {
    ApiError::new(ErrorCode::InvalidRequest, "The body is incomplete.")
}

fn is_json(content_type: Option<&[u8]>) -> bool {
    essence(content_type.unwrap_or_default()).eq_ignore_ascii_case(b"application/json")
}

/// Returns a content type without its parameters.
fn essence(content_type: &[u8]) -> &[u8] {
    let mut parts = content_type.split(|&byte| byte == b';');
    parts.next().unwrap_or_default().trim_ascii()
}

/// The size limit is the first load step, before any loading.
fn component_too_large(limit: usize) -> ApiError {
    ApiError::new(
        ErrorCode::PluginRefused,
        format!("The component fails a load step. size: it has more than {limit} bytes."),
    )
    .with_status(StatusCode::PAYLOAD_TOO_LARGE)
    .with_detail("step", "size")
}

fn too_large(limit: usize) -> ApiError {
    ApiError::new(
        ErrorCode::PayloadTooLarge,
        format!("The body has more than {limit} bytes."),
    )
}
