//! An issuer's public keys: fetches, caches and refreshes them.
//!
//! weir fetches keys if a token names an unknown key, or if the cached keys are old. Tokens cannot make weir fetch
//! often: attempts are more than [`COOLDOWN_MS`] apart, whether they succeed or not, and concurrent requests share one.
//! While the issuer is down, cached keys stay valid for [`STALE_MS`].
//!
//! **Invariant:** a key verifies one algorithm, set by its issuer (RFC 8725 §3.1), and a shared secret is never a key.

use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, header};
use jsonwebtoken::{Algorithm as Signature, DecodingKey};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::JoinHandle;
use url::Url;
use weir_outgoing::Client;
use weir_outgoing::fetch::{self, FetchError};
use weir_storage::clock::{Clock, Millis};

use super::settings::{Algorithm, IssuerSettings};

/// The minimum time between two fetches, in milliseconds.
pub const COOLDOWN_MS: i64 = 15_000;

/// The time beyond their age for which keys stay valid if a refresh fails, in milliseconds: a day.
pub const STALE_MS: i64 = 86_400_000;

/// The time beyond their age in which weir uses keys while it refreshes them, in milliseconds. After that (weir was
/// idle), a request waits for the fetch, since the issuer may have withdrawn its key.
const GRACE_MS: i64 = 300_000;

/// The minimum, default and maximum age in milliseconds, regardless of `Cache-Control`.
const MIN_AGE_MS: i64 = 300_000;
const DEFAULT_AGE_MS: i64 = 900_000;
const MAX_AGE_MS: i64 = 3_600_000;

const MAX_KEYS: usize = 100;
pub(super) const MAX_KID_CHARS: usize = 256;

/// A key that verifies signatures of one algorithm.
#[derive(Debug)]
pub struct IssuerKey {
    kid: String,
    algorithm: Algorithm,
    key: DecodingKey,
}

/// The keys of one issuer. Cheap to clone; clones share their keys.
#[derive(Debug, Clone)]
pub struct KeySet(Arc<KeySetInner>);

/// The reasons for a missing key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyError {
    /// The issuer has no key with that name.
    Unknown,
    /// The issuer is unreachable.
    Unavailable,
}

#[derive(Debug)]
struct KeySetInner {
    source: KeySource,
    algorithms: Vec<Algorithm>,
    clock: Clock,
    state: RwLock<KeyState>,
    /// The lock of the running fetch.
    fetching: Arc<Mutex<()>>,
}

#[derive(Debug)]
enum KeySource {
    /// Keys without an address, which never change.
    Fixed,
    /// A JSON Web Key Set.
    Keys(Client, Url),
    /// A document that names the issuer and the address of its keys.
    Discovery(Client, Url, String),
}

#[derive(Debug, Clone, Default)]
struct KeyState {
    keys: Arc<[Arc<IssuerKey>]>,
    /// The end of the keys' freshness; `None` before the first fetch.
    fresh_until: Option<Millis>,
    /// The end of the last attempt.
    attempted_at: Option<Millis>,
    /// Whether that attempt failed.
    failed: bool,
}

/// The trust in keys by their age.
#[derive(Debug, PartialEq)]
enum Age {
    Fresh,
    /// Usable; a refresh runs in the background.
    Due,
    /// Usable only if a refresh fails.
    Overdue,
    Expired,
}

