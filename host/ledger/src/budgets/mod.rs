//! Budgets: limits on the spending of an account, or of a part of it, in an hour, a day, a week, a month, or in total. A
//! part is an API key, a project, a member of an organisation, or a model. Plain functions, without I/O and without a
//! clock.
//!
//! Budgets are in the account's own row. A hold is checked against them when it is opened, under the same lock: holds
//! count, a settlement replaces its hold, a release frees it. Budgets therefore hold under any concurrency. An account
//! without budgets has nothing to read or to write.
//!
//! A charge counts in the window of its own moment, as in the sums of usage; a hold counts in the current window. A
//! budget counts from the moment at which it is set.
//!
//! **Invariant:** the counted amounts follow from entries and holds, whose `budget_key` names the parts with budgets:
//! [`crate::verify`] checks this.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weir_storage::clock::Millis;

use crate::credits::Credits;
use crate::plans::Period;

/// Maximum budgets of an account or a part of it: one for each window.
pub const MOST_WINDOWS: usize = 5;

/// Maximum parts of an account with budgets, including ended keys that are still remembered. Each request rewrites all
/// of them.
const MOST_PARTS: usize = 250;

/// The shares of a budget, in percent, at which an alert is due.
pub const ALERT_PERCENTS: [u8; 2] = [80, 100];

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetState {
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

/// A part of an account with budgets of its own. A request counts for its key, the key's project, the member who sends
/// it, its organisation, and its model.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum BudgetPart {
    /// The API key with this id.
    Key(String),
    /// The project with this id.
    Project(String),
    /// The member with this user id.
    Member(String),
    /// The organisation with this id: its members' own limit, beside the operator's limit of the account.
    Organisation(String),
    /// The model with this id.
    Model(String),
}

/// A budget that rejects a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetExceeded {
    /// The part of the account with the budget; `None` for the account's own.
    pub part: Option<BudgetPart>,
    /// The amount of the hold.
    pub required: Credits,
    /// The budget; of several, the one that rejects the hold for the longest time.
    pub standing: BudgetState,
}

/// Replaces the budgets of an account or of a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetBudgets {
    /// The part; `None` for the account.
    pub part: Option<BudgetPart>,
    /// The time at which the part, a key, expires; its budgets are then deleted.
    pub until: Option<Millis>,
    /// The budgets; an empty list removes them. A budget with the same window keeps its count.
    pub budgets: Vec<Budget>,
    /// Parts that have ended, such as revoked keys; their budgets are deleted.
    pub ended: Vec<BudgetPart>,
}

/// The budgets of an account and of its parts, with their counts. Stored as JSON in the account's row.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Budgets(Vec<PartBudgets>);

/// The budgets of an account or of a part of it. Amounts are in micro-credits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartBudgets {
    /// `None` for the account. Earlier versions knew keys only, hence the name in the JSON.
    #[serde(default, rename = "key_id", skip_serializing_if = "Option::is_none")]
    pub part: Option<BudgetPart>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Millis>,
    /// The credits in the part's open holds. The account's row has those of the account.
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
    /// The highest of [`ALERT_PERCENTS`] that the charges have reached in the window; 0 if none.
    #[serde(default, skip_serializing_if = "is_zero")]
    alerted: u8,
}

/// A budget whose charges have reached one of [`ALERT_PERCENTS`] in the window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetAlert {
    /// The part of the account with the budget; `None` for the account's own.
    pub part: Option<BudgetPart>,
    /// The share, in percent.
    pub percent: u8,
    pub window_start: Millis,
    /// The state of the budget, without holds.
    pub state: BudgetState,
}

impl BudgetWindow {
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

impl BudgetPart {
    /// Returns the kind of part: `key`, `project`, `member`, `organisation` or `model`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Key(_) => "key",
            Self::Project(_) => "project",
            Self::Member(_) => "member",
            Self::Organisation(_) => "organisation",
            Self::Model(_) => "model",
        }
    }

    /// Returns the id of the key, the project, the user, the organisation or the model.
    pub fn id(&self) -> &str {
        match self {
            Self::Key(id)
            | Self::Project(id)
            | Self::Member(id)
            | Self::Organisation(id)
            | Self::Model(id) => id,
        }
    }

    /// Returns the stored form of several parts; `None` for no part.
    pub fn join(parts: &[Self]) -> Option<String> {
        let names: Vec<_> = parts.iter().map(Self::to_string).collect();
        (!names.is_empty()).then(|| names.join(SEPARATOR))
    }

    /// Reads the stored form of several parts.
    pub fn split(stored: Option<&str>) -> Vec<Self> {
        let names = stored.into_iter().flat_map(|names| names.split(SEPARATOR));
        names.map(Self::named).collect()
    }

    fn named(name: &str) -> Self {
        match name.split_once(':') {
            Some(("project", id)) => Self::Project(id.to_owned()),
            Some(("member", id)) => Self::Member(id.to_owned()),
            Some(("organisation", id)) => Self::Organisation(id.to_owned()),
            Some(("model", id)) => Self::Model(id.to_owned()),
            _ => Self::Key(name.to_owned()),
        }
    }
}

