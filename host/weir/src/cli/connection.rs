//! Connections from a command to a gateway: the gateway's address, the command's credential, and the gateway's
//! responses.
//!
//! Commands about the gateway on this machine use its admin socket and need no token: see [`operate`]. Commands that
//! services may run use any gateway's port, with a service's token.
//!
//! While no gateway runs, a command changes the stores itself through the same routes, called in this process. Commands
//! about users, keys and records do so if the database exists; the remaining commands need `--offline`. A command in
//! the wrong folder therefore creates no gateway data.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use axum::Router;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use reqwest::{Body, RequestBuilder};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixStream;
use tower_service::Service;
use url::Url;
use weir_app::config::Config;
use weir_app::{App, open_core};
use weir_console::admin::gateway::GatewayAddress;
use weir_errors::ApiError;
use weir_identity::admin::LocalPeer;
use weir_identity::dev_issuer::{DevAudience, SERVICE_EMAIL};
use weir_outgoing::{self as outgoing, Client};
use weir_plugins::progress::CompileProgress;
use weir_request::listen_address::reachable;
use weir_request::node::Core;
use weir_storage::clock::Millis;
use weir_storage::database::{self, DatabaseInUse};
use weir_storage::file_lock::FileLock;
use weir_storage::secrets::Secret;

use crate::cli::bundle::bundle;
use crate::cli::user_folder::shared_code;
use crate::{router, server};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Response timeout: longer than the compilation of a plugin.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Time that a starting or stopping gateway has until it responds or releases its lock.
const GATEWAY_PATIENCE: Duration = Duration::from_secs(5);

/// Arguments that name a remote gateway and the token for it.
#[derive(clap::Args)]
pub(super) struct RemoteArguments {
    /// The URL of a remote gateway: its public port, or its port for services. Default: the gateway on this machine,
    /// through its admin socket.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// A file with a service's token that has the scope plugins:write. The admin socket needs none; in development mode
    /// the local issuer mints one.
    #[arg(long, value_name = "FILE", env = "WEIR_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    offline: OfflineArgument,
}

/// Whether a command may work without a gateway.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct OfflineArgument {
    /// Change the configuration's database directly while no gateway runs; create the database if it does not exist.
    #[arg(long, global = true)]
    offline: bool,
}

/// Commands about a gateway's users, keys and records.
#[derive(clap::Args)]
pub(super) struct OperatorCommand<C: clap::Subcommand> {
    #[command(subcommand)]
    pub(super) command: C,
    #[command(flatten)]
    pub(super) offline: OfflineArgument,
}

/// The body of a successful response.
pub(super) struct ResponseContent(Bytes);

/// A response body, parsed and raw.
pub(super) struct GatewayAnswer<T> {
    pub(super) parsed: T,
    json: Value,
}

impl ResponseContent {
    pub(super) fn parse<T: DeserializeOwned>(&self) -> anyhow::Result<GatewayAnswer<T>> {
        let json: Value =
            serde_json::from_slice(&self.0).context("the gateway's response is not JSON")?;
        let parsed = T::deserialize(&json).context("the gateway has another version")?;
        Ok(GatewayAnswer { parsed, json })
    }
}

impl<T> GatewayAnswer<T> {
    /// Prints the body as JSON, or calls `print` with the parsed body.
    pub(super) fn show(&self, as_json: bool, print: impl FnOnce(&T)) {
        match as_json {
            true => println!("{:#}", self.json),
            false => print(&self.parsed),
        }
    }
}

/// The parts of a gateway that a command uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequiredParts {
    /// Users, keys and records.
    Stores,
    /// Users, keys and records, and slots with the plugins that can be installed.
    Plugins,
}

/// A client of one gateway's `/admin` or, while no gateway runs, of the same routes in this process.
pub(super) struct AdminConnection {
    way: AdminTransport,
    /// The gateway's name in errors.
    place: String,
}

enum AdminTransport {
    Http {
        http: Client,
        base: String,
        /// The token that authenticates the command; `None` at the admin socket.
        token: Option<Secret>,
    },
    InProcess(InProcessGateway),
}

/// The parts that serve a command while no gateway runs.
struct InProcessGateway {
    routes: Router,
    running: LocalGateway,
    /// Keeps gateways off a SQLite file: a gateway that starts meanwhile would not see the change.
    _working: Option<FileLock>,
}

enum LocalGateway {
    Core(Box<Core>),
    App(App),
}

