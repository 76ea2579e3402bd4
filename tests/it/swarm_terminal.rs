//! `weir swarm run` from its user's view: in a terminal, cut off, and left.

use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::client::patiently;
use tests::{Gate, Reply, Upstream, weir_program};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;

use crate::cli::text;
use crate::swarms::{agent, gateway, swarm};

/// A model's attack on a terminal: it sets the title, clears the screen, and moves the cursor.
const HOSTILE: &str = "Rivers\u{1b}]0;mine\u{7} rise\u{1b}[2J\u{9b}9A\r\u{8}";

/// A folder with a swarm of these agents and a key.
fn folder(agents: &[Value], key: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in [
        ("swarm.json", swarm(agents).to_string()),
        ("key", key.to_owned()),
    ] {
        std::fs::write(folder.path().join(name), text).expect("it can be written");
    }
    folder
}

/// A program in a folder, with piped outputs.
fn command(program: &str, folder: &TempDir) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(folder.path())
        .env_remove("NO_COLOR")
        .env_remove("XDG_STATE_HOME")
        .env("HOME", folder.path())
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

fn weir_swarm_run(folder: &TempDir, url: &str) -> Command {
    let program = weir_program();
    let mut command = command(program.to_str().expect("UTF-8"), folder);
    command.args([
        "swarm",
        "run",
        "swarm.json",
        "--key-file",
        "key",
        "--url",
        url,
    ]);
    command
}

/// Returns a screen's text without cursor movements, clearing and styles, and the number of upward movements.
fn without_drawing(screen: &str) -> (String, usize) {
    let mut pieces = screen.split("\u{1b}[");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    let mut moved = 0;
    for piece in pieces {
        let after = piece.trim_start_matches(|digit: char| digit.is_ascii_digit());
        let mut rest = after.chars();
        match rest.next() {
            Some('A') => moved += 1,
            Some('J' | 'K' | 'm') if !piece.starts_with("2J") => {}
            _ => panic!("not weir's own: {piece:?}"),
        }
        text.push_str(rest.as_str());
    }
    (text, moved)
}

#[tokio::test]
async fn a_terminal_shows_a_swarm_as_it_runs_and_no_model_drives_it() {
    for without_colours in [false, true] {
        let upstream = Upstream::start().await;
        let (first, half) = (Gate::new(), Gate::new());
        let pieces = [HOSTILE, HOSTILE, " to the end."];
        upstream
            .will(Reply::chat("Seen.").after_gate(&first))
            .will(Reply::chat_stream(pieces).gate_before_piece(1, &half));
        let gateway = gateway(&upstream).await;
        let folder = folder(&[agent("scout"), agent("writer")], gateway.key());
        // `script` runs its command in a terminal, and passes on its output.
        let mut command = command("script", &folder);
        if without_colours {
            command.env("NO_COLOR", "1");
        }
        let run = format!(
            "{} swarm run swarm.json --key-file key --url http://{}",
            weir_program().display(),
            gateway.address()
        );
        let mut script = command
            .args(["-qec", &run, "/dev/null"])
            .spawn()
            .expect("script runs");
        let mut output = script.stdout.take().expect("a pipe");
        let mut screen = Vec::new();
        let mut until = async |what: &str| {
            patiently(async {
                while !text(&screen).contains(what) {
                    assert!(
                        output.read_buf(&mut screen).await.expect("a pipe") > 0,
                        "{screen:?}"
                    );
                }
            })
            .await;
        };
        until("> scout  scripted").await;
        first.open();
        // The model has not ended yet.
        until("    Rivers").await;
        half.open();
        patiently(output.read_to_end(&mut screen))
            .await
            .expect("a pipe");
        let ended = script.wait().await.expect("it ends");
        let screen = text(&screen);
        assert!(ended.success(), "{screen}");
        let (shown, moved) = without_drawing(&screen);
        assert!(moved >= 2, "it is drawn anew in its place: {screen:?}");
        let is_free =
            |character: char| character == '\r' || character == '\n' || !character.is_control();
        assert!(shown.chars().all(is_free), "{shown:?}");
        assert!(
            shown.contains("Rivers\\u{1b}]0;mine\\u{7} rise"),
            "{shown:?}"
        );
        assert!(
            shown.contains("+ scout  scripted  completed after 1 iterations"),
            "{shown}"
        );
        assert!(shown.contains("completed: 2 of 2 agents"), "{shown}");
        assert!(shown.trim_end().ends_with("to the end."), "{shown}");
        assert_eq!(screen.contains("\u{1b}[1m"), !without_colours, "{screen:?}");
    }
}

