//! The sizes of a request's files, which bound its price: the length of a recording, the pages and the text of PDFs.
//!
//! A child process reads them ([`FileReader`](weir_upstream::file_reader::FileReader)), because strangers choose their bytes.
//! A hold before the reading would have to cover the longest recording that the model takes, and refuse a caller who can pay
//! this one. Therefore weir compares the price that the request has at least with the balance and the budgets, then reads,
//! and then opens the hold for the real size.
//!
//! **Invariant:** no file is read for a caller who cannot pay the request at its least.
//! **Invariant:** the reading ends with its request: if the client disconnects, or the gateway stops, its child is killed.

use tokio::time::Instant;
use weir_dialects::Attachment;
use weir_errors::ApiError;
use weir_ledger::price::PriceFactors;
use weir_ledger::pricing;
use weir_ledger::{Credits, HoldId, OpenHold, Payer};
use weir_request::context::RequestContext;
use weir_sandbox::adapter::AdapterRequest;
use weir_sandbox::adapter::bindings::chat::ChatRequest;
use weir_sandbox::child::ChildError;
use weir_storage::ids;
use weir_upstream::error::ExchangeError;
use weir_upstream::file_reader::DocumentSize;
use weir_upstream::usage;

use super::resolve::ResolvedRequest;
use super::{InferenceParts, meter};

/// Whether a request has files to read. Most have none, and start no child.
pub(super) fn are_unread(resolved: &ResolvedRequest) -> bool {
    recording(resolved).is_some() || resolved.size.unread_documents > 0
}

/// Returns the recording of a request. Only chats and images have other files.
fn recording(resolved: &ResolvedRequest) -> Option<&Attachment> {
    match resolved.request {
        AdapterRequest::Task(_) => None,
        AdapterRequest::Other(_) => resolved.attachments.first(),
    }
}

/// Reads the files of a request, and sets its size.
pub(super) async fn read(
    parts: &InferenceParts,
    payer: &Payer,
    context: &RequestContext,
    factors: &PriceFactors,
    is_in_plan: bool,
    resolved: &mut ResolvedRequest,
) -> Result<(), ApiError> {
    require_least(parts, payer, context, factors, is_in_plan, resolved).await?;
    if let Some(chat) = resolved.request.chat() {
        let documents = read_documents(parts, chat, &resolved.attachments).await?;
        resolved.size = resolved.size.with_documents(&documents);
    } else if let Some(file) = recording(resolved) {
        let length = or_stop(parts, parts.file_reader.recording(file.data.clone())).await?;
        let length = length.map_err(|error| {
            tracing::error!(%error, "cannot read a recording");
            ApiError::internal()
        })?;
        let length = length.ok_or_else(|| {
            let message = "file must be a complete recording of flac, mp3, mp4, ogg, wav or webm, in a codec whose \
                           length can be read.";
            ApiError::invalid_request("file", message)
        })?;
        resolved.set_recording_length(length)?;
    }
    Ok(())
}

/// Reads the documents of a chat: the bytes and the size of each; `None` if it cannot be counted.
pub(super) async fn read_documents(
    parts: &InferenceParts,
    chat: &ChatRequest,
    attachments: &[Attachment],
) -> Result<Vec<(u64, Option<DocumentSize>)>, ApiError> {
    let files = usage::documents(chat, attachments).into_iter();
    let files: Vec<_> = files.map(|file| file.data.clone()).collect();
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let bytes = files.iter().map(|file| file.len() as u64);
    let bytes: Vec<_> = bytes.collect();
    let sizes = match or_stop(parts, parts.file_reader.documents(files)).await? {
        Ok(sizes) => sizes,
        Err(error) => {
            tracing::error!(%error, "cannot read the documents of a request");
            vec![None; bytes.len()]
        }
    };
    Ok(bytes.into_iter().zip(sizes).collect())
}

/// Waits for a child, until the gateway stops.
async fn or_stop<T>(
    parts: &InferenceParts,
    reading: impl Future<Output = Result<T, ChildError>>,
) -> Result<Result<T, ChildError>, ApiError> {
    tokio::select! {
        read = reading => Ok(read),
        () = parts.shutdown.cancelled() => Err(ExchangeError::ShuttingDown.into()),
    }
}

/// Refuses a request whose caller cannot pay its least price.
async fn require_least(
    parts: &InferenceParts,
    payer: &Payer,
    context: &RequestContext,
    factors: &PriceFactors,
    is_in_plan: bool,
    resolved: &ResolvedRequest,
) -> Result<(), ApiError> {
    // A step of a swarm has its own bound.
    if payer.most.is_some() {
        return Ok(());
    }
    let model = &resolved.model;
    let size = resolved.size.without_unread_documents();
    let bound = size.bound(&resolved.limits(), resolved.images);
    let prices = resolved
        .allowed
        .iter()
        .map(|at| &model.candidates[*at].price);
    let least = prices.map(|price| pricing::worst_case(price, factors, &bound));
    let least = least.min().unwrap_or(Credits::ZERO);
    let parts_of_payer = payer.parts_with_model(&model.id);
    let is_top_up_only = !is_in_plan;
    let spendable = parts
        .ledger
        .spendable(&payer.account, &parts_of_payer, is_top_up_only)
        .await;
    if spendable.is_ok_and(|spendable| spendable >= least) {
        return Ok(());
    }
    // The refusal of a hold names the budget or the credits that are missing.
    let hold = HoldId(ids::hold_id());
    let open = OpenHold {
        hold: hold.clone(),
        amount: least,
        request_id: context.id().to_owned(),
        parent: None,
        source: payer.source,
        source_id: payer.source_id.clone(),
        parts: parts_of_payer,
        top_up_only: is_top_up_only,
        model: model.id.clone(),
    };
    let deadline = Instant::now() + parts.hold_timeout;
    parts
        .ledger
        .open(&payer.account, open, deadline)
        .await
        .map_err(|error| meter::refused(error, parts))?;
    // Credits have arrived meanwhile.
    parts.ledger.release_soon(&payer.account, hold);
    Ok(())
}
