//! The verifiers of a gateway, built from its settings.
//!
//! **Invariant:** if the issuer of a token kind is configured, only that issuer counts; the local issuer replaces
//! missing ones, in development mode only.

use anyhow::anyhow;
use weir_outgoing::Client;
use weir_storage::clock::Clock;

use super::dev_issuer::{DevAudience, DevIssuer};
use super::jwt::{AllowedServices, TokenKind, TokenVerifier};
use super::settings::{IdentitySettings, IssuerSettings};

/// One verifier for each accepted kind of token.
#[derive(Debug, Clone, Default)]
pub struct Verifiers {
    /// Identity tokens of web users.
    pub identity: Option<TokenVerifier>,
    /// Attestation tokens of the web app.
    pub attestation: Option<TokenVerifier>,
    /// Service tokens at the API.
    pub api: Option<TokenVerifier>,
    /// Service tokens at the executor.
    pub executor: Option<TokenVerifier>,
}

impl Verifiers {
    /// Builds the verifiers. `dev` is the local issuer of a gateway in development mode.
    pub fn new(
        settings: &IdentitySettings,
        dev: Option<&DevIssuer>,
        http: &Client,
        clock: &Clock,
    ) -> anyhow::Result<Self> {
        let remote = |kind, issuer: &IssuerSettings| {
            TokenVerifier::new(kind, issuer, http.clone(), clock.clone())
                .map_err(|problem| anyhow!("the issuer {:?} {problem}", issuer.issuer))
        };
        let local = |kind, audience| -> anyhow::Result<_> {
            let Some(dev) = dev else {
                return Ok(None);
            };
            let settings = DevIssuer::settings(audience);
            let verifier = TokenVerifier::with_keys(kind, &settings, dev.keys()?, clock.clone());
            Ok(Some(verifier))
        };
        let web = |kind, issuer: &Option<IssuerSettings>, audience| match issuer {
            Some(issuer) => remote(kind, issuer).map(Some),
            None => local(kind, audience),
        };
        let (api, executor) = match &settings.service {
            Some(service) => {
                let api = remote(TokenKind::service(settings, service), &service.api())?;
                let executor = service.executor_audience.clone();
                let executor = executor.map(|audience| api.for_audience(audience));
                (Some(api), executor)
            }
            None => {
                let kind = TokenKind::Service {
                    allowed: AllowedServices::Any,
                    scope_claim: "scope".into(),
                };
                (
                    local(kind.clone(), DevAudience::Api)?,
                    local(kind, DevAudience::Executor)?,
                )
            }
        };
        Ok(Self {
            identity: web(TokenKind::Identity, &settings.web, DevAudience::Identity)?,
            attestation: web(
                TokenKind::Attestation,
                &settings.attestation,
                DevAudience::Attestation,
            )?,
            api,
            executor,
        })
    }

    /// Starts to fetch all issuers' keys.
    pub fn warm_up(&self) {
        let all = [&self.identity, &self.attestation, &self.api, &self.executor];
        for verifier in all.into_iter().flatten() {
            verifier.warm_up();
        }
    }
}
