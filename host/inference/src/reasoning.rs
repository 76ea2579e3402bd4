//! Signed or sealed reasoning, which only its own provider can read.
//!
//! A conversation may continue with another provider, for example after a failure. weir removes that reasoning from the
//! request, because the other provider would reject it, and informs the client.

use weir_sandbox::adapter::bindings::adapter::{Request, Task};
use weir_sandbox::adapter::bindings::chat::{ChatRequest, Content, Part};

/// Returns the provider of a conversation's latest signed or sealed reasoning.
pub(super) fn latest_maker(request: &ChatRequest) -> Option<&str> {
    let messages = request.messages.iter().rev();
    let mut parts = messages.flat_map(|message| message.parts.iter().rev());
    parts.find_map(maker)
}

/// Returns the request without parts that this provider cannot read; `None` if it can read all.
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
            // Only the signature gave an empty text a meaning.
            let needs_maker = match &part.content {
                Content::Reasoning(_) => true,
                Content::Text(text) => text.is_empty(),
                _ => false,
            };
            !(is_foreign && needs_maker)
        });
        // A message with reasoning alone is empty without it.
        had_parts == message.parts.len() || !message.parts.is_empty()
    });
    Some(Request {
        task: Task::Chat(chat),
        ..request.clone()
    })
}

/// Whether another provider has signed or sealed a part.
fn is_foreign(part: &Part, provider: &str) -> bool {
    maker(part).is_some_and(|maker| maker != provider)
}

/// The only provider that can read a part, if it is signed or sealed.
fn maker(part: &Part) -> Option<&str> {
    let is_sealed =
        matches!(&part.content, Content::Reasoning(reasoning) if reasoning.sealed.is_some());
    let is_made = is_sealed || part.signature.is_some();
    part.provider.as_deref().filter(|_| is_made)
}
