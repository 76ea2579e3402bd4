//! JSON Web Tokens as credentials, verified according to RFC 8725.
//!
//! There are five kinds: identity tokens of web users, attestation tokens of the web app, tokens of other services, and
//! the ID tokens and logout tokens of the console's sign-in. Each kind has a verifier with its own issuer, audience and
//! keys, so that a token of one kind never passes for another. ID tokens and logout tokens share theirs, and differ in
//! their claims.
//!
//! The library verifies signatures only. weir parses header and claims itself, because the library would accept
//! duplicate claims and numbers in strings, and would read the system's clock.
//!
//! **Invariant:** weir reads a token's subject only after it verified the signature. **Invariant:** an error or a log
//! line never holds a part of a token.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use weir_errors::{ApiError, ErrorCode};
use weir_outgoing::Client;
use weir_storage::clock::{Clock, Millis};

use super::jwks::{COOLDOWN_MS, KeyError, KeySet, MAX_KID_CHARS};
use super::settings::{Algorithm, IdentitySettings, IssuerSettings, ServiceSettings};

/// The tolerated difference between the issuer's clock and weir's, in milliseconds.
const LEEWAY_MS: i64 = 60_000;

/// The end of the year 9999: a later time is a mistake, or an attempt to cause an overflow.
const MAX_SECONDS: i64 = 253_402_300_799;

const MAX_TOKEN_BYTES: usize = 8 << 10;
/// An ID token may name some hundred groups.
const MAX_ID_TOKEN_BYTES: usize = 64 << 10;
const MAX_SUBJECT_BYTES: usize = 255;
const MAX_EMAIL_BYTES: usize = 320;

/// The kinds of tokens, by their purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenKind {
    /// Authenticates a web user.
    Identity,
    /// Attests that the web app sends the request.
    Attestation,
    /// Authenticates a calling service.
    Service {
        /// The accepted services.
        allowed: AllowedServices,
        /// The claim with the scopes.
        scope_claim: String,
    },
    /// The ID token of a person's sign-in at the console.
    SignIn,
    /// The logout token with which an issuer ends sessions of the console.
    Logout,
}

/// The accepted services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedServices {
    /// The listed services, by exact match, each with the scopes that it has besides its token's.
    Only {
        /// By their verified e-mail address.
        emails: HashMap<String, Vec<String>>,
        /// By the issuer's `sub` claim.
        subjects: HashMap<String, Vec<String>>,
    },
    /// All services whose issuer gives a verified e-mail address. Only development mode uses it, because its issuer
    /// signs any name on demand.
    Any,
}

/// Verifies tokens of one kind. Cheap to share; see [`TokenVerifier::verify`].
#[derive(Debug, Clone)]
pub struct TokenVerifier {
    kind: TokenKind,
    issuer: String,
    audience: String,
    algorithms: Vec<Algorithm>,
    keys: KeySet,
    clock: Clock,
}

/// The verified claims of a token. Its debug output leaves out the subject.
#[derive(Clone, PartialEq)]
pub struct VerifiedClaims {
    /// The issuer, as configured.
    pub issuer: String,
    /// The subject. Subjects are unique only within an issuer.
    pub subject: String,
    /// An e-mail address verified by the issuer. The address alone never identifies a user.
    pub email: Option<String>,
    /// The scopes of a service; empty for other kinds.
    pub scopes: Vec<String>,
    /// The expiry, without leeway.
    pub expires_at: Millis,
}

/// All claims of a token whose signature, issuer, audience and times are valid.
pub(super) struct SignedClaims(Map<String, Value>);

