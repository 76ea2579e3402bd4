//! Marks of prefixes for the prompt caches of providers that need marks, if the model's `prompt_caching` is `auto` and the
//! client set none.
//!
//! A provider with such a cache keeps a prefix only up to a mark, and charges more for the first write and much less for
//! each later read. weir marks the prefixes that the next request is likely to have: the tools, the system prompt, and the
//! conversation so far. Adapters of other providers leave marks out.

use weir_sandbox::adapter::bindings::chat::{
    CacheLifetime, ChatRequest, Content, ExtraField, Message, Part, Role, ToolContent, ToolKind,
};

/// The adapters' name of a mark, in the fields beyond the vocabulary and in the list of ignored fields.
pub(super) const MARK: &str = "cache_control";

/// The least text with marks, in bytes: some 1,024 tokens, the least that Anthropic and Amazon keep for most models
/// (platform.claude.com/docs/en/build-with-claude/prompt-caching: "Cache limitations").
const MIN_BYTES: usize = 4 * 1_024;

/// Marks the last tool, the last text of the system prompt, and the last message of a conversation, or else the last long
/// message. Returns whether it set a mark: not in a short request, nor beside marks of the client.
pub(super) fn mark(chat: &mut ChatRequest) -> bool {
    if is_short(chat) || has_marks(chat) {
        return false;
    }
    let mark = Some(CacheLifetime::Short);
    // Anthropic refuses a mark on a tool that is loaded later.
    let mut tools = chat.tools.iter_mut().rev();
    let tool = tools.find(|tool| {
        let is_deferred = match &tool.kind {
            ToolKind::BuiltIn(tool) => tool.configuration.contains("defer_loading"),
            _ => tool.extra.iter().any(|(name, _)| name == "defer_loading"),
        };
        !is_deferred
    });
    let is_conversation = chat.messages.iter().any(is_of_model);
    let last = |is_wanted: &dyn Fn(&Message) -> bool| {
        let messages = chat.messages.iter().enumerate().rev();
        let mut wanted = messages.filter(|(_, message)| is_wanted(message));
        wanted.find_map(|(index, message)| {
            let part = message.parts.iter().rposition(can_end_prefix)?;
            Some((index, part))
        })
    };
    let system = last(&|message| message.role == Role::System);
    let turn = last(&|message| {
        message.role != Role::System && (is_conversation || bytes(message) >= MIN_BYTES)
    });
    let mut is_marked = false;
    if let Some(tool) = tool {
        tool.cache = mark;
        is_marked = true;
    }
    for (message, part) in [system, turn].into_iter().flatten() {
        chat.messages[message].parts[part].cache = mark;
        is_marked = true;
    }
    is_marked
}

fn is_of_model(message: &Message) -> bool {
    message.role == Role::Assistant
}

/// Whether no provider would keep the request's text, because it is too short.
fn is_short(chat: &ChatRequest) -> bool {
    let of_tools = chat.tools.iter().map(|tool| match &tool.kind {
        ToolKind::Function(function) => {
            let description = function.description.as_ref().map_or(0, String::len);
            function.input_schema.len() + description
        }
        ToolKind::Custom(tool) => tool.description.as_ref().map_or(0, String::len),
        ToolKind::BuiltIn(tool) => tool.configuration.len(),
    });
    let mut left = MIN_BYTES;
    let mut sizes = of_tools.chain(chat.messages.iter().map(bytes));
    !sizes.any(|size| {
        left = left.saturating_sub(size);
        left == 0
    })
}

/// The approximate text of a message. An image or a document counts as a long one.
fn bytes(message: &Message) -> usize {
    let parts = message.parts.iter().map(|part| match &part.content {
        Content::Text(text) | Content::Refusal(text) => text.len(),
        Content::Image(_) | Content::Audio(_) | Content::File(_) => MIN_BYTES,
        Content::Reasoning(reasoning) => reasoning.text.len(),
        Content::ToolCall(call) => call.arguments.len(),
        Content::ToolResult(result) => {
            let content = result.content.iter().map(|content| match content {
                ToolContent::Text(text) => text.len(),
                ToolContent::Image(_) | ToolContent::File(_) => MIN_BYTES,
                ToolContent::Opaque(opaque) => opaque.json.len(),
            });
            content.sum()
        }
        Content::Opaque(opaque) => opaque.json.len(),
    });
    parts.sum()
}

/// Whether a prefix may end behind a part: providers refuse a mark on reasoning and on blank text.
fn can_end_prefix(part: &Part) -> bool {
    match &part.content {
        Content::Text(text) => !text.trim().is_empty(),
        Content::Image(_) | Content::File(_) | Content::ToolCall(_) | Content::ToolResult(_) => {
            true
        }
        Content::Audio(_) | Content::Reasoning(_) | Content::Refusal(_) | Content::Opaque(_) => {
            false
        }
    }
}

/// Whether the client set a mark.
fn has_marks(chat: &ChatRequest) -> bool {
    let is_mark = |fields: &[ExtraField]| fields.iter().any(|(name, _)| name == MARK);
    let is_marked = |part: &Part| {
        let is_within = match &part.content {
            Content::Opaque(opaque) => opaque.json.contains(MARK),
            Content::ToolResult(result) => result.content.iter().any(|content| {
                matches!(content, ToolContent::Opaque(opaque) if opaque.json.contains(MARK))
            }),
            _ => false,
        };
        is_within || part.cache.is_some() || is_mark(&part.extra)
    };
    let is_of_message =
        |message: &Message| is_mark(&message.extra) || message.parts.iter().any(is_marked);
    is_mark(&chat.extra)
        || chat.messages.iter().any(is_of_message)
        || chat.tools.iter().any(|tool| {
            let is_within =
                matches!(&tool.kind, ToolKind::BuiltIn(tool) if tool.configuration.contains(MARK));
            is_within || tool.cache.is_some() || is_mark(&tool.extra)
        })
}
