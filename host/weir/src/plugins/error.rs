//! Why an operator's change was not made.

use weir_sandbox::LoadError;

/// Why a slot was not changed.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// The component fails a load step.
    #[error(transparent)]
    Load(#[from] LoadError),
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
    /// The slot has nothing to go back to.
    #[error("there is nothing to go back to")]
    NothingBefore,
    /// The gateway's configuration needs what the component does not have.
    #[error("{0}")]
    DoesNotFit(String),
    /// The database.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}
