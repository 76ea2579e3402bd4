//! The catalog layer: administrators change models, prices and providers while the gateway runs.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tests::gateway::Builder;
use tests::stores::{Postgres, Redis};
use tests::{Answer, Client, Gate, Gateway, Reply, Upstream, chat, patiently};

use crate::console::Browser;

const LAYER: &str = "/admin/catalog/layer";

/// Sends a JSON body with PUT.
async fn put(client: &Client, path: &str, body: &Value) -> Answer {
    let json = Some("application/json");
    client
        .send(Method::PUT, path, json, body.to_string().into())
        .await
}

/// Replaces the layer, and returns the response.
async fn replace(admin: &Client, base_version: i64, contents: &Value) -> Answer {
    let body = json!({ "base_version": base_version, "contents": contents });
    put(admin, LAYER, &body).await
}

/// Replaces the layer by a valid one.
async fn set(admin: &Client, base_version: i64, contents: &Value) {
    let answer = replace(admin, base_version, contents).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["version"], base_version + 1);
}

async fn layer(admin: &Client) -> Value {
    admin.get(LAYER).await.json()
}

async fn restore(admin: &Client, base_version: i64, version: i64) -> Answer {
    let body = json!({ "base_version": base_version, "version": version });
    admin.post(&format!("{LAYER}/restore"), &body).await
}

/// Returns the charge of a chat, in credits.
async fn charge(gateway: &Gateway, model: &str) -> f64 {
    let answer = gateway.chat(model, "hello").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    charged(&answer)
}

fn charged(answer: &Answer) -> f64 {
    let credits = answer.json()["usage"]["credits"].as_f64();
    credits.expect("a number")
}

fn is_times(charge: f64, factor: f64, earlier: f64) -> bool {
    (charge - factor * earlier).abs() < 1e-6
}

/// Prices ten times those of the models of tests.
fn dear(model: &str) -> Value {
    json!({ "models": { model: { "price": { "input": 10, "output": 20 } } } })
}

fn without_provider(name: &str) -> Value {
    json!({ "providers": { name: { "enabled": false } } })
}

/// A price of 0 gives requests away, so an administrator confirms it.
#[tokio::test]
async fn a_price_of_zero_needs_a_confirmation() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    let admin = gateway.admin("operator").await;
    let free = json!({ "models": { "scripted": { "price": { "input": 1, "output": 0 } } } });
    let refused = replace(&admin, 0, &free).await;
    let error = refused.error(400, "INVALID_REQUEST");
    assert_eq!(error["param"], "confirm_free");
    let message = error["message"].as_str().expect("a message");
    assert!(
        message.contains("scripted: upstreams[scripted/scripted].price.output"),
        "{message}"
    );
    assert_eq!(layer(&admin).await["version"], 0);
    let mut body = json!({ "base_version": 0, "contents": free, "confirm_free": true });
    assert_eq!(put(&admin, LAYER, &body).await.status, 200);
    // The price was 0 before: another change needs no confirmation.
    body["base_version"] = json!(1);
    body["confirm_free"] = json!(false);
    body["contents"]["models"]["scripted"]["name"] = json!("Free");
    assert_eq!(put(&admin, LAYER, &body).await.status, 200);
    set(&admin, 2, &json!({})).await;
    restore(&admin, 3, 1).await.error(400, "INVALID_REQUEST");
    let confirmed = json!({ "base_version": 3, "version": 1, "confirm_free": true });
    let restored = admin.post(&format!("{LAYER}/restore"), &confirmed).await;
    assert_eq!(restored.status, 200, "{}", restored.text());
    // Vectors have no output.
    let vectors = json!({ "models": { "vectors": {
        "kind": "embeddings", "context_window": 100, "price": { "input": 1, "output": 0 },
        "upstreams": [{ "provider": "scripted" }],
    } } });
    set(&admin, 4, &vectors).await;
}

