//! Anthropic's Messages API.

use serde_json::Value;

use super::schema::{has_choice, outside_claudes};
use super::{Piece, Rule, Sent, Turn, fits, list, repeated, rule, text, unpaired};

const DOCS: &str = "platform.claude.com/docs/en/api/messages";

pub(super) const RULES: &[Rule] = &[
    rule("prompt", "anthropics/claude-code#6774", |sent| {
        sent.list("messages")
            .is_empty()
            .then(|| "messages: at least one message is required".to_owned())
    }),
    rule("first turn", DOCS, |sent| {
        let first = sent.list("messages").first()?;
        (first["role"] != "user")
            .then(|| "messages: first message must use the \"user\" role".to_owned())
    }),
    rule("content", "anthropics/claude-code#6774", |sent| {
        let messages = sent.list("messages");
        let (_, others) = messages.split_last()?;
        others.iter().position(|message| blocks(&message["content"]).is_empty()).map(|index| {
            format!("messages.{index}: all messages must have non-empty content except for the optional final assistant message")
        })
    }),
    rule("no fields beyond", "Wei-Shaw/sub2api#225", |sent| {
        let named = |message: &Value| message.get("name").is_some();
        let index = sent.list("messages").iter().position(named)?;
        Some(format!(
            "messages.{index}.name: Extra inputs are not permitted"
        ))
    }),
    rule(
        "blank texts",
        "anthropics/claude-code#59812, home-assistant/core#175637",
        |sent| {
            let all = all_blocks(sent);
            let texts = all.iter().filter(|block| block["type"] == "text");
            texts
                .map(|block| text(&block["text"]))
                .find_map(|text| match text.trim() {
                    "" if text.is_empty() => {
                        Some("messages: text content blocks must be non-empty".to_owned())
                    }
                    "" => Some(
                        "messages: text content blocks must contain non-whitespace text".to_owned(),
                    ),
                    _ => None,
                })
        },
    ),
    rule(
        "prefill ends with a word",
        "tailcallhq/forgecode#1872, langchain-ai/langchain PR #35072",
        |sent| {
            let last = sent
                .list("messages")
                .last()
                .filter(|last| last["role"] == "assistant")?;
            let end = match &last["content"] {
                Value::String(text) => text.as_str(),
                content => text(&list(content).last()?["text"]),
            };
            end.ends_with(char::is_whitespace).then(|| {
                "messages: final assistant content cannot end with trailing whitespace".to_owned()
            })
        },
    ),
    rule(
        "prefill",
        "ericc-ch/copilot-api PR #261, vybestack/llxprt-code PR #3695",
        |sent| {
            let last = sent.list("messages").last()?;
            let is_prefill = last["role"] == "assistant" && !text(&last["content"]).is_empty();
            (is_prefill && is_since(sent.model, 4, 6)).then(|| {
            "This model does not support assistant message prefill. The conversation must end with a user message.".to_owned()
        })
        },
    ),
    rule(
        "names of tools",
        "home-assistant/core#147760, anthropics/claude-code#96152",
        |sent| {
            let all = all_blocks(sent);
            let tools = sent
                .list("tools")
                .iter()
                .filter(|tool| tool["type"].is_null());
            let names = tools.map(|tool| text(&tool["name"]));
            let calls = all.iter().filter(|block| block["type"] == "tool_use");
            let mut names = names.chain(calls.map(|call| text(&call["name"])));
            names.any(|name| !fits(name, 128, "_-")).then(|| {
                "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"
                    .to_owned()
            })
        },
    ),
    rule("each name once", "tailcallhq/forgecode#892", |sent| {
        repeated(sent.list("tools").iter().map(|tool| text(&tool["name"])))
            .map(|_| "tools: Tool names must be unique.".to_owned())
    }),
    rule(
        "type of a tool's schema",
        "Kilo-Org/kilocode#12238, BerriAI/litellm PR #31527",
        |sent| {
            own_tools(sent)
                .position(|tool| tool["input_schema"]["type"] != "object")
                .map(|index| format!("tools.{index}.custom.input_schema.type: Field required"))
        },
    ),
    rule(
        "choice at a tool's root",
        "nspady/google-calendar-mcp#39, anthropics/claude-code#5319",
        |sent| {
            own_tools(sent).position(|tool| has_choice(&tool["input_schema"])).map(|index| {
            format!("tools.{index}.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level")
        })
        },
    ),
    rule(
        "enforced schemas of tools",
        "BerriAI/litellm#35808, platform.claude.com/docs/en/build-with-claude/structured-outputs",
        |sent| {
            own_tools(sent)
                .filter(|tool| tool["strict"] == true)
                .find_map(|tool| outside_claudes(&tool["input_schema"]))
                .map(|why| format!("tools.0.custom.input_schema: {why}"))
        },
    ),
    rule(
        "schema of the response",
        "BerriAI/litellm#35808, PR #35811",
        |sent| {
            outside_claudes(&sent.body["output_config"]["format"]["schema"])
                .map(|why| format!("output_format.schema: {why}"))
        },
    ),
    rule(
        "ids of calls",
        "maximhq/bifrost#5097, screenpipe/screenpipe#3252",
        |sent| {
            let all = all_blocks(sent);
            let mut ids = all.iter().filter_map(|block| match text(&block["type"]) {
                "tool_use" => Some(&block["id"]),
                "tool_result" => Some(&block["tool_use_id"]),
                _ => None,
            });
            ids.any(|id| !fits(text(id), usize::MAX, "_-"))
            .then(|| "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'".to_owned())
        },
    ),
    rule(
        "each id once",
        "BerriAI/litellm#23510, anthropics/claude-code#20901",
        |sent| {
            let all = all_blocks(sent);
            let calls = all.iter().filter(|block| block["type"] == "tool_use");
            repeated(calls.map(|call| text(&call["id"])))
                .map(|_| "messages.1.content.1: `tool_use` ids must be unique".to_owned())
        },
    ),
    rule(
        "arguments",
        "anthropics/claude-code#6696, anthropics/anthropic-sdk-typescript#648",
        |sent| {
            let all = all_blocks(sent);
            let mut calls = all.iter().filter(|block| block["type"] == "tool_use");
            calls.any(|call| !call["input"].is_object()).then(|| {
                "messages.1.content.0.tool_use.input: Input should be a valid dictionary".to_owned()
            })
        },
    ),
    rule(
        "results behind calls",
        "anthropics/claude-code#1237, langchain-ai/langgraph#5109, OpenHands/OpenHands#7512",
        |sent| {
            let (missing, _) = unpaired(&turns(sent));
            let id = missing.first()?;
            Some(format!(
                "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: {id}. Each `tool_use` block must \
             have a corresponding `tool_result` block in the next message."
            ))
        },
    ),
    rule("results of calls", "tghamm/Anthropic.SDK#184", |sent| {
        let (_, stray) = unpaired(&turns(sent));
        let id = stray?;
        Some(format!(
            "messages.1.content.0: unexpected tool_use_id found in tool_result blocks: {id}. Each tool_result block must have a \
             corresponding tool_use block in the previous message."
        ))
    }),
    rule("temperature", "theopenco/llmgateway PR #3268", |sent| {
        let temperature = sent.body["temperature"].as_f64()?;
        (!(0.0..=1.0).contains(&temperature)).then(|| "temperature: range: 0..1".to_owned())
    }),
    rule(
        "temperature or top_p",
        "BerriAI/litellm#15097, aws-samples/bedrock-chat#979",
        |sent| {
            let has = |name: &str| !sent.body[name].is_null();
            (has("temperature") && has("top_p") && is_since(sent.model, 4, 5)).then(|| {
            "`temperature` and `top_p` cannot both be specified for this model. Please use only one.".to_owned()
        })
        },
    ),
    rule(
        "no sampling",
        "UKGovernmentBEIS/inspect_ai#3721, platform.claude.com/docs/en/about-claude/models/whats-new-claude-4-7",
        |sent| {
            let is_set = |name: &&str| !sent.body[name].is_null();
            let name = ["temperature", "top_p", "top_k"]
                .into_iter()
                .find(|name| is_set(name))?;
            (sent.model.contains("opus") && is_since(sent.model, 4, 7))
                .then(|| format!("`{name}` is deprecated for this model."))
        },
    ),
    rule(
        "temperature with thinking",
        "MartialBE/one-hub#529",
        |sent| {
            let temperature = sent.body["temperature"].as_f64()?;
            (thinks(sent) && temperature != 1.0).then(|| {
            "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode.".to_owned()
        })
        },
    ),
    rule(
        "top_k with thinking",
        "platform.claude.com/docs/en/build-with-claude/extended-thinking",
        |sent| {
            (thinks(sent) && !sent.body["top_k"].is_null())
                .then(|| "`top_k` must be unset when thinking is enabled.".to_owned())
        },
    ),
    rule(
        "forced call with thinking",
        "mastra-ai/mastra#7507, BerriAI/litellm PR #17129",
        |sent| {
            let is_forced = matches!(text(&sent.body["tool_choice"]["type"]), "any" | "tool");
            (thinks(sent) && is_forced)
                .then(|| "Thinking may not be enabled when tool_choice forces tool use.".to_owned())
        },
    ),
    rule("budget", "anthropics/claude-code#8756", |sent| {
        let budget = sent.body["thinking"]["budget_tokens"].as_u64()?;
        let limit = sent.body["max_tokens"].as_u64()?;
        if budget < 1_024 {
            return Some(
                "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
                    .to_owned(),
            );
        }
        (limit <= budget)
            .then(|| "`max_tokens` must be greater than `thinking.budget_tokens`.".to_owned())
    }),
    rule(
        "calls behind thinking",
        "n8n-io/n8n#22550, anomalyco/opencode#3077",
        |sent| {
            if sent.body["thinking"]["type"] != "enabled" {
                return None;
            }
            let last = sent
                .list("messages")
                .iter()
                .rfind(|message| message["role"] == "assistant")?;
            let blocks = blocks(&last["content"]);
            let has_call = blocks.iter().any(|block| block["type"] == "tool_use");
            let first = text(&blocks.first()?["type"]);
            (has_call && !first.ends_with("thinking")).then(|| {
            format!("messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{first}`.")
        })
        },
    ),
    rule("stop sequences", "BerriAI/litellm#3286, PR #7484", |sent| {
        let mut stops = sent.list("stop_sequences").iter();
        stops
            .any(|stop| text(stop).trim().is_empty())
            .then(|| "stop_sequences: each stop sequence must contain non-whitespace".to_owned())
    }),
    rule("cache marks", "tghamm/Anthropic.SDK#50", |sent| {
        let all = all_blocks(sent);
        let marked = |block: &&Value| !block["cache_control"].is_null();
        let system = blocks(&sent.body["system"]);
        let marks = sent
            .list("tools")
            .iter()
            .chain(&system)
            .filter(marked)
            .count()
            + all.iter().filter(marked).count();
        (marks > 4).then(|| {
            format!("A maximum of 4 blocks with cache_control may be provided. Found {marks}.")
        })
    }),
    rule("marks of empty texts", "askalf/dario#1066", |sent| {
        let all = all_blocks(sent);
        all.iter()
            .any(|block| {
                block["type"] == "text"
                    && text(&block["text"]).is_empty()
                    && !block["cache_control"].is_null()
            })
            .then(|| {
                "messages.1.content.0.text: cache_control cannot be set for empty text blocks"
                    .to_owned()
            })
    }),
    rule("types of images", "anthropics/claude-code#8184", |sent| {
        let all = all_blocks(sent);
        let sources = all
            .iter()
            .filter(|block| block["type"] == "image")
            .map(|block| block["source"].clone());
        let mut types = sources
            .filter(|source| source["type"] == "base64")
            .map(|source| source["media_type"].clone());
        types
            .any(|kind| !["image/jpeg", "image/png", "image/gif", "image/webp"].contains(&text(&kind)))
            .then(|| "messages.0.content.0.image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'".to_owned())
    }),
    rule("end user", "vercel/ai PR #12419", |sent| {
        (text(&sent.body["metadata"]["user_id"]).len() > 256)
            .then(|| "metadata.user_id: String should have at most 256 characters".to_owned())
    }),
    rule(
        "betas of Bedrock",
        "anthropics/claude-code#49648, BerriAI/litellm PR #19875",
        |sent| {
            let known = [
                "interleaved-thinking-2025-05-14",
                "context-1m-2025-08-07",
                "tool-search-tool-2025-10-19",
            ];
            let mut betas = sent.list("anthropic_beta").iter();
            betas
                .any(|beta| !known.contains(&text(beta)))
                .then(|| "The model returned the following errors: invalid beta flag".to_owned())
        },
    ),
    rule(
        "betas of Vertex AI",
        "vercel/ai#10981, zed-industries/zed#42715",
        |sent| {
            let betas = sent.header("anthropic-beta")?;
            let is_vertex = text(&sent.body["anthropic_version"]).starts_with("vertex");
            let known = [
                "interleaved-thinking-2025-05-14",
                "context-1m-2025-08-07",
                "web-search-2025-03-05",
            ];
            let unknown = betas
                .split(',')
                .find(|beta| !known.contains(&beta.trim()))?;
            is_vertex.then(|| {
                format!("Unexpected value(s) `{unknown}` for the `anthropic-beta` header.")
            })
        },
    ),
];

