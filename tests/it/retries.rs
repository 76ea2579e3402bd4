//! Retries: their conditions, and their upstreams.

use std::time::{Duration, Instant};

use serde_json::json;
use tests::{Gateway, Reply, Upstream, chat, guests};

/// A gateway whose model `both` is served by two upstreams, the first preferred.
async fn both(first: &Upstream, second: &Upstream) -> Gateway {
    Gateway::builder()
        .provider("first", "openai", Some(first))
        .provider("second", "openai", Some(second))
        .model("both", &["first", "second"])
        .start()
        .await
}

#[tokio::test]
async fn an_upstream_that_is_unavailable_is_tried_twice_and_then_the_next() {
    for status in [429, 500, 502, 503, 504, 529] {
        let (first, second) = (Upstream::start().await, Upstream::start().await);
        first.always(Reply::error(status, "overloaded"));
        second.always(Reply::chat("from the second"));
        let gateway = both(&first, &second).await;
        assert_eq!(
            gateway.chat("both", "x").await.content(),
            "from the second",
            "{status}"
        );
        assert_eq!((first.count(), second.count()), (2, 1), "{status}");
    }
}

#[tokio::test]
async fn a_second_attempt_can_succeed() {
    let upstream = Upstream::start().await;
    upstream
        .will(Reply::error(503, "overloaded"))
        .will(Reply::chat("better"));
    let gateway = Gateway::with_upstream(&upstream).await;
    assert_eq!(gateway.chat("scripted", "x").await.content(), "better");
    upstream
        .will(Reply::error(503, "overloaded"))
        .will_stream(["bet", "ter"]);
    assert_eq!(
        gateway.stream("scripted", "x").await.content().await,
        "better"
    );
}

#[tokio::test]
async fn retry_after_is_honoured_or_another_upstream_asked() {
    let upstream = Upstream::start().await;
    let limited = Reply::error(429, "slow down").header("retry-after-ms", "400");
    upstream.will(limited.clone()).will(Reply::chat("later"));
    let gateway = Gateway::with_upstream(&upstream).await;
    let started = Instant::now();
    assert_eq!(gateway.chat("scripted", "x").await.content(), "later");
    assert!(started.elapsed() >= Duration::from_millis(400));

    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.always(Reply::error(429, "slow down").header("retry-after", "60"));
    second.always(Reply::chat("at once"));
    let gateway = both(&first, &second).await;
    assert_eq!(gateway.chat("both", "x").await.content(), "at once");
    assert_eq!(first.count(), 1, "it asked not to be asked again so soon");
}

#[tokio::test]
async fn a_long_wait_is_left_to_the_client() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    let weeks = (49 * 86_400).to_string();
    for (header, value, told) in [
        ("retry-after", "6", "6"),
        ("retry-after", "3600", "3600"),
        // A provider's mistake, or a quota by month: no client should stay away for weeks.
        ("retry-after", &weeks, "3600"),
        ("retry-after-ms", "4233600000", "3600"),
        ("retry-after", "99999999999", "3600"),
    ] {
        upstream.always(Reply::error(429, "slow down").header(header, value));
        let count = upstream.count();
        let answer = gateway.chat("scripted", "x").await;
        answer.error(503, "UPSTREAM_UNAVAILABLE");
        assert_eq!(answer.headers["retry-after"], told, "{header}: {value}");
        assert_eq!(upstream.count(), count + 1);
    }
}

/// RFC 9110, 10.2.3: `Retry-After` is a number of seconds or a date.
#[tokio::test]
async fn retry_after_may_be_a_date_with_every_adapter() {
    for adapter in ["openai", "anthropic", "gemini", "ollama"] {
        let upstream = Upstream::start().await;
        let gateway = Gateway::with_adapter(adapter, &upstream).await;
        for (date, until, told) in [
            // The clocks of the provider and of weir differ by years: only the provider's counts.
            (
                "Wed, 21 Oct 2015 07:28:00 GMT",
                "Wed, 21 Oct 2015 07:30:00 GMT",
                "120",
            ),
            (
                "Wed, 21 Oct 2015 07:28:00 GMT",
                "Wednesday, 21-Oct-15 07:28:30 GMT",
                "30",
            ),
            (
                "Wed, 21 Oct 2015 07:28:00 GMT",
                "Mon, 21 Dec 2015 07:28:00 GMT",
                "3600",
            ),
        ] {
            let limited = Reply::error(429, "slow down").header("date", date);
            upstream.always(limited.header("retry-after", until));
            let answer = gateway.chat("scripted", "x").await;
            answer.error(503, "UPSTREAM_UNAVAILABLE");
            assert_eq!(answer.headers["retry-after"], told, "{adapter}: {until}");
        }
    }
}

#[tokio::test]
async fn an_upstream_that_refuses_the_credential_gives_way_to_the_next() {
    for status in [401, 403] {
        let (first, second) = (Upstream::start().await, Upstream::start().await);
        first.always(Reply::error(status, "who are you"));
        second.will(Reply::chat("from the second"));
        let gateway = both(&first, &second).await;
        let answer = gateway.chat("both", "x").await;
        assert_eq!(answer.content(), "from the second", "{status}");
        assert_eq!((first.count(), second.count()), (1, 1), "{status}");

        // The last upstream's refusal is an error of the gateway. Each is asked, because none is left.
        second.always(Reply::error(status, "who are you"));
        let answer = gateway.chat("both", "x").await;
        answer.error(502, "UPSTREAM_ERROR");
        assert_eq!((first.count(), second.count()), (2, 2), "{status}");
    }
}

