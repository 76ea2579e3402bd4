//! Why a request did not get its answer: at which stage, by which rule, and whether anything had been sent.

use std::fmt;

use crate::addresses::Special;

/// Why there is no answer.
///
/// **Invariant:** it never quotes a URL, an address or a value: nothing of a query, a credential or a body is in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{rule}; {}", if *.sent { "something was sent" } else { "nothing was sent" })]
pub struct Refusal {
    /// What decided.
    pub stage: Stage,
    /// What it broke.
    pub rule: Rule,
    /// Whether anything of the request may have reached a server, be it only the one that redirected it.
    pub sent: bool,
}

/// What decides whether a request is sent, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Reading the URL.
    Parse,
    /// Its scheme.
    Scheme,
    /// Its user name and password: there are none.
    Userinfo,
    /// Its port.
    Port,
    /// Its host, where that is a name.
    Host,
    /// Its host, where that is an address.
    Ip,
    /// What the operator lets this caller ask for.
    Policy,
    /// The caller's headers.
    Header,
    /// Whether the credential is for this request.
    Credential,
    /// The addresses of its name.
    Dns,
    /// The connection.
    Connect,
    /// Where the answer redirects to, by any of the stages before.
    Redirect,
    /// The answer.
    Response,
}

impl Stage {
    /// As it is written in files and logs.
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

impl fmt::Display for Stage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// What kind of failure a [`Refusal`] is to its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A rule forbids it: asking again changes nothing.
    Blocked,
    /// It took too long.
    Timeout,
    /// The server could not be reached, or broke off.
    Unreachable,
}

/// A rule, and what broke it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rule {
    /// More than 8 KiB.
    #[error("the URL has more than {} bytes", crate::MAX_URL_BYTES)]
    UrlTooLong,
    /// Parsers drop or keep them, each its own.
    #[error("the URL holds a space or a control character; write it percent-encoded")]
    ControlCharacter,
    /// A slash to some parsers.
    #[error("the URL holds a backslash")]
    Backslash,
    /// No absolute URL, or one whose host or port is none.
    #[error("the URL is malformed: {0}")]
    Malformed(&'static str),
    /// Neither http nor https.
    #[error("the URL's scheme is neither https nor http")]
    Scheme,
    /// `http`, where only `https` will do.
    #[error("only https is allowed here, not http")]
    PlainHttp,
    /// A user name or password, even an empty one.
    #[error("the URL holds a user name or password")]
    Userinfo,
    /// Neither 80, nor 443, nor one that the operator allows.
    #[error("port {0} is not allowed")]
    Port(u16),
    /// Not the name of a public host.
    #[error("the host's name {0}")]
    Name(&'static str),
    /// The URL's host is an address, and not a public one.
    #[error("the host is an address that is not public: {} ({})", .0.name, .0.source)]
    Literal(&'static Special),
    /// The URL's host is an address, where only a name will do.
    #[error("the host must be a name, not an address")]
    NameWanted,
    /// A host that is not on the list.
    #[error("the policy does not list this host")]
    HostNotListed,
    /// A host that the policy excludes.
    #[error("the policy excludes this host")]
    HostDenied,
    /// A method that is not on the list.
    #[error("the policy does not allow this method")]
    MethodNotListed,
    /// A path below none of the prefixes.
    #[error("the policy does not allow this path")]
    PathNotListed,
    /// A path that a server may read as another one.
    #[error("the path holds an escape or a segment that could lead out of what is allowed")]
    PathUnclear,
    /// A body of more bytes than the policy allows.
    #[error("the request's body has more than {0} bytes")]
    BodyTooLarge(usize),
    /// A header that is not the caller's to set.
    #[error("the header {0} is not allowed")]
    Header(String),
    /// No header at all.
    #[error("a header's name or value is malformed")]
    HeaderMalformed,
    /// More than 32, or more than 16 KiB of them.
    #[error("the headers are too many or too large")]
    TooManyHeaders,
    /// The credential is for another origin, method or path.
    #[error("the credential {name} is bound to another {what}")]
    CredentialBound {
        /// The credential's name.
        name: String,
        /// What differs.
        what: &'static str,
    },
    /// The credential cannot be a header's value, or its header is one that frames messages.
    #[error("the credential {0} cannot be sent as a header")]
    CredentialUnfit(String),
    /// The name has no address, or nobody said which.
    #[error("the host's name does not resolve")]
    Unresolved,
    /// One of the name's addresses is not public, which spoils the others.
    #[error("the host's name leads to an address that is not public: {} ({})", .0.name, .0.source)]
    Resolved(&'static Special),
    /// No address took a connection.
    #[error("the server cannot be reached")]
    Unreachable,
    /// Connected to somebody else than was asked for.
    #[error("the connection leads to another address than was asked for")]
    Peer,
    /// TLS failed, e.g. for a certificate of another name.
    #[error("no secure connection to the server: {0}")]
    Tls(&'static str),
    /// A redirect of a request that takes none.
    #[error("the server redirects, which is not followed here")]
    RedirectRefused,
    /// One more than are followed.
    #[error("the server redirects more than {} times", crate::MAX_REDIRECTS)]
    TooManyRedirects,
    /// From https to http.
    #[error("the server redirects from https to http")]
    Downgrade,
    /// A redirect that would send the body to whom it was not meant for.
    #[error("the server redirects a request with a body to another origin")]
    BodyElsewhere,
    /// The answer broke off or is not HTTP.
    #[error("the server broke off, or did not answer in HTTP")]
    BrokeOff,
    /// A compressed answer, which was not asked for.
    #[error("the answer is compressed, though none was asked for")]
    Encoded,
    /// The policy's time was over.
    #[error("it took longer than the policy allows (at the stage {0})")]
    TimedOut(Stage),
}

impl Rule {
    /// Where a first request meets the rule; what a redirect leads to meets all but the last stages at
    /// [`Stage::Redirect`].
    pub fn stage(&self) -> Stage {
        match self {
            Self::UrlTooLong | Self::ControlCharacter | Self::Backslash | Self::Malformed(_) => {
                Stage::Parse
            }
            Self::Scheme | Self::PlainHttp => Stage::Scheme,
            Self::Userinfo => Stage::Userinfo,
            Self::Port(_) => Stage::Port,
            Self::Name(_) => Stage::Host,
            Self::Literal(_) | Self::NameWanted => Stage::Ip,
            Self::HostNotListed
            | Self::HostDenied
            | Self::MethodNotListed
            | Self::PathNotListed
            | Self::PathUnclear
            | Self::BodyTooLarge(_) => Stage::Policy,
            Self::Header(_) | Self::HeaderMalformed | Self::TooManyHeaders => Stage::Header,
            Self::CredentialBound { .. } | Self::CredentialUnfit(_) => Stage::Credential,
            Self::Unresolved | Self::Resolved(_) => Stage::Dns,
            Self::Unreachable | Self::Peer | Self::Tls(_) => Stage::Connect,
            Self::RedirectRefused
            | Self::TooManyRedirects
            | Self::Downgrade
            | Self::BodyElsewhere => Stage::Redirect,
            Self::BrokeOff | Self::Encoded => Stage::Response,
            Self::TimedOut(stage) => *stage,
        }
    }
}

impl Refusal {
    /// What it means to whoever asked.
    pub fn kind(&self) -> Kind {
        match self.rule {
            Rule::TimedOut(_) => Kind::Timeout,
            Rule::Unresolved | Rule::Unreachable | Rule::Tls(_) | Rule::BrokeOff => {
                Kind::Unreachable
            }
            _ => Kind::Blocked,
        }
    }
}
