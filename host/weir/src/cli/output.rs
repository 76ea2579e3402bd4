//! What commands print.
//!
//! The standard library's `println!` panics if nobody reads standard output any more, as in `weir audit | head`. Here, a command
//! goes on to its end without printing, so that what it has begun is done; one that would go on for ever asks [`is_closed`].

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::ensure;

static CLOSED: AtomicBool = AtomicBool::new(false);
static FAILED: AtomicBool = AtomicBool::new(false);

/// Standard output. Writing there succeeds, whether anybody reads it or not.
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

/// Prints to standard output.
pub(super) fn print(text: Arguments<'_>) {
    let _ = Stdout.write_fmt(text);
}

/// Prints to standard error; what nobody can read there is lost.
pub(super) fn complain(text: Arguments<'_>) {
    let _ = std::io::stderr().lock().write_fmt(text);
}

/// Whether nobody reads standard output any more.
pub(super) fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// Fails if standard output has lost something that somebody would have read, as on a full disk.
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

// In place of the standard library's: for every module below.
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
