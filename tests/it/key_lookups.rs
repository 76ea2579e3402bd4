//! Look-ups of keys after a flush or a failover of the cache: no stampede, no refusal of a valid key, and no return
//! of a revoked one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tests::client::patiently;
use tests::stores::{Postgres, Redis};
use tests::{Client, Gateway};
use weir_identity::api_key::RawKey;
use weir_request::audit::Actor;
use weir_storage::Cache;
use weir_storage::cache::{CallerLookup, CredentialRecord, FillResult, RecordKey, Tombstone};
use weir_storage::clock::{Clock, Millis};
use weir_storage::ids::Hex;

const KEYS: usize = 2_000;
const USERS: usize = 200;

/// Concurrent requests, at each of two nodes.
const CLIENTS: usize = 32;

const MINUTE: Duration = Duration::from_secs(60);

/// Creates users and keys, more than the API permits a user, in a few statements.
async fn make_keys(gateway: &Gateway) -> Vec<RawKey> {
    let app = gateway.app();
    let (pepper, now) = (app.identity.key_peppers.current(), Millis::now());
    let keys: Vec<_> = (0..KEYS).map(|_| RawKey::generate()).collect();
    let users: Vec<_> = (0..USERS).map(|user| format!("usr_{user}")).collect();
    sqlx::query(
        "INSERT INTO users (id, created_at) SELECT value, $2 FROM jsonb_array_elements_text(CAST($1 AS JSONB))",
    )
    .bind(json!(users).to_string())
    .bind(now.0)
    .execute(app.database.writer())
    .await
    .expect("users can be made");
    let rows: Vec<_> = keys
        .iter()
        .enumerate()
        .map(|(index, key)| {
            json!({ "id": key.id(), "user_id": users[index % USERS], "hash": Hex(&key.hash(&pepper.key)).to_string(),
                "prefix": key.prefix() })
        })
        .collect();
    sqlx::query(
        "INSERT INTO api_keys (id, user_id, name, prefix, hash, pepper_version, created_at, expires_at) \
         SELECT id, user_id, 'k', prefix, decode(hash, 'hex'), $2, $3, $4 \
         FROM jsonb_to_recordset(CAST($1 AS JSONB)) AS made (id TEXT, user_id TEXT, hash TEXT, prefix TEXT)",
    )
    .bind(json!(rows).to_string())
    .bind(pepper.version)
    .bind(now.0)
    .bind(now.plus_days(1).0)
    .execute(app.database.writer())
    .await
    .expect("keys can be made");
    keys
}

/// Counts the keys that a node has looked up in the database.
async fn lookups(gateway: &Gateway) -> usize {
    let metrics = gateway.stranger().get("/metrics").await.text();
    let mut lines = metrics.lines();
    let line = lines.find_map(|line| line.strip_prefix("weir_key_lookups_total "));
    line.expect("a figure").parse().expect("a number")
}

