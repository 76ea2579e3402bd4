//! The HTTP client for upstreams: a pool of connections, each driven by the exchange that uses it.
//!
//! hyper's pooled client drives each connection in a task of its own, which passes on a response piece by piece, and
//! each piece costs a wake-up there and one back. Here the exchange's own task polls the connection: all bytes that
//! have arrived are read in one turn, regardless of the number of pieces.
//!
//! The client follows no redirect, uses no proxy, inflates nothing, and sets TCP_NODELAY. A request's URI consists of
//! checked parts ([`crate::destination`]), and no URL parser normalises it again.
//!
//! **Invariant:** a connection is reused only if the previous response was read to its end.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Request, Response, Uri, header};
use http_body::Body as _;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::time::Instant;
use tower_service::Service as _;
use weir_outgoing as outgoing;

use crate::connections::{self, ReusableConnector};

/// Lifetime of an idle connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Time between two sweeps of idle connections.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

/// Maximum connections that one request tries: all but the last were already closed.
const MAX_CONNECTIONS: usize = 16;

/// Maximum size of a coalesced piece, in bytes.
pub const COALESCED_BYTES: usize = 16 << 10;

/// Bytes that a connection reads ahead, and therefore the maximum size of the headers and of one frame. Each
/// connection keeps this many while its client does not read.
const READ_AHEAD_BYTES: usize = 16 << 10;

/// The client that all exchanges share. Cheap to clone.
#[derive(Clone)]
pub struct HttpClient(Arc<ConnectionPool>);

struct ConnectionPool {
    connector: HttpsConnector<ReusableConnector>,
    connect_timeout: Duration,
    idle: Mutex<HashMap<ServerOrigin, VecDeque<IdleConnection>>>,
}

/// The server of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ServerOrigin {
    scheme: Scheme,
    authority: Authority,
}

struct IdleConnection {
    connection: PooledConnection,
    since: Instant,
}

type Io = <HttpsConnector<ReusableConnector> as tower_service::Service<Uri>>::Response;

struct PooledConnection {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: Pin<Box<http1::Connection<Io, Full<Bytes>>>>,
}

/// The reason that there is no response. The texts of the underlying errors may contain addresses and are therefore
/// left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// No connection: no byte of the request was sent.
    #[error("the connection failed")]
    Connect,
    /// The connection broke before the response's headers.
    #[error("the connection broke")]
    BrokenOff,
}

/// A response's body. Its pieces contain all bytes that have arrived, up to a limit.
pub struct UpstreamBody {
    body: Incoming,
    /// `None` once the body has ended, or the connection is back in the pool.
    connection: Option<PooledConnection>,
    /// An error that arrived right after bytes. The bytes are passed on first; the error must not be lost, since a
    /// broken body would pass for a complete one.
    broken: Option<hyper::Error>,
    pool: HttpClient,
    origin: ServerOrigin,
}

