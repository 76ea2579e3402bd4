//! `/admin/plugins`: endpoints to inspect and change slots. They require an administrator, or a service with the scope
//! `plugins:write`.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRef, FromRequestParts, Path, Query, State};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use semver::Version;
use serde::Deserialize;
use utoipa::ToSchema;
use weir_catalog::Problem;
use weir_errors::ApiError;
use weir_identity::admin::{AdminCaller, LocalPeer};
use weir_identity::endpoints::{Access, Endpoints};
use weir_identity::service::ServiceScope;
use weir_identity::{IdentityParts, handlers};
use weir_plugins::Plugin;
use weir_plugins::canary::{CanaryShare, CanaryTerms};
use weir_plugins::items::{EventList, InstalledItem, SlotItem, SlotList};
use weir_plugins::policy::{OnQuarantine, SlotPolicy};
use weir_plugins::signature::Signature;
use weir_plugins::slot_name::{SLOT_NAMES, is_slot_name};
use weir_plugins::slots::{ComponentOffer, SlotOperation};
use weir_plugins::{OperationError, Permissions};
use weir_request::audit::{Actor, AuditEvent};
use weir_request::request::{BodyReader, ComponentBody, JsonBody};
use weir_sandbox::Digest;

use super::PluginParts;

/// Returns the operators' endpoints of plugins.
pub fn endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    PluginParts: FromRef<S>,
    Arc<IdentityParts>: FromRef<S>,
    BodyReader: FromRef<S>,
{
    Endpoints::new().row(
        Access::Operator,
        handlers!(
            list_plugins,
            list_events,
            get_slot,
            install_plugin,
            activate_plugin,
            set_slot_policy,
            roll_back_plugin,
            list_slot_events,
            remove_plugin
        ),
    )
}

/// The header with a component's signature.
pub const SIGNATURE_HEADER: &str = "x-weir-signature";

/// The default and maximum number of listed events.
const EVENTS: u32 = 50;
const MOST_EVENTS: u32 = 1_000;

/// A year.
const MOST_SECONDS_TO_PROMOTE: u64 = 366 * 24 * 3_600;

/// A caller who may change slots: an administrator, or a service with the scope.
pub struct Operator(Actor);

impl From<AdminCaller> for Operator {
    fn from(AdminCaller { actor, .. }: AdminCaller) -> Self {
        Self(actor)
    }
}

impl<S> FromRequestParts<S> for Operator
where
    Arc<IdentityParts>: FromRef<S>,
    S: Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let is_local = parts.extensions.get::<LocalPeer>().is_some();
        if is_local || !weir_identity::may_be_service(&parts.headers) {
            let AdminCaller { actor, .. } = AdminCaller::from_request_parts(parts, state).await?;
            return Ok(Self(actor));
        }
        let identity = Arc::<IdentityParts>::from_ref(state);
        let service = weir_identity::service_among_users(parts, &identity).await?;
        service.require(ServiceScope::PluginsWrite)?;
        Ok(Self(Actor::service(service.name())))
    }
}

/// The query of an installation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstallQuery {
    /// Whether to activate the component, too.
    #[serde(default)]
    activate: bool,
    /// Whether its version may be lower than one that the publisher signed for the slot.
    #[serde(default)]
    allow_downgrade: bool,
    /// Whether its publisher may differ from the slot's.
    #[serde(default)]
    change_publisher: bool,
}

/// The query of a list of events.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventsQuery {
    pub limit: Option<u32>,
}

/// The body of an activation.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Activation {
    /// The component's SHA-256, with or without `sha256:`.
    #[schema(pattern = "^(sha256:)?[0-9a-f]{64}$")]
    pub digest: String,
    /// Share of accounts; all without it. With a share below 1, the component becomes the slot's canary.
    #[schema(minimum = 0.0001, maximum = 1)]
    pub share: Option<f64>,
    /// Seconds without faults after which the canary serves all accounts.
    #[schema(minimum = 1, maximum = 31_622_400)]
    pub promote_after_seconds: Option<u64>,
    /// Like the installation's `allow_downgrade`.
    #[serde(default)]
    pub allow_downgrade: bool,
    /// Like the installation's `change_publisher`.
    #[serde(default)]
    pub change_publisher: bool,
}

