//! The token that weir presents to other services: an executor to the API it calls back.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use http::header::{ACCEPT, CONTENT_TYPE};
use serde::Deserialize;
use tokio::io::AsyncReadExt;
use tokio::sync::Mutex;
use url::Url;
use weir_outgoing::Client;
use weir_outgoing::fetch::{self, FetchError};
use weir_storage::clock::{Clock, Millis};
use weir_storage::secrets::Secret;
use weir_storage::secrets::environment;

use super::node_token::NodeTokens;
use super::settings::{ClientCredentialsSettings, OutgoingSettings};

/// The lifetime of a token if its endpoint gives none, in milliseconds.
const DEFAULT_LIFETIME_MS: i64 = 300_000;

/// The time before the expiry at which weir replaces a token, in milliseconds.
const MARGIN_MS: i64 = 60_000;

/// The pause after a failed request to the endpoint, in milliseconds. Without it, each waiting caller would send its
/// own request, one after the other.
const COOLDOWN_MS: i64 = 2_000;

const MAX_TOKEN_BYTES: usize = 16 << 10;

/// The source of the token. Cheap to clone.
#[derive(Debug, Clone)]
pub enum ServiceTokenSource {
    /// A file that another program updates. weir reads it at each use; a kilobyte is cheap compared with a model call.
    File(PathBuf),
    /// A token endpoint.
    ClientCredentials(Arc<ClientCredentials>),
    /// The node itself.
    Node(NodeTokens),
}

/// A client at a token endpoint, and its last token.
#[derive(Debug)]
pub struct ClientCredentials {
    http: Client,
    clock: Clock,
    url: Url,
    /// The client's id, form-encoded like the secret (RFC 6749 §2.3.1).
    client_id: String,
    client_secret: Secret,
    /// The request's body.
    form: String,
    /// The lock is held during a fetch, so that only one fetch runs.
    last: Mutex<LastTokenRequest>,
}

#[derive(Debug, Default)]
struct LastTokenRequest {
    token: Option<IssuedToken>,
    failure: Option<(Millis, ServiceTokenError)>,
}

#[derive(Debug)]
struct IssuedToken {
    token: Secret,
    replace_at: Millis,
    expires_at: Millis,
}

/// The reasons for a missing token. Errors hold no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServiceTokenError {
    /// The file cannot be used.
    #[error("the token file {}: {problem}", path.display())]
    File {
        /// The configured file.
        path: PathBuf,
        /// The problem, as the end of a sentence.
        problem: String,
    },
    /// The endpoint returned no token.
    #[error("the token endpoint {0}")]
    Endpoint(#[from] FetchError),
}

impl ServiceTokenSource {
    /// Returns the source in the settings, else the node itself.
    pub fn new(
        settings: Option<&OutgoingSettings>,
        nodes: NodeTokens,
        http: &Client,
        clock: &Clock,
    ) -> anyhow::Result<Self> {
        Ok(match settings {
            Some(OutgoingSettings::File(path)) => Self::File(path.clone()),
            Some(OutgoingSettings::ClientCredentials(client)) => {
                let client = ClientCredentials::new(client, http.clone(), clock.clone())
                    .context("`identity.outgoing.client_credentials` does not fit")?;
                Self::ClientCredentials(Arc::new(client))
            }
            None => Self::Node(nodes),
        })
    }

    /// Returns a valid token.
    pub async fn token(&self) -> Result<Secret, ServiceTokenError> {
        match self {
            Self::File(path) => read_token(path)
                .await
                .map_err(|problem| ServiceTokenError::File {
                    path: path.clone(),
                    problem,
                }),
            Self::ClientCredentials(client) => client.token().await,
            Self::Node(nodes) => Ok(nodes.issue()),
        }
    }
}

async fn read_token(path: &PathBuf) -> Result<Secret, String> {
    let mut text = String::new();
    let file = tokio::fs::File::open(path)
        .await
        .map_err(|error| error.to_string())?;
    file.take(MAX_TOKEN_BYTES as u64 + 1)
        .read_to_string(&mut text)
        .await
        .map_err(|error| error.to_string())?;
    token_from(text.trim()).map_err(str::to_owned)
}

