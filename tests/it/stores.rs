//! The stores: both databases, both caches, and outages.

use std::io::Write;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sqlx::{Connection, Executor, Row};
use tests::stores::{
    Authority, Durability, PASSWORD, Postgres, Redis, each_cache, each_combination, each_database,
    patient_database,
};
use tests::switch::{Switch, with_hosts};
use tests::{Gateway, chat, patiently};
use tracing_subscriber::layer::SubscriberExt;
use weir_identity::api_key::KeyVerdict;
use weir_identity::pepper::Peppers;
use weir_identity::store;
use weir_storage::cache::{
    Absence, Bucket, CacheError, CachedValue, CallerFindings, CallerLookup, CredentialRecord,
    FillResult, Lockout, LockoutPolicy, MAX_VALUE_BYTES, Rate, RateDecision, RecordKey,
    RecordLookup, Tombstone,
};
use weir_storage::clock::{Clock, Millis};
use weir_storage::database::Timeouts;
use weir_storage::secrets::{SecretKey, SecretUrl};
use weir_storage::{Cache, Database, ids};

const POLICY: LockoutPolicy = LockoutPolicy {
    failures: NonZeroU32::new(10).expect("10"),
    window: Duration::from_secs(300),
    block: Duration::from_secs(900),
};

/// Long enough for a busy machine, and short enough for a test that waits for their end.
const SECONDS_FOR_STORES: &str = "[stores]\nacquire_ms = 2000\nstatement_ms = 5000\n";

const MINUTE: Duration = Duration::from_secs(60);

fn rate(per_minute: u32) -> Rate {
    Rate::per_minute(NonZeroU32::new(per_minute).expect("more than 0"))
}

fn record(user_id: &str, per_minute: Option<u32>) -> CredentialRecord {
    CredentialRecord {
        user_id: user_id.into(),
        rate: per_minute.map(rate),
        payload: b"any 1 2 bytes \0\xff".to_vec().into(),
    }
}

/// A record key whose tombstone has the same key.
fn same(key: &str) -> RecordKey<'_> {
    RecordKey {
        secret: key,
        id: key,
    }
}

async fn identify(
    cache: &Cache,
    address: Option<(&str, Rate)>,
    key: Option<&str>,
) -> CallerFindings {
    let request = CallerLookup {
        address,
        record: key.map(same),
    };
    cache.identify(&request).await.expect("the cache answers")
}

/// Counts a request in one limit.
async fn count(cache: &Cache, bucket: Bucket<'_>, rate: Rate) -> Result<RateDecision, CacheError> {
    let decisions = cache.count(&[(bucket, rate)]).await?;
    Ok(decisions[0])
}