/// The body of a rollback.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// Digest of the canary or active component to roll back. If the slot serves another component by then, weir
    /// refuses the rollback. Default: the current one.
    #[schema(pattern = "^(sha256:)?[0-9a-f]{64}$")]
    pub from: Option<String>,
}

/// The body of a slot's policy. Omitted fields return to their defaults.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyBody {
    /// Minimum version of the slot's component, by Semantic Versioning. Default: any.
    #[serde(default)]
    pub least_version: Option<String>,
    /// Action after the slot's component enters quarantine. Default: `refuse` for a required filter, otherwise
    /// `roll_back`.
    #[serde(default)]
    pub on_quarantine: Option<OnQuarantine>,
}

/// `GET /admin/plugins`: lists all slots with their active and installed components and counters.
#[utoipa::path(
    get, path = "/admin/plugins", tag = "plugins",
    responses((status = 200, body = SlotList)),
)]
pub async fn list_plugins(
    State(parts): State<PluginParts>,
    _: Operator,
) -> Result<Json<SlotList>, ApiError> {
    let slots = overview(&parts).await?;
    Ok(Json(SlotList { slots }))
}

/// `GET /admin/plugins/{slot}`: returns one slot.
#[utoipa::path(
    get, path = "/admin/plugins/{slot}", tag = "plugins",
    params(("slot" = String, Path, description = "The slot's name.")),
    responses(
        (status = 200, body = SlotItem),
        (status = 404, description = "`UNKNOWN_SLOT`, `UNKNOWN_PLUGIN`: the slot does not exist, or has no such component."),
    ),
)]
pub async fn get_slot(
    State(parts): State<PluginParts>,
    _: Operator,
    Path(slot): Path<String>,
) -> Result<Json<SlotItem>, ApiError> {
    Ok(Json(find(&parts, &slot).await?))
}

