//! Images and vectors in the JSON of a response, passed on as they arrive.
//!
//! A guest may not have memory for two copies of a large image in base64. A [`ImageExtractor`] looks at the
//! bytes before anything else does, and decodes the strings that hold images into
//! [`Event::MediaBytes`]. It replaces each string with a short text that names the image
//! ([`ImageExtractor::image`]). The rest is JSON that a guest can collect and parse.
//!
//! Many vectors are as large. A [`VectorExtractor`] passes each one on as it is, and replaces it with a short text, too
//! ([`VectorExtractor::is_vector`]).

use std::borrow::Cow;

use crate::adapter::{Event, Failure};
use crate::chat::{Media, MediaBytes};

/// The deepest nesting in which a [`Lifter`] looks for images.
const MAX_DEPTH: usize = 128;

/// The longest key that a [`Lifter`] compares, in bytes.
const MAX_KEY_BYTES: usize = 32;

/// Marks the text that replaces an image. No alphabet of base64 has this character.
const MARK: &str = "@";

/// Takes images out of JSON: one document, or those of a stream of events.
///
/// ```
/// # use weir_sdk::media::ImageExtractor;
/// let mut extractor = ImageExtractor::new(&[&["data", "b64_json"]]);
/// let (mut rest, mut events) = (Vec::new(), Vec::new());
/// for piece in [br#"{"data":[{"b64_json":"aGVs"#, br#"bG8="},{"b64_json":"aGk="}]}"#.as_slice()] {
///     extractor.push(piece, &mut rest, &mut events)?;
/// }
/// assert_eq!(rest, br#"{"data":[{"b64_json":"@0"},{"b64_json":"@1"}]}"#);
/// assert_eq!(events.len(), 3);
/// # Ok::<(), weir_sdk::adapter::Failure>(())
/// ```
#[derive(Debug)]
pub struct ImageExtractor {
    /// The keys that lead to an image. Lists between them do not count.
    paths: &'static [&'static [&'static str]],
    state: ScanState,
    /// The open objects and lists, except those that nest too deep.
    open: Vec<OpenContainer>,
    too_deep: bool,
    /// Whether the last line had nothing in it so far: a blank one ends an event.
    line_is_empty: bool,
    images: Vec<ImageHead>,
    decoder: Decoder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanState {
    Between,
    Text { is_escaped: bool },
    Key { is_escaped: bool },
    Image { escape: Escape },
}

/// The position within an escape of a JSON string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escape {
    None,
    Begun,
    /// The number of missing digits of `\u`, and the value of those before.
    Unicode(u8, u32),
}

#[derive(Debug)]
enum OpenContainer {
    List,
    Object { key: Vec<u8>, is_value: bool },
}

/// Whether these are whole events, as far as their end shows: a blank line is one.
fn ends_event(bytes: &[u8]) -> bool {
    bytes.ends_with(b"\n\n") || bytes.ends_with(b"\n\r\n")
}

/// An image that was taken out.
#[derive(Debug, Default)]
struct ImageHead {
    /// Its first bytes, which show its type; none if it is empty.
    head: Vec<u8>,
}

impl ImageExtractor {
    /// Looks for strings at these paths. A path is the keys from the top, lists left aside.
    pub fn new(paths: &'static [&'static [&'static str]]) -> Self {
        Self {
            paths,
            state: ScanState::Between,
            open: Vec::new(),
            too_deep: false,
            line_is_empty: true,
            images: Vec::new(),
            decoder: Decoder::default(),
        }
    }

    /// Takes the next bytes. Appends images to `events`, and the remaining bytes to `rest`.
    ///
    /// # Errors
    ///
    /// [`FailureKind::Malformed`](crate::adapter::FailureKind::Malformed) for an image that is not base64.
    pub fn push(
        &mut self,
        mut bytes: &[u8],
        rest: &mut Vec<u8>,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        if self.is_between_events() && ends_event(bytes) && !self.may_hold_image(bytes) {
            rest.extend_from_slice(bytes);
            self.line_is_empty = true;
            return Ok(());
        }
        while !bytes.is_empty() {
            let used = match self.state {
                _ if self.too_deep => bytes.len(),
                ScanState::Between => self.between(bytes),
                ScanState::Text { is_escaped } | ScanState::Key { is_escaped } => {
                    self.text(bytes, is_escaped)
                }
                ScanState::Image { escape } => {
                    let used = self.image_bytes(bytes, escape, events)?;
                    bytes = &bytes[used..];
                    continue;
                }
            };
            rest.extend_from_slice(&bytes[..used]);
            bytes = &bytes[used..];
            if matches!(self.state, ScanState::Image { .. }) {
                rest.extend_from_slice(MARK.as_bytes());
                rest.extend_from_slice((self.images.len() - 1).to_string().as_bytes());
            }
        }
        Ok(())
    }

    /// The same as an [`AnswerReader`](crate::response::AnswerReader) hands it on: returns the rest beside the failure.
    pub fn lift(
        &mut self,
        bytes: &[u8],
        events: &mut Vec<Event>,
    ) -> (Cow<'static, [u8]>, Result<(), Failure>) {
        let mut rest = Vec::with_capacity(bytes.len());
        let lifted = self.push(bytes, &mut rest, events);
        (Cow::Owned(rest), lifted)
    }

    /// The image that a string stands for: one that was lifted, or one that is still in it. `media_type` is what it is
    /// where neither its bytes nor `said` tell.
    ///
    /// # Errors
    ///
    /// As for [`push`](Self::push); also for an image that is empty.
    pub fn image(
        &mut self,
        text: &str,
        said: Option<&str>,
        media_type: &str,
        events: &mut Vec<Event>,
    ) -> Result<Media, Failure> {
        let lifted = text.strip_prefix(MARK).and_then(|id| id.parse().ok());
        let id = match lifted {
            Some(id) => id,
            None => self.decode(text, events)?,
        };
        let image = self.images.get(id as usize);
        let Some(image) = image.filter(|image| !image.head.is_empty()) else {
            return Err(Failure::malformed("an image of the answer is empty"));
        };
        let found = sniffed(&image.head);
        Ok(Media {
            media_type: said.or(found).unwrap_or(media_type).to_owned(),
            data: Vec::new(),
            bytes_before: Some(id),
            url: None,
            revised_prompt: None,
            is_preview: false,
        })
    }

    fn decode(&mut self, text: &str, events: &mut Vec<Event>) -> Result<u32, Failure> {
        self.images.push(ImageHead::default());
        let mut decoder = Decoder::default();
        let mut data = Vec::with_capacity(text.len() / 4 * 3);
        decoder.take_all(text.as_bytes(), &mut data)?;
        decoder.finish(&mut data)?;
        self.hand_on(data, events);
        Ok(self.last_id())
    }

    fn last_id(&self) -> u32 {
        u32::try_from(self.images.len() - 1).unwrap_or(u32::MAX)
    }

    fn hand_on(&mut self, data: Vec<u8>, events: &mut Vec<Event>) {
        let id = self.last_id();
        if let Some(image) = self.images.last_mut()
            && image.head.len() < MAGIC_BYTES
        {
            let due = MAGIC_BYTES - image.head.len();
            image.head.extend_from_slice(&data[..data.len().min(due)]);
        }
        if !data.is_empty() {
            events.push(Event::MediaBytes(MediaBytes { id, data }));
        }
    }

    fn is_between_events(&self) -> bool {
        self.state == ScanState::Between && self.open.is_empty()
    }

    /// Whether all keys that lead to an image are there, which they are not in nearly all that is said in a chat.
    fn may_hold_image(&self, bytes: &[u8]) -> bool {
        let is_there = |key: &&str| memchr::memmem::find(bytes, key.as_bytes()).is_some();
        // The last ones are the rarest.
        let mut paths = self.paths.iter();
        paths.any(|path| path.iter().rev().all(is_there))
    }

    /// Reads what stands between strings, up to and including the quote that begins one.
    fn between(&mut self, bytes: &[u8]) -> usize {
        for (index, byte) in bytes.iter().enumerate() {
            let ends_blank_line = *byte == b'\n' && self.line_is_empty;
            match byte {
                b'\r' => continue,
                _ => self.line_is_empty = *byte == b'\n',
            }
            match byte {
                // An event of a stream is over, however it ended.
                _ if ends_blank_line => self.open.clear(),
                b'{' => self.open.push(OpenContainer::Object {
                    key: Vec::new(),
                    is_value: false,
                }),
                b'[' => self.open.push(OpenContainer::List),
                b'}' | b']' => drop(self.open.pop()),
                b':' | b',' => {
                    if let Some(OpenContainer::Object { is_value, .. }) = self.open.last_mut() {
                        *is_value = *byte == b':';
                    }
                }
                b'"' => {
                    self.begin_string();
                    return index + 1;
                }
                _ => {}
            }
            self.too_deep |= self.open.len() > MAX_DEPTH;
        }
        bytes.len()
    }

    fn begin_string(&mut self) {
        let is_escaped = false;
        if let Some(OpenContainer::Object { key, is_value }) = self.open.last_mut()
            && !*is_value
        {
            key.clear();
            self.state = ScanState::Key { is_escaped };
        } else if !self.open.is_empty() && self.paths.iter().any(|path| self.is_at(path)) {
            self.images.push(ImageHead::default());
            self.decoder = Decoder::default();
            let escape = Escape::None;
            self.state = ScanState::Image { escape };
        } else {
            self.state = ScanState::Text { is_escaped };
        }
    }

    fn is_at(&self, path: &[&str]) -> bool {
        let keys = self.open.iter().filter_map(|open| match open {
            OpenContainer::Object { key, .. } => Some(key.as_slice()),
            OpenContainer::List => None,
        });
        keys.eq(path.iter().map(|key| key.as_bytes()))
    }

    /// Reads a string that is no image, up to and including its closing quote.
    fn text(&mut self, bytes: &[u8], mut is_escaped: bool) -> usize {
        let is_key = matches!(self.state, ScanState::Key { .. });
        let mut used = 0;
        while used < bytes.len() {
            if is_escaped {
                is_escaped = false;
                used += 1;
                continue;
            }
            let end = memchr::memchr3(b'"', b'\\', b'\n', &bytes[used..]);
            let end = end.map_or(bytes.len(), |end| used + end);
            if is_key
                && let Some(OpenContainer::Object { key, .. }) = self.open.last_mut()
                && key.len() <= MAX_KEY_BYTES
            {
                let due = MAX_KEY_BYTES + 1 - key.len();
                key.extend_from_slice(&bytes[used..end][..due.min(end - used)]);
            }
            match bytes.get(end) {
                None => used = end,
                Some(b'\\') => {
                    (is_escaped, used) = (true, end + 1);
                    // No key that is looked for has one.
                    if is_key && let Some(OpenContainer::Object { key, .. }) = self.open.last_mut()
                    {
                        key.push(b'\\');
                    }
                }
                Some(b'"') => {
                    self.state = ScanState::Between;
                    return end + 1;
                }
                // No string of JSON goes on in another line: this was none.
                Some(_) => {
                    self.open.clear();
                    self.state = ScanState::Between;
                    return end;
                }
            }
        }
        self.state = match is_key {
            true => ScanState::Key { is_escaped },
            false => ScanState::Text { is_escaped },
        };
        used
    }

    /// Decodes an image, up to its closing quote.
    fn image_bytes(
        &mut self,
        bytes: &[u8],
        mut escape: Escape,
        events: &mut Vec<Event>,
    ) -> Result<usize, Failure> {
        let mut data = Vec::with_capacity(bytes.len() / 4 * 3 + 3);
        let mut used = 0;
        while used < bytes.len() {
            if escape == Escape::None {
                // Most of it, by far.
                let end = memchr::memchr2(b'"', b'\\', &bytes[used..]);
                let end = end.map_or(bytes.len(), |end| used + end);
                self.decoder.take_all(&bytes[used..end], &mut data)?;
                match bytes.get(end) {
                    Some(b'"') => {
                        self.decoder.finish(&mut data)?;
                        self.hand_on(data, events);
                        self.state = ScanState::Text { is_escaped: false };
                        return Ok(end);
                    }
                    Some(_) => (escape, used) = (Escape::Begun, end + 1),
                    None => used = end,
                }
                continue;
            }
            let byte = bytes[used];
            used += 1;
            match (escape, byte) {
                (Escape::Begun, b'u') => escape = Escape::Unicode(4, 0),
                (Escape::Unicode(left, so_far), _) => {
                    let digit = char::from(byte).to_digit(16).ok_or_else(not_base64)?;
                    let code = so_far * 16 + digit;
                    escape = Escape::Unicode(left - 1, code);
                    if left == 1 {
                        escape = Escape::None;
                        let byte = u8::try_from(code).map_err(|_| not_base64())?;
                        self.decoder.take(byte, &mut data)?;
                    }
                }
                _ => {
                    escape = Escape::None;
                    // A line's end, as in MIME; all others stand for themselves.
                    if !matches!(byte, b'n' | b'r' | b't') {
                        self.decoder.take(byte, &mut data)?;
                    }
                }
            }
        }
        self.state = ScanState::Image { escape };
        self.hand_on(data, events);
        Ok(bytes.len())
    }
}

/// The place of a list in a path of a [`VectorExtractor`].
pub const ANY: &str = "[]";

/// Takes vectors out of one JSON document.
///
/// ```
/// # use weir_sdk::media::{ANY, VectorExtractor};
/// let mut extractor = VectorExtractor::new(&["data", ANY, "embedding"]);
/// let (mut rest, mut events) = (Vec::new(), Vec::new());
/// for piece in [br#"{"data":[{"embedding":[1.5,"#.as_slice(), br#"2]},{"embedding":"AADAPw=="}]}"#] {
///     extractor.push(piece, &mut rest, &mut events)?;
/// }
/// assert_eq!(rest, br#"{"data":[{"embedding":"@0"},{"embedding":"@1"}]}"#);
/// assert_eq!(events.len(), 2);
/// # Ok::<(), weir_sdk::adapter::Failure>(())
/// ```
#[derive(Debug)]
pub struct VectorExtractor {
    /// The keys that lead to a vector, with [`ANY`] for an item of a list.
    path: &'static [&'static str],
    scanner: ImageExtractor,
    /// The vector that is not complete yet.
    vector: Option<OpenVector>,
    count: usize,
}

/// A vector that is not complete yet.
#[derive(Debug)]
struct OpenVector {
    json: Vec<u8>,
    /// Open lists; a string has none.
    depth: usize,
    is_escaped: bool,
}

/// The longest vector, in bytes: 60,000 numbers.
const MAX_VECTOR_BYTES: usize = 1 << 20;

impl VectorExtractor {
    /// Looks for lists and strings at this path.
    pub fn new(path: &'static [&'static str]) -> Self {
        Self {
            path,
            scanner: ImageExtractor::new(&[]),
            vector: None,
            count: 0,
        }
    }

