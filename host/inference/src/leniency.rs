//! Requests that an adapter refuses because of something that its response does not need.
//!
//! An adapter refuses each field that it cannot express, before weir sends anything. If the response means the same
//! without the field, weir leaves it out and asks again, and names the field to the client:
//!
//! - tools that an upstream of the client's own dialect would run itself, unless the model must call them;
//! - the `name` of messages, and the `seed`;
//! - the fields that the client or the operator allows weir to drop.
//!
//! Images and files in the result of a tool move into a message of the user behind it.
//!
//! **Invariant:** the number of attempts is bounded, because each leaves out more than the one before.

use std::mem;

use weir_dialects::plain;
use weir_sandbox::adapter::bindings::adapter::{Failure, FailureKind, Request, Task};
use weir_sandbox::adapter::bindings::chat::{
    ChatRequest, Content, ExtraField, Message, Part, ResponseFormat, Role, Tool, ToolChoice,
    ToolContent, ToolKind,
};

/// A text in the place of an image or a file that moved.
const MOVED: &str = "(in the next message of the user)";

/// A request without refused fields.
#[derive(Default)]
pub(super) struct LenientRequest {
    /// The changed request, if the adapter has refused the original one.
    pub(super) request: Option<Request>,
    /// The names of the fields that it lacks.
    pub(super) ignored: Vec<String>,
    /// The positions of added messages, in the changed request.
    added: Vec<usize>,
    /// The positions of the tools that are left out, in the original request.
    tools: Vec<usize>,
}

impl LenientRequest {
    /// Leaves out the field that an adapter has refused. Returns whether the adapter may be asked again. `dialect` is the
    /// adapter's dialect, and `droppable` the names of fields that weir may drop.
    pub(super) fn leave_out(
        &mut self,
        failure: &Failure,
        original: &Request,
        dialect: &str,
        droppable: &[String],
    ) -> bool {
        let Some(param) = refused_field(failure) else {
            return false;
        };
        let mut request = self.request.take().unwrap_or_else(|| original.clone());
        let is_foreign = request.client.dialect != dialect;
        let Task::Chat(chat) = &mut request.task else {
            return false;
        };
        let left_out = self
            .hosted_tools(chat, param, is_foreign)
            .or_else(|| seed(chat, param))
            .or_else(|| names(chat, param))
            .or_else(|| self.moved(chat, param))
            .or_else(|| dropped(chat, param, droppable));
        self.request = Some(request);
        let is_changed = left_out.is_some();
        for name in left_out.into_iter().flatten() {
            if !self.ignored.contains(&name) {
                self.ignored.push(name);
            }
        }
        is_changed
    }

    /// Returns a failure with the positions of messages and tools in the original request.
    pub(super) fn original_place(&self, mut failure: Failure) -> Failure {
        let moved_back = |text: &str| {
            let (list, rest) = text.split_once('[')?;
            let (index, rest) = rest.split_once(']')?;
            let index: usize = index.parse().ok()?;
            let original = match list {
                "messages" => index - self.added.iter().filter(|at| **at < index).count(),
                "tools" => {
                    let passed = self.tools.iter().enumerate();
                    // Before each tool, there were as many of those left out.
                    index + passed.filter(|(count, at)| **at <= index + count).count()
                }
                _ => return None,
            };
            Some(format!("{list}[{original}]{rest}"))
        };
        if let Some(text) = moved_back(&failure.text) {
            failure.text = text;
        }
        if let Some(param) = failure.param.as_deref().and_then(moved_back) {
            failure.param = Some(param);
        }
        failure
    }

    /// Leaves out the tools of another dialect that its upstreams run themselves.
    fn hosted_tools(
        &mut self,
        chat: &mut ChatRequest,
        param: &str,
        is_foreign: bool,
    ) -> Option<Vec<String>> {
        let hosted = |index: usize| match &chat.tools.get(index)?.kind {
            ToolKind::BuiltIn(tool) => Some(tool),
            ToolKind::Function(_) | ToolKind::Custom(_) => None,
        };
        let is_refused = match index_in(param, "tools[") {
            Some(index) => hosted(index).is_some(),
            None => (0..chat.tools.len())
                .filter_map(hosted)
                .any(|tool| tool.kind == param),
        };
        if !is_refused || !is_foreign {
            return None;
        }
        let forced: &[String] = match &chat.tool_choice {
            ToolChoice::Named(name) => std::slice::from_ref(name),
            ToolChoice::Among(among) => &among.names,
            ToolChoice::Auto | ToolChoice::None | ToolChoice::Required => &[],
        };
        let is_kept = |tool: &Tool| match &tool.kind {
            ToolKind::BuiltIn(tool) => tool.name.as_ref().is_some_and(|name| forced.contains(name)),
            ToolKind::Function(_) | ToolKind::Custom(_) => true,
        };
        let is_left_out = |(_, tool): &(usize, &Tool)| !is_kept(tool);
        let left_out = chat.tools.iter().enumerate().filter(is_left_out);
        let left_out: Vec<_> = left_out.map(|(index, _)| index).collect();
        let is_all = left_out.len() == chat.tools.len();
        if left_out.is_empty() || is_all && chat.tool_choice == ToolChoice::Required {
            return None;
        }
        let kinds = left_out.iter().filter_map(|index| hosted(*index));
        let kinds = kinds.map(|tool| tool.kind.clone()).collect();
        chat.tools.retain(is_kept);
        self.tools = left_out;
        Some(kinds)
    }

