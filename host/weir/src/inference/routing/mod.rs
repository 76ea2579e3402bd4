//! The choice and the order of upstreams for a request.
//!
//! 1. The candidates: all, or the providers in the client's header `x-weir-provider` ([`resolve`](super::resolve)).
//! 2. The order: by weight, or else as in the catalog ([`order`]). If a [filter](super::filters) has chosen, only its
//!    order and the last rule below apply.
//! 3. A conversation stays with its provider: first the provider of its signed or sealed reasoning, else the provider
//!    of the last response, which has the prompt in a cache. The client identifies a conversation by its session, a
//!    `prompt_cache_key` or `metadata.user_id`; the identity counts within one account and model.
//! 4. Upstreams that failed recently, or requested a pause, come last. The [circuit breaker](weir_upstream::breaker)
//!    skips upstreams that still fail.
//!
//! **Invariant:** the cache holds no client's text: weir hashes the name of a conversation with its account.

mod order;

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use weir_dialects::ConversationNames;
use weir_ledger::AccountId;
use weir_sandbox::adapter::bindings::adapter::Task;
use weir_storage::Cache;
use weir_storage::cache::CachedValue;
use weir_storage::ids::{self, Hex};
use weir_upstream::breaker::{Breakers, UpstreamState};

use super::reasoning;
use super::resolve::ResolvedRequest;
use crate::catalog::{Candidate, Model};

/// The time for which weir remembers a conversation's provider: at most as long as providers cache prompts.
const REMEMBERED: Duration = Duration::from_secs(3_600);

/// The state of routing. Cheap to clone.
#[derive(Clone)]
pub struct Routing {
    /// The breakers of all upstreams.
    pub breakers: Breakers,
    cache: Cache,
}

/// The allowed upstreams of a request, in order.
pub struct Route {
    model: Arc<Model>,
    order: Vec<usize>,
    affinity: Option<Affinity>,
}

/// The affinity of a conversation.
struct Affinity {
    /// The conversation's name in the cache, from the next request on.
    name: String,
    /// The first upstream if the cache has no entry.
    usual: Option<Arc<str>>,
}

impl Routing {
    /// Returns routing with this shared cache.
    pub fn new(cache: Cache) -> Self {
        Self {
            breakers: Breakers::new(cache.clone()),
            cache,
        }
    }

    /// Orders the candidates of a request.
    pub async fn route(
        &self,
        account: &AccountId,
        resolved: &ResolvedRequest,
        conversation: &ConversationNames,
    ) -> Route {
        let ResolvedRequest {
            model,
            allowed,
            is_ordered,
            task,
            ..
        } = resolved;
        let mut route = Route {
            model: model.clone(),
            order: allowed.clone(),
            affinity: None,
        };
        if allowed.len() < 2 {
            return route;
        }
        if *is_ordered {
            self.put_open_last(&mut route);
            return route;
        }
        let candidates = &model.candidates;
        let hashed = |name: &String| hashed(name, account, &model.id);
        let ConversationNames { name, next } = conversation;
        let name = name.as_ref().map(hashed);
        let random = ids::unlike_any_other().to_be_bytes();
        let seed = name.as_ref().map_or(&random[..], |name| name.as_bytes());
        route.order = order::order(candidates, allowed, seed);
        let usual = candidates[route.order[0]].key.clone();
        if let Some(name) = name {
            let remembered = self.remembered(&name).await;
            if let Some(key) = &remembered {
                route.prefer(|candidate| *candidate.key == **key);
            }
            let usual = remembered.is_none().then_some(usual);
            route.affinity = Some(Affinity { name, usual });
        }
        if let Some(next) = next {
            let name = hashed(next);
            route.affinity = Some(Affinity { name, usual: None });
        }
        if let Task::Chat(request) = task
            && let Some(maker) = reasoning::latest_maker(request)
        {
            route.prefer(|candidate| candidate.upstream.name == maker);
        }
        self.put_open_last(&mut route);
        route
    }

    fn put_open_last(&self, Route { model, order, .. }: &mut Route) {
        order.sort_by_cached_key(|index| {
            match self.breakers.standing(&model.candidates[*index].key) {
                // The remaining time does not matter here: upstreams with equal standing keep their order.
                UpstreamState::Open(_) => UpstreamState::Open(Duration::ZERO),
                standing => standing,
            }
        });
    }

    /// Records the provider of a response for the conversation's next turn.
    pub async fn answered(&self, route: &Route, by: &Candidate) {
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
    /// The allowed candidates in order; never empty.
    pub fn candidates(&self) -> impl Iterator<Item = &Candidate> {
        let order = self.order.iter();
        order.map(|index| &self.model.candidates[*index])
    }

    /// Moves the first matching candidate, if any, to the front.
    fn prefer(&mut self, is_preferred: impl Fn(&Candidate) -> bool) {
        let position = self.candidates().position(is_preferred);
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
    let mut hasher = Sha256::new();
    for part in [&account.0, model, name] {
        // The length prefix keeps different pairs apart.
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    Hex(&hasher.finalize()).to_string()
}
