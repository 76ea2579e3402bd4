//! The client of a registry, by the [distribution specification](https://github.com/opencontainers/distribution-spec): it gets and
//! puts manifests and blobs.
//!
//! **Invariant:** credentials and tokens go to the registry itself; credentials also go to the token issuer that the registry names.
//! Neither goes to the target of a redirect. Registries redirect to the storage of their blobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use reqwest::{Body, Response};
use serde::Deserialize;
use serde_json::Value;
use url::{Url, form_urlencoded};
use weir_outgoing::{self as outgoing, Client};
use weir_sandbox::limits::COMPONENT_BYTES;
use weir_sandbox::{Digest, printable};

use super::artifact::{ACCEPTED, MANIFEST};
use super::authorization::Challenge;
use super::credentials::{self, Login, LoginLookup};
use super::reference::{ArtifactReference, is_loopback};
use crate::transfer::CountedBody;

/// Bytes of the largest manifest; most registries have this limit.
const MANIFEST_BYTES: usize = 4 << 20;

/// Bytes of an error response, and of a response from a token issuer.
const RESPONSE_BYTES: usize = 64 << 10;

/// The time limits of a connection, of a pause in a response, and of a complete response.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(60);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// The most redirects of one request.
const MAX_REDIRECTS: usize = 5;

pub(crate) struct RegistryClient<'a> {
    http: Client,
    base: Url,
    reference: &'a ArtifactReference,
    /// The scope of tokens: `pull`, or `pull,push`.
    actions: &'static str,
    plain_http: bool,
    /// The `authorization` header, after the registry's challenge.
    authorization: Option<HeaderValue>,
    /// The credentials, after the search for them.
    found: Option<LoginLookup>,
}