/// Checks that a token is a valid header value.
fn token_from(text: &str) -> Result<Secret, &'static str> {
    if text.is_empty() {
        return Err("is empty");
    }
    if text.len() > MAX_TOKEN_BYTES {
        return Err("is too long for a token");
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("holds something other than a token");
    }
    Ok(Secret::new(text.to_owned()))
}

impl ClientCredentials {
    fn new(
        settings: &ClientCredentialsSettings,
        http: Client,
        clock: Clock,
    ) -> anyhow::Result<Self> {
        let url = fetch::parse_url(&settings.token_url)
            .map_err(|problem| anyhow::anyhow!("`token_url` {problem}"))?;
        let secret = settings
            .client_secret
            .read(environment)
            .map_err(|problem| anyhow::anyhow!("`client_secret`: {problem}"))?;
        let mut body = "grant_type=client_credentials".to_owned();
        for (name, value) in [("audience", &settings.audience), ("scope", &settings.scope)] {
            if let Some(value) = value {
                body.push_str(&format!("&{name}={}", form(value)));
            }
        }
        Ok(Self {
            http,
            clock,
            url,
            client_id: form(&settings.client_id),
            client_secret: Secret::new(form(secret.expose())),
            form: body,
            last: Mutex::default(),
        })
    }

    async fn token(&self) -> Result<Secret, ServiceTokenError> {
        let mut last = self.last.lock().await;
        let now = self.clock.now();
        if let Some(issued) = &last.token
            && now < issued.replace_at
        {
            return Ok(issued.token.clone());
        }
        let failure = match &last.failure {
            Some((at, failure)) if (0..COOLDOWN_MS).contains(&(now.0 - at.0)) => failure.clone(),
            _ => match self.fetch().await {
                Ok(issued) => {
                    let token = issued.token.clone();
                    *last = LastTokenRequest {
                        token: Some(issued),
                        failure: None,
                    };
                    return Ok(token);
                }
                Err(failure) => {
                    tracing::warn!(url = %self.url, %failure, "fetching a service token");
                    last.failure = Some((self.clock.now(), failure.clone()));
                    failure
                }
            },
        };
        match &last.token {
            Some(issued) if self.clock.now() < issued.expires_at => Ok(issued.token.clone()),
            _ => Err(failure),
        }
    }

    async fn fetch(&self) -> Result<IssuedToken, ServiceTokenError> {
        let malformed = ServiceTokenError::Endpoint(FetchError::Malformed("is no bearer token"));
        let request = self
            .http
            .post(self.url.clone())
            .basic_auth(&self.client_id, Some(self.client_secret.expose()))
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(self.form.clone());
        let asked_at = self.clock.now();
        let (_, body) = fetch::fetch(request).await?;
        let answer: TokenAnswer = serde_json::from_slice(&body).map_err(|_| malformed.clone())?;
        if !answer.token_type.eq_ignore_ascii_case("bearer") {
            return Err(malformed);
        }
        let lifetime_ms = answer.expires_in.map_or(DEFAULT_LIFETIME_MS, |seconds| {
            i64::from(seconds).saturating_mul(1_000)
        });
        Ok(IssuedToken {
            token: token_from(&answer.access_token).map_err(|_| malformed)?,
            // For short lifetimes, weir replaces the token after half of its lifetime.
            replace_at: Millis(asked_at.0 + lifetime_ms - MARGIN_MS.min(lifetime_ms / 2)),
            expires_at: Millis(asked_at.0 + lifetime_ms),
        })
    }
}

/// A token endpoint's answer (RFC 6749 §5.1).
#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    token_type: String,
    expires_in: Option<u32>,
}

/// Form-encodes a value. The function encodes more characters than necessary; readers decode them, too.
fn form(value: &str) -> String {
    let mut encoded = String::new();
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_fits_into_a_header() {
        assert!(token_from("eyJ.a-b_c.d").is_ok());
        for bad in [
            "",
            "a b",
            "a\nb",
            "a\u{e9}",
            &"a".repeat(MAX_TOKEN_BYTES + 1),
        ] {
            assert!(token_from(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn forms_are_encoded() {
        assert_eq!(form("a b&c=d:\u{e9}%"), "a%20b%26c%3Dd%3A%C3%A9%25");
    }
}
