//! The log of a real gateway: a line for each request, warnings for operators, and no secrets.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use tests::gateway::{UPSTREAM_CREDENTIAL, share_compiled_plugins};
use tests::{Client, Reply, Upstream, chat, guests};

use crate::cli::{Served, folder_with_compiled_plugins, headers, run, text, weir};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A gateway whose model `scripted` is the upstream's.
async fn served(settings: &str, upstream: &Upstream) -> Served {
    let credential = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(&credential, UPSTREAM_CREDENTIAL).expect("it can be written");
    let scripted = configuration_of(upstream, credential.path());
    Served::configured(&format!("{settings}\n{scripted}"))
}

/// A configuration whose model `scripted` is the upstream's.
fn configuration_of(upstream: &Upstream, credential: &Path) -> String {
    format!(
        "[providers.scripted]\nadapter = \"openai\"\nbase_url = \"{}\"\n\
         credential = {{ file = {:?} }}\n\
         [models.scripted]\ncontext_window = 100000\nmax_output_tokens = 1000\ndefault_output_tokens = 100\n\
         upstreams = [{{ provider = \"scripted\" }}]\nprice = {{ input = 1, output = 2 }}\n",
        upstream.base_url(),
        credential,
    )
}

fn lines(log: &str) -> Vec<Value> {
    log.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[tokio::test]
async fn each_request_is_a_line_with_its_user_its_upstream_and_its_charge() {
    let upstream = Upstream::start().await;
    let served = served("log_format = \"json\"", &upstream).await;
    let traced = |id: &str| {
        served
            .client()
            .with_header("x-request-id", id)
            .with_header("traceparent", &format!("00-{TRACE}-00f067aa0ba902b7-01"))
    };
    upstream.will(Reply::chat_with_usage("canary answer", 30, 20));
    let question = chat("scripted", "canary question");
    let plain = traced("mine-1").post("/chat", &question).await;
    assert_eq!(plain.headers["x-request-id"], "mine-1");
    upstream.will(Reply::chat_stream_with_usage(["one ", "two"], 40, 2));
    let stream = traced("mine-2")
        .stream("/v1/chat/completions", &question)
        .await;
    assert_eq!(stream.headers["x-request-id"], "mine-2");
    assert_eq!(stream.content().await, "one two");
    let unknown = traced("not an id").post("/chat", &chat("none", "x")).await;
    let error = unknown.error(400, "UNKNOWN_MODEL");
    let own_id = error["request_id"].as_str().expect("a text").to_owned();
    assert!(own_id.starts_with("req_"), "{error}");
    let stranger = served.client().with_key("inf_canary");
    stranger
        .get("/usage/me")
        .await
        .error(401, "UNAUTHENTICATED");
    served.client().get("/health").await;
    served.logged(|line| line.contains("UNAUTHENTICATED")).await;
    let key = served.key();
    let (log, _) = served.stop();
    for secret in ["canary", &key[8..], UPSTREAM_CREDENTIAL] {
        assert!(!log.contains(secret), "{secret} is in the log: {log}");
    }

    let lines = lines(&log);
    let answered: Vec<_> = lines
        .iter()
        .filter(|line| line["message"] == "answered")
        .collect();
    assert_eq!(answered.len(), 4, "one line a request, probes apart: {log}");
    let line_of = |name: &str, value: &str| {
        let mut found = answered.iter().filter(|line| line[name] == value);
        found
            .next()
            .unwrap_or_else(|| panic!("{name} {value}: {log}"))
    };
    for (id, route, tokens, credits) in [
        (
            "mine-1",
            "/chat",
            (30, 20),
            plain.json()["usage"]["credits"].clone(),
        ),
        ("mine-2", "/v1/chat/completions", (40, 2), json!(0.0616)),
    ] {
        let line = line_of("client_request_id", id);
        assert_eq!(line["level"], "INFO");
        assert_eq!(line["trace_id"], TRACE);
        assert_eq!(line["route"], route);
        assert_eq!(
            (&line["method"], &line["status"]),
            (&json!("POST"), &json!(200))
        );
        assert_eq!(
            (&line["user"], &line["model"]),
            (&json!("dev"), &json!("scripted"))
        );
        assert_eq!(line["upstream"], "scripted");
        assert_eq!(line["tokens_input"], tokens.0);
        assert_eq!(line["tokens_output"], tokens.1);
        assert!(line["credits"].as_f64() > Some(0.0), "{line}");
        assert_eq!(line["credits"], credits);
        assert!(line["milliseconds"].is_u64(), "{line}");
        assert!(
            line["request_id"]
                .as_str()
                .is_some_and(|id| id.starts_with("req_"))
        );
    }
    let line = line_of("request_id", &own_id);
    assert_eq!(
        (&line["code"], &line["status"]),
        (&json!("UNKNOWN_MODEL"), &json!(400))
    );
    assert_eq!(line.get("client_request_id"), None, "it is none");
    let line = line_of("code", "UNAUTHENTICATED");
    assert_eq!((line.get("user"), &line["status"]), (None, &json!(401)));
    let failure = line["failure"].as_str().expect("the reason");
    assert!(failure.starts_with("api_key: "), "{failure}");
}

#[tokio::test]
async fn an_upstream_that_refuses_weirs_credential_is_an_error_and_its_trace_is_named() {
    let upstream = Upstream::start().await;
    let served = served("log_format = \"json\"", &upstream).await;
    let refusal = json!({ "error": {
        "message": format!("Incorrect API key provided: {UPSTREAM_CREDENTIAL}"), "code": "invalid_api_key",
    } });
    upstream.will(Reply::json(401, &refusal));
    let client = served
        .client()
        .with_header("traceparent", &format!("00-{TRACE}-00f067aa0ba902b7-01"));
    let answer = client.post("/chat", &chat("scripted", "x")).await;
    answer.error(502, "UPSTREAM_ERROR");
    assert!(!answer.text().contains("sk-up"), "{}", answer.text());
    let line = served.logged(|line| line.contains("credential")).await;
    let line: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(line["level"], "ERROR", "{line}");
    assert_eq!(line["upstream"], "scripted");
    assert_eq!(line["span"]["trace_id"], TRACE, "{line}");
    assert!(
        line["error"]
            .as_str()
            .is_some_and(|e| e.contains("invalid_api_key")),
        "{line}"
    );
    let line = served.logged(|line| line.contains("\"answered\"")).await;
    assert!(line.contains("rejected weir's credential"), "{line}");
    assert!(!served.log().contains("sk-up"), "{}", served.log());
    served.stop();
}

/// The number of lines that the gateway has dropped.
async fn dropped_lines(served: &Served) -> u64 {
    let metrics = served.client().get("/metrics").await.text();
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("weir_log_lines_dropped_total "));
    line.expect("a counter").parse().expect("a number")
}

