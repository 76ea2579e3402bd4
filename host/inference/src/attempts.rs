//! The attempts of a request: on each of its upstreams in turn, until one responds.
//!
//! **Invariant:** weir retries only if the upstream cannot have served the attempt: its component failed before it sent
//! anything, the connection failed, or the upstream itself declined, and the client received nothing. The only
//! exception is an upstream that hangs while another one is available: weir disconnects it before any output, books its
//! cost, and the client pays only for the response that it receives. **Invariant:** at most [`ATTEMPTS_PER_UPSTREAM`]
//! attempts on each of a model's upstreams, all within the request's one deadline. Only a failure that another credential
//! of the same provider may avoid leads to one.

use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;
use weir_catalog::config::PromptCaching;
use weir_catalog::{Candidate, PoolMember};
use weir_dialects::Attachment;
use weir_ledger::AccountId;
use weir_plugins::counters::ExchangeEnd;
use weir_plugins::oversight::ExchangeRecord;
use weir_plugins::slots::ChosenComponent;
use weir_plugins::{Component, Plugin};
use weir_request::admission::UpstreamPermit;
use weir_sandbox::adapter::AdapterRequest;
use weir_sandbox::adapter::bindings::adapter::{Failure, FailureKind};
use weir_sandbox::adapter::bindings::chat::{ChatRequest, ExtraField};
use weir_upstream::breaker::{AttemptHealth, Permit, UpstreamState};
use weir_upstream::error::{ExchangeError, LARGE_REQUEST_BYTES, Phase, Retry, retry_after};

use super::InferenceParts;
use super::exchange::ExchangeInputs;
use super::meter::Attempt;
use super::prompt_caching;
use super::reasoning;
use super::relay::Relay;
use super::resolve::ResolvedRequest;
use super::routing::performance::UnderWay;
use super::routing::{Route, RoutedUpstream};
use super::spans;

/// The maximum attempts on one upstream for one request.
const ATTEMPTS_PER_UPSTREAM: u32 = 2;

/// The pause before a second attempt if the upstream names none.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The maximum pause before a retry. After a longer one, the client retries.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The maximum pause before a retry while another upstream is available.
const LONGEST_PAUSE_BEFORE_FALLBACK: Duration = Duration::from_secs(1);

/// The permit for one of a route's upstreams.
pub(super) struct AttemptPermit {
    /// The upstream's index in the route.
    at: usize,
    permit: Permit,
    under_way: UnderWay,
    _place: UpstreamPermit,
}

/// The result of an upstream that gave no response.
enum AttemptFailure {
    /// The request has failed.
    Failed(ExchangeError),
    /// Another upstream may serve the request.
    Declined(ExchangeError),
}

/// The attempts of one request.
struct Attempts<'a> {
    parts: &'a InferenceParts,
    deadline: Instant,
    route: &'a Route,
    request: AdapterRequest,
    /// Whether weir set the request's marks of cached prefixes.
    has_own_marks: bool,
    attachments: &'a [Attachment],
    /// The names of advisory fields that earlier steps left out.
    ignored: &'a [String],
    /// The names of fields that weir may drop.
    droppable: &'a [String],
    body_bytes: usize,
    text_bytes: usize,
    /// Whether the client wants a stream.
    wants_stream: bool,
    /// Whether weir may request a stream upstream although the client wants a plain response.
    may_be_streamed: bool,
    /// The number of attempts so far.
    made: u32,
}

