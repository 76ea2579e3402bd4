//! The accept loop of a listener: connection limits and protocol detection.
//!
//! Our own loop, because `axum::serve` sets no limits. Every socket has TCP_NODELAY: a streamed token must not wait for
//! the acknowledgement of the token before it. ALPN, or else the first bytes of a connection, decide between HTTP/2 and
//! HTTP/1.1. HTTP/1.1 then reads the socket directly, without a layer between.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use bytes::{Buf, BytesMut};
use ipnet::IpNet;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use weir_app::App;
use weir_app::tls;

use super::connection_closer::ConnectionCloser;
use super::connection_resources::ConnectionResources;
use super::connection_slots::ConnectionSlots;
use super::connections::{ConnectionState, ListenerConnections, too_many};
use super::gate::{RequestGate, Waits};
use super::http1;
use super::http2::{self, Http2Limits, PREFACE};
use super::prefixed_stream::PrefixedStream;
use super::proxy_header::ProxyHeader;
use super::write_window::WriteWindow;

/// Connections that get an error response because of too many connections. weir closes further ones without a response.
const REFUSALS_AT_ONCE: usize = 64;

/// Unsent bytes that the kernel buffers, instead of megabytes, so that the gateway sees how fast a client reads.
const UNSENT_BYTES: u32 = 64 << 10;

/// The protocols before HTTP on a listener.
#[derive(Clone, Default)]
pub(super) struct ListenerProtocols {
    /// TLS, if configured.
    pub tls: Option<TlsAcceptor>,
    /// Proxies that begin each connection with the PROXY protocol.
    pub proxies: Vec<IpNet>,
}

/// The shared state of a listener's connections.
struct ListenerState {
    front: ListenerProtocols,
    routes: Router,
    waits: Waits,
    http2: Http2Limits,
    closing: ConnectionCloser,
    refusals: Arc<Semaphore>,
}

type Socket = WriteWindow<TcpStream>;

/// Accepts connections for ever, up to the limit.
pub(super) async fn accept(
    app: &App,
    listener: TcpListener,
    routes: Router,
    front: ListenerProtocols,
    closing: &ConnectionCloser,
) {
    let limits = &app.config.limits.connections;
    let waits = Waits {
        head: limits.head_timeout(),
        idle: limits.idle_timeout(),
    };
    let door = Arc::new(ListenerState {
        front,
        routes,
        waits,
        http2: Http2Limits {
            streams: limits.streams_per_connection.get(),
            waits,
            write_timeout: limits.client_write_timeout(),
            draining: app.draining.clone(),
        },
        closing: closing.clone(),
        refusals: Arc::new(Semaphore::new(REFUSALS_AT_ONCE)),
    });
    let per_address = limits.connections_per_address.get();
    let proxies = &app.config.trusted_proxies;
    let connections = Arc::new(ListenerConnections::new(
        per_address,
        limits.connection_age(),
        proxies,
    ));
    let places = Arc::new(ConnectionSlots::new(limits.connections.get()));
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok((stream, peer)) => (stream, peer.ip().to_canonical()),
            Err(error) => {
                // The process is most likely out of file descriptors: an immediate retry would spin.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let Ok(socket) = prepare(stream, limits.client_write_timeout()) else {
            continue;
        };
        // Acquired only now, because an idle connection makes way only for a waiting client.
        let place = places.take(&connections).await;
        let is_unnamed = door.front.proxies.iter().any(|net| net.contains(&peer));
        let entry = match is_unnamed {
            true => connections.enter_unnamed(),
            false => connections.enter(peer),
        };
        let Some(entry) = entry else {
            // The rejection takes no slot from other connections.
            drop(place);
            door.refuse(socket, connections.unlisted());
            continue;
        };
        let seat = ConnectionResources {
            entry,
            place,
            client: peer,
        };
        closing.spawn(door.clone().serve(socket, seat, is_unnamed));
    }
}

fn prepare(stream: TcpStream, write_timeout: Duration) -> std::io::Result<Socket> {
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES)?;
    Ok(WriteWindow::new(stream, write_timeout))
}