#[tokio::test]
async fn a_log_that_nobody_reads_delays_no_request_and_its_dropped_lines_are_counted() {
    let folder = folder_with_compiled_plugins();
    let log = folder.path().join("log");
    let made = Command::new("mkfifo").arg(&log).status();
    assert!(made.expect("mkfifo runs").success());
    // With both ends open here, the gateway's writes fill the pipe instead of failing.
    let pipe = File::options().read(true).write(true).open(&log);
    let pipe = pipe.expect("a pipe");
    let mut end = pipe.try_clone().expect("a pipe");
    let mut command = weir(folder.path());
    command.env("WEIR_LOG", "info,sqlx=debug");
    let mut served = Served::start_as(command, folder, &[]);
    while dropped_lines(&served).await == 0 {
        assert_eq!(served.client().get("/usage/me").await.status, 200);
    }
    // The gateway's end writes the waiting lines.
    let reader = read_to_the_end(pipe);
    served.terminate();
    while !served.has_ended() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    end.write_all(b"the end").expect("it is read");
    let read = text(&reader.join().expect("no panic"));
    assert!(read.contains("answered"), "{read}");
}

/// Reads a pipe until somebody writes `the end` to it.
fn read_to_the_end(mut pipe: File) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let (mut read, mut some) = (Vec::new(), [0; 4096]);
        while !read.ends_with(b"the end") {
            let length = pipe.read(&mut some).expect("bytes");
            read.extend_from_slice(&some[..length]);
        }
        read
    })
}

/// Makes a pipe at a path. A gateway's writes to it block or fail, and never end it.
fn pipe_at(path: &Path) -> File {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.expect("mkfifo runs").success());
    // With both ends open, this file needs no partner.
    let pipe = File::options().read(true).write(true).open(path);
    pipe.expect("a pipe")
}

