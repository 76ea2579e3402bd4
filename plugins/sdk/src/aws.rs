//! Amazon Bedrock's streams and errors.
//!
//! A stream is of messages: the lengths of the message and of its headers, a checksum of both, headers, a payload, and a checksum
//! of all. Integers are big-endian. Source: "Event stream encoding" in the developer guide of Amazon Lex V2, and
//! `botocore/eventstream.py` of botocore 1.44.8.

use std::borrow::Cow;

use serde::Deserialize;

use crate::adapter::{Failure, FailureKind, Header};
use crate::failure::{from_status, header, retry_after_ms, shortened};
use crate::sse::MAX_EVENT_BYTES;
use crate::text;

/// The response header with the name of an error.
pub const ERROR_HEADER: &str = "x-amzn-errortype";

/// The media type of such a stream.
pub const STREAM_TYPE: &str = "vnd.amazon.eventstream";

/// Both lengths and their checksum.
const PRELUDE_BYTES: usize = 12;

const CHECKSUM_BYTES: usize = 4;

/// An incremental parser of messages.
#[derive(Debug, Default)]
pub struct MessageStream {
    /// Bytes that have arrived; those before `start` are used up.
    pending: Vec<u8>,
    start: usize,
}

/// One message of a stream.
#[derive(Debug, PartialEq, Eq)]
pub struct StreamMessage<'a> {
    /// Whether the stream ends with an error, whose name and text these are.
    pub is_error: bool,
    /// The type of the event or of the error, e.g. `contentBlockDelta`, `throttlingException`.
    pub name: Cow<'a, str>,
    /// The payload, usually JSON.
    pub payload: Cow<'a, str>,
}

impl MessageStream {
    /// Takes the next bytes. Call [`next`](Self::next) until it has no more messages.
    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.drain(..self.start);
        self.start = 0;
        self.pending.extend_from_slice(bytes);
    }

    /// The next complete message.
    ///
    /// # Errors
    ///
    /// [`FailureKind::Malformed`] for a message that is larger than [`MAX_EVENT_BYTES`], has a wrong checksum, or is no message.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator's items can't borrow from it"
    )]
    pub fn next(&mut self) -> Result<Option<StreamMessage<'_>>, Failure> {
        let pending = &self.pending[self.start..];
        let Some(prelude) = pending.get(..PRELUDE_BYTES) else {
            return Ok(None);
        };
        let (message_bytes, headers_bytes) = (number(prelude), number(&prelude[4..]));
        if number(&prelude[8..]) != checksum(&prelude[..8]) {
            return Err(malformed("a wrong checksum of its lengths"));
        }
        let message_bytes = message_bytes as usize;
        if message_bytes > MAX_EVENT_BYTES {
            return Err(Failure::malformed(format!(
                "a message of the stream exceeds {MAX_EVENT_BYTES} bytes"
            )));
        }
        let payload_end = message_bytes.checked_sub(CHECKSUM_BYTES);
        let payload_start = PRELUDE_BYTES.saturating_add(headers_bytes as usize);
        let payload_end = payload_end
            .filter(|end| *end >= payload_start)
            .ok_or_else(|| malformed("impossible lengths"))?;
        let Some(message) = pending.get(..message_bytes) else {
            return Ok(None);
        };
        if number(&message[payload_end..]) != checksum(&message[..payload_end]) {
            return Err(malformed("a wrong checksum"));
        }
        self.start += message_bytes;
        let headers = Headers::read(&message[PRELUDE_BYTES..payload_start])?;
        let payload = text::lossy(&message[payload_start..payload_end]);
        Ok(Some(match headers.message_type {
            b"exception" => StreamMessage {
                is_error: true,
                name: text::lossy(headers.exception_type),
                payload,
            },
            b"error" => StreamMessage {
                is_error: true,
                name: text::lossy(headers.error_code),
                payload: text::lossy(headers.error_message),
            },
            _ => StreamMessage {
                is_error: false,
                name: text::lossy(headers.event_type),
                payload,
            },
        }))
    }
}

/// The known headers of a message; all others are skipped.
#[derive(Default)]
struct Headers<'a> {
    message_type: &'a [u8],
    event_type: &'a [u8],
    exception_type: &'a [u8],
    error_code: &'a [u8],
    error_message: &'a [u8],
}

