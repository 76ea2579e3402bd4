//! HTTP/2 on a connection. Each concurrent request counts against the limits like a request on a connection of its own.
//!
//! The `h2` library limits the memory of a connection: heads, continuation frames, resets before a request starts,
//! unread data. This module covers the remaining cases: clients that cancel request after request, that do not read one
//! response while they read others, and that leave a connection idle.
//!
//! **Invariant:** every wait for a client has a timeout: for its first request, between requests, for room to write a
//! response, for its acknowledgement of a ping, and at the end.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Request, Response, Uri};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tower_service::Service;
use weir_app::request_layer::{EarlyRejection, Peer};
use weir_errors::ApiError;

use super::connection_closer::ConnectionCloser;
use super::connection_resources::ConnectionResources;
use super::connection_slots::ExtraSlot;
use super::connections::{StreamShare, too_many};
use super::framing::{HEAD_BYTES, MAX_HEADERS, malformed, too_large};
use super::gate::Waits;
use super::write_window::WriteProgress;

/// The first bytes of a client that uses HTTP/2 with prior knowledge.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Flow-control window: unread bytes of request bodies, for one request and for a connection.
const WINDOW_BYTES: u32 = 128 << 10;

/// Buffered bytes of a response that its client does not read, and of one chunk of it.
const UNSENT_BYTES: usize = 32 << 10;
const PIECE_BYTES: usize = 16 << 10;

/// Interval between pings to a client.
const PING_EVERY: Duration = Duration::from_secs(30);

/// Time that a closing connection has to deliver its last bytes once all requests are answered.
const LINGER: Duration = Duration::from_secs(5);
const LINGER_EVICTED: Duration = Duration::from_secs(1);

/// The limits of connections.
#[derive(Clone)]
pub(super) struct Http2Limits {
    /// Concurrent requests on one connection.
    pub streams: u32,
    /// Timeouts of clients.
    pub waits: Waits,
    /// Time in which a client must read a response.
    pub write_timeout: Duration,
    /// Cancelled once readiness fails: clients should move to another gateway.
    pub draining: CancellationToken,
}

/// Serves requests on a stream until either side closes it. `until` is the deadline of the first request.
pub(super) async fn serve<S>(
    stream: S,
    until: Instant,
    seat: Arc<ConnectionResources>,
    routes: Router,
    bounds: Http2Limits,
    closing: &ConnectionCloser,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let streams = Streams {
        write_timeout: bounds.write_timeout,
    };
    let mut server = http2::Builder::new(streams);
    server
        .timer(TokioTimer::new())
        .max_concurrent_streams(bounds.streams)
        .max_header_list_size(HEAD_BYTES as u32)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_send_buf_size(UNSENT_BYTES)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(bounds.write_timeout);
    let line = seat.line().clone();
    let cut = CancellationToken::new();
    let service = {
        let (cut, draining) = (cut.clone(), bounds.draining);
        service_fn(move |request| {
            let asked = OpenRequest::new(seat.clone(), cut.clone());
            answer(routes.clone(), asked, draining.clone(), request)
        })
    };
    let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service));
    let mut lull = pin!(sleep_until(until.min(line.expires_at)));
    let linger = loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return note_end(ended),
            () = cut.cancelled() => {
                tracing::debug!("connection closed: its client cancels too many requests");
                return;
            }
            () = line.evicted() => break LINGER_EVICTED,
            () = closing.due() => break LINGER,
            () = lull.as_mut() => {
                let now = Instant::now();
                let wait = if line.has_served() { bounds.waits.idle } else { bounds.waits.head };
                let next = line.idle_since().unwrap_or(now) + wait;
                if now >= next && !line.has_served() {
                    tracing::debug!("connection closed: its client is idle");
                    return;
                }
                if now >= line.expires_at || now >= next {
                    break LINGER;
                }
                lull.as_mut().reset(next.min(line.expires_at));
            }
        }
    };
    connection.as_mut().graceful_shutdown();
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return note_end(ended),
            () = cut.cancelled() => return,
            () = tokio::time::sleep(linger) => {
                if line.is_answered() {
                    return;
                }
            }
        }
    }
}

fn note_end(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "connection closed");
    }
}

/// Serves a request.
async fn answer(
    mut routes: Router,
    mut asked: OpenRequest,
    draining: CancellationToken,
    mut request: Request<Incoming>,
) -> Result<Response<PacedBody>, Infallible> {
    let admitted = as_http1(&mut request).and_then(|()| asked.admit(request.uri().path()));
    if let Err(error) = admitted {
        request.extensions_mut().insert(EarlyRejection(error));
    }
    let client = asked.seat.client;
    request.extensions_mut().insert(Peer(client));
    let response = routes.call(request).await?;
    if draining.is_cancelled() {
        // The equivalent of HTTP/1.1's `Connection: close`.
        asked.seat.line().evict();
    }
    let unread = UNREAD.try_with(Arc::clone).unwrap_or_default();
    Ok(response.map(|body| PacedBody {
        body,
        rest: Bytes::new(),
        unread,
        asked,
    }))
}

