//! `weir plugin install|list|show|activate|rollback|remove|events`: what operators do to the slots of a running gateway,
//! through its `/admin/plugins`.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use bytes::Bytes;
use http::{Method, Request, Uri, header};
use http_body::Frame;
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::config::Config;
use crate::identity::dev_issuer::{DevAudience, SERVICE_EMAIL};
use crate::inference::upstream::{Connector, http_client};
use crate::plugins::loading::COMPONENT_BYTES;
use crate::plugins::routes::{
    EventList, InstalledItem, PluginItem, SLOT_NAMES, SlotItem, SlotList, is_slot_name,
};
use weir_storage::clock::Millis;

/// Digits of a digest that are shown to people; as many name it, and fewer where they do not fit another.
const SHOWN_DIGITS: usize = 12;

/// Digits that a digest is named by at least.
const LEAST_DIGITS: usize = 4;

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an answer may take: as long as compiling may, and some.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Bytes of a body that are handed to the connection in one go.
const PIECE_BYTES: usize = 64 << 10;

/// How often a terminal is shown how far an upload is.
const SHOW_EVERY: Duration = Duration::from_millis(200);

/// Which gateway, and who asks.
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
    json: bool,
}

#[derive(clap::Args)]
pub(in crate::cli) struct Install {
    /// The component: a .wasm file.
    #[arg(value_name = "FILE")]
    component: PathBuf,
    /// The slot, which providers' `adapter` names; a new one is made.
    #[arg(long, value_parser = slot_name)]
    slot: String,
    /// Have the slot serve with it, too.
    #[arg(long)]
    activate: bool,
    #[command(flatten)]
    gateway: Gateway,
}

#[derive(clap::Args)]
pub(in crate::cli) struct Show {
    /// The slot.
    #[arg(value_parser = slot_name)]
    slot: String,
    #[command(flatten)]
    gateway: Gateway,
}

#[derive(clap::Args)]
pub(in crate::cli) struct Named {
    /// The slot.
    #[arg(value_parser = slot_name)]
    slot: String,
    /// The component's digest, or the beginning of it.
    digest: String,
    #[command(flatten)]
    gateway: Gateway,
}

#[derive(clap::Args)]
pub(in crate::cli) struct Events {
    /// The slot; all of them without.
    #[arg(value_parser = slot_name)]
    slot: Option<String>,
    /// How many, at most 1000.
    #[arg(long, default_value_t = 50)]
    limit: u32,
    #[command(flatten)]
    gateway: Gateway,
}

pub(super) async fn list(config: &Config, gateway: Gateway) -> anyhow::Result<()> {
    let connection = gateway.connect(config)?;
    let slots: Answer<SlotList> = connection.get("").await?;
    slots.show(gateway.json, |SlotList { slots }| {
        let mut table = Table::new(&[
            "SLOT", "ACTIVE", "NAME", "VERSION", "SOURCE", "REQUESTS", "ERRORS", "TRAPS",
            "LATENCY", "CREDITS",
        ]);
        for slot in slots {
            let active = slot
                .plugins
                .iter()
                .find(|plugin| Some(&plugin.digest) == slot.active.as_ref());
            match active {
                Some(plugin) => table.row([
                    slot.slot.clone(),
                    short(&plugin.digest),
                    plugin.name.clone(),
                    plugin.version.clone(),
                    plugin.source.clone(),
                    plugin.requests.to_string(),
                    plugin.errors.to_string(),
                    plugin.traps.to_string(),
                    latency(plugin),
                    plugin.credits.to_string(),
                ]),
                None => table.row([slot.slot.clone(), "none: it refuses".into()]),
            }
        }
        table.print();
    });
    Ok(())
}

pub(super) async fn show(config: &Config, show: Show) -> anyhow::Result<()> {
    let connection = show.gateway.connect(config)?;
    let slot: Answer<SlotItem> = connection.get(&format!("/{}", show.slot)).await?;
    slot.show(show.gateway.json, print_slot);
    Ok(())
}

pub(super) async fn install(config: &Config, install: Install) -> anyhow::Result<()> {
    let bytes = read_component(&install.component)?;
    let connection = install.gateway.connect(config)?;
    // Whoever may not is told before the upload: a refusal during it breaks the connection.
    let _: Answer<SlotList> = connection.get("").await?;
    let query = if install.activate {
        "?activate=true"
    } else {
        ""
    };
    let path = format!("/{}{query}", install.slot);
    let installed: Answer<InstalledItem> = connection.upload(&path, bytes.into()).await?;
    installed.show(install.gateway.json, |installed| {
        let InstalledItem {
            slot,
            digest,
            name,
            version,
            active,
        } = installed;
        println!("Installed {name} {version} in the slot {slot}: {digest}");
        match active {
            true => println!("The slot serves with it."),
            false => println!(
                "To serve with it: weir plugin activate {slot} {}",
                short(digest)
            ),
        }
    });
    Ok(())
}

