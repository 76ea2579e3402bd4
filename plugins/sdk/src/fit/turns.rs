//! The turns of a conversation: who begins, who ends, and texts that say nothing.

use super::{Places, Rules, text_message};
use crate::chat::{ChatRequest, Content, Message, Part, Role, ToolContent};
use crate::wire::Ignored;

/// The user's words where the provider needs some.
pub(super) const CONTINUE: &str = "Continue.";

pub(super) fn fit(
    chat: &mut ChatRequest,
    rules: &Rules,
    places: &mut Places,
    ignored: &mut Ignored,
) {
    if !rules.allows_trailing_space {
        trim_last_turn(chat);
    }
    if !rules.allows_blank_texts {
        for message in &mut chat.messages {
            drop_blank_texts(message, ignored);
        }
        places.retain(&mut chat.messages, |message| !message.parts.is_empty());
    }
    let is_prompt = |message: &Message| message.role != Role::System;
    let first = chat.messages.iter().position(is_prompt);
    match first {
        None if rules.needs_prompt => {
            if let Some(last) = chat.messages.last_mut() {
                last.role = Role::User;
            }
        }
        Some(first) if rules.begins_with_user && chat.messages[first].role == Role::Assistant => {
            let opening = text_message(Role::User, CONTINUE);
            places.insert(&mut chat.messages, first, opening);
        }
        _ => {}
    }
}

/// Removes white space at the end of a conversation that the model continues.
fn trim_last_turn(chat: &mut ChatRequest) {
    let last = chat.messages.last_mut();
    let last = last.filter(|message| message.role == Role::Assistant);
    let Some(message) = last else { return };
    while let Some(Part {
        content: Content::Text(text),
        signature: None,
        ..
    }) = message.parts.last_mut()
    {
        text.truncate(text.trim_end().len());
        if !text.is_empty() {
            return;
        }
        message.parts.pop();
    }
}

/// Drops texts that are empty or white space. Their marks go to the part before them.
fn drop_blank_texts(message: &mut Message, ignored: &mut Ignored) {
    let mut kept: Vec<Part> = Vec::with_capacity(message.parts.len());
    for mut part in message.parts.drain(..) {
        match &mut part.content {
            Content::Text(text) | Content::Refusal(text)
                if part.signature.is_none() && text.trim().is_empty() =>
            {
                let before = kept.last_mut().map(|before| &mut before.cache);
                match before.filter(|before| before.is_none()) {
                    Some(before) => *before = part.cache,
                    None => ignored.add_if(part.cache.is_some(), "cache_control"),
                }
                continue;
            }
            Content::ToolResult(result) => result.content.retain(
                |content| !matches!(content, ToolContent::Text(text) if text.trim().is_empty()),
            ),
            _ => {}
        }
        kept.push(part);
    }
    message.parts = kept;
}
