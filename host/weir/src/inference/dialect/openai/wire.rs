//! The JSON of a request: its objects, which types their fields have, and where an error is.
//!
//! Types, unknown and repeated fields are settled here; what values mean, in [`super::request`].

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;
use serde_path_to_error::Segment;

use crate::error::ApiError;

/// At most so many messages: an empty one takes 30 bytes of the body and ten times that in memory.
const MAX_MESSAGES: usize = 8_192;
/// At most so many parts, or tool calls, in a message.
const MAX_PARTS: usize = 1_024;
/// At most so many tools; OpenAI takes 128.
const MAX_TOOLS: usize = 512;
/// At most so many stop sequences; OpenAI takes 4, others more.
const MAX_STOPS: usize = 16;
/// At most so many top-level fields that are passed on as they are.
const MAX_EXTRA: usize = 64;
/// No field name longer than this is repeated in an error or passed on.
const MAX_NAME_BYTES: usize = 64;
/// How deep a value that is passed on as JSON may nest. Adapters put it a few levels down in a body of their own,
/// which must stay within the 128 levels that serde_json reads, here and there.
const MAX_RAW_DEPTH: usize = 100;

/// Declares an object of the dialect, with the JSON name of each field beside the Rust one.
///
/// serde's derive would do but for two rules: null is as absent wherever it stands, also in an unknown field, and an
/// error about a field's presence must arise while its value is read, which is when its path is known.
macro_rules! object {
    ($(#[$meta:meta])* struct $object:ident<$de:lifetime> {
        $($name:literal: $field:ident: $type:ty,)*
        others: $others:ty,
    }) => {
        $(#[$meta])*
        #[derive(Default)]
        pub(super) struct $object<$de> {
            $(pub(super) $field: Option<$type>,)*
            pub(super) others: $others,
            lifetime: PhantomData<&$de ()>,
        }

        impl<$de> Deserialize<$de> for $object<$de> {
            fn deserialize<D: Deserializer<$de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Fields;

                impl<$de> Visitor<$de> for Fields {
                    type Value = $object<$de>;

                    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                        formatter.write_str("an object")
                    }

                    fn visit_map<A: MapAccess<$de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                        let mut object = $object::default();
                        $(let mut $field = false;)*
                        while let Some(name) = map.next_key::<Text<$de>>()? {
                            match name.as_str() {
                                $($name => {
                                    if std::mem::replace(&mut $field, true) {
                                        map.next_value::<Repeated>()?;
                                    }
                                    object.$field = map.next_value()?;
                                })*
                                _ => object.others.read(name, &mut map)?,
                            }
                        }
                        Ok(object)
                    }
                }

                deserializer.deserialize_map(Fields)
            }
        }
    };
}

object! {
    struct Body<'de> {
        "model": model: Text<'de>,
        "messages": messages: List<Message<'de>, MAX_MESSAGES>,
        "tools": tools: List<Tool<'de>, MAX_TOOLS>,
        "tool_choice": tool_choice: ToolChoice<'de>,
        "parallel_tool_calls": parallel_tool_calls: bool,
        "response_format": response_format: ResponseFormat<'de>,
        "reasoning_effort": reasoning_effort: Text<'de>,
        "max_tokens": max_tokens: u32,
        "max_completion_tokens": max_completion_tokens: u32,
        "temperature": temperature: f64,
        "top_p": top_p: f64,
        "top_k": top_k: u32,
        "presence_penalty": presence_penalty: f64,
        "frequency_penalty": frequency_penalty: f64,
        "seed": seed: i64,
        "stop": stop: Stop,
        "stream": stream: bool,
        "stream_options": stream_options: StreamOptions<'de>,
        "n": n: u32,
        "logprobs": logprobs: bool,
        "modalities": modalities: List<Text<'de>, MAX_PARTS>,
        "top_logprobs": top_logprobs: Unsupported,
        "audio": audio: Unsupported,
        "functions": functions: Unsupported,
        "function_call": function_call: Unsupported,
        "session_id": session_id: Unsupported,
        others: Extra<'de>,
    }
}

