//! The walk over a request: every place whose text a model may read, each once.
//!
//! **Invariant:** the walk names each field of each record and each case of each variant. A new field or a new kind of part
//! does not compile until somebody decides what its readers see. A change of what they see is a new [`VERSION`].
//!
//! A reader sees no encrypted content and no proofs: only the provider that made them can write them. It sees them if
//! they are not of base64, because then they are text.

use std::collections::BTreeSet;

use crate::chat::{
    AllowedTools, Audio, BuiltInTool, CallKind, ChatRequest, Content, CustomTool, ExtraField, File,
    FunctionTool, Image, ImageRequest, JsonSchema, Message, Opaque, Part, Reasoning,
    ReasoningRequest, ResponseFormat, Source, Tool, ToolCall, ToolChoice, ToolContent, ToolKind,
    ToolResult,
};
use crate::filter_bindings::exports::weir::plugin::filter::{Refusal, Task};
use crate::json_texts::{self, Form, Scope};

/// The version of the walk, which every filter of this SDK exports; see `wit/filter-walk.wit`.
pub const VERSION: u32 = 1;

/// Fields of a request that name text at the provider.
const STORED: [&str; 4] = ["cachedContent", "cached_content", "container", "thread"];

/// The rights of a reader on a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Change it.
    Free,
    /// Only change it back: a provider signed it, and accepts no other text.
    Proven,
    /// Only read it: a change would break its meaning, as of a name, an id, a schema or a grammar.
    Fixed,
}

/// A text of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text<'a> {
    /// The text, which is not empty.
    pub text: &'a str,
    /// The rights of a reader on it.
    pub access: Access,
    /// Whether it is a name, an id, a word, or a string within JSON, and not a text by itself.
    pub is_piece: bool,
}

/// Something that a model reads and a filter cannot read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unread {
    /// An image.
    Image,
    /// A recording.
    Audio,
    /// A file of bytes, such as a PDF.
    File,
    /// Bytes in base64 within a block or a field of a provider.
    Bytes,
    /// Text that the provider keeps, such as a cached beginning.
    Stored,
}

impl Unread {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::Image,
        Self::Audio,
        Self::File,
        Self::Bytes,
        Self::Stored,
    ];

    /// Its name in options of filters.
    pub fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Audio => "audio",
            Self::File => "file",
            Self::Bytes => "bytes",
            Self::Stored => "stored",
        }
    }

    /// Reads a list of names with commas between them.
    ///
    /// # Errors
    ///
    /// Completes a sentence that begins with an option's name.
    pub fn parse_list(list: &str) -> Result<Vec<Self>, String> {
        let names = list.split(',').map(str::trim);
        let read = names.map(|name| Self::ALL.into_iter().find(|one| one.name() == name));
        read.collect::<Option<_>>().ok_or_else(|| {
            let names = Self::ALL.map(Self::name);
            format!("must be a list of {}", names.join(", "))
        })
    }

    fn described(self) -> &'static str {
        match self {
            Self::Image => "has an image",
            Self::Audio => "has a recording",
            Self::File => "has a file",
            Self::Bytes => "has encoded bytes",
            Self::Stored => "refers to text that the provider keeps",
        }
    }
}

