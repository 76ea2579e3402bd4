//! An agent's model calls: through the API, like any service's calls, so that each is charged like all others.
//!
//! A call names its swarm, its fence and its idempotency key. A repeated call, even by another executor, returns the
//! first response.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use reqwest::Response;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout_at};
use weir_identity::service_token::ServiceTokenSource;
use weir_inference::droppable::DROP;
use weir_ledger::Credits;
use weir_ledger::idempotency::MAX_LONG_ANSWER_BYTES;
use weir_outgoing::{self as outgoing, Client};
use weir_telemetry::propagation::TraceContext;

/// The header with a call's fence.
pub const FENCE: &str = "x-weir-fence";

/// The interval between retries of a running call.
const JOIN_EVERY: Duration = Duration::from_millis(200);

/// The maximum bytes of a response.
const MAX_ANSWER_BYTES: usize = MAX_LONG_ANSWER_BYTES + (1 << 20);

/// The API as an executor's client. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ModelApi {
    http: Client,
    url: String,
    tokens: ServiceTokenSource,
}

pub struct ModelCall<'a> {
    /// The request body for `POST /internal/agent/code`.
    pub body: &'a Value,
    /// The key that identifies repeats.
    pub idempotency_key: &'a str,
    /// The number of the executor's claim.
    pub fence: i64,
    pub trace: Option<&'a TraceContext>,
    /// The time after which the response is useless.
    pub deadline: Instant,
}

/// A model's response.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelAnswer {
    /// The model's message, to be sent back unchanged. An incomplete response has a field `finish_reason`, and no later
    /// call uses it.
    pub message: Value,
    /// The price.
    pub credits: Credits,
    /// Tokens of input.
    pub tokens_in: i64,
    /// Tokens of output.
    pub tokens_out: i64,
}

/// The reasons for a missing response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelCallError {
    /// The maximum cost exceeds the available credits.
    TooDear {
        /// The necessary hold.
        required: Credits,
        /// The rest of the parent hold.
        available: Credits,
    },
    /// Another executor owns the run.
    Fenced,
    /// The call was made, but its response is lost.
    Lost { charged: Credits },
    /// The call failed for now, and nothing was charged: retry with the same key. The text is for the swarm's user.
    Later {
        why: String,
        /// The API's `Retry-After`.
        after: Option<Duration>,
        /// Whether weir itself was the cause, or a limit of the account, and no provider was tried.
        is_own: bool,
    },
    /// The swarm's principal may not use models any more.
    Refused {
        code: String,
        /// The reason, for the swarm's user.
        why: String,
    },
    /// The call was refused or failed permanently. The text is for the swarm's user.
    Failed(String),
    /// The deadline has passed.
    Late,
}

#[derive(Deserialize)]
struct CompletionBody {
    choices: Vec<CompletionChoice>,
    usage: CompletionUsage,
}

#[derive(Deserialize)]
struct CompletionChoice {
    message: Value,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct CompletionUsage {
    prompt_tokens: i64,
    completion_tokens: i64,
    credits: Credits,
}

#[derive(Deserialize)]
struct CompletionErrorBody {
    error: ApiProblem,
}

#[derive(Deserialize)]
struct ApiProblem {
    code: String,
    message: String,
    required_credits: Option<Credits>,
    available_credits: Option<Credits>,
    charged_credits: Option<Credits>,
}

enum CallReaction {
    End(ModelCallError),
    /// The call is running: retry soon, without a limit.
    Join,
}

fn later(why: impl Into<String>) -> CallReaction {
    CallReaction::End(ModelCallError::Later {
        why: why.into(),
        after: None,
        is_own: true,
    })
}

impl ModelApi {
    /// Returns a client for the API whose internal port has this base URL.
    pub fn new(http: Client, base_url: &str, tokens: ServiceTokenSource) -> Self {
        Self {
            http,
            url: format!("{}/internal/agent/code", base_url.trim_end_matches('/')),
            tokens,
        }
    }

