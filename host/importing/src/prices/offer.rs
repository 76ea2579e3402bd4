//! A model in a price file.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as ValueError, StrDeserializer};
use serde_json::value::RawValue;
use weir_catalog::config::PriceConfig;
use weir_catalog::end_date::EndDate;
use weir_ledger::price::NanoUsd;

/// A model of a provider in a price file.
#[derive(Debug)]
pub struct Offer {
    /// The entry's name in the file.
    pub entry: String,
    /// The file's name of the provider.
    pub vendor: String,
    /// The provider's name of the model.
    pub model: String,
    /// The offer itself.
    pub content: OfferContent,
}

#[derive(Debug)]
pub enum OfferContent {
    Chat(Box<OfferTerms>),
    /// A model of another kind, such as embeddings, or a deprecated one.
    Other,
    /// An entry that weir cannot use, with the reason.
    Unusable(String),
}

/// The prices and limits of a chat model.
#[derive(Debug)]
pub struct OfferTerms {
    /// The name for people.
    pub name: Option<String>,
    /// Prices; the file says nothing about missing ones.
    pub price: PriceConfig,
    /// The least tokens of the context window.
    pub least_window: u32,
    /// The most tokens of the context window: a file may have the limit of the input alone.
    pub most_window: u32,
    /// Maximum output tokens.
    pub max_output_tokens: u32,
    /// Whether the model can call tools.
    pub supports_tools: bool,
    /// Whether the model accepts images.
    pub supports_vision: bool,
    /// The day on which the provider ends the model.
    pub ends_on: Option<EndDate>,
}

/// The fields of an object, with the numbers as written.
pub(super) type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// Reads an optional field; `null` is absent.
///
/// # Errors
///
/// The field and its error.
pub(super) fn field<'a, T: Deserialize<'a>>(
    fields: &Fields<'a>,
    name: &str,
) -> Result<Option<T>, String> {
    let Some(raw) = fields.get(name) else {
        return Ok(None);
    };
    serde_json::from_str(raw.get()).map_err(|error| format!("`{name}` is {raw}: {error}"))
}

/// Reads a required field.
pub(super) fn required<'a, T: Deserialize<'a>>(
    fields: &Fields<'a>,
    name: &str,
) -> Result<T, String> {
    field(fields, name)?.ok_or_else(|| format!("`{name}` is missing"))
}

/// Reads a price per million tokens from a price per `10^-exponent` tokens: 6 for a price per token, 0 for one per million.
///
/// A binary number would not hold every decimal, so that this reads the digits.
///
/// # Errors
///
/// The field and its error, such as more decimals than weir counts.
pub(super) fn price(
    fields: &Fields<'_>,
    name: &str,
    exponent: i64,
) -> Result<Option<NanoUsd>, String> {
    let Some(raw) = fields.get(name).filter(|raw| raw.get() != "null") else {
        return Ok(None);
    };
    let written = raw.get().trim_matches('"');
    let wrong = |error: String| format!("`{name}` is {raw}: {error}");
    let (digits, own) = written.split_once(['e', 'E']).unwrap_or((written, "0"));
    let own: i64 = own
        .parse()
        .map_err(|_| wrong("it is not a number".to_owned()))?;
    let exponent = own.saturating_add(exponent);
    let scaled = format!("{digits}e{exponent}");
    let number: StrDeserializer<'_, ValueError> = scaled.as_str().into_deserializer();
    NanoUsd::deserialize(number)
        .map(Some)
        .map_err(|error| wrong(error.to_string()))
}
