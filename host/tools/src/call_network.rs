//! The requests of a tool: each is checked against the call's scope, extended by the host's headers, sent through the
//! guard, and its response redacted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hmac::Mac as _;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Method};
use tokio::time::Instant;
use url::Url;
use weir_egress::{
    Credential, EgressPolicy, EgressRequest, EgressResponse, Guard, RefusalKind, webhook,
};
use weir_ledger::AccountId;
use weir_sandbox::printable;
use weir_sandbox::tool::bindings::outbound;
use weir_sandbox::tool::http_rules::{method, shown_headers};
use weir_sandbox::tool::{Outbound, OutboundFuture};
use weir_storage::clock::Clock;
use weir_storage::secrets::{Secret, SecretKey};

use super::rules::{ConfiguredCredential, Integration, Rules, ToolRules};
use super::secret_redactor::SecretRedactor;
use super::settings::Targets;

/// The maximum bytes of a URL in a record.
const MAX_URL_BYTES: usize = 2 << 10;

pub(super) struct CallScope {
    pub(super) rules: ToolRules,
    pub(super) integrations: Vec<Integration>,
    pub(super) webhook_urls: Vec<String>,
    /// `None` if webhooks cannot be signed, or the tool sends none.
    pub(super) webhook_secret: Option<Secret>,
    pub(super) credentials: BTreeMap<String, ConfiguredCredential>,
    pub(super) idempotency_key: String,
    pub(super) deadline: Instant,
    pub(super) clock: Clock,
}

impl CallScope {
    /// The time limit of the call.
    pub(super) fn within(&self) -> Duration {
        self.rules.within
    }
}

/// The requests of a call so far. The record survives a terminated guest.
#[derive(Clone, Default)]
pub(super) struct RequestTrail {
    /// The last URL, in the form for records.
    pub(super) url: String,
    pub(super) status: Option<u16>,
    /// The first refusal.
    pub(super) blocked: Option<String>,
    /// The bytes of the guest's responses.
    pub(super) answer_bytes: usize,
    /// Whether a request is running.
    pub(super) is_waiting: bool,
    requests: u32,
    /// The redactor of the call's credentials.
    pub(super) redactor: Arc<SecretRedactor>,
}

impl RequestTrail {
    /// Returns the trail of a call with this single target.
    pub(super) fn at(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            ..Self::default()
        }
    }

    /// Returns the trail of a call that was blocked before any request.
    pub(super) fn blocked(why: String) -> Self {
        Self {
            blocked: Some(why),
            ..Self::default()
        }
    }
}

/// A trail that the call shares with its network access.
#[derive(Clone)]
pub(super) struct SharedRequestTrail(Arc<Mutex<RequestTrail>>);

impl SharedRequestTrail {
    pub(super) fn lock(&self) -> MutexGuard<'_, RequestTrail> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct CallNetwork {
    guard: Guard,
    scope: CallScope,
    redactor: Arc<SecretRedactor>,
    trail: SharedRequestTrail,
}

/// The policy and the credential of an allowed request.
struct AllowedRequest {
    request: EgressRequest,
    policy: EgressPolicy,
}

impl CallNetwork {
    pub(super) fn new(guard: Guard, scope: CallScope) -> Self {
        let secrets = scope.credentials.values();
        let secrets: Vec<_> = secrets.filter_map(|own| own.bare.as_ref()).collect();
        let secrets = secrets.into_iter().chain(&scope.webhook_secret);
        let redactor = Arc::new(SecretRedactor::new(secrets.map(Secret::expose)));
        let trail = RequestTrail {
            redactor: redactor.clone(),
            ..RequestTrail::default()
        };
        Self {
            guard,
            scope,
            redactor,
            trail: SharedRequestTrail(Arc::new(Mutex::new(trail))),
        }
    }

    pub(super) fn trail(&self) -> SharedRequestTrail {
        self.trail.clone()
    }

