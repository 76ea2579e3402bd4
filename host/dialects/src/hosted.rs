//! Features of providers that weir does not see: state, other models, and tools without a price.
//!
//! weir prices the tokens of one model and, with the catalog's `search`, searches of the web. [`FIELDS`] and [`TOOLS`]
//! decide about each further feature once, for all dialects and adapters. A request with an undecided or unpriced feature
//! is refused, unless the option `pass-fields` of the upstream's adapter lists the field or the tool.
//!
//! **Invariant:** an unknown tool of a provider is refused, because nobody has decided about it.
//!
//! To decide about another field or tool, add a row.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use weir_errors::ApiError;
use weir_sandbox::adapter::bindings::chat::{BuiltInTool, ChatRequest, Content, Opaque, ToolKind};

use crate::anthropic_messages;
use crate::json::folded;

/// The uses of a provider's tool that weir assumes, and sends, if the request sets no limit.
pub const ASSUMED_USES: u64 = 10;

/// The maximum uses of one such tool.
pub const MAX_USES: u64 = 1_000;

/// The field of a tool that limits its uses (anthropic 2.14.0, `types/beta/beta_web_search_tool_20260318_param.py`).
const MAX_USES_FIELD: &str = "max_uses";

/// The reason for a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// The provider reads or keeps a conversation, a prompt, a file or a container, under ids that weir does not know.
    State,
    /// Another model works, at its own price.
    OtherModel,
    /// The provider bills something besides the tokens of the model.
    Unpriced,
    /// The price of the same tokens is another one.
    OtherPrice,
    /// The provider calls other servers, as often as it wants.
    OtherServers,
}

/// The billing of a provider's built-in tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Billing {
    /// The client runs it. The result comes with the next request.
    Client,
    /// Its results are tokens of the model's input.
    Tokens,
    /// The same, and the request limits its uses.
    LimitedTokens,
    /// The catalog has the price of each use, and the request limits them.
    LimitedSearches,
    /// weir does not see what it costs.
    Unseen(Effect),
}

/// Fields of a request. A dot leads into an object.
///
/// Sources: anthropic 2.14.0, `types/beta/message_create_params.py`; openai 3.57.0,
/// `types/responses/response_create_params.py` and `types/chat/completion_create_params.py`; google-genai 3.6.1,
/// `types.py`; openrouter.ai/docs/api/reference/parameters; docs.x.ai/docs/guides/live-search.
const FIELDS: &[(&str, Effect)] = &[
    // Anthropic's.
    ("billing_policy", Effect::OtherPrice),
    ("container", Effect::State),
    ("diagnostics.previous_message_id", Effect::State),
    ("fallback_credit_token", Effect::OtherPrice),
    ("fallbacks", Effect::OtherModel),
    ("inference_geo", Effect::OtherPrice),
    ("mcp_servers", Effect::OtherServers),
    ("speed", Effect::OtherPrice),
    ("thread", Effect::State),
    // OpenAI's, and those of servers with its dialects.
    ("background", Effect::State),
    ("background_options", Effect::State),
    ("conversation", Effect::State),
    ("models", Effect::OtherModel),
    ("moderation", Effect::OtherModel),
    ("plugins", Effect::Unpriced),
    ("previous_response_id", Effect::State),
    ("prompt", Effect::State),
    ("search_parameters", Effect::Unpriced),
    ("web_search_options", Effect::Unpriced),
    // Google's.
    ("cachedContent", Effect::State),
    ("generationConfig.modelSelectionConfig", Effect::OtherModel),
    ("generationConfig.routingConfig", Effect::OtherModel),
    ("modelArmorConfig", Effect::Unpriced),
];

