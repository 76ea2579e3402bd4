//! Components without WASI, from the core modules of Rust plugins.
//!
//! Plugins do no I/O, but Rust's standard library for `wasm32-wasip2` links WASI: a panic reads environment variables and
//! prints its text. A new instance of such a component links ten interfaces, in each request. [`encode`] replaces these
//! imports by functions of an empty WASI: printed text is lost, and hash maps have a fixed seed, as with
//! `wasm32-unknown-unknown`. The component then has only the imports of its world.
//!
//! A module that calls anything else of WASI, such as a clock, keeps all of it ([`Replacement::of`]).

use anyhow::Context;
use wasm_encoder::reencode::{self, Reencode, utils};
use wasm_encoder::{
    CodeSection, Function, FunctionSection, ImportSection, InstructionSink, MemArg, Module,
};
use wasmparser::{
    CodeSectionReader, FunctionSectionReader, ImportSectionReader, Parser, Payload, TypeRef,
};
use wit_component::ComponentEncoder;

/// Returns whether this is a component already, and no core module.
pub fn is_component(bytes: &[u8]) -> bool {
    Parser::is_component(bytes)
}

/// Makes a component of a core module of `wasm32-wasip2`. The module has the types of its world in custom sections, as
/// wit-bindgen writes them.
///
/// # Errors
///
/// The module is malformed, or does not export its world.
pub fn encode(module: &[u8]) -> anyhow::Result<Vec<u8>> {
    let module = without_wasi(module).context("removing WASI from the module")?;
    encode_with_wasi(&module)
}

/// Makes a component of a core module, with all imports of the module.
///
/// # Errors
///
/// As for [`encode`].
pub fn encode_with_wasi(module: &[u8]) -> anyhow::Result<Vec<u8>> {
    let encoder = ComponentEncoder::default().validate(true);
    encoder.module(module)?.encode()
}

/// Replaces the functions that a module imports from WASI, if all have a replacement.
fn without_wasi(module: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut remover = WasiRemover::default();
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import?;
                    let replacement = match is_wasi(import.module) {
                        true => match Replacement::of(import.module, import.name) {
                            Some(replacement) => Some(replacement),
                            None => return Ok(module.to_vec()),
                        },
                        false => None,
                    };
                    if let TypeRef::Func(type_index) | TypeRef::FuncExact(type_index) = import.ty {
                        remover.add_import(replacement.map(|by| (by, type_index)));
                    }
                }
            }
            Payload::FunctionSection(section) => remover.defined = section.count(),
            _ => {}
        }
    }
    let mut written = Module::new();
    remover.parse_core_module(&mut written, Parser::new(0), module)?;
    Ok(written.finish())
}

fn is_wasi(module: &str) -> bool {
    module.starts_with("wasi:")
}

/// A function in place of one of WASI. A function that returns more than a number writes its result where its last
/// parameter points, by the canonical ABI of components.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replacement {
    /// Does nothing: an output stream, for example, is dropped.
    Nothing,
    /// Returns the handle 0.
    Handle,
    /// Writes 8 zeros where this parameter points: an empty list, an absent value, or a success without a value.
    Empty { at: u32 },
    /// Writes 16 bytes where this parameter points: the zeros of `Empty`, and this number.
    Number { at: u32, number: i64 },
    /// Traps.
    Trap,
}

impl Replacement {
    /// Returns the replacement of a function that the standard library calls in panics, prints and hash maps; `None` for any
    /// other function.
    fn of(module: &str, function: &str) -> Option<Self> {
        let (interface, _version) = module.split_once('@')?;
        Some(match (interface, function) {
            ("wasi:cli/stdin" | "wasi:cli/stdout" | "wasi:cli/stderr", _) => Self::Handle,
            ("wasi:cli/exit", _) => Self::Trap,
            (cli, function) if cli.starts_with("wasi:cli/") || cli.starts_with("wasi:io/") => {
                match function {
                    _ if function.starts_with("[resource-drop]") => Self::Nothing,
                    _ if function.starts_with("get-") => Self::Empty { at: 0 },
                    "[method]output-stream.check-write" => Self::Number {
                        at: 1,
                        number: 1 << 16,
                    },
                    "[method]output-stream.write"
                    | "[method]output-stream.blocking-write-and-flush" => Self::Empty { at: 3 },
                    "[method]output-stream.flush" | "[method]output-stream.blocking-flush" => {
                        Self::Empty { at: 1 }
                    }
                    // These wait for a stream that is full, or read one.
                    _ => Self::Trap,
                }
            }
            ("wasi:random/insecure-seed", _) => Self::Number { at: 0, number: 0 },
            _ => return None,
        })
    }

    fn write(self, mut body: InstructionSink<'_>) {
        let at_byte = |offset| MemArg {
            offset,
            align: 3,
            memory_index: 0,
        };
        match self {
            Self::Nothing => {}
            Self::Handle => drop(body.i32_const(0)),
            Self::Empty { at } => {
                body.local_get(at).i64_const(0).i64_store(MemArg {
                    align: 2,
                    ..at_byte(0)
                });
            }
            Self::Number { at, number } => {
                body.local_get(at).i64_const(0).i64_store(at_byte(0));
                body.local_get(at).i64_const(number).i64_store(at_byte(8));
            }
            Self::Trap => drop(body.unreachable()),
        }
        body.end();
    }
}

