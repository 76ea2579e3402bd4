//! Newline-delimited JSON, read from bytes that come in pieces of any size.

use crate::adapter::Failure;

/// The longest line that is taken, in bytes; the same as an event of [`sse`](crate::sse).
pub const MAX_LINE_BYTES: usize = crate::sse::MAX_EVENT_BYTES;

/// An incremental cutter of lines.
///
/// ```
/// # use weir_sdk::lines::Lines;
/// let mut lines = Lines::default();
/// lines.push(b"{\"a\":1}\n\n{\"b\"");
/// assert_eq!(lines.next()?, Some(&b"{\"a\":1}"[..]));
/// assert_eq!(lines.next()?, None);
/// lines.push(b":2}");
/// assert_eq!(lines.next()?, None);
/// assert_eq!(lines.finish(), Some(&b"{\"b\":2}"[..]));
/// # Ok::<(), weir_sdk::adapter::Failure>(())
/// ```
#[derive(Debug, Default)]
pub struct Lines {
    /// Bytes that have arrived; those before `line_start` are used up.
    pending: Vec<u8>,
    line_start: usize,
    /// How far `pending` is known to hold no line end.
    searched: usize,
}

impl Lines {
    /// Takes the next bytes. Call [`next`](Self::next) until it has no more lines.
    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.drain(..self.line_start);
        self.searched -= self.line_start;
        self.line_start = 0;
        self.pending.extend_from_slice(bytes);
    }

    /// The next whole line that is not blank, without white space around it.
    ///
    /// # Errors
    ///
    /// [`FailureKind::Malformed`](crate::adapter::FailureKind::Malformed) when a line exceeds
    /// [`MAX_LINE_BYTES`].
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator's items can't borrow from it"
    )]
    pub fn next(&mut self) -> Result<Option<&[u8]>, Failure> {
        while let Some(length) = memchr::memchr(b'\n', &self.pending[self.searched..]) {
            let (start, end) = (self.line_start, self.searched + length);
            self.line_start = end + 1;
            self.searched = self.line_start;
            if !self.pending[start..end].trim_ascii().is_empty() {
                return Ok(Some(self.pending[start..end].trim_ascii()));
            }
        }
        self.searched = self.pending.len();
        if self.pending.len() - self.line_start > MAX_LINE_BYTES {
            return Err(Failure::malformed(format!(
                "a line of the stream exceeds {MAX_LINE_BYTES} bytes"
            )));
        }
        Ok(None)
    }

    /// The last line, if the stream ends without a line end.
    pub fn finish(&mut self) -> Option<&[u8]> {
        let start = self.line_start;
        self.line_start = self.pending.len();
        self.searched = self.pending.len();
        let rest = self.pending[start..].trim_ascii();
        (!rest.is_empty()).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<String> {
        let (mut lines, mut read) = (Lines::default(), Vec::new());
        let text = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
        for piece in pieces {
            lines.push(piece);
            while let Some(line) = lines.next().expect("short lines") {
                read.push(text(line));
            }
        }
        read.extend(lines.finish().map(text));
        read
    }

    #[test]
    fn gives_the_same_lines_wherever_the_stream_is_cut() {
        let stream = "{\"a\":\"größe 🦫\"}\r\n\n  {\"b\":2}\n{\"c\"".as_bytes();
        let whole = read(&[stream]);
        assert_eq!(whole, ["{\"a\":\"größe 🦫\"}", "{\"b\":2}", "{\"c\""]);
        for at in 0..=stream.len() {
            let (first, second) = stream.split_at(at);
            assert_eq!(read(&[first, second]), whole, "cut at {at}");
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(read(&bytes), whole);
    }

    #[test]
    fn refuses_a_line_that_never_ends() {
        let mut lines = Lines::default();
        lines.push(&vec![b'x'; MAX_LINE_BYTES]);
        assert_eq!(lines.next(), Ok(None));
        lines.push(b"x");
        assert!(lines.next().is_err());
    }
}
