//! N2 and N3: one stranger takes the maximum of resources, beside another user whose requests must continue.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::{Answer, Client, Reply, Upstream, chat};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use crate::process::{Node, Stores, provider};

/// Concurrent requests.
const REQUESTS: usize = 1_100;

/// Users, or members of one organisation, who send them together.
const CROWD: usize = 40;

/// Credits of an organisation.
const CREDITS: &str = "100000";

const DRIPPING_BODIES: usize = 80;
const SILENT_CONNECTIONS: usize = 4_000;
const DRIPPING_HEADS: usize = 200;

/// Duration of each attack.
const WINDOW: Duration = Duration::from_secs(12);

/// Period of the neighbour's requests, and the maximum duration of each.
const PERIOD: Duration = Duration::from_millis(50);
const LIMIT: Duration = Duration::from_secs(2);

const STRANGER: [u8; 4] = [127, 0, 0, 1];
const NEIGHBOUR: [u8; 4] = [127, 0, 0, 2];

pub(crate) fn turns() -> bool {
    crate::runtime(2).block_on(async {
        let stalled = Upstream::start().await;
        stalled.always(Reply::never());
        let mut node = Node::new(&Stores::default(), &provider("stalled", &stalled));
        let member = node
            .member_client(CREDITS)
            .await
            .from_address(NEIGHBOUR.into());
        let neighbour = new_user(&node, "neighbour").from_address(NEIGHBOUR.into());
        let stranger = new_user(&node, "stranger");
        let crowd: Vec<_> = (0..CROWD)
            .map(|n| new_user(&node, &format!("stranger-{n}")))
            .collect();
        let mut team = Vec::new();
        for n in 0..CROWD {
            team.push(node.member(&format!("member-{n}")).await);
        }
        node.start();
        let mut sound = true;
        for (what, neighbour, strangers, request) in [
            (
                "a model that answers slowly",
                &neighbour,
                &[stranger.clone()][..],
                chat("demo", "/slow 28 1000"),
            ),
            (
                "a stalled upstream",
                &member,
                &[stranger][..],
                chat("stalled", "x"),
            ),
            (
                "a stalled upstream, of 40 keys",
                &member,
                &crowd[..],
                chat("stalled", "x"),
            ),
            (
                "a stalled upstream, of 40 members of an organisation",
                &neighbour,
                &team[..],
                chat("stalled", "x"),
            ),
        ] {
            let beside = Beside::start(neighbour, node.address());
            let (refused, under_way) = besiege(strangers, &request).await;
            sound &= beside
                .was_served(
                    "N2",
                    &format!(
                        "{REQUESTS} requests at once to {what}: {under_way} under way, {refused:?}"
                    ),
                )
                .await;
            sound &= under_way + refused.values().sum::<usize>() == REQUESTS;
        }
        sound
    })
}

pub(crate) fn bodies_and_connections() -> bool {
    weir::server::descriptors::raise(2 * SILENT_CONNECTIONS as u64);
    crate::runtime(2).block_on(async {
        let mut node = Node::new(&Stores::default(), "");
        let neighbour = node.member_client(CREDITS).await.from_address(NEIGHBOUR.into());
        node.start();
        let (key, made) = node.run(&["key", "create", "--user", "stranger"]);
        assert!(made, "a key is made");
        let (address, mut sound) = (node.address(), true);
        let body = format!(
            "POST /chat HTTP/1.1\r\nHost: {address}\r\nX-Api-Key: {key}\r\nContent-Type: application/json\r\n\
             Transfer-Encoding: chunked\r\n\r\n"
        );
        let drop_of_body = "1\r\n \r\n";
        for (what, connections, begin, drop) in [
            ("bodies that drip", DRIPPING_BODIES, &*body, drop_of_body),
            ("connections that say nothing", SILENT_CONNECTIONS, "", ""),
            ("heads that drip", DRIPPING_HEADS, "GET /health HTTP/1.1\r\n", "x"),
        ] {
            let beside = Beside::start(&neighbour, address);
            let mut open = JoinSet::new();
            for _ in 0..connections {
                open.spawn(drip(address, begin.to_owned(), drop));
            }
            tokio::time::sleep(WINDOW).await;
            let mut ended = BTreeMap::new();
            while let Some(Ok(how)) = open.try_join_next() {
                *ended.entry(how).or_insert(0) += 1;
            }
            let left = open.len();
            sound &= beside.was_served("N3", &format!("{connections} {what}: {left} open after {WINDOW:?}, {ended:?}")).await;
        }
        sound
    })
}

