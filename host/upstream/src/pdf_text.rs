//! Upper bound for the text of a PDF: one page can have the text of a book.
//!
//! Text is outside of streams, or in the content streams of pages. weir inflates these, and counts their bytes. Images and
//! fonts do not count.
//!
//! **Invariant:** a file that could have more text than its bytes is uncountable: forms, which a page draws any number of
//! times; objects within the data of streams; encryption; filters other than Flate; streams that do not inflate.

use std::collections::{HashMap, HashSet};

use memchr::memmem::Finder;
use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{DataFormat, MZFlush, MZStatus};

use crate::pages::{is_space, read_name, read_reference, skip_space};

/// The most bytes of all inflated streams together: more than any model reads.
const MAX_INFLATED: usize = 64 << 20;

/// The most bytes of a font's table of characters.
const MAX_TABLE: usize = 1 << 20;

/// Names of contents that weir cannot bound: text elsewhere, or drawn many times.
const UNBOUNDED: [&[u8]; 5] = [b"Form", b"Encrypt", b"EmbeddedFile", b"XFA", b"Crypt"];

/// A stream's dictionary, and all bytes from its beginning.
type Stream<'a> = (&'a [u8], &'a [u8]);

/// The findings outside of streams.
#[derive(Default)]
struct Outline<'a> {
    /// Bytes outside of streams.
    bytes: usize,
    /// The streams by the number of their object. A document that was changed has several of a number.
    streams: HashMap<u32, Vec<Stream<'a>>>,
    /// The content streams, and how often pages name them.
    contents: HashMap<u32, u64>,
    /// Tables of the characters of fonts.
    tables: HashSet<u32>,
    /// The most bytes of text that a byte of a string can be.
    expansion: u64,
}

/// Returns an upper bound for the bytes of text in a PDF; `None` if there is none.
pub(crate) fn bytes(pdf: &[u8]) -> Option<u64> {
    let mut outline = Outline {
        expansion: 1,
        ..Outline::default()
    };
    let (begin, end) = (Finder::new(b"stream"), Finder::new(b"endstream"));
    let mut at = 0;
    while at < pdf.len() {
        let found = begin.find(&pdf[at..]);
        let keyword = found.map_or(pdf.len(), |found| at + found);
        let segment = &pdf[at..keyword];
        let object = outline.take(segment)?;
        if keyword == pdf.len() {
            break;
        }
        let data = begin_of_data(&pdf[keyword + b"stream".len()..])?;
        if let Some((number, dictionary)) = object {
            let streams = outline.streams.entry(number).or_default();
            streams.push((dictionary, data));
        }
        let length = end.find(data).unwrap_or(data.len());
        if objects(&data[..length]).any(|(number, _)| number.is_some()) {
            return None;
        }
        at = pdf.len() - data.len() + (length + b"endstream".len()).min(data.len());
    }
    outline.text_bytes()
}

/// Returns the data behind the keyword `stream`, which ends its line.
fn begin_of_data(bytes: &[u8]) -> Option<&[u8]> {
    let bytes = bytes.strip_prefix(b"\r").unwrap_or(bytes);
    bytes.strip_prefix(b"\n")
}

impl<'a> Outline<'a> {
    /// Processes the bytes between two streams. Returns the object whose stream follows: its number and its dictionary.
    fn take(&mut self, segment: &'a [u8]) -> Option<Option<(u32, &'a [u8])>> {
        self.bytes += segment.len();
        let mut last = None;
        for (number, content) in objects(segment) {
            // An object whose number is hidden, by a comment for example.
            last = Some((number?, content));
        }
        let mut rest = segment;
        while let Some(found) = memchr::memchr(b'/', rest) {
            let (name, after) = read_name(&rest[found + 1..]);
            self.take_name(&name, after)?;
            rest = after;
        }
        Some(last)
    }