object! {
    struct Message<'de> {
        "role": role: Text<'de>,
        "content": content: Content<'de>,
        "name": name: String,
        "tool_call_id": tool_call_id: String,
        "tool_calls": tool_calls: List<ToolCall<'de>, MAX_PARTS>,
        "reasoning_content": reasoning_content: String,
        "refusal": refusal: String,
        "images": images: List<Part<'de>, MAX_PARTS>,
        "annotations": annotations: Ignored,
        // SDK helpers that read an answer's JSON keep the result beside it, here and in a call.
        "parsed": parsed: Ignored,
        others: Refused,
    }
}

object! {
    struct Part<'de> {
        "type": kind: Text<'de>,
        "text": text: String,
        "refusal": refusal: String,
        "image_url": image_url: ImageUrl<'de>,
        "file": file: File<'de>,
        "input_audio": input_audio: Ignored,
        "cache_control": cache_control: CacheControl<'de>,
        // An entry of `images` carries it in a streamed answer.
        "index": index: Ignored,
        others: Refused,
    }
}

object! {
    struct ImageUrl<'de> {
        "url": url: Text<'de>,
        "detail": detail: Text<'de>,
        others: Refused,
    }
}

object! {
    struct File<'de> {
        "file_data": file_data: Text<'de>,
        "filename": filename: String,
        others: Refused,
    }
}

object! {
    struct CacheControl<'de> {
        "type": kind: Text<'de>,
        "ttl": ttl: Text<'de>,
        others: Refused,
    }
}

object! {
    struct ToolCall<'de> {
        "id": id: String,
        "type": kind: Text<'de>,
        "function": function: CalledFunction<'de>,
        // Clients that put a streamed call together keep it.
        "index": index: Ignored,
        others: Refused,
    }
}

object! {
    struct CalledFunction<'de> {
        "name": name: String,
        "arguments": arguments: String,
        "parsed_arguments": parsed_arguments: Ignored,
        others: Refused,
    }
}

object! {
    struct Tool<'de> {
        "type": kind: Text<'de>,
        "function": function: Function<'de>,
        "cache_control": cache_control: CacheControl<'de>,
        others: Refused,
    }
}

object! {
    struct Function<'de> {
        "name": name: String,
        "description": description: String,
        "parameters": parameters: Raw<'de>,
        "strict": strict: bool,
        others: Refused,
    }
}

object! {
    struct NamedTool<'de> {
        "type": kind: Text<'de>,
        "function": function: ToolName<'de>,
        others: Refused,
    }
}

object! {
    struct ToolName<'de> {
        "name": name: String,
        others: Refused,
    }
}

object! {
    struct ResponseFormat<'de> {
        "type": kind: Text<'de>,
        "json_schema": json_schema: JsonSchema<'de>,
        others: Refused,
    }
}

object! {
    struct JsonSchema<'de> {
        "name": name: String,
        "description": description: String,
        "schema": schema: Raw<'de>,
        "strict": strict: bool,
        others: Refused,
    }
}

object! {
    struct StreamOptions<'de> {
        "include_usage": include_usage: bool,
        "include_obfuscation": include_obfuscation: bool,
        others: Refused,
    }
}

/// What a message says: plain text, or a list of parts.
pub(super) enum Content<'de> {
    Text(String),
    Parts(List<Part<'de>, MAX_PARTS>),
}

impl<'de> Deserialize<'de> for Content<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Content<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string or an array of parts")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Content::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
                List::read(items).map(Content::Parts)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// One stop sequence, or a list of them.
pub(super) enum Stop {
    One(String),
    Many(List<String, MAX_STOPS>),
}

impl<'de> Deserialize<'de> for Stop {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Stop;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string or an array of strings")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Stop::One(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
                List::read(items).map(Stop::Many)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// A mode by its word, or a tool by its name.
pub(super) enum ToolChoice<'de> {
    Mode(String),
    Named(NamedTool<'de>),
}

impl<'de> Deserialize<'de> for ToolChoice<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = ToolChoice<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string or an object")
            }

            fn visit_str<E: de::Error>(self, mode: &str) -> Result<Self::Value, E> {
                Ok(ToolChoice::Mode(mode.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                NamedTool::deserialize(MapAccessDeserializer::new(map)).map(ToolChoice::Named)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// A string, borrowed from the body unless it holds escapes.
pub(super) struct Text<'de>(Cow<'de, str>);

impl Text<'_> {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn into_string(self) -> String {
        self.0.into_owned()
    }
}

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrow;

        impl<'de> Visitor<'de> for Borrow {
            type Value = Text<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(Borrow)
    }
}