/// Separates stored parts. No id contains it.
const SEPARATOR: &str = "\n";

/// The stored form. A key's is its id alone, as earlier versions wrote it; ids of keys contain no colon.
impl fmt::Display for BudgetPart {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(id) => formatter.write_str(id),
            part => write!(formatter, "{}:{}", part.kind(), part.id()),
        }
    }
}

impl Serialize for BudgetPart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BudgetPart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|name| Self::named(&name))
    }
}

/// Rejects a hold that exceeds one of these budgets.
fn check<'a>(
    applying: impl Iterator<Item = &'a PartBudgets>,
    required: Credits,
    held: Credits,
    at: Millis,
) -> Result<(), BudgetExceeded> {
    let states = applying.flat_map(|budgets| {
        let states = budgets.standings(held, at);
        states.map(move |state| (&budgets.part, state))
    });
    let exceeded = states.filter(|(_, state)| required > state.left);
    // A window without an end rejects for the longest time.
    let last = exceeded.max_by_key(|(_, state)| state.resets_at.map_or(i64::MAX, |at| at.0));
    match last {
        None => Ok(()),
        Some((part, standing)) => Err(BudgetExceeded {
            part: part.clone(),
            required,
            standing,
        }),
    }
}

impl Budgets {
    /// Returns the parts with budgets, so that a hold must be counted for them.
    pub(crate) fn counted(&self, parts: &[BudgetPart]) -> Vec<BudgetPart> {
        let has_budgets = |part: &&BudgetPart| {
            let found = self.of(Some(part));
            found.is_some_and(|budgets| !budgets.counters.is_empty())
        };
        parts.iter().filter(has_budgets).cloned().collect()
    }

    /// Rejects a hold that exceeds the budgets of the account or of a part. `held` is the credits in the account's
    /// holds.
    pub(crate) fn check(
        &self,
        parts: &[BudgetPart],
        required: Credits,
        held: Credits,
        at: Millis,
    ) -> Result<(), BudgetExceeded> {
        let own = self.of(None).into_iter();
        let applying = own.chain(parts.iter().filter_map(|part| self.of(Some(part))));
        check(applying, required, held, at)
    }

    /// Rejects a hold that exceeds the budgets of a part. Its credits are in a hold that counts for the account already.
    pub(crate) fn check_parts(
        &self,
        parts: &[BudgetPart],
        required: Credits,
        at: Millis,
    ) -> Result<(), BudgetExceeded> {
        let applying = parts.iter().filter_map(|part| self.of(Some(part)));
        check(applying, required, Credits::ZERO, at)
    }

    /// Returns the state of the budgets of a part, or of the account, with `held` in the account's holds.
    pub fn standings(
        &self,
        part: Option<&BudgetPart>,
        held: Credits,
        at: Millis,
    ) -> Vec<BudgetState> {
        let budgets = self.of(part);
        budgets.map_or_else(Vec::new, |budgets| budgets.standings(held, at).collect())
    }

    /// Returns the parts with current or former budgets.
    pub fn parts(&self) -> impl Iterator<Item = &BudgetPart> {
        self.0.iter().filter_map(|budgets| budgets.part.as_ref())
    }

    /// Returns the budgets that have reached a share in their current window.
    pub fn alerts(&self, at: Millis) -> Vec<BudgetAlert> {
        let mut alerts = Vec::new();
        for budgets in &self.0 {
            let states = budgets.standings(Credits::ZERO, at);
            for (counter, state) in budgets.counters.iter().zip(states) {
                let reached = ALERT_PERCENTS
                    .into_iter()
                    .filter(|percent| *percent <= counter.alerted);
                if counter.window.start(at) <= counter.start {
                    alerts.extend(reached.map(|percent| BudgetAlert {
                        part: budgets.part.clone(),
                        percent,
                        window_start: counter.start,
                        state,
                    }));
                }
            }
        }
        alerts
    }

    /// Counts the credits of blocks as available to a part again, for readers.
    pub fn without_blocks(&mut self, part: BudgetPart, reserved: Credits) {
        if reserved > Credits::ZERO {
            self.change_held(&[part], reserved.negated().micro());
        }
    }

    pub(crate) fn all(&self) -> &[PartBudgets] {
        &self.0
    }

    /// Changes the credits in the open holds of parts. Holds of a part count until their end even if its budgets were
    /// removed: the part may get new ones.
    pub(crate) fn change_held(&mut self, parts: &[BudgetPart], change: i64) {
        for part in parts {
            let place = self.place_of(Some(part));
            let budgets = &mut self.0[place];
            budgets.held += change;
            if budgets.is_idle() {
                self.0.remove(place);
            }
        }
    }

