//! Tasks: swarms that an owner defines once and starts repeatedly: manually, by a queue's message, or by a schedule.
//!
//! weir stores a definition ([`definition`]) as its owner wrote it ([`store`]), and reads it again at each start, with
//! the code of `POST /swarms`: models, tools and the owner's plan count as of the start. A start ([`start`]) has a
//! cause, such as a message's id, and the swarm's request uses the cause as its key: a cause starts the swarm only
//! once. Executors look for due schedules ([`timer`]). The agents' tools can use the task's credentials
//! ([`weir_tools::task_credentials`]).
//!
//! A task keeps the API key of its definition: weir refuses a start after that key expired or was revoked, and the
//! swarm has the key's models and budgets.
//!
//! **Invariant:** a cause starts at most one run, on any number of nodes and repeats. **Invariant:** a single node
//! claims a schedule's slot, in the transaction that advances the schedule.
//!
//! | To … | touch |
//! |---|---|
//! | change the fields of a task | [`definition`]; for its swarm, [`crate::swarm::request`] |
//! | change the times of schedules, or the rules for missed ones | [`schedule`], [`timer`] |
//! | change the form of a credential, or its targets | [`weir_tools::task_credentials`], [`weir_tools::rules::bind`] |
//! | add a trigger | [`store::Trigger`], a migration, and the code that fires it |

pub mod bodies;
pub mod definition;
pub mod routes;
pub mod schedule;
pub mod start;
pub mod store;
pub mod timer;

use std::sync::Arc;

use weir_tools::task_credentials::TaskCredentials;

use self::store::TaskStore;
use crate::swarm::Swarms;

/// The parts of a gateway that keep and start tasks. Cheap to clone.
#[derive(Clone)]
pub struct TaskParts {
    pub store: TaskStore,
    /// Credentials of the tools of tasks' agents.
    pub credentials: TaskCredentials,
    /// Swarms, which tasks start.
    pub swarms: Arc<Swarms>,
}
