//! The requests that obtain a token or keys.
//!
//! Shapes: RFC 6749 §4.4 (client credentials) and RFC 7523 (assertions); google-auth 2.62 for Python; azure-identity 1.27
//! for Python; botocore 1.44 (`credentials.py`, `utils.py`) for AWS.
//!
//! **Invariant:** requests go to addresses of the configuration, of the environment, or of the cloud's documentation, over
//! TLS; without it only to this machine, and to metadata services, which have link-local addresses.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::{Deserialize, Serialize};
use url::{Host, Url};
use weir_outgoing::fetch::{self, FetchError};
use weir_outgoing::{self as outgoing, Client};
use weir_storage::secrets::Secret;

use super::aws::AwsKeys;

/// The time limit of a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// The lifetime of a token whose issuer does not name one, and the longest that counts.
const USUAL_LIFETIME: Duration = Duration::from_secs(300);
const LONGEST_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The lifetime of a signed assertion: Google's longest.
const ASSERTION_SECONDS: u64 = 3_600;

const GOOGLE_TOKENS: &str = "https://oauth2.googleapis.com/token";
const GOOGLE_MACHINE: &str = "metadata.google.internal";
const LINK_LOCAL: &str = "http://169.254.169.254";
const CONTAINER: &str = "http://169.254.170.2";

/// An issuer, and the proof for it.
pub struct Mint {
    http: Client,
    kind: Kind,
}

