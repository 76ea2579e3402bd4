//! Where requests begin and end on a connection: what of its bytes is head, and how much of the rest is body.
//!
//! hyper reads requests by itself. This follows along, so that a head is judged whole before hyper sees it: what hyper
//! would refuse without a word, and what it would let pass although no two servers read it the same, is refused here with
//! a reason.

use std::mem::MaybeUninit;

use http::{Method, Uri};

use weir_errors::{ApiError, ErrorCode};

/// Bytes of a request's head at most, and one more.
pub(super) const HEAD_BYTES: usize = 16 << 10;

/// A request's headers at most.
pub(super) const MAX_HEADERS: usize = 100;

/// What the next bytes of a connection are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// A request's head.
    Head,
    /// A body's last so many bytes.
    Length(u64),
    /// A body in chunks.
    Chunked(Chunk),
}

/// A place in a body that comes in chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chunk {
    /// In the line that has a chunk's size: what it says so far, and whether more of it is to come.
    Size { size: u64, is_read: bool },
    /// In a chunk's data, so many bytes before its end.
    Data(u64),
    /// Between data and the next line.
    End,
    /// In the lines behind the last chunk; whether this one is empty so far.
    Trailer { is_empty: bool },
}

/// How far bytes were followed.
#[derive(Debug)]
pub(super) struct Followed {
    /// How many of them may pass.
    pub bytes: usize,
    /// How many heads are among these.
    pub heads: u32,
    /// Why the rest may not, where it is not for want of more.
    pub refusal: Option<ApiError>,
}

impl Framing {
    /// Follows bytes as far as they are understood: up to a head that is incomplete, or one that is refused.
    pub(super) fn follow(&mut self, bytes: &[u8]) -> Followed {
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
        Followed {
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

    /// Takes at least one byte. What makes no sense is for hyper to refuse, which ends the connection.
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

/// Reads a request's head: its length and how its body is framed. `None` if there is more to come.
fn read_head(bytes: &[u8]) -> Result<Option<(usize, Framing)>, ApiError> {
    let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut []);
    let parsed = request.parse_with_uninit_headers(bytes, &mut headers);
    let length = match parsed {
        Ok(httparse::Status::Complete(length)) if length < HEAD_BYTES => length,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES => return Ok(None),
        Ok(_) => return Err(too_large("bytes", HEAD_BYTES - 1)),
        Err(httparse::Error::TooManyHeaders) => return Err(too_large("headers", MAX_HEADERS)),
        Err(error) => return Err(malformed(&format!("it makes no sense: {error}"))),
    };
    if Method::from_bytes(request.method.unwrap_or_default().as_bytes()).is_err() {
        return Err(malformed("it has no method"));
    }
    let target = Uri::try_from(request.path.unwrap_or_default()).ok();
    // A name alone is for tunnels, which nobody gets here.
    if target.is_none_or(|target| target.path().is_empty()) {
        return Err(malformed("its target is no path"));
    }
    let framing = read_framing(&request)?;
    Ok(Some((length, framing)))
}

/// How a request's body is framed, where all servers on its way must agree (RFC 9112, section 6.3).
fn read_framing(request: &httparse::Request<'_, '_>) -> Result<Framing, ApiError> {
    let mut content_length = None;
    let mut coding = None;
    for header in request.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            let length = read_length(header.value)
                .ok_or_else(|| malformed("its Content-Length is no number"))?;
            if content_length.is_some_and(|other| other != length) {
                return Err(malformed("it has two different Content-Length headers"));
            }
            content_length = Some(length);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            // One alone: codings over it are for nobody to undo here.
            coding = Some(coding.map_or(header.value, |_| b"two"));
        }
    }
    match (coding, content_length) {
        (None, None | Some(0)) => Ok(Framing::Head),
        (None, Some(length)) => Ok(Framing::Length(length)),
        (Some(_), Some(_)) => Err(malformed(
            "it has both Transfer-Encoding and Content-Length",
        )),
        (Some(_), None) if request.version != Some(1) => {
            Err(malformed("HTTP/1.0 knows no Transfer-Encoding"))
        }
        (Some(coding), None) if coding.trim_ascii().eq_ignore_ascii_case(b"chunked") => {
            Ok(Framing::Chunked(Chunk::FIRST))
        }
        (Some(_), None) => Err(malformed("its Transfer-Encoding is not chunked")),
    }
}

fn read_length(value: &[u8]) -> Option<u64> {
    let digits = str::from_utf8(value).ok()?;
    // `parse` takes a sign, too.
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    // hyper keeps the two greatest numbers for itself.
    let length = digits.parse().ok().filter(|_| is_number)?;
    (length < u64::MAX - 1).then_some(length)
}

/// What a request hears whose head is no head.
pub(super) fn malformed(why: &str) -> ApiError {
    ApiError::new(
        ErrorCode::InvalidRequest,
        format!("The request's head is malformed: {why}."),
    )
}

/// What a request hears whose head is too large.
pub(super) fn too_large(what: &str, most: usize) -> ApiError {
    ApiError::new(
        ErrorCode::HeadTooLarge,
        format!("The request's head has more than {most} {what}."),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Follows bytes in pieces of this size, as they would be held until they are understood.
    fn followed(bytes: &[u8], piece: usize) -> (usize, Framing, Option<ApiError>) {
        let mut framing = Framing::Head;
        let (mut passed, mut arrived) = (0, 0);
        while arrived < bytes.len() {
            arrived = (arrived + piece).min(bytes.len());
            let Followed {
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
                (requests.len(), Framing::Head),
                "{piece}"
            );
            assert_eq!(refusal, None);
        }
        // A head that is not whole does not pass; a body does as it comes.
        let (passed, framing, _) = followed(&requests[..40], 1);
        assert_eq!((passed, framing), (27, Framing::Head));
        let (passed, framing, _) = followed(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc", 1);
        assert_eq!((passed, framing), (41, Framing::Length(6)));
    }

    #[test]
    fn heads_that_servers_disagree_about_are_refused() {
        for (head, why) in [
            ("Content-Length: 5\r\nTransfer-Encoding: chunked", "both"),
            ("Transfer-Encoding: chunked\r\nContent-Length: 5", "both"),
            ("Content-Length: 5\r\nContent-Length: 6", "two different"),
            ("Content-Length: +5", "no number"),
            ("Content-Length: 5, 5", "no number"),
            ("Content-Length: ", "no number"),
            ("Content-Length: 18446744073709551615", "no number"),
            ("Transfer-Encoding: gzip", "not chunked"),
            ("Transfer-Encoding: gzip, chunked", "not chunked"),
            (
                "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
                "not chunked",
            ),
            ("no colon", "makes no sense"),
            (" folded: 1", "makes no sense"),
            ("Space : 1", "makes no sense"),
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