#[tokio::test]
async fn a_request_that_an_adapter_cannot_express_goes_to_the_next() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let gateway = Gateway::builder()
        .provider("first", "openai", Some(&first))
        .provider("second", "ollama", Some(&second))
        .model("both", &["first", "second"])
        .start()
        .await;
    second.always(Reply::json(
        200,
        &json!({ "model": "m", "message": { "role": "assistant", "content": "with top_k" },
            "done": true, "done_reason": "stop", "prompt_eval_count": 1, "eval_count": 1 }),
    ));
    let mut body = chat("both", "x");
    body["top_k"] = json!(5);
    let answer = gateway.client().post("/chat", &body).await;
    assert_eq!(answer.content(), "with top_k");
    assert_eq!(first.count(), 0);

    // If no upstream can express it, the client learns the field.
    body["logit_bias"] = json!({ "1": 1 });
    let answer = gateway.client().post("/chat", &body).await;
    let error = answer.error(400, "UNSUPPORTED_PARAMETER");
    assert_eq!(error["param"], "logit_bias");
}

#[tokio::test]
async fn an_upstream_that_cannot_be_reached_gives_way_to_the_next() {
    let second = Upstream::start().await;
    second.always(Reply::chat("from the second"));
    let gateway = Gateway::builder()
        // The port of a socket that was just closed has no listener.
        .tables(&format!(
            "[providers.gone]\nadapter = \"openai\"\nbase_url = \"http://{}\"\n",
            free_port()
        ))
        .provider("second", "openai", Some(&second))
        .model("both", &["gone", "second"])
        .model("alone", &["gone"])
        .start()
        .await;
    assert_eq!(gateway.chat("both", "x").await.content(), "from the second");
    gateway
        .chat("alone", "x")
        .await
        .error(503, "UPSTREAM_UNAVAILABLE");
}

#[tokio::test]
async fn a_component_that_fails_before_anything_was_sent_gives_way_to_the_next_upstream() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.always(Reply::chat("from the first"));
    second.always(Reply::chat("from the second"));
    let gateway = Gateway::builder()
        .guest("hostile", guests::misbehaving(), Some(&first))
        .provider("second", "openai", Some(&second))
        .model("both", &["hostile", "second"])
        .start()
        .await;
    for command in [
        json!({ "behave": "unreachable", "in": "begin" }),
        json!({ "behave": "spin", "in": "begin" }),
        json!({ "behave": "utf8" }),
        json!({ "behave": "send", "path": "//elsewhere/" }),
        json!({ "behave": "script", "steps": [{ "Emit": [{ "BlockEnd": 7 }] }] }),
    ] {
        let answer = gateway.chat("both", &command.to_string()).await;
        assert_eq!(answer.content(), "from the second", "{command}");
    }
    assert_eq!((first.count(), second.count()), (0, 5));
    // A request that was sent may have been served.
    for place in ["head", "body"] {
        let command = json!({ "behave": "unreachable", "in": place }).to_string();
        let answer = gateway.chat("both", &command).await;
        answer.error(502, "ADAPTER_FAILED");
    }
    assert_eq!((first.count(), second.count()), (2, 5));
}

#[tokio::test]
async fn what_may_have_been_served_is_never_tried_again() {
    for reply in [
        Reply::hang_up(),
        Reply::reset(),
        Reply::chat("cut in the middle").cut_after(40),
        Reply::error(400, "bad request"),
        Reply::redirect(302, "/elsewhere"),
        Reply::json(200, &serde_json::json!({ "nonsense": true })),
    ] {
        let (first, second) = (Upstream::start().await, Upstream::start().await);
        first.always(reply.clone());
        second.always(Reply::chat("must not be asked"));
        let gateway = both(&first, &second).await;
        let answer = gateway.chat("both", "x").await;
        assert!(
            answer.status.is_client_error() || answer.status.is_server_error(),
            "{reply:?}"
        );
        assert_eq!((first.count(), second.count()), (1, 0), "{reply:?}");
    }
}

#[tokio::test]
async fn a_stream_that_has_begun_ends_with_a_typed_error() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let whole = Reply::chat_stream(["one ", "two "]);
    let half = whole.whole_body().len() / 2;
    first.always(whole.cut_after(half));
    let gateway = both(&first, &second).await;
    let stream = gateway.client().stream("/chat", &chat("both", "x")).await;
    assert_eq!(stream.status, 200);
    let events = stream.rest().await;
    let last = events.last().expect("a last event");
    assert!(last.starts_with("event: error\ndata: {"), "{events:?}");
    assert!(last.contains("UPSTREAM_ERROR"), "{last}");
    assert_eq!(second.count(), 0);
}

fn free_port() -> std::net::SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("the loopback interface has a free port")
}
