//! The pipeline of every request: what it asks for, its filters, its model, its price, its hold, and its response.

use std::sync::Arc;

use axum::response::Response;
use tokio::time::Instant;
use weir_catalog::Catalog;
use weir_dialects::{AnswerHead, ConversationNames, Dialect};
use weir_errors::ApiError;
use weir_identity::part_rates::RequestRates;
use weir_ledger::price::PriceFactors;
use weir_ledger::{AccountId, Credits, LedgerError, LedgerRefusal, Payer, Plan};
use weir_request::context::RequestContext;
use weir_sandbox::adapter::bindings::chat::{Event, ResponseFormat};
use weir_storage::ids;
use weir_upstream::error::{ExchangeError, Phase};

use crate::attended::{self, BoxedWork};
use crate::deltas::StepCall;
use crate::filters::{self, FilterResult};
use crate::idempotency::{IdempotentRequest, RepeatResponse};
use crate::meter::{self, CachedCharge, Meter, MeteredRequest};
use crate::relay::{Relay, RelayTerms, RequestBounds, ResponseLimits};
use crate::reply::Reply;
use crate::resolve::{self, ProviderChoice, ResolvedRequest};
use crate::response_cache::{CacheLookup, CacheableRequest, CachedResponse, ResponseRecorder};
use crate::routing::{self, Route};
use crate::sessions::SessionTurn;
use crate::work::{self, Work};
use crate::{Customer, InferenceParts, attempts, files, output_limit};

/// Serves a request of any kind; returns at the start of the response.
///
/// weir drops `held`, such as the request's permit, before the client learns the end of the request. Therefore, the
/// client may immediately send the next request.
pub async fn serve(
    parts: &Arc<InferenceParts>,
    held: impl Send + 'static,
    customer: Customer,
    context: RequestContext,
    mut work: Work,
    key: Option<IdempotentRequest>,
    step: Option<StepCall>,
) -> Result<Response, ApiError> {
    let key = key.map(|key| customer.own(key));
    let asked = ResponseTerms::of(parts, &customer, &mut work, key, step).await?;
    // One catalog serves the complete request, even if the configuration changes meanwhile.
    let catalog = parts.catalog.load();
    name_by_id(&catalog, work.model_mut(), &context);
    customer.require(&catalog, work.model())?;
    let choice = ProviderChoice::of(&customer.data_limits, &context)?;
    let asker = customer.asker(&context, &choice);
    let (work, passed) = filters::screen(parts, &catalog, asker, work).await?;
    context.log_request(|| work.logged());
    let resolved = resolve::resolve(&catalog, work, &choice)?;
    let terms = PriceTerms::of(&catalog, customer.plan, &resolved.model.id);
    let asked = ResponseTerms { passed, ..asked };
    begin(parts, held, customer, context, resolved, terms, asked).await
}

/// Replaces an alias by the model's id, before filters see the request. Records the model.
fn name_by_id(catalog: &Catalog, model: &mut String, context: &RequestContext) {
    let id = catalog.id_of(model);
    if id != model {
        *model = id.to_owned();
    }
    if let Some(known) = catalog.model(model) {
        context.note_model(&known.id);
    }
}

/// The terms on which an account with a plan pays for a model.
struct PriceTerms {
    factors: PriceFactors,
    /// Whether the plan's credits pay, too.
    in_plan: bool,
    catalog_version: i64,
}

impl PriceTerms {
    fn of(catalog: &Catalog, plan: Plan, model: &str) -> Self {
        Self {
            factors: catalog.factors_of(plan),
            in_plan: catalog.is_in_plan(plan, model),
            catalog_version: catalog.layer_version,
        }
    }
}

/// The terms of the response, and the request's context.
struct ResponseTerms {
    /// The response's id.
    id: String,
    stream: bool,
    dialect: Dialect,
    session: Option<SessionTurn>,
    conversation: ConversationNames,
    key: Option<IdempotentRequest>,
    step: Option<StepCall>,
    cache_use: CacheUse,
    /// The filters' results.
    passed: FilterResult,
}

/// The use of the response cache.
enum CacheUse {
    /// The endpoint has none.
    Absent,
    /// The request bypasses it.
    Bypass,
    /// The cache decides by the request.
    Allowed,
}

