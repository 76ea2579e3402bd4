//! The cost of a request through weir, compared with a bare proxy: processor time, requests per second, latency and
//! memory.
//!
//! A scripted upstream, a proxy that only forwards (hyper, no parsing, no authentication: the floor) and weir, each a
//! separate process. The measured process has one core, and all others share another. 32 connections send requests as
//! fast as the responses arrive. Processor time is the kernel's count for all threads of the process, user and
//! system.
//!
//! Then the latency that weir adds for a single client, and the memory of open, silent streams.
//!
//! `cargo bench -p tests --bench gateway` measures on SQLite; `-- --postgres` on PostgreSQL and Redis; `-- --json`
//! prints JSON. weir has the release profile `dist`; `-- --profile release` builds in half the time. `-- --only
//! paced` measures only the loads with this in their names.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a bench prints its figures, and ends by panicking"
)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tests::percentile;
use tests::program::build_weir;
use tests::stores::{Durability, Postgres, Redis};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use weir_storage::secrets::SecretUrl;

/// Concurrent connections.
const CONNECTIONS: usize = 32;

/// Duration of each measurement, and of the warm-up before it.
const MEASURED: Duration = Duration::from_millis(2_500);
const WARM_UP: Duration = Duration::from_millis(700);

/// Number of runs; the middle one counts.
const RUNS: usize = 3;

const CHUNKS: usize = 100;

const PATH: &str = "/v1/chat/completions";

/// The parent of all kernel threads.
const KERNEL_THREADS: u32 = 2;

/// The core of the measured process, and the core of all others.
const CORE: &str = "0";
const OTHER_CORE: &str = "1";

/// Concurrent open streams, and the memory limit of each.
const STREAMS: usize = 5_000;
const STREAM_KIB: f64 = 256.0;

/// Memory limit of an idle gateway, in MiB.
const IDLE_MIB: usize = 120;

/// Share of both cores that other processes may use before the figures are meaningless.
const BUSY: f64 = 0.05;

#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    /// The upstream's behaviour: `plain`, `burst` or `paced`.
    model: &'static str,
    prompt_bytes: usize,
    /// The maximum multiple of the floor's processor time, and the target.
    must: f64,
    aim: f64,
}

const LOADS: [Load; 4] = [
    Load {
        name: "plain, 1 KiB",
        model: "plain",
        prompt_bytes: 1 << 10,
        must: 6.0,
        aim: 4.5,
    },
    Load {
        name: "plain, 16 KiB prompt",
        model: "plain",
        prompt_bytes: 16 << 10,
        must: 7.0,
        aim: 5.0,
    },
    Load {
        name: "burst stream, 100 chunks at once",
        model: "burst",
        prompt_bytes: 1 << 10,
        must: 1.5,
        aim: 1.0,
    },
    Load {
        name: "paced stream, a chunk each 2 ms",
        model: "paced",
        prompt_bytes: 1 << 10,
        must: 1.7,
        aim: 1.4,
    },
];

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
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let role = arguments.iter().position(|argument| argument == "--role");
    match role.map(|at| &*arguments[at + 1]) {
        Some("upstream") => runtime().block_on(upstream()),
        Some("proxy") => {
            let to = arguments.last().unwrap().parse().unwrap();
            runtime().block_on(proxy(to));
        }
        Some(other) => panic!("there is no role {other}"),
        None => {}
    }
    pin(&std::process::id().to_string(), OTHER_CORE);
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let profile = arguments
        .iter()
        .position(|argument| argument == "--profile");
    let profile = profile.map_or("dist", |at| &*arguments[at + 1]);
    let weir = build_weir(profile);
    let only = arguments.iter().position(|argument| argument == "--only");
    let only = only.map(|at| &*arguments[at + 1]);
    let loads: Vec<Load> = LOADS
        .into_iter()
        .filter(|load| only.is_none_or(|only| load.name.contains(only)))
        .collect();
    match measure_all(&runtime(), &weir, &loads, has("--postgres"), has("--json")) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn pin(process: &str, core: &str) {
    let pinned = Command::new("taskset")
        .args(["--all-tasks", "--cpu-list", "--pid", core, process])
        .stdout(Stdio::null())
        .status()
        .expect("taskset runs: Debian's util-linux has it");
    assert!(pinned.success());
}

