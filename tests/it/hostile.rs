//! Guests that misbehave: each ends as a typed error of its own request, and the next one is served.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use tests::sandbox::{load, sandbox};
use tests::scripts::{block, end, finish, start, text};
use tests::{Answer, Client, Gate, Gateway, Reply, Upstream, chat, guests, weir_program};
use weir_sandbox::adapter::ProviderWorld;
use weir_sandbox::compiler::{CompileError, CompileLimits, Compiler};
use weir_sandbox::loading::{self, UploadedComponent};
use weir_sandbox::{GuestError, LoadError};

/// Maximum time that a guest may hold a request; the budget of 250 ms of processor time stretches, because a guest
/// that uses it up sleeps between ticks.
const CONTAINED_WITHIN: Duration = Duration::from_secs(15);

async fn gateway(limits: &str) -> Gateway {
    Gateway::builder()
        .guest("hostile", guests::misbehaving(), None)
        .tables(&format!("[plugins.limits]\n{limits}\n"))
        .start()
        .await
}

/// Makes the guest misbehave, and checks that only its request fails.
async fn assert_contained(gateway: &Gateway, command: Value) {
    let error = assert_ends(gateway, command, 502, "ADAPTER_FAILED").await;
    assert_eq!(
        error["message"], "The adapter for this model's provider failed.",
        "no details"
    );
}

/// Makes the guest misbehave, and checks that only its request ends, in time and with this error.
async fn assert_ends(gateway: &Gateway, command: Value, status: u16, code: &str) -> Value {
    let started = Instant::now();
    let answer = gateway.chat("hostile", &command.to_string()).await;
    let error = answer.error(status, code);
    assert!(
        started.elapsed() < CONTAINED_WITHIN,
        "{command} took {:?}",
        started.elapsed()
    );
    assert_serves(gateway, &format!("after {command}")).await;
    error
}

/// Checks that the next healthy request is served, by the same component and by another, and that no resources
/// remain.
async fn assert_serves(gateway: &Gateway, when: &str) {
    let answer = gateway.chat("hostile", "hello").await;
    assert_eq!(answer.content(), "ok", "{when}");
    let answer = gateway.chat("demo", "hello").await;
    assert_eq!(answer.content(), "You said: hello", "{when}");
    assert!(gateway.app().tasks.is_empty(), "{when}");
}

/// Checks containment in a plain gateway, in every call of the contract that needs no upstream.
async fn assert_contained_everywhere(command: Value) {
    let gateway = gateway("").await;
    for place in ["begin", "next"] {
        let mut command = command.clone();
        command["in"] = json!(place);
        assert_contained(&gateway, command).await;
    }
}

/// Loads a guest that misbehaves before its first request, or at the stock request.
async fn refusal(name: &str) -> LoadError {
    refusal_of(name, &guests::wat_guest(name)).await
}

async fn refusal_of(name: &str, component: &[u8]) -> LoadError {
    let sandbox = sandbox(4);
    let started = Instant::now();
    let loaded = load(&sandbox, name, component).await;
    assert!(
        started.elapsed() < CONTAINED_WITHIN,
        "{name} took {:?}",
        started.elapsed()
    );
    let healthy = guests::wat_guest("healthy");
    let next = load(&sandbox, "healthy", &healthy).await;
    assert!(next.is_ok(), "after {name}");
    match loaded {
        Ok(_) => panic!("{name} was loaded"),
        Err(error) => error,
    }
}

/// The engine detects an impossible size before the guest runs.
fn does_not_fit(error: &LoadError, complaint: &str) -> bool {
    matches!(error, LoadError::Parse(text) if text.contains(complaint))
}

fn self_test_failed_with(error: &LoadError, guest_error: &GuestError) -> bool {
    matches!(error, LoadError::SelfTest(text) if *text == guest_error.to_string())
}

#[tokio::test]
async fn w1_a_loop_is_cut() {
    assert_contained_everywhere(json!({ "behave": "spin" })).await;
}

#[tokio::test]
async fn w1_a_loop_is_cut_while_the_upstream_answers() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("x"));
    let gateway = Gateway::builder()
        .guest("hostile", guests::misbehaving(), Some(&upstream))
        .start()
        .await;
    for place in ["head", "body", "end"] {
        assert_contained(&gateway, json!({ "behave": "spin", "in": place })).await;
    }
}

