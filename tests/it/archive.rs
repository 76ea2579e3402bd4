//! Growing data leaves the database, and the ledger stays sound: verified step by step, archived by month.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use sqlx::Executor as _;
use tests::gateway::at;
use tests::ledger::create_users;
use tests::stores::{Stores, each_database};
use tokio::time::Instant;
use weir_ledger::archive::{ArchiveError, archive};
use weir_ledger::verify::{Extent, Violation, keep, look, verify};
use weir_ledger::{
    AccountId, Action, Budget, BudgetWindow, Credits, Fold, HoldId, LeaseSettings, Ledger,
    LedgerStore, OpenHold, OperationEffect, OperationId, RequestSource, RequestUsage, SetBudgets,
    Settle, TopUp,
};
use weir_storage::Database;
use weir_storage::clock::{Clock, ManualClock, Millis};

const USERS: [&str; 3] = ["alice", "bob", "carol"];

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// A ledger with the users, on 1 January.
async fn start(database: &Database) -> (Ledger, ManualClock) {
    let clock = ManualClock::at(at("2026-01-01T00:00:00Z"));
    create_users(database, USERS.into_iter(), at("2026-01-01T00:00:00Z").0).await;
    let time = Clock::Manual(clock.clone());
    let ledger = Ledger::start(database.clone(), time, LeaseSettings::default());
    (ledger.await.expect("a ledger"), clock)
}

/// A settled request.
async fn spend(ledger: &Ledger, user: &str, hold: &str, credits: i64) {
    let account = AccountId(user.to_owned());
    let open = OpenHold {
        hold: HoldId(hold.to_owned()),
        amount: Credits::from_micro(credits),
        request_id: format!("req_{hold}"),
        parent: None,
        source: RequestSource::ApiKey,
        source_id: None,
        parts: Vec::new(),
        top_up_only: false,
        model: "demo".to_owned(),
    };
    ledger.open(&account, open, soon()).await.expect("enough");
    let settle = Settle {
        end: None,
        hold: HoldId(hold.to_owned()),
        credits: Credits::from_micro(credits),
        usage: RequestUsage {
            provider: "demo".to_owned(),
            ..RequestUsage::default()
        },
    };
    ledger.settle(&account, settle, soon()).await.expect("held");
}

async fn top_up(ledger: &Ledger, id: &str) -> OperationEffect {
    let top_up = Action::TopUp(TopUp {
        id: OperationId(id.to_owned()),
        credits: Credits::whole(1),
        within: None,
    });
    let account = AccountId("alice".to_owned());
    ledger.submit(&account, top_up, soon()).await.expect("done")
}

async fn fold(database: &Database) {
    let mut fold = Fold::new(LedgerStore::new(database.clone()));
    let last = count(database, "SELECT MAX(number) FROM entries").await;
    while count(database, "SELECT number FROM entries_folded").await < last {
        fold.step(1_000).await.expect("an answer");
    }
}

async fn count(database: &Database, what: &'static str) -> i64 {
    let counted = sqlx::query_scalar(what).fetch_one(database.reader()).await;
    counted.expect("an answer")
}

/// Verifies new entries, and keeps the progress if they are sound; returns the number of entries read.
async fn look_on(database: &Database, now: Millis) -> Result<i64, Vec<Violation>> {
    let findings = look(database, now, Extent::New, |_| {}).await;
    let findings = findings.expect("an answer");
    if !findings.violations.is_empty() {
        return Err(findings.violations);
    }
    let kept = keep(database, &findings, |_| {}).await;
    kept.expect("an answer");
    Ok(findings.entries)
}

