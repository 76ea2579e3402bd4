//! Slots: changes of components on a running gateway.

use axum::extract::FromRef as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use tests::stores::{Postgres, Redis};
use tests::{Answer, Client, Gate, Gateway, Reply, Upstream, chat, guests, patiently};
use weir_inference::plugins::PluginParts;
use weir_plugins::slots::SlotOperation;
use weir_sandbox::Digest;

/// Time limit for a change to reach all nodes: a second, and a busy machine's delay.
const CONVERGED_WITHIN: Duration = Duration::from_secs(20);

/// Installs and activates; returns the digest.
async fn swap(client: &Client, slot: &str, component: &[u8]) -> String {
    let path = format!("/admin/plugins/{slot}?activate=true");
    let answer = client.put_component(&path, component).await;
    assert!(answer.status.is_success(), "{}", answer.text());
    let installed = answer.json();
    assert_eq!(installed["active"], true, "{installed}");
    installed["digest"].as_str().expect("a digest").to_owned()
}

async fn roll_back(client: &Client, slot: &str) -> Answer {
    let path = format!("/admin/plugins/{slot}/rollback");
    client.post(&path, &json!({})).await
}

async fn activate(client: &Client, slot: &str, digest: &str) -> Answer {
    let path = format!("/admin/plugins/{slot}/activate");
    client.post(&path, &json!({ "digest": digest })).await
}

async fn slot(client: &Client, slot: &str) -> Value {
    let answer = client.get(&format!("/admin/plugins/{slot}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Returns a component in a slot's response.
fn plugin<'a>(slot: &'a Value, digest: &str) -> &'a Value {
    let plugins = slot["plugins"].as_array().expect("a list");
    let found = plugins.iter().find(|plugin| plugin["digest"] == digest);
    found.unwrap_or_else(|| panic!("no {digest} in {slot}"))
}

async fn events(client: &Client, path: &str) -> Vec<(String, String)> {
    let events = client.get(path).await.json();
    let events = events["events"].as_array().expect("a list");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kinds = events.iter();
    kinds
        .map(|event| (text(&event["kind"]), text(&event["actor"])))
        .collect()
}

/// A gateway whose model `greeter` sends `aa`, from a slot of that name with a bundled component.
fn greeter() -> tests::gateway::Builder {
    Gateway::builder()
        .settings("internal_listen = \"127.0.0.1:0\"")
        .guest("greeter", &guests::answering("aa"), None)
}

async fn greeting(gateway: &Gateway) -> String {
    gateway.chat("greeter", "hello").await.content()
}

#[tokio::test]
async fn an_operator_installs_activates_rolls_back_and_removes() {
    let gateway = greeter().start().await;
    let admin = gateway.admin("olivia").await;
    let before = slot(&admin, "greeter").await;
    let bundled = before["active"].as_str().expect("a digest");
    assert_eq!(bundled, Digest::of(&guests::answering("aa")).to_string());
    assert_eq!(before["previous"], Value::Null);

    let component = guests::answering("bb");
    let answer = admin
        .put_component("/admin/plugins/greeter", &component)
        .await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let digest = Digest::of(&component).to_string();
    assert_eq!(
        answer.json(),
        json!({ "slot": "greeter", "digest": digest, "name": "hostile", "version": "0.1.0", "publisher": null, "active": false })
    );
    assert_eq!(greeting(&gateway).await, "aa", "it is only installed");
    let again = admin
        .put_component("/admin/plugins/greeter", &component)
        .await;
    assert_eq!(again.status, 200, "{}", again.text());

    let answer = activate(&admin, "greeter", &digest).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["active"], *digest);
    assert_eq!(answer.json()["serving"], *digest);
    assert_eq!(answer.json()["previous"], bundled);
    assert_eq!(greeting(&gateway).await, "bb");

    let in_use = admin
        .delete(&format!("/admin/plugins/greeter/{digest}"))
        .await;
    in_use.error(409, "PLUGIN_IN_USE");
    let answer = roll_back(&admin, "greeter").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["active"], bundled);
    assert_eq!(greeting(&gateway).await, "aa");
    let answer = roll_back(&admin, "greeter").await;
    answer.error(409, "NOTHING_TO_ROLL_BACK_TO");

    let answer = admin
        .delete(&format!("/admin/plugins/greeter/{digest}"))
        .await;
    assert_eq!(answer.status, 204);
    let answer = activate(&admin, "greeter", &digest).await;
    answer.error(404, "UNKNOWN_PLUGIN");
    assert_eq!(greeting(&gateway).await, "aa");

    let olivia = format!("user:{}", gateway.web_user_id("olivia").await);
    let by_olivia = |kind: &str| (kind.to_owned(), olivia.clone());
    let expected = ["removed", "rolled_back", "activated", "installed"].map(by_olivia);
    assert_eq!(
        events(&admin, "/admin/plugins/greeter/events").await,
        expected
    );
    assert_eq!(events(&admin, "/admin/plugins/events").await, expected);
}

#[tokio::test]
async fn a_rollback_goes_to_what_served_before_that() {
    let gateway = greeter().start().await;
    let admin = gateway.admin("olivia").await;
    swap(&admin, "greeter", &guests::answering("bb")).await;
    swap(&admin, "greeter", &guests::answering("cc")).await;
    assert_eq!(greeting(&gateway).await, "cc");
    for earlier in ["bb", "aa"] {
        let answer = roll_back(&admin, "greeter").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(greeting(&gateway).await, earlier);
    }
}

