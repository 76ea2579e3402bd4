//! The rules of Converse. Its words are in errors of public reports; patterns and lengths are those of botocore 1.44.8.

use weir_sdk::chat::{ChatRequest, Content, Role};
use weir_sdk::fit::{Alphabet, JsonMode, Name, Rules, StrictSchemas, ToolSchemas};

pub(super) const RULES: Rules = Rules {
    // "toolUse.name … Member must have length less than or equal to 64 … pattern: [a-zA-Z0-9_-]+".
    tool_name: Some(Name {
        most: 64,
        alphabet: Alphabet::Plain,
    }),
    // "[a-zA-Z0-9_.:-]+", "The toolUse blocks … contain duplicate Ids".
    call_id: Some(Name {
        most: 64,
        alphabet: Alphabet::Dotted,
    }),
    needs_object_arguments: true,
    // "Expected toolResult blocks …", "The number of toolResult blocks … exceeds the number of toolUse blocks of previous turn."
    pairs_results: true,
    needs_prompt: true,
    begins_with_user: true,
    has_participants: false,
    has_opaque_blocks: false,
    // "The text field in the ContentBlock object … is blank."
    allows_blank_texts: false,
    allows_trailing_space: false,
    allows_blank_stops: false,
    // `InferenceConfiguration`: 0 to 1.
    most_temperature: 1.0,
    most_cache_marks: 4,
    json_mode: JsonMode::Missing,
    tool_schemas: ToolSchemas::Objects,
    strict_schemas: StrictSchemas::Closed,
    ..Rules::NONE
};

/// Returns the names of the called tools, each once: "The toolConfig field must be defined when using toolUse and toolResult content
/// blocks."
pub(super) fn called_tools(chat: &ChatRequest) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for part in chat.messages.iter().flat_map(|message| &message.parts) {
        if let Content::ToolCall(call) = &part.content
            && !names.contains(&&*call.name)
        {
            names.push(&call.name);
        }
    }
    names
}

/// The user's words beside a document: "A text block must be included when using documents."
pub(super) const BESIDE_DOCUMENT: &str = "The document:";

/// Whether a message has documents and no text.
pub(super) fn is_document_alone(message: &weir_sdk::chat::Message) -> bool {
    let has = |is: fn(&Content) -> bool| message.parts.iter().any(|part| is(&part.content));
    message.role == Role::User
        && has(|content| matches!(content, Content::File(_)))
        && !has(|content| matches!(content, Content::Text(_)))
}
