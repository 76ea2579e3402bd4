//! Rates of the parts of an account: requests and tokens per minute of a key, a project, a member, an organisation or a
//! model.
//!
//! The rates are in the account's row; the key's record in the cache carries those that may apply. A request counts when
//! it begins, and its tokens when they are charged. A part whose tokens of the last minute exceed its rate waits until
//! the excess has passed.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::{AccountId, BudgetPart};
use weir_request::json::from_column;
use weir_storage::cache::{Bucket, Cache, Rate};

/// The maximum parts of an account with rates.
const MOST_PARTS: usize = 250;

/// The rates of a part. A rate is also the largest burst.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PartRate {
    /// Requests per minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, minimum = 1)]
    pub requests_per_minute: Option<NonZeroU32>,
    /// Tokens per minute, of input and output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, minimum = 1)]
    pub tokens_per_minute: Option<NonZeroU32>,
}

impl PartRate {
    /// Returns whether these rates allow no more than the others.
    pub fn is_within(&self, others: &Self) -> bool {
        let within = |most: Option<NonZeroU32>, own: Option<NonZeroU32>| {
            most.is_none_or(|most| own.is_some_and(|own| own <= most))
        };
        within(others.requests_per_minute, self.requests_per_minute)
            && within(others.tokens_per_minute, self.tokens_per_minute)
    }
}

/// The rates of an account's parts, by the part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PartRates(BTreeMap<BudgetPart, PartRate>);

impl PartRates {
    /// Reads the rates from their column.
    pub fn read(stored: Option<&str>) -> sqlx::Result<Self> {
        from_column(stored)
    }

    /// Returns the column's text; `None` without rates.
    pub fn store(&self) -> Option<String> {
        let text = serde_json::to_string(self).unwrap_or_default();
        Some(text).filter(|_| !self.0.is_empty())
    }

    /// Sets the rates of a part, or removes them. Returns whether the account may have so many.
    pub fn set(&mut self, part: BudgetPart, rate: PartRate) -> bool {
        if rate == PartRate::default() {
            self.0.remove(&part);
        } else {
            self.0.insert(part, rate);
        }
        self.0.len() <= MOST_PARTS
    }

    /// Returns the rates of a part.
    pub fn of(&self, part: &BudgetPart) -> PartRate {
        self.0.get(part).copied().unwrap_or_default()
    }

    /// Returns the parts with rates.
    pub fn parts(&self) -> impl Iterator<Item = &BudgetPart> {
        self.0.keys()
    }

    /// Keeps the rates that may apply to requests for these parts: theirs, and those of models.
    pub fn retain(&mut self, parts: &[BudgetPart]) {
        self.0
            .retain(|part, _| matches!(part, BudgetPart::Model(_)) || parts.contains(part));
    }

    /// Returns the rates of a request for a model.
    pub fn for_model(mut self, account: &AccountId, model: &str) -> RequestRates {
        self.0.retain(|part, _| match part {
            BudgetPart::Model(id) => id == model,
            _ => true,
        });
        RequestRates {
            account: account.clone(),
            rates: self,
        }
    }
}

/// The rates that apply to a request.
#[derive(Debug, Clone)]
pub struct RequestRates {
    account: AccountId,
    rates: PartRates,
}

impl RequestRates {
    /// Counts a request.
    ///
    /// # Errors
    ///
    /// 429 with the part whose rate is exceeded, 503 if the cache does not respond.
    pub async fn admit(&self, cache: &Cache) -> Result<(), ApiError> {
        let limits: Vec<_> = self
            .rates
            .0
            .iter()
            .flat_map(|(part, rate)| {
                let limits = [
                    ("requests", rate.requests_per_minute),
                    ("tokens", rate.tokens_per_minute),
                ];
                limits.map(|(unit, limit)| Some((part, unit, self.bucket(part, unit), limit?)))
            })
            .flatten()
            .collect();
        if limits.is_empty() {
            return Ok(());
        }
        let counted: Vec<_> = limits
            .iter()
            .map(|(_, _, name, limit)| (Bucket::Part(name), Rate::per_minute(*limit)))
            .collect();
        let decisions = cache.count(&counted).await.map_err(|_| {
            ApiError::cache_unavailable("weir could not check the rates; retry later.")
        })?;
        for ((part, unit, _, limit), decision) in limits.iter().zip(decisions) {
            if !decision.allowed {
                return Err(exceeded(part, unit, *limit, decision.retry_after));
            }
        }
        Ok(())
    }

    /// Counts the tokens of a charged request. The first one has counted at the beginning.
    pub fn charge(&self, cache: &Cache, tokens: u64) {
        let more = u32::try_from(tokens.saturating_sub(1)).unwrap_or(u32::MAX);
        for (part, rate) in &self.rates.0 {
            let Some(limit) = rate.tokens_per_minute.filter(|_| more > 0) else {
                continue;
            };
            let name = self.bucket(part, "tokens");
            cache.charge(Bucket::Part(&name), Rate::per_minute(limit), more);
        }
    }

    /// Returns the name of a part's bucket. No id contains a line break.
    fn bucket(&self, part: &BudgetPart, unit: &str) -> String {
        format!("{}\n{part}\n{unit}", self.account.0)
    }
}

/// Returns the parts of an account for which a request counts, except its model.
pub(super) fn parts_of(
    account: &str,
    user_id: &str,
    key: Option<&str>,
    project: Option<&str>,
) -> Vec<BudgetPart> {
    let is_shared = account != user_id;
    let parts = [
        key.map(|id| BudgetPart::Key(id.to_owned())),
        project.map(|id| BudgetPart::Project(id.to_owned())),
        is_shared.then(|| BudgetPart::Member(user_id.to_owned())),
        is_shared.then(|| BudgetPart::Organisation(account.to_owned())),
    ];
    parts.into_iter().flatten().collect()
}

fn exceeded(part: &BudgetPart, unit: &str, limit: NonZeroU32, wait: Duration) -> ApiError {
    let message = format!(
        "The rate of this {} is {limit} {unit} per minute; the Retry-After header says when to try again.",
        part.kind()
    );
    ApiError::new(ErrorCode::RateLimited, message)
        .with_detail("rate_of", part.kind())
        .with_detail("unit", unit)
        .with_detail("limit_per_minute", limit.get())
        .with_retry_after(wait)
}
