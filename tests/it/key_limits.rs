//! The limits of a key hold for every endpoint, task, swarm and tool that uses the key.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tests::api::{self, OperationName};
use tests::gateway::{Builder, USER, on_each_database};
use tests::{Answer, Client, Gate, Gateway, Reply, Upstream, chat};
use weir_accounts::keys::limits;
use weir_identity::dev_issuer::DevAudience;
use weir_identity::store;
use weir_storage::clock::Millis;

use crate::billing::is_settled;
use crate::budgets::{key, shown};
use crate::mcp::request;
use crate::swarms::{agent, ended, swarm};
use crate::tasks::{TASKS, define, definition, put, show, web_user};

const START: &str = "2026-03-04T05:30:00Z";
const EXECUTE: &str = "/internal/agent/execute";

/// A gateway that runs swarms on the model `scripted`, and has another one.
fn with_two_models<'a>(
    allowed: &'a Upstream,
    forbidden: &'a Upstream,
) -> impl Fn(Builder) -> Builder + 'a {
    move |builder| {
        let builder = builder.swarms().upstream("scripted", allowed);
        builder.upstream("forbidden", forbidden)
    }
}

/// A task starts at most once in a minute.
const MINUTE: Duration = Duration::from_secs(60);

/// Starts a task as a message of a queue does.
async fn start(gateway: &Gateway, task_id: &str, message_id: &str) -> Answer {
    let service = gateway.executor_service(DevAudience::Executor, &["swarm:run"]);
    let message = json!({ "task_id": task_id, "trigger_type": "manual", "message_id": message_id });
    service.post(EXECUTE, &message).await
}

/// The id of a swarm that a response names.
fn execution_id(accepted: &Answer) -> String {
    let id = accepted.json()["execution_id"].as_str().map(str::to_owned);
    id.expect("an id")
}

async fn revoke(gateway: &Gateway, key_id: &str) {
    let admin = gateway.admin("root").await;
    let revoked = admin.delete(&format!("/admin/keys/{key_id}")).await;
    assert_eq!(revoked.status, 204, "{}", revoked.text());
}

/// Limits a key to one model, until a moment.
async fn narrow(gateway: &Gateway, key_id: &str, model: &str, until: Millis) {
    let models = [model.to_owned()];
    let limited = store::limit_key(&gateway.app().database, key_id, &models, until);
    limited.await.expect("an answer");
}

