//! The bundled filters, over real sockets and real Wasm.

use serde_json::{Value, json};
use tests::gateway::Builder;
use tests::{Gateway, Reply, Upstream, chunks};

/// A gateway that redacts requests to `scripted`, which the upstream serves.
async fn redacting(upstream: &Upstream, options: &str) -> Gateway {
    let filter = format!("[[filters]]\nslot = \"redact-pii\"\n{options}");
    let gateway = Gateway::builder().upstream("scripted", upstream);
    gateway.tables(&filter).start().await
}

fn last_said(upstream: &Upstream) -> String {
    let requests = upstream.requests();
    let body = requests.last().expect("it was asked").json();
    let said = &body["messages"][0]["content"];
    said.as_str().expect("a text").to_owned()
}

fn annotations(answer: &tests::Answer) -> Option<&str> {
    let header = answer.headers.get("x-weir-annotations")?;
    Some(header.to_str().expect("a text"))
}

fn said(events: &[String]) -> String {
    let texts = chunks(events);
    let texts = texts
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str());
    texts.collect()
}

#[tokio::test]
async fn personal_data_reaches_neither_the_upstream_nor_the_client() {
    let upstream = Upstream::start().await;
    let gateway = redacting(&upstream, "").await;
    upstream.will(Reply::chat(
        "Write to b@example.org or call +49 30 1234567.",
    ));
    let question = "I am a@example.org, who else? 4111 1111 1111 1111, c@example.org";
    let answer = gateway.chat("scripted", question).await;
    assert_eq!(
        last_said(&upstream),
        "I am [e-mail], who else? [card], [e-mail]"
    );
    assert_eq!(answer.content(), "Write to [e-mail] or call [phone].");
    assert_eq!(
        annotations(&answer),
        Some("redact-pii.e-mail=2, redact-pii.card=1")
    );
    upstream.will(Reply::chat("It is nobody."));
    let answer = gateway.chat("scripted", "Who is it?").await;
    assert_eq!(last_said(&upstream), "Who is it?");
    assert_eq!(answer.content(), "It is nobody.");
    assert_eq!(annotations(&answer), None);
}

#[tokio::test]
async fn personal_data_is_found_across_the_pieces_of_a_stream() {
    let upstream = Upstream::start().await;
    let gateway = redacting(&upstream, "").await;
    let pieces = [
        "Ask ad",
        "a@exa",
        "mple.o",
        "rg, 4111 11",
        "11 1111 1111",
        ". Do",
        "ne",
    ];
    upstream.will_stream(pieces);
    let events = gateway.stream("scripted", "Who?").await.rest().await;
    assert_eq!(said(&events), "Ask [e-mail], [card]. Done");
    assert_eq!(events.last().map(String::as_str), Some("data: [DONE]"));
    // Redacted output is never repaired later.
    assert!(!events.concat().contains("4111"), "{events:?}");
}

#[tokio::test]
async fn an_operator_says_what_is_redacted() {
    let upstream = Upstream::start().await;
    let options = "options = { kinds = \"ip,phone\", answers = \"false\" }\n";
    let gateway = redacting(&upstream, options).await;
    upstream.will(Reply::chat("From 10.0.0.1"));
    let answer = gateway.chat("scripted", "a@example.org at 10.0.0.1").await;
    assert_eq!(last_said(&upstream), "a@example.org at [ip]");
    assert_eq!(answer.content(), "From 10.0.0.1");
    let filter = "[[filters]]\nslot = \"redact-pii\"\noptions = { kinds = \"names\" }\n";
    let refused = Gateway::builder().tables(filter).try_start().await;
    let why = refused.err().map(|error| format!("{error:#}"));
    let why = why.expect("it does not start");
    assert!(
        why.contains("filters[0].options.kinds: must be a list of"),
        "{why}"
    );
}

fn two(short: &Upstream, long: &Upstream, options: &str) -> Builder {
    Gateway::builder()
        .provider("long", "openai", Some(long))
        .provider("short", "openai", Some(short))
        .model("both", &["long", "short"])
        .tables(&format!(
            "[[filters]]\nslot = \"route-by-length\"\noptions = {{ {options} }}\n"
        ))
}

#[tokio::test]
async fn short_requests_go_here_and_long_ones_there() {
    let (short, long) = (Upstream::start().await, Upstream::start().await);
    let options = "limit = \"1000\", short = \"short\", long = \"long\"";
    let gateway = two(&short, &long, options).start().await;
    short.always(Reply::chat("short"));
    long.always(Reply::chat("long"));
    let ask = async |text: &str| gateway.chat("both", text).await.content();
    assert_eq!(ask("hello").await, "short");
    assert_eq!(ask(&"hello ".repeat(2_000)).await, "long");
    assert_eq!((short.count(), long.count()), (1, 1));
    // The other upstreams remain as fallbacks.
    let failed: Value = json!({ "error": { "message": "overloaded", "type": "server_error" } });
    short.always(Reply::json(503, &failed));
    assert_eq!(ask("hello").await, "long");
    let unlimited = two(&short, &long, "short = \"short\"").try_start().await;
    let why = unlimited.err().map(|error| format!("{error:#}"));
    assert!(why.is_some_and(|why| why.contains("filters[0].options.limit: must be set")));
}
