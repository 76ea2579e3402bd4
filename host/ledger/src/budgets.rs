//! Budgets: how much an account, or one of its API keys, may spend in an hour, a day, a week, a month, or in all. Plain
//! functions, without I/O and without a clock.
//!
//! They are kept in the account's own row, so that a hold is held against them where it is opened, under the same lock: what
//! is held counts, a settlement takes its place, a release frees it. Of any number of requests at once, none passes a
//! budget. An account without budgets has none of this to read or to write.
//!
//! A charge counts in the window of the moment that it was made at, as it does in sums of usage; what is held counts in
//! whichever window is under way. A budget counts from when it is set.
//!
//! **Invariant:** what is counted follows from entries and holds, which say by `budget_key` whose budgets they count for:
//! [`crate::verify`] looks.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use weir_storage::clock::Millis;

use crate::credits::Credits;
use crate::plans::Period;

/// Budgets of an account or a key: one for each window.
pub const MOST_WINDOWS: usize = 5;

/// Keys of an account that have budgets, those included that have ended and are not forgotten yet.
const MOST_KEYS: usize = 100;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// 1970 began on a Thursday; weeks begin on Mondays.
const MONDAY_MS: i64 = 3 * DAY_MS;

/// The time that a budget is for: of the calendar, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Window {
    /// An hour of the clock.
    Hour,
    /// A day.
    Day,
    /// From Monday to Sunday.
    Week,
    /// A month of the calendar.
    Month,
    /// All time from when it was set.
    Total,
}

/// How much may be spent in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The most.
    pub credits: Credits,
    /// The time that it is for.
    pub window: Window,
}

/// A budget as it stands at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The budget.
    pub budget: Budget,
    /// What was charged in the window.
    pub spent: Credits,
    /// What open holds reserve.
    pub held: Credits,
    /// What may still be held.
    pub left: Credits,
    /// The window's end; `None` where it has none.
    pub resets_at: Option<Millis>,
}

/// A budget that does not allow a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exceeded {
    /// Whether it is the key's; else it is the account's.
    pub of_key: bool,
    /// What was to be held.
    pub required: Credits,
    /// The budget; of several, the one that says no for longest.
    pub standing: Standing,
}

/// Sets the budgets of an account or of one of its keys, in place of those that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetBudgets {
    /// The key; `None` for the account.
    pub key_id: Option<String>,
    /// When the key expires, after which its budgets are forgotten.
    pub until: Option<Millis>,
    /// The budgets; none of them to take them away. One that is for the same window goes on counting.
    pub budgets: Vec<Budget>,
    /// Keys that were revoked, whose budgets are forgotten.
    pub ended: Vec<String>,
}

/// The budgets of an account and of its keys, with what they have counted. Stored as JSON in the account's row.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Budgets(Vec<Scope>);

/// Whose budgets they are. Amounts are in micro-credits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Scope {
    /// `None` for the account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Millis>,
    /// What the key's open holds reserve. Of an account, its row has that.
    #[serde(default)]
    pub held: i64,
    pub counters: Vec<Counter>,
}

/// What a budget has counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counter {
    pub window: Window,
    limit: i64,
    /// The account's entries up to this one came before the budget.
    pub since: i64,
    /// The start of the last window in which anything was charged.
    pub start: Millis,
    /// What was charged in it. Below zero where more was taken back of what an earlier one was charged.
    pub spent: i64,
}

impl Window {
    /// All of them.
    pub const ALL: [Self; MOST_WINDOWS] =
        [Self::Hour, Self::Day, Self::Week, Self::Month, Self::Total];

    /// Its name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Total => "total",
        }
    }

    /// The first moment of the window that a moment is in.
    pub fn start(self, at: Millis) -> Millis {
        match self {
            Self::Hour => Millis(at.0 - at.0.rem_euclid(HOUR_MS)),
            Self::Day => Millis(at.0 - at.0.rem_euclid(DAY_MS)),
            Self::Week => Millis(at.0 - (at.0 + MONDAY_MS).rem_euclid(7 * DAY_MS)),
            Self::Month => Period::of_calendar_month(at).start,
            Self::Total => Millis(0),
        }
    }

    /// The first moment after the window that begins at this one.
    pub fn end(self, start: Millis) -> Option<Millis> {
        match self {
            Self::Hour => Some(Millis(start.0 + HOUR_MS)),
            Self::Day => Some(Millis(start.0 + DAY_MS)),
            Self::Week => Some(Millis(start.0 + 7 * DAY_MS)),
            Self::Month => Some(Period::of_calendar_month(start).end),
            Self::Total => None,
        }
    }
}