#[tokio::test]
async fn a_service_may_with_its_scope_and_nobody_else() {
    let gateway = greeter().start().await;
    let component = guests::answering("bb");
    let service = gateway.service(&["plugins:write"]);
    swap(&service, "greeter", &component).await;
    let events = events(&service, "/admin/plugins/greeter/events").await;
    assert!(
        events
            .iter()
            .all(|(_, actor)| actor.starts_with("service:")),
        "{events:?}"
    );
    // On the public port, too.
    let at_the_public_port = service.at(gateway.address());
    assert_eq!(at_the_public_port.get("/admin/plugins").await.status, 200);

    let other = guests::answering("cc");
    let without = gateway.service(&["model:call"]);
    let answer = without
        .put_component("/admin/plugins/greeter?activate=true", &other)
        .await;
    answer.error(403, "MISSING_SCOPE");
    let answer = gateway
        .web("bob")
        .put_component("/admin/plugins/greeter", &other)
        .await;
    answer.error(403, "FORBIDDEN");
    for client in [gateway.client(), gateway.stranger()] {
        let answer = client.put_component("/admin/plugins/greeter", &other).await;
        answer.error(401, "UNAUTHENTICATED");
        for path in [
            "/admin/plugins",
            "/admin/plugins/greeter",
            "/admin/plugins/events",
        ] {
            client.get(path).await.error(401, "UNAUTHENTICATED");
        }
        roll_back(&client, "greeter")
            .await
            .error(401, "UNAUTHENTICATED");
        let path = format!("/admin/plugins/greeter/{}", Digest::of(&component));
        client.delete(&path).await.error(401, "UNAUTHENTICATED");
    }
    assert_eq!(greeting(&gateway).await, "bb");
}

#[tokio::test]
async fn what_fails_a_load_step_is_refused_by_name_and_changes_nothing() {
    let gateway = greeter().start().await;
    let admin = gateway.admin("olivia").await;
    let padded = guests::with_custom_section(&guests::answering("bb"), 33 << 20);
    for (component, status, step, complaint) in [
        (
            b"no component".to_vec(),
            422,
            "parse",
            "it begins with \"no component\"",
        ),
        (
            guests::wat_guest("unknown-import"),
            422,
            "imports",
            "imports",
        ),
        (
            guests::wat_guest("no-exports"),
            422,
            "world",
            "weir:plugin/provider",
        ),
        (
            guests::wat_guest("describe-traps"),
            422,
            "describe",
            "trapped",
        ),
        (
            guests::wat_guest("describe-loops"),
            422,
            "describe",
            "processor time",
        ),
        (
            guests::wat_guest("borrowed-name"),
            422,
            "describe",
            "\"openai\"",
        ),
        (guests::wat_guest("unknown-step"), 422, "self-test", ""),
        (padded, 413, "size", "33554432"),
    ] {
        let answer = admin
            .put_component("/admin/plugins/greeter?activate=true", &component)
            .await;
        let error = answer.error(status, "PLUGIN_REFUSED");
        assert_eq!(error["step"], step, "{error}");
        let message = error["message"].as_str().expect("a text");
        assert!(message.contains(complaint), "{message}");
        assert_eq!(greeting(&gateway).await, "aa", "after {step}");
    }
    assert_eq!(events(&admin, "/admin/plugins/greeter/events").await, []);
    let slot = slot(&admin, "greeter").await;
    assert_eq!(slot["plugins"].as_array().map(Vec::len), Some(1), "{slot}");
    gateway.app().audit.flush().await;
    let refused = admin.get("/admin/audit?kind=plugin.refused").await.json();
    let refused = refused["events"].as_array().expect("a list").iter();
    let olivia = format!("user:{}", gateway.web_user_id("olivia").await);
    let mut reasons = refused
        .inspect(|event| assert_eq!(event["actor"], olivia))
        .map(|event| event["reason"].as_str().expect("a text"))
        .collect::<Vec<_>>();
    reasons.sort_unstable();
    reasons.dedup();
    // An oversized component is not examined.
    let steps = ["describe", "imports", "parse", "self-test", "world"];
    assert_eq!(reasons, steps.map(|step| format!("greeter: {step}")));
}