impl HttpClient {
    /// Creates the client. `connect_timeout` limits a connect including DNS and TLS. The client trusts the system's
    /// certificate authorities. The call must be made on a runtime.
    pub fn new(connect_timeout: Duration) -> anyhow::Result<Self> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(Duration::from_secs(60)));
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(outgoing::tls_config()?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(ReusableConnector(tcp));
        let pool = Arc::new(ConnectionPool {
            connector,
            connect_timeout,
            idle: Mutex::default(),
        });
        tokio::spawn(sweep(Arc::downgrade(&pool)));
        Ok(Self(pool))
    }

    /// Sends a request to the origin of its URI; returns with the response's headers.
    ///
    /// A connection that was closed before any byte was sent on it is replaced.
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<UpstreamBody>, SendError> {
        let (origin, request) = of_origin(request)?;
        for _ in 0..MAX_CONNECTIONS {
            let connection = match self.take_idle(&origin).await {
                Some(connection) => connection,
                // Boxed, because it is rare, and larger than all the rest.
                None => Box::pin(self.connect(&origin)).await?,
            };
            match self.ask(connection, &origin, request.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(error) if connections::is_unsent(&*error) => {}
                Err(_) => return Err(SendError::BrokenOff),
            }
        }
        Err(SendError::Connect)
    }

    async fn connect(&self, origin: &ServerOrigin) -> Result<PooledConnection, SendError> {
        let connecting = async {
            let ServerOrigin { scheme, authority } = origin.clone();
            let uri = Uri::builder().scheme(scheme).authority(authority);
            let uri = uri.path_and_query("/").build()?;
            let mut connector = self.0.connector.clone();
            poll_fn(|context| connector.poll_ready(context)).await?;
            let io = connector.call(uri).await?;
            let mut protocol = http1::Builder::new();
            protocol.max_buf_size(READ_AHEAD_BYTES);
            let (sender, driver) = protocol.handshake(io).await?;
            Ok::<_, Box<dyn Error + Send + Sync>>(PooledConnection {
                sender,
                driver: Box::pin(driver),
            })
        };
        match tokio::time::timeout(self.0.connect_timeout, connecting).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(_)) | Err(_) => Err(SendError::Connect),
        }
    }

    async fn ask(
        &self,
        mut connection: PooledConnection,
        origin: &ServerOrigin,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<UpstreamBody>, Box<dyn Error + Send + Sync>> {
        let mut answering = std::pin::pin!(connection.sender.send_request(request));
        let mut driver = Some(&mut connection.driver);
        let answer = poll_fn(|context| {
            if let Some(driving) = &mut driver
                && driving.as_mut().poll(context).is_ready()
            {
                driver = None;
            }
            answering.as_mut().poll(context)
        });
        let answer = answer.await?;
        let is_open = driver.is_some();
        Ok(answer.map(|body| UpstreamBody {
            body,
            connection: is_open.then_some(connection),
            broken: None,
            pool: self.clone(),
            origin: origin.clone(),
        }))
    }

    /// Takes the most recently used connection: the others may reach their idle timeout.
    async fn take_idle(&self, origin: &ServerOrigin) -> Option<PooledConnection> {
        loop {
            let IdleConnection {
                mut connection,
                since,
            } = self.lock().get_mut(origin)?.pop_back()?;
            let is_open = poll_fn(|context| Poll::Ready(connection.is_ready(context))).await;
            if is_open && since.elapsed() < IDLE_TIMEOUT {
                return Some(connection);
            }
        }
    }

    fn put_idle(&self, origin: &ServerOrigin, connection: PooledConnection) {
        let idle = IdleConnection {
            connection,
            since: Instant::now(),
        };
        let mut all = self.lock();
        match all.get_mut(origin) {
            Some(line) => line.push_back(idle),
            None => {
                all.insert(origin.clone(), VecDeque::from([idle]));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ServerOrigin, VecDeque<IdleConnection>>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PooledConnection {
    /// Returns whether the connection can take another request, as far as the runtime knows.
    fn is_ready(&mut self, context: &mut Context<'_>) -> bool {
        self.driver.as_mut().poll(context).is_pending() && self.sender.is_ready()
    }
}

/// Closes connections that exceed the idle timeout.
async fn sweep(pool: Weak<ConnectionPool>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let Some(pool) = pool.upgrade() else {
            return;
        };
        HttpClient(pool).lock().retain(|_, line| {
            line.retain(|idle| idle.since.elapsed() < IDLE_TIMEOUT);
            !line.is_empty()
        });
    }
}

/// Splits a request into its server and the form that is written to a connection: a path, and a `Host` header.
fn of_origin(request: Request<Bytes>) -> Result<(ServerOrigin, Request<Full<Bytes>>), SendError> {
    let mut request = request.map(Full::new);
    let uri = std::mem::take(request.uri_mut()).into_parts();
    let (Some(scheme), Some(authority)) = (uri.scheme, uri.authority) else {
        return Err(SendError::Connect);
    };
    let path = uri.path_and_query;
    *request.uri_mut() = path.unwrap_or(PathAndQuery::from_static("/")).into();
    let usual_port = if scheme == Scheme::HTTPS { 443 } else { 80 };
    let host = match authority.port_u16() {
        Some(port) if port == usual_port => authority.host(),
        _ => authority.as_str(),
    };
    let host = HeaderValue::from_str(host).map_err(|_| SendError::Connect)?;
    request.headers_mut().insert(header::HOST, host);
    Ok((ServerOrigin { scheme, authority }, request))
}

impl UpstreamBody {
    /// Returns the next piece; `None` at the end.
    ///
    /// # Errors
    ///
    /// The connection broke.
    pub async fn next(&mut self) -> Result<Option<Bytes>, hyper::Error> {
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        let mut first = Bytes::new();
        let mut more = BytesMut::new();
        poll_fn(|context| {
            while first.len() + more.len() < COALESCED_BYTES {
                let is_over = |connection: &mut PooledConnection| {
                    connection.driver.as_mut().poll(context).is_ready()
                };
                if self.connection.as_mut().is_some_and(is_over) {
                    self.connection = None;
                }
                match Pin::new(&mut self.body).poll_frame(context) {
                    Poll::Ready(Some(Ok(frame))) => {
                        // Trailers are dropped.
                        let data = frame.into_data().unwrap_or_default();
                        if first.is_empty() {
                            first = data;
                        } else {
                            more.extend_from_slice(&data);
                        }
                    }
                    Poll::Ready(Some(Err(error))) if first.is_empty() => {
                        return Poll::Ready(Err(error));
                    }
                    Poll::Ready(Some(Err(error))) => {
                        self.broken = Some(error);
                        break;
                    }
                    // The next call sees the end again.
                    Poll::Ready(None) if first.is_empty() => {
                        self.end(context);
                        break;
                    }
                    Poll::Ready(None) => break,
                    Poll::Pending if first.is_empty() => return Poll::Pending,
                    Poll::Pending => break,
                }
            }
            Poll::Ready(Ok(()))
        })
        .await?;
        if first.is_empty() {
            return Ok(None);
        }
        if more.is_empty() {
            return Ok(Some(first));
        }
        let mut all = BytesMut::with_capacity(first.len() + more.len());
        all.extend_from_slice(&first);
        all.extend_from_slice(&more);
        Ok(Some(all.freeze()))
    }

    /// Returns the connection to the pool: its response was read to the end.
    fn end(&mut self, context: &mut Context<'_>) {
        if let Some(mut connection) = self.connection.take()
            && connection.is_ready(context)
        {
            self.pool.put_idle(&self.origin, connection);
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::mpsc;

    use super::*;

    /// On a single thread, the runtime sees no event unless this test yields.
    #[tokio::test]
    async fn what_is_closed_unnoticed_is_replaced_before_anything_is_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("http://{}/", listener.local_addr().unwrap());
        let (close, told_to_close) = mpsc::channel();
        let (closed, told_of_close) = mpsc::channel();
        let server = std::thread::spawn(move || {
            let mut requests = 0;
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().unwrap();
                assert!(stream.read(&mut [0; 1_000]).unwrap() > 0);
                requests += 1;
                let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";
                stream.write_all(answer.as_bytes()).unwrap();
                told_to_close.recv().unwrap();
                drop(stream);
                closed.send(()).unwrap();
            }
            requests
        });
        let client = HttpClient::new(Duration::from_secs(5)).unwrap();
        let ask = async || {
            let request = Request::post(&*uri).body(Bytes::from("x"));
            let answer = client.send(request.unwrap()).await.unwrap();
            let mut body = answer.into_body();
            let piece = body.next().await.unwrap();
            assert_eq!(body.next().await.unwrap(), None);
            piece.unwrap()
        };
        for _ in 0..2 {
            assert_eq!(ask().await, "hi");
            close.send(()).unwrap();
            told_of_close.recv().unwrap();
        }
        assert_eq!(server.join().unwrap(), 2);
    }
}
