//! Tools of other MCP servers, for agents and for clients of `/mcp`: the operator lists them in `[mcp.NAME]`, and each
//! is called `NAME__TOOL`.
//!
//! weir polls each server for its tools ([`client`]). The database pins the first seen definition ([`store`]); if the
//! server later returns another one, every node disables the tool until an operator approves the change, because a
//! changed description could inject instructions into models. An unresponsive server has no tools, and affects no other
//! server.
//!
//! **Invariant:** every request to a server passes the egress guard, and its credential goes only to its own URL.
//! **Invariant:** weir neither lists nor calls a tool that differs from its pin. **Invariant:** weir ignores a server's
//! statements about the effects of its tools.

mod client;
pub mod routes;
pub mod settings;
pub mod store;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::watch;
use weir_egress::Guard;
use weir_request::audit::{Audit, AuditEvent};
use weir_request::metrics::mcp::McpMetrics;
use weir_sandbox::Digest;
use weir_sandbox::tool::schema::ToolSchema;
use weir_storage::clock::Clock;

use self::client::{McpClient, RemoteCallError};
use self::settings::McpServer;
use self::store::{PinStore, ToolChange};
use crate::settings::Effect;

/// The pause after an unresponsive server.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// The maximum bytes of a definition: models receive most of it with every request.
const MAX_DEFINITION_BYTES: usize = 32 << 10;

/// The reason in a call's record if its tool has changed.
const CHANGED: &str = "policy: the tool has changed at its server, and no operator has approved that (`weir mcp list`); nothing \
                       was sent";

/// The remote tools of a running gateway. Cheap to clone.
#[derive(Clone)]
pub struct RemoteTools(Arc<RemoteState>);

struct RemoteState {
    guard: Guard,
    pins: PinStore,
    known: RwLock<KnownServers>,
    looking: watch::Sender<()>,
    records: Records,
}

#[derive(Default)]
struct KnownServers {
    clients: Vec<Arc<McpClient>>,
    /// By the names that models use.
    tools: BTreeMap<String, RemoteTool>,
}

/// The records about remote tools.
pub struct Records {
    pub audit: Audit,
    pub metrics: McpMetrics,
    /// The clock for the times of pins.
    pub clock: Clock,
}

/// A remote tool as this node has last seen it.
#[derive(Clone)]
pub struct RemoteTool {
    /// The name that models use.
    pub name: String,
    /// The server's description, for models.
    pub description: String,
    /// The server's JSON Schema of the arguments.
    pub input_schema: Value,
    /// The worst effect of a call, set by the operator.
    pub effect: Effect,
    /// The digest of the complete definition.
    pub digest: Digest,
    is_changed: bool,
    /// `None` if the schema exceeds the part of JSON Schema that weir checks: then only the server checks the
    /// arguments.
    schema: Option<ToolSchema>,
    own_name: String,
    client: Arc<McpClient>,
}

/// The result of a call.
pub struct RemoteAnswer {
    /// The text for the model.
    pub text: String,
    /// Whether the text is an error.
    pub failed: bool,
    /// The rule that blocked the request or the response.
    pub blocked: Option<String>,
    /// The HTTP status of a failure.
    pub status: Option<u16>,
}

impl RemoteTools {
    /// Returns an instance without servers.
    pub fn new(guard: &Guard, pins: PinStore, records: Records) -> Self {
        Self(Arc::new(RemoteState {
            guard: guard.clone(),
            pins,
            known: RwLock::default(),
            looking: watch::Sender::new(()),
            records,
        }))
    }

    /// Returns the secrets that the current servers have and these lack, although the configuration still names them.
    pub fn lost_secrets(&self, servers: &[McpServer]) -> Vec<String> {
        let known = self.known();
        let has_secret = |name: &str| {
            let mut current = known.clients.iter().map(|client| &client.server);
            current.any(|server| server.name == name && matches!(server.credential, Some(Ok(_))))
        };
        let lost = servers.iter().filter_map(|server| {
            let why = server.credential.as_ref()?.as_ref().err()?;
            has_secret(&server.name).then(|| format!("`mcp.{}.credential`: {why}", server.name))
        });
        lost.collect()
    }

    /// Polls these servers for their tools, in place of the previous ones. Running calls continue unchanged.
    pub fn take_up(&self, servers: Vec<McpServer>) {
        let known = self.0.known.write();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        // Known tools remain until the servers have responded; tools that are not allowed any more are removed now.
        known.tools.retain(|_, tool| {
            let is_its = |server: &McpServer| {
                server.name == tool.client.server.name && server.tools.contains(&tool.own_name)
            };
            servers.iter().any(is_its)
        });
        let clients = servers.into_iter();
        let clients = clients.map(|server| Arc::new(McpClient::new(server, self.0.guard.clone())));
        known.clients = clients.collect();
        for client in &known.clients {
            tokio::spawn(self.clone().follow(client.clone()));
        }
        drop(known);
        // The tasks of previous servers end now.
        self.look_now();
    }

