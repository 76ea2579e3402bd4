//! I11: weir is killed again and again during card charges for accounts with a low balance.

use std::time::{Duration, Instant};

use sqlx::Row;
use tests::ledger::create_users;
use tests::ledger::random::Random;
use tests::processor::Processor;
use tests::stores::{Durability, Postgres};
use weir_ledger::{AccountId, Action, Credits, LedgerStore, Operation, commit_one};
use weir_storage::Database;
use weir_storage::clock::Millis;

use crate::process::{Node, Stores, shown, wait_until};

/// Kills on each database, and users, each charged once.
const KILLS: u32 = 100;

/// Bought credits: enough to prevent a second purchase.
const CREDITS: Credits = Credits::whole(27_500);

/// Time that a kill waits for the next charge; longer than a lease.
const NEXT_CHARGE: Duration = Duration::from_secs(60);

/// Time limit for all charges after the last kill.
const OVER: Duration = Duration::from_secs(60);

pub(crate) fn run() -> bool {
    let kills = crate::rounds(KILLS);
    let runtime = crate::runtime(2);
    let postgres = Postgres::start(Durability::Real);
    let url = runtime.block_on(postgres.create_database());
    let on_sqlite = kill(&runtime, "SQLite", &Stores::default(), kills);
    let stores = Stores {
        postgres: Some(url),
        redis: None,
    };
    on_sqlite & kill(&runtime, "PostgreSQL, two nodes", &stores, kills)
}

fn kill(runtime: &tokio::runtime::Runtime, name: &str, stores: &Stores, kills: u32) -> bool {
    let processor = runtime.block_on(Processor::start());
    processor.set_methods(Some("pm_card"), None);
    let tables = format!(
        "[ledger]\nlease_ms = 3000\nrenew_ms = 1000\n{}",
        processor.settings()
    );
    let first = Node::new(stores, &tables);
    let mut nodes = vec![first];
    if stores.postgres.is_some() {
        nodes.push(nodes[0].twin());
    }
    let users: Vec<_> = (0..kills).map(|number| format!("usr_{number}")).collect();
    runtime.block_on(prepare(&nodes[0], &users));
    for node in &mut nodes {
        node.start();
    }
    let mut random = Random::new(11);
    let killed = killing(&mut nodes, &processor, kills, &mut random);
    let database = runtime.block_on(async {
        Database::open(nodes[0].database_url())
            .await
            .expect("a database")
    });
    let began = Instant::now();
    let over = runtime.block_on(wait_until(OVER, async || open(&database).await == 0));
    let sound = nodes[0].is_sound();
    let panics: usize = nodes.iter().map(Node::panics).sum();
    for node in &mut nodes {
        node.kill();
    }
    let (paid, credited) = runtime.block_on(credited(&database));
    let intents = processor.intents();
    let charged = |user: &String| {
        let customer = format!("cus_{user}");
        intents
            .iter()
            .filter(|intent| intent["customer"] == *customer)
            .count()
    };
    let faults = users.iter().filter(|user| charged(user) != 1).count();
    let calls = processor.calls();
    let asked = calls.iter().filter(|call| call.method == "POST").count();
    let expected = CREDITS.micro() * i64::from(kills);
    println!(
        "I11: {name}: {killed} kills between charge and credit: {} charges of {} users in {asked} calls, {faults} users were \
         not charged once, {paid} charges noted, {} of {} credits there, over {} after the last kill ({:.0?}), ledger sound: \
         {sound}, {panics} panics",
        intents.len(),
        users.len(),
        credited / 1_000_000,
        expected / 1_000_000,
        shown(over),
        began.elapsed(),
    );
    let counts = paid == i64::from(kills) && credited == expected;
    killed == kills && counts && over.is_some() && sound && (faults, panics) == (0, 0)
}

/// Kills a node with each charge, at different moments of it.
fn killing(nodes: &mut [Node], processor: &Processor, kills: u32, random: &mut Random) -> u32 {
    for killed in 0..kills {
        let began = Instant::now();
        while processor.intents().len() <= killed as usize {
            if began.elapsed() > NEXT_CHARGE {
                return killed;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(random.up_to(30_000).unsigned_abs()));
        let place = random.below(nodes.len());
        nodes[place].kill();
        nodes[place].start();
    }
    kills
}

/// Creates users with a low balance and a card.
async fn prepare(node: &Node, users: &[String]) {
    // The folder exists, and the database has the latest schema.
    node.data_dir();
    let database = Database::open(node.database_url())
        .await
        .expect("a database");
    let now = Millis::now();
    create_users(&database, users.iter().map(|user| &**user), now.0).await;
    let store = LedgerStore::new(database.clone());
    for user in users {
        for sql in [
            "INSERT INTO payment_customers (user_id, customer_id, linked_at) VALUES ($1, 'cus_' || $1, $2)",
            "INSERT INTO auto_top_ups (user_id, enabled_at, tier, threshold, changed_at) VALUES ($1, $2, 'medium', 1, $2)",
        ] {
            sqlx::query(sql)
                .bind(user)
                .bind(now.0)
                .execute(database.writer())
                .await
                .expect("a row can be written");
        }
        let operation = Operation {
            account: AccountId(user.clone()),
            at: now,
            action: Action::Watch {
                below: Some(Credits::whole(1_000)),
            },
        };
        commit_one(&store, operation).await.expect("it is watched");
    }
    database.close().await;
}

async fn open(database: &Database) -> i64 {
    let open = "SELECT CAST(COUNT(*) AS BIGINT) FROM auto_top_up_charges WHERE ended_at IS NULL";
    let counted = sqlx::query_scalar(open).fetch_one(database.reader());
    counted.await.expect("a count")
}

/// Returns the charges that are noted as paid, and the credits that users have bought.
async fn credited(database: &Database) -> (i64, i64) {
    let row = sqlx::query(
        "SELECT (SELECT CAST(COUNT(*) AS BIGINT) FROM auto_top_up_charges WHERE outcome = 'succeeded'), \
         (SELECT CAST(COALESCE(SUM(top_up_credits), 0) AS BIGINT) FROM accounts)",
    )
    .fetch_one(database.reader())
    .await
    .expect("a count");
    (row.get(0), row.get(1))
}