/// `PUT /admin/plugins/{slot}`: checks and installs a component; with `?activate=true`, also activates it.
#[utoipa::path(
    put, path = "/admin/plugins/{slot}", tag = "plugins",
    params(
        ("slot" = String, Path, description = "The slot's name."),
        ("activate" = Option<bool>, Query, description = "Whether to activate the component, too.", nullable = false),
        ("allow_downgrade" = Option<bool>, Query, description = "Whether its version may be lower than one that the publisher signed for the slot.", nullable = false),
        ("change_publisher" = Option<bool>, Query, description = "Whether its publisher may differ from the slot's.", nullable = false),
        ("X-Weir-Signature" = Option<String>, Header, description = "Output of `weir plugin sign`.", nullable = false),
    ),
    request_body(content = [u8], content_type = "application/wasm"),
    responses(
        (status = 200, description = "The component was already installed.", body = InstalledItem),
        (status = 201, description = "The component is installed.", body = InstalledItem),
        (status = 409, description = "`PLUGIN_DOWNGRADE`, `PLUGIN_OTHER_PUBLISHER`, `PLUGIN_IN_USE`, `PLUGIN_ACTIVE`, `PLUGIN_BELOW_LEAST_VERSION`, `PLUGIN_CHANGED`, `NOTHING_TO_COMPARE_WITH`, `NOTHING_TO_ROLL_BACK_TO`, `PLUGIN_DOES_NOT_FIT`, `PLUGIN_NOT_EVERYWHERE`: the state or the policy of the slot does not allow the change."),
        (status = 422, description = "`PLUGIN_REFUSED`: the component fails a load step."),
        (status = 503, description = "`PLUGIN_NOT_CHECKED`: the gateway cannot check components now."),
    ),
)]
pub async fn install_plugin(
    State(parts): State<PluginParts>,
    Operator(actor): Operator,
    Path(slot): Path<String>,
    query: Result<Query<InstallQuery>, QueryRejection>,
    headers: HeaderMap,
    body: ComponentBody,
) -> Result<(StatusCode, Json<InstalledItem>), ApiError> {
    let Query(query) = query.map_err(|_| {
        ApiError::invalid_request(
            "activate",
            "The parameters are activate, allow_downgrade and change_publisher, each true or false.",
        )
    })?;
    check_slot(&slot)?;
    let signature = headers.get(SIGNATURE_HEADER).map(read_signature);
    let permissions = Permissions {
        downgrade: query.allow_downgrade,
        change_publisher: query.change_publisher,
    };
    let offer = ComponentOffer {
        bytes: body.bytes,
        signature: signature.transpose()?,
        permissions,
    };
    let operation = operation(&parts, slot, actor.clone());
    // A component to activate must fit the configuration; an installed one may fit a later configuration.
    let fits = async |component: &Plugin| match query.activate {
        true => fits(&parts, &operation, component).await,
        false => Ok(()),
    };
    let installed = parts
        .plugins
        .install(parts.stores(), &operation, offer, fits)
        .await
        .inspect_err(|error| {
            let step = match error {
                OperationError::Load(error) => Some(error.step()),
                OperationError::Untrusted(_) => Some("signature"),
                OperationError::Downgrade { .. } => Some("version"),
                OperationError::OtherPublisher { .. } => Some("publisher"),
                _ => None,
            };
            if let Some(step) = step {
                let reason = format!("{}: {step}", operation.slot);
                let refused = AuditEvent::PluginRefused { reason };
                parts.audit.record_by(&actor, refused);
            }
        })?;
    if query.activate {
        activate(&parts, &operation, installed.digest, permissions).await?;
    }
    let serving = parts.plugins.serving_in(&operation.slot);
    let item = InstalledItem {
        active: serving.is_some_and(|plugin| plugin.digest() == installed.digest),
        slot: operation.slot,
        digest: installed.digest.to_string(),
        name: installed.name,
        version: installed.version,
        publisher: installed.publisher,
    };
    let status = match installed.is_new {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    Ok((status, Json(item)))
}

/// `POST /admin/plugins/{slot}/activate`: activates an installed component, for all or for a share of accounts.
#[utoipa::path(
    post, path = "/admin/plugins/{slot}/activate", tag = "plugins",
    params(("slot" = String, Path, description = "The slot's name.")),
    request_body = Activation,
    responses(
        (status = 200, body = SlotItem),
        (status = 404, description = "`UNKNOWN_SLOT`, `UNKNOWN_PLUGIN`: the slot does not exist, or has no such component."),
        (status = 409, description = "`PLUGIN_DOWNGRADE`, `PLUGIN_OTHER_PUBLISHER`, `PLUGIN_IN_USE`, `PLUGIN_ACTIVE`, `PLUGIN_BELOW_LEAST_VERSION`, `PLUGIN_CHANGED`, `NOTHING_TO_COMPARE_WITH`, `NOTHING_TO_ROLL_BACK_TO`, `PLUGIN_DOES_NOT_FIT`, `PLUGIN_NOT_EVERYWHERE`: the state or the policy of the slot does not allow the change."),
        (status = 422, description = "`PLUGIN_REFUSED`: the component fails a load step."),
        (status = 503, description = "`PLUGIN_NOT_CHECKED`: the gateway cannot check components now."),
    ),
)]
pub async fn activate_plugin(
    State(parts): State<PluginParts>,
    operator: Operator,
    Path(slot): Path<String>,
    body: JsonBody,
) -> Result<Json<SlotItem>, ApiError> {
    let activation: Activation = serde_json::from_slice(&body.bytes).map_err(|_| {
        ApiError::invalid_request("digest", "The body is an object with a digest, a text.")
    })?;
    Ok(Json(serve_with(&parts, operator, slot, &activation).await?))
}

/// Activates an installed component, for all or for a share of accounts. Returns the slot after the change.
pub async fn serve_with(
    parts: &PluginParts,
    Operator(actor): Operator,
    slot: String,
    activation: &Activation,
) -> Result<SlotItem, ApiError> {
    let terms = read_terms(activation)?;
    let digest = parse_digest(&activation.digest)?;
    let operation = operation(parts, slot, actor);
    let permissions = Permissions {
        downgrade: activation.allow_downgrade,
        change_publisher: activation.change_publisher,
    };
    match terms {
        None => activate(parts, &operation, digest, permissions).await?,
        Some(terms) => {
            let fits = async |component: &Plugin| fits_all(parts, &operation, component).await;
            parts
                .plugins
                .start_canary(parts.stores(), &operation, digest, terms, permissions, fits)
                .await?;
        }
    }
    find(parts, &operation.slot).await
}