#[tokio::test]
async fn w2_loops_outside_the_contracts_functions_are_cut() {
    for name in ["start-loops", "initialize-loops", "describe-loops"] {
        let error = refusal(name).await;
        assert!(
            matches!(error, LoadError::Describe(GuestError::CpuBudget)),
            "{name}: {error:?}"
        );
    }
    for name in ["realloc-loops", "post-return-loops"] {
        let error = refusal(name).await;
        assert!(
            self_test_failed_with(&error, &GuestError::CpuBudget),
            "{name}: {error:?}"
        );
    }
    let error = refusal("realloc-calls-out").await;
    assert!(
        self_test_failed_with(&error, &GuestError::Trap("an illegal operation")),
        "{error:?}"
    );
}

#[tokio::test]
async fn w2_a_destructor_that_loops_is_never_called() {
    let gateway = Gateway::builder()
        .guest("hostile", &guests::wat_guest("destructor-loops"), None)
        .start()
        .await;
    for _ in 0..3 {
        assert_eq!(gateway.chat("hostile", "hello").await.content(), "ok");
    }
}

#[tokio::test]
async fn w3_memory_is_limited() {
    assert_contained_everywhere(json!({ "behave": "grow" })).await;
    let error = refusal("declares-memory").await;
    assert!(
        does_not_fit(&error, "minimum byte size of 4294967296"),
        "{error:?}"
    );
}

#[tokio::test]
async fn w4_many_memories_draw_on_one_limit() {
    let large = guests::wat_guest("large-memory");
    let alone = load(&sandbox(4), "alone", &large).await;
    assert!(alone.is_ok(), "{:?}", alone.err());
    let error = refusal_of("two large memories", &guests::with_memory(&large, 320)).await;
    assert!(
        matches!(error, LoadError::Describe(GuestError::Memory)),
        "{error:?}"
    );

    let error = refusal("many-memories").await;
    assert!(does_not_fit(&error, "memories count of 100"), "{error:?}");
}

#[tokio::test]
async fn w5_tables_are_limited() {
    let error = refusal("declares-table").await;
    assert!(
        does_not_fit(&error, "minimum element size of 2147483647"),
        "{error:?}"
    );
    let error = refusal("grows-table").await;
    assert!(
        self_test_failed_with(&error, &GuestError::Memory),
        "{error:?}"
    );
}

#[tokio::test]
async fn w6_endless_recursion_is_a_trap() {
    assert_contained_everywhere(json!({ "behave": "recurse" })).await;
}

#[tokio::test]
async fn w7_a_host_call_at_the_deepest_point_is_survived() {
    assert_contained_everywhere(json!({ "behave": "recurse", "log": true })).await;
}

#[tokio::test]
async fn w8_lies_about_lengths_are_seen_through() {
    for (name, complaint) in [
        ("huge-string", "string pointer/length out of bounds"),
        ("long-string", "too much data"),
        ("huge-list", "list pointer/length out of bounds"),
        ("wrapping-list", "list pointer/length out of bounds"),
        ("unaligned-list", "not aligned"),
        ("unknown-step", "unexpected discriminant"),
        ("realloc-lies", "beyond end of memory"),
    ] {
        let error = refusal(name).await;
        assert!(
            matches!(&error, LoadError::SelfTest(text) if text.contains(complaint)),
            "{name}: {error:?}"
        );
    }
    let gateway = gateway("").await;
    assert_contained(&gateway, json!({ "behave": "text", "bytes": 10_000_000 })).await;
}

#[tokio::test]
async fn w9_a_million_strings_over_one_buffer_are_too_much() {
    let error = refusal("shared-strings").await;
    assert!(
        matches!(&error, LoadError::SelfTest(text) if text.contains("too much data")),
        "{error:?}"
    );
}

#[tokio::test]
async fn w10_resources_are_counted() {
    let error = refusal("many-resources").await;
    assert!(
        matches!(&error, LoadError::SelfTest(text) if text.contains("handle limit exceeded")),
        "{error:?}"
    );
}