/// Two providers, `p` and `q`: both serve the model `both`, and only `p` serves `only`.
fn two_providers(p: &Upstream, q: &Upstream) -> Builder {
    Gateway::builder()
        .provider("p", "openai", Some(p))
        .provider("q", "openai", Some(q))
        .model("both", &["p", "q"])
        .model("only", &["p"])
}

#[tokio::test]
async fn another_price_counts_from_the_next_request_until_it_is_undone() {
    let upstream = Upstream::start().await;
    let reply = || Reply::chat_with_usage("hi", 10, 10);
    upstream.always(reply());
    let gateway = Gateway::with_upstream(&upstream).await;
    let admin = gateway.admin("root").await;
    let empty = layer(&admin).await;
    assert_eq!(
        (&empty["version"], &empty["contents"]),
        (&json!(0), &json!({}))
    );
    let cheap = charge(&gateway, "scripted").await;
    assert!(cheap > 0.0);

    let check = json!({ "contents": dear("scripted") });
    let changes = admin.post(&format!("{LAYER}/check"), &check).await.json();
    let fields = changes["changed"][0]["fields"].as_array().expect("fields");
    let input = json!({
        "field": "upstreams[scripted/scripted].price.input",
        "old": 1.0, "new": 10.0, "unit": "USD per million tokens",
    });
    assert!(fields.contains(&input), "{changes}");
    assert_eq!(changes["changed"][0]["model"], "scripted");
    assert!(is_times(charge(&gateway, "scripted").await, 1.0, cheap));

    // A request in progress keeps its price.
    let gate = Gate::new();
    upstream.will(reply().after_gate(&gate));
    let client = gateway.client();
    let under_way =
        tokio::spawn(async move { client.post("/chat", &chat("scripted", "hello")).await });
    gate.reached().await;
    set(&admin, 0, &dear("scripted")).await;
    assert!(is_times(charge(&gateway, "scripted").await, 10.0, cheap));
    gate.open();
    let answer = under_way.await.expect("it ends");
    assert!(is_times(charged(&answer), 1.0, cheap), "{}", answer.text());

    let now = layer(&admin).await;
    assert_eq!(now["contents"], dear("scripted"));
    assert_eq!(
        (&now["running_version"], &now["problem"]),
        (&json!(1), &Value::Null)
    );
    let restored = restore(&admin, 1, 0).await;
    assert_eq!(restored.status, 200, "{}", restored.text());
    assert!(is_times(charge(&gateway, "scripted").await, 1.0, cheap));
    let restored = restore(&admin, 2, 1).await;
    assert_eq!(restored.json()["version"], 3, "{}", restored.text());
    assert!(is_times(charge(&gateway, "scripted").await, 10.0, cheap));
    restore(&admin, 3, 9).await.error(404, "NOT_FOUND");

    let first = admin.get("/admin/catalog/layers?limit=2").await.json();
    let numbers = |list: &Value| -> Vec<i64> {
        let layers = list["layers"].as_array().expect("a list");
        let numbers = layers.iter().map(|layer| layer["version"].as_i64());
        numbers.map(|number| number.expect("a number")).collect()
    };
    assert_eq!((numbers(&first), &first["next"]), (vec![3, 2], &json!(2)));
    let rest = admin.get("/admin/catalog/layers?before=2").await.json();
    assert_eq!((numbers(&rest), &rest["next"]), (vec![1], &Value::Null));
    assert_eq!(rest["layers"][0]["changes"], changes);
    let by = format!("user:{}", gateway.web_user_id("root").await);
    assert_eq!(rest["layers"][0]["created_by"], *by);

    let events = admin.get("/admin/audit?kind=catalog.changed").await.json();
    let reasons: Vec<_> = events["events"]
        .as_array()
        .expect("events")
        .iter()
        .collect();
    assert_eq!(reasons.len(), 3, "{events}");
    assert!(
        reasons.iter().all(|event| event["actor"] == *by),
        "{events}"
    );
    let undone = reasons[1]["reason"].as_str().expect("a text");
    assert_eq!(reasons[0]["reason"], format!("version 3: undoes {undone}"));
    let summary = &rest["layers"][0]["summary"];
    assert_eq!(
        reasons[2]["reason"],
        format!("version 1: {}", summary.as_str().expect("a text"))
    );
}

