//! Ollama's chat.

use serde_json::Value;

use super::{Rule, list, rule, text};

pub(super) const RULES: &[Rule] = &[
    rule(
        "arguments",
        "aliasrobotics/cai#76, neuron-core/neuron-ai#219",
        |sent| {
            let mut calls = sent
                .list("messages")
                .iter()
                .flat_map(|message| list(&message["tool_calls"]));
            calls.any(|call| !call["function"]["arguments"].is_object()).then(|| {
            "json: cannot unmarshal string into Go struct field ChatRequest.messages.tool_calls.function.arguments of type \
             api.ToolCallFunctionArguments"
                .to_owned()
        })
        },
    ),
    rule("content", "ollama/ollama#10255", |sent| {
        let mut messages = sent.list("messages").iter();
        messages.any(|message| !message["content"].is_string()).then(|| {
            "json: cannot unmarshal array into Go struct field ChatRequest.messages.content of type string".to_owned()
        })
    }),
    rule("levels of reasoning", "charmbracelet/crush#2623", |sent| {
        let level = sent.body["think"].as_str()?;
        (!sent.model.contains("gpt-oss"))
            .then(|| format!("think value \"{level}\" is not supported for this model"))
    }),
    rule(
        "no reasoning",
        "Gitlawb/openclaude#1371, taketwo/llm-ollama PR #54",
        |sent| {
            (sent.model.starts_with("llama3") && sent.body["think"] == true)
                .then(|| format!("\"{}\" does not support thinking", sent.model))
        },
    ),
    rule(
        "images are base64",
        "docs.ollama.com/api/chat: images",
        |sent| {
            let mut images = sent
                .list("messages")
                .iter()
                .flat_map(|message| list(&message["images"]));
            images
                .any(|image: &Value| text(image).contains(':'))
                .then(|| "illegal base64 data at input byte 5".to_owned())
        },
    ),
];
