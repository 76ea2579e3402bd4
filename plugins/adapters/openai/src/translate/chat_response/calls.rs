//! The tool calls of a response, each a block of its own that is open until the response ends.

use serde_json::value::RawValue;
use weir_sdk::adapter::{Event, Failure};
use weir_sdk::blocks::Blocks;
use weir_sdk::chat::{Block, CallKind, Fragment, ToolCallStart};

use super::unreadable;
use super::wire::ToolCallDelta;

/// Maximum calls in one response. Every fragment searches all of them.
const MAX_TOOL_CALLS: usize = 256;

/// Maximum size of fragments that wait for a call's name, in bytes.
const MAX_BUFFERED_BYTES: usize = 4 * 1024 * 1024;

#[derive(Debug, Default)]
pub(super) struct ToolCalls {
    calls: Vec<ToolCall>,
    buffered_bytes: usize,
}

/// A tool call. Its block begins once its name and its id are known: the upstream's id, or a generated one if
/// arguments arrive without an id.
#[derive(Debug, Default)]
struct ToolCall {
    index: Option<u64>,
    id: String,
    name: String,
    /// The upstream's proof, until the block begins.
    signature: Option<String>,
    is_custom: bool,
    /// Input that waits for the block.
    input: String,
    has_input: bool,
    /// The state of the arguments' JSON object.
    scanner: ObjectScanner,
    block: Option<u32>,
}

/// A scanner that finds the end of a JSON object.
#[derive(Debug, Default)]
struct ObjectScanner {
    depth: u32,
    in_string: bool,
    is_escaped: bool,
    is_complete: bool,
}

impl ToolCalls {
    /// Returns whether no call has a name yet.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.iter().all(|call| call.name.is_empty())
    }

    /// Reads a piece of a call; `index` is the upstream's number of it.
    pub(super) fn read(
        &mut self,
        index: Option<u64>,
        delta: ToolCallDelta<'_>,
        blocks: &mut Blocks,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let signature = delta.signature();
        let id = delta.id.unwrap_or_default();
        let custom = delta.custom.filter(|custom| !custom.is_empty());
        let is_custom = custom.is_some();
        let (name, input) = match custom {
            Some(custom) => (custom.name, custom.input.unwrap_or_default()),
            None => {
                let function = delta.function.unwrap_or_default();
                let arguments = function.arguments.map(read_arguments).transpose()?;
                (function.name, arguments.unwrap_or_default())
            }
        };
        let name = name.unwrap_or_default();
        let position = self.find(index, &id, &name, &input)?;
        let call = &mut self.calls[position];
        call.is_custom |= is_custom;
        if call.block.is_none() {
            call.signature = call.signature.take().or(signature);
        }
        if call.id.is_empty() {
            call.id = id;
        }
        if call.name.is_empty() {
            // Servers that repeat the name repeat all of it.
            call.name = name;
        }
        // Groq writes the text `null` for no arguments.
        let is_blank = || matches!(input.trim(), "" | "null");
        if !input.is_empty() && (call.is_custom || call.has_input || !is_blank()) {
            call.has_input = true;
            call.scanner.scan(&input);
            if let Some(index) = call.block {
                events.push(Event::Fragment(Fragment { index, text: input }));
                return Ok(());
            }
            self.buffered_bytes += input.len();
            if self.buffered_bytes > MAX_BUFFERED_BYTES {
                return Err(Failure::malformed(format!(
                    "calls without a name exceed {MAX_BUFFERED_BYTES} bytes"
                )));
            }
            call.input.push_str(&input);
        }
        if !call.name.is_empty() && (!call.id.is_empty() || call.has_input) {
            self.buffered_bytes -= call.input.len();
            call.begin(position, blocks, events);
        }
        Ok(())
    }

    /// Emits the rest of each call, and ends it.
    pub(super) fn conclude(
        &mut self,
        blocks: &mut Blocks,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        // Servers that fill every field of their types in write an empty call.
        self.calls
            .retain(|call| !(call.name.is_empty() && call.id.is_empty()) || call.has_input);
        for (position, call) in self.calls.iter_mut().enumerate() {
            if call.name.is_empty() {
                return Err(Failure::malformed("a tool call without a name"));
            }
            let index = call.begin(position, blocks, events);
            // Missing arguments become an empty object: consumers parse their input.
            if !call.has_input && !call.is_custom {
                let text = "{}".to_owned();
                events.push(Event::Fragment(Fragment { index, text }));
            }
            events.push(Event::BlockEnd(index));
        }
        Ok(())
    }

    /// Returns the call of a piece, or a new one.
    ///
    /// The call is found by index, else by id, else it is the last one. But some servers send each call complete,
    /// with index 0 for all, or none, and no id. A piece with a name is therefore another call if its id differs, or
    /// if its name differs and its id does not contradict, or if the previous call's arguments are complete.
    fn find(
        &mut self,
        index: Option<u64>,
        id: &str,
        name: &str,
        input: &str,
    ) -> Result<usize, Failure> {
        let candidate = match index {
            Some(_) => self.calls.iter().rposition(|call| call.index == index),
            None if !id.is_empty() => self.calls.iter().rposition(|call| call.id == id),
            None => self.calls.len().checked_sub(1),
        };
        let candidate = candidate.filter(|position| {
            let call = &self.calls[*position];
            let has_id = !id.is_empty() && !call.id.is_empty();
            let differs = if has_id {
                call.id != id
            } else {
                let is_complete = call.scanner.is_complete && !input.trim().is_empty();
                !call.name.is_empty() && (call.name != name || is_complete)
            };
            name.is_empty() || !differs
        });
        if let Some(position) = candidate {
            return Ok(position);
        }
        if self.calls.len() == MAX_TOOL_CALLS {
            return Err(Failure::malformed(format!(
                "the answer has more than {MAX_TOOL_CALLS} tool calls"
            )));
        }
        self.calls.push(ToolCall {
            index,
            ..ToolCall::default()
        });
        Ok(self.calls.len() - 1)
    }
}

impl ToolCall {
    /// Begins the call's block, unless it has begun, and emits the waiting input.
    fn begin(&mut self, position: usize, blocks: &mut Blocks, events: &mut Vec<Event>) -> u32 {
        if let Some(index) = self.block {
            return index;
        }
        let id = if self.id.is_empty() {
            format!("call_{position}")
        } else {
            self.id.clone()
        };
        let start = ToolCallStart {
            id,
            name: self.name.clone(),
            kind: if self.is_custom {
                CallKind::Custom
            } else {
                CallKind::Function
            },
        };
        let index = blocks.begin(Block::ToolCall(start), events);
        self.block = Some(index);
        if let Some(text) = self.signature.take() {
            events.push(Event::Signature(Fragment { index, text }));
        }
        if !self.input.is_empty() {
            let text = std::mem::take(&mut self.input);
            events.push(Event::Fragment(Fragment { index, text }));
        }
        index
    }
}

impl ObjectScanner {
    fn scan(&mut self, json: &str) {
        for byte in json.bytes() {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.in_string => self.is_escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' => self.depth = self.depth.saturating_add(1),
                b'}' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.is_complete |= self.depth == 0;
                }
                _ => {}
            }
        }
    }
}

/// Returns a piece of the arguments' JSON text. The piece is a string, except from servers that send the object
/// itself.
fn read_arguments(raw: &RawValue) -> Result<String, Failure> {
    let json = raw.get();
    if json.starts_with('"') {
        serde_json::from_str(json).map_err(|error| unreadable(&error))
    } else {
        Ok(json.to_owned())
    }
}
