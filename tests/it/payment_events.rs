//! The processor's events: accepted if signed, stored before the acknowledgement, and applied once, in any order.

use std::fs;
use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use tests::client::patiently;
use tests::gateway::{Builder, USER, at, on_each_database};
use tests::ledger::random::Random;
use tests::ledger::{Served, create_users, serve};
use tests::payments::AFTER_THE_STORY;
use tests::payments::{Like, Payer, Processor, Span, Standing, Switch, WEBHOOK, event};
use tests::source::root;
use tests::stores::{Durability, Postgres};
use tests::{Answer, Gate, Gateway, Reply, Upstream, chat};
use weir_egress::webhook;
use weir_ledger::verify::{Extent, verify};
use weir_ledger::{AccountId, Action, Credits};
use weir_payments::events::EventType;
use weir_payments::reconcile;
use weir_storage::clock::{ManualClock, Millis};
use weir_storage::database::SqlDialect;
use weir_storage::secrets::Secret;

use crate::cli::{run, text};
use crate::console::Browser;
use crate::sdk;

/// The moment at which these tests begin.
const NOW: &str = "2026-03-03T00:00:00Z";

/// A current period, the one after it, and a past one with a current grace period.
const PRESENT: Span = Span("2026-02-20T00:00:00Z", "2026-03-20T00:00:00Z");
const NEXT: Span = Span("2026-03-02T12:00:00Z", "2026-04-02T12:00:00Z");
const OVER: Span = Span("2026-02-02T00:00:00Z", "2026-03-02T00:00:00Z");

/// A gateway on each database, and its processor.
async fn each(now: &str, test: impl AsyncFn(Gateway, Processor, ManualClock)) {
    on_each_database(
        now,
        |builder| builder.credits(0),
        async |gateway, clock| {
            let processor = Processor::new(gateway.stranger(), gateway.app());
            test(gateway, processor, clock).await;
        },
    )
    .await;
}

async fn payer(gateway: &Gateway, name: &str) -> Payer {
    let app = gateway.app();
    create_users(&app.database, [name].into_iter(), app.clock.now().0).await;
    Payer(name.to_owned())
}

/// Begins a subscription with a paid invoice, as Stripe does for a card that is charged at once.
async fn subscribe(processor: &Processor, payer: &Payer, like: Like) {
    let created = payer.subscription_is("created", "1", NOW, like);
    let paid = payer.invoice_paid("begun", NOW, "begun", like.plan, like.period);
    for event in [created, paid] {
        processor.tell(&event).await;
    }
}

/// A user with a paid subscription, who has spent 4,000 credits so many times.
async fn subscriber(
    gateway: &Gateway,
    processor: &Processor,
    name: &str,
    like: Like,
    spent: u32,
) -> Payer {
    let payer = payer(gateway, name).await;
    subscribe(processor, &payer, like).await;
    for _ in 0..spent {
        spend(gateway, &payer).await;
    }
    payer
}

/// Turns an event about a subscription into one about another one of the user.
fn about_another(mut event: Value, name: &str) -> Value {
    event["data"]["object"]["subscription"] = json!(format!("sub_{name}_again"));
    event
}

