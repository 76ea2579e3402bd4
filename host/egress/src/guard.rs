//! The stages of a request, redirects included, in their order.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Method};
use tokio::time::Instant;

use crate::MAX_REDIRECTS;
use crate::network::Network;
use crate::origin::Address;
use crate::policy::EgressPolicy;
use crate::refusal::{EgressRefusal, EgressStage, Rule};
use crate::request::{
    Credential, EgressRequest, EgressResponse, strip_for_another_origin, vet_headers,
};
use crate::resolver::Resolver;
use crate::target::EgressTarget;
use crate::transport::{
    Transport, TransportFailure, TransportLimits, TransportRequest, TransportResponse,
};

/// The settings that all requests of a guard share.
#[derive(Debug, Clone)]
pub struct GuardSettings {
    /// The trusted certificate authorities.
    pub tls: rustls::ClientConfig,
    /// The `user-agent` header.
    pub user_agent: HeaderValue,
}

/// The guard: models and plugins send their requests through it only.
#[derive(Debug, Clone)]
pub struct Guard {
    network: Network,
    user_agent: HeaderValue,
}

impl Guard {
    /// Returns a guard that resolves names with this resolver.
    pub fn new(settings: GuardSettings, resolver: Resolver) -> Self {
        Self {
            network: Network::new(settings.tls, resolver),
            user_agent: settings.user_agent,
        }
    }

    /// Sends a request within a policy, and reads the response.
    ///
    /// Dropping the future closes the connection.
    ///
    /// # Errors
    ///
    /// A [`EgressRefusal`] names the violated rule, and whether the guard sent anything.
    pub async fn fetch(
        &self,
        request: EgressRequest,
        policy: &EgressPolicy,
    ) -> Result<EgressResponse, EgressRefusal> {
        walk(&self.network, &self.user_agent, request, policy).await
    }
}

/// The current target of a request, which each redirect replaces.
struct RequestHop {
    target: EgressTarget,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
    credential: Option<Credential>,
}

/// Takes a request through all stages.
pub(crate) async fn walk<O: Transport>(
    outside: &O,
    user_agent: &HeaderValue,
    request: EgressRequest,
    policy: &EgressPolicy,
) -> Result<EgressResponse, EgressRefusal> {
    let bounds = TransportLimits {
        deadline: Instant::now() + policy.timeout,
        max_bytes: policy.max_bytes,
    };
    let mut leg = begin(request, policy).map_err(|rule| refusal(rule, 0, false))?;
    let mut followed = 0;
    loop {
        let outcome = leg.send(outside, user_agent, policy, bounds).await;
        let answer = outcome
            .map_err(|failure| refusal(failure.rule, followed, failure.sent || followed > 0))?;
        let Some(location) = answer.location else {
            return Ok(EgressResponse {
                status: answer.status,
                headers: answer.headers,
                body: answer.body,
                truncated: answer.truncated,
                url: leg.target.url.into(),
            });
        };
        followed += 1;
        let next =
            location.and_then(|location| leg.follow(answer.status, &location, followed, policy));
        leg = next.map_err(|rule| refusal(rule, followed, true))?;
    }
}

/// Refusals after a redirect count as [`EgressStage::Redirect`], unless the connection or the response failed.
fn refusal(rule: Rule, followed: usize, sent: bool) -> EgressRefusal {
    let stage = match rule.stage() {
        stage @ (EgressStage::Connect | EgressStage::Response) => stage,
        _ if followed > 0 => EgressStage::Redirect,
        stage => stage,
    };
    EgressRefusal { stage, rule, sent }
}

/// Checks a request as far as possible without a look-up.
fn begin(request: EgressRequest, policy: &EgressPolicy) -> Result<RequestHop, Rule> {
    let target = EgressTarget::vet(&request.url, &request.method, policy)?;
    if request.body.len() > policy.max_bytes {
        return Err(Rule::BodyTooLarge(policy.max_bytes));
    }
    let headers = vet_headers(&request, policy)?;
    if let Some(credential) = &request.credential {
        credential.check(&target, &request.method)?;
        credential.header()?;
    }
    Ok(RequestHop {
        target,
        headers,
        method: request.method,
        body: request.body,
        credential: request.credential,
    })
}

