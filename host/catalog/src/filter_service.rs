//! The service of a filter, such as a moderation service: `[filters.service]`.
//!
//! The filter writes the body of a request and reads the body of the response. weir adds the URL and the credential, which
//! the filter never sees, and sends the request through the egress guard.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::Deserialize;
use weir_egress::{EgressPolicy, EgressRequest, Guard};
use weir_storage::secrets::Secret;
use weir_tools::rules::{ConfiguredCredential, read_credential, service_policy};
use weir_tools::secret_redactor::SecretRedactor;
use weir_tools::settings::CredentialSettings;
use weir_upstream::filter_rules::FilterFault;

/// The maximum bytes of a body.
const MAX_BYTES: usize = 1 << 20;

/// The service of a filter: `[filters.service]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterServiceConfig {
    /// URL that gets the filter's requests, by `POST`. Required.
    pub url: String,
    /// Name under `[credentials]` that the requests carry. Default: none.
    #[serde(default)]
    pub credential: Option<String>,
    /// Media type of the requests. Default: `application/json`.
    #[serde(default = "json")]
    pub content_type: String,
    /// Milliseconds for a request. Default: 2,000.
    #[serde(default = "timeout_ms")]
    pub timeout_ms: NonZeroU32,
    /// Bytes of a request body and of a response body, at most 1 MiB. Default: 256 KiB.
    #[serde(default = "bytes")]
    pub bytes: NonZeroUsize,
    /// Whether the service may have a non-public address. Default: `false`.
    #[serde(default)]
    pub private: bool,
}

fn json() -> String {
    "application/json".to_owned()
}

fn timeout_ms() -> NonZeroU32 {
    const { NonZeroU32::new(2_000).unwrap() }
}

fn bytes() -> NonZeroUsize {
    const { NonZeroUsize::new(256 << 10).unwrap() }
}

pub struct FilterService {
    url: String,
    policy: EgressPolicy,
    content_type: HeaderValue,
    credential: Option<ConfiguredCredential>,
    redactor: SecretRedactor,
}

impl FilterService {
    /// Reads the settings and the credential.
    ///
    /// # Errors
    ///
    /// Returns the invalid field, and its problem. A missing secret is not a problem: requests that need it fail.
    pub(super) fn read(
        config: &FilterServiceConfig,
        credentials: &BTreeMap<String, CredentialSettings>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, (&'static str, String)> {
        let (_, _, policy) =
            service_policy(&config.url, config.private).map_err(|why| ("url", why))?;
        if config.bytes.get() > MAX_BYTES {
            return Err(("bytes", format!("is more than {MAX_BYTES}")));
        }
        let content_type = HeaderValue::from_str(&config.content_type)
            .map_err(|_| ("content_type", "is not a media type".to_owned()))?;
        let credential = match &config.credential {
            None => None,
            Some(name) => {
                let Some(settings) = credentials.get(name) else {
                    let why = format!("names {name:?}, but `credentials.{name}` does not exist");
                    return Err(("credential", why));
                };
                let read = read_credential(name, settings, environment);
                Some(read.map_err(|why| ("credential", why))?)
            }
        };
        let secret = credential.as_ref().and_then(|own| own.bare.as_ref());
        Ok(Self {
            redactor: SecretRedactor::new(secret.map(Secret::expose)),
            url: config.url.clone(),
            policy: EgressPolicy {
                methods: vec![Method::POST],
                redirects: false,
                max_bytes: config.bytes.get(),
                timeout: Duration::from_millis(config.timeout_ms.get().into()),
                ..policy
            },
            content_type,
            credential,
        })
    }

    /// Returns the reason for which the service's secret is missing.
    pub(super) fn secret(&self) -> Result<(), String> {
        let credential = self.credential.as_ref().map(|own| own.credential.as_ref());
        match credential {
            Some(Err(why)) => Err(why.clone()),
            _ => Ok(()),
        }
    }

    /// Sends a filter's request, and returns the body of a successful response without the credential.
    ///
    /// # Errors
    ///
    /// [`FilterFault::Service`] without a successful and complete response.
    pub async fn ask(&self, guard: &Guard, body: Vec<u8>) -> Result<Vec<u8>, FilterFault> {
        let failed = |why: String| FilterFault::Service(why);
        if body.len() > self.policy.max_bytes {
            return Err(FilterFault::ServiceRequestTooLarge(self.policy.max_bytes));
        }
        let credential = self.credential.as_ref().map(|own| own.credential.clone());
        let request = EgressRequest {
            host_headers: HeaderMap::from_iter([(CONTENT_TYPE, self.content_type.clone())]),
            body: Bytes::from(body),
            credential: credential.transpose().map_err(failed)?,
            ..EgressRequest::new(Method::POST, &*self.url)
        };
        let sent = guard.fetch(request, &self.policy).await;
        let response = sent.map_err(|refusal| failed(format!("{}: {refusal}", refusal.stage)))?;
        if !(200..300).contains(&response.status) {
            return Err(failed(format!("the status is {}", response.status)));
        }
        if response.truncated {
            let most = self.policy.max_bytes;
            return Err(failed(format!("the response has more than {most} bytes")));
        }
        let mut body = response.body.to_vec();
        self.redactor.redact(&mut body, false);
        Ok(body)
    }
}
