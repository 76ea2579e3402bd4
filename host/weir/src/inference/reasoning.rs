//! Reasoning that only the provider that made it can read again: signed, or sealed.
//!
//! A conversation may go on with another provider, as when the first is down. It is asked without that reasoning, which it
//! would refuse, and the client is told so.

use weir_sandbox::adapter::bindings::adapter::{Request, Task};
use weir_sandbox::adapter::bindings::chat::{ChatRequest, Content, Part};

/// The provider that made the latest of it in a conversation, if any has.
pub(super) fn latest_maker(request: &ChatRequest) -> Option<&str> {
    let messages = request.messages.iter().rev();
    let mut parts = messages.flat_map(|message| message.parts.iter().rev());
    parts.find_map(maker)
}

/// The request without what this provider cannot read; `None` if it can read all of it.
pub(super) fn readable_by(provider: &str, request: &Request) -> Option<Request> {
    let Task::Chat(chat) = &request.task else {
        return None;
    };
    let mut parts = chat.messages.iter().flat_map(|message| &message.parts);
    if !parts.any(|part| is_foreign(part, provider)) {
        return None;
    }
    let mut chat = chat.clone();
    chat.messages.retain_mut(|message| {
        let had_parts = message.parts.len();
        message.parts.retain_mut(|part| {
            let is_foreign = is_foreign(part, provider);
            if is_foreign {
                part.signature = None;
            }
            !(is_foreign && matches!(part.content, Content::Reasoning(_)))
        });
        // A turn of reasoning alone says nothing without it.
        had_parts == message.parts.len() || !message.parts.is_empty()
    });
    Some(Request {
        task: Task::Chat(chat),
        ..request.clone()
    })
}

/// Whether a part is proven, or sealed, by another provider.
fn is_foreign(part: &Part, provider: &str) -> bool {
    maker(part).is_some_and(|maker| maker != provider)
}

/// The provider that alone can read a part again, if one has proven or sealed it.
fn maker(part: &Part) -> Option<&str> {
    let is_sealed =
        matches!(&part.content, Content::Reasoning(reasoning) if reasoning.sealed.is_some());
    let is_made = is_sealed || part.signature.is_some();
    part.provider.as_deref().filter(|_| is_made)
}
