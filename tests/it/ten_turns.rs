//! Conversations of coding agents: ten turns with tools, in the shapes of Codex and Claude Code, with each adapter.
//!
//! A turn sends everything again, as the agents do. The provider must get every call and every result of it, once.

use serde_json::{Value, json};
use tests::scenario::{Scenario, apis, edited, gateway_with};
use tests::{Client, Reply, Upstream};

/// An agent's request in the middle of a conversation. The sources are beside the tests of each dialect.
const CODEX: &str = include_str!("openai_responses/codex.json");
const CLAUDE_CODE: &str = include_str!("anthropic_messages/claude_code.json");

const TURNS: usize = 10;

/// The provider's response of a turn: calls of the agent's tool with unique ids, and in the end a text.
fn reply(api: &str, turn: usize, tool: &str) -> Reply {
    let scenario = match turn {
        _ if turn + 1 == TURNS => Scenario::Text,
        _ if turn.is_multiple_of(2) => Scenario::Tool,
        _ => Scenario::ParallelTools,
    };
    let reply = scenario.reply(api, true).expect("each adapter has it");
    edited(api, reply, |text| {
        text.replace("\"t1\"", &format!("\"t1_{turn}\""))
            .replace("\"t2\"", &format!("\"t2_{turn}\""))
            .replace("\"look\"", &format!("{tool:?}"))
    })
}

fn data(event: &str) -> Value {
    let (_, data) = event.split_once("data: ").expect("an event has data");
    serde_json::from_str(data).expect("its data is JSON")
}

/// The calls of a turn: their ids, in order.
type Calls = Vec<String>;

/// Sends a Codex request, and adds its response to the next one.
async fn codex_turn(client: &Client, body: &mut Value) -> Calls {
    let stream = client.stream("/v1/responses", body).await;
    assert_eq!(stream.status, 200);
    let events = stream.rest().await;
    let done = events.iter().map(|event| data(event));
    let done: Vec<_> = done
        .filter(|event| event["type"] == "response.output_item.done")
        .map(|event| event["item"].clone())
        .collect();
    assert_eq!(
        data(events.last().expect("an end"))["type"],
        "response.completed"
    );
    let calls = done.iter().filter(|item| item["type"] == "function_call");
    let calls = calls.map(|item| item["call_id"].as_str().expect("an id").to_owned());
    let calls = calls.collect();
    let input = body["input"].as_array_mut().expect("items");
    input.extend(done);
    calls
}

/// Sends a Claude Code request, and adds its response to the next one.
async fn claude_code_turn(client: &Client, body: &mut Value) -> Calls {
    let stream = client.stream("/v1/messages", body).await;
    assert_eq!(stream.status, 200);
    let mut blocks: Vec<Value> = Vec::new();
    let mut arguments = String::new();
    for event in stream.rest().await {
        let event = data(&event);
        let delta = &event["delta"];
        match event["type"].as_str() {
            Some("content_block_start") => {
                blocks.push(event["content_block"].clone());
                arguments.clear();
            }
            Some("content_block_delta") => {
                let block = blocks.last_mut().expect("it began");
                match delta["type"].as_str() {
                    Some("text_delta") => {
                        let text = block["text"].as_str().unwrap_or_default();
                        let more = delta["text"].as_str().expect("a text");
                        block["text"] = json!(format!("{text}{more}"));
                    }
                    Some("input_json_delta") => {
                        arguments.push_str(delta["partial_json"].as_str().expect("a text"));
                    }
                    other => panic!("{other:?}"),
                }
            }
            Some("content_block_stop") => {
                let block = blocks.last_mut().expect("it began");
                if block["type"] == "tool_use" && !arguments.is_empty() {
                    block["input"] = serde_json::from_str(&arguments).expect("JSON");
                }
            }
            _ => {}
        }
    }
    let calls = blocks.iter().filter(|block| block["type"] == "tool_use");
    let calls = calls.map(|block| block["id"].as_str().expect("an id").to_owned());
    let calls = calls.collect();
    let said = json!({ "role": "assistant", "content": blocks });
    body["messages"]
        .as_array_mut()
        .expect("messages")
        .push(said);
    calls
}

/// Adds the tools' results to an agent's next request.
fn add_results(body: &mut Value, turn: usize, calls: Calls) {
    let result = |number: usize| format!("result-{turn}-{number}.");
    if let Some(input) = body["input"].as_array_mut() {
        input.extend(calls.into_iter().enumerate().map(|(number, id)| {
            json!({ "type": "function_call_output", "call_id": id, "output": result(number) })
        }));
        return;
    }
    let results = calls.into_iter().enumerate().map(|(number, id)| {
        json!({ "type": "tool_result", "tool_use_id": id, "content": result(number) })
    });
    let results = json!({ "role": "user", "content": results.collect::<Vec<_>>() });
    body["messages"]
        .as_array_mut()
        .expect("messages")
        .push(results);
}

#[tokio::test]
async fn ten_turns_of_a_coding_agent_reach_each_provider_whole() {
    for (agent, tool) in [(CODEX, "shell_command"), (CLAUDE_CODE, "Bash")] {
        for api in apis() {
            let upstream = Upstream::start().await;
            let gateway = gateway_with(&api, &upstream).await;
            let client = gateway.client();
            let mut body: Value = serde_json::from_str(agent).expect("JSON");
            body["model"] = json!("scripted");
            body["stream"] = json!(true);
            let is_codex = agent == CODEX;
            let mut results = Vec::new();
            for turn in 0..TURNS {
                upstream.will(reply(&api, turn, tool));
                let calls = match is_codex {
                    true => codex_turn(&client, &mut body).await,
                    false => claude_code_turn(&client, &mut body).await,
                };
                let expected = match turn {
                    _ if turn + 1 == TURNS => 0,
                    _ => 1 + turn % 2,
                };
                assert_eq!(calls.len(), expected, "{api}, turn {turn}");
                let sent = upstream.next_request().await;
                let sent = String::from_utf8_lossy(&sent.body).into_owned();
                for result in &results {
                    assert_eq!(
                        sent.matches(result).count(),
                        1,
                        "{api}, turn {turn}, {result}: {sent}"
                    );
                }
                results.extend((0..calls.len()).map(|number| format!("result-{turn}-{number}.")));
                add_results(&mut body, turn, calls);
            }
            assert_eq!(results.len(), 13, "{api}");
        }
    }
}
