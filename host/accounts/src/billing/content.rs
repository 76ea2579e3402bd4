//! The stored prompt and response of a request: for its user, for administrators of an organisation that chose to store
//! them, and for the gateway's administrators.
//!
//! **Invariant:** each view by another person than the request's user is a security event.

use serde::Serialize;
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_identity::roles::{Permission, Role};
use weir_request::audit::{Actor, Audit, AuditEvent};
use weir_request::content_log::content::{LoggedContent, LoggedResponse};
use weir_request::content_log::store::StoredContent;
use weir_request::content_log::{ContentLog, LoggedError, LoggedRequest};

/// The prompt and the response of a request.
#[derive(Debug, Serialize, ToSchema)]
pub struct RequestContent {
    /// The request's id.
    pub request_id: String,
    /// The time of its end.
    pub at: String,
    /// The account that paid.
    pub account_id: String,
    /// The person or the service account that sent it.
    pub user_id: String,
    /// The request's key, if it had one.
    pub key_id: Option<String>,
    /// Whether the organisation's administrators may see it.
    pub for_organisation: bool,
    /// The request, as its provider got it, without credentials of known shapes; null if weir rejected it before.
    pub request: Option<LoggedRequest>,
    /// The response, as its client got it; without parts if there was none.
    pub response: LoggedResponse,
    /// The error that ended the request.
    pub error: Option<LoggedError>,
}

/// A user, or a key, that asks for a content.
pub struct ContentViewer<'a> {
    pub user_id: &'a str,
    /// The account for which the user acts.
    pub account_id: &'a str,
    /// The user's role in it.
    pub role: Role,
    /// The key of the request; `None` for web users. A key sees the content of its own requests.
    pub key_id: Option<&'a str>,
}

impl ContentViewer<'_> {
    fn may_see(&self, stored: &StoredContent) -> bool {
        let is_own = stored.user_id == self.user_id;
        let has_permission = match self.key_id {
            Some(key_id) => is_own && stored.key_id.as_deref() == Some(key_id),
            None => is_own || stored.for_organisation && self.role.allows(Permission::Manage),
        };
        has_permission && stored.account_id == self.account_id
    }
}

/// Returns a content that the viewer may see, still sealed.
pub async fn find(
    log: Option<&ContentLog>,
    viewer: &ContentViewer<'_>,
    request_id: &str,
) -> Result<Option<StoredContent>, ApiError> {
    let found = find_any(log, request_id).await?;
    Ok(found.filter(|stored| viewer.may_see(stored)))
}

/// Returns the content of anybody's request, still sealed.
pub async fn find_any(
    log: Option<&ContentLog>,
    request_id: &str,
) -> Result<Option<StoredContent>, ApiError> {
    match log {
        // PostgreSQL would reject some of these characters.
        Some(log) if !request_id.contains(char::is_control) => {
            log.find(request_id).await.map_err(super::history::failed)
        }
        _ => Ok(None),
    }
}

/// Opens a content for a viewer who may see it, and records the view, unless it is the request's user.
///
/// # Errors
///
/// 404 if there is none.
pub fn view(
    log: Option<&ContentLog>,
    audit: &Audit,
    actor: &Actor,
    stored: Option<StoredContent>,
) -> Result<RequestContent, ApiError> {
    let (Some(log), Some(stored)) = (log, stored) else {
        return Err(unknown());
    };
    let LoggedContent {
        request,
        response,
        error,
    } = log.open(&stored).ok_or_else(unknown)?;
    if *actor != Actor::user(&stored.user_id) {
        let viewed = AuditEvent::ContentViewed {
            user_id: stored.user_id.clone(),
            request_id: stored.request_id.clone(),
        };
        audit.record_by(actor, viewed);
    }
    Ok(RequestContent {
        request_id: stored.request_id,
        at: stored.at.iso(),
        account_id: stored.account_id,
        user_id: stored.user_id,
        key_id: stored.key_id,
        for_organisation: stored.for_organisation,
        request,
        response,
        error,
    })
}

/// 404: unknown, expired, foreign and absent contents have the same error.
fn unknown() -> ApiError {
    let what = "weir stores no prompt and response of a request with this id for you.";
    ApiError::new(ErrorCode::UnknownRequest, what)
}
