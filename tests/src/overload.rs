//! Overload: more requests than a gateway can serve, the requests it still serves, and its recovery.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::client::{Client, patiently};

/// Time between two health probes, each over a new connection.
const PROBE_EVERY: Duration = Duration::from_millis(100);

/// The result of an overload.
#[derive(Debug)]
pub struct Overload {
    /// Requests served per second at saturation.
    pub peak: f64,
    /// Requests served per second during the overload.
    pub goodput: f64,
    /// Requests sent per second.
    pub offered: f64,
    /// Number of responses by status; 0 for no response.
    pub answers: BTreeMap<u16, usize>,
    /// Refusals without `Retry-After`.
    pub without_retry_after: usize,
    /// The slowest refusal.
    pub slowest_refusal: Duration,
    /// The slowest probe.
    pub slowest_probe: Duration,
    /// Probes with another status than 200.
    pub failed_probes: usize,
    /// Time from the last request to the first one served as fast as before.
    pub recovered_in: Duration,
}

/// Saturates the gateway, then sends five times as many requests per second in an open loop; each for this long.
pub async fn overload(client: &Client, request: &Value, turns: usize, each: Duration) -> Overload {
    let alone = Instant::now();
    let answer = client.post("/chat", request).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let unloaded = alone.elapsed();

    let peak = saturate(client, request, turns, each).await;
    let offered = 5.0 * peak;
    let stop = Arc::new(AtomicBool::new(false));
    let probing = tokio::spawn(probe(client.clone(), stop.clone()));
    let mut clock = interval(Duration::from_secs_f64(1.0 / offered));
    // Overdue requests are sent at once: that is an open loop.
    clock.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut requests = JoinSet::new();
    let began = Instant::now();
    while began.elapsed() < each {
        clock.tick().await;
        let (client, request) = (client.clone(), request.clone());
        requests.spawn(async move {
            let asked = Instant::now();
            let answer = client.try_post("/chat", &request).await;
            let says_when = |answer: &crate::Answer| answer.headers.contains_key("retry-after");
            let heard = answer.map(|answer| (answer.status.as_u16(), says_when(&answer)));
            (heard.unwrap_or_default(), asked.elapsed(), began.elapsed())
        });
    }
    let ended = Instant::now();
    let recovering = client.at(client.address());
    let recovered_in = patiently(async {
        loop {
            let asked = Instant::now();
            let answer = recovering.post("/chat", request).await;
            if answer.status == 200 && asked.elapsed() < 2 * unloaded + Duration::from_millis(50) {
                return ended.elapsed();
            }
        }
    })
    .await;
    let outcomes = requests.join_all().await;
    stop.store(true, Ordering::Relaxed);
    let (slowest_probe, failed_probes) = probing.await.expect("no panic");
    let mut answers = BTreeMap::new();
    let (mut slowest_refusal, mut without_retry_after, mut served) = (Duration::ZERO, 0, 0);
    for ((status, says_when), took, at) in outcomes {
        *answers.entry(status).or_insert(0) += 1;
        if status == 200 {
            served += usize::from(at <= each);
        } else {
            without_retry_after += usize::from(!says_when);
            slowest_refusal = slowest_refusal.max(took);
        }
    }
    Overload {
        peak,
        goodput: served as f64 / each.as_secs_f64(),
        offered,
        answers,
        without_retry_after,
        slowest_refusal,
        slowest_probe,
        failed_probes,
        recovered_in,
    }
}

/// Returns the requests served per second with as many under way as there are turns.
async fn saturate(client: &Client, request: &Value, turns: usize, each: Duration) -> f64 {
    let until = Instant::now() + each;
    let lanes = (0..turns).map(|_| async {
        let mut served = 0_usize;
        while Instant::now() < until {
            let answer = client.post("/chat", request).await;
            served += usize::from(answer.status == 200);
        }
        served
    });
    let served: usize = futures_util::future::join_all(lanes).await.iter().sum();
    served as f64 / each.as_secs_f64()
}

async fn probe(client: Client, stop: Arc<AtomicBool>) -> (Duration, usize) {
    let (mut slowest, mut failed) = (Duration::ZERO, 0);
    let mut clock = interval(PROBE_EVERY);
    while !stop.load(Ordering::Relaxed) {
        clock.tick().await;
        for path in ["/health", "/health/ready"] {
            let asked = Instant::now();
            let status = client.at(client.address()).try_get(path).await;
            slowest = slowest.max(asked.elapsed());
            failed += usize::from(status.is_none_or(|status| status != 200));
        }
    }
    (slowest, failed)
}