/// Makes each user spend credits twenty times in a month.
async fn a_month(ledger: &Ledger, clock: &ManualClock, month: &str) {
    for number in 0..20 {
        clock.set(at(&format!("{month}-{:02}T12:00:00Z", number + 1)));
        for user in USERS {
            spend(
                ledger,
                user,
                &format!("{month}-{user}-{number}"),
                7 + number,
            )
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn verification_goes_on_where_it_ended() {
    each_database(async |Stores { database, .. }| {
        let (ledger, clock) = start(database).await;
        let time = Clock::Manual(clock.clone());
        a_month(&ledger, &clock, "2026-01").await;
        fold(database).await;
        let all = count(database, "SELECT CAST(COUNT(*) AS BIGINT) FROM entries").await;
        assert_eq!(look_on(database, time.now()).await, Ok(all));
        assert_eq!(look_on(database, time.now()).await, Ok(0));
        spend(&ledger, "bob", "later", 5).await;
        fold(database).await;
        assert_eq!(look_on(database, time.now()).await, Ok(1));
        clock.set(at("2026-01-25T00:00:00Z"));
        spend(&ledger, "bob", "tomorrow", 5).await;
        assert_eq!(look_on(database, time.now()).await, Ok(1), "not folded yet");
        fold(database).await;
        ledger.stop().await;

        for (tampered, mended) in [
            ("plan_credits = plan_credits + 1", "plan_credits = plan_credits - 1"),
            ("entries = entries + 1", "entries = entries - 1"),
        ] {
            let change = async |what: &str| {
                let change = format!("UPDATE accounts SET {what} WHERE id = 'bob'");
                let changed = database.writer().execute(sqlx::AssertSqlSafe(change)).await;
                changed.expect("an account can be changed");
            };
            change(tampered).await;
            let found = look_on(database, time.now()).await.expect_err(tampered);
            assert_eq!((found[0].invariant, &*found[0].subject), ("I1", "bob"));
            change(mended).await;
        }
        let usage = "UPDATE usage_daily SET credits = credits + 1 WHERE day = (SELECT MAX(day) FROM usage_daily)";
        database.writer().execute(usage).await.expect("sums");
        let found = look_on(database, time.now()).await.expect_err("usage");
        assert_eq!(found[0].invariant, "I6");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn archived_entries_leave_their_sum_and_nothing_is_done_twice() {
    each_database(async |Stores { database, .. }| {
        let (ledger, clock) = start(database).await;
        let time = Clock::Manual(clock.clone());
        let bought = top_up(&ledger, "payment-1").await;
        for month in ["2026-01", "2026-02", "2026-03"] {
            a_month(&ledger, &clock, month).await;
        }
        fold(database).await;
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let entries = "SELECT CAST(COUNT(*) AS BIGINT) FROM entries";
        let before = count(database, entries).await;
        let archive = async |month: &str| {
            let before = at(&format!("{month}-01T00:00:00Z"));
            archive(database, folder.path(), before, time.now(), |_| {}).await
        };
        assert_eq!(
            archive("2026-02").await.expect("an answer"),
            0,
            "nothing is verified"
        );
        assert_eq!(look_on(database, time.now()).await, Ok(before));
        let early = archive("2026-03").await;
        assert!(matches!(early, Err(ArchiveError::TooEarly)), "{early:?}");

        clock.set(at("2026-04-15T00:00:00Z"));
        // A lease ends by the clock, and so do its blocks.
        ledger.sweep().await.expect("an answer");
        let mut moved = 0;
        for (month, files) in [("2026-02", 1), ("2026-03", 2)] {
            moved += archive(month).await.expect("it is verified");
            assert_eq!(archive(month).await.expect("an answer"), 0, "once");
            assert_eq!(verify(database, time.now()).await.expect("an answer"), []);
            assert_eq!(look_on(database, time.now()).await, Ok(0));
            let names = fs::read_dir(folder.path()).expect("a folder");
            assert_eq!(names.count(), files);
        }
        // For each user an opening, and the entries with an id.
        assert_eq!(count(database, entries).await, before - moved + 3);
        assert!(moved >= 120, "{moved}");
        let january = fs::read_to_string(folder.path().join("entries-2026-01.jsonl"));
        let january = january.expect("a file");
        let read = |line| serde_json::from_str::<Value>(line).expect("JSON");
        let spent: i64 = january
            .lines()
            .map(read)
            .filter(|entry| entry["account_id"] == "bob" && entry["kind"] == "settlement")
            .map(|entry| entry["plan_delta"].as_i64().expect("a number"))
            .sum();
        assert_eq!(spent, -(0..20).map(|number| 7 + number).sum::<i64>());

        // Earlier operations are still known, and new ones succeed.
        assert_eq!(top_up(&ledger, "payment-1").await, bought);
        spend(&ledger, "bob", "after", 5).await;
        fold(database).await;
        assert_eq!(verify(database, time.now()).await.expect("an answer"), []);
        assert!(look_on(database, time.now()).await.is_ok());
        for statement in [
            "DELETE FROM entries WHERE number > (SELECT number FROM entries_archived)",
            "DELETE FROM entries WHERE operation_id = 'payment-1'",
            "UPDATE entries SET plan_delta = 0",
        ] {
            let refused = database.writer().execute(statement).await;
            assert!(refused.is_err(), "{statement}");
        }
        let opening = "DELETE FROM entries WHERE kind = 'opening' AND account_id = 'bob'";
        database
            .writer()
            .execute(opening)
            .await
            .expect("what is archived may go");
        let found = verify(database, time.now()).await.expect("an answer");
        assert!(
            found.iter().any(|found| found.subject == "bob"),
            "{found:?}"
        );
        ledger.stop().await;
    })
    .await;
}

/// A budget without a window has counted entries that are no longer in the database.
#[tokio::test(flavor = "multi_thread")]
async fn budgets_without_a_window_are_recomputed_behind_an_archive() {
    each_database(async |Stores { database, .. }| {
        let (ledger, clock) = start(database).await;
        let time = Clock::Manual(clock.clone());
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let bob = AccountId("bob".to_owned());
        let set = async |credits| {
            let set = SetBudgets {
                part: None,
                until: None,
                budgets: vec![Budget {
                    credits: Credits::whole(credits),
                    window: BudgetWindow::Total,
                }],
                ended: Vec::new(),
            };
            let set = Action::SetBudgets(Box::new(set));
            ledger.submit(&bob, set, soon()).await.expect("done");
        };
        let archive = async |month: &str| {
            fold(database).await;
            ledger.sweep().await.expect("an answer");
            look_on(database, time.now()).await.expect("it is sound");
            let before = at(&format!("{month}-01T00:00:00Z"));
            let moved = archive(database, folder.path(), before, time.now(), |_| {}).await;
            assert!(moved.expect("it is verified") > 0);
        };
        // A budget that begins among entries that are archived later, and continues.
        spend(&ledger, "bob", "before", 1_000).await;
        set(100).await;
        for month in ["2026-01", "2026-02", "2026-03"] {
            a_month(&ledger, &clock, month).await;
        }
        clock.set(at("2026-04-15T00:00:00Z"));
        archive("2026-02").await;
        assert_eq!(verify(database, time.now()).await.expect("an answer"), []);
        set(200).await;
        archive("2026-03").await;
        assert_eq!(verify(database, time.now()).await.expect("an answer"), []);

        let spent = 3 * (0..20).map(|number| 7 + number).sum::<i64>();
        let change = async |from: i64, to: i64| {
            let text = "UPDATE accounts SET budgets = REPLACE(budgets, $1, $2) WHERE id = 'bob'";
            let changed = sqlx::query(text)
                .bind(format!("\"spent\":{from}"))
                .bind(format!("\"spent\":{to}"))
                .execute(database.writer())
                .await;
            changed.expect("the account can be changed");
        };
        change(spent, spent - 1).await;
        let found = verify(database, time.now()).await.expect("an answer");
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].invariant, &*found[0].subject), ("I8", "bob"));
        change(spent - 1, spent).await;
        assert_eq!(verify(database, time.now()).await.expect("an answer"), []);

        // Totals of an earlier version's archive are unknown, and therefore no fault.
        let forget = "DELETE FROM archived_totals";
        database.writer().execute(forget).await.expect("rows");
        change(spent, spent - 1).await;
        assert_eq!(verify(database, time.now()).await.expect("an answer"), []);
        ledger.stop().await;
    })
    .await;
}
