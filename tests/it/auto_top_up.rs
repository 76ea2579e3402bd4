//! Automatic purchases of credits at a low balance: once, rate-limited, and not lost after a lost response.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tests::client::patiently;
use tests::gateway::Builder;
use tests::ledger::{Served, commit, serve};
use tests::processor::Processor;
use tests::stores::Postgres;
use tests::upstream::Gate;
use tests::{Client, Gateway, Reply, chat};
use weir_identity::store::{disable_user, enable_user};
use weir_ledger::{AccountId, Action, Credits, OperationId, Pool, Refund, TopUp};
use weir_payments::stripe::MAX_TRIES;

use crate::payments::each;
use crate::tasks::put;

const PATH: &str = "/billing/auto-topup";

/// The card of every user.
const CARD: Option<&str> = Some("pm_card");

const HOUR: Duration = Duration::from_secs(3_600);

/// Makes a web user a customer of the processor, as a first purchase does.
async fn customer(gateway: &Gateway, user: &str) -> Client {
    let user_id = gateway.web_user_id(user).await;
    let app = gateway.app();
    let linked = app
        .payments
        .store
        .link_customer(&user_id, &format!("cus_{user}"), app.ledger.now())
        .await;
    linked.expect("it can be written");
    gateway.web(user)
}

async fn wish(client: &Client, wish: Value) -> Value {
    let answer = put(client, PATH, &wish).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Waits until the user's view of it is as wanted.
async fn until(client: &Client, wanted: impl Fn(&Value) -> bool) -> Value {
    patiently(async {
        loop {
            let shown = client.get(PATH).await.json();
            if wanted(&shown) {
                return shown;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

async fn until_outcome(client: &Client, outcome: &str) -> Value {
    until(client, |shown| shown["last_charge"]["outcome"] == outcome).await
}

/// Returns the credits that a user has bought, by the ledger.
async fn bought(gateway: &Gateway, user: &str) -> i64 {
    let account = AccountId(gateway.web_user_id(user).await);
    let account = gateway.app().ledger.find_account(&account).await;
    let account = account.expect("the ledger can be read").expect("a user");
    account.balance.top_up.micro() / 1_000_000
}

/// Waits until the sweep has run once more: another user's charge comes after it.
async fn look_again(gateway: &Gateway, user: &str) {
    let other = customer(gateway, user).await;
    wish(&other, json!({ "enabled": true, "threshold": 5_000 })).await;
    until_outcome(&other, "succeeded").await;
}

#[tokio::test]
async fn what_a_user_wants_is_checked_and_kept() {
    each(async |_, gateway, _| {
        let alice = gateway.web("alice");
        let unset = json!({
            "enabled": false, "tier": "small", "threshold": 100, "charges_left_today": 3, "cooldown_until": null,
            "last_charge": null,
        });
        assert_eq!(alice.get(PATH).await.json(), unset);
        let early = put(&alice, PATH, &json!({ "enabled": true })).await;
        early.error(409, "NO_PAYMENT_CUSTOMER");
        customer(&gateway, "alice").await;
        for (body, code, param) in [
            (json!({ "enabled": true, "tier": "huge" }), "INVALID_TIER", "tier"),
            (json!({ "enabled": true, "threshold": 0 }), "INVALID_REQUEST", "threshold"),
            (json!({ "enabled": true, "threshold": 1_000_001 }), "INVALID_REQUEST", "threshold"),
            (json!({ "enabled": true, "threshold": -1 }), "INVALID_REQUEST", "threshold"),
            (json!({ "enabled": "yes" }), "INVALID_REQUEST", "enabled"),
            (json!({ "enabled": true, "tiers": "small" }), "INVALID_REQUEST", "tiers"),
        ] {
            let error = put(&alice, PATH, &body).await.error(400, code);
            assert_eq!(error["param"], param, "{body}: {error}");
        }
        assert_eq!(alice.get(PATH).await.json(), unset, "nothing has changed");
        let kept = wish(&alice, json!({ "enabled": true, "tier": "large", "threshold": 120.5 })).await;
        assert_eq!((&kept["tier"], &kept["threshold"]), (&json!("large"), &json!(120.5)));
        // Unnamed fields stay unchanged.
        let off = wish(&alice, json!({ "enabled": false })).await;
        assert_eq!(off["enabled"], false);
        assert_eq!((&off["tier"], &off["threshold"]), (&json!("large"), &json!(120.5)));
        let key = gateway.client().get(PATH).await;
        assert_eq!(key.status, 401, "it is for web users");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credits_are_bought_once_however_many_requests_on_however_many_nodes_cross_the_bound() {
    let postgres = Postgres::shared().create_database().await;
    for on in [None, Some(postgres)] {
        let processor = Processor::start().await;
        processor.set_methods(CARD, None);
        let configure = |builder: Builder| {
            let builder = builder.tables(&processor.settings());
            match &on {
                Some(url) => builder.postgres(url),
                None => builder,
            }
        };
        let first = configure(Gateway::builder()).start().await;
        let second = match &on {
            Some(_) => Some(
                configure(Gateway::builder())
                    .sharing_secrets_of(&first)
                    .start()
                    .await,
            ),
            None => None,
        };
        customer(&first, "alice").await;
        let nodes: Vec<_> = std::iter::once(&first).chain(&second).collect();
        let clients: Vec<_> = nodes.iter().map(|node| node.web("alice")).collect();
        let set = wish(&clients[0], json!({ "enabled": true, "threshold": 500 })).await;
        assert_eq!(set["last_charge"], Value::Null);
        // Each of them leaves fewer than 500 of 500, if it is the first.
        let mut asked = chat("demo", "hello");
        // The credits are enough for the holds of all requests at once.
        asked["max_tokens"] = json!(100);
        let requests = (0..20).map(|number| {
            let client = &clients[number % clients.len()];
            client.post("/chat", &asked)
        });
        for answer in join_all(requests).await {
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        until_outcome(&clients[0], "succeeded").await;
        look_again(&first, "bob").await;
        assert_eq!(bought(&first, "alice").await, 5_000);
        let intents = processor.intents();
        let of_alice = intents
            .iter()
            .filter(|intent| intent["customer"] == "cus_alice");
        assert_eq!(of_alice.count(), 1);
        let notices = clients[0].get("/billing/notices").await.json();
        let kinds: Vec<_> = notices["notices"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|notice| notice["kind"].as_str().expect("a kind"))
            .collect();
        assert!(kinds.contains(&"auto_top_up_done"), "{notices}");
        assert!(kinds.contains(&"low_balance"), "{notices}");
    }
}

#[tokio::test]
async fn no_more_than_three_are_bought_in_a_day() {
    each(async |processor, gateway, clock| {
        processor.set_methods(CARD, None);
        let alice = customer(&gateway, "alice").await;
        // The threshold exceeds three purchases, so the account stays low.
        wish(&alice, json!({ "enabled": true, "threshold": 900_000 })).await;
        until(&alice, |shown| {
            shown["charges_left_today"] == 0 && shown["last_charge"]["outcome"] == "succeeded"
        })
        .await;
        look_again(&gateway, "bob").await;
        clock.advance(HOUR * 23);
        look_again(&gateway, "carol").await;
        assert_eq!(bought(&gateway, "alice").await, 15_000);
        clock.advance(HOUR + Duration::from_secs(1));
        patiently(async {
            while bought(&gateway, "alice").await < 30_000 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        look_again(&gateway, "dave").await;
        assert_eq!(bought(&gateway, "alice").await, 30_000);
        assert_eq!(processor.intents().len(), 9);
    })
    .await;
}

#[tokio::test]
async fn nothing_is_charged_for_four_hours_after_a_card_that_failed() {
    each(async |processor, gateway, clock| {
        processor.set_methods(CARD, None);
        processor.declines(true);
        let alice = customer(&gateway, "alice").await;
        wish(&alice, json!({ "enabled": true, "threshold": 1_000 })).await;
        let failed = until_outcome(&alice, "failed").await;
        assert_eq!(failed["last_charge"]["error"], "insufficient_funds");
        assert_eq!(failed["cooldown_until"], "2026-01-31T16:00:00Z");
        processor.declines(false);
        clock.advance(HOUR * 4 - Duration::from_secs(1));
        look_again(&gateway, "bob").await;
        assert_eq!(bought(&gateway, "alice").await, 0);
        clock.advance(Duration::from_secs(2));
        // The earlier tokens are valid for an hour.
        let alice = gateway.web("alice");
        until_outcome(&alice, "succeeded").await;
        assert_eq!(bought(&gateway, "alice").await, 5_000);
    })
    .await;
}

#[tokio::test]
async fn a_charge_whose_answers_were_all_lost_is_found_again_and_not_made_twice() {
    each(async |processor, gateway, clock| {
        processor.set_methods(CARD, None);
        // The processor is first asked for the card.
        processor.set_methods(CARD, CARD);
        processor.will_do_but(|answer| answer);
        for _ in 0..MAX_TRIES {
            processor.will_do_but(|_| Reply::hang_up());
        }
        let alice = customer(&gateway, "alice").await;
        wish(&alice, json!({ "enabled": true, "threshold": 1_000 })).await;
        until(&alice, |shown| shown["last_charge"]["error"] != Value::Null).await;
        assert_eq!(bought(&gateway, "alice").await, 0);
        clock.advance(Duration::from_secs(60));
        until_outcome(&alice, "succeeded").await;
        assert_eq!(bought(&gateway, "alice").await, 5_000);
        let intents = processor.intents();
        assert_eq!(intents.len(), 1, "{intents:?}");
    })
    .await;
}

#[tokio::test]
async fn the_default_threshold_is_a_fifth_of_the_plan_and_at_most_five_hundred() {
    each(async |_, gateway, _| {
        let admin = gateway.admin("root").await;
        for (user, plan, threshold) in [
            ("alice", "free", 100),
            ("bob", "guru", 500),
            ("carol", "pro", 500),
        ] {
            let client = customer(&gateway, user).await;
            if plan != "free" {
                let path = format!("/admin/users/{}/plan", gateway.web_user_id(user).await);
                let set = admin.post(&path, &json!({ "plan": plan })).await;
                assert_eq!(set.status, 200, "{}", set.text());
            }
            let shown = client.get(PATH).await.json();
            assert_eq!(
                (&shown["enabled"], &shown["threshold"]),
                (&json!(false), &json!(threshold)),
                "{plan}"
            );
            // A tier alone does not enable it.
            let set = wish(&client, json!({ "tier": "medium" })).await;
            assert_eq!(
                (&set["enabled"], &set["threshold"]),
                (&json!(false), &json!(threshold)),
                "{plan}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn nothing_is_charged_while_an_account_owes_or_its_user_is_disabled() {
    each(async |processor, gateway, _| {
        processor.set_methods(CARD, None);
        let app = gateway.app();
        let charged = |user: &str| {
            let customer = format!("cus_{user}");
            let of_user = |intent: &Value| intent["customer"] == *customer;
            processor.intents().iter().any(of_user)
        };
        let alice = customer(&gateway, "alice").await;
        let alice_id = gateway.web_user_id("alice").await;
        // The plan's 500 credits pay for a part of the refund, and the rest is owed.
        commit(app, &alice_id, Action::ResetPeriod).await;
        let refund = Action::Refund(Refund {
            id: OperationId("refund:1".to_owned()),
            pool: Pool::TopUp,
            credits: Credits::whole(600),
        });
        commit(app, &alice_id, refund).await;
        wish(&alice, json!({ "enabled": true, "threshold": 1_000 })).await;

        let bob = customer(&gateway, "bob").await;
        let bob_id = gateway.web_user_id("bob").await;
        wish(&bob, json!({ "enabled": true })).await;
        let disabled = disable_user(&app.database, &bob_id, app.ledger.now()).await;
        disabled.expect("the database answers");
        let spent = Served {
            user: &bob_id,
            model: "small",
            provider: "p",
            credits: 450_000_000,
            cost: 1,
        };
        serve(app, spent).await;
        look_again(&gateway, "carol").await;
        assert!(!charged("alice") && !charged("bob"));

        let paid = Action::TopUp(TopUp {
            id: OperationId("topup:1".to_owned()),
            credits: Credits::whole(100),
            within: None,
        });
        commit(app, &alice_id, paid).await;
        until_outcome(&alice, "succeeded").await;
        look_again(&gateway, "dave").await;
        assert!(!charged("bob"));
        let enabled = enable_user(&app.database, &bob_id).await;
        assert!(enabled.expect("the database answers"));
        // The earlier tokens may be cached as those of a disabled user.
        patiently(async {
            while !charged("bob") {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn a_charge_that_takes_long_holds_up_no_other() {
    each(async |processor, gateway, _| {
        processor.set_methods(CARD, None);
        let gate = Gate::new();
        let held = gate.clone();
        processor.will_do_but(move |reply| reply.after_gate(&held));
        let alice = customer(&gateway, "alice").await;
        wish(&alice, json!({ "enabled": true, "threshold": 1_000 })).await;
        gate.reached().await;
        // Several others, each once, and in sequence for each.
        let others = ["bob", "carol", "dave", "erin", "frank"];
        join_all(others.map(async |user| {
            let client = customer(&gateway, user).await;
            wish(&client, json!({ "enabled": true, "threshold": 5_000 })).await;
            until_outcome(&client, "succeeded").await;
            assert_eq!(bought(&gateway, user).await, 5_000, "{user}");
        }))
        .await;
        assert_eq!(bought(&gateway, "alice").await, 0);
        gate.open();
        until_outcome(&alice, "succeeded").await;
        assert_eq!(bought(&gateway, "alice").await, 5_000);
        assert_eq!(processor.intents().len(), 1 + others.len());
    })
    .await;
}
