//! Filters, over real sockets and real Wasm: their effects on a request and its response, their failures, and their
//! isolation from others.
//!
//! The filter is `tests/hostile/meddling`, which obeys the word after `meddle `.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tests::gateway::Builder;
use tests::{Answer, Gate, Gateway, Reply, Upstream, chat, chunks, guests, patiently};
use weir_app::config::Config;
use weir_sandbox::Digest;

pub(crate) const FILTER: &str = "[[filters]]\nslot = \"meddling\"\n";

/// A gateway whose requests to `scripted`, which the upstream serves, pass these filters.
pub(crate) fn filtered(upstream: &Upstream, filters: &str) -> Builder {
    Gateway::builder()
        .plugin("meddling", guests::meddling())
        .upstream("scripted", upstream)
        .tables(&format!("[plugins]\nquarantine_traps = 0\n{filters}"))
}

/// A gateway whose model `both` the first upstream serves, and then the second, behind the filter.
pub(crate) async fn before_both(first: &Upstream, second: &Upstream) -> Gateway {
    Gateway::builder()
        .plugin("meddling", guests::meddling())
        .provider("first", "openai", Some(first))
        .provider("second", "openai", Some(second))
        .model("both", &["first", "second"])
        .tables(FILTER)
        .start()
        .await
}

async fn gateway(upstream: &Upstream) -> Gateway {
    filtered(upstream, FILTER).start().await
}

/// Returns the user's text of the upstream's last request.
fn asked(upstream: &Upstream) -> String {
    let requests = upstream.requests();
    let body = requests.last().expect("it was asked").json();
    let messages = body["messages"].as_array().expect("a list");
    let last = messages.last().expect("one message");
    last["content"].as_str().expect("a text").to_owned()
}

/// Checks that no task and no hold remains, and that others are served.
pub(crate) async fn assert_nothing_is_left(gateway: &Gateway, upstream: &Upstream, when: &str) {
    upstream.will(Reply::chat("fine"));
    let next = gateway.chat("scripted", "hello").await;
    assert_eq!(next.content(), "fine", "{when}");
    assert!(gateway.app().tasks.is_empty(), "{when}");
    let metrics = gateway.stranger().get("/metrics").await.text();
    assert!(metrics.contains("\nweir_ledger_open_holds 0\n"), "{when}");
}

/// Makes the filter do this to a streamed request, whose response arrives in these pieces.
async fn streamed(
    gateway: &Gateway,
    upstream: &Upstream,
    word: &str,
    texts: &[&str],
) -> Vec<String> {
    upstream.will_stream(texts.iter().copied());
    let stream = gateway.stream("scripted", &format!("meddle {word}")).await;
    stream.rest().await
}

/// A request with a limit, which also bounds the output of filters.
fn meddled(word: &str) -> Value {
    let mut request = chat("scripted", &format!("meddle {word}"));
    request["max_tokens"] = 1_000.into();
    request
}

/// Returns the raw text of such a response, including an error before it or in it.
async fn streamed_text(
    gateway: &Gateway,
    upstream: &Upstream,
    word: &str,
    texts: &[&str],
) -> String {
    upstream.will_stream(texts.iter().copied());
    let mut request = meddled(word);
    request["stream"] = true.into();
    gateway.client().post("/chat", &request).await.text()
}

/// Returns the text of a stream's events.
pub(crate) fn said(events: &[String]) -> String {
    let texts = chunks(events);
    let texts = texts
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str());
    texts.collect()
}

pub(crate) fn annotations(answer: &Answer) -> Option<&str> {
    let header = answer.headers.get("x-weir-annotations")?;
    Some(header.to_str().expect("a text"))
}

#[tokio::test]
async fn what_passes_is_as_it_was() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    for word in ["pass", "answer-pass", "answer-again"] {
        upstream.will(Reply::chat("as it was"));
        let answer = gateway.chat("scripted", &format!("meddle {word}")).await;
        assert_eq!(answer.content(), "as it was", "{word}");
        assert_eq!(asked(&upstream), format!("meddle {word}"));
        assert_eq!(annotations(&answer), None);
        let events = streamed(&gateway, &upstream, word, &["as ", "it ", "was"]).await;
        assert_eq!(said(&events), "as it was", "{word}");
        assert_eq!(events.last().map(String::as_str), Some("data: [DONE]"));
    }
    assert_nothing_is_left(&gateway, &upstream, "in the end").await;
}

