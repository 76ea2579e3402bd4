//! Admission control: a bounded number of concurrent requests, a short queue, and 503 beyond it.
//!
//! An account, an upstream and a slot each have a maximum share of the node's concurrent requests and body memory. A
//! slow or greedy client therefore leaves the rest to all other clients.
//!
//! **Invariant:** no account, upstream or slot exceeds its share, for any configuration of the node.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weir_errors::ApiError;
use weir_ledger::{AccountId, Plan};
use weir_upstream::Upstream;

use crate::shares::{Share, Shares};

/// Limits on concurrency: a part of `[limits]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdmissionLimits {
    /// Concurrent requests of the node, at most 8,192. Default: 512.
    pub concurrent_requests: NonZeroU32,
    /// Concurrent requests of an account by plan; more get 429. Default: `{ free = 8, guru = 32, pro = 128 }`.
    pub requests_per_account: RequestsPerAccount,
    /// Concurrent requests to a provider; more go to the model's next provider or get 503. Default: half of
    /// `concurrent_requests`.
    pub requests_per_upstream: Option<NonZeroU32>,
    /// Concurrent requests to all providers whose adapter is in one slot; more go to the next provider or get 503.
    /// Default: three quarters of `concurrent_requests`.
    pub requests_per_slot: Option<NonZeroU32>,
    /// Requests that wait for `concurrent_requests`; more get 503. Default: 512.
    pub queued_requests: u32,
    /// Milliseconds that a request waits before it gets 503. Default: 2,000.
    pub queue_timeout_ms: u64,
    /// MiB of all request bodies together; more wait and then get 503. Default: 512.
    pub all_bodies_mib: NonZeroU32,
    /// MiB of an account's request bodies together; more get 429. Default: a quarter of `all_bodies_mib`.
    pub bodies_per_account_mib: Option<NonZeroU32>,
}

/// Concurrent requests of one account, by plan.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RequestsPerAccount {
    /// On the plan `free`. Default 8.
    pub free: NonZeroU32,
    /// On the plan `guru`. Default 32.
    pub guru: NonZeroU32,
    /// On the plan `pro`. Default 128.
    pub pro: NonZeroU32,
}

impl Default for AdmissionLimits {
    fn default() -> Self {
        let default = NonZeroU32::new(512).expect("not zero");
        Self {
            concurrent_requests: default,
            requests_per_account: RequestsPerAccount::default(),
            requests_per_upstream: None,
            requests_per_slot: None,
            queued_requests: 512,
            queue_timeout_ms: 2_000,
            all_bodies_mib: default,
            bodies_per_account_mib: None,
        }
    }
}

impl Default for RequestsPerAccount {
    fn default() -> Self {
        let requests = |requests| NonZeroU32::new(requests).expect("not zero");
        Self {
            free: requests(8),
            guru: requests(32),
            pro: requests(128),
        }
    }
}

impl RequestsPerAccount {
    fn of(&self, plan: Plan) -> u32 {
        match plan {
            Plan::Free => self.free.get(),
            Plan::Guru => self.guru.get(),
            Plan::Pro => self.pro.get(),
        }
    }
}

impl AdmissionLimits {
    /// Returns the problems of the settings that their types do not exclude; each sentence names the setting.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.all_bodies_mib.get() > 1 << 20 {
            problems.push("`limits.all_bodies_mib` is more than 1 TiB".to_owned());
        }
        if self.concurrent_requests.get() > 8_192 {
            problems.push(format!(
                "`limits.concurrent_requests` is {}; the address space has no room for more than 8192 plugin instances",
                self.concurrent_requests
            ));
        }
        problems
    }
}

/// The semaphores for requests and for body memory.
pub struct Admission {
    limits: AdmissionLimits,
    turns: Arc<Semaphore>,
    account_turns: Arc<Shares>,
    upstream_turns: Arc<Shares>,
    slot_turns: Arc<Shares>,
    queued: AtomicU32,
    /// KiB of body memory.
    body_room: Arc<Semaphore>,
    /// KiB of body memory reserved for payment events.
    last_body_room: Arc<Semaphore>,
    body_shares: Arc<Shares>,
}

