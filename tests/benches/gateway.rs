//! The cost of a request through weir, compared with a bare proxy: processor time, requests per second, latency and
//! memory.
//!
//! The measured process has one core, and all others share another. 32 connections send requests of 10,000 accounts as
//! fast as the responses arrive. Processor time, page faults and context switches are the kernel's counts for all
//! threads of the process. The time is that of user and system together. `perf` counts the system calls in a run of
//! their own, since this count takes time, and needs root's rights. Without it, the bench prints no system calls.
//!
//! Then the latency that weir adds for a single client, and the memory of open, silent streams.
//!
//! `cargo bench -p tests --bench gateway` measures on SQLite; `-- --postgres` on PostgreSQL and Redis; `-- --json`
//! prints JSON. weir has the release profile `dist`; `-- --profile release` builds in half the time, and `-- --program
//! PATH` measures a program that exists, such as that of `host/deploy/optimized-build`. `-- --only
//! paced` measures only the loads with this in their names. `-- --grid` also measures the latency of 1, 10 and 32
//! connections, each dialect with 10 connections and 8,000 requests, and the memory two minutes later.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a bench prints its figures, and ends by panicking"
)]

mod loads;

use std::cell::{Cell, RefCell};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use loads::{
    CORE, Clients, LOADS, Load, OTHER_CORE, PATH, Process, Requests, create_keys, on_core, option,
    pin, play_role, runtime, serve, words, write_settings,
};
use serde_json::{Value, json};
use tests::percentile;
use tests::program::{build_weir, own_kib};
use tests::stores::{Durability, Postgres, Redis};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Concurrent connections.
const CONNECTIONS: usize = 32;

/// Duration of each measurement, and of the warm-up before it.
const MEASURED: Duration = Duration::from_millis(2_500);
const WARM_UP: Duration = Duration::from_millis(700);

/// Number of runs; the middle one counts.
const RUNS: usize = 3;

/// Accounts, each with a key. The requests use them in turn.
const ACCOUNTS: usize = 10_000;

/// Requests whose system calls are counted, and the time that `perf` needs to begin.
const COUNTED: usize = 1_000;
const PERF_START: Duration = Duration::from_millis(500);

/// The parent of all kernel threads.
const KERNEL_THREADS: u32 = 2;

/// Concurrent open streams, and the memory limit of each.
const STREAMS: usize = 5_000;
const STREAM_KIB: f64 = 128.0;

/// Memory limit of an idle gateway, in MiB.
const IDLE_MIB: usize = 120;

/// Share of both cores that other processes may use before the figures are meaningless.
const BUSY: f64 = 0.05;

/// The grid of the bench of another gateway, GoModel: its connections, and the requests of each cell.
const GRID_CONNECTIONS: usize = 10;
const GRID_REQUESTS: usize = 8_000;

/// The time after the load at which the memory is measured again.
const LATER: Duration = Duration::from_secs(120);

/// The maximum multiples of the floor's processor time, and the targets, in the order of [`LOADS`].
const RATIOS: [Ratio; LOADS.len()] = [
    Ratio::new(6.0, 4.5),
    Ratio::new(7.0, 5.0),
    Ratio::new(1.5, 1.0),
    Ratio::new(1.7, 1.4),
    Ratio::new(6.0, 6.0),
];

#[derive(Clone, Copy)]
struct Ratio {
    must: f64,
    aim: f64,
}

impl Ratio {
    const fn new(must: f64, aim: f64) -> Self {
        Self { must, aim }
    }
}

