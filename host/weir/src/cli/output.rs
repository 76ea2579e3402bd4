//! Output of commands.
//!
//! The standard library's `println!` panics if the reader of standard output closes it, as in `weir audit | head`. With
//! these functions a command runs to its end without printing, and completes its changes. An endless command asks
//! [`is_closed`].

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::ensure;

static CLOSED: AtomicBool = AtomicBool::new(false);
static FAILED: AtomicBool = AtomicBool::new(false);

/// Standard output. Writes succeed even if the reader has closed it.
pub(super) struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match std::io::stdout().lock().write_all(bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                CLOSED.store(true, Ordering::Relaxed);
            }
            Err(_) => FAILED.store(true, Ordering::Relaxed),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stdout().lock().flush()
    }
}

/// Returns the command that started this program, for commands that are printed: a program that `cargo run` has started is not
/// on the `PATH`.
pub(super) fn program() -> String {
    let name = std::env::args_os().next().unwrap_or_default();
    match name.to_str() {
        Some(name) if !name.is_empty() && !name.contains(char::is_whitespace) => name.to_owned(),
        Some(name) if !name.is_empty() && !name.contains('\'') => format!("'{name}'"),
        _ => "weir".to_owned(),
    }
}

/// Prints to standard output.
pub(super) fn print(text: Arguments<'_>) {
    let _ = Stdout.write_fmt(text);
}

/// Prints to standard error; ignores errors.
pub(super) fn complain(text: Arguments<'_>) {
    let _ = std::io::stderr().lock().write_fmt(text);
}

/// Returns whether the reader has closed standard output.
pub(super) fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// Fails if standard output lost text for another reason than a closed reader, such as a full disk.
pub(super) fn finish() -> anyhow::Result<()> {
    match std::io::stdout().lock().flush() {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            FAILED.store(true, Ordering::Relaxed)
        }
        _ => {}
    }
    ensure!(
        !FAILED.load(Ordering::Relaxed),
        "standard output cannot be written"
    );
    Ok(())
}

// Shadows the standard library's macros for every module below.
macro_rules! print {
    ($($text:tt)*) => { $crate::cli::output::print(::std::format_args!($($text)*)) };
}

macro_rules! println {
    () => { $crate::cli::output::print(::std::format_args!("\n")) };
    ($($text:tt)*) => {
        $crate::cli::output::print(::std::format_args!("{}\n", ::std::format_args!($($text)*)))
    };
}

macro_rules! eprintln {
    ($($text:tt)*) => {
        $crate::cli::output::complain(::std::format_args!("{}\n", ::std::format_args!($($text)*)))
    };
}
