//! Signatures of webhooks: [Standard Webhooks](https://www.standardwebhooks.com), version 1.
//!
//! The crate `standardwebhooks` (1.0) cannot sign a body that is not UTF-8, which a tool may send, and has a copy of
//! base64, HMAC and SHA-256 of its own.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use sha2::Sha256;
use weir_storage::secrets::Secret;

/// The prefix of a receiver's copy of a secret; base64 follows.
const PREFIX: &str = "whsec_";

/// The length of a secret, in bytes (`openssl rand -base64 32`).
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// The reasons for which weir cannot sign a webhook.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SigningError {
    /// A secret that is not `whsec_` and base64 of 24 to 64 bytes.
    #[error("the secret is not {PREFIX} and base64 of 24 to 64 bytes")]
    Secret,
    /// An id that is no valid header value, or that has a dot, which separates the signed parts.
    #[error("the message's id is empty, or holds a dot or characters outside of visible ASCII")]
    Id,
}

/// Returns the headers that sign a body: `webhook-id`, `webhook-timestamp` and `webhook-signature`, for
/// [`EgressRequest::host_headers`](crate::EgressRequest::host_headers).
///
/// All attempts of one message share its id, so that the receiver can detect repeats; the timestamp is the attempt's,
/// in seconds of the Unix epoch.
///
/// # Errors
///
/// The error names the problem with the secret or the id, and quotes neither.
pub fn headers(
    secret: &Secret,
    id: &str,
    timestamp_s: u64,
    body: &[u8],
) -> Result<HeaderMap, SigningError> {
    let key = secret.expose().trim().strip_prefix(PREFIX);
    let key = key.and_then(|key| STANDARD.decode(key).ok());
    let key = key.filter(|key| KEY_BYTES.contains(&key.len()));
    let key = key.ok_or(SigningError::Secret)?;
    if id.is_empty()
        || !id
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'.')
    {
        return Err(SigningError::Id);
    }
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).map_err(|_| SigningError::Secret)?;
    mac.update(format!("{id}.{timestamp_s}.").as_bytes());
    mac.update(body);
    let signature = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    let mut headers = HeaderMap::with_capacity(3);
    for (name, value) in [
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", timestamp_s.to_string()),
        ("webhook-signature", signature),
    ] {
        let value = HeaderValue::try_from(value).map_err(|_| SigningError::Id)?;
        headers.insert(HeaderName::from_static(name), value);
    }
    Ok(headers)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// The values are the example of the specification's reference libraries.
    #[test]
    fn a_signature_is_that_of_the_reference_libraries() {
        let secret = Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".into());
        let body = br#"{"test": 2432232314}"#;
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        let headers = headers(&secret, id, 1_614_265_330, body).unwrap();
        assert_eq!(headers["webhook-id"], id);
        assert_eq!(headers["webhook-timestamp"], "1614265330");
        assert_eq!(
            headers["webhook-signature"],
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
    }

    #[test]
    fn what_cannot_sign_is_refused() {
        let sound = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        for secret in ["", "whsec_", "whsec_c2hvcnQ=", "whsec_!", &sound[6..]] {
            let refused = headers(&Secret::new(secret.into()), "m", 1, b"");
            assert_eq!(refused, Err(SigningError::Secret), "{secret}");
        }
        for id in ["", "a.b", "a b", "é", "a\n"] {
            let refused = headers(&Secret::new(sound.into()), id, 1, b"");
            assert_eq!(refused, Err(SigningError::Id), "{id:?}");
        }
    }
}
