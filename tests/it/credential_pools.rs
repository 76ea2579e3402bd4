//! Several credentials of one provider: conversations are shared out between them, and a refused or limited one leaves its
//! requests to the others.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::gateway::Builder;
use tests::upstream::Request;
use tests::{Gateway, Reply, Upstream, chat};

use crate::cli::Served;
use crate::console::Browser;

/// The credentials, in the order of the configuration.
const CREDENTIALS: [&str; 3] = [
    "first-credential-0123456789",
    "second-credential-0123456789",
    "third-credential-0123456789",
];

/// A gateway whose model `pooled` has a provider with all credentials, and then the rest of its upstreams.
fn pooled(folder: &TempDir, upstream: &Upstream, others: &str) -> Builder {
    Gateway::builder().tables(&pool_tables(folder, upstream, others))
}

fn pool_tables(folder: &TempDir, upstream: &Upstream, others: &str) -> String {
    let sources: Vec<_> = CREDENTIALS
        .iter()
        .map(|credential| {
            let file = folder.path().join(credential);
            fs::write(&file, credential).expect("the folder can be written");
            format!("{{ file = {file:?} }}")
        })
        .collect();
    format!(
        "[providers.pool]\nadapter = \"openai\"\nbase_url = \"{}\"\ncredentials = [{}]\n\
         [models.pooled]\ncontext_window = 100000\nmax_output_tokens = 1000\ndefault_output_tokens = 100\n\
         price = {{ input = 1, output = 2 }}\nupstreams = [{{ provider = \"pool\" }}{others}]\n",
        upstream.base_url(),
        sources.join(", "),
    )
}

/// The credential of a request, by its place in the configuration.
fn credential_of(request: &Request) -> usize {
    let sent = request
        .header("authorization")
        .expect("it has a credential");
    let place = CREDENTIALS
        .iter()
        .position(|credential| sent == format!("Bearer {credential}"));
    place.expect("it is one of the pool")
}

fn counts(upstream: &Upstream) -> BTreeMap<usize, usize> {
    let mut counts = BTreeMap::new();
    for request in upstream.requests() {
        *counts.entry(credential_of(&request)).or_default() += 1;
    }
    counts
}

/// An upstream that replies in this way to requests with the first credential, and serves all others.
async fn upstream_against_first(reply: impl Fn() -> Reply + Send + Sync + 'static) -> Upstream {
    let upstream = Upstream::start().await;
    upstream.always_by(move |request| match credential_of(request) {
        0 => reply(),
        _ => Reply::chat("served"),
    });
    upstream
}

#[tokio::test]
async fn conversations_are_shared_out_and_stay_with_their_credential() {
    let folder = TempDir::new().expect("a folder");
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("served"));
    let gateway = pooled(&folder, &upstream, "").start().await;
    for conversation in 0..30 {
        let mut body = chat("pooled", "x");
        body["prompt_cache_key"] = json!(format!("conversation {conversation}"));
        for _ in 0..2 {
            let answer = gateway.client().post("/chat", &body).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    }
    let used: Vec<_> = upstream.requests().iter().map(credential_of).collect();
    for turns in used.chunks(2) {
        assert_eq!(turns[0], turns[1], "{used:?}");
    }
    let counts = counts(&upstream);
    assert!(
        counts.len() == 3 && counts.values().all(|count| *count >= 4),
        "{counts:?}"
    );
}

#[tokio::test]
async fn a_refused_credential_leaves_its_requests_to_the_others() {
    for status in [401, 402] {
        let folder = TempDir::new().expect("a folder");
        let upstream = upstream_against_first(move || Reply::error(status, "no")).await;
        let gateway = pooled(&folder, &upstream, "").start().await;
        for _ in 0..30 {
            let answer = gateway.client().post("/chat", &chat("pooled", "x")).await;
            assert_eq!(answer.status, 200, "{status}: {}", answer.text());
        }
        let counts = counts(&upstream);
        assert_eq!(counts[&0], 1, "{status}: {counts:?}");
        assert!(counts[&1] > 3 && counts[&2] > 3, "{status}: {counts:?}");
    }
}