#[tokio::test]
async fn w11_handles_cannot_be_forged() {
    for (name, complaint) in [
        ("double-drop", "unknown handle index 1"),
        ("forged-handle", "unknown handle index 4242"),
        ("other-handle", "handle index 1 used with the wrong type"),
    ] {
        let error = refusal(name).await;
        assert!(
            matches!(&error, LoadError::SelfTest(text) if text.contains(complaint)),
            "{name}: {error:?}"
        );
    }
}

#[tokio::test]
async fn w12_text_that_is_not_utf8_is_refused() {
    assert_contained(&gateway("").await, json!({ "behave": "utf8" })).await;
}

#[tokio::test]
async fn w13_json_that_nests_deep_is_refused_where_a_client_sends_it() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("served"));
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .settings("internal_listen = \"127.0.0.1:0\"")
        .start()
        .await;
    let client = gateway.client();
    let post = async |body: String| send(&client, "/chat", body).await;
    // The path of the field in the error, and a request with a deep value at the @.
    for (param, fields) in [
        ("extra", r#""extra": @"#),
        (
            "tools[0].function.parameters",
            r#""tools": [{"type": "function", "function": {"name": "f", "parameters": {"a": @}}}]"#,
        ),
        (
            "response_format.json_schema.schema",
            r#""response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"a": @}}}"#,
        ),
        (
            "messages[0].content[0]",
            r#""messages": [{"role": "user", "content": @}]"#,
        ),
        (
            "messages[0].tool_calls[0].function.arguments",
            r#""messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": @}}]}]"#,
        ),
        ("stop[0]", r#""stop": @"#),
    ] {
        let body = asking(fields).replace('@', &deep());
        let error = post(body).await.error(400, "INVALID_REQUEST");
        assert_eq!(error["param"], param, "{fields}");
        // The same without any closing bracket.
        let open = format!(
            "{}{}",
            asking(fields).split('@').next().unwrap_or_default(),
            "[".repeat(DEEP)
        );
        post(open).await.error(400, "INVALID_REQUEST");
        assert_eq!(
            gateway.chat("scripted", "x").await.content(),
            "served",
            "after {fields}"
        );
    }
    let service = gateway.service(&["model:call"]);
    let body = format!("{{\"user_id\": \"alice\", \"extra\": {}}}", deep());
    let answer = send(&service, "/internal/agent/code", body).await;
    answer.error(400, "INVALID_REQUEST");

    // Arguments as a text are the client's own and need no parse: they pass.
    let arguments = r#""messages": [
        {"role": "user", "content": "x"},
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "@"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "x"}
    ]"#;
    let answer = post(asking(arguments).replace('@', &deep())).await;
    assert_eq!(answer.content(), "served");
}

#[tokio::test]
async fn w13_json_that_nests_deep_in_an_upstreams_answer_is_a_failure_of_that_request() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("served"));
    let gateway = Gateway::with_upstream(&upstream).await;
    // The limit also bounds the bytes of a call's arguments.
    let mut whole = chat("scripted", "x");
    whole["max_tokens"] = json!(1_000);
    let mut streamed = whole.clone();
    streamed["stream"] = true.into();
    let of_type = |status, content_type: &str, body: String| {
        let reply = Reply::new(status).header("content-type", content_type);
        reply.body(body.replace('@', &deep()))
    };
    for body in [
        r#"{"choices": @}"#,
        r#"{"choices": [{"index": 0, "message": {"role": "assistant", "content": @}, "finish_reason": "stop"}]}"#,
        r#"{"choices": [{"index": 0, "message": {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": @}}]}}]}"#,
    ] {
        upstream.will(of_type(200, "application/json", body.to_owned()));
        let answer = gateway.client().post("/chat", &whole).await;
        answer.error(502, "UPSTREAM_ERROR");
        let event = format!("data: {}\n\n", body.replace("message", "delta"));
        upstream.will(of_type(200, "text/event-stream", event));
        let answer = gateway.client().post("/chat", &streamed).await;
        answer.error(502, "UPSTREAM_ERROR");
        assert_eq!(
            gateway.chat("scripted", "x").await.content(),
            "served",
            "after {body}"
        );
    }
    // An error's body is parsed for its message; an unreadable one has none.
    upstream.will(of_type(
        400,
        "application/json",
        r#"{"error": @}"#.to_owned(),
    ));
    let answer = gateway.chat("scripted", "x").await;
    answer.error(400, "UPSTREAM_REJECTED");
    // An unparsed value may nest to any depth.
    upstream.will(of_type(
        200,
        "application/json",
        r#"{"choices": [{"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}], "else": @}"#.to_owned(),
    ));
    assert_eq!(gateway.chat("scripted", "x").await.content(), "fine");
    assert_eq!(gateway.chat("scripted", "x").await.content(), "served");
    assert!(gateway.app().tasks.is_empty());
}

