//! Errors of an attempt, and the client's view of them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use weir_dialects::DataFault;
use weir_errors::{ApiError, ErrorCode};
use weir_sandbox::adapter::AdapterCallError;
use weir_sandbox::adapter::bindings::adapter::{Failure, FailureKind};
use weir_sandbox::{ConfigureError, GuestError, printable};

use crate::credential::mint::MintError;
use crate::destination::DestinationError;
use crate::sequence::OutOfOrder;

/// The maximum requests that an adapter may send in one exchange.
pub const MAX_SENDS: u32 = 4;

/// The maximum other steps that it may take.
pub const MAX_OTHER_STEPS: u32 = 64;

/// The maximum total of its waits.
pub const MAX_WAITS: Duration = Duration::from_secs(30);

/// The size of a body that every sound component can process within its limits, regardless of content.
pub const LARGE_REQUEST_BYTES: usize = 64 << 10;

/// The maximum pause that weir takes over from an upstream, for its own retries and in `Retry-After` for clients.
///
/// Quotas by day or month lead to pauses of hours or weeks, and a mistaken header to any number. Clients that obey it
/// would stay away although another provider, a raised quota or a new credential serves them long before. An hour keeps
/// the pauses of limits by minute and hour whole; after that, one request shows whether the limit still holds. Other
/// clients and gateways stop earlier: openai-python obeys at most 60 s (`_calculate_retry_timeout`), Envoy's
/// `rate_limited_retry_back_off` 300 s.
pub const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(3_600);

/// The maximum bytes of an upstream's error code.
const MAX_CODE_BYTES: usize = 64;

/// The reasons for which an attempt failed.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The adapter reported a failure.
    #[error("{}", describe_failure(.0))]
    Failure(Failure),
    /// The adapter itself failed.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// The adapter exceeded its limits on a request of this size, before weir sent anything.
    #[error("the request is too large for the adapter: {0}")]
    TooLargeToTranslate(GuestError),
    /// A filter exceeded its limits on a request of this size.
    #[error("the request is too large for a filter")]
    TooLargeToFilter,
    /// The filter in this slot failed.
    #[error("the filter {0} failed")]
    Filter(Arc<str>),
    /// The adapter tried to send to a forbidden destination.
    #[error("the guard refused the adapter's request: {0}")]
    Destination(#[from] DestinationError),
    /// The adapter's events are not a valid response.
    #[error("the adapter's events are not a valid response: {0}")]
    OutOfOrder(OutOfOrder),
    /// The adapter took too many steps.
    #[error("the adapter took more than {MAX_SENDS} requests or {MAX_OTHER_STEPS} other steps")]
    TooManySteps,
    /// The adapter's waits were too long in total.
    #[error("the adapter asked for waits of more than {} s", MAX_WAITS.as_secs())]
    WaitedTooLong,
    /// The upstream has its share of concurrent requests; weir sent nothing.
    #[error("the upstream or its adapter's slot has too many concurrent requests")]
    NoPlace,
    /// The upstream failed recently and is paused for this time; weir sent nothing.
    #[error("the upstream is paused after failures")]
    LeftAlone(Duration),
    /// The upstream's slot has no active component; weir sent nothing.
    #[error("the upstream's slot has no active adapter")]
    NoAdapter,
    /// weir has no credential for the upstream; it sent nothing.
    #[error("no credential for the upstream: {0}")]
    Credential(#[from] MintError),
    /// The adapter now rejects the provider's options, after it accepted them at configuration; weir sent nothing.
    #[error("the adapter rejects its options: {0}")]
    Misconfigured(ConfigureError),
    /// No connection; weir sent nothing.
    #[error("the upstream cannot be reached")]
    Connect,
    /// The connection broke after the request was sent.
    #[error("the upstream closed the connection early")]
    BrokenOff,
    /// The response is compressed or otherwise encoded.
    #[error("the upstream's response has a Content-Encoding, but weir accepts none")]
    Encoded,
    /// The upstream took too long.
    #[error("the upstream took too long: {0}")]
    TimedOut(Phase),
    /// The response is larger than weir or the output limit allows.
    #[error("the upstream's response is too large")]
    TooLarge,
    /// The response reached its limit: it ends here, and is valid up to this point.
    #[error("the response exceeded its limits")]
    Spent,
    /// The client disconnected, and the upstream did not finish within the drain time.
    #[error("the client disconnected")]
    Abandoned,
    /// The gateway is stopping.
    #[error("the gateway is shutting down")]
    ShuttingDown,
}

/// Returns the pause that an upstream requests, up to [`LONGEST_RETRY_AFTER`].
pub fn retry_after(failure: &Failure) -> Option<Duration> {
    let pause = failure.retry_after_ms;
    let pause = pause.map(|ms| Duration::from_millis(ms.into()));
    pause.map(|pause| pause.min(LONGEST_RETRY_AFTER))
}

/// The phase of a timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The headers of the response; without a stream, also the first byte of its content.
    FirstByte,
    /// The first data of the response, while another upstream is available.
    FirstToken,
    /// The next piece of the response.
    Idle,
    /// The complete request.
    Total,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::FirstByte => "no response headers or content arrived",
            Self::FirstToken => "no data arrived before the first-token timeout",
            Self::Idle => "the response paused",
            Self::Total => "the request's deadline passed",
        })
    }
}