    async fn send(
        &self,
        asked: outbound::Request,
    ) -> Result<outbound::Response, outbound::Failure> {
        let number = {
            let mut trail = self.trail.lock();
            trail.requests += 1;
            trail.url = self.recordable(&asked.url);
            trail.status = None;
            trail.requests
        };
        let allowed = self.allow(asked, number).map_err(|why| self.block(why))?;
        self.trail.lock().is_waiting = true;
        let answer = self.guard.fetch(allowed.request, &allowed.policy).await;
        self.trail.lock().is_waiting = false;
        match answer {
            Ok(response) => Ok(self.show(response)),
            Err(refusal) => Err(match refusal.kind() {
                RefusalKind::Blocked => self.block(format!("{}: {refusal}", refusal.stage)),
                RefusalKind::Timeout => outbound::Failure::Timeout,
                RefusalKind::Unreachable => outbound::Failure::Unreachable(refusal.to_string()),
            }),
        }
    }

    /// Checks a request against the call's scope. The guard checks everything else.
    fn allow(&self, asked: outbound::Request, number: u32) -> Result<AllowedRequest, String> {
        let CallScope { rules, .. } = &self.scope;
        let unsent = |why: String| format!("{why}; nothing was sent");
        if number > rules.requests {
            return Err(unsent(format!(
                "policy: the call has made {} requests already",
                rules.requests
            )));
        }
        let mut policy = self.policy(&asked.url).map_err(unsent)?;
        let left = self
            .scope
            .deadline
            .saturating_duration_since(Instant::now());
        policy.timeout = policy.timeout.min(left);
        let credential = match &asked.credential {
            None => None,
            Some(name) => Some(self.credential(name).map_err(unsent)?),
        };
        let method = method(asked.method);
        let body = Bytes::from(asked.body.unwrap_or_default());
        let host_headers = self.host_headers(&method, &body, number).map_err(unsent)?;
        let request = EgressRequest {
            method,
            url: asked.url,
            headers: asked.headers,
            host_headers,
            body,
            credential,
        };
        Ok(AllowedRequest { request, policy })
    }

    /// Returns the guard's policy for a URL.
    fn policy(&self, url: &str) -> Result<EgressPolicy, String> {
        let CallScope {
            rules,
            integrations,
            webhook_urls,
            ..
        } = &self.scope;
        match rules.to {
            Targets::Hosts => Ok(rules.policy.clone()),
            Targets::Webhooks if webhook_urls.iter().any(|own| own == url) => {
                Ok(rules.policy.clone())
            }
            Targets::Webhooks => Err("policy: the URL is none of the agent's webhooks".to_owned()),
            Targets::Integrations => {
                let parsed = Url::parse(url).ok();
                let is_of = |own: &&Integration| {
                    let parsed = parsed.as_ref();
                    parsed.is_some_and(|url| url.origin() == own.base.origin())
                };
                let mut of_origin = integrations.iter().filter(is_of).peekable();
                let first = of_origin.peek().copied();
                let path = parsed.as_ref().map_or("", Url::path);
                let below = of_origin.find(|own| {
                    let mut prefixes = own.policy.path_prefixes.iter();
                    prefixes.any(|prefix| path.starts_with(&**prefix))
                });
                let Some(integration) = below.or(first) else {
                    let own: Vec<_> = integrations.iter().map(|own| &*own.id).collect();
                    return Err(format!(
                        "policy: the URL belongs to none of the call's integrations ({})",
                        own.join(", ")
                    ));
                };
                Ok(EgressPolicy {
                    max_bytes: rules.policy.max_bytes,
                    timeout: rules.policy.timeout,
                    ..integration.policy.clone()
                })
            }
        }
    }

    fn credential(&self, name: &str) -> Result<Credential, String> {
        let known = &self.scope.credentials;
        let shown = printable(name, 64);
        match known.get(name).map(|own| &own.credential) {
            Some(Ok(credential)) => Ok(credential.clone()),
            Some(Err(why)) => Err(format!("credential: {shown:?} is missing: {why}")),
            None => {
                let names: Vec<_> = known.keys().map(String::as_str).collect();
                let names = match &names[..] {
                    [] => "has none".to_owned(),
                    names => format!("has {}", names.join(", ")),
                };
                Err(format!(
                    "credential: {shown:?} is not the call's, which {names}"
                ))
            }
        }
    }