#[tokio::test]
async fn bad_requests_are_told_what_is_wrong_with_them() {
    let gateway = greeter().start().await;
    let admin = gateway.admin("olivia").await;
    let component = guests::answering("bb");
    for name in ["Greeter", "a.b", "events", &"x".repeat(65)] {
        let answer = admin
            .put_component(&format!("/admin/plugins/{name}"), &component)
            .await;
        // The path of `events` does not take `PUT`.
        if name == "events" {
            answer.error(405, "METHOD_NOT_ALLOWED");
        } else {
            assert_eq!(answer.error(400, "INVALID_REQUEST")["param"], "slot");
        }
    }
    let answer = admin
        .put_component("/admin/plugins/greeter?activate=maybe", &component)
        .await;
    assert_eq!(answer.error(400, "INVALID_REQUEST")["param"], "activate");
    let json = Some("application/json");
    let answer = admin
        .send(
            Method::PUT,
            "/admin/plugins/greeter",
            json,
            component.into(),
        )
        .await;
    answer.error(415, "UNSUPPORTED_MEDIA_TYPE");
    for (body, param) in [
        (json!({}), "digest"),
        (json!({ "digest": "abc" }), "digest"),
        (json!({ "digest": "0".repeat(64), "share": 1.5 }), "share"),
        (json!({ "digest": "0".repeat(64), "dijest": 1 }), "digest"),
    ] {
        let answer = admin.post("/admin/plugins/greeter/activate", &body).await;
        assert_eq!(answer.error(400, "INVALID_REQUEST")["param"], param);
    }
    for (path, code) in [("greeter", "UNKNOWN_PLUGIN"), ("nobody", "UNKNOWN_SLOT")] {
        let nothing = "0".repeat(64);
        activate(&admin, path, &nothing).await.error(404, code);
        let path = format!("/admin/plugins/{path}/{nothing}");
        admin.delete(&path).await.error(404, code);
    }
    for path in ["/admin/plugins/nobody", "/admin/plugins/nobody/events"] {
        admin.get(path).await.error(404, "UNKNOWN_SLOT");
    }
    roll_back(&admin, "nobody").await.error(404, "UNKNOWN_SLOT");
    for limit in ["0", "1001", "many"] {
        let answer = admin
            .get(&format!("/admin/plugins/events?limit={limit}"))
            .await;
        assert_eq!(answer.error(400, "INVALID_REQUEST")["param"], "limit");
    }
}

#[tokio::test]
async fn a_component_that_the_configuration_does_not_fit_is_not_activated() {
    let gateway = Gateway::builder().start().await;
    let admin = gateway.admin("olivia").await;
    // The provider `demo` has no base URL, which this component needs.
    let answer = admin
        .put_component(
            "/admin/plugins/demo?activate=true",
            &guests::answering("bb"),
        )
        .await;
    let error = answer.error(409, "PLUGIN_DOES_NOT_FIT");
    let message = error["message"].as_str().expect("a text");
    assert!(message.contains("providers.demo.base_url"), "{message}");
    assert_eq!(gateway.chat("demo", "hi").await.content(), "You said: hi");
}

#[tokio::test]
async fn a_stream_ends_on_the_component_that_it_began_with_which_is_freed_then() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    let words = ["one ", "two ", "three "];
    upstream.will(Reply::chat_stream(words).gate_before_piece(2, &gate));
    let gateway = Gateway::with_upstream(&upstream).await;
    let admin = gateway.admin("olivia").await;
    let first = guests::with_custom_section(&guests::bundled("openai"), 1);
    swap(&admin, "openai", &first).await;
    let old = Arc::downgrade(&gateway.app().plugins.adapter("openai").expect("it serves"));
    assert_eq!(
        old.upgrade().map(|a| a.code().digest),
        Some(Digest::of(&first))
    );

    let mut stream = gateway.stream("scripted", "count").await;
    stream.next_chunk().await;
    gate.reached().await;
    swap(
        &admin,
        "openai",
        &guests::with_custom_section(&guests::bundled("openai"), 2),
    )
    .await;
    assert!(old.upgrade().is_some(), "the stream still runs on it");
    upstream.will(Reply::chat("four"));
    assert_eq!(gateway.chat("scripted", "next").await.content(), "four");
    gate.open();
    let content = stream.content().await;
    assert!(content.ends_with("two three "), "{content}");
    patiently(async {
        gateway.app().tasks.close();
        gateway.app().tasks.wait().await;
    })
    .await;
    assert!(old.upgrade().is_none(), "nobody runs on it any more");
}

#[tokio::test]
async fn what_was_activated_serves_after_a_restart() {
    let gateway = greeter().start().await;
    let digest = swap(
        &gateway.admin("olivia").await,
        "greeter",
        &guests::answering("bb"),
    )
    .await;
    let folder = gateway.stop().await;
    let gateway = greeter().folder(folder).start().await;
    assert_eq!(greeting(&gateway).await, "bb");
    let slot = slot(&gateway.admin("olivia").await, "greeter").await;
    assert_eq!(slot["active"], *digest);
}

#[tokio::test]
async fn a_slot_of_its_own_serves_after_a_restart_with_a_provider_and_goes_with_its_last_component()
{
    let gateway = Gateway::builder().start().await;
    let admin = gateway.admin("olivia").await;
    let digest = swap(&admin, "acme", &guests::answering("bb")).await;
    let folder = gateway.stop().await;
    let with_a_model = || {
        Gateway::builder()
            .provider("acme", "acme", None)
            .model("acme", &["acme"])
    };
    let gateway = with_a_model().folder(folder).start().await;
    assert_eq!(gateway.chat("acme", "hello").await.content(), "bb");
    let folder = gateway.stop().await;

    let gateway = Gateway::builder().folder(folder).start().await;
    let admin = gateway.admin("olivia").await;
    let path = format!("/admin/plugins/acme/{digest}");
    admin.delete(&path).await.error(409, "PLUGIN_IN_USE");
    let other = swap(&admin, "acme", &guests::answering("cc")).await;
    assert_eq!(admin.delete(&path).await.status, 204);
    roll_back(&admin, "acme")
        .await
        .error(409, "NOTHING_TO_ROLL_BACK_TO");
    assert_eq!(slot(&admin, "acme").await["active"], *other);
}

