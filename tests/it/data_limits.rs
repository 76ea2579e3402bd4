//! Limits on providers: the regions in which they process data, and the days for which they keep requests. Without a
//! provider that satisfies all limits of a request, weir rejects it.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tests::gateway::{Builder, on_each_database, top_up};
use tests::stores::{Postgres, Redis};
use tests::{Answer, Client, Gate, Gateway, Reply, Upstream, chat};
use weir_app::config::Config;
use weir_ledger::Credits;

use crate::billing::is_settled;
use crate::swarms::{agent, ended, swarm};
use crate::tasks::{TASKS, definition, web_user};

const START: &str = "2026-03-04T05:30:00Z";
const CODE: &str = "NO_PERMITTED_PROVIDER";

/// The terms of the providers, in the order of the model `all`.
const TERMS: [(&str, &str); 5] = [
    ("american", "regions = [\"us\"]\nretention_days = 0"),
    ("wide", "regions = [\"us\", \"eu\"]\nretention_days = 0"),
    ("slow", "regions = [\"eu\"]\nretention_days = 30"),
    ("strict", "regions = [\"eu\", \"de\"]\nretention_days = 0"),
    ("unknown", ""),
];

/// An upstream for each provider; each responds with its provider's name.
struct Providers(Vec<Upstream>);

impl Providers {
    async fn start() -> Self {
        let mut upstreams = Vec::new();
        for (name, _) in TERMS {
            let upstream = Upstream::start().await;
            upstream.always(Reply::chat(name));
            upstreams.push(upstream);
        }
        Self(upstreams)
    }

    fn of(&self, name: &str) -> &Upstream {
        let index = TERMS.iter().position(|(known, _)| *known == name);
        &self.0[index.expect("a provider")]
    }

    /// Adds the providers, and the model `all`, which all of them serve.
    fn add_to(&self, builder: Builder) -> Builder {
        let mut builder = builder;
        for ((name, terms), upstream) in TERMS.iter().zip(&self.0) {
            builder = builder
                .provider(name, "openai", Some(upstream))
                .tables(terms);
        }
        builder.model("all", &TERMS.map(|(name, _)| name))
    }

    fn counts(&self) -> Vec<usize> {
        self.0.iter().map(Upstream::count).collect()
    }
}

async fn put(client: &Client, path: &str, body: &Value) -> Answer {
    let body = Bytes::from(body.to_string());
    client
        .send(Method::PUT, path, Some("application/json"), body)
        .await
}

