//! The assaults, each in the simplest form that a compiler will not optimize away.

use std::hint::black_box;
use std::time::Duration;

use crate::bindings::wasi::wasi::clocks::monotonic_clock::subscribe_duration;
use crate::bindings::wasi::wasi::io::poll;
use crate::bindings::wasi::wasi::random::random::get_random_bytes;
use crate::bindings::weir::plugin::log;
use crate::command::Fault;

const PAGE_BYTES: usize = 64 << 10;

/// Commits the fault. Most never return.
pub(crate) fn commit(fault: &Fault) {
    match fault {
        Fault::Spin => spin(u64::MAX),
        Fault::Compute { turns } => spin(*turns),
        Fault::Copy { bytes } => copy(*bytes),
        Fault::Grow => grow(),
        Fault::Recurse { log } => {
            descend(0, *log);
        }
        Fault::Unreachable => core::arch::wasm32::unreachable(),
        Fault::OutOfBounds => read_out_of_bounds(),
        Fault::Panic => panic!("panicked\r\n\u{1b}[31mERROR forged line"),
        Fault::Sleep { milliseconds } => std::thread::sleep(Duration::from_millis(*milliseconds)),
        #[expect(clippy::disallowed_methods, reason = "the fault of this guest")]
        Fault::Exit { code } => std::process::exit(*code),
        Fault::FloodLog { lines, text } => flood_log(*lines, text),
        Fault::Print { lines, text } => print(*lines, text),
        Fault::Random { bytes } => {
            black_box(get_random_bytes(*bytes));
        }
        Fault::Poll { entries } => {
            let clock = subscribe_duration(0);
            black_box(poll::poll(&vec![&clock; *entries]));
        }
    }
}

/// Returns the size of the linear memory in bytes.
pub(crate) fn memory_bytes() -> usize {
    core::arch::wasm32::memory_size::<0>() * PAGE_BYTES
}

/// Takes this much memory, touches it, and keeps it.
pub(crate) fn keep(bytes: usize) {
    black_box(vec![1_u8; bytes].leak());
}

fn spin(turns: u64) {
    let mut turn = 0_u64;
    while black_box(turn) != turns {
        turn += 1;
    }
}

fn copy(bytes: usize) {
    let mut memory = vec![1_u8; 2 * bytes];
    loop {
        memory.copy_within(..bytes, bytes);
        memory.copy_within(bytes.., 0);
        black_box(&mut memory);
    }
}

/// Grows by pages rather than through the allocator, which would give up at its first refusal and never touch its
/// memory.
fn grow() {
    loop {
        let page = core::arch::wasm32::memory_grow::<0>(1);
        if page == usize::MAX {
            core::arch::wasm32::unreachable();
        }
        let address = std::ptr::with_exposed_provenance_mut::<u8>(page * PAGE_BYTES);
        // SAFETY: the page was just added to the memory, and no other code uses it.
        unsafe { address.write_volatile(1) };
    }
}

#[inline(never)]
fn descend(depth: u64, log: bool) -> u64 {
    if log {
        log::write(log::Level::Info, "going down");
    }
    if black_box(depth) == u64::MAX {
        return depth;
    }
    // The sum keeps the frame alive: a call in tail position would become a loop.
    black_box(descend(depth + 1, log)) + black_box(depth)
}

fn read_out_of_bounds() {
    let last = std::ptr::with_exposed_provenance::<u8>(usize::MAX);
    // SAFETY: none; the guest breaks the rules here, and the host's bounds check must catch it.
    black_box(unsafe { last.read_volatile() });
}

fn flood_log(lines: u64, text: &str) {
    let levels = [
        log::Level::Error,
        log::Level::Warn,
        log::Level::Info,
        log::Level::Debug,
    ];
    for level in levels
        .into_iter()
        .cycle()
        .zip(0..lines)
        .map(|(level, _)| level)
    {
        log::write(level, text);
    }
}

#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a guest that prints is what this is about"
)]
fn print(lines: u64, text: &str) {
    for _ in 0..lines {
        println!("{text}");
        eprintln!("{text}");
    }
}
