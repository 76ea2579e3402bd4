//! Statements: changes of an account's credits, line by line, with the balance after each.

use serde_json::Value;
use sqlx::Executor as _;
use tests::gateway::{USER, at};
use tests::ledger::{Served, commit, hold, serve, settle};
use tests::{Client, Gateway};
use weir_app::App;
use weir_ledger::archive::archive;
use weir_ledger::verify::{Extent, Violation, keep, look};
use weir_ledger::{Action, Adjust, ChangeDirection, Credits, OperationId, Pool, Refund, TopUp};
use weir_storage::clock::ManualClock;

use crate::cli::{run, text};
use crate::usage::{SMALL, each, fold};

/// A month of an account: a plan's credits, bought ones, requests, one that was not served, and credits taken back;
/// half of it folded.
async fn a_month(gateway: &Gateway, clock: &ManualClock) {
    let app = gateway.app();
    for number in 0..3 {
        serve(app, SMALL).await;
        let top_up = TopUp {
            id: OperationId(format!("payment-{number}")),
            credits: Credits::whole(10),
            within: None,
        };
        commit(app, USER, Action::TopUp(top_up)).await;
    }
    fold(app).await;
    let formula = Served {
        model: "=HYPERLINK(\"http://x\",\"a, b\")",
        ..SMALL
    };
    serve(app, formula).await;
    let unserved = hold(app, SMALL).await;
    commit(
        app,
        USER,
        Action::Release {
            hold: unserved,
            cost: None,
        },
    )
    .await;
    // More than the plan's credits.
    let dear = Served {
        credits: 505_000_000,
        ..SMALL
    };
    let hold = hold(app, dear).await;
    clock.set(at("2026-02-10T12:00:00Z"));
    settle(app, hold, dear).await;
    let refund = Refund {
        id: OperationId("refund-1".to_owned()),
        pool: Pool::TopUp,
        credits: Credits::whole(10),
    };
    commit(app, USER, Action::Refund(refund)).await;
    // The plan's next month begins.
    clock.set(at("2026-03-01T12:00:00Z"));
    serve(app, SMALL).await;
}

/// An operator's correction.
async fn adjust(app: &App) {
    let adjust = Adjust {
        id: OperationId("adjust-1".to_owned()),
        way: ChangeDirection::Give,
        pool: Pool::TopUp,
        credits: Credits::whole(3),
        reason: "an outage".to_owned(),
        actor: "root".to_owned(),
    };
    commit(app, USER, Action::Adjust(adjust)).await;
}

/// Reads a statement in pages.
async fn in_parts(client: &Client, limit: usize) -> Vec<Value> {
    let (mut parts, mut query) = (Vec::new(), format!("?limit={limit}"));
    loop {
        let part = page(client, &query).await;
        assert!(lines(&part).len() <= limit);
        parts.extend(lines(&part));
        let Some(next) = part["next"].as_str() else {
            return parts;
        };
        query = format!("?limit={limit}&before={next}");
    }
}