    /// Whether the text stands for the vector with this index.
    pub fn is_vector(text: &str, index: usize) -> bool {
        let number = text.strip_prefix(MARK).and_then(|id| id.parse().ok());
        number == Some(index)
    }

    /// The number of vectors so far.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Takes the next bytes. Appends vectors to `events`, and the remaining bytes to `rest`.
    ///
    /// # Errors
    ///
    /// [`FailureKind::Malformed`](crate::adapter::FailureKind::Malformed) for a vector that is too long.
    pub fn push(
        &mut self,
        mut bytes: &[u8],
        rest: &mut Vec<u8>,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        while !bytes.is_empty() {
            if self.vector.is_some() {
                let used = self.continue_vector(bytes, rest, events)?;
                bytes = &bytes[used..];
                continue;
            }
            let used = match self.scanner.state {
                _ if self.scanner.too_deep => bytes.len(),
                ScanState::Text { is_escaped } | ScanState::Key { is_escaped } => {
                    self.scanner.text(bytes, is_escaped)
                }
                // The next structural byte may begin a vector.
                ScanState::Between | ScanState::Image { .. } => {
                    let next = bytes.iter().position(|byte| b"{}[]:,\"".contains(byte));
                    match next {
                        Some(0) if self.begins_vector(bytes[0]) => {
                            self.vector = Some(OpenVector {
                                json: Vec::new(),
                                depth: 0,
                                is_escaped: false,
                            });
                            continue;
                        }
                        Some(0) => self.scanner.between(&bytes[..1]),
                        Some(at) => at,
                        None => bytes.len(),
                    }
                }
            };
            rest.extend_from_slice(&bytes[..used]);
            bytes = &bytes[used..];
        }
        Ok(())
    }