#[tokio::test]
async fn who_leaves_a_swarm_hears_how_to_see_and_cancel_it_and_it_goes_on() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(Reply::chat(HOSTILE).after_gate(&gate));
    let gateway = gateway(&upstream).await;
    let folder = folder(&[agent("scout")], gateway.key());
    let url = format!("http://{}", gateway.address());
    let mut running = weir_swarm_run(&folder, &url).spawn().expect("weir runs");
    let mut lines = BufReader::new(running.stderr.take().expect("a pipe")).lines();
    let begins = patiently(lines.next_line()).await.expect("a pipe");
    assert_eq!(begins.as_deref(), Some("scout: starts on scripted"));
    let process = running.id().expect("it runs").to_string();
    let sent = Command::new("kill").args(["-INT", &process]).status().await;
    assert!(sent.expect("kill runs").success());
    let told = patiently(lines.next_line()).await.expect("a pipe");
    let told = told.expect("a line");
    let ended = patiently(running.wait()).await.expect("it ends");
    assert!(!ended.success());
    let record = gateway.client().get("/swarms").await.json()["swarms"][0].clone();
    assert_eq!(record["status"], "running");
    let id = record["execution_id"].as_str().expect("an id");
    for command in ["show", "cancel"] {
        assert!(
            told.contains(&format!("`weir swarm {command} {id}`")),
            "{told}"
        );
    }
    gate.open();
    crate::swarms::ended(&gateway.client(), id).await;
    // A pipe gets the text unchanged; the lines beside it are for a terminal, too.
    let shown = weir_swarm_run(&folder, &url);
    let output = {
        upstream.will(Reply::chat(HOSTILE));
        let mut shown = shown;
        patiently(shown.output()).await.expect("weir runs")
    };
    assert_eq!(text(&output.stdout), format!("{HOSTILE}\n"));
    let lines = text(&output.stderr);
    assert!(lines.contains("Rivers\\u{1b}]0;mine"), "{lines}");
    assert!(
        !lines.contains(|character: char| character != '\n' && character.is_control()),
        "{lines:?}"
    );
}

#[tokio::test]
async fn a_run_goes_on_behind_the_event_at_which_its_stream_was_cut() {
    let stand_in = Upstream::start().await;
    let event = |number: i64, name: &str, data: Value| {
        format!("id: {number}\nevent: {name}\ndata: {data}\n\n")
    };
    let events = |text: String| {
        Reply::new(200)
            .header("content-type", "text/event-stream")
            .body(text)
    };
    let start = event(
        1,
        "agent_start",
        json!({ "agent": "scout", "model": "demo" }),
    );
    let half = "id: 2\nevent: agent_done\ndata: {";
    let call =
        json!({ "agent": "scout", "tool": "http_get", "url": "http://a/", "response_status": 200 });
    let done = json!({ "execution_id": "x", "status": "completed", "content": "Rain." });
    stand_in
        .will(Reply::json(202, &json!({ "execution_id": "x" })))
        .will(events(format!("{start}: keep-alive\n\n{half}")))
        .will(Reply::error(503, "away"))
        .will(events(
            event(2, "tool_call", call) + &event(3, "swarm_done", done),
        ));
    let folder = folder(&[agent("scout")], "inf_key");
    let run = weir_swarm_run(&folder, &stand_in.base_url()).output();
    let output = patiently(run).await.expect("weir runs");
    let lines = text(&output.stderr);
    assert!(output.status.success(), "{lines}");
    let lines: Vec<_> = lines.lines().collect();
    assert_eq!(
        lines[..2],
        ["scout: starts on demo", "scout: http_get http://a/: 200"]
    );
    assert_eq!(text(&output.stdout), "Rain.\n");
    let asked = stand_in.requests();
    let behind: Vec<_> = asked
        .iter()
        .map(|request| request.header("last-event-id"))
        .collect();
    assert_eq!(behind, [None, Some("0"), Some("1"), Some("1")]);
}
