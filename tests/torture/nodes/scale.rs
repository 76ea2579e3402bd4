//! R3: the cost and the rate of requests on one, two and three nodes.
//!
//! The provider is `demo`, which runs in the node and adds no delay. Each request is of another account than the last one, so
//! that all nodes serve all accounts. `WEIR_TORTURE_SECONDS` sets the seconds of a measurement, and
//! `WEIR_TORTURE_SNAPSHOT_SECONDS` those of the part with an open snapshot. `WEIR_TORTURE_BINARIES` names binaries, separated
//! by colons, which are measured in turns.

use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use sqlx::{AnyConnection, Connection, Executor};
use tests::percentile;
use tests::stores::Postgres;
use weir_ledger::Credits;

use super::counters::{Counters, Sample};
use super::load::{Answers, Load, Order, Pace};
use super::{Cluster, create_users, rest, setting, shown};
use crate::process::binaries;

const ACCOUNTS: usize = 1_000;

/// Credits of each account: more than a measurement spends.
const CREDITS: Credits = Credits::whole(100_000);

/// Connections of all nodes together, and those of each node in the other variant.
const CONNECTIONS: usize = 32;
const CONNECTIONS_A_NODE: usize = 4;

/// Requests of each account on each node before the measurement, which then has no cold opening.
const WARM_UP: usize = 2;

/// Seconds of a measurement, and of the count of round trips without a delay.
const SECONDS: u64 = 10;
const COUNTED: Duration = Duration::from_secs(3);

/// Seconds of the part with an open snapshot, and its number of samples.
const SNAPSHOT_SECONDS: u64 = 60;
const SAMPLES: u32 = 12;

/// Maximum requests at once of a paced load.
const PACED_CONNECTIONS: usize = 128;

/// Printed statements and commands of a case.
const PRINTED: usize = 6;

/// Minimum rate of two nodes with [`CONNECTIONS_A_NODE`], as a multiple of one's, at a distance and on a slow disk.
const TWO_NODES: f64 = 1.8;

/// Maximum processor time of a request on two nodes, as a multiple of one's.
const COST_OF_TWO: f64 = 1.15;

/// Minimum rate of one node at a distance, as a share of its rate beside PostgreSQL.
const AT_A_DISTANCE: f64 = 0.6;

/// Maximum p99 of a request at half of the processor, in multiples of a flush and a round trip. A request includes the wait of
/// its settlement, from hand-over to acknowledgement.
const WAITS: f64 = 4.0;

/// Maximum growth, beside an open snapshot, from the first third of the time to the last one.
const GROWTH: f64 = 1.3;

/// Records that may be unfolded at any time.
const UNFOLDED: f64 = 10_000.0;

#[derive(Clone, Copy, PartialEq, Eq)]
struct Case {
    nodes: usize,
    connections: usize,
    round_trip_ms: u64,
    flush_ms: u64,
}

impl Case {
    const fn new(nodes: usize, round_trip_ms: u64, flush_ms: u64) -> Self {
        Self {
            nodes,
            connections: CONNECTIONS,
            round_trip_ms,
            flush_ms,
        }
    }

    const fn with_few_connections(self) -> Self {
        Self {
            connections: CONNECTIONS_A_NODE * self.nodes,
            ..self
        }
    }
}

const CASES: [Case; 12] = [
    Case::new(1, 0, 0),
    Case::new(2, 0, 0),
    Case::new(3, 0, 0),
    Case::new(1, 2, 0),
    Case::new(2, 2, 0),
    Case::new(3, 2, 0),
    Case::new(1, 2, 5),
    Case::new(2, 2, 5),
    Case::new(3, 2, 5),
    Case::new(1, 2, 5).with_few_connections(),
    Case::new(2, 2, 5).with_few_connections(),
    Case::new(3, 2, 5).with_few_connections(),
];

/// The measurement of a case.
struct Figures {
    requests: f64,
    failed: usize,
    rate: f64,
    p50: Duration,
    p99: Duration,
    used: Sample,
    /// Round trips of a request.
    round_trips: f64,
    /// The measured delay of both ways.
    round_trip: Duration,
    is_sound: bool,
}