    /// Counts a charge or a refund. Returns whether a budget has reached another share of [`ALERT_PERCENTS`].
    pub(crate) fn spend(&mut self, parts: &[BudgetPart], micro: i64, at: Millis) -> bool {
        // A charge of zero begins no window, like a release.
        if micro == 0 {
            return false;
        }
        let mut is_alert_due = false;
        for counter in self.counters_for(parts) {
            let start = counter.window.start(at);
            if start > counter.start {
                (counter.start, counter.spent, counter.alerted) = (start, 0, 0);
            }
            // An operation of an earlier window arrives too late to count.
            if start == counter.start {
                counter.spent += micro;
                is_alert_due |= counter.note_share();
            }
        }
        is_alert_due
    }

    /// Subtracts an entry's amount from the counts.
    pub(crate) fn discount(&mut self, parts: &[BudgetPart], delta: i64, at: Millis, sequence: i64) {
        for counter in self.counters_for(parts) {
            if sequence > counter.since && counter.window.start(at) == counter.start {
                counter.spent += delta;
            }
        }
    }

    /// Returns the budgets without a window: the part, or none for the account's, and the number of entries before the
    /// budget.
    pub(crate) fn totals(&self) -> impl Iterator<Item = (Option<&BudgetPart>, i64)> {
        self.0.iter().filter_map(|budgets| {
            let mut counters = budgets.counters.iter();
            let total = counters.find(|counter| counter.window == BudgetWindow::Total);
            total.map(|counter| (budgets.part.as_ref(), counter.since))
        })
    }

    /// Sets budgets; `false` if they are invalid, or of too many parts. `since` is the number of the account's entries.
    pub(crate) fn set(&mut self, set: &SetBudgets, since: i64, at: Millis) -> bool {
        if !set.is_sound() {
            return false;
        }
        for budgets in &mut self.0 {
            let is_over = budgets.until.is_some_and(|until| until <= at);
            let part = budgets.part.as_ref();
            if is_over || part.is_some_and(|part| set.ended.contains(part)) {
                budgets.counters.clear();
            }
        }
        let place = self.place_of(set.part.as_ref());
        let budgets = &mut self.0[place];
        budgets.until = set.until;
        let before = std::mem::take(&mut budgets.counters);
        budgets.counters = set
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
                    alerted: 0,
                };
                let counter = before.cloned().unwrap_or(fresh);
                let limit = budget.credits.micro();
                // Another limit begins its alerts anew.
                let alerted = if counter.limit == limit {
                    counter.alerted
                } else {
                    0
                };
                Counter {
                    limit,
                    alerted,
                    ..counter
                }
            })
            .collect();
        self.0.retain(|budgets| !budgets.is_idle());
        self.parts().count() <= MOST_PARTS
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the counters of charges of these parts.
    fn counters_for(&mut self, parts: &[BudgetPart]) -> impl Iterator<Item = &mut Counter> {
        let counting = self.0.iter_mut().filter(|budgets| {
            let part = budgets.part.as_ref();
            part.is_none_or(|part| parts.contains(part))
        });
        counting.flat_map(|budgets| &mut budgets.counters)
    }

    fn of(&self, part: Option<&BudgetPart>) -> Option<&PartBudgets> {
        self.0.iter().find(|budgets| budgets.part.as_ref() == part)
    }

    /// Returns the position of a part's or the account's budgets, which are created if missing.
    fn place_of(&mut self, part: Option<&BudgetPart>) -> usize {
        let known = self
            .0
            .iter()
            .position(|budgets| budgets.part.as_ref() == part);
        known.unwrap_or_else(|| {
            self.0.push(PartBudgets {
                part: part.cloned(),
                until: None,
                held: 0,
                counters: Vec::new(),
            });
            self.0.len() - 1
        })
    }
}

impl Counter {
    /// Notes the share of the limit that the charges have reached. Returns whether it is a higher one.
    fn note_share(&mut self) -> bool {
        let (spent, limit) = (i128::from(self.spent), i128::from(self.limit));
        let mut shares = ALERT_PERCENTS.into_iter().rev();
        let reached = shares.find(|percent| spent * 100 >= limit * i128::from(*percent));
        let is_higher = reached.is_some_and(|percent| percent > self.alerted);
        self.alerted = self.alerted.max(reached.unwrap_or_default());
        is_higher
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(percent: &u8) -> bool {
    *percent == 0
}

impl PartBudgets {
    /// Returns whether there are no budgets and no holds.
    fn is_idle(&self) -> bool {
        self.counters.is_empty() && self.held == 0
    }

    fn standings(&self, held: Credits, at: Millis) -> impl Iterator<Item = BudgetState> {
        let held = match self.part {
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
