//! Why an attempt failed, and what its client is told.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use weir_errors::{ApiError, ErrorCode};
use weir_sandbox::adapter::CallError;
use weir_sandbox::adapter::bindings::adapter::{Failure, FailureKind};
use weir_sandbox::{ConfigureError, GuestError, printable};

use crate::destination::DestinationError;
use crate::sequence::OutOfOrder;

/// Requests that an adapter may send in one exchange.
pub const MAX_SENDS: u32 = 4;

/// Steps other than requests that it may take.
pub const MAX_OTHER_STEPS: u32 = 64;

/// How long all its waits may take together.
pub const MAX_WAITS: Duration = Duration::from_secs(30);

/// Bytes of a body that a component can serve within its limits many times over, whatever they say.
pub const LARGE_REQUEST_BYTES: usize = 64 << 10;

/// Bytes of an upstream's code.
const MAX_CODE_BYTES: usize = 64;

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The adapter says why.
    #[error("{}", describe_failure(.0))]
    Failure(Failure),
    /// The adapter itself failed.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// The adapter could not translate a request of this size within its limits: nothing was sent.
    #[error("the request is more than the adapter can translate: {0}")]
    TooLargeToTranslate(GuestError),
    /// A filter could not look at a request of this size within its limits.
    #[error("the request is more than a filter can look at")]
    TooLargeToFilter,
    /// The filter in this slot failed.
    #[error("the filter {0} failed")]
    Filter(Arc<str>),
    /// The adapter wanted to send what it may not.
    #[error("the adapter's request is refused: {0}")]
    Destination(#[from] DestinationError),
    /// The adapter's events make no answer.
    #[error("the adapter's events make no answer: {0}")]
    OutOfOrder(OutOfOrder),
    /// The adapter went on and on.
    #[error("the adapter took more than {MAX_SENDS} requests or {MAX_OTHER_STEPS} other steps")]
    TooManySteps,
    /// The adapter wanted to wait on and on.
    #[error("the adapter asked for waits of more than {} s", MAX_WAITS.as_secs())]
    WaitedTooLong,
    /// So many requests are under way to the upstream that no more fit: nothing was sent.
    #[error("too many requests are under way to the upstream, or through its adapter")]
    NoPlace,
    /// It has failed of late, and is not asked for so long yet: nothing was sent.
    #[error("the upstream is left alone, since it has failed")]
    LeftAlone(Duration),
    /// Nothing serves in the upstream's slot: nothing was sent.
    #[error("no adapter is in service")]
    NoAdapter,
    /// The adapter refuses the provider's options, which it did not when they were configured: nothing was sent.
    #[error("the adapter does not take its options: {0}")]
    Misconfigured(ConfigureError),
    /// No connection: nothing was sent.
    #[error("the upstream cannot be reached")]
    Connect,
    /// The connection broke after the request was sent.
    #[error("the upstream broke off")]
    BrokenOff,
    /// The answer is compressed, or otherwise encoded.
    #[error("the upstream's answer has a Content-Encoding, and weir asked for none")]
    Encoded,
    /// The upstream took too long.
    #[error("the upstream took too long: {0}")]
    TimedOut(Phase),
    /// The answer is larger than weir takes, or than the output limit allows.
    #[error("the upstream's answer is too large")]
    TooLarge,
    /// The answer has used more than it may: it ends here, and is none the worse.
    #[error("the answer has used more than it may")]
    Spent,
    /// The client hung up, and the upstream did not finish within the drain.
    #[error("the client hung up")]
    Abandoned,
    /// The gateway stops.
    #[error("the gateway is shutting down")]
    ShuttingDown,
}

/// What was being waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The head of the answer.
    FirstByte,
    /// The first of the answer, while another upstream could be asked.
    FirstToken,
    /// The next piece of the answer.
    Idle,
    /// The whole request.
    Total,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::FirstByte => "no answer began",
            Self::FirstToken => "nothing of an answer came, and the next one is asked",
            Self::Idle => "the answer paused",
            Self::Total => "the request's time was up",
        })
    }
}

