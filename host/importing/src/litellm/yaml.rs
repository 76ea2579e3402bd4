//! YAML as LiteLLM reads it, with PyYAML's `safe_load`: one document, merge keys, and the words of YAML 1.1 for booleans.
//!
//! Scalars stay as written, because prices must not become binary numbers.
//!
//! **Invariant:** the tree has at most [`MAX_BYTES`] and [`MAX_DEPTH`] levels, also after aliases are replaced. No error
//! quotes a value.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle};

/// Maximum bytes of a file, and of the tree, in which each node counts as [`NODE_BYTES`] and its text.
pub const MAX_BYTES: usize = 8 << 20;

/// Maximum nested lists and mappings.
const MAX_DEPTH: usize = 32;

/// The size of a node without its text.
const NODE_BYTES: usize = 64;

#[derive(Debug, Clone)]
pub struct Node {
    /// The path, such as `model_list[0].model_name`.
    pub at: String,
    pub value: YamlValue,
}

#[derive(Debug, Clone)]
pub enum YamlValue {
    Null,
    /// A scalar as written, without quotes.
    Scalar(String),
    List(Vec<Node>),
    /// A mapping in the file's order, with distinct keys.
    Mapping(Vec<(String, Node)>),
}

impl Node {
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            YamlValue::Scalar(text) => Some(text),
            _ => None,
        }
    }

    /// Returns whether the value is a true boolean, also as a text.
    pub fn is_true(&self) -> bool {
        let text = self.text().unwrap_or_default().to_ascii_lowercase();
        ["true", "yes", "on"].contains(&text.as_str())
    }

    /// Returns a number; YAML 1.1 allows underscores in it.
    pub fn number(&self) -> Option<f64> {
        number(self.text()?)
    }

    /// Returns a whole number.
    pub fn whole(&self) -> Option<u32> {
        let number = self.number()?;
        let is_whole = number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number);
        is_whole.then_some(number as u32)
    }

    pub fn items(&self) -> &[Node] {
        match &self.value {
            YamlValue::List(items) => items,
            _ => &[],
        }
    }

    /// Sets the paths of the node and of all nodes in it.
    fn place(&mut self, at: String) {
        match &mut self.value {
            YamlValue::Null | YamlValue::Scalar(_) => {}
            YamlValue::List(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    item.place(format!("{at}[{index}]"));
                }
            }
            YamlValue::Mapping(entries) => {
                for (key, value) in entries {
                    // The names of files end with a colon and a space.
                    let dot = if at.is_empty() || at.ends_with(' ') {
                        ""
                    } else {
                        "."
                    };
                    // A terminal would obey control characters.
                    let key = key.escape_debug();
                    value.place(format!("{at}{dot}{key}"));
                }
            }
        }
        self.at = at;
    }
}

/// Reads a number of YAML 1.1.
pub fn number(text: &str) -> Option<f64> {
    let number: f64 = text.replace('_', "").parse().ok()?;
    number.is_finite().then_some(number)
}

/// Reads a document. `start` is the beginning of all paths.
///
/// # Errors
///
/// The fault with its line, without any value.
pub fn read(text: &str, start: &str) -> Result<Node, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("is larger than {} MiB", MAX_BYTES >> 20));
    }
    let mut reader = Reader::default();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for event in Parser::new_from_str(text) {
        // The parser's errors name no values, only the broken rule.
        let (event, span) = event.map_err(|error| {
            let line = error.marker().line();
            format!("is not valid YAML: line {line}: {}", error.info())
        })?;
        let line = span.start.line();
        reader
            .take(event)
            .map_err(|why| format!("line {line}: {why}"))?;
    }
    let mut root = reader.root.ok_or("is empty")?;
    root.place(start.to_owned());
    Ok(root)
}

/// A list or a mapping that has begun.
struct Open {
    anchor: usize,
    /// The node's size so far, for aliases.
    bytes_before: usize,
    content: OpenContent,
}

enum OpenContent {
    List(Vec<Node>),
    Mapping(Vec<(String, Node)>, Option<String>),
}

#[derive(Default)]
struct Reader {
    open: Vec<Open>,
    /// Nodes by anchor, with their sizes.
    anchors: BTreeMap<usize, (Node, usize)>,
    bytes: usize,
    root: Option<Node>,
}

