//! The usage of requests: counted for each request, and summed for reports.
//!
//! [`UsageCounts`] is the only list of counts. A hold stores its request's counts as JSON, an entry adds them to the
//! account's history, `usage_daily` sums them for each account and `platform_daily` for all, and reports read those sums.
//!
//! To add a count, add a field to [`UsageCounts`], its line to [`COUNTS`], and a migration that adds its column to
//! `entries`, `usage_daily` and `platform_daily`.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::credits::Credits;

/// A request's tokens, verified by the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenCounts {
    /// Input tokens, including cached ones.
    pub input: u64,
    /// Input tokens that were read from the upstream's cache.
    pub cache_read: u64,
    /// Input tokens that were written to the cache for a short time.
    pub cache_write_short: u64,
    /// Input tokens that were written to the cache for a long time.
    pub cache_write_long: u64,
    /// Output tokens, including reasoning.
    pub output: u64,
    /// Reasoning tokens of the output.
    pub reasoning: u64,
    /// Tokens of audio in the input.
    pub audio_input: u64,
    /// Tokens of audio in the output.
    pub audio_output: u64,
    /// Tokens of images in the output.
    pub image_output: u64,
}

/// A request's billable usage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Billable {
    /// Input and output tokens.
    pub tokens: TokenCounts,
    /// Generated images.
    pub images: u32,
    /// The provider's searches of the web.
    pub searches: u64,
}

/// The counts of one request, of many requests together, or the difference between two counts of the same request,
/// which may be negative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
// JSON from before a count was added lacks it.
#[serde(default)]
pub struct UsageCounts {
    /// Input tokens, including cached ones.
    pub tokens_input: i64,
    /// Input tokens that were read from the provider's cache.
    pub tokens_cache_read: i64,
    /// Input tokens that were written to the provider's cache, for any time.
    pub tokens_cache_write: i64,
    /// Output tokens.
    pub tokens_output: i64,
    /// Generated images.
    pub images: i64,
    /// The provider's own price, in nano-USD.
    pub provider_cost_nano_usd: i64,
}

/// One count of the [`UsageCounts`].
pub struct Count {
    /// Its column in `entries`, `usage_daily` and `platform_daily`.
    pub column: &'static str,
    /// The maximum of one request.
    most: i64,
    field: fn(&mut UsageCounts) -> &mut i64,
}

/// The maximum of any count of one request; it keeps sums within an i64.
const MAX_COUNT: i64 = 1_000_000_000_000;

/// Each of the [`UsageCounts`] once.
pub static COUNTS: [Count; 6] = [
    count("tokens_input", |counts| &mut counts.tokens_input),
    count("tokens_cache_read", |counts| &mut counts.tokens_cache_read),
    count("tokens_cache_write", |counts| {
        &mut counts.tokens_cache_write
    }),
    count("tokens_output", |counts| &mut counts.tokens_output),
    count("images", |counts| &mut counts.images),
    Count {
        most: Credits::MAX.micro(),
        ..count("provider_cost", |counts| &mut counts.provider_cost_nano_usd)
    },
];

const fn count(column: &'static str, field: fn(&mut UsageCounts) -> &mut i64) -> Count {
    let most = MAX_COUNT;
    Count {
        column,
        most,
        field,
    }
}

/// The upstream and the usage of a request, for the reports. Contains no messages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
// JSON from before a field was added lacks it.
#[serde(default)]
pub struct RequestUsage {
    /// The upstream of the response.
    pub provider: String,
    /// The adapter of the response.
    pub adapter_digest: String,
    /// The request's counts.
    #[serde(flatten)]
    pub counts: UsageCounts,
    /// The time from the request to the end of the response.
    pub latency_ms: u64,
    /// Attempts at upstreams.
    pub attempts: u32,
    /// Whether the counts are the host's own estimate.
    pub estimated: bool,
}

/// The usage and the charges of many requests, as in `usage_daily`. If a charge is taken back on another day, that
/// day's sums are negative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageSums {
    /// Charged requests.
    pub requests: i64,
    /// The credits that accounts paid.
    pub credits: Credits,
    /// The sums of the requests' counts.
    pub counts: UsageCounts,
}

impl Count {
    /// Returns this count of `counts`.
    pub fn of(&self, mut counts: UsageCounts) -> i64 {
        *(self.field)(&mut counts)
    }

    pub(crate) fn set(&self, counts: &mut UsageCounts, value: i64) {
        *(self.field)(counts) = value;
    }
}

