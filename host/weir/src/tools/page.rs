//! The page that agents read in development: a swarm of a fresh gateway has something to research, and nothing leaves the
//! machine.
//!
//! **Invariant:** it has a port of its own. A tool that may reach it reaches nothing else of weir's.

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

/// What is on it.
const TEXT: &str = include_str!("page.txt");

/// How long a reader may take for its request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// The page, there until this is dropped.
#[derive(Debug)]
pub struct Page {
    address: SocketAddr,
    _serving: AbortOnDropHandle<()>,
}

impl Page {
    /// Serves it on a free port of this machine.
    ///
    /// # Errors
    ///
    /// No port is free.
    pub async fn serve() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        Ok(Self {
            address: listener.local_addr()?,
            _serving: AbortOnDropHandle::new(tokio::spawn(accept(listener))),
        })
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What is to be asked for to read it.
    pub fn url(&self) -> String {
        format!("http://{}/trends", self.address)
    }
}

async fn accept(listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(answer(stream))),
            // Out of descriptors, most likely.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Answers one request, whatever it asks for.
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
    // A reader that breaks off has read enough.
    let _ = connection.await;
}
