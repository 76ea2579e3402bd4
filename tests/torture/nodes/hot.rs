//! R4: one account whose requests come to three nodes at once, until its credits end.
//!
//! The account has the credits of exactly so many requests, and each request costs its complete hold. A node that waits for
//! another one serves nothing meanwhile, which shows as a gap between its responses. `WEIR_TORTURE_ROUNDS` sets the number
//! of requests.

use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use tests::stores::{Durability, Postgres};
use tests::{Reply, Upstream};
use weir_ledger::Credits;

use super::load::{Load, Pace, Served};
use super::{Cluster, FREE, shown, top_up};
use crate::money::{self, Books};
use crate::process::{binaries, provider};

const NODES: usize = 3;
const CONNECTIONS: usize = 200;
const REQUESTS: u32 = 6_000;
const ROUND_TRIP: Duration = Duration::from_millis(2);

/// Share of the requests before the end of the credits, at which nodes return their blocks to each other.
const BEFORE_THE_END: f64 = 0.8;

/// Maximum time in which a node serves nothing.
const LIMIT: Duration = Duration::from_millis(500);

/// Minimum rate of the slowest node, as a share of the fastest one's.
const EVEN: f64 = 0.5;

/// Time limit for all requests.
const PATIENCE: Duration = Duration::from_secs(300);

const USER: &str = "usr_hot";

pub(crate) fn run() -> bool {
    let requests = crate::rounds(REQUESTS);
    let postgres = Postgres::start(Durability::Real);
    let mut passed = true;
    for program in binaries() {
        passed &= crate::runtime(1).block_on(spend_all(&program, &postgres, requests));
    }
    passed
}

async fn spend_all(program: &Path, postgres: &Postgres, requests: u32) -> bool {
    let upstream = Upstream::start().await;
    // The responses use their complete holds.
    let (input, output) = (money::TOKENS_INPUT, money::TOKENS_OUTPUT);
    upstream.always(Reply::chat_with_usage("paid", input, output));
    let tables = provider("plain", &upstream);
    let cluster = Cluster::start(program, NODES, postgres, Some(ROUND_TRIP), &tables).await;
    let operator = cluster.operator(0);
    let keys = [operator.create_key(USER).await];
    let all = Credits::from_micro(money::HOLD.micro() * i64::from(requests));
    top_up(
        &operator,
        USER,
        Credits::from_micro(all.micro() - FREE.micro()),
    )
    .await;

    let load = Load::new(cluster.addresses(), &keys, "plain", money::TEXT);
    let began = Instant::now();
    let goes_on = |last| last != Some(429) && began.elapsed() < PATIENCE;
    let answers = load
        .send(CONNECTIONS, &Pace::Closed, &Cell::new(true), goes_on)
        .await;
    let at_once = answers.served.len();
    // Other nodes' last credits can be spent on each node.
    let mut served = at_once;
    for node in cluster.addresses() {
        let load = Load::new(vec![node], &keys, "plain", money::TEXT);
        let rest = load.send(1, &Pace::Closed, &Cell::new(true), goes_on).await;
        served += rest.served.len();
    }
    let mut by_time = answers.served;
    by_time.sort_by_key(|served| served.at);
    let before_the_end = &by_time[..(by_time.len() as f64 * BEFORE_THE_END) as usize];
    let longest = before_the_end.iter().map(|served| served.took).max();
    let nodes: Vec<_> = (0..NODES)
        .map(|node| OfNode::of(before_the_end, node))
        .collect();
    let gap = nodes.iter().map(|node| node.gap).max().expect("nodes");
    let rates = || nodes.iter().map(|node| node.rate);
    let evenness = rates().fold(f64::MAX, f64::min) / rates().fold(0.0, f64::max);
    let books = Books::open(&cluster.direct).await;
    let (totals, balance) = (books.totals().await, books.balance(USER).await);
    let sound = cluster.nodes[0].is_sound();
    println!(
        "R4 {}: one account on {NODES} nodes, {CONNECTIONS} connections, credits for {requests} requests: {served} served, \
         {at_once} of them before the first refusals, {} upstream calls, other responses {:?}; {} charged, {balance} left, {} \
         overrun, {} open holds, ledger sound: {sound}; before the last fifth: the longest wait of a request {:.0?}, the longest \
         time without a response of a node {gap:.0?} (limit {LIMIT:.0?}), requests/s of each node {:.0?} (the slowest at least {EVEN} \
         of the fastest)",
        shown(program),
        upstream.count(),
        answers.failed,
        Credits::from_micro(totals.credits),
        totals.overrun,
        totals.open,
        longest.unwrap_or_default(),
        rates().collect::<Vec<_>>(),
    );
    let is_exact = served == requests as usize
        && upstream.count() == served
        && totals.credits == all.micro()
        && balance == Credits::ZERO
        && (totals.overrun, totals.open) == (0, 0);
    is_exact && sound && gap <= LIMIT && evenness >= EVEN
}

/// A node's responses, in order.
struct OfNode {
    /// The longest time between two.
    gap: Duration,
    rate: f64,
}

impl OfNode {
    fn of(by_time: &[Served], node: usize) -> Self {
        let of_node = by_time.iter().filter(|served| served.node == node);
        let times: Vec<_> = of_node.map(|served| served.at).collect();
        let (Some(first), Some(last), Some(end)) = (times.first(), times.last(), by_time.last())
        else {
            return Self {
                gap: Duration::MAX,
                rate: 0.0,
            };
        };
        let gaps = times.windows(2).map(|two| two[1] - two[0]);
        Self {
            gap: gaps.chain([end.at - *last]).max().unwrap_or_default(),
            rate: times.len() as f64 / (*last - *first).as_secs_f64(),
        }
    }
}
