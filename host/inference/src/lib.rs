//! A request from start to finish.
//!
//! 1. **Identify** ([`weir_identity`]): authenticates the caller.
//! 2. **Admit** ([`weir_request::admission`]): grants a permit, or responds with 429 or 503.
//! 3. **Filter** ([`filters`]): the operator's filters reject or change the request, choose its upstreams, or respond to
//!    it themselves. Steps 5 and 6 are left out for a filter's own response, and it costs nothing.
//! 4. **Resolve** ([`resolve`]): finds the model, its upstreams and limits; each violation has its own 400.
//!    The [`response_cache`] may have the response of an equal request: then no upstream is asked in step 6.
//! 5. **Hold** ([`meter`]): reserves the maximum cost, durably; the same commit claims the `Idempotency-Key`, if there
//!    is one ([`idempotency`]).
//! 6. **Exchange** ([`exchange`]): a fresh adapter instance translates, the host performs the I/O; after a failure,
//!    weir retries or falls back to the next upstream ([`routing`], [`attempts`]).
//! 7. **Relay** ([`relay`]): events become the client's dialect, with backpressure.
//! 8. **Settle**: charges the actual price, durably, and then sends the end of the response.
//!
//! From the hold on, the request's work is registered with the gateway, so that shutdown waits for it, and outlives the
//! client's connection: if a client disconnects, weir reads a stream for a while, and any other response to its end. The work of a stream is a separate
//! task. The work of a plain request becomes one only if its client disconnects ([`attended`]).
//!
//! **Invariant:** no client receives a complete response before its charge is durable, and every hold ends.
//!
//! The text of a prompt is copied seven times from socket to socket: by the kernel into hyper's buffer, into the body
//! ([`JsonBody`](weir_request::request::JsonBody)), out of its JSON, into the adapter's memory, by the adapter into JSON of its
//! upstream's dialect, out of that memory, and by the kernel again; twice more for each filter that changes it.

mod attempts;
mod attended;
pub mod deltas;
pub mod droppable;
pub mod exchange;
mod files;
pub mod filters;
pub mod idempotency;
mod leniency;
pub mod meter;
mod output_limit;
mod pace;
mod parts;
pub mod plugins;
mod reasoning;
pub mod recordings;
pub mod relay;
mod reply;
pub mod resolve;
pub mod response_cache;
pub mod routes;
pub mod routing;
pub mod sessions;
pub mod settings;
mod spans;
pub mod vendors;

use std::sync::Arc;

use axum::response::Response;
use tokio::time::Instant;
use weir_catalog::Catalog;
use weir_dialects::{
    AnswerHead, AudioCall, AudioTask, ChatCall, ConversationNames, Dialect, ImageCall,
    RetrievalCall, RetrievalTask,
};
use weir_errors::ApiError;
use weir_identity::filter_options::CallerFilterOptions;
use weir_identity::part_rates::{PartRates, RequestRates};
use weir_identity::{Caller, limits};
use weir_ledger::price::PriceFactors;
use weir_ledger::{AccountId, Credits, LedgerError, LedgerRefusal, Payer, Plan};
use weir_request::content_log::LoggedRequest;
use weir_request::context::RequestContext;
use weir_request::limits::data::CallerDataLimits;
use weir_sandbox::adapter::bindings::adapter::Task;
use weir_sandbox::adapter::bindings::chat::{Event, ResponseFormat};
use weir_storage::ids;
use weir_upstream::error::{ExchangeError, Phase};

use self::attended::Work;
use self::filters::{FilterCaller, FilterResult};
use self::idempotency::{IdempotentRequest, RepeatResponse};
use self::meter::{CachedCharge, Meter, MeteredRequest};
pub use self::parts::InferenceParts;
use self::relay::{Relay, RequestBounds};
use self::reply::Reply;
use self::resolve::{ProviderChoice, ResolvedRequest, ResolvedTask};
use self::response_cache::{CacheLookup, CacheableRequest, CachedResponse, ResponseRecorder};
use self::routing::Route;
use crate::deltas::DeltaPublisher;
use crate::sessions::SessionTurn;

