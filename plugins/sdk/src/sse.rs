//! Server-sent events, read from bytes that come in pieces of any size.
//!
//! Follows the HTML standard's [event stream interpretation], with one difference: an event that
//! the end of the stream leaves without its blank line is dispatched if it has data, because
//! many servers forget that line. `id` and `retry` serve reconnecting, which an exchange never
//! does; they are skipped.
//!
//! [event stream interpretation]: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation

use crate::adapter::Failure;
use crate::failure::MAX_ERROR_BODY_BYTES;
use crate::text;

/// The longest line and the largest event that are taken, in bytes.
///
/// A guest has 32 MiB in all and a growing `Vec` holds up to three times its content, so this
/// is what fits with room to spare; a chunk of a text answer has a few hundred bytes.
pub const MAX_EVENT_BYTES: usize = 4 * 1024 * 1024;

/// An incremental parser.
///
/// ```
/// # use weir_sdk::sse::Sse;
/// let mut stream = Sse::default();
/// stream.push(b"data: one\r");
/// stream.push(b"\ndata: two\r\n\r\n");
/// let event = stream.next()?.expect("a complete event");
/// assert_eq!((event.name, event.data), ("message", "one\ntwo"));
/// assert!(stream.next()?.is_none());
/// # Ok::<(), weir_sdk::adapter::Failure>(())
/// ```
#[derive(Debug, Default)]
pub struct Sse {
    /// Bytes that have arrived; those before `line_start` are used up.
    pending: Vec<u8>,
    line_start: usize,
    /// How far `pending` is known to hold no line end, so that a long line that comes in small
    /// pieces is not searched again from its start for each.
    searched: usize,
    /// The last line ended with a carriage return: a line feed that follows belongs to it.
    after_carriage_return: bool,
    /// A line has been read, so that a byte order mark can no longer come.
    begun: bool,
    name: String,
    data: String,
    /// The event under construction has at least one `data` line, if perhaps an empty one.
    has_data: bool,
    /// `name` and `data` are those of an event already handed out.
    dispatched: bool,
    /// Lines that are of no stream.
    stray: String,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// `message` unless the stream says otherwise.
    pub name: &'a str,
    /// The `data` lines, joined by line feeds. Invalid UTF-8 is replaced, as the standard asks.
    pub data: &'a str,
}

