//! `weir plugin try` from an adapter author's view.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::gateway::share_compiled_plugins_with_authors;
use tests::{chat, guests, scripts};

use crate::cli::{run, text, weir};

const STREAMED: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-request-id: r1\r\nset-cookie: a=b\r\n\r\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Grüß\"}}]}\r\n\r\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" Gott\"}}]}\r\n\r\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\r\n\r\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":5,\"total_tokens\":12}}\r\n\r\n\
    data: [DONE]\r\n\r\n";

/// A folder with a component and a request.
struct Desk(TempDir);

impl Desk {
    fn new(component: &[u8], request: &Value) -> Self {
        let desk = Self(tempfile::tempdir().expect("a folder"));
        share_compiled_plugins_with_authors(desk.path());
        desk.put("adapter.wasm", component);
        desk.put("request.json", request.to_string());
        desk
    }

    fn with_openai(stream: bool) -> Self {
        let mut request = chat("gpt-x", "hello");
        request["stream"] = stream.into();
        Self::new(&guests::bundled("openai"), &request)
    }

    fn with_hostile(command: Value) -> Self {
        Self::new(
            guests::misbehaving(),
            &chat("some-model", &command.to_string()),
        )
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.0.path().join(name), content).expect("the folder can be written");
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn try_with(&self, more: &[&str]) -> Output {
        let given = ["plugin", "try", "adapter.wasm", "--request", "request.json"];
        run(self.path(), &[&given, more].concat())
    }

    /// Returns the lines of a trial that succeeds.
    fn lines(&self, more: &[&str]) -> Vec<Value> {
        let output = self.try_with(more);
        assert!(output.status.success(), "{output:?}");
        lines(&output)
    }

    /// Returns the last line of a trial that fails.
    fn end(&self, more: &[&str]) -> Value {
        let output = self.try_with(more);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains("weir: "), "it says so: {said}");
        lines(&output).pop().expect("a line")
    }
}

fn lines(output: &Output) -> Vec<Value> {
    let read =
        |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    text(&output.stdout).lines().map(read).collect()
}

fn event(event: Value) -> Value {
    json!({ "event": event })
}

/// The beginning of the first block, a text.
fn begun() -> Value {
    event(json!({ "block-start": { "index": 0, "block": "text" } }))
}

/// A fragment of the first block.
fn fragment(text: &str) -> Value {
    event(json!({ "text": { "index": 0, "text": text } }))
}

#[test]
fn an_adapter_that_answers_by_itself_is_shown_to_its_end() {
    let desk = Desk::new(&guests::bundled("demo"), &chat("any-name", "hello"));
    let lines = desk.lines(&[]);
    let started = json!({ "started": { "id": null, "model": "any-name" } });
    assert_eq!(lines[..2], [event(started), begun()]);
    let said: String = lines
        .iter()
        .filter_map(|line| line["event"]["text"]["text"].as_str())
        .collect();
    assert_eq!(said, "You said: hello");
    let [.., finish, done] = &lines[..] else {
        panic!("{lines:?}")
    };
    assert_eq!(finish, &event(json!({ "finish": "stop" })));
    assert_eq!(done, &json!({ "done": true }));
}

#[test]
fn without_a_recording_the_request_is_shown_and_where_the_credential_goes() {
    let desk = Desk::with_openai(true);
    let output = desk.try_with(&["--option", "output-limit-field=max_tokens"]);
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stderr).contains("--response"), "{output:?}");
    let [line] = &lines(&output)[..] else {
        panic!("{output:?}")
    };
    let send = &line["send"];
    assert_eq!(send["method"], "POST");
    assert_eq!(send["path"], "/chat/completions");
    assert_eq!(send["headers"]["authorization"], "Bearer CREDENTIAL");
    assert_eq!(send["headers"]["content-type"], "application/json");
    assert_eq!(send["body"]["model"], "gpt-x");
    assert_eq!(send["body"]["messages"][0]["content"], "hello");
    assert_eq!(send["body"]["max_tokens"], 1024, "where none is asked for");
}

