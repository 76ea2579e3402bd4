//! Boundaries of requests on a connection: heads, and the lengths of bodies.
//!
//! hyper parses requests itself. This parser runs before it, to validate a head completely. It rejects heads that hyper
//! would reject without a reason, and heads that hyper would accept although servers disagree about their meaning.

use std::mem::MaybeUninit;

use http::{Method, Uri};
use weir_errors::{ApiError, ErrorCode};

/// Maximum bytes of a request's head, plus one.
pub(super) const HEAD_BYTES: usize = 16 << 10;

/// Maximum headers of a request.
pub(super) const MAX_HEADERS: usize = 100;

/// The meaning of a connection's next bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionFraming {
    /// A request's head.
    Head,
    /// The last bytes of a body, this many.
    Length(u64),
    Chunked(Chunk),
}

/// A position in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chunk {
    /// In the line with a chunk's size: the size so far, and whether the number is complete.
    Size { size: u64, is_read: bool },
    /// In a chunk's data, this many bytes before its end.
    Data(u64),
    /// Between data and the next line.
    End,
    /// In the lines after the last chunk; whether the current line is empty so far.
    Trailer { is_empty: bool },
}

/// The result of following bytes.
#[derive(Debug)]
pub(super) struct FramingProgress {
    /// Number of bytes that may pass.
    pub bytes: usize,
    /// Number of heads among these bytes.
    pub heads: u32,
    /// The reason why the remaining bytes may not pass, unless they are only incomplete.
    pub refusal: Option<ApiError>,
}

impl ConnectionFraming {
    /// Follows bytes up to an incomplete head, or one that is rejected.
    pub(super) fn follow(&mut self, bytes: &[u8]) -> FramingProgress {
        let (mut at, mut heads) = (0, 0);
        let mut refusal = None;
        while at < bytes.len() {
            let rest = &bytes[at..];
            at += match self {
                Self::Head => match read_head(rest) {
                    Ok(Some((length, framing))) => {
                        *self = framing;
                        heads += 1;
                        length
                    }
                    Ok(None) => break,
                    Err(error) => {
                        refusal = Some(error);
                        break;
                    }
                },
                Self::Length(left) => {
                    let taken = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= taken as u64;
                    if *left == 0 {
                        *self = Self::Head;
                    }
                    taken
                }
                Self::Chunked(chunk) => match chunk.follow(rest) {
                    (taken, Some(next)) => {
                        *chunk = next;
                        taken
                    }
                    (taken, None) => {
                        *self = Self::Head;
                        taken
                    }
                },
            };
        }
        FramingProgress {
            bytes: at,
            heads,
            refusal,
        }
    }
}

impl Chunk {
    const FIRST: Self = Self::Size {
        size: 0,
        is_read: false,
    };

    /// Takes at least one byte. hyper rejects invalid chunks, which ends the connection.
    fn follow(self, bytes: &[u8]) -> (usize, Option<Self>) {
        let byte = bytes[0];
        match self {
            Self::Data(left) => {
                let taken = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                match left - taken as u64 {
                    0 => (taken, Some(Self::End)),
                    left => (taken, Some(Self::Data(left))),
                }
            }
            Self::End if byte == b'\n' => (1, Some(Self::FIRST)),
            Self::Size { size: 0, .. } if byte == b'\n' => {
                (1, Some(Self::Trailer { is_empty: true }))
            }
            Self::Size { size, .. } if byte == b'\n' => (1, Some(Self::Data(size))),
            Self::Size { size, is_read } => {
                let digit = char::from(byte).to_digit(16).filter(|_| !is_read);
                let next = match digit {
                    Some(digit) => Self::Size {
                        size: size.saturating_mul(16).saturating_add(digit.into()),
                        is_read,
                    },
                    None => Self::Size {
                        size,
                        is_read: true,
                    },
                };
                (1, Some(next))
            }
            Self::Trailer { is_empty: true } if byte == b'\n' => (1, None),
            Self::Trailer { is_empty } => {
                let is_empty = byte == b'\n' || is_empty && byte == b'\r';
                (1, Some(Self::Trailer { is_empty }))
            }
            Self::End => (1, Some(self)),
        }
    }
}

/// Parses a request's head: its length and the framing of its body. `None` if the head is incomplete.
fn read_head(bytes: &[u8]) -> Result<Option<(usize, ConnectionFraming)>, ApiError> {
    let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut []);
    let parsed = request.parse_with_uninit_headers(bytes, &mut headers);
    let length = match parsed {
        Ok(httparse::Status::Complete(length)) if length < HEAD_BYTES => length,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES => return Ok(None),
        Ok(_) => return Err(too_large("bytes", HEAD_BYTES - 1)),
        Err(httparse::Error::TooManyHeaders) => return Err(too_large("headers", MAX_HEADERS)),
        Err(error) => return Err(malformed(&format!("it is invalid: {error}"))),
    };
    if Method::from_bytes(request.method.unwrap_or_default().as_bytes()).is_err() {
        return Err(malformed("the method is missing"));
    }
    let target = Uri::try_from(request.path.unwrap_or_default()).ok();
    // An authority as the target is for tunnels, which weir does not offer.
    if target.is_none_or(|target| target.path().is_empty()) {
        return Err(malformed("its target is not a path"));
    }
    let framing = read_framing(&request)?;
    Ok(Some((length, framing)))
}

