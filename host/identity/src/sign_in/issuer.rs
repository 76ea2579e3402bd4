//! One issuer: its configuration by OpenID discovery, the exchange of a code for a person, and its logout tokens.

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use http::header::{ACCEPT, CONTENT_TYPE};
use reqwest::RequestBuilder;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use url::{Url, form_urlencoded};
use weir_errors::{ApiError, ErrorCode};
use weir_outgoing::Client;
use weir_outgoing::fetch::{self, FetchError};
use weir_storage::clock::{Clock, Millis};
use weir_storage::secrets::{Secret, SecretKey, environment};

use super::pending::PendingSignIn;
use super::tokens::{IdToken, LogoutToken};
use crate::jwt::{SignedClaims, TokenError, TokenKind, TokenVerifier};
use crate::settings::SignInSettings;

/// The time for which weir uses an issuer's configuration, in milliseconds: an hour.
const MAX_AGE_MS: i64 = 3_600_000;

/// The minimum time between two attempts to read it, in milliseconds.
const COOLDOWN_MS: i64 = 2_000;

const MAX_EMAIL_BYTES: usize = 320;
const MAX_NAME_BYTES: usize = 200;

/// A client at an issuer.
#[derive(Debug)]
pub struct SignInIssuer {
    settings: SignInSettings,
    secret: Option<Secret>,
    /// The digest of the directory's token.
    scim_token: Option<SecretKey>,
    http: Client,
    clock: Clock,
    configuration: Url,
    id_tokens: TokenVerifier,
    logout_tokens: TokenVerifier,
    /// The lock is held during a fetch, so that only one fetch runs.
    discovery: Mutex<Discovery>,
}

/// The last attempt to read the configuration, and its last result.
#[derive(Debug, Default)]
struct Discovery {
    endpoints: Option<Arc<IssuerEndpoints>>,
    read_at: Option<Millis>,
    attempted_at: Option<Millis>,
}

/// The endpoints of an issuer.
#[derive(Debug)]
struct IssuerEndpoints {
    authorization: Url,
    token: Url,
    user_info: Option<Url>,
    end_session: Option<Url>,
    /// The authentication of a client with a secret.
    authentication: Option<ClientAuthentication>,
    /// Whether every redirect names the issuer (RFC 9207).
    names_itself: bool,
}

/// The place of the client's secret in a token request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientAuthentication {
    Basic,
    Post,
}

/// The issuer's metadata (OpenID Connect Discovery 1.0 §3).
#[derive(Deserialize)]
struct SignInMetadata {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    userinfo_endpoint: Option<String>,
    end_session_endpoint: Option<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

/// The response of a token endpoint (OpenID Connect Core 1.0 §3.1.3.3).
#[derive(Deserialize)]
struct CodeAnswer {
    id_token: String,
    access_token: Option<String>,
}

/// A person whom an issuer has signed in.
pub struct Person {
    /// The claim that names the user.
    pub subject: String,
    /// The `sub` claim, which logout tokens repeat.
    pub signed_in_as: String,
    /// The issuer's id of the sign-in (`sid`), if it has one.
    pub session: Option<String>,
    /// The time of the issuer at which it issued the ID token.
    pub issued_at: Millis,
    /// The verified e-mail address, in lower case.
    pub email: Option<String>,
    /// The display name.
    pub name: Option<String>,
    /// The groups.
    pub groups: Vec<String>,
}

/// The reasons for which a sign-in fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignInError {
    /// The issuer rejected the code: it is forged, used, expired, or of another sign-in.
    Code,
    /// The ID token is invalid.
    Token(TokenError),
    /// The issuer is unreachable, or does not accept weir's client.
    Unavailable,
}

impl SignInIssuer {
    /// Reads the client's secret.
    ///
    /// # Errors
    ///
    /// The error contains nothing of the secret.
    pub(super) fn new(
        settings: &SignInSettings,
        http: Client,
        clock: Clock,
    ) -> anyhow::Result<Self> {
        let unfit = |problem: &str| anyhow!("`issuer` {problem}");
        let slashless = settings.issuer.trim_end_matches('/');
        let configuration = format!("{slashless}/.well-known/openid-configuration");
        let secret = settings.client_secret.as_ref().map(|source| {
            let secret = source.read(environment);
            secret.map_err(|problem| anyhow!("`client_secret`: {problem}"))
        });
        let scim_token = settings
            .scim_token
            .as_ref()
            .map(|source| SecretKey::configured(source, "`scim_token`"));
        let id_tokens = TokenVerifier::new(
            TokenKind::SignIn,
            &settings.id_tokens(),
            http.clone(),
            clock.clone(),
        );
        let id_tokens = id_tokens.map_err(unfit)?;
        Ok(Self {
            secret: secret.transpose()?,
            scim_token: scim_token.transpose()?,
            configuration: fetch::parse_url(&configuration).map_err(unfit)?,
            logout_tokens: id_tokens.for_kind(TokenKind::Logout),
            id_tokens,
            settings: settings.clone(),
            http,
            clock,
            discovery: Mutex::default(),
        })
    }

