//! Tools: callable by agents' models, within the operator's rules.
//!
//! The slot chooses the component of a tool ([`weir_plugins`]), and the sandbox runs it. The operator, not the
//! component, defines its targets ([`rules`]), and every request leaves through the egress guard ([`call_network`]). Each
//! call has one [`ToolOutcome`]: a text for the model, and a record for the log.
//!
//! **Invariant:** no credential reaches a guest, a model, a record or the log, even if a server echoes it.
//! **Invariant:** a slot without settings has no targets.
//!
//! To change the operator's options, edit [`settings`] and [`rules`]; for the bundled tools' defaults, `default.toml`;
//! for the processing of a tool's requests, [`call_network`].

mod call_network;
pub mod page;
pub mod remote;
pub mod routes;
pub mod rules;
pub mod secret_redactor;
pub mod settings;
pub mod task_credentials;
mod turns;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
pub use weir_egress::{Credential, Guard};
use weir_ledger::{AccountId, Plan};
use weir_plugins::counters::ExchangeEnd;
use weir_plugins::oversight::{ExchangeRecord, Oversight};
use weir_plugins::{Plugin, ToolComponent};
use weir_sandbox::tool::ToolError;
use weir_sandbox::tool::bindings::tool::{CallContext, Failure, Integration};
use weir_sandbox::{Digest, GuestError, printable};
use weir_storage::clock::Clock;
use weir_storage::secrets::{Secret, SecretKey};

use self::call_network::{CallNetwork, CallScope, RequestTrail};
use self::page::ServedPage;
use self::rules::{Rules, ToolRules};
pub use self::settings::Effect;

use self::settings::Targets;
use self::turns::{AccountTurn, Turns};
use crate::remote::{RemoteTool, RemoteTools};

/// The default configuration of the bundled tools, below the operator's.
pub const DEFAULT: &str = include_str!("default.toml");

/// The maximum bytes of arguments.
const MAX_ARGUMENTS_BYTES: usize = 256 << 10;

/// The size of arguments and responses, in bytes, above which a failure does not count against the component.
const LARGE_BYTES: usize = 64 << 10;

/// The maximum bytes of a reason in a record.
const MAX_REASON_BYTES: usize = 500;

/// The tools of a running gateway. Cheap to clone.
#[derive(Clone)]
pub struct Tools(Arc<ToolsState>);

struct ToolsState {
    oversight: Oversight,
    remotes: RemoteTools,
    guard: Guard,
    /// A call uses the rules from its start.
    rules: RwLock<Arc<Rules>>,
    turns: Turns,
    clock: Clock,
    webhook_key: Option<SecretKey>,
    page: Option<ServedPage>,
}

pub struct ToolsParts {
    /// The active components, and their supervision.
    pub oversight: Oversight,
    /// The tools of other servers.
    pub remotes: RemoteTools,
    pub guard: Guard,
    /// The operator's rules.
    pub rules: Rules,
    /// The maximum concurrent calls; others wait, within their deadline.
    pub calls_at_once: u32,
    /// The maximum concurrent calls of one account; calls of its agents wait.
    pub calls_per_account: u32,
    /// The clock of webhooks' timestamps.
    pub clock: Clock,
    /// The key for accounts' webhook secrets; without it, weir sends no webhook.
    pub webhook_key: Option<SecretKey>,
    /// The sample page for agents in development mode.
    pub page: Option<ServedPage>,
}

/// A tool for executors and models.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// The slot's name, which models use.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// The arguments' JSON Schema, an object.
    pub input_schema: Value,
    /// The worst effect of a call; [`Tools::effect`] may return a better one for a specific call.
    pub effect: Effect,
    /// The active component.
    pub digest: Digest,
}