/// An array of at most `MAX` items, so that a body of empty ones cannot take many times its size in memory.
pub(super) struct List<T, const MAX: usize>(pub(super) Vec<T>);

impl<T, const MAX: usize> List<T, MAX> {
    fn read<'de, A: SeqAccess<'de>>(mut array: A) -> Result<Self, A::Error>
    where
        T: Deserialize<'de>,
    {
        let mut items = Vec::new();
        while let Some(item) = array.next_element()? {
            if items.len() == MAX {
                return Err(de::Error::custom(format_args!(
                    "must not have more than {MAX} items"
                )));
            }
            items.push(item);
        }
        Ok(Self(items))
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for List<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T, const MAX: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Items<T, MAX> {
            type Value = List<T, MAX>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
                List::read(items)
            }
        }

        deserializer.deserialize_seq(Items(PhantomData))
    }
}

/// JSON that is passed on as it was written.
#[derive(Clone, Copy)]
pub(super) struct Raw<'de>(pub(super) &'de str);

impl<'de> Deserialize<'de> for Raw<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = <&RawValue>::deserialize(deserializer)?.get();
        if nests_deeper_than(json, MAX_RAW_DEPTH) {
            return Err(de::Error::custom(format_args!(
                "must not nest deeper than {MAX_RAW_DEPTH} levels"
            )));
        }
        Ok(Self(json))
    }
}

/// serde_json skips over a raw value without counting its depth, so whoever parses it later would be the one to find out.
fn nests_deeper_than(json: &str, limit: usize) -> bool {
    let mut depth = 0;
    let mut bytes = json.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                if depth > limit {
                    return true;
                }
            }
            b']' | b'}' => depth -= 1,
            b'"' => {
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'"' => break,
                        b'\\' => {
                            bytes.next();
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    false
}

/// A field that is accepted and has no effect.
pub(super) struct Ignored;

impl<'de> Deserialize<'de> for Ignored {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// A field that is refused by name; wrapped in an `Option`, null passes.
pub(super) enum Unsupported {}

impl<'de> Deserialize<'de> for Unsupported {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(de::Error::custom("is not supported"))
    }
}

/// Stands where the value of a repeated field would be read.
enum Repeated {}

impl<'de> Deserialize<'de> for Repeated {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(de::Error::custom("is given more than once"))
    }
}

/// The unknown fields of most objects: each is refused by name.
#[derive(Default)]
pub(super) struct Refused;

impl Refused {
    fn read<'de, A: MapAccess<'de>>(&self, _: Text<'de>, map: &mut A) -> Result<(), A::Error> {
        map.next_value::<Option<Unsupported>>().map(drop)
    }
}

/// The unknown fields of the body: the adapter decides.
#[derive(Default)]
pub(super) struct Extra<'de>(pub(super) Vec<(Text<'de>, Raw<'de>)>);

impl<'de> Extra<'de> {
    fn read<A: MapAccess<'de>>(&mut self, name: Text<'de>, map: &mut A) -> Result<(), A::Error> {
        if self
            .0
            .iter()
            .any(|(other, _)| other.as_str() == name.as_str())
        {
            map.next_value::<Repeated>()?;
        }
        let Some(value) = map.next_value()? else {
            return Ok(());
        };
        if self.0.len() == MAX_EXTRA || name.as_str().len() > MAX_NAME_BYTES {
            return Err(de::Error::custom(format_args!(
                "must not have more than {MAX_EXTRA} fields beyond those documented, none with a name longer than \
                 {MAX_NAME_BYTES} bytes"
            )));
        }
        self.0.push((name, value));
        Ok(())
    }
}

