//! The ledger: its rules, its committer, and its durability through crashes, on both databases.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Executor};
use tempfile::TempDir;
use tests::ledger::create_users;
use tests::ledger::oracle;
use tests::ledger::simulation::{Plant, simulate};
use tests::patiently;
use tests::stores::{Durability, Postgres, Stores, each_database, patient_database};
use tokio::task::JoinSet;
use tokio::time::Instant;
use weir_ledger::receipt::{ReceiptFacts, TierFigures};
use weir_ledger::usage::to_date;
use weir_ledger::verify::verify;
use weir_ledger::{
    Account, AccountId, Action, BootId, Checkpoint, Credits, EndKey, Fold, HoldId, HoldState,
    IdempotencyClaim, KeyConflict, LeaseSettings, Ledger, LedgerError, LedgerRefusal, LedgerStore,
    LedgerStoreError, OpenHold, Operation, OperationEffect, OperationId, Plan, RequestSource,
    RequestUsage, ServedRequest, Settle, Settlement, TopUp, UsageCounts,
};
use weir_storage::Database;
use weir_storage::clock::{Clock, ManualClock, Millis};
use weir_storage::database::SqlDialect;
use weir_storage::secrets::SecretUrl;

pub(crate) const NOW: Millis = Millis(1_750_000_000_000);

/// All of the free plan's credits.
pub(crate) const FREE: i64 = 500_000_000;

pub(crate) fn alice() -> AccountId {
    AccountId("alice".to_owned())
}

pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

pub(crate) fn open(hold: &str, amount: i64) -> OpenHold {
    OpenHold {
        hold: HoldId(hold.to_owned()),
        amount: Credits::from_micro(amount),
        request_id: format!("req_{hold}"),
        parent: None,
        source: RequestSource::ApiKey,
        source_id: Some("key".to_owned()),
        parts: Vec::new(),
        top_up_only: false,
        model: "demo".to_owned(),
    }
}

fn boot(name: &str) -> BootId {
    BootId::of(name).expect("a name")
}

pub(crate) fn settle(hold: &str, credits: i64) -> Settle {
    Settle {
        end: None,
        hold: HoldId(hold.to_owned()),
        credits: Credits::from_micro(credits),
        usage: usage(),
    }
}

pub(crate) fn usage() -> RequestUsage {
    RequestUsage {
        provider: "demo".to_owned(),
        adapter_digest: "sha256:00".to_owned(),
        counts: UsageCounts {
            tokens_input: 10,
            tokens_output: 20,
            ..UsageCounts::default()
        },
        receipt: Some(Box::new(ReceiptFacts {
            reported: None,
            seen: [40, 80],
            prices: TierFigures::default(),
            per: None,
            factors: vec![14_000],
            percent: None,
            catalog: 3,
        })),
        ..RequestUsage::default()
    }
}

async fn start(database: &Database) -> Ledger {
    create_users(database, ["alice"].into_iter(), NOW.0).await;
    another(database).await
}

async fn another(database: &Database) -> Ledger {
    let clock = Clock::Manual(ManualClock::at(NOW));
    let ledger = Ledger::start(database.clone(), clock, LeaseSettings::default());
    ledger.await.expect("a ledger")
}

pub(crate) async fn account(ledger: &Ledger) -> Account {
    let account = ledger.find_account(&alice()).await;
    account.expect("an answer").expect("an account")
}

