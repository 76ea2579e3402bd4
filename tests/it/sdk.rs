//! The Python SDKs of OpenAI, Anthropic and Google with only `base_url` and `api_key` set. `tests/run --sdks` adds their SDKs for
//! JavaScript, Vercel's AI SDK, LangChain, LlamaIndex, Pydantic AI and LiteLLM. Stripe's clients send a processor the calls
//! that weir sends.
//!
//! [`CLIENTS`] is also the table of clients in `host/docs/dialects.md`.

use std::process::Command;

use serde_json::Value;
use tests::processor::{Processor, SECRET_KEY};
use tests::scenario::{RESPONSES, Scenario};
use tests::source::root;
use tests::{Gateway, Reply, Upstream};
use weir_payments::stripe::API_VERSION;

use crate::dialects::{assert_documented, column};
use crate::{anthropic_messages, gemini_generate, payments};

/// A client, in one of its dialects.
struct Sdk {
    /// The name of its package.
    package: &'static str,
    /// The file with the package's version, in `tests/sdk`.
    versions: &'static str,
    dialect: &'static str,
    script: &'static str,
    /// The last arguments of the script.
    arguments: fn(api: &str) -> &'static [&'static str],
    /// The path of the base URL.
    base: &'static str,
    apis: &'static [&'static str],
    course: fn(api: &str) -> Vec<Step>,
}

/// The feature that a request of a script shows, a part of the request to the provider, and the provider's reply.
type Step = (&'static str, &'static str, Reply);

const PYTHON: &str = "requirements.txt";
const NODE: &str = "node/package.json";

/// All upstream APIs.
const ALL_APIS: &[&str] = &["openai", RESPONSES, "anthropic", "gemini", "ollama"];

/// Without Ollama, whose API has no forced calls: these clients force one for a response with a schema.
const APIS_WITH_FORCED_CALLS: &[&str] = &["openai", RESPONSES, "anthropic", "gemini"];

/// A client whose script sends the requests of [`course`].
const fn client(
    (package, versions): (&'static str, &'static str),
    dialect: &'static str,
    script: &'static str,
    arguments: fn(&str) -> &'static [&'static str],
) -> Sdk {
    Sdk {
        package,
        versions,
        dialect,
        script,
        arguments,
        base: "",
        apis: ALL_APIS,
        course,
    }
}

const AI_OPENAI: (&str, &str) = ("@ai-sdk/openai", NODE);
const LITELLM_PACKAGE: (&str, &str) = ("litellm", "litellm.txt");
const PYDANTIC_PACKAGE: (&str, &str) = ("pydantic-ai-slim", "pydantic_ai.txt");

const CHAT: &str = "Chat Completions";
const MESSAGES: &str = "Messages";
const RESPONSES_DIALECT: &str = "Responses";
const GEMINI: &str = "Gemini";

