//! The facts behind the charge of a request, for its receipt: usage as the provider reported it and as weir has seen it, and the
//! prices. The component that read the provider's report is in the entry already.
//!
//! The names are short, because each request writes them: at most some 150 bytes with a price for text.

use serde::{Deserialize, Serialize};

use crate::price::{Factor, NanoUsd, Price, PriceFactors, TokenPrices};
use crate::usage::Billable;

/// The facts behind a charge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptFacts {
    /// The counts that the provider reported; `None` without a report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<TierFigures>,
    /// The bytes of text that weir has seen of the request and of its response.
    pub seen: [u64; 2],
    /// The prices of the charged counts, in nano-USD: of a million tokens, or of `per` of the others.
    pub prices: TierFigures,
    /// The number of units in a price that is not of tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per: Option<u32>,
    /// The factors on the prices, in ten-thousandths: each multiplies.
    pub factors: Vec<i64>,
    /// The percentage of the charge that the client pays for a response from the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// The version of the catalog's layer; 0 without a layer.
    pub catalog: i64,
}

/// A figure for each tier of a price; tiers with 0 are left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TierFigures {
    #[serde(skip_serializing_if = "is_zero")]
    pub input: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_read: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write_short: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write_long: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub output: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub audio_input: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub audio_output: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub image_output: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub search: u64,
    /// Images, characters, seconds or search units, by the unit of the price.
    #[serde(skip_serializing_if = "is_zero")]
    pub units: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(figure: &u64) -> bool {
    *figure == 0
}

impl TierFigures {
    /// Returns counts by tier.
    pub fn of_counts(counts: &Billable) -> Self {
        let tokens = &counts.tokens;
        let units = counts.input.map_or(u64::from(counts.images), |input| {
            input.count.max(0).unsigned_abs()
        });
        Self {
            input: tokens.input,
            cache_read: tokens.cache_read,
            cache_write_short: tokens.cache_write_short,
            cache_write_long: tokens.cache_write_long,
            output: tokens.output,
            audio_input: tokens.audio_input,
            audio_output: tokens.audio_output,
            image_output: tokens.image_output,
            search: counts.searches,
            units,
        }
    }

    /// Returns the prices of the tiers with a count.
    fn of_prices(prices: &TokenPrices, used: &Self) -> Self {
        let of = |price: NanoUsd, count: u64| match count {
            0 => 0,
            _ => price.0.max(0).unsigned_abs(),
        };
        Self {
            input: of(prices.input, used.input),
            cache_read: of(prices.cache_read, used.cache_read),
            cache_write_short: of(prices.cache_write_short, used.cache_write_short),
            cache_write_long: of(prices.cache_write_long, used.cache_write_long),
            output: of(prices.output, used.output),
            audio_input: of(prices.audio_input, used.audio_input),
            audio_output: of(prices.audio_output, used.audio_output),
            image_output: of(prices.image_output, used.image_output),
            search: of(prices.search, used.search),
            units: 0,
        }
    }
}

impl ReceiptFacts {
    /// Makes the facts of a charge for `used` at this price; without a report.
    pub fn new(price: &Price, factors: &PriceFactors, used: &Billable, catalog: i64) -> Self {
        let of_units = |price: NanoUsd| TierFigures {
            units: price.0.max(0).unsigned_abs(),
            ..TierFigures::default()
        };
        let (prices, per) = match price {
            Price::Text { .. } => {
                let prices = price.tier(used.tokens.input);
                let used = TierFigures::of_counts(used);
                let prices = prices.map(|prices| TierFigures::of_prices(prices, &used));
                (prices.unwrap_or_default(), None)
            }
            Price::Image(image) => (of_units(*image), None),
            Price::Units { price, per, .. } => (of_units(*price), Some(*per)),
        };
        let Factor(text) = factors.text;
        let factors = match price {
            Price::Image(_) => vec![text, factors.image.0],
            Price::Text { .. } | Price::Units { .. } => vec![text],
        };
        Self {
            reported: None,
            seen: [0, 0],
            prices,
            per,
            factors,
            percent: None,
            catalog,
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::usage::TokenCounts;

    fn prices(input: i64, output: i64) -> TokenPrices {
        TokenPrices {
            input: NanoUsd(input),
            cache_read: NanoUsd(input / 10),
            cache_write_short: NanoUsd(input),
            cache_write_long: NanoUsd(input),
            output: NanoUsd(output),
            audio_input: NanoUsd(input),
            audio_output: NanoUsd(output),
            image_output: NanoUsd(output),
            search: NanoUsd(10_000_000),
        }
    }

    fn used(input: u64, cache_read: u64, output: u64) -> Billable {
        let tokens = TokenCounts {
            input,
            cache_read,
            output,
            ..TokenCounts::default()
        };
        Billable {
            tokens,
            ..Billable::default()
        }
    }

    /// Entries and the log have them, and nodes of later releases read them.
    #[test]
    fn stored_facts_stay_readable_and_small() {
        let price = Price::Text {
            base: prices(3_000_000_000, 15_000_000_000),
            above: Some((200_000, prices(6_000_000_000, 22_500_000_000))),
        };
        let factors = PriceFactors::default();
        let mut facts = ReceiptFacts::new(&price, &factors, &used(123_456, 100_000, 4_321), 12);
        facts.reported = Some(TierFigures::of_counts(&used(123_456, 100_000, 4_321)));
        facts.seen = [493_824, 17_284];
        let stored = r#"{"reported":{"input":123456,"cache_read":100000,"output":4321},"seen":[493824,17284],"prices":{"input":3000000000,"cache_read":300000000,"output":15000000000},"factors":[14000],"catalog":12}"#;
        assert_eq!(serde_json::to_string(&facts).unwrap(), stored);
        assert!(stored.len() <= 200, "{}", stored.len());
        let later = stored.replacen('{', r#"{"occasion":"gift","#, 1);
        assert_eq!(serde_json::from_str::<ReceiptFacts>(&later).unwrap(), facts);
        // Above the threshold, the other prices are charged.
        let facts = ReceiptFacts::new(&price, &factors, &used(200_001, 0, 1), 0);
        assert_eq!(facts.prices.input, 6_000_000_000);
        assert_eq!(facts.prices.cache_read, 0);
    }

    #[test]
    fn other_prices_name_their_units() {
        let factors = PriceFactors::default();
        let image = Price::Image(NanoUsd(40_000_000));
        let images = Billable {
            images: 2,
            ..Billable::default()
        };
        let facts = ReceiptFacts::new(&image, &factors, &images, 0);
        assert_eq!(
            serde_json::to_string(&facts).unwrap(),
            r#"{"seen":[0,0],"prices":{"units":40000000},"factors":[14000,11500],"catalog":0}"#
        );
    }
}
