//! W-B: healthy requests in an open loop, alone and then beside hostile ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::process::wait_until;
use crate::runtime;
use serde_json::{Value, json};
use tests::{Client, Gateway, chat, guests};
use tokio::task::JoinSet;

const REQUESTS_PER_SECOND: u32 = 50;
const WORKER_THREADS: usize = 2;

/// Windows of each neighbourhood, alone and beside hostile guests alternately: other work of the machine then slows
/// both.
const WINDOWS: usize = 3;
const SECONDS_PER_WINDOW: u32 = 5;

/// Period of hostile requests among the others.
const HOSTILE_EVERY: u32 = 10;

/// Maximum increase of p99: twice the epoch's period.
const MARGIN: Duration = Duration::from_millis(20);

/// Time in which looping guests end.
const PATIENCE: Duration = Duration::from_secs(20);

/// The neighbours of healthy requests.
enum Neighbours {
    /// Requests of many hostile kinds, one in [`HOSTILE_EVERY`].
    Mixed,
    /// This many concurrent guests with the same endless behaviour.
    Loops(&'static str, usize),
}

pub(crate) fn run() -> bool {
    // In memory: each request waits for the write of its charge, and the disk's speed must not count.
    let folder = tempfile::tempdir_in("/dev/shm").expect("Linux has it");
    let gateway_runtime = runtime(WORKER_THREADS);
    let gateway = gateway_runtime.block_on(async {
        Gateway::builder()
            .folder(folder)
            .guest("hostile", guests::misbehaving(), None)
            .start()
            .await
    });
    let mut neighbourhoods = vec![Neighbours::Mixed];
    for behave in ["spin", "copy"] {
        for times in [1, 2, 4] {
            neighbourhoods.push(Neighbours::Loops(behave, times * WORKER_THREADS));
        }
    }
    // The load has a runtime of its own: the measurement covers only the gateway's.
    runtime(1).block_on(async {
        let mut sound = true;
        // The warm-up.
        measure(&gateway.client(), false).await;
        for neighbours in &neighbourhoods {
            sound &= neighbours.are_borne(&gateway).await;
        }
        sound
    })
}

impl Neighbours {
    async fn are_borne(&self, gateway: &Gateway) -> bool {
        let client = gateway.client();
        let (mut alone, mut beside) = (Measured::default(), Measured::default());
        for _ in 0..WINDOWS {
            alone.add(measure(&client, false).await);
            match self {
                Self::Mixed => beside.add(measure(&client, true).await),
                Self::Loops(behave, loops) => {
                    let looping = Loops::start(&client, behave, *loops);
                    // The measurement starts once all guests run.
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    beside.add(measure(&client, false).await);
                    beside.cut += looping.stop();
                }
            }
            let tasks = &gateway.app().tasks;
            let gone = wait_until(PATIENCE, async || tasks.is_empty()).await;
            assert!(gone.is_some(), "the guests are gone");
        }
        assert!(beside.cut > 0, "there were hostile guests");
        let limit = alone.at(99) + MARGIN;
        println!(
            "W-B: {self} ({} cut) on {WORKER_THREADS} threads: p99 {:.1?}, alone {:.1?} (limit {limit:.1?}); p50 {:.1?}, \
             alone {:.1?}; the slowest {:.1?}, alone {:.1?}; {} of {} failed",
            beside.cut,
            beside.at(99),
            alone.at(99),
            beside.at(50),
            alone.at(50),
            beside.at(100),
            alone.at(100),
            beside.failed,
            beside.took.len(),
        );
        beside.at(99) <= limit && beside.failed + alone.failed == 0
    }
}

impl std::fmt::Display for Neighbours {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Mixed => write!(formatter, "beside 1 hostile request in {HOSTILE_EVERY}"),
            Self::Loops(behave, loops) => {
                write!(formatter, "beside {loops} guests that {behave} for ever")
            }
        }
    }
}

#[derive(Default)]
struct Measured {
    /// Durations of healthy requests.
    took: Vec<Duration>,
    failed: usize,
    /// Hostile requests with the required end.
    cut: usize,
}

impl Measured {
    fn add(&mut self, more: Self) {
        self.took.extend(more.took);
        self.took.sort();
        self.failed += more.failed;
        self.cut += more.cut;
    }

    fn at(&self, hundredth: usize) -> Duration {
        self.took[(self.took.len() * hundredth / 100).min(self.took.len() - 1)]
    }
}

/// Sends requests at a fixed rate, regardless of outstanding responses.
async fn measure(client: &Client, some_hostile: bool) -> Measured {
    let hostile = assaults();
    let mut requests = JoinSet::new();
    let mut clock = tokio::time::interval(Duration::from_secs(1) / REQUESTS_PER_SECOND);
    for number in 0..REQUESTS_PER_SECOND * SECONDS_PER_WINDOW {
        clock.tick().await;
        let is_hostile = some_hostile && number % HOSTILE_EVERY == 0;
        let request = if is_hostile {
            hostile[(number / HOSTILE_EVERY) as usize % hostile.len()].clone()
        } else {
            chat("demo", "hello")
        };
        let client = client.clone();
        requests.spawn(async move {
            let started = Instant::now();
            let answer = client.try_post("/chat", &request).await;
            let status = answer.map(|answer| answer.status.as_u16());
            (is_hostile, started.elapsed(), status)
        });
    }
    let outcomes = requests.join_all().await;
    let cut = |outcome: &&(bool, _, _)| outcome.0 && outcome.2 == Some(502);
    let cut = outcomes.iter().filter(cut).count();
    let healthy: Vec<_> = outcomes.iter().filter(|outcome| !outcome.0).collect();
    assert!(
        cut == outcomes.len() - healthy.len(),
        "hostile requests end as failures of the adapter"
    );
    let failed = healthy.iter().filter(|outcome| outcome.2 != Some(200));
    Measured {
        took: healthy.iter().map(|outcome| outcome.1).collect(),
        failed: failed.count(),
        cut,
    }
}

fn assaults() -> Vec<Value> {
    [
        json!({ "behave": "spin" }),
        json!({ "behave": "copy" }),
        json!({ "behave": "grow" }),
        json!({ "behave": "recurse", "log": true }),
        json!({ "behave": "panic" }),
        json!({ "behave": "flood-log" }),
        json!({ "behave": "text", "bytes": 10_000_000 }),
        json!({ "behave": "utf8" }),
        json!({ "behave": "sleep" }),
    ]
    .map(|command| chat("hostile", &command.to_string()))
    .into()
}

/// This many concurrent guests that loop.
struct Loops {
    cut: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Loops {
    fn start(client: &Client, behave: &str, loops: usize) -> Self {
        let cut = Arc::new(AtomicUsize::new(0));
        let (counter, client) = (cut.clone(), client.clone());
        let request = chat("hostile", &json!({ "behave": behave }).to_string());
        let task = tokio::spawn(async move {
            let mut guests = JoinSet::new();
            loop {
                while guests.len() < loops {
                    let (client, request) = (client.clone(), request.clone());
                    guests.spawn(async move { client.post("/chat", &request).await });
                }
                if let Some(Ok(answer)) = guests.join_next().await {
                    assert_eq!(answer.status, 502, "{}", answer.text());
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Self { cut, task }
    }

    /// Stops them and returns the number that were cut.
    fn stop(self) -> usize {
        self.task.abort();
        self.cut.load(Ordering::Relaxed)
    }
}
