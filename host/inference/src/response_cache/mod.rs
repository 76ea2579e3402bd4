//! The response cache: an equal request gets the stored response of an earlier one, and no provider is asked.
//!
//! weir looks for a response after the filters of requests and the rates, and stores the events of the adapter. A stored
//! response therefore passes the filters of responses again, and becomes any form of the client's dialect, streamed or
//! plain. Its request has a hold and a settlement like any other, at the operator's share of the price.
//!
//! Requests with tools or more than text, above a temperature, in stored conversations and of swarms bypass the cache.
//! Only responses that ended normally are stored: none that was cut, refused or ended by a filter.
//!
//! **Invariant:** equal [keys](key) have equal responses: a key covers the request after its filters, the account
//! (unless the operator shares responses), the permitted upstreams with their options, and the adapters.
//! **Invariant:** a failure of the cache fails no request: the response is then absent, or not stored.
//!
//! To store responses of another kind of work, give it a [`cache_key`](weir_kinds::Kind::cache_key).

mod entry;
mod key;
mod recorder;
pub mod settings;
mod store;

use std::sync::Arc;

use http::header;
use weir_ledger::AccountId;
use weir_ledger::price::Price;
use weir_plugins::Plugins;
use weir_request::context::{CacheStatus, RequestContext};
use weir_request::metrics::response_cache::ResponseCacheMetrics;
use weir_sandbox::adapter::AdapterRequest;
use weir_sandbox::adapter::bindings::adapter::Task;
use weir_sandbox::adapter::bindings::chat::{ChatRequest, Content, Event};
use weir_storage::Cache;
use weir_storage::clock::Clock;
use weir_storage::sealing::KeyRing;
use weir_upstream::sequence::Sequence;

use self::key::KeyScope;
pub use self::recorder::ResponseRecorder;
use self::settings::{ResponseCacheSettings, ResponseScope};
use self::store::ResponseStore;
use super::resolve::ResolvedRequest;

/// The temperature of a chat without one: the default of most providers.
const DEFAULT_TEMPERATURE: f64 = 1.0;

/// The response cache. Cheap to clone.
#[derive(Clone)]
pub struct ResponseCache(Arc<ResponseStore>);

/// A request for which weir may look into the cache.
pub(super) struct CacheableRequest<'a> {
    /// The paying account.
    pub(super) account: &'a AccountId,
    /// The request.
    pub(super) resolved: &'a ResolvedRequest,
    /// The fields that weir may drop.
    pub(super) droppable: &'a [String],
    /// The context of the request.
    pub(super) context: &'a RequestContext,
    /// The plugins.
    pub(super) plugins: &'a Plugins,
}

/// The result of a lookup.
#[derive(Default)]
pub(super) struct CacheLookup {
    /// The response.
    pub(super) found: Option<Box<CachedResponse>>,
    /// The recorder of the provider's response.
    pub(super) recorder: Option<Box<ResponseRecorder>>,
}

/// A response from the cache.
pub(super) struct CachedResponse {
    /// The provider that made it.
    pub(super) provider: String,
    /// The digest of its adapter.
    pub(super) adapter_digest: String,
    /// The price of the model at this provider.
    pub(super) price: Price,
    /// The percentage of the price that the client pays.
    pub(super) percent: u8,
    /// The maximum tokens of the response.
    pub(super) output_limit: u32,
    /// The advisory fields that the provider did not receive.
    pub(super) ignored: Vec<String>,
    /// The events of the adapter.
    pub(super) events: Vec<Event>,
    /// The state after these events.
    pub(super) sequence: Sequence,
}

impl ResponseCache {
    /// Returns the cache with these settings.
    pub fn new(
        settings: ResponseCacheSettings,
        cache: Cache,
        keys: KeyRing,
        clock: Clock,
        metrics: ResponseCacheMetrics,
    ) -> Self {
        Self(Arc::new(ResponseStore {
            settings,
            keys,
            metrics,
            cache,
            clock,
        }))
    }

    /// Whether the operator enables the cache.
    pub(super) fn is_on(&self) -> bool {
        self.0.settings.enabled
    }

    /// Records that a request bypasses the cache, if the cache is on.
    pub(super) fn bypass(&self, context: &RequestContext) {
        if self.is_on() {
            self.note(context, CacheStatus::Bypass);
        }
    }

