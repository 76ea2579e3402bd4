//! Signatures of webhooks: `t=SECONDS,v1=HEX`, HMAC-SHA256 over the time, a dot and the body's bytes.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use weir_storage::ids::Hex;
use weir_storage::secrets::Secret;

/// The header's value for a body that is sent at a moment, in seconds since 1970.
pub fn sign(secret: &Secret, timestamp: i64, body: &[u8]) -> String {
    let mac = mac(secret, timestamp, body).finalize().into_bytes();
    format!("t={timestamp},v1={}", Hex(&mac))
}

fn mac(secret: &Secret, timestamp: i64, body: &[u8]) -> Hmac<Sha256> {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(secret.expose().as_bytes())
        .unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
    mac.update(format!("{timestamp}.").as_bytes());
    mac.update(body);
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_what_others_compute() {
        // printf '1700000000.{}' | openssl dgst -sha256 -hmac whsec_test
        assert_eq!(
            sign(&Secret::new("whsec_test".to_owned()), 1_700_000_000, b"{}"),
            "t=1700000000,v1=35495024f4ef3f94e5a93e22221544c4b75e9a42300cd965ab81cb85cd994e91"
        );
    }
}
