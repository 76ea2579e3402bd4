//! Finds which file of a crate imports which other.
//!
//! A file imports another file if its code or a `use` declaration names an item that the other file defines. Names are
//! followed through re-exports to the definition: `super::Name` imports the child that defines `Name`, if the parent only
//! re-exports it.
//!
//! | No import | Reason |
//! |---|---|
//! | `mod child;` | the parent must declare the child |
//! | `pub use self::child::Name` in the parent | the parent does not use the name |
//! | `use crate::module` | the paths through `module` are the imports |
//! | `value.method()` | the source does not tell the type |

use std::collections::BTreeMap;

use super::modules::Modules;

/// The most re-exports that a name is followed through.
const MAX_STEPS: usize = 16;

/// An import of one file by another.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Import {
    /// The module that the importing file stands for, as in `identity/store`; empty for the root.
    pub(super) from: String,
    /// The module that the imported file stands for.
    pub(super) to: String,
    /// The importing file, below `src`.
    pub(super) file: String,
    pub(super) line: usize,
}

/// A path leads to a module, or to an item of a module.
#[derive(Debug)]
enum Target {
    Module(String),
    Item(String),
}

/// Finds the imports between the files of a crate: the first of each file for each other file.
pub(super) fn between(modules: &Modules) -> Vec<Import> {
    let names = Names(modules);
    let mut found: BTreeMap<(&str, &str), Import> = BTreeMap::new();
    for (module, from) in modules {
        let uses = from.uses.iter().map(|it| (&it.path, it.line, Some(it)));
        let paths = from.paths.iter().map(|it| (&it.segments, it.line, None));
        for (path, line, declaration) in uses.chain(paths) {
            let Some(Target::Item(module)) = names.target(module, path, declaration.is_some(), 0)
            else {
                continue;
            };
            let to = &*modules[&module].of_file;
            let is_re_export = declaration.is_some_and(|it| it.is_public);
            if to == from.of_file || is_re_export && is_below(to, &from.of_file) {
                continue;
            }
            let import = Import {
                from: from.of_file.clone(),
                to: to.to_owned(),
                file: from.file.clone(),
                line,
            };
            let first = found.entry((&from.of_file, to)).or_insert(import.clone());
            first.line = first.line.min(line);
        }
    }
    found.into_values().collect()
}

fn is_below(module: &str, parent: &str) -> bool {
    parent.is_empty()
        || module
            .strip_prefix(parent)
            .is_some_and(|rest| rest.starts_with('/'))
}

/// The names of all modules of a crate.
struct Names<'a>(&'a Modules);

impl Names<'_> {
    /// Follows a path; `None` if it leads out of the crate.
    fn target(
        &self,
        module: &str,
        path: &[String],
        is_declaration: bool,
        step: usize,
    ) -> Option<Target> {
        if step > MAX_STEPS {
            return None;
        }
        let mut at = module.to_owned();
        let mut is_named = false;
        for (index, segment) in path.iter().enumerate() {
            match &**segment {
                "crate" => at = String::new(),
                "self" => {}
                "super" => {
                    at = at
                        .rsplit_once('/')
                        .map_or("", |(parent, _)| parent)
                        .to_owned()
                }
                name => {
                    let is_last = index + 1 == path.len();
                    let found = self.find(&at, name, is_last, step + 1);
                    match found {
                        Some(Target::Module(child)) => at = child,
                        Some(item) => return Some(item),
                        // A macro makes this name.
                        None if is_named && self.is_all_inside(&at, name) => {
                            return Some(Target::Item(at));
                        }
                        None => return None,
                    }
                }
            }
            is_named = true;
        }
        // In code, a lone word is no module: modules have paths behind them.
        (is_declaration || path.len() > 1).then_some(Target::Module(at))
    }

    /// Looks a name up in a module. Before `::`, a module has precedence; at the end of a path, an item.
    fn find(&self, module: &str, name: &str, is_last: bool, step: usize) -> Option<Target> {
        let at = &self.0[module];
        let child = match module {
            "" => name.to_owned(),
            module => format!("{module}/{name}"),
        };
        let has_child = self.0.contains_key(&child);
        if has_child && !is_last {
            return Some(Target::Module(child));
        }
        if at.items.contains(name) {
            return Some(Target::Item(module.to_owned()));
        }
        let named = at.uses.iter().filter(|it| it.name.as_deref() == Some(name));
        for declaration in named {
            // `use hyper;` means the crate of this name.
            if declaration.path == [name] {
                continue;
            }
            if let Some(target) = self.target(module, &declaration.path, true, step) {
                return Some(target);
            }
        }
        if has_child {
            return Some(Target::Module(child));
        }
        let globs = at.uses.iter().filter(|it| it.name.is_none());
        for declaration in globs {
            if let Some(Target::Module(other)) = self.target(module, &declaration.path, true, step)
                && other != module
                && step < MAX_STEPS
                && let Some(target) = self.find(&other, name, is_last, step + 1)
            {
                return Some(target);
            }
        }
        None
    }

    /// Whether no `use` declaration of the module brings this name from another crate.
    fn is_all_inside(&self, module: &str, name: &str) -> bool {
        let uses = &self.0[module].uses;
        !uses
            .iter()
            .any(|it| it.name.is_none() || it.name.as_deref() == Some(name))
    }
}