#[tokio::test]
async fn a_disabled_provider_gets_no_request_while_the_other_one_serves() {
    let (p, q) = (Upstream::start().await, Upstream::start().await);
    p.always(Reply::chat("from p"));
    q.always(Reply::chat("from q"));
    let gateway = two_providers(&p, &q).start().await;
    let admin = gateway.admin("root").await;
    assert_eq!(gateway.chat("both", "hello").await.content(), "from p");
    let check = json!({ "contents": without_provider("p") });
    let changes = admin.post(&format!("{LAYER}/check"), &check).await.json();
    assert_eq!(changes["disabled_providers"], json!(["p"]));
    assert_eq!(changes["removed"], json!(["only"]));
    assert_eq!(
        changes["changed"][0]["fields"][0]["old"],
        json!(["p/both", "q/both"])
    );
    assert_eq!(changes["changed"][0]["fields"][0]["new"], json!(["q/both"]));

    set(&admin, 0, &without_provider("p")).await;
    let before = p.count();
    for _ in 0..5 {
        assert_eq!(gateway.chat("both", "hello").await.content(), "from q");
        gateway
            .chat("only", "hello")
            .await
            .error(503, "UPSTREAM_UNAVAILABLE");
    }
    assert_eq!(p.count(), before);
    let models = gateway.client().get("/models").await.text();
    assert!(
        models.contains("\"both\"") && !models.contains("\"only\""),
        "{models}"
    );
    let catalog = admin.get("/admin/catalog").await.json();
    let gap = json!({ "provider": "p", "why": "it is disabled", "models": ["only"] });
    assert!(
        catalog["left_out"].as_array().expect("gaps").contains(&gap),
        "{catalog}"
    );

    set(&admin, 1, &json!({})).await;
    assert_eq!(gateway.chat("both", "hello").await.content(), "from p");
    assert_eq!(gateway.chat("only", "hello").await.content(), "from p");
}

#[tokio::test]
async fn models_are_added_changed_completely_and_taken_away() {
    let (p, q) = (Upstream::start().await, Upstream::start().await);
    p.always(Reply::chat("from p"));
    q.always(Reply::chat("from q"));
    let gateway = two_providers(&p, &q).start().await;
    let admin = gateway.admin("root").await;
    let contents = json!({ "models": {
        "only": {
            "aliases": ["alone"], "context_window": 9000, "max_output_tokens": 500, "default_output_tokens": 50,
            "ends_on": "2031-01-31", "route": "price",
            "upstreams": [{ "provider": "q", "model": "theirs", "price": { "input": 3, "output": 4 } }],
        },
        "both": { "enabled": false },
        "new.model": {
            "context_window": 8000, "max_output_tokens": 100, "default_output_tokens": 10,
            "upstreams": [{ "provider": "p", "model": "newest" }], "price": { "input": 0.5, "output": 1.5 },
        },
    } });
    set(&admin, 0, &contents).await;
    assert_eq!(gateway.chat("alone", "hello").await.content(), "from q");
    let asked = q.next_request().await;
    assert_eq!(asked.json()["model"], "theirs");
    assert_eq!(gateway.chat("new.model", "hello").await.content(), "from p");
    assert_eq!(p.next_request().await.json()["model"], "newest");
    gateway
        .chat("both", "hello")
        .await
        .error(400, "UNKNOWN_MODEL");
    let catalog = admin.get("/admin/catalog").await.json();
    let models = catalog["models"].as_array().expect("models");
    let only = models.iter().find(|model| model["id"] == "only");
    let only = only.expect("the model");
    assert_eq!(
        (&only["context_window"], &only["ends_on"]),
        (&json!(9000), &json!("2031-01-31"))
    );
    assert_eq!(only["upstreams"][0]["price"]["input"], 3.0);
    // Fields that the layer does not have are the configuration's.
    assert_eq!(only["supports_tools"], true);
    let layers = admin.get("/admin/catalog/layers").await.json();
    let summary = layers["layers"][0]["summary"].as_str().expect("a text");
    assert!(
        summary.starts_with("adds new.model; removes both; changes only: "),
        "{summary}"
    );
}

