//! Idempotency keys as an account has them: plain rules, without I/O and without a clock.
//!
//! A key is claimed where the hold of its request is opened, all or nothing. Where that hold is released the key is free
//! again; where anything is charged, of 0 even, the key ends after it: completed, with the answer if there is one to give
//! again.
//!
//! **Invariant:** of any number of requests with one key, one is served at a time, and once one was charged, none is
//! served again. If its node went away before the key ended, the key still names it and its charge.

use weir_storage::clock::Millis;

use crate::credits::Credits;
use crate::operation::{BootId, Claim, HoldId, Served, Taken};

/// Hours that a key is kept.
pub const KEPT_HOURS: i64 = 24;

/// A key that has not ended so long after it was claimed, though its hold has and its node is there, will not: it ends
/// within seconds of the hold, unless the database was away just then.
const OVER_AFTER_MS: i64 = 15 * 60_000;

/// A key that was claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// As the request brought it.
    pub name: String,
    /// What tells its request from another one.
    pub request_digest: [u8; 32],
    /// The request that has claimed it.
    pub request_id: String,
    /// That request's hold.
    pub hold: HoldId,
    /// The run of a node that serves it.
    pub boot_id: BootId,
    /// The moment at which the request was to be served.
    pub created_at: Millis,
    /// The moment from which on anybody may claim it.
    pub expires_at: Millis,
    /// The moment at which its request was over, if something was charged for that.
    pub completed_at: Option<Millis>,
    /// The answer to give again, sealed.
    pub answer: Option<Vec<u8>>,
    /// Until when the run's lease is valid, if it is known to have had one. Loaded, never written.
    pub leased_until: Option<Millis>,
}

/// What has become of a hold, as far as its key asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Open,
    /// Settled, or expired: so much was charged, of 0 even.
    Charged(Credits),
    /// Released, or there never was one.
    Nothing,
}

impl Key {
    /// Why another request that brings this key is not served; `None` if it may be.
    pub(crate) fn refuses(&self, claim: &Claim, at: Millis, hold: Fate) -> Option<Taken> {
        if at >= self.expires_at || hold == Fate::Nothing {
            return None;
        }
        if self.request_digest != claim.request_digest {
            return Some(Taken::OtherRequest);
        }
        let Fate::Charged(charged) = hold else {
            // A sweep has yet to end it, if its node does not.
            return Some(Taken::InProgress);
        };
        let is_leased = self.leased_until.is_some_and(|until| at < until);
        let may_end = is_leased && at.0 < self.created_at.0 + OVER_AFTER_MS;
        if self.completed_at.is_none() && may_end {
            return Some(Taken::InProgress);
        }
        Some(Taken::Served(Served {
            request_id: self.request_id.clone(),
            charged,
            answer: self.answer.clone(),
            expires_at: self.expires_at,
        }))
    }
}

/// When a key lapses that is claimed at this moment.
pub fn expires_at(claimed_at: Millis) -> Millis {
    Millis(claimed_at.0 + KEPT_HOURS * 3_600_000)
}
