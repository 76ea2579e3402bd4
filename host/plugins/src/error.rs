//! The reasons for which an operator's change was not made.

use std::time::Duration;

use http::StatusCode;
use semver::Version;
use weir_errors::{ApiError, ErrorCode};
use weir_sandbox::compiler::CompileError;
use weir_sandbox::{Digest, GuestError, LoadError};

use super::trust::TrustError;

/// The reason that a slot was not changed.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// The component fails a load step.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// No configured publisher vouches for the component.
    #[error(transparent)]
    Untrusted(#[from] TrustError),
    /// The publisher has signed a later version for the slot.
    #[error(
        "{publisher} has signed version {highest} for this slot, which is later than {version}"
    )]
    Downgrade {
        /// The publisher of the later version.
        publisher: String,
        /// The version of the refused component.
        version: Version,
        /// The highest version that was installed in the slot.
        highest: String,
    },
    /// The slot is another publisher's.
    #[error("the slot is {owner}'s, and the component is {}", .publisher.as_ref().map_or_else(|| "unsigned".to_owned(), |name| format!("{name}'s")))]
    OtherPublisher {
        /// The publisher of the component that was activated last.
        owner: String,
        /// The publisher of the refused component, if it is signed.
        publisher: Option<String>,
    },
    /// The slot is for components of another kind.
    #[error("world: the slot is for {slot}s, and the component is one for {component}s")]
    OtherKind {
        slot: &'static str,
        component: &'static str,
    },
    /// There is no such slot.
    #[error("there is no such slot")]
    UnknownSlot,
    /// No component of that digest is installed in the slot.
    #[error("no such component is installed in the slot")]
    UnknownPlugin,
    /// The slot serves with the component.
    #[error("the slot serves with the component")]
    InUse,
    /// The slot serves all accounts with the component, which therefore cannot be the canary.
    #[error("the slot serves all accounts with the component already")]
    IsActive,
    /// The slot has no active component to compare a canary with.
    #[error("the slot has no active component to compare a canary with")]
    NothingBeside,
    /// The version is below the slot's least version.
    #[error("the slot serves with no version below {least}, and the component is {version}")]
    BelowLeast {
        /// The slot's least version.
        least: Version,
        version: String,
    },
    /// The slot's active component differs from the operator's expectation.
    #[error("the slot serves with {}", .0.map_or_else(|| "nothing".to_owned(), |digest| digest.to_string()))]
    NotExpected(Option<Digest>),
    /// The slot has no earlier component.
    #[error("the slot has no earlier component")]
    NothingBefore,
    /// The gateway's configuration needs a feature that the component lacks.
    #[error("{0}")]
    DoesNotFit(String),
    /// A live node cannot load the component, or has not confirmed that it can.
    #[error("{0}")]
    NotEverywhere(String),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl From<OperationError> for ApiError {
    fn from(error: OperationError) -> Self {
        use StatusCode as S;
        match error {
            // A failure of the gateway, not of the component.
            OperationError::Load(
                error @ (LoadError::Compile(CompileError::NotRun(_))
                | LoadError::Describe(GuestError::NoRoom)),
            ) => {
                tracing::error!(%error, "loading a component");
                Self::new(
                    ErrorCode::PluginNotChecked,
                    "The gateway cannot check components at present; its log says why.",
                )
                .with_retry_after(Duration::from_secs(10))
            }
            OperationError::Load(error) => {
                let status = match &error {
                    LoadError::TooLarge { .. } => S::PAYLOAD_TOO_LARGE,
                    _ => S::UNPROCESSABLE_ENTITY,
                };
                Self::new(
                    ErrorCode::PluginRefused,
                    format!("The component fails a load step. {error}."),
                )
                .with_status(status)
                .with_detail("step", error.step())
            }
            OperationError::Untrusted(error) => Self::new(
                error.code(),
                format!("The component is not trusted: {error}."),
            ),
            OperationError::Downgrade { .. } => Self::new(
                ErrorCode::PluginDowngrade,
                format!(
                    "The version is too low: {error}. To accept the lower version, set allow_downgrade (--allow-downgrade)."
                ),
            ),
            OperationError::OtherPublisher { .. } => Self::new(
                ErrorCode::PluginOtherPublisher,
                format!(
                    "The publisher would change: {error}. To accept the change, set change_publisher (--change-publisher)."
                ),
            ),
            OperationError::OtherKind { .. } => Self::new(
                ErrorCode::PluginRefused,
                format!("The component fails a load step. {error}; install it in another slot."),
            )
            .with_detail("step", "world"),
            OperationError::UnknownSlot => Self::new(
                ErrorCode::UnknownSlot,
                "There is no such slot; GET /admin/plugins lists them.",
            )
            .with_param("slot"),
            OperationError::UnknownPlugin => Self::new(
                ErrorCode::UnknownPlugin,
                "No component of that digest is installed in the slot.",
            )
            .with_param("digest"),
            OperationError::InUse => Self::new(
                ErrorCode::PluginInUse,
                "The component is active, a canary or bundled; first activate another component, or end the canary.",
            )
            .with_param("digest"),
            OperationError::IsActive => Self::new(
                ErrorCode::PluginActive,
                "The slot serves all accounts with the component already; a canary must be another component.",
            )
            .with_param("digest"),
            OperationError::NothingBeside => Self::new(
                ErrorCode::NothingToCompareWith,
                "The slot has no active component to compare a canary with; activate the component for all accounts, without a share.",
            )
            .with_param("share"),
            OperationError::BelowLeast { .. } => Self::new(
                ErrorCode::PluginBelowLeastVersion,
                format!("The version is too low: {error}. To allow it, lower the slot's least_version."),
            )
            .with_param("least_version"),
            OperationError::NotExpected(_) => Self::new(
                ErrorCode::PluginChanged,
                format!("The slot was not rolled back: by now, {error}."),
            )
            .with_param("from"),
            OperationError::NothingBefore => Self::new(
                ErrorCode::NothingToRollBackTo,
                "The slot has no sound component to roll back to; activate a component by its digest.",
            ),
            OperationError::DoesNotFit(what) => Self::new(
                ErrorCode::PluginDoesNotFit,
                format!(
                    "The component lacks a feature that the gateway's configuration needs. {what}."
                ),
            ),
            OperationError::NotEverywhere(what) => Self::new(
                ErrorCode::PluginNotEverywhere,
                format!("The slot is unchanged, since not every node can load the component: {what}."),
            )
            .with_param("digest"),
            OperationError::Database(error) => Self::of_database(&error, "changing a slot"),
        }
    }
}
