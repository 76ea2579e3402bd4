//! Why an operator's change was not made.

use std::time::Duration;

use http::StatusCode;
use semver::Version;
use weir_errors::{ApiError, ErrorCode};
use weir_sandbox::compiler::CompileError;
use weir_sandbox::{Digest, GuestError, LoadError};

use super::trust::TrustError;

/// Why a slot was not changed.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// The component fails a load step.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Nobody vouches for the component whom the gateway believes.
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
        /// The kind of the slot.
        slot: &'static str,
        /// The kind of the component.
        component: &'static str,
    },
    /// There is no such slot.
    #[error("there is no such slot")]
    UnknownSlot,
    /// Nothing of that digest is installed in the slot.
    #[error("no such component is installed in the slot")]
    UnknownPlugin,
    /// The slot serves with it.
    #[error("the slot serves with it")]
    InUse,
    /// The slot serves all with it, so that it cannot be the canary.
    #[error("the slot serves all with it already")]
    IsActive,
    /// The slot serves with nothing that a canary could be compared with.
    #[error("the slot serves with nothing that a canary could be compared with")]
    NothingBeside,
    /// The slot serves with no version as low as that.
    #[error("the slot serves with no version below {least}, and the component is {version}")]
    BelowLeast {
        /// The slot's least version.
        least: Version,
        /// The version of the component.
        version: String,
    },
    /// The slot serves with another component by now than the operator expects.
    #[error("the slot serves with {}", .0.map_or_else(|| "nothing".to_owned(), |digest| digest.to_string()))]
    NotExpected(Option<Digest>),
    /// The slot has nothing to go back to.
    #[error("there is nothing to go back to")]
    NothingBefore,
    /// The gateway's configuration needs what the component does not have.
    #[error("{0}")]
    DoesNotFit(String),
    /// A live node cannot load the component, or has not said that it can.
    #[error("{0}")]
    NotEverywhere(String),
    /// The database.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl From<OperationError> for ApiError {
    fn from(error: OperationError) -> Self {
        use StatusCode as S;
        match error {
            // The gateway's own trouble, and no fault of the component.
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
                    "The version is too low: {error}. To take it all the same, say allow_downgrade (--allow-downgrade)."
                ),
            ),
            OperationError::OtherPublisher { .. } => Self::new(
                ErrorCode::PluginOtherPublisher,
                format!(
                    "The publisher would change: {error}. To have it so, say change_publisher (--change-publisher)."
                ),
            ),
            OperationError::OtherKind { .. } => Self::new(
                ErrorCode::PluginRefused,
                format!("The component fails a load step. {error}; install it in another one."),
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
                "The slot serves with it, as the active one or the canary, or the binary brings it; activate another one, or \
                 end the canary, first.",
            )
            .with_param("digest"),
            OperationError::IsActive => Self::new(
                ErrorCode::PluginActive,
                "The slot serves all accounts with it already; a canary is another component.",
            )
            .with_param("digest"),
            OperationError::NothingBeside => Self::new(
                ErrorCode::NothingToCompareWith,
                "The slot serves with nothing that a canary could be compared with; activate the component for all, without a share.",
            )
            .with_param("share"),
            OperationError::BelowLeast { .. } => Self::new(
                ErrorCode::PluginBelowLeastVersion,
                format!("The version is too low: {error}. To allow it, lower the slot's least_version."),
            )
            .with_param("least_version"),
            OperationError::NotExpected(_) => Self::new(
                ErrorCode::PluginChanged,
                format!("Nothing was rolled back: by now, {error}."),
            )
            .with_param("from"),
            OperationError::NothingBefore => Self::new(
                ErrorCode::NothingToRollBackTo,
                "The slot has nothing sound to go back to; activate a component by its digest.",
            ),
            OperationError::DoesNotFit(what) => Self::new(
                ErrorCode::PluginDoesNotFit,
                format!(
                    "The gateway's configuration asks for what the component does not have. {what}."
                ),
            ),
            OperationError::NotEverywhere(what) => Self::new(
                ErrorCode::PluginNotEverywhere,
                format!("Nothing was changed, since not every node can load the component: {what}."),
            )
            .with_param("digest"),
            OperationError::Database(error) => Self::of_database(&error, "changing a slot"),
        }
    }
}
