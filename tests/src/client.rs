//! `Client`: a test's connection to a gateway over a socket.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// Time limit of any wait; after it, the test fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// A client of one gateway, with its own connections.
#[derive(Clone)]
pub struct Client {
    http: HttpClient<HttpConnector, Full<Bytes>>,
    from: Option<IpAddr>,
    address: SocketAddr,
    headers: HeaderMap,
}

/// A complete response.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// A response that is read as it arrives. Dropping it closes the connection.
pub struct EventStream {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    body: Incoming,
    text: String,
    /// The response's own connection, if it has one: a drop closes it.
    _client: Option<HttpClient<HttpConnector, Full<Bytes>>>,
}

impl Client {
    /// A client without credentials.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            http: new_http(None),
            from: None,
            address,
            headers: HeaderMap::new(),
        }
    }

    /// The client with an API key.
    #[must_use]
    pub fn with_key(self, key: &str) -> Self {
        self.with_header("authorization", &format!("Bearer {key}"))
    }

    /// The client from another address of this machine, such as any in 127.0.0.0/8.
    #[must_use]
    pub fn from_address(self, from: IpAddr) -> Self {
        Self {
            http: new_http(Some(from)),
            from: Some(from),
            ..self
        }
    }

    /// The gateway's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The client for another node.
    #[must_use]
    pub fn at(&self, address: SocketAddr) -> Self {
        Self {
            http: new_http(self.from),
            address,
            ..self.clone()
        }
    }

    /// The client with a header on every request.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(
            HeaderName::try_from(name).expect("a legal header name"),
            HeaderValue::try_from(value).expect("a legal header value"),
        );
        self
    }

    /// Sends a GET.
    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, None, Bytes::new()).await
    }

    /// Sends a GET to a gateway that may be down.
    pub async fn try_get(&self, path: &str) -> Option<StatusCode> {
        let request = self.request(Method::GET, path, None, Bytes::new());
        let response = patiently(self.http.request(request)).await.ok()?;
        Some(response.status())
    }

    /// Posts JSON to a gateway that may go down: `None` without a complete response.
    pub async fn try_post(&self, path: &str, body: &Value) -> Option<Answer> {
        self.try_post_bytes(path, body.to_string().into()).await
    }

    /// Posts serialized JSON to a gateway that may go down.
    pub async fn try_post_bytes(&self, path: &str, body: Bytes) -> Option<Answer> {
        let json = Some("application/json");
        self.try_send(Method::POST, path, json, body).await
    }

    /// Sends a request to a gateway that may go down.
    pub async fn try_send(
        &self,
        method: Method,
        path: &str,
        content_type: Option<&str>,
        body: Bytes,
    ) -> Option<Answer> {
        let request = self.request(method, path, content_type, body);
        patiently(async {
            let (head, body) = self.http.request(request).await.ok()?.into_parts();
            Some(Answer {
                status: head.status,
                headers: head.headers,
                body: body.collect().await.ok()?.to_bytes(),
            })
        })
        .await
    }

    /// Sends a DELETE.
    pub async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, None, Bytes::new()).await
    }

    /// Posts JSON.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        let json = Some("application/json");
        self.send(Method::POST, path, json, body.to_string().into())
            .await
    }

    /// Uploads a component.
    pub async fn put_component(&self, path: &str, component: &[u8]) -> Answer {
        let (wasm, body) = (Some("application/wasm"), Bytes::copy_from_slice(component));
        self.send(Method::PUT, path, wasm, body).await
    }

    /// Uploads a component with a signature.
    pub async fn put_signed(&self, path: &str, component: &[u8], signature: &str) -> Answer {
        let mut signing = self.clone();
        let value = HeaderValue::try_from(signature).expect("a legal header");
        signing.headers.insert("x-weir-signature", value);
        signing.put_component(path, component).await
    }

    /// Sends any request.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: Option<&str>,
        body: Bytes,
    ) -> Answer {
        let request = self.request(method, path, content_type, body);
        patiently(async {
            let response = self
                .http
                .request(request)
                .await
                .expect("the gateway answers");
            let (head, body) = response.into_parts();
            Answer {
                status: head.status,
                headers: head.headers,
                body: body
                    .collect()
                    .await
                    .expect("the answer is whole")
                    .to_bytes(),
            }
        })
        .await
    }

    /// Posts JSON with `stream` set, and reads the response as it arrives.
    pub async fn stream(&self, path: &str, body: &Value) -> EventStream {
        self.try_stream(path, body)
            .await
            .expect("the gateway answers")
    }

    /// Posts JSON with `stream` set to a gateway that may go down.
    pub async fn try_stream(&self, path: &str, body: &Value) -> Option<EventStream> {
        let mut body = body.clone();
        body["stream"] = Value::Bool(true);
        let json = Some("application/json");
        self.try_follow(Method::POST, path, json, body.to_string().into())
            .await
    }

    /// Sends any request, and reads the response as it arrives.
    pub async fn follow(&self, method: Method, path: &str, body: &Value) -> EventStream {
        let (content_type, body) = match body {
            Value::Null => (None, Bytes::new()),
            body => (Some("application/json"), Bytes::from(body.to_string())),
        };
        self.try_follow(method, path, content_type, body)
            .await
            .expect("the gateway answers")
    }

    async fn try_follow(
        &self,
        method: Method,
        path: &str,
        content_type: Option<&str>,
        body: Bytes,
    ) -> Option<EventStream> {
        let request = self.request(method, path, content_type, body);
        let client = new_http(self.from);
        let response = patiently(client.request(request)).await.ok()?;
        Some(EventStream {
            _client: Some(client),
            ..EventStream::of(response)
        })
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        content_type: Option<&str>,
        body: Bytes,
    ) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = format!("http://{}{path}", self.address)
            .parse()
            .expect("a legal path");
        *request.headers_mut() = self.headers.clone();
        if let Some(content_type) = content_type {
            let value = HeaderValue::try_from(content_type).expect("a legal content type");
            request.headers_mut().insert("content-type", value);
        }
        request
    }
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the text of a chat response.
    pub fn content(&self) -> String {
        let json = self.json();
        match &json["choices"][0]["message"]["content"] {
            Value::String(text) => text.clone(),
            _ => panic!("no content: {json}"),
        }
    }

    /// Checks that the response is this documented error, and returns its object.
    pub fn error(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text());
        let error = self.json()["error"].clone();
        assert_eq!(weirs_code(&error), code, "{error}");
        // Google's dialect has a status.
        let kind = error.get("status").map_or("type", |_| "status");
        for field in [kind, "message"] {
            assert!(
                error[field].as_str().is_some_and(|text| !text.is_empty()),
                "{error}"
            );
        }
        // Anthropic's dialect has it beside the object, Google's among the details.
        let json = self.json();
        let detail = error.pointer("/details/0/metadata/request_id");
        let id = error.get("request_id").or(detail);
        let id = id.unwrap_or(&json["request_id"]);
        assert_eq!(id, self.headers["x-request-id"].to_str().expect("ASCII"));
        error
    }
}

