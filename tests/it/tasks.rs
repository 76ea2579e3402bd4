//! Tasks: defined, started once for each cause, and shown with their results; the gate before the web app's
//! functions.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tests::client::patiently;
use tests::gateway::{Builder, at, on_each_database};
use tests::{Answer, Client, Gateway, Reply, Upstream};
use weir_identity::dev_issuer::DevAudience;
use weir_identity::lockout::LOCKOUT;
use weir_storage::clock::ManualClock;

pub(crate) const TASKS: &str = "/api/agent/tasks";
pub(crate) const TRIGGER: &str = "/api/agent/trigger-execution";
const EXECUTE: &str = "/internal/agent/execute";

/// The moment at which tests with their own clock begin.
pub(crate) const BEGINNING: &str = "2026-03-02T12:00:30Z";

pub(crate) fn runs_swarms(upstream: &Upstream) -> impl Fn(Builder) -> Builder {
    |builder| builder.swarms().upstream("scripted", upstream)
}

pub(crate) fn definition(name: &str) -> Value {
    json!({ "name": name, "agents": [
        { "name": "scout", "system_prompt": "You are scout.", "task_prompt": "Look.", "model": "scripted", "tools": [] },
    ] })
}

/// Defines a task, and returns its id.
pub(crate) async fn define(client: &Client, definition: &Value) -> String {
    let defined = client.post(TASKS, definition).await;
    assert_eq!(defined.status, 201, "{}", defined.text());
    let defined = defined.json();
    defined["task_id"].as_str().expect("an id").to_owned()
}

pub(crate) async fn show(client: &Client, id: &str) -> Value {
    let shown = client.get(&format!("{TASKS}/{id}")).await;
    assert_eq!(shown.status, 200, "{}", shown.text());
    shown.json()
}

