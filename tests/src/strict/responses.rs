//! OpenAI's Responses.

use serde_json::Value;

use super::openai::reasons;
use super::schema::{no_object, outside_openais};
use super::{Rule, Sent, fits, rule, text};

pub(super) const RULES: &[Rule] = &[
    rule(
        "names of tools",
        "hackers365/xiaozhi-esp32-server-golang#268",
        |sent| {
            let listed = sent.list("tools").iter().map(|tool| &tool["name"]);
            let called = items(sent, "function_call").map(|call| &call["name"]);
            let mut names = listed.chain(called).filter(|name| name.is_string());
            names.any(|name| !fits(text(name), 64, "_-")).then(|| {
            "Invalid 'tools[0].name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.".to_owned()
        })
        },
    ),
    rule("schemas of tools", "kevinwatt/mysql-mcp#5", |sent| {
        let functions = sent
            .list("tools")
            .iter()
            .filter(|tool| tool["type"] == "function");
        functions
            .map(|tool| (tool, &tool["parameters"]))
            .find_map(|(tool, schema)| {
                let strict = || outside_openais(schema, "").filter(|_| tool["strict"] == true);
                let why = no_object(schema).or_else(strict)?;
                Some(format!(
                    "Invalid schema for function '{}': {why}",
                    text(&tool["name"])
                ))
            })
    }),
    rule("schema of the response", "vercel/ai#6484", |sent| {
        let format = &sent.body["text"]["format"];
        let why = outside_openais(&format["schema"], "").filter(|_| format["strict"] == true)?;
        Some(format!(
            "Invalid schema for response_format '{}': {why}",
            text(&format["name"])
        ))
    }),
    rule(
        "name of the schema",
        "developers.openai.com/api/reference: text.format.name",
        |sent| {
            let name = sent.body["text"]["format"]["name"].as_str()?;
            (!fits(name, 64, "_-")).then(|| {
            "Invalid 'text.format.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.".to_owned()
        })
        },
    ),
    rule(
        "ids of calls",
        "AnswerDotAI/fastllm#45, orchidfiles/ungate#26",
        |sent| {
            let mut ids = sent
                .list("input")
                .iter()
                .filter_map(|item| item["call_id"].as_str());
            let long = ids.find(|id| id.chars().count() > 64)?;
            Some(format!(
                "Invalid 'input[1].call_id': string too long. Expected a string with maximum length 64, but got a string with length {} \
             instead.",
                long.len()
            ))
        },
    ),
    rule("results of calls", "microsoft/vscode#320060", |sent| {
        let calls: Vec<_> = items(sent, "function_call")
            .map(|call| &call["call_id"])
            .collect();
        let mut results = items(sent, "function_call_output").map(|result| &result["call_id"]);
        let stray = results.find(|id| !calls.contains(id))?;
        Some(format!(
            "No tool call found for function call output with call_id {}",
            text(stray)
        ))
    }),
    rule(
        "results behind calls",
        "Azure/azure-sdk-for-python#46092, anomalyco/opencode#16717",
        |sent| {
            let results: Vec<_> = items(sent, "function_call_output")
                .map(|result| &result["call_id"])
                .collect();
            let mut calls = items(sent, "function_call").map(|call| &call["call_id"]);
            let open = calls.find(|id| !results.contains(id))?;
            Some(format!(
                "No tool output found for function call {}",
                text(open)
            ))
        },
    ),
    rule(
        "the word JSON",
        "OpenAI: Response input messages must contain the word 'json'",
        |sent| {
            let has_word = sent
                .list("input")
                .iter()
                .any(|item| item.to_string().to_lowercase().contains("json"));
            (sent.body["text"]["format"]["type"] == "json_object" && !has_word).then(|| {
            "Response input messages must contain the word 'json' in some form to use 'text.format' of type 'json_object'.".to_owned()
        })
        },
    ),
    rule(
        "fields that it does not have",
        "developers.openai.com/api/reference: responses",
        |sent| {
            let names = [
                "stop",
                "presence_penalty",
                "frequency_penalty",
                "top_k",
                "seed",
                "messages",
            ];
            let name = names.into_iter().find(|name| !sent.body[name].is_null())?;
            Some(format!("Unknown parameter: '{name}'."))
        },
    ),
    rule(
        "output limit",
        "developers.openai.com/api/reference: max_output_tokens",
        |sent| {
            let limit = sent.body["max_output_tokens"].as_u64()?;
            (limit < 16).then(|| format!("Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got {limit} instead."))
        },
    ),
    rule(
        "temperature of reasoning models",
        "QwenLM/qwen-code#921",
        |sent| {
            (reasons(sent) && !sent.body["temperature"].is_null()).then(|| {
                "Unsupported parameter: 'temperature' is not supported with this model.".to_owned()
            })
        },
    ),
    rule("end user", "maximhq/bifrost PR #1000", |sent| {
        let long = ["user", "safety_identifier"]
            .into_iter()
            .find(|name| text(&sent.body[name]).len() > 64)?;
        Some(format!(
            "Invalid '{long}': string too long. Expected a string with maximum length 64."
        ))
    }),
];

fn items<'a>(sent: &Sent<'a>, kind: &str) -> impl Iterator<Item = &'a Value> {
    sent.list("input")
        .iter()
        .filter(move |item| item["type"] == kind)
}
