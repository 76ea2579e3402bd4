//! Canaries: a second component of a slot that serves a share of the accounts until its figures decide whether it may
//! serve all.
//!
//! A [hash](CanaryShare::holds) of the slot, the component and the account selects the accounts: the same accounts on
//! every node for as long as the share stays. The accounts of a smaller share are a subset of a larger one's, and
//! another slot's canary has others.
//!
//! While a slot has a canary, each node [samples](samples) the outcomes of its requests to both components, and adds
//! them to the database. Every node [compares](compare) the sums every few seconds; a node that finds the canary
//! worse ends it, in a transaction that checks that it is still the canary, so that only one node does so. The slots'
//! reaction is in [`super::slots`].
//!
//! **Invariant:** figures from before a canary began, or of an earlier canary, do not count.
//! **Invariant:** a slot without a canary has no cost from it, and only nodes that serve with both components sample.
//!
//! To compare another quantity, add a [`Measure`]; the certainty of a judgement is in [`compare`].

pub mod compare;
pub mod samples;

use std::fmt;
use std::time::Duration;

use jiff::SignedDuration;
use sha2::{Digest as _, Sha256};
use weir_ledger::AccountId;
use weir_sandbox::Digest;

pub use self::compare::{Estimate, Finding, Judgement};
pub use self::samples::{Measure, Samples, Tally};

/// The share of accounts that a canary serves, in parts of ten thousand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CanaryShare(u16);

#[derive(Debug, Clone, Copy)]
pub struct CanaryTerms {
    /// The share of accounts that it serves.
    pub share: CanaryShare,
    /// Time without harm after which it serves all accounts; without it, an operator decides.
    pub promote_after: Option<Duration>,
}

impl CanaryShare {
    /// The parts of a complete share.
    pub const WHOLE: u16 = 10_000;

    /// A share from parts of ten thousand: neither none nor all of them.
    pub fn from_parts(parts: i64) -> Option<Self> {
        let parts = u16::try_from(parts).ok()?;
        (1..Self::WHOLE).contains(&parts).then_some(Self(parts))
    }

    /// A share from a fraction, such as 0.05, to the next ten-thousandth.
    pub fn from_fraction(fraction: f64) -> Option<Self> {
        let parts = (fraction * f64::from(Self::WHOLE)).round();
        // NaN becomes 0, and numbers beyond the range become the nearest bound.
        Self::from_parts(parts as i64)
    }

    /// Returns the share in parts of ten thousand.
    pub fn parts(self) -> i64 {
        i64::from(self.0)
    }

    pub fn fraction(self) -> f64 {
        f64::from(self.0) / f64::from(Self::WHOLE)
    }

    /// Returns whether the canary serves an account.
    pub fn holds(self, lot: AccountHash) -> bool {
        lot.0 % u64::from(Self::WHOLE) < u64::from(self.0)
    }
}

/// Formats the share in per cent.
impl fmt::Display for CanaryShare {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} %", f64::from(self.0) / 100.0)
    }
}

/// Formats the terms for people.
impl fmt::Display for CanaryTerms {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} of accounts", self.share)?;
        match self.promote_after {
            Some(after) => write!(formatter, ", all of them after {}", span(after)),
            None => Ok(()),
        }
    }
}

/// Formats a duration for people, such as `30m`.
pub fn span(span: Duration) -> String {
    let span = SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
    format!("{span:#}")
}

/// The hash that decides an account's side of a canary, and the group in which it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountHash(u64);

impl AccountHash {
    /// The lot of an account for one canary.
    pub fn draw(slot: &str, canary: Digest, account: &AccountId) -> Self {
        let mut hash = Sha256::new();
        // A slot's name has no zero byte, and the digest has a fixed length.
        hash.update(slot);
        hash.update([0]);
        hash.update(canary.to_string());
        hash.update(&account.0);
        let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(hash.finalize());
        Self(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }

    /// Returns the lot's group of this many groups. The group is independent of the side.
    fn group(self, groups: usize) -> usize {
        (self.0 / u64::from(CanaryShare::WHOLE)) as usize % groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts_of(slot: &str, canary: &[u8], parts: i64) -> Vec<usize> {
        let share = CanaryShare::from_parts(parts).expect("a share");
        let canary = Digest::of(canary);
        let in_it = |number: &usize| {
            let account = AccountId(format!("usr_{number}"));
            share.holds(AccountHash::draw(slot, canary, &account))
        };
        (0..20_000).filter(in_it).collect()
    }

    #[test]
    fn a_share_has_as_many_accounts_as_it_says_and_a_larger_one_has_those_too() {
        let five = accounts_of("openai", b"a", 500);
        assert!((900..1_100).contains(&five.len()), "{}", five.len());
        let twenty = accounts_of("openai", b"a", 2_000);
        assert!((3_800..4_200).contains(&twenty.len()), "{}", twenty.len());
        assert!(five.iter().all(|account| twenty.contains(account)));
    }

    #[test]
    fn another_slots_canary_and_another_component_have_other_accounts() {
        let one = accounts_of("openai", b"a", 1_000);
        for other in [
            accounts_of("gemini", b"a", 1_000),
            accounts_of("openai", b"b", 1_000),
        ] {
            let both = one.iter().filter(|account| other.contains(account)).count();
            assert!((100..300).contains(&both), "{both} of {}", one.len());
        }
    }

    #[test]
    fn a_share_is_neither_none_nor_all() {
        assert_eq!(CanaryShare::from_fraction(0.05), Some(CanaryShare(500)));
        assert_eq!(CanaryShare::from_fraction(0.0001), Some(CanaryShare(1)));
        for fraction in [0.0, 0.000_01, 1.0, 1.5, -0.1, f64::NAN, f64::INFINITY] {
            assert_eq!(CanaryShare::from_fraction(fraction), None, "{fraction}");
        }
    }

    #[test]
    fn groups_are_of_one_size_whatever_the_side() {
        let mut sizes = [0; 16];
        for number in accounts_of("openai", b"a", 5_000) {
            let account = AccountId(format!("usr_{number}"));
            sizes[AccountHash::draw("openai", Digest::of(b"a"), &account).group(16)] += 1;
        }
        assert!(
            sizes.iter().all(|size| (500..750).contains(size)),
            "{sizes:?}"
        );
    }
}