impl UsageCounts {
    /// Makes the counts of a request's charge.
    pub fn new(used: &Billable, provider_cost_nano_usd: i64) -> Self {
        let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let TokenCounts {
            cache_write_short,
            cache_write_long,
            ..
        } = used.tokens;
        Self {
            tokens_input: count(used.tokens.input),
            tokens_cache_read: count(used.tokens.cache_read),
            tokens_cache_write: count(cache_write_short.saturating_add(cache_write_long)),
            tokens_output: count(used.tokens.output),
            images: used.images.into(),
            provider_cost_nano_usd,
        }
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with_each(other, i64::saturating_add)
    }

    /// Returns the difference of both, which may be negative.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.with_each(other, i64::saturating_sub)
    }

    /// Returns the counts within the maximum of one request.
    fn bounded(mut self) -> Self {
        for count in &COUNTS {
            let value = (count.field)(&mut self);
            *value = (*value).clamp(0, count.most);
        }
        self
    }

    fn with_each(mut self, other: Self, both: fn(i64, i64) -> i64) -> Self {
        for count in &COUNTS {
            let value = (count.field)(&mut self);
            *value = both(*value, count.of(other));
        }
        self
    }
}

impl RequestUsage {
    /// Returns the usage within the maximum of one request.
    pub(crate) fn bounded(mut self) -> Self {
        self.counts = self.counts.bounded();
        self.latency_ms = self.latency_ms.min(MAX_COUNT.unsigned_abs());
        self
    }
}

impl UsageSums {
    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            credits: self.credits.saturating_add(other.credits),
            counts: self.counts.plus(other.counts),
        }
    }

    /// Returns the sums over rows of `usage_daily`, as columns of a `SELECT`; [`Self::read`] reads them.
    pub fn columns() -> String {
        let counts = COUNTS.iter().map(|count| count.column);
        let mut columns = String::new();
        for column in ["requests", "credits"].into_iter().chain(counts) {
            let separator = if columns.is_empty() { "" } else { ", " };
            // PostgreSQL sums integers to a decimal; and both databases sum zero rows to null.
            let _ = write!(
                columns,
                "{separator}CAST(COALESCE(SUM({column}), 0) AS BIGINT) AS {column}"
            );
        }
        columns
    }

    /// Reads these columns by name.
    pub fn read<E>(mut column: impl FnMut(&'static str) -> Result<i64, E>) -> Result<Self, E> {
        let mut sums = Self {
            requests: column("requests")?,
            credits: Credits::from_micro(column("credits")?),
            counts: UsageCounts::default(),
        };
        for count in &COUNTS {
            *(count.field)(&mut sums.counts) = column(count.column)?;
        }
        Ok(sums)
    }
}

/// Returns the usage of all requests up to now, as a table of a `SELECT`: rows of `usage_daily`, plus entries that are
/// not folded into it yet. The condition is on the columns of `usage_daily`; its parameters may be repeated.
pub fn to_date(condition: &str) -> String {
    let counts: Vec<_> = COUNTS.iter().map(|count| count.column).collect();
    let counts = counts.join(", ");
    // The upper bound keeps PostgreSQL from the estimate that a third of all entries follow the last folded one.
    format!(
        "(SELECT account_id, period_start, day, model, provider, source, key_hash, requests, credits, overrun, {counts} \
         FROM usage_daily WHERE {condition} UNION ALL SELECT * FROM (SELECT {ENTRY_USAGE}, {counts} FROM entries \
         WHERE number > (SELECT number FROM entries_folded) AND number < 9223372036854775807 \
         AND provider IS NOT NULL) AS tail WHERE {condition}) AS usage_to_date"
    )
}

/// Returns the usage of all accounts together up to now, as a table of a `SELECT`: rows of `platform_daily`, plus entries
/// that are not folded into it yet. The condition is as for [`to_date`], on the columns `day`, `model` and `provider`.
pub fn platform_to_date(condition: &str) -> String {
    let columns: Vec<_> = COUNTS.iter().map(|count| count.column).collect();
    let counts = columns.join(", ");
    let columns = format!("{PLATFORM_KEY}, requests, credits, overrun, {counts}");
    format!(
        "(SELECT {columns} FROM platform_daily WHERE {condition} UNION ALL \
         SELECT {columns} FROM (SELECT {ENTRY_USAGE}, {counts} FROM entries \
         WHERE number > (SELECT number FROM platform_folded) AND number < 9223372036854775807 \
         AND provider IS NOT NULL) AS tail WHERE {condition}) AS platform_to_date"
    )
}

