//! The payment processor of development: its pages, by plain forms, and the effect of its events.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tests::gateway::on_each_database;
use tests::{Answer, Client, Gateway};
use weir_payments::offers::TopUpTier;
use weir_payments::terms::{CardCharge, PaymentStatus, ProcessorError};
use weir_storage::clock::ManualClock;

const START: &str = "2026-01-31T12:00:00Z";

async fn each(test: impl AsyncFn(Gateway, ManualClock)) {
    on_each_database(START, |builder| builder, test).await;
}

/// Returns the path of a redirect, which must be a page of weir.
fn path(gateway: &Gateway, url: &str) -> String {
    let origin = format!("http://{}", gateway.address());
    let path = url.strip_prefix(&origin);
    path.unwrap_or_else(|| panic!("{url}")).to_owned()
}

async fn ask(gateway: &Gateway, client: &Client, what: &str, body: Value) -> String {
    let answer = client.post(&format!("/billing/{what}"), &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = answer.json();
    let url = answer["checkout_url"]
        .as_str()
        .or(answer["portal_url"].as_str());
    path(gateway, url.expect("a URL"))
}

async fn show(gateway: &Gateway, path: &str) -> String {
    let answer = gateway.stranger().get(path).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.headers["content-type"], "text/html; charset=utf-8");
    assert_eq!(answer.headers["referrer-policy"], "no-referrer");
    assert_eq!(answer.headers["cache-control"], "no-store");
    let policy = answer.headers["content-security-policy"]
        .to_str()
        .expect("text");
    for part in [
        "default-src 'none'",
        "style-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(
        !policy.contains("script") && !policy.contains("unsafe"),
        "{policy}"
    );
    let html = answer.text();
    assert!(
        !html.contains("<script") && !html.contains("style=\""),
        "{html}"
    );
    html
}

/// Presses the button of a form, which must be on the page.
async fn press(gateway: &Gateway, page: &str, act: &str) -> String {
    let action = format!("{page}/{act}");
    let html = show(gateway, page).await;
    assert!(
        html.contains(&format!("action=\"{action}\"")),
        "{act} in {html}"
    );
    path_of(gateway, &post(gateway, &action).await)
}

async fn post(gateway: &Gateway, action: &str) -> Answer {
    let form = Some("application/x-www-form-urlencoded");
    let stranger = gateway.stranger();
    stranger
        .send(Method::POST, action, form, Bytes::new())
        .await
}

fn path_of(gateway: &Gateway, answer: &Answer) -> String {
    assert_eq!(answer.status, 303, "{}", answer.text());
    let url = answer.headers["location"].to_str().expect("text");
    match url.starts_with('/') {
        true => url.to_owned(),
        false => path(gateway, url),
    }
}

async fn balances(client: &Client) -> (Value, Value, Value) {
    client.post("/billing/sync-balance", &json!({})).await;
    let summary = client.get("/usage/me").await.json();
    let of = |name: &str| summary[name].clone();
    (
        of("plan"),
        of("plan_credits_remaining"),
        of("topup_balance"),
    )
}

/// Returns the types of a user's events, in the order of their arrival.
async fn told(gateway: &Gateway) -> Vec<String> {
    sqlx::query_scalar("SELECT type FROM payment_events ORDER BY received_at, id")
        .fetch_all(gateway.app().database.reader())
        .await
        .expect("the database answers")
}

