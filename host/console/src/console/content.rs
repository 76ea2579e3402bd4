//! The prompt and the response of a request, or the reason for which a page has none.

use weir_accounts::billing::content::{self, RequestContent};
use weir_app::App;
use weir_errors::ApiError;
use weir_request::audit::Actor;
use weir_request::content_log::content::LoggedPart;
use weir_request::content_log::store::StoredContent;
use weir_request::query::ListQuery;

/// The panel of a request's content.
pub(super) struct ContentPanel {
    pub(super) content: Option<RequestContent>,
    /// The address that shows the content of another person's request: weir records that view.
    pub(super) offer: Option<String>,
    /// The days for which weir stores contents; `None` if the operator does not allow it.
    pub(super) days: Option<i64>,
}

/// The page's query: whether it shows another person's content.
pub(super) fn is_wanted(mut query: ListQuery) -> Result<bool, ApiError> {
    let wanted = query.text("content")?;
    query.finish()?;
    Ok(wanted.as_deref() == Some("show"))
}

impl ContentPanel {
    /// Makes the panel of a page at this address for a viewer who may see the content.
    pub(super) fn of(
        app: &App,
        actor: &Actor,
        stored: Option<StoredContent>,
        is_wanted: bool,
        path: &str,
    ) -> Self {
        let log = app.content_log.as_deref();
        let days = log.map(|log| log.days());
        let is_own = |stored: &StoredContent| *actor == Actor::user(&stored.user_id);
        let is_shown = is_wanted || stored.as_ref().is_some_and(is_own);
        if stored.is_some() && !is_shown {
            return Self {
                content: None,
                offer: Some(format!("{path}?content=show#content")),
                days,
            };
        }
        Self {
            // A content whose sealing key is gone is no content.
            content: content::view(log, &app.audit, actor, stored).ok(),
            offer: None,
            days,
        }
    }
}

/// Returns a part's heading in words, such as `tool call: search`.
pub(super) fn heading(part: &LoggedPart) -> String {
    let kind = part.kind.replace('_', " ");
    match &part.name {
        Some(name) => format!("{kind}: {name}"),
        None => kind,
    }
}