#[tokio::test]
async fn a_layer_has_no_field_that_belongs_to_the_file_and_no_invalid_one() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("hi"));
    let gateway = Gateway::with_upstream(&upstream).await;
    let admin = gateway.admin("root").await;
    let model = |fields: Value| json!({ "models": { "scripted": fields } });
    let provider = |fields: Value| json!({ "providers": { "scripted": fields } });
    for (contents, param, said) in [
        (
            json!({ "listen": "0.0.0.0:80" }),
            "listen",
            "belongs to the configuration file",
        ),
        (
            json!({ "plans": {} }),
            "plans",
            "belongs to the configuration file",
        ),
        (
            provider(json!({ "base_url": "http://127.0.0.1:9" })),
            "providers.scripted.base_url",
            "belongs to the configuration file",
        ),
        (
            provider(json!({ "credential": { "env": "HOME" } })),
            "providers.scripted.credential",
            "belongs to the configuration file",
        ),
        (
            provider(json!({ "adapter": "demo", "enabled": false })),
            "providers.scripted.adapter",
            "belongs to the configuration file",
        ),
        (
            model(json!({ "upstreams": [{ "provider": "scripted", "options": { "api": "x" } }] })),
            "models.\"scripted\".upstreams[0].options",
            "belongs to the configuration file",
        ),
        (
            json!({ "providers": { "mistyped": { "enabled": false } } }),
            "providers.mistyped",
            "does not exist",
        ),
        (
            model(json!({ "price": { "input": -1 } })),
            "models.\"scripted\".price.input",
            "price in USD",
        ),
        (
            model(json!({ "prize": 1 })),
            "models.\"scripted\".prize",
            "is not a setting",
        ),
        (
            model(json!({ "upstreams": [{ "provider": "nobody" }] })),
            "models.\"scripted\".upstreams[0].provider",
            "does not exist",
        ),
        (
            json!({ "models": { "new": { "upstreams": [] } } }),
            "models.\"new\".context_window",
            "is missing",
        ),
        (
            model(json!({ "default_output_tokens": 5_000_000 })),
            "models.\"scripted\".default_output_tokens",
            "is more than max_output_tokens",
        ),
    ] {
        let check = json!({ "contents": contents });
        let checked = admin.post(&format!("{LAYER}/check"), &check).await;
        let replaced = replace(&admin, 0, &contents).await;
        for answer in [checked, replaced] {
            let error = answer.error(400, "INVALID_REQUEST");
            assert_eq!(error["param"], format!("contents.{param}"), "{error}");
            let message = error["message"].as_str().expect("a text");
            assert!(message.contains(param) && message.contains(said), "{error}");
            assert_eq!(error["problems"][0]["param"], error["param"]);
        }
    }
    assert_eq!(layer(&admin).await["version"], 0);
    assert_eq!(gateway.chat("scripted", "hello").await.status, 200);
    let user = gateway.web("alice");
    user.get(LAYER).await.error(403, "FORBIDDEN");
    replace(&user, 0, &json!({})).await.error(403, "FORBIDDEN");
}

