//! Rate limits of callers.

use std::num::NonZeroU32;

use serde::Deserialize;
use weir_ledger::Plan;
use weir_storage::cache::Rate;

/// Requests per minute: `[rate_limits]`. In development mode, each is 6,000 unless set: a developer's own machine needs
/// no protection.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RateLimits {
    /// Requests a minute of a user on the plan `free`. Default: 60.
    pub free: Option<NonZeroU32>,
    /// Requests a minute of a user on the plan `guru`. Default: 300.
    pub guru: Option<NonZeroU32>,
    /// Requests a minute of a user on the plan `pro`. Default: 1,000.
    pub pro: Option<NonZeroU32>,
    /// Requests a minute from a client address, at most half of them without proven credentials. Default: 3,000.
    pub address: Option<NonZeroU32>,
}

const DEVELOPMENT: NonZeroU32 = NonZeroU32::new(6_000).expect("not zero");

impl RateLimits {
    /// A user's rate by plan.
    pub fn of_plan(&self, plan: Plan, is_dev: bool) -> Rate {
        match plan {
            Plan::Pro => rate(self.pro, 1_000, is_dev),
            Plan::Guru => rate(self.guru, 300, is_dev),
            Plan::Free => rate(self.free, 60, is_dev),
        }
    }

    /// An address's rate.
    pub fn of_address(&self, is_dev: bool) -> Rate {
        rate(self.address, 3_000, is_dev)
    }
}

fn rate(configured: Option<NonZeroU32>, default: u32, is_dev: bool) -> Rate {
    let default = match is_dev {
        true => DEVELOPMENT,
        false => NonZeroU32::new(default).expect("none of them is zero"),
    };
    Rate::per_minute(configured.unwrap_or(default))
}

/// The handling of requests while the cache does not respond.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailurePolicy {
    /// weir rejects requests with 503 before any other work.
    #[default]
    Reject,
    /// weir accepts requests without limits; for development only.
    Allow,
}