#[derive(Debug, Clone)]
pub struct ToolInvocation {
    /// The tool's name.
    pub tool: String,
    /// The model's arguments: the JSON text of an object.
    pub arguments: String,
    /// The agent's account.
    pub account: AccountId,
    /// The account's plan.
    pub plan: Plan,
    /// The agent's webhooks.
    pub webhook_urls: Vec<String>,
    /// The ids of the agent's integrations.
    pub integrations: Vec<String>,
    /// The agent's credentials, besides the operator's for tools and integrations. They take precedence.
    pub credentials: Vec<Credential>,
    /// Equal for all attempts at this call: visible ASCII, without a dot. Receivers use it to identify repeats.
    pub idempotency_key: String,
    pub deadline: tokio::time::Instant,
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutcome {
    /// The text for the model.
    pub content: String,
    /// Whether the text is an error.
    pub failed: bool,
    pub record: CallRecord,
}

/// The record of a call, without credentials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CallRecord {
    /// The tool's name.
    pub tool: String,
    /// Whether the security layer blocked the call or any of its requests.
    pub status: CallStatus,
    /// Last requested URL; empty without a request.
    pub url: String,
    /// Status of the response; null without a response.
    pub response_status: Option<u16>,
    /// Duration of the call in milliseconds.
    pub latency_ms: f64,
    /// Rule that blocked the call, and whether anything was sent.
    pub blocked_reason: Option<String>,
    /// Digest of the component; null if no component ran.
    pub digest: Option<String>,
}

/// Whether the security layer allowed a call. `response_status` in the record has the target's response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CallStatus {
    /// The call was allowed.
    Success,
    /// The call was blocked.
    Blocked,
}

/// The reasons for which no component ran.
enum CallFailure {
    /// A failure that is not an attack; the model may be able to correct it.
    Failed(String),
    /// A rule forbids the call.
    Blocked(String),
}

impl Tools {
    /// Returns tools with these parts.
    pub fn new(parts: ToolsParts) -> Self {
        let tools = Self(Arc::new(ToolsState {
            oversight: parts.oversight,
            remotes: parts.remotes,
            guard: parts.guard,
            rules: RwLock::default(),
            turns: Turns::new(parts.calls_at_once, parts.calls_per_account),
            clock: parts.clock,
            webhook_key: parts.webhook_key,
            page: parts.page,
        }));
        tools.take_up(parts.rules);
        tools
    }

    /// Returns the secrets that the current rules have and these lack, although the configuration still names them.
    pub fn lost_secrets(&self, rules: &Rules) -> Vec<String> {
        rules.lost_secrets(&self.rules())
    }

    /// Applies these rules to calls that begin from now on.
    pub fn take_up(&self, mut rules: Rules) {
        if let Some(page) = &self.0.page {
            rules.allow_page(page);
        }
        let mut current = self.0.rules.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(rules);
    }

