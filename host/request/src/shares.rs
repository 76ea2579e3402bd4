//! Shares: the amount of a limited resource that each holder has taken, so that no holder takes all of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Amounts, by holder: an account, an upstream, a slot.
#[derive(Debug, Default)]
pub struct Shares(Mutex<HashMap<Arc<str>, u32>>);

/// The amount of one taker of a holder. Dropping it returns the amount.
#[derive(Debug)]
pub struct Share {
    of: Arc<Shares>,
    holder: Arc<str>,
    taken: u32,
}

impl Shares {
    /// Makes an empty share of a holder.
    pub fn of(self: &Arc<Self>, holder: &str) -> Share {
        Share {
            of: self.clone(),
            holder: holder.into(),
            taken: 0,
        }
    }

    /// Takes one for a holder, unless the holder has `most` in total.
    pub fn take_one(self: &Arc<Self>, holder: &str, most: u32) -> Option<Share> {
        let mut share = self.of(holder);
        share.take(1, most).then_some(share)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, u32>> {
        // The map contains only numbers: no panic leaves it inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Takes more, unless the holder would have more than `most` in total; returns whether it did.
    pub fn take(&mut self, more: u32, most: u32) -> bool {
        let mut all = self.of.lock();
        let held = all.get(&self.holder).copied().unwrap_or_default();
        if more > most.saturating_sub(held) {
            return false;
        }
        all.insert(self.holder.clone(), held + more);
        self.taken += more;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut all = self.of.lock();
        if let Some(held) = all.get_mut(&self.holder) {
            *held -= self.taken;
            // Strangers create holders, so empty ones are removed.
            if *held == 0 {
                all.remove(&self.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_takes_up_to_their_share_and_leaves_nothing_behind() {
        let shares = Arc::new(Shares::default());
        let first = shares.take_one("alice", 2);
        let mut second = shares.of("alice");
        assert!(second.take(1, 2) && !second.take(1, 2));
        assert!(shares.take_one("alice", 2).is_none());
        assert!(shares.take_one("bob", 2).is_some());
        drop(first);
        assert!(second.take(1, 2) && shares.take_one("alice", 2).is_none());
        drop(second);
        assert!(shares.lock().is_empty());
    }
}