    /// Calls a model; if the call is already running, waits for its response.
    pub async fn call(&self, call: &ModelCall<'_>) -> Result<ModelAnswer, ModelCallError> {
        loop {
            match timeout_at(call.deadline, self.ask(call)).await {
                Err(_) => return Err(ModelCallError::Late),
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(CallReaction::End(error))) => return Err(error),
                Ok(Err(CallReaction::Join)) => {}
            }
            let next = Instant::now() + JOIN_EVERY;
            if next > call.deadline {
                return Err(ModelCallError::Late);
            }
            sleep_until(next).await;
        }
    }

    async fn ask(&self, call: &ModelCall<'_>) -> Result<ModelAnswer, CallReaction> {
        let token = self.tokens.token().await.map_err(|error| {
            tracing::warn!(%error, "the executor has no token for the API");
            later("The executor has no token for the API.")
        })?;
        let mut headers = HeaderMap::new();
        if let Some(trace) = call.trace {
            trace.write(&mut headers);
        }
        let request = self
            .http
            .post(&self.url)
            .bearer_auth(token.expose())
            .header(CONTENT_TYPE, "application/json")
            .header("idempotency-key", call.idempotency_key)
            .header(FENCE, call.fence)
            // Each agent has a temperature, but some models take none.
            .header(DROP, "temperature")
            .headers(headers)
            .body(call.body.to_string());
        let unreachable = |error| {
            let error = outgoing::root_cause(error);
            tracing::warn!(error, "the executor cannot reach the API");
            later("The API is unreachable.")
        };
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let facts = RetryFacts::of(status, response.headers());
        let body = read(response).await.map_err(unreachable)?;
        match status == StatusCode::OK {
            true => answer(&body).ok_or_else(|| {
                CallReaction::End(ModelCallError::Failed(
                    "The model's response is invalid.".to_owned(),
                ))
            }),
            false => Err(judge(status, facts, &body)),
        }
    }
}

/// Reads a body up to the maximum size.
async fn read(mut response: Response) -> Result<Bytes, reqwest::Error> {
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > MAX_ANSWER_BYTES {
            break;
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

fn answer(body: &[u8]) -> Option<ModelAnswer> {
    let CompletionBody { choices, usage } = serde_json::from_slice(body).ok()?;
    let CompletionChoice {
        mut message,
        finish_reason,
    } = choices.into_iter().next()?;
    let is_cut = |reason: &String| matches!(&**reason, "length" | "content_filter");
    if let (Some(reason), Some(fields)) = (finish_reason.filter(is_cut), message.as_object_mut()) {
        fields.insert("finish_reason".to_owned(), reason.into());
    }
    Some(ModelAnswer {
        message,
        credits: usage.credits,
        tokens_in: usage.prompt_tokens,
        tokens_out: usage.completion_tokens,
    })
}

/// Returns the seconds of `Retry-After`.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?;
    seconds.parse().ok().map(Duration::from_secs)
}

/// The facts about a retry in a response, apart from its code.
#[derive(Debug, Default)]
struct RetryFacts {
    after: Option<Duration>,
    /// Whether a retry may succeed.
    is_useful: bool,
}

impl RetryFacts {
    fn of(status: StatusCode, headers: &HeaderMap) -> Self {
        let says_no = headers
            .get("x-should-retry")
            .is_some_and(|value| value == "false");
        let is_passing = matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS
        );
        Self {
            after: retry_after(headers),
            is_useful: !says_no && (is_passing || status.is_server_error()),
        }
    }
}

