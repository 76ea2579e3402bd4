//! What operators allow tools: `[tools.NAME]`, `[integrations.ID]` and `[credentials.NAME]`.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};

use http::Method;
use serde::{Deserialize, Serialize};
use weir_egress::{Exemption, HostPattern};
use weir_ledger::Plan;
use weir_storage::secrets::SecretSource;

/// The settings of all tools.
#[derive(Clone, Copy)]
pub struct ToolsSettings<'a> {
    /// By the names of their slots.
    pub tools: &'a BTreeMap<String, ToolSettings>,
    /// By id.
    pub integrations: &'a BTreeMap<String, IntegrationSettings>,
    /// By name.
    pub credentials: &'a BTreeMap<String, CredentialSettings>,
}

/// What the tool in a slot may do, whichever component that is: `[tools.NAME]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ToolSettings {
    /// The tool may call its own `hosts`, the agent's `integrations`, or the agent's `webhooks`, which weir signs.
    /// Default: `hosts`.
    pub to: Targets,
    /// The tool may call these hosts: `api.example.com`, `*.example.com`, an address, or `*` for every public host.
    /// Default: none.
    pub hosts: Vec<HostPattern>,
    /// The tool may not call these hosts; an address is denied under every name that resolves to it. Default: none.
    pub denied_hosts: Vec<HostPattern>,
    /// The tool may use these methods. Default: `["GET"]`.
    pub methods: Vec<MethodName>,
    /// Paths must begin with one of these, compared by whole segments. Default: `["/"]`.
    pub paths: Vec<String>,
    /// The tool may use `http` as well as `https`. Default: `false`.
    pub plain_http: bool,
    /// The tool may use these ports as well as 80 and 443. Default: none.
    pub ports: Vec<u16>,
    /// The tool may set these request headers as well as `accept`, `content-type` and similar ones. Default: none.
    pub headers: Vec<String>,
    /// The tool may reach these non-public targets: `HOST:PORT`, or networks such as `10.1.0.0/16`. Default: none.
    pub private: Vec<Exemption>,
    /// After a crash weir repeats `read` calls freely, `idempotent` calls under their idempotency key, and `unsafe`
    /// calls never. Default: `unsafe`.
    pub effect: Effect,
    /// The tool may use these names under `[credentials]`. Default: none.
    pub credentials: Vec<String>,
    /// One call may send this many requests, without counting redirects. Default: 5.
    pub requests: NonZeroU32,
    /// Each request body and response body may have this many bytes, at most 1 MiB. Default: 1 MiB.
    pub bytes: NonZeroUsize,
    /// One call may take this many seconds, and each of its requests 10. Default: 30.
    pub seconds: NonZeroU32,
    /// The result for the model is cut after this many bytes. Default: 32 KiB.
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

/// What a tool may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Targets {
    /// What its own lists say.
    Hosts,
    /// Those of the agent's integrations.
    Integrations,
    /// The agent's webhooks.
    Webhooks,
}

/// What a call brings about elsewhere; the worse, the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// Nothing: it may be repeated at will.
    Read,
    /// Once, however often it is sent under its idempotency key.
    Idempotent,
    /// As often as it is sent.
    Unsafe,
}

/// A service that agents may call: `[integrations.ID]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntegrationSettings {
    /// All URLs begin with this one, such as `https://api.example.com/v1`. Required.
    pub base_url: String,
    /// Agents may use these methods. Default: `["GET"]`.
    #[serde(default = "get")]
    pub methods: Vec<MethodName>,
    /// Paths below `base_url` must begin with one of these, compared by whole segments. Default: `["/"]`.
    #[serde(default = "root")]
    pub paths: Vec<String>,
    /// Agents may set these request headers as well as `accept`, `content-type` and similar ones. Default: none.
    #[serde(default)]
    pub headers: Vec<String>,
    /// Calls have this effect, as under `[tools.NAME]`. Default: `read` for `GET` and `HEAD` only, else `unsafe`.
    #[serde(default)]
    pub effect: Option<Effect>,
    /// Requests carry this credential, a name under `[credentials]`. Default: none.
    #[serde(default)]
    pub credential: Option<String>,
    /// The host may have a non-public address. Default: `false`.
    #[serde(default)]
    pub private: bool,
    /// Users on these plans may use the integration. Default: all, or none if `users` is set.
    #[serde(default)]
    pub plans: Vec<Plan>,
    /// Users with these ids may use the integration, whatever their plan. Default: all, or none if `plans` is set.
    #[serde(default)]
    pub users: Vec<String>,
}

/// What proves to a server who calls, and where it may be sent: `[credentials.NAME]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CredentialSettings {
    /// The credential is sent to this origin only, such as `https://api.example.com`. Required.
    pub origin: String,
    /// The credential is sent with these methods only. Default: `["GET"]`.
    #[serde(default = "get")]
    pub methods: Vec<MethodName>,
    /// The credential is sent below this path only, compared by whole segments. Default: `/`.
    #[serde(default = "slash")]
    pub path: String,
    /// The credential is sent in this header. Default: `authorization`.
    #[serde(default = "authorization")]
    pub header: String,
    /// The header's value begins with this text. Default: `Bearer ` in `authorization`, else none.
    #[serde(default)]
    pub prefix: Option<String>,
    /// The secret source holds at least 16 bytes. Required.
    pub secret: SecretSource,
}

/// Where a credential may be sent, as its owner has written it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialBinding {
    /// The origin that it is sent to alone, e.g. `https://api.example.com`.
    pub origin: String,
    /// The methods that it is sent with.
    pub methods: Vec<MethodName>,
    /// What paths must begin with that it is sent to, segment by segment.
    pub path: String,
    /// The header that it is sent in.
    pub header: String,
    /// What stands before it there; `None` for `Bearer ` in `authorization`, else nothing.
    pub prefix: Option<String>,
}

impl CredentialSettings {
    /// Where it may be sent.
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

/// The methods of a credential that names none.
pub(crate) fn get() -> Vec<MethodName> {
    vec![MethodName(Method::GET)]
}

fn root() -> Vec<String> {
    vec![slash()]
}

/// The path of one that names none.
pub(crate) fn slash() -> String {
    "/".to_owned()
}

/// The header of one that names none.
pub(crate) fn authorization() -> String {
    "authorization".to_owned()
}
