//! Plans and their periods.
//!
//! A plan grants credits at the start of each period, which expire at its end. The payment processor defines the
//! periods of paid plans. Periods of the free plan are calendar months in UTC since the account's creation: for an
//! account from 31 January, one begins on 28 February and the next on 31 March.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use serde::{Deserialize, Serialize};
use weir_storage::clock::Millis;

use crate::credits::Credits;

/// A subscription, or the free plan of users without one.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Plan {
    /// Costs nothing.
    #[default]
    Free,
    /// 10 USD a month.
    Guru,
    /// 50 USD a month.
    Pro,
}

/// A billing cycle, from its start up to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Period {
    /// The first moment that belongs to it.
    pub start: Millis,
    /// The first moment after it.
    pub end: Millis,
}

/// Days that a paid plan stays active after its period while the payment for the next one is pending.
pub(crate) const GRACE_DAYS: i64 = 3;

impl Plan {
    pub const ALL: [Self; 3] = [Self::Free, Self::Guru, Self::Pro];

    /// Returns the credits of one period.
    pub const fn monthly_credits(self) -> Credits {
        match self {
            Self::Free => Credits::whole(500),
            Self::Guru => Credits::whole(10_000),
            Self::Pro => Credits::whole(55_000),
        }
    }

    /// Returns the plan's name in the API and the database.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Guru => "guru",
            Self::Pro => "pro",
        }
    }

    /// Returns the time at which a period of this plan ends without a new one: the free plan's at its end, a paid
    /// plan's after the grace period.
    pub(crate) fn lapses_at(self, period: Period) -> Millis {
        match self {
            Self::Free => period.end,
            Self::Guru | Self::Pro => period.end.plus_days(GRACE_DAYS),
        }
    }
}

/// Returns the time at which an account's plan ends without a new period, as an SQL expression; null for the free plan.
/// The next operation of the account begins the free plan then, so readers of `users.plan` compare it with their time.
pub fn plan_ends_at(account: &str) -> String {
    format!(
        "(SELECT CASE WHEN a.plan = '{free}' THEN NULL WHEN a.cancelled_at IS NOT NULL THEN a.period_end \
         ELSE a.period_end + {grace} END FROM accounts AS a WHERE a.id = {account})",
        free = Plan::Free.name(),
        grace = Millis(0).plus_days(GRACE_DAYS).0,
    )
}

impl FromStr for Plan {
    type Err = UnknownPlan;