    fn begins_vector(&self, byte: u8) -> bool {
        if !matches!(byte, b'[' | b'"') {
            return false;
        }
        let is_value = match self.scanner.open.last() {
            Some(OpenContainer::Object { is_value, .. }) => *is_value,
            Some(OpenContainer::List) => true,
            None => false,
        };
        let places = self.scanner.open.iter().map(|open| match open {
            OpenContainer::Object { key, .. } => key.as_slice(),
            OpenContainer::List => ANY.as_bytes(),
        });
        is_value && places.eq(self.path.iter().map(|place| place.as_bytes()))
    }

    /// Reads a vector up to and including its end.
    fn continue_vector(
        &mut self,
        bytes: &[u8],
        rest: &mut Vec<u8>,
        events: &mut Vec<Event>,
    ) -> Result<usize, Failure> {
        let Some(vector) = &mut self.vector else {
            return Ok(0);
        };
        let is_string = match vector.json.first() {
            Some(first) => *first == b'"',
            None => bytes[0] == b'"',
        };
        let (mut used, mut is_over) = (0, false);
        if is_string {
            if vector.json.is_empty() {
                used = 1;
            }
            while used < bytes.len() && !is_over {
                let byte = bytes[used];
                is_over = byte == b'"' && !vector.is_escaped;
                vector.is_escaped = byte == b'\\' && !vector.is_escaped;
                used += 1;
            }
        } else {
            while used < bytes.len() && !is_over {
                let next = memchr::memchr2(b'[', b']', &bytes[used..]);
                let Some(next) = next else {
                    used = bytes.len();
                    break;
                };
                match bytes[used + next] {
                    b'[' => vector.depth += 1,
                    _ => vector.depth -= 1,
                }
                used += next + 1;
                is_over = vector.depth == 0;
            }
        }
        if vector.json.len() + used > MAX_VECTOR_BYTES {
            return Err(Failure::malformed("a vector of the answer is too long"));
        }
        vector.json.extend_from_slice(&bytes[..used]);
        if is_over && let Some(vector) = self.vector.take() {
            rest.extend_from_slice(format!("\"{MARK}{}\"", self.count).as_bytes());
            self.count += 1;
            events.push(json_media(vector.json));
        }
        Ok(used)
    }
}