/// The reasons for which a token is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The token is not three parts of base64 and JSON, is too long, or repeats a name.
    #[error("the token is malformed")]
    Malformed,
    /// The header requires an unsupported algorithm, type or extension.
    #[error(
        "the token's header asks for an algorithm, a type or an extension that weir does not accept"
    )]
    Unsupported,
    /// The issuer has no key with the name in the header.
    #[error("weir does not know the token's key")]
    UnknownKey,
    /// The signature does not match.
    #[error("the token's signature does not match")]
    Signature,
    /// The issuer differs.
    #[error("the token is of another issuer")]
    Issuer,
    /// The audience differs.
    #[error("the token is for another audience")]
    Audience,
    /// The token has expired.
    #[error("the token has expired")]
    Expired,
    /// The token is not valid yet.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// A claim is missing or has the wrong type.
    #[error("a claim of the token is missing or malformed")]
    Claim,
    /// The ID token belongs to another sign-in.
    #[error("the token belongs to another sign-in")]
    Nonce,
    /// The service is not on the list of accepted services.
    #[error("the service is not on the list of accepted services")]
    NotAllowed,
    /// The issuer's keys are unavailable, so the token cannot be verified.
    #[error("weir cannot fetch the issuer's keys")]
    Unavailable,
}

impl TokenVerifier {
    /// Returns a verifier that fetches the issuer's keys on demand.
    ///
    /// # Errors
    ///
    /// The error names the problem with the keys' address.
    pub fn new(
        kind: TokenKind,
        settings: &IssuerSettings,
        http: Client,
        clock: Clock,
    ) -> Result<Self, &'static str> {
        let keys = KeySet::remote(settings, http, clock.clone())?;
        Ok(Self::with_keys(kind, settings, keys, clock))
    }

    /// Returns a verifier with these keys.
    pub fn with_keys(
        kind: TokenKind,
        settings: &IssuerSettings,
        keys: KeySet,
        clock: Clock,
    ) -> Self {
        Self {
            kind,
            issuer: settings.issuer.clone(),
            audience: settings.audience.clone(),
            algorithms: settings.algorithms.clone(),
            keys,
            clock,
        }
    }

    /// Returns a verifier for another audience, with the same keys.
    #[must_use]
    pub fn for_audience(&self, audience: String) -> Self {
        Self {
            audience,
            ..self.clone()
        }
    }

    /// Returns a verifier of another kind of token, with the same keys.
    #[must_use]
    pub(super) fn for_kind(&self, kind: TokenKind) -> Self {
        Self {
            kind,
            ..self.clone()
        }
    }

    /// The accepted issuer.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Whether weir fetches the issuer's keys.
    pub fn is_remote(&self) -> bool {
        self.keys.is_remote()
    }

    /// Fetches the issuer's keys without using cached ones, and returns the number of usable keys, or the problem.
    pub async fn count_keys(&self) -> Result<usize, String> {
        self.keys.count().await
    }

    /// Starts to fetch the issuer's keys, so that the first request need not wait.
    pub fn warm_up(&self) {
        self.keys.warm_up();
    }

    /// Verifies a token.
    pub async fn verify(&self, token: &str) -> Result<VerifiedClaims, TokenError> {
        let claims = self.verify_signature(token).await?;
        self.check_claims(claims)
    }

    /// Verifies the signature, the issuer, the audience and the times of a token. The caller checks the other claims.
    pub(super) async fn verify_issuance(&self, token: &str) -> Result<SignedClaims, TokenError> {
        let claims = self.verify_signature(token).await?;
        self.check_issuance(&claims)?;
        Ok(SignedClaims(claims))
    }

    async fn verify_signature(&self, token: &str) -> Result<Map<String, Value>, TokenError> {
        let most = match self.kind {
            TokenKind::SignIn => MAX_ID_TOKEN_BYTES,
            _ => MAX_TOKEN_BYTES,
        };
        if token.len() > most {
            return Err(TokenError::Malformed);
        }
        // An additional dot would be in the payload, and base64 has no dot.
        let (message, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (header, payload) = message.split_once('.').ok_or(TokenError::Malformed)?;
        let header = read_part(header)?;
        // The claims are parsed before the key look-up, so that malformed tokens cause no fetch.
        let claims = read_part(payload)?;
        URL_SAFE_NO_PAD
            .decode(signature)
            .map_err(|_| TokenError::Malformed)?;
        let algorithm = self.check_header(&header)?;
        let key = self.keys.find(key_id(&header)?).await?;
        if key.algorithm() != algorithm {
            return Err(TokenError::Unsupported);
        }
        if !key.verifies(message, signature) {
            return Err(TokenError::Signature);
        }
        Ok(claims)
    }

    fn check_header(&self, header: &Map<String, Value>) -> Result<Algorithm, TokenError> {
        // weir supports no critical extension.
        if header.contains_key("crit") {
            return Err(TokenError::Unsupported);
        }
        if let Some(typ) = header.get("typ") {
            let typ = typ.as_str().ok_or(TokenError::Malformed)?;
            let typ = typ.to_ascii_lowercase();
            let typ = typ.strip_prefix("application/").unwrap_or(&typ);
            let accepted = match self.kind {
                TokenKind::Identity | TokenKind::Attestation | TokenKind::SignIn => typ == "jwt",
                TokenKind::Logout => typ == "jwt" || typ == "logout+jwt",
                // Access tokens of the client credentials grant have this type (RFC 9068 §2.1).
                TokenKind::Service { .. } => typ == "jwt" || typ == "at+jwt",
            };
            if !accepted {
                return Err(TokenError::Unsupported);
            }
        }
        header
            .get("alg")
            .and_then(Value::as_str)
            .and_then(Algorithm::parse)
            .filter(|algorithm| self.algorithms.contains(algorithm))
            .ok_or(TokenError::Unsupported)
    }

    /// Checks issuer, audience and times. Returns the expiry, without leeway.
    fn check_issuance(&self, claims: &Map<String, Value>) -> Result<Millis, TokenError> {
        if text(claims, "iss", MAX_TOKEN_BYTES)? != Some(self.issuer.as_str()) {
            return Err(TokenError::Issuer);
        }
        if !contains(claims.get("aud"), &self.audience)? {
            return Err(TokenError::Audience);
        }
        let now = self.clock.now();
        let expires_at = time(claims, "exp")?.ok_or(TokenError::Claim)?;
        if now.0 >= expires_at.0 + LEEWAY_MS {
            return Err(TokenError::Expired);
        }
        for since in ["nbf", "iat"] {
            if time(claims, since)?.is_some_and(|since| now.0 + LEEWAY_MS < since.0) {
                return Err(TokenError::NotYetValid);
            }
        }
        Ok(expires_at)
    }

    fn check_claims(&self, claims: Map<String, Value>) -> Result<VerifiedClaims, TokenError> {
        let expires_at = self.check_issuance(&claims)?;
        let subject = text(&claims, "sub", MAX_SUBJECT_BYTES)?.ok_or(TokenError::Claim)?;
        let email = text(&claims, "email", MAX_EMAIL_BYTES)?;
        let email_verified = claims.get("email_verified") == Some(&Value::Bool(true));
        let scopes = match &self.kind {
            TokenKind::Identity
            | TokenKind::Attestation
            | TokenKind::SignIn
            | TokenKind::Logout => Vec::new(),
            TokenKind::Service {
                allowed,
                scope_claim,
            } => {
                let granted = allowed
                    .scopes_of(subject, email.filter(|_| email_verified))
                    .ok_or(TokenError::NotAllowed)?;
                let mut scopes = scopes(claims.get(scope_claim))?;
                scopes.extend(granted);
                scopes
            }
        };
        Ok(VerifiedClaims {
            issuer: self.issuer.clone(),
            subject: subject.to_owned(),
            email: email.filter(|_| email_verified).map(str::to_owned),
            scopes,
            expires_at,
        })
    }
}