/// The permit of an admitted request, which guarantees a plugin instance. It is released on drop.
pub struct AdmissionPermit {
    _turn: OwnedSemaphorePermit,
    _share: Share,
}

/// The permit to send a request to an upstream. It is released on drop.
pub struct UpstreamPermit {
    _upstream: Share,
    _slot: Share,
}

/// KiB of body memory reserved for the payment processor's events.
const LAST_BODY_ROOM: usize = 8 << 10;

/// The memory of one body, which grows as the body arrives. It is released on drop.
pub struct BodyMemory<'a> {
    admission: &'a Admission,
    may_take_last: bool,
    held: BodyReservation,
}

/// Owned memory of a body, independent of the request.
#[derive(Default)]
pub struct BodyReservation {
    room: Option<OwnedSemaphorePermit>,
    last_room: Option<OwnedSemaphorePermit>,
    share: Option<Share>,
}

impl Admission {
    /// Returns the semaphores with the configured sizes.
    pub fn new(limits: &AdmissionLimits) -> Self {
        Self {
            turns: Arc::new(Semaphore::new(limits.concurrent_requests.get() as usize)),
            account_turns: Arc::default(),
            upstream_turns: Arc::default(),
            slot_turns: Arc::default(),
            queued: AtomicU32::new(0),
            body_room: Arc::new(Semaphore::new(limits.all_bodies_mib.get() as usize * 1024)),
            last_body_room: Arc::new(Semaphore::new(LAST_BODY_ROOM)),
            body_shares: Arc::default(),
            limits: limits.clone(),
        }
    }

    /// Waits for the permit of an account's request. Refuses the request if the account has its share already, if the
    /// queue is full, or after the queue timeout.
    pub async fn enter(
        &self,
        account: &AccountId,
        plan: Plan,
    ) -> Result<AdmissionPermit, ApiError> {
        let most = self.limits.requests_per_account.of(plan);
        let share = self.account_turns.take_one(&account.0, most);
        let share = share.ok_or_else(|| {
            ApiError::too_many_at_once(format!(
                "The plan {plan} allows {most} concurrent requests."
            ))
        })?;
        Ok(AdmissionPermit {
            _turn: self.turn().await?,
            _share: share,
        })
    }

    async fn turn(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        if let Ok(turn) = self.turns.clone().try_acquire_owned() {
            return Ok(turn);
        }
        let place = QueuePlace::take(&self.queued);
        if place.number >= self.limits.queued_requests {
            return Err(ApiError::overloaded());
        }
        self.in_time(self.turns.clone().acquire_owned()).await
    }

    /// The number of admitted requests.
    pub fn in_progress(&self) -> usize {
        let turns = self.limits.concurrent_requests.get() as usize;
        turns.saturating_sub(self.turns.available_permits())
    }

    /// The number of queued requests.
    pub fn queued(&self) -> u32 {
        self.queued.load(Ordering::Relaxed)
    }

    /// Returns the permit for an upstream; `None` if the upstream or its adapter's slot has its share already.
    pub fn place(&self, upstream: &Upstream) -> Option<UpstreamPermit> {
        let turns = self.limits.concurrent_requests.get();
        let most = |limit: Option<NonZeroU32>, default: u32| {
            limit.map_or(default.max(1), |limit| limit.get())
        };
        let at_upstream = most(self.limits.requests_per_upstream, turns / 2);
        let in_slot = most(self.limits.requests_per_slot, turns / 4 * 3);
        Some(UpstreamPermit {
            _upstream: self.upstream_turns.take_one(&upstream.name, at_upstream)?,
            _slot: self.slot_turns.take_one(&upstream.adapter, in_slot)?,
        })
    }

