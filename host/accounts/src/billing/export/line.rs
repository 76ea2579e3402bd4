//! A line of an export, of any kind, and its cells.

use serde_json::Value;
use weir_ledger::{Credits, Period, QuantitySum, Unit, UsageCounts, plans};
use weir_storage::clock::Millis;

/// The columns of a line. Only operators see the last one.
pub(super) const COLUMNS: [&str; 43] = [
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
    "x_BalanceChange",
    "x_TokensInput",
    "x_TokensCacheRead",
    "x_TokensCacheWrite",
    "x_TokensOutput",
    "x_Images",
    "x_Day",
    "x_ProviderCost",
];

const CENT_NANO_USD: i64 = 10_000_000;

/// The day of a line, and its billing month.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChargeDay {
    pub(super) period: Period,
    pub(super) start: Millis,
    pub(super) end: Millis,
}

/// The main category of a charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChargeCategory {
    Usage,
    Purchase,
    /// Credits without a payment.
    Credit,
    /// Other changes of the balance.
    Adjustment,
}

/// A line. Costs are in nano-USD.
#[derive(Debug, Clone)]
pub(super) struct ExportLine {
    pub(super) day: ChargeDay,
    pub(super) account: String,
    pub(super) category: ChargeCategory,
    /// Whether the line corrects an earlier month's bill.
    pub(super) is_correction: bool,
    pub(super) is_recurring: bool,
    pub(super) description: String,
    /// The money.
    pub(super) billed: i64,
    /// The value of the usage.
    pub(super) effective: i64,
    /// The cost by list prices.
    pub(super) list: i64,
    /// Credits: used, bought, or given.
    pub(super) credits: Credits,
    pub(super) balance_change: Credits,
    pub(super) sku: String,
    pub(super) source: &'static str,
    pub(super) tags: Value,
    /// Only in lines of usage.
    pub(super) usage: Option<LineUsage>,
}

/// The additional fields of a line of usage.
#[derive(Debug, Clone)]
pub(super) struct LineUsage {
    pub(super) model: String,
    pub(super) provider: String,
    /// The key's id and name.
    pub(super) key: Option<(String, String)>,
    pub(super) requests: i64,
    pub(super) counts: UsageCounts,
    pub(super) quantity: QuantitySum,
}

impl ExportLine {
    /// Makes an empty line without costs, changes and usage.
    pub(super) fn new(
        day: ChargeDay,
        account: &str,
        category: ChargeCategory,
        source: &'static str,
    ) -> Self {
        Self {
            day,
            account: account.to_owned(),
            category,
            is_correction: false,
            is_recurring: false,
            description: String::new(),
            billed: 0,
            effective: 0,
            list: 0,
            credits: Credits::ZERO,
            balance_change: Credits::ZERO,
            sku: source.to_owned(),
            source,
            tags: Value::Object(serde_json::Map::new()),
            usage: None,
        }
    }

    pub(super) fn cells(&self) -> [String; COLUMNS.len()] {
        let Self {
            day,
            account,
            category,
            usage,
            ..
        } = self;
        let frequency = match (category, self.is_recurring) {
            (ChargeCategory::Usage, _) => "Usage-Based",
            (_, true) => "Recurring",
            _ => "One-Time",
        };
        let counts = usage.as_ref().map(|usage| usage.counts).unwrap_or_default();
        let (quantity, unit) = match usage.as_ref().map(|usage| usage.quantity) {
            // FOCUS requires null if nothing was consumed.
            None | Some(QuantitySum::Empty) => (String::new(), ""),
            Some(QuantitySum::Of(quantity)) => {
                (quantity.count.to_string(), unit_name(quantity.unit))
            }
            Some(QuantitySum::Unknown | QuantitySum::Several) => (String::new(), "Unknown"),
        };
        let text = |of: fn(&LineUsage) -> &str| usage.as_ref().map_or("", of).to_owned();
        let key = usage.as_ref().and_then(|usage| usage.key.clone());
        let (key_id, key_name) = key.unwrap_or_default();
        let requests = usage.as_ref().map_or(0, |usage| usage.requests);
        [
            usd(self.billed),
            account.clone(),
            account.clone(),
            "USD".to_owned(),
            day.period.end.iso(),
            day.period.start.iso(),
            category.name().to_owned(),
            if self.is_correction { "Correction" } else { "" }.to_owned(),
            self.description.clone(),
            frequency.to_owned(),
            day.end.iso(),
            day.start.iso(),
            quantity,
            unit.to_owned(),
            usd(self.list),
            usd(self.effective),
            "weir".to_owned(),
            usd(self.list),
            "Standard".to_owned(),
            self.credits.to_string(),
            "Credits".to_owned(),
            "weir".to_owned(),
            match usage {
                Some(usage) => usage.provider.clone(),
                None => "weir".to_owned(),
            },
            text(|usage| &usage.model),
            text(|usage| &usage.model),
            text(|_| "Model"),
            "AI and Machine Learning".to_owned(),
            "weir".to_owned(),
            self.sku.clone(),
            key_id,
            key_name,
            self.tags.to_string(),
            self.source.to_owned(),
            requests.to_string(),
            self.credits.to_string(),
            self.balance_change.to_string(),
            counts.tokens_input.to_string(),
            counts.tokens_cache_read.to_string(),
            counts.tokens_cache_write.to_string(),
            counts.tokens_output.to_string(),
            counts.images.to_string(),
            plans::day(day.start),
            usd(counts.provider_cost_nano_usd),
        ]
    }
}

/// Returns a unit's name as FOCUS writes units.
fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Tokens => "Tokens",
        Unit::Characters => "Characters",
        Unit::Seconds => "Seconds",
        Unit::Images => "Images",
        Unit::SearchUnits => "Search Units",
    }
}

impl ChargeCategory {
    fn name(self) -> &'static str {
        match self {
            Self::Usage => "Usage",
            Self::Purchase => "Purchase",
            Self::Credit => "Credit",
            Self::Adjustment => "Adjustment",
        }
    }
}

/// Converts cents to nano-USD.
pub(super) fn nano_usd(cents: i64) -> i64 {
    cents.saturating_mul(CENT_NANO_USD)
}

/// Returns the credits that an amount of cents is worth. A micro-credit is a nano-USD.
pub(super) fn worth(cents: i64) -> Credits {
    Credits::from_micro(nano_usd(cents))
}

/// Formats nano-USD, which equal micro-credits, in USD.
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
