//! N4 and N6: the effect of strangers, and of users beyond their rate, on others, on a gateway at default limits. A
//! neighbour behind the same address, and another one elsewhere, must be served within two seconds throughout.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use serde_json::json;
use tests::issuer::key_set;
use tests::{Client, Reply, SigningKey, Upstream, chat};
use tokio::sync::watch;
use tokio::task::JoinSet;
use weir_storage::Database;
use weir_storage::clock::Millis;

use crate::lockout::address;
use crate::process::{Node, provider};
use crate::runtime;

const MODEL: &str = "plain";

/// Addresses that fail once each: more than the capacity of an in-process cache.
const ADDRESSES: usize = if cfg!(debug_assertions) {
    10_000
} else {
    250_000
};

/// Duration of each attack without an end of its own.
const ATTACK: Duration = Duration::from_secs(if cfg!(debug_assertions) { 5 } else { 20 });

/// Concurrent attackers.
const LANES: usize = 16;

const NEIGHBOUR_EVERY: Duration = Duration::from_millis(200);
const SERVED_WITHIN: Duration = Duration::from_secs(2);

/// Memory of the entries that so many addresses can fill.
const MEMORY_LIMIT_MIB: usize = 96;

/// Log bytes per second: some lines, regardless of the number of refused requests.
const LOG_LIMIT_BYTES: u64 = 16 << 10;

/// Audit events that a complete attack may leave: a few of each kind.
const AUDIT_LIMIT: i64 = 300;

/// Maximum growth of the data folder in MiB, including the neighbours' own records and the database's log.
const DATA_LIMIT_MIB: u64 = 32;

/// The address that an attacker shares with a neighbour.
const OFFICE: &str = "198.51.100.7";
const ELSEWHERE: &str = "203.0.113.9";

/// N4: attacks that shut others out.
pub(crate) fn shut_out() -> bool {
    runtime(2).block_on(async {
        let scene = Scene::start("N4").await;
        let bad = scene.stranger(OFFICE).with_key("inf_wrong");
        let mut sound = scene
            .beside("ten bad keys and on, from their address", async |stop| {
                hammer(&[bad], "/models", stop).await
            })
            .await;
        let expired = scene.web("mallory", -600, OFFICE);
        let alice = scene.web("alice", 600, "192.0.2.44");
        let old_at_alice = scene.web("mallory", -600, "192.0.2.44");
        sound &= scene
            .beside("an expired token 100 times, from their address and a web user's", async |_| {
                let mut served = 0;
                for _ in 0..100 {
                    for old in [&expired, &old_at_alice] {
                        old.get("/models").await;
                    }
                    served += usize::from(alice.get("/models").await.status == 200);
                    // The plan's rate is not under test here.
                    tokio::time::sleep(Duration::from_millis(1_050)).await;
                }
                (200, served == 100)
            })
            .await;
        let before = scene.node.resident_kib() >> 10;
        sound &= scene
            .beside(&format!("{ADDRESSES} addresses that fail once each"), async |_| {
                let lanes = (0..LANES).map(|lane| {
                    let client = scene.stranger(ELSEWHERE).with_key("inf_wrong");
                    async move {
                        for n in (lane..ADDRESSES).step_by(LANES) {
                            let client = client.clone().with_header("x-forwarded-for", &address(n));
                            client.get("/models").await;
                        }
                    }
                });
                futures_util::future::join_all(lanes).await;
                (ADDRESSES, true)
            })
            .await;
        let grown = (scene.node.resident_kib() >> 10).saturating_sub(before);
        let new = scene.key("newcomer").with_header("x-forwarded-for", "192.0.2.99");
        let new = new.get("/models").await.status;
        println!(
            "N4: {grown} MiB more resident (limit {MEMORY_LIMIT_MIB}); a new key from a new address then gets {new}"
        );
        sound & (grown <= MEMORY_LIMIT_MIB) & (new == 200)
    })
}

