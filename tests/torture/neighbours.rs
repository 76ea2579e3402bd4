//! W-B: healthy requests in an open loop, alone and then beside hostile ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::runtime;
use serde_json::{Value, json};
use tests::{Client, Gateway, chat, guests};
use tokio::task::JoinSet;

const REQUESTS_PER_SECOND: u32 = 50;
const SECONDS: u32 = 20;
const WORKER_THREADS: usize = 2;

/// Of the requests, where some are hostile: every so many.
const HOSTILE_EVERY: u32 = 10;

/// How much later the slowest hundredth may be: the epoch's period, twice.
const MARGIN: Duration = Duration::from_millis(20);

pub(crate) fn run() -> bool {
    let gateway_runtime = runtime(WORKER_THREADS);
    let gateway = gateway_runtime.block_on(async {
        Gateway::builder()
            .guest("hostile", guests::misbehaving(), None)
            .start()
            .await
    });
    let client = gateway.client();
    // The load has a runtime of its own: what is measured is the gateway's.
    runtime(1).block_on(async {
        let warm_up = measure(&client, false).await;
        assert!(warm_up.failed == 0, "healthy requests are served");
        let baseline = measure(&client, false).await;
        println!(
            "W-B: alone: p99 {:.1?}, p50 {:.1?}, the slowest {:.1?}",
            baseline.p99, baseline.p50, baseline.slowest
        );
        let mut sound = true;
        let mut judge = |beside: &str, cut: usize, measured: &Measured| {
            let limit = baseline.p99 + MARGIN;
            sound &= measured.p99 <= limit && measured.failed == 0;
            println!(
                "W-B: beside {beside} ({cut} cut) on {WORKER_THREADS} threads: p99 {:.1?} (limit {limit:.1?}), p50 \
                 {:.1?}, the slowest {:.1?}; {} of {} failed",
                measured.p99, measured.p50, measured.slowest, measured.failed, measured.sent,
            );
        };
        let mixed = measure(&client, true).await;
        judge("10 % hostile requests of nine kinds", mixed.cut, &mixed);
        for behave in ["spin", "copy"] {
            for loops in [WORKER_THREADS, 2 * WORKER_THREADS, 4 * WORKER_THREADS] {
                let looping = Loops::start(&client, behave, loops);
                let measured = measure(&client, false).await;
                let cut = looping.stop();
                assert!(cut > 0, "the guests looped");
                let beside = format!("{loops} guests that {behave} for ever");
                judge(&beside, cut, &measured);
            }
        }
        sound
    })
}

struct Measured {
    p50: Duration,
    p99: Duration,
    slowest: Duration,
    /// Healthy requests.
    sent: usize,
    failed: usize,
    /// Hostile ones that ended as they must.
    cut: usize,
}

/// Requests at a fixed rate, whether the earlier ones are answered or not.
async fn measure(client: &Client, some_hostile: bool) -> Measured {
    let hostile = assaults();
    let mut requests = JoinSet::new();
    let mut clock = tokio::time::interval(Duration::from_secs(1) / REQUESTS_PER_SECOND);
    for number in 0..REQUESTS_PER_SECOND * SECONDS {
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
    let mut took: Vec<_> = healthy.iter().map(|outcome| outcome.1).collect();
    took.sort();
    Measured {
        p50: took[took.len() / 2],
        p99: took[took.len() * 99 / 100],
        slowest: took[took.len() - 1],
        sent: healthy.len(),
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

/// So many guests at a time that loop.
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

    /// Stops them and says how many were cut.
    fn stop(self) -> usize {
        self.task.abort();
        self.cut.load(Ordering::Relaxed)
    }
}