/// Built-in tools, by their kinds without a date.
///
/// Only Anthropic's search has a limit of its own that weir can write. OpenAI's and Google's searches have none, so
/// that their number has no bound.
///
/// Sources: anthropic 2.14.0, `types/beta/beta_tool_union_param.py`; openai 3.57.0, `types/responses/tool_param.py`;
/// google-genai 3.6.1, `types.py`: `Tool`.
const TOOLS: &[(&str, Billing)] = &[
    // Anthropic's.
    ("advisor", Billing::Unseen(Effect::OtherModel)),
    ("bash", Billing::Client),
    ("browser_toolset", Billing::Client),
    ("code_execution", Billing::Unseen(Effect::Unpriced)),
    ("computer", Billing::Client),
    ("computer_toolset", Billing::Client),
    ("mcp_toolset", Billing::Unseen(Effect::OtherServers)),
    ("memory", Billing::Client),
    ("text_editor", Billing::Client),
    ("tool_search_tool_bm25", Billing::Tokens),
    ("tool_search_tool_regex", Billing::Tokens),
    ("web_fetch", Billing::LimitedTokens),
    ("web_search", Billing::LimitedSearches),
    // OpenAI's.
    ("apply_patch", Billing::Client),
    ("code_interpreter", Billing::Unseen(Effect::Unpriced)),
    ("computer_use_preview", Billing::Client),
    ("file_search", Billing::Unseen(Effect::Unpriced)),
    ("image_generation", Billing::Unseen(Effect::OtherModel)),
    ("local_shell", Billing::Client),
    ("mcp", Billing::Unseen(Effect::OtherServers)),
    (
        "programmatic_tool_calling",
        Billing::Unseen(Effect::Unpriced),
    ),
    // It may run in a container of the provider.
    ("shell", Billing::Unseen(Effect::Unpriced)),
    ("tool_search", Billing::Tokens),
    ("web_search_preview", Billing::Unseen(Effect::Unpriced)),
    // Google's.
    ("computerUse", Billing::Client),
    ("enterpriseWebSearch", Billing::Unseen(Effect::Unpriced)),
    ("exaAiSearch", Billing::Unseen(Effect::Unpriced)),
    ("googleMaps", Billing::Unseen(Effect::Unpriced)),
    ("googleSearch", Billing::Unseen(Effect::Unpriced)),
    ("googleSearchRetrieval", Billing::Unseen(Effect::Unpriced)),
    ("mcpServers", Billing::Unseen(Effect::OtherServers)),
    ("parallelAiSearch", Billing::Unseen(Effect::Unpriced)),
    ("retrieval", Billing::Unseen(Effect::Unpriced)),
    ("urlContext", Billing::Tokens),
];

/// Content blocks of Anthropic's messages.
const CONTAINER_UPLOAD: &str = "container_upload";
const TOOL_ADDITION: &str = "tool_addition";

/// The item of OpenAI's with tools that a search found.
const TOOL_SEARCH_OUTPUT: &str = "tool_search_output";

const ADDS_A_TOOL: &str = "adds a tool of the provider";

/// A feature that a request uses and weir neither counts nor prices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnseenFeature {
    /// The path of its field.
    pub param: String,
    /// The reason, which begins with the field or the tool.
    pub text: String,
}

/// The terms of a request at an upstream.
#[derive(Debug, Clone, Copy)]
pub struct HostedTerms<'a> {
    /// The client's dialect.
    pub dialect: &'a str,
    /// The names in the option `pass-fields`, separated by commas.
    pub pass_fields: &'a str,
    /// Whether searches of the web have a price.
    pub has_search_price: bool,
}

impl HostedTerms<'_> {
    fn passes(&self, name: &str) -> bool {
        let mut passed = self.pass_fields.split(',').map(str::trim);
        passed.any(|passed| is_same(passed, name))
    }
}

impl Effect {
    fn reason(self) -> &'static str {
        match self {
            Self::State => "uses state at the provider",
            Self::OtherModel => "lets the provider run another model",
            Self::Unpriced => "has a price of its own that weir does not charge",
            Self::OtherPrice => "changes the price of the provider",
            Self::OtherServers => "lets the provider call other servers",
        }
    }
}

/// Returns the first feature of a request that is refused on these terms.
pub fn unseen_feature(request: &ChatRequest, terms: HostedTerms<'_>) -> Option<UnseenFeature> {
    unseen_field(request, terms)
        .or_else(|| unseen_tool(request, terms))
        .or_else(|| unseen_block(request, terms))
}

