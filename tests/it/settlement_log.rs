//! The log of settlements: a settlement is durable without its account's row, and in the account soon after.

use std::time::Duration;

use sqlx::Executor;
use tests::patiently;
use tokio::time::Instant;
use weir_ledger::verify::verify;
use weir_ledger::{
    Action, Adjust, ChangeDirection, Checkpoint, Credits, HoldId, LeaseSettings, Ledger,
    LedgerError, LedgerRefusal, LedgerStore, OpenHold, Operation, OperationEffect, OperationId,
    Pool, TopUp,
};
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::{SqlDialect, Transaction};

use crate::blocks::{Nodes, SETTLED, end, request};
use crate::ledger::{FREE, NOW, account, alice, is_sound, open, settle, soon, usage};

const ROWS: &str = "SELECT CAST(COUNT(*) AS BIGINT) FROM ledger_log";

const DATABASES: [SqlDialect; 2] = [SqlDialect::Sqlite, SqlDialect::Postgres];

/// Keeps settlements out of the account, as another node may for as long as its disk takes.
struct AccountLock {
    database: Database,
    /// PostgreSQL's; SQLite has no locks of rows, so a trigger rejects new entries.
    transaction: Option<Transaction>,
}

impl AccountLock {
    async fn take(database: &Database) -> Self {
        let mut lock = Self {
            database: database.clone(),
            transaction: None,
        };
        match database.dialect() {
            SqlDialect::Sqlite => {
                let reject = "CREATE TRIGGER rejects BEFORE INSERT ON entries BEGIN SELECT RAISE(ABORT, 'locked'); END";
                database.writer().execute(reject).await.expect("a trigger");
            }
            SqlDialect::Postgres => {
                let mut transaction = database.begin().await.expect("a transaction");
                sqlx::query("SELECT id FROM accounts FOR UPDATE")
                    .execute(&mut transaction)
                    .await
                    .expect("a lock");
                lock.transaction = Some(transaction);
            }
        }
        lock
    }

    async fn release(self) {
        match self.transaction {
            Some(transaction) => transaction.rollback().await.expect("an end"),
            None => {
                let writer = self.database.writer();
                writer
                    .execute("DROP TRIGGER rejects")
                    .await
                    .expect("an end");
            }
        }
    }
}

/// Ends a request that was opened in memory.
async fn serve(ledger: &Ledger, hold: OpenHold, credits: i64) {
    let id = hold.hold.0.clone();
    request(ledger, hold).await.expect("enough");
    end(ledger, &id, credits).await;
}