    fn from_str(name: &str) -> Result<Self, UnknownPlan> {
        Self::ALL
            .into_iter()
            .find(|plan| plan.name() == name)
            .ok_or(UnknownPlan)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The plan does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the plan must be free, guru or pro")]
pub struct UnknownPlan;

impl Period {
    pub fn contains(self, moment: Millis) -> bool {
        self.start <= moment && moment < self.end
    }

    /// Returns a moment's calendar month in UTC.
    pub fn of_calendar_month(moment: Millis) -> Self {
        let moment = Timestamp::from_millisecond(moment.0).unwrap_or_default();
        let date = moment.to_zoned(TimeZone::UTC).date();
        Self {
            start: first_moment(date.first_of_month()),
            end: Millis(first_moment(date.last_of_month()).0 + 86_400_000),
        }
    }

    /// Returns the month since `anchor` that contains `now`; the first one if `now` precedes it.
    ///
    /// Each start counts from the anchor: counting from the previous start would let a short month move all later
    /// starts.
    pub fn monthly(anchor: Millis, now: Millis) -> Self {
        let start = |months: i64| months_after(anchor, months);
        // No month has more than 31 days, so this is at most the right month, and is soon reached.
        let mut months = (now.0.saturating_sub(anchor.0) / (31 * 86_400_000)).max(0);
        while start(months + 1) <= now && start(months + 1) > start(months) {
            months += 1;
        }
        Self {
            start: start(months),
            end: start(months + 1),
        }
    }
}

/// Returns the same day and time after some months, or the month's last day. Beyond the calendar's range, returns the
/// moment itself.
fn months_after(anchor: Millis, months: i64) -> Millis {
    let later = Timestamp::from_millisecond(anchor.0)
        .ok()
        .map(|anchor| anchor.to_zoned(TimeZone::UTC))
        .and_then(|anchor| {
            anchor
                .checked_add(Span::new().try_months(months).ok()?)
                .ok()
        });
    later.map_or(anchor, |later| Millis(later.timestamp().as_millisecond()))
}

/// Returns the day of a moment in UTC, as `YYYY-MM-DD`.
pub fn day(moment: Millis) -> String {
    Timestamp::from_millisecond(moment.0)
        .unwrap_or_default()
        .to_zoned(TimeZone::UTC)
        .date()
        .to_string()
}

/// Parses a day as `YYYY-MM-DD`, and returns its first moment in UTC.
pub fn start_of_day(day: &str) -> Option<Millis> {
    let day: Date = (day.len() == "YYYY-MM-DD".len()).then(|| day.parse().ok())??;
    Some(first_moment(day))
}

fn first_moment(day: Date) -> Millis {
    let since = day.duration_since(Date::constant(1970, 1, 1));
    Millis(since.as_secs() * 1_000)
}

/// Parses a calendar month as `YYYY-MM`, and returns the first moments of its first and last day in UTC.
pub fn days_of_month(month: &str) -> Option<[Millis; 2]> {
    let first: Date = format!("{month}-01").parse().ok()?;
    Some([first, first.last_of_month()].map(first_moment))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(moment: &str) -> Millis {
        Millis(moment.parse::<Timestamp>().unwrap().as_millisecond())
    }

    #[test]
    fn months_are_counted_from_the_day_of_the_account() {
        let anchor = at("2024-01-31T12:00:00Z");
        for (now, start, end) in [
            (
                "2024-01-31T12:00:00Z",
                "2024-01-31T12:00:00Z",
                "2024-02-29T12:00:00Z",
            ),
            (
                "2024-02-29T11:59:59.999Z",
                "2024-01-31T12:00:00Z",
                "2024-02-29T12:00:00Z",
            ),
            (
                "2024-02-29T12:00:00Z",
                "2024-02-29T12:00:00Z",
                "2024-03-31T12:00:00Z",
            ),
            (
                "2024-04-30T12:00:00Z",
                "2024-04-30T12:00:00Z",
                "2024-05-31T12:00:00Z",
            ),
            (
                "2026-02-28T13:00:00Z",
                "2026-02-28T12:00:00Z",
                "2026-03-31T12:00:00Z",
            ),
            (
                "2020-01-01T00:00:00Z",
                "2024-01-31T12:00:00Z",
                "2024-02-29T12:00:00Z",
            ),
        ] {
            let period = Period {
                start: at(start),
                end: at(end),
            };
            assert_eq!(Period::monthly(anchor, at(now)), period, "{now}");
        }
    }

    #[test]
    fn a_month_has_a_first_and_a_last_day() {
        let days = ["2024-02-01T00:00:00Z", "2024-02-29T00:00:00Z"].map(at);
        assert_eq!(days_of_month("2024-02"), Some(days));
        for day in days {
            assert!(super::day(day).starts_with("2024-02-"));
        }
        assert_eq!(days_of_month("2024-13"), None);
    }

    #[test]
    fn plans_have_names_and_credits() {
        assert_eq!("guru".parse(), Ok(Plan::Guru));
        assert_eq!("Guru".parse::<Plan>(), Err(UnknownPlan));
        let credits = Plan::ALL.map(|plan| plan.monthly_credits().micro() / 1_000_000);
        assert_eq!(credits, [500, 10_000, 55_000]);
    }

    #[test]
    fn a_paid_plan_has_three_days_of_grace() {
        let period = Period {
            start: Millis(0),
            end: Millis(1_000),
        };
        assert_eq!(Plan::Free.lapses_at(period), Millis(1_000));
        assert_eq!(Plan::Pro.lapses_at(period), Millis(1_000 + 3 * 86_400_000));
    }

    proptest! {
        #[test]
        fn every_moment_belongs_to_one_month(anchor in 0..4_000_000_000_000_i64, later in 0..400_000_000_000_i64) {
            let (anchor, now) = (Millis(anchor), Millis(anchor + later));
            let period = Period::monthly(anchor, now);
            prop_assert!(period.contains(now));
            prop_assert_eq!(Period::monthly(anchor, period.start), period);
            prop_assert_eq!(Period::monthly(anchor, period.end).start, period.end);
        }
    }
}