    /// Looks for the response to a request, as its `Cache-Control` permits.
    pub(super) async fn look_up(&self, request: &CacheableRequest<'_>) -> CacheLookup {
        let context = request.context;
        let key = is_storable(request.resolved, self.0.settings.max_temperature)
            .then(|| self.key(request))
            .flatten();
        let Some(key) = key else {
            self.bypass(context);
            return CacheLookup::default();
        };
        let may_read = !has_directive(context, "no-cache");
        if may_read && let Some(found) = self.find(&key, request).await {
            return CacheLookup {
                found: Some(Box::new(found)),
                recorder: None,
            };
        }
        self.note(
            context,
            match may_read {
                true => CacheStatus::Miss,
                false => CacheStatus::Bypass,
            },
        );
        let recorder = || Box::new(ResponseRecorder::new(self.0.clone(), key));
        CacheLookup {
            found: None,
            recorder: (!has_directive(context, "no-store")).then(recorder),
        }
    }

    fn key(&self, request: &CacheableRequest<'_>) -> Option<[u8; 32]> {
        let is_shared = self.0.settings.scope == ResponseScope::Shared;
        let scope = KeyScope {
            account: (!is_shared).then_some(request.account),
            payer: request.account,
            droppable: request.droppable,
            dropped: &request.context.dropped(),
        };
        key::key(&self.0.keys, request.plugins, &scope, request.resolved)
    }

    async fn find(&self, key: &[u8; 32], request: &CacheableRequest<'_>) -> Option<CachedResponse> {
        let (stored, age) = self.0.find(key).await?;
        let ResolvedRequest { model, allowed, .. } = request.resolved;
        let mut candidates = allowed.iter().map(|at| &model.candidates[*at]);
        let candidate = candidates.find(|candidate| {
            candidate.upstream().name == stored.provider && candidate.model == stored.model
        })?;
        let mut sequence = Sequence::new(stored.output_limit);
        let mut events = stored.events.iter();
        let followed = events.try_for_each(|event| sequence.follow(event));
        followed.and_then(|()| sequence.end()).ok()?;
        let slot = &candidate.upstream().adapter;
        let adapter = request.plugins.adapter_for(slot, request.account)?;
        self.note(request.context, CacheStatus::Hit { age });
        Some(CachedResponse {
            adapter_digest: adapter.component.code().digest.to_string(),
            price: candidate.price.clone(),
            percent: self.0.settings.price_percent,
            provider: stored.provider,
            output_limit: stored.output_limit,
            ignored: stored.ignored,
            events: stored.events,
            sequence,
        })
    }

    fn note(&self, context: &RequestContext, status: CacheStatus) {
        self.0.metrics.count(status.name());
        context.note_cache(status);
    }
}

/// Whether the response to a request may be stored.
fn is_storable(resolved: &ResolvedRequest, max_temperature: f64) -> bool {
    match &resolved.request {
        AdapterRequest::Other(_) => true,
        AdapterRequest::Task(request) => match &request.task {
            Task::Image(_) => false,
            Task::Chat(chat) => {
                chat.temperature.unwrap_or(DEFAULT_TEMPERATURE) <= max_temperature
                    && !resolved.model.makes_images()
                    && resolved.attachments.is_empty()
                    && is_text(chat)
            }
        },
    }
}

/// Whether a chat has only text, in its request and its response.
fn is_text(chat: &ChatRequest) -> bool {
    let mut parts = chat.messages.iter().flat_map(|message| &message.parts);
    let mut modalities = chat.modalities.iter();
    chat.tools.is_empty()
        && modalities.all(|modality| modality == "text")
        && parts.all(|part| {
            let content = &part.content;
            matches!(
                content,
                Content::Text(_) | Content::Reasoning(_) | Content::Refusal(_)
            )
        })
}

/// Whether the client's `Cache-Control` has this directive.
fn has_directive(context: &RequestContext, wanted: &str) -> bool {
    let directives = context
        .asked(&header::CACHE_CONTROL)
        .unwrap_or_default()
        .split(',');
    directives
        .map(str::trim)
        .any(|directive| directive.eq_ignore_ascii_case(wanted))
}
