//! H6: the network between weir and its upstreams is slow, loses packets, cuts connections, and goes silent.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use tests::ledger::random::Random;
use tests::stores::{Durability, Postgres, Redis};
use tests::{Client, Reply};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use weir_storage::secrets::SecretUrl;

use crate::load::{self, Heard};
use crate::money::{self, Books};
use crate::process::{Node, Providers, Stores, shown, wait_until};

/// Failures of each link in each way, and their duration.
const ROUNDS: usize = if cfg!(debug_assertions) { 1 } else { 3 };
const LASTS: Duration = Duration::from_secs(5);

/// Time limit from a link's recovery to served requests, one after another.
const LIMIT: Duration = Duration::from_secs(5);
const IN_A_ROW: usize = 4;

/// Time in which all earlier requests are recorded.
const CATCHING_UP: Duration = Duration::from_secs(15);

const LATE_BY: Duration = Duration::from_millis(20);

/// Delay of lost data, which TCP sends again, and the ratio of lost pieces.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
const LOST: usize = 20;

/// Ratio of pieces that are their connection's last, half delivered.
const CUT: usize = 20;

const TOP_UP: &str = "100000000";

/// The state of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weather {
    Well,
    Late,
    Lossy,
    /// Connections are reset in the middle of a piece.
    Cut,
    /// Connections stay open and carry no data ever again, and so do new ones.
    HalfOpen,
}

/// A network between weir and an upstream.
struct Link {
    address: SocketAddr,
    weather: watch::Sender<Weather>,
}

impl Link {
    /// A healthy link to this address.
    async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (weather, seen) = watch::channel(Weather::Well);
        tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let seen = seen.clone();
                connections.spawn(async move {
                    if *seen.borrow() == Weather::HalfOpen {
                        return silence().await;
                    }
                    if let Ok(far) = TcpStream::connect(target).await {
                        carry(near, far, seen).await;
                    }
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Self { address, weather }
    }

    /// A healthy link to the server of a URL.
    async fn before(url: &SecretUrl) -> (Self, SecretUrl) {
        let mut parsed = url::Url::parse(url.expose()).expect("a URL");
        let port = parsed.port().expect("it has one");
        let link = Self::to(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await;
        let is_set = parsed.set_port(Some(link.address.port()));
        is_set.expect("it has a host");
        (link, SecretUrl::new(parsed.to_string()))
    }
}

/// Carries data both ways, until one side ends or the connection is cut.
async fn carry(near: TcpStream, far: TcpStream, seen: watch::Receiver<Weather>) {
    for side in [&near, &far] {
        side.set_nodelay(true).expect("it is open");
    }
    let (near_reads, near_writes) = near.into_split();
    let (far_reads, far_writes) = far.into_split();
    tokio::select! {
        () = one_way(near_reads, far_writes, seen.clone()) => {}
        () = one_way(far_reads, near_writes, seen) => {}
    }
}

/// Carries data one way, until its side ends or the connection is cut.
async fn one_way(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut seen: watch::Receiver<Weather>,
) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => Some(read),
            _ = seen.wait_for(|weather| *weather == Weather::HalfOpen) => None,
        };
        let bytes = match read {
            Some(Ok(bytes @ 1..)) => bytes,
            Some(_) => return,
            None => return silence().await,
        };
        let weather = *seen.borrow();
        match weather {
            Weather::Well => {}
            Weather::Late => tokio::time::sleep(LATE_BY).await,
            Weather::Lossy if is_one_in(LOST) => tokio::time::sleep(AGAIN_AFTER).await,
            Weather::Lossy => {}
            Weather::Cut if is_one_in(CUT) => {
                let _ = to.write_all(&buffer[..bytes / 2]).await;
                for side in [from.as_ref(), to.as_ref()] {
                    let _ = side.set_zero_linger();
                }
                return;
            }
            Weather::Cut => {}
            Weather::HalfOpen => return silence().await,
        }
        if to.write_all(&buffer[..bytes]).await.is_err() {
            return;
        }
    }
}

async fn silence() {
    std::future::pending().await
}

/// Returns true once in this many calls, in a pseudo-random but fixed order.
fn is_one_in(many: usize) -> bool {
    static RANDOM: LazyLock<Mutex<Random>> = LazyLock::new(|| Mutex::new(Random::new(1)));
    RANDOM.lock().expect("nobody has panicked").below(many) == 0
}

