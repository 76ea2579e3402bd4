//! Google's `generateContent`.

use serde_json::Value;

use super::{Piece, Rule, Sent, Turn, list, rule, text};

pub(super) const RULES: &[Rule] = &[
    rule(
        "prompt",
        "ikechan8370/chatgpt-plugin#733, googleapis/js-genai#912",
        |sent| {
            sent.list("contents")
                .is_empty()
                .then(|| "* GenerateContentRequest.contents: contents is not specified".to_owned())
        },
    ),
    rule("parts", "QuantumNous/new-api#1060", |sent| {
        let is_empty = |content: &Value| list(&content["parts"]).is_empty();
        let index = sent.list("contents").iter().position(is_empty)?;
        Some(format!(
            "* GenerateContentRequest.contents[{index}].parts: contents.parts must not be empty."
        ))
    }),
    rule(
        "names of functions",
        "google-gemini/gemini-cli#6704, #2966",
        |sent| {
            let listed = functions(sent).map(|function| text(&function["name"]));
            let called = parts(sent).filter_map(|part| part["functionCall"]["name"].as_str());
            let is_name = |name: &str| {
                let allows = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
                name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                    && name.len() <= 64
                    && name.chars().all(allows)
            };
            listed.chain(called).any(|name| !is_name(name)).then(|| {
            "* GenerateContentRequest.tools[0].function_declarations[0].name: Invalid function name. Must start with a letter or an \
             underscore. Must be alphameric (a-z, A-Z, 0-9), underscores (_), dots (.) or dashes (-), with a maximum length of 64."
                .to_owned()
        })
        },
    ),
    rule(
        "arguments",
        "ai.google.dev/api/caching#FunctionCall",
        |sent| {
            let mut calls = parts(sent).filter(|part| !part["functionCall"].is_null());
            calls
            .any(|call| !call["functionCall"]["args"].is_object())
            .then(|| "Invalid value at 'contents[1].parts[0].function_call.args' (type.googleapis.com/google.protobuf.Struct)".to_owned())
        },
    ),
    rule(
        "as many results as calls",
        "google-gemini/gemini-cli#4217, #5443",
        |sent| {
            let turns = turns(sent);
            let count = |turn: &Turn<'_>, is_call: bool| {
                let counted = |piece: &&Piece<'_>| match piece {
                    Piece::Call(_) => is_call,
                    Piece::Result(_) => !is_call,
                    Piece::Other => false,
                };
                turn.content.iter().filter(counted).count()
            };
            let mut open = 0;
            for turn in &turns {
                if !turn.is_models {
                    if count(turn, false) != open {
                        return Some(COUNTS.to_owned());
                    }
                    open = 0;
                    continue;
                }
                if open > 0 {
                    return Some(COUNTS.to_owned());
                }
                open = count(turn, true);
            }
            (open > 0).then(|| COUNTS.to_owned())
        },
    ),
    rule(
        "calls behind the user",
        "google-gemini/gemini-cli#26486, #11814",
        |sent| {
            let first = sent.list("contents").first()?;
            (first["role"] == "model" && list(&first["parts"]).iter().any(|part| !part["functionCall"].is_null())).then(|| {
            "Please ensure that function call turn comes immediately after a user turn or after a function response turn.".to_owned()
        })
        },
    ),
    rule(
        "results behind calls",
        "BerriAI/litellm#26755, langchain-ai/langchain#27799",
        |sent| {
            let is_late = |turn: &Turn<'_>| {
                let first = turn
                    .content
                    .iter()
                    .position(|piece| matches!(piece, Piece::Result(_)));
                first.is_some_and(|first| first > 0)
            };
            turns(sent).iter().any(is_late).then(|| {
            "Please ensure that function response turn comes immediately after a function call turn.".to_owned()
        })
        },
    ),
    rule(
        "signatures",
        "nanbingxyz/5ire#405, ai.google.dev/gemini-api/docs/thought-signatures",
        |sent| {
            let mut models = sent
                .list("contents")
                .iter()
                .filter(|content| content["role"] == "model");
            let is_unsigned = |content: &Value| {
                let first = list(&content["parts"])
                    .iter()
                    .find(|part| !part["functionCall"].is_null());
                first.is_some_and(|part| part["thoughtSignature"].is_null())
            };
            (sent.model.starts_with("gemini-3") && models.any(is_unsigned)).then(|| {
                "Function call is missing a thought_signature in functionCall parts.".to_owned()
            })
        },
    ),
    rule(
        "stop sequences",
        "ai.google.dev/api/generate-content: stopSequences",
        |sent| {
            (list(&sent.body["generationConfig"]["stopSequences"]).len() > 5).then(|| {
                "Unable to submit request because it must have at most 5 stop sequences.".to_owned()
            })
        },
    ),
    rule(
        "no reasoning",
        "earendil-works/pi#3460, vercel/ai#8027",
        |sent| {
            let budget =
                sent.body["generationConfig"]["thinkingConfig"]["thinkingBudget"].as_i64()?;
            (sent.model.contains("2.5-pro") && budget == 0).then(|| {
            "Unable to submit request because The model does not support setting thinking_budget to 0".to_owned()
        })
        },
    ),
    rule(
        "largest budget",
        "ai.google.dev/gemini-api/docs/thinking",
        |sent| {
            let budget =
                sent.body["generationConfig"]["thinkingConfig"]["thinkingBudget"].as_i64()?;
            let most = if sent.model.contains("pro") {
                32_768
            } else {
                24_576
            };
            (budget > most).then(|| format!("The thinking budget {budget} is invalid. Please choose a value between 1 and {most}."))
        },
    ),
    rule(
        "level of reasoning",
        "RooCodeInc/Roo-Code#10700, checkmarble/llmberjack PR #14",
        |sent| {
            let level = text(&sent.body["generationConfig"]["thinkingConfig"]["thinkingLevel"]);
            let is_unknown = level == "minimal" && sent.model.contains("pro")
                || !level.is_empty() && sent.model.contains("gemini-2");
            is_unknown.then(|| "Thinking level is not supported for this model.".to_owned())
        },
    ),
    rule(
        "JSON beside functions",
        "googleapis/python-genai#867, symfony/ai#803",
        |sent| {
            let is_json = sent.body["generationConfig"]["responseMimeType"] == "application/json";
            let is_before_3 =
                sent.model.starts_with("gemini-2") || sent.model.starts_with("gemini-1");
            (is_json && is_before_3 && functions(sent).next().is_some()).then(|| {
                "Function calling with a response mime type: 'application/json' is unsupported"
                    .to_owned()
            })
        },
    ),
];

const COUNTS: &str = "Please ensure that the number of function response parts is equal to the number of function call parts of the \
     function call turn.";

fn functions<'a>(sent: &Sent<'a>) -> impl Iterator<Item = &'a Value> {
    let tools = sent.list("tools").iter();
    tools.flat_map(|tool| list(&tool["functionDeclarations"]))
}

fn parts<'a>(sent: &Sent<'a>) -> impl Iterator<Item = &'a Value> {
    sent.list("contents")
        .iter()
        .flat_map(|content| list(&content["parts"]))
}

fn turns<'a>(sent: &Sent<'a>) -> Vec<Turn<'a>> {
    let piece = |part: &'a Value| match (&part["functionCall"], &part["functionResponse"]) {
        (Value::Null, Value::Null) => Piece::Other,
        (Value::Null, result) => Piece::Result(text(&result["name"])),
        (call, _) => Piece::Call(text(&call["name"])),
    };
    let turn = |content: &'a Value| Turn {
        is_models: content["role"] == "model",
        content: list(&content["parts"]).iter().map(piece).collect(),
    };
    sent.list("contents").iter().map(turn).collect()
}