/// Fills a pipe, so that the next write blocks.
fn fill(pipe: &Path) {
    let non_blocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut options = File::options();
    let pipe = options.write(true).custom_flags(non_blocking).open(pipe);
    let mut pipe = pipe.expect("a pipe");
    for bytes in [4096, 1] {
        while pipe.write(&vec![b'\n'; bytes]).is_ok() {}
    }
}

/// Requests that log errors and lines of requests, until the gateway has lost some; probes succeed throughout.
async fn lose_lines(served: &Served, upstream: &Upstream) {
    let refusal = json!({ "error": { "message": "Incorrect API key", "code": "invalid_api_key" } });
    tests::patiently(async {
        for _ in 0..3 {
            upstream.will(Reply::json(401, &refusal));
            let answer = served
                .client()
                .post("/chat", &chat("scripted", "canary"))
                .await;
            assert!(answer.status.is_server_error(), "{}", answer.text());
            assert_eq!(served.client().get("/health").await.status, 200);
        }
        while dropped_lines(served).await == 0 {
            assert_eq!(served.client().get("/usage/me").await.status, 200);
            assert_eq!(served.client().get("/health").await.status, 200);
        }
    })
    .await;
}

/// Waits until a gateway has ended after SIGTERM.
async fn end(mut served: Served) {
    served.terminate();
    let told = Instant::now();
    tests::patiently(async {
        while !served.has_ended() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    // Nothing is under way. The log has 2 s for its last lines.
    let took = told.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
}

/// A gateway whose configuration names the upstream, and whose standard error is at `log`.
fn served_with_log(upstream: &Upstream, make_log: impl FnOnce(&Path)) -> Served {
    let folder = folder_with_compiled_plugins();
    let credential = folder.path().join("credential");
    std::fs::write(&credential, UPSTREAM_CREDENTIAL).expect("it can be written");
    let configuration = configuration_of(upstream, &credential);
    std::fs::write(folder.path().join("weir.toml"), configuration).expect("it can be written");
    make_log(&folder.path().join("log"));
    let mut command = weir(folder.path());
    command.env("WEIR_LOG", "info,sqlx=debug");
    Served::start_as(command, folder, &[])
}

#[tokio::test]
async fn a_full_pipe_as_log_delays_neither_errors_nor_probes_nor_shutdown() {
    let upstream = Upstream::start().await;
    let mut pipe = None;
    let served = served_with_log(&upstream, |log| {
        pipe = Some(pipe_at(log));
        fill(log);
    });
    lose_lines(&served, &upstream).await;
    end(served).await;
    drop(pipe);
}

#[tokio::test]
async fn a_full_disk_under_the_log_delays_neither_errors_nor_probes_nor_shutdown() {
    let upstream = Upstream::start().await;
    let served = served_with_log(&upstream, |log| {
        symlink("/dev/full", log).expect("the folder can be written");
    });
    lose_lines(&served, &upstream).await;
    end(served).await;
}

#[tokio::test]
async fn a_log_whose_reader_returns_says_how_many_lines_are_missing() {
    let upstream = Upstream::start().await;
    let mut pipe = None;
    let served = served_with_log(&upstream, |log| pipe = Some(pipe_at(log)));
    // The pipe is closed: each write fails.
    drop(pipe.take());
    lose_lines(&served, &upstream).await;
    let pipe = File::options()
        .read(true)
        .write(true)
        .open(served.folder().join("log"))
        .expect("a pipe");
    let mut end_of_log = pipe.try_clone().expect("a pipe");
    let reader = read_to_the_end(pipe);
    assert_eq!(served.client().get("/usage/me").await.status, 200);
    let dropped = dropped_lines(&served).await;
    end(served).await;
    end_of_log.write_all(b"the end").expect("it is read");
    let read = text(&reader.join().expect("no panic"));
    let told = read.lines().find(|line| line.contains("are missing"));
    let told = told.unwrap_or_else(|| panic!("{read}"));
    assert!(told.contains("WARN"), "{told}");
    assert!(
        told.contains(&format!("lines={dropped}")),
        "{dropped}: {told}"
    );
}

/// A start that fails prints its reason, and must not wait for a reader.
#[tokio::test]
async fn a_start_that_fails_ends_even_if_nobody_reads_its_log() {
    let folder = folder_with_compiled_plugins();
    let log = folder.path().join("log");
    let pipe = pipe_at(&log);
    fill(&log);
    std::fs::write(folder.path().join("weir.toml"), "nonsense = 1").expect("it can be written");
    let output = File::options().write(true).open(&log);
    let mut child = weir(folder.path())
        .arg("serve")
        .stderr(output.expect("a pipe"))
        .spawn()
        .expect("weir runs");
    let status = tests::patiently(async {
        loop {
            if let Some(status) = child.try_wait().expect("it can be asked") {
                break status;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert_eq!(status.await.code(), Some(1));
    drop(pipe);
}

#[tokio::test]
async fn a_greeting_that_nobody_reads_delays_neither_requests_nor_shutdown() {
    let folder = folder_with_compiled_plugins();
    let (output, log) = (folder.path().join("output"), folder.path().join("log"));
    let pipe = pipe_at(&output);
    fill(&output);
    let stdout = File::options().write(true).open(&output);
    let mut child = weir(folder.path())
        .args(["serve", "--listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(stdout.expect("a pipe"))
        .stderr(File::create(&log).expect("a file"))
        .spawn()
        .expect("weir runs");
    tests::patiently(async {
        let address = loop {
            let log = std::fs::read_to_string(&log).expect("text");
            let ready = log.lines().find(|line| line.contains(" ready "));
            if let Some((_, rest)) = ready.and_then(|line| line.split_once("address=")) {
                let address = rest.split(' ').next().expect("an address");
                break address.parse().expect("an address");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let client = Client::new(address);
        assert_eq!(client.get("/models").await.status, 401);
        let told = Command::new("kill").arg(child.id().to_string()).status();
        assert!(told.expect("kill runs").success());
        while child.try_wait().expect("it can be asked").is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    drop(pipe);
}

/// A Python guest writes a traceback, a Rust guest its panic.
#[tokio::test]
async fn a_trap_is_a_warning_with_what_the_guest_last_wrote() {
    let upstream = Upstream::start().await;
    let served = served("", &upstream).await;
    let component = served.folder().join("guest.wasm");
    std::fs::write(&component, guests::misbehaving()).expect("the folder can be written");
    let installed = run(
        served.folder(),
        &[
            "plugin",
            "install",
            "guest.wasm",
            "--slot",
            "openai",
            "--activate",
        ],
    );
    assert!(installed.status.success(), "{}", text(&installed.stderr));
    let ask = async |command: Value| {
        let body = chat("scripted", &command.to_string());
        served.client().post("/chat", &body).await
    };
    ask(json!({ "behave": "panic" }))
        .await
        .error(502, "ADAPTER_FAILED");
    let line = served.logged(|line| line.contains("last words")).await;
    assert!(
        line.contains("WARN")
            && line.contains("plugin=\"openai\"")
            && line.contains(" request_id=\"req_"),
        "{line}"
    );
    // Rust's own text, and the guest's, with escaped line breaks.
    assert!(line.contains("panicked at"), "{line}");
    assert!(line.contains("\\u{1b}[31mERROR forged line"), "{line}");
    let warnings = served
        .log()
        .lines()
        .filter(|line| line.contains("last words"))
        .count();
    assert_eq!(warnings, 1);

    // The end of a long output.
    let flood = json!({ "behave": "print", "lines": 5_000, "text": "x".repeat(100) });
    ask(flood).await;
    ask(json!({ "behave": "unreachable" }))
        .await
        .error(502, "ADAPTER_FAILED");
    let (log, _) = served.stop();
    assert!(log.lines().all(|line| line.len() < 8_000), "a line is long");
}

#[tokio::test]
async fn what_strangers_bring_about_does_not_fill_the_log() {
    let served = Served::configured("[rate_limits]\naddress = 100000\n");
    let stranger = served.client().with_header("x-api-key", "");
    let began = Instant::now();
    let mut sent = 0;
    while !served.log().contains("suppressed=") {
        stranger.get("/nope").await.error(404, "NOT_FOUND");
        sent += 1;
    }
    let seconds = began.elapsed().as_secs() as usize + 2;
    let (log, _) = served.stop();
    let refused: Vec<_> = log
        .lines()
        .filter(|line| line.contains("NOT_FOUND"))
        .collect();
    let suppressed: usize = refused
        .iter()
        .filter_map(|line| {
            line.split("suppressed=")
                .nth(1)?
                .split(' ')
                .next()?
                .parse::<usize>()
                .ok()
        })
        .sum();
    assert!(suppressed > 0 && refused.len() <= 20 * seconds, "{log}");
    assert!(refused.len() + suppressed <= sent, "{log}");
}

/// A client with the headers that `weir token web` prints.
fn web_client(served: &Served, arguments: &[&str]) -> Client {
    let printed = headers(served.folder(), &[&["web"], arguments].concat());
    let values = printed.iter().filter_map(|header| header.split_once(": "));
    values.fold(served.client(), |client, (name, value)| {
        client.with_header(&name.to_lowercase(), value)
    })
}

#[tokio::test]
async fn a_tasks_credential_is_in_no_line_however_much_is_logged() {
    const SECRET: &str = "canary-credential-0123456789";
    let (model, receiver) = (Upstream::start().await, Upstream::start().await);
    let folder = tempfile::tempdir().expect("a folder");
    let credential = folder.path().join("credential");
    std::fs::write(&credential, UPSTREAM_CREDENTIAL).expect("it can be written");
    let at = receiver.address();
    let settings = format!(
        "[providers.scripted]\nadapter = \"openai\"\nbase_url = \"{}\"\ncredential = {{ file = {credential:?} }}\n\
         [models.scripted]\ncontext_window = 100000\nmax_output_tokens = 10000\ndefault_output_tokens = 100\n\
         supports_tools = true\nupstreams = [{{ provider = \"scripted\" }}]\nprice = {{ input = 1, output = 2 }}\n\
         [tools.http_get]\nports = [{}]\nprivate = [\"{at}\"]\n",
        model.base_url(),
        at.port(),
    );
    std::fs::write(folder.path().join("weir.toml"), settings).expect("it can be written");
    share_compiled_plugins(&folder.path().join(".weir"));
    let mut command = weir(folder.path());
    let filter =
        "trace,cranelift_codegen=off,cranelift_frontend=off,wasmtime_internal_cranelift=off";
    command.env("WEIR_LOG", filter);
    let served = Served::start_as(command, folder, &[]);
    let wanda = web_client(&served, &["--user", "wanda"]);
    assert_eq!(wanda.get("/usage/me").await.status, 200);
    let admin = web_client(&served, &["--user", "root", "--admin"]);
    let found = admin.get("/admin/users?subject=wanda").await.json();
    let id = found["users"][0]["user_id"].as_str().expect("an id");
    let plan = format!("/admin/users/{id}/plan");
    assert_eq!(
        admin.post(&plan, &json!({ "plan": "pro" })).await.status,
        200
    );

    let agent = json!({ "name": "a", "system_prompt": "", "task_prompt": "x", "model": "scripted", "tools": ["http_get"] });
    let defined = wanda
        .post(
            "/api/agent/tasks",
            &json!({ "name": "t", "agents": [agent] }),
        )
        .await
        .json();
    let task_id = &defined["task_id"];
    let asked = json!({ "task_id": task_id, "name": "crm", "secret": SECRET, "origin": receiver.base_url() });
    let mut wrong = asked.clone();
    wrong["origin"] = json!({ "secret": SECRET });
    let refused = wanda.post("/api/agent/encrypt-credential", &wrong).await;
    refused.error(400, "INVALID_REQUEST");
    let kept = wanda.post("/api/agent/encrypt-credential", &asked).await;
    assert_eq!(kept.status, 201, "{}", kept.text());
    let function = json!({ "name": "http_get",
        "arguments": json!({ "url": receiver.base_url(), "credential": "crm" }).to_string() });
    let message = json!({ "role": "assistant", "content": null,
        "tool_calls": [{ "id": "call_1", "type": "function", "function": function }] });
    model
        .will(Reply::chat_message(&message, "tool_calls"))
        .will(Reply::chat("Done."));
    receiver.will(Reply::new(200).body(SECRET));
    let started = wanda
        .post(
            "/api/agent/trigger-execution",
            &json!({ "task_id": task_id }),
        )
        .await;
    let run = started.json()["execution_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let events = format!("/swarms/{run}/events");
    let events = wanda.follow(Method::GET, &events, &Value::Null).await;
    let told = events.try_rest().await.join("\n");
    let sent = receiver.next_request().await;
    assert_eq!(
        sent.header("authorization"),
        Some(&*format!("Bearer {SECRET}"))
    );
    assert!(told.contains("swarm_done"), "{told}");
    let (log, _) = served.stop();
    assert!(log.contains("TRACE") && log.contains("tool call"), "{log}");
    for text in [&log, &told, &kept.text(), &refused.text()] {
        let line = text.lines().find(|line| line.contains(SECRET));
        assert!(line.is_none(), "{line:?}");
    }
}
