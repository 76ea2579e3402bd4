//! References in a request to parts of earlier responses.
//!
//! A reference names a block of a response. Its replacement is the complete item that begins with the block: for
//! reasoning and calls the block itself, for text all consecutive text blocks.

use weir_dialects::PartReference;
use weir_sandbox::adapter::bindings::chat::{Content, Message, Part};

use super::record::says_something;

/// Replaces the references of a request, which may leave a message empty. `answer_of` returns a response by its id.
///
/// # Errors
///
/// Fails with the first reference to an unknown block.
pub(super) fn resolve<'a>(
    messages: &mut [Message],
    references: &'a [PartReference],
    answer_of: impl Fn(&str) -> Option<&'a Message>,
) -> Result<(), &'a PartReference> {
    // The loop runs backwards, so that the positions of earlier references stay valid.
    for reference in references.iter().rev() {
        let answer = answer_of(&reference.answer).ok_or(reference)?;
        let meant = answer.parts.get(reference.block).ok_or(reference)?;
        let message = messages.get_mut(reference.message).ok_or(reference)?;
        let at = reference.part;
        let is_reasoning = matches!(meant.content, Content::Reasoning(_));
        let parts = match &meant.content {
            _ if reference.is_proof && !is_reasoning => {
                if let Some(before) = message.parts[..at].last_mut()
                    && is_same(&before.content, &meant.content)
                {
                    before.signature.clone_from(&meant.signature);
                    before.provider.clone_from(&meant.provider);
                }
                Vec::new()
            }
            Content::Reasoning(_) | Content::ToolCall(_) => vec![meant.clone()],
            Content::Text(_) | Content::Refusal(_) => {
                said_in_one_go(&answer.parts[reference.block..])
            }
            _ => return Err(reference),
        };
        message.parts.splice(at..=at, parts);
    }
    Ok(())
}

/// Returns the texts up to the first other part; a proof ends them, too.
fn said_in_one_go(parts: &[Part]) -> Vec<Part> {
    let mut said = Vec::new();
    for part in parts {
        match &part.content {
            Content::Text(_) | Content::Refusal(_) if says_something(part) => {
                said.push(part.clone());
            }
            Content::Text(_) | Content::Refusal(_) | Content::Opaque(_) => {}
            _ => break,
        }
        if part.signature.is_some() {
            break;
        }
    }
    said
}

fn is_same(one: &Content, other: &Content) -> bool {
    match (one, other) {
        (Content::Text(one), Content::Text(other)) => one == other,
        (Content::ToolCall(one), Content::ToolCall(other)) => one.id == other.id,
        _ => false,
    }
}