/// The figures of one load on one process.
#[derive(Clone, Copy)]
struct Figures {
    cpu_us: f64,
    rps: f64,
    p50: Duration,
    p99: Duration,
    /// Time to the first byte of a response.
    first: Duration,
    /// Share of the machine's processor time that other programs used.
    others: f64,
    /// Page faults and context switches of a request.
    faults: f64,
    switches: f64,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    play_role(&arguments);
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let weir = match option(&arguments, "--program") {
        Some(program) => PathBuf::from(program),
        None => build_weir(option(&arguments, "--profile").unwrap_or("dist")),
    };
    pin(&std::process::id().to_string(), OTHER_CORE);
    let only = option(&arguments, "--only").unwrap_or_default();
    let loads: Vec<_> = LOADS
        .into_iter()
        .zip(RATIOS)
        .filter(|(load, _)| load.name.contains(only))
        .collect();
    let wanted = Wanted {
        postgres: has("--postgres"),
        json: has("--json"),
        grid: has("--grid"),
    };
    match measure_all(&runtime(), &weir, &loads, wanted) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// The options of a run.
#[derive(Clone, Copy)]
struct Wanted {
    postgres: bool,
    json: bool,
    grid: bool,
}

/// The kernel's counts for a process, with all its threads.
#[derive(Clone, Copy)]
struct Counts {
    cpu: Duration,
    faults: u64,
    /// Without those of threads that have ended.
    switches: u64,
}

impl Counts {
    fn of(process: &Process) -> Self {
        let folder = format!("/proc/{}", process.id());
        let stat = Stat::read(&fs::read_to_string(format!("{folder}/stat")).unwrap());
        let threads = fs::read_dir(format!("{folder}/task")).unwrap().flatten();
        // A thread may end meanwhile.
        let statuses =
            threads.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
        Self {
            cpu: Duration::from_millis(stat.ticks * 10),
            faults: stat.faults,
            switches: statuses.map(|status| switches(&status)).sum(),
        }
    }
}

/// Returns a thread's context switches, voluntary and not.
fn switches(status: &str) -> u64 {
    let counts = status
        .lines()
        .filter(|line| line.contains("_ctxt_switches:"));
    let counts = counts.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    counts.sum()
}

fn memory_mib(process: &Process) -> usize {
    own_kib(&process.id()) >> 10
}

fn measure_all(
    runtime: &tokio::runtime::Runtime,
    program: &Path,
    loads: &[(Load, Ratio)],
    wanted: Wanted,
) -> bool {
    let Wanted {
        postgres,
        json: as_json,
        grid,
    } = wanted;
    let (_upstream, upstream) = Process::role(&on_core(OTHER_CORE), "upstream", "-");
    let (proxy, proxy_address) = Process::role(&on_core(CORE), "proxy", &upstream.to_string());
    let stores = postgres.then(|| (Postgres::start(Durability::Real), Redis::start()));
    let settings = stores.as_ref().map(|(server, redis)| {
        format!(
            "database_url = {:?}\nredis_url = {:?}\n",
            runtime.block_on(server.create_database()).expose(),
            redis.url().expose()
        )
    });
    let settings = settings.unwrap_or_default();
    let folder = tempfile::tempdir().unwrap();
    write_settings(folder.path(), upstream, &settings, STREAMS);
    let (weir, weir_address) = serve(&on_core(CORE), program, folder.path());
    await_rest(&weir);
    let idle = memory_mib(&weir);
    let keys = runtime.block_on(create_keys(folder.path(), ACCOUNTS));
    await_rest(&weir);
    let beside = |load: Load, connections| {
        let path = format!("/{}{PATH}", load.model);
        let requests = Requests::new(proxy_address, &path, &keys, load);
        let floor = runtime.block_on(measure(&proxy, &requests, connections));
        let requests = Requests::new(weir_address, PATH, &keys, load);
        let own = runtime.block_on(measure(&weir, &requests, connections));
        (floor, own)
    };
    let mut sound = true;
    let mut rows = Vec::new();
    for &(load, ratios) in loads {
        let (mut floor, mut own) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            let (of_floor, of_weir) = beside(load, CONNECTIONS);
            floor.push(of_floor);
            own.push(of_weir);
        }
        let others = floor
            .iter()
            .chain(&own)
            .map(|run| run.others)
            .fold(0.0, f64::max);
        let (floor, own) = (median(floor), median(own));
        let requests = Requests::new(weir_address, PATH, &keys, load);
        let system_calls = runtime.block_on(system_calls(&weir, &requests));
        let ratio = own.cpu_us / floor.cpu_us;
        sound &= ratio <= ratios.must;
        if others > BUSY {
            eprintln!(
                "the machine is too busy to measure: others took {:.0} % of it",
                others * 100.0
            );
            sound = false;
        }
        if !as_json {
            println!(
                "{:<32} {:>6.0} µs, {ratio:>4.1} × the floor's {:>4.0} µs (must {} ×, aim {} ×); {:>6.0} rps, p50 {:.2?}, \
                 p99 {:.2?} (floor: {:.0} rps, {:.2?}, {:.2?})",
                load.name,
                own.cpu_us,
                floor.cpu_us,
                ratios.must,
                ratios.aim,
                own.rps,
                own.p50,
                own.p99,
                floor.rps,
                floor.p50,
                floor.p99,
            );
            println!(
                "{:<32} {:.2} page faults (floor: {:.2}), {:.2} context switches ({:.2}), {} system calls",
                "",
                own.faults,
                floor.faults,
                own.switches,
                floor.switches,
                system_calls.map_or("unknown".to_owned(), |calls| format!("{calls:.1}"))
            );
        }
        rows.push(json!({
            "load": load.name, "ratio": ratio, "must": ratios.must, "aim": ratios.aim,
            "weir": shown(&own), "floor": shown(&floor), "others": others,
            "system_calls": system_calls,
        }));
    }
    let added = [LOADS[0], LOADS[2]].map(|load| {
        let (floor, own) = beside(load, 1);
        (load, own, floor)
    });
    let resident = memory_mib(&weir);
    if grid {
        for (load, connections) in [LOADS[0], LOADS[2], LOADS[3]]
            .into_iter()
            .flat_map(|load| [1, 10, 32].map(|connections| (load, connections)))
        {
            let (floor, own) = beside(load, connections);
            println!(
                "{:<32} {connections:>2} connections: p50 {:.2?}, p99 {:.2?} (floor: {:.2?}, {:.2?})",
                load.name, own.p50, own.p99, floor.p50, floor.p99,
            );
        }
        runtime.block_on(print_grid(weir_address, &keys));
        let loaded = memory_mib(&weir);
        std::thread::sleep(LATER);
        println!(
            "resident: {loaded} MiB after the grid, {} MiB after {LATER:.0?} more",
            memory_mib(&weir)
        );
    }
    let stream_kib = runtime.block_on(open_streams(&weir, weir_address, &keys));
    sound &= idle <= IDLE_MIB && stream_kib <= STREAM_KIB;
    if as_json {
        let store = if postgres {
            "PostgreSQL and Redis"
        } else {
            "SQLite"
        };
        println!(
            "{}",
            json!({
                "store": store, "idle_mib": idle, "resident_mib": resident, "stream_kib": stream_kib, "loads": rows,
                "alone": added.map(|(load, own, floor)| json!({
                    "load": load.name, "weir": shown(&own), "floor": shown(&floor),
                })),
            })
        );
    } else {
        for (load, own, floor) in added {
            println!(
                "{}, alone: p50 {:.2?}, p99 {:.2?}, first byte {:.2?} (floor: {:.2?}, {:.2?}, {:.2?})",
                load.name, own.p50, own.p99, own.first, floor.p50, floor.p99, floor.first,
            );
        }
        println!(
            "resident: {idle} MiB idle (must {IDLE_MIB}), {resident} MiB after; {STREAMS} open streams: {stream_kib:.0} KiB \
             each (must {STREAM_KIB})"
        );
    }
    sound
}