/// Returns the framing of a request's body, on which all servers on the path must agree (RFC 9112, section 6.3).
fn read_framing(request: &httparse::Request<'_, '_>) -> Result<ConnectionFraming, ApiError> {
    let mut content_length = None;
    let mut coding = None;
    for header in request.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            let length = read_length(header.value)
                .ok_or_else(|| malformed("its Content-Length is not a number"))?;
            if content_length.is_some_and(|other| other != length) {
                return Err(malformed("it has two different Content-Length headers"));
            }
            content_length = Some(length);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            // Only a single `chunked` is valid: weir undoes no other codings.
            coding = Some(coding.map_or(header.value, |_| b"two"));
        }
    }
    match (coding, content_length) {
        (None, None | Some(0)) => Ok(ConnectionFraming::Head),
        (None, Some(length)) => Ok(ConnectionFraming::Length(length)),
        (Some(_), Some(_)) => Err(malformed(
            "it has both Transfer-Encoding and Content-Length",
        )),
        (Some(_), None) if request.version != Some(1) => {
            Err(malformed("HTTP/1.0 has no Transfer-Encoding"))
        }
        (Some(coding), None) if coding.trim_ascii().eq_ignore_ascii_case(b"chunked") => {
            Ok(ConnectionFraming::Chunked(Chunk::FIRST))
        }
        (Some(_), None) => Err(malformed("its Transfer-Encoding is not chunked")),
    }
}

fn read_length(value: &[u8]) -> Option<u64> {
    let digits = str::from_utf8(value).ok()?;
    // `parse` would accept a sign.
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    // hyper reserves the two greatest numbers.
    let length = digits.parse().ok().filter(|_| is_number)?;
    (length < u64::MAX - 1).then_some(length)
}

/// Returns the error for a malformed head.
pub(super) fn malformed(why: &str) -> ApiError {
    ApiError::new(
        ErrorCode::InvalidRequest,
        format!("The request's head is malformed: {why}."),
    )
}

/// Returns the error for a head that is too large.
pub(super) fn too_large(what: &str, most: usize) -> ApiError {
    ApiError::new(
        ErrorCode::HeadTooLarge,
        format!("The request's head has more than {most} {what}."),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Follows bytes in pieces of this size, and keeps incomplete ones as the gate does.
    fn followed(bytes: &[u8], piece: usize) -> (usize, ConnectionFraming, Option<ApiError>) {
        let mut framing = ConnectionFraming::Head;
        let (mut passed, mut arrived) = (0, 0);
        while arrived < bytes.len() {
            arrived = (arrived + piece).min(bytes.len());
            let FramingProgress {
                bytes: more,
                refusal,
                ..
            } = framing.follow(&bytes[passed..arrived]);
            passed += more;
            if refusal.is_some() {
                return (passed, framing, refusal);
            }
        }
        (passed, framing, None)
    }

    #[test]
    fn requests_are_told_apart_however_their_bytes_come() {
        let requests = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n\
            POST /x HTTP/1.1\r\nContent-Length: 5\r\nHost: a\r\n\r\nGET /\
            POST /y HTTP/1.1\nTransfer-Encoding: Chunked\n\n\
            b;x=\"1\"\r\nGET / HTTP/\r\n0003 \r\na\r\n\r\n0\r\nTrailer: 1\r\n\r\n\
            PUT /z HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n\
            HEAD / HTTP/1.0\r\ncontent-length: 0\r\n\r\n";
        for piece in [1, 2, 3, 7, 64, requests.len()] {
            let (passed, framing, refusal) = followed(requests, piece);
            assert_eq!(
                (passed, framing),
                (requests.len(), ConnectionFraming::Head),
                "{piece}"
            );
            assert_eq!(refusal, None);
        }
        // An incomplete head does not pass; a body passes as it arrives.
        let (passed, framing, _) = followed(&requests[..40], 1);
        assert_eq!((passed, framing), (27, ConnectionFraming::Head));
        let (passed, framing, _) = followed(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc", 1);
        assert_eq!((passed, framing), (41, ConnectionFraming::Length(6)));
    }

    #[test]
    fn heads_that_servers_disagree_about_are_refused() {
        for (head, why) in [
            ("Content-Length: 5\r\nTransfer-Encoding: chunked", "both"),
            ("Transfer-Encoding: chunked\r\nContent-Length: 5", "both"),
            ("Content-Length: 5\r\nContent-Length: 6", "two different"),
            ("Content-Length: +5", "not a number"),
            ("Content-Length: 5, 5", "not a number"),
            ("Content-Length: ", "not a number"),
            ("Content-Length: 18446744073709551615", "not a number"),
            ("Transfer-Encoding: gzip", "not chunked"),
            ("Transfer-Encoding: gzip, chunked", "not chunked"),
            (
                "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
                "not chunked",
            ),
            ("no colon", "is invalid"),
            (" folded: 1", "is invalid"),
            ("Space : 1", "is invalid"),
        ] {
            let head = format!("POST / HTTP/1.1\r\n{head}\r\n\r\n");
            let (passed, _, refusal) = followed(head.as_bytes(), head.len());
            let refusal = refusal.unwrap_or_else(|| panic!("{head} is refused"));
            assert_eq!(
                (passed, refusal.status()),
                (0, http::StatusCode::BAD_REQUEST)
            );
            assert!(
                refusal.message().contains(why),
                "{head}{}",
                refusal.message()
            );
        }
        let head = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(followed(head.as_bytes(), 9).2.is_some());
    }

    #[test]
    fn a_head_has_bounds() {
        let large = format!("GET / HTTP/1.1\r\nx: {}", "x".repeat(HEAD_BYTES));
        let many = format!(
            "GET / HTTP/1.1\r\n{}\r\n",
            "x: 1\r\n".repeat(MAX_HEADERS + 1)
        );
        for head in [large, many] {
            let refusal = followed(head.as_bytes(), 1_000).2.map(|error| error.code());
            assert_eq!(refusal, Some("HEAD_TOO_LARGE"));
        }
    }
}
