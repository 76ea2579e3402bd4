//! Vouchers: created by operators, redeemed once by each account and at most as often as they permit, on any number
//! of nodes.

use std::time::Duration;

use axum::extract::FromRef as _;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tests::gateway::{USER, on_each_database, top_up};
use tests::ledger::{Served, commit, serve};
use tests::stores::Postgres;
use tests::{Answer, Client, Gateway, patiently};
use weir_accounts::vouchers::store::{self, VoucherClaim};
use weir_accounts::vouchers::{MOST_GUESSES, VoucherParts, sweep};
use weir_ledger::verify::{Extent, verify};
use weir_ledger::{Action, Credits, OperationId, Pool, Refund};
use weir_payments::reconcile;
use weir_storage::clock::ManualClock;

use crate::console::{Browser, page};

const START: &str = "2026-01-30T12:00:00Z";

async fn each(test: impl AsyncFn(Gateway, ManualClock)) {
    on_each_database(START, |builder| builder.credits(0), test).await;
}

/// Creates a voucher. Returns its id and its code.
async fn create(admin: &Client, body: Value) -> (String, String) {
    let answer = admin.post("/admin/vouchers", &body).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let made = answer.json();
    let text = |field: &str| made[field].as_str().expect("a text").to_owned();
    (text("voucher_id"), text("code"))
}

async fn redeem(client: &Client, code: &str) -> Answer {
    client
        .post("/billing/redeem", &json!({ "code": code }))
        .await
}

/// Checks that a response refuses the code.
fn refused(answer: &Answer, status: u16, code: &str) -> Value {
    let error = answer.error(status, code);
    assert_eq!(error["param"], "code", "{error}");
    error
}

async fn bought(client: &Client) -> Value {
    let balances = client.post("/billing/sync-balance", &json!({})).await;
    assert_eq!(balances.status, 200, "{}", balances.text());
    balances.json()["topup_balance"].clone()
}

async fn vouchers(admin: &Client, query: &str) -> Value {
    let list = admin.get(&format!("/admin/vouchers{query}")).await;
    assert_eq!(list.status, 200, "{}", list.text());
    list.json()
}

async fn is_sound(gateway: &Gateway) {
    let app = gateway.app();
    let violations = verify(&app.database, app.clock.now()).await;
    assert_eq!(violations.expect("an answer"), []);
}

