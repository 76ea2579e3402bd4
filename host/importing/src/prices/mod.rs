//! Prices and limits from public price files: models.dev's `api.json` and LiteLLM's
//! `model_prices_and_context_window.json`.
//!
//! **Invariant:** no price is rounded. A price that weir cannot represent is an error of its entry.
//!
//! To read another format, add a reader beside [`litellm`] that returns [offers](offer::Offer).

pub mod difference;
pub mod litellm;
mod models_dev;
pub mod offer;
pub mod section;

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use self::offer::Offer;

pub struct PriceFile {
    pub format: PriceFormat,
    /// The offers in the file's order of names.
    pub offers: Vec<Offer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriceFormat {
    /// LiteLLM's price file.
    LiteLlm,
    /// The API of models.dev.
    ModelsDev,
}

impl PriceFormat {
    /// Returns the name that users know.
    pub fn name(self) -> &'static str {
        match self {
            Self::LiteLlm => "LiteLLM",
            Self::ModelsDev => "models.dev",
        }
    }
}

/// Reads a price file.
///
/// # Errors
///
/// The text is not JSON, or has neither format. Errors of single entries are part of their offers.
pub fn read(text: &str) -> Result<PriceFile, String> {
    let entries: BTreeMap<String, &RawValue> =
        serde_json::from_str(text).map_err(|error| format!("is not a JSON object: {error}"))?;
    if litellm::is_format(&entries) {
        return Ok(PriceFile {
            format: PriceFormat::LiteLlm,
            offers: litellm::offers(&entries),
        });
    }
    if models_dev::is_format(&entries) {
        return Ok(PriceFile {
            format: PriceFormat::ModelsDev,
            offers: models_dev::offers(&entries),
        });
    }
    Err(
        "is neither LiteLLM's price file, whose entries have `litellm_provider`, nor models.dev's api.json, whose \
         entries have `models`"
            .to_owned(),
    )
}
