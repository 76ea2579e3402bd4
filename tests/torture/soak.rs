//! SOAK: half an hour of all kinds of work together, at a sustainable load: requests and streams, clients that
//! disconnect, an adapter that is replaced, keys that are created and revoked, swarms, payments. No request fails,
//! and no resource leaks.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tests::{Client, Reply, guests};
use tokio::task::JoinSet;

use crate::load::ask;
use crate::money::USER;
use crate::process::{Node, Providers, Stores, request, wait_until};

const LASTS: Duration = Duration::from_secs(if cfg!(debug_assertions) { 60 } else { 1_800 });

/// Duration of the search for the peak, its connections, and the share of the peak that is then applied.
const PEAK_TIME: Duration = Duration::from_secs(if cfg!(debug_assertions) { 5 } else { 15 });
const CONNECTIONS: usize = 32;
const SHARE_OF_PEAK: f64 = 0.7;

/// Concurrent requests beyond which the gateway does not keep up.
const MOST_AT_ONCE: usize = 1_024;

/// Period of each of the other activities.
const HANG_UP_EVERY: Duration = Duration::from_millis(200);
const SWAP_EVERY: Duration = Duration::from_secs(2);
const KEY_EVERY: Duration = Duration::from_secs(2);
const SWARM_EVERY: Duration = Duration::from_secs(3);
const PAYMENT_EVERY: Duration = Duration::from_secs(5);

/// Period of memory samples, their beginning once pools and caches are full, and the allowed growth at the end.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const WARM_UP: f64 = 1.0 / 3.0;
const MAY_GROW_KIB: usize = 16 << 10;

/// Idle time after which connections are closed, with some margin.
const IDLE_FOR: Duration = Duration::from_secs(120);

/// Descriptors that may be open beyond those of the start: the stores' own.
const MAY_STAY_OPEN: usize = 20;

const CREDITS: &str = "100000000";

pub(crate) fn run() -> bool {
    crate::runtime(2).block_on(async {
        let words = ["one ", "two ", "three ", "four ", "five ", "six ", "seven ", "eight "];
        let stream = Reply::chat_stream(words).pausing(Duration::from_millis(4));
        let providers = Providers::start(Reply::chat("one two three"), stream).await;
        // The user's plan has swarms.
        let tables = providers
            .tables()
            .replace("free = 1000000", "free = 1000000\npro = 1000000")
            .replace("{ free = 1000000\npro = 1000000 }", "{ pro = 1000000 }")
            .replace("[models.plain]", "[models.plain]\nsupports_tools = true");
        let mut node = Node::new(&Stores::default(), &tables);
        let client = node.client(CREDITS);
        let (_, is_pro) = node.run(&["user", "set-plan", "--user", USER, "--plan", "pro"]);
        assert!(is_pro, "the plan is set");
        node.start();
        let descriptors = node.descriptors();
        let peak = peak(&client).await;
        let rate = SHARE_OF_PEAK * peak;
        println!("SOAK: {peak:.0} requests a second at most; {LASTS:.0?} at {rate:.0} a second");

        let soak = Arc::new(Soak {
            node,
            client,
            counts: Mutex::default(),
            faults: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        });
        let load = tokio::spawn(soak.clone().requests(rate));
        let (memory, (), (), (), (), ()) = tokio::join!(
            soak.watch(),
            soak.hang_ups(),
            soak.swaps(),
            soak.keys(),
            soak.swarms(),
            soak.payments(),
        );
        load.await.expect("no panic");

        let closed = wait_until(Duration::from_secs(30), async || {
            soak.node.books().await.totals().await.open == 0
        });
        let closed = closed.await;
        let left = wait_until(IDLE_FOR, async || {
            soak.node.descriptors() <= descriptors + MAY_STAY_OPEN
        });
        let left = left.await;
        let open = soak.node.descriptors();
        let settled = &memory[(memory.len() as f64 * WARM_UP) as usize..];
        let third = settled.len() / 3;
        let [first, last] = [&settled[..third], &settled[settled.len() - third..]]
            .map(|part| part.iter().sum::<usize>() / part.len().max(1));
        let faults = soak.faults.load(Ordering::Relaxed);
        let panics = soak.node.panics();
        let sound = soak.node.is_sound();
        println!(
            "SOAK: {LASTS:.0?} at {rate:.0} requests a second, {:.0} % of the most: {}; {faults} faults, {panics} panics; the last \
             hold is gone: {}; memory {first} KiB in the first third once warm, {last} in the last (may grow by {MAY_GROW_KIB}); \
             descriptors {descriptors} before, {} after; the ledger is sound: {sound}",
            100.0 * SHARE_OF_PEAK,
            soak.shown(),
            closed.is_some(),
            open,
        );
        faults == 0
            && panics == 0
            && closed.is_some()
            && left.is_some()
            && last <= first + MAY_GROW_KIB
            && sound
    })
}