#[tokio::test]
async fn a_refusal_is_told_and_costs_nothing() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let client = gateway.client();
    let balance = async || {
        let synced = client.post("/billing/sync-balance", &json!({})).await;
        synced.json()["available_credits"].clone()
    };
    let before = balance().await;
    let error = gateway.chat("scripted", "meddle refuse").await;
    let error = error.error(400, "CONTENT_FILTERED");
    assert_eq!(
        error["message"],
        "The filter meddling rejects this request: it is what this filter is for."
    );
    assert_eq!(error["param"], "messages");
    assert_eq!(error["filter"], "meddling");
    assert_eq!(upstream.count(), 0);
    assert!(before.is_number());
    assert_eq!(balance().await, before);
    assert_nothing_is_left(&gateway, &upstream, "after it").await;
}

#[tokio::test]
async fn a_request_and_its_answer_can_be_changed() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    upstream.will(Reply::chat_with_usage("quiet", 11, 7));
    let answer = gateway.chat("scripted", "meddle upper").await;
    assert_eq!(asked(&upstream), "MEDDLE UPPER");
    assert_eq!(answer.content(), "QUIET");
    // The charge follows the upstream.
    assert_eq!(answer.json()["usage"]["completion_tokens"], 7);
    let events = streamed(&gateway, &upstream, "upper", &["one ", "two"]).await;
    assert_eq!(said(&events), "ONE TWO");
    assert_eq!(events.last().map(String::as_str), Some("data: [DONE]"));
}

#[tokio::test]
async fn what_is_kept_of_a_session_is_what_the_client_was_told() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let mut request = chat("scripted", "meddle upper");
    request["session_id"] = "s-1".into();
    upstream.will(Reply::chat("quiet"));
    assert_eq!(
        gateway.client().post("/chat", &request).await.content(),
        "QUIET"
    );
    request["messages"][0]["content"] = "and then?".into();
    upstream.will(Reply::chat("more"));
    gateway.client().post("/chat", &request).await;
    let body = upstream.requests().last().expect("two").json();
    assert_eq!(body["messages"][1]["content"], "QUIET", "{body}");
}

/// A session keeps the client's own messages, and the filters see the whole conversation again at each turn.
#[tokio::test]
async fn a_session_keeps_the_clients_own_messages_for_the_filters_of_the_next_turn() {
    let upstream = Upstream::start().await;
    let gateway = filtered(
        &upstream,
        &format!("{FILTER}options = {{ always = \"upper\" }}\n"),
    )
    .start()
    .await;
    let client = gateway.client();
    let sent = |upstream: &Upstream| -> Vec<Value> {
        let body = upstream.requests().last().expect("one").json();
        let messages = body["messages"].as_array().expect("a list");
        messages.iter().map(|one| one["content"].clone()).collect()
    };
    let mut request = chat("scripted", "first");
    request["session_id"] = "s-1".into();
    upstream.will(Reply::chat("one"));
    assert_eq!(client.post("/chat", &request).await.content(), "ONE");
    request["messages"][0]["content"] = "second".into();
    upstream.will(Reply::chat("two"));
    client.post("/chat", &request).await;
    assert_eq!(sent(&upstream), ["FIRST", "ONE", "SECOND"]);
    let history = client.get("/session/s-1/history").await.json();
    let kept = history["messages"].as_array().expect("a list").iter();
    let kept: Vec<_> = kept.map(|message| message["content"].clone()).collect();
    assert_eq!(kept, ["first", "ONE", "second", "TWO"]);

    // So does a response of another dialect that is continued by its id.
    let body = json!({ "model": "scripted", "input": "first" });
    upstream.will(Reply::chat("one"));
    let first = client.post("/v1/responses", &body).await;
    assert_eq!(first.status, 200, "{}", first.text());
    let body = json!({
        "model": "scripted",
        "input": "second",
        "previous_response_id": first.json()["id"],
    });
    upstream.will(Reply::chat("two"));
    client.post("/v1/responses", &body).await;
    assert_eq!(sent(&upstream), ["FIRST", "ONE", "SECOND"]);
}

