//! The ledger: its rules, its committer, and what it keeps through crashes, on both databases.

use std::time::Duration;

use sqlx::Executor;
use tempfile::TempDir;
use tests::ledger::create_users;
use tests::ledger::oracle;
use tests::ledger::simulation::{Plant, simulate};
use tests::patiently;
use tests::stores::{Durability, Postgres, Stores, each_database};
use tokio::task::JoinSet;
use tokio::time::Instant;
use weir_ledger::idempotency::{self, Claim, Claimed, Served};
use weir_ledger::verify::verify;
use weir_ledger::{
    Account, AccountId, Action, BootId, Checkpoint, Credits, Done, HoldId, LeaseSettings, Ledger,
    LedgerError, Open, Operation, OperationId, Plan, Refusal, RequestSource, RequestUsage, Settle,
    Settlement, Store, StoreError, TopUp, UsageCounts,
};
use weir_storage::Database;
use weir_storage::clock::{Clock, ManualClock, Millis};
use weir_storage::database::SqlDialect;
use weir_storage::secrets::SecretUrl;

const NOW: Millis = Millis(1_750_000_000_000);

/// All of the free plan's credits.
const FREE: i64 = 500_000_000;

fn alice() -> AccountId {
    AccountId("alice".to_owned())
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn open(hold: &str, amount: i64) -> Open {
    Open {
        hold: HoldId(hold.to_owned()),
        amount: Credits::from_micro(amount),
        request_id: format!("req_{hold}"),
        parent: None,
        source: RequestSource::ApiKey,
        source_id: Some("key".to_owned()),
        model: "demo".to_owned(),
    }
}

fn boot(name: &str) -> BootId {
    BootId::of(name).expect("a name")
}

fn settle(hold: &str, credits: i64) -> Settle {
    Settle {
        hold: HoldId(hold.to_owned()),
        credits: Credits::from_micro(credits),
        usage: usage(),
    }
}

fn usage() -> RequestUsage {
    RequestUsage {
        provider: "demo".to_owned(),
        adapter_digest: "sha256:00".to_owned(),
        counts: UsageCounts {
            tokens_input: 10,
            tokens_output: 20,
            ..UsageCounts::default()
        },
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

async fn account(ledger: &Ledger) -> Account {
    let account = ledger.find_account(&alice()).await;
    account.expect("an answer").expect("an account")
}

async fn is_sound(database: &Database) {
    let violations = verify(database, NOW).await.expect("an answer");
    assert_eq!(violations, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn random_histories_agree_with_the_oracle() {
    each_database(async |stores| {
        let report = oracle::compare(&stores.database, 7, 3_000).await;
        let report = report.unwrap_or_else(|divergence| panic!("{divergence}"));
        assert!(report.refused * 10 > report.operations, "{report:?}");
        assert!(report.refused * 2 < report.operations, "{report:?}");
    })
    .await;
}

#[test]
fn the_committer_survives_whatever_happens() {
    for seed in 0..200 {
        simulate(seed, Plant::Nothing).unwrap_or_else(|violation| panic!("{violation}"));
    }
}

#[test]
fn the_simulation_finds_a_planted_double_settlement() {
    assert!((0..100).any(|seed| simulate(seed, Plant::DoubleSettle).is_err()));
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
        let short = Refusal::Insufficient {
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
        assert_eq!(again, Err(LedgerError::Refused(Refusal::Conflict)));
        assert_eq!(
            account(&ledger).await.available().plan,
            Credits::from_micro(FREE - 7)
        );

        let nobody = AccountId("nobody".to_owned());
        let refused = ledger.open(&nobody, open("c", 1), soon()).await;
        assert_eq!(refused, Err(LedgerError::Refused(Refusal::UnknownAccount)));
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
            // Nobody waits for that.
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
                    .release(&alice(), hold, soon())
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

/// Opens a hold as a node does that then goes away, and has noted so much.
async fn orphan(database: &Database, boot_id: &str, hold: &str, checkpoint: i64) {
    let opening = Action::Open {
        open: open(hold, 1_000),
        boot_id: boot(boot_id),
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
    let outcomes = Store::new(database.clone()).commit(&operations).await;
    assert_eq!(outcomes, Ok(vec![Ok(Done::Opened), Ok(Done::Checkpointed)]));
}

/// Once, whoever finds them and however often.
#[tokio::test(flavor = "multi_thread")]
async fn periods_that_are_due_begin_by_themselves() {
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
        for user in ["alice", "bob"] {
            let user = AccountId(user.to_owned());
            let begun = ledger.submit(&user, Action::ResetPeriod, soon()).await;
            begun.expect("a first period");
        }
        assert_eq!(ledger.begin_due_periods().await.expect("an answer"), 0);
        clock.set(NOW.plus_days(40));
        let (first, second) = tokio::join!(ledger.begin_due_periods(), other.begin_due_periods());
        let found = first.expect("an answer") + second.expect("an answer");
        assert!((2..=4).contains(&found), "{found}");
        assert_eq!(other.begin_due_periods().await.expect("an answer"), 0);
        let grants: i64 =
            sqlx::query_scalar("SELECT CAST(COUNT(*) AS BIGINT) FROM entries WHERE kind = 'grant'")
                .fetch_one(database.reader())
                .await
                .expect("a number");
        assert_eq!(grants, 4, "two periods of two accounts");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn holds_of_a_node_that_went_away_are_settled_at_their_checkpoint() {
    each_database(async |stores| {
        let database = &stores.database;
        create_users(database, ["alice"].into_iter(), NOW.0).await;
        let store = Store::new(database.clone());
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
        // Its own first sweep comes at once; they may share the work.
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
            .release(&alice(), void, soon())
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
                // PostgreSQL cannot keep this.
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

/// Each time with a turn of its own, as another process would have.
async fn open_in(folder: &TempDir) -> Database {
    let url = format!("sqlite:{}", folder.path().join("weir.db").display());
    let database = Database::open(&SecretUrl::new(url)).await;
    database.expect("a database")
}

async fn held(store: &Store) -> Credits {
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
        },
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_another_process_writes_to_is_unavailable_for_as_long() {
    let (folder, database) = on_disk().await;
    create_users(&database, ["alice"].into_iter(), NOW.0).await;
    let store = Store::new(database.clone());
    let other = open_in(&folder).await;
    let mut writing = other.begin().await.expect("a transaction");
    writing
        .execute("UPDATE users SET created_at = created_at + 1")
        .await
        .expect("an update");
    for _ in 0..2 {
        let outcomes = store.commit(&[opening("h1")]).await;
        assert!(
            matches!(outcomes, Err(StoreError::Unavailable(_))),
            "{outcomes:?}"
        );
    }
    writing.commit().await.expect("a commit");
    let outcomes = store.commit(&[opening("h1")]).await;
    assert_eq!(outcomes, Ok(vec![Ok(Done::Opened)]));
    is_sound(&database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_have_written_to_a_file_is_seen() {
    let (folder, database) = on_disk().await;
    create_users(&database, ["alice"].into_iter(), NOW.0).await;
    let process = open_in(&folder).await;
    // On the same connection, and on another.
    let others = [&database, &process].map(|database| Store::new(database.clone()));
    let store = Store::new(database.clone());
    for (number, other) in others.iter().cycle().take(6).enumerate() {
        for (store, name) in [(&store, "own"), (other, "other")] {
            let outcomes = store.commit(&[opening(&format!("{name}{number}"))]).await;
            assert_eq!(outcomes, Ok(vec![Ok(Done::Opened)]));
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
    let store = Store::new(database.clone());
    for (batch, is_refused) in [
        (["h1", "h2"], false),
        (["h3", "refused"], true),
        (["h3", "h4"], false),
    ] {
        let outcomes = store.commit(&batch.map(opening)).await;
        let refused = matches!(outcomes, Err(StoreError::Rejected(_)));
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
        let store = Store::new(database.clone());
        let parent = Some(HoldId("parent".to_owned()));
        let child = |hold| {
            let open = Open {
                parent: parent.clone(),
                ..open(hold, 600)
            };
            let boot_id = boot("boot");
            Action::Open { open, boot_id }
        };
        let release = |hold: &str| Action::Release {
            hold: HoldId(hold.to_owned()),
        };
        // The second child fits only once the first has ended.
        for (action, done) in [
            (opening("parent").action, Done::Opened),
            (child("first"), Done::Opened),
            (release("first"), Done::Released),
            (child("second"), Done::Opened),
            (release("parent"), Done::Released),
            (release("second"), Done::Released),
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
        let store = Store::new(database.clone());
        let mut writing = database.begin().await.expect("a transaction");
        writing
            .execute("INSERT INTO users (id, created_at) VALUES ('bob', 1)")
            .await
            .expect("an insert");
        let began = Instant::now();
        let outcomes = store.commit(&[opening("h1")]).await;
        assert!(
            matches!(outcomes, Err(StoreError::Unavailable(_))),
            "{outcomes:?}"
        );
        assert!(began.elapsed() < Duration::from_secs(1));
        let waiting = tokio::spawn({
            let store = store.clone();
            async move { store.commit(&[opening("h1")]).await }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(writing);
        let outcomes = waiting.await.expect("no panic");
        assert_eq!(outcomes, Ok(vec![Ok(Done::Opened)]));
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
    let database = Database::open(&SecretUrl::new("sqlite::memory:")).await;
    let report = oracle::compare(&database.expect("a database"), 11, 1_000).await;
    report.unwrap_or_else(|divergence| panic!("{divergence}"));
}

/// Its thread would go on trying for ever.
#[tokio::test(flavor = "multi_thread")]
async fn the_committer_ends_when_the_database_is_closed() {
    let (_folder, database) = on_disk().await;
    let ledger = start(&database).await;
    let opened = ledger.open(&alice(), open("h1", 1_000), soon()).await;
    opened.expect("enough credits");
    database.close().await;
    assert_eq!(ledger.trouble(), None);
    let late = ledger.settle(&alice(), settle("h1", 5), soon()).await;
    assert_eq!(late, Err(LedgerError::Unavailable));
    let trouble = patiently(async {
        loop {
            match ledger.trouble() {
                Some(trouble) if trouble.contains("committer is gone") => return trouble,
                _ => tokio::task::yield_now().await,
            }
        }
    });
    assert!(trouble.await.ends_with("only a new start mends that"));
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
    // Readers' connections were cut off, and are trusted for a second.
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
            "UPDATE holds SET plan_posted = plan_posted + 1, settled = settled + 1",
            "UPDATE usage_daily SET credits = credits + 1",
        ] {
            let before = verify(database, NOW).await.expect("an answer").len();
            database.writer().execute(statement).await.expect(statement);
            let after = verify(database, NOW).await.expect("an answer");
            assert!(after.len() > before, "{statement}: {after:?}");
        }
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
            assert_eq!(granted, Ok(Done::Granted { credits }));
        }
        let top_up = TopUp {
            id: OperationId("pay_1".to_owned()),
            credits: Credits::from_micro(5),
        };
        for _ in 0..2 {
            let added = ledger
                .submit(&alice(), Action::TopUp(top_up.clone()), soon())
                .await;
            assert_eq!(
                added,
                Ok(Done::ToppedUp {
                    credits: Credits::from_micro(5)
                })
            );
        }
        let plan: String = sqlx::query_scalar("SELECT plan FROM users WHERE id = 'alice'")
            .fetch_one(stores.database.reader())
            .await
            .expect("a user");
        assert_eq!(plan, "guru");
        let left = account(&ledger).await;
        let expected = (Credits::whole(10_000), Credits::from_micro(5));
        assert_eq!((left.balance.plan, left.balance.top_up), expected);
        is_sound(&stores.database).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotency_key_gives_one_outcome() {
    each_database(async |Stores { database, .. }| {
        let ledger = start(database).await;
        let claim = |request_id: &str, digest: &[u8; 32], at| Claim {
            account: alice(),
            key: "key-1".to_owned(),
            request_digest: *digest,
            request_id: request_id.to_owned(),
            boot_id: ledger.boot_id().clone(),
            at,
        };
        let ask = async |request_id, digest, now| {
            let claimed = idempotency::claim(database, &claim(request_id, digest, now)).await;
            claimed.expect("an answer")
        };
        let end = async |request_id, digest, answer| {
            let ended =
                idempotency::end(database, &claim(request_id, digest, NOW), answer, NOW).await;
            ended.expect("an answer")
        };
        let (one, two) = (&[1; 32], &[2; 32]);
        assert_eq!(ask("req_a", one, NOW).await, Claimed::New);
        assert_eq!(ask("req_b", one, NOW).await, Claimed::InProgress);
        assert_eq!(ask("req_b", two, NOW).await, Claimed::OtherRequest);
        // Nothing was settled for it.
        assert!(end("req_b", one, None).await, "it is not its key");
        assert_eq!(ask("req_b", one, NOW).await, Claimed::InProgress);
        assert!(end("req_a", one, None).await);
        assert_eq!(ask("req_c", two, NOW).await, Claimed::New);

        // Served, and then its node crashes before it can say so.
        ledger
            .open(&alice(), open("c", 100), soon())
            .await
            .expect("enough");
        let later = Millis(NOW.0 + 3_600_000);
        assert!(!end("req_c", two, None).await, "it is not known yet");
        assert_eq!(ask("req_d", two, later).await, Claimed::InProgress);
        ledger
            .settle(&alice(), settle("c", 7), soon())
            .await
            .expect("it is open");
        assert_eq!(ask("req_d", two, NOW).await, Claimed::InProgress);
        let served = |answer: Option<&[u8]>| {
            Claimed::Served(Served {
                request_id: "req_c".to_owned(),
                charged: Credits::from_micro(7),
                answer: answer.map(<[u8]>::to_vec),
                expires_at: NOW.plus_days(1),
            })
        };
        assert_eq!(ask("req_d", two, later).await, served(None));

        assert!(end("req_c", two, Some(b"sealed")).await);
        assert_eq!(ask("req_d", two, later).await, served(Some(b"sealed")));
        let tomorrow = NOW.plus_days(1);
        assert_eq!(ask("req_e", one, tomorrow).await, Claimed::New);
        // Its node's lease is over, and it has no hold: nothing was delivered.
        assert_eq!(ask("req_f", one, tomorrow).await, Claimed::New);
        // Its node is there, and would have a hold by now if it still served it.
        let until = Millis(tomorrow.0 + 3_600_000);
        let renewed = Store::new(database.clone())
            .renew_lease(ledger.boot_id(), tomorrow, until)
            .await;
        renewed.expect("a lease");
        let quarter = Millis(tomorrow.0 + 15 * 60_000);
        let before = Millis(quarter.0 - 1);
        assert_eq!(ask("req_g", one, before).await, Claimed::InProgress);
        assert_eq!(ask("req_g", one, quarter).await, Claimed::New);
        idempotency::forget(database, tomorrow.plus_days(2))
            .await
            .expect("an answer");
        let left: i64 = sqlx::query_scalar("SELECT CAST(COUNT(*) AS BIGINT) FROM idempotency_keys")
            .fetch_one(database.reader())
            .await
            .expect("an answer");
        assert_eq!(left, 0);
    })
    .await;
}

/// What a sweep looks for is found by an index, however many holds there ever were.
#[tokio::test]
async fn sweeps_do_not_walk_all_holds() {
    let database = Database::open(&SecretUrl::new("sqlite::memory:")).await;
    let database = database.expect("a database");
    let store = include_str!("../../host/ledger/src/store.rs");
    let query = store
        .split("pub async fn find_orphans")
        .nth(1)
        .expect("the query");
    let query = query.split('"').nth(1).expect("a text").replace("\\\n", "");
    let plan: Vec<(i64, i64, i64, String)> =
        sqlx::query_as(sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {query}")))
            .bind(0_i64)
            .bind(1_i64)
            .fetch_all(database.reader())
            .await
            .expect("a plan");
    let plan = format!("{plan:?}");
    assert!(plan.contains("open_holds_by_boot"), "{plan}");
}
