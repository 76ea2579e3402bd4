//! R2: three nodes of an earlier release are replaced by new ones under load, and those by others.
//!
//! `WEIR_TORTURE_BINARIES` names the earlier binary and the new one, separated by a colon. One earlier node stays for the first half
//! of the replacements. No earlier node starts once a new one has changed the database. A balancer sends requests to the nodes that
//! were ready at its last look, as one does that polls `/health/ready`; a new node starts before the old one stops.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use tests::stores::{Durability, Postgres, Redis};
use tests::{Client, Reply};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::load::{self, Heard};
use crate::money;
use crate::process::{Node, Providers, Stores, binaries, shown, wait_until};

/// Replacements, unless `WEIR_TORTURE_ROUNDS` names another number.
const REPLACEMENTS: u32 = 20;

const NODES: usize = 3;

const REQUESTS_PER_SECOND: u32 = 40;

/// Time between two looks of the balancer at a node.
const LOOKS_EVERY: Duration = Duration::from_millis(100);

/// Time under load between two replacements. A node learns of the others when it renews its lease.
const BETWEEN: Duration = Duration::from_secs(2);
const RENEWED_WITHIN: Duration = Duration::from_secs(6);

/// Time limits of a node's start and end, and of the last holds.
const STARTS_WITHIN: Duration = Duration::from_secs(30);
const ENDS_WITHIN: Duration = Duration::from_secs(30);
const CATCHING_UP: Duration = Duration::from_secs(15);

const TOP_UP: &str = "100000000";

/// A node behind the balancer.
struct Member {
    node: Node,
    is_new: bool,
    is_ready: Arc<AtomicBool>,
    looks: JoinHandle<()>,
}

/// The clients of the nodes, each with the balancer's last look.
type Balancer = Arc<Mutex<Vec<(Client, Arc<AtomicBool>)>>>;

pub(crate) fn run() -> bool {
    let programs = binaries();
    let [old, new] = &programs[..] else {
        println!("R2: WEIR_TORTURE_BINARIES names no two binaries");
        return false;
    };
    let replacements = crate::rounds(REPLACEMENTS) as usize;
    let runtime = crate::runtime(2);
    let (postgres, redis) = (Postgres::start(Durability::Real), Redis::start());
    let providers = runtime.block_on(Providers::start(
        Reply::chat_with_usage("paid", money::TOKENS_INPUT, 100).after(Duration::from_millis(50)),
        Reply::chat_stream_with_usage(["a", "b", "c", "d"], money::TOKENS_INPUT, 200)
            .pausing(Duration::from_millis(300)),
    ));
    let stores = Stores {
        postgres: Some(runtime.block_on(postgres.create_database())),
        redis: Some(redis.url()),
    };
    let tables = providers.tables();
    let tables = tables.replacen("[limits]\n", "[limits]\ndrain_delay_ms = 1000\n", 1);
    let mut first = Node::new(&stores, &tables)
        .with_compiled_plugins()
        .with_program(old);
    let mut rest: Vec<_> = (1..NODES)
        .map(|_| first.twin().with_compiled_plugins())
        .collect();
    first.start();
    rest.iter_mut().for_each(Node::start);
    // It changes the database as a new node does.
    let client = runtime.block_on(first.member_client(TOP_UP));
    let balancer = Balancer::default();
    let nodes = std::iter::once(first).chain(rest);
    let mut members: Vec<_> = nodes
        .map(|node| runtime.block_on(join(node, false, &client, &balancer)))
        .collect();

    let (stop, stopped) = watch::channel(false);
    let load = runtime.spawn(send(balancer.clone(), stopped));
    let (mut unwanted, mut appended, mut panics, mut ends) = (0.0, 0.0, 0, true);
    for number in 0..replacements {
        std::thread::sleep(BETWEEN);
        let place = match 2 * number < replacements {
            true => number % (NODES - 1),
            false => NODES - 1 - number % NODES,
        };
        let node = members[place].node.twin().with_compiled_plugins();
        let mut node = node.with_program(new);
        node.start();
        let next = runtime.block_on(join(node, true, &client, &balancer));
        let before = std::mem::replace(&mut members[place], next);
        let (ended, panicked) = runtime.block_on(leave(before, &balancer));
        ends &= ended;
        panics += panicked;
        // With an earlier node among them, nobody appends once all have renewed their leases.
        let is_mixed = members.iter().any(|member| !member.is_new);
        std::thread::sleep(RENEWED_WITHIN);
        let earlier = runtime.block_on(appended_by(&members));
        std::thread::sleep(BETWEEN);
        let more = runtime.block_on(appended_by(&members)) - earlier;
        match is_mixed {
            true => unwanted += more,
            false => appended += more,
        }
        println!(
            "R2: {}: {} of {NODES} nodes are new, {more} records appended",
            number + 1,
            members.iter().filter(|member| member.is_new).count(),
        );
    }
    stop.send_replace(true);
    let heard = runtime.block_on(load).expect("no panic");
    let (closed, charges, totals) = runtime.block_on(async {
        let books = members[0].node.books().await;
        let closed = wait_until(CATCHING_UP, async || books.totals().await.open == 0).await;
        // The last records are folded.
        for member in members.drain(..) {
            let (ended, panicked) = leave(member, &balancer).await;
            ends &= ended;
            panics += panicked;
        }
        (closed, books.charges().await, books.totals().await)
    });
    let verifier = Node::new(&stores, &tables).with_program(new);
    let sound = verifier.is_sound();
    let failed = heard.iter().filter(|heard| !heard.is_served()).count();
    let typed = heard.iter().filter(|heard| heard.paid.is_none()).count() - failed;
    let lost = heard.iter().filter(|heard| heard.is_lost(&charges)).count();
    let unpaid = providers.calls() as i64 - totals.charged;
    println!(
        "R2: {replacements} replacements of {NODES} nodes: of {} requests {failed} failed, and {typed} streams ended by an error; \
         {lost} charges lost, {unpaid} upstream calls more than charges; {appended} records appended by new nodes alone and \
         {unwanted} beside old ones; all nodes ended by themselves: {ends}; last open hold gone after {}; ledger sound: {sound}; \
         {panics} panics",
        heard.len(),
        shown(closed),
    );
    for heard in heard.iter().filter(|heard| !heard.is_served()).take(5) {
        println!("R2: failed: {heard:?}");
    }
    failed == 0
        && lost == 0
        && unpaid == 0
        && totals.overrun == 0
        && unwanted == 0.0
        && appended > 0.0
        && ends
        && closed.is_some()
        && sound
        && panics == 0
}

