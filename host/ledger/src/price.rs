//! Prices as exact integers.
//!
//! One credit is 0.001 USD, so that one nano-USD is one micro-credit and a provider's price list needs no conversion: a
//! price is stored in nano-USD (= micro-credits before the factor) per million tokens.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::decimal::Decimal;
use crate::usage::Unit;

/// A price in nano-USD: of a million tokens, or of some other units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NanoUsd(pub i64);

/// A factor on prices, in ten-thousandths: 1.4 is 14,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Factor(pub i64);

/// The maximum valid price: 1 million USD per million tokens. It keeps all later arithmetic on i128 far from overflow.
const MAX_USD: i64 = 1_000_000;

/// A model's price at one upstream, before the factors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Price {
    Text {
        /// Prices up to the threshold of `above`, or always.
        base: TokenPrices,
        /// The threshold in input tokens, and the prices of requests with more.
        above: Option<(u64, TokenPrices)>,
    },
    /// A flat price per image.
    Image(NanoUsd),
    /// A price of characters, seconds or search units, and of nothing else.
    Units {
        unit: Unit,
        /// The price of `per` units.
        price: NanoUsd,
        /// The number of units in the price: 60 seconds, for example.
        per: u32,
    },
}

/// Prices per million tokens, and of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenPrices {
    /// Input tokens outside the upstream's cache.
    pub input: NanoUsd,
    /// Input tokens that were read from the cache.
    pub cache_read: NanoUsd,
    /// Input tokens that were written to the cache for a short time.
    pub cache_write_short: NanoUsd,
    /// Input tokens that were written to the cache for a long time.
    pub cache_write_long: NanoUsd,
    /// Output tokens, including reasoning.
    pub output: NanoUsd,
    /// Input tokens of audio outside the cache.
    pub audio_input: NanoUsd,
    pub audio_output: NanoUsd,
    pub image_output: NanoUsd,
    /// One search of the web by the provider.
    pub search: NanoUsd,
}

/// Factors on prices: `[price_factors]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PriceFactors {
    /// Factor on every price. Default: 1.4.
    pub text: Factor,
    /// Factor on prices per image, in addition to `text`. Default: 1.15.
    pub image: Factor,
}

impl Price {
    /// Whether searches of the web cost anything.
    pub fn has_searches(&self) -> bool {
        match self {
            Self::Text { base, .. } => base.search > NanoUsd(0),
            Self::Image(_) | Self::Units { .. } => false,
        }
    }

    /// Returns the prices of a request with this many input tokens; `None` if the price is not of tokens.
    pub fn tier(&self, input_tokens: u64) -> Option<&TokenPrices> {
        match self {
            Self::Text {
                above: Some((threshold, above)),
                ..
            } if input_tokens > *threshold => Some(above),
            Self::Text { base, .. } => Some(base),
            Self::Image(_) | Self::Units { .. } => None,
        }
    }

    pub fn unit(&self) -> Unit {
        match self {
            Self::Text { .. } => Unit::Tokens,
            Self::Image(_) => Unit::Images,
            Self::Units { unit, .. } => *unit,
        }
    }

    /// Returns the price in search units, if nothing else costs something.
    #[must_use]
    pub fn in_search_units(self) -> Self {
        let is_free = |(name, price): (&str, NanoUsd)| name == "search" || price == NanoUsd(0);
        match self {
            Self::Text { base, above: None }
                if base.search > NanoUsd(0) && base.named().into_iter().all(is_free) =>
            {
                Self::Units {
                    unit: Unit::SearchUnits,
                    price: base.search,
                    per: 1,
                }
            }
            other => other,
        }
    }
}

