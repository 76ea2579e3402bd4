//! The way from a command to a running gateway: whom it asks, as whom, and what the answers say.

use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http::{Method, header};
use http_body::{Frame, SizeHint};
use reqwest::Body;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use crate::config::Config;
use crate::identity::dev_issuer::{DevAudience, SERVICE_EMAIL};
use crate::outgoing::{self, Client};
use weir_storage::clock::Millis;
use weir_storage::secrets::Secret;

/// The time that connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The time that an answer may take: as long as compiling may, and some.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Bytes of a body that are handed to the connection in one go.
const PIECE_BYTES: usize = 64 << 10;

/// How often a terminal is shown how far an upload is.
const SHOW_EVERY: Duration = Duration::from_millis(200);

/// The arguments that name a gateway, and the token to ask it with.
#[derive(clap::Args)]
pub(in crate::cli) struct Gateway {
    /// The gateway; its public port, or its port for other services. Default: where the configuration has it listen.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// A file with a service's token whose scope is plugins:write. Not needed in development mode, whose own issuer
    /// mints one.
    #[arg(long, value_name = "FILE", env = "WEIR_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Print the gateway's answer as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// An answer, read as what it should be, and as it came.
pub(super) struct GatewayAnswer<T> {
    pub(super) parsed: T,
    json: Value,
}

impl<T> GatewayAnswer<T> {
    /// Prints it as it came, or has `print` do so for people.
    pub(super) fn show(&self, as_json: bool, print: impl FnOnce(&T)) {
        match as_json {
            true => println!("{:#}", self.json),
            false => print(&self.parsed),
        }
    }
}

/// A client of one gateway's `/admin/plugins`.
pub(super) struct Connection {
    http: Client,
    base: String,
    token: Secret,
}

impl Gateway {
    /// Settles the address and the token; whether a gateway answers there shows with the first call.
    pub(super) fn connect(&self, config: &Config) -> anyhow::Result<Connection> {
        let base = match &self.url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => {
                let mut address = config.listen;
                if address.ip().is_unspecified() {
                    address.set_ip(match address.is_ipv4() {
                        true => std::net::Ipv4Addr::LOCALHOST.into(),
                        false => std::net::Ipv6Addr::LOCALHOST.into(),
                    });
                }
                format!("http://{address}")
            }
        };
        let token = match &self.token_file {
            Some(file) => {
                let token = std::fs::read_to_string(file)
                    .with_context(|| format!("reading {}", file.display()))?;
                Secret::new(token.trim().to_owned())
            }
            None => {
                let issuer = config.dev_issuer()?.context(
                    "name a service's token with --token-file; only development mode has an issuer of its own",
                )?;
                let scopes = ["plugins:write".to_owned()];
                issuer.service_token(DevAudience::Api, SERVICE_EMAIL, &scopes, Millis::now())?
            }
        };
        Ok(Connection {
            http: outgoing::client(CONNECT_TIMEOUT)?,
            base,
            token,
        })
    }
}

impl Connection {
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> anyhow::Result<GatewayAnswer<T>> {
        parse(&self.send(Method::GET, path, None, Body::default()).await?)
    }

    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<GatewayAnswer<T>> {
        let body = body.to_string().into();
        let answer = self.send(Method::POST, path, Some("application/json"), body);
        parse(&answer.await?)
    }

    pub(super) async fn delete(&self, path: &str) -> anyhow::Result<()> {
        let answer = self.send(Method::DELETE, path, None, Body::default());
        answer.await.map(drop)
    }