/// Makes a component fail by this command; it sends "ok" otherwise.
async fn fail(client: &Client, command: Value) -> Answer {
    let request = chat("greeter", &command.to_string());
    client.post("/chat", &request).await
}

async fn trap(client: &Client) {
    let answer = fail(client, json!({ "behave": "unreachable" })).await;
    answer.error(502, "ADAPTER_FAILED");
}

/// Its events form no valid response, which is not a trap.
async fn talk_nonsense(client: &Client) {
    let command = json!({ "behave": "script", "steps": [{ "Emit": [{ "BlockEnd": 7 }] }] });
    fail(client, command).await.error(502, "ADAPTER_FAILED");
}

async fn until_greeted_with(gateway: &Gateway, greeted: &str) {
    patiently(async {
        while greeting(gateway).await != greeted {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// A slot `greeter` with the failing component, after one that sends "bb". Returns the digest of the failing one.
async fn failing_greeter(admin: &Client) -> String {
    swap(admin, "greeter", &guests::answering("bb")).await;
    swap(admin, "greeter", guests::misbehaving()).await
}

const FIVE_TRAPS: &str = "[plugins]\nquarantine_traps = 5";

#[tokio::test]
async fn five_traps_in_a_minute_on_requests_of_two_accounts_bring_back_what_served_before() {
    let gateway = greeter().tables(FIVE_TRAPS).start().await;
    let admin = gateway.admin("olivia").await;
    let culprit = failing_greeter(&admin).await;
    let (alice, bob) = (gateway.client(), gateway.web("bob"));
    for client in [&alice, &alice, &bob, &alice] {
        trap(client).await;
    }
    assert_eq!(greeting(&gateway).await, "ok", "not yet");
    trap(&alice).await;
    until_greeted_with(&gateway, "bb").await;
    let slot = slot(&admin, "greeter").await;
    assert_eq!(plugin(&slot, &culprit)["state"], "quarantined");
    assert_eq!(plugin(&slot, &culprit)["traps"], 5);
    let listed = events(&admin, "/admin/plugins/greeter/events").await;
    assert_eq!(listed[0], ("quarantined".to_owned(), "weir".to_owned()));

    let metrics = gateway.internal().get("/metrics").await;
    assert_eq!(metrics.status, 200);
    let figure =
        format!("weir_plugin_quarantines_total{{slot=\"greeter\",digest=\"{culprit}\"}} 1");
    assert!(metrics.text().contains(&figure), "{}", metrics.text());
    let traps = format!("digest=\"{culprit}\",outcome=\"trap\"}} 5");
    assert!(metrics.text().contains(&traps), "{}", metrics.text());
    let public = gateway.stranger().get("/metrics").await;
    public.error(404, "NOT_FOUND");

    // An operator may activate it again.
    let answer = activate(&admin, "greeter", &culprit).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(greeting(&gateway).await, "ok");
}

async fn set_policy(admin: &Client, slot: &str, policy: &Value) -> Answer {
    let path = format!("/admin/plugins/{slot}/policy");
    let body = policy.to_string().into();
    admin
        .send(Method::PUT, &path, Some("application/json"), body)
        .await
}

/// Puts the slot's component into quarantine.
async fn trap_five_times(gateway: &Gateway) {
    let clients = [gateway.client(), gateway.web("bob")];
    for number in 0..5 {
        trap(&clients[number % 2]).await;
    }
}

#[tokio::test]
async fn a_slot_may_refuse_instead_of_going_back() {
    let gateway = greeter().tables(FIVE_TRAPS).start().await;
    let admin = gateway.admin("olivia").await;
    let culprit = failing_greeter(&admin).await;
    let policy = json!({ "on_quarantine": "refuse" });
    let answer = set_policy(&admin, "greeter", &policy).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["on_quarantine"], "refuse");
    trap_five_times(&gateway).await;
    patiently(async {
        while gateway.chat("greeter", "hello").await.status != 503 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let shown = slot(&admin, "greeter").await;
    assert_eq!(shown["active"], Value::Null, "{shown}");
    assert_eq!(plugin(&shown, &culprit)["state"], "quarantined");
    let listed = admin.get("/admin/plugins/greeter/events").await.json();
    let detail = "5 traps within a minute; the slot refuses until a component is activated";
    assert_eq!(listed["events"][0]["kind"], "quarantined");
    assert_eq!(listed["events"][0]["detail"], detail);
    // The slot rolls back on an operator's command.
    let back = roll_back(&admin, "greeter").await;
    assert_eq!(back.status, 200, "{}", back.text());
    assert_eq!(greeting(&gateway).await, "bb");
}

#[tokio::test]
async fn a_slot_goes_to_no_version_below_its_least() {
    let gateway = greeter().tables(FIVE_TRAPS).start().await;
    let admin = gateway.admin("olivia").await;
    let old = swap(&admin, "greeter", &guests::answering_as("bb", "0.3.0")).await;
    let new = swap(&admin, "greeter", &guests::answering_as("cc", "0.4.0")).await;
    let least = |version: &str| json!({ "least_version": version });
    let refused = set_policy(&admin, "greeter", &least("0.5.0")).await;
    let error = refused.error(409, "PLUGIN_BELOW_LEAST_VERSION");
    assert_eq!(error["param"], "least_version");
    let set = set_policy(&admin, "greeter", &least("0.4.0")).await;
    assert_eq!(set.status, 200, "{}", set.text());
    assert_eq!(set.json()["least_version"], "0.4.0");
    // Neither the earlier component nor the bundled one, both of earlier versions, is a target of a rollback.
    assert_eq!(set.json()["previous"], Value::Null);
    let refused = roll_back(&admin, "greeter").await;
    refused.error(409, "NOTHING_TO_ROLL_BACK_TO");
    let refused = activate(&admin, "greeter", &old).await;
    refused.error(409, "PLUGIN_BELOW_LEAST_VERSION");
    let body = json!({ "digest": old, "share": 0.5 });
    let refused = admin.post("/admin/plugins/greeter/activate", &body).await;
    refused.error(409, "PLUGIN_BELOW_LEAST_VERSION");
    assert_eq!(slot(&admin, "greeter").await["active"], *new);
    assert_eq!(greeting(&gateway).await, "cc");
    let refused = set_policy(&admin, "greeter", &least("four")).await;
    assert_eq!(
        refused.error(400, "INVALID_REQUEST")["param"],
        "least_version"
    );
    let refused = set_policy(&admin, "nowhere", &least("0.1.0")).await;
    refused.error(404, "UNKNOWN_SLOT");
    // Without a least version, the rollback works as before.
    assert_eq!(set_policy(&admin, "greeter", &json!({})).await.status, 200);
    assert_eq!(roll_back(&admin, "greeter").await.status, 200);
    assert_eq!(greeting(&gateway).await, "bb");
}

#[tokio::test]
async fn a_rollback_takes_back_only_what_is_expected() {
    let gateway = greeter().start().await;
    let admin = gateway.admin("olivia").await;
    let first = swap(&admin, "greeter", &guests::answering("bb")).await;
    let second = swap(&admin, "greeter", &guests::answering("cc")).await;
    let back = async |from: &str| {
        let path = "/admin/plugins/greeter/rollback";
        admin.post(path, &json!({ "from": from })).await
    };
    let error = back(&first).await.error(409, "PLUGIN_CHANGED");
    let message = error["message"].as_str().expect("a text");
    assert!(message.contains(&second), "{message}");
    assert_eq!(greeting(&gateway).await, "cc");
    assert_eq!(
        back("nothing").await.error(400, "INVALID_REQUEST")["param"],
        "from"
    );
    // Two operators who react to the same fault take back one component.
    let both = tokio::join!(back(&second), back(&second));
    let mut statuses = [both.0.status.as_u16(), both.1.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409]);
    assert_eq!(greeting(&gateway).await, "bb");
    // If there is a canary, the rollback takes the canary back.
    let body = json!({ "digest": second, "share": 0.5 });
    let begun = admin.post("/admin/plugins/greeter/activate", &body).await;
    assert_eq!(begun.status, 200, "{}", begun.text());
    back(&first).await.error(409, "PLUGIN_CHANGED");
    assert_eq!(back(&second).await.status, 200);
    assert_eq!(slot(&admin, "greeter").await["canary"], Value::Null);
    assert_eq!(greeting(&gateway).await, "bb");
}

/// A database that is restored from a backup, or fails over to a lagging replica, has fewer changes than its nodes
/// have seen, or others.
#[tokio::test]
async fn nodes_follow_a_database_that_is_set_back() {
    for url in [None, Some(Postgres::shared().create_database().await)] {
        let builder = greeter();
        let gateway = match &url {
            Some(url) => builder.postgres(url).start().await,
            None => builder.start().await,
        };
        let admin = gateway.admin("olivia").await;
        let [bb, cc] = ["bb", "cc"].map(guests::answering);
        swap(&admin, "greeter", &bb).await;
        for _ in 0..3 {
            swap(&admin, "greeter", &cc).await;
            swap(&admin, "greeter", &bb).await;
        }
        swap(&admin, "greeter", &cc).await;
        assert_eq!(greeting(&gateway).await, "cc");
        let database = gateway.app().database.clone();
        let set = async |statement: &'static str, digest: &[u8]| {
            let mut query = sqlx::query(statement);
            if statement.contains("$1") {
                query = query.bind(Digest::of(digest).to_string());
            }
            query
                .execute(database.writer())
                .await
                .expect("the database");
        };
        // The state of a few changes ago.
        set("UPDATE slots SET active_digest = $1", &bb).await;
        set("UPDATE plugin_generation SET number = number - 5", &bb).await;
        set(
            "DELETE FROM plugin_events WHERE number > (SELECT number FROM plugin_generation)",
            &bb,
        )
        .await;
        until_greeted_with(&gateway, "bb").await;
        // Changed as often, by other changes.
        set("UPDATE slots SET active_digest = $1", &cc).await;
        set(
            "UPDATE plugin_events SET at = at + 1 WHERE number = (SELECT MAX(number) FROM plugin_events)",
            &cc,
        )
        .await;
        until_greeted_with(&gateway, "cc").await;
        // Later changes continue from there.
        swap(&admin, "greeter", &bb).await;
        assert_eq!(greeting(&gateway).await, "bb");
    }
}

#[tokio::test]
async fn one_account_alone_takes_no_component_from_the_others() {
    let gateway = greeter().tables(FIVE_TRAPS).start().await;
    let admin = gateway.admin("olivia").await;
    failing_greeter(&admin).await;
    for _ in 0..20 {
        trap(&gateway.client()).await;
        talk_nonsense(&gateway.client()).await;
    }
    gateway.app().tasks.close();
    patiently(gateway.app().tasks.wait()).await;
    assert_eq!(greeting(&gateway).await, "ok");
    let listed = events(&admin, "/admin/plugins/greeter/events").await;
    assert!(
        listed.iter().all(|(kind, _)| kind != "quarantined"),
        "{listed:?}"
    );
}

/// Malformed output and refused destinations are faults of the component, too: no trap is needed.
#[tokio::test]
async fn a_component_that_fails_half_of_its_exchanges_is_taken_out_of_service() {
    let nonsense = json!({ "behave": "script", "steps": [{ "Emit": [{ "BlockEnd": 7 }] }] });
    for command in [
        nonsense,
        json!({ "behave": "send", "path": "//elsewhere/" }),
        json!({ "behave": "never-done" }),
    ] {
        let gateway = greeter().tables(FIVE_TRAPS).start().await;
        let admin = gateway.admin("olivia").await;
        let culprit = failing_greeter(&admin).await;
        let clients = [gateway.client(), gateway.web("bob")];
        for exchange in 0..20 {
            assert_eq!(
                slot(&admin, "greeter").await["active"],
                *culprit,
                "{command}: not after {exchange}"
            );
            let answer = match exchange % 2 {
                0 => gateway.chat("greeter", "hello").await,
                _ => fail(&clients[exchange / 2 % 2], command.clone()).await,
            };
            assert_eq!(answer.status, [200, 502][exchange % 2], "{command}");
        }
        until_greeted_with(&gateway, "bb").await;
        let listed = admin.get("/admin/plugins/greeter/events").await.json();
        assert_eq!(
            listed["events"][0]["detail"],
            "10 of 20 exchanges within a minute failed by its fault"
        );
    }
}

#[tokio::test]
async fn the_last_sound_component_of_a_slot_goes_on_with_an_event_and_a_metric() {
    let gateway = Gateway::builder()
        .guest("greeter", guests::misbehaving(), None)
        .tables(FIVE_TRAPS)
        .start()
        .await;
    let admin = gateway.admin("olivia").await;
    let digest = Digest::of(guests::misbehaving()).to_string();
    let clients = [gateway.client(), gateway.web("bob")];
    for round in 1..=3 {
        for trapped in 0..5 {
            trap(&clients[trapped % 2]).await;
        }
        let metric = format!(
            "weir_plugin_quarantines_withheld_total{{slot=\"greeter\",digest=\"{digest}\"}} {round}"
        );
        patiently(async {
            // Without a port for other services, the endpoint is on the public one.
            while !gateway
                .stranger()
                .get("/metrics")
                .await
                .text()
                .contains(&metric)
            {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(greeting(&gateway).await, "ok");
    }
    let shown = slot(&admin, "greeter").await;
    assert_eq!(plugin(&shown, &digest)["state"], "active");
    // The log of events has it once an hour.
    assert_eq!(
        events(&admin, "/admin/plugins/greeter/events").await,
        [("quarantine_withheld".to_owned(), "weir".to_owned())]
    );
}

async fn charges_and_open_holds(gateway: &Gateway) -> (i64, i64) {
    let count = async |text: &'static str| -> i64 {
        let row = sqlx::query_scalar(text).fetch_one(gateway.folded_database().await.reader());
        row.await.expect("the ledger")
    };
    (
        count("SELECT CAST(COUNT(*) AS BIGINT) FROM entries WHERE kind = 'settlement'").await,
        count("SELECT CAST(COUNT(*) AS BIGINT) FROM holds WHERE expired_at IS NULL").await,
    )
}

/// Changes a component's stored description, so that it no longer loads.
async fn spoil(gateway: &Gateway, digest: &str) {
    let spoiled = sqlx::query("UPDATE plugins SET description = '{}' WHERE digest = $1")
        .bind(digest.to_owned())
        .execute(gateway.app().database.writer())
        .await;
    assert_eq!(spoiled.expect("the database").rows_affected(), 1);
}

#[tokio::test]
async fn a_node_that_cannot_load_what_is_activated_is_not_ready_and_serves_nothing_else_in_its_place()
 {
    let gateway = greeter().start().await;
    let admin = gateway.admin("olivia").await;
    let digest = swap(&admin, "greeter", &guests::answering("bb")).await;
    spoil(&gateway, &digest).await;
    // A node that serves it already continues, through other changes.
    swap(&admin, "acme", &guests::answering("cc")).await;
    gateway
        .app()
        .plugins
        .sync(&gateway.app().database)
        .await
        .expect("the database");
    assert_eq!(greeting(&gateway).await, "bb");
    assert_eq!(gateway.stranger().get("/health/ready").await.status, 200);

    let gateway = greeter().folder(gateway.stop().await).start().await;
    let admin = gateway.admin("olivia").await;
    let ready = gateway.stranger().get("/health/ready").await;
    let error = ready.error(503, "NOT_READY");
    let why = error["message"].as_str().expect("a text");
    for part in ["greeter", &*digest, "its description differs"] {
        assert!(why.contains(part), "{why}");
    }
    let before = charges_and_open_holds(&gateway).await;
    let refused = gateway.chat("greeter", "hello").await;
    refused.error(503, "ADAPTER_UNAVAILABLE");
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(charges_and_open_holds(&gateway).await, before);
    assert_eq!(before.1, 0);
    assert_eq!(gateway.chat("demo", "hi").await.content(), "You said: hi");

    let bundled = Digest::of(&guests::answering("aa")).to_string();
    let answer = activate(&admin, "greeter", &bundled).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(greeting(&gateway).await, "aa");
    assert_eq!(gateway.stranger().get("/health/ready").await.status, 200);
}

#[tokio::test]
async fn a_charge_names_the_component_and_operators_see_what_each_has_done() {
    let gateway = greeter().start().await;
    let admin = gateway.admin("olivia").await;
    let old = slot(&admin, "greeter").await["active"].clone();
    for _ in 0..3 {
        greeting(&gateway).await;
    }
    let new = swap(&admin, "greeter", &guests::answering("bb")).await;
    for _ in 0..2 {
        greeting(&gateway).await;
    }
    gateway.client().post("/chat", &chat("nothing", "x")).await;
    let slot = slot(&admin, "greeter").await;
    let old = old.as_str().expect("a digest");
    for (digest, requests) in [(old, 3), (&*new, 2)] {
        let plugin = plugin(&slot, digest);
        assert_eq!(plugin["requests"], requests, "{plugin}");
        assert_eq!(plugin["errors"], 0, "{plugin}");
        assert!(plugin["latency_ms"].as_f64().is_some_and(|ms| ms >= 0.0));
        let charged: i64 = sqlx::query_scalar(
            "SELECT CAST(-SUM(plan_delta + top_up_delta) AS BIGINT) FROM entries WHERE adapter_digest = $1",
        )
        .bind(digest.to_owned())
        .fetch_one(gateway.folded_database().await.reader())
        .await
        .expect("the ledger");
        let shown = plugin["credits"].as_f64().expect("a number");
        assert!(
            charged > 0 && (shown * 1e6).round() as i64 == charged,
            "{charged} {plugin}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swap_on_one_node_serves_on_the_others_and_one_that_was_down_catches_up() {
    let redis = Redis::start();
    let url = Postgres::shared().create_database().await;
    let node = || {
        greeter()
            .postgres(&url)
            .redis(&redis.url())
            .impatient_with_redis()
    };
    let first = node().start().await;
    let second = node().sharing_secrets_of(&first).start().await;
    let third = node().sharing_secrets_of(&first).start().await;
    let third = third.stop().await;
    let admin = first.admin("olivia").await;
    for letters in ["bb", "cc", "dd"] {
        swap(&admin, "greeter", &guests::answering(letters)).await;
        let swapped = Instant::now();
        patiently(async {
            while greeting(&second).await != letters {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let took = swapped.elapsed();
        assert!(took < CONVERGED_WITHIN, "{letters} took {took:?}");
        assert_eq!(greeting(&first).await, letters);
    }
    let third = node().folder(third).start().await;
    assert_eq!(greeting(&third).await, "dd");
    // Found by polling, without an announcement.
    redis.pause();
    let app = first.app();
    let operation = SlotOperation {
        slot: "greeter".into(),
        actor: "a test".into(),
        at: app.clock.now(),
    };
    let parts = PluginParts::from_ref(app);
    let rolled_back = parts
        .plugins
        .roll_back(parts.stores(), &operation, None, async |_| Ok(()));
    let rolled_back = rolled_back.await.expect("the database answers");
    assert_eq!(rolled_back, Digest::of(&guests::answering("cc")));
    for node in [&second, &third] {
        patiently(async {
            while node
                .app()
                .plugins
                .adapter("greeter")
                .map(|adapter| adapter.code().digest)
                != Some(rolled_back)
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }
    redis.resume();
}

/// Two nodes of different binaries, as during an upgrade.
#[tokio::test(flavor = "multi_thread")]
async fn what_not_every_node_can_load_is_not_activated() {
    let redis = Redis::start();
    let url = Postgres::shared().create_database().await;
    let first = greeter()
        .postgres(&url)
        .redis(&redis.url())
        .impatient_with_redis();
    let first = first.start().await;
    let second = Gateway::builder()
        .settings("internal_listen = \"127.0.0.1:0\"")
        .guest("greeter", &guests::answering("zz"), None)
        .postgres(&url)
        .redis(&redis.url())
        .impatient_with_redis()
        .sharing_secrets_of(&first)
        .start()
        .await;
    let nodes = [&first, &second];
    let admin = first.admin("olivia").await;
    let active = swap(&admin, "greeter", &guests::answering("bb")).await;
    for node in nodes {
        until_greeted_with(node, "bb").await;
    }

    let of_first = Digest::of(&guests::answering("aa")).to_string();
    let refused = activate(&admin, "greeter", &of_first).await;
    let error = refused.error(409, "PLUGIN_NOT_EVERYWHERE");
    assert_eq!(error["param"], "digest");
    let why = error["message"].as_str().expect("a text");
    assert!(
        why.contains(second.app().ledger.boot_id().as_str()),
        "{why}"
    );
    let canary = json!({ "digest": of_first, "share": 0.5 });
    let refused = admin.post("/admin/plugins/greeter/activate", &canary).await;
    refused.error(409, "PLUGIN_NOT_EVERYWHERE");
    let now = slot(&admin, "greeter").await;
    assert_eq!(
        (&now["active"], &now["canary"]),
        (&json!(active), &Value::Null)
    );
    let asked: i64 = sqlx::query_scalar("SELECT CAST(COUNT(*) AS BIGINT) FROM load_questions")
        .fetch_one(first.app().database.reader())
        .await
        .expect("the database");
    assert_eq!(asked, 0, "the questions are taken back");

    // Installed on a node that does not bundle it, the row names it, and it serves on both.
    let installed = second.admin("olivia").await;
    let installed = installed
        .put_component("/admin/plugins/greeter", &guests::answering("aa"))
        .await;
    assert_eq!(installed.status, 201, "{}", installed.text());
    // The binary's own component may follow a publisher's.
    sqlx::query("UPDATE slots SET publisher = 'acme' WHERE slot = 'greeter'")
        .execute(first.app().database.writer())
        .await
        .expect("the database");
    let activated = activate(&admin, "greeter", &of_first).await;
    assert_eq!(activated.status, 200, "{}", activated.text());
    for node in nodes {
        until_greeted_with(node, "aa").await;
    }

    // A node that has ended is not asked.
    swap(&admin, "greeter", &guests::answering("cc")).await;
    admin
        .delete(&format!("/admin/plugins/greeter/{of_first}"))
        .await;
    second.stop().await;
    let activated = activate(&admin, "greeter", &of_first).await;
    assert_eq!(activated.status, 200, "{}", activated.text());
    assert_eq!(greeting(&first).await, "aa");
}

/// A failure that a client causes by the size of its request is no fault of the component.
#[tokio::test]
async fn requests_too_large_for_a_component_do_not_put_it_into_quarantine() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("four"));
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables("[plugins]\nquarantine_traps = 2")
        .start()
        .await;
    // As JSON, each character takes six bytes: more than a component may return. The assistant's last message does not stay
    // with the host.
    let text = "\u{1}".repeat(1_400_000);
    let large = json!({
        "model": "scripted",
        "messages": [
            { "role": "user", "content": "hello" },
            { "role": "assistant", "content": text },
            { "role": "user", "content": "go on" },
        ],
    });
    for _ in 0..4 {
        let answer = gateway.client().post("/chat", &large).await;
        let error = answer.error(413, "PAYLOAD_TOO_LARGE");
        assert_eq!(error["param"], "messages");
    }
    assert_eq!(upstream.count(), 0);
    assert_eq!(gateway.chat("scripted", "hello").await.content(), "four");
    let metrics = gateway.stranger().get("/metrics").await;
    assert!(!metrics.text().contains("trap"), "{}", metrics.text());
}

#[tokio::test]
async fn what_served_before_the_binarys_own_is_gone_back_to() {
    let gateway = Gateway::builder()
        .guest("greeter", guests::misbehaving(), None)
        .tables(FIVE_TRAPS)
        .start()
        .await;
    let admin = gateway.admin("olivia").await;
    swap(&admin, "greeter", &guests::answering("bb")).await;
    let bundled = Digest::of(guests::misbehaving()).to_string();
    let answer = activate(&admin, "greeter", &bundled).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(greeting(&gateway).await, "ok");
    assert_eq!(roll_back(&admin, "greeter").await.status, 200);
    assert_eq!(greeting(&gateway).await, "bb");
    activate(&admin, "greeter", &bundled).await;
    let bob = gateway.web("bob");
    for _ in 0..4 {
        trap(&gateway.client()).await;
    }
    trap(&bob).await;
    until_greeted_with(&gateway, "bb").await;
}

#[tokio::test]
async fn what_the_binary_brings_need_not_be_installed() {
    let gateway = greeter().start().await;
    let admin = gateway.admin("olivia").await;
    let bundled = guests::answering("aa");
    let answer = admin
        .put_component("/admin/plugins/greeter", &bundled)
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let listed = slot(&admin, "greeter").await;
    assert_eq!(
        listed["plugins"].as_array().map(Vec::len),
        Some(1),
        "{listed}"
    );
    assert_eq!(events(&admin, "/admin/plugins/greeter/events").await, []);
    let path = format!("/admin/plugins/greeter/{}", Digest::of(&bundled));
    admin.delete(&path).await.error(404, "UNKNOWN_PLUGIN");
}

/// An address that guesses tokens is shut out on these paths as on others.
#[tokio::test]
async fn refused_service_tokens_shut_their_address_out_on_the_public_port() {
    let gateway = greeter().settings("dev = false").start().await;
    let guesser = gateway.stranger().with_key("a.b.c");
    for _ in 0..10 {
        guesser
            .get("/admin/plugins")
            .await
            .error(401, "UNAUTHENTICATED");
    }
    guesser.get("/admin/plugins").await.error(429, "LOCKED_OUT");
    gateway
        .client()
        .get("/models")
        .await
        .error(429, "LOCKED_OUT");
}
