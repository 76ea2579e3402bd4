//! The Python SDKs of OpenAI, Anthropic and Google with only `base_url` and `api_key` set. `tests/run --sdks` adds their SDKs for
//! JavaScript, Vercel's AI SDK, LangChain, LlamaIndex, Pydantic AI and LiteLLM. Stripe's clients send a processor the calls
//! that weir sends.

use std::path::Path;
use std::process::Command;

use tests::processor::{Processor, SECRET_KEY};
use tests::scenario::Scenario;
use tests::{Gateway, Reply, Upstream};
use weir_payments::stripe::API_VERSION;

use crate::{anthropic_messages, gemini_generate, payments};

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
async fn the_openai_sdk_completes_prompts_plain_and_streamed() {
    let gateway = Gateway::start().await;
    let base_url = format!("http://{}/v1", gateway.address());
    let arguments = [&*base_url, gateway.key(), "demo"];
    run("openai_completions.py", &arguments).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_openai_sdk_asks_for_responses_of_each_kind() {
    for adapter in anthropic_messages::ADAPTERS {
        let upstream = Upstream::start().await;
        let gateway = limited(adapter, &upstream).await;
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
        let gateway = limited(adapter, &upstream).await;
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
        // weir sends two requests.
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_google_sdk_chats_streams_calls_tools_counts_and_knows_its_errors() {
    for adapter in gemini_generate::ADAPTERS {
        let upstream = Upstream::start().await;
        let gateway = Gateway::with_adapter(adapter, &upstream).await;
        let said = || gemini_generate::said(adapter, "You said: żółw");
        upstream
            .will(said())
            .will(gemini_generate::said_stream(
                adapter,
                ["You said: ", "żółw"],
            ))
            .will(gemini_generate::rich(adapter))
            .will(said())
            .will(gemini_generate::rich_stream(adapter))
            .will(said())
            .will(said())
            .will(gemini_generate::broken_stream(adapter));
        let base_url = format!("http://{}", gateway.address());
        let arguments = [&*base_url, gateway.key(), "scripted"];
        run("gemini_generate.py", &arguments).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_openai_sdk_makes_vectors() {
    let gateway = Gateway::start().await;
    let base_url = format!("http://{}/v1", gateway.address());
    let arguments = [&*base_url, gateway.key(), "demo-embedding"];
    run("openai_embeddings.py", &arguments).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more SDKs: tests/run --sdks"]
async fn the_cohere_sdk_orders_documents() {
    let gateway = Gateway::start().await;
    let origin = format!("http://{}", gateway.address());
    run(
        "cohere/cohere_rerank.py",
        &[&*origin, gateway.key(), "demo-rerank"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_openai_sdk_makes_and_edits_images() {
    let gateway = Gateway::start().await;
    let base_url = format!("http://{}/v1", gateway.address());
    let arguments = [&*base_url, gateway.key(), "demo-image"];
    run("openai_images.py", &arguments).await;
}

/// Compares the calls of a script with Stripe's client to the calls of weir.
async fn compare_with_stripes(script: &str) {
    let [ours, theirs] = [Processor::start().await, Processor::start().await];
    for processor in [&ours, &theirs] {
        processor.set_methods(Some("pm_1"), None);
    }
    payments::ask_for_all(&ours).await;
    let expected = ours.calls();
    let portal = expected
        .iter()
        .find(|call| call.path.contains("portal"))
        .and_then(|call| call.key.as_deref());
    let base_url = theirs.base_url();
    let portal_key = portal.expect("a key");
    run(script, &[&*base_url, SECRET_KEY, API_VERSION, portal_key]).await;
    assert_eq!(theirs.calls(), expected);
    assert_eq!(theirs.versions(), ours.versions());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stripe_client_asks_for_the_same_in_the_same_words() {
    compare_with_stripes("stripe_calls.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more SDKs: tests/run --sdks"]
async fn the_stripe_client_for_javascript_asks_for_the_same_in_the_same_words() {
    compare_with_stripes("node/stripe.mjs").await;
}

/// A gateway with a user with few credits, a small model and an expensive model.
async fn limited(adapter: &str, upstream: &Upstream) -> Gateway {
    Gateway::builder()
        .provider("scripted", adapter, Some(upstream))
        .model("scripted", &["scripted"])
        .tables(&model("small", 100, 50, 1))
        .tables(&model("costly", 10_000_000, 5_000_000, 1_000))
        .credits(0)
        .start()
        .await
}

/// A model of the provider `demo`.
fn model(name: &str, window: u32, output: u32, price: u32) -> String {
    format!(
        "[models.{name}]\ncontext_window = {window}\nmax_output_tokens = {output}\n\
         default_output_tokens = {output}\nupstreams = [{{ provider = \"demo\" }}]\n\
         price = {{ input = {price}, output = {price} }}\n"
    )
}

/// The replies for the requests of each script, in this order: text, a stream, a tool call with its result, parallel calls
/// in a stream with their results, a picture, a structured output, and an overloaded provider.
fn course(adapter: &str) -> Vec<Reply> {
    let whole = |scenario: Scenario| scenario.reply(adapter, false).expect("an answer");
    let streamed = |scenario: Scenario| scenario.reply(adapter, true).expect("an answer");
    let mut replies = vec![
        whole(Scenario::Text),
        streamed(Scenario::Text),
        whole(Scenario::Tool),
        whole(Scenario::Text),
        streamed(Scenario::ParallelTools),
        whole(Scenario::Text),
        whole(Scenario::Structured),
    ];
    // weir sends two requests.
    replies.resize(replies.len() + 2, Reply::error(529, "overloaded"));
    replies
}

/// Runs a script against a gateway with each provider, and checks the requests that the provider gets.
async fn run_course(script: &str, more: &[&str]) {
    for adapter in anthropic_messages::ADAPTERS {
        let upstream = Upstream::start().await;
        for reply in course(adapter) {
            upstream.will(reply);
        }
        let gateway = Gateway::with_adapter(adapter, &upstream).await;
        let origin = format!("http://{}", gateway.address());
        let arguments = [&[&*origin, gateway.key(), "scripted"][..], more].concat();
        run(script, &arguments).await;
        let sent: Vec<_> = upstream
            .requests()
            .iter()
            .map(|request| request.json().to_string())
            .collect();
        assert_eq!(sent.len(), 9, "{script} before {adapter}");
        for (index, part) in [(3, "seen"), (5, "iVBORw0KGgo="), (6, "\"answer\"")] {
            assert!(sent[index].contains(part), "{part} in {}", sent[index]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more SDKs: tests/run --sdks"]
async fn the_openai_sdk_for_javascript_is_served() {
    for api in ["chat", "responses"] {
        run_course("node/openai.mjs", &[api]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more SDKs: tests/run --sdks"]
async fn the_anthropic_sdk_for_javascript_is_served() {
    run_course("node/anthropic.mjs", &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more SDKs: tests/run --sdks"]
async fn vercels_ai_sdk_is_served_by_each_of_its_providers() {
    for api in ["chat", "responses", "messages"] {
        run_course("node/ai.mjs", &[api]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more SDKs: tests/run --sdks"]
async fn langchain_is_served_by_each_of_its_providers() {
    for kind in ["openai", "anthropic"] {
        run_course("langchain/langchain_chat.py", &[kind]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more SDKs: tests/run --sdks"]
async fn the_google_sdk_for_javascript_is_served() {
    run_course("node/google.mjs", &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more SDKs: tests/run --sdks"]
async fn llama_index_is_served() {
    for kind in ["chat", "gemini"] {
        run_course("llama_index/llama_index_chat.py", &[kind]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more SDKs: tests/run --sdks"]
async fn pydantic_ai_is_served() {
    for kind in ["chat", "responses", "messages"] {
        run_course("pydantic_ai/pydantic_ai_agent.py", &[kind]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more SDKs: tests/run --sdks"]
async fn litellm_is_served_by_each_of_its_providers() {
    for kind in ["openai", "openai/responses", "anthropic", "gemini"] {
        run_course("litellm/litellm_client.py", &[kind]).await;
    }
}

/// Runs a script of `tests/sdk`, which fails if a response is wrong.
pub(crate) async fn run(script: &str, arguments: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace");
    let python = |packages: &str| format!("target/{packages}/bin/python");
    let (interpreter, folder, name) = match script.split_once('/') {
        // Each script needs the packages of its folder.
        Some(("node", name)) => (
            "target/oidc/node_modules/.bin/node".to_owned(),
            "target/sdk-node",
            name,
        ),
        Some((packages, name)) => (python(&format!("sdk-{packages}")), "tests/sdk", name),
        None => (python("sdk"), "tests/sdk", script),
    };
    let (interpreter, script) = (root.join(interpreter), root.join(folder).join(name));
    for file in [&interpreter, &script] {
        assert!(
            file.exists(),
            "{} is missing; run tests/run, or tests/run --sdks",
            file.display()
        );
    }
    let mut command = Command::new(&interpreter);
    command.arg(script).args(arguments);
    let output = tokio::task::spawn_blocking(move || command.output())
        .await
        .expect("no panic")
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("all as expected"),
        "{said}{complaint}"
    );
}