impl From<AdapterCallError> for ExchangeError {
    fn from(error: AdapterCallError) -> Self {
        match error {
            AdapterCallError::Guest(error) => Self::Guest(error),
            AdapterCallError::Failure(failure) => Self::Failure(failure),
        }
    }
}

impl From<DataFault> for ExchangeError {
    fn from(fault: DataFault) -> Self {
        let (kind, text, param) = match fault {
            DataFault::Invalid(what) => {
                let text = format!("the response has {what}");
                (FailureKind::Malformed, text, None)
            }
            DataFault::Dimensions => (
                FailureKind::Unsupported,
                "dimensions: the model's vectors have another number".to_owned(),
                Some("dimensions".to_owned()),
            ),
        };
        Self::Failure(Failure {
            kind,
            text,
            param,
            retry_after_ms: None,
            code: None,
            upstream_error: None,
        })
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
    /// Whether a retry is safe: the upstream received nothing, or it declined the request itself, or it had sent no
    /// output when weir disconnected it for the next one.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Connect => Retry::Again(Duration::ZERO),
            Self::Credential(_) | Self::Misconfigured(_) => Retry::Elsewhere,
            _ if self.is_of_hanging_upstream() => Retry::Elsewhere,
            Self::Failure(failure) => match failure.kind {
                FailureKind::Unavailable | FailureKind::RateLimited => {
                    Retry::Again(retry_after(failure).unwrap_or_default())
                }
                FailureKind::ModelNotFound
                | FailureKind::Unauthorized
                | FailureKind::Unsupported => Retry::Elsewhere,
                _ => Retry::Never,
            },
            _ => Retry::Never,
        }
    }

    /// Whether the upstream took too long while time for another one was left.
    pub fn is_of_hanging_upstream(&self) -> bool {
        matches!(
            self,
            Self::TimedOut(Phase::FirstByte | Phase::FirstToken | Phase::Idle)
        )
    }

    /// The class of the error, as one word.
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
            Self::Credential(_) => "credential",
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

    /// Whether weir ended the response while the upstream may have been at work, so that the upstream may charge for
    /// it.
    pub fn is_cut_off(&self) -> bool {
        matches!(
            self,
            Self::Abandoned | Self::TimedOut(_) | Self::BrokenOff | Self::ShuttingDown
        )
    }

    /// Whether weir tried to reach the upstream.
    pub fn was_attempted(&self) -> bool {
        !matches!(self, Self::NoPlace | Self::NoAdapter | Self::LeftAlone(_))
    }

    /// Whether the component failed, not its upstream or the gateway. Before weir sent anything, another component may
    /// succeed.
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

    /// Whether a request's size alone can cause the error in a sound component.
    pub fn can_be_of_size(&self) -> bool {
        match self {
            Self::Guest(error) => can_be_of_size(error),
            Self::Destination(DestinationError::TooLarge) => true,
            _ => false,
        }
    }
}

/// Whether a terminated guest may be sound, and its input too large.
pub fn can_be_of_size(error: &GuestError) -> bool {
    use GuestError as G;
    matches!(
        error,
        G::CpuBudget | G::CallTimeout | G::Memory | G::TooMuchData
    )
}

/// The allowed reactions to a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// No retry: the upstream may have served the attempt, or every upstream would fail.
    Never,
    /// A retry on the same upstream after this pause, or on another one.
    Again(Duration),
    /// A fallback to another upstream; this one would fail again.
    Elsewhere,
}

