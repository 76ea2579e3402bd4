//! A filter between a client's socket and hyper: only complete, valid heads pass.
//!
//! hyper has several gaps: its response to an invalid head has no body, it accepts two conflicting framings of a body,
//! it closes a connection under a client that still sends, and it has one timeout for both a head and an idle
//! connection. The gate closes these gaps. A connection that takes no more requests looks to hyper like a client that
//! has closed it.
//!
//! **Invariant:** hyper sees that end only after every request that it received is answered and flushed.
//! **Invariant:** every wait for a client has a timeout: for a head, between requests, and at the end.
//! **Invariant:** weir reads bytes that have arrived before a wait ends. On a busy machine a request can lie unread in
//! the socket when its connection is chosen to make way for another one. weir answers it, and then closes the
//! connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use bytes::{Buf, Bytes, BytesMut};
use http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use weir_errors::{ApiError, ErrorCode};
use weir_storage::ids;

use super::connections::ConnectionState;
use super::framing::{ConnectionFraming, FramingProgress, HEAD_BYTES};

/// Time and bytes for which weir still reads from a client after its last response. If weir closed a connection with
/// unread bytes, the client could lose a response that it has not read yet.
const LINGER: Duration = Duration::from_secs(5);
const LINGER_BYTES: usize = 64 << 20;

/// A client's socket. Call its shutdown before dropping it.
pub(super) struct RequestGate<S> {
    stream: S,
    line: Arc<ConnectionState>,
    waits: Waits,
    framing: ConnectionFraming,
    /// Bytes that arrived and did not pass yet: `vetted` valid bytes, then an incomplete head.
    held: BytesMut,
    vetted: usize,
    /// The error after which nothing passes.
    refusal: Option<ApiError>,
    /// Whether a response may be unflushed.
    is_unflushed: bool,
    /// Whether hyper has read while a response was unflushed.
    was_read: bool,
    waiting: Option<GateWait>,
    timer: Pin<Box<Sleep>>,
    closing: GateClosing,
}

/// Timeouts of clients.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waits {
    /// The timeout of a request's head.
    pub head: Duration,
    /// The timeout of an idle connection.
    pub idle: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GateWait {
    Head,
    Idle,
}

enum GateClosing {
    NotYet,
    Refusing(Bytes),
    Ending,
    Lingering { bytes_left: usize },
}

impl<S> RequestGate<S> {
    /// Makes a gate; `read` was already read from the stream. `until` is the deadline of the first head.
    pub(super) fn new(
        stream: S,
        line: Arc<ConnectionState>,
        waits: Waits,
        read: BytesMut,
        until: Instant,
    ) -> Self {
        let mut gate = Self {
            stream,
            line,
            waits,
            framing: ConnectionFraming::Head,
            held: read,
            vetted: 0,
            refusal: None,
            is_unflushed: false,
            was_read: false,
            waiting: Some(GateWait::Head),
            timer: Box::pin(tokio::time::sleep_until(until)),
            closing: GateClosing::NotYet,
        };
        let followed = gate.framing.follow(&gate.held);
        gate.vetted = followed.bytes;
        gate.note(followed);
        gate
    }

    /// Makes a gate that rejects all requests with this error.
    pub(super) fn refusing(
        stream: S,
        line: Arc<ConnectionState>,
        waits: Waits,
        error: ApiError,
    ) -> Self {
        let until = Instant::now() + waits.head;
        Self {
            refusal: Some(error),
            ..Self::new(stream, line, waits, BytesMut::new(), until)
        }
    }

    /// Returns whether every request that passed is answered, and the responses are flushed.
    fn is_at_rest(&self) -> bool {
        !self.is_unflushed && self.line.is_answered()
    }

    /// Waits for a head while no request is in progress; ready at the timeout.
    fn poll_wait(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.line.is_evicted(context.waker()) {
            return Poll::Ready(());
        }
        let waiting = match self.held.is_empty() && self.line.has_served() {
            true => GateWait::Idle,
            false => GateWait::Head,
        };
        if self.waiting != Some(waiting) {
            self.waiting = Some(waiting);
            let wait = match waiting {
                GateWait::Head => self.waits.head,
                GateWait::Idle => self.waits.idle,
            };
            let until = (Instant::now() + wait).min(self.line.expires_at);
            self.timer.as_mut().reset(until);
        }
        ready!(self.timer.as_mut().poll(context));
        if !self.held.is_empty() {
            self.refusal = Some(ApiError::new(
                ErrorCode::RequestTimeout,
                "The request's head took too long to arrive.",
            ));
        }
        Poll::Ready(())
    }

    /// Validates the bytes that were read into `buffer` after `before`, and takes back those that may not pass yet.
    fn judge(&mut self, buffer: &mut ReadBuf<'_>, before: usize) {
        let is_first = self.held.is_empty();
        let followed = if is_first {
            self.framing.follow(&buffer.filled()[before..])
        } else {
            self.held.extend_from_slice(&buffer.filled()[before..]);
            self.framing.follow(&self.held)
        };
        if is_first {
            let passed = before + followed.bytes;
            self.held.extend_from_slice(&buffer.filled()[passed..]);
            buffer.set_filled(passed);
        } else {
            self.vetted = followed.bytes;
            buffer.set_filled(before);
        }
        self.note(followed);
    }

