//! The catalog layer on this node: it is applied at the start, at each reload, and at each change on any node.
//!
//! **Invariant:** a layer never keeps a gateway from starting. If the newest version does not fit, the node keeps its
//! catalog, logs an error and shows the problem; at the start, the catalog is that of the file alone.
//! **Invariant:** a reload keeps the layer. A file that does not fit the active layer is rejected like an invalid one.
//! **Invariant:** weir builds the catalog of a change before it stores the change: no administrator can store a layer that
//! does not fit their node.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Map, Value};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::MissedTickBehavior;
use weir_catalog::layer::Layer;
use weir_catalog::layer::changes::{CatalogChanges, SUMMARY_CHARACTERS};
use weir_catalog::layer::store::{self, StoredLayer};
use weir_catalog::listing::{CatalogDifference, CatalogListing};
use weir_catalog::live::LiveCatalog;
use weir_catalog::{Catalog, Problem};
use weir_errors::{ApiError, ErrorCode};
use weir_plugins::Plugins;
use weir_request::audit::{Actor, AuditEvent};
use weir_request::node::Core;
use weir_storage::cache::Announcements;
use weir_storage::clock::Millis;
use weir_storage::database;
use weir_upstream::breaker::Breakers;

use super::build::{lines, report_left_out, try_build};
use crate::config::Config;

/// Time between two polls for changes without an announcement.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Time before the next attempt to apply a version that does not fit.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// Problems that an error lists.
const MAX_PROBLEMS: usize = 20;

/// The catalog layer on this node. Cheap to clone.
#[derive(Clone)]
pub struct CatalogLayers(Arc<LayerParts>);

struct LayerParts {
    core: Core,
    plugins: Plugins,
    catalog: Arc<LiveCatalog>,
    state: Mutex<LayerState>,
}

/// The catalog's sources on this node.
struct LayerState {
    /// The configuration of the file, at the start or since the latest reload.
    config: Config,
    newest: Option<StoredLayer>,
    /// The layer of the active catalog, and its version; 0 without a layer.
    running: (i64, Layer),
    problem: Option<LayerProblem>,
}

/// The reason for which the newest version is not applied.
struct LayerProblem {
    why: String,
    /// The time of the next attempt.
    again: Instant,
}

/// The state of the layer on this node.
pub struct LayerStatus {
    /// The newest version; `None` before the first change.
    pub newest: Option<StoredLayer>,
    /// The version that this node's catalog has; 0 without a layer.
    pub running_version: i64,
    /// The problem of the newest version on this node.
    pub problem: Option<String>,
    /// The newest layer; empty if it cannot be read.
    pub layer: Layer,
    /// The settings of all models, with that layer.
    pub models: Map<String, Value>,
}

pub struct LayerRequest {
    /// The version that the administrator has seen.
    pub base_version: i64,
    pub layer: Layer,
    /// The change in one line; by default, a summary of the differences.
    pub summary: Option<String>,
    /// Whether the administrator confirms prices of 0.
    pub confirm_free: bool,
}

/// The reason for which weir rejects a layer.
#[derive(Debug)]
pub enum LayerError {
    /// The layer does not fit this node's configuration.
    Invalid(Vec<Problem>),
    /// Another version is active.
    Changed {
        active: i64,
    },
    /// These prices become 0, and the administrator has not confirmed it.
    Free(Vec<String>),
    /// No version has this number.
    Unknown,
    Database(sqlx::Error),
}

/// A catalog that is built and not active yet.
pub(super) struct BuiltCatalog<'a> {
    layers: &'a LayerParts,
    state: MutexGuard<'a, LayerState>,
    next: LayerState,
    catalog: Catalog,
}

impl CatalogLayers {
    /// Reads the newest version, and builds the catalog. A layer that does not fit is left out.
    pub(super) async fn start(
        config: &Config,
        plugins: &Plugins,
        core: &Core,
        breakers: Breakers,
    ) -> anyhow::Result<Self> {
        let newest = database::at_start(|| store::newest(&core.database)).await;
        let state = LayerState {
            config: config.clone(),
            newest: newest.context("cannot read the catalog layer")?,
            running: (0, Layer::default()),
            problem: None,
        };
        let (state, catalog) = state.built(plugins, None).await.map_err(|problems| {
            anyhow::anyhow!("{}", lines(&problems))
                .context("the catalog's configuration is invalid")
        })?;
        report_left_out(&catalog);
        Ok(Self(Arc::new(LayerParts {
            core: core.clone(),
            plugins: plugins.clone(),
            catalog: Arc::new(LiveCatalog::new(catalog, breakers)),
            state: Mutex::new(state),
        })))
    }

    pub(super) fn catalog(&self) -> Arc<LiveCatalog> {
        self.0.catalog.clone()
    }