impl Sse {
    /// Takes the next bytes. Call [`next`](Self::next) until it has no more events.
    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.drain(..self.line_start);
        self.searched -= self.line_start;
        self.line_start = 0;
        self.pending.extend_from_slice(bytes);
    }

    /// The next complete event of what was pushed.
    ///
    /// # Errors
    ///
    /// [`FailureKind::Malformed`](crate::adapter::FailureKind::Malformed) when a line or an event exceeds [`MAX_EVENT_BYTES`].
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator's items can't borrow from it"
    )]
    pub fn next(&mut self) -> Result<Option<SseEvent<'_>>, Failure> {
        while let Some(line_end) = self.line_end() {
            let line_start = self.line_start;
            self.after_carriage_return = self.pending[line_end] == b'\r';
            self.line_start = line_end + 1;
            self.searched = self.line_start;
            if self.take_line(line_start, line_end)? {
                return Ok(Some(self.dispatch()));
            }
        }
        if self.pending.len() - self.line_start > MAX_EVENT_BYTES {
            return Err(too_long());
        }
        Ok(None)
    }

    /// The event that the end of the stream completes, if any. Call it after [`next`](Self::next)
    /// has returned the last whole one.
    ///
    /// # Errors
    ///
    /// As for [`next`](Self::next).
    pub fn finish(&mut self) -> Result<Option<SseEvent<'_>>, Failure> {
        let (line_start, line_end) = (self.line_start, self.pending.len());
        self.line_start = line_end;
        self.searched = line_end;
        if line_start < line_end {
            self.take_line(line_start, line_end)?;
        }
        let due = self.has_data && !self.dispatched && !self.data.is_empty();
        Ok(due.then(|| self.dispatch()))
    }

    /// Lines that no event stream has, with their line ends; the first [`MAX_ERROR_BODY_BYTES`] of
    /// them. Some servers that fail in the midst of a stream write their error behind it as bare JSON.
    pub fn stray(&self) -> &str {
        &self.stray
    }

    fn line_end(&mut self) -> Option<usize> {
        if self.after_carriage_return && self.line_start < self.pending.len() {
            self.after_carriage_return = false;
            if self.pending[self.line_start] == b'\n' {
                self.line_start += 1;
                self.searched = self.line_start;
            }
        }
        let unsearched = &self.pending[self.searched..];
        let found = memchr::memchr2(b'\n', b'\r', unsearched);
        self.searched += found.unwrap_or(unsearched.len());
        found.map(|_| self.searched)
    }

    /// Reads one line, without its end. Says whether it completes an event.
    ///
    /// Lines are decoded whole: a character can't span two, so pieces may cut one anywhere.
    fn take_line(&mut self, start: usize, end: usize) -> Result<bool, Failure> {
        if self.dispatched {
            self.dispatched = false;
            self.has_data = false;
            self.name.clear();
            self.data.clear();
        }
        let mut line = &self.pending[start..end];
        if !self.begun {
            self.begun = true;
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        if line.is_empty() {
            if !self.has_data {
                self.name.clear();
            }
            return Ok(self.has_data);
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(colon) => {
                let value = &line[colon + 1..];
                (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &[][..]),
        };
        match field {
            b"data" => {
                if self.has_data {
                    self.data.push('\n');
                }
                self.has_data = true;
                self.data.push_str(&text::lossy(value));
                if self.data.len() > MAX_EVENT_BYTES {
                    return Err(too_long());
                }
            }
            b"event" => {
                self.name.clear();
                self.name.push_str(&text::lossy(value));
            }
            // A comment has no field name.
            b"" | b"id" | b"retry" => {}
            _ if self.stray.len() + line.len() < MAX_ERROR_BODY_BYTES => {
                self.stray.push_str(&text::lossy(line));
                self.stray.push('\n');
            }
            _ => {}
        }
        Ok(false)
    }

    fn dispatch(&mut self) -> SseEvent<'_> {
        self.dispatched = true;
        let name = if self.name.is_empty() {
            "message"
        } else {
            &self.name
        };
        SseEvent {
            name,
            data: &self.data,
        }
    }
}

