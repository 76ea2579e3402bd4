//! R1: a failover of PostgreSQL to its synchronous standby, under load.
//!
//! The standby is synchronous while it follows, and the policy is not strict: a promoted server accepts commits without a standby
//! until the other one follows it. The standby is promoted, and the old primary fenced, as an operator's tool does it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use tests::stores::{Durability, Postgres, Redis};
use tests::switch::Switch;
use tests::{Client, Reply};
use tokio::sync::watch;

use crate::load;
use crate::money;
use crate::process::{Node, Providers, Stores, shown, wait_until};

/// Failovers of each kind, unless `WEIR_TORTURE_ROUNDS` names another number.
const EACH: u32 = 5;

/// Time under load before each failover.
const BETWEEN: Duration = Duration::from_millis(1_500);

/// Time limit from the moment at which the address leads to a server that accepts writes, to served requests and
/// operators' writes.
const LIMIT: Duration = Duration::from_secs(10);

/// Time in which all requests of an outage are recorded.
const CATCHING_UP: Duration = Duration::from_secs(15);

/// Time limit for a standby to follow.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(30);

const TOP_UP: &str = "100000000";

/// The way in which a primary is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    Killed,
    /// Its connections stay open and silent.
    Frozen,
    /// It runs on, and nobody reaches it.
    CutOff,
    /// The address leads to it, a standby now, for a moment, and connections to it stay open.
    Demoted,
}

const LOSSES: [Loss; 4] = [Loss::Killed, Loss::Frozen, Loss::CutOff, Loss::Demoted];

pub(crate) fn run() -> bool {
    let failovers = LOSSES.len() * crate::rounds(EACH) as usize;
    let runtime = crate::runtime(2);
    let redis = Redis::start();
    let mut primary = Postgres::start(Durability::Real);
    let (switch, url) = runtime.block_on(async {
        let url = primary.create_database().await;
        Switch::before(&url).await
    });
    let mut standby = runtime.block_on(follow(&primary));
    let providers = runtime.block_on(Providers::start(
        Reply::chat_with_usage("paid", money::TOKENS_INPUT, 100).after(Duration::from_millis(50)),
        Reply::chat_stream_with_usage(["a", "b", "c", "d"], money::TOKENS_INPUT, 200)
            .pausing(Duration::from_millis(50)),
    ));
    let stores = Stores {
        postgres: Some(url),
        redis: Some(redis.url()),
    };
    let mut node = Node::new(&stores, &providers.tables());
    let client = runtime.block_on(node.member_client(TOP_UP));
    node.start();

    let (stop, stopped) = watch::channel(false);
    let load = runtime.spawn(load::run(client.clone(), stopped));
    let mut slowest = Duration::ZERO;
    for loss in LOSSES.into_iter().cycle().take(failovers) {
        std::thread::sleep(BETWEEN);
        match loss {
            Loss::Killed | Loss::Demoted => primary.kill(),
            Loss::Frozen => primary.pause(),
            Loss::CutOff => {}
        }
        if loss != Loss::Frozen {
            switch.cut();
        }
        // Tokens of services live for minutes.
        let operator = node.operator();
        let served = runtime.block_on(async {
            standby.execute("SELECT pg_promote()").await;
            let next = standby.start_standby();
            if loss == Loss::Demoted {
                switch.lead_to(next.address());
                switch.has_connected(next.address(), 1).await;
            }
            switch.lead_to(standby.address());
            let since = Instant::now();
            let is_paid = async || load::ask(&client, false).await.paid.is_some();
            let paid = wait_until(2 * LIMIT, is_paid).await;
            let written = wait_until(2 * LIMIT, async || write(&operator).await).await;
            let served = paid.and(written).map_or(Duration::MAX, |_| since.elapsed());
            // The fenced server ends with its value.
            primary = std::mem::replace(&mut standby, next);
            be_synchronous(&primary).await;
            served
        });
        println!("R1: {loss:?}: serving again in {served:.1?}");
        slowest = slowest.max(served);
    }
    std::thread::sleep(BETWEEN);
    stop.send_replace(true);
    let heard = runtime.block_on(load).expect("no panic");
    let (closed, charges, totals) = runtime.block_on(async {
        let books = node.books().await;
        let closed = wait_until(CATCHING_UP, async || books.totals().await.open == 0).await;
        (closed, books.charges().await, books.totals().await)
    });
    let sound = node.is_sound();
    let acknowledged: Vec<_> = heard.iter().filter(|heard| heard.paid.is_some()).collect();
    let lost = acknowledged.iter().filter(|heard| heard.is_lost(&charges));
    let lost = lost.count();
    let refused = heard
        .iter()
        .filter(|heard| heard.status == Some(401))
        .count();
    let unpaid = providers.calls() as i64 - totals.charged;
    let panics = node.panics();
    println!(
        "R1: {} failovers of PostgreSQL: of {} requests {} acknowledged as paid, {lost} of these charges lost; {} upstream \
         calls, {unpaid} more than charges; {refused} × 401; requests and operators' writes served again in {slowest:.1?} \
         (limit {LIMIT:.0?}), last open hold gone after {}, ledger sound: {sound}, {panics} panics",
        failovers,
        heard.len(),
        acknowledged.len(),
        providers.calls(),
        shown(closed),
    );
    lost == 0
        && !acknowledged.is_empty()
        && unpaid == 0
        && refused == 0
        && totals.overrun == 0
        && slowest <= LIMIT
        && closed.is_some()
        && sound
        && panics == 0
}

/// Starts a synchronous standby.
async fn follow(primary: &Postgres) -> Postgres {
    let standby = primary.start_standby();
    be_synchronous(primary).await;
    standby
}

/// Lets commits wait for the standby, once it follows.
async fn be_synchronous(primary: &Postgres) {
    primary
        .execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        .await;
    primary.execute("SELECT pg_reload_conf()").await;
    let follows = wait_until(FOLLOWS_WITHIN, async || {
        let synchronous = "SELECT COUNT(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        primary.count(synchronous).await == 1
    });
    follows.await.expect("the standby follows");
}

/// An operator's write: the policy of a slot. Returns whether it is done.
async fn write(operator: &Client) -> bool {
    let policy = Bytes::from_static(br#"{ "on_quarantine": "refuse" }"#);
    let kind = Some("application/json");
    let path = "/admin/plugins/openai/policy";
    let answer = operator.try_send(Method::PUT, path, kind, policy).await;
    answer.is_some_and(|answer| answer.status == 200)
}
