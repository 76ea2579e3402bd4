//! Swarms: the list, a new swarm from a template, and the progress of one.

use std::borrow::Borrow;

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use http::HeaderMap;
use serde_json::json;
use weir_app::App;
use weir_errors::ApiError;
use weir_request::query::ListQuery;
use weir_storage::clock::Millis;
use weir_swarms::swarm::accept::{SwarmPayer, accept, read};
use weir_swarms::swarm::record::{AgentResult, AgentStatus, SwarmRecord, SwarmStatus};
use weir_swarms::swarm::record_of;
use weir_swarms::swarm::request::SwarmCaller;
use weir_swarms::swarm::routes::{self, own, results};
use weir_swarms::swarm::store::SwarmRun;
use weir_swarms::swarm::templates::{TEMPLATES, Template as Pipeline};
use weir_tools::{CallRecord, CallStatus};

use super::form::{ConsoleForm, FormError, FormFields};
use super::format::{self, DisplayTime};
use super::frame::{Flash, Frame, SWARMS};
use super::respond;
use super::session::ConsoleUser;

/// Swarms of a page.
const LIMIT: u32 = 50;

#[derive(Template)]
#[template(path = "console/swarms.html")]
struct SwarmsPage {
    frame: Frame,
    swarms: Vec<SwarmRecord>,
    next: Option<String>,
    templates: &'static [Pipeline],
    models: Vec<String>,
    asked: NewSwarmForm,
    refused: FormError,
    now: Millis,
}

/// The form for a new swarm, with the user's own input.
#[derive(Default)]
struct NewSwarmForm {
    template: String,
    model: String,
    budget: String,
    context: String,
}

#[derive(Template)]
#[template(path = "console/swarm.html")]
struct SwarmPage {
    frame: Frame,
    swarm: Swarm,
}

#[derive(Template)]
#[template(path = "console/swarm_state.html")]
struct SwarmState {
    swarm: Swarm,
}

/// A swarm and the progress of its agents.
struct Swarm {
    record: SwarmRecord,
    asked_at: DisplayTime,
    is_over: bool,
    is_cancelled: bool,
    budget: weir_ledger::Credits,
    agents: Vec<ConsoleAgent>,
}

struct ConsoleAgent {
    name: String,
    model: String,
    /// The agent's progress in words, and its style.
    state: &'static str,
    look: &'static str,
    result: Option<AgentResult>,
    /// The agent's tool calls so far.
    calls: Vec<CallRecord>,
}

/// `GET /console/swarms`
pub(super) async fn show_swarms(
    State(app): State<App>,
    user: ConsoleUser,
    mut query: ListQuery,
) -> Result<Response, ApiError> {
    let before = query.text("before")?.unwrap_or_default();
    query.finish()?;
    let page = page(
        &app,
        &user,
        before,
        NewSwarmForm::default(),
        FormError::default(),
    )
    .await?;
    user.show(&page)
}

/// `POST /console/swarms`: starts a swarm from a template.
pub(super) async fn start_swarm(
    State(app): State<App>,
    ConsoleForm { user, fields }: ConsoleForm,
) -> Result<Response, ApiError> {
    match start(&app, &user, &fields).await {
        Ok(run) => {
            let path = format!("/console/swarms/{}", run.id);
            Ok(user.go(&path, Flash::good("The swarm has started.")))
        }
        Err(error) if error.status().is_client_error() => {
            let asked = NewSwarmForm {
                template: fields.text("template").to_owned(),
                model: fields.text("model").to_owned(),
                budget: fields.text("max_total_credits").to_owned(),
                context: fields.text("context").to_owned(),
            };
            let page = page(&app, &user, String::new(), asked, FormError::by(&error)).await?;
            user.show_refused(error, &page)
        }
        Err(error) => Err(error),
    }
}

async fn start(app: &App, user: &ConsoleUser, fields: &FormFields) -> Result<SwarmRun, ApiError> {
    let name = fields.text("template");
    let template = TEMPLATES.iter().find(|template| template.name == name);
    let template = template
        .ok_or_else(|| ApiError::invalid_request("template", "Choose one of the templates."))?;
    let mut body = json!({ "swarm_id": template.name, "agents": template.agents });
    if let Some(model) = fields.filled("model")
        && let Some(agents) = body["agents"].as_array_mut()
    {
        for agent in agents {
            agent["model"] = model.into();
        }
    }
    if let Some(context) = fields.filled("context") {
        body["context"] = context.into();
    }
    if let Some(budget) = fields.filled("max_total_credits") {
        let what = "Enter a number of credits.";
        let budget: f64 = budget
            .parse()
            .map_err(|_| ApiError::invalid_request("max_total_credits", what))?;
        body["max_total_credits"] = budget.into();
    }
    let (request, _) = read(&app.swarms, body.to_string().as_bytes(), SwarmCaller::User)?;
    let payer = SwarmPayer::of(&user.caller);
    let (run, _) = accept(&app.swarms, &payer, &request, None).await?;
    Ok(run)
}

