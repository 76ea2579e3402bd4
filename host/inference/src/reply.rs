//! The HTTP response of a request, created at the start of the model's response.
//!
//! weir keeps silent streams alive: clients and proxies close connections without traffic, and a model may think for
//! minutes. After [`SILENCE`], weir sends the headers with a comment of the dialect, and another comment after each
//! [`KEEP_ALIVE_EVERY`] without data. A comment is not a part of the response: weir may still retry after it, and a
//! failure is then the stream's first and last event.
//!
//! **Invariant:** the connection of an incomplete stream breaks, so a client never mistakes it for a complete response.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use http_body::Frame;
use tokio::sync::{mpsc, oneshot};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, Sleep, sleep, timeout};
use weir_dialects::{AnswerHead, Dialect};
use weir_errors::ApiError;
use weir_request::context::RequestContext;

/// The time without data after which weir sends a stream's headers.
const SILENCE: Duration = Duration::from_secs(10);

/// The maximum time without data after that.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);

/// The header of a replayed response.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// The header with the advisory fields that the upstream did not receive. If the headers precede the upstream's
/// response, they lack this header and the provider's name.
const IGNORED: HeaderName = HeaderName::from_static("x-weir-ignored");

/// The response that the handler awaits.
pub(super) enum Reply {
    /// A plain response of this media type.
    Whole(StartReceiver, &'static str),
    /// A stream.
    Stream(StreamReply),
}

/// The receiver of a response's start, or of an error.
type StartReceiver = oneshot::Receiver<Result<ResponseStart, ApiError>>;

/// A stream as its HTTP response sees it.
pub(super) struct StreamReply {
    pub(super) begun: StartReceiver,
    pub(super) pieces: mpsc::Receiver<StreamPiece>,
    /// Dropped with the response, which informs the stream's task.
    pub(super) here: oneshot::Receiver<Infallible>,
    pub(super) dialect: Dialect,
    pub(super) head: AnswerHead,
}

/// The start of a response.
#[derive(Default)]
pub(super) struct ResponseStart {
    /// The complete body, unless it is a stream.
    pub(super) body: Bytes,
    /// Whether the response is a replay.
    pub(super) replayed: bool,
    /// Advisory fields that the upstream did not receive.
    pub(super) ignored: Vec<String>,
}

/// The messages from a stream's task to its response.
pub(super) enum StreamPiece {
    Bytes(Bytes),
    /// The end of a complete stream; without it, a closed channel means failure.
    End,
}

impl Reply {
    /// Waits for the start of the response, or for a stream's silence, and builds the HTTP response.
    pub(super) async fn response(self, context: &RequestContext) -> Result<Response, ApiError> {
        match self {
            Self::Whole(begun, media_type) => {
                let begun = received(begun.await)?;
                let media_type = HeaderValue::from_static(media_type);
                let response = ([(header::CONTENT_TYPE, media_type)], begun.body).into_response();
                let mut response = with_headers(response, begun.replayed, &begun.ignored);
                context.show_facts(response.headers_mut());
                Ok(response)
            }
            Self::Stream(mut stream) => match stream.start().await {
                Ok(begun) => {
                    let begun = received(begun)?;
                    let body = StreamBody::new(stream, None, context);
                    let mut response = with_headers(streamed(body), false, &begun.ignored);
                    context.show_facts(response.headers_mut());
                    Ok(response)
                }
                Err(_) => {
                    let (_, never) = oneshot::channel();
                    let begun = std::mem::replace(&mut stream.begun, never);
                    Ok(streamed(StreamBody::new(stream, Some(begun), context)))
                }
            },
        }
    }
}

impl StreamReply {
    /// Waits for the start of the response, but not beyond a silence that a comment can end.
    async fn start(
        &mut self,
    ) -> Result<Result<Result<ResponseStart, ApiError>, oneshot::error::RecvError>, Elapsed> {
        match self.dialect.keep_alive().is_empty() {
            true => Ok((&mut self.begun).await),
            false => timeout(SILENCE, &mut self.begun).await,
        }
    }
}

/// The sender is dropped without a message only if the task panicked.
fn received(
    begun: Result<Result<ResponseStart, ApiError>, oneshot::error::RecvError>,
) -> Result<ResponseStart, ApiError> {
    begun.map_err(|_| ApiError::internal())?
}

fn streamed(body: StreamBody) -> Response {
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static(body.dialect.stream_type()),
        ),
        // The header asks proxies such as nginx not to buffer the stream.
        (
            HeaderName::from_static("x-accel-buffering"),
            HeaderValue::from_static("no"),
        ),
    ];
    (headers, Body::new(body)).into_response()
}

