//! API keys: `inf_` and then URL-safe base64 of an 8-byte id, 32 random bytes and a CRC-32.
//!
//! The checksum rejects typos before any look-up; it is not a secret. The id locates the key's record, whose
//! HMAC-SHA256 under the pepper must match.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use weir_request::content_log::ContentLogChoice;
use weir_request::limits::data::CallerDataLimits;
use weir_storage::clock::Millis;
use weir_storage::secrets::{SecretKey, random_bytes};

use super::filter_options::CallerFilterOptions;
use super::limits::LimitsOwner;
use super::part_rates::PartRates;
use super::pepper::{Pepper, Peppers};
use super::principal::{Principal, PrincipalRefusal};
use super::roles::Role;
use super::scope::KeyScope;
use super::stored_plan::StoredPlan;

/// The lifetime of a key, in days.
pub const LIFETIME_DAYS: i64 = 90;

pub(super) const PREFIX: &str = "inf_";
const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 32;
const CHECKED_BYTES: usize = ID_BYTES + SECRET_BYTES;
const ALL_BYTES: usize = CHECKED_BYTES + 4;

/// A key as clients send it. Its debug output is masked.
pub struct RawKey {
    text: String,
    id: String,
}

impl RawKey {
    /// Generates a key.
    pub fn generate() -> Self {
        Self::from_bytes(&random_bytes::<CHECKED_BYTES>())
    }

    /// Derives a key from a secret: always the same key.
    pub fn derived(secret: &SecretKey) -> Self {
        let half = |label: &[u8]| -> [u8; 32] { secret.mac(label).finalize().into_bytes().into() };
        let (id, key) = (half(b"weir api key id\0"), half(b"weir api key secret\0"));
        let mut bytes = [0; CHECKED_BYTES];
        bytes[..ID_BYTES].copy_from_slice(&id[..ID_BYTES]);
        bytes[ID_BYTES..].copy_from_slice(&key);
        Self::from_bytes(&bytes)
    }

    /// Parses a key; `None` if the text is not a valid key.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix(PREFIX)?).ok()?;
        let (checked, checksum) = bytes.split_at_checked(CHECKED_BYTES)?;
        let key = Self::from_bytes(checked.try_into().ok()?);
        // The comparison of texts rejects other spellings of the same key.
        (checksum == crc32fast::hash(checked).to_be_bytes() && key.text == text).then_some(key)
    }

    /// The key's id, `key_` and 16 hexadecimal digits, which locates its record.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether a text has the form of a key's id.
    pub fn is_id(text: &str) -> bool {
        let digits = text.strip_prefix("key_").unwrap_or_default();
        digits.len() == 2 * ID_BYTES && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    }

    /// The key itself, shown once.
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// The first characters, which lists show.
    pub fn prefix(&self) -> &str {
        &self.text[..PREFIX.len() + 6]
    }

    /// The HMAC under a pepper; weir stores nothing else of the key.
    pub fn hash(&self, pepper: &SecretKey) -> [u8; 32] {
        self.mac(pepper).finalize().into_bytes().into()
    }

    fn mac(&self, pepper: &SecretKey) -> Hmac<Sha256> {
        let mut mac = pepper.mac(b"weir api key v1\0");
        mac.update(self.text.as_bytes());
        mac
    }

    fn from_bytes(checked: &[u8; CHECKED_BYTES]) -> Self {
        let mut bytes = [0; ALL_BYTES];
        bytes[..CHECKED_BYTES].copy_from_slice(checked);
        bytes[CHECKED_BYTES..].copy_from_slice(&crc32fast::hash(checked).to_be_bytes());
        let digits = checked[..ID_BYTES]
            .iter()
            .fold(0_u64, |id, &byte| id << 8 | u64::from(byte));
        Self {
            text: format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)),
            id: format!("key_{digits:016x}"),
        }
    }
}

impl fmt::Debug for RawKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RawKey({})", self.id)
    }
}

/// A key's record in the database.
#[derive(Debug, Clone)]
pub struct StoredKey {
    /// The account that pays.
    pub account_id: String,
    /// The account's plan.
    pub plan: StoredPlan,
    /// The person or the service account that uses the key.
    pub holder_id: String,
    /// The holder's role in the account.
    pub role: Role,
    /// The project that the key belongs to.
    pub project_id: Option<String>,
    /// The rates that may apply to the key's requests.
    pub rates: PartRates,
    /// The key's HMAC.
    pub hash: Vec<u8>,
    /// The version of the HMAC's pepper.
    pub pepper_version: i64,
    /// The expiry.
    pub expires_at: Millis,
    /// The time of revocation.
    pub disabled_at: Option<Millis>,
    /// The time at which the account or the holder was disabled.
    pub user_disabled_at: Option<Millis>,
    /// The models that the key may use; all if empty.
    pub models: Vec<String>,
    /// The options of the key and its account for filters.
    pub filter_options: CallerFilterOptions,
    /// The limits of the key and its organisation on providers.
    pub data_limits: CallerDataLimits,
    /// Whether the content of the key's requests is stored.
    pub content_log: ContentLogChoice,
    /// The endpoints that the key may use.
    pub scope: KeyScope,
    /// The account for whose limits the key's requests count.
    pub limits: LimitsOwner,
}

