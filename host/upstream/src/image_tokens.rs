//! Tokens of an input image, as the families of models count them: by its width and height, and by the detail that the
//! client asks for.
//!
//! The formulas are those of the vendors' guides in November 2026, and of litellm 1.110.2
//! (`litellm_core_utils/token_counter.py`):
//!
//! - OpenAI, <https://developers.openai.com/api/docs/guides/images-vision>: tiles of 512 pixels, or patches of 32 pixels,
//! - Anthropic, <https://platform.claude.com/docs/en/build-with-claude/vision>: patches of 28 pixels, which earlier guides
//!   approximate as width × height / 750,
//! - Google, <https://ai.google.dev/gemini-api/docs/tokens> and `media-resolution`: tiles of 256 to 768 pixels with 258
//!   tokens each, and since Gemini 3 a fixed number.

use serde::{Deserialize, Serialize};

use crate::image_size::ImageSize;

/// A family of models that count images in the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub enum ImageFamily {
    /// GPT-4o and GPT-4.1.
    #[serde(rename = "gpt-4o")]
    Gpt4o,
    /// GPT-4o mini, whose images cost as many dollars as those of GPT-4o.
    #[serde(rename = "gpt-4o-mini")]
    Gpt4oMini,
    /// GPT-4.1 mini and GPT-5 mini.
    #[serde(rename = "gpt-4.1-mini")]
    Gpt41Mini,
    /// GPT-5 and GPT-5.1.
    #[serde(rename = "gpt-5")]
    Gpt5,
    /// GPT-5 nano.
    #[serde(rename = "gpt-5-nano")]
    Gpt5Nano,
    /// GPT-5.2.
    #[serde(rename = "gpt-5.2")]
    Gpt52,
    /// GPT-5.4, with its mini and nano.
    #[serde(rename = "gpt-5.4")]
    Gpt54,
    /// GPT-5.5 and later, which take an image in its original size by default.
    #[serde(rename = "gpt-5.5")]
    Gpt55,
    /// Claude until 4.6.
    #[serde(rename = "claude-4")]
    Claude4,
    /// Claude since 4.7.
    #[serde(rename = "claude-4.7")]
    Claude47,
    /// Gemini until 2.5.
    #[serde(rename = "gemini-2")]
    Gemini2,
    /// Gemini since 3.
    #[serde(rename = "gemini-3")]
    Gemini3,
}

/// The count of images for a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageCounting {
    /// The model's family; without one, each image counts as the maximum.
    pub family: Option<ImageFamily>,
    /// The maximum tokens of an image.
    pub max_tokens: u64,
}

impl ImageCounting {
    /// Returns the tokens of an image; the maximum if its size is unknown.
    pub fn tokens(&self, size: Option<ImageSize>, detail: Option<&str>) -> u64 {
        match (self.family, size) {
            (Some(family), Some(size)) => family.tokens(size, detail).min(self.max_tokens),
            _ => self.max_tokens,
        }
    }
}

impl ImageFamily {
    fn tokens(self, size: ImageSize, detail: Option<&str>) -> u64 {
        match self {
            Self::Gpt4o => tiles(size, detail, 85, 170),
            Self::Gpt4oMini => tiles(size, detail, 2_833, 5_667),
            Self::Gpt5 => tiles(size, detail, 70, 140),
            Self::Gpt41Mini => percent(162, patches(size, u32::MAX, 1_536)),
            Self::Gpt5Nano => percent(246, patches(size, u32::MAX, 1_536)),
            Self::Gpt52 => percent(120, patches(size, u32::MAX, 1_536)),
            Self::Gpt54 => percent(
                120,
                match detail {
                    Some("original") => patches(size, 6_000, 10_000),
                    _ => patches(size, 2_048, 2_500),
                },
            ),
            Self::Gpt55 => percent(
                120,
                match detail {
                    Some("low") => patches(size, 512, u64::MAX),
                    Some("high") => patches(size, 2_048, 2_500),
                    _ => patches(size, 6_000, 10_000),
                },
            ),
            Self::Claude4 => visual_tokens(size, 1_568, 1_568),
            Self::Claude47 => visual_tokens(size, 2_576, 4_784),
            Self::Gemini2 => crops(size),
            // The default resolution.
            Self::Gemini3 => 1_120,
        }
    }
}

