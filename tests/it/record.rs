//! `weir record`: exchanges recorded from traffic, sealed, bounded, and replayed to another version of an adapter.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tests::gateway::{at, on_each_database};
use tests::stores::{Postgres, Redis};
use tests::{Client, Gateway, Reply, Upstream, chat, guests, patiently};
use weir_inference::recordings::store::RecordingStore;
use weir_storage::clock::Millis;

use crate::cli::{Served, run, text};

const CREDENTIAL: &str = "sk-recorded-credential-4711";
const PERSON: &str = "person-0815-of-the-client";
const PROMPT: &str = "zanzibar-is-asked-for";
const ANSWER: &str = "quixotic-is-answered";

/// A gateway in a separate process, whose model `scripted` the upstream serves.
fn served(upstream: &Upstream, folder: &Path) -> Served {
    let key = folder.join("key");
    fs::write(&key, CREDENTIAL).expect("a file");
    Served::configured(&format!(
        "[providers.scripted]\nadapter = \"openai\"\nbase_url = \"http://{}\"\ncredential = {{ file = {key:?} }}\n\
         [models.scripted]\ncontext_window = 100000\nmax_output_tokens = 1000\ndefault_output_tokens = 100\n\
         supports_tools = true\nupstreams = [{{ provider = \"scripted\" }}]\nprice = {{ input = 1, output = 1 }}\n",
        upstream.address()
    ))
}