/// Waits until a task's runs are as wanted, and returns the task.
pub(crate) async fn until(client: &Client, id: &str, wanted: impl Fn(&[Value]) -> bool) -> Value {
    patiently(async {
        loop {
            let task = show(client, id).await;
            if wanted(task["runs"].as_array().expect("a list")) {
                return task;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

pub(crate) async fn put(client: &Client, path: &str, body: &Value) -> Answer {
    let body = Bytes::from(body.to_string());
    let json = Some("application/json");
    client.send(Method::PUT, path, json, body).await
}

/// A web user who is on the plan `pro`.
pub(crate) async fn web_user(gateway: &Gateway, name: &str) -> Client {
    let id = gateway.web_user_id(name).await;
    let admin = gateway.admin("root").await;
    let path = format!("/admin/users/{id}/plan");
    let set = admin.post(&path, &json!({ "plan": "pro" })).await;
    assert_eq!(set.status, 200, "{}", set.text());
    gateway.web(name)
}

#[tokio::test]
async fn a_task_is_defined_shown_replaced_and_deleted_by_its_owner_alone() {
    let upstream = Upstream::start().await;
    on_each_database(BEGINNING, runs_swarms(&upstream), async |gateway, _| {
        gateway.set_plan("pro").await;
        let (client, bob) = (gateway.client(), web_user(&gateway, "bob").await);
        let mut asked = definition("nightly");
        asked["schedule"] = json!({ "cron": "30 9 * * *", "time_zone": "Europe/Berlin" });
        asked["context"] = json!("About rivers.");
        let id = define(&client, &asked).await;
        let task = show(&client, &id).await;
        for (field, value) in asked.as_object().expect("an object") {
            assert_eq!(&task[field], value, "{field}");
        }
        assert_eq!(task["next_fire_at"], "2026-03-03T08:30:00Z");
        assert_eq!(task["created_at"], "2026-03-02T12:00:30Z");
        assert_eq!(
            (&task["paused"], &task["last_run"]),
            (&json!(false), &Value::Null)
        );

        let path = format!("{TASKS}/{id}");
        bob.get(&path).await.error(404, "NOT_FOUND");
        put(&bob, &path, &asked).await.error(404, "NOT_FOUND");
        bob.delete(&path).await.error(404, "NOT_FOUND");
        let stolen = bob.post(TRIGGER, &json!({ "task_id": id })).await;
        assert_eq!(stolen.error(404, "NOT_FOUND")["param"], "task_id");
        assert_eq!(bob.get(TASKS).await.json()["tasks"], json!([]));

        asked["name"] = json!("morning");
        asked["paused"] = json!(true);
        let replaced = put(&client, &path, &asked).await.json();
        assert_eq!(
            (&replaced["name"], &replaced["next_fire_at"]),
            (&json!("morning"), &Value::Null)
        );
        assert_eq!(show(&client, &id).await, replaced);

        let second = define(&client, &definition("second")).await;
        let listed = client.get(&format!("{TASKS}?limit=1")).await.json();
        assert_eq!(listed["tasks"][0]["task_id"], json!(second));
        let rest = format!("{TASKS}?before={}", listed["next"].as_str().expect("more"));
        let rest = client.get(&rest).await.json();
        assert_eq!(
            (&rest["tasks"][0]["task_id"], &rest["next"]),
            (&json!(id), &Value::Null)
        );

        assert_eq!(client.delete(&path).await.status, 204);
        client.get(&path).await.error(404, "NOT_FOUND");
        client.delete(&path).await.error(404, "NOT_FOUND");
        assert_eq!(show(&client, &second).await["name"], "second");
    })
    .await;
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn a_task_is_refused_as_its_swarm_would_be() {
    let upstream = Upstream::start().await;
    let gateway = runs_swarms(&upstream)(Gateway::builder()).start().await;
    let client = gateway.client();
    let free = client.post(TASKS, &definition("t")).await;
    free.error(403, "PLAN_NOT_ELIGIBLE");
    gateway.set_plan("guru").await;
    for (pointer, value) in [
        ("/agents", json!([])),
        ("/agents/0/name", json!("")),
        ("/agents/0/model", json!("nope")),
        ("/agents/0/max_iterations", json!(11)),
        ("/agents/0/temperature", json!(3)),
        ("/agents/0/tools", json!(["nope"])),
        ("/agents/0/webhook_urls", json!(["http://a.example"])),
        ("/agents/0/depends_on", json!("nobody")),
        ("/agents/0/colour", json!("red")),
        ("/max_total_credits", json!(0.5)),
        ("/user_id", json!("bob")),
        ("/plan", json!("pro")),
    ] {
        let mut task = definition("t");
        let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
        task.pointer_mut(parent).expect("it is there")[field] = value;
        let mut swarm = task.clone();
        swarm.as_object_mut().expect("an object").remove("name");
        swarm["swarm_id"] = json!("t");
        let (as_task, as_swarm) = (
            client.post(TASKS, &task).await,
            client.post("/swarms", &swarm).await,
        );
        assert_eq!(as_task.status, as_swarm.status, "{pointer}");
        let (task, swarm) = (&as_task.json()["error"], &as_swarm.json()["error"]);
        for field in ["code", "param"] {
            assert_eq!(task[field], swarm[field], "{pointer}");
        }
        assert_eq!(as_task.status, 400, "{pointer}");
    }
    for (field, value, param) in [
        ("name", Value::Null, "name"),
        ("task_id", json!("task_1"), "task_id"),
        ("schedule", json!({ "cron": "61 * * * *" }), "schedule.cron"),
        (
            "schedule",
            json!({ "cron": "* * * * *", "time_zone": "Mars" }),
            "schedule.time_zone",
        ),
    ] {
        let mut task = definition("t");
        task[field] = value;
        let refused = client.post(TASKS, &task).await;
        assert_eq!(refused.error(400, "INVALID_REQUEST")["param"], param);
    }
    let mut large = definition("t");
    large["context"] = json!("x".repeat(256 << 10));
    client
        .post(TASKS, &large)
        .await
        .error(413, "PAYLOAD_TOO_LARGE");
    for number in 0..100 {
        define(&client, &definition(&number.to_string())).await;
    }
    let more = client.post(TASKS, &definition("t")).await;
    more.error(429, "TASK_LIMIT_REACHED");
}

#[tokio::test]
async fn a_message_starts_a_task_once_however_often_it_comes() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("Seen."));
    on_each_database(BEGINNING, runs_swarms(&upstream), async |gateway, clock| {
        gateway.set_plan("pro").await;
        let client = gateway.client();
        let before = upstream.count();
        let id = define(&client, &definition("t")).await;
        let service = gateway.executor_service(DevAudience::Executor, &["swarm:run"]);
        let message = |message: &str| {
            json!({ "task_id": id, "trigger_type": "event", "message_id": message })
        };
        let asked = message("m-1");
        let answers = join_all((0..8).map(|_| service.post(EXECUTE, &asked))).await;
        let executions: Vec<_> = answers
            .iter()
            .map(|answer| {
                assert_eq!(answer.status, 202, "{}", answer.text());
                answer.json()["execution_id"].clone()
            })
            .collect();
        assert!(executions.iter().all(|execution| *execution == executions[0]), "{executions:?}");
        clock.advance(Duration::from_secs(60));
        let keyed = service.clone().with_header("idempotency-key", "m-2");
        let by_header = json!({ "task_id": id, "trigger_type": "schedule" });
        assert_ne!(keyed.post(EXECUTE, &by_header).await.json()["execution_id"], executions[0]);
        let task = until(&client, &id, |runs| {
            runs.len() == 2 && runs.iter().all(|run| run["status"] == "completed")
        })
        .await;
        let listed = client.get(TASKS).await.json();
        assert_eq!(listed["tasks"][0]["last_run"], task["last_run"]);
        // Also if its node failed before it could record the started run.
        for noted in [true, false] {
            if !noted {
                let forget = sqlx::query("DELETE FROM task_starts WHERE task_id = $1").bind(&*id);
                let forget = forget.execute(gateway.app().database.writer());
                forget.await.expect("an answer");
            }
            let again = service.post(EXECUTE, &asked).await;
            assert_eq!(again.headers["idempotency-replayed"], "true", "{noted}");
            assert_eq!(again.json()["execution_id"], executions[0], "{noted}");
        }
        assert_eq!(upstream.count() - before, 2);
        let mut triggers: Vec<_> = task["runs"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|run| run["trigger_type"].to_string())
            .collect();
        triggers.sort();
        assert_eq!(triggers, ["\"event\"", "\"schedule\""]);
        assert!(task["runs"][0]["total_credits"].as_f64().is_some_and(|credits| credits > 0.0));
        // Its cost is the owner's, under the task.
        let requests = client.get("/usage/requests").await.json();
        let calls = requests["requests"].as_array().expect("a list");
        let calls = calls.iter().filter(|call| call["model"] == "scripted");
        let of: Vec<_> = calls.map(|call| (&call["source"], &call["task_id"])).collect();
        assert_eq!(of, [(&json!("agent"), &json!(id)); 2]);
    })
    .await;
}

#[tokio::test]
async fn a_message_is_taken_of_services_alone_and_says_which_it_is() {
    let upstream = Upstream::start().await;
    let gateway = runs_swarms(&upstream)(Gateway::builder()).start().await;
    gateway.set_plan("pro").await;
    let id = define(&gateway.client(), &definition("t")).await;
    let asked = json!({ "task_id": id, "trigger_type": "event", "message_id": "m" });
    let service = gateway.executor_service(DevAudience::Executor, &["swarm:run"]);
    for stranger in [
        gateway.executor_service(DevAudience::Api, &["swarm:run"]),
        gateway.client().at(service.address()),
        gateway.stranger().at(service.address()),
    ] {
        stranger
            .post(EXECUTE, &asked)
            .await
            .error(401, "UNAUTHENTICATED");
    }
    let other = gateway.executor_service(DevAudience::Executor, &["model:call"]);
    other
        .post(EXECUTE, &asked)
        .await
        .error(403, "MISSING_SCOPE");
    gateway
        .client()
        .post(EXECUTE, &asked)
        .await
        .error(404, "NOT_FOUND");
    for (field, value, status, code) in [
        ("message_id", Value::Null, 400, "INVALID_REQUEST"),
        ("message_id", json!("a\nb"), 400, "INVALID_REQUEST"),
        ("trigger_type", json!("whim"), 400, "INVALID_REQUEST"),
        (
            "task_id",
            json!("task_00000000000000000000000000000000"),
            404,
            "UNKNOWN_TASK",
        ),
        ("task_id", json!("1"), 404, "UNKNOWN_TASK"),
    ] {
        let mut asked = asked.clone();
        asked[field] = value;
        let refused = service.post(EXECUTE, &asked).await;
        assert_eq!(refused.error(status, code)["param"], field);
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn a_start_that_is_refused_is_shown_and_its_message_may_come_again() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("Seen."));
    on_each_database(BEGINNING, runs_swarms(&upstream), async |gateway, _| {
        gateway.set_plan("pro").await;
        let client = gateway.client();
        let id = define(&client, &definition("t")).await;
        gateway.set_plan("free").await;
        let service = gateway.executor_service(DevAudience::Executor, &["swarm:run"]);
        let asked = json!({ "task_id": id, "trigger_type": "event", "message_id": "m" });
        service
            .post(EXECUTE, &asked)
            .await
            .error(403, "PLAN_NOT_ELIGIBLE");
        let last = show(&client, &id).await["last_run"].clone();
        assert_eq!(
            (&last["status"], &last["execution_id"]),
            (&json!("refused"), &Value::Null)
        );
        assert_eq!(last["error"]["code"], "PLAN_NOT_ELIGIBLE");
        gateway.set_plan("pro").await;
        assert_eq!(service.post(EXECUTE, &asked).await.status, 202);
        let task = until(&client, &id, |runs| runs[0]["status"] == "completed").await;
        assert_eq!(task["runs"].as_array().map(Vec::len), Some(1));
        assert_eq!(task["last_run"]["error"], Value::Null);
    })
    .await;
}

#[tokio::test]
async fn a_web_user_starts_their_own_task_once_for_each_key() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("Seen."));
    let clock = ManualClock::at(at(BEGINNING));
    let builder = runs_swarms(&upstream)(Gateway::builder()).clock(&clock);
    let gateway = builder.start().await;
    let wanda = web_user(&gateway, "wanda").await;
    let mut paused = definition("t");
    paused["paused"] = json!(true);
    let id = define(&wanda, &paused).await;
    let asked = json!({ "task_id": id });
    let keyed = wanda.clone().with_header("idempotency-key", "1");
    let (first, again) = (
        keyed.post(TRIGGER, &asked).await,
        keyed.post(TRIGGER, &asked).await,
    );
    assert_eq!(
        (first.status.as_u16(), again.status.as_u16()),
        (202, 202),
        "{}",
        first.text()
    );
    assert_eq!(first.json()["execution_id"], again.json()["execution_id"]);
    assert_eq!(again.headers["idempotency-replayed"], "true");
    assert_eq!(first.json()["task_id"], json!(id));
    for _ in 0..2 {
        clock.advance(Duration::from_secs(60));
        assert_eq!(wanda.post(TRIGGER, &asked).await.status, 202);
    }
    let task = until(&wanda, &id, |runs| {
        runs.len() == 3 && runs.iter().all(|run| run["status"] == "completed")
    })
    .await;
    assert_eq!(task["last_run"]["trigger_type"], "manual");
    assert_eq!(upstream.count(), 3);
    // A key is no web user.
    let by_key = gateway.client().post(TRIGGER, &asked).await;
    by_key.error(401, "ATTESTATION_INVALID");
}

#[tokio::test]
async fn the_gate_refuses_in_its_order_each_stage_for_itself() {
    let clock = ManualClock::at(at(BEGINNING));
    let gateway = Gateway::builder()
        .clock(&clock)
        .settings("cors_origins = [\"https://app.example\"]")
        .tables("[rate_limits]\naddress = 6\n")
        .start()
        .await;
    let app = gateway
        .stranger()
        .with_header("origin", "https://app.example");
    let attestation = gateway
        .issuer()
        .web_tokens("wanda", gateway.app().clock.now())
        .expect("tokens");
    let attested = |client: &Client| {
        let token = attestation.attestation.expose();
        client.clone().with_header("x-identity-appcheck", token)
    };
    let (small, large) = (
        json!({ "task_id": "task_1" }),
        json!({ "task_id": "x".repeat(17 << 10) }),
    );
    let elsewhere = gateway
        .stranger()
        .with_header("origin", "https://evil.example");
    let post = async |client: &Client, body: &Value| client.post(TRIGGER, body).await;
    // Each request has all later faults as well.
    post(&elsewhere, &large)
        .await
        .error(403, "ORIGIN_NOT_ALLOWED");
    post(&app, &large).await.error(413, "PAYLOAD_TOO_LARGE");
    post(&app, &small).await.error(401, "ATTESTATION_INVALID");
    let forged = app.clone().with_header("x-identity-appcheck", "a.b.c");
    let refused = post(&forged, &small).await;
    refused.error(401, "ATTESTATION_INVALID");
    // CORS lets the page read the reason.
    assert_eq!(
        refused.headers["access-control-allow-origin"],
        "https://app.example"
    );
    let unsigned = attested(&app);
    let mut refusals = Vec::new();
    while refusals.last().is_none_or(|code| code == "UNAUTHENTICATED") {
        let refused = post(&unsigned, &small).await.json();
        refusals.push(
            refused["error"]["code"]
                .as_str()
                .expect("a code")
                .to_owned(),
        );
        assert!(refusals.len() < 20, "{refusals:?}");
    }
    assert!(refusals.len() > 1, "{refusals:?}");
    assert_eq!(refusals.last().map(String::as_str), Some("RATE_LIMITED"));
    // The rate limit comes before the attestation.
    post(&app, &small).await.error(401, "ATTESTATION_INVALID");
    let identity = attestation.identity.expose();
    let signed = unsigned.clone().with_key(identity);
    post(&signed, &small).await.error(429, "RATE_LIMITED");
    clock.advance(Duration::from_secs(60));
    post(&unsigned, &small).await.error(401, "UNAUTHENTICATED");
    post(&signed, &small).await.error(404, "NOT_FOUND");
    // The effect of ten failures from another place.
    let cache = &gateway.app().cache;
    for _ in 0..10 {
        let counted = cache.count_failure("127.0.0.1", LOCKOUT).await;
        counted.expect("the cache answers");
    }
    post(&app, &small).await.error(401, "ATTESTATION_INVALID");
    post(&signed, &small).await.error(429, "LOCKED_OUT");

    let gateway = Gateway::builder()
        .settings("dev = false\ntrusted_proxies = []")
        .start()
        .await;
    let no_page = post(&gateway.stranger(), &large).await;
    no_page.error(403, "ORIGIN_NOT_ALLOWED");
}
