//! The texts of a request that a model reads.

use weir_sdk::chat::{
    CallKind, ChatRequest, Content, ExtraField, File, Message, Part, ResponseFormat, Tool,
    ToolContent, ToolKind,
};
use weir_sdk::filter::Task;

use crate::json::{self, Scope};

/// The writer of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// The client, or a model whose text may change.
    Client,
    /// A provider that wants its text back as it wrote it: signed reasoning, or a block of a server's tool.
    Provider,
}

/// Replaces texts: `None` keeps a text.
pub type Replace<'a> = dyn FnMut(&str, Author) -> Option<String> + 'a;

/// Calls `each` for every text of a request, in the order of a prompt: tools before messages.
///
/// Names of tools, names of properties, grammars, and the configuration of a provider's tools stay.
pub fn each_text(task: &mut Task, each: &mut Replace<'_>) {
    let chat = match task {
        Task::Image(image) => return client(&mut image.prompt, each),
        Task::Chat(chat) => chat,
    };
    for tool in &mut chat.tools {
        each_of_tool(tool, each);
    }
    if let ResponseFormat::JsonSchema(format) = &mut chat.response_format {
        optional(&mut format.description, each);
        in_json(&mut format.schema, Scope::Schema, Author::Client, each);
    }
    for message in &mut chat.messages {
        each_of_message(message, each);
    }
    for stop in &mut chat.stop {
        client(stop, each);
    }
    for (_, json) in chat.extra.iter_mut().filter(|field| is_text(field)) {
        in_json(json, Scope::All, Author::Client, each);
    }
}

/// Whether a field beyond the vocabulary is a text for the model: the text after the place that it fills in.
fn is_text((name, _): &ExtraField) -> bool {
    name == "suffix"
}

/// Calls `each` for the texts of a request that [`each_text`] leaves out, in any form: a model may read them, too.
pub fn each_kept_text(task: &Task, mut each: impl FnMut(&str)) {
    let Task::Chat(chat) = task else {
        return;
    };
    let ChatRequest { tools, extra, .. } = chat;
    for tool in tools {
        match &tool.kind {
            ToolKind::Function(function) => each(&function.input_schema),
            ToolKind::BuiltIn(built_in) => each(&built_in.configuration),
            ToolKind::Custom(custom) => custom.format.iter().for_each(|format| each(format)),
        }
    }
    let kept = extra.iter().filter(|field| !is_text(field));
    kept.for_each(|(_, json)| each(json));
}

fn each_of_tool(tool: &mut Tool, each: &mut Replace<'_>) {
    match &mut tool.kind {
        ToolKind::Function(function) => {
            optional(&mut function.description, each);
            in_json(
                &mut function.input_schema,
                Scope::Schema,
                Author::Client,
                each,
            );
        }
        ToolKind::Custom(custom) => optional(&mut custom.description, each),
        ToolKind::BuiltIn(_) => {}
    }
}

fn each_of_message(message: &mut Message, each: &mut Replace<'_>) {
    optional(&mut message.name, each);
    for part in &mut message.parts {
        each_of_part(part, each);
        each_of_extra(&mut part.extra, each);
    }
    each_of_extra(&mut message.extra, each);
}

fn each_of_part(part: &mut Part, each: &mut Replace<'_>) {
    let is_of_provider = part.provider.is_some() || part.signature.is_some();
    let author = |is_sealed: bool| match is_of_provider || is_sealed {
        true => Author::Provider,
        false => Author::Client,
    };
    match &mut part.content {
        Content::Text(text) | Content::Refusal(text) => client(text, each),
        Content::Reasoning(reasoning) => {
            let author = author(reasoning.sealed.is_some());
            replace(&mut reasoning.text, author, each);
        }
        Content::ToolCall(call) => match call.kind {
            CallKind::Function => in_json(&mut call.arguments, Scope::All, Author::Client, each),
            CallKind::Custom => client(&mut call.arguments, each),
        },
        Content::ToolResult(result) => {
            for content in &mut result.content {
                match content {
                    ToolContent::Text(text) if json::is_container(text) => {
                        in_json(text, Scope::All, Author::Client, each);
                    }
                    ToolContent::Text(text) => client(text, each),
                    ToolContent::File(file) => each_of_file(file, each),
                    ToolContent::Opaque(block) => {
                        in_json(&mut block.json, Scope::Block, author(false), each);
                    }
                    ToolContent::Image(_) => {}
                }
            }
        }
        Content::File(file) => each_of_file(file, each),
        Content::Opaque(block) => in_json(&mut block.json, Scope::Block, author(false), each),
        Content::Image(_) | Content::Audio(_) => {}
    }
}

fn each_of_file(file: &mut File, each: &mut Replace<'_>) {
    for text in [&mut file.name, &mut file.title, &mut file.context] {
        optional(text, each);
    }
}

/// Fields of the client's dialect, such as the citations of an earlier response.
fn each_of_extra(extra: &mut [ExtraField], each: &mut Replace<'_>) {
    for (_, json) in extra {
        in_json(json, Scope::Block, Author::Client, each);
    }
}

fn client(text: &mut String, each: &mut Replace<'_>) {
    replace(text, Author::Client, each);
}

fn optional(text: &mut Option<String>, each: &mut Replace<'_>) {
    if let Some(text) = text {
        client(text, each);
    }
}

fn replace(text: &mut String, author: Author, each: &mut Replace<'_>) {
    if let Some(changed) = each(text, author) {
        *text = changed;
    }
}

fn in_json(json: &mut String, scope: Scope, author: Author, each: &mut Replace<'_>) {
    if let Some(changed) = json::rewrite(json, scope, &mut |text| each(text, author)) {
        *json = changed;
    }
}
