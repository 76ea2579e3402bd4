//! The price of a request: exact integers, rounded up once at the end.
//!
//! A provider's prices are nano-USD per million tokens, per image, or per number of another unit. The customer pays them times the text factor
//! (1.4), and for images also times the image factor (1.15); both are configuration. One micro-credit is one nano-USD,
//! so no conversion is needed.
//!
//! **Invariant:** a charge is less than one micro-credit above the exact price, and never below it.
//! **Invariant:** a request within its token limits costs at most its [`worst_case`].

use serde::{Deserialize, Serialize};

use crate::credits::Credits;
use crate::price::{Factor, NanoUsd, Price, PriceFactors, TokenPrices};
use crate::usage::{Billable, Quantity, TokenCounts, Unit};

/// The price of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCharge {
    /// The customer's price.
    pub credits: Credits,
    /// The provider's price, in nano-USD.
    pub provider_cost_nano_usd: i64,
}

/// The maximum usage of a request, known before it is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageBound {
    pub input_tokens: u64,
    /// The input, if the price counts it in characters or seconds.
    pub input: Option<Quantity>,
    /// Whether some of them may be of audio.
    pub has_audio: bool,
    /// Output tokens: the limit that is sent upstream.
    pub output_tokens: u64,
    pub images: u32,
    /// The provider's searches of the web, or the search units of the request.
    pub searches: u64,
}

/// The number of tokens in a price.
const TOKENS_PER_PRICE: i128 = 1_000_000;

/// The denominator of a [`Factor`].
const FACTOR_SCALE: i128 = 10_000;

/// Returns the price of `used` at an upstream.
///
/// The result is at most [`Credits::MAX`]: no single request is believed to cost more.
pub fn charge(price: &Price, factors: &PriceFactors, used: &Billable) -> RequestCharge {
    match price {
        Price::Text { base, .. } => {
            let prices = price.tier(used.tokens.input).unwrap_or(base);
            of_tokens(exact(prices, used), factors)
        }
        Price::Image(image) => of_images(*image, factors, used.images),
        Price::Units { unit, price, per } => of_units(*price, *per, factors, used.quantity(*unit)),
    }
}

/// Returns this many percent of a charge: the price of a response for which no provider is paid.
pub fn charge_without_provider(charge: &RequestCharge, percent: u8) -> RequestCharge {
    RequestCharge {
        credits: credits(
            i128::from(charge.credits.micro()) * i128::from(percent),
            100,
        ),
        provider_cost_nano_usd: 0,
    }
}

/// Returns the maximum price of a request within `bound` at an upstream: the amount of its hold.
pub fn worst_case(price: &Price, factors: &PriceFactors, bound: &UsageBound) -> Credits {
    let dearest = |prices: &TokenPrices, input: u64| {
        let of_input = prices
            .input
            .max(prices.cache_read)
            .max(prices.cache_write_short)
            .max(prices.cache_write_long);
        let of_input = match bound.has_audio {
            true => of_input.max(prices.audio_input),
            false => of_input,
        };
        let of_output = prices
            .output
            .max(prices.audio_output)
            .max(prices.image_output);
        let exact = times(of_input, input)
            .saturating_add(times(of_output, bound.output_tokens))
            .saturating_add(of_searches(prices, bound.searches));
        of_tokens(exact, factors).credits
    };
    match price {
        Price::Text { base, above } => match above {
            Some((threshold, above)) if bound.input_tokens > *threshold => {
                // The actual input may stay below the threshold, and the price above it may be lower.
                dearest(base, *threshold).max(dearest(above, bound.input_tokens))
            }
            _ => dearest(base, bound.input_tokens),
        },
        Price::Image(image) => of_images(*image, factors, bound.images).credits,
        Price::Units { unit, price, per } => {
            of_units(*price, *per, factors, bound.quantity(*unit)).credits
        }
    }
}

impl UsageBound {
    /// Returns the maximum quantity in the unit of a price.
    fn quantity(&self, unit: Unit) -> Quantity {
        let most = Billable {
            tokens: TokenCounts {
                input: self.input_tokens,
                output: self.output_tokens,
                ..TokenCounts::default()
            },
            input: self.input,
            images: self.images,
            searches: self.searches,
        };
        most.quantity(unit)
    }
}

/// Returns the most output tokens, between `least` and `most`, of a request that costs at most `credits` at each of these
/// prices; `least` if it costs more. `bound` has the other counts.
pub fn affordable_output(
    prices: &[&Price],
    factors: &PriceFactors,
    bound: &UsageBound,
    credits: Credits,
    least: u64,
    most: u64,
) -> u64 {
    let is_affordable = |output_tokens: u64| {
        let bound = UsageBound {
            output_tokens,
            ..*bound
        };
        let mut prices = prices.iter();
        prices.all(|price| worst_case(price, factors, &bound) <= credits)
    };
    if is_affordable(most) {
        return most.max(least);
    }
    let (mut affordable, mut too_many) = (least, most);
    while affordable + 1 < too_many {
        let between = affordable + (too_many - affordable) / 2;
        match is_affordable(between) {
            true => affordable = between,
            false => too_many = between,
        }
    }
    affordable
}