pub(super) async fn activate(config: &Config, named: Named) -> anyhow::Result<()> {
    let connection = named.gateway.connect(config)?;
    let digest = connection.find(&named).await?;
    let body = serde_json::json!({ "digest": digest });
    let slot: Answer<SlotItem> = connection
        .post(&format!("/{}/activate", named.slot), &body)
        .await?;
    slot.show(named.gateway.json, print_slot);
    Ok(())
}

pub(super) async fn roll_back(config: &Config, show: Show) -> anyhow::Result<()> {
    let connection = show.gateway.connect(config)?;
    let slot: Answer<SlotItem> = connection
        .post(&format!("/{}/rollback", show.slot), &serde_json::json!({}))
        .await?;
    slot.show(show.gateway.json, print_slot);
    Ok(())
}

pub(super) async fn remove(config: &Config, named: Named) -> anyhow::Result<()> {
    let connection = named.gateway.connect(config)?;
    let digest = connection.find(&named).await?;
    connection
        .delete(&format!("/{}/{digest}", named.slot))
        .await?;
    match named.gateway.json {
        true => println!("{}", serde_json::json!({ "removed": digest })),
        false => println!("Removed {} from the slot {}.", short(&digest), named.slot),
    }
    Ok(())
}

pub(super) async fn events(config: &Config, events: Events) -> anyhow::Result<()> {
    let connection = events.gateway.connect(config)?;
    let path = match &events.slot {
        Some(slot) => format!("/{slot}/events"),
        None => "/events".to_owned(),
    };
    let list: Answer<EventList> = connection
        .get(&format!("{path}?limit={}", events.limit))
        .await?;
    list.show(events.gateway.json, |EventList { events }| {
        let mut table = Table::new(&["AT", "SLOT", "WHAT", "DIGEST", "BEFORE", "WHO", "DETAIL"]);
        for event in events {
            let digest =
                |digest: &Option<String>| digest.as_deref().map_or_else(|| "-".to_owned(), short);
            table.row([
                event.at.clone(),
                event.slot.clone(),
                event.kind.clone(),
                digest(&event.digest),
                digest(&event.previous),
                event.actor.clone(),
                event.detail.clone().unwrap_or_default(),
            ]);
        }
        table.print();
    });
    Ok(())
}

/// It becomes a part of a URL.
fn slot_name(slot: &str) -> Result<String, String> {
    match is_slot_name(slot) {
        true => Ok(slot.to_owned()),
        false => Err(SLOT_NAMES.to_owned()),
    }
}

fn read_component(path: &Path) -> anyhow::Result<Vec<u8>> {
    let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    // Every gateway refuses it, after a long upload.
    ensure!(
        bytes.len() <= COMPONENT_BYTES,
        "{} has {} bytes; a component has at most {COMPONENT_BYTES}",
        path.display(),
        bytes.len()
    );
    Ok(bytes)
}

fn print_slot(slot: &SlotItem) {
    match (&slot.active, &slot.serving) {
        (Some(active), Some(serving)) if active == serving => {
            println!("The slot {} serves with {}.", slot.slot, short(active));
        }
        (Some(active), serving) => println!(
            "The slot {} is to serve with {}; the gateway that answers serves with {} yet.",
            slot.slot,
            short(active),
            serving
                .as_deref()
                .map_or_else(|| "nothing".to_owned(), short)
        ),
        (None, _) => println!(
            "The slot {} has nothing to serve with, and refuses.",
            slot.slot
        ),
    }
    let mut table = Table::new(&[
        "DIGEST",
        "STATE",
        "NAME",
        "VERSION",
        "SOURCE",
        "INSTALLED",
        "BY",
        "REQUESTS",
        "ERRORS",
        "TRAPS",
        "LATENCY",
        "CREDITS",
    ]);
    for plugin in &slot.plugins {
        table.row([
            short(&plugin.digest),
            plugin.state.clone(),
            plugin.name.clone(),
            plugin.version.clone(),
            plugin.source.clone(),
            optional(plugin.installed_at.clone().unwrap_or_default()),
            optional(plugin.installed_by.clone().unwrap_or_default()),
            plugin.requests.to_string(),
            plugin.errors.to_string(),
            plugin.traps.to_string(),
            latency(plugin),
            plugin.credits.to_string(),
        ]);
    }
    table.print();
}

fn latency(plugin: &PluginItem) -> String {
    plugin
        .latency_ms
        .map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms"))
}

fn optional(text: String) -> String {
    if text.is_empty() {
        "-".to_owned()
    } else {
        text
    }
}

fn short(digest: &str) -> String {
    digest.chars().take(SHOWN_DIGITS).collect()
}

/// An answer, read as what it should be, and as it came.
struct Answer<T> {
    parsed: T,
    json: Value,
}

