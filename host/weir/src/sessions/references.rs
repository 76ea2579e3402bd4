//! Parts of earlier answers that a request refers to instead of sending them again.
//!
//! A reference names a block of an answer. What stands in its place is all of the item that begins with that block: for
//! reasoning and calls the block itself, for text whatever was said in one go.

use weir_dialects::Reference;
use weir_sandbox::adapter::bindings::chat::{Content, Message, Part};

use super::record::says_something;

/// Puts what a request refers to where it stands, which may leave a message empty. `answer_of` has the answers by their
/// ids.
///
/// # Errors
///
/// The first reference found to name nothing that was said.
pub(super) fn resolve<'a>(
    messages: &mut [Message],
    references: &'a [Reference],
    answer_of: impl Fn(&str) -> Option<&'a Message>,
) -> Result<(), &'a Reference> {
    // From behind, so that the places of those before stay what they are.
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

/// Texts up to what is none; a proof ends them.
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