impl From<CallError> for ExchangeError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Guest(error) => Self::Guest(error),
            CallError::Failure(failure) => Self::Failure(failure),
        }
    }
}

impl From<OutOfOrder> for ExchangeError {
    fn from(error: OutOfOrder) -> Self {
        if error == OutOfOrder::TOO_MUCH {
            Self::TooLarge
        } else {
            Self::OutOfOrder(error)
        }
    }
}

impl ExchangeError {
    /// Whether trying again is safe: nothing reached the upstream, it said itself that it did not take the request, or
    /// nothing of an answer had come when it was cut off for the next one.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Connect => Retry::Again(Duration::ZERO),
            Self::Misconfigured(_) | Self::TimedOut(Phase::FirstToken) => Retry::Elsewhere,
            Self::Failure(failure) => match failure.kind {
                FailureKind::Unavailable | FailureKind::RateLimited => {
                    let pause_ms = failure.retry_after_ms.unwrap_or(0);
                    Retry::Again(Duration::from_millis(pause_ms.into()))
                }
                FailureKind::ModelNotFound => Retry::Elsewhere,
                _ => Retry::Never,
            },
            _ => Retry::Never,
        }
    }

    /// What kind of error it is, in a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Failure(failure) => match failure.kind {
                FailureKind::Unavailable => "unavailable",
                FailureKind::Malformed => "malformed",
                FailureKind::RateLimited => "rate_limited",
                FailureKind::Rejected => "rejected",
                FailureKind::ModelNotFound => "model_not_found",
                FailureKind::ContextLength => "context_length",
                FailureKind::Filtered => "filtered",
                FailureKind::Unsupported => "unsupported",
                FailureKind::Unauthorized => "unauthorized",
            },
            Self::Guest(_)
            | Self::Destination(_)
            | Self::OutOfOrder(_)
            | Self::TooManySteps
            | Self::WaitedTooLong
            | Self::Misconfigured(_) => "adapter_failed",
            Self::TooLargeToTranslate(_) | Self::TooLargeToFilter => "too_large_to_translate",
            Self::Filter(_) => "filter_failed",
            Self::NoPlace => "busy",
            Self::LeftAlone(_) => "left_alone",
            Self::NoAdapter => "no_adapter",
            Self::Connect => "connect",
            Self::BrokenOff => "broken_off",
            Self::Encoded => "encoded",
            Self::TimedOut(Phase::FirstByte) => "first_byte_timeout",
            Self::TimedOut(Phase::FirstToken) => "first_token_timeout",
            Self::TimedOut(Phase::Idle) => "idle_timeout",
            Self::TimedOut(Phase::Total) => "timeout",
            Self::TooLarge | Self::Spent => "too_large",
            Self::Abandoned => "hung_up",
            Self::ShuttingDown => "shutting_down",
        }
    }

    /// Whether the answer was cut off while the upstream may have been at work: it may ask to be paid for that.
    pub fn is_cut_off(&self) -> bool {
        matches!(
            self,
            Self::Abandoned | Self::TimedOut(_) | Self::BrokenOff | Self::ShuttingDown
        )
    }

    /// Whether the upstream was meant to be asked at all.
    pub fn was_attempted(&self) -> bool {
        !matches!(self, Self::NoPlace | Self::NoAdapter | Self::LeftAlone(_))
    }

    /// Whether the component failed, and not its upstream or the gateway. Before anything was sent, another one may do
    /// better.
    pub fn is_of_component(&self) -> bool {
        match self {
            Self::Guest(error) => *error != GuestError::NoRoom,
            Self::Destination(error) => !matches!(
                error,
                DestinationError::NoBaseUrl | DestinationError::Boundary
            ),
            Self::TooLargeToTranslate(_) | Self::OutOfOrder(_) | Self::TooManySteps => true,
            _ => false,
        }
    }

    /// Whether a request's size alone can bring it about in a component that is sound.
    pub fn can_be_of_size(&self) -> bool {
        match self {
            Self::Guest(error) => can_be_of_size(error),
            Self::Destination(DestinationError::TooLarge) => true,
            _ => false,
        }
    }
}