impl EventStream {
    /// Reads a response from a connection that stays open.
    pub fn of(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        Self {
            status: head.status,
            headers: head.headers,
            body,
            text: String::new(),
            _client: None,
        }
    }

    /// Returns the next event's text: its lines without the blank one. `None` at the end.
    pub async fn next(&mut self) -> Option<String> {
        patiently(async {
            loop {
                if let Some(end) = self.text.find("\n\n") {
                    let event = self.text[..end].to_owned();
                    self.text.drain(..end + 2);
                    return Some(event);
                }
                let frame = self
                    .body
                    .frame()
                    .await?
                    .expect("the stream does not break off");
                if let Ok(data) = frame.into_data() {
                    self.text
                        .push_str(std::str::from_utf8(&data).expect("UTF-8, whole characters"));
                }
            }
        })
        .await
    }

    /// Returns the next bytes of a response that is no text. `None` at the end.
    pub async fn next_bytes(&mut self) -> Option<Bytes> {
        patiently(async {
            loop {
                let frame = self.body.frame().await?;
                let frame = frame.expect("the response does not break off");
                if let Ok(data) = frame.into_data() {
                    return Some(data);
                }
            }
        })
        .await
    }

    /// Reads to the end; returns whether the response was complete, rather than ended by an error or a broken
    /// connection.
    pub async fn is_whole(mut self) -> bool {
        let mut end = Vec::new();
        patiently(async {
            loop {
                match self.body.frame().await {
                    None => return end.ends_with(b"data: [DONE]\n\n"),
                    Some(Ok(frame)) => {
                        end.extend_from_slice(&frame.into_data().unwrap_or_default());
                        end.drain(..end.len().saturating_sub(64));
                    }
                    Some(Err(_)) => return false,
                }
            }
        })
        .await
    }

