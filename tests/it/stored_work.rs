//! Stored work ends with the rights of its principal, at every moment of tasks and swarms: before the start, between
//! agents, between tool calls, between model calls, at a message of a queue and at the next run of a schedule.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::FromRef as _;
use http::Method;
use serde_json::{Value, json};
use tests::client::patiently;
use tests::gateway::{on_each_database, top_up};
use tests::{Client, EventStream, Gate, Gateway, Reply, Upstream};
use weir_identity::dev_issuer::DevAudience;
use weir_identity::store::{self, KeyCreation, KeyOwner};
use weir_ledger::Credits;
use weir_storage::clock::{ManualClock, Millis};
use weir_swarms::tasks::TaskParts;

use crate::organisations::{Organisation, patch, text};
use crate::scim::{Directory, TOKEN, scim_token};
use crate::sign_in::ScriptedIssuer;
use crate::swarms::{agent, swarm};
use crate::tasks::{TASKS, define, definition};

const START: &str = "2026-03-04T05:30:30Z";

/// The gates of a case: a model's response and the responses of two tool calls.
#[derive(Clone)]
struct Gates {
    model: Gate,
    tool: Gate,
    last_tool: Gate,
}

impl Gates {
    fn new() -> Self {
        Self {
            model: Gate::new(),
            tool: Gate::new(),
            last_tool: Gate::new(),
        }
    }

    fn open(&self) {
        for gate in [&self.model, &self.tool, &self.last_tool] {
            gate.open();
        }
    }
}

/// A provider and a receiver of tool calls that stop each swarm of [`Work`] at its moment.
struct Stage {
    model: Upstream,
    receiver: Upstream,
    gates: Arc<Mutex<Gates>>,
}

impl Stage {
    async fn start() -> Self {
        let (model, receiver) = (Upstream::start().await, Upstream::start().await);
        let gates = Arc::new(Mutex::new(Gates::new()));
        let url = format!("http://{}", receiver.address());
        let current = gates.clone();
        model.always_by(move |request| {
            let gates = current.lock().expect("no panic").clone();
            let asked = request.json()["messages"].to_string();
            let posts = |paths: &[&str]| calls(&url, paths);
            match () {
                () if asked.contains("Do two-calls.") => posts(&["/first", "/second"]),
                () if asked.contains("Do one-call.") => posts(&["/last"]),
                () => Reply::chat_with_usage("fine", 10, 5).after_gate(&gates.model),
            }
        });
        let current = gates.clone();
        receiver.always_by(move |request| {
            let gates = current.lock().expect("no panic").clone();
            let gate = match &*request.path {
                "/first" => gates.tool,
                _ => gates.last_tool,
            };
            Reply::new(200).body("received").after_gate(&gate)
        });
        Self {
            model,
            receiver,
            gates,
        }
    }

    fn settings(&self) -> String {
        let address = self.receiver.address();
        format!(
            "[swarms]\nconcurrent = 12\n[tools.http_post]\neffect = \"read\"\nports = [{}]\nprivate = [\"{address}\"]\n",
            address.port()
        )
    }
}

/// A model's response that posts to these paths.
fn calls(url: &str, paths: &[&str]) -> Reply {
    let calls = paths.iter().enumerate().map(|(number, path)| {
        let arguments = json!({ "url": format!("{url}{path}"), "body": "1" }).to_string();
        let function = json!({ "name": "http_post", "arguments": arguments });
        json!({ "id": format!("call_{number}"), "type": "function", "function": function })
    });
    let calls: Vec<_> = calls.collect();
    let message = json!({ "role": "assistant", "content": null, "tool_calls": calls });
    Reply::chat_message(&message, "tool_calls")
}

/// Swarms and a task of one principal, each stopped at another moment.
struct Work {
    task: String,
    events: Vec<(&'static str, EventStream)>,
    model_calls: usize,
    tool_calls: usize,
}

impl Work {
    /// Starts the work of a principal. The reader sees its events.
    async fn start(stage: &Stage, principal: &Client, reader: &Client) -> Self {
        let gates = Gates::new();
        *stage.gates.lock().expect("no panic") = gates.clone();
        let (model_calls, tool_calls) = (stage.model.count(), stage.receiver.count());
        let mut daily = definition("daily");
        daily["schedule"] = json!({ "cron": "*/5 * * * *" });
        let task = define(principal, &daily).await;
        let mut events = Vec::new();
        let posting = |name: &str| {
            let mut agent = agent(name);
            agent["tools"] = json!(["http_post"]);
            swarm(&[agent])
        };
        for (moment, asked) in [
            ("between agents", swarm(&[agent("one"), agent("two")])),
            ("between tool calls", posting("two-calls")),
            ("between model calls", posting("one-call")),
        ] {
            events.push((moment, follow(principal, reader, &asked).await));
        }
        for gate in [&gates.model, &gates.tool, &gates.last_tool] {
            patiently(gate.reached()).await;
        }
        // The account has no further slot.
        let queued = swarm(&[agent("queued")]);
        events.push(("before the start", follow(principal, reader, &queued).await));
        Self {
            task,
            events,
            model_calls: stage.model.count() - model_calls,
            tool_calls: stage.receiver.count() - tool_calls,
        }
    }