impl TokenKind {
    /// The kind of service tokens with these settings.
    pub fn service(settings: &IdentitySettings, service: &ServiceSettings) -> Self {
        let allowed = service.allowed_emails.iter();
        let mut emails: HashMap<_, _> = allowed.map(|email| (email.clone(), vec![])).collect();
        let mut subjects = HashMap::new();
        for named in &settings.services {
            if let Some(email) = &named.email {
                emails.insert(email.clone(), named.scopes.clone());
            }
            if let Some(subject) = &named.subject {
                subjects.insert(subject.clone(), named.scopes.clone());
            }
        }
        Self::Service {
            allowed: AllowedServices::Only { emails, subjects },
            scope_claim: service.scope_claim.clone(),
        }
    }
}

impl AllowedServices {
    /// The scopes of a service besides its token's; `None` if the service is not accepted.
    fn scopes_of(&self, subject: &str, verified_email: Option<&str>) -> Option<Vec<String>> {
        match self {
            Self::Any => verified_email.map(|_| Vec::new()),
            Self::Only { emails, subjects } => {
                let by_email = verified_email.and_then(|email| emails.get(email));
                let by_subject = subjects.get(subject);
                let mut named = by_email.into_iter().chain(by_subject).peekable();
                named.peek()?;
                Some(named.flatten().cloned().collect())
            }
        }
    }
}

