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
    /// What it may call: `hosts` (default), the agent's `integrations`, or the agent's `webhooks`, which are posted to and
    /// signed.
    pub to: Targets,
    /// Hosts that it may call: `api.example.com`, `*.example.com` (all below it), an address, or `*` for every public one.
    /// Default: none.
    pub hosts: Vec<HostPattern>,
    /// Of these, hosts that it may not call, in the same form. An address is excluded by whichever name it is asked for.
    /// Default: none.
    pub denied_hosts: Vec<HostPattern>,
    /// Methods that it may use. Default `["GET"]`.
    pub methods: Vec<MethodName>,
    /// What paths must begin with, segment by segment. Default `["/"]`.
    pub paths: Vec<String>,
    /// Whether `http` will do; else `https` only. Default `false`.
    pub plain_http: bool,
    /// Ports beside 80 and 443.
    pub ports: Vec<u16>,
    /// Request headers that it may set, beside `accept`, `content-type` and their like.
    pub headers: Vec<String>,
    /// What it may reach although it is not public: `HOST:PORT`, or networks at the ports that it may use, such as
    /// `10.1.0.0/16`. Default: nothing.
    pub private: Vec<Exemption>,
    /// What a call brings about: `read` may be repeated at will, `idempotent` under its idempotency key, `unsafe` (default)
    /// never. For a tool that calls integrations, theirs counts instead.
    pub effect: Effect,
    /// The names under `credentials` that it may ask for.
    pub credentials: Vec<String>,
    /// Requests of one call, redirects not counted. Default 5.
    pub requests: NonZeroU32,
    /// Bytes of each request's body and of its answer's, which is cut there. Default and most 1 MiB.
    pub bytes: NonZeroUsize,
    /// Seconds that a call may take by the clock. Each request may take 10 of them. Default 30.
    pub seconds: NonZeroU32,
    /// Bytes of the text that the model is given; what is more is cut. Default 32 KiB.
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
    /// What all of its URLs begin with, e.g. `https://api.example.com/v1`.
    pub base_url: String,
    /// Methods that may be used. Default `["GET"]`.
    #[serde(default = "get")]
    pub methods: Vec<MethodName>,
    /// What paths below the base URL must begin with, segment by segment. Default `["/"]`.
    #[serde(default = "root")]
    pub paths: Vec<String>,
    /// Request headers that may be set, beside `accept`, `content-type` and their like.
    #[serde(default)]
    pub headers: Vec<String>,
    /// As under `[tools.NAME]`. Default: `read` if only `GET` and `HEAD` may be used, else `unsafe`.
    #[serde(default)]
    pub effect: Option<Effect>,
    /// The name under `credentials` of the one that its requests need.
    #[serde(default)]
    pub credential: Option<String>,
    /// Whether its host may have an address that is not public. Default `false`.
    #[serde(default)]
    pub private: bool,
    /// The plans whose users may use it. Default: with `users`, none; else all.
    #[serde(default)]
    pub plans: Vec<Plan>,
    /// The ids of the users who may use it, whatever their plan. Default: with `plans`, none; else all.
    #[serde(default)]
    pub users: Vec<String>,
}

/// What proves to a server who calls, and where it may be sent: `[credentials.NAME]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CredentialSettings {
    /// The origin that it is sent to alone, e.g. `https://api.example.com`.
    pub origin: String,
    /// The methods that it is sent with. Default `["GET"]`.
    #[serde(default = "get")]
    pub methods: Vec<MethodName>,
    /// What paths must begin with that it is sent to, segment by segment. Default `/`.
    #[serde(default = "slash")]
    pub path: String,
    /// The header that it is sent in. Default `authorization`.
    #[serde(default = "authorization")]
    pub header: String,
    /// What stands before it there. Default: `Bearer ` in `authorization`, else nothing.
    #[serde(default)]
    pub prefix: Option<String>,
    /// Where it is: `{ env = "NAME" }` or `{ file = "PATH" }`; at least 16 bytes, since it is blotted out of all that comes
    /// back.
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
