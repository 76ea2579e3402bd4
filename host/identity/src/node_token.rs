//! Tokens with which a node calls another node, or itself: an executor the API.
//!
//! A token is an expiry, sealed with the nodes' sealing key. Nodes that share a database have the same sealing keys, so
//! they need no issuer.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use weir_storage::clock::{Clock, Millis};
use weir_storage::sealing::{KeyRing, Purpose};
use weir_storage::secrets::Secret;

/// Tells these tokens from those of issuers, which contain no `:`.
const PREFIX: &str = "weir-node:";

/// The lifetime of a token, in milliseconds. Each call has its own; the lifetime is for nodes with slow clocks.
const LIFETIME_MS: i64 = 60_000;

/// Issues and verifies the tokens of nodes. Cheap to clone.
#[derive(Debug, Clone)]
pub struct NodeTokens {
    keys: KeyRing,
    clock: Clock,
}

impl NodeTokens {
    /// The tokens of the nodes with these sealing keys.
    pub fn new(keys: KeyRing, clock: Clock) -> Self {
        Self { keys, clock }
    }

    /// Issues a token.
    pub fn issue(&self) -> Secret {
        let expires_at = self.clock.now().0 + LIFETIME_MS;
        let sealed = self
            .keys
            .seal(Purpose::NODE_TOKEN, &[], &expires_at.to_be_bytes());
        Secret::new(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(sealed)))
    }

    /// Returns whether a node issued the token, and it has not expired.
    pub fn verify(&self, token: &str) -> bool {
        self.expiry(token)
            .is_some_and(|expires_at| self.clock.now() < expires_at)
    }

    fn expiry(&self, token: &str) -> Option<Millis> {
        let sealed = URL_SAFE_NO_PAD.decode(token.strip_prefix(PREFIX)?).ok()?;
        let expires_at = self.keys.unseal(Purpose::NODE_TOKEN, &[], &sealed).ok()?;
        Some(Millis(i64::from_be_bytes(expires_at.try_into().ok()?)))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::time::Duration;

    use weir_storage::clock::ManualClock;
    use weir_storage::secrets::SecretKey;

    use super::*;

    fn nodes(keys: &[(u32, u8)], clock: &ManualClock) -> NodeTokens {
        let keys = keys
            .iter()
            .map(|&(id, byte)| (id, SecretKey::new([byte; 32])));
        NodeTokens::new(KeyRing::of(keys), Clock::Manual(clock.clone()))
    }

    #[test]
    fn nodes_accept_tokens_of_all_sealing_keys_until_their_expiry() {
        let clock = ManualClock::default();
        let old = nodes(&[(1, 1)], &clock);
        let token = old.issue();
        let token = token.expose();
        assert!(old.verify(token));
        assert!(
            nodes(&[(2, 2), (1, 1)], &clock).verify(token),
            "a rotation has begun"
        );
        assert!(!nodes(&[(1, 3)], &clock).verify(token), "another key");
        assert!(!nodes(&[(2, 1)], &clock).verify(token), "another id");
        clock.advance(Duration::from_secs(59));
        assert!(old.verify(token));
        clock.advance(Duration::from_secs(1));
        assert!(!old.verify(token));
    }

    #[test]
    fn changed_tokens_and_values_of_another_purpose_are_rejected() {
        let clock = ManualClock::default();
        let nodes = nodes(&[(1, 1)], &clock);
        let token = nodes.issue();
        let bytes = URL_SAFE_NO_PAD
            .decode(token.expose().strip_prefix(PREFIX).unwrap())
            .unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let changed = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(changed));
            assert!(!nodes.verify(&changed), "bit {bit}");
        }
        let expires_at = (nodes.clock.now().0 + LIFETIME_MS).to_be_bytes();
        let other = nodes.keys.seal(Purpose::CONSOLE_SESSION, &[], &expires_at);
        assert!(!nodes.verify(&format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(other))));
        for text in ["", PREFIX, "weir-node:!", "inf_x"] {
            assert!(!nodes.verify(text), "{text}");
        }
    }
}
