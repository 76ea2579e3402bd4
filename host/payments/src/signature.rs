//! Signatures of webhooks: one header has `t=SECONDS,v1=HEX[,v1=HEX …]`. Each `v1` is the HMAC-SHA256 of the seconds, a
//! dot and the body, with a secret of the processor and weir.
//!
//! During a rotation two secrets are active, and the processor may sign with both. One valid `v1` under one of them is
//! enough.
//!
//! The crate `standardwebhooks` cannot verify this scheme, Stripe's: it has one header, hex instead of base64, and the
//! secret's characters as the key.
//!
//! **Invariant:** weir checks a signature on the received bytes, before it parses the body.

use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName};
use sha2::Sha256;
use weir_errors::{ApiError, ErrorCode};
use weir_storage::clock::Millis;
use weir_storage::ids::Hex;
use weir_storage::secrets::Secret;

/// Maximum difference between the time of a signature and now, in seconds.
pub const TOLERANCE_S: u64 = 300;

/// Maximum length of a header in bytes: more than a dozen signatures.
const MAX_HEADER_BYTES: usize = 1_024;

/// Maximum digits of a time: enough for 30,000 years.
const MAX_TIME_DIGITS: usize = 12;

const SIGNATURE_BYTES: usize = 32;

/// A parsed header with a recent time. Its signatures are not checked yet.
#[derive(Debug, PartialEq, Eq)]
pub struct SignatureHeader<'a> {
    /// The digits as received, because they are signed.
    time: &'a str,
    signatures: Vec<[u8; SIGNATURE_BYTES]>,
}

/// Reasons for which a webhook is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The header is missing, or present twice.
    #[error("there must be one signature header")]
    Missing,
    /// The header has no time, several, or no signature of the scheme `v1`.
    #[error("the signature header is not t=SECONDS,v1=HEX")]
    Malformed,
    /// The signature is older than [`TOLERANCE_S`], or as far in the future.
    #[error("the signature's time is more than 300 seconds from now")]
    Outdated,
    /// No active secret verifies a signature.
    #[error("the signature does not fit the body")]
    Wrong,
}

impl<'a> SignatureHeader<'a> {
    /// Reads the header of this name. It is cheap, so weir rejects a bad header before it reads the body.
    pub fn read(
        headers: &'a HeaderMap,
        name: &HeaderName,
        now: Millis,
    ) -> Result<Self, SignatureError> {
        let mut values = headers.get_all(name).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Err(SignatureError::Missing);
        };
        if value.len() > MAX_HEADER_BYTES {
            return Err(SignatureError::Malformed);
        }
        let text = value.to_str().map_err(|_| SignatureError::Malformed)?;
        let (mut times, mut signatures) = (Vec::new(), Vec::new());
        for part in text.split(',') {
            // A proxy may have added a space after the comma.
            match part.trim().split_once('=') {
                Some(("t", time)) => times.push(time),
                // An unreadable signature counts as a wrong one.
                Some(("v1", signature)) => signatures.extend(bytes_of(signature)),
                // Signatures of other schemes are ignored.
                Some(_) => {}
                None => return Err(SignatureError::Malformed),
            }
        }
        let &[time] = &times[..] else {
            return Err(SignatureError::Malformed);
        };
        let is_time = (1..=MAX_TIME_DIGITS).contains(&time.len())
            && time.bytes().all(|byte| byte.is_ascii_digit());
        let seconds: i64 = match time.parse() {
            Ok(seconds) if is_time && !signatures.is_empty() => seconds,
            _ => return Err(SignatureError::Malformed),
        };
        if seconds.abs_diff(now.seconds()) > TOLERANCE_S {
            return Err(SignatureError::Outdated);
        }
        Ok(Self { time, signatures })
    }

    /// Verifies the signatures on a body with each active secret. Every failure takes the same time.
    pub fn verify(&self, body: &[u8], secrets: &[Secret]) -> Result<(), SignatureError> {
        let mut is_right = false;
        for secret in secrets {
            let mac = mac(secret, self.time, body);
            for signature in &self.signatures {
                is_right |= mac.clone().verify_slice(signature).is_ok();
            }
        }
        match is_right {
            true => Ok(()),
            false => Err(SignatureError::Wrong),
        }
    }
}

impl From<SignatureError> for ApiError {
    fn from(error: SignatureError) -> Self {
        let message = format!("This is not signed as the payment processor's events are: {error}.");
        Self::new(ErrorCode::InvalidSignature, message)
    }
}

/// The header value for a body, at a time in seconds since 1970.
pub fn sign(secret: &Secret, timestamp_s: i64, body: &[u8]) -> String {
    let time = timestamp_s.to_string();
    let signature = mac(secret, &time, body).finalize().into_bytes();
    format!("t={time},v1={}", Hex(&signature))
}

fn mac(secret: &Secret, time: &str, body: &[u8]) -> Hmac<Sha256> {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(secret.expose().as_bytes())
        .unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
    mac.update(time.as_bytes());
    mac.update(b".");
    mac.update(body);
    mac
}