enum Kind {
    Oauth {
        url: Url,
        form: Vec<(&'static str, String)>,
        client_secret: Option<Secret>,
        assertion_file: Option<PathBuf>,
    },
    GoogleAccount {
        url: Url,
        email: String,
        key: EncodingKey,
        key_id: Option<String>,
        scope: String,
    },
    GoogleMachine {
        url: Url,
    },
    AzureMachine {
        url: Url,
    },
    Aws(AwsSource),
}

/// The proof of an application at Entra.
pub enum EntraProof {
    Secret(Secret),
    /// A file with an assertion, which is read for each token.
    Assertion(PathBuf),
}

/// A source of AWS's keys.
pub enum AwsSource {
    Keys {
        /// The access key's id.
        id: Secret,
        /// The secret access key.
        secret: Secret,
        session_token: Option<Secret>,
    },
    /// A role that a web identity assumes.
    WebIdentity {
        /// AWS's token service.
        sts: Url,
        role: String,
        /// The name of the session in AWS's logs.
        session: String,
        /// The file with the identity's token, which is read for each request.
        file: PathBuf,
    },
    /// The container's credentials.
    Container {
        /// The address of the credentials.
        url: Url,
        /// The value of the `Authorization` header.
        token: Option<Secret>,
        /// A file with this value, which is read for each request.
        token_file: Option<PathBuf>,
    },
    /// The machine's role.
    Machine {
        /// The metadata service.
        service: Url,
    },
}

/// An obtained token or obtained keys.
#[derive(Debug)]
pub struct Minted(MintedKind);

#[derive(Debug)]
enum MintedKind {
    Token(Secret),
    Aws(AwsKeys),
}

/// A reason for which no credential was obtained, without any secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    /// The issuer's response.
    #[error("the issuer {0}")]
    Issuer(#[from] FetchError),
    /// The proof cannot be read or made.
    #[error("the proof for the issuer {0}")]
    Proof(String),
    /// The issuer's token had ended when it arrived.
    #[error("the issuer's token has no lifetime")]
    Expired,
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    /// Azure's metadata service sends it as a text.
    #[serde(default)]
    expires_in: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct ServiceAccount {
    client_email: String,
    private_key: String,
    #[serde(default)]
    private_key_id: Option<String>,
    #[serde(default)]
    token_uri: Option<String>,
}

#[derive(Serialize)]
struct GoogleClaims<'a> {
    iss: &'a str,
    scope: &'a str,
    aud: &'a str,
    iat: u64,
    exp: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AwsResponse {
    access_key_id: String,
    secret_access_key: String,
    token: Option<String>,
    expiration: Option<String>,
}

impl Minted {
    /// Returns the token, if it is one.
    pub fn token(&self) -> Option<&str> {
        match &self.0 {
            MintedKind::Token(token) => Some(token.expose()),
            MintedKind::Aws(_) => None,
        }
    }

    /// Returns AWS's keys, if it has them.
    pub fn aws(&self) -> Option<&AwsKeys> {
        match &self.0 {
            MintedKind::Token(_) => None,
            MintedKind::Aws(keys) => Some(keys),
        }
    }
}

impl Mint {
    /// A client of an OAuth server.
    pub fn oauth(
        token_url: &str,
        client_id: &str,
        client_secret: Secret,
        scope: Option<&str>,
        audience: Option<&str>,
    ) -> Result<Self, String> {
        let mut form = vec![
            ("grant_type", "client_credentials".to_owned()),
            ("client_id", client_id.to_owned()),
        ];
        form.extend(scope.map(|scope| ("scope", scope.to_owned())));
        form.extend(audience.map(|audience| ("audience", audience.to_owned())));
        Self::new(Kind::Oauth {
            url: address("token_url", token_url)?,
            form,
            client_secret: Some(client_secret),
            assertion_file: None,
        })
    }

    pub fn entra(
        authority: &str,
        tenant: &str,
        client_id: &str,
        proof: EntraProof,
        scope: &str,
    ) -> Result<Self, String> {
        let is_tenant = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
        if tenant.is_empty() || !tenant.bytes().all(is_tenant) {
            return Err("`entra.tenant` is not the id or the name of a tenant".into());
        }
        let url = format!(
            "{}/{tenant}/oauth2/v2.0/token",
            authority.trim_end_matches('/')
        );
        let mut form = vec![
            ("grant_type", "client_credentials".to_owned()),
            ("client_id", client_id.to_owned()),
            ("scope", scope.to_owned()),
        ];
        let (client_secret, assertion_file) = match proof {
            EntraProof::Secret(secret) => (Some(secret), None),
            EntraProof::Assertion(file) => {
                let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
                form.push(("client_assertion_type", kind.to_owned()));
                (None, Some(file))
            }
        };
        Self::new(Kind::Oauth {
            url: address("entra.authority", &url)?,
            form,
            client_secret,
            assertion_file,
        })
    }

    /// A service account of Google's cloud, by its key.
    pub fn google_account(document: &Secret, scope: &str) -> Result<Self, String> {
        let unfit = "`google.service_account` is not the JSON key of a service account";
        let account: ServiceAccount =
            serde_json::from_str(document.expose()).map_err(|_| unfit.to_owned())?;
        let key = EncodingKey::from_rsa_pem(account.private_key.as_bytes());
        let url = account.token_uri.as_deref().unwrap_or(GOOGLE_TOKENS);
        Self::new(Kind::GoogleAccount {
            url: address("google.service_account: token_uri", url)?,
            email: account.client_email,
            key: key.map_err(|_| unfit.to_owned())?,
            key_id: account.private_key_id,
            scope: scope.to_owned(),
        })
    }

    /// The service account of this machine in Google's cloud. `GCE_METADATA_HOST` replaces the metadata server.
    pub fn google_machine(environment: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let host = environment("GCE_METADATA_HOST").unwrap_or_else(|| GOOGLE_MACHINE.to_owned());
        let url =
            format!("http://{host}/computeMetadata/v1/instance/service-accounts/default/token");
        let url = metadata_address("GCE_METADATA_HOST", &url)?;
        Self::new(Kind::GoogleMachine { url })
    }

    /// The managed identity of this machine in Azure. `AZURE_POD_IDENTITY_AUTHORITY_HOST` replaces the metadata service.
    pub fn azure_machine(
        client_id: Option<&str>,
        scope: &str,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let variable = "AZURE_POD_IDENTITY_AUTHORITY_HOST";
        let service = environment(variable).unwrap_or_else(|| LINK_LOCAL.to_owned());
        let url = format!(
            "{}/metadata/identity/oauth2/token",
            service.trim_end_matches('/')
        );
        let mut url = metadata_address(variable, &url)?;
        let resource = scope.strip_suffix("/.default").unwrap_or(scope);
        let mut query = url.query_pairs_mut();
        query.append_pair("api-version", "2018-02-01");
        query.append_pair("resource", resource);
        if let Some(client_id) = client_id {
            query.append_pair("client_id", client_id);
        }
        drop(query);
        Self::new(Kind::AzureMachine { url })
    }

    /// Keys of AWS.
    pub fn aws(source: AwsSource) -> Result<Self, String> {
        Self::new(Kind::Aws(source))
    }

    fn new(kind: Kind) -> Result<Self, String> {
        let http = outgoing::client(CONNECT).map_err(|error| error.to_string())?;
        Ok(Self { http, kind })
    }

    /// Returns the issuer's kind, for the log.
    pub fn name(&self) -> &'static str {
        match &self.kind {
            Kind::Oauth { .. } => "oauth",
            Kind::GoogleAccount { .. } => "google",
            Kind::GoogleMachine { .. } => "google metadata",
            Kind::AzureMachine { .. } => "azure metadata",
            Kind::Aws(_) => "aws",
        }
    }

    /// Obtains a credential, and returns its lifetime.
    pub async fn obtain(&self) -> Result<(Minted, Duration), MintError> {
        match &self.kind {
            Kind::Oauth {
                url,
                form,
                client_secret,
                assertion_file,
            } => {
                let mut form = form.clone();
                if let Some(secret) = client_secret {
                    form.push(("client_secret", secret.expose().to_owned()));
                }
                if let Some(file) = assertion_file {
                    form.push(("client_assertion", read_file(file).await?));
                }
                self.token(self.post(url, &form)).await
            }
            Kind::GoogleAccount {
                url,
                email,
                key,
                key_id,
                scope,
            } => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                let iat = now.unwrap_or_default().as_secs();
                let claims = GoogleClaims {
                    iss: email,
                    scope,
                    aud: url.as_str(),
                    iat,
                    exp: iat + ASSERTION_SECONDS,
                };
                let mut header = Header::new(Algorithm::RS256);
                header.kid.clone_from(key_id);
                let assertion = jsonwebtoken::encode(&header, &claims, key);
                let assertion =
                    assertion.map_err(|_| MintError::Proof("cannot be signed".to_owned()))?;
                let grant = "urn:ietf:params:oauth:grant-type:jwt-bearer";
                let form = [("grant_type", grant.to_owned()), ("assertion", assertion)];
                self.token(self.post(url, &form)).await
            }
            Kind::GoogleMachine { url } => {
                let request = self.http.get(url.clone());
                self.token(request.header("metadata-flavor", "Google"))
                    .await
            }
            Kind::AzureMachine { url } => {
                self.token(self.http.get(url.clone()).header("metadata", "true"))
                    .await
            }
            Kind::Aws(source) => self.aws_keys(source).await,
        }
    }

