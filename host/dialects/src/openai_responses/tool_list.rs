//! The list of a request's tools: its own tools, those of namespaces, and those that items of the input add.

use std::collections::{HashMap, HashSet};

use weir_sandbox::adapter::bindings::chat::{Tool, ToolKind};

use super::tools::{DefinedTool, Namespace};
use crate::json::{FieldFault, MAX_TOOLS};
use crate::tool_names::ToolNames;

/// Returns all tools with one name each, first those of the request itself. A later definition of a tool in a namespace,
/// or by an item of the input, replaces an earlier one, because clients repeat such items.
pub(super) fn flat(
    defined: Vec<DefinedTool>,
    added: Vec<DefinedTool>,
) -> Result<(Vec<Tool>, ToolNames), FieldFault> {
    let mut list = ToolList::default();
    let own = defined.into_iter().map(|tool| (tool, false));
    for (tool, is_added) in own.chain(added.into_iter().map(|tool| (tool, true))) {
        match tool {
            DefinedTool::Single(tool) => list.add(None, tool, is_added),
            DefinedTool::Namespace(namespace) => list.add_namespace(namespace),
        }
    }
    list.named()
}

/// A namespace, a kind and a name. Two tools with the same three are the same tool.
type ToolIdentity = (Option<String>, String, Option<String>);

#[derive(Default)]
struct ToolList {
    tools: Vec<(Option<String>, Tool)>,
    places: HashMap<ToolIdentity, usize>,
}

impl ToolList {
    fn add(&mut self, namespace: Option<String>, tool: Tool, replaces: bool) {
        let identity = identity(namespace.clone(), &tool);
        let place = self.tools.len();
        match self.places.insert(identity.clone(), place) {
            Some(earlier) if replaces => {
                self.places.insert(identity, earlier);
                self.tools[earlier] = (namespace, tool);
            }
            _ => self.tools.push((namespace, tool)),
        }
    }

    fn add_namespace(&mut self, namespace: Namespace) {
        let Namespace {
            name,
            mut description,
            tools,
        } = namespace;
        for mut tool in tools {
            // The first tool describes the namespace.
            let purpose = description.take().filter(|text| !text.is_empty());
            let own = match &mut tool.kind {
                ToolKind::Function(function) => Some(&mut function.description),
                ToolKind::Custom(custom) => Some(&mut custom.description),
                ToolKind::BuiltIn(_) => None,
            };
            if let (Some(purpose), Some(own)) = (purpose, own) {
                *own = Some(match own.take() {
                    Some(own) => format!("{purpose}\n\n{own}"),
                    None => purpose,
                });
            }
            self.add(Some(name.clone()), tool, true);
        }
    }

    fn named(self) -> Result<(Vec<Tool>, ToolNames), FieldFault> {
        if self.tools.len() > MAX_TOOLS {
            return Err(FieldFault::new(
                "tools",
                format!("must not have more than {MAX_TOOLS} tools, with those of namespaces"),
            ));
        }
        let singles = self
            .tools
            .iter()
            .filter(|(namespace, _)| namespace.is_none());
        let mut taken: HashSet<String> = singles
            .filter_map(|(_, tool)| name_of(tool).map(str::to_owned))
            .collect();
        let mut names = ToolNames::default();
        let mut tools = Vec::with_capacity(self.tools.len());
        for (namespace, mut tool) in self.tools {
            if let (Some(namespace), Some(name)) = (namespace, name_mut(&mut tool)) {
                let flat = names.add(namespace, name, &mut taken);
                *name =
                    flat.ok_or_else(|| FieldFault::new("tools", "must have different names"))?;
            }
            tools.push(tool);
        }
        Ok((tools, names))
    }
}

fn identity(namespace: Option<String>, tool: &Tool) -> ToolIdentity {
    let (kind, name) = match &tool.kind {
        ToolKind::Function(function) => ("function", Some(&function.name)),
        ToolKind::Custom(custom) => ("custom", Some(&custom.name)),
        ToolKind::BuiltIn(built_in) => (built_in.kind.as_str(), built_in.name.as_ref()),
    };
    (namespace, kind.to_owned(), name.cloned())
}

fn name_of(tool: &Tool) -> Option<&str> {
    match &tool.kind {
        ToolKind::Function(function) => Some(&function.name),
        ToolKind::Custom(custom) => Some(&custom.name),
        ToolKind::BuiltIn(_) => None,
    }
}

fn name_mut(tool: &mut Tool) -> Option<&mut String> {
    match &mut tool.kind {
        ToolKind::Function(function) => Some(&mut function.name),
        ToolKind::Custom(custom) => Some(&mut custom.name),
        ToolKind::BuiltIn(_) => None,
    }
}
