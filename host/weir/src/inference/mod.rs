//! A request from start to finish.
//!
//! 1. **Identify** ([`crate::identity`]): who calls.
//! 2. **Admit** ([`admission`]): a turn, or 429 or 503.
//! 3. **Resolve** ([`resolve`]): the model, its upstreams, its limits; each violation its own 400.
//! 4. **Hold** ([`meter`]): the most that it can cost is reserved, durably; with it, its `Idempotency-Key` is claimed, if it
//!    brings one ([`idempotency`]).
//! 5. **Exchange** ([`exchange`]): a fresh adapter instance translates, the host does the I/O.
//! 6. **Relay** ([`relay`]): events become the client's dialect, with backpressure.
//! 7. **Settle**: the actual price is charged, durably, and then the end of the answer goes out.
//!
//! All from the hold on runs in a task of their own, registered with the gateway so that shutdown waits for it. It
//! outlives the client's connection: when a client hangs up, the answer is read on for a while.
//!
//! **Invariant:** an attempt is repeated only if it cannot have been served: its component failed before anything was
//! sent, the connection failed, or the upstream itself declined, and nothing was told to the client. Never after a
//! time-out.
//! **Invariant:** no answer is delivered in full before its charge is durable, and every hold ends.
//! **Invariant:** at most [`ATTEMPTS_PER_UPSTREAM`] attempts on each of a model's upstreams, all within
//! the request's one deadline.

pub mod admission;
pub mod destination;
pub mod dialect;
pub mod error;
pub mod exchange;
pub mod idempotency;
pub mod meter;
mod pages;
mod reasoning;
pub mod redact;
pub mod relay;
mod reply;
pub mod resolve;
mod reuse;
pub mod routes;
pub mod sequence;
pub mod settings;
pub mod upstream;
pub mod usage;

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use tokio::time::Instant;
use tracing::{Instrument, Span};

use self::admission::Place;
use self::dialect::{AnswerHead, Attachment, ChatCall};
use self::error::{ExchangeError, Phase, Retry};
use self::exchange::Exchange;
use self::idempotency::{Instead, KeyedRequest};
use self::meter::{Attempt, Meter, Metered};
use self::relay::{Bounds, Relay};
use self::resolve::Resolved;
use self::usage::ModelLimits;
use crate::app::App;
use crate::catalog::Model;
use crate::context::RequestContext;
use crate::error::ApiError;
use weir_sandbox::adapter::bindings::adapter::{Failure, FailureKind, Request, Task};

use crate::plugins::counters::Ended;
use crate::plugins::{Component, Quarantined};
use crate::sessions::Turn;
use weir_ledger::{AccountId, LedgerError, Payer, Refusal};
use weir_storage::ids;

/// How often one upstream is tried for one request.
const ATTEMPTS_PER_UPSTREAM: u32 = 2;

/// The pause before a second attempt where the upstream names none.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Bytes of a body that a component can serve within its limits many times over, whatever they say.
const LARGE_REQUEST_BYTES: usize = 64 << 10;

/// A longer pause than this is not waited for while another upstream can be asked.
const LONGEST_PAUSE_BEFORE_FALLBACK: Duration = Duration::from_secs(1);

/// Serves a chat request; returns when the answer begins.
///
/// `held` is dropped before the client hears how the request ended: what it occupies, such as its turn. The client may ask
/// again at once.
pub async fn chat(
    app: &App,
    held: impl Send + 'static,
    payer: Payer,
    context: RequestContext,
    mut call: ChatCall,
    key: Option<KeyedRequest>,
) -> Result<Response, ApiError> {
    let session = Turn::begin(&app.sessions, &payer.account, &mut call).await?;
    let (stream, dialect) = (call.request.stream, call.dialect);
    // One catalog for all of the request, whatever is taken up meanwhile.
    let catalog = app.catalog.load();
    let resolved = resolve::resolve(&catalog, call)?;
    context.note_model(&resolved.model.id);
    let head = AnswerHead {
        id: ids::answer_id(),
        created: app.clock.now().seconds(),
        model: resolved.model.id.clone(),
    };
    let bounds = Bounds {
        deadline: Instant::now() + app.config.timeouts.total(),
        drain: app.config.limits.exchanges.hang_up_drain(),
        shutdown: app.shutdown.clone(),
        output_limit: resolved.request.max_output_tokens,
        context_window: resolved.model.context_window,
    };
    let metered = Metered {
        request_id: context.id().to_owned(),
        model: resolved.model.id.clone(),
        size: resolved.size,
        limits: ModelLimits {
            context_window: resolved.model.context_window.into(),
            max_image_tokens: resolved.model.max_image_tokens.into(),
            output_limit: resolved.request.max_output_tokens.into(),
        },
    };
    let key = key.map(|key| (key, payer.account.clone()));
    let meter = Meter::new(app, payer, metered, catalog.factors.clone());
    let (mut relay, reply) = if stream {
        Relay::stream(dialect, head, meter, bounds.clone(), context.clone())
    } else {
        Relay::plain(dialect, head, meter, bounds.clone(), context.clone())
    };
    relay.occupy(held);
    if let Some(session) = session {
        relay.go_on_with(session);
    }
    let task = serve(app.clone(), resolved, bounds, relay, context.clone(), key);
    app.tasks.spawn(task.instrument(Span::current()));
    reply.response(&context).await
}