    fn post(&self, url: &Url, form: &[(&str, String)]) -> fetch::RequestBuilder {
        let mut body = url::form_urlencoded::Serializer::new(String::new());
        body.extend_pairs(form);
        let request = self.http.post(url.clone());
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        request
            .header("accept", "application/json")
            .body(body.finish())
    }

    async fn token(&self, request: fetch::RequestBuilder) -> Result<(Minted, Duration), MintError> {
        let (_, body) = fetch::fetch(request).await?;
        let malformed = FetchError::Malformed("is no bearer token");
        let token: TokenResponse = serde_json::from_slice(&body).map_err(|_| malformed.clone())?;
        check(&token.access_token).ok_or(malformed)?;
        let seconds = token.expires_in.as_ref().and_then(|seconds| {
            let of_text = || seconds.as_str()?.parse().ok();
            seconds.as_u64().or_else(of_text)
        });
        let lifetime = seconds.map_or(USUAL_LIFETIME, Duration::from_secs);
        let token = MintedKind::Token(Secret::new(token.access_token));
        Ok((Minted(token), lifetime.min(LONGEST_LIFETIME)))
    }

    async fn aws_keys(&self, source: &AwsSource) -> Result<(Minted, Duration), MintError> {
        let response = match source {
            AwsSource::Keys {
                id,
                secret,
                session_token,
            } => {
                let keys = AwsKeys {
                    access_key_id: id.expose().to_owned(),
                    secret_access_key: secret.clone(),
                    session_token: session_token.clone(),
                };
                return Ok((Minted(MintedKind::Aws(keys)), LONGEST_LIFETIME));
            }
            AwsSource::WebIdentity {
                sts,
                role,
                session,
                file,
            } => {
                let form = [
                    ("Action", "AssumeRoleWithWebIdentity".to_owned()),
                    ("Version", "2011-06-15".to_owned()),
                    ("RoleArn", role.clone()),
                    ("RoleSessionName", session.clone()),
                    ("WebIdentityToken", read_file(file).await?),
                ];
                let (_, body) = fetch::fetch(self.post(sts, &form)).await?;
                of_xml(&body).ok_or(FetchError::Malformed("has no credentials"))?
            }
            AwsSource::Container {
                url,
                token,
                token_file,
            } => {
                let mut request = self.http.get(url.clone());
                if let Some(file) = token_file {
                    request = request.header("authorization", read_file(file).await?);
                } else if let Some(token) = token {
                    request = request.header("authorization", token.expose());
                }
                of_json(&fetch::fetch(request).await?.1)?
            }
            AwsSource::Machine { service } => self.of_machine(service).await?,
        };
        let AwsResponse {
            access_key_id,
            secret_access_key,
            token,
            expiration,
        } = response;
        let malformed = || FetchError::Malformed("has no usable credentials");
        check(&access_key_id).ok_or_else(malformed)?;
        if let Some(token) = &token {
            check(token).ok_or_else(malformed)?;
        }
        let lifetime = match expiration {
            None => USUAL_LIFETIME,
            Some(end) => {
                let end: Timestamp = end.parse().map_err(|_| malformed())?;
                let left = end.duration_since(Timestamp::now());
                Duration::try_from(left).map_err(|_| MintError::Expired)?
            }
        };
        let keys = AwsKeys {
            access_key_id,
            secret_access_key: Secret::new(secret_access_key),
            session_token: token.map(Secret::new),
        };
        Ok((
            Minted(MintedKind::Aws(keys)),
            lifetime.min(LONGEST_LIFETIME),
        ))
    }

