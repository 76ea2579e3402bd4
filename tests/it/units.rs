//! Units of usage: prices, charges, usage, exports and the console count each kind of request in the same unit.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};
use tests::gateway::{USER, at, on_each_database};
use tests::ledger::{Served, hold};
use tests::recording::{self, FORM, wav};
use tests::{Client, Gateway, chat};
use weir_ledger::verify::verify;
use weir_ledger::{
    AccountId, Action, Credits, LedgerStore, Operation, RequestUsage, Settle, Unit, UsageCounts,
};

use crate::console::Browser;
use crate::usage::fold;

const START: &str = "2026-01-30T12:00:00Z";

/// A model of a kind with a price of a unit.
struct Case {
    name: &'static str,
    kind: &'static str,
    price: &'static str,
    unit: &'static str,
    /// The unit in an export.
    focus: &'static str,
    /// The price in the console.
    shown: &'static str,
    /// Micro-credits for a unit of usage, with the factors; tokens have several prices.
    micro_credits: Option<f64>,
}

const CASES: [Case; 10] = [
    Case {
        name: "chat",
        kind: "chat",
        price: "input = 1, output = 2",
        unit: "tokens",
        focus: "Tokens",
        shown: "1.0 in, 2.0 out per million tokens",
        micro_credits: None,
    },
    Case {
        name: "image",
        kind: "chat",
        price: "image = 0.25",
        unit: "images",
        focus: "Images",
        shown: "0.25 per image",
        micro_credits: Some(250_000_000.0 * 1.4 * 1.15),
    },
    Case {
        name: "embeddings",
        kind: "embeddings",
        price: "input = 1, output = 0",
        unit: "tokens",
        focus: "Tokens",
        shown: "1.0 in, 0.0 out per million tokens",
        micro_credits: None,
    },
    Case {
        name: "rerank",
        kind: "rerank",
        price: "input = 1, output = 0",
        unit: "tokens",
        focus: "Tokens",
        shown: "1.0 in, 0.0 out per million tokens",
        micro_credits: None,
    },
    Case {
        name: "searches",
        kind: "rerank",
        price: "input = 0, output = 0, search = 0.002",
        unit: "search_units",
        focus: "Search Units",
        shown: "0.002 per search",
        micro_credits: Some(2_000_000.0 * 1.4),
    },
    Case {
        name: "moderation",
        kind: "moderation",
        price: "input = 1, output = 0",
        unit: "tokens",
        focus: "Tokens",
        shown: "1.0 in, 0.0 out per million tokens",
        micro_credits: None,
    },
    Case {
        name: "speech",
        kind: "speech",
        price: "input = 1, output = 2",
        unit: "tokens",
        focus: "Tokens",
        shown: "1.0 in, 2.0 out per million tokens",
        micro_credits: None,
    },
    Case {
        name: "characters",
        kind: "speech",
        price: "characters = 15",
        unit: "characters",
        focus: "Characters",
        shown: "15.0 per million characters",
        micro_credits: Some(15_000.0 * 1.4),
    },
    Case {
        name: "transcription",
        kind: "transcription",
        price: "input = 1, output = 2",
        unit: "tokens",
        focus: "Tokens",
        shown: "1.0 in, 2.0 out per million tokens",
        micro_credits: None,
    },
    Case {
        name: "seconds",
        kind: "transcription",
        price: "minute = 0.6",
        unit: "seconds",
        focus: "Seconds",
        shown: "0.6 per minute",
        micro_credits: Some(10_000_000.0 * 1.4),
    },
];

/// Returns a table with a model for each case, of the demo adapter.
fn models() -> String {
    let model = |case: &Case| {
        let output = match case.kind {
            "chat" => "max_output_tokens = 4000\ndefault_output_tokens = 100\n",
            "speech" | "transcription" => "max_output_tokens = 4000\n",
            _ => "",
        };
        format!(
            "[models.{}]\nkind = \"{}\"\ncontext_window = 100000\n{output}price = {{ {} }}\n\
             upstreams = [{{ provider = \"local\" }}]\n",
            case.name, case.kind, case.price
        )
    };
    CASES.iter().map(model).collect()
}

