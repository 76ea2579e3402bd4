//! Healthy requests in an open loop, without and then with guests that loop for ever beside them.

use std::time::{Duration, Instant};

use crate::runtime;
use serde_json::json;
use tests::{Gateway, chat, guests};
use tokio::task::JoinSet;

const REQUESTS_PER_SECOND: u32 = 50;
const SECONDS: u32 = 20;
const WORKER_THREADS: usize = 2;

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
    // The load has a runtime of its own: what is measured is the gateway's.
    runtime(1).block_on(async {
        let warm_up = measure(&gateway).await;
        assert!(warm_up.failed == 0, "healthy requests are served");
        let baseline = measure(&gateway).await;
        let mut sound = true;
        for loops in [WORKER_THREADS, 2 * WORKER_THREADS] {
            let (spinning, looped) = spin(&gateway, loops);
            let beside = measure(&gateway).await;
            spinning.abort();
            let limit = baseline.p99 + MARGIN;
            sound &= beside.p99 <= limit && beside.failed == 0;
            let cut = looped.load(std::sync::atomic::Ordering::Relaxed);
            assert!(cut > 0, "the guests looped");
            println!(
                "fairness: {loops} looping guests on {WORKER_THREADS} threads ({cut} cut): p99 {:.1?}, \
                 baseline {:.1?} (limit {limit:.1?}), {} of {} failed",
                beside.p99, baseline.p99, beside.failed, beside.sent,
            );
        }
        sound
    })
}

struct Measured {
    p99: Duration,
    sent: usize,
    failed: usize,
}

/// Requests at a fixed rate, whether the earlier ones are answered or not.
async fn measure(gateway: &Gateway) -> Measured {
    let client = gateway.client();
    let mut requests = JoinSet::new();
    let mut clock = tokio::time::interval(Duration::from_secs(1) / REQUESTS_PER_SECOND);
    for _ in 0..REQUESTS_PER_SECOND * SECONDS {
        clock.tick().await;
        let client = client.clone();
        requests.spawn(async move {
            let started = Instant::now();
            let answer = client.post("/chat", &chat("demo", "hello")).await;
            (started.elapsed(), answer.status == 200)
        });
    }
    let outcomes = requests.join_all().await;
    let mut took: Vec<_> = outcomes.iter().map(|(took, _)| *took).collect();
    took.sort();
    Measured {
        p99: took[took.len() * 99 / 100],
        sent: outcomes.len(),
        failed: outcomes.iter().filter(|(_, served)| !served).count(),
    }
}

/// Keeps so many guests looping until aborted.
fn spin(
    gateway: &Gateway,
    loops: usize,
) -> (
    tokio::task::JoinHandle<()>,
    std::sync::Arc<std::sync::atomic::AtomicUsize>,
) {
    let looped = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = looped.clone();
    let client = gateway.client();
    let handle = tokio::spawn(async move {
        let body = chat("hostile", &json!({ "behave": "spin" }).to_string());
        let mut guests = JoinSet::new();
        loop {
            while guests.len() < loops {
                let (client, body) = (client.clone(), body.clone());
                guests.spawn(async move { client.post("/chat", &body).await });
            }
            if let Some(Ok(answer)) = guests.join_next().await {
                assert_eq!(answer.status, 502, "{}", answer.text());
                counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
    });
    (handle, looped)
}
