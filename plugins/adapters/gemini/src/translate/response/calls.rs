//! The calls of a response. Most arrive complete; some servers write a call's arguments piece by piece, each with its
//! path, and end them with a piece that does not continue.

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use weir_sdk::adapter::{Event, Failure};
use weir_sdk::blocks::Blocks;
use weir_sdk::chat::{Block, CallKind, Fragment, ToolCallStart};
use weir_sdk::custom;

use super::wire::{FunctionCall, PartialArg};

/// Prefix of generated ids, for calls without the upstream's id.
pub(in crate::translate) const GENERATED_ID_PREFIX: &str = "gemini_";

/// Maximum gap behind a list's end, and maximum depth: missing values up to there are filled in.
const MAX_GAP: usize = 16;
const MAX_DEPTH: usize = 32;

/// Size of a filled-in value, in bytes.
const FILLED_VALUE_BYTES: usize = 32;

/// Maximum size of one call's arguments from pieces, in bytes.
const MAX_ARGUMENTS_BYTES: usize = 1024 * 1024;

#[derive(Debug)]
pub(super) struct ToolCalls {
    /// The names of the tools that take free text.
    custom_tools: Vec<String>,
    /// The upstream's id of the response, part of a generated call id.
    id_infix: String,
    count: usize,
    /// The call whose arguments continue.
    partial_call: Option<PartialCall>,
}

#[derive(Debug)]
struct PartialCall {
    id: Option<String>,
    name: String,
    signature: Option<String>,
    arguments: Value,
    argument_bytes: usize,
}

impl ToolCalls {
    pub(super) fn new(custom_tools: Vec<String>) -> Self {
        Self {
            custom_tools,
            id_infix: String::new(),
            count: 0,
            partial_call: None,
        }
    }

    pub(super) fn set_response_id(&mut self, id: Option<&str>) {
        if let Some(id) = id.filter(|_| self.id_infix.is_empty()) {
            self.id_infix = format!("{id}_");
        }
    }

    /// Reads a call or a piece of one. Returns whether that completes a call.
    pub(super) fn read(
        &mut self,
        call: FunctionCall<'_>,
        signature: Option<String>,
        blocks: &mut Blocks,
        events: &mut Vec<Event>,
    ) -> Result<bool, Failure> {
        let continues = call.will_continue == Some(true);
        let mut is_complete = false;
        let pieces = call.partial_args.unwrap_or_default();
        let mut more_args = None;
        if let Some(name) = call.name.filter(|name| !name.is_empty()) {
            // The previous call ends when another begins.
            is_complete = self.conclude(blocks, events);
            let json = call.args.map_or("null", |args| args.get());
            if !continues && pieces.is_empty() {
                let arguments = if json == "null" { "{}" } else { json };
                self.emit(
                    call.id,
                    name,
                    signature,
                    arguments.to_owned(),
                    blocks,
                    events,
                );
                return Ok(true);
            }
            self.partial_call = Some(PartialCall {
                id: call.id,
                name,
                signature,
                arguments: serde_json::from_str(json).unwrap_or_default(),
                argument_bytes: json.len(),
            });
        } else if let Some(partial_call) = &mut self.partial_call {
            more_args = call.args;
            if let Some(signature) = signature {
                partial_call.signature.get_or_insert(signature);
            }
        }
        if let Some(partial_call) = &mut self.partial_call {
            partial_call.add_fields(more_args)?;
            for piece in pieces {
                partial_call.write_value(piece)?;
            }
        }
        if !continues {
            is_complete |= self.conclude(blocks, events);
        }
        Ok(is_complete)
    }

    /// Emits the unfinished call, if there is one.
    pub(super) fn conclude(&mut self, blocks: &mut Blocks, events: &mut Vec<Event>) -> bool {
        let Some(partial_call) = self.partial_call.take() else {
            return false;
        };
        let arguments = match &partial_call.arguments {
            Value::Null => "{}".to_owned(),
            arguments => arguments.to_string(),
        };
        self.emit(
            partial_call.id,
            partial_call.name,
            partial_call.signature,
            arguments,
            blocks,
            events,
        );
        true
    }

    fn emit(
        &mut self,
        id: Option<String>,
        name: String,
        signature: Option<String>,
        arguments: String,
        blocks: &mut Blocks,
        events: &mut Vec<Event>,
    ) {
        let generated = || format!("{GENERATED_ID_PREFIX}{}{}", self.id_infix, self.count);
        let id = id.filter(|id| !id.is_empty()).unwrap_or_else(generated);
        self.count += 1;
        let kind = custom::kind_of(&self.custom_tools, &name);
        let text = match kind {
            CallKind::Function => arguments,
            CallKind::Custom => custom::input(arguments),
        };
        let index = blocks.begin(Block::ToolCall(ToolCallStart { id, name, kind }), events);
        events.push(Event::Fragment(Fragment { index, text }));
        if let Some(text) = signature {
            events.push(Event::Signature(Fragment { index, text }));
        }
        events.push(Event::BlockEnd(index));
    }
}

