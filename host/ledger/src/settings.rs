//! The settings of the ledger: `[ledger]`.

use std::num::NonZeroU64;
use std::time::Duration;

use serde::Deserialize;

/// The lease on a node's holds, and the checkpoints of its requests.
#[derive(Debug, Clone, Copy)]
pub struct LeaseSettings {
    /// Interval between renewals of the lease, and between searches for expired ones. Default: 5 s.
    pub renew_every: Duration,
    /// Validity of a renewed lease. Default: 30 s.
    pub valid_for: Duration,
    /// Maximum age of a request: the node ends an older hold. Default: 15 minutes.
    pub longest_request: Duration,
    /// Interval between checkpoints of a request: a crash loses the usage since the last one. Default: 2 s.
    pub checkpoint_every: Duration,
}

impl Default for LeaseSettings {
    fn default() -> Self {
        Self {
            renew_every: Duration::from_secs(5),
            valid_for: Duration::from_secs(30),
            longest_request: Duration::from_secs(15 * 60),
            checkpoint_every: Duration::from_secs(2),
        }
    }
}

/// The settings of the ledger: `[ledger]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LedgerSettings {
    /// Milliseconds between renewals of a node's lease, and between searches for expired leases. Default: 5,000.
    pub renew_ms: NonZeroU64,
    /// Milliseconds for which a lease is valid, at least twice `renew_ms`. Default: 30,000.
    pub lease_ms: NonZeroU64,
    /// Milliseconds between saves of a running request's usage, which a crash may lose. Default: 2,000.
    pub checkpoint_ms: NonZeroU64,
}

impl Default for LedgerSettings {
    fn default() -> Self {
        let LeaseSettings {
            renew_every,
            valid_for,
            checkpoint_every,
            ..
        } = LeaseSettings::default();
        let ms = |duration: Duration| {
            NonZeroU64::new(duration.as_millis() as u64).expect("it takes some time")
        };
        Self {
            renew_ms: ms(renew_every),
            lease_ms: ms(valid_for),
            checkpoint_ms: ms(checkpoint_every),
        }
    }
}

impl LedgerSettings {
    pub fn lease(&self) -> LeaseSettings {
        LeaseSettings {
            renew_every: Duration::from_millis(self.renew_ms.get()),
            valid_for: Duration::from_millis(self.lease_ms.get()),
            checkpoint_every: self.checkpoint_every(),
            ..LeaseSettings::default()
        }
    }

    /// Returns the interval between two checkpoints of a request.
    pub fn checkpoint_every(&self) -> Duration {
        Duration::from_millis(self.checkpoint_ms.get())
    }

    /// Returns the problems of the settings beyond their types; each sentence names the setting.
    pub fn problems(&self) -> Vec<String> {
        match self.lease_ms.get() / 2 < self.renew_ms.get() {
            true => vec!["`ledger.lease_ms` must be at least twice `ledger.renew_ms`".to_owned()],
            false => Vec::new(),
        }
    }
}