    /// Asks the machine's metadata service, in its second version.
    async fn of_machine(&self, service: &Url) -> Result<AwsResponse, MintError> {
        let at = |path: &str| format!("{}{path}", service.as_str().trim_end_matches('/'));
        let token = self
            .http
            .put(at("/latest/api/token"))
            .header("x-aws-ec2-metadata-token-ttl-seconds", "300");
        let (_, token) = fetch::fetch(token).await?;
        let malformed = FetchError::Malformed("is no text");
        let token = String::from_utf8(token).map_err(|_| malformed.clone())?;
        let roles = "/latest/meta-data/iam/security-credentials/";
        let get = |path: &str| {
            let request = self.http.get(at(path));
            request.header("x-aws-ec2-metadata-token", token.as_str())
        };
        let (_, role) = fetch::fetch(get(roles)).await?;
        let role = String::from_utf8(role).map_err(|_| malformed)?;
        let role = role.lines().next().unwrap_or_default();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"+=,.@-_".contains(&byte);
        if role.is_empty() || !role.bytes().all(is_name) {
            return Err(FetchError::Malformed("names no role").into());
        }
        Ok(of_json(
            &fetch::fetch(get(&format!("{roles}{role}"))).await?.1,
        )?)
    }
}

impl AwsSource {
    /// Finds keys as AWS's SDKs do: in the environment, by a web identity, at the container's or the machine's metadata
    /// service.
    pub fn of_environment(
        region: &str,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        if let Some(id) = environment("AWS_ACCESS_KEY_ID") {
            let secret = environment("AWS_SECRET_ACCESS_KEY")
                .ok_or("the environment variable AWS_SECRET_ACCESS_KEY is not set")?;
            return Ok(Self::Keys {
                id: Secret::new(id),
                secret: Secret::new(secret),
                session_token: environment("AWS_SESSION_TOKEN").map(Secret::new),
            });
        }
        if let Some(file) = environment("AWS_WEB_IDENTITY_TOKEN_FILE") {
            let role = environment("AWS_ROLE_ARN")
                .ok_or("the environment variable AWS_ROLE_ARN is not set")?;
            let is_region = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            if region.is_empty() || !region.bytes().all(is_region) {
                return Err("`aws.region` is not a region".into());
            }
            let sts = environment("AWS_ENDPOINT_URL_STS")
                .unwrap_or_else(|| format!("https://sts.{region}.amazonaws.com/"));
            return Ok(Self::WebIdentity {
                sts: address("AWS_ENDPOINT_URL_STS", &sts)?,
                role,
                session: environment("AWS_ROLE_SESSION_NAME").unwrap_or_else(|| "weir".to_owned()),
                file: file.into(),
            });
        }
        let relative = environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
        let relative = relative.map(|path| format!("{CONTAINER}{path}"));
        if let Some(url) = relative.or_else(|| environment("AWS_CONTAINER_CREDENTIALS_FULL_URI")) {
            return Ok(Self::Container {
                url: metadata_address("AWS_CONTAINER_CREDENTIALS_FULL_URI", &url)?,
                token: environment("AWS_CONTAINER_AUTHORIZATION_TOKEN").map(Secret::new),
                token_file: environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
                    .map(PathBuf::from),
            });
        }
        let variable = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
        let service = environment(variable).unwrap_or_else(|| LINK_LOCAL.to_owned());
        Ok(Self::Machine {
            service: metadata_address(variable, &service)?,
        })
    }
}

