//! What the guard needs of the outside, and what goes there and comes back.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use http::{HeaderMap, Method, header};
use tokio::time::Instant;

use crate::refusal::Rule;
use crate::target::Target;

/// Where names are resolved and messages go: the network, or a script that says what would happen there.
pub(crate) trait Outside: Sync {
    /// Every address of a name.
    fn resolve(
        &self,
        name: &str,
        deadline: Instant,
    ) -> impl Future<Output = Result<Vec<IpAddr>, Rule>> + Send;

    /// Sends a message to the first of these addresses that takes it, all of which have been vetted.
    fn exchange(
        &self,
        target: &Target,
        addresses: &[SocketAddr],
        message: Message,
        bounds: Bounds,
    ) -> impl Future<Output = Result<Answer, Failure>> + Send;
}

/// A request as it goes onto the wire.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) deadline: Instant,
    pub(crate) max_bytes: usize,
}

/// What came back. A redirect's body is not read.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// Where it redirects to, if it does.
    pub(crate) location: Option<Result<String, Rule>>,
    pub(crate) body: Bytes,
    pub(crate) truncated: bool,
}

/// What failed, and whether it was after the message had begun to go out.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) rule: Rule,
    pub(crate) sent: bool,
}

/// Where an answer leads, if anywhere. Two places are none.
pub(crate) fn location(status: u16, headers: &HeaderMap) -> Option<Result<String, Rule>> {
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let mut all = headers.get_all(header::LOCATION).iter();
    let text = std::str::from_utf8(all.next()?.as_bytes());
    Some(match (text, all.next()) {
        (Ok(text), None) => Ok(text.to_owned()),
        _ => Err(Rule::Malformed("it is not one text")),
    })
}