    /// Follows the changes of all nodes until the last other clone is dropped.
    pub(super) fn follow(&self) {
        let announcements = self.0.core.cache.announcements();
        tokio::spawn(follow(Arc::downgrade(&self.0), announcements));
    }

    /// Builds the catalog of another configuration, with the layer.
    pub(super) async fn build(&self, config: &Config) -> anyhow::Result<BuiltCatalog<'_>> {
        let state = self.0.state.lock().await;
        let next = LayerState {
            config: config.clone(),
            newest: state.newest.clone(),
            running: state.running.clone(),
            problem: None,
        };
        let version = state.running.0;
        let before = self.0.catalog.load();
        let built = next.built(&self.0.plugins, Some(&before)).await;
        let (next, catalog) = built.map_err(|problems| {
            let context = match version {
                0 => "the catalog's configuration is invalid".to_owned(),
                version => format!(
                    "the catalog's configuration is invalid with version {version} of the catalog layer"
                ),
            };
            anyhow::anyhow!("{}", lines(&problems)).context(context)
        })?;
        Ok(BuiltCatalog {
            layers: &self.0,
            state,
            next,
            catalog,
        })
    }

    /// Returns the state of the layer on this node.
    pub async fn status(&self) -> LayerStatus {
        let state = self.0.state.lock().await;
        let layer = match &state.newest {
            Some(newest) => layer_of(newest).unwrap_or_default(),
            None => Layer::default(),
        };
        LayerStatus {
            newest: state.newest.clone(),
            running_version: state.running.0,
            problem: state.problem.as_ref().map(|problem| problem.why.clone()),
            models: state.config.models_with(&layer),
            layer,
        }
    }

    /// Returns whether the newest version is not applied on this node.
    pub async fn is_unfit(&self) -> bool {
        self.0.state.lock().await.problem.is_some()
    }

    /// Returns the changes that a layer would make to the active catalog.
    ///
    /// # Errors
    ///
    /// The problems of the layer with this node's configuration.
    pub async fn check(&self, layer: &Layer) -> Result<CatalogChanges, LayerError> {
        let state = self.0.state.lock().await;
        let catalog = self.0.check(&state, layer).await?;
        Ok(self.0.changes(&catalog))
    }

    /// Stores and applies a change.
    ///
    /// # Errors
    ///
    /// The problems of the layer, another active version, or a failure of the database.
    pub async fn change(
        &self,
        actor: &Actor,
        request: LayerRequest,
    ) -> Result<StoredLayer, LayerError> {
        let core = &self.0.core;
        let mut state = self.0.state.lock().await;
        let mark = store::mark(&core.database)
            .await
            .map_err(LayerError::Database)?;
        let active = mark.map_or(0, |(version, _)| version);
        if request.base_version != active {
            return Err(LayerError::Changed { active });
        }
        let catalog = self.0.check(&state, &request.layer).await?;
        let changes = self.0.changes(&catalog);
        if !request.confirm_free && !changes.free.is_empty() {
            return Err(LayerError::Free(changes.free));
        }
        let stored = StoredLayer {
            version: active + 1,
            contents: Value::Object(request.layer.contents().clone()).to_string(),
            created_at: core.clock.now(),
            created_by: actor.to_string(),
            summary: request.summary.unwrap_or_else(|| changes.summary()),
            changes: serde_json::to_string(&changes).unwrap_or_default(),
        };
        let is_stored = store::insert(&core.database, &stored).await;
        if !is_stored.map_err(LayerError::Database)? {
            // Another node was faster.
            let active = stored.version;
            return Err(LayerError::Changed { active });
        }
        let reason = format!("version {}: {}", stored.version, stored.summary);
        core.audit
            .record_by(actor, AuditEvent::CatalogChanged { reason });
        state.newest = Some(stored.clone());
        state.running = (stored.version, request.layer);
        state.problem = None;
        self.0.activate(catalog, stored.version);
        if let Err(error) = core.cache.announce().await {
            tracing::warn!(%error, "announcing a change of the catalog to other nodes");
        }
        Ok(stored)
    }

    /// Stores and applies the contents of an earlier version again; version 0 is the empty layer.
    ///
    /// # Errors
    ///
    /// As of [`Self::change`], or an unknown version.
    pub async fn restore(
        &self,
        actor: &Actor,
        base_version: i64,
        version: i64,
        confirm_free: bool,
    ) -> Result<StoredLayer, LayerError> {
        let request = LayerRequest {
            base_version,
            layer: self.find(version).await?,
            summary: Some(self.summary_of_restore(version).await),
            confirm_free,
        };
        self.change(actor, request).await
    }

    /// Returns the layer of a version; version 0 is the empty layer.
    ///
    /// # Errors
    ///
    /// An unknown version, or a failure of the database.
    pub async fn find(&self, version: i64) -> Result<Layer, LayerError> {
        if version == 0 {
            return Ok(Layer::default());
        }
        let found = store::find(&self.0.core.database, version).await;
        let found = found.map_err(LayerError::Database)?;
        layer_of(&found.ok_or(LayerError::Unknown)?).map_err(LayerError::Invalid)
    }

    /// Returns the summary of a version that restores an earlier one.
    async fn summary_of_restore(&self, version: i64) -> String {
        let newest = self.0.state.lock().await.newest.clone();
        let undone = newest.filter(|newest| newest.version == version + 1);
        let summary = match (undone, version) {
            (Some(undone), _) => format!("undoes version {}: {}", undone.version, undone.summary),
            (None, 0) => "removes the whole layer".to_owned(),
            (None, version) => format!("restores version {version}"),
        };
        summary.chars().take(SUMMARY_CHARACTERS).collect()
    }
}

