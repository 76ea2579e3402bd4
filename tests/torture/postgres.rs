//! L6: PostgreSQL crashes and restarts under load, many times.

use std::time::{Duration, Instant};

use tests::Reply;
use tests::stores::{Durability, Postgres};
use tokio::sync::watch;

use crate::load;
use crate::money;
use crate::process::{Node, Providers, Stores, shown, wait_until};

const RESTARTS: u32 = 20;

/// Time under load before each crash.
const BETWEEN: Duration = Duration::from_millis(1_500);

/// Time limit from PostgreSQL's recovery to weir's first response.
const LIMIT: Duration = Duration::from_secs(5);

/// Time in which all requests of the outage are recorded.
const CATCHING_UP: Duration = Duration::from_secs(10);

const TOP_UP: &str = "10000000";

pub(crate) fn run() -> bool {
    let runtime = crate::runtime(2);
    let postgres = Postgres::start(Durability::Real);
    let providers = runtime.block_on(Providers::start(
        Reply::chat_with_usage("paid", money::TOKENS_INPUT, 100).after(Duration::from_millis(50)),
        Reply::chat_stream_with_usage(["a", "b", "c", "d"], money::TOKENS_INPUT, 200)
            .pausing(Duration::from_millis(50)),
    ));
    let stores = Stores {
        postgres: Some(runtime.block_on(postgres.create_database())),
        redis: None,
    };
    let mut node = Node::new(&stores, &providers.tables());
    let client = runtime.block_on(node.member_client(TOP_UP));
    node.start();

    let (stop, stopped) = watch::channel(false);
    let load = runtime.spawn(load::run(client.clone(), stopped));
    let (mut away, mut serving) = (Vec::new(), Vec::new());
    for _ in 0..RESTARTS {
        std::thread::sleep(BETWEEN);
        let killed = Instant::now();
        postgres.kill();
        postgres.restart();
        away.push(killed.elapsed());
        let back = runtime.block_on(wait_until(2 * LIMIT, async || {
            load::ask(&client, false).await.paid.is_some()
        }));
        serving.push(back.unwrap_or(Duration::MAX));
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
    let unpaid = providers.calls() as i64 - totals.charged;
    let slowest = serving.into_iter().max().expect("some");
    let panics = node.panics();
    println!(
        "L6: {RESTARTS} crashes of PostgreSQL, each {:.1?} away at most: of {} requests {} acknowledged as paid, {lost} \
         of these charges lost; {} upstream calls, {unpaid} more than charges; serving again in {slowest:.1?} (limit \
         {LIMIT:.0?}), last open hold gone after {}, ledger sound: {sound}, {panics} panics",
        away.into_iter().max().expect("some"),
        heard.len(),
        acknowledged.len(),
        providers.calls(),
        shown(closed),
    );
    lost == 0
        && !acknowledged.is_empty()
        // weir ran all the time: it has charged every upstream request.
        && unpaid == 0
        && totals.overrun == 0
        && slowest <= LIMIT
        && closed.is_some()
        && sound
        && panics == 0
}
