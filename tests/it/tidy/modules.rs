//! Reads the modules of a crate from its source: the names that each module defines, its `use` declarations, and the
//! paths in its code. Unit tests (`#[cfg(test)]`, `#[test]`) are left out.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, Meta, UseTree, Visibility};

/// A module: a file, or a `mod` with braces in a file.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// The path below `src`, as in `identity/store.rs`.
    pub(super) file: String,
    /// The module that the file stands for.
    pub(super) of_file: String,
    /// The names of the items that the module defines, without its child modules.
    pub(super) items: BTreeSet<String>,
    pub(super) uses: Vec<Use>,
    /// The paths in the code, without `use` declarations.
    pub(super) paths: Vec<CodePath>,
    /// All words of the code, without literals and comments.
    pub(super) words: BTreeSet<String>,
}

/// The modules of a crate by their path, as in `identity/store`; `""` is the root.
pub(super) type Modules = BTreeMap<String, Module>;

/// A name that a `use` declaration brings into a module.
#[derive(Debug)]
pub(super) struct Use {
    pub(super) path: Vec<String>,
    /// `None` for `path::*`.
    pub(super) name: Option<String>,
    pub(super) is_public: bool,
    pub(super) line: usize,
}

/// A path in code, as in `crate::billing::charge`.
#[derive(Debug)]
pub(super) struct CodePath {
    pub(super) segments: Vec<String>,
    pub(super) line: usize,
}

/// Reads the modules of a library. `text_of` returns the text of a file by its path below `src`.
pub(super) fn read(text_of: &impl Fn(&str) -> Option<String>) -> Modules {
    let mut modules = BTreeMap::new();
    let mut next = vec![(String::new(), "lib.rs".to_owned())];
    while let Some((module, file)) = next.pop() {
        let text = text_of(&file).unwrap_or_else(|| panic!("{file} is missing"));
        let mut reader = Reader::new(&module, &file);
        reader.read(&text);
        modules.append(&mut reader.modules);
        for child in reader.children {
            let files = [format!("{child}.rs"), format!("{child}/mod.rs")];
            let found = files.iter().find(|file| text_of(file).is_some());
            let found = found.unwrap_or_else(|| panic!("{child} has no file"));
            next.push((child, found.clone()));
        }
    }
    modules
}

struct Reader {
    modules: Modules,
    /// The modules with a file of their own that this file declares.
    children: Vec<String>,
    file: String,
    of_file: String,
    /// The module that surrounds the current place.
    module: String,
    /// The variables of the surrounding functions: a path of one such word is no item.
    variables: Vec<BTreeSet<String>>,
}

impl Reader {
    fn new(module: &str, file: &str) -> Self {
        let mut reader = Self {
            modules: BTreeMap::new(),
            children: Vec::new(),
            file: file.to_owned(),
            of_file: module.to_owned(),
            module: String::new(),
            variables: Vec::new(),
        };
        reader.enter(module.to_owned());
        reader
    }

    fn read(&mut self, text: &str) {
        let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{}: {error}", self.file));
        self.visit_file(&file);
    }

    fn enter(&mut self, module: String) {
        let entered = Module {
            file: self.file.clone(),
            of_file: self.of_file.clone(),
            ..Module::default()
        };
        self.modules.insert(module.clone(), entered);
        self.module = module;
    }

    fn current(&mut self) -> &mut Module {
        self.modules.entry(self.module.clone()).or_default()
    }

    fn define(&mut self, name: &Ident) {
        let name = name.unraw().to_string();
        self.current().items.insert(name);
    }

    fn add_path(&mut self, segments: Vec<String>, line: usize) {
        if let [word] = &*segments
            && self.variables.iter().any(|known| known.contains(word))
        {
            return;
        }
        self.current().paths.push(CodePath { segments, line });
    }