fn with_headers(mut response: Response, replayed: bool, ignored: &[String]) -> Response {
    let headers = response.headers_mut();
    if replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    if let Ok(ignored) = HeaderValue::try_from(ignored.join(", "))
        && !ignored.is_empty()
    {
        headers.insert(IGNORED, ignored);
    }
    response
}

/// The body of a stream.
struct StreamBody {
    /// Present if the headers preceded the start of the response.
    begun: Option<StartReceiver>,
    pieces: mpsc::Receiver<StreamPiece>,
    _here: oneshot::Receiver<Infallible>,
    dialect: Dialect,
    head: AnswerHead,
    context: RequestContext,
    keep_alive: Bytes,
    /// The time of the last output. A move of the timer at each piece would cost more than this check.
    said_at: Instant,
    silence: Pin<Box<Sleep>>,
    is_over: bool,
}

/// The task of a stream ended without an end marker, after a panic or because the client was too slow to receive its
/// error. weir breaks the connection.
#[derive(Debug, thiserror::Error)]
#[error("the stream broke off")]
struct StreamAborted;

impl StreamBody {
    /// `begun` is present if the response has not started: then a comment is due at once.
    fn new(stream: StreamReply, begun: Option<StartReceiver>, context: &RequestContext) -> Self {
        let now = Instant::now();
        let (said_at, wait) = match &begun {
            Some(_) => (
                now.checked_sub(KEEP_ALIVE_EVERY).unwrap_or(now),
                Duration::ZERO,
            ),
            None => (now, KEEP_ALIVE_EVERY),
        };
        Self {
            begun,
            pieces: stream.pieces,
            _here: stream.here,
            keep_alive: stream.dialect.keep_alive(),
            dialect: stream.dialect,
            head: stream.head,
            context: context.clone(),
            said_at,
            silence: Box::pin(sleep(wait)),
            is_over: false,
        }
    }

    /// Writes an error as the stream's only event.
    fn error(&mut self, error: &ApiError) -> Bytes {
        self.is_over = true;
        self.context.note_error(error);
        let mut event = Vec::new();
        let mut chunks = self.dialect.answer_stream(self.head.clone());
        chunks.error(&self.context.error_body(error), &mut event);
        event.into()
    }

    fn poll_silence(&mut self, context: &mut Context<'_>) -> Poll<Bytes> {
        if self.keep_alive.is_empty() {
            return Poll::Pending;
        }
        loop {
            std::task::ready!(self.silence.as_mut().poll(context));
            let now = Instant::now();
            let due = self.said_at + KEEP_ALIVE_EVERY;
            if due <= now {
                self.said_at = now;
                self.silence.as_mut().reset(now + KEEP_ALIVE_EVERY);
                return Poll::Ready(self.keep_alive.clone());
            }
            self.silence.as_mut().reset(due);
        }
    }
}

impl http_body::Body for StreamBody {
    type Data = Bytes;
    type Error = StreamAborted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamAborted>>> {
        let this = &mut *self;
        if this.is_over {
            return Poll::Ready(None);
        }
        if let Some(begun) = &mut this.begun {
            match Pin::new(begun).poll(context) {
                Poll::Ready(Ok(Ok(_))) => this.begun = None,
                Poll::Ready(Ok(Err(error))) => {
                    let event = this.error(&error);
                    return Poll::Ready(Some(Ok(Frame::data(event))));
                }
                Poll::Ready(Err(_)) => return Poll::Ready(Some(Err(StreamAborted))),
                Poll::Pending => {}
            }
        }
        if this.begun.is_none()
            && let Poll::Ready(piece) = this.pieces.poll_recv(context)
        {
            this.said_at = Instant::now();
            return Poll::Ready(match piece {
                Some(StreamPiece::Bytes(bytes)) => Some(Ok(Frame::data(bytes))),
                Some(StreamPiece::End) => None,
                None => Some(Err(StreamAborted)),
            });
        }
        this.poll_silence(context)
            .map(|comment| Some(Ok(Frame::data(comment))))
    }
}
