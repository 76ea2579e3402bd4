//! Traces: the spans of requests at a collector, the context of their upstream requests, and the harmlessness of
//! failing collectors and of clients.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::collector::{Span, resource};
use tests::gateway::UPSTREAM_CREDENTIAL;
use tests::ledger::create_users;
use tests::payments::{Payer, Processor};
use tests::{Collector, Gate, Gateway, Reply, Upstream, chat, patiently};

use crate::cli::{Served, folder_with_compiled_plugins, run, text, weir};
use crate::swarm_tools::{calls, page};
use crate::swarms::{agent, ended, swarm};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT: &str = "00f067aa0ba902b7";

const INTERNAL: i32 = 1;
const SERVER: i32 = 2;
const CALL: i32 = 3;
const CONSUMER: i32 = 5;

/// A client's trace context, recorded or not.
fn parent(flags: &str) -> String {
    format!("00-{TRACE}-{CLIENT}-{flags}")
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let mut found = spans.iter().filter(|span| span.name == name);
    match (found.next(), found.next()) {
        (Some(span), None) => span,
        found => panic!("{name}: {found:?} of {spans:?}"),
    }
}

/// A gateway whose model `scripted` is the upstream's, with these settings.
async fn gateway(upstream: &Upstream, settings: &str) -> Gateway {
    let builder = Gateway::builder().upstream("scripted", upstream);
    builder.tables(settings).start().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_request_is_a_trace_of_its_attempt_its_hold_and_its_charge() {
    let (collector, upstream) = (Collector::start().await, Upstream::start().await);
    let secret = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(&secret, "Bearer canary-token").expect("it can be written");
    let credential = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(&credential, UPSTREAM_CREDENTIAL).expect("it can be written");
    let served = Served::configured(&format!(
        "log_format = \"json\"\n{}otlp_headers.authorization = {{ file = {:?} }}\n\
         service_name = \"gateway\"\n\
         [providers.scripted]\nadapter = \"openai\"\nbase_url = \"{}\"\ncredential = {{ file = {:?} }}\n\
         [models.scripted]\ncontext_window = 100000\nmax_output_tokens = 1000\ndefault_output_tokens = 100\n\
         upstreams = [{{ provider = \"scripted\", model = \"real-model\" }}]\nprice = {{ input = 1, output = 2 }}\n",
        collector.settings(),
        secret.path(),
        upstream.base_url(),
        credential.path(),
    ));
    upstream.will(Reply::chat_stream_with_usage(["canary ", "answer"], 40, 2));
    let client = served
        .client()
        .with_header("traceparent", &parent("01"))
        .with_header("tracestate", "vendor=1");
    let question = chat("scripted", "canary question");
    let stream = client.stream("/v1/chat/completions", &question).await;
    assert_eq!(stream.content().await, "canary answer");
    served.client().get("/health").await;
    let key = served.key();
    let (log, _) = served.stop();

    let spans = collector.spans();
    let names = [
        "POST /v1/chat/completions",
        "chat real-model",
        "ledger.hold",
        "ledger.settle",
    ];
    assert_eq!(spans.len(), names.len(), "{spans:?}");
    let [request, attempt, hold, settle] = names.map(|name| named(&spans, name));
    for span in &spans {
        assert_eq!(span.trace_id, TRACE, "{span:?}");
        assert_eq!(span.state, "vendor=1", "{span:?}");
        assert!(!span.is_error, "{span:?}");
        assert!(
            request.time.0 <= span.time.0 && span.time.0 <= span.time.1,
            "{span:?}"
        );
    }
    assert_eq!((request.kind, &*request.parent_id), (SERVER, CLIENT));
    for (name, fact) in [
        ("http.request.method", "POST"),
        ("http.route", "/v1/chat/completions"),
        ("http.response.status_code", "200"),
        ("user.id", "dev"),
        ("weir.model", "scripted"),
        ("weir.attempts", "1"),
    ] {
        assert_eq!(request.fact(name), fact, "{name}");
    }
    for part in [attempt, hold, settle] {
        assert_eq!(part.parent_id, request.id, "{part:?}");
    }
    assert_eq!(attempt.kind, CALL);
    let port = upstream.address().port().to_string();
    for (name, fact) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "scripted"),
        ("gen_ai.request.model", "real-model"),
        ("gen_ai.request.stream", "true"),
        ("gen_ai.usage.input_tokens", "40"),
        ("gen_ai.usage.output_tokens", "2"),
        ("server.address", "127.0.0.1"),
        ("server.port", &port),
        ("weir.slot", "openai"),
        ("weir.attempt", "1"),
        ("weir.credits", "0.0616"),
    ] {
        assert_eq!(attempt.fact(name), fact, "{name}");
    }
    assert!(!attempt.fact("gen_ai.response.model").is_empty());
    assert_eq!(attempt.fact("weir.component").len(), 64);
    let first: f64 = attempt
        .fact("gen_ai.response.time_to_first_chunk")
        .parse()
        .expect("seconds");
    let took = (attempt.time.1 - attempt.time.0) as f64 / 1e9;
    assert!(first > 0.0 && first <= took, "{first} of {took}");

    // The upstream gets the span of the attempt.
    let asked = &upstream.requests()[0];
    let told = format!("00-{TRACE}-{}-01", attempt.id);
    assert_eq!(asked.header("traceparent"), Some(&*told));
    assert_eq!(asked.header("tracestate"), Some("vendor=1"));

    let line = log.lines().find(|line| line.contains("\"answered\""));
    let line: Value = serde_json::from_str(line.expect("a line")).expect("JSON");
    assert_eq!(
        (&line["trace_id"], &line["span_id"]),
        (&TRACE.into(), &(&*request.id).into())
    );

    let sent = &collector.requests()[0];
    assert_eq!(sent.header("authorization"), Some("Bearer canary-token"));
    assert_eq!(resource(sent)["service.name"], "gateway");
    for request in collector.requests() {
        for secret in ["canary", &key[8..], UPSTREAM_CREDENTIAL] {
            let bytes = secret.as_bytes();
            let mut windows = request.body.windows(bytes.len());
            assert!(
                !windows.any(|window| window == bytes),
                "{secret} is in a span"
            );
        }
    }
}