impl Reader {
    fn take(&mut self, event: Event<'_>) -> Result<(), String> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain && tag.is_none();
                let null = plain && ["", "~", "null", "Null", "NULL"].contains(&&*text);
                let size = NODE_BYTES + text.len();
                self.spend(size)?;
                let value = match null {
                    true => YamlValue::Null,
                    false => YamlValue::Scalar(text.into_owned()),
                };
                self.put(value, anchor, size)
            }
            Event::SequenceStart(anchor, _) => self.begin(anchor, OpenContent::List(Vec::new())),
            Event::MappingStart(anchor, _) => {
                self.begin(anchor, OpenContent::Mapping(Vec::new(), None))
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let open = self.open.pop().ok_or("is out of place")?;
                let value = match open.content {
                    OpenContent::List(items) => YamlValue::List(items),
                    OpenContent::Mapping(entries, _) => YamlValue::Mapping(merged(entries)?),
                };
                self.put(value, open.anchor, self.bytes - open.bytes_before)
            }
            Event::Alias(anchor) => {
                let (node, size) = self
                    .anchors
                    .get(&anchor)
                    .ok_or("an alias stands inside its own anchor")?;
                let (value, size) = (node.value.clone(), *size);
                self.spend(size)?;
                self.put(value, 0, size)
            }
            Event::DocumentStart(_) if self.root.is_some() => {
                Err("a second document begins; LiteLLM reads one".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Counts a node before it is made.
    fn spend(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes = self.bytes.saturating_add(bytes);
        match self.bytes > MAX_BYTES {
            true => Err(format!(
                "the values, with aliases replaced, are larger than {} MiB",
                MAX_BYTES >> 20
            )),
            false => Ok(()),
        }
    }

    fn begin(&mut self, anchor: usize, content: OpenContent) -> Result<(), String> {
        if self.open.len() == MAX_DEPTH {
            return Err(format!(
                "more than {MAX_DEPTH} lists and mappings are nested"
            ));
        }
        let bytes_before = self.bytes;
        self.spend(NODE_BYTES)?;
        self.open.push(Open {
            anchor,
            bytes_before,
            content,
        });
        Ok(())
    }

    fn put(&mut self, value: YamlValue, anchor: usize, size: usize) -> Result<(), String> {
        let node = Node {
            at: String::new(),
            value,
        };
        if depth(&node) + self.open.len() > MAX_DEPTH {
            return Err(format!(
                "more than {MAX_DEPTH} lists and mappings are nested"
            ));
        }
        if anchor != 0 {
            // The copy exists beside the node itself.
            self.spend(size)?;
            self.anchors.insert(anchor, (node.clone(), size));
        }
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(OpenContent::List(items)) => items.push(node),
            Some(OpenContent::Mapping(entries, key)) => match key.take() {
                Some(key) => entries.push((key, node)),
                None => match node.value {
                    YamlValue::Scalar(text) => *key = Some(text),
                    _ => return Err("a key is no text".to_owned()),
                },
            },
        }
        Ok(())
    }
}

fn depth(node: &Node) -> usize {
    match &node.value {
        YamlValue::Null | YamlValue::Scalar(_) => 0,
        YamlValue::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        YamlValue::Mapping(entries) => {
            1 + entries
                .iter()
                .map(|(_, node)| depth(node))
                .max()
                .unwrap_or(0)
        }
    }
}

/// Replaces the merge key `<<`. The mapping's own entries have precedence.
fn merged(entries: Vec<(String, Node)>) -> Result<Vec<(String, Node)>, String> {
    let mut all: Vec<(String, Node)> = Vec::new();
    let mut sources = Vec::new();
    for (key, node) in entries {
        if key == "<<" {
            match node.value {
                YamlValue::List(items) => sources.extend(items),
                _ => sources.push(node),
            }
        } else if all.iter().any(|(other, _)| *other == key) {
            return Err(format!("the key {key:?} is there twice"));
        } else {
            all.push((key, node));
        }
    }
    for source in sources {
        let YamlValue::Mapping(entries) = source.value else {
            return Err("a merge key has no mapping".to_owned());
        };
        for (key, node) in entries {
            if all.iter().all(|(other, _)| *other != key) {
                all.push((key, node));
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_cannot_exceed_the_bounds() {
        let bomb = (1..40).fold("a0: &a0 [x, x]\n".to_owned(), |text, level| {
            let below = level - 1;
            format!("{text}a{level}: &a{level} [*a{below}, *a{below}]\n")
        });
        let error = read(&bomb, "").expect_err("it is too large");
        assert!(error.contains("larger than 8 MiB"), "{error}");
        let chain = (1..60).fold("a0: &a0 [x]\n".to_owned(), |text, level| {
            format!("{text}a{level}: &a{level} [*a{}]\n", level - 1)
        });
        let error = read(&chain, "").expect_err("it is too deep");
        assert!(error.contains("are nested"), "{error}");
        let error = read(&"[".repeat(100_000), "").expect_err("it is too deep");
        assert!(
            error.contains("are nested") || error.contains("recursion"),
            "{error}"
        );
        let error = read("a: &a [*a]", "").expect_err("it has no end");
        assert!(
            error.contains("alias") || error.contains("anchor"),
            "{error}"
        );
    }

    #[test]
    fn merge_keys_give_way_to_own_entries() {
        let text = "base: &base {a: 1, b: 2}\nall: {<<: *base, b: 3}\n";
        let root = read(text, "").expect("it is valid");
        let YamlValue::Mapping(entries) = root.value else {
            panic!("a mapping");
        };
        let YamlValue::Mapping(all) = &entries[1].1.value else {
            panic!("a mapping");
        };
        let texts: Vec<_> = all
            .iter()
            .map(|(key, node)| (&**key, node.text()))
            .collect();
        assert_eq!(texts, [("b", Some("3")), ("a", Some("1"))]);
        assert_eq!(all[1].1.at, "all.a");
    }

    #[test]
    fn faults_name_their_line_and_no_value() {
        for (text, error) in [
            ("a: 1\na: 2\n", "line 3: the key \"a\" is there twice"),
            (
                "a: 1\n---\nb: 2\n",
                "line 2: a second document begins; LiteLLM reads one",
            ),
            ("", "is empty"),
        ] {
            assert_eq!(read(text, "").expect_err(text), error);
        }
        let error = read("key: \"sk-secret\n", "").expect_err("the text has no end");
        assert!(!error.contains("sk-secret"), "{error}");
    }
}
