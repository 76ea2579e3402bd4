//! Circles in the imports of a crate: between files, between modules of one folder, and against the order of layers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::imports::Import;

/// Imports between nodes, each node a file or a folder, with one example of an import for each pair.
#[derive(Default)]
struct Graph<'a>(BTreeMap<&'a str, BTreeMap<&'a str, &'a Import>>);

impl<'a> Graph<'a> {
    fn add(&mut self, from: &'a str, to: &'a str, import: &'a Import) {
        self.0.entry(to).or_default();
        self.0.entry(from).or_default().entry(to).or_insert(import);
    }

    /// The shortest way from a node back to itself: the imports on it.
    fn circle_through(&self, start: &'a str) -> Option<Vec<(&'a str, &'a str, &'a Import)>> {
        let mut came: BTreeMap<&str, (&'a str, &'a Import)> = BTreeMap::new();
        let mut next = VecDeque::from([start]);
        while let Some(at) = next.pop_front() {
            for (&to, &import) in &self.0[at] {
                if came.contains_key(to) {
                    continue;
                }
                came.insert(to, (at, import));
                if to == start {
                    let mut way = Vec::new();
                    let mut to = start;
                    loop {
                        let (from, import) = came[to];
                        way.push((from, to, import));
                        to = from;
                        if from == start {
                            way.reverse();
                            return Some(way);
                        }
                    }
                }
                next.push_back(to);
            }
        }
        None
    }

    fn reached_from(&self, start: &'a str) -> BTreeSet<&'a str> {
        let mut reached = BTreeSet::new();
        let mut next = vec![start];
        while let Some(at) = next.pop() {
            for &to in self.0[at].keys() {
                if reached.insert(to) {
                    next.push(to);
                }
            }
        }
        reached
    }

    /// The groups of nodes that import one another (strongly connected components).
    fn groups(&self) -> Vec<BTreeSet<&'a str>> {
        let nodes = self.0.keys();
        let reached: BTreeMap<_, _> = nodes.map(|&node| (node, self.reached_from(node))).collect();
        let mut groups: Vec<BTreeSet<&str>> = Vec::new();
        for (node, from) in &reached {
            if groups.iter().any(|group| group.contains(node)) {
                continue;
            }
            let back = from.iter().filter(|other| reached[**other].contains(node));
            let group: BTreeSet<&str> = back.copied().collect();
            if !group.is_empty() {
                groups.push(group);
            }
        }
        groups
    }

    /// A description of each group: its shortest circle, and its other nodes.
    fn descriptions(&self) -> Vec<String> {
        let mut descriptions = Vec::new();
        for group in self.groups() {
            let circles = group.iter().filter_map(|node| self.circle_through(node));
            let Some(shortest) = circles.min_by_key(Vec::len) else {
                continue;
            };
            let mut text = shown(shortest[0].0);
            for (index, (_, to, import)) in shortest.iter().enumerate() {
                let begin = if index == 0 { "" } else { ", which" };
                let (file, line) = (&import.file, import.line);
                text += &format!("{begin} imports {} ({file}:{line})", shown(to));
            }
            let on_it: BTreeSet<&str> = shortest.iter().map(|(from, ..)| *from).collect();
            let others: Vec<_> = group.difference(&on_it).map(|node| shown(node)).collect();
            if !others.is_empty() {
                text += &format!("; in circles with them: {}", others.join(", "));
            }
            descriptions.push(text);
        }
        descriptions
    }
}

fn shown(module: &str) -> String {
    match module {
        "" => "the root".to_owned(),
        module => module.to_owned(),
    }
}

/// Files that import each other in a circle.
pub(super) fn of_files(imports: &[Import]) -> Vec<String> {
    let mut graph = Graph::default();
    for import in imports {
        graph.add(&import.from, &import.to, import);
    }
    graph.descriptions()
}

/// Modules of one folder that import each other in a circle, each with all files below it.
pub(super) fn of_folders(imports: &[Import]) -> Vec<String> {
    let mut graph = Graph::default();
    for import in imports {
        if let Some((from, to)) = siblings(&import.from, &import.to) {
            graph.add(from, to, import);
        }
    }
    graph.descriptions()
}

/// The ancestors of two modules that are in the same folder. `None` if one module is below the other.
fn siblings<'a>(one: &'a str, other: &'a str) -> Option<(&'a str, &'a str)> {
    let segments = one.split('/').zip(other.split('/'));
    let mut start = 0;
    for (first, second) in segments {
        if first != second {
            let found = (&one[..start + first.len()], &other[..start + second.len()]);
            return (!first.is_empty() && !second.is_empty()).then_some(found);
        }
        start += first.len() + 1;
    }
    None
}

/// Imports from a layer into a layer above it. The lowest layer comes first; each lists the modules at the root of the
/// crate that belong to it. The root itself is above all layers.
pub(super) fn upward(imports: &[Import], layers: &[&[&str]]) -> Vec<String> {
    let layer_of = |module: &str| {
        let top = module.split('/').next().unwrap_or_default();
        if top.is_empty() {
            return layers.len();
        }
        let layer = layers.iter().position(|layer| layer.contains(&top));
        layer.unwrap_or_else(|| panic!("{top} has no place among the layers"))
    };
    let upward = imports
        .iter()
        .filter(|it| layer_of(&it.from) < layer_of(&it.to));
    let texts = upward.map(|it| {
        let (from, to) = (shown(&it.from), shown(&it.to));
        let (file, line) = (&it.file, it.line);
        format!("{from} imports {to}, which is in a layer above it ({file}:{line})")
    });
    texts.collect()
}

