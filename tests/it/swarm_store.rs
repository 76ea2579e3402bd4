//! The executor of a swarm, on both databases: a lost executor is replaced, and a returning one writes nothing.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tests::client::patiently;
use tests::gateway::{Builder, on_each_database};
use tests::stores::each_database;
use tests::{Gate, Gateway, Reply, Upstream};
use weir_ledger::Credits;
use weir_ledger::verify::verify;
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::ids;
use weir_storage::sealing::KeyRing;
use weir_storage::secrets::SecretKey;
use weir_swarms::swarm::record::{SwarmOutcome, SwarmStatus};
use weir_swarms::swarm::request::{Defaults, SwarmCaller, SwarmRequest, read};
use weir_swarms::swarm::store::{AcceptResult, LeaseError, NewRun, StepPosition, SwarmStore};

use crate::billing::is_settled;
use crate::swarm_events::numbered;

/// The maximum runs of one user at an executor of these tests.
const SHARE: u32 = 100;

fn request() -> SwarmRequest {
    let body = json!({ "swarm_id": "s", "agents": [
        { "name": "a", "system_prompt": "", "task_prompt": "x", "model": "m" },
    ] });
    let defaults = Defaults {
        model: None,
        tool: &|_| None,
        integration: &|_| true,
    };
    let read = read(body.to_string().as_bytes(), SwarmCaller::User, defaults);
    read.expect("it is sound").0
}

async fn store(database: &Database, users: &[&str]) -> SwarmStore {
    for user in users {
        sqlx::query("INSERT INTO users (id, created_at) VALUES ($1, 1)")
            .bind(*user)
            .execute(database.writer())
            .await
            .expect("the database answers");
    }
    SwarmStore::new(
        database.clone(),
        KeyRing::of([(1, SecretKey::new([1; 32]))]),
    )
}

async fn accept(store: &SwarmStore, user: &str) -> String {
    let id = ids::swarm_id();
    let run = NewRun {
        id: &id,
        user_id: user,
        parts: &[],
        request: &request(),
        budget: Credits::whole(1),
        key: None,
        at: Millis(1),
        deadline: Millis(1_000_000),
    };
    let accepted = store.accept(&run).await.expect("the database answers");
    assert_eq!(accepted, AcceptResult::New);
    id
}

#[tokio::test]
async fn a_tools_call_has_one_key_on_all_nodes_and_nobody_else_can_make_it_up() {
    each_database(async |stores| {
        let node = |key: u8| {
            let keys = KeyRing::of([(1, SecretKey::new([key; 32]))]);
            SwarmStore::new(stores.database.clone(), keys)
        };
        let place = StepPosition {
            agent: 0,
            iteration: 2,
            ordinal: 1,
        };
        let next = StepPosition {
            ordinal: 2,
            ..place
        };
        let key = node(1).call_key("run", place, "call_1", &[7; 32]);
        assert_eq!(key.len(), 64);
        assert_eq!(node(1).call_key("run", place, "call_1", &[7; 32]), key);
        for other in [
            node(2).call_key("run", place, "call_1", &[7; 32]),
            node(1).call_key("run2", place, "call_1", &[7; 32]),
            node(1).call_key("run", next, "call_1", &[7; 32]),
            node(1).call_key("run", place, "call_2", &[7; 32]),
            node(1).call_key("run", place, "call_1", &[8; 32]),
        ] {
            assert_ne!(other, key);
        }
    })
    .await;
}

#[tokio::test]
async fn of_two_executors_that_race_for_a_lapsed_lease_one_has_it() {
    each_database(async |stores| {
        let store = store(&stores.database, &["alice"]).await;
        let id = accept(&store, "alice").await;
        for round in 0..50 {
            let now = Millis(1_000 * (round + 1));
            let claim = |owner| {
                let store = &store;
                async move { store.claim(owner, SHARE, now, Millis(now.0 + 1_000)).await }
            };
            let (one, other) = tokio::join!(claim("one"), claim("other"));
            let claims = [one, other].map(|claim| claim.expect("the database answers"));
            let claims: Vec<_> = claims.into_iter().flatten().collect();
            assert_eq!(claims.len(), 1, "round {round}");
            assert_eq!((&claims[0].run_id, claims[0].fence), (&id, round + 1));
        }
        // The first claim was no recovery.
        let run = store.find(&id).await.expect("an answer").expect("a run");
        assert_eq!(run.recoveries, 49);
    })
    .await;
}

