//! R6: the cost of a request beside many accounts and many entries, and of accounts that send a request a minute.
//!
//! Accounts and entries beyond those of the load are copies of real rows, made in a stopped gateway's database. weir folds
//! the entries before the measurement begins. `WEIR_TORTURE_ACCOUNTS` and `WEIR_TORTURE_ENTRIES` are the largest numbers of
//! them, and `WEIR_TORTURE_MINUTE_ACCOUNTS` is the number of accounts that send a request a minute.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::time::Duration;

use sqlx::{AnyConnection, AssertSqlSafe, Connection, Executor, Row};
use tests::stores::Postgres;
use weir_ledger::Credits;
use weir_storage::secrets::SecretUrl;

use super::counters::{Counters, processor_time};
use super::load::{Load, Order, Pace};
use super::{Cluster, NO_LIMITS, create_users, rest, setting, shown};
use crate::process::{Node, Stores, binaries};

/// Accounts that send requests.
const ACTIVE: usize = 1_000;
const CREDITS: Credits = Credits::whole(100_000);

/// The smallest and the largest numbers of accounts and entries; each step has ten times as many.
const ACCOUNTS: [u64; 2] = [10_000, 100_000];
const ENTRIES: [u64; 2] = [100_000, 1_000_000];

/// Connections, and the rate of requests: far below the limit, so that batches have the same size on any machine.
const CONNECTIONS: usize = 32;
const RATE: f64 = 200.0;

/// The length of a measurement. Three are taken, and the cheapest counts.
const MEASURED: Duration = Duration::from_secs(5);
const MEASUREMENTS: usize = 3;

/// Maximum growth of pages and processor time of a request.
const FLAT: f64 = 1.2;

/// Accounts of the part with a request a minute, and its nodes.
const MINUTE_ACCOUNTS: u64 = 6_000;
const MINUTE: Duration = Duration::from_secs(60);
const NODES: usize = 2;

/// Maximum statements and WAL bytes of a request with a later binary, as a multiple of the first one's.
const AS_BEFORE: f64 = 1.0;

/// Columns of a copy that differ from the copied row, with their SQL. A table may be without some of them.
type Changed = &'static [(&'static str, &'static str)];

/// The cost of a request.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// On PostgreSQL, pages that statements touched; on SQLite, KiB that weir read and wrote.
    pages: f64,
    processor_us: f64,
}

pub(crate) fn run() -> bool {
    crate::runtime(1).block_on(async {
        let postgres = Postgres::start_measured(Duration::ZERO).await;
        let mut passed = true;
        for program in binaries() {
            for on in [None, Some(&postgres)] {
                passed &= beside_rows(&program, on).await;
            }
        }
        passed & each_once_a_minute(&postgres).await
    })
}

/// Measures on SQLite, or on this PostgreSQL, with more and more rows.
async fn beside_rows(program: &Path, postgres: Option<&Postgres>) -> bool {
    let database = match postgres {
        Some(postgres) => Some(postgres.create_database().await),
        None => None,
    };
    let stores = Stores {
        postgres: database,
        redis: None,
    };
    let tables = format!("{NO_LIMITS}{}", crate::money::model("demo"));
    let node = Node::new(&stores, &tables).with_program(program);
    let mut node = node.with_compiled_plugins();
    node.start();
    let keys = create_users(&node, ACTIVE, CREDITS).await;
    let load = Load::new(vec![node.address()], &keys, "demo", "What is a weir?");
    let steps = |name, [smallest, largest]: [u64; 2]| {
        let largest = setting(name, largest);
        std::iter::successors(Some(smallest), |rows| Some(rows * 10))
            .take_while(move |rows| *rows <= largest)
    };
    let accounts = steps("WEIR_TORTURE_ACCOUNTS", ACCOUNTS).map(|rows| ("accounts", rows));
    let entries = steps("WEIR_TORTURE_ENTRIES", ENTRIES).map(|rows| ("entries", rows));
    let first = measure(&node, postgres, &load).await;
    let (mut most, mut line) = ((1.0_f64, 1.0_f64), Vec::new());
    line.push(format!("with {ACTIVE} accounts {first}"));
    for (table, rows) in accounts.chain(entries) {
        node.signal("TERM");
        let ended = node.ended_within(Duration::from_secs(60)).await;
        assert_eq!(ended, Some(true), "weir stops");
        make_rows(node.database_url(), table, rows).await;
        node.start();
        let cost = measure(&node, postgres, &load).await;
        most.0 = most.0.max(cost.pages / first.pages);
        most.1 = most.1.max(cost.processor_us / first.processor_us);
        line.push(format!("with {rows} {table} {cost}"));
    }
    let is_flat = most.0 <= FLAT && most.1 <= FLAT;
    println!(
        "R6 {}: {}: a request takes {}; at most {:.2} × the pages and {:.2} × the processor time of the first (limit {FLAT}){}",
        shown(program),
        if postgres.is_some() {
            "PostgreSQL"
        } else {
            "SQLite"
        },
        line.join(", "),
        most.0,
        most.1,
        if is_flat { "" } else { ": MISSED" },
    );
    is_flat
}

