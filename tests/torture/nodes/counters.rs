//! The counters of servers and of the kernel.
//!
//! PostgreSQL counts statements in `pg_stat_statements`, Redis commands in `INFO commandstats`, which includes those of scripts.
//! The kernel counts processor time in ticks of 10 ms.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use sqlx::{AnyConnection, Row};
use tests::Client;
use tests::stores::Postgres;

use super::Cluster;

/// The kernel's tick.
const TICK: Duration = Duration::from_millis(10);

/// Reads all counters of a cluster.
pub(super) struct Counters<'a> {
    cluster: &'a Cluster,
    postgres: &'a Postgres,
    operator: AnyConnection,
}

/// The counters at a moment, or their difference between two.
#[derive(Clone)]
pub(super) struct Sample {
    at: Instant,
    pub passed: Duration,
    /// Processor time of all nodes, of PostgreSQL with all its processes, of Redis, and of this process with its links.
    pub weir: Duration,
    pub postgres: Duration,
    pub redis: Duration,
    pub own: Duration,
    /// By their ids.
    pub statements: BTreeMap<i64, Statement>,
    pub transactions: i64,
    pub wal_bytes: i64,
    pub redis_commands: BTreeMap<String, i64>,
    /// Between the nodes and PostgreSQL; `None` without a link.
    pub round_trips: Option<i64>,
    /// Series of the nodes, added up.
    pub metrics: BTreeMap<String, f64>,
}

/// A statement with any parameters.
#[derive(Clone, Default)]
pub(super) struct Statement {
    pub text: String,
    pub calls: i64,
    pub duration_ms: f64,
    /// Pages in shared memory, or read into it.
    pub pages: i64,
}

impl<'a> Counters<'a> {
    pub(super) async fn of(cluster: &'a Cluster, postgres: &'a Postgres) -> Self {
        Self {
            cluster,
            postgres,
            operator: postgres.operator().await,
        }
    }

    pub(super) async fn read(&mut self) -> Sample {
        let statements = self.statements().await;
        let of_database = "SELECT xact_commit, CAST(pg_current_wal_lsn() - '0/0'::pg_lsn AS BIGINT) FROM pg_stat_database \
                           WHERE datname = $1";
        let row = sqlx::query(of_database)
            .bind(&*self.cluster.database)
            .fetch_one(&mut self.operator)
            .await
            .expect("PostgreSQL answers");
        let nodes = self.cluster.nodes.iter();
        Sample {
            at: Instant::now(),
            passed: Duration::ZERO,
            weir: nodes.map(|node| processor_time(node.process_id())).sum(),
            postgres: processor_time_with_children(self.postgres.process_id()),
            redis: processor_time(self.cluster.redis.process_id()),
            own: processor_time(std::process::id()),
            statements,
            transactions: row.get(0),
            wal_bytes: row.get(1),
            redis_commands: self.redis_commands(),
            round_trips: self
                .cluster
                .link
                .as_ref()
                .map(|link| link.round_trips() as i64),
            metrics: self.metrics().await,
        }
    }

    async fn statements(&mut self) -> BTreeMap<i64, Statement> {
        let rows = sqlx::query(
            "SELECT queryid, query, calls, total_exec_time, shared_blks_hit + shared_blks_read FROM pg_stat_statements \
             WHERE dbid = (SELECT oid FROM pg_database WHERE datname = $1)",
        )
        .bind(&*self.cluster.database)
        .fetch_all(&mut self.operator)
        .await
        .expect("PostgreSQL answers");
        let mut statements = BTreeMap::<i64, Statement>::new();
        for row in &rows {
            let statement = statements.entry(row.get(0)).or_default();
            statement.text = row.get(1);
            statement.calls += row.get::<i64, _>(2);
            statement.duration_ms += row.get::<f64, _>(3);
            statement.pages += row.get::<i64, _>(4);
        }
        statements
    }