const CLIENTS: &[Sdk] = &[
    Sdk {
        package: "openai",
        versions: PYTHON,
        dialect: CHAT,
        script: "openai_chat.py",
        arguments: |_| &[],
        base: "/v1",
        apis: &["openai"],
        course: |_| {
            vec![
                ("text", "", Reply::chat("You said: żółw")),
                ("stream", "", Reply::chat_stream(["You said: ", "żółw"])),
                ("labels", "", Reply::chat("You said: żółw")),
            ]
        },
    },
    Sdk {
        package: "openai",
        versions: PYTHON,
        dialect: RESPONSES_DIALECT,
        script: "openai_responses.py",
        arguments: |_| &[],
        base: "/v1",
        apis: &anthropic_messages::ADAPTERS,
        course: |adapter| {
            let said = |text| anthropic_messages::said(adapter, text);
            vec![
                ("text", "", said("You said: żółw")),
                ("stream", "", said_stream(adapter)),
                ("reasoning", "", anthropic_messages::rich(adapter)),
                ("tool results", "seen", said("You said: żółw")),
                (
                    "parallel calls",
                    "look",
                    anthropic_messages::rich_stream(adapter),
                ),
                ("`previous_response_id`", "", said("You said: żółw")),
                (
                    "JSON schema",
                    "\"age\"",
                    said(r#"{"name": "żółw", "age": 99}"#),
                ),
                ("errors", "", anthropic_messages::broken_stream(adapter)),
            ]
        },
    },
    Sdk {
        package: "anthropic",
        versions: PYTHON,
        dialect: MESSAGES,
        script: "anthropic_messages.py",
        arguments: |adapter| match adapter {
            "anthropic" => &["c2ln"],
            _ => &[""],
        },
        base: "",
        apis: &anthropic_messages::ADAPTERS,
        course: |adapter| {
            let said = || anthropic_messages::said(adapter, "You said: żółw");
            vec![
                ("text", "", said()),
                ("stream", "", said_stream(adapter)),
                ("reasoning", "", anthropic_messages::rich(adapter)),
                ("tool results", "seen", said()),
                (
                    "parallel calls",
                    "look",
                    anthropic_messages::rich_stream(adapter),
                ),
                ("beta headers", "", said()),
                // weir sends two requests.
                ("errors", "", Reply::error(529, "overloaded")),
                ("errors", "", Reply::error(529, "overloaded")),
                ("errors", "", anthropic_messages::broken_stream(adapter)),
            ]
        },
    },
    Sdk {
        package: "google-genai",
        versions: PYTHON,
        dialect: GEMINI,
        script: "gemini_generate.py",
        arguments: |_| &[],
        base: "",
        apis: &gemini_generate::ADAPTERS,
        course: |adapter| {
            let said = || gemini_generate::said(adapter, "You said: żółw");
            let streamed = gemini_generate::said_stream(adapter, ["You said: ", "żółw"]);
            vec![
                ("text", "", said()),
                ("stream", "", streamed),
                ("reasoning", "", gemini_generate::rich(adapter)),
                ("tool results", "seen", said()),
                (
                    "parallel calls",
                    "look",
                    gemini_generate::rich_stream(adapter),
                ),
                ("tool results", "seen", said()),
                ("image", "iVBORw", said()),
                ("errors", "", gemini_generate::broken_stream(adapter)),
            ]
        },
    },
    client(("openai", NODE), CHAT, "node/openai.mjs", |_| &["chat"]),
    client(
        ("openai", NODE),
        RESPONSES_DIALECT,
        "node/openai.mjs",
        |_| &["responses"],
    ),
    client(
        ("@anthropic-ai/sdk", NODE),
        MESSAGES,
        "node/anthropic.mjs",
        |_| &[],
    ),
    client(("@google/genai", NODE), GEMINI, "node/google.mjs", |_| &[]),
    client(AI_OPENAI, CHAT, "node/ai.mjs", |_| &["chat"]),
    client(AI_OPENAI, RESPONSES_DIALECT, "node/ai.mjs", |_| {
        &["responses"]
    }),
    Sdk {
        apis: APIS_WITH_FORCED_CALLS,
        ..client(("@ai-sdk/anthropic", NODE), MESSAGES, "node/ai.mjs", |_| {
            &["messages"]
        })
    },
    client(
        ("langchain-openai", "langchain.txt"),
        CHAT,
        "langchain/langchain_chat.py",
        |_| &["openai"],
    ),
    client(
        ("langchain-anthropic", "langchain.txt"),
        MESSAGES,
        "langchain/langchain_chat.py",
        |_| &["anthropic"],
    ),
    client(
        ("llama-index-llms-openai-like", "llama_index.txt"),
        CHAT,
        "llama_index/llama_index_chat.py",
        |_| &["chat"],
    ),
    client(
        ("llama-index-llms-openai", "llama_index.txt"),
        RESPONSES_DIALECT,
        "llama_index/llama_index_chat.py",
        |_| &["responses"],
    ),
    client(
        ("llama-index-llms-anthropic", "llama_index.txt"),
        MESSAGES,
        "llama_index/llama_index_chat.py",
        |_| &["messages"],
    ),
    client(
        ("llama-index-llms-google-genai", "llama_index.txt"),
        GEMINI,
        "llama_index/llama_index_chat.py",
        |_| &["gemini"],
    ),
    client(
        PYDANTIC_PACKAGE,
        CHAT,
        "pydantic_ai/pydantic_ai_agent.py",
        |_| &["chat"],
    ),
    client(
        PYDANTIC_PACKAGE,
        RESPONSES_DIALECT,
        "pydantic_ai/pydantic_ai_agent.py",
        |_| &["responses"],
    ),
    client(
        PYDANTIC_PACKAGE,
        MESSAGES,
        "pydantic_ai/pydantic_ai_agent.py",
        |_| &["messages"],
    ),
    client(LITELLM_PACKAGE, CHAT, "litellm/litellm_client.py", |_| {
        &["openai"]
    }),
    client(
        LITELLM_PACKAGE,
        RESPONSES_DIALECT,
        "litellm/litellm_client.py",
        |_| &["openai/responses"],
    ),
    Sdk {
        apis: APIS_WITH_FORCED_CALLS,
        ..client(
            LITELLM_PACKAGE,
            MESSAGES,
            "litellm/litellm_client.py",
            |_| &["anthropic"],
        )
    },
    client(LITELLM_PACKAGE, GEMINI, "litellm/litellm_client.py", |_| {
        &["gemini"]
    }),
];

fn said_stream(adapter: &str) -> Reply {
    anthropic_messages::said_stream(adapter, ["You said: ", "żółw"])
}

/// The steps of most scripts: text, a stream, a tool call with its result, parallel calls in a stream with their results,
/// a picture, a structured output, and an overloaded provider.
fn course(api: &str) -> Vec<Step> {
    let whole = |scenario: Scenario| scenario.reply(api, false).expect("an answer");
    let streamed = |scenario: Scenario| scenario.reply(api, true).expect("an answer");
    vec![
        ("text", "", whole(Scenario::Text)),
        ("stream", "", streamed(Scenario::Text)),
        ("tool call", "look", whole(Scenario::Tool)),
        ("tool results", "seen", whole(Scenario::Text)),
        ("parallel calls", "look", streamed(Scenario::ParallelTools)),
        ("image", "iVBORw", whole(Scenario::Text)),
        ("JSON schema", "\"answer\"", whole(Scenario::Structured)),
        // weir sends two requests.
        ("errors", "", Reply::error(529, "overloaded")),
        ("errors", "", Reply::error(529, "overloaded")),
    ]
}

/// Runs a script, with each client that uses it, before each provider, and checks the requests that the provider gets.
async fn run_clients(script: &str) {
    for client in CLIENTS.iter().filter(|client| client.script == script) {
        for api in client.apis {
            let case = format!("{} in {} before {api}", client.package, client.dialect);
            let upstream = Upstream::start().await;
            let steps = (client.course)(api);
            for (_, _, reply) in &steps {
                upstream.will(reply.clone());
            }
            let gateway = limited(api, &upstream).await;
            let base = format!("http://{}{}", gateway.address(), client.base);
            let arguments = [&*base, gateway.key(), "scripted"];
            let more = (client.arguments)(api);
            run(script, &[&arguments, more].concat()).await;
            let sent: Vec<_> = upstream
                .requests()
                .iter()
                .map(|request| request.json().to_string())
                .collect();
            assert_eq!(sent.len(), steps.len(), "{case}");
            for ((feature, part, _), sent) in steps.iter().zip(sent) {
                assert!(sent.contains(part), "{case}, {feature}: {part} in {sent}");
            }
        }
    }
}

#[test]
fn the_reference_lists_the_clients() {
    let mut table =
        "| Client | Version | Dialect | Upstreams | Features |\n|---|---|---|---|---|\n".to_owned();
    for client in CLIENTS {
        let mut features = Vec::new();
        for (feature, _, _) in (client.course)(client.apis[0]) {
            if !features.contains(&feature) {
                features.push(feature);
            }
        }
        let apis: Vec<_> = client.apis.iter().map(|api| column(api)).collect();
        table += &format!(
            "| `{}` ({}) | {} | {} | {} | {} |\n",
            client.package,
            if client.versions == NODE {
                "npm"
            } else {
                "PyPI"
            },
            version(client),
            client.dialect,
            apis.join(", "),
            features.join(", "),
        );
    }
    assert_documented(&table);
}

/// The version of a client's package that the tests install.
fn version(client: &Sdk) -> String {
    let file = root().join("tests/sdk").join(client.versions);
    let text = std::fs::read_to_string(file).expect("a file of versions");
    let version = if client.versions == NODE {
        let packages: Value = serde_json::from_str(&text).expect("JSON");
        packages["dependencies"][client.package]
            .as_str()
            .map(str::to_owned)
    } else {
        let mut lines = text.lines().filter_map(|line| line.split_once("=="));
        let found = lines.find(|(name, _)| name.split('[').next() == Some(client.package));
        found.map(|(_, version)| version.to_owned())
    };
    version.unwrap_or_else(|| panic!("{} has no version", client.package))
}

/// A script without a test would be in the table without a run.
#[test]
fn every_client_has_a_test() {
    for client in CLIENTS {
        let call = format!("run_clients({:?}).await", client.script);
        assert!(include_str!("sdk.rs").contains(&call), "{call}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_openai_sdk_lists_models_chats_and_streams() {
    run_clients("openai_chat.py").await;
    let gateway = Gateway::builder()
        .tables(&model("small", 100, 50, 1))
        .tables(&model("costly", 10_000_000, 5_000_000, 1_000))
        .start()
        .await;
    let base_url = format!("http://{}/v1", gateway.address());
    run("openai_chat.py", &[&base_url, gateway.key(), "demo"]).await;
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
    run_clients("openai_responses.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_anthropic_sdk_chats_streams_calls_tools_counts_and_knows_its_errors() {
    run_clients("anthropic_messages.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_google_sdk_chats_streams_calls_tools_counts_and_knows_its_errors() {
    run_clients("gemini_generate.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_openai_sdk_makes_vectors() {
    let gateway = Gateway::start().await;
    let base_url = format!("http://{}/v1", gateway.address());
    let arguments = [&*base_url, gateway.key(), "demo-embedding"];
    run("openai_embeddings.py", &arguments).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_openai_sdk_speaks_hears_and_judges() {
    let gateway = Gateway::start().await;
    let base_url = format!("http://{}/v1", gateway.address());
    run("openai_audio.py", &[&*base_url, gateway.key()]).await;
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
async fn limited(api: &str, upstream: &Upstream) -> Gateway {
    let (adapter, option) = match api {
        RESPONSES => (
            "openai",
            "[providers.scripted.options]\napi = \"responses\"\n",
        ),
        adapter => (adapter, ""),
    };
    Gateway::builder()
        .provider("scripted", adapter, Some(upstream))
        .tables(option)
        .model("scripted", &["scripted"])
        // A field of this model: LlamaIndex asks Anthropic's API only for names that it knows.
        .tables("aliases = [\"claude-3-7-sonnet-latest\"]\n")
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more SDKs: tests/run --sdks"]
async fn the_openai_sdk_for_javascript_is_served() {
    run_clients("node/openai.mjs").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more SDKs: tests/run --sdks"]
async fn the_anthropic_sdk_for_javascript_is_served() {
    run_clients("node/anthropic.mjs").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more SDKs: tests/run --sdks"]
async fn vercels_ai_sdk_is_served_by_each_of_its_providers() {
    run_clients("node/ai.mjs").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more SDKs: tests/run --sdks"]
async fn langchain_is_served_by_each_of_its_providers() {
    run_clients("langchain/langchain_chat.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more SDKs: tests/run --sdks"]
async fn the_google_sdk_for_javascript_is_served() {
    run_clients("node/google.mjs").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more SDKs: tests/run --sdks"]
async fn llama_index_is_served() {
    run_clients("llama_index/llama_index_chat.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more SDKs: tests/run --sdks"]
async fn pydantic_ai_is_served() {
    run_clients("pydantic_ai/pydantic_ai_agent.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more SDKs: tests/run --sdks"]
async fn litellm_is_served_by_each_of_its_providers() {
    run_clients("litellm/litellm_client.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more SDKs: tests/run --sdks"]
async fn clients_that_are_generated_from_the_document_are_served() {
    let gateway = Gateway::start().await;
    let origin = format!("http://{}", gateway.address());
    let now = gateway.app().clock.now();
    let tokens = gateway.issuer().web_tokens("generated", now);
    let tokens = tokens.expect("tokens can be minted");
    let (identity, attestation) = (tokens.identity.expose(), tokens.attestation.expose());
    let arguments = [&*origin, gateway.key(), identity, attestation];
    run("clients/generated_clients.py", &arguments).await;
}

/// Runs a script of `tests/sdk`, which fails if a response is wrong.
pub(crate) async fn run(script: &str, arguments: &[&str]) {
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
    let (interpreter, script) = (root().join(interpreter), root().join(folder).join(name));
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
