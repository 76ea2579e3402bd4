//! Schedules: a cron pattern of five fields in a time zone.
//!
//! If clocks are set forward, a pattern with a fixed time of day within the gap (`30 2 * * *`) fires at the first
//! moment after the gap, and a repeating pattern (`*/15 * * * *`) continues after it. If clocks are set back, a fixed
//! time fires at its first occurrence, and a repeating pattern at both. These are Vixie cron's rules, and `croner`'s.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use weir_errors::ApiError;
use weir_storage::clock::Millis;

/// The maximum bytes of a pattern, and of a time zone's name.
const MAX_BYTES: usize = 128;

/// A schedule in text form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleText {
    /// Cron pattern: minute, hour, day of the month, month and day of the week.
    pub cron: String,
    /// Time zone, by IANA's name.
    pub time_zone: String,
}

#[derive(Debug, Clone)]
pub struct Schedule {
    cron: Cron,
    zone: TimeZone,
}

impl ScheduleText {
    /// Reads a schedule, and checks that it fires at all.
    ///
    /// # Errors
    ///
    /// 400 `INVALID_REQUEST` with the path of the invalid field.
    pub fn read(json: &Value) -> Result<Self, ApiError> {
        let fields = json
            .as_object()
            .ok_or_else(|| invalid("schedule", "It is an object with `cron` and `time_zone`."))?;
        let (mut cron, mut time_zone) = (None, "UTC".to_owned());
        for (field, value) in fields {
            let path = format!("schedule.{field}");
            let text = value.as_str().filter(|text| text.len() <= MAX_BYTES);
            let text = || {
                text.map(str::to_owned).ok_or_else(|| {
                    invalid(&path, format!("It is a text of at most {MAX_BYTES} bytes."))
                })
            };
            match &**field {
                "cron" => cron = Some(text()?),
                "time_zone" => time_zone = text()?,
                _ => return Err(invalid(&path, "There is no such field.")),
            }
        }
        let cron = cron.ok_or_else(|| invalid("schedule.cron", "It is missing."))?;
        let text = Self { cron, time_zone };
        let schedule = text.parse()?;
        if schedule.next_after(Millis::now()).is_none() {
            return Err(invalid("schedule.cron", "It never fires."));
        }
        Ok(text)
    }

    /// Parses the schedule.
    ///
    /// # Errors
    ///
    /// Fails like [`read`](Self::read).
    pub fn parse(&self) -> Result<Schedule, ApiError> {
        let parser = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .build();
        let cron = parser.parse(&self.cron).map_err(|error| {
            let what = format!(
                "It is not a cron pattern of five fields (minute, hour, day of the month, month, day of the week): {error}."
            );
            invalid("schedule.cron", what)
        })?;
        let zone = TimeZone::get(&self.time_zone).map_err(|_| {
            let what = "The time zone does not exist; use a name of IANA's, such as Europe/Berlin.";
            invalid("schedule.time_zone", what)
        })?;
        Ok(Schedule { cron, zone })
    }
}

impl Schedule {
    /// Returns the first time after a moment; `None` if there is none.
    pub fn next_after(&self, moment: Millis) -> Option<Millis> {
        let next = self.cron.find_next_occurrence(&self.at(moment)?, false);
        next.ok().map(|next| millis(&next))
    }

    /// Returns the last time up to and including a moment.
    pub fn last_until(&self, moment: Millis) -> Option<Millis> {
        let last = self.cron.find_previous_occurrence(&self.at(moment)?, true);
        last.ok().map(|last| millis(&last))
    }

    /// Rounds to whole seconds, the resolution of patterns.
    fn at(&self, moment: Millis) -> Option<Zoned> {
        let moment = Timestamp::from_second(moment.seconds()).ok()?;
        Some(moment.to_zoned(self.zone.clone()))
    }
}

fn millis(moment: &Zoned) -> Millis {
    Millis(moment.timestamp().as_millisecond())
}

fn invalid(field: &str, what: impl Into<String>) -> ApiError {
    ApiError::invalid_request(field, what)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn schedule(cron: &str, time_zone: &str) -> Schedule {
        let (cron, time_zone) = (cron.to_owned(), time_zone.to_owned());
        ScheduleText { cron, time_zone }.parse().unwrap()
    }

    fn fires(schedule: &Schedule, from: &str, times: usize) -> Vec<String> {
        let mut moment = Millis::parse(from).unwrap();
        let next = || {
            moment = schedule.next_after(moment).unwrap();
            moment.iso()
        };
        std::iter::repeat_with(next).take(times).collect()
    }

    #[test]
    fn a_pattern_is_read_in_its_time_zone() {
        for (cron, zone, from, expected) in [
            (
                "0 9 * * MON-FRI",
                "Europe/Berlin",
                "2026-01-02T12:00:00Z",
                "2026-01-05T08:00:00Z",
            ),
            (
                "0 9 * * MON-FRI",
                "Europe/Berlin",
                "2026-07-03T12:00:00Z",
                "2026-07-06T07:00:00Z",
            ),
            (
                "30 8 1 * *",
                "Asia/Kolkata",
                "2026-03-01T03:00:00Z",
                "2026-04-01T03:00:00Z",
            ),
            (
                "0 0 29 2 *",
                "UTC",
                "2026-01-01T00:00:00Z",
                "2028-02-29T00:00:00Z",
            ),
            (
                "@daily",
                "America/New_York",
                "2026-01-01T05:00:00Z",
                "2026-01-02T05:00:00Z",
            ),
        ] {
            assert_eq!(
                fires(&schedule(cron, zone), from, 1),
                [expected],
                "{cron} {zone}"
            );
        }
    }

    #[test]
    fn where_clocks_change_a_time_of_day_fires_once_and_a_repetition_goes_on() {
        // On 29 March 2026, Berlin has no 02:00 to 03:00; on 25 October it has them twice.
        let daily = schedule("30 2 * * *", "Europe/Berlin");
        assert_eq!(
            fires(&daily, "2026-03-28T12:00:00Z", 2),
            ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]
        );
        assert_eq!(
            fires(&daily, "2026-10-24T12:00:00Z", 2),
            ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
        );
        let often = schedule("*/30 * * * *", "Europe/Berlin");
        assert_eq!(
            fires(&often, "2026-03-29T00:30:00Z", 2),
            ["2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"]
        );
        assert_eq!(
            fires(&often, "2026-10-25T00:00:00Z", 4),
            [
                "2026-10-25T00:30:00Z",
                "2026-10-25T01:00:00Z",
                "2026-10-25T01:30:00Z",
                "2026-10-25T02:00:00Z"
            ]
        );
    }

    #[test]
    fn the_last_time_is_found_to_the_millisecond() {
        let hourly = schedule("0 * * * *", "UTC");
        for (until, expected) in [
            ("2026-01-01T10:00:00Z", "2026-01-01T10:00:00Z"),
            ("2026-01-01T09:59:59.999Z", "2026-01-01T09:00:00Z"),
            ("2026-01-01T10:00:00.001Z", "2026-01-01T10:00:00Z"),
        ] {
            let last = hourly.last_until(Millis::parse(until).unwrap());
            assert_eq!(last.unwrap().iso(), expected);
        }
        let after = Millis::parse("2026-01-01T09:59:59.999Z").unwrap();
        assert_eq!(
            hourly.next_after(after).unwrap().iso(),
            "2026-01-01T10:00:00Z"
        );
    }
}
