//! OpenAI's own Python SDK, with nothing set but `base_url` and `api_key`.

use std::path::Path;
use std::process::Command;

use tests::{Gateway, Reply, Upstream};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_openai_sdk_lists_models_chats_and_streams() {
    let upstream = Upstream::start().await;
    let model = |name, window, output, price| {
        format!(
            "[models.{name}]\ncontext_window = {window}\nmax_output_tokens = {output}\n\
             default_output_tokens = {output}\nupstreams = [{{ provider = \"demo\" }}]\n\
             price = {{ input = {price}, output = {price} }}\n"
        )
    };
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
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace");
    let python = root.join("target/sdk/bin/python");
    assert!(
        python.exists(),
        "{} is missing; run tests/run",
        python.display()
    );
    for model in ["demo", "scripted"] {
        let base_url = format!("http://{}/v1", gateway.address());
        let mut command = Command::new(&python);
        command
            .arg(root.join("tests/sdk/openai_chat.py"))
            .args([&*base_url, gateway.key(), model]);
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
}