/// N6: attacks that fill the log, the audit events and the disk.
pub(crate) fn fill() -> bool {
    runtime(2).block_on(async {
        let scene = Scene::start("N6").await;
        let many = |client: Client| vec![client; LANES];
        let strangers: Vec<_> = (0..LANES)
            .map(|n| scene.stranger(&address(n)).with_key("inf_wrong"))
            .collect();
        let lost = scene.stranger(OFFICE);
        let limited = scene
            .key("mallory")
            .with_header("x-forwarded-for", ELSEWHERE);
        let collector = scene.web("mallory", 3_000, ELSEWHERE);
        let mut sound = true;
        for (what, clients, path) in [
            ("bad keys from many addresses", strangers, "/models"),
            ("paths that there are not", many(lost), "/nothing"),
            ("a user beyond their rate", many(limited), "/models"),
        ] {
            sound &= scene
                .bounded(what, async |stop| hammer(&clients, path, stop).await)
                .await;
        }
        sound &= scene
            .bounded("a web user who makes keys and revokes them", async |stop| {
                collect_keys(&collector, stop).await
            })
            .await;
        sound
    })
}

/// A gateway, its upstream, and its clients.
struct Scene {
    row: &'static str,
    node: Node,
    issuer: SigningKey,
    neighbours: [Client; 2],
    _upstream: Upstream,
    _keys: Upstream,
}

impl Scene {
    async fn start(row: &'static str) -> Self {
        let (upstream, keys) = (Upstream::start().await, Upstream::start().await);
        upstream.always(Reply::chat("served"));
        let issuer = SigningKey::generate("a", "EdDSA");
        keys.always(Reply::json(200, &key_set([&issuer])));
        let mut tables = provider(MODEL, &upstream);
        for (name, audience) in [("web", "app"), ("attestation", "check")] {
            tables.push_str(&format!(
                "[identity.{name}]\nissuer = \"https://id.example\"\naudience = {audience:?}\n\
                 jwks_url = {:?}\nalgorithms = [\"EdDSA\"]\n",
                keys.base_url()
            ));
        }
        let mut node = Node::in_production(&tables);
        node.start();
        let mut scene = Self {
            row,
            issuer,
            neighbours: [Client::new(node.address()), Client::new(node.address())],
            node,
            _upstream: upstream,
            _keys: keys,
        };
        for (index, (user, from)) in [("office", OFFICE), ("elsewhere", "192.0.2.1")]
            .iter()
            .enumerate()
        {
            let neighbour = scene.key(user).with_header("x-forwarded-for", from);
            for change in [
                ["set-plan", "--plan", "pro"],
                ["top-up", "--credits", "1000000"],
            ] {
                let [command, option, value] = change;
                let (_, changed) = scene
                    .node
                    .run(&["user", command, "--user", user, option, value]);
                assert!(changed, "the neighbours pay");
            }
            scene.neighbours[index] = neighbour;
        }
        scene
    }

    fn stranger(&self, from: &str) -> Client {
        Client::new(self.node.address()).with_header("x-forwarded-for", from)
    }

    fn key(&self, user: &str) -> Client {
        let (key, made) = self.node.run(&["key", "create", "--user", user]);
        assert!(made, "a key is made");
        Client::new(self.node.address()).with_key(&key)
    }

    /// A web user whose identity token expires in this many seconds.
    fn web(&self, user: &str, expires: i64, from: &str) -> Client {
        let now = Millis::now().seconds();
        let token = |audience: &str, expires: i64| {
            self.issuer.token(&json!({
                "iss": "https://id.example", "aud": audience, "sub": user, "exp": now + expires,
            }))
        };
        self.stranger(from)
            .with_key(&token("app", expires))
            .with_header("x-identity-appcheck", &token("check", 3_000))
    }

    /// Runs an attack, which returns its number of requests, and whether all results were as required; prints the
    /// neighbours' results beside it.
    async fn beside(
        &self,
        what: &str,
        attack: impl AsyncFnOnce(watch::Receiver<bool>) -> (usize, bool),
    ) -> bool {
        let (stop, stopped) = watch::channel(false);
        let asking = self
            .neighbours
            .clone()
            .map(|client| tokio::spawn(ask(client, stopped.clone())));
        // Each neighbour is known by then.
        tokio::time::sleep(2 * NEIGHBOUR_EVERY).await;
        let (attack_stop, attack_stopped) = watch::channel(false);
        let timer = tokio::spawn(async move {
            tokio::time::sleep(ATTACK).await;
            attack_stop.send_replace(true);
            // Closed only when all receivers are gone.
            attack_stop.closed().await;
        });
        let (requests, as_it_should) = attack(attack_stopped).await;
        timer.abort();
        stop.send_replace(true);
        let mut fared = Fared::default();
        for neighbour in asking {
            fared.add(neighbour.await.expect("no panic"));
        }
        println!(
            "{}: {what}, {requests} requests: neighbours: {} of {} served, the slowest in {:.0?} (limit \
             {SERVED_WITHIN:.0?})",
            self.row, fared.served, fared.asked, fared.slowest
        );
        as_it_should && fared.served == fared.asked && fared.slowest <= SERVED_WITHIN
    }