#[tokio::test]
async fn what_is_the_hosts_to_say_stays() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    upstream.will(Reply::chat("whole"));
    let mut request = chat("scripted", "meddle usurp");
    request["max_tokens"] = 50.into();
    let answer = gateway.client().post("/chat", &request).await;
    assert_eq!(answer.content(), "whole");
    assert_eq!(answer.json()["model"], "scripted");
    let sent = upstream.requests().last().expect("one").json();
    assert_eq!(sent["model"], "scripted");
    assert_ne!(sent["stream"], true);
    let limit = sent.get("max_completion_tokens").or(sent.get("max_tokens"));
    assert_eq!(limit, Some(&json!(50)));
}

#[tokio::test]
async fn a_change_is_held_to_the_models_limits() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let longer = gateway.chat("demo", "meddle lengthen").await;
    longer.error(400, "CONTEXT_LENGTH_EXCEEDED");
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn an_upstream_can_be_chosen() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.always(Reply::chat("first"));
    second.always(Reply::chat("second"));
    let gateway = before_both(&first, &second).await;
    let ask = async |word: &str| gateway.chat("both", &format!("meddle {word}")).await;
    assert_eq!(ask("pass").await.content(), "first");
    assert_eq!(ask("last").await.content(), "second");
    assert_eq!(ask("backwards").await.content(), "second");
    // An upstream that was not chosen is no fallback; a chosen one is.
    second.always(Reply::error(503, "overloaded"));
    ask("last").await.error(503, "UPSTREAM_UNAVAILABLE");
    assert_eq!(ask("backwards").await.content(), "first");
    // An upstream that the client excludes is not among them.
    let only_first = gateway.client().with_header("x-weir-provider", "first");
    let request = chat("both", "meddle last");
    assert_eq!(only_first.post("/chat", &request).await.content(), "first");
    for word in ["nowhere", "twice"] {
        ask(word).await.error(502, "FILTER_FAILED");
    }
}

#[tokio::test]
async fn what_a_filter_notes_is_shown() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    upstream.will(Reply::chat("x"));
    let answer = gateway.chat("scripted", "meddle annotate").await;
    assert_eq!(
        annotations(&answer),
        Some(
            "meddling.plan=free, meddling.provider=scripted, meddling.counted=true, meddling.dialect=openai-chat"
        )
    );
    for word in ["header", "chatter"] {
        let answer = gateway.chat("scripted", &format!("meddle {word}")).await;
        answer.error(502, "FILTER_FAILED");
    }
}

#[tokio::test]
async fn filters_are_for_the_models_and_plans_that_they_name() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("x"));
    let filters = "[[filters]]\nslot = \"meddling\"\nmodels = [\"scripted\"]\noptions = { about = \"one\" }\n\
        [[filters]]\nslot = \"meddling\"\nplans = [\"pro\"]\noptions = { about = \"two\" }\n";
    let gateway = filtered(&upstream, filters)
        .model("another", &["scripted"])
        .start()
        .await;
    let noted = async |model: &str| {
        let answer = gateway.chat(model, "meddle pass").await;
        annotations(&answer).map(str::to_owned)
    };
    assert_eq!(
        noted("scripted").await.as_deref(),
        Some("meddling.about=one")
    );
    assert_eq!(noted("another").await, None);
    gateway.set_plan("pro").await;
    assert_eq!(
        noted("scripted").await.as_deref(),
        Some("meddling.about=one, meddling.about=two"),
        "in the order of the configuration"
    );
    assert_eq!(
        noted("another").await.as_deref(),
        Some("meddling.about=two")
    );
}

#[tokio::test]
async fn a_filter_that_fails_ends_its_request_alone() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    for word in [
        "loop",
        "trap",
        "grow",
        "flood",
        "empty",
        "attach",
        "unheard-of",
    ] {
        let started = Instant::now();
        let answer = gateway.chat("scripted", &format!("meddle {word}")).await;
        let error = answer.error(502, "FILTER_FAILED");
        assert_eq!(error["message"], "A required filter failed.", "no details");
        assert!(started.elapsed() < Duration::from_secs(15), "{word}");
        assert_eq!(upstream.count(), 0, "{word}");
    }
    assert_nothing_is_left(&gateway, &upstream, "in the end").await;
}

