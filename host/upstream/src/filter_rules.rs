//! Rules for a filter's verdict on a request, and for its events of a response.
//!
//! The gateway and `weir plugin check` apply the same rules.

use weir_sandbox::adapter::bindings::chat::{Content, Event, Image, Message, Source, ToolContent};
use weir_sandbox::filter::bindings::filter::Task;
use weir_sandbox::{GuestError, printable};

use crate::sequence::{OutOfOrder, Sequence};

/// Bytes of a response's text that a filter may hold back in a row.
pub const LOOK_BEHIND_BYTES: usize = 4 << 10;

/// The most annotations of one filter, and bytes of an annotation's name or value.
const MAX_ANNOTATIONS: usize = 16;
const MAX_ANNOTATION_BYTES: usize = 64;

/// A rule that a filter broke.
#[derive(Debug, thiserror::Error)]
pub enum FilterFault {
    /// The sandbox stopped the filter's guest.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// The changed request is not valid.
    #[error("its change of the request {0}")]
    Change(&'static str),
    /// The filter chose an upstream that does not exist, or chose one twice.
    #[error("it chooses an upstream that does not exist, or the same one twice")]
    Choice,
    /// The annotations do not fit into a header.
    #[error(
        "its annotations are more than {MAX_ANNOTATIONS}, or not of letters, digits, '-', '_' and '.'"
    )]
    Annotation,
    /// The filter's events are not a valid response.
    #[error("its events are not a valid response: {0}")]
    OutOfOrder(#[from] OutOfOrder),
    /// The filter made events that only the host may make.
    #[error("it makes images, usage or parts that only a provider makes")]
    Forged,
    /// The filter asks a service that the operator did not configure.
    #[error("it asks a service, but its configuration has no `service`")]
    NoService,
    /// The filter asks its service more than once.
    #[error("it asks its service more than once for a request")]
    AskedTwice,
    #[error("its request to its service has more than {0} bytes")]
    ServiceRequestTooLarge(usize),
    /// The filter's service failed.
    #[error("its service failed: {0}")]
    Service(String),
    /// The filter cannot decide.
    #[error("it cannot decide: {0}")]
    Undecided(String),
    /// The filter checks whole responses, which its configuration does not allow.
    #[error("it checks whole responses, but its `whole_bytes` is 0")]
    NoWhole,
    /// The filter responds to a request for images.
    #[error("it responds to a request for images")]
    ResponseToImages,
    /// The filter holds back more than [`LOOK_BEHIND_BYTES`].
    #[error("it holds back more than {LOOK_BEHIND_BYTES} bytes of the response")]
    HeldBack,
}

/// Tells whether filters see an event. They see no bytes of images and recordings, and no usage.
pub fn is_shown(event: &Event) -> bool {
    !matches!(
        event,
        Event::MediaBytes(_) | Event::Media(_) | Event::Usage(_)
    )
}

/// Returns the bytes of text in a fragment; 0 for other events.
pub fn spoken_bytes(event: &Event) -> usize {
    match event {
        Event::Fragment(piece) => piece.text.len(),
        _ => 0,
    }
}

/// Returns the candidates that a filter chooses, in its order. `indexes` are places in `allowed`.
pub fn choose(indexes: &[u32], allowed: &[usize]) -> Result<Vec<usize>, FilterFault> {
    let mut chosen = Vec::new();
    for index in indexes {
        let at = allowed.get(*index as usize).copied();
        match at.filter(|at| !chosen.contains(at)) {
            Some(at) => chosen.push(at),
            None => return Err(FilterFault::Choice),
        }
    }
    Ok(chosen)
}

/// Returns the fault of a filter that cannot decide, with its reason in a form for the log.
pub fn undecided(why: &str) -> FilterFault {
    FilterFault::Undecided(printable(why, 300))
}

/// Checks that a filter's own response to a request is valid, and has no part that only a provider or the host makes.
pub fn check_own_response(task: &Task, events: &[Event]) -> Result<(), FilterFault> {
    let Task::Chat(chat) = task else {
        return Err(FilterFault::ResponseToImages);
    };
    let is_own = |event: &Event| {
        let is_of_provider = matches!(
            event,
            Event::Signature(_) | Event::Sealed(_) | Event::Opaque(_)
        );
        is_shown(event) && !is_of_provider
    };
    if !events.iter().all(is_own) {
        return Err(FilterFault::Forged);
    }
    let mut sequence = Sequence::new(chat.max_output_tokens);
    for event in events {
        sequence.follow(event)?;
    }
    Ok(sequence.end()?)
}

/// Checks that annotations are few and fit into a header.
pub fn check_annotations(annotations: &[(String, String)]) -> Result<(), FilterFault> {
    let is_word = |text: &String| {
        (1..=MAX_ANNOTATION_BYTES).contains(&text.len())
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    let mut words = annotations.iter();
    let are_words = words.all(|(name, value)| is_word(name) && is_word(value));
    match annotations.len() <= MAX_ANNOTATIONS && are_words {
        true => Ok(()),
        false => Err(FilterFault::Annotation),
    }
}

/// Checks that a changed request has the kind of the original request, is not empty, and refers to existing attachments only.
pub fn check_change(was: &Task, changed: &Task, attachments: usize) -> Result<(), FilterFault> {
    let is_there = |source: &Source| match source {
        Source::Attachment(index) => (*index as usize) < attachments,
        Source::Url(_) | Source::Id(_) => true,
    };
    let nowhere = FilterFault::Change("refers to an attachment that does not exist");
    match (was, changed) {
        (Task::Chat(_), Task::Chat(chat)) if chat.messages.is_empty() => {
            Err(FilterFault::Change("has no messages"))
        }
        (Task::Chat(_), Task::Chat(chat)) => {
            let mut sources = chat.messages.iter().flat_map(sources);
            if sources.all(is_there) {
                Ok(())
            } else {
                Err(nowhere)
            }
        }
        (Task::Image(was), Task::Image(image)) => {
            let sources = |image: &Image| is_there(&image.source);
            if image.count != was.count {
                // The hold for the request covers the original number.
                return Err(FilterFault::Change("asks for another number of images"));
            }
            match image.inputs.iter().chain(&image.mask).all(sources) {
                true => Ok(()),
                false => Err(nowhere),
            }
        }
        _ => Err(FilterFault::Change("is of another kind")),
    }
}

/// Returns the sources of a message's images, recordings and files.
fn sources(message: &Message) -> impl Iterator<Item = &Source> {
    message.parts.iter().flat_map(|part| match &part.content {
        Content::Image(image) => vec![&image.source],
        Content::Audio(audio) => vec![&audio.source],
        Content::File(file) => vec![&file.source],
        Content::ToolResult(result) => {
            let content = result.content.iter();
            let sources = content.filter_map(|content| match content {
                ToolContent::Image(image) => Some(&image.source),
                ToolContent::File(file) => Some(&file.source),
                ToolContent::Text(_) | ToolContent::Opaque(_) => None,
            });
            sources.collect()
        }
        Content::Text(_)
        | Content::Reasoning(_)
        | Content::Refusal(_)
        | Content::ToolCall(_)
        | Content::Opaque(_) => Vec::new(),
    })
}