/// A PostgreSQL, and the median duration of its flush.
struct Disk {
    postgres: Postgres,
    flush: Duration,
}

impl Disk {
    async fn start(flush_ms: u64) -> Self {
        let postgres = Postgres::start_measured(Duration::from_millis(flush_ms)).await;
        let mut operator = postgres.operator().await;
        let mut durations = Vec::new();
        for statement in [
            "SELECT 1",
            "SELECT pg_logical_emit_message(true, 'torture', '')::text",
        ] {
            let mut of_statement = Vec::new();
            for _ in 0..100 {
                let began = Instant::now();
                operator
                    .execute(statement)
                    .await
                    .expect("PostgreSQL answers");
                of_statement.push(began.elapsed());
            }
            durations.push(percentile(&mut of_statement, 50));
        }
        Self {
            postgres,
            flush: durations[1].saturating_sub(durations[0]),
        }
    }
}

pub(crate) fn run() -> bool {
    let programs = binaries();
    crate::runtime(1).block_on(async {
        let disks = [Disk::start(0).await, Disk::start(5).await];
        let disk_of = |case: Case| &disks[usize::from(case.flush_ms > 0)];
        println!(
            "R3: a flush takes {:.1?}, and {:.1?} with 5 ms more; {ACCOUNTS} accounts, {} cores; processor time in µs, and counts, \
             of a request\n\
             | Binary | Nodes | Connections | Round trip | Flush | Requests/s | p50, p99 | weir, PostgreSQL, Redis, load | \
             Statements | Round trips | WAL bytes | Transactions | Redis commands |\n\
             |---|---|---|---|---|---|---|---|---|---|---|---|---|",
            disks[0].flush,
            disks[1].flush,
            cores(),
        );
        let mut measured = Vec::new();
        for case in CASES {
            for program in &programs {
                let figures = measure(program, case, disk_of(case)).await;
                figures.print(program, case, disk_of(case));
                measured.push((program, case, figures));
            }
        }
        let mut passed = true;
        for program in &programs {
            let of = |case| {
                let mut all = measured.iter();
                let found = all.find(|(by, measured, _)| *by == program && *measured == case);
                &found.expect("it was measured").2
            };
            let mut bars = Bars::of(program);
            bars.compare(of);
            settle_at_half_load(&mut bars, program, of(Case::new(2, 2, 5)), &disks[1]).await;
            beside_a_snapshot(&mut bars, program, of(Case::new(2, 0, 0)), &disks[0]).await;
            passed &= bars.passed;
        }
        passed
    })
}

/// Runs one case with a closed load.
async fn measure(program: &Path, case: Case, disk: &Disk) -> Figures {
    let seconds = Duration::from_secs(setting("WEIR_TORTURE_SECONDS", SECONDS));
    let link = (case.round_trip_ms > 0).then(|| Duration::from_millis(case.round_trip_ms));
    let mut figures = measure_with(program, case, disk, link, &Pace::Closed, seconds).await;
    if link.is_none() {
        // The link that counts round trips takes some time of its own.
        let link = Some(Duration::ZERO);
        let counted = measure_with(program, case, disk, link, &Pace::Closed, COUNTED).await;
        figures.round_trips = counted.round_trips;
    }
    figures
}

