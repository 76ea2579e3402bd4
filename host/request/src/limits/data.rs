//! Limits on the providers that may get a caller's requests: the regions in which a provider processes data, and the
//! days for which it keeps requests.
//!
//! A key has limits from its owner, an organisation from its administrators, and a request from its headers. All apply
//! at once, so each can only narrow the others. The limits of keys and organisations are in their rows; a key's record
//! in the cache has both. The catalog compares them with providers.

use http::HeaderName;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::{Array, ArrayBuilder, ObjectBuilder, SchemaType, Type};
use weir_errors::ApiError;

use crate::context::RequestContext;
use crate::json::from_column;

/// The header with the regions that a client allows, separated by commas.
pub const REGIONS: HeaderName = HeaderName::from_static("x-weir-regions");

/// The header with the maximum days for which a provider may keep a client's request.
pub const MAX_RETENTION_DAYS: HeaderName = HeaderName::from_static("x-weir-max-retention-days");

/// The maximum regions of a list, and the maximum characters of a region.
const MOST_REGIONS: usize = 16;
const MOST_CHARACTERS: usize = 32;

/// Names of regions, such as `eu`: 1 to 16 words of lower-case letters, digits and `-`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct Regions(Vec<String>);

/// The limits of a key, an organisation or a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DataLimits {
    /// Regions in which a provider may process data; any unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = regions_schema)]
    pub regions: Option<Regions>,
    /// Maximum days for which a provider keeps requests; any number unless set.
    #[serde(
        default,
        deserialize_with = "whole_days",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(maximum = 65535)]
    pub max_retention_days: Option<u16>,
}

/// Reads a number of days, which JSON may also write as `29.0`.
fn whole_days<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u16>, D::Error> {
    let Some(number) = Option::<f64>::deserialize(deserializer)? else {
        return Ok(None);
    };
    let is_days = number.fract() == 0.0 && (0.0..=f64::from(u16::MAX)).contains(&number);
    match is_days {
        true => Ok(Some(number as u16)),
        false => Err(D::Error::custom("expected a whole number from 0 to 65535")),
    }
}

/// The limits of a caller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerDataLimits {
    /// The limits of the key; none without a key.
    pub key: DataLimits,
    /// The limits of the organisation.
    pub organisation: DataLimits,
}

impl TryFrom<Vec<String>> for Regions {
    type Error = String;

    fn try_from(regions: Vec<String>) -> Result<Self, String> {
        let is_legal =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_region = |region: &String| {
            (1..=MOST_CHARACTERS).contains(&region.len()) && region.bytes().all(is_legal)
        };
        if (1..=MOST_REGIONS).contains(&regions.len()) && regions.iter().all(is_region) {
            return Ok(Self(regions));
        }
        Err(format!(
            "a list has 1 to {MOST_REGIONS} regions, each of 1 to {MOST_CHARACTERS} lower-case letters, digits and '-'"
        ))
    }
}

impl Regions {
    /// Parses regions that commas separate.
    pub fn parse(text: &str) -> Result<Self, String> {
        let regions = text.split(',').map(|region| region.trim().to_owned());
        Self::try_from(regions.collect::<Vec<_>>())
    }

    /// Returns whether these regions include all others.
    pub fn include(&self, others: &Self) -> bool {
        others.0.iter().all(|other| self.0.contains(other))
    }

    /// Returns the regions, separated by commas.
    pub fn joined(&self) -> String {
        self.0.join(", ")
    }
}

impl DataLimits {
    /// Returns the limits in the headers of a request.
    ///
    /// # Errors
    ///
    /// 400 that names the invalid header.
    pub fn asked(context: &RequestContext) -> Result<Self, ApiError> {
        let days = context.asked(&MAX_RETENTION_DAYS);
        Self::parse(
            (REGIONS.as_str(), context.asked(&REGIONS)),
            (MAX_RETENTION_DAYS.as_str(), days),
        )
    }

    /// Refuses limits in the headers of a request whose model calls come later.
    ///
    /// # Errors
    ///
    /// 400 that names the header.
    pub fn refuse_asked(context: &RequestContext) -> Result<(), ApiError> {
        let mut headers = [REGIONS, MAX_RETENTION_DAYS].into_iter();
        match headers.find(|header| context.asked(header).is_some()) {
            Some(header) => {
                let what = "Swarms and tasks have the limits of their API key and organisation; set them there.";
                Err(ApiError::invalid_request(header.as_str(), what))
            }
            None => Ok(()),
        }
    }

    /// Returns whether these limits allow no provider that the others forbid.
    pub fn is_within(&self, others: &Self) -> bool {
        let regions = match (&others.regions, &self.regions) {
            (None, _) => true,
            (Some(allowed), Some(own)) => allowed.include(own),
            (Some(_), None) => false,
        };
        let days = match (others.max_retention_days, self.max_retention_days) {
            (None, _) => true,
            (Some(most), Some(own)) => own <= most,
            (Some(_), None) => false,
        };
        regions && days
    }

    /// Reads the limits from their column.
    pub fn read(stored: Option<&str>) -> sqlx::Result<Self> {
        from_column(stored)
    }

    /// Returns the column's text; `None` without limits.
    pub fn store(&self) -> Option<String> {
        let text = serde_json::to_string(self).unwrap_or_default();
        Some(text).filter(|_| !self.is_empty())
    }

    /// Returns whether the limits allow every provider.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Parses the limits from texts, such as a request's headers or a form's fields, by their names.
    ///
    /// # Errors
    ///
    /// 400 that names the invalid text.
    pub fn parse(
        (regions_name, regions): (&str, Option<&str>),
        (days_name, days): (&str, Option<&str>),
    ) -> Result<Self, ApiError> {
        let regions = regions.map(|text| {
            let regions = Regions::parse(text);
            regions.map_err(|wrong| {
                ApiError::invalid_request(regions_name, format!("The value is invalid: {wrong}."))
            })
        });
        let days = days.map(|text| {
            let days = text.trim().parse();
            days.map_err(|_| {
                let what = format!("It is a whole number of days from 0 to {}.", u16::MAX);
                ApiError::invalid_request(days_name, what)
            })
        });
        Ok(Self {
            regions: regions.transpose()?,
            max_retention_days: days.transpose()?,
        })
    }

    /// Returns each limit as words, such as `regions eu, de`.
    pub fn shown(&self) -> Vec<String> {
        let regions = self.regions.as_ref();
        let regions = regions.map(|regions| format!("regions {}", regions.joined()));
        let days = self.max_retention_days;
        let days = days.map(|days| format!("at most {days} days of retention"));
        regions.into_iter().chain(days).collect()
    }
}

/// Returns the schema of a list of regions, which is what [`Regions`] accepts; null is no list.
fn regions_schema() -> Array {
    let region = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(format!("^[a-z0-9-]{{1,{MOST_CHARACTERS}}}$")));
    let mut regions = ArrayBuilder::new()
        .description(Some(
            "Regions in which a provider may process data; any unless set.",
        ))
        .items(region)
        .min_items(Some(1))
        .max_items(Some(MOST_REGIONS))
        .build();
    regions.schema_type = SchemaType::from_iter([Type::Array, Type::Null]);
    regions
}