#[tokio::test]
async fn each_attempt_is_a_span_and_a_failed_one_says_why() {
    let (collector, upstream) = (Collector::start().await, Upstream::start().await);
    let gateway = gateway(&upstream, &collector.settings()).await;
    upstream
        .will(Reply::error(503, "overloaded canary"))
        .will(Reply::chat("better"));
    assert_eq!(gateway.chat("scripted", "x").await.content(), "better");
    gateway.client().post("/chat", &chat("none", "x")).await;
    upstream.always(Reply::error(400, "canary"));
    assert_eq!(gateway.chat("scripted", "x").await.status, 400);
    gateway.stop().await;

    let spans = collector.spans();
    let of = |request: &Span| {
        let parts = spans.iter().filter(|span| span.parent_id == request.id);
        let mut parts: Vec<_> = parts.filter(|span| span.kind == CALL).collect();
        parts.sort_by_key(|span| span.time);
        parts
    };
    let mut requests: Vec<_> = spans.iter().filter(|span| span.kind == SERVER).collect();
    requests.sort_by_key(|span| span.time);
    let [served, unknown, refused] = requests[..] else {
        panic!("{requests:?}");
    };
    let [first, second] = of(served)[..] else {
        panic!("{spans:?}");
    };
    assert_eq!(
        (
            first.fact("error.type"),
            first.fact("weir.attempt"),
            first.is_error
        ),
        ("unavailable", "1", true)
    );
    assert!(
        !first.facts.contains_key("gen_ai.usage.input_tokens"),
        "{first:?}"
    );
    assert_eq!((second.fact("weir.attempt"), second.is_error), ("2", false));
    assert_eq!(second.fact("gen_ai.usage.input_tokens"), "10");
    assert!(first.time.1 <= second.time.0, "{first:?} {second:?}");
    assert_eq!(served.fact("weir.attempts"), "2");
    // A client's refused request is no error of the server.
    assert_eq!(
        (
            unknown.fact("error.type"),
            unknown.is_error,
            of(unknown).len()
        ),
        ("UNKNOWN_MODEL", false, 0)
    );
    assert_eq!(of(refused)[0].fact("error.type"), "rejected");
    let told: Vec<_> = upstream.requests();
    for (request, attempt) in told.iter().zip([first, second]) {
        let told = format!("00-{}-{}-01", attempt.trace_id, attempt.id);
        assert_eq!(request.header("traceparent"), Some(&*told));
    }
    assert_ne!(served.trace_id, refused.trace_id, "each began a trace");
}

