//! Bodies that are written without a type of their own, for the document alone. That answers look like this is checked by
//! `tests/run --api`.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::billing::history::UsageReport;
use crate::billing::usage::Summary;
use crate::catalog::ModelItem;
use crate::schemas::PaidPlan;
use crate::swarm::record::{AgentResult, Record};
use crate::swarm::request::BodyAgent;
use crate::swarm::templates::Template;

/// A swarm as a service asks for it: as a user does, with who pays.
#[derive(ToSchema)]
pub struct ServiceSwarmRequest {
    /// The user who pays.
    #[schema(min_length = 1, max_length = 256)]
    pub user_id: String,
    /// The plan whose bounds apply.
    pub plan: PaidPlan,
    /// As the service names the pipeline.
    #[schema(min_length = 1, max_length = 256)]
    pub swarm_id: String,
    /// The agents, as of `POST /swarms`.
    #[schema(min_items = 1, max_items = 10)]
    pub agents: Vec<BodyAgent>,
}

/// A swarm with what became of its agents.
#[derive(Serialize, ToSchema)]
pub struct SwarmInFull {
    /// The swarm.
    #[serde(flatten)]
    pub record: Record,
    /// Those of its agents that have ended, in order.
    pub agents: Vec<AgentResult>,
}

/// Some of the caller's swarms.
#[derive(Serialize, ToSchema)]
pub struct SwarmList {
    /// The last one first.
    pub swarms: Vec<Record>,
    /// The `before` of the next part; null if this is the last.
    pub next: Option<String>,
}

/// A task: a swarm as `POST /swarms` takes it, with a name and a schedule. Its `swarm_id` is the name unless set.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "name": "Morning report",
    "schedule": { "cron": "0 9 * * MON-FRI", "time_zone": "Europe/Berlin" },
    "agents": [{ "name": "writer", "system_prompt": "You write.", "task_prompt": "Write a report.", "tools": [] }],
}))]
pub struct TaskDefinition {
    /// What its owner calls it.
    #[schema(
        min_length = 1,
        max_length = 256,
        pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$"
    )]
    pub name: String,
    /// When it is started by itself; never, unless set.
    pub schedule: Option<TaskSchedule>,
    /// Whether the schedule is not to fire.
    pub paused: Option<bool>,
    /// What the pipeline is called; as the task unless set.
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 256,
        pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$"
    )]
    pub swarm_id: Option<String>,
    /// The most that each run may cost; 2,000 unless set.
    #[schema(minimum = 1)]
    pub max_total_credits: Option<f64>,
    /// What the first agent is told besides.
    pub context: Option<String>,
    /// The agents, as of `POST /swarms`.
    #[schema(min_items = 1, max_items = 10)]
    pub agents: Vec<BodyAgent>,
}

/// A task as its owner wrote it, with what became of it.
#[derive(Serialize, ToSchema)]
pub struct TaskItem {
    /// Its id.
    #[schema(pattern = "^task_[0-9a-f]{32}$")]
    pub task_id: String,
    /// What its owner calls it.
    pub name: String,
    /// The API key that it was last defined with, whose models, budgets and expiry hold for its runs; null if it was defined
    /// in person.
    pub key_id: Option<String>,
    /// When it is started by itself.
    pub schedule: Option<TaskSchedule>,
    /// Whether the schedule is not to fire.
    pub paused: bool,
    /// When it is started next.
    pub next_fire_at: Option<String>,
    /// When it was defined.
    pub created_at: String,
    /// When it was changed.
    pub updated_at: String,
    /// Its last start.
    pub last_run: Option<TaskRun>,
    /// Its last ten starts; not in lists.
    #[schema(nullable = false)]
    pub runs: Option<Vec<TaskRun>>,
    /// What its agents' tools prove themselves with; not in lists, and without the secrets.
    #[schema(nullable = false, value_type = Option<Vec<Object>>)]
    pub credentials: Option<Vec<Value>>,
}

/// When a task is started by itself.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct TaskSchedule {
    /// Minute, hour, day of the month, month and day of the week.
    pub cron: String,
    /// A name of IANA's, such as `Europe/Berlin`; `UTC` unless set.
    #[serde(default)]
    pub time_zone: String,
}

/// A start of a task.
#[derive(Serialize, ToSchema)]
pub struct TaskRun {
    /// What has started it: `schedule`, `queue` or `manual`.
    pub trigger_type: String,
    /// The moment of its schedule that it was for.
    pub scheduled_for: Option<String>,
    /// When it was started.
    pub started_at: String,
    /// The swarm.
    pub execution_id: Option<String>,
    /// The swarm's status, `starting` or `refused`.
    pub status: Option<String>,
    /// What the swarm has cost so far.
    pub total_credits: Option<f64>,
    /// Why it was refused.
    #[schema(value_type = Option<Object>)]
    pub error: Option<Value>,
}

/// Some of the caller's tasks.
#[derive(Serialize, ToSchema)]
pub struct TaskList {
    /// The last one first.
    pub tasks: Vec<TaskItem>,
    /// The `before` of the next part; null if this is the last.
    pub next: Option<String>,
}

/// What was used: of the current cycle or, where a `group` is asked for, of some days.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum UsageAnswer {
    /// Of the current cycle.
    Cycle(Summary),
    /// Of some days.
    Days(UsageReport),
}

/// The models that the caller may use.
#[derive(Serialize, ToSchema)]
pub struct ModelList<'a> {
    /// By id.
    pub models: Vec<ModelItem<'a>>,
}

/// Swarms that are ready to be asked for.
#[derive(Serialize, ToSchema)]
pub struct TemplateList {
    /// The pipelines.
    pub templates: Vec<Template>,
}

/// A credential that is kept; its secret is not shown.
#[derive(Serialize, ToSchema)]
pub struct CredentialItem {
    /// The task's id.
    pub task_id: String,
    /// Its name.
    pub name: String,
    /// The origin that it is sent to alone.
    pub origin: String,
    /// The methods that it is sent with.
    pub methods: Vec<String>,
    /// What paths must begin with.
    pub path: String,
    /// The header that it is sent in.
    pub header: String,
    /// What stands before it there.
    pub prefix: Option<String>,
    /// When it was kept.
    pub created_at: String,
}

/// The process answers.
#[derive(Serialize, ToSchema)]
pub struct Health {
    /// `ok`.
    pub status: String,
}

/// Requests can be served.
#[derive(Serialize, ToSchema)]
pub struct Readiness {
    /// `ready`.
    pub status: String,
    /// Slots of adapters that serve.
    pub adapters: u64,
}
