//! The accept loop of a listener: who gets a connection, and what is spoken on it.
//!
//! Our own loop rather than `axum::serve`, which sets no bounds at all. TCP_NODELAY is set on every socket: a streamed token must
//! not wait for the one before it to be acknowledged. HTTP/2 is told from HTTP/1.1 by what ALPN agreed on, or by the first
//! bytes, which are read once for a connection; nothing is put between its socket and HTTP/1.1 for it.

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

use super::closing::Closing;
use super::connections::{Connections, Line};
use super::gate::{Gate, Waits};
use super::http2::{self, Bounds, PREFACE};
use super::places::Places;
use super::prefixed::Prefixed;
use super::proxy_header::ProxyHeader;
use super::seat::Seat;
use super::write_window::WriteWindow;
use super::{http1, tls, too_many};
use crate::app::App;

/// Connections that are told at once that they are too many. More are closed without a word.
const REFUSALS_AT_ONCE: usize = 64;

/// Bytes that the kernel keeps of what a client makes no room for, instead of megabytes: beyond that, it shows how much the
/// client takes.
const UNSENT_BYTES: u32 = 64 << 10;

/// What stands before HTTP on a listener.
#[derive(Clone, Default)]
pub(super) struct Front {
    /// TLS, if it is spoken.
    pub tls: Option<TlsAcceptor>,
    /// The proxies that begin each connection with the PROXY protocol.
    pub proxies: Vec<IpNet>,
}

/// What all connections of a listener have in common.
struct Door {
    front: Front,
    routes: Router,
    waits: Waits,
    http2: Bounds,
    closing: Closing,
    refusals: Arc<Semaphore>,
}

type Socket = WriteWindow<TcpStream>;

/// Accepts connections for ever, so many at once.
pub(super) async fn accept(
    app: &App,
    listener: TcpListener,
    routes: Router,
    front: Front,
    closing: &Closing,
) {
    let limits = &app.config.limits.connections;
    let waits = Waits {
        head: limits.head_timeout(),
        idle: limits.idle_timeout(),
    };
    let door = Arc::new(Door {
        front,
        routes,
        waits,
        http2: Bounds {
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
    let connections = Arc::new(Connections::new(
        per_address,
        limits.connection_age(),
        proxies,
    ));
    let places = Arc::new(Places::new(limits.connections.get()));
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok((stream, peer)) => (stream, peer.ip().to_canonical()),
            Err(error) => {
                // Out of file descriptors, most likely: accepting again at once would spin.
                tracing::warn!(%error, "accepting a connection");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let Ok(socket) = prepare(stream, limits.client_write_timeout()) else {
            continue;
        };
        // Only now: while nobody waits, nobody has to make way.
        let place = places.take(&connections).await;
        let is_unnamed = door.front.proxies.iter().any(|net| net.contains(&peer));
        let entry = match is_unnamed {
            true => connections.enter_unnamed(),
            false => connections.enter(peer),
        };
        let Some(entry) = entry else {
            // Not in a place: what is refused must not take one from others.
            drop(place);
            door.refuse(socket, connections.unlisted());
            continue;
        };
        let seat = Seat {
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

impl Door {
    async fn serve(self: Arc<Self>, mut socket: Socket, mut seat: Seat, is_unnamed: bool) {
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
                let stream = Prefixed::new(read, socket);
                let bounds = self.http2.clone();
                let served = http2::serve(stream, until, seat, routes, bounds, &self.closing);
                return Box::pin(served).await;
            }
            return http1::serve(socket, read, until, seat, routes, waits, &self.closing).await;
        };
        let shaken = tls.accept(Prefixed::new(read, socket));
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

    /// Tells a client that it has too many connections, in a task of its own. Where TLS is to come first, there is nobody to
    /// tell.
    fn refuse(&self, socket: Socket, line: Arc<Line>) {
        if self.front.tls.is_some() {
            return;
        }
        if let Ok(permit) = self.refusals.clone().try_acquire_owned() {
            let gate = Gate::refusing(socket, line, self.waits, too_many());
            tokio::spawn(refuse(gate, permit));
        }
    }
}

async fn refuse(mut gate: Gate<Socket>, permit: OwnedSemaphorePermit) {
    // A client that does not hear it has gone.
    let _ = gate.shutdown().await;
    drop(permit);
}

/// What comes of the beginning of a connection; `None` if it takes too long, or others need its place.
async fn in_time<T>(
    beginning: impl Future<Output = T>,
    until: Instant,
    line: &Line,
    closing: &Closing,
) -> Option<T> {
    tokio::select! {
        biased;
        begun = beginning => Some(begun),
        () = line.evicted() => None,
        () = closing.due() => None,
        () = tokio::time::sleep_until(until) => None,
    }
}

/// Reads the header of the PROXY protocol: who the client is, if the proxy does not speak for itself.
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
                    "a proxy of `proxy_protocol` does not begin with that protocol's header",
                ));
            }
        }
    }
}

/// Reads until it is clear which version of HTTP is spoken.
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