#[tokio::test]
async fn w14_traps_end_their_request_only() {
    for fault in ["unreachable", "out-of-bounds"] {
        assert_contained_everywhere(json!({ "behave": fault })).await;
    }
    let error = refusal("divide").await;
    assert!(
        self_test_failed_with(&error, &GuestError::Trap("division by zero")),
        "{error:?}"
    );
    let error = refusal("describe-traps").await;
    assert!(
        matches!(error, LoadError::Describe(GuestError::Trap(_))),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_panic_or_an_exit_ends_its_request_only() {
    assert_contained_everywhere(json!({ "behave": "panic" })).await;
    assert_contained_everywhere(json!({ "behave": "exit" })).await;
    assert_contained_everywhere(json!({ "behave": "exit", "code": 1 })).await;
}

#[tokio::test]
async fn a_guest_that_prints_harms_nobody() {
    let gateway = gateway("").await;
    let few = json!({ "behave": "print", "lines": 10 });
    assert_eq!(
        gateway.chat("hostile", &few.to_string()).await.content(),
        "ok"
    );
    assert_contained(&gateway, json!({ "behave": "print" })).await;
}

#[tokio::test]
async fn w15_a_flood_of_log_lines_is_capped_and_escaped() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(move || writer.clone())
        .finish();
    // The test's runtime has one thread, so this covers the gateway, too.
    let _guard = tracing::subscriber::set_default(subscriber);
    let gateway = gateway("").await;
    let text = "forged\r\n2026-01-01 ERROR \u{1b}[31mnot ours\u{1b}[0m \0";
    let flood = json!({ "behave": "flood-log", "lines": 5_000, "text": text });
    assert_eq!(
        gateway.chat("hostile", &flood.to_string()).await.content(),
        "ok"
    );
    let first = log.text();
    assert_contained(&gateway, json!({ "behave": "flood-log" })).await;
    let written = log.text();
    for flood in [&first, &written[first.len()..]] {
        let lines = flood.lines().filter(|line| line.contains("weir::guest"));
        // The guest's own lines, and the host's lines about it: its end, if any, and the number of dropped lines.
        let (own, about): (Vec<_>, Vec<_>) = lines.partition(|line| line.contains("forged"));
        assert_eq!(own.len(), 200);
        let summary = about.last().expect("a summary");
        assert!(summary.contains("lines dropped"), "{about:?}");
    }
    assert!(first.contains("lines=4800"), "{first}");
    assert!(!written.contains('\u{1b}') && !written.contains('\0') && !written.contains('\r'));
    assert!(
        !written
            .lines()
            .any(|line| line.starts_with("2026-01-01 ERROR")),
        "a forged line"
    );
}

#[tokio::test]
async fn w16_an_answer_of_a_byte_now_and_then_is_cut_by_one_deadline_or_the_other() {
    let upstream = Upstream::start().await;
    let hurried = async |timeouts: &str| {
        Gateway::builder()
            .guest("hostile", guests::misbehaving(), Some(&upstream))
            .tables(&format!("[timeouts]\n{timeouts}\n"))
            .start()
            .await
    };
    let command = json!({ "behave": "send" }).to_string();
    let slowly = |every| [Reply::drip(every), Reply::drip_head(every)];
    // Far apart: the total deadline is a long way off.
    let gateway = hurried("idle_ms = 300\nfirst_byte_ms = 300").await;
    for reply in slowly(Duration::from_secs(5)) {
        upstream.will(reply);
        let started = Instant::now();
        let mut request = chat("hostile", &command);
        request["stream"] = true.into();
        let answer = gateway.client().post("/chat", &request).await;
        answer.error(504, "UPSTREAM_TIMEOUT");
        assert!(started.elapsed() < Duration::from_secs(3));
        upstream.until_hung_up().await;
        assert_serves(&gateway, "after an idle upstream").await;
    }
    // Close enough together that no pause is too long.
    let gateway = hurried("idle_ms = 500\ntotal_ms = 1000").await;
    for reply in slowly(Duration::from_millis(100)) {
        upstream.will(reply);
        let started = Instant::now();
        let answer = gateway.chat("hostile", &command).await;
        answer.error(504, "UPSTREAM_TIMEOUT");
        assert!(started.elapsed() >= Duration::from_millis(900));
        upstream.until_hung_up().await;
        assert_serves(&gateway, "after a slow upstream").await;
    }
}

#[tokio::test]
async fn w16_a_guest_that_hands_out_a_byte_now_and_then_is_cut_by_the_total_deadline() {
    let gateway = Gateway::builder()
        .guest("hostile", guests::misbehaving(), None)
        .tables("[timeouts]\ntotal_ms = 700\n")
        .start()
        .await;
    let start = json!({ "Emit": [start(0)] });
    let byte = json!({ "Emit": [text(0, "x")] });
    let script =
        |steps: Value| json!({ "behave": "script", "steps": steps, "forever": true, "once": 1 });
    for wait in [json!({ "Wait": 100 }), json!({ "Wait": 5_000 })] {
        let drips = script(json!([start, byte, wait]));
        // The text that has arrived is the response.
        let cut = gateway.chat("hostile", &drips.to_string()).await;
        assert_eq!(cut.status, 200, "{}", cut.text());
        let choice = &cut.json()["choices"][0];
        assert_eq!(choice["finish_reason"], "length", "{choice}");
        let events = gateway
            .stream("hostile", &drips.to_string())
            .await
            .rest()
            .await;
        let last = events.last().expect("a last event");
        assert!(
            last.starts_with("event: error\n") && last.contains("UPSTREAM_TIMEOUT"),
            "{events:?}"
        );
        let waits = script(json!([wait, wait]));
        assert_ends(&gateway, waits, 504, "UPSTREAM_TIMEOUT").await;
    }
    // Without a pause the limit of steps is reached long before; and no client waits longer than the limit of all
    // waits.
    assert_contained(&gateway, script(json!([start, byte]))).await;
    assert_contained(&gateway, script(json!([start, byte, { "Wait": u32::MAX }]))).await;
}

#[tokio::test]
async fn w17_a_guest_that_is_parked_in_the_host_is_dropped_by_the_clock() {
    let gateway = gateway("call_timeout_ms = 300").await;
    let started = Instant::now();
    assert_contained(&gateway, json!({ "behave": "sleep" })).await;
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w18_others_are_served_beside_guests_that_copy_memory_for_ever() {
    let gateway = gateway("").await;
    let copies = async |n: usize| {
        let copy = json!({ "behave": "copy" }).to_string();
        let answers = (0..n).map(|_| gateway.chat("hostile", &copy));
        for answer in futures_util::future::join_all(answers).await {
            answer.error(502, "ADAPTER_FAILED");
        }
    };
    let healthy = async {
        for _ in 0..100 {
            assert_eq!(
                gateway.chat("demo", "hello").await.content(),
                "You said: hello"
            );
        }
    };
    tokio::join!(copies(4), healthy);
    assert_serves(&gateway, "after copies").await;
}

/// Installs a component in a slot of a running gateway.
async fn install(gateway: &Gateway, slot: &str, component: &[u8]) -> Answer {
    let admin = gateway.admin("olivia").await;
    let path = format!("/admin/plugins/{slot}?activate=true");
    admin.put_component(&path, component).await
}

#[tokio::test]
async fn w19_nobody_takes_another_plugins_name() {
    let gateway = gateway("").await;
    let answer = install(&gateway, "hostile", &guests::wat_guest("borrowed-name")).await;
    let error = answer.error(422, "PLUGIN_REFUSED");
    assert_eq!(error["step"], "describe", "{error}");
    assert_serves(&gateway, "after a borrowed name").await;
}

#[tokio::test]
async fn w19_custom_sections_weigh_and_mean_nothing() {
    let gateway = gateway("").await;
    let healthy = guests::wat_guest("healthy");
    let too_heavy = guests::with_custom_section(&healthy, 33 << 20);
    let answer = install(&gateway, "hostile", &too_heavy).await;
    assert_eq!(answer.error(413, "PLUGIN_REFUSED")["step"], "size");
    assert_serves(&gateway, "after 33 MiB").await;
    let heavy = guests::with_custom_section(&healthy, 31 << 20);
    let answer = install(&gateway, "hostile", &heavy).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_serves(&gateway, "after 31 MiB").await;
}

/// A compilation beyond its limits costs its child, and no other process.
#[tokio::test(flavor = "multi_thread")]
async fn w19_a_hundred_thousand_functions_end_the_compiler_and_nothing_else() {
    for (limits, complaint) in [
        ("timeout_ms = 1500", "more than 1.5 s"),
        ("memory_mib = 128", "128 MiB"),
    ] {
        let gateway = Gateway::builder()
            .guest("hostile", guests::misbehaving(), None)
            .tables(&format!("[plugins.compile]\n{limits}\n"))
            .start()
            .await;
        let served = async {
            for _ in 0..20 {
                assert_serves(&gateway, "while it is compiled").await;
            }
        };
        let many = guests::with_functions(100_000);
        let (answer, ()) = tokio::join!(install(&gateway, "hostile", &many), served);
        let error = answer.error(422, "PLUGIN_REFUSED");
        assert_eq!(error["step"], "compile", "{error}");
        let message = error["message"].as_str().expect("a text");
        assert!(message.contains(complaint), "{message}");
        let healthy = guests::answering("aa");
        let answer = install(&gateway, "hostile", &healthy).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        assert_eq!(gateway.chat("hostile", "hello").await.content(), "aa");
    }
}

#[tokio::test]
async fn w19_without_a_child_nothing_from_elsewhere_is_compiled() {
    let sandbox = sandbox(4);
    let nobody = Compiler::with_program("/nonexistent".into(), CompileLimits::default());
    let component = UploadedComponent::new(guests::wat_guest("healthy").into()).await;
    let code = loading::arrived_code(sandbox.engine(), &nobody, None, &component).await;
    assert!(
        matches!(code, Err(LoadError::Compile(CompileError::NotRun(_)))),
        "it was compiled elsewhere"
    );
}

/// A compiler that runs a script, with this limit.
fn scripted_compiler(folder: &Path, script: &str, timeout_ms: u64) -> Compiler {
    let program = folder.join("compiler");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("it can be written");
    let executable = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(&program, executable).expect("its owner may");
    let limits = CompileLimits {
        timeout_ms: timeout_ms.try_into().expect("not zero"),
        ..CompileLimits::default()
    };
    Compiler::with_program(program, limits)
}

/// As on a machine where other processes have the processors.
#[tokio::test]
async fn a_compilation_that_waits_for_a_processor_is_within_its_limit() {
    let (sandbox, folder) = (sandbox(4), tempfile::tempdir().expect("a folder"));
    let weir = weir_program();
    let script = format!("sleep 2\nexec {} \"$@\"", weir.display());
    let compiler = scripted_compiler(folder.path(), &script, 1_000);
    let component = UploadedComponent::new(guests::wat_guest("healthy").into()).await;
    let code = loading::arrived_code(sandbox.engine(), &compiler, None, &component).await;
    let code = code.unwrap_or_else(|error| panic!("{error}"));
    assert!(code.is_of::<ProviderWorld>(sandbox.engine()));
}

#[tokio::test]
async fn a_compiler_that_hangs_is_ended_by_the_clock() {
    let (sandbox, folder) = (sandbox(4), tempfile::tempdir().expect("a folder"));
    let compiler = scripted_compiler(folder.path(), "exec sleep 1000", 100);
    let component = UploadedComponent::new(guests::wat_guest("healthy").into()).await;
    let code = loading::arrived_code(sandbox.engine(), &compiler, None, &component).await;
    assert!(
        matches!(code, Err(LoadError::Compile(CompileError::TooLong(_)))),
        "it was not ended"
    );
}

#[tokio::test]
async fn without_a_child_weirs_own_plugins_are_compiled_all_the_same() {
    let sandbox = sandbox(4);
    let nobody = Compiler::with_program("/nonexistent".into(), CompileLimits::default());
    let component = UploadedComponent::new(guests::wat_guest("healthy").into()).await;
    let code = loading::own_code(sandbox.engine(), &nobody, None, &component).await;
    let code = code.unwrap_or_else(|error| panic!("{error}"));
    assert!(code.is_of::<ProviderWorld>(sandbox.engine()));
}

#[tokio::test]
async fn a_guest_gets_no_more_randomness_than_it_can_use() {
    let gateway = gateway("").await;
    assert_contained(
        &gateway,
        json!({ "behave": "random", "bytes": 1_u64 << 33 }),
    )
    .await;
}

/// A list may name an entry any number of times, and the host processes all of it within a tick of the guest's.
#[tokio::test]
async fn a_guest_polls_no_more_at_once_than_it_can_hold() {
    let gateway = gateway("").await;
    let few = json!({ "behave": "poll", "entries": 200 }).to_string();
    assert_eq!(gateway.chat("hostile", &few).await.content(), "ok");
    assert_contained(&gateway, json!({ "behave": "poll", "entries": 100_000 })).await;
}

#[tokio::test]
async fn what_all_guests_may_have_of_memory_is_shared_and_given_back() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(Reply::chat("x").after_gate(&gate));
    upstream.always(Reply::chat("x"));
    let gateway = Gateway::builder()
        .guest("hostile", guests::misbehaving(), Some(&upstream))
        .tables("[plugins]\nquarantine_traps = 0\nall_memory_mib = 48")
        .start()
        .await;
    let greedy = json!({ "behave": "send", "keep": 24 << 20 }).to_string();
    let client = gateway.client();
    let first = {
        let (client, request) = (client.clone(), chat("hostile", &greedy));
        tokio::spawn(async move { client.post("/chat", &request).await })
    };
    gate.reached().await;
    // A second one finds too little memory, but others do not.
    let second = gateway.chat("hostile", &greedy);
    let served = gateway.chat("hostile", "hello");
    let (second, served) = tokio::join!(second, served);
    second.error(503, "OVERLOADED");
    assert!(second.headers.contains_key("retry-after"));
    assert_eq!(served.content(), "ok");
    gate.open();
    assert_eq!(first.await.expect("no panic").status, 200);
    assert_eq!(gateway.chat("hostile", &greedy).await.status, 200);
}

#[tokio::test]
async fn an_exchange_that_never_ends_is_ended() {
    let gateway = gateway("").await;
    assert_contained(&gateway, json!({ "behave": "never-done" })).await;
    assert_contained(&gateway, json!({ "behave": "never-done", "wait": 0 })).await;
}

#[tokio::test]
async fn too_many_requests_in_one_exchange_are_refused() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("x"));
    let gateway = Gateway::builder()
        .guest("hostile", guests::misbehaving(), Some(&upstream))
        .start()
        .await;
    let send = |times: u32| json!({ "behave": "send", "path": "/x", "times": times });
    assert_eq!(
        gateway.chat("hostile", &send(4).to_string()).await.status,
        200
    );
    assert_contained(&gateway, send(5)).await;
    assert_eq!(upstream.count(), 8);
}