/// Returns the audit events of vouchers, the newest first: kinds, and users.
async fn audited(admin: &Client) -> Vec<(String, Option<String>)> {
    patiently(async {
        loop {
            let events = admin.get("/admin/audit").await.json();
            let events: Vec<_> = events["events"]
                .as_array()
                .expect("a list")
                .iter()
                .filter(|event| {
                    event["kind"]
                        .as_str()
                        .is_some_and(|k| k.starts_with("voucher."))
                })
                .map(|event| {
                    let text = |field: &str| event[field].as_str().map(str::to_owned);
                    (text("kind").expect("a kind"), text("user_id"))
                })
                .collect();
            // They are written within a second.
            if events.iter().any(|(kind, _)| kind == "voucher.revoked") {
                return events;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_voucher_gives_each_account_its_credits_once_and_the_statement_names_it() {
    each(async |gateway, _| {
        let admin = gateway.admin("root").await;
        let voucher = json!({ "credits": 250.5, "uses": 2, "name": "Launch" });
        let (id, code) = create(&admin, voucher).await;
        let [bob, carol, dave] = ["bob", "carol", "dave"].map(|name| gateway.web(name));
        assert_eq!(bought(&bob).await, 0);
        bob.get("/usage/me").await;
        // The code as a user may type it.
        let typed = code.to_lowercase().replace('-', " ");
        let answer = redeem(&bob, &typed).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let redeemed = answer.json();
        assert_eq!(redeemed["voucher_id"], *id);
        assert_eq!(redeemed["credits"], 250.5);
        assert_eq!(redeemed["redeemed_at"], START);
        assert_eq!(bob.get("/usage/me").await.json()["topup_balance"], 250.5);
        assert_eq!(bought(&bob).await, 250.5);
        let lines = bob.get("/billing/transactions").await.json();
        let line = &lines["transactions"][0];
        let bob_id = gateway.web_user_id("bob").await;
        assert_eq!(line["kind"], "top_up");
        assert_eq!(line["reference"], format!("voucher:{id}:{bob_id}"));
        assert_eq!(line["topup_credits"], 250.5);

        let again = refused(&redeem(&bob, &code).await, 409, "VOUCHER_ALREADY_REDEEMED");
        assert_eq!(
            (&again["credits"], &again["voucher_id"]),
            (&json!(250.5), &json!(id))
        );
        assert_eq!(again["redeemed_at"], START);
        assert_eq!(redeem(&carol, &code).await.status, 200);
        refused(&redeem(&dave, &code).await, 409, "VOUCHER_USED_UP");
        for (client, credits) in [
            (&bob, json!(250.5)),
            (&carol, json!(250.5)),
            (&dave, json!(0)),
        ] {
            assert_eq!(bought(client).await, credits);
        }
        // No key may redeem.
        redeem(&gateway.client(), &code)
            .await
            .error(401, "UNAUTHENTICATED");
        redeem(&gateway.stranger(), &code)
            .await
            .error(401, "UNAUTHENTICATED");

        let list = vouchers(&admin, "").await;
        assert!(!list.to_string().contains(&code), "{list}");
        let item = &list["vouchers"][0];
        assert_eq!(
            (&item["name"], &item["redeemed"]),
            (&json!("Launch"), &json!(2))
        );
        assert_eq!(
            (&item["state"], &item["uses"]),
            (&json!("used_up"), &json!(2))
        );
        let root = gateway.web_user_id("root").await;
        assert_eq!(item["created_by"], format!("user:{root}"));
        // Neither the displayed code nor its hash without the pepper is stored.
        let stored: Vec<u8> = sqlx::query_scalar("SELECT code_hash FROM vouchers")
            .fetch_one(gateway.app().database.reader())
            .await
            .expect("a voucher");
        assert_eq!(stored.len(), 32);
        assert_eq!(
            admin.delete(&format!("/admin/vouchers/{id}")).await.status,
            204
        );
        let carol_id = gateway.web_user_id("carol").await;
        assert_eq!(
            audited(&admin).await,
            [
                ("voucher.revoked".to_owned(), None),
                ("voucher.redeemed".to_owned(), Some(carol_id)),
                ("voucher.redeemed".to_owned(), Some(bob_id)),
                ("voucher.created".to_owned(), None),
            ]
        );
        is_sound(&gateway).await;
    })
    .await;
}

/// Sends a code until no rate limit and no busy store refuses it.
async fn redeem_patiently(client: &Client, code: &str) -> u16 {
    patiently(async {
        loop {
            let answer = redeem(client, code).await;
            match answer.status.as_u16() {
                503 => tokio::task::yield_now().await,
                status => return status,
            }
        }
    })
    .await
}

/// Fifty accounts redeem a voucher of twenty uses at once, each of them at every node.
async fn at_once(nodes: &[&Gateway]) {
    let [first, ..] = nodes else { return };
    let admin = first.admin("root").await;
    let (_, code) = create(&admin, json!({ "credits": 7, "uses": 20 })).await;
    let names: Vec<_> = (0..50).map(|number| format!("user{number}")).collect();
    for name in &names {
        first.web_user_id(name).await;
    }
    let attempts = names.iter().flat_map(|name| {
        let clients = nodes.iter().map(|node| node.web(name));
        // On one node, two concurrent requests as well.
        let clients: Vec<_> = clients.cycle().take(2).collect();
        clients
            .into_iter()
            .map(|client| async { redeem_patiently(&{ client }, &code).await })
    });
    let statuses = join_all(attempts).await;
    let count = |status| statuses.iter().filter(|&&other| other == status).count();
    assert_eq!((count(200), count(409)), (20, 80), "{statuses:?}");
    let mut have = 0;
    for name in &names {
        let credits = bought(&first.web(name)).await;
        assert!(credits == 0 || credits == 7, "{name}: {credits}");
        have += usize::from(credits == 7);
    }
    assert_eq!(have, 20);
    assert_eq!(vouchers(&admin, "").await["vouchers"][0]["redeemed"], 20);
    is_sound(first).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_accounts_at_once_redeem_no_more_than_a_voucher_has() {
    let node = Gateway::start().await;
    at_once(&[&node]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_accounts_at_once_on_two_nodes_redeem_no_more_than_a_voucher_has() {
    let url = Postgres::shared().create_database().await;
    let first = Gateway::builder().postgres(&url).start().await;
    let second = Gateway::builder().postgres(&url).sharing_secrets_of(&first);
    let second = second.start().await;
    at_once(&[&first, &second]).await;
}

#[tokio::test]
async fn a_redemption_that_a_node_left_behind_is_finished() {
    each(async |gateway, clock| {
        let app = gateway.app();
        let admin = gateway.admin("root").await;
        let (id, code) = create(&admin, json!({ "credits": 30, "uses": 2 })).await;
        let voucher = store::find(&app.database, &id).await.expect("an answer");
        let voucher = voucher.expect("a voucher");
        // As if the node had stopped before the ledger's operation.
        for name in ["bob", "carol"] {
            let user = gateway.web_user_id(name).await;
            let claim =
                store::claim(&app.database, &voucher, (&user, &user), app.ledger.now()).await;
            assert!(matches!(
                claim.expect("an answer"),
                VoucherClaim::Claimed(_)
            ));
        }
        let [bob, carol] = ["bob", "carol"].map(|name| gateway.web(name));
        assert_eq!(
            (bought(&bob).await, bought(&carol).await),
            (json!(0), json!(0))
        );
        // A second request gets the credits at once.
        assert_eq!(redeem(&bob, &code).await.status, 200);
        refused(&redeem(&bob, &code).await, 409, "VOUCHER_ALREADY_REDEEMED");
        // A recent claim may be under way.
        sweep(&VoucherParts::from_ref(app))
            .await
            .expect("an answer");
        assert_eq!(bought(&carol).await, 0);
        clock.advance(Duration::from_secs(16));
        for _ in 0..2 {
            sweep(&VoucherParts::from_ref(app))
                .await
                .expect("an answer");
            assert_eq!(
                (bought(&bob).await, bought(&carol).await),
                (json!(30), json!(30))
            );
        }
        refused(
            &redeem(&carol, &code).await,
            409,
            "VOUCHER_ALREADY_REDEEMED",
        );
        is_sound(&gateway).await;
    })
    .await;
}

#[tokio::test]
async fn verification_compares_vouchers_with_the_ledger() {
    each(async |gateway, clock| {
        let app = gateway.app();
        let admin = gateway.admin("root").await;
        let (id, code) = create(&admin, json!({ "credits": 30, "uses": 3 })).await;
        let bob_id = gateway.web_user_id("bob").await;
        let carol_id = gateway.web_user_id("carol").await;
        assert_eq!(redeem(&gateway.web("bob"), &code).await.status, 200);
        let look = async || {
            let found = reconcile::look(&app.database, app.clock.now(), Extent::All).await;
            let found = found.expect("an answer").into_iter();
            found
                .map(|found| (found.what, found.subject))
                .collect::<Vec<_>>()
        };
        clock.advance(Duration::from_secs(600));
        assert_eq!(look().await, []);
        // A claim of ten minutes ago that was never applied.
        let voucher = store::find(&app.database, &id).await.expect("an answer");
        let voucher = voucher.expect("a voucher");
        let of_carol = (&*carol_id, &*carol_id);
        let claim = store::claim(&app.database, &voucher, of_carol, app.ledger.now()).await;
        claim.expect("an answer");
        clock.advance(Duration::from_secs(600));
        let lost = "a redeemed voucher gave other credits, or none";
        let found = [(lost, format!("voucher:{id}:{carol_id}"))];
        assert_eq!(look().await, found);
        sweep(&VoucherParts::from_ref(app))
            .await
            .expect("an answer");
        assert_eq!(look().await, []);
        let forget = "DELETE FROM voucher_redemptions WHERE user_id = $1";
        sqlx::query(forget)
            .bind(&*bob_id)
            .execute(app.database.writer())
            .await
            .expect("it can be forgotten");
        let given = "credits were given for a voucher that was not redeemed";
        let counted = "a voucher counts other uses than its redemptions";
        let found = [
            (given, format!("voucher:{id}:{bob_id}")),
            (counted, id.clone()),
        ];
        assert_eq!(look().await, found);
    })
    .await;
}

#[tokio::test]
async fn unknown_codes_are_counted_and_then_no_more_are_looked_up() {
    each(async |gateway, clock| {
        let admin = gateway.admin("root").await;
        let (_, code) = create(&admin, json!({ "credits": 5, "uses": 9 })).await;
        let [bob, carol] = ["bob", "carol"].map(|name| gateway.web(name));
        // A malformed code reveals nothing, and does not count.
        for wrong in [
            json!(""),
            json!("abc"),
            json!(7),
            Value::Null,
            json!([code]),
        ] {
            let answer = bob.post("/billing/redeem", &json!({ "code": wrong })).await;
            refused(&answer, 400, "INVALID_REQUEST");
        }
        refused(
            &bob.post("/billing/redeem", &json!({})).await,
            400,
            "INVALID_REQUEST",
        );
        let more = json!({ "code": code, "user_id": "x" });
        bob.post("/billing/redeem", &more)
            .await
            .error(400, "INVALID_REQUEST");
        // An existing code is no guess, however often it is sent.
        assert_eq!(redeem(&bob, &code).await.status, 200);
        for _ in 0..MOST_GUESSES {
            refused(&redeem(&bob, &code).await, 409, "VOUCHER_ALREADY_REDEEMED");
        }
        let other = |last: char| format!("{}{last}", &code[..code.len() - 1]);
        let last = code.chars().last().expect("a character");
        let wrong = other(if last == '7' { '8' } else { '7' });
        // Ten of thirty concurrent requests are looked up.
        let answers = join_all((0..30).map(|_| redeem(&bob, &wrong))).await;
        let count = |status| {
            answers
                .iter()
                .filter(|answer| answer.status == status)
                .count()
        };
        assert_eq!((count(404), count(429)), (10, 20));
        for answer in &answers {
            match answer.status.as_u16() {
                404 => refused(answer, 404, "UNKNOWN_VOUCHER"),
                _ => {
                    assert_eq!(answer.headers["retry-after"], "3600");
                    refused(answer, 429, "TOO_MANY_GUESSES")
                }
            };
        }
        // A right code is refused, too, until the hour is over; other users are not affected.
        refused(&redeem(&bob, &code).await, 429, "TOO_MANY_GUESSES");
        assert_eq!(redeem(&carol, &code).await.status, 200);
        clock.advance(Duration::from_secs(3_599));
        refused(&redeem(&bob, &code).await, 429, "TOO_MANY_GUESSES");
        clock.advance(Duration::from_secs(1));
        // Tokens are valid for an hour.
        let bob = gateway.web("bob");
        refused(&redeem(&bob, &wrong).await, 404, "UNKNOWN_VOUCHER");
        refused(&redeem(&bob, &code).await, 409, "VOUCHER_ALREADY_REDEEMED");
    })
    .await;
}

#[tokio::test]
async fn an_operator_makes_lists_and_revokes_vouchers() {
    each(async |gateway, clock| {
        let admin = gateway.admin("root").await;
        let bob = gateway.web("bob");
        let (revoked, its_code) = create(&admin, json!({ "credits": 5 })).await;
        clock.advance(Duration::from_millis(5));
        let short = json!({ "credits": 0.000001, "expires_in_days": 1 });
        let (_, expiring) = create(&admin, short).await;
        clock.advance(Duration::from_millis(5));
        let (third, good) = create(&admin, json!({ "credits": 1, "uses": 2 })).await;
        let path = format!("/admin/vouchers/{revoked}");
        assert_eq!(admin.delete(&path).await.status, 204);
        assert_eq!(admin.delete(&path).await.status, 204);
        for nobody in ["vou_00", "%00", "x"] {
            let answer = admin.delete(&format!("/admin/vouchers/{nobody}")).await;
            assert_eq!(answer.error(404, "NOT_FOUND")["param"], "voucher_id");
        }
        refused(&redeem(&bob, &its_code).await, 409, "VOUCHER_REVOKED");
        clock.advance(Duration::from_secs(86_400));
        let (admin, bob) = (gateway.admin("root").await, gateway.web("bob"));
        refused(&redeem(&bob, &expiring).await, 409, "VOUCHER_EXPIRED");
        assert_eq!(bought(&bob).await, 0);
        assert_eq!(redeem(&bob, &good).await.status, 200);

        let all = vouchers(&admin, "").await;
        let states: Vec<_> = all["vouchers"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|voucher| voucher["state"].as_str().expect("a state"))
            .collect();
        assert_eq!(states, ["active", "expired", "revoked"]);
        let first = vouchers(&admin, "?limit=1").await;
        assert_eq!(
            (&first["vouchers"][0]["voucher_id"], &first["next"]),
            (&json!(third), &json!(third))
        );
        let rest = vouchers(&admin, &format!("?before={third}")).await;
        assert_eq!(rest["vouchers"].as_array().map(Vec::len), Some(2));
        assert_eq!(rest["next"], Value::Null);

        for (body, field) in [
            (json!({ "credits": 0 }), "credits"),
            (json!({ "credits": -1 }), "credits"),
            (json!({ "credits": 1_000_000.000_001 }), "credits"),
            (json!({ "credits": 0.000_000_1 }), "credits"),
            (json!({ "credits": 1, "uses": 0 }), "uses"),
            (json!({ "credits": 1, "uses": 1_000_001 }), "uses"),
            (
                json!({ "credits": 1, "expires_in_days": 0 }),
                "expires_in_days",
            ),
            (
                json!({ "credits": 1, "expires_in_days": 367 }),
                "expires_in_days",
            ),
            (json!({ "credits": 1, "name": "a\nb" }), "name"),
            (json!({ "credits": 1, "name": "a".repeat(201) }), "name"),
            (json!({ "credits": 1, "code": "MINE" }), "code"),
        ] {
            let answer = admin.post("/admin/vouchers", &body).await;
            assert_eq!(
                answer.error(400, "INVALID_REQUEST")["param"],
                field,
                "{body}"
            );
        }
        for query in ["?before=x", "?limit=0", "?state=active"] {
            let answer = admin.get(&format!("/admin/vouchers{query}")).await;
            answer.error(400, "INVALID_REQUEST");
        }
        bob.get("/admin/vouchers").await.error(403, "FORBIDDEN");
        let body = json!({ "credits": 1 });
        bob.post("/admin/vouchers", &body)
            .await
            .error(403, "FORBIDDEN");
        assert_eq!(vouchers(&admin, "").await, {
            let mut all = all;
            all["vouchers"][0]["redeemed"] = json!(1);
            all
        });
    })
    .await;
}

#[tokio::test]
async fn what_is_owed_is_paid_first_and_who_is_disabled_redeems_nothing() {
    each(async |gateway, _| {
        let app = gateway.app();
        let admin = gateway.admin("root").await;
        let (_, code) = create(&admin, json!({ "credits": 250, "uses": 9 })).await;
        let bob_id = gateway.web_user_id("bob").await;
        // Bought, spent with the plan's credits, and then taken back.
        top_up(app, &bob_id, Credits::whole(100)).await;
        let spent = Served {
            user: &bob_id,
            model: "small",
            provider: "p",
            credits: 600_000_000,
            cost: 1,
        };
        serve(app, spent).await;
        let refund = Refund {
            id: OperationId("refund-1".to_owned()),
            pool: Pool::TopUp,
            credits: Credits::whole(100),
        };
        commit(app, &bob_id, Action::Refund(refund)).await;
        let bob = gateway.web("bob");
        assert_eq!(bought(&bob).await, 0);
        let answer = redeem(&bob, &code).await;
        assert_eq!(answer.json()["credits"], 250, "{}", answer.text());
        assert_eq!(bought(&bob).await, 150);
        let lines = bob.get("/billing/transactions").await.json();
        let kinds = [0, 1].map(|line| lines["transactions"][line]["kind"].clone());
        assert_eq!(kinds, ["owed_collected", "top_up"]);

        let carol_id = gateway.web_user_id("carol").await;
        let disable = format!("/admin/users/{carol_id}/disable");
        assert_eq!(admin.post(&disable, &json!({})).await.status, 200);
        redeem(&gateway.web("carol"), &code)
            .await
            .error(403, "USER_DISABLED");
        assert_eq!(vouchers(&admin, "").await["vouchers"][0]["redeemed"], 1);
        is_sound(&gateway).await;
    })
    .await;
}

#[tokio::test]
async fn a_voucher_is_redeemed_on_the_consoles_page() {
    let gateway = Gateway::builder().credits(0).start().await;
    let admin = gateway.admin("root").await;
    let (id, code) = create(&admin, json!({ "credits": 1_234 })).await;
    let mut alice = Browser::of(&gateway, "alice").await;
    let path = "/console/money/voucher";
    for (wrong, status, message) in [
        ("abc", 400, "A voucher code has 25 letters"),
        (
            "00000-00000-00000-00000-00000",
            404,
            "No voucher has this code",
        ),
    ] {
        let answer = alice.post(path, &[("code", wrong)]).await;
        assert_eq!(answer.status, status);
        let html = page(&answer);
        assert!(
            html.contains("id=\"code-error\"") && html.contains(message),
            "{html}"
        );
    }
    let answer = alice.post(path, &[("code", &code)]).await;
    assert_eq!(answer.status, 303, "{}", answer.text());
    assert_eq!(answer.headers["location"], "/console/money");
    let html = alice.page("/console/money").await;
    for text in ["The voucher gave you 1,234 credits", &id] {
        assert!(html.contains(text), "{text} in {html}");
    }
    assert_eq!(bought(&gateway.web("alice")).await, 1_234);
    // Another site's page cannot redeem.
    let mut mallory = Browser::of(&gateway, "mallory").await;
    let answer = mallory.post_bare(path, &[("code", &code)]).await;
    assert_eq!(answer.status, 403);
    // No other account is changed either.
    assert_eq!(bought(&gateway.client()).await, 0, "{USER}");
}