fn shown(figures: &Figures) -> Value {
    json!({
        "cpu_us": figures.cpu_us, "rps": figures.rps, "p50_us": figures.p50.as_micros() as u64,
        "p99_us": figures.p99.as_micros() as u64, "first_byte_us": figures.first.as_micros() as u64,
        "page_faults": figures.faults, "context_switches": figures.switches,
    })
}

fn median(mut runs: Vec<Figures>) -> Figures {
    runs.sort_by(|one, other| one.cpu_us.total_cmp(&other.cpu_us));
    runs[runs.len() / 2]
}

/// Puts a load on a process, and measures it after a warm-up.
async fn measure(process: &Process, requests: &Requests<'_>, connections: usize) -> Figures {
    let mut clients = Clients::connect(requests.address, connections).await;
    let (is_counting, is_over) = (Cell::new(false), Cell::new(false));
    let latencies = RefCell::new(Vec::new());
    let sending = clients.send(
        requests,
        || !is_over.get(),
        |began, first| {
            if is_counting.get() {
                latencies
                    .borrow_mut()
                    .push((first - began, began.elapsed()));
            }
        },
    );
    let measuring = async {
        tokio::time::sleep(WARM_UP).await;
        is_counting.set(true);
        let (began, before, machine) = (Instant::now(), Counts::of(process), machine());
        let ours = all_ours();
        tokio::time::sleep(MEASURED).await;
        let (passed, after) = (began.elapsed(), Counts::of(process));
        is_counting.set(false);
        let busy = self::machine().saturating_sub(machine);
        let others = busy.saturating_sub(all_ours() - ours);
        is_over.set(true);
        (passed, before, after, others)
    };
    let ((), (passed, before, after, others)) = tokio::join!(sending, measuring);
    let (mut firsts, mut latencies): (Vec<_>, Vec<_>) = latencies.into_inner().into_iter().unzip();
    let requests = latencies.len() as f64;
    Figures {
        cpu_us: (after.cpu - before.cpu).as_secs_f64() * 1e6 / requests,
        rps: requests / passed.as_secs_f64(),
        p50: percentile(&mut latencies, 50),
        p99: percentile(&mut latencies, 99),
        first: percentile(&mut firsts, 50),
        others: others.as_secs_f64() / (2.0 * passed.as_secs_f64()),
        faults: (after.faults - before.faults) as f64 / requests,
        switches: after.switches.saturating_sub(before.switches) as f64 / requests,
    }
}

