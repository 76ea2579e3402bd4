//! What is asked of a registry, by the [distribution specification](https://github.com/opencontainers/distribution-spec):
//! manifests and blobs, fetched and put.
//!
//! **Invariant:** credentials and tokens go to the registry itself; credentials also to the issuer that it names for its
//! tokens. Neither follows a redirect, as registries give them to where their blobs lie.

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
use super::reference::{Reference, is_loopback};
use crate::cli::plugin::upload::Upload;

/// Bytes of the largest manifest, as most registries have it.
const MANIFEST_BYTES: usize = 4 << 20;

/// Bytes of what a registry says of an error, and of a token's issuer's answer.
const ANSWER_BYTES: usize = 64 << 10;

/// The time that connecting may take, that an answer may say nothing, and that one may take with its body.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(60);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// How often an answer may lead elsewhere.
const MAX_REDIRECTS: usize = 5;

/// A client of one repository.
pub(super) struct RegistryClient<'a> {
    http: Client,
    base: Url,
    reference: &'a Reference,
    /// What tokens are for: `pull`, or `pull,push`.
    actions: &'static str,
    plain_http: bool,
    /// What the registry takes, once it has asked for it.
    authorization: Option<HeaderValue>,
    /// Which credentials were looked for, once they were.
    found: Option<LoginLookup>,
}

