//! The way from a command to a gateway: whom it asks, as whom, and what the answers say.
//!
//! A command of the machine that a gateway runs on goes through its admin socket, and needs no token: see
//! [`Connection::local`]. Those that services may use go to any gateway's port, with a service's token.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http::{Method, header};
use reqwest::Body;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixStream;
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

/// The arguments that name a gateway elsewhere, and the token to ask it with.
#[derive(clap::Args)]
pub(super) struct Remote {
    /// A gateway's public port, or its port for other services. Default: the gateway that runs here, through its admin
    /// socket.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// A file with a service's token whose scope is plugins:write. Not needed at the admin socket, nor in development
    /// mode, whose own issuer mints one.
    #[arg(long, value_name = "FILE", env = "WEIR_TOKEN_FILE")]
    token_file: Option<PathBuf>,
}

/// A successful answer.
pub(super) struct AnswerBody(Bytes);

/// An answer, read as what it should be, and as it came.
pub(super) struct GatewayAnswer<T> {
    pub(super) parsed: T,
    json: Value,
}

impl AnswerBody {
    /// Reads it.
    pub(super) fn parse<T: DeserializeOwned>(&self) -> anyhow::Result<GatewayAnswer<T>> {
        let json: Value =
            serde_json::from_slice(&self.0).context("the gateway's answer is no JSON")?;
        let parsed = T::deserialize(&json).context("the gateway is of another version")?;
        Ok(GatewayAnswer { parsed, json })
    }
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

/// A client of one gateway's `/admin`.
pub(super) struct Connection {
    http: Client,
    base: String,
    /// What proves who asks; nothing at the admin socket.
    token: Option<Secret>,
    /// What errors call the gateway.
    place: String,
}

impl Remote {
    /// Settles whom to ask: whoever the arguments name, or else the gateway that runs here. Whether one answers at a URL
    /// shows with the first call.
    pub(super) async fn connect(&self, config: &Config) -> anyhow::Result<Connection> {
        if self.url.is_none() && self.token_file.is_none() {
            return Connection::local(config).await;
        }
        let base = match &self.url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => default_url(config),
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
            place: base.clone(),
            base,
            token: Some(token),
        })
    }
}

impl Connection {
    /// The gateway that runs on this configuration's data folder, through its admin socket.
    pub(super) async fn local(config: &Config) -> anyhow::Result<Self> {
        let folder = config.data_dir.display();
        let path = config.admin_socket_path().with_context(|| {
            "the admin socket is off (`admin_socket = false`), and there is no other way for this command"
        })?;
        match UnixStream::connect(&path).await {
            Ok(_) => Self::at_socket(&path),
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => bail!(
                    "no gateway runs on the data folder {folder}: start one with `weir serve`, or name the \
                     configuration of the one that runs with --config"
                ),
                ErrorKind::PermissionDenied => bail!(
                    "{} is not yours to open: run this as the user whom the gateway runs as",
                    path.display()
                ),
                _ => Err(error).with_context(|| format!("connecting to {}", path.display())),
            },
        }
    }

    fn at_socket(path: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            http: outgoing::socket_client(path)?,
            base: "http://localhost".into(),
            token: None,
            place: path.display().to_string(),
        })
    }

    /// Asks for something.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> anyhow::Result<GatewayAnswer<T>> {
        self.send(Method::GET, path, None).await?.parse()
    }

    /// Posts JSON.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<GatewayAnswer<T>> {
        let body = Some(("application/json", body.to_string().into()));
        self.send(Method::POST, path, body).await?.parse()
    }

    /// Deletes something.
    pub(super) async fn delete(&self, path: &str) -> anyhow::Result<()> {
        self.send(Method::DELETE, path, None).await.map(drop)
    }

    /// Sends a request with its body's type and body, if it has one. An answer other than success is an error in the
    /// gateway's words.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Body)>,
    ) -> anyhow::Result<AnswerBody> {
        let url = format!("{}{path}", self.base);
        let url = Url::parse(&url).with_context(|| format!("{url} is no URL"))?;
        let mut request = self.http.request(method, url).timeout(ANSWER_TIMEOUT);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.expose());
        }
        if let Some((content_type, body)) = body {
            request = request
                .header(header::CONTENT_TYPE, content_type)
                .body(body);
        }
        let answer = async {
            let response = request.send().await?;
            let status = response.status();
            Ok((status, response.bytes().await?))
        };
        let (status, body) = answer.await.map_err(|error| self.explain(error))?;
        if status.is_success() {
            return Ok(AnswerBody(body));
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
            anyhow!("no gateway answers at {}; is it running?", self.place)
        } else if error.is_timeout() {
            anyhow!("the gateway does not answer")
        } else {
            anyhow!(outgoing::root_cause(error)).context("the gateway broke off")
        }
    }
}

/// Where the configuration has a gateway listen, as seen from this machine.
fn default_url(config: &Config) -> String {
    let mut address = config.listen;
    if address.ip().is_unspecified() {
        address.set_ip(match address.is_ipv4() {
            true => std::net::Ipv4Addr::LOCALHOST.into(),
            false => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    format!("http://{address}")
}
