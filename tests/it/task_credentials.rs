//! Credentials of a task's agents: sent to their bound place only, and never shown.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};
use tests::gateway::{Builder, on_each_database};
use tests::stores::each_database;
use tests::{Client, Gateway, Reply, Upstream};
use weir_storage::clock::Millis;
use weir_storage::sealing::KeyRing;
use weir_storage::secrets::{Secret, SecretKey};
use weir_swarms::tasks::definition::Definition;
use weir_swarms::tasks::store::{Task, TaskStore};
use weir_tools::settings::CredentialBinding;
use weir_tools::task_credentials::{NewCredential, TaskCredentials};

use crate::tasks::{BEGINNING, TASKS, define, definition, show, web_user};

const ENCRYPT: &str = "/api/agent/encrypt-credential";
const DELETE: &str = "/api/agent/delete-credential";

const SECRET: &str = "tok-0123456789/abcdef+ghijkl==";

/// A model's response that calls a tool.
fn calls(tool: &str, arguments: &Value) -> Reply {
    let function = json!({ "name": tool, "arguments": arguments.to_string() });
    let call = json!({ "id": "call_1", "type": "function", "function": function });
    let message = json!({ "role": "assistant", "content": null, "tool_calls": [call] });
    Reply::chat_message(&message, "tool_calls")
}

/// Permits these hosts for `http_get`, and the first for `api_call` as the integration `crm`, which has no
/// credential.
fn reaching<'a>(model: &'a Upstream, receivers: [&'a Upstream; 2]) -> impl Fn(Builder) -> Builder {
    move |builder| {
        let [at, other] = receivers.map(Upstream::address);
        builder
            .swarms()
            .upstream("scripted", model)
            .tables(&format!(
                "[tools.http_get]\nports = [{}, {}]\nprivate = [\"{at}\", \"{other}\"]\n\
             [integrations.crm]\nbase_url = \"http://{at}\"\npaths = [\"/v2\"]\nprivate = true\n",
                at.port(),
                other.port(),
            ))
    }
}

fn whole(secret: &str) -> [String; 3] {
    [
        secret.to_owned(),
        STANDARD.encode(secret),
        secret.replace('/', "\\/"),
    ]
}

/// Runs the swarm of the model's script, and returns its record with all output to its client.
async fn run(client: &Client, task_id: &str) -> (Value, String) {
    let mut asked = definition("s");
    asked["agents"][0]["tools"] = json!(["http_get", "api_call"]);
    asked["agents"][0]["integrations"] = json!(["crm"]);
    asked["task_id"] = json!(task_id);
    asked["swarm_id"] = asked["name"].take();
    asked.as_object_mut().expect("an object").remove("name");
    let accepted = client.post("/swarms", &asked).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    let id = accepted.json()["execution_id"].clone();
    let path = format!("/swarms/{}", id.as_str().expect("an id"));
    let events = format!("{path}/events");
    let events = client.follow(Method::GET, &events, &Value::Null).await;
    let events = events.try_rest().await.join("\n");
    let record = client.get(&path).await;
    let told = format!("{events}\n{}", record.text());
    (record.json(), told)
}

async fn count(gateway: &Gateway) -> i64 {
    sqlx::query_scalar("SELECT CAST(COUNT(*) AS BIGINT) FROM task_credentials")
        .fetch_one(gateway.app().database.reader())
        .await
        .expect("an answer")
}