/// Sends a request of a case with this size: of texts, documents, or a recording.
async fn send(client: &Client, case: &Case, size: usize) {
    let text = "weir ".repeat(size);
    let texts = json!({ "model": case.name, "input": [text, "b"] });
    let answer = match (case.name, case.kind) {
        ("image", _) => {
            let body = json!({ "model": case.name, "prompt": text });
            client.post("/v1/images/generations", &body).await
        }
        (_, "chat") => client.post("/chat", &chat(case.name, &text)).await,
        (_, "embeddings") => client.post("/v1/embeddings", &texts).await,
        (_, "moderation") => client.post("/v1/moderations", &texts).await,
        (_, "rerank") => {
            let body =
                json!({ "model": case.name, "query": "q", "documents": vec!["d"; 60 * size] });
            client.post("/v1/rerank", &body).await
        }
        (_, "speech") => {
            let body = json!({ "model": case.name, "input": text, "voice": "alloy" });
            client.post("/v1/audio/speech", &body).await
        }
        _ => {
            let form = recording::form(&wav(size as u32), &[("model", case.name)]);
            let path = "/v1/audio/transcriptions";
            client.send(Method::POST, path, Some(FORM), form).await
        }
    };
    assert_eq!(answer.status, 200, "{}: {}", case.name, answer.text());
}

/// Returns the items of a list by their model.
fn by_model(list: &Value) -> BTreeMap<&str, &Value> {
    let items = list.as_array().expect("a list").iter();
    items
        .map(|item| (item["model"].as_str().expect("a model"), item))
        .collect()
}

