//! Payment pages: the calls to the processor, each once, and the users' view.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::json;
use sqlx::AssertSqlSafe;
use tests::gateway::on_each_database;
use tests::processor::{Call, Processor, SECRET_KEY};
use tests::upstream::{Gate, Reply};
use tests::{Answer, Client, Gateway};
use weir_ledger::Plan;
use weir_payments::events::EventType;
use weir_payments::offers::{ItemPrice, PurchaseItem, TopUpTier};
use weir_payments::settings::{PaymentSettings, PlanPrices, PriceSettings};
use weir_payments::stripe::{API_VERSION, MAX_TRIES, Stripe, StripeTimeouts};
use weir_payments::terms::{
    CardCharge, CheckoutOrder, CheckoutSession, PaymentIntent, PaymentStatus, ProcessorError,
    SessionState,
};
use weir_storage::clock::{ManualClock, Millis};
use weir_storage::secrets::Secret;

const START: &str = "2026-01-31T12:00:00Z";

/// The expiry of a page that is requested at [`START`], in seconds.
const LAPSES: i64 = 1_769_860_800 + (24 * 60 - 10) * 60;

/// A gateway on each database with a payment processor.
pub(crate) async fn each(test: impl AsyncFn(&Processor, Gateway, ManualClock)) {
    each_with("", test).await;
}

async fn each_with(settings: &str, test: impl AsyncFn(&Processor, Gateway, ManualClock)) {
    // One for each: their users differ.
    let processors = [Processor::start().await, Processor::start().await];
    let next = std::cell::Cell::new(0);
    let configure = |builder: tests::gateway::Builder| {
        let index = next.replace(next.get() + 1);
        builder.tables(&format!("{}{settings}", processors[index].settings()))
    };
    // The first gateway runs before the second is configured.
    on_each_database(START, configure, async |gateway, clock| {
        test(&processors[next.get() - 1], gateway, clock).await;
    })
    .await;
}

async fn checkout(client: &Client, plan: &str) -> Answer {
    client
        .post("/billing/checkout", &json!({ "plan": plan }))
        .await
}

async fn top_up(client: &Client, tier: &str) -> Answer {
    client
        .post("/billing/topup", &json!({ "tier": tier }))
        .await
}

async fn portal(client: &Client) -> Answer {
    let none = Bytes::new();
    client
        .send(Method::POST, "/billing/portal", None, none)
        .await
}

fn url(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = answer.json();
    let fields = answer.as_object().expect("an object");
    assert_eq!(fields.len(), 1, "{answer}");
    let url = fields.values().next().and_then(|url| url.as_str());
    url.expect("a URL").to_owned()
}

fn fields<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<(String, String)> {
    let fields = fields.into_iter();
    let mut fields: Vec<_> = fields
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    fields.sort();
    fields
}

fn sent(call: &Call) -> Vec<(String, String)> {
    call.fields.clone().into_iter().collect()
}