#[tokio::test]
async fn an_image_is_an_attempt_to_generate_content() {
    let collector = Collector::start().await;
    let builder = Gateway::builder().tables(&collector.settings());
    let gateway = builder.start().await;
    let asked = json!({ "model": "demo-image", "prompt": "canary" });
    let client = gateway.client();
    let made = client.post("/v1/images/generations", &asked).await;
    assert_eq!(made.status, 200, "{}", made.text());
    gateway.stop().await;
    let spans = collector.spans();
    let attempt = spans.iter().find(|span| span.kind == CALL);
    let attempt = attempt.expect("an attempt");
    assert!(attempt.name.starts_with("generate_content "), "{attempt:?}");
    assert_eq!(attempt.fact("gen_ai.operation.name"), "generate_content");
    assert_eq!(attempt.fact("gen_ai.output.type"), "image");
    assert!(
        !attempt.facts.contains_key("server.address"),
        "nobody is asked"
    );
}

/// A gateway without recording changes nothing.
#[tokio::test]
async fn what_is_not_recorded_goes_on_as_it_came() {
    for settings in ["", "telemetry"] {
        let (collector, upstream) = (Collector::start().await, Upstream::start().await);
        upstream.always(Reply::chat("x"));
        let (settings, is_on) = match settings {
            "" => (String::new(), false),
            _ => (format!("{}sample = 0.0\n", collector.settings()), true),
        };
        let gateway = gateway(&upstream, &settings).await;
        let later = format!("cc-{TRACE}-{CLIENT}-00-more");
        for value in [&*parent("00"), &later] {
            let client = gateway.client().with_header("traceparent", value);
            let client = client.with_header("tracestate", "a=1,b=2");
            client.post("/chat", &chat("scripted", "x")).await;
            let asked = upstream.next_request().await;
            assert_eq!(asked.header("traceparent"), Some(value));
            assert_eq!(asked.header("tracestate"), Some("a=1,b=2"));
        }
        let nonsense = gateway
            .client()
            .with_header("traceparent", "00-nonsense-01");
        nonsense.post("/chat", &chat("scripted", "x")).await;
        let asked = upstream.next_request().await;
        // The upstream learns that the trace is not recorded.
        let told = asked.header("traceparent");
        match is_on {
            false => assert_eq!(told, None),
            true => assert!(told.is_some_and(|told| told.ends_with("-00")), "{told:?}"),
        }
        let sampled = gateway.client().with_header("traceparent", &parent("01"));
        sampled.post("/chat", &chat("scripted", "x")).await;
        let asked = upstream.next_request().await;
        gateway.stop().await;
        let spans = collector.spans();
        match is_on {
            false => {
                assert_eq!(asked.header("traceparent"), Some(&*parent("01")));
                assert_eq!(spans.len(), 0, "{spans:?}");
            }
            // The originator of the trace has it recorded.
            true => {
                assert_eq!(spans.len(), 4, "{spans:?}");
                let all_its = spans.iter().all(|span| span.trace_id == TRACE);
                assert!(all_its, "{spans:?}");
            }
        }
    }
}