/// Creates a user with the credits of the plan `free` and a key.
fn new_user(node: &Node, name: &str) -> Client {
    let (key, made) = node.run(&["key", "create", "--user", name]);
    assert!(made, "a key is made");
    Client::new(node.address()).with_key(&key)
}

/// Sends all requests at once, and disconnects after a while. Returns the refusals by code, and the number without a
/// response by then.
async fn besiege(strangers: &[Client], request: &Value) -> (BTreeMap<String, usize>, usize) {
    let mut requests = JoinSet::new();
    for n in 0..REQUESTS {
        // From several addresses: the share of connections is tested elsewhere.
        let from = IpAddr::from(Ipv4Addr::new(127, 0, 1, n as u8 % 8));
        let client = strangers[n % strangers.len()].clone().from_address(from);
        let request = request.clone();
        requests.spawn(async move { client.try_post("/chat", &request).await });
    }
    tokio::time::sleep(WINDOW).await;
    let mut refused = BTreeMap::new();
    while let Some(answer) = requests.try_join_next() {
        let code = code(answer.ok().flatten());
        *refused.entry(code).or_insert(0) += 1;
    }
    (refused, requests.len())
}

fn code(answer: Option<Answer>) -> String {
    let Some(answer) = answer else {
        return "no answer".to_owned();
    };
    match answer.json()["error"]["code"].as_str() {
        Some(code) => format!("{} {code}", answer.status.as_u16()),
        None => answer.status.as_u16().to_string(),
    }
}

/// Sends a beginning, and then the same text each second, if any. Returns how the other side ends it.
async fn drip(address: SocketAddr, begin: String, drop: &'static str) -> String {
    let connected = async {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((STRANGER, 0)))?;
        let mut socket = socket.connect(address).await?;
        socket.write_all(begin.as_bytes()).await?;
        Ok::<_, std::io::Error>(socket)
    };
    match connected.await {
        Ok(socket) => listen(socket, drop).await,
        Err(error) => error.kind().to_string(),
    }
}

async fn listen(mut socket: TcpStream, drop: &'static str) -> String {
    let mut clock = tokio::time::interval(Duration::from_secs(1));
    let mut heard = [0; 12];
    loop {
        tokio::select! {
            read = socket.read(&mut heard) => return match read {
                Ok(0) => "closed".to_owned(),
                Ok(_) => String::from_utf8_lossy(&heard[9..]).into_owned(),
                Err(error) => error.kind().to_string(),
            },
            _ = clock.tick() => if socket.write_all(drop.as_bytes()).await.is_err() {
                return "closed".to_owned();
            }
        }
    }
}

/// A user whose requests continue, each over a connection of its own.
struct Beside {
    stop: oneshot::Sender<()>,
    served: JoinHandle<Vec<(Duration, String)>>,
}

impl Beside {
    fn start(client: &Client, address: SocketAddr) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let client = client.clone();
        let served = tokio::spawn(async move {
            let mut requests = JoinSet::new();
            let mut clock = tokio::time::interval(PERIOD);
            loop {
                tokio::select! {
                    biased;
                    _ = &mut stopped => return requests.join_all().await,
                    _ = clock.tick() => {}
                }
                let client = client.at(address);
                requests.spawn(async move {
                    let started = Instant::now();
                    let answer = client.try_post("/chat", &chat("demo", "hello")).await;
                    (started.elapsed(), code(answer))
                });
            }
        });
        Self { stop, served }
    }

    /// Returns whether all were served in time; prints its subject, and the figures.
    async fn was_served(self, row: &str, what: &str) -> bool {
        let _ = self.stop.send(());
        let answers = self.served.await.expect("the neighbour does not panic");
        let slowest = answers.iter().map(|(took, _)| *took).max();
        let slowest = slowest.expect("the neighbour has asked");
        let mut failed = BTreeMap::new();
        for (_, code) in answers.iter().filter(|(_, code)| code != "200") {
            *failed.entry(code).or_insert(0) += 1;
        }
        println!(
            "{row}: {what}; beside it {} requests of another user: the slowest {slowest:.0?} (limit {LIMIT:?}), \
             not served: {failed:?}",
            answers.len()
        );
        failed.is_empty() && slowest <= LIMIT
    }
}
