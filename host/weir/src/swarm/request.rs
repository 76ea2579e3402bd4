//! What a swarm is asked: read from a body, each field with its bounds.
//!
//! **Invariant:** what is read here can be run: names are unique, each dependency is an agent of the swarm, and every
//! number is within its bounds. Only a circle is left, which ends the swarm before any agent runs.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::{Credits, Plan};

use crate::json::from_json;

/// Agents of a swarm.
const MAX_AGENTS: usize = 10;

/// Bytes of a prompt, or of the context.
const MAX_TEXT_BYTES: usize = 256 << 10;

/// Characters of an id.
const MAX_ID_CHARS: usize = 256;

/// Characters of an agent's name.
const MAX_NAME_CHARS: usize = 128;

/// Tools, and integrations, of an agent.
const MAX_NAMES: usize = 16;

/// Webhooks of an agent.
const MAX_WEBHOOKS: usize = 3;

/// The tools of an agent that names none, where they are there.
const DEFAULT_TOOLS: [&str; 2] = ["http_get", "api_call"];

/// Bytes of a webhook's URL.
const MAX_URL_BYTES: usize = 2_048;

/// The least that may be asked for as a budget.
const LEAST_CREDITS: Credits = Credits::whole(1);

/// The budget unless asked otherwise.
const DEFAULT_CREDITS: Credits = Credits::whole(2_000);

/// A swarm, with every default in its place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SwarmRequest {
    /// As whoever asks names the pipeline.
    pub swarm_id: String,
    /// The task that it is run for.
    pub task_id: Option<String>,
    /// The agents, in the order in which they were written.
    pub agents: Vec<Agent>,
    /// The most that it may cost.
    pub max_total_credits: Credits,
    /// What the first agent is told besides.
    pub context: Option<String>,
    /// The place in a trace that it was asked for at, as `traceparent` has it: what comes of it belongs there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_parent: Option<String>,
    /// Whether a task keeps its definition.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_task: bool,
}

impl SwarmRequest {
    /// Its agents' names, models and order: enough to show a run that is over.
    pub fn outline(&self) -> Self {
        let mut outline = self.clone();
        outline.context = None;
        for agent in &mut outline.agents {
            agent.system_prompt.clear();
            agent.task_prompt.clear();
            agent.tools.clear();
            agent.integrations.clear();
            agent.webhook_urls.clear();
        }
        outline
    }
}

/// An agent of a swarm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    /// Its name, like no other's of the swarm.
    pub name: String,
    /// Its role.
    pub system_prompt: String,
    /// Its task: the user's message.
    pub task_prompt: String,
    /// The id of the model that it runs on.
    pub model: String,
    /// From 0 to 2.
    pub temperature: f64,
    /// Tokens of each of its model's answers.
    pub max_tokens: u32,
    /// How often its model is called.
    pub max_iterations: u32,
    /// The tools that it may call.
    pub tools: Vec<AgentTool>,
    /// The ids of the integrations that its tools may call.
    pub integrations: Vec<String>,
    /// Where its tool `webhook` may post to.
    pub webhook_urls: Vec<String>,
    /// The agent whose output it is told.
    pub depends_on: Option<String>,
}

/// Who asks for a swarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// A user, of whom the proof says who they are and which plan they have.
    User,
    /// A service, whose request names both.
    Service,
}

/// What a body says of who pays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The user's id.
    pub user_id: String,
    /// The plan whose bounds apply.
    pub plan: Plan,
}

/// A tool as it was when the swarm was asked for: whoever goes on with the swarm asks models the very same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentTool {
    /// The slot's name, by which models call it.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// What its arguments may be: a JSON Schema object.
    pub parameters: Value,
}

/// What an agent is given that says nothing of it.
#[derive(Clone, Copy)]
pub struct Defaults<'a> {
    /// The model's id, if there is a model.
    pub model: Option<&'a str>,
    /// The tool of a name, if there is one. Some are given to agents that name none.
    pub tool: &'a dyn Fn(&str) -> Option<AgentTool>,
    /// Whether an operator has configured the integration of an id.
    pub integration: &'a dyn Fn(&str) -> bool,
}