async fn measure_with(
    program: &Path,
    case: Case,
    disk: &Disk,
    link: Option<Duration>,
    pace: &Pace,
    lasts: Duration,
) -> Figures {
    let cluster = Cluster::start(program, case.nodes, &disk.postgres, link, &model()).await;
    let keys = create_users(&cluster.nodes[0], ACCOUNTS, CREDITS).await;
    for node in &cluster.nodes {
        rest(node).await;
    }
    let mut counters = Counters::of(&cluster, &disk.postgres).await;
    let load = Load::new(cluster.addresses(), &keys, MODEL, "What is a weir?");
    let connections = match pace {
        Pace::Closed => case.connections,
        Pace::PerSecond(_) => PACED_CONNECTIONS,
    };
    let (is_counting, is_over) = (Cell::new(false), Cell::new(false));
    for address in cluster.addresses() {
        let warm_up =
            Load::new(vec![address], &keys, MODEL, "What is a weir?").in_order(Order::InTurn);
        let begun = Cell::new(0);
        let goes_on = |_| begun.replace(begun.get() + 1) < WARM_UP * ACCOUNTS;
        let pace = Pace::Closed;
        warm_up
            .send(CONNECTIONS, &pace, &is_counting, goes_on)
            .await;
    }
    let sending = load.send(connections, pace, &is_counting, |_| !is_over.get());
    let measuring = async {
        let before = counters.read().await;
        is_counting.set(true);
        tokio::time::sleep(lasts).await;
        is_counting.set(false);
        let after = counters.read().await;
        is_over.set(true);
        after.since(&before)
    };
    let (answers, used) = tokio::join!(sending, measuring);
    Figures::new(answers, used, &cluster)
}

/// The model of all requests, which the provider `demo` serves.
const MODEL: &str = "demo";

fn model() -> String {
    crate::money::model(MODEL)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl Figures {
    fn new(answers: Answers, used: Sample, cluster: &Cluster) -> Self {
        let Answers { served, failed } = answers;
        let mut served: Vec<_> = served.iter().map(|served| served.took).collect();
        assert!(!served.is_empty(), "no request was served: {failed:?}");
        let requests = served.len() as f64;
        Self {
            requests,
            failed: failed.values().sum(),
            rate: requests / used.passed.as_secs_f64(),
            p50: percentile(&mut served, 50),
            p99: percentile(&mut served, 99),
            round_trips: used
                .round_trips
                .map_or(f64::NAN, |trips| trips as f64 / requests),
            used,
            round_trip: cluster.mean_round_trip(),
            is_sound: cluster.nodes[0].is_sound(),
        }
    }

    /// Processor time of a request, in microseconds.
    fn cost(&self, used: Duration) -> f64 {
        used.as_secs_f64() * 1e6 / self.requests
    }

    /// Processor time of a request in weir and its stores.
    fn cost_of_all(&self) -> f64 {
        self.cost(self.used.weir + self.used.postgres + self.used.redis)
    }

    fn print(&self, program: &Path, case: Case, disk: &Disk) {
        let a_request = |count: i64| count as f64 / self.requests;
        let used = &self.used;
        println!(
            "| {} | {} | {} | {:.1?} | {:.1?} | {:.0} | {:.0}, {:.0} ms | {:.0}, {:.0}, {:.0}, {:.0} | {:.2} | {:.2} | {:.0} | \
             {:.3} | {:.2} |",
            shown(program),
            case.nodes,
            case.connections,
            self.round_trip,
            disk.flush,
            self.rate,
            self.p50.as_secs_f64() * 1e3,
            self.p99.as_secs_f64() * 1e3,
            self.cost(used.weir),
            self.cost(used.postgres),
            self.cost(used.redis),
            self.cost(used.own),
            a_request(used.calls()),
            self.round_trips,
            a_request(used.wal_bytes),
            a_request(used.transactions),
            a_request(used.redis_commands.values().sum()),
        );
        let mut statements: Vec<_> = used.statements.values().collect();
        statements.sort_by_key(|statement| -statement.calls);
        for statement in statements.iter().take(PRINTED).filter(|it| it.calls > 0) {
            let text: Vec<_> = statement.text.split_whitespace().collect();
            let text: String = text.join(" ").chars().take(90).collect();
            println!(
                "    {:.3} of {:.2} ms and {:.0} pages: {text}",
                a_request(statement.calls),
                statement.duration_ms / statement.calls as f64,
                statement.pages as f64 / statement.calls as f64,
            );
        }
        let mut commands: Vec<_> = used.redis_commands.iter().collect();
        commands.sort_by_key(|(_, calls)| -**calls);
        let commands = commands.iter().take(PRINTED);
        let commands =
            commands.map(|(command, calls)| format!("{command} {:.2}", a_request(**calls)));
        println!("    Redis: {}", commands.collect::<Vec<_>>().join(", "));
        if let Some(commits) = self.metric("weir_ledger_commit_seconds_count") {
            let seconds = self
                .metric("weir_ledger_commit_seconds_sum")
                .unwrap_or_default();
            println!(
                "    {:.3} commits of the ledger a request, {:.1} ms each",
                commits / self.requests,
                1e3 * seconds / commits
            );
        }
        if self.failed > 0 || !self.is_sound {
            println!(
                "    {} requests failed; ledger sound: {}",
                self.failed, self.is_sound
            );
        }
    }

    fn metric(&self, name: &str) -> Option<f64> {
        self.used.metrics.get(name).copied().filter(|it| *it > 0.0)
    }
}

/// The limits of the row, for one binary.
struct Bars {
    binary: String,
    passed: bool,
}

impl Bars {
    fn of(program: &Path) -> Self {
        Self {
            binary: shown(program),
            passed: true,
        }
    }

    fn check(&mut self, is_met: bool, what: &str) {
        let met = if is_met { "met" } else { "MISSED" };
        println!("R3 {}: {met}: {what}", self.binary);
        self.passed &= is_met;
    }

    /// Checks the limits that compare cases.
    fn compare<'f>(&mut self, of: impl Fn(Case) -> &'f Figures) {
        let few = |nodes| of(Case::new(nodes, 2, 5).with_few_connections()).rate;
        let times = few(2) / few(1);
        self.check(
            times >= TWO_NODES,
            &format!(
                "with {CONNECTIONS_A_NODE} connections each, at 2 ms and 5 ms, two nodes serve {times:.2} × one (at least \
                 {TWO_NODES}), three {:.2} ×",
                few(3) / few(1)
            ),
        );
        let cost = |nodes| of(Case::new(nodes, 0, 0)).cost_of_all();
        let times = cost(2) / cost(1);
        self.check(
            times <= COST_OF_TWO,
            &format!(
                "at 0 ms, a request on two nodes takes {times:.2} × the processor time of one (at most {COST_OF_TWO}), on three \
                 {:.2} ×",
                cost(3) / cost(1)
            ),
        );
        let share = of(Case::new(1, 2, 0)).rate / of(Case::new(1, 0, 0)).rate;
        self.check(
            share >= AT_A_DISTANCE,
            &format!(
                "at 2 ms, one node serves {:.0} % of its rate at 0 ms (at least {:.0} %)",
                100.0 * share,
                100.0 * AT_A_DISTANCE
            ),
        );
        let mut cases = CASES.iter().map(|case| of(*case));
        self.check(
            cases.all(|figures| figures.failed == 0 && figures.is_sound),
            "all requests are served, and all ledgers are sound",
        );
    }
}