impl From<ExchangeError> for ApiError {
    fn from(error: ExchangeError) -> Self {
        let new = Self::new;
        match error {
            ExchangeError::Failure(failure) => of_failure(&failure),
            ExchangeError::Guest(GuestError::NoRoom) => new(
                ErrorCode::Overloaded,
                "The gateway serves too many requests; retry shortly.",
            )
            .with_retry_after(Duration::from_secs(1)),
            ExchangeError::TooLargeToTranslate(_) => new(
                ErrorCode::PayloadTooLarge,
                "The request is too large for the adapter of this model's provider.",
            )
            .with_param("messages"),
            ExchangeError::TooLargeToFilter => new(
                ErrorCode::PayloadTooLarge,
                "The request is too large for a required filter.",
            )
            .with_param("messages"),
            ExchangeError::Filter(_) => new(ErrorCode::FilterFailed, "A required filter failed."),
            ExchangeError::Destination(DestinationError::Boundary) => Self::invalid_request(
                "image",
                "An image holds bytes that would end the form of the provider's request.",
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
                "The model's provider has too many concurrent requests; retry shortly.",
            )
            .with_retry_after(Duration::from_secs(1)),
            ExchangeError::LeftAlone(left) => new(
                ErrorCode::UpstreamUnavailable,
                "The model's provider failed recently; retry later.",
            )
            .with_retry_after(left),
            ExchangeError::NoAdapter | ExchangeError::Misconfigured(_) => new(
                ErrorCode::AdapterUnavailable,
                "No working adapter is active for this model's provider.",
            )
            .with_retry_after(Duration::from_secs(10)),
            ExchangeError::Credential(_) => new(
                ErrorCode::UpstreamUnavailable,
                "The gateway cannot authenticate to the model's provider at the moment; retry later.",
            )
            .with_retry_after(Duration::from_secs(5)),
            ExchangeError::Connect => new(
                ErrorCode::UpstreamUnavailable,
                "The model's provider is unreachable.",
            ),
            ExchangeError::BrokenOff => new(
                ErrorCode::UpstreamError,
                "The model's provider closed the connection before the end of its response.",
            ),
            ExchangeError::Encoded => new(
                ErrorCode::UpstreamError,
                "The model's provider sent a compressed response, which weir does not accept.",
            ),
            // For `Spent`, clients get a response; see `serve`.
            ExchangeError::TooLarge | ExchangeError::Spent => new(
                ErrorCode::UpstreamError,
                "The model's provider sent a response that is too large.",
            ),
            ExchangeError::TimedOut(_) => new(
                ErrorCode::UpstreamTimeout,
                "The model's provider took too long.",
            ),
            ExchangeError::Abandoned | ExchangeError::ShuttingDown => {
                new(ErrorCode::ShuttingDown, "The gateway is stopping; retry.")
                    .with_retry_after(Duration::from_secs(1))
            }
        }
    }
}

/// Returns the client's error for an adapter's failure. The adapter's own message reaches the client only if the
/// client's request caused the failure.
fn of_failure(failure: &Failure) -> ApiError {
    let text = printable(&failure.text, 300);
    let upstream_code = upstream_code(failure);
    let said = failure.upstream_error.as_deref();
    let said: Option<Value> = said.and_then(|json| serde_json::from_str(json).ok());
    let refused = |code, what: &str| {
        let error = ApiError::new(code, what).with_provider_text(&text);
        let error = error.with_upstream(said.clone());
        match upstream_code {
            Some(code) => error.with_detail("upstream_code", code),
            None => error,
        }
    };
    let pause = retry_after(failure).unwrap_or(Duration::from_secs(1));
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
            "The model's provider rejected the request",
        )
        .with_param(blamed),
        FailureKind::ContextLength => refused(
            ErrorCode::ContextLengthExceeded,
            "The request is too long for the model",
        )
        .with_param("messages"),
        FailureKind::Filtered => refused(
            ErrorCode::ContentFiltered,
            "The model's provider rejected the content",
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
            "The model's provider limits requests; retry later.",
        )
        .with_retry_after(pause),
        FailureKind::Unavailable => ApiError::new(
            ErrorCode::UpstreamUnavailable,
            "The model's provider is unavailable; retry later.",
        )
        .with_retry_after(pause),
    }
}

/// The upstream's own error code, if it is a short word. The operator's log has it, and so has the client if its
/// request caused the failure.
fn upstream_code(failure: &Failure) -> Option<&str> {
    let code = failure.code.as_deref()?;
    let is_word = (1..=MAX_CODE_BYTES).contains(&code.len())
        && code
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    is_word.then_some(code)
}

/// Describes a failure for the log. The text leaves out upstreams' messages about the request, because they often quote
/// it.
fn describe_failure(failure: &Failure) -> String {
    let (what, may_quote_the_client) = match failure.kind {
        FailureKind::Unsupported => ("the adapter cannot express the request", true),
        FailureKind::Rejected => ("the upstream rejected the request", true),
        FailureKind::ModelNotFound => ("the upstream does not know the model", false),
        FailureKind::ContextLength => ("the request is too long for the model", true),
        FailureKind::Filtered => ("the upstream rejected the content", true),
        FailureKind::RateLimited => ("the upstream limits weir's request rate", false),
        FailureKind::Unauthorized => ("the upstream rejected weir's credential", false),
        FailureKind::Unavailable => ("the upstream is unavailable", false),
        FailureKind::Malformed => ("the upstream's response is malformed", false),
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
