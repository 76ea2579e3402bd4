//! JSON of a known shape: bodies, and columns of the database.

use serde::de::DeserializeOwned;
use weir_errors::ApiError;

/// Parses a body.
///
/// # Errors
///
/// 400 `INVALID_REQUEST` with the path of the invalid field, or without a path if the complete body is invalid.
pub fn from_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let mut json = serde_json::Deserializer::from_slice(body);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let field = error.path().to_string();
        let field = match &*field {
            // An error of the complete body, or of its syntax.
            "." | "?" => "",
            field => field,
        };
        ApiError::invalid_request(field, format!("The body is invalid: {}.", error.inner()))
    })
}

/// Reads a column's JSON; the default if the column is empty.
pub fn from_column<T: DeserializeOwned + Default>(stored: Option<&str>) -> sqlx::Result<T> {
    let Some(stored) = stored else {
        return Ok(T::default());
    };
    serde_json::from_str(stored).map_err(|error| sqlx::Error::Decode(error.into()))
}
