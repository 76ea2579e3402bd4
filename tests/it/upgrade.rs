//! An upgrade: nodes of this release and of the release before serve side by side, on one PostgreSQL and one Redis.
//!
//! `tests/run --upgrade` builds the command of the older release and names it in `WEIR_OLDER_PROGRAM`.
//!
//! `tests/upgrade/` has databases of the release of 27 November 2026, which its `make.py` has made: every run of the tests
//! migrates them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use sqlx::{AnyConnection, Connection as _, Row as _};
use tests::gateway::share_compiled_plugins;
use tests::source::root;
use tests::stores::{Postgres, Redis, patient_database};
use tests::{
    Answer, Client, EventStream, Gate, Gateway, Reply, Upstream, chat, chunks, patiently,
    weir_program,
};
use tokio::sync::watch;
use tokio::task::JoinSet;
use weir_identity::dev_issuer::DevIssuer;
use weir_ledger::verify::verify;
use weir_storage::clock::Millis;
use weir_storage::secrets::{SecretUrl, create_private_folder};

use crate::cli::{Served, command, text};
use crate::swarms::{ended, swarm};

/// Concurrent clients of each node's load. Every other one streams.
const CLIENTS: usize = 6;

/// Concurrent requests that compete for a budget or a balance.
const COMPETITORS: usize = 40;

/// A running weir command of a release.
struct Node {
    served: Served,
    program: PathBuf,
}

/// The charges that clients have seen, in micro-credits.
#[derive(Clone, Default)]
struct Bill(Arc<AtomicI64>);

/// Clients that send chat requests to a node without a pause.
struct Load {
    clients: JoinSet<()>,
    served: watch::Receiver<u64>,
    slowest_ms: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    may_disconnect: Arc<AtomicBool>,
}

/// A user's or an organisation's API key.
struct Key {
    id: String,
    secret: String,
}

impl Node {
    /// Starts a node with the secrets of another one.
    fn start(program: &Path, settings: &str, other: Option<&Self>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("weir.toml"), settings).expect("the folder is writable");
        let data = folder.path().join(".weir");
        share_compiled_plugins(&data);
        if let Some(other) = other {
            copy_secrets(&other.data_dir(), &data);
        }
        let command = command(program, folder.path());
        Self {
            served: Served::start_as(command, folder, &[]),
            program: program.to_owned(),
        }
    }

    fn data_dir(&self) -> PathBuf {
        self.served.folder().join(".weir")
    }

    /// A client without credentials.
    fn stranger(&self) -> Client {
        let address = self.served.url().replace("http://", "");
        Client::new(address.parse().expect("an address"))
    }

    fn with_key(&self, key: &Key) -> Client {
        self.stranger().with_key(&key.secret)
    }

    /// A client with both tokens of a web user.
    fn web(&self, user: &str) -> Client {
        let issuer = DevIssuer::open(&self.data_dir()).expect("the node's issuer");
        let tokens = issuer.web_tokens(user, Millis::now()).expect("tokens");
        self.stranger()
            .with_key(tokens.identity.expose())
            .with_header("x-identity-appcheck", tokens.attestation.expose())
    }

    /// Runs a command of the node's release in the node's folder.
    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = command(&self.program, self.served.folder());
        command.args(arguments).output().expect("weir runs")
    }

    fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    /// Creates a key of a web user, or of an organisation in which the user acts.
    async fn create_key(&self, by: &Client, body: Value) -> Key {
        let made = by.post("/api-keys", &body).await;
        assert_eq!(made.status, 201, "{}", made.text());
        let made = made.json();
        Key {
            id: field(&made, "key_id"),
            secret: field(&made, "api_key"),
        }
    }
}

/// Copies the secrets of a node, which all nodes of a deployment share.
fn copy_secrets(from: &Path, to: &Path) {
    let copied = Command::new("cp")
        .args(["-a", "--no-target-directory", "--"])
        .args([from.join("keys"), to.join("keys")])
        .status();
    assert!(copied.expect("cp runs").success());
}

impl Bill {
    fn add(&self, credits: &Value) {
        self.0.fetch_add(micro(credits), Ordering::Relaxed);
    }