/// A process that ends with this one.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

impl Process {
    /// Runs this program in another role; returns its address.
    fn role(role: &str, core: &str, to: &str) -> (Self, SocketAddr) {
        let mut child = Command::new("taskset")
            .args(["--cpu-list", core])
            .arg(std::env::current_exe().unwrap())
            .args(["--role", role, to])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        (Self(child), line.trim().parse().unwrap())
    }

    fn id(&self) -> String {
        self.0.id().to_string()
    }

    /// Returns the processor time of all its threads.
    fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap();
        Duration::from_millis(Stat::read(&stat).ticks * 10)
    }

    fn resident_mib(&self) -> usize {
        self.resident_kib() >> 10
    }

    fn resident_kib(&self) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

fn measure_all(
    runtime: &tokio::runtime::Runtime,
    program: &Path,
    loads: &[Load],
    postgres: bool,
    as_json: bool,
) -> bool {
    let (_upstream, upstream) = Process::role("upstream", OTHER_CORE, "-");
    let (proxy, proxy_address) = Process::role("proxy", CORE, &upstream.to_string());
    let stores = postgres.then(|| {
        let server = Postgres::start(Durability::Real);
        let url = runtime.block_on(server.create_database());
        (server, url, Redis::start())
    });
    let folder = tempfile::tempdir().unwrap();
    let (weir, weir_address, key) = start_weir(
        program,
        folder.path(),
        upstream,
        stores.as_ref().map(|(_, url, redis)| (url, redis.url())),
    );
    await_rest(&weir);
    let idle = weir.resident_mib();
    let beside = |load: Load, connections| {
        let path = format!("/{}/v1/chat/completions", load.model);
        let asked = request(proxy_address, &path, &key, load);
        let floor = measure(runtime, &proxy, proxy_address, asked, connections);
        let asked = request(weir_address, PATH, &key, load);
        let own = measure(runtime, &weir, weir_address, asked, connections);
        (floor, own)
    };
    let mut sound = true;
    let mut rows = Vec::new();
    for &load in loads {
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
        let ratio = own.cpu_us / floor.cpu_us;
        sound &= ratio <= load.must;
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
                load.must,
                load.aim,
                own.rps,
                own.p50,
                own.p99,
                floor.rps,
                floor.p50,
                floor.p99,
            );
        }
        rows.push(json!({
            "load": load.name, "ratio": ratio, "must": load.must, "aim": load.aim,
            "weir": shown(&own), "floor": shown(&floor), "others": others,
        }));
    }
    let added = [LOADS[0], LOADS[2]].map(|load| {
        let (floor, own) = beside(load, 1);
        (load, own, floor)
    });
    let resident = weir.resident_mib();
    let stream_kib = open_streams(runtime, &weir, weir_address, &key);
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
    })
}

fn median(mut runs: Vec<Figures>) -> Figures {
    runs.sort_by(|one, other| one.cpu_us.total_cmp(&other.cpu_us));
    runs[runs.len() / 2]
}

