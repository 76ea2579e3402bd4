//! The request of a swarm: reads the body, and checks the limits of each field.
//!
//! **Invariant:** a request from here can run: names are unique, each dependency is an agent of the swarm, and every
//! number is within its limits. Only circular dependencies remain possible; they end the swarm before any agent runs.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::{Credits, Plan};
use weir_request::json::from_json;

/// The maximum agents of a swarm.
const MAX_AGENTS: usize = 10;

/// The maximum bytes of a prompt, or of the context.
const MAX_TEXT_BYTES: usize = 256 << 10;

/// The maximum characters of an id.
const MAX_ID_CHARS: usize = 256;

/// The maximum characters of an agent's name.
const MAX_NAME_CHARS: usize = 128;

/// The maximum tools, and maximum integrations, of an agent.
const MAX_NAMES: usize = 16;

/// The maximum webhooks of an agent.
const MAX_WEBHOOKS: usize = 3;

/// The default tools of an agent, if their slots exist.
const DEFAULT_TOOLS: [&str; 2] = ["http_get", "api_call"];

/// The maximum bytes of a webhook's URL.
const MAX_URL_BYTES: usize = 2_048;

/// The minimum budget of a request.
const LEAST_CREDITS: Credits = Credits::whole(1);

/// The default budget.
const DEFAULT_CREDITS: Credits = Credits::whole(2_000);

/// A swarm with all defaults filled in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SwarmRequest {
    /// The client's name of the pipeline.
    pub swarm_id: String,
    /// The task of the swarm.
    pub task_id: Option<String>,
    /// The agents, in written order.
    pub agents: Vec<SwarmAgent>,
    /// The maximum cost.
    pub max_total_credits: Credits,
    /// Additional text for the first agent.
    pub context: Option<String>,
    /// The parent in a trace, as in `traceparent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_parent: Option<String>,
    /// Whether a task stores the definition.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_task: bool,
}

impl SwarmRequest {
    /// Returns the agents' names, models and order: enough to show a finished run.
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
pub struct SwarmAgent {
    /// The agent's unique name within the swarm.
    pub name: String,
    /// The agent's role.
    pub system_prompt: String,
    /// The agent's task: the user message.
    pub task_prompt: String,
    /// The id of the agent's model.
    pub model: String,
    /// The temperature, from 0 to 2.
    pub temperature: f64,
    /// The maximum tokens of each response.
    pub max_tokens: u32,
    /// The maximum model calls.
    pub max_iterations: u32,
    /// The allowed tools.
    pub tools: Vec<AgentTool>,
    /// The ids of integrations that its tools may call.
    pub integrations: Vec<String>,
    /// The allowed targets of the tool `webhook`.
    pub webhook_urls: Vec<String>,
    /// The agent whose output goes into the prompt.
    pub depends_on: Option<String>,
}

/// The caller of a swarm's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwarmCaller {
    /// A user, whose credentials determine the payer and the plan.
    User,
    /// A service, whose request names both.
    Service,
}

/// The payer in a service's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPayer {
    /// The user's id.
    pub user_id: String,
    /// The plan with the limits.
    pub plan: Plan,
}

/// A tool at the time of the request: later executors send models the same definition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentTool {
    /// The slot's name, which models use.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// The arguments' JSON Schema, an object.
    pub parameters: Value,
}

/// The gateway's defaults for agents.
#[derive(Clone, Copy)]
pub struct Defaults<'a> {
    /// The default model's id, if there is one.
    pub model: Option<&'a str>,
    /// Returns the tool with a name, if there is one. It also supplies the default tools.
    pub tool: &'a dyn Fn(&str) -> Option<AgentTool>,
    /// Whether the operator has configured an integration.
    pub integration: &'a dyn Fn(&str) -> bool,
}

/// An example of a user's request.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SwarmRequest, example = json!({
    "swarm_id": "notes",
    "agents": [{ "name": "writer", "system_prompt": "You write.", "task_prompt": "Write a note.", "tools": [] }],
}))]
pub(super) struct SwarmRequestBody {
    #[schema(ignore)]
    user_id: Option<String>,
    /// Task of the swarm.
    #[schema(
        min_length = 1,
        max_length = 256,
        pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$"
    )]
    task_id: Option<String>,
    /// Client's name of the pipeline.
    #[schema(value_type = String, required = true, min_length = 1, max_length = 256, pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$")]
    swarm_id: Option<String>,
    #[schema(ignore)]
    plan: Option<String>,
    /// Agents, each with a unique name.
    #[schema(value_type = Vec<BodyAgent>, required = true, min_items = 1, max_items = 10)]
    agents: Option<Vec<BodyAgent>>,
    /// Maximum cost; 2,000 unless set.
    #[schema(minimum = 1)]
    max_total_credits: Option<f64>,
    /// Additional text for the first agent.
    context: Option<String>,
}