impl ResponseTerms {
    /// Returns the terms of a request, and adds the session's messages to a chat.
    async fn of(
        parts: &InferenceParts,
        customer: &Customer,
        work: &mut Work,
        key: Option<IdempotentRequest>,
        step: Option<StepCall>,
    ) -> Result<Self, ApiError> {
        let mut terms = Self {
            id: ids::answer_id(),
            stream: work.is_stream(),
            dialect: work.dialect().clone(),
            session: None,
            conversation: ConversationNames::default(),
            key,
            step,
            cache_use: match work.is_cacheable() {
                true => CacheUse::Allowed,
                false => CacheUse::Absent,
            },
            passed: FilterResult::default(),
        };
        if let Work::Chat(call) = work {
            terms.conversation = call.conversation(&terms.id);
            if call.continues_stored() || terms.step.is_some() {
                terms.cache_use = CacheUse::Bypass;
            }
            let owner = &customer.session_owner;
            terms.session = SessionTurn::begin(&parts.sessions, owner, call, &terms.id).await?;
        }
        Ok(terms)
    }
}

/// The source of a response.
enum ResponseSource {
    /// A provider.
    Provider(Route),
    /// A filter of requests.
    Filter(Vec<Event>),
    /// The response cache.
    Cache(Box<CachedResponse>),
}

async fn begin(
    parts: &Arc<InferenceParts>,
    held: impl Send + 'static,
    customer: Customer,
    context: RequestContext,
    mut resolved: ResolvedRequest,
    terms: PriceTerms,
    mut asked: ResponseTerms,
) -> Result<Response, ApiError> {
    if let Some(order) = asked.passed.order.take() {
        resolved.allowed = order;
        resolved.is_ordered = true;
    }
    let Customer { payer, rates, .. } = customer;
    let rates = rates.for_model(&payer.account, &resolved.model.id);
    rates.admit(&parts.cache).await?;
    let by = routing::wanted(&context)?.unwrap_or(resolved.model.route);
    let own_response = asked.passed.response.take();
    let cache = &parts.response_cache;
    let CacheLookup { found, recorder } = match asked.cache_use {
        CacheUse::Allowed if cache.is_on() && own_response.is_none() => {
            Box::pin(look_up(parts, &payer.account, &context, &resolved)).await?
        }
        CacheUse::Allowed | CacheUse::Bypass => {
            cache.bypass(&context);
            CacheLookup::default()
        }
        CacheUse::Absent => CacheLookup::default(),
    };
    let source = match (own_response, found) {
        (Some(events), _) => ResponseSource::Filter(events),
        (None, Some(found)) => {
            resolved.output_limit = found.output_limit;
            ResponseSource::Cache(found)
        }
        (None, None) => {
            let PriceTerms {
                factors, in_plan, ..
            } = &terms;
            if files::are_unread(&resolved) {
                let read = files::read(parts, &payer, &context, factors, *in_plan, &mut resolved);
                Box::pin(read).await?;
            }
            let (account, conversation) = (&payer.account, &asked.conversation);
            let route = parts
                .routing
                .route(account, &resolved, conversation, by, factors)
                .await;
            if resolved.size.has_hosted_tools() && !runs_tools(parts, &route, account, &resolved) {
                resolved.size = resolved.size.without_hosted_tools();
            }
            output_limit::widen(parts, &payer, factors, *in_plan, &route, &mut resolved).await;
            ResponseSource::Provider(route)
        }
    };
    let stream = asked.stream;
    let admitted = AdmittedRequest {
        payer,
        rates,
        context: context.clone(),
        resolved,
        terms,
        asked,
        recorder,
    };
    let (work, reply) = admitted.work(parts, held, source);
    let response = reply.response(&context);
    let mut response = if stream {
        // A client that reads slowly must not keep the request from its deadline.
        parts.tasks.spawn(context.ids().scope(work));
        response.await?
    } else {
        attended::attend(&parts.tasks, context.ids(), work, response).await?
    };
    context.show_cache(response.headers_mut());
    Ok(response)
}

