//! The operator's settings, checked and read once: the targets and credentials of each tool.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use http::header::{self, HeaderName};
use url::Url;
use weir_egress::{Credential, EgressPolicy, Exemption, HostPattern, UrlOrigin};
use weir_ledger::{AccountId, Plan};
use weir_storage::secrets::Secret;
use weir_upstream::redact;

use super::page::ServedPage;
use super::settings::{
    CredentialBinding, CredentialSettings, Effect, IntegrationSettings, MethodName, Targets,
    ToolSettings, ToolsSettings,
};

/// The timeout of one request of a call.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum bytes of a body.
const MAX_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, Default)]
pub struct Rules {
    tools: BTreeMap<String, ToolRules>,
    integrations: BTreeMap<String, Integration>,
    credentials: BTreeMap<String, ConfiguredCredential>,
}

/// The rules of a slot's tool.
#[derive(Debug, Clone)]
pub(super) struct ToolRules {
    pub(super) to: Targets,
    pub(super) policy: EgressPolicy,
    pub(super) effect: Effect,
    pub(super) credentials: Vec<String>,
    pub(super) requests: u32,
    pub(super) within: Duration,
    pub(super) result_bytes: usize,
}

impl ToolRules {
    /// Whether the tool may read any public host, and nothing else.
    pub(super) fn reads_anything(&self) -> bool {
        let policy = &self.policy;
        self.to == Targets::Hosts
            && self.effect == Effect::Read
            && policy.plain_http
            && policy.hosts.contains(&HostPattern::any())
    }
}

/// A service for agents.
#[derive(Debug, Clone)]
pub(super) struct Integration {
    pub(super) id: String,
    pub(super) base: Url,
    pub(super) origin: UrlOrigin,
    /// `base` as written, without a trailing slash.
    pub(super) base_url: String,
    pub(super) policy: EgressPolicy,
    pub(super) effect: Effect,
    pub(super) credential: Option<String>,
    plans: Vec<Plan>,
    users: Vec<String>,
}

impl Integration {
    /// Whether a user on a plan may use it.
    pub(super) fn serves(&self, account: &AccountId, plan: Plan) -> bool {
        let serves_all = self.plans.is_empty() && self.users.is_empty();
        serves_all || self.plans.contains(&plan) || self.users.contains(&account.0)
    }
}

/// The operator's credential, or the reason for its absence.
#[derive(Debug, Clone)]
pub struct ConfiguredCredential {
    pub credential: Result<Credential, String>,
    /// The secret for redaction: without its prefix in the header.
    pub bare: Option<Secret>,
}

impl Rules {
    /// Returns the secrets that the earlier rules have and these lack, although the configuration still names them.
    pub(super) fn lost_secrets(&self, before: &Self) -> Vec<String> {
        let credentials = self.credentials.iter().filter_map(|(name, now)| {
            let why = now.credential.as_ref().err()?;
            let is_lost = before.credentials.get(name)?.credential.is_ok();
            is_lost.then(|| format!("`credentials.{name}`: {why}"))
        });
        credentials.collect()
    }

    /// Reads the settings and credentials; environment variables come from `environment`.
    ///
    /// # Errors
    ///
    /// Returns all problems, each with the name of its setting. A missing credential is not a problem: requests that
    /// need it are refused.
    pub fn read(
        settings: ToolsSettings<'_>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<String>> {
        let mut rules = Self::default();
        let mut problems = Vec::new();
        for (name, credential) in settings.credentials {
            match read_credential(name, credential, &environment) {
                Ok(read) => {
                    rules.credentials.insert(name.clone(), read);
                }
                Err(why) => problems.push(format!("`credentials.{name}`: {why}")),
            }
        }
        let is_known = |name: &String| settings.credentials.contains_key(name);
        for (id, integration) in settings.integrations {
            if let Some(name) = integration
                .credential
                .as_ref()
                .filter(|name| !is_known(name))
            {
                problems.push(format!(
                    "`integrations.{id}.credential` names {name:?}, but `credentials.{name}` does not exist"
                ));
            }
            match read_integration(id, integration) {
                Ok(read) => {
                    rules.integrations.insert(id.clone(), read);
                }
                Err(why) => problems.push(format!("`integrations.{id}`: {why}")),
            }
        }
        for (name, tool) in settings.tools {
            if let Some(unknown) = tool.credentials.iter().find(|name| !is_known(name)) {
                problems.push(format!(
                    "`tools.{name}.credentials` names {unknown:?}, but `credentials.{unknown}` does not exist"
                ));
            }
            match read_tool(tool) {
                Ok(read) => {
                    rules.tools.insert(name.clone(), read);
                }
                Err(why) => problems.push(format!("`tools.{name}`: {why}")),
            }
        }
        match problems.is_empty() {
            true => Ok(rules),
            false => Err(problems),
        }
    }