/// Reads the terms of a canary; `None` for all accounts.
fn read_terms(activation: &Activation) -> Result<Option<CanaryTerms>, ApiError> {
    let after = activation.promote_after_seconds;
    if after.is_some_and(|seconds| !(1..=MOST_SECONDS_TO_PROMOTE).contains(&seconds)) {
        return Err(ApiError::invalid_request(
            "promote_after_seconds",
            format!("A canary is promoted after 1 to {MOST_SECONDS_TO_PROMOTE} seconds."),
        ));
    }
    match activation.share {
        None | Some(1.0) if after.is_some() => Err(ApiError::invalid_request(
            "promote_after_seconds",
            "Only a canary can be promoted: set a share below 1.",
        )),
        None | Some(1.0) => Ok(None),
        Some(share) => {
            let share = CanaryShare::from_fraction(share).ok_or_else(|| {
                ApiError::invalid_request(
                    "share",
                    "A share is a number from 0.0001 to 0.9999, such as 0.05; for all accounts, send 1 or leave it out.",
                )
            })?;
            let promote_after = after.map(Duration::from_secs);
            Ok(Some(CanaryTerms {
                share,
                promote_after,
            }))
        }
    }
}

/// `POST /admin/plugins/{slot}/rollback`: ends a slot's canary, or activates the previous component.
#[utoipa::path(
    post, path = "/admin/plugins/{slot}/rollback", tag = "plugins",
    params(("slot" = String, Path, description = "The slot's name.")),
    request_body = Option<Rollback>,
    responses(
        (status = 200, body = SlotItem),
        (status = 404, description = "`UNKNOWN_SLOT`, `UNKNOWN_PLUGIN`: the slot does not exist, or has no such component."),
        (status = 409, description = "`PLUGIN_DOWNGRADE`, `PLUGIN_OTHER_PUBLISHER`, `PLUGIN_IN_USE`, `PLUGIN_ACTIVE`, `PLUGIN_BELOW_LEAST_VERSION`, `PLUGIN_CHANGED`, `NOTHING_TO_COMPARE_WITH`, `NOTHING_TO_ROLL_BACK_TO`, `PLUGIN_DOES_NOT_FIT`, `PLUGIN_NOT_EVERYWHERE`: the state or the policy of the slot does not allow the change."),
        (status = 422, description = "`PLUGIN_REFUSED`: the component fails a load step."),
        (status = 503, description = "`PLUGIN_NOT_CHECKED`: the gateway cannot check components now."),
    ),
)]
pub async fn roll_back_plugin(
    State(parts): State<PluginParts>,
    Operator(actor): Operator,
    Path(slot): Path<String>,
    body: JsonBody,
) -> Result<Json<SlotItem>, ApiError> {
    let rollback: Option<Rollback> = match body.bytes.is_empty() {
        true => None,
        false => serde_json::from_slice(&body.bytes).map_err(|_| {
            ApiError::invalid_request(
                "from",
                "The body is an object with `from`, a digest, or empty.",
            )
        })?,
    };
    let rollback = rollback.unwrap_or_default();
    let slot = take_back(&parts, Operator(actor), slot, rollback.from.as_deref()).await?;
    Ok(Json(slot))
}

/// Ends a slot's canary, or activates the previous component, if the slot still serves the expected one. Returns the
/// slot after the change.
pub async fn take_back(
    parts: &PluginParts,
    Operator(actor): Operator,
    slot: String,
    from: Option<&str>,
) -> Result<SlotItem, ApiError> {
    let from = from.map(|from| parse_digest_of("from", from)).transpose()?;
    let operation = operation(parts, slot, actor);
    let fits = async |component: &Plugin| fits(parts, &operation, component).await;
    parts
        .plugins
        .roll_back(parts.stores(), &operation, from, fits)
        .await?;
    find(parts, &operation.slot).await
}

