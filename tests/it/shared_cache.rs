//! Nodes that share a Redis: round trips of a request, records in the process, and limits in slices.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;
use tests::gateway::USER;
use tests::stores::{Postgres, Redis, Sentinels};
use tests::{Client, Gateway, chat};
use weir_identity::part_rates::PartRate;
use weir_ledger::BudgetPart;
use weir_storage::Cache;
use weir_storage::cache::{
    Bucket, CallerLookup, CredentialRecord, Rate, RecordKey, RecordLookup, Tombstone,
};
use weir_storage::clock::Clock;

const MINUTE: Duration = Duration::from_secs(60);

/// Time in which a revocation must reach all nodes: a second, and what a busy machine adds. A record would stay for 15 s.
const SOON: Duration = Duration::from_secs(5);

/// The work of a Redis since its start, by its own count.
#[derive(Debug, Clone, Copy)]
struct Work {
    /// Reads from clients: at least one a round trip.
    reads: u64,
    /// Commands, with those of scripts.
    commands: u64,
    scripts: u64,
}

impl Work {
    fn of(redis: &Redis) -> Self {
        let stats = redis.info();
        let count = |name: &str| stats.get(name).and_then(|text| text.parse().ok());
        let calls = |name: &str| {
            let text = stats.get(name)?.strip_prefix("calls=")?;
            text.split(',').next()?.parse().ok()
        };
        Self {
            reads: count("total_reads_processed").expect("a number"),
            commands: count("total_commands_processed").expect("a number"),
            scripts: calls("cmdstat_evalsha").expect("a number"),
        }
    }
}