impl PartialCall {
    /// Adds the fields of an object to the earlier ones.
    fn add_fields(&mut self, args: Option<&RawValue>) -> Result<(), Failure> {
        let Some(fields) =
            args.and_then(|args| serde_json::from_str::<Map<String, Value>>(args.get()).ok())
        else {
            return Ok(());
        };
        self.count_bytes(args.map_or(0, |args| args.get().len()))?;
        if !self.arguments.is_object() {
            self.arguments = Value::Object(Map::new());
        }
        if let Some(object) = self.arguments.as_object_mut() {
            object.extend(fields);
        }
        Ok(())
    }

    fn count_bytes(&mut self, bytes: usize) -> Result<(), Failure> {
        self.argument_bytes += bytes;
        if self.argument_bytes > MAX_ARGUMENTS_BYTES {
            return Err(Failure::malformed(format!(
                "a call's arguments exceed {MAX_ARGUMENTS_BYTES} bytes"
            )));
        }
        Ok(())
    }

    fn write_value(&mut self, piece: PartialArg<'_>) -> Result<(), Failure> {
        let path = piece.json_path.as_deref().unwrap_or("$");
        let value = match (piece.string_value, piece.number_value, piece.bool_value) {
            (Some(text), _, _) => Value::String(text),
            (None, Some(number), _) => Value::Number(number),
            (None, None, Some(truth)) => Value::Bool(truth),
            (None, None, None) if piece.null_value.is_some() => Value::Null,
            (None, None, None) => return Ok(()),
        };
        self.count_bytes(path.len() + value.as_str().map_or(8, str::len))?;
        let misplaced = || Failure::malformed("a piece of a call's arguments has no place");
        let steps = steps(path).ok_or_else(misplaced)?;
        let mut filled_values = 0;
        let target = place(&mut self.arguments, &steps, &mut filled_values).ok_or_else(misplaced);
        self.argument_bytes += filled_values * FILLED_VALUE_BYTES;
        let place = target?;
        match (place, value) {
            (Value::String(known), Value::String(more_args)) => known.push_str(&more_args),
            (place, value) => *place = value,
        }
        Ok(())
    }
}

/// A step of a path: into an object, or into a list.
enum JsonStep<'a> {
    Key(&'a str),
    Index(usize),
}

/// The steps of `$.a.b[0]` or `$['a'][0]`.
fn steps(path: &str) -> Option<Vec<JsonStep<'_>>> {
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if steps.len() == MAX_DEPTH {
            return None;
        }
        if let Some(named) = rest.strip_prefix('.') {
            let end = named.find(['.', '[']).unwrap_or(named.len());
            steps.push(JsonStep::Key(&named[..end]));
            rest = &named[end..];
        } else {
            let (inner, after) = rest.strip_prefix('[')?.split_once(']')?;
            let quoted = inner
                .strip_prefix(['\'', '"'])
                .and_then(|inner| inner.strip_suffix(['\'', '"']));
            steps.push(match quoted {
                Some(key) => JsonStep::Key(key),
                None => JsonStep::Index(inner.parse().ok()?),
            });
            rest = after;
        }
    }
    Some(steps)
}

/// Returns the place at the end of a path, and creates missing values on the way. Counts created values.
fn place<'a>(
    root: &'a mut Value,
    steps: &[JsonStep<'_>],
    filled_values: &mut usize,
) -> Option<&'a mut Value> {
    if root.is_null() {
        *root = Value::Object(Map::new());
    }
    let mut place = root;
    for step in steps {
        match step {
            JsonStep::Key(key) => {
                if place.is_null() {
                    *place = Value::Object(Map::new());
                }
                let object = place.as_object_mut()?;
                *filled_values += usize::from(!object.contains_key(*key));
                place = object.entry(*key).or_insert(Value::Null);
            }
            JsonStep::Index(index) => {
                if place.is_null() {
                    *place = Value::Array(Vec::new());
                }
                let list = place.as_array_mut()?;
                if list.len() <= *index {
                    let gap = index - list.len();
                    if gap > MAX_GAP {
                        return None;
                    }
                    *filled_values += gap + 1;
                    list.resize(index + 1, Value::Null);
                }
                place = list.get_mut(*index)?;
            }
        }
    }
    Some(place)
}
