//! A recorded response of a provider, in the format of `curl -i`.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

#[derive(Debug, Clone)]
pub struct RecordedResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl RecordedResponse {
    /// Parses a status line, headers, an empty line and a body. A body alone is a response with status 200; its content type is
    /// guessed.
    ///
    /// # Errors
    ///
    /// The reason, as a sentence about the file.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        if !bytes.starts_with(b"HTTP/") {
            return Ok(Self::of_body(bytes));
        }
        // curl also prints earlier heads: of a proxy, of `100 Continue`, of a redirect.
        let mut rest = bytes;
        loop {
            let (status, headers, body) = head(rest)?;
            if !body.starts_with(b"HTTP/") {
                return Ok(Self {
                    status,
                    headers,
                    body: body.to_vec(),
                });
            }
            rest = body;
        }
    }

    /// Returns the bytes that [`parse`](Self::parse) reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        let reason = self.status.canonical_reason().unwrap_or_default();
        let mut bytes = format!("HTTP/1.1 {} {reason}\r\n", self.status.as_u16()).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend_from_slice(name.as_str().as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        bytes
    }

    fn of_body(body: &[u8]) -> Self {
        let is_json = matches!(body.trim_ascii_start().first(), Some(b'{' | b'['));
        let content_type = if is_json {
            "application/json"
        } else {
            "text/event-stream"
        };
        let content_type = HeaderValue::from_static(content_type);
        Self {
            status: StatusCode::OK,
            headers: HeaderMap::from_iter([(header::CONTENT_TYPE, content_type)]),
            body: body.to_vec(),
        }
    }
}

/// Parses one head and returns the rest.
fn head(bytes: &[u8]) -> Result<(StatusCode, HeaderMap, &[u8]), String> {
    let (line, mut rest) = line(bytes).ok_or("its status line does not end")?;
    let status = line.split(|&byte| byte == b' ').nth(1).unwrap_or_default();
    let status =
        StatusCode::from_bytes(status).map_err(|_| "its first line has no status such as 200")?;
    let mut headers = HeaderMap::new();
    for number in 2.. {
        let (header, after) = self::line(rest)
            .ok_or("no empty line ends its headers: is the file complete, and from `curl -i`?")?;
        rest = after;
        if header.is_empty() {
            break;
        }
        let parsed = header
            .iter()
            .position(|&byte| byte == b':')
            .and_then(|colon| {
                let (name, value) = (&header[..colon], header[colon + 1..].trim_ascii());
                let name = HeaderName::from_bytes(name).ok()?;
                Some((name, HeaderValue::from_bytes(value).ok()?))
            });
        let (name, value) = parsed.ok_or_else(|| format!("its line {number} is not a header"))?;
        headers.append(name, value);
    }
    Ok((status, headers, rest))
}

/// Splits off the first line, without CR LF or LF.
fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    let line = &bytes[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), &bytes[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (u16, Vec<(String, String)>, String) {
        let recording = RecordedResponse::parse(text.as_bytes())
            .unwrap_or_else(|error| panic!("{text:?}: {error}"));
        let headers = recording.headers.iter().map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes());
            (name.to_string(), value.into_owned())
        });
        let body = String::from_utf8_lossy(&recording.body).into_owned();
        (recording.status.as_u16(), headers.collect(), body)
    }

    #[test]
    fn curls_output_is_read_with_either_line_end() {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = (
            429,
            vec![header("retry-after", "2"), header("x", "a:b")],
            "one\r\n\r\ntwo\n".to_owned(),
        );
        let crlf = "HTTP/2 429 \r\nRetry-After: 2\r\nX:a:b \r\n\r\none\r\n\r\ntwo\n";
        assert_eq!(parsed(crlf), expected);
        let lf = "HTTP/1.1 429 Too Many Requests\nRetry-After: 2\nX:a:b \n\none\r\n\r\ntwo\n";
        assert_eq!(parsed(lf), expected);
        let last = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(parsed(last), (204, Vec::new(), String::new()));
    }

    #[test]
    fn the_type_of_a_body_alone_is_guessed() {
        for (body, guess) in [
            (" {}", "application/json"),
            ("[1]", "application/json"),
            ("data: {}\n\n", "text/event-stream"),
            ("", "text/event-stream"),
        ] {
            let header = ("content-type".to_owned(), guess.to_owned());
            assert_eq!(parsed(body), (200, vec![header], body.to_owned()));
        }
    }

    #[test]
    fn a_wrong_head_is_refused_with_the_reason() {
        for (text, complaint) in [
            ("HTTP/1.1", "does not end"),
            ("HTTP/1.1\n\n", "no status"),
            ("HTTP/1.1 OK\n\n", "no status"),
            ("HTTP/1.1 200 OK\na: b\n", "no empty line"),
            ("HTTP/1.1 200 OK\na: b\nc\n\n", "line 3 is not a header"),
            ("HTTP/1.1 200 OK\n: b\n\n", "line 2 is not a header"),
        ] {
            let error = RecordedResponse::parse(text.as_bytes()).err();
            assert!(
                error
                    .as_ref()
                    .is_some_and(|error| error.contains(complaint)),
                "{text:?}: {error:?}"
            );
        }
    }
}
