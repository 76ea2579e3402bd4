//! The rules of an account's idempotency keys: plain functions, without I/O and without a clock.
//!
//! A request claims its key together with its hold, or gets neither. A release of the hold frees the key; after a
//! charge, even of 0, the key ends: completed, with the stored response if one exists.
//!
//! **Invariant:** of any number of requests with one key, one is served at a time, and after a charge none is served
//! again. If its node fails before the key ends, the key still names the request and its charge.

use weir_storage::clock::Millis;

use crate::credits::Credits;
use crate::operation::{BootId, HoldId, IdempotencyClaim, KeyConflict, ServedRequest};

/// Hours for which a key is kept.
pub const KEPT_HOURS: i64 = 24;

/// Time after which an unfinished key is over, although its hold has ended and its node is live: a key ends within
/// seconds of its hold, unless the database was unavailable at that moment.
const OVER_AFTER_MS: i64 = 15 * 60_000;

/// A claimed key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    pub name: String,
    /// The digest of the request's content.
    pub request_digest: [u8; 32],
    pub request_id: String,
    /// The hold of that request.
    pub hold: HoldId,
    /// The run of the node that serves it.
    pub boot_id: BootId,
    /// The time of the claim.
    pub created_at: Millis,
    /// The time from which any request may claim the key.
    pub expires_at: Millis,
    /// The time at which its request ended with a charge.
    pub completed_at: Option<Millis>,
    /// The stored response, sealed.
    pub answer: Option<Vec<u8>>,
    /// The end of the run's lease, if it had one. Loaded, never written.
    pub leased_until: Option<Millis>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyedHoldState {
    Open,
    /// Settled or expired: this amount was charged, even if it is 0.
    Charged(Credits),
    /// Released, or never opened.
    Nothing,
}

impl IdempotencyKey {
    /// Returns the reason why another request with this key is not served; `None` if it may be.
    pub(crate) fn refuses(
        &self,
        claim: &IdempotencyClaim,
        at: Millis,
        hold: KeyedHoldState,
    ) -> Option<KeyConflict> {
        if at >= self.expires_at || hold == KeyedHoldState::Nothing {
            return None;
        }
        if self.request_digest != claim.request_digest {
            return Some(KeyConflict::OtherRequest);
        }
        let KeyedHoldState::Charged(charged) = hold else {
            // If its node does not end the hold, a sweep will.
            return Some(KeyConflict::InProgress);
        };
        let is_leased = self.leased_until.is_some_and(|until| at < until);
        let may_end = is_leased && at.0 < self.created_at.0 + OVER_AFTER_MS;
        if self.completed_at.is_none() && may_end {
            return Some(KeyConflict::InProgress);
        }
        Some(KeyConflict::Served(ServedRequest {
            request_id: self.request_id.clone(),
            charged,
            answer: self.answer.clone(),
            expires_at: self.expires_at,
        }))
    }
}

/// Returns the expiry of a key that is claimed at this moment.
pub fn expires_at(claimed_at: Millis) -> Millis {
    Millis(claimed_at.0 + KEPT_HOURS * 3_600_000)
}