/// Parses the address of an issuer.
fn address(setting: &str, url: &str) -> Result<Url, String> {
    fetch::parse_url(url).map_err(|why| format!("`{setting}` {why}"))
}

/// Parses the address of a metadata service, which may be link-local without TLS.
fn metadata_address(setting: &str, url: &str) -> Result<Url, String> {
    let parsed = Url::parse(url).ok().filter(|url| {
        let is_near = match url.host() {
            Some(Host::Domain(name)) => name == GOOGLE_MACHINE || name == "localhost",
            Some(Host::Ipv4(ip)) => ip.is_link_local() || ip.is_loopback(),
            Some(Host::Ipv6(ip)) => ip.is_loopback() || ip.is_unique_local(),
            None => false,
        };
        is_near && url.scheme() == "http" && url.username().is_empty() && url.password().is_none()
    });
    match parsed {
        Some(url) => Ok(url),
        None => address(setting, url),
    }
}

/// Checks that a value can stand in a header; it must not be guessed from a response's length either.
fn check(value: &str) -> Option<()> {
    let is_long = value.len() >= crate::redact::MIN_BYTES;
    (is_long && http::HeaderValue::from_str(value).is_ok()).then_some(())
}

fn of_json(body: &[u8]) -> Result<AwsResponse, FetchError> {
    serde_json::from_slice(body).map_err(|_| FetchError::Malformed("has no credentials"))
}

/// Reads the credentials of the token service's XML.
fn of_xml(body: &[u8]) -> Option<AwsResponse> {
    let text = std::str::from_utf8(body).ok()?;
    let value = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(rest.split_once(&format!("</{name}>"))?.0.to_owned())
    };
    Some(AwsResponse {
        access_key_id: value("AccessKeyId")?,
        secret_access_key: value("SecretAccessKey")?,
        token: value("SessionToken"),
        expiration: value("Expiration"),
    })
}

async fn read_file(file: &PathBuf) -> Result<String, MintError> {
    let text = tokio::fs::read_to_string(file).await;
    let text = text.map_err(|error| {
        MintError::Proof(format!("in {} cannot be read: {error}", file.display()))
    })?;
    Ok(text.trim().to_owned())
}
