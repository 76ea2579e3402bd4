//! Users, as operators see to them: a disabled one can do nothing, by key or in person, until enabled again.

use weir_errors::{ApiError, ErrorCode};

use super::key_records::{KEY_TTL, drop_plan};
use super::store;
use crate::app::{App, Core};
use crate::audit::{Actor, AuditEvent};
use weir_ledger::Plan;
use weir_storage::cache::Tombstone;

/// Disables a user, or enables them again, at once on every node. Returns whether there is such a user.
///
/// Requests that are under way go on to their end.
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
        // The tombstone first: a node that reads the user before the database is told cannot bring their keys back.
        core.cache
            .bury(Tombstone::User(&user_id), KEY_TTL)
            .await
            .map_err(|_| not_now())?;
        store::disable_user(&core.database, &user_id, core.clock.now())
            .await
            .map_err(super::store_failed)?;
        AuditEvent::UserDisabled { user_id }
    } else {
        let found = store::enable_user(&core.database, &user_id)
            .await
            .map_err(super::store_failed)?;
        if !found {
            return Ok(false);
        }
        // A tombstone that stands yet only has the database asked. What it stands on may be older than a change of plan.
        AuditEvent::UserEnabled { user_id }
    };
    core.audit.record_by(by, event);
    Ok(true)
}

/// Makes a change of a user's plan, and has all nodes see it at once: their rates are kept with their keys.
pub async fn change_plan<T>(
    core: &Core,
    user_id: &str,
    change: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    drop_plan(&core.cache, user_id)
        .await
        .map_err(|_| not_now())?;
    change.await
}

/// Refuses a user whom another service names and for whom nothing may be done. Returns the plan of others.
pub async fn require(app: &App, user_id: &str) -> Result<Plan, ApiError> {
    match find(app, user_id).await? {
        None => Err(
            ApiError::new(ErrorCode::UnknownUser, "There is no user of that id.")
                .with_param("user_id"),
        ),
        Some(user) if user.disabled_at.is_some() => Err(disabled().with_param("user_id")),
        Some(user) => Ok(super::plan_named(&user.plan)),
    }
}

/// What a user hears who has proven who they are, and is disabled.
pub(super) fn disabled() -> ApiError {
    ApiError::new(
        ErrorCode::UserDisabled,
        "This user is disabled; whoever operates this gateway can say why.",
    )
    .with_no_retry()
}

async fn find(core: &Core, user_id: &str) -> Result<Option<store::User>, ApiError> {
    store::find_user(&core.database, user_id)
        .await
        .map_err(super::store_failed)
}

fn not_now() -> ApiError {
    ApiError::cache_unavailable("The user could not be changed everywhere; try again.")
}