impl SignedClaims {
    /// Returns a claim, if present.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Returns the subject, if present.
    pub(super) fn subject(&self) -> Result<Option<&str>, TokenError> {
        self.text("sub")
    }

    /// Returns a string claim, if present, of at most 255 bytes and without control characters.
    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, TokenError> {
        text(&self.0, name, MAX_SUBJECT_BYTES)
    }

    /// Returns the time of issue, which ID tokens and logout tokens must have.
    pub(super) fn issued_at(&self) -> Result<Millis, TokenError> {
        time(&self.0, "iat")?.ok_or(TokenError::Claim)
    }

    /// Makes claims without a signature.
    #[cfg(test)]
    pub(super) fn unsigned(claims: Value) -> Self {
        match claims {
            Value::Object(claims) => Self(claims),
            _ => Self(Map::new()),
        }
    }
}

/// Returns the issuer that a token names, to choose its verifier. Only the verifier shows whether it is true.
pub(super) fn named_issuer(token: &str) -> Option<String> {
    if token.len() > MAX_TOKEN_BYTES {
        return None;
    }
    let claims = read_part(token.split('.').nth(1)?).ok()?;
    let issuer = text(&claims, "iss", MAX_TOKEN_BYTES).ok()??;
    Some(issuer.to_owned())
}

impl fmt::Debug for VerifiedClaims {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Verified")
            .field("issuer", &self.issuer)
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}

impl TokenError {
    /// Whether the issuer made the token for weir, and weir rejects it only for its time or its service.
    pub fn is_genuine(self) -> bool {
        matches!(self, Self::Expired | Self::NotYetValid | Self::NotAllowed)
    }
}

impl From<KeyError> for TokenError {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Unknown => Self::UnknownKey,
            KeyError::Unavailable => Self::Unavailable,
        }
    }
}

impl From<TokenError> for ApiError {
    /// The response never names the problem of a token.
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::Unavailable => Self::new(
                ErrorCode::IdentityUnavailable,
                "weir could not verify the token; retry later.",
            )
            .with_retry_after(Duration::from_millis(COOLDOWN_MS.unsigned_abs())),
            _ => Self::unauthenticated(),
        }
    }
}

fn key_id(header: &Map<String, Value>) -> Result<&str, TokenError> {
    let kid = header.get("kid").and_then(Value::as_str);
    kid.filter(|kid| (1..=MAX_KID_CHARS).contains(&kid.chars().count()))
        .ok_or(TokenError::Malformed)
}

/// Returns a string claim, if present, of at most this many bytes and without control characters.
fn text<'a>(
    claims: &'a Map<String, Value>,
    name: &str,
    max_bytes: usize,
) -> Result<Option<&'a str>, TokenError> {
    let Some(value) = claims.get(name) else {
        return Ok(None);
    };
    value
        .as_str()
        .filter(|text| (1..=max_bytes).contains(&text.len()) && !text.contains(char::is_control))
        .map(Some)
        .ok_or(TokenError::Claim)
}

