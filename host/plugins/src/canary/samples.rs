//! Outcomes of requests to a component while its slot has a canary: counts, sums and sums of squares, which add up
//! over requests and nodes.
//!
//! Accounts are put into groups, and each group has its own sums: one account's requests resemble each other, so the
//! difference between groups shows the difference that chance alone may cause between the sides.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_ledger::{Credits, TokenCounts};
use weir_sandbox::Digest;

use super::AccountHash;
use crate::counters::{ExchangeEnd, FilterEffects};

/// Groups of accounts.
pub const GROUPS: usize = 16;

/// The compared quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Requests that ended in a trap.
    Traps,
    /// Requests that failed by the component's own fault, including traps.
    Faults,
    /// Requests that failed, including by the client's or the upstream's fault. Errors never end a canary, since
    /// clients can cause them; but an upstream's rejection may be the component's fault, so too many errors prevent a
    /// promotion.
    Errors,
    /// Requests that a filter refused.
    Refusals,
    /// Requests that a filter changed, or whose response it changed.
    Changes,
    /// Requests whose response a filter ended.
    Stops,
    /// Time to the first token of a streamed response, in microseconds.
    FirstToken,
    /// Duration of a successful request in microseconds, without the time in which the client was slow to read.
    Latency,
    /// Tokens charged for a request, in and out.
    Tokens,
    /// Charge of a request, in micro-credits.
    Charge,
}

/// The moments of a measure: the number of requests, the sum and the sum of squares of their values. An event has the
/// value 1 or 0; an amount has the value of a thousand times the logarithm of one more than the amount. A few
/// responses that are a hundred times as long as others do not dominate a logarithm, and a difference of logarithms
/// is a ratio.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moments {
    pub count: i64,
    pub sum: i64,
    /// The sum of the squares.
    pub squares: i64,
}

/// All moments of a component, by group of accounts and measure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Samples([[Moments; Measure::ALL.len()]; GROUPS]);

/// Samples of a component on this node that are not in the database yet.
#[derive(Debug)]
pub struct Tally {
    digest: Digest,
    samples: Mutex<Samples>,
}

/// The group in which one account's requests count.
#[derive(Debug, Clone)]
pub struct Sampler {
    tally: Arc<Tally>,
    group: usize,
}

impl Measure {
    /// All measures, the most important first.
    pub const ALL: [Self; 10] = [
        Self::Traps,
        Self::Faults,
        Self::Errors,
        Self::Refusals,
        Self::Changes,
        Self::Stops,
        Self::FirstToken,
        Self::Latency,
        Self::Tokens,
        Self::Charge,
    ];

    /// The name in the database and in responses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Traps => "traps",
            Self::Faults => "faults",
            Self::Errors => "errors",
            Self::Refusals => "refusals",
            Self::Changes => "changes",
            Self::Stops => "stops",
            Self::FirstToken => "first_token",
            Self::Latency => "latency",
            Self::Tokens => "tokens",
            Self::Charge => "credits",
        }
    }

    /// Parses the name that [`Measure::as_str`] returns.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|measure| measure.as_str() == text)
    }

    /// Returns whether the measure is a share of requests; otherwise it is an amount.
    pub fn is_share(self) -> bool {
        !matches!(
            self,
            Self::FirstToken | Self::Latency | Self::Tokens | Self::Charge
        )
    }

    pub fn amount(mean: f64) -> f64 {
        (mean / VALUES_PER_E).exp_m1()
    }
}

/// Factor of an amount's logarithm that makes it an integer.
pub(super) const VALUES_PER_E: f64 = 1_000.0;

impl Moments {
    fn note(&mut self, value: i64) {
        self.count += 1;
        self.sum += value;
        self.squares += value * value;
    }

    pub fn add(&mut self, other: Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
    }
}

impl Samples {
    /// Returns the moments of a measure in each group of accounts.
    pub fn groups(&self, measure: Measure) -> impl Iterator<Item = Moments> {
        self.0.iter().map(move |group| group[measure as usize])
    }

