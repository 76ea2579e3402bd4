//! The choice and the order of upstreams for a request.
//!
//! 1. The candidates: all, or the providers in the client's header `x-weir-provider` ([`resolve`](super::resolve)).
//! 2. The order: by weight, or else as in the catalog ([`order`]); or by price, [recent performance](performance) or load,
//!    if the model's `route` or the client's header `x-weir-route` says so. If a [filter](super::filters) has chosen, only its
//!    order and the last rule below apply.
//! 3. A conversation stays with its provider: first the provider of its signed or sealed reasoning, else the provider
//!    of the last response, which has the prompt in a cache. The client identifies a conversation by its session, a
//!    `prompt_cache_key` or `metadata.user_id`; the identity counts within one account and model. Without one, weir draws
//!    by the beginning of a conversation that has a response, so that its turns have the same weighted order.
//! 4. Credentials of one provider are equally good: a conversation stays with one of them as well.
//! 5. Upstreams that requested a pause, refuse their credential, or are left alone after failures come last, in this order.
//!    The [circuit breaker](weir_upstream::breaker) skips upstreams that still fail.
//!
//! **Invariant:** the cache holds no client's text: weir hashes the name of a conversation with its account.

mod order;
pub mod performance;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use sha2::{Digest, Sha256};
use weir_catalog::config::RouteBy;
use weir_catalog::{Candidate, Model, PoolMember};
use weir_dialects::ConversationNames;
use weir_errors::ApiError;
use weir_ledger::AccountId;
use weir_ledger::price::PriceFactors;
use weir_ledger::pricing;
use weir_request::context::RequestContext;
use weir_sandbox::adapter::bindings::chat::{ChatRequest, Content, Role};
use weir_storage::Cache;
use weir_storage::cache::CachedValue;
use weir_storage::ids::{self, Hex};
use weir_upstream::breaker::{Breakers, UpstreamState};

use self::performance::Performance;
use super::reasoning;
use super::resolve::ResolvedRequest;

/// The header with which a client chooses the order of a model's providers.
const WANTED_ROUTE: HeaderName = HeaderName::from_static("x-weir-route");

/// The time for which weir remembers a conversation's provider: at most as long as providers cache prompts.
const REMEMBERED: Duration = Duration::from_secs(3_600);

/// The maximum bytes of each text that identify a conversation without a name.
const MAX_HASHED_BYTES: usize = 1_024;

/// The state of routing. Cheap to clone.
#[derive(Clone)]
pub struct Routing {
    /// The breakers of all upstreams.
    pub breakers: Breakers,
    /// The recent performance of all upstreams.
    pub performance: Performance,
    cache: Cache,
}

/// Returns the order that a client wants.
///
/// # Errors
///
/// 400 `INVALID_REQUEST` for an unknown name.
pub fn wanted(context: &RequestContext) -> Result<Option<RouteBy>, ApiError> {
    let Some(name) = context.asked(&WANTED_ROUTE) else {
        return Ok(None);
    };
    let mut all = RouteBy::ALL.into_iter();
    match all.find(|(known, _)| *known == name.trim()) {
        Some((_, by)) => Ok(Some(by)),
        None => {
            let names = RouteBy::ALL.map(|(name, _)| name).join(", ");
            let what = format!("It is one of: {names}.");
            Err(ApiError::invalid_request(WANTED_ROUTE.as_str(), what))
        }
    }
}

/// The allowed upstreams of a request, in order.
pub struct Route {
    model: Arc<Model>,
    /// Candidates and the members of their pools.
    order: Vec<(usize, usize)>,
    affinity: Option<Affinity>,
}

/// A place of a route: a candidate with one of its credentials.
#[derive(Debug, Clone, Copy)]
pub struct RoutedUpstream<'a> {
    /// The candidate.
    pub candidate: &'a Candidate,
    /// The credential.
    pub member: &'a PoolMember,
}

/// The affinity of a conversation.
struct Affinity {
    /// The conversation's name in the cache, from the next request on.
    name: String,
    /// The first upstream if the cache has no entry.
    usual: Option<Arc<str>>,
}

impl Routing {
    /// Returns routing with this shared cache and these breakers.
    pub fn new(cache: Cache, breakers: Breakers) -> Self {
        Self {
            breakers,
            performance: Performance::default(),
            cache,
        }
    }

    /// Orders the candidates of a request for an account with these price factors.
    pub async fn route(
        &self,
        account: &AccountId,
        resolved: &ResolvedRequest,
        conversation: &ConversationNames,
        by: RouteBy,
        factors: &PriceFactors,
    ) -> Route {
        let ResolvedRequest {
            model,
            allowed,
            is_ordered,
            request,
            ..
        } = resolved;
        let candidates = &model.candidates;
        let mut route = Route {
            model: model.clone(),
            order: Vec::new(),
            affinity: None,
        };
        if let [only] = allowed[..]
            && candidates[only].pool.len() == 1
        {
            route.order.push((only, 0));
            return route;
        }
        let hashed = |name: &String| hashed(name, account, &model.id);
        let ConversationNames { name, next } = conversation;
        let name = name.as_ref().map(hashed);
        let random = ids::unlike_any_other().to_be_bytes();
        let beginning = match (&name, request.chat()) {
            (None, Some(chat)) => beginning(chat, account, &model.id),
            _ => None,
        };
        let identity = name.as_ref().or(beginning.as_ref());
        let seed = identity.map_or(&random[..], |identity| identity.as_bytes());
        let ordered = match *is_ordered {
            true => allowed.clone(),
            false => order::order(candidates, allowed, seed),
        };
        route.order = ordered
            .into_iter()
            .flat_map(|index| {
                let pool = order::order_pool(&candidates[index], seed).into_iter();
                pool.map(move |member| (index, member))
            })
            .collect();
        if *is_ordered {
            self.put_open_last(&mut route, account);
            return route;
        }
        self.sort(&mut route, by, resolved, factors);
        let (first, member) = route.order[0];
        let usual = candidates[first].pool[member].key.clone();
        if let Some(name) = name {
            let remembered = self.remembered(&name).await;
            if let Some(key) = &remembered {
                route.prefer(|routed| *routed.member.key == **key);
            }
            let usual = remembered.is_none().then_some(usual);
            route.affinity = Some(Affinity { name, usual });
        }
        if let Some(next) = next {
            let name = hashed(next);
            route.affinity = Some(Affinity { name, usual: None });
        }
        if let Some(chat) = request.chat()
            && let Some(maker) = reasoning::latest_maker(chat)
        {
            route.prefer(|routed| routed.candidate.upstream().name == maker);
        }
        self.put_open_last(&mut route, account);
        route
    }