pub(crate) fn run() -> bool {
    let runtime = crate::runtime(2);
    let postgres = Postgres::start(Durability::Real);
    let redis = Redis::start();
    runtime.block_on(async {
        let providers = Providers::start(
            Reply::chat_with_usage("paid", money::TOKENS_INPUT, 100),
            Reply::chat_stream_with_usage(["a", "b", "c", "d"], money::TOKENS_INPUT, 200)
                .pausing(Duration::from_millis(20)),
        )
        .await;
        let direct = postgres.create_database().await;
        let (database, database_url) = Link::before(&direct).await;
        let (cache, cache_url) = Link::before(&redis.url()).await;
        let (plain, stream) = tokio::join!(
            Link::to(providers.plain.address()),
            Link::to(providers.stream.address())
        );
        let tables = providers
            .tables()
            .replace(&providers.plain.address().to_string(), &plain.address.to_string())
            .replace(&providers.stream.address().to_string(), &stream.address.to_string());
        let tables = format!(
            "[timeouts]\nconnect_ms = 1000\nfirst_byte_ms = 2000\nidle_ms = 2000\ntotal_ms = 4000\n{tables}"
        );
        let stores = Stores {
            postgres: Some(database_url),
            redis: Some(cache_url),
        };
        let mut node = Node::new(&stores, &tables);
        let client = node.client(TOP_UP);
        node.start();

        let links = [
            ("providers", vec![&plain.weather, &stream.weather]),
            ("PostgreSQL", vec![&database.weather]),
            ("Redis", vec![&cache.weather]),
        ];
        let mut heard = Vec::new();
        let mut passed = true;
        for (name, links) in &links {
            for weather in [Weather::Late, Weather::Lossy, Weather::Cut, Weather::HalfOpen] {
                let mut slowest = Some(Duration::ZERO);
                let before = heard.len();
                for _ in 0..ROUNDS {
                    let set = |weather| {
                        for link in links {
                            link.send_replace(weather);
                        }
                    };
                    set(weather);
                    heard.extend(load_for(LASTS, &client).await);
                    set(Weather::Well);
                    let back = wait_until(2 * LIMIT, async || is_served(&client).await).await;
                    slowest = slowest.zip(back).map(|(slowest, back)| slowest.max(back));
                }
                println!(
                    "H6: {name}, {weather:?}: {}; serving again in {} (limit {LIMIT:.0?})",
                    outcomes(&heard[before..]),
                    shown(slowest),
                );
                passed &= slowest.is_some_and(|slowest| slowest <= LIMIT);
            }
        }
        let books = Books::open(&direct).await;
        let closed = wait_until(CATCHING_UP, async || books.totals().await.open == 0).await;
        let (charges, totals) = (books.charges().await, books.totals().await);
        let charge = |heard: &Heard| charges.get(heard.request_id.as_ref()?);
        let lost = heard.iter().filter(|heard| heard.is_lost(&charges));
        let lost = lost.count();
        // A stream is charged for its delivered part; a missing response is not charged.
        let for_nothing = heard.iter().filter(|heard| {
            heard.status != Some(200) && charge(heard).is_some_and(|it| it.credits.micro() > 0)
        });
        let for_nothing = for_nothing.count();
        let unanswered = heard.iter().filter(|heard| heard.status.is_none()).count();
        let internal = heard.iter().filter(|heard| heard.code.as_deref() == Some("INTERNAL"));
        let internal = internal.count();
        let acknowledged = heard.iter().filter(|heard| heard.paid.is_some()).count();
        let (sound, panics) = (node.is_sound(), node.panics());
        println!(
            "H6: {} requests, {acknowledged} acknowledged as paid: {lost} of these charges lost; {for_nothing} charged for no \
             answer; {unanswered} without an answer, {internal} INTERNAL; {} upstream calls, {} charges, {} overrun; last open \
             hold gone after {}, ledger sound: {sound}, {panics} panics",
            heard.len(),
            providers.calls(),
            totals.charged,
            totals.overrun,
            shown(closed),
        );
        passed
            && lost == 0
            && acknowledged > 0
            && for_nothing == 0
            && unanswered == 0
            && internal == 0
            && totals.charged <= providers.calls() as i64
            && totals.overrun == 0
            && closed.is_some()
            && sound
            && panics == 0
    })
}

/// Sends requests for this long, and waits for their responses.
async fn load_for(lasts: Duration, client: &Client) -> Vec<Heard> {
    let (stop, stopped) = watch::channel(false);
    let load = tokio::spawn(load::run(client.clone(), stopped));
    tokio::time::sleep(lasts).await;
    stop.send_replace(true);
    load.await.expect("no panic")
}

async fn is_served(client: &Client) -> bool {
    for number in 0..IN_A_ROW {
        if load::ask(client, number % 2 == 1).await.paid.is_none() {
            return false;
        }
    }
    true
}

/// Counts the outcomes by kind.
fn outcomes(heard: &[Heard]) -> String {
    let mut counts = BTreeMap::<String, usize>::new();
    for heard in heard {
        let outcome = match (&heard.paid, &heard.code, heard.status) {
            (Some(_), ..) => "served".to_owned(),
            (None, Some(code), Some(200)) => format!("{code} in a stream"),
            (None, Some(code), _) => code.clone(),
            (None, None, status) => format!("{status:?}"),
        };
        *counts.entry(outcome).or_default() += 1;
    }
    let counts = counts
        .iter()
        .map(|(outcome, count)| format!("{count} {outcome}"));
    counts.collect::<Vec<_>>().join(", ")
}