/// The payer of a request, with their plan and models.
pub struct Customer {
    /// The account that pays.
    pub payer: Payer,
    /// The owner of the sessions that the request may use.
    pub session_owner: AccountId,
    /// The plan of the account.
    pub plan: Plan,
    /// The models that the caller may use; all if empty.
    pub models: Vec<String>,
    /// The rates that may apply to the request.
    pub rates: PartRates,
    /// The options of the key and the account for filters.
    pub filter_options: CallerFilterOptions,
    /// The limits of the key and the organisation on providers.
    pub data_limits: CallerDataLimits,
}

impl Customer {
    /// The customer behind a caller.
    pub fn of(caller: Caller) -> Self {
        Self {
            plan: caller.plan,
            models: caller.models().to_vec(),
            session_owner: caller.session_owner(),
            rates: caller.rates.clone(),
            filter_options: caller.filter_options.clone(),
            data_limits: caller.data_limits.clone(),
            payer: caller.payer(),
        }
    }

    /// Returns an idempotent request as one of this customer.
    fn own(&self, key: IdempotentRequest) -> IdempotentRequest {
        key.of_member(&self.payer.account, &self.session_owner)
    }

    /// Refuses an existing model that the customer may not use.
    fn require(&self, catalog: &Catalog, model: &str) -> Result<(), ApiError> {
        match catalog.model(model) {
            Some(model) => limits::require_model(&self.models, &model.id),
            None => Ok(()),
        }
    }

    fn asker<'a>(
        &'a self,
        context: &'a RequestContext,
        choice: &'a ProviderChoice<'a>,
    ) -> FilterCaller<'a> {
        FilterCaller {
            account: &self.payer.account,
            plan: self.plan,
            options: &self.filter_options,
            choice,
            context,
        }
    }
}

/// Serves a chat request; returns at the start of the response.
///
/// weir drops `held`, such as the request's permit, before the client learns the end of the request. Therefore, the
/// client may immediately send the next request. `publisher` receives the model's output as it arrives, even if the client
/// wants a plain response.
pub async fn chat(
    parts: &Arc<InferenceParts>,
    held: impl Send + 'static,
    customer: Customer,
    context: RequestContext,
    mut call: ChatCall,
    key: Option<IdempotentRequest>,
    publisher: Option<DeltaPublisher>,
) -> Result<Response, ApiError> {
    let id = ids::answer_id();
    let conversation = call.conversation(&id);
    let cache_use = match call.continues_stored() || customer.payer.parent.is_some() {
        true => CacheUse::Bypass,
        false => CacheUse::Allowed,
    };
    let key = key.map(|key| customer.own(key));
    let session =
        SessionTurn::begin(&parts.sessions, &customer.session_owner, &mut call, &id).await?;
    let asked = ResponseTerms {
        id,
        stream: call.request.stream,
        dialect: call.dialect.clone(),
        session,
        conversation,
        key,
        publisher,
        cache_use,
        passed: FilterResult::default(),
    };
    call.request.stream |= asked.publisher.is_some();
    // One catalog serves the complete request, even if the configuration changes meanwhile.
    let catalog = parts.catalog.load();
    name_by_id(&catalog, &mut call.request.model, &context);
    let choice = ProviderChoice::of(&customer.data_limits, &context)?;
    let asker = customer.asker(&context, &choice);
    let (call, passed) = filters::screen_chat(parts, &catalog, asker, call).await?;
    context.log_request(|| LoggedRequest::of_chat(&call));
    customer.require(&catalog, &call.request.model)?;
    let resolved = resolve::resolve(&catalog, call, &choice)?;
    let terms = PriceTerms::of(&catalog, customer.plan, &resolved.model.id);
    let asked = ResponseTerms { passed, ..asked };
    begin(parts, held, customer, context, resolved, terms, asked).await
}

