//! The setting of the content log, and the choices of keys and organisations.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};

/// The maximum of `content_log.days`.
const MOST_DAYS: u8 = 30;

/// The log of prompts and responses: `[content_log]`.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ContentLogSettings {
    /// Days for which weir stores prompts and responses of the keys and organisations that choose it, from 1 to 30; without
    /// it, nobody can choose it, and weir deletes stored ones. Default: none.
    pub days: Option<u8>,
}

/// Whether weir stores the prompts and responses of a key's requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContentLogChoice {
    /// Whether the key's user has chosen it.
    pub key: bool,
    /// Whether the key's organisation has chosen it for all of its requests. Its administrators see them.
    pub organisation: bool,
}

/// The body of the endpoints that turn the storage of content on or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ContentLogSwitch {
    /// Whether weir stores the prompts and responses of requests from now on.
    pub enabled: bool,
}

/// Refuses to turn the storage of content on if the gateway's configuration does not allow it.
///
/// # Errors
///
/// 409 `NOT_POSSIBLE`.
pub fn require_allowed(enabled: bool, is_allowed: bool) -> Result<(), ApiError> {
    if enabled && !is_allowed {
        let what =
            "The operator of this gateway does not allow the storage of prompts and responses.";
        return Err(ApiError::new(ErrorCode::NotPossible, what).with_no_retry());
    }
    Ok(())
}

impl ContentLogSettings {
    /// Returns a message for each invalid setting.
    pub fn problems(&self) -> Vec<String> {
        match self.days {
            None | Some(1..=MOST_DAYS) => Vec::new(),
            Some(_) => vec![format!("`content_log.days` must be from 1 to {MOST_DAYS}")],
        }
    }
}

impl ContentLogChoice {
    pub fn is_on(self) -> bool {
        self.key || self.organisation
    }
}