/// Returns the first of a route's upstreams with a free permit.
pub(super) fn first_entry(
    parts: &InferenceParts,
    route: &Route,
    account: &AccountId,
) -> Result<AttemptPermit, ExchangeError> {
    let mut refused = None;
    for (at, routed) in route.upstreams().enumerate() {
        match enter(parts, at, routed.member, account) {
            Ok(entry) => return Ok(entry),
            // The first upstream's error counts, because the request prefers that upstream.
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or(ExchangeError::NoPlace))
}

fn enter(
    parts: &InferenceParts,
    at: usize,
    member: &PoolMember,
    account: &AccountId,
) -> Result<AttemptPermit, ExchangeError> {
    let permit = parts.routing.breakers.enter(&member.key, account);
    Ok(AttemptPermit {
        at,
        permit: permit.map_err(ExchangeError::LeftAlone)?,
        under_way: parts.routing.performance.begin(&member.key),
        _place: parts
            .admission
            .place(&member.upstream)
            .ok_or(ExchangeError::NoPlace)?,
    })
}

/// Tries a route's upstreams in order until one responds, from the first one with a permit.
pub(super) async fn attempt_all(
    parts: &InferenceParts,
    resolved: ResolvedRequest,
    route: &Route,
    first: AttemptPermit,
    deadline: Instant,
    relay: &mut Relay,
) -> Result<(), ExchangeError> {
    let context = relay.context();
    // The route has refused wrong names already.
    let droppable = parts.ignore_fields.with_those_of(context);
    let droppable = droppable.unwrap_or_default();
    let mut ignored = resolved.ignored;
    ignored.extend(context.dropped());
    let attachments = resolved.attachments;
    let mut request = resolved.request;
    let has_own_marks = resolved.model.prompt_caching == PromptCaching::Auto
        && request.chat_mut().is_some_and(prompt_caching::mark);
    let (wants_stream, may_be_streamed) = match request.chat() {
        Some(chat) => (chat.stream, may_be_streamed(chat)),
        None => (false, false),
    };
    let mut attempts = Attempts {
        wants_stream,
        may_be_streamed,
        parts,
        deadline,
        route,
        request,
        has_own_marks,
        attachments: &attachments,
        ignored: &ignored,
        droppable: droppable.as_slice(),
        body_bytes: resolved.body_bytes,
        text_bytes: resolved.text_bytes,
        made: 0,
    };
    let begin_at = first.at;
    let mut first = Some(first);
    let mut declined = None;
    // A candidate that failed for another reason than its credential fails with each of them.
    let mut failed: Option<&Candidate> = None;
    for (at, routed) in route.upstreams().enumerate().skip(begin_at) {
        if failed.is_some_and(|failed| std::ptr::eq(failed, routed.candidate)) {
            continue;
        }
        let entry = match first.take() {
            Some(entry) => Ok(entry),
            None => enter(parts, at, routed.member, relay.meter().account()),
        };
        let asked = match entry {
            Ok(entry) => attempts.ask(routed, entry, relay).await,
            Err(error) => Err(AttemptFailure::Declined(error)),
        };
        match asked {
            Ok(()) => {
                parts.routing.answered(route, routed.member).await;
                return Ok(());
            }
            Err(AttemptFailure::Failed(error)) => return Err(error),
            Err(AttemptFailure::Declined(error)) => {
                if error.was_attempted() && !is_of_credential(&error, relay) {
                    failed = Some(routed.candidate);
                }
                // A full upstream says less about the cause than the failure of an earlier one.
                let is_said = declined.is_some() && !error.was_attempted();
                if !is_said {
                    declined = Some(error);
                }
            }
        }
    }
    Err(declined.unwrap_or(ExchangeError::Connect))
}

impl Attempts<'_> {
    /// Tries one upstream.
    async fn ask(
        &mut self,
        routed: RoutedUpstream<'_>,
        mut entry: AttemptPermit,
        relay: &mut Relay,
    ) -> Result<(), AttemptFailure> {
        let RoutedUpstream { candidate, member } = routed;
        let upstream = &*member.upstream;
        // All attempts on the upstream share this lookup, because an exchange ends on its first component.
        let account = relay.meter().account().clone();
        let Some(chosen) = self.parts.plugins.adapter_for(&upstream.adapter, &account) else {
            return Err(AttemptFailure::Declined(ExchangeError::NoAdapter));
        };
        self.request.set_model(&candidate.model);
        if let Some(chat) = self.request.chat_mut() {
            // The relay collects a stream for a client that wants a plain response: at a timeout, the text so far is
            // available.
            chat.stream = self.wants_stream || candidate.stream_plain && self.may_be_streamed;
        }
        relay.expect_stream(is_streamed(&self.request));
        let request = self.request.task();
        let readable = request.and_then(|request| reasoning::readable_by(&upstream.name, request));
        let mut readable = readable.map(AdapterRequest::Task);
        relay.meter().attempt(Attempt {
            provider: upstream.name.clone(),
            adapter: chosen.component.clone(),
            sampler: chosen.sampler.clone(),
            price: candidate.price.clone(),
        });
        let mut left = ATTEMPTS_PER_UPSTREAM;
        loop {
            left -= 1;
            let has_next = self.has_next(entry.at, candidate, &account);
            let began = Instant::now();
            let under_way = &entry.under_way;
            let outcome = self
                .attempt(
                    routed,
                    under_way,
                    &chosen,
                    readable.as_mut(),
                    has_next,
                    relay,
                )
                .await;
            let outcome_health = health(&outcome, relay, began.elapsed());
            entry.permit.note(outcome_health);
            let Err(error) = outcome else {
                return Ok(());
            };
            report(routed, self.made, &error);
            let is_of_credential = is_of_credential(&error, relay);
            let (error, pause) = declined(error, has_next, relay)?;
            let longest = match has_next {
                true => LONGEST_PAUSE_BEFORE_FALLBACK,
                false => LONGEST_PAUSE,
            };
            let is_short =
                |pause: &Duration| *pause <= longest && Instant::now() + *pause < self.deadline;
            match pause.filter(is_short) {
                _ if is_of_credential
                    && self.has_other_credential(entry.at, candidate, &account) =>
                {
                    return Err(AttemptFailure::Declined(error));
                }
                Some(pause)
                    if left > 0
                        && outcome_health != AttemptHealth::Refused
                        && self.is_closed(member, &account) =>
                {
                    wait(relay, pause).await.map_err(AttemptFailure::Failed)?;
                }
                _ => return Err(AttemptFailure::Declined(error)),
            }
        }
    }

    /// Runs one exchange, and records it in the adapter's counters.
    async fn attempt(
        &mut self,
        RoutedUpstream { candidate, member }: RoutedUpstream<'_>,
        under_way: &UnderWay,
        chosen: &ChosenComponent<Component>,
        readable: Option<&mut AdapterRequest>,
        has_next: bool,
        relay: &mut Relay,
    ) -> Result<(), ExchangeError> {
        let (upstream, adapter) = (&*member.upstream, &chosen.component);
        self.made += 1;
        relay.begin_attempt(
            &upstream.name,
            &candidate.model,
            adapter.code().digest,
            candidate.credential_number(member),
        );
        let attempted = spans::AttemptData {
            candidate,
            adapter,
            is_stream: relay.is_stream(),
            request: &self.request,
            number: self.made,
        };
        spans::begin_attempt(relay.context(), &attempted);
        let started = Instant::now();
        let left = self.deadline.saturating_duration_since(started);
        let is_without_reasoning = readable.is_some();
        let request = readable.unwrap_or(&mut self.request);
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        request.begin_attempt(self.made, left_ms);
        let mut exchange = ExchangeInputs {
            http: &self.parts.http,
            upstream,
            options: &candidate.options,
            has_search_price: candidate.price.has_searches(),
            adapter,
            request,
            is_without_reasoning,
            has_own_marks: self.has_own_marks,
            ignored: self.ignored,
            droppable: self.droppable,
            request_bytes: self.text_bytes,
            attachments: self.attachments,
            answer_bytes: self.parts.exchange_limits.answer_bytes.get(),
            stream_flush: self.parts.exchange_limits.stream_flush(),
            timeouts: candidate.timeouts,
            has_next,
            recorder: &self.parts.recorder,
        };
        let outcome = exchange.run(relay).await;
        if let Err(error) = &outcome {
            relay.note_attempt_failure(error);
        }
        let is_of_size = self.body_bytes > LARGE_REQUEST_BYTES
            && outcome.as_ref().is_err_and(ExchangeError::can_be_of_size);
        let ended = judge(&outcome, is_of_size);
        let first_token = relay.streamed_at().map(|at| at - started);
        spans::end_attempt(relay.context(), outcome.as_ref().err(), first_token);
        if let Some(at) = relay.streamed_at() {
            relay.context().note_first_token(at.into_std());
        }
        // A slow client counts neither against the component nor against the upstream.
        let took = started.elapsed().saturating_sub(relay.kept_waiting());
        if outcome.is_ok() {
            under_way.answered(took, first_token, relay.received_bytes());
        }
        let noted = ExchangeRecord {
            ended,
            effects: None,
            is_guard: false,
            took,
            first_token,
            sampler: chosen.sampler.as_ref(),
        };
        let account = relay.meter().account();
        let plugin = Plugin::Adapter(adapter.clone());
        self.parts.oversight.note(&plugin, account, noted);
        match outcome {
            Err(ExchangeError::Guest(error)) if is_of_size && !relay.was_asked() => {
                Err(ExchangeError::TooLargeToTranslate(error))
            }
            outcome => outcome,
        }
    }

    /// Whether the route has another available candidate behind this place.
    fn has_next(&self, at: usize, candidate: &Candidate, account: &AccountId) -> bool {
        self.is_available_behind(at, account, |behind| !std::ptr::eq(behind, candidate))
    }

    /// Whether another credential of the candidate is available behind this place.
    fn has_other_credential(&self, at: usize, candidate: &Candidate, account: &AccountId) -> bool {
        self.is_available_behind(at, account, |behind| std::ptr::eq(behind, candidate))
    }

    fn is_available_behind(
        &self,
        at: usize,
        account: &AccountId,
        counts: impl Fn(&Candidate) -> bool,
    ) -> bool {
        let mut behind = self.route.upstreams().skip(at + 1);
        behind.any(|routed| {
            let standing = self.standing(routed.member, account);
            counts(routed.candidate) && standing < UpstreamState::Refused
        })
    }

    fn is_closed(&self, member: &PoolMember, account: &AccountId) -> bool {
        !matches!(self.standing(member, account), UpstreamState::Open(_))
    }

    fn standing(&self, member: &PoolMember, account: &AccountId) -> UpstreamState {
        self.parts.routing.breakers.standing(&member.key, account)
    }
}