#[tokio::test]
async fn each_field_of_a_checkout_is_what_the_order_says() {
    let settings = "success_url = \"https://app.example/paid?session={CHECKOUT_SESSION_ID}\"\n\
                    cancel_url = \"https://app.example/left\"\nreturn_url = \"https://app.example/account\"\n\
                    [payments.plans.guru]\nprice_id = \"price_guru\"\n";
    each_with(settings, async |processor, gateway, _| {
        let alice = gateway.web("alice");
        let id = &*gateway.web_user_id("alice").await;
        let lapses = &*LAPSES.to_string();
        let urls = [
            (
                "success_url",
                "https://app.example/paid?session={CHECKOUT_SESSION_ID}",
            ),
            ("cancel_url", "https://app.example/left"),
        ];
        let common = [
            ("customer", "cus_1"),
            ("client_reference_id", id),
            ("expires_at", lapses),
            ("line_items[0][quantity]", "1"),
            ("metadata[user_id]", id),
        ];
        let plan = |name: &'static str| {
            [
                ("mode", "subscription"),
                ("metadata[purpose]", "plan"),
                ("metadata[plan]", name),
                ("subscription_data[metadata][user_id]", id),
                ("subscription_data[metadata][purpose]", "plan"),
                ("subscription_data[metadata][plan]", name),
            ]
        };

        let page = url(&checkout(&alice, "guru").await);
        assert_eq!(page, "https://pay.example/cs_test_1");
        let page = url(&checkout(&alice, "pro").await);
        assert_eq!(page, "https://pay.example/cs_test_2");
        let page = url(&top_up(&alice, "medium").await);
        assert_eq!(page, "https://pay.example/cs_test_3");
        assert_eq!(url(&portal(&alice).await), "https://pay.example/portal");

        let calls = processor.calls();
        let [customer, guru, expiry, pro, credits, portal] = &calls[..] else {
            panic!("{calls:?}");
        };
        assert!(calls.iter().all(|call| call.method == "POST"));
        assert_eq!(processor.versions(), [API_VERSION; 6]);
        assert_eq!(customer.path, "/v1/customers");
        assert_eq!(sent(customer), fields([("metadata[user_id]", id)]));
        assert_eq!(customer.key, Some(format!("customer-{id}")));
        for call in [guru, pro, credits] {
            assert_eq!(call.path, "/v1/checkout/sessions");
        }
        let price = [("line_items[0][price]", "price_guru")];
        let all = common.into_iter().chain(urls);
        let expected = fields(all.clone().chain(plan("guru")).chain(price));
        assert_eq!(sent(guru), expected);
        assert_eq!(expiry.path, "/v1/checkout/sessions/cs_test_1/expire");
        assert_eq!(sent(expiry), []);
        assert_eq!(expiry.key.as_deref(), Some("expire-cs_test_1"));
        let price = [
            ("line_items[0][price_data][currency]", "usd"),
            ("line_items[0][price_data][unit_amount]", "5000"),
            ("line_items[0][price_data][product_data][name]", "Pro plan"),
            ("line_items[0][price_data][recurring][interval]", "month"),
        ];
        assert_eq!(
            sent(pro),
            fields(all.clone().chain(plan("pro")).chain(price))
        );
        let tier = [
            ("mode", "payment"),
            ("metadata[purpose]", "topup"),
            ("metadata[tier]", "medium"),
            ("payment_intent_data[metadata][user_id]", id),
            ("payment_intent_data[metadata][purpose]", "topup"),
            ("payment_intent_data[metadata][tier]", "medium"),
            ("payment_intent_data[setup_future_usage]", "off_session"),
            ("line_items[0][price_data][currency]", "usd"),
            ("line_items[0][price_data][unit_amount]", "2500"),
            (
                "line_items[0][price_data][product_data][name]",
                "27,500 credits",
            ),
        ];
        assert_eq!(sent(credits), fields(all.chain(tier)));
        assert_eq!(portal.path, "/v1/billing_portal/sessions");
        let back = ("return_url", "https://app.example/account");
        assert_eq!(sent(portal), fields([("customer", "cus_1"), back]));

        // The key of each page is its row's id, and no two calls share one.
        let mut keys: Vec<_> = calls
            .iter()
            .map(|call| call.key.clone().expect("a key"))
            .collect();
        let rows: Vec<String> =
            sqlx::query_scalar("SELECT id FROM payment_checkouts ORDER BY session_id")
                .fetch_all(gateway.app().database.reader())
                .await
                .expect("rows");
        assert_eq!(rows, [keys[1].clone(), keys[3].clone(), keys[4].clone()]);
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), calls.len());
    })
    .await;
}

#[tokio::test]
async fn who_asks_again_is_sent_to_the_same_page_until_it_lapses_or_is_paid() {
    each(async |processor, gateway, clock| {
        let alice = gateway.web("alice");
        let first = url(&top_up(&alice, "small").await);
        assert_eq!(url(&top_up(&alice, "small").await), first);
        // Also while the processor cannot report its state.
        processor.will(Reply::new(500).header("stripe-should-retry", "false"));
        assert_eq!(url(&top_up(&alice, "small").await), first);
        // Another tier has another page, beside it.
        let large = url(&top_up(&alice, "large").await);
        assert_ne!(large, first);
        assert_eq!(url(&top_up(&alice, "small").await), first);
        assert_eq!(processor.open_sessions().len(), 2);

        // Paid, and its event is still to come: credits can be bought again.
        processor.end_session("cs_test_1", "complete");
        let second = url(&top_up(&alice, "small").await);
        assert_eq!(second, "https://pay.example/cs_test_3");
        // The event has come.
        let now = gateway.app().ledger.now();
        let store = &gateway.app().payments.store;
        store
            .close_checkout("cs_test_3", now)
            .await
            .expect("closed");
        let third = url(&top_up(&alice, "small").await);
        assert_eq!(third, "https://pay.example/cs_test_4");

        // A page that is about to expire is ended before another is created.
        clock.advance(Duration::from_secs(LAPSES as u64 - 1_769_860_800 - 9 * 60));
        let fourth = url(&top_up(&gateway.web("alice"), "small").await);
        assert_eq!(fourth, "https://pay.example/cs_test_5");
        let last = processor.calls();
        let [.., expiry, _] = &last[..] else {
            panic!("{last:?}");
        };
        assert_eq!(expiry.path, "/v1/checkout/sessions/cs_test_4/expire");
        assert_eq!(processor.customers(), 1);
    })
    .await;
}

#[tokio::test]
async fn two_plans_are_never_both_paid() {
    each(async |processor, gateway, _| {
        let alice = gateway.web("alice");
        url(&checkout(&alice, "guru").await);
        let pro = url(&checkout(&alice, "pro").await);
        let open = processor.open_sessions();
        assert_eq!(open.len(), 1);
        assert_eq!(open[0]["url"], pro);

        // Paid without an event so far: a request for either gets one page.
        processor.end_session("cs_test_2", "complete");
        for plan in ["pro", "guru"] {
            checkout(&alice, plan)
                .await
                .error(409, "ALREADY_SUBSCRIBED");
        }
        assert_eq!(processor.open_sessions(), [] as [serde_json::Value; 0]);
        assert_eq!(processor.sessions(), 2);
    })
    .await;
}

