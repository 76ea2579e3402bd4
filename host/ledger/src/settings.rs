//! How the ledger is kept: `[ledger]`.

use std::num::NonZeroU64;
use std::time::Duration;

use serde::Deserialize;

/// How long a node's holds are its own.
#[derive(Debug, Clone, Copy)]
pub struct LeaseSettings {
    /// How often the lease is renewed, and holds of lapsed ones are looked for. Default: 5 s.
    pub renew_every: Duration,
    /// How long it is valid from then. Default: 30 s.
    pub valid_for: Duration,
    /// A hold that is older has no request any more: its node ends it. Default: 15 minutes.
    pub longest_request: Duration,
}

impl Default for LeaseSettings {
    fn default() -> Self {
        Self {
            renew_every: Duration::from_secs(5),
            valid_for: Duration::from_secs(30),
            longest_request: Duration::from_secs(15 * 60),
        }
    }
}

/// How the ledger is kept: `[ledger]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LedgerSettings {
    /// Milliseconds between renewals of a node's lease, and between looks for expired leases. Default: 5,000.
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
            ..
        } = LeaseSettings::default();
        let ms = |duration: Duration| {
            NonZeroU64::new(duration.as_millis() as u64).expect("it takes some time")
        };
        Self {
            renew_ms: ms(renew_every),
            lease_ms: ms(valid_for),
            checkpoint_ms: ms(Duration::from_secs(2)),
        }
    }
}

impl LedgerSettings {
    /// As the ledger has it.
    pub fn lease(&self) -> LeaseSettings {
        LeaseSettings {
            renew_every: Duration::from_millis(self.renew_ms.get()),
            valid_for: Duration::from_millis(self.lease_ms.get()),
            ..LeaseSettings::default()
        }
    }

    /// The time between two checkpoints of a request.
    pub fn checkpoint_every(&self) -> Duration {
        Duration::from_millis(self.checkpoint_ms.get())
    }

    /// What is wrong with the settings, beyond what types can say; each sentence names the setting.
    pub fn problems(&self) -> Vec<String> {
        match self.lease_ms.get() / 2 < self.renew_ms.get() {
            true => vec!["`ledger.lease_ms` must be at least twice `ledger.renew_ms`".to_owned()],
            false => Vec::new(),
        }
    }
}