/// Sets the budgets of a key.
async fn budget(gateway: &Gateway, key_id: &str, budgets: Value) {
    let budgets = serde_json::from_value(budgets).expect("budgets");
    let until = gateway.app().clock.now().plus_days(1);
    let set = limits::set_budgets(gateway.app(), USER, key_id, budgets, until);
    set.await.expect("budgets can be set");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_keeps_the_key_that_defined_it_and_each_start_checks_that_keys_limits() {
    let (allowed, forbidden) = (Upstream::start().await, Upstream::start().await);
    allowed.always(Reply::chat_with_usage("fine", 10, 5));
    on_each_database(
        START,
        with_two_models(&allowed, &forbidden),
        async |gateway, clock| {
            gateway.set_plan("pro").await;
            let limits =
                json!({ "models": ["scripted"], "budget_credits": 60, "expires_in_days": 2 });
            let (key_id, client) = key(&gateway, limits).await;
            let mut elsewhere = definition("elsewhere");
            elsewhere["agents"][0]["model"] = json!("forbidden");
            let refused = client.post(TASKS, &elsewhere).await;
            let refused = refused.error(403, "MODEL_NOT_ALLOWED");
            assert_eq!(refused["param"], "agents[0].model");

            let id = define(&client, &definition("own")).await;
            assert_eq!(show(&client, &id).await["key_id"], json!(key_id));
            let path = format!("{TASKS}/{id}");
            put(&client, &path, &elsewhere)
                .await
                .error(403, "MODEL_NOT_ALLOWED");

            // Its run is charged to the key.
            let started = start(&gateway, &id, "1").await;
            assert_eq!(started.status, 202, "{}", started.text());
            let record = ended(&client, &execution_id(&started)).await;
            assert_eq!(record["status"], "completed", "{record}");
            is_settled(&gateway).await;
            assert_eq!(shown(&gateway, &key_id).await["budgets"][0]["used"], 0.028);

            // A task that a key replaces has the limits of this key from then on.
            let free = define(&gateway.client(), &elsewhere).await;
            let free_path = format!("{TASKS}/{free}");
            assert_eq!(
                put(&client, &free_path, &definition("taken")).await.status,
                200
            );
            assert_eq!(show(&client, &free).await["key_id"], json!(key_id));

            // The models of the key at the start count, not its earlier models.
            let now = gateway.app().clock.now();
            narrow(&gateway, &key_id, "forbidden", now.plus_days(2)).await;
            clock.advance(MINUTE);
            start(&gateway, &id, "2")
                .await
                .error(403, "MODEL_NOT_ALLOWED");
            narrow(&gateway, &key_id, "scripted", now.plus_days(2)).await;

            // Budget.
            budget(
                &gateway,
                &key_id,
                json!([{ "credits": 0.000001, "window": "total" }]),
            )
            .await;
            clock.advance(MINUTE);
            start(&gateway, &id, "3")
                .await
                .error(429, "BUDGET_EXCEEDED");
            budget(&gateway, &key_id, json!([])).await;

            // Expiry, then revocation.
            clock.advance(Duration::from_secs(10));
            let over = gateway.app().clock.now();
            narrow(&gateway, &key_id, "scripted", over).await;
            clock.advance(MINUTE);
            start(&gateway, &id, "4").await.error(403, "KEY_ENDED");
            narrow(&gateway, &key_id, "scripted", now.plus_days(2)).await;
            clock.advance(MINUTE);
            let started = start(&gateway, &id, "5").await;
            assert_eq!(started.status, 202, "{}", started.text());
            ended(&gateway.client(), &execution_id(&started)).await;
            revoke(&gateway, &key_id).await;
            clock.advance(MINUTE);
            for task in [&id, &free] {
                start(&gateway, task, "6").await.error(403, "KEY_ENDED");
            }
            let task = show(&gateway.client(), &id).await;
            assert_eq!(task["runs"][0]["error"]["code"], "KEY_ENDED", "{task}");

            // Another key of the owner takes the task over.
            let replaced = put(&gateway.client(), &path, &definition("mine")).await;
            assert_eq!(replaced.status, 200, "{}", replaced.text());
            clock.advance(MINUTE);
            assert_eq!(start(&gateway, &id, "7").await.status, 202);
            assert_eq!(forbidden.count(), 0);
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_is_defined_in_person_has_no_key() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::builder()
        .swarms()
        .upstream("scripted", &upstream)
        .start()
        .await;
    let bob = web_user(&gateway, "bob").await;
    let id = define(&bob, &definition("t")).await;
    assert_eq!(show(&bob, &id).await["key_id"], Value::Null);
    let made = bob.post("/api-keys", &json!({})).await.json();
    let by_key = gateway
        .stranger()
        .with_key(made["api_key"].as_str().expect("a key"));
    let path = format!("{TASKS}/{id}");
    let replaced = put(&by_key, &path, &definition("t")).await.json();
    assert_eq!(replaced["key_id"], made["key_id"]);
    let replaced = put(&bob, &path, &definition("t")).await.json();
    assert_eq!(replaced["key_id"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_swarm_ends_before_its_next_step_when_its_key_is_revoked() {
    let (allowed, forbidden) = (Upstream::start().await, Upstream::start().await);
    on_each_database(
        START,
        with_two_models(&allowed, &forbidden),
        async |gateway, _| {
            gateway.set_plan("pro").await;
            let before = allowed.count();
            let gate = Gate::new();
            allowed.always(Reply::chat_with_usage("fine", 10, 5).after_gate(&gate));
            let (key_id, client) = key(&gateway, json!({})).await;
            let accepted = client
                .post("/swarms", &swarm(&[agent("one"), agent("two")]))
                .await;
            assert_eq!(accepted.status, 202, "{}", accepted.text());
            allowed.next_request().await;
            revoke(&gateway, &key_id).await;
            gate.open();
            let id = execution_id(&accepted);
            let record = ended(&gateway.client(), &id).await;
            assert_eq!(record["status"], "partial", "{record}");
            let error = record["error"].as_str().expect("a reason");
            assert!(error.starts_with("KEY_ENDED"), "{error}");
            assert_eq!(record["agents_completed"], 1);
            is_settled(&gateway).await;
            assert_eq!(
                allowed.count() - before,
                1,
                "the call under way was the last"
            );
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swarms_call_uses_the_models_that_its_key_has_at_that_moment() {
    let (allowed, forbidden) = (Upstream::start().await, Upstream::start().await);
    let gateway = with_two_models(&allowed, &forbidden)(Gateway::builder())
        .start()
        .await;
    gateway.set_plan("pro").await;
    let gate = Gate::new();
    allowed.always(Reply::chat_with_usage("fine", 10, 5).after_gate(&gate));
    let (key_id, client) = key(&gateway, json!({ "models": ["scripted", "forbidden"] })).await;
    let mut second = agent("two");
    second["model"] = json!("forbidden");
    let accepted = client
        .post("/swarms", &swarm(&[agent("one"), second]))
        .await;
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    allowed.next_request().await;
    narrow(
        &gateway,
        &key_id,
        "scripted",
        gateway.app().clock.now().plus_days(2),
    )
    .await;
    gate.open();
    let id = execution_id(&accepted);
    let record = ended(&gateway.client(), &id).await;
    let error = record["error"].as_str().expect("a reason");
    assert!(error.contains("may not use the model forbidden"), "{error}");
    assert_eq!(forbidden.count(), 0);
}

const RESUME: &str = "POST /swarms/{execution_id}/resume";

/// The JSON body of a request to an endpoint. Each body names the model, except the body of `/mcp`.
fn body_of(endpoint: &str, model: &str, url: &str) -> Option<Value> {
    let message = json!([{ "role": "user", "content": "Hello" }]);
    Some(match endpoint {
        "POST /chat" | "POST /v1/chat/completions" => chat(model, "Hello"),
        "POST /code" => json!({ "model": model, "messages": message, "max_tokens": 10,
            "tools": [{ "type": "function", "function": { "name": "f" } }] }),
        "POST /v1/completions" => {
            json!({ "model": model, "prompt": "Hello", "max_tokens": 10 })
        }
        "POST /v1/responses" => {
            json!({ "model": model, "input": "Hello", "max_output_tokens": 10 })
        }
        "POST /v1/messages" | "POST /v1/messages/count_tokens" => {
            let mut body = json!({ "model": model, "messages": message });
            if endpoint == "POST /v1/messages" {
                body["max_tokens"] = json!(10);
            }
            body
        }
        // The path names the model.
        "POST /v1/models/{id}" | "POST /v1beta/models/{id}" => json!({
            "contents": [{ "parts": [{ "text": "Hello" }] }], "generationConfig": { "maxOutputTokens": 10 },
        }),
        "POST /v1/images/generations" => json!({ "model": model, "prompt": "A weir." }),
        "POST /v1/embeddings" => json!({ "model": model, "input": "A weir." }),
        "POST /v1/rerank" | "POST /v2/rerank" => {
            json!({ "model": model, "query": "weir", "documents": ["A weir."] })
        }
        "POST /v1/moderations" => json!({ "model": model, "input": "A weir." }),
        "POST /v1/audio/speech" => json!({ "model": model, "input": "A weir.", "voice": "alloy" }),
        "POST /swarms" => {
            let mut agent = agent("one");
            agent["model"] = json!(model);
            swarm(&[agent])
        }
        "POST /api/agent/tasks" | "PUT /api/agent/tasks/{task_id}" => {
            let mut task = definition("by a key");
            task["agents"][0]["model"] = json!(model);
            task
        }
        // The swarm has the models.
        RESUME => json!({}),
        "POST /mcp" => request(
            "tools/call",
            json!({ "name": "http_get", "arguments": { "url": url } }),
        ),
        _ => return None,
    })
}

/// Whether an endpoint serves no models for chats, such as `scripted`.
fn is_of_other_kind(endpoint: &str) -> bool {
    let kinds = [
        "/images/",
        "/embeddings",
        "/rerank",
        "/moderations",
        "/audio/",
    ];
    kinds.iter().any(|kind| endpoint.contains(kind))
}

/// Returns the body of an endpoint that takes a form: the model with an image of one byte, or with a recording of a few
/// samples.
fn form_of(endpoint: &str, model: &str) -> Option<Bytes> {
    let part = |head: &str, value: &str| {
        format!("--x\r\ncontent-disposition: form-data; {head}\r\n\r\n{value}\r\n")
    };
    let file = match endpoint {
        "POST /v1/images/edits" => part(
            "name=\"image\"; filename=\"i.png\"\r\ncontent-type: image/png",
            "x",
        ),
        "POST /v1/audio/transcriptions" | "POST /v1/audio/translations" => {
            // 8,000 samples a second, each of one byte.
            let head = "RIFF\x28\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0data\x04\0\0\0";
            let wav = format!("{head}aaaa");
            part("name=\"file\"; filename=\"a.wav\"", &wav)
        }
        _ => return None,
    };
    let parts = [
        part("name=\"model\"", model),
        part("name=\"prompt\"", "A weir."),
        file,
    ];
    Some(format!("{}--x--\r\n", parts.concat()).into())
}

/// Every operation of the OpenAPI document that accepts an API key, and whether it has a body.
async fn operations_for_keys(gateway: &Gateway) -> Vec<(OperationName, bool)> {
    let document = api::document(&gateway.stranger()).await;
    let accepts_key = |operation: &Value| {
        let mut schemes = operation["security"].as_array().into_iter().flatten();
        schemes.any(|scheme| scheme.get("apiKey").is_some())
    };
    let operations = api::operations(&document).into_iter();
    let found: Vec<_> = operations
        .filter(|(_, operation)| accepts_key(operation))
        .map(|(endpoint, operation)| (endpoint, operation["requestBody"].is_object()))
        .collect();
    assert!(found.len() > 25, "{found:?}");
    found
}

/// Requests to every operation that accepts a key.
struct Sweep<'a> {
    gateway: &'a Gateway,
    task_id: &'a str,
    execution_id: &'a str,
    request_id: &'a str,
    /// The target of tool calls.
    url: &'a str,
}

impl Sweep<'_> {
    /// Sends a request to each operation that accepts a key, and returns the responses by operation.
    ///
    /// # Panics
    ///
    /// If `body_of` has no body for an operation; the message names the operation.
    async fn send(&self, client: &Client, model: &str) -> Vec<(String, Answer)> {
        let mut answers = Vec::new();
        let mut unknown = BTreeSet::new();
        for (operation, takes_body) in operations_for_keys(self.gateway).await {
            let endpoint = operation.name();
            // Later requests of the sweep need the task and the swarm.
            let (task_id, execution_id) = match &*operation.method {
                "DELETE" => ("nothing", "nothing"),
                _ => (self.task_id, self.execution_id),
            };
            let id = match operation.path.ends_with("/models/{id}") && takes_body {
                true => format!("{model}:generateContent"),
                false => "a-session".to_owned(),
            };
            let named = operation
                .path
                .replace("{task_id}", task_id)
                .replace("{execution_id}", execution_id)
                .replace("{request_id}", self.request_id)
                .replace("{id}", &id);
            let (content_type, body) = match body_of(&endpoint, model, self.url) {
                Some(body) => (Some("application/json"), Bytes::from(body.to_string())),
                None => match form_of(&endpoint, model) {
                    Some(body) => (Some("multipart/form-data; boundary=x"), body),
                    None if takes_body => {
                        unknown.insert(endpoint);
                        continue;
                    }
                    None => (None, Bytes::new()),
                },
            };
            let method = operation.method.parse().expect("a method");
            answers.push((
                endpoint,
                client.send(method, &named, content_type, body).await,
            ));
        }
        assert_eq!(
            unknown,
            BTreeSet::new(),
            "add a body for these operations to `body_of` in tests/it/key_limits.rs"
        );
        answers
    }
}

/// The property of all operations that accept a key: a request cannot exceed the limits of its key, and no task or swarm
/// that the request creates exceeds them later.
#[tokio::test(flavor = "multi_thread")]
async fn no_endpoint_does_or_leaves_behind_what_a_keys_limits_forbid() {
    let (allowed, forbidden, target) = (
        Upstream::start().await,
        Upstream::start().await,
        Upstream::start().await,
    );
    allowed.always(Reply::chat_with_usage("fine", 10, 5));
    forbidden.always(Reply::chat_with_usage("never", 10, 5));
    target.always(Reply::new(200).body("read"));
    let builder = with_two_models(&allowed, &forbidden)(Gateway::builder());
    let private = format!("[tools.http_get]\nprivate = [\"{}\"]\n", target.address());
    let gateway = builder.tables(&private).start().await;
    gateway.set_plan("pro").await;
    let owner = gateway.client();
    let task_id = define(&owner, &definition("the owner's")).await;
    let accepted = owner.post("/swarms", &swarm(&[agent("one")])).await;
    let execution_id = execution_id(&accepted);
    ended(&owner, &execution_id).await;
    is_settled(&gateway).await;
    let requests = owner.get("/usage/requests").await.json();
    let request_id = requests["requests"][0]["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let url = target.base_url();
    let sweep = Sweep {
        gateway: &gateway,
        task_id: &task_id,
        execution_id: &execution_id,
        request_id: &request_id,
        url: &url,
    };

    // A forbidden model: each endpoint whose body names it rejects the request, and no task uses it later.
    let (restricted_id, restricted) = key(
        &gateway,
        json!({ "models": ["scripted"], "budget_credits": 50 }),
    )
    .await;
    for (endpoint, answer) in sweep.send(&restricted, "forbidden").await {
        let names_none = ["POST /mcp", RESUME].contains(&&*endpoint);
        if body_of(&endpoint, "x", "").is_some_and(|_| !names_none)
            || form_of(&endpoint, "x").is_some()
        {
            assert_eq!(answer.status, 403, "{endpoint}: {}", answer.text());
            assert!(
                answer.text().contains("may not use the model"),
                "{endpoint}: {}",
                answer.text()
            );
        } else {
            assert!(
                answer.status.as_u16() < 500,
                "{endpoint}: {}",
                answer.text()
            );
        }
    }
    run_all_tasks(&gateway).await;
    assert_eq!(forbidden.count(), 0);

    // No provider within the limits: no model is called, now or later.
    let nowhere = json!({ "data_limits": { "regions": ["nowhere"] } });
    let (_, bounded) = key(&gateway, nowhere).await;
    let calls = allowed.count();
    for (endpoint, answer) in sweep.send(&bounded, "scripted").await {
        let counts_only =
            ["POST /v1/messages/count_tokens", "POST /mcp", RESUME].contains(&&*endpoint);
        if is_of_other_kind(&endpoint) {
            assert_eq!(answer.status, 400, "{endpoint}: the model only chats");
        } else if body_of(&endpoint, "x", "").is_some() && !counts_only {
            assert_eq!(answer.status, 403, "{endpoint}: {}", answer.text());
            assert!(
                answer.text().contains("regions nowhere (key)"),
                "{endpoint}"
            );
        }
    }
    run_all_tasks(&gateway).await;
    assert_eq!(allowed.count(), calls);

    // An exhausted budget: no model or tool is called, now or later.
    let task_id = define(&owner, &definition("the owner's second")).await;
    let sweep = Sweep {
        task_id: &task_id,
        ..sweep
    };
    let (exhausted_id, exhausted) = key(&gateway, json!({ "budget_credits": 50 })).await;
    let mut question = chat("scripted", "Hello");
    question["max_tokens"] = json!(100);
    assert_eq!(exhausted.post("/chat", &question).await.status, 200);
    is_settled(&gateway).await;
    budget(
        &gateway,
        &exhausted_id,
        json!([{ "credits": 0.000001, "window": "total" }]),
    )
    .await;
    assert_eq!(
        shown(&gateway, &exhausted_id).await["budgets"][0]["left"],
        0
    );
    let before = (allowed.count(), target.count(), swarms_of(&owner).await);
    for (endpoint, answer) in sweep.send(&exhausted, "scripted").await {
        let text = answer.text();
        let costs = body_of(&endpoint, "x", "").is_some() || form_of(&endpoint, "x").is_some();
        // The swarm of the sweep is completed.
        let is_free =
            endpoint.contains("count_tokens") || endpoint.contains("/tasks") || endpoint == RESUME;
        if costs && !is_free && !is_of_other_kind(&endpoint) {
            assert_eq!(answer.status, 429, "{endpoint}: {text}");
            assert!(
                text.contains("BUDGET_EXCEEDED") || text.contains("billing_error"),
                "{endpoint}: {text}"
            );
        }
        assert!(answer.status.as_u16() < 500, "{endpoint}: {text}");
    }
    run_all_tasks(&gateway).await;
    assert_eq!(
        (allowed.count(), target.count(), swarms_of(&owner).await),
        before
    );

    // Every operation rejects revoked keys, expired keys and keys of disabled users.
    let (revoked_id, revoked) = key(&gateway, json!({})).await;
    assert_eq!(revoked.get("/models").await.status, 200);
    revoke(&gateway, &revoked_id).await;
    let expired = gateway
        .stranger()
        .with_key(&gateway.expired_key(USER).await);
    let bob = gateway.web_user_id("bob").await;
    let of_bob = gateway.stranger().with_key(&gateway.web_key("bob").await);
    assert_eq!(of_bob.get("/models").await.status, 200);
    let admin = gateway.admin("root").await;
    let disabled = admin
        .post(&format!("/admin/users/{bob}/disable"), &json!({}))
        .await;
    assert!(disabled.status.is_success(), "{}", disabled.text());
    let before = (allowed.count(), target.count(), swarms_of(&owner).await);
    let tasks = owner.get(TASKS).await.json()["tasks"].clone();
    for (name, client, status) in [
        ("revoked", revoked, 401),
        ("expired", expired, 401),
        ("disabled", of_bob, 403),
    ] {
        for (endpoint, answer) in sweep.send(&client, "scripted").await {
            assert_eq!(
                answer.status,
                status,
                "{name}: {endpoint}: {}",
                answer.text()
            );
        }
    }
    assert_eq!(
        (allowed.count(), target.count(), swarms_of(&owner).await),
        before
    );
    assert_eq!(owner.get(TASKS).await.json()["tasks"], tasks);
    let budget = shown(&gateway, &restricted_id).await["budgets"][0].clone();
    assert_eq!(budget["used"], 0, "{budget}");
}

/// Starts all tasks, and waits for their swarms.
async fn run_all_tasks(gateway: &Gateway) {
    let owner = gateway.client();
    let tasks = owner.get(TASKS).await.json();
    for task in tasks["tasks"].as_array().expect("a list") {
        let id = task["task_id"].as_str().expect("an id");
        let started = start(gateway, id, "sweep").await;
        if let Some(execution) = started.json()["execution_id"].as_str() {
            let record = ended(&owner, execution).await;
            assert_ne!(record["status"], "running");
        }
    }
    is_settled(gateway).await;
}

async fn swarms_of(client: &Client) -> usize {
    let swarms = client.get("/swarms?limit=100").await.json();
    swarms["swarms"].as_array().expect("a list").len()
}