    fn note(&mut self, followed: FramingProgress) {
        self.refusal = followed.refusal;
        if followed.heads > 0 {
            self.line.begin(followed.heads);
            self.is_unflushed = true;
            self.waiting = None;
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for RequestGate<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.was_read |= this.is_unflushed;
        loop {
            if this.vetted > 0 {
                let bytes = this.vetted.min(buffer.remaining());
                buffer.put_slice(&this.held[..bytes]);
                this.held.advance(bytes);
                this.vetted -= bytes;
                return Poll::Ready(Ok(()));
            }
            let is_at_rest = this.is_at_rest();
            if this.refusal.is_some() {
                // A request in progress reads again when it is done.
                return if is_at_rest {
                    Poll::Ready(Ok(()))
                } else {
                    Poll::Pending
                };
            }
            let before = buffer.filled().len();
            match Pin::new(&mut this.stream).poll_read(context, buffer) {
                Poll::Ready(read) => read?,
                Poll::Pending => {
                    let waits = is_at_rest && this.framing == ConnectionFraming::Head;
                    return match waits && this.poll_wait(context).is_ready() {
                        true => Poll::Ready(Ok(())),
                        false => Poll::Pending,
                    };
                }
            }
            if buffer.filled().len() == before {
                return Poll::Ready(Ok(()));
            }
            this.judge(buffer, before);
            if buffer.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for RequestGate<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper flushes after it has written all its data.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_flush(context))?;
        if this.is_unflushed && this.line.is_answered() {
            this.is_unflushed = false;
            this.line.rest();
            if std::mem::take(&mut this.was_read) {
                // The reader waits for this flush.
                context.waker().wake_by_ref();
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let mut stream = Pin::new(&mut this.stream);
        loop {
            match &mut this.closing {
                GateClosing::NotYet => {
                    this.closing = match &this.refusal {
                        Some(error) => GateClosing::Refusing(written(error)),
                        None => GateClosing::Ending,
                    };
                }
                GateClosing::Refusing(bytes) => {
                    while bytes.has_remaining() {
                        let written = ready!(stream.as_mut().poll_write(context, bytes))?;
                        if written == 0 {
                            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                        }
                        bytes.advance(written);
                    }
                    ready!(stream.as_mut().poll_flush(context))?;
                    this.closing = GateClosing::Ending;
                }
                GateClosing::Ending => {
                    ready!(stream.as_mut().poll_shutdown(context))?;
                    let has_read_all =
                        this.framing == ConnectionFraming::Head && this.held.is_empty();
                    if has_read_all && this.refusal.is_none() {
                        return Poll::Ready(Ok(()));
                    }
                    this.timer.as_mut().reset(Instant::now() + LINGER);
                    this.closing = GateClosing::Lingering {
                        bytes_left: LINGER_BYTES,
                    };
                }
                GateClosing::Lingering { bytes_left } => {
                    let is_over = this.line.is_evicted(context.waker())
                        || this.timer.as_mut().poll(context).is_ready();
                    if is_over || *bytes_left == 0 {
                        return Poll::Ready(Ok(()));
                    }
                    let mut discarded = [std::mem::MaybeUninit::uninit(); HEAD_BYTES];
                    let mut discarded = ReadBuf::uninit(&mut discarded);
                    let read = ready!(stream.as_mut().poll_read(context, &mut discarded));
                    let bytes = discarded.filled().len();
                    // The client has closed the connection, or it is broken.
                    if read.is_err() || bytes == 0 {
                        return Poll::Ready(Ok(()));
                    }
                    *bytes_left = bytes_left.saturating_sub(bytes);
                }
            }
        }
    }
}

/// Returns an error as bytes, for a connection without a valid request.
fn written(error: &ApiError) -> Bytes {
    let request_id = ids::request_id();
    let status = error.status();
    let (code, route) = (error.code(), None::<&str>);
    tracing::debug!(route, status = status.as_u16(), code, %request_id, "refused a connection's bytes");
    let body = error.body(&request_id).to_string();
    let retry_after = match status {
        StatusCode::TOO_MANY_REQUESTS => "retry-after: 1\r\n",
        _ => "",
    };
    let date = httpdate::fmt_http_date(SystemTime::now());
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ndate: {date}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         {retry_after}x-request-id: {request_id}\r\nconnection: close\r\n\r\n{body}"
    )
    .into()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::connections::ListenerConnections;
    use super::*;

    const REQUEST: &[u8] = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n";

    /// Makes a gate whose connection is chosen to make way, and the client's end.
    fn evicted() -> (
        RequestGate<tokio::io::DuplexStream>,
        tokio::io::DuplexStream,
        super::super::connections::ConnectionEntry,
    ) {
        let hour = Duration::from_secs(3_600);
        let connections = Arc::new(ListenerConnections::new(1, hour, &[]));
        let entry = connections.enter(Ipv4Addr::LOCALHOST.into()).unwrap();
        let waits = Waits {
            head: hour,
            idle: hour,
        };
        let (client, server) = tokio::io::duplex(1 << 10);
        let line = entry.line().clone();
        let gate = RequestGate::new(server, line, waits, BytesMut::new(), Instant::now() + hour);
        entry.line().evict();
        (gate, client, entry)
    }

    #[tokio::test]
    async fn a_request_that_has_arrived_is_read_though_its_connection_makes_way() {
        let (mut gate, mut client, entry) = evicted();
        client.write_all(REQUEST).await.unwrap();
        let mut read = vec![0; REQUEST.len()];
        gate.read_exact(&mut read).await.unwrap();
        assert_eq!(read, REQUEST);
        // The connection closes after the response.
        entry.line().end();
        gate.flush().await.unwrap();
        assert_eq!(gate.read(&mut read).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_connection_on_which_nothing_has_arrived_makes_way_at_once() {
        let (mut gate, _client, _entry) = evicted();
        assert_eq!(gate.read(&mut [0; 8]).await.unwrap(), 0);
    }
}
