//! Tools of remote servers: their definitions, and changes that wait for an approval.

use askama::Template;
use axum::Json;
use axum::extract::{FromRef as _, Path, State};
use axum::response::Response;
use weir_app::App;
use weir_errors::ApiError;
use weir_tools::remote::RemoteTools;
use weir_tools::remote::routes as remote;
use weir_tools::remote::store::PinnedTool;

use super::core;
use crate::console::form::AdminForm;
use crate::console::format;
use crate::console::frame::{Frame, REMOTE_TOOLS};
use crate::console::session::ConsoleAdmin;

#[derive(Template)]
#[template(path = "console/admin/tools.html")]
struct ToolsPage {
    frame: Frame,
    tools: Vec<PinnedTool>,
}

/// `GET /console/admin/tools`
pub(super) async fn show_tools(
    State(app): State<App>,
    admin: ConsoleAdmin,
) -> Result<Response, ApiError> {
    let remotes = State(RemoteTools::from_ref(&app));
    let Json(list) = remote::list_tools(remotes, admin.caller()).await?;
    admin.user.show(&ToolsPage {
        frame: admin.user.frame("Remote tools", REMOTE_TOOLS),
        tools: list.tools,
    })
}

/// `POST /console/admin/tools/{server}/{tool}/approve`
pub(super) async fn approve_tool(
    State(app): State<App>,
    Path((server, tool)): Path<(String, String)>,
    AdminForm { admin, fields }: AdminForm,
) -> Result<Response, ApiError> {
    let State(core) = core(&app);
    let remotes = RemoteTools::from_ref(&app);
    let digest = fields.text("digest");
    let approved = remote::approve(&core, &remotes, admin.actor(), (&server, &tool), digest);
    let done = format!("{server}.{tool} is enabled with the new definition.");
    admin.done(REMOTE_TOOLS.path, approved.await, done)
}