/// Also if another executor continues it.
#[tokio::test]
async fn a_swarm_is_one_trace_from_its_acceptance_to_its_end() {
    let (collector, upstream) = (Collector::start().await, Upstream::start().await);
    let gateway = Gateway::builder()
        .swarms()
        .upstream("scripted", &upstream)
        .tables(&format!(
            "[swarms]\nlease_ms = 1000\n{}",
            collector.settings()
        ))
        .start()
        .await;
    gateway.set_plan("pro").await;
    let gate = Gate::new();
    let page = page(&gateway);
    upstream
        .will(calls("http_get", &json!({ "url": page })))
        .will(Reply::chat_with_usage("One.", 10, 3))
        .will(Reply::chat_with_usage("Two.", 20, 4).after_gate(&gate));
    let agents = ["canary-a", "canary-b"].map(|name| {
        json!({ "name": name, "system_prompt": "canary", "task_prompt": name, "model": "scripted" })
    });
    let client = gateway.client().with_header("traceparent", &parent("01"));
    let swarm = json!({ "swarm_id": "canary", "agents": agents });
    let accepted = client.post("/swarms", &swarm).await.json();
    let id = accepted["execution_id"].as_str().expect("an id");
    patiently(gate.reached()).await;
    gateway.executor().kill();
    let heir = gateway.another_executor();
    gate.open();
    let record = ended(&gateway.client(), id).await;
    assert_eq!(record["content"], "Two.", "{record}");
    heir.stop().await;
    gateway.stop().await;

    let mut spans = collector.spans();
    spans.retain(|span| span.trace_id == TRACE);
    spans.sort_by_key(|span| span.time);
    let accepted = named(&spans, "POST /swarms");
    assert_eq!((accepted.kind, &*accepted.parent_id), (SERVER, CLIENT));
    let run = named(&spans, "invoke_workflow");
    assert_eq!((run.kind, &run.parent_id), (INTERNAL, &accepted.id));
    assert_eq!(run.fact("weir.execution_id"), id);
    assert_eq!(run.fact("weir.swarm.status"), "completed");
    assert_eq!(run.fact("weir.swarm.claims"), "2", "an executor was killed");
    let parts = |name: &str, whole: &Span| -> Vec<Span> {
        let parts = spans.iter().filter(|span| span.parent_id == whole.id);
        parts.filter(|span| span.name == name).cloned().collect()
    };
    let agents = parts("invoke_agent", run);
    let [first, second] = &agents[..] else {
        panic!("each agent is recorded once: {spans:?}");
    };
    assert_eq!(
        (first.fact("weir.agent.number"), first.kind),
        ("0", INTERNAL)
    );
    assert_eq!(first.fact("weir.agent.iterations"), "2");
    assert_eq!(second.fact("gen_ai.usage.output_tokens"), "4");
    assert_eq!(second.fact("gen_ai.request.model"), "scripted");
    let [tool] = &parts("execute_tool http_get", first)[..] else {
        panic!("{spans:?}");
    };
    assert_eq!(
        (tool.fact("gen_ai.tool.name"), tool.is_error),
        ("http_get", false)
    );
    let mut told: Vec<_> = upstream.requests();
    for (agent, calls) in [(first, 2), (second, 1)] {
        assert!(
            run.time.0 <= agent.time.0 && agent.time.1 <= run.time.1,
            "{run:?} {agent:?}"
        );
        let asked = parts("POST /internal/agent/code", agent);
        let attempts = asked.iter().flat_map(|asked| parts("chat scripted", asked));
        let attempts: Vec<_> = attempts.collect();
        assert_eq!(attempts.len(), calls, "{asked:?}");
        for attempt in attempts {
            let by = format!("00-{TRACE}-{}-01", attempt.id);
            assert_eq!(told.remove(0).header("traceparent"), Some(&*by));
        }
    }
    for request in collector.requests() {
        let mut windows = request.body.windows("canary".len());
        assert!(
            !windows.any(|window| window == b"canary"),
            "a user's word is in a span"
        );
    }
}

/// Through its executor, too, which sends the model requests to the API.
#[tokio::test]
async fn a_swarm_that_is_not_recorded_hands_on_what_its_user_has_said() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("done"));
    let gateway = crate::swarms::gateway(&upstream).await;
    let client = gateway.client().with_header("traceparent", &parent("01"));
    let swarm = swarm(&[agent("a")]);
    let accepted = client.post("/swarms", &swarm).await.json();
    let id = accepted["execution_id"].as_str().expect("an id");
    ended(&gateway.client(), id).await;
    let asked = upstream.next_request().await;
    assert_eq!(asked.header("traceparent"), Some(&*parent("01")));
}

#[tokio::test]
async fn a_webhook_is_recorded_as_it_comes_and_as_it_is_applied() {
    let collector = Collector::start().await;
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream, &collector.settings()).await;
    let app = gateway.app();
    create_users(&app.database, ["bob"].into_iter(), app.clock.now().0).await;
    let processor = Processor::new(gateway.stranger(), app);
    let event = Payer("bob".to_owned()).customer_created("2026-03-03T00:00:00Z");
    processor.tell(&event).await;
    // The processor repeats its event.
    processor.tell(&event).await;
    gateway.stop().await;

    let spans = collector.spans();
    let receipt = named(&spans, "receive payment event");
    let applied = named(&spans, "apply payment event");
    for span in [receipt, applied] {
        assert_eq!(span.kind, CONSUMER);
        assert_eq!(span.fact("weir.payment.event"), "customer.created");
        assert_eq!(span.fact("weir.payment.event_id"), event["id"]);
    }
    assert_eq!(
        (&applied.trace_id, &applied.parent_id),
        (&receipt.trace_id, &receipt.id)
    );
    assert_eq!(applied.fact("weir.payment.state"), "applied");
    let place = |span: &Span| (span.trace_id.clone(), span.id.clone());
    let brought = spans
        .iter()
        .filter(|span| span.name == "POST /billing/webhook");
    let mut brought: Vec<_> = brought.collect();
    brought.sort_by_key(|span| span.time);
    assert_eq!(brought.len(), 2, "{spans:?}");
    assert_eq!(brought[0].links, [place(receipt)]);
    assert_eq!(receipt.links, [place(brought[0])]);
    for request in collector.requests() {
        let mut windows = request.body.windows("somebody@".len());
        assert!(
            !windows.any(|window| window == b"somebody@"),
            "an address is in a span"
        );
    }
}