/// Production has the demo provider only if the file lists it: a layer does not bring it back.
#[tokio::test]
async fn a_layer_does_not_bring_the_demo_provider_to_production() {
    use weir_app::config::Config;
    use weir_catalog::layer::Layer;
    let layer = |contents: Value| {
        let Value::Object(contents) = contents else {
            panic!("not an object");
        };
        Layer::read(contents).expect("a layer")
    };
    let config = Config::from_toml("dev = false").expect("it is valid");
    let price = layer(json!({ "models": { "demo": { "price": { "input": 1, "output": 1 } } } }));
    let problems = config.with_layer(&price).expect_err("no such model");
    assert_eq!(problems[0].setting, "models.\"demo\".context_window");
    let other = layer(
        json!({ "models": { "gpt-x": { "context_window": 1, "upstreams": [{ "provider": "demo" }] } } }),
    );
    let layered = config.with_layer(&other).expect("models can be read");
    assert!(!layered.providers.contains_key("demo") && !layered.models.contains_key("demo"));
    let config = Config::from_toml("").expect("it is valid");
    let layered = config.with_layer(&price).expect("development has it");
    assert_eq!(layered.models.len(), config.models.len());
    // The same models, with the aliases and prices of the file.
    let none = layer(json!({ "models": { "demo": {} } }));
    let layered = config.with_layer(&none).expect("it changes nothing");
    assert_eq!(
        format!("{:?}", layered.models),
        format!("{:?}", config.models)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn of_concurrent_changes_of_one_version_one_is_applied() {
    let upstream = Upstream::start().await;
    let url = Postgres::shared().create_database().await;
    let first = Gateway::builder()
        .upstream("scripted", &upstream)
        .postgres(&url);
    let first = first.start().await;
    let second = Gateway::builder()
        .upstream("scripted", &upstream)
        .postgres(&url);
    let second = second.sharing_secrets_of(&first).start().await;
    let admins = [first.admin("root").await, second.admin("root").await];
    for base in 0..5 {
        let contents = [dear("scripted"), without_provider("scripted")];
        let (one, other) = tokio::join!(
            replace(&admins[0], base, &contents[0]),
            replace(&admins[1], base, &contents[1]),
        );
        let (applied, refused) = match one.status.as_u16() {
            200 => (one, other),
            _ => (other, one),
        };
        assert_eq!(applied.json()["version"], base + 1, "{}", applied.text());
        let error = refused.error(409, "CATALOG_LAYER_CHANGED");
        assert_eq!(error["active_version"], base + 1);
    }
    // A version that is not active yet is no base either.
    for base in [4, 6] {
        let refused = replace(&admins[0], base, &json!({})).await;
        refused.error(409, "CATALOG_LAYER_CHANGED");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_follow_a_change_and_a_node_that_it_does_not_fit_keeps_its_catalog() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("hi", 10, 10));
    let redis = Redis::start();
    let url = Postgres::shared().create_database().await;
    let node = || {
        let builder = Gateway::builder().upstream("scripted", &upstream);
        builder.postgres(&url).redis(&redis.url())
    };
    let first = node()
        .provider("more", "openai", Some(&upstream))
        .start()
        .await;
    let second = node().sharing_secrets_of(&first).start().await;
    let admin = first.admin("root").await;
    let cheap = charge(&second, "scripted").await;
    set(&admin, 0, &dear("scripted")).await;
    let until = async |factor: f64| {
        patiently(async {
            while !is_times(charge(&second, "scripted").await, factor, cheap) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    };
    until(10.0).await;
    // Without an announcement, the node polls.
    redis.pause();
    let stored = sqlx::query(
        "INSERT INTO catalog_layers (version, contents, created_at, created_by, summary, changes) \
         VALUES (2, '{}', 1, 'a test', 'none', '{}')",
    );
    let stored = stored.execute(first.app().database.writer()).await;
    stored.expect("the database answers");
    redis.resume();
    until(1.0).await;

    let with_more = json!({ "models": { "scripted": {
        "price": { "input": 10, "output": 20 }, "upstreams": [{ "provider": "more" }],
    } } });
    set(&admin, 2, &with_more).await;
    assert!(is_times(charge(&first, "scripted").await, 10.0, cheap));
    let problem = patiently(async {
        loop {
            let item = layer(&second.admin("root").await).await;
            if item["version"] == 3 {
                break item;
            }
        }
    })
    .await;
    assert_eq!(problem["running_version"], 2);
    let why = problem["problem"].as_str().expect("a problem");
    assert!(
        why.contains("the provider \"more\" does not exist"),
        "{why}"
    );
    assert!(is_times(charge(&second, "scripted").await, 1.0, cheap));
    let metrics = async |node: &Gateway| node.stranger().get("/metrics").await.text();
    assert!(
        metrics(&first)
            .await
            .contains("\nweir_catalog_layer_unfit 0\n")
    );
    assert!(
        metrics(&second)
            .await
            .contains("\nweir_catalog_layer_unfit 1\n")
    );
    let models = Browser::of(&second, "root")
        .await
        .page("/console/admin/models")
        .await;
    assert!(
        models.contains("version 3 of the catalog layer does not fit this node"),
        "{models}"
    );

    set(&admin, 3, &dear("scripted")).await;
    until(10.0).await;
    assert!(
        metrics(&second)
            .await
            .contains("\nweir_catalog_layer_unfit 0\n")
    );
}

#[tokio::test]
async fn a_restart_and_a_reload_keep_the_layer_and_an_invalid_one_prevents_no_start() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("hi", 10, 10));
    let node = |builder: Builder| builder.upstream("scripted", &upstream);
    let gateway = node(Gateway::builder())
        .provider("more", "openai", Some(&upstream))
        .start()
        .await;
    let admin = gateway.admin("root").await;
    let cheap = charge(&gateway, "scripted").await;
    let contents = json!({ "models": { "scripted": {
        "price": { "input": 10, "output": 20 }, "upstreams": [{ "provider": "more" }],
    } } });
    set(&admin, 0, &contents).await;
    assert!(is_times(charge(&gateway, "scripted").await, 10.0, cheap));
    // A reload, as SIGHUP causes it.
    let config = gateway.app().config.clone();
    let changed = gateway.app().take_up(config).await.expect("it is valid");
    assert!(changed.is_none(), "{changed:?}");
    assert!(is_times(charge(&gateway, "scripted").await, 10.0, cheap));
    let without_more = node(Gateway::builder()).config();
    let refused = gateway.app().take_up(without_more).await;
    let refused = format!("{:#}", refused.expect_err("the layer needs the provider"));
    assert!(
        refused.contains("with version 1 of the catalog layer"),
        "{refused}"
    );
    assert!(refused.contains("\"more\" does not exist"), "{refused}");
    let folder = gateway.stop().await;

    let builder = Gateway::builder().folder(folder);
    let restarted = node(builder).provider("more", "openai", Some(&upstream));
    let gateway = restarted.start().await;
    assert!(is_times(charge(&gateway, "scripted").await, 10.0, cheap));
    let folder = gateway.stop().await;

    let gateway = node(Gateway::builder().folder(folder)).start().await;
    let admin = gateway.admin("root").await;
    assert!(is_times(charge(&gateway, "scripted").await, 1.0, cheap));
    let item = layer(&admin).await;
    assert_eq!(
        (&item["version"], &item["running_version"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(item["contents"], contents);
    assert!(
        item["problem"].to_string().contains("does not fit"),
        "{item}"
    );
    let mut browser = Browser::of(&gateway, "root").await;
    for path in ["models", "catalog", "catalog/history"] {
        let html = browser.page(&format!("/console/admin/{path}")).await;
        assert!(html.contains("does not fit this node"), "{path}: {html}");
    }
    let config = gateway.app().config.clone();
    let reloaded = gateway.app().take_up(config).await;
    assert!(reloaded.expect("the file alone is valid").is_none());
    let restored = restore(&admin, 1, 0).await;
    assert_eq!(restored.status, 200, "{}", restored.text());
    assert_eq!(layer(&admin).await["problem"], Value::Null);
    let folder = gateway.stop().await;

    // Even contents that no version of weir has written prevent no start.
    let gateway = node(Gateway::builder().folder(folder)).start().await;
    let stored = sqlx::query("UPDATE catalog_layers SET contents = 'x'");
    let stored = stored.execute(gateway.app().database.writer()).await;
    stored.expect("the database answers");
    let folder = gateway.stop().await;
    let gateway = node(Gateway::builder().folder(folder)).start().await;
    let item = layer(&gateway.admin("root").await).await;
    assert!(
        item["problem"]
            .to_string()
            .contains("contents: are invalid"),
        "{item}"
    );
    assert!(is_times(charge(&gateway, "scripted").await, 1.0, cheap));
}