impl RemoteArguments {
    /// Connects to the gateway that the arguments name, or else to the gateway on this machine. For a URL, the first
    /// call shows whether the gateway responds.
    async fn connect(&self, config: &Config) -> anyhow::Result<AdminConnection> {
        if self.url.is_none() && self.token_file.is_none() {
            return AdminConnection::open(config, RequiredParts::Plugins, self.offline).await;
        }
        let base = match &self.url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => default_url(config)?,
        };
        let token = match &self.token_file {
            Some(file) => {
                let token = std::fs::read_to_string(file)
                    .with_context(|| format!("reading {}", file.display()))?;
                Secret::new(token.trim().to_owned())
            }
            None => {
                let issuer = config.dev_issuer()?.context(
                    "name a service's token with --token-file; only development mode has a local issuer",
                )?;
                let scopes = ["plugins:write".to_owned()];
                issuer.service_token(DevAudience::Api, SERVICE_EMAIL, &scopes, Millis::now())?
            }
        };
        Ok(AdminConnection {
            place: base.clone(),
            way: AdminTransport::Http {
                http: outgoing::client(CONNECT_TIMEOUT)?,
                base,
                token: Some(token),
            },
        })
    }

    /// Runs a command on the gateway that the arguments name.
    pub(super) async fn operate(
        &self,
        config: &Config,
        command: impl AsyncFnOnce(&AdminConnection) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.connect(config).await?.run(command).await
    }
}

/// Runs a command on the gateway on this machine or, if none runs, on its stores.
pub(super) async fn operate(
    config: &Config,
    needs: RequiredParts,
    offline: OfflineArgument,
    command: impl AsyncFnOnce(&AdminConnection) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let connection = AdminConnection::open(config, needs, offline).await?;
    connection.run(command).await
}

/// Returns the reason for which a command cannot work on the stores: [`DatabaseInUse`] if a gateway, perhaps a starting one,
/// holds them.
fn cannot_do_without(config: &Config, needs: RequiredParts) -> anyhow::Error {
    if config.has_database()
        && let Err(error) = database::lock_for_working(&config.database_url())
    {
        return error;
    }
    let shown = config.shown_database();
    let remedy = match needs {
        RequiredParts::Stores => {
            format!("with --offline, this creates the database {shown} and works on it")
        }
        RequiredParts::Plugins => {
            format!("with --offline, this works on {shown} without a gateway")
        }
    };
    anyhow!("{}; {remedy}", no_gateway(config))
}

/// Prints the progress of a compilation, the usual reason for a slow command.
pub(super) fn progress() -> CompileProgress {
    CompileProgress::telling(|line| eprintln!("{line}"))
}

/// Returns the error for a missing gateway, with a remedy.
pub(super) fn no_gateway(config: &Config) -> anyhow::Error {
    let shown = |path: &Path| std::path::absolute(path).unwrap_or(path.to_owned());
    match config.admin_socket_path() {
        Some(path) => anyhow!(
            "no gateway runs here: no process listens at {}; start it with `weir serve`, change to its folder, or name its \
             configuration with --config",
            shown(&path).display()
        ),
        None => anyhow!(
            "`admin_socket` is off in the gateway's configuration, so commands on this machine cannot reach it"
        ),
    }
}