#[tokio::test]
async fn who_has_a_plan_is_told_so() {
    each(async |processor, gateway, _| {
        let database = &gateway.app().database;
        let now = gateway.app().ledger.now().0;
        let day = 86_400_000;
        for (name, status, cancelled, period_end, has_plan) in [
            ("a", "active", false, now + day, true),
            ("b", "trialing", false, now + day, true),
            ("c", "past_due", false, now - day, true),
            ("d", "active", true, now + day, true),
            ("e", "active", true, now - day, false),
            ("f", "canceled", false, now + day, false),
            ("g", "incomplete_expired", false, now + day, false),
        ] {
            let id = gateway.web_user_id(name).await;
            let cancelled = if cancelled { "1" } else { "NULL" };
            let text = format!(
                "INSERT INTO payment_subscriptions (id, user_id, plan, status, period_start, period_end, cancelled_at, \
                 as_of, event_id) VALUES ('sub_{name}', '{id}', 'guru', '{status}', 1, {period_end}, {cancelled}, 1, 'e')"
            );
            let written = sqlx::query(AssertSqlSafe(text)).execute(database.writer());
            written.await.expect("a row");
            let calls = processor.calls().len();
            let answer = checkout(&gateway.web(name), "pro").await;
            match has_plan {
                true => {
                    answer.error(409, "ALREADY_SUBSCRIBED");
                    assert_eq!(processor.calls().len(), calls, "{status}");
                }
                false => drop(url(&answer)),
            }
            // Credits can be bought with a plan or without.
            url(&top_up(&gateway.web(name), "small").await);
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_not_sold_is_refused_by_its_name_and_asks_nobody() {
    let processor = Processor::start().await;
    let gateway = Gateway::builder()
        .tables(&processor.settings())
        .start()
        .await;
    let alice = gateway.web("alice");
    for plan in [
        json!({}),
        json!({ "plan": null }),
        json!({ "plan": "free" }),
        json!({ "plan": "Guru" }),
        json!({ "plan": ["guru"] }),
    ] {
        let error = alice
            .post("/billing/checkout", &plan)
            .await
            .error(400, "INVALID_PLAN");
        assert_eq!(error["param"], "plan");
    }
    for tier in [json!({}), json!({ "tier": "huge" }), json!({ "tier": 5 })] {
        let error = alice
            .post("/billing/topup", &tier)
            .await
            .error(400, "INVALID_TIER");
        assert_eq!(error["param"], "tier");
    }
    for (path, body, param) in [
        (
            "/billing/checkout",
            json!({ "plan": "guru", "price": 1 }),
            "price",
        ),
        (
            "/billing/topup",
            json!({ "tier": "small", "user_id": "bob" }),
            "user_id",
        ),
    ] {
        let error = alice.post(path, &body).await.error(400, "INVALID_REQUEST");
        assert_eq!(error["param"], param);
    }
    let not_json = Bytes::from_static(b"plan=guru");
    let form = Some("application/x-www-form-urlencoded");
    let answer = alice
        .send(Method::POST, "/billing/checkout", form, not_json)
        .await;
    answer.error(415, "UNSUPPORTED_MEDIA_TYPE");
    portal(&alice).await.error(404, "NO_PAYMENT_CUSTOMER");

    // Neither keys nor strangers can buy.
    for client in [gateway.client(), gateway.stranger()] {
        checkout(&client, "guru")
            .await
            .error(401, "UNAUTHENTICATED");
        top_up(&client, "small").await.error(401, "UNAUTHENTICATED");
        portal(&client).await.error(401, "UNAUTHENTICATED");
    }
    assert_eq!(processor.calls(), []);
}

#[tokio::test]
async fn without_a_processor_nothing_is_sold() {
    let none = "[payments]\nprocessor = \"none\"\n";
    let gateway = Gateway::builder().tables(none).start().await;
    let alice = gateway.web("alice");
    for answer in [
        checkout(&alice, "guru").await,
        top_up(&alice, "small").await,
    ] {
        assert_eq!(answer.headers["x-should-retry"], "false");
        answer.error(503, "PAYMENTS_UNAVAILABLE");
    }
    checkout(&alice, "free").await.error(400, "INVALID_PLAN");
    portal(&alice).await.error(404, "NO_PAYMENT_CUSTOMER");
}

#[tokio::test]
async fn a_processor_that_does_not_serve_is_told_as_503_and_asked_again_by_the_next() {
    each(async |processor, gateway, _| {
        let alice = gateway.web("alice");
        let refused = || Reply::new(503).header("stripe-should-retry", "false");
        processor.will(refused());
        let answer = checkout(&alice, "guru").await;
        assert_eq!(answer.headers["retry-after"], "5");
        answer.error(503, "PAYMENTS_UNAVAILABLE");
        // With the customer, but no page.
        processor
            .will_do_but(|reply| reply)
            .will_do_but(move |_| refused());
        checkout(&alice, "guru")
            .await
            .error(503, "PAYMENTS_UNAVAILABLE");
        assert_eq!((processor.customers(), processor.sessions()), (1, 1));
        // The page was created, and its response lost: its key finds it again.
        let page = url(&checkout(&alice, "guru").await);
        assert_eq!(page, "https://pay.example/cs_test_1");
        assert_eq!((processor.customers(), processor.sessions()), (1, 1));
        let calls = processor.calls();
        let [.., lost, found] = &calls[..] else {
            panic!("{calls:?}");
        };
        assert_eq!(lost, found);
    })
    .await;
}

#[tokio::test]
async fn a_page_whose_prices_have_changed_since_it_was_asked_for_is_asked_for_anew() {
    let processor = Processor::start().await;
    let gateway = Gateway::builder()
        .tables(&processor.settings())
        .start()
        .await;
    let alice = gateway.web("alice");
    let lost = |_| Reply::new(500).header("stripe-should-retry", "false");
    processor.will_do_but(|reply| reply).will_do_but(lost);
    top_up(&alice, "small")
        .await
        .error(503, "PAYMENTS_UNAVAILABLE");
    let folder = gateway.stop().await;
    let dearer = format!(
        "{}[payments.tiers.small]\nprice_cents = 600\n",
        processor.settings()
    );
    let gateway = Gateway::builder()
        .folder(folder)
        .tables(&dearer)
        .start()
        .await;
    let page = url(&top_up(&gateway.web("alice"), "small").await);
    // The old key would return the old price; no user was sent to that page.
    assert_eq!(page, "https://pay.example/cs_test_2");
    let last = processor.calls().pop().expect("a call");
    assert_eq!(last.field("line_items[0][price_data][unit_amount]"), "600");
}

#[tokio::test]
async fn all_who_ask_at_once_are_sent_to_one_page() {
    each(async |processor, gateway, _| {
        let alice = gateway.web("alice");
        let gate = Gate::new();
        let held = gate.clone();
        processor
            .will_do_but(|reply| reply)
            .will_do_but(move |reply| reply.after_gate(&held));
        let first = tokio::spawn({
            let alice = alice.clone();
            async move { url(&checkout(&alice, "guru").await) }
        });
        gate.reached().await;
        // The second call under a key in use, as Stripe responds to it.
        let in_use =
            json!({ "error": { "type": "idempotency_error", "code": "idempotency_key_in_use" } });
        processor.will(Reply::json(409, &in_use));
        let second = url(&checkout(&alice, "guru").await);
        gate.open();
        assert_eq!(first.await.expect("no panic"), second);
        assert_eq!((processor.customers(), processor.sessions()), (1, 1));

        // Many concurrent requests of another user.
        let asked = (0..8).map(|_| {
            let bob = gateway.web("bob");
            tokio::spawn(async move { url(&checkout(&bob, "pro").await) })
        });
        let mut pages = Vec::new();
        for asked in asked.collect::<Vec<_>>() {
            pages.push(asked.await.expect("no panic"));
        }
        pages.dedup();
        assert_eq!(pages.len(), 1);
        assert_eq!((processor.customers(), processor.sessions()), (2, 2));
    })
    .await;
}

#[tokio::test]
async fn a_page_that_was_replaced_before_its_answer_came_is_ended_and_shown_to_nobody() {
    each(async |processor, gateway, _| {
        let alice = gateway.web("alice");
        let gate = Gate::new();
        let held = gate.clone();
        processor
            .will_do_but(|reply| reply)
            .will_do_but(move |reply| reply.after_gate(&held));
        let first = tokio::spawn({
            let alice = alice.clone();
            async move { checkout(&alice, "guru").await }
        });
        gate.reached().await;
        let second = url(&checkout(&alice, "pro").await);
        gate.open();
        first
            .await
            .expect("no panic")
            .error(409, "CHECKOUT_REPLACED");
        let open = processor.open_sessions();
        assert_eq!(open.len(), 1);
        assert_eq!(open[0]["url"], second);
    })
    .await;
}

/// Short pauses, for tests that wait for time-outs.
const FAST: StripeTimeouts = StripeTimeouts {
    connect: Duration::from_secs(1),
    each: Duration::from_millis(400),
    all: Duration::from_secs(5),
    pause: Duration::from_millis(20),
    longest_pause: Duration::from_secs(2),
};

fn stripe(processor: &Processor) -> Stripe {
    let key = Secret::new(SECRET_KEY.to_owned());
    Stripe::new(&processor.base_url(), &key, FAST).expect("a client")
}

fn offer() -> ItemPrice {
    ItemPrice {
        price_cents: 500,
        price_id: None,
    }
}

async fn create(stripe: &Stripe) -> Result<CheckoutSession, ProcessorError> {
    let order = CheckoutOrder {
        user_id: "usr_1",
        customer_id: "cus_1",
        item: PurchaseItem::TopUp(TopUpTier::Small),
        offer: &offer(),
        expires_at: Millis(1_800_000_000_000),
        success_url: "https://app.example/paid".to_owned(),
        cancel_url: "https://app.example/left".to_owned(),
    };
    stripe.create_checkout(&order, "key-1").await
}

/// Makes one call of each kind; `tests/sdk` does the same with Stripe's own clients.
pub(crate) async fn ask_for_all(processor: &Processor) {
    let stripe = stripe(processor);
    let customer = stripe.create_customer("usr_1", "customer-usr_1").await;
    assert_eq!(customer.as_deref(), Ok("cus_1"));
    let priced = |price_cents, price_id: Option<&str>| ItemPrice {
        price_cents,
        price_id: price_id.map(str::to_owned),
    };
    let plan = (
        PurchaseItem::Plan(Plan::Pro),
        priced(5_000, None),
        "key-plan",
    );
    let small = (
        PurchaseItem::TopUp(TopUpTier::Small),
        priced(500, Some("price_small")),
        "key-topup",
    );
    for (item, offer, key) in [plan, small] {
        let order = CheckoutOrder {
            user_id: "usr_1",
            customer_id: "cus_1",
            item,
            offer: &offer,
            expires_at: Millis(1_800_000_000_000),
            success_url: "https://app.example/paid?a=1&b=ż".to_owned(),
            cancel_url: "https://app.example/left".to_owned(),
        };
        stripe.create_checkout(&order, key).await.expect("a page");
    }
    let session = "cs_test_1";
    assert_eq!(stripe.checkout_state(session).await, Ok(SessionState::Open));
    assert_eq!(
        stripe.expire_checkout(session).await,
        Ok(SessionState::Expired)
    );
    let portal = stripe.create_portal("cus_1", "https://app.example/account");
    portal.await.expect("a page");
    stripe.charge(&CHARGE).await.expect("paid");
    let since = Millis(1_700_000_000_000);
    let found = stripe.find_payment("cus_1", CHARGE.id, since).await;
    assert!(matches!(found, Ok(Some(_))), "{found:?}");
}

/// Names and values of a portal's configuration are those of API version 2024-12-18.acacia: `Configuration.Features`
/// of the `stripe` package 17.5.0 for Node.js.
#[tokio::test]
async fn a_probe_names_the_settings_of_the_processor_that_do_not_fit() {
    let processor = Processor::start().await;
    let stripe = stripe(&processor);
    let settings = PaymentSettings {
        plans: PlanPrices {
            guru: PriceSettings {
                price_id: Some("price_guru".to_owned()),
                ..PriceSettings::default()
            },
            ..PlanPrices::default()
        },
        ..PaymentSettings::default()
    };
    let portal_with =
        |enabled: bool, behavior: &str, condition: &str, cancel: [&str; 2], allowed: &str| {
            let update = json!({ "enabled": enabled, "proration_behavior": behavior,
            "default_allowed_updates": [allowed],
            "schedule_at_period_end": { "conditions": [{ "type": condition }] } });
            let cancel =
                json!({ "enabled": true, "mode": cancel[0], "proration_behavior": cancel[1] });
            let features = json!({ "subscription_update": update, "subscription_cancel": cancel });
            let configuration = json!({ "id": "bpc_1", "features": features });
            json!({ "object": "list", "data": [configuration], "has_more": false })
        };
    let portal = |enabled: bool, behavior: &str, condition: &str| {
        let cancel = ["at_period_end", "create_prorations"];
        portal_with(enabled, behavior, condition, cancel, "price")
    };
    let all: Vec<_> = EventType::ALL.iter().map(|kind| kind.name()).collect();
    let hooks = |path: &str, events: &[&str]| {
        let url = format!("https://weir.example{path}");
        let endpoint =
            json!({ "id": "we_1", "url": url, "status": "enabled", "enabled_events": events });
        Reply::json(
            200,
            &json!({ "object": "list", "data": [endpoint], "has_more": false }),
        )
    };
    let denied = || {
        Reply::json(
            403,
            &json!({ "error": { "type": "invalid_request_error" } }),
        )
    };
    let price = |cents: i64, currency: &str| json!({ "id": "price_guru", "unit_amount": cents, "currency": currency });
    let nothing = json!({ "object": "list", "data": [], "has_more": false });
    for (portal, price, named) in [
        (
            portal(true, "always_invoice", "decreasing_item_amount"),
            price(1_000, "usd"),
            &[][..],
        ),
        (
            portal(false, "none", "shortening_interval"),
            price(1_000, "usd"),
            &[],
        ),
        (
            portal(true, "create_prorations", "decreasing_item_amount"),
            price(1_000, "usd"),
            &["`proration_behavior` is \"create_prorations\""],
        ),
        (
            portal(true, "always_invoice", "shortening_interval"),
            price(900, "eur"),
            &[
                "does not schedule downgrades",
                "price_guru of guru is 900 cents in \"eur\"",
            ],
        ),
        (
            nothing.clone(),
            price(1_000, "usd"),
            &["no default configuration"],
        ),
        (
            portal_with(
                true,
                "always_invoice",
                "decreasing_item_amount",
                ["immediately", "always_invoice"],
                "quantity",
            ),
            price(1_000, "usd"),
            &["cancels subscriptions at once", "`quantity`"],
        ),
        (
            portal_with(
                true,
                "always_invoice",
                "decreasing_item_amount",
                ["immediately", "none"],
                "price",
            ),
            price(1_000, "usd"),
            &[],
        ),
    ] {
        for body in [&portal, &price] {
            processor.will(Reply::json(200, body));
        }
        processor.will(hooks("/billing/webhook", &all));
        for _ in ["invoices", "subscriptions"] {
            processor.will(Reply::json(200, &nothing));
        }
        let problems = stripe.problems(&settings).await.expect("an answer");
        assert_eq!(problems.len(), named.len(), "{problems:?}");
        for (problem, part) in problems.iter().zip(named) {
            assert!(problem.contains(part), "{problem}");
        }
    }
    let calls = processor.calls();
    assert_eq!(calls[0].path, "/v1/billing_portal/configurations");
    assert_eq!(calls[0].field("is_default"), "true");
    assert_eq!(calls[1].path, "/v1/prices/price_guru");

    let fits = portal(true, "always_invoice", "decreasing_item_amount");
    let without: Vec<_> = all
        .iter()
        .copied()
        .filter(|name| *name != "refund.failed")
        .collect();
    for (hook, invoices, named) in [
        (
            hooks("/billing/webhook", &["*"]),
            Reply::json(200, &nothing),
            &[][..],
        ),
        (
            hooks("/billing/webhook", &without),
            Reply::json(200, &nothing),
            &["does not get these events: refund.failed"],
        ),
        (
            hooks("/other", &["*"]),
            Reply::json(200, &nothing),
            &["no enabled webhook endpoint"],
        ),
        (
            denied(),
            denied(),
            &["cannot read webhook endpoints", "cannot read /v1/invoices"],
        ),
    ] {
        processor
            .will(Reply::json(200, &fits))
            .will(Reply::json(200, &price(1_000, "usd")))
            .will(hook)
            .will(invoices)
            .will(Reply::json(200, &nothing));
        let problems = stripe.problems(&settings).await.expect("an answer");
        assert_eq!(problems.len(), named.len(), "{problems:?}");
        for (problem, part) in problems.iter().zip(named) {
            assert!(problem.contains(part), "{problem}");
        }
    }
}

#[tokio::test]
async fn nothing_is_asked_again_without_its_key() {
    type Script = fn(&Processor);
    let troubles: [(&str, Script); 8] = [
        ("no answer", |processor| {
            processor.will(Reply::never());
        }),
        ("an answer that is lost", |processor| {
            processor.will_do_but(|_| Reply::never());
        }),
        ("a connection that is cut", |processor| {
            processor.will_do_but(|_| Reply::hang_up());
        }),
        ("one that is reset", |processor| {
            processor.will_do_but(|_| Reply::reset());
        }),
        ("half an answer", |processor| {
            processor.will_do_but(|reply| reply.cut_after(10));
        }),
        ("a lock", |processor| {
            processor.will(Reply::json(
                409,
                &json!({ "error": { "code": "lock_timeout" } }),
            ));
        }),
        ("too many", |processor| {
            processor.will(Reply::new(429).header("retry-after", "1"));
        }),
        ("out of order", |processor| {
            processor.will(Reply::new(500));
        }),
    ];
    for (what, script) in troubles {
        for times in 1..=MAX_TRIES {
            let processor = Processor::start().await;
            for _ in 0..times {
                script(&processor);
            }
            let made = create(&stripe(&processor)).await;
            let calls = processor.calls();
            assert_eq!(calls.len(), MAX_TRIES.min(times + 1) as usize, "{what}");
            assert_eq!(calls[0].key.as_deref(), Some("key-1"), "{what}");
            assert!(
                calls.iter().all(|call| *call == calls[0]),
                "{what}: {calls:?}"
            );
            assert!(processor.sessions() <= 1, "{what}");
            match made {
                Ok(session) => {
                    assert!(times < MAX_TRIES, "{what}");
                    assert_eq!(session.id, "cs_test_1");
                    assert_eq!(session.expires_at, Millis(1_800_000_000_000));
                }
                Err(ProcessorError::Unavailable { .. }) => assert_eq!(times, MAX_TRIES, "{what}"),
                Err(error) => panic!("{what}: {error}"),
            }
        }
    }
}

#[tokio::test]
async fn the_processor_says_whether_and_when_to_ask_again() {
    let asked = async |reply: Reply| {
        let processor = Processor::start().await;
        processor.will(reply);
        let begun = std::time::Instant::now();
        let made = create(&stripe(&processor)).await;
        (made, processor.calls().len(), begun.elapsed())
    };
    let (made, calls, _) = asked(Reply::new(500).header("stripe-should-retry", "false")).await;
    assert!(made.is_err() && calls == 1);
    let (made, calls, _) = asked(Reply::new(400).header("stripe-should-retry", "true")).await;
    assert!(made.is_ok() && calls == 2);
    let (made, calls, waited) = asked(Reply::new(429).header("retry-after", "1")).await;
    assert!(made.is_ok() && calls == 2 && waited >= Duration::from_secs(1));
    // The test does not wait an hour.
    let (made, calls, _) = asked(Reply::new(429).header("retry-after", "3600")).await;
    let hour = Some(Duration::from_secs(3_600));
    assert!(
        matches!(made, Err(ProcessorError::Unavailable { retry_after, .. }) if retry_after == hour)
    );
    assert_eq!(calls, 1);
    // A refused call, a redirect and an endless response are not retried.
    let long = vec![b' '; (1 << 20) + 1];
    for reply in [
        Reply::new(400),
        Reply::new(401),
        Reply::new(404),
        Reply::redirect(307, "/v1/elsewhere"),
        Reply::new(200).body(long),
        Reply::new(200).body("<html>"),
    ] {
        let (made, calls, _) = asked(reply).await;
        assert!(made.is_err());
        assert_eq!(calls, 1);
    }
}

#[tokio::test]
async fn no_error_has_the_key_or_the_processors_own_words() {
    let processor = Processor::start().await;
    let stripe = stripe(&processor);
    create(&stripe).await.expect("a page");
    let other = stripe.create_customer("usr_1", "key-1").await;
    assert_eq!(other, Err(ProcessorError::KeyReused));
    let body = json!({ "error": {
        "type": "invalid_request_error",
        "code": "resource_missing",
        "param": "line_items[0][price]",
        "message": format!("Invalid API Key provided: {SECRET_KEY}"),
    } });
    processor.will(Reply::json(401, &body).header("request-id", "req_42"));
    let error = stripe
        .create_customer("usr_1", "key-2")
        .await
        .expect_err("refused");
    assert_eq!(
        error.to_string(),
        "the processor refuses the request: 401, type invalid_request_error, code resource_missing, \
         param line_items[0][price], request req_42"
    );
    for id in ["", "a/b", "a?b", "..", "żółw"] {
        let before = processor.calls().len();
        let state = stripe.checkout_state(id).await;
        assert!(matches!(state, Err(ProcessorError::Invalid(_))), "{id}");
        assert_eq!(processor.calls().len(), before);
    }
}

#[tokio::test]
async fn a_page_is_ended_once_whatever_has_become_of_it() {
    let processor = Processor::start().await;
    let stripe = stripe(&processor);
    let session = create(&stripe).await.expect("a page").id;
    assert_eq!(
        stripe.checkout_state(&session).await,
        Ok(SessionState::Open)
    );
    processor.will_do_but(|_| Reply::hang_up());
    assert_eq!(
        stripe.expire_checkout(&session).await,
        Ok(SessionState::Expired)
    );
    assert_eq!(
        stripe.checkout_state(&session).await,
        Ok(SessionState::Expired)
    );

    let processor = Processor::start().await;
    let stripe = self::stripe(&processor);
    let session = create(&stripe).await.expect("a page").id;
    processor.end_session(&session, "complete");
    assert_eq!(
        stripe.expire_checkout(&session).await,
        Ok(SessionState::Complete)
    );
}

const CHARGE: CardCharge<'static> = CardCharge {
    id: "charge-1",
    user_id: "usr_1",
    customer_id: "cus_1",
    tier: TopUpTier::Medium,
    price_cents: 2_500,
};

#[tokio::test]
async fn each_field_of_a_charge_is_what_it_says() {
    let processor = Processor::start().await;
    let stripe = stripe(&processor);
    let refused = stripe.charge(&CHARGE).await;
    let no_method = ProcessorError::Refused {
        code: "no_payment_method".to_owned(),
        payment_id: None,
    };
    assert_eq!(refused, Err(no_method));
    for (chosen, method) in [(None, "pm_card"), (Some("pm_chosen"), "pm_chosen")] {
        processor.set_methods(Some("pm_card"), chosen);
        let before = processor.calls().len();
        let charge = CardCharge {
            id: method,
            ..CHARGE
        };
        let paid = stripe.charge(&charge).await.expect("paid");
        assert_eq!((paid.status, paid.error), (PaymentStatus::Succeeded, None));
        let calls = processor.calls().split_off(before);
        let call = calls.last().expect("a call");
        assert_eq!(
            (&*call.method, &*call.path),
            ("POST", "/v1/payment_intents")
        );
        assert_eq!(call.key.as_deref(), Some(method));
        let expected = fields([
            ("amount", "2500"),
            ("currency", "usd"),
            ("customer", "cus_1"),
            ("payment_method", method),
            ("off_session", "true"),
            ("confirm", "true"),
            ("automatic_payment_methods[enabled]", "true"),
            ("automatic_payment_methods[allow_redirects]", "never"),
            ("description", "27,500 credits"),
            ("metadata[purpose]", "auto_topup"),
            ("metadata[tier]", "medium"),
            ("metadata[user_id]", "usr_1"),
            ("metadata[charge_id]", method),
        ]);
        assert_eq!(sent(call), expected);
        if let [customer, cards, _] = &calls[..] {
            assert_eq!(customer.path, "/v1/customers/cus_1");
            assert_eq!(cards.path, "/v1/payment_methods");
            let card = [("customer", "cus_1"), ("type", "card"), ("limit", "1")];
            assert_eq!(sent(cards), fields(card));
        } else {
            assert!(chosen.is_some() && calls.len() == 2, "{calls:?}");
        }
    }
}

#[tokio::test]
async fn a_charge_whose_answer_is_lost_is_made_once_and_found() {
    let processor = Processor::start().await;
    let stripe = stripe(&processor);
    processor.set_methods(None, Some("pm_1"));
    let since = Millis(1_700_000_000_000);
    assert_eq!(
        stripe.find_payment("cus_1", "charge-1", since).await,
        Ok(None)
    );
    // The processor performs the customer's call, and each response to the charge is cut.
    processor.will_do_but(|reply| reply);
    for _ in 0..MAX_TRIES {
        processor.will_do_but(|_| Reply::hang_up());
    }
    let lost = stripe.charge(&CHARGE).await;
    assert!(
        matches!(lost, Err(ProcessorError::Unavailable { .. })),
        "{lost:?}"
    );
    assert_eq!(processor.intents().len(), 1);
    let paid = PaymentIntent {
        id: "pi_1".to_owned(),
        status: PaymentStatus::Succeeded,
        error: None,
    };
    // Among more than a page of others.
    for number in 0..120 {
        let id = format!("later-{number}");
        stripe
            .charge(&CardCharge { id: &id, ..CHARGE })
            .await
            .expect("paid");
    }
    let found = stripe.find_payment("cus_1", "charge-1", since).await;
    assert_eq!(found, Ok(Some(paid.clone())));
    let calls = processor.calls();
    let [.., first, second] = &calls[..] else {
        panic!("{calls:?}");
    };
    let page = [
        ("customer", "cus_1"),
        ("created[gte]", "1700000000"),
        ("limit", "100"),
    ];
    assert_eq!(sent(first), fields(page));
    assert_eq!(second.field("starting_after"), "pi_22");
    // Its key returns the same result; another card does not create a new one.
    assert_eq!(stripe.charge(&CHARGE).await, Ok(paid));
    processor.set_methods(None, Some("pm_2"));
    assert_eq!(stripe.charge(&CHARGE).await, Err(ProcessorError::KeyReused));
    assert_eq!(processor.intents().len(), 121);
}

#[tokio::test]
async fn a_card_that_is_declined_is_not_tried_again() {
    let processor = Processor::start().await;
    let stripe = stripe(&processor);
    processor.set_methods(Some("pm_1"), None);
    processor.declines(true);
    let declined = ProcessorError::Refused {
        code: "insufficient_funds".to_owned(),
        payment_id: Some("pi_1".to_owned()),
    };
    for _ in 0..2 {
        assert_eq!(stripe.charge(&CHARGE).await, Err(declined.clone()));
    }
    assert_eq!(processor.intents().len(), 1);
    let found = stripe.find_payment("cus_1", "charge-1", Millis(0)).await;
    let found = found.expect("an answer").expect("the payment");
    assert_eq!(found.status, PaymentStatus::Failed);
    assert_eq!(found.error.as_deref(), Some("insufficient_funds"));
}

#[test]
fn what_is_sold_costs_what_the_specification_says() {
    let settings = weir_payments::settings::PaymentSettings::default();
    let offers = [
        (PurchaseItem::Plan(Plan::Guru), 1_000, 10_000),
        (PurchaseItem::Plan(Plan::Pro), 5_000, 55_000),
        (PurchaseItem::TopUp(TopUpTier::Small), 500, 5_000),
        (PurchaseItem::TopUp(TopUpTier::Medium), 2_500, 27_500),
        (PurchaseItem::TopUp(TopUpTier::Large), 10_000, 125_000),
    ];
    for (item, cents, credits) in offers {
        let offer = settings.offer(item).expect("it is sold");
        assert_eq!((offer.price_cents, offer.price_id), (cents, None));
        assert_eq!(item.credits().micro(), credits * 1_000_000);
    }
}
