//! The operator's settings for tools: `[tools.NAME]`, `[integrations.ID]` and `[credentials.NAME]`.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};

use http::Method;
use serde::{Deserialize, Serialize};
use weir_egress::{Exemption, HostPattern};
use weir_ledger::Plan;
use weir_storage::secrets::SecretSource;

#[derive(Clone, Copy)]
pub struct ToolsSettings<'a> {
    /// By slot name.
    pub tools: &'a BTreeMap<String, ToolSettings>,
    /// By id.
    pub integrations: &'a BTreeMap<String, IntegrationSettings>,
    /// By name.
    pub credentials: &'a BTreeMap<String, CredentialSettings>,
}

/// The rules of the tool in a slot, for any component: `[tools.NAME]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ToolSettings {
    /// Targets: the tool's `hosts`, the agent's `integrations`, or the agent's `webhooks`, which weir signs. Default:
    /// `hosts`.
    pub to: Targets,
    /// Allowed hosts: `api.example.com`, `*.example.com`, an address, or `*` for every public host. Default: none.
    pub hosts: Vec<HostPattern>,
    /// Denied hosts; an address is denied under every name that resolves to it. Default: none.
    pub denied_hosts: Vec<HostPattern>,
    /// Allowed methods. Default: `["GET"]`.
    pub methods: Vec<MethodName>,
    /// Allowed path prefixes, compared by whole segments. Default: `["/"]`.
    pub paths: Vec<String>,
    /// Whether `http` is allowed as well as `https`. Default: `false`.
    pub plain_http: bool,
    /// Allowed ports as well as 80 and 443. Default: none.
    pub ports: Vec<u16>,
    /// Allowed request headers as well as `accept`, `content-type` and similar ones. Default: none.
    pub headers: Vec<String>,
    /// Allowed non-public targets: `HOST:PORT`, or networks such as `10.1.0.0/16`. Default: none.
    pub private: Vec<Exemption>,
    /// After a crash weir repeats `read` calls freely, `idempotent` calls under their idempotency key, and `unsafe`
    /// calls never. Default: `unsafe`.
    pub effect: Effect,
    /// Names under `[credentials]` that the tool may use. Default: none.
    pub credentials: Vec<String>,
    /// Requests of a call, without redirects. Default: 5.
    pub requests: NonZeroU32,
    /// Bytes of a request body and of a response body, at most 1 MiB. Default: 1 MiB.
    pub bytes: NonZeroUsize,
    /// Seconds of a call; each of its requests may take 10. Default: 30.
    pub seconds: NonZeroU32,
    /// Bytes of the result for the model, which is cut there. Default: 32 KiB.
    pub result_bytes: NonZeroUsize,
}

impl Default for ToolSettings {
    fn default() -> Self {
        Self {
            to: Targets::Hosts,
            hosts: Vec::new(),
            denied_hosts: Vec::new(),
            methods: vec![MethodName(Method::GET)],
            paths: vec!["/".to_owned()],
            plain_http: false,
            ports: Vec::new(),
            headers: Vec::new(),
            private: Vec::new(),
            effect: Effect::Unsafe,
            credentials: Vec::new(),
            requests: const { NonZeroU32::new(5).unwrap() },
            bytes: const { NonZeroUsize::new(1 << 20).unwrap() },
            seconds: const { NonZeroU32::new(30).unwrap() },
            result_bytes: const { NonZeroUsize::new(32 << 10).unwrap() },
        }
    }
}

/// The kind of a tool's targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Targets {
    /// The hosts on its own lists.
    Hosts,
    /// The agent's integrations.
    Integrations,
    /// The agent's webhooks.
    Webhooks,
}

/// The external effect of a call, in increasing severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// None: calls can be repeated freely.
    Read,
    /// One effect for each idempotency key, regardless of repeats.
    Idempotent,
    /// One effect for each request.
    Unsafe,
}