/// Serves a request for images, like [`chat`].
pub async fn images(
    parts: &Arc<InferenceParts>,
    held: impl Send + 'static,
    customer: Customer,
    context: RequestContext,
    mut call: ImageCall,
    key: Option<IdempotentRequest>,
) -> Result<Response, ApiError> {
    let key = key.map(|key| customer.own(key));
    let (dialect, stream) = (call.dialect.clone(), call.request.stream);
    let asked = ResponseTerms::alone(dialect, stream, key, CacheUse::Absent);
    let catalog = parts.catalog.load();
    name_by_id(&catalog, &mut call.request.model, &context);
    let choice = ProviderChoice::of(&customer.data_limits, &context)?;
    let asker = customer.asker(&context, &choice);
    let (call, passed) = filters::screen_images(parts, &catalog, asker, call).await?;
    context.log_request(|| LoggedRequest::of_images(&call));
    customer.require(&catalog, &call.request.model)?;
    let resolved = resolve::resolve_images(&catalog, call, &choice)?;
    let terms = PriceTerms::of(&catalog, customer.plan, &resolved.model.id);
    let asked = ResponseTerms { passed, ..asked };
    begin(parts, held, customer, context, resolved, terms, asked).await
}

/// Serves a request for data about texts, like [`chat`].
pub async fn retrieve(
    parts: &Arc<InferenceParts>,
    held: impl Send + 'static,
    customer: Customer,
    context: RequestContext,
    mut call: RetrievalCall,
    key: Option<IdempotentRequest>,
) -> Result<Response, ApiError> {
    let key = key.map(|key| customer.own(key));
    let cache_use = match call.task {
        RetrievalTask::Embeddings(_) | RetrievalTask::Rerank(_) => CacheUse::Allowed,
        RetrievalTask::Moderation(_) => CacheUse::Absent,
    };
    let asked = ResponseTerms::alone(call.dialect.clone(), false, key, cache_use);
    let catalog = parts.catalog.load();
    name_by_id(&catalog, call.task.model_mut(), &context);
    let choice = ProviderChoice::of(&customer.data_limits, &context)?;
    let asker = customer.asker(&context, &choice);
    let (call, passed) = filters::screen_retrieval(parts, &catalog, asker, call).await?;
    context.log_request(|| LoggedRequest::of_retrieval(&call));
    customer.require(&catalog, call.task.model())?;
    let resolved = resolve::resolve_retrieval(&catalog, call, &choice)?;
    let terms = PriceTerms::of(&catalog, customer.plan, &resolved.model.id);
    let asked = ResponseTerms { passed, ..asked };
    begin(parts, held, customer, context, resolved, terms, asked).await
}

/// Serves a request about audio, like [`chat`].
pub async fn audio(
    parts: &Arc<InferenceParts>,
    held: impl Send + 'static,
    customer: Customer,
    context: RequestContext,
    mut call: AudioCall,
    key: Option<IdempotentRequest>,
) -> Result<Response, ApiError> {
    let key = key.map(|key| customer.own(key));
    let (dialect, stream) = (call.dialect.clone(), call.task.is_stream());
    let asked = ResponseTerms::alone(dialect, stream, key, CacheUse::Absent);
    let catalog = parts.catalog.load();
    name_by_id(&catalog, call.task.model_mut(), &context);
    customer.require(&catalog, call.task.model())?;
    let choice = ProviderChoice::of(&customer.data_limits, &context)?;
    let asker = customer.asker(&context, &choice);
    let (call, passed) = filters::screen_audio(parts, &catalog, asker, call).await?;
    context.log_request(|| LoggedRequest::of_audio(&call));
    let resolved = resolve::resolve_audio(&catalog, call, &choice)?;
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
}

