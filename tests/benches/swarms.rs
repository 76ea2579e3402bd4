//! The time that a swarm adds to each call of a model, and the cost of a tool call.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints its figures, and ends by panicking"
)]

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use tests::client::Client;
use tests::stores::{Durability, Postgres};
use tests::upstream::{Reply, Upstream};
use tests::{Gateway, chat, percentile};
use weir_storage::secrets::SecretUrl;

const AGENTS: usize = 10;

/// Calls of each agent's model.
const ITERATIONS: usize = 25;

/// Limit of the time added to a call of a model.
const ADDED: Duration = Duration::from_millis(5);

fn main() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let sound = runtime.block_on(async {
        let postgres = Postgres::start(Durability::Real);
        let url = postgres.create_database().await;
        let on_sqlite = measure("SQLite on disk", None).await;
        let on_postgres = measure("PostgreSQL with fsync", Some(&url)).await;
        on_sqlite && on_postgres
    });
    if sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

async fn measure(name: &str, postgres: Option<&SecretUrl>) -> bool {
    let (model, receiver) = (Upstream::start().await, Upstream::start().await);
    receiver.always(Reply::new(200).body("Noted."));
    let arrivals = Arc::new(Mutex::new(Vec::new()));
    let noted = arrivals.clone();
    let address = receiver.address();
    model.always_by(move |request| {
        noted.lock().unwrap().push(Instant::now());
        calls_tool(&request.json(), address)
    });
    let mut builder = Gateway::builder()
        .swarms()
        .upstream("scripted", &model)
        .tables(&format!(
            "[tools.http_get]\nports = [{}]\nprivate = [\"{address}\"]\n",
            address.port()
        ));
    if let Some(url) = postgres {
        builder = builder.postgres(url);
    }
    let gateway = builder.start().await;
    gateway.set_plan("pro").await;
    let mut between = Vec::new();
    // The first one opens connections. A tool that an agent does not have is not called.
    for tool in ["nothing", "nothing", "http_get"] {
        arrivals.lock().unwrap().clear();
        run(&gateway, tool).await;
        let arrivals = arrivals.lock().unwrap();
        assert_eq!(arrivals.len(), AGENTS * ITERATIONS);
        let mut passed: Vec<_> = arrivals.windows(2).map(|two| two[1] - two[0]).collect();
        between.push(percentile(&mut passed, 50));
    }
    let own = alone(&Client::new(model.address()), "/v1/chat/completions").await;
    let receivers = alone(&Client::new(address), "/").await;
    let added = between[1].saturating_sub(own);
    let tool = between[2].saturating_sub(between[1]);
    println!(
        "{name}, {AGENTS} agents x {ITERATIONS} iterations: a call of the model takes {:.2?}, the model alone {own:.2?}: \
         {added:.2?} are added (limit {ADDED:.0?}); a call of http_get takes {tool:.2?}, its receiver alone {receivers:.2?}",
        between[1]
    );
    gateway.stop().await;
    added <= ADDED
}

/// The response of each agent's model to every call.
fn calls_tool(request: &Value, receiver: SocketAddr) -> Reply {
    let mut messages = request["messages"].as_array().into_iter().flatten();
    let user = messages.rfind(|message| message["role"] == "user");
    let tool = user.map_or(&Value::Null, |message| &message["content"]);
    let arguments = json!({ "url": format!("http://{receiver}/") }).to_string();
    let function = json!({ "name": tool, "arguments": arguments });
    let call = json!({ "id": "call_1", "type": "function", "function": function });
    let message = json!({ "role": "assistant", "content": "So be it.", "tool_calls": [call] });
    Reply::chat_message(&message, "tool_calls")
}

/// Runs a swarm whose models always call this tool.
async fn run(gateway: &Gateway, tool: &str) {
    let agents: Vec<_> = (0..AGENTS)
        .map(|number| {
            json!({
                "name": number.to_string(), "system_prompt": "", "task_prompt": tool, "model": "scripted",
                "max_iterations": ITERATIONS, "tools": ["http_get"],
            })
        })
        .collect();
    let swarm = json!({ "swarm_id": "bench", "agents": agents });
    let client = gateway.client().with_header("accept", "text/event-stream");
    let events = client.follow(Method::POST, "/swarms", &swarm).await;
    let events = events.rest().await;
    let last = events.last().expect("an event");
    assert!(last.contains("\"status\":\"completed\""), "{last}");
}

/// Measures the same number of requests to a server alone.
async fn alone(client: &Client, path: &str) -> Duration {
    let mut took = Vec::new();
    for _ in 0..AGENTS * ITERATIONS {
        let began = Instant::now();
        let answer = client.post(path, &chat("scripted", "nothing")).await;
        took.push(began.elapsed());
        assert_eq!(answer.status, 200);
    }
    percentile(&mut took, 50)
}
