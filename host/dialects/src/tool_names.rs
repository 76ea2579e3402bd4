//! The names of tools in namespaces. Such a tool has two names, and one in the vocabulary.
//!
//! The one name is `<namespace>__<name>`. If upstreams would not accept it, or another tool has it, it is the tool's own
//! name with a hash of both. It depends on the two names alone as far as possible, so that upstreams find their cached
//! prefixes.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The maximum characters of a namespace's name.
pub(crate) const MAX_NAMESPACE_CHARS: usize = 256;

/// The pattern of a tool's name, as [`is_tool_name`] checks it.
pub(crate) const TOOL_NAME: &str = "^[a-zA-Z0-9_-]{1,64}$";

/// The characters of a tool's name before its hash, so that both have 64 at most.
const CHARS_BEFORE_HASH: usize = 47;

/// The tools of a request that are in namespaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ToolNames(Vec<NamespacedTool>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct NamespacedTool {
    flat: String,
    namespace: String,
    name: String,
}

impl ToolNames {
    /// Adds a tool, and returns its one name: one that is not taken.
    pub(crate) fn add(
        &mut self,
        namespace: String,
        name: &str,
        taken: &mut HashSet<String>,
    ) -> Option<String> {
        let names = [joined(&namespace, name), hashed(&namespace, name)];
        let flat = names.into_iter().find(|flat| taken.insert(flat.clone()))?;
        self.0.push(NamespacedTool {
            flat: flat.clone(),
            namespace,
            name: name.to_owned(),
        });
        Some(flat)
    }

    /// Returns the one name of a tool in a namespace, for calls of earlier turns. The request may have the tool no more.
    pub(crate) fn flat(&self, namespace: &str, name: &str) -> String {
        let mut tools = self.0.iter();
        let known = tools.find(|tool| tool.namespace == namespace && tool.name == name);
        known.map_or_else(|| joined(namespace, name), |tool| tool.flat.clone())
    }

    /// Returns the namespace of a called tool, if it has one, and its name.
    pub(crate) fn split(&self, flat: &str) -> (Option<String>, String) {
        match self.0.iter().find(|tool| tool.flat == flat) {
            Some(tool) => (Some(tool.namespace.clone()), tool.name.clone()),
            None => (None, flat.to_owned()),
        }
    }
}

fn joined(namespace: &str, name: &str) -> String {
    let separator = if namespace.ends_with("__") { "" } else { "__" };
    let joined = format!("{namespace}{separator}{name}");
    match is_tool_name(&joined) {
        true => joined,
        false => hashed(namespace, name),
    }
}

fn hashed(namespace: &str, name: &str) -> String {
    let mut hasher = DefaultHasher::new();
    (namespace, name).hash(&mut hasher);
    let name = name.chars().take(CHARS_BEFORE_HASH);
    let is_plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-');
    let name: String = name
        .map(|char| if is_plain(char) { char } else { '_' })
        .collect();
    format!("{name}_{:016x}", hasher.finish())
}

/// Whether upstreams accept a name of a tool.
pub(crate) fn is_tool_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(is_plain)
}
