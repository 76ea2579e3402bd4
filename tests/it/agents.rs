//! Loops of agents' SDKs: twenty turns with parallel calls before each provider, strict as the real one (`tests::strict`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tests::scenario::{Scenario, apis, provider};
use tests::upstream::Request;
use tests::{Gateway, Reply, Upstream, strict};

use crate::sdk::run;

/// Turns with calls before the last answer.
const TURNS: usize = 20;

/// Starts a provider that lets the model call two tools in each of these turns, and say something in the next one.
async fn looping(api: &str, turns: &Arc<AtomicUsize>) -> Upstream {
    let upstream = Upstream::start().await;
    let (api, turns) = (api.to_owned(), turns.clone());
    upstream.always_by(move |request| {
        strict::reply_to(&api, request).unwrap_or_else(|| {
            let turn = turns.fetch_add(1, Ordering::Relaxed);
            let answer = match turn < TURNS {
                true => Scenario::ParallelTools,
                false => Scenario::Text,
            };
            let answer = answer.reply(&api, is_stream(&api, request));
            of_turn(answer.expect("an answer"), turn)
        })
    });
    upstream
}

/// The reply with other ids of calls than in earlier turns. Events of Bedrock have checksums, and stay as they are.
fn of_turn(reply: Reply, turn: usize) -> Reply {
    let body = reply.whole_body();
    let Ok(text) = std::str::from_utf8(&body) else {
        return reply;
    };
    let renamed = ["t1", "t2"].iter().fold(text.to_owned(), |text, id| {
        text.replace(&format!("\"{id}\""), &format!("\"{id}_{turn}\""))
    });
    reply.body(renamed)
}

fn is_stream(api: &str, request: &Request) -> bool {
    match api {
        "gemini" => request.path.contains(":streamGenerateContent"),
        "bedrock" => request.path.ends_with("/converse-stream"),
        _ => request.json()["stream"] == true,
    }
}

/// Runs a script before each provider. The model `other` is at the provider that follows in the list.
async fn run_loops(script: &str, base: &str, more: &[&str]) {
    let apis = apis();
    for (index, api) in apis.iter().enumerate() {
        let next = &apis[(index + 1) % apis.len()];
        let turns = Arc::default();
        let (upstream, other) = (looping(api, &turns).await, looping(next, &turns).await);
        let mut builder = Gateway::builder();
        for (name, api, upstream) in [("scripted", api, &upstream), ("other", next, &other)] {
            builder = provider(builder, name, api, upstream);
        }
        let builder = builder
            .model("scripted", &["scripted"])
            .model("other", &["other"]);
        let gateway = builder.start().await;
        let base = format!("http://{}{base}", gateway.address());
        let arguments = [&[&*base, gateway.key(), "scripted"], more].concat();
        run(script, &arguments).await;
        assert_eq!(
            upstream.count() + other.count(),
            TURNS + 1,
            "{script} before {api}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anthropics_runner_ends_its_loop_before_each_provider() {
    run_loops("anthropic_loop.py", "", &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn googles_automatic_calls_end_before_each_provider() {
    run_loops("google_loop.py", "", &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_of_chats_goes_on_with_another_model() {
    run_loops("openai_loop.py", "/v1", &["other", "chat"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_of_responses_goes_on_with_another_model() {
    run_loops("openai_loop.py", "/v1", &["other", "responses"]).await;
}

/// The dialects of the frameworks' models.
const KINDS: [&str; 3] = ["chat", "responses", "messages"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more SDKs: tests/run --sdks"]
async fn pydantic_ai_ends_its_loop_before_each_provider() {
    for kind in KINDS.iter().chain(&["gemini"]) {
        run_loops("pydantic_ai/pydantic_ai_loop.py", "", &[kind]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more SDKs: tests/run --sdks"]
async fn openais_agents_sdk_ends_its_loop_before_each_provider() {
    for kind in &KINDS[..2] {
        run_loops("openai_agents/openai_agents_loop.py", "/v1", &[kind]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more SDKs: tests/run --sdks"]
async fn langgraph_ends_its_loop_before_each_provider() {
    for kind in &KINDS {
        run_loops("langchain/langchain_loop.py", "", &[kind]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more SDKs: tests/run --sdks"]
async fn vercels_streams_end_their_loop_before_each_provider() {
    for kind in &KINDS {
        run_loops("node/ai_loop.mjs", "", &[kind]).await;
    }
}