#[tokio::test]
async fn a_plan_is_bought_from_its_checkout_url_and_managed_in_the_portal() {
    each(async |gateway, _| {
        let alice = gateway.web("alice");
        let page = ask(&gateway, &alice, "checkout", json!({ "plan": "guru" })).await;
        let html = show(&gateway, &page).await;
        for text in [
            "Guru plan",
            "$10.00",
            "10,000 credits",
            "viewport",
            "Development",
        ] {
            assert!(html.contains(text), "{text} in {html}");
        }
        assert_eq!(press(&gateway, &page, "pay").await, "/dev/payments/paid");
        let guru = (json!("guru"), json!(10_000), json!(0));
        assert_eq!(balances(&alice).await, guru);
        let first = [
            "customer.created",
            "checkout.session.completed",
            "customer.subscription.created",
            "invoice.paid",
        ];
        assert_eq!(told(&gateway).await, first);
        let open = "SELECT CAST(COUNT(*) AS BIGINT) FROM payment_checkouts WHERE closed_at IS NULL";
        let open: i64 = sqlx::query_scalar(open)
            .fetch_one(gateway.app().database.reader())
            .await
            .expect("the database answers");
        assert_eq!(open, 0);
        // A second press finds the payment done.
        let again = post(&gateway, &format!("{page}/pay")).await;
        assert_eq!(path_of(&gateway, &again), "/dev/payments/paid");
        assert_eq!(told(&gateway).await, first);
        assert!(show(&gateway, &page).await.contains("This is paid"));
        let answer = alice
            .post("/billing/checkout", &json!({ "plan": "pro" }))
            .await;
        answer.error(409, "ALREADY_SUBSCRIBED");

        let portal = ask(&gateway, &alice, "portal", json!({})).await;
        let html = show(&gateway, &portal).await;
        assert!(
            html.contains("Guru plan") && html.contains("Renews on 2026-02-28"),
            "{html}"
        );
        assert_eq!(press(&gateway, &portal, "pro").await, portal);
        // At the period's first moment, the complete difference is charged. The way back refunds it.
        for (plan, credits) in [("", 55_000), ("guru", 10_000), ("pro", 55_000)] {
            if !plan.is_empty() {
                press(&gateway, &portal, plan).await;
            }
            let expected = (json!("pro"), json!(credits), json!(0));
            assert_eq!(balances(&alice).await, expected, "{plan}");
        }
        press(&gateway, &portal, "cancel").await;
        let html = show(&gateway, &portal).await;
        assert!(html.contains("it ends on 2026-02-28"), "{html}");
        press(&gateway, &portal, "resume").await;
        assert!(show(&gateway, &portal).await.contains("Renews on"));
        press(&gateway, &portal, "end").await;
        assert!(show(&gateway, &portal).await.contains("No plan"));
        // No button remains, and a press changes nothing.
        let events = told(&gateway).await;
        assert_eq!(events.len(), first.len() + 2 * 3 + 3);
        post(&gateway, &format!("{portal}/guru")).await;
        assert_eq!(told(&gateway).await, events);
        // It was paid for until its end.
        assert_eq!(balances(&alice).await.0, json!("pro"));
    })
    .await;
}

#[tokio::test]
async fn credits_are_bought_and_a_card_that_fails_buys_nothing() {
    each(async |gateway, clock| {
        let alice = gateway.web("alice");
        let before = (json!("free"), json!(500), json!(0));
        let page = ask(&gateway, &alice, "topup", json!({ "tier": "medium" })).await;
        assert!(show(&gateway, &page).await.contains("27,500 credits"));
        assert_eq!(
            press(&gateway, &page, "cancel").await,
            "/dev/payments/cancelled"
        );
        assert_eq!(balances(&alice).await, before);
        assert_eq!(press(&gateway, &page, "decline").await, page);
        assert!(
            show(&gateway, &page)
                .await
                .contains("Your card was declined")
        );
        assert_eq!(balances(&alice).await, before);
        assert_eq!(press(&gateway, &page, "pay").await, "/dev/payments/paid");
        let after = (json!("free"), json!(500), json!(27_500));
        assert_eq!(balances(&alice).await, after);
        let events = [
            "customer.created",
            "payment_intent.payment_failed",
            "checkout.session.completed",
            "payment_intent.succeeded",
        ];
        assert_eq!(told(&gateway).await, events);

        // Another tier has another page; an unpaid page expires.
        let next = ask(&gateway, &alice, "topup", json!({ "tier": "medium" })).await;
        assert_ne!(next, page);
        clock.advance(std::time::Duration::from_secs(24 * 3_600));
        assert!(show(&gateway, &next).await.contains("has lapsed"));
        assert_eq!(
            path_of(&gateway, &post(&gateway, &format!("{next}/pay")).await),
            next
        );
        // Her tokens have expired by then, too.
        assert_eq!(balances(&gateway.web("alice")).await, after);
    })
    .await;
}

