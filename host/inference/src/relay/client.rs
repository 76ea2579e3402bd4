//! The client's side of a response: a plain response is one message, a stream is pieces.

use std::convert::Infallible;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use weir_dialects::{AnswerHead, AnswerStream, BilledUsage, Dialect, PlainResponse};
use weir_errors::ApiError;
use weir_request::context::RequestContext;
use weir_sandbox::adapter::bindings::chat::Event;
use weir_upstream::error::ExchangeError;

use crate::reply::{Reply, ResponseStart, StreamPiece, StreamReply};

/// The maximum unread pieces of a stream. A piece is the output of one adapter call: some hundred KiB, which every
/// concurrent request's client may leave unread.
const WAITING_PIECES: usize = 1;

/// The time for which a failure waits for the client to read earlier pieces.
const FAILURE_TIMEOUT: Duration = Duration::from_secs(1);

/// The writer of a response, with the channel to its client. A closed channel means that the client has disconnected.
pub(super) enum Client {
    Plain {
        answer: PlainResponse,
        reply: oneshot::Sender<Result<ResponseStart, ApiError>>,
    },
    Stream {
        chunks: AnswerStream,
        /// Present until the first piece: the status line waits for the start of the response.
        begun: Option<oneshot::Sender<Result<ResponseStart, ApiError>>>,
        pieces: mpsc::Sender<StreamPiece>,
        /// The channel is closed when the response is dropped. The pieces' own channel signals that only to a future,
        /// which each wait would have to create anew.
        gone: oneshot::Sender<Infallible>,
    },
}

/// A piece that waits for a client to read.
pub(super) struct WaitingPiece {
    pub(super) pieces: mpsc::Sender<StreamPiece>,
    pub(super) piece: StreamPiece,
}

impl Client {
    /// Returns the writer of a plain response in this dialect, and the reply.
    pub(super) fn plain(dialect: &Dialect, head: AnswerHead) -> (Self, Reply) {
        let (reply, begun) = oneshot::channel();
        let client = Self::Plain {
            answer: dialect.whole_answer(head),
            reply,
        };
        (client, Reply::Whole(begun, dialect.plain_type()))
    }

    /// Returns the writer of a stream in this dialect, and the reply.
    pub(super) fn stream(dialect: &Dialect, head: AnswerHead) -> (Self, Reply) {
        let (begun_sender, begun) = oneshot::channel();
        let (sender, pieces) = mpsc::channel(WAITING_PIECES);
        let (gone, here) = oneshot::channel();
        let client = Self::Stream {
            chunks: dialect.answer_stream(head.clone()),
            begun: Some(begun_sender),
            pieces: sender,
            gone,
        };
        let stream = StreamReply {
            begun,
            pieces,
            here,
            dialect: dialect.clone(),
            head,
        };
        (client, Reply::Stream(stream))
    }

    pub(super) fn is_stream(&self) -> bool {
        matches!(self, Self::Stream { .. })
    }

    /// Whether the client has the start of a stream.
    pub(super) fn has_begun(&self) -> bool {
        matches!(self, Self::Stream { begun: None, .. })
    }

    pub(super) fn answered_by(&mut self, provider: &str) {
        match self {
            Self::Plain { answer, .. } => answer.answered_by(provider),
            Self::Stream { chunks, .. } => chunks.answered_by(provider),
        }
    }

    /// Discards the output of an attempt.
    pub(super) fn clear(&mut self) {
        if let Self::Plain { answer, .. } = self {
            answer.clear();
        }
    }

    /// Writes events. Returns the piece of a stream; a plain response has none.
    pub(super) fn write(&mut self, events: Vec<Event>) -> Vec<u8> {
        let mut piece = Vec::new();
        match self {
            Self::Plain { answer, .. } => answer.push(events),
            Self::Stream { chunks, .. } => chunks.events(&events, &mut piece),
        }
        piece
    }

    /// Returns the last piece of a complete stream.
    pub(super) fn write_end(&mut self, billed: &BilledUsage) -> Vec<u8> {
        let mut piece = Vec::new();
        if let Self::Stream { chunks, .. } = self {
            chunks.finish(billed, &mut piece);
        }
        piece
    }

    /// Checks that a plain response is complete. Returns whether the upstream has sent more than the request asked for.
    pub(super) fn check(&self) -> Result<bool, ExchangeError> {
        match self {
            Self::Plain { answer, .. } => {
                answer.check()?;
                Ok(answer.has_surplus())
            }
            Self::Stream { .. } => Ok(false),
        }
    }

    /// Returns the body of a plain response.
    pub(super) fn body(&self, billed: &BilledUsage) -> Option<Vec<u8>> {
        match self {
            Self::Plain { answer, .. } => Some(answer.clone().into_body(billed)),
            Self::Stream { .. } => None,
        }
    }

    /// Whether the client has disconnected.
    pub(super) fn is_gone(&self) -> bool {
        match self {
            Self::Plain { reply, .. } => reply.is_closed(),
            Self::Stream { gone, .. } => gone.is_closed(),
        }
    }

    /// Completes when the client disconnects.
    pub(super) fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Plain { reply, .. } => reply.poll_closed(context),
            Self::Stream { gone, .. } => gone.poll_closed(context),
        }
    }

    /// Sends a piece of a stream, after the start with these ignored fields. Returns whether the client is there, or the
    /// piece if it must wait for the client to read.
    pub(super) fn send(
        &mut self,
        piece: Vec<u8>,
        ignored: &mut Vec<String>,
    ) -> Result<bool, WaitingPiece> {
        let Self::Stream { begun, pieces, .. } = self else {
            return Ok(true);
        };
        if let Some(begun) = begun.take() {
            let _ = begun.send(Ok(ResponseStart {
                ignored: std::mem::take(ignored),
                ..ResponseStart::default()
            }));
        }
        match pieces.try_send(StreamPiece::Bytes(piece.into())) {
            Ok(()) => Ok(true),
            Err(TrySendError::Closed(_)) => Ok(false),
            Err(TrySendError::Full(piece)) => Err(WaitingPiece {
                pieces: pieces.clone(),
                piece,
            }),
        }
    }

    /// Marks a stream as complete.
    pub(super) async fn end(&self) {
        if let Self::Stream { pieces, .. } = self {
            end(pieces).await;
        }
    }

    /// Sends an error: as the response, or as the stream's last event.
    pub(super) async fn tell(self, error: ApiError, context: &RequestContext) {
        match self {
            Self::Plain { reply, .. }
            | Self::Stream {
                begun: Some(reply), ..
            } => {
                let _ = reply.send(Err(error));
            }
            Self::Stream {
                mut chunks, pieces, ..
            } => {
                context.note_error(&error);
                let mut piece = Vec::new();
                chunks.error(&context.error_body(&error), &mut piece);
                if piece.is_empty() {
                    // The stream has no place for an error: the connection breaks.
                    return;
                }
                // The deadline itself may have failed, so the send has its own short timeout.
                let sent = tokio::time::timeout(FAILURE_TIMEOUT, async {
                    if pieces.send(StreamPiece::Bytes(piece.into())).await.is_ok() {
                        end(&pieces).await;
                    }
                });
                let _ = sent.await;
            }
        }
    }
}

async fn end(pieces: &mpsc::Sender<StreamPiece>) {
    let _ = pieces.send(StreamPiece::End).await;
}
