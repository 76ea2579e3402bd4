//! OpenAI's Chat Completions.

use serde_json::Value;

use super::schema::{no_object, outside_openais};
use super::{Piece, Rule, Sent, Turn, fits, list, rule, text, unpaired};

pub(super) const RULES: &[Rule] = &[
    rule(
        "names of tools",
        "mrexodia/ida-pro-mcp#129, ravitemer/mcphub.nvim PR #243",
        |sent| {
            let tools = functions(sent).map(|function| text(&function["name"]));
            let called = calls(sent).map(|call| text(&call["function"]["name"]));
            let name = tools
                .chain(called.filter(|name| !name.is_empty()))
                .find(|name| !fits(name, 64, "_-"))?;
            Some(match name.len() {
            65.. => format!(
                "Invalid 'tools[0].function.name': string too long. Expected a string with maximum length 64, but got a string with \
                 length {} instead.",
                name.len()
            ),
            _ => "Invalid 'tools[0].function.name': string does not match pattern. Expected a string that matches the pattern \
                  '^[a-zA-Z0-9_-]+$'."
                .to_owned(),
        })
        },
    ),
    rule("number of tools", "zed-industries/zed#32946", |sent| {
        let count = sent.list("tools").len();
        (count > 128).then(|| format!("Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length {count} instead."))
    }),
    rule(
        "schemas of tools",
        "chatanywhere/GPT_API_free#403, nspady/google-calendar-mcp#39, spring-projects/spring-ai#4776, sigoden/aichat PR #1049",
        |sent| {
            let mut all = functions(sent).filter(|function| !function["parameters"].is_null());
            all.find_map(|function| {
                let why = no_object(&function["parameters"])?;
                Some(format!(
                    "Invalid schema for function '{}': {why}",
                    text(&function["name"])
                ))
            })
        },
    ),
    rule(
        "enforced schemas of tools",
        "kevinwatt/mysql-mcp#5, lastmile-ai/openai-agents-mcp#2, makenotion/notion-mcp-server#102",
        |sent| {
            let mut strict = functions(sent).filter(|function| function["strict"] == true);
            strict.find_map(|function| {
                let why = outside_openais(&function["parameters"], "")?;
                Some(format!(
                    "Invalid schema for function '{}': {why}",
                    text(&function["name"])
                ))
            })
        },
    ),
    rule("schema of the response", "vercel/ai#6484", |sent| {
        let format = &sent.body["response_format"]["json_schema"];
        let why = outside_openais(&format["schema"], "").filter(|_| format["strict"] == true)?;
        Some(format!(
            "Invalid schema for response_format '{}': {why}",
            text(&format["name"])
        ))
    }),
    rule(
        "name of the schema",
        "developers.openai.com/api/reference: response_format.json_schema.name",
        |sent| {
            let name = sent.body["response_format"]["json_schema"]["name"].as_str()?;
            (!fits(name, 64, "_-")).then(|| {
            "Invalid 'response_format.json_schema.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.".to_owned()
        })
        },
    ),
    rule(
        "ids of calls",
        "vercel/ai#8132, microsoft/autogen#6377, Portkey-AI/gateway#1062",
        |sent| {
            let ids = calls(sent).map(|call| text(&call["id"]));
            let results = sent
                .list("messages")
                .iter()
                .map(|message| text(&message["tool_call_id"]));
            let long = ids.chain(results).find(|id| id.chars().count() > 40)?;
            Some(format!(
                "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string with \
             length {} instead.",
                long.len()
            ))
        },
    ),
    rule(
        "results behind calls",
        "aliasrobotics/cai#111, BerriAI/litellm#10083, langgenius/dify#32222",
        |sent| {
            let (missing, _) = unpaired(&turns(sent));
            let id = missing.first()?;
            Some(format!(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following \
             tool_call_ids did not have response messages: {id}"
            ))
        },
    ),
    rule(
        "results of calls",
        "developers.openai.com/api/reference: tool messages",
        |sent| {
            let (_, stray) = unpaired(&turns(sent));
            stray.map(|_| "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.".to_owned())
        },
    ),
    rule(
        "results are texts",
        "developers.openai.com/api/reference: tool messages",
        |sent| {
            let tools = sent
                .list("messages")
                .iter()
                .filter(|message| message["role"] == "tool");
            let mut parts = tools.flat_map(|message| list(&message["content"]));
            parts.any(|part| part["type"] != "text").then(|| {
            "Invalid 'messages[2].content[0].type': Image URLs are only allowed for messages with role 'user'.".to_owned()
        })
        },
    ),
    rule("stop sequences", "continuedev/continue#1572", |sent| {
        let count = sent.list("stop").len();
        (count > 4).then(|| format!("Invalid 'stop': array too long. Expected an array with maximum length 4, but got an array with length {count} instead."))
    }),
    rule(
        "temperature of reasoning models",
        "gabrii/Cursor-Azure-GPT-5#33, QwenLM/qwen-code#921",
        |sent| {
            let temperature = sent.body["temperature"].as_f64()?;
            (reasons(sent) && temperature != 1.0).then(|| {
            format!("Unsupported value: 'temperature' does not support {temperature} with this model. Only the default (1) value is supported.")
        })
        },
    ),
    rule(
        "penalties of reasoning models",
        "nextai-translator/nextai-translator#1781",
        |sent| {
            let names = ["presence_penalty", "frequency_penalty", "top_p"];
            let name = names.into_iter().find(|name| !sent.body[name].is_null())?;
            reasons(sent).then(|| {
                format!("Unsupported parameter: '{name}' is not supported with this model.")
            })
        },
    ),
    rule("limit of reasoning models", "decolua/9router#560", |sent| {
        (reasons(sent) && !sent.body["max_tokens"].is_null()).then(|| {
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.".to_owned()
        })
    }),
    rule(
        "the word JSON",
        "DeepSeek and OpenAI: 'messages' must contain the word 'json'",
        |sent| {
            let has_word = sent
                .list("messages")
                .iter()
                .any(|message| message.to_string().to_lowercase().contains("json"));
            (sent.body["response_format"]["type"] == "json_object" && !has_word).then(|| {
            "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.".to_owned()
        })
        },
    ),
    rule(
        "choice without tools",
        "Upsonic/Upsonic#323, camel-ai/camel PR #3706",
        |sent| {
            let names = ["parallel_tool_calls", "tool_choice"];
            let name = names.into_iter().find(|name| !sent.body[name].is_null())?;
            sent.list("tools").is_empty().then(|| {
            format!("Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified.")
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
    rule(
        "metadata",
        "thiswillbeyourgithub/openwebui_custom_pipes_filters#3",
        |sent| {
            (!sent.body["metadata"].is_null() && sent.body["store"] != true).then(|| {
                "The 'metadata' parameter is only allowed when 'store' is enabled.".to_owned()
            })
        },
    ),
];

/// Whether the model is one of those that reason (`o1`, `o3`, `gpt-5`).
pub(super) fn reasons(sent: &Sent<'_>) -> bool {
    ["o1", "o3", "o4", "gpt-5"]
        .iter()
        .any(|family| sent.model.starts_with(family))
}

fn functions<'a>(sent: &Sent<'a>) -> impl Iterator<Item = &'a Value> {
    let tools = sent
        .list("tools")
        .iter()
        .filter(|tool| tool["type"] == "function");
    tools.map(|tool| &tool["function"])
}

fn calls<'a>(sent: &Sent<'a>) -> impl Iterator<Item = &'a Value> {
    sent.list("messages")
        .iter()
        .flat_map(|message| list(&message["tool_calls"]))
}

fn turns<'a>(sent: &Sent<'a>) -> Vec<Turn<'a>> {
    let mut turns: Vec<Turn<'a>> = Vec::new();
    for message in sent.list("messages") {
        let is_models = message["role"] == "assistant";
        let calls = list(&message["tool_calls"]).iter();
        let mut content: Vec<_> = calls.map(|call| Piece::Call(text(&call["id"]))).collect();
        match text(&message["role"]) {
            "tool" => content.push(Piece::Result(text(&message["tool_call_id"]))),
            "user" | "system" | "developer" => content.push(Piece::Other),
            _ => {}
        }
        match turns.last_mut() {
            // Each message of the assistant is a turn.
            Some(last) if !is_models && !last.is_models => last.content.extend(content),
            _ => turns.push(Turn { is_models, content }),
        }
    }
    turns
}
