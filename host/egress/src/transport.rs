//! The guard's interface to the network.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use http::{HeaderMap, Method, header};
use tokio::time::Instant;

use crate::refusal::Rule;
use crate::target::EgressTarget;

/// The network, or a script that stands in for it: resolves names and sends messages.
pub(crate) trait Transport: Sync {
    /// Resolves every address of a name.
    fn resolve(
        &self,
        name: &str,
        deadline: Instant,
    ) -> impl Future<Output = Result<Vec<IpAddr>, Rule>> + Send;

    /// Sends a message to the first reachable address; the guard has checked all of them.
    fn exchange(
        &self,
        target: &EgressTarget,
        addresses: &[SocketAddr],
        message: TransportRequest,
        bounds: TransportLimits,
    ) -> impl Future<Output = Result<TransportResponse, TransportFailure>> + Send;
}

/// A request as the network sends it.
#[derive(Debug, Clone)]
pub(crate) struct TransportRequest {
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct TransportLimits {
    pub(crate) deadline: Instant,
    pub(crate) max_bytes: usize,
}

/// The server's response. The guard does not read a redirect's body.
#[derive(Debug, Clone)]
pub(crate) struct TransportResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// The redirect target, if the response redirects.
    pub(crate) location: Option<Result<String, Rule>>,
    pub(crate) body: Bytes,
    pub(crate) truncated: bool,
}

/// The violated rule, and whether the guard had begun to send the message.
#[derive(Debug, Clone)]
pub(crate) struct TransportFailure {
    pub(crate) rule: Rule,
    pub(crate) sent: bool,
}

/// The target of a redirect; `None` for other responses. Two `Location` headers are an error.
pub(crate) fn location(status: u16, headers: &HeaderMap) -> Option<Result<String, Rule>> {
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let mut all = headers.get_all(header::LOCATION).iter();
    let text = std::str::from_utf8(all.next()?.as_bytes());
    Some(match (text, all.next()) {
        (Ok(text), None) => Ok(text.to_owned()),
        _ => Err(Rule::Malformed(
            "the Location header occurs twice or is not text",
        )),
    })
}
