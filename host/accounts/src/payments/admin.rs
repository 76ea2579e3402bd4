//! `/admin/payments/events`: events of the payment processor.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use futures_util::FutureExt as _;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_identity::admin::AdminCaller;
use weir_payments::event_store::{self, EventState, PaymentEventFilter, StoredPaymentEvent};
use weir_request::audit::AuditEvent;
use weir_request::csv_export::{CsvTable, ListPage};
use weir_request::node::Core;
use weir_request::query::{ListQuery, cut};
use weir_request::schemas::parameters::Limit;
use weir_storage::clock::Millis;
use weir_storage::database::DatabaseClock;

/// An event of the payment processor.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PaymentEventItem {
    /// The processor's id.
    pub event_id: String,
    /// The type, for example `invoice.paid`.
    #[serde(rename = "type")]
    pub name: String,
    /// `waiting`, `failed`, `applied` or `ignored`. A `failed` event is retried at `next_attempt_at`, for 72 hours.
    pub state: String,
    /// The user; null while unknown.
    pub user_id: Option<String>,
    /// The processor's customer.
    pub customer_id: Option<String>,
    /// The subscription or payment.
    pub subject: Option<String>,
    /// The time of the event, by the processor's clock.
    pub created_at: String,
    /// The time of arrival.
    pub received_at: String,
    /// Number of failed attempts.
    pub attempts: i64,
    /// The time of the next attempt; null if there is none, or after 72 hours of retries.
    pub next_attempt_at: Option<String>,
    /// The last error.
    pub error: Option<String>,
    /// The time at which weir applied or ignored the event.
    pub applied_at: Option<String>,
    /// The effect.
    pub outcome: Option<String>,
}

/// Events of the payment processor.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PaymentEventList {
    /// The events, newest first.
    pub events: Vec<PaymentEventItem>,
    /// The `before` of the next page; null on the last page.
    pub next: Option<String>,
}

/// `GET /admin/payments/events`: lists events, optionally of one `state` or `user_id`.
#[utoipa::path(
    get, path = "/admin/payments/events", tag = "administration", operation_id = "list_payment_events",
    params(
        Limit,
        ("before" = Option<String>, Query, description = "The `next` of the previous page.", nullable = false),
        ("state" = Option<String>, Query, description = "Those of this state.", nullable = false, pattern = "^(waiting|failed|applied|ignored)$"),
        ("user_id" = Option<String>, Query, description = "About this user.", nullable = false),
    ),
    responses((status = 200, content((PaymentEventList = "application/json"), (String = "text/csv")))),
)]
pub async fn list_events(
    State(core): State<Core>,
    admin: AdminCaller,
    headers: HeaderMap,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let (reader, account) = (core.clone(), admin.actor.as_str());
    TABLE
        .respond(
            &core.exports,
            account,
            &headers,
            query,
            reader,
            |core, query| list(core, query).boxed(),
        )
        .await
}

const TABLE: CsvTable = CsvTable {
    file: "webhooks.csv",
    columns: "event_id,type,state,user_id,customer_id,subject,created_at,received_at,attempts,next_attempt_at,error,applied_at,outcome",
    position: "before",
};

impl ListPage for PaymentEventList {
    type Item = PaymentEventItem;

    fn into_items(self) -> (Vec<PaymentEventItem>, Option<String>) {
        (self.events, self.next)
    }
}

pub async fn list(core: &Core, mut query: ListQuery) -> Result<PaymentEventList, ApiError> {
    let limit = query.limit()?;
    let state = query.text("state")?.map(|name| {
        let what = "It is waiting, failed, applied or ignored.";
        EventState::of(&name).ok_or_else(|| ApiError::invalid_request("state", what))
    });
    let mut filter = PaymentEventFilter {
        state: state.transpose()?,
        user_id: query.text("user_id")?,
        before: None,
    };
    let before = query.text("before")?;
    query.finish()?;
    if let Some(id) = before {
        let event = event_store::find(&core.database, &id)
            .await
            .map_err(failed)?;
        let what = "It is the `next` of the part before.";
        let event = event.ok_or_else(|| ApiError::invalid_request("before", what))?;
        filter.before = Some((event.received_at, event.id));
    }
    let mut events = event_store::list(&core.database, &filter, limit + 1)
        .await
        .map_err(failed)?;
    let next = cut(&mut events, limit, |event| event.id.clone());
    let events = events.into_iter().map(item).collect();
    Ok(PaymentEventList { events, next })
}

/// `POST /admin/payments/events/{event_id}/retry`: applies an event now, or once more. An effect that it already had
/// does not happen twice.
#[utoipa::path(
    post, path = "/admin/payments/events/{event_id}/retry", tag = "administration", operation_id = "retry_payment_event",
    params(("event_id" = String, Path, description = "The event's id.")),
    responses(
        (status = 200, body = PaymentEventItem),
        (status = 404, description = "`NOT_FOUND`: there is no such event."),
        (status = 409, description = "`NOT_POSSIBLE`: such events have no effect."),
    ),
)]
pub async fn retry_event(
    State(core): State<Core>,
    AdminCaller { actor, .. }: AdminCaller,
    Path(event_id): Path<String>,
) -> Result<Json<PaymentEventItem>, ApiError> {
    let database = &core.database;
    // Nodes use the database's clock to find due events.
    let clock = DatabaseClock::start(database.clone(), core.clock.clone());
    let now = clock.await.map_err(failed)?.now();
    let is_due = event_store::retry(database, &event_id, now)
        .await
        .map_err(failed)?;
    let event = event_store::find(database, &event_id)
        .await
        .map_err(failed)?;
    let Some(event) = event else {
        let what = format!("The processor has told of no event {event_id}.");
        let error = ApiError::new(ErrorCode::NotFound, what);
        return Err(error.with_param("event_id"));
    };
    if !is_due {
        return Err(ApiError::new(
            ErrorCode::NotPossible,
            format!("Events of the type {} have no effect.", event.name),
        ));
    }
    core.audit
        .record_by(&actor, AuditEvent::PaymentEventRetried { event_id });
    Ok(Json(item(event)))
}

fn item(event: StoredPaymentEvent) -> PaymentEventItem {
    PaymentEventItem {
        event_id: event.id,
        name: event.name,
        state: event.state.name().to_owned(),
        user_id: event.user_id,
        customer_id: event.customer,
        subject: event.subject,
        created_at: event.created_at.iso(),
        received_at: event.received_at.iso(),
        attempts: event.attempts,
        next_attempt_at: event.next_attempt_at.map(Millis::iso),
        error: event.last_error,
        applied_at: event.applied_at.map(Millis::iso),
        outcome: event.outcome,
    }
}

fn failed(error: sqlx::Error) -> ApiError {
    ApiError::of_database(&error, "asked for events of payments")
}
