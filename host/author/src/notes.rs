//! Notes on standard error about the progress of a command.

use std::fmt::Arguments;
use std::io::Write as _;

/// Writes a line to standard error. If standard error is closed, the line is lost.
pub(crate) fn note(text: Arguments<'_>) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
