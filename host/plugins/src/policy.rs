//! What a slot may serve with, and what becomes of it if its component fails too often.
//!
//! A rollback goes to an older version, which may have a fault that its successor has mended. For most slots that is better than to
//! refuse everybody. For a filter that guards it is not: a known way around it would be open again. So a slot may have a least
//! version, which neither an operator nor a quarantine goes below; and it may refuse requests where others roll back.

use semver::Version;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_sandbox::Digest;

/// What operators have set for a slot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlotPolicy {
    /// The lowest version that it serves with.
    pub least_version: Option<Version>,
    /// What becomes of it if its component is put into quarantine. Without, a slot of a filter whose failure refuses requests
    /// refuses, and others roll back.
    pub on_quarantine: Option<OnQuarantine>,
}

/// What becomes of a slot whose component is put into quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnQuarantine {
    /// It serves with what it served with before.
    RollBack,
    /// It refuses requests until an operator activates a component.
    Refuse,
}

/// What the binary brings for a slot.
#[derive(Debug, Clone, Copy)]
pub struct OfBinary<'a> {
    /// Which code it is.
    pub digest: Digest,
    /// Its version.
    pub version: &'a str,
}

impl OnQuarantine {
    /// As it stands in the database and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RollBack => "roll_back",
            Self::Refuse => "refuse",
        }
    }

    /// Reads what [`Self::as_str`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::RollBack, Self::Refuse]
            .into_iter()
            .find(|policy| policy.as_str() == text)
    }
}

impl SlotPolicy {
    /// Whether a version is too low. One that is not by Semantic Versioning is lower than all.
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