    fn add_uses(&mut self, tree: &UseTree, before: &[String], is_public: bool) {
        let mut path = before.to_vec();
        let (name, span) = match tree {
            UseTree::Path(it) => {
                path.push(self.word(&it.ident));
                return self.add_uses(&it.tree, &path, is_public);
            }
            UseTree::Group(group) => {
                for item in &group.items {
                    self.add_uses(item, before, is_public);
                }
                return;
            }
            UseTree::Name(it) if it.ident == "self" => (path.last().cloned(), it.ident.span()),
            UseTree::Name(it) => {
                path.push(self.word(&it.ident));
                (path.last().cloned(), it.ident.span())
            }
            UseTree::Rename(it) => {
                if it.ident != "self" {
                    path.push(self.word(&it.ident));
                }
                (Some(self.word(&it.rename)), it.ident.span())
            }
            UseTree::Glob(it) => (None, it.star_token.spans[0]),
        };
        self.current().uses.push(Use {
            path,
            name,
            is_public,
            line: span.start().line,
        });
    }

    fn word(&mut self, ident: &Ident) -> String {
        let word = ident.unraw().to_string();
        self.current().words.insert(word.clone());
        word
    }

    /// The paths in the input of a macro. A single word counts only as a type or a call, because it could be a variable.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let is = |at: usize, sign: char| matches!(tokens.get(at), Some(TokenTree::Punct(it)) if it.as_char() == sign);
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            let first = match token {
                TokenTree::Ident(first) => first,
                TokenTree::Group(group) => {
                    self.add_tokens(group.stream());
                    continue;
                }
                _ => continue,
            };
            let is_member = at >= 2 && is(at - 2, '.') && !(at >= 3 && is(at - 3, '.'));
            let mut segments = vec![self.word(first)];
            while is(at, ':')
                && is(at + 1, ':')
                && let Some(TokenTree::Ident(segment)) = tokens.get(at + 2)
            {
                segments.push(self.word(segment));
                at += 3;
            }
            let is_type = segments[0].starts_with(char::is_uppercase);
            let is_call = is(at, '!')
                || matches!(tokens.get(at), Some(TokenTree::Group(it)) if it.delimiter() == Delimiter::Parenthesis);
            if !is_member && (segments.len() > 1 || is_type || is_call) {
                self.add_path(segments, first.span().start().line);
            }
        }
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.segments.last().is_some_and(|it| it.ident == "test"),
        Meta::List(list) => {
            list.path.is_ident("cfg")
                && syn::parse2::<syn::Path>(list.tokens.clone()).is_ok_and(|it| it.is_ident("test"))
        }
        Meta::NameValue(_) => false,
    })
}

fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(it) => &it.attrs,
        Item::Enum(it) => &it.attrs,
        Item::ExternCrate(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        Item::ForeignMod(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Macro(it) => &it.attrs,
        Item::Mod(it) => &it.attrs,
        Item::Static(it) => &it.attrs,
        Item::Struct(it) => &it.attrs,
        Item::Trait(it) => &it.attrs,
        Item::TraitAlias(it) => &it.attrs,
        Item::Type(it) => &it.attrs,
        Item::Union(it) => &it.attrs,
        Item::Use(it) => &it.attrs,
        _ => &[],
    }
}

/// The variables of a function: names of arguments, and of patterns anywhere in the body.
#[derive(Default)]
struct Variables(BTreeSet<String>);