impl KeySet {
    /// The keys of an issuer, fetched on demand.
    ///
    /// # Errors
    ///
    /// The error names the problem with the address.
    pub fn remote(
        settings: &IssuerSettings,
        http: Client,
        clock: Clock,
    ) -> Result<Self, &'static str> {
        let source = match &settings.jwks_url {
            Some(url) => KeySource::Keys(http, fetch::parse_url(url)?),
            None => {
                let issuer = &settings.issuer;
                let slashless = issuer.trim_end_matches('/');
                let url =
                    fetch::parse_url(&format!("{slashless}/.well-known/openid-configuration"))?;
                KeySource::Discovery(http, url, issuer.clone())
            }
        };
        Ok(Self::new(
            source,
            settings.algorithms.clone(),
            clock,
            KeyState::default(),
        ))
    }

    /// Returns keys from a JSON Web Key Set, without a fetch.
    ///
    /// # Errors
    ///
    /// Fails if no key is usable.
    pub fn fixed(document: &[u8], algorithms: &[Algorithm]) -> Result<Self, &'static str> {
        let state = KeyState {
            keys: parse_keys(document, algorithms)?,
            fresh_until: Some(Millis(i64::MAX)),
            ..KeyState::default()
        };
        Ok(Self::new(
            KeySource::Fixed,
            algorithms.to_vec(),
            Clock::System,
            state,
        ))
    }

    fn new(source: KeySource, algorithms: Vec<Algorithm>, clock: Clock, state: KeyState) -> Self {
        Self(Arc::new(KeySetInner {
            source,
            algorithms,
            clock,
            state: RwLock::new(state),
            fetching: Arc::default(),
        }))
    }

    /// Returns the key with this name. If a fetch is necessary, the call waits for it.
    pub async fn find(&self, kid: &str) -> Result<Arc<IssuerKey>, KeyError> {
        let state = self.state();
        if let Some(key) = state.key(kid) {
            match state.age(self.0.clock.now()) {
                Age::Fresh => return Ok(key),
                Age::Due => {
                    self.fetch_beside();
                    return Ok(key);
                }
                Age::Overdue | Age::Expired => {}
            }
        }
        self.fetch_first().await;
        let state = self.state();
        match state.key(kid) {
            Some(key) if state.age(self.0.clock.now()) != Age::Expired => Ok(key),
            // weir cannot know whether an unreachable issuer has this key.
            _ if state.failed || state.fresh_until.is_none() => Err(KeyError::Unavailable),
            _ => Err(KeyError::Unknown),
        }
    }

    /// Starts a fetch if the keys are missing, so that the first request need not wait.
    pub fn warm_up(&self) {
        if self.state().fresh_until.is_none() {
            self.fetch_beside();
        }
    }

    /// Whether weir fetches the keys.
    pub fn is_remote(&self) -> bool {
        !matches!(self.0.source, KeySource::Fixed)
    }

    /// Fetches the keys without storing them, and returns their number.
    pub async fn count(&self) -> Result<usize, String> {
        let fetched = self.fetch().await;
        let (keys, _) = fetched.map_err(|error| format!("{} {error}", self.0.source))?;
        Ok(keys.len())
    }

    async fn fetch_first(&self) {
        let turn = Arc::clone(&self.0.fetching).lock_owned().await;
        if let Some(fetching) = self.begin_fetch(turn) {
            // The runtime has reported a panic of the task, and the state is unchanged.
            let _ = fetching.await;
        }
    }

    fn fetch_beside(&self) {
        if let Ok(turn) = Arc::clone(&self.0.fetching).try_lock_owned() {
            drop(self.begin_fetch(turn));
        }
    }

    /// Fetches in a separate task: if a client's disconnect cancelled the attempt, clients could bypass the cooldown.
    fn begin_fetch(&self, turn: OwnedMutexGuard<()>) -> Option<JoinHandle<()>> {
        let may_attempt = self.state().may_attempt(self.0.clock.now());
        if !may_attempt || matches!(self.0.source, KeySource::Fixed) {
            return None;
        }
        let this = self.clone();
        Some(tokio::spawn(async move {
            let _turn = turn;
            let fetched = this.fetch().await;
            let mut state = this.0.state.write().unwrap_or_else(PoisonError::into_inner);
            let now = this.0.clock.now();
            state.attempted_at = Some(now);
            state.failed = fetched.is_err();
            match fetched {
                Ok((keys, age_ms)) => {
                    state.keys = keys;
                    state.fresh_until = Some(Millis(now.0 + age_ms));
                }
                Err(error) => {
                    tracing::warn!(source = %this.0.source, %error, "cannot fetch an issuer's keys");
                }
            }
        }))
    }

    async fn fetch(&self) -> Result<(Arc<[Arc<IssuerKey>]>, i64), FetchError> {
        let (headers, body) = match &self.0.source {
            KeySource::Fixed => {
                return Err(FetchError::Malformed("has no address to fetch it from"));
            }
            KeySource::Keys(http, url) => fetch::get(http, url).await?,
            KeySource::Discovery(http, url, issuer) => {
                let (_, document) = fetch::get(http, url).await?;
                fetch::get(http, &keys_url(&document, issuer)?).await?
            }
        };
        let keys = parse_keys(&body, &self.0.algorithms).map_err(FetchError::Malformed)?;
        Ok((keys, age_ms(&headers)))
    }

    fn state(&self) -> KeyState {
        self.0
            .state
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl KeyState {
    fn key(&self, kid: &str) -> Option<Arc<IssuerKey>> {
        self.keys.iter().find(|key| key.kid == kid).cloned()
    }

    fn age(&self, now: Millis) -> Age {
        let Some(fresh_until) = self.fresh_until else {
            return Age::Expired;
        };
        match now.0.saturating_sub(fresh_until.0) {
            ..0 => Age::Fresh,
            0..GRACE_MS => Age::Due,
            GRACE_MS..STALE_MS if self.failed => Age::Due,
            GRACE_MS..STALE_MS => Age::Overdue,
            STALE_MS.. => Age::Expired,
        }
    }

    fn may_attempt(&self, now: Millis) -> bool {
        self.attempted_at.is_none_or(|at| {
            // If the clock was set back, the next attempt must not be delayed for long.
            !(0..=COOLDOWN_MS).contains(&(now.0 - at.0))
        })
    }
}

impl IssuerKey {
    /// The key's only algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Verifies the signature of a message, in base64.
    pub fn verifies(&self, message: &str, signature: &str) -> bool {
        let algorithm = match self.algorithm {
            Algorithm::RS256 => Signature::RS256,
            Algorithm::PS256 => Signature::PS256,
            Algorithm::ES256 => Signature::ES256,
            Algorithm::EdDSA => Signature::EdDSA,
        };
        jsonwebtoken::crypto::verify(signature, message.as_bytes(), &self.key, algorithm)
            .unwrap_or(false)
    }
}

impl std::fmt::Display for KeySource {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fixed => formatter.write_str("fixed"),
            Self::Keys(_, url) | Self::Discovery(_, url, _) => url.fmt(formatter),
        }
    }
}