pub(crate) async fn is_sound(database: &Database) {
    let violations = verify(database, NOW).await.expect("an answer");
    assert_eq!(violations, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn random_histories_agree_with_the_oracle() {
    each_database(async |stores| {
        let report = oracle::compare(&stores.database, 7, 3_000).await;
        let report = report.unwrap_or_else(|divergence| panic!("{divergence}"));
        assert!(report.in_memory > 15 && report.logged > 5, "{report:?}");
        assert!(report.refused * 10 > report.operations, "{report:?}");
        assert!(report.refused * 5 < report.operations * 3, "{report:?}");
    })
    .await;
}

/// In these histories, an operation takes credits beside the node's block, and a later one of its batch returns the block.
#[tokio::test(flavor = "multi_thread")]
async fn a_block_that_a_batch_returns_late_does_not_hide_its_credits() {
    for seed in [12, 16] {
        let url = Postgres::shared().create_database().await;
        let database = Database::open(&url).await.expect("a database");
        let report = oracle::compare(&database, seed, 2_000).await;
        report.unwrap_or_else(|divergence| panic!("seed {seed}: {divergence}"));
    }
}

/// SQLite reports an error of the commit after the row that a statement returns, as on a full disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_whose_commit_fails_is_not_renewed() {
    let database = Database::open(&SecretUrl::new("sqlite::memory:")).await;
    let database = database.expect("a database");
    let store = LedgerStore::new(database.clone());
    let renewed = store.renew_lease(&boot("a"), NOW, NOW).await;
    assert!(renewed.is_ok(), "{renewed:?}");
    for statement in [
        "CREATE TABLE parents (id INTEGER PRIMARY KEY)",
        "CREATE TABLE children (id INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED)",
        "CREATE TRIGGER fails AFTER UPDATE ON node_leases BEGIN INSERT INTO children VALUES (1); END",
    ] {
        database.writer().execute(statement).await.expect(statement);
    }
    let renewed = store.renew_lease(&boot("a"), NOW, NOW).await;
    assert!(renewed.is_err(), "{renewed:?}");
}

#[test]
fn the_committer_survives_whatever_happens() {
    let (mut from_blocks, mut called_back, mut logged) = (0, 0, 0);
    let (mut refused, mut swept) = (0, 0);
    let (mut noted, mut ended_at_notes) = (0, 0);
    for seed in 0..200 {
        let happened = simulate(SqlDialect::Postgres, seed, Plant::Nothing);
        let happened = happened.unwrap_or_else(|violation| panic!("{violation}"));
        from_blocks += happened.from_blocks;
        called_back += happened.called_back;
        logged += happened.logged;
        refused += happened.refused_records;
        swept += happened.swept_records;
        noted += happened.noted;
        ended_at_notes += happened.ended_at_notes;
    }
    assert!(
        noted > 50 && ended_at_notes > 20,
        "{noted} checkpoints in rows of their own, {ended_at_notes} holds ended at them"
    );
    assert!(
        from_blocks > 200 && called_back > 200 && logged > 200 && refused > 20 && swept > 20,
        "{from_blocks} holds from blocks, {called_back} accounts called back; {logged} records in logs, {refused} refused, \
         {swept} folded by other nodes"
    );
}

#[test]
fn the_log_on_sqlite_survives_crashes_and_commands() {
    let (mut in_memory, mut logged, mut refused) = (0, 0, 0);
    let (mut swept, mut commands) = (0, 0);
    for seed in 0..200 {
        let happened = simulate(SqlDialect::Sqlite, seed, Plant::Nothing);
        let happened = happened.unwrap_or_else(|violation| panic!("{violation}"));
        in_memory += happened.from_blocks;
        logged += happened.logged;
        refused += happened.refused_records;
        swept += happened.swept_records;
        commands += happened.commands;
    }
    assert!(
        in_memory > 200 && logged > 200 && refused > 20 && swept > 20 && commands > 200,
        "{in_memory} holds in memory; {logged} records in logs, {refused} refused, {swept} folded by others; {commands} commands"
    );
}

#[test]
fn the_simulation_finds_planted_defects() {
    for (dialect, plant) in Plant::ALL {
        let mut seeds = match (dialect, plant) {
            // The charge of such a record is missed only if others have spent all that the account has.
            (SqlDialect::Postgres, Plant::UnfencedAppend) => 2_200..2_300,
            // This needs two failures, one after the other.
            (_, Plant::SplitFolds) => 500..600,
            _ => 0..100,
        };
        assert!(
            seeds.any(|seed| simulate(dialect, seed, plant).is_err()),
            "{plant:?} on {dialect:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_held_for_and_settled_once() {
    each_database(async |stores| {
        let ledger = start(&stores.database).await;
        let before = account(&ledger).await;
        assert_eq!(
            (before.plan, before.available().plan),
            (Plan::Free, Credits::from_micro(FREE))
        );

        ledger
            .open(&alice(), open("a", FREE), soon())
            .await
            .expect("enough");
        let refused = ledger.open(&alice(), open("b", 1), soon()).await;
        let short = LedgerRefusal::Insufficient {
            required: Credits::from_micro(1),
            available: Credits::from_micro(0),
        };
        assert_eq!(refused, Err(LedgerError::Refused(short)));
        let checkpoint = Checkpoint {
            hold: HoldId("a".to_owned()),
            credits: Credits::from_micro(5),
            usage: usage(),
        };
        ledger
            .checkpoint(&alice(), checkpoint, soon())
            .await
            .expect("it is open");
        for _ in 0..2 {
            let settled = ledger.settle(&alice(), settle("a", 7), soon()).await;
            let charged = Credits::from_micro(7);
            let overrun = Credits::from_micro(0);
            assert_eq!(settled, Ok(Settlement { charged, overrun }));
        }
        let again = ledger.settle(&alice(), settle("a", 8), soon()).await;
        assert_eq!(again, Err(LedgerError::Refused(LedgerRefusal::Conflict)));
        assert_eq!(
            account(&ledger).await.available().plan,
            Credits::from_micro(FREE - 7)
        );

        let nobody = AccountId("nobody".to_owned());
        let refused = ledger.open(&nobody, open("c", 1), soon()).await;
        assert_eq!(
            refused,
            Err(LedgerError::Refused(LedgerRefusal::UnknownAccount))
        );
        ledger.stop().await;
        is_sound(&stores.database).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_at_once_get_what_is_there_and_no_more() {
    each_database(async |stores| {
        let first = start(&stores.database).await;
        let second = another(&stores.database).await;
        let mut requests = JoinSet::new();
        for number in 0..1_000 {
            let ledger = if number % 2 == 0 { &first } else { &second }.clone();
            requests.spawn(async move {
                let hold = open(&format!("h{number}"), FREE / 50);
                ledger.open(&alice(), hold, soon()).await.is_ok()
            });
        }
        let opened = requests
            .join_all()
            .await
            .into_iter()
            .filter(|opened| *opened);
        assert_eq!(opened.count(), 50);
        is_sound(&stores.database).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_has_stopped_has_done_all_that_was_asked_for() {
    each_database(async |stores| {
        let ledger = start(&stores.database).await;
        for number in 0..300 {
            let hold = open(&format!("h{number}"), 1_000);
            ledger.open(&alice(), hold, soon()).await.expect("enough");
        }
        for number in 0..300 {
            // No caller waits for that.
            ledger.abandon(&alice(), HoldId(format!("h{number}")));
        }
        ledger.stop().await;
        assert_eq!(account(&ledger).await.held.plan, Credits::ZERO);
        is_sound(&stores.database).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_nobody_waits_for_does_not_stay() {
    each_database(async |stores| {
        let ledger = start(&stores.database).await;
        for number in 0..50_u64 {
            let hold = open(&format!("h{number}"), 1_000);
            let deadline = Instant::now() + Duration::from_micros(100 * number);
            let outcome = ledger.open(&alice(), hold, deadline).await;
            if outcome.is_ok() {
                let hold = HoldId(format!("h{number}"));
                ledger
                    .release(&alice(), hold, None, soon())
                    .await
                    .expect("it is open");
            } else {
                assert_eq!(outcome, Err(LedgerError::Late));
            }
        }
        ledger.stop().await;
        assert_eq!(
            account(&ledger).await.available().plan,
            Credits::from_micro(FREE)
        );
        is_sound(&stores.database).await;
    })
    .await;
}

/// Opens a hold for a node that then fails, with this checkpoint.
async fn orphan(database: &Database, boot_id: &str, hold: &str, checkpoint: i64) {
    let opening = Action::Open {
        open: open(hold, 1_000),
        boot_id: boot(boot_id),
        claim: None,
    };
    let checkpoint = Checkpoint {
        hold: HoldId(hold.to_owned()),
        credits: Credits::from_micro(checkpoint),
        usage: usage(),
    };
    let operations = [opening, Action::Checkpoint(checkpoint)].map(|action| Operation {
        account: alice(),
        at: NOW,
        action,
    });
    let outcomes = LedgerStore::new(database.clone()).commit(&operations).await;
    assert_eq!(
        outcomes,
        Ok(vec![
            Ok(OperationEffect::Opened),
            Ok(OperationEffect::Checkpointed)
        ])
    );
}

/// A sweep touches no account of the free plan: its period begins with its next operation. A paid plan without a
/// renewal ends by itself, once, whichever node finds it.
#[tokio::test(flavor = "multi_thread")]
async fn a_free_period_begins_on_first_use_and_a_paid_plan_ends_by_itself() {
    each_database(async |stores| {
        let database = &stores.database;
        create_users(database, ["alice", "bob"].into_iter(), NOW.0).await;
        let clock = ManualClock::at(NOW);
        let start = async || {
            let clock = Clock::Manual(clock.clone());
            let ledger = Ledger::start(database.clone(), clock, LeaseSettings::default());
            ledger.await.expect("a ledger")
        };
        let (ledger, other) = (start().await, start().await);
        let begun = ledger.submit(&alice(), Action::ResetPeriod, soon()).await;
        begun.expect("a first period");
        let paid = weir_ledger::Grant {
            id: OperationId("sub_bob:1".to_owned()),
            plan: Plan::Guru,
            period: weir_ledger::Period::monthly(NOW, NOW),
            credits: Plan::Guru.monthly_credits(),
        };
        let bob = AccountId("bob".to_owned());
        let granted = ledger.submit(&bob, Action::Grant(paid), soon()).await;
        granted.expect("a plan");
        assert_eq!(ledger.begin_due_periods().await.expect("an answer"), 0);
        let grants = async || -> i64 {
            let grants = "SELECT CAST(COUNT(*) AS BIGINT) FROM entries WHERE kind = 'grant'";
            let grants = sqlx::query_scalar(grants).fetch_one(database.reader());
            grants.await.expect("a number")
        };
        let before = grants().await;
        clock.set(NOW.plus_days(40));
        let (first, second) = tokio::join!(ledger.begin_due_periods(), other.begin_due_periods());
        let found = first.expect("an answer") + second.expect("an answer");
        assert!((1..=2).contains(&found), "{found}");
        assert_eq!(other.begin_due_periods().await.expect("an answer"), 0);
        assert_eq!(grants().await, before + 1, "bob's");
        let shown = other.find_account(&alice()).await.expect("an answer");
        let shown = shown.expect("an account");
        assert_eq!((shown.period_number, shown.balance.plan.micro()), (2, FREE));
        assert_eq!(grants().await, before + 1, "nothing of alice's is written");
        let begun = other.submit(&alice(), Action::ResetPeriod, soon()).await;
        begun.expect("an operation");
        assert_eq!(grants().await, before + 2);
        is_sound(database).await;
    })
    .await;
}

/// An expired hold is kept for a day, in which its node may settle it late. After that, the expiry is final.
#[tokio::test(flavor = "multi_thread")]
async fn an_expired_hold_is_deleted_after_a_day_and_its_charge_stands() {
    each_database(async |stores| {
        let database = &stores.database;
        create_users(database, ["alice"].into_iter(), NOW.0).await;
        let store = LedgerStore::new(database.clone());
        let submit = async |at: Millis, action: Action| {
            let operation = Operation {
                account: alice(),
                at,
                action,
            };
            let outcomes = store.commit(&[operation]).await.expect("an answer");
            outcomes.into_iter().next().expect("an outcome")
        };
        let late = Millis(NOW.0 + 60_000);
        for (name, expired) in [("old", NOW), ("young", late)] {
            let open = Action::Open {
                open: open(name, 100),
                boot_id: boot("gone"),
                claim: None,
            };
            assert_eq!(submit(NOW, open).await, Ok(OperationEffect::Opened));
            let checkpoint = Action::Checkpoint(Checkpoint {
                hold: HoldId(name.to_owned()),
                credits: Credits::from_micro(7),
                usage: RequestUsage {
                    provider: "p".to_owned(),
                    ..RequestUsage::default()
                },
            });
            assert_eq!(
                submit(NOW, checkpoint).await,
                Ok(OperationEffect::Checkpointed)
            );
            let hold = HoldId(name.to_owned());
            let outcome = submit(expired, Action::Expire { hold }).await;
            assert!(outcome.is_ok(), "{outcome:?}");
        }
        let day = NOW.plus_days(1);
        store.forget_expired_holds(day).await.expect("an answer");
        assert_eq!(count(database, "holds").await, 2, "a day is not over");
        let forgotten = store.forget_expired_holds(Millis(day.0 + 1)).await;
        forgotten.expect("an answer");
        assert_eq!(count(database, "holds").await, 1);
        let refused = submit(day, Action::Settle(settle("old", 9))).await;
        assert_eq!(refused, Err(LedgerRefusal::Ended(HoldState::Expired)));
        let settled = submit(day, Action::Settle(settle("young", 9))).await;
        assert!(settled.is_ok(), "{settled:?}");
        let account = store.find_account(&alice()).await.expect("an answer");
        let left = account.expect("an account").balance.plan.micro();
        assert_eq!(left, FREE - 7 - 9);
        is_sound(database).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn holds_of_a_node_that_went_away_are_settled_at_their_checkpoint() {
    each_database(async |stores| {
        let database = &stores.database;
        create_users(database, ["alice"].into_iter(), NOW.0).await;
        let store = LedgerStore::new(database.clone());
        for (name, until) in [("gone", -1), ("alive", 30_000)] {
            let (boot, until) = (boot(name), Millis(NOW.0 + until));
            let renewed = store.renew_lease(&boot, NOW, until);
            renewed.await.expect("a lease");
        }
        for number in 0..300 {
            orphan(database, "gone", &format!("h{number:03}"), 3).await;
        }
        orphan(database, "alive", "kept", 3).await;

        let ledger = another(database).await;
        // Its own first sweep runs at once; the nodes may share the work.
        ledger.sweep().await.expect("an answer");
        let orphans = store.find_orphans(NOW, 1_000).await.expect("an answer");
        assert_eq!(orphans, []);
        let left = account(&ledger).await;
        assert_eq!(left.balance.plan, Credits::from_micro(FREE - 900));
        assert_eq!(left.held.plan, Credits::from_micro(1_000));

        let late = ledger.settle(&alice(), settle("h000", 5), soon()).await;
        assert_eq!(
            late.map(|settlement| settlement.charged),
            Ok(Credits::from_micro(5))
        );
        let void = HoldId("h001".to_owned());
        ledger
            .release(&alice(), void, None, soon())
            .await
            .expect("it had expired");
        assert_eq!(
            account(&ledger).await.balance.plan,
            Credits::from_micro(FREE - 900 - 2 + 3)
        );
        is_sound(database).await;
    })
    .await;
}

/// A hold must not outlast every possible end of its request.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_ends_its_own_holds_that_are_older_than_a_request_can_be() {
    each_database(async |stores| {
        let database = &stores.database;
        create_users(database, ["alice"].into_iter(), NOW.0).await;
        let clock = ManualClock::at(NOW);
        let lease = LeaseSettings {
            longest_request: Duration::from_secs(10),
            ..LeaseSettings::default()
        };
        let ledger = Ledger::start(database.clone(), Clock::Manual(clock.clone()), lease);
        let ledger = ledger.await.expect("a ledger");
        let opened = ledger.open(&alice(), open("old", 1_000), soon()).await;
        opened.expect("enough credits");
        let checkpoint = Checkpoint {
            hold: HoldId("old".to_owned()),
            credits: Credits::from_micro(30),
            usage: usage(),
        };
        let noted = ledger.checkpoint(&alice(), checkpoint, soon()).await;
        noted.expect("it is noted");
        clock.advance(Duration::from_secs(9));
        assert_eq!(ledger.sweep().await.expect("an answer"), 0);
        let opened = ledger.open(&alice(), open("young", 1_000), soon()).await;
        opened.expect("enough credits");
        clock.advance(Duration::from_secs(2));
        // The node's own sweep may have ended it already.
        ledger.sweep().await.expect("an answer");
        let left = account(&ledger).await;
        assert_eq!(left.balance.plan, Credits::from_micro(FREE - 30));
        assert_eq!(left.held.plan, Credits::from_micro(1_000));
        is_sound(database).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_database_refuses_fails_alone() {
    each_database(async |stores| {
        let database = &stores.database;
        let ledger = start(database).await;
        if database.dialect() == SqlDialect::Sqlite {
            let trigger = "CREATE TRIGGER refuse BEFORE INSERT ON holds WHEN new.model LIKE 'nul%' \
                           BEGIN SELECT RAISE(ABORT, 'refused'); END";
            database.writer().execute(trigger).await.expect("a trigger");
        }
        let mut requests = JoinSet::new();
        for number in 0..50 {
            let ledger = ledger.clone();
            let mut open = open(&format!("h{number}"), 1_000);
            if number == 20 {
                // PostgreSQL cannot store this.
                open.model = "nul \0".to_owned();
            }
            requests.spawn(async move { ledger.open(&alice(), open, soon()).await });
        }
        let outcomes = requests.join_all().await;
        let failed: Vec<_> = outcomes.iter().filter(|outcome| outcome.is_err()).collect();
        assert!(
            matches!(*failed, [Err(LedgerError::Rejected(_))]),
            "{failed:?}"
        );
        let held = account(&ledger).await.held.plan;
        assert_eq!(held, Credits::from_micro(49_000));
        is_sound(database).await;
    })
    .await;
}

async fn on_disk() -> (TempDir, Database) {
    let folder = tempfile::tempdir().expect("a folder");
    let database = open_in(&folder).await;
    (folder, database)
}

/// Opens the database with a write turn of its own, as another process would have.
async fn open_in(folder: &TempDir) -> Database {
    let url = format!("sqlite:{}", folder.path().join("weir.db").display());
    let database = Database::open(&SecretUrl::new(url)).await;
    database.expect("a database")
}

async fn held(store: &LedgerStore) -> Credits {
    let account = store.find_account(&alice()).await.expect("an answer");
    account.expect("an account").held.plan
}

fn opening(hold: &str) -> Operation {
    Operation {
        account: alice(),
        at: NOW,
        action: Action::Open {
            open: open(hold, 1_000),
            boot_id: boot("boot"),
            claim: None,
        },
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_another_process_writes_to_is_unavailable_for_as_long() {
    let (folder, database) = on_disk().await;
    create_users(&database, ["alice"].into_iter(), NOW.0).await;
    let store = LedgerStore::new(database.clone());
    let other = open_in(&folder).await;
    let mut writing = other.begin().await.expect("a transaction");
    writing
        .execute("UPDATE users SET created_at = created_at + 1")
        .await
        .expect("an update");
    for _ in 0..2 {
        let outcomes = store.commit(&[opening("h1")]).await;
        assert!(
            matches!(outcomes, Err(LedgerStoreError::Unavailable(_))),
            "{outcomes:?}"
        );
    }
    writing.commit().await.expect("a commit");
    let outcomes = store.commit(&[opening("h1")]).await;
    assert_eq!(outcomes, Ok(vec![Ok(OperationEffect::Opened)]));
    is_sound(&database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_have_written_to_a_file_is_seen() {
    let (folder, database) = on_disk().await;
    create_users(&database, ["alice"].into_iter(), NOW.0).await;
    let process = open_in(&folder).await;
    // On the same connection, and on another.
    let others = [&database, &process].map(|database| LedgerStore::new(database.clone()));
    let store = LedgerStore::new(database.clone());
    for (number, other) in others.iter().cycle().take(6).enumerate() {
        for (store, name) in [(&store, "own"), (other, "other")] {
            let outcomes = store.commit(&[opening(&format!("{name}{number}"))]).await;
            assert_eq!(outcomes, Ok(vec![Ok(OperationEffect::Opened)]));
        }
    }
    assert_eq!(held(&store).await, Credits::from_micro(12_000));
    is_sound(&database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_was_rolled_back_leaves_nothing() {
    let (_folder, database) = on_disk().await;
    create_users(&database, ["alice"].into_iter(), NOW.0).await;
    let trigger = "CREATE TRIGGER refuse BEFORE INSERT ON holds WHEN new.id = 'refused' \
                   BEGIN SELECT RAISE(ABORT, 'refused'); END";
    database.writer().execute(trigger).await.expect("a trigger");
    let store = LedgerStore::new(database.clone());
    for (batch, is_refused) in [
        (["h1", "h2"], false),
        (["h3", "refused"], true),
        (["h3", "h4"], false),
    ] {
        let outcomes = store.commit(&batch.map(opening)).await;
        let refused = matches!(outcomes, Err(LedgerStoreError::Rejected(_)));
        assert_eq!(refused, is_refused, "{outcomes:?}");
    }
    assert_eq!(held(&store).await, Credits::from_micro(4_000));
    is_sound(&database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_hold_gives_back_its_parent_has() {
    each_database(async |stores| {
        let database = &stores.database;
        create_users(database, ["alice"].into_iter(), NOW.0).await;
        let store = LedgerStore::new(database.clone());
        let parent = Some(HoldId("parent".to_owned()));
        let child = |hold| {
            let open = OpenHold {
                parent: parent.clone(),
                ..open(hold, 600)
            };
            let boot_id = boot("boot");
            Action::Open {
                open,
                boot_id,
                claim: None,
            }
        };
        let release = |hold: &str| Action::Release {
            hold: HoldId(hold.to_owned()),
            cost: None,
        };
        // The second child fits only once the first has ended.
        for (action, done) in [
            (opening("parent").action, OperationEffect::Opened),
            (child("first"), OperationEffect::Opened),
            (release("first"), OperationEffect::Released),
            (child("second"), OperationEffect::Opened),
            (release("parent"), OperationEffect::Released),
            (release("second"), OperationEffect::Released),
        ] {
            let operation = Operation {
                account: alice(),
                at: NOW,
                action,
            };
            let outcomes = store.commit(&[operation]).await;
            assert_eq!(outcomes, Ok(vec![Ok(done)]));
            is_sound(database).await;
        }
        assert_eq!(held(&store).await, Credits::from_micro(0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_writes_to_sqlite_waits_for_the_turn_but_not_for_long() {
    for url in ["sqlite::memory:", ""] {
        let (_folder, database) = match url {
            "" => on_disk().await,
            _ => {
                let database = Database::open(&SecretUrl::new(url)).await;
                (
                    tempfile::tempdir().expect("a folder"),
                    database.expect("a database"),
                )
            }
        };
        create_users(&database, ["alice"].into_iter(), NOW.0).await;
        let store = LedgerStore::new(database.clone());
        let mut writing = database.begin().await.expect("a transaction");
        writing
            .execute("INSERT INTO users (id, created_at) VALUES ('bob', 1)")
            .await
            .expect("an insert");
        let began = Instant::now();
        let outcomes = store.commit(&[opening("h1")]).await;
        assert!(
            matches!(outcomes, Err(LedgerStoreError::Unavailable(_))),
            "{outcomes:?}"
        );
        assert!(began.elapsed() < Duration::from_secs(5));
        let waiting = tokio::spawn({
            let store = store.clone();
            async move { store.commit(&[opening("h1")]).await }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(writing);
        let outcomes = waiting.await.expect("no panic");
        assert_eq!(outcomes, Ok(vec![Ok(OperationEffect::Opened)]));
        let users: i64 = sqlx::query_scalar("SELECT CAST(COUNT(*) AS BIGINT) FROM users")
            .fetch_one(database.reader())
            .await
            .expect("a number");
        assert_eq!(users, 1, "what was not committed is not there");
        is_sound(&database).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_random_history_in_memory_agrees_with_the_oracle() {
    let database = patient_database(&SecretUrl::new("sqlite::memory:")).await;
    let report = oracle::compare(&database, 11, 1_000).await;
    report.unwrap_or_else(|divergence| panic!("{divergence}"));
}

/// Otherwise its thread would retry for ever.
#[tokio::test(flavor = "multi_thread")]
async fn the_committer_ends_when_the_database_is_closed() {
    let (_folder, database) = on_disk().await;
    let ledger = start(&database).await;
    let opened = ledger.open(&alice(), open("h1", 1_000), soon()).await;
    opened.expect("enough credits");
    assert_eq!(ledger.trouble(), None);
    database.close().await;
    let late = ledger.settle(&alice(), settle("h1", 5), soon()).await;
    assert_eq!(late, Err(LedgerError::Unavailable));
    let trouble = patiently(async {
        loop {
            match ledger.trouble() {
                Some(trouble) if trouble.contains("committer has stopped") => return trouble,
                _ => tokio::task::yield_now().await,
            }
        }
    });
    assert!(trouble.await.ends_with("only a restart helps"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_outlasts_the_database() {
    let postgres = Postgres::start(Durability::Fast);
    let database = Database::open(&postgres.create_database().await).await;
    let database = database.expect("a database");
    let ledger = start(&database).await;
    for number in 0..20 {
        let hold = open(&format!("h{number}"), 1_000);
        ledger.open(&alice(), hold, soon()).await.expect("enough");
    }
    let mut requests = JoinSet::new();
    for number in 0..20 {
        let ledger = ledger.clone();
        requests.spawn(async move {
            let settle = settle(&format!("h{number}"), 500);
            ledger.settle(&alice(), settle, soon()).await
        });
    }
    postgres.kill();
    let given_up = open("late", 1);
    let alice = alice();
    let refused = ledger.open(
        &alice,
        given_up,
        Instant::now() + Duration::from_millis(300),
    );
    assert_eq!(refused.await, Err(LedgerError::Late));
    postgres.restart();
    for outcome in requests.join_all().await {
        assert_eq!(
            outcome.map(|settlement| settlement.charged),
            Ok(Credits::from_micro(500))
        );
    }
    ledger.stop().await;
    // Readers' connections were cut, and count as healthy for a second.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let left = account(&ledger).await;
    assert_eq!(
        (left.balance.plan, left.held.plan),
        (Credits::from_micro(FREE - 10_000), Credits::from_micro(0))
    );
    is_sound(&database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_cannot_be_changed_and_a_changed_balance_is_found() {
    each_database(async |Stores { database, .. }| {
        let ledger = start(database).await;
        ledger
            .open(&alice(), open("a", 10), soon())
            .await
            .expect("enough");
        ledger
            .settle(&alice(), settle("a", 7), soon())
            .await
            .expect("it is open");
        for statement in ["UPDATE entries SET plan_delta = 0", "DELETE FROM entries"] {
            let outcome = database.writer().execute(statement).await;
            let error = outcome.expect_err(statement).to_string();
            assert!(error.contains("append-only"), "{error}");
        }
        is_sound(database).await;
        for statement in [
            "UPDATE accounts SET plan_credits = plan_credits + 1",
            "UPDATE accounts SET entries = entries + 1",
        ] {
            let before = verify(database, NOW).await.expect("an answer").len();
            database.writer().execute(statement).await.expect(statement);
            let after = verify(database, NOW).await.expect("an answer");
            assert!(after.len() > before, "{statement}: {after:?}");
        }
    })
    .await;
}

/// Triggers keep nobody from a change who can drop them.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_was_changed_is_found() {
    each_database(async |Stores { database, .. }| {
        let ledger = start(database).await;
        for hold in ["a", "b", "c"] {
            ledger
                .open(&alice(), open(hold, 10), soon())
                .await
                .expect("enough");
            let settled = ledger.settle(&alice(), settle(hold, 7), soon()).await;
            settled.expect("it is open");
        }
        ledger.stop().await;
        is_sound(database).await;
        let numbers = "SELECT number FROM entries WHERE account_id = 'alice' ORDER BY number";
        let numbers: Vec<i64> = sqlx::query_scalar(numbers)
            .fetch_all(database.reader())
            .await
            .expect("entries");
        assert!(numbers.len() > 3, "a grant and three settlements");
        let forge = match database.dialect() {
            SqlDialect::Sqlite => "DROP TRIGGER entries_are_not_updated",
            SqlDialect::Postgres => "DROP TRIGGER entries_are_not_changed ON entries",
        };
        database.writer().execute(forge).await.expect(forge);
        let what = "an entry is not the one whose hash the next one names";
        for number in &numbers {
            // No sum shows these changes.
            for (forged, mended) in [
                ("at = at + 1", "at = at - 1"),
                (
                    "receipt = REPLACE(receipt, '\"catalog\":3', '\"catalog\":4')",
                    "receipt = REPLACE(receipt, '\"catalog\":4', '\"catalog\":3')",
                ),
                (
                    "model = REPLACE(model, 'demo', 'dear')",
                    "model = REPLACE(model, 'dear', 'demo')",
                ),
            ] {
                let change = async |what: &str| {
                    let change = format!("UPDATE entries SET {what} WHERE number = {number}");
                    let changed = sqlx::query(AssertSqlSafe(change));
                    let changed = changed.execute(database.writer()).await;
                    changed.expect("a changed entry");
                };
                let is_request = *number != numbers[0];
                change(forged).await;
                let found = verify(database, NOW).await.expect("an answer");
                let is_found = found.iter().any(|found| found.what == what);
                assert_eq!(
                    is_found,
                    is_request || forged.starts_with("at"),
                    "{number}: {forged}: {found:?}"
                );
                change(mended).await;
            }
        }
        is_sound(database).await;
        // An entry of a node of an earlier release, and the next one.
        database
            .writer()
            .execute("UPDATE entries SET previous_hash = NULL, receipt = NULL WHERE hold_id = 'c'")
            .await
            .expect("an entry");
        let last = "UPDATE accounts SET last_hash = NULL";
        database.writer().execute(last).await.expect("an account");
        let ledger = another(database).await;
        ledger
            .open(&alice(), open("d", 10), soon())
            .await
            .expect("enough");
        let settled = ledger.settle(&alice(), settle("d", 7), soon()).await;
        settled.expect("it is open");
        ledger.stop().await;
        is_sound(database).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_users_record_follows_the_plan() {
    each_database(async |stores| {
        let ledger = start(&stores.database).await;
        let grant = weir_ledger::Grant {
            id: OperationId("sub_1:1".to_owned()),
            plan: Plan::Guru,
            period: weir_ledger::Period::monthly(NOW, NOW),
            credits: Plan::Guru.monthly_credits(),
        };
        for _ in 0..2 {
            let granted = ledger
                .submit(&alice(), Action::Grant(grant.clone()), soon())
                .await;
            let credits = Credits::whole(10_000);
            assert_eq!(granted, Ok(OperationEffect::Granted { credits }));
        }
        let credits = Credits::from_micro(5);
        // The second one is for a higher plan: its credits are plan credits.
        for (id, within) in [("pay_1", None), ("pay_2", Some(NOW.plus_days(1)))] {
            let top_up = TopUp {
                id: OperationId(id.to_owned()),
                credits,
                within,
            };
            for _ in 0..2 {
                let top_up = Action::TopUp(top_up.clone());
                let added = ledger.submit(&alice(), top_up, soon()).await;
                assert_eq!(added, Ok(OperationEffect::ToppedUp { credits }));
            }
        }
        let plan: String = sqlx::query_scalar("SELECT plan FROM users WHERE id = 'alice'")
            .fetch_one(stores.database.reader())
            .await
            .expect("a user");
        assert_eq!(plan, "guru");
        let left = account(&ledger).await;
        let expected = (Credits::from_micro(10_000_000_005), credits);
        assert_eq!((left.balance.plan, left.balance.top_up), expected);
        is_sound(&stores.database).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotency_key_gives_one_outcome() {
    each_database(async |Stores { database, .. }| {
        create_users(database, ["alice"].into_iter(), NOW.0).await;
        let store = LedgerStore::new(database.clone());
        let renew = async |at: Millis, until: i64| {
            let until = Millis(at.0 + until);
            let renewed = store.renew_lease(&boot("boot"), at, until).await;
            renewed.expect("a lease");
        };
        renew(NOW, 30_000).await;
        let submit = async |at, action| {
            let operation = Operation {
                account: alice(),
                at,
                action,
            };
            let outcomes = store.commit(&[operation]).await;
            outcomes.expect("an answer").remove(0)
        };
        let ask = async |request: &str, digest: &[u8; 32], at| {
            let claim = IdempotencyClaim {
                key: "key-1".to_owned(),
                request_digest: *digest,
            };
            let open = Action::Open {
                open: open(request, 100),
                boot_id: boot("boot"),
                claim: Some(Box::new(claim)),
            };
            submit(at, open).await
        };
        let end = async |request: &str, answer: Option<&[u8]>| {
            let end = Action::EndKey(EndKey {
                key: "key-1".to_owned(),
                request_id: format!("req_{request}"),
                answer: answer.map(<[u8]>::to_vec),
            });
            submit(NOW, end).await
        };
        let release = async |request: &str| {
            let hold = HoldId(request.to_owned());
            let released = submit(NOW, Action::Release { hold, cost: None }).await;
            assert_eq!(released, Ok(OperationEffect::Released));
        };
        let taken = |taken| Err(LedgerRefusal::KeyTaken(taken));
        let (one, two) = (&[1; 32], &[2; 32]);
        for _ in 0..2 {
            // Its own hold is no other request.
            assert_eq!(ask("a", one, NOW).await, Ok(OperationEffect::Opened));
        }
        assert_eq!(ask("b", one, NOW).await, taken(KeyConflict::InProgress));
        assert_eq!(ask("b", two, NOW).await, taken(KeyConflict::OtherRequest));
        assert_eq!(held(&store).await, Credits::from_micro(100));
        release("a").await;
        assert_eq!(ask("c", two, NOW).await, Ok(OperationEffect::Opened));
        assert_eq!(end("c", None).await, Err(LedgerRefusal::StillOpen));
        // Regardless of the age of its node's lease.
        let later = Millis(NOW.0 + 3_600_000);
        assert_eq!(ask("d", two, later).await, taken(KeyConflict::InProgress));

        // Served, and then its node crashes before it can report that.
        let settled = submit(NOW, Action::Settle(settle("c", 7))).await;
        assert!(settled.is_ok(), "{settled:?}");
        assert_eq!(ask("d", two, NOW).await, taken(KeyConflict::InProgress));
        let served = |charged, answer: Option<&[u8]>| ServedRequest {
            request_id: "req_c".to_owned(),
            charged: Credits::from_micro(charged),
            answer: answer.map(<[u8]>::to_vec),
            expires_at: NOW.plus_days(1),
        };
        let lost = taken(KeyConflict::Served(served(7, None)));
        assert_eq!(ask("d", two, later).await, lost);
        assert_eq!(
            end("b", Some(b"another's")).await,
            Ok(OperationEffect::KeyEnded)
        );
        for answer in [b"sealed", b"again "] {
            assert_eq!(end("c", Some(answer)).await, Ok(OperationEffect::KeyEnded));
            let kept = taken(KeyConflict::Served(served(7, Some(b"sealed"))));
            assert_eq!(ask("d", two, NOW).await, kept);
        }

        // Its node fails before any delivery, and returns.
        let tomorrow = NOW.plus_days(1);
        assert_eq!(ask("e", one, tomorrow).await, Ok(OperationEffect::Opened));
        let hold = HoldId("e".to_owned());
        let expired = submit(NOW, Action::Expire { hold }).await;
        assert!(expired.is_ok(), "{expired:?}");
        let of_e = ServedRequest {
            request_id: "req_e".to_owned(),
            expires_at: tomorrow.plus_days(1),
            ..served(0, None)
        };
        let taken_by_e = taken(KeyConflict::Served(of_e));
        assert_eq!(ask("f", one, tomorrow).await, taken_by_e);
        release("e").await;
        assert_eq!(ask("f", one, tomorrow).await, Ok(OperationEffect::Opened));
        // Its node lives, and would have ended the key by now.
        let settled = submit(NOW, Action::Settle(settle("f", 7))).await;
        assert!(settled.is_ok(), "{settled:?}");
        renew(tomorrow, 3_600_000).await;
        let quarter = Millis(tomorrow.0 + 15 * 60_000);
        let before = Millis(quarter.0 - 1);
        assert_eq!(ask("g", one, before).await, taken(KeyConflict::InProgress));
        let over = ask("g", one, quarter).await;
        assert!(
            matches!(over, Err(LedgerRefusal::KeyTaken(KeyConflict::Served(_)))),
            "{over:?}"
        );
        is_sound(database).await;
        let forgotten = store.forget_keys(tomorrow.plus_days(2)).await;
        forgotten.expect("an answer");
        assert_eq!(count(database, "idempotency_keys").await, 0);
    })
    .await;
}

async fn count(database: &Database, table: &str) -> i64 {
    let count = format!("SELECT CAST(COUNT(*) AS BIGINT) FROM {table}");
    sqlx::query_scalar(AssertSqlSafe(count))
        .fetch_one(database.reader())
        .await
        .expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_has_ended_is_in_the_entries_alone() {
    each_database(async |Stores { database, .. }| {
        create_users(database, ["alice"].into_iter(), NOW.0).await;
        // Each store has no cache of the others' changes.
        let submit = async |action: &Action| {
            let operation = Operation {
                account: alice(),
                at: NOW,
                action: action.clone(),
            };
            let outcomes = LedgerStore::new(database.clone())
                .commit(&[operation])
                .await;
            outcomes.expect("an answer").remove(0)
        };
        let hold = |id: &str| HoldId(id.to_owned());
        let open = |hold| opening(hold).action;
        let checkpoint = |id: &str| {
            Action::Checkpoint(Checkpoint {
                hold: hold(id),
                credits: Credits::from_micro(5),
                usage: usage(),
            })
        };
        let done = |charged| {
            let charged = Credits::from_micro(charged);
            let overrun = Credits::ZERO;
            Ok(OperationEffect::Settled { charged, overrun })
        };
        let ended = |state| Err(LedgerRefusal::Ended(state));
        let released = || Ok(OperationEffect::Released);
        let release = |id: &str| Action::Release {
            hold: hold(id),
            cost: None,
        };
        let expire = |id: &str| Action::Expire { hold: hold(id) };
        let settle = |id: &str, credits| Action::Settle(settle(id, credits));
        let expired = || {
            Ok(OperationEffect::Expired {
                charged: Credits::from_micro(5),
                overrun: Credits::ZERO,
            })
        };
        for (action, outcome, kept) in [
            (open("s"), Ok(OperationEffect::Opened), 1),
            (settle("s", 7), done(7), 0),
            (open("s"), Ok(OperationEffect::Opened), 0),
            (release("s"), ended(HoldState::Settled), 0),
            (settle("s", 8), Err(LedgerRefusal::Conflict), 0),
            (open("r"), Ok(OperationEffect::Opened), 1),
            (release("r"), released(), 0),
            (settle("r", 7), ended(HoldState::Released), 0),
            (open("e"), Ok(OperationEffect::Opened), 1),
            (checkpoint("e"), Ok(OperationEffect::Checkpointed), 1),
            (expire("e"), expired(), 1),
            (checkpoint("e"), ended(HoldState::Expired), 1),
            (settle("e", 3), done(3), 0),
            (expire("e"), ended(HoldState::Settled), 0),
            (open("l"), Ok(OperationEffect::Opened), 1),
            (checkpoint("l"), Ok(OperationEffect::Checkpointed), 1),
            (expire("l"), expired(), 1),
            (release("l"), released(), 0),
            (settle("l", 5), ended(HoldState::Released), 0),
        ] {
            for _ in 0..2 {
                assert_eq!(submit(&action).await, outcome, "{action:?}");
            }
            assert_eq!(count(database, "holds").await, kept, "{action:?}");
            is_sound(database).await;
        }
        assert_eq!(count(database, "entries").await, 1 + 2 + 2 + 2);
    })
    .await;
}

/// Returns the cost of all requests by account, model and provider, as reports show it.
async fn figures(database: &Database) -> Vec<(String, String, i64, i64, i64)> {
    let rows = sqlx::query_as(AssertSqlSafe(format!(
        "SELECT account_id, model, {} FROM {} GROUP BY account_id, model ORDER BY account_id, model",
        "CAST(SUM(requests) AS BIGINT), CAST(SUM(credits) AS BIGINT), CAST(SUM(tokens_output) AS BIGINT)",
        to_date("day >= $1")
    )));
    let figures: Vec<_> = rows
        .bind(0_i64)
        .fetch_all(database.reader())
        .await
        .expect("figures");
    let store = LedgerStore::new(database.clone());
    for user in ["alice", "bob"] {
        let usage = store.find_period_usage(&AccountId(user.to_owned())).await;
        let usage = usage.expect("an answer").expect("an account");
        let of_user =
            |(account, model, requests, credits, tokens): &(String, String, i64, i64, i64)| {
                (account == user).then(|| (model.clone(), *requests, *credits, *tokens))
            };
        let expected: Vec<_> = figures.iter().filter_map(of_user).collect();
        let mut found: Vec<_> = usage
            .by_model
            .into_iter()
            .map(|(model, sums)| {
                let tokens = sums.counts.tokens_output;
                (model, sums.requests, sums.credits.micro(), tokens)
            })
            .collect();
        found.sort();
        assert_eq!(found, expected);
    }
    figures
}

/// Serves requests of two accounts and two models; every fifth expires and is then settled for less.
async fn serve_forty(database: &Database) {
    create_users(database, ["alice", "bob"].into_iter(), NOW.0).await;
    let store = LedgerStore::new(database.clone());
    for number in 0..40_i64 {
        let hold = format!("h{number}");
        let mut opening = open(&hold, 1_000);
        opening.model = ["m", "n"][number as usize % 2].to_owned();
        let checkpoint = Checkpoint {
            hold: HoldId(hold.clone()),
            credits: Credits::from_micro(300),
            usage: usage(),
        };
        let mut actions = vec![
            Action::Open {
                open: opening,
                boot_id: boot("boot"),
                claim: None,
            },
            Action::Checkpoint(checkpoint),
            Action::Settle(settle(&hold, 100 + number)),
        ];
        if number % 5 == 0 {
            let hold = HoldId(hold);
            actions.insert(2, Action::Expire { hold });
        }
        let operations: Vec<_> = actions
            .into_iter()
            .map(|action| Operation {
                account: AccountId(["alice", "bob"][number as usize / 2 % 2].to_owned()),
                at: NOW,
                action,
            })
            .collect();
        let outcomes = store.commit(&operations).await.expect("an answer");
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    }
}

async fn folded(database: &Database) -> i64 {
    sqlx::query_scalar("SELECT number FROM entries_folded")
        .fetch_one(database.reader())
        .await
        .expect("a number")
}

/// Each step is another process's: the one before it has crashed.
#[tokio::test(flavor = "multi_thread")]
async fn figures_are_exact_wherever_folding_has_come_to() {
    each_database(async |Stores { database, .. }| {
        serve_forty(database).await;
        let expected = figures(database).await;
        let requests: i64 = expected.iter().map(|figures| figures.2).sum();
        assert_eq!((expected.len(), requests), (4, 40));
        let last = count(database, "entries").await;
        let step = async || {
            let mut fold = Fold::new(LedgerStore::new(database.clone()));
            // On PostgreSQL, a first step only marks a number.
            patiently(async {
                loop {
                    match fold.step(7).await {
                        Ok(0) => tokio::time::sleep(Duration::from_millis(2)).await,
                        folded => return folded,
                    }
                }
            })
            .await
        };
        assert_eq!(step().await, Ok(7));
        assert_eq!(count(database, "account_entries").await, 7);
        assert_eq!(figures(database).await, expected);
        is_sound(database).await;

        // A step that fails midway leaves no changes.
        let (refuse, allow) = match database.dialect() {
            SqlDialect::Sqlite => (
                "CREATE TRIGGER refuse BEFORE UPDATE ON entries_folded BEGIN SELECT RAISE(ABORT, 'refused'); END",
                "DROP TRIGGER refuse",
            ),
            SqlDialect::Postgres => (
                "ALTER TABLE entries_folded ADD CONSTRAINT refuse CHECK (number < 8)",
                "ALTER TABLE entries_folded DROP CONSTRAINT refuse",
            ),
        };
        database.writer().execute(refuse).await.expect("a rule");
        let refused = step().await;
        assert!(matches!(refused, Err(LedgerStoreError::Rejected(_))), "{refused:?}");
        assert_eq!(figures(database).await, expected);
        is_sound(database).await;
        database.writer().execute(allow).await.expect("no rule");

        while folded(database).await < last {
            step().await.expect("an answer");
            assert_eq!(figures(database).await, expected);
            is_sound(database).await;
        }
        assert_eq!(count(database, "account_entries").await, last);
        for statement in [
            "UPDATE platform_daily SET requests = requests + 1",
            "UPDATE usage_daily SET credits = credits + 1",
            "UPDATE account_entries SET number = number + 1",
        ] {
            let before = verify(database, NOW).await.expect("an answer").len();
            database.writer().execute(statement).await.expect(statement);
            let after = verify(database, NOW).await.expect("an answer");
            assert!(after.len() > before, "{statement}: {after:?}");
        }
    })
    .await;
}

/// PostgreSQL numbers entries before they are committed.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_is_committed_after_later_ones_is_folded_too() {
    let url = Postgres::shared().create_database().await;
    let database = patient_database(&url).await;
    serve_forty(&database).await;
    let before = figures(&database).await;
    let mut slow = database.begin().await.expect("a transaction");
    for statement in [
        "UPDATE accounts SET entries = entries + 1 WHERE id = 'bob'",
        "INSERT INTO entries (account_id, sequence, at, kind, plan_delta, top_up_delta, overrun, period_start, \
         hold_id, request_id, source, model, amount, provider, adapter_digest, requests, tokens_input, \
         tokens_cache_read, tokens_cache_write, tokens_output, images, provider_cost, latency_ms) \
         SELECT id, entries, period_start, 'settlement', 0, 0, 0, period_start, 'slow', 'req_slow', 'web', 'm', 0, \
         'demo', '', 1, 0, 0, 0, 0, 0, 0, 0 FROM accounts WHERE id = 'bob'",
    ] {
        slow.execute(statement).await.expect(statement);
    }
    let store = LedgerStore::new(database.clone());
    let operations =
        [opening("late").action, Action::Settle(settle("late", 0))].map(|action| Operation {
            account: alice(),
            at: NOW,
            action,
        });
    let outcomes = store.commit(&operations).await.expect("an answer");
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    let mut fold = Fold::new(store);
    for _ in 0..3 {
        assert_eq!(fold.step(1_000).await, Ok(0));
    }
    slow.commit().await.expect("a commit");
    while fold.step(1_000).await.expect("an answer") == 0 {
        tokio::task::yield_now().await;
    }
    let last: i64 = sqlx::query_scalar("SELECT MAX(number) FROM entries")
        .fetch_one(database.reader())
        .await
        .expect("a number");
    assert_eq!(folded(&database).await, last);
    is_sound(&database).await;
    let requests = |figures: &[(String, String, i64, i64, i64)]| -> i64 {
        figures.iter().map(|figures| figures.2).sum()
    };
    let after = figures(&database).await;
    assert_eq!(requests(&after), requests(&before) + 2);
}

/// PostgreSQL's transaction ids belong to the server, not to a database.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_left_open_in_another_database_does_not_stop_the_fold() {
    let postgres = Postgres::shared();
    let other = patient_database(&postgres.create_database().await).await;
    let mut left_open = other.begin().await.expect("a transaction");
    left_open
        .execute("CREATE TABLE written (id BIGINT)")
        .await
        .expect("an answer");
    let database = patient_database(&postgres.create_database().await).await;
    serve_forty(&database).await;
    let entries = count(&database, "entries").await;
    let mut fold = Fold::new(LedgerStore::new(database.clone()));
    patiently(async {
        while folded(&database).await < entries {
            fold.step(1_000).await.expect("an answer");
        }
    })
    .await;
    drop(left_open);
    is_sound(&database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_folds_its_entries_by_itself() {
    each_database(async |Stores { database, .. }| {
        serve_forty(database).await;
        let expected = figures(database).await;
        let ledger = another(database).await;
        let entries = count(database, "entries").await;
        patiently(async {
            while folded(database).await < entries {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        assert_eq!(figures(database).await, expected);
        ledger.stop().await;
        is_sound(database).await;
    })
    .await;
}

/// A batch with operations on a hold and on another hold's parent, which is the same hold.
#[tokio::test(flavor = "multi_thread")]
async fn an_ended_hold_is_read_once_in_a_batch_that_meets_it_twice() {
    each_database(async |stores| {
        let database = &stores.database;
        create_users(database, ["alice"].into_iter(), NOW.0).await;
        let hold = |id: &str| HoldId(id.to_owned());
        let act = |action| Operation {
            account: alice(),
            at: NOW,
            action,
        };
        let mut child = opening("child");
        if let Action::Open { open, .. } = &mut child.action {
            open.parent = Some(hold("parent"));
            open.amount = Credits::from_micro(10);
        }
        let settled = act(Action::Settle(settle("parent", 7)));
        let checkpoint = act(Action::Checkpoint(Checkpoint {
            hold: hold("child"),
            credits: Credits::from_micro(5),
            usage: usage(),
        }));
        let commit = async |operations: Vec<Operation>| {
            // Each store has no cache of the others' changes.
            let outcomes = LedgerStore::new(database.clone()).commit(&operations).await;
            outcomes.expect("an answer")
        };
        let first = commit(vec![opening("parent"), child, settled.clone()]).await;
        let again = commit(vec![checkpoint, settled]).await;
        assert_eq!(again, [Ok(OperationEffect::Checkpointed), first[2].clone()]);
        assert!(
            matches!(first[2], Ok(OperationEffect::Settled { .. })),
            "{first:?}"
        );
        is_sound(database).await;
    })
    .await;
}
