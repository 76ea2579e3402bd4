//! The policy of a slot: its permitted versions, and its reaction to a quarantine.
//!
//! A rollback activates an older version, which may have a fault that its successor has fixed. For most slots that is
//! better than to refuse all requests. For a filter that guards it is not: a known bypass would be open again. A slot
//! may therefore have a least version, which neither an operator nor a quarantine goes below; and it may refuse
//! requests instead of rolling back.

use semver::Version;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_sandbox::Digest;

/// An operator's settings for a slot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlotPolicy {
    /// The lowest permitted version.
    pub least_version: Option<Version>,
    /// The reaction to a quarantine of its component. By default, a slot of a filter whose failure refuses requests
    /// refuses, and other slots roll back.
    pub on_quarantine: Option<OnQuarantine>,
}

/// The reaction of a slot to a quarantine of its component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnQuarantine {
    /// Activate the previous component.
    RollBack,
    /// Refuse requests until an operator activates a component.
    Refuse,
}

/// The bundled component of a slot.
#[derive(Debug, Clone, Copy)]
pub struct BundledVersion<'a> {
    /// The digest of its code.
    pub digest: Digest,
    pub version: &'a str,
}

impl OnQuarantine {
    /// The name in the database and in responses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RollBack => "roll_back",
            Self::Refuse => "refuse",
        }
    }

    /// Parses the name that [`Self::as_str`] returns.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::RollBack, Self::Refuse]
            .into_iter()
            .find(|policy| policy.as_str() == text)
    }
}

impl SlotPolicy {
    /// Returns whether a version is too low. A version that violates Semantic Versioning is lower than all.
    pub fn is_too_low(&self, version: &str) -> bool {
        let Some(least) = &self.least_version else {
            return false;
        };
        let version = Version::parse(version);
        !version.is_ok_and(|version| version.cmp_precedence(least).is_ge())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_below_the_least_are_too_low() {
        let policy = SlotPolicy {
            least_version: Some(Version::new(1, 2, 0)),
            on_quarantine: None,
        };
        for (version, is_too_low) in [
            ("1.2.0", false),
            ("1.2.0+later", false),
            ("1.10.0", false),
            ("1.2.0-rc.1", true),
            ("1.1.9", true),
            ("two", true),
        ] {
            assert_eq!(policy.is_too_low(version), is_too_low, "{version}");
            assert!(!SlotPolicy::default().is_too_low(version));
        }
    }
}