    fn take_name(&mut self, name: &[u8], after: &[u8]) -> Option<()> {
        let value = skip_space(after);
        match name {
            b"Contents" => {
                let is_text =
                    value.starts_with(b"(") || value.starts_with(b"<") && !value.starts_with(b"<<");
                if !is_text {
                    self.take_contents(value)?;
                }
            }
            b"ToUnicode" if !value.starts_with(b"/") => {
                self.tables.insert(read_reference(value)?.0);
            }
            _ if UNBOUNDED.contains(&name) => return None,
            // A glyph that is named by its characters.
            _ => {
                let digits = name.strip_prefix(b"uni").unwrap_or_default();
                if digits.len() > 8 {
                    return None;
                }
                if digits.len() >= 4 {
                    self.expansion = self.expansion.max(3 * digits.len() as u64 / 4);
                }
            }
        }
        Some(())
    }

    fn take_contents(&mut self, value: &[u8]) -> Option<()> {
        let Some(mut list) = value.strip_prefix(b"[") else {
            return self.take_content(value).map(|_| ());
        };
        loop {
            list = skip_space(list);
            if list.starts_with(b"]") {
                return Some(());
            }
            list = self.take_content(list)?;
        }
    }

    fn take_content<'b>(&mut self, value: &'b [u8]) -> Option<&'b [u8]> {
        let (number, rest) = read_reference(value)?;
        *self.contents.entry(number).or_default() += 1;
        Some(rest)
    }

    fn text_bytes(&self) -> Option<u64> {
        let mut expansion = self.expansion;
        for number in &self.tables {
            for (dictionary, data) in self.streams.get(number)? {
                let mut table = Vec::new();
                read_stream(dictionary, data, MAX_TABLE, |piece| {
                    table.extend_from_slice(piece)
                })?;
                expansion = expansion.max(longest_text(&table)?);
            }
        }
        let (mut inflated, mut text) = (0, 0_u64);
        for (number, times) in &self.contents {
            for (dictionary, data) in self.streams.get(number)? {
                let left = MAX_INFLATED - inflated;
                let bytes = read_stream(dictionary, data, left, |_| ())?;
                inflated += bytes;
                text = text.checked_add((bytes as u64).checked_mul(*times)?)?;
            }
        }
        text.checked_mul(expansion)?.checked_add(self.bytes as u64)
    }
}

/// Returns the objects that begin in these bytes: the number of each, if one precedes it, and its content up to the next one
/// or the end.
fn objects(bytes: &[u8]) -> impl Iterator<Item = (Option<u32>, &[u8])> {
    memchr::memmem::find_iter(bytes, b"obj").filter_map(|at| {
        let is_regular = |byte: &u8| byte.is_ascii_alphanumeric();
        let (before, content) = (&bytes[..at], &bytes[at + 3..]);
        if before.last().is_some_and(u8::is_ascii_alphabetic)
            || content.first().is_some_and(is_regular)
        {
            return None;
        }
        Some((number_before(before), content))
    })
}