/// Prints the throughput and latency of each dialect, plain and streamed.
async fn print_grid(address: SocketAddr, keys: &[String]) {
    let text = words(1 << 10);
    for (dialect, path, field) in [
        ("Chat", PATH, "messages"),
        ("Responses", "/v1/responses", "input"),
        ("Messages", "/v1/messages", "messages"),
    ] {
        for (form, model) in [("plain", "plain"), ("streamed", "burst")] {
            let mut body = json!({
                "model": model, "stream": model != "plain", field: [{ "role": "user", "content": text }],
            });
            if dialect == "Messages" {
                body["max_tokens"] = 500.into();
            }
            let requests = Requests::with_body(address, path, keys, body.to_string());
            let left = Cell::new(GRID_REQUESTS);
            let latencies = RefCell::new(Vec::new());
            let mut clients = Clients::connect(address, GRID_CONNECTIONS).await;
            let began = Instant::now();
            let take = || {
                let is_left = left.get() > 0;
                left.set(left.get().saturating_sub(1));
                is_left
            };
            let note = |sent: Instant, _| latencies.borrow_mut().push(sent.elapsed());
            clients.send(&requests, take, note).await;
            let rps = GRID_REQUESTS as f64 / began.elapsed().as_secs_f64();
            let mut latencies = latencies.into_inner();
            println!(
                "{dialect:<9} {form:<8} {GRID_REQUESTS} requests on {GRID_CONNECTIONS} connections: {rps:.0} rps, p50 {:.2?}, \
                 p99 {:.2?}",
                percentile(&mut latencies, 50),
                percentile(&mut latencies, 99),
            );
        }
    }
}

