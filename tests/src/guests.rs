//! Guests that misbehave: compiled from Rust, assembled from text, or built here.
//!
//! [`misbehaving`] obeys commands in the user's message; `tests/hostile/misbehaving` lists them. [`wat_guest`]
//! assembles one of the `.wat` files in `tests/hostile/`: components that no compiler would emit, such as a start
//! function that loops or a list with a forged length.
//!
//! To add a `.wat` guest, add its file; [`wat_guest_names`] finds it.

use std::fs;
use std::path::{Path, PathBuf};

use wit_component::{ComponentEncoder, StringEncoding};
use wit_parser::{Resolve, SourceMap, WorldId};

/// The adapter that misbehaves on command.
pub fn misbehaving() -> &'static [u8] {
    include_bytes!(env!("HOSTILE_MISBEHAVING"))
}

/// The adapter that misuses long texts on command.
pub fn misreading() -> &'static [u8] {
    include_bytes!(env!("HOSTILE_MISREADING"))
}

/// The behaviour of the misbehaving adapter without a command: see `tests/hostile/misbehaving/src/habits.rs`.
#[derive(Debug, Clone, Copy)]
pub struct Habits {
    /// Traps in a hundred requests.
    pub traps: u32,
    /// Milliseconds before the response begins.
    pub waits_ms: u32,
    /// Reported tokens of the response.
    pub tokens: u32,
}

/// The misbehaving adapter with these habits: numbers of at most three digits. Any habits make it another component.
pub fn with_habits(habits: Habits) -> Vec<u8> {
    let Habits {
        traps,
        waits_ms,
        tokens,
    } = habits;
    let own = b"habits: traps=000, waits=000, tokens=001";
    let given = format!("habits: traps={traps:03}, waits={waits_ms:03}, tokens={tokens:03}");
    assert_eq!(given.len(), own.len(), "a number has three digits");
    let mut component = misbehaving().to_vec();
    let mut places = component.windows(own.len());
    let at = places.position(|window| window == own);
    let at = at.expect("the component has its habits");
    component[at..at + own.len()].copy_from_slice(given.as_bytes());
    component
}

/// The tool that schemes on command.
pub fn scheming() -> &'static [u8] {
    include_bytes!(env!("HOSTILE_SCHEMING"))
}

/// The filter that meddles on command.
pub fn meddling() -> &'static [u8] {
    include_bytes!(env!("HOSTILE_MEDDLING"))
}

/// A tool with a valid schema and this result for every call.
pub fn tool(answer: &str) -> Vec<u8> {
    describing_tool("answering", "Answers.", r#"{"type":"object"}"#, answer)
}

/// A tool with this description and this result.
pub fn describing_tool(name: &str, description: &str, schema: &str, answer: &str) -> Vec<u8> {
    const TEXTS_AT: usize = 256;
    let texts = [name, "0.1.0", description, schema, answer];
    let mut at = TEXTS_AT;
    let mut places = Vec::new();
    for text in texts {
        for number in [at, text.len()] {
            places.extend(u32::try_from(number).expect("it fits").to_le_bytes());
        }
        at += text.len();
    }
    // The description is four texts; the result of a call is `ok` and one text.
    let (described, answered) = places.split_at(4 * 8);
    let escaped =
        |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("\\{byte:02x}")).collect() };
    let module = format!(
        r#"(module
  (memory (export "memory") 4)
  (data (i32.const 0) "{}")
  (data (i32.const 64) "\00\00\00\00{}")
  (data (i32.const {TEXTS_AT}) "{}")
  (global $next (mut i32) (i32.const {}))
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $next) (i32.const 7)) (i32.const -8)))
    (global.set $next (i32.add (local.get $at) (local.get 3)))
    (local.get $at))
  (func (export "weir:plugin/tool@0.2.0#describe") (result i32) (i32.const 0))
  (func (export "weir:plugin/tool@0.2.0#call") (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (i32.const 64)))"#,
        escaped(described),
        escaped(answered),
        escaped(texts.concat().as_bytes()),
        at,
    );
    assemble("describing-tool", &module)
}

/// A bundled component, such as `openai`.
pub fn bundled(name: &str) -> Vec<u8> {
    let mut plugins = weir_bundled::BUNDLE.plugins().into_iter();
    let found = plugins.find(|plugin| plugin.name == name);
    found.expect("it is bundled").bytes.into_owned()
}

