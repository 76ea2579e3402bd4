//! `/admin/recordings`: recordings of slots. Only administrators have access, because recordings contain users'
//! prompts.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{FromRef, Path, State};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_identity::admin::AdminCaller;
use weir_identity::endpoints::{Access, Endpoints};
use weir_identity::{IdentityParts, handlers};
use weir_ledger::BootId;
use weir_plugins::Plugin;
use weir_request::audit::{Actor, AuditEvent};
use weir_request::json::from_json;
use weir_request::query::ListQuery;
use weir_request::request::{BodyReader, JsonBody};
use weir_storage::clock::Millis;
use weir_upstream::recorded::RecordedExchange;

use super::store::{PAGE, Recording, RecordingStore, StoredExchange};
use super::{RecordingParts, WHOLE};

/// Returns the administrators' endpoints of recordings.
pub fn endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    RecordingParts: FromRef<S>,
    Arc<IdentityParts>: FromRef<S>,
    BodyReader: FromRef<S>,
{
    Endpoints::new().row(
        Access::Admin,
        handlers!(
            list_recordings,
            get_recording,
            begin_recording,
            stop_recording,
            forget_recording,
            list_exchanges
        ),
    )
}

/// A day, because recordings are for short investigations.
const MOST_SECONDS: u64 = 24 * 3_600;

/// The time for which the start of a recording waits for the nodes, which poll once a second.
const NODES_PATIENCE: Duration = Duration::from_secs(5);
const LOOK_AT_NODES_EVERY: Duration = Duration::from_millis(50);

/// A GiB.
const MOST_BYTES: i64 = 1 << 30;

/// The body that starts a recording.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordingStart {
    /// Share of exchanges, such as 0.01.
    #[schema(minimum = 0.0001, maximum = 1)]
    pub share: f64,
    /// Duration in seconds.
    #[schema(minimum = 1, maximum = 86_400)]
    pub seconds: u64,
    /// Maximum bytes.
    #[schema(minimum = 1, maximum = 1_073_741_824)]
    pub most_bytes: i64,
}

/// A recording of a slot.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RecordingItem {
    /// The slot.
    pub slot: String,
    /// `recording`, or `ended`.
    pub state: String,
    /// Share of exchanges.
    pub share: f64,
    /// Start.
    pub begun_at: String,
    /// End.
    pub until: String,
    /// Time of deletion.
    pub forgotten_at: String,
    /// Maximum bytes.
    pub most_bytes: i64,
    /// Bytes so far.
    pub kept_bytes: i64,
    /// Exchanges so far.
    pub exchanges: i64,
    /// Operator who started the recording.
    pub by: String,
    /// Number of nodes that do not record yet; null if the recording has ended.
    #[serde(default)]
    pub nodes_missing: Option<u64>,
}

/// All recordings.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RecordingList {
    /// Recordings, by slot.
    pub recordings: Vec<RecordingItem>,
}

/// A recorded exchange.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ExchangeItem {
    /// Id of the exchange.
    pub id: String,
    /// Time of its end.
    pub at: String,
    /// The exchange; null if its sealing key is gone.
    #[schema(value_type = Option<Object>)]
    pub exchange: Option<RecordedExchange>,
}

/// A page of exchanges.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ExchangeList {
    /// Exchanges, by the time of their end.
    pub exchanges: Vec<ExchangeItem>,
    /// The `after` of the next page; null after the last.
    pub next: Option<String>,
}

/// `GET /admin/recordings`: lists the slots with current or past recordings.
#[utoipa::path(
    get, path = "/admin/recordings", tag = "plugins",
    responses((status = 200, body = RecordingList)),
)]
pub async fn list_recordings(
    State(parts): State<RecordingParts>,
    _: AdminCaller,
) -> Result<Json<RecordingList>, ApiError> {
    let mut recordings = Vec::new();
    for recording in store(&parts).list(None).await.map_err(failed)? {
        recordings.push(item(&parts, &recording).await?);
    }
    Ok(Json(RecordingList { recordings }))
}

/// `GET /admin/recordings/{slot}`: returns the recording of a slot.
#[utoipa::path(
    get, path = "/admin/recordings/{slot}", tag = "plugins",
    params(("slot" = String, Path, description = "The slot's name.")),
    responses(
        (status = 200, body = RecordingItem),
        (status = 404, description = "`NOT_FOUND`: the slot has no recording."),
    ),
)]
pub async fn get_recording(
    State(parts): State<RecordingParts>,
    _: AdminCaller,
    Path(slot): Path<String>,
) -> Result<Json<RecordingItem>, ApiError> {
    find(&parts, &slot).await.map(Json)
}