/// Looks for the response of an equal request in the cache.
async fn look_up(
    parts: &InferenceParts,
    account: &AccountId,
    context: &RequestContext,
    resolved: &ResolvedRequest,
) -> Result<CacheLookup, ApiError> {
    let droppable = parts.ignore_fields.with_those_of(context)?;
    let request = CacheableRequest {
        account,
        resolved,
        droppable: droppable.as_slice(),
        context,
        plugins: &parts.plugins,
    };
    Ok(parts.response_cache.look_up(&request).await)
}

/// Whether an upstream of the route may run tools of the request. Adapters of other dialects than the client's refuse
/// these tools, or weir leaves them out.
fn runs_tools(
    parts: &InferenceParts,
    route: &Route,
    account: &AccountId,
    resolved: &ResolvedRequest,
) -> bool {
    let dialect = &resolved.request.client().dialect;
    route.upstreams().any(|routed| {
        let slot = &routed.member.upstream.adapter;
        let chosen = parts.plugins.adapter_for(slot, account);
        chosen.is_some_and(|chosen| chosen.component.description.dialect == *dialect)
    })
}

/// A request that its filters and rates admit.
struct AdmittedRequest {
    payer: Payer,
    rates: RequestRates,
    context: RequestContext,
    resolved: ResolvedRequest,
    terms: PriceTerms,
    asked: ResponseTerms,
    /// The recorder of a response that the cache lacks.
    recorder: Option<Box<ResponseRecorder>>,
}

impl AdmittedRequest {
    /// Returns the request's work, and the reply that it sends.
    ///
    /// This is a plain function, because a future would have room for all these values while it waits.
    fn work(
        self,
        parts: &Arc<InferenceParts>,
        held: impl Send + 'static,
        source: ResponseSource,
    ) -> (BoxedWork, Reply) {
        let Self {
            payer,
            rates,
            context,
            mut resolved,
            terms,
            asked,
            recorder,
        } = self;
        let head = AnswerHead {
            id: asked.id,
            created: parts.clock.now().seconds(),
            model: resolved.model.id.clone(),
        };
        let deadline = Instant::now() + parts.timeouts.total();
        let bounds = RequestBounds {
            deadline,
            // Images arrive only when they are complete, and a client that disconnects pays for them. An executor that
            // resumes a swarm requests the response again.
            drain: match resolved.model.makes_images() || asked.step.is_some() {
                true => None,
                false => Some(parts.exchange_limits.hang_up_drain()),
            },
            shutdown: parts.shutdown.clone(),
            over: asked.step.as_ref().map(|step| step.over.clone()),
        };
        let limits = ResponseLimits {
            output_limit: resolved.output_limit,
            most_images: resolved.model.makes_images().then_some(resolved.images),
            wants_media: work::output_type(&resolved.request).is_some(),
            wants_json: resolved
                .request
                .chat()
                .is_some_and(|chat| !matches!(chat.response_format, ResponseFormat::Text)),
            context_window: resolved.model.context_window,
        };
        let metered = MeteredRequest {
            request_id: context.id().to_owned(),
            model: resolved.model.id.clone(),
            in_plan: terms.in_plan,
            size: resolved.size,
            limits: resolved.limits(),
            images: resolved.images,
            catalog_version: terms.catalog_version,
        };
        let key = asked.key.map(|key| (key, payer.account.clone()));
        let meter = Meter::new(parts, payer, rates, metered, terms.factors);
        let terms = RelayTerms {
            screen: asked.passed.answer_screen(resolved.output_limit),
            dialect: asked.dialect,
            head,
            is_stream: asked.stream,
            bounds,
            limits,
            held: Box::new(held),
            origins: std::mem::take(&mut resolved.origins),
            session: asked.session,
            publisher: asked.step.and_then(|step| step.publisher),
            recorder,
        };
        let (relay, reply) = Relay::new(terms, meter, context.clone());
        let parts = parts.clone();
        let work: BoxedWork = match source {
            ResponseSource::Provider(route) => {
                attended::boxed(|| exchange(parts, resolved, route, deadline, relay, context, key))
            }
            ResponseSource::Filter(events) => Box::pin(respond(events, relay, context)),
            ResponseSource::Cache(cached) => Box::pin(repeat(parts, *cached, relay, context, key)),
        };
        (work, reply)
    }
}