/// An agent of a swarm.
#[derive(Deserialize, ToSchema)]
#[schema(as = SwarmAgent)]
#[serde(deny_unknown_fields)]
pub struct BodyAgent {
    /// Unique name within the swarm.
    #[schema(value_type = String, required = true, min_length = 1, max_length = 128, pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$")]
    name: Option<String>,
    /// Role of the agent.
    #[schema(value_type = String, required = true)]
    system_prompt: Option<String>,
    /// Task of the agent: the user message.
    #[schema(value_type = String, required = true, min_length = 1)]
    task_prompt: Option<String>,
    /// Id of the model; the gateway's default unless set.
    model: Option<String>,
    /// Temperature; 0.7 unless set.
    #[schema(minimum = 0, maximum = 2)]
    temperature: Option<f64>,
    /// Maximum tokens of each response; 4,096 unless set.
    #[schema(minimum = 256, maximum = 65536)]
    max_tokens: Option<i64>,
    /// Maximum model calls; 10 unless set.
    #[schema(minimum = 1, maximum = 25)]
    max_iterations: Option<i64>,
    /// Allowed tools; `http_get` and `api_call` unless set, if their slots exist.
    #[schema(max_items = 16)]
    tools: Option<Vec<String>>,
    /// Ids of integrations that the agent's tools may call.
    #[schema(max_items = 16)]
    integrations: Option<Vec<String>>,
    /// Allowed targets of the tool `webhook`.
    #[schema(max_items = 3)]
    webhook_urls: Option<Vec<String>>,
    /// Agent whose output goes into the prompt; without it, agents run in written order.
    depends_on: Option<String>,
}

/// Reads a swarm, and for services also its payer.
///
/// # Errors
///
/// 400 `INVALID_REQUEST` with the path of the invalid field.
pub fn read(
    body: &[u8],
    asker: SwarmCaller,
    defaults: Defaults<'_>,
) -> Result<(SwarmRequest, Option<NamedPayer>), ApiError> {
    let body: SwarmRequestBody = from_json(body)?;
    let named = match asker {
        SwarmCaller::User => {
            for (field, is_there) in [
                ("user_id", body.user_id.is_some()),
                ("plan", body.plan.is_some()),
            ] {
                if is_there {
                    return Err(invalid(
                        field,
                        "weir takes this value from the caller's credentials; leave it out.",
                    ));
                }
            }
            None
        }
        SwarmCaller::Service => Some(NamedPayer {
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
    let agents: Vec<SwarmAgent> = agents
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

fn agent(body: BodyAgent, path: &str, defaults: Defaults<'_>) -> Result<SwarmAgent, ApiError> {
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
                "This gateway has no default model; name a model.",
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
    Ok(SwarmAgent {
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

/// Returns the tools with these names.
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

/// Checks that names are unique, and that each dependency is an agent.
fn check_names(agents: &[SwarmAgent]) -> Result<(), ApiError> {
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

/// Returns the budget in micro-credits, rounded down.
pub(super) fn budget(asked: Option<f64>) -> Result<Credits, ApiError> {
    let Some(asked) = asked else {
        return Ok(DEFAULT_CREDITS);
    };
    let most = Credits::MAX.micro() as f64;
    let budget = Credits::from_micro((asked * 1e6).clamp(0.0, most) as i64);
    if budget < LEAST_CREDITS {
        return Err(invalid("max_total_credits", "It is at least 1."));
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
            format!("It has at most {MAX_TEXT_BYTES} bytes."),
        )),
    }
}

/// Models reject an empty message.
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

/// Returns the start of a name, for an error message.
fn shown(name: &str) -> String {
    weir_sandbox::printable(name, MAX_NAME_CHARS)
}

/// 400: the catalog does not have an agent's model.
pub fn invalid_model(index: usize, model: &str) -> ApiError {
    let message = format!(
        "The model {:?} does not exist; GET /models lists all models.",
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

    fn read_as(
        asker: SwarmCaller,
        body: &Value,
    ) -> Result<(SwarmRequest, Option<NamedPayer>), ApiError> {
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

    /// Returns the body with a changed value at a JSON pointer, whose parent exists.
    fn with(pointer: &str, value: Value) -> Value {
        let mut body = body();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        body.pointer_mut(parent).unwrap()[field] = value;
        body
    }

    #[test]
    fn defaults_are_those_of_the_documentation() {
        let (request, named) = read_as(SwarmCaller::User, &body()).unwrap();
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
            let error = read_as(SwarmCaller::User, &with(pointer, value)).unwrap_err();
            assert_eq!(
                (error.code(), error.param()),
                ("INVALID_REQUEST", Some(param)),
                "{pointer}"
            );
        }
        let unknown = read_as(SwarmCaller::User, &with("/agents/0/tool", json!([]))).unwrap_err();
        assert_eq!(unknown.code(), "INVALID_REQUEST");
    }

    #[test]
    fn a_service_names_who_pays_and_a_plan_that_has_swarms() {
        let named = |user: Value, plan: Value| {
            let mut body = body();
            body["user_id"] = user;
            body["plan"] = plan;
            read_as(SwarmCaller::Service, &body).map(|(_, named)| named)
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