/// `PUT /admin/plugins/{slot}/policy`: sets a slot's minimum version, and its action in quarantine.
#[utoipa::path(
    put, path = "/admin/plugins/{slot}/policy", tag = "plugins",
    operation_id = "set_slot_policy",
    params(("slot" = String, Path, description = "The slot's name.")),
    request_body = PolicyBody,
    responses(
        (status = 200, body = SlotItem),
        (status = 404, description = "`UNKNOWN_SLOT`: the slot does not exist."),
        (status = 409, description = "`PLUGIN_BELOW_LEAST_VERSION`: the active version is lower."),
    ),
)]
pub async fn set_slot_policy(
    State(parts): State<PluginParts>,
    Operator(actor): Operator,
    Path(slot): Path<String>,
    body: JsonBody,
) -> Result<Json<SlotItem>, ApiError> {
    let body: PolicyBody = serde_json::from_slice(&body.bytes).map_err(|_| {
        ApiError::invalid_request(
            "on_quarantine",
            "The body is an object with `least_version`, a text, and `on_quarantine`, `roll_back` or `refuse`; each may be null.",
        )
    })?;
    let least_version = body.least_version.as_deref().map(Version::parse);
    let least_version = least_version.transpose().map_err(|_| {
        ApiError::invalid_request(
            "least_version",
            "A version is by Semantic Versioning, such as 1.4.0.",
        )
    })?;
    let policy = SlotPolicy {
        least_version,
        on_quarantine: body.on_quarantine,
    };
    let operation = operation(&parts, slot, actor.clone());
    parts
        .plugins
        .set_policy(parts.stores(), &operation, &policy)
        .await?;
    let least = policy
        .least_version
        .map_or("any".to_owned(), |least| least.to_string());
    let on_quarantine = policy.on_quarantine.map_or("default", OnQuarantine::as_str);
    let set = AuditEvent::PluginPolicySet {
        reason: format!(
            "{}: least version {least}, on quarantine {on_quarantine}",
            operation.slot
        ),
    };
    parts.audit.record_by(&actor, set);
    Ok(Json(find(&parts, &operation.slot).await?))
}

