//! Reused connections to upstreams, and the check that they are still open.
//!
//! An upstream closes idle connections. A request written to a closed connection is lost, but must not be sent again,
//! since the loss cannot be proven. The connection is therefore checked before each write of a request, at the socket
//! itself: the runtime's state may be older.
//!
//! **Invariant:** no byte was written of a request that [was not sent](is_unsent).

use std::error::Error;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tower_service::Service;

/// A connector whose connections are checked before reuse.
#[derive(Debug, Clone)]
pub(super) struct ReusableConnector(pub HttpConnector);

/// A connection to an upstream.
#[derive(Debug)]
pub(super) struct Reusable {
    stream: TcpStream,
    /// All written bytes are flushed.
    is_flushed: bool,
    /// A response has followed them: the next write begins another request.
    is_answered: bool,
}

/// The connection was closed before any byte of the request was written.
#[derive(Debug, thiserror::Error)]
#[error("the connection was closed while it was idle")]
struct IdleConnectionClosed;

/// Returns whether an error shows that no byte of the request was sent, although there was a connection.
pub(super) fn is_unsent(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let io = error.downcast_ref::<io::Error>();
        let inner = io.and_then(io::Error::get_ref);
        if inner.is_some_and(|inner| inner.is::<IdleConnectionClosed>()) {
            return true;
        }
        cause = error.source();
    }
    false
}

impl Service<Uri> for ReusableConnector {
    type Response = TokioIo<Reusable>;
    type Error = <HttpConnector as Service<Uri>>::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let connecting = self.0.call(to);
        Box::pin(async move {
            Ok(TokioIo::new(Reusable {
                stream: connecting.await?.into_inner(),
                is_flushed: false,
                is_answered: false,
            }))
        })
    }
}

impl Reusable {
    /// Fails if this write begins another request and the peer has sent anything since the last response: most likely
    /// a close, and never anything of use.
    fn look(&mut self) -> io::Result<()> {
        let begins = self.is_flushed && self.is_answered;
        (self.is_flushed, self.is_answered) = (false, false);
        if !begins {
            return Ok(());
        }
        match SockRef::from(&self.stream).peek(&mut [MaybeUninit::uninit()]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            _ => Err(io::Error::other(IdleConnectionClosed)),
        }
    }
}

impl Connection for Reusable {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

impl AsyncRead for Reusable {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, buffer);
        this.is_answered |= this.is_flushed && buffer.filled().len() > before;
        read
    }
}

impl AsyncWrite for Reusable {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.look()?;
        Pin::new(&mut this.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.look()?;
        Pin::new(&mut this.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(context);
        this.is_flushed |= flushed.is_ready();
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
