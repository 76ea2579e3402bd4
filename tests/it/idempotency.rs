//! `Idempotency-Key`: requests with one key are served and charged once, on both databases.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::{Executor, Row};
use tempfile::TempDir;
use tests::gateway::{Builder, USER, top_up};
use tests::ledger::create_users;
use tests::stores::{Postgres, each_database, patient_database};
use tests::{Answer, Client, Gate, Gateway, Reply, Upstream, chat, patiently};
use tokio::task::JoinSet;
use tokio::time::Instant;
use weir_ledger::idempotency::ClaimedKey;
use weir_ledger::verify::verify;
use weir_ledger::{
    AccountId, Action, Credits, EndKey, HoldId, IdempotencyClaim, KeyConflict, LeaseSettings,
    Ledger, LedgerError, LedgerRefusal, OpenHold, OperationEffect, RequestSource, RequestUsage,
    Settle,
};
use weir_storage::Database;
use weir_storage::clock::{Clock, ManualClock, Millis};
use weir_storage::database::SqlDialect;
use weir_storage::sealing::KeyRing;
use weir_storage::secrets::{SecretKey, SecretUrl, create_private_folder};

use crate::cli::{Served, weir};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Runs a test with a gateway on each database, whose model `scripted` an upstream serves.
async fn on_each(test: impl AsyncFn(Builder, Upstream)) {
    let postgres = Postgres::shared().create_database().await;
    for builder in [Gateway::builder(), Gateway::builder().postgres(&postgres)] {
        let upstream = Upstream::start().await;
        test(builder.upstream("scripted", &upstream), upstream).await;
    }
}

/// The user's client, with this key on every request.
fn keyed(gateway: &Gateway, key: &str) -> Client {
    gateway.client().with_header("idempotency-key", key)
}

fn question() -> Value {
    chat("scripted", "hello")
}

fn is_replay(answer: &Answer) -> bool {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let replayed = answer.headers.get("idempotency-replayed");
    assert!(replayed.is_none_or(|value| value == "true"));
    replayed.is_some()
}

/// Returns the number of settled requests, and their charge in millionths of a credit.
async fn charges(gateway: &Gateway) -> (i64, i64) {
    let row = sqlx::query(
        "SELECT CAST(COUNT(*) AS BIGINT), CAST(COALESCE(-SUM(plan_delta + top_up_delta), 0) AS BIGINT) \
         FROM entries WHERE kind = 'settlement'",
    )
    .fetch_one(gateway.folded_database().await.reader())
    .await
    .expect("an answer");
    (row.get(0), row.get(1))
}

