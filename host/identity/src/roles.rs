//! Roles of people and service accounts in an account, and the permissions that endpoints need.
//!
//! A user is the owner of their personal account. In an organisation, a member has a [`Role`]. The row of an endpoint
//! ([`endpoints`](super::endpoints)) has the permission that the endpoint needs; the extractors of callers enforce it for
//! every request on behalf of an organisation.

use std::str::FromStr;

use http::request::Parts;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};

use super::endpoints::permission_of_request;

/// The role of a member in an account, from most to least rights.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// May do everything, including transfer and deletion.
    Owner,
    /// Manages members, keys, projects and budgets.
    Admin,
    /// Pays, and reads usage.
    Billing,
    /// Uses models with own keys.
    Member,
    /// Reads usage, swarms and tasks.
    Viewer,
}

/// A right that an endpoint needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    /// Any member.
    Belong,
    /// List models.
    ListModels,
    /// Call models.
    Infer,
    /// Use sessions, swarms, tasks and MCP; manage own keys.
    UseModels,
    /// Read the account's swarms and tasks.
    ReadWork,
    /// Read the account's requests, usage and transactions.
    ReadUsage,
    /// Buy credits and plans.
    Pay,
    /// Manage members, invitations, all keys, projects, budgets and secrets.
    Manage,
    /// Delete the organisation or transfer its ownership.
    Own,
}

use Permission::{Belong, Infer, ListModels, Manage, Own, Pay, ReadUsage, ReadWork, UseModels};

impl Role {
    /// All roles.
    pub const ALL: [Self; 5] = [
        Self::Owner,
        Self::Admin,
        Self::Billing,
        Self::Member,
        Self::Viewer,
    ];

    /// Returns the role's name in the API and the database.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Admin => "admin",
            Self::Billing => "billing",
            Self::Member => "member",
            Self::Viewer => "viewer",
        }
    }

    /// Returns whether the role includes a permission.
    pub const fn allows(self, permission: Permission) -> bool {
        match permission {
            Belong | ListModels => true,
            Infer | UseModels => matches!(self, Self::Owner | Self::Admin | Self::Member),
            ReadWork => !matches!(self, Self::Billing),
            ReadUsage => !matches!(self, Self::Member),
            Pay => matches!(self, Self::Owner | Self::Admin | Self::Billing),
            Manage => matches!(self, Self::Owner | Self::Admin),
            Own => matches!(self, Self::Owner),
        }
    }

    /// Returns whether a member with this role may give or take another role: only an owner names owners.
    pub const fn may_assign(self, other: Self) -> bool {
        match self {
            Self::Owner => true,
            Self::Admin => !matches!(other, Self::Owner),
            Self::Billing | Self::Member | Self::Viewer => false,
        }
    }

    /// Returns whether a service account may have the role: it only holds keys, so it manages nothing.
    pub const fn suits_service_accounts(self) -> bool {
        matches!(self, Self::Member | Self::Viewer)
    }

    /// Refuses a role without a permission.
    ///
    /// # Errors
    ///
    /// 403 that names the role.
    pub fn require(self, permission: Permission) -> Result<(), ApiError> {
        if self.allows(permission) {
            return Ok(());
        }
        let message = format!(
            "Your role in this organisation, {}, does not allow this request.",
            self.name()
        );
        Err(ApiError::new(ErrorCode::Forbidden, message)
            .with_detail("role", self.name())
            .with_no_retry())
    }

    /// Refuses a request to an endpoint that the role does not allow.
    ///
    /// # Errors
    ///
    /// 403 that names the role.
    pub fn require_endpoint(self, parts: &Parts) -> Result<(), ApiError> {
        self.require(permission_of_request(parts))
    }
}

impl FromStr for Role {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, &'static str> {
        let found = Self::ALL.into_iter().find(|role| role.name() == name);
        found.ok_or("owner, admin, billing, member or viewer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_have_no_more_rights_than_the_table_in_the_guide() {
        let rights = |role: Role| {
            let all = [
                Belong, Infer, UseModels, ReadWork, ReadUsage, Pay, Manage, Own,
            ];
            all.map(|permission| role.allows(permission))
        };
        assert_eq!(rights(Role::Owner), [true; 8]);
        assert_eq!(
            rights(Role::Admin),
            [true, true, true, true, true, true, true, false]
        );
        assert_eq!(
            rights(Role::Billing),
            [true, false, false, false, true, true, false, false]
        );
        assert_eq!(
            rights(Role::Member),
            [true, true, true, true, false, false, false, false]
        );
        assert_eq!(
            rights(Role::Viewer),
            [true, false, false, true, true, false, false, false]
        );
        assert!(!Role::Admin.may_assign(Role::Owner) && Role::Admin.may_assign(Role::Admin));
    }
}
