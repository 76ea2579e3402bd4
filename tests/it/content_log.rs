//! The content log: prompts and responses of those who chose to store them, visible to the right people only.

use std::num::NonZeroU32;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tests::gateway::{Builder, on_each_database, share_compiled_plugins, top_up};
use tests::{Answer, Client, Gate, Gateway, Reply, Upstream, chat, patiently};
use weir_app::config::Config;
use weir_identity::dev_issuer::DevIssuer;
use weir_ledger::Credits;
use weir_request::audit::retention::{self, RetentionDays};
use weir_storage::clock::Millis;

use crate::billing::is_settled;
use crate::cli::Served;
use crate::console::{Browser, page};
use crate::filters::{FILTER, filtered};
use crate::swarms::{agent, ended, swarm};
use crate::tasks::put;

const NOON: &str = "2026-01-31T12:00:00Z";
const ON: &str = "[content_log]\ndays = 7\n";

/// A key of OpenAI's shape.
const SECRET: &str = "sk-proj-0123456789abcdefABCDEF0123456789";

fn logging(builder: Builder) -> Builder {
    builder.tables(ON)
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

fn id_of(answer: &Answer) -> String {
    let id = answer.headers["x-request-id"].to_str();
    id.expect("ASCII").to_owned()
}

fn switch(enabled: bool) -> Value {
    json!({ "enabled": enabled })
}

/// Turns the storage on or off.
async fn set(client: &Client, path: &str, enabled: bool) -> Answer {
    put(client, &format!("{path}/content-log"), &switch(enabled)).await
}

/// A key of a web user: the client with it, its id, and the path of its settings.
struct Key {
    client: Client,
    id: String,
    path: String,
}

impl Key {
    async fn new(gateway: &Gateway, by: &Client) -> Self {
        Self::made(gateway, by, &json!({ "name": "k", "scope": "full" })).await
    }

    async fn made(gateway: &Gateway, by: &Client, body: &Value) -> Self {
        let made = by.post("/api-keys", body).await;
        assert_eq!(made.status, 201, "{}", made.text());
        let made = made.json();
        let id = text(&made["key_id"]);
        Self {
            client: gateway.stranger().with_key(&text(&made["api_key"])),
            path: format!("/api-keys/{id}"),
            id,
        }
    }

    /// A key whose content is stored.
    async fn logged(gateway: &Gateway, by: &Client) -> Self {
        let key = Self::new(gateway, by).await;
        let on = set(by, &key.path, true).await;
        assert_eq!(on.status, 200, "{}", on.text());
        assert_eq!(on.json(), switch(true));
        key
    }
}

fn path_of(id: &str) -> String {
    format!("/usage/requests/{id}/content")
}

/// Returns the stored content of a request, as soon as it is there: it is recorded after the response.
async fn content(client: &Client, id: &str) -> Value {
    patiently(async {
        loop {
            let answer = client.get(&path_of(id)).await;
            if answer.status == 200 {
                return answer.json();
            }
            answer.error(404, "UNKNOWN_REQUEST");
        }
    })
    .await
}

async fn rows(gateway: &Gateway) -> i64 {
    if let Some(log) = &gateway.app().content_log {
        log.flush().await;
    }
    let count = sqlx::query_scalar("SELECT CAST(COUNT(*) AS BIGINT) FROM content_logs");
    let count = count.fetch_one(gateway.app().database.reader()).await;
    count.expect("it answers")
}

async fn metric(gateway: &Gateway) -> f64 {
    let metrics = gateway.stranger().get("/metrics").await.text();
    let name = "weir_content_log_dropped_total ";
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.expect(name).trim().parse().expect("a number")
}

/// An organisation with credits: the owner acting for it, and its path.
async fn organisation(gateway: &Gateway, owner: &str) -> (Client, String, String) {
    let named = json!({ "name": "Acme" });
    let made = gateway.web(owner).post("/organisations", &named).await;
    let id = text(&made.json()["organisation_id"]);
    top_up(gateway.app(), &id, Credits::whole(1_000)).await;
    let acting = gateway.web(owner).with_header("x-weir-account", &id);
    (acting, format!("/organisations/{id}"), id)
}

/// Makes a web user a member. Returns the client that acts for the organisation.
async fn join(gateway: &Gateway, by: &Client, path: &str, user: &str, role: &str) -> Client {
    let invite = json!({ "email": format!("{user}@example.com"), "role": role });
    let invited = by.post(&format!("{path}/invitations"), &invite).await;
    let code = json!({ "code": invited.json()["code"] });
    let web = gateway.web(user);
    let joined = web.post("/invitations/accept", &code).await;
    assert_eq!(joined.status, 200, "{}", joined.text());
    let id = path.rsplit('/').next().expect("an id");
    web.with_header("x-weir-account", id)
}

/// Returns the views of a request's content in the audit log, by their actors.
async fn views(gateway: &Gateway, admin: &Client, id: &str) -> Vec<String> {
    gateway.app().audit.flush().await;
    let events = admin
        .get("/admin/audit?kind=request.content_viewed")
        .await
        .json();
    let events = events["events"].as_array().expect("a list").iter();
    let of_request = events.filter(|event| event["reason"] == id);
    let mut actors = Vec::new();
    for event in of_request {
        for _ in 0..event["count"].as_i64().expect("a count") {
            actors.push(text(&event["actor"]));
        }
    }
    actors.sort();
    actors
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_stored_unless_a_key_or_an_organisation_chose_it() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("response-canary"));
    let configure = |builder: Builder| logging(builder).upstream("scripted", &upstream);
    on_each_database(NOON, configure, async |gateway, _| {
        let alice = gateway.web("alice");
        let key = Key::new(&gateway, &alice).await;
        let ask = async || {
            let answer = key
                .client
                .post("/chat", &chat("scripted", "prompt-canary"))
                .await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            is_settled(&gateway).await;
            id_of(&answer)
        };
        let before = ask().await;
        assert_eq!(rows(&gateway).await, 0);
        let listed = alice.get("/api-keys").await.json();
        let off = json!({ "key": false, "organisation": false });
        assert_eq!(listed["api_keys"][0]["content_log"], off, "{listed}");

        assert_eq!(set(&alice, &key.path, true).await.status, 200);
        let listed = alice.get("/api-keys").await.json();
        let on = json!({ "key": true, "organisation": false });
        assert_eq!(listed["api_keys"][0]["content_log"], on, "{listed}");
        let stored = ask().await;
        let shown = content(&alice, &stored).await;
        for (field, value) in [
            ("request_id", json!(stored)),
            ("at", json!(NOON)),
            ("user_id", json!(gateway.web_user_id("alice").await)),
            ("key_id", json!(key.id)),
            ("for_organisation", json!(false)),
            ("error", Value::Null),
        ] {
            assert_eq!(shown[field], value, "{field} of {shown}");
        }
        let request = &shown["request"];
        assert_eq!(request["kind"], "chat");
        assert_eq!(request["model"], "scripted");
        assert_eq!(request["messages"][0]["role"], "user");
        let part = &request["messages"][0]["parts"][0];
        assert_eq!(
            (&part["kind"], &part["text"]),
            (&json!("text"), &json!("prompt-canary"))
        );
        assert_eq!(shown["response"]["parts"][0]["text"], "response-canary");
        assert_eq!(shown["response"]["finish_reason"], "stop");

        // Turned off, it stays off on all nodes at once, and what there is stays.
        assert_eq!(set(&alice, &key.path, false).await.status, 200);
        let after = ask().await;
        assert_eq!(rows(&gateway).await, 1);
        for id in [before, after] {
            alice.get(&path_of(&id)).await.error(404, "UNKNOWN_REQUEST");
        }
        assert_eq!(content(&alice, &stored).await, shown);
        // Both choices are security events.
        gateway.app().audit.flush().await;
        let admin = gateway.admin("root").await;
        let events = admin.get("/admin/audit?kind=api_key.content_log_set").await;
        let events = events.json();
        let choices = [
            &events["events"][1]["reason"],
            &events["events"][0]["reason"],
        ];
        assert_eq!(choices, ["on", "off"], "{events}");
        // A revoked key takes with it what its user chose to store.
        assert_eq!(alice.delete(&key.path).await.status, 204);
        assert_eq!(rows(&gateway).await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_gateway_that_does_not_allow_it_stores_nothing_and_says_so() {
    let gateway = Gateway::start().await;
    let alice = gateway.web("alice");
    let key = Key::new(&gateway, &alice).await;
    set(&alice, &key.path, true)
        .await
        .error(409, "NOT_POSSIBLE");
    assert_eq!(set(&alice, &key.path, false).await.status, 200);
    let (olivia, path, _) = organisation(&gateway, "olivia").await;
    set(&olivia, &path, true).await.error(409, "NOT_POSSIBLE");
    assert_eq!(set(&olivia, &path, false).await.status, 200);
    let answer = key.client.post("/chat", &chat("demo", "x")).await;
    let missing = alice.get(&path_of(&id_of(&answer))).await;
    missing.error(404, "UNKNOWN_REQUEST");
    let browser = Browser::of(&gateway, "alice")
        .await
        .page("/console/keys")
        .await;
    assert!(!browser.contains("Prompts and responses"), "{browser}");
    for (days, is_allowed) in [("0", false), ("1", true), ("30", true), ("31", false)] {
        let config = Config::from_toml(&format!("[content_log]\ndays = {days}\n"));
        assert_eq!(config.is_ok(), is_allowed, "{days}");
        if let Err(error) = config {
            let error = format!("{error:#}");
            assert!(
                error.contains("`content_log.days` must be from 1 to 30"),
                "{error}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_right_people_see_a_content_and_each_view_by_another_is_recorded() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("fine"));
    let configure = |builder: Builder| logging(builder).upstream("scripted", &upstream);
    on_each_database(NOON, configure, async |gateway, _| {
        let admin = gateway.admin("root").await;
        let (olivia, path, id) = organisation(&gateway, "olivia").await;
        let max = join(&gateway, &olivia, &path, "max", "member").await;
        let mia = join(&gateway, &olivia, &path, "mia", "member").await;
        let anna = join(&gateway, &olivia, &path, "anna", "admin").await;
        let key = Key::logged(&gateway, &max).await;
        let other_key = Key::new(&gateway, &max).await;
        let ask = async |client: &Client| {
            let answer = client.post("/chat", &chat("scripted", "x")).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            id_of(&answer)
        };
        let unseen = async |client: &Client, id: &str| {
            client.get(&path_of(id)).await.error(404, "UNKNOWN_REQUEST");
        };

        // Only the key's user decides on it, and only their requests are stored.
        set(&anna, &other_key.path, true)
            .await
            .error(403, "FORBIDDEN");
        set(&mia, &other_key.path, true)
            .await
            .error(404, "NOT_FOUND");
        set(&max, &path, true).await.error(403, "FORBIDDEN");
        let own = ask(&key.client).await;
        content(&max, &own).await;
        content(&key.client, &own).await;
        for other in [
            &other_key.client,
            &olivia,
            &anna,
            &mia,
            &gateway.web("max"),
            &gateway.web("stranger"),
        ] {
            unseen(other, &own).await;
        }
        gateway
            .stranger()
            .get(&path_of(&own))
            .await
            .error(401, "UNAUTHENTICATED");
        // An administrator may turn a member's choice off.
        assert_eq!(set(&anna, &key.path, false).await.status, 200);
        unseen(&max, &ask(&key.client).await).await;

        // An organisation's choice is for all of its requests, and every member sees that.
        let on = set(&anna, &path, true).await;
        assert_eq!(on.json()["content_log"], true, "{}", on.text());
        assert_eq!(mia.get(&path).await.json()["content_log"], true);
        let keys = max.get("/api-keys").await.json();
        let shown = json!({ "key": false, "organisation": true });
        assert_eq!(keys["api_keys"][0]["content_log"], shown, "{keys}");
        let by_key = ask(&key.client).await;
        let by_web = ask(&max).await;
        for request in [&by_key, &by_web] {
            let seen = content(&max, request).await;
            assert_eq!(seen["for_organisation"], true, "{seen}");
            assert_eq!(seen["account_id"], id);
            for client in [&olivia, &anna] {
                content(client, request).await;
            }
            unseen(&mia, request).await;
            unseen(&gateway.web("anna"), request).await;
        }
        assert!(views(&gateway, &admin, &own).await.is_empty());
        let actor = async |user: &str| format!("user:{}", gateway.web_user_id(user).await);
        let mut viewers = vec![actor("anna").await, actor("olivia").await];
        viewers.sort();
        assert_eq!(views(&gateway, &admin, &by_key).await, viewers);

        // The gateway's administrators see all, and each view is recorded.
        let of_anybody = format!("/admin/requests/{own}/content");
        let seen = admin.get(&of_anybody).await;
        assert_eq!(seen.json()["response"]["parts"][0]["text"], "fine");
        assert_eq!(views(&gateway, &admin, &own).await, [actor("root").await]);
        for (client, status) in [(&max, 403), (&gateway.stranger(), 401)] {
            assert_eq!(client.get(&of_anybody).await.status, status);
        }
        let missing = admin.get("/admin/requests/req_0/content").await;
        missing.error(404, "UNKNOWN_REQUEST");

        // A former member sees nothing, and neither does a former administrator.
        let anna_id = gateway.web_user_id("anna").await;
        let removed = olivia.delete(&format!("{path}/members/{anna_id}")).await;
        assert_eq!(removed.status, 204, "{}", removed.text());
        assert_eq!(anna.get(&path_of(&by_key)).await.status, 404);

        // A revoked key does not take what the organisation chose to store.
        assert_eq!(max.delete(&key.path).await.status, 204);
        content(&max, &by_key).await;
        unseen(&max, &own).await;
        is_settled(&gateway).await;
        let deleted = olivia.delete(&format!("{path}?forfeit_credits=true")).await;
        assert_eq!(deleted.status, 204, "{}", deleted.text());
        assert_eq!(rows(&gateway).await, 0);
    })
    .await;
}

/// The contents that a key's user chose to store go with the user's membership, and with the key's project.
#[tokio::test]
async fn contents_go_with_a_membership_and_with_a_project() {
    let gateway = Gateway::builder().tables(ON).start().await;
    let (olivia, path, _) = organisation(&gateway, "olivia").await;
    let max = join(&gateway, &olivia, &path, "max", "member").await;
    let named = json!({ "name": "Locks" });
    let project = olivia.post(&format!("{path}/projects"), &named).await;
    let project = text(&project.json()["project_id"]);
    let body = json!({ "project_id": project });
    let of_project = Key::made(&gateway, &max, &body).await;
    let of_member = Key::made(&gateway, &max, &json!({})).await;
    for key in [&of_project, &of_member] {
        assert_eq!(set(&max, &key.path, true).await.status, 200);
        let answer = key.client.post("/chat", &chat("demo", "x")).await;
        content(&max, &id_of(&answer)).await;
    }
    assert_eq!(rows(&gateway).await, 2);
    let archived = olivia.delete(&format!("{path}/projects/{project}")).await;
    assert_eq!(archived.status, 204, "{}", archived.text());
    assert_eq!(rows(&gateway).await, 1);
    let member = gateway.web_user_id("max").await;
    let removed = olivia.delete(&format!("{path}/members/{member}")).await;
    assert_eq!(removed.status, 204, "{}", removed.text());
    assert_eq!(rows(&gateway).await, 0);
}

/// Every chat dialect, streamed or not, and each other kind of request.
#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_request_is_stored() {
    let gateway = Gateway::builder().tables(ON).start().await;
    let alice = gateway.web("alice");
    let key = Key::logged(&gateway, &alice).await;
    let image = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let user = json!([{ "role": "user", "content": "Hello, weir!" }]);
    let tool = json!({ "type": "function", "function": { "name": "look_up", "parameters": { "type": "object" } } });
    let seen = json!([{ "role": "system", "content": "Be kind." }, { "role": "user", "content": [
        { "type": "text", "text": "Hello, weir!" },
        { "type": "image_url", "image_url": { "url": format!("data:image/png;base64,{image}") } },
    ] }]);
    for (path, body) in [
        ("/chat", json!({ "model": "demo", "messages": user })),
        (
            "/v1/chat/completions",
            json!({ "model": "demo", "messages": seen, "tools": [tool], "temperature": 0.5 }),
        ),
        (
            "/v1/completions",
            json!({ "model": "demo", "prompt": "Hello, weir!" }),
        ),
        (
            "/v1/messages",
            json!({ "model": "demo", "max_tokens": 100, "messages": user, "system": "Be kind." }),
        ),
        (
            "/v1/responses",
            json!({ "model": "demo", "input": "Hello, weir!" }),
        ),
        (
            "/v1beta/models/demo:generateContent",
            json!({ "contents": [{ "role": "user", "parts": [{ "text": "Hello, weir!" }] }] }),
        ),
    ] {
        for stream in [false, true] {
            let mut body = body.clone();
            let mut path = path.to_owned();
            match (stream, path.contains(':')) {
                (true, true) => path = path.replace(":generate", ":streamGenerate") + "?alt=sse",
                (true, false) => body["stream"] = true.into(),
                (false, _) => {}
            }
            let answer = key.client.post(&path, &body).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            let shown = content(&alice, &id_of(&answer)).await;
            assert_eq!(shown["request"]["kind"], "chat", "{path}: {shown}");
            let whole = shown["request"].to_string();
            assert!(whole.contains("Hello, weir!"), "{path}: {shown}");
            let response = text(&shown["response"]["parts"][0]["text"]);
            assert!(response.contains("Hello, weir!"), "{path}: {shown}");
            assert_eq!(
                shown["response"]["finish_reason"], "stop",
                "{path}: {shown}"
            );
            if path == "/v1/chat/completions" {
                assert_eq!(shown["request"]["messages"][0]["role"], "system");
                let picture = &shown["request"]["messages"][1]["parts"][1];
                assert_eq!(picture["kind"], "image", "{shown}");
                assert_eq!(picture["media_type"], "image/png");
                assert!(picture["size_bytes"].as_i64() > Some(50), "{shown}");
                assert!(!whole.contains("iVBORw0"), "{shown}");
                assert_eq!(shown["request"]["tools"], json!(["look_up"]));
                assert_eq!(shown["request"]["parameters"]["temperature"], "0.5");
            }
        }
    }
    for (path, body, kind, part) in [
        (
            "/v1/embeddings",
            json!({ "model": "demo-embedding", "input": ["Hello, weir!"] }),
            "embeddings",
            "data",
        ),
        (
            "/v1/rerank",
            json!({ "model": "demo-rerank", "query": "Hello, weir!", "documents": ["a", "b"] }),
            "rerank",
            "data",
        ),
        (
            "/v1/moderations",
            json!({ "model": "demo-moderation", "input": "Hello, weir!" }),
            "moderation",
            "data",
        ),
        (
            "/v1/audio/speech",
            json!({ "model": "demo-speech", "input": "Hello, weir!", "voice": "alloy" }),
            "speech",
            "audio",
        ),
        (
            "/v1/images/generations",
            json!({ "model": "demo-image", "prompt": "Hello, weir!" }),
            "images",
            "image",
        ),
    ] {
        let answer = key.client.post(path, &body).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let shown = content(&alice, &id_of(&answer)).await;
        assert_eq!(shown["request"]["kind"], kind, "{path}: {shown}");
        let prompt = &shown["request"]["messages"][0]["parts"][0]["text"];
        assert_eq!(prompt, "Hello, weir!", "{path}: {shown}");
        let response = &shown["response"]["parts"][0];
        assert_eq!(response["kind"], part, "{path}: {shown}");
        assert!(response["size_bytes"].as_i64() > Some(0), "{path}: {shown}");
    }
}

/// The model calls of a swarm belong to the member who started it.
#[tokio::test(flavor = "multi_thread")]
async fn the_model_calls_of_a_swarm_are_stored_for_its_user() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("found it"));
    let gateway = Gateway::builder()
        .swarms()
        .tables(ON)
        .upstream("scripted", &upstream)
        .start()
        .await;
    let (olivia, path, id) = organisation(&gateway, "olivia").await;
    let max = join(&gateway, &olivia, &path, "max", "member").await;
    let admin = gateway.admin("root").await;
    let plan = json!({ "plan": "pro" });
    let set_plan = admin.post(&format!("/admin/users/{id}/plan"), &plan).await;
    assert_eq!(set_plan.status, 200, "{}", set_plan.text());
    let key = Key::logged(&gateway, &max).await;
    let accepted = key.client.post("/swarms", &swarm(&[agent("scout")])).await;
    let run = text(&accepted.json()["execution_id"]);
    assert_eq!(ended(&key.client, &run).await["status"], "completed");
    let ids = async || {
        rows(&gateway).await;
        let ids = sqlx::query_scalar::<_, String>("SELECT request_id FROM content_logs");
        ids.fetch_all(gateway.app().database.reader())
            .await
            .expect("it answers")
    };
    let calls = patiently(async {
        loop {
            let found = ids().await;
            if !found.is_empty() {
                return found;
            }
        }
    })
    .await;
    let shown = content(&max, &calls[0]).await;
    assert_eq!(shown["response"]["parts"][0]["text"], "found it", "{shown}");
    assert_eq!(shown["user_id"], gateway.web_user_id("max").await);
    let hidden = olivia.get(&path_of(&calls[0])).await;
    hidden.error(404, "UNKNOWN_REQUEST");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_and_abandoned_requests_are_stored_with_what_there_was() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::builder()
        .tables(ON)
        .upstream("scripted", &upstream)
        .start()
        .await;
    let alice = gateway.web("alice");
    let key = Key::logged(&gateway, &alice).await;

    // A provider's failure.
    upstream.will(Reply::error(400, "no such thing"));
    let failed = key
        .client
        .post("/chat", &chat("scripted", "prompt-1"))
        .await;
    let code = text(&failed.json()["error"]["code"]);
    let shown = content(&alice, &id_of(&failed)).await;
    assert_eq!(shown["error"]["code"], code, "{shown}");
    assert_eq!(
        shown["request"]["messages"][0]["parts"][0]["text"],
        "prompt-1"
    );
    assert_eq!(shown["response"]["parts"], json!([]));

    // An unknown model, and a body that cannot be read.
    let unknown = key
        .client
        .post("/chat", &chat("no-model", "prompt-2"))
        .await;
    unknown.error(400, "UNKNOWN_MODEL");
    let shown = content(&alice, &id_of(&unknown)).await;
    assert_eq!(shown["error"]["code"], "UNKNOWN_MODEL", "{shown}");
    assert_eq!(
        shown["request"]["messages"][0]["parts"][0]["text"],
        "prompt-2"
    );
    let unread = key.client.post("/chat", &json!({ "model": 1 })).await;
    let shown = content(&alice, &id_of(&unread)).await;
    assert_eq!(shown["error"]["code"], "INVALID_REQUEST", "{shown}");
    assert_eq!(shown["request"], Value::Null);

    // A stream that breaks off.
    let reply = Reply::chat_stream(["one ", "two ", "three"]);
    let half = reply.whole_body().len() / 2;
    upstream.will(reply.cut_after(half));
    let mut body = chat("scripted", "prompt-3");
    body["stream"] = true.into();
    let broken = key.client.post("/chat", &body).await;
    let shown = content(&alice, &id_of(&broken)).await;
    assert!(shown["error"]["code"].is_string(), "{shown}");
    assert!(
        text(&shown["response"]["parts"][0]["text"]).starts_with("one"),
        "{shown}"
    );
    assert_eq!(shown["response"]["finish_reason"], Value::Null);

    // A client that disconnects.
    let gate = Gate::new();
    let reply = Reply::chat_stream(["here ", "it ", "is"]).gate_before_piece(2, &gate);
    upstream.will(reply);
    let mut stream = key.client.stream("/chat", &body).await;
    stream.next_chunk().await;
    gate.reached().await;
    drop(stream);
    gate.open();
    let shown = patiently(async {
        loop {
            rows(&gateway).await;
            let last = "SELECT request_id FROM content_logs ORDER BY request_id DESC LIMIT 1";
            let last = sqlx::query_scalar::<_, String>(last);
            let last = last.fetch_one(gateway.app().database.reader()).await;
            let shown = content(&alice, &last.expect("a row")).await;
            if shown["request_id"] != id_of(&broken) {
                return shown;
            }
        }
    })
    .await;
    assert!(
        text(&shown["response"]["parts"][0]["text"]).starts_with("here"),
        "{shown}"
    );
}

/// A filter's change is what the provider got; a rejected prompt is not stored.
#[tokio::test]
async fn a_filter_decides_what_is_stored() {
    let upstream = Upstream::start().await;
    let gateway = filtered(&upstream, &format!("{FILTER}{ON}")).start().await;
    let alice = gateway.web("alice");
    let key = Key::logged(&gateway, &alice).await;
    upstream.will(Reply::chat("quiet"));
    let changed = key
        .client
        .post("/chat", &chat("scripted", "meddle upper"))
        .await;
    assert_eq!(changed.content(), "QUIET");
    let shown = content(&alice, &id_of(&changed)).await;
    assert_eq!(
        shown["request"]["messages"][0]["parts"][0]["text"],
        "MEDDLE UPPER"
    );
    assert_eq!(shown["response"]["parts"][0]["text"], "QUIET");
    let refused = key
        .client
        .post("/chat", &chat("scripted", "meddle refuse"))
        .await;
    let shown = content(&alice, &id_of(&refused)).await;
    assert_eq!(shown["request"], Value::Null, "{shown}");
    assert_eq!(shown["error"]["code"], "CONTENT_FILTERED");
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_redacted_long_texts_are_cut_and_the_database_has_no_plain_text() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat(&format!(
        "response-canary, and your key was {SECRET}."
    )));
    let gateway = Gateway::builder()
        .tables(ON)
        .upstream("scripted", &upstream)
        .start()
        .await;
    let alice = gateway.web("alice");
    let key = Key::logged(&gateway, &alice).await;
    let prompt = format!("prompt-canary {SECRET} {}", "long text ".repeat(30_000));
    let answer = key.client.post("/chat", &chat("scripted", &prompt)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    // The client's own response and the provider's request are whole.
    assert!(answer.content().contains(SECRET));
    assert!(upstream.requests()[0].json().to_string().contains(SECRET));
    let id = id_of(&answer);
    let shown = content(&alice, &id).await;
    let stars = "*".repeat(SECRET.len());
    let stored = text(&shown["request"]["messages"][0]["parts"][0]["text"]);
    assert!(
        stored.starts_with(&format!("prompt-canary {stars} long text")),
        "{shown}"
    );
    assert!(
        (250 << 10..=256 << 10).contains(&stored.len()),
        "{}",
        stored.len()
    );
    assert_eq!(shown["request"]["truncated"], true);
    assert_eq!(
        shown["response"]["parts"][0]["text"],
        format!("response-canary, and your key was {stars}*"),
        "a full stop may end a token"
    );
    assert_eq!(shown["response"]["truncated"], false);

    // Another request's or account's row does not open.
    let swap = "UPDATE content_logs SET account_id = 'usr_0'";
    let swapped = sqlx::query(swap).execute(gateway.app().database.writer());
    swapped.await.expect("it answers");
    let admin = gateway.admin("root").await;
    let moved = admin.get(&format!("/admin/requests/{id}/content")).await;
    moved.error(404, "UNKNOWN_REQUEST");

    is_settled(&gateway).await;
    let data = gateway.data_dir();
    let _folder = gateway.stop().await;
    let mut read = 0;
    for entry in std::fs::read_dir(data).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        if !name.starts_with("weir.db") {
            continue;
        }
        read += 1;
        let bytes = std::fs::read(&path).expect("a file");
        for secret in ["prompt-canary", "response-canary", "long text", SECRET] {
            assert!(!tests::contains(&bytes, secret), "{secret}");
        }
    }
    assert!(read > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn contents_expire_and_go_with_an_erased_user_who_can_export_them_before() {
    on_each_database(NOON, logging, async |gateway, clock| {
        // Tokens expire as the clock moves.
        let alice = || gateway.web("alice");
        let key = Key::logged(&gateway, &alice()).await;
        let ask = async || {
            let answer = key
                .client
                .post("/chat", &chat("demo", "prompt-canary"))
                .await;
            let id = id_of(&answer);
            content(&alice(), &id).await;
            id
        };
        let old = ask().await;
        clock.advance(Duration::from_secs(6 * 86_400));
        let young = ask().await;
        clock.advance(Duration::from_secs(86_400 + 1));
        // An expired content is gone at once, and deleted later.
        alice()
            .get(&path_of(&old))
            .await
            .error(404, "UNKNOWN_REQUEST");
        assert_eq!(rows(&gateway).await, 2);
        let days = RetentionDays {
            audit: NonZeroU32::new(400).expect("a number"),
            content_log: 7,
        };
        let app = gateway.app();
        retention::prune_old(&app.database, app.clock.now(), days)
            .await
            .expect("a deletion");
        assert_eq!(rows(&gateway).await, 1);

        let export = alice().get("/users/me/export").await.json();
        let contents = export["request_contents"].as_array().expect("a list");
        assert_eq!(contents.len(), 1, "{contents:?}");
        assert_eq!(contents[0]["request_id"], young);
        let whole = contents[0]["content"].to_string();
        assert!(whole.contains("prompt-canary"), "{whole}");
        let bob = gateway.web("bob").get("/users/me/export").await.json();
        assert_eq!(bob["request_contents"], json!([]));

        let confirm = json!({ "confirm": gateway.web_user_id("alice").await });
        // An erasure waits for the end of requests.
        patiently(async {
            loop {
                let body = bytes::Bytes::from(confirm.to_string());
                let media_type = Some("application/json");
                let erased = alice()
                    .send(Method::DELETE, "/users/me", media_type, body)
                    .await;
                if erased.status == 200 {
                    return;
                }
                erased.error(409, "NOT_POSSIBLE");
            }
        })
        .await;
        assert_eq!(rows(&gateway).await, 0);

        // Without the section, nothing is left.
        let days = RetentionDays {
            content_log: 0,
            ..days
        };
        let bob = gateway.web("bob");
        let key = Key::logged(&gateway, &bob).await;
        let answer = key.client.post("/chat", &chat("demo", "x")).await;
        content(&bob, &id_of(&answer)).await;
        clock.advance(Duration::from_secs(1));
        retention::prune_old(&app.database, app.clock.now(), days)
            .await
            .expect("a deletion");
        assert_eq!(rows(&gateway).await, 0);
    })
    .await;
}

/// Half of an account's places are for failures; the others are counted as dropped.
#[tokio::test(flavor = "multi_thread")]
async fn an_account_has_a_number_of_stored_contents_an_hour() {
    let gateway = Gateway::builder()
        .tables(&format!(
            "{ON}[rate_limits]\nfree = 1000000\naddress = 1000000\n"
        ))
        .start()
        .await;
    let alice = gateway.web("alice");
    let key = Key::logged(&gateway, &alice).await;
    top_up(
        gateway.app(),
        &gateway.web_user_id("alice").await,
        Credits::whole(1_000),
    )
    .await;
    let ask = async |model: &str, times: usize| {
        for _ in 0..times {
            key.client.post("/chat", &chat(model, "x")).await;
        }
        // The node has not renewed its lease since the clock moved, so the ledger is not verified here.
        patiently(async {
            while !gateway.app().tasks.is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    };
    ask("demo", 303).await;
    patiently(async { while rows(&gateway).await < 300 {} }).await;
    patiently(async { while metric(&gateway).await < 3.0 {} }).await;
    ask("no-model", 302).await;
    patiently(async { while rows(&gateway).await < 600 {} }).await;
    patiently(async { while metric(&gateway).await < 5.0 {} }).await;
    assert_eq!(rows(&gateway).await, 600);
    let bob = gateway.web("bob");
    let key = Key::logged(&gateway, &bob).await;
    let answer = key.client.post("/chat", &chat("demo", "x")).await;
    content(&bob, &id_of(&answer)).await;
}

/// The database refuses contents: requests do not notice, and a metric counts the lost ones.
#[tokio::test]
async fn a_database_that_takes_no_contents_fails_no_request() {
    let gateway = Gateway::builder().tables(ON).start().await;
    let alice = gateway.web("alice");
    let key = Key::logged(&gateway, &alice).await;
    let trigger = "CREATE TRIGGER refuse BEFORE INSERT ON content_logs BEGIN SELECT RAISE(ABORT, 'refused'); END";
    let done = sqlx::query(trigger).execute(gateway.app().database.writer());
    done.await.expect("it answers");
    let answer = key.client.post("/chat", &chat("demo", "Hello")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let lost = async {
        loop {
            rows(&gateway).await;
            if metric(&gateway).await == 1.0 {
                return;
            }
        }
    };
    patiently(lost).await;
    let missing = alice.get(&path_of(&id_of(&answer))).await;
    missing.error(404, "UNKNOWN_REQUEST");
}

/// A gateway that is killed loses at most the queue: what was written is there after the next start.
#[tokio::test]
async fn a_killed_gateway_loses_at_most_the_queue() {
    let data = tempfile::tempdir().expect("a folder");
    share_compiled_plugins(data.path());
    let settings = format!("data_dir = \"{}\"\n{ON}", data.path().display());
    let served = Served::configured(&settings);
    let issuer = DevIssuer::open(data.path()).expect("the gateway's issuer");
    let tokens = issuer.web_tokens("alice", Millis::now()).expect("tokens");
    let address = served.client().address();
    let of_web = |client: Client| {
        client
            .with_key(tokens.identity.expose())
            .with_header("x-identity-appcheck", tokens.attestation.expose())
    };
    let alice = of_web(Client::new(address));
    let made = alice.post("/api-keys", &json!({})).await.json();
    let path = format!("/api-keys/{}", text(&made["key_id"]));
    assert_eq!(set(&alice, &path, true).await.status, 200);
    let by_key = Client::new(address).with_key(&text(&made["api_key"]));
    let written = by_key.post("/chat", &chat("demo", "first")).await;
    content(&by_key, &id_of(&written)).await;
    // These may be in the queue still.
    for _ in 0..5 {
        let answer = by_key.post("/chat", &chat("demo", "next")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    served.signal("KILL");
    drop(served);

    let served = Served::configured(&settings);
    let alice = of_web(Client::new(served.client().address()));
    let shown = content(&alice, &id_of(&written)).await;
    assert_eq!(shown["request"]["messages"][0]["parts"][0]["text"], "first");
    let listed = alice.get("/api-keys").await.json();
    assert_eq!(
        listed["api_keys"][0]["content_log"]["key"], true,
        "{listed}"
    );
}

#[tokio::test]
async fn the_console_shows_the_content_and_how_to_turn_it_on() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("response-canary <b>"));
    let gateway = Gateway::builder()
        .tables(ON)
        .upstream("scripted", &upstream)
        .start()
        .await;
    let mut alice = Browser::of(&gateway, "alice").await;
    let web = gateway.web("alice");
    let key = Key::new(&gateway, &web).await;
    let ask = async || {
        let answer = key
            .client
            .post("/chat", &chat("scripted", "prompt-canary"))
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        is_settled(&gateway).await;
        id_of(&answer)
    };
    let before = ask().await;
    let html = alice.page(&format!("/console/requests/{before}")).await;
    for shown in [
        "Prompt and response",
        "turns this on for the key (page Keys)",
    ] {
        assert!(html.contains(shown), "{shown} in {html}");
    }
    let html = alice.page("/console/keys").await;
    assert!(html.contains("not stored"), "{html}");
    let form = format!("/console/keys/{}/content-log", key.id);
    let done = alice.post(&form, &[("enabled", "true")]).await;
    assert_eq!(done.status, 303, "{}", done.text());
    let html = alice.page("/console/keys").await;
    assert!(html.contains("Stop storing"), "{html}");

    let stored = ask().await;
    content(&web, &stored).await;
    let html = alice.page(&format!("/console/requests/{stored}")).await;
    for shown in [
        "prompt-canary",
        "response-canary &#60;b&#62;",
        "Finish reason: stop",
    ] {
        assert!(html.contains(shown), "{shown} in {html}");
    }

    // An operator sees that there is one, and opens it on purpose.
    let admin = gateway.admin("root").await;
    let mut root = Browser::of(&gateway, "root").await;
    let path = format!("/console/admin/requests/{stored}");
    let html = root.page(&path).await;
    assert!(
        html.contains("content=show") && !html.contains("canary"),
        "{html}"
    );
    assert!(views(&gateway, &admin, &stored).await.is_empty());
    let html = root.page(&format!("{path}?content=show")).await;
    assert!(html.contains("prompt-canary"), "{html}");
    assert_eq!(views(&gateway, &admin, &stored).await.len(), 1);
    let html = root
        .page(&format!("/console/admin/requests/{before}"))
        .await;
    assert!(html.contains("weir does not store this prompt"), "{html}");

    let done = alice.post(&form, &[("enabled", "false")]).await;
    assert_eq!(done.status, 303, "{}", done.text());
    assert!(alice.page("/console/keys").await.contains("not stored"));

    // An organisation's page tells its members.
    let (olivia, organisation_path, id) = organisation(&gateway, "olivia").await;
    let mut owner = Browser::of(&gateway, "olivia").await;
    let switched = owner
        .post("/console/organisations/switch", &[("account", &id)])
        .await;
    assert_eq!(switched.status, 303);
    let set = owner
        .post("/console/organisations/content-log", &[("enabled", "true")])
        .await;
    assert_eq!(set.status, 303, "{}", page(&set));
    assert_eq!(
        olivia.get(&organisation_path).await.json()["content_log"],
        true
    );
    join(&gateway, &olivia, &organisation_path, "max", "member").await;
    let mut max = Browser::of(&gateway, "max").await;
    max.post("/console/organisations/switch", &[("account", &id)])
        .await;
    let html = max.page("/console/organisations").await;
    assert!(
        html.contains("weir stores the prompts and responses of all"),
        "{html}"
    );
    let refused = max
        .post(
            "/console/organisations/content-log",
            &[("enabled", "false")],
        )
        .await;
    assert_eq!(refused.status, 403);
}