fn too_long() -> Failure {
    Failure::malformed(format!(
        "an event of the stream exceeds {MAX_EVENT_BYTES} bytes"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of a stream that arrives in these pieces, as name and data.
    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<(String, String)> {
        let mut stream = Sse::default();
        let mut events = Vec::new();
        let keep = |event: SseEvent<'_>| (event.name.to_owned(), event.data.to_owned());
        for piece in pieces {
            stream.push(piece);
            while let Some(event) = stream.next().expect("short events") {
                events.push(keep(event));
            }
        }
        events.extend(stream.finish().expect("short events").map(keep));
        events
    }

    fn read_whole(stream: &str) -> Vec<(String, String)> {
        read([stream.as_bytes()])
    }

    fn messages(data: &[&str]) -> Vec<(String, String)> {
        data.iter()
            .map(|data| ("message".to_owned(), (*data).to_owned()))
            .collect()
    }

    #[test]
    fn gives_the_same_events_wherever_the_stream_is_cut() {
        let stream = "\u{FEFF}: hello\r\nevent: début\rdata: größe 🦫\r\ndata:  two\r\n\r\n\
                      data\n\ndata:one\rdata:two\r\r\n: ping\n\nid: 7\nretry: 10\ndata: [DONE]";
        let whole = read_whole(stream);
        assert_eq!(
            whole,
            [
                ("début".to_owned(), "größe 🦫\n two".to_owned()),
                ("message".to_owned(), String::new()),
                ("message".to_owned(), "one\ntwo".to_owned()),
                ("message".to_owned(), "[DONE]".to_owned()),
            ]
        );
        let bytes = stream.as_bytes();
        for at in 0..=bytes.len() {
            let (first, second) = bytes.split_at(at);
            assert_eq!(read([first, second]), whole, "cut at {at}");
        }
        assert_eq!(read(bytes.chunks(1)), whole);
    }

    #[test]
    fn takes_every_line_end_alike() {
        for line_end in ["\n", "\r", "\r\n"] {
            let stream = ["data: a", "data: b", "", "data: c", "", ""].join(line_end);
            assert_eq!(
                read_whole(&stream),
                messages(&["a\nb", "c"]),
                "{line_end:?}"
            );
        }
    }

    #[test]
    fn hands_an_event_out_without_waiting_for_what_may_follow_a_carriage_return() {
        let mut stream = Sse::default();
        stream.push(b"data: a\r\r");
        assert!(stream.next().expect("short").is_some());
        stream.push(b"\ndata: b\r\n\r");
        let event = stream.next().expect("short").expect("complete");
        assert_eq!(event.data, "b");
    }

    #[test]
    fn dispatches_what_the_end_of_the_stream_leaves_open() {
        assert_eq!(read_whole("data: a\n\ndata: b"), messages(&["a", "b"]));
        assert_eq!(read_whole("data: a\n\ndata: b\n"), messages(&["a", "b"]));
        assert_eq!(read_whole("data: a\n\n"), messages(&["a"]));
        assert_eq!(read_whole("data: a\n\ndata:\n"), messages(&["a"]));
        assert_eq!(read_whole("event: x"), []);
        assert_eq!(read_whole(""), []);
    }

    #[test]
    fn strips_one_space_and_one_byte_order_mark_only() {
        assert_eq!(read_whole("data:  a\n\n"), messages(&[" a"]));
        assert_eq!(
            read_whole("\u{FEFF}\u{FEFF}data: a\n\ndata: b\n\n"),
            messages(&["b"])
        );
        assert_eq!(
            read_whole("data: a\n\n\u{FEFF}data: b\n\n"),
            messages(&["a"])
        );
    }

    #[test]
    fn forgets_the_name_of_an_event_without_data() {
        assert_eq!(read_whole("event: x\n\ndata: a\n\n"), messages(&["a"]));
    }

    #[test]
    fn replaces_what_is_not_utf_8() {
        assert_eq!(
            read([&b"data: a\xFFb\n"[..], b"\n"]),
            messages(&["a\u{FFFD}b"])
        );
    }

    #[test]
    fn keeps_what_stands_outside_the_framing() {
        let mut stream = Sse::default();
        stream.push(b"id: 1\n: hello\ndata: a\n\n{\n  \"error\": {\"code\": 503}\n}");
        while stream.next().expect("short").is_some() {}
        assert_eq!(stream.finish(), Ok(None));
        assert_eq!(stream.stray(), "{\n  \"error\": {\"code\": 503}\n}\n");
        stream.push(&b"x\n".repeat(MAX_ERROR_BODY_BYTES));
        assert_eq!(stream.next(), Ok(None));
        assert!(stream.stray().len() <= MAX_ERROR_BODY_BYTES);
    }

    #[test]
    fn refuses_a_line_that_never_ends() {
        let mut stream = Sse::default();
        let piece = vec![b'x'; MAX_EVENT_BYTES / 2];
        stream.push(&piece);
        assert_eq!(stream.next(), Ok(None));
        stream.push(&piece);
        assert_eq!(stream.next(), Ok(None));
        stream.push(b"x");
        assert_eq!(stream.next(), Err(too_long()));
    }

    #[test]
    fn refuses_an_event_that_never_ends() {
        let mut stream = Sse::default();
        let line = format!("data: {}\n", "x".repeat(MAX_EVENT_BYTES / 4));
        for _ in 0..3 {
            stream.push(line.as_bytes());
            assert_eq!(stream.next(), Ok(None));
        }
        stream.push(line.as_bytes());
        assert_eq!(stream.next(), Err(too_long()));
    }
}
