//! Long texts of a chat, which stay with the host.
//!
//! An adapter with the capability [`CAPABILITY`] gets a [placeholder](is_placeholder) in place of each long text of a
//! message or of a tool's result. [`Splices::text`](crate::body::Splices::text) and
//! [`Splices::joined`](crate::body::Splices::joined) mark the place of the text in the body, and the host writes the text
//! there. An adapter that must read a text asks for it with [`must_read`].
//!
//! A placeholder is known by its address, not by its content: no other text of the request can pass for one, and a copy is
//! none.

use std::cell::RefCell;

use crate::adapter::{LongText, Request, Task};
use crate::chat::{Content, ToolContent};

/// The capability of an adapter that gets placeholders. Such an adapter writes all texts of messages and results with
/// [`Splices`](crate::body::Splices).
pub const CAPABILITY: &str = "long-texts";

/// The content of a placeholder: neither empty nor blank, as no long text is.
const PLACEHOLDER: &str = "(a text that stays with the host)";

thread_local! {
    /// The texts of the exchange that begins. A guest begins one at a time.
    static KEPT: RefCell<Kept> = const { RefCell::new(Kept::new()) };
}

struct Kept {
    /// The address of each placeholder with the index of its text, in the order of the addresses.
    addresses: Vec<(usize, u32)>,
    /// The number of attachments, which precede the texts in a body.
    attachments: u32,
    /// The indexes of texts that the adapter must read.
    must_read: Vec<u32>,
}

impl Kept {
    const fn new() -> Self {
        Self {
            addresses: Vec::new(),
            attachments: 0,
            must_read: Vec::new(),
        }
    }

    fn index_of(&self, text: &str) -> Option<u32> {
        if text.len() != PLACEHOLDER.len() {
            return None;
        }
        let address = text.as_ptr().addr();
        let found = self
            .addresses
            .binary_search_by_key(&address, |(known, _)| *known);
        Some(self.addresses[found.ok()?].1)
    }
}

/// Returns whether the host has this text of the request.
pub fn is_placeholder(text: &str) -> bool {
    KEPT.with_borrow(|kept| kept.index_of(text).is_some())
}

/// Asks for a text if the host has it. The exchange then begins once more, with this text in the request, and the result of
/// this beginning is dropped.
pub fn must_read(text: &str) -> bool {
    KEPT.with_borrow_mut(|kept| {
        let Some(index) = kept.index_of(text) else {
            return false;
        };
        if !kept.must_read.contains(&index) {
            kept.must_read.push(index);
        }
        true
    })
}

/// Returns the index of a text in a body, if the host has it.
pub(crate) fn index_in_body(text: &str) -> Option<u32> {
    KEPT.with_borrow(|kept| Some(kept.attachments + kept.index_of(text)?))
}

/// Begins an exchange with placeholders in the request. Returns the texts that the adapter must read instead, if there are
/// any.
pub(crate) fn begin<T>(
    mut request: Request,
    texts: &[LongText],
    begin: impl FnOnce(Request) -> T,
) -> Result<T, Vec<u32>> {
    let addresses = texts.iter().map(|text| place(&mut request, text));
    let mut addresses: Vec<_> = addresses.zip(0..).collect();
    addresses.sort_unstable();
    let kept = Kept {
        addresses,
        attachments: u32::try_from(request.attachments.len()).unwrap_or(u32::MAX),
        must_read: Vec::new(),
    };
    KEPT.set(kept);
    let begun = begin(request);
    let kept = KEPT.replace(Kept::new());
    match kept.must_read.is_empty() {
        true => Ok(begun),
        false => Err(kept.must_read),
    }
}

/// Puts a placeholder into the place of a text, and returns its address; 0 for a place that is none.
fn place(request: &mut Request, text: &LongText) -> usize {
    let Task::Chat(chat) = &mut request.task else {
        return 0;
    };
    let message = chat.messages.get_mut(text.message as usize);
    let part = message.and_then(|message| message.parts.get_mut(text.part as usize));
    let place = match (part.map(|part| &mut part.content), text.item) {
        (Some(Content::Text(place)), None) => place,
        (Some(Content::ToolResult(result)), Some(item)) => {
            match result.content.get_mut(item as usize) {
                Some(ToolContent::Text(place)) => place,
                _ => return 0,
            }
        }
        _ => return 0,
    };
    PLACEHOLDER.clone_into(place);
    place.as_ptr().addr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::BodyPart;
    use crate::body::Splices;
    use crate::chat::Role;
    use crate::testing::{message, request, result, text, with_messages};

    fn long_text(message: u32, item: Option<u32>) -> LongText {
        LongText {
            message,
            part: 0,
            item,
            size_bytes: 600,
        }
    }

    /// A request with three texts. The first and the last stay with the host.
    fn emptied() -> (Request, [LongText; 2]) {
        let results = result("c1", vec![ToolContent::Text(String::new())], false);
        let chat = with_messages(vec![
            message(Role::User, vec![text("")]),
            message(Role::User, vec![text(PLACEHOLDER)]),
            message(Role::Tool, vec![results]),
        ]);
        (request(chat), [long_text(0, None), long_text(2, Some(0))])
    }

    fn texts(request: &Request) -> Vec<&str> {
        let Task::Chat(chat) = &request.task else {
            panic!("it is a chat");
        };
        let parts = chat.messages.iter().map(|message| &message.parts[0]);
        let texts = parts.map(|part| match &part.content {
            Content::Text(text) => text.as_str(),
            Content::ToolResult(result) => match &result.content[0] {
                ToolContent::Text(text) => text.as_str(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        });
        texts.collect()
    }

    #[test]
    fn a_body_has_the_places_of_placeholders() {
        let (request, long) = emptied();
        let written = begin(request, &long, |request| {
            let splices = Splices::default();
            let texts = texts(&request);
            let [first, forged, second] = texts[..] else {
                panic!("{texts:?}");
            };
            let body = (
                splices.text(first).between("<", ">"),
                // A text with the content of a placeholder is none, and neither is a copy.
                splices.text(forged),
                splices.text(first.to_owned()),
                splices.joined(&[second, "short", first], "\n"),
                splices.text(second),
            );
            splices.write(&body, 0).expect("JSON")
        });
        let bytes = |text: &str| BodyPart::Bytes(text.as_bytes().to_vec());
        // Three attachments precede the texts.
        let expected = [
            bytes("[\"<"),
            BodyPart::Attached(3),
            bytes(&format!(">\",\"{PLACEHOLDER}\",\"{PLACEHOLDER}\",\"")),
            BodyPart::Attached(4),
            bytes("\\nshort\\n"),
            BodyPart::Attached(3),
            bytes("\",\""),
            BodyPart::Attached(4),
            bytes("\"]"),
        ];
        assert_eq!(written, Ok(expected.to_vec()));
    }

    #[test]
    fn a_text_that_must_be_read_is_asked_for_once() {
        let (request, long) = emptied();
        let asked = begin(request, &long, |request| {
            let texts = texts(&request);
            assert!(!must_read(texts[1]) && !is_placeholder(texts[1]));
            assert!(must_read(texts[2]) && must_read(texts[2]));
        });
        assert_eq!(asked, Err(vec![1]));
        assert!(!is_placeholder(PLACEHOLDER), "the exchange has begun");
    }
}
