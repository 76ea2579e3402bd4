//! The keys of stored responses.
//!
//! A key is a keyed hash, so that nobody who can read the cache learns, by trying, what clients asked.

use serde_json::json;
use weir_dialects::RetrievalTask;
use weir_ledger::AccountId;
use weir_plugins::Plugins;
use weir_sandbox::adapter::bindings::adapter::Task;
use weir_sandbox::adapter::bindings::chat::{ChatRequest, ExtraField};
use weir_sandbox::adapter::bindings::embeddings::{EmbeddingRequest, Input};
use weir_sandbox::adapter::bindings::rerank::RerankRequest;
use weir_storage::sealing::{KeyRing, Purpose};

use crate::resolve::{ResolvedRequest, ResolvedTask};

/// The version of keys and stored responses. Increase it when their meaning changes.
const FORMAT: u32 = 1;

/// Fields about the end user and the provider's caches, which change no response.
const WITHOUT_EFFECT: [&str; 4] = ["metadata", "prompt_cache_key", "safety_identifier", "user"];

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

/// Returns the key of a request: it differs for all requests whose responses may differ. `None` for requests of other
/// kinds than chats, embeddings and rankings.
pub(super) fn key(
    keys: &KeyRing,
    plugins: &Plugins,
    scope: &KeyScope<'_>,
    resolved: &ResolvedRequest,
) -> Option<[u8; 32]> {
    let (task, headers) = (task(&resolved.task)?, &resolved.client.headers);
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
        &resolved.client.dialect,
        headers,
        limit,
        droppable,
        dropped,
        &resolved.ignored,
    );
    let around = serde_json::to_vec(&around).ok()?;
    Some(keys.tag(Purpose::CACHED_RESPONSE, &[&around, &task]))
}

fn task(task: &ResolvedTask) -> Option<Vec<u8>> {
    match task {
        ResolvedTask::Model(Task::Chat(chat)) => self::chat(chat),
        ResolvedTask::Model(Task::Image(_))
        | ResolvedTask::Retrieval(RetrievalTask::Moderation(_))
        | ResolvedTask::Audio(_) => None,
        ResolvedTask::Retrieval(RetrievalTask::Embeddings(task)) => embeddings(task),
        ResolvedTask::Retrieval(RetrievalTask::Rerank(task)) => rerank(task),
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
    let extra = with_effect(extra);
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

fn embeddings(task: &EmbeddingRequest) -> Option<Vec<u8>> {
    let EmbeddingRequest {
        model: _,
        inputs,
        dimensions,
        input_type,
        base64,
        extra,
    } = task;
    let inputs: Vec<_> = inputs
        .iter()
        .map(|input| match input {
            Input::Text(text) => json!(text),
            Input::Tokens(tokens) => json!(tokens),
        })
        .collect();
    let extra = with_effect(extra);
    serde_json::to_vec(&("embeddings", inputs, dimensions, input_type, base64, extra)).ok()
}

fn rerank(task: &RerankRequest) -> Option<Vec<u8>> {
    let RerankRequest {
        model: _,
        query,
        documents,
        top_n,
        extra,
    } = task;
    serde_json::to_vec(&("rerank", query, documents, top_n, with_effect(extra))).ok()
}

/// Returns the fields that may change a response, independent of their order in the body.
fn with_effect(extra: &[ExtraField]) -> Vec<&ExtraField> {
    let is_counted = |field: &&ExtraField| !WITHOUT_EFFECT.contains(&&*field.0);
    let mut extra: Vec<_> = extra.iter().filter(is_counted).collect();
    extra.sort();
    extra
}
