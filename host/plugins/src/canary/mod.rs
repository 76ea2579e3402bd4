//! Canaries: a second component of a slot, which serves a share of the accounts until figures say whether it may serve
//! all of them.
//!
//! Which accounts those are is a [hash](CanaryShare::holds) of the slot, the component and the account: the same ones on
//! every node and for as long as the share stays; those of a smaller share are among those of a larger one, and another
//! slot's canary has others.
//!
//! While a slot has a canary, each node [samples](samples) what its requests to both components came to, and adds that to the
//! database. Every node [compares](compare) the sums of all, every few seconds; who finds the canary worse ends it, in a
//! transaction in which it still is the canary, so that one node does it once. What slots make of that is in
//! [`super::slots`].
//!
//! **Invariant:** figures of before a canary began, or of an earlier one, do not count.
//! **Invariant:** a slot without a canary pays nothing for any of it, and only nodes that serve with both components sample.
//!
//! To compare something else, add a [`Measure`]; how sure a judgement must be is in [`compare`].

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

/// What a canary is begun with.
#[derive(Debug, Clone, Copy)]
pub struct CanaryTerms {
    /// The share of accounts that it serves.
    pub share: CanaryShare,
    /// How long it must have done well to serve all of them; without it, an operator says so.
    pub promote_after: Option<Duration>,
}

impl CanaryShare {
    /// The parts of a whole.
    pub const WHOLE: u16 = 10_000;

    /// From parts of ten thousand: neither none nor all of them.
    pub fn from_parts(parts: i64) -> Option<Self> {
        let parts = u16::try_from(parts).ok()?;
        (1..Self::WHOLE).contains(&parts).then_some(Self(parts))
    }

    /// From a fraction, such as 0.05, to the next ten-thousandth.
    pub fn from_fraction(fraction: f64) -> Option<Self> {
        let parts = (fraction * f64::from(Self::WHOLE)).round();
        // What is no number becomes 0, and what is beyond all numbers the last one.
        Self::from_parts(parts as i64)
    }

    /// In parts of ten thousand.
    pub fn parts(self) -> i64 {
        i64::from(self.0)
    }

    /// As a fraction.
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / f64::from(Self::WHOLE)
    }

    /// Whether an account is among those that a canary serves.
    pub fn holds(self, lot: Lot) -> bool {
        lot.0 % u64::from(Self::WHOLE) < u64::from(self.0)
    }
}

/// In per cent.
impl fmt::Display for CanaryShare {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} %", f64::from(self.0) / 100.0)
    }
}

/// For people.
impl fmt::Display for CanaryTerms {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} of accounts", self.share)?;
        match self.promote_after {
            Some(after) => write!(formatter, ", all of them after {}", span(after)),
            None => Ok(()),
        }
    }
}

/// A span for people, such as `30m`.
pub fn span(span: Duration) -> String {
    let span = SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
    format!("{span:#}")
}

/// What decides on which side of a canary an account is, and with which accounts it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lot(u64);

impl Lot {
    /// The lot of an account, of a certain canary.
    pub fn draw(slot: &str, canary: Digest, account: &AccountId) -> Self {
        let mut hash = Sha256::new();
        // A slot's name has no zero byte, and the digest is of one length.
        hash.update(slot);
        hash.update([0]);
        hash.update(canary.to_string());
        hash.update(&account.0);
        let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(hash.finalize());
        Self(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }

    /// Which of so many groups it is in. Says nothing about the side.
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
            share.holds(Lot::draw(slot, canary, &account))
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
            sizes[Lot::draw("openai", Digest::of(b"a"), &account).group(16)] += 1;
        }
        assert!(
            sizes.iter().all(|size| (500..750).contains(size)),
            "{sizes:?}"
        );
    }
}
