//! Tools of other MCP servers, for agents and for clients of `/mcp`: those that operators list in `[mcp.NAME]`, each called
//! `NAME__TOOL`.
//!
//! A server is asked again and again what its tools are ([`client`]). What one was when it was first seen is pinned in the database
//! ([`store`]); where a server says something else of it, the tool is disabled on every node until an operator approves the change:
//! a description is read by models, and may tell them anything. A server that does not answer has no tools, and disables no other's.
//!
//! **Invariant:** no byte goes to a server but through the egress guard, and its credential to its own URL alone.
//! **Invariant:** nobody is told, and nobody calls, a tool that is not what was pinned.
//! **Invariant:** what a server says of its tools' effects is not believed.

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
use weir_sandbox::Digest;
use weir_sandbox::tool::schema::Schema;
use weir_storage::clock::Clock;

use self::client::{McpClient, NoAnswer};
use self::settings::McpServer;
use self::store::{PinStore, ToolChange};
use crate::audit::{Audit, AuditEvent};
use crate::metrics::Metrics;
use crate::tools::settings::Effect;

/// How soon a server is asked again that has not answered.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// Bytes of the largest definition: models are told most of it with every call.
const MAX_DEFINITION_BYTES: usize = 32 << 10;

/// Why a tool that has changed is not called.
const CHANGED: &str = "policy: the tool has changed at its server, and no operator has approved that (`weir mcp list`); nothing \
                       was sent";

/// The remote tools of a running gateway. Cheap to clone.
#[derive(Clone)]
pub struct Remotes(Arc<RemoteState>);

struct RemoteState {
    guard: Guard,
    pins: PinStore,
    known: RwLock<Known>,
    looking: watch::Sender<()>,
    records: Records,
}

/// Who is asked, and what they have said.
#[derive(Default)]
struct Known {
    clients: Vec<Arc<McpClient>>,
    /// By the names by which models call them.
    tools: BTreeMap<String, RemoteTool>,
}

/// Where it is noted what becomes of remote tools.
pub struct Records {
    /// Security events.
    pub audit: Audit,
    /// Figures.
    pub metrics: Arc<Metrics>,
    /// What pins are dated by.
    pub clock: Clock,
}

/// A remote tool as this node has last seen it.
#[derive(Clone)]
pub struct RemoteTool {
    /// By which models call it.
    pub name: String,
    /// For models, as its server wrote it.
    pub description: String,
    /// What its arguments may be, as its server wrote it.
    pub input_schema: Value,
    /// The worst that a call may bring about, as the operator says.
    pub effect: Effect,
    /// Of all that its server says of it.
    pub digest: Digest,
    is_changed: bool,
    /// `None` where it is written in more than the part of JSON Schema that is checked here: its server checks it.
    schema: Option<Schema>,
    own_name: String,
    client: Arc<McpClient>,
}

/// What came of a call.
pub struct RemoteAnswer {
    /// For the model.
    pub text: String,
    /// Whether that is an error.
    pub failed: bool,
    /// Why nothing was sent, or nothing came of it, where a rule of ours forbade it.
    pub blocked: Option<String>,
    /// The HTTP status, where it was not a success.
    pub status: Option<u16>,
}

impl Remotes {
    /// Of no servers yet.
    pub fn new(guard: &Guard, pins: PinStore, records: Records) -> Self {
        Self(Arc::new(RemoteState {
            guard: guard.clone(),
            pins,
            known: RwLock::default(),
            looking: watch::Sender::new(()),
            records,
        }))
    }

    /// Asks these servers again and again what their tools are, instead of those before. Calls under way end as they began.
    pub fn take_up(&self, servers: Vec<McpServer>) {
        let known = self.0.known.write();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        // Until they have answered anew; what is not allowed any more is gone now.
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
        // Those before see that they are not wanted.
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

    fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.0.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has all servers be asked now.
    pub(super) fn look_now(&self) {
        self.0.looking.send_replace(());
    }

    /// What was pinned.
    pub(super) fn pins(&self) -> &PinStore {
        &self.0.pins
    }

    /// The tool of a name, also where it has changed.
    pub fn tool(&self, name: &str) -> Option<RemoteTool> {
        self.known().tools.get(name).cloned()
    }

    /// Those that can be called.
    pub fn serving(&self) -> Vec<RemoteTool> {
        let known = self.known();
        let serving = known.tools.values().filter(|tool| tool.is_serving());
        serving.cloned().collect()
    }

    /// Calls a tool once. Dropped, it asks for nothing more.
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
        self.0.records.metrics.mcp_call(&tool.name, outcome);
        answer
    }

    async fn try_call(&self, tool: &RemoteTool, arguments: &str) -> Result<RemoteAnswer, NoAnswer> {
        let failed = |why: String| NoAnswer {
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
                return Err(NoAnswer {
                    why: CHANGED.to_owned(),
                    is_blocked: true,
                    status: None,
                });
            }
            Err(error) => {
                tracing::error!(%error, "the database, asked for a remote tool");
                return Err(failed("the database does not answer".to_owned()));
            }
        }
        let result = tool.client.call(&tool.own_name, arguments).await?;
        Ok(told(&result))
    }

    /// Asks a server what its tools are. Returns whether it has said so. That it does not is told once.
    async fn look(&self, client: &Arc<McpClient>, has_answered: bool) -> bool {
        let server = &client.server.name;
        let mut tools = BTreeMap::new();
        let looked = match client.list().await {
            Err(NoAnswer { why, .. }) => {
                let what = "an MCP server does not say what its tools are";
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

    /// A tool as its server writes it, compared with what it was.
    async fn compare(&self, client: &Arc<McpClient>, written: &Value) -> Option<RemoteTool> {
        let server = &client.server;
        let own_name = written["name"].as_str()?.to_owned();
        let (name, definition) = (server.prefixed(&own_name), definition(written));
        let schema = &written["inputSchema"];
        // Clients must repeat arguments that are marked so in headers, and are not told here how.
        let is_fit = schema.is_object()
            && definition.len() <= MAX_DEFINITION_BYTES
            && !definition.contains("\"x-mcp-header\"");
        if !is_fit {
            tracing::warn!(
                tool = name,
                "a remote tool is left out: its definition is too large, or none that can be used"
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
            tracing::error!(%error, "the database, asked what a remote tool was");
        });
        let found = found.ok()?;
        if found == ToolChange::Changed {
            tracing::warn!(
                tool = name,
                digest = hex,
                "a remote tool has changed at its server, and is disabled until an operator approves that: see `weir mcp list`"
            );
            metrics.mcp_tool_changed(&name);
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
            schema: Schema::parse(&schema.to_string()).ok(),
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

impl Known {
    fn is_followed(&self, client: &Arc<McpClient>) -> bool {
        self.clients.iter().any(|known| Arc::ptr_eq(known, client))
    }
}

impl RemoteTool {
    /// Whether it is what it was.
    pub fn is_serving(&self) -> bool {
        !self.is_changed
    }

    /// Where calls go.
    pub fn url(&self) -> &str {
        &self.client.server.url
    }

    /// Bytes of its results for the model.
    pub fn result_bytes(&self) -> usize {
        self.client.server.result_bytes
    }
}

/// All that a server says of a tool that a model or an operator goes by, its keys in order.
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

/// A result of `tools/call`, as a text.
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
    // What it would have to be told more, nobody here can tell it.
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
