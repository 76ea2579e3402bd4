//! Scopes of API keys: the endpoints that a key may use, besides the role of its user.
//!
//! **Invariant:** a key with the scope [`KeyScope::Inference`] reads neither usage nor sessions nor secrets of its user. The
//! sessions of its own requests are apart from all others. **Invariant:** the scope never changes: to change it, replace
//! the key.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};

use super::roles::Permission;

/// The scope of an API key.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum KeyScope {
    /// Calls and lists models.
    Inference,
    /// Does what its user's role allows, except what needs a sign-in.
    #[default]
    Full,
}

impl KeyScope {
    /// Both scopes.
    pub const ALL: [Self; 2] = [Self::Inference, Self::Full];

    /// Returns the scope of a new key that names none.
    pub const fn of_new_key(is_of_organisation: bool) -> Self {
        match is_of_organisation {
            true => Self::Inference,
            false => Self::Full,
        }
    }

    /// Returns the scope's name in the API and the database.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inference => "inference",
            Self::Full => "full",
        }
    }

    /// Refuses an endpoint beyond the scope.
    ///
    /// # Errors
    ///
    /// 403 that names the required scope.
    pub fn require(self, permission: Permission) -> Result<(), ApiError> {
        if self == Self::Full || matches!(permission, Permission::Infer | Permission::ListModels) {
            return Ok(());
        }
        let required = Self::Full.name();
        let what = format!("This endpoint needs an API key with the scope `{required}`.");
        Err(ApiError::new(ErrorCode::MissingScope, what)
            .with_detail("required_scope", required)
            .with_no_retry())
    }
}

impl fmt::Display for KeyScope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for KeyScope {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, &'static str> {
        let found = Self::ALL.into_iter().find(|scope| scope.name() == name);
        found.ok_or("inference or full")
    }
}
