//! Exports: requests and sums as CSV, and a month in the columns of FOCUS. Exact, complete, and without formulas.

use axum::extract::FromRef as _;
use std::collections::BTreeMap;
use weir_accounts::vouchers::VoucherParts;

use serde_json::{Value, json};
use tests::client::patiently;
use tests::gateway::{USER, on_each_database};
use tests::ledger::{Served, create_users, hold, serve, serve_many, settle};
use tests::payments::{Payer, Processor, Span};
use tests::{Answer, Client, Gateway, Reply, Upstream, chat};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use weir_ledger::{AccountId, plans};
use weir_storage::clock::{ManualClock, Millis};

const START: &str = "2026-01-30T12:00:00Z";

const SERVED: Served<'static> = Served {
    user: USER,
    model: "small",
    provider: "p",
    credits: 1_500_001,
    cost: 7,
};

async fn each(test: impl AsyncFn(Gateway, ManualClock)) {
    on_each_database(START, |builder| builder, test).await;
}

/// Returns the headings of a table, and its cells as a spreadsheet reads them.
fn table(answer: &Answer) -> (Vec<String>, Vec<Vec<String>>) {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.headers["content-type"], "text/csv; charset=utf-8");
    assert!(answer.text().ends_with("\r\n"), "{}", answer.text());
    let mut table = csv::ReaderBuilder::new();
    let table = table.has_headers(false).from_reader(&*answer.body);
    // A line of another length than the headings is an error.
    let lines = table.into_deserialize::<Vec<String>>();
    let mut lines: Vec<_> = lines.collect::<Result<_, _>>().expect("a table");
    let headings = lines.remove(0);
    (headings, lines)
}

/// Returns the lines of a table by their headings.
fn rows(answer: &Answer) -> Vec<BTreeMap<String, String>> {
    let (headings, lines) = table(answer);
    let row = |line: Vec<String>| headings.iter().cloned().zip(line).collect();
    lines.into_iter().map(row).collect()
}

type Row = BTreeMap<String, String>;

/// Returns the lines of an export about requests.
fn of_usage(answer: &Answer) -> Vec<Row> {
    let mut rows = rows(answer);
    rows.retain(|row| row["ChargeCategory"] == "Usage");
    rows
}

/// Parses a number with up to 9 decimals, in billionths.
fn nano(number: &str) -> i64 {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, number),
    };
    let (whole, rest) = digits.split_once('.').unwrap_or((digits, ""));
    let rest: i64 = format!("{rest:0<9}").parse().expect("digits");
    sign * (whole.parse::<i64>().expect("digits") * 1_000_000_000 + rest)
}

/// Returns the sum of a column, in billionths.
fn sum<'a>(rows: impl IntoIterator<Item = &'a Row>, column: &str) -> i64 {
    rows.into_iter().map(|row| nano(&row[column])).sum()
}

