//! Bodies of requests and responses, as a connection tracks them: the unread rest of a request's body, and the end of a
//! response.

use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::connection_slots::ExtraSlot;
use super::connections::ConnectionState;

/// Time and bytes to read the body of a request that was rejected unread: the connection can then be used again.
const QUICK: Duration = Duration::from_millis(50);
const QUICK_BYTES: usize = 64 << 10;

/// The body of a request. Dropping it returns its unread rest to the connection.
pub(super) struct RequestBody {
    body: Option<Incoming>,
    line: Arc<ConnectionState>,
}

/// The body of a response: dropping it marks the request as answered.
pub(super) struct TrackedBody<B> {
    body: B,
    line: Arc<ConnectionState>,
    _extra: ExtraSlot,
}

impl RequestBody {
    pub(super) fn new(body: Incoming, line: Arc<ConnectionState>) -> Self {
        Self {
            body: Some(body),
            line,
        }
    }
}

impl<B> TrackedBody<B> {
    pub(super) fn new(body: B, line: Arc<ConnectionState>, extra: ExtraSlot) -> Self {
        Self {
            body,
            line,
            _extra: extra,
        }
    }
}

/// Returns whether a request was read to its end, by its handler or now. A client that waits for `100 Continue` has not
/// sent its body.
pub(super) async fn is_read(line: &ConnectionState, expects_word: bool) -> bool {
    let unread = line
        .unread
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let Some(mut body) = unread else {
        return true;
    };
    if expects_word || body.size_hint().lower() > QUICK_BYTES as u64 {
        return false;
    }
    let all = async {
        let mut left = QUICK_BYTES;
        while let Some(frame) = body.frame().await {
            let bytes = frame.ok()?.data_ref().map_or(0, Bytes::len);
            left = left.checked_sub(bytes)?;
        }
        Some(())
    };
    matches!(tokio::time::timeout(QUICK, all).await, Ok(Some(())))
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else {
            return Poll::Ready(None);
        };
        let frame = std::task::ready!(Pin::new(body).poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            // The body is complete or broken: no more data follows.
            this.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let unread = self.body.take().filter(|body| !body.is_end_stream());
        if unread.is_some() {
            let mut place = self
                .line
                .unread
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *place = unread;
        }
    }
}

impl<B: Body + Unpin> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for TrackedBody<B> {
    fn drop(&mut self) {
        self.line.end();
    }
}
