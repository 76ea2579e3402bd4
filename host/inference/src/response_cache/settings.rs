//! The settings of the response cache: `[response_cache]`.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::Deserialize;

/// The response cache: `[response_cache]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResponseCacheSettings {
    /// Whether weir stores responses and repeats them for equal requests. Default: `false`.
    pub enabled: bool,
    /// `account`, or `shared`: a request of any account may get the stored response of another. Default: `account`.
    pub scope: ResponseScope,
    /// Seconds for which a response is stored. Default: 3,600.
    pub ttl_seconds: NonZeroU32,
    /// Largest stored response, in bytes. Default: 131,072.
    pub max_bytes: NonZeroU32,
    /// Stored responses, of a node or in Redis; each further one replaces another. Default: 2,000.
    pub max_entries: NonZeroU32,
    /// Largest temperature of chats whose responses are stored, from 0 to 2; a request without a temperature counts as
    /// 1. Default: 0.
    pub max_temperature: f64,
    /// Price of a repeated response in percent of its usual price, from 0 to 100. Default: 0.
    pub price_percent: u8,
}

/// The accounts that share stored responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseScope {
    /// Each account has its own.
    Account,
    /// All accounts share them.
    Shared,
}

impl Default for ResponseCacheSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            scope: ResponseScope::Account,
            ttl_seconds: const { NonZeroU32::new(3_600).unwrap() },
            max_bytes: const { NonZeroU32::new(128 << 10).unwrap() },
            max_entries: const { NonZeroU32::new(2_000).unwrap() },
            max_temperature: 0.0,
            price_percent: 0,
        }
    }
}

impl ResponseCacheSettings {
    /// Returns a message for each invalid setting.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(0.0..=2.0).contains(&self.max_temperature) {
            problems.push("`response_cache.max_temperature` must be from 0 to 2".to_owned());
        }
        if self.price_percent > 100 {
            problems.push("`response_cache.price_percent` must be from 0 to 100".to_owned());
        }
        problems
    }

    /// `ttl_seconds`.
    pub(super) fn ttl(&self) -> Duration {
        Duration::from_secs(self.ttl_seconds.get().into())
    }
}
