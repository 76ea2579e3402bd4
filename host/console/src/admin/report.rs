//! The figures of the reports, from sums by day, model and provider.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use utoipa::ToSchema;
use weir_accounts::billing::history::count_of;
use weir_ledger::{UsageSums, plans};
use weir_request::schemas;
use weir_storage::clock::Millis;

/// Maximum number of models in [`PlatformUsage::top_models`].
const TOP_MODELS: usize = 100;

/// A calendar month in UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Month(String);

/// The text is not a month as `YYYY-MM`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a month has the form YYYY-MM, such as 2026-01")]
pub struct InvalidMonth;

impl Month {
    /// Returns the month of a moment.
    pub fn of(moment: Millis) -> Self {
        let mut day = plans::day(moment);
        day.truncate("YYYY-MM".len());
        Self(day)
    }

    /// Returns the first moments of the month's first and last day.
    pub(super) fn days(&self) -> [Millis; 2] {
        let days = plans::days_of_month(&self.0);
        days.expect("it was read as a month")
    }
}

impl FromStr for Month {
    type Err = InvalidMonth;

    fn from_str(text: &str) -> Result<Self, InvalidMonth> {
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        match text.split_once('-') {
            Some((year, month))
                if year.len() == 4
                    && is_number(year)
                    && month.len() == 2
                    && is_number(month)
                    && ("01"..="12").contains(&month) =>
            {
                Ok(Self(text.to_owned()))
            }
            _ => Err(InvalidMonth),
        }
    }
}

impl fmt::Display for Month {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The sums of a day, a model and a provider over all accounts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelDaySums {
    /// In UTC, as `YYYY-MM-DD`.
    pub day: String,
    /// The requested model.
    pub model: String,
    /// The provider of the response.
    pub provider: String,
    /// Requests, credits and counts of that day.
    pub used: UsageSums,
}

/// The response of `GET /admin/usage`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct PlatformUsage {
    /// The month, as `YYYY-MM`.
    pub period: String,
    /// Requests of all users.
    pub total_requests: i64,
    /// The charges, in whole credits.
    pub total_credits_consumed: i64,
    /// Users with at least one request.
    pub active_users: i64,
    /// The days with at least one request, in order.
    pub requests_by_day: Vec<PlatformDay>,
    /// The most requested models, a hundred at most.
    pub top_models: Vec<TopModel>,
}

/// The usage of a day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = DayUsage)]
pub struct PlatformDay {
    /// As `YYYY-MM-DD`.
    pub date: String,
    /// The number of requests.
    pub requests: i64,
    /// The charges, in whole credits.
    pub credits: i64,
}

/// The usage of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct TopModel {
    /// The model's id.
    pub model: String,
    /// The number of requests.
    pub requests: i64,
    /// The charges, in whole credits.
    pub credits: i64,
}

/// An item of the response of `GET /admin/model-economics`: a model at one provider.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ModelEconomics {
    /// The model's id.
    pub model: String,
    /// The provider of the response.
    pub provider: String,
    /// The number of requests.
    pub total_requests: i64,
    /// Tokens of input, cached ones included.
    pub total_input_tokens: i64,
    /// Tokens of output.
    pub total_output_tokens: i64,
    /// The provider's price, including requests that failed without a charge after the provider had worked on them.
    pub provider_cost_usd: f64,
    /// The charges, in whole credits.
    pub revenue_credits: i64,
    /// The revenue in USD: credits / 1000, from the exact credits, not the rounded ones.
    pub revenue_usd: f64,
    /// (revenue − cost) / revenue × 100; null without revenue.
    pub margin_pct: Option<f64>,
    /// The unit of the price; null without usage, and for several units.
    #[schema(value_type = Option<schemas::UsageUnit>)]
    pub unit: Option<&'static str>,
    /// The usage in this unit; null if there is no unit, or an unknown one.
    pub quantity: Option<i64>,
}

/// Computes a month's usage. Only the database knows `active_users`.
pub fn platform_usage(period: &Month, active_users: i64, sums: &[ModelDaySums]) -> PlatformUsage {
    let month = total(sums);
    let by_day = grouped(sums, |sums| &*sums.day);
    let mut by_model = grouped(sums, |sums| &*sums.model);
    // The sort is stable: models with equally many requests stay in the order of their names.
    by_model.sort_by_key(|(_, used)| std::cmp::Reverse(used.requests));
    by_model.truncate(TOP_MODELS);
    PlatformUsage {
        period: period.to_string(),
        total_requests: month.requests,
        total_credits_consumed: month.credits.rounded(),
        active_users,
        requests_by_day: by_day
            .into_iter()
            .map(|(date, used)| PlatformDay {
                date: date.to_owned(),
                requests: used.requests,
                credits: used.credits.rounded(),
            })
            .collect(),
        top_models: by_model
            .into_iter()
            .map(|(model, used)| TopModel {
                model: model.to_owned(),
                requests: used.requests,
                credits: used.credits.rounded(),
            })
            .collect(),
    }
}