    /// Returns the idempotency key, and a webhook's signature. Each request of a call has its own key.
    fn host_headers(&self, method: &Method, body: &[u8], number: u32) -> Result<HeaderMap, String> {
        let key = match number {
            1 => self.scope.idempotency_key.clone(),
            number => format!("{}-{number}", self.scope.idempotency_key),
        };
        if self.scope.rules.to == Targets::Webhooks {
            let Some(secret) = &self.scope.webhook_secret else {
                return Err("webhooks cannot be signed: `webhook_key` is not set".to_owned());
            };
            let seconds = self.scope.clock.now().0.unsigned_abs() / 1_000;
            return webhook::headers(secret, &key, seconds, body)
                .map_err(|error| format!("the webhook cannot be signed: {error}"));
        }
        let mut headers = HeaderMap::new();
        if !method.is_safe() {
            let value = HeaderValue::try_from(key)
                .map_err(|_| "the idempotency key is no header's value".to_owned())?;
            headers.insert(HeaderName::from_static("idempotency-key"), value);
        }
        Ok(headers)
    }

    /// Returns the guest's view of a response.
    fn show(&self, response: EgressResponse) -> outbound::Response {
        let mut body = Vec::from(response.body);
        self.redactor.redact(&mut body, response.truncated);
        let mut headers = shown_headers(&response.headers);
        for (_, value) in &mut headers {
            *value = self.redactor.redact_text(std::mem::take(value));
        }
        let mut trail = self.trail.lock();
        trail.url = self.recordable(&response.url);
        trail.status = Some(response.status);
        trail.answer_bytes += body.len();
        outbound::Response {
            status: response.status,
            headers,
            body,
            truncated: response.truncated,
        }
    }

    fn block(&self, why: String) -> outbound::Failure {
        let why = self.redactor.redact_text(why);
        let mut trail = self.trail.lock();
        trail.blocked.get_or_insert_with(|| why.clone());
        outbound::Failure::Blocked(why)
    }

    /// Returns a URL for records: without user name, password, fragment and credentials.
    fn recordable(&self, url: &str) -> String {
        let url = match Url::parse(url) {
            Ok(mut url) => {
                let _ = url.set_username("");
                let _ = url.set_password(None);
                url.set_fragment(None);
                url.into()
            }
            Err(_) => url.to_owned(),
        };
        self.redactor.redact_text(printable(&url, MAX_URL_BYTES))
    }
}

impl Outbound for CallNetwork {
    fn fetch(&self, request: outbound::Request) -> OutboundFuture<'_> {
        Box::pin(self.send(request))
    }
}

/// Returns the credentials of a call by name: the agent's own, and the named ones of the operator.
pub(super) fn credentials<'a>(
    rules: &Rules,
    names: impl Iterator<Item = &'a String>,
    own: &[Credential],
) -> BTreeMap<String, ConfiguredCredential> {
    let mut credentials: BTreeMap<_, _> = names
        .filter_map(|name| Some((name.clone(), rules.credential(name)?.clone())))
        .collect();
    for credential in own {
        // In values such as `Bearer …`, the secret comes last.
        let value = credential.value.expose();
        let bare = value.rsplit(' ').next().unwrap_or(value);
        let configured = ConfiguredCredential {
            bare: Some(Secret::new(bare.to_owned())),
            credential: Ok(credential.clone()),
        };
        credentials.insert(credential.name.clone(), configured);
    }
    credentials
}

/// Derives the secret of an account's webhooks.
pub(super) fn webhook_secret(key: &SecretKey, account: &AccountId) -> Secret {
    let mut mac = key.mac(b"webhooks of an account");
    mac.update(account.0.as_bytes());
    let secret = STANDARD.encode(mac.finalize().into_bytes());
    Secret::new(format!("whsec_{secret}"))
}
