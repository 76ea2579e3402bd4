//! Budgets of keys and users, and the models that a key may use: they hold under any concurrency.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tests::client::patiently;
use tests::gateway::{USER, on_each_database};
use tests::ledger::create_users;
use tests::stores::each_database;
use tests::{Answer, Client, Gate, Gateway, Reply, Upstream, chat};
use tokio::task::JoinSet;
use tokio::time::Instant;
use weir_ledger::verify::verify;
use weir_ledger::{
    AccountId, Action, Budget, BudgetPart, BudgetWindow, Checkpoint, Credits, HoldId,
    LeaseSettings, Ledger, LedgerError, LedgerRefusal, OpenHold, OperationEffect, RequestSource,
    RequestUsage, SetBudgets,
};
use weir_storage::clock::{Clock, ManualClock, Millis};

use crate::billing::is_settled;
use crate::cli::{Served, run, text};
use crate::swarms::{agent, ended, swarm};

/// A Wednesday, half an hour before the next hour.
const START: &str = "2026-03-04T05:30:00Z";

/// Creates a key of the user whose upstream is scripted, with these limits.
pub(crate) async fn key(gateway: &Gateway, limits: Value) -> (String, Client) {
    let admin = gateway.admin("root").await;
    let mut new = json!({ "user_id": USER, "name": "limited" });
    for (name, value) in limits.as_object().expect("an object") {
        new[name] = value.clone();
    }
    let made = admin.post("/admin/keys", &new).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.json();
    let key = made["api_key"].as_str().expect("a key");
    let id = made["key_id"].as_str().expect("an id").to_owned();
    (id, gateway.stranger().with_key(key))
}

/// A budget, in whole micro-credits.
fn budget(credits: f64, window: &str) -> Value {
    let credits = (credits * 1e6).round() / 1e6;
    json!({ "credits": credits, "window": window })
}

async fn put(client: &Client, path: &str, body: &Value) -> Answer {
    let body = Bytes::from(body.to_string());
    let json = Some("application/json");
    client.send(Method::PUT, path, json, body).await
}

async fn ask(client: &Client) -> Answer {
    let mut question = chat("scripted", "Hello");
    question["max_tokens"] = json!(100);
    client.post("/chat", &question).await
}

/// Returns the hold of one such request.
async fn price(gateway: &Gateway) -> f64 {
    let (_, poor) = key(gateway, json!({ "budget_credits": 0.001 })).await;
    let refused = ask(&poor).await.error(429, "BUDGET_EXCEEDED");
    refused["required_credits"].as_f64().expect("a number")
}

