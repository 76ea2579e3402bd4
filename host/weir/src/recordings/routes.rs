//! `/admin/recordings`: what is recorded of slots. For administrators alone: what is in it, people wrote.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::BootId;
use weir_plugins::Plugin;

use super::WHOLE;
use super::store::{KeptExchange, PAGE, Recording, RecordingStore};
use crate::app::App;
use crate::audit::{Actor, AuditEvent};
use crate::identity::admin::AdminCaller;
use crate::json::from_json;
use crate::query::ListQuery;
use crate::request::JsonBody;
use weir_storage::clock::Millis;
use weir_upstream::recorded::RecordedExchange;

/// A day: a recording is for looking into something.
const MOST_SECONDS: u64 = 24 * 3_600;

/// How long a beginning waits for the nodes to take it up, each of which looks once a second.
const NODES_PATIENCE: Duration = Duration::from_secs(5);
const LOOK_AT_NODES_EVERY: Duration = Duration::from_millis(50);

/// A GiB.
const MOST_BYTES: i64 = 1 << 30;

/// The body of a beginning.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RecordingStart)]
struct Begin {
    /// Of all exchanges, such as 0.01.
    #[schema(minimum = 0.0001, maximum = 1)]
    share: f64,
    /// For how long.
    #[schema(minimum = 1, maximum = 86_400)]
    seconds: u64,
    /// Bytes that are kept at most.
    #[schema(minimum = 1, maximum = 1_073_741_824)]
    most_bytes: i64,
}

/// A recording.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RecordingItem {
    /// The slot.
    pub slot: String,
    /// `recording`, or `ended`.
    pub state: String,
    /// Of all exchanges.
    pub share: f64,
    /// From when.
    pub begun_at: String,
    /// Until when.
    pub until: String,
    /// When all of it is forgotten.
    pub forgotten_at: String,
    /// Bytes that may be kept.
    pub most_bytes: i64,
    /// Bytes that are.
    pub kept_bytes: i64,
    /// How many exchanges that is.
    pub exchanges: i64,
    /// Who asked for it.
    pub by: String,
    /// Nodes that have not taken it up yet; null if it has ended.
    #[serde(default)]
    pub nodes_missing: Option<u64>,
}

/// All of them.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RecordingList {
    /// By slot.
    pub recordings: Vec<RecordingItem>,
}

/// What was recorded.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ExchangeItem {
    /// Its id.
    pub id: String,
    /// When it ended.
    pub at: String,
    /// What it was; null where the key is gone that it was sealed under.
    #[schema(value_type = Option<Object>)]
    pub exchange: Option<RecordedExchange>,
}

/// A part of it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ExchangeList {
    /// The first to end first.
    pub exchanges: Vec<ExchangeItem>,
    /// The `after` of the next part; null after the last.
    pub next: Option<String>,
}

/// `GET /admin/recordings`: which slots are, or were, recorded.
#[utoipa::path(
    get, path = "/admin/recordings", tag = "plugins", security(("admin" = [])),
    responses((status = 200, body = RecordingList)),
)]
pub async fn list_recordings(
    State(app): State<App>,
    _: AdminCaller,
) -> Result<Json<RecordingList>, ApiError> {
    let mut recordings = Vec::new();
    for recording in store(&app).list(None).await.map_err(failed)? {
        recordings.push(item(&app, &recording).await?);
    }
    Ok(Json(RecordingList { recordings }))
}

/// `GET /admin/recordings/{slot}`: one of them.
#[utoipa::path(
    get, path = "/admin/recordings/{slot}", tag = "plugins", security(("admin" = [])),
    params(("slot" = String, Path, description = "The slot's name.")),
    responses(
        (status = 200, body = RecordingItem),
        (status = 404, description = "`NOT_FOUND`: the slot was not recorded, or that is forgotten."),
    ),
)]
pub async fn get_recording(
    State(app): State<App>,
    _: AdminCaller,
    Path(slot): Path<String>,
) -> Result<Json<RecordingItem>, ApiError> {
    find(&app, &slot).await.map(Json)
}

