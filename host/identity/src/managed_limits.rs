//! Limits of keys that a manager of the organisation set: budgets, rates, limits on providers and options for filters.
//!
//! **Invariant:** only a manager loosens a limit that a manager set. The key's user may tighten it, and may change limits of
//! their own. Scope, models and expiry of a key never change.

use std::collections::BTreeSet;

use weir_errors::{ApiError, ErrorCode};
use weir_storage::Database;

use super::errors::store_failed;
use super::roles::{Permission, Role};

/// A kind of limit of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyLimitKind {
    /// Credits in windows.
    Budgets,
    /// Requests and tokens per minute.
    Rates,
    /// Providers of the key's requests.
    DataLimits,
    /// Options that filters read.
    FilterOptions,
}

/// The effect of a change on a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitChange {
    /// There was no limit.
    Adds,
    /// The new limit allows no more than the previous one.
    Tightens,
    /// The new limit may allow more.
    Loosens,
}

impl KeyLimitKind {
    const ALL: [Self; 4] = [
        Self::Budgets,
        Self::Rates,
        Self::DataLimits,
        Self::FilterOptions,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Budgets => "budgets",
            Self::Rates => "rates",
            Self::DataLimits => "data_limits",
            Self::FilterOptions => "filter_options",
        }
    }
}

impl LimitChange {
    /// Returns the effect of a change from a limit that exists or not.
    pub const fn of(exists: bool, is_tighter: bool) -> Self {
        match (exists, is_tighter) {
            (false, _) => Self::Adds,
            (true, true) => Self::Tightens,
            (true, false) => Self::Loosens,
        }
    }
}

/// Allows a change of a key's limit, and records a limit that a manager sets. `effect` compares the limits, for callers who
/// are no managers.
///
/// # Errors
///
/// 403 if the caller is no manager and would loosen a limit that a manager set.
pub async fn allow(
    database: &Database,
    (key_id, role): (&str, Role),
    kind: KeyLimitKind,
    effect: impl Future<Output = Result<LimitChange, ApiError>>,
) -> Result<(), ApiError> {
    let mut managed = find(database, key_id).await.map_err(store_failed)?;
    let is_managed = managed.contains(&kind);
    let is_changed = match role.allows(Permission::Manage) {
        true => managed.insert(kind),
        false if !is_managed => false,
        false => match effect.await? {
            LimitChange::Adds => managed.remove(&kind),
            LimitChange::Tightens => false,
            LimitChange::Loosens => {
                let what =
                    "A manager of the organisation set this limit; only a manager may loosen it.";
                return Err(ApiError::new(ErrorCode::Forbidden, what).with_no_retry());
            }
        },
    };
    if is_changed {
        set(database, key_id, &managed)
            .await
            .map_err(store_failed)?;
    }
    Ok(())
}

async fn find(database: &Database, key_id: &str) -> sqlx::Result<BTreeSet<KeyLimitKind>> {
    let stored: Option<Option<String>> =
        sqlx::query_scalar("SELECT managed_limits FROM api_keys WHERE id = $1")
            .bind(key_id)
            .fetch_optional(database.writer())
            .await?;
    let all = KeyLimitKind::ALL.into_iter();
    Ok(match stored.flatten() {
        None => all.collect(),
        Some(names) => all
            .filter(|kind| names.split(',').any(|name| name == kind.name()))
            .collect(),
    })
}

async fn set(
    database: &Database,
    key_id: &str,
    kinds: &BTreeSet<KeyLimitKind>,
) -> sqlx::Result<()> {
    let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
    sqlx::query("UPDATE api_keys SET managed_limits = $1 WHERE id = $2")
        .bind(names.join(","))
        .bind(key_id)
        .execute(database.writer())
        .await
        .map(drop)
}
