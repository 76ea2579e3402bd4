//! Calls of tools in a conversation, and their results.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;

use serde_json::value::RawValue;

use super::names::Name;
use super::{Places, text_message, text_part};
use crate::chat::{
    Block, CallKind, ChatRequest, Content, Event, Image, Message, Part, Role, ToolCall,
    ToolContent, ToolResult,
};
use crate::wire::Ignored;

/// The result of a call that has none, and the texts of moved content.
const NO_RESULT: &str = "There is no result.";
const STRAY_RESULT: &str = "The result of an earlier tool call:";
const MOVED_MEDIA: &str = "(The next message has what the tool returned.)";

/// Makes arguments that are no JSON object, such as those of a call that the output limit cut, empty ones.
pub(super) fn make_arguments_objects(chat: &mut ChatRequest, ignored: &mut Ignored) {
    for part in chat
        .messages
        .iter_mut()
        .flat_map(|message| &mut message.parts)
    {
        if let Content::ToolCall(call) = &mut part.content
            && call.kind == CallKind::Function
            && !is_object(&call.arguments)
        {
            ignored.add_if(!call.arguments.trim().is_empty(), "tool_calls.arguments");
            call.arguments = "{}".to_owned();
        }
    }
}

fn is_object(json: &str) -> bool {
    json.trim_start().starts_with('{') && serde_json::from_str::<&RawValue>(json).is_ok()
}

/// Puts the results of each turn's calls behind them at once, in the order of the calls, before all other messages. A call
/// without a result gets one that says so, and a result without a call is the user's text. Media in results of a provider
/// that takes texts alone are the user's, too, behind the results.
pub(super) fn pair_results(
    chat: &mut ChatRequest,
    has_media: bool,
    places: &mut Places,
    ignored: &mut Ignored,
) {
    if is_paired(&chat.messages, has_media) {
        return;
    }
    let messages = mem::take(&mut chat.messages);
    let mut messages = messages.into_iter().enumerate().peekable();
    let mut moved: Vec<(usize, Message)> = Vec::new();
    while let Some((place, message)) = messages.next() {
        let is_assistants = message.role == Role::Assistant;
        let mut calls = calls_of(&message);
        moved.push((place, message));
        // Adjacent messages of the assistant are one turn.
        while is_assistants
            && let Some((place, next)) = messages.next_if(|(_, next)| next.role == Role::Assistant)
        {
            calls.extend(calls_of(&next));
            moved.push((place, next));
        }
        let mut answers = Vec::new();
        while let Some(answer) = messages.next_if(|(_, next)| next.role != Role::Assistant) {
            answers.push(answer);
        }
        let last = moved.last().map_or(place, |(place, _)| *place);
        moved.extend(paired(&calls, answers, has_media, last, ignored));
    }
    let order;
    (order, chat.messages) = moved.into_iter().unzip();
    places.reorder(order);
}

/// The calls of a message, without their arguments.
fn calls_of(message: &Message) -> Vec<ToolCall> {
    let calls = message.parts.iter().filter_map(|part| match &part.content {
        Content::ToolCall(call) if message.role == Role::Assistant => Some(ToolCall {
            id: call.id.clone(),
            name: call.name.clone(),
            kind: call.kind,
            arguments: String::new(),
        }),
        _ => None,
    });
    calls.collect()
}

/// Whether nothing has to move: the usual case.
fn is_paired(messages: &[Message], has_media: bool) -> bool {
    let mut open: VecDeque<&str> = VecDeque::new();
    let mut last = Role::System;
    for message in messages {
        let begins_turn = message.role == Role::Assistant && last != Role::Assistant;
        if begins_turn && !open.is_empty() {
            return false;
        }
        last = message.role;
        for part in &message.parts {
            let is_fine = match &part.content {
                Content::ToolCall(call) if message.role == Role::Assistant => {
                    open.push_back(&call.id);
                    true
                }
                _ if message.role == Role::Assistant => true,
                Content::ToolResult(result) => {
                    open.pop_front() == Some(&*result.call_id)
                        && (has_media || !has_media_of(result))
                }
                _ => open.is_empty(),
            };
            if !is_fine {
                return false;
            }
        }
    }
    open.is_empty()
}

