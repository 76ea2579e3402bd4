//! The write timeout: how many of the waiting bytes a client must read, and in which time.
//!
//! Reading *some* bytes is not enough: a client that reads one byte now and then would occupy its response's memory
//! indefinitely.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Bytes that a client must read within the write timeout while at least as many wait.
const LEAST_BYTES: usize = 64 << 10;

/// A client's progress in the current write timeout, while bytes wait for it.
pub(super) struct WriteProgress {
    timeout: Duration,
    ends: Option<Pin<Box<Sleep>>>,
    /// Bytes that the client had read at the window's start; `None` while no bytes wait.
    began_at: Option<usize>,
}

impl WriteProgress {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            ends: None,
            began_at: None,
        }
    }

    /// Bytes wait for a client that has read `taken` bytes in total: ready once its progress is too slow.
    pub(super) fn poll_wait(&mut self, context: &mut Context<'_>, taken: usize) -> Poll<()> {
        let ends = self
            .ends
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(self.timeout)));
        loop {
            if let Some(before) = self.began_at {
                ready!(ends.as_mut().poll(context));
                if taken - before < LEAST_BYTES {
                    return Poll::Ready(());
                }
            }
            self.began_at = Some(taken);
            ends.as_mut().reset(Instant::now() + self.timeout);
        }
    }

    /// No bytes wait any more.
    pub(super) fn end(&mut self) {
        self.began_at = None;
    }
}

/// A stream whose writes fail once its client reads too slowly.
pub(super) struct WriteWindow<S> {
    stream: S,
    taken: usize,
    window: WriteProgress,
}

impl<S> WriteWindow<S> {
    pub(super) fn new(stream: S, timeout: Duration) -> Self {
        Self {
            stream,
            taken: 0,
            window: WriteProgress::new(timeout),
        }
    }

    fn note(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(bytes)) => self.taken += bytes,
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                ready!(self.window.poll_wait(context, self.taken));
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteWindow<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteWindow<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.note(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.note(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper flushes after it has written all its data.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.window.end();
        Pin::new(&mut this.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(300);

    /// Interval between a client's reads.
    const PAUSE: Duration = Duration::from_millis(10);

    /// Writes without end to a client that reads this many bytes at a time; returns the time until the writes fail, up
    /// to five timeouts.
    async fn written_for(bytes: usize) -> Duration {
        let (mut client, server) = tokio::io::duplex(8 << 10);
        tokio::spawn(async move {
            let mut buffer = vec![0; bytes];
            while client.read_exact(&mut buffer).await.is_ok() {
                tokio::time::sleep(PAUSE).await;
            }
        });
        let mut server = WriteWindow::new(server, TIMEOUT);
        let began = Instant::now();
        let writing = async { while server.write_all(&[0; 1 << 10]).await.is_ok() {} };
        let _ = tokio::time::timeout(5 * TIMEOUT, writing).await;
        began.elapsed()
    }

    #[tokio::test]
    async fn a_client_that_takes_little_of_what_waits_is_given_up() {
        let little = written_for(512).await;
        assert!(little >= TIMEOUT && little < 4 * TIMEOUT, "{little:?}");
        let enough = written_for(8 << 10).await;
        assert!(enough >= 5 * TIMEOUT, "{enough:?}");
    }

    #[tokio::test]
    async fn a_client_that_takes_all_that_there_is_may_be_as_slow_as_that() {
        let (mut client, server) = tokio::io::duplex(1 << 10);
        let reading = tokio::spawn(async move {
            let mut buffer = [0; 1 << 10];
            for _ in 0..8 {
                tokio::time::sleep(TIMEOUT / 3).await;
                client.read_exact(&mut buffer).await.unwrap();
            }
        });
        let mut server = WriteWindow::new(server, TIMEOUT);
        for _ in 0..8 {
            server.write_all(&[0; 1 << 10]).await.unwrap();
            server.flush().await.unwrap();
        }
        reading.await.unwrap();
    }
}
