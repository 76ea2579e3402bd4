//! Bodies of swarm endpoints that have a type only in the OpenAPI document. `tests/run --api` validates responses against it.

use serde::Serialize;
use utoipa::ToSchema;
use weir_request::schemas::PaidPlan;

use super::record::{AgentResult, SwarmRecord};
use super::request::BodyAgent;
use super::templates::Template;

/// A service's request for a swarm: a user's request, plus the user who pays.
#[derive(ToSchema)]
pub struct ServiceSwarmRequest {
    /// The user who pays.
    #[schema(min_length = 1, max_length = 256)]
    pub user_id: String,
    /// The plan, which sets the limits.
    pub plan: PaidPlan,
    /// The service's name of the pipeline.
    #[schema(min_length = 1, max_length = 256)]
    pub swarm_id: String,
    /// The agents, as in `POST /swarms`.
    #[schema(min_items = 1, max_items = 10)]
    pub agents: Vec<BodyAgent>,
}

/// A swarm with its agents' results.
#[derive(Serialize, ToSchema)]
#[schema(as = SwarmInFull)]
pub struct SwarmDetails {
    /// The swarm.
    #[serde(flatten)]
    pub record: SwarmRecord,
    /// The results of finished agents, in order.
    pub agents: Vec<AgentResult>,
}

/// A page of the caller's swarms.
#[derive(Serialize, ToSchema)]
pub struct SwarmList {
    /// Swarms, newest first.
    pub swarms: Vec<SwarmRecord>,
    /// The `before` of the next page; null on the last page.
    pub next: Option<String>,
}

/// Templates for swarms.
#[derive(Serialize, ToSchema)]
pub struct TemplateList {
    /// The templates.
    pub templates: Vec<Template>,
}