/// Whether an attempt failed because of its credential, so that another one of the same provider may succeed.
fn is_of_credential(error: &ExchangeError, relay: &Relay) -> bool {
    match error {
        ExchangeError::Failure(failure) => {
            failure.kind == FailureKind::RateLimited || is_refused(failure, relay)
        }
        ExchangeError::Credential(_) => true,
        _ => false,
    }
}

/// Whether the upstream refuses the credential, or its account has no money left.
fn is_refused(failure: &Failure, relay: &Relay) -> bool {
    failure.kind == FailureKind::Unauthorized
        || relay.status() == Some(StatusCode::PAYMENT_REQUIRED)
}

/// Whether the upstream streams its response. Recordings arrive in pieces, but their providers finish and bill them.
fn is_streamed(request: &AdapterRequest) -> bool {
    match request {
        AdapterRequest::Task(_) => request.chat().is_some_and(|chat| chat.stream),
        AdapterRequest::Other(request) => weir_kinds::kind(request).is_streamed_upstream(),
    }
}

/// Whether weir may request a stream for a plain response: not with log probabilities, images or audio.
fn may_be_streamed(chat: &ChatRequest) -> bool {
    let has_logprobs = |(name, _): &ExtraField| name == "logprobs";
    chat.modalities.is_empty() && !chat.extra.iter().any(has_logprobs)
}

