//! Limits of swarms by plan, and the resulting budget.

use weir_errors::{ApiError, ErrorCode};
use weir_ledger::{Credits, Plan};

use super::request::{SwarmRequest, not_eligible};

/// The limits of a plan's swarms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// The maximum number of agents.
    pub agents: usize,
    /// The maximum iterations of each agent.
    pub iterations: u32,
    /// The maximum cost of one execution.
    pub credits: Credits,
}

impl Caps {
    /// Returns the limits of a plan; `None` for plans without swarms.
    pub fn of(plan: Plan) -> Option<Self> {
        match plan {
            Plan::Free => None,
            Plan::Guru => Some(Self {
                agents: 5,
                iterations: 10,
                credits: Credits::whole(100),
            }),
            Plan::Pro => Some(Self {
                agents: 10,
                iterations: 25,
                credits: Credits::whole(500),
            }),
        }
    }

    /// Refuses a swarm that exceeds the limits.
    pub fn check(&self, request: &SwarmRequest) -> Result<(), ApiError> {
        if request.agents.len() > self.agents {
            return Err(exceeded("agents", "agents", self.agents));
        }
        for (index, agent) in request.agents.iter().enumerate() {
            if agent.max_iterations > self.iterations {
                let field = format!("agents[{index}].max_iterations");
                return Err(exceeded(&field, "iterations of an agent", self.iterations));
            }
        }
        Ok(())
    }

    /// Returns the maximum cost of a swarm: the requested budget, or the plan's limit if that is lower. The user's
    /// balance is checked when the swarm begins.
    pub fn budget(&self, request: &SwarmRequest) -> Credits {
        request.max_total_credits.min(self.credits)
    }
}

/// Returns the limits of the requested plan, for a user with this plan.
pub fn caps(user: Plan, asked: Plan) -> Result<Caps, ApiError> {
    // Plans are ordered by their limits.
    if asked > user {
        return Err(ApiError::new(
            ErrorCode::PlanNotEligible,
            format!("The user is on the plan {user}, which is lower than {asked}."),
        )
        .with_param("plan"));
    }
    Caps::of(asked).ok_or_else(not_eligible)
}

fn exceeded(field: &str, what: &str, most: impl std::fmt::Display) -> ApiError {
    ApiError::new(
        ErrorCode::PlanLimitExceeded,
        format!("The plan allows at most {most} {what}."),
    )
    .with_param(field)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::swarm::request::{Defaults, SwarmCaller, read};

    fn swarm(agents: usize, iterations: u32, credits: Option<u32>) -> SwarmRequest {
        let agents: Vec<_> = (0..agents)
            .map(|number| {
                serde_json::json!({ "name": format!("a{number}"), "system_prompt": "",
                    "task_prompt": "x", "max_iterations": iterations })
            })
            .collect();
        let mut body = serde_json::json!({ "swarm_id": "s", "agents": agents });
        if let Some(credits) = credits {
            body["max_total_credits"] = credits.into();
        }
        let defaults = Defaults {
            model: Some("m"),
            tool: &|_| None,
            integration: &|_| true,
        };
        let read = read(body.to_string().as_bytes(), SwarmCaller::User, defaults);
        read.unwrap().0
    }

    #[test]
    fn what_is_more_than_the_plan_allows_is_refused_by_its_field() {
        for (plan, agents, iterations, param) in [
            (Plan::Guru, 5, 10, None),
            (Plan::Guru, 6, 10, Some("agents")),
            (Plan::Guru, 1, 11, Some("agents[0].max_iterations")),
            (Plan::Pro, 10, 25, None),
        ] {
            let caps = caps(plan, plan).unwrap();
            let checked = caps.check(&swarm(agents, iterations, None));
            let refused = checked.err();
            assert_eq!(refused.as_ref().and_then(ApiError::param), param);
            assert!(refused.is_none_or(|error| error.code() == "PLAN_LIMIT_EXCEEDED"));
        }
    }

    #[test]
    fn a_plan_above_the_users_own_or_without_swarms_is_refused() {
        for (user, asked, allowed) in [
            (Plan::Free, Plan::Free, false),
            (Plan::Free, Plan::Guru, false),
            (Plan::Guru, Plan::Pro, false),
            (Plan::Guru, Plan::Guru, true),
            (Plan::Pro, Plan::Guru, true),
            (Plan::Pro, Plan::Pro, true),
        ] {
            let caps = caps(user, asked);
            assert_eq!(caps.is_ok(), allowed, "{user} {asked}");
        }
    }

    #[test]
    fn the_budget_is_the_less_of_what_is_asked_for_and_allowed() {
        for (plan, asked, budget) in [
            (Plan::Guru, None, 100),
            (Plan::Guru, Some(40), 40),
            (Plan::Pro, None, 500),
            (Plan::Pro, Some(600), 500),
            (Plan::Pro, Some(500), 500),
        ] {
            let budget = Credits::whole(budget);
            assert_eq!(Caps::of(plan).unwrap().budget(&swarm(1, 1, asked)), budget);
        }
    }
}
