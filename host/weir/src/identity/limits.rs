//! The limits of a key: whether it still works, and the models that it may use.

use weir_errors::{ApiError, ErrorCode};

use super::{members, store};
use crate::node::Core;
use weir_ledger::BudgetPart;
use weir_storage::Database;
use weir_storage::clock::Millis;

/// Returns the models that a stored swarm or task may use now, as [`models_of_stored`]; empty means all models.
///
/// # Errors
///
/// 403 `KEY_ENDED` if the key or the membership has ended, 503 if the database does not answer.
pub async fn require_working(
    core: &Core,
    account: &str,
    parts: &[BudgetPart],
) -> Result<Vec<String>, ApiError> {
    let now = core.clock.now();
    let models = models_of_stored(&core.database, account, parts, now).await;
    models.map_err(super::store_failed)?.ok_or_else(key_ended)
}

/// Returns the models that a stored swarm or task may use now, all if empty: those of its key. `None` if the key expired
/// or was revoked, or if the member who asked for it has left the organisation.
pub async fn models_of_stored(
    database: &Database,
    account: &str,
    parts: &[BudgetPart],
    now: Millis,
) -> sqlx::Result<Option<Vec<String>>> {
    if let Some(key_id) = key_among(parts) {
        return store::models_of_working_key(database, key_id, now).await;
    }
    for part in parts {
        if let BudgetPart::Member(user_id) = part
            && !members::is_member(database, account, user_id).await?
        {
            return Ok(None);
        }
    }
    Ok(Some(Vec::new()))
}

/// Returns the id of the key among the parts of an account.
pub fn key_among(parts: &[BudgetPart]) -> Option<&str> {
    parts.iter().find_map(|part| match part {
        BudgetPart::Key(id) => Some(&**id),
        _ => None,
    })
}

/// 403: the key of the task or swarm expired or was revoked.
pub fn key_ended() -> ApiError {
    ApiError::new(ErrorCode::KeyEnded, KEY_ENDED).with_no_retry()
}

/// The message of `KEY_ENDED`.
pub const KEY_ENDED: &str = "The API key of this task or swarm expired or was revoked, or its user has left the organisation.";

/// Refuses a model that a key may not use. The message may say so, because the caller holds the key.
pub fn require_model(allowed: &[String], model: &str) -> Result<(), ApiError> {
    if may_use(allowed, model) {
        return Ok(());
    }
    Err(ApiError::new(
        ErrorCode::ModelNotAllowed,
        format!("This key may not use the model {model}; GET /models lists the allowed models."),
    )
    .with_param("model")
    .with_detail("model", model)
    .with_no_retry())
}

/// Whether a key may use a model; an empty list allows all.
pub fn may_use(allowed: &[String], model: &str) -> bool {
    allowed.is_empty() || allowed.iter().any(|allowed| allowed == model)
}
