//! The examples in the console and in the guides, as a reader pastes them: each runs against a gateway.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tests::source::{files, root};
use tests::{Gateway, Upstream};

use crate::anthropic_messages::said;
use crate::console::Browser;

/// The address of the guides' gateway.
const ADDRESS: &str = "127.0.0.1:8080";

/// Runs a script in a folder, and returns its output.
async fn run(interpreter: &str, folder: &Path, script: &str, variables: &[(&str, &str)]) -> String {
    let file = folder.join("snippet");
    std::fs::write(&file, script).expect("the folder can be written");
    let mut command = Command::new(interpreter);
    command.arg(&file).current_dir(folder);
    command.envs(variables.iter().copied());
    let output = tokio::task::spawn_blocking(move || command.output());
    let output = output.await.expect("no panic").expect("it runs");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n{printed}{complaint}");
    printed
}

fn tool(path: &str) -> String {
    let tool = root().join(path);
    assert!(tool.exists(), "{path} is missing; run tests/run");
    tool.display().to_string()
}

fn python() -> String {
    tool("target/sdk/bin/python")
}

/// The examples of the console's page for a new key, by id.
async fn snippets(gateway: &Gateway) -> Vec<(String, String)> {
    let mut alice = Browser::of(gateway, "alice").await;
    let made = [("name", "laptop"), ("models", "demo")];
    alice.post("/console/keys", &made).await;
    let html = alice.page("/console/keys/made").await;
    let mut found = Vec::new();
    for rest in html.split("<code id=\"snippet-").skip(1) {
        let (id, rest) = rest.split_once("\">").expect("an id");
        let (text, _) = rest.split_once("</code>").expect("an end");
        let mut text = text.to_owned();
        for (escaped, plain) in [
            ("&#34;", "\""),
            ("&#39;", "'"),
            ("&#60;", "<"),
            ("&#62;", ">"),
            ("&#38;", "&"),
        ] {
            text = text.replace(escaped, plain);
        }
        assert!(!text.contains("&#"), "{text}");
        found.push((id.to_owned(), text));
    }
    found
}

/// The text between two others.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let (_, rest) = text
        .split_once(before)
        .unwrap_or_else(|| panic!("{before} in {text}"));
    rest.split_once(after).expect("an end").0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_example_of_the_console_works_as_it_is_shown() {
    let gateway = Gateway::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let mut ids = BTreeSet::new();
    for (id, text) in snippets(&gateway).await {
        match id.as_str() {
            "curl" => {
                let answer = run("bash", folder, &text, &[]).await;
                let answer: Value = serde_json::from_str(&answer).expect("JSON");
                let said = &answer["choices"][0]["message"]["content"];
                assert_eq!(said, "You said: Hello!", "{answer}");
            }
            "openai" | "anthropic" => {
                let printed = run(&python(), folder, &text, &[]).await;
                assert_eq!(printed.trim(), "You said: Hello!", "{id}");
            }
            "claude-code" => {
                // The program sends its requests with these variables.
                let claude = "claude() { curl -sS \"$ANTHROPIC_BASE_URL/v1/messages?beta=true\" \
                    -H \"Authorization: Bearer $ANTHROPIC_AUTH_TOKEN\" -H 'anthropic-version: 2023-06-01' \
                    -H 'content-type: application/json' -d \"{\\\"model\\\":\\\"$ANTHROPIC_MODEL\\\",\
                    \\\"max_tokens\\\":100,\\\"messages\\\":[{\\\"role\\\":\\\"user\\\",\\\"content\\\":\\\"Hello!\\\"}]}\"; }";
                let answer = run("bash", folder, &format!("{claude}\n{text}"), &[]).await;
                let answer: Value = serde_json::from_str(&answer).expect("JSON");
                assert_eq!(answer["content"][0]["text"], "You said: Hello!", "{answer}");
            }
            "codex" => {
                let config: toml::Table = toml::from_str(&text).expect("TOML");
                let provider = config["model_provider"].as_str().expect("a name");
                let provider = &config["model_providers"][provider];
                assert_eq!(provider["wire_api"].as_str(), Some("responses"));
                let variable = provider["env_key"].as_str().expect("a variable");
                let key = between(&text, &format!("export {variable}="), "\n");
                let base = provider["base_url"].as_str().expect("a URL");
                let path = base.strip_prefix(&format!("http://{}", gateway.address()));
                let path = format!("{}/responses", path.expect("the gateway's address"));
                // A request of Codex; its source is in `openai_responses.rs`.
                let codex = include_str!("openai_responses/codex.json");
                let mut body: Value = serde_json::from_str(codex).expect("JSON");
                body["model"] = config["model"].as_str().into();
                let client = gateway.stranger().with_key(key);
                let events = client.stream(&path, &body).await.rest().await;
                let end = events.last().expect("an event");
                assert!(end.contains("response.completed"), "{end}");
            }
            "vercel" => {
                // `tests/run --sdks` runs it. Its syntax is right, and its values lead to the gateway.
                let file = folder.join("vercel.mjs");
                std::fs::write(&file, &text).expect("the folder can be written");
                let check = format!(
                    "{} --check {}",
                    tool("target/oidc/node_modules/.bin/node"),
                    file.display()
                );
                run("bash", folder, &check, &[]).await;
                let base = between(&text, "baseURL: \"", "\"");
                let path = base.strip_prefix(&format!("http://{}", gateway.address()));
                let client = gateway
                    .stranger()
                    .with_key(between(&text, "apiKey: \"", "\""));
                let question = tests::chat(between(&text, "model: weir(\"", "\""), "Hello!");
                let path = format!("{}/chat/completions", path.expect("the gateway's address"));
                assert_eq!(
                    client.post(&path, &question).await.content(),
                    "You said: Hello!"
                );
            }
            other => panic!("add a case for the example {other}"),
        }
        ids.insert(id);
    }
    assert_eq!(ids.len(), 6, "{ids:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more SDKs: tests/run --sdks"]
async fn the_consoles_example_for_vercels_sdk_works_as_it_is_shown() {
    let gateway = Gateway::start().await;
    let snippets = snippets(&gateway).await;
    let (_, text) = snippets
        .iter()
        .find(|(id, _)| id == "vercel")
        .expect("it is there");
    // Node.js finds packages beside the script.
    let file = root().join("target/sdk-node/snippet.mjs");
    std::fs::write(&file, text).expect("run tests/run --sdks");
    let folder = tempfile::tempdir().expect("a folder");
    let command = format!(
        "{} {}",
        tool("target/oidc/node_modules/.bin/node"),
        file.display()
    );
    let printed = run("bash", folder.path(), &command, &[]).await;
    assert_eq!(printed.trim(), "You said: Hello!");
}

/// A block of code in a guide: its language, and its text.
fn blocks(guide: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in guide.lines() {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(language), None) => open = Some((language.to_owned(), String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some((_, text))) => *text += &format!("{}\n", line.trim_end()),
            (None, None) => {}
        }
    }
    blocks
}