/// Returns a key as administrators see it.
pub(crate) async fn shown(gateway: &Gateway, id: &str) -> Value {
    let keys = gateway.admin("root").await.get("/admin/keys").await.json();
    let mut keys = keys["keys"].as_array().expect("a list").iter();
    let key = keys.find(|key| key["key_id"] == id);
    key.expect("it is there").clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_fifty_requests_at_once_no_more_are_served_than_the_keys_budget_allows() {
    let upstream = Upstream::start().await;
    on_each_database(
        START,
        |builder| builder.upstream("scripted", &upstream),
        async |gateway, _| {
            gateway.set_plan("pro").await;
            let price = price(&gateway).await;
            let before = upstream.count();
            let limits =
                json!({ "budgets": [budget(price * 10.5, "day"), budget(500.0, "month")] });
            let (id, client) = key(&gateway, limits).await;
            let gate = Gate::new();
            upstream.always(Reply::chat_with_usage("fine", 8, 5).after_gate(&gate));
            let (done, mut refusals) = tokio::sync::mpsc::unbounded_channel();
            let asking = (0..50).map(|_| {
                let (client, done) = (client.clone(), done.clone());
                async move {
                    let answer = ask(&client).await;
                    if answer.status != 200 {
                        done.send(answer).expect("somebody listens");
                        return 0;
                    }
                    1
                }
            });
            let seen = async {
                for _ in 0..40 {
                    let refused = refusals.recv().await.expect("a refusal");
                    assert_eq!(refused.headers["retry-after"], "66600");
                    assert_eq!(refused.headers["x-should-retry"], "false");
                    let refused = refused.error(429, "BUDGET_EXCEEDED");
                    assert_eq!(refused["window"], "day");
                    assert_eq!(refused["budget_of"], "key");
                    assert_eq!(refused["resets_at"], "2026-03-05T00:00:00Z");
                    assert!(refused["left_credits"].as_f64().expect("a number") < price);
                }
                let held = &shown(&gateway, &id).await["budgets"][0]["held"];
                let held = held.as_f64().expect("a number");
                assert!((held - 10.0 * price).abs() < 1e-5, "{held} of {price}");
                gate.open();
            };
            let (served, ()) = patiently(async { tokio::join!(join_all(asking), seen) }).await;
            assert_eq!(served.iter().sum::<i32>(), 10);
            assert_eq!(upstream.count() - before, 10, "the others cost no call");
            is_settled(&gateway).await;

            // A settlement has replaced the hold.
            let budgets = shown(&gateway, &id).await["budgets"].clone();
            for budget in budgets.as_array().expect("a list") {
                assert_eq!(budget["held"], 0, "{budget}");
                // 8 and 5 tokens, at 1 and 2 USD for a million, times 1.4.
                assert_eq!(budget["used"], 0.252, "{budget}");
            }
            assert_eq!(ask(&client).await.status, 200);
            is_settled(&gateway).await;
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_end_by_the_calendar_and_what_fails_is_freed() {
    let upstream = Upstream::start().await;
    on_each_database(
        START,
        |builder| builder.upstream("scripted", &upstream),
        async |gateway, clock| {
            let price = price(&gateway).await;
            let limits =
                json!({ "budgets": [budget(price, "hour"), budget(price * 1.3, "total")] });
            let (id, client) = key(&gateway, limits).await;
            upstream.always(Reply::error(400, "no"));
            assert_eq!(ask(&client).await.status, 400);
            is_settled(&gateway).await;
            assert_eq!(shown(&gateway, &id).await["budgets"][0]["left"], price);

            upstream.always(Reply::chat_with_usage("fine", 8, 5));
            assert_eq!(ask(&client).await.status, 200);
            let refused = ask(&client).await;
            assert_eq!(refused.headers["retry-after"], "1800");
            assert_eq!(refused.error(429, "BUDGET_EXCEEDED")["window"], "hour");
            clock.advance(Duration::from_secs(1_800));
            let mut served = 0;
            let last = loop {
                let answer = ask(&client).await;
                if answer.status != 200 {
                    break answer;
                }
                served += 1;
                clock.advance(Duration::from_secs(3_600));
            };
            assert!(served > 0, "another hour, another budget");
            assert!(!last.headers.contains_key("retry-after"));
            let last = last.error(429, "BUDGET_EXCEEDED");
            assert_eq!(
                (&last["window"], &last["resets_at"]),
                (&json!("total"), &Value::Null)
            );
            is_settled(&gateway).await;
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_users_budget_is_an_operators_and_binds_them_however_they_come() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("fine", 8, 5));
    on_each_database(
        START,
        |builder| builder.upstream("scripted", &upstream),
        async |gateway, _| {
            let price = price(&gateway).await;
            let admin = gateway.admin("root").await;
            let path = format!("/admin/users/{USER}/budgets");
            let set = json!({ "budgets": [budget(price * 1.01, "week")] });
            let user = admin.post(&path, &set).await.json();
            let shown = &user["account"]["budgets"][0];
            assert_eq!(
                (&shown["window"], &shown["resets_at"]),
                (&json!("week"), &json!("2026-03-09T00:00:00Z"))
            );

            let client = gateway.client();
            assert_eq!(ask(&client).await.status, 200);
            let before = upstream.count();
            let refused = ask(&client).await.error(429, "BUDGET_EXCEEDED");
            assert_eq!(
                (&refused["budget_of"], &refused["window"]),
                (&json!("user"), &json!("week"))
            );
            // Another key of the user, and another dialect.
            let (_, other) = key(&gateway, json!({})).await;
            let question = json!({ "model": "scripted", "max_tokens": 100,
                "messages": [{ "role": "user", "content": "Hello" }] });
            let refused = other.post("/v1/chat/completions", &question).await;
            assert_eq!(refused.status, 429);
            assert_eq!(refused.json()["error"]["code"], "insufficient_quota");
            assert_eq!(refused.json()["error"]["weir_code"], "BUDGET_EXCEEDED");
            let refused = other.post("/v1/messages", &question).await.json();
            assert_eq!(refused["error"]["type"], "billing_error");
            let mut of_responses =
                json!({ "model": "scripted", "max_output_tokens": 100, "input": "Hello" });
            of_responses["store"] = json!(false);
            let refused = other.post("/v1/responses", &of_responses).await;
            assert_eq!(refused.json()["error"]["weir_code"], "BUDGET_EXCEEDED");
            assert_eq!(upstream.count(), before);
            let summary = client.get("/usage/me").await.json();
            assert_eq!(summary["budgets"][0]["used"], 0.0252, "{summary}");

            // A larger budget for the same window continues the count; without a budget, no limit applies.
            let set = json!({ "budgets": [budget(price * 1.5, "week")] });
            let user = admin.post(&path, &set).await.json();
            assert_eq!(user["account"]["budgets"][0]["used"], 0.0252);
            assert_eq!(ask(&other).await.status, 200);
            let user = admin.post(&path, &json!({ "budgets": [] })).await.json();
            assert_eq!(user["account"]["budgets"], json!([]));
            assert_eq!(ask(&client).await.status, 200);
            gateway.app().audit.flush().await;
            let audit = admin.get("/admin/audit?kind=user.budgets_set").await.json();
            assert_eq!(audit["events"].as_array().map(Vec::len), Some(3), "{audit}");
            let unknown = admin.post("/admin/users/usr_0/budgets", &set).await;
            unknown.error(404, "UNKNOWN_USER");
            is_settled(&gateway).await;
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_limit_their_own_keys_and_see_what_is_left() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("fine", 8, 5));
    on_each_database(
        START,
        |builder| builder.upstream("scripted", &upstream).model("other", &["scripted"]),
        async |gateway, _| {
            let (bob, eve) = (gateway.web("bob"), gateway.web("eve"));
            let new = json!({ "name": "ci", "budget_credits": 20, "window": "month", "models": ["scripted"],
                "expires_in_days": 7 });
            let made = bob.post("/api-keys", &new).await;
            assert_eq!(made.status, 201, "{}", made.text());
            let made = made.json();
            assert_eq!(made["expires_at"], "2026-03-11T05:30:00Z");
            let client = gateway.stranger().with_key(made["api_key"].as_str().expect("a key"));
            assert_eq!(ask(&client).await.status, 200);
            is_settled(&gateway).await;
            let listed = bob.get("/api-keys").await.json()["api_keys"][0].clone();
            assert_eq!(listed["models"], json!(["scripted"]));
            assert_eq!(
                listed["budgets"],
                json!([{ "window": "month", "credits": 20, "used": 0.0252, "held": 0, "left": 19.9748,
                    "resets_at": "2026-04-01T00:00:00Z" }])
            );

            // The key sees only the models that it may use.
            for (path, list) in [("/models", "models"), ("/v1/models", "data")] {
                let models = client.get(path).await.json();
                let ids = models[list].as_array().expect("a list").iter();
                let ids: Vec<_> = ids.map(|model| &model["id"]).collect();
                assert_eq!(ids, ["scripted"], "{path}");
            }
            assert_eq!(client.get("/v1/models/other").await.status, 404);
            assert_eq!(bob.get("/v1/models/other").await.status, 200);
            let refused = client.post("/chat", &chat("other", "Hello")).await;
            let refused = refused.error(403, "MODEL_NOT_ALLOWED");
            assert_eq!(refused["param"], "model");
            let refused = client.post("/v1/chat/completions", &chat("other", "Hello")).await;
            assert_eq!(refused.json()["error"]["code"], "model_not_found");
            client.post("/chat", &chat("no-such", "Hello")).await.error(400, "UNKNOWN_MODEL");

            // Its owner alone changes its budget.
            let id = made["key_id"].as_str().expect("an id");
            let path = format!("/api-keys/{id}/budgets");
            let less = json!({ "budgets": [budget(0.03, "month"), budget(1.0, "hour")] });
            put(&eve, &path, &less).await.error(404, "NOT_FOUND");
            put(&client, &path, &less).await.error(401, "UNAUTHENTICATED");
            let changed = put(&bob, &path, &less).await.json();
            assert_eq!(changed["budgets"][0]["left"], 0.0048);
            assert_eq!(changed["budgets"][1]["used"], 0);
            ask(&client).await.error(429, "BUDGET_EXCEEDED");
            let none = put(&bob, &path, &json!({ "budgets": [] })).await.json();
            assert_eq!(none["budgets"], json!([]));
            assert_eq!(ask(&client).await.status, 200);
            let none = Bytes::new();
            let revoked = bob.send(Method::DELETE, &format!("/api-keys/{id}"), None, none).await;
            assert_eq!(revoked.status, 204);
            put(&bob, &path, &less).await.error(404, "NOT_FOUND");
            is_settled(&gateway).await;
        },
    )
    .await;
}

#[tokio::test]
async fn what_makes_no_limit_is_refused_by_its_field() {
    let gateway = Gateway::start().await;
    let bob = gateway.web("bob");
    for (body, field) in [
        (json!({ "budget_credits": 0 }), "budget_credits"),
        (json!({ "budget_credits": -1 }), "budget_credits"),
        (json!({ "budget_credits": 0.0000001 }), "budget_credits"),
        (json!({ "window": "day" }), "window"),
        (json!({ "budget_credits": 1, "window": "year" }), "window"),
        (
            json!({ "budget_credits": 1, "budgets": [] }),
            "budget_credits",
        ),
        (json!({ "budgets": [{ "credits": 1 }] }), "budgets[0]"),
        (
            json!({ "budgets": [budget(1.0, "day"), budget(0.0, "hour")] }),
            "budgets[1].credits",
        ),
        (
            json!({ "budgets": [budget(1.0, "day"), budget(2.0, "day")] }),
            "budgets[1].window",
        ),
        (
            json!({ "budgets": [budget(1e10, "day")] }),
            "budgets[0].credits",
        ),
        (json!({ "models": [] }), "models"),
        (json!({ "models": ["demo", "no-such"] }), "models[1]"),
        (json!({ "expires_in_days": 0 }), "expires_in_days"),
        (json!({ "expires_in_days": 91 }), "expires_in_days"),
        (json!({ "name": 5 }), "name"),
        (json!({ "nam": "x" }), "nam"),
    ] {
        let refused = bob.post("/api-keys", &body).await;
        let refused = refused.error(400, "INVALID_REQUEST");
        assert_eq!(refused["param"], field, "{body}");
    }
    assert_eq!(bob.get("/api-keys").await.json()["api_keys"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keys_swarm_spends_the_keys_budget_and_uses_its_models() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("fine", 10, 5));
    let builder = Gateway::builder().swarms().upstream("scripted", &upstream);
    let gateway = builder.model("other", &["scripted"]).start().await;
    gateway.set_plan("pro").await;
    let limits = json!({ "budgets": [budget(60.0, "day")], "models": ["scripted"] });
    let (id, client) = key(&gateway, limits).await;
    let mut elsewhere = agent("two");
    elsewhere["model"] = json!("other");
    let refused = client
        .post("/swarms", &swarm(&[agent("one"), elsewhere]))
        .await;
    let refused = refused.error(403, "MODEL_NOT_ALLOWED");
    assert_eq!(refused["param"], "agents[1].model");

    // The swarm's own budget is more than the key's. Only its call under way is reserved.
    let gate = Gate::new();
    upstream.will(Reply::chat_with_usage("fine", 10, 5).after_gate(&gate));
    let accepted = client.post("/swarms", &swarm(&[agent("one")])).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    patiently(gate.reached()).await;
    let held = shown(&gateway, &id).await["budgets"][0].clone();
    assert_eq!(
        (&held["held"], &held["left"]),
        (&json!(15.4756), &json!(44.5244)),
        "{held}"
    );
    assert_eq!(ask(&client).await.status, 200);
    gate.open();
    let execution = accepted.json();
    let record = ended(&client, execution["execution_id"].as_str().expect("an id")).await;
    assert_eq!(record["status"], "completed", "{record}");
    is_settled(&gateway).await;
    let after = shown(&gateway, &id).await["budgets"][0].clone();
    assert_eq!(
        (&after["used"], &after["held"]),
        (&json!(0.056), &json!(0)),
        "{after}"
    );
}

/// Each call of a swarm counts for the budgets of its key. It also counts for the budget of its own model.
#[tokio::test(flavor = "multi_thread")]
async fn swarms_stop_at_the_budget_of_a_model() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("fine", 10, 5));
    on_each_database(
        START,
        |builder| {
            let builder = builder.swarms().upstream("scripted", &upstream);
            builder.model("other", &["scripted"])
        },
        async |gateway, _| {
            gateway.set_plan("pro").await;
            let (client, ledger) = (gateway.client(), gateway.app().ledger.clone());
            let account = AccountId(USER.to_owned());
            let part = BudgetPart::Model("scripted".to_owned());
            let set = async |credits| {
                let budget = Budget {
                    credits: Credits::from_micro(credits),
                    window: BudgetWindow::Total,
                };
                let set = SetBudgets {
                    part: Some(part.clone()),
                    until: None,
                    budgets: vec![budget],
                    ended: Vec::new(),
                };
                let deadline = Instant::now() + Duration::from_secs(10);
                let set = ledger.submit(&account, Action::SetBudgets(Box::new(set)), deadline);
                set.await.expect("the ledger answers");
            };
            let run = async |model: &str| {
                let mut agent = agent("one");
                agent["model"] = json!(model);
                let accepted = client.post("/swarms", &swarm(&[agent])).await;
                assert_eq!(accepted.status, 202, "{}", accepted.text());
                let execution = accepted.json();
                let id = execution["execution_id"]
                    .as_str()
                    .expect("an id")
                    .to_owned();
                let record = ended(&client, &id).await;
                is_settled(&gateway).await;
                record
            };
            let counted = async || {
                let found = ledger.find_account(&account).await.expect("an answer");
                let found = found.expect("an account");
                let standings = found.standings(Some(&part), ledger.now());
                (standings[0].spent.micro(), standings[0].held.micro())
            };
            set(100_000_000).await;
            assert_eq!(run("scripted").await["status"], "completed");
            // 10 tokens at 1 USD and 5 at 2 USD a million, times 1.4.
            assert_eq!(counted().await, (28_000, 0));
            assert_eq!(run("other").await["status"], "completed");
            assert_eq!(counted().await, (28_000, 0));

            // The least hold of a request is above this.
            set(30_000).await;
            let asked = upstream.count();
            let record = run("scripted").await;
            assert_eq!(record["status"], "failed", "{record}");
            let error = record["error"].as_str().expect("an error");
            assert!(
                error.contains("For this model, the account may spend 0.03"),
                "{error}"
            );
            assert_eq!(upstream.count(), asked, "no request reached the provider");
            assert_eq!(counted().await, (28_000, 0));
            assert_eq!(run("other").await["status"], "completed");
            let violations = verify(&gateway.app().database, ledger.now()).await;
            assert_eq!(violations.expect("an answer"), []);
        },
    )
    .await;
}

#[test]
fn operators_set_budgets_on_a_terminal_and_they_outlive_the_process() {
    let mut served = Served::configured("");
    let folder = served.folder().to_owned();
    let weir = |arguments: &[&str]| {
        let output = run(&folder, arguments);
        (
            text(&output.stdout),
            text(&output.stderr),
            output.status.success(),
        )
    };
    let (key, said, ok) = weir(&[
        "key",
        "create",
        "--user",
        "carol",
        "--budget",
        "day=50",
        "--model",
        "demo",
        "--region",
        "eu",
        "--region",
        "de",
        "--max-retention-days",
        "0",
        "--expires-in-days",
        "5",
    ]);
    assert!(ok && said.contains("it expires in 5 days"), "{said}");
    let (listed, ..) = weir(&["key", "list", "--user", "carol"]);
    assert!(
        listed.contains("50 credits a day") && listed.contains("demo"),
        "{listed}"
    );
    assert!(
        listed.contains("regions eu, de; at most 0 days of retention"),
        "{listed}"
    );
    let upper_case = ["key", "create", "--user", "carol", "--region", "EU"];
    let (_, said, ok) = weir(&upper_case);
    assert!(!ok && said.contains("--region"), "{said}");
    let (said, wrong, ok) = weir(&[
        "user",
        "set-budgets",
        "--user",
        "carol",
        "--budget",
        "day=0.001",
        "--budget",
        "total=9",
    ]);
    assert!(ok, "{wrong}");
    assert_eq!(
        said,
        "carol may spend 0.001 credits a day, 9 credits in total.\n"
    );
    let (_, said, ok) = weir(&[
        "user",
        "set-budgets",
        "--user",
        "carol",
        "--budget",
        "year=1",
    ]);
    assert!(
        !ok && said.contains("hour, day, week, month or total"),
        "{said}"
    );
    let refuses = |served: &Served| {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let client = served.client().with_key(key.trim());
        let refused = runtime.block_on(client.post("/chat", &chat("demo", "Hello")));
        let refused = refused.error(429, "BUDGET_EXCEEDED");
        assert_eq!(refused["budget_of"], "user");
    };
    refuses(&served);
    served.signal("KILL");
    while !served.has_ended() {
        std::thread::yield_now();
    }
    let (shown, ..) = weir(&["user", "show", "--user", "carol"]);
    assert!(shown.contains("0.001 a day, 0.001 left"), "{shown}");
    let (said, ..) = weir(&["user", "set-budgets", "--user", "carol", "--none"]);
    assert_eq!(said, "carol may spend all that they have.\n");
}

/// On two concurrent nodes; and the holds of a failed node are charged at their last checkpoints.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_at_once_pass_no_budget_and_what_expires_counts_as_charged() {
    const NOW: Millis = Millis(1_750_000_000_000);
    each_database(async |stores| {
        let database = &stores.database;
        create_users(database, ["alice"].into_iter(), NOW.0).await;
        let node = async || {
            let clock = Clock::Manual(ManualClock::at(NOW));
            let ledger = Ledger::start(database.clone(), clock, LeaseSettings::default());
            ledger.await.expect("a ledger")
        };
        let nodes = [node().await, node().await];
        let alice = AccountId("alice".to_owned());
        let deadline = Instant::now() + Duration::from_secs(20);
        let set = SetBudgets {
            part: Some(BudgetPart::Key("key_1".to_owned())),
            until: None,
            budgets: vec![Budget {
                credits: Credits::whole(10),
                window: BudgetWindow::Day,
            }],
            ended: Vec::new(),
        };
        let set = Action::SetBudgets(Box::new(set));
        let set = nodes[0].submit(&alice, set, deadline).await;
        assert_eq!(set, Ok(OperationEffect::BudgetsSet));

        let mut opening = JoinSet::new();
        for number in 0..50 {
            let (ledger, alice) = (nodes[number % 2].clone(), alice.clone());
            opening.spawn(async move {
                let open = OpenHold {
                    hold: HoldId(format!("hold_{number}")),
                    amount: Credits::whole(1),
                    request_id: format!("req_{number}"),
                    parent: None,
                    source: RequestSource::ApiKey,
                    source_id: None,
                    parts: vec![BudgetPart::Key("key_1".to_owned())],
                    top_up_only: false,
                    model: "m".to_owned(),
                };
                let hold = open.hold.clone();
                match ledger.open(&alice, open, deadline).await {
                    Ok(()) => Some(hold),
                    Err(LedgerError::Refused(LedgerRefusal::OverBudget(exceeded))) => {
                        assert_eq!(exceeded.standing.left, Credits::ZERO);
                        None
                    }
                    Err(error) => panic!("{error}"),
                }
            });
        }
        let opened: Vec<_> = opening.join_all().await.into_iter().flatten().collect();
        assert_eq!(opened.len(), 10);

        let checkpoint = Checkpoint {
            hold: opened[0].clone(),
            credits: Credits::from_micro(250_000),
            usage: RequestUsage::default(),
        };
        let noted = nodes[1].checkpoint(&alice, checkpoint, deadline).await;
        noted.expect("it is noted");
        for hold in opened.into_iter().take(2) {
            let expire = Action::Expire { hold };
            let expired = nodes[0].submit(&alice, expire, deadline).await;
            expired.expect("it expires");
        }
        let account = nodes[1].find_account(&alice).await;
        let account = account.expect("an answer").expect("an account");
        let standing = account.standings(Some(&BudgetPart::Key("key_1".to_owned())), NOW)[0];
        let micro = [standing.spent, standing.held, standing.left].map(Credits::micro);
        assert_eq!(micro, [250_000, 8_000_000, 1_750_000]);
        let look = async || verify(database, NOW).await.expect("an answer");
        assert_eq!(look().await, []);

        // A manipulated counter.
        for (counted, instead) in [
            ("\"spent\":250000", "\"spent\":1"),
            ("\"held\":8000000", "\"held\":1"),
        ] {
            let replace =
                "UPDATE accounts SET budgets = REPLACE(budgets, $1, $2) WHERE id = 'alice'";
            for (from, to) in [(counted, instead), (instead, counted)] {
                let changed = sqlx::query(replace).bind(from).bind(to);
                let changed = changed.execute(database.writer()).await;
                assert_eq!(changed.expect("it is changed").rows_affected(), 1);
                let found = look().await;
                let found: Vec<_> = found
                    .iter()
                    .map(|found| (found.invariant, &*found.subject))
                    .collect();
                match to == instead {
                    true => assert_eq!(found, [("I8", "key_1")]),
                    false => assert_eq!(found, []),
                }
            }
        }
    })
    .await;
}
