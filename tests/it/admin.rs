//! What administrators are shown: the platform by calendar months, and what models cost and earn.

use tests::gateway::{USER, at, on_each_database};
use tests::ledger::{Served, hold, serve, settle};
use tests::{Client, Gateway};
use weir::identity::store;
use weir_storage::clock::ManualClock;

const REPORTS: [&str; 2] = ["/admin/usage", "/admin/model-economics"];

const LARGE: Served<'static> = Served {
    user: USER,
    model: "large",
    provider: "p",
    credits: 4_000_000,
    cost: 1_000_000,
};

/// A gateway on each database, by a clock that shows the last moment of January.
async fn each(test: impl AsyncFn(Gateway, ManualClock)) {
    on_each_database("2026-01-31T23:59:59.999Z", |builder| builder, test).await;
}

async fn report(admin: &Client, path: &str) -> String {
    let answer = admin.get(path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.text()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_month_is_reported_exactly() {
    each(async |gateway, clock| {
        let (app, bob) = (gateway.app(), gateway.web_user_id("bob").await);
        let bob = bob.as_str();
        let small = Served {
            user: bob,
            model: "small",
            credits: 1_500_000,
            cost: 3_000_000,
            ..LARGE
        };
        // January: one request, and one that ends in February.
        serve(app, LARGE).await;
        let open = hold(app, small).await;
        clock.set(at("2026-02-01T00:00:00Z"));
        settle(app, open, small).await;
        serve(app, small).await;
        clock.set(at("2026-02-28T23:59:59.999Z"));
        serve(app, LARGE).await;
        let gift = Served {
            user: bob,
            provider: "q",
            credits: 0,
            cost: 5,
            ..LARGE
        };
        serve(app, gift).await;
        serve(app, small).await;
        clock.set(at("2026-03-01T00:00:00Z"));
        serve(app, Served { credits: 499_999, ..LARGE }).await;
        let idle = hold(app, small).await;

        let admin = gateway.admin("root").await;
        for (month, expected) in [
            (
                "2026-01",
                concat!(
                    r#"{"period":"2026-01","total_requests":1,"total_credits_consumed":4,"active_users":1,"#,
                    r#""requests_by_day":[{"date":"2026-01-31","requests":1,"credits":4}],"#,
                    r#""top_models":[{"model":"large","requests":1,"credits":4}]}"#
                ),
            ),
            // 3 + 5.5 credits are 8.5, and 3 × 1.5 are 4.5: each sum is rounded half up, once.
            (
                "2026-02",
                concat!(
                    r#"{"period":"2026-02","total_requests":5,"total_credits_consumed":9,"active_users":2,"#,
                    r#""requests_by_day":[{"date":"2026-02-01","requests":2,"credits":3},"#,
                    r#"{"date":"2026-02-28","requests":3,"credits":6}],"#,
                    r#""top_models":[{"model":"small","requests":3,"credits":5},"#,
                    r#"{"model":"large","requests":2,"credits":4}]}"#
                ),
            ),
            (
                "2026-03",
                concat!(
                    r#"{"period":"2026-03","total_requests":1,"total_credits_consumed":0,"active_users":1,"#,
                    r#""requests_by_day":[{"date":"2026-03-01","requests":1,"credits":0}],"#,
                    r#""top_models":[{"model":"large","requests":1,"credits":0}]}"#
                ),
            ),
            (
                "2025-12",
                concat!(
                    r#"{"period":"2025-12","total_requests":0,"total_credits_consumed":0,"active_users":0,"#,
                    r#""requests_by_day":[],"top_models":[]}"#
                ),
            ),
        ] {
            let path = format!("/admin/usage?period={month}");
            assert_eq!(report(&admin, &path).await, expected);
        }
        let economics = "/admin/model-economics?period=2026-02";
        assert_eq!(
            report(&admin, economics).await,
            concat!(
                r#"[{"model":"large","provider":"p","total_requests":1,"total_input_tokens":10,"#,
                r#""total_output_tokens":20,"provider_cost_usd":0.001,"revenue_credits":4,"#,
                r#""revenue_usd":0.004,"margin_pct":75.0},"#,
                r#"{"model":"large","provider":"q","total_requests":1,"total_input_tokens":10,"#,
                r#""total_output_tokens":20,"provider_cost_usd":5e-9,"revenue_credits":0,"#,
                r#""revenue_usd":0.0,"margin_pct":null},"#,
                r#"{"model":"small","provider":"p","total_requests":3,"total_input_tokens":30,"#,
                r#""total_output_tokens":60,"provider_cost_usd":0.009,"revenue_credits":5,"#,
                r#""revenue_usd":0.0045,"margin_pct":-100.0}]"#
            )
        );
        let empty = "/admin/model-economics?period=2025-12";
        assert_eq!(report(&admin, empty).await, "[]");

        // By default the month that it is, and as of now.
        settle(app, idle, small).await;
        let march = report(&admin, "/admin/usage").await;
        assert!(
            march.starts_with(r#"{"period":"2026-03","total_requests":2,"total_credits_consumed":2,"active_users":2,"#),
            "{march}"
        );
        let march = report(&admin, "/admin/model-economics").await;
        assert_eq!(march.matches(r#"{"model":"#).count(), 2, "{march}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_administrators_who_are_signed_in_are_let_in() {
    each(async |gateway, clock| {
        let admin = gateway.admin("root").await;
        let database = &gateway.app().database;
        // The same role does not make an administrator of a key.
        let now = weir_storage::clock::Clock::Manual(clock.clone()).now();
        let granted = store::grant_admin(database, USER, now).await;
        assert!(granted.expect("the database answers"));
        for path in REPORTS {
            report(&admin, path).await;
            let key = gateway.client().get(path).await;
            key.error(401, "UNAUTHENTICATED");
            let stranger = gateway.stranger().get(path).await;
            stranger.error(401, "UNAUTHENTICATED");
            let user = gateway.web("bob").get(path).await;
            user.error(403, "FORBIDDEN");
            let malformed = gateway.web("bob").get(&format!("{path}?period=x")).await;
            malformed.error(403, "FORBIDDEN");
        }
        let root = gateway.web_user_id("root").await;
        let revoked = store::revoke_admin(database, &root).await;
        assert!(revoked.expect("the database answers"));
        for path in REPORTS {
            admin.get(path).await.error(403, "FORBIDDEN");
        }
    })
    .await;
}

#[tokio::test]
async fn a_malformed_period_is_refused_by_name() {
    let gateway = Gateway::start().await;
    let admin = gateway.admin("root").await;
    for path in REPORTS {
        for query in [
            "period=",
            "period=2026",
            "period=2026-13",
            "period=2026-00",
            "period=2026-1",
            "period=2026-01-01",
            "period=2026-01%00",
            "period=%ff",
            "period='%20OR%201=1",
            "period=2026-01&period=2026-02",
        ] {
            let error = admin.get(&format!("{path}?{query}")).await;
            let error = error.error(400, "INVALID_REQUEST");
            assert_eq!(error["param"], "period", "{query}");
        }
        report(&admin, &format!("{path}?other=1")).await;
    }
}