mod tests {
    use super::super::imports::in_texts as imports;
    use super::*;

    #[test]
    fn a_circle_of_files_is_found() {
        let imports = imports(&[
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "pub struct B; fn x() {\n crate::c::y() }"),
            ("c.rs", "pub fn y() { z!(crate::a::A) }"),
            ("d.rs", "use crate::a::A;"),
        ]);
        assert_eq!(
            of_files(&imports),
            ["a imports b (a.rs:1), which imports c (b.rs:2), which imports a (c.rs:1)"]
        );
    }

    #[test]
    fn a_circle_of_parent_and_child_is_found() {
        let imports = imports(&[
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod b; use self::b::B; pub struct A(B);"),
            ("a/b.rs", "\n\npub struct B; impl super::A {}"),
        ]);
        assert_eq!(
            of_files(&imports),
            ["a imports a/b (a/mod.rs:1), which imports a (a/b.rs:3)"]
        );
    }

    #[test]
    fn a_circle_of_the_root_and_a_module_is_found() {
        let imports = imports(&[
            ("lib.rs", "pub mod a; pub struct Root(a::A);"),
            ("a.rs", "pub struct A; pub fn x(root: crate::Root) {}"),
        ]);
        assert_eq!(
            of_files(&imports),
            ["the root imports a (lib.rs:1), which imports the root (a.rs:1)"]
        );
    }

    #[test]
    fn a_parent_that_only_re_exports_its_children_is_in_no_circle() {
        let imports = imports(&[
            ("lib.rs", "mod a;"),
            (
                "a/mod.rs",
                "mod b; mod c; pub use self::b::B; pub struct A;",
            ),
            ("a/b.rs", "use super::A; pub struct B;"),
            ("a/c.rs", "use super::{A, B};"),
        ]);
        assert_eq!(of_files(&imports), [""; 0]);
        assert_eq!(of_folders(&imports), [""; 0]);
    }

    #[test]
    fn a_parent_that_uses_its_re_export_is_in_a_circle() {
        let imports = imports(&[
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod b; pub use self::b::B; pub struct A(B);"),
            ("a/b.rs", "use super::A; pub struct B;"),
        ]);
        assert_eq!(of_files(&imports).len(), 1);
    }

    #[test]
    fn a_circle_through_a_re_export_is_one_of_the_files_that_define() {
        let imports = imports(&[
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod b; mod c; pub use self::{b::B, c::C};"),
            ("a/b.rs", "use super::C; pub struct B;"),
            ("a/c.rs", "use super::B; pub struct C;"),
        ]);
        assert_eq!(
            of_files(&imports),
            ["a/b imports a/c (a/b.rs:1), which imports a/b (a/c.rs:1)"]
        );
    }

    #[test]
    fn a_circle_of_folders_is_found_even_if_no_files_form_one() {
        let imports = imports(&[
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "mod x; pub mod y;"),
            ("a/x.rs", "use crate::b::B;"),
            ("a/y.rs", "pub struct Y;"),
            ("b.rs", "pub struct B; mod c;"),
            ("b/c.rs", "use crate::a::y::Y;"),
        ]);
        assert_eq!(of_files(&imports), [""; 0]);
        assert_eq!(
            of_folders(&imports),
            ["a imports b (a/x.rs:1), which imports a (b/c.rs:1)"]
        );
    }

    #[test]
    fn a_circle_of_folders_is_found_below_the_root() {
        let imports = imports(&[
            ("lib.rs", "mod top;"),
            ("top.rs", "mod a; mod b;"),
            ("top/a.rs", "mod x; pub mod y;"),
            ("top/a/x.rs", "use super::super::b::B;"),
            ("top/a/y.rs", "pub struct Y;"),
            ("top/b.rs", "pub struct B; use super::a::y::Y;"),
        ]);
        assert_eq!(
            of_folders(&imports),
            ["top/a imports top/b (top/a/x.rs:1), which imports top/a (top/b.rs:1)"]
        );
    }

    #[test]
    fn an_import_from_a_higher_layer_is_found() {
        let imports = imports(&[
            ("lib.rs", "mod base; mod feature; mod app; use app::App;"),
            ("base.rs", "pub struct Base;\nuse crate::feature::x::X;"),
            ("feature/mod.rs", "pub mod x; use crate::base::Base;"),
            ("feature/x.rs", "pub struct X;"),
            ("app.rs", "pub struct App(crate::base::Base);"),
        ]);
        let layers: [&[&str]; 3] = [&["base"], &["feature"], &["app"]];
        assert_eq!(
            upward(&imports, &layers),
            ["base imports feature/x, which is in a layer above it (base.rs:2)"]
        );
    }

    #[test]
    #[should_panic(expected = "new has no place among the layers")]
    fn a_module_without_a_layer_is_found() {
        let imports = imports(&[
            ("lib.rs", "mod base; mod new;"),
            ("base.rs", "pub struct Base;"),
            ("new.rs", "use crate::base::Base;"),
        ]);
        upward(&imports, &[&["base"]]);
    }
}