    fn redis_commands(&self) -> BTreeMap<String, i64> {
        let statistics = self.cluster.redis.info();
        let calls = statistics.iter().filter_map(|(name, counts)| {
            let command = name.strip_prefix("cmdstat_")?;
            let calls = counts.strip_prefix("calls=")?.split(',').next()?;
            Some((command.to_owned(), calls.parse().ok()?))
        });
        // The command that asks for them is no request's.
        calls.filter(|(command, _)| command != "info").collect()
    }

    async fn metrics(&self) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        for node in &self.cluster.nodes {
            let text = Client::new(node.address()).get("/metrics").await.text();
            let series = text.lines().filter(|line| !line.starts_with('#'));
            for line in series {
                if let Some((name, value)) = line.rsplit_once(' ')
                    && let Ok(value) = value.parse::<f64>()
                {
                    *sums.entry(name.to_owned()).or_default() += value;
                }
            }
        }
        sums
    }
}

impl Sample {
    /// Returns the difference to an earlier sample.
    pub(super) fn since(&self, before: &Self) -> Self {
        let statements = self.statements.iter().map(|(id, now)| {
            let then = before.statements.get(id).cloned().unwrap_or_default();
            let statement = Statement {
                text: now.text.clone(),
                calls: now.calls - then.calls,
                duration_ms: now.duration_ms - then.duration_ms,
                pages: now.pages - then.pages,
            };
            (*id, statement)
        });
        let redis_commands = self.redis_commands.iter().map(|(command, calls)| {
            let before = before.redis_commands.get(command).unwrap_or(&0);
            (command.clone(), calls - before)
        });
        let metrics = self.metrics.iter().map(|(name, value)| {
            let before = before.metrics.get(name).unwrap_or(&0.0);
            (name.clone(), value - before)
        });
        Self {
            at: self.at,
            passed: self.at - before.at,
            weir: self.weir - before.weir,
            postgres: self.postgres - before.postgres,
            redis: self.redis - before.redis,
            own: self.own - before.own,
            statements: statements.collect(),
            transactions: self.transactions - before.transactions,
            wal_bytes: self.wal_bytes - before.wal_bytes,
            redis_commands: redis_commands.collect(),
            round_trips: self
                .round_trips
                .zip(before.round_trips)
                .map(|(now, then)| now - then),
            metrics: metrics.collect(),
        }
    }

    /// The number of all statements.
    pub(super) fn calls(&self) -> i64 {
        self.statements
            .values()
            .map(|statement| statement.calls)
            .sum()
    }

    /// The duration of all statements that write or lock rows, without commits.
    pub(super) fn writes_ms(&self) -> f64 {
        let writes = self.statements.values().filter(|statement| {
            let words = statement.text.to_uppercase();
            ["INSERT ", "UPDATE ", "DELETE "]
                .iter()
                .any(|word| words.contains(word))
        });
        writes.map(|statement| statement.duration_ms).sum()
    }

    /// The number of pages that all statements touched.
    pub(super) fn pages(&self) -> i64 {
        self.statements
            .values()
            .map(|statement| statement.pages)
            .sum()
    }
}

/// The kernel's status of a process: its parent, and its processor time, without and with that of ended children.
struct Status {
    parent: u32,
    own: Duration,
    with_ended: Duration,
}

impl Status {
    fn read(id: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The name, which may contain any character, is in parentheses.
        let fields: Vec<_> = text.rsplit_once(") ")?.1.split(' ').collect();
        let ticks = |range: std::ops::Range<usize>| {
            let ticks = fields.get(range)?.iter();
            let ticks: Result<Vec<u32>, _> = ticks.map(|ticks| ticks.parse()).collect();
            Some(TICK * ticks.ok()?.iter().sum())
        };
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            own: ticks(11..13)?,
            with_ended: ticks(11..15)?,
        })
    }
}

pub(super) fn processor_time(id: u32) -> Duration {
    Status::read(id).expect("it runs").own
}

pub(super) fn processor_time_with_children(id: u32) -> Duration {
    let processes = fs::read_dir("/proc").expect("Linux").flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let children = ids
        .filter_map(Status::read)
        .filter(|child| child.parent == id);
    let children: Duration = children.map(|child| child.own).sum();
    Status::read(id).expect("it runs").with_ended + children
}
