//! Principals: people and service accounts that act for an account, with or without a key.
//!
//! [`Principal::may_use_models`] is the only decision on whether a principal may use the account's models now. Live requests
//! make it when they authenticate, and stored work (tasks, swarms, model calls of executors) before each step, by
//! [`super::model_grant`]. **Invariant:** a principal without rights gets no next step of their stored work.

use weir_errors::{ApiError, ErrorCode};

use super::errors::user_disabled;
use super::roles::{Permission, Role};

/// The state of a principal in an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Principal {
    /// The role in the account.
    pub role: Role,
    /// Whether the account or the person is disabled.
    pub is_disabled: bool,
    /// Whether the key expired or was revoked, its project was archived, or the membership ended.
    pub has_ended: bool,
}

/// The reasons for which a principal may not act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrincipalRefusal {
    /// The key, its project or the membership has ended.
    Ended,
    /// The account or the person is disabled.
    Disabled,
    /// The role does not allow the use of models.
    Role(Role),
}

impl Principal {
    /// Whether the principal may act at all, regardless of the role.
    pub fn may_act(&self) -> Result<(), PrincipalRefusal> {
        if self.has_ended {
            return Err(PrincipalRefusal::Ended);
        }
        if self.is_disabled {
            return Err(PrincipalRefusal::Disabled);
        }
        Ok(())
    }

    /// Whether the principal may use the account's models now.
    pub fn may_use_models(&self) -> Result<(), PrincipalRefusal> {
        self.may_act()?;
        match self.role.allows(Permission::UseModels) {
            true => Ok(()),
            false => Err(PrincipalRefusal::Role(self.role)),
        }
    }
}

impl From<PrincipalRefusal> for ApiError {
    fn from(refusal: PrincipalRefusal) -> Self {
        match refusal {
            PrincipalRefusal::Ended => {
                let what = "The API key of this task or swarm expired or was revoked, its project was archived, or its user \
                    has left the organisation.";
                Self::new(ErrorCode::KeyEnded, what).with_no_retry()
            }
            PrincipalRefusal::Disabled => user_disabled(),
            PrincipalRefusal::Role(role) => role
                .require(Permission::UseModels)
                .err()
                .unwrap_or_else(Self::internal),
        }
    }
}