    /// Moves images and files out of the results of tools.
    fn moved(&mut self, chat: &mut ChatRequest, param: &str) -> Option<Vec<String>> {
        let refused = message_index(param)?;
        let is_result = chat.messages.get(refused)?.role == Role::Tool;
        if !is_result || !chat.messages[refused].parts.iter().any(has_media) {
            return None;
        }
        let mut messages = Vec::with_capacity(chat.messages.len() + 1);
        let mut media = Vec::new();
        for mut message in mem::take(&mut chat.messages) {
            if message.role == Role::Tool {
                media.extend(message.parts.iter_mut().flat_map(take_media));
            } else if !media.is_empty() {
                // The results of a turn's calls stay together, and the user's message follows.
                if message.role == Role::User {
                    let said = mem::replace(&mut message.parts, mem::take(&mut media));
                    message.parts.extend(said);
                } else {
                    self.added.push(messages.len());
                    messages.push(of_user(mem::take(&mut media)));
                }
            }
            messages.push(message);
        }
        if !media.is_empty() {
            messages.push(of_user(media));
        }
        chat.messages = messages;
        Some(Vec::new())
    }
}

/// The field that a refusal names. Without a field, its first word counts, as in errors.
fn refused_field(failure: &Failure) -> Option<&str> {
    if failure.kind != FailureKind::Unsupported {
        return None;
    }
    let first_word = failure.text.split([' ', ':']).next();
    failure.param.as_deref().or(first_word)
}

fn seed(chat: &mut ChatRequest, param: &str) -> Option<Vec<String>> {
    if param != "seed" {
        return None;
    }
    chat.seed.take().map(|_| vec!["seed".to_owned()])
}

fn names(chat: &mut ChatRequest, param: &str) -> Option<Vec<String>> {
    let refused = message_index(param)?;
    chat.messages.get(refused)?.name.as_ref()?;
    for message in &mut chat.messages {
        message.name = None;
    }
    Some(vec!["name".to_owned()])
}

/// Drops a field that the client or the operator allows weir to drop, wherever the request has it.
fn dropped(chat: &mut ChatRequest, param: &str, droppable: &[String]) -> Option<Vec<String>> {
    let name = param.rsplit('.').next().unwrap_or(param);
    if !droppable.iter().any(|known| known == name) {
        return None;
    }
    let mut is_dropped = match name {
        "temperature" => chat.temperature.take().is_some(),
        "top_p" => chat.top_p.take().is_some(),
        "top_k" => chat.top_k.take().is_some(),
        "presence_penalty" => chat.presence_penalty.take().is_some(),
        "frequency_penalty" => chat.frequency_penalty.take().is_some(),
        "parallel_tool_calls" => chat.parallel_tool_calls.take().is_some(),
        "stop" => !mem::take(&mut chat.stop).is_empty(),
        "response_format" => {
            let format = mem::replace(&mut chat.response_format, ResponseFormat::Text);
            format != ResponseFormat::Text
        }
        _ => false,
    };
    let mut drop_from = |extra: &mut Vec<ExtraField>| {
        let fields = extra.len();
        // An extra field of a nested object has the object's name before its own.
        extra.retain(|(field, _)| field.rsplit('.').next() != Some(name));
        is_dropped |= extra.len() < fields;
    };
    drop_from(&mut chat.extra);
    for message in &mut chat.messages {
        drop_from(&mut message.extra);
        for part in &mut message.parts {
            drop_from(&mut part.extra);
        }
    }
    for tool in &mut chat.tools {
        drop_from(&mut tool.extra);
    }
    is_dropped.then(|| vec![name.to_owned()])
}

fn has_media(part: &Part) -> bool {
    match &part.content {
        Content::ToolResult(result) => result.content.iter().any(is_media),
        _ => false,
    }
}

fn is_media(content: &ToolContent) -> bool {
    matches!(content, ToolContent::Image(_) | ToolContent::File(_))
}

/// Takes the images and files out of a result. A text says to the model where they are.
fn take_media(part: &mut Part) -> Vec<Part> {
    let Content::ToolResult(result) = &mut part.content else {
        return Vec::new();
    };
    if !result.content.iter().any(is_media) {
        return Vec::new();
    }
    let call = format!("(from the tool call {})", result.call_id);
    let mut taken = vec![plain(Content::Text(call))];
    for content in mem::take(&mut result.content) {
        match content {
            ToolContent::Image(image) => taken.push(plain(Content::Image(image))),
            ToolContent::File(file) => taken.push(plain(Content::File(file))),
            other => result.content.push(other),
        }
    }
    result.content.push(ToolContent::Text(MOVED.to_owned()));
    taken
}

fn of_user(parts: Vec<Part>) -> Message {
    Message {
        role: Role::User,
        name: None,
        parts,
        extra: Vec::new(),
    }
}

fn message_index(param: &str) -> Option<usize> {
    index_in(param, "messages[")
}

/// The index in a path that begins with this list.
fn index_in(param: &str, list: &str) -> Option<usize> {
    let (index, _) = param.strip_prefix(list)?.split_once(']')?;
    index.parse().ok()
}