/// Decides about a failed attempt: a retry on the same upstream after a pause, or a fallback to the next one.
fn declined(
    error: ExchangeError,
    has_next: bool,
    relay: &mut Relay,
) -> Result<(ExchangeError, Option<Duration>), AttemptFailure> {
    let is_sent = relay.was_asked();
    let pause = match error.retry() {
        _ if relay.has_begun() => return Err(AttemptFailure::Failed(error)),
        Retry::Elsewhere if error.is_of_hanging_upstream() && !has_next => {
            return Err(AttemptFailure::Failed(error));
        }
        Retry::Never if error.is_of_component() && !is_sent => None,
        Retry::Never => return Err(AttemptFailure::Failed(error)),
        Retry::Again(pause) => Some(pause.max(RETRY_PAUSE)),
        Retry::Elsewhere => None,
    };
    if error.is_of_hanging_upstream() {
        // The upstream was at work, so a client that has disconnected meanwhile pays for it.
        if relay.is_hung_up() {
            return Err(AttemptFailure::Failed(error));
        }
        relay.write_off();
    }
    // The restart precedes the check of the client: nobody pays for a declined attempt.
    relay.restart();
    if relay.is_hung_up() {
        return Err(AttemptFailure::Failed(ExchangeError::Abandoned));
    }
    Ok((error, pause))
}

