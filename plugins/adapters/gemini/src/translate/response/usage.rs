//! The upstream's token counts. An invalid count is ignored: the host then estimates, and the response stands.
//!
//! Each chunk may have all counts so far; the last one with counts stands. The upstream omits zeros.

use serde::Deserialize;
use serde_json::value::RawValue;
use weir_sdk::adapter::Event;
use weir_sdk::chat::Usage;
use weir_sdk::response::named_counts;

#[derive(Debug, Default)]
pub(super) struct UsageTracker {
    images: u32,
    emitted: Option<Usage>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireUsage<'a> {
    #[serde(borrow)]
    prompt_token_count: Option<&'a RawValue>,
    #[serde(borrow)]
    cached_content_token_count: Option<&'a RawValue>,
    #[serde(borrow)]
    candidates_token_count: Option<&'a RawValue>,
    #[serde(borrow)]
    thoughts_token_count: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_use_prompt_token_count: Option<&'a RawValue>,
    #[serde(borrow)]
    total_token_count: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt_tokens_details: Option<&'a RawValue>,
    /// The modalities of the cached part of the prompt.
    #[serde(borrow)]
    cache_tokens_details: Option<&'a RawValue>,
    #[serde(borrow)]
    candidates_tokens_details: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ModalityTokens {
    modality: String,
    token_count: Option<u64>,
}

impl UsageTracker {
    pub(super) fn add(&mut self, raw: Option<&RawValue>, events: &mut Vec<Event>) {
        let wire_usage = raw.and_then(|raw| serde_json::from_str::<WireUsage<'_>>(raw.get()).ok());
        let Some(usage) = wire_usage.and_then(|wire_usage| wire_usage.total(self.images)) else {
            return;
        };
        if self.emitted.as_ref() != Some(&usage) {
            events.push(Event::Usage(usage.clone()));
            self.emitted = Some(usage);
        }
    }

    pub(super) fn images(&self) -> u32 {
        self.images
    }

    pub(super) fn add_image(&mut self) {
        self.images = self.images.saturating_add(1);
    }
}

impl WireUsage<'_> {
    fn total(&self, images: u32) -> Option<Usage> {
        let (prompt, visible) = (self.prompt_token_count, self.candidates_token_count);
        let thoughts = count(self.thoughts_token_count);
        if [prompt, visible, self.total_token_count]
            .iter()
            .all(|raw| count(*raw).is_none())
            && thoughts.is_none()
        {
            return None;
        }
        let sum = |one: Option<u64>, other: Option<u64>| {
            Some(one.unwrap_or(0).saturating_add(other.unwrap_or(0)))
        };
        let (prompt_details, details) =
            (self.prompt_tokens_details, self.candidates_tokens_details);
        // Cached audio is in the prompt's audio, too, but costs what the cache costs.
        let cached_audio = modality_tokens(self.cache_tokens_details, "AUDIO").unwrap_or(0);
        let audio = modality_tokens(prompt_details, "AUDIO");
        let other = [
            (
                "audio-input-tokens",
                audio.map(|audio| audio.saturating_sub(cached_audio)),
            ),
            ("audio-output-tokens", modality_tokens(details, "AUDIO")),
            ("image-output-tokens", modality_tokens(details, "IMAGE")),
        ];
        Some(Usage {
            // Results of its own tools are input, too.
            input_tokens: sum(count(prompt), count(self.tool_use_prompt_token_count)),
            cache_read_tokens: count(self.cached_content_token_count),
            cache_write_short_tokens: None,
            cache_write_long_tokens: None,
            output_tokens: sum(count(visible), thoughts),
            reasoning_tokens: thoughts,
            images: (images > 0).then_some(images),
            other: named_counts(other),
        })
    }
}

fn modality_tokens(raw: Option<&RawValue>, modality: &str) -> Option<u64> {
    let details: Vec<ModalityTokens> = serde_json::from_str(raw?.get()).ok()?;
    let detail = details.into_iter().find(|of| of.modality == modality)?;
    detail.token_count
}

/// Parses a number that can be a count: not negative, fractional or huge, and not a text.
fn count(raw: Option<&RawValue>) -> Option<u64> {
    raw?.get().parse().ok()
}