    /// Returns all non-empty moments with their group and measure.
    pub fn all(&self) -> impl Iterator<Item = (usize, Measure, Moments)> {
        let groups = self.0.iter().enumerate();
        groups
            .flat_map(|(at, group)| {
                let measures = Measure::ALL.into_iter();
                measures.map(move |measure| (at, measure, group[measure as usize]))
            })
            .filter(|(_, _, moments)| moments.count > 0)
    }

    /// Adds to a group's moments; an unknown group is ignored.
    pub fn add(&mut self, group: usize, measure: Measure, moments: Moments) {
        if let Some(group) = self.0.get_mut(group) {
            group[measure as usize].add(moments);
        }
    }

    pub fn add_all(&mut self, other: &Self) {
        for (group, measure, moments) in other.all() {
            self.add(group, measure, moments);
        }
    }

    /// Notes whether an event happened in a request.
    pub(super) fn happened(&mut self, group: usize, measure: Measure, has: bool) {
        self.0[group % GROUPS][measure as usize].note(has.into());
    }

    /// Notes an amount of a request.
    pub(super) fn amounted(&mut self, group: usize, measure: Measure, amount: f64) {
        let value = (amount.max(0.0).ln_1p() * VALUES_PER_E).round();
        self.0[group % GROUPS][measure as usize].note(value as i64);
    }
}

impl Tally {
    /// An empty tally of a component.
    pub fn new(digest: Digest) -> Self {
        Self {
            digest,
            samples: Mutex::default(),
        }
    }

    /// Returns the component's digest.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    pub fn sampler(self: &Arc<Self>, lot: AccountHash) -> Sampler {
        Sampler {
            tally: self.clone(),
            group: lot.group(GROUPS),
        }
    }

    /// Takes the samples since the last call.
    pub fn take(&self) -> Samples {
        std::mem::take(&mut *self.lock())
    }

    /// Returns the samples since the last [`Self::take`], which stay.
    pub fn peek(&self) -> Samples {
        *self.lock()
    }

    /// Restores samples after a failed write.
    pub fn put_back(&self, samples: &Samples) {
        self.lock().add_all(samples);
    }

    fn lock(&self) -> MutexGuard<'_, Samples> {
        // The data are sums: no panic leaves them half changed.
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sampler {
    /// Samples an exchange, or a call of a tool. `first_token` is `None` without streaming.
    pub fn exchange(&self, ended: ExchangeEnd, took: Duration, first_token: Option<Duration>) {
        let mut samples = self.tally.lock();
        let is_fault = matches!(ended, ExchangeEnd::InFault | ExchangeEnd::InTrap);
        samples.happened(self.group, Measure::Traps, ended == ExchangeEnd::InTrap);
        samples.happened(self.group, Measure::Faults, is_fault);
        samples.happened(self.group, Measure::Errors, ended != ExchangeEnd::Well);
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        if let Some(first_token) = first_token {
            samples.amounted(self.group, Measure::FirstToken, micros(first_token));
        }
        // The latency of a failure is not counted as fast.
        if ended == ExchangeEnd::Well {
            samples.amounted(self.group, Measure::Latency, micros(took));
        }
    }

    /// Samples the effects of a filter on a request and its response.
    pub fn effects(&self, effects: FilterEffects) {
        let mut samples = self.tally.lock();
        let refused = effects.refused || effects.answered;
        samples.happened(self.group, Measure::Refusals, refused);
        samples.happened(self.group, Measure::Changes, effects.changed);
        samples.happened(self.group, Measure::Stops, effects.stopped);
    }

    /// Samples the charge of a request.
    pub fn charge(&self, tokens: TokenCounts, credits: Credits) {
        let mut samples = self.tally.lock();
        let tokens = tokens.input.saturating_add(tokens.output);
        samples.amounted(self.group, Measure::Tokens, tokens as f64);
        samples.amounted(self.group, Measure::Charge, credits.micro() as f64);
    }
}