/// A request, to be sent more than once where the registry wants to know first who asks.
struct Ask {
    method: Method,
    url: Url,
    accept: &'static str,
    body: Option<(&'static str, Bytes)>,
    /// How many bytes of the body are on their way.
    sent: Arc<AtomicUsize>,
}

impl Ask {
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
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

impl<'a> RegistryClient<'a> {
    pub(super) fn new(
        reference: &'a Reference,
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
    pub(super) async fn manifest(&mut self, wanted: &str) -> anyhow::Result<(Digest, Vec<u8>)> {
        let mut ask = Ask::new(Method::GET, self.url(&["manifests", wanted])?);
        ask.accept = ACCEPTED;
        let response = self.send(&ask).await?;
        let response = self.expect(response, StatusCode::OK).await?;
        let bytes = read(response, MANIFEST_BYTES, &AtomicUsize::new(0)).await;
        let bytes = bytes.context("its manifest")?;
        Ok((Digest::of(&bytes), bytes))
    }

    /// Puts a manifest under a tag.
    pub(super) async fn put_manifest(&mut self, tag: &str, manifest: Bytes) -> anyhow::Result<()> {
        let mut ask = Ask::new(Method::PUT, self.url(&["manifests", tag])?);
        ask.body = Some((MANIFEST, manifest));
        let response = self.send(&ask).await?;
        self.expect(response, StatusCode::CREATED).await.map(drop)
    }

    /// Fetches a blob of this digest and size.
    pub(super) async fn blob(
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
        let response = self.send(&Ask::new(Method::GET, url)).await?;
        let response = self.expect(response, StatusCode::OK).await?;
        let blob = read(response, bytes, received).await;
        let blob = blob.context("its component")?;
        let found = Digest::of(&blob);
        ensure!(
            found == digest,
            "the registry's component is another: its digest is sha256:{found} instead of sha256:{digest}"
        );
        Ok(blob)
    }

    /// Puts a blob there, unless it is there.
    pub(super) async fn put_blob(
        &mut self,
        blob: Bytes,
        sent: &Arc<AtomicUsize>,
    ) -> anyhow::Result<()> {
        let digest = format!("sha256:{}", Digest::of(&blob));
        let known = Ask::new(Method::HEAD, self.url(&["blobs", &digest])?);
        // What else it may say to HEAD, it says again below, with words.
        if self.send(&known).await?.status() == StatusCode::OK {
            return Ok(());
        }
        let begin = Ask::new(Method::POST, self.url(&["blobs", "uploads", ""])?);
        let response = self.send(&begin).await?;
        let response = self.expect(response, StatusCode::ACCEPTED).await?;
        let mut url = self.leads_to(&begin.url, response.headers())?;
        url.query_pairs_mut().append_pair("digest", &digest);
        let mut ask = Ask::new(Method::PUT, url);
        ask.body = Some(("application/octet-stream", blob));
        ask.sent = sent.clone();
        let response = self.send(&ask).await?;
        self.expect(response, StatusCode::CREATED).await.map(drop)
    }

    /// `/v2/NAME/…`
    fn url(&self, segments: &[&str]) -> anyhow::Result<Url> {
        let path = format!("{}/{}", self.reference.name, segments.join("/"));
        Ok(self.base.join(&path)?)
    }

    /// Sends a request: with what the registry wants to know of who asks, and on to where it leads.
    async fn send(&mut self, ask: &Ask) -> anyhow::Result<Response> {
        let mut url = ask.url.clone();
        let (mut has_proved, mut redirects) = (false, 0);
        loop {
            let is_own = url.origin() == self.base.origin();
            let mut request = self
                .http
                .request(ask.method.clone(), url.clone())
                .header(header::ACCEPT, ask.accept)
                .timeout(ANSWER_TIMEOUT);
            if is_own && let Some(authorization) = &self.authorization {
                request = request.header(header::AUTHORIZATION, authorization.clone());
            }
            if let Some((media_type, body)) = &ask.body {
                ask.sent.store(0, Ordering::Relaxed);
                let body = Upload::new(body.clone(), ask.sent.clone());
                request = request
                    .header(header::CONTENT_TYPE, *media_type)
                    .body(Body::wrap(body));
            }
            let response = request
                .send()
                .await
                .map_err(|error| unanswered(&url, error))?;
            let status = response.status();
            if status == StatusCode::UNAUTHORIZED && !is_own {
                bail!(
                    "the registry leads to {}, which asks for credentials: it gets none",
                    place(&url)
                );
            } else if status == StatusCode::UNAUTHORIZED && !has_proved {
                has_proved = true;
                self.authorize(response.headers()).await?;
            } else if status.is_redirection() && ask.body.is_none() {
                redirects += 1;
                ensure!(
                    redirects <= MAX_REDIRECTS,
                    "the registry leads elsewhere more than {MAX_REDIRECTS} times"
                );
                url = self.leads_to(&url, response.headers())?;
            } else {
                return Ok(response);
            }
        }
    }

    /// Where an answer leads: by TLS, as long as the registry itself is asked so.
    fn leads_to(&self, from: &Url, headers: &HeaderMap) -> anyhow::Result<Url> {
        let location = headers.get(header::LOCATION);
        let location = location.and_then(|location| location.to_str().ok());
        let location = location.context("the registry leads elsewhere, and does not say where")?;
        let to = from.join(location).map_err(|error| {
            anyhow!(
                "the registry leads to {}: {error}",
                printable(location, 200)
            )
        })?;
        self.check_place(&to)
            .with_context(|| format!("the registry leads to {}", place(&to)))?;
        Ok(to)
    }

    /// Whether a registry may name this place: `https`, or `http` where the registry itself is asked so, on this machine or
    /// since that was asked for.
    fn check_place(&self, url: &Url) -> anyhow::Result<()> {
        let may_be_plain = self.base.scheme() == "http" && (self.plain_http || is_loopback(url));
        match url.scheme() {
            "https" => {}
            "http" if may_be_plain => {}
            "http" => bail!("which is not asked in the clear; see --plain-http"),
            scheme => bail!("whose scheme is {}, and not https", printable(scheme, 40)),
        }
        ensure!(
            url.username().is_empty() && url.password().is_none(),
            "which holds credentials"
        );
        Ok(())
    }

    /// Finds out what the registry wants to be shown.
    async fn authorize(&mut self, headers: &HeaderMap) -> anyhow::Result<()> {
        let challenge = Challenge::best(headers).with_context(|| {
            format!(
                "the registry {} asks for a proof of another kind than Bearer and Basic",
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
                "the registry {} wants a name and a password: {}",
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
            .map_err(|_| anyhow!("what the registry wants to be shown is no header"))?;
        value.set_sensitive(true);
        self.authorization = Some(value);
        Ok(())
    }

    /// Asks the registry's issuer for a token: for this repository, whatever the registry would have it ask for.
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
        let response = response.map_err(|error| unanswered(&url, error))?;
        let status = response.status();
        if status != StatusCode::OK {
            let said = said(response).await;
            bail!(
                "its issuer at {} answers {status}{said}; {}",
                place(&url),
                self.who()
            );
        }
        let answer = read(response, ANSWER_BYTES, &AtomicUsize::new(0)).await;
        let answer = answer.context("its issuer's answer")?;
        // What it holds is not shown.
        let answer: TokenAnswer = serde_json::from_slice(&answer)
            .map_err(|_| anyhow!("its issuer's answer is no JSON with a token"))?;
        let token = answer.token.or(answer.access_token);
        token.context("its issuer's answer has no token")
    }

    /// An answer of this status; any other is an error in the registry's words.
    async fn expect(&self, response: Response, expected: StatusCode) -> anyhow::Result<Response> {
        let status = response.status();
        if status == expected {
            return Ok(response);
        }
        let at = place(response.url());
        let said = said(response).await;
        match status {
            StatusCode::NOT_FOUND => bail!("the registry has no such thing{said}"),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                bail!("the registry refuses, with {status}{said}; {}", self.who())
            }
            _ => bail!("{at} answers {status}{said}"),
        }
    }

    /// As whom the registry was asked.
    fn who(&self) -> String {
        match &self.found {
            None => "it was asked without credentials".to_owned(),
            Some(LoginLookup {
                login: None,
                looked_in,
            }) => format!(
                "there are no credentials for {} in {looked_in}: `docker login`, or the like, leaves some there",
                self.reference.registry
            ),
            Some(LoginLookup {
                login: Some(Login::Password { user, .. }),
                looked_in,
            }) => format!("it was asked as {user}, by {looked_in}"),
            Some(LoginLookup { looked_in, .. }) => {
                format!("it was asked with the identity token of {looked_in}")
            }
        }
    }
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64.encode(format!("{user}:{password}")))
}

/// A URL's scheme, host and port: the rest may be a secret.
fn place(url: &Url) -> String {
    match url.host_str() {
        Some(_) => url.origin().ascii_serialization(),
        None => printable(url.scheme(), 40) + ":",
    }
}

fn unanswered(url: &Url, error: reqwest::Error) -> anyhow::Error {
    let place = place(url);
    if error.is_connect() {
        anyhow!(outgoing::root_cause(error)).context(format!("{place} cannot be reached"))
    } else if error.is_timeout() {
        anyhow!("{place} does not answer")
    } else {
        anyhow!(outgoing::root_cause(error)).context(format!("{place} broke off"))
    }
}

/// Reads a body, unless it is larger than it may be.
async fn read(
    mut response: Response,
    most: usize,
    received: &AtomicUsize,
) -> anyhow::Result<Vec<u8>> {
    let url = response.url().clone();
    let mut body = Vec::new();
    loop {
        let piece = tokio::time::timeout(SILENCE, response.chunk()).await;
        let piece = piece.map_err(|_| anyhow!("{} fell silent", place(&url)))?;
        let Some(piece) = piece.map_err(|error| unanswered(&url, error))? else {
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

/// What a registry says of an error, if it does: `: CODE: message`.
async fn said(response: Response) -> String {
    let body = read(response, ANSWER_BYTES, &AtomicUsize::new(0)).await;
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