/// A swarm, as a user asks for it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SwarmRequest, example = json!({
    "swarm_id": "notes",
    "agents": [{ "name": "writer", "system_prompt": "You write.", "task_prompt": "Write a note.", "tools": [] }],
}))]
pub(super) struct Body {
    #[schema(ignore)]
    user_id: Option<String>,
    /// The task that it is run for.
    #[schema(
        min_length = 1,
        max_length = 256,
        pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$"
    )]
    task_id: Option<String>,
    /// As whoever asks names the pipeline.
    #[schema(value_type = String, required = true, min_length = 1, max_length = 256, pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$")]
    swarm_id: Option<String>,
    #[schema(ignore)]
    plan: Option<String>,
    /// The agents, each with a name of its own.
    #[schema(value_type = Vec<BodyAgent>, required = true, min_items = 1, max_items = 10)]
    agents: Option<Vec<BodyAgent>>,
    /// The most that it may cost; 2,000 unless set.
    #[schema(minimum = 1)]
    max_total_credits: Option<f64>,
    /// What the first agent is told besides.
    context: Option<String>,
}

/// An agent of a swarm.
#[derive(Deserialize, ToSchema)]
#[schema(as = SwarmAgent)]
#[serde(deny_unknown_fields)]
pub struct BodyAgent {
    /// Its name, like no other's of the swarm.
    #[schema(value_type = String, required = true, min_length = 1, max_length = 128, pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$")]
    name: Option<String>,
    /// Its role.
    #[schema(value_type = String, required = true)]
    system_prompt: Option<String>,
    /// Its task: the user's message.
    #[schema(value_type = String, required = true, min_length = 1)]
    task_prompt: Option<String>,
    /// The id of the model that it runs on; the gateway's own choice unless set.
    model: Option<String>,
    /// How much is left to chance; 0.7 unless set.
    #[schema(minimum = 0, maximum = 2)]
    temperature: Option<f64>,
    /// Tokens of each of its model's answers; 4,096 unless set.
    #[schema(minimum = 256, maximum = 65536)]
    max_tokens: Option<i64>,
    /// How often its model is called; 10 unless set.
    #[schema(minimum = 1, maximum = 25)]
    max_iterations: Option<i64>,
    /// The tools that it may call; `http_get` and `api_call` unless set, where they are there.
    #[schema(max_items = 16)]
    tools: Option<Vec<String>>,
    /// The ids of the integrations that its tools may call.
    #[schema(max_items = 16)]
    integrations: Option<Vec<String>>,
    /// Where its tool `webhook` may post to.
    #[schema(max_items = 3)]
    webhook_urls: Option<Vec<String>>,
    /// The agent whose output it is told; in their order unless set.
    depends_on: Option<String>,
}

/// Reads a swarm, and of a service's request who pays for it.
///
/// # Errors
///
/// 400 `INVALID_REQUEST` with the path of the field that is wrong.
pub fn read(
    body: &[u8],
    asker: Asker,
    defaults: Defaults<'_>,
) -> Result<(SwarmRequest, Option<Named>), ApiError> {
    let body: Body = from_json(body)?;
    let named = match asker {
        Asker::User => {
            for (field, is_there) in [
                ("user_id", body.user_id.is_some()),
                ("plan", body.plan.is_some()),
            ] {
                if is_there {
                    return Err(invalid(field, "It comes from who calls; leave it out."));
                }
            }
            None
        }
        Asker::Service => Some(Named {
            user_id: id(body.user_id, "user_id")?,
            plan: plan(body.plan)?,
        }),
    };
    let agents = required(body.agents, "agents")?;
    if !(1..=MAX_AGENTS).contains(&agents.len()) {
        return Err(invalid(
            "agents",
            format!("A swarm has 1 to {MAX_AGENTS} agents."),
        ));
    }
    let agents = agents.into_iter().enumerate();
    let agents: Vec<Agent> = agents
        .map(|(index, body)| agent(body, &format!("agents[{index}]"), defaults))
        .collect::<Result<_, _>>()?;
    check_names(&agents)?;
    let request = SwarmRequest {
        swarm_id: id(body.swarm_id, "swarm_id")?,
        task_id: body
            .task_id
            .map(|task_id| id(Some(task_id), "task_id"))
            .transpose()?,
        agents,
        max_total_credits: budget(body.max_total_credits)?,
        context: body
            .context
            .map(|context| text(Some(context), "context"))
            .transpose()?
            .filter(|context| !context.is_empty()),
        trace_parent: None,
        from_task: false,
    };
    Ok((request, named))
}

