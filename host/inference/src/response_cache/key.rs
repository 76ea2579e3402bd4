//! The keys of stored responses.
//!
//! A key is a keyed hash, so that nobody who can read the cache learns, by trying, what clients asked.

use weir_kinds::fields_with_effect;
use weir_ledger::AccountId;
use weir_plugins::Plugins;
use weir_sandbox::adapter::AdapterRequest;
use weir_sandbox::adapter::bindings::chat::ChatRequest;
use weir_storage::sealing::{KeyRing, Purpose};

use crate::resolve::ResolvedRequest;

/// The version of keys and stored responses. Increase it when their meaning changes.
const FORMAT: u32 = 1;

/// The parts of a key outside of the request itself.
pub(super) struct KeyScope<'a> {
    /// The account; `None` if all accounts share their responses.
    pub(super) account: Option<&'a AccountId>,
    /// The paying account, which decides about canaries.
    pub(super) payer: &'a AccountId,
    /// The fields that weir may drop.
    pub(super) droppable: &'a [String],
    /// The fields that weir has dropped.
    pub(super) dropped: &'a [String],
}

/// Returns the key of a request: it differs for all requests whose responses may differ. `None` for requests of kinds
/// that the cache is not for.
pub(super) fn key(
    keys: &KeyRing,
    plugins: &Plugins,
    scope: &KeyScope<'_>,
    resolved: &ResolvedRequest,
) -> Option<[u8; 32]> {
    let (task, client) = (task(&resolved.request)?, resolved.request.client());
    let KeyScope {
        account,
        payer,
        droppable,
        dropped,
    } = scope;
    let candidates = resolved.allowed.iter();
    let candidates = candidates.map(|at| &resolved.model.candidates[*at]);
    let upstreams: Vec<_> = candidates
        .map(|candidate| {
            let upstream = candidate.upstream();
            let adapter = plugins.adapter_for(&upstream.adapter, payer);
            let digest = adapter.map(|chosen| chosen.component.code().digest.to_string());
            let base = upstream.base.as_ref().map(ToString::to_string);
            let (name, model) = (&upstream.name, &candidate.model);
            (name, base, model, &candidate.options, digest)
        })
        .collect();
    // A limit that weir chooses depends on the balance, and no response that reached it is stored.
    let limit = resolved.widest_output.is_none();
    let limit = limit.then_some(resolved.output_limit);
    let around = (
        FORMAT,
        account.map(|AccountId(account)| account),
        &resolved.model.id,
        upstreams,
        resolved.is_ordered,
        &client.dialect,
        &client.headers,
        limit,
        droppable,
        dropped,
        &resolved.ignored,
    );
    let around = serde_json::to_vec(&around).ok()?;
    Some(keys.tag(Purpose::CACHED_RESPONSE, &[&around, &task]))
}

fn task(request: &AdapterRequest) -> Option<Vec<u8>> {
    match request {
        AdapterRequest::Task(_) => chat(request.chat()?),
        AdapterRequest::Other(request) => weir_kinds::kind(request).cache_key(),
    }
}

fn chat(chat: &ChatRequest) -> Option<Vec<u8>> {
    // Without `..`, so that no new field is forgotten.
    let ChatRequest {
        model: _,
        messages,
        tools,
        tool_choice,
        parallel_tool_calls,
        response_format,
        reasoning,
        modalities,
        max_output_tokens: _,
        temperature,
        top_p,
        top_k,
        presence_penalty,
        frequency_penalty,
        seed,
        stop,
        extra,
        stream: _,
    } = chat;
    let sampling = (
        temperature,
        top_p,
        top_k,
        presence_penalty,
        frequency_penalty,
        seed,
    );
    let tools = (tools, tool_choice, parallel_tool_calls);
    let extra = fields_with_effect(extra);
    serde_json::to_vec(&(
        "chat",
        messages,
        tools,
        response_format,
        reasoning,
        modalities,
        sampling,
        stop,
        extra,
    ))
    .ok()
}