/// Returns the requests per second with one request always under way on each connection.
async fn peak(client: &Client) -> f64 {
    let began = Instant::now();
    let mut connections = JoinSet::new();
    for number in 0..CONNECTIONS {
        let client = client.clone();
        connections.spawn(async move {
            let mut served = 0;
            while began.elapsed() < PEAK_TIME {
                let heard = ask(&client, (number + served) % 2 == 1).await;
                assert!(heard.paid.is_some(), "it is served: {heard:?}");
                served += 1;
            }
            served
        });
    }
    let served: usize = connections.join_all().await.iter().sum();
    served as f64 / began.elapsed().as_secs_f64()
}

/// The concurrent activities and their results.
struct Soak {
    node: Node,
    client: Client,
    counts: Mutex<BTreeMap<&'static str, usize>>,
    faults: AtomicUsize,
    is_over: AtomicBool,
}

impl Soak {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Counts successes, and prints failures.
    fn note(&self, what: &'static str, is_good: bool, answer: impl Display) {
        if is_good {
            let mut counts = self.counts.lock().expect("nobody panics with it");
            *counts.entry(what).or_default() += 1;
        } else if self.faults.fetch_add(1, Ordering::Relaxed) < 100 {
            println!("SOAK: {what}: {answer}");
        }
    }

    fn shown(&self) -> String {
        let counts = self.counts.lock().expect("nobody panics with it");
        let shown: Vec<_> = counts
            .iter()
            .map(|(what, count)| format!("{count} {what}"))
            .collect();
        shown.join(", ")
    }

    /// Samples the node's memory until the end.
    async fn watch(&self) -> Vec<usize> {
        let began = Instant::now();
        let mut told = began;
        let mut memory = Vec::new();
        while began.elapsed() < LASTS {
            tokio::time::sleep(LOOK_EVERY).await;
            let kib = self.node.own_kib();
            memory.push(kib);
            if told.elapsed() > Duration::from_secs(60) {
                told = Instant::now();
                println!("SOAK: {:.0?}, {kib} KiB: {}", began.elapsed(), self.shown());
            }
        }
        self.is_over.store(true, Ordering::Relaxed);
        memory
    }

    /// Sends requests in an open loop, half of them streamed.
    async fn requests(self: Arc<Self>, rate: f64) {
        let mut under_way = JoinSet::new();
        let mut clock = tokio::time::interval(Duration::from_secs_f64(1.0 / rate));
        for number in 0_u64.. {
            if self.is_over() {
                break;
            }
            clock.tick().await;
            while under_way.try_join_next().is_some() {}
            if under_way.len() >= MOST_AT_ONCE {
                self.note("requests", false, "it does not keep up");
                continue;
            }
            let soak = self.clone();
            under_way.spawn(async move {
                let heard = ask(&soak.client, number % 2 == 1).await;
                let is_good =
                    heard.status == Some(200) && heard.code.is_none() && heard.paid.is_some();
                soak.note("requests", is_good, format!("{heard:?}"));
            });
        }
        under_way.join_all().await;
    }

    async fn hang_ups(&self) {
        while !self.is_over() {
            tokio::time::sleep(HANG_UP_EVERY).await;
            let mut stream = self.client.stream("/chat", &request(true)).await;
            stream.next().await;
            drop(stream);
            self.note("hang-ups", true, "");
        }
    }

    /// Alternates between two components, each a canary before it serves all.
    async fn swaps(&self) {
        let components =
            [0, 1].map(|number| guests::with_custom_section(&guests::bundled("openai"), number));
        let mut digests = Vec::new();
        for component in &components {
            let answer = self
                .node
                .operator()
                .put_component("/admin/plugins/openai", component)
                .await;
            assert_eq!(answer.status, 201, "{}", answer.text());
            digests.push(answer.json()["digest"].clone());
        }
        for number in 0.. {
            if self.is_over() {
                return;
            }
            tokio::time::sleep(SWAP_EVERY).await;
            // Tokens of services live for minutes.
            let operator = self.node.operator();
            let digest = &digests[number % 2];
            for body in [
                json!({ "digest": digest, "share": 0.5 }),
                json!({ "digest": digest }),
            ] {
                let answer = operator.post("/admin/plugins/openai/activate", &body).await;
                self.note("swaps", answer.status == 200, answer.text());
            }
        }
    }