#[tokio::test]
async fn events_that_make_no_answer_are_refused() {
    let gateway = gateway("").await;
    let (start, text, end, finish) = (start(0), text(0, "x"), end(0), finish());
    for events in [
        json!([]),
        json!([text, finish]),
        json!([start, text, end]),
        json!([start, text, finish]),
        json!([start, text, end, finish, finish]),
        json!([finish, start]),
        json!([block(1, &json!("Text")), finish]),
    ] {
        let command = json!({ "behave": "script", "steps": [{ "Emit": events }, "Done"] });
        assert_contained(&gateway, command).await;
    }
}

#[tokio::test]
async fn what_a_guest_emits_is_bounded_by_the_output_limit() {
    let gateway = gateway("").await;
    let client = gateway.client();
    let asked = |command: &Value| {
        let mut body = chat("hostile", &command.to_string());
        body["max_tokens"] = json!(1_000);
        body
    };
    let steps = json!([{ "Emit": [start(0)] }, { "Emit": [text(0, &"x".repeat(20_000))] }]);
    let command = json!({ "behave": "script", "steps": steps, "forever": true, "once": 1 });
    let answer = client.post("/chat", &asked(&command)).await;
    assert_eq!(answer.status, 200);
    let choice = &answer.json()["choices"][0];
    assert_eq!(choice["finish_reason"], "length", "it is stopped");
    let length = choice["message"]["content"].as_str().map(str::len);
    assert_eq!(length, Some(20_000), "after the first that is too much");
    let tiny: Vec<_> = std::iter::once(start(0))
        .chain((0..10_000).map(|_| text(0, "")))
        .collect();
    let command = json!({ "behave": "script", "steps": [{ "Emit": tiny }] });
    let answer = client.post("/chat", &asked(&command)).await;
    answer.error(502, "UPSTREAM_ERROR");
}