fn has_media_of(result: &ToolResult) -> bool {
    let mut content = result.content.iter();
    content.any(|content| matches!(content, ToolContent::Image(_) | ToolContent::File(_)))
}

/// Returns the messages behind a turn of the assistant with these calls, which ends at this place.
fn paired(
    calls: &[ToolCall],
    answers: Vec<(usize, Message)>,
    has_media: bool,
    end: usize,
    ignored: &mut Ignored,
) -> Vec<(usize, Message)> {
    let mut found: Vec<Option<(usize, Message)>> = calls.iter().map(|_| None).collect();
    let (mut others, mut media) = (Vec::new(), Vec::new());
    for (place, mut answer) in answers {
        let parts = mem::take(&mut answer.parts);
        let had_parts = !parts.is_empty();
        for mut part in parts {
            let Content::ToolResult(result) = &mut part.content else {
                answer.parts.push(part);
                continue;
            };
            let mut waiting = calls.iter().zip(&mut found);
            let call = waiting.find(|(call, found)| call.id == result.call_id && found.is_none());
            let Some((_, found)) = call else {
                ignored.add("tool_call_id");
                others.push((place, stray(mem::take(&mut result.content))));
                continue;
            };
            if !has_media {
                take_media(result, &mut media);
            }
            *found = Some((
                place,
                Message {
                    role: Role::Tool,
                    name: answer.name.clone(),
                    parts: vec![part],
                    extra: answer.extra.clone(),
                },
            ));
        }
        if !answer.parts.is_empty() || !had_parts {
            others.push((place, answer));
        }
    }
    let results = calls.iter().zip(found);
    let results = results.map(|(call, found)| found.unwrap_or_else(|| (end, no_result(call))));
    let mut results: Vec<_> = results.collect();
    match others.first_mut() {
        _ if media.is_empty() => {}
        // The user's own words follow.
        Some((_, next)) if next.role == Role::User => {
            next.parts.splice(..0, media);
        }
        _ => {
            let mut message = text_message(Role::User, "");
            message.parts = media;
            results.push((end, message));
        }
    }
    results.extend(others);
    results
}

/// The result of a call that has none.
fn no_result(call: &ToolCall) -> Message {
    let mut message = text_message(Role::Tool, "");
    message.parts[0].content = Content::ToolResult(ToolResult {
        call_id: call.id.clone(),
        tool_name: Some(call.name.clone()),
        content: vec![ToolContent::Text(NO_RESULT.to_owned())],
        is_error: true,
    });
    message
}

/// The user's message of a result whose call is not in the conversation.
fn stray(content: Vec<ToolContent>) -> Message {
    let mut message = text_message(Role::User, STRAY_RESULT);
    message.parts.extend(content.into_iter().map(|content| {
        let mut part = text_part("");
        part.content = content_of(content);
        part
    }));
    message
}

/// Moves images and files out of a result.
fn take_media(result: &mut ToolResult, media: &mut Vec<Part>) {
    if !has_media_of(result) {
        return;
    }
    let content = mem::take(&mut result.content);
    for content in content {
        match content {
            ToolContent::Image(_) | ToolContent::File(_) => {
                let mut part = text_part("");
                part.content = content_of(content);
                media.push(part);
            }
            other => result.content.push(other),
        }
    }
    if result.content.is_empty() {
        let note = ToolContent::Text(MOVED_MEDIA.to_owned());
        result.content.push(note);
    }
}

/// Content of a result as the user's.
fn content_of(content: ToolContent) -> Content {
    match content {
        ToolContent::Text(text) => Content::Text(text),
        ToolContent::Image(Image { source, detail }) => Content::Image(Image { source, detail }),
        ToolContent::File(file) => Content::File(file),
        ToolContent::Opaque(opaque) => Content::Opaque(opaque),
    }
}

