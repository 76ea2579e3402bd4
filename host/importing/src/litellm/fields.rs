//! Mappings whose keys are taken one by one, and the list of those that nobody took.

use std::collections::BTreeMap;

use super::yaml::{Node, YamlValue};

/// The results of an import besides the configuration. No text holds a value of the file that may be a secret.
#[derive(Debug, Default)]
pub struct ImportNotes {
    /// Settings without an equivalent, by path, with the reason.
    pub left_out: Vec<(String, String)>,
    /// Settings whose equivalent differs, by path, with the difference.
    pub changed: Vec<(String, String)>,
    /// Environment variables of the configuration; the value is the path of a secret that the file holds itself.
    pub variables: BTreeMap<String, Option<String>>,
}

impl ImportNotes {
    /// Notes a setting without an equivalent.
    pub fn leave_out(&mut self, at: impl Into<String>, why: impl Into<String>) {
        self.left_out.push((at.into(), why.into()));
    }

    /// Adds other notes, each once.
    pub fn merge(&mut self, other: Self) {
        for (own, other) in [
            (&mut self.left_out, other.left_out),
            (&mut self.changed, other.changed),
        ] {
            for note in other {
                if !own.contains(&note) {
                    own.push(note);
                }
            }
        }
        for (name, at) in other.variables {
            let known = self.variables.entry(name).or_default();
            *known = known.take().or(at);
        }
    }

    /// Notes a setting whose equivalent differs.
    pub fn change(&mut self, at: impl Into<String>, how: impl Into<String>) {
        self.changed.push((at.into(), how.into()));
    }
}

/// The entries of a mapping that have not been taken.
#[derive(Debug, Clone, Default)]
pub struct YamlFields(Vec<(String, Node)>);

impl YamlFields {
    /// Returns the entries of a mapping; a missing or empty one has none.
    ///
    /// # Errors
    ///
    /// The value is no mapping.
    pub fn of(node: Option<Node>) -> Result<Self, String> {
        match node.map(|node| (node.at, node.value)) {
            None | Some((_, YamlValue::Null)) => Ok(Self::default()),
            Some((_, YamlValue::Mapping(entries))) => Ok(Self(entries)),
            Some((at, _)) => Err(format!("{at} is no mapping")),
        }
    }

    /// Takes an entry with a value.
    pub fn take(&mut self, name: &str) -> Option<Node> {
        let index = self.0.iter().position(|(key, _)| key == name)?;
        let (_, node) = self.0.remove(index);
        (!matches!(node.value, YamlValue::Null)).then_some(node)
    }

    /// Takes all entries whose names fit.
    pub fn take_all(&mut self, fits: impl Fn(&str) -> bool) -> Vec<(String, Node)> {
        let (taken, rest) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|(key, _)| fits(key));
        self.0 = rest;
        taken
    }

    /// Adds the entries of another mapping that this one lacks.
    pub fn add_missing(&mut self, other: Self) {
        for (key, node) in other.0 {
            if self.0.iter().all(|(own, _)| *own != key) {
                self.0.push((key, node));
            }
        }
    }

    /// Adds an included file's entries as LiteLLM does: lists grow, other values are replaced.
    pub fn include(&mut self, other: Self) {
        for (key, node) in other.0 {
            match self.0.iter_mut().find(|(own, _)| *own == key) {
                None => self.0.push((key, node)),
                Some((_, own)) => match (&mut own.value, node.value) {
                    (YamlValue::List(items), YamlValue::List(more)) => items.extend(more),
                    (_, value) => *own = Node { at: node.at, value },
                },
            }
        }
    }

    /// Notes all entries that nobody took.
    pub fn leave_out(self, notes: &mut ImportNotes, why: impl Fn(&str) -> String) {
        for (key, node) in self.0 {
            let is_empty = match &node.value {
                YamlValue::Null => true,
                YamlValue::Scalar(_) => false,
                YamlValue::List(items) => items.is_empty(),
                YamlValue::Mapping(entries) => entries.is_empty(),
            };
            let why = match is_empty {
                true => "it is empty".to_owned(),
                false => why(&key),
            };
            notes.leave_out(node.at, why);
        }
    }
}