fn judge(status: StatusCode, facts: RetryFacts, body: &[u8]) -> CallReaction {
    let Ok(CompletionErrorBody { error }) = serde_json::from_slice(body) else {
        return later(format!("The API responded with {status}."));
    };
    match &*error.code {
        "IDEMPOTENCY_IN_PROGRESS" => CallReaction::Join,
        "IDEMPOTENCY_ANSWER_NOT_KEPT" => CallReaction::End(ModelCallError::Lost {
            charged: error.charged_credits.unwrap_or_default(),
        }),
        "QUOTA_EXCEEDED" => CallReaction::End(ModelCallError::TooDear {
            required: error.required_credits.unwrap_or_default(),
            available: error.available_credits.unwrap_or_default(),
        }),
        "SWARM_FENCED" => CallReaction::End(ModelCallError::Fenced),
        "KEY_ENDED" | "USER_DISABLED" | "FORBIDDEN" | "BUDGET_EXCEEDED" => {
            CallReaction::End(ModelCallError::Refused {
                code: error.code,
                why: error.message,
            })
        }
        // weir is busy or unavailable. Nothing was charged, or the charge follows: the key identifies it.
        "OVERLOADED" | "TOO_MANY_AT_ONCE" | "RATE_LIMITED" | "LEDGER_BUSY"
        | "LEDGER_UNAVAILABLE" | "STORE_UNAVAILABLE" | "CACHE_UNAVAILABLE"
        | "SETTLEMENT_DELAYED" | "SHUTTING_DOWN" | "UNAUTHENTICATED" => {
            CallReaction::End(ModelCallError::Later {
                why: error.message,
                after: facts.after,
                is_own: true,
            })
        }
        _ if facts.is_useful => CallReaction::End(ModelCallError::Later {
            why: error.message,
            after: facts.after,
            is_own: false,
        }),
        _ => CallReaction::End(ModelCallError::Failed(error.message)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_with_its_exact_price() {
        let body = br#"{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"}}],
            "usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"credits":0.000123}}"#;
        let answer = answer(body).expect("it is an answer");
        assert_eq!(answer.message["content"], "Hi");
        assert_eq!(
            (answer.credits.micro(), answer.tokens_in, answer.tokens_out),
            (123, 3, 2)
        );
    }

    #[test]
    fn an_answer_that_is_not_whole_says_so() {
        for (reason, kept) in [
            ("stop", None),
            ("tool_calls", None),
            ("length", Some("length")),
            ("content_filter", Some("content_filter")),
        ] {
            let body = format!(
                r#"{{"choices":[{{"message":{{"content":"x"}},"finish_reason":"{reason}"}}],
                "usage":{{"prompt_tokens":3,"completion_tokens":2,"credits":0}}}}"#
            );
            let answer = answer(body.as_bytes()).expect("it is an answer");
            assert_eq!(answer.message["finish_reason"].as_str(), kept);
        }
    }

    #[test]
    fn what_is_asked_again_is_safe_to_ask_again() {
        let verdict = |code: &str| {
            let body = format!(
                r#"{{"error":{{"code":"{code}","message":"m","required_credits":2.5,"available_credits":1}}}}"#
            );
            let facts = RetryFacts {
                after: None,
                is_useful: code == "UPSTREAM_ERROR",
            };
            match judge(StatusCode::BAD_REQUEST, facts, body.as_bytes()) {
                CallReaction::End(ModelCallError::Later { why, is_own, .. }) => {
                    format!("later: {why} {is_own}")
                }
                CallReaction::End(error) => format!("{error:?}"),
                CallReaction::Join => "join".to_owned(),
            }
        };
        assert_eq!(verdict("IDEMPOTENCY_IN_PROGRESS"), "join");
        for code in ["OVERLOADED", "STORE_UNAVAILABLE", "LEDGER_BUSY"] {
            assert_eq!(verdict(code), "later: m true");
        }
        assert_eq!(verdict("SWARM_FENCED"), "Fenced");
        assert_eq!(verdict("UPSTREAM_ERROR"), "later: m false");
        assert_eq!(verdict("UPSTREAM_REJECTED"), "Failed(\"m\")");
        assert_eq!(
            verdict("QUOTA_EXCEEDED"),
            "TooDear { required: Credits(2500000), available: Credits(1000000) }"
        );
    }
}