async fn page(client: &Client, query: &str) -> Value {
    let answer = client.get(&format!("/billing/transactions{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn lines(page: &Value) -> Vec<Value> {
    page["transactions"].as_array().expect("a list").clone()
}

/// Parses credits, in millionths.
fn micro(credits: &Value) -> i64 {
    (credits.as_f64().expect("a number") * 1e6).round() as i64
}

/// Checks that each line's balance is the previous one plus its change.
fn add_up(lines: &[Value]) {
    for pair in lines.windows(2) {
        let [later, earlier] = pair else { continue };
        for (pool, change) in [("plan", "plan_credits"), ("topup", "topup_credits")] {
            let before = micro(&earlier["balance"][pool]);
            let after = micro(&later["balance"][pool]);
            assert_eq!(after - before, micro(&later[change]), "{later}");
        }
    }
}

#[tokio::test]
async fn each_line_of_a_statement_follows_from_the_one_before_it() {
    each(async |gateway, clock| {
        let client = gateway.client();
        a_month(&gateway, &clock).await;
        let whole = page(&client, "").await;
        assert_eq!(
            (&whole["next"], &whole["archived_before"]),
            (&Value::Null, &Value::Null)
        );
        let all = lines(&whole);
        let kinds: Vec<_> = all
            .iter()
            .filter_map(|line| line["kind"].as_str())
            .collect();
        let first = ["settlement", "grant", "refund", "settlement", "settlement"];
        let rest = [
            "top_up",
            "settlement",
            "top_up",
            "settlement",
            "top_up",
            "settlement",
            "grant",
        ];
        assert_eq!(kinds, [&first[..], &rest[..]].concat());
        add_up(&all);
        let oldest = all.last().expect("a line");
        assert_eq!(
            (micro(&oldest["plan_credits"]), &oldest["balance"]["total"]),
            (500_000_000, &500.into())
        );
        // The final balance is the account's.
        let summary = client.get("/usage/me").await.json();
        assert_eq!(all[0]["balance"]["plan"], summary["plan_credits_remaining"]);
        assert_eq!(all[0]["balance"]["topup"], summary["topup_balance"]);
        // The balance is less than the purchase, since the expensive request took some: 6 of the plan's before, then
        // 11 of 30.
        let dear = &all[3];
        assert_eq!(
            (micro(&dear["plan_credits"]), micro(&dear["topup_credits"])),
            (-494_000_000, -11_000_000)
        );
        assert_eq!(
            (&dear["source"], &dear["model"]),
            (&"api_key".into(), &"small".into())
        );
        assert_eq!(all[2]["reference"], "refund-1");
        let id = dear["request_id"].as_str().expect("an id");
        let request = client.get(&format!("/usage/requests/{id}")).await.json();
        assert_eq!(request["credits"], 505);

        for limit in [1, 2, 5] {
            assert_eq!(in_parts(&client, limit).await, all);
        }
        let february = page(&client, "?from=2026-02-01&to=2026-02-28").await;
        assert_eq!(lines(&february), all[2..4]);
        // Up to a moment; parts whose entries are all later are empty.
        let mut query = "?to=2026-02-10T12:00:00Z&limit=2".to_owned();
        let first = loop {
            let part = page(&client, &query).await;
            if let Some(line) = lines(&part).into_iter().next() {
                break line;
            }
            let next = part["next"].as_str().expect("more");
            query = format!("?to=2026-02-10T12:00:00Z&limit=2&before={next}");
        };
        assert_eq!(first, all[4]);
    })
    .await;
}

#[tokio::test]
async fn a_statement_comes_as_csv_and_to_operators() {
    each(async |gateway, clock| {
        a_month(&gateway, &clock).await;
        let all = lines(&page(&gateway.client(), "").await);
        let csv = gateway.client().with_header("accept", "text/csv");
        let answer = csv.get("/billing/transactions").await;
        assert_eq!(answer.headers["content-type"], "text/csv; charset=utf-8");
        let answer = answer.text();
        let rows: Vec<_> = answer.split("\r\n").collect();
        assert!(
            rows[0].starts_with("at,kind,plan_credits,topup_credits,plan_balance,topup_balance,")
        );
        assert_eq!(
            rows.len(),
            all.len() + 2,
            "headings, and the end of the last line"
        );
        for (row, line) in rows[1..].iter().zip(&all) {
            let begin = format!(
                "{},{},{},{},{},{},",
                line["at"].as_str().expect("a time"),
                line["kind"].as_str().expect("a kind"),
                line["plan_credits"],
                line["topup_credits"],
                line["balance"]["plan"],
                line["balance"]["topup"]
            );
            assert!(row.starts_with(&begin), "{row} {begin}");
        }
        // No spreadsheet reads a client's text as a formula, nor as more than a cell.
        assert!(
            rows[5].contains(r#","'=HYPERLINK(""http://x"",""a, b"")","#),
            "{}",
            rows[5]
        );

        let admin = gateway.admin("olivia").await;
        let path = format!("/admin/users/{USER}/transactions");
        assert_eq!(lines(&admin.get(&path).await.json()), all);
        admin
            .get("/admin/users/nobody/transactions")
            .await
            .error(404, "UNKNOWN_USER");
        gateway
            .web("mallory")
            .get(&path)
            .await
            .error(403, "FORBIDDEN");

        let folder = tempfile::tempdir().expect("a folder");
        let url = gateway.app().config.database_url();
        let config = format!("dev = true\ndatabase_url = {:?}\n", url.expose());
        std::fs::write(folder.path().join("weir.toml"), config).expect("a file");
        let printed = run(folder.path(), &["ledger", "statement", "--user", USER]);
        assert_eq!(text(&printed.stdout), answer, "{}", text(&printed.stderr));
        let unknown = run(folder.path(), &["ledger", "statement", "--user", "nobody"]);
        assert!(!unknown.status.success());
        assert!(
            text(&unknown.stderr).contains("user nobody does not exist"),
            "{}",
            text(&unknown.stderr)
        );
    })
    .await;
}

#[tokio::test]
async fn statements_list_purchases_and_adjustments_below_the_opening() {
    each(async |gateway, clock| {
        let (app, client) = (gateway.app(), gateway.client());
        adjust(app).await;
        a_month(&gateway, &clock).await;
        clock.set(at("2026-04-15T12:00:00Z"));
        serve(app, SMALL).await;
        fold(app).await;
        let before = lines(&page(&client, "").await);
        let now = app.clock.now();
        let findings = look(&app.database, now, Extent::New, |_| {}).await;
        let findings = findings.expect("an answer");
        assert_eq!(findings.violations, []);
        keep(&app.database, &findings, |_| {})
            .await
            .expect("it is kept");
        let folder = tempfile::tempdir().expect("a folder");
        let month = at("2026-03-02T00:00:00Z");
        let moved = archive(&app.database, folder.path(), month, now, |_| {}).await;
        assert!(moved.expect("an answer") > 0);

        let after = page(&client, "").await;
        assert_eq!(after["archived_before"], "2026-03-02T00:00:00Z");
        let after = lines(&after);
        add_up(&after);
        let is_opening = |line: &Value| line["kind"] == "opening";
        let place = after.iter().position(is_opening).expect("an opening");
        assert_eq!(after[..place], before[..place]);
        assert_eq!(after[place]["balance"], before[place]["balance"]);
        // Entries with an operation's id stay, without the balances that archived requests belong to.
        let without_balance = |line: &Value| {
            let mut line = line.clone();
            line["balance"] = Value::Null;
            line
        };
        let operations: Vec<_> = before[place..]
            .iter()
            .filter(|line| line["reference"] != Value::Null)
            .map(without_balance)
            .collect();
        let kept: Vec<_> = after[place + 1..].iter().map(without_balance).collect();
        assert_eq!(kept, operations);
        for kind in ["top_up", "refund", "adjustment"] {
            assert!(kept.iter().any(|line| line["kind"] == kind), "{kind}");
        }
        // The lines explain the whole balance.
        let oldest = after.last().expect("lines");
        for (pool, change) in [("plan", "plan_credits"), ("topup", "topup_credits")] {
            let balance = micro(&oldest["balance"][pool]);
            assert_eq!(balance, micro(&oldest[change]), "{oldest}");
        }
        for limit in [1, 2, 3, place + 1] {
            assert_eq!(in_parts(&client, limit).await, after, "{limit} a page");
        }
        for extent in [Extent::All, Extent::New] {
            let findings = look(&app.database, now, extent, |_| {}).await;
            assert_eq!(findings.expect("an answer").violations, []);
        }
        // A line that no page lists.
        let hidden = "DELETE FROM account_entries WHERE number = \
                      (SELECT number FROM entries WHERE operation_id = 'payment-1')";
        let hidden = app.database.writer().execute(hidden).await;
        hidden.expect("the index can be changed");
        let findings = look(&app.database, now, Extent::All, |_| {}).await;
        let findings = findings.expect("an answer").violations;
        let what = "the statement does not add up to the balance";
        let is_it = |found: &Violation| found.what == what && found.subject == USER;
        assert!(findings.iter().any(is_it), "{findings:?}");
    })
    .await;
}

#[tokio::test]
async fn what_a_statement_cannot_be_of_is_refused_by_field() {
    let gateway = Gateway::start().await;
    let client = gateway.client();
    for (query, param) in [
        ("before=x", "before"),
        ("before=1_2", "before"),
        ("before=0_1_1", "before"),
        ("limit=0", "limit"),
        ("from=yesterday", "from"),
        ("from=2026-02-02&to=2026-02-01", "to"),
        ("user=bob", "user"),
    ] {
        let refused = client.get(&format!("/billing/transactions?{query}")).await;
        assert_eq!(refused.error(400, "INVALID_REQUEST")["param"], param);
    }
    let csv = client.with_header("accept", "text/csv");
    let refused = csv.get("/billing/transactions?limit=5").await;
    assert_eq!(refused.error(400, "INVALID_REQUEST")["param"], "limit");
}