/// `PUT /admin/recordings/{slot}`: has exchanges of a slot's adapter be recorded. What was recorded of it before is forgotten.
///
/// Answers when all live nodes record, or after 5 s, with the number of those that do not: they have crashed, are of an earlier
/// version, or do not reach the database.
#[utoipa::path(
    put, path = "/admin/recordings/{slot}", tag = "plugins", security(("admin" = [])),
    params(("slot" = String, Path, description = "The slot's name.")),
    request_body = Begin,
    responses(
        (status = 200, body = RecordingItem),
        (status = 404, description = "`NOT_FOUND`: nothing serves in such a slot."),
        (status = 409, description = "`RECORDING`: the slot is being recorded."),
    ),
)]
pub async fn begin_recording(
    State(app): State<App>,
    AdminCaller { actor }: AdminCaller,
    Path(slot): Path<String>,
    body: JsonBody,
) -> Result<Json<RecordingItem>, ApiError> {
    let begin: Begin = from_json(&body.bytes)?;
    let parts = (begin.share * f64::from(WHOLE)).round();
    if !(1.0..=f64::from(WHOLE)).contains(&parts) {
        return Err(ApiError::invalid_request(
            "share",
            "A share is a number from 0.0001 to 1, such as 0.01.",
        ));
    }
    if !(1..=MOST_SECONDS).contains(&begin.seconds) {
        return Err(ApiError::invalid_request(
            "seconds",
            format!("A slot is recorded for 1 to {MOST_SECONDS} seconds."),
        ));
    }
    if !(1..=MOST_BYTES).contains(&begin.most_bytes) {
        return Err(ApiError::invalid_request(
            "most_bytes",
            format!("At most 1 to {MOST_BYTES} bytes are kept."),
        ));
    }
    match app.plugins.serving_in(&slot) {
        Some(Plugin::Adapter(_)) => {}
        Some(Plugin::Tool(_) | Plugin::Filter(_)) => {
            return Err(ApiError::invalid_request(
                "slot",
                "Exchanges with upstreams are recorded, which only adapters have.",
            ));
        }
        None => return Err(nothing(format!("Nothing serves in a slot {slot}."))),
    }
    let now = app.clock.now();
    let recording = Recording {
        slot,
        begun_at: now,
        until_at: Millis(now.0 + Duration::from_secs(begin.seconds).as_millis() as i64),
        share: parts as u16,
        most_bytes: begin.most_bytes,
        kept_bytes: 0,
        exchanges: 0,
        actor: actor.as_str().to_owned(),
    };
    if !store(&app).begin(&recording).await.map_err(failed)? {
        return Err(ApiError::new(
            ErrorCode::Recording,
            "The slot is being recorded: stop that first.",
        ));
    }
    note(&app, &actor, "recording.started", &recording.slot);
    app.recorder.look_now();
    let until = Instant::now() + NODES_PATIENCE;
    loop {
        let item = item(&app, &recording).await?;
        if item.nodes_missing.unwrap_or(0) == 0 || Instant::now() >= until {
            return Ok(Json(item));
        }
        tokio::time::sleep(LOOK_AT_NODES_EVERY).await;
    }
}

/// `POST /admin/recordings/{slot}/stop`: ends it now.
#[utoipa::path(
    post, path = "/admin/recordings/{slot}/stop", tag = "plugins", security(("admin" = [])),
    params(("slot" = String, Path, description = "The slot's name.")),
    responses(
        (status = 200, body = RecordingItem),
        (status = 404, description = "`NOT_FOUND`: the slot was not recorded, or that is forgotten."),
    ),
)]
pub async fn stop_recording(
    State(app): State<App>,
    AdminCaller { actor }: AdminCaller,
    Path(slot): Path<String>,
) -> Result<Json<RecordingItem>, ApiError> {
    let ended = store(&app).end(&slot, app.clock.now()).await;
    if ended.map_err(failed)? {
        note(&app, &actor, "recording.stopped", &slot);
    }
    find(&app, &slot).await.map(Json)
}

