//! A vector on its way from an upstream to a client.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde_json::value::{RawValue, to_raw_value};

/// Bytes of a number in base64.
const NUMBER_BYTES: usize = 4;

/// A checked vector as JSON.
#[derive(Debug, Clone)]
pub(super) struct Vector {
    /// A list of numbers, or a string in base64.
    pub(super) json: Box<RawValue>,
    /// The number of dimensions.
    pub(super) dimensions: usize,
}

impl Vector {
    /// Reads an upstream's vector in either form. Returns `None` if it is neither a list of numbers nor a string with
    /// base64 of such a list. A list of numbers stays as the upstream wrote it if the client wants numbers.
    pub(super) fn read(json: &[u8], base64: bool) -> Option<Self> {
        let json = str::from_utf8(json).ok()?.trim();
        let vector = match (json.starts_with('"'), base64) {
            (false, false) => {
                let Count(dimensions) = serde_json::from_str(json).ok()?;
                Self {
                    json: RawValue::from_string(json.to_owned()).ok()?,
                    dimensions,
                }
            }
            (false, true) => {
                let numbers: Vec<f32> = serde_json::from_str(json).ok()?;
                let bytes: Vec<u8> = numbers.iter().flat_map(|one| one.to_le_bytes()).collect();
                let is_finite = numbers.iter().all(|one| one.is_finite());
                is_finite.then(|| Self::of_bytes(&bytes))??
            }
            (true, base64) => {
                let text: Cow<'_, str> = serde_json::from_str(json).ok()?;
                let bytes = STANDARD.decode(&*text).ok()?;
                let (numbers, rest) = bytes.as_chunks::<NUMBER_BYTES>();
                let numbers: Vec<_> = numbers.iter().map(|one| f32::from_le_bytes(*one)).collect();
                if !rest.is_empty() || numbers.iter().any(|one| !one.is_finite()) {
                    return None;
                }
                match base64 {
                    true => Self::of_bytes(&bytes)?,
                    false => Self {
                        json: to_raw_value(&numbers).ok()?,
                        dimensions: numbers.len(),
                    },
                }
            }
        };
        (vector.dimensions > 0).then_some(vector)
    }

    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            json: to_raw_value(&STANDARD.encode(bytes)).ok()?,
            dimensions: bytes.len() / NUMBER_BYTES,
        })
    }
}

/// The length of a list of numbers that 32 bits can hold.
struct Count(usize);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CountVisitor;

        impl<'de> Visitor<'de> for CountVisitor {
            type Value = Count;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an array of numbers")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Count, A::Error> {
                let mut count = 0;
                while let Some(number) = items.next_element::<f32>()? {
                    if !number.is_finite() {
                        return Err(de::Error::custom("a number is too large"));
                    }
                    count += 1;
                }
                Ok(Count(count))
            }
        }

        deserializer.deserialize_seq(CountVisitor)
    }
}