async fn until_state(processor: &Processor, event: &Value, state: &str) {
    patiently(async {
        while processor.state_of(event).await.0 != state {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// Makes a user spend 4,000 credits.
async fn spend(gateway: &Gateway, payer: &Payer) {
    let served = Served {
        user: &payer.0,
        model: "small",
        provider: "p",
        credits: 4_000_000_000,
        cost: 1,
    };
    serve(gateway.app(), served).await;
}

#[tokio::test]
async fn an_event_is_taken_if_the_processor_has_signed_it_and_else_refused() {
    each(NOW, async |gateway, processor, _| {
        let alice = Payer(USER.to_owned());
        let event = alice.credits_bought("topup", NOW, "p", "small");
        let body = event.to_string();
        let right = processor.signature(&body);
        let at_seconds = |by: i64| {
            let now = gateway.app().ledger.now();
            processor.signature_at(&body, Millis(now.0 + by * 1_000))
        };
        let (time, signature) = right.split_once(',').expect("two parts");
        let hex = signature.strip_prefix("v1=").expect("a scheme");
        let zeros = "0".repeat(64);
        let refused = |answer: Answer| {
            let error = answer.error(400, "INVALID_SIGNATURE");
            assert!(!error.to_string().contains("whsec"), "{error}");
        };
        for wrong in [
            "",
            "garbage",
            time,
            signature,
            &format!("{time},v0={hex}"),
            &format!("{time},v1={zeros}"),
            &format!("{time},v1={}", hex.to_uppercase()),
            &format!("{time},v1={}", &hex[1..]),
            &format!("{time},{time},{signature}"),
            &format!("t=-1,{signature}"),
            &format!("t=x,{signature}"),
            &format!("t=1,{signature}"),
            &at_seconds(-301),
            &at_seconds(301),
            &format!("{time},{signature},{}", "v1=0,".repeat(1_000)),
        ] {
            refused(processor.send_signed(&body, wrong).await);
        }
        refused(
            processor
                .send_signed(&body.replace("small", "large"), &right)
                .await,
        );
        refused(processor.send_signed("", &right).await);
        let bare = gateway.stranger();
        refused(bare.post(WEBHOOK, &event).await);
        // A user's credential is invalid here.
        refused(gateway.client().post(WEBHOOK, &event).await);
        let kept: i64 = sqlx::query_scalar("SELECT CAST(COUNT(*) AS BIGINT) FROM payment_events")
            .fetch_one(gateway.app().database.reader())
            .await
            .expect("the database answers");
        assert_eq!(kept, 0);
        assert_eq!(alice.standing(gateway.app()).await.topup, 0);
        // The processor's address is not shut out by that.
        for good in [
            &at_seconds(-300),
            &at_seconds(300),
            &format!("{time},v1={zeros},{signature}"),
            &format!("{time}, v0=1, {signature}"),
        ] {
            let answer = processor.send_signed(&body, good).await;
            assert_eq!(answer.status, 200, "{good}: {}", answer.text());
        }
        assert_eq!(alice.standing(gateway.app()).await.topup, 5_000);
    })
    .await;
}

#[tokio::test]
async fn what_is_no_event_is_refused() {
    each(NOW, async |gateway, processor, _| {
        let send = async |body: &str| {
            processor
                .send_signed(body, &processor.signature(body))
                .await
        };
        let refused = send("[]").await.error(400, "INVALID_REQUEST");
        assert_eq!(refused["param"], Value::Null);
        let nameless = json!({ "id": "evt_1", "created": 1, "data": { "object": {} } }).to_string();
        let refused = send(&nameless).await.error(400, "INVALID_REQUEST");
        assert!(refused["message"].as_str().expect("text").contains("type"));
        let malformed = event(
            "evt_1",
            "payment_intent.succeeded",
            NOW,
            &json!({ "id": "pi_1" }),
        );
        let refused = processor
            .send(&malformed)
            .await
            .error(400, "INVALID_REQUEST");
        assert_eq!(refused["param"], "data.object");
        let large = " ".repeat((256 << 10) + 1);
        send(&large).await.error(413, "PAYLOAD_TOO_LARGE");
        let (body, stranger) = (malformed.to_string(), gateway.stranger());
        let signed = stranger.with_header("payment-signature", &processor.signature(&body));
        let text = Some("text/plain");
        let answer = signed.send(Method::POST, WEBHOOK, text, body.into()).await;
        answer.error(415, "UNSUPPORTED_MEDIA_TYPE");
        signed.get(WEBHOOK).await.error(405, "METHOD_NOT_ALLOWED");
    })
    .await;
}

fn standing(plan: &str, plan_credits: i64, topup: i64, owed: i64, is_ending: bool) -> Standing {
    Standing {
        plan: plan.to_owned(),
        plan_credits,
        topup,
        owed,
        is_ending,
        period_end: String::new(),
    }
}

/// The effect of an event on users who have had a period and spent 4,000 credits in it: on `free` without any, on
/// `guru` and on `pro` in their period, and on `guru` in the grace after it.
struct Row {
    name: &'static str,
    event: fn(&Payer, Span) -> Value,
    expected: [Standing; 4],
}

/// A moment within each of the periods, at which a plan was changed.
const CHANGED: &str = "2026-03-01T12:00:00Z";

fn raise(Span(_, end): Span) -> Switch {
    Switch {
        left: Span(CHANGED, end),
        from: ("guru", -600),
        to: ("pro", 3_000),
    }
}

/// The table in the documentation of `weir_payments::effects`.
fn table() -> Vec<Row> {
    let free = || standing("free", 500, 0, 0, false);
    let guru = || standing("guru", 6_000, 0, 0, false);
    let pro = || standing("pro", 51_000, 0, 0, false);
    let fresh = || standing("guru", 10_000, 0, 0, false);
    let ending = |standing: Standing| Standing {
        is_ending: true,
        ..standing
    };
    let unchanged = || [free(), guru(), pro(), guru()];
    let bought = |standing: Standing| Standing {
        topup: 5_000,
        ..standing
    };
    let row = |name, event, expected| Row {
        name,
        event,
        expected,
    };
    vec![
        row(
            "a checkout of the plan",
            |payer, _| payer.plan_bought("e", NOW, "guru"),
            [fresh(), guru(), pro(), guru()],
        ),
        row(
            "a checkout of credits",
            |payer, _| payer.credits_bought("e", NOW, "p", "small"),
            [
                bought(free()),
                bought(guru()),
                bought(pro()),
                bought(guru()),
            ],
        ),
        // With `collection_method` = `send_invoice`, a subscription is active before its invoice is paid:
        // https://docs.stripe.com/billing/collection-method.
        row(
            "created, of the period, and not paid",
            |payer, span| payer.subscription_is("created", "e", NOW, Like::active("guru", span)),
            unchanged(),
        ),
        row(
            "created, with a trial of the period",
            |payer, span| {
                let like = Like::active("guru", span).in_status("trialing");
                payer.subscription_is("created", "e", NOW, like)
            },
            [fresh(), guru(), pro(), guru()],
        ),
        row(
            "created, with its collection paused",
            |payer, span| {
                let like = Like::active("guru", span).in_status("trialing").paused();
                payer.subscription_is("created", "e", NOW, like)
            },
            unchanged(),
        ),
        row(
            "an upgrade that nobody has paid for yet",
            |payer, span| payer.subscription_is("updated", "e", NOW, Like::active("pro", span)),
            unchanged(),
        ),
        row(
            "an upgrade that was paid for: 33,000 less 6,000 credits",
            |payer, span| payer.switch_paid("e", NOW, "e", raise(span)),
            [
                // Its period is unknown.
                free(),
                standing("pro", 33_000, 0, 0, false),
                standing("pro", 78_000, 0, 0, false),
                // Its period is over.
                standing("guru", 6_000, 27_000, 0, false),
            ],
        ),
        row(
            "an upgrade whose lines have their own prices, twice those of the settings",
            |payer, span| {
                let mut event = payer.switch_paid("e", NOW, "e", raise(span));
                let lines = &mut event["data"]["object"]["lines"]["data"];
                lines[0]["price"]["unit_amount"] = json!(2_000);
                lines[1]["price"]["unit_amount"] = json!(10_000);
                event
            },
            [
                free(),
                standing("pro", 19_500, 0, 0, false),
                standing("pro", 64_500, 0, 0, false),
                standing("guru", 6_000, 13_500, 0, false),
            ],
        ),
        row(
            "an upgrade whose payment has failed",
            |payer, span| payer.switch_failed("e", NOW, raise(span)),
            unchanged(),
        ),
        row(
            "a downgrade that was invoiced: it takes nothing of what the period began with",
            |payer, Span(_, end)| {
                let switch = Switch {
                    left: Span(CHANGED, end),
                    from: ("pro", -3_000),
                    to: ("guru", 600),
                };
                payer.switch_paid("e", NOW, "e", switch)
            },
            unchanged(),
        ),
        row(
            "a downgrade within the period, which waits for the next",
            |payer, span| payer.subscription_is("updated", "e", NOW, Like::active("guru", span)),
            unchanged(),
        ),
        // Stripe sends it when the period begins, and charges the card about an hour later:
        // https://docs.stripe.com/billing/subscriptions/webhooks, read for API version 2024-12-18.acacia.
        row(
            "a renewal that is not charged yet",
            |payer, _| payer.subscription_is("updated", "e", NOW, Like::active("guru", NEXT)),
            unchanged(),
        ),
        row(
            "past due in the next period",
            |payer, _| {
                let like = Like::active("guru", NEXT).in_status("past_due");
                payer.subscription_is("updated", "e", NOW, like)
            },
            unchanged(),
        ),
        row(
            "to end with the period",
            |payer, span| {
                let like = Like::active("guru", span).ending();
                payer.subscription_is("updated", "e", NOW, like)
            },
            [free(), ending(guru()), ending(pro()), free()],
        ),
        row(
            "unpaid",
            |payer, span| {
                let like = Like::active("guru", span).in_status("unpaid");
                payer.subscription_is("updated", "e", NOW, like)
            },
            [free(), ending(guru()), ending(pro()), free()],
        ),
        row(
            "deleted",
            |payer, span| {
                let like = Like::active("guru", span).in_status("canceled");
                payer.subscription_is("deleted", "e", NOW, like)
            },
            [free(), ending(guru()), ending(pro()), free()],
        ),
        row(
            "a trial that will end",
            |payer, span| {
                let like = Like::active("guru", span).in_status("trialing");
                payer.subscription_is("trial_will_end", "e", NOW, like)
            },
            unchanged(),
        ),
        row(
            "an invoice paid, of the period",
            |payer, span| payer.invoice_paid("e", NOW, "e", "guru", span),
            [fresh(), guru(), pro(), guru()],
        ),
        row(
            "an invoice paid, of the next period",
            |payer, _| payer.invoice_paid("e", NOW, "e", "guru", NEXT),
            [fresh(), fresh(), fresh(), fresh()],
        ),
        row(
            "an invoice paid, of an earlier period",
            |payer, _| {
                let before = Span("2026-01-20T00:00:00Z", "2026-02-20T00:00:00Z");
                payer.invoice_paid("e", NOW, "e", "pro", before)
            },
            unchanged(),
        ),
        row(
            "an invoice that could not be paid",
            |payer, _| payer.invoice_failed("e", NOW, "guru", NEXT),
            unchanged(),
        ),
        row(
            "a payment for credits",
            |payer, _| payer.payment_is("succeeded", "e", NOW, "p", "small"),
            [
                bought(free()),
                bought(guru()),
                bought(pro()),
                bought(guru()),
            ],
        ),
        row(
            "a payment for credits that has failed",
            |payer, _| payer.payment_is("payment_failed", "e", NOW, "p", "small"),
            unchanged(),
        ),
        row(
            "a customer",
            |payer, _| payer.customer_created(NOW),
            unchanged(),
        ),
        row(
            "a refund of what is not known",
            |payer, _| payer.refunded("e", NOW, "other", 500),
            unchanged(),
        ),
        row(
            "a refund of the plan: of pro, a guru's worth of its price",
            |payer, _| payer.refunded("e", NOW, "period", 1_000),
            [
                free(),
                standing("guru", 0, 0, 4_000, false),
                standing("pro", 40_000, 0, 0, false),
                standing("guru", 0, 0, 4_000, false),
            ],
        ),
        row(
            "a dispute of half of guru's price",
            |payer, _| payer.disputed("e", NOW, "period", 500),
            [
                free(),
                standing("guru", 1_000, 0, 0, false),
                standing("pro", 45_500, 0, 0, false),
                standing("guru", 1_000, 0, 0, false),
            ],
        ),
    ]
}

#[tokio::test]
async fn each_event_has_its_effect_on_each_state_of_a_plan() {
    let before = "2026-03-01T00:00:00Z";
    each(before, async |gateway, processor, clock| {
        let rows = table();
        let states = [
            ("free", PRESENT),
            ("guru", PRESENT),
            ("pro", PRESENT),
            ("guru", OVER),
        ];
        let mut payers = Vec::new();
        for (number, row) in rows.iter().enumerate() {
            for (index, (plan, period)) in states.into_iter().enumerate() {
                let payer = payer(&gateway, &format!("user{number}-{index}")).await;
                if plan != "free" {
                    let start = "2026-02-20T00:00:10Z";
                    let paid = payer.invoice_paid("paid", start, "period", plan, period);
                    processor.tell(&paid).await;
                    spend(&gateway, &payer).await;
                }
                payers.push((row, index, period, payer));
            }
        }
        clock.set(at(NOW));
        for (row, index, period, payer) in payers {
            processor.tell(&(row.event)(&payer, period)).await;
            let found = payer.standing(gateway.app()).await;
            let expected = Standing {
                period_end: found.period_end.clone(),
                ..row.expected[index].clone()
            };
            assert_eq!(found, expected, "{}, {}", row.name, states[index].0);
        }
    })
    .await;
}

#[tokio::test]
async fn a_plan_that_is_cancelled_may_be_resumed_and_else_ends_with_its_period() {
    each(NOW, async |gateway, processor, clock| {
        let app = gateway.app();
        let guru = Like::active("guru", PRESENT);
        let payer = subscriber(&gateway, &processor, "carol", guru, 0).await;
        let cancelled =
            payer.subscription_is("updated", "2", "2026-03-03T00:01:00Z", guru.ending());
        processor.tell(&cancelled).await;
        assert!(payer.standing(app).await.is_ending);
        let resumed = payer.subscription_is("updated", "3", "2026-03-03T00:02:00Z", guru);
        processor.tell(&resumed).await;
        assert!(!payer.standing(app).await.is_ending);
        let row = payer.subscription_row(app).await.expect("a subscription");
        assert_eq!((&*row.0, &*row.1, row.3), ("active", "guru", false));
        let cancelled =
            payer.subscription_is("updated", "4", "2026-03-03T00:03:00Z", guru.ending());
        processor.tell(&cancelled).await;
        // The day after the period, without a grace.
        clock.set(at("2026-03-20T00:00:00Z"));
        let standing = payer.standing(app).await;
        assert_eq!((&*standing.plan, standing.plan_credits), ("free", 500));
        let over = guru.in_status("canceled");
        let over = payer.subscription_is("deleted", "5", "2026-03-20T00:00:00Z", over);
        processor.tell(&over).await;
        assert_eq!(payer.standing(app).await.plan, "free");
        assert_eq!(payer.subscription_row(app).await.expect("it").0, "canceled");
    })
    .await;
}

#[tokio::test]
async fn what_is_past_due_has_three_days_and_a_late_payment_renews_it() {
    each(NOW, async |gateway, processor, clock| {
        let app = gateway.app();
        let guru = Like::active("guru", PRESENT);
        let payer = subscriber(&gateway, &processor, "dave", guru, 0).await;
        let next = Span("2026-03-20T00:00:00Z", "2026-04-20T00:00:00Z");
        let due = Like::active("guru", next).in_status("past_due");
        clock.set(at("2026-03-20T01:00:00Z"));
        let failed = payer.invoice_failed("2", "2026-03-20T01:00:00Z", "guru", next);
        processor.tell(&failed).await;
        processor
            .tell(&payer.subscription_is("updated", "3", "2026-03-20T01:00:01Z", due))
            .await;
        assert_eq!(payer.notices(app).await, ["payment_failed"]);
        assert!(
            payer.subscription_row(app).await.expect("it").4,
            "it is flagged"
        );
        clock.set(at("2026-03-22T23:59:59Z"));
        assert_eq!(payer.standing(app).await.plan, "guru");
        clock.set(at("2026-03-23T00:00:00Z"));
        assert_eq!(payer.standing(app).await.plan, "free");
        let paid = payer.invoice_paid("4", "2026-03-25T00:00:00Z", "late", "guru", next);
        clock.set(at("2026-03-25T00:00:00Z"));
        processor.tell(&paid).await;
        let standing = payer.standing(app).await;
        assert_eq!((&*standing.plan, standing.plan_credits), ("guru", 10_000));
        assert_eq!(standing.period_end, "2026-04-20T00:00:00Z");
        assert!(
            !payer.subscription_row(app).await.expect("it").4,
            "it is not flagged"
        );
    })
    .await;
}

#[tokio::test]
async fn a_checkout_begins_a_period_whose_bounds_are_told_later() {
    each(NOW, async |gateway, processor, _| {
        let app = gateway.app();
        let payer = payer(&gateway, "erin").await;
        processor.tell(&payer.plan_bought("1", NOW, "guru")).await;
        let standing = payer.standing(app).await;
        assert_eq!((&*standing.plan, standing.plan_credits), ("guru", 10_000));
        assert_eq!(standing.period_end, "2026-04-03T00:00:00Z");
        spend(&gateway, &payer).await;
        // The period begins three seconds before the checkout was completed, and ends by the processor's calendar.
        let told = Span("2026-03-02T23:59:57Z", "2026-04-02T23:59:57Z");
        let guru = Like::active("guru", told);
        for repeat in ["2", "3"] {
            processor
                .tell(&payer.subscription_is("updated", repeat, NOW, guru))
                .await;
            let standing = payer.standing(app).await;
            assert_eq!((&*standing.plan, standing.plan_credits), ("guru", 6_000));
            assert_eq!(standing.period_end, "2026-04-02T23:59:57Z");
        }
        processor
            .tell(&payer.invoice_paid("4", NOW, "first", "guru", told))
            .await;
        assert_eq!(payer.standing(app).await.plan_credits, 6_000);
        let upgraded = Like::active("pro", told);
        processor
            .tell(&payer.subscription_is("updated", "5", NOW, upgraded))
            .await;
        assert_eq!(payer.standing(app).await.plan_credits, 6_000);
        let switch = Switch {
            left: Span("2026-03-03T00:01:00Z", told.1),
            from: ("guru", -1_000),
            to: ("pro", 5_000),
        };
        processor
            .tell(&payer.switch_paid("6", "2026-03-03T00:01:01Z", "raise", switch))
            .await;
        let standing = payer.standing(app).await;
        assert_eq!((&*standing.plan, standing.plan_credits), ("pro", 51_000));
    })
    .await;
}

/// Stripe reports a renewal about an hour before it charges the card
/// (<https://docs.stripe.com/billing/subscriptions/webhooks>), and a subscription that stays `active` while its
/// collection is paused (<https://docs.stripe.com/billing/subscriptions/pause-payment>).
#[tokio::test]
async fn a_later_period_is_granted_when_its_invoice_is_paid_and_not_before() {
    each(NOW, async |gateway, processor, clock| {
        let app = gateway.app();
        let guru = Like::active("guru", PRESENT);
        let payer = subscriber(&gateway, &processor, "mia", guru, 1).await;
        let next = Span("2026-03-20T00:00:00Z", "2026-04-20T00:00:00Z");
        let moment = "2026-03-20T00:00:01Z";
        clock.set(at(moment));
        for (id, like) in [
            ("2", Like::active("guru", next)),
            ("3", Like::active("pro", next)),
            ("4", Like::active("guru", next).paused()),
        ] {
            processor
                .tell(&payer.subscription_is("updated", id, moment, like))
                .await;
            let standing = payer.standing(app).await;
            assert_eq!((&*standing.plan, standing.plan_credits), ("guru", 6_000));
        }
        // An invoice of zero is no payment while the collection is paused.
        let mut nothing = payer.invoice_paid("5", "2026-03-20T00:30:00Z", "none", "guru", next);
        nothing["data"]["object"]["amount_paid"] = json!(0);
        processor.tell(&nothing).await;
        assert_eq!(payer.standing(app).await.plan_credits, 6_000);
        let paid = payer.invoice_paid("6", "2026-03-20T01:00:00Z", "paid", "guru", next);
        clock.set(at("2026-03-20T01:00:00Z"));
        processor.tell(&paid).await;
        let standing = payer.standing(app).await;
        assert_eq!((&*standing.plan, standing.plan_credits), ("guru", 10_000));
        assert_eq!(standing.period_end, "2026-04-20T00:00:00Z");
    })
    .await;
}

#[tokio::test]
async fn an_unpaid_renewal_ends_the_plan_and_the_user_may_buy_it_again() {
    each(NOW, async |gateway, processor, clock| {
        let app = gateway.app();
        let guru = Like::active("guru", PRESENT);
        let payer = subscriber(&gateway, &processor, "nora", guru, 0).await;
        let next = Like::active("guru", Span("2026-03-20T00:00:00Z", "2026-04-20T00:00:00Z"));
        for (moment, event) in [
            (
                "2026-03-20T00:00:01Z",
                payer.subscription_is("updated", "2", "2026-03-20T00:00:01Z", next),
            ),
            (
                "2026-03-20T01:00:00Z",
                payer.invoice_failed("3", "2026-03-20T01:00:00Z", "guru", next.period),
            ),
            (
                "2026-03-20T01:00:01Z",
                payer.subscription_is(
                    "updated",
                    "4",
                    "2026-03-20T01:00:01Z",
                    next.in_status("past_due"),
                ),
            ),
        ] {
            clock.set(at(moment));
            processor.tell(&event).await;
            assert_eq!(payer.standing(app).await.period_end, PRESENT.1, "{moment}");
        }
        clock.set(at("2026-03-22T00:00:00Z"));
        let unpaid = next.in_status("unpaid");
        processor
            .tell(&payer.subscription_is("updated", "5", "2026-03-22T00:00:00Z", unpaid))
            .await;
        let standing = payer.standing(app).await;
        assert_eq!((&*standing.plan, standing.plan_credits), ("free", 500));

        // Bought again: another subscription.
        clock.set(at("2026-03-23T00:00:00Z"));
        let again = |mut event: Value| {
            event["id"] = json!(format!("{}_again", event["id"].as_str().expect("an id")));
            let object = &mut event["data"]["object"];
            for field in ["id", "subscription"] {
                if object[field] == json!(payer.subscription()) {
                    object[field] = json!("sub_again");
                }
            }
            event
        };
        let period = Span("2026-03-23T00:00:00Z", "2026-04-23T00:00:00Z");
        processor
            .tell(&again(payer.plan_bought("6", period.0, "guru")))
            .await;
        let created = payer.subscription_is("created", "7", period.0, Like::active("guru", period));
        processor.tell(&again(created)).await;
        let paid = payer.invoice_paid("8", period.0, "again", "guru", period);
        processor.tell(&again(paid)).await;
        let standing = payer.standing(app).await;
        assert_eq!((&*standing.plan, standing.plan_credits), ("guru", 10_000));
        assert_eq!(
            (&*standing.period_end, standing.is_ending),
            (period.1, false)
        );
    })
    .await;
}

/// Up and down again within a minute, and up once more: the processor credits the payment on paper, and charges the
/// next upgrade against it.
#[tokio::test]
async fn credits_of_an_upgrade_go_back_with_its_price_and_are_given_once_for_one_payment() {
    each(NOW, async |gateway, processor, _| {
        let app = gateway.app();
        let guru = Like::active("guru", PRESENT);
        let payer = subscriber(&gateway, &processor, "olga", guru, 0).await;
        let left = Span(NOW, PRESENT.1);
        let up = Switch {
            left,
            from: ("guru", -607),
            to: ("pro", 3_036),
        };
        let down = Switch {
            left,
            from: ("pro", -3_036),
            to: ("guru", 607),
        };
        // 3,036 of 5,000 cents are 33,396 of 55,000 credits; 607 of 1,000 are 6,070 of 10,000.
        for (id, switch, credits) in [
            ("2", up, 37_326),
            ("3", down, 10_000),
            ("4", up, 37_326),
            ("5", down, 10_000),
            // A downgrade beyond the upgrades takes none of the period's own credits.
            ("6", down, 10_000),
            // Its price was refunded before.
            ("7", up, 10_000),
        ] {
            let invoice = payer.switch_paid(id, NOW, id, switch);
            for _ in 0..2 {
                processor.tell(&invoice).await;
            }
            let standing = payer.standing(app).await;
            assert_eq!((standing.plan_credits, standing.owed), (credits, 0), "{id}");
            // The lower plan comes with the next period.
            assert_eq!(standing.plan, "pro", "{id}");
        }
        // Credits spent before the refund of their price are owed.
        processor.tell(&payer.switch_paid("8", NOW, "8", up)).await;
        assert_eq!(payer.standing(app).await.plan_credits, 37_326);
        for _ in 0..8 {
            spend(&gateway, &payer).await;
        }
        processor
            .tell(&payer.switch_paid("9", NOW, "9", down))
            .await;
        let standing = payer.standing(app).await;
        assert_eq!((standing.plan_credits, standing.owed), (0, 22_000));
    })
    .await;
}

/// Cancel at once with prorations, subscribe again from the balance: the second month was for the same money.
#[tokio::test]
async fn cancelling_with_money_back_gives_credits_back_in_proportion() {
    each(NOW, async |gateway, processor, clock| {
        let app = gateway.app();
        let guru = Like::active("guru", PRESENT);
        let (moment, later) = ("2026-03-04T00:00:00Z", "2026-03-05T00:00:00Z");
        let left = Span(moment, PRESENT.1);
        let again = Span(later, "2026-04-05T00:00:00Z");
        let rows = [
            ("ada", 0, 4_290, 0, 10_000),
            ("bea", 1, 290, 0, 10_000),
            ("cleo", 2, 0, 3_710, 6_290),
        ];
        let mut payers = Vec::new();
        for (name, spent, ..) in rows {
            payers.push(subscriber(&gateway, &processor, name, guru, spent).await);
        }
        clock.set(at(moment));
        for ((name, spent, after, owed, _), payer) in rows.into_iter().zip(&payers) {
            // 571 of 1,000 cents.
            let credited = payer.cancellation_credited("2", moment, "guru", left, 571);
            let over = guru.in_status("canceled");
            let deleted = payer.subscription_is("deleted", "3", moment, over);
            let mut both = [&credited, &deleted];
            if spent == 1 {
                both.reverse();
            }
            for event in both.into_iter().chain(both) {
                processor.tell(event).await;
            }
            let standing = payer.standing(app).await;
            let found = (standing.plan_credits, standing.owed);
            assert_eq!(found, (after, owed), "{name}");
        }
        // Bought again: the balance pays for more than a half.
        clock.set(at(later));
        for ((name, .., anew), payer) in rows.into_iter().zip(&payers) {
            let paid = payer.invoice_paid("4", later, "again", "guru", again);
            let mut paid = about_another(paid, name);
            paid["data"]["object"]["total"] = json!(1_000);
            paid["data"]["object"]["amount_paid"] = json!(429);
            processor.tell(&paid).await;
            let standing = payer.standing(app).await;
            let found = (standing.plan_credits, standing.owed);
            assert_eq!(found, (anew, 0), "{name}");
            // A half of the price is a half of the credits, also if the balance has paid for more.
            let half = payer.credit_noted("5", later, "4", 500);
            processor.tell(&half).await;
            let standing = payer.standing(app).await;
            assert_eq!(standing.plan_credits, anew - 5_000, "{name}");
        }
    })
    .await;
}

/// The first period ends early, when a second subscription begins. Unspent credits lapse then, and spent ones are owed.
#[tokio::test]
async fn money_back_for_a_period_cut_short_takes_its_spent_credits() {
    each(NOW, async |gateway, processor, clock| {
        let app = gateway.app();
        let guru = Like::active("guru", PRESENT);
        let rows = [
            // Spent thousands, disputed cents, and credits of the second period afterwards.
            ("ida", 0, 1_000, 10_000),
            ("jo", 1, 500, 10_000),
            ("kay", 1, 1_000, 6_000),
            ("liv", 2, 1_000, 2_000),
            ("mae", 2, 300, 9_000),
        ];
        let mut payers = Vec::new();
        for (name, spent, ..) in rows {
            payers.push(subscriber(&gateway, &processor, name, guru, spent).await);
        }
        let later = "2026-03-05T00:00:00Z";
        clock.set(at(later));
        let again = Span(later, "2026-04-05T00:00:00Z");
        for ((name, _, cents, left), payer) in rows.into_iter().zip(&payers) {
            let over = guru.in_status("canceled");
            let deleted = payer.subscription_is("deleted", "3", later, over);
            let paid = payer.invoice_paid("4", later, "again", "guru", again);
            let paid = about_another(paid, name);
            // In two steps.
            let first = payer.refunded("5", later, "begun", cents / 2);
            let second = payer.disputed("6", later, "begun", cents - cents / 2);
            for event in [&deleted, &paid, &first, &second, &second] {
                processor.tell(event).await;
            }
            let standing = payer.standing(app).await;
            assert_eq!((standing.plan_credits, standing.owed), (left, 0), "{name}");
        }
    })
    .await;
}

/// A credit note whose refund has its own events, one for the customer's balance, and one that is voided
/// (<https://docs.stripe.com/api/credit_notes/object>).
#[tokio::test]
async fn credit_notes_take_credits_back_once() {
    each(NOW, async |gateway, processor, _| {
        let app = gateway.app();
        let payer = payer(&gateway, "dora").await;
        let early = payer.credit_noted("early", NOW, "begun", 100);
        processor.tell(&payer.customer_created(NOW)).await;
        processor.tell(&early).await;
        assert_eq!(processor.state_of(&early).await.0, "waiting");
        subscribe(&processor, &payer, Like::active("guru", PRESENT)).await;
        until_state(&processor, &early, "applied").await;
        assert_eq!(payer.standing(app).await.plan_credits, 9_000);
        let mut refunding = payer.credit_noted("refunding", NOW, "begun", 300);
        refunding["data"]["object"]["refund"] = json!("re_dora_r");
        refunding["data"]["object"]["customer_balance_transaction"] = Value::Null;
        let mut mixed = payer.credit_noted("mixed", NOW, "begun", 300);
        mixed["data"]["object"]["refund"] = json!("re_dora_r");
        let mut open = payer.credit_noted("open", NOW, "begun", 300);
        open["data"]["object"]["type"] = json!("pre_payment");
        for event in [
            payer.refund_is("created", "r", NOW, ["r", "begun"], (200, "succeeded")),
            payer.refunded("c", NOW, "begun", 200),
            refunding,
            // 100 of it are for the balance.
            mixed,
            open,
        ] {
            for _ in 0..2 {
                processor.tell(&event).await;
            }
        }
        assert_eq!(payer.standing(app).await.plan_credits, 6_000);
        let mut voided = early;
        voided["id"] = json!("evt_dora_voided");
        voided["type"] = json!("credit_note.voided");
        voided["data"]["object"]["status"] = json!("void");
        processor.tell(&voided).await;
        assert_eq!(payer.standing(app).await.plan_credits, 7_000);
    })
    .await;
}

/// Refunds that fail (<https://docs.stripe.com/refunds#failed-refunds>), and disputes by their result
/// (<https://docs.stripe.com/disputes/how-disputes-work>).
#[tokio::test]
async fn failed_refunds_and_won_disputes_give_credits_back_in_any_order() {
    type Story = fn(&Payer) -> Vec<Value>;
    let stories: [(&str, Story, i64); 7] = [
        (
            "a refund that failed",
            |payer| {
                vec![
                    payer.refund_is("created", "1", NOW, ["r", "p"], (250, "pending")),
                    payer.refunded("2", NOW, "p", 250),
                    payer.refund_is("failed", "3", NOW, ["r", "p"], (250, "failed")),
                ]
            },
            5_000,
        ),
        (
            "a refund that failed, told by another type of event only",
            |payer| {
                let mut updated = payer.refund_is("updated", "1", NOW, ["r", "p"], (250, "failed"));
                updated["type"] = json!("charge.refund.updated");
                vec![payer.refunded("2", NOW, "p", 250), updated]
            },
            5_000,
        ),
        (
            "one that failed and one that did not",
            |payer| {
                vec![
                    payer.refunded("1", NOW, "p", 250),
                    payer.refund_is("updated", "2", NOW, ["r", "p"], (250, "canceled")),
                    payer.refund_is("created", "3", NOW, ["s", "p"], (250, "succeeded")),
                ]
            },
            2_500,
        ),
        (
            "a dispute that was won",
            |payer| {
                vec![
                    payer.disputed("1", NOW, "p", 500),
                    payer.dispute_is(("closed", "won"), "2", NOW, ["1", "p"], &[500, -500]),
                    payer.dispute_is(
                        ("funds_reinstated", "won"),
                        "3",
                        NOW,
                        ["1", "p"],
                        &[500, -500, 500],
                    ),
                ]
            },
            5_000,
        ),
        (
            "a dispute that was lost",
            |payer| {
                vec![
                    payer.disputed("1", NOW, "p", 500),
                    payer.dispute_is(("closed", "lost"), "2", NOW, ["1", "p"], &[500, -500]),
                ]
            },
            0,
        ),
        (
            "a lost dispute of a payment that was partly refunded",
            |payer| {
                vec![
                    payer.refunded("1", NOW, "p", 200),
                    payer.dispute_is(("closed", "lost"), "2", NOW, ["d", "p"], &[500, -500]),
                    payer.dispute_is(
                        ("funds_reinstated", "lost"),
                        "3",
                        NOW,
                        ["d", "p"],
                        &[500, -500, 200],
                    ),
                ]
            },
            0,
        ),
        (
            "an inquiry that was closed",
            |payer| {
                vec![payer.dispute_is(("closed", "warning_closed"), "1", NOW, ["d", "p"], &[500])]
            },
            5_000,
        ),
    ];
    let orders = [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    each(NOW, async |gateway, processor, _| {
        let app = gateway.app();
        for (number, (what, story, expected)) in stories.into_iter().enumerate() {
            for (index, order) in orders.into_iter().enumerate() {
                let payer = payer(&gateway, &format!("payer{number}-{index}")).await;
                processor
                    .tell(&payer.payment_is("succeeded", "p", NOW, "p", "small"))
                    .await;
                let events = story(&payer);
                for place in order {
                    if let Some(event) = events.get(place) {
                        processor.tell(event).await;
                    }
                }
                let standing = payer.standing(app).await;
                assert_eq!(
                    (standing.topup, standing.owed),
                    (expected, 0),
                    "{what}, {order:?}"
                );
            }
        }
        let look = reconcile::look(&app.database, app.ledger.now().plus_days(1), Extent::All);
        assert_eq!(look.await.expect("the database answers"), []);
    })
    .await;
}

#[tokio::test]
async fn returned_credits_pay_owed_ones_and_may_be_taken_again() {
    each(NOW, async |gateway, processor, clock| {
        let app = gateway.app();
        let payer = payer(&gateway, "eva").await;
        let found = async || {
            let standing = payer.standing(app).await;
            (standing.plan_credits, standing.topup, standing.owed)
        };
        processor
            .tell(&payer.payment_is("succeeded", "1", NOW, "p", "small"))
            .await;
        // 500 of the plan, and 3,500 bought ones.
        spend(&gateway, &payer).await;
        processor.tell(&payer.disputed("2", NOW, "p", 500)).await;
        assert_eq!(found().await, (0, 0, 3_500));
        let won = payer.dispute_is(("closed", "won"), "3", NOW, ["2", "p"], &[500, -500]);
        for _ in 0..2 {
            processor.tell(&won).await;
        }
        assert_eq!(found().await, (0, 1_500, 0));
        // Refunded, failed, and refunded once more: each step counts.
        for (name, status, expected) in [
            ("r", "pending", (0, 0, 3_500)),
            ("r", "failed", (0, 1_500, 0)),
            ("s", "succeeded", (0, 0, 3_500)),
        ] {
            let id = format!("{name}-{status}");
            let refund = payer.refund_is("updated", &id, NOW, [name, "p"], (500, status));
            for _ in 0..2 {
                processor.tell(&refund).await;
            }
            assert_eq!(found().await, expected, "{id}");
        }
        let look = reconcile::look(&app.database, app.ledger.now().plus_days(1), Extent::All);
        assert_eq!(look.await.expect("the database answers"), []);

        // Credits of a plan whose period is over come back as credits that do not lapse.
        let guru = Like::active("guru", PRESENT);
        let payer = subscriber(&gateway, &processor, "fay", guru, 0).await;
        processor
            .tell(&payer.disputed("2", NOW, "begun", 500))
            .await;
        assert_eq!(payer.standing(app).await.plan_credits, 5_000);
        clock.set(at("2026-04-10T00:00:00Z"));
        let moment = "2026-04-10T00:00:00Z";
        let won = payer.dispute_is(("closed", "won"), "3", moment, ["2", "begun"], &[500, -500]);
        processor.tell(&won).await;
        let standing = payer.standing(app).await;
        assert_eq!((&*standing.plan, standing.topup), ("free", 5_000));
    })
    .await;
}

/// Without `always_invoice`, the processor adds a change's lines to the next invoice: then the period is over.
#[tokio::test]
async fn a_change_that_is_invoiced_with_the_renewal_gives_credits_that_do_not_lapse() {
    each(NOW, async |gateway, processor, clock| {
        let app = gateway.app();
        let guru = Like::active("guru", PRESENT);
        let payer = subscriber(&gateway, &processor, "pia", guru, 0).await;
        let next = Span("2026-03-20T00:00:00Z", "2026-04-20T00:00:00Z");
        let moment = "2026-03-20T01:00:00Z";
        clock.set(at(moment));
        let mut invoice = payer.invoice_paid("2", moment, "renewal", "pro", next);
        let switch = payer.switch_paid("x", moment, "x", raise(PRESENT));
        let lines = &mut invoice["data"]["object"]["lines"];
        let prorations = switch["data"]["object"]["lines"]["data"]
            .as_array()
            .expect("lines");
        let data = lines["data"].as_array_mut().expect("lines");
        data.extend(prorations.iter().cloned());
        for _ in 0..2 {
            processor.tell(&invoice).await;
        }
        let standing = payer.standing(app).await;
        assert_eq!(
            (&*standing.plan, standing.plan_credits, standing.topup),
            ("pro", 55_000, 27_000)
        );
    })
    .await;
}

#[tokio::test]
async fn a_plan_that_lapsed_by_mistake_is_granted_again_when_its_event_is_retried() {
    each(NOW, async |gateway, processor, clock| {
        let app = gateway.app();
        let admin = gateway.admin("root").await;
        let payer = payer(&gateway, "quinn").await;
        let paid = payer.invoice_paid("1", NOW, "1", "guru", PRESENT);
        processor.tell(&paid).await;
        // The time of day is wrong for a while, and the user sends a request meanwhile.
        clock.jump(40 * 86_400_000);
        let account = AccountId(payer.0.clone());
        let soon = tokio::time::Instant::now() + Duration::from_secs(10);
        let reset = app.ledger.submit(&account, Action::ResetPeriod, soon);
        reset.await.expect("the ledger answers");
        assert_eq!(payer.standing(app).await.plan, "free");
        clock.jump(-40 * 86_400_000);
        let violations = reconcile::look(&app.database, app.ledger.now().plus_days(1), Extent::All);
        let violations = violations.await.expect("the database answers");
        assert_eq!(
            violations[0].what,
            "the account is on the free plan within a period that is paid for"
        );
        let retry = format!(
            "/admin/payments/events/{}/retry",
            paid["id"].as_str().expect("an id")
        );
        let retried = admin.post(&retry, &json!({})).await;
        assert_eq!(retried.status, 200, "{}", retried.text());
        patiently(async {
            while payer.standing(app).await.plan != "guru" {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        let standing = payer.standing(app).await;
        assert_eq!(
            (standing.plan_credits, &*standing.period_end),
            (10_000, PRESENT.1)
        );
        until_state(&processor, &paid, "applied").await;
        // A repetition changes nothing.
        spend(&gateway, &payer).await;
        admin.post(&retry, &json!({})).await;
        until_state(&processor, &paid, "applied").await;
        assert_eq!(payer.standing(app).await.plan_credits, 6_000);
    })
    .await;
}

#[tokio::test]
async fn an_amount_in_another_currency_gives_nothing_and_takes_nothing() {
    each(NOW, async |gateway, processor, _| {
        let app = gateway.app();
        let payer = payer(&gateway, "rosa").await;
        let in_euros = |mut event: Value| {
            event["data"]["object"]["currency"] = json!("eur");
            event
        };
        let mut created = payer.subscription_is("created", "c", NOW, Like::active("guru", PRESENT));
        created["data"]["object"]["currency"] = json!("eur");
        processor.tell(&created).await;
        let events = [
            payer.credits_bought("1", NOW, "p", "small"),
            payer.payment_is("succeeded", "2", NOW, "p", "small"),
            payer.plan_bought("3", NOW, "guru"),
            payer.invoice_paid("4", NOW, "4", "guru", PRESENT),
        ];
        for event in events {
            let event = in_euros(event);
            processor.tell(&event).await;
            let (state, why) = processor.state_of(&event).await;
            assert_eq!(state, "failed", "{event}");
            assert!(
                why.starts_with("the amount is in eur, and the prices are in usd"),
                "{why}"
            );
        }
        let standing = payer.standing(app).await;
        assert_eq!((&*standing.plan, standing.topup), ("free", 0));
        let mut bought = payer.payment_is("succeeded", "5", NOW, "q", "small");
        bought["data"]["object"]["currency"] = json!("usd");
        processor.tell(&bought).await;
        let back = in_euros(payer.refunded("6", NOW, "q", 250));
        processor.tell(&back).await;
        let (state, why) = processor.state_of(&back).await;
        assert_eq!(state, "failed");
        assert!(
            why.starts_with("eur went back of a payment in usd"),
            "{why}"
        );
        assert_eq!(payer.standing(app).await.topup, 5_000);
    })
    .await;
}

#[tokio::test]
async fn operators_see_that_an_invoice_is_not_paid() {
    each(NOW, async |gateway, processor, _| {
        let admin = gateway.admin("root").await;
        let payer = payer(&gateway, "sven").await;
        let path = "/admin/users/sven";
        processor
            .tell(&payer.subscription_is("created", "1", NOW, Like::active("guru", PRESENT)))
            .await;
        let shown = admin.get(path).await.json();
        assert_eq!(shown["account"]["payment_failed_at"], Value::Null);
        processor
            .tell(&payer.invoice_failed("2", "2026-03-03T00:00:01Z", "guru", NEXT))
            .await;
        let shown = admin.get(path).await.json();
        assert_eq!(
            shown["account"]["payment_failed_at"],
            "2026-03-03T00:00:01Z"
        );
        let mut root = Browser::of(&gateway, "root").await;
        let html = root.page("/console/admin/users/sven").await;
        assert!(html.contains("is unpaid since"), "{html}");
        processor
            .tell(&payer.invoice_paid("3", "2026-03-03T00:00:02Z", "3", "guru", NEXT))
            .await;
        let shown = admin.get(path).await.json();
        assert_eq!(shown["account"]["payment_failed_at"], Value::Null);
    })
    .await;
}

#[tokio::test]
async fn verification_compares_payments_with_what_was_given() {
    each(NOW, async |gateway, processor, clock| {
        let app = gateway.app();
        let payer = payer(&gateway, "tina").await;
        for event in [
            payer.subscription_is("created", "1", NOW, Like::active("guru", PRESENT)),
            payer.invoice_paid("2", NOW, "2", "guru", PRESENT),
            payer.switch_paid("3", NOW, "3", raise(PRESENT)),
            payer.credits_bought("4", NOW, "p", "small"),
            payer.refunded("5", NOW, "p", 250),
        ] {
            processor.tell(&event).await;
        }
        clock.set(at("2026-03-20T01:00:00Z"));
        let next = Span("2026-03-20T00:00:00Z", "2026-04-20T00:00:00Z");
        let renewed = payer.invoice_paid("6", "2026-03-20T01:00:00Z", "6", "pro", next);
        processor.tell(&renewed).await;
        clock.advance(Duration::from_secs(3_600));
        let found = async || {
            let look = reconcile::look(&app.database, app.ledger.now(), Extent::New);
            let found = look.await.expect("the database answers");
            let found = found.into_iter();
            found
                .map(|found| (found.what, found.subject))
                .collect::<Vec<_>>()
        };
        assert_eq!(found().await, []);
        let (renewal, bought) = (payer.payment("6"), payer.payment("p"));
        let cut = |from: &str, to: &str| {
            format!(
                "UPDATE payment_events SET content = REPLACE(content, '\"has_more_lines\":{from}', \
                 '\"has_more_lines\":{to}') WHERE id = 'evt_tina_6'"
            )
        };
        for (tamper, mend, what, subject) in [
            (
                format!("UPDATE payments SET credits = credits + 1 WHERE id = '{bought}'"),
                format!("UPDATE payments SET credits = credits - 1 WHERE id = '{bought}'"),
                "a payment for credits gave other credits, or none",
                bought.clone(),
            ),
            (
                format!("UPDATE payments SET id = 'hidden' WHERE id = '{bought}'"),
                format!("UPDATE payments SET id = '{bought}' WHERE id = 'hidden'"),
                "credits were given for a payment that is not known",
                format!("topup:{bought}"),
            ),
            (
                format!("UPDATE payments SET refunded = 251 WHERE id = '{bought}'"),
                format!("UPDATE payments SET refunded = 250 WHERE id = '{bought}'"),
                "credits were not taken back with their payment",
                bought.clone(),
            ),
            (
                format!("UPDATE payments SET returns = 1 WHERE id = '{bought}'"),
                format!("UPDATE payments SET returns = 0 WHERE id = '{bought}'"),
                "credits were not taken back with their payment",
                bought.clone(),
            ),
            (
                cut("false", "true"),
                cut("true", "false"),
                "a paid invoice was applied without all its lines: retry its event",
                "evt_tina_6".to_owned(),
            ),
            (
                format!("UPDATE payments SET period_start = 0, period_end = 10 WHERE id = '{renewal}'"),
                format!(
                    "UPDATE payments SET period_start = {}, period_end = {} WHERE id = '{renewal}'",
                    at(next.0).0,
                    at(next.1).0
                ),
                "a period was granted that is not paid for",
                String::new(),
            ),
            (
                format!("UPDATE payments SET period_end = period_end + 7776000000 WHERE id = '{renewal}'"),
                format!("UPDATE payments SET period_end = {} WHERE id = '{renewal}'", at(next.1).0),
                "a period was paid for that is not granted",
                renewal.clone(),
            ),
            (
                "UPDATE accounts SET plan = 'free' WHERE id = 'tina'".to_owned(),
                "UPDATE accounts SET plan = 'pro' WHERE id = 'tina'".to_owned(),
                "the account is on the free plan within a period that is paid for",
                renewal.clone(),
            ),
            (
                "UPDATE payment_subscriptions SET id = 'hidden' WHERE user_id = 'tina'".to_owned(),
                format!(
                    "UPDATE payment_subscriptions SET id = '{}' WHERE user_id = 'tina'",
                    payer.subscription()
                ),
                "a plan was granted for a subscription that is not known",
                String::new(),
            ),
        ] {
            let change = async |text: String| {
                let changed = sqlx::query(sqlx::AssertSqlSafe(text));
                let changed = changed.execute(app.database.writer()).await;
                changed.expect("the database takes it");
            };
            change(tamper).await;
            let all = found().await;
            let is_it = |found: &&(&str, String)| {
                found.0 == what && (subject.is_empty() || found.1 == subject)
            };
            assert!(all.iter().any(|found| is_it(&found)), "{what}: {all:?}");
            change(mend).await;
            assert_eq!(found().await, [], "after {what}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_payment_credits_once_and_goes_back_in_proportion_whatever_is_told_twice() {
    each(NOW, async |gateway, processor, _| {
        let app = gateway.app();
        let payer = payer(&gateway, "frank").await;
        // The refund arrives before the payment itself.
        let half = payer.refunded("r1", NOW, "p", 250);
        processor.tell(&half).await;
        assert_eq!(processor.state_of(&half).await.0, "waiting");
        let bought = payer.credits_bought("c", NOW, "p", "small");
        let succeeded = payer.payment_is("succeeded", "s", NOW, "p", "small");
        for _ in 0..2 {
            processor.tell(&succeeded).await;
            processor.tell(&bought).await;
        }
        patiently(async {
            while payer.standing(app).await.topup != 2_500 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        until_state(&processor, &half, "applied").await;
        // An earlier report about the same charge, and then all of it, once as a refund and again as a dispute.
        processor.tell(&payer.refunded("r0", NOW, "p", 100)).await;
        assert_eq!(payer.standing(app).await.topup, 2_500);
        processor.tell(&payer.refunded("r2", NOW, "p", 500)).await;
        processor.tell(&payer.disputed("d", NOW, "p", 500)).await;
        let standing = payer.standing(app).await;
        assert_eq!((standing.topup, standing.owed), (0, 0));
        let payments = payer.payments(app).await;
        let (id, kind) = (payer.payment("p"), "topup".to_owned());
        assert_eq!(payments, [(id, kind, 5_000_000_000, 500, 500)]);
    })
    .await;
}

#[tokio::test]
async fn what_is_spent_already_is_owed_and_the_next_credits_pay_for_it() {
    each(NOW, async |gateway, processor, _| {
        let app = gateway.app();
        let payer = payer(&gateway, "grace").await;
        processor
            .tell(&payer.payment_is("succeeded", "1", NOW, "p", "small"))
            .await;
        spend(&gateway, &payer).await;
        processor.tell(&payer.refunded("2", NOW, "p", 500)).await;
        let standing = payer.standing(app).await;
        // 500 of the plan were spent first.
        assert_eq!((standing.topup, standing.owed), (0, 3_500));
        processor
            .tell(&payer.payment_is("succeeded", "3", NOW, "q", "small"))
            .await;
        let standing = payer.standing(app).await;
        assert_eq!((standing.topup, standing.owed), (1_500, 0));
    })
    .await;
}

/// A buyer cannot hold credits in long streams, take the payment back, and spend the credits when the streams end.
#[tokio::test]
async fn credits_held_during_a_dispute_cannot_be_spent_later() {
    let upstream = Upstream::start().await;
    on_each_database(
        NOW,
        |builder| builder.credits(0).upstream("scripted", &upstream),
        async |gateway, _| {
            let app = gateway.app();
            let processor = Processor::new(gateway.stranger(), gateway.app());
            let buyer = Payer(USER.to_owned());
            let paid = buyer.payment_is("succeeded", "1", NOW, "p", "small");
            processor.tell(&paid).await;
            let bought = buyer.standing(app).await;
            assert_eq!((bought.topup, bought.owed), (5_000, 0));
            let all = bought.plan_credits + bought.topup;

            // Eight streams hold most of the credits.
            let gate = Gate::new();
            let mut streams = Vec::new();
            for _ in 0..8 {
                upstream.will(Reply::chat_stream(["one ", "two"]).gate_before_piece(1, &gate));
                let mut body = chat("scripted", "count");
                body["max_tokens"] = 230_000.into();
                let mut stream = gateway.client().stream("/chat", &body).await;
                stream.next_chunk().await;
                streams.push(stream);
            }
            let account = app.ledger.find_account(&AccountId(USER.to_owned())).await;
            let account = account.expect("the database answers").expect("a user");
            assert!(account.held.total().rounded() > 5_000, "{account:?}");

            processor.tell(&buyer.disputed("d", NOW, "p", 500)).await;
            let disputed = buyer.standing(app).await;
            assert!(disputed.owed > 4_000, "{disputed:?}");
            gate.open();
            for stream in streams {
                stream.rest().await;
            }
            patiently(async {
                while !app.tasks.is_empty() {
                    tokio::task::yield_now().await;
                }
            })
            .await;
            let ended = buyer.standing(app).await;
            // The streams cost less than a credit, and the rest of the plan's credits is left.
            assert_eq!(
                (ended.owed, ended.plan_credits + ended.topup),
                (0, all - 5_000)
            );
            let violations = verify(&app.database, app.clock.now()).await;
            assert_eq!(violations.expect("the database answers"), []);
        },
    )
    .await;
}

#[tokio::test]
async fn events_about_nobody_known_wait_for_the_link() {
    each(NOW, async |gateway, processor, _| {
        let app = gateway.app();
        let payer = payer(&gateway, "heidi").await;
        let nameless = |mut event: Value| {
            event["data"]["object"]["metadata"] = json!({ "purpose": "topup", "tier": "small" });
            event["data"]["object"]["client_reference_id"] = Value::Null;
            event
        };
        let bought = nameless(payer.credits_bought("c", NOW, "p", "small"));
        let stranger = Payer("nobody".to_owned());
        let strange = stranger.payment_is("succeeded", "s", NOW, "p", "small");
        for waiting in [&bought, &strange] {
            processor.tell(waiting).await;
            let (state, why) = processor.state_of(waiting).await;
            assert_eq!(
                (&*state, &*why),
                ("waiting", "it is not known whom it is about")
            );
        }
        processor.tell(&payer.customer_created(NOW)).await;
        until_state(&processor, &bought, "applied").await;
        assert_eq!(payer.standing(app).await.topup, 5_000);
        assert_eq!(processor.state_of(&strange).await.0, "waiting");
    })
    .await;
}

#[tokio::test]
async fn unknown_events_are_kept_and_others_that_are_not_weirs_do_nothing() {
    each(NOW, async |gateway, processor, _| {
        let payer = payer(&gateway, "ivan").await;
        let price = event(
            "evt_price",
            "price.updated",
            NOW,
            &json!({ "id": "price_1" }),
        );
        processor.tell(&price).await;
        processor.tell(&price).await;
        let ignored = ("ignored".to_owned(), "unknown type".to_owned());
        assert_eq!(processor.state_of(&price).await, ignored);
        let mut other = payer.payment_is("succeeded", "o", NOW, "p", "small");
        other["data"]["object"]["metadata"] = json!({ "user_id": payer.0 });
        processor.tell(&other).await;
        assert_eq!(processor.state_of(&other).await.0, "ignored");
        let mut unpaid = payer.credits_bought("u", NOW, "q", "small");
        unpaid["data"]["object"]["payment_status"] = json!("unpaid");
        processor.tell(&unpaid).await;
        assert_eq!(payer.standing(gateway.app()).await.topup, 0);
        // Its payment comes later.
        processor
            .tell(&payer.payment_is("succeeded", "l", NOW, "q", "small"))
            .await;
        assert_eq!(payer.standing(gateway.app()).await.topup, 5_000);
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_applied_is_tried_again_and_holds_up_nothing() {
    each(NOW, async |gateway, processor, clock| {
        let app = gateway.app();
        let payer = payer(&gateway, "judy").await;
        let poison = payer.payment_is("succeeded", "bad", NOW, "p", "huge");
        processor.tell(&poison).await;
        let (state, why) = processor.state_of(&poison).await;
        assert_eq!((&*state, &*why), ("failed", "there is no tier \"huge\""));
        processor
            .tell(&payer.payment_is("succeeded", "good", NOW, "q", "small"))
            .await;
        assert_eq!(payer.standing(app).await.topup, 5_000);
        let attempts = async || -> i64 {
            sqlx::query_scalar("SELECT attempts FROM payment_events WHERE state = 'failed'")
                .fetch_one(app.database.reader())
                .await
                .expect("the database answers")
        };
        assert_eq!(attempts().await, 1);
        for attempt in 2..5 {
            clock.advance(Duration::from_secs(1 << (attempt - 2)));
            patiently(async {
                while attempts().await != attempt {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            })
            .await;
        }
    })
    .await;
}

/// Makes the database refuse a user's turn, as it may for any reason.
async fn refuse_turns_of(gateway: &Gateway, user: &str) {
    let database = &gateway.app().database;
    let statements = match database.dialect() {
        SqlDialect::Sqlite => vec![format!(
            "CREATE TRIGGER broken BEFORE INSERT ON payment_turns WHEN NEW.user_id = '{user}' \
             BEGIN SELECT RAISE(ABORT, 'on purpose'); END"
        )],
        SqlDialect::Postgres => vec![
            "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN RAISE EXCEPTION ''on purpose''; END'"
                .to_owned(),
            format!(
                "CREATE TRIGGER broken BEFORE INSERT ON payment_turns FOR EACH ROW \
                 WHEN (NEW.user_id = '{user}') EXECUTE FUNCTION fail()"
            ),
        ],
    };
    for statement in statements {
        let done = sqlx::query(AssertSqlSafe(statement)).execute(database.writer());
        done.await.expect("a trigger can be made");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_the_database_drops_no_other_event_that_is_being_applied() {
    each(NOW, async |gateway, processor, clock| {
        let app = gateway.app();
        // The first user in any order.
        refuse_turns_of(&gateway, "a0").await;
        // At the same time: a response waits two seconds for an event that is not applied.
        let arrive = async |number: usize| {
            let payer = payer(&gateway, &format!("a{number}")).await;
            // Another holder has every turn for a second, so that all events are due at one moment.
            let taken = sqlx::query(
                "INSERT INTO payment_turns (user_id, holder, until) SELECT CAST($1 AS TEXT), 'gone', $2 WHERE $1 <> 'a0'",
            );
            let until = app.ledger.now().0 + 1_000;
            let taken = taken.bind(payer.0.clone()).bind(until);
            taken
                .execute(app.database.writer())
                .await
                .expect("the database answers");
            let event = payer.payment_is("succeeded", "1", NOW, "p", "small");
            processor.hand_in(&event).await;
            (payer, event)
        };
        let events = join_all((0..24).map(arrive)).await;
        clock.advance(Duration::from_secs(1));
        for (payer, event) in &events[1..] {
            until_state(&processor, event, "applied").await;
            assert_eq!(payer.standing(app).await.topup, 5_000);
        }
        let (state, why) = processor.state_of(&events[0].1).await;
        assert_eq!(state, "failed");
        assert!(why.starts_with("the database: "), "{why}");
        let mended = match app.database.dialect() {
            SqlDialect::Sqlite => "DROP TRIGGER broken",
            SqlDialect::Postgres => "DROP TRIGGER broken ON payment_turns",
        };
        let mended = sqlx::query(mended).execute(app.database.writer());
        mended.await.expect("the trigger is there");
        clock.advance(Duration::from_secs(3_600));
        until_state(&processor, &events[0].1, "applied").await;
        assert_eq!(events[0].0.standing(app).await.topup, 5_000);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_event_goes_before_all_retries() {
    const RETRIES: i64 = 4_000;
    each(NOW, async |gateway, processor, clock| {
        let app = gateway.app();
        let payer = payer(&gateway, "nora").await;
        let stuck = payer.refunded("w", NOW, "p", 500);
        processor.tell(&stuck).await;
        let copied = sqlx::query(
            "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < $1) \
             INSERT INTO payment_events (id, type, created_at, received_at, content, customer_id, subject, state, attempts, \
             next_attempt_at) SELECT 'evt_stuck_' || CAST(n AS TEXT), type, created_at, received_at, \
             REPLACE(content, 'nora', 'nobody'), 'cus_' || CAST(n AS TEXT), subject, 'waiting', 1, $2 \
             FROM payment_events, numbers WHERE subject = $3",
        );
        let due = app.ledger.now().0 + 10_000;
        let copied = copied.bind(RETRIES).bind(due).bind(payer.payment("p"));
        let copied = copied.execute(app.database.writer()).await;
        assert_eq!(copied.expect("copies").rows_affected(), RETRIES as u64);
        clock.advance(Duration::from_secs(10));
        // They have begun, and this one comes after them.
        let again = async || -> i64 {
            let again = "SELECT CAST(COUNT(*) AS BIGINT) FROM payment_events WHERE id LIKE 'evt_stuck_%' AND attempts > 1";
            let again = sqlx::query_scalar(again).fetch_one(app.database.reader());
            again.await.expect("the database answers")
        };
        patiently(async {
            while again().await == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        let new = payer.payment_is("succeeded", "new", NOW, "q", "small");
        processor.hand_in(&new).await;
        until_state(&processor, &new, "applied").await;
        let again = again().await;
        assert!(again < RETRIES, "all {again} retries came first");
        assert_eq!(payer.standing(app).await.topup, 5_000);
    })
    .await;
}

#[tokio::test]
async fn an_event_that_nothing_can_be_done_about_has_failed_after_three_days() {
    each(NOW, async |gateway, processor, clock| {
        let payer = payer(&gateway, "omar").await;
        let waiting = payer.refunded("w", NOW, "p", 500);
        let id = waiting["id"].as_str().expect("an id").to_owned();
        processor.tell(&payer.customer_created(NOW)).await;
        processor.tell(&waiting).await;
        let attempts = async || -> i64 {
            let attempts = sqlx::query_scalar("SELECT attempts FROM payment_events WHERE id = $1")
                .bind(&*id)
                .fetch_one(gateway.app().database.reader());
            attempts.await.expect("the database answers")
        };
        let tried_after = async |hours: u64| {
            let before = attempts().await;
            clock.advance(Duration::from_secs(hours * 3_600));
            patiently(async {
                while attempts().await == before {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            })
            .await;
        };
        // Tokens are valid for an hour.
        let shown = async || {
            let admin = gateway.admin("root").await;
            let shown = admin.get("/admin/payments/events").await.json();
            let events = shown["events"].as_array().expect("a list").clone();
            let of_id = |event: &Value| event["event_id"] == *id;
            events.into_iter().find(of_id).expect("it is kept")
        };
        let given_up = async || {
            let metrics = gateway.stranger().get("/metrics").await.text();
            let name = "weir_payment_events_total{outcome=\"given_up\"} ";
            let line = metrics.lines().find_map(|line| line.strip_prefix(name));
            line.map_or(0, |count| count.parse().expect("a number"))
        };
        tried_after(71).await;
        let event = shown().await;
        assert_eq!(event["state"], "waiting");
        assert_ne!(event["next_attempt_at"], Value::Null);
        assert_eq!(given_up().await, 0);
        tried_after(2).await;
        let event = shown().await;
        assert_eq!(
            (&event["state"], &event["next_attempt_at"], &event["error"]),
            (
                &json!("failed"),
                &Value::Null,
                &json!("the payment is not known yet")
            )
        );
        assert_eq!(given_up().await, 1);

        // An operator may retry it, for as long.
        let retry = format!("/admin/payments/events/{id}/retry");
        let admin = gateway.admin("root").await;
        assert_eq!(admin.post(&retry, &json!({})).await.status, 200);
        until_state(&processor, &waiting, "waiting").await;
        patiently(async {
            while attempts().await == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        assert_ne!(shown().await["next_attempt_at"], Value::Null);
        tried_after(73).await;
        assert_eq!(shown().await["next_attempt_at"], Value::Null);
        assert_eq!(given_up().await, 2);
        // The missing event comes after all.
        processor
            .tell(&payer.payment_is("succeeded", "s", NOW, "p", "small"))
            .await;
        until_state(&processor, &waiting, "applied").await;
        assert_eq!(payer.standing(gateway.app()).await.topup, 0);
    })
    .await;
}

/// A little of the row L8 of `cargo torture`.
async fn shuffle(gateway: &Gateway, nodes: &[Processor], clock: &ManualClock, seed: u64) {
    let app = gateway.app();
    let reference = payer(gateway, "reference").await;
    for event in reference.story() {
        nodes[0].tell(&event).await;
    }
    assert!(reference.until_applied(&nodes[0], clock).await);
    let expected = Standing {
        plan: "pro".to_owned(),
        // 10,000, and 53,229 less 9,680 of the upgrade, less 5,000 of the dispute and 1,000 of the credit note.
        plan_credits: 47_549,
        topup: 13_750,
        owed: 0,
        is_ending: true,
        period_end: "2026-04-20T00:00:00Z".to_owned(),
    };
    assert_eq!(reference.standing(app).await, expected);
    let kinds = ["payment_failed", "payment_failed", "trial_ending"];
    assert_eq!(reference.notices(app).await, kinds);
    let reference = reference.outcome(app).await;
    let mut random = Random::new(seed);
    for round in 0..3 {
        let payer = payer(gateway, &format!("shuffled{round}")).await;
        payer.tell_shuffled(nodes, &mut random).await;
        assert!(payer.until_applied(&nodes[0], clock).await);
        assert_eq!(
            payer.outcome(app).await,
            reference,
            "seed {seed}, round {round}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_come_to_the_same_in_any_order_however_often_they_come() {
    let clock = ManualClock::at(at(AFTER_THE_STORY));
    let gateway = Gateway::builder().clock(&clock).start().await;
    let nodes = [Processor::new(gateway.stranger(), gateway.app())];
    shuffle(&gateway, &nodes, &clock, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_apply_events_as_one_does() {
    let clock = ManualClock::at(at(AFTER_THE_STORY));
    let url = Postgres::shared().create_database().await;
    let on_it = || Gateway::builder().clock(&clock).postgres(&url);
    let first = on_it().start().await;
    let second = on_it().sharing_secrets_of(&first).start().await;
    let nodes = [&first, &second].map(|node| Processor::new(node.stranger(), node.app()));
    shuffle(&first, &nodes, &clock, 2).await;
}

#[tokio::test]
async fn operators_see_events_and_have_them_tried_again() {
    each(NOW, async |gateway, processor, clock| {
        let app = gateway.app();
        let payer = payer(&gateway, "kim").await;
        let admin = gateway.admin("root").await;
        let waiting = payer.refunded("w", NOW, "p", 500);
        let strange = event(
            "evt_price",
            "price.updated",
            NOW,
            &json!({ "id": "price_1" }),
        );
        let failed = payer.payment_is("succeeded", "f", NOW, "q", "huge");
        let applied = payer.payment_is("succeeded", "a", NOW, "r", "small");
        // Each at its own moment.
        for event in [
            &payer.customer_created(NOW),
            &waiting,
            &strange,
            &failed,
            &applied,
        ] {
            processor.tell(event).await;
            clock.advance(Duration::from_millis(10));
        }
        let path = "/admin/payments/events";
        let list = async |query: &str| admin.get(&format!("{path}{query}")).await.json();
        let ids = |list: &Value| -> Vec<String> {
            let events = list["events"].as_array().expect("a list");
            let id = |event: &Value| event["event_id"].as_str().expect("an id").to_owned();
            events.iter().map(id).collect()
        };
        let id = |event: &Value| event["id"].as_str().expect("an id").to_owned();
        let all = list("").await;
        let expected = [&applied, &failed, &strange, &waiting].map(id);
        assert_eq!(ids(&all)[..4], expected);
        assert_eq!((ids(&all).len(), &all["next"]), (5, &Value::Null));
        for (state, event) in [
            ("failed", &failed),
            ("ignored", &strange),
            ("waiting", &waiting),
        ] {
            assert_eq!(
                ids(&list(&format!("?state={state}")).await),
                [id(event)],
                "{state}"
            );
        }
        let first = list("?limit=3&user_id=kim").await;
        let next = first["next"].as_str().expect("more");
        let rest = list(&format!("?limit=3&user_id=kim&before={next}")).await;
        let mine = [ids(&first), ids(&rest)].concat();
        assert_eq!(mine.len(), 4);
        assert!(!mine.contains(&id(&strange)));
        let item = &all["events"][0];
        assert_eq!(
            (
                &item["type"],
                &item["state"],
                &item["outcome"],
                &item["user_id"]
            ),
            (
                &json!("payment_intent.succeeded"),
                &json!("applied"),
                &json!("5000 credits"),
                &json!("kim")
            )
        );
        assert_eq!(all["events"][1]["error"], "there is no tier \"huge\"");
        admin
            .get(&format!("{path}?state=odd"))
            .await
            .error(400, "INVALID_REQUEST");
        admin
            .get(&format!("{path}?before=odd"))
            .await
            .error(400, "INVALID_REQUEST");

        let retry = async |event: &Value| {
            let retry = format!("{path}/{}/retry", id(event));
            admin.post(&retry, &json!({})).await
        };
        for event in [&failed, &applied] {
            let retried = retry(event).await;
            assert_eq!(retried.status, 200, "{}", retried.text());
        }
        until_state(&processor, &applied, "applied").await;
        until_state(&processor, &failed, "failed").await;
        assert_eq!(
            payer.standing(app).await.topup,
            5_000,
            "it has credited once"
        );
        retry(&strange).await.error(409, "NOT_POSSIBLE");
        let unknown = format!("{path}/evt_none/retry");
        admin
            .post(&unknown, &json!({}))
            .await
            .error(404, "NOT_FOUND");
        let audited = admin
            .get("/admin/audit?kind=payment_event.retried")
            .await
            .json();
        assert_eq!(audited["events"].as_array().expect("a list").len(), 2);
    })
    .await;
}

#[tokio::test]
async fn operators_put_credits_right_and_statements_say_why() {
    each(NOW, async |gateway, processor, _| {
        let admin = gateway.admin("root").await;
        let alice = Payer(USER.to_owned());
        let path = format!("/admin/users/{USER}/adjust");
        let give = json!({ "credits": 12.5, "reason": "the outage of 2 March", "id": "t-1" });
        for _ in 0..2 {
            let given = admin.post(&path, &give).await.json();
            assert_eq!(given["account"]["topup_balance"], 12.5);
        }
        let other = json!({ "credits": 13, "reason": "the outage of 2 March", "id": "t-1" });
        admin.post(&path, &other).await.error(409, "ID_REUSED");
        let take =
            |credits: Value| json!({ "credits": credits, "reason": "twice", "pool": "plan" });
        let taken = admin.post(&path, &take(json!(-100))).await.json();
        assert_eq!(taken["account"]["plan_credits_remaining"], 400);
        admin
            .post(&path, &take(json!(-400.000_001)))
            .await
            .error(409, "NOT_POSSIBLE");
        for (body, field) in [
            (take(json!(0)), "credits"),
            (take(json!("1")), "credits"),
            (take(json!(1.000_000_1)), "credits"),
            (json!({ "credits": 1 }), ""),
            (json!({ "credits": 1, "reason": "" }), "reason"),
            (json!({ "credits": 1, "reason": "x", "id": "a\nb" }), "id"),
            (
                json!({ "credits": 1, "reason": "x", "pool": "other" }),
                "pool",
            ),
        ] {
            let refused = admin.post(&path, &body).await.error(400, "INVALID_REQUEST");
            assert_eq!(
                refused["param"].as_str().unwrap_or_default(),
                field,
                "{body}"
            );
        }
        // Owed credits, and the part that the next ones pay.
        processor
            .tell(&alice.payment_is("succeeded", "1", NOW, "p", "small"))
            .await;
        spend(&gateway, &alice).await;
        processor.tell(&alice.refunded("2", NOW, "p", 500)).await;
        let owed = admin.get(&format!("/admin/users/{USER}")).await.json();
        assert_eq!(owed["account"]["owed_credits"], 3_587.5);
        processor
            .tell(&alice.payment_is("succeeded", "3", NOW, "q", "small"))
            .await;
        let statement = gateway.client().get("/billing/transactions").await.json();
        let lines = statement["transactions"].as_array().expect("a list");
        let kinds: Vec<_> = lines
            .iter()
            .map(|line| line["kind"].as_str().expect("a kind"))
            .collect();
        let expected = [
            "owed_collected",
            "top_up",
            "refund",
            "settlement",
            "top_up",
            "adjustment",
            "grant",
            "adjustment",
        ];
        assert_eq!(kinds, expected);
        assert_eq!(
            (&lines[0]["owed_credits"], &lines[0]["topup_credits"]),
            (&json!(-3_587.5), &json!(-3_587.5))
        );
        assert_eq!(lines[2]["owed_credits"], 3_587.5);
        assert_eq!(lines[5]["reason"], "twice");
        assert_eq!(
            (&lines[7]["reason"], &lines[7]["reference"]),
            (&give["reason"], &json!("adjust:t-1"))
        );
        let audited = admin.get("/admin/audit?kind=user.adjusted").await.json();
        let audited = audited["events"].as_array().expect("a list");
        let counts = audited.iter().filter_map(|event| event["count"].as_i64());
        assert_eq!(counts.sum::<i64>(), 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_processors_own_library_signs_what_weir_takes_and_takes_what_weir_signs() {
    let gateway = Gateway::builder().credits(0).start().await;
    let processor = Processor::new(gateway.stranger(), gateway.app());
    let alice = Payer(USER.to_owned());
    let body = alice
        .payment_is("succeeded", "1", NOW, "p", "small")
        .to_string();
    let header = processor.signature(&body);
    let url = format!("http://{}{WEBHOOK}", gateway.address());
    let secrets = &gateway.app().payments.webhook_secrets;
    let arguments = [&*url, secrets[0].expose(), &body, &header];
    sdk::run("payment_signature.py", &arguments).await;
    assert_eq!(alice.standing(gateway.app()).await.topup, 5_000);
}

#[tokio::test]
async fn what_users_are_to_be_told_is_delivered_signed_and_kept_for_them() {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("secret");
    std::fs::write(&file, secret).expect("the folder can be written");
    let receiver = Upstream::start().await;
    receiver
        .will(Reply::error(500, "no"))
        .always(Reply::json(200, &json!({})));
    let tables = format!(
        "[payments]\nnotice_url = \"{}/notices\"\nnotice_secret = {{ file = {file:?} }}\n",
        receiver.base_url()
    );
    let builder = |builder: Builder| builder.credits(0).tables(&tables);
    let clock = ManualClock::at(at(NOW));
    let gateway = builder(Gateway::builder().clock(&clock)).start().await;
    let processor = Processor::new(gateway.stranger(), gateway.app());
    let alice = Payer(USER.to_owned());
    let failed = alice.payment_is("payment_failed", "1", NOW, "p", "small");
    processor.tell(&failed).await;
    let first = receiver.next_request().await;
    patiently(async {
        while receiver.count() < 2 {
            clock.advance(Duration::from_millis(100));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let second = receiver.next_request().await;
    let id = second.header("webhook-id").expect("it is named");
    assert_eq!(first.header("webhook-id"), Some(id));
    let seconds = second.header("webhook-timestamp").expect("it is dated");
    let seconds = seconds.parse().expect("a number");
    let signed = webhook::headers(&Secret::new(secret.to_owned()), id, seconds, &second.body);
    let signed = signed.expect("it can be signed");
    let signature = signed["webhook-signature"].to_str().expect("ASCII");
    assert_eq!(second.header("webhook-signature"), Some(signature));
    let told = second.json();
    assert_eq!(
        (
            &told["type"],
            &told["data"]["user_id"],
            &told["data"]["error"]
        ),
        (
            &json!("payment_failed"),
            &json!(USER),
            &json!("insufficient_funds")
        )
    );
    // Once for each payment.
    processor
        .tell(&alice.payment_is("payment_failed", "2", NOW, "p", "small"))
        .await;
    clock.advance(Duration::from_secs(10));
    processor
        .tell(&alice.payment_is("payment_failed", "3", NOW, "q", "small"))
        .await;
    let client = gateway.client();
    let list = async |query: &str| client.get(&format!("/billing/notices{query}")).await.json();
    let all = list("").await;
    let notices = all["notices"].as_array().expect("a list");
    assert_eq!((notices.len(), &all["next"]), (2, &Value::Null));
    assert_eq!(notices[1]["data"]["payment_id"], json!(alice.payment("p")));
    let part = list("?limit=1").await;
    let next = part["next"].as_str().expect("more");
    let rest = list(&format!("?limit=1&before={next}")).await;
    assert_eq!(rest["notices"][0], notices[1]);
    let strange = gateway
        .web("mallory")
        .get(&format!("/billing/notices?before={next}"))
        .await;
    strange.error(400, "INVALID_REQUEST");
    assert_eq!(
        gateway.web("mallory").get("/billing/notices").await.json()["notices"],
        json!([])
    );
}

#[tokio::test]
async fn commands_show_events_and_put_credits_right() {
    let clock = ManualClock::at(at(NOW));
    let gateway = Gateway::builder().clock(&clock).credits(0).start().await;
    let processor = Processor::new(gateway.stranger(), gateway.app());
    let alice = Payer(USER.to_owned());
    let applied = alice.payment_is("succeeded", "a", NOW, "p", "small");
    let failed = alice.payment_is("succeeded", "f", NOW, "q", "huge");
    for event in [&applied, &failed] {
        processor.tell(event).await;
        clock.advance(Duration::from_millis(10));
    }
    // No gateway runs there any more: the commands work on its database.
    drop(processor);
    let folder = gateway.stop().await;
    std::fs::write(folder.path().join("weir.toml"), "data_dir = \"data\"\n").expect("a file");
    let weir = |arguments: &[&str]| {
        let output = run(folder.path(), arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let listed = weir(&["payments", "events"]);
    let lines: Vec<_> = listed.lines().collect();
    assert!(lines[0].starts_with("EVENT"), "{listed}");
    assert!(
        lines[1].starts_with("evt_alice_f") && lines[1].ends_with("there is no tier \"huge\""),
        "{listed}"
    );
    assert!(
        lines[2].starts_with("evt_alice_a") && lines[2].ends_with("5000 credits"),
        "{listed}"
    );
    let json = weir(&["payments", "events", "--state", "failed", "--json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["events"][0]["event_id"], failed["id"]);
    assert_eq!(json["events"].as_array().expect("a list").len(), 1);
    let retried = weir(&["payments", "retry", "evt_alice_f"]);
    assert!(retried.starts_with("Scheduled evt_alice_f"), "{retried}");
    let refused = run(folder.path(), &["payments", "retry", "evt_none"]);
    assert!(
        text(&refused.stderr).contains("evt_none"),
        "{}",
        text(&refused.stderr)
    );

    let adjust = [
        "user",
        "adjust",
        "--user",
        USER,
        "--reason",
        "twice",
        "--credits",
    ];
    let taken = weir(&[&adjust[..], &["-1.5"]].concat());
    assert_eq!(taken, "alice has 1.5 credits less.\n");
    let given = weir(&[&adjust[..], &["2", "--plan"]].concat());
    assert_eq!(given, "alice has 2 credits more.\n");
    let too_many = run(folder.path(), &[&adjust[..], &["-5000"]].concat());
    assert!(!too_many.status.success());
    let shown = weir(&["user", "show", "--user", USER, "--json"]);
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(
        (
            &shown["account"]["topup_balance"],
            &shown["account"]["owed_credits"]
        ),
        (&json!(4_998.5), &json!(0))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_is_applied_when_the_database_is_back() {
    let postgres = Postgres::start(Durability::Fast);
    let url = postgres.create_database().await;
    let gateway = Gateway::builder().postgres(&url).credits(0).impatient();
    let gateway = gateway.start().await;
    let app = gateway.app();
    let processor = Processor::new(gateway.stranger(), app);
    let payer = payer(&gateway, "leo").await;
    // Another holder has the turn, so that the event waits, and then the database fails.
    let turn = "INSERT INTO payment_turns (user_id, holder, until) VALUES ('leo', 'gone', $1)";
    let until = app.ledger.now().0 + 3_000;
    let taken = sqlx::query(turn).bind(until).execute(app.database.writer());
    taken.await.expect("the database answers");
    let kept = payer.payment_is("succeeded", "1", NOW, "p", "small");
    processor.hand_in(&kept).await;
    assert_eq!(payer.standing(app).await.topup, 0);
    postgres.kill();
    // An event that cannot be stored is not acknowledged; the processor sends it again.
    let lost = payer.payment_is("succeeded", "2", NOW, "q", "small");
    processor.send(&lost).await.error(503, "STORE_UNAVAILABLE");
    postgres.restart();
    patiently(async {
        while processor.send(&lost).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        loop {
            let account = app.ledger.find_account(&AccountId("leo".to_owned())).await;
            let bought = account.ok().flatten().map(|account| account.balance.top_up);
            if bought == Some(Credits::whole(10_000)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    until_state(&processor, &kept, "applied").await;
    until_state(&processor, &lost, "applied").await;
}

/// `host/docs/payments.md` has the table that `EventType` gives, and subscribes to the same events.
#[test]
fn the_documentation_lists_every_event() {
    let path = root().join("host/docs/payments.md");
    let text = fs::read_to_string(path).expect("the documentation");
    let rows = EventType::ALL
        .iter()
        .map(|kind| format!("| `{}` | {} |\n", kind.name(), kind.effect()));
    let table = format!(
        "| Event | Effect |\n|---|---|\n{}",
        rows.collect::<String>()
    );
    assert!(text.contains(&table), "it should have this table:\n{table}");
    let subscribed = text.split("enabled_events[]=").skip(1).map(|rest| {
        let name = rest.split('\'').next().expect("the name");
        EventType::of(name).unwrap_or_else(|| panic!("weir does not read {name}"))
    });
    let subscribed: Vec<_> = subscribed.collect();
    for kind in EventType::ALL {
        assert!(subscribed.contains(kind), "no subscription to {kind:?}");
    }
}