/// Whether a model's name has this version or a later one.
pub(super) fn is_since(model: &str, major: u32, minor: u32) -> bool {
    let numbers = model
        .split(['-', '.', '@', ':'])
        .skip_while(|word| *word != "claude");
    let mut numbers = numbers
        .filter(|word| word.len() <= 2)
        .filter_map(|word| word.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(known), next) => (known, next.unwrap_or_default()) >= (major, minor),
        _ => false,
    }
}

fn thinks(sent: &Sent<'_>) -> bool {
    matches!(text(&sent.body["thinking"]["type"]), "enabled" | "adaptive")
}

fn own_tools<'a>(sent: &Sent<'a>) -> impl Iterator<Item = &'a Value> {
    sent.list("tools")
        .iter()
        .filter(|tool| tool["type"].is_null())
}

/// The blocks of a content; a string is one.
fn blocks(content: &Value) -> Vec<Value> {
    match content {
        Value::String(text) => vec![serde_json::json!({ "type": "text", "text": text })],
        content => list(content).to_vec(),
    }
}

/// All blocks of all messages, and those of results.
fn all_blocks(sent: &Sent<'_>) -> Vec<Value> {
    let messages = sent
        .list("messages")
        .iter()
        .flat_map(|message| blocks(&message["content"]));
    messages
        .flat_map(|block| {
            let inner = match text(&block["type"]) {
                "tool_result" => blocks(&block["content"]),
                _ => Vec::new(),
            };
            std::iter::once(block).chain(inner)
        })
        .collect()
}

fn turns<'a>(sent: &Sent<'a>) -> Vec<Turn<'a>> {
    let turn = |message: &'a Value| Turn {
        is_models: message["role"] == "assistant",
        content: match &message["content"] {
            Value::String(_) => vec![Piece::Other],
            content => list(content)
                .iter()
                .map(|block| match text(&block["type"]) {
                    "tool_use" => Piece::Call(text(&block["id"])),
                    "tool_result" => Piece::Result(text(&block["tool_use_id"])),
                    _ => Piece::Other,
                })
                .collect(),
        },
    };
    sent.list("messages").iter().map(turn).collect()
}