impl PriceTerms {
    fn of(catalog: &Catalog, plan: Plan, model: &str) -> Self {
        Self {
            factors: catalog.factors_of(plan),
            in_plan: catalog.is_in_plan(plan, model),
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
    publisher: Option<DeltaPublisher>,
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
    /// Returns the terms of a response outside of any conversation.
    fn alone(
        dialect: Dialect,
        stream: bool,
        key: Option<IdempotentRequest>,
        cache_use: CacheUse,
    ) -> Self {
        Self {
            id: ids::answer_id(),
            stream,
            dialect,
            session: None,
            conversation: ConversationNames::default(),
            key,
            publisher: None,
            cache_use,
            passed: FilterResult::default(),
        }
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
    let by = routing::wanted(context.wanted_route())?.unwrap_or(resolved.model.route);
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
            let PriceTerms { factors, in_plan } = &terms;
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
    let dialect = &resolved.client.dialect;
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
    ) -> (Work, Reply) {
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
        let bounds = RequestBounds {
            deadline: Instant::now() + parts.timeouts.total(),
            // Images arrive only when they are complete, and a client that disconnects pays for them. An executor that
            // resumes a swarm requests the response again.
            drain: match resolved.model.makes_images() || payer.parent.is_some() {
                true => None,
                false => Some(parts.exchange_limits.hang_up_drain()),
            },
            shutdown: parts.shutdown.clone(),
            output_limit: resolved.output_limit,
            most_images: resolved.model.makes_images().then_some(resolved.images),
            wants_media: matches!(
                resolved.task,
                ResolvedTask::Model(Task::Image(_)) | ResolvedTask::Audio(AudioTask::Speech(_))
            ),
            wants_json: match &resolved.task {
                ResolvedTask::Model(Task::Chat(chat)) => {
                    !matches!(chat.response_format, ResponseFormat::Text)
                }
                ResolvedTask::Model(Task::Image(_))
                | ResolvedTask::Retrieval(_)
                | ResolvedTask::Audio(_) => false,
            },
            context_window: resolved.model.context_window,
        };
        let metered = MeteredRequest {
            request_id: context.id().to_owned(),
            model: resolved.model.id.clone(),
            in_plan: terms.in_plan,
            size: resolved.size,
            limits: resolved.limits(),
            images: resolved.images,
        };
        let key = asked.key.map(|key| (key, payer.account.clone()));
        let meter = Meter::new(parts, payer, rates, metered, terms.factors);
        let make = match asked.stream {
            true => Relay::stream,
            false => Relay::plain,
        };
        let (mut relay, reply) = make(asked.dialect, head, meter, bounds.clone(), context.clone());
        relay.occupy(held);
        relay.screen(asked.passed.answer_screen(resolved.output_limit));
        relay.place_messages(std::mem::take(&mut resolved.origins));
        if let Some(session) = asked.session {
            relay.go_on_with(session);
        }
        if let Some(publisher) = asked.publisher {
            relay.publish_deltas(publisher);
        }
        relay.record(recorder);
        let parts = parts.clone();
        let work: Work = match source {
            ResponseSource::Provider(route) => {
                attended::boxed(|| serve(parts, resolved, route, bounds, relay, context, key))
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
    mut relay: Relay,
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
async fn respond_instead(instead: RepeatResponse, relay: Relay) {
    match instead {
        RepeatResponse::Replay(answer) => relay.replay(answer),
        RepeatResponse::Refuse(error) => relay.refuse(error).await,
    }
}

/// Delivers the events of a filter's own response, or of the cache's. A filter's response has no hold, so it costs nothing,
/// and an idempotency key stays free: a repeated request reaches the filter again.
async fn respond(events: Vec<Event>, mut relay: Relay, context: RequestContext) {
    let outcome = match relay.events(events).await {
        Ok(()) => relay.end(),
        // Another filter ended the response.
        Err(ExchangeError::Spent) => relay.stop().await,
        Err(error) => Err(error),
    };
    deliver(outcome, relay, &context).await;
}

/// Ends a request: charges and delivers its response, or tells its failure.
async fn deliver(outcome: Result<(), ExchangeError>, relay: Relay, context: &RequestContext) {
    match outcome {
        Ok(()) => {
            if let Err(error) = relay.finish().await {
                context.note_failure(format!("the client read too slowly: {error}"));
            }
        }
        Err(error) => Box::pin(relay.fail(error)).await,
    }
}

/// Does the request's work. Rare parts are boxed, because their copies of the relay would triple the size of this future.
async fn serve(
    parts: Arc<InferenceParts>,
    resolved: ResolvedRequest,
    route: Route,
    bounds: RequestBounds,
    mut relay: Relay,
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
            attempts::attempt_all(&parts, resolved, &route, first, &bounds, &mut relay).await
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
