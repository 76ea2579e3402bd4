//! The `weir` command.

use std::process::ExitCode;

/// The allocator of the process. A request allocates and frees some hundreds of small objects, some of them on
/// another thread.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    weir::cli::run(&weir_bundled::BUNDLE)
}