async fn csv(client: &Client, path: &str) -> Answer {
    client
        .clone()
        .with_header("accept", "text/csv")
        .get(path)
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_come_whole_as_csv_however_many_there_are() {
    each(async |gateway, _| {
        let app = gateway.app();
        let small = Served {
            credits: 1,
            ..SERVED
        };
        serve_many(app, small, 1_003).await;
        let formula = Served {
            model: "=HYPERLINK(\"http://evil\",\"x\")",
            ..SERVED
        };
        serve(app, formula).await;
        let client = gateway.client();
        let all = rows(&csv(&client, "/usage/requests").await);
        assert_eq!(all.len(), 1_004);
        let first = client.get("/usage/requests?limit=1").await.json()["requests"][0].clone();
        let of_csv = &all[0];
        assert_eq!(of_csv["model"], "'=HYPERLINK(\"http://evil\",\"x\")");
        for (name, value) in first.as_object().expect("an object") {
            let value = match value {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            if name != "model" {
                assert_eq!(of_csv[name], value, "{name}");
            }
        }
        let small = rows(&csv(&client, "/usage/requests?model=small&from=2026-01-30").await);
        assert_eq!(small.len(), 1_003);
        let limited = csv(&client, "/usage/requests?limit=5").await;
        limited.error(400, "INVALID_REQUEST");
        let admin = gateway.admin("root").await;
        let path = format!("/admin/users/{USER}/usage/requests");
        assert_eq!(rows(&csv(&admin, &path).await).len(), 1_004);

        let by_model = rows(&csv(&client, "/usage/me?group=model").await);
        assert_eq!(by_model.len(), 2);
        assert_eq!(by_model[0]["credits_used"], "1.500001");
        assert_eq!(by_model[1]["credits_used"], "0.001003");
        let by_day = rows(&csv(&client, "/usage/me?group=day").await);
        assert_eq!(
            (&*by_day[0]["date"], &*by_day[0]["requests"]),
            ("2026-01-30", "1004")
        );
        let path = format!("/admin/users/{USER}/usage");
        assert_eq!(rows(&csv(&admin, &path).await), by_model);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_month_is_exported_in_the_columns_of_focus_to_the_last_nano_dollar() {
    each(async |gateway, clock| {
        let app = gateway.app();
        serve(app, SERVED).await;
        serve(app, SERVED).await;
        let elsewhere = Served {
            provider: "q",
            credits: 1,
            ..SERVED
        };
        serve(app, elsewhere).await;
        // A request of the next month.
        clock.advance(std::time::Duration::from_secs(3 * 86_400));
        serve(app, SERVED).await;
        let client = gateway.client();
        let january = csv(&client, "/usage/export?format=focus&period=2026-01").await;
        assert_eq!(
            january.headers["content-disposition"],
            "attachment; filename=\"usage-2026-01.csv\""
        );
        let lines = of_usage(&january);
        assert_eq!(lines.len(), 2);
        let expected = [
            ("BilledCost", "0"),
            ("BillingAccountId", USER),
            ("BillingCurrency", "USD"),
            ("BillingPeriodStart", "2026-01-01T00:00:00Z"),
            ("BillingPeriodEnd", "2026-02-01T00:00:00Z"),
            ("ChargeCategory", "Usage"),
            ("ChargeClass", ""),
            ("ChargePeriodStart", "2026-01-30T00:00:00Z"),
            ("ChargePeriodEnd", "2026-01-31T00:00:00Z"),
            ("ConsumedUnit", "Tokens"),
            ("ContractedCost", "0.003000002"),
            ("EffectiveCost", "0.003000002"),
            ("ListCost", "0.003000002"),
            ("PricingQuantity", "3.000002"),
            ("PricingUnit", "Credits"),
            ("PublisherName", "p"),
            ("ResourceId", "small"),
            ("ServiceCategory", "AI and Machine Learning"),
            ("SkuId", "p/small"),
            ("x_Requests", "2"),
            ("x_BalanceChange", "-3.000002"),
        ];
        for (name, value) in expected {
            assert_eq!(lines[0][name], value, "{name}");
        }
        assert_eq!(lines[1]["EffectiveCost"], "0.000000001");
        assert!(
            !lines[0].contains_key("x_ProviderCost"),
            "the operator's own"
        );
        let tags: Value = serde_json::from_str(&lines[0]["Tags"]).expect("JSON");
        assert_eq!(tags["provider"], "p");
        // The current month's requests.
        let february = of_usage(&csv(&client, "/usage/export").await);
        assert_eq!(february.len(), 1);
        assert_eq!(february[0]["ChargePeriodStart"], "2026-02-02T00:00:00Z");

        let admin = gateway.admin("root").await;
        let other = Served {
            user: &gateway.web_user_id("bob").await,
            ..SERVED
        };
        serve(app, other).await;
        let all = of_usage(&csv(&admin, "/admin/usage/export?period=2026-02").await);
        let mut users: Vec<_> = all.iter().map(|line| &*line["BillingAccountId"]).collect();
        users.sort_unstable();
        let mut expected = [USER, other.user];
        expected.sort_unstable();
        assert_eq!(users, expected);
        assert_eq!(all[0]["x_ProviderCost"], "0.000000007");
        assert_eq!(
            of_usage(&csv(&gateway.web("bob"), "/usage/export").await).len(),
            1
        );
        client
            .get("/admin/usage/export")
            .await
            .error(401, "UNAUTHENTICATED");
        gateway
            .web("bob")
            .get("/admin/usage/export")
            .await
            .error(403, "FORBIDDEN");
        for (query, field) in [
            ("format=parquet", "format"),
            ("period=2026-13", "period"),
            ("period=2026-1", "period"),
            ("period=2026-01-01", "period"),
            ("user_id=usr_1", "user_id"),
        ] {
            let refused = client.get(&format!("/usage/export?{query}")).await;
            assert_eq!(refused.error(400, "INVALID_REQUEST")["param"], field);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_named_in_an_export_and_what_is_taken_back_later_is_a_correction() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("fine", 8, 5));
    on_each_database(
        START,
        |builder| builder.upstream("scripted", &upstream),
        async |gateway, clock| {
            let bob = gateway.web("bob");
            let made = bob
                .post("/api-keys", &json!({ "name": "+formula" }))
                .await
                .json();
            let key = gateway
                .stranger()
                .with_key(made["api_key"].as_str().expect("a key"));
            assert_eq!(
                key.post("/chat", &chat("scripted", "Hello")).await.status,
                200
            );
            let lines = of_usage(&csv(&bob, "/usage/export").await);
            assert_eq!(lines.len(), 1);
            let line = &lines[0];
            assert_eq!(
                line["SubAccountId"],
                made["key_id"].as_str().expect("an id")
            );
            assert_eq!(line["SubAccountName"], "'+formula");
            assert_eq!(
                (&*line["ConsumedQuantity"], &*line["x_Credits"]),
                ("13", "0.0252")
            );
            assert_eq!(line["EffectiveCost"], "0.0000252");

            // Its node fails and returns with less, a day later.
            let app = gateway.app();
            let bob_id = gateway.web_user_id("bob").await;
            let request = Served {
                user: &bob_id,
                ..SERVED
            };
            let held = hold(app, request).await;
            let checkpoint = weir_ledger::Action::Checkpoint(weir_ledger::Checkpoint {
                hold: held.clone(),
                credits: weir_ledger::Credits::from_micro(1_000_000),
                usage: weir_ledger::RequestUsage {
                    provider: "p".to_owned(),
                    ..weir_ledger::RequestUsage::default()
                },
            });
            tests::ledger::commit(app, &bob_id, checkpoint).await;
            let expire = weir_ledger::Action::Expire { hold: held.clone() };
            tests::ledger::commit(app, &bob_id, expire).await;
            clock.advance(std::time::Duration::from_secs(86_400));
            let less = Served {
                credits: 400_000,
                ..request
            };
            settle(app, held, less).await;
            // Tokens are valid for an hour.
            let bob = gateway.web("bob");
            let lines = of_usage(&csv(&bob, "/usage/export").await);
            let of_small = lines.iter().filter(|line| line["ResourceId"] == "small");
            let of_small: Vec<_> = of_small
                .map(|line| (&*line["EffectiveCost"], &*line["ChargeClass"]))
                .collect();
            assert_eq!(of_small, [("0.001", ""), ("-0.0006", "Correction")]);
        },
    )
    .await;
}

/// Returns an account's lines of a month, and checks their sums in money and credits.
async fn month(gateway: &Gateway, user: &str, period: &str) -> Vec<Row> {
    let admin = gateway.admin("root").await;
    let path = format!("/admin/usage/export?period={period}");
    let mut rows = rows(&csv(&admin, &path).await);
    rows.retain(|row| row["BillingAccountId"] == user);
    // FOCUS requires this of all lines of a kind.
    for row in &rows {
        let is_usage = row["ChargeCategory"] == "Usage";
        assert_eq!(row["ConsumedQuantity"].is_empty(), !is_usage, "{row:?}");
        assert_eq!(row["ConsumedUnit"].is_empty(), !is_usage, "{row:?}");
        assert_eq!(row["ChargeFrequency"] == "Usage-Based", is_usage, "{row:?}");
        if is_usage {
            assert_eq!(row["BilledCost"], "0", "{row:?}");
        } else {
            assert_eq!(row["EffectiveCost"], "0", "{row:?}");
        }
        if row["ChargeCategory"] != "Purchase" {
            assert_eq!(row["BilledCost"], "0", "{row:?}");
        }
    }
    rows
}

/// Returns all of an account's credits, including held ones, in billionths.
async fn balance(gateway: &Gateway, user: &str) -> i64 {
    let account = AccountId(user.to_owned());
    let account = gateway.app().ledger.find_account(&account).await;
    let account = account.expect("an answer").expect("an account");
    account.balance.total().micro() * 1_000
}

#[tokio::test]
async fn a_month_adds_up_to_the_payments_and_to_the_ledgers_credits() {
    const DOLLAR: i64 = 1_000_000_000;
    const CREDIT: i64 = 1_000_000_000;
    each(async |gateway, clock| {
        let app = gateway.app();
        let processor = Processor::new(gateway.stranger(), app);
        let eve = "eve";
        create_users(&app.database, [eve].into_iter(), app.clock.now().0).await;
        let payer = Payer(eve.to_owned());
        let admin = gateway.admin("root").await;
        processor.tell(&payer.customer_created(START)).await;
        // Begins the free plan's month.
        let request = Served {
            user: eve,
            ..SERVED
        };
        serve(app, request).await;
        // 27,500 credits for 25 dollars, twice; half of one is refunded at once, the rest of it in the next month.
        for payment in ["a", "b"] {
            let mut bought = payer.credits_bought(payment, START, payment, "medium");
            bought["data"]["object"]["amount_total"] = json!(2_500);
            processor.tell(&bought).await;
        }
        let refunded = |id, at, cents| {
            let mut event = payer.refunded(id, at, "a", cents);
            event["data"]["object"]["amount"] = json!(2_500);
            event
        };
        processor.tell(&refunded("half", START, 1_250)).await;
        // An operator's grant, an operator's correction, and a plan.
        for (what, body) in [
            ("top-up", json!({ "credits": 40 })),
            (
                "adjust",
                json!({ "credits": -15.5, "reason": "counted twice" }),
            ),
        ] {
            let path = format!("/admin/users/{eve}/{what}");
            assert_eq!(admin.post(&path, &body).await.status, 200);
        }
        let period = Span("2026-01-30T12:00:00Z", "2026-02-28T12:00:00Z");
        processor
            .tell(&payer.invoice_paid("pro", START, "p", "pro", period))
            .await;
        serve(app, request).await;

        let january = month(&gateway, eve, "2026-01").await;
        let of = |rows: &[Row], category: &str, source: &str| -> Vec<Row> {
            let mut rows = rows.to_vec();
            rows.retain(|row| row["ChargeCategory"] == category && row["x_Source"] == source);
            rows
        };
        // The money: payments less refunds.
        let paid = of(&january, "Purchase", "payment");
        let amounts: i64 = sqlx::query_scalar("SELECT CAST(SUM(amount) AS BIGINT) FROM payments")
            .fetch_one(app.database.reader())
            .await
            .expect("payments");
        assert_eq!((paid.len(), amounts), (3, 10_000));
        assert_eq!(sum(&paid, "BilledCost"), amounts * DOLLAR / 100);
        assert_eq!(
            sum(&january, "BilledCost"),
            (amounts - 1_250) * DOLLAR / 100
        );
        // The purchased credits, and the bonus.
        assert_eq!(sum(&paid, "PricingQuantity"), 100_000 * CREDIT);
        let bonuses = of(&january, "Credit", "payment");
        assert_eq!(sum(&bonuses, "x_Credits"), (2 * 2_500 + 5_000) * CREDIT);
        let back = of(&january, "Purchase", "refund");
        assert_eq!(sum(&back, "x_Credits"), -12_500 * CREDIT);
        assert_eq!(back[0]["ChargeClass"], "", "of the same month");
        assert_eq!(
            sum(&of(&january, "Credit", "refund"), "x_Credits"),
            -1_250 * CREDIT
        );
        // Credits without a payment.
        assert_eq!(
            sum(&of(&january, "Credit", "free_plan"), "x_Credits"),
            500 * CREDIT
        );
        assert_eq!(
            sum(&of(&january, "Credit", "gift"), "x_Credits"),
            40 * CREDIT
        );
        let adjusted = of(&january, "Adjustment", "adjustment");
        assert_eq!(sum(&adjusted, "x_Credits"), -15_500_000_000);
        assert_eq!(
            adjusted[0]["ChargeDescription"],
            "Credits taken: counted twice"
        );
        // The usage, and the rest.
        let used = sum(&january, "EffectiveCost");
        assert_eq!(used, 2 * SERVED.credits);
        assert_eq!(
            sum(&january, "x_BalanceChange"),
            balance(&gateway, eve).await
        );

        clock.advance(std::time::Duration::from_secs(3 * 86_400));
        let before = balance(&gateway, eve).await;
        let rest = "2026-02-02T12:00:00Z";
        processor.tell(&refunded("rest", rest, 2_500)).await;
        let voucher = json!({ "credits": 9 });
        let made = gateway
            .admin("root")
            .await
            .post("/admin/vouchers", &voucher)
            .await;
        let code = made.json()["code"].as_str().expect("a code").to_owned();
        let vouchers = VoucherParts::from_ref(app);
        weir_accounts::vouchers::redeem(&vouchers, (eve, eve), &code)
            .await
            .expect("it is good");
        let february = month(&gateway, eve, "2026-02").await;
        let back = of(&february, "Purchase", "refund");
        assert_eq!(sum(&february, "BilledCost"), -1_250 * DOLLAR / 100);
        assert_eq!((back.len(), &*back[0]["ChargeClass"]), (1, "Correction"));
        assert_eq!(
            sum(&of(&february, "Credit", "voucher"), "x_Credits"),
            9 * CREDIT
        );
        assert_eq!(
            sum(&february, "x_BalanceChange"),
            balance(&gateway, eve).await - before
        );
        // Later events change nothing of the month before.
        assert_eq!(month(&gateway, eve, "2026-01").await, january);
        // Users see their own lines, without the providers' prices.
        let bob = rows(&csv(&gateway.web("bob"), "/usage/export?period=2026-01").await);
        assert_eq!(bob, []);
        let own = rows(&csv(&gateway.client(), "/usage/export?period=2026-01").await);
        assert_eq!(of(&own, "Credit", "gift").len(), 1);
        assert!(own.iter().all(|row| row["BillingAccountId"] == USER));
    })
    .await;
}

/// The incomplete file must be recognizable: the connection ends in the middle of the body.
#[tokio::test(flavor = "multi_thread")]
async fn an_export_that_the_database_breaks_off_does_not_look_complete() {
    each(async |gateway, _| {
        let app = gateway.app();
        serve(app, SERVED).await;
        let [first, _] = plans::days_of_month("2026-01").expect("a month");
        for day in 0..20 {
            // A row with an unknown source is unreadable.
            let source = if day == 19 { "fax" } else { "web" };
            sqlx::query(
                "INSERT INTO usage_daily (account_id, period_start, day, model, provider, source, key_hash, requests, \
                 tokens_input, tokens_cache_read, tokens_cache_write, tokens_output, images, credits, overrun, provider_cost) \
                 VALUES ($1, 0, $2, 'small', 'p', $3, '', 1, 1, 0, 0, 1, 0, 1, 0, 1)",
            )
            .bind(USER)
            .bind(Millis(first.0 + day * 86_400_000).0)
            .bind(source)
            .execute(app.database.writer())
            .await
            .expect("a row can be written");
        }
        let mut stream = TcpStream::connect(gateway.address())
            .await
            .expect("it listens");
        let request = format!(
            "GET /usage/export?period=2026-01 HTTP/1.1\r\nhost: localhost\r\nx-api-key: {}\r\n\r\n",
            gateway.key()
        );
        stream
            .write_all(request.as_bytes())
            .await
            .expect("it reads");
        let mut answer = Vec::new();
        // The end may be a reset, too.
        let _ = patiently(stream.read_to_end(&mut answer)).await;
        let answer = String::from_utf8(answer).expect("UTF-8");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        // The bytes under way at the failure need not arrive.
        assert!(answer.contains("2026-01-02T00:00:00Z"), "{answer}");
        assert!(!answer.contains("2026-01-30T00:00:00Z"), "{answer}");
        assert!(!answer.ends_with("\r\n0\r\n\r\n"), "it looks complete");
    })
    .await;
}

#[tokio::test]
async fn exports_are_few_at_once_for_an_account_and_for_a_node() {
    let gateway = Gateway::start().await;
    let exports = &gateway.app().exports;
    let begin = |account: &str| {
        let begun = exports.begin(account);
        begun.unwrap_or_else(|error| panic!("{error:?}"))
    };
    let client = gateway.client();
    for path in ["/usage/requests", "/billing/transactions", "/usage/export"] {
        let mine = [begin(USER), begin(USER)];
        let refused = csv(&client, path).await;
        assert!(refused.headers.contains_key("retry-after"));
        refused.error(429, "TOO_MANY_AT_ONCE");
        let listed = client.get("/usage/requests").await;
        assert_eq!(listed.status, 200, "{}", listed.text());
        drop(mine);
        assert_eq!(csv(&client, path).await.status, 200, "{path}");
        let others: Vec<_> = (0..16).map(|number| begin(&number.to_string())).collect();
        let refused = csv(&client, path).await;
        assert!(refused.headers.contains_key("retry-after"));
        refused.error(503, "OVERLOADED");
        drop(others);
        assert_eq!(csv(&client, path).await.status, 200, "{path}");
    }
}