/// `DELETE /admin/recordings/{slot}`: forgets it, and all that was recorded.
#[utoipa::path(
    delete, path = "/admin/recordings/{slot}", tag = "plugins", security(("admin" = [])),
    params(("slot" = String, Path, description = "The slot's name.")),
    responses(
        (status = 204, description = "It is forgotten."),
        (status = 404, description = "`NOT_FOUND`: the slot was not recorded, or that is forgotten."),
    ),
)]
pub async fn forget_recording(
    State(app): State<App>,
    AdminCaller { actor }: AdminCaller,
    Path(slot): Path<String>,
) -> Result<StatusCode, ApiError> {
    if !store(&app).forget(&slot).await.map_err(failed)? {
        return Err(unknown(&slot));
    }
    note(&app, &actor, "recording.forgotten", &slot);
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /admin/recordings/{slot}/exchanges`: what was recorded, in parts.
#[utoipa::path(
    get, path = "/admin/recordings/{slot}/exchanges", tag = "plugins", security(("admin" = [])),
    params(
        ("slot" = String, Path, description = "The slot's name."),
        ("after" = Option<String>, Query, description = "The `next` of the part before.", nullable = false),
    ),
    responses(
        (status = 200, body = ExchangeList),
        (status = 404, description = "`NOT_FOUND`: the slot was not recorded, or that is forgotten."),
    ),
)]
pub async fn list_exchanges(
    State(app): State<App>,
    AdminCaller { actor }: AdminCaller,
    Path(slot): Path<String>,
    mut query: ListQuery,
) -> Result<Json<ExchangeList>, ApiError> {
    let after = query.text("after")?;
    query.finish()?;
    if after.is_none() {
        find(&app, &slot).await?;
        note(&app, &actor, "recording.fetched", &slot);
    }
    let after = after.unwrap_or_default();
    let exchanges = store(&app).exchanges(&slot, &after).await.map_err(failed)?;
    let next =
        (exchanges.len() as i64 == PAGE).then(|| exchanges.last().map(|last| last.id.clone()));
    let exchanges = exchanges
        .into_iter()
        .map(|KeptExchange { id, at, exchange }| ExchangeItem {
            id,
            at: at.iso(),
            exchange,
        });
    Ok(Json(ExchangeList {
        exchanges: exchanges.collect(),
        next: next.flatten(),
    }))
}

fn store(app: &App) -> RecordingStore {
    RecordingStore::new(app.database.clone(), app.sealing_keys.clone())
}

async fn find(app: &App, slot: &str) -> Result<RecordingItem, ApiError> {
    let found = store(app).find(slot).await.map_err(failed)?;
    let found = found.ok_or_else(|| unknown(slot))?;
    item(app, &found).await
}

async fn item(app: &App, recording: &Recording) -> Result<RecordingItem, ApiError> {
    let is_under_way = app.clock.now() < recording.until_at;
    let nodes_missing = match is_under_way {
        true => Some(nodes_missing(app, recording).await.map_err(failed)?),
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

/// How many live nodes have not said that they record.
async fn nodes_missing(app: &App, recording: &Recording) -> sqlx::Result<u64> {
    let live = app.ledger.live_runs().await?;
    let recording = store(app)
        .nodes(&recording.slot, recording.begun_at)
        .await?;
    let is_missing = |run: &&BootId| !recording.iter().any(|node| node == run.as_str());
    Ok(live.iter().filter(is_missing).count() as u64)
}

fn note(app: &App, actor: &Actor, kind: &'static str, slot: &str) {
    let reason = slot.to_owned();
    app.audit
        .record_by(actor, AuditEvent::Recorded { kind, reason });
}

fn unknown(slot: &str) -> ApiError {
    nothing(format!(
        "The slot {slot} was not recorded, or that is forgotten."
    ))
}

fn nothing(message: String) -> ApiError {
    ApiError::new(ErrorCode::NotFound, message).with_param("slot")
}

fn failed(error: sqlx::Error) -> ApiError {
    ApiError::of_database(&error, "asked for recordings")
}
