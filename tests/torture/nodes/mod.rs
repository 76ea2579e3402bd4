//! Many nodes on one PostgreSQL and one Redis: rows R3 to R6.
//!
//! A row starts [`Cluster`]s, puts a load on them ([`load`]), and reads the counters of the servers and of the kernel
//! ([`counters`]). It knows nothing of weir's tables, so that it compares any two binaries.

mod counters;
pub(crate) mod hot;
mod load;
pub(crate) mod scale;
pub(crate) mod silent;
pub(crate) mod size;

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use serde_json::json;
use tests::delayed_link::DelayedLink;
use tests::raw::AdminSocket;
use tests::stores::{Postgres, Redis};
use weir_ledger::Credits;
use weir_storage::secrets::SecretUrl;

use crate::process::{Node, Stores};

/// Concurrent requests that create users.
const CREATING: usize = 16;

/// Limits that no load reaches, and timeouts that a busy machine keeps.
const NO_LIMITS: &str = "[stores]\nacquire_ms = 10000\nstatement_ms = 10000\ncache_ms = 10000\n[rate_limits]\nfree = 1000000000\nguru = 1000000000\naddress = 1000000000\n\
     [limits]\nrequests_per_account = { free = 1000000, guru = 1000000 }\nrequests_per_upstream = 1000000\nrequests_per_slot = 1000000\n";

/// Credits of the plan `free`, which a new user has.
const FREE: Credits = Credits::whole(500);

/// weir rests if it uses less than this share of a core for this long.
const RESTING: f64 = 0.1;
const RESTING_FOR: Duration = Duration::from_secs(1);
const REST_WITHIN: Duration = Duration::from_secs(1_800);

/// Nodes that run one binary, and their stores. A new one has an empty database and an empty Redis.
pub(super) struct Cluster {
    nodes: Vec<Node>,
    redis: Redis,
    /// The URL of its database without the link, and the database's name.
    direct: SecretUrl,
    database: String,
    /// The network between its nodes and PostgreSQL.
    link: Option<DelayedLink>,
}

impl Cluster {
    /// Starts nodes on a new database, behind a link with this round trip, if any.
    pub(super) async fn start(
        program: &Path,
        count: usize,
        postgres: &Postgres,
        round_trip: Option<Duration>,
        tables: &str,
    ) -> Self {
        let direct = postgres.create_database().await;
        let database = name_of(&direct);
        let (link, url) = match round_trip {
            Some(round_trip) => {
                let (link, url) = DelayedLink::before(&direct, round_trip / 2);
                (Some(link), url)
            }
            None => (None, direct.clone()),
        };
        let redis = Redis::start();
        let stores = Stores {
            postgres: Some(url),
            redis: Some(redis.url()),
        };
        let first = Node::new(&stores, &format!("{NO_LIMITS}{tables}"));
        let mut nodes = vec![first.with_program(program).with_compiled_plugins()];
        while nodes.len() < count {
            let twin = nodes[0].twin().with_compiled_plugins();
            nodes.push(twin);
        }
        nodes.iter_mut().for_each(Node::start);
        Self {
            nodes,
            redis,
            direct,
            database,
            link,
        }
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(Node::address).collect()
    }

    /// Returns the measured delay between its nodes and PostgreSQL, both ways together.
    fn mean_round_trip(&self) -> Duration {
        let link = self.link.as_ref();
        link.map_or(Duration::ZERO, DelayedLink::mean_round_trip)
    }

    /// Returns the admin socket of a node.
    fn operator(&self, node: usize) -> AdminSocket {
        AdminSocket::of(&self.nodes[node].data_dir())
    }
}

/// Creates users with these credits each, and returns their keys.
async fn create_users(node: &Node, count: usize, credits: Credits) -> Vec<String> {
    let operator = AdminSocket::of(&node.data_dir());
    let users = (0..count).map(|number| format!("usr_{number}"));
    let creating = futures_util::stream::iter(users).map(async |user| {
        let key = operator.create_key(&user).await;
        top_up(&operator, &user, credits).await;
        key
    });
    creating.buffered(CREATING).collect().await
}

/// Waits until a node has done what a start brings about: the compilation of plugins, and the folding of new entries.
async fn rest(node: &Node) {
    let began = Instant::now();
    loop {
        let before = counters::processor_time(node.process_id());
        tokio::time::sleep(RESTING_FOR).await;
        let used = counters::processor_time(node.process_id()) - before;
        if used < RESTING_FOR.mul_f64(RESTING) {
            return;
        }
        assert!(began.elapsed() < REST_WITHIN, "weir rests");
    }
}

async fn top_up(socket: &AdminSocket, user: &str, credits: Credits) {
    let path = format!("/admin/users/{user}/top-up");
    let topped_up = socket.post(&path, &json!({ "credits": credits })).await;
    assert_eq!(topped_up.status, 200, "{}", topped_up.json);
}

fn name_of(database: &SecretUrl) -> String {
    let url = url::Url::parse(database.expose()).expect("a URL");
    url.path().trim_start_matches('/').to_owned()
}

/// The number of an environment variable, or a default.
fn setting(name: &str, by_default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(by_default, |value| value.parse().expect("a number"))
}

/// A binary's name in figures: the end of its path.
fn shown(program: &Path) -> String {
    let name = program.file_name().unwrap_or(program.as_os_str());
    name.to_string_lossy().into_owned()
}