/// `GET /console/swarms/{execution_id}`
pub(super) async fn show_swarm(
    State(app): State<App>,
    user: ConsoleUser,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let swarm = find(&app, &user, &id).await?;
    let frame = user.frame(swarm.record.swarm_id.clone(), SWARMS);
    user.show(&SwarmPage { frame, swarm })
}

/// `GET /console/swarms/{execution_id}/state`: returns the part of the page that changes.
pub(super) async fn show_swarm_state(
    State(app): State<App>,
    user: ConsoleUser,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let swarm = find(&app, &user, &id).await?;
    respond::page(http::StatusCode::OK, &SwarmState { swarm })
}

/// `GET /console/swarms/{execution_id}/events`: streams the swarm's events to the page's script.
pub(super) async fn follow_swarm(
    State(app): State<App>,
    user: ConsoleUser,
    id: Path<String>,
    headers: HeaderMap,
    query: ListQuery,
) -> Result<Response, ApiError> {
    routes::stream_events(
        State(app.swarms.clone()),
        user.caller.clone(),
        id,
        headers,
        query,
    )
    .await
}

/// `POST /console/swarms/{execution_id}/cancel`
pub(super) async fn cancel_swarm(
    State(app): State<App>,
    Path(id): Path<String>,
    ConsoleForm { user, .. }: ConsoleForm,
) -> Result<Response, ApiError> {
    routes::cancel(&app.swarms, &user.caller, &id).await?;
    let done = "The swarm ends within two seconds.";
    Ok(user.go(&format!("/console/swarms/{id}"), Flash::good(done)))
}

async fn find(app: &App, user: &ConsoleUser, id: &str) -> Result<Swarm, ApiError> {
    let run = own(&app.swarms, &user.caller, id).await?;
    let record = record_of(&run);
    let results = results(&app.swarms, &run).await?;
    let asked = routes::agents_of(&app.swarms, &run).await?;
    let calls = routes::tool_calls(&app.swarms, &run).await?;
    let mut is_next = !run.status.is_over();
    let agents = asked.into_iter().map(|(name, model)| {
        let result = results.iter().find(|result| result.name == name).cloned();
        let (state, look) = match &result {
            Some(result) => match result.status {
                AgentStatus::Completed => ("completed", "good"),
                AgentStatus::MaxIterations => ("out of iterations", "warn"),
                AgentStatus::Failed => ("failed", "bad"),
            },
            None if is_next && run.status == SwarmStatus::Running => {
                is_next = false;
                ("running", "strong")
            }
            None if run.status.is_over() => ("not started", ""),
            None => ("waiting", ""),
        };
        let calls = match &result {
            Some(result) => result.tool_calls.clone(),
            None => calls
                .iter()
                .filter(|(agent, _)| *agent == name)
                .map(|(_, call)| call.clone())
                .collect(),
        };
        ConsoleAgent {
            name,
            model,
            state,
            look,
            result,
            calls,
        }
    });
    Ok(Swarm {
        agents: agents.collect(),
        asked_at: DisplayTime::of(run.created_at, app.ledger.now()),
        is_over: run.status.is_over(),
        is_cancelled: run.is_cancelled,
        budget: run.budget,
        record,
    })
}

async fn page(
    app: &App,
    user: &ConsoleUser,
    before: String,
    asked: NewSwarmForm,
    refused: FormError,
) -> Result<SwarmsPage, ApiError> {
    let query = ListQuery::filled([("before", before), ("limit", LIMIT.to_string())]);
    let (swarms, next) = routes::list(&app.swarms, &user.caller, query).await?;
    let catalog = app.catalog.load();
    let able = catalog.models().filter(|model| model.supports_tools);
    Ok(SwarmsPage {
        frame: user.frame("Swarms", SWARMS),
        swarms,
        next,
        templates: &TEMPLATES,
        models: able.map(|model| model.id.to_string()).collect(),
        asked,
        refused,
        now: app.ledger.now(),
    })
}

/// Returns a status's style.
fn look(status: impl Borrow<SwarmStatus>) -> &'static str {
    match status.borrow() {
        SwarmStatus::Completed => "good",
        SwarmStatus::Partial | SwarmStatus::Cancelled => "warn",
        SwarmStatus::Failed => "bad",
        SwarmStatus::Running => "strong",
        SwarmStatus::Queued => "",
    }
}
