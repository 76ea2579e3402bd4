//! Long texts that stay with the host. An adapter gets an empty text in the place of each, and its request's body refers to
//! them.
//!
//! **Invariant:** the request has all its texts again after each call of the guest, even if the call is dropped.
//! **Invariant:** a guest refers only to texts of its own request, and gets those that it reads once.

use wasmtime::component::InstancePre;

use super::ProviderWorld;
use super::bindings::adapter::{Begun, Description, Failure, Request, Task};
use super::bindings::chat::{ChatRequest, Content, Role, ToolContent};
use super::bindings::long_texts::Beginning;
pub use super::bindings::long_texts::LongText;
use super::call_error::AdapterCallError;
use crate::exports::{Interface, exports};
use crate::guest::{Guest, GuestError};
use crate::world::Instance;

exports! {
    /// The function of the optional interface.
    pub LongTextExports of "weir:plugin/long-texts@0.2.3" {
        begin: Begin = "begin" (&'a Request, &'a [LongText], &'a [u8]) -> (Result<Beginning, Failure>,);
    }
}

/// The capability of adapters whose long texts stay with the host.
pub const CAPABILITY: &str = "long-texts";

/// The longest text, in bytes, that an adapter gets in the request. The handle of a shorter one would cost as much.
pub const MOST_BYTES: usize = 512;

/// Finds the interface, if a component exports it.
pub(super) fn find(
    component: &InstancePre<Guest<()>>,
) -> wasmtime::Result<Option<LongTextExports>> {
    let is_exported = Interface::is_exported(component, "weir:plugin/long-texts");
    is_exported
        .then(|| LongTextExports::find(component))
        .transpose()
}

/// Checks that a component with the capability exports the interface.
pub(super) fn check(
    exports: Option<LongTextExports>,
    description: &Description,
) -> Result<(), String> {
    match exports {
        None if description.claims(CAPABILITY) => Err(format!(
            "its capabilities include {CAPABILITY}, but it does not export weir:plugin/{CAPABILITY}"
        )),
        _ => Ok(()),
    }
}

/// The places of texts that stay with the host.
#[derive(Debug, Default)]
pub struct LongTexts(Vec<LongText>);

impl LongTexts {
    /// Finds the texts of more than this many bytes that may stay with the host: those of messages and of tools' results. The
    /// last message of the assistant stays whole, because adapters decide by it how the model goes on.
    pub fn find(chat: &ChatRequest, most_bytes: usize) -> Self {
        let is_assistant = |message: &_| matches!(message, Role::Assistant);
        let last_turn = chat
            .messages
            .iter()
            .rposition(|message| is_assistant(&message.role));
        let mut found = Vec::new();
        for (index, message) in chat.messages.iter().enumerate() {
            if Some(index) == last_turn {
                continue;
            }
            for (part, content) in message.parts.iter().enumerate() {
                let mut add = |item: Option<usize>, text: &str| {
                    // Some upstreams refuse a blank text, so adapters look for one.
                    if text.len() > most_bytes && !text.trim_start().is_empty() {
                        found.extend(place(index, part, item, text.len()));
                    }
                };
                match &content.content {
                    Content::Text(text) => add(None, text),
                    Content::ToolResult(result) => {
                        for (item, content) in result.content.iter().enumerate() {
                            if let ToolContent::Text(text) = content {
                                add(Some(item), text);
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
        Self(found)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the texts of the request that they were found in.
    pub fn of<'a>(&self, request: &'a Request) -> Vec<&'a str> {
        let Task::Chat(chat) = &request.task else {
            return Vec::new();
        };
        let text = |place: &LongText| {
            let parts = &chat.messages.get(place.message as usize)?.parts;
            match (&parts.get(place.part as usize)?.content, place.item) {
                (Content::Text(text), None) => Some(text.as_str()),
                (Content::ToolResult(result), Some(item)) => {
                    match result.content.get(item as usize)? {
                        ToolContent::Text(text) => Some(text.as_str()),
                        _ => None,
                    }
                }
                _ => None,
            }
        };
        // The index of each text counts.
        let texts = self.0.iter().map(|place| text(place).unwrap_or_default());
        texts.collect()
    }

    /// Returns the places without those that an adapter reads, by their indexes.
    fn without(mut self, read: &[u32]) -> Result<Self, GuestError> {
        let mut is_read = vec![false; self.0.len()];
        for &index in read {
            match is_read.get_mut(index as usize) {
                Some(is_read) if !*is_read => *is_read = true,
                _ => {
                    return Err(nonsense(
                        "reads a text that is not there, or reads one twice",
                    ));
                }
            }
        }
        let mut is_read = is_read.into_iter();
        self.0.retain(|_| !is_read.next().unwrap_or_default());
        Ok(self)
    }
}

fn place(message: usize, part: usize, item: Option<usize>, bytes: usize) -> Option<LongText> {
    Some(LongText {
        message: u32::try_from(message).ok()?,
        part: u32::try_from(part).ok()?,
        item: item.map(u32::try_from).transpose().ok()?,
        size_bytes: u32::try_from(bytes).ok()?,
    })
}

fn nonsense(what: &str) -> GuestError {
    GuestError::Nonsense(format!("it {what}"))
}

/// A request without its long texts. They return when this is dropped.
struct WithoutTexts<'a> {
    request: &'a mut Request,
    places: &'a [LongText],
    texts: Vec<String>,
}

impl<'a> WithoutTexts<'a> {
    fn new(request: &'a mut Request, places: &'a [LongText]) -> Self {
        let mut without = Self {
            request,
            places,
            texts: vec![String::new(); places.len()],
        };
        without.swap();
        without
    }

    /// Exchanges the texts in the request and those beside it.
    fn swap(&mut self) {
        let Task::Chat(chat) = &mut self.request.task else {
            return;
        };
        for (place, text) in self.places.iter().zip(&mut self.texts) {
            let message = &mut chat.messages[place.message as usize];
            match (&mut message.parts[place.part as usize].content, place.item) {
                (Content::Text(own), None) => std::mem::swap(own, text),
                (Content::ToolResult(result), Some(item)) => {
                    if let ToolContent::Text(own) = &mut result.content[item as usize] {
                        std::mem::swap(own, text);
                    }
                }
                _ => {}
            }
        }
    }
}

impl Drop for WithoutTexts<'_> {
    fn drop(&mut self) {
        self.swap();
    }
}

/// Begins an exchange in an instance of the component. Returns it with the texts that stay with the host.
pub(super) async fn begin(
    exports: LongTextExports,
    instance: &mut Instance<ProviderWorld>,
    (request, mut texts, request_bytes): (&mut Request, LongTexts, usize),
    configuration: &[u8],
) -> Result<(Begun, LongTexts), AdapterCallError> {
    for _ in 0..2 {
        let begun = {
            let without = WithoutTexts::new(request, &texts.0);
            let parameters = (&*without.request, &*texts.0, configuration);
            let called = instance.call_with(request_bytes, |_| exports.begin, parameters);
            called.await?.0
        };
        match begun.map_err(AdapterCallError::Failure)? {
            Beginning::Begun(begun) => return Ok((begun, texts)),
            Beginning::Read(read) => texts = texts.without(&read)?,
        }
    }
    Err(nonsense("asks twice for texts").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::{stock_client, text_chat};

    fn request(texts: &[&str]) -> Request {
        let texts = texts.iter().map(|&text| text.to_owned());
        Request {
            task: Task::Chat(text_chat("m".into(), texts)),
            attachments: Vec::new(),
            client: stock_client(),
            attempt: 1,
            deadline_ms: 1,
        }
    }

    fn chat(request: &mut Request) -> &mut ChatRequest {
        match &mut request.task {
            Task::Chat(chat) => chat,
            Task::Image(_) => panic!("it is a chat"),
        }
    }

    #[test]
    fn long_texts_stay_but_those_of_the_last_turn_and_blank_ones() {
        let long = "long ".repeat(200);
        let blank = " \n".repeat(600);
        let mut request = request(&[&long, "short", &blank, &long, &long, &long]);
        let messages = &mut chat(&mut request).messages;
        messages[0].role = Role::System;
        for turn in [3, 4] {
            messages[turn].role = Role::Assistant;
        }
        let found = LongTexts::find(chat(&mut request), MOST_BYTES);
        let messages: Vec<_> = found.0.iter().map(|text| text.message).collect();
        assert_eq!(messages, [0, 3, 5]);
        assert!(found.0.iter().all(|text| text.size_bytes == 1_000));
        assert_eq!(found.of(&request), [long.as_str(); 3]);
    }

    #[test]
    fn a_request_has_its_texts_again() {
        let mut request = request(&["first", "second"]);
        let original = request.clone();
        let found = LongTexts::find(chat(&mut request), 0);
        let without = WithoutTexts::new(&mut request, &found.0);
        let Task::Chat(emptied) = &without.request.task else {
            panic!("it is a chat");
        };
        let texts = emptied
            .messages
            .iter()
            .map(|message| &message.parts[0].content);
        assert!(
            texts
                .into_iter()
                .all(|text| *text == Content::Text(String::new()))
        );
        drop(without);
        assert_eq!(request, original);
    }

    #[test]
    fn a_text_is_read_once_and_only_if_it_is_there() {
        let mut request = request(&["a", "b", "c"]);
        let found = || LongTexts::find(chat(&mut request.clone()), 0);
        let left = found().without(&[1]).expect("it is there");
        assert_eq!(left.of(&request), ["a", "c"]);
        for read in [&[3][..], &[u32::MAX], &[0, 0]] {
            assert!(found().without(read).is_err(), "{read:?}");
        }
        request.attempt = 2;
    }
}