impl std::fmt::Display for Cost {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "{:.1} pages or KiB and {:.0} µs",
            self.pages, self.processor_us
        )
    }
}

/// Measures a paced load on a node that has nothing else to do.
async fn measure(node: &Node, postgres: Option<&Postgres>, load: &Load<'_>) -> Cost {
    rest(node).await;
    let mut cheapest: Option<Cost> = None;
    for _ in 0..=MEASUREMENTS {
        let (is_counting, is_over) = (Cell::new(true), Cell::new(false));
        let pace = Pace::PerSecond(RATE);
        let sending = load.send(CONNECTIONS, &pace, &is_counting, |_| !is_over.get());
        let measuring = async {
            let before = Used::read(node, postgres).await;
            tokio::time::sleep(MEASURED).await;
            is_over.set(true);
            before
        };
        let (answers, before) = tokio::join!(sending, measuring);
        assert!(answers.failed.is_empty(), "{:?}", answers.failed);
        let requests = answers.served.len() as f64;
        let used = Used::read(node, postgres).await;
        let cost = Cost {
            pages: (used.pages - before.pages) / requests,
            processor_us: (used.processor - before.processor).as_secs_f64() * 1e6 / requests,
        };
        // The first measurement is the warm-up.
        cheapest = Some(match cheapest {
            None => Cost {
                pages: f64::MAX,
                processor_us: f64::MAX,
            },
            Some(least) => Cost {
                pages: least.pages.min(cost.pages),
                processor_us: least.processor_us.min(cost.processor_us),
            },
        });
    }
    cheapest.expect("some")
}

/// Counters since the start.
struct Used {
    pages: f64,
    processor: Duration,
}

impl Used {
    async fn read(node: &Node, postgres: Option<&Postgres>) -> Self {
        let id = node.process_id();
        let Some(postgres) = postgres else {
            return Self {
                pages: kib_read_and_written(id),
                processor: processor_time(id),
            };
        };
        let pages = "SELECT CAST(SUM(shared_blks_hit + shared_blks_read) AS BIGINT) FROM pg_stat_statements";
        Self {
            pages: postgres.count(pages).await as f64,
            processor: processor_time(id)
                + super::counters::processor_time_with_children(postgres.process_id()),
        }
    }
}

/// The KiB that a process has read and written by system calls, those on sockets included, which are the same for each request.
fn kib_read_and_written(id: u32) -> f64 {
    let counts = fs::read_to_string(format!("/proc/{id}/io")).expect("Linux has it");
    let counts = counts.lines().filter_map(|line| {
        let (name, count) = line.split_once(": ")?;
        ["rchar", "wchar"]
            .contains(&name)
            .then(|| count.parse::<f64>().expect("a number"))
    });
    counts.sum::<f64>() / 1024.0
}

/// Makes rows until a table has so many: copies of a real row, of other users or of the load's accounts.
async fn make_rows(database: &SecretUrl, table: &str, rows: u64) {
    sqlx::any::install_default_drivers();
    let mut connection = AnyConnection::connect(database.expose())
        .await
        .expect("the database answers");
    let count = AssertSqlSafe(format!("SELECT CAST(COUNT(*) AS BIGINT) FROM {table}"));
    let found: i64 = sqlx::query_scalar(count)
        .fetch_one(&mut connection)
        .await
        .expect("a count");
    let copies: &[(&str, &str, Changed)] = match table {
        "accounts" => &[
            ("users", "id = 'usr_0'", &[("id", "'made_' || n")]),
            ("accounts", "id = 'usr_0'", &[("id", "'made_' || n")]),
        ],
        _ => &[(
            "entries",
            "kind = 'settlement'",
            &[
                ("account_id", "'usr_' || (n % 1000)"),
                ("sequence", "1000000 + n"),
                ("hold_id", "'made_' || n"),
                ("request_id", "'made_' || n"),
                ("ordinal", "n"),
            ],
        )],
    };
    for (table, template, changed) in copies {
        let columns = columns(&mut connection, table).await;
        let values = columns.iter().map(|column| {
            let changed = changed.iter().find(|(name, _)| name == column);
            changed.map_or(format!("t.{column}"), |(_, value)| (*value).to_owned())
        });
        let values = values.collect::<Vec<_>>().join(", ");
        let insert = format!(
            "INSERT INTO {table} ({}) WITH RECURSIVE numbers (n) AS (SELECT CAST({} AS BIGINT) UNION ALL SELECT n + 1 FROM numbers \
             WHERE n < {rows}) SELECT {values} FROM numbers, (SELECT * FROM {table} WHERE {template} LIMIT 1) AS t",
            columns.join(", "),
            found + 1,
        );
        let made = connection.execute(AssertSqlSafe(insert)).await;
        let made = made.expect("rows can be made").rows_affected();
        assert_eq!(made, rows - found as u64, "{table}");
    }
    // Statistics, and on PostgreSQL hints that the first reader of a page would write otherwise.
    let vacuum = if database.expose().starts_with("postgres") {
        "VACUUM ANALYZE"
    } else {
        "ANALYZE"
    };
    connection.execute(vacuum).await.expect("it is done");
    connection.close().await.expect("it answers");
}

