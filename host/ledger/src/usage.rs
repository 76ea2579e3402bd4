//! The usage of requests: counted for each request, and summed for reports.
//!
//! [`UsageCounts`] is the only list of counts. A hold stores its request's counts as JSON, an entry adds them to the
//! account's history, `usage_daily` sums them for each account and `platform_daily` for all, and reports read those sums.
//!
//! Each row of usage also names its [`Unit`]: the one in which the request's price counts. [`UsageCounts::divided`]
//! returns the [`Quantity`] in this unit. Rows from before the column have no unit. They take the unit of their model in
//! `model_kinds`, which [`LedgerStore::keep_model_kinds`](crate::LedgerStore::keep_model_kinds) fills from the catalog.
//!
//! To add a count, add a field to [`UsageCounts`], its line to [`COUNTS`], and a migration that adds its column to
//! `entries`, `usage_daily` and `platform_daily`.

use std::fmt::Write as _;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::credits::Credits;
use crate::receipt::ReceiptFacts;

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
    pub audio_input: u64,
    pub audio_output: u64,
    pub image_output: u64,
}

/// The unit in which a price counts usage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// Tokens of input and output. Each tier has its own price; searches of the web may add to it.
    #[default]
    Tokens,
    /// Characters of a text to speak.
    Characters,
    /// Seconds of a recording.
    Seconds,
    Images,
    /// Search units, of up to 100 documents each.
    SearchUnits,
}

/// An amount of usage, in the unit of its price.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quantity {
    pub unit: Unit,
    /// The number of units; in sums, less than zero after a correction.
    pub count: i64,
}

/// The quantity of many requests together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum QuantitySum {
    /// No usage.
    #[default]
    Empty,
    /// All of it in one unit.
    Of(Quantity),
    /// In a unit that no row and no catalog names.
    Unknown,
    /// In several units.
    Several,
}

/// A request's billable usage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Billable {
    /// Input and output tokens.
    pub tokens: TokenCounts,
    /// The input, if the price counts it in characters or seconds.
    pub input: Option<Quantity>,
    pub images: u32,
    /// The provider's searches of the web, or the search units of the request.
    pub searches: u64,
}

/// The counts of one request, of many requests together, or the difference between two counts of the same request,
/// which may be negative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
// JSON from before a count was added lacks it.
#[serde(default)]
pub struct UsageCounts {
    /// Input tokens, including cached ones. Stored counts have the quantity of characters, seconds or search units here,
    /// as in earlier versions, whose nodes sum these columns during an upgrade; [`Self::divided`] separates them.
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
    /// The unit of the request's price; `None` in records of earlier versions.
    #[serde(
        deserialize_with = "known_unit",
        serialize_with = "unit_name",
        skip_serializing_if = "Option::is_none"
    )]
    pub unit: Option<Unit>,
    /// The request's counts.
    #[serde(flatten)]
    pub counts: UsageCounts,
    /// The time from the request to the end of the response.
    pub latency_ms: u64,
    /// Attempts at upstreams.
    pub attempts: u32,
    /// Whether the counts are the host's own estimate.
    pub estimated: bool,
    /// The facts behind the charge; `None` without one, and in records of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<ReceiptFacts>>,
}

/// The usage and the charges of many requests, as in `usage_daily`. If a charge is taken back on another day, that
/// day's sums are negative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageSums {
    pub requests: i64,
    /// The credits that accounts paid.
    pub credits: Credits,
    /// The sums of the requests' counts.
    pub counts: UsageCounts,
    /// The sum of their quantities.
    pub quantity: QuantitySum,
}

impl Unit {
    pub const ALL: [Self; 5] = [
        Self::Tokens,
        Self::Characters,
        Self::Seconds,
        Self::Images,
        Self::SearchUnits,
    ];

    /// The name of an unknown unit.
    pub const UNKNOWN: &'static str = "unknown";

    /// Its name in the database, in the API and in exports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Characters => "characters",
            Self::Seconds => "seconds",
            Self::Images => "images",
            Self::SearchUnits => "search_units",
        }
    }

    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.name() == name)
    }
}

impl Quantity {
    pub fn new(unit: Unit, count: u64) -> Self {
        Self {
            unit,
            count: count.try_into().unwrap_or(i64::MAX),
        }
    }
}