    /// Reads a complete event; returns `false` once the stream has ended or broken.
    pub async fn try_next(&mut self) -> bool {
        patiently(async {
            loop {
                if let Some(end) = self.text.find("\n\n") {
                    self.text.drain(..end + 2);
                    return true;
                }
                match self.body.frame().await {
                    Some(Ok(frame)) => {
                        let data = frame.into_data().unwrap_or_default();
                        self.text.push_str(&String::from_utf8_lossy(&data));
                    }
                    Some(Err(_)) | None => return false,
                }
            }
        })
        .await
    }

    /// Returns the next event, which must be a chunk.
    pub async fn next_chunk(&mut self) -> Value {
        let event = self.next().await.expect("another event");
        let data = event
            .strip_prefix("data: ")
            .unwrap_or_else(|| panic!("a chunk: {event}"));
        serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"))
    }

    /// Returns all remaining events.
    pub async fn rest(mut self) -> Vec<String> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }

    /// Returns the remaining body as JSON, for a response without a stream; null if it is not JSON.
    pub async fn try_json(self) -> Value {
        let body = patiently(self.body.collect()).await;
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        serde_json::from_slice(&body).unwrap_or(Value::Null)
    }

    /// Returns all remaining complete events, from a stream that may break.
    pub async fn try_rest(mut self) -> Vec<String> {
        patiently(async {
            while let Some(Ok(frame)) = self.body.frame().await {
                let data = frame.into_data().unwrap_or_default();
                self.text.push_str(&String::from_utf8_lossy(&data));
            }
        })
        .await;
        let mut events: Vec<_> = self.text.split("\n\n").map(str::to_owned).collect();
        // The text after the last blank line is not a complete event.
        events.pop();
        events
    }

    /// Returns the text of all remaining chunks; the stream must end with `[DONE]`.
    pub async fn content(self) -> String {
        let events = self.rest().await;
        assert_eq!(
            events.last().map(String::as_str),
            Some("data: [DONE]"),
            "{events:?}"
        );
        chunks(&events)
            .iter()
            .filter_map(|chunk| {
                chunk["choices"][0]["delta"]["content"]
                    .as_str()
                    .map(str::to_owned)
            })
            .collect()
    }
}

/// Returns weir's own code of an error in any dialect. If a vendor's code is in `code`, weir's code is beside it, or in the
/// first of Google's details.
pub fn weirs_code(error: &Value) -> &Value {
    let beside = error.get("weir_code");
    let detail = error.pointer("/details/0/reason");
    beside.or(detail).unwrap_or(&error["code"])
}

/// Returns the chunks among a stream's events.
pub fn chunks(events: &[String]) -> Vec<Value> {
    events
        .iter()
        .filter_map(|event| serde_json::from_str(event.strip_prefix("data: ")?).ok())
        .collect()
}

fn new_http(from: Option<IpAddr>) -> HttpClient<HttpConnector, Full<Bytes>> {
    let mut connector = HttpConnector::new();
    connector.set_local_address(from);
    connector.set_nodelay(true);
    HttpClient::builder(TokioExecutor::new())
        // Shorter than the gateway's limit: a request could otherwise cross with the close.
        .pool_idle_timeout(Duration::from_secs(60))
        .build(connector)
}

/// Waits with a time limit: a test that hangs reports its position.
pub async fn patiently<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work)
        .await
        .expect("this took longer than any test waits")
}
