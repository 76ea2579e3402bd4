//! The network: one connection for each message, to a checked address.
//!
//! The guard pools no connections: a reused connection would depend on an old look-up and its name. An extra handshake
//! is cheap compared with a tool call.
//!
//! **Invariant:** only [`dial`] opens a connection, and only to an address from its caller. [`dial`] resolves no name
//! and uses no proxy of the environment.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::CertificateError;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use crate::origin::Address;
use crate::refusal::{EgressStage, Rule};
use crate::resolver::Resolver;
use crate::target::EgressTarget;
use crate::transport::{
    Transport, TransportFailure, TransportLimits, TransportRequest, TransportResponse, location,
};

/// The connect timeout of each address if a name has several.
const CONNECT: Duration = Duration::from_secs(3);

/// The maximum bytes of a response's head.
const MAX_HEAD_BYTES: usize = 64 << 10;

#[derive(Debug, Clone)]
pub(crate) struct Network {
    tls: Arc<rustls::ClientConfig>,
    resolver: Resolver,
}

impl Network {
    pub(crate) fn new(tls: rustls::ClientConfig, resolver: Resolver) -> Self {
        Self {
            tls: Arc::new(tls),
            resolver,
        }
    }

    async fn connect(
        &self,
        target: &EgressTarget,
        addresses: &[SocketAddr],
        deadline: Instant,
    ) -> Result<Stream, Rule> {
        let tcp = dial(addresses, deadline).await?;
        if !target.origin.is_https {
            return Ok(Box::new(tcp));
        }
        let name = match &target.origin.host {
            Address::Ip(address) => ServerName::IpAddress((*address).into()),
            Address::Name(name) => ServerName::try_from(name.clone())
                .map_err(|_| Rule::Tls("its name cannot be in a certificate"))?,
        };
        let connecting = TlsConnector::from(Arc::clone(&self.tls)).connect(name, tcp);
        match timeout_at(deadline, connecting).await {
            Ok(Ok(stream)) => Ok(Box::new(stream)),
            Ok(Err(error)) => Err(Rule::Tls(what(&error))),
            Err(_) => Err(Rule::TimedOut(EgressStage::Connect)),
        }
    }
}

impl Transport for Network {
    async fn resolve(&self, name: &str, deadline: Instant) -> Result<Vec<IpAddr>, Rule> {
        match timeout_at(deadline, self.resolver.resolve(name)).await {
            Ok(Ok(addresses)) => Ok(addresses),
            Ok(Err(_)) => Err(Rule::Unresolved),
            Err(_) => Err(Rule::TimedOut(EgressStage::Dns)),
        }
    }

    async fn exchange(
        &self,
        target: &EgressTarget,
        addresses: &[SocketAddr],
        message: TransportRequest,
        bounds: TransportLimits,
    ) -> Result<TransportResponse, TransportFailure> {
        let connected = self.connect(target, addresses, bounds.deadline).await;
        let stream = connected.map_err(|rule| TransportFailure { rule, sent: false })?;
        let speaking = speak(stream, target, message, bounds.max_bytes);
        match timeout_at(bounds.deadline, speaking).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(rule)) => Err(TransportFailure { rule, sent: true }),
            Err(_) => Err(TransportFailure {
                rule: Rule::TimedOut(EgressStage::Response),
                sent: true,
            }),
        }
    }
}

/// A connection, with TLS or without.
type Stream = Box<dyn Duplex>;

trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

/// Connects to the first reachable address, and verifies the peer's address.
async fn dial(addresses: &[SocketAddr], deadline: Instant) -> Result<TcpStream, Rule> {
    for address in addresses {
        let until = deadline.min(Instant::now() + CONNECT);
        let Ok(Ok(stream)) = timeout_at(until, TcpStream::connect(address)).await else {
            continue;
        };
        if stream.peer_addr().ok() != Some(*address) {
            return Err(Rule::Peer);
        }
        // The call fails only on a closed connection; the next write reports that.
        let _ = stream.set_nodelay(true);
        return Ok(stream);
    }
    match Instant::now() < deadline {
        true => Err(Rule::Unreachable),
        false => Err(Rule::TimedOut(EgressStage::Connect)),
    }
}

/// The TLS error in weir's own words: rustls quotes the certificate, which is untrusted text.
fn what(error: &io::Error) -> &'static str {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(rustls::Error::InvalidCertificate(why)) => match why {
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate is for another name"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired"
            }
            CertificateError::UnknownIssuer => "its certificate has no trusted issuer",
            _ => "its certificate is not valid",
        },
        Some(_) => "it and this gateway share no protocol version or cipher",
        None => "it broke off",
    }
}

/// Sends one message and reads the response.
async fn speak(
    stream: Stream,
    target: &EgressTarget,
    message: TransportRequest,
    max_bytes: usize,
) -> Result<TransportResponse, Rule> {
    let mut request = http::Request::new(Full::new(message.body));
    *request.method_mut() = message.method;
    *request.uri_mut() = http::Uri::from(target.path_and_query.clone());
    *request.headers_mut() = message.headers;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_HEAD_BYTES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|_| Rule::BrokeOff)?;
    // The guard closes the connection when this call ends, even if the call fails.
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let answer = sender.send_request(request).await;
    let (head, body) = answer.map_err(|_| Rule::BrokeOff)?.into_parts();
    let status = head.status.as_u16();
    let location = location(status, &head.headers);
    let (body, truncated) = match location {
        Some(_) => (Bytes::new(), false),
        None => {
            let mut encodings = head.headers.get_all(header::CONTENT_ENCODING).iter();
            if !encodings.all(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
                return Err(Rule::Encoded);
            }
            read(body, max_bytes).await?
        }
    };
    Ok(TransportResponse {
        status,
        headers: head.headers,
        location,
        body,
        truncated,
    })
}

/// Reads a body up to a limit. Returns whether the body was longer.
async fn read(mut body: Incoming, max_bytes: usize) -> Result<(Bytes, bool), Rule> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Rule::BrokeOff)?.into_data() else {
            continue;
        };
        let room = max_bytes - whole.len();
        if data.len() > room {
            whole.extend_from_slice(&data[..room]);
            return Ok((whole.freeze(), true));
        }
        whole.extend_from_slice(&data);
    }
    Ok((whole.freeze(), false))
}