/// Waits before a retry on the same upstream.
async fn wait(relay: &mut Relay, pause: Duration) -> Result<(), ExchangeError> {
    let pause = tokio::time::sleep(pause);
    relay.within(Duration::MAX, Phase::Total, pause).await?;
    // Without a client, nobody would pay for a retry.
    match relay.is_hung_up() {
        true => Err(ExchangeError::Abandoned),
        false => Ok(()),
    }
}

/// The upstream's health according to an attempt that took this long.
fn health(outcome: &Result<(), ExchangeError>, relay: &Relay, took: Duration) -> AttemptHealth {
    use ExchangeError as E;
    let Err(error) = outcome else {
        return AttemptHealth::Well;
    };
    match error {
        E::Connect => AttemptHealth::Unreachable,
        E::Spent => AttemptHealth::Well,
        E::Credential(_) => AttemptHealth::Refused,
        E::BrokenOff | E::TimedOut(Phase::FirstByte | Phase::FirstToken | Phase::Idle) => {
            AttemptHealth::Fails(None)
        }
        // A client that reads slowly can use up the time as well.
        E::TimedOut(Phase::Total) if relay.was_asked() && relay.kept_waiting() * 2 < took => {
            AttemptHealth::Fails(None)
        }
        E::Failure(failure) if is_refused(failure, relay) => AttemptHealth::Refused,
        E::Failure(failure) => {
            let rest = retry_after(failure);
            match failure.kind {
                FailureKind::Unavailable => AttemptHealth::Fails(rest),
                FailureKind::Malformed => AttemptHealth::Fails(None),
                FailureKind::RateLimited => AttemptHealth::Limits(rest),
                FailureKind::Rejected
                | FailureKind::ModelNotFound
                | FailureKind::ContextLength
                | FailureKind::Filtered => AttemptHealth::Well,
                // weir sent nothing.
                FailureKind::Unsupported | FailureKind::Unauthorized => AttemptHealth::Unknown,
            }
        }
        // The adapter, the gateway or the client caused it.
        _ => AttemptHealth::Unknown,
    }
}

/// Logs the failure of an attempt, at a level according to its cause, with the number of its credential.
fn report(RoutedUpstream { member, .. }: RoutedUpstream<'_>, attempt: u32, error: &ExchangeError) {
    let (upstream, adapter) = (&*member.upstream.name, &*member.upstream.adapter);
    let credential = member.credential;
    match error {
        // Only a change of the credential or the options fixes this.
        ExchangeError::Failure(Failure {
            kind: FailureKind::Unauthorized,
            ..
        })
        | ExchangeError::Credential(_) => {
            tracing::error!(upstream, credential, attempt, %error, "attempt failed");
        }
        // The log already has refused options, and the last words of a terminated guest.
        ExchangeError::Misconfigured(_)
        | ExchangeError::Guest(_)
        | ExchangeError::TooLargeToTranslate(_)
        | ExchangeError::Spent => {}
        ExchangeError::Destination(_)
        | ExchangeError::OutOfOrder(_)
        | ExchangeError::TooManySteps => {
            tracing::warn!(
                upstream,
                credential,
                adapter,
                attempt,
                %error,
                "attempt failed because of the adapter"
            );
        }
        _ => tracing::info!(upstream, credential, attempt, %error, "attempt failed"),
    }
}

/// The result of an exchange, and the component's share in it.
fn judge(outcome: &Result<(), ExchangeError>, is_of_size: bool) -> ExchangeEnd {
    match outcome {
        Ok(())
        | Err(ExchangeError::Spent | ExchangeError::Abandoned | ExchangeError::ShuttingDown) => {
            ExchangeEnd::Well
        }
        // A client must not be able to disable a component for all clients by sending large requests.
        Err(_) if is_of_size => ExchangeEnd::InError,
        Err(error) if !error.is_of_component() => ExchangeEnd::InError,
        Err(ExchangeError::Guest(_)) => ExchangeEnd::InTrap,
        Err(_) => ExchangeEnd::InFault,
    }
}
