//! E2: rotation of sealing keys on two nodes, during sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tests::gateway::Builder;
use tests::stores::{Durability, Postgres, Redis};
use tests::{Answer, Client, Gateway, Reply, Upstream, chat};
use tokio::sync::RwLock;
use tokio::task::JoinSet;
use weir_storage::secrets::SecretUrl;

const ROTATIONS: u32 = 3;

/// Sessions under way.
const SESSIONS: usize = 20;

/// Time for which each set of keys is in force on all nodes.
const BETWEEN: Duration = Duration::from_millis(500);

/// The nodes that respond at the moment.
type Addresses = Arc<RwLock<Vec<std::net::SocketAddr>>>;

pub(crate) fn run() -> bool {
    crate::runtime(2).block_on(async {
        let (postgres, redis) = (Postgres::start(Durability::Fast), Redis::start());
        let database = postgres.create_database().await;
        let in_database = rotate("PostgreSQL", &database, None).await;
        let database = postgres.create_database().await;
        in_database & rotate("Redis", &database, Some(&redis)).await
    })
}

/// A node and its settings for a restart.
struct Nodes {
    builder: Box<dyn Fn(Option<TempDir>) -> Builder>,
    folder: TempDir,
    running: Vec<Gateway>,
    addresses: Addresses,
}

async fn rotate(store: &str, database: &SecretUrl, redis: Option<&Redis>) -> bool {
    let upstream = Arc::new(Upstream::start().await);
    upstream.always(Reply::chat("fine"));
    let (database, redis) = (database.clone(), redis.map(Redis::url));
    let builder = {
        let upstream = upstream.clone();
        move |folder: Option<TempDir>| {
            let builder = Gateway::builder().postgres(&database);
            let builder = match folder {
                Some(folder) => builder.folder(folder),
                None => builder,
            };
            let builder = match &redis {
                Some(redis) => builder.redis(redis),
                None => builder,
            };
            builder.upstream("scripted", &upstream)
        }
    };
    let mut nodes = Nodes {
        builder: Box::new(builder),
        folder: tempfile::tempdir().expect("a folder"),
        running: Vec::new(),
        addresses: Addresses::default(),
    };
    let first = nodes.start(&[1], None, None).await;
    let second = nodes.start(&[1], Some(&first), None).await;
    nodes.running = vec![first, second];
    nodes.publish(&[0, 1]).await;
    let client = nodes.running[0].client();
    // A session without further turns.
    say(&client, "idle", "turn 1").await;

    let stop = Arc::new(AtomicBool::new(false));
    let (turns, lost) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let mut sessions = JoinSet::new();
    for number in 0..SESSIONS {
        let (client, addresses) = (client.clone(), nodes.addresses.clone());
        let (stop, turns, lost) = (stop.clone(), turns.clone(), lost.clone());
        sessions.spawn(async move {
            let id = format!("session-{number}");
            let mut turn = 0;
            while !stop.load(Ordering::Relaxed) {
                // A node is removed from the list, and stopped, between turns: the effect of a stop is not under
                // test.
                let addresses = addresses.read().await;
                let client = client.at(addresses[(number + turn) % addresses.len()]);
                if turn > 0 && !is_at(&client, &id, turn).await {
                    lost.fetch_add(1, Ordering::Relaxed);
                }
                say(&client, &id, &format!("turn {}", turn + 1)).await;
                turn += 1;
                turns.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let mut refused = 0;
    for key in 1..=ROTATIONS {
        let next = key + 1;
        for keys in [&[key, next][..], &[next, key]] {
            nodes.replace(keys).await;
            assert!(
                is_at(&nodes.client(&client), "idle", 1).await,
                "in the overlap"
            );
        }
        // Each session has a turn under the new key.
        let had = turns.load(Ordering::Relaxed);
        while turns.load(Ordering::Relaxed) < had + 4 * SESSIONS {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        nodes.replace(&[next]).await;
        let client = nodes.client(&client);
        let gone = client.get("/session/idle/history").await.status.as_u16();
        refused += usize::from(gone == 404);
        say(&client, "idle", "turn 1").await;
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = sessions.join_next().await {
        ended.expect("a client does not panic");
    }
    let (turns, lost) = (turns.load(Ordering::Relaxed), lost.load(Ordering::Relaxed));
    println!(
        "E2: sessions in {store}, {ROTATIONS} rotations on two nodes under {turns} turns of {SESSIONS} sessions: {lost} lost \
         (limit 0), {refused} of {ROTATIONS} refused whose key was removed"
    );
    lost == 0 && refused == ROTATIONS as usize && turns > 0
}

impl Nodes {
    /// Starts a node under these keys; the first one seals.
    async fn start(
        &self,
        keys: &[u32],
        like: Option<&Gateway>,
        folder: Option<TempDir>,
    ) -> Gateway {
        let keys: String = keys.iter().map(|id| self.key(*id)).collect();
        let mut builder = (self.builder)(folder);
        if let Some(like) = like {
            builder = builder.sharing_secrets_of(like);
        }
        builder
            .settings(&format!("sealing_keys = [{keys}]"))
            .start()
            .await
    }

    fn key(&self, id: u32) -> String {
        let path = self.folder.path().join(format!("key-{id}"));
        std::fs::write(&path, format!("{id}").repeat(32)).expect("it can be written");
        format!("{{ id = {id}, key = {{ file = {path:?} }} }},")
    }

    /// Restarts all nodes under these keys, one after the other.
    async fn replace(&mut self, keys: &[u32]) {
        for index in 0..self.running.len() {
            self.publish(&[1 - index]).await;
            let folder = self.running.remove(index).stop().await;
            let node = self.start(keys, None, Some(folder)).await;
            self.running.insert(index, node);
            self.publish(&[0, 1]).await;
        }
        tokio::time::sleep(BETWEEN).await;
    }

    async fn publish(&self, indexes: &[usize]) {
        let addresses = indexes.iter().map(|index| self.running[*index].address());
        *self.addresses.write().await = addresses.collect();
    }

    fn client(&self, client: &Client) -> Client {
        client.at(self.running[0].address())
    }
}

async fn say(client: &Client, session: &str, text: &str) {
    let mut question = chat("scripted", text);
    question["session_id"] = session.into();
    // A busy machine may have needed more time.
    while unless_busy(client.post("/chat", &question).await).is_none() {}
}

/// Returns a success, or a missing session; `None` if the gateway is overloaded.
fn unless_busy(answer: Answer) -> Option<Answer> {
    let status = answer.status.as_u16();
    assert!([200, 404, 503].contains(&status), "{}", answer.text());
    (status != 503).then_some(answer)
}

/// Returns whether a session has this turn as its last one.
async fn is_at(client: &Client, session: &str, turn: usize) -> bool {
    let path = format!("/session/{session}/history");
    let history = loop {
        if let Some(history) = unless_busy(client.get(&path).await) {
            break history;
        }
    };
    if history.status != 200 {
        return false;
    }
    let messages = history.json()["messages"].as_array().cloned();
    let messages = messages.unwrap_or_default();
    let mut messages = messages.iter().rev();
    let asked = messages.find(|message| message["role"] == "user");
    asked.is_some_and(|message| message["content"] == format!("turn {turn}"))
}