/// The ids of the accounts with requests in a month, as a table of a `SELECT`: rows of `active_accounts`, plus
/// entries that are not folded into it yet. Parameters: the month as `YYYY-MM`, its first moment and the next month's.
/// A request counts even if its charge is taken back.
pub const ACTIVE_ACCOUNTS: &str = "(SELECT account_id FROM active_accounts WHERE month = $1 UNION \
     SELECT account_id FROM entries WHERE number > (SELECT number FROM platform_folded) \
     AND number < 9223372036854775807 AND requests > 0 AND at >= $2 AND at < $3) AS active";

/// The key of `platform_daily`.
pub(crate) const PLATFORM_KEY: &str = "day, model, provider";

/// An entry's contribution to the sums, except for the counts: the columns of `usage_daily`, in this order. Agents'
/// tasks have no sums of their own: each would add a row.
pub(crate) const ENTRY_USAGE: &str = "account_id, period_start, at - at % 86400000 AS day, model, provider, source, \
     CASE WHEN source = 'api_key' THEN COALESCE(source_id, '') ELSE '' END AS key_hash, requests, \
     -(plan_delta + top_up_delta) AS credits, overrun";

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// Makes counts with a distinct value each.
    fn counts() -> UsageCounts {
        UsageCounts {
            tokens_input: 1,
            tokens_cache_read: 2,
            tokens_cache_write: 3,
            tokens_output: 4,
            images: 5,
            provider_cost_nano_usd: 6,
        }
    }

    #[test]
    fn every_count_is_in_the_list_once() {
        let listed: Vec<_> = COUNTS.iter().map(|count| count.of(counts())).collect();
        assert_eq!(listed, [1, 2, 3, 4, 5, 6]);
        let fields = serde_json::to_value(counts()).unwrap();
        assert_eq!(fields.as_object().unwrap().len(), COUNTS.len());
    }

    #[test]
    fn counts_are_added_and_taken_away() {
        let twice = counts().plus(counts());
        let listed: Vec<_> = COUNTS.iter().map(|count| count.of(twice)).collect();
        assert_eq!(listed, [2, 4, 6, 8, 10, 12]);
        assert_eq!(twice.minus(counts()), counts());
        assert_eq!(counts().minus(twice).plus(twice), counts());
    }

    #[test]
    fn what_is_beyond_belief_is_not_counted() {
        let all = UsageCounts {
            tokens_input: i64::MAX,
            tokens_output: -1,
            provider_cost_nano_usd: i64::MAX,
            ..counts()
        };
        let believed = UsageCounts {
            tokens_input: MAX_COUNT,
            tokens_output: 0,
            provider_cost_nano_usd: Credits::MAX.micro(),
            ..counts()
        };
        assert_eq!(all.bounded(), believed);
    }

    #[test]
    fn what_holds_have_stored_stays_readable() {
        let stored = r#"{"provider":"p","adapter_digest":"d","tokens_input":1,"tokens_cache_read":2,"tokens_cache_write":3,"tokens_output":4,"images":5,"provider_cost_nano_usd":6,"latency_ms":7,"attempts":8,"estimated":true}"#;
        let usage: RequestUsage = serde_json::from_str(stored).unwrap();
        let expected = RequestUsage {
            provider: "p".to_owned(),
            adapter_digest: "d".to_owned(),
            counts: counts(),
            latency_ms: 7,
            attempts: 8,
            estimated: true,
        };
        assert_eq!(usage, expected);
        assert_eq!(serde_json::to_string(&usage).unwrap(), stored);
        // An example of JSON from before images were counted.
        let earlier = stored.replace(r#""images":5,"#, "");
        let usage: RequestUsage = serde_json::from_str(&earlier).unwrap();
        assert_eq!(usage.counts.images, 0);
        // JSON from before any field but the provider, and from a later version during an upgrade.
        let first: RequestUsage = serde_json::from_str(r#"{"provider":"p"}"#).unwrap();
        assert_eq!((&*first.provider, first.estimated), ("p", false));
        let later = stored.replace("}", r#","region":"eu"}"#);
        let later: RequestUsage = serde_json::from_str(&later).unwrap();
        assert_eq!(later, expected);
    }

    #[test]
    fn sums_are_read_by_the_names_that_they_are_selected_by() {
        let columns = UsageSums::columns();
        let sums = UsageSums::read(|column| {
            assert!(columns.contains(&format!("SUM({column})")), "{column}");
            Ok::<_, ()>(column.len() as i64)
        });
        assert_eq!(sums.unwrap().counts.images, 6);
    }
}