impl<'ast> Visit<'ast> for Variables {
    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        self.0.insert(pattern.ident.unraw().to_string());
        visit::visit_pat_ident(self, pattern);
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_for_tests(attributes_of(item)) {
            return;
        }
        match item {
            Item::Const(it) => self.define(&it.ident),
            Item::Enum(it) => self.define(&it.ident),
            Item::Fn(it) => self.define(&it.sig.ident),
            Item::Macro(it) => {
                if let Some(name) = &it.ident {
                    self.define(name);
                }
            }
            Item::Static(it) => self.define(&it.ident),
            Item::Struct(it) => self.define(&it.ident),
            Item::Trait(it) => self.define(&it.ident),
            Item::Type(it) => self.define(&it.ident),
            Item::Union(it) => self.define(&it.ident),
            Item::Use(it) => {
                let is_public = !matches!(it.vis, Visibility::Inherited);
                return self.add_uses(&it.tree, &[], is_public);
            }
            Item::Mod(it) => {
                let name = it.ident.unraw().to_string();
                let child = match &*self.module {
                    "" => name,
                    module => format!("{module}/{name}"),
                };
                if it.content.is_none() {
                    return self.children.push(child);
                }
                let outer = self.module.clone();
                self.enter(child);
                visit::visit_item(self, item);
                self.module = outer;
                return;
            }
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        let mut variables = Variables::default();
        variables.visit_item_fn(function);
        self.variables.push(variables.0);
        visit::visit_item_fn(self, function);
        self.variables.pop();
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if is_for_tests(&function.attrs) {
            return;
        }
        let mut variables = Variables::default();
        variables.visit_impl_item_fn(function);
        self.variables.push(variables.0);
        visit::visit_impl_item_fn(self, function);
        self.variables.pop();
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_for_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !is_for_tests(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    /// The path in `pub(in crate::a)` is no import.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none()
            && let Some(first) = path.segments.first()
        {
            let segments = path.segments.iter().map(|it| it.ident.unraw().to_string());
            self.add_path(segments.collect(), first.ident.span().start().line);
        }
        visit::visit_path(self, path);
    }

    fn visit_ident(&mut self, ident: &'ast Ident) {
        self.word(ident);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        visit::visit_macro(self, call);
        self.add_tokens(call.tokens.clone());
    }

    /// Attributes name code, too: `#[serde(default = "crate::path")]`, `#[utoipa::path(request_body = Body)]`.
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        let Meta::List(list) = &attribute.meta else {
            return;
        };
        self.add_tokens(list.tokens.clone());
        if list.path.is_ident("serde") {
            let parser = Punctuated::<Meta, syn::Token![,]>::parse_terminated;
            for meta in parser.parse2(list.tokens.clone()).iter().flatten() {
                if let Meta::NameValue(pair) = meta
                    && let syn::Expr::Lit(literal) = &pair.value
                    && let syn::Lit::Str(text) = &literal.lit
                    && let Ok(path) = text.parse::<syn::Path>()
                {
                    self.visit_path(&path);
                }
            }
        }
    }
}

#[test]
fn modules_are_read_from_nested_uses_code_macros_and_attributes() {
    let text = "use crate::a::{self, b::{C, D as E}, f};\npub(crate) use super::g::*;\nuse std::fmt;\n\
                // use crate::no;\n#[serde(with = \"crate::s\", rename = \"x-y\")]\n\
                pub(crate) fn x(c: char, v: u8) -> crate::h::I { \"crate::no\"; v(c); super::j() }\n\
                mod inner { fn y() { println!(\"{}\", crate::k::l(x.m(z), Type)) } }\n\
                #[cfg(test)]\nmod tests { use crate::no; }\n#[cfg(test)]\nfn z() { crate::no() }\n";
    let modules = read(&|file| (file == "lib.rs").then(|| text.to_owned()));
    let uses = modules[""].uses.iter().map(|it| {
        let name = it.name.as_deref().unwrap_or("*");
        format!("{} {}:{} {name}", it.is_public, it.line, it.path.join("::"))
    });
    let uses: Vec<_> = uses.collect();
    assert_eq!(
        uses,
        [
            "false 1:crate::a a",
            "false 1:crate::a::b::C C",
            "false 1:crate::a::b::D E",
            "false 1:crate::a::f f",
            "true 2:super::g *",
            "false 3:std::fmt fmt",
        ]
    );
    let paths = |module: &str| -> Vec<String> {
        let paths = modules[module].paths.iter();
        paths.map(|it| it.segments.join("::")).collect()
    };
    assert_eq!(
        paths(""),
        ["crate::s", "char", "u8", "crate::h::I", "super::j"]
    );
    assert_eq!(paths("inner"), ["println", "crate::k::l", "Type"]);
    assert_eq!(modules["inner"].file, "lib.rs");
    assert!(modules[""].items.contains("x") && !modules[""].items.contains("z"));
}