#[tokio::test]
async fn a_limited_credential_is_not_waited_for() {
    let folder = TempDir::new().expect("a folder");
    let upstream =
        upstream_against_first(|| Reply::error(429, "slow down").header("retry-after", "30")).await;
    let gateway = pooled(&folder, &upstream, "").start().await;
    let requests = async {
        for _ in 0..30 {
            let answer = gateway.client().post("/chat", &chat("pooled", "x")).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    };
    let done = tokio::time::timeout(Duration::from_secs(20), requests).await;
    done.expect("no request waits for the limit");
    assert_eq!(counts(&upstream)[&0], 1);
}

#[tokio::test]
async fn a_provider_that_fails_is_not_asked_with_each_credential() {
    let folder = TempDir::new().expect("a folder");
    let (upstream, other) = (Upstream::start().await, Upstream::start().await);
    upstream.always(Reply::error(503, "down"));
    other.always(Reply::chat("other"));
    let gateway = pooled(&folder, &upstream, ", { provider = \"other\" }")
        .provider("other", "openai", Some(&other))
        .start()
        .await;
    let answer = gateway.client().post("/chat", &chat("pooled", "x")).await;
    assert_eq!(answer.content(), "other", "{}", answer.text());
    let counts = counts(&upstream);
    assert_eq!(counts.len(), 1, "{counts:?}");
}

#[tokio::test]
async fn the_error_is_that_of_the_credential_if_all_are_refused() {
    let folder = TempDir::new().expect("a folder");
    let upstream = Upstream::start().await;
    upstream.always(Reply::error(401, "no"));
    let gateway = pooled(&folder, &upstream, "").start().await;
    let answer = gateway.client().post("/chat", &chat("pooled", "x")).await;
    assert!(answer.status.is_server_error(), "{}", answer.text());
    assert_eq!(counts(&upstream), BTreeMap::from([(0, 1), (1, 1), (2, 1)]));
    for credential in CREDENTIALS {
        assert!(!answer.text().contains(credential), "{}", answer.text());
    }
}

/// A misspelt variable must not halve the limits that the operator pays for.
#[tokio::test]
async fn each_credential_of_a_list_must_exist_and_be_the_only_setting() {
    let problems = async |credentials: &str| {
        let gateway = Gateway::builder().tables(&format!(
            "[providers.pool]\nadapter = \"openai\"\nbase_url = \"http://127.0.0.1:9\"\n{credentials}\n"
        ));
        let error = gateway.try_start().await.err().expect("it is refused");
        format!("{error:#}")
    };
    let missing = problems("credentials = [{ env = \"WEIR_TESTS_HAVE_NO_SUCH_VARIABLE\" }]").await;
    assert!(
        missing.contains("providers.pool.credentials[0]")
            && missing.contains("WEIR_TESTS_HAVE_NO_SUCH_VARIABLE"),
        "{missing}"
    );
    let both = problems(
        "credential = { env = \"HOME\" }\ncredentials = [{ env = \"HOME\" }, { env = \"PATH\" }]",
    )
    .await;
    assert!(both.contains("providers.pool.credentials"), "{both}");
}

/// A gateway whose model `both` has a provider with this credential's file, and then another provider.
async fn with_fallback(file: &Path, first: &Upstream, second: &Upstream) -> Gateway {
    Gateway::builder()
        .tables(&format!(
            "[providers.first]\nadapter = \"openai\"\nbase_url = \"{}\"\ncredential = {{ file = {file:?} }}\n",
            first.base_url()
        ))
        .provider("second", "openai", Some(second))
        .model("both", &["first", "second"])
        .start()
        .await
}

#[tokio::test]
async fn a_refused_credential_rests_although_it_is_the_only_one() {
    for status in [401, 402, 403] {
        let folder = TempDir::new().expect("a folder");
        let file = folder.path().join("credential");
        fs::write(&file, CREDENTIALS[0]).expect("the folder can be written");
        let first = upstream_against_first(move || Reply::error(status, "no")).await;
        let second = Upstream::start().await;
        second.always(Reply::chat("second"));
        let gateway = with_fallback(&file, &first, &second).await;
        for _ in 0..5 {
            assert_eq!(gateway.chat("both", "x").await.content(), "second");
        }
        assert_eq!(first.count(), 1, "{status}");

        // Operators see it.
        let overview = gateway.admin("root").await.get("/admin/overview").await;
        let overview = overview.json();
        let providers = overview["providers"].as_array().expect("a list");
        let provider = providers.iter().find(|one| one["name"] == "first");
        let provider = provider.expect("the provider");
        assert_eq!(provider["state"], "refused", "{status}: {provider}");
        assert_eq!(provider["breakers"][0]["state"], "refused", "{provider}");
        let left = provider["breakers"][0]["seconds_left"].as_u64();
        assert!(
            left.is_some_and(|left| (1..=60).contains(&left)),
            "{provider}"
        );
        let metrics = gateway.stranger().get("/metrics").await.text();
        let refused = "weir_upstream_credential_refused{upstream=\"first/both\"} 1\n";
        assert!(metrics.contains(refused), "{status}: {metrics}");
        let mut browser = Browser::of(&gateway, "root").await;
        let page = browser.page("/console/admin").await;
        assert!(page.contains("credential refused"), "{page}");

        // Only that provider is allowed: the client gets its error, not a refusal in advance.
        let alone = gateway.client().with_header("x-weir-provider", "first");
        let answer = alone.post("/chat", &chat("both", "x")).await;
        assert!(answer.status.is_server_error(), "{}", answer.text());
        assert_eq!(first.count(), 2, "{status}");

        // A reload with the same secret changes nothing; with another one, its provider serves at once.
        let reload = async || {
            let config = gateway.app().config.clone();
            let reloaded = gateway.app().take_up(config).await;
            reloaded.expect("the configuration is valid");
        };
        reload().await;
        assert_eq!(gateway.chat("both", "x").await.content(), "second");
        assert_eq!(first.count(), 2, "{status}");
        fs::write(&file, CREDENTIALS[1]).expect("the folder can be written");
        reload().await;
        assert_eq!(gateway.chat("both", "x").await.content(), "served");
    }
}

#[tokio::test]
async fn a_credential_that_works_again_loses_its_mark() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("credential");
    fs::write(&file, CREDENTIALS[0]).expect("the folder can be written");
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.will(Reply::error(401, "no"));
    first.always(Reply::chat("first"));
    second.always(Reply::chat("second"));
    let gateway = with_fallback(&file, &first, &second).await;
    assert_eq!(gateway.chat("both", "x").await.content(), "second");
    assert_eq!(gateway.chat("both", "x").await.content(), "second");
    let alone = gateway.client().with_header("x-weir-provider", "first");
    let answer = alone.post("/chat", &chat("both", "x")).await;
    assert_eq!(answer.content(), "first");
    assert_eq!(gateway.chat("both", "x").await.content(), "first");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_names_the_credential_of_a_pool_by_its_number() {
    let upstream = Upstream::start().await;
    upstream.always_by(|request| match credential_of(request) {
        1 => Reply::error(401, "no"),
        _ => Reply::chat("served"),
    });
    let folder = TempDir::new().expect("a folder");
    let served = Served::configured(&format!(
        "default_catalog = false\nlog_format = \"json\"\n{}",
        pool_tables(&folder, &upstream, "")
    ));
    let client = served.client();
    while !counts(&upstream).contains_key(&1) {
        let answer = client.post("/chat", &chat("pooled", "x")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let line = served.logged(|line| line.contains("attempt failed")).await;
    let line: Value = serde_json::from_str(&line).expect("JSON");
    assert!(line.to_string().contains("\"credential\":2"), "{line}");
    let (log, _) = served.stop();
    for credential in CREDENTIALS {
        assert!(!log.contains(credential), "{log}");
    }
}
