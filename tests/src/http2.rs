//! `Http2`: a client for HTTP/2 on one connection, in clear text or over TLS.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::client::{Answer, EventStream, patiently};

/// A connection, closed on drop.
pub struct Http2 {
    send: SendRequest<Full<Bytes>>,
    authority: String,
    key: Option<String>,
    driver: JoinHandle<hyper::Result<()>>,
}

impl Http2 {
    /// Connects to a gateway with prior knowledge of HTTP/2.
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("it listens");
        Self::over(stream, &address.to_string()).await
    }

    /// Starts HTTP/2 over a stream, for this authority.
    pub async fn over<S>(stream: S, authority: &str) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (send, connection) = patiently(shaken).await.expect("it speaks HTTP/2");
        Self {
            send,
            authority: authority.to_owned(),
            key: None,
            driver: tokio::spawn(connection),
        }
    }

    /// The client with an API key on every request.
    #[must_use]
    pub fn with_key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    /// Sends a GET.
    pub async fn get(&self, path: &str) -> Answer {
        let request = self.request(Method::GET, path, Bytes::new());
        whole(self.ask(request).await.expect("an answer")).await
    }

    /// Posts JSON.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.try_post(path, body).await.expect("an answer")
    }

    /// Posts JSON to a gateway that may not respond.
    pub async fn try_post(&self, path: &str, body: &Value) -> hyper::Result<Answer> {
        let request = self.request(Method::POST, path, body.to_string().into());
        Ok(whole(self.ask(request).await?).await)
    }

    /// Posts JSON with `stream` set, and reads the response as it arrives. A drop resets the stream, and keeps the
    /// connection.
    pub async fn stream(&self, path: &str, body: &Value) -> EventStream {
        let mut body = body.clone();
        body["stream"] = Value::Bool(true);
        let request = self.request(Method::POST, path, body.to_string().into());
        EventStream::of(self.ask(request).await.expect("an answer"))
    }

    /// Builds a request for this path.
    pub fn request(&self, method: Method, path: &str, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.authority));
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        request.body(Full::new(body)).expect("a legal request")
    }

    /// Sends any request; returns the response before its body.
    pub async fn ask(&self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        let mut send = self.send.clone();
        patiently(async {
            send.ready().await?;
            send.send_request(request).await
        })
        .await
    }

    /// Waits until the gateway has closed the connection.
    pub async fn until_closed(&mut self) {
        let _ = patiently(&mut self.driver).await;
    }
}

impl Drop for Http2 {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

async fn whole(response: Response<Incoming>) -> Answer {
    let (head, body) = response.into_parts();
    let body = patiently(body.collect()).await;
    Answer {
        status: head.status,
        headers: head.headers,
        body: body.expect("the answer is whole").to_bytes(),
    }
}

/// Connects with TLS to `localhost` at this address, trusts only this certificate, and offers these protocols by
/// ALPN.
pub async fn connect_by_tls(
    address: SocketAddr,
    certificate: &[u8],
    protocols: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_slice(certificate).expect("a certificate");
    roots.add(certificate).expect("a certificate");
    let mut config = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    let socket = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").expect("a name");
    patiently(TlsConnector::from(Arc::new(config)).connect(name, socket)).await
}