    /// The settings.
    pub fn settings(&self) -> &SignInSettings {
        &self.settings
    }

    /// Whether this is the token of the issuer's directory.
    pub fn is_directory_token(&self, token: &str) -> bool {
        // A comparison of digests reveals nothing about the token.
        let digest: [u8; 32] = Sha256::digest(token).into();
        let own = self.scim_token.as_ref();
        own.is_some_and(|own| *own.expose() == digest)
    }

    /// Whether another issuer's directory has the same token.
    pub(super) fn has_same_directory(&self, other: &Self) -> bool {
        let digest = |issuer: &Self| issuer.scim_token.as_ref().map(|token| *token.expose());
        digest(self).is_some() && digest(self) == digest(other)
    }

    /// Reads the configuration and the keys without using stored ones. Returns the number of usable keys, or the
    /// problem.
    pub async fn probe(&self) -> Result<usize, String> {
        let read = self.discover().await;
        read.map_err(|error| format!("{} {error}", self.configuration))?;
        self.id_tokens.count_keys().await
    }

    /// Returns the URL at which a browser begins a sign-in.
    pub async fn authorization_url(&self, pending: &PendingSignIn) -> Result<Url, SignInError> {
        let mut url = self.endpoints().await?.authorization.clone();
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.settings.client_id)
            .append_pair("redirect_uri", &pending.redirect_uri)
            .append_pair("scope", &self.settings.scopes.join(" "))
            .append_pair("state", &pending.state)
            .append_pair("nonce", &pending.nonce)
            .append_pair("code_challenge", &pending.challenge())
            .append_pair("code_challenge_method", "S256");
        Ok(url)
    }

    /// Returns the URL at which a browser signs out, if the issuer has one.
    pub async fn sign_out_url(&self, then: &str) -> Option<Url> {
        let endpoints = self.endpoints().await.ok()?;
        let mut url = endpoints.end_session.clone()?;
        url.query_pairs_mut()
            .append_pair("client_id", &self.settings.client_id)
            .append_pair("post_logout_redirect_uri", then);
        Some(url)
    }

    /// Whether a redirect may come from this issuer: otherwise, another issuer could have made weir send its code here.
    pub async fn is_named(&self, named: Option<&str>) -> Result<bool, SignInError> {
        match named {
            Some(named) => Ok(named == self.settings.issuer),
            None => Ok(!self.endpoints().await?.names_itself),
        }
    }

    /// Exchanges a code for the person who signed in.
    pub async fn redeem(&self, pending: &PendingSignIn, code: &str) -> Result<Person, SignInError> {
        let endpoints = self.endpoints().await?;
        let tokens = self.exchange(&endpoints, pending, code).await?;
        let claims = self.id_tokens.verify_issuance(&tokens.id_token).await?;
        let token = IdToken::read(&claims, &self.settings.client_id, &pending.nonce)?;
        let more = match (&endpoints.user_info, &tokens.access_token) {
            (Some(url), Some(access)) if self.needs_more(&claims) => {
                self.user_info(url, access, &token.subject).await?
            }
            _ => Map::new(),
        };
        let claim = |name: &str| claims.get(name).or_else(|| more.get(name));
        // Only the signed token names the user.
        let subject = claims.text(&self.settings.subject_claim)?;
        let is_verified = claim("email_verified") == Some(&Value::Bool(true));
        let email = text(claim("email"), MAX_EMAIL_BYTES).filter(|email| email.contains('@'));
        Ok(Person {
            email: email.filter(|_| is_verified).map(str::to_lowercase),
            name: text(claim("name"), MAX_NAME_BYTES).map(str::to_owned),
            groups: groups(claim(&self.settings.groups_claim)),
            subject: subject.ok_or(TokenError::Claim)?.to_owned(),
            signed_in_as: token.subject,
            session: token.session,
            issued_at: token.issued_at,
        })
    }

    /// Verifies a logout token.
    pub async fn verify_logout(&self, token: &str) -> Result<LogoutToken, TokenError> {
        LogoutToken::read(&self.logout_tokens.verify_issuance(token).await?)
    }

    async fn exchange(
        &self,
        endpoints: &IssuerEndpoints,
        pending: &PendingSignIn,
        code: &str,
    ) -> Result<CodeAnswer, SignInError> {
        let request = self.code_request(endpoints, pending, code);
        match fetch::fetch(request).await {
            Ok((_, body)) => serde_json::from_slice(&body)
                .map_err(|_| self.unavailable(&FetchError::Malformed("is no ID token"))),
            // `invalid_grant`, among others (RFC 6749 §5.2).
            Err(FetchError::Status(400)) => Err(SignInError::Code),
            Err(error) => Err(self.unavailable(&error)),
        }
    }

    fn code_request(
        &self,
        endpoints: &IssuerEndpoints,
        pending: &PendingSignIn,
        code: &str,
    ) -> RequestBuilder {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", &pending.redirect_uri)
            .append_pair("code_verifier", &pending.verifier);
        let mut request = self.http.post(endpoints.token.clone());
        let client_id = &self.settings.client_id;
        match (&self.secret, endpoints.authentication) {
            (Some(secret), Some(ClientAuthentication::Basic)) => {
                // Both are form-encoded first (RFC 6749 §2.3.1).
                let encode = |text: &str| -> String {
                    form_urlencoded::byte_serialize(text.as_bytes()).collect()
                };
                request = request.basic_auth(encode(client_id), Some(encode(secret.expose())));
            }
            (Some(secret), Some(ClientAuthentication::Post)) => {
                form.append_pair("client_id", client_id)
                    .append_pair("client_secret", secret.expose());
            }
            (None, _) | (_, None) => {
                form.append_pair("client_id", client_id);
            }
        }
        request
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form.finish())
    }

    /// Whether the ID token lacks claims that weir uses. Many issuers send them only from the endpoint `userinfo`.
    fn needs_more(&self, claims: &SignedClaims) -> bool {
        let settings = &self.settings;
        let has_mapping = !settings.admin_groups.is_empty() || !settings.roles.is_empty();
        let uses_groups = has_mapping && settings.scim_token.is_none();
        claims.get("email").is_none()
            || (uses_groups && claims.get(&self.settings.groups_claim).is_none())
    }

    async fn user_info(
        &self,
        url: &Url,
        access_token: &str,
        subject: &str,
    ) -> Result<Map<String, Value>, SignInError> {
        let request = self.http.get(url.clone()).bearer_auth(access_token);
        let fetched = fetch::fetch(request.header(ACCEPT, "application/json")).await;
        let (_, body) = fetched.map_err(|error| self.unavailable(&error))?;
        let claims: Map<String, Value> = serde_json::from_slice(&body)
            .map_err(|_| self.unavailable(&FetchError::Malformed("is no user information")))?;
        // The subject must be that of the ID token (OpenID Connect Core 1.0 §5.3.2).
        if claims.get("sub").and_then(Value::as_str) != Some(subject) {
            return Err(SignInError::Token(TokenError::Claim));
        }
        Ok(claims)
    }

    async fn endpoints(&self) -> Result<Arc<IssuerEndpoints>, SignInError> {
        let mut discovery = self.discovery.lock().await;
        let now = self.clock.now();
        if discovery.is_due(now) {
            // Set before the fetch, so that clients that disconnect cannot cause many fetches.
            discovery.attempted_at = Some(now);
            match self.discover().await {
                Ok(endpoints) => {
                    discovery.endpoints = Some(Arc::new(endpoints));
                    discovery.read_at = Some(self.clock.now());
                }
                Err(error) => {
                    self.unavailable(&error);
                }
            }
        }
        // The last known endpoints rarely change, so they count until a newer configuration is read.
        discovery.endpoints.clone().ok_or(SignInError::Unavailable)
    }

    async fn discover(&self) -> Result<IssuerEndpoints, FetchError> {
        let (_, document) = fetch::get(&self.http, &self.configuration).await?;
        let metadata: SignInMetadata = serde_json::from_slice(&document)
            .map_err(|_| FetchError::Malformed("is no OpenID configuration"))?;
        if metadata.issuer != self.settings.issuer {
            return Err(FetchError::Malformed("is another issuer's configuration"));
        }
        let url = |text: &String| {
            fetch::parse_url(text).map_err(|_| FetchError::Malformed("names an unusable endpoint"))
        };
        Ok(IssuerEndpoints {
            authorization: url(&metadata.authorization_endpoint)?,
            token: url(&metadata.token_endpoint)?,
            user_info: metadata.userinfo_endpoint.as_ref().map(url).transpose()?,
            end_session: metadata
                .end_session_endpoint
                .as_ref()
                .map(url)
                .transpose()?,
            authentication: match self.secret {
                Some(_) => Some(authentication(
                    metadata.token_endpoint_auth_methods_supported,
                )?),
                None => None,
            },
            names_itself: metadata.authorization_response_iss_parameter_supported,
        })
    }

    fn unavailable(&self, error: &FetchError) -> SignInError {
        tracing::warn!(issuer = self.settings.issuer, %error, "an issuer cannot sign people in");
        SignInError::Unavailable
    }
}