/// `DELETE /admin/plugins/{slot}/{digest}`: removes an inactive component.
#[utoipa::path(
    delete, path = "/admin/plugins/{slot}/{digest}", tag = "plugins",
    params(
        ("slot" = String, Path, description = "The slot's name."),
        ("digest" = String, Path, description = "The component's SHA-256, with or without `sha256:`.", pattern = "^(sha256:)?[0-9a-f]{64}$"),
    ),
    responses(
        (status = 204, description = "The component is removed."),
        (status = 404, description = "`UNKNOWN_SLOT`, `UNKNOWN_PLUGIN`: the slot does not exist, or has no such component."),
        (status = 409, description = "`PLUGIN_DOWNGRADE`, `PLUGIN_OTHER_PUBLISHER`, `PLUGIN_IN_USE`, `PLUGIN_ACTIVE`, `PLUGIN_BELOW_LEAST_VERSION`, `PLUGIN_CHANGED`, `NOTHING_TO_COMPARE_WITH`, `NOTHING_TO_ROLL_BACK_TO`, `PLUGIN_DOES_NOT_FIT`, `PLUGIN_NOT_EVERYWHERE`: the state or the policy of the slot does not allow the change."),
    ),
)]
pub async fn remove_plugin(
    State(parts): State<PluginParts>,
    Operator(actor): Operator,
    Path((slot, digest)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    let digest = parse_digest(&digest)?;
    let operation = operation(&parts, slot, actor);
    parts
        .plugins
        .remove(parts.stores(), &operation, digest)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /admin/plugins/events`: lists the events of all slots.
#[utoipa::path(
    get, path = "/admin/plugins/events", tag = "plugins", operation_id = "list_plugin_events",
    params(
        ("limit" = Option<u32>, Query, description = "Maximum number of events.", minimum = 1, maximum = 1000, nullable = false),
    ),
    responses((status = 200, body = EventList)),
)]
pub async fn list_events(
    State(parts): State<PluginParts>,
    _: Operator,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Result<Json<EventList>, ApiError> {
    events(&parts, None, query).await
}

/// `GET /admin/plugins/{slot}/events`: lists the events of a slot, even of a removed one.
#[utoipa::path(
    get, path = "/admin/plugins/{slot}/events", tag = "plugins",
    params(
        ("slot" = String, Path, description = "The slot's name."),
        ("limit" = Option<u32>, Query, description = "Maximum number of events.", minimum = 1, maximum = 1000, nullable = false),
    ),
    responses(
        (status = 200, body = EventList),
        (status = 404, description = "`UNKNOWN_SLOT`, `UNKNOWN_PLUGIN`: the slot does not exist, or has no such component."),
    ),
)]
pub async fn list_slot_events(
    State(parts): State<PluginParts>,
    _: Operator,
    Path(slot): Path<String>,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Result<Json<EventList>, ApiError> {
    events(&parts, Some(&slot), query).await
}

async fn events(
    parts: &PluginParts,
    slot: Option<&str>,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Result<Json<EventList>, ApiError> {
    let limit = query.ok().map(|Query(query)| query.limit.unwrap_or(EVENTS));
    let limit = limit.filter(|limit| (1..=MOST_EVENTS).contains(limit));
    let limit = limit.ok_or_else(|| {
        ApiError::invalid_request(
            "limit",
            format!("A limit is a number from 1 to {MOST_EVENTS}."),
        )
    })?;
    let events = parts
        .plugins
        .events(&parts.database, slot, limit)
        .await
        .map_err(|error| ApiError::of_database(&error, "reading plugin events"))?;
    if events.is_empty()
        && let Some(slot) = slot
    {
        // Without events, the slot is either unknown or new.
        find(parts, slot).await?;
    }
    Ok(Json(EventList { events }))
}

fn read_signature(header: &HeaderValue) -> Result<Signature, ApiError> {
    let text = header.to_str().map_err(|error| error.to_string());
    text.and_then(Signature::parse).map_err(|why| {
        ApiError::invalid_request(
            SIGNATURE_HEADER,
            format!("The header must hold the output of `weir plugin sign`: {why}."),
        )
    })
}

async fn activate(
    parts: &PluginParts,
    operation: &SlotOperation,
    digest: Digest,
    permissions: Permissions,
) -> Result<(), ApiError> {
    let fits = async |component: &Plugin| fits_all(parts, operation, component).await;
    parts
        .plugins
        .activate(parts.stores(), operation, digest, permissions, fits)
        .await?;
    Ok(())
}

/// Returns the problem of a component in its slot of this gateway.
pub(super) async fn fits(
    parts: &PluginParts,
    operation: &SlotOperation,
    plugin: &Plugin,
) -> Result<(), OperationError> {
    let (catalog, slot) = (parts.catalog.load(), &operation.slot);
    let problems = match plugin {
        Plugin::Adapter(adapter) => weir_catalog::check_adapter(&catalog, slot, adapter).await,
        Plugin::Filter(filter) => weir_catalog::check_filter(&catalog, slot, filter).await,
        Plugin::Tool(_) => return Ok(()),
    };
    match problems.first() {
        None => Ok(()),
        Some(Problem { setting, what }) => {
            Err(OperationError::DoesNotFit(format!("{setting}: {what}")))
        }
    }
}

/// Refuses a component that does not fit this gateway's configuration, or that another node cannot load.
async fn fits_all(
    parts: &PluginParts,
    operation: &SlotOperation,
    plugin: &Plugin,
) -> Result<(), OperationError> {
    fits(parts, operation, plugin).await?;
    let (slot, digest) = (&operation.slot, plugin.digest());
    let (stores, ledger) = (parts.stores(), &parts.ledger);
    parts
        .plugins
        .ask_live_nodes(stores, ledger, slot, digest)
        .await
}

async fn find(parts: &PluginParts, slot: &str) -> Result<SlotItem, ApiError> {
    let slots = overview(parts).await?;
    let found = slots.into_iter().find(|item| item.slot == slot);
    found.ok_or_else(|| OperationError::UnknownSlot.into())
}

async fn overview(parts: &PluginParts) -> Result<Vec<SlotItem>, ApiError> {
    let slots = parts.plugins.items(&parts.database).await;
    slots.map_err(|error| ApiError::of_database(&error, "asked for plugins"))
}

fn operation(parts: &PluginParts, slot: String, actor: Actor) -> SlotOperation {
    SlotOperation {
        slot,
        actor: actor.to_string(),
        at: parts.clock.now(),
    }
}

fn check_slot(slot: &str) -> Result<(), ApiError> {
    match is_slot_name(slot) {
        true => Ok(()),
        false => Err(ApiError::invalid_request("slot", SLOT_NAMES)),
    }
}

fn parse_digest(text: &str) -> Result<Digest, ApiError> {
    parse_digest_of("digest", text)
}

fn parse_digest_of(field: &str, text: &str) -> Result<Digest, ApiError> {
    let digits = text.strip_prefix("sha256:").unwrap_or(text);
    digits.parse().map_err(|_| {
        ApiError::invalid_request(
            field,
            "A digest is the component's SHA-256 as 64 hexadecimal digits.",
        )
    })
}