/// The result of checking a presented key against the record with its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyVerdict {
    /// A valid key.
    Good,
    /// A genuine key that expired or was revoked.
    Ended,
    /// A genuine key of a disabled user.
    UserDisabled,
    /// A key with a wrong secret.
    Forged,
}

impl StoredKey {
    /// Whether the key is active and its user enabled.
    pub fn works(&self, now: Millis) -> bool {
        self.principal(now).may_act().is_ok()
    }

    /// Returns the state of the key's principal.
    pub fn principal(&self, now: Millis) -> Principal {
        Principal {
            role: self.role,
            is_disabled: self.user_disabled_at.is_some(),
            has_ended: self.disabled_at.is_some() || now >= self.expires_at,
        }
    }

    /// Checks a presented key. The duration does not depend on the position of a difference.
    pub fn judge(&self, key: &RawKey, peppers: &Peppers, now: Millis) -> KeyVerdict {
        let pepper = peppers.of_version(self.pepper_version);
        let is_same = |pepper: &Pepper| key.mac(&pepper.key).verify_slice(&self.hash).is_ok();
        if !pepper.is_some_and(is_same) {
            return KeyVerdict::Forged;
        }
        match self.principal(now).may_act() {
            Ok(()) => KeyVerdict::Good,
            Err(PrincipalRefusal::Disabled) => KeyVerdict::UserDisabled,
            Err(_) => KeyVerdict::Ended,
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_the_round_trip() {
        let key = RawKey::generate();
        let again = RawKey::parse(key.expose()).unwrap();
        assert_eq!((again.expose(), again.id()), (key.expose(), key.id()));
        assert!(key.expose().starts_with("inf_") && key.expose().len() == 4 + 59);
        assert!(!format!("{key:?}").contains(&key.expose()[5..]));
        let derived = |byte| {
            RawKey::derived(&SecretKey::new([byte; 32]))
                .expose()
                .to_owned()
        };
        assert_eq!(derived(1), derived(1));
        assert_ne!(derived(1)[4..20], derived(2)[4..20]);
        assert!(RawKey::parse(&derived(1)).is_some());
    }

    #[test]
    fn a_typo_is_no_key() {
        let key = RawKey::generate();
        for at in 0..key.expose().len() {
            let mut typo = key.expose().as_bytes().to_vec();
            typo[at] = if typo[at] == b'A' { b'B' } else { b'A' };
            assert!(
                RawKey::parse(std::str::from_utf8(&typo).unwrap()).is_none(),
                "at {at}"
            );
        }
        for text in [
            "",
            "inf_",
            "sk-123",
            &key.expose()[..60],
            &format!("{}A", key.expose()),
        ] {
            assert!(RawKey::parse(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn only_the_key_itself_is_admitted_and_only_while_it_is_good() {
        let pepper = SecretKey::new([1; 32]);
        let peppers = Peppers::of([(7, pepper.clone())]);
        let key = RawKey::generate();
        let stored = StoredKey {
            account_id: "alice".into(),
            plan: StoredPlan::default(),
            holder_id: "alice".into(),
            role: Role::Owner,
            project_id: None,
            rates: PartRates::default(),
            hash: key.hash(&pepper).to_vec(),
            pepper_version: 7,
            expires_at: Millis(1_000),
            disabled_at: None,
            user_disabled_at: None,
            models: Vec::new(),
            filter_options: CallerFilterOptions::default(),
            data_limits: CallerDataLimits::default(),
            content_log: ContentLogChoice::default(),
            scope: KeyScope::Full,
            limits: LimitsOwner::own("alice", StoredPlan::default()),
        };
        let judge = |stored: &StoredKey, at| stored.judge(&key, &peppers, Millis(at));
        assert_eq!(judge(&stored, 999), KeyVerdict::Good);
        assert_eq!(judge(&stored, 1_000), KeyVerdict::Ended, "expired");
        for (what, presented, peppers) in [
            ("pepper", &key, Peppers::of([(7, SecretKey::new([2; 32]))])),
            ("version", &key, Peppers::of([(8, pepper)])),
            ("key", &RawKey::generate(), peppers.clone()),
        ] {
            let verdict = stored.judge(presented, &peppers, Millis(1_000));
            assert_eq!(verdict, KeyVerdict::Forged, "another {what}");
        }
        let of_disabled_user = StoredKey {
            user_disabled_at: Some(Millis(5)),
            ..stored.clone()
        };
        assert_eq!(judge(&of_disabled_user, 999), KeyVerdict::UserDisabled);
        let revoked = StoredKey {
            disabled_at: Some(Millis(5)),
            ..of_disabled_user
        };
        assert_eq!(judge(&revoked, 999), KeyVerdict::Ended, "revoked");
    }
}