#[tokio::test]
async fn a_filter_that_fails_over_an_answer_ends_it_and_nothing_else() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    for word in [
        "answer-loop",
        "answer-trap",
        "answer-grow",
        "answer-flood",
        "answer-nonsense",
        "answer-swallow",
        "answer-forge",
        "answer-picture",
    ] {
        upstream.will(Reply::chat("secret"));
        let answer = gateway.client().post("/chat", &meddled(word)).await;
        answer.error(502, "FILTER_FAILED");
        assert!(!answer.text().contains("secret"), "{word}");
        let text = streamed_text(&gateway, &upstream, word, &["secret", "secret"]).await;
        assert!(!text.contains("secret"), "{word}: {text}");
        assert!(text.contains("FILTER_FAILED"), "{word}: {text}");
        assert_nothing_is_left(&gateway, &upstream, word).await;
    }
}

#[tokio::test]
async fn an_answer_can_be_ended() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    upstream.will(Reply::chat("secret"));
    let answer = gateway.chat("scripted", "meddle answer-stop").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let choice = &answer.json()["choices"][0];
    assert_eq!(choice["finish_reason"], "content_filter");
    assert!(!answer.text().contains("secret"));
    let events = streamed(&gateway, &upstream, "answer-stop", &["sec", "ret"]).await;
    assert_eq!(said(&events), "");
    let finished = chunks(&events)
        .iter()
        .any(|chunk| chunk["choices"][0]["finish_reason"] == "content_filter");
    assert!(finished, "{events:?}");
    assert_eq!(events.last().map(String::as_str), Some("data: [DONE]"));
    assert_nothing_is_left(&gateway, &upstream, "in the end").await;
}

#[tokio::test]
async fn what_is_held_back_is_bounded() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let piece = "x".repeat(1_000);
    let within = [&*piece; 4];
    let events = streamed(&gateway, &upstream, "answer-hold", &within).await;
    assert_eq!(said(&events).len(), 4_000);
    let beyond = [&*piece; 6];
    let text = streamed_text(&gateway, &upstream, "answer-hold", &beyond).await;
    assert!(text.contains("FILTER_FAILED"), "{text}");
    assert!(!text.contains("xxx"), "{text}");
    assert_nothing_is_left(&gateway, &upstream, "in the end").await;
}

#[tokio::test]
async fn a_filter_hears_that_an_answer_begins_anew() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    // The stream begins, and fails before any output.
    let begun = json!({"id": "1", "choices": [{"index": 0, "delta": {"role": "assistant"}}]});
    let failed = json!({"error": {"message": "overloaded", "type": "server_error", "code": 503}});
    first.always(Reply::events([begun.to_string(), failed.to_string()]));
    second.always(Reply::chat_stream(["a", "b"]));
    let gateway = before_both(&first, &second).await;
    let events = gateway
        .stream("both", "meddle answer-restarts")
        .await
        .rest()
        .await;
    let attempts = first.count();
    assert_eq!(second.count(), 1, "{events:?}");
    assert_eq!(
        said(&events),
        format!("{attempts} {attempts} "),
        "{events:?}"
    );
}

#[tokio::test]
async fn a_filter_that_may_fail_is_gone_on_without() {
    let upstream = Upstream::start().await;
    let filters = format!(
        "{FILTER}on_failure = \"allow\"\n[[filters]]\nslot = \"missing\"\non_failure = \"allow\"\n"
    );
    let gateway = filtered(&upstream, &filters).start().await;
    for word in [
        "trap",
        "attach",
        "answer-trap",
        "answer-nonsense",
        "answer-forge",
    ] {
        upstream.will(Reply::chat("all the same"));
        let answer = gateway.chat("scripted", &format!("meddle {word}")).await;
        assert_eq!(
            (answer.status.as_u16(), answer.content().as_str()),
            (200, "all the same"),
            "{word}"
        );
        let events = streamed(&gateway, &upstream, word, &["all the", " same"]).await;
        assert_eq!(said(&events), "all the same", "{word}");
    }
    // A refusal is no failure.
    let refused = gateway.chat("scripted", "meddle refuse").await;
    refused.error(400, "CONTENT_FILTERED");
    // A changed response does not continue in its original form.
    let events = streamed(
        &gateway,
        &upstream,
        "answer-trap-late",
        &["a", "b", "c", "d"],
    )
    .await;
    assert!(events.join("\n").contains("FILTER_FAILED"), "{events:?}");
}

