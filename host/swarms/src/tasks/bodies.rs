//! Bodies of task endpoints that have a type only in the OpenAPI document. `tests/run --api` validates responses against it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::swarm::request::BodyAgent;

/// A task: a swarm in the format of `POST /swarms`, with a name and a schedule. Its `swarm_id` is the name unless set.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "name": "Morning report",
    "schedule": { "cron": "0 9 * * MON-FRI", "time_zone": "Europe/Berlin" },
    "agents": [{ "name": "writer", "system_prompt": "You write.", "task_prompt": "Write a report.", "tools": [] }],
}))]
pub struct TaskDefinition {
    /// The owner's name of the task.
    #[schema(
        min_length = 1,
        max_length = 256,
        pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$"
    )]
    pub name: String,
    /// The schedule; without it only requests start the task.
    pub schedule: Option<TaskSchedule>,
    /// Whether the schedule is paused.
    pub paused: Option<bool>,
    /// The pipeline's name; the task's name unless set.
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 256,
        pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$"
    )]
    pub swarm_id: Option<String>,
    /// Maximum credits of each run; 2,000 unless set.
    #[schema(minimum = 1)]
    pub max_total_credits: Option<f64>,
    /// Additional context for the first agent.
    pub context: Option<String>,
    /// The agents, as in `POST /swarms`.
    #[schema(min_items = 1, max_items = 10)]
    pub agents: Vec<BodyAgent>,
}

/// A task as its owner wrote it, with its state.
#[derive(Serialize, ToSchema)]
pub struct TaskItem {
    /// The task's id.
    #[schema(pattern = "^task_[0-9a-f]{32}$")]
    pub task_id: String,
    /// The owner's name of the task.
    pub name: String,
    /// The API key that last defined the task: its models, budgets and expiry apply to the runs; null if a signed-in
    /// user defined it.
    pub key_id: Option<String>,
    /// The schedule.
    pub schedule: Option<TaskSchedule>,
    /// Whether the schedule is paused.
    pub paused: bool,
    /// The time of the next scheduled start.
    pub next_fire_at: Option<String>,
    /// The time of the definition.
    pub created_at: String,
    /// The time of the last change.
    pub updated_at: String,
    /// The last start.
    pub last_run: Option<TaskRun>,
    /// The last ten starts; not in lists.
    #[schema(nullable = false)]
    pub runs: Option<Vec<TaskRun>>,
    /// The credentials of its agents' tools; not in lists, and without the secrets.
    #[schema(nullable = false, value_type = Option<Vec<Object>>)]
    pub credentials: Option<Vec<Value>>,
}

/// A task's schedule.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct TaskSchedule {
    /// Minute, hour, day of the month, month and day of the week.
    pub cron: String,
    /// An IANA time zone, such as `Europe/Berlin`; `UTC` unless set.
    #[serde(default)]
    pub time_zone: String,
}

/// A start of a task.
#[derive(Serialize, ToSchema)]
pub struct TaskRun {
    /// The trigger: `schedule`, `queue` or `manual`.
    pub trigger_type: String,
    /// The scheduled time of this start.
    pub scheduled_for: Option<String>,
    /// The time of the start.
    pub started_at: String,
    /// The swarm.
    pub execution_id: Option<String>,
    /// The swarm's status, `starting` or `refused`.
    pub status: Option<String>,
    /// The swarm's cost so far, in credits.
    pub total_credits: Option<f64>,
    /// The reason why weir refused the start.
    #[schema(value_type = Option<Object>)]
    pub error: Option<Value>,
}

/// A page of the caller's tasks.
#[derive(Serialize, ToSchema)]
pub struct TaskList {
    /// Tasks, newest first.
    pub tasks: Vec<TaskItem>,
    /// The `before` of the next page; null on the last page.
    pub next: Option<String>,
}

/// A stored credential, without its secret.
#[derive(Serialize, ToSchema)]
pub struct CredentialItem {
    /// The task's id.
    pub task_id: String,
    /// The credential's name.
    pub name: String,
    /// The only origin to which weir sends the credential.
    pub origin: String,
    /// The methods with which weir sends the credential.
    pub methods: Vec<String>,
    /// The required prefix of the path.
    pub path: String,
    /// The header that carries the credential.
    pub header: String,
    /// The text before the credential in the header.
    pub prefix: Option<String>,
    /// The time of storage.
    pub created_at: String,
}
