//! Providers with rules: each refuses what the real one refuses, with the words of its error. A rule names its source: the
//! provider's documentation, its SDK, or a public report that quotes the error.
//!
//! [`refusal`] is a function of the request, so that a test can ask it of any request; a scripted provider answers with
//! [`reply_to`]. To add a rule, add it to the list of its API, and a request that breaks it to `it/fit.rs`.

mod anthropic;
mod bedrock;
mod gemini;
mod ollama;
mod openai;
mod responses;
mod schema;

use serde_json::{Value, json};

use crate::scenario::RESPONSES;
use crate::upstream::{Reply, Request, Upstream};

/// One rule of an API.
pub struct Rule {
    pub name: &'static str,
    pub source: &'static str,
    /// Returns the error's words for a request that breaks the rule.
    broken: fn(&Sent<'_>) -> Option<String>,
}

/// A request as it was sent.
pub(crate) struct Sent<'a> {
    body: &'a Value,
    headers: &'a [(String, String)],
    /// The name of the model, from the body or the path.
    model: &'a str,
}

/// A rule that a request breaks, and the provider's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub rule: &'static str,
    pub words: String,
}

const fn rule(
    name: &'static str,
    source: &'static str,
    broken: fn(&Sent<'_>) -> Option<String>,
) -> Rule {
    Rule {
        name,
        source,
        broken,
    }
}

/// Returns the rules of one of the [`apis`](crate::scenario::apis).
pub fn rules(api: &str) -> &'static [Rule] {
    match api {
        "anthropic" => anthropic::RULES,
        "bedrock" => bedrock::RULES,
        "gemini" => gemini::RULES,
        "ollama" => ollama::RULES,
        "openai" => openai::RULES,
        RESPONSES => responses::RULES,
        other => panic!("{other} has no rules: add them to tests/src/strict"),
    }
}

/// Returns the first rule that a request breaks.
pub fn refusal(
    api: &str,
    path: &str,
    headers: &[(String, String)],
    body: &Value,
) -> Option<Refusal> {
    // `/model/NAME/converse`, `/models/NAME:generateContent`.
    let in_path = path.split(['/', ':', '?']).nth(2).unwrap_or_default();
    let sent = Sent {
        body,
        headers,
        model: body["model"].as_str().unwrap_or(in_path),
    };
    rules(api).iter().find_map(|rule| {
        let words = (rule.broken)(&sent)?;
        Some(Refusal {
            rule: rule.name,
            words,
        })
    })
}

/// Lets a provider answer each request that breaks no rule.
pub fn serve(upstream: &Upstream, api: &str, answer: Reply) {
    let api = api.to_owned();
    upstream.always_by(move |request| reply_to(&api, request).unwrap_or_else(|| answer.clone()));
}

/// Returns the provider's error for a request that breaks a rule.
pub fn reply_to(api: &str, request: &Request) -> Option<Reply> {
    let body: Value = serde_json::from_slice(&request.body).ok()?;
    let refused = refusal(api, &request.path, &request.headers, &body)?;
    let words = refused.words;
    let error = match api {
        "anthropic" => {
            json!({ "type": "error", "error": { "type": "invalid_request_error", "message": words } })
        }
        "bedrock" => json!({ "message": words }),
        "gemini" => {
            json!({ "error": { "code": 400, "message": words, "status": "INVALID_ARGUMENT" } })
        }
        "ollama" => json!({ "error": words }),
        _ => {
            json!({ "error": { "message": words, "type": "invalid_request_error", "param": null, "code": null } })
        }
    };
    Some(Reply::json(400, &error))
}

impl<'a> Sent<'a> {
    fn list(&self, name: &str) -> &'a [Value] {
        list(&self.body[name])
    }

    fn header(&self, name: &str) -> Option<&'a str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Whether a word has at most this many characters, all of letters, digits and these.
fn fits(word: &str, most: usize, others: &str) -> bool {
    let allows = |c: char| c.is_ascii_alphanumeric() || others.contains(c);
    (1..=most).contains(&word.chars().count()) && word.chars().all(allows)
}

/// Returns the first value that occurs twice.
fn repeated<'v>(values: impl Iterator<Item = &'v str>) -> Option<&'v str> {
    let mut seen = std::collections::HashSet::new();
    let mut values = values;
    values.find(|value| !seen.insert(*value))
}

/// The turns of a conversation as ids of calls and of results, with other content as `None`.
#[derive(Default)]
struct Turn<'v> {
    is_models: bool,
    content: Vec<Piece<'v>>,
}

enum Piece<'v> {
    Call(&'v str),
    Result(&'v str),
    Other,
}

/// Returns the calls of a model's turn that the next turn does not answer at once, and the first result without a call.
fn unpaired<'v>(turns: &[Turn<'v>]) -> (Vec<&'v str>, Option<&'v str>) {
    let mut open: Vec<&str> = Vec::new();
    let mut missing = Vec::new();
    for turn in turns {
        if turn.is_models {
            missing.append(&mut open);
            open.extend(turn.content.iter().filter_map(|piece| match piece {
                Piece::Call(id) => Some(*id),
                _ => None,
            }));
            continue;
        }
        let mut results_are_over = false;
        let mut asked = std::mem::take(&mut open);
        for piece in &turn.content {
            match piece {
                Piece::Result(id) => match asked.iter().position(|known| known == id) {
                    Some(place) if !results_are_over => {
                        asked.remove(place);
                    }
                    Some(_) => missing.push(*id),
                    None => return (missing, Some(*id)),
                },
                _ => results_are_over = true,
            }
        }
        missing.extend(asked);
    }
    missing.extend(open);
    (missing, None)
}