/// A reader of a request.
pub trait Reader {
    /// Reads a text. The walk replaces it by the result; it ignores the result of a fixed text.
    fn text(&mut self, text: Text<'_>) -> Option<String>;

    /// Learns about something that no filter can read.
    fn unread(&mut self, _: Unread) {}
}

/// Walks over a request, in the order of a prompt: tools before messages.
pub fn walk(task: &mut Task, reader: &mut dyn Reader) {
    match task {
        Task::Chat(chat) => walk_chat(chat, reader),
        Task::Image(image) => walk_image(image, reader),
    }
}

/// Calls `each` with every text of a request. A change of a fixed text has no effect.
pub fn each_text(task: &mut Task, each: impl FnMut(&mut String)) {
    struct EachText<F>(F);

    impl<F: FnMut(&mut String)> Reader for EachText<F> {
        fn text(&mut self, Text { text, .. }: Text<'_>) -> Option<String> {
            let mut changed = text.to_owned();
            (self.0)(&mut changed);
            (changed != text).then_some(changed)
        }
    }
    walk(task, &mut EachText(each));
}

/// Refuses a request with something that no filter can read, except for the kinds that the operator lets pass.
///
/// # Errors
///
/// The refusal names the first kind.
pub fn check_is_readable(task: &mut Task, passed: &[Unread]) -> Result<(), Refusal> {
    struct Found(BTreeSet<Unread>);

    impl Reader for Found {
        fn text(&mut self, _: Text<'_>) -> Option<String> {
            None
        }

        fn unread(&mut self, what: Unread) {
            self.0.insert(what);
        }
    }
    let mut found = Found(BTreeSet::new());
    walk(task, &mut found);
    match found.0.into_iter().find(|one| !passed.contains(one)) {
        None => Ok(()),
        Some(unread) => Err(Refusal {
            why: format!("{}, which the filter cannot read", unread.described()),
            param: None,
        }),
    }
}

fn walk_chat(chat: &mut ChatRequest, reader: &mut dyn Reader) {
    let ChatRequest {
        // A name of the gateway's catalog.
        model: _,
        messages,
        tools,
        tool_choice,
        parallel_tool_calls: _,
        response_format,
        reasoning,
        modalities,
        max_output_tokens: _,
        temperature: _,
        top_p: _,
        top_k: _,
        presence_penalty: _,
        frequency_penalty: _,
        seed: _,
        stop,
        extra,
        stream: _,
    } = chat;
    for tool in tools {
        walk_tool(tool, reader);
    }
    match tool_choice {
        ToolChoice::Auto | ToolChoice::None | ToolChoice::Required => {}
        ToolChoice::Named(name) => fixed(name, reader),
        ToolChoice::Among(AllowedTools { names, required: _ }) => {
            names.iter().for_each(|name| fixed(name, reader));
        }
    }
    match response_format {
        ResponseFormat::Text | ResponseFormat::Json => {}
        ResponseFormat::JsonSchema(JsonSchema {
            name,
            description,
            strict: _,
            schema,
        }) => {
            fixed_optional(name.as_ref(), reader);
            free_optional(description, reader);
            in_json(schema, Scope::Schema, reader);
        }
    }
    for message in messages {
        walk_message(message, reader);
    }
    for stop in stop {
        free(stop, reader);
    }
    let ReasoningRequest {
        effort: _,
        budget_tokens: _,
        summary,
        adaptive: _,
    } = reasoning;
    fixed_optional(summary.as_ref(), reader);
    modalities.iter().for_each(|word| fixed(word, reader));
    walk_request_fields(extra, reader);
}

fn walk_image(image: &mut ImageRequest, reader: &mut dyn Reader) {
    let ImageRequest {
        model: _,
        prompt,
        inputs,
        mask,
        count: _,
        size,
        quality,
        background,
        media_type,
        extra,
        stream: _,
    } = image;
    free(prompt, reader);
    for image in inputs.iter_mut().chain(mask) {
        walk_picture(image, reader);
    }
    for word in [size, quality, background, media_type] {
        fixed_optional(word.as_ref(), reader);
    }
    walk_request_fields(extra, reader);
}

fn walk_request_fields(extra: &mut [ExtraField], reader: &mut dyn Reader) {
    for (name, json) in extra.iter() {
        if STORED.contains(&name.as_str()) && json != "null" {
            reader.unread(Unread::Stored);
        }
    }
    walk_fields(extra, Scope::Values, reader);
}

fn walk_tool(tool: &mut Tool, reader: &mut dyn Reader) {
    let Tool {
        kind,
        cache: _,
        extra,
    } = tool;
    match kind {
        ToolKind::Function(FunctionTool {
            name,
            description,
            input_schema,
            strict: _,
        }) => {
            fixed(name, reader);
            free_optional(description, reader);
            in_json(input_schema, Scope::Schema, reader);
        }
        ToolKind::BuiltIn(BuiltInTool {
            kind,
            name,
            configuration,
        }) => {
            fixed(kind, reader);
            fixed_optional(name.as_ref(), reader);
            in_json(configuration, Scope::Fixed, reader);
        }
        ToolKind::Custom(CustomTool {
            name,
            description,
            format,
        }) => {
            fixed(name, reader);
            free_optional(description, reader);
            if let Some(format) = format {
                in_json(format, Scope::Fixed, reader);
            }
        }
    }
    walk_fields(extra, Scope::Values, reader);
}

fn walk_message(message: &mut Message, reader: &mut dyn Reader) {
    let Message {
        role: _,
        name,
        parts,
        extra,
    } = message;
    if let Some(name) = name {
        piece(name, Access::Free, reader);
    }
    for part in parts {
        walk_part(part, reader);
    }
    walk_fields(extra, Scope::Block, reader);
}

fn walk_part(part: &mut Part, reader: &mut dyn Reader) {
    let Part {
        content,
        cache: _,
        signature,
        // The gateway's name of a provider, which no provider gets.
        provider,
        extra,
    } = part;
    let is_proven = provider.is_some() || signature.is_some();
    match content {
        Content::Text(text) | Content::Refusal(text) => free(text, reader),
        Content::Image(image) => walk_picture(image, reader),
        Content::Audio(Audio { source, format }) => {
            reader.unread(Unread::Audio);
            walk_source(source, reader);
            fixed_optional(format.as_ref(), reader);
        }
        Content::File(file) => walk_file(file, reader),
        Content::Reasoning(Reasoning { text, sealed, id }) => {
            let access = match is_proven || sealed.is_some() {
                true => Access::Proven,
                false => Access::Free,
            };
            read(text, access, false, reader);
            proof(sealed.as_ref(), reader);
            fixed_optional(id.as_ref(), reader);
        }
        Content::ToolCall(ToolCall {
            id,
            name,
            kind,
            arguments,
        }) => {
            fixed(id, reader);
            fixed(name, reader);
            match kind {
                CallKind::Function => in_json(arguments, Scope::All, reader),
                CallKind::Custom => free(arguments, reader),
            }
        }
        Content::ToolResult(ToolResult {
            call_id,
            tool_name,
            content,
            is_error: _,
        }) => {
            fixed(call_id, reader);
            fixed_optional(tool_name.as_ref(), reader);
            for content in content {
                match content {
                    ToolContent::Text(text) if json_texts::is_container(text) => {
                        in_json(text, Scope::All, reader);
                    }
                    ToolContent::Text(text) => free(text, reader),
                    ToolContent::Image(image) => walk_picture(image, reader),
                    ToolContent::File(file) => walk_file(file, reader),
                    ToolContent::Opaque(opaque) => walk_opaque(opaque, reader),
                }
            }
        }
        Content::Opaque(opaque) => walk_opaque(opaque, reader),
    }
    proof(signature.as_ref(), reader);
    walk_fields(extra, Scope::Block, reader);
}

fn walk_picture(Image { source, detail }: &mut Image, reader: &mut dyn Reader) {
    reader.unread(Unread::Image);
    walk_source(source, reader);
    fixed_optional(detail.as_ref(), reader);
}

fn walk_file(file: &mut File, reader: &mut dyn Reader) {
    let File {
        source,
        name,
        media_type,
        title,
        context,
        cite: _,
    } = file;
    reader.unread(Unread::File);
    walk_source(source, reader);
    if let Some(name) = name {
        piece(name, Access::Free, reader);
    }
    fixed_optional(media_type.as_ref(), reader);
    free_optional(title, reader);
    free_optional(context, reader);
}

fn walk_source(source: &Source, reader: &mut dyn Reader) {
    match source {
        Source::Attachment(_) => {}
        Source::Url(text) | Source::Id(text) => fixed(text, reader),
    }
}

fn walk_opaque(Opaque { kind, json }: &mut Opaque, reader: &mut dyn Reader) {
    fixed(kind, reader);
    in_json(json, Scope::Block, reader);
}

fn walk_fields(extra: &mut [ExtraField], scope: Scope, reader: &mut dyn Reader) {
    for (name, json) in extra {
        fixed(name, reader);
        in_json(json, scope, reader);
    }
}

fn free(text: &mut String, reader: &mut dyn Reader) {
    read(text, Access::Free, false, reader);
}

fn free_optional(text: &mut Option<String>, reader: &mut dyn Reader) {
    if let Some(text) = text {
        free(text, reader);
    }
}

fn piece(text: &mut String, access: Access, reader: &mut dyn Reader) {
    read(text, access, true, reader);
}

fn fixed(text: &str, reader: &mut dyn Reader) {
    if !text.is_empty() {
        reader.text(Text {
            text,
            access: Access::Fixed,
            is_piece: true,
        });
    }
}

fn fixed_optional(text: Option<&String>, reader: &mut dyn Reader) {
    if let Some(text) = text {
        fixed(text, reader);
    }
}

/// Reads a proof or an encrypted form, if it is text.
fn proof(text: Option<&String>, reader: &mut dyn Reader) {
    fixed_optional(text.filter(|text| !json_texts::is_bytes(text)), reader);
}

fn read(text: &mut String, access: Access, is_piece: bool, reader: &mut dyn Reader) {
    if text.is_empty() {
        return;
    }
    let changed = reader.text(Text {
        text,
        access,
        is_piece,
    });
    if let Some(changed) = changed {
        *text = changed;
    }
}

fn in_json(json: &mut String, scope: Scope, reader: &mut dyn Reader) {
    let changed = json_texts::rewrite(json, scope, &mut |text, form| {
        let access = match form {
            _ if text.is_empty() => return None,
            Form::Free => Access::Free,
            Form::Fixed => Access::Fixed,
            Form::Bytes => {
                reader.unread(Unread::Bytes);
                return None;
            }
        };
        reader.text(Text {
            text,
            access,
            is_piece: true,
        })
    });
    if let Some(changed) = changed {
        *json = changed;
    }
}

#[cfg(test)]
mod tests {
    use crate::adapter::Task as AnyTask;
    use crate::chat::{Role, ToolCall};
    use crate::testing::{
        chat, file, function, image_request, message, part, reasoning, result, screened, text,
        tool, with_messages,
    };