#[tokio::test]
async fn a_credential_is_sent_where_it_is_bound_and_shown_to_nobody() {
    let (model, bound, elsewhere) = (
        Upstream::start().await,
        Upstream::start().await,
        Upstream::start().await,
    );
    let configure = reaching(&model, [&bound, &elsewhere]);
    on_each_database(BEGINNING, configure, async |gateway, _| {
        let (model_before, bound_before, elsewhere_before) = (model.count(), bound.count(), elsewhere.count());
        let wanda = web_user(&gateway, "wanda").await;
        let id = define(&wanda, &definition("t")).await;
        let asked = json!({ "task_id": id, "name": "crm", "secret": SECRET, "origin": bound.base_url(), "path": "/v2" });
        let kept = wanda.post(ENCRYPT, &asked).await;
        assert_eq!(kept.status, 201, "{}", kept.text());
        let url = |path: &str| json!({ "url": format!("{}{path}", bound.base_url()), "credential": "crm" });
        // A server that echoes, one that redirects, and requests outside of the credential's binding.
        let echo = format!("Bearer {SECRET} {}", STANDARD.encode(SECRET));
        let away = format!("{}/v2/taken", elsewhere.base_url());
        bound
            .will(Reply::new(200).body(echo))
            .will(Reply::redirect(302, &away))
            .will(Reply::new(200).body("Items."));
        elsewhere.will(Reply::new(200).body("Taken."));
        model
            .will(calls("http_get", &url("/v2/items")))
            .will(calls("http_get", &url("/v2/away")))
            .will(calls("http_get", &url("/v1/items")))
            .will(calls("http_get", &json!({ "url": away, "credential": "crm" })))
            .will(calls("api_call", &json!({ "integration": "crm", "path": "/v2/items" })))
            .will(Reply::chat("Done."));
        let (record, told) = run(&wanda, &id).await;
        assert_eq!(record["content"], "Done.", "{record}");
        let log = record["agents"][0]["tool_calls"].as_array().expect("a list");
        let statuses: Vec<_> = log.iter().map(|call| call["status"].as_str()).collect();
        let (through, blocked) = (Some("success"), Some("blocked"));
        assert_eq!(statuses, [through, through, blocked, blocked, through], "{log:?}");

        let sent = &bound.requests()[bound_before..];
        let paths: Vec<_> = sent.iter().map(|request| &*request.path).collect();
        assert_eq!(paths, ["/v2/items", "/v2/away", "/v2/items"]);
        for request in sent {
            assert_eq!(request.header("authorization"), Some(&*format!("Bearer {SECRET}")));
        }
        let sent = &elsewhere.requests()[elsewhere_before..];
        assert_eq!(sent.len(), 1, "what was led there");
        assert_eq!(sent[0].header("authorization"), None);

        let prompts: String = model.requests()[model_before..]
            .iter()
            .map(|request| request.json().to_string())
            .collect();
        assert!(prompts.contains("Items."), "{prompts}");
        let shown = show(&wanda, &id).await;
        assert_eq!(shown["credentials"][0]["name"], "crm");
        assert_eq!(shown["credentials"][0]["methods"], json!(["GET"]));
        for text in [&prompts, &told, &shown.to_string(), &kept.text()] {
            for spelled in whole(SECRET) {
                assert!(!text.contains(&spelled), "{text}");
            }
        }

        // Another user's swarm does not get it, under any task id.
        let mallory = web_user(&gateway, "mallory").await;
        model.will(calls("http_get", &url("/v2/items"))).will(Reply::chat("So be it."));
        let (record, _) = run(&mallory, &id).await;
        let reason = record["agents"][0]["tool_calls"][0]["blocked_reason"].to_string();
        assert!(reason.contains("is not the call's"), "{reason}");
        for (path, body) in [(ENCRYPT, &asked), (DELETE, &json!({ "task_id": id, "name": "crm" }))] {
            assert_eq!(mallory.post(path, body).await.error(404, "NOT_FOUND")["param"], "task_id");
        }

        let named = json!({ "task_id": id, "name": "crm" });
        assert_eq!(count(&gateway).await, 1);
        assert_eq!(wanda.post(DELETE, &named).await.status, 204);
        assert_eq!(count(&gateway).await, 0);
        assert_eq!(wanda.post(DELETE, &named).await.error(404, "NOT_FOUND")["param"], "name");
        model.will(calls("http_get", &url("/v2/items"))).will(Reply::chat("So be it."));
        let (record, _) = run(&wanda, &id).await;
        assert_eq!(record["agents"][0]["tool_calls"][0]["status"], "blocked");
        assert_eq!(bound.count() - bound_before, 3);

        assert_eq!(wanda.post(ENCRYPT, &asked).await.status, 201);
        assert_eq!(wanda.delete(&format!("{TASKS}/{id}")).await.status, 204);
        assert_eq!(count(&gateway).await, 0, "it goes with its task");
    })
    .await;
}