impl Discovery {
    fn is_due(&self, now: Millis) -> bool {
        // If the clock was set back, the next attempt must not be delayed for long.
        let is_within = |at: Option<Millis>, most: i64| {
            at.is_some_and(|at| (0..most).contains(&(now.0 - at.0)))
        };
        !is_within(self.read_at, MAX_AGE_MS) && !is_within(self.attempted_at, COOLDOWN_MS)
    }
}

impl From<TokenError> for SignInError {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::Unavailable => Self::Unavailable,
            error => Self::Token(error),
        }
    }
}

impl From<SignInError> for ApiError {
    /// The response never names the problem of a token.
    fn from(error: SignInError) -> Self {
        match error {
            SignInError::Code | SignInError::Token(_) => Self::unauthenticated(),
            SignInError::Unavailable => Self::new(
                ErrorCode::IdentityUnavailable,
                "weir cannot reach the issuer of this sign-in; retry later.",
            )
            .with_retry_after(Duration::from_millis(COOLDOWN_MS.unsigned_abs())),
        }
    }
}

/// Returns the first supported method; an issuer that lists none supports `client_secret_basic`.
fn authentication(supported: Option<Vec<String>>) -> Result<ClientAuthentication, FetchError> {
    let Some(supported) = supported else {
        return Ok(ClientAuthentication::Basic);
    };
    let supports = |method: &str| supported.iter().any(|other| other == method);
    if supports("client_secret_basic") {
        Ok(ClientAuthentication::Basic)
    } else if supports("client_secret_post") {
        Ok(ClientAuthentication::Post)
    } else {
        Err(FetchError::Malformed(
            "supports neither client_secret_basic nor client_secret_post",
        ))
    }
}

