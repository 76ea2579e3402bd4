//! How a node keeps the ledger: `[ledger]`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How a node keeps the ledger, as operators write it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LedgerSettings {
    /// Milliseconds between two renewals of a node's lease on what it holds; as often it looks for the holds
    /// of nodes whose lease is over. Default 5,000.
    pub renew_ms: u64,
    /// Milliseconds that a lease is valid; at least twice `renew_ms`. Default 30,000.
    pub lease_ms: u64,
}

/// How long a node's holds are its own.
#[derive(Debug, Clone, Copy)]
pub struct LeaseSettings {
    /// How often the lease is renewed, and holds of lapsed ones are looked for. Default: 5 s.
    pub renew_every: Duration,
    /// How long it is valid from then. Default: 30 s.
    pub valid_for: Duration,
}

impl Default for LeaseSettings {
    fn default() -> Self {
        Self {
            renew_every: Duration::from_secs(5),
            valid_for: Duration::from_secs(30),
        }
    }
}

impl Default for LedgerSettings {
    fn default() -> Self {
        let LeaseSettings {
            renew_every,
            valid_for,
        } = LeaseSettings::default();
        Self {
            renew_ms: renew_every.as_millis() as u64,
            lease_ms: valid_for.as_millis() as u64,
        }
    }
}

impl LedgerSettings {
    /// The lease that they ask for.
    pub fn lease(&self) -> LeaseSettings {
        LeaseSettings {
            renew_every: Duration::from_millis(self.renew_ms),
            valid_for: Duration::from_millis(self.lease_ms),
        }
    }
}