/// Decodes lower-case hex only, because processors write it and their own libraries compare it so.
fn bytes_of(hex: &str) -> Option<[u8; SIGNATURE_BYTES]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let digits: Option<Vec<u8>> = hex.bytes().map(digit).collect();
    let digits = digits?;
    let (pairs, []) = digits.as_chunks::<2>() else {
        return None;
    };
    let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    bytes.try_into().ok()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    const NAME: HeaderName = HeaderName::from_static("payment-signature");
    const NOW: Millis = Millis(1_767_225_600_999);
    const BODY: &[u8] = br#"{"id":"evt_1","type":"invoice.paid"}"#;

    fn secrets() -> Vec<Secret> {
        ["whsec_new", "whsec_old"]
            .map(|text| Secret::new(text.to_owned()))
            .to_vec()
    }

    fn check(values: &[&str], body: &[u8]) -> Result<(), SignatureError> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(NAME, value.parse().unwrap());
        }
        SignatureHeader::read(&headers, &NAME, NOW)?.verify(body, &secrets())
    }

    /// The header for [`BODY`] with a time so many seconds from now.
    fn signed(secret: &str, seconds: i64) -> String {
        sign(
            &Secret::new(secret.to_owned()),
            NOW.seconds() + seconds,
            BODY,
        )
    }

    #[test]
    fn a_signature_is_the_one_that_openssl_makes() {
        // printf '%s' '1767225600.{"id":"evt_1","type":"invoice.paid"}' | openssl dgst -sha256 -hmac whsec_new
        let expected = "2dd4a37d8246a04861b363264709aa5e589ae30d545e4f28f0661f3a9a6a0c2c";
        assert_eq!(
            signed("whsec_new", 0),
            format!("t=1767225600,v1={expected}")
        );
    }

    #[test]
    fn every_vector_is_taken_or_refused_as_it_should_be() {
        use SignatureError::{Malformed, Missing, Outdated, Wrong};

        let right = signed("whsec_new", 0);
        let (time, signature) = right.split_once(',').unwrap();
        let hex = signature.strip_prefix("v1=").unwrap();
        let old = signed("whsec_old", 0);
        let old = old.split_once(',').unwrap().1;
        let wrong = format!("v1={}", "0".repeat(64));
        let many = vec![&*wrong; 30].join(",");
        let vectors: [(&str, String, Result<(), SignatureError>); 28] = [
            ("right", right.clone(), Ok(())),
            (
                "second v1 right",
                format!("{time},{wrong},{signature}"),
                Ok(()),
            ),
            (
                "first v1 right",
                format!("{time},{signature},{wrong}"),
                Ok(()),
            ),
            ("old secret", format!("{time},{old}"), Ok(())),
            ("both secrets", format!("{time},{signature},{old}"), Ok(())),
            ("other secret", signed("whsec_other", 0), Err(Wrong)),
            (
                "scheme v0 beside it",
                format!("{time},v0=00,{signature}"),
                Ok(()),
            ),
            ("scheme v0 only", format!("{time},v0={hex}"), Err(Malformed)),
            ("v1 before t", format!("{signature},{time}"), Ok(())),
            ("no t", signature.to_owned(), Err(Malformed)),
            (
                "two t",
                format!("{time},{time},{signature}"),
                Err(Malformed),
            ),
            (
                "t is no number",
                format!("t=now,{signature}"),
                Err(Malformed),
            ),
            (
                "t is negative",
                format!("t=-1767225600,{signature}"),
                Err(Malformed),
            ),
            (
                "t has a sign",
                format!("t=+1767225600,{signature}"),
                Err(Malformed),
            ),
            (
                "t is of another second",
                format!("t=1767225601,{signature}"),
                Err(Wrong),
            ),
            ("300 s old", signed("whsec_new", -300), Ok(())),
            ("301 s old", signed("whsec_new", -301), Err(Outdated)),
            ("300 s ahead", signed("whsec_new", 300), Ok(())),
            ("301 s ahead", signed("whsec_new", 301), Err(Outdated)),
            (
                "upper-case hex",
                format!("{time},v1={}", hex.to_uppercase()),
                Err(Malformed),
            ),
            (
                "short hex",
                format!("{time},v1={}", &hex[..62]),
                Err(Malformed),
            ),
            (
                "odd hex",
                format!("{time},v1={}", &hex[..63]),
                Err(Malformed),
            ),
            ("empty v1", format!("{time},v1="), Err(Malformed)),
            (
                "another v1 that is none",
                format!("{time},v1=zz,{signature}"),
                Ok(()),
            ),
            (
                "a space behind the comma",
                format!("{time}, {signature}"),
                Ok(()),
            ),
            (
                "a space within",
                format!("{time},v1= {hex}"),
                Err(Malformed),
            ),
            ("huge", format!("{time},{many},{signature}"), Err(Malformed)),
            ("garbage", "garbage".to_owned(), Err(Malformed)),
        ];
        for (name, header, expected) in vectors {
            assert_eq!(check(&[&header], BODY), expected, "{name}");
        }
        assert_eq!(check(&[], BODY), Err(Missing));
        assert_eq!(check(&[""], BODY), Err(Malformed));
        assert_eq!(check(&[&right, &right], BODY), Err(Missing));
        for at in 0..BODY.len() {
            let mut body = BODY.to_vec();
            body[at] ^= 1;
            assert_eq!(check(&[&right], &body), Err(Wrong), "byte {at}");
        }
        assert_eq!(check(&[&right], b""), Err(Wrong));
        let empty = sign(&secrets()[0], NOW.seconds(), b"");
        assert_eq!(check(&[&empty], b""), Ok(()));
    }

    #[test]
    fn without_a_secret_nothing_is_right() {
        let (right, mut headers) = (signed("whsec_new", 0), HeaderMap::new());
        headers.append(NAME, right.parse().unwrap());
        let claim = SignatureHeader::read(&headers, &NAME, NOW).unwrap();
        assert_eq!(claim.verify(BODY, &[]), Err(SignatureError::Wrong));
    }
}