/// `PUT /admin/recordings/{slot}`: records exchanges of a slot's adapter. The previous recording of the slot is
/// deleted.
///
/// The response comes when all live nodes record, or after 5 s, with the number of the others: nodes that crashed, have
/// an earlier version, or cannot reach the database.
#[utoipa::path(
    put, path = "/admin/recordings/{slot}", tag = "plugins",
    params(("slot" = String, Path, description = "The slot's name.")),
    request_body = RecordingStart,
    responses(
        (status = 200, body = RecordingItem),
        (status = 404, description = "`NOT_FOUND`: the slot has no active component."),
        (status = 409, description = "`RECORDING`: the slot is already being recorded."),
    ),
)]
pub async fn begin_recording(
    State(parts): State<RecordingParts>,
    AdminCaller { actor, .. }: AdminCaller,
    Path(slot): Path<String>,
    body: JsonBody,
) -> Result<Json<RecordingItem>, ApiError> {
    let start = from_json(&body.bytes)?;
    begin(&parts, &actor, slot, &start).await.map(Json)
}

/// Starts a recording.
pub async fn begin(
    parts: &RecordingParts,
    actor: &Actor,
    slot: String,
    begin: &RecordingStart,
) -> Result<RecordingItem, ApiError> {
    let share = (begin.share * f64::from(WHOLE)).round();
    if !(1.0..=f64::from(WHOLE)).contains(&share) {
        return Err(ApiError::invalid_request(
            "share",
            "A share is a number from 0.0001 to 1, such as 0.01.",
        ));
    }
    if !(1..=MOST_SECONDS).contains(&begin.seconds) {
        return Err(ApiError::invalid_request(
            "seconds",
            format!("A recording lasts 1 to {MOST_SECONDS} seconds."),
        ));
    }
    if !(1..=MOST_BYTES).contains(&begin.most_bytes) {
        return Err(ApiError::invalid_request(
            "most_bytes",
            format!("A recording has at most 1 to {MOST_BYTES} bytes."),
        ));
    }
    match parts.plugins.serving_in(&slot) {
        Some(Plugin::Adapter(_)) => {}
        Some(Plugin::Tool(_) | Plugin::Filter(_)) => {
            return Err(ApiError::invalid_request(
                "slot",
                "Only adapters have exchanges with upstreams to record.",
            ));
        }
        None => return Err(nothing(format!("The slot {slot} has no active component."))),
    }
    let now = parts.clock.now();
    let recording = Recording {
        slot,
        begun_at: now,
        until_at: Millis(now.0 + Duration::from_secs(begin.seconds).as_millis() as i64),
        share: share as u16,
        most_bytes: begin.most_bytes,
        kept_bytes: 0,
        exchanges: 0,
        actor: actor.as_str().to_owned(),
    };
    if !store(parts).begin(&recording).await.map_err(failed)? {
        return Err(ApiError::new(
            ErrorCode::Recording,
            "The slot is already being recorded: stop that recording first.",
        ));
    }
    note(parts, actor, "recording.started", &recording.slot);
    parts.recorder.look_now();
    let until = Instant::now() + NODES_PATIENCE;
    loop {
        let item = item(parts, &recording).await?;
        if item.nodes_missing.unwrap_or(0) == 0 || Instant::now() >= until {
            return Ok(item);
        }
        tokio::time::sleep(LOOK_AT_NODES_EVERY).await;
    }
}

/// `POST /admin/recordings/{slot}/stop`: ends the recording.
#[utoipa::path(
    post, path = "/admin/recordings/{slot}/stop", tag = "plugins",
    params(("slot" = String, Path, description = "The slot's name.")),
    responses(
        (status = 200, body = RecordingItem),
        (status = 404, description = "`NOT_FOUND`: the slot has no recording."),
    ),
)]
pub async fn stop_recording(
    State(parts): State<RecordingParts>,
    AdminCaller { actor, .. }: AdminCaller,
    Path(slot): Path<String>,
) -> Result<Json<RecordingItem>, ApiError> {
    let ended = store(&parts).end(&slot, parts.clock.now()).await;
    if ended.map_err(failed)? {
        note(&parts, &actor, "recording.stopped", &slot);
    }
    find(&parts, &slot).await.map(Json)
}