    /// The current rules.
    fn rules(&self) -> Arc<Rules> {
        let rules = self.0.rules.read();
        rules.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the tool with a name; `None` if it does not exist, or its slot has no active component. The description
    /// comes from the component of all accounts, not from a canary: the account that lists tools may differ from the
    /// account that calls them, and a call uses its own component's schema.
    pub fn describe(&self, name: &str) -> Option<Description> {
        if let Some(tool) = self.0.remotes.tool(name) {
            return tool.is_serving().then(|| described(tool));
        }
        let tool = self.0.oversight.plugins.tool(name)?;
        let mut description = tool.description.description.clone();
        let rules = self.rules();
        let reads_anything = rules.tool(name).is_some_and(ToolRules::reads_anything);
        if let Some(page) = self.0.page.as_ref().filter(|_| reads_anything) {
            description += &format!(" A page to try it on is {}.", page.url());
        }
        Some(Description {
            name: name.to_owned(),
            description,
            input_schema: tool.schema.as_json().clone(),
            effect: worst(&rules, name),
            digest: tool.code().digest,
        })
    }

    /// Returns the tools for calls without an agent: neither tools for agents' webhooks, nor tools for integrations if
    /// the user may use none.
    pub fn alone(&self, account: &AccountId, plan: Plan) -> Vec<Description> {
        let rules = self.rules();
        let works = |slot: &&str| works_alone(&rules, slot, account, plan);
        let slots = rules.slots().filter(works);
        let own = slots.filter_map(|slot| self.describe(slot));
        let remote = self.0.remotes.serving().into_iter().map(described);
        own.chain(remote).collect()
    }

    /// Whether a tool is [among those](Self::alone).
    pub fn is_alone(&self, name: &str, account: &AccountId, plan: Plan) -> bool {
        match self.0.remotes.tool(name) {
            Some(tool) => tool.is_serving(),
            None => {
                let serves = self.0.oversight.plugins.tool(name).is_some();
                serves && works_alone(&self.rules(), name, account, plan)
            }
        }
    }

    /// Returns the ids of the integrations of a user on a plan.
    pub fn integrations_for(&self, account: &AccountId, plan: Plan) -> Vec<String> {
        let rules = self.rules();
        let ids = rules.integrations_for(account, plan);
        ids.map(str::to_owned).collect()
    }

    /// Whether an integration exists, but not for this user and plan.
    pub fn denies_integration(&self, id: &str, account: &AccountId, plan: Plan) -> bool {
        let rules = self.rules();
        let integration = rules.integration(id);
        integration.is_some_and(|integration| !integration.serves(account, plan))
    }

    /// Returns the permit for an immediate call; `None` if the account has its share of calls.
    pub fn try_turn(&self, account: &AccountId) -> Option<AccountTurn> {
        self.0.turns.try_take(account)
    }

    /// The maximum concurrent calls of one account.
    pub fn calls_per_account(&self) -> u32 {
        self.0.turns.per_account()
    }

    /// Returns the tool's component for an account.
    pub fn digest(&self, name: &str, account: &AccountId) -> Option<Digest> {
        if let Some(tool) = self.0.remotes.tool(name) {
            return Some(tool.digest);
        }
        let chosen = self.0.oversight.plugins.tool_for(name, account)?;
        Some(chosen.component.code().digest)
    }

    /// Whether the operator has configured an integration.
    pub fn has_integration(&self, id: &str) -> bool {
        self.rules().integration(id).is_some()
    }

    /// Returns the secret of an account's webhooks; `None` if weir sends no webhooks.
    pub fn webhook_secret(&self, account: &AccountId) -> Option<Secret> {
        let key = self.0.webhook_key.as_ref()?;
        Some(call_network::webhook_secret(key, account))
    }

    /// Returns the effect of a specific call: if its arguments name an `integration`, that integration's effect.
    pub fn effect(&self, name: &str, arguments: &str, integrations: &[String]) -> Effect {
        if let Some(tool) = self.0.remotes.tool(name) {
            return tool.effect;
        }
        let all = self.rules();
        let Some(rules) = all.tool(name) else {
            return Effect::Unsafe;
        };
        if rules.to != Targets::Integrations {
            return rules.effect;
        }
        let arguments = serde_json::from_str(arguments).unwrap_or_default();
        let narrowed = narrow(&all, &arguments, integrations);
        let effects = narrowed.into_iter().flatten().map(|own| own.effect);
        // Without an integration, the call has no target.
        effects.max().unwrap_or(Effect::Read)
    }

    /// Calls a tool once, after the account's other calls leave a permit. Dropping the future stops all further
    /// requests.
    pub async fn call(&self, call: ToolInvocation) -> ToolOutcome {
        let began = Instant::now();
        let turn = self.0.turns.take(&call.account);
        let Ok(turn) = tokio::time::timeout_at(call.deadline, turn).await else {
            let why = format!(
                "TOO_MANY_AT_ONCE: an account has at most {} calls of tools at once.",
                self.calls_per_account()
            );
            return self.finish(&call, None, began, failed(why), &RequestTrail::default());
        };
        self.call_in_turn(call, turn).await
    }

    /// Calls a tool with the caller's permit.
    pub async fn call_in_turn(&self, call: ToolInvocation, turn: AccountTurn) -> ToolOutcome {
        let _turn = turn;
        let began = Instant::now();
        if let Some(tool) = self.0.remotes.tool(&call.tool) {
            return self.call_remote(&tool, &call, began).await;
        }
        let plugins = &self.0.oversight.plugins;
        let Some(chosen) = plugins.tool_for(&call.tool, &call.account) else {
            let why = format!("There is no tool {:?} that can be called.", call.tool);
            return self.finish(&call, None, began, failed(why), &RequestTrail::default());
        };
        let tool = chosen.component;
        let digest = Some(tool.code().digest);
        let (scope, context) = match self.scope(&tool, &call) {
            Ok(scope) => scope,
            Err(CallFailure::Failed(why)) => {
                return self.finish(&call, digest, began, failed(why), &RequestTrail::default());
            }
            Err(CallFailure::Blocked(why)) => {
                let text = format!("The call is refused: {why}.");
                return self.finish(
                    &call,
                    digest,
                    began,
                    failed(text),
                    &RequestTrail::blocked(why),
                );
            }
        };
        let (within, result_bytes) = (scope.within(), scope.rules.result_bytes);
        let network = CallNetwork::new(self.0.guard.clone(), scope);
        let trail = network.trail();
        let run = async {
            let _place = self.0.turns.place().await;
            let left = call
                .deadline
                .saturating_duration_since(tokio::time::Instant::now());
            let within = within.min(left);
            tool.call(&call.arguments, &context, network, within).await
        };
        let answer = match tokio::time::timeout_at(call.deadline, run).await {
            Ok(answer) => answer,
            Err(_) => Err(ToolError::Guest(GuestError::CallTimeout)),
        };
        let trail = trail.lock().clone();
        let ended = judge(&answer, &trail, call.arguments.len());
        let plugin = Plugin::Tool(tool.clone());
        let noted = ExchangeRecord {
            ended,
            effects: None,
            is_guard: false,
            took: began.elapsed(),
            first_token: None,
            sampler: chosen.sampler.as_ref(),
        };
        self.0.oversight.note(&plugin, &call.account, noted);
        let told = match answer {
            Ok(text) => (trail.redactor.redact_text(cut(text, result_bytes)), false),
            Err(error) => failed(
                trail
                    .redactor
                    .redact_text(cut(explain(error), result_bytes)),
            ),
        };
        self.finish(&call, digest, began, told, &trail)
    }

    /// Calls another server's tool.
    async fn call_remote(
        &self,
        tool: &RemoteTool,
        call: &ToolInvocation,
        began: Instant,
    ) -> ToolOutcome {
        let mut trail = RequestTrail::at(tool.url());
        let run = async {
            let _place = self.0.turns.place().await;
            self.0.remotes.call(tool, &call.arguments).await
        };
        let told = match call.arguments.len() > MAX_ARGUMENTS_BYTES {
            true => failed(format!(
                "The arguments have more than {MAX_ARGUMENTS_BYTES} bytes."
            )),
            false => match tokio::time::timeout_at(call.deadline, run).await {
                Ok(answer) => {
                    trail.status = answer.status;
                    trail.blocked = answer.blocked;
                    (cut(answer.text, tool.result_bytes()), answer.failed)
                }
                Err(_) => failed(explain(ToolError::Guest(GuestError::CallTimeout))),
            },
        };
        self.finish(call, Some(tool.digest), began, told, &trail)
    }

    /// Returns the scope of a call, and the tool's view of it.
    fn scope(
        &self,
        tool: &ToolComponent,
        call: &ToolInvocation,
    ) -> Result<(CallScope, CallContext), CallFailure> {
        if call.arguments.len() > MAX_ARGUMENTS_BYTES {
            return Err(CallFailure::Failed(format!(
                "The arguments have more than {MAX_ARGUMENTS_BYTES} bytes."
            )));
        }
        let arguments: Value = serde_json::from_str(&call.arguments)
            .map_err(|error| CallFailure::Failed(format!("The arguments are no JSON: {error}.")))?;
        tool.schema
            .check(&arguments)
            .map_err(|why| CallFailure::Failed(format!("The arguments do not fit: {why}.")))?;
        let all = self.rules();
        let rules = all.tool(&call.tool).ok_or_else(|| {
            let slot = &call.tool;
            CallFailure::Blocked(format!(
                "policy: the operator has allowed the tool nothing (`[tools.{slot}]`); nothing was sent"
            ))
        })?;
        let integrations: Vec<_> = match rules.to {
            Targets::Integrations => {
                let (account, plan) = (&call.account, call.plan);
                let mut ids = call.integrations.clone();
                ids.retain(|id| !self.denies_integration(id, account, plan));
                narrow(&all, &arguments, &ids)?
            }
            Targets::Hosts | Targets::Webhooks => Vec::new(),
        }
        .into_iter()
        .cloned()
        .collect();
        let webhook_urls = match rules.to {
            Targets::Webhooks => call.webhook_urls.clone(),
            Targets::Hosts | Targets::Integrations => Vec::new(),
        };
        let names = rules.credentials.iter();
        let names = names.chain(
            integrations
                .iter()
                .filter_map(|own| own.credential.as_ref()),
        );
        let credentials = call_network::credentials(&all, names, &call.credentials);
        let context = CallContext {
            webhook_urls: webhook_urls.clone(),
            integrations: integrations
                .iter()
                .map(|own| Integration {
                    id: own.id.clone(),
                    base_url: own.base_url.clone(),
                    credential: own.credential.clone().or_else(|| {
                        // If the operator has given no credential, the agent's own applies.
                        let mut agents = call.credentials.iter();
                        let bound = agents.find(|agents| agents.origin == own.origin);
                        bound.map(|bound| bound.name.clone())
                    }),
                })
                .collect(),
            credentials: credentials.keys().cloned().collect(),
        };
        let webhook_secret = match rules.to {
            Targets::Webhooks => self.webhook_secret(&call.account),
            Targets::Hosts | Targets::Integrations => None,
        };
        let scope = CallScope {
            rules: rules.clone(),
            integrations,
            webhook_urls,
            webhook_secret,
            credentials,
            idempotency_key: call.idempotency_key.clone(),
            deadline: call.deadline,
            clock: self.0.clock.clone(),
        };
        Ok((scope, context))
    }

    fn finish(
        &self,
        call: &ToolInvocation,
        digest: Option<Digest>,
        began: Instant,
        (content, failed): (String, bool),
        trail: &RequestTrail,
    ) -> ToolOutcome {
        let milliseconds = began.elapsed().as_secs_f64() * 1_000.0;
        let record = CallRecord {
            tool: call.tool.clone(),
            status: match trail.blocked {
                Some(_) => CallStatus::Blocked,
                None => CallStatus::Success,
            },
            url: trail.url.clone(),
            response_status: trail.status,
            // Rounded to a tenth, because smaller differences are noise.
            latency_ms: (milliseconds * 10.0).round() / 10.0,
            blocked_reason: trail
                .blocked
                .as_deref()
                .map(|why| printable(why, MAX_REASON_BYTES)),
            digest: digest.map(|digest| digest.to_string()),
        };
        tracing::info!(
            tool = record.tool,
            status = match record.status {
                CallStatus::Success => "success",
                CallStatus::Blocked => "blocked",
            },
            failed,
            url = record.url,
            response_status = record.response_status,
            latency_ms = record.latency_ms,
            blocked_reason = record.blocked_reason,
            digest = record.digest,
            user = call.account.0,
            "tool call"
        );
        ToolOutcome {
            content,
            failed,
            record,
        }
    }
}

/// Describes another server's tool for executors and models.
fn described(tool: RemoteTool) -> Description {
    Description {
        name: tool.name,
        description: tool.description,
        input_schema: tool.input_schema,
        effect: tool.effect,
        digest: tool.digest,
    }
}

/// Whether a tool works without an agent.
fn works_alone(rules: &Rules, name: &str, account: &AccountId, plan: Plan) -> bool {
    rules.tool(name).is_some_and(|tool| match tool.to {
        Targets::Hosts => true,
        Targets::Integrations => rules.integrations_for(account, plan).next().is_some(),
        Targets::Webhooks => false,
    })
}

/// The worst effect of a call of the tool.
fn worst(rules: &Rules, name: &str) -> Effect {
    match rules.tool(name) {
        Some(tool) if tool.to == Targets::Integrations => rules.worst_integration(),
        Some(tool) => tool.effect,
        None => Effect::Unsafe,
    }
}

/// Returns the integrations of a call: the agent's, or the one in its arguments.
fn narrow<'a>(
    rules: &'a Rules,
    arguments: &Value,
    ids: &[String],
) -> Result<Vec<&'a rules::Integration>, CallFailure> {
    let named = arguments.get("integration").and_then(Value::as_str);
    let chosen = ids
        .iter()
        .filter(|id| named.is_none_or(|named| named == **id));
    let found: Vec<_> = chosen.filter_map(|id| rules.integration(id)).collect();
    match (found.is_empty(), named) {
        (true, Some(named)) => {
            let own = match ids {
                [] => "none".to_owned(),
                ids => ids.join(", "),
            };
            Err(CallFailure::Blocked(format!(
                "policy: {:?} is not an integration that the agent may call and the operator has configured; the \
                 agent's are: {own}; nothing was sent",
                printable(named, 64)
            )))
        }
        _ => Ok(found),
    }
}

