//! The sample page in development mode: a swarm of a new gateway has a page to research, without access to the
//! Internet.
//!
//! **Invariant:** the page has its own port. A tool with access to it has no access to weir's other ports.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use http::{Response, header};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

const TEXT: &str = include_str!("page.txt");

/// The timeout of a request's headers.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// The page, served until it is dropped.
#[derive(Debug)]
pub struct ServedPage {
    address: SocketAddr,
    _serving: AbortOnDropHandle<()>,
}

impl ServedPage {
    /// Serves the page on a free port of this machine.
    ///
    /// # Errors
    ///
    /// Fails if no port is free.
    pub async fn serve() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        Ok(Self {
            address: listener.local_addr()?,
            _serving: AbortOnDropHandle::new(tokio::spawn(accept(listener))),
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}/trends", self.address)
    }
}

async fn accept(listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(answer(stream))),
            // The process has probably run out of file descriptors.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Responds to one request, for any path.
async fn answer(stream: TcpStream) {
    let service = service_fn(async |_| {
        let mut response = Response::new(Full::new(Bytes::from_static(TEXT.as_bytes())));
        let text = header::HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, text);
        Ok::<_, Infallible>(response)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // An early disconnect is no error.
    let _ = connection.await;
}