/// Returns the event of data in JSON: a vector, or a ranking.
pub fn json_media(json: Vec<u8>) -> Event {
    Event::Media(Media {
        media_type: "application/json".to_owned(),
        data: json,
        bytes_before: None,
        url: None,
        revised_prompt: None,
        is_preview: false,
    })
}

/// Decodes a whole text of base64, of either alphabet.
///
/// # Errors
///
/// [`FailureKind::Malformed`](crate::adapter::FailureKind::Malformed) for other text.
pub fn decode_base64(text: &str) -> Result<Vec<u8>, Failure> {
    let mut data = Vec::with_capacity(text.len() / 4 * 3);
    let mut decoder = Decoder::default();
    decoder.take_all(text.as_bytes(), &mut data)?;
    decoder.finish(&mut data)?;
    Ok(data)
}

/// Base64 of either alphabet, as it comes. White space and padding are passed over.
#[derive(Debug, Default)]
struct Decoder {
    bits: u32,
    /// How many digits `bits` has, fewer than 4.
    digits: u8,
}

/// Marks bytes that are no digit.
const NONE: u8 = 0xff;

/// The value of each byte as a digit.
const DIGITS: [u8; 256] = {
    let mut digits = [NONE; 256];
    let mut value = 0;
    while value < 26 {
        digits[(b'A' + value) as usize] = value;
        digits[(b'a' + value) as usize] = value + 26;
        if value < 10 {
            digits[(b'0' + value) as usize] = value + 52;
        }
        value += 1;
    }
    digits[b'+' as usize] = 62;
    digits[b'-' as usize] = 62;
    digits[b'/' as usize] = 63;
    digits[b'_' as usize] = 63;
    digits
};