    async fn follow(self, client: Arc<McpClient>) {
        let mut looking = self.0.looking.subscribe();
        let mut has_answered = true;
        while self.known().is_followed(&client) {
            has_answered = self.look(&client, has_answered).await;
            let wait = match has_answered {
                true => client.server.look_every,
                false => client.server.look_every.min(AFTER_FAILURE),
            };
            let _ = tokio::time::timeout(wait, looking.changed()).await;
        }
    }

    fn known(&self) -> RwLockReadGuard<'_, KnownServers> {
        self.0.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls all servers now.
    pub(super) fn look_now(&self) {
        self.0.looking.send_replace(());
    }

    pub(super) fn pins(&self) -> &PinStore {
        &self.0.pins
    }

    /// Returns the tool with a name, even if it has changed.
    pub fn tool(&self, name: &str) -> Option<RemoteTool> {
        self.known().tools.get(name).cloned()
    }

    pub fn serving(&self) -> Vec<RemoteTool> {
        let known = self.known();
        let serving = known.tools.values().filter(|tool| tool.is_serving());
        serving.cloned().collect()
    }

    /// Calls a tool once. Dropping the future stops all further requests.
    pub async fn call(&self, tool: &RemoteTool, arguments: &str) -> RemoteAnswer {
        let answer = self
            .try_call(tool, arguments)
            .await
            .unwrap_or_else(|error| {
                let text = match error.is_blocked {
                    true => format!("The call is refused: {}.", error.why),
                    false => format!("The server of the tool has no result: {}.", error.why),
                };
                RemoteAnswer {
                    text,
                    failed: true,
                    blocked: error.is_blocked.then_some(error.why),
                    status: error.status,
                }
            });
        let outcome = match (&answer.blocked, answer.failed) {
            (Some(_), _) => "blocked",
            (None, true) => "error",
            (None, false) => "ok",
        };
        self.0.records.metrics.call(&tool.name, outcome);
        answer
    }

    async fn try_call(
        &self,
        tool: &RemoteTool,
        arguments: &str,
    ) -> Result<RemoteAnswer, RemoteCallError> {
        let failed = |why: String| RemoteCallError {
            why,
            is_blocked: false,
            status: None,
        };
        let arguments: Value = serde_json::from_str(arguments)
            .map_err(|error| failed(format!("the arguments are no JSON: {error}")))?;
        if !arguments.is_object() {
            return Err(failed("the arguments are no object".to_owned()));
        }
        if let Some(schema) = &tool.schema {
            let checked = schema.check(&arguments);
            checked.map_err(|why| failed(format!("the arguments do not fit: {why}")))?;
        }
        let (server, digest) = (&tool.client.server.name, tool.digest.to_string());
        // Another node may have seen it change.
        let serves = self.0.pins.serves(server, &tool.own_name, &digest).await;
        match serves {
            Ok(true) if tool.is_serving() => {}
            Ok(_) => {
                return Err(RemoteCallError {
                    why: CHANGED.to_owned(),
                    is_blocked: true,
                    status: None,
                });
            }
            Err(error) => {
                tracing::error!(%error, "reading a remote tool in the database");
                return Err(failed("the database does not respond".to_owned()));
            }
        }
        let result = tool.client.call(&tool.own_name, arguments).await?;
        Ok(told(&result))
    }

    /// Polls a server for its tools. Returns whether the server responded. weir logs a failure once.
    async fn look(&self, client: &Arc<McpClient>, has_answered: bool) -> bool {
        let server = &client.server.name;
        let mut tools = BTreeMap::new();
        let looked = match client.list().await {
            Err(RemoteCallError { why, .. }) => {
                let what = "an MCP server does not return its tools";
                match has_answered {
                    true => tracing::warn!(server, why, "{what}"),
                    false => tracing::debug!(server, why, "{what}"),
                }
                false
            }
            Ok(listed) => {
                for written in listed {
                    if let Some(tool) = self.compare(client, &written).await {
                        tools.insert(tool.name.clone(), tool);
                    }
                }
                true
            }
        };
        let prefix = client.server.prefixed("");
        let known = self.0.known.write();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        if known.is_followed(client) {
            known.tools.retain(|name, _| !name.starts_with(&prefix));
            known.tools.append(&mut tools);
        }
        looked
    }