impl ListenerState {
    async fn serve(
        self: Arc<Self>,
        mut socket: Socket,
        mut seat: ConnectionResources,
        is_unnamed: bool,
    ) {
        let until = Instant::now() + self.waits.head;
        let line = seat.line().clone();
        let mut read = BytesMut::new();
        let begun = async {
            if is_unnamed {
                let client = named(&mut socket, &mut read).await?;
                seat.client = client.unwrap_or(seat.client);
                if client.is_some_and(|client| !seat.entry.name(client)) {
                    return Ok(false);
                }
            }
            if self.front.tls.is_none() {
                sniff(&mut socket, &mut read).await?;
            }
            std::io::Result::Ok(true)
        };
        let is_within = match in_time(begun, until, &line, &self.closing).await {
            Some(Ok(is_within)) => is_within,
            Some(Err(error)) => {
                tracing::debug!(%error, "connection closed");
                return;
            }
            None => return,
        };
        if !is_within {
            drop(seat);
            return self.refuse(socket, line);
        }
        let (routes, waits) = (self.routes.clone(), self.waits);
        let Some(tls) = &self.front.tls else {
            let seat = Arc::new(seat);
            if read.starts_with(PREFACE) {
                let stream = PrefixedStream::new(read, socket);
                let bounds = self.http2.clone();
                let served = http2::serve(stream, until, seat, routes, bounds, &self.closing);
                return Box::pin(served).await;
            }
            return http1::serve(socket, read, until, seat, routes, waits, &self.closing).await;
        };
        let shaken = tls.accept(PrefixedStream::new(read, socket));
        let stream = match in_time(shaken, until, &line, &self.closing).await {
            Some(Ok(stream)) => stream,
            Some(Err(error)) => {
                tracing::debug!(%error, "connection closed");
                return;
            }
            None => return,
        };
        let seat = Arc::new(seat);
        if stream.get_ref().1.alpn_protocol() == Some(tls::H2) {
            let bounds = self.http2.clone();
            let served = http2::serve(stream, until, seat, routes, bounds, &self.closing);
            return Box::pin(served).await;
        }
        let none = BytesMut::new();
        let served = http1::serve(stream, none, until, seat, routes, waits, &self.closing);
        Box::pin(served).await;
    }

    /// Rejects a connection of a client with too many, in a task of its own. With TLS, weir closes it without a
    /// response.
    fn refuse(&self, socket: Socket, line: Arc<ConnectionState>) {
        if self.front.tls.is_some() {
            return;
        }
        if let Ok(permit) = self.refusals.clone().try_acquire_owned() {
            let gate = RequestGate::refusing(socket, line, self.waits, too_many());
            tokio::spawn(refuse(gate, permit));
        }
    }
}

async fn refuse(mut gate: RequestGate<Socket>, permit: OwnedSemaphorePermit) {
    // The client may have closed the connection already.
    let _ = gate.shutdown().await;
    drop(permit);
}

/// Waits for the beginning of a connection; `None` after a timeout or an eviction.
async fn in_time<T>(
    beginning: impl Future<Output = T>,
    until: Instant,
    line: &ConnectionState,
    closing: &ConnectionCloser,
) -> Option<T> {
    tokio::select! {
        biased;
        begun = beginning => Some(begun),
        () = line.evicted() => None,
        () = closing.due() => None,
        () = tokio::time::sleep_until(until) => None,
    }
}

/// Reads the header of the PROXY protocol with the client's address, unless the proxy connects for itself.
async fn named(socket: &mut Socket, read: &mut BytesMut) -> std::io::Result<Option<IpAddr>> {
    loop {
        match ProxyHeader::read(read) {
            Ok(Some(header)) => {
                read.advance(header.length);
                return Ok(header.client.map(|client| client.to_canonical()));
            }
            Ok(None) => receive(socket, read).await?,
            Err(_) => {
                return Err(std::io::Error::other(
                    "a proxy in `proxy_protocol` sends no PROXY protocol header",
                ));
            }
        }
    }
}

/// Reads until the version of HTTP is clear.
async fn sniff(socket: &mut Socket, read: &mut BytesMut) -> std::io::Result<()> {
    while read.len() < PREFACE.len() && PREFACE.starts_with(read) {
        receive(socket, read).await?;
    }
    Ok(())
}

async fn receive(socket: &mut Socket, read: &mut BytesMut) -> std::io::Result<()> {
    read.reserve(512);
    match socket.read_buf(read).await? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}
