//! What a month has cost, as other tools read it: in the columns of FOCUS, the FinOps Open Cost and Usage Specification
//! (1.0, <https://focus.finops.org>), a line for each day, model, provider and key.
//!
//! Columns of weir's own begin with `x_`, as FOCUS asks. Amounts are exact: a credit is 0.001 USD, and a micro-credit a
//! nano-USD.
//!
//! **Invariant:** the lines of a month add up to what was charged in it, as `GET /usage/me?group=day` says.

use std::collections::BTreeMap;

use axum::response::Response;
use futures_util::stream;
use serde_json::json;
use weir_ledger::store::history::DayUsage;
use weir_ledger::{AccountId, Credits, Period, Store, plans};
use weir_storage::Database;
use weir_storage::clock::Millis;

use super::csv;
use crate::error::ApiError;
use crate::identity::directory::{self, KeyName};
use crate::query::ListQuery;

const DAY_MS: i64 = 86_400_000;

/// The columns of a line. Operators see the last one, too.
const COLUMNS: [&str; 42] = [
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "EffectiveCost",
    "InvoiceIssuerName",
    "ListCost",
    "PricingCategory",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "ServiceCategory",
    "ServiceName",
    "SkuId",
    "SubAccountId",
    "SubAccountName",
    "Tags",
    "x_Source",
    "x_Requests",
    "x_Credits",
    "x_TokensInput",
    "x_TokensCacheRead",
    "x_TokensCacheWrite",
    "x_TokensOutput",
    "x_Images",
    "x_Day",
    "x_ProviderCost",
];

/// What is to be exported.
pub struct Export {
    /// The database that it is in.
    pub database: Database,
    /// Whose it is; everybody's if `None`, with what it has cost the operator.
    pub account: Option<AccountId>,
    /// This moment, whose month it is unless asked otherwise.
    pub now: Millis,
}

impl Export {
    /// The month that `period` names, in the `format` that is asked for.
    ///
    /// # Errors
    ///
    /// 400 with the parameter that is wrong.
    pub fn answer(self, mut query: ListQuery) -> Result<Response, ApiError> {
        match query.text("format")?.as_deref() {
            None | Some("focus") => {}
            Some(_) => return Err(ApiError::invalid_request("format", "It is focus.")),
        }
        let period = match query.text("period")? {
            None => Some(Period::of_calendar_month(self.now)),
            Some(month) => month_named(&month),
        };
        query.finish()?;
        let period = period.ok_or_else(|| {
            let what = "A period is a month as YYYY-MM, such as 2026-01.";
            ApiError::invalid_request("period", what)
        })?;
        let month = plans::day(period.start);
        let file = format!("usage-{}.csv", &month[.."YYYY-MM".len()]);
        let mut headings = String::new();
        csv::line(&mut headings, self.columns().iter().copied());
        let days = stream::try_unfold(
            (self, period.start),
            move |(export, day): (Self, Millis)| async move {
                if day >= period.end {
                    return Ok(None);
                }
                let lines = export.day(period, day).await?;
                Ok(Some((lines, (export, Millis(day.0 + DAY_MS)))))
            },
        );
        Ok(csv::attachment(&file, headings, days))
    }

    fn columns(&self) -> &'static [&'static str] {
        match self.account {
            None => &COLUMNS,
            Some(_) => &COLUMNS[..COLUMNS.len() - 1],
        }
    }

    /// The lines of a day.
    async fn day(&self, period: Period, day: Millis) -> sqlx::Result<String> {
        let store = Store::new(self.database.clone());
        let usage = store.find_day_usage(self.account.as_ref(), day).await?;
        let mut hashes: Vec<_> = usage
            .iter()
            .filter_map(|usage| usage.key_hash.clone())
            .collect();
        hashes.sort();
        hashes.dedup();
        let user = self.account.as_ref().map(|account| &*account.0);
        let keys = directory::name_keys(&self.database, user, &hashes).await?;
        let mut lines = String::new();
        for usage in usage {
            let cells = cells(&usage, &keys, period, day);
            let shown = self.columns().len();
            csv::line(&mut lines, cells.iter().take(shown).map(String::as_str));
        }
        Ok(lines)
    }
}

fn month_named(month: &str) -> Option<Period> {
    let [first, _] = plans::days_of_month(month).filter(|_| month.len() == "YYYY-MM".len())?;
    Some(Period::of_calendar_month(first))
}

fn cells(
    usage: &DayUsage,
    keys: &BTreeMap<String, KeyName>,
    period: Period,
    day: Millis,
) -> [String; COLUMNS.len()] {
    let DayUsage {
        account,
        model,
        provider,
        source,
        key_hash,
        sums,
    } = usage;
    let key = key_hash.as_ref().and_then(|hash| keys.get(hash));
    let cost = usd(sums.credits.micro());
    let counts = &sums.counts;
    let (quantity, unit) = match counts.images {
        0 => (counts.tokens_input + counts.tokens_output, "Tokens"),
        images => (images, "Images"),
    };
    // What was taken back of another day's charge.
    let class = match sums.credits < Credits::ZERO {
        true => "Correction",
        false => "",
    };
    let mut tags = json!({ "source": source.name(), "provider": provider });
    if let Some(key) = key {
        tags["key_id"] = json!(key.id);
        tags["key_name"] = json!(key.name);
    }
    [
        cost.clone(),
        account.0.clone(),
        account.0.clone(),
        "USD".to_owned(),
        period.end.iso(),
        period.start.iso(),
        "Usage".to_owned(),
        class.to_owned(),
        format!("{model} by {provider}"),
        "Usage-Based".to_owned(),
        Millis(day.0 + DAY_MS).iso(),
        day.iso(),
        quantity.to_string(),
        unit.to_owned(),
        cost.clone(),
        cost.clone(),
        "weir".to_owned(),
        cost,
        "Standard".to_owned(),
        sums.credits.to_string(),
        "Credits".to_owned(),
        "weir".to_owned(),
        provider.clone(),
        model.clone(),
        model.clone(),
        "Model".to_owned(),
        "AI and Machine Learning".to_owned(),
        "weir".to_owned(),
        format!("{provider}/{model}"),
        key.map_or(String::new(), |key| key.id.clone()),
        key.map_or(String::new(), |key| key.name.clone()),
        tags.to_string(),
        source.name().to_owned(),
        sums.requests.to_string(),
        sums.credits.to_string(),
        counts.tokens_input.to_string(),
        counts.tokens_cache_read.to_string(),
        counts.tokens_cache_write.to_string(),
        counts.tokens_output.to_string(),
        counts.images.to_string(),
        plans::day(day),
        usd(counts.provider_cost_nano_usd),
    ]
}

/// Nano-USD, which a micro-credit is, in USD.
fn usd(nano: i64) -> String {
    let sign = if nano < 0 { "-" } else { "" };
    let nano = nano.unsigned_abs();
    let (whole, rest) = (nano / 1_000_000_000, nano % 1_000_000_000);
    let amount = format!("{sign}{whole}.{rest:09}");
    amount
        .trim_end_matches('0')
        .trim_end_matches('.')
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact() {
        for (nano, amount) in [
            (0, "0"),
            (1, "0.000000001"),
            (1_000_000, "0.001"),
            (-25_200, "-0.0000252"),
            (1_234_500_000_000, "1234.5"),
            (i64::MIN, "-9223372036.854775808"),
        ] {
            assert_eq!(usd(nano), amount);
        }
    }
}