/// Whether a guest that was given up may be sound, and what it was handed too much.
pub fn can_be_of_size(error: &GuestError) -> bool {
    use GuestError as G;
    matches!(
        error,
        G::CpuBudget | G::CallTimeout | G::Memory | G::TooMuchData
    )
}

/// What may be done about a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Nothing: it may have been served, or would fail anywhere.
    Never,
    /// Another attempt on the same upstream after this pause, or on another one.
    Again(Duration),
    /// An attempt on another upstream: this one would say the same again.
    Elsewhere,
}

impl From<ExchangeError> for ApiError {
    fn from(error: ExchangeError) -> Self {
        let new = Self::new;
        match error {
            ExchangeError::Failure(failure) => of_failure(&failure),
            ExchangeError::Guest(GuestError::NoRoom) => new(
                ErrorCode::Overloaded,
                "Too many requests are being served; try again shortly.",
            )
            .with_retry_after(Duration::from_secs(1)),
            ExchangeError::TooLargeToTranslate(_) => new(
                ErrorCode::PayloadTooLarge,
                "The request is more than the adapter for this model's provider can translate.",
            )
            .with_param("messages"),
            ExchangeError::TooLargeToFilter => new(
                ErrorCode::PayloadTooLarge,
                "The request is more than a filter that it must pass can look at.",
            )
            .with_param("messages"),
            ExchangeError::Filter(_) => new(
                ErrorCode::FilterFailed,
                "A filter that this request must pass failed.",
            ),
            ExchangeError::Destination(DestinationError::Boundary) => Self::invalid_request(
                "image",
                "An image holds bytes that would end the form in which it is sent to the model's provider.",
            ),
            ExchangeError::Guest(_)
            | ExchangeError::Destination(_)
            | ExchangeError::OutOfOrder(_)
            | ExchangeError::TooManySteps
            | ExchangeError::WaitedTooLong => new(
                ErrorCode::AdapterFailed,
                "The adapter for this model's provider failed.",
            ),
            ExchangeError::NoPlace => new(
                ErrorCode::UpstreamBusy,
                "Too many requests are under way to the model's provider; try again shortly.",
            )
            .with_retry_after(Duration::from_secs(1)),
            ExchangeError::LeftAlone(left) => new(
                ErrorCode::UpstreamUnavailable,
                "The model's provider has failed of late; try again later.",
            )
            .with_retry_after(left),
            ExchangeError::NoAdapter | ExchangeError::Misconfigured(_) => new(
                ErrorCode::AdapterUnavailable,
                "The adapter for this model's provider is out of service.",
            )
            .with_retry_after(Duration::from_secs(10)),
            ExchangeError::Connect => new(
                ErrorCode::UpstreamUnavailable,
                "The model's provider cannot be reached.",
            ),
            ExchangeError::BrokenOff => new(
                ErrorCode::UpstreamError,
                "The model's provider broke off its answer.",
            ),
            ExchangeError::Encoded => new(
                ErrorCode::UpstreamError,
                "The model's provider sent a compressed answer, for which weir does not ask.",
            ),
            // What has used more than it may is an answer; see `serve`.
            ExchangeError::TooLarge | ExchangeError::Spent => new(
                ErrorCode::UpstreamError,
                "The model's provider sent more than weir takes.",
            ),
            ExchangeError::TimedOut(_) => new(
                ErrorCode::UpstreamTimeout,
                "The model's provider took too long.",
            ),
            ExchangeError::Abandoned | ExchangeError::ShuttingDown => new(
                ErrorCode::ShuttingDown,
                "The gateway is stopping; try again.",
            )
            .with_retry_after(Duration::from_secs(1)),
        }
    }
}

