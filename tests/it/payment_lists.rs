//! Events whose lists Stripe cuts: weir reads the rest from Stripe's API before it applies them.

use std::time::Duration;

use serde_json::json;
use tests::client::patiently;
use tests::gateway::on_each_database;
use tests::ledger::create_users;
use tests::payments::{Like, Payer, Processor, Span, Switch};
use tests::processor::Processor as Stripe;
use tests::{Gateway, Reply};
use weir_storage::clock::ManualClock;

const NOW: &str = "2026-03-20T01:00:00Z";
const BEFORE: Span = Span("2026-02-20T00:00:00Z", "2026-03-20T00:00:00Z");
const PRESENT: Span = Span("2026-03-20T00:00:00Z", "2026-04-20T00:00:00Z");

/// A gateway on each database, Stripe's API, and the events of a user.
async fn each(test: impl AsyncFn(&Stripe, &Gateway, &Processor, &Payer, &ManualClock)) {
    let stripes = [Stripe::start().await, Stripe::start().await];
    let next = std::cell::Cell::new(0);
    let configure = |builder: tests::gateway::Builder| {
        let index = next.replace(next.get() + 1);
        builder.credits(0).tables(&stripes[index].settings())
    };
    on_each_database(NOW, configure, async |gateway, clock| {
        let app = gateway.app();
        create_users(&app.database, ["lena"].into_iter(), app.clock.now().0).await;
        let events = Processor::new(gateway.stranger(), app);
        let lena = Payer("lena".to_owned());
        test(&stripes[next.get() - 1], &gateway, &events, &lena, &clock).await;
    })
    .await;
}

/// The order of lines, pending prorations first: `Invoice.lines` of the `stripe` package 17.5.0 for Node.js.
#[tokio::test]
async fn a_renewal_behind_many_prorations_is_granted() {
    each(async |stripe, gateway, events, lena, clock| {
        let app = gateway.app();
        let switch = Switch {
            left: Span("2026-03-01T00:00:00Z", BEFORE.1),
            from: ("guru", -10),
            to: ("pro", 50),
        };
        let switch = lena.switch_paid("x", NOW, "x", switch);
        let prorations = switch["data"]["object"]["lines"]["data"].clone();
        let mut renewal = lena.invoice_paid("renewal", NOW, "renewal", "guru", PRESENT);
        let lines = renewal["data"]["object"]["lines"]["data"].as_array_mut();
        let lines = lines.expect("lines");
        for _ in 0..60 {
            let pair = prorations.as_array().expect("lines").iter().cloned();
            lines.splice(0..0, pair);
        }
        let shown = stripe.cut(&renewal);
        assert_eq!(shown["data"]["object"]["lines"]["has_more"], true);
        stripe.will(Reply::json(
            403,
            &json!({ "error": { "type": "invalid_request_error" } }),
        ));
        events.tell(&shown).await;
        // Nothing of an event counts until it is complete.
        let (state, why) = events.state_of(&shown).await;
        assert_eq!(state, "failed");
        assert!(why.contains("403"), "{why}");
        let standing = lena.standing(app).await;
        assert_eq!((&*standing.plan, standing.topup), ("free", 0));
        clock.advance(Duration::from_secs(2));
        patiently(async {
            while events.state_of(&shown).await.0 != "applied" {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        // 60 times 550 less 100 credits of the prorations, whose period is over.
        let standing = lena.standing(app).await;
        assert_eq!(
            (&*standing.plan, standing.plan_credits, standing.topup),
            ("guru", 10_000, 27_000)
        );
        assert_eq!(standing.period_end, PRESENT.1);
        let pages = stripe.calls();
        let pages = pages.iter().filter(|call| call.path.ends_with("/lines"));
        assert_eq!(pages.count(), 2, "121 lines");
        // A repeat needs no other call.
        let calls = stripe.calls().len();
        let mut again = shown.clone();
        again["id"] = json!("evt_lena_again");
        again["data"]["object"] = renewal["data"]["object"].clone();
        events.tell(&again).await;
        assert_eq!(lena.standing(app).await, standing);
        assert_eq!(stripe.calls().len(), calls);
    })
    .await;
}

#[tokio::test]
async fn an_upgrade_behind_many_lines_counts_all_of_them() {
    each(async |stripe, gateway, events, lena, _| {
        let app = gateway.app();
        let begun = lena.invoice_paid("begun", NOW, "begun", "guru", PRESENT);
        events.tell(&begun).await;
        let switch = Switch {
            left: Span("2026-03-20T00:30:00Z", PRESENT.1),
            from: ("guru", -600),
            to: ("pro", 3_000),
        };
        let mut raise = lena.switch_paid("raise", NOW, "raise", switch);
        let lines = raise["data"]["object"]["lines"]["data"].as_array_mut();
        let lines = lines.expect("lines");
        // Up and down again: the ten shown lines are worth ten times as much as all.
        let (less, more) = (lines[0].clone(), lines[1].clone());
        let mut down = more.clone();
        down["amount"] = json!(-3_000);
        *lines = [vec![more; 10], vec![down; 9], vec![less]].concat();
        events.tell(&stripe.cut(&raise)).await;
        let standing = lena.standing(app).await;
        // 10,000, and 33,000 less 6,000.
        assert_eq!((&*standing.plan, standing.plan_credits), ("pro", 37_000));
    })
    .await;
}

#[tokio::test]
async fn a_subscription_with_many_items_is_read_completely() {
    each(async |stripe, gateway, events, lena, _| {
        let like = Like::active("guru", PRESENT).in_status("trialing");
        let mut created = lena.subscription_is("created", "1", NOW, like);
        let items = created["data"]["object"]["items"]["data"].as_array_mut();
        let items = items.expect("items");
        let extra = json!({ "price": { "id": "price_support", "metadata": {} } });
        items.splice(0..0, vec![extra; 11]);
        let shown = stripe.cut(&created);
        assert!(!shown.to_string().contains("price_guru"), "{shown}");
        events.tell(&shown).await;
        let standing = lena.standing(gateway.app()).await;
        assert_eq!((&*standing.plan, standing.plan_credits), ("guru", 10_000));
        let calls = stripe.calls();
        let mut paths = calls.iter().map(|call| &*call.path);
        assert!(paths.any(|path| path == "/v1/subscription_items"));
    })
    .await;
}
