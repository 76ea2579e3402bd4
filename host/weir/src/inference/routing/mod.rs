//! Which of a model's upstreams a request asks, and in which order.
//!
//! 1. Those that the client allows: all, or those that its header `x-weir-provider` names
//!    ([`resolve`](super::resolve)).
//! 2. By weight, or else in the order of the catalog ([`order`]); or those that a [filter](super::filters) has chosen, in
//!    its order, and nothing of what follows but the last.
//! 3. A conversation goes on where it is: with the provider whose signed or sealed reasoning it carries, else with who
//!    answered it last, where its prompt is in a cache. The client says what is one conversation, by its session, a
//!    `prompt_cache_key` or `metadata.user_id`; that counts within one account and model.
//! 4. Upstreams that failed recently, or asked for a pause, come last. The [circuit breaker](weir_upstream::breaker) skips those
//!    that still fail.
//!
//! **Invariant:** nothing that a client writes is kept: what it calls a conversation is hashed, with its account.

mod order;

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use weir_dialects::Conversation;
use weir_ledger::AccountId;
use weir_sandbox::adapter::bindings::adapter::Task;
use weir_storage::Cache;
use weir_storage::cache::Cached;
use weir_storage::ids::{self, Hex};
use weir_upstream::breaker::{Breakers, Standing};

use super::reasoning;
use super::resolve::Resolved;
use crate::catalog::{Candidate, Model};

/// How long it is remembered who answered a conversation last: as long as providers keep prompts in their caches at most.
const REMEMBERED: Duration = Duration::from_secs(3_600);

/// What routing knows. Cheap to clone.
#[derive(Clone)]
pub struct Routing {
    /// The breakers of all upstreams.
    pub breakers: Breakers,
    cache: Cache,
}

/// The upstreams that a request may ask, in order.
pub struct Route {
    model: Arc<Model>,
    order: Vec<usize>,
    affinity: Option<Affinity>,
}

/// Where a conversation is.
struct Affinity {
    /// Its name in the cache, from the next request on.
    name: String,
    /// Who will be asked first if nothing is remembered under that name.
    usual: Option<Arc<str>>,
}

impl Routing {
    /// Routing that shares what it learns through this cache.
    pub fn new(cache: Cache) -> Self {
        Self {
            breakers: Breakers::new(cache.clone()),
            cache,
        }
    }

    /// The way of a request among the candidates of its model that it may ask.
    pub async fn route(
        &self,
        account: &AccountId,
        resolved: &Resolved,
        conversation: &Conversation,
    ) -> Route {
        let Resolved {
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
        let Conversation { name, next } = conversation;
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
                // For how long does not matter here: those of one kind stay as they stand.
                Standing::Open(_) => Standing::Open(Duration::ZERO),
                standing => standing,
            }
        });
    }

    /// Notes who answered, for the conversation's next turn.
    pub async fn answered(&self, route: &Route, by: &Candidate) {
        let Some(affinity) = &route.affinity else {
            return;
        };
        let by = &by.key;
        if affinity.usual.as_ref() != Some(by) {
            // Whoever does not find it asks the usual one.
            let name = name_in_cache(&affinity.name);
            let _ = self.cache.put_value(&name, by.as_bytes(), REMEMBERED).await;
        }
    }

    async fn remembered(&self, name: &str) -> Option<String> {
        match self.cache.find_value(&name_in_cache(name)).await {
            Ok(Cached::Found(key)) => String::from_utf8(key).ok(),
            // Whether anybody is served without the cache was decided when they were identified.
            Ok(Cached::Absent(_)) | Err(_) => None,
        }
    }
}

impl Route {
    /// Those that may be asked, in order; never empty.
    pub fn candidates(&self) -> impl Iterator<Item = &Candidate> {
        let order = self.order.iter();
        order.map(|index| &self.model.candidates[*index])
    }

    /// Moves the first of this kind, if there is any, before all others.
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

/// A conversation's name as it may be kept: nobody can tell from it what was called so, or by whom.
fn hashed(name: &str, account: &AccountId, model: &str) -> String {
    let mut hasher = Sha256::new();
    for part in [&account.0, model, name] {
        // With its length, so that no two are one.
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    Hex(&hasher.finalize()).to_string()
}
