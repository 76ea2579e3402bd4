//! Plans can have models that their credits pay for, and a price factor.

use serde_json::{Value, json};
use tests::gateway::{USER, on_each_database, top_up};
use tests::{Client, Gateway, Reply, Upstream, chat};
use weir_ledger::verify::verify;
use weir_ledger::{AccountId, Credits};

use crate::billing::is_settled;
use crate::swarms::{agent, ended, swarm};

const START: &str = "2026-03-04T05:30:00Z";

/// The plan credits and the bought credits of the user.
async fn balances(gateway: &Gateway) -> (Credits, Credits) {
    let account = AccountId(USER.to_owned());
    let account = gateway.app().ledger.find_account(&account).await;
    let balance = account.expect("an answer").expect("the user").balance;
    (balance.plan, balance.top_up)
}

async fn charge(client: &Client, model: &str) -> f64 {
    let answer = client.post("/chat", &chat(model, "x")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["usage"]["credits"]
        .as_f64()
        .expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn only_bought_credits_pay_for_models_outside_the_plan() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("fine", 10, 300));
    on_each_database(
        START,
        |builder| {
            let builder = builder.swarms().credits(0).upstream("scripted", &upstream);
            let builder = builder.upstream("dear", &upstream);
            builder.tables(
                "[plans.free]\nmodels = [\"scripted\"]\n[plans.pro]\nmodels = [\"scripted\"]\n",
            )
        },
        async |gateway, _| {
            let client = gateway.client();
            charge(&client, "scripted").await;
            is_settled(&gateway).await;
            let before = balances(&gateway).await;
            assert!(before.0 > Credits::ZERO);
            let refused = client.post("/chat", &chat("dear", "x")).await;
            let error = refused.error(429, "QUOTA_EXCEEDED");
            assert_eq!(error["available_credits"], 0, "{error}");

            top_up(gateway.app(), USER, Credits::whole(10)).await;
            let before = balances(&gateway).await;
            let charged = charge(&client, "dear").await;
            is_settled(&gateway).await;
            let after = balances(&gateway).await;
            assert_eq!(after.0, before.0, "the plan's credits stay");
            let paid = before.1.saturating_sub(after.1);
            assert_eq!(paid, Credits::parse(&charged.to_string()).expect("credits"));
            // The plan's credits pay first for a model of the plan.
            charge(&client, "scripted").await;
            is_settled(&gateway).await;
            assert_eq!(balances(&gateway).await.1, after.1);

            let models = client.get("/models").await.json();
            let models = models["models"].as_array().expect("a list");
            let in_plan = |id: &str| {
                let model = models.iter().find(|model| model["id"] == id);
                model.expect("the model")["in_plan"].clone()
            };
            assert_eq!(
                (in_plan("scripted"), in_plan("dear")),
                (json!(true), json!(false))
            );

            // A swarm with such a model is paid with bought credits alone.
            gateway.set_plan("pro").await;
            let before = balances(&gateway).await;
            let mut dear = agent("a");
            dear["model"] = json!("dear");
            dear["max_tokens"] = json!(400);
            let started = client.post("/swarms", &swarm(&[dear])).await;
            assert_eq!(started.status, 202, "{}", started.text());
            let id = started.json()["execution_id"]
                .as_str()
                .expect("an id")
                .to_owned();
            let record = ended(&client, &id).await;
            assert_eq!(record["status"], "completed", "{record}");
            is_settled(&gateway).await;
            let after = balances(&gateway).await;
            assert_eq!(after.0, before.0, "the plan's credits stay");
            assert!(after.1 < before.1);
            let now = gateway.app().ledger.now();
            let violations = verify(&gateway.app().database, now)
                .await
                .expect("an answer");
            assert!(violations.is_empty(), "{violations:?}");
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_has_its_own_price_factor() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("fine", 1_000, 300));
    let mut charges = Vec::new();
    for table in [
        "",
        "[plans.free]\nprice_factor = 1.5\n",
        "[plans.pro]\nprice_factor = 3\n",
    ] {
        let builder = Gateway::builder()
            .upstream("scripted", &upstream)
            .tables(table);
        let gateway = builder.start().await;
        let client = gateway.client();
        let models = client.get("/models").await.json();
        let price = |models: &Value| models["models"][0]["cost_per_1k_output"].as_f64();
        let listed = price(&models).expect("a price");
        charges.push((charge(&client, "scripted").await, listed));
    }
    let (plain, listed) = charges[0];
    assert!((charges[1].0 - 1.5 * plain).abs() < 1e-6, "{charges:?}");
    assert!((charges[1].1 - 1.5 * listed).abs() < 1e-6, "{charges:?}");
    assert_eq!(charges[2], charges[0], "the factor of another plan");
}

/// The stored plan of an account is that of its last operation. The time ends it, also for the first request afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_time_ended_prices_no_request() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("fine", 1_000, 300));
    on_each_database(
        START,
        |builder| {
            let builder = builder.swarms().upstream("scripted", &upstream);
            builder.tables("[plans.pro]\nprice_factor = 3\n")
        },
        async |gateway, clock| {
            let (client, web) = (gateway.client(), gateway.web("carol"));
            let plain = charge(&client, "scripted").await;
            let carol = gateway.web_user_id("carol").await;
            let admin = gateway.admin("root").await;
            for user in [USER, &carol] {
                let path = format!("/admin/users/{user}/plan");
                let set = admin.post(&path, &json!({ "plan": "pro" })).await;
                assert_eq!(set.status, 200, "{}", set.text());
            }
            let is_triple = |charged: f64| (charged - 3.0 * plain).abs() < 1e-5;
            for caller in [&client, &web] {
                assert!(is_triple(charge(caller, "scripted").await));
            }
            is_settled(&gateway).await;
            clock.advance(std::time::Duration::from_secs(40 * 86_400));
            let (client, web) = (gateway.client(), gateway.web("carol"));
            let stored = "SELECT plan FROM users WHERE id = $1";
            for (caller, user) in [(&client, USER), (&web, &carol)] {
                // Agents need a paid plan.
                let refused = caller.post("/swarms", &swarm(&[agent("a")])).await;
                assert_eq!(refused.status, 403, "{}", refused.text());
                let plan: String = sqlx::query_scalar(stored)
                    .bind(user)
                    .fetch_one(gateway.app().database.reader())
                    .await
                    .expect("a plan");
                assert_eq!(plan, "pro", "no operation has begun the free plan");
                let charged = charge(caller, "scripted").await;
                assert!(
                    (charged - plain).abs() < 1e-6,
                    "{charged} instead of {plain}"
                );
            }
        },
    )
    .await;
}

#[tokio::test]
async fn a_plan_names_only_models_that_exist() {
    let builder = Gateway::builder().tables("[plans.guru]\nmodels = [\"demo\", \"gone\"]\n");
    let refused = builder.try_start().await.err().expect("a problem");
    let text = format!("{refused:#}");
    assert!(
        text.contains("plans.guru.models[1]") && text.contains("gone"),
        "{text}"
    );
}
