//! The configuration of a provider's credential.

use std::path::PathBuf;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use weir_storage::secrets::SecretSource;

use super::aws::AwsScope;
use super::mint::{AwsSource, EntraProof, Mint};
use super::{Credential, Renewed};

/// Google's scope for all of its cloud, which Vertex AI asks for.
const GOOGLE_SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// Entra's scope for Azure's models.
const AZURE_SCOPE: &str = "https://cognitiveservices.azure.com/.default";

const ENTRA: &str = "https://login.microsoftonline.com";

/// A provider's credential: a secret's source, or how to obtain a token or keys.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "CredentialTable")]
pub enum CredentialSettings {
    /// `{ env = "NAME" }` or `{ file = "PATH" }`.
    Fixed(SecretSource),
    /// `{ oauth = { … } }`: a token by OAuth's client credentials.
    Oauth(OauthSettings),
    /// `{ google = { … } }`: a token of a service account.
    Google(GoogleSettings),
    /// `{ entra = { … } }`: a token of Microsoft Entra.
    Entra(EntraSettings),
    /// `{ aws = { … } }`: a signature with AWS's keys.
    Aws(AwsSettings),
}

/// OAuth's client credentials.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OauthSettings {
    /// The token endpoint.
    pub token_url: String,
    /// The client's id.
    pub client_id: String,
    /// The client's secret.
    pub client_secret: SecretSource,
    /// The scope; none by default.
    pub scope: Option<String>,
    /// The audience; none by default.
    pub audience: Option<String>,
}

/// A service account of Google's cloud.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoogleSettings {
    /// The account's key, a JSON document; by default, the machine's own account at its metadata server.
    pub service_account: Option<SecretSource>,
    /// The scope; by default that of all services.
    pub scope: Option<String>,
}

/// An application or a managed identity of Microsoft Entra.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntraSettings {
    /// The tenant's id; without a secret or an assertion, it is not needed.
    pub tenant: Option<String>,
    /// The application's id, or that of a managed identity that the user has assigned.
    pub client_id: Option<String>,
    /// The application's secret.
    pub client_secret: Option<SecretSource>,
    /// A file with a signed assertion, as Kubernetes renews it. Without a secret or an assertion, weir uses the machine's
    /// managed identity.
    pub assertion_file: Option<PathBuf>,
    /// The scope; by default that of Azure's models.
    pub scope: Option<String>,
    /// The authority; by default that of the public cloud.
    pub authority: Option<String>,
}

/// AWS's keys, and the scope of signatures.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AwsSettings {
    /// The region.
    pub region: String,
    /// The service's name for signatures; by default `bedrock`.
    pub service: Option<String>,
    /// The access key's id. Without it, weir finds keys as AWS's SDKs do: in the environment, by a web identity, at the
    /// container's or the machine's metadata service.
    pub access_key_id: Option<SecretSource>,
    /// The secret access key.
    pub secret_access_key: Option<SecretSource>,
    /// The session token of temporary keys.
    pub session_token: Option<SecretSource>,
}

/// Accepts any value: no error then quotes a secret that was written in the place of its source.
#[derive(Deserialize)]
#[serde(transparent)]
struct CredentialTable(Value);

impl TryFrom<CredentialTable> for CredentialSettings {
    type Error = String;

    fn try_from(CredentialTable(value): CredentialTable) -> Result<Self, String> {
        let kind = value.as_object().filter(|table| table.len() == 1);
        let kind = kind.and_then(|table| table.iter().next());
        match kind {
            Some((name, settings)) if name == "oauth" => Ok(Self::Oauth(parse(name, settings)?)),
            Some((name, settings)) if name == "google" => Ok(Self::Google(parse(name, settings)?)),
            Some((name, settings)) if name == "entra" => Ok(Self::Entra(parse(name, settings)?)),
            Some((name, settings)) if name == "aws" => Ok(Self::Aws(parse(name, settings)?)),
            _ => {
                let source = serde_json::from_value(value);
                Ok(Self::Fixed(source.map_err(|error| error.to_string())?))
            }
        }
    }
}

fn parse<T: DeserializeOwned>(kind: &str, settings: &Value) -> Result<T, String> {
    T::deserialize(settings).map_err(|error| format!("`{kind}`: {error}"))
}

impl CredentialSettings {
    /// Reads the secrets; `environment` looks up environment variables.
    ///
    /// # Errors
    ///
    /// A short reason without any secret.
    pub fn read(&self, environment: impl Fn(&str) -> Option<String>) -> Result<Credential, String> {
        Ok(match self {
            Self::Fixed(source) => Credential::Fixed(source.read(environment)?),
            Self::Oauth(oauth) => Credential::Token(Renewed::new(Mint::oauth(
                &oauth.token_url,
                &oauth.client_id,
                oauth.client_secret.read(environment)?,
                oauth.scope.as_deref(),
                oauth.audience.as_deref(),
            )?)),
            Self::Google(google) => {
                let scope = google.scope.as_deref().unwrap_or(GOOGLE_SCOPE);
                Credential::Token(Renewed::new(match &google.service_account {
                    Some(source) => Mint::google_account(&source.read(environment)?, scope)?,
                    None => Mint::google_machine(environment)?,
                }))
            }
            Self::Entra(entra) => Credential::Token(Renewed::new(entra.mint(environment)?)),
            Self::Aws(aws) => {
                let scope = AwsScope {
                    region: aws.region.clone(),
                    service: aws.service.clone().unwrap_or_else(|| "bedrock".to_owned()),
                };
                Credential::Aws(Renewed::new(aws.mint(environment)?), scope)
            }
        })
    }

    /// Returns the environment variable of a fixed secret, if it has one.
    pub fn variable(&self) -> Option<&str> {
        match self {
            Self::Fixed(SecretSource::Env(name)) => Some(name),
            _ => None,
        }
    }
}

impl EntraSettings {
    fn mint(&self, environment: impl Fn(&str) -> Option<String>) -> Result<Mint, String> {
        let scope = self.scope.as_deref().unwrap_or(AZURE_SCOPE);
        let proof = match (&self.client_secret, &self.assertion_file) {
            (Some(_), Some(_)) => {
                return Err("`entra` has both `client_secret` and `assertion_file`".into());
            }
            (Some(source), None) => EntraProof::Secret(source.read(&environment)?),
            (None, Some(file)) => EntraProof::Assertion(file.clone()),
            (None, None) => {
                return Mint::azure_machine(self.client_id.as_deref(), scope, environment);
            }
        };
        let missing = |name: &str| format!("`entra.{name}` is missing");
        let tenant = self.tenant.as_deref().ok_or_else(|| missing("tenant"))?;
        let client_id = self.client_id.as_deref();
        let client_id = client_id.ok_or_else(|| missing("client_id"))?;
        let authority = self.authority.as_deref().unwrap_or(ENTRA);
        Mint::entra(authority, tenant, client_id, proof, scope)
    }
}

impl AwsSettings {
    fn mint(&self, environment: impl Fn(&str) -> Option<String>) -> Result<Mint, String> {
        let read = |source: &SecretSource| source.read(&environment);
        let source = match (&self.access_key_id, &self.secret_access_key) {
            (Some(id), Some(secret)) => AwsSource::Keys {
                id: read(id)?,
                secret: read(secret)?,
                session_token: self.session_token.as_ref().map(read).transpose()?,
            },
            (None, None) => AwsSource::of_environment(&self.region, &environment)?,
            _ => {
                return Err(
                    "`aws` needs both `access_key_id` and `secret_access_key`, or neither".into(),
                );
            }
        };
        Mint::aws(source)
    }
}
