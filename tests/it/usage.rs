//! Users' views of their accounts: exact, their own, and at most a minute late.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Row as _};
use tests::gateway::{USER, at, on_each_database};
use tests::ledger::{Served, commit, hold, serve, settle};
use tests::stores::{Postgres, Redis};
use tests::{Answer, Client, Gateway, chat};
use weir_accounts::billing::summary_cache::{self, SUMMARY_TTL};
use weir_app::App;
use weir_ledger::archive::archive;
use weir_ledger::store::history::{
    UsageGroup, request_statement, requests_statement, usage_statement,
};
use weir_ledger::verify::{Extent, keep, look};
use weir_ledger::{
    AccountId, Action, Checkpoint, Credits, Fold, Grant, LedgerStore, OperationId, Period, Plan,
    RequestUsage, TopUp,
};
use weir_storage::clock::ManualClock;
use weir_storage::database::SqlDialect;

const START: &str = "2026-01-31T12:00:00Z";

/// The summary of a new user at [`START`].
const NEW: &str = r#"{"plan":"free","plan_allocation":500,"plan_credits_remaining":500,"topup_balance":0,"cycle_start":"2026-01-31T12:00:00Z","cycle_end":"2026-02-28T12:00:00Z","this_month":{"total_credits_used":0,"total_requests":0},"by_model":[]}"#;

pub(crate) const SMALL: Served<'static> = Served {
    user: USER,
    model: "small",
    provider: "p",
    credits: 1_500_000,
    cost: 1,
};

/// A gateway on each database, with a clock at [`START`].
pub(crate) async fn each(test: impl AsyncFn(Gateway, ManualClock)) {
    on_each_database(START, |builder| builder.credits(0), test).await;
}

async fn summary(client: &Client) -> String {
    shown(&client.get("/usage/me").await)
}

fn shown(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.headers["content-type"], "application/json");
    answer.text()
}

async fn sync(client: &Client) -> Answer {
    let none = Bytes::new();
    let path = "/billing/sync-balance";
    client.send(Method::POST, path, None, none).await
}

async fn synced(client: &Client) -> String {
    let answer = sync(client).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text()
}