fn agent(body: BodyAgent, path: &str, defaults: Defaults<'_>) -> Result<Agent, ApiError> {
    let at = |field: &str| format!("{path}.{field}");
    let name = required(body.name, &at("name"))?;
    if !(1..=MAX_NAME_CHARS).contains(&name.chars().count()) || name.contains(char::is_control) {
        return Err(invalid(
            at("name"),
            format!(
                "A name has 1 to {MAX_NAME_CHARS} characters, none of them a control character."
            ),
        ));
    }
    let temperature = body.temperature.unwrap_or(0.7);
    if !(0.0..=2.0).contains(&temperature) {
        return Err(invalid(at("temperature"), "It is from 0 to 2."));
    }
    let model = match (body.model, defaults.model) {
        (Some(model), _) => id(Some(model), &at("model"))?,
        (None, Some(model)) => model.to_owned(),
        (None, None) => {
            return Err(invalid(
                at("model"),
                "This gateway has no model for agents that name none; name one.",
            ));
        }
    };
    let tools = tools(body.tools.as_deref(), defaults.tool, &at("tools"))?;
    let integrations = body.integrations.unwrap_or_default();
    names(&integrations, &at("integrations"))?;
    for (index, id) in integrations.iter().enumerate() {
        if !(defaults.integration)(id) {
            let what = format!("There is no integration {:?}.", shown(id));
            return Err(invalid(format!("{}[{index}]", at("integrations")), what));
        }
    }
    let webhook_urls = body.webhook_urls.unwrap_or_default();
    webhooks(&webhook_urls, &at("webhook_urls"))?;
    Ok(Agent {
        tools,
        integrations,
        webhook_urls,
        system_prompt: text(body.system_prompt, &at("system_prompt"))?,
        task_prompt: filled(body.task_prompt, &at("task_prompt"))?,
        model,
        temperature,
        max_tokens: between(body.max_tokens, 4_096, 256, 65_536, &at("max_tokens"))?,
        max_iterations: between(body.max_iterations, 10, 1, 25, &at("max_iterations"))?,
        depends_on: body.depends_on,
        name,
    })
}

/// The tools of an agent that names these.
fn tools(
    named: Option<&[String]>,
    find: impl Fn(&str) -> Option<AgentTool>,
    path: &str,
) -> Result<Vec<AgentTool>, ApiError> {
    let Some(named) = named else {
        return Ok(DEFAULT_TOOLS.into_iter().filter_map(&find).collect());
    };
    names(named, path)?;
    let each = named.iter().enumerate().map(|(index, name)| {
        let wrong = |what: String| invalid(format!("{path}[{index}]"), what);
        match named[..index].contains(name) {
            true => Err(wrong("It is there twice.".to_owned())),
            false => {
                find(name).ok_or_else(|| wrong(format!("There is no tool {:?}.", shown(name))))
            }
        }
    });
    each.collect()
}

/// Names are unique, and dependencies are among them.
fn check_names(agents: &[Agent]) -> Result<(), ApiError> {
    for (index, agent) in agents.iter().enumerate() {
        let path = |field: &str| format!("agents[{index}].{field}");
        if agents[..index].iter().any(|other| other.name == agent.name) {
            let what = format!("Another agent is called {:?} already.", shown(&agent.name));
            return Err(invalid(path("name"), what));
        }
        if let Some(wanted) = &agent.depends_on
            && !agents.iter().any(|other| other.name == *wanted)
        {
            let what = format!("There is no agent {:?} in this swarm.", shown(wanted));
            return Err(invalid(path("depends_on"), what));
        }
    }
    Ok(())
}

/// In micro-credits, the rest cut off.
fn budget(asked: Option<f64>) -> Result<Credits, ApiError> {
    let Some(asked) = asked else {
        return Ok(DEFAULT_CREDITS);
    };
    let most = Credits::MAX.micro() as f64;
    let budget = Credits::from_micro((asked * 1e6).clamp(0.0, most) as i64);
    if budget < LEAST_CREDITS {
        return Err(invalid("max_total_credits", "It is 1 at least."));
    }
    Ok(budget)
}

fn plan(plan: Option<String>) -> Result<Plan, ApiError> {
    let plan = required(plan, "plan")?;
    match plan.parse() {
        Ok(plan @ (Plan::Guru | Plan::Pro)) => Ok(plan),
        Ok(Plan::Free) => Err(not_eligible().with_param("plan")),
        Err(_) => Err(invalid("plan", "It is guru or pro.")),
    }
}