impl Decoder {
    /// An image is megabytes of this, and a guest's time is short: four digits at a time, without a branch for each.
    fn take_all(&mut self, bytes: &[u8], data: &mut Vec<u8>) -> Result<(), Failure> {
        let mut rest = bytes;
        while let [first, others @ ..] = rest {
            if self.digits == 0 {
                let (fours, _) = rest.as_chunks::<4>();
                let mut taken = 0;
                for four in fours {
                    let [a, b, c, d] = four.map(|byte| DIGITS[usize::from(byte)]);
                    if (a | b | c | d) & 0x80 != 0 {
                        break;
                    }
                    let bits =
                        u32::from(a) << 18 | u32::from(b) << 12 | u32::from(c) << 6 | u32::from(d);
                    let [_, first, second, third] = bits.to_be_bytes();
                    data.extend_from_slice(&[first, second, third]);
                    taken += 4;
                }
                if taken > 0 {
                    rest = &rest[taken..];
                    continue;
                }
            }
            self.take(*first, data)?;
            rest = others;
        }
        Ok(())
    }

    fn take(&mut self, byte: u8, data: &mut Vec<u8>) -> Result<(), Failure> {
        let digit = DIGITS[usize::from(byte)];
        if digit == NONE {
            return match byte {
                b'=' | b'\n' | b'\r' | b' ' | b'\t' => Ok(()),
                _ => Err(not_base64()),
            };
        }
        self.bits = self.bits << 6 | u32::from(digit);
        self.digits += 1;
        if self.digits == 4 {
            let [_, first, second, third] = self.bits.to_be_bytes();
            data.extend_from_slice(&[first, second, third]);
            (self.bits, self.digits) = (0, 0);
        }
        Ok(())
    }