async fn forget(gateway: &Gateway, user: &str) {
    summary_cache::drop_summary(&gateway.app().cache, &AccountId(user.to_owned())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_summary_is_exact() {
    each(async |gateway, _| {
        let (app, alice) = (gateway.app(), gateway.client());
        assert_eq!(summary(&alice).await, NEW);
        let top_up = TopUp {
            id: OperationId("payment".to_owned()),
            credits: Credits::whole(100),
            within: None,
        };
        commit(app, USER, Action::TopUp(top_up)).await;
        serve(app, SMALL).await;
        let elsewhere = Served {
            provider: "q",
            credits: 2_000_000,
            ..SMALL
        };
        serve(app, elsewhere).await;
        let tiny = Served {
            model: "tiny",
            credits: 1,
            ..SMALL
        };
        serve(app, tiny).await;
        // The rest of the plan's credits, and the remainder from bought ones.
        let large = Served {
            model: "large",
            credits: 510_000_000,
            ..SMALL
        };
        serve(app, large).await;
        forget(&gateway, USER).await;
        assert_eq!(
            summary(&alice).await,
            concat!(
                r#"{"plan":"free","plan_allocation":500,"plan_credits_remaining":0,"topup_balance":86.499999,"#,
                r#""cycle_start":"2026-01-31T12:00:00Z","cycle_end":"2026-02-28T12:00:00Z","#,
                r#""this_month":{"total_credits_used":513.500001,"total_requests":4},"#,
                r#""by_model":[{"model":"large","credits_used":510,"requests":1,"unit":"tokens","quantity":30},"#,
                r#"{"model":"small","credits_used":3.5,"requests":2,"unit":"tokens","quantity":60},"#,
                r#"{"model":"tiny","credits_used":0.000001,"requests":1,"unit":"tokens","quantity":30}]}"#
            )
        );
        assert_eq!(
            synced(&alice).await,
            concat!(
                r#"{"plan":"free","plan_credits_remaining":0,"topup_balance":86.499999,"#,
                r#""available_credits":86.499999,"synced_at":"2026-01-31T12:00:00Z"}"#
            )
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_summary_lags_by_a_minute_unless_it_is_forgotten() {
    each(async |gateway, clock| {
        let (app, alice) = (gateway.app(), gateway.client());
        let used = async || -> Value {
            let summary: Value = serde_json::from_str(&summary(&alice).await).expect("JSON");
            summary["this_month"]["total_requests"].clone()
        };
        assert_eq!(used().await, 0);
        serve(app, SMALL).await;
        clock.advance(SUMMARY_TTL - Duration::from_millis(1));
        assert_eq!(used().await, 0);
        clock.advance(Duration::from_millis(1));
        assert_eq!(used().await, 1);
        serve(app, SMALL).await;
        forget(&gateway, USER).await;
        assert_eq!(used().await, 2);
        serve(app, SMALL).await;
        assert_eq!(used().await, 2);
        synced(&alice).await;
        assert_eq!(used().await, 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_is_not_spent_but_not_available_either() {
    each(async |gateway, _| {
        let alice = gateway.client();
        hold(gateway.app(), SMALL).await;
        assert_eq!(summary(&alice).await, NEW);
        assert_eq!(
            synced(&alice).await,
            concat!(
                r#"{"plan":"free","plan_credits_remaining":500,"topup_balance":0,"#,
                r#""available_credits":498.5,"synced_at":"2026-01-31T12:00:00Z"}"#
            )
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cycle_begins_on_time_and_a_charge_belongs_to_the_one_that_it_began_in() {
    each(async |gateway, clock| {
        let (app, alice) = (gateway.app(), gateway.client());
        serve(app, SMALL).await;
        clock.set(at("2026-02-28T11:59:59Z"));
        let open = hold(app, SMALL).await;
        let before = summary(&alice).await;
        assert!(
            before.contains(r#""plan_credits_remaining":498.5,"#),
            "{before}"
        );
        clock.advance(Duration::from_millis(999));
        assert_eq!(summary(&alice).await, before);
        clock.advance(Duration::from_millis(1));
        let next = NEW
            .replace("2026-02-28", "2026-03-31")
            .replace("2026-01-31", "2026-02-28");
        assert_eq!(summary(&alice).await, next);

        // The same once it has begun, with the open request of the one before.
        let begun_by = hold(app, SMALL).await;
        forget(&gateway, USER).await;
        assert_eq!(summary(&alice).await, next);
        settle(app, open, SMALL).await;
        forget(&gateway, USER).await;
        assert_eq!(summary(&alice).await, next);
        settle(app, begun_by, SMALL).await;
        let balances = synced(&alice).await;
        assert!(
            balances.contains(r#""plan_credits_remaining":498.5,"#),
            "{balances}"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_begins_the_cycle_that_is_due_once() {
    each(async |gateway, clock| {
        let begun = async || -> i64 {
            sqlx::query_scalar("SELECT period_number FROM accounts WHERE id = $1")
                .bind(USER)
                .fetch_one(gateway.app().database.reader())
                .await
                .expect("an account")
        };
        for cycles in 1..4 {
            for _ in 0..2 {
                let balances = synced(&gateway.client()).await;
                assert!(
                    balances.contains(r#""plan_credits_remaining":500,"#),
                    "{balances}"
                );
                assert_eq!(begun().await, cycles);
            }
            serve(gateway.app(), SMALL).await;
            clock.advance(Duration::from_secs(31 * 86_400));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paid_plan_has_the_cycle_that_was_paid_for() {
    each(async |gateway, clock| {
        let grant = Grant {
            id: OperationId("sub/1".to_owned()),
            plan: Plan::Pro,
            period: Period {
                start: at("2026-01-31T00:00:00Z"),
                end: at("2026-02-28T00:00:00Z"),
            },
            credits: Plan::Pro.monthly_credits(),
        };
        commit(gateway.app(), USER, Action::Grant(grant)).await;
        serve(gateway.app(), SMALL).await;
        let paid = concat!(
            r#"{"plan":"pro","plan_allocation":55000,"plan_credits_remaining":54998.5,"topup_balance":0,"#,
            r#""cycle_start":"2026-01-31T00:00:00Z","cycle_end":"2026-02-28T00:00:00Z","#,
            r#""this_month":{"total_credits_used":1.5,"total_requests":1},"#,
            r#""by_model":[{"model":"small","credits_used":1.5,"requests":1,"unit":"tokens","quantity":30}]}"#
        );
        assert_eq!(summary(&gateway.client()).await, paid);
        // While the payment for the next one is under way.
        clock.set(at("2026-03-02T23:59:59Z"));
        assert_eq!(summary(&gateway.client()).await, paid);
        clock.set(at("2026-03-03T00:00:00Z"));
        let free = summary(&gateway.client()).await;
        assert!(free.starts_with(r#"{"plan":"free","plan_allocation":500,"#), "{free}");
        assert!(free.ends_with(r#""total_requests":0},"by_model":[]}"#), "{free}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_sees_what_others_used() {
    each(async |gateway, _| {
        let bob = gateway.web_user_id("bob").await;
        serve(gateway.app(), SMALL).await;
        let of_bob = Served {
            user: &bob,
            model: "bobs",
            credits: 7_000_000,
            ..SMALL
        };
        serve(gateway.app(), of_bob).await;
        for _ in 0..2 {
            let alices = summary(&gateway.client()).await;
            assert!(
                !alices.contains("bobs") && alices.contains(r#":498.5,"#),
                "{alices}"
            );
            let bobs = summary(&gateway.web("bob")).await;
            assert!(
                !bobs.contains("small") && bobs.contains(r#":493,"#),
                "{bobs}"
            );
            assert_eq!(
                summary(&gateway.web("alice")).await,
                NEW,
                "of another issuer"
            );
            assert!(synced(&gateway.web("bob")).await.contains(r#":493,"#));
        }
        for refused in [
            gateway.stranger().get("/usage/me").await,
            sync(&gateway.stranger()).await,
            gateway
                .stranger()
                .with_key("inf_wrong")
                .get("/usage/me")
                .await,
        ] {
            refused.error(401, "UNAUTHENTICATED");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_never_bring_back_what_a_settlement_has_changed() {
    let (postgres, redis) = (Postgres::shared().create_database().await, Redis::start());
    for builder in [
        Gateway::builder().credits(0),
        Gateway::builder()
            .credits(0)
            .postgres(&postgres)
            .redis(&redis.url()),
    ] {
        let gateway = builder.start().await;
        let alice = gateway.client();
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let alice = alice.clone();
                tokio::spawn(async move {
                    loop {
                        alice.get("/usage/me").await;
                    }
                })
            })
            .collect();
        for round in 1..=30 {
            serve(gateway.app(), SMALL).await;
            forget(&gateway, USER).await;
            let wanted = format!(r#""total_requests":{round}}}"#);
            let summary = summary(&alice).await;
            assert!(summary.contains(&wanted), "{round}: {summary}");
        }
        for reader in readers {
            reader.abort();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_cache_a_summary_is_refused_or_made_anew() {
    let redis = Redis::start();
    let builder = || Gateway::builder().credits(0).redis(&redis.url());
    let strict = builder().start().await;
    let lenient = builder()
        .settings("failure_policy = \"allow\"")
        .start()
        .await;
    for gateway in [&strict, &lenient] {
        serve(gateway.app(), SMALL).await;
        assert!(
            summary(&gateway.client())
                .await
                .contains(r#""total_requests":1}"#)
        );
        forget(gateway, USER).await;
    }
    redis.kill();
    let refused = strict.client().get("/usage/me").await;
    refused.error(503, "CACHE_UNAVAILABLE");
    sync(&strict.client()).await.error(503, "CACHE_UNAVAILABLE");
    for requests in 2..4 {
        serve(lenient.app(), SMALL).await;
        forget(&lenient, USER).await;
        let shown = format!(r#""total_requests":{requests}}}"#);
        assert!(summary(&lenient.client()).await.contains(&shown));
        synced(&lenient.client()).await;
    }
}

/// Waits until all entries are folded.
pub(crate) async fn fold(app: &App) {
    let mut fold = Fold::new(LedgerStore::new(app.database.clone()));
    let unfolded = "SELECT CAST(COUNT(*) AS BIGINT) FROM entries WHERE number > (SELECT number FROM entries_folded)";
    while sqlx::query_scalar::<_, i64>(unfolded)
        .fetch_one(app.database.reader())
        .await
        .expect("an answer")
        > 0
    {
        fold.step(1_000).await.expect("an answer");
    }
}

async fn new_key(web: &Client, name: &str) -> (String, String) {
    let made = web.post("/api-keys", &json!({ "name": name })).await.json();
    let text = |field: &str| made[field].as_str().expect("a text").to_owned();
    (text("key_id"), text("api_key"))
}

async fn json_of(client: &Client, path: &str) -> Value {
    let answer = client.get(path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

/// Parses an amount, in micro-credits.
fn micro(credits: &Value) -> i64 {
    (credits.as_f64().expect("a number") * 1e6).round() as i64
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_by_key_model_and_day_adds_up_to_what_was_charged() {
    let second_model =
        |builder: tests::gateway::Builder| builder.credits(0).model("other", &["demo"]);
    on_each_database(START, second_model, async |gateway, clock| {
        let bob = gateway.web("bob");
        let (first, second) = (new_key(&bob, "first").await, new_key(&bob, "second").await);
        let keyed = |key: &(String, String)| gateway.stranger().with_key(&key.1);
        let mut charged: BTreeMap<String, i64> = BTreeMap::new();
        for day in ["2026-01-31", "2026-02-01"] {
            clock.set(at(&format!("{day}T12:00:00Z")));
            for (client, key, model) in [
                (keyed(&first), &*first.0, "demo"),
                (keyed(&first), &*first.0, "other"),
                (keyed(&second), &*second.0, "demo"),
                (gateway.web("bob"), "web", "demo"),
            ] {
                let answer = client.post("/chat", &chat(model, "some words")).await;
                let credits = micro(&answer.json()["usage"]["credits"]);
                assert!(credits > 0);
                for part in [key, model, day, "all"] {
                    *charged.entry(part.to_owned()).or_default() += credits;
                }
            }
        }
        // As soon as they are charged, half folded, and when all of them are sums.
        let asked = async |group: &str, query: &str| {
            json_of(&keyed(&second), &format!("/usage/me?group={group}{query}")).await
        };
        for folded in [false, true] {
            if folded {
                fold(gateway.app()).await;
            }
            for (group, names) in [
                ("key", vec![&*first.0, &second.0, "web"]),
                ("model", vec!["demo", "other"]),
                ("day", vec!["2026-01-31", "2026-02-01"]),
            ] {
                let report = asked(group, "").await;
                assert_eq!(
                    micro(&report["total"]["credits_used"]),
                    charged["all"],
                    "{report}"
                );
                assert_eq!(
                    (&report["total"]["requests"], &report["omitted"]),
                    (&json!(8), &json!(0))
                );
                let items = report["usage"].as_array().expect("a list");
                assert_eq!(items.len(), names.len(), "{report}");
                for item in items {
                    let name = ["key_id", "model", "date", "source"]
                        .into_iter()
                        .find_map(|field| item[field].as_str());
                    let name = name.expect("a name");
                    assert!(names.contains(&name), "{item}");
                    assert_eq!(micro(&item["credits_used"]), charged[name], "{item}");
                }
                let input = |item: &Value| item["tokens_input"].as_i64().expect("a number");
                let all: i64 = items.iter().map(input).sum();
                assert_eq!(input(&report["total"]), all);
            }
        }
        let by_key = asked("key", "").await["usage"].clone();
        assert_eq!(
            (&by_key[0]["name"], &by_key[0]["source"]),
            (&json!("first"), &json!("api_key"))
        );
        assert!(
            second.1.starts_with(
                by_key
                    .as_array()
                    .expect("a list")
                    .iter()
                    .find(|item| item["name"] == "second")
                    .expect("the second")["prefix"]
                    .as_str()
                    .expect("a text")
            )
        );
        let one_day = asked("model", "&from=2026-02-01&to=2026-02-01").await;
        assert_eq!(
            micro(&one_day["total"]["credits_used"]),
            charged["2026-02-01"]
        );
        assert_eq!(asked("day", "").await["from"], "2026-01-03");
        assert_eq!(
            asked("day", "&from=2026-02-02").await["total"]["requests"],
            0
        );
        let admin = gateway.admin("root").await;
        let user = gateway.web_user_id("bob").await;
        let shown = json_of(&admin, &format!("/admin/users/{user}/usage?group=key")).await;
        assert_eq!(shown, asked("key", "").await);
        let by_model = json_of(&admin, &format!("/admin/users/{user}/usage")).await;
        assert_eq!(by_model["group"], "model");
        admin
            .get("/admin/users/usr_0/usage")
            .await
            .error(404, "UNKNOWN_USER");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_requests_are_whole_while_requests_are_added() {
    each(async |gateway, clock| {
        let (app, alice) = (gateway.app(), gateway.client());
        for number in 0..7 {
            clock.set(at(&format!("2026-02-0{}T12:00:00Z", number + 1)));
            let model = if number % 2 == 0 { "small" } else { "tiny" };
            serve(app, Served { model, ..SMALL }).await;
            if number == 3 {
                fold(app).await;
            }
        }
        let all = json_of(&alice, "/usage/requests").await;
        let ids = |page: &Value| -> Vec<String> {
            let requests = page["requests"].as_array().expect("a list");
            let id = |request: &Value| request["id"].as_str().expect("a text").to_owned();
            requests.iter().map(id).collect()
        };
        let expected = ids(&all);
        assert_eq!((expected.len(), &all["next"]), (7, &Value::Null), "{all}");
        assert_eq!(all["archived_before"], Value::Null);
        assert_eq!(
            all["requests"][0],
            json!({
                "id": expected[0], "at": "2026-02-07T12:00:00Z", "model": "small", "provider": "p",
                "source": "api_key", "key_id": null, "task_id": null, "status": "settled", "code": null,
                "http_status": null, "param": null, "limit": null, "message": null,
                "tokens_input": 10, "tokens_cache_read": 0, "tokens_cache_write": 0, "tokens_output": 20,
                "images": 0, "unit": "tokens", "quantity": 30, "held_credits": 1.5, "credits": 1.5, "adapter_digest": "",
                "latency_ms": 0, "attempts": 0, "estimated": false,
            })
        );
        let (mut seen, mut next) = (Vec::new(), String::new());
        loop {
            let page = json_of(&alice, &format!("/usage/requests?limit=2{next}")).await;
            seen.extend(ids(&page));
            // A new request comes before all of them.
            serve(app, SMALL).await;
            match page["next"].as_str() {
                Some(before) => next = format!("&before={before}"),
                None => break,
            }
        }
        assert_eq!(seen, expected);
        for (query, found) in [
            ("model=tiny", vec![1, 3, 5]),
            ("to=2026-02-06", vec![1, 2, 3, 4, 5, 6]),
            ("from=2026-02-02&to=2026-02-03", vec![4, 5]),
            ("from=2026-02-02T12:00:00Z&to=2026-02-03T12:00:00Z", vec![5]),
            ("from=2026-02-02T12:00:00.001Z&to=2026-02-03&model=small", vec![4]),
            ("model=none", vec![]),
            ("to=2026-01-31", vec![]),
        ] {
            for is_folded in [false, true] {
                if is_folded {
                    fold(app).await;
                }
                let page = json_of(&alice, &format!("/usage/requests?{query}&limit=1000")).await;
                let found: Vec<_> = found.iter().map(|&index: &usize| expected[index].clone()).collect();
                assert_eq!(ids(&page), found, "{query}");
                assert_eq!(page["next"], Value::Null, "{query}");
            }
        }
        for id in &expected {
            let one = json_of(&alice, &format!("/usage/requests/{id}")).await;
            assert!(all["requests"].as_array().expect("a list").contains(&one), "{one}");
        }
        let (admin, theirs) = (gateway.admin("root").await, format!("/admin/users/{USER}/usage/requests"));
        assert_eq!(
            json_of(&admin, &format!("{theirs}?limit=3")).await,
            json_of(&alice, "/usage/requests?limit=3").await
        );
        assert_eq!(json_of(&admin, &format!("{theirs}/{}", expected[0])).await, all["requests"][0]);
        let bob = gateway.web("bob").get(&format!("/usage/requests/{}", expected[0])).await;
        bob.error(404, "UNKNOWN_REQUEST");
        assert_eq!(json_of(&gateway.web("bob"), "/usage/requests").await["requests"], json!([]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_listed_once_however_it_ended() {
    each(async |gateway, _| {
        let (app, alice) = (gateway.app(), gateway.client());
        let statuses = async || -> Vec<(String, i64, i64)> {
            let page = json_of(&alice, "/usage/requests").await;
            let requests = page["requests"].as_array().expect("a list");
            let told = |request: &Value| {
                let status = request["status"].as_str().expect("a text").to_owned();
                let tokens = request["tokens_output"].as_i64().expect("a number");
                (status, micro(&request["credits"]), tokens)
            };
            requests.iter().map(told).collect()
        };
        let told = |status: &str, credits, tokens| (status.to_owned(), credits, tokens);
        let released = hold(app, SMALL).await;
        assert_eq!(statuses().await, [], "it is open");
        commit(
            app,
            USER,
            Action::Release {
                hold: released,
                cost: None,
            },
        )
        .await;
        assert_eq!(statuses().await, [told("released", 0, 0)]);
        let expired = hold(app, SMALL).await;
        let used = RequestUsage {
            provider: "p".to_owned(),
            counts: weir_ledger::UsageCounts {
                tokens_output: 7,
                ..Default::default()
            },
            estimated: true,
            ..RequestUsage::default()
        };
        let checkpoint = Checkpoint {
            hold: expired.clone(),
            credits: Credits::from_micro(400_000),
            usage: used,
        };
        commit(app, USER, Action::Checkpoint(checkpoint)).await;
        commit(
            app,
            USER,
            Action::Expire {
                hold: expired.clone(),
            },
        )
        .await;
        assert_eq!(statuses().await[0], told("expired", 400_000, 7));
        fold(app).await;
        assert_eq!(statuses().await[0], told("expired", 400_000, 7));
        // Its node returns, and reports the final charge.
        settle(app, expired, SMALL).await;
        assert_eq!(statuses().await[..1], [told("settled", 1_500_000, 20)]);
        assert_eq!(statuses().await.len(), 2);
        let page = json_of(&alice, "/usage/requests").await;
        assert_eq!(page["requests"][0]["estimated"], false, "{page}");
        assert_eq!(
            (
                &page["requests"][1]["provider"],
                &page["requests"][1]["latency_ms"]
            ),
            (&Value::Null, &Value::Null)
        );
        let by_model = json_of(&alice, "/usage/me?group=model").await;
        assert_eq!(by_model["usage"][0]["credits_used"], 1.5);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_failed_request_costs_is_reported_and_charged_to_nobody() {
    each(async |gateway, _| {
        let (app, alice) = (gateway.app(), gateway.client());
        let cost = RequestUsage {
            provider: "p".to_owned(),
            counts: weir_ledger::UsageCounts {
                provider_cost_nano_usd: 2_500_000,
                ..Default::default()
            },
            attempts: 2,
            estimated: true,
            ..RequestUsage::default()
        };
        let hold = hold(app, SMALL).await;
        let cost = Some(Box::new(cost));
        commit(app, USER, Action::Release { hold, cost }).await;
        let admin = gateway.admin("root").await;
        for is_folded in [false, true] {
            if is_folded {
                fold(app).await;
            }
            let economics = admin.get("/admin/model-economics").await.json();
            let row = &economics[0];
            assert_eq!(
                (&row["provider"], &row["provider_cost_usd"]),
                (&json!("p"), &json!(0.0025)),
                "{economics}"
            );
            assert_eq!(
                (&row["total_requests"], &row["revenue_credits"]),
                (&json!(0), &json!(0))
            );
            let page = json_of(&alice, "/usage/requests").await;
            let request = &page["requests"][0];
            assert_eq!(
                (
                    &request["status"],
                    &request["credits"],
                    &request["attempts"]
                ),
                (&json!("released"), &json!(0), &json!(2)),
                "{request}"
            );
            let by_model = json_of(&alice, "/usage/me?group=model").await;
            assert_eq!(by_model["usage"], json!([]));
            forget(&gateway, USER).await;
            assert_eq!(summary(&alice).await, NEW);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_a_report_is_refused_by_its_name() {
    let gateway = Gateway::start().await;
    let alice = gateway.client();
    for (path, param) in [
        ("/usage/me?group=month", "group"),
        ("/usage/me?group=", "group"),
        ("/usage/me?from=2026-01-01", "group"),
        ("/usage/me?group=day&group=day", "group"),
        ("/usage/me?group=day&from=2026-02-30", "from"),
        ("/usage/me?group=day&from=2026-01-01T00:00:00Z", "from"),
        ("/usage/me?group=day&to=yesterday", "to"),
        ("/usage/me?group=day&from=2026-02-02&to=2026-02-01", "to"),
        ("/usage/me?group=day&from=2020-01-01&to=2026-01-01", "from"),
        ("/usage/me?group=day&model=demo", "model"),
        ("/usage/requests?limit=0", "limit"),
        ("/usage/requests?limit=1001", "limit"),
        ("/usage/requests?before=-1", "before"),
        ("/usage/requests?from=1", "from"),
        ("/usage/requests?from=2026-02-02&to=2026-02-01", "to"),
        ("/usage/requests?key=key_0", "key"),
        ("/usage/requests?key=%00", "key"),
        ("/usage/requests?model=%00", "model"),
        ("/usage/requests?status=settled", "status"),
    ] {
        let error = alice.get(path).await.error(400, "INVALID_REQUEST");
        assert_eq!(error["param"], param, "{path}: {error}");
    }
    for id in ["req_0", "%00", "hold_00000000000000000000000000000000"] {
        let none = alice.get(&format!("/usage/requests/{id}")).await;
        none.error(404, "UNKNOWN_REQUEST");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn archived_requests_leave_the_list_and_stay_in_the_sums() {
    each(async |gateway, clock| {
        let (app, alice) = (gateway.app(), gateway.client());
        for moment in ["2026-02-10T12:00:00Z", "2026-03-10T12:00:00Z"] {
            clock.set(at(moment));
            serve(app, SMALL).await;
        }
        let old = json_of(&alice, "/usage/requests").await["requests"][1]["id"].clone();
        clock.set(at("2026-04-15T12:00:00Z"));
        fold(app).await;
        let now = app.clock.now();
        let findings = look(&app.database, now, Extent::New, |_| {})
            .await
            .expect("an answer");
        assert_eq!(findings.violations, []);
        keep(&app.database, &findings, |_| {})
            .await
            .expect("it is kept");
        let folder = tempfile::tempdir().expect("a folder");
        let moved = archive(
            &app.database,
            folder.path(),
            at("2026-03-01T00:00:00Z"),
            now,
            |_| {},
        )
        .await;
        assert!(moved.expect("an answer") > 0);
        let page = json_of(&alice, "/usage/requests").await;
        assert_eq!(page["requests"].as_array().map(Vec::len), Some(1), "{page}");
        assert_eq!(page["archived_before"], "2026-03-01T00:00:00Z");
        assert_eq!(page["next"], Value::Null);
        let gone = alice
            .get(&format!(
                "/usage/requests/{}",
                old.as_str().expect("a text")
            ))
            .await;
        gone.error(404, "UNKNOWN_REQUEST");
        let by_day = json_of(&alice, "/usage/me?group=day&from=2026-02-01&to=2026-04-15").await;
        let days: Vec<_> = by_day["usage"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|day| &day["date"])
            .collect();
        assert_eq!(days, ["2026-02-10", "2026-03-10"], "{by_day}");
        assert_eq!(by_day["total"]["credits_used"], 3.0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_read_one_accounts_rows_through_indexes() {
    each(async |gateway, _| {
        let database = &gateway.app().database;
        serve(gateway.app(), SMALL).await;
        let dialect = database.dialect();
        for (statement, index) in [
            (usage_statement(UsageGroup::Key), "usage_daily_by_account"),
            (usage_statement(UsageGroup::Day), "usage_daily_by_account"),
            (requests_statement(dialect), "account_entries"),
            (request_statement(), "entries_by_hold"),
        ] {
            let is_of_hold = index == "entries_by_hold";
            let mut filled = statement.clone();
            for (parameter, value) in [
                ("$1", if is_of_hold { "'hold_1'" } else { "'alice'" }),
                ("$2", if is_of_hold { "'alice'" } else { "2000" }),
                ("$3", "1000"),
                ("$4", "'small'"),
                ("$5", "'[\"x\"]'"),
                ("$6", "0"),
                ("$7", "9000"),
                ("$8", "100"),
                ("$9", "'p'"),
            ] {
                filled = filled.replace(parameter, value);
            }
            let mut snapshot = database.snapshot().await.expect("a snapshot");
            let (explain, column) = match dialect {
                SqlDialect::Sqlite => ("EXPLAIN QUERY PLAN", 3),
                SqlDialect::Postgres => {
                    // PostgreSQL reads tables as small as these completely, unless that is disabled.
                    let off = sqlx::query("SET LOCAL enable_seqscan = off");
                    off.execute(&mut *snapshot).await.expect("it can be set");
                    ("EXPLAIN", 0)
                }
            };
            let rows = sqlx::query(AssertSqlSafe(format!("{explain} {filled}")))
                .fetch_all(&mut *snapshot)
                .await
                .expect("a plan");
            let plan: Vec<String> = rows
                .iter()
                .map(|row| row.try_get(column).expect("a text"))
                .collect();
            let plan = plan.join("\n");
            assert!(plan.contains(index), "{statement}\n{plan}");
            for table in [
                "entries e",
                "entries late",
                "entries",
                "usage_daily",
                "account_entries",
            ] {
                for whole in ["Seq Scan on", "SCAN"] {
                    let reads_all = |line: &str| {
                        let rest = line.split_once(&format!("{whole} ")).map(|(_, rest)| rest);
                        rest.is_some_and(|rest| {
                            rest == table || rest.starts_with(&format!("{table} "))
                        })
                    };
                    assert!(!plan.lines().any(reads_all), "{table}: {statement}\n{plan}");
                }
            }
        }
    })
    .await;
}
