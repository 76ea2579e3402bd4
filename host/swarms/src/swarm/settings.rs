//! Settings of swarms: `[swarms]`.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use serde::Deserialize;
use url::Url;
use weir_request::listen_address::ListenAddress;

/// Settings of swarms: `[swarms]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SwarmSettings {
    /// Address and port of an executor for services with the scope `swarm:run`. Default: none.
    pub listen: Option<ListenAddress>,
    /// URL of the API's `internal_listen`, for an executor that runs without an API. Default: this process.
    pub api_url: Option<String>,
    /// Model of agents that name none. Default: `claude-sonnet-5-5`, else the first model with tools; none
    /// that ends within 60 days, if another fits.
    pub default_model: Option<String>,
    /// Swarms that one executor runs at once, of one account at most a quarter of them. Default: 16.
    pub concurrent: NonZeroU32,
    /// Milliseconds, at least 500, after which another executor takes over the swarms of a stopped one. Default:
    /// 30,000.
    pub lease_ms: NonZeroU64,
    /// Seconds of a swarm, including the wait for an executor. Default: 3,600.
    pub deadline_seconds: NonZeroU32,
    /// Days for which ended swarms are kept. Default: 30.
    pub keep_days: NonZeroU32,
}

#[derive(Debug, Clone, Copy)]
pub struct ExecutorSettings {
    /// The maximum concurrent runs.
    pub concurrent: NonZeroU32,
    pub lease: Duration,
    /// The time for which finished runs are kept.
    pub keep: Duration,
}

impl ExecutorSettings {
    /// The maximum concurrent runs of one account.
    pub fn share(&self) -> u32 {
        (self.concurrent.get() / 4).max(1)
    }
}

impl Default for SwarmSettings {
    fn default() -> Self {
        Self {
            listen: None,
            api_url: None,
            default_model: None,
            concurrent: const { NonZeroU32::new(16).unwrap() },
            lease_ms: const { NonZeroU64::new(30_000).unwrap() },
            deadline_seconds: const { NonZeroU32::new(3_600).unwrap() },
            keep_days: const { NonZeroU32::new(30).unwrap() },
        }
    }
}

impl SwarmSettings {
    pub fn executor(&self) -> ExecutorSettings {
        ExecutorSettings {
            concurrent: self.concurrent,
            lease: Duration::from_millis(self.lease_ms.get()),
            keep: Duration::from_secs(u64::from(self.keep_days.get()) * 86_400),
        }
    }

    /// Returns the problems of the settings that their types do not exclude; each sentence names the setting.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.lease_ms.get() < 500 {
            problems.push("`swarms.lease_ms` must be at least 500".to_owned());
        }
        if let Some(url) = &self.api_url
            && !Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
        {
            problems.push("`swarms.api_url` is not an http or https URL".to_owned());
        }
        problems
    }
}