/// Computes the cost and revenue of each model at each provider, by name.
pub fn model_economics(sums: &[ModelDaySums]) -> Vec<ModelEconomics> {
    grouped(sums, |sums| (&*sums.model, &*sums.provider))
        .into_iter()
        .map(|((model, provider), used)| {
            let revenue = used.credits.micro() as f64;
            let cost = used.counts.provider_cost_nano_usd as f64;
            ModelEconomics {
                model: model.to_owned(),
                provider: provider.to_owned(),
                total_requests: used.requests,
                total_input_tokens: used.counts.tokens_input,
                total_output_tokens: used.counts.tokens_output,
                provider_cost_usd: cost / NANO,
                revenue_credits: used.credits.rounded(),
                // A micro-credit is a nano-USD.
                revenue_usd: revenue / NANO,
                margin_pct: (revenue > 0.0).then(|| (revenue - cost) / revenue * 100.0),
                unit: used.quantity.unit_name(),
                quantity: count_of(used.quantity),
            }
        })
        .collect()
}

const NANO: f64 = 1e9;

fn total<'a>(sums: impl IntoIterator<Item = &'a ModelDaySums>) -> UsageSums {
    let sums = sums.into_iter().map(|sums| sums.used);
    sums.fold(UsageSums::default(), UsageSums::plus)
}

/// Sums by key, in the key's order, without entries that were fully refunded.
fn grouped<'a, K: Ord>(
    sums: &'a [ModelDaySums],
    key: impl Fn(&'a ModelDaySums) -> K,
) -> Vec<(K, UsageSums)> {
    let mut groups = BTreeMap::<K, Vec<&ModelDaySums>>::new();
    for sums in sums {
        groups.entry(key(sums)).or_default().push(sums);
    }
    groups
        .into_iter()
        .map(|(key, sums)| (key, total(sums)))
        .filter(|(_, used)| !used.is_zero())
        .collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use weir_ledger::{Credits, UsageCounts};

    use super::*;

    fn sums(day: &str, model: &str, requests: i64, credits: i64, cost: i64) -> ModelDaySums {
        ModelDaySums {
            day: day.to_owned(),
            model: model.to_owned(),
            provider: "p".to_owned(),
            used: UsageSums {
                requests,
                credits: Credits::from_micro(credits),
                counts: UsageCounts {
                    provider_cost_nano_usd: cost,
                    ..UsageCounts::default()
                },
                ..UsageSums::default()
            },
        }
    }

    #[test]
    fn months_are_written_as_a_year_and_a_month() {
        for text in ["2026-01", "2026-12", "0000-01"] {
            assert_eq!(text.parse::<Month>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "2026",
            "2026-1",
            "2026-00",
            "2026-13",
            "2026-01-01",
            "26-01",
            "+202-01",
            "2026/01",
            "２０２６-01",
            " 2026-01",
        ] {
            assert_eq!(text.parse::<Month>(), Err(InvalidMonth), "{text:?}");
        }
        let moment = |text: &str| Millis(text.parse::<jiff::Timestamp>().unwrap().as_millisecond());
        assert_eq!(Month::of(moment("2024-02-29T23:59:59.999Z")).0, "2024-02");
        assert_eq!(Month::of(moment("2024-03-01T00:00:00Z")).0, "2024-03");
    }

    #[test]
    fn each_figure_is_rounded_once() {
        // Half a credit on each of three days.
        let month: Vec<_> = ["01", "02", "03"]
            .map(|day| sums(day, "m", 1, 500_000, 0))
            .into();
        let usage = platform_usage(&"2026-01".parse().unwrap(), 1, &month);
        let days: Vec<_> = usage
            .requests_by_day
            .iter()
            .map(|day| day.credits)
            .collect();
        assert_eq!((days, usage.total_credits_consumed), (vec![1, 1, 1], 2));
        assert_eq!(usage.top_models[0].credits, 2);
        let economics = &model_economics(&month)[0];
        assert_eq!(
            (economics.revenue_credits, economics.revenue_usd),
            (2, 0.0015)
        );
    }

    #[test]
    fn models_are_ranked_by_requests_and_a_hundred_are_listed() {
        let month: Vec<_> = (0..150)
            .map(|number| sums("01", &format!("m{number:03}"), number / 2, 1, 0))
            .collect();
        let usage = platform_usage(&"2026-01".parse().unwrap(), 1, &month);
        let names: Vec<_> = usage.top_models.iter().map(|top| &*top.model).collect();
        assert_eq!(names.len(), 100);
        assert_eq!(names[..3], ["m148", "m149", "m146"]);
        assert_eq!(
            usage.total_requests,
            (0..150).map(|number| number / 2).sum::<i64>()
        );
    }

    #[test]
    fn what_was_taken_back_is_gone_and_what_was_given_away_has_no_margin() {
        let mut month = vec![sums("01", "m", 1, 7, 5), sums("02", "m", -1, -7, -5)];
        assert_eq!(model_economics(&month), []);
        let usage = platform_usage(&"2026-01".parse().unwrap(), 0, &month);
        assert_eq!((usage.total_requests, usage.top_models), (0, vec![]));
        month.push(sums("03", "m", 1, 0, 9));
        let economics = model_economics(&month);
        assert_eq!(economics[0].provider_cost_usd, 9e-9);
        assert_eq!(
            (economics[0].revenue_usd, economics[0].margin_pct),
            (0.0, None)
        );
    }
}
