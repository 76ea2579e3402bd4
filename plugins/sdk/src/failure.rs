//! From an upstream's refusal to the contract's [`Failure`].

use crate::adapter::{Failure, Header};

/// The most that is kept of a response that is not an answer. What explains a refusal comes
/// first; a stranger may send any amount after it.
pub const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;

/// The most of an upstream's text that a failure carries on.
pub const MAX_TEXT_BYTES: usize = 1024;

/// What a status says by itself. Where the upstream's error code says more, the adapter looks
/// at that first.
///
/// `text` is what the upstream said. It is left out where the status blames the credential,
/// because upstreams quote a part of the key in it.
pub fn from_status(status: u16, headers: &[Header], text: &str) -> Failure {
    match status {
        401 | 403 => Failure::Unauthorized(format!("status {status}")),
        // The operator's account, not the client's: another upstream may serve the request.
        402 => Failure::Unavailable(describe(status, text)),
        429 => Failure::RateLimited(retry_after_ms(headers)),
        // Time-out, conflict, too early: the upstream's state, which the next attempt may not meet.
        408 | 409 | 425 => Failure::Unavailable(describe(status, text)),
        400..=499 => Failure::Rejected(describe(status, text)),
        500..=599 => Failure::Unavailable(describe(status, text)),
        // Redirects too: the host follows none, so there is no answer to read.
        _ => Failure::Malformed(describe(status, text)),
    }
}

/// The wait that the upstream asks for, in milliseconds.
///
/// Reads `retry-after-ms` (OpenAI's and Azure's finer form), then `retry-after` in seconds. Its
/// other form, a date, means nothing to an adapter: it has no clock.
pub fn retry_after_ms(headers: &[Header]) -> Option<u32> {
    let number = |name| header(headers, name)?.trim().parse::<f64>().ok();
    let wait_ms = number("retry-after-ms").or_else(|| Some(number("retry-after")? * 1000.0))?;
    // `as` saturates: what exceeds u32 becomes its maximum, and the host has its own limit.
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

fn describe(status: u16, text: &str) -> String {
    match shortened(text) {
        "" => format!("status {status}"),
        text => text.to_owned(),
    }
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
        let text = || "why".to_owned();
        for (status, failure) in [
            (301, Failure::Malformed(text())),
            (400, Failure::Rejected(text())),
            (401, Failure::Unauthorized("status 401".to_owned())),
            (402, Failure::Unavailable(text())),
            (403, Failure::Unauthorized("status 403".to_owned())),
            (404, Failure::Rejected(text())),
            (408, Failure::Unavailable(text())),
            (409, Failure::Unavailable(text())),
            (413, Failure::Rejected(text())),
            (422, Failure::Rejected(text())),
            (429, Failure::RateLimited(None)),
            (500, Failure::Unavailable(text())),
            (529, Failure::Unavailable(text())),
        ] {
            assert_eq!(from_status(status, &[], "why"), failure);
        }
        assert_eq!(
            from_status(503, &[], " \n"),
            Failure::Unavailable("status 503".to_owned())
        );
    }

    #[test]
    fn cuts_a_long_text_between_characters() {
        let long = format!("x{}", "é".repeat(MAX_TEXT_BYTES));
        let cut = shortened(&long);
        assert_eq!(cut.len(), MAX_TEXT_BYTES - 1);
        assert!(cut.ends_with('é'));
    }
}