impl QuantitySum {
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Empty, sum) | (sum, Self::Empty) => sum,
            (Self::Of(one), Self::Of(other)) if one.unit == other.unit => Self::Of(Quantity {
                unit: one.unit,
                count: one.count.saturating_add(other.count),
            }),
            (Self::Unknown, Self::Unknown) => Self::Unknown,
            _ => Self::Several,
        }
    }

    /// Returns the quantity, if it is in one unit.
    pub fn known(self) -> Option<Quantity> {
        match self {
            Self::Of(quantity) => Some(quantity),
            Self::Empty | Self::Unknown | Self::Several => None,
        }
    }

    /// Returns the unit's name; `None` without usage, and for several units.
    pub fn unit_name(self) -> Option<&'static str> {
        match self {
            Self::Of(quantity) => Some(quantity.unit.name()),
            Self::Unknown => Some(Unit::UNKNOWN),
            Self::Empty | Self::Several => None,
        }
    }
}

impl Billable {
    /// Returns the quantity in the unit of a price.
    pub fn quantity(&self, unit: Unit) -> Quantity {
        let count = match unit {
            Unit::Tokens => self.tokens.input.saturating_add(self.tokens.output),
            Unit::Images => self.images.into(),
            Unit::SearchUnits => self.searches,
            Unit::Characters | Unit::Seconds => {
                let input = self.input.filter(|input| input.unit == unit);
                return input.unwrap_or(Quantity { unit, count: 0 });
            }
        };
        Quantity::new(unit, count)
    }
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
    /// Makes the stored counts of a request's charge, with a price in this unit.
    pub fn new(used: &Billable, unit: Unit, provider_cost_nano_usd: i64) -> Self {
        let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let TokenCounts {
            cache_write_short,
            cache_write_long,
            ..
        } = used.tokens;
        Self {
            tokens_input: match unit {
                Unit::Tokens | Unit::Images => count(used.tokens.input),
                Unit::Characters | Unit::Seconds | Unit::SearchUnits => used.quantity(unit).count,
            },
            tokens_cache_read: count(used.tokens.cache_read),
            tokens_cache_write: count(cache_write_short.saturating_add(cache_write_long)),
            tokens_output: count(used.tokens.output),
            images: used.images.into(),
            provider_cost_nano_usd,
        }
    }

    /// Separates stored counts with a unit into the counts of reports and the quantity.
    #[must_use]
    pub fn divided(mut self, unit: Unit) -> (Self, Quantity) {
        let count = match unit {
            Unit::Tokens => self.tokens_input.saturating_add(self.tokens_output),
            Unit::Images => self.images,
            Unit::Characters | Unit::Seconds | Unit::SearchUnits => {
                std::mem::take(&mut self.tokens_input)
            }
        };
        (self, Quantity { unit, count })
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

    /// Whether both are the usage of the same settlement. A record of an earlier version has no unit, and may count
    /// other things than images as images.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        if self.unit.is_some() && other.unit.is_some() {
            return self == other;
        }
        let comparable = |usage: &Self| Self {
            unit: None,
            counts: UsageCounts {
                images: 0,
                ..usage.counts
            },
            ..usage.clone()
        };
        comparable(self) == comparable(other)
    }
}

/// Reads the name of a unit. A name of a later version is unknown.
fn known_unit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Unit>, D::Error> {
    let name = Option::<String>::deserialize(deserializer)?;
    Ok(name.as_deref().and_then(Unit::of))
}

fn unit_name<S: Serializer>(unit: &Option<Unit>, serializer: S) -> Result<S::Ok, S::Error> {
    unit.map(Unit::name).serialize(serializer)
}

impl UsageSums {
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            credits: self.credits.saturating_add(other.credits),
            counts: self.counts.plus(other.counts),
            quantity: self.quantity.plus(other.quantity),
        }
    }

    /// Whether the requests had no usage, or corrections took all of it back.
    pub fn is_zero(&self) -> bool {
        self.is_uncharged() && self.counts == UsageCounts::default()
    }

    /// Whether no request was charged, or corrections took all charges back.
    pub fn is_uncharged(&self) -> bool {
        self.requests == 0 && self.credits == Credits::ZERO
    }

    /// Returns the sums over rows of [`to_date`] with the same `unit`, as columns of a `SELECT`; [`Self::read`] reads
    /// them.
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

    /// Reads these columns by name, of rows with a unit by its name.
    pub fn read<E>(
        unit: &str,
        mut column: impl FnMut(&'static str) -> Result<i64, E>,
    ) -> Result<Self, E> {
        let mut sums = Self {
            requests: column("requests")?,
            credits: Credits::from_micro(column("credits")?),
            ..Self::default()
        };
        for count in &COUNTS {
            *(count.field)(&mut sums.counts) = column(count.column)?;
        }
        (sums.counts, sums.quantity) = measured(sums.counts, Unit::of(unit));
        // Costs of failed requests, and corrected charges, have no quantity.
        if sums.is_uncharged() && sums.quantity.known().is_none_or(|sum| sum.count == 0) {
            sums.quantity = QuantitySum::Empty;
        }
        Ok(sums)
    }
}

