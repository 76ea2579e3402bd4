//! `weir serve --role api` and `--role executor`: the routes of each, and executors that share swarms on one
//! PostgreSQL.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};

use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::client::patiently;
use tests::gateway::share_compiled_plugins;
use tests::stores::Postgres;
use tests::{Client, Gate, Reply, Upstream};

use crate::cli::{Served, run, text, weir};

/// `weir serve --role executor` in a folder of its own; killed when dropped.
struct Executor {
    child: Child,
    folder: TempDir,
}

impl Executor {
    /// Starts an executor with the keys of an API, which it calls.
    fn beside(api: &Served, internal: SocketAddr, tables: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        share_compiled_plugins(&folder.path().join(".weir"));
        let keys = Path::new(".weir/keys");
        for key in fs::read_dir(api.folder().join(keys)).expect("the API has some") {
            let key = key.expect("it can be read");
            let own = folder.path().join(keys).join(key.file_name());
            fs::copy(key.path(), own).expect("the folder can be written");
        }
        let swarms = format!(
            "[swarms]\napi_url = \"http://{internal}\"\nlisten = \"127.0.0.1:0\"\nconcurrent = 1\n"
        );
        fs::write(folder.path().join("weir.toml"), format!("{tables}{swarms}"))
            .expect("the folder can be written");
        let log = File::create(folder.path().join("log")).expect("a file");
        let child = weir(folder.path())
            .args(["serve", "--role", "executor"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("weir runs");
        Self { child, folder }
    }

    async fn address(&self) -> SocketAddr {
        patiently(async {
            loop {
                let log = fs::read_to_string(self.folder.path().join("log"));
                if let Some(address) = listening(&log.expect("text"), "the executor is listening") {
                    return address;
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
        .await
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the address in the log line with this text.
fn listening(log: &str, what: &str) -> Option<SocketAddr> {
    let line = log.lines().find(|line| line.contains(what))?;
    let (_, address) = line.split_once("address=")?;
    address.split_whitespace().next()?.parse().ok()
}

fn swarm() -> Value {
    json!({ "swarm_id": "s", "agents": [
        { "name": "a", "system_prompt": "", "task_prompt": "x", "model": "scripted" },
    ] })
}

#[tokio::test]
async fn an_api_and_its_executors_are_processes_of_their_own_and_share_what_is_asked() {
    let upstream = Upstream::start().await;
    let gates = [Gate::new(), Gate::new()];
    for gate in &gates {
        upstream.will(Reply::chat("Done.").after_gate(gate));
    }
    let database = Postgres::shared().create_database().await;
    let settings = format!("dev = true\ndatabase_url = {:?}\n", database.expose());
    let tables = format!(
        "[providers.scripted]\nadapter = \"openai\"\nbase_url = \"{}\"\n\
         [models.scripted]\ncontext_window = 100000\nmax_output_tokens = 10000\ndefault_output_tokens = 1000\nsupports_tools = true\n\
         upstreams = [{{ provider = \"scripted\" }}]\nprice = {{ input = 1, output = 2 }}\n",
        upstream.base_url()
    );
    let folder = tempfile::tempdir().expect("a folder");
    let toml = format!("internal_listen = \"127.0.0.1:0\"\n{settings}{tables}");
    fs::write(folder.path().join("weir.toml"), toml).expect("the folder can be written");
    share_compiled_plugins(&folder.path().join(".weir"));
    let api = Served::start_as(weir(folder.path()), folder, &["--role", "api"]);
    let internal = api
        .logged(|line| line.contains("listening for other"))
        .await;
    let internal = listening(&internal, "listening").expect("an address");
    let client = api.client();
    let mut ids = Vec::new();
    for _ in 0..2 {
        let accepted = client.post("/swarms", &swarm()).await;
        assert_eq!(accepted.status, 202, "{}", accepted.text());
        let accepted = accepted.json();
        assert_eq!(accepted["status"], "queued", "nobody runs it yet");
        ids.push(accepted["execution_id"].as_str().expect("an id").to_owned());
    }
    // The API does not serve the executor's routes.
    for address in [client.address(), internal] {
        let client = client.at(address);
        let asked = client.post("/internal/agent/swarm", &swarm()).await;
        asked.error(404, "NOT_FOUND");
    }

    let tables = format!("{settings}{tables}");
    let executors = [(); 2].map(|()| Executor::beside(&api, internal, &tables));
    for executor in &executors {
        let executor = Client::new(executor.address().await);
        assert_eq!(executor.get("/health/ready").await.status, 200);
        let asked = executor.post("/internal/agent/swarm", &swarm()).await;
        asked.error(401, "UNAUTHENTICATED");
        // The executor does not serve the API's routes.
        for path in ["/chat", "/swarms", "/internal/agent/code"] {
            executor.post(path, &swarm()).await.error(404, "NOT_FOUND");
        }
    }
    // Each has one turn, and both swarms are under way.
    for gate in &gates {
        patiently(gate.reached()).await;
    }
    for gate in &gates {
        gate.open();
    }
    for id in ids {
        let path = format!("/swarms/{id}");
        let events = format!("{path}/events");
        let events = client.follow(Method::GET, &events, &Value::Null).await;
        events.rest().await;
        let record = client.get(&path).await.json();
        assert_eq!(
            (&record["status"], &record["content"]),
            (&json!("completed"), &json!("Done."))
        );
    }
    assert_eq!(upstream.count(), 2);
}

#[test]
fn an_executor_alone_must_know_where_the_api_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = run(folder.path(), &["serve", "--role", "executor"]);
    let complaint = text(&refused.stderr);
    assert!(
        !refused.status.success() && complaint.contains("`swarms.api_url` is not set"),
        "{complaint}"
    );
}
