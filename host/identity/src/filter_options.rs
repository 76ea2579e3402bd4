//! Options for filters: names and values of a key, which its owner sets, and of an account, which an operator sets.
//!
//! They are in the rows of the key and the account; the key's record in the cache carries both.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};
use weir_errors::ApiError;
use weir_request::json::from_column;

/// The maximum options of a key or an account, and the maximum characters of a name and of a value.
const MOST_OPTIONS: usize = 16;
const MOST_NAME_LENGTH: usize = 64;
const MOST_VALUE_LENGTH: usize = 256;

/// The options of a key or an account, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FilterOptions {
    /// Options for filters: values of at most 256 characters, by names of at most 64 letters, digits, `-`, `_` and
    /// `.`; at most 16.
    #[schema(schema_with = options_schema)]
    pub filter_options: BTreeMap<String, String>,
}

/// The options of a caller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerFilterOptions {
    /// The options of the key; none without a key.
    pub key: FilterOptions,
    /// The options of the account.
    pub account: FilterOptions,
}

impl FilterOptions {
    /// Reads the options from their column.
    pub fn read(stored: Option<&str>) -> sqlx::Result<Self> {
        let filter_options = from_column(stored)?;
        Ok(Self { filter_options })
    }

    /// Returns the column's text; `None` without options.
    pub fn store(&self) -> Option<String> {
        let text = serde_json::to_string(&self.filter_options).unwrap_or_default();
        Some(text).filter(|_| !self.filter_options.is_empty())
    }

    /// Returns names and values, by name.
    pub fn pairs(&self) -> Vec<(String, String)> {
        let pairs = self.filter_options.iter();
        pairs
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    /// Checks the number of options, their names and their values.
    ///
    /// # Errors
    ///
    /// 400 that says what is allowed.
    pub fn check(&self) -> Result<(), ApiError> {
        let refused = |what: String| ApiError::invalid_request("filter_options", what);
        if self.filter_options.len() > MOST_OPTIONS {
            let what = format!("There are at most {MOST_OPTIONS} options.");
            return Err(refused(what));
        }
        for (name, value) in &self.filter_options {
            let is_legal =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            if !(1..=MOST_NAME_LENGTH).contains(&name.len()) || !name.bytes().all(is_legal) {
                let what = format!(
                    "A name has 1 to {MOST_NAME_LENGTH} letters, digits, '-', '_' and '.'."
                );
                return Err(refused(what));
            }
            if value.chars().count() > MOST_VALUE_LENGTH || value.contains(char::is_control) {
                let what = format!(
                    "A value has at most {MOST_VALUE_LENGTH} characters and no control characters."
                );
                return Err(refused(what));
            }
        }
        Ok(())
    }
}

/// Returns the schema of options, which is what [`FilterOptions::check`] accepts. The derived one has no limits.
fn options_schema() -> Object {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let name = text().pattern(Some(format!("^[A-Za-z0-9._-]{{1,{MOST_NAME_LENGTH}}}$")));
    let value = text()
        .max_length(Some(MOST_VALUE_LENGTH))
        .pattern(Some(r"^[^\u0000-\u001f\u007f-\u009f]*$"));
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some(
            "Options for filters: values of at most 256 characters, by names of at most 64 letters, digits, `-`, `_` \
             and `.`; at most 16.",
        ))
        .max_properties(Some(MOST_OPTIONS))
        .property_names(Some(name))
        .additional_properties(Some(value))
        .build()
}
