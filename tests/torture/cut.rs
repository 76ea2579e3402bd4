//! W-C: the delay in stopping guests that loop.
//!
//! There are two deadlines. The first is by the clock: a call may take `call_timeout_ms`. The second is processor
//! time: an exchange has `cpu_ms`, counted in ticks. A guest that is past its first ticks sleeps between them, so by
//! the clock that budget lasts several times as long, by design.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use serde_json::json;
use tests::sandbox::{request, sandbox};
use tests::{chat, guests};
use tokio::task::JoinSet;
use weir_sandbox::adapter::bindings::adapter::Request;
use weir_sandbox::adapter::{AdapterCallError, GuestExchange, LoadedAdapter};
use weir_sandbox::{GuestError, GuestLimits, loading};

const WORKER_THREADS: usize = 2;

/// Guests measured by the clock, of each kind and number.
const GUESTS: usize = 200;

/// Guests measured in processor time, of each kind; each takes more than a second.
const LONG_GUESTS: usize = 40;

const LIMIT: Duration = Duration::from_millis(30);

const CALL_TIMEOUT: Duration = Duration::from_millis(200);

const CPU: Duration = Duration::from_millis(250);

pub(crate) fn run() -> bool {
    let mut sound = true;
    for (behave, together) in [("spin", 1), ("spin", 2), ("spin", 4), ("copy", 1)] {
        let late = past_the_clock(behave, together);
        sound &= report(
            &format!("{together} that {behave}: after the call's time-out of {CALL_TIMEOUT:?}"),
            late,
        );
    }
    for behave in ["spin", "copy"] {
        let beyond = past_the_budget(behave);
        let what = format!("1 that {behave}: processor time beyond the budget of {CPU:?}");
        sound &= report(&what, beyond);
    }
    sound
}

fn report(what: &str, mut late_ms: Vec<f64>) -> bool {
    late_ms.sort_by(f64::total_cmp);
    let at = |hundredth: usize| late_ms[(late_ms.len() * hundredth / 100).min(late_ms.len() - 1)];
    let limit_ms = LIMIT.as_secs_f64() * 1e3;
    println!(
        "W-C: {what}: p99 {:.1} ms (limit {limit_ms} ms), p50 {:.1} ms, from {:.1} to {:.1} ms, {} guests",
        at(99),
        at(50),
        at(0),
        at(100),
        late_ms.len(),
    );
    at(99) <= limit_ms
}

/// Returns the delay of the call's end after its time-out, in milliseconds, with this many concurrent guests.
fn past_the_clock(behave: &'static str, together: usize) -> Vec<f64> {
    crate::runtime(WORKER_THREADS).block_on(async {
        let adapter = std::sync::Arc::new(
            load(GuestLimits {
                call_timeout_ms: milliseconds(CALL_TIMEOUT),
                // Large enough that the wall-clock limit comes first.
                cpu_ms: milliseconds(Duration::from_secs(60)),
                ..GuestLimits::default()
            })
            .await,
        );
        let mut late = Vec::new();
        let mut guests = JoinSet::new();
        while late.len() < GUESTS {
            while guests.len() < together {
                let adapter = adapter.clone();
                guests.spawn(async move {
                    let started = Instant::now();
                    let error = begin(&adapter, behave).await;
                    assert_eq!(error, GuestError::CallTimeout);
                    started.elapsed().as_secs_f64() - CALL_TIMEOUT.as_secs_f64()
                });
            }
            let outcome = guests.join_next().await.expect("there are guests");
            late.push(outcome.expect("the call returns") * 1e3);
        }
        late
    })
}

/// Returns the processor time of a guest beyond its budget, in milliseconds; negative if a tick was cut short, since
/// a tick counts in full.
fn past_the_budget(behave: &str) -> Vec<f64> {
    // One thread for all, so that its processor time is the guest's.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime starts");
    runtime.block_on(async {
        let adapter = load(GuestLimits {
            cpu_ms: milliseconds(CPU),
            ..GuestLimits::default()
        })
        .await;
        let mut beyond = Vec::new();
        for _ in 0..LONG_GUESTS {
            let before = processor_time();
            assert_eq!(begin(&adapter, behave).await, GuestError::CpuBudget);
            let took = processor_time() - before;
            beyond.push((took.as_secs_f64() - CPU.as_secs_f64()) * 1e3);
        }
        beyond
    })
}

/// Lets a guest misbehave in its first call, and returns the error.
async fn begin(adapter: &LoadedAdapter, behave: &str) -> GuestError {
    let command = json!({ "behave": behave, "in": "begin" });
    let request = asking(&command.to_string());
    match GuestExchange::begin(adapter, &request, 0, &[]).await {
        Err(AdapterCallError::Guest(error)) => error,
        _ => panic!("it never returns"),
    }
}

async fn load(limits: GuestLimits) -> LoadedAdapter {
    loading::load(&sandbox(8), None, &limits, "hostile", guests::misbehaving())
        .await
        .unwrap_or_else(|error| panic!("{error}"))
}

fn milliseconds(time: Duration) -> NonZeroU64 {
    NonZeroU64::new(time.as_millis() as u64).expect("it is some")
}

/// A request with one message.
pub(crate) fn asking(text: &str) -> Request {
    request(&chat("hostile", text))
}

/// Returns this thread's running time, from the kernel's scheduler.
fn processor_time() -> Duration {
    // The count of a running thread is some milliseconds old; the count of a thread that wakes up is fresh.
    std::thread::sleep(Duration::from_millis(1));
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    let nanoseconds = statistics.split(' ').next().expect("three numbers");
    Duration::from_nanos(nanoseconds.parse().expect("a number"))
}