/// A request. It is sent again after a challenge of the registry.
struct RegistryRequest {
    method: Method,
    url: Url,
    accept: &'static str,
    body: Option<(&'static str, Bytes)>,
    /// Counts the sent bytes of the body.
    sent: Arc<AtomicUsize>,
}

impl RegistryRequest {
    fn new(method: Method, url: Url) -> Self {
        Self {
            method,
            url,
            accept: "*/*",
            body: None,
            sent: Arc::default(),
        }
    }
}

#[derive(Deserialize)]
struct TokenResponse {
    token: Option<String>,
    access_token: Option<String>,
}

impl<'a> RegistryClient<'a> {
    pub(crate) fn new(
        reference: &'a ArtifactReference,
        actions: &'static str,
        plain_http: bool,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            http: outgoing::client(CONNECT_TIMEOUT)?,
            base: reference.base(plain_http)?,
            reference,
            actions,
            plain_http,
            authorization: None,
            found: None,
        })
    }

    /// Fetches a manifest by its tag or digest.
    pub(crate) async fn manifest(&mut self, wanted: &str) -> anyhow::Result<(Digest, Vec<u8>)> {
        let mut request = RegistryRequest::new(Method::GET, self.url(&["manifests", wanted])?);
        request.accept = ACCEPTED;
        let response = self.send(&request).await?;
        let response = self.expect(response, StatusCode::OK).await?;
        let bytes = read(response, MANIFEST_BYTES, &AtomicUsize::new(0)).await;
        let bytes = bytes.context("its manifest")?;
        Ok((Digest::of(&bytes), bytes))
    }

    pub(crate) async fn put_manifest(&mut self, tag: &str, manifest: Bytes) -> anyhow::Result<()> {
        let mut request = RegistryRequest::new(Method::PUT, self.url(&["manifests", tag])?);
        request.body = Some((MANIFEST, manifest));
        let response = self.send(&request).await?;
        self.expect(response, StatusCode::CREATED).await.map(drop)
    }

    /// Fetches a blob of this digest and size.
    pub(crate) async fn blob(
        &mut self,
        digest: Digest,
        bytes: usize,
        received: &AtomicUsize,
    ) -> anyhow::Result<Vec<u8>> {
        ensure!(
            bytes <= COMPONENT_BYTES,
            "a component has at most {COMPONENT_BYTES} bytes"
        );
        let url = self.url(&["blobs", &format!("sha256:{digest}")])?;
        let response = self.send(&RegistryRequest::new(Method::GET, url)).await?;
        let response = self.expect(response, StatusCode::OK).await?;
        let blob = read(response, bytes, received).await;
        let blob = blob.context("its component")?;
        let found = Digest::of(&blob);
        ensure!(
            found == digest,
            "the registry's component has another digest: sha256:{found} instead of sha256:{digest}"
        );
        Ok(blob)
    }

    /// Puts a blob, unless the registry has it.
    pub(crate) async fn put_blob(
        &mut self,
        blob: Bytes,
        sent: &Arc<AtomicUsize>,
    ) -> anyhow::Result<()> {
        let digest = format!("sha256:{}", Digest::of(&blob));
        let known = RegistryRequest::new(Method::HEAD, self.url(&["blobs", &digest])?);
        // The next request repeats any error of HEAD, with a message.
        if self.send(&known).await?.status() == StatusCode::OK {
            return Ok(());
        }
        let begin = RegistryRequest::new(Method::POST, self.url(&["blobs", "uploads", ""])?);
        let response = self.send(&begin).await?;
        let response = self.expect(response, StatusCode::ACCEPTED).await?;
        let mut url = self.location(&begin.url, response.headers())?;
        url.query_pairs_mut().append_pair("digest", &digest);
        let mut request = RegistryRequest::new(Method::PUT, url);
        request.body = Some(("application/octet-stream", blob));
        request.sent = sent.clone();
        let response = self.send(&request).await?;
        self.expect(response, StatusCode::CREATED).await.map(drop)
    }

    /// Returns `/v2/NAME/…`.
    fn url(&self, segments: &[&str]) -> anyhow::Result<Url> {
        let path = format!("{}/{}", self.reference.name, segments.join("/"));
        Ok(self.base.join(&path)?)
    }

    /// Sends a request, answers a challenge once, and follows redirects.
    async fn send(&mut self, to_send: &RegistryRequest) -> anyhow::Result<Response> {
        let mut url = to_send.url.clone();
        let (mut has_proved, mut redirects) = (false, 0);
        loop {
            let is_own = url.origin() == self.base.origin();
            let mut request = self
                .http
                .request(to_send.method.clone(), url.clone())
                .header(header::ACCEPT, to_send.accept)
                .timeout(RESPONSE_TIMEOUT);
            if is_own && let Some(authorization) = &self.authorization {
                request = request.header(header::AUTHORIZATION, authorization.clone());
            }
            if let Some((media_type, body)) = &to_send.body {
                to_send.sent.store(0, Ordering::Relaxed);
                let body = CountedBody::new(body.clone(), to_send.sent.clone());
                request = request
                    .header(header::CONTENT_TYPE, *media_type)
                    .body(Body::wrap(body));
            }
            let response = request
                .send()
                .await
                .map_err(|error| send_error(&url, error))?;
            let status = response.status();
            if status == StatusCode::UNAUTHORIZED && !is_own {
                bail!(
                    "the registry redirects to {}, which asks for credentials: it gets none",
                    place(&url)
                );
            } else if status == StatusCode::UNAUTHORIZED && !has_proved {
                has_proved = true;
                self.authorize(response.headers()).await?;
            } else if status.is_redirection() && to_send.body.is_none() {
                redirects += 1;
                ensure!(
                    redirects <= MAX_REDIRECTS,
                    "the registry redirects more than {MAX_REDIRECTS} times"
                );
                url = self.location(&url, response.headers())?;
            } else {
                return Ok(response);
            }
        }
    }

    /// Returns the target of a redirect or an upload. It has TLS if the registry has.
    fn location(&self, from: &Url, headers: &HeaderMap) -> anyhow::Result<Url> {
        let location = headers.get(header::LOCATION);
        let location = location.and_then(|location| location.to_str().ok());
        let location = location.context("the registry's response has no location")?;
        let to = from.join(location).map_err(|error| {
            anyhow!(
                "the registry redirects to {}: {error}",
                printable(location, 200)
            )
        })?;
        self.check_place(&to)
            .with_context(|| format!("the registry redirects to {}", place(&to)))?;
        Ok(to)
    }

    /// Checks a URL that a registry names. It is `https`; or `http`, if the registry itself is `http` and the URL is on this machine
    /// or the user allows plain HTTP.
    fn check_place(&self, url: &Url) -> anyhow::Result<()> {
        let may_be_plain = self.base.scheme() == "http" && (self.plain_http || is_loopback(url));
        match url.scheme() {
            "https" => {}
            "http" if may_be_plain => {}
            "http" => bail!("which has no TLS; see --plain-http"),
            scheme => bail!("whose scheme is {}, and not https", printable(scheme, 40)),
        }
        ensure!(
            url.username().is_empty() && url.password().is_none(),
            "which holds credentials"
        );
        Ok(())
    }

    /// Answers the registry's challenge.
    async fn authorize(&mut self, headers: &HeaderMap) -> anyhow::Result<()> {
        let challenge = Challenge::best(headers).with_context(|| {
            format!(
                "the registry {} offers neither Bearer nor Basic authentication",
                self.reference.registry
            )
        })?;
        if self.found.is_none() {
            self.found = Some(credentials::find(&self.reference.registry).await?);
        }
        let login = self.found.as_ref().and_then(|found| found.login.as_ref());
        let value = match (challenge, login) {
            (Challenge::Basic, Some(Login::Password { user, password })) => {
                basic(user, password.expose())
            }
            (Challenge::Basic, _) => bail!(
                "the registry {} needs a name and a password: {}",
                self.reference.registry,
                self.who()
            ),
            (Challenge::Bearer { realm, service }, login) => {
                let token = self.token(&realm, service.as_deref(), login).await;
                let token = token.with_context(|| {
                    format!("no token for the registry {}", self.reference.registry)
                })?;
                format!("Bearer {token}")
            }
        };
        let mut value = HeaderValue::try_from(value)
            .map_err(|_| anyhow!("the registry's token does not fit into a header"))?;
        value.set_sensitive(true);
        self.authorization = Some(value);
        Ok(())
    }

    /// Gets a token from the registry's issuer. The scope is this repository; a scope that the registry names is ignored.
    async fn token(
        &self,
        realm: &str,
        service: Option<&str>,
        login: Option<&Login>,
    ) -> anyhow::Result<String> {
        let mut url = Url::parse(realm)
            .map_err(|error| anyhow!("its issuer is {}: {error}", printable(realm, 200)))?;
        self.check_place(&url)
            .with_context(|| format!("its issuer is at {}", place(&url)))?;
        let scope = format!("repository:{}:{}", self.reference.name, self.actions);
        let named = [("service", service), ("scope", Some(&*scope))];
        let named = named.into_iter();
        let named = named.filter_map(|(name, value)| Some((name, value?)));
        let request = match login {
            Some(Login::IdentityToken(token)) => {
                let form = form_urlencoded::Serializer::new(String::new())
                    .extend_pairs(named)
                    .append_pair("client_id", "weir")
                    .append_pair("grant_type", "refresh_token")
                    .append_pair("refresh_token", token.expose())
                    .finish();
                self.http
                    .post(url.clone())
                    .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
                    .body(form)
            }
            login => {
                url.query_pairs_mut().extend_pairs(named);
                let mut request = self.http.get(url.clone());
                if let Some(Login::Password { user, password }) = login {
                    request = request.header(header::AUTHORIZATION, basic(user, password.expose()));
                }
                request
            }
        };
        let response = request.timeout(SILENCE).send().await;
        let response = response.map_err(|error| send_error(&url, error))?;
        let status = response.status();
        if status != StatusCode::OK {
            let said = said(response).await;
            bail!(
                "its issuer at {} responds with {status}{said}; {}",
                place(&url),
                self.who()
            );
        }
        let body = read(response, RESPONSE_BYTES, &AtomicUsize::new(0)).await;
        let body = body.context("its issuer's response")?;
        // An error must not show the response, which may hold a token.
        let parsed: TokenResponse = serde_json::from_slice(&body)
            .map_err(|_| anyhow!("its issuer's response is not JSON with a token"))?;
        let token = parsed.token.or(parsed.access_token);
        token.context("its issuer's response has no token")
    }

    /// Returns a response with this status. Any other status is an error with the registry's message.
    async fn expect(&self, response: Response, expected: StatusCode) -> anyhow::Result<Response> {
        let status = response.status();
        if status == expected {
            return Ok(response);
        }
        let at = place(response.url());
        let said = said(response).await;
        match status {
            StatusCode::NOT_FOUND => bail!("the registry has no such artifact{said}"),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                bail!("the registry refuses, with {status}{said}; {}", self.who())
            }
            _ => bail!("{at} responds with {status}{said}"),
        }
    }

    /// Describes the credentials of the requests.
    fn who(&self) -> String {
        match &self.found {
            None => "the request had no credentials".to_owned(),
            Some(LoginLookup {
                login: None,
                looked_in,
            }) => format!(
                "there are no credentials for {} in {looked_in}; to add some, run `docker login`",
                self.reference.registry
            ),
            Some(LoginLookup {
                login: Some(Login::Password { user, .. }),
                looked_in,
            }) => format!("the request was from {user}, by {looked_in}"),
            Some(LoginLookup { looked_in, .. }) => {
                format!("the request had the identity token of {looked_in}")
            }
        }
    }
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64.encode(format!("{user}:{password}")))
}