/// Starts weir on its core; returns its address, and a key.
fn start_weir(
    program: &Path,
    folder: &Path,
    upstream: SocketAddr,
    stores: Option<(&SecretUrl, SecretUrl)>,
) -> (Process, SocketAddr, String) {
    let mut toml = "listen = \"127.0.0.1:0\"\ndev = true\n".to_owned();
    if let Some((database, redis)) = &stores {
        toml += &format!(
            "database_url = {:?}\nredis_url = {:?}\n",
            database.expose(),
            redis.expose()
        );
    }
    toml += "[rate_limits]\nfree = 1000000000\naddress = 1000000000\n\
             [limits]\nconnections = 5040\nconnections_per_address = 5040\nconcurrent_requests = 5040\n\
             requests_per_account = { free = 5040 }\nrequests_per_upstream = 5040\nrequests_per_slot = 5040\n[plugins]\nall_memory_mib = 16384\n";
    for model in ["plain", "burst", "paced", "held"] {
        toml += &format!(
            "[providers.{model}]\nadapter = \"openai\"\nbase_url = \"http://{upstream}/{model}/v1\"\n\
             [models.{model}]\ncontext_window = 100000\nmax_output_tokens = 1000\ndefault_output_tokens = 500\n\
             upstreams = [{{ provider = {model:?} }}]\nprice = {{ input = 0.001, output = 0.001 }}\n"
        );
    }
    fs::write(folder.join("weir.toml"), toml).unwrap();
    // Bound to its core from the start, so that it has the threads of a machine with one core.
    let run = |arguments: &[&str]| {
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", CORE]).arg(program);
        command.current_dir(folder).args(arguments);
        command
    };
    let key = run(&["key", "create", "--user", "bench"]).output().unwrap();
    assert!(
        key.status.success(),
        "{}",
        String::from_utf8_lossy(&key.stderr)
    );
    let top_up = [
        "user",
        "top-up",
        "--user",
        "bench",
        "--credits",
        "100000000",
    ];
    assert!(
        run(&top_up)
            .stdout(Stdio::null())
            .status()
            .unwrap()
            .success()
    );
    let mut child = run(&["serve"])
        .stdout(Stdio::piped())
        .stderr(fs::File::create(folder.join("log")).unwrap())
        .spawn()
        .unwrap();
    let mut greeting = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    let address = loop {
        line.clear();
        assert!(greeting.read_line(&mut line).unwrap() > 0, "weir has ended");
        if let Some((_, rest)) = line.split_once("curl http://") {
            break rest.split('/').next().unwrap().parse().unwrap();
        }
    };
    // Later output is discarded, and must not block it.
    std::thread::spawn(move || {
        while greeting
            .read_line(&mut String::new())
            .is_ok_and(|read| read > 0)
        {}
    });
    let key = String::from_utf8(key.stdout).unwrap().trim().to_owned();
    (Process(child), address, key)
}

/// Puts a load on a process, and measures it after a warm-up.
fn measure(
    runtime: &tokio::runtime::Runtime,
    process: &Process,
    address: SocketAddr,
    request: Bytes,
    connections: usize,
) -> Figures {
    runtime.block_on(async {
        let (counting, over) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        let latencies = Arc::new(Mutex::new(Vec::new()));
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..connections {
            let (request, counting, over) = (request.clone(), counting.clone(), over.clone());
            let latencies = latencies.clone();
            clients.spawn(async move {
                let mut connection = TcpStream::connect(address).await.unwrap();
                connection.set_nodelay(true).unwrap();
                let mut buffer = Vec::with_capacity(64 << 10);
                while !over.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    connection.write_all(&request).await.unwrap();
                    let first = read_answer(&mut connection, &mut buffer).await;
                    if counting.load(Ordering::Relaxed) {
                        let took = (first - began, began.elapsed());
                        latencies.lock().unwrap().push(took);
                    }
                }
            });
        }
        tokio::time::sleep(WARM_UP).await;
        counting.store(true, Ordering::Relaxed);
        let (began, cpu, machine) = (Instant::now(), process.cpu(), machine());
        let ours = all_ours();
        tokio::time::sleep(MEASURED).await;
        let (passed, cpu) = (began.elapsed(), process.cpu() - cpu);
        let latencies = std::mem::take(&mut *latencies.lock().unwrap());
        let (mut firsts, mut latencies): (Vec<_>, Vec<_>) = latencies.into_iter().unzip();
        let busy = self::machine().saturating_sub(machine);
        let others = busy.saturating_sub(all_ours() - ours);
        over.store(true, Ordering::Relaxed);
        while let Some(ended) = clients.join_next().await {
            ended.unwrap();
        }
        let requests = latencies.len() as f64;
        Figures {
            cpu_us: cpu.as_secs_f64() * 1e6 / requests,
            rps: requests / passed.as_secs_f64(),
            p50: percentile(&mut latencies, 50),
            p99: percentile(&mut latencies, 99),
            first: percentile(&mut firsts, 50),
            others: others.as_secs_f64() / (2.0 * passed.as_secs_f64()),
        }
    })
}