/// A filter whose functions only trap, with this text of `wit/filter-steps.wit`.
///
/// # Panics
///
/// If the text is not valid.
pub fn idle_filter(steps: impl Fn(&str) -> String) -> Vec<u8> {
    const MODULE: &str = r#"(module
  (memory (export "memory") 1)
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) unreachable)
  (func (export "weir:plugin/filter@0.2.3#describe") (result i32) unreachable)
  (func (export "weir:plugin/filter@0.2.3#configure") (param i32 i32) (result i32) unreachable)
  (func (export "weir:plugin/filter@0.2.3#screen") (param i32) (result i32) unreachable)
  (func (export "weir:plugin/filter@0.2.3#[method]answer.events") (param i32 i32 i32) (result i32) unreachable)
  (func (export "weir:plugin/filter@0.2.3#[method]answer.restart") (param i32) unreachable)
  (func (export "weir:plugin/filter-steps@0.2.3#[static]screening.begin") (param i32) (result i32) unreachable)
  (func (export "weir:plugin/filter-steps@0.2.3#[method]screening.replied") (param i32 i32 i32) (result i32) unreachable))"#;
    let contract = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit");
    let mut files = SourceMap::default();
    for name in [
        "chat",
        "adapter",
        "long-texts",
        "embeddings",
        "rerank",
        "moderation",
        "speech",
        "transcription",
        "tool",
        "filter",
        "filter-walk",
        "worlds",
    ] {
        let path = contract.join(name).with_extension("wit");
        files.push(&path, read(&path));
    }
    let path = contract.join("filter-steps.wit");
    let steps = steps(&read(&path));
    let has_replied = steps.contains("replied:");
    files.push(&path, steps);
    let mut resolve = Resolve::default();
    let group = files
        .parse()
        .unwrap_or_else(|(_, error)| panic!("{error:?}"));
    let package = resolve
        .push_group(group)
        .unwrap_or_else(|error| panic!("{error:?}"));
    let world = resolve
        .select_world(&[package], Some("stepwise-filter"))
        .unwrap_or_else(|error| panic!("{error:?}"));
    let lines = MODULE.lines();
    let mut module: Vec<_> = lines
        .filter(|line| has_replied || !line.contains("replied"))
        .collect();
    if !has_replied {
        module.push(")");
    }
    component_of("idle-filter", &module.join("\n"), &resolve, world)
}

/// Assembles the component of `tests/hostile/<name>.wat`.
///
/// # Panics
///
/// If there is no such file, or the component is invalid for its world.
pub fn wat_guest(name: &str) -> Vec<u8> {
    let text = read(&folder().join(name).with_extension("wat"));
    assemble(name, &complete(&text))
}

/// Returns the names that [`wat_guest`] accepts, sorted.
pub fn wat_guest_names() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder())
        .expect("tests/hostile is a folder")
        .map(|entry| entry.expect("tests/hostile can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "wat"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .filter(|name| name != "prelude")
        .collect();
    names.sort();
    names
}

/// A healthy adapter whose response is these two letters: many different ones can be made.
pub fn answering(letters: &str) -> Vec<u8> {
    assert_eq!(letters.len(), 2, "there is room for two letters");
    let prelude = read(&folder().join("prelude.wat"));
    let texts = prelude
        .lines()
        .find(|line| line.starts_with("(data $texts"));
    let texts = texts.expect("the prelude has texts");
    assemble(
        letters,
        &complete(&texts.replacen("\\00ok\\00", &format!("\\00{letters}\\00"), 1)),
    )
}

/// The adapter of [`answering`] with another version, of as many letters as its own `0.1.0`.
pub fn answering_as(letters: &str, version: &str) -> Vec<u8> {
    let component = answering(letters);
    let is = b"0.1.0";
    assert_eq!(version.len(), is.len(), "there is room for three digits");
    let at: Vec<_> = (0..component.len())
        .filter(|at| component[*at..].starts_with(is))
        .collect();
    let [at] = at[..] else {
        panic!("the version stands in {} places", at.len());
    };
    let mut versioned = component;
    versioned[at..at + is.len()].copy_from_slice(version.as_bytes());
    versioned
}

/// A healthy adapter with this many unused functions: work for the compiler.
pub fn with_functions(count: usize) -> Vec<u8> {
    let function =
        "(func (param f64) (result f64) (f64.sqrt (f64.add (local.get 0) (local.get 0))))\n";
    assemble("many functions", &complete(&function.repeat(count)))
}

/// The component with a custom section of this many bytes: size without meaning.
pub fn with_custom_section(component: &[u8], bytes: u32) -> Vec<u8> {
    let name = b"\x07padding";
    let mut padded = component.to_vec();
    padded.push(0);
    let mut length = bytes + u32::try_from(name.len()).expect("the name is short");
    while length >= 0x80 {
        padded.push(length.to_le_bytes()[0] | 0x80);
        length >>= 7;
    }
    padded.push(length.to_le_bytes()[0]);
    padded.extend_from_slice(name);
    padded.resize(
        padded.len() + usize::try_from(bytes).expect("a u32 fits"),
        0,
    );
    padded
}

/// The component with another core module with a memory of this many pages. Guests from text have one core module,
/// and a core module may have one memory.
pub fn with_memory(component: &[u8], pages: u32) -> Vec<u8> {
    const CORE_MODULE: u8 = 1;
    const CORE_INSTANCE: u8 = 2;
    let module = wat::parse_str(format!("(module (memory {pages}))")).expect("a module");
    let index = sections(component)
        .filter(|&section| section == CORE_MODULE)
        .count();
    let index = u8::try_from(index).expect("few modules");
    let mut larger = component.to_vec();
    larger.extend([
        CORE_MODULE,
        u8::try_from(module.len()).expect("it is small"),
    ]);
    larger.extend(module);
    // One instance, of the module with this index, without imports.
    larger.extend([CORE_INSTANCE, 4, 1, 0, index, 0]);
    larger
}

/// Returns the kinds of a component's sections.
fn sections(component: &[u8]) -> impl Iterator<Item = u8> {
    let mut rest = &component[8..];
    std::iter::from_fn(move || {
        let (&kind, mut after) = rest.split_first()?;
        let (mut length, mut shift) = (0, 0);
        while let Some((&byte, next)) = after.split_first() {
            after = next;
            length |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                break;
            }
        }
        rest = &after[length..];
        Some(kind)
    })
}