/// Whether the client runs a built-in tool.
pub fn is_run_by_client(kind: &str) -> bool {
    billing(kind) == Some(Billing::Client)
}

/// Whether a built-in tool searches the web.
pub fn is_search(kind: &str) -> bool {
    kind.contains("web_search")
}

/// Writes the assumed number of uses into each tool of a provider that has the field for it and no value, so that the
/// provider stops where weir's hold ends.
///
/// # Errors
///
/// 400 `INVALID_REQUEST` for a limit that is no integer from 1 to [`MAX_USES`].
pub fn limit_uses(request: &mut ChatRequest, dialect: &str) -> Result<(), ApiError> {
    if !has_limits(dialect) {
        return Ok(());
    }
    for (index, tool) in request.tools.iter_mut().enumerate() {
        let ToolKind::BuiltIn(tool) = &mut tool.kind else {
            continue;
        };
        let is_limited = matches!(
            billing(&tool.kind),
            Some(Billing::LimitedTokens | Billing::LimitedSearches)
        );
        if is_limited && !limit_tool(tool) {
            let field = format!("tools[{index}].{MAX_USES_FIELD}");
            let message = format!("{field} must be an integer from 1 to {MAX_USES}.");
            return Err(ApiError::invalid_request(field, message));
        }
    }
    Ok(())
}

/// Whether tools of a dialect have the field for the limit.
fn has_limits(dialect: &str) -> bool {
    dialect == anthropic_messages::NAME
}

/// Limits the uses of a tool. Returns whether its own limit is valid.
fn limit_tool(tool: &mut BuiltInTool) -> bool {
    let Ok(mut fields) =
        serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(&tool.configuration)
    else {
        // The adapter refuses it.
        return true;
    };
    let is_misspelt = |name: &String| name != MAX_USES_FIELD && is_same(name, MAX_USES_FIELD);
    if fields.keys().any(is_misspelt) {
        return false;
    }
    if let Some(limit) = fields.get(MAX_USES_FIELD) {
        let limit = limit.get().parse::<u64>();
        return limit.is_ok_and(|limit| (1..=MAX_USES).contains(&limit));
    }
    let Ok(limit) = serde_json::value::to_raw_value(&ASSUMED_USES) else {
        return true;
    };
    fields.insert(MAX_USES_FIELD.to_owned(), limit);
    if let Ok(configuration) = serde_json::to_string(&fields) {
        tool.configuration = configuration;
    }
    true
}

fn unseen_field(request: &ChatRequest, terms: HostedTerms<'_>) -> Option<UnseenFeature> {
    let uses = |field: &str| {
        let mut extra = request.extra.iter();
        let is_used = |json: &str| !matches!(json, "[]" | "{}");
        if extra.any(|(name, json)| is_same(name, field) && is_used(json)) {
            return true;
        }
        // The field of an object is used if it is not null.
        let Some((object, within)) = field.split_once('.') else {
            return false;
        };
        let mut extra = request.extra.iter();
        let object = extra.find(|(name, _)| is_same(name, object));
        let fields = object.and_then(|(_, json)| {
            serde_json::from_str::<BTreeMap<String, Option<&RawValue>>>(json).ok()
        });
        let mut fields = fields.into_iter().flatten();
        fields.any(|(name, value)| value.is_some() && is_same(&name, within))
    };
    let passes = |field: &str| {
        let object = field.split('.').next().unwrap_or(field);
        terms.passes(field) || terms.passes(object)
    };
    let mut fields = FIELDS.iter();
    let (field, effect) = fields.find(|(field, _)| uses(field) && !passes(field))?;
    Some(UnseenFeature {
        param: (*field).to_owned(),
        text: explanation(field, effect.reason(), field),
    })
}