/// Returns the scheme, host and port of a URL. The rest may be a secret.
fn place(url: &Url) -> String {
    match url.host_str() {
        Some(_) => url.origin().ascii_serialization(),
        None => printable(url.scheme(), 40) + ":",
    }
}

fn send_error(url: &Url, error: reqwest::Error) -> anyhow::Error {
    let place = place(url);
    if error.is_connect() {
        anyhow!(outgoing::root_cause(error)).context(format!("{place} cannot be reached"))
    } else if error.is_timeout() {
        anyhow!("{place} does not respond")
    } else {
        anyhow!(outgoing::root_cause(error)).context(format!("{place} closed the connection"))
    }
}

/// Reads a body up to a size limit.
async fn read(
    mut response: Response,
    most: usize,
    received: &AtomicUsize,
) -> anyhow::Result<Vec<u8>> {
    let url = response.url().clone();
    let mut body = Vec::new();
    loop {
        let piece = tokio::time::timeout(SILENCE, response.chunk()).await;
        let piece = piece.map_err(|_| anyhow!("{} stopped sending", place(&url)))?;
        let Some(piece) = piece.map_err(|error| send_error(&url, error))? else {
            return Ok(body);
        };
        ensure!(
            piece.len() <= most - body.len(),
            "{} sends more than {most} bytes",
            place(&url)
        );
        body.extend_from_slice(&piece);
        received.store(body.len(), Ordering::Relaxed);
    }
}

/// Returns the registry's message for an error, as `: CODE: message`, or nothing.
async fn said(response: Response) -> String {
    let body = read(response, RESPONSE_BYTES, &AtomicUsize::new(0)).await;
    let json: Value = serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default();
    let error = match &json["errors"][0] {
        Value::Null => &json,
        error => error,
    };
    let texts = [&error["code"], &error["message"], &error["details"]];
    let texts = texts.into_iter().filter_map(Value::as_str);
    texts
        .map(|text| format!(": {}", printable(text, 200)))
        .collect()
}