fn percent(percent: u64, patches: u64) -> u64 {
    (patches * percent).div_ceil(100)
}

/// OpenAI's older count. The image is scaled down into a square of 2,048 pixels, and then until its shorter side has 768
/// pixels; each begun tile of 512 pixels counts, beside a base, which is all with a low detail.
fn tiles(size: ImageSize, detail: Option<&str>, base: u64, tile: u64) -> u64 {
    if detail == Some("low") {
        return base;
    }
    let (long, short) = size.sides();
    let (long, short) = (u64::from(long), u64::from(short));
    // The smallest of three factors, as a fraction.
    let factors = [(2_048, long), (768, short)];
    let smaller = |one: (u64, u64), other: (u64, u64)| match other.0 * one.1 < one.0 * other.1 {
        true => other,
        false => one,
    };
    let (part, whole) = factors.into_iter().fold((1, 1), smaller);
    let across = |side: u64| (side * part / whole).max(1).div_ceil(512);
    base + across(long) * across(short) * tile
}

/// OpenAI's newer count: each begun patch of 32 pixels. The image is scaled down to a longest side, and if it has more
/// patches than the budget, into the budget, so that one side has a whole number of patches.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "sides have at most 32 bits, and the formula has a square root"
)]
fn patches(size: ImageSize, max_side: u32, budget: u64) -> u64 {
    const PATCH: f64 = 32.0;
    let covering = |width: f64, height: f64| {
        ((width / PATCH).ceil() as u64).saturating_mul((height / PATCH).ceil() as u64)
    };
    let (long, _) = size.sides();
    let scale = (f64::from(max_side) / f64::from(long)).min(1.0);
    let scaled = |side: u32| (f64::from(side) * scale).round().max(1.0);
    let (width, height) = (scaled(size.width), scaled(size.height));
    let all = covering(width, height);
    if all <= budget {
        return all;
    }
    let shrink = (PATCH * PATCH * budget as f64 / (width * height)).sqrt();
    let (across, down) = (width * shrink / PATCH, height * shrink / PATCH);
    // A thin image has less than a patch on one side.
    let whole = |patches: f64| patches.floor().max(1.0) / patches;
    let aligned = shrink * whole(across).min(whole(down));
    let shrunk = |side: f64| (side * aligned).floor().max(1.0);
    covering(shrunk(width), shrunk(height)).min(budget)
}

/// Anthropic's count: each begun patch of 28 pixels, of the largest size that has at most this longest side and these
/// tokens.
fn visual_tokens(size: ImageSize, max_side: u32, budget: u64) -> u64 {
    const PATCH: u64 = 28;
    let (long, short) = size.sides();
    let (long, short) = (u64::from(long), u64::from(short));
    let tokens_at = |side: u64| {
        let other = ((side * short + long / 2) / long).max(1);
        side.div_ceil(PATCH) * other.div_ceil(PATCH)
    };
    // The tokens do not decrease as the side grows.
    let (mut fits, mut above) = (1, long.min(u64::from(max_side)) + 1);
    while above - fits > 1 {
        let middle = fits.midpoint(above);
        match tokens_at(middle) <= budget {
            true => fits = middle,
            false => above = middle,
        }
    }
    tokens_at(fits)
}

