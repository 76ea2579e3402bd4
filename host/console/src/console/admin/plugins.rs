//! Slots: their active and installed components, the statistics of each, activation, and recordings.

use askama::Template;
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use http::StatusCode;
use weir_errors::ApiError;
use weir_inference::plugins::PluginParts;
use weir_inference::plugins::routes::{self, Activation, EventsQuery};
use weir_inference::recordings::RecordingParts;
use weir_inference::recordings::routes::{
    self as recordings, RecordingItem, RecordingStart, begin, get_recording,
};
use weir_plugins::items::{EventItem, PluginItem, SlotItem};
use weir_storage::clock::Millis;

use crate::console::form::AdminForm;
use crate::console::format::{self, DisplayTime};
use crate::console::frame::{Frame, PLUGINS};
use crate::console::session::ConsoleAdmin;

/// Events on a slot's page.
const EVENTS: u32 = 20;

#[derive(Template)]
#[template(path = "console/admin/plugins.html")]
struct SlotsPage {
    frame: Frame,
    slots: Vec<SlotItem>,
}

impl SlotsPage {
    /// Returns a slot's active component, as it should be on all nodes.
    fn active(slot: &SlotItem) -> Option<&PluginItem> {
        let mut plugins = slot.plugins.iter();
        plugins.find(|plugin| Some(&plugin.digest) == slot.active.as_ref())
    }
}

#[derive(Template)]
#[template(path = "console/admin/plugin.html")]
struct SlotPage {
    frame: Frame,
    slot: SlotItem,
    events: Vec<EventItem>,
    /// The latest recording, if it is not deleted.
    recording: Option<RecordingItem>,
    now: Millis,
}

impl SlotPage {
    fn can_begin_recording(&self) -> bool {
        let recording = self.recording.as_ref();
        recording.is_none_or(|recording| recording.state != "recording")
    }
}

/// `GET /console/admin/plugins`
pub(super) async fn show_slots(
    State(parts): State<PluginParts>,
    admin: ConsoleAdmin,
) -> Result<Response, ApiError> {
    let Json(list) = routes::list_plugins(State(parts), admin.caller().into()).await?;
    let page = SlotsPage {
        frame: admin.user.frame("Plugins", PLUGINS),
        slots: list.slots,
    };
    admin.user.show(&page)
}

/// `GET /console/admin/plugins/{slot}`
pub(super) async fn show_slot(
    State(parts): State<PluginParts>,
    State(recorded): State<RecordingParts>,
    admin: ConsoleAdmin,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    let recording = get_recording(State(recorded), admin.caller(), Path(name.clone())).await;
    let recording = match recording {
        Ok(Json(recording)) => Some(recording),
        Err(error) if error.status() == StatusCode::NOT_FOUND => None,
        Err(error) => return Err(error),
    };
    let by = || admin.caller().into();
    let Json(slot) = routes::get_slot(State(parts.clone()), by(), Path(name.clone())).await?;
    let limit = EventsQuery {
        limit: Some(EVENTS),
    };
    let events = routes::list_slot_events(State(parts.clone()), by(), Path(name), Ok(Query(limit)));
    let Json(list) = events.await?;
    let page = SlotPage {
        frame: admin.user.frame(slot.slot.clone(), PLUGINS),
        slot,
        events: list.events,
        recording,
        now: parts.clock.now(),
    };
    admin.user.show(&page)
}

/// `POST /console/admin/plugins/{slot}/activate`: activates a component for all accounts or for a share of them.
pub(super) async fn activate(
    State(parts): State<PluginParts>,
    Path(name): Path<String>,
    AdminForm { admin, fields }: AdminForm,
) -> Result<Response, ApiError> {
    let path = path_of(&name);
    let percent = fields.filled("percent").map(|percent| {
        let what = "The share must be a number of percent.";
        let percent = percent.trim_end_matches('%').trim_end().parse::<f64>();
        percent.map_err(|_| ApiError::invalid_request("percent", what))
    });
    let activated = async {
        let activation = Activation {
            digest: fields.text("digest").to_owned(),
            share: percent.transpose()?.map(|percent| percent / 100.0),
            ..Activation::default()
        };
        let by = admin.caller().into();
        routes::serve_with(&parts, by, name, &activation).await
    };
    let activated = activated.await;
    let done = match &activated {
        Ok(slot) if slot.canary.is_some() => "The canary serves its share of accounts.",
        _ => "The component serves all accounts.",
    };
    admin.done(&path, activated, done)
}

/// `POST /console/admin/plugins/{slot}/rollback`
pub(super) async fn roll_back(
    State(parts): State<PluginParts>,
    Path(name): Path<String>,
    AdminForm { admin, fields }: AdminForm,
) -> Result<Response, ApiError> {
    let path = path_of(&name);
    // The component that the page showed: another operator may have activated a different one since.
    let from = fields.filled("from");
    let back = routes::take_back(&parts, admin.caller().into(), name, from).await;
    let done = "The slot is rolled back to its previous component.";
    admin.done(&path, back, done)
}

/// `POST /console/admin/plugins/{slot}/record`: records exchanges of the slot's adapter.
pub(super) async fn record(
    State(parts): State<RecordingParts>,
    Path(name): Path<String>,
    AdminForm { admin, fields }: AdminForm,
) -> Result<Response, ApiError> {
    let path = path_of(&name);
    let number = |field: &'static str| {
        let number = fields.text(field).trim().parse::<f64>();
        let number = number.ok().filter(|number| number.is_finite());
        number
            .ok_or_else(|| ApiError::invalid_request(field, format!("Enter a number of {field}.")))
    };
    let begun = async {
        let start = RecordingStart {
            share: number("percent")? / 100.0,
            seconds: (number("minutes")? * 60.0) as u64,
            most_bytes: (number("MiB")? * f64::from(1 << 20)) as i64,
        };
        begin(&parts, admin.actor(), name, &start).await
    };
    let begun = begun.await;
    let done = match &begun {
        Ok(RecordingItem {
            nodes_missing: Some(missing @ 1..),
            ..
        }) => format!("weir records. {missing} nodes do not record yet."),
        _ => "weir records.".to_owned(),
    };
    admin.done(&path, begun, done)
}

/// `POST /console/admin/plugins/{slot}/record/stop`
pub(super) async fn stop_recording(
    State(parts): State<RecordingParts>,
    Path(name): Path<String>,
    AdminForm { admin, .. }: AdminForm,
) -> Result<Response, ApiError> {
    let path = path_of(&name);
    let stopped = recordings::stop_recording(State(parts), admin.caller(), Path(name));
    admin.done(&path, stopped.await, "The recording has ended.")
}

/// `POST /console/admin/plugins/{slot}/record/forget`
pub(super) async fn forget_recording(
    State(parts): State<RecordingParts>,
    Path(name): Path<String>,
    AdminForm { admin, .. }: AdminForm,
) -> Result<Response, ApiError> {
    let path = path_of(&name);
    let gone = recordings::forget_recording(State(parts), admin.caller(), Path(name));
    admin.done(&path, gone.await, "The recording is deleted.")
}

fn path_of(slot: &str) -> String {
    format!("{}/{}", PLUGINS.path, format::segment(slot))
}
