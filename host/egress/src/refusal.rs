//! Refusals: the stage and the rule that stopped a request, and whether the guard had sent anything.

use std::fmt;

use crate::addresses::SpecialBlock;

/// A refused or failed request.
///
/// **Invariant:** a refusal never quotes a URL, an address or a value: neither a query, nor a credential, nor a body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{rule}; {}", if *.sent { "something was sent" } else { "nothing was sent" })]
pub struct EgressRefusal {
    /// The stage that stopped the request.
    pub stage: EgressStage,
    pub rule: Rule,
    /// Whether any server may have received the request, including a server that redirected it.
    pub sent: bool,
}

/// The stages of a request, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EgressStage {
    Parse,
    Scheme,
    /// Rejects a user name or password.
    Userinfo,
    Port,
    /// Checks the host's name.
    Host,
    /// Checks the host's address.
    Ip,
    /// Checks the operator's policy.
    Policy,
    /// Checks the caller's headers.
    Header,
    /// Checks whether the credential is for this request.
    Credential,
    /// Resolves the name and checks its addresses.
    Dns,
    Connect,
    /// Checks a redirect target against all stages above.
    Redirect,
    Response,
}

impl EgressStage {
    /// The stage's name in files and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parse => "parse",
            Self::Scheme => "scheme",
            Self::Userinfo => "userinfo",
            Self::Port => "port",
            Self::Host => "host",
            Self::Ip => "ip",
            Self::Policy => "policy",
            Self::Header => "header",
            Self::Credential => "credential",
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Redirect => "redirect",
            Self::Response => "response",
        }
    }
}