#[tokio::test]
async fn users_are_sent_to_the_apps_own_pages() {
    let pages = "[payments]\nsuccess_url = \"http://localhost:3000/ok?session={CHECKOUT_SESSION_ID}&\\\"><b>\"\n\
                 cancel_url = \"http://localhost:3000/left\"\nreturn_url = \"http://localhost:3000/account\"\n";
    let gateway = Gateway::builder().tables(pages).start().await;
    let alice = gateway.web("alice");
    let page = ask(&gateway, &alice, "topup", json!({ "tier": "small" })).await;
    let answer = gateway.stranger().get(&page).await;
    let policy = answer.headers["content-security-policy"]
        .to_str()
        .expect("text");
    // Otherwise browsers would not follow the redirect.
    assert!(
        policy.contains("form-action 'self' http://localhost:3000"),
        "{policy}"
    );
    let left = post(&gateway, &format!("{page}/cancel")).await;
    assert_eq!(left.headers["location"], "http://localhost:3000/left");
    let paid = post(&gateway, &format!("{page}/pay")).await;
    let session = page.rsplit('/').next().expect("an id");
    let to = paid.headers["location"].to_str().expect("text");
    assert!(
        to.starts_with(&format!("http://localhost:3000/ok?session={session}&")),
        "{to}"
    );
    let html = show(&gateway, &page).await;
    assert!(
        html.contains("&amp;&quot;&gt;&lt;b&gt;") && !html.contains("<b>"),
        "{html}"
    );
    let portal = ask(&gateway, &alice, "portal", json!({})).await;
    assert!(
        show(&gateway, &portal)
            .await
            .contains("href=\"http://localhost:3000/account\"")
    );
}

#[tokio::test]
async fn a_page_is_there_for_who_has_its_address_and_for_nobody_outside_development() {
    let gateway = Gateway::start().await;
    let alice = gateway.web("alice");
    let page = ask(&gateway, &alice, "topup", json!({ "tier": "small" })).await;
    let mut other = page.clone();
    let last = other.pop().expect("a digit");
    other.push(if last == '0' { '1' } else { '0' });
    for path in [
        &*other,
        "/dev/payments/checkout/cs_local_x",
        "/dev/payments/checkout/cs_local_x_y",
        "/dev/payments/portal/bps_local_x_y",
        "/dev/payments/other",
    ] {
        gateway.stranger().get(path).await.error(404, "NOT_FOUND");
    }
    for act in [&format!("{other}/pay"), &format!("{page}/free")] {
        post(&gateway, act).await.error(404, "NOT_FOUND");
    }
    let style = gateway.stranger().get("/dev/payments/style.css").await;
    assert_eq!(style.headers["content-type"], "text/css; charset=utf-8");
    for name in ["paid", "cancelled", "done"] {
        show(&gateway, &format!("/dev/payments/{name}")).await;
    }
    let outside = "dev = false\ntrusted_proxies = []\n";
    let gateway = Gateway::builder().settings(outside).start().await;
    for path in [&*page, "/dev/payments/paid", "/dev/payments/style.css"] {
        gateway.stranger().get(path).await.error(404, "NOT_FOUND");
    }
}

#[tokio::test]
async fn a_charge_without_its_user_goes_by_the_card_that_they_showed_last() {
    each(async |gateway, _| {
        let alice = gateway.web("alice");
        let user_id = gateway.web_user_id("alice").await;
        let page = ask(&gateway, &alice, "topup", json!({ "tier": "small" })).await;
        let payments = &gateway.app().payments;
        let customer = payments.store.customer_of(&user_id).await;
        let customer = customer.expect("the database answers").expect("a customer");
        let charge = |id| CardCharge {
            id,
            user_id: &user_id,
            customer_id: &customer,
            tier: TopUpTier::Large,
            price_cents: 10_000,
        };
        let refused = payments.processor.charge(&charge("first")).await;
        let none = ProcessorError::Refused {
            code: "no_payment_method".to_owned(),
            payment_id: None,
        };
        assert_eq!(refused, Err(none));
        press(&gateway, &page, "decline").await;
        let refused = payments.processor.charge(&charge("second")).await;
        assert!(
            matches!(refused, Err(ProcessorError::Refused { .. })),
            "{refused:?}"
        );
        press(&gateway, &page, "pay").await;
        let paid = payments
            .processor
            .charge(&charge("third"))
            .await
            .expect("paid");
        assert_eq!(paid.status, PaymentStatus::Succeeded);
        // The same id returns the same object.
        assert_eq!(
            payments.processor.charge(&charge("third")).await,
            Ok(paid.clone())
        );
        let now = gateway.app().ledger.now();
        let found = payments
            .processor
            .find_payment(&customer, "third", now)
            .await;
        assert_eq!(found, Ok(Some(paid)));
        let found = payments
            .processor
            .find_payment(&customer, "fourth", now)
            .await;
        assert_eq!(found, Ok(None));
    })
    .await;
}
