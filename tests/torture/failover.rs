//! R1: failovers of PostgreSQL to its synchronous standby, and losses of Redis, under the load of three nodes.
//!
//! The URL of the database names both servers. The standby is synchronous while it follows, and the policy is not strict: a
//! promoted server accepts commits without a standby until the other one follows it. The standby is promoted, and the old primary
//! fenced, as an operator's tool does it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http::Method;
use tests::stores::{Durability, Postgres, Redis};
use tests::switch::{Switch, with_hosts};
use tests::{Client, Reply};
use tokio::sync::watch;
use weir_storage::secrets::SecretUrl;

use crate::load;
use crate::money;
use crate::process::{Node, Providers, Stores, shown, wait_until};

/// Losses of each kind, unless `WEIR_TORTURE_ROUNDS` names another number.
const EACH: u32 = 5;

const NODES: usize = 3;

/// Load of each node: all nodes, servers and providers share one machine.
const REQUESTS_PER_SECOND: u32 = 20;

/// Time under load before each loss.
const BETWEEN: Duration = Duration::from_millis(1_500);

/// Time limits from the moment at which a server that accepts writes can be reached, to served requests and operators' writes
/// on every node.
const LIMIT: Duration = Duration::from_secs(10);
const LIMIT_OF_REDIS: Duration = Duration::from_secs(3);

/// Duration of an outage of Redis.
const AWAY: Duration = Duration::from_secs(2);

/// Time in which all requests of an outage are recorded.
const CATCHING_UP: Duration = Duration::from_secs(15);

/// Time limit for a standby to follow.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(30);

const TOP_UP: &str = "100000000";

/// The way in which a server is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    Killed,
    /// Its connections stay open and silent.
    Frozen,
    /// It runs on, and nobody reaches it; connections stay open.
    CutOff,
    /// The address of PostgreSQL leads to a standby, and connections to it stay open.
    Demoted,
}

const LOSSES: [Loss; 4] = [Loss::Killed, Loss::Frozen, Loss::CutOff, Loss::Demoted];
const LOSSES_OF_REDIS: [Loss; 3] = [Loss::Killed, Loss::Frozen, Loss::CutOff];

/// A primary and its standby, each behind an address that stays.
struct Pair {
    primary: Postgres,
    standby: Postgres,
    address_of_primary: Switch,
    address_of_standby: Switch,
}

/// The nodes as their clients and operators see them.
struct Clients {
    clients: Vec<Client>,
    operators: Vec<Client>,
}

pub(crate) fn run() -> bool {
    let rounds = crate::rounds(EACH) as usize;
    let runtime = crate::runtime(2);
    let redis = Redis::start();
    let (mut pair, url) = runtime.block_on(Pair::start());
    let (address_of_redis, redis_url) = runtime.block_on(Switch::before(&redis.url()));
    let providers = runtime.block_on(Providers::start(
        Reply::chat_with_usage("paid", money::TOKENS_INPUT, 100).after(Duration::from_millis(50)),
        Reply::chat_stream_with_usage(["a", "b", "c", "d"], money::TOKENS_INPUT, 200)
            .pausing(Duration::from_millis(50)),
    ));
    let stores = Stores {
        postgres: Some(url),
        redis: Some(redis_url),
    };
    let mut first = Node::new(&stores, &providers.tables()).with_compiled_plugins();
    let client = runtime.block_on(first.member_client(TOP_UP));
    let mut others: Vec<_> = (1..NODES)
        .map(|_| first.twin().with_compiled_plugins())
        .collect();
    first.start();
    others.iter_mut().for_each(Node::start);
    let addresses: Vec<_> = std::iter::once(&first)
        .chain(&others)
        .map(Node::address)
        .collect();
    let clients: Vec<_> = addresses.iter().map(|node| client.at(*node)).collect();

    let (stop, stopped) = watch::channel(false);
    let load = clients.clone().into_iter().map(|client| {
        let stopped = stopped.clone();
        runtime.spawn(load::run_at(REQUESTS_PER_SECOND, client, stopped))
    });
    let load: Vec<_> = load.collect();
    let mut slowest = (Duration::ZERO, Duration::ZERO);
    // Tokens of services live for minutes.
    let seen = |node: &Node| Clients {
        clients: clients.clone(),
        operators: {
            let operator = node.operator();
            addresses.iter().map(|node| operator.at(*node)).collect()
        },
    };
    for (round, loss) in LOSSES
        .into_iter()
        .cycle()
        .take(LOSSES.len() * rounds)
        .enumerate()
    {
        std::thread::sleep(BETWEEN);
        let seen = seen(&first);
        let served = runtime.block_on(pair.fail_over(loss, &seen));
        println!(
            "R1: {}: PostgreSQL {loss:?}: all nodes serve again in {served:.1?}",
            round + 1
        );
        slowest.0 = slowest.0.max(served);
    }
    for (round, loss) in LOSSES_OF_REDIS
        .into_iter()
        .cycle()
        .take(LOSSES_OF_REDIS.len() * rounds)
        .enumerate()
    {
        std::thread::sleep(BETWEEN);
        let seen = seen(&first);
        let served = runtime.block_on(lose_redis(&redis, &address_of_redis, loss, &seen));
        println!(
            "R1: {}: Redis {loss:?}: all nodes serve again in {served:.1?}",
            round + 1
        );
        slowest.1 = slowest.1.max(served);
    }
    std::thread::sleep(BETWEEN);
    stop.send_replace(true);
    let heard = runtime.block_on(join_all(load));
    let heard: Vec<_> = heard
        .into_iter()
        .flat_map(|heard| heard.expect("no panic"))
        .collect();
    let (closed, charges, totals) = runtime.block_on(async {
        let books = first.books().await;
        let closed = wait_until(CATCHING_UP, async || books.totals().await.open == 0).await;
        (closed, books.charges().await, books.totals().await)
    });
    let sound = first.is_sound();
    let acknowledged: Vec<_> = heard.iter().filter(|heard| heard.paid.is_some()).collect();
    let lost = acknowledged.iter().filter(|heard| heard.is_lost(&charges));
    let lost = lost.count();
    let refused = heard
        .iter()
        .filter(|heard| heard.status == Some(401))
        .count();
    let unpaid = providers.calls() as i64 - totals.charged;
    let panics: usize = std::iter::once(&first)
        .chain(&others)
        .map(Node::panics)
        .sum();
    println!(
        "R1: {NODES} nodes, {} failovers of PostgreSQL and {} losses of Redis: of {} requests {} acknowledged as paid, {lost} of \
         these charges lost; {} upstream calls, {unpaid} more than charges; {refused} × 401; requests and operators' writes \
         served again in {:.1?} (limit {LIMIT:.0?}), after Redis in {:.1?} (limit {LIMIT_OF_REDIS:.0?}), last open hold gone \
         after {}, ledger sound: {sound}, {panics} panics",
        LOSSES.len() * rounds,
        LOSSES_OF_REDIS.len() * rounds,
        heard.len(),
        acknowledged.len(),
        providers.calls(),
        slowest.0,
        slowest.1,
        shown(closed),
    );
    lost == 0
        && !acknowledged.is_empty()
        && unpaid == 0
        && refused == 0
        && totals.overrun == 0
        && slowest.0 <= LIMIT
        && slowest.1 <= LIMIT_OF_REDIS
        && closed.is_some()
        && sound
        && panics == 0
}