    pub(super) fn tool(&self, slot: &str) -> Option<&ToolRules> {
        self.tools.get(slot)
    }

    /// Returns the policy of a slot whose tool calls hosts or webhooks; integrations have one policy each.
    pub fn policy(&self, slot: &str) -> Option<&EgressPolicy> {
        let tool = self.tool(slot)?;
        (tool.to != Targets::Integrations).then_some(&tool.policy)
    }

    pub(super) fn integration(&self, id: &str) -> Option<&Integration> {
        self.integrations.get(id)
    }

    /// Returns the ids of the integrations of a user on a plan.
    pub(super) fn integrations_for(
        &self,
        account: &AccountId,
        plan: Plan,
    ) -> impl Iterator<Item = &str> {
        let served = self.integrations.values();
        let served = served.filter(move |own| own.serves(account, plan));
        served.map(|own| own.id.as_str())
    }

    pub(super) fn worst_integration(&self) -> Effect {
        let effects = self.integrations.values().map(|own| own.effect);
        effects.max().unwrap_or(Effect::Read)
    }

    pub(super) fn credential(&self, name: &str) -> Option<&ConfiguredCredential> {
        self.credentials.get(name)
    }

    /// Returns a sentence about each configured but unusable entry.
    pub fn gaps(&self) -> Vec<String> {
        let missing = self.credentials.iter().filter_map(|(name, configured)| {
            let why = configured.credential.as_ref().err()?;
            Some(format!("credential {name} is missing: {why}"))
        });
        missing.collect()
    }

    /// Allows this page to tools that may read any public host.
    pub(super) fn allow_page(&mut self, page: &ServedPage) {
        let exemption: Option<Exemption> = page.address().to_string().parse().ok();
        for rules in self
            .tools
            .values_mut()
            .filter(|rules| rules.reads_anything())
        {
            rules.policy.ports.push(page.address().port());
            rules.policy.exemptions.extend(exemption.clone());
        }
    }

    /// The names of all slots with settings.
    pub fn slots(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(String::as_str)
    }
}

fn read_tool(settings: &ToolSettings) -> Result<ToolRules, String> {
    let within = Duration::from_secs(settings.seconds.get().into());
    let base = match settings.to {
        Targets::Hosts | Targets::Integrations => EgressPolicy::http(),
        Targets::Webhooks => EgressPolicy::webhook(),
    };
    let policy = EgressPolicy {
        hosts: match settings.to {
            Targets::Hosts => settings.hosts.clone(),
            // The agent's webhooks or the operator's integrations restrict the hosts already.
            Targets::Integrations | Targets::Webhooks => base.hosts,
        },
        denied_hosts: settings.denied_hosts.clone(),
        methods: match settings.to {
            Targets::Hosts => methods(&settings.methods),
            Targets::Integrations | Targets::Webhooks => base.methods,
        },
        path_prefixes: paths(&settings.paths, "")?,
        plain_http: settings.plain_http,
        ports: settings.ports.clone(),
        headers: headers(&settings.headers)?,
        max_bytes: match settings.bytes.get() {
            bytes if bytes > MAX_BYTES => return Err(format!("`bytes` is more than {MAX_BYTES}")),
            bytes => bytes,
        },
        timeout: REQUEST_TIMEOUT.min(within),
        exemptions: settings.private.clone(),
        ..base
    };
    Ok(ToolRules {
        to: settings.to,
        policy,
        effect: settings.effect,
        credentials: settings.credentials.clone(),
        requests: settings.requests.get(),
        within,
        result_bytes: settings.result_bytes.get(),
    })
}

