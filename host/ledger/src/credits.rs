//! `Credits`: amounts of money as exact integers.
//!
//! One credit is 0.001 USD. An amount counts micro-credits, so that one micro-credit is one nano-USD and
//! a provider's price list needs no conversion.

use std::fmt;
use std::iter::Sum;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::decimal::Decimal;

/// An amount in micro-credits. A balance is never negative; an entry's change may be.
///
/// The type has no `+` and no `-`: each method's name says how it handles an overflow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Credits(i64);

/// Micro-credits in a credit.
const MICRO: i64 = 1_000_000;

impl Credits {
    pub const ZERO: Self = Self(0);

    /// The maximum of one operation: a billion credits, or a million USD. Thousands of such amounts still add up
    /// without overflow.
    pub const MAX: Self = Self(1_000_000_000 * MICRO);

    /// Makes an amount from micro-credits, as stored in the database.
    pub const fn from_micro(micro: i64) -> Self {
        Self(micro)
    }

    /// Returns micro-credits; negative for removed credits.
    pub const fn micro(self) -> i64 {
        self.0
    }

    /// Makes an amount of whole credits.
    pub const fn whole(credits: u32) -> Self {
        Self(credits as i64 * MICRO)
    }

    /// Returns whether an operation may have this amount.
    pub fn is_in_range(self) -> bool {
        (Self::ZERO..=Self::MAX).contains(&self)
    }

    /// Returns the sum, unless it overflows.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// Returns the sum, or the type's bound on overflow.
    pub fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the difference, unless it is negative or overflows.
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.0
            .checked_sub(other.0)
            .filter(|difference| *difference >= 0)
            .map(Self)
    }

    /// Returns the difference, or zero if it is negative.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0).max(0))
    }

    /// Returns the change of an amount since `before`, for an entry: negative if the amount is less.
    pub fn since(self, before: Self) -> Self {
        Self(self.0.saturating_sub(before.0))
    }

    /// Returns the negative amount, for an entry that removes credits.
    pub fn negated(self) -> Self {
        Self(self.0.saturating_neg())
    }

    /// Parses whole credits with at most six decimals, such as `12.5`.
    pub fn parse(text: &str) -> Option<Self> {
        DECIMAL.parse(text).map(Self)
    }

    /// Returns the amount as a JSON number of whole credits, for people: beyond fifteen digits the last ones may
    /// differ.
    pub fn to_json(self) -> serde_json::Value {
        self.to_string().parse().unwrap_or_default()
    }

    /// Returns whole credits, half rounded up: for reports with integer fields. Round once, after summing.
    pub fn rounded(self) -> i64 {
        // This form of `(n + MICRO / 2) / MICRO` does not overflow.
        self.0.div_euclid(MICRO) + i64::from(self.0.rem_euclid(MICRO) >= MICRO / 2)
    }
}

const DECIMAL: Decimal = Decimal {
    places: 6,
    expected: "credits of at least 0 with at most 6 decimals",
};

/// Sums saturate at the type's bounds, which a balance never approaches.
impl Sum for Credits {
    fn sum<I: Iterator<Item = Self>>(credits: I) -> Self {
        Self(credits.fold(0, |sum, credits| sum.saturating_add(credits.0)))
    }
}

/// Formats the shortest decimal, such as `0.000001` or `500`.
impl fmt::Display for Credits {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let (whole, fraction) = (
            self.0.unsigned_abs() / MICRO as u64,
            self.0.unsigned_abs() % MICRO as u64,
        );
        write!(formatter, "{sign}{whole}")?;
        if fraction > 0 {
            let digits = format!("{fraction:06}");
            write!(formatter, ".{}", digits.trim_end_matches('0'))?;
        }
        Ok(())
    }
}

/// Serialises as a JSON number with all digits: a binary fraction would lose the last digits of a large amount.
impl Serialize for Credits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let number = RawValue::from_string(self.to_string()).map_err(serde::ser::Error::custom)?;
        number.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Credits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = Box::<RawValue>::deserialize(deserializer)?;
        Self::parse(number.get()).ok_or_else(|| D::Error::custom(DECIMAL.expected))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn credits_are_written_as_the_shortest_exact_number() {
        for (credits, text) in [
            (0, "0"),
            (1, "0.000001"),
            (500 * MICRO, "500"),
            (1_250_000, "1.25"),
            (-1_250_000, "-1.25"),
            (i64::MAX, "9223372036854.775807"),
            (i64::MIN, "-9223372036854.775808"),
        ] {
            assert_eq!(serde_json::to_string(&Credits(credits)).unwrap(), text);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "-1",
            "0.0000001",
            "1e-7",
            "1e13",
            "\"1\"",
            "null",
            "9223372036855",
        ] {
            assert!(serde_json::from_str::<Credits>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_number_with_an_exponent_is_read_as_exactly() {
        for (text, credits) in [("1e3", 1_000 * MICRO), ("25E-1", 2_500_000), ("1e-6", 1)] {
            assert_eq!(
                serde_json::from_str::<Credits>(text).ok(),
                Some(Credits(credits))
            );
        }
    }

    #[test]
    fn reports_round_half_up() {
        for (credits, rounded) in [(499_999, 0), (500_000, 1), (1_499_999, 1), (-500_000, 0)] {
            assert_eq!(Credits(credits).rounded(), rounded, "{credits}");
        }
    }

    proptest! {
        #[test]
        fn every_amount_is_read_back_as_written(credits in 0..=i64::MAX) {
            let text = serde_json::to_string(&Credits(credits)).unwrap();
            prop_assert_eq!(serde_json::from_str::<Credits>(&text).unwrap(), Credits(credits));
        }

        #[test]
        fn sums_fit_or_are_refused(a in any::<i64>(), b in any::<i64>()) {
            let exact = i128::from(a) + i128::from(b);
            prop_assert_eq!(
                Credits(a).checked_add(Credits(b)).map(|sum| i128::from(sum.0)),
                i64::try_from(exact).is_ok().then_some(exact)
            );
            let exact = i128::from(a) - i128::from(b);
            prop_assert_eq!(
                Credits(a).checked_sub(Credits(b)).map(|difference| i128::from(difference.0)),
                (exact >= 0 && i64::try_from(exact).is_ok()).then_some(exact)
            );
        }
    }

    #[test]
    fn exponents_are_read_exactly() {
        for (text, micro) in [
            ("1e2", Some(100_000_000)),
            ("1E+2", Some(100_000_000)),
            ("12.5e-1", Some(1_250_000)),
            ("1e-6", Some(1)),
            ("100e-8", Some(1)),
            ("0e99", Some(0)),
            ("0.0e-99", Some(0)),
            ("1e-7", None),
            ("5e-324", None),
            ("1e300", None),
            ("1e99999999999", None),
            ("e5", None),
            ("1e", None),
            ("1e1.5", None),
            ("-1e2", None),
        ] {
            assert_eq!(Credits::parse(text).map(Credits::micro), micro, "{text}");
        }
    }
}
