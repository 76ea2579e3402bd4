//! The playground: a page that sends chat requests, and shows responses, costs, and the same request as code.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use weir_app::App;
use weir_catalog::live::LiveCatalog;
use weir_errors::ApiError;
use weir_inference::InferenceParts;
use weir_inference::idempotency::IdempotencyHeader;
use weir_inference::routes::{CapacityCheck, complete};
use weir_request::context::RequestContext;
use weir_request::request::JsonBody;
use weir_sandbox::adapter::WorkKind;

use super::form::ScriptUser;
use super::frame::{Frame, PLAYGROUND};
use super::session::ConsoleUser;
use super::snippets;

#[derive(Template)]
#[template(path = "console/playground.html")]
struct PlaygroundPage {
    frame: Frame,
    models: Vec<PlaygroundModel>,
    /// The gateway's address for examples.
    base: String,
}

/// A model, and its price for the user.
struct PlaygroundModel {
    id: String,
    /// Credits for a thousand input tokens.
    input: f64,
    /// Credits for a thousand output tokens.
    output: f64,
    supports_tools: bool,
    supports_vision: bool,
}

/// `GET /console/playground`
pub(super) async fn show_playground(
    State(app): State<App>,
    State(catalog): State<Arc<LiveCatalog>>,
    user: ConsoleUser,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let catalog = catalog.load();
    let factors = catalog.factors_of(user.caller.plan);
    let models = catalog.models().filter_map(|model| {
        let in_plan = catalog.is_in_plan(user.caller.plan, &model.id);
        let preferred = model.preferred(&user.caller.data_limits)?;
        let item = model.item(preferred, &factors, in_plan);
        let is_usable = model.kind == WorkKind::Chat && !model.makes_images();
        is_usable.then(|| PlaygroundModel {
            id: model.id.to_string(),
            input: item.cost_per_1k_input,
            output: item.cost_per_1k_output,
            supports_tools: model.supports_tools,
            supports_vision: model.supports_vision,
        })
    });
    user.show(&PlaygroundPage {
        models: models.collect(),
        base: snippets::base(&app, snippets::host(&headers)),
        frame: user.frame("Playground", PLAYGROUND),
    })
}

/// `POST /console/playground/chat`: `POST /chat` for the signed-in user, from the console's own page.
pub(super) async fn create_chat_completion(
    State(parts): State<Arc<InferenceParts>>,
    _: CapacityCheck,
    ScriptUser(user): ScriptUser,
    context: RequestContext,
    key: IdempotencyHeader,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let read = weir_dialects::read_own;
    complete(&parts, user.caller, context, key, body, read).await
}
