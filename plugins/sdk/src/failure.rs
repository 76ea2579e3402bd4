//! From an upstream's refusal to the contract's [`Failure`].

use serde::de::IgnoredAny;

use crate::adapter::{Failure, FailureKind, Header};

/// The longest kept beginning of an error response, in bytes. The explanation of an error comes first;
/// a stranger may send any amount after it.
pub const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;

/// The longest text of an upstream in a failure, in bytes.
pub const MAX_TEXT_BYTES: usize = 1024;

/// The largest unchanged error of an upstream in a failure, in bytes.
pub const MAX_UPSTREAM_ERROR_BYTES: usize = 16 * 1024;

impl Failure {
    /// A failure with only a kind and a text.
    pub fn new(kind: FailureKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
            param: None,
            retry_after_ms: None,
            code: None,
            upstream_error: None,
        }
    }

    /// The upstream can't express this.
    pub fn unsupported(what: impl Into<String>) -> Self {
        Self::new(FailureKind::Unsupported, what)
    }

    /// The request is invalid.
    pub fn rejected(why: impl Into<String>) -> Self {
        Self::new(FailureKind::Rejected, why)
    }

    /// The upstream can't answer now.
    pub fn unavailable(why: impl Into<String>) -> Self {
        Self::new(FailureKind::Unavailable, why)
    }

    /// The upstream's answer makes no sense.
    pub fn malformed(why: impl Into<String>) -> Self {
        Self::new(FailureKind::Malformed, why)
    }

    /// Names the wrong field of the client's request; an empty name changes nothing.
    #[must_use]
    pub fn with_param(mut self, param: impl Into<String>) -> Self {
        self.param = some(param.into());
        self
    }

    /// Adds the upstream's own code; an empty code changes nothing.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = some(code.into());
        self
    }

    /// Adds the upstream's unchanged error, if it is JSON of at most [`MAX_UPSTREAM_ERROR_BYTES`]. An
    /// error about the credential is left out, because upstreams quote a part of the credential.
    #[must_use]
    pub fn with_upstream_error(mut self, body: &str) -> Self {
        let body = body.trim();
        if self.kind != FailureKind::Unauthorized
            && body.starts_with('{')
            && body.len() <= MAX_UPSTREAM_ERROR_BYTES
            && serde_json::from_str::<IgnoredAny>(body).is_ok()
        {
            self.upstream_error = Some(body.to_owned());
        }
        self
    }
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// The failure that a status means. If the upstream's error code is more precise, an adapter reads the
/// code first.
///
/// `text` is the upstream's message. It is left out if the status blames the credential, because
/// upstreams quote a part of the key in it. If a retry may help, the failure has the pause from the
/// headers.
pub fn from_status(status: u16, headers: &[Header], text: &str) -> Failure {
    let kind = match status {
        401 | 403 => FailureKind::Unauthorized,
        // The operator's account, not the client's: another upstream may serve the request.
        402 => FailureKind::Unavailable,
        429 => FailureKind::RateLimited,
        // Time-out, conflict, too early: the upstream's state, which the next attempt may not meet.
        408 | 409 | 425 => FailureKind::Unavailable,
        400..=499 => FailureKind::Rejected,
        500..=599 => FailureKind::Unavailable,
        // Redirects too: the host follows none, so there is no answer to read.
        _ => FailureKind::Malformed,
    };
    let text = match (kind, shortened(text)) {
        (FailureKind::Unauthorized, _) | (_, "") => format!("status {status}"),
        (_, text) => text.to_owned(),
    };
    let may_help = matches!(kind, FailureKind::RateLimited | FailureKind::Unavailable);
    Failure {
        retry_after_ms: may_help.then(|| retry_after_ms(headers)).flatten(),
        ..Failure::new(kind, text)
    }
}

/// The wait that the upstream asks for, in milliseconds.
///
/// Reads `retry-after-ms` (OpenAI's and Azure's finer form), then `retry-after` in seconds. Its
/// other form, a date, means nothing to an adapter: it has no clock.
pub fn retry_after_ms(headers: &[Header]) -> Option<u32> {
    let number = |name| header(headers, name)?.trim().parse::<f64>().ok();
    let wait_ms = number("retry-after-ms").or_else(|| Some(number("retry-after")? * 1000.0))?;
    // `as` saturates: a larger number becomes the maximum of u32, and the host has its own limit.
    (wait_ms.is_finite() && wait_ms >= 0.0).then(|| wait_ms.ceil() as u32)
}