    /// Creates, uses and revokes keys, and checks their refusal.
    async fn keys(&self) {
        for number in 0.. {
            if self.is_over() {
                return;
            }
            tokio::time::sleep(KEY_EVERY).await;
            // A user may create at most a hundred a day.
            let web = self.web(&format!("user-{}", number / 50));
            let made = web
                .post("/api-keys", &json!({ "name": "soak" }))
                .await
                .json();
            let (Some(key), Some(id)) = (made["api_key"].as_str(), made["key_id"].as_str()) else {
                self.note("keys", false, made);
                continue;
            };
            let client = Client::new(self.node.address()).with_key(key);
            let before = client.get("/usage/me").await.status;
            let revoked = web.delete(&format!("/api-keys/{id}")).await.status;
            let after = client.get("/usage/me").await.status;
            let went = [before, revoked, after].map(|status| status.as_u16());
            let is_good = went == [200, 204, 401];
            self.note("keys", is_good, format!("{went:?}"));
        }
    }

    async fn swarms(&self) {
        while !self.is_over() {
            tokio::time::sleep(SWARM_EVERY).await;
            let swarm = json!({
                "swarm_id": "soak",
                "agents": [
                    { "name": "a", "system_prompt": "", "task_prompt": "one", "model": "plain", "max_tokens": 300, "tools": [] },
                    { "name": "b", "system_prompt": "", "task_prompt": "two", "model": "plain", "max_tokens": 300, "tools": [], "depends_on": "a" },
                ],
            });
            let asked = self.client.post("/swarms", &swarm).await;
            let id = asked.json()["execution_id"].as_str().map(str::to_owned);
            let Some(id) = id else {
                self.note("swarms", false, asked.text());
                continue;
            };
            let path = format!("/swarms/{id}");
            let mut status = Value::Null;
            let over = wait_until(Duration::from_secs(30), async || {
                tokio::time::sleep(Duration::from_millis(100)).await;
                status = self.client.get(&path).await.json()["status"].clone();
                status != "queued" && status != "running"
            });
            let is_good = over.await.is_some() && status == "completed";
            self.note("swarms", is_good, status);
        }
    }

    /// Buys credits for a user, with the processor's event.
    async fn payments(&self) {
        while !self.is_over() {
            tokio::time::sleep(PAYMENT_EVERY).await;
            let payer = self.web("payer");
            let before = self.last_of_payer(&payer).await;
            let asked = payer
                .post("/billing/topup", &json!({ "tier": "small" }))
                .await
                .json();
            let Some(url) = asked["checkout_url"].as_str() else {
                self.note("payments", false, asked);
                continue;
            };
            let page = url
                .find("/dev/")
                .map(|start| &url[start..])
                .unwrap_or_default();
            let form = Some("application/x-www-form-urlencoded");
            let pay = format!("{page}/pay");
            let browser = Client::new(self.node.address());
            let paid = browser.send(Method::POST, &pay, form, Bytes::new()).await;
            let status = paid.status;
            let credited = wait_until(Duration::from_secs(10), async || {
                self.last_of_payer(&payer).await != before
            });
            let is_good = status == 303 && credited.await.is_some();
            self.note("payments", is_good, status);
        }
    }

    /// The payer sends no requests: the account has no other entries.
    async fn last_of_payer(&self, payer: &Client) -> Value {
        let listed = payer.get("/billing/transactions?limit=1").await.json();
        listed["transactions"][0].clone()
    }

    fn web(&self, user: &str) -> Client {
        let (headers, minted) = self.node.run(&["token", "web", "--user", user]);
        assert!(minted, "a token is minted");
        let headers = headers
            .split("-H '")
            .skip(1)
            .filter_map(|part| part.split('\'').next());
        let mut client = Client::new(self.node.address());
        for (name, value) in headers.filter_map(|header| header.split_once(": ")) {
            client = client.with_header(&name.to_ascii_lowercase(), value);
        }
        client
    }
}
