//! How often callers may call, and what shuts an address out.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::Deserialize;

use weir_storage::cache::{LockoutPolicy, Rate};

/// Ten failed proofs within five minutes shut an address out for fifteen.
pub const LOCKOUT: LockoutPolicy = LockoutPolicy {
    failures: NonZeroU32::new(10).expect("not zero"),
    window: Duration::from_secs(5 * 60),
    block: Duration::from_secs(15 * 60),
};

/// Requests per minute: `[rate_limits]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RateLimits {
    /// Of a user on the plan `free`. Default 60.
    pub free: NonZeroU32,
    /// Of a user on the plan `guru`. Default 300.
    pub guru: NonZeroU32,
    /// Of a user on the plan `pro`. Default 1,000.
    pub pro: NonZeroU32,
    /// From one client address, whoever calls. Default 3,000.
    pub address: NonZeroU32,
}

impl Default for RateLimits {
    fn default() -> Self {
        let rate = |per_minute| NonZeroU32::new(per_minute).expect("not zero");
        Self {
            free: rate(60),
            guru: rate(300),
            pro: rate(1_000),
            address: rate(3_000),
        }
    }
}

impl RateLimits {
    /// A user's rate by their plan.
    pub fn of_plan(&self, plan: &str) -> Rate {
        Rate::per_minute(match plan {
            "pro" => self.pro,
            "guru" => self.guru,
            _ => self.free,
        })
    }

    /// An address's rate.
    pub fn address(&self) -> Rate {
        Rate::per_minute(self.address)
    }
}

/// What happens to requests while the cache does not answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailurePolicy {
    /// 503 before any other work.
    #[default]
    Reject,
    /// They pass unlimited; for development only.
    Allow,
}
