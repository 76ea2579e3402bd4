//! OpenAI's and Anthropic's own Python SDKs, with nothing set but `base_url` and `api_key`.

use std::path::Path;
use std::process::Command;

use tests::{Gateway, Reply, Upstream};

use crate::anthropic_messages;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_openai_sdk_lists_models_chats_and_streams() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables(&model("small", 100, 50, 1))
        .tables(&model("costly", 10_000_000, 5_000_000, 1_000))
        .start()
        .await;
    upstream
        .will(Reply::chat("You said: żółw"))
        .will_stream(["You said: ", "żółw"])
        .will(Reply::chat("You said: żółw"));
    for model in ["demo", "scripted"] {
        let base_url = format!("http://{}/v1", gateway.address());
        run("openai_chat.py", &[&base_url, gateway.key(), model]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_openai_sdk_asks_for_responses_of_each_kind() {
    for adapter in anthropic_messages::ADAPTERS {
        let upstream = Upstream::start().await;
        let gateway = Gateway::builder()
            .provider("scripted", adapter, Some(&upstream))
            .model("scripted", &["scripted"])
            .tables(&model("small", 100, 50, 1))
            .tables(&model("costly", 10_000_000, 5_000_000, 1_000))
            .credits(0)
            .start()
            .await;
        let said = |text| anthropic_messages::said(adapter, text);
        upstream
            .will(said("You said: żółw"))
            .will(anthropic_messages::said_stream(
                adapter,
                ["You said: ", "żółw"],
            ))
            .will(anthropic_messages::rich(adapter))
            .will(said("You said: żółw"))
            .will(anthropic_messages::rich_stream(adapter))
            .will(said("You said: żółw"))
            .will(said(r#"{"name": "żółw", "age": 99}"#))
            .will(anthropic_messages::broken_stream(adapter));
        let base_url = format!("http://{}/v1", gateway.address());
        let arguments = [&*base_url, gateway.key(), "scripted"];
        run("openai_responses.py", &arguments).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_anthropic_sdk_chats_streams_calls_tools_counts_and_knows_its_errors() {
    for adapter in anthropic_messages::ADAPTERS {
        let upstream = Upstream::start().await;
        let gateway = Gateway::builder()
            .provider("scripted", adapter, Some(&upstream))
            .model("scripted", &["scripted"])
            .tables(&model("small", 100, 50, 1))
            .tables(&model("costly", 10_000_000, 5_000_000, 1_000))
            .credits(0)
            .start()
            .await;
        upstream
            .will(anthropic_messages::said(adapter, "You said: żółw"))
            .will(anthropic_messages::said_stream(
                adapter,
                ["You said: ", "żółw"],
            ))
            .will(anthropic_messages::rich(adapter))
            .will(anthropic_messages::said(adapter, "You said: żółw"))
            .will(anthropic_messages::rich_stream(adapter))
            .will(anthropic_messages::said(adapter, "You said: żółw"));
        // As often as weir asks.
        for _ in 0..2 {
            upstream.will(Reply::error(529, "overloaded"));
        }
        upstream.will(anthropic_messages::broken_stream(adapter));
        let base_url = format!("http://{}", gateway.address());
        let signature = if adapter == "anthropic" { "c2ln" } else { "" };
        let arguments = [&*base_url, gateway.key(), "scripted", signature];
        run("anthropic_messages.py", &arguments).await;
    }
}

/// A model that `demo` serves.
fn model(name: &str, window: u32, output: u32, price: u32) -> String {
    format!(
        "[models.{name}]\ncontext_window = {window}\nmax_output_tokens = {output}\n\
         default_output_tokens = {output}\nupstreams = [{{ provider = \"demo\" }}]\n\
         price = {{ input = {price}, output = {price} }}\n"
    )
}

/// Runs a script of `tests/sdk`, which complains if anything is not as it expects.
async fn run(script: &str, arguments: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace");
    let python = root.join("target/sdk/bin/python");
    assert!(
        python.exists(),
        "{} is missing; run tests/run",
        python.display()
    );
    let mut command = Command::new(&python);
    command
        .arg(root.join("tests/sdk").join(script))
        .args(arguments);
    let output = tokio::task::spawn_blocking(move || command.output())
        .await
        .expect("no panic")
        .expect("python runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("all as expected"),
        "{said}{complaint}"
    );
}