/// An earlier version of a filter that guards may pass requests that this one stops: its slot refuses requests.
#[tokio::test]
async fn a_guard_in_quarantine_does_not_bring_back_what_was_there_before() {
    for (on_failure, refuses) in [("refuse", true), ("allow", false)] {
        let upstream = Upstream::start().await;
        upstream.always(Reply::chat("served"));
        let gateway = Gateway::builder()
            .plugin("meddling", guests::meddling())
            .upstream("scripted", &upstream)
            .tables(&format!(
                "[plugins]\nquarantine_traps = 5\n{FILTER}on_failure = {on_failure:?}\n"
            ))
            .start()
            .await;
        let admin = gateway.admin("olivia").await;
        let slot = "/admin/plugins/meddling";
        let newer = guests::with_custom_section(guests::meddling(), 1);
        let installed = admin
            .put_component(&format!("{slot}?activate=true"), &newer)
            .await;
        assert_eq!(installed.status, 201, "{}", installed.text());
        let clients = [gateway.client(), gateway.web("bob")];
        for number in 0..5 {
            let request = chat("scripted", "meddle trap");
            clients[number % 2].post("/chat", &request).await;
        }
        patiently(async {
            while admin.get(slot).await.json()["active"] == Digest::of(&newer).to_string() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let shown = admin.get(slot).await.json();
        let answer = gateway.chat("scripted", "hello").await;
        if refuses {
            assert_eq!(shown["active"], Value::Null);
            answer.error(503, "FILTER_UNAVAILABLE");
            // An operator decides.
            let body = json!({ "digest": Digest::of(guests::meddling()).to_string() });
            let activated = admin.post(&format!("{slot}/activate"), &body).await;
            assert_eq!(activated.status, 200, "{}", activated.text());
            assert_eq!(gateway.chat("scripted", "hello").await.content(), "served");
        } else {
            let before = Digest::of(guests::meddling()).to_string();
            assert_eq!(shown["active"], *before);
            assert_eq!(answer.content(), "served");
        }
    }
}

#[tokio::test]
async fn what_a_filter_does_is_counted_and_compared() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let admin = gateway.admin("olivia").await;
    let canary = guests::with_custom_section(guests::meddling(), 1);
    let slot = "/admin/plugins/meddling";
    let installed = admin.put_component(slot, &canary).await;
    assert_eq!(installed.status, 201, "{}", installed.text());
    let body = json!({ "digest": Digest::of(&canary).to_string(), "share": 0.5 });
    let activated = admin.post(&format!("{slot}/activate"), &body).await;
    assert_eq!(activated.status, 200, "{}", activated.text());

    gateway.chat("scripted", "meddle refuse").await;
    for word in ["pass", "upper", "answer-again", "answer-pass"] {
        upstream.will(Reply::chat("quiet"));
        gateway.chat("scripted", &format!("meddle {word}")).await;
    }
    streamed(&gateway, &upstream, "answer-stop", &["a", "b"]).await;
    gateway.app().tasks.close();
    patiently(gateway.app().tasks.wait()).await;

    // One account is on one side.
    let metrics = gateway.stranger().get("/metrics").await.text();
    for (effect, count) in [
        ("passed", 2),
        ("refused", 1),
        ("changed", 2),
        ("stopped", 1),
        ("answered", 0),
        ("failed", 0),
    ] {
        let figure = format!("effect=\"{effect}\"}} {count}");
        let lines = metrics.lines();
        let mut lines = lines.filter(|line| line.starts_with("weir_filter_effects_total{"));
        assert!(lines.any(|line| line.ends_with(&figure)), "{metrics}");
    }
    let compared = admin.get(slot).await.json()["canary"]["comparison"].clone();
    for (measure, share) in [("refusals", 1.0), ("changes", 2.0), ("stops", 1.0)] {
        let compared = compared.as_array().expect("a list");
        let compared = compared.iter().find(|of| of["measure"] == measure);
        let compared = compared.unwrap_or_else(|| panic!("{measure}"));
        let side = ["active", "canary"].into_iter();
        let side = side.map(|side| &compared[side]);
        let side = side.max_by_key(|side| side["requests"].as_i64());
        let side = side.expect("two");
        assert_eq!(side["requests"], 6, "{compared}");
        let value = side["value"].as_f64().expect("a number");
        assert!((value - share / 6.0).abs() < 1e-9, "{compared}");
    }
}

#[tokio::test]
async fn a_filter_that_is_not_there_lets_nothing_pass_until_it_is_installed() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables("[[filters]]\nslot = \"meddling\"\n")
        .start()
        .await;
    let refused = gateway.chat("scripted", "meddle pass").await;
    refused.error(503, "FILTER_UNAVAILABLE");
    assert!(refused.headers.contains_key("retry-after"));
    let admin = gateway.admin("operator").await;
    let path = "/admin/plugins/meddling?activate=true";
    let installed = admin.put_component(path, guests::meddling()).await;
    assert_eq!(installed.status, 201, "{}", installed.text());
    upstream.always(Reply::chat("served"));
    assert_eq!(
        gateway.chat("scripted", "meddle pass").await.content(),
        "served"
    );
    let slot = admin.get("/admin/plugins/meddling").await.json();
    assert_eq!(slot["kind"], "filter");
    let kinds = [
        ("demo", guests::meddling()),
        ("meddling", guests::misbehaving()),
    ];
    for (slot, component) in kinds {
        let path = format!("/admin/plugins/{slot}?activate=true");
        admin
            .put_component(&path, component)
            .await
            .error(422, "PLUGIN_REFUSED");
    }
}