/// `DELETE /admin/recordings/{slot}`: deletes the recording with its exchanges.
#[utoipa::path(
    delete, path = "/admin/recordings/{slot}", tag = "plugins",
    params(("slot" = String, Path, description = "The slot's name.")),
    responses(
        (status = 204, description = "The recording is deleted."),
        (status = 404, description = "`NOT_FOUND`: the slot has no recording."),
    ),
)]
pub async fn forget_recording(
    State(parts): State<RecordingParts>,
    AdminCaller { actor, .. }: AdminCaller,
    Path(slot): Path<String>,
) -> Result<StatusCode, ApiError> {
    if !store(&parts).forget(&slot).await.map_err(failed)? {
        return Err(unknown(&slot));
    }
    note(&parts, &actor, "recording.forgotten", &slot);
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /admin/recordings/{slot}/exchanges`: returns the exchanges, by page.
#[utoipa::path(
    get, path = "/admin/recordings/{slot}/exchanges", tag = "plugins",
    params(
        ("slot" = String, Path, description = "The slot's name."),
        ("after" = Option<String>, Query, description = "The `next` of the previous page.", nullable = false),
    ),
    responses(
        (status = 200, body = ExchangeList),
        (status = 404, description = "`NOT_FOUND`: the slot has no recording."),
    ),
)]
pub async fn list_exchanges(
    State(parts): State<RecordingParts>,
    AdminCaller { actor, .. }: AdminCaller,
    Path(slot): Path<String>,
    mut query: ListQuery,
) -> Result<Json<ExchangeList>, ApiError> {
    let after = query.text("after")?;
    query.finish()?;
    if after.is_none() {
        find(&parts, &slot).await?;
        note(&parts, &actor, "recording.fetched", &slot);
    }
    let after = after.unwrap_or_default();
    let exchanges = store(&parts)
        .exchanges(&slot, &after)
        .await
        .map_err(failed)?;
    let next =
        (exchanges.len() as i64 == PAGE).then(|| exchanges.last().map(|last| last.id.clone()));
    let exchanges = exchanges
        .into_iter()
        .map(|StoredExchange { id, at, exchange }| ExchangeItem {
            id,
            at: at.iso(),
            exchange,
        });
    Ok(Json(ExchangeList {
        exchanges: exchanges.collect(),
        next: next.flatten(),
    }))
}

fn store(parts: &RecordingParts) -> RecordingStore {
    RecordingStore::new(parts.database.clone(), parts.sealing_keys.clone())
}

async fn find(parts: &RecordingParts, slot: &str) -> Result<RecordingItem, ApiError> {
    let found = store(parts).find(slot).await.map_err(failed)?;
    let found = found.ok_or_else(|| unknown(slot))?;
    item(parts, &found).await
}

async fn item(parts: &RecordingParts, recording: &Recording) -> Result<RecordingItem, ApiError> {
    let is_under_way = parts.clock.now() < recording.until_at;
    let nodes_missing = match is_under_way {
        true => Some(nodes_missing(parts, recording).await.map_err(failed)?),
        false => None,
    };
    let forgotten_at = Millis(recording.until_at.0 + super::store::KEPT_FOR.as_millis() as i64);
    Ok(RecordingItem {
        slot: recording.slot.clone(),
        state: match is_under_way {
            true => "recording".to_owned(),
            false => "ended".to_owned(),
        },
        share: f64::from(recording.share) / f64::from(WHOLE),
        begun_at: recording.begun_at.iso(),
        until: recording.until_at.iso(),
        forgotten_at: forgotten_at.iso(),
        most_bytes: recording.most_bytes,
        kept_bytes: recording.kept_bytes,
        exchanges: recording.exchanges,
        by: recording.actor.clone(),
        nodes_missing,
    })
}

/// The number of live nodes that have not confirmed the recording.
async fn nodes_missing(parts: &RecordingParts, recording: &Recording) -> sqlx::Result<u64> {
    let live = parts.ledger.live_runs().await?;
    let recording = store(parts)
        .nodes(&recording.slot, recording.begun_at)
        .await?;
    let is_missing = |run: &&BootId| !recording.iter().any(|node| node == run.as_str());
    Ok(live.iter().filter(is_missing).count() as u64)
}

fn note(parts: &RecordingParts, actor: &Actor, kind: &'static str, slot: &str) {
    let reason = slot.to_owned();
    parts
        .audit
        .record_by(actor, AuditEvent::Recorded { kind, reason });
}

fn unknown(slot: &str) -> ApiError {
    nothing(format!("The slot {slot} has no recording."))
}

fn nothing(message: String) -> ApiError {
    ApiError::new(ErrorCode::NotFound, message).with_param("slot")
}

fn failed(error: sqlx::Error) -> ApiError {
    ApiError::of_database(&error, "asked for recordings")
}