/// Moves the functions of WASI from a module's imports to the end of its own functions.
#[derive(Default)]
struct WasiRemover {
    /// The imported functions, in order.
    imports: Vec<ImportedFunction>,
    /// The number of functions that the module defines.
    defined: u32,
    /// The replacements of imports, with the indexes of their types.
    removed: Vec<(Replacement, u32)>,
}

enum ImportedFunction {
    /// An import that stays, by its new index.
    Kept(u32),
    /// A removed import, by its number among the removed ones.
    Removed(u32),
}

impl WasiRemover {
    fn add_import(&mut self, replacement: Option<(Replacement, u32)>) {
        let removed = length(&self.removed);
        self.imports.push(match replacement {
            Some(_) => ImportedFunction::Removed(removed),
            None => ImportedFunction::Kept(length(&self.imports) - removed),
        });
        self.removed.extend(replacement);
    }
}

/// The length of an index space, which has 32 bits.
fn length<T>(items: &[T]) -> u32 {
    u32::try_from(items.len()).unwrap_or(u32::MAX)
}

type Reencoded = Result<(), reencode::Error>;

impl Reencode for WasiRemover {
    type Error = std::convert::Infallible;

    fn function_index(&mut self, index: u32) -> Result<u32, reencode::Error> {
        let (imports, removed) = (length(&self.imports), length(&self.removed));
        Ok(match self.imports.get(index as usize) {
            Some(ImportedFunction::Kept(index)) => *index,
            Some(ImportedFunction::Removed(number)) => imports - removed + self.defined + number,
            None => index - removed,
        })
    }

    fn parse_import_section(
        &mut self,
        imports: &mut ImportSection,
        section: ImportSectionReader<'_>,
    ) -> Reencoded {
        for import in section.into_imports() {
            let import = import?;
            if !is_wasi(import.module) {
                utils::parse_import(self, imports, import)?;
            }
        }
        Ok(())
    }

    fn parse_function_section(
        &mut self,
        functions: &mut FunctionSection,
        section: FunctionSectionReader<'_>,
    ) -> Reencoded {
        utils::parse_function_section(self, functions, section)?;
        for &(_, type_index) in &self.removed {
            functions.function(type_index);
        }
        Ok(())
    }

    fn parse_code_section(
        &mut self,
        code: &mut CodeSection,
        section: CodeSectionReader<'_>,
    ) -> Reencoded {
        utils::parse_code_section(self, code, section)?;
        for &(replacement, _) in &self.removed {
            let mut body = Function::new([]);
            replacement.write(body.instructions());
            code.function(&body);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(text: &str) -> Vec<u8> {
        wat::parse_str(text).expect("WAT")
    }

    /// The imports of a module, the number of its own functions, and their instructions.
    fn outline(module: &[u8]) -> Vec<String> {
        let payloads = Parser::new(0).parse_all(module);
        let lines = payloads.filter_map(|payload| match payload.expect("a module") {
            Payload::CodeSectionEntry(body) => {
                let operators = body.get_operators_reader().expect("operators");
                let operators: Result<Vec<_>, _> = operators.into_iter().collect();
                Some(format!("{:?}", operators.expect("operators")))
            }
            Payload::ImportSection(section) => {
                let imports = section.into_imports();
                let names: Vec<_> = imports.map(|one| one.expect("an import").name).collect();
                Some(names.join(" "))
            }
            Payload::FunctionSection(section) => Some(section.count().to_string()),
            _ => None,
        });
        lines.collect()
    }

    #[test]
    fn imports_of_wasi_become_own_functions() {
        let changed = without_wasi(&module(
            r#"(module
                (import "wasi:cli/exit@0.2.6" "exit" (func $exit (param i32)))
                (import "weir:plugin/log@0.2.3" "write" (func $log (param i32)))
                (import "wasi:random/insecure-seed@0.2.6" "insecure-seed" (func $seed (param i32)))
                (import "wasi:cli/stderr@0.2.0" "get-stderr" (func $stderr (result i32)))
                (memory (export "memory") 1)
                (func $own (export "own")
                    (call $log (call $stderr)) (call $exit (i32.const 1)) (call $seed (i32.const 8))))"#,
        ));
        let expected = module(
            r#"(module
                (import "weir:plugin/log@0.2.3" "write" (func $log (param i32)))
                (memory (export "memory") 1)
                (func $own (export "own")
                    (call $log (call $stderr)) (call $exit (i32.const 1)) (call $seed (i32.const 8)))
                (func $exit (param i32) unreachable)
                (func $seed (param i32)
                    (i64.store (local.get 0) (i64.const 0))
                    (i64.store offset=8 (local.get 0) (i64.const 0)))
                (func $stderr (result i32) i32.const 0))"#,
        );
        assert_eq!(outline(&changed.expect("a module")), outline(&expected));
    }

    #[test]
    fn a_module_that_reads_a_clock_keeps_wasi() {
        let clock = module(
            r#"(module
                (import "wasi:cli/exit@0.2.6" "exit" (func (param i32)))
                (import "wasi:clocks/monotonic-clock@0.2.6" "now" (func (result i64))))"#,
        );
        assert_eq!(without_wasi(&clock).expect("a module"), clock);
    }
}