/// Reads a body. What is wrong is looked for a second time, now keeping track of where: the first time is faster
/// without.
pub(super) fn read(body: &[u8]) -> Result<Body<'_>, ApiError> {
    serde_json::from_slice(body).map_err(|error| explain(body, &error))
}

fn explain(body: &[u8], error: &serde_json::Error) -> ApiError {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    let text = text.strip_suffix(&position).unwrap_or(&text);
    // A number that no float can hold is a matter of syntax to serde_json.
    let out_of_range = text == "number out of range";
    if error.classify() != Category::Data && !out_of_range {
        return invalid("", format!("The body is not valid JSON: {text}{position}."));
    }
    let predicate = if out_of_range {
        "is a number out of range".to_owned()
    } else {
        predicate(text)
    };
    Fault {
        path: locate(body),
        predicate: predicate.into(),
    }
    .into()
}

/// Words serde's message anew: it quotes the value it found, which may be part of a prompt.
fn predicate(message: &str) -> String {
    if message.starts_with("must ") || message.starts_with("is ") {
        return message.to_owned();
    }
    // What was expected is our own text or serde's; a found value comes before it.
    let expected = message
        .rsplit_once(", expected ")
        .map(|(_, expected)| match expected {
            "u32" => "an integer from 0 to 4294967295",
            "i64" => "a signed 64-bit integer",
            "f64" => "a number",
            other => other,
        });
    let found = message.strip_prefix("invalid type: ").and_then(|found| {
        [
            ("string", "a string"),
            ("integer", "an integer"),
            ("floating point", "a fraction"),
            ("boolean", "a boolean"),
            ("map", "an object"),
            ("sequence", "an array"),
            ("null", "null"),
        ]
        .into_iter()
        .find_map(|(kind, words)| found.starts_with(kind).then_some(words))
    });
    match (expected, found) {
        (Some(expected), Some(found)) => format!("must be {expected}, not {found}"),
        (Some(expected), None) => format!("must be {expected}"),
        (None, _) => "is not valid".to_owned(),
    }
}

/// The path at which reading the body fails, e.g. `messages[0].content[1].image_url.url`.
fn locate(body: &[u8]) -> String {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let Err(error) = serde_path_to_error::deserialize::<_, Body<'_>>(&mut deserializer) else {
        return String::new();
    };
    let mut path = String::new();
    for segment in error.path() {
        match segment {
            Segment::Seq { index } => path.push_str(&format!("[{index}]")),
            Segment::Map { key } => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(presentable(key));
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    path
}

/// A client's field name as an error may show it.
fn presentable(name: &str) -> &str {
    let plain = name.bytes().all(|byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':' | b'$')
    });
    if plain && (1..=MAX_NAME_BYTES).contains(&name.len()) {
        name
    } else {
        "…"
    }
}

/// What is wrong with a field, and which one, as seen from the object being checked.
#[derive(Debug)]
pub(super) struct Fault {
    path: String,
    predicate: Cow<'static, str>,
}

impl Fault {
    /// `predicate` completes a sentence whose subject is the field, e.g. `is required`.
    pub(super) fn new(field: &str, predicate: impl Into<Cow<'static, str>>) -> Self {
        Self {
            path: field.to_owned(),
            predicate: predicate.into(),
        }
    }

    /// The same fault as seen from the object around it.
    pub(super) fn within(mut self, field: &str) -> Self {
        let separator = if self.path.is_empty() || self.path.starts_with('[') {
            ""
        } else {
            "."
        };
        self.path = format!("{field}{separator}{}", self.path);
        self
    }

    /// The same fault as seen from the array around the object.
    pub(super) fn at(self, index: usize) -> Self {
        self.within(&format!("[{index}]"))
    }
}

impl From<Fault> for ApiError {
    fn from(fault: Fault) -> Self {
        let subject = if fault.path.is_empty() {
            "The body"
        } else {
            &fault.path
        };
        let message = format!("{subject} {}.", fault.predicate);
        invalid(fault.path, message)
    }
}

fn invalid(path: impl Into<String>, message: String) -> ApiError {
    ApiError::invalid_request(path, message)
}
