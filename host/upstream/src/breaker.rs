//! Circuit breakers: a failing upstream gets no requests for a while.
//!
//! Each upstream of a model has one, by the key of the catalog's candidate: one model of a provider can be overloaded
//! while its other models work. It opens after [`FAILURES`] failures in a row, for [`FIRST_PAUSE`]. Then one request
//! is let through at a time, in the upstream's usual place of the order; its success closes the breaker, its failure
//! opens it for twice as long, up to [`LONGEST_PAUSE`].
//!
//! Failures count twice: for their account, and for all accounts. The failures of one account open the breaker for that
//! account, and failures of two accounts open it for all.
//!
//! Nodes share breakers that are open for all through the cache, and poll it every second. If the cache does not
//! respond, each node uses only its own observations. Breakers of single accounts stay on their node: their number has
//! no bound that a poll could follow.
//!
//! **Invariant:** no single account opens a breaker for others by its requests: failures that a request can cause count
//! for all only together with another account's. Failures that no request can cause, such as a refused connection, count
//! by themselves.
//! **Invariant:** an upstream that sent `Retry-After`, or refuses its credential, is tried after all others, but stays
//! available to every client: the limit may apply only to one client's size of request, and no other upstream may be left.
//! **Invariant:** a pause that a provider requests never shortens an earlier, longer one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use weir_ledger::AccountId;
use weir_storage::Cache;
use weir_telemetry::label::LabelText;

use crate::error::LONGEST_RETRY_AFTER;

/// Failures in a row that open a breaker.
const FAILURES: u32 = 5;

/// Age beyond which a failure no longer counts toward the row.
const ROW: Duration = Duration::from_secs(60);

/// First duration of an open breaker.
const FIRST_PAUSE: Duration = Duration::from_secs(5);

/// Longest duration of an open breaker.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Retry delay for other requests while one request probes the upstream.
const PROBE_TIME: Duration = Duration::from_secs(1);

/// Maximum accounts with failures that a breaker counts by account. Failures of further accounts count for all only: by
/// then they have opened the breaker for all.
const MAX_ACCOUNTS: usize = 1_000;

/// First time for which a refused credential rests.
const FIRST_REFUSED_REST: Duration = Duration::from_secs(60);

/// Longest time for which a refused credential rests: an operator who pays an invoice waits no longer than this.
const LONGEST_REFUSED_REST: Duration = Duration::from_secs(15 * 60);

/// Time between two polls of the cache for other nodes' breakers.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The breakers of all upstreams. Cheap to clone.
#[derive(Clone)]
pub struct Breakers(Arc<BreakersInner>);

struct BreakersInner {
    /// Breakers of upstreams that have failed; a catalog's keys bound it.
    breakers: Mutex<HashMap<Arc<str>, Breaker>>,
    open: Family<Labels, Gauge>,
    open_accounts: Family<Labels, Gauge>,
    resting: Family<Labels, Gauge>,
    /// The upstreams that the metrics name.
    shown: Mutex<Vec<Arc<str>>>,
    refused: Family<Labels, Gauge>,
    cache: Cache,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    upstream: LabelText,
}

/// The finding of an attempt about an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptHealth {
    /// The upstream works, even if it rejects the request.
    Well,
    /// The upstream works and limits the rate, with its `Retry-After`.
    Limits(Option<Duration>),
    /// The upstream fails, or takes too long: the request may be the cause.
    Fails(Option<Duration>),
    /// The upstream is unreachable for any request.
    Unreachable,
    /// The upstream refuses the credential, or weir cannot obtain it.
    Refused,
    /// The attempt shows nothing.
    Unknown,
}

