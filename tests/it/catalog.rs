//! The catalog in force: operators see it, and a changed one takes effect while requests are under way.

use std::path::Path;

use serde_json::{Value, json};
use tests::{Gate, Gateway, Reply, Upstream, chat};

use crate::cli::{Served, run, text};
use crate::operate::succeed;

/// A configuration with these models, each with its cost of a million tokens in and out.
fn toml(upstream: &Upstream, models: &[(&str, &str)], more: &str) -> String {
    let mut toml = format!(
        "{more}\ndefault_catalog = false\n[providers.p]\nadapter = \"openai\"\nbase_url = \"{}\"\n",
        upstream.base_url()
    );
    for (id, price) in models {
        toml += &format!(
            "[models.{id}]\ncontext_window = 10000\nmax_output_tokens = 1000\ndefault_output_tokens = 100\n\
             supports_tools = true\nupstreams = [{{ provider = \"p\", model = \"theirs\" }}]\n{price}\n"
        );
    }
    toml
}

const CHEAP: &str = "price = { input = 1, output = 2 }";
const DEAR: &str = "price = { input = 10, output = 20 }";

fn configure(served: &Served, toml: &str) {
    std::fs::write(served.folder().join("weir.toml"), toml).expect("the folder can be written");
}

/// Reloads the configuration, and waits until the log has this outcome `count` times.
async fn reload(served: &Served, outcome: &str, count: usize) {
    served.signal("HUP");
    tests::patiently(async {
        while served.log().matches(outcome).count() < count {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
}

const TAKEN_UP: &str = "reloaded the configuration of the catalog";
const NOT_TAKEN_UP: &str = "the new configuration is invalid, and the previous one stays active";

fn listing(folder: &Path) -> Value {
    let printed = succeed(folder, &["catalog", "--json"]);
    serde_json::from_str(&printed).expect("JSON")
}

fn ids(listing: &Value) -> Vec<&str> {
    let models = listing["models"].as_array().expect("a list");
    models
        .iter()
        .map(|model| model["id"].as_str().expect("an id"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_catalog_is_taken_up_while_requests_end_as_they_began() {
    let upstream = Upstream::start().await;
    let before = toml(&upstream, &[("m", CHEAP), ("old", CHEAP)], "");
    let served = Served::configured(&before);
    let client = served.client();
    let credits = |answer: &tests::Answer| {
        answer.json()["usage"]["credits"]
            .as_f64()
            .expect("a number")
    };
    let reply = || Reply::chat_with_usage("hi", 10, 10);
    upstream.will(reply());
    let cheap = credits(&client.post("/chat", &chat("m", "hello")).await);
    assert!(cheap > 0.0);

    // Two requests are under way: to a model that gets more expensive, and to one that is removed.
    let gates = [Gate::new(), Gate::new()];
    let mut under_way = Vec::new();
    for (gate, model) in gates.iter().zip(["m", "old"]) {
        upstream.will(reply().after_gate(gate));
        let (client, asked) = (client.clone(), chat(model, "hello"));
        under_way.push(tokio::spawn(
            async move { client.post("/chat", &asked).await },
        ));
        gate.reached().await;
    }
    configure(
        &served,
        &toml(&upstream, &[("m", DEAR), ("new", CHEAP)], "audit_days = 7"),
    );
    let check = text(&run(served.folder(), &["check"]).stdout);
    for line in ["  add: new", "  remove: old", "  change: m"] {
        assert!(check.contains(line), "{check}");
    }
    reload(&served, TAKEN_UP, 1).await;
    served
        .logged(|line| {
            line.contains("take effect at the next start") && line.contains("audit_days")
        })
        .await;
    assert_eq!(ids(&listing(served.folder())), ["m", "new"]);
    upstream.will(reply()).will(reply());
    let dear = credits(&client.post("/chat", &chat("m", "hello")).await);
    assert!((dear - 10.0 * cheap).abs() < 1e-6, "{cheap} {dear}");
    assert_eq!(
        client.post("/chat", &chat("new", "hello")).await.status,
        200
    );
    client
        .post("/chat", &chat("old", "hello"))
        .await
        .error(400, "UNKNOWN_MODEL");
    for (gate, answer) in gates.iter().zip(under_way) {
        gate.open();
        let answer = answer.await.expect("it ends");
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!((credits(&answer) - cheap).abs() < 1e-6, "{}", answer.text());
    }
    let check = text(&run(served.folder(), &["check"]).stdout);
    assert!(
        check.contains("The running gateway's catalog has these models"),
        "{check}"
    );
    let (_, well) = served.stop();
    assert!(well);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalog_that_does_not_fit_leaves_the_one_before_in_force() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("hi"));
    let served = Served::configured(&toml(&upstream, &[("m", CHEAP)], ""));
    for (count, (bad, named)) in (1..).zip([
        (
            toml(&upstream, &[("m", CHEAP), ("free", "")], ""),
            "models.\\\"free\\\".upstreams[0].price",
        ),
        ("[models".to_owned(), "TOML"),
        (
            toml(&upstream, &[("m", CHEAP)], "no_such_setting = 1"),
            "no_such_setting",
        ),
    ]) {
        configure(&served, &bad);
        reload(&served, NOT_TAKEN_UP, count).await;
        let log = served.log();
        let named = [named.to_owned(), named.replace("\\\"", "\"")];
        assert!(
            named.iter().any(|named| log.contains(named)),
            "{named:?}: {log}"
        );
        let answer = served.client().post("/chat", &chat("m", "hello")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert!(!served.log().contains(TAKEN_UP));
}

/// A client of an administrator, with tokens of the local issuer.
fn administrator(served: &Served) -> tests::Client {
    let arguments = ["token", "web", "--user", "root", "--admin"];
    let headers = succeed(served.folder(), &arguments);
    let mut values = headers
        .split('\'')
        .filter_map(|header| header.split_once(": "));
    let mut next = || values.next().expect("a header").1.to_owned();
    let (bearer, attestation) = (next(), next());
    let bearer = bearer.strip_prefix("Bearer ").expect("a bearer token");
    let client = tests::Client::new(served.client().address());
    client
        .with_key(bearer)
        .with_header("x-identity-appcheck", &attestation)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_keeps_the_layer_and_the_commands_know_it() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("hi", 10, 10));
    let served = Served::configured(&toml(&upstream, &[("m", CHEAP)], ""));
    let client = served.client();
    let charge = async || {
        let answer = client.post("/chat", &chat("m", "hello")).await;
        let credits = answer.json()["usage"]["credits"].as_f64();
        credits.unwrap_or_else(|| panic!("{}", answer.text()))
    };
    let cheap = charge().await;
    let contents = json!({ "models": {
        "m": { "price": { "input": 10, "output": 20 } },
        "added": {
            "context_window": 1000, "max_output_tokens": 100, "default_output_tokens": 10,
            "upstreams": [{ "provider": "p" }], "price": { "input": 1, "output": 2 },
        },
    } });
    let body = json!({ "base_version": 0, "contents": contents, "summary": "dearer" }).to_string();
    let admin = administrator(&served);
    let (path, kind) = ("/admin/catalog/layer", Some("application/json"));
    let put = admin.send(http::Method::PUT, path, kind, body.into()).await;
    assert_eq!(put.status, 200, "{}", put.text());
    let is_dear = |charge: f64| (charge - 10.0 * cheap).abs() < 1e-6;
    assert!(is_dear(charge().await));
    assert_eq!(ids(&listing(served.folder())), ["added", "m"]);
    let check = || text(&run(served.folder(), &["check"]).stdout);
    assert!(
        check().contains("The running gateway's catalog has these models"),
        "{}",
        check()
    );

    configure(
        &served,
        &toml(&upstream, &[("m", CHEAP), ("new", CHEAP)], ""),
    );
    let checked = check();
    assert!(checked.contains("  add: new\n"), "{checked}");
    assert!(
        !checked.contains("remove") && !checked.contains("change:"),
        "{checked}"
    );
    reload(&served, TAKEN_UP, 1).await;
    assert!(is_dear(charge().await));
    assert_eq!(ids(&listing(served.folder())), ["added", "m", "new"]);

    // A file that the layer does not fit.
    configure(&served, &toml(&upstream, &[("new", CHEAP)], ""));
    let checked = check();
    assert!(
        checked.contains("Version 1 of the catalog layer does not fit this configuration"),
        "{checked}"
    );
    assert!(
        checked.contains("models.\"m\".context_window: is missing"),
        "{checked}"
    );
    reload(&served, NOT_TAKEN_UP, 1).await;
    assert!(is_dear(charge().await));

    // The admin socket removes the layer without the console.
    let restored = succeed(served.folder(), &["catalog", "restore", "0"]);
    assert!(
        restored.contains("Version 2 of the catalog layer is active"),
        "{restored}"
    );
    assert!((charge().await - cheap).abs() < 1e-6);
    let audit = succeed(served.folder(), &["audit", "--kind", "catalog.changed"]);
    for said in [
        "version 1: dearer",
        "version 2: undoes version 1: dearer",
        "local:",
    ] {
        assert!(audit.contains(said), "{audit}");
    }
    let (_, well) = served.stop();
    assert!(well);
}

/// The same agent requests the same page: refused, permitted, and refused again.
#[tokio::test(flavor = "multi_thread")]
async fn what_tools_may_do_is_taken_up_too() {
    let (upstream, page) = (Upstream::start().await, Upstream::start().await);
    let toml = |tools: &str| toml(&upstream, &[("m", CHEAP)], "") + tools;
    let served = Served::configured(&toml(""));
    let client = served.client();
    let allowed = format!("[tools.http_get]\nprivate = [\"{}\"]\n", page.address());
    let url = format!("{}/page", page.base_url());
    let agent = json!({ "name": "a", "system_prompt": "", "task_prompt": "Look.", "model": "m", "max_tokens": 256, "tools": ["http_get"] });
    let mut reloads = 0;
    for (tools, status) in [("", "blocked"), (&*allowed, "success"), ("", "blocked")] {
        configure(&served, &toml(tools));
        reloads += 1;
        reload(&served, TAKEN_UP, reloads).await;
        upstream
            .will(crate::swarm_tools::calls(
                "http_get",
                &json!({ "url": url }),
            ))
            .will(Reply::chat("Done."));
        page.will(Reply::new(200).body("A page"));
        let asked = json!({ "swarm_id": "s", "agents": [agent] });
        let accepted = client.post("/swarms", &asked).await.json();
        let id = accepted["execution_id"].as_str().expect("an id");
        let record = crate::swarms::ended(&client, id).await;
        let call = &record["agents"][0]["tool_calls"][0];
        assert_eq!(call["status"], status, "{call}");
    }
    assert_eq!(page.count(), 1);
    assert!(!served.log().contains("take effect at the next start"));
    // An invalid configuration changes neither.
    let bad =
        toml("[tools.http_get]\ncredentials = [\"none\"]\n").replace("[models.m]", "[models.n]");
    configure(&served, &bad);
    reload(&served, NOT_TAKEN_UP, 1).await;
    assert!(
        served.log().contains("`credentials.none` does not exist"),
        "{}",
        served.log()
    );
    assert_eq!(client.post("/chat", &chat("n", "hello")).await.status, 400);
}

#[tokio::test]
async fn operators_see_models_providers_and_prices_and_what_is_left_out() {
    let gateway = Gateway::builder()
        .settings("default_catalog = false")
        .tables(
            "[providers.absent]\nadapter = \"openai\"\nbase_url = \"http://127.0.0.1:9/v1\"\n\
             credential = { env = \"WEIR_TEST_SURELY_NOT_SET\" }\n[providers.late]\nadapter = \"late\"\n\
             base_url = \"http://127.0.0.1:9/v1\"\n\
             [models.long]\ncontext_window = 1000\nmax_output_tokens = 100\ndefault_output_tokens = 50\n\
             supports_tools = true\nupstreams = [{ provider = \"local\", model = \"theirs\" }]\n\
             price = { input = 0.15, output = 2, above = { input_tokens = 500, price = { input = 3, output = 4 } } }\n",
        )
        .provider("local", "demo", None)
        .model("orphan", &["absent"])
        .model("coming", &["late"])
        .start()
        .await;
    gateway
        .client()
        .get("/admin/catalog")
        .await
        .error(401, "UNAUTHENTICATED");
    let listing = gateway
        .admin("root")
        .await
        .get("/admin/catalog")
        .await
        .json();
    assert_eq!(ids(&listing), ["coming", "long"]);
    assert_eq!(listing["models"][0]["served"], false);
    let prices = |input: f64, output: f64| {
        json!({
            "input": input, "cache_read": input, "cache_write_short": input, "cache_write_long": input,
            "output": output, "audio_input": input, "audio_output": output, "image_output": output,
            "search": 0.0,
        })
    };
    let mut price = prices(0.15, 2.0);
    price["above"] = json!({ "input_tokens": 500, "price": prices(3.0, 4.0) });
    assert_eq!(
        listing["models"][1],
        json!({
            "id": "long", "name": "long", "served": true, "kind": "chat", "input_unit": "token", "route": "weight",
            "prompt_caching": "client",
            "context_window": 1000, "max_output_tokens": 100,
            "default_output_tokens": 50, "max_image_tokens": 0, "supports_tools": true, "supports_vision": false,
            "supports_chat": false, "image_sizes": [], "image_qualities": [],
            "upstreams": [{ "provider": "local", "model": "theirs", "price": price, "stream_plain": false }],
        })
    );
    let left_out = listing["left_out"].as_array().expect("a list");
    let told: Vec<_> = left_out
        .iter()
        .map(|gap| (gap["provider"].as_str().unwrap_or_default(), &gap["models"]))
        .collect();
    assert_eq!(
        told,
        [("absent", &json!(["orphan"])), ("late", &json!(["coming"]))]
    );
    assert_eq!(
        listing["price_factors"],
        json!({ "text": 1.4, "image": 1.15 })
    );
    assert_eq!(listing["providers"].as_array().map(Vec::len), Some(3));
}

#[test]
fn the_catalog_is_printed_while_no_gateway_runs() {
    let folder = crate::operate::folder("");
    let printed = succeed(folder.path(), &["catalog", "--offline"]);
    for part in [
        "MODEL",
        "demo",
        "tools,vision",
        "images,vision",
        "0.001",
        "× 1.4",
        "PROVIDER",
        "OPENAI_API_KEY is not set",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
}
