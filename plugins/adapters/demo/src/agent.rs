//! The demo model as an agent of a swarm: it fetches a page for a research task, and passes on the previous agent's
//! output.
//!
//! The model knows no pages. It fetches the first URL that its task, its role or the tool's description contains.

use serde_json::{Value, json};
use weir_sdk::chat::{ChatRequest, Content, Role, Tool, ToolKind};

/// The marks around the previous agent's output in an agent's system prompt.
const CONTEXT_BEGINS: &str = "--- CONTEXT FROM PREVIOUS AGENT ---";
const CONTEXT_ENDS: &str = "--- END CONTEXT ---";

/// Beginnings of words that request research.
const RESEARCH: [&str; 5] = ["research", "find", "gather", "analy", "investigat"];

/// Returns the tool that fetches a research task's page, among the permitted tools, and its arguments.
pub(crate) fn research<'a>(
    chat: &ChatRequest,
    task: &str,
    tools: impl Iterator<Item = &'a Tool>,
) -> Option<(&'a Tool, String)> {
    let mut words = task.split(|character: char| !character.is_alphabetic());
    let asks = words.any(|word| {
        let word = word.to_lowercase();
        RESEARCH.iter().any(|asking| word.starts_with(asking))
    });
    if !asks {
        return None;
    }
    let (tool, description) = tools.into_iter().find_map(fetching)?;
    let role = system_texts(chat).find_map(url);
    let url = url(task).or(role).or_else(|| url(description))?;
    Some((tool, json!({ "url": url }).to_string()))
}

/// Returns the previous agent's output.
pub(crate) fn context(chat: &ChatRequest) -> Option<&str> {
    let mut contexts = system_texts(chat).filter_map(|text| {
        let (_, behind) = text.split_once(CONTEXT_BEGINS)?;
        let (context, _) = behind.split_once(CONTEXT_ENDS)?;
        Some(context.trim())
    });
    contexts.find(|context| !context.is_empty())
}

/// Returns a function that takes a URL, and its description.
fn fetching(tool: &Tool) -> Option<(&Tool, &str)> {
    let ToolKind::Function(function) = &tool.kind else {
        return None;
    };
    let schema: Value = serde_json::from_str(&function.input_schema).ok()?;
    schema["properties"].get("url")?;
    Some((tool, function.description.as_deref().unwrap_or_default()))
}

fn system_texts(chat: &ChatRequest) -> impl Iterator<Item = &str> {
    let systems = chat
        .messages
        .iter()
        .filter(|message| message.role == Role::System);
    let parts = systems.flat_map(|message| &message.parts);
    parts.filter_map(|part| match &part.content {
        Content::Text(text) => Some(text.as_str()),
        _ => None,
    })
}

/// Returns the first URL in a text, without trailing punctuation.
fn url(text: &str) -> Option<&str> {
    let begins = |word: &&str| word.starts_with("http://") || word.starts_with("https://");
    let mut words = text.split(|character: char| {
        character.is_whitespace() || matches!(character, '(' | ')' | '<' | '>' | '"' | '`')
    });
    words
        .find(begins)
        .map(|word| word.trim_end_matches(['.', ',', ';', ':', '!', '?', '\'']))
}
