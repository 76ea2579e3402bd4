//! Providers that hang: another provider serves each kind of request, and the hanging one is left alone.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tests::gateway::Builder;
use tests::recording::{FORM, form, wav};
use tests::upstream::Request;
use tests::{Client, Gate, Gateway, Reply, Upstream, chat, patiently};

use crate::hang_up::{models_of_all_kinds, plain_requests};

/// Short limits of the hanging provider, and none for the other one: it may be slow on a busy machine.
const LIMITS: &str =
    "[providers.first.timeouts]\nfirst_byte_ms = 150\nfirst_token_ms = 150\nidle_ms = 150\n";

/// A short pause between the bytes that keep a connection open.
const EVERY: Duration = Duration::from_millis(20);

/// A request of one kind.
struct Work {
    model: &'static str,
    path: &'static str,
    media_type: &'static str,
    body: Bytes,
    is_stream: bool,
}

/// A request of each kind, and a chat with a stream.
fn all_work() -> Vec<Work> {
    let models = [
        "scripted", "painter", "vectors", "order", "judge", "voice", "ear",
    ];
    let plain = plain_requests().into_iter().zip(models);
    let mut all: Vec<_> = plain
        .map(|((path, media_type, body, _), model)| Work {
            model,
            path,
            media_type,
            body,
            is_stream: false,
        })
        .collect();
    let mut streamed = chat("streamed", "x");
    streamed["stream"] = true.into();
    all.push(Work {
        model: "streamed",
        path: "/chat",
        media_type: "application/json",
        body: Bytes::from(streamed.to_string()),
        is_stream: true,
    });
    all
}

/// The response of a provider that works, to a request of any kind.
fn served(request: &Request) -> Reply {
    let is_stream = || request.json()["stream"] == true;
    if request.path.ends_with("/chat/completions") && is_stream() {
        return Reply::chat_stream(["late"]);
    }
    let mut all = plain_requests().into_iter();
    let found = all.find(|(path, ..)| match *path {
        "/chat" => request.path.ends_with("/chat/completions"),
        path => request.path.ends_with(path.trim_start_matches("/v1")),
    });
    let (.., reply) = found.expect("a kind");
    reply
}

/// The response of a provider that hangs.
type Hang = fn(&Request) -> Reply;

/// The ways to hang.
const HANGS: [(&str, Hang); 6] = [
    ("no headers", |_| Reply::never()),
    ("trickling headers", |_| Reply::drip_head(EVERY)),
    ("headers only", |request| served(request).silent_after(0)),
    ("between bytes", |request| served(request).silent_after(9)),
    ("blank lines", |_| Reply::drip_blanks(EVERY)),
    ("comments", |_| Reply::drip(EVERY)),
];

fn builder(first: &Upstream, second: &Upstream) -> Builder {
    Gateway::builder()
        .provider("first", "openai", Some(first))
        .tables(LIMITS)
        .provider("second", "openai", Some(second))
        .model("scripted", &["first", "second"])
        .model("streamed", &["first", "second"])
        .tables(&models_of_all_kinds(
            "{ provider = \"first\" }, { provider = \"second\" }",
        ))
}

async fn assert_served(client: &Client, work: &Work, case: &str) {
    let (media_type, body) = (Some(work.media_type), work.body.clone());
    let answer = client.send(Method::POST, work.path, media_type, body).await;
    let case = format!("{case}, {}", work.model);
    assert_eq!(answer.status, 200, "{case}: {}", answer.text());
    assert_eq!(answer.headers["x-weir-provider"], "second", "{case}");
    assert!(
        !work.is_stream || answer.text().contains("late"),
        "{case}: {}",
        answer.text()
    );
}

async fn metric(gateway: &Gateway, name: &str, upstream: &str) -> String {
    let metrics = gateway.stranger().get("/metrics").await.text();
    let series = format!("{name}{{upstream=\"{upstream}\"}} ");
    let value = metrics.lines().find_map(|line| line.strip_prefix(&series));
    value
        .unwrap_or_else(|| panic!("{series}: {metrics}"))
        .into()
}

/// Whether a provider can hang in this way: any bytes behind the headers of a recording are output, and such a response is
/// not begun again.
fn can_hang(hang: &str, work: &Work) -> bool {
    work.model != "voice" || !matches!(hang, "between bytes" | "blank lines" | "comments")
}

