//! Circuit breakers: a failing upstream gets no requests for a while.
//!
//! Each upstream of a model has one, by the key of the catalog's candidate: one model of a provider can be overloaded
//! while its other models work. It opens after [`FAILURES`] failures in a row, for [`FIRST_PAUSE`]. Then one request
//! is let through at a time; its success closes the breaker, its failure opens it for twice as long, up to
//! [`LONGEST_PAUSE`].
//!
//! Nodes share open breakers through the cache, and poll it every second. If the cache does not respond, each node
//! uses only its own observations.
//!
//! **Invariant:** no single account opens a breaker by its requests: failures that a request can cause count only
//! together with another account's. Failures that no request can cause, such as a refused connection, count by
//! themselves.
//! **Invariant:** an upstream that sent `Retry-After` is tried after all others until then, but stays available to
//! every client: the limit may apply only to one client's size of request.

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

/// Maximum `Retry-After` that counts.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// Time between two polls of the cache for other nodes' breakers.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The breakers of all upstreams. Cheap to clone.
#[derive(Clone)]
pub struct Breakers(Arc<BreakersInner>);

struct BreakersInner {
    /// Breakers of upstreams that have failed; a catalog's keys bound it.
    breakers: Mutex<HashMap<Arc<str>, Breaker>>,
    open: Family<Labels, Gauge>,
    resting: Family<Labels, Gauge>,
    /// The upstreams that the metrics name.
    shown: Mutex<Vec<Arc<str>>>,
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
    /// The attempt shows nothing.
    Unknown,
}

/// The state of an upstream at a moment; the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum UpstreamState {
    /// The upstream works, as far as is known.
    Well,
    /// The upstream has failed or limited the rate, and may be tried.
    Doubtful,
    /// The upstream gets no requests for this long.
    Open(Duration),
}

/// The status of a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BreakerStatus {
    /// The upstream works, as far as is known.
    #[default]
    Closed,
    /// The upstream limits the rate or refuses the credential, and is tried after all others.
    Resting,
    /// The next request, or one in progress, shows whether the upstream works again.
    HalfOpen,
    /// The upstream gets no requests.
    Open,
}

/// The reading of a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BreakerReading {
    /// The status.
    pub status: BreakerStatus,
    /// The time until the status ends by itself, if it does.
    pub left: Option<Duration>,
    /// Failures in a row.
    pub failures: u32,
}

/// The permission to send a request to an upstream.
pub struct Permit {
    breakers: Breakers,
    key: Arc<str>,
    /// Marks the one request that probes an upstream.
    is_probe: bool,
}

#[derive(Debug, Default)]
struct Breaker {
    /// Failures in a row, and the number of them that no request can have caused.
    failures: u32,
    unreachable: u32,
    last_failure: Option<Instant>,
    /// The account of the row's first failure, and whether other accounts have failed as well.
    account: Option<AccountId>,
    of_several: bool,
    rests_until: Option<Instant>,
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

/// The change that a poll or an outcome has caused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BreakerChange {
    Opened(Duration),
    Closed,
}

impl Breaker {
    fn standing(&self, now: Instant) -> UpstreamState {
        match &self.open {
            Some(open) if open.until > now => UpstreamState::Open(open.until - now),
            Some(open) if open.is_probed => UpstreamState::Open(PROBE_TIME),
            Some(_) => UpstreamState::Doubtful,
            None if self.rests_until.is_some_and(|until| until > now) => UpstreamState::Doubtful,
            None => UpstreamState::Well,
        }
    }

    fn reading(&self, now: Instant) -> BreakerReading {
        let left = |until: Instant| Some(until - now).filter(|left| !left.is_zero());
        let (status, left) = match (&self.open, self.rests_until) {
            (Some(open), _) if open.until > now => (BreakerStatus::Open, left(open.until)),
            (Some(_), _) => (BreakerStatus::HalfOpen, None),
            (None, Some(until)) if until > now => (BreakerStatus::Resting, left(until)),
            (None, _) => (BreakerStatus::Closed, None),
        };
        BreakerReading {
            status,
            left,
            failures: self.failures,
        }
    }

    /// Returns whether the next request is the probe, or the time for which no request is allowed.
    fn enter(&mut self, now: Instant) -> Result<bool, Duration> {
        if let UpstreamState::Open(left) = self.standing(now) {
            return Err(left);
        }
        if let Some(open) = &mut self.open {
            open.is_probed = true;
        }
        Ok(self.open.is_some())
    }