/// Returns the system calls of a request, or `None` if `perf` cannot count them.
async fn system_calls(process: &Process, requests: &Requests<'_>) -> Option<f64> {
    let mut clients = Clients::connect(requests.address, CONNECTIONS).await;
    let perf = Command::new("perf")
        .args(["stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-p"])
        .arg(process.id())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    tokio::time::sleep(PERF_START).await;
    let left = Cell::new(COUNTED);
    let goes_on = || left.replace(left.get().saturating_sub(1)) > 0;
    clients.send(requests, goes_on, |_, _| {}).await;
    // An interrupted perf prints its counts.
    let id = perf.id().to_string();
    Command::new("kill").args(["-INT", &id]).status().ok()?;
    let printed = perf.wait_with_output().ok()?.stderr;
    let count = String::from_utf8_lossy(&printed);
    let count: f64 = count.split(',').next()?.trim().parse().ok()?;
    Some(count / COUNTED as f64)
}

/// Waits until a started process is idle: it compiles its bundled plugins in the background.
fn await_rest(process: &Process) {
    let began = Instant::now();
    loop {
        let before = Counts::of(process).cpu;
        std::thread::sleep(Duration::from_millis(500));
        if Counts::of(process).cpu - before < Duration::from_millis(20) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "weir rests");
    }
}

/// Returns the machine's busy time so far.
fn machine() -> Duration {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let fields: Vec<u64> = stat
        .lines()
        .next()
        .unwrap()
        .split_whitespace()
        .skip(1)
        .map(|field| field.parse().unwrap())
        .collect();
    // All fields except idle and waiting for the disk.
    let busy: u64 = fields[..3].iter().chain(&fields[5..8]).sum();
    Duration::from_millis(busy * 10)
}

/// The kernel's status of a process.
struct Stat {
    parent: u32,
    /// Page faults of all its threads, with the disk and without.
    faults: u64,
    /// Processor time of all its threads, user and system, in ticks.
    ticks: u64,
}

impl Stat {
    fn read(stat: &str) -> Self {
        // The name, which may contain any character, is in parentheses.
        let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
        let fields: Vec<&str> = fields.collect();
        let sum = |fields: &[&str]| {
            fields
                .iter()
                .map(|field| field.parse::<u64>().unwrap())
                .sum()
        };
        Self {
            parent: fields[1].parse().unwrap(),
            faults: sum(&[fields[7], fields[9]]),
            ticks: sum(&fields[11..13]),
        }
    }
}

/// Processor time of this process and its descendants, including databases, and of the kernel's threads, which write
/// to the disk for them.
fn all_ours() -> Duration {
    let own = std::process::id();
    let mut children = std::collections::BTreeMap::<u32, Vec<(u32, u64)>>::new();
    let mut total = 0;
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(id) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let Stat { parent, ticks, .. } = Stat::read(&stat);
        if id == own {
            total += ticks;
        }
        children.entry(parent).or_default().push((id, ticks));
    }
    let mut parents = vec![own, KERNEL_THREADS];
    while let Some(parent) = parents.pop() {
        for (child, ticks) in children.remove(&parent).unwrap_or_default() {
            total += ticks;
            parents.push(child);
        }
    }
    Duration::from_millis(total * 10)
}

/// Returns the memory in KiB of an open stream after one chunk.
async fn open_streams(process: &Process, address: SocketAddr, keys: &[String]) -> f64 {
    let held = Load {
        model: "held",
        ..LOADS[0]
    };
    let requests = Requests::new(address, PATH, keys, held);
    let before = own_kib(&process.id());
    let open = futures_util::stream::iter(0..STREAMS).map(|_| async {
        let mut connection = TcpStream::connect(address).await.unwrap();
        requests.send(&mut connection).await;
        let mut buffer = Vec::new();
        while memchr::memmem::find(&buffer, b"data: ").is_none() {
            let read = connection.read_buf(&mut buffer).await.unwrap();
            assert!(read > 0, "{}", String::from_utf8_lossy(&buffer));
        }
        connection
    });
    let _streams: Vec<_> = open.buffer_unordered(CONNECTIONS).collect().await;
    (own_kib(&process.id()) - before) as f64 / STREAMS as f64
}