impl<'a> Headers<'a> {
    fn read(mut rest: &'a [u8]) -> Result<Self, Failure> {
        const TEXT: u8 = 7;
        let mut headers = Self::default();
        while !rest.is_empty() {
            let name_bytes = usize::from(take(&mut rest, 1)?[0]);
            let name = take(&mut rest, name_bytes)?;
            let kind = take(&mut rest, 1)?[0];
            let value_bytes = match kind {
                // The types are true, false, a byte, 16, 32 and 64 bits, bytes, a text, a time and a UUID.
                0 | 1 => 0,
                2 => 1,
                3 => 2,
                4 => 4,
                5 | 8 => 8,
                6 | TEXT => {
                    let length = take(&mut rest, 2)?;
                    usize::from(u16::from_be_bytes([length[0], length[1]]))
                }
                9 => 16,
                _ => return Err(malformed("a header of an unknown type")),
            };
            let value = take(&mut rest, value_bytes)?;
            let place = match name {
                b":message-type" => &mut headers.message_type,
                b":event-type" => &mut headers.event_type,
                b":exception-type" => &mut headers.exception_type,
                b":error-code" => &mut headers.error_code,
                b":error-message" => &mut headers.error_message,
                _ => continue,
            };
            if kind == TEXT {
                *place = value;
            }
        }
        Ok(headers)
    }
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Result<&'a [u8], Failure> {
    let taken = rest.split_at_checked(bytes);
    let (taken, after) = taken.ok_or_else(|| malformed("headers that are cut"))?;
    *rest = after;
    Ok(taken)
}

fn number(bytes: &[u8]) -> u32 {
    let first = bytes.first_chunk().copied().unwrap_or_default();
    u32::from_be_bytes(first)
}

fn malformed(why: &str) -> Failure {
    Failure::malformed(format!("a message of the stream has {why}"))
}

/// CRC-32 as in gzip. A table of 1 KiB: those of fast implementations are many times larger, and a message is small.
fn checksum(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut at = 0;
        while at < 256 {
            let mut value = at as u32;
            let mut bit = 0;
            while bit < 8 {
                value = (value >> 1) ^ ((value & 1) * 0xEDB8_8320);
                bit += 1;
            }
            table[at] = value;
            at += 1;
        }
        table
    };
    let step = |sum: u32, byte: &u8| TABLE[(sum as u8 ^ byte) as usize] ^ (sum >> 8);
    !bytes.iter().fold(!0, step)
}

/// The model's bytes in an event `chunk`, as text.
///
/// # Errors
///
/// [`FailureKind::Malformed`] for a payload without bytes in base64.
pub fn chunk(payload: &str) -> Result<String, Failure> {
    #[derive(Deserialize)]
    struct Chunk<'a> {
        #[serde(borrow)]
        bytes: Cow<'a, str>,
    }
    let chunk: Option<Chunk<'_>> = serde_json::from_str(payload).ok();
    let bytes = chunk.and_then(|chunk| decode_base64(&chunk.bytes));
    let bytes = bytes.ok_or_else(|| Failure::malformed("a chunk without bytes in base64"))?;
    Ok(text::lossy(&bytes).into_owned())
}

fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            decoded.push((bits >> count) as u8);
        }
    }
    Some(decoded)
}

/// The failure of an error response with this body.
pub fn failure_of_response(status: u16, headers: &[Header], body: &str) -> Failure {
    let said = Said::read(body);
    let name = header(headers, ERROR_HEADER).or(said.kind.as_deref());
    match name.and_then(|name| said.failure(name, headers)) {
        Some(failure) => failure.with_upstream_error(body),
        None => from_status(status, headers, &said.message).with_upstream_error(body),
    }
}

/// The failure of an error in a stream. There is no status: the upstream sent 200 before the error.
pub fn failure_in_stream(name: &str, payload: &str) -> Failure {
    let said = Said::read(payload);
    let failure = said.failure(name, &[]).unwrap_or_else(|| {
        let text = match shortened(&said.message) {
            "" => "the stream ended with an error",
            text => text,
        };
        Failure::unavailable(text).with_code(plain(name))
    });
    failure.with_upstream_error(payload)
}

/// The body of an error. Services write the message with either letter.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Said {
    #[serde(rename = "__type")]
    kind: Option<String>,
    #[serde(alias = "Message")]
    message: String,
}

impl Said {
    /// Reads the body of an error; a body that is not JSON is the message.
    fn read(body: &str) -> Self {
        serde_json::from_str(body).unwrap_or_else(|_| Self {
            kind: None,
            message: match body.trim_start().starts_with(['<', '{', '[']) {
                true => String::new(),
                false => body.to_owned(),
            },
        })
    }

