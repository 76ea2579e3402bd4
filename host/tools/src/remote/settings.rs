//! Servers with remote tools: `[mcp.NAME]`, checked and read once.

use std::collections::{BTreeMap, BTreeSet};
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use http::Method;
use serde::Deserialize;
use url::Url;
use weir_egress::{Credential, EgressPolicy};
use weir_storage::secrets::{Secret, SecretSource};

use crate::rules::bind;
use crate::settings::{CredentialBinding, Effect, MethodName, authorization};

/// The maximum bytes of a tool's name for models.
const MAX_NAME_BYTES: usize = 64;

/// The separator between a server's name and a tool's.
const BETWEEN: &str = "__";

/// An MCP server whose tools agents, and clients of `/mcp`, may call: `[mcp.NAME]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpServerSettings {
    /// Endpoint of the server, such as `https://mcp.example.com/mcp`. Required.
    pub url: String,
    /// Secret source of at least 16 bytes, sent to the origin and path of `url` only. Default: none.
    #[serde(default)]
    pub credential: Option<SecretSource>,
    /// Header that carries the credential, in `authorization` as `Bearer …`. Default: `authorization`.
    #[serde(default = "authorization")]
    pub header: String,
    /// Tools that may be called; weir ignores all others. Required.
    pub tools: BTreeSet<String>,
    /// Effects of tools, `read` or `idempotent`. They override the annotations of the server. Default: `unsafe` each.
    #[serde(default)]
    pub effects: BTreeMap<String, Effect>,
    /// Whether the host may have a non-public address. Default: `false`.
    #[serde(default)]
    pub private: bool,
    /// Seconds between checks whether tools have changed. Default: 60.
    #[serde(default = "sixty")]
    pub look_seconds: NonZeroU32,
    /// Seconds of a call. Default: 30.
    #[serde(default = "thirty")]
    pub seconds: NonZeroU32,
    /// Bytes of the result for the model, which is cut there. Default: 32 KiB.
    #[serde(default = "result_bytes")]
    pub result_bytes: NonZeroUsize,
}

/// A server with its connection data.
#[derive(Debug, Clone)]
pub struct McpServer {
    pub(super) name: String,
    pub(super) url: String,
    pub(super) policy: EgressPolicy,
    /// `None` if the server needs no credential; an error if it is missing.
    pub(super) credential: Option<Result<Credential, String>>,
    /// The secret to redact from responses.
    pub(super) bare: Option<Secret>,
    pub(super) tools: BTreeSet<String>,
    pub(super) effects: BTreeMap<String, Effect>,
    pub(super) look_every: Duration,
    pub(super) result_bytes: usize,
}

impl McpServer {
    /// Returns the name of a tool for models.
    pub(super) fn prefixed(&self, tool: &str) -> String {
        format!("{}{BETWEEN}{tool}", self.name)
    }
}

/// Reads the settings and credentials of all servers.
///
/// # Errors
///
/// Returns all problems, each with the name of its setting.
pub fn read(
    settings: &BTreeMap<String, McpServerSettings>,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<Vec<McpServer>, Vec<String>> {
    let mut servers = Vec::new();
    let mut problems = Vec::new();
    for (name, server) in settings {
        match read_one(name, server, &environment) {
            Ok(read) => servers.push(read),
            Err(why) => problems.push(format!("`mcp.{name}`: {why}")),
        }
    }
    match problems.is_empty() {
        true => Ok(servers),
        false => Err(problems),
    }
}

fn read_one(
    name: &str,
    settings: &McpServerSettings,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<McpServer, String> {
    let is_legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || !name.bytes().all(is_legal) {
        return Err("a server's name has lower-case letters, digits and hyphens".to_owned());
    }
    let fits = |tool: &&String| {
        let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        let length = name.len() + BETWEEN.len() + tool.len();
        !tool.is_empty() && tool.bytes().all(is_legal) && length <= MAX_NAME_BYTES
    };
    if let Some(tool) = settings.tools.iter().find(|tool| !fits(tool)) {
        return Err(format!(
            "`tools` has {tool:?}, which models cannot call: {name}{BETWEEN}{tool} must have at most {MAX_NAME_BYTES} letters, digits, hyphens and underscores"
        ));
    }
    let stray = settings.effects.keys();
    if let Some(tool) = stray
        .into_iter()
        .find(|tool| !settings.tools.contains(*tool))
    {
        return Err(format!(
            "`effects` has {tool:?}, which is not among `tools`"
        ));
    }
    let url = Url::parse(&settings.url).map_err(|error| format!("`url` is not a URL: {error}"))?;
    let host = url
        .host_str()
        .filter(|_| matches!(url.scheme(), "http" | "https"));
    let (Some(host), Some(port)) = (host, url.port_or_known_default()) else {
        return Err("`url` is neither https://… nor http://…".to_owned());
    };
    if url.fragment().is_some() || !url.username().is_empty() || url.password().is_some() {
        return Err("`url` has a fragment, or a user's name or password".to_owned());
    }
    let within = Duration::from_secs(settings.seconds.get().into());
    let unfit = |why| format!("`url`: {why}");
    let policy = EgressPolicy {
        hosts: vec![host.parse().map_err(unfit)?],
        methods: vec![Method::POST],
        path_prefixes: vec![url.path().to_owned()],
        plain_http: url.scheme() == "http",
        ports: url.port().into_iter().collect(),
        redirects: false,
        timeout: within,
        exemptions: match settings.private {
            true => vec![format!("{host}:{port}").parse().map_err(unfit)?],
            false => Vec::new(),
        },
        ..EgressPolicy::http()
    };
    let binding = CredentialBinding {
        origin: url.origin().ascii_serialization(),
        methods: vec![MethodName(Method::POST)],
        path: url.path().to_owned(),
        header: settings.header.clone(),
        prefix: None,
    };
    let (mut credential, mut bare) = (None, None);
    if let Some(source) = &settings.credential {
        credential = Some(match source.read(environment) {
            // A missing credential does not prevent the start.
            Err(why) => Err(why),
            Ok(secret) => {
                let bound = bind(name, &binding, &secret);
                let bound = bound.map_err(|(field, why)| format!("`{field}` {why}"))?;
                bare = Some(secret);
                Ok(bound)
            }
        });
    }
    Ok(McpServer {
        name: name.to_owned(),
        url: url.into(),
        policy,
        credential,
        bare,
        tools: settings.tools.clone(),
        effects: settings.effects.clone(),
        look_every: Duration::from_secs(settings.look_seconds.get().into()),
        result_bytes: settings.result_bytes.get(),
    })
}

fn sixty() -> NonZeroU32 {
    NonZeroU32::new(60).expect("not zero")
}

fn thirty() -> NonZeroU32 {
    NonZeroU32::new(30).expect("not zero")
}

fn result_bytes() -> NonZeroUsize {
    NonZeroUsize::new(32 << 10).expect("not zero")
}