fn times(price: NanoUsd, tokens: u64) -> i128 {
    i128::from(price.0) * i128::from(tokens)
}

/// Returns nano-USD for a million times as many tokens and searches.
fn exact(prices: &TokenPrices, used: &Billable) -> i128 {
    let TokenCounts {
        input,
        cache_read,
        cache_write_short,
        cache_write_long,
        output,
        reasoning: _,
        audio_input,
        audio_output,
        image_output,
    } = used.tokens;
    let parts_of_input = [
        (prices.cache_read, cache_read),
        (prices.cache_write_short, cache_write_short),
        (prices.cache_write_long, cache_write_long),
        (prices.audio_input, audio_input),
    ];
    let parts_of_output = [
        (prices.audio_output, audio_output),
        (prices.image_output, image_output),
    ];
    of_parts(prices.input, input, &parts_of_input)
        .saturating_add(of_parts(prices.output, output, &parts_of_output))
        .saturating_add(of_searches(prices, used.searches))
}

/// Returns the price of `total` tokens. Some parts have their own prices; each is at most the rest of the
/// total.
fn of_parts(price: NanoUsd, total: u64, parts: &[(NanoUsd, u64)]) -> i128 {
    let mut rest = total;
    let mut sum = 0_i128;
    for (price, part) in parts {
        let part = rest.min(*part);
        rest -= part;
        sum = sum.saturating_add(times(*price, part));
    }
    sum.saturating_add(times(price, rest))
}

fn of_searches(prices: &TokenPrices, searches: u64) -> i128 {
    times(prices.search, searches).saturating_mul(TOKENS_PER_PRICE)
}

fn of_tokens(exact: i128, factors: &PriceFactors) -> RequestCharge {
    RequestCharge {
        credits: credits(
            exact.saturating_mul(factor(factors.text)),
            TOKENS_PER_PRICE * FACTOR_SCALE,
        ),
        provider_cost_nano_usd: divide_up(exact, TOKENS_PER_PRICE),
    }
}

fn of_images(price: NanoUsd, factors: &PriceFactors, images: u32) -> RequestCharge {
    let exact = times(price, u64::from(images));
    RequestCharge {
        credits: credits(
            exact
                .saturating_mul(factor(factors.text))
                .saturating_mul(factor(factors.image)),
            FACTOR_SCALE * FACTOR_SCALE,
        ),
        provider_cost_nano_usd: divide_up(exact, 1),
    }
}

fn of_units(price: NanoUsd, per: u32, factors: &PriceFactors, quantity: Quantity) -> RequestCharge {
    let exact = i128::from(price.0) * i128::from(quantity.count);
    let per = i128::from(per.max(1));
    RequestCharge {
        credits: credits(
            exact.saturating_mul(factor(factors.text)),
            per * FACTOR_SCALE,
        ),
        provider_cost_nano_usd: divide_up(exact, per),
    }
}

fn factor(factor: Factor) -> i128 {
    i128::from(factor.0)
}

fn credits(numerator: i128, denominator: i128) -> Credits {
    Credits::from_micro(divide_up(numerator, denominator))
}

