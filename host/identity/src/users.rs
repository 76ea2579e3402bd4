//! Users in the operator's hands: a disabled user can do nothing, neither by key nor by sign-in, until an operator
//! enables them. An erased user stays disabled for ever.
//!
//! An organisation is disabled and enabled like a user. For an enabled organisation, `users.disabled_at` is 0: nodes of the
//! release before organisations read it as disabled and reject the organisation's keys, whose roles and budgets they do not
//! know. Queries about any account therefore read `NULLIF(disabled_at, 0)`.

use weir_errors::{ApiError, ErrorCode};
use weir_ledger::{BudgetPart, Plan};
use weir_request::audit::{Actor, AuditEvent};
use weir_request::node::Core;
use weir_storage::cache::Tombstone;

use super::errors::{not_on_all_nodes, store_failed, user_disabled};
use super::filter_options::FilterOptions;
use super::key_records::{KEY_TTL, drop_plan};
use super::part_rates::PartRate;
use super::{members, store};

/// Disables or enables a user immediately on every node. Returns whether the user exists.
///
/// Running requests continue.
///
/// # Errors
///
/// 409 if an erased user is to be enabled, 503 if a store does not respond.
pub async fn set_disabled(
    core: &Core,
    user_id: &str,
    disabled: bool,
    by: &Actor,
) -> Result<bool, ApiError> {
    let user_id = user_id.to_owned();
    let event = if disabled {
        if find(core, &user_id).await?.is_none() {
            return Ok(false);
        }
        drop_cached_keys(core, &user_id).await?;
        store::disable_user(&core.database, &user_id, core.clock.now())
            .await
            .map_err(store_failed)?;
        AuditEvent::UserDisabled { user_id }
    } else {
        let found = store::enable_user(&core.database, &user_id)
            .await
            .map_err(store_failed)?;
        if !found {
            return match find(core, &user_id).await? {
                Some(_) => Err(erased()),
                None => Ok(false),
            };
        }
        // A remaining tombstone only makes nodes read the database. The cached record behind it may have an old plan.
        AuditEvent::UserEnabled { user_id }
    };
    core.audit.record_by(by, event);
    Ok(true)
}

/// Disables a user in the name of an issuer's directory, or enables a user whom the directory disabled. A user whom an
/// operator disabled stays disabled.
///
/// # Errors
///
/// 503 if a store does not respond.
pub async fn set_disabled_by_directory(
    core: &Core,
    user_id: &str,
    disabled: bool,
    by: &Actor,
) -> Result<(), ApiError> {
    let (database, now) = (&core.database, core.clock.now());
    let changed = if disabled {
        drop_cached_keys(core, user_id).await?;
        store::disable_by_directory(database, user_id, now).await
    } else {
        store::enable_by_directory(database, user_id).await
    };
    if changed.map_err(store_failed)? {
        let user_id = user_id.to_owned();
        let event = match disabled {
            true => AuditEvent::UserDisabled { user_id },
            false => AuditEvent::UserEnabled { user_id },
        };
        core.audit.record_by(by, event);
    }
    Ok(())
}

/// Makes all nodes read all keys of a user anew. It precedes the change of the database, so that a node that reads the
/// user before cannot cache their keys again.
pub async fn drop_cached_keys(core: &Core, user_id: &str) -> Result<(), ApiError> {
    core.cache
        .bury(Tombstone::User(user_id), KEY_TTL)
        .await
        .map_err(|_| not_on_all_nodes())?;
    members::drop_cached_keys_everywhere(core, user_id).await
}

/// Changes a user's plan, rates, options or limits on all nodes at once: the cache holds them with the user's keys.
pub async fn change_plan<T>(
    core: &Core,
    user_id: &str,
    change: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    drop_plan(&core.cache, user_id)
        .await
        .map_err(|_| not_on_all_nodes())?;
    change.await
}

/// Sets the rates of a part of an account, on all nodes at once.
///
/// # Errors
///
/// 409 if too many parts have rates, 503 if a store does not respond.
pub async fn set_rate(
    core: &Core,
    account_id: &str,
    part: BudgetPart,
    rate: PartRate,
) -> Result<(), ApiError> {
    let changed = change_plan(core, account_id, async {
        store::change_rates(&core.database, account_id, part, rate)
            .await
            .map_err(store_failed)
    });
    if changed.await? {
        return Ok(());
    }
    let what = "Too many parts of this account have rates; remove some first.";
    Err(ApiError::new(ErrorCode::TooManyBudgets, what).with_no_retry())
}

/// Replaces the options of a key for filters, on all nodes at once.
///
/// # Errors
///
/// 400 for an invalid option, 503 if a store does not respond.
pub async fn set_key_filter_options(
    core: &Core,
    account_id: &str,
    key_id: &str,
    options: &FilterOptions,
) -> Result<(), ApiError> {
    options.check()?;
    change_plan(core, account_id, async {
        store::set_key_filter_options(&core.database, account_id, key_id, options)
            .await
            .map_err(store_failed)
    })
    .await
}

/// Replaces the options of an account for filters, on all nodes at once. Returns whether the account exists.
///
/// # Errors
///
/// 400 for an invalid option, 503 if a store does not respond.
pub async fn set_account_filter_options(
    core: &Core,
    account_id: &str,
    options: &FilterOptions,
) -> Result<bool, ApiError> {
    options.check()?;
    change_plan(core, account_id, async {
        store::set_account_filter_options(&core.database, account_id, options)
            .await
            .map_err(store_failed)
    })
    .await
}

/// Refuses a user, named by another service, who is unknown or disabled. Returns the user's plan.
pub async fn require(core: &Core, user_id: &str) -> Result<Plan, ApiError> {
    match find(core, user_id).await? {
        None => {
            Err(ApiError::new(ErrorCode::UnknownUser, "No user has this id.").with_param("user_id"))
        }
        Some(user) if user.disabled_at.is_some() => Err(user_disabled().with_param("user_id")),
        Some(user) => Ok(user.plan.at(core.clock.now())),
    }
}

/// 409: the user is erased.
fn erased() -> ApiError {
    let what = "The user is erased, and cannot be enabled again.";
    ApiError::new(ErrorCode::NotPossible, what).with_no_retry()
}

async fn find(core: &Core, user_id: &str) -> Result<Option<store::User>, ApiError> {
    store::find_user(&core.database, user_id)
        .await
        .map_err(store_failed)
}