#[tokio::test]
async fn an_executor_whose_lease_is_over_writes_nothing() {
    each_database(async |stores| {
        let store = store(&stores.database, &["alice"]).await;
        let id = accept(&store, "alice").await;
        let claim = async |owner, now, until| {
            let claim = store.claim(owner, SHARE, Millis(now), Millis(until)).await;
            claim.expect("the database answers").expect("a run")
        };
        let zombie = claim("zombie", 1_000, 2_000).await;
        let write = zombie.begin(&store, Millis(1_500)).await.expect("a lease");
        write.commit().await.expect("the database answers");
        let is_lost = async |now| {
            let write = zombie.begin(&store, Millis(now)).await;
            assert!(matches!(write.err(), Some(LeaseError::Lost)));
            let renewed = store.renew(&zombie, Millis(now), Millis(9_000)).await;
            assert!(!renewed.expect("the database answers"));
        };
        // The lease is over, though no other executor has the run yet; and by a clock that has stood still since.
        is_lost(2_000).await;
        let heir = claim("heir", 2_000, 5_000).await;
        is_lost(1_500).await;
        is_lost(2_500).await;
        store.give_up(&zombie).await.expect("the database answers");
        let mut write = heir.begin(&store, Millis(2_500)).await.expect("a lease");
        let outcome = SwarmOutcome::default();
        write.tell("swarm_done", &json!({})).await.expect("written");
        write
            .end_run(SwarmStatus::Failed, &outcome, None)
            .await
            .expect("written");
        write.commit().await.expect("the database answers");
        is_lost(2_600).await;
        let after = heir.begin(&store, Millis(2_600)).await;
        assert!(matches!(after.err(), Some(LeaseError::Lost)), "it is over");
        let events = store.events(&id, 0).await.expect("an answer");
        assert_eq!(events.len(), 1);
        assert_eq!(store.forget(Millis(2_000)).await.expect("an answer"), 0);
        assert_eq!(store.forget(Millis(3_000)).await.expect("an answer"), 1);
        assert_eq!(store.find(&id).await.expect("an answer"), None);
    })
    .await;
}

#[tokio::test]
async fn who_has_fewest_swarms_under_way_is_next() {
    each_database(async |stores| {
        let store = store(&stores.database, &["alice", "bob"]).await;
        for user in ["alice", "alice", "alice", "bob", "bob"] {
            accept(&store, user).await;
        }
        let mut users = Vec::new();
        while let Some(lease) = store
            .claim("one", SHARE, Millis(10), Millis(1_000))
            .await
            .expect("the database answers")
        {
            let run = store.find(&lease.run_id).await.expect("an answer");
            users.push(run.expect("a run").user_id);
        }
        assert_eq!(users, ["alice", "bob", "alice", "bob", "alice"]);
    })
    .await;
}

/// The runs of one user wait for something, and those of others go on.
#[tokio::test]
async fn a_user_has_a_share_of_an_executor() {
    each_database(async |stores| {
        let store = store(&stores.database, &["alice", "bob"]).await;
        for user in ["alice", "alice", "alice", "alice", "bob"] {
            accept(&store, user).await;
        }
        let claim = async |owner| {
            let lease = store.claim(owner, 2, Millis(10), Millis(1_000)).await;
            let lease = lease.expect("the database answers")?;
            let run = store.find(&lease.run_id).await.expect("an answer");
            Some(run.expect("a run").user_id)
        };
        let mut users = Vec::new();
        while let Some(user) = claim("one").await {
            users.push(user);
        }
        assert_eq!(users, ["alice", "bob", "alice"]);
        // Another executor has slots of its own.
        assert_eq!(claim("two").await.as_deref(), Some("alice"));
    })
    .await;
}

#[tokio::test]
async fn users_take_turns_where_there_are_fewer_turns_than_users() {
    each_database(async |stores| {
        let store = store(&stores.database, &["alice", "bob", "carol"]).await;
        for user in ["alice", "alice", "alice", "bob", "bob", "carol"] {
            accept(&store, user).await;
        }
        let mut users = Vec::new();
        for turn in 1..=6 {
            let now = Millis(turn * 10);
            let lease = store.claim("one", SHARE, now, Millis(now.0 + 5)).await;
            let lease = lease.expect("the database answers").expect("a run");
            let mut write = lease.begin(&store, now).await.expect("a lease");
            write.begin_agent(0).await.expect("written");
            let outcome = SwarmOutcome::default();
            let ended = write.end_run(SwarmStatus::Failed, &outcome, None).await;
            ended.expect("written");
            write.commit().await.expect("the database answers");
            let run = store.find(&lease.run_id).await.expect("an answer");
            users.push(run.expect("a run").user_id);
        }
        let expected = ["alice", "bob", "carol", "alice", "bob", "alice"];
        assert_eq!(users, expected);
    })
    .await;
}