async fn set(client: &Client, path: &str, limits: &Value) {
    let answer = put(client, path, limits).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// A new key of a web user: the client with it, and the path of its limits.
async fn key(by: &Client, gateway: &Gateway, body: &Value) -> (Client, String) {
    let made = by.post("/api-keys", body).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.json();
    let text = |field: &str| made[field].as_str().expect("a text").to_owned();
    let path = format!("/api-keys/{}/data-limits", text("key_id"));
    (gateway.stranger().with_key(&text("api_key")), path)
}

/// An organisation of a web user, with credits: the client that acts for it, and the path of its limits.
async fn organisation(gateway: &Gateway, owner: &str) -> (Client, String) {
    let made = gateway
        .web(owner)
        .post("/organisations", &json!({ "name": "Acme" }))
        .await
        .json();
    let id = made["organisation_id"].as_str().expect("an id");
    top_up(gateway.app(), id, Credits::whole(1_000)).await;
    let acting = gateway.web(owner).with_header("x-weir-account", id);
    (acting, format!("/organisations/{id}/data-limits"))
}

fn with_headers(client: &Client, regions: Option<&str>, days: Option<&str>) -> Client {
    let mut client = client.clone();
    for (name, value) in [
        ("x-weir-regions", regions),
        ("x-weir-max-retention-days", days),
    ] {
        if let Some(value) = value {
            client = client.with_header(name, value);
        }
    }
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limits_of_a_key_an_organisation_and_a_request_hold_alone_and_together() {
    let providers = Providers::start().await;
    on_each_database(
        START,
        |builder| providers.add_to(builder),
        async |gateway, _| {
            let (olivia, of_organisation) = organisation(&gateway, "olivia").await;
            let (client, of_key) = key(&olivia, &gateway, &json!({})).await;
            let none = json!({});
            let eu = json!({ "regions": ["eu"] });
            let both = json!({ "regions": ["eu", "us"] });
            let us = json!({ "regions": ["us"] });
            let german = json!({ "regions": ["de", "eu"], "max_retention_days": 0 });
            let short = json!({ "max_retention_days": 29 });
            let long = json!({ "max_retention_days": 30 });
            // The limits of the key and the organisation, the headers, and the first provider within them.
            let cases = [
                (&none, &none, (None, None), "american"),
                (&eu, &none, (None, None), "slow"),
                (&none, &eu, (None, None), "slow"),
                (&none, &none, (Some("eu"), None), "slow"),
                (&none, &none, (Some("de, eu"), Some("29")), "strict"),
                (&german, &none, (None, None), "strict"),
                (&none, &german, (None, None), "strict"),
                (&short, &none, (Some("eu,de"), None), "strict"),
                (&long, &eu, (None, None), "slow"),
                (&long, &eu, (None, Some("30")), "slow"),
                (&both, &none, (Some("eu"), None), "slow"),
                // A header cannot widen.
                (&eu, &none, (Some("eu, us, de"), Some("365")), "slow"),
                (&none, &us, (Some("eu, us"), None), "american"),
                (&us, &both, (None, None), "american"),
            ];
            for (key, organisation, (regions, days), provider) in cases {
                let what = format!("{key} {organisation} {regions:?} {days:?}");
                set(&olivia, &of_key, key).await;
                set(&olivia, &of_organisation, organisation).await;
                let client = with_headers(&client, regions, days);
                let answer = client.post("/chat", &chat("all", "x")).await;
                assert_eq!(answer.status, 200, "{what}: {}", answer.text());
                assert_eq!(answer.content(), provider, "{what}");
            }

            is_settled(&gateway).await;
            let charged = olivia.get("/usage/requests").await.json();
            let calls = providers.counts();
            let limit = |source: &str, limits: &Value| {
                let mut limits = limits.clone();
                limits["source"] = source.into();
                limits
            };
            let none_at_all = json!({ "max_retention_days": 0 });
            let cases = [
                (
                    &json!({ "regions": ["fr"] }),
                    &none,
                    (None, None),
                    vec![limit("key", &json!({ "regions": ["fr"] }))],
                ),
                (
                    &eu,
                    &us,
                    (None, None),
                    vec![limit("key", &eu), limit("organisation", &us)],
                ),
                (
                    &none,
                    &none_at_all,
                    (Some("eu"), None),
                    vec![
                        limit("organisation", &none_at_all),
                        limit("header", &json!({ "regions": ["eu"] })),
                    ],
                ),
                (
                    &us,
                    &none,
                    (Some("eu"), Some("0")),
                    vec![
                        limit("key", &us),
                        limit(
                            "header",
                            &json!({ "regions": ["eu"], "max_retention_days": 0 }),
                        ),
                    ],
                ),
            ];
            for (key, organisation, (regions, days), limits) in cases {
                let what = format!("{key} {organisation} {regions:?} {days:?}");
                set(&olivia, &of_key, key).await;
                set(&olivia, &of_organisation, organisation).await;
                let client = with_headers(&client, regions, days);
                for stream in [false, true] {
                    let mut body = chat("all", "x");
                    body["stream"] = stream.into();
                    let answer = client.post("/chat", &body).await;
                    let error = answer.error(403, CODE);
                    assert_eq!(error["limits"], json!(limits), "{what}: {error}");
                    let message = error["message"].as_str().expect("a text");
                    for limit in &limits {
                        let source = limit["source"].as_str().expect("a source");
                        assert!(message.contains(&format!("({source})")), "{message}");
                    }
                }
            }
            // Nothing is held or charged, and nobody was called.
            is_settled(&gateway).await;
            assert_eq!(olivia.get("/usage/requests").await.json(), charged);
            assert_eq!(providers.counts(), calls);

            // A web user of the organisation is within its limits, too.
            set(&olivia, &of_organisation, &german).await;
            let answer = olivia.post("/chat", &chat("all", "x")).await;
            assert_eq!(answer.content(), "strict");
            let refused = with_headers(&olivia, Some("us"), None);
            let refused = refused.post("/chat", &chat("all", "x")).await;
            refused.error(403, CODE);
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_without_known_terms_satisfies_no_limit_and_one_without_a_url_all() {
    let providers = Providers::start().await;
    let gateway = providers
        .add_to(Gateway::builder())
        .model("vague", &["unknown"])
        .provider("local", "demo", None)
        .model("local", &["local"])
        .start()
        .await;
    let client = gateway.client();
    for (regions, days) in [(Some("eu"), None), (None, Some("65535"))] {
        let client = with_headers(&client, regions, days);
        let refused = client.post("/chat", &chat("vague", "x")).await;
        let error = refused.error(403, CODE);
        assert_eq!(error["limits"][0]["source"], "header", "{error}");
        assert_eq!(error["model"], "vague");
        let named = client.clone().with_header("x-weir-provider", "unknown");
        let refused = named.post("/chat", &chat("all", "x")).await;
        refused.error(403, CODE);
    }
    assert_eq!(providers.of("unknown").count(), 0);
    let nowhere = with_headers(&client, Some("nowhere"), Some("0"));
    let answer = nowhere.post("/chat", &chat("local", "Hello")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    // OpenAI's SDKs read this code.
    let refused = nowhere
        .post("/v1/chat/completions", &chat("vague", "x"))
        .await;
    assert_eq!(refused.status, 403);
    assert_eq!(refused.json()["error"]["code"], "model_not_found");
}

#[tokio::test]
async fn a_fallback_stays_within_the_limits_and_the_client_gets_the_error_of_the_last_provider() {
    let providers = Providers::start().await;
    let gateway = providers
        .add_to(Gateway::builder())
        .model("two", &["slow", "american"])
        .start()
        .await;
    let failing = Reply::error(500, "broken");
    providers.of("slow").always(failing);
    let free = gateway.chat("two", "x").await;
    assert_eq!(free.content(), "american");
    let (slow, american) = (
        providers.of("slow").count(),
        providers.of("american").count(),
    );
    let bounded = with_headers(&gateway.client(), Some("eu"), None);
    let alone = gateway.client().with_header("x-weir-provider", "slow");
    let refused = bounded.post("/chat", &chat("two", "x")).await;
    let same = alone.post("/chat", &chat("two", "x")).await;
    assert_eq!(refused.status, same.status);
    let code = |answer: &Answer| answer.json()["error"]["code"].clone();
    assert_eq!(code(&refused), code(&same));
    assert!(refused.status.is_server_error());
    assert_eq!(refused.headers["x-weir-provider"], "slow");
    assert!(providers.of("slow").count() > slow);
    assert_eq!(providers.of("american").count(), american);
    // Nor does another order lead out of the region.
    for route in ["price", "latency", "load", "weight"] {
        let client = bounded.clone().with_header("x-weir-route", route);
        let refused = client.post("/chat", &chat("two", "x")).await;
        assert!(refused.status.is_server_error(), "{route}");
    }
    assert_eq!(providers.of("american").count(), american);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swarms_call_is_within_the_limits_that_its_key_has_at_that_moment() {
    let providers = Providers::start().await;
    on_each_database(
        START,
        |builder| providers.add_to(builder.swarms()),
        async |gateway, _| {
            let bob = web_user(&gateway, "bob").await;
            let (client, of_key) = key(&bob, &gateway, &json!({})).await;
            let asked = |name: &str| {
                let mut agent = agent(name);
                agent["model"] = json!("all");
                agent
            };
            let american = providers.of("american");
            let gate = Gate::new();
            american.will(Reply::chat_with_usage("fine", 10, 5).after_gate(&gate));
            let counts = providers.counts();
            let two = swarm(&[asked("one"), asked("two")]);
            let accepted = client.post("/swarms", &two).await;
            assert_eq!(accepted.status, 202, "{}", accepted.text());
            gate.reached().await;
            set(&bob, &of_key, &json!({ "regions": ["eu"] })).await;
            gate.open();
            let id = accepted.json()["execution_id"].clone();
            let record = ended(&bob, id.as_str().expect("an id")).await;
            assert_eq!(record["status"], "completed", "{record}");
            let slow = TERMS.iter().position(|(name, _)| *name == "slow");
            let mut expected = counts;
            expected[0] += 1;
            expected[slow.expect("a provider")] += 1;
            assert_eq!(providers.counts(), expected);

            // Without a provider, the swarm is not accepted, and a task is not defined.
            set(&bob, &of_key, &json!({ "regions": ["fr"] })).await;
            let error = client.post("/swarms", &two).await.error(403, CODE);
            assert_eq!(error["param"], "agents[0].model");
            let mut task = definition("t");
            task["agents"][0]["model"] = json!("all");
            client.post(TASKS, &task).await.error(403, CODE);
            // Their calls come later, so the headers cannot hold.
            let with_header = with_headers(&bob, None, Some("0"));
            for (path, body) in [("/swarms", &two), (TASKS, &task)] {
                let refused = with_header.post(path, body).await;
                let error = refused.error(400, "INVALID_REQUEST");
                assert_eq!(error["param"], "x-weir-max-retention-days");
            }
            assert_eq!(providers.counts(), expected);
            is_settled(&gateway).await;
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swarm_ends_with_the_error_of_a_call_without_a_permitted_provider() {
    let providers = Providers::start().await;
    let gateway = providers.add_to(Gateway::builder().swarms()).start().await;
    let bob = web_user(&gateway, "bob").await;
    let (client, of_key) = key(&bob, &gateway, &json!({})).await;
    let gate = Gate::new();
    let american = providers.of("american");
    american.will(Reply::chat_with_usage("fine", 10, 5).after_gate(&gate));
    let mut agents = [agent("one"), agent("two")];
    for agent in &mut agents {
        agent["model"] = json!("all");
    }
    let accepted = client.post("/swarms", &swarm(&agents)).await;
    gate.reached().await;
    set(&bob, &of_key, &json!({ "regions": ["fr"] })).await;
    gate.open();
    let id = accepted.json()["execution_id"].clone();
    let record = ended(&bob, id.as_str().expect("an id")).await;
    let error = record["error"].as_str().expect("a reason");
    assert!(error.contains("regions fr (key)"), "{error}");
    assert_eq!(providers.counts(), [1, 0, 0, 0, 0]);
}

#[tokio::test]
async fn a_services_call_is_within_the_limits_of_its_organisation() {
    let providers = Providers::start().await;
    let builder = Gateway::builder().settings("internal_listen = \"127.0.0.1:0\"");
    let gateway = providers.add_to(builder).start().await;
    let (olivia, of_organisation) = organisation(&gateway, "olivia").await;
    let id = of_organisation.split('/').nth(2).expect("an id").to_owned();
    let mut body = chat("all", "x");
    body["user_id"] = id.into();
    body["tools"] = json!([{ "type": "function", "function": { "name": "f" } }]);
    let service = gateway.service(&["model:call"]);
    let path = "/internal/agent/code";
    set(&olivia, &of_organisation, &json!({ "regions": ["eu"] })).await;
    let answer = service.post(path, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.content(), "slow");
    set(&olivia, &of_organisation, &json!({ "regions": ["fr"] })).await;
    service.post(path, &body).await.error(403, CODE);
}

#[tokio::test]
async fn a_session_goes_on_at_a_provider_within_the_limits_of_each_turn() {
    let providers = Providers::start().await;
    let gateway = providers.add_to(Gateway::builder()).start().await;
    let client = gateway.client();
    let mut body = chat("all", "one");
    body["session_id"] = json!("mine");
    let turn = async |regions: Option<&str>| {
        let client = with_headers(&client, regions, None);
        client.post("/chat", &body).await
    };
    assert_eq!(turn(None).await.content(), "american");
    // Before, the conversation would stay with its provider.
    assert_eq!(turn(Some("eu")).await.content(), "slow");
    turn(Some("fr")).await.error(403, CODE);
    assert_eq!(turn(Some("eu, de")).await.content(), "slow");
    let history = client.get("/session/mine/history").await.json();
    assert_eq!(history["messages"].as_array().expect("a list").len(), 6);
}

#[tokio::test]
async fn an_invalid_header_is_refused_by_its_name() {
    let providers = Providers::start().await;
    let gateway = providers.add_to(Gateway::builder()).start().await;
    let many = vec!["eu"; 17].join(",");
    let most = vec!["eu"; 16].join(",");
    let long = "a".repeat(33);
    let longest = format!("eu,{}", "a".repeat(32));
    for (name, values) in [
        (
            "x-weir-regions",
            &["", "EU", "eu,", "eu de", "e_u", &many, &long][..],
        ),
        (
            "x-weir-max-retention-days",
            &["", "-1", "65536", "1.5", "none", "0, 0"],
        ),
    ] {
        for value in values {
            let client = gateway.client().with_header(name, value);
            for (path, body) in [
                ("/chat", chat("all", "x")),
                (
                    "/v1/images/generations",
                    json!({ "model": "all", "prompt": "A weir." }),
                ),
            ] {
                let refused = client.post(path, &body).await;
                assert_eq!(refused.status, 400, "{name}: {value:?}");
                let error = &refused.json()["error"];
                assert_eq!(error["param"], name, "{value:?}: {error}");
            }
        }
    }
    assert_eq!(providers.counts(), [0; 5]);
    for regions in [&*most, &longest, " eu "] {
        let client = with_headers(&gateway.client(), Some(regions), Some("65535"));
        let answer = client.post("/chat", &chat("all", "x")).await;
        assert_eq!(answer.content(), "slow", "{regions}");
    }
}

#[tokio::test]
async fn lists_of_models_have_those_with_a_permitted_provider() {
    let providers = Providers::start().await;
    let gateway = providers
        .add_to(Gateway::builder())
        .model("american", &["american"])
        .model("european", &["american", "strict"])
        .start()
        .await;
    let limits = json!({ "data_limits": { "regions": ["eu", "de"], "max_retention_days": 0 } });
    let (client, _) = key(&gateway.web("alice"), &gateway, &limits).await;
    let listed = client.get("/models").await.json();
    let models = listed["models"].as_array().expect("a list").iter();
    // The provider of the demo models has no URL.
    let others = models.filter(|model| model["provider"] != "demo");
    let shown: Vec<_> = others
        .map(|model| (model["id"].as_str(), model["provider"].as_str()))
        .collect();
    assert_eq!(
        shown,
        [
            (Some("all"), Some("strict")),
            (Some("european"), Some("strict"))
        ]
    );
    for (path, list, id) in [
        ("/v1/models", "data", "id"),
        ("/v1beta/models", "models", "name"),
    ] {
        let listed = client.get(path).await.json();
        let models = listed[list].as_array().expect("a list").iter();
        let shown: Vec<_> = models.map(|model| model[id].to_string()).collect();
        let has = |name: &str| shown.iter().any(|shown| shown.contains(name));
        assert!(has("european") && !has("american"), "{shown:?}");
        assert_eq!(client.get(&format!("{path}/american")).await.status, 404);
        assert_eq!(client.get(&format!("{path}/european")).await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_limits_applies_on_all_nodes_at_once() {
    let providers = Providers::start().await;
    let (database, cache) = (Postgres::shared().create_database().await, Redis::start());
    let builder = || {
        let builder = Gateway::builder().postgres(&database).redis(&cache.url());
        providers.add_to(builder)
    };
    let first = builder().start().await;
    let second = builder().sharing_secrets_of(&first).start().await;
    let (olivia, of_organisation) = organisation(&first, "olivia").await;
    let (client, of_key) = key(&olivia, &first, &json!({})).await;
    let elsewhere = client.at(second.address());
    let all_get = async |provider: &str| {
        for client in [&client, &elsewhere] {
            let answer = client.post("/chat", &chat("all", "x")).await;
            assert_eq!(answer.content(), provider, "{}", answer.text());
        }
    };
    // The key is in the cache of both nodes before each change.
    all_get("american").await;
    set(&olivia, &of_key, &json!({ "regions": ["eu"] })).await;
    all_get("slow").await;
    let strict = json!({ "regions": ["eu", "de"], "max_retention_days": 0 });
    set(&olivia, &of_key, &json!({})).await;
    set(&olivia, &of_organisation, &strict).await;
    all_get("strict").await;
    set(&olivia, &of_organisation, &json!({})).await;
    all_get("american").await;
    first.app().audit.flush().await;
    let audit = first.admin("root").await;
    let events = audit.get("/admin/audit?kind=organisation.data_limits_set");
    let events = events.await.json();
    assert_eq!(events["events"].as_array().expect("a list").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_set_shown_and_validated() {
    let providers = Providers::start().await;
    on_each_database(
        START,
        |builder| providers.add_to(builder),
        async |gateway, _| {
            let (olivia, of_organisation) = organisation(&gateway, "olivia").await;
            let limits = json!({ "regions": ["eu", "de"], "max_retention_days": 7 });
            let made = olivia
                .post("/api-keys", &json!({ "data_limits": limits }))
                .await
                .json();
            assert_eq!(made["data_limits"], limits);
            let id = made["key_id"].as_str().expect("an id");
            let of_key = format!("/api-keys/{id}/data-limits");
            let shown = async || {
                let keys = olivia.get("/api-keys").await.json();
                keys["api_keys"][0]["data_limits"].clone()
            };
            assert_eq!(shown().await, limits);
            let changed = json!({ "regions": ["us"] });
            let answer = put(&olivia, &of_key, &changed).await;
            assert_eq!(answer.json(), changed);
            assert_eq!(shown().await, changed);
            set(&olivia, &of_key, &json!({ "regions": null })).await;
            assert_eq!(shown().await, json!({}));
            let answer = put(&olivia, &of_organisation, &limits).await;
            assert_eq!(answer.json()["data_limits"], limits);
            let listed = olivia.get("/organisations").await.json();
            assert_eq!(listed["organisations"][0]["data_limits"], limits);

            let admin = gateway.admin("root").await;
            let new = json!({ "user_id": "carol", "name": "x", "data_limits": limits });
            assert_eq!(admin.post("/admin/keys", &new).await.status, 201);
            let keys = admin.get("/admin/keys?user_id=carol").await.json();
            assert_eq!(keys["keys"][0]["data_limits"], limits);
            let catalog = admin.get("/admin/catalog").await.json();
            let listed = catalog["providers"].as_array().expect("a list");
            let slow = listed.iter().find(|provider| provider["name"] == "slow");
            let slow = slow.expect("the provider");
            assert_eq!(slow["regions"], json!(["eu"]));
            assert_eq!(slow["retention_days"], 30);

            let regions = |regions: Value| json!({ "regions": regions });
            let days = |days: Value| json!({ "max_retention_days": days });
            let many = vec!["eu"; 17];
            for (field, wrong) in [
                ("regions", regions(json!([]))),
                ("regions", regions(json!(many))),
                ("regions", regions(json!(["EU"]))),
                ("regions", regions(json!([""]))),
                ("regions", regions(json!(["a".repeat(33)]))),
                ("regions", regions(json!("eu"))),
                ("max_retention_days", days(json!(-1))),
                ("max_retention_days", days(json!(65536))),
                ("max_retention_days", days(json!(0.5))),
                ("region", json!({ "region": ["eu"] })),
            ] {
                for path in [&of_key, &of_organisation] {
                    let refused = put(&olivia, path, &wrong).await;
                    let error = refused.error(400, "INVALID_REQUEST");
                    assert_eq!(error["param"], field, "{wrong}: {error}");
                }
                let new = json!({ "data_limits": wrong });
                let refused = olivia.post("/api-keys", &new).await;
                let error = refused.error(400, "INVALID_REQUEST");
                assert_eq!(error["param"], format!("data_limits.{field}"), "{error}");
            }
            // The largest limits are legal.
            let most = json!({ "regions": vec!["a".repeat(32); 16], "max_retention_days": 65535 });
            set(&olivia, &of_key, &most).await;

            // Strangers change nothing.
            let mallory = gateway.web("mallory");
            let refused = put(&mallory, &of_key, &limits).await;
            refused.error(404, "NOT_FOUND");
            let refused = put(&mallory, &of_organisation, &limits).await;
            refused.error(404, "NOT_FOUND");
            assert_eq!(shown().await, most);
        },
    )
    .await;
}

/// A key whose stored limits cannot be read has no access, rather than no limits.
#[tokio::test(flavor = "multi_thread")]
async fn unreadable_limits_are_no_free_pass() {
    let providers = Providers::start().await;
    on_each_database(
        START,
        |builder| providers.add_to(builder),
        async |gateway, _| {
            let (client, _) = key(&gateway.web("alice"), &gateway, &json!({})).await;
            let database = &gateway.app().database;
            sqlx::query("UPDATE api_keys SET data_limits = '{\"regions\":[\"EU\"]}'")
                .execute(database.writer())
                .await
                .expect("an update");
            let calls = providers.counts();
            let refused = client.post("/chat", &chat("all", "x")).await;
            assert!(refused.status.is_server_error(), "{}", refused.text());
            assert_eq!(providers.counts(), calls);
        },
    )
    .await;
}

#[test]
fn a_provider_with_invalid_terms_is_reported() {
    for (terms, what) in [
        ("regions = [\"EU\"]", "1 to 16 regions"),
        ("regions = []", "1 to 16 regions"),
        ("retention_days = 65536", "retention_days"),
        ("retention_days = -1", "retention_days"),
    ] {
        let provider = format!("[providers.p]\nadapter = \"demo\"\n{terms}\n");
        let refused = Config::from_toml(&provider).expect_err("it is refused");
        let error = format!("{refused:#}");
        assert!(error.contains(what), "{terms}: {error}");
    }
}
