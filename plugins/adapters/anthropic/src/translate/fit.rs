//! The rules of the Messages API. Its words are in the errors of `platform.claude.com/docs` and of public reports.

use weir_sdk::adapter::{Request, Task};
use weir_sdk::fit::claude::{self, ClaudeModel};
use weir_sdk::fit::{Alphabet, JsonMode, Name, Rules, StrictSchemas, ToolSchemas};

use super::DIALECT;
use super::options::Platform;

/// The rules for a client of this dialect, which knows the others: those of what weir itself may have delivered, and an operator's
/// switch of the model has mixed.
pub(super) const OWN_RULES: Rules = Rules {
    call_id: RULES.call_id,
    needs_object_arguments: true,
    pairs_results: true,
    allows_blank_texts: false,
    ..Rules::NONE
};

pub(super) const RULES: Rules = Rules {
    // "String should match pattern '^[a-zA-Z0-9_-]{1,128}$'".
    tool_name: Some(Name {
        most: 128,
        alphabet: Alphabet::Plain,
    }),
    // "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", "`tool_use` ids must be unique".
    call_id: Some(Name {
        most: 64,
        alphabet: Alphabet::Plain,
    }),
    // "tool_use.input: Input should be a valid dictionary".
    needs_object_arguments: true,
    // "`tool_use` ids were found without `tool_result` blocks immediately after".
    pairs_results: true,
    needs_prompt: true,
    begins_with_user: true,
    has_participants: false,
    has_opaque_blocks: false,
    // "text content blocks must contain non-whitespace text".
    allows_blank_texts: false,
    // "final assistant content cannot end with trailing whitespace".
    allows_trailing_space: false,
    // "stop_sequences: each stop sequence must contain non-whitespace".
    allows_blank_stops: false,
    // "temperature: range: 0..1".
    most_temperature: 1.0,
    // "A maximum of 4 blocks with cache_control may be provided."
    most_cache_marks: 4,
    // `metadata.user_id`.
    most_end_user_bytes: 256,
    json_mode: JsonMode::Missing,
    // "input_schema does not support oneOf, allOf, or anyOf at the top level".
    tool_schemas: ToolSchemas::Objects,
    // "For 'object' type, 'additionalProperties: true' is not supported."
    strict_schemas: StrictSchemas::Closed,
    ..Rules::NONE
};

/// Lets the user speak last for a client of another dialect, if the model continues no turn of its own: "This model does not support
/// assistant message prefill."
pub(super) fn prefill(request: &mut Request) {
    let is_of_other = request.client.dialect != DIALECT;
    if let Task::Chat(chat) = &mut request.task
        && is_of_other
        && ClaudeModel::of(&chat.model).is_without_prefill()
    {
        claude::end_with_user(chat);
    }
}

/// Betas of other platforms (litellm, `anthropic_beta_headers_config.json`; AWS lists those for reasoning between calls). The
/// others are Anthropic's own: "invalid beta flag", "Unexpected value(s) for the `anthropic-beta` header".
const ELSEWHERE: [&str; 9] = [
    "compact-2026-01-12",
    "computer-use-2025-01-24",
    "computer-use-2025-11-24",
    "context-1m-2025-08-07",
    "context-management-2025-06-27",
    "interleaved-thinking-2025-05-14",
    TOOL_SEARCH,
    "dangerous-tool-use-2026-09-03",
    "thinking-display-updates-2026-08-18",
];
const ON_BEDROCK: [&str; 3] = [
    "effort-2025-11-24",
    "fine-grained-tool-streaming-2025-05-14",
    "tool-examples-2025-10-29",
];
const ON_VERTEX: [&str; 2] = ["compact-2026-09-04", "web-search-2025-03-05"];

/// The part of a beta for tools that other platforms have.
const TOOL_SEARCH: &str = "tool-search-tool-2025-10-19";
const ADVANCED_TOOLS: &str = "advanced-tool-use-2025-11-20";

/// Returns a client's beta in the words of the platform, if the platform knows it.
pub(super) fn beta_on(platform: Platform, beta: &str) -> Option<&str> {
    let own: &[&str] = match platform {
        Platform::Anthropic => return Some(beta),
        Platform::Bedrock => &ON_BEDROCK,
        Platform::Vertex => &ON_VERTEX,
    };
    match beta {
        ADVANCED_TOOLS => Some(TOOL_SEARCH),
        beta => (ELSEWHERE.contains(&beta) || own.contains(&beta)).then_some(beta),
    }
}
