//! Decimals as exact integers.

use std::fmt;

use serde::de::{Error, Unexpected, Visitor};

/// A parser of decimals, written as a number or a text, without binary fractions.
pub(crate) struct Decimal {
    /// Maximum number of decimal places; the value counts units of the last place.
    pub places: u32,
    /// The error message for other input.
    pub expected: &'static str,
}

impl Decimal {
    pub(crate) fn parse(&self, text: &str) -> Option<i64> {
        // Many programs write small numbers like this, and JSON allows it.
        if let Some((number, exponent)) = text.split_once(['e', 'E']) {
            return self.parse_scientific(number, exponent.parse().ok()?);
        }
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty()
            || !digits(whole)
            || !digits(fraction)
            || fraction.len() > self.places as usize
        {
            return None;
        }
        let scale = |digits: usize| 10_i64.checked_pow(self.places - u32::try_from(digits).ok()?);
        let whole = whole.parse::<i64>().ok()?.checked_mul(scale(0)?)?;
        if fraction.is_empty() {
            return Some(whole);
        }
        let fraction = fraction
            .parse::<i64>()
            .ok()?
            .checked_mul(scale(fraction.len())?)?;
        whole.checked_add(fraction)
    }

    fn parse_scientific(&self, number: &str, exponent: i32) -> Option<i64> {
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = format!("{whole}{fraction}");
        if whole.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let significant = digits.trim_end_matches('0');
        if significant.is_empty() {
            return Some(0);
        }
        // The position of the last digit, in units of the last place.
        let zeros = digits.len() - significant.len();
        let shift = i64::from(self.places) + i64::from(exponent) + zeros as i64;
        let shift = u32::try_from(shift - fraction.len() as i64).ok()?;
        let significant: i64 = significant.parse().ok()?;
        significant.checked_mul(10_i64.checked_pow(shift)?)
    }
}

impl Visitor<'_> for Decimal {
    type Value = i64;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<i64, E> {
        self.parse(text)
            .ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<i64, E> {
        // The shortest text that parses to this number is the text that the author wrote.
        self.parse(&number.to_string())
            .ok_or_else(|| E::invalid_value(Unexpected::Float(number), &self))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<i64, E> {
        self.parse(&number.to_string())
            .ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<i64, E> {
        self.parse(&number.to_string())
            .ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
    }
}