/// A service for agents: `[integrations.ID]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntegrationSettings {
    /// URL that all requests begin with, such as `https://api.example.com/v1`. Required.
    pub base_url: String,
    /// Allowed methods. Default: `["GET"]`.
    #[serde(default = "get")]
    pub methods: Vec<MethodName>,
    /// Allowed path prefixes below `base_url`, compared by whole segments. Default: `["/"]`.
    #[serde(default = "root")]
    pub paths: Vec<String>,
    /// Allowed request headers as well as `accept`, `content-type` and similar ones. Default: none.
    #[serde(default)]
    pub headers: Vec<String>,
    /// Effect of calls, as under `[tools.NAME]`. Default: `read` for `GET` and `HEAD` only, else `unsafe`.
    #[serde(default)]
    pub effect: Option<Effect>,
    /// Name under `[credentials]` that requests carry. Default: none.
    #[serde(default)]
    pub credential: Option<String>,
    /// Whether the host may have a non-public address. Default: `false`.
    #[serde(default)]
    pub private: bool,
    /// Plans whose users may use the integration. Default: all, or none if `users` is set.
    #[serde(default)]
    pub plans: Vec<Plan>,
    /// Ids of users who may use the integration on any plan. Default: all, or none if `plans` is set.
    #[serde(default)]
    pub users: Vec<String>,
}

/// A credential, with its allowed targets: `[credentials.NAME]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CredentialSettings {
    /// Only origin that gets the credential, such as `https://api.example.com`. Required.
    pub origin: String,
    /// Only methods that carry the credential. Default: `["GET"]`.
    #[serde(default = "get")]
    pub methods: Vec<MethodName>,
    /// Only path prefix that gets the credential, compared by whole segments. Default: `/`.
    #[serde(default = "slash")]
    pub path: String,
    /// Header that carries the credential. Default: `authorization`.
    #[serde(default = "authorization")]
    pub header: String,
    /// Text before the credential in the header. Default: `Bearer ` in `authorization`, else none.
    #[serde(default)]
    pub prefix: Option<String>,
    /// Secret source of at least 16 bytes. Required.
    pub secret: SecretSource,
}

/// The allowed targets of a credential, as its owner wrote them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialBinding {
    /// Only origin that gets the credential, e.g. `https://api.example.com`.
    pub origin: String,
    /// Only methods that carry the credential.
    pub methods: Vec<MethodName>,
    /// Only path prefix that gets the credential, compared by segments.
    pub path: String,
    /// Header that carries the credential.
    pub header: String,
    /// Text before the credential in the header; null means `Bearer ` in `authorization`, else nothing.
    pub prefix: Option<String>,
}

impl CredentialSettings {
    /// The allowed targets.
    pub(super) fn binding(&self) -> CredentialBinding {
        CredentialBinding {
            origin: self.origin.clone(),
            methods: self.methods.clone(),
            path: self.path.clone(),
            header: self.header.clone(),
            prefix: self.prefix.clone(),
        }
    }
}

/// An HTTP method, in capitals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MethodName(pub Method);

impl From<MethodName> for String {
    fn from(MethodName(method): MethodName) -> Self {
        method.as_str().to_owned()
    }
}

impl TryFrom<String> for MethodName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        const NAMES: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
        let method = Method::from_bytes(name.as_bytes()).ok();
        method
            .filter(|_| NAMES.contains(&&*name))
            .map(Self)
            .ok_or_else(|| format!("{name:?} is none of {}", NAMES.join(", ")))
    }
}

/// The default methods of a credential.
pub fn get() -> Vec<MethodName> {
    vec![MethodName(Method::GET)]
}

fn root() -> Vec<String> {
    vec![slash()]
}

/// The default path of a credential.
pub fn slash() -> String {
    "/".to_owned()
}

/// The default header of a credential.
pub fn authorization() -> String {
    "authorization".to_owned()
}