fn divide_up(numerator: i128, denominator: i128) -> i64 {
    let quotient = numerator / denominator + i128::from(numerator % denominator > 0);
    i64::try_from(quotient).map_or(Credits::MAX.micro(), |quotient| {
        quotient.min(Credits::MAX.micro())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prices(
        [
            input,
            cache_read,
            cache_write_short,
            cache_write_long,
            output,
        ]: [i64; 5],
    ) -> TokenPrices {
        TokenPrices {
            input: NanoUsd(input),
            cache_read: NanoUsd(cache_read),
            cache_write_short: NanoUsd(cache_write_short),
            cache_write_long: NanoUsd(cache_write_long),
            output: NanoUsd(output),
            audio_input: NanoUsd(input),
            audio_output: NanoUsd(output),
            image_output: NanoUsd(output),
            search: NanoUsd(0),
        }
    }

    fn used(input: u64, [read, short, long]: [u64; 3], output: u64) -> Billable {
        let tokens = TokenCounts {
            input,
            cache_read: read,
            cache_write_short: short,
            cache_write_long: long,
            output,
            ..TokenCounts::default()
        };
        Billable {
            tokens,
            ..Billable::default()
        }
    }

    /// USD per million tokens.
    const USD: i64 = 1_000_000_000;

    #[test]
    fn a_share_of_a_charge_is_rounded_up_and_pays_no_provider() {
        for (percent, credits) in [(0, 0), (1, 2), (50, 51), (99, 100), (100, 101)] {
            let charge = RequestCharge {
                credits: Credits::from_micro(101),
                provider_cost_nano_usd: 70,
            };
            let expected = RequestCharge {
                credits: Credits::from_micro(credits),
                provider_cost_nano_usd: 0,
            };
            assert_eq!(charge_without_provider(&charge, percent), expected);
        }
    }

    #[test]
    fn charges_follow_the_price_list() {
        let base = prices([3 * USD, USD / 10 * 3, USD / 100 * 375, 6 * USD, 15 * USD]);
        let text = Price::Text { base, above: None };
        let long = Price::Text {
            base,
            above: Some((1_000, prices([6 * USD, 0, 0, 0, 20 * USD]))),
        };
        let cheap = Price::Text {
            base: prices([1, 1, 1, 1, 1]),
            above: None,
        };
        for (name, price, used, credits, cost) in [
            // 1,000 × 3 + 100 × 15 USD per million = 0.0045 USD, × 1.4 = 6.3 credits.
            (
                "plain",
                &text,
                used(1_000, [0; 3], 100),
                6_300_000,
                4_500_000,
            ),
            (
                "cached",
                &text,
                used(1_000, [1_000, 0, 0], 0),
                420_000,
                300_000,
            ),
            (
                "written",
                &text,
                used(300, [100, 100, 100], 0),
                1_407_000,
                1_005_000,
            ),
            (
                "up to the threshold",
                &long,
                used(1_000, [0; 3], 0),
                4_200_000,
                3_000_000,
            ),
            (
                "above it",
                &long,
                used(1_001, [0; 3], 10),
                8_688_400,
                6_206_000,
            ),
            (
                "parts beyond the whole",
                &text,
                used(10, [u64::MAX, 7, 7], 0),
                4_200,
                3_000,
            ),
            ("nothing", &text, used(0, [0; 3], 0), 0, 0),
            ("a fraction", &cheap, used(1, [0; 3], 0), 1, 1),
        ] {
            let charge = charge(price, &PriceFactors::default(), &used);
            assert_eq!(
                (charge.credits.micro(), charge.provider_cost_nano_usd),
                (credits, cost),
                "{name}"
            );
        }
    }

    #[test]
    fn audio_images_and_searches_have_their_own_prices() {
        let base = TokenPrices {
            audio_input: NanoUsd(10 * USD),
            audio_output: NanoUsd(20 * USD),
            image_output: NanoUsd(30 * USD),
            search: NanoUsd(USD / 100),
            ..prices([USD, 0, 0, 0, 2 * USD])
        };
        let price = Price::Text { base, above: None };
        let with = |change: fn(&mut Billable)| {
            let mut used = used(1_000, [100, 0, 0], 1_000);
            change(&mut used);
            let charge = charge(&price, &PriceFactors::default(), &used);
            assert_eq!(
                charge.credits.micro() * 10,
                charge.provider_cost_nano_usd * 14
            );
            charge.provider_cost_nano_usd
        };
        // 900 × 1 + 1,000 × 2 USD per million.
        assert_eq!(with(|_| {}), 2_900_000);
        assert_eq!(with(|used| used.tokens.audio_input = 100), 3_800_000);
        // At most the input outside the cache.
        assert_eq!(with(|used| used.tokens.audio_input = 1_000), 11_000_000);
        assert_eq!(with(|used| used.tokens.audio_output = 100), 4_700_000);
        assert_eq!(with(|used| used.tokens.image_output = 100), 5_700_000);
        assert_eq!(with(|used| used.tokens.image_output = 9_999), 30_900_000);
        assert_eq!(with(|used| used.searches = 3), 32_900_000);
    }

    #[test]
    fn images_have_both_factors() {
        let price = Price::Image(NanoUsd(40_000_000));
        let used = Billable {
            images: 3,
            ..Billable::default()
        };
        let charge = charge(&price, &PriceFactors::default(), &used);
        // 3 × 0.04 USD × 1.4 × 1.15 = 0.1932 USD.
        assert_eq!(charge.credits, Credits::from_micro(193_200_000));
        assert_eq!(charge.provider_cost_nano_usd, 120_000_000);
    }

    #[test]
    fn other_units_have_the_factor_of_text() {
        let used = Billable {
            input: Some(Quantity::new(Unit::Seconds, 61)),
            images: 9,
            searches: 3,
            ..used(1_000, [0; 3], 1_000)
        };
        let bound = UsageBound {
            input_tokens: 1_000,
            input: used.input,
            output_tokens: 1_000,
            images: 9,
            searches: 3,
            ..UsageBound::default()
        };
        for (unit, price, per, cost) in [
            // 61 / 60 × 0.006 USD.
            (Unit::Seconds, 6_000_000, 60, 6_100_000),
            // A third of a nano-USD.
            (Unit::Seconds, 1, 183, 1),
            (Unit::SearchUnits, USD / 500, 1, 6_000_000),
            // The input is in seconds.
            (Unit::Characters, USD, 1_000_000, 0),
        ] {
            let price = NanoUsd(price);
            let price = Price::Units { unit, price, per };
            let factors = PriceFactors::default();
            let charge = charge(&price, &factors, &used);
            assert_eq!(charge.provider_cost_nano_usd, cost, "{price:?}");
            assert_eq!(charge.credits, worst_case(&price, &factors, &bound));
            assert!(charge.credits.micro() * 10 <= cost * 14, "{price:?}");
            assert_eq!(price.unit(), unit);
        }
    }

    #[test]
    fn what_cannot_be_is_not_charged_without_bound() {
        let price = Price::Text {
            base: prices([i64::MAX; 5]),
            above: None,
        };
        let all = used(u64::MAX, [0; 3], u64::MAX);
        let charge = charge(&price, &PriceFactors::default(), &all);
        assert_eq!(charge.credits, Credits::MAX);
    }

    fn any_prices() -> impl Strategy<Value = TokenPrices> {
        let price = || (0..u32::MAX).prop_map(|price| NanoUsd(i64::from(price) * 7));
        let five = proptest::array::uniform5(price());
        let others = proptest::array::uniform4(price());
        (five, others).prop_map(
            |(five, [audio_input, audio_output, image_output, search])| TokenPrices {
                audio_input,
                audio_output,
                image_output,
                search,
                ..prices(five.map(|NanoUsd(price)| price))
            },
        )
    }

    fn any_price() -> impl Strategy<Value = Price> {
        (
            any_prices(),
            proptest::option::of((0..200_000_u64, any_prices())),
        )
            .prop_map(|(base, above)| Price::Text { base, above })
    }

    proptest! {
        #[test]
        fn a_charge_rounds_up_by_less_than_one(
            base in any_prices(), input in 0..2_000_000_u64, parts in any::<[u32; 3]>(), output in 0..200_000_u64,
            factor in 0..10_000_000_i64,
        ) {
            let used = used(input, parts.map(u64::from), output);
            let factors = PriceFactors { text: Factor(factor), image: Factor(0) };
            let exact = exact(&base, &used) * i128::from(factor);
            let charge = charge(&Price::Text { base, above: None }, &factors, &used);
            let charged = i128::from(charge.credits.micro()) * TOKENS_PER_PRICE * FACTOR_SCALE;
            prop_assert!(charge.credits == Credits::MAX || charged >= exact);
            prop_assert!(charged - exact < TOKENS_PER_PRICE * FACTOR_SCALE);
        }

        #[test]
        fn the_affordable_output_is_the_most_that_the_credits_pay(
            price in any_price(), input_tokens in 0..400_000_u64, credits in 0..100_000_000_i64,
            least in 1..1_000_u64, most in 1..200_000_u64,
        ) {
            let (factors, credits) = (PriceFactors::default(), Credits::from_micro(credits));
            let bound = UsageBound { input_tokens, ..UsageBound::default() };
            let costs = |output_tokens| worst_case(&price, &factors, &UsageBound { output_tokens, ..bound });
            let output = affordable_output(&[&price], &factors, &bound, credits, least, most);
            prop_assert!(output >= least && output <= least.max(most));
            prop_assert!(output == least || costs(output) <= credits);
            prop_assert!(output >= most || costs(output + 1) > credits);
        }

        #[test]
        fn no_request_costs_more_than_its_worst_case(
            price in any_price(), bound in 0..400_000_u64, share in 0..=100_u64, parts in any::<[u32; 3]>(),
            output in 0..200_000_u64, output_share in 0..=100_u64, others in any::<[u16; 3]>(),
            (has_audio, searches, most_searches) in (any::<bool>(), 0..100_u64, 0..100_u64),
        ) {
            let factors = PriceFactors::default();
            let mut used = used(bound * share / 100, parts.map(u64::from), output * output_share / 100);
            let [audio_input, audio_output, image_output] = others.map(u64::from);
            used.tokens = TokenCounts {
                audio_input: if has_audio { audio_input } else { 0 }, audio_output, image_output, ..used.tokens
            };
            used.searches = searches.min(most_searches);
            let bound = UsageBound {
                input_tokens: bound, has_audio, output_tokens: output, searches: most_searches,
                ..UsageBound::default()
            };
            prop_assert!(charge(&price, &factors, &used).credits <= worst_case(&price, &factors, &bound));
        }
    }
}