fn failed(text: String) -> (String, bool) {
    (text, true)
}

/// The result of a call, and the component's share in it.
fn judge(
    answer: &Result<String, ToolError>,
    trail: &RequestTrail,
    arguments_bytes: usize,
) -> ExchangeEnd {
    let is_of_size = arguments_bytes.max(trail.answer_bytes) > LARGE_BYTES;
    match answer {
        Ok(_) => ExchangeEnd::Well,
        Err(ToolError::Failure(_)) => ExchangeEnd::InError,
        Err(ToolError::Guest(GuestError::NoRoom)) => ExchangeEnd::InError,
        // The request's target caused the timeout.
        Err(ToolError::Guest(GuestError::CallTimeout)) if trail.is_waiting => ExchangeEnd::InError,
        // A client must not be able to disable a component for all clients by sending large arguments.
        Err(ToolError::Guest(_)) if is_of_size => ExchangeEnd::InError,
        Err(ToolError::Guest(_)) => ExchangeEnd::InTrap,
    }
}

/// Returns the model's text for a call without a result.
fn explain(error: ToolError) -> String {
    match error {
        ToolError::Failure(Failure::InvalidArguments(why)) => {
            format!("The arguments do not fit: {why}.")
        }
        ToolError::Failure(Failure::Failed(why)) => why,
        ToolError::Guest(GuestError::CallTimeout) => {
            "The tool took too long; whether it has done anything is not known.".to_owned()
        }
        ToolError::Guest(_) => {
            "The tool failed; whether it has done anything is not known.".to_owned()
        }
    }
}

/// Truncates a text for the model, with a note.
fn cut(mut text: String, most_bytes: usize) -> String {
    if text.len() <= most_bytes {
        return text;
    }
    let all = text.len();
    text.truncate(text.floor_char_boundary(most_bytes));
    text.push_str(&format!("\n[cut: {most_bytes} of {all} bytes]"));
    text
}