/// The state of an upstream at a moment; the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum UpstreamState {
    /// The upstream works, as far as is known, or the next request shows whether it works again.
    Well,
    /// The upstream limits the rate, and may be tried.
    Doubtful,
    /// The upstream refuses the credential, and may be tried if no other upstream is left.
    Refused,
    /// The upstream gets no requests of the account for this long.
    Open(Duration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BreakerStatus {
    /// The upstream works, as far as is known.
    #[default]
    Closed,
    /// The upstream limits the rate, and is tried after all others.
    Resting,
    /// The upstream refuses the credential, and is tried after all others.
    Refused,
    /// The next request, or one in progress, shows whether the upstream works again.
    HalfOpen,
    /// The upstream gets no requests.
    Open,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BreakerReading {
    pub status: BreakerStatus,
    /// The time until the status ends by itself, if it does.
    pub left: Option<Duration>,
    /// Failures in a row.
    pub failures: u32,
    /// The number of accounts for which alone it is open.
    pub open_accounts: usize,
}

/// The permission to send a request to an upstream.
pub struct Permit {
    breakers: Breakers,
    key: Arc<str>,
    account: AccountId,
    began: Instant,
    probe: Probe,
}

/// The questions that one request alone answers, by its outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Probe {
    /// Whether the upstream works again for all accounts.
    of_all: bool,
    /// Whether it works again for the request's account.
    of_account: bool,
    /// Whether it accepts the credential again.
    of_credential: bool,
}

#[derive(Debug, Default)]
struct Breaker {
    /// The failures of all accounts.
    all: FailureRow,
    /// The failures of the row that no request can have caused.
    unreachable: u32,
    /// The account of the row's first failure, and whether other accounts have failed as well.
    account: Option<AccountId>,
    of_several: bool,
    accounts: HashMap<AccountId, FailureRow>,
    rests_until: Option<Instant>,
    refused: Option<RefusedCredential>,
}

/// Failures in a row, and the pause after them.
#[derive(Debug, Default)]
struct FailureRow {
    failures: u32,
    last_failure: Option<Instant>,
    open: Option<OpenBreaker>,
}

#[derive(Debug, Clone, Copy)]
struct OpenBreaker {
    until: Instant,
    pause: Duration,
    is_probed: bool,
    /// Other nodes know of the open breaker: if one of them closes it, the cache entry is gone.
    is_shared: bool,
}

#[derive(Debug, Clone, Copy)]
struct RefusedCredential {
    probe_at: Instant,
    rest: Duration,
    is_probed: bool,
}

/// The change that a poll or an outcome has caused.
#[derive(Debug, Clone, PartialEq, Eq)]
enum BreakerChange {
    Opened(Duration),
    OpenedFor(AccountId, Duration),
    Closed,
}

impl FailureRow {
    /// Counts the failure of an attempt that began at this time, and returns whether it is the first of a row.
    ///
    /// A row ends by time between a failure and the next attempt's begin: a provider that hangs fails slowly, so that its
    /// failures alone can be further apart.
    fn count(&mut self, began: Instant, now: Instant) -> bool {
        let age = |last| began.saturating_duration_since(last);
        let is_stale = self.last_failure.is_none_or(|last| age(last) > ROW);
        let is_first = is_stale && self.open.is_none();
        if is_first {
            self.failures = 0;
        }
        self.last_failure = Some(now);
        self.failures = self.failures.saturating_add(1);
        is_first
    }

    /// Opens after a failure if enough have come (`is_due`) or the probe has failed. Returns the pause.
    fn open(&mut self, is_due: bool, is_probe: bool, now: Instant) -> Option<Duration> {
        let pause = match &self.open {
            // An attempt from before the opening shows nothing new.
            Some(_) if !is_probe => return None,
            Some(open) => (open.pause * 2).min(LONGEST_PAUSE),
            None if is_due => FIRST_PAUSE,
            None => return None,
        };
        self.open = Some(OpenBreaker {
            until: now + pause,
            pause,
            is_probed: false,
            is_shared: false,
        });
        Some(pause)
    }

    /// Returns the time for which no request is allowed.
    fn closed_for(&self, now: Instant) -> Option<Duration> {
        match &self.open {
            Some(open) if open.until > now => Some(open.until - now),
            Some(open) if open.is_probed => Some(PROBE_TIME),
            _ => None,
        }
    }

    /// Lets a request through, and returns whether it is the probe.
    fn enter(&mut self) -> bool {
        if let Some(open) = &mut self.open {
            open.is_probed = true;
        }
        self.open.is_some()
    }

    fn end_probe(&mut self) {
        if let Some(open) = &mut self.open {
            open.is_probed = false;
        }
    }

    /// Whether the row still matters.
    fn is_current(&self, now: Instant) -> bool {
        let failed = self.last_failure.is_some_and(|last| now - last <= ROW);
        let open = self.open.as_ref();
        failed || open.is_some_and(|open| open.is_probed || open.until + LONGEST_PAUSE > now)
    }
}

impl RefusedCredential {
    fn is_resting(&self, now: Instant) -> bool {
        self.is_probed || self.probe_at > now
    }
}

impl Breaker {
    fn standing(&self, account: &AccountId, now: Instant) -> UpstreamState {
        let of_account = self.accounts.get(account);
        let of_account = of_account.and_then(|row| row.closed_for(now));
        // The longer of both: an absent time is the least.
        if let Some(left) = self.all.closed_for(now).max(of_account) {
            return UpstreamState::Open(left);
        }
        let is_refused = |refused: &RefusedCredential| refused.is_resting(now);
        if self.refused.as_ref().is_some_and(is_refused) {
            UpstreamState::Refused
        } else if self.rests_until.is_some_and(|until| until > now) {
            UpstreamState::Doubtful
        } else {
            UpstreamState::Well
        }
    }

    fn reading(&self, now: Instant) -> BreakerReading {
        let left = |until: Instant| {
            let left = until.saturating_duration_since(now);
            (!left.is_zero()).then_some(left)
        };
        let (status, left) = match (&self.all.open, &self.refused, self.rests_until) {
            (Some(open), ..) if open.until > now => (BreakerStatus::Open, left(open.until)),
            (Some(_), ..) => (BreakerStatus::HalfOpen, None),
            (None, Some(refused), _) => (BreakerStatus::Refused, left(refused.probe_at)),
            (None, None, Some(until)) if until > now => (BreakerStatus::Resting, left(until)),
            (None, None, _) => (BreakerStatus::Closed, None),
        };
        let accounts = self.accounts.values();
        let open = accounts.filter(|row| row.open.is_some() && row.is_current(now));
        BreakerReading {
            status,
            left,
            failures: self.all.failures,
            open_accounts: open.count(),
        }
    }

    /// Returns what the next request of an account probes, or the time for which none is allowed.
    fn enter(&mut self, account: &AccountId, now: Instant) -> Result<Probe, Duration> {
        if let UpstreamState::Open(left) = self.standing(account, now) {
            return Err(left);
        }
        let of_account = self.accounts.get_mut(account);
        let refused = self.refused.as_mut();
        let refused = refused.filter(|refused| !refused.is_resting(now));
        Ok(Probe {
            of_all: self.all.enter(),
            of_account: of_account.is_some_and(FailureRow::enter),
            of_credential: refused.is_some_and(|refused| {
                refused.is_probed = true;
                true
            }),
        })
    }

    /// Ends a probe without a finding: the next request probes.
    fn end_probe(&mut self, probe: Probe, account: &AccountId) {
        if probe.of_all {
            self.all.end_probe();
        }
        if probe.of_account
            && let Some(row) = self.accounts.get_mut(account)
        {
            row.end_probe();
        }
        if probe.of_credential
            && let Some(refused) = &mut self.refused
        {
            refused.is_probed = false;
        }
    }

    /// Notes the finding of an account's attempt that began at this time.
    fn note(
        &mut self,
        health: AttemptHealth,
        probe: Probe,
        account: &AccountId,
        began: Instant,
        now: Instant,
    ) -> Option<BreakerChange> {
        self.end_probe(probe, account);
        match health {
            AttemptHealth::Unknown => None,
            AttemptHealth::Well | AttemptHealth::Limits(_) => {
                // A served request says nothing about a requested pause.
                if let AttemptHealth::Limits(rest) = health {
                    self.rest(rest, now);
                }
                self.refused = None;
                self.accounts.remove(account);
                self.close().then_some(BreakerChange::Closed)
            }
            AttemptHealth::Fails(rest) => {
                self.rest(rest, now);
                self.fail(false, probe, account, began, now)
            }
            AttemptHealth::Unreachable => self.fail(true, probe, account, began, now),
            AttemptHealth::Refused => {
                self.refuse(probe.of_credential, now);
                None
            }
        }
    }

    /// Ends the row of all accounts, and returns whether the breaker was open for all.
    fn close(&mut self) -> bool {
        let was_open = self.all.open.is_some();
        self.all = FailureRow::default();
        self.unreachable = 0;
        (self.account, self.of_several) = (None, false);
        was_open
    }

    fn rest(&mut self, rest: Option<Duration>, now: Instant) {
        // The later end counts: an absent one is the least.
        let until = rest.map(|rest| now + rest.min(LONGEST_RETRY_AFTER));
        self.rests_until = self.rests_until.max(until);
    }

    fn refuse(&mut self, is_probe: bool, now: Instant) {
        let rest = match &self.refused {
            // A request that no other upstream could serve shows nothing new.
            Some(_) if !is_probe => return,
            Some(refused) => (refused.rest * 2).min(LONGEST_REFUSED_REST),
            None => FIRST_REFUSED_REST,
        };
        self.refused = Some(RefusedCredential {
            probe_at: now + rest,
            rest,
            is_probed: false,
        });
    }

    fn fail(
        &mut self,
        is_unreachable: bool,
        probe: Probe,
        account: &AccountId,
        began: Instant,
        now: Instant,
    ) -> Option<BreakerChange> {
        if self.all.count(began, now) {
            self.unreachable = 0;
            (self.account, self.of_several) = (None, false);
        }
        self.unreachable += u32::from(is_unreachable);
        self.of_several |= self.account.get_or_insert_with(|| account.clone()) != account;
        let is_due =
            self.unreachable >= FAILURES || self.all.failures >= FAILURES && self.of_several;
        let of_all = self.all.open(is_due, probe.of_all, now);
        let row = self.row_of(account, now);
        let of_account = row.and_then(|row| {
            row.count(began, now);
            // A breaker that is open for all needs none for the account.
            let is_due = row.failures >= FAILURES && of_all.is_none();
            row.open(is_due, probe.of_account, now)
        });
        match (of_all, of_account) {
            (Some(pause), _) => Some(BreakerChange::Opened(pause)),
            (None, Some(pause)) => Some(BreakerChange::OpenedFor(account.clone(), pause)),
            (None, None) => None,
        }
    }

    /// Returns the failures of an account, unless too many accounts have some.
    fn row_of(&mut self, account: &AccountId, now: Instant) -> Option<&mut FailureRow> {
        if self.accounts.len() >= MAX_ACCOUNTS && !self.accounts.contains_key(account) {
            self.accounts.retain(|_, row| row.is_current(now));
            if self.accounts.len() >= MAX_ACCOUNTS {
                return None;
            }
        }
        Some(self.accounts.entry(account.clone()).or_default())
    }

    /// Applies other nodes' state: open for this long, or closed.
    fn hear(&mut self, left: Option<Duration>, now: Instant) -> Option<BreakerChange> {
        match (left, &mut self.all.open) {
            (Some(left), None) => {
                self.all.open = Some(OpenBreaker {
                    until: now + left,
                    pause: FIRST_PAUSE.max(left),
                    is_probed: false,
                    is_shared: true,
                });
                Some(BreakerChange::Opened(left))
            }
            (Some(left), Some(open)) => {
                open.is_shared = true;
                // Another node's probe has failed.
                open.until = open.until.max(now + left);
                None
            }
            // Another node has closed it before its end: an expired breaker would wait for a probe instead.
            (None, Some(open)) if open.is_shared && open.until > now + PROBE_TIME => {
                self.close();
                Some(BreakerChange::Closed)
            }
            (None, _) => None,
        }
    }
}

impl Breakers {
    /// Closed breakers. Openings are announced to other nodes through this cache.
    pub fn new(cache: Cache) -> Self {
        Self(Arc::new(BreakersInner {
            breakers: Mutex::default(),
            open: Family::default(),
            open_accounts: Family::default(),
            resting: Family::default(),
            shown: Mutex::default(),
            refused: Family::default(),
            cache,
        }))
    }

    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "upstream_breaker_open",
            "Open circuit breakers of upstreams (1 = open), by provider, credential and model there",
            self.0.open.clone(),
        );
        registry.register(
            "upstream_breaker_open_accounts",
            "Accounts for which alone a circuit breaker is open, by provider, credential and model there",
            self.0.open_accounts.clone(),
        );
        registry.register(
            "upstream_resting",
            "Upstreams that limit the rate, and are tried last (1 = resting), by provider, credential and model there",
            self.0.resting.clone(),
        );
        registry.register(
            "upstream_credential_refused",
            "Upstreams that refuse the credential, and are tried last (1 = refused), by provider, credential and model there",
            self.0.refused.clone(),
        );
    }

    /// Returns the reading of an upstream's breaker.
    pub fn reading(&self, key: &str) -> BreakerReading {
        let now = Instant::now();
        let breakers = self.lock();
        let reading = breakers.get(key).map(|breaker| breaker.reading(now));
        reading.unwrap_or_default()
    }

    /// Sets the metrics of all upstreams. Those of upstreams that a reload has removed go: an alert would stay for ever.
    pub fn show(&self, keys: &[Arc<str>]) {
        let labels = |key: &Arc<str>| Labels {
            upstream: (&**key).into(),
        };
        let mut shown = self.0.shown.lock().unwrap_or_else(PoisonError::into_inner);
        for key in shown.iter().filter(|key| !keys.contains(key)) {
            let inner = &self.0;
            for family in [
                &inner.open,
                &inner.open_accounts,
                &inner.resting,
                &inner.refused,
            ] {
                family.remove(&labels(key));
            }
        }
        *shown = keys.to_vec();
        for key in keys {
            let labels = labels(key);
            let reading = self.reading(key);
            let status = reading.status;
            let is_open = matches!(status, BreakerStatus::Open | BreakerStatus::HalfOpen);
            let is_resting = status == BreakerStatus::Resting;
            let is_refused = status == BreakerStatus::Refused;
            let accounts = i64::try_from(reading.open_accounts).unwrap_or(i64::MAX);
            let inner = &self.0;
            inner.open.get_or_create(&labels).set(is_open.into());
            inner.open_accounts.get_or_create(&labels).set(accounts);
            inner.resting.get_or_create(&labels).set(is_resting.into());
            inner.refused.get_or_create(&labels).set(is_refused.into());
        }
    }

    pub fn standing(&self, key: &str, account: &AccountId) -> UpstreamState {
        let now = Instant::now();
        self.lock().get(key).map_or(UpstreamState::Well, |breaker| {
            breaker.standing(account, now)
        })
    }

    /// Permits a request of an account to an upstream, or returns the time for which none is allowed.
    pub fn enter(&self, key: &Arc<str>, account: &AccountId) -> Result<Permit, Duration> {
        let began = Instant::now();
        let probe = match self.lock().get_mut(key) {
            None => Probe::default(),
            Some(breaker) => breaker.enter(account, began)?,
        };
        Ok(Permit {
            breakers: self.clone(),
            key: key.clone(),
            account: account.clone(),
            began,
            probe,
        })
    }

    /// Tries an upstream in its usual place again, because its credential has changed.
    pub fn note_new_credential(&self, key: &str) {
        if let Some(breaker) = self.lock().get_mut(key) {
            breaker.refused = None;
        }
    }

    /// Polls for other nodes' breakers, for ever. `keys` lists all upstreams.
    pub async fn follow(self, keys: impl Fn() -> Vec<Arc<str>>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let keys = keys();
            let left = match self.0.cache.pauses(&keys).await {
                Ok(Some(left)) => left,
                Ok(None) => return,
                Err(_) => continue,
            };
            let mut changed = Vec::new();
            {
                let (mut breakers, now) = (self.lock(), Instant::now());
                breakers.retain(|key, _| keys.contains(key));
                for (key, left) in keys.into_iter().zip(left) {
                    if left.is_none() && !breakers.contains_key(&key) {
                        continue;
                    }
                    let change = breakers.entry(key.clone()).or_default().hear(left, now);
                    changed.extend(change.map(|change| (key, change)));
                }
            }
            for (key, change) in changed {
                self.report(&key, &change, "another node");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Breaker>> {
        let breakers = self.0.breakers.lock();
        breakers.unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, key: &str, change: &BreakerChange, by: &str) {
        match change {
            BreakerChange::Opened(pause) => {
                let seconds = pause.as_secs();
                tracing::warn!(upstream = key, seconds, by, "an upstream's breaker opens");
            }
            BreakerChange::OpenedFor(account, pause) => {
                let (account, seconds) = (&account.0, pause.as_secs());
                tracing::warn!(
                    upstream = key,
                    account,
                    seconds,
                    "an upstream's breaker opens for an account"
                );
            }
            BreakerChange::Closed => {
                tracing::info!(upstream = key, by, "an upstream's breaker closes");
            }
        }
    }

    async fn share(self, key: Arc<str>, change: BreakerChange) {
        match change {
            BreakerChange::Closed => {
                // A node that misses the message finds out by its own probe.
                let _ = self.0.cache.resume(&key).await;
            }
            BreakerChange::Opened(pause) => {
                if self.0.cache.pause(&key, pause).await.is_ok()
                    && let Some(breaker) = self.lock().get_mut(&key)
                    && let Some(open) = &mut breaker.all.open
                {
                    open.is_shared = true;
                }
            }
            BreakerChange::OpenedFor(..) => {}
        }
    }
}

impl Permit {
    pub fn note(&mut self, health: AttemptHealth) {
        let probe = std::mem::take(&mut self.probe);
        let change = {
            let mut breakers = self.breakers.lock();
            // Working upstreams need no entry.
            if matches!(health, AttemptHealth::Well | AttemptHealth::Unknown)
                && !breakers.contains_key(&self.key)
            {
                return;
            }
            let breaker = breakers.entry(self.key.clone()).or_default();
            breaker.note(health, probe, &self.account, self.began, Instant::now())
        };
        if let Some(change) = change {
            self.breakers.report(&self.key, &change, "this node");
            tokio::spawn(self.breakers.clone().share(self.key.clone(), change));
        }
    }
}

impl Drop for Permit {
    /// A probe that is dropped without a finding leaves the probe to the next request.
    fn drop(&mut self) {
        if self.probe != Probe::default()
            && let Some(breaker) = self.breakers.lock().get_mut(&self.key)
        {
            breaker.end_probe(self.probe, &self.account);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Case {
        breaker: Breaker,
        now: Instant,
    }

    impl Case {
        fn new() -> Self {
            Self {
                breaker: Breaker::default(),
                now: Instant::now(),
            }
        }

        fn after(&mut self, time: Duration) -> &mut Self {
            self.now += time;
            self
        }

        /// An attempt of an account, if one is allowed.
        fn attempt(
            &mut self,
            account: &str,
            health: AttemptHealth,
        ) -> Result<Option<BreakerChange>, Duration> {
            self.slow_attempt(account, Duration::ZERO, health)
        }

        /// An attempt of an account that takes this long, if one is allowed.
        fn slow_attempt(
            &mut self,
            account: &str,
            takes: Duration,
            health: AttemptHealth,
        ) -> Result<Option<BreakerChange>, Duration> {
            let (account, began) = (account_id(account), self.now);
            let probe = self.breaker.enter(&account, began)?;
            self.now += takes;
            Ok(self.breaker.note(health, probe, &account, began, self.now))
        }

        /// The state for an account without failures of its own.
        fn standing(&self) -> UpstreamState {
            self.breaker.standing(&account_id("other"), self.now)
        }

        fn attempts(
            &mut self,
            accounts: &[&str],
            health: AttemptHealth,
        ) -> Vec<Option<BreakerChange>> {
            let attempt = |account: &&str| self.attempt(account, health).expect("allowed");
            accounts.iter().map(attempt).collect()
        }
    }

    const FAILS: AttemptHealth = AttemptHealth::Fails(None);

    const NOTHING: [Option<BreakerChange>; 4] = [const { None }; 4];

    fn account_id(name: &str) -> AccountId {
        AccountId(name.to_owned())
    }

    #[test]
    fn one_accounts_failures_open_it_for_that_account_and_anothers_for_all() {
        let mut case = Case::new();
        assert_eq!(case.attempts(&["a"; 4], FAILS), NOTHING);
        assert_eq!(
            case.attempt("a", FAILS),
            Ok(Some(BreakerChange::OpenedFor(account_id("a"), FIRST_PAUSE)))
        );
        assert_eq!(case.attempt("a", FAILS), Err(FIRST_PAUSE));
        assert_eq!(case.standing(), UpstreamState::Well);
        let reading = case.breaker.reading(case.now);
        assert_eq!(
            (reading.status, reading.open_accounts),
            (BreakerStatus::Closed, 1)
        );
        assert_eq!(
            case.attempt("b", FAILS),
            Ok(Some(BreakerChange::Opened(FIRST_PAUSE)))
        );
        assert_eq!(case.attempt("c", AttemptHealth::Well), Err(FIRST_PAUSE));
    }

    #[test]
    fn another_accounts_success_leaves_it_open_for_the_account() {
        let mut case = Case::new();
        case.attempts(&["a"; 5], FAILS);
        assert_eq!(case.attempt("b", AttemptHealth::Well), Ok(None));
        assert_eq!(case.attempt("a", FAILS), Err(FIRST_PAUSE));
        case.after(FIRST_PAUSE);
        let account = account_id("a");
        let probe = case.breaker.enter(&account, case.now).expect("it is due");
        assert!(probe.of_account && !probe.of_all, "{probe:?}");
        assert_eq!(case.attempt("a", FAILS), Err(PROBE_TIME), "one at a time");
        assert_eq!(case.attempt("b", AttemptHealth::Well), Ok(None));
        let well = AttemptHealth::Well;
        case.breaker.note(well, probe, &account, case.now, case.now);
        assert_eq!(case.attempt("a", FAILS), Ok(None), "the row begins anew");
    }

    #[test]
    fn slow_failures_of_one_client_open_it() {
        let mut case = Case::new();
        let takes = ROW * 2;
        for _ in 0..4 {
            assert_eq!(case.slow_attempt("a", takes, FAILS), Ok(None));
        }
        let change = case.slow_attempt("a", takes, FAILS);
        let opened = BreakerChange::OpenedFor(account_id("a"), FIRST_PAUSE);
        assert_eq!(change, Ok(Some(opened)));
    }

    #[test]
    fn the_accounts_of_a_breaker_are_bounded() {
        let mut case = Case::new();
        for index in 0..2 * MAX_ACCOUNTS {
            let account = account_id(&index.to_string());
            let (probe, now) = (Probe::default(), case.now);
            case.breaker.note(FAILS, probe, &account, now, now);
        }
        assert_eq!(case.breaker.accounts.len(), MAX_ACCOUNTS);
        case.after(ROW + LONGEST_PAUSE);
        let (probe, now) = (Probe::default(), case.now);
        case.breaker
            .note(FAILS, probe, &account_id("new"), now, now);
        assert_eq!(case.breaker.accounts.len(), 1);
    }

    #[test]
    fn a_refused_credential_rests_until_one_probe_succeeds() {
        let mut case = Case::new();
        let refused = AttemptHealth::Refused;
        let mut rest = FIRST_REFUSED_REST;
        assert_eq!(case.attempt("a", refused), Ok(None));
        for _ in 0..6 {
            assert_eq!(case.standing(), UpstreamState::Refused);
            let reading = case.breaker.reading(case.now);
            assert_eq!(
                (reading.status, reading.left),
                (BreakerStatus::Refused, Some(rest))
            );
            // A request that no other upstream can serve changes nothing.
            assert_eq!(case.attempt("b", refused), Ok(None));
            case.after(rest);
            assert_eq!(case.standing(), UpstreamState::Well, "a probe is due");
            let account = account_id("a");
            let probe = case.breaker.enter(&account, case.now).expect("allowed");
            assert!(probe.of_credential);
            assert_eq!(case.standing(), UpstreamState::Refused, "one at a time");
            case.breaker
                .note(refused, probe, &account, case.now, case.now);
            rest = (rest * 2).min(LONGEST_REFUSED_REST);
        }
        assert_eq!(rest, LONGEST_REFUSED_REST);
        case.after(rest);
        assert_eq!(case.attempt("a", AttemptHealth::Well), Ok(None));
        assert_eq!(case.breaker.reading(case.now).status, BreakerStatus::Closed);
    }

    #[test]
    fn a_later_pause_never_shortens_a_longer_one() {
        let (long, short) = (Duration::from_secs(50), Duration::from_secs(1));
        for later in [
            AttemptHealth::Limits(Some(short)),
            AttemptHealth::Limits(None),
            AttemptHealth::Fails(Some(short)),
            AttemptHealth::Well,
        ] {
            let mut case = Case::new();
            case.attempts(&["a"], AttemptHealth::Limits(Some(long)));
            case.attempts(&["b"], later);
            case.after(long - short);
            assert_eq!(case.standing(), UpstreamState::Doubtful, "{later:?}");
            case.after(short);
            assert_eq!(case.standing(), UpstreamState::Well, "{later:?}");
        }
    }

    #[test]
    fn a_requested_pause_is_bounded() {
        let mut case = Case::new();
        let weeks = Duration::from_secs(49 * 86_400);
        case.attempts(&["a"], AttemptHealth::Limits(Some(weeks)));
        let left = case.breaker.reading(case.now).left;
        assert_eq!(left, Some(LONGEST_RETRY_AFTER));
    }

    #[test]
    fn what_no_request_can_bring_about_opens_it_whoever_asks() {
        let mut case = Case::new();
        assert_eq!(
            case.attempts(&["a"; 4], AttemptHealth::Unreachable),
            NOTHING
        );
        assert_eq!(
            case.attempt("a", AttemptHealth::Unreachable),
            Ok(Some(BreakerChange::Opened(FIRST_PAUSE)))
        );
    }

    #[test]
    fn a_success_or_a_minute_ends_a_row() {
        for pause in [None, Some(ROW + Duration::from_millis(1))] {
            let mut case = Case::new();
            case.attempts(&["a", "b", "a", "b"], FAILS);
            match pause {
                None => assert_eq!(case.attempt("a", AttemptHealth::Well), Ok(None)),
                Some(pause) => {
                    case.after(pause);
                }
            }
            assert_eq!(case.attempts(&["a", "b", "a", "b"], FAILS), NOTHING);
            assert!(case.attempts(&["a"], FAILS)[0].is_some());
        }
    }

    #[test]
    fn one_request_tries_and_its_outcome_is_for_all() {
        let mut case = Case::new();
        case.attempts(&["a", "b", "a", "b", "a"], FAILS);
        case.after(FIRST_PAUSE);
        // Its usual place, so that a request reaches it although another upstream works.
        assert_eq!(case.standing(), UpstreamState::Well);
        let account = account_id("a");
        let probe = case.breaker.enter(&account, case.now).expect("allowed");
        assert!(probe.of_all);
        assert_eq!(case.breaker.enter(&account, case.now), Err(PROBE_TIME));
        let change = case
            .breaker
            .note(FAILS, probe, &account, case.now, case.now);
        assert_eq!(change, Some(BreakerChange::Opened(FIRST_PAUSE * 2)));
        case.after(FIRST_PAUSE * 2);
        assert_eq!(
            case.attempt("a", AttemptHealth::Well),
            Ok(Some(BreakerChange::Closed))
        );
        assert_eq!(case.standing(), UpstreamState::Well);
        // The count begins anew.
        assert_eq!(case.attempts(&["a", "b", "a", "b"], FAILS), NOTHING);
    }

    #[test]
    fn a_reading_tells_an_open_breaker_from_one_that_probes_and_one_that_rests() {
        let mut case = Case::new();
        let read = |case: &Case| {
            let reading = case.breaker.reading(case.now);
            (reading.status, reading.left, reading.failures)
        };
        assert_eq!(read(&case), (BreakerStatus::Closed, None, 0));
        case.attempts(&["a", "b", "a", "b", "a"], FAILS);
        assert_eq!(read(&case), (BreakerStatus::Open, Some(FIRST_PAUSE), 5));
        case.after(FIRST_PAUSE);
        assert_eq!(read(&case), (BreakerStatus::HalfOpen, None, 5));
        let account = account_id("a");
        let probe = case.breaker.enter(&account, case.now).expect("allowed");
        assert_eq!(read(&case).0, BreakerStatus::HalfOpen);
        let rest = Duration::from_secs(30);
        let limits = AttemptHealth::Limits(Some(rest));
        case.breaker
            .note(limits, probe, &account, case.now, case.now);
        assert_eq!(read(&case), (BreakerStatus::Resting, Some(rest), 0));
        case.after(rest);
        assert_eq!(read(&case), (BreakerStatus::Closed, None, 0));
    }

    #[test]
    fn a_pause_has_a_longest() {
        let mut case = Case::new();
        case.attempts(&["a", "b", "a", "b", "a"], FAILS);
        let mut last = FIRST_PAUSE;
        for _ in 0..10 {
            case.after(last);
            let Ok(Some(BreakerChange::Opened(pause))) = case.attempt("a", FAILS) else {
                panic!("it opens again");
            };
            last = pause;
        }
        assert_eq!(last, LONGEST_PAUSE);
    }

    #[test]
    fn who_asks_to_be_left_alone_is_doubtful_until_then_and_refused_to_nobody() {
        let mut case = Case::new();
        let rest = Duration::from_secs(30);
        assert_eq!(
            case.attempt("a", AttemptHealth::Limits(Some(rest))),
            Ok(None)
        );
        assert_eq!(case.standing(), UpstreamState::Doubtful);
        assert_eq!(case.attempt("b", AttemptHealth::Well), Ok(None));
        assert_eq!(case.standing(), UpstreamState::Doubtful);
        case.after(rest);
        assert_eq!(case.standing(), UpstreamState::Well);
    }

    #[test]
    fn what_another_node_has_learnt_holds_here() {
        let mut case = Case::new();
        let left = Duration::from_secs(4);
        assert_eq!(
            case.breaker.hear(Some(left), case.now),
            Some(BreakerChange::Opened(left))
        );
        assert_eq!(case.attempt("a", AttemptHealth::Well), Err(left));
        assert_eq!(
            case.breaker.hear(None, case.now),
            Some(BreakerChange::Closed),
            "closed there before its time"
        );
        case.breaker.hear(Some(left), case.now);
        case.after(left);
        assert_eq!(case.breaker.hear(None, case.now), None, "over");
        assert_eq!(
            case.breaker.reading(case.now).status,
            BreakerStatus::HalfOpen
        );
    }

    #[test]
    fn what_other_nodes_were_not_told_yet_stays_open() {
        let mut case = Case::new();
        case.attempts(&["a", "b", "a", "b", "a"], FAILS);
        assert_eq!(case.breaker.hear(None, case.now), None);
        assert_eq!(case.standing(), UpstreamState::Open(FIRST_PAUSE));
    }
}