/// Waits until a started process is idle: it compiles its bundled plugins in the background.
fn await_rest(process: &Process) {
    let began = Instant::now();
    loop {
        let before = process.cpu();
        std::thread::sleep(Duration::from_millis(500));
        if process.cpu() - before < Duration::from_millis(20) {
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
    /// Processor time of all its threads, user and system, in ticks.
    ticks: u64,
}

impl Stat {
    fn read(stat: &str) -> Self {
        // The name, which may contain any character, is in parentheses.
        let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
        let fields: Vec<&str> = fields.collect();
        let ticks = fields[11..13].iter();
        Self {
            parent: fields[1].parse().unwrap(),
            ticks: ticks.map(|field| field.parse::<u64>().unwrap()).sum(),
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
        let Stat { parent, ticks } = Stat::read(&stat);
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

fn request(address: SocketAddr, path: &str, key: &str, load: Load) -> Bytes {
    let text = "word ".repeat(load.prompt_bytes / 5);
    let body = json!({
        "model": load.model, "stream": load.model != "plain",
        "messages": [{ "role": "user", "content": text }],
    })
    .to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    Bytes::from(head + &body)
}

/// Reads one response: up to its length, or to the last chunk. Returns the time of its first bytes.
async fn read_answer(connection: &mut TcpStream, buffer: &mut Vec<u8>) -> Instant {
    buffer.clear();
    let mut length = None;
    let mut first = None;
    loop {
        let read = connection.read_buf(buffer).await.unwrap();
        assert!(
            read > 0,
            "the connection has ended: {}",
            String::from_utf8_lossy(buffer)
        );
        let first = *first.get_or_insert_with(Instant::now);
        if length.is_none() {
            let Some(end) = memchr::memmem::find(buffer, b"\r\n\r\n") else {
                continue;
            };
            let head = String::from_utf8_lossy(&buffer[..end]).to_lowercase();
            assert!(
                head.starts_with("http/1.1 200"),
                "{}",
                String::from_utf8_lossy(buffer)
            );
            let named = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            length = Some(named.map(|named| end + 4 + named.trim().parse::<usize>().unwrap()));
        }
        match length {
            Some(Some(length)) if buffer.len() >= length => return first,
            Some(None) if buffer.ends_with(b"0\r\n\r\n") => return first,
            _ => {}
        }
    }
}

/// Returns the memory in KiB of an open stream after one chunk.
fn open_streams(
    runtime: &tokio::runtime::Runtime,
    process: &Process,
    address: SocketAddr,
    key: &str,
) -> f64 {
    let held = Load {
        model: "held",
        ..LOADS[0]
    };
    let request = request(address, PATH, key, held);
    let before = process.resident_kib();
    let after = runtime.block_on(async {
        let open = futures_util::stream::iter(0..STREAMS).map(|_| async {
            let mut connection = TcpStream::connect(address).await.unwrap();
            connection.write_all(&request).await.unwrap();
            let mut buffer = Vec::new();
            while memchr::memmem::find(&buffer, b"data: ").is_none() {
                let read = connection.read_buf(&mut buffer).await.unwrap();
                assert!(read > 0, "{}", String::from_utf8_lossy(&buffer));
            }
            connection
        });
        let streams: Vec<_> = open.buffer_unordered(CONNECTIONS).collect().await;
        let after = process.resident_kib();
        drop(streams);
        after
    });
    (after - before) as f64 / STREAMS as f64
}

type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// Serves connections on a free port, which it prints, until it is killed.
async fn serve<F>(answer: impl Fn(Request<Incoming>) -> F + Clone + 'static) -> !
where
    F: Future<Output = Result<Response<Body>, hyper::Error>> + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async {
            loop {
                let (connection, _) = listener.accept().await.unwrap();
                connection.set_nodelay(true).unwrap();
                let answer = answer.clone();
                tokio::task::spawn_local(async move {
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(connection), service_fn(answer))
                        .await;
                });
            }
        })
        .await
}

/// Responds by the path: `/plain`, `/burst`, `/paced`, or `/held`, which never ends.
async fn upstream() -> ! {
    let usage = json!({ "prompt_tokens": 300, "completion_tokens": 100, "total_tokens": 400 });
    let plain = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": "m", "choices": [{
            "index": 0, "finish_reason": "stop", "message": { "role": "assistant", "content": "word ".repeat(100) },
        }], "usage": usage,
    });
    let plain = Bytes::from(plain.to_string());
    let mut pieces: Vec<Bytes> = (0..CHUNKS)
        .map(|number| {
            let delta = match number {
                0 => json!({ "role": "assistant", "content": "word " }),
                _ => json!({ "content": "word " }),
            };
            event(
                &json!([{ "index": 0, "delta": delta, "finish_reason": null }]),
                &Value::Null,
            )
        })
        .collect();
    let mut end = event(
        &json!([{ "index": 0, "delta": {}, "finish_reason": "stop" }]),
        &Value::Null,
    )
    .to_vec();
    end.extend_from_slice(&event(&json!([]), &usage));
    end.extend_from_slice(b"data: [DONE]\n\n");
    pieces.push(end.into());
    let pieces = Arc::new(pieces);
    serve(move |request: Request<Incoming>| {
        let (plain, pieces) = (plain.clone(), pieces.clone());
        async move {
            let path = request.uri().path().to_owned();
            request.into_body().collect().await?;
            if path.starts_with("/plain") {
                let mut response = Response::new(full(plain));
                response.headers_mut().insert(
                    header::CONTENT_TYPE,
                    HeaderValue::from_static("application/json"),
                );
                return Ok(response);
            }
            let is_paced = path.starts_with("/paced");
            let is_held = path.starts_with("/held");
            let stream = futures_util::stream::unfold(0, move |number| {
                let pieces = pieces.clone();
                async move {
                    let piece = pieces.get(number)?.clone();
                    if is_paced && number > 0 {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                    if is_held && number > 0 {
                        std::future::pending().await
                    }
                    Some((Ok(Frame::data(piece)), number + 1))
                }
            });
            let mut response = Response::new(StreamBody::new(stream).boxed_unsync());
            response.headers_mut().insert(
                header::CONTENT_TYPE,
                HeaderValue::from_static("text/event-stream"),
            );
            Ok(response)
        }
    })
    .await
}

fn event(choices: &Value, usage: &Value) -> Bytes {
    let chunk = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m",
        "choices": choices, "usage": usage,
    });
    Bytes::from(format!("data: {chunk}\n\n"))
}

fn full(bytes: Bytes) -> Body {
    Full::new(bytes)
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// Forwards all requests to the upstream, and its responses back, unparsed.
async fn proxy(to: SocketAddr) -> ! {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build::<_, Incoming>(connector);
    serve(move |mut request: Request<Incoming>| {
        let client = client.clone();
        let path = request.uri().path_and_query().unwrap().as_str();
        *request.uri_mut() = Uri::builder()
            .scheme("http")
            .authority(to.to_string())
            .path_and_query(path)
            .build()
            .unwrap();
        async move {
            let answer = client.request(request).await.expect("the upstream answers");
            Ok(answer.map(|body| body.boxed_unsync()))
        }
    })
    .await
}