    /// Runs an attack as [`Self::beside`] does, and prints its leftovers.
    async fn bounded(
        &self,
        what: &str,
        attack: impl AsyncFnOnce(watch::Receiver<bool>) -> (usize, bool),
    ) -> bool {
        let (log, data, events) = (
            self.node.log_bytes(),
            self.node.data_bytes(),
            self.events().await,
        );
        let began = Instant::now();
        let sound = self.beside(what, attack).await;
        // Buffered lines are written within a second.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let per_second = (self.node.log_bytes() - log) / began.elapsed().as_secs().max(1);
        let events = self.events().await - events;
        let data = self.node.data_bytes().saturating_sub(data) >> 20;
        println!(
            "{}: {what}: {per_second} bytes of log a second (limit {LOG_LIMIT_BYTES}), {events} audit events (limit \
             {AUDIT_LIMIT}), {data} MiB more data (limit {DATA_LIMIT_MIB})",
            self.row
        );
        sound && per_second <= LOG_LIMIT_BYTES && events <= AUDIT_LIMIT && data <= DATA_LIMIT_MIB
    }

    /// Counts the audit events.
    async fn events(&self) -> i64 {
        let database = Database::open(self.node.database_url())
            .await
            .expect("a database");
        let count = sqlx::query_scalar("SELECT CAST(COUNT(*) AS BIGINT) FROM audit_events")
            .fetch_one(database.reader())
            .await
            .expect("it can be read");
        database.close().await;
        count
    }
}

/// The neighbours' results.
#[derive(Default)]
struct Fared {
    asked: usize,
    served: usize,
    slowest: Duration,
}

impl Fared {
    fn add(&mut self, other: Self) {
        self.asked += other.asked;
        self.served += other.served;
        self.slowest = self.slowest.max(other.slowest);
    }
}

/// Sends requests at a fixed rate until a stop, regardless of outstanding responses.
async fn ask(client: Client, stopped: watch::Receiver<bool>) -> Fared {
    let mut requests = JoinSet::new();
    let mut clock = tokio::time::interval(NEIGHBOUR_EVERY);
    while !*stopped.borrow() {
        clock.tick().await;
        let client = client.clone();
        requests.spawn(async move {
            let asked = Instant::now();
            let answer = client.try_post("/chat", &chat(MODEL, "hello")).await;
            let is_served = answer.is_some_and(|answer| answer.status == 200);
            (is_served, asked.elapsed())
        });
    }
    let mut fared = Fared::default();
    for (is_served, took) in requests.join_all().await {
        fared.asked += 1;
        fared.served += usize::from(is_served);
        fared.slowest = fared.slowest.max(took);
    }
    fared
}

/// Sends requests at full speed until a stop. The result is as required if no client is served more than a rate
/// permits.
async fn hammer(clients: &[Client], path: &str, stop: watch::Receiver<bool>) -> (usize, bool) {
    let lanes = clients.iter().map(async |client| {
        let mut requests = 0;
        while !*stop.borrow() {
            client.get(path).await;
            requests += 1;
        }
        requests
    });
    let requests = futures_util::future::join_all(lanes).await;
    (requests.into_iter().sum(), true)
}

/// Creates and revokes keys as fast as the user's rate permits.
async fn collect_keys(client: &Client, stop: watch::Receiver<bool>) -> (usize, bool) {
    let mut requests = 0;
    while !*stop.borrow() {
        let json = Some("application/json");
        let made = client
            .send(Method::POST, "/api-keys", json, Bytes::from_static(b"{}"))
            .await;
        requests += 1;
        if made.status == 201 {
            let id = made.json()["key_id"].as_str().expect("an id").to_owned();
            client.delete(&format!("/api-keys/{id}")).await;
            requests += 1;
        }
    }
    (requests, true)
}