/// The issuer's metadata (OpenID Connect Discovery 1.0).
#[derive(Deserialize)]
struct IssuerMetadata {
    issuer: String,
    jwks_uri: String,
}

fn keys_url(document: &[u8], issuer: &str) -> Result<Url, FetchError> {
    let document: IssuerMetadata = serde_json::from_slice(document)
        .map_err(|_| FetchError::Malformed("is no OpenID configuration"))?;
    if document.issuer != issuer {
        return Err(FetchError::Malformed("is another issuer's configuration"));
    }
    fetch::parse_url(&document.jwks_uri)
        .map_err(|_| FetchError::Malformed("names no usable address of its keys"))
}

/// The cache lifetime of a response by its `Cache-Control`, within bounds, in milliseconds.
fn age_ms(headers: &HeaderMap) -> i64 {
    let mut age_ms = DEFAULT_AGE_MS;
    for value in headers.get_all(header::CACHE_CONTROL) {
        for directive in value.to_str().unwrap_or_default().split(',') {
            let directive = directive.trim().to_ascii_lowercase();
            if matches!(&*directive, "no-store" | "no-cache") {
                return MIN_AGE_MS;
            }
            if let Some(seconds) = directive.strip_prefix("max-age=") {
                let seconds = seconds.trim_matches('"').parse::<i64>();
                age_ms = seconds.unwrap_or(0).saturating_mul(1_000);
            }
        }
    }
    age_ms.clamp(MIN_AGE_MS, MAX_AGE_MS)
}

/// A JSON Web Key as issuers publish them (RFC 7517, RFC 7518 §6, RFC 8037).
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: String,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
    d: Option<serde::de::IgnoredAny>,
}