/// The value of the first header of this name, in any case.
pub fn header<'a>(headers: &'a [Header], name: &str) -> Option<&'a str> {
    let (_, value) = headers
        .iter()
        .find(|(candidate, _)| candidate.eq_ignore_ascii_case(name))?;
    Some(value)
}

/// A text cut to [`MAX_TEXT_BYTES`] at a character's edge, without surrounding white space.
pub fn shortened(text: &str) -> &str {
    let text = text.trim();
    text[..text.floor_char_boundary(MAX_TEXT_BYTES)].trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> Vec<Header> {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn reads_the_wait_in_every_form_that_needs_no_clock() {
        for (pairs, wait_ms) in [
            (&[("retry-after", "2")][..], Some(2000)),
            (&[("Retry-After", " 0.25 ")], Some(250)),
            (
                &[("retry-after", "2"), ("retry-after-ms", "150")],
                Some(150),
            ),
            (
                &[("retry-after", "2"), ("retry-after-ms", "soon")],
                Some(2000),
            ),
            (&[("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT")], None),
            (&[("retry-after", "-1")], None),
            (&[("retry-after", "NaN")], None),
            (&[("retry-after", "inf")], None),
            (&[("retry-after", "99999999999")], Some(u32::MAX)),
            (&[], None),
        ] {
            assert_eq!(retry_after_ms(&headers(pairs)), wait_ms, "{pairs:?}");
        }
    }

    #[test]
    fn maps_each_class_of_status() {
        for (status, kind, text) in [
            (301, FailureKind::Malformed, "why"),
            (400, FailureKind::Rejected, "why"),
            (401, FailureKind::Unauthorized, "status 401"),
            (402, FailureKind::Unavailable, "why"),
            (403, FailureKind::Unauthorized, "status 403"),
            (404, FailureKind::Rejected, "why"),
            (408, FailureKind::Unavailable, "why"),
            (409, FailureKind::Unavailable, "why"),
            (413, FailureKind::Rejected, "why"),
            (422, FailureKind::Rejected, "why"),
            (429, FailureKind::RateLimited, "why"),
            (500, FailureKind::Unavailable, "why"),
            (529, FailureKind::Unavailable, "why"),
        ] {
            assert_eq!(from_status(status, &[], "why"), Failure::new(kind, text));
        }
        assert_eq!(
            from_status(503, &[], " \n"),
            Failure::unavailable("status 503")
        );
    }

    #[test]
    fn says_when_to_try_again_only_where_that_may_help() {
        let headers = headers(&[("retry-after", "2")]);
        for (status, wait_ms) in [
            (429, Some(2000)),
            (503, Some(2000)),
            (400, None),
            (401, None),
        ] {
            assert_eq!(from_status(status, &headers, "why").retry_after_ms, wait_ms);
        }
    }

    #[test]
    fn carries_an_error_on_only_if_it_is_small_json_and_no_secret() {
        let large = format!(r#"{{"error":"{}"}}"#, "x".repeat(MAX_UPSTREAM_ERROR_BYTES));
        for (kind, body, carried) in [
            (FailureKind::Rejected, " {\"a\": 1}\n", Some("{\"a\": 1}")),
            (FailureKind::Rejected, "{\"a\": 1", None),
            (FailureKind::Rejected, "why", None),
            (FailureKind::Rejected, "\"why\"", None),
            (FailureKind::Rejected, &large, None),
            (FailureKind::Unauthorized, "{}", None),
        ] {
            let failure = Failure::new(kind, "").with_upstream_error(body);
            assert_eq!(failure.upstream_error.as_deref(), carried);
        }
    }

    #[test]
    fn cuts_a_long_text_between_characters() {
        let long = format!("x{}", "é".repeat(MAX_TEXT_BYTES));
        let cut = shortened(&long);
        assert_eq!(cut.len(), MAX_TEXT_BYTES - 1);
        assert!(cut.ends_with('é'));
    }
}