fn unseen_tool(request: &ChatRequest, terms: HostedTerms<'_>) -> Option<UnseenFeature> {
    let mut tools = request.tools.iter().enumerate();
    tools.find_map(|(index, tool)| {
        let ToolKind::BuiltIn(tool) = &tool.kind else {
            return None;
        };
        let reason = unseen_kind(&tool.kind, terms)?;
        let param = format!("tools[{index}]");
        let what = format!("{param}: a tool of type {}", tool.kind);
        Some(UnseenFeature {
            text: explanation(&what, reason, family(&tool.kind)),
            param,
        })
    })
}

/// Returns the reason to refuse a tool of this kind.
fn unseen_kind(kind: &str, terms: HostedTerms<'_>) -> Option<&'static str> {
    let reason = match billing(kind) {
        Some(Billing::Client | Billing::Tokens | Billing::LimitedTokens) => return None,
        Some(Billing::LimitedSearches) if !has_limits(terms.dialect) => Effect::Unpriced.reason(),
        Some(Billing::LimitedSearches) if terms.has_search_price => return None,
        Some(Billing::LimitedSearches) => "has no price in the catalog",
        Some(Billing::Unseen(effect)) => effect.reason(),
        None => "is unknown, and has no price in the catalog",
    };
    let passes = terms.passes(kind) || terms.passes(family(kind));
    (!passes).then_some(reason)
}

/// Looks for blocks that put a file into a container, or define a tool of the provider in the middle of the conversation.
fn unseen_block(request: &ChatRequest, terms: HostedTerms<'_>) -> Option<UnseenFeature> {
    let mut messages = request.messages.iter().enumerate();
    messages.find_map(|(index, message)| {
        let mut parts = message.parts.iter();
        let (name, reason) = parts.find_map(|part| match &part.content {
            Content::Opaque(block) => unseen_content(block, terms),
            _ => None,
        })?;
        let param = format!("messages[{index}]");
        let what = format!("{param}: a block of type {name}");
        Some(UnseenFeature {
            text: explanation(&what, reason, name),
            param,
        })
    })
}

fn unseen_content(block: &Opaque, terms: HostedTerms<'_>) -> Option<(&'static str, &'static str)> {
    #[derive(Deserialize)]
    struct ToolAddition {
        tool: AddedTool,
    }
    #[derive(Deserialize)]
    struct AddedTool {
        definition: Option<DefinedTool>,
    }
    #[derive(Deserialize)]
    struct DefinedTool {
        #[serde(rename = "type")]
        kind: Option<String>,
    }
    #[derive(Deserialize)]
    struct FoundTools {
        tools: Vec<DefinedTool>,
    }
    // weir has written no limit into a definition in the middle of the conversation.
    let is_of_provider = |kind: &String| {
        let is_own = matches!(&**kind, "function" | "custom" | "namespace");
        !is_own && !is_run_by_client(kind)
    };
    match block.kind.as_str() {
        CONTAINER_UPLOAD if !terms.passes(CONTAINER_UPLOAD) => {
            Some((CONTAINER_UPLOAD, Effect::State.reason()))
        }
        TOOL_ADDITION if !terms.passes(TOOL_ADDITION) => {
            let added = serde_json::from_str::<ToolAddition>(&block.json).ok();
            let kind = added.and_then(|added| added.tool.definition?.kind)?;
            is_of_provider(&kind).then_some((TOOL_ADDITION, ADDS_A_TOOL))
        }
        TOOL_SEARCH_OUTPUT if !terms.passes(TOOL_SEARCH_OUTPUT) => {
            let found = serde_json::from_str::<FoundTools>(&block.json).ok()?;
            let mut kinds = found.tools.into_iter().filter_map(|tool| tool.kind);
            kinds
                .any(|kind| is_of_provider(&kind))
                .then_some((TOOL_SEARCH_OUTPUT, ADDS_A_TOOL))
        }
        _ => None,
    }
}

fn explanation(what: &str, reason: &str, name: &str) -> String {
    format!("{what} {reason}; an operator can list {name} in the option pass-fields")
}

fn billing(kind: &str) -> Option<Billing> {
    let family = family(kind);
    let mut tools = TOOLS.iter();
    tools
        .find(|(name, _)| is_same(name, family))
        .map(|(_, billing)| *billing)
}

/// A tool's kind without its date, such as `_20250305` or `_2025_03_11`.
fn family(kind: &str) -> &str {
    match kind.rsplit_once('_') {
        Some((name, date)) if !date.is_empty() && date.bytes().all(|b| b.is_ascii_digit()) => {
            family(name)
        }
        _ => kind,
    }
}

/// Whether two names are the same for any server: Google has two spellings of each name, and servers in Go ignore the
/// case.
fn is_same(name: &str, other: &str) -> bool {
    let letters = |name: &str| {
        let letters = name.chars().filter(|c| *c != '_');
        letters.map(folded).collect::<String>()
    };
    letters(name) == letters(other)
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use serde_json::{Value, json};

    use super::*;

    const UNPRICED: HostedTerms<'_> = HostedTerms {
        dialect: anthropic_messages::NAME,
        pass_fields: "",
        has_search_price: false,
    };
    const PRICED: HostedTerms<'_> = HostedTerms {
        has_search_price: true,
        ..UNPRICED
    };

    fn request(more: Value) -> ChatRequest {
        let mut body = json!({
            "model": "m", "max_tokens": 9, "messages": [{ "role": "user", "content": "x" }],
        });
        let fields = body.as_object_mut().expect("an object");
        fields.extend(more.as_object().cloned().expect("an object"));
        let read = anthropic_messages::read(body.to_string().as_bytes(), &HeaderMap::new());
        read.expect("a request").request
    }

    fn with_tool(kind: &str) -> ChatRequest {
        request(json!({ "tools": [{ "type": kind, "name": "tool" }] }))
    }

    fn param(request: &ChatRequest, terms: HostedTerms<'_>) -> Option<String> {
        unseen_feature(request, terms).map(|feature| feature.param)
    }

    #[test]
    fn each_listed_field_passes_only_if_the_operator_lists_it() {
        for (field, _) in FIELDS {
            let (object, within) = field.split_once('.').unwrap_or((field, ""));
            let mut uses = request(json!({}));
            let value = match within {
                "" => json!({ "a": 1 }),
                within if object == "diagnostics" => json!({ within: "msg_1" }),
                _ => Value::Null,
            };
            match value {
                // Settings within Google's object have its name before their own.
                Value::Null => uses.extra.push(((*field).to_owned(), "1".to_owned())),
                value => uses.extra.push((object.to_owned(), value.to_string())),
            }
            assert_eq!(param(&uses, PRICED).as_deref(), Some(*field));
            let listed = HostedTerms {
                pass_fields: &format!("other, {field}"),
                ..UNPRICED
            };
            assert_eq!(param(&uses, listed), None, "{field}");
        }
        let without = request(json!({
            "diagnostics": { "previous_message_id": null }, "a_field_of_tomorrow": 1,
            "context_management": { "edits": [] }, "service_tier": "auto", "mcp_servers": [],
        }));
        assert_eq!(param(&without, UNPRICED), None);
    }

    #[test]
    fn spellings_of_other_servers_are_the_same_field() {
        for name in ["cachedContent", "cached_content", "CachedContent"] {
            let mut uses = request(json!({}));
            uses.extra.push((name.to_owned(), "\"x\"".to_owned()));
            assert_eq!(param(&uses, UNPRICED).as_deref(), Some("cachedContent"));
        }
    }

    #[test]
    fn tools_that_weir_does_not_price_are_refused() {
        for kind in [
            "advisor_20260301",
            "code_execution_20250825",
            "code_execution_20260521",
            "mcp_toolset",
            "mcp",
            "code_interpreter",
            "file_search",
            "image_generation",
            "googleMaps",
            "google_search",
            "codeExecution",
            "web_search_preview_2025_03_11",
            "a_tool_of_tomorrow",
            "bash_in_a_container",
        ] {
            let uses = with_tool(kind);
            assert_eq!(param(&uses, PRICED).as_deref(), Some("tools[0]"), "{kind}");
            let listed = HostedTerms {
                pass_fields: family(kind),
                ..UNPRICED
            };
            assert_eq!(param(&uses, listed), None, "{kind}");
        }
        for kind in [
            "bash_20250124",
            "text_editor_20250728",
            "memory_20250818",
            "computer_20251124",
            "browser_toolset_20260801",
            "computer_toolset_20260801",
            "web_fetch_20260318",
            "tool_search_tool_bm25_20251119",
            "tool_search_tool_regex",
        ] {
            assert_eq!(param(&with_tool(kind), UNPRICED), None, "{kind}");
        }
        let search = with_tool("web_search_20260318");
        assert_eq!(param(&search, PRICED), None);
        assert_eq!(param(&search, UNPRICED).as_deref(), Some("tools[0]"));
        // OpenAI's tool of this name has no limit.
        let of_openai = HostedTerms {
            dialect: "openai-responses",
            ..PRICED
        };
        assert_eq!(param(&search, of_openai).as_deref(), Some("tools[0]"));
    }

    #[test]
    fn blocks_cannot_add_what_a_request_may_not_have() {
        let with_block = |block: Value| {
            request(json!({ "messages": [
                { "role": "user", "content": "x" }, { "role": "user", "content": [block] },
            ] }))
        };
        let added = |kind: &str| {
            let definition = json!({ "type": kind, "name": "n" });
            let tool = json!({ "type": "tool_definition", "definition": definition });
            with_block(json!({ "type": "tool_addition", "tool": tool }))
        };
        let upload = with_block(json!({ "type": "container_upload", "file_id": "f" }));
        for uses in [
            upload,
            added("web_search_20250305"),
            added("advisor_20260301"),
        ] {
            assert_eq!(param(&uses, PRICED).as_deref(), Some("messages[1]"));
        }
        let reference = json!({ "type": "tool_reference", "name": "n" });
        let reference = with_block(json!({ "type": "tool_addition", "tool": reference }));
        for fine in [reference, added("custom"), added("bash_20250124")] {
            assert_eq!(param(&fine, PRICED), None);
        }
    }

    #[test]
    fn the_assumed_limit_of_uses_is_sent() {
        let limited = |tool: Value| {
            let mut request = request(json!({ "tools": [tool] }));
            let outcome = limit_uses(&mut request, anthropic_messages::NAME);
            let ToolKind::BuiltIn(tool) = &request.tools[0].kind else {
                panic!("a built-in tool");
            };
            let sent = serde_json::from_str::<Value>(&tool.configuration).expect("JSON");
            outcome
                .map(|()| sent["max_uses"].clone())
                .map_err(|error| error.param().map(str::to_owned))
        };
        let search = |more: Value| {
            let mut tool = json!({ "type": "web_search_20250305", "name": "web_search" });
            let fields = tool.as_object_mut().expect("an object");
            fields.extend(more.as_object().cloned().expect("an object"));
            tool
        };
        assert_eq!(limited(search(json!({}))), Ok(json!(10)));
        assert_eq!(limited(search(json!({ "max_uses": null }))), Ok(json!(10)));
        assert_eq!(
            limited(search(json!({ "max_uses": 1_000 }))),
            Ok(json!(1_000))
        );
        let fetch = json!({ "type": "web_fetch_20250910", "name": "web_fetch" });
        assert_eq!(limited(fetch), Ok(json!(10)));
        // The provider has no such field for other tools.
        let bash = json!({ "type": "bash_20250124", "name": "bash" });
        assert_eq!(limited(bash), Ok(Value::Null));
        for wrong in [json!(0), json!(1_001), json!(-1), json!(2.0), json!("3")] {
            let refused = limited(search(json!({ "max_uses": wrong })));
            assert_eq!(
                refused,
                Err(Some("tools[0].max_uses".to_owned())),
                "{wrong}"
            );
        }
        let refused = limited(search(json!({ "Max_Uses": 40 })));
        assert_eq!(refused, Err(Some("tools[0].max_uses".to_owned())));
    }
}
