//! The client of one MCP server: uses the newest revision if the server supports it, else `initialize`.
//!
//! The server's responses are untrusted: they pass the guard, within limits, and the server's credential is redacted.
//!
//! **Invariant:** no lock is held during a request to the server. Concurrent calls share one discovery of the server's
//! revision and its result: an unresponsive server costs them one timeout together, not one after another.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, header};
use rmcp::model::ProtocolVersion;
use serde_json::{Value, json};
use weir_egress::{EgressRequest, EgressResponse, Guard, RefusalKind};
use weir_sandbox::printable;

use super::settings::McpServer;
use crate::secret_redactor::SecretRedactor;

/// The maximum pages of tools.
const MAX_PAGES: usize = 16;

/// The maximum bytes of a server's text in an error.
const MAX_SHOWN_BYTES: usize = 200;

/// The maximum bytes of a session's id.
const MAX_SESSION_BYTES: usize = 1 << 10;

/// The reason for a missing response.
#[derive(Debug, Clone)]
pub(super) struct RemoteCallError {
    pub(super) why: String,
    /// Whether weir's own rule blocked the request.
    pub(super) is_blocked: bool,
    pub(super) status: Option<u16>,
}

#[derive(Debug, Clone)]
enum ServerProtocol {
    Modern,
    Older {
        version: String,
        session: Option<HeaderValue>,
    },
}

/// A server with its discovered protocol.
pub(super) struct McpClient {
    pub(super) server: Arc<McpServer>,
    connection: Arc<McpConnection>,
    /// The finished or running discovery.
    era: Mutex<Option<ProtocolDiscovery>>,
}

type ProtocolDiscovery = Shared<BoxFuture<'static, Result<ServerProtocol, RemoteCallError>>>;

/// The parts for requests to a server.
struct McpConnection {
    server: Arc<McpServer>,
    guard: Guard,
    redactor: SecretRedactor,
}

impl McpClient {
    pub(super) fn new(server: McpServer, guard: Guard) -> Self {
        let secret = server.bare.iter().map(|secret| secret.expose());
        let redactor = SecretRedactor::new(secret);
        let server = Arc::new(server);
        Self {
            connection: Arc::new(McpConnection {
                server: server.clone(),
                guard,
                redactor,
            }),
            server,
            era: Mutex::new(None),
        }
    }

    /// Returns all allowed tools, as the server wrote them.
    pub(super) async fn list(&self) -> Result<Vec<Value>, RemoteCallError> {
        let listed = self.list_all().await;
        if listed.is_err() {
            // The server may support another revision by now.
            *self.known() = None;
        }
        listed
    }