    use super::*;

    /// Notes each text with its access, and shouts.
    #[derive(Default)]
    struct Shouting {
        free: Vec<String>,
        proven: Vec<String>,
        fixed: Vec<String>,
        unread: Vec<Unread>,
    }

    impl Reader for Shouting {
        fn text(&mut self, Text { text, access, .. }: Text<'_>) -> Option<String> {
            let list = match access {
                Access::Free => &mut self.free,
                Access::Proven => &mut self.proven,
                Access::Fixed => &mut self.fixed,
            };
            list.push(text.to_owned());
            Some(text.to_uppercase())
        }

        fn unread(&mut self, what: Unread) {
            self.unread.push(what);
        }
    }

    fn task(task: AnyTask) -> Task {
        screened(task, &["a"], 1).task
    }

    fn shout(given: AnyTask) -> (Shouting, Task) {
        let mut task = task(given);
        let mut reader = Shouting::default();
        walk(&mut task, &mut reader);
        (reader, task)
    }

    /// A request with a word at every place. Words that may change begin with `free`, and so on.
    fn everything() -> ChatRequest {
        let call = |kind, arguments: &str| {
            Content::ToolCall(ToolCall {
                id: "fixed-id".into(),
                name: "fixed-name".into(),
                kind,
                arguments: arguments.into(),
            })
        };
        let opaque = || Opaque {
            kind: "fixed-kind".into(),
            json: r#"{"type":"fixed-type","free":"x","text":"free-block"}"#.into(),
        };
        let proven = Part {
            signature: Some("fixed-proof".into()),
            ..part(reasoning("proven-thought"))
        };
        let sealed = part(Content::Reasoning(Reasoning {
            text: "proven-summary".into(),
            sealed: Some("A".repeat(80)),
            id: Some("fixed-reasoning".into()),
        }));
        let results = vec![
            ToolContent::Text("free-result".into()),
            ToolContent::Text(r#"{"free-field":["free-\u0065ntry"]}"#.into()),
            ToolContent::Opaque(opaque()),
        ];
        let mut found = result("fixed-call", results, false);
        if let Content::ToolResult(result) = &mut found {
            result.tool_name = Some("fixed-tool".into());
        }
        let mut assistant = message(
            Role::Assistant,
            vec![
                text("free-said"),
                Content::Refusal("free-refusal".into()),
                reasoning("free-thought"),
                call(CallKind::Function, r#"{"free-argument":"free-value"}"#),
                call(CallKind::Custom, "free-custom"),
                Content::Opaque(opaque()),
            ],
        );
        assistant.parts.extend([proven, sealed]);
        assistant.parts[0].extra = vec![("fixed-part".into(), r#"{"a":"free-citation"}"#.into())];
        let mut user = message(Role::User, vec![text("free-asked")]);
        user.name = Some("free-person".into());
        user.extra = vec![("fixed-message".into(), r#""free-extra""#.into())];
        let mut request = with_messages(vec![
            message(Role::System, vec![text("free-system")]),
            user,
            assistant,
            message(Role::Tool, vec![found]),
        ]);
        let mut declared = function("fixed-function");
        if let ToolKind::Function(function) = &mut declared.kind {
            function.description = Some("free-purpose".into());
            function.input_schema =
                r#"{"properties":{"fixed-property":{"pattern":"fixed-pattern","enum":["free-case"]}}}"#
                    .into();
        }
        declared.extra = vec![("fixed-of-tool".into(), r#"["free-example"]"#.into())];
        request.tools = vec![
            declared,
            tool(ToolKind::BuiltIn(BuiltInTool {
                kind: "fixed-hosted".into(),
                name: Some("fixed-hosted-name".into()),
                configuration: r#"{"fixed-option":"fixed-configured"}"#.into(),
            })),
            tool(ToolKind::Custom(CustomTool {
                name: "fixed-custom".into(),
                description: Some("free-custom-purpose".into()),
                format: Some(r#"{"definition":"fixed-grammar"}"#.into()),
            })),
        ];
        request.tool_choice = ToolChoice::Among(AllowedTools {
            names: vec!["fixed-choice".into()],
            required: true,
        });
        request.response_format = ResponseFormat::JsonSchema(JsonSchema {
            name: Some("fixed-format".into()),
            description: Some("free-format".into()),
            strict: None,
            schema: r#"{"title":"free-title"}"#.into(),
        });
        request.reasoning.summary = Some("fixed-summary".into());
        request.modalities = vec!["fixed-modality".into()];
        request.stop = vec!["free-stop".into()];
        request.extra = vec![("fixed-extra".into(), r#"{"fixed-key":"free-field"}"#.into())];
        request
    }

    #[test]
    fn every_place_of_a_chat_is_read_once_with_its_access() {
        let (read, task) = shout(AnyTask::Chat(everything()));
        let begin = |list: &[String], word: &str| {
            let (known, other): (Vec<_>, Vec<_>) = list
                .iter()
                .cloned()
                .partition(|text| text.starts_with(word));
            (known.len(), other)
        };
        let (free, other) = begin(&read.free, "free");
        // A field of a provider's block may have any name: its value is a text.
        assert_eq!((free, other), (24, vec!["x".to_owned(); 2]));
        assert_eq!(read.proven, ["proven-thought", "proven-summary"]);
        let (fixed, other) = begin(&read.fixed, "fixed");
        assert_eq!(fixed, 30, "{:?}", read.fixed);
        let words = [
            "properties",
            "pattern",
            "enum",
            "definition",
            "title",
            "type",
            "free",
            "text",
            "a",
        ];
        assert!(
            other.iter().all(|name| words.contains(&name.as_str())),
            "{other:?}"
        );
        assert!(read.unread.is_empty());
        // Only free and proven texts have changed.
        let mut again = Shouting::default();
        walk(&mut task.clone(), &mut again);
        assert!(
            again
                .free
                .iter()
                .chain(&again.proven)
                .all(|text| *text == text.to_uppercase())
        );
        assert_eq!(again.fixed, read.fixed);
    }

    #[test]
    fn unreadable_parts_are_refused_unless_they_may_pass() {
        let source = || Source::Url("https://example.com/a".into());
        let image = || {
            Content::Image(Image {
                source: source(),
                detail: None,
            })
        };
        let audio = Content::Audio(Audio {
            source: source(),
            format: None,
        });
        let bytes = Content::Opaque(Opaque {
            kind: "image".into(),
            json: format!(r#"{{"data":"{}"}}"#, "A".repeat(300)),
        });
        let mut stored = chat("x");
        stored.extra = vec![("cachedContent".into(), r#""cachedContents/1""#.into())];
        let of = |content| AnyTask::Chat(with_messages(vec![message(Role::User, vec![content])]));
        let result = result("1", vec![ToolContent::File(file(source()))], false);
        let mut edit = image_request("x");
        edit.inputs = vec![Image {
            source: source(),
            detail: None,
        }];
        for (given, kind, why) in [
            (of(image()), Unread::Image, "has an image,"),
            (AnyTask::Image(edit), Unread::Image, "has an image,"),
            (of(audio), Unread::Audio, "has a recording,"),
            (
                of(Content::File(file(source()))),
                Unread::File,
                "has a file,",
            ),
            (of(result), Unread::File, "has a file,"),
            (of(bytes), Unread::Bytes, "has encoded bytes,"),
            (AnyTask::Chat(stored), Unread::Stored, "refers to text"),
        ] {
            let mut task = task(given);
            let refused = check_is_readable(&mut task, &[]).expect_err("it is refused");
            assert!(refused.why.starts_with(why), "{}", refused.why);
            let others = Unread::ALL.into_iter().filter(|one| *one != kind);
            assert!(check_is_readable(&mut task, &others.collect::<Vec<_>>()).is_err());
            assert_eq!(check_is_readable(&mut task, &[kind]), Ok(()));
        }
        assert_eq!(
            check_is_readable(&mut task(AnyTask::Chat(everything())), &[]),
            Ok(())
        );
    }

    #[test]
    fn a_list_of_kinds_is_read_by_name() {
        assert_eq!(
            Unread::parse_list("image, stored"),
            Ok(vec![Unread::Image, Unread::Stored])
        );
        for list in ["", "image,", "picture"] {
            assert!(
                Unread::parse_list(list).is_err_and(|why| why.starts_with("must be a list of"))
            );
        }
    }

    #[test]
    fn proofs_are_read_only_if_they_are_text() {
        let with = |signature: String| {
            let part = Part {
                signature: Some(signature),
                ..part(text("said"))
            };
            let message = Message {
                parts: vec![part],
                ..message(Role::Assistant, Vec::new())
            };
            shout(AnyTask::Chat(with_messages(vec![message]))).0.fixed
        };
        assert!(with("A".repeat(80)).is_empty());
        assert_eq!(with("not a proof".into()), ["not a proof"]);
    }

    #[test]
    fn a_prompt_and_the_words_of_an_image_request_are_read() {
        let mut request = image_request("free-prompt");
        request.size = Some("fixed-size".into());
        request.quality = Some("fixed-quality".into());
        request.background = Some("fixed-background".into());
        request.media_type = Some("fixed-type".into());
        request.extra = vec![("fixed-extra".into(), r#""free-extra""#.into())];
        let (read, _) = shout(AnyTask::Image(request));
        assert_eq!(read.free, ["free-prompt", "free-extra"]);
        assert_eq!(
            read.fixed,
            [
                "fixed-size",
                "fixed-quality",
                "fixed-background",
                "fixed-type",
                "fixed-extra"
            ]
        );
    }
}