    /// Compares a tool's definition with its pin.
    async fn compare(&self, client: &Arc<McpClient>, written: &Value) -> Option<RemoteTool> {
        let server = &client.server;
        let own_name = written["name"].as_str()?.to_owned();
        let (name, definition) = (server.prefixed(&own_name), definition(written));
        let schema = &written["inputSchema"];
        // Clients would have to repeat arguments with this mark in headers, but have no way to learn how.
        let is_fit = schema.is_object()
            && definition.len() <= MAX_DEFINITION_BYTES
            && !definition.contains("\"x-mcp-header\"");
        if !is_fit {
            tracing::warn!(
                tool = name,
                "ignored a remote tool: its definition is too large or invalid"
            );
            return None;
        }
        let digest = Digest::of(definition.as_bytes());
        let Records {
            audit,
            metrics,
            clock,
        } = &self.0.records;
        let hex = digest.to_string();
        let seen = (&*hex, &*definition);
        let found = self
            .0
            .pins
            .look((&server.name, &own_name), seen, clock.now());
        let found = found.await.inspect_err(|error| {
            tracing::error!(%error, "reading a remote tool's pin in the database");
        });
        let found = found.ok()?;
        if found == ToolChange::Changed {
            tracing::warn!(
                tool = name,
                digest = hex,
                "a remote tool has changed at its server; weir disables it until an operator approves the change: see `weir mcp list`"
            );
            metrics.tool_changed(&name);
            audit.record(AuditEvent::RemoteTool {
                kind: "mcp_tool.changed",
                reason: name.clone(),
            });
        }
        let effect = server.effects.get(&own_name).copied();
        Some(RemoteTool {
            description: written["description"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            schema: ToolSchema::parse(&schema.to_string()).ok(),
            input_schema: schema.clone(),
            effect: effect.unwrap_or(Effect::Unsafe),
            is_changed: found != ToolChange::Same,
            client: client.clone(),
            digest,
            own_name,
            name,
        })
    }
}

impl KnownServers {
    fn is_followed(&self, client: &Arc<McpClient>) -> bool {
        self.clients.iter().any(|known| Arc::ptr_eq(known, client))
    }
}

impl RemoteTool {
    /// Whether the tool matches its pin.
    pub fn is_serving(&self) -> bool {
        !self.is_changed
    }

    pub fn url(&self) -> &str {
        &self.client.server.url
    }

    /// The maximum bytes of a result for the model.
    pub fn result_bytes(&self) -> usize {
        self.client.server.result_bytes
    }
}

/// Returns the parts of a tool's definition that matter to a model or an operator, with sorted keys.
fn definition(written: &Value) -> String {
    const FIELDS: [&str; 6] = [
        "annotations",
        "description",
        "inputSchema",
        "name",
        "outputSchema",
        "title",
    ];
    let fields = FIELDS.into_iter();
    let said = fields.filter_map(|field| Some((field.to_owned(), written.get(field)?.clone())));
    in_order(&Value::Object(said.collect())).to_string()
}

fn in_order(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let sorted: BTreeMap<_, _> = fields.iter().collect();
            let sorted = sorted.into_iter();
            let sorted: Map<_, _> = sorted
                .map(|(name, value)| (name.clone(), in_order(value)))
                .collect();
            Value::Object(sorted)
        }
        Value::Array(items) => Value::Array(items.iter().map(in_order).collect()),
        other => other.clone(),
    }
}

/// Converts a result of `tools/call` to a text.
fn told(result: &Value) -> RemoteAnswer {
    let blocks = result["content"].as_array().map(Vec::as_slice);
    let blocks = blocks.unwrap_or_default().iter();
    let texts = blocks.map(|block| match block["text"].as_str() {
        Some(text) => text.to_owned(),
        None => {
            let kind = block["type"].as_str().unwrap_or_default();
            json!({ "left_out": weir_sandbox::printable(kind, 32) }).to_string()
        }
    });
    let text = texts.collect::<Vec<_>>().join("\n");
    let text = match (&result["structuredContent"], text.is_empty()) {
        (Value::Null, _) | (_, false) => text,
        (structured, true) => structured.to_string(),
    };
    // weir cannot supply further input to a tool.
    let wants_more = result["resultType"]
        .as_str()
        .is_some_and(|kind| kind != "complete");
    match wants_more {
        true => RemoteAnswer {
            text: "The tool asks for more than its arguments, which it is not given.".to_owned(),
            failed: true,
            blocked: None,
            status: None,
        },
        false => RemoteAnswer {
            text,
            failed: result["isError"] == true,
            blocked: None,
            status: None,
        },
    }
}
