//! W-D: calls that are dropped at random points, in the sandbox itself and by clients that disconnect.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tests::ledger::random::Random;
use tests::sandbox::{load, sandbox};
use tests::{Gateway, Reply, Upstream, chat, guests};
use tokio::task::JoinSet;
use weir_sandbox::GuestError;
use weir_sandbox::adapter::bindings::adapter::{HttpResponseHead, Step};
use weir_sandbox::adapter::{AdapterCallError, GuestExchange, LoadedAdapter};

use crate::cut::asking;
use crate::process::wait_until;

/// Calls dropped in each way.
const DROPS: usize = 1_000;

/// Concurrent calls.
const TOGETHER: usize = 8;

/// Range of the random points, longer than most calls.
const WITHIN_MICROSECONDS: usize = 60_000;

const SEED: u64 = 1;

/// Time in which a gateway finishes after disconnects.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn run() -> bool {
    let panics = Arc::new(AtomicUsize::new(0));
    let counter = panics.clone();
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        counter.fetch_add(1, Ordering::Relaxed);
        print(panic);
    }));
    let runtime = crate::runtime(2);
    let calls = runtime.block_on(calls());
    let clients = runtime.block_on(clients());
    let panics = panics.load(Ordering::Relaxed);
    println!("W-D: {panics} panics");
    calls & clients && panics == 0
}

/// Drops the futures of exchanges.
async fn calls() -> bool {
    let adapter = load(&sandbox(TOGETHER as u32), "hostile", guests::misbehaving())
        .await
        .map(Arc::new)
        .unwrap_or_else(|error| panic!("{error}"));
    let slots = free_slots(&adapter).await;
    let mut random = Random::new(SEED);
    let (mut dropped, mut ended) = (0, 0);
    let mut running = JoinSet::new();
    while dropped < DROPS {
        while running.len() < TOGETHER {
            let (adapter, command) = (adapter.clone(), behaviour(&mut random).to_string());
            let after = point(&mut random);
            running.spawn(async move {
                let exchange = exchange(&adapter, &command);
                tokio::time::timeout(after, exchange).await.is_err()
            });
        }
        match running.join_next().await {
            Some(Ok(true)) => dropped += 1,
            _ => ended += 1,
        }
    }
    running.shutdown().await;
    let left = free_slots(&adapter).await;
    println!(
        "W-D: {dropped} calls dropped within {} ms, {ended} had ended before: {left} of {slots} slots are free",
        WITHIN_MICROSECONDS / 1_000,
    );
    left == slots
}

/// Disconnects clients from a gateway.
async fn clients() -> bool {
    let upstream = Upstream::start().await;
    upstream
        .always(Reply::chat_stream(["one ", "two ", "three "]).pausing(Duration::from_millis(5)));
    let gateway = Gateway::builder()
        .guest("hostile", guests::misbehaving(), Some(&upstream))
        .tables(&format!(
            "[limits]\nconcurrent_requests = {}\nhang_up_drain_ms = 50\n[plugins.limits]\ncall_timeout_ms = 200\n",
            4 * TOGETHER
        ))
        .start()
        .await;
    let adapter = gateway.app().plugins.adapter("hostile");
    let adapter = adapter.expect("it was loaded").clone();
    let slots = free_slots(&adapter).await;
    let mut random = Random::new(SEED + 1);
    let (mut hung_up, mut answered) = (0, 0);
    let mut running = JoinSet::new();
    while hung_up < DROPS {
        while running.len() < TOGETHER {
            let (client, after) = (gateway.client(), point(&mut random));
            let mut request = chat("hostile", &behaviour(&mut random).to_string());
            request["stream"] = random.percent(50).into();
            running.spawn(async move {
                let asking = client.try_post("/chat", &request);
                tokio::time::timeout(after, asking).await.is_err()
            });
        }
        match running.join_next().await {
            Some(Ok(true)) => hung_up += 1,
            _ => answered += 1,
        }
    }
    running.shutdown().await;
    let tasks = &gateway.app().tasks;
    let over = wait_until(PATIENCE, async || tasks.is_empty()).await;
    let serves = gateway.chat("demo", "hello").await.status == 200;
    let left = free_slots(&adapter).await;
    println!(
        "W-D: {hung_up} clients hung up within {} ms, {answered} were answered before: {left} of {slots} slots are \
         free, requests over after {}",
        WITHIN_MICROSECONDS / 1_000,
        crate::process::shown(over),
    );
    left == slots && over.is_some() && serves
}

/// Returns a slow behaviour, or a normal one.
fn behaviour(random: &mut Random) -> Value {
    let places = ["begin", "next", "head", "body", "end"];
    let place = random.choose(&places).copied().unwrap_or("next");
    let mut command = match random.below(10) {
        0 => json!({ "behave": "copy" }),
        1 => json!({ "behave": "grow" }),
        2 => json!({ "behave": "flood-log", "lines": 200_000 }),
        3 => json!({ "behave": "sleep" }),
        4 => json!({ "behave": "recurse" }),
        5 => json!({ "behave": "script", "steps": [{ "Wait": 30 }], "forever": true }),
        6 => return json!({ "behave": "send" }),
        7 => return json!({ "behave": "text", "bytes": 1_000_000 }),
        _ => json!({ "behave": "spin" }),
    };
    command["in"] = place.into();
    command
}

fn point(random: &mut Random) -> Duration {
    Duration::from_micros(random.below(WITHIN_MICROSECONDS) as u64)
}

/// An exchange whose upstream responds at once.
async fn exchange(adapter: &LoadedAdapter, command: &str) -> Result<(), AdapterCallError> {
    let begun = GuestExchange::begin(adapter, &asking(command), 0, &[]).await?;
    let (mut guest, mut step) = (begun.exchange, begun.step);
    loop {
        match step {
            Step::Send(_) => {
                let head = HttpResponseHead {
                    status: 200,
                    headers: Vec::new(),
                };
                guest.head(&head).await?;
                guest.body(b"{}").await?;
                guest.end().await?;
            }
            Step::Wait(milliseconds) => {
                tokio::time::sleep(Duration::from_millis(milliseconds.into())).await;
            }
            Step::Emit(_) => {}
            Step::Done => return Ok(()),
        }
        step = guest.next().await?;
    }
}

/// Returns the number of free slots of the pool.
async fn free_slots(adapter: &LoadedAdapter) -> usize {
    let mut guests = Vec::new();
    loop {
        match GuestExchange::begin(adapter, &asking("hello"), 0, &[]).await {
            Ok(begun) => guests.push(begun.exchange),
            Err(AdapterCallError::Guest(GuestError::NoRoom)) => return guests.len(),
            Err(error) => panic!("{error}"),
        }
        assert!(guests.len() < 1_000, "guests are pooled on this machine");
    }
}