    fn finish(&mut self, data: &mut Vec<u8>) -> Result<(), Failure> {
        let [_, first, second, _] =
            (self.bits << (6 * (4 - u32::from(self.digits)) % 24)).to_be_bytes();
        match std::mem::take(&mut self.digits) {
            0 => {}
            2 => data.push(first),
            3 => data.extend_from_slice(&[first, second]),
            _ => return Err(not_base64()),
        }
        self.bits = 0;
        Ok(())
    }
}

fn not_base64() -> Failure {
    Failure::malformed("bytes of the answer are not base64")
}

/// The number of first bytes that show the type of an image.
const MAGIC_BYTES: usize = 12;

/// The media type of an image, by its first bytes.
fn sniffed(head: &[u8]) -> Option<&'static str> {
    match head {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATHS: &[&[&str]] = &[&["data", "b64_json"], &["b64_json"]];

    /// Lifts a text that arrives in pieces of this size. Returns the rest of the text, and the images by id.
    fn lifted(text: &str, piece_bytes: usize) -> Result<(String, Vec<Vec<u8>>), Failure> {
        let mut extractor = ImageExtractor::new(PATHS);
        let (mut rest, mut events) = (Vec::new(), Vec::new());
        for piece in text.as_bytes().chunks(piece_bytes) {
            extractor.push(piece, &mut rest, &mut events)?;
        }
        let mut images = vec![Vec::new(); extractor.images.len()];
        for event in events {
            let Event::MediaBytes(bytes) = event else {
                panic!("nothing else comes of it");
            };
            images[bytes.id as usize].extend(bytes.data);
        }
        Ok((String::from_utf8(rest).expect("UTF-8"), images))
    }

    #[test]
    fn only_strings_at_the_paths_are_lifted_however_the_text_is_cut() {
        for (text, rest, images) in [
            (
                r#"{"a":"b64_json","data":[{"b64_json":"aGVsbG8=","x":"\"b64_json\":\"aGk=\""},{"b64_json":""}]}"#,
                r#"{"a":"b64_json","data":[{"b64_json":"@0","x":"\"b64_json\":\"aGk=\""},{"b64_json":"@1"}]}"#,
                &["hello", ""][..],
            ),
            (
                "event: a\r\ndata: {\"b64_json\": \"aGVs\\nbG8\\u003d\"}\r\n\r\ndata: {\"b64_json\":\"aGk\"}\n\n",
                "event: a\r\ndata: {\"b64_json\": \"@0\"}\r\n\r\ndata: {\"b64_json\":\"@1\"}\n\n",
                &["hello", "hi"],
            ),
            (
                r#"{"args":{"b64_json":"aGk="},"data":{"x":{"b64_json":"aGk="}},"b64_json":null}"#,
                r#"{"args":{"b64_json":"aGk="},"data":{"x":{"b64_json":"aGk="}},"b64_json":null}"#,
                &[],
            ),
            // An event without any does not hide what follows.
            (
                "data: {\"x\":\"b64\"}\n\ndata: {\"b64_json\":\"aGk=\"}\n\n",
                "data: {\"x\":\"b64\"}\n\ndata: {\"b64_json\":\"@0\"}\n\n",
                &["hi"],
            ),
            // Nor does what broke off.
            (
                "data: {\"x\":[\"y\n\ndata: {\"b64_json\":\"aGk=\"}\n\n",
                "data: {\"x\":[\"y\n\ndata: {\"b64_json\":\"@0\"}\n\n",
                &["hi"],
            ),
        ] {
            for piece_bytes in 1..=text.len() {
                let (left, lifted) = lifted(text, piece_bytes).expect("base64");
                assert_eq!(left, rest, "in pieces of {piece_bytes}");
                let expected: Vec<_> = images.iter().map(|image| image.as_bytes()).collect();
                assert_eq!(lifted, expected, "in pieces of {piece_bytes}");
            }
        }
    }

    #[test]
    fn what_is_not_base64_is_no_image() {
        for bad in ["aGk!", "a", "aGVsb", r"\u12g4", r"\u1234", "@0"] {
            let text = format!(r#"{{"b64_json":"{bad}"}}"#);
            assert!(lifted(&text, 3).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_image_is_known_by_its_first_bytes_unless_its_type_is_said() {
        let mut extractor = ImageExtractor::new(PATHS);
        let mut events = Vec::new();
        let mut media_type = |text: &str, said: Option<&str>| {
            let media = extractor.image(text, said, "image/x-default", &mut events);
            media.expect("base64").media_type
        };
        assert_eq!(media_type("iVBORw0KGgo=", None), "image/png");
        assert_eq!(media_type("/9j/4AAQ", None), "image/jpeg");
        assert_eq!(media_type("UklGRgAAAABXRUJQ", None), "image/webp");
        assert_eq!(media_type("aGVsbG8=", None), "image/x-default");
        assert_eq!(media_type("iVBORw0KGgo=", Some("a/b")), "a/b");
        assert_eq!(media_type("@0", None), "image/png");
    }

    fn vectors(path: &'static [&'static str], pieces: &[&[u8]]) -> (String, Vec<String>) {
        let mut extractor = VectorExtractor::new(path);
        let (mut rest, mut events) = (Vec::new(), Vec::new());
        for piece in pieces {
            let pushed = extractor.push(piece, &mut rest, &mut events);
            pushed.expect("the vectors are short");
        }
        assert_eq!(extractor.count(), events.len());
        let json = |event| match event {
            Event::Media(media) => String::from_utf8(media.data).expect("JSON is UTF-8"),
            _ => unreachable!("only vectors are taken out"),
        };
        let rest = String::from_utf8(rest).expect("JSON is UTF-8");
        (rest, events.into_iter().map(json).collect())
    }

    #[test]
    fn vectors_are_the_same_however_the_bytes_are_cut() {
        for (path, body, expected_rest, expected) in [
            (
                &["data", ANY, "embedding"] as &[&str],
                r#"{"x":"[\"{","data":[{"i":[7],"embedding": [1, 2.5e-3 ,[3]]},{"embedding":"A\u002bB\"=="},{"embedding":null}]}"#,
                r#"{"x":"[\"{","data":[{"i":[7],"embedding": "@0"},{"embedding":"@1"},{"embedding":null}]}"#,
                ["[1, 2.5e-3 ,[3]]", r#""A\u002bB\"==""#],
            ),
            (
                &["embeddings", ANY],
                r#"{"model":"m","embeddings":[[1],[]],"n":[[2]]}"#,
                r#"{"model":"m","embeddings":["@0","@1"],"n":[[2]]}"#,
                ["[1]", "[]"],
            ),
        ] {
            let whole = vectors(path, &[body.as_bytes()]);
            let expected = expected.map(str::to_owned).to_vec();
            assert_eq!(whole, (expected_rest.to_owned(), expected));
            for cut in 0..body.len() {
                let (start, end) = body.as_bytes().split_at(cut);
                assert_eq!(vectors(path, &[start, end]), whole, "cut at {cut}");
            }
            let bytes: Vec<_> = body.as_bytes().chunks(1).collect();
            assert_eq!(vectors(path, &bytes), whole);
        }
    }

    #[test]
    fn a_vector_that_never_ends_is_refused() {
        let mut extractor = VectorExtractor::new(&["v"]);
        let (mut rest, mut events) = (Vec::new(), Vec::new());
        let mut push = |bytes: &[u8]| extractor.push(bytes, &mut rest, &mut events);
        assert_eq!(push(b"{\"v\":["), Ok(()));
        let refused = (0..2_000).find_map(|_| push("1,".repeat(512).as_bytes()).err());
        assert!(refused.is_some_and(|failure| failure.text.contains("too long")));
    }
}
