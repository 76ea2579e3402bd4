//! Development mode's own issuer, so that web and service requests need no external account.
//!
//! The data folder holds its key, and only the command line issues its tokens; verifiers get the public key directly.
//!
//! **Invariant:** outside development mode, this issuer does not exist, no other issuer can have its names, and its
//! tokens are invalid.

use std::path::Path;

use anyhow::{Context, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk};
use jsonwebtoken::{Algorithm as Signature, EncodingKey};
use serde_json::{Value, json};
use weir_storage::clock::Millis;
use weir_storage::secrets::{Secret, SecretKey};

use super::jwks::KeySet;
use super::settings::{Algorithm, DEV_ISSUER_PREFIX, IssuerSettings};

/// The lifetime of its tokens, in seconds.
pub const LIFETIME_SECONDS: i64 = 3_600;

/// The default service of its service tokens.
pub const SERVICE_EMAIL: &str = "service@weir.invalid";

/// The audience of a local token, which determines its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DevAudience {
    /// A web user's identity token.
    Identity,
    /// The web app's attestation token.
    Attestation,
    /// A service token for the API.
    Api,
    /// A service token for the executor.
    Executor,
}

/// The two tokens that a web request needs.
#[derive(Debug)]
pub struct WebTokens {
    /// For `Authorization: Bearer`.
    pub identity: Secret,
    /// For `X-Identity-AppCheck`.
    pub attestation: Secret,
}

/// The issuer and its private key.
#[derive(Clone)]
pub struct DevIssuer {
    key: EncodingKey,
    /// The public key in base64; also the name of the key.
    public: String,
}

impl DevIssuer {
    /// Returns the issuer with the key in a data folder; the key is created on first use. Development mode only:
    /// callers with a configuration use `Config::dev_issuer`.
    pub fn open(data_dir: &Path) -> anyhow::Result<Self> {
        let key = SecretKey::load_or_create(&data_dir.join("keys/dev-issuer"))?;
        Self::with_key(&key)
    }

    /// Returns the issuer with this key.
    pub fn with_key(key: &SecretKey) -> anyhow::Result<Self> {
        // The library needs PKCS #8: for Ed25519, this prefix and the key (RFC 8410 §7).
        const PKCS8: [u8; 16] = [
            0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22,
            0x04, 0x20,
        ];
        let key = EncodingKey::from_ed_der(&[&PKCS8[..], key.expose()].concat());
        let jwk = Jwk::from_encoding_key(&key, Signature::EdDSA)
            .context("reading the local issuer's key")?;
        match jwk.algorithm {
            AlgorithmParameters::OctetKeyPair(parameters) => Ok(Self {
                key,
                public: parameters.x,
            }),
            _ => Err(anyhow!("the local issuer's key is of another kind")),
        }
    }

    /// The issuer's public key.
    pub fn keys(&self) -> anyhow::Result<KeySet> {
        let jwk = json!({
            "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig",
            "kid": self.public, "x": self.public,
        });
        let document = json!({ "keys": [jwk] }).to_string();
        KeySet::fixed(document.as_bytes(), &[Algorithm::EdDSA])
            .map_err(|problem| anyhow!("the local issuer's key {problem}"))
    }

    /// Returns the issuer, audience and algorithms of its tokens for an audience.
    pub fn settings(audience: DevAudience) -> IssuerSettings {
        let (issuer, audience) = match audience {
            DevAudience::Identity => ("identity", "app"),
            DevAudience::Attestation => ("attestation", "app"),
            DevAudience::Api => ("service", "api"),
            DevAudience::Executor => ("service", "executor"),
        };
        IssuerSettings {
            issuer: format!("{DEV_ISSUER_PREFIX}:{issuer}"),
            audience: format!("{DEV_ISSUER_PREFIX}:{audience}"),
            jwks_url: None,
            algorithms: vec![Algorithm::EdDSA],
        }
    }

    /// Issues the two tokens of a web user with this name. A name without `@` has an e-mail address at `example.com`.
    pub fn web_tokens(&self, user: &str, now: Millis) -> anyhow::Result<WebTokens> {
        let email = match user.contains('@') {
            true => user.to_owned(),
            false => format!("{user}@example.com"),
        };
        let identity = json!({ "sub": user, "email": email, "email_verified": true });
        let attestation = json!({ "sub": "urn:weir:dev:web-app" });
        Ok(WebTokens {
            identity: self.mint(DevAudience::Identity, identity, now)?,
            attestation: self.mint(DevAudience::Attestation, attestation, now)?,
        })
    }

    /// Issues the token of a service with this e-mail address.
    pub fn service_token(
        &self,
        audience: DevAudience,
        email: &str,
        scopes: &[impl AsRef<str>],
        now: Millis,
    ) -> anyhow::Result<Secret> {
        let scopes: Vec<&str> = scopes.iter().map(AsRef::as_ref).collect();
        let claims = json!({
            "sub": email, "email": email, "email_verified": true, "scope": scopes.join(" "),
        });
        self.mint(audience, claims, now)
    }

    fn mint(
        &self,
        audience: DevAudience,
        mut claims: Value,
        now: Millis,
    ) -> anyhow::Result<Secret> {
        let settings = Self::settings(audience);
        claims["iss"] = settings.issuer.into();
        claims["aud"] = settings.audience.into();
        claims["iat"] = now.seconds().into();
        claims["exp"] = (now.seconds() + LIFETIME_SECONDS).into();
        let header = json!({ "alg": "EdDSA", "typ": "JWT", "kid": self.public });
        let message = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let message = message.join(".");
        let signature =
            jsonwebtoken::crypto::sign(message.as_bytes(), &self.key, Signature::EdDSA)?;
        Ok(Secret::new(format!("{message}.{signature}")))
    }
}

impl std::fmt::Debug for DevIssuer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "DevIssuer({})", self.public)
    }
}
