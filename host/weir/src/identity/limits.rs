//! The models that a key may use.

use weir_errors::{ApiError, ErrorCode};
use weir_ledger::BudgetPart;

/// Returns the id of the key among the parts of an account.
pub fn key_among(parts: &[BudgetPart]) -> Option<&str> {
    parts.iter().find_map(|part| match part {
        BudgetPart::Key(id) => Some(&**id),
        _ => None,
    })
}

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
