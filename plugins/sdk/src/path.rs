//! Paths of requests.

use std::fmt::Write as _;

/// Percent-encodes all but letters, digits, `-`, `.`, `_` and `~`, so that a name is one segment of a path. AWS's SDKs
/// encode a model's name so, and signatures depend on it.
pub fn encode_segment(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(byte.into());
            }
            _ => write!(encoded, "%{byte:02X}").expect("a string takes all"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `botocore.utils.percent_encode` of botocore 1.44.8 with the safe characters `-._~`.
    #[test]
    fn encodes_all_that_is_not_unreserved() {
        for (name, encoded) in [
            ("gpt-4.1_mini~", "gpt-4.1_mini~"),
            ("anthropic.claude-v2:1", "anthropic.claude-v2%3A1"),
            ("arn:aws:x/y?z#é", "arn%3Aaws%3Ax%2Fy%3Fz%23%C3%A9"),
        ] {
            assert_eq!(encode_segment(name), encoded);
        }
    }
}