fn record(served: &Served, arguments: &[&str]) -> Value {
    let arguments = [&["record"], arguments, &["--json"]].concat();
    let output = run(served.folder(), &arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"))
}

/// Sends requests until an exchange is recorded: a node polls each second for recordings.
async fn until_recorded(client: &Client, exchanges: impl AsyncFn() -> i64) {
    patiently(async {
        while exchanges().await == 0 {
            client.post("/chat", &chat("scripted", "warm")).await;
        }
    })
    .await;
}

fn count(served: &Served) -> i64 {
    record(served, &["show", "openai"])["exchanges"]
        .as_i64()
        .expect("a number")
}

async fn until_count(served: &Served, wanted: i64) {
    patiently(async {
        while count(served) < wanted {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn assert_nowhere_in(folder: &Path, word: &str) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            let bytes = fs::read(&path).expect("a file");
            let found = tests::contains(&bytes, word);
            assert!(!found, "{word} is in {}", path.display());
        }
    }
}

/// A new recording has the exchanges of every node from then on.
#[tokio::test(flavor = "multi_thread")]
async fn a_recording_has_begun_on_all_nodes_when_its_beginning_returns() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("recorded"));
    let url = Postgres::shared().create_database().await;
    let node = || {
        let builder = Gateway::builder().postgres(&url);
        builder.upstream("scripted", &upstream)
    };
    let first = node().start().await;
    let second = node().sharing_secrets_of(&first).start().await;
    let admin = first.admin("root").await;
    let path = "/admin/recordings/openai";
    for round in 1..=3 {
        let body = json!({ "share": 1, "seconds": 600, "most_bytes": 1 << 20 });
        let begun = admin.send(
            Method::PUT,
            path,
            Some("application/json"),
            body.to_string().into(),
        );
        let begun = begun.await;
        assert_eq!(begun.status, 200, "{}", begun.text());
        assert_eq!(begun.json()["nodes_missing"], 0, "{}", begun.text());
        assert_eq!(second.chat("scripted", "hello").await.status, 200);
        patiently(async {
            while admin.get(path).await.json()["exchanges"] != 1 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(admin.delete(path).await.status, 204, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn traffic_is_recorded_sealed_and_played_to_another_version() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("warm"));
    let keys = tempfile::tempdir().expect("a folder");
    let served = served(&upstream, keys.path());
    let (client, data) = (served.client(), served.folder().join(".weir"));
    client.post("/chat", &chat("scripted", "before")).await;
    assert_eq!(record(&served, &["show"])["recordings"], json!([]));

    let begun = record(
        &served,
        &["start", "openai", "--share", "100%", "--for", "1h"],
    );
    assert_eq!(begun["state"], "recording");
    assert_eq!(begun["most_bytes"], 64 << 20);
    let again = run(served.folder(), &["record", "start", "openai"]);
    assert!(
        text(&again.stderr).contains("is already being recorded"),
        "{again:?}"
    );
    until_recorded(&client, async || count(&served)).await;
    let warm = count(&served);

    upstream.will(Reply::chat(&format!("{ANSWER} {CREDENTIAL}")));
    let mut asked = chat("scripted", PROMPT);
    asked["user"] = json!(PERSON);
    asked["metadata"] = json!({ "who": PERSON });
    client.post("/chat", &asked).await;
    upstream.will_stream(["stream", "ed"]);
    asked["stream"] = json!(true);
    client.stream("/chat", &asked).await.rest().await;
    upstream.will(Reply::error(400, "refused upstream"));
    asked["stream"] = json!(false);
    client.post("/chat", &asked).await;
    until_count(&served, warm + 3).await;
    for word in [PROMPT, ANSWER, PERSON, CREDENTIAL] {
        assert_nowhere_in(&data, word);
    }

    let stopped = record(&served, &["stop", "openai"]);
    assert_eq!(stopped["state"], "ended");
    let recorded = stopped["exchanges"].clone();
    let fetched = record(&served, &["fetch", "openai", "recordings"]);
    assert_eq!(fetched["written"], recorded);
    let folder = served.folder().join("recordings");
    let mode = fs::metadata(&folder)
        .expect("a folder")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
    for word in [PERSON, CREDENTIAL] {
        assert_nowhere_in(&folder, word);
    }
    let files = || {
        fs::read_dir(&folder)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").path())
    };
    let with = |word: &str| {
        let of = |path: &std::path::PathBuf| {
            fs::read_to_string(path).is_ok_and(|text| text.contains(word))
        };
        files().filter(of).count()
    };
    assert_eq!((with(PROMPT), with(ANSWER)), (3, 1));
    assert_eq!(with("HTTP/1.1 400"), 1);

    fs::write(served.folder().join("old.wasm"), guests::bundled("openai")).expect("a file");
    let compared = run(
        served.folder(),
        &[
            "plugin",
            "compare",
            "openai",
            "old.wasm",
            "--recordings",
            "recordings",
        ],
    );
    assert!(
        compared.status.success(),
        "{}{}",
        text(&compared.stdout),
        text(&compared.stderr)
    );
    let checked = run(
        served.folder(),
        &["plugin", "check", "old.wasm", "--recordings", "recordings"],
    );
    assert!(
        checked.status.success(),
        "{}{}",
        text(&checked.stdout),
        text(&checked.stderr)
    );
    let other = run(
        served.folder(),
        &[
            "plugin",
            "compare",
            "openai",
            "anthropic",
            "--recordings",
            "recordings",
        ],
    );
    assert!(
        !other.status.success(),
        "another dialect sends something else"
    );
    assert!(
        text(&other.stderr).contains("recordings differ"),
        "{}",
        text(&other.stderr)
    );

    client.post("/chat", &chat("scripted", "after")).await;
    assert_eq!(count(&served), recorded.as_i64().expect("a number"));
    assert_eq!(
        record(&served, &["forget", "openai"])["forgotten"],
        "openai"
    );
    let gone = run(served.folder(), &["record", "fetch", "openai", "more"]);
    assert!(text(&gone.stderr).contains("has no recording"), "{gone:?}");
    let audit = text(&run(served.folder(), &["audit"]).stdout);
    for kind in ["started", "stopped", "fetched", "forgotten"] {
        assert!(
            audit.contains(&format!("recording.{kind}")),
            "{kind}: {audit}"
        );
    }
}

async fn begin(admin: &Client, body: &Value) -> tests::Answer {
    let body = body.to_string().into();
    admin
        .send(
            Method::PUT,
            "/admin/recordings/openai",
            Some("application/json"),
            body,
        )
        .await
}

async fn shown(admin: &Client) -> Value {
    admin.get("/admin/recordings/openai").await.json()
}

async fn exchanges(admin: &Client) -> i64 {
    shown(admin).await["exchanges"].as_i64().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_with_its_time_and_with_its_bytes_and_is_forgotten_a_week_later() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("warm"));
    let configure = |builder: tests::gateway::Builder| builder.upstream("scripted", &upstream);
    on_each_database("2026-03-03T00:00:00Z", configure, async |gateway, clock| {
        let (admin, client) = (gateway.admin("olivia").await, gateway.client());
        let all = json!({ "share": 1.0, "seconds": 60, "most_bytes": 1 << 20 });
        begin(&admin, &all).await;
        until_recorded(&client, async || exchanges(&admin).await).await;
        clock.set(at("2026-03-03T00:01:00Z"));
        client.post("/chat", &chat("scripted", "late")).await;
        let ended = shown(&admin).await;
        assert_eq!(ended["state"], "ended");
        // A late exchange is not stored.
        let store = RecordingStore::new(
            gateway.app().database.clone(),
            gateway.app().sealing_keys.clone(),
        );
        let kept = store.exchanges("openai", "").await.expect("an answer");
        let first = kept[0].exchange.as_ref().expect("it opens");
        let first = serde_json::to_vec(first).expect("JSON");
        assert!(
            !store
                .keep("openai", &first, gateway.app().clock.now())
                .await
                .expect("an answer")
        );

        // An oversized exchange is skipped, and smaller ones are stored.
        let small = json!({ "share": 1.0, "seconds": 60, "most_bytes": 16_000 });
        begin(&admin, &small).await;
        assert_eq!(
            exchanges(&admin).await,
            0,
            "what was recorded before is forgotten"
        );
        let now = gateway.app().clock.now();
        let keep = async |bytes: usize| {
            let kept = store.keep("openai", &vec![b' '; bytes], now).await;
            kept.expect("an answer")
        };
        assert!(!keep(17_000).await, "it does not fit");
        assert_eq!(shown(&admin).await["state"], "recording");
        assert!(keep(8_000).await, "a smaller one does");
        patiently(async {
            while shown(&admin).await["state"] == "recording" {
                client.post("/chat", &chat("scripted", "full")).await;
            }
        })
        .await;
        let full = shown(&admin).await;
        assert!(
            full["kept_bytes"]
                .as_i64()
                .is_some_and(|bytes| (8_000..=16_000).contains(&bytes)),
            "{full}"
        );

        let week = |days: i64| Millis(gateway.app().clock.now().0 + days * 86_400_000);
        store.prune(week(6)).await.expect("an answer");
        assert!(exchanges(&admin).await > 0);
        store.prune(week(8)).await.expect("an answer");
        admin
            .get("/admin/recordings/openai")
            .await
            .error(404, "NOT_FOUND");
        assert!(
            store
                .exchanges("openai", "")
                .await
                .expect("an answer")
                .is_empty()
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exchange_is_as_large_as_its_request_and_its_answer() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("fine"));
    let gateway = Gateway::with_upstream(&upstream).await;
    let (admin, client) = (gateway.admin("olivia").await, gateway.client());
    let all = json!({ "share": 1.0, "seconds": 600, "most_bytes": 64 << 20 });
    begin(&admin, &all).await;
    until_recorded(&client, async || exchanges(&admin).await).await;
    // In the stored form, each quotation mark takes two bytes.
    for large in ["x".repeat(1_100_000), "\"".repeat(600_000)] {
        let answer = client.post("/chat", &chat("scripted", &large)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let before = exchanges(&admin).await;
    patiently(async {
        while exchanges(&admin).await == before {
            client.post("/chat", &chat("scripted", "small")).await;
        }
    })
    .await;
    let kept = shown(&admin).await["kept_bytes"].as_i64();
    assert!(kept.is_some_and(|bytes| bytes < 1 << 20), "{kept:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_records() {
    let redis = Redis::start();
    let url = Postgres::shared().create_database().await;
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("fine"));
    let node = || {
        Gateway::builder()
            .upstream("scripted", &upstream)
            .postgres(&url)
            .redis(&redis.url())
    };
    let first = node().start().await;
    let second = node().sharing_secrets_of(&first).start().await;
    let admin = first.admin("olivia").await;
    let all = json!({ "share": 1.0, "seconds": 600, "most_bytes": 1 << 20 });
    begin(&admin, &all).await;
    until_recorded(&second.client(), async || exchanges(&admin).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_is_a_share() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("fine"));
    let gateway = Gateway::with_upstream(&upstream).await;
    let (admin, client) = (gateway.admin("olivia").await, gateway.client());
    let few = json!({ "share": 0.1, "seconds": 600, "most_bytes": 8 << 20 });
    begin(&admin, &few).await;
    until_recorded(&client, async || exchanges(&admin).await).await;
    let (before, asked) = (exchanges(&admin).await, 300);
    for _ in 0..asked {
        client.post("/chat", &chat("scripted", "some")).await;
    }
    let recorded = exchanges(&admin).await - before;
    assert!((3..=100).contains(&recorded), "{recorded} of {asked}");
}

#[tokio::test]
async fn only_administrators_have_traffic_recorded_and_only_that_of_adapters() {
    let gateway = Gateway::builder()
        .settings("internal_listen = \"127.0.0.1:0\"")
        .start()
        .await;
    let admin = gateway.admin("olivia").await;
    let sound = json!({ "share": 1.0, "seconds": 60, "most_bytes": 1_000 });
    for caller in [
        gateway.service(&["plugins:write"]).at(gateway.address()),
        gateway.web("alice"),
        gateway.client(),
        gateway.stranger(),
    ] {
        let refused = begin(&caller, &sound).await.status;
        assert!(
            matches!(refused, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN),
            "{refused}"
        );
        for path in [
            "/admin/recordings",
            "/admin/recordings/openai",
            "/admin/recordings/openai/exchanges",
        ] {
            let refused = caller.get(path).await.status;
            assert!(
                matches!(refused, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN),
                "{refused} {path}"
            );
        }
    }
    for (field, value) in [
        ("share", json!(0.0)),
        ("share", json!(1.1)),
        ("share", json!("all")),
        ("seconds", json!(0)),
        ("seconds", json!(86_401)),
        ("most_bytes", json!(0)),
        ("most_bytes", json!(1_i64 << 40)),
    ] {
        let mut body = sound.clone();
        body[field] = value;
        let error = begin(&admin, &body).await.error(400, "INVALID_REQUEST");
        assert_eq!(error["param"], field, "{body}");
    }
    let of = async |slot: &str| {
        let path = format!("/admin/recordings/{slot}");
        let body = sound.to_string().into();
        admin
            .send(Method::PUT, &path, Some("application/json"), body)
            .await
    };
    assert_eq!(
        of("http_get").await.error(400, "INVALID_REQUEST")["param"],
        "slot"
    );
    assert_eq!(of("nowhere").await.error(404, "NOT_FOUND")["param"], "slot");
    assert_eq!(
        admin.get("/admin/recordings").await.json(),
        json!({ "recordings": [] })
    );
    for path in [
        "/admin/recordings/openai",
        "/admin/recordings/openai/exchanges",
    ] {
        admin.get(path).await.error(404, "NOT_FOUND");
    }
}