async fn until(nodes: &Nodes, query: &'static str, number: i64) {
    patiently(async {
        while nodes.number(query).await != number {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_does_not_wait_for_its_account() {
    for dialect in DATABASES {
        let nodes = Nodes::ready_on(dialect, 1).await;
        let ledger = &nodes.ledgers[0];
        let lock = AccountLock::take(&nodes.database).await;
        serve(ledger, open("a", 1_000), 300).await;
        serve(ledger, open("b", 1_000), 200).await;
        // More than its hold: the account has the rest.
        serve(ledger, open("c", 1_000), 1_500).await;
        assert_eq!(nodes.number(SETTLED).await, 1);
        assert!(nodes.number(ROWS).await > 0);
        is_sound(&nodes.database).await;
        lock.release().await;
        // A reader sees what its node has answered.
        let available = account(ledger).await.available().total();
        assert_eq!(available.micro(), FREE - 1 - 2_000);
        assert_eq!(nodes.number(SETTLED).await, 4);
        assert_eq!(nodes.stored_holds().await, 0);
        until(&nodes, ROWS, 0).await;
        is_sound(&nodes.database).await;
    }
}

/// The end of a request frees what it does not cost, but not what it costs.
#[tokio::test(flavor = "multi_thread")]
async fn unfolded_charges_stay_reserved_in_memory() {
    let nodes = Nodes::ready_on(SqlDialect::Sqlite, 1).await;
    let ledger = &nodes.ledgers[0];
    let lock = AccountLock::take(&nodes.database).await;
    serve(ledger, open("a", FREE - 1), 300).await;
    let rest = FREE - 1 - 300;
    request(ledger, open("b", rest))
        .await
        .expect("all the rest");
    assert_eq!(nodes.stored_holds().await, 0);
    lock.release().await;
    let refused = request(ledger, open("c", 1)).await;
    assert!(
        matches!(refused, Err(LedgerError::Refused(_))),
        "{refused:?}"
    );
    // The account has nothing beyond this hold.
    let settled = ledger.settle(&alice(), settle("b", rest + 5), soon()).await;
    let settled = settled.expect("a hold");
    assert_eq!(
        (settled.charged.micro(), settled.overrun.micro()),
        (rest, 5)
    );
    is_sound(&nodes.database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_run_folds_what_a_killed_one_has_answered() {
    let mut nodes = Nodes::ready_on(SqlDialect::Sqlite, 1).await;
    let lock = AccountLock::take(&nodes.database).await;
    serve(&nodes.ledgers[0], open("told", 1_000), 300).await;
    request(&nodes.ledgers[0], open("lost", 1_000))
        .await
        .expect("enough");
    // The process ends; nothing is left of its memory.
    nodes.databases[0].close().await;
    assert_eq!(
        (nodes.number(ROWS).await, nodes.number(SETTLED).await),
        (1, 1)
    );
    lock.release().await;
    let next = nodes.another(LeaseSettings::default()).await;
    // Nothing is served before.
    assert_eq!(
        (nodes.number(ROWS).await, nodes.number(SETTLED).await),
        (0, 2)
    );
    let found = account(&next).await;
    assert_eq!(found.available().total().micro(), FREE - 1 - 300);
    serve(&next, open("next", 1_000), 10).await;
    until(&nodes, SETTLED, 3).await;
    is_sound(&nodes.database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_in_another_process_folds_the_log_first() {
    let nodes = Nodes::ready_on(SqlDialect::Sqlite, 1).await;
    let ledger = &nodes.ledgers[0];
    let lock = AccountLock::take(&nodes.database).await;
    serve(ledger, open("a", 1_000), 300).await;
    lock.release().await;
    let store = LedgerStore::new(nodes.database.clone());
    let found = store.find_account(&alice()).await.expect("an answer");
    let balance = found.expect("an account").balance.total();
    assert_eq!(balance.micro(), FREE - 1 - 300);
    // The process that serves applies no record again, and its log goes on.
    serve(ledger, open("b", 1_000), 200).await;
    let available = account(ledger).await.available().total();
    assert_eq!(available.micro(), FREE - 1 - 500);
    assert_eq!(nodes.number(SETTLED).await, 3);
    until(&nodes, ROWS, 0).await;
    is_sound(&nodes.database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_takes_no_credits_of_answered_requests() {
    let nodes = Nodes::ready_on(SqlDialect::Sqlite, 1).await;
    let ledger = &nodes.ledgers[0];
    let store = LedgerStore::new(nodes.database.clone());
    let command = async |action| {
        let operation = Operation {
            account: alice(),
            at: NOW,
            action,
        };
        let outcomes = store.commit(&[operation]).await.expect("a commit");
        outcomes[0].clone()
    };
    let take = |credits| {
        Action::Adjust(Adjust {
            id: OperationId(format!("take_{credits}")),
            way: ChangeDirection::Take,
            pool: Pool::Plan,
            credits: Credits::from_micro(credits),
            reason: "a test".to_owned(),
            actor: "ops".to_owned(),
        })
    };
    request(ledger, open("open", 1_000)).await.expect("enough");
    let lock = AccountLock::take(&nodes.database).await;
    serve(ledger, open("answered", FREE / 2), FREE / 2).await;
    lock.release().await;
    let rest = FREE - 1 - FREE / 2;
    let refused = command(take(rest + 1)).await;
    assert!(
        matches!(refused, Err(LedgerRefusal::Insufficient { .. })),
        "{refused:?}"
    );
    // A hold in memory does not bind another process, so its charge is not certain any more.
    let credits = Credits::from_micro(rest - 400);
    assert_eq!(
        command(take(rest - 400)).await,
        Ok(OperationEffect::Adjusted { credits })
    );
    end(ledger, "open", 400).await;
    let refused = request(ledger, open("nothing left", 1)).await;
    assert!(
        matches!(refused, Err(LedgerError::Refused(_))),
        "{refused:?}"
    );
    let bought = Action::TopUp(TopUp {
        id: OperationId("pay".to_owned()),
        credits,
        within: None,
    });
    assert_eq!(
        command(bought).await,
        Ok(OperationEffect::ToppedUp { credits })
    );
    for number in 0..3 {
        serve(ledger, open(&format!("after{number}"), 1_000), 100).await;
    }
    let available = account(ledger).await.available().total();
    assert_eq!(available.micro(), rest - 400 - 300);
    assert_eq!(nodes.number(SETTLED).await, 6);
    until(&nodes, ROWS, 0).await;
    is_sound(&nodes.database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_waits_until_the_file_accepts_it() {
    let nodes = Nodes::ready_on(SqlDialect::Sqlite, 1).await;
    let ledger = &nodes.ledgers[0];
    let large = |hold: &str| OpenHold {
        model: "m".repeat(400_000),
        ..open(hold, 1_000)
    };
    for fault in ["full", "busy"] {
        request(ledger, large(fault)).await.expect("enough");
        let limit = async |pages: &str| {
            let turn = nodes.databases[0].write_turn().expect("SQLite");
            let native = turn.native().await.expect("a connection");
            native
                .execute_batch(&format!("PRAGMA max_page_count = {pages}"))
                .expect("a limit");
        };
        let lock = match fault {
            "busy" => Some(nodes.database.begin().await.expect("a transaction")),
            _ => None,
        };
        if lock.is_none() {
            // SQLite raises it to the pages in use.
            limit("1").await;
        }
        let settling = {
            let ledger = ledger.clone();
            tokio::spawn(async move { ledger.settle(&alice(), settle(fault, 300), soon()).await })
        };
        patiently(async {
            while ledger.trouble().is_none() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert!(!settling.is_finished(), "{fault}");
        match lock {
            Some(lock) => lock.rollback().await.expect("an end"),
            None => limit("1000000").await,
        }
        let settled = settling.await.expect("no panic");
        assert_eq!(settled.expect("a hold").charged.micro(), 300, "{fault}");
        patiently(async {
            while ledger.trouble().is_some() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    until(&nodes, SETTLED, 3).await;
    until(&nodes, ROWS, 0).await;
    is_sound(&nodes.database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn verification_finds_charges_that_nothing_covers() {
    for dialect in DATABASES {
        let nodes = Nodes::ready_on(dialect, 1).await;
        until(&nodes, ROWS, 0).await;
        nodes.ledgers[0].stop().await;
        let record = format!(
            r#"[{{"of":"alice","hold":"h","req":"r","src":"web","model":"m","amount":1,"opened":5,"ended":7,"plan":{}}}]"#,
            FREE / 1_000_000
        );
        sqlx::query("INSERT INTO ledger_log (boot_id, ordinal, records) SELECT boot_id, 1, $1 FROM node_leases")
            .bind(record)
            .execute(nodes.database.writer())
            .await
            .expect("a row");
        let violations = verify(&nodes.database, NOW).await.expect("an answer");
        let [violation] = &violations[..] else {
            panic!("{violations:?}");
        };
        assert_eq!((violation.invariant, &*violation.subject), ("I2", "alice"));
        let later = Millis(NOW.0 + 60_000);
        let violations = verify(&nodes.database, later).await.expect("an answer");
        assert_eq!(violations.len(), 2, "nobody folds it: {violations:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_node_folds_the_log_of_a_node_that_died() {
    let nodes = Nodes::with_blocks(2).await;
    let lock = AccountLock::take(&nodes.database).await;
    serve(&nodes.ledgers[0], open("told", 1_000), 300).await;
    request(&nodes.ledgers[0], open("lost", 1_000))
        .await
        .expect("enough");
    // The process ends; nothing is left of its memory.
    nodes.databases[0].close().await;
    lock.release().await;
    nodes.clock.advance(Duration::from_secs(25));
    let survivor = &nodes.ledgers[1];
    sweep_up(&nodes, survivor).await;
    let found = account(survivor).await;
    assert_eq!(found.balance.total().micro(), FREE - 2 - 300);
    assert_eq!(nodes.number(SETTLED).await, 3);
    is_sound(&nodes.database).await;
}

/// Lets a node sweep until the logs are folded, and the blocks of other nodes are returned.
async fn sweep_up(nodes: &Nodes, survivor: &Ledger) {
    patiently(async {
        while nodes.number(ROWS).await > 0 || nodes.blocks().await > 1 {
            // A sweep gives up while the node's last transaction holds its locks.
            let _ = survivor.sweep().await;
            nodes.clock.advance(Duration::from_secs(3));
        }
    })
    .await;
}

async fn until_checkpointed(nodes: &Nodes, credits: &str) {
    patiently(async {
        while checkpointed(nodes).await != credits {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Returns the credits of the checkpoints in the log.
async fn checkpointed(nodes: &Nodes) -> String {
    let row = sqlx::query_scalar("SELECT records FROM ledger_log WHERE ordinal = 0");
    let row: Option<String> = row
        .fetch_optional(nodes.database.reader())
        .await
        .expect("the database answers");
    let row = row.map_or(serde_json::Value::Null, |row| {
        serde_json::from_str(&row).expect("JSON")
    });
    row[0]["used"].to_string()
}

fn used(hold: &str, micro: i64) -> Checkpoint {
    Checkpoint {
        hold: HoldId(hold.to_owned()),
        credits: Credits::from_micro(micro),
        usage: usage(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_does_not_wait_for_its_account_and_its_request_ends_by_the_log() {
    let nodes = Nodes::with_blocks(1).await;
    let ledger = &nodes.ledgers[0];
    let lock = AccountLock::take(&nodes.database).await;
    request(ledger, open("a", 1_000)).await.expect("enough");
    for micro in [300, 200] {
        ledger.note(&alice(), used("a", micro));
    }
    until_checkpointed(&nodes, "0.0003").await;
    assert_eq!(nodes.stored_holds().await, 0);
    end(ledger, "a", 400).await;
    // The row of checkpoints goes with its last request.
    until_checkpointed(&nodes, "null").await;
    lock.release().await;
    assert_eq!(
        account(ledger).await.balance.total().micro(),
        FREE - 1 - 400
    );
    is_sound(&nodes.database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_a_node_that_died_are_charged_their_checkpoints_once() {
    let nodes = Nodes::with_blocks(2).await;
    let dying = &nodes.ledgers[0];
    for hold in ["noted", "ended", "lost"] {
        request(dying, open(hold, 1_000)).await.expect("enough");
    }
    for hold in ["noted", "ended"] {
        dying.note(&alice(), used(hold, 300));
    }
    until_checkpointed(&nodes, "0.0003").await;
    let lock = AccountLock::take(&nodes.database).await;
    // Its settlement is in the log, and so is its checkpoint.
    end(dying, "ended", 500).await;
    nodes.databases[0].close().await;
    lock.release().await;
    nodes.clock.advance(Duration::from_secs(25));
    let survivor = &nodes.ledgers[1];
    sweep_up(&nodes, survivor).await;
    let found = account(survivor).await;
    assert_eq!(found.balance.total().micro(), FREE - 2 - 800);
    is_sound(&nodes.database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_others_have_ended_appends_nothing_and_charges_once() {
    for dialect in DATABASES {
        let nodes = Nodes::ready_on(dialect, 1).await;
        let ledger = &nodes.ledgers[0];
        until(&nodes, ROWS, 0).await;
        for hold in ["a", "b"] {
            request(ledger, open(hold, 1_000)).await.expect("enough");
        }
        sqlx::query("UPDATE node_leases SET fence = fence + 1")
            .execute(nodes.database.writer())
            .await
            .expect("an update");
        // By a batch, and the outcome is the same.
        let settled = ledger.settle(&alice(), settle("a", 300), soon()).await;
        assert_eq!(settled.expect("a hold").charged, Credits::from_micro(300));
        // A batch looks for what the others may have applied, and finds nothing.
        let checkpoint = Checkpoint {
            hold: HoldId("b".to_owned()),
            credits: Credits::from_micro(5),
            usage: usage(),
        };
        let stored = ledger.checkpoint(&alice(), checkpoint, soon()).await;
        assert_eq!((stored, nodes.stored_holds().await), (Ok(()), 1));
        end(ledger, "b", 10).await;
        assert_eq!(
            (nodes.number(ROWS).await, nodes.number(SETTLED).await),
            (0, 3)
        );
        is_sound(&nodes.database).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_appended_beside_nodes_that_would_not_fold_it() {
    let mut nodes = Nodes::start(0).await;
    sqlx::query("INSERT INTO node_leases (boot_id, started_at, lease_until) VALUES ('earlier release', 0, $1)")
        .bind(i64::MAX)
        .execute(nodes.database.writer())
        .await
        .expect("a lease");
    let ledger = nodes.another(weir_ledger::LeaseSettings::default()).await;
    request(&ledger, open("first", 1_000))
        .await
        .expect("enough");
    end(&ledger, "first", 1).await;
    serve(&ledger, open("a", 1_000), 300).await;
    assert_eq!(
        (nodes.number(ROWS).await, nodes.number(SETTLED).await),
        (0, 2)
    );
    is_sound(&nodes.database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_leaves_no_log() {
    for dialect in DATABASES {
        let nodes = Nodes::ready_on(dialect, 1).await;
        let ledger = &nodes.ledgers[0];
        for number in 0..100 {
            serve(ledger, open(&format!("h{number}"), 1_000), 10).await;
        }
        let began = Instant::now();
        ledger.stop().await;
        assert!(began.elapsed() < Duration::from_secs(5));
        assert_eq!((nodes.number(ROWS).await, nodes.blocks().await), (0, 0));
        assert_eq!(nodes.number(SETTLED).await, 101);
        is_sound(&nodes.database).await;
    }
}
