//! Users, as operators see to them: a disabled one can do nothing, by key or in person, until enabled again.

use http::StatusCode;

use super::{KEY_TTL, store};
use crate::app::App;
use crate::audit::AuditEvent;
use crate::error::ApiError;
use weir_storage::cache::Tombstone;

/// Disables a user, or enables them again, at once on every node. Returns whether there is such a user.
///
/// Requests that are under way go on to their end.
pub async fn set_disabled(app: &App, user_id: &str, disabled: bool) -> Result<bool, ApiError> {
    let tombstone = Tombstone::User(user_id);
    let user_id = user_id.to_owned();
    let event = if disabled {
        if find(app, &user_id).await?.is_none() {
            return Ok(false);
        }
        // The tombstone first: a node that reads the user before the database is told cannot bring their keys back.
        app.cache
            .bury(tombstone, KEY_TTL)
            .await
            .map_err(|_| not_now())?;
        store::disable_user(&app.database, &user_id, app.clock.now())
            .await
            .map_err(super::store_failed)?;
        AuditEvent::UserDisabled { user_id }
    } else {
        let found = store::enable_user(&app.database, &user_id)
            .await
            .map_err(super::store_failed)?;
        if !found {
            return Ok(false);
        }
        // Once the database says so: who reads it from now on may fill the cache.
        app.cache.unbury(tombstone).await.map_err(|_| not_now())?;
        AuditEvent::UserEnabled { user_id }
    };
    app.audit.record(event);
    Ok(true)
}

/// Refuses a user whom another service names and for whom nothing may be done.
pub async fn require(app: &App, user_id: &str) -> Result<(), ApiError> {
    match find(app, user_id).await? {
        None => Err(ApiError::new(
            StatusCode::NOT_FOUND,
            "UNKNOWN_USER",
            "There is no user of that id.",
        )
        .with_param("user_id")),
        Some(user) if user.disabled_at.is_some() => Err(disabled().with_param("user_id")),
        Some(_) => Ok(()),
    }
}

/// What a user hears who has proven who they are, and is disabled.
pub(super) fn disabled() -> ApiError {
    ApiError::new(
        StatusCode::FORBIDDEN,
        "USER_DISABLED",
        "This user is disabled; whoever operates this gateway can say why.",
    )
    .with_no_retry()
}

async fn find(app: &App, user_id: &str) -> Result<Option<store::User>, ApiError> {
    store::find_user(&app.database, user_id)
        .await
        .map_err(super::store_failed)
}

fn not_now() -> ApiError {
    ApiError::cache_unavailable("The user could not be changed everywhere; try again.")
}