    /// Sorts a route; equal upstreams keep their order.
    fn sort(
        &self,
        Route { model, order, .. }: &mut Route,
        by: RouteBy,
        resolved: &ResolvedRequest,
        factors: &PriceFactors,
    ) {
        let bound = resolved.size.bound(&resolved.limits(), resolved.images);
        let performance = &self.performance;
        let score = |candidate: &Candidate, member: &PoolMember| match by {
            RouteBy::Weight => 0.0,
            RouteBy::Price => pricing::worst_case(&candidate.price, factors, &bound).micro() as f64,
            RouteBy::Latency => performance.expected(&member.key),
            RouteBy::Load => {
                let weight = candidate.weight.map_or(1, NonZeroU32::get);
                f64::from(performance.under_way(&member.key)) / f64::from(weight)
            }
        };
        let mut scored: Vec<_> = order
            .iter()
            .map(|(index, member)| {
                let candidate = &model.candidates[*index];
                let score = score(candidate, &candidate.pool[*member]);
                (score, (*index, *member))
            })
            .collect();
        scored.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        *order = scored.into_iter().map(|(_, place)| place).collect();
    }

    fn put_open_last(&self, Route { model, order, .. }: &mut Route, account: &AccountId) {
        order.sort_by_cached_key(|(index, member)| {
            let member = &model.candidates[*index].pool[*member];
            match self.breakers.standing(&member.key, account) {
                // The remaining time does not matter here: upstreams with equal standing keep their order.
                UpstreamState::Open(_) => UpstreamState::Open(Duration::ZERO),
                standing => standing,
            }
        });
    }

    /// Records the provider of a response for the conversation's next turn.
    pub async fn answered(&self, route: &Route, by: &PoolMember) {
        let Some(affinity) = &route.affinity else {
            return;
        };
        let by = &by.key;
        if affinity.usual.as_ref() != Some(by) {
            // If the entry is missing, the next request uses the usual upstream.
            let name = name_in_cache(&affinity.name);
            let _ = self.cache.put_value(&name, by.as_bytes(), REMEMBERED).await;
        }
    }

    async fn remembered(&self, name: &str) -> Option<String> {
        match self.cache.find_value(&name_in_cache(name)).await {
            Ok(CachedValue::Found(key)) => String::from_utf8(key).ok(),
            // Authentication has already decided whether weir serves requests without the cache.
            Ok(CachedValue::Absent(_)) | Err(_) => None,
        }
    }
}

impl Route {
    /// The allowed candidates in order, with each of their credentials; never empty.
    pub fn upstreams(&self) -> impl Iterator<Item = RoutedUpstream<'_>> {
        self.order.iter().map(|(index, member)| {
            let candidate = &self.model.candidates[*index];
            let member = &candidate.pool[*member];
            RoutedUpstream { candidate, member }
        })
    }

    /// Moves the first matching upstream, if any, to the front.
    fn prefer(&mut self, is_preferred: impl Fn(RoutedUpstream<'_>) -> bool) {
        let position = self.upstreams().position(is_preferred);
        if let Some(position) = position {
            self.order[..=position].rotate_right(1);
        }
    }
}

fn name_in_cache(hashed: &str) -> String {
    format!("conversation:{hashed}")
}

/// Hashes a conversation's name, so that the cache reveals neither the name nor the account.
fn hashed(name: &str, account: &AccountId, model: &str) -> String {
    hash_of([&account.0, model, name])
}

/// Hashes the beginning of a conversation, up to the first message of its user. Requests without a response of the model
/// are no conversation yet: many may begin alike, and the weights share them out.
fn beginning(chat: &ChatRequest, account: &AccountId, model: &str) -> Option<String> {
    let messages = &chat.messages;
    let is_of = |role: Role| messages.iter().position(|message| message.role == role);
    is_of(Role::Assistant)?;
    let first = is_of(Role::User)?;
    let parts = messages[..=first].iter().flat_map(|message| &message.parts);
    let texts = parts.filter_map(|part| match &part.content {
        Content::Text(text) => {
            let end = text.floor_char_boundary(MAX_HASHED_BYTES);
            Some(&text[..end])
        }
        _ => None,
    });
    Some(hash_of([&*account.0, model].into_iter().chain(texts)))
}

fn hash_of<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        // The length prefix keeps different pairs apart.
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    Hex(&hasher.finalize()).to_string()
}