/// Returns the usable keys of a set. Unusable keys, e.g. encryption keys, are left out; of two keys with one name, the
/// first counts.
fn parse_keys(
    document: &[u8],
    algorithms: &[Algorithm],
) -> Result<Arc<[Arc<IssuerKey>]>, &'static str> {
    #[derive(Deserialize)]
    struct KeySetDocument {
        keys: Vec<Value>,
    }
    let KeySetDocument { keys } =
        serde_json::from_slice(document).map_err(|_| "is no JSON Web Key Set")?;
    if keys.len() > MAX_KEYS {
        return Err("has too many keys");
    }
    let mut usable: Vec<Arc<IssuerKey>> = Vec::new();
    for value in keys {
        let Some(key) = Jwk::deserialize(value)
            .ok()
            .and_then(|jwk| usable_key(jwk, algorithms))
        else {
            tracing::debug!("ignored an unusable key of an issuer");
            continue;
        };
        if usable.iter().all(|other| other.kid != key.kid) {
            usable.push(Arc::new(key));
        }
    }
    if usable.is_empty() {
        return Err("has no usable key");
    }
    Ok(usable.into())
}

fn usable_key(jwk: Jwk, algorithms: &[Algorithm]) -> Option<IssuerKey> {
    let for_signatures = jwk.usage.is_none_or(|usage| usage == "sig")
        && jwk
            .key_ops
            .is_none_or(|operations| operations.iter().any(|operation| operation == "verify"));
    let named = (1..=MAX_KID_CHARS).contains(&jwk.kid.chars().count());
    // A published private key proves nothing.
    if !for_signatures || !named || jwk.d.is_some() {
        return None;
    }
    let (candidates, key): (&[Algorithm], _) = match (&*jwk.kty, jwk.crv.as_deref()) {
        ("RSA", _) => {
            let modulus = decode(&jwk.n?)?;
            let leading_zeros = modulus.iter().take_while(|&&byte| byte == 0).count();
            let modulus = &modulus[leading_zeros..];
            let bits = modulus.len() * 8 - modulus.first()?.leading_zeros() as usize;
            if !(2048..=8192).contains(&bits) {
                return None;
            }
            (
                &[Algorithm::RS256, Algorithm::PS256],
                DecodingKey::from_rsa_raw_components(modulus, &decode(&jwk.e?)?),
            )
        }
        ("EC", Some("P-256")) => {
            let (x, y) = (jwk.x?, jwk.y?);
            // The library joins both coordinates without checking their lengths.
            if decode(&x)?.len() != 32 || decode(&y)?.len() != 32 {
                return None;
            }
            (
                &[Algorithm::ES256],
                DecodingKey::from_ec_components(&x, &y).ok()?,
            )
        }
        ("OKP", Some("Ed25519")) => {
            let x = jwk.x?;
            if decode(&x)?.len() != 32 {
                return None;
            }
            (
                &[Algorithm::EdDSA],
                DecodingKey::from_ed_components(&x).ok()?,
            )
        }
        _ => return None,
    };
    // If the issuer names no algorithm, the first accepted algorithm of this key type applies.
    let algorithm = candidates.iter().copied().find(|candidate| {
        algorithms.contains(candidate) && jwk.alg.as_ref().is_none_or(|alg| alg == candidate.name())
    })?;
    Some(IssuerKey {
        kid: jwk.kid,
        algorithm,
        key,
    })
}

fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use serde_json::json;

    use super::*;

    fn accepted(jwk: Value, algorithms: &[Algorithm]) -> Option<Algorithm> {
        let document = json!({ "keys": [jwk] }).to_string();
        let keys = parse_keys(document.as_bytes(), algorithms).ok()?;
        Some(keys[0].algorithm)
    }

    #[test]
    fn a_key_is_taken_for_what_it_is_meant_for_and_nothing_else() {
        let all = [
            Algorithm::RS256,
            Algorithm::PS256,
            Algorithm::ES256,
            Algorithm::EdDSA,
        ];
        let bytes = |length| URL_SAFE_NO_PAD.encode(vec![0xff; length]);
        let padded = URL_SAFE_NO_PAD.encode([vec![0; 128], vec![0xff; 128]].concat());
        let rsa = |length| json!({ "kty": "RSA", "kid": "k", "n": bytes(length), "e": "AQAB" });
        let ec =
            |x, y| json!({ "kty": "EC", "kid": "k", "crv": "P-256", "x": bytes(x), "y": bytes(y) });
        let ed = |x| json!({ "kty": "OKP", "kid": "k", "crv": "Ed25519", "x": bytes(x) });
        let with = |mut jwk: Value, name: &str, value: Value| {
            jwk[name] = value;
            jwk
        };
        let cases = [
            (rsa(256), Some(Algorithm::RS256)),
            (with(rsa(256), "use", json!("sig")), Some(Algorithm::RS256)),
            (
                with(rsa(256), "alg", json!("PS256")),
                Some(Algorithm::PS256),
            ),
            (
                with(rsa(256), "key_ops", json!(["verify"])),
                Some(Algorithm::RS256),
            ),
            (rsa(1024), Some(Algorithm::RS256)),
            (ec(32, 32), Some(Algorithm::ES256)),
            (ed(32), Some(Algorithm::EdDSA)),
            (rsa(128), None),
            (rsa(255), None),
            (rsa(1025), None),
            (with(rsa(256), "n", json!(padded)), None),
            (with(rsa(256), "n", json!("AA==")), None),
            (with(rsa(256), "use", json!("enc")), None),
            (with(rsa(256), "use", json!(1)), None),
            (with(rsa(256), "key_ops", json!(["encrypt"])), None),
            (with(rsa(256), "alg", json!("RS512")), None),
            (with(rsa(256), "alg", json!("ES256")), None),
            (with(rsa(256), "alg", json!("HS256")), None),
            (with(rsa(256), "d", json!("AA")), None),
            (with(rsa(256), "kid", json!("")), None),
            (with(rsa(256), "kid", json!("k".repeat(257))), None),
            (with(rsa(256), "kid", Value::Null), None),
            (ec(31, 33), None),
            (with(ec(32, 32), "crv", json!("P-384")), None),
            (ed(33), None),
            (with(ed(32), "crv", json!("X25519")), None),
            (
                json!({ "kty": "oct", "kid": "k", "k": bytes(32), "alg": "HS256" }),
                None,
            ),
            (json!("key"), None),
        ];
        for (jwk, verdict) in cases {
            assert_eq!(accepted(jwk.clone(), &all), verdict, "{jwk}");
        }
        assert_eq!(accepted(rsa(256), &[Algorithm::ES256]), None);
        assert_eq!(
            accepted(rsa(256), &[Algorithm::PS256]),
            Some(Algorithm::PS256)
        );
    }

    #[test]
    fn the_age_of_keys_stays_within_bounds() {
        for (cache_control, seconds) in [
            (None, 900),
            (Some("public, max-age=600, must-revalidate"), 600),
            (Some("Max-Age=10"), 300),
            (Some("max-age=999999999999999999"), 3_600),
            (Some("max-age=9999999999999999999999999"), 300),
            (Some("max-age=-1"), 300),
            (Some("no-store"), 300),
            (Some("max-age=3000, no-cache"), 300),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(value) = cache_control {
                headers.insert(header::CACHE_CONTROL, value.parse().unwrap());
            }
            assert_eq!(age_ms(&headers), seconds * 1_000, "{cache_control:?}");
        }
    }

    #[test]
    fn a_configuration_of_another_issuer_is_refused() {
        let url = |issuer: &str, keys: &str| {
            let document = json!({ "issuer": issuer, "jwks_uri": keys }).to_string();
            keys_url(document.as_bytes(), "https://id.example").is_ok()
        };
        assert!(url("https://id.example", "https://keys.example/"));
        assert!(!url("https://id.example/", "https://keys.example/"));
        assert!(!url("https://other.example", "https://keys.example/"));
        assert!(!url("https://id.example", "http://keys.example/"));
        assert!(keys_url(b"{}", "https://id.example").is_err());
    }
}