/// Google's count until Gemini 2.5: a small image is one tile. A larger one has tiles with two thirds of its shorter side,
/// from 256 to 768 pixels.
fn crops(size: ImageSize) -> u64 {
    const TILE_TOKENS: u64 = 258;
    let (long, short) = size.sides();
    if long <= 384 {
        return TILE_TOKENS;
    }
    let tile = (short / 3 * 2 + short % 3 * 2 / 3).clamp(256, 768);
    let across = |side: u32| u64::from(side.div_ceil(tile));
    across(long) * across(short) * TILE_TOKENS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(width: u32, height: u32) -> ImageSize {
        ImageSize::new(width, height).expect("not empty")
    }

    /// The examples of the vendors' guides, and the limits between them.
    #[test]
    fn each_family_counts_as_its_vendor_says() {
        use ImageFamily::*;
        let cases: [(ImageFamily, u32, u32, Option<&str>, u64); 38] = [
            // OpenAI's guide: 765 and 1,105 tokens, and 85 for a low detail.
            (Gpt4o, 1_024, 1_024, Some("high"), 765),
            (Gpt4o, 2_048, 4_096, Some("high"), 1_105),
            (Gpt4o, 4_096, 8_192, Some("low"), 85),
            (Gpt4o, 512, 512, None, 85 + 170),
            (Gpt4o, 513, 512, None, 85 + 2 * 170),
            (Gpt4o, 1, 1, None, 85 + 170),
            (Gpt4o, u32::MAX, 1, None, 85 + 4 * 170),
            (Gpt4oMini, 1_024, 1_024, None, 2_833 + 4 * 5_667),
            (Gpt4oMini, 1_024, 1_024, Some("low"), 2_833),
            (Gpt5, 1_024, 1_024, None, 70 + 4 * 140),
            (Gpt5, 1_024, 1_024, Some("low"), 70),
            // OpenAI's guide: 1,024 and 1,452 patches.
            (Gpt41Mini, 1_024, 1_024, None, 1_659),
            (Gpt41Mini, 1_800, 2_400, None, 2_353),
            (Gpt41Mini, 2_048, 768, None, 2_489),
            (Gpt41Mini, 33, 32, None, 4),
            (Gpt5Nano, 1_024, 1_024, None, 2_520),
            (Gpt52, 1_024, 1_024, None, 1_229),
            (Gpt52, 1_800, 2_400, None, 1_743),
            (Gpt54, 1_024, 1_024, None, 1_229),
            // 2,048 × 1,152 patches in 64 × 36.
            (Gpt54, 3_840, 2_160, Some("high"), 2_765),
            (Gpt54, 3_840, 2_160, Some("original"), 9_792),
            (Gpt54, 3_840, 2_160, Some("low"), 2_765),
            (Gpt55, 3_840, 2_160, None, 9_792),
            (Gpt55, 3_840, 2_160, Some("high"), 2_765),
            (Gpt55, 3_840, 2_160, Some("low"), 173),
            (Gpt55, 6_000, 6_000, None, 12_000),
            // Anthropic's guide: 1,092 × 1,092 is the largest square that is not scaled down.
            (Claude4, 1_092, 1_092, None, 1_521),
            (Claude4, 200, 200, None, 64),
            (Claude4, 1_000, 1_000, None, 1_296),
            (Claude4, 4_000, 4_000, None, 1_521),
            (Claude4, 1_568, 784, None, 1_568),
            (Claude47, 4_000, 4_000, None, 4_761),
            (Claude47, 1_092, 1_092, Some("low"), 1_521),
            // Google's guide: 258 up to 384 pixels, and six tiles of 360 pixels for 960 × 540.
            (Gemini2, 384, 384, None, 258),
            (Gemini2, 960, 540, None, 6 * 258),
            (Gemini2, 385, 10, None, 2 * 258),
            (Gemini2, 3_000, 3_000, None, 16 * 258),
            (Gemini3, 960, 540, None, 1_120),
        ];
        for (family, width, height, detail, tokens) in cases {
            let counted = family.tokens(size(width, height), detail);
            assert_eq!(counted, tokens, "{family:?} {width} × {height} {detail:?}");
        }
    }

    #[test]
    fn no_image_counts_as_more_than_the_maximum_or_as_nothing() {
        use ImageFamily::*;
        let counting = |family| ImageCounting {
            family,
            max_tokens: 1_000,
        };
        for family in [
            Gpt4o, Gpt4oMini, Gpt41Mini, Gpt5, Gpt5Nano, Gpt52, Gpt54, Gpt55, Claude4, Claude47,
            Gemini2, Gemini3,
        ] {
            for (width, height) in [(1, 1), (1, u32::MAX), (u32::MAX, u32::MAX), (5_000, 3)] {
                let tokens = counting(Some(family)).tokens(Some(size(width, height)), None);
                assert!(
                    (1..=1_000).contains(&tokens),
                    "{family:?} {width} × {height}"
                );
            }
            // A URL's image has an unknown size.
            assert_eq!(counting(Some(family)).tokens(None, None), 1_000);
        }
        assert_eq!(counting(None).tokens(Some(size(1, 1)), None), 1_000);
    }
}
