//! Loops of agents' SDKs: twenty turns with parallel calls before each provider, strict as the real one (`tests::strict`).

use serde_json::Value;
use tests::scenario::{RESPONSES, Scenario, apis};
use tests::{Gateway, Upstream, strict};

use crate::sdk::run;

/// Turns with calls before the last answer.
const TURNS: usize = 20;

/// Starts a provider that lets the model call two tools until it has seen enough results.
async fn looping(api: &str) -> Upstream {
    let upstream = Upstream::start().await;
    let answers = [Scenario::ParallelTools, Scenario::Text];
    let [calls, text] = answers.map(|scenario| scenario.reply(api, false).expect("an answer"));
    let api = api.to_owned();
    upstream.always_by(move |request| {
        strict::reply_to(&api, request).unwrap_or_else(|| {
            match results(&api, &request.json()) < 2 * TURNS {
                true => calls.clone(),
                false => text.clone(),
            }
        })
    });
    upstream
}

/// The number of results in a conversation.
fn results(api: &str, body: &Value) -> usize {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let count = |items: Vec<Value>, is_result: fn(&Value) -> bool| {
        items.iter().filter(|item| is_result(item)).count()
    };
    let content = |messages: &Value, parts: &str| -> Vec<Value> {
        let messages = list(messages).into_iter();
        messages.flat_map(|message| list(&message[parts])).collect()
    };
    match api {
        RESPONSES => count(list(&body["input"]), |item| {
            item["type"] == "function_call_output"
        }),
        "anthropic" => count(content(&body["messages"], "content"), |block| {
            block["type"] == "tool_result"
        }),
        "bedrock" => count(content(&body["messages"], "content"), |block| {
            !block["toolResult"].is_null()
        }),
        "gemini" => count(content(&body["contents"], "parts"), |part| {
            !part["functionResponse"].is_null()
        }),
        _ => count(list(&body["messages"]), |message| message["role"] == "tool"),
    }
}

/// Runs a script before each provider. The model `other` is at the provider that follows in the list.
async fn run_loops(script: &str, base: &str, more: &[&str]) {
    let apis = apis();
    for (index, api) in apis.iter().enumerate() {
        let next = &apis[(index + 1) % apis.len()];
        let (upstream, other) = (looping(api).await, looping(next).await);
        let mut builder = Gateway::builder();
        for (name, api, upstream) in [("scripted", api, &upstream), ("other", next, &other)] {
            let adapter = if api == RESPONSES { "openai" } else { api };
            builder = builder.provider(name, adapter, Some(upstream));
            if api == RESPONSES {
                let options = format!("[providers.{name}.options]\napi = \"responses\"\n");
                builder = builder.tables(&options);
            }
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