/// Returns a service's base URL, its origin, and the policy for `GET` requests to its host below its path.
pub fn service_policy(
    base_url: &str,
    is_private: bool,
) -> Result<(Url, UrlOrigin, EgressPolicy), String> {
    let base = Url::parse(base_url).map_err(|error| format!("is not a URL: {error}"))?;
    let host = base
        .host_str()
        .filter(|_| matches!(base.scheme(), "http" | "https"));
    let (Some(host), Some(port)) = (host, base.port_or_known_default()) else {
        return Err("is neither https://… nor http://…".to_owned());
    };
    let has_more = base.query().is_some() || base.fragment().is_some();
    if has_more || !base.username().is_empty() || base.password().is_some() {
        return Err("is more than scheme, host, port and path".to_owned());
    }
    let policy = EgressPolicy {
        hosts: vec![host.parse()?],
        path_prefixes: vec![base.path().to_owned()],
        plain_http: base.scheme() == "http",
        ports: base.port().into_iter().collect(),
        exemptions: match is_private {
            true => vec![format!("{host}:{port}").parse()?],
            false => Vec::new(),
        },
        methods: vec![Method::GET],
        ..EgressPolicy::http()
    };
    let origin = base.origin().ascii_serialization().parse()?;
    Ok((base, origin, policy))
}

fn read_integration(id: &str, settings: &IntegrationSettings) -> Result<Integration, String> {
    let (base, origin, policy) = service_policy(&settings.base_url, settings.private)
        .map_err(|why| format!("`base_url` {why}"))?;
    let methods = methods(&settings.methods);
    let only_reads = methods.iter().all(Method::is_safe);
    let effect = match only_reads {
        true => Effect::Read,
        false => Effect::Unsafe,
    };
    let policy = EgressPolicy {
        path_prefixes: paths(&settings.paths, base.path().trim_end_matches('/'))?,
        headers: headers(&settings.headers)?,
        methods,
        ..policy
    };
    Ok(Integration {
        id: id.to_owned(),
        base_url: settings.base_url.trim_end_matches('/').to_owned(),
        origin,
        base,
        policy,
        effect: settings.effect.unwrap_or(effect),
        credential: settings.credential.clone(),
        plans: settings.plans.clone(),
        users: settings.users.clone(),
    })
}

pub fn read_credential(
    name: &str,
    settings: &CredentialSettings,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<ConfiguredCredential, String> {
    let secret = settings.secret.read(environment);
    // The binding is checked even if the secret is missing.
    let stand_in = Secret::new("x".repeat(redact::MIN_BYTES));
    let credential = bind(
        name,
        &settings.binding(),
        secret.as_ref().unwrap_or(&stand_in),
    );
    let credential = credential.map_err(|(field, why)| match field {
        "secret" => why,
        field => format!("`{field}` {why}"),
    })?;
    Ok(ConfiguredCredential {
        credential: secret.clone().map(|_| credential),
        bare: secret.ok(),
    })
}

/// Returns a credential with its binding.
///
/// # Errors
///
/// The error has the invalid field and its problem.
pub fn bind(
    name: &str,
    binding: &CredentialBinding,
    secret: &Secret,
) -> Result<Credential, (&'static str, String)> {
    let origin = binding.origin.parse();
    let origin = origin.map_err(|why: &str| ("origin", why.to_owned()))?;
    let header = HeaderName::try_from(&binding.header)
        .map_err(|_| ("header", "is not a valid header name".to_owned()))?;
    if !binding.path.starts_with('/') {
        return Err(("path", "must begin with a slash".to_owned()));
    }
    if secret.expose().len() < redact::MIN_BYTES {
        let why = format!(
            "it has fewer than {} bytes: redacting it would redact ordinary words in responses, too",
            redact::MIN_BYTES
        );
        return Err(("secret", why));
    }
    let default = if header == header::AUTHORIZATION {
        "Bearer "
    } else {
        ""
    };
    let prefix = binding.prefix.as_deref().unwrap_or(default);
    Ok(Credential {
        name: name.to_owned(),
        value: Secret::new(format!("{prefix}{}", secret.expose())),
        origin,
        methods: methods(&binding.methods),
        path_prefix: binding.path.clone(),
        header,
    })
}

fn methods(names: &[MethodName]) -> Vec<Method> {
    names
        .iter()
        .map(|MethodName(method)| method.clone())
        .collect()
}

fn paths(paths: &[String], below: &str) -> Result<Vec<String>, String> {
    let read = |path: &String| match path.strip_prefix('/') {
        None => Err("`paths` must begin with a slash".to_owned()),
        // The prefix covers its own path and everything below it.
        Some("") if !below.is_empty() => Ok(below.to_owned()),
        Some(_) => Ok(format!("{below}{path}")),
    };
    paths.iter().map(read).collect()
}

fn headers(names: &[String]) -> Result<Vec<HeaderName>, String> {
    let read = |name: &String| {
        HeaderName::try_from(name)
            .map_err(|_| format!("`headers`: {name:?} is not a valid header name"))
    };
    names.iter().map(read).collect()
}
