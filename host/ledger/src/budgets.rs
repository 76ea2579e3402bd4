//! Budgets: limits on the spending of an account, or of one of its API keys, in an hour, a day, a week, a month, or in
//! total. Plain functions, without I/O and without a clock.
//!
//! Budgets are in the account's own row. A hold is checked against them when it is opened, under the same lock: holds
//! count, a settlement replaces its hold, a release frees it. Budgets therefore hold under any concurrency. An account
//! without budgets has nothing to read or to write.
//!
//! A charge counts in the window of its own moment, as in the sums of usage; a hold counts in the current window. A
//! budget counts from the moment at which it is set.
//!
//! **Invariant:** the counted amounts follow from entries and holds, whose `budget_key` names the key with the budgets:
//! [`crate::verify`] checks this.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use weir_storage::clock::Millis;

use crate::credits::Credits;
use crate::plans::Period;

/// Maximum budgets of an account or a key: one for each window.
pub const MOST_WINDOWS: usize = 5;

/// Maximum keys of an account with budgets, including ended keys that are still remembered.
const MOST_KEYS: usize = 100;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// 1970 began on a Thursday; weeks begin on Mondays.
const MONDAY_MS: i64 = 3 * DAY_MS;

/// A budget's calendar window, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetWindow {
    /// An hour of the clock.
    Hour,
    /// A day.
    Day,
    /// A week from Monday to Sunday.
    Week,
    /// A calendar month.
    Month,
    /// The budget's lifetime.
    Total,
}

/// The maximum spending in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The maximum.
    pub credits: Credits,
    /// The window.
    pub window: BudgetWindow,
}

/// The state of a budget at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetState {
    /// The budget.
    pub budget: Budget,
    /// The charges in the window.
    pub spent: Credits,
    /// The credits in open holds.
    pub held: Credits,
    /// The credits for further holds.
    pub left: Credits,
    /// The window's end; `None` for `total`.
    pub resets_at: Option<Millis>,
}

/// A budget that rejects a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetExceeded {
    /// Whether the budget is the key's, otherwise the account's.
    pub of_key: bool,
    /// The amount of the hold.
    pub required: Credits,
    /// The budget; of several, the one that rejects the hold for the longest time.
    pub standing: BudgetState,
}

/// Replaces the budgets of an account or of one of its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetBudgets {
    /// The key; `None` for the account.
    pub key_id: Option<String>,
    /// The time at which the key expires; its budgets are then deleted.
    pub until: Option<Millis>,
    /// The budgets; an empty list removes them. A budget with the same window keeps its count.
    pub budgets: Vec<Budget>,
    /// Revoked keys, whose budgets are deleted.
    pub ended: Vec<String>,
}

/// The budgets of an account and of its keys, with their counts. Stored as JSON in the account's row.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Budgets(Vec<BudgetScope>);

/// The budgets of an account or a key. Amounts are in micro-credits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BudgetScope {
    /// `None` for the account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Millis>,
    /// The credits in the key's open holds. The account's row has those of the account.
    #[serde(default)]
    pub held: i64,
    pub counters: Vec<Counter>,
}

/// The count of a budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counter {
    pub window: BudgetWindow,
    limit: i64,
    /// The number of the account's entries before the budget.
    pub since: i64,
    /// The start of the last window with a charge.
    pub start: Millis,
    /// The charges in the window. Negative if refunds of an earlier window's charges exceed them.
    pub spent: i64,
}

impl BudgetWindow {
    /// All windows.
    pub const ALL: [Self; MOST_WINDOWS] =
        [Self::Hour, Self::Day, Self::Week, Self::Month, Self::Total];

    /// Returns the window's name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Total => "total",
        }
    }

    /// Returns the first moment of a moment's window.
    pub fn start(self, at: Millis) -> Millis {
        match self {
            Self::Hour => Millis(at.0 - at.0.rem_euclid(HOUR_MS)),
            Self::Day => Millis(at.0 - at.0.rem_euclid(DAY_MS)),
            Self::Week => Millis(at.0 - (at.0 + MONDAY_MS).rem_euclid(7 * DAY_MS)),
            Self::Month => Period::of_calendar_month(at).start,
            Self::Total => Millis(0),
        }
    }

    /// Returns the first moment after the window with this start.
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

impl FromStr for BudgetWindow {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, &'static str> {
        let mut all = Self::ALL.into_iter();
        all.find(|window| window.name() == name)
            .ok_or("hour, day, week, month or total")
    }
}

impl SetBudgets {
    /// Returns whether each budget has its own window and an amount in range.
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
    /// Returns whether the key has budgets, so that its holds must be counted.
    pub(crate) fn has_key(&self, key_id: &str) -> bool {
        self.of(Some(key_id))
            .is_some_and(|scope| !scope.counters.is_empty())
    }