impl<T> Answer<T> {
    fn show(&self, as_json: bool, print: impl FnOnce(&T)) {
        match as_json {
            true => println!("{:#}", self.json),
            false => print(&self.parsed),
        }
    }
}

struct Connection {
    http: Client<Connector, Upload>,
    base: String,
    authorization: String,
}

impl Gateway {
    fn connect(&self, config: &Config) -> anyhow::Result<Connection> {
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
            Some(file) => std::fs::read_to_string(file)
                .with_context(|| format!("reading {}", file.display()))?
                .trim()
                .to_owned(),
            None => {
                let issuer = config.dev_issuer()?.context(
                    "name a service's token with --token-file; only development mode has an issuer of its own",
                )?;
                let scopes = ["plugins:write".to_owned()];
                let token = issuer.service_token(
                    DevAudience::Api,
                    SERVICE_EMAIL,
                    &scopes,
                    Millis::now(),
                )?;
                token.expose().to_owned()
            }
        };
        Ok(Connection {
            http: http_client(CONNECT_TIMEOUT)?,
            base,
            authorization: format!("Bearer {token}"),
        })
    }
}

impl Connection {
    async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<Answer<T>> {
        let body = Upload::new(Bytes::new());
        parse(&self.send(Method::GET, path, None, body).await?)
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<Answer<T>> {
        let body = Upload::new(body.to_string().into());
        let answer = self.send(Method::POST, path, Some("application/json"), body);
        parse(&answer.await?)
    }

    async fn delete(&self, path: &str) -> anyhow::Result<()> {
        let body = Upload::new(Bytes::new());
        self.send(Method::DELETE, path, None, body).await.map(drop)
    }

    /// Sends a component, and says on standard error how far that is.
    async fn upload<T: DeserializeOwned>(
        &self,
        path: &str,
        component: Bytes,
    ) -> anyhow::Result<Answer<T>> {
        let total = component.len();
        let body = Upload::new(component);
        let sent = body.sent.clone();
        let answer = self.send(Method::PUT, path, Some("application/wasm"), body);
        parse(&watched(answer, &sent, total).await?)
    }

    /// The whole digest that the arguments name the beginning of.
    async fn find(&self, named: &Named) -> anyhow::Result<String> {
        let digits = named
            .digest
            .strip_prefix("sha256:")
            .unwrap_or(&named.digest);
        let digits = digits.to_ascii_lowercase();
        ensure!(
            digits.len() >= LEAST_DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit()),
            "a digest is named by at least {LEAST_DIGITS} hexadecimal digits"
        );
        let slot: Answer<SlotItem> = self.get(&format!("/{}", named.slot)).await?;
        let plugins = slot.parsed.plugins.into_iter().map(|plugin| plugin.digest);
        let mut found: Vec<_> = plugins
            .filter(|digest| digest.starts_with(&digits))
            .collect();
        match (found.pop(), found.is_empty()) {
            (Some(digest), true) => Ok(digest),
            (Some(_), false) => bail!("more than one digest begins with {digits}; give more of it"),
            (None, _) => bail!(
                "the slot {} has nothing whose digest begins with {digits}",
                named.slot
            ),
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: Option<&str>,
        body: Upload,
    ) -> anyhow::Result<Bytes> {
        let url = format!("{}/admin/plugins{path}", self.base);
        let uri: Uri = url.parse().with_context(|| format!("{url} is no URL"))?;
        let mut request = Request::builder()
            .method(method)
            .uri(uri)
            .header(header::AUTHORIZATION, &self.authorization)
            .header(header::CONTENT_LENGTH, body.bytes.len());
        if let Some(content_type) = content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        let answer = async {
            let response =
                self.http
                    .request(request.body(body)?)
                    .await
                    .map_err(|error| match error.is_connect() {
                        true => anyhow!("no gateway answers at {}; is it running?", self.base),
                        false => anyhow!(error).context("the gateway broke off"),
                    })?;
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            anyhow::Ok((status, body))
        };
        let (status, body) = tokio::time::timeout(ANSWER_TIMEOUT, answer)
            .await
            .context("the gateway does not answer")??;
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
}

fn parse<T: DeserializeOwned>(body: &Bytes) -> anyhow::Result<Answer<T>> {
    let json: Value = serde_json::from_slice(body).context("the gateway's answer is no JSON")?;
    let parsed = T::deserialize(&json).context("the gateway is of another version")?;
    Ok(Answer { parsed, json })
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

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Rows whose columns line up.
struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(headings: &[&str]) -> Self {
        let headings = headings.iter().map(|heading| (*heading).to_owned());
        Self {
            rows: vec![headings.collect()],
        }
    }

    fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    fn print(&self) {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or_default()
        };
        let widths: Vec<_> = (0..columns).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let _ = write!(line, "{cell:width$}  ");
            }
            println!("{}", line.trim_end());
        }
    }
}