/// Returns a text of at most this many bytes. A claim that weir cannot show counts as missing.
fn text(claim: Option<&Value>, max_bytes: usize) -> Option<&str> {
    let text = claim?.as_str()?.trim();
    let fits = (1..=max_bytes).contains(&text.len()) && !text.contains(char::is_control);
    fits.then_some(text)
}

/// Returns the groups in a claim: a list, or one group.
fn groups(claim: Option<&Value>) -> Vec<String> {
    match claim {
        Some(Value::String(group)) => vec![group.clone()],
        Some(Value::Array(groups)) => {
            let groups = groups.iter().filter_map(Value::as_str);
            groups.map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_secret_is_sent_as_the_issuer_supports_it() {
        let of = |methods: &[&str]| {
            authentication(Some(
                methods.iter().map(|&method| method.to_owned()).collect(),
            ))
        };
        assert_eq!(authentication(None), Ok(ClientAuthentication::Basic));
        let both = ["client_secret_post", "client_secret_basic"];
        assert_eq!(of(&both), Ok(ClientAuthentication::Basic));
        assert_eq!(of(&both[..1]), Ok(ClientAuthentication::Post));
        assert!(of(&["private_key_jwt"]).is_err());
    }

    #[test]
    fn groups_are_a_list_or_a_text() {
        assert_eq!(groups(Some(&json!(["a", 1, "b"]))), ["a", "b"]);
        assert_eq!(groups(Some(&json!("a"))), ["a"]);
        assert!(groups(Some(&json!({ "a": true }))).is_empty());
        assert!(groups(None).is_empty());
    }

    #[test]
    fn texts_that_pages_cannot_show_count_as_missing() {
        assert_eq!(text(Some(&json!(" Alice ")), 10), Some("Alice"));
        for bad in [
            json!(""),
            json!(" "),
            json!("a\nb"),
            json!("a".repeat(11)),
            json!(1),
        ] {
            assert_eq!(text(Some(&bad), 10), None, "{bad}");
        }
    }
}
