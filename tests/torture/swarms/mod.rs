//! The shared parts of the rows about swarms: their nodes, and the required end of each swarm.

pub(crate) mod handovers;
pub(crate) mod kills;
pub(crate) mod outages;
mod outside;
pub(crate) mod races;
pub(crate) mod stops;
pub(crate) mod turns;
pub(crate) mod zombies;

use std::fmt::Display;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Row};
use tests::ledger::random::Random;
use tests::stores::patient_database;
use tests::{Answer, Client};
use tokio::runtime::Runtime;
use weir_ledger::LedgerStore;
use weir_storage::Database;
use weir_storage::secrets::SecretUrl;

use self::outside::{AGENTS, Kind, MODEL_CALLS, Outside, output, swarm};
use crate::money::USER;
use crate::process::{Node, Stores, shown, wait_until};

/// Duration of an executor's lease on a swarm.
const LEASE: Duration = Duration::from_secs(1);

/// The ledger's lease, and the period of its sweeps for expired leases.
const LEDGER_LEASE: Duration = Duration::from_secs(2);
const SWEEP: Duration = Duration::from_millis(500);

/// Time limit of a swarm, including all failures.
const PATIENCE: Duration = Duration::from_secs(60);

/// Enough for all requests.
const TOP_UP: &str = "10000000";

/// The nodes of swarms: on SQLite, one node with all roles; on PostgreSQL, an API and executors.
pub(crate) struct Ground<'r> {
    runtime: &'r Runtime,
    name: &'static str,
    outside: Outside,
    /// On SQLite, also the executor.
    api: Node,
    executors: Vec<Node>,
    client: Client,
    database: Database,
    /// Faults, with their swarms.
    faults: Vec<String>,
    /// The number of requested swarms.
    asked: AtomicU32,
}

/// A requested swarm.
struct Asked {
    id: String,
    tag: String,
}

/// The progress of a swarm.
struct State {
    status: String,
    fence: i64,
    owner: Option<String>,
}

impl State {
    fn is_over(&self) -> bool {
        !matches!(&*self.status, "queued" | "running")
    }
}

impl<'r> Ground<'r> {
    /// One node on SQLite.
    fn on_sqlite(runtime: &'r Runtime) -> Self {
        Self::new(runtime, "SQLite", None, 0, "")
    }

    /// An API and this many executors on a PostgreSQL.
    fn on_postgres(runtime: &'r Runtime, url: &SecretUrl, executors: usize) -> Self {
        Self::new(runtime, "PostgreSQL", Some(url), executors, "")
    }

    /// Nodes with these settings of `[swarms]`, too, before their start.
    fn new(
        runtime: &'r Runtime,
        name: &'static str,
        postgres: Option<&SecretUrl>,
        executors: usize,
        settings: &str,
    ) -> Self {
        let outside = runtime.block_on(Outside::start());
        // A busy machine must not count as an outage.
        let tables = format!(
            "[ledger]\nlease_ms = {}\nrenew_ms = {}\n[rate_limits]\npro = 1000000\naddress = 1000000\n\
             [stores]\nacquire_ms = 10000\nstatement_ms = 10000\n[swarms]\nlease_ms = {}\n{settings}\n{}",
            LEDGER_LEASE.as_millis(),
            SWEEP.as_millis(),
            LEASE.as_millis(),
            outside.tables()
        );
        let stores = Stores {
            postgres: postgres.cloned(),
            redis: None,
        };
        let node = Node::new(&stores, &tables);
        let api = match postgres {
            Some(_) => node.into_api(),
            None => node,
        };
        let api = api.with_compiled_plugins();
        let executor = |_| api.executor().with_compiled_plugins();
        let executors = (0..executors).map(executor).collect();
        let client = user(&api, USER);
        let database = runtime.block_on(patient_database(api.database_url()));
        Self {
            runtime,
            name,
            outside,
            api,
            executors,
            client,
            database,
            faults: Vec::new(),
            asked: AtomicU32::new(0),
        }
    }

    fn start(&mut self) {
        self.api.start();
        for executor in &mut self.executors {
            executor.start();
        }
    }

    /// Returns the node that runs swarms, if it is only one.
    fn executor(&mut self) -> &mut Node {
        self.executors.first_mut().unwrap_or(&mut self.api)
    }