/// Sends requests with each key to a node, many at once, and counts the responses by status.
async fn use_all(gateway: &Gateway, keys: &[RawKey], times: usize) -> BTreeMap<u16, usize> {
    let next = AtomicUsize::new(0);
    let clients: Vec<Client> = (0..CLIENTS).map(|_| gateway.stranger()).collect();
    let work = clients.into_iter().map(|client| {
        let next = &next;
        async move {
            let mut seen: BTreeMap<u16, usize> = BTreeMap::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                // The same key several times in a row: concurrent requests.
                let Some(key) = keys.get(index / times) else {
                    return seen;
                };
                let answer = client.clone().with_key(key.expose()).get("/models").await;
                *seen.entry(answer.status.as_u16()).or_default() += 1;
            }
        }
    });
    let mut all: BTreeMap<u16, usize> = BTreeMap::new();
    for seen in patiently(join_all(work)).await {
        for (status, count) in seen {
            *all.entry(status).or_default() += count;
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn after_a_flush_each_node_looks_each_key_up_once_and_refuses_no_sound_one() {
    let (postgres, redis) = (Postgres::shared(), Redis::start());
    let database = postgres.create_database().await;
    let node = || Gateway::builder().postgres(&database).redis(&redis.url());
    let first = node().start().await;
    let second = node().sharing_secrets_of(&first).start().await;
    let nodes = [&first, &second];
    let mut keys = make_keys(&first).await;
    let revoked = keys.pop().expect("a key");
    assert_eq!(
        use_all(&first, &keys, 1).await,
        BTreeMap::from([(200, keys.len())])
    );
    let owner = format!("usr_{}", (KEYS - 1) % USERS);
    assert_eq!(
        first
            .stranger()
            .with_key(revoked.expose())
            .get("/models")
            .await
            .status,
        200
    );
    let by = Actor::local(0);
    let ended = weir_identity::revoke(first.app(), &owner, revoked.id(), &by).await;
    ended.expect("the stores answer");

    let before = [lookups(&first).await, lookups(&second).await];
    // While requests are under way: some find their keys before the flush, and most after it.
    let half = KEYS / 2;
    let (early, late) = tokio::join!(use_all(&first, &keys[half..], 1), async {
        redis.command("FLUSHALL");
        tokio::join!(
            use_all(&first, &keys[..half], 2),
            use_all(&second, &keys, 1)
        )
    });
    let mut seen = early;
    for (status, count) in late.0.into_iter().chain(late.1) {
        *seen.entry(status).or_default() += count;
    }
    let all: usize = seen.values().sum();
    assert_eq!(seen.get(&401), None, "{seen:?}");
    let refused = all - seen[&200];
    assert!(refused * 100 <= all, "{seen:?}");
    for (node, before) in nodes.into_iter().zip(before) {
        let looked_up = lookups(node).await - before;
        assert!(looked_up <= KEYS, "{looked_up} look-ups of {KEYS} keys");
        let answer = node
            .stranger()
            .with_key(revoked.expose())
            .get("/models")
            .await;
        answer.error(401, "UNAUTHENTICATED");
    }
    // The cache has all of them again.
    let before = [lookups(&first).await, lookups(&second).await];
    for node in nodes {
        let seen = use_all(node, &keys[..500], 1).await;
        assert_eq!(seen, BTreeMap::from([(200, 500)]));
    }
    assert_eq!([lookups(&first).await, lookups(&second).await], before);
}

/// A reader that looked before a flush cannot restore a key whose tombstone the flush has removed; nor does a record
/// outlive the server that may have lost its tombstone.
#[tokio::test(flavor = "multi_thread")]
async fn a_flush_and_a_restart_begin_another_epoch() {
    let redis = Redis::start();
    let open = async || Cache::open(Some(&redis.url()), &Clock::System, MINUTE).await;
    let cache = open().await.expect("it answers");
    let key = RecordKey {
        secret: "s",
        id: "id",
    };
    let record = CredentialRecord {
        user_id: "alice".to_owned(),
        rate: None,
        payload: b"x".to_vec().into(),
    };
    let look = async |cache: &Cache| {
        let request = CallerLookup {
            address: None,
            record: Some(key),
        };
        cache.identify(&request).await.expect("it answers")
    };
    let before = look(&cache).await.epoch;
    assert_eq!(look(&cache).await.epoch, before, "it lasts");
    let another = open().await.expect("it answers");
    assert_eq!(look(&another).await.epoch, before, "for all nodes");
    cache
        .bury(Tombstone::Record("id"), MINUTE)
        .await
        .expect("it answers");
    redis.command("FLUSHALL");
    let fill = async |since| cache.fill(key, &record, since, MINUTE).await;
    assert_eq!(fill(before).await, Ok(FillResult::Outdated));
    let after = look(&cache).await.epoch;
    assert!(after > before, "{after:?} {before:?}");
    assert_eq!(fill(before).await, Ok(FillResult::Outdated));
    assert_eq!(fill(after).await, Ok(FillResult::Kept));
    assert_eq!(look(&another).await.epoch, after);

    // Another server has the same data, and another id, as after a restart from a snapshot.
    redis.command("SAVE");
    redis.kill();
    redis.restart();
    let restarted = patiently(async {
        loop {
            let request = CallerLookup {
                address: None,
                record: Some(key),
            };
            match cache.identify(&request).await {
                Ok(found) => return found,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    })
    .await;
    assert!(restarted.epoch > after, "{restarted:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_requests_with_one_unknown_key_one_looks_it_up() {
    let gateway = Gateway::start().await;
    let made = gateway
        .web("bob")
        .post("/api-keys", &json!({}))
        .await
        .json();
    let key = made["api_key"].as_str().expect("a key");
    let before = lookups(&gateway).await;
    let asking = (0..200).map(|_| async {
        let answer = gateway.stranger().with_key(key).get("/models").await;
        assert_eq!(answer.status, 200);
    });
    patiently(join_all(asking)).await;
    assert_eq!(lookups(&gateway).await - before, 1);
}
