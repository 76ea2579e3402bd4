//! Upper bound for the pages of a PDF, from its bytes: providers charge by page.
//!
//! The number is an upper bound for every reader, or there is none. Readers can disagree about a PDF: its `/Count` is
//! not verified, and objects can be compressed, duplicated or circular. Therefore, the scan does not start at the root.
//! Instead, it searches all bytes for the two necessary signs of a page: an entry of a `/Kids` array, and an object of
//! the type `/Page`. If each node has at most one parent, the number of pages is at most the number of entries.
//!
//! **Invariant:** a file that could hide or repeat a page is uncountable: it has object streams, which compress
//! objects; a `/Kids` or `/Type` in another place; or a node with two parents, even under another name.

use std::collections::HashSet;

/// More pages than any model reads.
const MAX_PAGES: usize = 10_000;

/// The maximum bytes of a relevant name with all its characters escaped, e.g. `#4b` for `K`.
const NAME_BYTES: usize = 3 * 12;

/// The findings in a document so far.
#[derive(Default)]
struct PageTree {
    /// Objects in `/Kids` arrays.
    kids: HashSet<u32>,
    /// Objects that are the root of a page tree.
    roots: HashSet<u32>,
    /// The number of page objects, or of similar places.
    pages: usize,
}

/// Returns an upper bound for the pages of a PDF; `None` if there is none.
pub(crate) fn count(pdf: &[u8]) -> Option<u64> {
    if !pdf.starts_with(b"%PDF-") {
        return None;
    }
    let mut seen = PageTree::default();
    let mut rest = pdf;
    while let Some(at) = rest.iter().position(|byte| b"/o".contains(byte)) {
        let (before, found) = rest.split_at(at);
        rest = match found.strip_prefix(b"/") {
            Some(name) => {
                let (name, after) = read_name(name);
                seen.take(&name, after)?
            }
            None if found.starts_with(b"obj") && !before.ends_with(b"end") && is_alias(found) => {
                return None;
            }
            None => &found[1..],
        };
    }
    let is_tree = !seen.kids.is_empty() && seen.pages > 0 && seen.kids.is_disjoint(&seen.roots);
    is_tree.then(|| seen.kids.len().max(seen.pages) as u64)
}

impl PageTree {
    /// Processes a name and the bytes after it. Returns the rest, or `None` if the pages are uncountable.
    fn take<'a>(&mut self, name: &[u8], after: &'a [u8]) -> Option<&'a [u8]> {
        match name {
            // Objects may be compressed in an object stream, which only a cross-reference stream can locate.
            b"ObjStm" | b"XRef" | b"XRefStm" => return None,
            b"W" if is_three_widths(after) => return None,
            b"Type" => return skip_space(after).starts_with(b"/").then_some(after),
            b"Page" => {
                self.pages += 1;
                return (self.pages <= MAX_PAGES).then_some(after);
            }
            // As a type, it precedes the dictionary's next name or its end.
            b"Pages" => {
                if let Some((object, rest)) = read_reference(after) {
                    self.roots.insert(object);
                    return Some(rest);
                }
            }
            b"Kids" => return self.take_kids(after),
            _ => {}
        }
        Some(after)
    }

    fn take_kids<'a>(&mut self, after: &'a [u8]) -> Option<&'a [u8]> {
        let mut rest = skip_space(after).strip_prefix(b"[")?;
        loop {
            rest = skip_space(rest);
            if let Some(rest) = rest.strip_prefix(b"]") {
                return Some(rest);
            }
            let (object, after) = read_reference(rest)?;
            rest = after;
            if !self.kids.insert(object) || self.kids.len() > MAX_PAGES {
                return None;
            }
        }
    }
}