async fn serve(
    app: App,
    resolved: Resolved,
    bounds: Bounds,
    mut relay: Relay,
    context: RequestContext,
    key: Option<(KeyedRequest, AccountId)>,
) {
    let model = resolved.model.clone();
    let first = first_place(&app, &model);
    // A request with a key goes on: it may have been served already.
    if first.is_none() && key.is_none() {
        return relay.refuse(ExchangeError::NoPlace.into()).await;
    }
    let prices = model.candidates.iter().map(|candidate| &candidate.price);
    let claim = key.as_ref().map(|(key, _)| key.claim().clone());
    match (relay.meter().open(prices, claim).await, key) {
        (Ok(at), Some((key, account))) => relay.keep(key.claimed(&app, account, &context, at)),
        (Ok(_), None) => {}
        (Err(LedgerError::Refused(Refusal::KeyTaken(taken))), Some((key, account))) => {
            return match key.instead(&app, &account, taken) {
                Instead::Replay(answer) => relay.replay(answer),
                Instead::Refuse(error) => relay.refuse(error).await,
            };
        }
        (Err(error), _) => {
            return relay.refuse(meter::refused(error)).await;
        }
    }
    let Some(first) = first else {
        return relay.fail(ExchangeError::NoPlace).await;
    };
    let outcome = match attempt_all(&app, resolved, first, &bounds, &mut relay).await {
        Err(ExchangeError::Spent) => relay.stop().await,
        outcome => outcome,
    };
    match outcome {
        Ok(()) => {
            if let Err(error) = relay.finish().await {
                context.note_failure(format!("the client took too long to read: {error}"));
            }
        }
        Err(error) => relay.fail(error).await,
    }
}

/// The first of a model's candidates whose upstream may be asked, and the place there.
fn first_place(app: &App, model: &Model) -> Option<(usize, Place)> {
    let mut candidates = model.candidates.iter().enumerate();
    candidates.find_map(|(index, candidate)| {
        let place = app.admission.place(&candidate.upstream)?;
        Some((index, place))
    })
}

/// Tries the model's upstreams in order until one answers, from the first that has a place.
async fn attempt_all(
    app: &App,
    resolved: Resolved,
    (first, place): (usize, Place),
    bounds: &Bounds,
    relay: &mut Relay,
) -> Result<(), ExchangeError> {
    let attachments = resolved.attachments;
    let mut request = Request {
        task: Task::Chat(resolved.request),
        attachments: attachments.iter().map(Attachment::described).collect(),
        client: resolved.client,
        attempt: 0,
        deadline_ms: 0,
    };
    let mut candidates = resolved.model.candidates[first..].iter().peekable();
    let mut place = Some(place);
    let mut last = ExchangeError::Connect;
    let mut attempts = 0;
    while let Some(candidate) = candidates.next() {
        let upstream = &*candidate.upstream;
        // Given back before the next one is looked at.
        let place = place.take().or_else(|| app.admission.place(upstream));
        let Some(_place) = place else {
            last = ExchangeError::NoPlace;
            continue;
        };
        // Once for all attempts on it: an exchange ends on the component that it began with.
        let Some(adapter) = app.plugins.adapter(&upstream.adapter) else {
            last = ExchangeError::NoAdapter;
            continue;
        };
        if let Task::Chat(chat) = &mut request.task {
            chat.model.clone_from(&candidate.model);
        }
        let mut readable = reasoning::readable_by(&upstream.name, &request);
        let is_without_reasoning = readable.is_some();
        let request = readable.as_mut().unwrap_or(&mut request);
        relay.meter().attempt(Attempt {
            provider: upstream.name.clone(),
            adapter: adapter.clone(),
            price: candidate.price.clone(),
        });
        for attempt in 1..=ATTEMPTS_PER_UPSTREAM {
            attempts += 1;
            request.attempt = attempts;
            relay.begin_attempt(&upstream.name);
            let started = Instant::now();
            let left = bounds.deadline.saturating_duration_since(started);
            request.deadline_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            let exchange = Exchange {
                http: &app.http,
                upstream,
                adapter: &adapter,
                request,
                is_without_reasoning,
                request_bytes: resolved.text_bytes,
                attachments: &attachments,
                answer_bytes: app.config.limits.exchanges.answer_bytes.get(),
            };
            let outcome = exchange.run(relay).await;
            let is_of_size = resolved.body_bytes > LARGE_REQUEST_BYTES
                && outcome.as_ref().is_err_and(ExchangeError::can_be_of_size);
            let ended = judge(&outcome, is_of_size);
            let account = relay.meter().account();
            note(app, &adapter, account, ended, started.elapsed());
            let is_sent = relay.was_asked();
            let error = match outcome {
                Ok(()) => return Ok(()),
                Err(ExchangeError::Guest(error)) if is_of_size && !is_sent => {
                    ExchangeError::TooLargeToTranslate(error)
                }
                Err(error) => error,
            };
            report(&upstream.name, &upstream.adapter, attempt, &error);
            let pause = match error.retry() {
                _ if relay.has_begun() => return Err(error),
                Retry::Never if error.is_of_component() && !is_sent => None,
                Retry::Never => return Err(error),
                Retry::Again(pause) => Some(pause.max(RETRY_PAUSE)),
                Retry::Elsewhere => None,
            };
            // Before the look at the client: an attempt that was declined is owed by nobody.
            relay.restart();
            if relay.is_hung_up() {
                return Err(ExchangeError::Abandoned);
            }
            last = error;
            let fallback = candidates.peek().is_some();
            let is_short = |pause: &Duration| {
                !(fallback && *pause > LONGEST_PAUSE_BEFORE_FALLBACK)
                    && Instant::now() + *pause < bounds.deadline
            };
            match pause.filter(is_short) {
                Some(pause) if attempt < ATTEMPTS_PER_UPSTREAM => wait(relay, pause).await?,
                _ => break,
            }
        }
    }
    Err(last)
}