    /// The failure by the error's name, and by its message if that is more exact. Names: errors of the operations `Converse`
    /// and `InvokeModel` in botocore 1.44.8's `bedrock-runtime`, and AWS's common errors.
    fn failure(&self, name: &str, headers: &[Header]) -> Option<Failure> {
        let says = |words: &str| self.message.contains(words);
        let name = plain(name);
        // In a stream, a name begins with a small letter.
        let kind = match name.strip_suffix("Exception").unwrap_or(name) {
            "Throttling" | "throttling" | "TooManyRequests" | "ServiceQuotaExceeded" => {
                FailureKind::RateLimited
            }
            "ModelNotReady" | "ModelTimeout" | "modelTimeout" | "InternalServer"
            | "internalServer" | "InternalFailure" | "ServiceUnavailable"
            | "serviceUnavailable" | "ModelError" | "modelStreamError" => FailureKind::Unavailable,
            "AccessDenied" if says("access to the model") => FailureKind::ModelNotFound,
            "AccessDenied"
            | "UnrecognizedClient"
            | "InvalidSignature"
            | "ExpiredToken"
            | "IncompleteSignature"
            | "MissingAuthenticationToken"
            | "InvalidClientTokenId"
            | "OptInRequired" => FailureKind::Unauthorized,
            "ResourceNotFound" => FailureKind::ModelNotFound,
            "Validation" | "validation" => {
                if says("too long") || says("exceed context limit") || says("too many tokens") {
                    FailureKind::ContextLength
                } else if says("model identifier is invalid") {
                    FailureKind::ModelNotFound
                } else {
                    FailureKind::Rejected
                }
            }
            _ => return None,
        };
        // A message about a credential may quote a part of it.
        let text = match (kind, shortened(&self.message)) {
            (FailureKind::Unauthorized, _) | (_, "") => name,
            (_, text) => text,
        };
        let may_help = matches!(kind, FailureKind::RateLimited | FailureKind::Unavailable);
        let failure = Failure {
            retry_after_ms: may_help.then(|| retry_after_ms(headers)).flatten(),
            ..Failure::new(kind, text)
        };
        Some(failure.with_code(name))
    }
}

/// An error's name without its namespace: `com.amazon#NAME`, `NAME:http://…`.
fn plain(name: &str) -> &str {
    let name = name.split(':').next().unwrap_or_default();
    name.rsplit('#').next().unwrap_or_default().trim()
}

/// Writes a message, for tests.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn encoded(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let length = |bytes: usize| u32::try_from(bytes).expect("a small message").to_be_bytes();
    let mut head = Vec::new();
    for (name, value) in headers {
        head.push(u8::try_from(name.len()).expect("a short name"));
        head.extend(name.bytes());
        head.push(7);
        let value_bytes = u16::try_from(value.len()).expect("a short value");
        head.extend(value_bytes.to_be_bytes());
        head.extend(value.bytes());
    }
    let message_bytes = PRELUDE_BYTES + head.len() + payload.len() + CHECKSUM_BYTES;
    let mut message = [length(message_bytes), length(head.len())].concat();
    message.extend(checksum(&message).to_be_bytes());
    message.extend(head);
    message.extend(payload);
    message.extend(checksum(&message).to_be_bytes());
    message
}

#[cfg(test)]
mod tests {
    use super::encoded as frame;
    use super::*;

    const EVENT: [(&str, &str); 3] = [
        (":event-type", "chunk"),
        (":content-type", "application/json"),
        (":message-type", "event"),
    ];

    type Read = (bool, String, String);

    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<Read>, Failure> {
        let (mut stream, mut messages) = (MessageStream::default(), Vec::new());
        for piece in pieces {
            stream.push(piece);
            while let Some(message) = stream.next()? {
                let StreamMessage {
                    is_error,
                    name,
                    payload,
                } = message;
                messages.push((is_error, name.into_owned(), payload.into_owned()));
            }
        }
        Ok(messages)
    }

    fn event(name: &str, payload: &str) -> Read {
        (false, name.to_owned(), payload.to_owned())
    }

    /// The vectors of `botocore`'s own tests, `tests/unit/test_eventstream.py`: no headers and a payload, and a header of 32 bits.
    #[test]
    fn reads_messages_that_botocore_writes() {
        let payload = b"\0\0\0\x1d\0\0\0\0\xfd\x52\x8c\x5a{'foo':'bar'}\xc3\x65\x39\x36";
        assert_eq!(read([&payload[..]]), Ok(vec![event("", "{'foo':'bar'}")]));
        let number =
            b"\0\0\0+\0\0\0\x0e4\x8b\xec{\x08event-id\x04\0\0\xa0\x0c{'foo':'bar'}\xd3\x89\x02\x85";
        assert_eq!(read([&number[..]]), Ok(vec![event("", "{'foo':'bar'}")]));
    }

