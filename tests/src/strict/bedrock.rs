//! Amazon Bedrock's Converse. Patterns and lengths are those of botocore 1.44.8, `bedrock-runtime`.

use serde_json::Value;

use super::anthropic::is_since;
use super::schema::{has_choice, outside_claudes};
use super::{Piece, Rule, Sent, Turn, fits, list, repeated, rule, text, unpaired};

const BOTOCORE: &str = "botocore 1.44.8, bedrock-runtime/2023-09-30/service-2.json";

pub(super) const RULES: &[Rule] = &[
    rule("prompt", "strands-agents/sdk-typescript#727", |sent| {
        let first = sent.list("messages").first();
        first
            .is_none_or(|first| first["role"] != "user")
            .then(|| "A conversation must start with a user message. Try again with a conversation that starts with a user message.".to_owned())
    }),
    rule("content", "archestra-ai/archestra PR #4220", |sent| {
        let is_empty = |message: &Value| list(&message["content"]).is_empty();
        let index = sent.list("messages").iter().position(is_empty)?;
        Some(format!(
            "The content field in the Message object at messages.{index} is empty."
        ))
    }),
    rule(
        "blank texts",
        "OpenHands/OpenHands#5339, boto/botocore#3525",
        |sent| {
            blocks(sent)
            .any(|block| block["text"].as_str().is_some_and(|text| text.trim().is_empty()))
            .then(|| "The text field in the ContentBlock object at messages.0.content.0 is blank. Add text to the text field, and try again.".to_owned())
        },
    ),
    rule(
        "names of tools",
        "openclaw/openclaw#12892, BerriAI/litellm#19384",
        |sent| {
            let called = blocks(sent).map(|block| text(&block["toolUse"]["name"]));
            let listed = specs(sent).map(|spec| text(&spec["name"]));
            let mut names = called.filter(|name| !name.is_empty()).chain(listed);
            names.any(|name| !fits(name, 64, "_-")).then(|| {
            "Value at 'toolConfig.tools.1.member.toolSpec.name' failed to satisfy constraint: Member must have length less than or \
             equal to 64; Member must satisfy regular expression pattern: [a-zA-Z0-9_-]+"
                .to_owned()
        })
        },
    ),
    rule("ids of calls", BOTOCORE, |sent| {
        let mut ids = blocks(sent).flat_map(|block| {
            [
                &block["toolUse"]["toolUseId"],
                &block["toolResult"]["toolUseId"],
            ]
        });
        ids.any(|id| id.is_string() && !fits(text(id), 64, "_.:-")).then(|| {
            "Value at 'messages.2.member.content.1.member.toolUse.toolUseId' failed to satisfy constraint".to_owned()
        })
    }),
    rule("each id once", "double16/Cyber-AutoAgent-ng#27", |sent| {
        let ids = blocks(sent).filter_map(|block| block["toolUse"]["toolUseId"].as_str());
        repeated(ids).map(|id| {
            format!("The toolUse blocks at messages.2.content contain duplicate Ids: {id}")
        })
    }),
    rule("arguments", BOTOCORE, |sent| {
        let mut calls = blocks(sent).filter(|block| !block["toolUse"].is_null());
        calls
            .any(|call| !call["toolUse"]["input"].is_object())
            .then(|| "The format of the value at messages.1.content.0.toolUse.input is invalid. Provide a json object for the field and try again.".to_owned())
    }),
    rule(
        "tools of calls",
        "langgenius/dify#16421, vercel/ai PR #7537",
        |sent| {
            let is_about_tools =
                |block: &Value| !block["toolUse"].is_null() || !block["toolResult"].is_null();
            (sent.body["toolConfig"].is_null() && blocks(sent).any(is_about_tools)).then(|| {
            "The toolConfig field must be defined when using toolUse and toolResult content blocks.".to_owned()
        })
        },
    ),
    rule(
        "results behind calls",
        "zeroclaw-labs/zeroclaw PR #1476",
        |sent| {
            let (missing, _) = unpaired(&turns(sent));
            let id = missing.first()?;
            Some(format!(
                "Expected toolResult blocks at messages.2.content for the following Ids: {id}"
            ))
        },
    ),
    rule(
        "results of calls",
        "langgenius/dify-official-plugins#765, pydantic/pydantic-ai#2327",
        |sent| {
            let (_, stray) = unpaired(&turns(sent));
            stray.map(|_| {
            "The number of toolResult blocks at messages.2.content exceeds the number of toolUse blocks of previous turn.".to_owned()
        })
        },
    ),
    rule("descriptions of tools", "BerriAI/litellm#19384", |sent| {
        specs(sent).any(|spec| spec["description"] == "").then(|| {
            "Value '' at 'toolConfig.tools.1.member.toolSpec.description' failed to satisfy constraint: Member must have length \
             greater than or equal to 1"
                .to_owned()
        })
    }),
    rule(
        "schemas of tools",
        "nspady/google-calendar-mcp#39",
        |sent| {
            let mut schemas = specs(sent).map(|spec| &spec["inputSchema"]["json"]);
            schemas
            .any(|schema| schema["type"] != "object" || has_choice(schema))
            .then(|| "The value at toolConfig.tools.0.toolSpec.inputSchema.json.type must be one of the following: object.".to_owned())
        },
    ),
    rule(
        "enforced schemas",
        "platform.claude.com/docs/en/build-with-claude/structured-outputs",
        |sent| {
            let strict = specs(sent).filter(|spec| spec["strict"] == true);
            strict
                .map(|spec| &spec["inputSchema"]["json"])
                .find_map(outside_claudes)
                .or_else(|| {
                    let schema = &sent.body["outputConfig"]["textFormat"]["structure"]["jsonSchema"]
                        ["schema"];
                    outside_claudes(&serde_json::from_str(schema.as_str()?).ok()?)
                })
        },
    ),
    rule(
        "text beside documents",
        "archestra-ai/archestra PR #4220",
        |sent| {
            let is_alone = |message: &Value| {
                let blocks = list(&message["content"]);
                let has = |name: &str| blocks.iter().any(|block| !block[name].is_null());
                has("document") && !has("text")
            };
            let mut messages = sent.list("messages").iter();
            messages
                .any(is_alone)
                .then(|| "A text block must be included when using documents.".to_owned())
        },
    ),
    rule("formats of images", BOTOCORE, |sent| {
        let mut formats = blocks(sent).filter_map(|block| block["image"]["format"].as_str());
        formats
            .any(|format| !["png", "jpeg", "gif", "webp"].contains(&format))
            .then(|| "Value at 'messages.1.member.content.1.member.image.format' failed to satisfy constraint: Member must satisfy enum value set: [png, jpeg, gif, webp]".to_owned())
    }),
    rule("temperature", BOTOCORE, |sent| {
        let temperature = sent.body["inferenceConfig"]["temperature"].as_f64()?;
        (!(0.0..=1.0).contains(&temperature)).then(|| {
            "Value at 'inferenceConfig.temperature' failed to satisfy constraint: Member must have value less than or equal to 1".to_owned()
        })
    }),
    rule(
        "temperature or top_p",
        "skydiscover-ai/skydiscover#15",
        |sent| {
            let config = &sent.body["inferenceConfig"];
            let has_both = !config["temperature"].is_null() && !config["topP"].is_null();
            (has_both && is_since(sent.model, 4, 5)).then(|| {
            "The model returned the following errors: `temperature` and `top_p` cannot both be specified for this model. Please use only one.".to_owned()
        })
        },
    ),
    rule(
        "forced call with thinking",
        "strands-agents/harness-sdk PR #1495",
        |sent| {
            let kind = text(&sent.body["additionalModelRequestFields"]["thinking"]["type"]);
            let choice = &sent.body["toolConfig"]["toolChoice"];
            let is_forced = !choice["any"].is_null() || !choice["tool"].is_null();
            (matches!(kind, "enabled" | "adaptive") && is_forced).then(|| {
            "The model returned the following errors: Thinking may not be enabled when tool_choice forces tool use.".to_owned()
        })
        },
    ),
    rule("budget", "anthropics/claude-code#8756", |sent| {
        let budget =
            sent.body["additionalModelRequestFields"]["thinking"]["budget_tokens"].as_u64()?;
        let limit = sent.body["inferenceConfig"]["maxTokens"].as_u64()?;
        (budget < 1_024 || limit <= budget).then(|| {
            "The model returned the following errors: `max_tokens` must be greater than `thinking.budget_tokens`.".to_owned()
        })
    }),
    rule("stop sequences", "BerriAI/litellm#3286", |sent| {
        let mut stops = list(&sent.body["inferenceConfig"]["stopSequences"]).iter();
        stops.any(|stop| text(stop).trim().is_empty()).then(|| {
            "The model returned the following errors: stop_sequences: each stop sequence must contain non-whitespace".to_owned()
        })
    }),
];

fn specs<'a>(sent: &Sent<'a>) -> impl Iterator<Item = &'a Value> {
    let tools = list(&sent.body["toolConfig"]["tools"]).iter();
    tools
        .map(|tool| &tool["toolSpec"])
        .filter(|spec| !spec.is_null())
}

/// All blocks of all messages, and those of results.
fn blocks<'a>(sent: &Sent<'a>) -> impl Iterator<Item = &'a Value> {
    let blocks = sent
        .list("messages")
        .iter()
        .flat_map(|message| list(&message["content"]));
    blocks.flat_map(|block| std::iter::once(block).chain(list(&block["toolResult"]["content"])))
}

fn turns<'a>(sent: &Sent<'a>) -> Vec<Turn<'a>> {
    let piece = |block: &'a Value| match (&block["toolUse"], &block["toolResult"]) {
        (Value::Null, Value::Null) => Piece::Other,
        (Value::Null, result) => Piece::Result(text(&result["toolUseId"])),
        (call, _) => Piece::Call(text(&call["toolUseId"])),
    };
    let turn = |message: &'a Value| Turn {
        is_models: message["role"] == "assistant",
        content: list(&message["content"]).iter().map(piece).collect(),
    };
    sent.list("messages").iter().map(turn).collect()
}