/// Sends requests one after another. Returns the round trips, commands and scripts that Redis counts meanwhile.
async fn measure(redis: &Redis, requests: u64, send: impl AsyncFn()) -> Work {
    let (before, began) = (Work::of(redis), Instant::now());
    for _ in 0..requests {
        send().await;
    }
    let seconds = began.elapsed().as_secs() + 1;
    let after = Work::of(redis);
    // Each second, a node writes once, looks for pauses once, pings twice, and sends what it has collected up to 50
    // times. This query counts as well.
    let beside = 60 * seconds;
    Work {
        reads: (after.reads - before.reads).saturating_sub(beside),
        commands: after.commands - before.commands,
        scripts: (after.scripts - before.scripts).saturating_sub(2 * seconds),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_cost_at_most_one_round_trip_to_redis() {
    const REQUESTS: u64 = 300;
    let redis = Redis::start();
    // Limits without slices, so that each request must ask.
    let gateway = Gateway::builder()
        .redis(&redis.url())
        .tables("[rate_limits]\nfree = 1000\naddress = 1000\n")
        .start()
        .await;
    let client = gateway.client();
    let send = async || {
        let answer = client.post("/chat", &chat("demo", "Hello")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    // The first one reads the key in the database, and the second one in Redis.
    measure(&redis, 2, &send).await;
    let work = measure(&redis, REQUESTS, &send).await;
    assert!(work.reads <= REQUESTS, "{work:?}");
    assert!(work.scripts <= REQUESTS + REQUESTS / 10, "{work:?}");
    assert!(
        work.commands <= 7 * REQUESTS,
        "two limits are read and written: {work:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn all_rates_of_an_account_are_counted_in_one_round_trip() {
    const REQUESTS: u64 = 100;
    let redis = Redis::start();
    let gateway = Gateway::builder()
        .redis(&redis.url())
        .tables("[rate_limits]\nfree = 1000\naddress = 1000\n")
        .start()
        .await;
    let rate = PartRate {
        requests_per_minute: NonZeroU32::new(1_000),
        tokens_per_minute: NonZeroU32::new(1_000_000),
    };
    let id = weir_identity::api_key::RawKey::parse(gateway.key()).expect("a key");
    for part in [
        BudgetPart::Key(id.id().to_owned()),
        BudgetPart::Model("demo".to_owned()),
    ] {
        let set = weir_identity::users::set_rate(gateway.app(), USER, part, rate);
        set.await.expect("the stores answer");
    }
    // A change makes the user's records doubtful for a quarter of an hour.
    redis.command("EVAL \"for _, key in ipairs(redis.call('KEYS', 'weir:tombstone:*')) do redis.call('DEL', key) end return 1\" 0");
    let client = gateway.client();
    let send = async || {
        let answer = client.post("/chat", &chat("demo", "Hello")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    measure(&redis, 2, &send).await;
    let work = measure(&redis, REQUESTS, &send).await;
    assert!(work.reads <= 2 * REQUESTS + REQUESTS / 10, "{work:?}");
}

async fn two_nodes(redis: &Redis, tables: &str) -> [Gateway; 2] {
    let database = Postgres::shared().create_database().await;
    let node = || {
        let builder = Gateway::builder().postgres(&database).redis(&redis.url());
        builder.tables(tables)
    };
    let first = node().start().await;
    let second = node().sharing_secrets_of(&first).start().await;
    [first, second]
}

/// Uses a new key on all nodes until each has its record, and returns its id and its clients.
async fn known_key(nodes: &[Gateway; 2], user: &str) -> (String, Vec<Client>) {
    let web = nodes[0].web(user);
    let made = web.post("/api-keys", &json!({ "name": "a" })).await.json();
    let key = made["api_key"].as_str().expect("a raw key");
    let clients: Vec<_> = nodes
        .iter()
        .map(|node| node.stranger().with_key(key))
        .collect();
    for client in &clients {
        for _ in 0..3 {
            assert_eq!(client.get("/models").await.status, 200);
        }
    }
    (made["key_id"].as_str().expect("an id").to_owned(), clients)
}

async fn revoke(node: &Gateway, user: &str, id: &str) {
    let revoked = node.web(user).delete(&format!("/api-keys/{id}")).await;
    assert_eq!(revoked.status, 204, "{}", revoked.text());
}

async fn until_rejected(client: &Client) -> Duration {
    let began = Instant::now();
    while client.get("/models").await.status != 401 {
        assert!(began.elapsed() < 20 * SOON, "it is never rejected");
    }
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_keys_are_rejected_on_all_nodes_within_a_second() {
    let redis = Redis::start();
    let nodes = two_nodes(&redis, "").await;
    for round in 0..3 {
        let (id, clients) = known_key(&nodes, "alice").await;
        revoke(&nodes[0], "alice", &id).await;
        clients[0]
            .get("/models")
            .await
            .error(401, "UNAUTHENTICATED");
        let after = until_rejected(&clients[1]).await;
        assert!(after < SOON, "{round}: {after:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_keys_are_rejected_soon_after_a_lost_subscription() {
    let redis = Redis::start();
    let nodes = two_nodes(&redis, "").await;
    for round in 0..3 {
        let (id, clients) = known_key(&nodes, "alice").await;
        redis.command("CLIENT KILL TYPE pubsub");
        revoke(&nodes[0], "alice", &id).await;
        clients[0]
            .get("/models")
            .await
            .error(401, "UNAUTHENTICATED");
        let after = until_rejected(&clients[1]).await;
        assert!(after < SOON, "{round}: {after:?}");
    }
}

async fn open(redis: &Redis) -> Cache {
    let opened = Cache::open(Some(&redis.url()), &Clock::System, MINUTE).await;
    opened.expect("it answers")
}

const KEY: RecordKey<'static> = RecordKey {
    secret: "secret",
    id: "id",
};

async fn look(cache: &Cache) -> RecordLookup {
    let request = CallerLookup {
        address: None,
        record: Some(KEY),
    };
    cache.identify(&request).await.expect("it answers").record
}

/// Looks a record up until the process has it.
async fn know(cache: &Cache) {
    let until = Instant::now() + Duration::from_secs(10);
    while cache.recall(KEY).is_none() {
        assert!(Instant::now() < until, "the record is never kept");
        look(cache).await;
    }
}

/// Keeps a record in Redis.
async fn fill(cache: &Cache) {
    let record = CredentialRecord {
        user_id: "alice".to_owned(),
        rate: None,
        payload: b"x".to_vec().into(),
    };
    let request = CallerLookup {
        address: None,
        record: Some(KEY),
    };
    let epoch = cache.identify(&request).await.expect("it answers").epoch;
    let filled = cache.fill(KEY, &record, epoch, MINUTE).await;
    filled.expect("it answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_kept_only_while_ended_ones_are_announced() {
    let redis = Redis::start();
    let (one, other) = (open(&redis).await, open(&redis).await);
    fill(&one).await;
    know(&one).await;
    know(&other).await;
    // Nobody may subscribe again.
    redis.command("ACL SETUSER default resetchannels");
    redis.command("CLIENT KILL TYPE pubsub");
    let began = Instant::now();
    while one.recall(KEY).is_some() || other.recall(KEY).is_some() {
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
        tokio::task::yield_now().await;
    }
    for _ in 0..20 {
        assert!(matches!(look(&one).await, RecordLookup::Found(_)));
        assert_eq!(one.recall(KEY), None);
    }
    redis.command("ACL SETUSER default allchannels");
    know(&one).await;
    know(&other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_end_on_all_nodes_with_their_key_and_their_user() {
    let redis = Redis::start();
    let (one, other) = (open(&redis).await, open(&redis).await);
    for tombstone in [Tombstone::User("alice"), Tombstone::Record("id")] {
        fill(&one).await;
        know(&one).await;
        know(&other).await;
        let buried = one.bury(tombstone, Duration::from_millis(200)).await;
        buried.expect("it answers");
        assert_eq!(one.recall(KEY), None, "at once");
        let began = Instant::now();
        while other.recall(KEY).is_some() {
            assert!(began.elapsed() < SOON, "{tombstone:?}");
            tokio::task::yield_now().await;
        }
        let is_usable = |lookup: RecordLookup| matches!(lookup, RecordLookup::Found(_));
        assert!(!is_usable(look(&other).await), "{tombstone:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_started_node_ends_the_records_of_all_nodes() {
    let redis = Redis::start();
    let running = open(&redis).await;
    fill(&running).await;
    know(&running).await;
    // An operator may have restored an earlier database, which does not know the key.
    let started = open(&redis).await;
    started.begin_epoch().await.expect("it answers");
    let began = Instant::now();
    while running.recall(KEY).is_some() {
        assert!(began.elapsed() < SOON);
        tokio::task::yield_now().await;
    }
    assert_eq!(look(&running).await, RecordLookup::Missing);
}

/// A limit with slices, for nodes that share it evenly and unevenly.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nodes_never_pass_a_limit_together() {
    const LIMIT: u32 = 12_000;
    let redis = Redis::start();
    let rate = Rate::per_minute(NonZeroU32::new(LIMIT).expect("not zero"));
    let caches = join_all((0..3).map(|_| open(&redis))).await;
    for (user, nodes) in [("one", &caches[..1]), ("all", &caches[..])] {
        let (began, before) = (Instant::now(), Work::of(&redis));
        let take = async |cache: &Cache| {
            let mut allowed: u32 = 0;
            loop {
                let limits = [
                    (Bucket::User(user), rate),
                    (
                        Bucket::Address("127.0.0.1"),
                        Rate::per_minute(NonZeroU32::MAX),
                    ),
                ];
                let decisions = cache.count(&limits).await.expect("it answers");
                if decisions.iter().any(|decision| !decision.allowed) {
                    return allowed;
                }
                allowed += 1;
            }
        };
        // Requests of a node are concurrent.
        let take = &take;
        let work = nodes
            .iter()
            .flat_map(|cache| (0..8).map(move |_| take(cache)));
        let allowed: u32 = join_all(work).await.into_iter().sum();
        let refilled = began.elapsed().as_micros() * u128::from(LIMIT) / 60_000_000;
        let most = LIMIT + u32::try_from(refilled).expect("few") + 1;
        assert!(
            (LIMIT - LIMIT / 10..=most).contains(&allowed),
            "{user}: {allowed} of {most}"
        );
        // In each second, nodes lease at most a twentieth of the limit.
        let scripts = Work::of(&redis).scripts - before.scripts;
        assert!(
            scripts + u64::from(LIMIT) / 40 < allowed.into(),
            "{user}: slices save round trips: {scripts} for {allowed}"
        );
    }
}

/// Through the API, with requests of one key on two nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_of_two_gateways_is_exact_or_under_by_their_slices() {
    const LIMIT: u32 = 1_200;
    let redis = Redis::start();
    let nodes = two_nodes(
        &redis,
        &format!("[rate_limits]\nfree = {LIMIT}\naddress = 1000000\n"),
    )
    .await;
    let (_, clients) = known_key(&nodes, "alice").await;
    let began = Instant::now();
    let send = async |client: &Client| {
        let mut seen = BTreeMap::<u16, u32>::new();
        while !seen.contains_key(&429) {
            let status = client.get("/models").await.status.as_u16();
            *seen.entry(status).or_default() += 1;
        }
        seen
    };
    let send = &send;
    let work = clients
        .iter()
        .flat_map(|client| (0..4).map(move |_| send(client)));
    let mut seen = BTreeMap::<u16, u32>::new();
    for (status, count) in join_all(work).await.into_iter().flatten() {
        *seen.entry(status).or_default() += count;
    }
    let refilled = began.elapsed().as_millis() * u128::from(LIMIT) / 60_000;
    // Before that, each node has served three requests, and the key was made.
    let most = LIMIT + u32::try_from(refilled).expect("few") + 1;
    let least = LIMIT - LIMIT / 10 - 8;
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!((least..=most).contains(&seen[&200]), "{seen:?} of {most}");
}

/// Waits until the gateway serves, and returns the time since `since`.
async fn until_served(gateway: &Gateway, since: Instant) -> Duration {
    while gateway.client().get("/models").await.status != 200 {
        assert!(since.elapsed() < MINUTE, "it never serves again");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    since.elapsed()
}

/// Waits until the Sentinels have elected another master.
async fn until_elected(sentinels: &Sentinels, than: &Redis) -> Instant {
    let until = Instant::now() + MINUTE;
    while sentinels
        .master()
        .is_none_or(|[master, _]| master.port() == than.port())
    {
        assert!(Instant::now() < until, "no other master is elected");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Instant::now()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_master_that_sentinels_elect_serves_within_three_seconds() {
    let sentinels = Sentinels::start();
    let gateway = Gateway::builder()
        .redis(&sentinels.url())
        .impatient_with_redis()
        .start()
        .await;
    assert_eq!(gateway.chat("demo", "Hello").await.status, 200);
    let [first, second] = sentinels.master().expect("they agree");
    // A master that responds is demoted.
    sentinels.fail_over();
    let elected = until_elected(&sentinels, first).await;
    let served = until_served(&gateway, elected).await;
    assert!(served < Duration::from_secs(3), "{served:?}");
    // A master hangs, with its connections open.
    sentinels.wait_for_replica();
    second.pause();
    let elected = until_elected(&sentinels, second).await;
    let served = until_served(&gateway, elected).await;
    assert!(served < Duration::from_secs(3), "{served:?}");
    // It returns, and accepts writes until a Sentinel demotes it.
    second.resume();
    assert_eq!(gateway.chat("demo", "Hello").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_serves_and_its_new_master_within_three_seconds() {
    let (first, second) = (Redis::start_node(), Redis::start_node());
    let is_ok = |answer: String| answer.ends_with("+OK\r\n");
    assert!(is_ok(first.command("CLUSTER ADDSLOTSRANGE 0 16383")));
    assert!(is_ok(
        first.command(&format!("CLUSTER MEET {}", second.node_address()))
    ));
    let until = Instant::now() + MINUTE;
    let id = first.cluster_id();
    while !is_ok(second.command(&format!("CLUSTER REPLICATE {id}"))) {
        assert!(Instant::now() < until, "they never meet");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    second.wait_for("master_link_status", |status| status == "up");
    // A cluster serves two seconds after its start.
    let answers = |redis: &Redis, line: &str| {
        let answer = redis.command("SET {weir}:x 1");
        answer
            .lines()
            .last()
            .is_some_and(|last| last.starts_with(line))
    };
    while !(answers(&first, "+OK") && answers(&second, "-MOVED")) {
        assert!(Instant::now() < until, "the cluster is never complete");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let url = Redis::url_of("redis-cluster", &[&first, &second], "");
    let opened = async || Cache::open(Some(&url), &Clock::System, MINUTE).await;
    let cache = opened().await.expect("it answers");
    // Scripts of several keys, pipelines and single keys.
    fill(&cache).await;
    know(&cache).await;
    let names = ["a", "b"].map(std::sync::Arc::from);
    assert_eq!(cache.pauses(&names).await, Ok(Some(vec![None, None])));
    let put = cache.put_large("large", vec![1; 100], MINUTE, 1).await;
    put.expect("it answers");
    assert_eq!(cache.clear_lockout("127.0.0.1").await, Ok(false));
    let gateway = Gateway::builder()
        .redis(&url)
        .impatient_with_redis()
        .start()
        .await;
    assert_eq!(gateway.chat("demo", "Hello").await.status, 200);
    assert!(is_ok(second.command("CLUSTER FAILOVER")));
    second.wait_for("role", |role| role == "master");
    let served = until_served(&gateway, Instant::now()).await;
    assert!(served < Duration::from_secs(3), "{served:?}");
    assert_eq!(gateway.chat("demo", "Hello").await.status, 200);
    // Without weir's slot, no node serves its keys.
    let ready = async || gateway.stranger().get("/health/ready").await.status;
    assert_eq!(ready().await, 200);
    assert!(is_ok(second.command("CLUSTER DELSLOTSRANGE 0 16383")));
    assert_eq!(ready().await, 503);
    gateway
        .chat("demo", "Hello")
        .await
        .error(503, "CACHE_UNAVAILABLE");
    assert!(is_ok(second.command("CLUSTER ADDSLOTSRANGE 0 16383")));
    until_served(&gateway, Instant::now()).await;
}