#[tokio::test]
async fn a_stream_that_turns_to_nonsense_ends_with_a_typed_error() {
    let gateway = gateway("").await;
    let command = json!({ "behave": "script", "steps": [
        { "Emit": [start(0), text(0, "so far "), end(0)] },
        { "Emit": [finish(), finish()] },
        "Done",
    ] });
    let events = gateway
        .stream("hostile", &command.to_string())
        .await
        .rest()
        .await;
    assert!(events[0].contains("so far "), "{events:?}");
    let last = events.last().expect("a last event");
    assert!(
        last.starts_with("event: error\n") && last.contains("ADAPTER_FAILED"),
        "{events:?}"
    );
}

#[tokio::test]
async fn components_that_ask_for_more_than_they_are_given_are_refused_by_name() {
    for (name, import) in [
        ("unknown-import", "evil:host/api"),
        ("http-import", "wasi:http/"),
        ("outbound-import", "weir:plugin/outbound"),
    ] {
        let error = refusal(name).await;
        assert!(
            matches!(&error, LoadError::Imports { refused, .. } if refused[0].starts_with(import)),
            "{error:?}"
        );
        let allowed = "weir:plugin/log@0.2.*, wasi:cli/*@0.2.*";
        assert!(error.to_string().contains(allowed), "{error}");
    }
    let error = refusal("no-exports").await;
    assert!(matches!(error, LoadError::World { .. }), "{error:?}");
}