impl AdminConnection {
    /// Connects to the gateway on this machine or, if none runs, opens its stores.
    async fn open(
        config: &Config,
        needs: RequiredParts,
        offline: OfflineArgument,
    ) -> anyhow::Result<Self> {
        let path = config.admin_socket_path();
        let shown = config.shown_database();
        let may_do_without = match needs {
            _ if offline.offline => true,
            RequiredParts::Stores => config.has_database(),
            RequiredParts::Plugins => false,
        };
        let until = Instant::now() + GATEWAY_PATIENCE;
        loop {
            if let Some(path) = &path
                && let Some(connection) = Self::at_socket(path).await?
            {
                return Ok(connection);
            }
            let opened = match may_do_without {
                true => InProcessGateway::open(config, needs).await,
                false => Err(cannot_do_without(config, needs)),
            };
            match opened {
                // The lock most likely belongs to a gateway that starts or stops.
                Err(error)
                    if error.is::<DatabaseInUse>() && path.is_some() && Instant::now() < until =>
                {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(error) if error.is::<DatabaseInUse>() => {
                    bail!(match &path {
                        Some(path) => format!(
                            "a gateway serves from {shown} but does not respond at {}: name its configuration with --config",
                            path.display()
                        ),
                        None => format!(
                            "a gateway serves from {shown} with its admin socket off: set `admin_socket = true`, or \
                     stop the gateway first"
                        ),
                    });
                }
                in_process => {
                    return Ok(Self {
                        way: AdminTransport::InProcess(in_process?),
                        place: shown,
                    });
                }
            }
        }
    }

    /// Returns the URL of the gateway's public service.
    pub(super) async fn url(&self) -> anyhow::Result<String> {
        let address: GatewayAnswer<GatewayAddress> = self.get("/local/gateway").await?;
        let url = address.parsed.url;
        url.context(
            "the gateway on this machine is an executor without an API: name the API with --url",
        )
    }

    /// Connects to the gateway on this machine; `None` if none runs.
    pub(super) async fn running(config: &Config) -> anyhow::Result<Option<Self>> {
        match config.admin_socket_path() {
            Some(path) => Self::at_socket(&path).await,
            None => Ok(None),
        }
    }

    /// Connects to the process that listens at an admin socket; `None` if none does.
    async fn at_socket(path: &Path) -> anyhow::Result<Option<Self>> {
        let connected = UnixStream::connect(path).await;
        match connected.map_err(|error| (error.kind(), error)) {
            Ok(_) => {}
            Err((ErrorKind::NotFound | ErrorKind::ConnectionRefused, _)) => return Ok(None),
            Err((ErrorKind::PermissionDenied, _)) => bail!(
                "permission to open {} is missing: run this command as the gateway's user",
                path.display()
            ),
            Err((_, error)) => {
                return Err(error).with_context(|| format!("connecting to {}", path.display()));
            }
        }
        Ok(Some(Self {
            way: AdminTransport::Http {
                http: outgoing::socket_client(path)?,
                base: "http://localhost".into(),
                token: None,
            },
            place: path.display().to_string(),
        }))
    }

    async fn run(
        self,
        command: impl AsyncFnOnce(&Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let outcome = command(&self).await;
        if let AdminTransport::InProcess(InProcessGateway { running, .. }) = &self.way {
            match running {
                LocalGateway::Core(core) => core.close().await,
                LocalGateway::App(app) => server::close(app).await,
            }
        }
        outcome
    }

    /// Returns the stores if no gateway runs.
    pub(super) fn core(&self) -> Option<&Core> {
        match &self.way {
            AdminTransport::Http { .. } => None,
            AdminTransport::InProcess(InProcessGateway { running, .. }) => Some(match running {
                LocalGateway::Core(core) => core,
                LocalGateway::App(app) => app,
            }),
        }
    }

    /// Sends a GET request.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> anyhow::Result<GatewayAnswer<T>> {
        self.send(Method::GET, path, None).await?.parse()
    }

    /// Sends a POST request with JSON.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<GatewayAnswer<T>> {
        let body = Some(("application/json", body.to_string().into()));
        self.send(Method::POST, path, body).await?.parse()
    }

    /// Sends a PUT request with JSON.
    pub(super) async fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<GatewayAnswer<T>> {
        let body = Some(("application/json", body.to_string().into()));
        self.send(Method::PUT, path, body).await?.parse()
    }

    /// Sends a DELETE request.
    pub(super) async fn delete(&self, path: &str) -> anyhow::Result<()> {
        self.send(Method::DELETE, path, None).await.map(drop)
    }

    /// Sends a request with an optional body. A response without success becomes an error in the gateway's words. After
    /// a change, prints the database that was changed.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Body)>,
    ) -> anyhow::Result<ResponseContent> {
        self.send_with(method, path, HeaderMap::new(), body).await
    }

    /// Does the same with extra headers.
    pub(super) async fn send_with(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Option<(&'static str, Body)>,
    ) -> anyhow::Result<ResponseContent> {
        let changes = method != Method::GET;
        let body = match &self.way {
            AdminTransport::Http { http, base, token } => {
                let url = format!("{base}{path}");
                let url = Url::parse(&url).with_context(|| format!("{url} is not a URL"))?;
                let mut request = http
                    .request(method, url)
                    .headers(headers)
                    .timeout(ANSWER_TIMEOUT);
                if let Some(token) = token {
                    request = request.bearer_auth(token.expose());
                }
                if let Some((content_type, body)) = body {
                    request = request
                        .header(header::CONTENT_TYPE, content_type)
                        .body(body);
                }
                let answered = receive(request).await;
                let answered = answered.map_err(|error| self.explain(error))?;
                if let Some(database) = answered.database
                    && changes
                {
                    eprintln!("Done in {database}, by the gateway that serves from it.");
                }
                outcome_of(answered.status, answered.body)?
            }
            AdminTransport::InProcess(in_process) => {
                let body = in_process.answer(method, path, headers, body).await?;
                if changes {
                    self.say_where();
                }
                body
            }
        };
        Ok(ResponseContent(body))
    }

    /// Prints the database that was changed while no gateway runs.
    pub(super) fn say_where(&self) {
        eprintln!("Done in {}; no gateway runs here.", self.place);
    }

    fn explain(&self, error: reqwest::Error) -> anyhow::Error {
        if error.is_connect() {
            anyhow!("no gateway responds at {}; is it running?", self.place)
        } else if error.is_timeout() {
            anyhow!("the gateway does not respond")
        } else {
            anyhow!(outgoing::root_cause(error)).context("the gateway closed the connection")
        }
    }
}

