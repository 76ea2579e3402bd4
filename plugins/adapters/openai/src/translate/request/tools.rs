//! The tools of a request, and the model's choice among them.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use weir_sdk::chat::{
    ChatRequest, CustomTool, ExtraField, FunctionTool, Tool, ToolChoice, ToolKind,
};

use super::{Context, RawJson, entry_if};

/// Fields of a tool that this module writes; extra fields can't be these.
const TOOL_FIELDS: [&str; 3] = ["type", "function", "custom"];

/// Such fields of a tool's `function`.
const FUNCTION_FIELDS: [&str; 4] = ["name", "description", "parameters", "strict"];

/// Prefix of the names of extra fields from a tool's `function`.
const IN_FUNCTION: &str = "function.";

pub(super) fn write<M: SerializeMap>(
    body: &mut M,
    chat: &ChatRequest,
    context: &Context<'_>,
) -> Result<(), M::Error> {
    let tools = &chat.tools;
    if !tools.is_empty() {
        body.serialize_entry("tools", &Tools { tools, context })?;
        // The upstream refuses both fields without tools, when they have no meaning.
        entry_if(body, "parallel_tool_calls", chat.parallel_tool_calls)?;
        if matches!(chat.tool_choice, ToolChoice::None) {
            body.serialize_entry("tool_choice", "none")?;
        }
    }
    match &chat.tool_choice {
        // `auto` is the upstream's default; without tools, so is `none`.
        ToolChoice::Auto | ToolChoice::None => Ok(()),
        ToolChoice::Required => body.serialize_entry("tool_choice", "required"),
        ToolChoice::Named(name) => body.serialize_entry("tool_choice", &NamedTool { tools, name }),
        ToolChoice::Among(allowed) => body.serialize_entry(
            "tool_choice",
            &AllowedTools {
                kind: "allowed_tools",
                allowed_tools: AllowedToolList {
                    mode: if allowed.required { "required" } else { "auto" },
                    tools: allowed
                        .names
                        .iter()
                        .map(|name| NamedTool { tools, name })
                        .collect(),
                },
            },
        ),
    }
}

struct Tools<'a> {
    tools: &'a [Tool],
    context: &'a Context<'a>,
}

impl Serialize for Tools<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let context = self.context;
        let tools = self.tools.iter().enumerate();
        serializer.collect_seq(tools.map(|(index, tool)| WireTool {
            context,
            index,
            tool,
        }))
    }
}

struct WireTool<'a> {
    context: &'a Context<'a>,
    index: usize,
    tool: &'a Tool,
}

impl Serialize for WireTool<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            context,
            index,
            tool,
        } = *self;
        let at = format!("tools[{index}]");
        if tool.cache.is_some() {
            context.ignore("cache_control");
        }
        let (function_extra, tool_extra) = split_extra(tool);
        let mut map = serializer.serialize_map(None)?;
        match &tool.kind {
            ToolKind::Function(function) => {
                let function = FunctionDefinition {
                    context,
                    function,
                    extra: function_extra,
                    at: format!("{at}.function"),
                };
                map.serialize_entry("type", "function")?;
                map.serialize_entry("function", &function)?;
            }
            ToolKind::Custom(CustomTool {
                name,
                description,
                format,
            }) => {
                map.serialize_entry("type", "custom")?;
                map.serialize_entry(
                    "custom",
                    &CustomDefinition {
                        name,
                        description: description.as_deref(),
                        format: format.as_deref().map(CustomFormat),
                    },
                )?;
            }
            ToolKind::BuiltIn(tool) => {
                let what = format!("{at}: a tool of type {}", tool.kind);
                return Err(context.refuse(&at, what));
            }
        }
        context.extra(&mut map, &tool_extra, &TOOL_FIELDS, &at)?;
        map.end()
    }
}

/// Returns the extra fields from a tool's `function`, by their own names, and those beside it. A tool without a
/// `function` has all of them beside it, regardless of their names.
fn split_extra(tool: &Tool) -> (Vec<ExtraField>, Vec<ExtraField>) {
    let has_function = matches!(tool.kind, ToolKind::Function(_));
    let (mut function_extra, mut tool_extra) = (Vec::new(), Vec::new());
    for (name, json) in &tool.extra {
        match name.strip_prefix(IN_FUNCTION).filter(|_| has_function) {
            Some(own) => function_extra.push((own.to_owned(), json.clone())),
            None => tool_extra.push((name.clone(), json.clone())),
        }
    }
    (function_extra, tool_extra)
}

struct FunctionDefinition<'a> {
    context: &'a Context<'a>,
    function: &'a FunctionTool,
    extra: Vec<ExtraField>,
    at: String,
}

impl Serialize for FunctionDefinition<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let FunctionTool {
            name,
            description,
            input_schema,
            strict,
        } = self.function;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", name)?;
        entry_if(&mut map, "description", description.as_deref())?;
        let parameters = RawJson {
            field: "tools.function.parameters",
            json: input_schema,
        };
        map.serialize_entry("parameters", &parameters)?;
        entry_if(&mut map, "strict", *strict)?;
        self.context
            .extra(&mut map, &self.extra, &FUNCTION_FIELDS, &self.at)?;
        map.end()
    }
}

#[derive(Serialize)]
struct CustomDefinition<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<CustomFormat<'a>>,
}

/// The required form of free text. The Responses API writes a grammar's two fields beside `type`, this one in an
/// object of their own.
struct CustomFormat<'a>(&'a str);

impl Serialize for CustomFormat<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Deserialize)]
        struct FlatGrammar<'a> {
            #[serde(borrow)]
            syntax: &'a RawValue,
            #[serde(borrow)]
            definition: &'a RawValue,
        }
        #[derive(Serialize)]
        struct Grammar<'a> {
            syntax: &'a RawValue,
            definition: &'a RawValue,
        }
        match serde_json::from_str(self.0) {
            Ok(FlatGrammar { syntax, definition }) => {
                let mut map = serializer.serialize_map(None)?;
                map.serialize_entry("type", "grammar")?;
                map.serialize_entry("grammar", &Grammar { syntax, definition })?;
                map.end()
            }
            Err(_) => {
                let (field, json) = ("tools.custom.format", self.0);
                RawJson { field, json }.serialize(serializer)
            }
        }
    }
}

#[derive(Serialize)]
struct AllowedTools<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    allowed_tools: AllowedToolList<'a>,
}

#[derive(Serialize)]
struct AllowedToolList<'a> {
    mode: &'static str,
    tools: Vec<NamedTool<'a>>,
}

/// A tool's name, which has its type beside it in this dialect.
struct NamedTool<'a> {
    tools: &'a [Tool],
    name: &'a str,
}

impl Serialize for NamedTool<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_custom = self.tools.iter().any(|tool| match &tool.kind {
            ToolKind::Custom(custom) => custom.name == self.name,
            ToolKind::Function(_) | ToolKind::BuiltIn(_) => false,
        });
        let kind = if is_custom { "custom" } else { "function" };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", kind)?;
        map.serialize_entry(kind, &ToolName { name: self.name })?;
        map.end()
    }
}

#[derive(Serialize)]
struct ToolName<'a> {
    name: &'a str,
}