    /// Checks that no next step of the work is served, for this reason.
    async fn ends(self, gateway: &Gateway, clock: &ManualClock, stage: &Stage, case: &Case) {
        let (models, tools) = (stage.model.count(), stage.receiver.count());
        let gates = stage.gates.lock().expect("no panic").clone();
        gates.open();
        for (moment, events) in self.events {
            let events = events.try_rest().await;
            let done = events.iter().find_map(|event| {
                let data = event
                    .strip_prefix("id: ")?
                    .split_once("event: swarm_done\ndata: ")?
                    .1;
                serde_json::from_str::<Value>(data).ok()
            });
            let done = done.unwrap_or_else(|| panic!("{}: {moment}: {events:?}", case.name));
            let error = done["error"].as_str().unwrap_or_default();
            assert!(error.contains(case.code), "{}: {moment}: {done}", case.name);
        }
        let service = gateway.executor_service(DevAudience::Executor, &["swarm:run"]);
        let message =
            json!({ "task_id": self.task, "trigger_type": "event", "message_id": case.name });
        let refused = service.post("/internal/agent/execute", &message).await;
        refused.error(403, case.code);
        // The next run of the schedule.
        let tasks = TaskParts::from_ref(gateway.app());
        clock.set(Millis(gateway.app().clock.now().0 + 300_000));
        patiently(async {
            loop {
                let starts = tasks.store.starts(&self.task, 10).await.expect("an answer");
                let fired = starts.iter().find(|start| start.slot.is_some());
                if let Some(refusal) = fired.and_then(|start| start.refusal.as_ref()) {
                    assert_eq!(refusal.code, case.code, "{}", case.name);
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        assert_eq!(stage.model.count(), models, "{}", case.name);
        assert_eq!(stage.receiver.count(), tools, "{}", case.name);
        assert_eq!((self.model_calls, self.tool_calls), (3, 2), "{}", case.name);
    }
}

/// Requests a swarm. Returns its events.
async fn follow(principal: &Client, reader: &Client, asked: &Value) -> EventStream {
    let accepted = principal.post("/swarms", asked).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    let path = format!("/swarms/{}/events", text(&accepted.json(), "execution_id"));
    let events = reader.follow(Method::GET, &path, &Value::Null).await;
    assert_eq!(events.status, 200);
    events
}

/// The end of a principal's rights.
struct Case {
    name: &'static str,
    principal: Kind,
    code: &'static str,
}

/// The kind of a principal in an organisation.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Person,
    Key,
    ServiceAccount,
}

const CASES: [Case; 12] = [
    Case::new("disable the person", Kind::Person, "USER_DISABLED"),
    Case::new("disable the key's person", Kind::Key, "USER_DISABLED"),
    Case::new("disable the organisation", Kind::Person, "USER_DISABLED"),
    Case::new("disable the key's organisation", Kind::Key, "USER_DISABLED"),
    Case::new("demote the person", Kind::Person, "FORBIDDEN"),
    Case::new("demote the key's person", Kind::Key, "FORBIDDEN"),
    Case::new(
        "demote the service account",
        Kind::ServiceAccount,
        "FORBIDDEN",
    ),
    Case::new("remove the person", Kind::Person, "KEY_ENDED"),
    Case::new("remove the key's person", Kind::Key, "KEY_ENDED"),
    Case::new(
        "remove the service account",
        Kind::ServiceAccount,
        "KEY_ENDED",
    ),
    Case::new("revoke the key", Kind::Key, "KEY_ENDED"),
    Case::new("close the project", Kind::Key, "KEY_ENDED"),
];

impl Case {
    const fn new(name: &'static str, principal: Kind, code: &'static str) -> Self {
        Self {
            name,
            principal,
            code,
        }
    }
}

async fn set_plan(gateway: &Gateway, account: &str) {
    let admin = gateway.admin("root").await;
    let path = format!("/admin/users/{account}/plan");
    let set = admin.post(&path, &json!({ "plan": "pro" })).await;
    assert_eq!(set.status, 200, "{}", set.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_step_of_stored_work_is_refused_once_its_principal_has_no_rights() {
    let stage = Stage::start().await;
    let settings = stage.settings();
    on_each_database(
        START,
        |builder| {
            let builder = builder.swarms().upstream("scripted", &stage.model);
            builder.tables(&settings)
        },
        async |gateway, clock| {
            let admin = gateway.admin("root").await;
            for (number, case) in CASES.iter().enumerate() {
                let acme = Organisation::new(&gateway, &format!("olivia{number}"), 1_000).await;
                set_plan(&gateway, &acme.id).await;
                let name = format!("max{number}");
                let max = acme.join(&name, "member").await;
                let project = acme
                    .owner
                    .post(&acme.path("/projects"), &json!({ "name": "p" }))
                    .await;
                let project = text(&project.json(), "project_id");
                let robot = json!({ "name": "robot", "role": "member" });
                let robot = acme
                    .owner
                    .post(&acme.path("/service-accounts"), &robot)
                    .await;
                let robot = text(&robot.json(), "user_id");
                let (principal, key, user) = match case.principal {
                    Kind::Person => (acme.acting(&name), String::new(), max),
                    Kind::Key => {
                        let (client, key) = acme.key(&name, json!({ "project_id": project })).await;
                        (client, key, max)
                    }
                    Kind::ServiceAccount => {
                        let body = json!({ "service_account_id": robot });
                        let owner = format!("olivia{number}");
                        let (client, key) = acme.key(&owner, body).await;
                        (client, key, robot)
                    }
                };
                let reader = acme.acting(&format!("olivia{number}"));
                let work = Work::start(&stage, &principal, &reader).await;
                let member = acme.path(&format!("/members/{user}"));
                let change = case.name.split(' ').next().expect("a verb");
                let done = match (change, case.name.contains("organisation")) {
                    ("disable", true) => {
                        admin
                            .post(&format!("/admin/users/{}/disable", acme.id), &json!({}))
                            .await
                    }
                    ("disable", false) => {
                        admin
                            .post(&format!("/admin/users/{user}/disable"), &json!({}))
                            .await
                    }
                    ("demote", _) => {
                        patch(&acme.owner, &member, &json!({ "role": "viewer" })).await
                    }
                    ("remove", _) => acme.owner.delete(&member).await,
                    ("revoke", _) => reader.delete(&format!("/api-keys/{key}")).await,
                    _ => {
                        acme.owner
                            .delete(&acme.path(&format!("/projects/{project}")))
                            .await
                    }
                };
                assert!(done.status.is_success(), "{}: {}", case.name, done.text());
                work.ends(&gateway, &clock, &stage, case).await;
            }
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_step_of_stored_work_is_refused_once_a_directory_deprovisions_its_user() {
    let (stage, issuer) = (Stage::start().await, ScriptedIssuer::start(json!({})).await);
    let settings = format!(
        "{}{}",
        stage.settings(),
        issuer.settings(&scim_token(TOKEN))
    );
    on_each_database(
        START,
        |builder| {
            let builder = builder.swarms().upstream("scripted", &stage.model);
            builder.tables(&settings)
        },
        async |gateway, clock| {
            let directory = Directory::of(&gateway);
            let id = directory.create_user("alice", "alice").await;
            set_plan(&gateway, &id).await;
            let app = gateway.app();
            top_up(app, &id, Credits::whole(1_000)).await;
            let (peppers, now) = (&app.identity.key_peppers, app.clock.now());
            let owner = KeyOwner::personal(&id);
            let made = store::create_limited_key(&app.database, peppers, owner, "a key", now);
            let KeyCreation::Made(key) = made.await.expect("an answer") else {
                panic!("too many keys");
            };
            let alice = gateway.stranger().with_key(key.expose());
            let work = Work::start(&stage, &alice, &alice).await;
            directory.set_active(&id, json!(false)).await;
            let case = Case::new("deprovision", Kind::Person, "USER_DISABLED");
            work.ends(&gateway, &clock, &stage, &case).await;
            alice.get(TASKS).await.error(403, "USER_DISABLED");
        },
    )
    .await;
}