/// Completes a guest's forms to a module with missing forms of the prelude.
fn complete(guest: &str) -> String {
    if guest.lines().any(|line| line.starts_with("(module")) {
        return guest.to_owned();
    }
    let prelude = read(&folder().join("prelude.wat"));
    let (imports, defaults) = prelude
        .split_once(";; Defaults\n")
        .expect("the prelude is in two parts");
    let defaults = defaults
        .split("\n\n")
        .filter(|form| identifier(form).is_none_or(|name| !defines(guest, name)));
    let mut module = format!("(module\n{imports}\n{guest}\n");
    for form in defaults {
        module.push_str(form);
        module.push('\n');
    }
    module + ")"
}

/// Returns the identifier that a form of the prelude defines: `$next` of `(func $next …`.
fn identifier(form: &str) -> Option<&str> {
    let definition = form.lines().find(|line| line.starts_with('('))?;
    definition.split_whitespace().nth(1)
}

fn defines(guest: &str, name: &str) -> bool {
    guest.lines().any(|line| identifier(line) == Some(name))
}

/// Turns a core module into a component of its own world, and checks that it is valid.
fn assemble(name: &str, module: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    // A frozen version: later additions to the contract do not change these guests.
    let contract = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit/since-v0.2.0");
    let (contract, _) = resolve.push_dir(&contract).expect("the contract is valid");
    let own = folder().join(name).with_extension("wit");
    let world = if own.exists() {
        let package = resolve
            .push_str(&own, &read(&own))
            .unwrap_or_else(|error| panic!("{name}.wit: {error:?}"));
        resolve.select_world(&[package], Some("guest"))
    } else {
        resolve.select_world(&[contract], Some("provider"))
    }
    .unwrap_or_else(|error| panic!("{name}: {error:?}"));
    component_of(name, module, &resolve, world)
}

/// Turns a core module into a component of this world, and checks that it is valid.
fn component_of(name: &str, module: &str, resolve: &Resolve, world: WorldId) -> Vec<u8> {
    let mut core = wat::parse_str(module).unwrap_or_else(|error| panic!("{name}.wat: {error}"));
    wit_component::embed_component_metadata(&mut core, resolve, world, StringEncoding::UTF8)
        .unwrap_or_else(|error| panic!("{name}: {error:?}"));
    ComponentEncoder::default()
        .validate(true)
        .module(&core)
        .and_then(|mut encoder| encoder.encode())
        .unwrap_or_else(|error| panic!("{name}: {error:?}"))
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("hostile")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_guest_is_a_valid_component() {
        for name in wat_guest_names() {
            wat_guest(&name);
        }
        with_functions(10);
    }

    #[test]
    fn a_guest_replaces_the_forms_that_it_names() {
        let module = complete("(func $end (export \"x\"))");
        assert_eq!(module.matches("(func $end ").count(), 1);
        assert_eq!(module.matches("(func $next ").count(), 1);
    }

    #[test]
    fn a_custom_section_adds_its_size_and_a_header() {
        let component = wat_guest("healthy");
        let padded = with_custom_section(&component, 300);
        assert_eq!(padded.len(), component.len() + 1 + 2 + 8 + 300);
    }
}