impl TokenPrices {
    /// Returns the prices with the names of their settings.
    pub fn named(&self) -> [(&'static str, NanoUsd); 9] {
        [
            ("input", self.input),
            ("cache_read", self.cache_read),
            ("cache_write_short", self.cache_write_short),
            ("cache_write_long", self.cache_write_long),
            ("output", self.output),
            ("audio_input", self.audio_input),
            ("audio_output", self.audio_output),
            ("image_output", self.image_output),
            ("search", self.search),
        ]
    }
}

impl PriceFactors {
    /// Returns the factors with another factor on every price, rounded up.
    #[must_use]
    pub fn times(&self, factor: Factor) -> Self {
        let product = i128::from(self.text.0) * i128::from(factor.0);
        let text = product.div_euclid(10_000) + i128::from(product.rem_euclid(10_000) != 0);
        Self {
            text: Factor(text.try_into().unwrap_or(i64::MAX)),
            image: self.image,
        }
    }
}

impl Default for PriceFactors {
    fn default() -> Self {
        Self {
            text: Factor(14_000),
            image: Factor(11_500),
        }
    }
}

impl NanoUsd {
    /// Returns the price in USD as an exact decimal, such as `0.075`.
    pub fn decimal(self) -> String {
        let (usd, nano) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        let decimal = format!("{usd}.{nano:09}");
        decimal
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned()
    }

    /// Returns credits for a thousand units at this price of `per` units, including the factor; for display.
    pub fn credits_per_1k(self, per: u32, factor: Factor) -> f64 {
        // Nano-USD × factor = micro-credits.
        (self.0 as f64 * factor.0 as f64 * 1e3) / (1e4 * 1e6 * f64::from(per))
    }
}

impl<'de> Deserialize<'de> for NanoUsd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let nano = deserializer.deserialize_any(Decimal {
            places: 9,
            expected: "a price in USD of at least 0 with at most 9 decimals",
        })?;
        if nano > MAX_USD * 1_000_000_000 {
            return Err(D::Error::custom("a price of more than 1,000,000 USD"));
        }
        Ok(Self(nano))
    }
}

impl<'de> Deserialize<'de> for Factor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let factor = deserializer.deserialize_any(Decimal {
            places: 4,
            expected: "a factor from 0 to 1000 with at most 4 decimals",
        })?;
        if factor > 1_000 * 10_000 {
            return Err(D::Error::custom("a factor of more than 1000"));
        }
        Ok(Self(factor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(json: &str) -> Result<i64, serde_json::Error> {
        serde_json::from_str::<NanoUsd>(json).map(|price| price.0)
    }

    #[test]
    fn prices_are_read_exactly() {
        for (written, nano) in [
            ("0.15", 150_000_000),
            ("\"0.15\"", 150_000_000),
            ("2", 2_000_000_000),
            ("15e-2", 150_000_000),
            ("\"2e0\"", 2_000_000_000),
            ("0.000000001", 1),
            ("\"0.000000001\"", 1),
            ("1.1", 1_100_000_000),
            ("0", 0),
        ] {
            assert_eq!(price(written).ok(), Some(nano), "{written}");
        }
    }

    #[test]
    fn prices_are_written_exactly() {
        for (nano, written) in [
            (0, "0"),
            (1, "0.000000001"),
            (75_000_000, "0.075"),
            (10_000_000_000, "10"),
            (1_250_000_000, "1.25"),
            (1_000_000_000_000_000, "1000000"),
        ] {
            assert_eq!(NanoUsd(nano).decimal(), written);
            assert_eq!(price(written).ok(), Some(nano));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for written in [
            "-1",
            "\"-0.5\"",
            "\"1e\"",
            "\"1e-10\"",
            "\"1e7\"",
            "\"0.0000000001\"",
            "1000001",
            "\"\"",
            "\".5\"",
            "true",
            "9300000000",
            "\"99999999999999999999\"",
        ] {
            assert!(price(written).is_err(), "{written}");
        }
    }

    #[test]
    fn displayed_prices_include_the_factor() {
        let credits = NanoUsd(150_000_000).credits_per_1k(1_000_000, Factor(14_000));
        assert!((credits - 0.21).abs() < 1e-12, "{credits}");
    }
}