    /// Rejects a hold that exceeds the account's or the key's budgets. `held` is the credits in the account's holds.
    pub(crate) fn check(
        &self,
        key_id: Option<&str>,
        required: Credits,
        held: Credits,
        at: Millis,
    ) -> Result<(), BudgetExceeded> {
        let exceeded = self.standings_for(key_id, held, at);
        let exceeded = exceeded.filter(|(_, standing)| required > standing.left);
        // A window without an end rejects for the longest time.
        let last =
            exceeded.max_by_key(|(_, standing)| standing.resets_at.map_or(i64::MAX, |at| at.0));
        match last {
            None => Ok(()),
            Some((of_key, standing)) => Err(BudgetExceeded {
                of_key,
                required,
                standing,
            }),
        }
    }

    /// Returns the state of the budgets of a key, or of the account, with `held` in the account's holds.
    pub fn standings(&self, key_id: Option<&str>, held: Credits, at: Millis) -> Vec<BudgetState> {
        let scope = self.of(key_id);
        scope.map_or_else(Vec::new, |scope| scope.standings(held, at).collect())
    }

    /// Returns the keys with current or former budgets.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|scope| scope.key_id.as_deref())
    }

    pub(crate) fn scopes(&self) -> &[BudgetScope] {
        &self.0
    }

    /// Changes the credits in a key's open holds. Holds of a key count until their end even if its budgets were
    /// removed: the key may get new ones.
    pub(crate) fn change_held(&mut self, key_id: &str, change: i64) {
        let place = self.place_of(Some(key_id));
        let scope = &mut self.0[place];
        scope.held += change;
        if scope.is_idle() {
            self.0.remove(place);
        }
    }

    /// Counts a charge or a refund.
    pub(crate) fn spend(&mut self, key_id: Option<&str>, micro: i64, at: Millis) {
        // A charge of zero begins no window, like a release.
        if micro == 0 {
            return;
        }
        for counter in self.counters_for(key_id) {
            let start = counter.window.start(at);
            if start > counter.start {
                (counter.start, counter.spent) = (start, 0);
            }
            // An operation of an earlier window arrives too late to count.
            if start == counter.start {
                counter.spent += micro;
            }
        }
    }

    /// Subtracts an entry's amount from the counts.
    pub(crate) fn discount(&mut self, key_id: Option<&str>, delta: i64, at: Millis, sequence: i64) {
        for counter in self.counters_for(key_id) {
            if sequence > counter.since && counter.window.start(at) == counter.start {
                counter.spent += delta;
            }
        }
    }

    /// Returns the budgets without a window: the key, or none for the account's, and the number of entries before the
    /// budget.
    pub(crate) fn totals(&self) -> impl Iterator<Item = (Option<&str>, i64)> {
        self.0.iter().filter_map(|scope| {
            let mut counters = scope.counters.iter();
            let total = counters.find(|counter| counter.window == BudgetWindow::Total);
            total.map(|counter| (scope.key_id.as_deref(), counter.since))
        })
    }

    /// Sets budgets; `false` if they are invalid, or of too many keys. `since` is the number of the account's entries.
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

    /// Returns the counters of a key's charges, or of charges without a key.
    fn counters_for(&mut self, key_id: Option<&str>) -> impl Iterator<Item = &mut Counter> {
        let scopes = self.0.iter_mut();
        let counting =
            scopes.filter(move |scope| scope.key_id.is_none() || scope.key_id.as_deref() == key_id);
        counting.flat_map(|scope| &mut scope.counters)
    }

    fn of(&self, key_id: Option<&str>) -> Option<&BudgetScope> {
        self.0
            .iter()
            .find(|scope| scope.key_id.as_deref() == key_id)
    }

    /// Returns the position of a key's or the account's scope, which is created if missing.
    fn place_of(&mut self, key_id: Option<&str>) -> usize {
        let known = self
            .0
            .iter()
            .position(|scope| scope.key_id.as_deref() == key_id);
        known.unwrap_or_else(|| {
            self.0.push(BudgetScope {
                key_id: key_id.map(str::to_owned),
                until: None,
                held: 0,
                counters: Vec::new(),
            });
            self.0.len() - 1
        })
    }

    /// Returns the budgets that apply to a request with this key, and whether they are the key's.
    fn standings_for(
        &self,
        key_id: Option<&str>,
        held: Credits,
        at: Millis,
    ) -> impl Iterator<Item = (bool, BudgetState)> {
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

impl BudgetScope {
    /// Returns whether the scope has no budgets and no holds.
    fn is_idle(&self) -> bool {
        self.counters.is_empty() && self.held == 0
    }

    fn standings(&self, held: Credits, at: Millis) -> impl Iterator<Item = BudgetState> {
        let held = match self.key_id {
            Some(_) => Credits::from_micro(self.held),
            None => held,
        };
        self.counters.iter().map(move |counter| {
            // This node's clock may be slightly behind the node with the last charge.
            let now = counter.window.start(at);
            let (start, spent) = match now > counter.start {
                true => (now, 0),
                false => (counter.start, counter.spent),
            };
            let left = counter
                .limit
                .saturating_sub(spent)
                .saturating_sub(held.micro());
            BudgetState {
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
