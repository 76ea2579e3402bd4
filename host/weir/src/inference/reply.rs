//! The client's end of an answer: the response, which is made when the answer begins.
//!
//! A stream that has nothing to say is kept alive: clients and proxies take a connection without a byte for a dead one,
//! and a model may think for minutes. After [`SILENCE`] the head goes out with a comment of the dialect, and another
//! comment whenever nothing was said for [`KEEP_ALIVE_EVERY`]. A comment is no part of the answer: the request may still
//! be tried again behind it, and where it fails, the error is the stream's first and last event.
//!
//! **Invariant:** a stream that ends without saying so breaks off: a client never takes half an answer for a
//! whole one.

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
use tokio::time::{Instant, Sleep, sleep, timeout};
use weir_dialects::{AnswerHead, Dialect};
use weir_errors::ApiError;

use crate::context::RequestContext;

/// How long a stream may keep silent before its head goes out all the same.
const SILENCE: Duration = Duration::from_secs(10);

/// How long it may keep silent from then on.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);

/// Says that an answer is an earlier request's.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Names the advisory fields of the request that its upstream could not be told. A head that goes out before the upstream
/// has answered does not have it, nor who answers.
const IGNORED: HeaderName = HeaderName::from_static("x-weir-ignored");

/// What the handler waits for.
pub(super) enum Reply {
    /// The whole answer at once.
    Whole(Beginning),
    /// The answer as it is made.
    Stream(StreamReply),
}

/// Where the beginning of an answer arrives, or the error that there is instead.
type Beginning = oneshot::Receiver<Result<Begun, ApiError>>;

/// A streamed answer, as its response knows it.
pub(super) struct StreamReply {
    pub(super) begun: Beginning,
    pub(super) pieces: mpsc::Receiver<Piece>,
    /// Dropped with the response: the stream's task hears of it.
    pub(super) here: oneshot::Receiver<Infallible>,
    pub(super) dialect: Dialect,
    pub(super) head: AnswerHead,
}

/// How an answer begins.
#[derive(Default)]
pub(super) struct Begun {
    /// All of it, unless it is streamed.
    pub(super) body: Bytes,
    /// Whether it is an earlier request's.
    pub(super) replayed: bool,
    /// Advisory fields that the upstream could not be told.
    pub(super) ignored: Vec<String>,
}

/// What a stream's task tells its response.
pub(super) enum Piece {
    Bytes(Bytes),
    /// The stream is complete; a channel that closes without this broke off.
    End,
}

impl Reply {
    /// Waits until the answer begins, or a stream has kept silent for long, and makes the response of it.
    pub(super) async fn response(self, context: &RequestContext) -> Result<Response, ApiError> {
        match self {
            Self::Whole(begun) => {
                let begun = received(begun.await)?;
                let json = HeaderValue::from_static("application/json");
                let response = ([(header::CONTENT_TYPE, json)], begun.body).into_response();
                let mut response = with_headers(response, begun.replayed, &begun.ignored);
                context.show_facts(response.headers_mut());
                Ok(response)
            }
            Self::Stream(mut stream) => match timeout(SILENCE, &mut stream.begun).await {
                Ok(begun) => {
                    let begun = received(begun)?;
                    let body = StreamBody::new(stream, None, context);
                    let mut response = with_headers(event_stream(body), false, &begun.ignored);
                    context.show_facts(response.headers_mut());
                    Ok(response)
                }
                Err(_) => {
                    let (_, never) = oneshot::channel();
                    let begun = std::mem::replace(&mut stream.begun, never);
                    Ok(event_stream(StreamBody::new(stream, Some(begun), context)))
                }
            },
        }
    }
}

/// The sender is dropped without a word only if the task panicked.
fn received(
    begun: Result<Result<Begun, ApiError>, oneshot::error::RecvError>,
) -> Result<Begun, ApiError> {
    begun.map_err(|_| ApiError::internal())?
}

fn event_stream(body: StreamBody) -> Response {
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/event-stream"),
        ),
        // Asks nginx and its kin not to collect the stream.
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

/// A streamed response's body.
struct StreamBody {
    /// Where the head went out before the answer began.
    begun: Option<Beginning>,
    pieces: mpsc::Receiver<Piece>,
    _here: oneshot::Receiver<Infallible>,
    dialect: Dialect,
    head: AnswerHead,
    context: RequestContext,
    keep_alive: Bytes,
    /// When anything was said last. Moving the timer with every piece would cost more than looking at this.
    said_at: Instant,
    silence: Pin<Box<Sleep>>,
    is_over: bool,
}

/// The task behind a stream ended without saying so, which only a panic or a client that was too slow for
/// its own error does. The connection breaks off.
#[derive(Debug, thiserror::Error)]
#[error("the stream broke off")]
struct BrokenOff;

impl StreamBody {
    /// `begun` is there where the answer has not begun yet: a comment is due at once.
    fn new(stream: StreamReply, begun: Option<Beginning>, context: &RequestContext) -> Self {
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

    /// The error that there is instead of an answer, as the stream's only event.
    fn error(&mut self, error: &ApiError) -> Bytes {
        self.is_over = true;
        self.context.note_error(error);
        let mut event = Vec::new();
        let mut chunks = self.dialect.answer_stream(self.head.clone());
        chunks.error(&self.context.error_body(error), &mut event);
        event.into()
    }

    fn poll_silence(&mut self, context: &mut Context<'_>) -> Poll<Bytes> {
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
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
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
                Poll::Ready(Err(_)) => return Poll::Ready(Some(Err(BrokenOff))),
                Poll::Pending => {}
            }
        }
        if this.begun.is_none()
            && let Poll::Ready(piece) = this.pieces.poll_recv(context)
        {
            this.said_at = Instant::now();
            return Poll::Ready(match piece {
                Some(Piece::Bytes(bytes)) => Some(Ok(Frame::data(bytes))),
                Some(Piece::End) => None,
                None => Some(Err(BrokenOff)),
            });
        }
        this.poll_silence(context)
            .map(|comment| Some(Ok(Frame::data(comment))))
    }
}