/// Fits the ids of calls and their results, and gives calls with the same id different ones.
pub(super) fn fit_ids(chat: &mut ChatRequest, rule: Name) {
    let mut used: BTreeSet<String> = BTreeSet::new();
    // The fitted ids of calls that wait for their results, by the client's id, and the last one that has its result.
    let mut waiting: BTreeMap<String, (VecDeque<String>, Option<String>)> = BTreeMap::new();
    for part in chat
        .messages
        .iter_mut()
        .flat_map(|message| &mut message.parts)
    {
        match &mut part.content {
            Content::ToolCall(call) => {
                let mut fitted = rule.fit(&call.id).into_owned();
                let mut number = 1;
                while !used.insert(fitted.clone()) {
                    number += 1;
                    fitted = rule.again(&call.id, number);
                }
                let clients = mem::replace(&mut call.id, fitted.clone());
                waiting.entry(clients).or_default().0.push_back(fitted);
            }
            Content::ToolResult(result) => {
                let of_call = waiting.get_mut(&result.call_id);
                let fitted = of_call.and_then(|(waiting, last)| {
                    // A result may come twice, such as one in pieces.
                    *last = waiting.pop_front().or_else(|| last.take());
                    last.clone()
                });
                result.call_id = fitted.unwrap_or_else(|| rule.fit(&result.call_id).into_owned());
            }
            _ => {}
        }
    }
}

/// The ids of a conversation's calls. Some servers count calls from zero in each answer, or give no ids; agents run no call
/// twice, and take a call with an earlier id for one that has its result.
#[derive(Debug, Default)]
pub struct CallIds(BTreeSet<String>);

impl CallIds {
    pub(super) fn of(chat: &ChatRequest) -> Self {
        let parts = chat.messages.iter().flat_map(|message| &message.parts);
        let ids = parts.filter_map(|part| match &part.content {
            Content::ToolCall(call) => Some(call.id.clone()),
            _ => None,
        });
        Self(ids.collect())
    }