/// An organisation is one account.
#[tokio::test(flavor = "multi_thread")]
async fn one_accounts_requests_of_each_kind_leave_a_provider_that_hangs() {
    for (hang, reply) in HANGS {
        let (first, second) = (Upstream::start().await, Upstream::start().await);
        first.always_by(reply);
        second.always_by(served);
        let gateway = builder(&first, &second).start().await;
        let client = gateway.client();
        let mut all = all_work();
        all.retain(|work| can_hang(hang, work));
        join_all(all.iter().map(async |work| {
            for _ in 0..8 {
                assert_served(&client, work, hang).await;
            }
        }))
        .await;
        // The breakers opened at the fifth failure.
        assert_eq!(first.count(), 5 * all.len(), "{hang}");
        for work in &all {
            let key = format!("first/{}", work.model);
            let open = metric(&gateway, "weir_upstream_breaker_open_accounts", &key).await;
            assert_eq!(open, "1", "{hang}, {key}");
            let open = metric(&gateway, "weir_upstream_breaker_open", &key).await;
            assert_eq!(open, "0", "{hang}, {key}: other accounts may use it");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn five_accounts_requests_of_each_kind_leave_a_provider_that_hangs() {
    for (hang, reply) in HANGS {
        let (first, second) = (Upstream::start().await, Upstream::start().await);
        first.always_by(reply);
        second.always_by(served);
        let gateway = builder(&first, &second).start().await;
        let mut all = all_work();
        all.retain(|work| can_hang(hang, work));
        let clients: Vec<_> = ["ann", "bob", "cem", "dee", "eve"]
            .map(|user| gateway.web(user))
            .into();
        let each = clients
            .iter()
            .flat_map(|client| all.iter().map(move |work| (client, work)));
        join_all(each.map(async |(client, work)| assert_served(client, work, hang).await)).await;
        assert_eq!(first.count(), 5 * all.len(), "{hang}");
        for work in &all {
            let key = format!("first/{}", work.model);
            let open = metric(&gateway, "weir_upstream_breaker_open", &key).await;
            assert_eq!(open, "1", "{hang}, {key}");
            assert_served(&gateway.web("fay"), work, hang).await;
        }
        assert_eq!(first.count(), 5 * all.len(), "{hang}: nobody waits for it");
    }
}

/// Weir's cost, not the client's.
#[tokio::test]
async fn the_attempt_at_a_hanging_provider_is_at_the_gateways_cost() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.always(Reply::never());
    second.always_by(served);
    let gateway = builder(&first, &second).start().await;
    let work = all_work();
    for model in ["scripted", "vectors"] {
        let work = work.iter().find(|work| work.model == model);
        assert_served(&gateway.client(), work.expect("a kind"), model).await;
    }
    let admin = gateway.admin("root").await;
    let report = admin.get("/admin/model-economics").await.json();
    let rows = report.as_array().expect("a list");
    assert_eq!(rows.len(), 2, "{report}");
    for row in rows {
        let number = |name: &str| row[name].as_f64().expect("a number");
        assert_eq!(row["provider"], "second", "{row}");
        // The revenue is the cost of the response times this factor.
        let of_response = number("revenue_usd") / 1.4;
        assert!(number("provider_cost_usd") > of_response + 1e-6, "{row}");
    }
}

/// Images and long reasoning take longer than other responses.
#[tokio::test]
async fn a_models_own_limit_counts_before_the_providers() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    second.always(Reply::chat("second"));
    let gateway = Gateway::builder()
        .tables("[timeouts]\nfirst_byte_ms = 100\n")
        .provider("first", "openai", Some(&first))
        .tables("timeouts = { first_byte_ms = 60000 }\n")
        .provider("second", "openai", Some(&second))
        .model("patient", &["first", "second"])
        .model("hurried", &["first", "second"])
        .tables("timeouts = { first_byte_ms = 100 }\n")
        .start()
        .await;
    // The response of the patient model comes after the hurried one has been given up: that long it has waited.
    let gate = Gate::new();
    first.will(Reply::chat("first").after_gate(&gate));
    let patient = gateway.chat("patient", "x");
    let hurried = async {
        gate.reached().await;
        first.will(Reply::never());
        let answer = gateway.chat("hurried", "x").await;
        gate.open();
        answer
    };
    let (patient, hurried) = tokio::join!(patient, hurried);
    assert_eq!(patient.content(), "first");
    assert_eq!(hurried.content(), "second");
}

/// Without another candidate, a plain request waits for as long as `total_ms`, and that counts, too.
#[tokio::test]
async fn the_deadline_of_a_request_counts_for_the_breaker() {
    let first = Upstream::start().await;
    let gateway = Gateway::builder()
        .upstream("scripted", &first)
        .tables("[timeouts]\nfirst_byte_ms = 100\ntotal_ms = 400\n")
        .start()
        .await;
    first.always(Reply::drip_blanks(EVERY));
    for _ in 0..5 {
        let answer = gateway.chat("scripted", "x").await;
        answer.error(504, "UPSTREAM_TIMEOUT");
    }
    let answer = gateway.chat("scripted", "x").await;
    answer.error(503, "UPSTREAM_UNAVAILABLE");
    assert!(answer.headers.contains_key("retry-after"));
    assert_eq!(first.count(), 5);
    // Another account may use it.
    first.always(Reply::chat("served"));
    let bob = gateway.web("bob");
    let answer = bob.post("/chat", &chat("scripted", "x")).await;
    assert_eq!(answer.content(), "served");
}

/// Its provider goes on and bills, so weir does, too. Nobody awaits a fallback.
#[tokio::test]
async fn a_slow_response_without_a_client_is_read_to_its_end() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    second.always_by(served);
    let gateway = builder(&first, &second).start().await;
    let gate = Gate::new();
    first.will(Reply::chat_with_usage("late", 50, 9).after_gate(&gate));
    let client = gateway.client();
    let request = tokio::spawn(async move { client.post("/chat", &chat("scripted", "x")).await });
    gate.reached().await;
    request.abort();
    let _ = request.await;
    // The gateway learns of the disconnect from the socket: requests on the same runtime give it the time.
    for _ in 0..20 {
        gateway.stranger().get("/health").await;
    }
    // A later request has been given up: the earlier one would have been, too.
    first.will(Reply::never());
    assert_eq!(gateway.chat("scripted", "x").await.content(), "late");
    gate.open();
    patiently(async {
        while !gateway.app().tasks.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let list = gateway.client().get("/usage/requests?limit=2").await.json();
    let requests = list["requests"].as_array().expect("a list");
    let providers: Vec<_> = requests
        .iter()
        .map(|request| &request["provider"])
        .collect();
    assert!(providers.contains(&&json!("first")), "{list}");
    let estimated = |request: &Value| request["estimated"] == true;
    assert!(!requests.iter().any(estimated), "{list}");
    assert_eq!((first.count(), second.count()), (2, 1));
}

/// While another provider serves everybody, one request at a time shows whether the preferred one works again.
#[tokio::test]
async fn a_provider_that_works_again_gets_its_place_back() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.always(Reply::error(500, "broken"));
    second.always_by(served);
    let gateway = builder(&first, &second).start().await;
    for user in ["ann", "ann", "bob"] {
        let answer = gateway
            .web(user)
            .post("/chat", &chat("scripted", "x"))
            .await;
        assert_eq!(answer.content(), "late");
    }
    let open = metric(&gateway, "weir_upstream_breaker_open", "first/scripted").await;
    assert_eq!(open, "1");
    first.always(Reply::chat("first"));
    patiently(async {
        while gateway.chat("scripted", "x").await.content() != "first" {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// A stream of a recording's words is a plain response to its provider.
#[tokio::test]
async fn a_streamed_transcription_leaves_a_provider_that_hangs() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.always(Reply::drip(EVERY));
    second.always(Reply::events([
        r#"{"type":"transcript.text.delta","delta":"hello"}"#,
        r#"{"type":"transcript.text.done","text":"hello"}"#,
    ]));
    let gateway = builder(&first, &second).start().await;
    let body = form(&wav(2), &[("model", "ear"), ("stream", "true")]);
    let answer = gateway
        .client()
        .send(Method::POST, "/v1/audio/transcriptions", Some(FORM), body)
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.text().contains("hello"), "{}", answer.text());
    assert_eq!((first.count(), second.count()), (1, 1));
}