/// Waits before another attempt on the same upstream.
async fn wait(relay: &mut Relay, pause: Duration) -> Result<(), ExchangeError> {
    let pause = tokio::time::sleep(pause);
    relay.within(Duration::MAX, Phase::Total, pause).await?;
    // Nobody would pay for a second attempt that nobody waits for.
    match relay.is_hung_up() {
        true => Err(ExchangeError::Abandoned),
        false => Ok(()),
    }
}

/// Says in the log why an attempt failed, as loud as an operator should hear it.
fn report(upstream: &str, adapter: &str, attempt: u32, error: &ExchangeError) {
    match error {
        // Nothing but another credential, or other options, mends this.
        ExchangeError::Failure(Failure {
            kind: FailureKind::Unauthorized,
            ..
        }) => tracing::error!(upstream, attempt, %error, "attempt failed"),
        // What refused options is in the log already, and so is what gave a guest up, with its last words.
        ExchangeError::Misconfigured(_)
        | ExchangeError::Guest(_)
        | ExchangeError::TooLargeToTranslate(_)
        | ExchangeError::Spent => {}
        ExchangeError::Destination(_)
        | ExchangeError::OutOfOrder(_)
        | ExchangeError::TooManySteps => {
            tracing::warn!(upstream, adapter, attempt, %error, "attempt failed by the adapter's fault");
        }
        _ => tracing::info!(upstream, attempt, %error, "attempt failed"),
    }
}

/// How an exchange ended, and by whose fault.
fn judge(outcome: &Result<(), ExchangeError>, is_of_size: bool) -> Ended {
    match outcome {
        Ok(())
        | Err(ExchangeError::Spent | ExchangeError::Abandoned | ExchangeError::ShuttingDown) => {
            Ended::Well
        }
        // No client may take a component from all others by the size of what it sends.
        Err(_) if is_of_size => Ended::InError,
        Err(error) if !error.is_of_component() => Ended::InError,
        Err(ExchangeError::Guest(_)) => Ended::InTrap,
        Err(_) => Ended::InFault,
    }
}

/// Counts an exchange, and takes a component out of service that has failed too often.
fn note(app: &App, adapter: &Arc<Component>, account: &AccountId, ended: Ended, took: Duration) {
    let counters = adapter.counters();
    counters.exchange(ended, took);
    app.metrics.exchange(adapter, ended, took);
    let limit = app.config.plugins.quarantine_traps;
    let Some(suspicion) = counters.suspect(ended, account, limit, std::time::Instant::now()) else {
        return;
    };
    let (app, adapter) = (app.clone(), adapter.clone());
    app.tasks.clone().spawn(async move {
        let now = app.clock.now();
        let plugins = &app.plugins;
        match plugins
            .quarantine(app.stores(), &adapter, suspicion, now)
            .await
        {
            Some(Quarantined::Instead(_)) => app.metrics.quarantine(&adapter),
            Some(Quarantined::LastSound { .. }) => app.metrics.quarantine_withheld(&adapter),
            None => {}
        }
    });
}
