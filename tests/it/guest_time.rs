//! The time of a guest: its thread's processor time, without waits for others.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tests::sandbox::{request, sandbox};
use tests::{chat, guests, patiently};
use tokio::task::JoinSet;
use weir_sandbox::adapter::bindings::adapter::{HttpResponseHead, Request, Step};
use weir_sandbox::adapter::{AdapterCallError, GuestExchange, LoadedAdapter, ProviderWorld};
use weir_sandbox::code_cache::CodeCache;
use weir_sandbox::{GuestError, GuestLimits, Sandbox, loading};
use weir_storage::secrets::SecretKey;

/// Threads that compute until this is dropped, several for each core.
struct BusyHost(Arc<AtomicBool>);

impl BusyHost {
    fn start() -> Self {
        let goes_on = Arc::new(AtomicBool::new(true));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..4 * cores {
            let goes_on = goes_on.clone();
            std::thread::spawn(move || while goes_on.load(Ordering::Relaxed) {});
        }
        Self(goes_on)
    }
}

impl Drop for BusyHost {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

async fn load(
    sandbox: &Sandbox<ProviderWorld>,
    name: &str,
    component: &[u8],
    limits: &GuestLimits,
) -> LoadedAdapter {
    let loaded = loading::load(sandbox, None, limits, name, component).await;
    loaded.unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn within(call_timeout_ms: u64, cpu_ms: u64) -> GuestLimits {
    let milliseconds = |ms| NonZeroU64::new(ms).expect("it is some");
    GuestLimits {
        call_timeout_ms: milliseconds(call_timeout_ms),
        cpu_ms: milliseconds(cpu_ms),
        ..GuestLimits::default()
    }
}

/// A request that makes the guest do this before it responds.
fn commanding(command: &serde_json::Value) -> Request {
    request(&chat("hostile", &command.to_string()))
}

/// Makes the guest compute, and returns the result.
async fn compute(adapter: &LoadedAdapter, turns: u64) -> Result<(), GuestError> {
    let request = commanding(&json!({ "behave": "compute", "turns": turns, "in": "begin" }));
    match GuestExchange::begin(adapter, &request, 0, &[]).await {
        Ok(_) => Ok(()),
        Err(AdapterCallError::Guest(error)) => Err(error),
        Err(AdapterCallError::Failure(failure)) => panic!("{failure:?}"),
    }
}

/// Returns the turns of a guest's loop in this time, on an idle machine.
async fn turns_within(adapter: &LoadedAdapter, time: Duration) -> u64 {
    const TRIED: u64 = 1_000_000;
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        let began = Instant::now();
        compute(adapter, TRIED).await.expect("it ends");
        fastest = fastest.min(began.elapsed());
    }
    (TRIED as f64 * time.as_secs_f64() / fastest.as_secs_f64()) as u64
}

/// A response that streams in pieces of seven bytes, while other threads have the processor most of the time.
#[tokio::test]
async fn a_stream_of_small_pieces_on_a_busy_host_uses_its_own_time_alone() {
    const PIECES: usize = 30_000;
    let limits = GuestLimits::default();
    let adapter = load(&sandbox(4), "openai", &guests::bundled("openai"), &limits).await;
    let mut body = chat("gpt-x", "hello");
    body["stream"] = true.into();
    let begun = GuestExchange::begin(&adapter, &request(&body), 0, &[]).await;
    let begun = begun.expect("no failure");
    assert!(matches!(begun.step, Step::Send(_)));
    let mut exchange = begun.exchange;
    let head = HttpResponseHead {
        status: 200,
        headers: vec![("content-type".into(), "text/event-stream".into())],
    };
    exchange.head(&head).await.expect("no failure");
    let event = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-x",
        "choices": [{ "index": 0, "delta": { "content": "one" }, "finish_reason": null }],
    });
    let event = format!("data: {event}\n\n");
    let stream: Vec<u8> = event.bytes().cycle().take(7 * PIECES).collect();
    let _busy = BusyHost::start();
    let mut events = 0;
    for (number, piece) in stream.chunks(7).enumerate() {
        let progress = exchange.body(piece).await;
        let progress = progress.unwrap_or_else(|error| panic!("piece {number}: {error}"));
        assert_eq!(progress.failure, None);
        events += progress.events.len();
    }
    assert!(events >= PIECES * 7 / event.len(), "{events}");
}

/// A guest that computes for a while, beside another component's guests that all compute for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_component_whose_guests_loop_keeps_no_other_component_waiting() {
    let sandbox = sandbox(100);
    let looping = Arc::new(
        load(
            &sandbox,
            "looping",
            guests::misbehaving(),
            &within(600_000, 600_000),
        )
        .await,
    );
    let sound = load(
        &sandbox,
        "sound",
        guests::misbehaving(),
        &within(3_000, 500),
    )
    .await;
    // The guest is past its time at full speed, and needs some turns.
    let turns = turns_within(&sound, Duration::from_millis(40)).await;
    let mut loops = JoinSet::new();
    for _ in 0..90 {
        let looping = looping.clone();
        loops.spawn(async move { compute(&looping, u64::MAX - 1).await });
    }
    for _ in 0..10 {
        assert_eq!(compute(&sound, turns).await, Ok(()));
    }
    assert!(loops.try_join_next().is_none(), "they loop still");
}

/// A call may take three seconds, and waits longer for the turns of other components' guests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_other_components_guests_does_not_count() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let sandbox = sandbox(100);
    let sound = load(
        &sandbox,
        "sound",
        guests::misbehaving(),
        &within(3_000, 500),
    )
    .await;
    let turns = turns_within(&sound, Duration::from_millis(40)).await;
    // Compiled once.
    let folder = tempfile::tempdir().expect("a folder");
    let cache = CodeCache::new(folder.path().to_owned(), SecretKey::new([1; 32]));
    let long = within(600_000, 600_000);
    let mut loops = JoinSet::new();
    for number in 0..30 * cores {
        let (name, component) = (format!("looping-{number}"), guests::misbehaving());
        let looping = loading::load(&sandbox, Some(&cache), &long, &name, component).await;
        let looping = looping.unwrap_or_else(|error| panic!("{name}: {error}"));
        loops.spawn(async move { compute(&looping, u64::MAX - 1).await });
    }
    // Once the others have left full speed, a call exceeds its limit. On a busy machine, fewer turns fit into a time:
    // a call then computes more.
    patiently(async {
        let mut turns = turns;
        loop {
            let began = Instant::now();
            assert_eq!(compute(&sound, turns).await, Ok(()));
            if began.elapsed() > Duration::from_millis(3_500) {
                return;
            }
            turns += turns / 4;
        }
    })
    .await;
    assert!(loops.try_join_next().is_none(), "they loop still");
}