impl Pair {
    /// Starts both servers, and returns the URL of a database on them.
    async fn start() -> (Self, SecretUrl) {
        let primary = Postgres::start(Durability::Real);
        let url = primary.create_database().await;
        let standby = primary.start_standby();
        be_synchronous(&primary).await;
        let pair = Self {
            address_of_primary: Switch::to(primary.address()).await,
            address_of_standby: Switch::to(standby.address()).await,
            primary,
            standby,
        };
        let hosts: [SocketAddr; 2] = [
            pair.address_of_primary.address(),
            pair.address_of_standby.address(),
        ];
        let url = with_hosts(&url, &hosts);
        let url = format!("{}?target_session_attrs=read-write", url.expose());
        (pair, SecretUrl::new(url))
    }

    /// Loses the primary, promotes the standby, and returns the time from then on until every node serves; later a new standby is
    /// behind the address of the former primary.
    async fn fail_over(&mut self, loss: Loss, nodes: &Clients) -> Duration {
        match loss {
            Loss::Killed | Loss::Demoted => self.primary.kill(),
            Loss::Frozen => self.primary.pause(),
            Loss::CutOff => self.address_of_primary.fall_silent(),
        }
        self.standby.execute("SELECT pg_promote()").await;
        let mut next = None;
        if loss == Loss::Demoted {
            let standby = next.insert(self.standby.start_standby());
            self.address_of_primary.lead_to(standby.address());
            self.address_of_primary.cut();
        }
        let served = nodes.serve_again(LIMIT).await;
        let next = next.unwrap_or_else(|| self.standby.start_standby());
        self.address_of_primary.lead_to(next.address());
        self.address_of_primary.cut();
        std::mem::swap(&mut self.address_of_primary, &mut self.address_of_standby);
        // The fenced server ends with its value.
        self.primary = std::mem::replace(&mut self.standby, next);
        be_synchronous(&self.primary).await;
        served
    }
}

/// Loses Redis for a while, and returns the time until every node serves after it is back.
async fn lose_redis(redis: &Redis, address: &Switch, loss: Loss, nodes: &Clients) -> Duration {
    let server = url::Url::parse(redis.url().expose()).expect("a URL").port();
    let server = SocketAddr::from(([127, 0, 0, 1], server.expect("it has a port")));
    match loss {
        Loss::Killed | Loss::Demoted => redis.kill(),
        Loss::Frozen => redis.pause(),
        Loss::CutOff => address.fall_silent(),
    }
    tokio::time::sleep(AWAY).await;
    match loss {
        Loss::Killed | Loss::Demoted => redis.restart(),
        Loss::Frozen => redis.resume(),
        Loss::CutOff => address.lead_to(server),
    }
    nodes.serve_again(LIMIT_OF_REDIS).await
}

impl Clients {
    /// Returns the time until each node has served a request and an operator's write.
    async fn serve_again(&self, limit: Duration) -> Duration {
        let since = Instant::now();
        let paid = join_all(self.clients.iter().map(|client| async move {
            let is_paid = async || load::ask(client, false).await.paid.is_some();
            wait_until(2 * limit, is_paid).await
        }));
        let written = join_all(self.operators.iter().map(|operator| async move {
            wait_until(2 * limit, async || write(operator).await).await
        }));
        let (paid, written) = tokio::join!(paid, written);
        let all = paid.into_iter().chain(written).collect::<Option<Vec<_>>>();
        all.map_or(Duration::MAX, |_| since.elapsed())
    }
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