    /// Notes an attempt's finding. `is_probe` marks the probe.
    fn note(
        &mut self,
        health: AttemptHealth,
        is_probe: bool,
        account: &AccountId,
        now: Instant,
    ) -> Option<BreakerChange> {
        if is_probe && let Some(open) = &mut self.open {
            open.is_probed = false;
        }
        match health {
            AttemptHealth::Unknown => None,
            AttemptHealth::Well | AttemptHealth::Limits(_) => {
                let was_open = self.open.take().is_some();
                let rests_until = self.rests_until;
                *self = Self::default();
                match health {
                    AttemptHealth::Limits(rest) => self.rest(rest, now),
                    // A served request says nothing about the next one.
                    _ => self.rests_until = rests_until,
                }
                was_open.then_some(BreakerChange::Closed)
            }
            AttemptHealth::Fails(rest) => {
                self.rest(rest, now);
                self.fail(false, is_probe, account, now)
            }
            AttemptHealth::Unreachable => self.fail(true, is_probe, account, now),
        }
    }

    fn rest(&mut self, rest: Option<Duration>, now: Instant) {
        if let Some(rest) = rest {
            self.rests_until = Some(now + rest.min(LONGEST_REST));
        }
    }

    fn fail(
        &mut self,
        is_unreachable: bool,
        is_probe: bool,
        account: &AccountId,
        now: Instant,
    ) -> Option<BreakerChange> {
        let is_stale = self.last_failure.is_none_or(|last| now - last > ROW);
        if is_stale && self.open.is_none() {
            (self.failures, self.unreachable) = (0, 0);
            (self.account, self.of_several) = (None, false);
        }
        self.last_failure = Some(now);
        self.failures = self.failures.saturating_add(1);
        self.unreachable += u32::from(is_unreachable);
        self.of_several |= self.account.get_or_insert_with(|| account.clone()) != account;
        let pause = match &self.open {
            // An attempt from before the opening shows nothing new.
            Some(_) if !is_probe => return None,
            Some(open) => (open.pause * 2).min(LONGEST_PAUSE),
            None if self.unreachable >= FAILURES => FIRST_PAUSE,
            None if self.failures >= FAILURES && self.of_several => FIRST_PAUSE,
            None => return None,
        };
        self.open = Some(OpenBreaker {
            until: now + pause,
            pause,
            is_probed: false,
            is_shared: false,
        });
        Some(BreakerChange::Opened(pause))
    }

    /// Applies other nodes' state: open for this long, or closed.
    fn hear(&mut self, left: Option<Duration>, now: Instant) -> Option<BreakerChange> {
        match (left, &mut self.open) {
            (Some(left), None) => {
                self.open = Some(OpenBreaker {
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
                *self = Self::default();
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
            resting: Family::default(),
            shown: Mutex::default(),
            cache,
        }))
    }

    /// Registers its metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "upstream_breaker_open",
            "Open circuit breakers of upstreams (1 = open), by provider, credential and model there",
            self.0.open.clone(),
        );
        registry.register(
            "upstream_resting",
            "Upstreams that limit the rate or refuse the credential, and are tried last (1 = resting), by provider and model there",
            self.0.resting.clone(),
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
            for family in [&self.0.open, &self.0.resting] {
                family.remove(&labels(key));
            }
        }
        *shown = keys.to_vec();
        for key in keys {
            let labels = labels(key);
            let status = self.reading(key).status;
            let is_open = matches!(status, BreakerStatus::Open | BreakerStatus::HalfOpen);
            let is_resting = status == BreakerStatus::Resting;
            self.0.open.get_or_create(&labels).set(is_open.into());
            self.0.resting.get_or_create(&labels).set(is_resting.into());
        }
    }

    /// Returns the state of an upstream.
    pub fn standing(&self, key: &str) -> UpstreamState {
        let now = Instant::now();
        self.lock()
            .get(key)
            .map_or(UpstreamState::Well, |breaker| breaker.standing(now))
    }

    /// Permits a request to an upstream, or returns the time for which none is allowed.
    pub fn enter(&self, key: &Arc<str>) -> Result<Permit, Duration> {
        let is_probe = match self.lock().get_mut(key) {
            None => false,
            Some(breaker) => breaker.enter(Instant::now())?,
        };
        Ok(Permit {
            breakers: self.clone(),
            key: key.clone(),
            is_probe,
        })
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
                self.report(&key, change, "another node");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Breaker>> {
        let breakers = self.0.breakers.lock();
        breakers.unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, key: &str, change: BreakerChange, by: &str) {
        match change {
            BreakerChange::Opened(pause) => {
                let seconds = pause.as_secs();
                tracing::warn!(upstream = key, seconds, by, "an upstream's breaker opens");
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
                    && let Some(open) = &mut breaker.open
                {
                    open.is_shared = true;
                }
            }
        }
    }
}

