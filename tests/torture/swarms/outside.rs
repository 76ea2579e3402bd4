//! The outside of the rows' swarms: a model that plays three agents, and a receiver that keeps the tools' requests.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tests::{Reply, Upstream};

/// The agents of each swarm, in a chain.
pub(super) const AGENTS: [&str; 3] = ["a", "b", "c"];

/// Model calls of each agent: three concurrent tool calls, and then its output.
pub(super) const MODEL_CALLS: usize = 2;

/// Thinking time of the model and the receiver.
const MODEL_TIME: Duration = Duration::from_millis(15);
const RECEIVER_TIME: Duration = Duration::from_millis(8);

/// The tools' effects at the receiver, by the first part of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `http_get`.
    Read,
    /// `api_call`, of an integration that detects repeats by their key.
    Keyed,
    /// `http_post`.
    Unsafe,
}

/// The servers outside of weir.
pub(crate) struct Outside {
    pub(super) model: Upstream,
    pub(super) receiver: Upstream,
    /// More thinking time of the model, in milliseconds.
    thinks_ms: Arc<AtomicU64>,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Read, Self::Keyed, Self::Unsafe];

    fn path(self) -> &'static str {
        match self {
            Self::Read => "/read",
            Self::Keyed => "/keyed",
            Self::Unsafe => "/unsafe",
        }
    }

    /// Returns the tool call of an agent's model for a task.
    fn call(self, receiver: SocketAddr, task: &str) -> Value {
        let url = format!("http://{receiver}{}/{task}", self.path());
        let (name, arguments) = match self {
            Self::Read => ("http_get", json!({ "url": url })),
            Self::Keyed => (
                "api_call",
                json!({ "integration": "shop", "path": format!("/{task}"), "method": "POST", "body": "1" }),
            ),
            Self::Unsafe => ("http_post", json!({ "url": url, "body": "1" })),
        };
        let function = json!({ "name": name, "arguments": arguments.to_string() });
        json!({ "id": format!("call_{name}"), "type": "function", "function": function })
    }
}

impl Outside {
    pub(super) async fn start() -> Self {
        let (model, receiver) = (Upstream::start().await, Upstream::start().await);
        receiver.always(Reply::new(200).body("Noted.").after(RECEIVER_TIME));
        let address = receiver.address();
        let thinks_ms = Arc::new(AtomicU64::new(0));
        let thinks = thinks_ms.clone();
        model.always_by(move |request| {
            let more = Duration::from_millis(thinks.load(Ordering::Relaxed));
            answer(&request.json(), address).after(MODEL_TIME + more)
        });
        Self {
            model,
            receiver,
            thinks_ms,
        }
    }

    /// Makes the model think for this time longer from now on.
    pub(super) fn think(&self, longer: Duration) {
        let ms = longer.as_millis() as u64;
        self.thinks_ms.store(ms, Ordering::Relaxed);
    }

    /// Returns the tables of a configuration with both.
    pub(super) fn tables(&self) -> String {
        let address = self.receiver.address();
        let port = address.port();
        format!(
            "[tools.http_get]\nports = [{port}]\nprivate = [\"{address}\"]\n\
             [tools.http_post]\nports = [{port}]\nprivate = [\"{address}\"]\n\
             [integrations.shop]\nbase_url = \"http://{address}/keyed\"\nmethods = [\"POST\"]\neffect = \"idempotent\"\n\
             private = true\n\
             [providers.scripted]\nadapter = \"openai\"\nbase_url = \"{}\"\n\
             [models.scripted]\ncontext_window = 100000\nmax_output_tokens = 1000\ndefault_output_tokens = 1000\n\
             supports_tools = true\nupstreams = [{{ provider = \"scripted\" }}]\nprice = {{ input = 5, output = 10 }}\n",
            self.model.base_url()
        )
    }

    /// Counts the tools' requests of this kind for a task, and their distinct keys.
    pub(super) fn sent(&self, kind: Kind, task: &str) -> (usize, usize) {
        let path = format!("{}/{task}", kind.path());
        let requests = self.receiver.requests();
        let of_task = requests.iter().filter(|request| request.path == path);
        let keys: BTreeSet<_> = of_task
            .clone()
            .filter_map(|request| request.header("idempotency-key"))
            .collect();
        (of_task.count(), keys.len())
    }

    /// Counts the model's calls for the most frequent step of a swarm.
    pub(super) fn asked(&self, tag: &str) -> usize {
        let mut asked = [[0; MODEL_CALLS]; AGENTS.len()];
        for request in self.model.requests() {
            let request = request.json();
            let task = task(&request);
            for (number, agent) in AGENTS.iter().enumerate() {
                if task == format!("{tag}/{agent}") {
                    asked[number][turn(&request)] += 1;
                }
            }
        }
        asked.into_iter().flatten().max().unwrap_or_default()
    }
}

/// A swarm whose tasks carry this tag.
pub(super) fn swarm(tag: &str) -> Value {
    let agent = |(number, name): (usize, &&str)| {
        json!({
            "name": name, "system_prompt": "", "task_prompt": format!("{tag}/{name}"), "model": "scripted",
            "max_tokens": 300, "tools": ["http_get", "api_call", "http_post"], "integrations": ["shop"],
            "depends_on": number.checked_sub(1).map(|before| AGENTS[before]),
        })
    };
    let agents: Vec<_> = AGENTS.iter().enumerate().map(agent).collect();
    json!({ "swarm_id": tag, "agents": agents })
}

/// Returns the final output of an agent.
pub(super) fn output(task: &str) -> String {
    format!("{task} is done")
}

fn answer(request: &Value, receiver: SocketAddr) -> Reply {
    let task = task(request);
    match turn(request) {
        0 => {
            let calls = Kind::ALL.map(|kind| kind.call(receiver, task));
            let message = json!({ "role": "assistant", "content": null, "tool_calls": calls });
            Reply::chat_message(&message, "tool_calls")
        }
        _ => Reply::chat_with_usage(&output(task), 10, 10),
    }
}

fn task(request: &Value) -> &str {
    let messages = request["messages"].as_array().into_iter().flatten();
    let mut users = messages.filter(|message| message["role"] == "user");
    let task = users.next().and_then(|message| message["content"].as_str());
    task.expect("an agent has a task")
}

/// Returns the number of earlier responses of the model.
fn turn(request: &Value) -> usize {
    let messages = request["messages"].as_array().into_iter().flatten();
    messages
        .filter(|message| message["role"] == "assistant")
        .count()
}