/// Returns the lines of a table by a column.
async fn table(
    client: &Client,
    path: &str,
    by: &str,
) -> BTreeMap<String, BTreeMap<String, String>> {
    let client = client.clone().with_header("accept", "text/csv");
    let answer = client.get(path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    let mut table = csv::Reader::from_reader(&*answer.body);
    let lines = table.deserialize::<BTreeMap<String, String>>();
    lines
        .map(|line| line.expect("a line"))
        .map(|line| (line[by].clone(), line))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_is_exported_in_the_unit_of_its_price() {
    let configure = |builder: tests::gateway::Builder| {
        builder
            .credits(5_000)
            .provider("local", "demo", None)
            .tables(&models())
    };
    on_each_database(START, configure, async |gateway, _| {
        let client = gateway.client();
        let admin = gateway.admin("root").await;
        let sizes = [1, 3, 2];
        let mut quantities = BTreeMap::new();
        for case in &CASES {
            let mut quantity = 0;
            for size in sizes {
                send(&client, case, size).await;
                let page = client.get("/usage/requests?limit=1").await.json();
                let request = &page["requests"][0];
                assert_eq!(request["unit"], case.unit, "{request}");
                let count = request["quantity"].as_i64().expect("a number");
                assert!(count > 0, "{request}");
                quantity += count;
                let of = |field: &str| request[field].as_i64().expect("a number");
                if let Some(price) = case.micro_credits {
                    // The charge rounds up to a micro-credit.
                    let charged = request["credits"].as_f64().expect("a number") * 1e6;
                    let expected = (price * count as f64 - 0.01).ceil();
                    assert_eq!(charged.round(), expected, "{}: {request}", case.name);
                } else {
                    assert_eq!(count, of("tokens_input") + of("tokens_output"), "{request}");
                }
                match case.unit {
                    "images" => assert_eq!(of("images"), count),
                    "tokens" => assert_eq!(of("images"), 0, "{request}"),
                    _ => assert_eq!((of("images"), of("tokens_input")), (0, 0), "{request}"),
                }
            }
            quantities.insert(case.name, quantity);
        }
        let expected: Vec<i64> = vec![5 + 15 + 10, 1 + 3 + 2, 1 + 2 + 2, 3];
        let of = |name: &str| quantities[name];
        let found = ["characters", "seconds", "searches", "image"].map(of);
        assert_eq!(found.to_vec(), expected);

        // The same before and after the sums are folded.
        for _ in 0..2 {
            let mine = client.get("/usage/me?group=model").await.json();
            let summary = client.get("/usage/me").await.json();
            let economics = admin.get("/admin/model-economics").await.json();
            let requests = admin.get("/admin/requests?limit=1").await.json();
            assert_eq!(requests["requests"][0]["unit"], "seconds", "{requests}");
            let sums = [&mine["usage"], &summary["by_model"], &economics].map(by_model);
            let month = table(&client, "/usage/export?period=2026-01", "ResourceId").await;
            let lines = [
                table(&client, "/usage/me?group=model", "model").await,
                table(&client, "/usage/requests", "model").await,
                table(&admin, "/admin/model-economics", "model").await,
            ];
            for case in &CASES {
                let quantity = quantities[case.name];
                for sums in &sums {
                    let item = sums[case.name];
                    assert_eq!(
                        (&item["unit"], &item["quantity"]),
                        (&json!(case.unit), &json!(quantity))
                    );
                }
                for lines in &lines {
                    assert_eq!(lines[case.name]["unit"], case.unit);
                }
                assert_eq!(lines[0][case.name]["quantity"], quantity.to_string());
                let line = &month[case.name];
                assert_eq!(line["ConsumedUnit"], case.focus, "{}", case.name);
                assert_eq!(
                    line["ConsumedQuantity"],
                    quantity.to_string(),
                    "{}",
                    case.name
                );
                let images = if case.unit == "images" { quantity } else { 0 };
                assert_eq!(line["x_Images"], images.to_string(), "{}", case.name);
            }
            // Several units have no sum.
            let total = &mine["total"];
            assert_eq!(
                (&total["unit"], &total["quantity"]),
                (&Value::Null, &Value::Null)
            );
            assert_eq!(total["images"], 3);
            fold(gateway.app()).await;
        }
        let month = client
            .get("/usage/export?format=focus&period=2026-01")
            .await;
        assert_eq!(month.status, 200);

        let mut browser = Browser::of(&gateway, "root").await;
        let page = browser.page("/console/admin/models").await;
        for case in &CASES {
            assert!(page.contains(case.shown), "{}: {page}", case.name);
        }
        assert!(page.contains("search units"), "{page}");
        let web = gateway.web("root");
        let own = CASES
            .iter()
            .filter(|case| ["characters", "searches"].contains(&case.name));
        for case in own {
            send(&web, case, 1).await;
        }
        let page = browser.page("/console/usage").await;
        for shown in [
            "<td class=\"number\">5</td><td>characters</td>",
            "<td>search units</td>",
        ] {
            assert!(page.contains(shown), "{shown}: {page}");
        }
    })
    .await;
}

/// Settles a request as a node of the last release does: without a unit, and with everything in media counted as images.
async fn serve_as_before(gateway: &Gateway, model: &str, counts: UsageCounts) {
    let app = gateway.app();
    let request = Served {
        user: USER,
        model,
        provider: "local",
        credits: 100,
        cost: 1,
    };
    let action = Action::Settle(Settle {
        end: None,
        hold: hold(app, request).await,
        credits: Credits::from_micro(request.credits),
        usage: RequestUsage {
            provider: request.provider.to_owned(),
            counts,
            ..RequestUsage::default()
        },
    });
    tests::ledger::commit(app, USER, action).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn earlier_usage_takes_the_unit_of_its_model() {
    let configure = |builder: tests::gateway::Builder| {
        builder
            .credits(5_000)
            .provider("local", "demo", None)
            .tables(&models())
    };
    on_each_database(START, configure, async |gateway, _| {
        let client = gateway.client();
        let counts = |tokens_input, tokens_output, images| UsageCounts {
            tokens_input,
            tokens_output,
            images,
            ..UsageCounts::default()
        };
        let earlier = [
            ("chat", counts(7, 5, 0), "tokens", json!(12), 7, 0),
            ("image", counts(7, 5, 2), "images", json!(2), 7, 2),
            ("embeddings", counts(7, 0, 1), "tokens", json!(7), 7, 0),
            ("moderation", counts(7, 0, 1), "tokens", json!(7), 7, 0),
            (
                "characters",
                counts(40, 0, 1),
                "characters",
                json!(40),
                0,
                0,
            ),
            ("seconds", counts(9, 0, 1), "seconds", json!(9), 0, 0),
            // Search units were not counted.
            ("searches", counts(30, 0, 1), "unknown", Value::Null, 30, 0),
            // A model that the catalog does not have.
            ("gone", counts(7, 5, 1), "unknown", Value::Null, 7, 1),
        ];
        for (model, counts, ..) in &earlier {
            serve_as_before(&gateway, model, *counts).await;
        }
        for _ in 0..2 {
            let usage = client.get("/usage/me?group=model").await.json();
            let usage = by_model(&usage["usage"]);
            let requests = client.get("/usage/requests").await.json();
            let requests = by_model(&requests["requests"]);
            let month = table(&client, "/usage/export?period=2026-01", "ResourceId").await;
            for (model, _, unit, quantity, tokens_input, images) in &earlier {
                for item in [usage[model], requests[model]] {
                    assert_eq!(
                        (&item["unit"], &item["quantity"]),
                        (&json!(unit), quantity),
                        "{item}"
                    );
                    assert_eq!(
                        (&item["tokens_input"], &item["images"]),
                        (&json!(tokens_input), &json!(images)),
                        "{item}"
                    );
                }
                let line = &month[*model];
                assert_eq!(line["ConsumedUnit"].to_lowercase(), *unit, "{line:?}");
                let quantity = quantity
                    .as_i64()
                    .map_or(String::new(), |count| count.to_string());
                assert_eq!(line["ConsumedQuantity"], quantity, "{line:?}");
            }
            fold(gateway.app()).await;
        }
        // Later usage of the same day adds to it, if its unit is the same.
        for case in CASES.iter().filter(|case| case.unit != "tokens") {
            send(&client, case, 2).await;
        }
        for _ in 0..2 {
            let usage = client.get("/usage/me?group=model").await.json();
            let usage = by_model(&usage["usage"]);
            for (model, quantity) in [("characters", 50), ("seconds", 11), ("image", 3)] {
                assert_eq!(usage[model]["quantity"], quantity, "{}", usage[model]);
            }
            assert_eq!(usage["searches"]["quantity"], Value::Null);
            fold(gateway.app()).await;
        }
        let app = gateway.app();
        let violations = verify(&app.database, app.clock.now()).await;
        assert_eq!(violations.expect("the database answers"), []);
    })
    .await;
}

/// A month that had ended before units were stored was exported already.
#[tokio::test(flavor = "multi_thread")]
async fn exports_of_closed_months_stay_the_same() {
    let configure = |builder: tests::gateway::Builder| {
        builder
            .credits(5_000)
            .provider("local", "demo", None)
            .tables(&models())
    };
    on_each_database(START, configure, async |gateway, _| {
        let (client, app) = (gateway.client(), gateway.app());
        send(&client, &CASES[0], 1).await;
        for (day, model) in [
            ("2025-12-05", "embeddings"),
            ("2025-12-05", "characters"),
            ("2026-01-05", "embeddings"),
            ("2026-01-05", "characters"),
        ] {
            sqlx::query(
                "INSERT INTO usage_daily (account_id, period_start, day, model, provider, source, key_hash, requests, \
                 tokens_input, tokens_cache_read, tokens_cache_write, tokens_output, images, credits, overrun, provider_cost) \
                 VALUES ($1, 0, $2, $3, 'local', 'web', '', 2, 40, 0, 0, 0, 2, 1, 0, 1)",
            )
            .bind(USER)
            .bind(at(&format!("{day}T00:00:00Z")).0)
            .bind(model)
            .execute(app.database.writer())
            .await
            .expect("a row can be written");
        }
        for (month, expected) in [
            ("2025-12", [("embeddings", "Images", "2", "40"), ("characters", "Images", "2", "40")]),
            ("2026-01", [("embeddings", "Tokens", "40", "40"), ("characters", "Characters", "40", "0")]),
        ] {
            let path = format!("/usage/export?period={month}");
            let lines = table(&client, &path, "ResourceId").await;
            for (model, unit, quantity, tokens) in expected {
                let line = &lines[model];
                let found = ["ConsumedUnit", "ConsumedQuantity", "x_TokensInput"].map(|column| &*line[column]);
                assert_eq!(found, [unit, quantity, tokens], "{month}: {line:?}");
            }
        }
    })
    .await;
}

/// A node that does not know the outcome of its settlement sends it again, during an upgrade as well.
#[tokio::test(flavor = "multi_thread")]
async fn repeated_settlements_match_those_of_earlier_versions() {
    let configure = |builder: tests::gateway::Builder| builder.credits(5_000);
    on_each_database(START, configure, async |gateway, _| {
        let app = gateway.app();
        let request = Served {
            user: USER,
            model: "m",
            provider: "p",
            credits: 100,
            cost: 1,
        };
        let hold = hold(app, request).await;
        let submit = async |unit, images, tokens_output| {
            let counts = UsageCounts {
                images,
                tokens_output,
                ..UsageCounts::default()
            };
            let usage = RequestUsage {
                provider: "p".to_owned(),
                unit,
                counts,
                ..RequestUsage::default()
            };
            let operation = Operation {
                account: AccountId(USER.to_owned()),
                at: app.clock.now(),
                action: Action::Settle(Settle {
                    end: None,
                    hold: hold.clone(),
                    credits: Credits::from_micro(100),
                    usage,
                }),
            };
            let store = LedgerStore::new(app.database.clone());
            let mut outcomes = store.commit(&[operation]).await.expect("an answer");
            outcomes.remove(0)
        };
        let first = submit(None, 1, 3).await;
        assert!(first.is_ok(), "{first:?}");
        assert_eq!(submit(None, 1, 3).await, first);
        assert_eq!(submit(Some(Unit::Tokens), 0, 3).await, first);
        assert!(submit(Some(Unit::Tokens), 0, 4).await.is_err());
    })
    .await;
}
