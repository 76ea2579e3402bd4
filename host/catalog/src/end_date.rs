//! The end of a model at its provider: `ends_on` of `[models."ID"]`.

use std::fmt;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weir_storage::clock::Millis;

/// Days before the end from which weir warns.
const WARNING_DAYS: i32 = 60;

/// The day on which a provider ends a model, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndDate(Date);

impl EndDate {
    /// Parses a date such as `2026-11-30`.
    pub fn parse(text: &str) -> Option<Self> {
        let date: Date = text.parse().ok()?;
        // The crate accepts more forms, such as a time after the date.
        (date.to_string() == text).then_some(Self(date))
    }

    /// Returns whether the model has ended, or ends within 60 days.
    pub fn is_near(self, now: Millis) -> bool {
        self.days_left(now) <= WARNING_DAYS
    }

    /// Returns whether the day has come.
    pub fn has_come(self, now: Millis) -> bool {
        self.days_left(now) <= 0
    }

    /// Returns a warning about a model that has ended or ends within 60 days.
    pub fn warning(self, id: &str, now: Millis) -> Option<String> {
        let date = self.0;
        let warning = match self.days_left(now) {
            days if days > WARNING_DAYS => return None,
            days @ 2.. => format!("The provider ends the model {id} on {date}, in {days} days."),
            1 => format!("The provider ends the model {id} on {date}, tomorrow."),
            0 => format!("The provider ends the model {id} today, on {date}."),
            _ => format!("The provider ended the model {id} on {date}."),
        };
        Some(warning)
    }

    /// Returns the days until the end, negative after it.
    fn days_left(self, now: Millis) -> i32 {
        let now = Timestamp::from_millisecond(now.0).unwrap_or_default();
        let today = now.to_zoned(TimeZone::UTC).date();
        today.until(self.0).map_or(i32::MAX, |left| left.get_days())
    }
}

impl fmt::Display for EndDate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl Serialize for EndDate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EndDate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(DateVisitor)
    }
}

struct DateVisitor;

impl Visitor<'_> for DateVisitor {
    type Value = EndDate;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a date in quotes, such as \"2026-11-30\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<EndDate, E> {
        EndDate::parse(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warns_from_60_days_before_the_end() {
        let end = EndDate::parse("2026-11-30").expect("a date");
        let warning = |now: &str| end.warning("m", Millis::parse(now).expect("a moment"));
        assert_eq!(warning("2026-09-30T23:59:59Z"), None);
        for (now, told) in [
            (
                "2026-10-01T00:00:00Z",
                "ends the model m on 2026-11-30, in 60 days.",
            ),
            (
                "2026-11-29T12:00:00Z",
                "ends the model m on 2026-11-30, tomorrow.",
            ),
            (
                "2026-11-30T23:59:59Z",
                "ends the model m today, on 2026-11-30.",
            ),
            ("2026-12-01T00:00:00Z", "ended the model m on 2026-11-30."),
            ("2027-12-01T00:00:00Z", "ended the model m on 2026-11-30."),
        ] {
            assert_eq!(warning(now), Some(format!("The provider {told}")), "{now}");
        }
    }

    #[test]
    fn a_date_has_one_form() {
        for text in [
            "2026-11-31",
            "2026-11-30T00:00:00",
            "20261130",
            "tomorrow",
            "",
        ] {
            assert_eq!(EndDate::parse(text), None, "{text}");
        }
    }
}