/// Returns a time claim, if present: whole seconds since 1970, in any number format.
fn time(claims: &Map<String, Value>, name: &str) -> Result<Option<Millis>, TokenError> {
    let Some(value) = claims.get(name) else {
        return Ok(None);
    };
    let seconds = value.as_i64().or_else(|| {
        let seconds = value.as_f64()?;
        // Exact: within these bounds, a double holds every integer.
        (seconds.fract() == 0.0 && (0.0..=MAX_SECONDS as f64).contains(&seconds))
            .then_some(seconds as i64)
    });
    seconds
        .filter(|seconds| (0..=MAX_SECONDS).contains(seconds))
        .map(|seconds| Some(Millis(seconds * 1_000)))
        .ok_or(TokenError::Claim)
}

/// Whether an audience is the wanted one, or a list that contains it.
fn contains(audience: Option<&Value>, wanted: &str) -> Result<bool, TokenError> {
    match audience {
        Some(Value::String(audience)) => Ok(audience == wanted),
        Some(Value::Array(audiences)) => {
            if !audiences.iter().all(Value::is_string) {
                return Err(TokenError::Claim);
            }
            Ok(audiences.iter().any(|audience| audience == wanted))
        }
        _ => Err(TokenError::Claim),
    }
}

fn scopes(claim: Option<&Value>) -> Result<Vec<String>, TokenError> {
    match claim {
        None => Ok(Vec::new()),
        Some(Value::String(scopes)) => Ok(scopes.split_whitespace().map(str::to_owned).collect()),
        Some(Value::Array(scopes)) => scopes
            .iter()
            .map(|scope| Ok(scope.as_str().ok_or(TokenError::Claim)?.to_owned()))
            .collect(),
        Some(_) => Err(TokenError::Claim),
    }
}

/// Parses a header or claims: base64 without padding, of a JSON object without duplicate names.
fn read_part(part: &str) -> Result<Map<String, Value>, TokenError> {
    let json = URL_SAFE_NO_PAD
        .decode(part)
        .map_err(|_| TokenError::Malformed)?;
    match serde_json::from_slice(&json) {
        Ok(StrictJson(Value::Object(object))) => Ok(object),
        _ => Err(TokenError::Malformed),
    }
}

/// JSON without duplicate names in any object: parsers differ in the value that they take (RFC 8725 §2.4).
struct StrictJson(Value);

impl<'de> Deserialize<'de> for StrictJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(StrictJson(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(array.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, StrictJson(value))) = entries.next_entry::<String, StrictJson>()? {
            if object.insert(name, value).is_some() {
                return Err(de::Error::custom("a name twice"));
            }
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_with_a_name_twice_is_refused_at_any_depth() {
        let read = |json: &str| read_part(&URL_SAFE_NO_PAD.encode(json)).is_ok();
        assert!(read(r#"{"a":1,"b":{"a":[{"a":null},{"a":1.5e3}]}}"#));
        for bad in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"b":{"a":1,"a":2}}"#,
            r#"{"b":[{"a":1,"a":2}]}"#,
            r#"["a"]"#,
            r#"{"a":1}{"a":1}"#,
            r#"{"a":1"#,
            "",
        ] {
            assert!(!read(bad), "{bad}");
        }
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(3_000), "]".repeat(3_000));
        assert!(!read(&deep));
    }

    #[test]
    fn what_is_printed_of_a_token_is_not_whom_it_names() {
        let verified = VerifiedClaims {
            issuer: "https://id.example".into(),
            subject: "alice-subject".into(),
            email: Some("alice@example".into()),
            scopes: Vec::new(),
            expires_at: Millis(0),
        };
        assert!(!format!("{verified:?}").contains("alice"));
    }
}