    fn total(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds the charge of a complete response.
    fn add_answer(&self, answer: &Answer) {
        self.add(&answer.json()["usage"]["credits"]);
    }

    /// Reads a stream to its end, and adds its charge.
    async fn add_stream(&self, stream: EventStream) {
        let events = stream.rest().await;
        let end = events.last().map(String::as_str);
        assert_eq!(end, Some("data: [DONE]"), "{events:?}");
        let last = chunks(&events).pop().expect("a last chunk");
        self.add(&last["usage"]["credits"]);
    }

    /// Sends a chat request that must be served.
    async fn ask(&self, client: &Client) -> Answer {
        let answer = client.post("/chat", &chat("demo", "Hello")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        self.add_answer(&answer);
        answer
    }

    /// Sends concurrent requests to both nodes, which the upstream holds until the others are rejected. Returns the
    /// charges of the served ones.
    async fn compete(
        &self,
        clients: [&Client; 2],
        upstream: &Upstream,
        refused: (u16, &str),
    ) -> Vec<i64> {
        let gate = Gate::new();
        upstream.always(Reply::chat_with_usage("fine", 10, 300).after_gate(&gate));
        let (question, rejected) = (chat("scripted", "x"), watch::Sender::new(0));
        let before = upstream.count();
        let requests = (0..COMPETITORS).map(async |number| {
            let answer = clients[number % 2].post("/chat", &question).await;
            if answer.status == 200 {
                self.add_answer(&answer);
                return Some(micro(&answer.json()["usage"]["credits"]));
            }
            answer.error(refused.0, refused.1);
            rejected.send_modify(|number| *number += 1);
            None
        });
        let all_wait = async {
            let mut rejected = rejected.subscribe();
            patiently(async {
                while *rejected.borrow_and_update() + upstream.count() - before < COMPETITORS {
                    tokio::task::yield_now().await;
                }
            })
            .await;
            gate.open();
        };
        let (answers, ()) = tokio::join!(join_all(requests), all_wait);
        let served: Vec<_> = answers.into_iter().flatten().collect();
        assert!((1..COMPETITORS).contains(&served.len()), "{served:?}");
        served
    }
}

impl Load {
    fn start(client: &Client, bill: &Bill) -> Self {
        let (count, served) = watch::channel(0);
        let mut load = Self {
            clients: JoinSet::new(),
            served,
            slowest_ms: Arc::default(),
            is_over: Arc::default(),
            may_disconnect: Arc::default(),
        };
        for number in 0..CLIENTS {
            let (client, bill, count) = (client.clone(), bill.clone(), count.clone());
            let slowest_ms = load.slowest_ms.clone();
            let (is_over, may_disconnect) = (load.is_over.clone(), load.may_disconnect.clone());
            load.clients.spawn(async move {
                let question = chat("demo", "/long 40");
                while !is_over.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    let is_served = match number % 2 {
                        0 => {
                            let answer = client.try_post("/chat", &question).await;
                            if let Some(answer) = &answer {
                                assert_eq!(answer.status, 200, "{}", answer.text());
                                bill.add_answer(answer);
                            }
                            answer.is_some()
                        }
                        _ => match client.try_stream("/chat", &question).await {
                            Some(stream) if stream.status == 200 => {
                                bill.add_stream(stream).await;
                                true
                            }
                            Some(stream) => panic!("{}", stream.try_json().await),
                            None => false,
                        },
                    };
                    if !is_served {
                        let may = may_disconnect.load(Ordering::Relaxed);
                        assert!(may, "a node that serves has closed a connection");
                        return;
                    }
                    let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                    slowest_ms.fetch_max(took, Ordering::Relaxed);
                    count.send_modify(|count| *count += 1);
                }
            });
        }
        load
    }

    /// Waits until this many more requests are served.
    async fn serves(&mut self, more: u64) {
        let goal = *self.served.borrow() + more;
        let served = patiently(self.served.wait_for(|served| *served >= goal)).await;
        served.expect("the clients have not failed");
    }

    /// Lets the clients end their requests.
    async fn stop(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.end().await
    }

    async fn end(mut self) -> u64 {
        while let Some(ended) = patiently(self.clients.join_next()).await {
            ended.expect("each request is served");
        }
        *self.served.borrow()
    }
}

fn field(json: &Value, name: &str) -> String {
    let text = json[name].as_str();
    text.unwrap_or_else(|| panic!("{name} in {json}"))
        .to_owned()
}

fn micro(credits: &Value) -> i64 {
    (credits.as_f64().expect("a number") * 1e6).round() as i64
}

/// Returns an account's balance of bought credits, in micro-credits.
async fn bought_credits(client: &Client) -> i64 {
    let synced = client.post("/billing/sync-balance", &json!({})).await;
    assert_eq!(synced.status, 200, "{}", synced.text());
    micro(&synced.json()["topup_balance"])
}

fn settings(postgres: &str, redis: &str, upstream: &Upstream) -> String {
    let all = "{ free = 1000000, guru = 1000000, pro = 1000000 }";
    format!(
        "dev = true\ndatabase_url = {postgres:?}\nredis_url = {redis:?}\n\
         [limits]\nrequests_per_account = {all}\nrequests_per_upstream = 1000\nrequests_per_slot = 1000\n\
         [rate_limits]\nfree = 1000000\nguru = 1000000\npro = 1000000\naddress = 1000000\n\
         [providers.scripted]\nadapter = \"openai\"\nbase_url = \"{}\"\n\
         [models.scripted]\ncontext_window = 100000\nmax_output_tokens = 1000\ndefault_output_tokens = 300\n\
         upstreams = [{{ provider = \"scripted\" }}]\nprice = {{ input = 1, output = 2 }}\n",
        upstream.base_url()
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "tests/run --upgrade builds the older release"]
async fn nodes_of_two_releases_serve_side_by_side_during_an_upgrade() {
    let program = env::var_os("WEIR_OLDER_PROGRAM").expect("tests/run --upgrade sets it");
    let program = PathBuf::from(program);
    let (database, cache) = (Postgres::shared().create_database().await, Redis::start());
    let upstream = Upstream::start().await;
    let settings = settings(database.expose(), cache.url().expose(), &upstream);
    let bill = Bill::default();

    // The older release alone.
    let older = Node::start(&program, &settings, None);
    let early = older.create_key(&older.web("paul"), json!({})).await;
    bill.ask(&older.with_key(&early)).await;
    let once = |node: &Node| {
        node.with_key(&early)
            .with_header("idempotency-key", "\"once\"")
    };
    let first = bill.ask(&once(&older)).await;
    say(&bill, &older.with_key(&early), "first").await;
    run_swarm(&bill, &older, &older).await;

    // A node of this release migrates the database. The older node serves meanwhile, and completes an earlier stream.
    let gate = Gate::new();
    let mut stream = begin_stream(&upstream, &older.with_key(&early), &gate).await;
    let mut load = Load::start(&older.with_key(&early), &bill);
    load.serves(50).await;
    let before = *load.served.borrow();
    let newer = Node::start(&weir_program(), &settings, Some(&older));
    let meanwhile = *load.served.borrow() - before;
    assert!(meanwhile > 0, "the older node has served nothing meanwhile");
    gate.open();
    assert_eq!(next_content(&mut stream).await, "two");
    bill.add_stream(stream).await;

    // Both serve under load.
    let mut other_load = Load::start(&newer.with_key(&early), &bill);
    let second = once(&newer).post("/chat", &chat("demo", "Hello")).await;
    assert_eq!(second.json(), first.json(), "the repeat of a request");
    say(&bill, &newer.with_key(&early), "second").await;
    let expected = ["first", "You said: first", "second", "You said: second"];
    for node in [&older, &newer] {
        let path = format!("/session/{SESSION}/history");
        let history = node.with_key(&early).get(&path).await.json();
        let messages = history["messages"].as_array().expect("a list").iter();
        let texts: Vec<_> = messages.map(|message| field(message, "content")).collect();
        assert_eq!(texts, expected, "{history}");
    }
    for (user, one, other) in [("erin", &older, &newer), ("eric", &newer, &older)] {
        share_keys(&bill, one, other).await;
        share_budget(&bill, &upstream, one, other).await;
        share_balance(&bill, &upstream, user, one, other).await;
        run_swarm(&bill, one, other).await;
    }
    keep_organisation_apart(&bill, &older, &newer).await;
    load.serves(50).await;
    other_load.serves(50).await;

    // The older node drains and completes its requests. The other one serves on.
    let gate = Gate::new();
    let mut stream = begin_stream(&upstream, &older.with_key(&early), &gate).await;
    load.may_disconnect.store(true, Ordering::Relaxed);
    older.served.terminate();
    let notice = |line: &str| line.contains("a second signal");
    older.served.logged(notice).await;
    gate.open();
    assert_eq!(next_content(&mut stream).await, "two");
    bill.add_stream(stream).await;
    let slowest_ms = [&load, &other_load].map(|load| load.slowest_ms.load(Ordering::Relaxed));
    let served = load.end().await;
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join(".weir");
    share_compiled_plugins(&data);
    copy_secrets(&older.data_dir(), &data);
    let (log, success) = older.served.ended();
    assert!(success, "{log}");
    other_load.serves(50).await;

    // There is no way back but a backup: the older release does not start on the migrated database.
    std::fs::write(folder.path().join("weir.toml"), &settings).expect("the folder is writable");
    let refused = command(&program, folder.path())
        .args(["serve", "--listen", "127.0.0.1:0"])
        .output()
        .expect("weir runs");
    let why = text(&refused.stderr);
    let is_newer = why.contains("was previously applied but is missing");
    assert!(!refused.status.success() && is_newer, "{why}");
    other_load.serves(50).await;
    let other_served = other_load.stop().await;

    // All charges are those that the clients have seen.
    let database = patient_database(&database).await;
    let count = async |query: &'static str| -> i64 {
        let count = sqlx::query_scalar(query).fetch_one(database.reader()).await;
        count.expect("an answer")
    };
    patiently(async {
        let open = "SELECT CAST(COUNT(*) AS BIGINT) FROM holds WHERE expired_at IS NULL";
        while count(open).await > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let charged = "SELECT CAST(-SUM(plan_delta + top_up_delta) AS BIGINT) FROM entries WHERE hold_id IS NOT NULL";
    assert_eq!(count(charged).await, bill.total());
    newer.succeed(&["ledger", "verify", "--all"]);
    let (log, success) = newer.served.stop();
    assert!(success, "{log}");
    report(meanwhile, [served, other_served], slowest_ms);
}

#[expect(clippy::print_stderr, reason = "figures of the run")]
fn report(meanwhile: u64, served: [u64; 2], slowest_ms: [u64; 2]) {
    eprintln!(
        "served by the older node during the start of the newer one: {meanwhile}; by the load in total: {served:?}; \
         slowest request in ms: {slowest_ms:?}"
    );
}

const SESSION: &str = "side-by-side";

/// Sends a message of the session.
async fn say(bill: &Bill, client: &Client, message: &str) {
    let mut question = chat("demo", message);
    question["session_id"] = json!(SESSION);
    let answer = client.post("/chat", &question).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    bill.add_answer(&answer);
}

/// Begins a stream that waits at a gate before its second piece.
async fn begin_stream(upstream: &Upstream, client: &Client, gate: &Gate) -> EventStream {
    upstream.will(Reply::chat_stream(["one ", "two"]).gate_before_piece(1, gate));
    let mut stream = client.stream("/chat", &chat("scripted", "count")).await;
    assert_eq!(next_content(&mut stream).await, "one ");
    stream
}

/// Returns the next piece of text. Comments keep a stream alive that waits for long.
async fn next_content(stream: &mut EventStream) -> String {
    loop {
        let event = stream.next().await.expect("another event");
        if event.starts_with(':') {
            continue;
        }
        let chunk = chunks(&[event]).pop().expect("a chunk");
        return field(&chunk["choices"][0]["delta"], "content");
    }
}

/// Runs a swarm that one node accepts and the other one shows.
async fn run_swarm(bill: &Bill, one: &Node, other: &Node) {
    let agent = |name: &str| json!({ "name": name, "system_prompt": "You help.", "task_prompt": "Greet.", "model": "demo" });
    let asked = swarm(&[agent("scout"), agent("writer")]);
    let accepted = one.served.client().post("/swarms", &asked).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    let id = field(&accepted.json(), "execution_id");
    let record = ended(&other.stranger().with_key(&one.served.key()), &id).await;
    assert_eq!(record["status"], "completed", "{record}");
    bill.add(&record["total_credits"]);
}

/// A key of one node works at the other one. A revocation, and the end of a user, apply to both at once.
async fn share_keys(bill: &Bill, one: &Node, other: &Node) {
    let paul = one.web("paul");
    let key = one.create_key(&paul, json!({})).await;
    for node in [one, other, one] {
        bill.ask(&node.with_key(&key)).await;
    }
    let path = format!("/api-keys/{}", key.id);
    assert_eq!(other.web("paul").delete(&path).await.status, 204);
    for node in [one, other] {
        let refused = node.with_key(&key).get("/models").await;
        refused.error(401, "UNAUTHENTICATED");
    }
    let quinn = one.create_key(&one.web("quinn"), json!({})).await;
    for node in [one, other] {
        bill.ask(&node.with_key(&quinn)).await;
    }
    other.succeed(&["user", "disable", "--subject", "quinn"]);
    for node in [one, other] {
        let refused = node.with_key(&quinn).get("/models").await;
        refused.error(403, "USER_DISABLED");
    }
    one.succeed(&["user", "enable", "--subject", "quinn"]);
    bill.ask(&other.with_key(&quinn)).await;
}

/// Concurrent requests to both nodes do not exceed the budget of a key.
async fn share_budget(bill: &Bill, upstream: &Upstream, one: &Node, other: &Node) {
    let limits = json!({ "budget_credits": 10, "window": "total" });
    let key = one.create_key(&one.web("rita"), limits).await;
    let clients = [&one.with_key(&key), &other.with_key(&key)];
    let refused = (429, "BUDGET_EXCEEDED");
    let charges = bill.compete(clients, upstream, refused).await;
    let spent: i64 = charges.iter().sum();
    assert!(spent <= 10_000_000, "{charges:?}");
}

/// Concurrent requests to both nodes do not exceed the credits of a user.
async fn share_balance(bill: &Bill, upstream: &Upstream, user: &str, one: &Node, other: &Node) {
    let clients = [&one.web(user), &other.web(user)];
    // The first request creates the user. The plan's credits would outlast the test.
    assert_eq!(clients[0].get("/usage/me").await.status, 200);
    let adjust = [
        "user",
        "adjust",
        "--subject",
        user,
        "--plan",
        "--credits",
        "-500",
    ];
    one.succeed(&[&adjust[..], &["--reason", "a test"]].concat());
    one.succeed(&["user", "top-up", "--subject", user, "--credits", "10"]);
    let charges = bill
        .compete(clients, upstream, (429, "QUOTA_EXCEEDED"))
        .await;
    let spent: i64 = charges.iter().sum();
    for client in clients {
        assert_eq!(bought_credits(client).await, 10_000_000 - spent);
    }
}

/// An organisation works at the node of this release. The older node rejects its keys, also if they are in the cache,
/// and serves its members for their personal accounts only.
async fn keep_organisation_apart(bill: &Bill, older: &Node, newer: &Node) {
    let owner = newer.web("olivia");
    let made = owner
        .post("/organisations", &json!({ "name": "Acme" }))
        .await;
    assert_eq!(made.status, 201, "{}", made.text());
    let id = field(&made.json(), "organisation_id");
    newer.succeed(&["user", "top-up", "--user", &id, "--credits", "20"]);
    let acting = |node: &Node, user: &str| node.web(user).with_header("x-weir-account", &id);
    let mut keys = vec![newer.create_key(&acting(newer, "olivia"), json!({})).await];
    for (user, role) in [("max", "member"), ("vera", "viewer")] {
        let invitation = json!({ "email": format!("{user}@example.com"), "role": "member" });
        let path = format!("/organisations/{id}/invitations");
        let code = field(&owner.post(&path, &invitation).await.json(), "code");
        let body = json!({ "code": code });
        let accepted = newer.web(user).post("/invitations/accept", &body).await;
        assert_eq!(accepted.status, 200, "{}", accepted.text());
        keys.push(newer.create_key(&acting(newer, user), json!({})).await);
        let path = format!(
            "/organisations/{id}/members/{}",
            member_id(&owner, &id, user).await
        );
        let body = json!({ "role": role }).to_string().into();
        let json = Some("application/json");
        let changed = owner.send(Method::PATCH, &path, json, body).await;
        assert_eq!(changed.status, 200, "{}", changed.text());
    }

    for key in &keys {
        rejects(older, key, (403, "USER_DISABLED")).await;
    }
    let mut spent = 0;
    for key in &keys[..2] {
        let answer = bill.ask(&newer.with_key(key)).await;
        spent += micro(&answer.json()["usage"]["credits"]);
    }
    rejects(newer, &keys[2], (403, "FORBIDDEN")).await;
    // The cache has the keys now.
    for key in &keys {
        rejects(older, key, (403, "USER_DISABLED")).await;
    }
    // The older release does not know the header of the organisation.
    bill.ask(&acting(older, "max")).await;
    assert_eq!(
        bought_credits(&newer.with_key(&keys[0])).await,
        20_000_000 - spent
    );

    let path = format!(
        "/organisations/{id}/members/{}",
        member_id(&owner, &id, "max").await
    );
    assert_eq!(owner.delete(&path).await.status, 204);
    for node in [older, newer] {
        rejects(node, &keys[1], (401, "UNAUTHENTICATED")).await;
    }
    newer.succeed(&["user", "disable", "--user", &id]);
    rejects(newer, &keys[0], (403, "USER_DISABLED")).await;
    newer.succeed(&["user", "enable", "--user", &id]);
    bill.ask(&newer.with_key(&keys[0])).await;
    rejects(older, &keys[0], (403, "USER_DISABLED")).await;
}

async fn rejects(node: &Node, key: &Key, (status, code): (u16, &str)) {
    let refused = node.with_key(key).post("/chat", &chat("demo", "x")).await;
    refused.error(status, code);
}

/// Returns the user id of an organisation's member.
async fn member_id(owner: &Client, organisation: &str, user: &str) -> String {
    let members = owner
        .get(&format!("/organisations/{organisation}/members"))
        .await
        .json();
    let mut members = members["members"].as_array().expect("a list").iter();
    let email = format!("{user}@example.com");
    field(
        members
            .find(|member| member["email"] == email)
            .expect("the member"),
        "user_id",
    )
}

/// The totals of a database's accounts, in micro-credits, and its last entry.
async fn totals(url: &SecretUrl) -> (i64, i64) {
    let database = AnyConnection::connect(url.expose()).await;
    let row = sqlx::query(
        "SELECT CAST(SUM(plan_credits + top_up_credits) AS BIGINT), \
         (SELECT MAX(number) FROM entries) FROM accounts",
    )
    .fetch_one(&mut database.expect("a connection"))
    .await
    .expect("both tables exist in each release");
    (row.get(0), row.get(1))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn databases_of_the_last_release_migrate_and_their_holds_end() {
    sqlx::any::install_default_drivers();
    let fixture = root().join("tests/upgrade/2026-11-27");
    for is_postgres in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data");
        create_private_folder(&data).expect("the folder is writable");
        copy_secrets(&fixture, &data);
        // Git keeps no modes, and weir reads only private secrets.
        let private = Command::new("chmod")
            .args(["-R", "go="])
            .arg(data.join("keys"))
            .status();
        assert!(private.expect("chmod runs").success());
        let mut builder = Gateway::builder().folder(folder);
        let url = match is_postgres {
            true => {
                let url = Postgres::shared().create_database().await;
                let loaded = Postgres::tool("psql")
                    .args(["--quiet", "--set=ON_ERROR_STOP=1", "--file"])
                    .arg(fixture.join("weir.postgres.sql"))
                    .arg(url.expose())
                    .output();
                let loaded = loaded.expect("psql runs");
                assert!(loaded.status.success(), "{}", text(&loaded.stderr));
                builder = builder.postgres(&url);
                url
            }
            false => {
                let file = data.join("weir.db");
                std::fs::copy(fixture.join("weir.sqlite3"), &file).expect("the folder is writable");
                SecretUrl::new(format!("sqlite://{}", file.display()))
            }
        };
        let (before, last) = totals(&url).await;

        let gateway = builder.start().await;
        let app = gateway.app();
        app.ledger.sweep().await.expect("the database answers");
        let reader = app.database.reader();
        let open: i64 = sqlx::query_scalar(
            "SELECT CAST(COUNT(*) AS BIGINT) FROM holds WHERE expired_at IS NULL",
        )
        .fetch_one(reader)
        .await
        .expect("the database answers");
        assert_eq!(open, 0, "holds of the killed node");
        let changed: i64 = sqlx::query_scalar(
            "SELECT CAST(SUM(plan_delta + top_up_delta) AS BIGINT) FROM entries WHERE number > $1",
        )
        .bind(last)
        .fetch_one(reader)
        .await
        .expect("the holds have entries");
        let (after, _) = totals(&url).await;
        assert_eq!(after, before + changed);
        let violations = verify(&app.database, app.ledger.now()).await;
        assert_eq!(violations.expect("the database answers"), []);

        let issuer = DevIssuer::open(&gateway.data_dir()).expect("the release's issuer");
        let tokens = issuer.web_tokens("alice", Millis::now()).expect("tokens");
        let alice = gateway
            .stranger()
            .with_key(tokens.identity.expose())
            .with_header("x-identity-appcheck", tokens.attestation.expose());
        let answer = alice.post("/chat", &chat("demo", "Hello")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let swarms = alice.get("/swarms").await.json();
        let swarms = swarms["swarms"].as_array().expect("a list");
        let completed = swarms.iter().filter(|run| run["status"] == "completed");
        assert_eq!((swarms.len(), completed.count()), (3, 2));
    }
}