    #[test]
    fn gives_the_same_messages_wherever_the_stream_is_cut() {
        let exception = [
            (":exception-type", "throttlingException"),
            (":message-type", "exception"),
        ];
        let error = [
            (":error-code", "InternalFailure"),
            (":error-message", "It broke."),
            (":message-type", "error"),
        ];
        let stream = [
            frame(&EVENT, "{\"a\":\"größe\"}".as_bytes()),
            frame(&EVENT, b""),
            frame(&exception, b"{\"message\":\"slow\"}"),
            frame(&error, b""),
        ]
        .concat();
        let whole = read([&stream[..]]).expect("messages");
        assert_eq!(
            whole,
            [
                event("chunk", "{\"a\":\"größe\"}"),
                event("chunk", ""),
                (
                    true,
                    "throttlingException".to_owned(),
                    "{\"message\":\"slow\"}".to_owned()
                ),
                (true, "InternalFailure".to_owned(), "It broke.".to_owned()),
            ]
        );
        for at in 0..=stream.len() {
            let (first, second) = stream.split_at(at);
            assert_eq!(
                read([first, second]).as_ref(),
                Ok(&whole),
                "cut at byte {at}"
            );
        }
        assert_eq!(read(stream.chunks(1)), Ok(whole));
    }

    #[test]
    fn refuses_each_wrong_byte() {
        let message = frame(&EVENT, b"{}");
        for at in 0..message.len() {
            let mut wrong = message.clone();
            wrong[at] ^= 1;
            assert!(read([&wrong[..]]).is_err(), "byte {at}");
        }
    }

    #[test]
    fn refuses_messages_that_are_too_large_or_too_small() {
        let prelude = |message_bytes: u32, headers_bytes: u32| {
            let lengths = [message_bytes.to_be_bytes(), headers_bytes.to_be_bytes()].concat();
            [&lengths[..], &checksum(&lengths).to_be_bytes()].concat()
        };
        for (message_bytes, headers_bytes, why) in [
            (MAX_EVENT_BYTES as u32 + 1, 0, "exceeds"),
            (u32::MAX, u32::MAX, "exceeds"),
            (15, 0, "impossible"),
            (0, 0, "impossible"),
            (100, 85, "impossible"),
            (100, u32::MAX, "impossible"),
        ] {
            let failure = read([&prelude(message_bytes, headers_bytes)[..]]);
            let failure = failure.expect_err("a failure");
            assert!(failure.text.contains(why), "{}", failure.text);
        }
        assert_eq!(read([&prelude(16, 0)[..]]), Ok(Vec::new()));
    }

    #[test]
    fn decodes_chunks() {
        for (payload, text) in [
            (r#"{"bytes":"aGk="}"#, Some("hi")),
            (
                r#"{"p":"abc","bytes":"eyJhIjoiw7bwn6arIn0="}"#,
                Some("{\"a\":\"ö🦫\"}"),
            ),
            (r#"{"bytes":""}"#, Some("")),
            (r#"{"bytes":"a*k="}"#, None),
            (r#"{"bytes":1}"#, None),
            ("{}", None),
            ("", None),
        ] {
            assert_eq!(chunk(payload).ok().as_deref(), text, "{payload}");
        }
    }

    #[test]
    fn tells_errors_apart() {
        for (name, message, kind, code) in [
            (
                "ThrottlingException",
                "slow down",
                FailureKind::RateLimited,
                "ThrottlingException",
            ),
            (
                "throttlingException",
                "",
                FailureKind::RateLimited,
                "throttlingException",
            ),
            (
                "ServiceUnavailableException:http://x",
                "busy",
                FailureKind::Unavailable,
                "ServiceUnavailableException",
            ),
            (
                "com.amazon.coral.service#AccessDeniedException",
                "no key AKIA",
                FailureKind::Unauthorized,
                "AccessDeniedException",
            ),
            (
                "AccessDeniedException",
                "You don't have access to the model with the specified model ID.",
                FailureKind::ModelNotFound,
                "AccessDeniedException",
            ),
            (
                "ValidationException",
                "The provided model identifier is invalid.",
                FailureKind::ModelNotFound,
                "ValidationException",
            ),
            (
                "ValidationException",
                "Input is too long for requested model.",
                FailureKind::ContextLength,
                "ValidationException",
            ),
            (
                "ValidationException",
                "messages: at least one is required",
                FailureKind::Rejected,
                "ValidationException",
            ),
            (
                "NoveltyException",
                "new",
                FailureKind::Unavailable,
                "NoveltyException",
            ),
        ] {
            let payload = serde_json::json!({ "message": message }).to_string();
            let failure = failure_in_stream(name, &payload);
            assert_eq!(
                (failure.kind, failure.code.as_deref()),
                (kind, Some(code)),
                "{name}"
            );
            assert!(!failure.text.contains("AKIA"), "{}", failure.text);
        }
    }
}