/// The imports of a crate from a list of paths and texts.
pub(super) fn in_texts(files: &[(&str, &str)]) -> Vec<Import> {
    let text_of = |path: &str| {
        let found = files.iter().find(|(known, _)| *known == path);
        found.map(|(_, text)| (*text).to_owned())
    };
    between(&super::modules::read(&text_of))
}

/// The same, each as "from > to:line".
fn imports(files: &[(&str, &str)]) -> Vec<String> {
    let found = in_texts(files);
    let found = found
        .iter()
        .map(|it| format!("{} > {}:{}", it.from, it.to, it.line));
    found.collect()
}

#[test]
fn imports_are_followed_to_the_file_that_defines_a_name() {
    let found = imports(&[
        ("lib.rs", "mod a; mod b; mod c; pub use self::a::A as Top;"),
        (
            "a.rs",
            "pub mod x; mod y; pub use self::x::*; pub use y::Y;",
        ),
        ("a/x.rs", "pub struct A; pub fn f() {}"),
        ("a/y.rs", "pub enum Y { One }"),
        ("b.rs", "use crate::a;\n\nfn g() { a::f(); }"),
        (
            "c.rs",
            "\nfn g(y: crate::a::Y) { Y::One; crate::Top::new() }",
        ),
    ]);
    assert_eq!(found, ["b > a/x:3", "c > a/x:2", "c > a/y:2"]);
}

#[test]
fn a_name_that_a_macro_makes_belongs_to_the_module_of_the_macro() {
    let found = imports(&[
        ("lib.rs", "mod a; mod b;"),
        (
            "a.rs",
            "mod generated { make!(); } pub use generated::Made;",
        ),
        ("b.rs", "use crate::a::Made;"),
    ]);
    assert_eq!(found, ["b > a:1"]);
}

#[test]
fn names_of_other_crates_variables_and_unit_tests_are_no_imports() {
    let found = imports(&[
        ("lib.rs", "mod a; mod b;"),
        (
            "a.rs",
            "mod c; use std::fmt::Debug; pub use self::c::value;",
        ),
        ("a/c.rs", "use super::Debug; pub fn value() {}"),
        (
            "b.rs",
            "pub use crate::a::*; fn f(value: u8) { value }\n#[cfg(test)] mod tests { use crate::a::value; }",
        ),
    ]);
    assert_eq!(found, [""; 0]);
}

#[test]
fn a_re_export_of_another_folder_is_an_import() {
    let found = imports(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "pub struct A;"),
        ("b.rs", "pub use crate::a::A;"),
    ]);
    assert_eq!(found, ["b > a:1"]);
}
