//! Privacy: the export and the erasure of a person's data.
//!
//! [`export`] reads everything that weir stores about a person, as one JSON document. [`erase`] deletes or blanks it, and
//! keeps the row of the user: the opaque id identifies nobody, and ledger entries, payments and audit events keep it. The
//! next sign-in of the same person creates another user.
//!
//! | Data | After the erasure |
//! |---|---|
//! | `users` | The row stays with its id, plan and times. Issuer, subject, e-mail address, name, rates and admin role are blank. |
//! | `api_keys`, `api_key_hashes` | The keys are revoked and have no name. Ledger entries refer to their hashes. |
//! | `members`, `invitations` | The memberships end. Invitations of the person lose the e-mail address, and end. |
//! | `tasks`, `task_starts`, `task_credentials` | deleted |
//! | `swarm_…` of the personal account | deleted |
//! | `notices`, `auto_top_ups`, `voucher_guesses`, `failed_requests`, `failed_request_counts`, `content_logs` | deleted |
//! | `idempotency_keys` of the personal account | Completed ones are deleted, with their responses. |
//! | `accounts`, `holds`, `entries`, `usage_daily` and their sums | stay, for accounting law: opaque ids, amounts, models |
//! | `payments`, `payment_…`, `auto_top_up_charges` | stay, for accounting law: ids of the processor, amounts; the URLs of checkouts are blank |
//! | `voucher_redemptions` | stay: they explain credits |
//! | `audit_events`, `plugin_events` and other names of actors | stay until `audit_days` end: opaque ids. A reason is the operator's text. |
//! | Tasks, swarms and requests of organisations | stay: they belong to the organisation |
//! | Sessions and stored responses (`expiring_values`, or Redis) | expire within `sessions.ttl_minutes` or `response_ttl_minutes`: encrypted, bound to the id |
//! | Responses for equal requests (the cache) | expire within `response_cache.ttl_seconds`: encrypted, without a user |
//! | `recorded_exchanges` | stay until a week after the recording: encrypted, without a user |
//!
//! SQLite overwrites deleted values in their pages, and in an erasure also the pages that become free (`secure_delete`).
//! Pages that were freed before may keep older copies until `VACUUM`, and the log keeps some until later writes.
//! PostgreSQL keeps old rows until its own vacuum. Backups and the processor's own records are up to the operator.
//!
//! **Invariant:** a refused erasure changes no data. **Invariant:** an erased user never works again: the tombstones of
//! the keys are in the cache before the database changes, and no operation enables the user. **Invariant:** an erasure
//! that was interrupted completes ([`erase::finish_for_ever`]). **Invariant:** an export has no secrets, and no data of
//! other people.
//!
//! A new table with personal data needs a table in [`store::TABLES`] and a statement in [`store`], and a row above.

pub mod erase;
mod export;
pub mod routes;
mod store;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_request::content_log::ContentLog;
use weir_request::failed_requests::FailedRequests;
use weir_request::node::Core;
use weir_swarms::tasks::store::TaskStore;
use weir_tools::task_credentials::TaskCredentials;

/// The parts of a gateway that an export uses. Cheap to clone.
#[derive(Clone)]
pub struct PrivacyParts {
    /// The stores, the clock and the exports in progress.
    pub core: Core,
    /// The tasks, which are encrypted.
    pub tasks: TaskStore,
    /// The records of failed requests, whose messages are encrypted.
    pub failures: Arc<FailedRequests>,
    /// The log of prompts and responses, which are encrypted, if the configuration allows one.
    pub content_log: Option<Arc<ContentLog>>,
    /// The names and targets of the tasks' credentials.
    pub credentials: TaskCredentials,
}

/// An erased user.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Erasure {
    /// The user's id, which the ledger, payments and audit events keep.
    pub user_id: String,
    /// The time of the erasure.
    pub erased_at: String,
}

/// 404: no person has this id. Organisations and service accounts are no persons.
fn unknown_user() -> ApiError {
    ApiError::new(ErrorCode::UnknownUser, "No user has this id.").with_param("user_id")
}

fn failed(error: sqlx::Error) -> ApiError {
    ApiError::of_database(&error, "about the data of a user")
}
