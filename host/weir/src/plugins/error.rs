//! Why an operator's change was not made.

use semver::Version;
use weir_sandbox::{Digest, LoadError};

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
        /// Who signed it.
        publisher: String,
        /// What it is.
        version: Version,
        /// The highest that was installed here.
        highest: String,
    },
    /// The slot is another publisher's.
    #[error("the slot is {owner}'s, and the component is {}", .publisher.as_ref().map_or_else(|| "unsigned".to_owned(), |name| format!("{name}'s")))]
    OtherPublisher {
        /// Whose component was activated last.
        owner: String,
        /// Who signed this one.
        publisher: Option<String>,
    },
    /// The slot is for components of another kind.
    #[error("world: the slot is for {slot}s, and the component is one for {component}s")]
    OtherKind {
        /// What the slot is for.
        slot: &'static str,
        /// What the component is.
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
        /// What the component is.
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