/// The rate at which requests of this cost take half of the processor, this program's load included.
fn half_load(figures: &Figures) -> f64 {
    let cost = figures.cost_of_all() + figures.cost(figures.used.own);
    0.5 * cores() as f64 * 1e6 / cost
}

async fn settle_at_half_load(bars: &mut Bars, program: &Path, closed: &Figures, disk: &Disk) {
    let case = Case::new(2, 2, 5);
    let seconds = Duration::from_secs(setting("WEIR_TORTURE_SECONDS", SECONDS));
    let link = Some(Duration::from_millis(case.round_trip_ms));
    let pace = Pace::PerSecond(half_load(closed));
    let figures = measure_with(program, case, disk, link, &pace, seconds).await;
    let limit = (disk.flush + figures.round_trip).mul_f64(WAITS);
    bars.check(
        figures.p99 <= limit,
        &format!(
            "at half of the processor ({:.0} requests/s, of {:.0} wanted, on two nodes at 2 ms and 5 ms), p99 of a request is \
             {:.1?} (at most {limit:.1?}, {WAITS} × a flush and a round trip), p50 {:.1?}",
            figures.rate,
            half_load(closed),
            figures.p99,
            figures.p50
        ),
    );
}

/// The state beside an open snapshot, since the last sample.
struct Beside {
    /// Duration of all writes of a request, without commits.
    writes_ms: f64,
    /// Processor time of PostgreSQL for a request.
    postgres_us: f64,
    unfolded: f64,
}