#[tokio::test]
async fn a_credential_is_refused_by_its_field_and_never_repeated() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .start()
        .await;
    let wanda = web_user(&gateway, "wanda").await;
    let id = define(&wanda, &definition("t")).await;
    let sound =
        json!({ "task_id": id, "name": "crm", "secret": SECRET, "origin": "https://api.example" });
    for (field, value) in [
        ("name", json!("")),
        ("name", json!("a b")),
        ("secret", json!("fifteen-bytes-x")),
        ("secret", json!(format!("{SECRET}\r\nx: y"))),
        ("secret", json!(format!("Bearer {SECRET}"))),
        ("secret", json!({ "value": SECRET })),
        ("origin", json!("api.example")),
        ("origin", json!("https://api.example/v1")),
        ("methods", json!([])),
        ("methods[0]", json!(["FETCH"])),
        ("path", json!("v2")),
        ("header", json!("not a header")),
        ("header", json!("host")),
        ("header", json!("proxy-authorization")),
        ("value", json!(SECRET)),
    ] {
        let mut asked = sound.clone();
        asked[field.split('[').next().expect("a name")] = value;
        let refused = wanda.post(ENCRYPT, &asked).await;
        assert_eq!(
            refused.error(400, "INVALID_REQUEST")["param"],
            field,
            "{asked}"
        );
        assert!(!refused.text().contains(SECRET), "{}", refused.text());
    }
    assert_eq!(count(&gateway).await, 0);
    for number in 0..20 {
        let mut asked = sound.clone();
        asked["name"] = json!(format!("own.{number}"));
        assert_eq!(wanda.post(ENCRYPT, &asked).await.status, 201);
        // A replacement by itself.
        assert_eq!(wanda.post(ENCRYPT, &asked).await.status, 201);
    }
    wanda
        .post(ENCRYPT, &sound)
        .await
        .error(429, "CREDENTIAL_LIMIT_REACHED");
    let data = gateway.stop().await;
    let mut read = 0;
    // The database and its unmerged log.
    for entry in std::fs::read_dir(data.path().join("data")).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            let bytes = std::fs::read(&path).expect("a file");
            read += bytes.len();
            let text = String::from_utf8_lossy(&bytes);
            for spelled in whole(SECRET) {
                assert!(!text.contains(&spelled), "{}", path.display());
            }
        }
    }
    assert!(read > 0);
}

#[tokio::test]
async fn what_a_task_keeps_opens_as_what_it_is_alone_and_is_sealed_anew() {
    each_database(async |stores| {
        let database = &stores.database;
        for user in ["alice", "bob"] {
            let insert = sqlx::query("INSERT INTO users (id, created_at) VALUES ($1, 1)").bind(user);
            insert.execute(database.writer()).await.expect("an answer");
        }
        let (old, new) = ((1, SecretKey::new([1; 32])), (2, SecretKey::new([2; 32])));
        let stores_of = |keys: Vec<(u32, SecretKey)>| {
            let ring = KeyRing::of(keys);
            (TaskStore::new(database.clone(), ring.clone()), TaskCredentials::new(database.clone(), ring))
        };
        let (tasks, credentials) = stores_of(vec![old.clone()]);
        let binding = CredentialBinding {
            origin: "https://api.example".to_owned(),
            methods: Vec::new(),
            path: "/".to_owned(),
            header: "authorization".to_owned(),
            prefix: None,
        };
        for (task_id, user_id) in [("task_1", "alice"), ("task_2", "alice"), ("task_3", "bob")] {
            let task = Task {
                id: task_id.to_owned(),
                user_id: user_id.to_owned(),
                parts: Vec::new(),
                definition: Definition::read(definition("t").to_string().as_bytes()).expect("it is sound"),
                next_fire_at: None,
                created_at: Millis(1),
                updated_at: Millis(1),
            };
            assert!(tasks.create(&task).await.expect("an answer"));
            let secret = Secret::new(format!("the secret of {task_id}"));
            let new = NewCredential {
                user_id,
                task_id,
                name: "crm",
                secret: &secret,
                binding: &binding,
                at: Millis(1),
            };
            assert!(credentials.keep(&new).await.expect("an answer"));
        }
        let values = async |credentials: &TaskCredentials, user: &str, task: &str| {
            let found = credentials.of(user, task).await.expect("an answer");
            let values = found.iter().map(|credential| credential.value.expose().to_owned());
            values.collect::<Vec<_>>()
        };
        let first = ["Bearer the secret of task_1"];
        assert_eq!(values(&credentials, "alice", "task_1").await, first);
        assert_eq!(values(&credentials, "bob", "task_1").await, [""; 0]);

        // Under another key, then without the first one.
        let (tasks, credentials) = stores_of(vec![new.clone(), old.clone()]);
        tasks.seal_anew().await.expect("an answer");
        credentials.seal_anew().await.expect("an answer");
        let (tasks, credentials) = stores_of(vec![new]);
        assert!(tasks.find("task_1").await.expect("it opens").is_some());
        assert_eq!(values(&credentials, "alice", "task_1").await, first);

        // Another task's, and another user's.
        for other in ["task_2", "task_3"] {
            let swap = "UPDATE task_credentials SET sealed = (SELECT sealed FROM task_credentials WHERE task_id = $1) \
                        WHERE task_id = 'task_1'";
            let swap = sqlx::query(swap).bind(other);
            swap.execute(database.writer()).await.expect("an answer");
            assert_eq!(values(&credentials, "alice", "task_1").await, [""; 0]);
        }
    })
    .await;
}
