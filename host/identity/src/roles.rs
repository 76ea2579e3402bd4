//! Roles of people and service accounts in an account, and the permissions that endpoints need.
//!
//! A user is the owner of their personal account. In an organisation, a member has a [`Role`]. [`ENDPOINTS`] is the one
//! place that says which permission an endpoint needs; the extractors of callers enforce it for every request on behalf
//! of an organisation.
//!
//! **Invariant:** an endpoint that is not in the table is closed to organisations.

use std::str::FromStr;

use axum::extract::MatchedPath;
use http::request::Parts;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};

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

/// The permission of each endpoint that acts for an account.
pub const ENDPOINTS: [(&str, Permission); 83] = [
    ("POST /chat", Infer),
    ("POST /code", Infer),
    ("POST /v1/chat/completions", Infer),
    ("POST /v1/completions", Infer),
    ("POST /v1/responses", Infer),
    ("POST /v1/messages", Infer),
    ("POST /v1/messages/count_tokens", Infer),
    ("POST /v1/images/generations", Infer),
    ("POST /v1/images/edits", Infer),
    ("POST /v1/embeddings", Infer),
    ("POST /v1/rerank", Infer),
    ("POST /v2/rerank", Infer),
    ("POST /v1/moderations", Infer),
    ("POST /v1/audio/speech", Infer),
    ("POST /v1/audio/transcriptions", Infer),
    ("POST /v1/audio/translations", Infer),
    ("POST /mcp", UseModels),
    ("GET /models", ListModels),
    ("GET /v1/models", ListModels),
    ("GET /v1/models/{*id}", ListModels),
    ("POST /v1/models/{*id}", Infer),
    ("GET /v1beta/models", ListModels),
    ("GET /v1beta/models/{*id}", ListModels),
    ("POST /v1beta/models/{*id}", Infer),
    ("GET /session/{id}/history", UseModels),
    ("DELETE /session/{id}", UseModels),
    ("GET /api-keys", UseModels),
    ("POST /api-keys", UseModels),
    ("DELETE /api-keys/{key_id}", UseModels),
    ("PUT /api-keys/{key_id}/budgets", UseModels),
    ("PUT /api-keys/{key_id}/rates", UseModels),
    ("PUT /api-keys/{key_id}/filter-options", UseModels),
    ("PUT /api-keys/{key_id}/data-limits", UseModels),
    ("PUT /api-keys/{key_id}/content-log", UseModels),
    ("GET /webhooks/secret", Manage),
    ("GET /usage/me", Belong),
    ("GET /usage/export", ReadUsage),
    ("GET /usage/requests", ReadUsage),
    ("GET /usage/requests/{request_id}", ReadUsage),
    // The handler shows own requests, and those of others with `Manage`.
    ("GET /usage/requests/{request_id}/content", Belong),
    ("GET /billing/transactions", ReadUsage),
    ("GET /billing/notices", ReadUsage),
    ("GET /billing/auto-topup", ReadUsage),
    ("PUT /billing/auto-topup", Pay),
    ("POST /billing/redeem", Pay),
    ("POST /billing/sync-balance", Belong),
    ("POST /billing/checkout", Pay),
    ("POST /billing/topup", Pay),
    ("POST /billing/portal", Pay),
    ("GET /swarms", ReadWork),
    ("POST /swarms", UseModels),
    ("GET /swarms/templates", Belong),
    ("GET /swarms/{execution_id}", ReadWork),
    ("DELETE /swarms/{execution_id}", UseModels),
    ("POST /swarms/{execution_id}/cancel", UseModels),
    ("GET /swarms/{execution_id}/events", ReadWork),
    ("GET /api/agent/tasks", ReadWork),
    ("POST /api/agent/tasks", UseModels),
    ("GET /api/agent/tasks/{task_id}", ReadWork),
    ("PUT /api/agent/tasks/{task_id}", UseModels),
    ("DELETE /api/agent/tasks/{task_id}", UseModels),
    ("GET /organisations/{organisation_id}", Belong),
    ("PATCH /organisations/{organisation_id}", Manage),
    ("DELETE /organisations/{organisation_id}", Own),
    ("POST /organisations/{organisation_id}/transfer", Own),
    ("GET /organisations/{organisation_id}/members", Belong),
    (
        "PATCH /organisations/{organisation_id}/members/{user_id}",
        Manage,
    ),
    (
        "DELETE /organisations/{organisation_id}/members/{user_id}",
        Belong,
    ),
    ("GET /organisations/{organisation_id}/invitations", Manage),
    ("POST /organisations/{organisation_id}/invitations", Manage),
    (
        "DELETE /organisations/{organisation_id}/invitations/{invitation_id}",
        Manage,
    ),
    ("GET /organisations/{organisation_id}/projects", Belong),
    ("POST /organisations/{organisation_id}/projects", Manage),
    (
        "DELETE /organisations/{organisation_id}/projects/{project_id}",
        Manage,
    ),
    (
        "GET /organisations/{organisation_id}/service-accounts",
        Manage,
    ),
    (
        "POST /organisations/{organisation_id}/service-accounts",
        Manage,
    ),
    (
        "DELETE /organisations/{organisation_id}/service-accounts/{user_id}",
        Manage,
    ),
    ("GET /organisations/{organisation_id}/budgets", Belong),
    ("PUT /organisations/{organisation_id}/budgets", Manage),
    ("GET /organisations/{organisation_id}/rates", Belong),
    ("PUT /organisations/{organisation_id}/rates", Manage),
    ("PUT /organisations/{organisation_id}/data-limits", Manage),
    ("PUT /organisations/{organisation_id}/content-log", Manage),
];

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