#[tokio::test]
async fn a_filter_is_swapped_while_it_watches() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let gate = tests::Gate::new();
    upstream.will(Reply::chat_stream(["one ", "two"]).gate_before_piece(1, &gate));
    let mut stream = gateway.stream("scripted", "meddle upper").await;
    let mut first = stream.next().await.expect("it begins");
    while !first.contains("ONE") {
        first = stream.next().await.expect("it goes on");
    }
    let admin = gateway.admin("operator").await;
    let other = guests::with_custom_section(guests::meddling(), 10);
    let path = "/admin/plugins/meddling?activate=true";
    let swapped = admin.put_component(path, &other).await;
    assert_eq!(swapped.status, 201, "{}", swapped.text());
    gate.open();
    let rest = stream.rest().await;
    assert!(rest.join("").contains("TWO"), "{rest:?}");
    let slot = admin.get("/admin/plugins/meddling").await.json();
    let plugins = slot["plugins"].as_array().expect("a list");
    assert_eq!(plugins.len(), 2, "{slot}");
}

#[tokio::test]
async fn filters_are_taken_up_without_a_restart() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("x"));
    let gateway = filtered(&upstream, "").start().await;
    let mut config = gateway.app().config.clone();
    assert_eq!(gateway.chat("scripted", "meddle refuse").await.status, 200);
    config.filters = Config::from_toml(FILTER).expect("it fits").filters;
    let taken_up = gateway.app().take_up(config.clone()).await;
    taken_up.expect("it fits");
    assert_eq!(gateway.chat("scripted", "meddle refuse").await.status, 400);
    config.filters[0].options = vec![("loudness".to_owned(), "1".to_owned())];
    let refused = gateway.app().take_up(config).await;
    assert!(refused.is_err_and(|error| format!("{error:#}").contains("filters[0]")));
    assert_eq!(gateway.chat("scripted", "meddle refuse").await.status, 400);
}

/// Filters that a SIGHUP adds have guests of their own for each request, like those of the start.
#[tokio::test]
async fn filters_that_are_taken_up_have_room_for_their_guests_or_are_refused() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("x"));
    let gateway = Gateway::builder()
        .plugin("meddling", guests::meddling())
        .upstream("scripted", &upstream)
        .tables(
            "[plugins]\nquarantine_traps = 0\ntool_calls = 1\n[limits]\nconcurrent_requests = 20\nrequests_per_upstream = 20\n\
             requests_per_slot = 20\nrequests_per_account = { free = 20, guru = 20, pro = 20 }\n",
        )
        .start()
        .await;
    let mut config = gateway.app().config.clone();
    let filters = |number: usize| {
        let config = Config::from_toml(&FILTER.repeat(number)).expect("it fits");
        config.filters
    };
    config.filters = filters(5);
    gateway
        .app()
        .take_up(config.clone())
        .await
        .expect("it fits");
    // All at once, each watched by five filters until its response arrives.
    let gate = Gate::new();
    upstream.always(Reply::chat("x").after_gate(&gate));
    let client = gateway.client();
    let request = chat("scripted", "meddle answer-pass");
    let all = join_all((0..20).map(|_| client.post("/chat", &request)));
    let opened = async {
        for _ in 0..20 {
            upstream.next_request().await;
        }
        gate.open();
    };
    let (answers, ()) = tokio::join!(all, opened);
    for answer in answers {
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    config.filters = filters(1_000);
    let Err(refused) = gateway.app().take_up(config).await else {
        panic!("there is room");
    };
    let said = format!("{refused:#}");
    assert!(
        said.contains("filters: the reserved memory is too small"),
        "{said}"
    );
    assert_eq!(gateway.chat("scripted", "meddle refuse").await.status, 400);
}