impl LayerParts {
    fn changes(&self, catalog: &Catalog) -> CatalogChanges {
        let before = CatalogListing::of(&self.catalog.load());
        CatalogChanges::between(&before, &CatalogListing::of(catalog))
    }

    async fn check(&self, state: &LayerState, layer: &Layer) -> Result<Catalog, LayerError> {
        let before = self.catalog.load();
        state.check(layer, &self.plugins, &before).await
    }

    fn activate(&self, mut catalog: Catalog, version: i64) {
        catalog.layer_version = version;
        report_left_out(&catalog);
        let models = catalog.models().count();
        self.catalog.replace(catalog);
        tracing::info!(version, models, "the catalog layer is applied");
    }

    /// Applies the newest version, unless the catalog has it.
    async fn look(&self) -> sqlx::Result<()> {
        let mark = store::mark(&self.core.database).await?;
        let mut state = self.state.lock().await;
        let is_new = mark != state.newest.as_ref().map(mark_of);
        let is_due = |problem: &LayerProblem| problem.again <= Instant::now();
        if !is_new && !state.problem.as_ref().is_some_and(is_due) {
            return Ok(());
        }
        state.newest = store::newest(&self.core.database).await?;
        let version = state.newest.as_ref().map_or(0, |newest| newest.version);
        let built = match state.newest_layer() {
            Ok(layer) => {
                let before = self.catalog.load();
                let catalog = state.check_problems(&layer, &self.plugins, Some(&before));
                let catalog = catalog.await;
                catalog.map(|catalog| (layer, catalog))
            }
            Err(problems) => Err(problems),
        };
        match built {
            Ok((layer, catalog)) => {
                state.running = (version, layer);
                state.problem = None;
                self.activate(catalog, version);
            }
            Err(problems) => {
                let earlier = state.problem.take();
                state.problem = Some(LayerProblem::of(version, &problems, earlier.as_ref()));
            }
        }
        Ok(())
    }
}

impl LayerState {
    /// Returns the newest layer; an empty one before the first change.
    fn newest_layer(&self) -> Result<Layer, Vec<Problem>> {
        self.newest
            .as_ref()
            .map_or_else(|| Ok(Layer::default()), layer_of)
    }

    /// Builds the catalog with the newest layer, or else with the layer of the active catalog.
    async fn built(
        mut self,
        plugins: &Plugins,
        before: Option<&Catalog>,
    ) -> Result<(Self, Catalog), Vec<Problem>> {
        let problems = match self.newest_layer() {
            Ok(layer) => match self.check_problems(&layer, plugins, before).await {
                Ok(mut catalog) => {
                    let version = self.newest.as_ref().map_or(0, |newest| newest.version);
                    self.running = (version, layer);
                    catalog.layer_version = version;
                    return Ok((self, catalog));
                }
                Err(problems) => problems,
            },
            Err(problems) => problems,
        };
        let version = match &self.newest {
            // The configuration itself is invalid, or with a layer that was valid until now.
            None => return Err(problems),
            Some(newest) if newest.version == self.running.0 => return Err(problems),
            Some(newest) => newest.version,
        };
        let running = self.check_problems(&self.running.1, plugins, before);
        let mut catalog = running.await?;
        catalog.layer_version = self.running.0;
        self.problem = Some(LayerProblem::of(version, &problems, None));
        Ok((self, catalog))
    }

    async fn check_problems(
        &self,
        layer: &Layer,
        plugins: &Plugins,
        before: Option<&Catalog>,
    ) -> Result<Catalog, Vec<Problem>> {
        try_build(&self.config.with_layer(layer)?, plugins, before).await
    }