/// Separates stored counts into the counts of reports and the quantity.
pub(crate) fn measured(counts: UsageCounts, unit: Option<Unit>) -> (UsageCounts, QuantitySum) {
    match unit {
        None => (counts, QuantitySum::Unknown),
        Some(unit) => {
            let (counts, quantity) = counts.divided(unit);
            (counts, QuantitySum::Of(quantity))
        }
    }
}

/// Returns the unit of a row, as a column of a `SELECT`: its own one, or that of its model.
pub(crate) fn unit_of_row(unit: &str, model: &str) -> String {
    format!(
        "COALESCE({unit}, (SELECT k.unit FROM model_kinds AS k WHERE k.model = {model}), '{}')",
        Unit::UNKNOWN
    )
}

/// Returns a row's count for reports, as a column of a `SELECT`. Nodes of earlier versions counted embeddings, rankings
/// and recordings as images.
pub(crate) fn count_of_row(count: &Count, value: &str, model: &str) -> String {
    match count.column {
        "images" => format!(
            "CASE WHEN {value} <> 0 AND EXISTS (SELECT 1 FROM model_kinds AS k WHERE k.model = {model} \
             AND k.kind <> 'chat') THEN 0 ELSE {value} END"
        ),
        _ => value.to_owned(),
    }
}

/// The reading of rows of usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageReading {
    /// Each row in its unit, or else in that of its model.
    ByUnit,
    /// As before units were stored: images, or else tokens. Exports of months that had ended by then stay the same.
    Unitless,
}

/// Returns the unit and the counts of rows of a table, as columns of a `SELECT`.
fn measures(table: &str, reading: UsageReading) -> String {
    let model = format!("{table}.model");
    if reading == UsageReading::Unitless {
        let counts: Vec<_> = COUNTS.iter().map(|count| count.column).collect();
        return format!(
            "CASE WHEN {table}.images <> 0 THEN '{}' ELSE '{}' END AS unit, {}",
            Unit::Images.name(),
            Unit::Tokens.name(),
            counts.join(", ")
        );
    }
    let mut columns = format!("{} AS unit", unit_of_row(&format!("{table}.unit"), &model));
    for count in &COUNTS {
        let value = count_of_row(count, &format!("{table}.{}", count.column), &model);
        let _ = write!(columns, ", {value} AS {}", count.column);
    }
    columns
}

/// Returns the usage of all requests up to now, as a table of a `SELECT`: rows of `usage_daily`, plus entries that are
/// not folded into it yet. The condition is on the columns of `usage_daily`; its parameters may be repeated.
pub fn to_date(condition: &str) -> String {
    to_date_in(UsageReading::ByUnit, condition)
}

/// Does the same with a reading of the rows.
pub(crate) fn to_date_in(reading: UsageReading, condition: &str) -> String {
    let daily = measures("usage_daily", reading);
    let tail = measures("entries", reading);
    // The upper bound keeps PostgreSQL from the estimate that a third of all entries follow the last folded one.
    format!(
        "(SELECT account_id, period_start, day, model, provider, source, key_hash, requests, credits, overrun, {daily} \
         FROM usage_daily WHERE {condition} UNION ALL SELECT * FROM (SELECT {ENTRY_USAGE}, {tail} FROM entries \
         WHERE number > (SELECT number FROM entries_folded) AND number < 9223372036854775807 \
         AND provider IS NOT NULL) AS tail WHERE {condition}) AS usage_to_date"
    )
}

