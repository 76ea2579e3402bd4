//! What users are shown of their accounts: exact, their own, and a minute late at most.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::Value;
use tests::gateway::{USER, at, on_each_database};
use tests::ledger::{Served, commit, hold, serve, settle};
use tests::stores::{Postgres, Redis};
use tests::{Answer, Client, Gateway};
use weir::billing::usage::{self, SUMMARY_TTL};
use weir_ledger::{AccountId, Action, Credits, Grant, OperationId, Period, Plan, TopUp};
use weir_storage::clock::ManualClock;

const START: &str = "2026-01-31T12:00:00Z";

/// The summary of someone new at [`START`].
const NEW: &str = r#"{"plan":"free","plan_allocation":500,"plan_credits_remaining":500,"topup_balance":0,"cycle_start":"2026-01-31T12:00:00Z","cycle_end":"2026-02-28T12:00:00Z","this_month":{"total_credits_used":0,"total_requests":0},"by_model":[]}"#;

const SMALL: Served<'static> = Served {
    user: USER,
    model: "small",
    provider: "p",
    credits: 1_500_000,
    cost: 1,
};

/// A gateway on each database, by a clock that shows [`START`].
async fn each(test: impl AsyncFn(Gateway, ManualClock)) {
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
    usage::forget(&gateway.app().cache, &AccountId(user.to_owned())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_summary_is_exact() {
    each(async |gateway, _| {
        let (app, alice) = (gateway.app(), gateway.client());
        assert_eq!(summary(&alice).await, NEW);
        let top_up = TopUp {
            id: OperationId("payment".to_owned()),
            credits: Credits::whole(100),
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
        // All that is left of the plan, and the rest from what was bought.
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
                r#""by_model":[{"model":"large","credits_used":510,"requests":1},"#,
                r#"{"model":"small","credits_used":3.5,"requests":2},"#,
                r#"{"model":"tiny","credits_used":0.000001,"requests":1}]}"#
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

        // The same once it is begun, with the open request of the one before.
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
            r#""by_model":[{"model":"small","credits_used":1.5,"requests":1}]}"#
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
            let mut answer = alice.get("/usage/me").await;
            // With so many readers, a busy machine may not have a connection within a request's patience.
            for _ in 0..10 {
                if answer.status == 200 {
                    break;
                }
                answer.error(503, "STORE_UNAVAILABLE");
                answer = alice.get("/usage/me").await;
            }
            let summary = shown(&answer);
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