/// Rewrites a request's head in the form of HTTP/1.1, which all routes read: the host in its header, and only a path as
/// the target.
fn as_http1(request: &mut Request<Incoming>) -> Result<(), ApiError> {
    if request.headers().len() > MAX_HEADERS {
        return Err(too_large("headers", MAX_HEADERS));
    }
    if request.method() == Method::CONNECT {
        return Err(malformed("its target is not a path"));
    }
    let uri = std::mem::take(request.uri_mut());
    if let Some(authority) = uri.authority() {
        let authority = HeaderValue::from_str(authority.as_str())
            .map_err(|_| malformed("its authority is invalid"))?;
        let host = request
            .headers_mut()
            .insert(header::HOST, authority.clone());
        if host.is_some_and(|host| host != authority) {
            return Err(malformed("its Host differs from its authority"));
        }
    }
    let path = uri.into_parts().path_and_query;
    *request.uri_mut() = path.map(Uri::from).unwrap_or_default();
    Ok(())
}

/// A request in progress: counted on its connection and, beside other requests, as a connection of its own.
struct OpenRequest {
    seat: Arc<ConnectionResources>,
    cut: CancellationToken,
    /// Whether no other request was in progress on its connection.
    is_first: bool,
    is_heard: bool,
    extra: ExtraSlot,
    share: Option<StreamShare>,
}

impl OpenRequest {
    fn new(seat: Arc<ConnectionResources>, cut: CancellationToken) -> Self {
        let before = seat.line().begin(1);
        Self {
            seat,
            cut,
            is_first: before == 0,
            is_heard: false,
            extra: None,
            share: None,
        }
    }

    fn admit(&mut self, path: &str) -> Result<(), ApiError> {
        if self.is_first {
            self.extra = self.seat.place.admit(path)?;
            return Ok(());
        }
        self.extra = self.seat.place.admit_beside(path)?;
        self.share = Some(self.seat.entry.take_stream().ok_or_else(too_many)?);
        Ok(())
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let line = self.seat.line();
        if line.end() {
            line.rest();
        }
        if line.note_end(self.is_heard) {
            self.cut.cancel();
        }
    }
}

/// A response's body, in chunks for which a client has to make room one by one.
struct PacedBody {
    body: Body,
    rest: Bytes,
    unread: Arc<UnreadBody>,
    asked: OpenRequest,
}

impl http_body::Body for PacedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        this.unread.is_there.store(false, Ordering::Relaxed);
        if this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    this.asked.is_heard = true;
                    return Poll::Ready(None);
                }
            }
        }
        let piece = this.rest.split_to(this.rest.len().min(PIECE_BYTES));
        this.unread.bytes.fetch_add(piece.len(), Ordering::Relaxed);
        this.unread.is_there.store(true, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.rest.len() as u64 {
            0 => self.body.size_hint(),
            rest => {
                let of_body = self.body.size_hint();
                let mut hint = SizeHint::new();
                if let Some(upper) = of_body.upper() {
                    hint.set_upper(upper + rest);
                }
                hint.set_lower(of_body.lower() + rest);
                hint
            }
        }
    }
}

/// The unread part of a response.
#[derive(Default)]
struct UnreadBody {
    /// Bytes that were handed over so far.
    bytes: AtomicUsize,
    /// Whether the last chunk waits for its client to make room.
    is_there: AtomicBool,
}

tokio::task_local! {
    /// The unread part of the response that this task writes.
    static UNREAD: Arc<UnreadBody>;
}

/// Spawns a task for each request; the task ends when its client does not read the response.
#[derive(Clone)]
struct Streams {
    write_timeout: Duration,
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        tokio::spawn(while_read(stream, self.write_timeout));
    }
}

/// Watches a response's progress from outside: hyper does not poll a body without room, so the body cannot time out
/// itself. The minimum rate is the same as that of a connection.
async fn while_read(stream: impl Future<Output = ()>, timeout: Duration) {
    let unread = Arc::<UnreadBody>::default();
    let mut stream = pin!(UNREAD.scope(unread.clone(), stream));
    let mut window = WriteProgress::new(timeout);
    poll_fn(|context| {
        if stream.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        if !unread.is_there.load(Ordering::Relaxed) {
            window.end();
            return Poll::Pending;
        }
        window.poll_wait(context, unread.bytes.load(Ordering::Relaxed))
    })
    .await;
}
