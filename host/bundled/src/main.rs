//! The `weir` command.

use std::process::ExitCode;

/// A request makes and drops some hundreds of small things, some of them on another thread than made them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    weir::cli::run(&weir_bundled::BUNDLE)
}
