//! What stands between an exchange and its client: order of events, the client's dialect, backpressure,
//! and what happens when the client hangs up.
//!
//! The exchange runs in a task of its own, which outlives the client's connection. Toward the client
//! there is a channel: one message for a plain answer, pieces for a streamed one. A closed channel means
//! that the client is gone; the answer is then read on for a while, and discarded, so that the
//! upstream's count of tokens can still arrive.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderValue, header};
use http_body::Frame;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::dialect::openai::{AnswerHead, Chunks, Completion};
use super::exchange::ExchangeError;
use super::sequence::{OutOfOrder, Sequence};
use super::usage::TokenCounts;
use crate::error::ApiError;
use crate::plugins::bindings::chat::Event;

/// Pieces of a stream that wait for a client to read them. A piece is at most what one call of an
/// adapter yields.
const WAITING_PIECES: usize = 4;

/// How an answer reaches the client that asked for it.
pub struct Relay {
    sequence: Sequence,
    client: Client,
    hung_up_at: Option<Instant>,
    drain: Duration,
}

/// The client's end: what the handler waits for.
pub struct Reply {
    begun: oneshot::Receiver<Result<Bytes, ApiError>>,
    pieces: Option<mpsc::Receiver<Bytes>>,
}

enum Client {
    Plain {
        head: AnswerHead,
        answer: Completion,
        reply: oneshot::Sender<Result<Bytes, ApiError>>,
    },
    Stream {
        chunks: Chunks,
        /// Until the first piece: the status line is not sent before there is an answer.
        begun: Option<oneshot::Sender<Result<Bytes, ApiError>>>,
        pieces: mpsc::Sender<Bytes>,
    },
}

impl Relay {
    /// For a client that wants the whole answer at once.
    pub fn plain(head: AnswerHead, drain: Duration) -> (Self, Reply) {
        let (reply, begun) = oneshot::channel();
        let client = Client::Plain {
            head,
            answer: Completion::default(),
            reply,
        };
        (
            Self::new(client, drain),
            Reply {
                begun,
                pieces: None,
            },
        )
    }

    /// For a client that wants the answer as it is made.
    pub fn stream(head: AnswerHead, include_usage: bool, drain: Duration) -> (Self, Reply) {
        let (begun_sender, begun) = oneshot::channel();
        let (sender, pieces) = mpsc::channel(WAITING_PIECES);
        let client = Client::Stream {
            chunks: Chunks::new(&head, include_usage),
            begun: Some(begun_sender),
            pieces: sender,
        };
        let pieces = Some(pieces);
        (Self::new(client, drain), Reply { begun, pieces })
    }

    fn new(client: Client, drain: Duration) -> Self {
        Self {
            sequence: Sequence::default(),
            client,
            hung_up_at: None,
            drain,
        }
    }

    /// Whether the client wants the answer as it is made.
    pub fn is_stream(&self) -> bool {
        matches!(self.client, Client::Stream { .. })
    }

    /// What is known of the answer so far.
    pub fn sequence(&self) -> &Sequence {
        &self.sequence
    }

    /// Whether the client has been told anything: from then on there is no second attempt.
    pub fn has_begun(&self) -> bool {
        let told = matches!(self.client, Client::Stream { begun: None, .. });
        told || self.sequence.any_output()
    }

    /// Forgets an attempt that yielded nothing, for the next one.
    pub fn restart(&mut self) {
        self.sequence = Sequence::default();
        if let Client::Plain { answer, .. } = &mut self.client {
            *answer = Completion::default();
        }
    }

    /// Takes the next events. Waits while a streaming client does not read.
    pub async fn events(&mut self, events: Vec<Event>) -> Result<(), ExchangeError> {
        for event in &events {
            self.sequence.follow(event)?;
        }
        match &mut self.client {
            Client::Plain { answer, .. } => {
                for event in events {
                    answer.push(event);
                }
            }
            Client::Stream { chunks, .. } => {
                let mut piece = Vec::new();
                for event in &events {
                    chunks.event(event, &mut piece);
                }
                self.send(piece).await;
            }
        }
        Ok(())
    }

    /// Checks that the answer is complete.
    pub fn end(&self) -> Result<(), OutOfOrder> {
        self.sequence.end()
    }

    /// Hands over the rest of the answer, or all of it.
    pub async fn finish(mut self, tokens: &TokenCounts) {
        match &mut self.client {
            Client::Plain { .. } => {}
            Client::Stream { chunks, .. } => {
                let mut piece = Vec::new();
                chunks.finish(tokens, &mut piece);
                self.send(piece).await;
            }
        }
        if let Client::Plain {
            head,
            answer,
            reply,
        } = self.client
        {
            // Nobody listens if the client is gone, and that is all right.
            let _ = reply.send(Ok(answer.into_body(&head, tokens).into()));
        }
    }

    /// Tells the client of a failure: as the response, or as the stream's last event.
    pub async fn fail(mut self, error: ApiError, request_id: &str) {
        match &mut self.client {
            Client::Stream { begun: None, .. } => {
                let mut piece = Vec::new();
                Chunks::error(&error, request_id, &mut piece);
                self.send(piece).await;
            }
            Client::Stream { begun, .. } => {
                if let Some(begun) = begun.take() {
                    let _ = begun.send(Err(error));
                }
            }
            Client::Plain { .. } => {
                if let Client::Plain { reply, .. } = self.client {
                    let _ = reply.send(Err(error));
                }
            }
        }
    }

    /// Completes when the client hangs up; never again after that.
    pub async fn hung_up(&mut self) {
        if self.hung_up_at.is_some() {
            return std::future::pending().await;
        }
        match &mut self.client {
            Client::Plain { reply, .. } => reply.closed().await,
            Client::Stream {
                begun: Some(begun), ..
            } => begun.closed().await,
            Client::Stream { pieces, .. } => pieces.closed().await,
        }
        self.hung_up_at = Some(Instant::now());
    }

    /// When to give up reading for a client that is gone.
    pub fn abandoned_at(&self) -> Option<Instant> {
        self.hung_up_at.map(|at| at + self.drain)
    }

    async fn send(&mut self, piece: Vec<u8>) {
        let Client::Stream { begun, pieces, .. } = &mut self.client else {
            return;
        };
        if piece.is_empty() || self.hung_up_at.is_some() {
            return;
        }
        if let Some(begun) = begun.take() {
            let _ = begun.send(Ok(Bytes::new()));
        }
        if pieces.send(piece.into()).await.is_err() {
            self.hung_up_at = Some(Instant::now());
        }
    }
}

impl Reply {
    /// Waits until the answer begins and makes the response of it.
    pub async fn response(self) -> Result<Response, ApiError> {
        // The sender is dropped without a word only if the task panicked.
        let body = self.begun.await.map_err(|_| ApiError::internal())??;
        let Some(pieces) = self.pieces else {
            let json = HeaderValue::from_static("application/json");
            return Ok(([(header::CONTENT_TYPE, json)], body).into_response());
        };
        let headers = [
            (
                header::CONTENT_TYPE,
                HeaderValue::from_static("text/event-stream"),
            ),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            // Asks nginx and its kin not to collect the stream.
            (
                header::HeaderName::from_static("x-accel-buffering"),
                HeaderValue::from_static("no"),
            ),
        ];
        Ok((headers, Body::new(Pieces(pieces))).into_response())
    }
}

/// A response body that ends when the task has dropped its sender.
struct Pieces(mpsc::Receiver<Bytes>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0
            .poll_recv(context)
            .map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }
}