/// Adds a node to the balancer when it is ready.
async fn join(node: Node, is_new: bool, client: &Client, balancer: &Balancer) -> Member {
    let client = client.at(node.address());
    let is_ready = Arc::new(AtomicBool::new(false));
    let look = Client::new(node.address());
    let seen = is_ready.clone();
    let looks = tokio::spawn(async move {
        loop {
            let status = look.try_get("/health/ready").await;
            seen.store(status == Some(StatusCode::OK), Ordering::Relaxed);
            tokio::time::sleep(LOOKS_EVERY).await;
        }
    });
    let ready = wait_until(STARTS_WITHIN, async || is_ready.load(Ordering::Relaxed)).await;
    ready.expect("the node is ready");
    all(balancer).push((client, is_ready.clone()));
    Member {
        node,
        is_new,
        is_ready,
        looks,
    }
}

/// Stops a node as an orchestrator does. Returns whether it ended by itself, without an error, and the number of its panics.
async fn leave(mut member: Member, balancer: &Balancer) -> (bool, usize) {
    member.node.signal("TERM");
    let ended = member.node.ended_within(ENDS_WITHIN).await == Some(true);
    member.looks.abort();
    all(balancer).retain(|(_, is_ready)| !Arc::ptr_eq(is_ready, &member.is_ready));
    (ended, member.node.panics())
}

/// Sends requests in turn to the nodes that were ready at the last look, until a stop. Half of them are streamed.
async fn send(balancer: Balancer, mut stop: watch::Receiver<bool>) -> Vec<Heard> {
    let mut requests = JoinSet::new();
    let mut clock = tokio::time::interval(Duration::from_secs(1) / REQUESTS_PER_SECOND);
    for number in 0_usize.. {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            _ = clock.tick() => {}
        }
        let client = {
            let all = all(&balancer);
            let ready: Vec<_> = all
                .iter()
                .filter(|(_, is_ready)| is_ready.load(Ordering::Relaxed))
                .collect();
            ready[number % ready.len()].0.clone()
        };
        requests.spawn(async move { load::ask(&client, number % 2 == 1).await });
    }
    requests.join_all().await
}

/// Returns the number of records that new nodes have appended to their logs.
async fn appended_by(members: &[Member]) -> f64 {
    let mut sum = 0.0;
    for member in members.iter().filter(|member| member.is_new) {
        let text = Client::new(member.node.address())
            .get("/metrics")
            .await
            .text();
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix("weir_ledger_appended_records_total "));
        sum += value.map_or(0.0, |value| value.parse().expect("a number"));
    }
    sum
}

fn all(balancer: &Balancer) -> std::sync::MutexGuard<'_, Vec<(Client, Arc<AtomicBool>)>> {
    balancer.lock().unwrap_or_else(PoisonError::into_inner)
}