/// The commands of a shell script that send a request, each with the lines that continue it.
fn requests(script: &str) -> Vec<String> {
    let script = script.replace("\\\n", " ");
    let lines = script.lines().filter(|line| line.contains("curl "));
    lines.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_request_of_the_guides_works_as_it_is_shown() {
    let upstream = Upstream::start().await;
    upstream.always(said("anthropic", "Hi!"));
    let gateway = Gateway::builder()
        .swarms()
        .provider("scripted", "anthropic", Some(&upstream))
        .model("\"claude-haiku-4-5\"", &["scripted"])
        .model("\"gpt-5.4-mini\"", &["scripted"])
        .start()
        .await;
    gateway.set_plan("pro").await;
    let address = gateway.address().to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    // `weir token web` prints the headers of a web user.
    let tokens = gateway.issuer().web_tokens("me", gateway.app().clock.now());
    let tokens = tokens.expect("tokens can be minted");
    let cargo = format!(
        "cargo() {{ echo \"-H 'Authorization: Bearer {}' -H 'X-Identity-AppCheck: {}'\"; }}\n",
        tokens.identity.expose(),
        tokens.attestation.expose(),
    );
    let variables = [("KEY", gateway.key())];
    let here = |text: &str| {
        text.replace(ADDRESS, &address)
            .replace("127.0.0.1:8081", &address)
    };
    let (mut sent, mut elsewhere) = (0, Vec::new());
    for file in files(&root().join("host"), "md")
        .into_iter()
        .chain([root().join("README.md")])
    {
        let guide = std::fs::read_to_string(&file).expect("a guide");
        for (language, text) in blocks(&guide) {
            match language.as_str() {
                "python" => {
                    let printed = run(&python(), folder, &here(&text), &variables).await;
                    assert_eq!(printed, "You said: Hello, weir!\n".repeat(2));
                }
                "json" if text.contains("swarm_id") => {
                    std::fs::write(folder.join("swarm.json"), &text)
                        .expect("the folder can be written");
                }
                "json" if text.contains("/mcp") => {
                    let configured: Value = serde_json::from_str(&text).expect("JSON");
                    assert_eq!(configured["url"], "https://YOUR_HOST/mcp");
                    let header = configured["headers"]["Authorization"]
                        .as_str()
                        .expect("a text");
                    let client = gateway.stranger();
                    let client =
                        client.with_header("authorization", &header.replace("KEY", gateway.key()));
                    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
                    let listed = client.post("/mcp", &call).await;
                    assert!(
                        listed.json()["result"]["tools"].is_array(),
                        "{}",
                        listed.text()
                    );
                }
                "sh" => {
                    for request in requests(&text) {
                        if !request.contains("http://127.0.0.1:80") {
                            elsewhere.push(request);
                            continue;
                        }
                        let request = here(&request).replace("curl ", "curl -fsS ");
                        let script = format!("set -e\n{cargo}{request}\n");
                        let answer = run("bash", folder, &script, &variables).await;
                        assert!(!answer.contains("\"error\":{"), "{request}\n{answer}");
                        if request.contains("/swarms") {
                            assert!(answer.contains("swarm_done"), "{answer}");
                        }
                        sent += 1;
                    }
                }
                _ => {}
            }
        }
    }
    assert!(sent >= 6, "{sent}");
    // The only other request registers a webhook with the payment processor.
    assert!(
        matches!(&elsewhere[..], [stripe] if stripe.contains("https://api.stripe.com/")),
        "{elsewhere:?}"
    );
}