    /// Returns empty body memory for an account, or for a body without an account.
    pub fn body_room(&self, account: Option<&AccountId>) -> BodyMemory<'_> {
        let share = account.map(|account| self.body_shares.of(&account.0));
        BodyMemory {
            admission: self,
            may_take_last: false,
            held: BodyReservation {
                share,
                ..BodyReservation::default()
            },
        }
    }

    /// Returns empty body memory for a payment event, which may use the reserve.
    pub fn event_room(&self) -> BodyMemory<'_> {
        BodyMemory {
            may_take_last: true,
            ..self.body_room(None)
        }
    }

    /// Refuses a request that could not be queued, before weir reads or authenticates it.
    pub fn check_room(&self) -> Result<(), ApiError> {
        let is_full = self.turns.available_permits() == 0
            && self.queued.load(Ordering::Relaxed) >= self.limits.queued_requests;
        match is_full {
            true => Err(ApiError::overloaded()),
            false => Ok(()),
        }
    }

    async fn in_time(
        &self,
        permit: impl Future<Output = Result<OwnedSemaphorePermit, tokio::sync::AcquireError>>,
    ) -> Result<OwnedSemaphorePermit, ApiError> {
        let timeout = Duration::from_millis(self.limits.queue_timeout_ms);
        match tokio::time::timeout(timeout, permit).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(ApiError::overloaded()),
        }
    }
}

impl BodyMemory<'_> {
    /// Reserves memory up to a total number of bytes. Waits for it; refuses after the timeout, or if the account has
    /// its share already.
    pub async fn grow_to(&mut self, bytes: usize) -> Result<(), ApiError> {
        let Self {
            admission,
            may_take_last,
            held,
        } = self;
        let all = admission.limits.all_bodies_mib.get() * 1024;
        let quarter = (all / 4).max(1);
        let of_account = admission.limits.bodies_per_account_mib;
        let of_account = of_account.map_or(quarter, |mib| mib.get().saturating_mul(1024));
        let most = if held.share.is_some() {
            of_account.min(all)
        } else {
            all
        };
        // One body may take all memory, but not more, for any configured size.
        let wanted = u32::try_from(bytes.div_ceil(1024))
            .unwrap_or(u32::MAX)
            .min(most);
        let rooms = held.room.iter().chain(&held.last_room);
        let has: usize = rooms.map(OwnedSemaphorePermit::num_permits).sum();
        let more = wanted.saturating_sub(u32::try_from(has).unwrap_or(u32::MAX));
        if more == 0 {
            return Ok(());
        }
        if held
            .share
            .as_mut()
            .is_some_and(|share| !share.take(more, of_account))
        {
            return Err(ApiError::too_many_at_once(format!(
                "An account may send {} MiB of concurrent request bodies.",
                of_account / 1024
            )));
        }
        let room = admission.body_room.clone();
        let (room, held) = match room.clone().try_acquire_many_owned(more) {
            Ok(room) => (room, &mut held.room),
            Err(_) => {
                let last = may_take_last.then(|| admission.last_body_room.clone());
                match last.and_then(|last| last.try_acquire_many_owned(more).ok()) {
                    Some(room) => (room, &mut held.last_room),
                    None => {
                        let room = room.acquire_many_owned(more);
                        (admission.in_time(room).await?, &mut held.room)
                    }
                }
            }
        };
        match held {
            Some(held) => held.merge(room),
            none => *none = Some(room),
        }
        Ok(())
    }

    /// Returns the memory as an owned value, for a copy of the body.
    pub fn held(self) -> BodyReservation {
        self.held
    }
}

/// A place in the queue, released on drop: also if the client disconnects while the request waits.
struct QueuePlace<'a> {
    queued: &'a AtomicU32,
    number: u32,
}

impl<'a> QueuePlace<'a> {
    fn take(queued: &'a AtomicU32) -> Self {
        Self {
            number: queued.fetch_add(1, Ordering::Relaxed),
            queued,
        }
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        self.queued.fetch_sub(1, Ordering::Relaxed);
    }
}