    /// Builds the catalog of a new layer.
    async fn check(
        &self,
        layer: &Layer,
        plugins: &Plugins,
        before: &Catalog,
    ) -> Result<Catalog, LayerError> {
        let unknown = layer
            .disabled_providers()
            .filter(|name| !self.config.providers.contains_key(*name));
        let mut problems: Vec<_> = unknown
            .map(|name| Problem {
                setting: format!("providers.{name}"),
                what: "does not exist in the configuration".to_owned(),
            })
            .collect();
        match self.check_problems(layer, plugins, Some(before)).await {
            Ok(catalog) if problems.is_empty() => Ok(catalog),
            Ok(_) => Err(LayerError::Invalid(problems)),
            Err(others) => {
                problems.extend(others);
                Err(LayerError::Invalid(problems))
            }
        }
    }
}

impl LayerProblem {
    /// Logs the problems of a version, unless they are known.
    fn of(version: i64, problems: &[Problem], earlier: Option<&Self>) -> Self {
        let why = lines(problems);
        let why = format!("version {version} of the catalog layer does not fit this node:{why}");
        if earlier.is_none_or(|earlier| earlier.why != why) {
            tracing::error!("the catalog stays without the newest change: {why}");
        }
        Self {
            why,
            again: Instant::now() + RETRY_AFTER,
        }
    }
}

impl BuiltCatalog<'_> {
    /// Activates the catalog, and returns its differences from the previous one.
    pub(super) fn activate(self) -> CatalogDifference {
        let Self {
            layers,
            mut state,
            next,
            catalog,
        } = self;
        report_left_out(&catalog);
        *state = next;
        let listing = CatalogListing::of(&catalog);
        let before = layers.catalog.replace(catalog);
        listing.since(&CatalogListing::of(&before))
    }
}

impl From<LayerError> for ApiError {
    fn from(error: LayerError) -> Self {
        match error {
            LayerError::Invalid(problems) => invalid(&problems),
            LayerError::Changed { active } => {
                let message = format!(
                    "Another administrator has changed the catalog: version {active} is active."
                );
                Self::new(ErrorCode::CatalogLayerChanged, message)
                    .with_detail("active_version", active)
            }
            LayerError::Free(prices) => {
                let message = format!(
                    "These prices become 0: {}. To confirm it, send confirm_free: true.",
                    prices.join(", ")
                );
                Self::invalid_request("confirm_free", message)
            }
            LayerError::Unknown => Self::new(
                ErrorCode::NotFound,
                "No version of the catalog layer has this number.",
            ),
            LayerError::Database(error) => Self::of_database(&error, "changed the catalog layer"),
        }
    }
}

/// 400 with the first problem of a layer in `param`, and with all in `problems`.
pub fn invalid(problems: &[Problem]) -> ApiError {
    let shown = &problems[..problems.len().min(MAX_PROBLEMS)];
    let sentence = |Problem { setting, what }: &Problem| format!("`{setting}` {what}.");
    let param = |problem: &Problem| format!("contents.{}", problem.setting);
    let message: Vec<_> = shown.iter().map(sentence).collect();
    let details: Value = shown
        .iter()
        .map(|problem| serde_json::json!({ "param": param(problem), "message": sentence(problem) }))
        .collect();
    ApiError::invalid_request(
        shown.first().map(param).unwrap_or_default(),
        message.join(" "),
    )
    .with_detail("problems", details)
}

/// Reads the summary of a change.
///
/// # Errors
///
/// 400 that names the field.
pub fn read_summary(summary: Option<String>) -> Result<Option<String>, ApiError> {
    let summary = summary.filter(|summary| !summary.is_empty());
    let is_valid = |summary: &String| {
        summary.chars().count() <= SUMMARY_CHARACTERS && !summary.contains(char::is_control)
    };
    match summary.as_ref().is_none_or(is_valid) {
        true => Ok(summary),
        false => {
            let what = format!(
                "A summary has at most {SUMMARY_CHARACTERS} characters and no control characters."
            );
            Err(ApiError::invalid_request("summary", what))
        }
    }
}

fn mark_of(stored: &StoredLayer) -> (i64, Millis) {
    (stored.version, stored.created_at)
}

/// Reads a stored layer; a later version of weir may have written other fields.
fn layer_of(stored: &StoredLayer) -> Result<Layer, Vec<Problem>> {
    let contents = serde_json::from_str(&stored.contents).map_err(|error| {
        vec![Problem {
            setting: "contents".to_owned(),
            what: format!("are invalid: {error}"),
        }]
    })?;
    Layer::read(contents)
}

async fn follow(layers: Weak<LayerParts>, mut announcements: Announcements) {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last_failure = String::new();
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = announcements.next() => {}
        }
        let Some(layers) = layers.upgrade() else {
            return;
        };
        match layers.look().await {
            Ok(()) => last_failure.clear(),
            // The gateway has stopped.
            Err(sqlx::Error::PoolClosed) => return,
            // Each reason is logged once: the database may be away for long.
            Err(error) => {
                let why = error.to_string();
                if why != last_failure {
                    tracing::warn!(%error, "polling the catalog layer");
                    last_failure = why;
                }
            }
        }
    }
}