/// Two nodes serve half of what they can, while a transaction keeps PostgreSQL from removing any dead row.
async fn beside_a_snapshot(bars: &mut Bars, program: &Path, closed: &Figures, disk: &Disk) {
    let lasts = setting("WEIR_TORTURE_SNAPSHOT_SECONDS", SNAPSHOT_SECONDS);
    let window = Duration::from_secs(lasts) / SAMPLES;
    let cluster = Cluster::start(program, 2, &disk.postgres, None, &model()).await;
    let keys = create_users(&cluster.nodes[0], ACCOUNTS, CREDITS).await;
    for node in &cluster.nodes {
        rest(node).await;
    }
    let mut counters = Counters::of(&cluster, &disk.postgres).await;
    let load = Load::new(cluster.addresses(), &keys, MODEL, "What is a weir?");
    let pace = Pace::PerSecond(half_load(closed).min(0.5 * closed.rate));
    let (sent, is_counting, is_over) = (Cell::new(0_u32), Cell::new(true), Cell::new(false));
    let goes_on = |_| {
        sent.set(sent.get() + 1);
        !is_over.get()
    };
    let sending = load.send(PACED_CONNECTIONS, &pace, &is_counting, goes_on);
    let measuring = async {
        tokio::time::sleep(window).await;
        let mut reader = AnyConnection::connect(cluster.direct.expose())
            .await
            .expect("PostgreSQL answers");
        for statement in [
            "BEGIN ISOLATION LEVEL REPEATABLE READ",
            "SELECT COUNT(*) FROM pg_class",
        ] {
            reader.execute(statement).await.expect("PostgreSQL answers");
        }
        let mut samples = Vec::new();
        let mut before = (counters.read().await, sent.get());
        for _ in 0..SAMPLES {
            tokio::time::sleep(window).await;
            let now = (counters.read().await, sent.get());
            let requests = f64::from((now.1 - before.1).max(1));
            let used = now.0.since(&before.0);
            let unfolded = now
                .0
                .metrics
                .iter()
                .filter(|(name, _)| name.contains("unfolded"));
            samples.push(Beside {
                writes_ms: used.writes_ms() / requests,
                postgres_us: used.postgres.as_secs_f64() * 1e6 / requests,
                unfolded: unfolded.map(|(_, count)| count).sum(),
            });
            before = now;
        }
        is_over.set(true);
        drop(reader);
        samples
    };
    let (answers, samples) = tokio::join!(sending, measuring);
    let third = samples.len() / 3;
    let (first, last) = (&samples[..third], &samples[samples.len() - third..]);
    let median = |samples: &[Beside], of: fn(&Beside) -> f64| {
        let mut figures: Vec<_> = samples.iter().map(of).collect();
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    let growth = |of| median(last, of) / median(first, of);
    let writes = growth(|sample| sample.writes_ms);
    let most_unfolded = samples
        .iter()
        .map(|sample| sample.unfolded)
        .fold(0.0, f64::max);
    bars.check(
        writes <= GROWTH && most_unfolded <= UNFOLDED && answers.failed.is_empty() && cluster.nodes[0].is_sound(),
        &format!(
            "beside a snapshot that is open for {lasts} s, {} requests served, failed: {:?}; writes of a request take {:.3} ms in \
             the first third of the time and {writes:.2} × in the last (at most {GROWTH}), PostgreSQL's processor time {:.0} µs and \
             {:.2} ×; at most {most_unfolded:.0} unfolded records (limit {UNFOLDED})",
            answers.served.len(),
            answers.failed,
            median(first, |sample| sample.writes_ms),
            median(first, |sample| sample.postgres_us),
            growth(|sample| sample.postgres_us),
        ),
    );
}