impl FromStr for Window {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, &'static str> {
        let mut all = Self::ALL.into_iter();
        all.find(|window| window.name() == name)
            .ok_or("hour, day, week, month or total")
    }
}

impl SetBudgets {
    /// Whether each is for a window of its own, and within what an operation may be about.
    fn is_sound(&self) -> bool {
        let mut windows: Vec<_> = self.budgets.iter().map(|budget| budget.window).collect();
        windows.sort_unstable();
        windows.dedup();
        windows.len() == self.budgets.len()
            && self
                .budgets
                .iter()
                .all(|budget| budget.credits.is_in_range())
    }
}

impl Budgets {
    /// Whether the key has budgets, so that what it holds is to be counted.
    pub(crate) fn has_key(&self, key_id: &str) -> bool {
        self.of(Some(key_id))
            .is_some_and(|scope| !scope.counters.is_empty())
    }

    /// Refuses to hold more than what is left of the account's budgets and of the key's. `held` is what the account holds.
    pub(crate) fn check(
        &self,
        key_id: Option<&str>,
        required: Credits,
        held: Credits,
        at: Millis,
    ) -> Result<(), Exceeded> {
        let exceeded = self.standings_for(key_id, held, at);
        let exceeded = exceeded.filter(|(_, standing)| required > standing.left);
        // Whatever has no end says no for longest.
        let last =
            exceeded.max_by_key(|(_, standing)| standing.resets_at.map_or(i64::MAX, |at| at.0));
        match last {
            None => Ok(()),
            Some((of_key, standing)) => Err(Exceeded {
                of_key,
                required,
                standing,
            }),
        }
    }

    /// How the budgets of a key stand, or those of the account, which holds so much.
    pub fn standings(&self, key_id: Option<&str>, held: Credits, at: Millis) -> Vec<Standing> {
        let scope = self.of(key_id);
        scope.map_or_else(Vec::new, |scope| scope.standings(held, at).collect())
    }