#[tokio::test]
async fn what_is_no_component_is_refused() {
    let sandbox = sandbox(1);
    let load = async |bytes: &[u8]| load(&sandbox, "x", bytes).await.err();
    let module = wat::parse_str("(module)").expect("a module");
    for (bytes, complaint) in [
        (&b""[..], "begins with \"\""),
        (b"\0asm", "not a WebAssembly component that can be compiled"),
        (
            b"#!/bin/sh\necho hello",
            r##"begins with "#!/bin/sh\necho h""##,
        ),
        (b"\x7fELF\x02", r#"begins with "\x7fELF\x02""#),
        (&module, "a core module: build it for `wasm32-wasip2`"),
        (
            &guests::wat_guest("healthy")[..200],
            "not a WebAssembly component that can be compiled",
        ),
    ] {
        let error = load(bytes).await.expect("it is refused");
        assert_eq!(error.step(), "parse");
        assert!(error.to_string().contains(complaint), "{error}");
    }
    let heavy = guests::with_custom_section(&guests::wat_guest("healthy"), 33 << 20);
    assert!(matches!(
        load(&heavy).await,
        Some(LoadError::TooLarge { .. })
    ));
}

/// The depth of "deep": far beyond any stack.
const DEEP: usize = 100_000;

fn deep() -> String {
    format!("{}{}", "[".repeat(DEEP), "]".repeat(DEEP))
}

/// The body of a request, with these fields in place of its own of the same names.
fn asking(fields: &str) -> String {
    let messages = r#", "messages": [{"role": "user", "content": "x"}]"#;
    let messages = if fields.starts_with("\"messages\"") {
        ""
    } else {
        messages
    };
    format!("{{\"model\": \"scripted\"{messages}, {fields}}}")
}

async fn send(client: &Client, path: &str, json: String) -> Answer {
    let of_type = Some("application/json");
    client.send(Method::POST, path, of_type, json.into()).await
}

/// A log that a test can read.
#[derive(Clone, Default)]
struct Log(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("not poisoned")).into_owned()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0
            .lock()
            .expect("not poisoned")
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