impl Permit {
    /// Notes the finding of an attempt of this account.
    pub fn note(&mut self, health: AttemptHealth, account: &AccountId) {
        let is_probe = std::mem::take(&mut self.is_probe);
        let change = {
            let mut breakers = self.breakers.lock();
            // Working upstreams need no entry.
            match breakers.get_mut(&self.key) {
                None if matches!(health, AttemptHealth::Well | AttemptHealth::Unknown) => return,
                Some(breaker) => breaker.note(health, is_probe, account, Instant::now()),
                None => {
                    let breaker = breakers.entry(self.key.clone()).or_default();
                    breaker.note(health, is_probe, account, Instant::now())
                }
            }
        };
        if let Some(change) = change {
            self.breakers.report(&self.key, change, "this node");
            tokio::spawn(self.breakers.clone().share(self.key.clone(), change));
        }
    }
}

impl Drop for Permit {
    /// A probe that is dropped without a finding leaves the probe to the next request.
    fn drop(&mut self) {
        if self.is_probe
            && let Some(breaker) = self.breakers.lock().get_mut(&self.key)
            && let Some(open) = &mut breaker.open
        {
            open.is_probed = false;
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
            let is_probe = self.breaker.enter(self.now)?;
            let account = AccountId(account.to_owned());
            Ok(self.breaker.note(health, is_probe, &account, self.now))
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

    #[test]
    fn one_accounts_failures_leave_it_closed_and_anothers_open_it() {
        let mut case = Case::new();
        assert_eq!(case.attempts(&["a"; 20], FAILS), [None; 20]);
        assert_eq!(
            case.attempt("b", FAILS),
            Ok(Some(BreakerChange::Opened(FIRST_PAUSE)))
        );
        assert_eq!(case.attempt("c", AttemptHealth::Well), Err(FIRST_PAUSE));
    }

    #[test]
    fn what_no_request_can_bring_about_opens_it_whoever_asks() {
        let mut case = Case::new();
        assert_eq!(
            case.attempts(&["a"; 4], AttemptHealth::Unreachable),
            [None; 4]
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
            assert_eq!(case.attempts(&["a", "b", "a", "b"], FAILS), [None; 4]);
            assert!(case.attempts(&["a"], FAILS)[0].is_some());
        }
    }

    #[test]
    fn one_request_tries_and_its_outcome_is_for_all() {
        let mut case = Case::new();
        case.attempts(&["a", "b", "a", "b", "a"], FAILS);
        case.after(FIRST_PAUSE);
        assert_eq!(case.breaker.enter(case.now), Ok(true));
        assert_eq!(case.breaker.enter(case.now), Err(PROBE_TIME));
        let account = AccountId("a".into());
        let change = case.breaker.note(FAILS, true, &account, case.now);
        assert_eq!(change, Some(BreakerChange::Opened(FIRST_PAUSE * 2)));
        case.after(FIRST_PAUSE * 2);
        assert_eq!(
            case.attempt("a", AttemptHealth::Well),
            Ok(Some(BreakerChange::Closed))
        );
        assert_eq!(case.breaker.standing(case.now), UpstreamState::Well);
        // The count begins anew.
        assert_eq!(case.attempts(&["a", "b", "a", "b"], FAILS), [None; 4]);
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
        assert_eq!(case.breaker.enter(case.now), Ok(true));
        assert_eq!(read(&case).0, BreakerStatus::HalfOpen);
        let rest = Duration::from_secs(30);
        let account = AccountId("a".into());
        let limits = AttemptHealth::Limits(Some(rest));
        case.breaker.note(limits, true, &account, case.now);
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
        assert_eq!(case.breaker.standing(case.now), UpstreamState::Doubtful);
        assert_eq!(case.attempt("b", AttemptHealth::Well), Ok(None));
        assert_eq!(case.breaker.standing(case.now), UpstreamState::Doubtful);
        case.after(rest);
        assert_eq!(case.breaker.standing(case.now), UpstreamState::Well);
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
        assert_eq!(case.breaker.standing(case.now), UpstreamState::Doubtful);
    }

    #[test]
    fn what_other_nodes_were_not_told_yet_stays_open() {
        let mut case = Case::new();
        case.attempts(&["a", "b", "a", "b", "a"], FAILS);
        assert_eq!(case.breaker.hear(None, case.now), None);
        assert_eq!(
            case.breaker.standing(case.now),
            UpstreamState::Open(FIRST_PAUSE)
        );
    }
}