fn names(names: &[String], path: &str) -> Result<(), ApiError> {
    if names.len() > MAX_NAMES {
        return Err(invalid(path, format!("There are at most {MAX_NAMES}.")));
    }
    for (index, name) in names.iter().enumerate() {
        id(Some(name.clone()), &format!("{path}[{index}]"))?;
    }
    Ok(())
}

fn webhooks(urls: &[String], path: &str) -> Result<(), ApiError> {
    if urls.len() > MAX_WEBHOOKS {
        return Err(invalid(path, format!("There are at most {MAX_WEBHOOKS}.")));
    }
    for (index, url) in urls.iter().enumerate() {
        let is_https = Url::parse(url).is_ok_and(|url| url.scheme() == "https");
        if url.len() > MAX_URL_BYTES || !is_https {
            let what = format!("It is an https URL of at most {MAX_URL_BYTES} bytes.");
            return Err(invalid(format!("{path}[{index}]"), what));
        }
    }
    Ok(())
}

fn id(text: Option<String>, field: &str) -> Result<String, ApiError> {
    let id = required(text, field)?;
    match (1..=MAX_ID_CHARS).contains(&id.chars().count()) && !id.contains(char::is_control) {
        true => Ok(id),
        false => Err(invalid(
            field,
            format!("It is a text of 1 to {MAX_ID_CHARS} characters without control characters."),
        )),
    }
}

fn text(text: Option<String>, field: &str) -> Result<String, ApiError> {
    let text = required(text, field)?;
    match text.len() <= MAX_TEXT_BYTES {
        true => Ok(text),
        false => Err(invalid(
            field,
            format!("It has {MAX_TEXT_BYTES} bytes at most."),
        )),
    }
}

/// Models refuse an empty message.
fn filled(prompt: Option<String>, field: &str) -> Result<String, ApiError> {
    let prompt = text(prompt, field)?;
    match prompt.trim().is_empty() {
        false => Ok(prompt),
        true => Err(invalid(field, "It is empty.")),
    }
}

fn between(
    number: Option<i64>,
    default: u32,
    least: u32,
    most: u32,
    field: &str,
) -> Result<u32, ApiError> {
    let number = number.map_or(Some(default), |number| u32::try_from(number).ok());
    let number = number.filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| invalid(field, format!("It is from {least} to {most}.")))
}

fn required<T>(value: Option<T>, field: &str) -> Result<T, ApiError> {
    value.ok_or_else(|| invalid(field, "It is missing."))
}

fn invalid(field: impl Into<String>, what: impl Into<String>) -> ApiError {
    ApiError::invalid_request(field, what)
}

/// The start of a name, to be repeated to who wrote it.
fn shown(name: &str) -> String {
    weir_sandbox::printable(name, MAX_NAME_CHARS)
}

/// 400: an agent's model is none of the catalog's.
pub fn invalid_model(index: usize, model: &str) -> ApiError {
    let message = format!(
        "There is no model {:?}; GET /models lists them.",
        shown(model)
    );
    ApiError::new(ErrorCode::InvalidModel, message).with_param(format!("agents[{index}].model"))
}