#[test]
fn the_request_can_come_from_standard_input() {
    let desk = Desk::with_openai(false);
    let mut request = chat("from-stdin", "hello");
    request["max_tokens"] = 7.into();
    let mut child = weir(desk.path())
        .args(["plugin", "try", "adapter.wasm", "--request", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir runs");
    let mut stdin = child.stdin.take().expect("piped");
    stdin
        .write_all(request.to_string().as_bytes())
        .expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let body = &lines(&output)[0]["send"]["body"];
    assert_eq!(body["model"], "from-stdin");
    assert_eq!(body["max_completion_tokens"], 7);
}

#[test]
fn a_streamed_recording_gives_the_same_events_in_pieces_of_any_size() {
    let desk = Desk::with_openai(true);
    desk.put("answer", STREAMED);
    desk.put("body", STREAMED.split_once("\r\n\r\n").expect("a head").1);
    let whole = desk.lines(&["--response", "answer"]);
    assert_eq!(
        whole[1..],
        [
            json!({ "head": { "status": 200, "headers": { "content-type": "text/event-stream" } } }),
            begun(),
            fragment("Grüß"),
            fragment(" Gott"),
            event(json!({ "usage": { "input-tokens": 7, "output-tokens": 5 } })),
            event(json!({ "block-end": 0 })),
            event(json!({ "finish": "stop" })),
            json!({ "done": true }),
        ]
    );
    for bytes in ["1", "2", "3", "7", "50", "1000000"] {
        let lines = desk.lines(&["--response", "answer", "--chunk", bytes]);
        assert_eq!(lines, whole, "{bytes} bytes at a time");
    }
    let of_body = desk.lines(&["--response", "body", "--chunk", "5"]);
    assert_eq!(of_body[2..], whole[2..], "its type is guessed");
}

#[test]
fn a_plain_recording_is_read() {
    let desk = Desk::with_openai(false);
    let answer = json!({
        "choices": [{ "index": 0, "message": { "role": "assistant", "content": "Hi" }, "finish_reason": "length" }],
        "usage": { "prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4 },
    });
    desk.put("answer", format!("{answer:#}"));
    let events = desk.lines(&["--response", "answer", "--chunk", "4"]);
    assert!(events.contains(&fragment("Hi")), "{events:?}");
    assert!(
        events.contains(&event(json!({ "finish": "length" }))),
        "{events:?}"
    );
}

#[test]
fn a_failure_is_shown_as_the_adapter_understands_it() {
    let desk = Desk::with_openai(true);
    desk.put(
        "busy",
        "HTTP/2 429 \nretry-after: 20\ncontent-type: application/json\n\n{\"error\":{\"message\":\"slow down\"}}",
    );
    assert_eq!(
        desk.end(&["--response", "busy"]),
        json!({ "failure": {
            "kind": "rate-limited",
            "text": "slow down",
            "retry-after-ms": 20_000,
            "upstream-error": { "error": { "message": "slow down" } },
        } })
    );
    desk.put("cut", &STREAMED[..STREAMED.len() - 180]);
    let end = desk.end(&["--response", "cut"]);
    assert_eq!(end["failure"]["kind"], "malformed", "{end}");
    let plain = Desk::with_openai(false);
    plain.put("no-json", "HTTP/1.1 200 OK\n\n<html>");
    let end = plain.end(&["--response", "no-json"]);
    assert_eq!(end["failure"]["kind"], "malformed", "{end}");
}

#[test]
fn a_recording_that_is_none_is_named() {
    let desk = Desk::with_openai(true);
    desk.put("broken", "HTTP/1.1 200 OK\r\nno header\r\n\r\n");
    for (file, complaint) in [
        ("broken", "line 2 is not a header"),
        ("missing", "reading missing"),
    ] {
        let output = desk.try_with(&["--response", file]);
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(said.contains(file) && said.contains(complaint), "{said}");
    }
}

#[test]
fn a_request_that_the_server_would_refuse_is_refused_with_its_field() {
    let mut request = chat("gpt-x", "hello");
    request["messages"][0]["content"] = json!([{ "type": "text", "text": 1 }]);
    let desk = Desk::new(&guests::bundled("openai"), &request);
    let output = desk.try_with(&[]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("400 INVALID_REQUEST: messages[0].content[0].text must be a string"),
        "{said}"
    );
    assert!(output.stdout.is_empty());
    desk.put("request.json", "no json");
    assert!(text(&desk.try_with(&[]).stderr).contains("400 INVALID_REQUEST"));
}

#[test]
fn an_option_that_the_adapter_does_not_have_is_refused() {
    let desk = Desk::with_openai(true);
    let said = text(&desk.try_with(&["--option", "wrong=1"]).stderr);
    assert!(
        said.contains("the option \"wrong\" is unknown") && said.contains("output-limit-field"),
        "{said}"
    );
}

#[test]
fn what_is_no_adapter_is_refused_at_its_step() {
    let chat = chat("m", "hello");
    for (component, step) in [
        (b"not wasm".to_vec(), "parse: "),
        (guests::wat_guest("http-import"), "imports: "),
        (guests::wat_guest("no-exports"), "world: "),
        (guests::wat_guest("describe-traps"), "describe: "),
        (guests::wat_guest("divide"), "self-test: "),
    ] {
        let output = Desk::new(&component, &chat).try_with(&[]);
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(
            said.contains(&format!("adapter.wasm is refused: {step}")),
            "{said}"
        );
    }
}

#[test]
fn a_request_that_would_not_be_sent_is_refused() {
    for (send, why) in [
        (json!({ "path": "//other/x" }), "two slashes"),
        (
            json!({ "path": "/x", "method": "DELETE" }),
            "neither GET nor POST",
        ),
        (
            json!({ "path": "/x", "headers": [["Authorization", "Bearer mine"]] }),
            "Authorization",
        ),
    ] {
        let mut command = send.clone();
        command["behave"] = "send".into();
        let end = Desk::with_hostile(command).end(&[]);
        let refused = end["refused"].as_str().unwrap_or_default();
        assert!(refused.contains(why), "{send}: {end}");
    }
}

#[test]
fn a_guest_that_misbehaves_is_cut_and_named() {
    for (command, complaint) in [
        (json!({ "behave": "spin" }), "processor time"),
        (json!({ "behave": "panic" }), "trapped"),
        (json!({ "behave": "grow", "in": "begin" }), "memory"),
        (json!({ "behave": "utf8" }), "unreadable result"),
        (
            json!({ "behave": "never-done", "wait": 5 }),
            "64 other steps",
        ),
        (
            json!({ "behave": "script", "steps": [{ "Emit": [scripts::text(0, "x")] }] }),
            "a piece of a block that is not open",
        ),
        (
            json!({ "behave": "script", "steps": [{ "Emit": [] }] }),
            "no finish",
        ),
    ] {
        let end = Desk::with_hostile(command.clone()).end(&[]);
        let error = end["error"].as_str().unwrap_or_default();
        assert!(error.contains(complaint), "{command}: {end}");
    }
}

#[test]
fn many_requests_take_a_recording_each_up_to_the_bound() {
    let desk =
        Desk::with_hostile(json!({ "behave": "send", "path": "/x", "body": "<x>", "times": 5 }));
    desk.put("answer", "HTTP/1.1 200 OK\n\n[]");
    let given = |times: usize| ["--response", "answer"].repeat(times);
    // The fifth is not even shown.
    let output = desk.try_with(&given(5));
    assert_eq!(output.status.code(), Some(1));
    let all = lines(&output);
    let sends: Vec<_> = all.iter().filter(|line| line["send"].is_object()).collect();
    assert_eq!(sends.len(), 4);
    assert_eq!(sends[0]["send"]["body"], "<x>", "what is no JSON is a text");
    assert!(all[all.len() - 1]["error"].is_string(), "{all:?}");

    let once = Desk::with_hostile(json!({ "behave": "send", "path": "/x" }));
    once.put("answer", "HTTP/1.1 200 OK\n\n[]");
    let output = once.try_with(&given(3));
    assert!(output.status.success(), "{output:?}");
    assert!(
        text(&output.stderr).contains("2 recorded responses"),
        "{output:?}"
    );
}

#[test]
fn what_a_component_says_drives_no_terminal() {
    let says = "\u{1b}[2J\u{9b}31m\u{202e}\r\n{\"done\":true}";
    let desk = Desk::with_hostile(json!({ "behave": "script", "steps": [
        { "Emit": scripts::answer(says) }, "Done",
    ] }));
    let output = desk.try_with(&[]);
    let shown = text(&output.stdout);
    assert!(
        !shown.contains(['\u{1b}', '\u{9b}', '\u{202e}', '\r']),
        "{shown:?}"
    );
    assert_eq!(lines(&output)[1], fragment(says));
}

#[test]
fn a_tool_is_tried_on_arguments_and_recorded_answers() {
    let desk = Desk::new(
        &guests::bundled("http_post"),
        &json!({ "url": "https://example.com/items", "body": { "a": 1 }, "credential": "crm" }),
    );
    let fetch = json!({ "fetch": {
        "method": "POST",
        "url": "https://example.com/items",
        "headers": { "content-type": "application/json" },
        "body": { "a": 1 },
        "credential": "crm",
    } });
    let output = desk.try_with(&[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("--response FILE"));
    assert_eq!(text(&output.stdout).trim(), fetch.to_string());

    desk.put(
        "answer",
        "HTTP/1.1 201 Created\r\nset-cookie: a=b\r\netag: 7\r\n\r\nmade",
    );
    assert_eq!(
        desk.lines(&["--response", "answer"]),
        [
            fetch,
            json!({ "head": { "status": 201, "headers": { "etag": "7" } } }),
            json!({ "result": "HTTP 201\netag: 7\n\nmade" }),
        ]
    );
}

#[test]
fn what_is_wrong_with_a_tools_arguments_is_said() {
    for (tool, arguments, more, last) in [
        (
            "http_get",
            json!({ "uri": "https://example.com" }),
            &[][..],
            json!({ "error": "the arguments do not match the schema: `url` is missing" }),
        ),
        (
            "api_call",
            json!({ "integration": "other", "path": "/" }),
            &["--integration", "tracker=https://api.example/v2"],
            json!({ "failure": { "invalid-arguments": "`integration` must be one of tracker" } }),
        ),
    ] {
        let desk = Desk::new(&guests::bundled(tool), &arguments);
        let output = desk.try_with(more);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout).trim(), last.to_string());
    }
}

const EVENTS: &str = r#"{"head":{"status":200,"headers":{}}}
{"event":{"block-start":{"index":0,"block":"text"}}}
{"event":{"text":{"index":0,"text":"Ask a@exam"}}}
{"event":{"text":{"index":0,"text":"ple.org."}}}
{"event":{"block-end":0}}
{"event":{"usage":{"output-tokens":7}}}
{"event":{"finish":"stop"}}
{"done":true}
"#;

#[test]
fn a_filters_verdict_and_what_it_makes_of_an_answer_are_shown() {
    let desk = Desk::new(&guests::bundled("redact-pii"), &chat("m", "I am a@b.co"));
    desk.put("answer.events", EVENTS);
    let verdict = json!({ "verdict": {
        "change": { "messages": [{ "role": "user", "parts": [{ "text": "I am [e-mail-1]" }] }] },
        "upstreams": [],
        "annotations": { "e-mail": "1" },
        "answer": true,
    } });
    assert_eq!(desk.lines(&[]), std::slice::from_ref(&verdict));
    assert_eq!(
        desk.lines(&["--events", "answer.events"]),
        [
            verdict,
            begun(),
            fragment("Ask "),
            fragment("[e-mail]."),
            event(json!({ "block-end": 0 })),
            event(json!({ "finish": "stop" })),
            json!({ "done": true }),
        ]
    );
    let as_it_is = desk.lines(&[
        "--events",
        "answer.events",
        "--option",
        "answers=false",
        "--option",
        "kinds=ip",
    ]);
    assert_eq!(as_it_is[0]["verdict"]["change"], Value::Null);
    assert_eq!(as_it_is[2], fragment("Ask a@exam"));
}

#[test]
fn a_filter_is_told_which_providers_there_are() {
    let desk = Desk::new(&guests::bundled("route-by-length"), &chat("m", "hello"));
    let options = ["--option", "limit=100", "--option", "short=b"];
    let providers = ["--provider", "a", "--provider", "b"];
    let lines = desk.lines(&[options, providers].concat());
    assert_eq!(lines[0]["verdict"]["upstreams"], json!([1, 0]));
}

#[test]
fn the_steps_of_a_filter_are_shown() {
    let desk = |word: &str| {
        let desk = Desk::new(guests::meddling(), &chat("m", &format!("meddle {word}")));
        desk.put("answer.events", EVENTS);
        desk.put("fine.http", "HTTP/1.1 200 OK\r\n\r\nfine");
        desk.put("down.http", "HTTP/1.1 503 Down\r\n\r\nfine");
        desk
    };
    let own = desk("respond").lines(&[]);
    assert!(own.contains(&fragment("made here")), "{own:?}");
    assert_eq!(own.last(), Some(&json!({ "done": true })));
    let asked = desk("ask").lines(&[]);
    assert_eq!(asked.len(), 1, "{asked:?}");
    let body = asked[0]["ask-service"].as_str().expect("a text");
    assert!(body.contains("dialect"), "{body}");
    let replied = desk("ask").lines(&["--response", "fine.http"]);
    assert_eq!(replied[1]["verdict"]["annotations"]["reply"], "fine");
    let whole = desk("whole-count").lines(&["--events", "answer.events"]);
    assert_eq!(whole[0]["verdict"]["whole"], true);
    for (word, given, why) in [
        ("ask", "down.http", "its service failed: the status is 503"),
        (
            "ask-forever",
            "fine.http",
            "asks its service more than once",
        ),
        (
            "respond-forged",
            "fine.http",
            "parts that only a provider makes",
        ),
    ] {
        let last = desk(word).end(&["--response", given]);
        let error = last["error"].as_str().expect("an error");
        assert!(error.contains(why), "{word}: {error}");
    }
}

#[test]
fn what_a_filter_refuses_ends_or_breaks_is_told() {
    let desk = |word: &str| {
        let desk = Desk::new(guests::meddling(), &chat("m", &format!("meddle {word}")));
        desk.put("answer.events", EVENTS);
        desk
    };
    let given = ["--events", "answer.events"];
    let refusal =
        json!({ "refusal": { "why": "is what this filter is for", "param": "messages" } });
    assert_eq!(desk("refuse").lines(&given), [refusal]);
    let stopped = desk("answer-stop").lines(&given);
    assert_eq!(stopped.last(), Some(&json!({ "stopped": true })));
    for (word, why) in [
        ("answer-nonsense", "not a valid response"),
        ("answer-trap", "trap"),
        ("attach", "an attachment that does not exist"),
    ] {
        let last = desk(word).end(&given);
        let error = last["error"].as_str().expect("an error");
        assert!(error.contains(why), "{word}: {error}");
    }
    let adapter = Desk::with_openai(false);
    adapter.put("answer.events", EVENTS);
    let output = adapter.try_with(&given);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--response"), "{output:?}");
}