/// Keeps a record, as a reader does right after its lookup.
async fn fill(cache: &Cache, key: &str, record: &CredentialRecord, ttl: Duration) -> FillResult {
    let since = identify(cache, None, None).await.epoch;
    let filled = cache.fill(same(key), record, since, ttl).await;
    filled.expect("the cache answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_made_and_found_on_every_combination() {
    each_combination(async |stores| {
        let (database, now) = (&stores.database, Millis::now());
        let peppers = Peppers::of([(1, SecretKey::new([3; 32]))]);
        let make =
            |replace| store::create_key(database, &peppers, "älice", "laptop", replace, None, now);
        let first = make(false).await.expect("a key");
        let found = store::find_key(database, first.id())
            .await
            .expect("a look-up");
        let found = found.expect("a record");
        assert_eq!((&*found.account_id, found.disabled_at), ("älice", None));
        assert_eq!(found.judge(&first, &peppers, now), KeyVerdict::Good);
        let second = make(true).await.expect("a key");
        let found = store::find_key(database, first.id())
            .await
            .expect("a look-up");
        assert_eq!(found.expect("a record").disabled_at, Some(now));
        assert!(
            store::find_key(database, "key_0")
                .await
                .expect("a look-up")
                .is_none()
        );

        let cached = record("älice", Some(60));
        assert_eq!(
            fill(&stores.cache, second.id(), &cached, MINUTE).await,
            FillResult::Kept
        );
        let identified = identify(&stores.cache, None, Some(second.id())).await;
        assert_eq!(identified.record, RecordLookup::Found(cached));
        assert_eq!(identified.user.expect("a rate").remaining, 59);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn four_may_start_at_once_on_a_new_database() {
    let migrations = tests::source::migrations("sqlite").len() as i64;
    let folder = tempfile::tempdir().expect("a folder");
    let sqlite = format!("sqlite:{}", folder.path().join("weir.db").display());
    for url in [
        SecretUrl::new(sqlite),
        Postgres::shared().create_database().await,
    ] {
        let open = || {
            tokio::spawn({
                let url = url.clone();
                async move { Database::open(&url).await }
            })
        };
        for starter in [open(), open(), open(), open()] {
            let database = starter
                .await
                .expect("no panic")
                .unwrap_or_else(|error| panic!("{error:#}"));
            let applied: i64 =
                sqlx::query_scalar("SELECT CAST(COUNT(*) AS BIGINT) FROM _sqlx_migrations")
                    .fetch_one(database.reader())
                    .await
                    .expect("an answer");
            assert_eq!(applied, migrations);
            database.close().await;
        }
    }
}

#[tokio::test]
async fn a_transaction_that_is_dropped_leaves_nothing_and_readers_cannot_write() {
    each_database(async |stores| {
        let database = &stores.database;
        let insert = "INSERT INTO users (id, created_at) VALUES ('bob', 1)";
        let mut transaction = database.begin().await.expect("a transaction");
        transaction.execute(insert).await.expect("an insert");
        drop(transaction);
        let count = async || -> i64 {
            loop {
                let count = sqlx::query_scalar("SELECT CAST(COUNT(*) AS BIGINT) FROM users");
                match count.fetch_one(database.reader()).await {
                    // A busy machine may have no connection within a request's time limit.
                    Err(sqlx::Error::PoolTimedOut) => {}
                    outcome => break outcome.expect("a number"),
                }
            }
        };
        assert_eq!(count().await, 0);
        database
            .reader()
            .execute(insert)
            .await
            .expect_err("it is for reading");
        database.writer().execute(insert).await.expect("an insert");
        assert_eq!(count().await, 1);
    })
    .await;
}

#[tokio::test]
async fn sqlites_log_is_moved_into_its_file_by_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("weir.db");
    let url = SecretUrl::new(format!("sqlite:{}", file.display()));
    let database = patient_database(&url).await;
    let size = || std::fs::metadata(&file).expect("a file").len();
    let before = size();
    sqlx::query("INSERT INTO users (id, created_at) VALUES ($1, 1)")
        .bind("u".repeat(1 << 20))
        .execute(database.writer())
        .await
        .expect("an insert");
    let until = Instant::now() + Duration::from_secs(10);
    while size() < before + (1 << 20) {
        assert!(Instant::now() < until, "{before} bytes, and now {}", size());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A log that is never completely moved grows while writes continue.
#[tokio::test(flavor = "multi_thread")]
async fn sqlites_log_begins_anew_while_others_write() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("weir.db");
    let url = SecretUrl::new(format!("sqlite:{}", file.display()));
    let database = patient_database(&url).await;
    let log = folder.path().join("weir.db-wal");
    let user = "u".repeat(64 << 10);
    let mut written = 0_u64;
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        sqlx::query("INSERT INTO users (id, created_at) VALUES ($1, 1)")
            .bind(format!("{user}{written}"))
            .execute(database.writer())
            .await
            .expect("an insert");
        // In the row and in its index.
        written += 2 * user.len() as u64;
        let log = std::fs::metadata(&log).expect("a log").len();
        if log < written / 2 {
            return;
        }
        assert!(Instant::now() < until, "{log} of {written} bytes");
    }
}

#[tokio::test]
async fn a_burst_is_exactly_the_limit_and_refills_at_the_rate() {
    each_cache(async |stores| {
        let cache = &stores.cache;
        let take = async |bucket| count(cache, bucket, rate(600)).await.expect("an answer");
        let alice = Bucket::User("alice");
        let mut allowed = 0;
        let refused = loop {
            let decision = take(alice).await;
            if !decision.allowed {
                break decision;
            }
            allowed += 1;
            assert_eq!(decision.limit, 600);
            assert!(allowed < 700, "it never refuses");
        };
        // In real time, one more is allowed for every 100 ms of this loop.
        let slack = if stores.is_in_real_time() { 50 } else { 0 };
        assert!((600..=600 + slack).contains(&allowed), "{allowed}");
        assert!(refused.remaining == 0 && refused.retry_after <= Duration::from_millis(100));
        assert!(refused.reset_after > Duration::from_secs(59));
        assert!(
            take(Bucket::User("bob")).await.allowed,
            "each has their own"
        );
        assert!(
            take(Bucket::Address("alice")).await.allowed,
            "a user is no address"
        );
        stores.pass(refused.retry_after).await;
        assert!(take(alice).await.allowed);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_do_not_pass_together() {
    each_cache(async |stores| {
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                let cache = stores.cache.clone();
                tokio::spawn(async move {
                    let counted = count(&cache, Bucket::User("alice"), rate(5)).await;
                    counted.expect("an answer").allowed
                })
            })
            .collect();
        let mut allowed = 0;
        for task in tasks {
            allowed += u32::from(task.await.expect("no panic"));
        }
        assert_eq!(allowed, 5);
    })
    .await;
}

#[tokio::test]
async fn what_is_refused_is_not_counted_elsewhere() {
    each_cache(async |stores| {
        let cache = &stores.cache;
        let from = Some(("192.0.2.1", rate(4)));
        let fill =
            async |key: &str, record: &CredentialRecord| fill(cache, key, record, MINUTE).await;
        assert_eq!(
            fill("key", &record("alice", Some(2))).await,
            FillResult::Kept
        );

        let known = identify(cache, from, Some("key")).await;
        assert_eq!(known.address.expect("a rate").remaining, 3);
        assert_eq!(known.user.expect("a rate").remaining, 1);
        identify(cache, from, Some("key")).await;
        let limited = identify(cache, from, Some("key")).await;
        assert!(!limited.user.expect("a rate").allowed, "{limited:?}");
        assert!(
            matches!(limited.record, RecordLookup::Found(_)),
            "who it was is known"
        );
        // Two of four are left for the address, since the refused one did not count. They are reserved for known
        // callers.
        let unknown = identify(cache, from, Some("other")).await;
        assert!(!unknown.address.expect("a rate").allowed);
        assert_eq!(
            (unknown.record, unknown.user),
            (RecordLookup::Missing, None)
        );
        assert_eq!(
            fill("second", &record("bob", Some(9))).await,
            FillResult::Kept
        );
        for left in [1, 0] {
            let known = identify(cache, from, Some("second")).await;
            assert_eq!(known.address.expect("a rate").remaining, left);
        }
        let limited = identify(cache, from, Some("second")).await;
        assert!(!limited.address.expect("a rate").allowed);
        assert_eq!(
            (limited.record, limited.user),
            (RecordLookup::Missing, None)
        );
        let elsewhere = identify(cache, None, Some("second")).await;
        assert_eq!(elsewhere.user.expect("a rate").remaining, 6);
        assert_eq!(elsewhere.address, None);

        assert_eq!(fill("free", &record("carol", None)).await, FillResult::Kept);
        let free = identify(cache, None, Some("free")).await;
        assert_eq!(
            (free.record, free.user),
            (RecordLookup::Found(record("carol", None)), None)
        );
    })
    .await;
}

#[tokio::test]
async fn the_tenth_failure_shuts_an_address_out() {
    each_cache(async |stores| {
        let cache = &stores.cache;
        let policy = LockoutPolicy {
            window: Duration::from_secs(4),
            block: Duration::from_secs(2),
            ..POLICY
        };
        let fail = async |policy| {
            cache
                .count_failure("192.0.2.1", policy)
                .await
                .expect("an answer")
        };
        let from = Some(("192.0.2.1", rate(60)));
        for _ in 0..9 {
            assert_eq!(fail(policy).await, None);
        }
        assert_eq!(identify(cache, from, None).await.locked_out, None);
        assert_eq!(fail(policy).await, Some(policy.block));
        let out = identify(cache, from, None).await;
        assert!(
            out.locked_out.is_some_and(|left| left <= policy.block),
            "{out:?}"
        );
        assert_eq!(out.address, None);
        assert!(fail(policy).await.is_some());
        assert_eq!(
            identify(cache, Some(("192.0.2.2", rate(60))), None)
                .await
                .locked_out,
            None
        );
        stores.pass(policy.block).await;
        assert_eq!(identify(cache, from, None).await.locked_out, None);

        // The first nine are too old at the time of the tenth.
        for _ in 0..9 {
            assert_eq!(fail(policy).await, None);
        }
        stores.pass(policy.window).await;
        for _ in 0..9 {
            assert_eq!(fail(policy).await, None);
        }
        assert_eq!(fail(policy).await, Some(policy.block));
    })
    .await;
}

/// Strangers behind the address of a known caller can neither shut the caller out nor use up the address's rate.
#[tokio::test]
async fn who_is_known_is_served_beside_strangers_from_the_same_address() {
    each_cache(async |stores| {
        let cache = &stores.cache;
        let from = Some(("192.0.2.1", rate(8)));
        fill(cache, "key", &record("alice", None), MINUTE).await;
        for left in (0..4).rev() {
            let stranger = identify(cache, from, Some("other")).await;
            assert_eq!(stranger.address.expect("a rate").remaining, left);
        }
        let stranger = identify(cache, from, Some("other")).await;
        assert!(!stranger.address.expect("a rate").allowed);
        for left in [3, 2] {
            let known = identify(cache, from, Some("key")).await;
            assert_eq!(known.address.expect("a rate").remaining, left);
        }
        for _ in 0..10 {
            let failed = cache.count_failure("192.0.2.1", POLICY).await;
            failed.expect("an answer");
        }
        for unknown in [None, Some("other")] {
            let out = identify(cache, from, unknown).await;
            assert!(out.locked_out.is_some(), "{out:?}");
        }
        let known = identify(cache, from, Some("key")).await;
        assert_eq!(known.locked_out, None);
        assert_eq!(known.record, RecordLookup::Found(record("alice", None)));
        let buried = Tombstone::Record("key");
        cache.bury(buried, MINUTE).await.expect("an answer");
        let revoked = identify(cache, from, Some("key")).await;
        assert!(revoked.locked_out.is_some(), "{revoked:?}");
    })
    .await;
}

#[tokio::test]
async fn lockouts_are_listed_and_cleared() {
    each_cache(async |stores| {
        let cache = &stores.cache;
        let lock_out = async |address: &str, times: u32| {
            for _ in 0..times {
                let failed = cache.count_failure(address, POLICY).await;
                failed.expect("an answer");
            }
        };
        let listed = async |most| {
            let found = cache.lockouts(most).await.expect("an answer");
            let shown = |lockout: Lockout| {
                assert!(lockout.left <= POLICY.block && lockout.left > POLICY.block / 2);
                (lockout.address, lockout.failures)
            };
            found.into_iter().map(shown).collect::<Vec<_>>()
        };
        assert_eq!(listed(9).await, []);
        lock_out("192.0.2.1", 10).await;
        lock_out("192.0.2.2", 9).await;
        stores.pass(Duration::from_millis(5)).await;
        lock_out("2001:db8::", 12).await;
        let from = Some(("2001:db8::", rate(60)));
        identify(cache, from, None).await;
        let both = [("2001:db8::".to_owned(), 13), ("192.0.2.1".to_owned(), 10)];
        assert_eq!(listed(9).await, both);
        assert_eq!(listed(1).await, both[..1]);
        for (address, was_out) in [("192.0.2.2", false), ("2001:db8::", true)] {
            assert_eq!(cache.clear_lockout(address).await, Ok(was_out));
            assert_eq!(cache.clear_lockout(address).await, Ok(false));
        }
        assert_eq!(listed(9).await, both[1..]);
        assert_eq!(identify(cache, from, None).await.locked_out, None);
        for address in ["192.0.2.2", "2001:db8::"] {
            lock_out(address, 9).await;
        }
        assert_eq!(listed(9).await, both[1..], "what they had is forgotten");
    })
    .await;
}

#[tokio::test]
async fn a_users_tombstone_stands_on_all_of_their_records_and_on_nobody_elses() {
    each_cache(async |stores| {
        let cache = &stores.cache;
        let fill =
            async |key: &str, user: &str| fill(cache, key, &record(user, Some(60)), MINUTE).await;
        let look = async |key: &str| identify(cache, None, Some(key)).await;
        for (key, user) in [("first", "alice"), ("other", "bob")] {
            assert_eq!(fill(key, user).await, FillResult::Kept);
        }
        let buried = Tombstone::User("alice");
        cache.bury(buried, MINUTE).await.expect("an answer");
        let found = look("first").await;
        assert_eq!((found.record, found.user), (RecordLookup::Doubtful, None));
        // A writer of a value may have looked it up before.
        for key in ["first", "second"] {
            assert_eq!(fill(key, "alice").await, FillResult::InDoubt);
            assert_eq!(look(key).await.record, RecordLookup::Doubtful);
        }
        for _ in 0..10 {
            let failed = cache.count_failure("192.0.2.1", POLICY).await;
            failed.expect("an answer");
        }
        let from = Some(("192.0.2.1", rate(8)));
        let known = identify(cache, from, Some("second")).await;
        assert_eq!(
            (known.locked_out, known.record),
            (None, RecordLookup::Doubtful)
        );
        assert_eq!(
            look("other").await.record,
            RecordLookup::Found(record("bob", Some(60)))
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_failures_at_once_shut_out_once() {
    each_cache(async |stores| {
        let tasks: Vec<_> = (0..10)
            .map(|_| {
                let cache = stores.cache.clone();
                tokio::spawn(async move { cache.count_failure("192.0.2.1", POLICY).await })
            })
            .collect();
        let mut shut_out = 0;
        for task in tasks {
            let outcome = task.await.expect("no panic").expect("an answer");
            shut_out += u32::from(outcome.is_some());
        }
        assert_eq!(shut_out, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_buried_record_does_not_come_back() {
    each_cache(async |stores| {
        for round in 0..20 {
            let key = format!("key {round}");
            let alice = record("alice", Some(60));
            let fill = || {
                let (cache, key, alice) = (stores.cache.clone(), key.clone(), alice.clone());
                tokio::spawn(async move { fill(&cache, &key, &alice, MINUTE).await })
            };
            let mut fills: Vec<_> = (0..50).map(|_| fill()).collect();
            stores
                .cache
                .bury(Tombstone::Record(&key), MINUTE)
                .await
                .expect("an answer");
            fills.extend((0..50).map(|_| fill()));
            assert_eq!(
                identify(&stores.cache, None, Some(&key)).await.record,
                RecordLookup::Revoked
            );
            for fill in fills {
                fill.await.expect("no panic");
            }
            let found = identify(&stores.cache, None, Some(&key)).await;
            assert_eq!((found.record, found.user), (RecordLookup::Revoked, None));
        }
    })
    .await;
}

#[tokio::test]
async fn records_and_tombstones_expire() {
    each_cache(async |stores| {
        let (cache, ttl) = (&stores.cache, Duration::from_secs(2));
        let alice = record("alice", None);
        let look = async || identify(cache, None, Some("key")).await.record;
        assert_eq!(fill(cache, "key", &alice, ttl).await, FillResult::Kept);
        assert_eq!(look().await, RecordLookup::Found(alice.clone()));
        stores.pass(ttl).await;
        assert_eq!(look().await, RecordLookup::Missing);
        cache
            .bury(Tombstone::Record("key"), ttl)
            .await
            .expect("an answer");
        assert_eq!(fill(cache, "key", &alice, ttl).await, FillResult::Refused);
        stores.pass(ttl).await;
        assert_eq!(look().await, RecordLookup::Missing);
        assert_eq!(fill(cache, "key", &alice, ttl).await, FillResult::Kept);
    })
    .await;
}

async fn absence(cache: &Cache, name: &str) -> Absence {
    match cache.find_value(name).await.expect("an answer") {
        CachedValue::Absent(absence) => absence,
        CachedValue::Found(value) => panic!("{value:?}"),
    }
}

#[tokio::test]
async fn values_are_kept_for_their_time() {
    each_cache(async |stores| {
        let (cache, ttl) = (&stores.cache, Duration::from_secs(2));
        for value in [&b""[..], b"any 1 2 bytes \0\xff", &[b'v'; MAX_VALUE_BYTES]] {
            let before = absence(cache, "name").await;
            let keep = async || cache.keep_value("name", value, before, ttl).await;
            assert_eq!(keep().await, Ok(true));
            assert_eq!(keep().await, Ok(false), "there is one already");
            let found = cache.find_value("name").await;
            assert_eq!(found, Ok(CachedValue::Found(value.to_vec())));
            absence(cache, "another name").await;
            stores.pass(ttl).await;
            assert_eq!(absence(cache, "name").await, before);
        }
        let too_long = [b'v'; MAX_VALUE_BYTES + 1];
        let before = absence(cache, "name").await;
        let kept = cache.keep_value("name", &too_long, before, ttl).await;
        assert_eq!(kept, Ok(false));
    })
    .await;
}

#[tokio::test]
async fn a_value_can_be_put_in_anothers_place() {
    each_cache(async |stores| {
        let (cache, ttl) = (&stores.cache, Duration::from_secs(2));
        for value in [b"one", b"two"] {
            cache
                .put_value("name", value, ttl)
                .await
                .expect("an answer");
            let found = cache.find_value("name").await;
            assert_eq!(found, Ok(CachedValue::Found(value.to_vec())));
        }
        stores.pass(ttl).await;
        absence(cache, "name").await;
        let too_long = [b'v'; MAX_VALUE_BYTES + 1];
        let put = cache.put_value("name", &too_long, ttl).await;
        assert_eq!(put, Ok(()));
        absence(cache, "name").await;
    })
    .await;
}

#[tokio::test]
async fn large_values_are_kept_for_their_time_and_up_to_a_number() {
    each_cache(async |stores| {
        let (cache, ttl) = (&stores.cache, Duration::from_secs(4));
        let find = async |name: &str| cache.find_large(name).await.expect("an answer");
        let put = async |name: &str, value: &[u8]| {
            let put = cache.put_large(name, value.to_vec(), ttl, 2);
            put.await.expect("an answer");
        };
        assert_eq!(find("a").await, None);
        let large = vec![b'v'; 10 * MAX_VALUE_BYTES];
        for value in [&b""[..], b"any 1 2 bytes \0\xff", &large] {
            put("a", value).await;
            assert_eq!(find("a").await.as_deref(), Some(value));
        }
        assert_eq!(find("b").await, None);
        for name in ["b", "c", "d"] {
            put(name, name.as_bytes()).await;
            assert_eq!(find(name).await.as_deref(), Some(name.as_bytes()));
        }
        let mut found = 0;
        for name in ["a", "b", "c", "d"] {
            found += u32::from(find(name).await.is_some());
        }
        assert_eq!(found, 2);
        stores.pass(ttl).await;
        assert_eq!(find("d").await, None);
    })
    .await;
}

#[tokio::test]
async fn nodes_tell_one_another_what_is_to_be_left_alone_and_for_how_long() {
    let redis = Redis::start();
    let (one, other) = (open_cache(&redis).await, open_cache(&redis).await);
    let names = ["a", "b"].map(Arc::from);
    let left = async || {
        let left = other.pauses(&names).await.expect("an answer");
        left.expect("there are other nodes")
    };
    assert_eq!(left().await, [None, None]);
    let time = Duration::from_secs(60);
    one.pause("b", time).await.expect("an answer");
    let [None, Some(of_b)] = left().await[..] else {
        panic!("b is left alone");
    };
    assert!(of_b <= time && of_b > time / 2, "{of_b:?}");
    other.resume("b").await.expect("an answer");
    assert_eq!(left().await, [None, None]);
    assert_eq!(one.pauses(&[]).await, Ok(Some(Vec::new())));
}

#[tokio::test]
async fn what_was_computed_before_a_value_was_dropped_is_not_kept() {
    each_cache(async |stores| {
        let (cache, ttl) = (&stores.cache, Duration::from_secs(2));
        let keep = async |since| cache.keep_value("name", b"value", since, ttl).await;
        let never = absence(cache, "name").await;
        cache.drop_value("name", ttl).await.expect("an answer");
        let once = absence(cache, "name").await;
        assert_eq!(keep(never).await, Ok(false));
        assert_eq!(keep(once).await, Ok(true));
        cache.drop_value("name", ttl).await.expect("an answer");
        let twice = absence(cache, "name").await;
        cache.drop_value("name", ttl).await.expect("an answer");
        for before in [never, once, twice] {
            assert_eq!(keep(before).await, Ok(false));
        }
        let last = absence(cache, "name").await;
        stores.pass(ttl).await;
        assert_eq!(keep(last).await, Ok(false), "nobody took so long");
        assert_eq!(keep(absence(cache, "name").await).await, Ok(true));
    })
    .await;
}

#[tokio::test]
async fn a_redis_that_forgot_its_scripts_gets_them_again() {
    let redis = Redis::start();
    let cache = open_cache(&redis).await;
    let take = async || {
        let counted = count(&cache, Bucket::User("alice"), rate(60)).await;
        counted.expect("an answer")
    };
    assert_eq!(take().await.remaining, 59);
    redis.command("SCRIPT FLUSH");
    assert_eq!(take().await.remaining, 58);
}

#[tokio::test]
async fn a_command_that_redis_refuses_does_not_stop_the_others() {
    let redis = Redis::start();
    let cache = open_cache(&redis).await;
    redis.command("LPUSH weir:rate:user:alice x");
    let take = async |user| count(&cache, Bucket::User(user), rate(60)).await;
    assert_eq!(take("alice").await, Err(CacheError::Unexpected));
    assert!(take("bob").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_the_first_call_fails_soon_and_the_next_at_once() {
    let redis = Redis::start();
    let cache = open_cache(&redis).await;
    for round in 0..3 {
        let is_killed = round % 2 == 0;
        assert_eq!(cache.probe_writes().await, Ok(()));
        if is_killed {
            redis.kill();
        } else {
            redis.pause();
        }
        let call = async || {
            let started = Instant::now();
            let outcome = count(&cache, Bucket::User("alice"), rate(60)).await;
            assert_eq!(outcome, Err(CacheError::Unavailable));
            started.elapsed()
        };
        let first = call().await;
        assert!(first < Duration::from_secs(2), "{first:?}");
        let mut next = Vec::new();
        for _ in 0..20 {
            next.push(call().await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // A busy machine may delay some of them.
        next.sort();
        assert!(next[next.len() / 2] < Duration::from_millis(5), "{next:?}");
        if is_killed {
            redis.restart();
        } else {
            redis.resume();
        }
        let back = Instant::now();
        while cache.probe_writes().await.is_err() {
            assert!(back.elapsed() < Duration::from_secs(30));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_gateway_notices_that_redis_is_away() {
    let redis = Redis::start();
    let cache = open_cache(&redis).await;
    redis.pause();
    // No request came before: this one finds an open breaker.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let started = Instant::now();
    assert_eq!(cache.probe_writes().await, Err(CacheError::Unavailable));
    assert!(started.elapsed() < Duration::from_millis(100));
    redis.resume();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_postgres_nothing_waits_and_it_comes_back() {
    let postgres = Postgres::start(Durability::Fast);
    let url = postgres.create_database().await;
    let database = Database::open(&url).await.expect("a database");
    let insert = async || {
        sqlx::query("INSERT INTO users (id, created_at) VALUES ($1, 1)")
            .bind(ids::user_id())
            .execute(database.writer())
            .await
    };
    // Its time limits are short for a busy machine.
    let answers = async || {
        let since = Instant::now();
        while insert().await.is_err() {
            assert!(since.elapsed() < Duration::from_secs(30));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    for round in 0..2 {
        // Connections in use, idle and not yet opened.
        answers().await;
        let mut transaction = database.begin().await.expect("a transaction");
        if round == 0 {
            postgres.pause();
        } else {
            postgres.kill();
        }
        for _ in 0..5 {
            let started = Instant::now();
            insert().await.expect_err("it is away");
            assert!(!database.is_reachable().await);
            assert!(
                started.elapsed() < Duration::from_secs(4),
                "{:?}",
                started.elapsed()
            );
        }
        transaction
            .execute("SELECT 1")
            .await
            .expect_err("it is away");
        drop(transaction);
        if round == 0 {
            postgres.resume();
        } else {
            postgres.restart();
        }
        answers().await;
    }
}

/// A gateway on PostgreSQL and this Redis.
async fn gateway_on(redis: &Redis) -> Gateway {
    Gateway::builder()
        .postgres(&Postgres::shared().create_database().await)
        .redis(&redis.url())
        .start()
        .await
}

/// Waits until something is so.
async fn within_ten_seconds(what: &str, is_so: impl AsyncFn() -> bool) {
    let since = Instant::now();
    while !is_so().await {
        assert!(since.elapsed() < Duration::from_secs(10), "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_and_writes_go_on_after_an_address_led_to_a_standby() {
    let primary = Postgres::start(Durability::Fast);
    let (switch, url) = Switch::before(&primary.create_database().await).await;
    let standby = primary.start_standby();
    let gateway = Gateway::builder()
        .postgres(&url)
        .tables(SECONDS_FOR_STORES)
        .start()
        .await;
    let is_ready = async || gateway.stranger().get("/health/ready").await.status == 200;
    assert!(is_ready().await);
    for round in 1..=2 {
        // The server of the address restarts as a standby: old connections end, and new ones reach it.
        switch.lead_to(standby.address());
        switch.cut();
        switch.has_connected(standby.address(), round).await;
        assert!(!is_ready().await);
        let refused = gateway.chat("demo", "Hello").await;
        assert_eq!(refused.status, 503, "{}", refused.text());
        // A moment later the address leads to the new primary, and connections to the old one stay open.
        switch.lead_to(primary.address());
        within_ten_seconds("the new primary", &is_ready).await;
        for _ in 0..30 {
            let served = gateway.chat("demo", "Hello").await;
            assert_eq!(served.status, 200, "{}", served.text());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_to_a_server_that_becomes_read_only_are_closed() {
    let server = Postgres::start(Durability::Fast);
    let url = server.create_database().await;
    let timeouts = Timeouts {
        acquire: Duration::from_secs(2),
        statement: Duration::from_secs(5),
    };
    let database = Database::open_with(&url, timeouts).await;
    let database = database.expect("a database");
    let insert = async || {
        sqlx::query("INSERT INTO users (id, created_at) VALUES ($1, 1)")
            .bind(ids::user_id())
            .execute(database.writer())
            .await
    };
    // Eight connections at once, so that many of them are open.
    for outcome in futures_util::future::join_all((0..8).map(|_| insert())).await {
        outcome.expect("it accepts writes");
    }
    let mut operator = sqlx::AnyConnection::connect(url.expose())
        .await
        .expect("it is there");
    // A managed server without room does so: https://learn.microsoft.com/azure/postgresql/flexible-server/concepts-storage
    let mut set = async |value| {
        let set = format!("ALTER SYSTEM SET default_transaction_read_only = {value}");
        operator
            .execute("SET default_transaction_read_only = off")
            .await
            .expect("it is set");
        operator
            .execute(sqlx::AssertSqlSafe(set))
            .await
            .expect("it is set");
        operator
            .execute("SELECT pg_reload_conf()")
            .await
            .expect("it is read");
    };
    set("on").await;
    within_ten_seconds("read-only", async || !database.is_reachable().await).await;
    insert().await.expect_err("the server is read-only");
    set("off").await;
    within_ten_seconds("writable", async || database.is_reachable().await).await;
    for _ in 0..20 {
        insert().await.expect("it accepts writes again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_follows_the_primary_among_several_hosts() {
    let first = Postgres::start(Durability::Fast);
    let second = first.start_standby();
    let (address, url) = Switch::before(&first.create_database().await).await;
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let silent = silent.local_addr().map(|address| (silent, address));
    let (_never_accepts, silent) = silent.expect("it is bound");
    let hosts = [silent, address.address(), second.address()];
    let url = with_hosts(&url, &hosts);
    let url = SecretUrl::new(format!("{}?target_session_attrs=read-write", url.expose()));
    let gateway = Gateway::builder()
        .postgres(&url)
        .tables(SECONDS_FOR_STORES)
        .start()
        .await;
    let is_ready = async || gateway.stranger().get("/health/ready").await.status == 200;
    let served = async || {
        for _ in 0..30 {
            let served = gateway.chat("demo", "Hello").await;
            assert_eq!(served.status, 200, "{}", served.text());
        }
    };
    assert!(is_ready().await);
    served().await;
    let first_server = with_hosts(&url, &[first.address()]);
    let second_server = with_hosts(&url, &[second.address()]);
    let charges = async |url: &SecretUrl| {
        let mut server = sqlx::AnyConnection::connect(url.expose())
            .await
            .expect("it is there");
        let settled = "SELECT COUNT(*) FROM entries WHERE kind = 'settlement'";
        let charges: i64 = sqlx::query_scalar(settled)
            .fetch_one(&mut server)
            .await
            .expect("a number");
        charges
    };
    within_ten_seconds("replication", async || charges(&second_server).await == 30).await;
    // The primary is cut off: its connections stay open, and new ones are accepted and silent.
    address.fall_silent();
    assert!(!is_ready().await);
    second.execute("SELECT pg_promote()").await;
    within_ten_seconds("the second server", &is_ready).await;
    served().await;
    // The former primary is back, and accepts writes, because nobody has fenced it.
    address.lead_to(first.address());
    served().await;
    // The second one ends every connection, as at a restart. The gateway still does not go back to the former one.
    second
        .execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
        )
        .await;
    within_ten_seconds("the second server", &is_ready).await;
    served().await;
    within_ten_seconds("all charges", async || charges(&second_server).await == 120).await;
    assert_eq!(charges(&first_server).await, 30);
}

#[tokio::test]
async fn silent_hosts_cost_a_connection_one_time_limit_together() {
    let server = Postgres::shared();
    let url = server.create_database().await;
    let silent: Vec<_> = (0..4)
        .map(|_| std::net::TcpListener::bind("127.0.0.1:0").expect("a free port"))
        .collect();
    let address = |listener: &std::net::TcpListener| listener.local_addr().expect("it is bound");
    let mut hosts: Vec<_> = silent.iter().map(address).collect();
    hosts.push(server.address());
    let since = Instant::now();
    let reached = Database::probe(&with_hosts(&url, &hosts)).await;
    assert_eq!(
        reached.expect("the last server"),
        format!("reached {}, which accepts writes", server.address())
    );
    // Two seconds, and a busy machine.
    assert!(
        since.elapsed() < Duration::from_secs(4),
        "{:?}",
        since.elapsed()
    );
    // A server behind the present one is not waited for.
    hosts.reverse();
    let since = Instant::now();
    Database::probe(&with_hosts(&url, &hosts))
        .await
        .expect("the first server");
    assert!(
        since.elapsed() < Duration::from_secs(2),
        "{:?}",
        since.elapsed()
    );
}

#[tokio::test]
async fn several_hosts_fail_by_name_and_forms_that_weir_cannot_follow_are_refused() {
    let server = Postgres::start(Durability::Fast);
    let standby = server.start_standby();
    let url = server.create_database().await;
    let nobody = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    let of_neither = with_hosts(&url, &[nobody, standby.address()]);
    let text = patiently(async {
        loop {
            let error = Database::probe(&of_neither).await.expect_err("no primary");
            let text = format!("{error:#}");
            // On a busy machine, the standby may need longer than an attempt has, and longer to know the database.
            if !text.contains("does not respond") && !text.contains("does not exist") {
                break text;
            }
        }
    })
    .await;
    for part in [
        "no server accepts writes".to_owned(),
        format!("{nobody}: "),
        "refused".to_owned(),
        format!("{}: ", standby.address()),
        "standby".to_owned(),
    ] {
        assert!(text.contains(&part), "{text}");
    }
    assert!(!text.contains(PASSWORD), "{text}");
    for (parameters, word) in [
        (
            "target_session_attrs=standby",
            "target_session_attrs=read-write",
        ),
        (
            "target_session_attrs=prefer-standby",
            "target_session_attrs=read-write",
        ),
        ("host=a,b", "several hosts"),
        ("hostaddr=127.0.0.1,127.0.0.2", "several hosts"),
        ("port=1,2", "several hosts"),
    ] {
        let url = SecretUrl::new(format!("{}?{parameters}", url.expose()));
        let error = Database::probe(&url).await.expect_err(parameters);
        assert!(
            format!("{error:#}").contains(word),
            "{parameters}: {error:#}"
        );
    }
    for accepted in ["any", "read-write", "primary"] {
        let url = format!("{}?target_session_attrs={accepted}", url.expose());
        Database::probe(&SecretUrl::new(url)).await.expect(accepted);
    }
}

#[tokio::test]
async fn each_of_several_hosts_proves_its_own_name() {
    let (first, second) = (
        Postgres::start(Durability::Fast),
        Postgres::start(Durability::Fast),
    );
    let authority = Authority::make();
    authority.certify(&first, "DNS:localhost");
    authority.certify(&second, "IP:127.0.0.1");
    let url = |hosts: String| {
        SecretUrl::new(format!(
            "postgres://weir:{PASSWORD}@{hosts}/postgres?sslmode=verify-full&sslrootcert={}",
            authority.certificate().display()
        ))
    };
    let (one, two) = (first.address().port(), second.address().port());
    let both = url(format!("localhost:{one},127.0.0.1:{two}"));
    let reached = async || Database::probe(&both).await.expect("a server");
    within_ten_seconds("TLS", async || Database::probe(&both).await.is_ok()).await;
    assert!(reached().await.contains(&format!("localhost:{one}")));
    first.kill();
    assert!(reached().await.contains(&format!("127.0.0.1:{two}")));
    first.restart();
    // Each server has the other one's name.
    let exchanged = url(format!("127.0.0.1:{one},localhost:{two}"));
    let error = Database::probe(&exchanged).await.expect_err("wrong names");
    let text = format!("{error:#}");
    for name in ["127.0.0.1", "localhost"] {
        let refused = format!("certificate not valid for name \"{name}\"");
        assert!(text.contains(&refused), "{text}");
    }
}

#[tokio::test]
async fn a_start_waits_for_a_standby_and_for_room_and_names_what_is_missing() {
    let server = Postgres::start(Durability::Fast);
    let url = server.create_database().await;
    let standby = server.start_standby();
    let (switch, before_both) = Switch::before(&url).await;
    // A load balancer without a server closes each connection.
    let balancer = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let balancer = balancer.expect("a free port");
    let unserved = balancer.local_addr().expect("it is bound");
    tokio::spawn(async move { while balancer.accept().await.is_ok() {} });
    switch.lead_to(unserved);
    let before_nobody = before_both.clone();
    let starting = tokio::spawn(async move { Database::open(&before_nobody).await });
    switch.has_connected(unserved, 2).await;
    switch.lead_to(server.address());
    let started = starting.await.expect("no panic");
    started.expect("a server is there in time").close().await;
    switch.lead_to(standby.address());
    let probed = Database::probe(&before_both)
        .await
        .expect_err("it is a standby");
    assert!(
        format!("{probed:#}").contains("accepts no writes"),
        "{probed:#}"
    );
    let starting = tokio::spawn(async move { Database::open(&before_both).await });
    switch.has_connected(standby.address(), 2).await;
    switch.lead_to(server.address());
    let started = starting.await.expect("no panic");
    started.expect("the primary is there in time").close().await;

    let mut operator = sqlx::AnyConnection::connect(url.expose())
        .await
        .expect("it is there");
    // The limit of a role does not bind a superuser.
    for statement in [
        format!("CREATE ROLE guest LOGIN PASSWORD '{PASSWORD}' CONNECTION LIMIT 0"),
        "GRANT ALL ON SCHEMA public TO guest".to_owned(),
        "GRANT ALL ON ALL TABLES IN SCHEMA public TO guest".to_owned(),
    ] {
        operator
            .execute(sqlx::AssertSqlSafe(statement))
            .await
            .expect("a role");
    }
    let guest = SecretUrl::new(url.expose().replace("weir:", "guest:"));
    let error = Database::probe(&guest).await.expect_err("it has no room");
    assert!(
        format!("{error:#}").contains("too many connections"),
        "{error:#}"
    );
    let (switch, guest) = Switch::before(&guest).await;
    let starting = tokio::spawn(async move { Database::open(&guest).await });
    switch.has_connected(server.address(), 2).await;
    operator
        .execute("ALTER ROLE guest CONNECTION LIMIT -1")
        .await
        .expect("it is changed");
    let started = starting.await.expect("no panic");
    started.expect("there is room in time").close().await;
}

#[tokio::test]
async fn a_pooler_serves_in_session_mode_and_is_refused_by_name_otherwise() {
    let postgres = Postgres::shared();
    let url = postgres.create_database().await;
    {
        let (_pooler, pooled) = postgres.start_pooler(&url, "session");
        let database = patient_database(&pooled).await;
        assert!(database.is_reachable().await);
        database.close().await;
    }
    for pool_mode in [
        "transaction",
        "statement",
        // https://www.pgbouncer.org/config.html#server_round_robin
        "transaction\nserver_round_robin = 1",
    ] {
        let (_pooler, pooled) = postgres.start_pooler(&url, pool_mode);
        let neighbour = async || {
            let connected = sqlx::AnyConnection::connect(pooled.expose()).await;
            connected.expect("it is there")
        };
        let (mut neighbour, mut other) = (neighbour().await, neighbour().await);
        // The pool has two sessions from now on.
        let long = "SELECT pg_sleep(0.2)::text";
        let (one, two) = tokio::join!(neighbour.execute(long), other.execute(long));
        one.and(two).expect("both have a session");
        let mut settings = async || {
            let settings = "SELECT current_setting('statement_timeout') || current_setting('client_min_messages')";
            let row = sqlx::raw_sql(settings).fetch_one(&mut neighbour).await;
            row.expect("an answer").get::<String, _>(0)
        };
        let before = settings().await;
        for error in [
            Database::open(&pooled).await.expect_err("it is refused"),
            Database::probe(&pooled).await.expect_err("it is refused"),
        ] {
            assert!(format!("{error:#}").contains("session mode"), "{error:#}");
        }
        assert_eq!(
            settings().await,
            before,
            "a neighbour's session is as before"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_refuses_writes_is_away_until_it_accepts_them() {
    let redis = Redis::start_with(&[&["--dbfilename", "taken"]]);
    let gateway = gateway_on(&redis).await;
    let is_ready = async || gateway.stranger().get("/health/ready").await.status == 200;
    let store_up = async || {
        let metrics = gateway.stranger().get("/metrics").await.text();
        metrics.contains("weir_store_up{store=\"cache\"} 1")
    };
    // A snapshot that cannot be stored: https://redis.io/docs/latest/operate/oss_and_stack/management/persistence/
    std::fs::create_dir(redis.folder().join("taken")).expect("a folder");
    for command in [
        "CONFIG SET stop-writes-on-bgsave-error no",
        "CONFIG SET save \"3600 1\"",
    ] {
        assert!(redis.command(command).ends_with("+OK\r\n"), "{command}");
    }
    redis.command("BGSAVE");
    let has_failed = async || {
        let status = redis.info().remove("rdb_last_bgsave_status");
        status.is_some_and(|status| status == "err")
    };
    within_ten_seconds("a snapshot fails", has_failed).await;
    for (refuse, accept) in [
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
        (
            "CONFIG SET stop-writes-on-bgsave-error yes",
            "CONFIG SET stop-writes-on-bgsave-error no",
        ),
        (
            "CONFIG SET min-replicas-to-write 1",
            "CONFIG SET min-replicas-to-write 0",
        ),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
        ("ACL SETUSER default -set", "ACL SETUSER default +set"),
    ] {
        assert!(is_ready().await && store_up().await, "before {refuse}");
        assert!(redis.command(refuse).ends_with("+OK\r\n"), "{refuse}");
        assert!(!is_ready().await, "{refuse}");
        assert!(!store_up().await, "{refuse}");
        gateway
            .chat("demo", "Hello")
            .await
            .error(503, "CACHE_UNAVAILABLE");
        assert!(redis.command(accept).ends_with("+OK\r\n"), "{accept}");
        within_ten_seconds(accept, &is_ready).await;
        assert_eq!(gateway.chat("demo", "Hello").await.status, 200, "{accept}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_a_restored_database_does_not_know_get_401() {
    let redis = Redis::start();
    let postgres = Postgres::shared();
    let live = postgres.create_database().await;
    let builder = |database: &SecretUrl| Gateway::builder().postgres(database).redis(&redis.url());
    let gateway = builder(&live).start().await;
    // It has the lease of the running node.
    let restored = postgres.copy(&live).await;
    let key = gateway.web_key("alice").await;
    assert_eq!(
        gateway
            .stranger()
            .with_key(&key)
            .get("/models")
            .await
            .status,
        200
    );
    let folder = gateway.stop().await;
    let gateway = builder(&restored).folder(folder).start().await;
    let client = gateway.stranger().with_key(&key);
    let asked = client.get("/models").await;
    asked.error(401, "UNAUTHENTICATED");
    let asked = client.post("/chat", &chat("demo", "Hello")).await;
    asked.error(401, "UNAUTHENTICATED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_serves_from_both_and_is_not_ready_without_its_cache() {
    let redis = Redis::start();
    let gateway = gateway_on(&redis).await;
    assert_eq!(gateway.chat("demo", "Hello").await.status, 200);
    assert_eq!(gateway.stranger().get("/health/ready").await.status, 200);
    redis.kill();
    gateway
        .stranger()
        .get("/health/ready")
        .await
        .error(503, "NOT_READY");
}

/// Collects the log of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn no_error_log_or_debug_output_holds_a_password() {
    let log = Log::default();
    let writer = log.clone();
    let layer = tracing_subscriber::fmt::layer().with_writer(move || writer.clone());
    let subscriber = tracing_subscriber::registry().with(layer);
    let _guard = tracing::subscriber::set_default(subscriber);
    let mut said = Vec::new();

    let postgres = Postgres::shared().create_database().await;
    let redis = Redis::start();
    let database = patient_database(&postgres).await;
    let cache = open_cache(&redis).await;
    said.push(format!("{database:?} {cache:?} {postgres:?} {postgres}"));
    let said_so = || {
        let log = log.0.lock().expect("no panic");
        String::from_utf8_lossy(&log).contains("Redis is unavailable")
    };
    redis.kill();
    said.push(format!("{:?}", cache.probe_writes().await));
    for _ in 0..10 {
        if said_so() {
            break;
        }
        // tracing disables an event if another test's thread, which collects nothing, reached it first at that
        // moment.
        tracing::callsite::rebuild_interest_cache();
        redis.restart();
        while cache.probe_writes().await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        redis.kill();
        let _ = cache.probe_writes().await;
    }
    assert!(said_so());

    let wrong = |url: &SecretUrl, from: &str, to: &str| {
        let changed = url.expose().replace(from, to);
        assert_ne!(changed, url.expose());
        SecretUrl::new(changed)
    };
    for url in [
        wrong(&postgres, "weir:", "nobody:"),
        wrong(&postgres, "/test_", "/missing_"),
        wrong(&postgres, "127.0.0.1", "[nowhere"),
        wrong(&postgres, "127.0.0.1", "nowhere.invalid"),
        SecretUrl::new(format!(
            "{}?pasword={PASSWORD}&sslmode=maybe",
            postgres.expose()
        )),
        SecretUrl::new(format!(
            "{}?pasword={PASSWORD}&user=nobody",
            postgres.expose()
        )),
        wrong(&postgres, "postgres", "mysql"),
    ] {
        let error = Database::open(&url).await.expect_err("it cannot be opened");
        said.push(format!("{error:#} {error:?}"));
    }
    redis.restart();
    for url in [
        wrong(&redis.url(), "redis://:", "redis://:wrong-"),
        wrong(&redis.url(), "redis://:", "redis://nobody:"),
        wrong(&redis.url(), "127.0.0.1", "[nowhere"),
    ] {
        let error = Cache::open(Some(&url), &Clock::System, Cache::TIMEOUT)
            .await
            .expect_err("it cannot be opened");
        said.push(format!("{error:#} {error:?}"));
    }
    let config = Gateway::builder()
        .postgres(&postgres)
        .redis(&redis.url())
        .config();
    said.push(format!("{config:?}"));
    let log = String::from_utf8_lossy(&log.0.lock().expect("no panic")).into_owned();
    assert!(log.contains("pasword"), "{log}");
    said.push(log);
    for text in said {
        assert!(!text.contains(PASSWORD), "{text}");
    }
}

async fn open_cache(redis: &Redis) -> Cache {
    Cache::open(Some(&redis.url()), &Clock::System, Cache::TIMEOUT)
        .await
        .unwrap_or_else(|error| panic!("{error:#}"))
}

#[tokio::test]
async fn what_is_buried_is_buried_under_every_secret() {
    each_cache(async |stores| {
        let cache = &stores.cache;
        let key = |secret| RecordKey { secret, id: "id" };
        let alice = record("alice", None);
        let since = identify(cache, None, None).await.epoch;
        let fill = async |secret| cache.fill(key(secret), &alice, since, MINUTE).await;
        let look = async |secret| {
            let record = Some(key(secret));
            let request = CallerLookup {
                address: None,
                record,
            };
            cache.identify(&request).await.expect("an answer").record
        };
        assert_eq!(fill("old").await, Ok(FillResult::Kept));
        assert_eq!(fill("new").await, Ok(FillResult::Kept));
        cache
            .bury(Tombstone::Record("id"), MINUTE)
            .await
            .expect("an answer");
        for secret in ["old", "new", "never seen"] {
            assert_eq!(look(secret).await, RecordLookup::Revoked);
            assert_eq!(fill(secret).await, Ok(FillResult::Refused));
        }
    })
    .await;
}

#[tokio::test]
async fn a_later_use_of_a_key_is_not_overwritten_by_an_earlier_one() {
    each_database(async |stores| {
        let database = &stores.database;
        let peppers = Peppers::of([(1, SecretKey::new([3; 32]))]);
        let now = Millis::now();
        let key = store::create_key(database, &peppers, "alice", "a", false, None, now);
        let key = key.await.expect("a key");
        for (used, shown) in [(5, 5), (9, 9), (7, 9)] {
            let batch = [
                (key.id().to_owned(), Millis(used)),
                ("key_gone".to_owned(), Millis(used)),
            ];
            store::set_last_used(database, &batch)
                .await
                .expect("a batch");
            let keys = store::list_keys(database, "alice", None)
                .await
                .expect("a list");
            assert_eq!(keys[0].last_used_at, Some(Millis(shown)));
        }
    })
    .await;
}