    /// Requests a swarm whose tasks carry this tag.
    fn ask(&self, tag: String) -> Asked {
        // Repeated requests with the key are one swarm.
        let client = self.client.clone().with_header("idempotency-key", &tag);
        let asked = async |client: Client| client.post("/swarms", &swarm(&tag)).await;
        let answer = self.runtime.block_on(self.patiently(client, asked));
        assert_eq!(answer.status, 202, "{}", answer.text());
        let id = answer.json()["execution_id"].as_str().map(str::to_owned);
        let id = id.expect("an id");
        // Every second swarm is watched, which must change nothing.
        if self.asked.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
            let (client, path) = (
                self.client.at(self.api.address()),
                format!("/swarms/{id}/events"),
            );
            self.runtime.spawn(async move {
                let events = client.follow(Method::GET, &path, &Value::Null).await;
                events.try_rest().await;
            });
        }
        Asked { id, tag }
    }

    /// Returns the API's response to a request, which is retried while the API is busy.
    async fn patiently(&self, client: Client, ask: impl AsyncFn(Client) -> Answer) -> Answer {
        let began = Instant::now();
        loop {
            // Connections to a killed API are useless.
            let answer = ask(client.at(self.api.address())).await;
            if answer.status != 503 || began.elapsed() > PATIENCE {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Reads a row of the database, which may be down for a while.
    fn row(&self, sql: &str, id: &str) -> sqlx::any::AnyRow {
        self.runtime.block_on(async {
            let began = Instant::now();
            loop {
                let row = sqlx::query(AssertSqlSafe(sql)).bind(id);
                match row.fetch_one(self.database.reader()).await {
                    Ok(row) => return row,
                    Err(error) if began.elapsed() > PATIENCE => panic!("{error}"),
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        })
    }

    fn state(&self, asked: &Asked) -> State {
        let sql = "SELECT status, fence, lease_owner FROM swarm_runs WHERE id = $1";
        let row = self.row(sql, &asked.id);
        State {
            status: row.get(0),
            fence: row.get(1),
            owner: row.get(2),
        }
    }

    /// Waits for a state of a swarm; returns whether it came.
    fn until(&mut self, asked: &Asked, what: &str, is_it: impl Fn(&State) -> bool) -> bool {
        let began = Instant::now();
        while !is_it(&self.state(asked)) {
            if began.elapsed() > PATIENCE {
                self.fault(asked, format_args!("it was not {what} in {PATIENCE:.0?}"));
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// Waits until an executor has it.
    fn until_begun(&mut self, asked: &Asked) {
        self.until(asked, "taken up", |state| state.fence > 0);
    }

    fn until_over(&mut self, asked: &Asked) {
        self.until(asked, "over", State::is_over);
    }

    /// Returns the duration of an undisturbed swarm from its claim: the longest of some.
    fn undisturbed(&mut self) -> Duration {
        let longest = (0..3).map(|number| {
            let asked = self.ask(format!("calm-{number}"));
            self.until_begun(&asked);
            let began = Instant::now();
            self.until_over(&asked);
            let took = began.elapsed();
            self.judge(&asked);
            took
        });
        longest.max().expect("some")
    }

    /// Waits for a random part of that.
    fn wander(random: &mut Random, within: Duration) {
        let microseconds = random.below(within.as_micros() as usize);
        std::thread::sleep(Duration::from_micros(microseconds as u64));
    }

    /// Returns the current step of a swarm; `None` if it has ended.
    fn point(&self, asked: &Asked) -> Option<String> {
        if self.state(asked).is_over() {
            return None;
        }
        let sql = "SELECT CAST(COALESCE(MIN(CASE WHEN ordinal = 0 THEN 'a model call' ELSE effect END), 'between') AS TEXT) \
             FROM swarm_steps WHERE run_id = $1 AND state = 'intended'";
        Some(self.row(sql, &asked.id).get(0))
    }

    fn fault(&mut self, asked: &Asked, what: impl Display) {
        let fault = format!("{} ({}): {what}", asked.tag, asked.id);
        println!("{}: {fault}", self.name);
        self.faults.push(fault);
    }

    /// Checks all requirements on a swarm that has ended.
    fn judge(&mut self, asked: &Asked) {
        let mut faults = self.charged(asked);
        faults.extend(self.told(asked));
        // A swarm that did not complete has not made all calls.
        if faults.is_empty() {
            for (number, agent) in AGENTS.iter().enumerate() {
                faults.extend(self.effects(asked, number, agent));
            }
        }
        for fault in faults {
            self.fault(asked, fault);
        }
    }

    /// Checks the client's view: each agent's result, once.
    fn told(&self, asked: &Asked) -> Vec<String> {
        let path = format!("/swarms/{}", asked.id);
        let get = async |path: &str| {
            let asked = async |client: Client| client.get(path).await;
            self.patiently(self.client.clone(), asked).await
        };
        let (record, events) = self.runtime.block_on(async {
            let events = get(&format!("{path}/events")).await;
            (get(&path).await.json(), events.text())
        });
        let events: Vec<_> = events.split_terminator("\n\n").collect();
        let mut faults = Vec::new();
        let last = AGENTS.last().expect("some");
        let content = output(&format!("{}/{last}", asked.tag));
        let outputs: Vec<_> = record["agents"].as_array().into_iter().flatten().collect();
        let outputs: Vec<_> = outputs
            .iter()
            .map(|agent| agent["output"].as_str())
            .collect();
        let expected = AGENTS.map(|agent| output(&format!("{}/{agent}", asked.tag)));
        let calls: i64 = self.row(MODEL_STEPS, &asked.id).get(0);
        let is_complete = outputs.iter().flatten().eq(expected.iter())
            && calls == (AGENTS.len() * MODEL_CALLS) as i64;
        if record["status"] != "completed" || record["content"] != *content || !is_complete {
            faults.push(format!("it did not complete: {record}"));
        }
        let field = |event: &str, name: &str| {
            let mut lines = event.lines();
            let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            line.unwrap_or_default().to_owned()
        };
        let names: Vec<_> = events.iter().map(|event| field(event, "event")).collect();
        let numbers = events.iter().map(|event| field(event, "id"));
        let mut expected = Vec::new();
        for _ in AGENTS {
            expected.push("agent_start");
            expected.extend(Kind::ALL.map(|_| "tool_call"));
            expected.push("agent_done");
        }
        expected.push("swarm_done");
        if names != expected || !numbers.eq((1..=expected.len()).map(|number| number.to_string())) {
            faults.push(format!("its events are {events:?}"));
        }
        faults
    }

    /// Checks the cost: each step once, and the cost in the client's view.
    fn charged(&self, asked: &Asked) -> Vec<String> {
        let store = LedgerStore::new(self.database.clone());
        self.runtime.block_on(store.fold_for_reader(None));
        let sql = "SELECT CAST(COUNT(*) AS BIGINT), CAST(COALESCE(SUM(-plan_delta - top_up_delta), 0) AS BIGINT) \
             FROM entries WHERE source_id = $1 AND model = 'scripted' AND plan_delta + top_up_delta <> 0";
        let entries = self.row(sql, &asked.id);
        let (charges, credits): (i64, i64) = (entries.get(0), entries.get(1));
        let sql = "SELECT credits, CAST((SELECT SUM(credits) FROM swarm_steps WHERE run_id = swarm_runs.id) AS BIGINT), \
             CAST((SELECT COUNT(*) FROM swarm_steps WHERE run_id = swarm_runs.id AND ordinal = 0) AS BIGINT) \
             FROM swarm_runs WHERE id = $1";
        let run = self.row(sql, &asked.id);
        let (told, of_steps, steps): (i64, i64, i64) = (run.get(0), run.get(1), run.get(2));
        match charges == steps && credits > 0 && (told, of_steps) == (credits, credits) {
            true => Vec::new(),
            false => vec![format!(
                "{charges} charges of {credits} for {steps} calls of the model; it says {told}, and its steps {of_steps}"
            )],
        }
    }

    /// Checks the effects of an agent: keyed effects once, unsafe ones at most once, and none is lost.
    fn effects(&self, asked: &Asked, number: usize, agent: &str) -> Vec<String> {
        let task = format!("{}/{agent}", asked.tag);
        let mut faults = Vec::new();
        let (read, _) = self.outside.sent(Kind::Read, &task);
        if read == 0 {
            faults.push(format!("{agent} has read nothing"));
        }
        let (sent, keys) = self.outside.sent(Kind::Keyed, &task);
        if sent == 0 || keys != 1 {
            faults.push(format!("{agent} has sent {sent} times under {keys} keys"));
        }
        let (sent, _) = self.outside.sent(Kind::Unsafe, &task);
        let sql = format!(
            "SELECT state FROM swarm_steps WHERE run_id = $1 AND agent = {number} AND ordinal = {}",
            Kind::ALL.len()
        );
        let state: String = self.row(&sql, &asked.id).get(0);
        let is_right = match &*state {
            "done" => sent == 1,
            "uncertain" => sent <= 1,
            _ => false,
        };
        if !is_right {
            faults.push(format!(
                "{agent} has sent what is unsafe {sent} times, and it is {state}"
            ));
        }
        faults
    }

    /// Stops all nodes once no hold is open, prints the faults, and returns whether there are none.
    fn close(mut self, row: &str, figures: &str) -> bool {
        let (closed, totals) = self.runtime.block_on(async {
            let books = self.api.books().await;
            let limit = LEDGER_LEASE + PATIENCE;
            let closed = wait_until(limit, async || books.totals().await.open == 0).await;
            let totals = books.totals().await;
            books.close().await;
            self.database.close().await;
            (closed, totals)
        });
        let sound = self.api.is_sound();
        let nodes = std::iter::once(&self.api).chain(&self.executors);
        let panics: usize = nodes.map(Node::panics).sum();
        for executor in &mut self.executors {
            executor.kill();
        }
        self.api.kill();
        println!(
            "{row}: {}: {figures}; {} faults, {} charges, last open hold gone after {}, ledger sound: {sound}, {panics} panics",
            self.name,
            self.faults.len(),
            totals.charged,
            shown(closed),
        );
        self.faults.is_empty() && closed.is_some() && sound && (totals.overrun, panics) == (0, 0)
    }
}

/// Counts a swarm's model calls.
const MODEL_STEPS: &str =
    "SELECT CAST(COUNT(*) AS BIGINT) FROM swarm_steps WHERE run_id = $1 AND ordinal = 0";

/// A user on a plan that has swarms.
fn user(api: &Node, name: &str) -> Client {
    let client = api.client_of(name, TOP_UP);
    let (_, set) = api.run(&["user", "set-plan", "--user", name, "--plan", "pro"]);
    assert!(set, "the plan is set");
    client
}