/// Returns the permission that a request's endpoint needs.
pub(super) fn permission_of_request(parts: &Parts) -> Permission {
    let route = parts.extensions.get::<MatchedPath>();
    permission_of(parts.method.as_str(), route.map(MatchedPath::as_str))
}

impl FromStr for Role {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, &'static str> {
        let found = Self::ALL.into_iter().find(|role| role.name() == name);
        found.ok_or("owner, admin, billing, member or viewer")
    }
}

/// The permissions of the console's pages by the beginning of their path: to read them, and to send their forms.
const CONSOLE: [(&str, Permission, Permission); 9] = [
    ("/console/playground", UseModels, UseModels),
    ("/console/requests", ReadUsage, Own),
    ("/console/usage", ReadUsage, Own),
    ("/console/keys", UseModels, UseModels),
    ("/console/money", ReadUsage, Pay),
    ("/console/swarms", ReadWork, UseModels),
    ("/console/organisations", Belong, Belong),
    ("/console/sign-out", Own, Belong),
    // Only the gateway's administrators reach these pages.
    ("/console/admin", Belong, Belong),
];

/// Returns the permission that an endpoint needs.
pub fn permission_of(method: &str, route: Option<&str>) -> Permission {
    let route = route.unwrap_or_default();
    if route == "/console" || route == "/console/{*path}" {
        return Belong;
    }
    let page = CONSOLE.iter().find(|(path, ..)| {
        let rest = route.strip_prefix(path);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    if let Some((_, read, act)) = page {
        return if method == "GET" { *read } else { *act };
    }
    let found = ENDPOINTS.iter().find(|(endpoint, _)| {
        let name = endpoint.split_once(' ');
        name == Some((method, route))
    });
    found.map_or(Own, |(_, permission)| *permission)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_endpoint_is_closed() {
        assert_eq!(permission_of("POST", Some("/chat")), Infer);
        assert_eq!(permission_of("GET", Some("/chat")), Own);
        assert_eq!(permission_of("POST", Some("/new")), Own);
        assert_eq!(permission_of("GET", Some("/console/money")), ReadUsage);
        assert_eq!(permission_of("POST", Some("/console/money/plan")), Pay);
        assert_eq!(permission_of("GET", Some("/console/moneybox")), Own);
        assert_eq!(permission_of("POST", None), Own);
    }

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