    async fn list_all(&self) -> Result<Vec<Value>, RemoteCallError> {
        let mut allowed = Vec::new();
        let mut params = json!({});
        for _ in 0..MAX_PAGES {
            let mut page = self.ask("tools/list", params.clone()).await?;
            let Value::Array(tools) = page["tools"].take() else {
                return Err(unfit("its list of tools is invalid"));
            };
            allowed.extend(tools.into_iter().filter(|tool| {
                let name = tool["name"].as_str();
                name.is_some_and(|name| self.server.tools.contains(name))
            }));
            match page["nextCursor"].take() {
                Value::String(cursor) => params = json!({ "cursor": cursor }),
                _ => return Ok(allowed),
            }
        }
        Err(unfit("its list of tools has too many pages"))
    }

    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: Value,
    ) -> Result<Value, RemoteCallError> {
        let params = json!({ "name": tool, "arguments": arguments });
        self.ask("tools/call", params).await
    }

    async fn ask(&self, method: &str, params: Value) -> Result<Value, RemoteCallError> {
        let (era, discovery) = self.era().await?;
        let asked = self.connection.send(&era, method, params.clone()).await;
        match (asked, era) {
            // The server lost its session together with the request, which it has not processed.
            (
                Err(RemoteCallError {
                    status: Some(404), ..
                }),
                ServerProtocol::Older {
                    session: Some(_), ..
                },
            ) => {
                self.forget(&discovery);
                let (era, _) = self.era().await?;
                self.connection.send(&era, method, params).await
            }
            (asked, _) => asked,
        }
    }

    /// Returns the protocol, and the discovery that found it.
    async fn era(&self) -> Result<(ServerProtocol, ProtocolDiscovery), RemoteCallError> {
        let discovery = {
            let mut known = self.known();
            let begin = || {
                let connection = self.connection.clone();
                async move { connection.discover().await }.boxed().shared()
            };
            known.get_or_insert_with(begin).clone()
        };
        let found = discovery.clone().await;
        if found.is_err() {
            self.forget(&discovery);
        }
        Ok((found?, discovery))
    }

    /// Forgets a discovery, unless a later one has replaced it.
    fn forget(&self, discovery: &ProtocolDiscovery) {
        let mut known = self.known();
        if known.as_ref().is_some_and(|known| known.ptr_eq(discovery)) {
            *known = None;
        }
    }

    fn known(&self) -> MutexGuard<'_, Option<ProtocolDiscovery>> {
        self.era.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl McpConnection {
    async fn discover(&self) -> Result<ServerProtocol, RemoteCallError> {
        let discovered = self
            .send(&ServerProtocol::Modern, "server/discover", json!({}))
            .await;
        match discovered {
            Ok(found) => {
                let versions = found["supportedVersions"].as_array();
                let newest = ProtocolVersion::V_2026_07_28;
                let is_modern =
                    versions.is_some_and(|all| all.iter().any(|one| one == newest.as_str()));
                match is_modern {
                    true => Ok(ServerProtocol::Modern),
                    false => self.initialize().await,
                }
            }
            // The server responded, but not according to that revision.
            Err(RemoteCallError {
                status: Some(status),
                is_blocked: false,
                ..
            }) if status < 500 => self.initialize().await,
            Err(error) => Err(error),
        }
    }

    async fn initialize(&self) -> Result<ServerProtocol, RemoteCallError> {
        let version = ProtocolVersion::LATEST_WITH_INITIALIZE;
        let params = json!({ "protocolVersion": version.as_str(), "capabilities": {}, "clientInfo": client_info() });
        let message =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
        let response = self.post(HeaderMap::new(), &message).await?;
        let session = response.headers.get("mcp-session-id").cloned();
        let session = session.filter(|session| session.len() <= MAX_SESSION_BYTES);
        let result = self.result(response)?;
        let version = result["protocolVersion"].as_str().unwrap_or_default();
        let known = ProtocolVersion::KNOWN_VERSIONS.iter();
        let mut known = known.filter(|known| known.has_initialize());
        let Some(version) = known.find(|known| known.as_str() == version) else {
            return Err(unfit("it speaks no revision that weir supports"));
        };
        let era = ServerProtocol::Older {
            version: version.as_str().to_owned(),
            session,
        };
        let message = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let headers = head(&era, "notifications/initialized", &message);
        self.post(headers, &message).await?;
        Ok(era)
    }

    async fn send(
        &self,
        era: &ServerProtocol,
        method: &str,
        mut params: Value,
    ) -> Result<Value, RemoteCallError> {
        if matches!(era, ServerProtocol::Modern) {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": ProtocolVersion::V_2026_07_28.as_str(),
                "io.modelcontextprotocol/clientInfo": client_info(),
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let response = self.post(head(era, method, &message), &message).await?;
        self.result(response)
    }

    async fn post(
        &self,
        host_headers: HeaderMap,
        message: &Value,
    ) -> Result<EgressResponse, RemoteCallError> {
        let credential = match &self.server.credential {
            None => None,
            Some(Ok(credential)) => Some(credential.clone()),
            Some(Err(why)) => return Err(blocked(format!("credential: it is missing: {why}"))),
        };
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let request = EgressRequest {
            headers: vec![
                header("content-type", "application/json"),
                header("accept", "application/json, text/event-stream"),
            ],
            host_headers,
            body: Bytes::from(message.to_string()),
            credential,
            ..EgressRequest::new(Method::POST, self.server.url.clone())
        };
        let fetched = self.guard.fetch(request, &self.server.policy).await;
        fetched.map_err(|refusal| match refusal.kind() {
            RefusalKind::Blocked => blocked(format!("{}: {refusal}", refusal.stage)),
            RefusalKind::Timeout => unfit("it took too long"),
            RefusalKind::Unreachable => unfit(&format!("it cannot be reached: {refusal}")),
        })
    }

    /// Returns the result of a response in JSON, or in a finished stream of events.
    fn result(&self, response: EgressResponse) -> Result<Value, RemoteCallError> {
        let status = response.status;
        let no_answer = |why: String| RemoteCallError {
            why,
            is_blocked: false,
            status: Some(status),
        };
        if response.truncated {
            let most = self.server.policy.max_bytes;
            return Err(no_answer(format!(
                "its response has more than {most} bytes"
            )));
        }
        let mut body = Vec::from(response.body);
        self.redactor.redact(&mut body, false);
        let kind = response.headers.get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        let message = match kind.to_ascii_lowercase().as_str() {
            "application/json" => serde_json::from_slice(&body).ok(),
            "text/event-stream" => last_message(&body),
            _ => {
                let why = format!("it responds {status} with neither JSON nor a stream of events");
                return Err(no_answer(why));
            }
        };
        let mut message: Value = message.unwrap_or_default();
        if let Some(error) = message.get("error").filter(|error| error.is_object()) {
            let said = error["message"].as_str().unwrap_or_default();
            let said = printable(said, MAX_SHOWN_BYTES);
            return Err(no_answer(format!("it responds with an error: {said}")));
        }
        match message["result"].take() {
            result @ Value::Object(_) if status == 200 => Ok(result),
            _ => Err(no_answer(format!("it responds {status} without a result"))),
        }
    }
}

/// Returns the response in a stream, which may have progress messages before it.
fn last_message(body: &[u8]) -> Option<Value> {
    let text = String::from_utf8_lossy(body).replace("\r\n", "\n");
    let events = text.split("\n\n").filter_map(|event| {
        let lines = event.lines().filter_map(|line| line.strip_prefix("data:"));
        let lines: Vec<_> = lines
            .map(|line| line.strip_prefix(' ').unwrap_or(line))
            .collect();
        serde_json::from_str::<Value>(&lines.join("\n")).ok()
    });
    let is_answer = |message: &Value| message["id"] == 1 && message.get("method").is_none();
    events.filter(is_answer).last()
}

/// Returns the headers of a request.
fn head(era: &ServerProtocol, method: &str, message: &Value) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut insert = |name: &'static str, value: Option<HeaderValue>| {
        if let Some(value) = value {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    match era {
        ServerProtocol::Modern => {
            let version = ProtocolVersion::V_2026_07_28;
            insert(
                "mcp-protocol-version",
                HeaderValue::from_str(version.as_str()).ok(),
            );
            insert("mcp-method", HeaderValue::from_str(method).ok());
            let name = message["params"]["name"].as_str();
            insert(
                "mcp-name",
                name.and_then(|name| HeaderValue::from_str(name).ok()),
            );
        }
        ServerProtocol::Older { version, session } => {
            insert("mcp-protocol-version", HeaderValue::from_str(version).ok());
            insert("mcp-session-id", session.clone());
        }
    }
    headers
}

fn client_info() -> Value {
    json!({ "name": "weir", "version": env!("CARGO_PKG_VERSION") })
}

fn blocked(why: String) -> RemoteCallError {
    RemoteCallError {
        why,
        is_blocked: true,
        status: None,
    }
}

fn unfit(why: &str) -> RemoteCallError {
    RemoteCallError {
        why: why.to_owned(),
        is_blocked: false,
        status: None,
    }
}