impl RequestHop {
    /// Resolves the name, checks every address, and sends the message.
    async fn send<O: Transport>(
        &self,
        outside: &O,
        user_agent: &HeaderValue,
        policy: &EgressPolicy,
        bounds: TransportLimits,
    ) -> Result<TransportResponse, TransportFailure> {
        let unsent = |rule| TransportFailure { rule, sent: false };
        let origin = &self.target.origin;
        let addresses = match &origin.host {
            Address::Ip(address) => vec![*address],
            Address::Name(name) => {
                // The trailing dot keeps the resolver from applying a search list. An exempted name has no dot, because
                // it may come from a hosts file or a search list.
                let name = match self.target.is_exempt {
                    true => name.clone(),
                    false => format!("{name}."),
                };
                let found = outside.resolve(&name, bounds.deadline).await;
                found.map_err(unsent)?
            }
        };
        if addresses.is_empty() {
            return Err(unsent(Rule::Unresolved));
        }
        let is_denied = |address: &IpAddr| policy.denies(&Address::Ip(*address));
        if addresses.iter().any(is_denied) {
            return Err(unsent(Rule::HostDenied));
        }
        // The URL check already covered literal addresses.
        if !self.target.is_exempt && matches!(origin.host, Address::Name(_)) {
            for address in &addresses {
                if let Some(special) = policy.refuses(*address) {
                    return Err(unsent(Rule::Resolved(special)));
                }
            }
        }
        let addresses: Vec<_> = addresses
            .into_iter()
            .map(|address| SocketAddr::new(address, origin.port))
            .collect();
        let message = self.message(user_agent).map_err(unsent)?;
        outside
            .exchange(&self.target, &addresses, message, bounds)
            .await
    }

    fn message(&self, user_agent: &HeaderValue) -> Result<TransportRequest, Rule> {
        let mut headers = self.headers.clone();
        let host = HeaderValue::try_from(self.target.origin.authority());
        let host = host.map_err(|_| Rule::Malformed("its host is not a valid header value"))?;
        headers.insert(header::HOST, host);
        headers.insert(header::USER_AGENT, user_agent.clone());
        // The guard never decompresses, so a small body cannot expand beyond the limit.
        headers.insert(
            header::ACCEPT_ENCODING,
            HeaderValue::from_static("identity"),
        );
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        if let Some(credential) = &self.credential {
            let (name, value) = credential.header()?;
            headers.insert(name, value);
        }
        Ok(TransportRequest {
            method: self.method.clone(),
            headers,
            body: self.body.clone(),
        })
    }

    /// Returns the next target, checked as strictly as the first one. Dropped headers and credentials stay dropped.
    fn follow(
        mut self,
        status: u16,
        location: &str,
        followed: usize,
        policy: &EgressPolicy,
    ) -> Result<Self, Rule> {
        if !policy.redirects {
            return Err(Rule::RedirectRefused);
        }
        if followed > MAX_REDIRECTS {
            return Err(Rule::TooManyRedirects);
        }
        let becomes_get = match status {
            303 => self.method != Method::HEAD,
            301 | 302 => self.method == Method::POST,
            _ => false,
        };
        if becomes_get {
            self.method = Method::GET;
            self.body = Bytes::new();
            self.headers.remove(header::CONTENT_TYPE);
            self.headers.remove(header::CONTENT_LANGUAGE);
        }
        let next = EgressTarget::vet(&self.target.resolve(location)?, &self.method, policy)?;
        let was = &self.target.origin;
        if was.is_https && !next.origin.is_https {
            return Err(Rule::Downgrade);
        }
        if *was != next.origin {
            if !self.body.is_empty() {
                return Err(Rule::BodyElsewhere);
            }
            self.credential = None;
            strip_for_another_origin(&mut self.headers);
        }
        let is_bound = |credential: &Credential| credential.check(&next, &self.method).is_ok();
        self.credential = self.credential.filter(is_bound);
        self.target = next;
        Ok(self)
    }
}