/// 403: the plan has no swarms.
pub fn not_eligible() -> ApiError {
    ApiError::new(
        ErrorCode::PlanNotEligible,
        "The plan free has no swarms; guru and pro have.",
    )
    .with_no_retry()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn body() -> Value {
        json!({ "swarm_id": "s", "agents": [
            { "name": "a", "system_prompt": "You are a.", "task_prompt": "Do it." },
            { "name": "b", "system_prompt": "", "task_prompt": "Do more.", "depends_on": "a" },
        ] })
    }

    fn read_as(asker: Asker, body: &Value) -> Result<(SwarmRequest, Option<Named>), ApiError> {
        let tools = ["http_get", "webhook"].map(|name| AgentTool {
            name: name.to_owned(),
            description: String::new(),
            parameters: json!({}),
        });
        let defaults = Defaults {
            model: Some("mid"),
            tool: &|name| tools.iter().find(|tool| tool.name == name).cloned(),
            integration: &|id| id == "crm",
        };
        read(body.to_string().as_bytes(), asker, defaults)
    }

    /// The body with something at a JSON pointer, whose parent exists.
    fn with(pointer: &str, value: Value) -> Value {
        let mut body = body();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        body.pointer_mut(parent).unwrap()[field] = value;
        body
    }

    #[test]
    fn defaults_are_those_of_the_documentation() {
        let (request, named) = read_as(Asker::User, &body()).unwrap();
        assert_eq!(named, None);
        assert_eq!(request.max_total_credits, Credits::whole(2_000));
        let agent = &request.agents[0];
        assert_eq!(agent.tools.len(), 1, "the other one is not there");
        assert_eq!(agent.tools[0].name, "http_get");
        assert_eq!(
            (
                &*agent.model,
                agent.temperature,
                agent.max_tokens,
                agent.max_iterations
            ),
            ("mid", 0.7, 4_096, 10)
        );
    }

    #[test]
    fn each_field_that_is_wrong_is_named_by_its_path() {
        let agent = &body()["agents"][0];
        let many: Vec<_> = (0..11)
            .map(|number| {
                let mut agent = agent.clone();
                agent["name"] = json!(format!("a{number}"));
                agent
            })
            .collect();
        for (pointer, value, param) in [
            ("/swarm_id", Value::Null, "swarm_id"),
            ("/swarm_id", json!(""), "swarm_id"),
            ("/task_id", json!("a\nb"), "task_id"),
            ("/user_id", json!("bob"), "user_id"),
            ("/plan", json!("pro"), "plan"),
            ("/agents", json!([]), "agents"),
            ("/agents", json!(many), "agents"),
            ("/agents", json!({}), "agents"),
            ("/max_total_credits", json!(0.5), "max_total_credits"),
            ("/max_total_credits", json!(-1), "max_total_credits"),
            ("/context", json!("x".repeat(MAX_TEXT_BYTES + 1)), "context"),
            ("/agents/0/name", json!(""), "agents[0].name"),
            ("/agents/1/name", json!("a"), "agents[1].name"),
            (
                "/agents/1/system_prompt",
                Value::Null,
                "agents[1].system_prompt",
            ),
            (
                "/agents/1/task_prompt",
                json!("  "),
                "agents[1].task_prompt",
            ),
            ("/agents/1/temperature", json!(2.1), "agents[1].temperature"),
            ("/agents/1/max_tokens", json!(255), "agents[1].max_tokens"),
            (
                "/agents/1/max_tokens",
                json!(65_537),
                "agents[1].max_tokens",
            ),
            (
                "/agents/1/max_iterations",
                json!(0),
                "agents[1].max_iterations",
            ),
            (
                "/agents/1/max_iterations",
                json!(26),
                "agents[1].max_iterations",
            ),
            ("/agents/1/tools", json!(["none"]), "agents[1].tools[0]"),
            (
                "/agents/1/tools",
                json!(["webhook", "webhook"]),
                "agents[1].tools[1]",
            ),
            (
                "/agents/1/webhook_urls",
                json!(["http://a.example"]),
                "agents[1].webhook_urls[0]",
            ),
            (
                "/agents/1/webhook_urls",
                json!(["", "", "", ""]),
                "agents[1].webhook_urls",
            ),
            (
                "/agents/1/depends_on",
                json!("nobody"),
                "agents[1].depends_on",
            ),
        ] {
            let error = read_as(Asker::User, &with(pointer, value)).unwrap_err();
            assert_eq!(
                (error.code(), error.param()),
                ("INVALID_REQUEST", Some(param)),
                "{pointer}"
            );
        }
        let unknown = read_as(Asker::User, &with("/agents/0/tool", json!([]))).unwrap_err();
        assert_eq!(unknown.code(), "INVALID_REQUEST");
    }

    #[test]
    fn a_service_names_who_pays_and_a_plan_that_has_swarms() {
        let named = |user: Value, plan: Value| {
            let mut body = body();
            body["user_id"] = user;
            body["plan"] = plan;
            read_as(Asker::Service, &body).map(|(_, named)| named)
        };
        let bob = named(json!("bob"), json!("guru")).unwrap().unwrap();
        assert_eq!((&*bob.user_id, bob.plan), ("bob", Plan::Guru));
        for (user, plan, param, code) in [
            (Value::Null, json!("pro"), "user_id", "INVALID_REQUEST"),
            (json!("bob"), Value::Null, "plan", "INVALID_REQUEST"),
            (json!("bob"), json!("gold"), "plan", "INVALID_REQUEST"),
            (json!("bob"), json!("free"), "plan", "PLAN_NOT_ELIGIBLE"),
        ] {
            let error = named(user, plan).unwrap_err();
            assert_eq!((error.code(), error.param()), (code, Some(param)));
        }
    }
}