/// Reads a name without its slash, with resolved escapes, and returns the rest. Long names are truncated.
pub(crate) fn read_name(bytes: &[u8]) -> (Vec<u8>, &[u8]) {
    let is_regular = |byte: &u8| !is_space(*byte) && !b"()<>[]{}/%".contains(byte);
    let end = bytes.iter().position(|byte| !is_regular(byte));
    let (name, after) = bytes.split_at(end.unwrap_or(bytes.len()));
    let mut resolved = Vec::new();
    let mut rest = &name[..name.len().min(NAME_BYTES)];
    while let Some((&byte, next)) = rest.split_first() {
        let escaped = match (byte, next) {
            (b'#', &[high, low, ..]) => hexadecimal(high).zip(hexadecimal(low)),
            _ => None,
        };
        let (byte, next) = match escaped {
            Some((high, low)) => (high << 4 | low, &next[2..]),
            None => (byte, next),
        };
        resolved.push(byte);
        rest = next;
    }
    (resolved, after)
}

fn hexadecimal(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// Whether an object is an alias of another one; a comment may hide that.
fn is_alias(object: &[u8]) -> bool {
    let content = skip_space(&object[3..]);
    content.starts_with(b"%") || read_reference(content).is_some()
}

/// Reads a reference such as `12 0 R`, and returns the rest.
pub(crate) fn read_reference(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (object, rest) = read_integer(skip_space(bytes))?;
    let (_, rest) = read_integer(skip_some_space(rest)?)?;
    let rest = skip_some_space(rest)?.strip_prefix(b"R")?;
    Some((object, rest))
}

/// Reads an integer of at most nine digits; readers disagree about more.
fn read_integer(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let digits = bytes
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let (number, rest) = bytes.split_at(digits);
    let number = std::str::from_utf8(number).ok().filter(|_| digits <= 9)?;
    Some((number.parse().ok()?, rest))
}

/// Whether an array of three integers follows, as in a cross-reference stream. Glyph widths look different, except in a
/// font with one range.
fn is_three_widths(after: &[u8]) -> bool {
    let widths = || {
        let mut rest = skip_space(after).strip_prefix(b"[")?;
        for _ in 0..3 {
            (_, rest) = read_integer(skip_space(rest))?;
        }
        skip_space(rest).strip_prefix(b"]")
    };
    widths().is_some()
}

fn skip_some_space(bytes: &[u8]) -> Option<&[u8]> {
    let rest = skip_space(bytes);
    (rest.len() < bytes.len()).then_some(rest)
}

pub(crate) fn skip_space(bytes: &[u8]) -> &[u8] {
    let space = bytes.iter().take_while(|byte| is_space(**byte)).count();
    &bytes[space..]
}

/// Whether a byte is white space in PDF.
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, 0 | b'\t' | b'\n' | 12 | b'\r' | b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A document with two nodes, with these pages and other content.
    fn document(kids: &str, rest: &str) -> Vec<u8> {
        format!(
            "%PDF-1.4\n1 0 obj << /Type /Catalog /Pages 2 0 R >> endobj\n\
             2 0 obj << /Type /Pages /Count 1 /Kids {kids} >> endobj\n{rest}\ntrailer << /Root 1 0 R >>\n%%EOF"
        )
        .into_bytes()
    }

    fn page(number: u32) -> String {
        format!("{number} 0 obj << /Type /Page /Parent 2 0 R >> endobj\n")
    }

    #[test]
    fn pages_are_counted_whatever_the_document_says() {
        let three = [3, 4, 5].map(page).concat();
        for (what, pdf, pages) in [
            ("one", document("[3 0 R]", &page(3)), Some(1)),
            (
                "a count that lies",
                document("[3 0 R 4 0 R 5 0 R]", &three),
                Some(3),
            ),
            (
                "escapes and odd spaces",
                document(
                    "[3 0 R\x004 0\tR]",
                    "3 0 obj<</Typ#65/P#61ge>>endobj 4 0 obj<</#54ype/Page>>endobj",
                ),
                Some(2),
            ),
            (
                "pages without a type",
                document("[3 0 R 4 0 R 5 0 R]", &page(3)),
                Some(3),
            ),
            (
                "pages that no tree names, as readers find them that mend",
                document("[3 0 R]", &three),
                Some(3),
            ),
            (
                "an escaped list, in a node of its own",
                document(
                    "[3 0 R]",
                    &format!("3 0 obj << /#4bids [4 0 R 5 0 R 6 0 R] >> endobj {three}"),
                ),
                Some(4),
            ),
            (
                "fonts, outlines and forms",
                document(
                    "[3 0 R]",
                    &format!(
                        "{}<< /W [1 [500 600]] /First 9 0 R /Prev 8 0 R /Subtype /Type1 >>",
                        page(3)
                    ),
                ),
                Some(1),
            ),
        ] {
            assert_eq!(count(&pdf), pages, "{what}");
        }
    }

    #[test]
    fn what_could_show_more_pages_than_it_has_is_not_counted() {
        let many: String = (3..=10_003)
            .map(|object| format!("{object} 0 R "))
            .collect();
        for (what, pdf) in [
            ("no PDF", b"PK\x03\x04 /Type /Page /Kids [3 0 R]".to_vec()),
            ("nothing", document("[]", "")),
            (
                "a stream of objects",
                document(
                    "[3 0 R]",
                    &format!("{} 9 0 obj << /Type /ObjStm >>", page(3)),
                ),
            ),
            (
                "an escaped one",
                document(
                    "[3 0 R]",
                    &format!("{} 9 0 obj << /Type /Obj#53tm >>", page(3)),
                ),
            ),
            (
                "compressed references",
                document("[3 0 R]", &format!("{} << /Type/XRef >>", page(3))),
            ),
            (
                "nameless ones",
                document(
                    "[3 0 R]",
                    &format!("{} << /Size 9 /W [ 1 2 1 ] >>", page(3)),
                ),
            ),
            (
                "hybrid ones",
                document("[3 0 R]", &format!("{} << /XRefStm 99 >>", page(3))),
            ),
            ("a page twice", document("[3 0 R 3 0 R]", &page(3))),
            (
                "the same in other words",
                document("[3 0 R 003 1 R]", &page(3)),
            ),
            ("a circle", document("[2 0 R 3 0 R]", &page(3))),
            (
                "a list elsewhere",
                document(
                    "9 0 R",
                    &format!("{} 9 0 obj [3 0 R 3 0 R] endobj", page(3)),
                ),
            ),
            (
                "a list with a comment",
                document("[3 0 R % ]\n4 0 R]", &page(3)),
            ),
            ("a list without an end", document("[3 0 R 4 0 R", &page(3))),
            (
                "a type elsewhere",
                document("[3 0 R]", &format!("{} 4 0 obj << /Type 9 0 R >>", page(3))),
            ),
            (
                "a page by two names",
                document(
                    "[3 0 R 4 0 R]",
                    &format!("{} 4 0 obj\n3 0 R endobj", page(3)),
                ),
            ),
            (
                "a hidden one",
                document(
                    "[3 0 R 4 0 R]",
                    &format!("{} 4 0 obj %\n3 0 R endobj", page(3)),
                ),
            ),
            (
                "a number that wraps",
                document("[4294967299 0 R 3 0 R]", &page(3)),
            ),
            ("too many", document(&format!("[{many}]"), &page(3))),
            (
                "too many objects",
                document("[3 0 R]", &page(3).repeat(10_001)),
            ),
        ] {
            assert_eq!(count(&pdf), None, "{what}");
        }
    }

    #[test]
    fn no_file_takes_long() {
        for unit in [
            "/",
            "/Kids[",
            "/Page ",
            "/Kids [1 0 R] ",
            "/Pages 1 0 R ",
            "/#",
            "/W [1 ",
            "obj ",
        ] {
            let pdf = format!("%PDF-1.4 {}", unit.repeat((1 << 20) / unit.len()));
            let started = std::time::Instant::now();
            let _ = count(pdf.as_bytes());
            // A quadratic scan would take minutes, even on a fast machine.
            assert!(started.elapsed().as_secs() < 10, "{unit}");
        }
    }
}