#[tokio::test]
async fn a_collector_that_fails_or_hangs_harms_nobody() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("served"));
    let failing = Collector::answering(Reply::error(400, "canary")).await;
    let failed = gateway(&upstream, &failing.settings()).await;
    assert_eq!(failed.chat("scripted", "x").await.content(), "served");
    failing.next_request().await;
    let dropped = "weir_trace_spans_dropped_total{why=\"export_failed\"} 4";
    patiently(async {
        loop {
            let metrics = failed.stranger().get("/metrics").await.text();
            if metrics.contains(dropped) {
                break;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    failed.stop().await;

    let hung = Collector::answering(Reply::never()).await;
    let gateway = gateway(&upstream, &hung.settings()).await;
    assert_eq!(gateway.chat("scripted", "x").await.content(), "served");
    hung.next_request().await;
    let started = Instant::now();
    for _ in 0..20 {
        assert_eq!(gateway.chat("scripted", "x").await.content(), "served");
    }
    gateway.stop().await;
    let took = started.elapsed();
    assert!(took < Duration::from_secs(9), "the drain took {took:?}");
}

#[tokio::test]
async fn what_does_not_fit_is_said_at_the_start() {
    for (settings, said) in [
        (
            "otlp_endpoint = \"canary:4318\"",
            "`telemetry.otlp_endpoint` must begin with",
        ),
        (
            "otlp_endpoint = \"http://a:canary@b\"",
            "`telemetry.otlp_endpoint` holds a user name",
        ),
        ("sample = 2", "`telemetry.sample` is 2"),
        (
            "otlp_endpoint = \"http://a\"\notlp_headers.authorization = { env = \"NO_SUCH_VARIABLE\" }",
            "`otlp_headers.authorization`: the environment variable NO_SUCH_VARIABLE is not set",
        ),
        ("otlp_headers.authorization = \"canary\"", "telemetry"),
    ] {
        let folder = folder_with_compiled_plugins();
        let toml = format!("[telemetry]\n{settings}\n");
        std::fs::write(folder.path().join("weir.toml"), toml).expect("it can be written");
        let output = run(folder.path(), &["check"]);
        let told = text(&output.stderr);
        assert!(!output.status.success(), "{settings}");
        assert!(told.contains(said), "{told}");
        assert!(!told.contains("canary"), "{told}");
    }
}

#[tokio::test]
async fn a_probe_says_whether_the_collector_takes_traces() {
    for (status, said) in [(200, "reached"), (401, "FAILED: ")] {
        let collector = Collector::answering(Reply::new(status)).await;
        let settings = collector.settings();
        let url = settings.split('"').nth(1).expect("a URL").to_owned();
        let folder = folder_with_compiled_plugins();
        let toml = format!("default_catalog = false\n{settings}");
        std::fs::write(folder.path().join("weir.toml"), toml).expect("it can be written");
        let path = folder.path().to_owned();
        let probed = tokio::task::spawn_blocking(move || run(&path, &["check", "--probe"]));
        let told = text(&probed.await.expect("it runs").stdout);
        let line = format!("collector of traces {url}: {said}");
        assert!(told.contains(&line), "{told}");
    }
}

/// The standard variables of OpenTelemetry.
#[tokio::test(flavor = "multi_thread")]
async fn the_standards_variables_are_enough() {
    let collector = Collector::start().await;
    let url = collector.settings();
    let url = url.split('"').nth(1).expect("a URL").to_owned();
    let folder = folder_with_compiled_plugins();
    let mut command = weir(folder.path());
    command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-team=dam")
        .env("OTEL_SERVICE_NAME", "named");
    let served = Served::start_as(command, folder, &[]);
    served.client().get("/usage/me").await;
    served.stop();
    let sent = &collector.requests()[0];
    assert_eq!(sent.header("x-team"), Some("dam"));
    assert_eq!(resource(sent)["service.name"], "named");
    assert_eq!(named(&collector.spans(), "GET /usage/me").kind, SERVER);
}