    /// Sends a component, and says on standard error how far that is.
    pub(super) async fn upload<T: DeserializeOwned>(
        &self,
        path: &str,
        component: Bytes,
    ) -> anyhow::Result<GatewayAnswer<T>> {
        let total = component.len();
        let body = Upload::new(component);
        let sent = body.sent.clone();
        let answer = self.send(
            Method::PUT,
            path,
            Some("application/wasm"),
            Body::wrap(body),
        );
        parse(&watched(answer, &sent, total).await?)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: Option<&str>,
        body: Body,
    ) -> anyhow::Result<Bytes> {
        let url = format!("{}/admin/plugins{path}", self.base);
        let url = Url::parse(&url).with_context(|| format!("{url} is no URL"))?;
        let mut request = self
            .http
            .request(method, url)
            .bearer_auth(self.token.expose())
            .timeout(ANSWER_TIMEOUT)
            .body(body);
        if let Some(content_type) = content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        let answer = async {
            let response = request.send().await?;
            let status = response.status();
            Ok((status, response.bytes().await?))
        };
        let (status, body) = answer.await.map_err(|error| self.explain(error))?;
        if status.is_success() {
            return Ok(body);
        }
        let json: Value = serde_json::from_slice(&body).unwrap_or_default();
        let error = &json["error"];
        match (error["code"].as_str(), error["message"].as_str()) {
            (Some(code), Some(message)) => bail!("{code}: {message}"),
            _ => bail!("the gateway answers with {status}"),
        }
    }

    fn explain(&self, error: reqwest::Error) -> anyhow::Error {
        if error.is_connect() {
            anyhow!("no gateway answers at {}; is it running?", self.base)
        } else if error.is_timeout() {
            anyhow!("the gateway does not answer")
        } else {
            anyhow!(outgoing::root_cause(error)).context("the gateway broke off")
        }
    }
}

fn parse<T: DeserializeOwned>(body: &Bytes) -> anyhow::Result<GatewayAnswer<T>> {
    let json: Value = serde_json::from_slice(body).context("the gateway's answer is no JSON")?;
    let parsed = T::deserialize(&json).context("the gateway is of another version")?;
    Ok(GatewayAnswer { parsed, json })
}

/// Waits for the answer to an upload. A terminal sees how far it is; anything else gets a line for each step.
async fn watched<T>(answer: impl Future<Output = T>, sent: &AtomicUsize, total: usize) -> T {
    let mut stderr = std::io::stderr();
    let is_terminal = stderr.is_terminal();
    let mut answer = std::pin::pin!(answer);
    let mut ticks = tokio::time::interval(SHOW_EVERY);
    let mut uploaded_at = None;
    let mut last = String::new();
    loop {
        tokio::select! {
            answer = &mut answer => {
                if is_terminal {
                    let _ = write!(stderr, "\r\x1b[K");
                }
                return answer;
            }
            _ = ticks.tick() => {}
        }
        let sent = sent.load(Ordering::Relaxed);
        let line = if sent < total {
            let percent = 100 * sent / total.max(1);
            match is_terminal {
                true => format!("Uploading {} … {percent} %", size(total)),
                false => format!("Uploading {} …", size(total)),
            }
        } else {
            let since = uploaded_at.get_or_insert_with(Instant::now).elapsed();
            match is_terminal {
                true => format!("Compiling and checking … {} s", since.as_secs()),
                false => "Compiling and checking …".to_owned(),
            }
        };
        if line != last {
            let _ = match is_terminal {
                true => write!(stderr, "\r\x1b[K{line}"),
                false => writeln!(stderr, "{line}"),
            };
            let _ = stderr.flush();
            last = line;
        }
    }
}

fn size(bytes: usize) -> String {
    match bytes {
        0..1_000_000 => format!("{:.1} KB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// A body that counts what the connection has taken of it.
struct Upload {
    bytes: Bytes,
    sent: Arc<AtomicUsize>,
}

impl Upload {
    fn new(bytes: Bytes) -> Self {
        Self {
            bytes,
            sent: Arc::default(),
        }
    }
}

impl http_body::Body for Upload {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.bytes.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.bytes.len().min(PIECE_BYTES);
        let piece = self.bytes.split_to(length);
        self.sent.fetch_add(length, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}