    /// The keys that have budgets, or had some.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|scope| scope.key_id.as_deref())
    }

    pub(crate) fn scopes(&self) -> &[Scope] {
        &self.0
    }

    /// Open holds of a key reserve so much more, or less. Holds that count for a key do so to their end, also where its
    /// budgets were taken away: it may get others.
    pub(crate) fn change_held(&mut self, key_id: &str, change: i64) {
        let place = self.place_of(Some(key_id));
        let scope = &mut self.0[place];
        scope.held += change;
        if scope.is_idle() {
            self.0.remove(place);
        }
    }

    /// So much was charged, or given back.
    pub(crate) fn spend(&mut self, key_id: Option<&str>, micro: i64, at: Millis) {
        // What costs nothing begins no window, as a release does not.
        if micro == 0 {
            return;
        }
        for counter in self.counters_for(key_id) {
            let start = counter.window.start(at);
            if start > counter.start {
                (counter.start, counter.spent) = (start, 0);
            }
            // What is asked for in one window and done in the next comes too late to count.
            if start == counter.start {
                counter.spent += micro;
            }
        }
    }

    /// Takes what an entry says off what was counted of it.
    pub(crate) fn discount(&mut self, key_id: Option<&str>, delta: i64, at: Millis, sequence: i64) {
        for counter in self.counters_for(key_id) {
            if sequence > counter.since && counter.window.start(at) == counter.start {
                counter.spent += delta;
            }
        }
    }

    /// The budgets without a window: the key, or none for the account's, and how many entries came before the budget.
    pub(crate) fn totals(&self) -> impl Iterator<Item = (Option<&str>, i64)> {
        self.0.iter().filter_map(|scope| {
            let mut counters = scope.counters.iter();
            let total = counters.find(|counter| counter.window == Window::Total);
            total.map(|counter| (scope.key_id.as_deref(), counter.since))
        })
    }

    /// Sets budgets; `false` if they are not sound, or of too many keys. `since` is how many entries the account has.
    pub(crate) fn set(&mut self, set: &SetBudgets, since: i64, at: Millis) -> bool {
        if !set.is_sound() {
            return false;
        }
        for scope in &mut self.0 {
            let is_over = scope.until.is_some_and(|until| until <= at);
            if is_over
                || scope
                    .key_id
                    .as_ref()
                    .is_some_and(|key| set.ended.contains(key))
            {
                scope.counters.clear();
            }
        }
        let place = self.place_of(set.key_id.as_deref());
        let scope = &mut self.0[place];
        scope.until = set.until;
        let before = std::mem::take(&mut scope.counters);
        scope.counters = set
            .budgets
            .iter()
            .map(|budget| {
                let before = before.iter().find(|before| before.window == budget.window);
                let fresh = Counter {
                    window: budget.window,
                    limit: 0,
                    since,
                    start: budget.window.start(at),
                    spent: 0,
                };
                Counter {
                    limit: budget.credits.micro(),
                    ..before.cloned().unwrap_or(fresh)
                }
            })
            .collect();
        self.0.retain(|scope| !scope.is_idle());
        self.keys().count() <= MOST_KEYS
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What counts charges of a key, or of none.
    fn counters_for(&mut self, key_id: Option<&str>) -> impl Iterator<Item = &mut Counter> {
        let scopes = self.0.iter_mut();
        let counting =
            scopes.filter(move |scope| scope.key_id.is_none() || scope.key_id.as_deref() == key_id);
        counting.flat_map(|scope| &mut scope.counters)
    }

    fn of(&self, key_id: Option<&str>) -> Option<&Scope> {
        self.0
            .iter()
            .find(|scope| scope.key_id.as_deref() == key_id)
    }

    /// Where those of a key, or of the account, are; made if there are none.
    fn place_of(&mut self, key_id: Option<&str>) -> usize {
        let known = self
            .0
            .iter()
            .position(|scope| scope.key_id.as_deref() == key_id);
        known.unwrap_or_else(|| {
            self.0.push(Scope {
                key_id: key_id.map(str::to_owned),
                until: None,
                held: 0,
                counters: Vec::new(),
            });
            self.0.len() - 1
        })
    }

    /// Those that a request with this key is held against, and whether they are the key's.
    fn standings_for(
        &self,
        key_id: Option<&str>,
        held: Credits,
        at: Millis,
    ) -> impl Iterator<Item = (bool, Standing)> {
        let of_key = key_id.and_then(|key| self.of(Some(key)));
        let scopes = self.of(None).into_iter().chain(of_key);
        scopes.flat_map(move |scope| {
            let of_key = scope.key_id.is_some();
            scope
                .standings(held, at)
                .map(move |standing| (of_key, standing))
        })
    }
}

impl Scope {
    /// Whether it has nothing to say.
    fn is_idle(&self) -> bool {
        self.counters.is_empty() && self.held == 0
    }

    fn standings(&self, held: Credits, at: Millis) -> impl Iterator<Item = Standing> {
        let held = match self.key_id {
            Some(_) => Credits::from_micro(self.held),
            None => held,
        };
        self.counters.iter().map(move |counter| {
            // A node may be a little behind the one that has charged last.
            let now = counter.window.start(at);
            let (start, spent) = match now > counter.start {
                true => (now, 0),
                false => (counter.start, counter.spent),
            };
            let left = counter
                .limit
                .saturating_sub(spent)
                .saturating_sub(held.micro());
            Standing {
                budget: Budget {
                    credits: Credits::from_micro(counter.limit),
                    window: counter.window,
                },
                spent: Credits::from_micro(spent),
                held,
                left: Credits::from_micro(left.max(0)),
                resets_at: counter.window.end(start),
            }
        })
    }
}

#[cfg(test)]
mod tests;