/// The columns of a table, without a number that the database gives.
async fn columns(connection: &mut AnyConnection, table: &str) -> Vec<String> {
    let names = match connection.backend_name() {
        "PostgreSQL" => format!(
            "SELECT CAST(column_name AS TEXT) FROM information_schema.columns WHERE table_name = '{table}' \
             AND is_identity = 'NO' ORDER BY ordinal_position"
        ),
        _ => format!(
            "SELECT name FROM pragma_table_info('{table}') WHERE NOT (pk = 1 AND type = 'INTEGER')"
        ),
    };
    let rows = sqlx::query(AssertSqlSafe(names))
        .fetch_all(connection)
        .await;
    rows.expect("the database answers")
        .iter()
        .map(|row| row.get(0))
        .collect()
}

/// Two nodes serve accounts that send a request a minute each. The binaries take turns.
async fn each_once_a_minute(postgres: &Postgres) -> bool {
    let accounts = setting("WEIR_TORTURE_MINUTE_ACCOUNTS", MINUTE_ACCOUNTS) as usize;
    let (mut first, mut passed) = (None, true);
    for program in binaries() {
        let tables = crate::money::model("demo");
        let cluster =
            Cluster::start(&program, NODES, postgres, Some(Duration::ZERO), &tables).await;
        let keys = create_users(&cluster.nodes[0], accounts, CREDITS).await;
        for node in &cluster.nodes {
            rest(node).await;
        }
        let mut counters = Counters::of(&cluster, postgres).await;
        let load = Load::new(cluster.addresses(), &keys, "demo", "What is a weir?");
        let load = load.in_order(Order::InTurn);
        let (is_counting, is_over) = (Cell::new(false), Cell::new(false));
        let pace = Pace::PerSecond(accounts as f64 / MINUTE.as_secs_f64());
        let sending = load.send(CONNECTIONS, &pace, &is_counting, |_| !is_over.get());
        let measuring = async {
            tokio::time::sleep(MINUTE).await;
            let before = counters.read().await;
            is_counting.set(true);
            tokio::time::sleep(MINUTE).await;
            is_counting.set(false);
            is_over.set(true);
            counters.read().await.since(&before)
        };
        let (answers, used) = tokio::join!(sending, measuring);
        let requests = answers.served.len() as f64;
        let of_request = |count: f64| count / requests;
        let statements = of_request(used.calls() as f64);
        let wal_bytes = of_request(used.wal_bytes as f64);
        let (before, wal_before) = *first.get_or_insert((statements, wal_bytes));
        let is_met = statements <= AS_BEFORE * before
            && wal_bytes <= AS_BEFORE * wal_before
            && answers.failed.is_empty();
        println!(
            "R6 {}: {accounts} accounts on {NODES} nodes, each once a minute: {statements:.2} statements, {:.2} round trips and \
             {wal_bytes:.0} WAL bytes a request (the first binary: {before:.2}, {wal_before:.0}), {:.1} pages, {:.0} µs of weir and \
             {:.0} µs of PostgreSQL; failed: {:?}{}",
            shown(&program),
            of_request(used.round_trips.unwrap_or_default() as f64),
            of_request(used.pages() as f64),
            of_request(used.weir.as_secs_f64() * 1e6),
            of_request(used.postgres.as_secs_f64() * 1e6),
            answers.failed,
            if is_met { "" } else { ": MISSED" },
        );
        passed &= is_met;
    }
    passed
}