impl InProcessGateway {
    async fn open(config: &Config, needs: RequiredParts) -> anyhow::Result<Self> {
        match needs {
            RequiredParts::Stores => {
                let working = database::lock_for_working(&config.database_url())?;
                let core = open_core(config).await?;
                Ok(Self {
                    routes: router::without_gateway(core.clone()),
                    running: LocalGateway::Core(Box::new(core)),
                    _working: working,
                })
            }
            RequiredParts::Plugins => {
                config.check_mode()?;
                let plugins = bundle().plugins();
                let app = App::start(config.clone(), &plugins, shared_code(), &progress()).await?;
                Ok(Self {
                    routes: router::local(app.clone()),
                    running: LocalGateway::App(app),
                    _working: None,
                })
            }
        }
    }

    async fn answer(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Option<(&'static str, Body)>,
    ) -> anyhow::Result<Bytes> {
        let (content_type, body) = match body {
            Some((content_type, body)) => (Some(content_type), axum::body::Body::new(body)),
            None => (None, axum::body::Body::empty()),
        };
        let mut request = Request::builder().method(method).uri(path);
        if let Some(content_type) = content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        let uid = rustix::process::getuid().as_raw();
        let mut request = request.extension(LocalPeer { uid }).body(body)?;
        request.headers_mut().extend(headers);
        let Ok(response) = self.routes.clone().call(request).await;
        if let Some(error) = response.extensions().get::<ApiError>() {
            let param = error
                .param()
                .map_or_else(String::new, |param| format!("{param}: "));
            bail!("{}: {param}{}", error.code(), error.message());
        }
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        outcome_of(status, body)
    }
}

struct RawResponse {
    status: StatusCode,
    database: Option<String>,
    body: Bytes,
}

async fn receive(request: RequestBuilder) -> reqwest::Result<RawResponse> {
    let response = request.send().await?;
    let database = response.headers().get(router::DATABASE);
    let database = database.map(|url| String::from_utf8_lossy(url.as_bytes()).into_owned());
    Ok(RawResponse {
        status: response.status(),
        database: database.filter(|_| response.status().is_success()),
        body: response.bytes().await?,
    })
}

/// Returns the body of a success, or else an error in the gateway's words.
fn outcome_of(status: StatusCode, body: Bytes) -> anyhow::Result<Bytes> {
    if status.is_success() {
        return Ok(body);
    }
    Err(refusal(status, &body))
}

/// Returns a gateway's error with the field that it names.
pub(super) fn refusal(status: StatusCode, body: &[u8]) -> anyhow::Error {
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = &json["error"];
    let text = |field: &str| error[field].as_str();
    match (text("code"), text("param"), text("message")) {
        (Some(code), Some(param), Some(message)) => anyhow!("{code}: {param}: {message}"),
        (Some(code), None, Some(message)) => anyhow!("{code}: {message}"),
        _ => anyhow!("the gateway responds with {status}"),
    }
}

/// Returns a path of these segments and this query, both escaped.
pub(super) fn path(segments: &[&str], query: &[(&str, Option<String>)]) -> String {
    let mut url = Url::parse("http://localhost").expect("a URL");
    if let Ok(mut path) = url.path_segments_mut() {
        path.extend(segments);
    }
    let query = query.iter();
    let query = query.filter_map(|(name, value)| Some((name, value.as_ref()?)));
    for (name, value) in query {
        url.query_pairs_mut().append_pair(name, value);
    }
    match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    }
}

/// Returns the URL on which the configuration's gateway listens, as seen from this machine.
pub(super) fn default_url(config: &Config) -> anyhow::Result<String> {
    let addresses = config.listen.resolve();
    let addresses = addresses.with_context(|| format!("`listen` is {}", config.listen))?;
    let address = addresses.first().copied();
    let address = address.with_context(|| format!("{} is not an address", config.listen))?;
    Ok(format!("http://{}", reachable(address)))
}
