//! Bodies that are read as JSON of a known shape.

use serde::de::DeserializeOwned;

use weir_errors::ApiError;

/// Reads a body as what it must be.
///
/// # Errors
///
/// 400 `INVALID_REQUEST` with the path of the field that is wrong, and none where that is the whole body.
pub fn from_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let mut json = serde_json::Deserializer::from_slice(body);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let field = error.path().to_string();
        let field = match &*field {
            // All of it; or what is no JSON at all.
            "." | "?" => "",
            field => field,
        };
        ApiError::invalid_request(field, format!("The body does not fit: {}.", error.inner()))
    })
}