#[tokio::test]
async fn what_a_filter_costs_is_counted() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("x"));
    let gateway = gateway(&upstream).await;
    for word in ["pass", "answer-pass", "trap", "nowhere"] {
        gateway.chat("scripted", &format!("meddle {word}")).await;
    }
    let metrics = gateway.stranger().get("/metrics").await.text();
    let counted = |outcome: &str| {
        let lines = metrics.lines().filter(|line| {
            line.starts_with("weir_plugin_exchanges_total{slot=\"meddling\"")
                && line.contains(&format!("outcome=\"{outcome}\""))
        });
        let figures = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        figures.sum::<f64>()
    };
    assert_eq!(
        (counted("ok"), counted("trap"), counted("fault")),
        (2.0, 1.0, 1.0)
    );
    let latency = metrics
        .lines()
        .any(|line| line.starts_with("weir_plugin_exchange_seconds_sum{slot=\"meddling\""));
    assert!(latency, "{metrics}");
    let failed = metrics.lines().filter(|line| {
        line.starts_with("weir_filter_effects_total{slot=\"meddling\"")
            && line.contains("effect=\"failed\"")
    });
    let failed: Vec<_> = failed.collect();
    assert!(failed.len() == 1 && failed[0].ends_with(" 2"), "{failed:?}");
}

#[tokio::test]
async fn options_that_a_filter_does_not_take_stop_the_start() {
    let upstream = Upstream::start().await;
    let start = async |filters: &str| {
        let started = filtered(&upstream, filters).try_start().await;
        started.err().map(|error| format!("{error:#}"))
    };
    for (settings, what) in [
        (
            "options = { loudness = \"1\" }",
            "filters[0].options.loudness: is unknown to it",
        ),
        (
            "options = { about = \"nonsense\" }",
            "filters[0].options.about: must not be nonsense",
        ),
        (
            "models = [\"unheard-of\"]",
            "filters[0].models[0]: the model \"unheard-of\" does not exist",
        ),
    ] {
        let why = start(&format!("{FILTER}{settings}\n")).await;
        let why = why.expect("it does not start");
        assert!(why.contains(what), "{why}");
    }
    for (settings, what) in [
        ("plans = [\"gold\"]", "filters.0.plans"),
        ("on_failure = \"ask\"", "filters.0.on_failure"),
        ("slots = \"a\"", "slots"),
    ] {
        let read = Config::from_toml(&format!("{FILTER}{settings}\n"));
        let why = format!("{:#}", read.expect_err("it does not fit"));
        assert!(why.contains(what), "{why}");
    }
}

#[tokio::test]
async fn requests_for_images_are_filtered_too() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::builder()
        .plugin("meddling", guests::meddling())
        .tables(FILTER)
        .start()
        .await;
    let ask = async |prompt: &str| {
        let request = json!({ "model": "demo-image", "prompt": prompt });
        gateway
            .client()
            .post("/v1/images/generations", &request)
            .await
    };
    let image = |answer: &Answer| -> Value { answer.json()["data"][0]["b64_json"].clone() };
    assert_eq!(ask("meddle refuse").await.status, 400);
    let (as_is, changed) = (ask("MEDDLE UPPER").await, ask("meddle upper").await);
    assert_eq!(as_is.status, 200, "{}", as_is.text());
    assert_eq!(image(&as_is), image(&changed), "the demo draws its prompt");
    assert_eq!(upstream.count(), 0);
}