/// Delivers a response from the cache.
async fn repeat(
    parts: Arc<InferenceParts>,
    cached: CachedResponse,
    mut relay: Box<Relay>,
    context: RequestContext,
    key: Option<(IdempotentRequest, AccountId)>,
) {
    let charge = CachedCharge {
        provider: cached.provider.clone(),
        adapter_digest: cached.adapter_digest,
        price: cached.price,
        percent: cached.percent,
    };
    let amount = relay.meter().repeat(charge, &cached.sequence);
    match open(&parts, &mut relay, amount, &context, key).await {
        Ok(()) => {
            relay.begin_cached(&cached.provider, cached.ignored);
            respond(cached.events, relay, context).await;
        }
        Err(instead) => respond_instead(instead, relay).await,
    }
}

/// Opens the hold of a request, and claims its key, if there is one. An error is the response instead.
async fn open(
    parts: &InferenceParts,
    relay: &mut Relay,
    amount: Credits,
    context: &RequestContext,
    key: Option<(IdempotentRequest, AccountId)>,
) -> Result<(), RepeatResponse> {
    let claim = key.as_ref().map(|(key, _)| key.claim().clone());
    let holding = context.trace_part("ledger.hold");
    let opened = relay.meter().open(amount, claim).await;
    drop(holding);
    match (opened, key) {
        (Ok(at), Some((key, account))) => relay.keep(key.claimed(parts, account, context, at)),
        (Ok(_), None) => {}
        (Err(LedgerError::Refused(LedgerRefusal::KeyTaken(taken))), Some((key, account))) => {
            return Err(key.instead(parts, &account, taken));
        }
        (Err(error), _) => return Err(RepeatResponse::Refuse(meter::refused(error, parts))),
    }
    Ok(())
}

/// Delivers the response to a request that weir does not serve.
async fn respond_instead(instead: RepeatResponse, relay: Box<Relay>) {
    match instead {
        RepeatResponse::Replay(answer) => relay.replay(answer),
        RepeatResponse::Refuse(error) => relay.refuse(error).await,
    }
}

/// Delivers the events of a filter's own response, or of the cache's. A filter's response has no hold, so it costs nothing,
/// and an idempotency key stays free: a repeated request reaches the filter again.
async fn respond(events: Vec<Event>, mut relay: Box<Relay>, context: RequestContext) {
    let outcome = match relay.events(events).await {
        Ok(()) => relay.end(),
        // Another filter ended the response.
        Err(ExchangeError::Spent) => relay.stop().await,
        Err(error) => Err(error),
    };
    deliver(outcome, relay, &context).await;
}

/// Ends a request: charges and delivers its response, or tells its failure.
async fn deliver(outcome: Result<(), ExchangeError>, relay: Box<Relay>, context: &RequestContext) {
    match outcome {
        Ok(()) => {
            if let Err(error) = relay.finish().await {
                context.note_failure(format!("the client read too slowly: {error}"));
            }
        }
        Err(error) => Box::pin(relay.fail(error)).await,
    }
}

/// Asks the route's upstreams, and ends the request. The relay is boxed, because each of the functions that it passes through
/// would have room for it twice; rare parts are, because their futures are large.
async fn exchange(
    parts: Arc<InferenceParts>,
    resolved: ResolvedRequest,
    route: Route,
    deadline: Instant,
    mut relay: Box<Relay>,
    context: RequestContext,
    key: Option<(IdempotentRequest, AccountId)>,
) {
    let first = match (
        attempts::first_entry(&parts, &route, relay.meter().account()),
        &key,
    ) {
        // A request with a key goes on, because an earlier request may have been served.
        (Err(error), None) => return Box::pin(relay.refuse(error.into())).await,
        (first, _) => first,
    };
    let prices = route.upstreams().map(|routed| &routed.candidate.price);
    let amount = relay.meter().worst_case(prices);
    if let Err(instead) = open(&parts, &mut relay, amount, &context, key).await {
        return Box::pin(respond_instead(instead, relay)).await;
    }
    let outcome = match first {
        Ok(first) => {
            attempts::attempt_all(&parts, resolved, &route, first, deadline, &mut relay).await
        }
        Err(error) => Err(error),
    };
    let outcome = match outcome {
        Err(ExchangeError::Spent) => relay.stop().await,
        Err(ExchangeError::TimedOut(Phase::Total)) => relay.stop_at_deadline().await,
        outcome => outcome,
    };
    deliver(outcome, relay, &context).await;
}