/// Runs a test on each database, with a waiting swarm of one agent, and no executor.
async fn with_a_swarm_that_waits(upstream: &Upstream, test: impl AsyncFn(&Gateway, &str)) {
    let configure = |builder: Builder| builder.swarms().upstream("scripted", upstream);
    on_each_database("2026-03-01T00:00:00Z", configure, async |gateway, _| {
        gateway.set_plan("pro").await;
        gateway.executor().stop().await;
        let asked = json!({ "swarm_id": "s", "agents": [
            { "name": "a", "system_prompt": "", "task_prompt": "x", "model": "scripted" },
        ] });
        let accepted = gateway.client().post("/swarms", &asked).await.json();
        let id = accepted["execution_id"].as_str().expect("an id");
        test(&gateway, id).await;
        gateway.stop().await;
    })
    .await;
}

/// Claims the swarm, as an executor that fails at once.
async fn take_up_and_vanish(gateway: &Gateway) {
    let app = gateway.app();
    let (store, now) = (&app.swarms.store, app.ledger.now());
    let lease = store
        .claim("gone", SHARE, now, Millis(now.0 + 60_000))
        .await;
    let lease = lease.expect("the database answers").expect("a run");
    let lapsed = store.renew(&lease, now, now).await;
    assert!(lapsed.expect("the database answers"));
}

async fn record_at_its_end(gateway: &Gateway, id: &str) -> Value {
    let heir = gateway.another_executor();
    let client = gateway.client();
    let events = format!("/swarms/{id}/events");
    let events = client.follow(Method::GET, &events, &Value::Null).await;
    events.rest().await;
    heir.stop().await;
    is_settled(gateway).await;
    client.get(&format!("/swarms/{id}")).await.json()
}

#[tokio::test]
async fn a_swarm_that_executors_vanish_over_is_given_up() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("Done."));
    with_a_swarm_that_waits(&upstream, async |gateway, id| {
        // The first claim is not after a failure.
        for _ in 0..=5 {
            take_up_and_vanish(gateway).await;
        }
        let record = record_at_its_end(gateway, id).await;
        assert_eq!(record["status"], "failed", "{record}");
        let error = record["error"].as_str().expect("a reason");
        assert!(
            error.starts_with("Given up: executors failed 5 times"),
            "{error}"
        );
    })
    .await;
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn a_swarm_goes_on_where_an_executor_was_killed_and_nothing_is_done_twice() {
    let postgres = tests::stores::Postgres::shared().create_database().await;
    for url in [None, Some(&postgres)] {
        let upstream = Upstream::start().await;
        let gate = Gate::new();
        upstream
            .will(Reply::chat_with_usage("One.", 10, 10))
            .will(Reply::chat_with_usage("Two.", 10, 10).after_gate(&gate))
            .will(Reply::chat_with_usage("Three.", 10, 10));
        let mut builder = Gateway::builder()
            .swarms()
            .upstream("scripted", &upstream)
            .tables("[swarms]\nlease_ms = 2000\n");
        if let Some(url) = url {
            builder = builder.postgres(url);
        }
        let gateway = builder.start().await;
        gateway.set_plan("pro").await;
        let client = gateway.client();
        let agents = ["a", "b", "c"].map(|name| {
            json!({ "name": name, "system_prompt": "", "task_prompt": name, "model": "scripted" })
        });
        let asked = json!({ "swarm_id": "s", "agents": agents });
        let accepted = client.post("/swarms", &asked).await.json();
        let id = accepted["execution_id"].as_str().expect("an id");
        patiently(gate.reached()).await;
        gateway.executor().kill();
        let heir = gateway.another_executor();
        // The executor has the run before the response arrives, and joins the call.
        patiently(async {
            while fence(&gateway, id).await < 2 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        gate.open();
        let events = format!("/swarms/{id}/events");
        let events = client.follow(Method::GET, &events, &Value::Null).await;
        let events = numbered(events.rest().await);
        assert_eq!(events.len(), 7, "{events:?}");
        let record = client.get(&format!("/swarms/{id}")).await.json();
        assert_eq!(record["status"], "completed", "{record}");
        assert_eq!(record["content"], "Three.");
        let outputs: Vec<_> = record["agents"]
            .as_array()
            .expect("a list")
            .iter()
            .collect();
        let outputs: Vec<_> = outputs.iter().map(|agent| &agent["output"]).collect();
        assert_eq!(outputs, ["One.", "Two.", "Three."]);
        assert_eq!(upstream.count(), 3, "each was asked once");
        let charges: i64 = sqlx::query_scalar(
            "SELECT CAST(COUNT(*) AS BIGINT) FROM entries WHERE kind = 'settlement' AND model = 'scripted'",
        )
        .fetch_one(gateway.folded_database().await.reader())
        .await
        .expect("an answer");
        assert_eq!(charges, 3, "each was charged once");
        heir.stop().await;
        let app = gateway.app();
        let violations = verify(&app.database, app.clock.now()).await;
        assert_eq!(violations.expect("an answer"), []);
        gateway.stop().await;
    }
}

async fn fence(gateway: &Gateway, id: &str) -> i64 {
    let run = gateway.app().swarms.store.find(id).await;
    run.expect("an answer").expect("a run").fence
}