/// The error that a client gets for an adapter's failure. The adapter's own words reach the client only if they are about the
/// client's request.
fn of_failure(failure: &Failure) -> ApiError {
    let text = printable(&failure.text, 300);
    let upstream_code = upstream_code(failure);
    let said = failure.upstream_error.as_deref();
    let said: Option<Value> = said.and_then(|json| serde_json::from_str(json).ok());
    let refused = |code, what: &str| {
        let error = ApiError::new(code, format!("{what}: {text}"));
        let error = error.with_upstream(said.clone());
        match upstream_code {
            Some(code) => error.with_detail("upstream_code", code),
            None => error,
        }
    };
    let retry_after =
        |default_ms| Duration::from_millis(failure.retry_after_ms.unwrap_or(default_ms).into());
    let blamed = printable(failure.param.as_deref().unwrap_or_default(), 100);
    match failure.kind {
        FailureKind::Unsupported => {
            let first_word = failure.text.split([' ', ':']).next();
            let param = failure.param.as_deref().or(first_word).unwrap_or_default();
            refused(
                ErrorCode::UnsupportedParameter,
                "The model's provider does not support this",
            )
            .with_param(printable(param, 100))
        }
        FailureKind::Rejected => refused(
            ErrorCode::UpstreamRejected,
            "The model's provider refused the request",
        )
        .with_param(blamed),
        FailureKind::ContextLength => refused(
            ErrorCode::ContextLengthExceeded,
            "The request is too long for the model",
        )
        .with_param("messages"),
        FailureKind::Filtered => refused(
            ErrorCode::ContentFiltered,
            "The model's provider refused the content",
        )
        .with_param(blamed),
        FailureKind::ModelNotFound => ApiError::new(
            ErrorCode::UpstreamError,
            "The model's provider does not know the model.",
        ),
        FailureKind::Unauthorized | FailureKind::Malformed => ApiError::new(
            ErrorCode::UpstreamError,
            "The model's provider could not serve the request.",
        ),
        FailureKind::RateLimited => ApiError::new(
            ErrorCode::UpstreamUnavailable,
            "The model's provider is limiting requests; try again later.",
        )
        .with_retry_after(retry_after(1_000)),
        FailureKind::Unavailable => ApiError::new(
            ErrorCode::UpstreamUnavailable,
            "The model's provider is unavailable; try again later.",
        )
        .with_retry_after(retry_after(1_000)),
    }
}

/// The upstream's own code for a failure, if it is one: a word of its dialect, not a text. An operator's log has it, and
/// a client whose request is to blame.
fn upstream_code(failure: &Failure) -> Option<&str> {
    let code = failure.code.as_deref()?;
    let is_word = (1..=MAX_CODE_BYTES).contains(&code.len())
        && code
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    is_word.then_some(code)
}

/// For the log. Refusals of what the client sent often quote it, so that their texts stay out.
fn describe_failure(failure: &Failure) -> String {
    let (what, may_quote_the_client) = match failure.kind {
        FailureKind::Unsupported => ("the adapter cannot express the request", true),
        FailureKind::Rejected => ("the upstream rejected the request", true),
        FailureKind::ModelNotFound => ("the upstream does not know the model", false),
        FailureKind::ContextLength => ("the request is too long for the model", true),
        FailureKind::Filtered => ("the upstream refused the content", true),
        FailureKind::RateLimited => ("the upstream limits weir's rate", false),
        FailureKind::Unauthorized => ("the upstream refused weir's credential", false),
        FailureKind::Unavailable => ("the upstream is unavailable", false),
        FailureKind::Malformed => ("the upstream's answer makes no sense", false),
    };
    let mut described = what.to_owned();
    if let Some(code) = upstream_code(failure) {
        described.push_str(&format!(" ({code})"));
    }
    if !may_quote_the_client && !failure.text.is_empty() {
        described.push_str(&format!(": {}", printable(&failure.text, 300)));
    }
    described
}