impl fmt::Display for EgressStage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The class of a [`EgressRefusal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// A rule forbids the request; a retry fails again.
    Blocked,
    /// The request took too long.
    Timeout,
    /// The server was unreachable, or closed the connection early.
    Unreachable,
}

/// A rule, with the cause of its violation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rule {
    /// A URL of more than 8 KiB.
    #[error("the URL has more than {} bytes", crate::MAX_URL_BYTES)]
    UrlTooLong,
    /// Parsers disagree on control characters: some drop them, some keep them.
    #[error("the URL holds a space or a control character; write it percent-encoded")]
    ControlCharacter,
    /// Some parsers read a backslash as a slash.
    #[error("the URL holds a backslash")]
    Backslash,
    /// A relative URL, or a URL with an invalid host or port.
    #[error("the URL is malformed: {0}")]
    Malformed(&'static str),
    /// A scheme other than https and http.
    #[error("the URL's scheme is neither https nor http")]
    Scheme,
    /// `http`, although the policy allows only `https`.
    #[error("only https is allowed here, not http")]
    PlainHttp,
    /// A user name or password, even an empty one.
    #[error("the URL holds a user name or password")]
    Userinfo,
    /// A port other than 80, 443 and the operator's.
    #[error("port {0} is not allowed")]
    Port(u16),
    /// A name that no public host has.
    #[error("the host's name {0}")]
    Name(&'static str),
    /// A URL with an address that is not public.
    #[error("the host is an address that is not public: {} ({})", .0.name, .0.source)]
    Literal(&'static SpecialBlock),
    /// A URL with an address, although the policy requires a name.
    #[error("the host must be a name, not an address")]
    NameWanted,
    #[error("the policy does not list this host")]
    HostNotListed,
    /// A host that the policy excludes.
    #[error("the policy excludes this host")]
    HostDenied,
    #[error("the policy does not allow this method")]
    MethodNotListed,
    /// A path outside all allowed prefixes.
    #[error("the policy does not allow this path")]
    PathNotListed,
    /// A path that servers may interpret differently.
    #[error("the path holds an escape or a segment that could lead out of the allowed prefix")]
    PathUnclear,
    /// A body with more bytes than the policy allows.
    #[error("the request's body has more than {0} bytes")]
    BodyTooLarge(usize),
    /// A header that the caller may not set.
    #[error("the header {0} is not allowed")]
    Header(String),
    #[error("a header's name or value is malformed")]
    HeaderMalformed,
    /// More than 32 headers, or more than 16 KiB in total.
    #[error("the headers are too many or too large")]
    TooManyHeaders,
    /// The credential is for another origin, method or path.
    #[error("the credential {name} is bound to another {what}")]
    CredentialBound {
        /// The credential's name.
        name: String,
        /// The differing part: origin, method or path.
        what: &'static str,
    },
    /// A credential whose value or header name cannot be sent.
    #[error("the credential {0} cannot be sent as a header")]
    CredentialUnfit(String),
    /// A name without an address, or a failed look-up.
    #[error("the host's name does not resolve")]
    Unresolved,
    /// A name with at least one address that is not public.
    #[error("the host's name resolves to an address that is not public: {} ({})", .0.name, .0.source)]
    Resolved(&'static SpecialBlock),
    /// A server that accepts no connection at any address.
    #[error("the server cannot be reached")]
    Unreachable,
    /// A connection to another peer than the requested address.
    #[error("the connection has another peer than the requested address")]
    Peer,
    /// A TLS failure, e.g. a certificate for another name.
    #[error("no secure connection to the server: {0}")]
    Tls(&'static str),
    /// A redirect, although the policy follows none.
    #[error("the server redirects, but this request may not follow redirects")]
    RedirectRefused,
    /// More redirects than the maximum.
    #[error("the server redirects more than {} times", crate::MAX_REDIRECTS)]
    TooManyRedirects,
    /// A redirect from https to http.
    #[error("the server redirects from https to http")]
    Downgrade,
    /// A redirect that would send the body to another origin.
    #[error("the server redirects a request with a body to another origin")]
    BodyElsewhere,
    /// An incomplete response, or a response that is not HTTP.
    #[error("the server closed the connection early, or did not respond in HTTP")]
    BrokeOff,
    /// A compressed response, although the request did not allow compression.
    #[error("the response is compressed, although the request did not allow that")]
    Encoded,
    #[error("the request took longer than the policy allows (at the stage {0})")]
    TimedOut(EgressStage),
}

impl Rule {
    /// The stage that checks the rule for a first request. After a redirect, the refusal has [`EgressStage::Redirect`],
    /// except at the last stages.
    pub fn stage(&self) -> EgressStage {
        match self {
            Self::UrlTooLong | Self::ControlCharacter | Self::Backslash | Self::Malformed(_) => {
                EgressStage::Parse
            }
            Self::Scheme | Self::PlainHttp => EgressStage::Scheme,
            Self::Userinfo => EgressStage::Userinfo,
            Self::Port(_) => EgressStage::Port,
            Self::Name(_) => EgressStage::Host,
            Self::Literal(_) | Self::NameWanted => EgressStage::Ip,
            Self::HostNotListed
            | Self::HostDenied
            | Self::MethodNotListed
            | Self::PathNotListed
            | Self::PathUnclear
            | Self::BodyTooLarge(_) => EgressStage::Policy,
            Self::Header(_) | Self::HeaderMalformed | Self::TooManyHeaders => EgressStage::Header,
            Self::CredentialBound { .. } | Self::CredentialUnfit(_) => EgressStage::Credential,
            Self::Unresolved | Self::Resolved(_) => EgressStage::Dns,
            Self::Unreachable | Self::Peer | Self::Tls(_) => EgressStage::Connect,
            Self::RedirectRefused
            | Self::TooManyRedirects
            | Self::Downgrade
            | Self::BodyElsewhere => EgressStage::Redirect,
            Self::BrokeOff | Self::Encoded => EgressStage::Response,
            Self::TimedOut(stage) => *stage,
        }
    }
}

impl EgressRefusal {
    /// The class of the failure.
    pub fn kind(&self) -> RefusalKind {
        match self.rule {
            Rule::TimedOut(_) => RefusalKind::Timeout,
            Rule::Unresolved | Rule::Unreachable | Rule::Tls(_) | Rule::BrokeOff => {
                RefusalKind::Unreachable
            }
            _ => RefusalKind::Blocked,
        }
    }
}