async fn until_idle(gateway: &Gateway) {
    patiently(async {
        while !gateway.app().tasks.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn is_sound(gateway: &Gateway) {
    let app = gateway.app();
    let violations = verify(&app.database, app.clock.now()).await;
    assert_eq!(violations.expect("an answer"), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_twenty_at_once_one_is_served() {
    on_each(async |builder, upstream| {
        let gate = Gate::new();
        upstream.will(Reply::chat("once").after_gate(&gate));
        let gateway = builder.start().await;
        // Cached from here on: twenty concurrent look-ups of one API key are not under test.
        assert_eq!(gateway.client().get("/models").await.status, 200);
        let mut requests = JoinSet::new();
        for _ in 0..20 {
            let client = keyed(&gateway, "key-1");
            requests.spawn(async move { client.post("/chat", &question()).await });
        }
        for _ in 0..19 {
            let refused = requests.join_next().await.expect("19").expect("no panic");
            refused.error(409, "IDEMPOTENCY_IN_PROGRESS");
            assert!(refused.headers.contains_key("retry-after"));
            assert!(!refused.headers.contains_key("x-should-retry"));
        }
        gate.open();
        let served = requests.join_next().await.expect("one").expect("no panic");
        assert!(!is_replay(&served));
        for _ in 0..3 {
            let again = keyed(&gateway, "key-1").post("/chat", &question()).await;
            assert!(is_replay(&again));
            assert_eq!(again.body, served.body);
            assert_eq!(again.headers["content-type"], "application/json");
            assert_ne!(
                again.headers["x-request-id"],
                served.headers["x-request-id"]
            );
        }
        let (settled, charged) = charges(&gateway).await;
        assert!(settled == 1 && charged > 0, "{settled} {charged}");
        assert_eq!(upstream.count(), 1);

        upstream.will(Reply::chat("another"));
        let other = keyed(&gateway, "key-2").post("/chat", &question()).await;
        assert!(!is_replay(&other));
        upstream.will(Reply::chat("none"));
        assert_eq!(gateway.chat("scripted", "hello").await.content(), "none");
        is_sound(&gateway).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hung_up_gets_the_answer_when_it_asks_again() {
    on_each(async |builder, upstream| {
        let gate = Gate::new();
        upstream.will(Reply::chat("the sesame-answer").after_gate(&gate));
        let gateway = builder.start().await;
        let client = keyed(&gateway, "key-1");
        let request = tokio::spawn({
            let client = client.clone();
            async move { client.post("/v1/chat/completions", &question()).await }
        });
        patiently(gate.reached()).await;
        request.abort();
        let _ = request.await;
        gate.open();
        until_idle(&gateway).await;
        let again = client.post("/v1/chat/completions", &question()).await;
        assert!(is_replay(&again));
        assert_eq!(again.content(), "the sesame-answer");
        assert_eq!((upstream.count(), charges(&gateway).await.0), (1, 1));

        let database = &gateway.app().database;
        let sealed: Vec<u8> = sqlx::query_scalar("SELECT answer FROM idempotency_keys")
            .fetch_one(database.reader())
            .await
            .expect("an answer");
        assert!(sealed.len() > again.body.len());
        assert!(!holds_answer(&sealed));
        if database.dialect() == SqlDialect::Sqlite {
            let mut files = 0;
            for entry in std::fs::read_dir(gateway.data_dir()).expect("the data folder") {
                let path = entry.expect("an entry").path();
                if path.is_file() {
                    files += 1;
                    let bytes = std::fs::read(&path).expect("a file");
                    assert!(!holds_answer(&bytes), "{}", path.display());
                }
            }
            assert!(files >= 2, "the database and its log");
        }
    })
    .await;
}

fn holds_answer(bytes: &[u8]) -> bool {
    tests::contains(bytes, "sesame")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_for_one_request_of_one_user() {
    on_each(async |builder, upstream| {
        upstream.always(Reply::chat("fine"));
        let gateway = builder
            .settings("internal_listen = \"127.0.0.1:0\"")
            .start()
            .await;
        let client = keyed(&gateway, "key-1");
        assert!(!is_replay(&client.post("/chat", &question()).await));
        let is_reused = |refused: Answer| {
            let error = refused.error(409, "IDEMPOTENCY_KEY_REUSED");
            assert_eq!(error["param"], "Idempotency-Key");
            assert_eq!(refused.headers["x-should-retry"], "false");
        };
        is_reused(client.post("/chat", &chat("scripted", "bye")).await);
        for path in ["/code", "/v1/chat/completions"] {
            is_reused(client.post(path, &question()).await);
        }
        let service = gateway
            .service(&["model:call"])
            .with_header("idempotency-key", "key-1");
        let mut body = question();
        body["user_id"] = USER.into();
        is_reused(service.post("/internal/agent/code", &body).await);
        assert_eq!(upstream.count(), 1);

        let bob = gateway.web("bob").with_header("idempotency-key", "key-1");
        assert!(!is_replay(&bob.post("/chat", &question()).await));
        assert!(is_replay(&bob.post("/chat", &question()).await));
        assert!(is_replay(&client.post("/chat", &question()).await));
        assert_eq!(upstream.count(), 2);

        let service = service.with_header("idempotency-key", "key-2");
        for replay in [false, true] {
            let answer = service.post("/internal/agent/code", &body).await;
            assert_eq!(is_replay(&answer), replay);
        }
        assert_eq!((upstream.count(), charges(&gateway).await.0), (3, 3));
        is_sound(&gateway).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_charged_gives_the_key_back() {
    on_each(async |builder, upstream| {
        let gateway = builder.credits(0).start().await;
        let client = keyed(&gateway, "key-1");
        let mut dear = question();
        dear["max_tokens"] = 4_000_000.into();
        for _ in 0..2 {
            let refused = client.post("/chat", &dear).await;
            refused.error(429, "QUOTA_EXCEEDED");
        }
        let unknown = client.post("/chat", &chat("nothing", "hello")).await;
        unknown.error(400, "UNKNOWN_MODEL");
        top_up(gateway.app(), USER, Credits::whole(1_000_000)).await;

        upstream.will(Reply::error(400, "no"));
        let refused = client.post("/chat", &dear).await;
        refused.error(400, "UPSTREAM_REJECTED");
        upstream.will(Reply::reset());
        let failed = client.post("/chat", &dear).await;
        assert_eq!(failed.status, 502, "{}", failed.text());
        // Like a stream without output.
        upstream.will(Reply::error(400, "no"));
        let mut streamed = dear.clone();
        streamed["stream"] = true.into();
        let refused = client.post("/chat", &streamed).await;
        refused.error(400, "UPSTREAM_REJECTED");

        upstream.will(Reply::chat("at last"));
        let answer = client.post("/chat", &dear).await;
        assert!(!is_replay(&answer));
        assert!(is_replay(&client.post("/chat", &dear).await));
        assert_eq!(charges(&gateway).await.0, 1);
        is_sound(&gateway).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_answer_is_not_given_again_but_named() {
    on_each(async |builder, upstream| {
        let gateway = builder.start().await;
        let not_kept = async |client: &Client, first: &str, charged: i64| {
            let mut body = question();
            body["stream"] = true.into();
            let refused = client.post("/chat", &body).await;
            let error = refused.error(409, "IDEMPOTENCY_ANSWER_NOT_KEPT");
            assert_eq!(error["first_request_id"], first);
            assert_ne!(error["request_id"], first);
            assert_eq!(
                error["charged_credits"],
                Credits::from_micro(charged).to_json(),
                "{error}"
            );
            assert_eq!(refused.headers["x-should-retry"], "false");
        };
        upstream.will_stream(["one ", "two"]);
        let client = keyed(&gateway, "key-1");
        let stream = client.stream("/chat", &question()).await;
        let first = stream.headers["x-request-id"].clone();
        assert_eq!(stream.content().await, "one two");
        let (_, charged) = charges(&gateway).await;
        not_kept(&client, first.to_str().expect("ASCII"), charged).await;

        // A response that its client did not read to the end.
        let gate = Gate::new();
        upstream.will(Reply::chat_stream(["one ", "two "]).gate_before_piece(1, &gate));
        let client = keyed(&gateway, "key-2");
        let mut stream = client.stream("/chat", &question()).await;
        let second = stream.headers["x-request-id"].clone();
        stream.next_chunk().await;
        let mut body = question();
        body["stream"] = true.into();
        let refused = client.post("/chat", &body).await;
        refused.error(409, "IDEMPOTENCY_IN_PROGRESS");
        drop(stream);
        gate.open();
        until_idle(&gateway).await;
        let (settled, both) = charges(&gateway).await;
        assert!(both > charged);
        not_kept(&client, second.to_str().expect("ASCII"), both - charged).await;
        assert_eq!((upstream.count(), settled), (2, 2));
        is_sound(&gateway).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_more_than_a_mebibyte_are_not_given_again() {
    on_each(async |builder, upstream| {
        let gateway = builder.start().await;
        let mut body = question();
        body["max_tokens"] = 4_000_000.into();
        for (key, bytes, is_kept) in [("long", 1_000_000, true), ("longer", 1 << 20, false)] {
            upstream.will(Reply::chat(&"x".repeat(bytes)));
            let client = keyed(&gateway, key);
            let answer = client.post("/chat", &body).await;
            assert!(!is_replay(&answer));
            let again = client.post("/chat", &body).await;
            if is_kept {
                assert!(is_replay(&again) && again.body == answer.body);
            } else {
                let error = again.error(409, "IDEMPOTENCY_ANSWER_NOT_KEPT");
                assert_eq!(
                    error["first_request_id"],
                    answer.headers["x-request-id"].to_str().expect("ASCII")
                );
                assert_eq!(
                    error["charged_credits"],
                    answer.json()["usage"]["credits"],
                    "{error}"
                );
            }
        }
        assert_eq!(upstream.count(), 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_kept_for_a_day() {
    on_each(async |builder, upstream| {
        let clock = ManualClock::at(Millis::now());
        let gateway = builder.clock(&clock).start().await;
        let client = keyed(&gateway, "key-1");
        upstream.will(Reply::chat("first"));
        let first = client.post("/chat", &question()).await;
        clock.advance(DAY - Duration::from_millis(1));
        let again = client.post("/chat", &question()).await;
        assert!(is_replay(&again) && again.body == first.body);
        clock.advance(Duration::from_millis(1));
        upstream.will(Reply::chat("second"));
        // Even for another request.
        let other = chat("scripted", "bye");
        let second = client.post("/chat", &other).await;
        assert!(!is_replay(&second));
        assert!(is_replay(&client.post("/chat", &other).await));
        assert_eq!(charges(&gateway).await.0, 2);
    })
    .await;
}

#[tokio::test]
async fn a_malformed_key_is_refused() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("fine"));
    let gateway = Gateway::with_upstream(&upstream).await;
    for key in ["", "two words", "caf\u{e9}", "tab\there", &"x".repeat(256)] {
        let refused = keyed(&gateway, key).post("/chat", &question()).await;
        let error = refused.error(400, "INVALID_REQUEST");
        assert_eq!(error["param"], "Idempotency-Key", "{key:?}");
    }
    assert_eq!(upstream.count(), 0);
    for key in ["x", "\"quoted;=~!\"", &"x".repeat(255)] {
        let answer = keyed(&gateway, key).post("/chat", &question()).await;
        assert!(!is_replay(&answer), "{key:?}");
    }
}

#[tokio::test]
async fn nodes_replay_the_answers_of_one_another() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("fine"));
    let postgres = Postgres::shared().create_database().await;
    let node = || {
        Gateway::builder()
            .postgres(&postgres)
            .upstream("scripted", &upstream)
    };
    let first = node().start().await;
    let second = node().sharing_secrets_of(&first).start().await;
    let served = keyed(&first, "key-1").post("/chat", &question()).await;
    let again = keyed(&second, "key-1").post("/chat", &question()).await;
    assert!(is_replay(&again) && again.body == served.body);
    assert_eq!(upstream.count(), 1);
}

/// Starts a node with the secrets of `first`, as a separate process with a short lease.
fn start_node(first: &Gateway, postgres: &SecretUrl, upstream: &Upstream) -> Served {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = folder.path().join(".weir/keys");
    create_private_folder(&folder.path().join(".weir")).expect("a folder");
    create_private_folder(&keys).expect("a folder");
    for secret in ["api-key-pepper", "sealing"] {
        let from = first.data_dir().join("keys").join(secret);
        std::fs::copy(from, keys.join(secret)).expect("it was made");
    }
    let model = "context_window = 100000\nmax_output_tokens = 1000\ndefault_output_tokens = 1000\n\
                 price = { input = 1, output = 2 }\nupstreams = [{ provider = \"scripted\" }]\n";
    let config = format!(
        "dev = true\ndatabase_url = {:?}\n[ledger]\nrenew_ms = 100\nlease_ms = 300\n\
         [providers.scripted]\nadapter = \"openai\"\nbase_url = {:?}\n[models.scripted]\n{model}",
        postgres.expose(),
        upstream.base_url()
    );
    std::fs::write(folder.path().join("weir.toml"), config).expect("a file");
    let mut command = weir(folder.path());
    command.env("WEIR_STORES__STATEMENT_MS", "1000");
    Served::start_as(command, folder, &[])
}

/// The node waits for its account, which another transaction has locked, to claim the key and open the hold; it is
/// frozen until its lease is over and another node has served the key.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_frozen_before_its_hold_serves_nothing_twice() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("fine"));
    let postgres = Postgres::shared().create_database().await;
    let node = Gateway::builder().postgres(&postgres);
    let node = node.upstream("scripted", &upstream).start().await;
    let frozen = start_node(&node, &postgres, &upstream);
    let address = frozen.url().replace("http://", "");
    let client = keyed(&node, "key-1");
    let of_frozen = client.at(address.parse().expect("an address"));
    assert!(!is_replay(
        &keyed(&node, "key-0").post("/chat", &question()).await
    ));

    let database = &node.app().database;
    let count = async |query: &'static str| -> i64 {
        let count = sqlx::query_scalar(query).fetch_one(database.writer()).await;
        count.expect("a number")
    };
    let waiting = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() \
                   AND wait_event_type = 'Lock'";
    let mut account = database.begin().await.expect("a transaction");
    account
        .execute("SELECT 1 FROM accounts WHERE id = 'alice' FOR UPDATE")
        .await
        .expect("it is there");
    let request = tokio::spawn(async move { of_frozen.try_post("/chat", &question()).await });
    patiently(async { while count(waiting).await == 0 {} }).await;
    frozen.signal("STOP");
    // The database cancels its last statement, and its lease expires.
    patiently(async { while count(waiting).await > 0 {} }).await;
    drop(account);
    let served = client.post("/chat", &question()).await;
    assert!(!is_replay(&served));
    let leased = "SELECT COUNT(*) FROM node_leases WHERE lease_until - started_at < 30000 \
                  AND lease_until > CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";
    patiently(async { while count(leased).await > 0 {} }).await;

    frozen.signal("CONT");
    // It may be too late for a hold.
    let answer = request.await.expect("no panic").expect("an answer");
    if answer.status == 200 {
        assert!(is_replay(&answer) && answer.body == served.body);
    } else {
        answer.error(503, "LEDGER_UNAVAILABLE");
    }
    let settled = charges(&node).await.0;
    assert_eq!((upstream.count(), settled), (2, 2));
    is_sound(&node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_keys_at_once_are_claimed_and_ended_in_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("weir.db").display());
    let database = patient_database(&SecretUrl::new(url)).await;
    let users: Vec<_> = (0..512).map(|number| format!("usr_{number}")).collect();
    create_users(&database, users.iter().map(|user| &**user), 0).await;
    let lease = LeaseSettings::default();
    let ledger = Ledger::start(database.clone(), Clock::System, lease).await;
    let ledger = ledger.expect("a ledger");
    let mut requests = JoinSet::new();
    for user in users {
        let ledger = ledger.clone();
        requests.spawn(async move {
            // As long as a request waits for its hold.
            let deadline = Instant::now() + Duration::from_secs(2);
            let claim = IdempotencyClaim {
                key: "key-1".to_owned(),
                request_digest: [1; 32],
            };
            let open = OpenHold {
                hold: HoldId(format!("hold_{user}")),
                amount: Credits::from_micro(9),
                request_id: format!("req_{user}"),
                parent: None,
                source: RequestSource::Web,
                source_id: None,
                parts: Vec::new(),
                top_up_only: false,
                model: "m".to_owned(),
            };
            let (hold, request_id) = (open.hold.clone(), open.request_id.clone());
            let account = AccountId(user);
            let opened = ledger.open_request(&account, open, Some(claim), deadline);
            opened.await.expect("in time");
            let settle = Settle {
                end: None,
                hold,
                credits: Credits::from_micro(5),
                usage: RequestUsage::default(),
            };
            let settled = ledger.settle(&account, settle, deadline + Duration::from_secs(8));
            settled.await.expect("in time");
            let end = Action::EndKey(EndKey {
                key: "key-1".to_owned(),
                request_id,
                answer: Some(vec![0; 2_000]),
            });
            let ended = ledger.submit(&account, end, deadline + Duration::from_secs(8));
            assert_eq!(ended.await, Ok(OperationEffect::KeyEnded));
        });
    }
    requests.join_all().await;
    let completed: i64 = sqlx::query_scalar(
        "SELECT CAST(COUNT(*) AS BIGINT) FROM idempotency_keys WHERE answer IS NOT NULL",
    )
    .fetch_one(database.reader())
    .await
    .expect("a number");
    assert_eq!(completed, 512);
    ledger.stop().await;
    assert_eq!(
        verify(&database, Millis::now()).await.expect("an answer"),
        []
    );
}

/// A sealing key in a file, in the form of the settings.
fn sealing_key(folder: &TempDir, id: u32, text: &str) -> String {
    let path = folder.path().join(text);
    std::fs::write(&path, text.repeat(16)).expect("it can be written");
    format!("{{ id = {id}, key = {{ file = {path:?} }} }},")
}

#[tokio::test]
async fn answers_outlive_the_change_to_a_new_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("fine"));
    let start = async |before: Option<Gateway>, keys: &str| {
        let builder = match before {
            Some(gateway) => Gateway::builder().folder(gateway.stop().await),
            None => Gateway::builder(),
        };
        let builder = builder.settings(&format!("sealing_keys = [{keys}]"));
        builder.upstream("scripted", &upstream).try_start().await
    };
    let (old, new) = (
        sealing_key(&folder, 1, "old"),
        sealing_key(&folder, 2, "new"),
    );
    let gateway = start(None, &old).await.expect("it starts");
    let served = keyed(&gateway, "key-1").post("/chat", &question()).await;
    assert!(!is_replay(&served));

    let both = format!("{new}{old}");
    let gateway = start(Some(gateway), &both).await.expect("it starts");
    let again = keyed(&gateway, "key-1").post("/chat", &question()).await;
    assert!(is_replay(&again) && again.body == served.body);
    let other = keyed(&gateway, "key-2").post("/chat", &question()).await;
    assert!(!is_replay(&other));

    let gateway = start(Some(gateway), &new).await.expect("it starts");
    let again = keyed(&gateway, "key-2").post("/chat", &question()).await;
    assert!(is_replay(&again));
    let gone = keyed(&gateway, "key-1").post("/chat", &question()).await;
    let error = gone.error(409, "IDEMPOTENCY_ANSWER_NOT_KEPT");
    let first = served.headers["x-request-id"].to_str().expect("ASCII");
    assert_eq!(error["first_request_id"], first);

    // A response that was moved to another row does not open there.
    let moved = "UPDATE idempotency_keys SET answer = \
                 (SELECT answer FROM idempotency_keys WHERE key = 'key-2') WHERE key = 'key-1'";
    sqlx::query(moved)
        .execute(gateway.app().database.writer())
        .await
        .expect("it can be written");
    let swapped = keyed(&gateway, "key-1").post("/chat", &question()).await;
    swapped.error(409, "IDEMPOTENCY_ANSWER_NOT_KEPT");

    let another = sealing_key(&folder, 2, "another");
    let error = start(Some(gateway), &another).await.err();
    let error = format!("{:#}", error.expect("it does not start"));
    assert!(error.contains("`sealing_keys`"), "{error}");
    assert!(!error.contains(&"another".repeat(2)), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_a_request_that_was_torn_down_ends() {
    each_database(async |stores| {
        let (database, now) = (&stores.database, Millis::now());
        create_users(database, ["alice"].into_iter(), now.0).await;
        let clock = Clock::Manual(ManualClock::at(now));
        let ledger = Ledger::start(database.clone(), clock, LeaseSettings::default()).await;
        let ledger = ledger.expect("a ledger");
        let alice = AccountId("alice".to_owned());
        let claim = IdempotencyClaim {
            key: "key-1".to_owned(),
            request_digest: [1; 32],
        };
        let deadline = || Instant::now() + Duration::from_secs(20);
        let ask = async |request_id: &str| {
            let open = OpenHold {
                hold: HoldId(format!("hold_{request_id}")),
                amount: Credits::from_micro(9),
                request_id: request_id.to_owned(),
                parent: None,
                source: RequestSource::Web,
                source_id: None,
                parts: Vec::new(),
                top_up_only: false,
                model: "m".to_owned(),
            };
            let claim = Some(claim.clone());
            ledger.open_request(&alice, open, claim, deadline()).await
        };
        let at = ask("a").await.expect("a hold");
        let keys = KeyRing::of([(1, SecretKey::new([1; 32]))]);
        let key = ClaimedKey::new(
            ledger.clone(),
            keys,
            alice.clone(),
            claim.clone(),
            "a".to_owned(),
            at,
        );
        let in_progress = Err(LedgerError::Refused(LedgerRefusal::KeyTaken(
            KeyConflict::InProgress,
        )));
        assert_eq!(ask("b").await, in_progress);
        ledger.abandon(&alice, HoldId("hold_a".to_owned()));
        let request = tokio::spawn(async move {
            let _key = key;
            panic!("a defect");
        });
        assert!(request.await.is_err());
        let served = weir_ledger::ServedRequest {
            request_id: "a".to_owned(),
            charged: Credits::ZERO,
            answer: None,
            expires_at: at.plus_days(1),
        };
        let served = Err(LedgerError::Refused(LedgerRefusal::KeyTaken(
            KeyConflict::Served(served),
        )));
        patiently(async {
            while ask("b").await == in_progress {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        assert_eq!(ask("b").await, served);
    })
    .await;
}

/// The complete error.
#[tokio::test]
async fn the_first_request_and_its_charge_are_named() {
    let gateway = Gateway::start().await;
    let client = keyed(&gateway, "key-1");
    let mut body = chat("demo", "hello");
    let stream = client.stream("/chat", &body).await;
    let first = stream.headers["x-request-id"].clone();
    assert!(stream.is_whole().await);
    body["stream"] = true.into();
    let mut error = client
        .post("/chat", &body)
        .await
        .error(409, "IDEMPOTENCY_ANSWER_NOT_KEPT");
    let fields = error.as_object_mut().expect("an object");
    for field in ["message", "request_id", "charged_credits"] {
        assert!(fields.remove(field).is_some(), "{field}");
    }
    let expected = json!({
        "code": "IDEMPOTENCY_ANSWER_NOT_KEPT",
        "type": "invalid_request_error",
        "param": null,
        "first_request_id": first.to_str().expect("ASCII"),
    });
    assert_eq!(error, expected);
}

/// The database is down for longer than a finished response waits for its charge: the client gets an error, and
/// retries.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_whose_charge_was_late_is_kept_for_its_key() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(Reply::chat("late").after_gate(&gate));
    let gateway = Gateway::with_upstream(&upstream).await;
    let client = keyed(&gateway, "key-1");
    let asking = {
        let client = client.clone();
        tokio::spawn(async move { client.post("/chat", &question()).await })
    };
    gate.reached().await;
    let other = Database::open(&gateway.app().config.database_url()).await;
    let other = other.expect("a second process may open it");
    let transaction = other.begin().await.expect("nobody else writes");
    gate.open();
    let told = asking.await.expect("no panic");
    told.error(503, "SETTLEMENT_DELAYED");
    drop(transaction);
    until_idle(&gateway).await;
    let again = client.post("/chat", &question()).await;
    assert!(is_replay(&again));
    assert_eq!(again.content(), "late");
    let (settled, charged) = charges(&gateway).await;
    assert_eq!(settled, 1);
    let paid = again.json()["usage"]["credits"].as_f64().expect("a number");
    assert_eq!((paid * 1e6).round() as i64, charged);
    assert_eq!(upstream.count(), 1);
    is_sound(&gateway).await;
}
