//! The tools for clients: the tools that need no agent, and their calls.

use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResult, ContentBlock, ErrorCode, ListToolsResult,
    PaginatedRequestParams, Tool, ToolAnnotations,
};
use serde_json::Value;
use tokio::time::Instant;
use weir_accounts::billing::budgets;
use weir_errors::ApiError;
use weir_identity::Caller;
use weir_ledger::{AccountId, Credits};
use weir_request::context::RequestContext;
use weir_tools::{Description, Effect, ToolInvocation, ToolOutcome};

use super::McpParts;
use super::message::{McpRefusal, McpRequest, shown};

/// The tools of a page.
const PAGE: usize = 100;

/// The time for which a client may cache the list, in milliseconds: an operator may change it at any moment.
const LIST_TTL_MS: u64 = 60_000;

/// The minimum credits left in a caller's budgets.
const LEAST: Credits = Credits::from_micro(1);

/// The reasons for a call without a result.
pub(super) enum McpCallFailure {
    /// An error of the protocol.
    Refused(McpRefusal),
    /// An HTTP error: weir serves no request of the account now.
    Unserved(ApiError),
}

/// `tools/list`: returns a page, by name.
pub(super) fn list(
    parts: &McpParts,
    caller: &Caller,
    request: &McpRequest,
) -> Result<ListToolsResult, McpRefusal> {
    let params: PaginatedRequestParams = request.params()?;
    let account = caller.account.clone();
    let mut tools = parts.tools.alone(&account, caller.plan);
    tools.sort_by(|one, other| one.name.cmp(&other.name));
    if let Some(after) = params.cursor {
        // A cursor is the last name of the previous page, which may have been removed since.
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        if after.is_empty() || !after.bytes().all(is_name) {
            let why = "`cursor` does not come from this server.";
            return Err(request.refuse(ErrorCode::INVALID_PARAMS, why));
        }
        tools.retain(|tool| tool.name > after);
    }
    let has_more = tools.len() > PAGE;
    tools.truncate(PAGE);
    let next = tools.last().filter(|_| has_more);
    let next = next.map(|tool| tool.name.clone());
    let tools = tools.into_iter().map(described).collect();
    let mut page = ListToolsResult::with_all_items(tools);
    page.next_cursor = next;
    match request.is_modern {
        true => {
            page.ttl_ms = Some(LIST_TTL_MS);
            page.cache_scope = Some(CacheScope::Private);
        }
        false => page.result_type = None,
    }
    Ok(page)
}

/// `tools/call`: calls a tool once, like an agent of the caller. Dropping the future stops all further requests.
pub(super) async fn call(
    parts: &McpParts,
    caller: &Caller,
    context: &RequestContext,
    request: &McpRequest,
) -> Result<CallToolResult, McpCallFailure> {
    let params: CallToolRequestParams = request.params().map_err(McpCallFailure::Refused)?;
    let (account, plan) = (caller.account.clone(), caller.plan);
    if !parts.tools.is_alone(&params.name, &account, plan) {
        let why = format!("Unknown tool: {}", shown(&params.name));
        let refusal = request.refuse(ErrorCode::INVALID_PARAMS, why);
        return Err(McpCallFailure::Refused(refusal));
    }
    require_budget(parts, &account, caller)
        .await
        .map_err(McpCallFailure::Unserved)?;
    let limits = &caller.limits;
    let turn = parts.admission.enter(&limits.account, limits.plan).await;
    let _turn = turn.map_err(McpCallFailure::Unserved)?;
    let tool_turn = parts.tools.try_turn(&limits.account).ok_or_else(|| {
        let most = parts.tools.calls_per_account();
        let what = format!("An account may make {most} concurrent tool calls.");
        McpCallFailure::Unserved(ApiError::too_many_at_once(what))
    })?;
    let arguments = Value::Object(params.arguments.unwrap_or_default());
    let call = ToolInvocation {
        tool: params.name.into_owned(),
        arguments: arguments.to_string(),
        // Like an agent of the caller, the call may name each of them.
        integrations: parts.tools.integrations_for(&account, plan),
        account,
        plan,
        webhook_urls: Vec::new(),
        credentials: Vec::new(),
        idempotency_key: format!("mcp-{}", context.id()),
        deadline: Instant::now() + parts.call_timeout,
    };
    let outcome = parts.tools.call_in_turn(call, tool_turn).await;
    let mut result = told(outcome);
    if !request.is_modern {
        result.result_type = None;
    }
    Ok(result)
}

/// Refuses a caller whose budgets are used up. Tool calls cost no credits, so nothing else would stop a key without
/// budget from calling tools.
async fn require_budget(
    parts: &McpParts,
    account: &AccountId,
    caller: &Caller,
) -> Result<(), ApiError> {
    let account = parts.ledger.find_account(account).await;
    let account = account.map_err(|error| ApiError::of_database(&error, "about an account"))?;
    let Some(account) = account else {
        return Ok(());
    };
    let now = parts.ledger.now();
    account
        .check_budgets(&caller.parts(), LEAST, now)
        .map_err(|exceeded| budgets::exceeded(&exceeded, now))
}

fn told(outcome: ToolOutcome) -> CallToolResult {
    let content = vec![ContentBlock::text(&outcome.content)];
    if outcome.failed {
        return CallToolResult::error(content);
    }
    let mut result = CallToolResult::success(content);
    let structured = serde_json::from_str(&outcome.content).ok();
    result.structured_content = structured.filter(Value::is_object);
    result
}

fn described(tool: Description) -> Tool {
    let schema = match tool.input_schema {
        Value::Object(schema) => schema,
        _ => Default::default(),
    };
    let annotations = ToolAnnotations::new()
        .read_only(tool.effect == Effect::Read)
        .idempotent(tool.effect <= Effect::Idempotent)
        .open_world(true);
    Tool::new(tool.name, tool.description, schema).with_annotations(annotations)
}