/// Reads a number and a generation before the keyword of an object, from the end.
fn number_before(bytes: &[u8]) -> Option<u32> {
    let (generation, before) = digits_before(bytes);
    let (number, _) = digits_before(before);
    if generation.is_empty() || before.last().is_none_or(|byte| !is_space(*byte)) {
        return None;
    }
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// Splits off digits at the end, and the white space behind them. Longer numbers than readers accept are cut.
fn digits_before(bytes: &[u8]) -> (&[u8], &[u8]) {
    let space = bytes
        .iter()
        .rev()
        .take_while(|byte| is_space(**byte))
        .count();
    let bytes = &bytes[..bytes.len() - space];
    let digits = bytes
        .iter()
        .rev()
        .take(20)
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let (before, digits) = bytes.split_at(bytes.len() - digits);
    (digits, before)
}

/// Reads a stream of up to `most` bytes. Returns their number.
fn read_stream(
    dictionary: &[u8],
    data: &[u8],
    most: usize,
    mut take: impl FnMut(&[u8]),
) -> Option<usize> {
    let dictionary = skip_space(dictionary);
    let end = dictionary.iter().rposition(|byte| !is_space(*byte))?;
    let dictionary = dictionary[..=end]
        .strip_prefix(b"<<")?
        .strip_suffix(b">>")?;
    // Strings and comments could hide the dictionary's real end.
    if dictionary.iter().any(|byte| b"(%".contains(byte)) {
        return None;
    }
    let (mut filter, mut length) = (None, None);
    let mut rest = dictionary;
    while let Some(at) = memchr::memchr(b'/', rest) {
        let (name, after) = read_name(&rest[at + 1..]);
        rest = after;
        let of_name = match name.as_slice() {
            b"Filter" => &mut filter,
            b"Length" => &mut length,
            // The data of another file.
            b"F" => return None,
            _ => continue,
        };
        if of_name.replace(after).is_some() {
            return None;
        }
    }
    let is_plain = filter.is_none_or(|filter| matches!(first_filter(filter), Some(None)));
    if is_plain {
        let bytes = memchr::memmem::find(data, b"endstream").unwrap_or(data.len());
        let length = skip_space(length?);
        let digits = length
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let is_reference = read_reference(length).is_some();
        let length: usize = std::str::from_utf8(&length[..digits]).ok()?.parse().ok()?;
        if is_reference || length > bytes || bytes > most {
            return None;
        }
        take(&data[..bytes]);
        return Some(bytes);
    }
    if first_filter(filter?)?.as_deref() != Some(b"FlateDecode") {
        return None;
    }
    read_inflated(data, most, take)
}

/// Reads a filter's name, or an array of at most one; `None` for other values.
fn first_filter(value: &[u8]) -> Option<Option<Vec<u8>>> {
    let value = skip_space(value);
    let Some(list) = value.strip_prefix(b"[") else {
        return Some(Some(read_name(value.strip_prefix(b"/")?).0));
    };
    let list = skip_space(list);
    let Some(name) = list.strip_prefix(b"/") else {
        return list.starts_with(b"]").then_some(None);
    };
    let (name, rest) = read_name(name);
    skip_space(rest).starts_with(b"]").then_some(Some(name))
}

fn read_inflated(data: &[u8], most: usize, mut take: impl FnMut(&[u8])) -> Option<usize> {
    let mut state = InflateState::new_boxed(DataFormat::Zlib);
    let (mut rest, mut bytes) = (data, 0);
    let mut piece = [0; 16 << 10];
    loop {
        let result = inflate(&mut state, rest, &mut piece, MZFlush::None);
        rest = &rest[result.bytes_consumed..];
        bytes += result.bytes_written;
        take(&piece[..result.bytes_written]);
        if bytes > most {
            return None;
        }
        match result.status {
            Ok(MZStatus::StreamEnd) => return Some(bytes),
            Ok(_) => {}
            // Readers show the bytes before an error, and some go on behind it.
            Err(_) => return None,
        }
    }
}

/// Returns the most bytes of text that a table has for a character; `None` if it is more than a ligature has.
fn longest_text(table: &[u8]) -> Option<u64> {
    let mut longest = 1;
    let mut rest = table;
    while let Some(at) = memchr::memchr(b'<', rest) {
        rest = &rest[at + 1..];
        let end = memchr::memchr(b'>', rest)?;
        let digits: Vec<u8> = rest[..end]
            .iter()
            .filter(|byte| byte.is_ascii_hexdigit())
            .copied()
            .collect();
        rest = &rest[end..];
        if digits.len() > 32 {
            return None;
        }
        let units = digits.chunks_exact(4).filter_map(|unit| {
            let unit = std::str::from_utf8(unit).ok()?;
            u16::from_str_radix(unit, 16).ok()
        });
        let text: String = char::decode_utf16(units)
            .map(|unit| unit.unwrap_or('\u{fffd}'))
            .collect();
        longest = longest.max(text.len() as u64);
    }
    Some(longest)
}