/// Returns the usage of all accounts together up to now, as a table of a `SELECT`: rows of `platform_daily`, plus entries
/// that are not folded into it yet. The condition is as for [`to_date`], on the columns `day`, `model` and `provider`.
pub fn platform_to_date(condition: &str) -> String {
    let daily = measures("platform_daily", UsageReading::ByUnit);
    let tail = measures("entries", UsageReading::ByUnit);
    let columns = format!("{PLATFORM_KEY}, requests, credits, overrun");
    let counts: Vec<_> = COUNTS.iter().map(|count| count.column).collect();
    let counts = counts.join(", ");
    format!(
        "(SELECT {columns}, {daily} FROM platform_daily WHERE {condition} UNION ALL \
         SELECT {columns}, unit, {counts} FROM (SELECT {ENTRY_USAGE}, {tail} FROM entries \
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
        let stored = r#"{"provider":"p","adapter_digest":"d","unit":"images","tokens_input":1,"tokens_cache_read":2,"tokens_cache_write":3,"tokens_output":4,"images":5,"provider_cost_nano_usd":6,"latency_ms":7,"attempts":8,"estimated":true}"#;
        let usage: RequestUsage = serde_json::from_str(stored).unwrap();
        let expected = RequestUsage {
            provider: "p".to_owned(),
            adapter_digest: "d".to_owned(),
            unit: Some(Unit::Images),
            counts: counts(),
            latency_ms: 7,
            attempts: 8,
            estimated: true,
            receipt: None,
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
        let unnamed = stored.replace(r#""unit":"images","#, "");
        let other = stored.replace("images\"", "decisions\"");
        for unitless in [&unnamed, &other] {
            let read: RequestUsage = serde_json::from_str(unitless).unwrap();
            assert_eq!(read.unit, None, "{unitless}");
        }
        let read: RequestUsage = serde_json::from_str(&unnamed).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), unnamed);
    }

    #[test]
    fn settlements_of_earlier_versions_are_recognised() {
        let usage = |unit, images| RequestUsage {
            unit,
            counts: UsageCounts { images, ..counts() },
            ..RequestUsage::default()
        };
        let now = usage(Some(Unit::Tokens), 0);
        assert!(now.is_same_as(&now));
        assert!(now.is_same_as(&usage(None, 1)) && usage(None, 1).is_same_as(&now));
        assert!(!now.is_same_as(&usage(Some(Unit::Images), 0)));
        assert!(!now.is_same_as(&usage(Some(Unit::Tokens), 1)));
        let other = RequestUsage {
            latency_ms: 1,
            ..usage(None, 0)
        };
        assert!(!now.is_same_as(&other));
    }

    #[test]
    fn stored_counts_return_each_units_quantity() {
        for unit in Unit::ALL {
            assert_eq!(Unit::of(unit.name()), Some(unit));
            let used = Billable {
                tokens: TokenCounts {
                    input: 100,
                    output: 20,
                    ..TokenCounts::default()
                },
                input: Some(Quantity::new(unit, 7)),
                images: 3,
                searches: 5,
            };
            let (counts, quantity) = UsageCounts::new(&used, unit, 9).divided(unit);
            let (count, tokens_input) = match unit {
                Unit::Tokens => (120, 100),
                Unit::Images => (3, 100),
                Unit::Characters | Unit::Seconds => (7, 0),
                Unit::SearchUnits => (5, 0),
            };
            assert_eq!(quantity, Quantity { unit, count }, "{unit:?}");
            assert_eq!(used.quantity(unit), quantity);
            assert_eq!((counts.tokens_input, counts.images), (tokens_input, 3));
        }
        assert_eq!(Unit::of(Unit::UNKNOWN), None);
    }

    #[test]
    fn quantities_of_several_units_have_no_sum() {
        let of = |unit, count| QuantitySum::Of(Quantity { unit, count });
        let (tokens, images) = (of(Unit::Tokens, 2), of(Unit::Images, 3));
        assert_eq!(tokens.plus(tokens), of(Unit::Tokens, 4));
        assert_eq!(tokens.plus(QuantitySum::Empty), tokens);
        assert_eq!(tokens.plus(images), QuantitySum::Several);
        assert_eq!(tokens.plus(QuantitySum::Unknown), QuantitySum::Several);
        let unknown = QuantitySum::Unknown.plus(QuantitySum::Unknown);
        assert_eq!(unknown.unit_name(), Some("unknown"));
    }

    #[test]
    fn sums_are_read_by_the_names_that_they_are_selected_by() {
        let columns = UsageSums::columns();
        let sums = UsageSums::read("images", |column| {
            assert!(columns.contains(&format!("SUM({column})")), "{column}");
            Ok::<_, ()>(column.len() as i64)
        });
        let sums = sums.unwrap();
        assert_eq!(sums.counts.images, 6);
        assert_eq!(sums.quantity.known(), Some(Quantity::new(Unit::Images, 6)));
    }
}