    /// Gives calls in an answer other ids than those of earlier calls.
    pub fn separate(&mut self, events: &mut [Event]) {
        for event in events {
            if let Event::BlockStart(start) = event
                && let Block::ToolCall(call) = &mut start.block
            {
                let own = call.id.clone();
                let mut number = 1;
                while !self.0.insert(call.id.clone()) {
                    number += 1;
                    call.id = format!("{own}_{number}");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{BlockStart, ToolCallStart};
    use crate::fit::names::Alphabet;
    use crate::testing::{chat, message, with_messages};

    const PLAIN: Name = Name {
        most: 16,
        alphabet: Alphabet::Plain,
    };

    fn call(id: &str) -> Content {
        Content::ToolCall(ToolCall {
            id: id.to_owned(),
            name: "look".to_owned(),
            kind: CallKind::Function,
            arguments: "{}".to_owned(),
        })
    }

    fn result(id: &str, text: &str) -> Content {
        Content::ToolResult(ToolResult {
            call_id: id.to_owned(),
            tool_name: None,
            content: vec![ToolContent::Text(text.to_owned())],
            is_error: false,
        })
    }

    fn text(text: &str) -> Content {
        Content::Text(text.to_owned())
    }

    /// A line for each part: the role's letter, and an id or a text.
    fn shown(chat: &ChatRequest) -> Vec<String> {
        let parts = chat.messages.iter().flat_map(|message| {
            message
                .parts
                .iter()
                .map(|part| (message.role, &part.content))
        });
        let shown = parts.map(|(role, content)| match content {
            Content::ToolCall(call) => format!("{role:?} calls {}", call.id),
            Content::ToolResult(result) => match &result.content[..] {
                [ToolContent::Text(text)] => format!("{role:?} answers {}: {text}", result.call_id),
                other => format!("{role:?} answers {}: {other:?}", result.call_id),
            },
            Content::Text(text) => format!("{role:?}: {text}"),
            other => format!("{role:?}: {other:?}"),
        });
        shown.collect()
    }

    fn fitted(messages: Vec<Message>) -> (Vec<String>, Option<Vec<usize>>) {
        let mut chat = ChatRequest {
            messages,
            ..chat("")
        };
        let (mut places, mut ignored) = (Places::default(), Ignored::default());
        pair_results(&mut chat, true, &mut places, &mut ignored);
        // A second fit changes nothing.
        let once = shown(&chat);
        pair_results(&mut chat, true, &mut Places::default(), &mut ignored);
        assert_eq!(shown(&chat), once);
        fit_ids(&mut chat, PLAIN);
        (shown(&chat), places.0)
    }

    #[test]
    fn results_follow_their_calls() {
        let (shown, places) = fitted(vec![
            message(Role::User, vec![text("a")]),
            message(Role::Assistant, vec![call("1"), call("2")]),
            message(Role::Assistant, vec![call("3")]),
            message(Role::User, vec![text("b")]),
            message(Role::Tool, vec![result("3", "third"), result("9", "stray")]),
            message(Role::Tool, vec![result("1", "first")]),
        ]);
        assert_eq!(
            shown,
            [
                "Role::User: a",
                "Role::Assistant calls 1",
                "Role::Assistant calls 2",
                "Role::Assistant calls 3",
                "Role::Tool answers 1: first",
                "Role::Tool answers 2: There is no result.",
                "Role::Tool answers 3: third",
                "Role::User: b",
                "Role::User: The result of an earlier tool call:",
                "Role::User: stray",
            ]
        );
        // Refusals name the client's messages.
        assert_eq!(places, Some(vec![0, 1, 2, 5, 2, 4, 3, 4]));
    }

    #[test]
    fn what_is_paired_stays() {
        let messages = vec![
            message(Role::System, vec![text("s")]),
            message(Role::User, vec![text("a")]),
            message(Role::Assistant, vec![text("b"), call("1"), call("2")]),
            message(Role::Tool, vec![result("1", "x")]),
            message(Role::Tool, vec![result("2", "y")]),
            message(Role::User, vec![text("c")]),
            message(Role::Assistant, vec![text("d")]),
        ];
        assert_eq!(fitted(messages).1, None);
    }

    #[test]
    fn each_id_is_used_once() {
        let turn = |id: &str| {
            [
                message(Role::Assistant, vec![call(id)]),
                message(Role::Tool, vec![result(id, "x")]),
            ]
        };
        let messages = [turn("0"), turn("0"), turn("a.b"), turn("a:b")].concat();
        let (shown, _) = fitted(messages);
        let ids: Vec<_> = shown
            .iter()
            .map(|line| {
                line.split([' ', ':'])
                    .filter(|word| !word.is_empty())
                    .nth(3)
            })
            .collect();
        for (index, pair) in ids.chunks(2).enumerate() {
            assert_eq!(pair[0], pair[1], "{shown:?}");
            assert!(!ids[..2 * index].contains(&pair[0]), "{shown:?}");
        }
    }

    #[test]
    fn cut_arguments_become_empty_ones() {
        let mut cut = call("1");
        if let Content::ToolCall(call) = &mut cut {
            call.arguments = r#"{"at": "#.to_owned();
        }
        let mut chat = ChatRequest {
            messages: vec![message(Role::Assistant, vec![cut, call("2")])],
            ..chat("")
        };
        let mut ignored = Ignored::default();
        make_arguments_objects(&mut chat, &mut ignored);
        assert_eq!(ignored.into_names(), ["tool_calls.arguments"]);
        for part in &chat.messages[0].parts {
            assert!(matches!(&part.content, Content::ToolCall(call) if call.arguments == "{}"));
        }
    }

    #[test]
    fn calls_of_an_answer_have_ids_of_their_own() {
        let history = with_messages(vec![message(Role::Assistant, vec![call("c"), call("c_2")])]);
        let mut ids = CallIds::of(&history);
        let start = |id: &str| {
            Event::BlockStart(BlockStart {
                index: 0,
                block: Block::ToolCall(ToolCallStart {
                    id: id.to_owned(),
                    name: "look".to_owned(),
                    kind: CallKind::Function,
                }),
            })
        };
        let mut events = ["c", "new", "c"].map(start);
        ids.separate(&mut events);
        let ids = events.map(|event| match event {
            Event::BlockStart(BlockStart {
                block: Block::ToolCall(call),
                ..
            }) => call.id,
            other => panic!("{other:?}"),
        });
        assert_eq!(ids, ["c_3", "new", "c_4"]);
    }
}
