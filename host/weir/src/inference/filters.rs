//! Filters: components that inspect a request before routing, and its response before delivery.
//!
//! An operator configures filters for models and plans (`[[filters]]`). A request passes them in that order, and its
//! response in reverse. Each has its own guest for the request, which lives until the end of the response.
//!
//! **Invariant:** weir checks a filter's output like an adapter's: a change keeps the request's kind and refers to
//! existing attachments, a changed response is valid and within the same limits, and held-back text is bounded.
//! **Invariant:** the charge follows the upstream's usage, independent of filters. **Invariant:** if a filter fails,
//! weir rejects the request, unless the operator has made the filter optional; once an optional filter has changed a
//! response, its failure ends the response.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_dialects::{Attachment, ChatCall, ImageCall};
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::{AccountId, Plan};
use weir_plugins::canary::samples::Sampler;
use weir_plugins::counters::{ExchangeEnd, FilterEffects};
use weir_plugins::oversight::{ExchangeRecord, Oversight};
use weir_plugins::slots::ChosenComponent;
use weir_plugins::{FilterComponent, Plugin};
use weir_sandbox::adapter::bindings::chat::{Event, FinishReason};
use weir_sandbox::filter::bindings::filter::{Refusal, Request, Screened, Task, Upstream};
use weir_sandbox::filter::{FilterVerdict, FilterWatcher};
use weir_sandbox::{GuestError, printable};
use weir_upstream::error::{ExchangeError, LARGE_REQUEST_BYTES, can_be_of_size};
use weir_upstream::filter_rules::{
    FilterFault, LOOK_BEHIND_BYTES, check_annotations, check_change, choose, is_shown, spoken_bytes,
};
use weir_upstream::sequence::Sequence;
use weir_upstream::usage::RequestSize;

use super::InferenceParts;
use super::resolve;
use crate::catalog::filters::{FilterConfig, OnFailure};
use crate::catalog::{Catalog, Model};
use crate::context::RequestContext;

/// The filters' results besides the changed request.
#[derive(Default)]
pub struct FilterResult {
    /// The allowed upstreams, as indexes into the model's candidates, in order of preference; `None` if no filter has
    /// chosen.
    pub order: Option<Vec<usize>>,
    /// The filters of the response, in processing order.
    watchers: Vec<Watcher>,
}

/// The caller, as filters see it.
pub struct FilterCaller<'a> {
    /// The account that pays.
    pub account: &'a AccountId,
    /// The account's plan.
    pub plan: Plan,
    /// The request.
    pub context: &'a RequestContext,
}

/// The reasons for which a filter cannot run.
enum FilterUnavailable {
    /// Its slot has no active component.
    Empty,
    /// It rejects its options, or failed on them.
    Options(String),
}

/// Runs the filters of a chat request.
pub async fn screen_chat(
    parts: &InferenceParts,
    catalog: &Catalog,
    asker: FilterCaller<'_>,
    call: ChatCall,
) -> Result<(ChatCall, FilterResult), ApiError> {
    let Some(mut screening) = RequestScreening::of(parts, catalog, asker, &call.request.model)?
    else {
        return Ok((call, FilterResult::default()));
    };
    screening.body_bytes = call.body_bytes;
    screening.text_bytes = call.text_bytes();
    let (model, stream) = (call.request.model.clone(), call.request.stream);
    let counting = screening.model.image_counting();
    let size = RequestSize::of(&call.request, &call.attachments, counting);
    let dialect = call.client.dialect.clone();
    let request = screening.request(Task::Chat(call.request), &call.attachments, dialect, size);
    let (Task::Chat(mut request), passed) = Box::pin(screening.run(request)).await? else {
        return Err(ApiError::internal());
    };
    request.model = model;
    request.stream = stream;
    Ok((ChatCall { request, ..call }, passed))
}

/// Runs the filters of an image request.
pub async fn screen_images(
    parts: &InferenceParts,
    catalog: &Catalog,
    asker: FilterCaller<'_>,
    call: ImageCall,
) -> Result<(ImageCall, FilterResult), ApiError> {
    let Some(mut screening) = RequestScreening::of(parts, catalog, asker, &call.request.model)?
    else {
        return Ok((call, FilterResult::default()));
    };
    screening.body_bytes = call.body_bytes;
    screening.text_bytes = call.text_bytes();
    let (model, stream) = (call.request.model.clone(), call.request.stream);
    let counting = screening.model.image_counting();
    let size = RequestSize::of_images(&call.request, &call.attachments, counting);
    let dialect = call.client.dialect.clone();
    let request = screening.request(Task::Image(call.request), &call.attachments, dialect, size);
    let (Task::Image(mut request), passed) = Box::pin(screening.run(request)).await? else {
        return Err(ApiError::internal());
    };
    request.model = model;
    request.stream = stream;
    Ok((ImageCall { request, ..call }, passed))
}

/// A request during filtering.
struct RequestScreening<'a> {
    parts: &'a InferenceParts,
    asker: FilterCaller<'a>,
    filters: Vec<&'a FilterConfig>,
    model: &'a Model,
    /// The remaining candidates, in order.
    allowed: Vec<usize>,
    is_chosen: bool,
    body_bytes: usize,
    text_bytes: usize,
}

impl<'a> RequestScreening<'a> {
    /// Returns `None` if no filter applies, or if the model does not exist; a later step refuses that request.
    fn of(
        parts: &'a InferenceParts,
        catalog: &'a Catalog,
        asker: FilterCaller<'a>,
        model: &str,
    ) -> Result<Option<Self>, ApiError> {
        let Some(model) = catalog.model(model) else {
            return Ok(None);
        };
        let filters: Vec<_> = catalog
            .filters()
            .iter()
            .filter(|filter| filter.is_for(&model.id, asker.plan))
            .collect();
        if filters.is_empty() {
            return Ok(None);
        }
        let allowed = resolve::narrow(model, asker.context.wanted_provider())?;
        Ok(Some(Self {
            parts,
            asker,
            filters,
            model,
            allowed,
            is_chosen: false,
            body_bytes: 0,
            text_bytes: 0,
        }))
    }

    fn request(
        &self,
        task: Task,
        attachments: &[Attachment],
        dialect: String,
        size: RequestSize,
    ) -> Request {
        Request {
            task,
            attachments: attachments.iter().map(Attachment::described).collect(),
            dialect,
            plan: self.asker.plan.name().to_owned(),
            input_tokens: size.estimated_tokens(),
            upstreams: self.upstreams(),
        }
    }

    fn upstreams(&self) -> Vec<Upstream> {
        let candidates = self.allowed.iter().map(|at| &self.model.candidates[*at]);
        candidates
            .map(|candidate| Upstream {
                provider: candidate.upstream.name.clone(),
                model: candidate.model.clone(),
            })
            .collect()
    }

    async fn run(mut self, mut request: Request) -> Result<(Task, FilterResult), ApiError> {
        let mut watchers = Vec::new();
        for filter in std::mem::take(&mut self.filters) {
            let slot = &filter.slot;
            let (chosen, configuration) = match self.ready(filter).await {
                Ok(ready) => ready,
                Err(unready) => {
                    let why = match &unready {
                        FilterUnavailable::Empty => "its slot has no active component",
                        FilterUnavailable::Options(why) => why,
                    };
                    tracing::error!(slot, why, "a filter is unavailable");
                    match filter.on_failure {
                        OnFailure::Allow => continue,
                        OnFailure::Refuse => return Err(unavailable()),
                    }
                }
            };
            let mut watch =
                FilterMeasurement::new(self.parts, chosen, filter.on_failure, self.asker.account);
            let begun = Instant::now();
            let screened = watch
                .component
                .screen(&request, self.text_bytes, &configuration)
                .await;
            watch.took += begun.elapsed();
            let judged = match screened {
                Ok(Ok(verdict)) => {
                    let is_change = verdict.change.is_some();
                    let taken = self.take(&mut request, &watch.component, verdict);
                    watch.effects.changed = is_change && taken.is_ok();
                    taken
                }
                Ok(Err(refusal)) => {
                    watch.effects.refused = true;
                    return Err(refused(slot, refusal));
                }
                Err(error) => Err(error.into()),
            };
            match judged {
                Ok(Some(watching)) => watchers.push((watch, watching, filter.on_failure)),
                Ok(None) => {}
                Err(fault) => {
                    let error = watch.failed(&fault, self.body_bytes);
                    if filter.on_failure == OnFailure::Refuse {
                        return Err(error.into());
                    }
                }
            }
        }
        // Responses pass the filters in reverse order.
        let watchers = watchers.into_iter().rev();
        let watchers = watchers.map(|(watch, watching, on_failure)| Watcher {
            watch,
            watching: Some(watching),
            on_failure,
            body_bytes: self.body_bytes,
            sequence: None,
            held_back: 0,
            has_seen: false,
            is_restarted: false,
            has_changed: false,
        });
        let passed = FilterResult {
            order: self.is_chosen.then_some(self.allowed),
            watchers: watchers.collect(),
        };
        Ok((request.task, passed))
    }

    /// Returns the account's active component in a filter's slot, with its configuration.
    async fn ready(
        &self,
        filter: &FilterConfig,
    ) -> Result<(ChosenComponent<FilterComponent>, Arc<[u8]>), FilterUnavailable> {
        let plugins = &self.parts.plugins;
        let chosen = plugins.filter_for(&filter.slot, self.asker.account);
        let chosen = chosen.ok_or(FilterUnavailable::Empty)?;
        let configuration = chosen.component.configuration(&filter.options).await;
        match configuration {
            Ok(configuration) => Ok((chosen, configuration)),
            Err(error) => Err(FilterUnavailable::Options(error.to_string())),
        }
    }

    /// Applies a filter's decision, if it is valid.
    fn take(
        &mut self,
        request: &mut Request,
        component: &FilterComponent,
        verdict: FilterVerdict,
    ) -> Result<Option<FilterWatcher>, FilterFault> {
        if let Some(changed) = &verdict.change {
            check_change(&request.task, changed, request.attachments.len())?;
        }
        let chosen = choose(&verdict.upstreams, &self.allowed)?;
        check_annotations(&verdict.annotations)?;
        if let Some(changed) = verdict.change {
            request.task = changed;
        }
        if !chosen.is_empty() {
            self.allowed = chosen;
            self.is_chosen = true;
            request.upstreams = self.upstreams();
        }
        let slot = &component.code().name;
        for (name, value) in &verdict.annotations {
            let context = self.asker.context;
            context.note_annotation(format!("{slot}.{name}={value}"));
        }
        Ok(verdict.watching)
    }
}

fn refused(slot: &str, refusal: Refusal) -> ApiError {
    let why = printable(&refusal.why, 300);
    let message = format!("The filter {slot} rejects this request: it {why}.");
    let error = ApiError::new(ErrorCode::ContentFiltered, message);
    let error = error.with_detail("filter", slot);
    match refusal.param {
        Some(param) => error.with_param(printable(&param, 100)),
        None => error,
    }
}

fn unavailable() -> ApiError {
    ApiError::new(
        ErrorCode::FilterUnavailable,
        "A required filter is not active.",
    )
    .with_retry_after(Duration::from_secs(10))
}

/// A filter's cost and result for a request, recorded on drop.
struct FilterMeasurement {
    component: Arc<FilterComponent>,
    sampler: Option<Sampler>,
    oversight: Oversight,
    account: AccountId,
    is_guard: bool,
    took: Duration,
    effects: FilterEffects,
    ended: ExchangeEnd,
}

impl FilterMeasurement {
    fn new(
        parts: &InferenceParts,
        chosen: ChosenComponent<FilterComponent>,
        on_failure: OnFailure,
        account: &AccountId,
    ) -> Self {
        Self {
            component: chosen.component,
            sampler: chosen.sampler,
            oversight: parts.oversight.clone(),
            account: account.clone(),
            is_guard: on_failure == OnFailure::Refuse,
            took: Duration::ZERO,
            effects: FilterEffects::default(),
            ended: ExchangeEnd::Well,
        }
    }

    /// Records a failure on a request with a body of this size.
    fn failed(&mut self, fault: &FilterFault, body_bytes: usize) -> ExchangeError {
        let is_of_size = body_bytes > LARGE_REQUEST_BYTES
            && matches!(fault, FilterFault::Guest(error) if can_be_of_size(error));
        let error = match fault {
            FilterFault::Guest(GuestError::NoRoom) => ExchangeError::Guest(GuestError::NoRoom),
            _ if is_of_size => ExchangeError::TooLargeToFilter,
            _ => ExchangeError::Filter(self.component.code().name.clone()),
        };
        // A client must not be able to disable a filter for all clients by sending large requests.
        self.ended = match fault {
            FilterFault::Guest(GuestError::NoRoom) => ExchangeEnd::InError,
            _ if is_of_size => ExchangeEnd::InError,
            FilterFault::Guest(_) => ExchangeEnd::InTrap,
            _ => ExchangeEnd::InFault,
        };
        // The log already has the last words of a terminated guest.
        if !matches!(fault, FilterFault::Guest(_)) {
            let slot = &self.component.code().name;
            tracing::warn!(slot = &**slot, error = %fault, "a filter failed");
        }
        error
    }
}

impl Drop for FilterMeasurement {
    fn drop(&mut self) {
        let plugin = Plugin::Filter(self.component.clone());
        let noted = ExchangeRecord {
            ended: self.ended,
            took: self.took,
            effects: Some(self.effects),
            is_guard: self.is_guard,
            first_token: None,
            sampler: self.sampler.as_ref(),
        };
        self.oversight.note(&plugin, &self.account, noted);
    }
}

/// A filter of a response.
struct Watcher {
    watch: FilterMeasurement,
    /// `None` after the filter failed and the response continues without it.
    watching: Option<FilterWatcher>,
    on_failure: OnFailure,
    body_bytes: usize,
    /// Checks the filter's output.
    sequence: Option<Sequence>,
    /// Bytes of text that the filter received since its last output.
    held_back: usize,
    has_seen: bool,
    /// Whether the response begins anew with the next events.
    is_restarted: bool,
    has_changed: bool,
}

/// The filters of a response.
pub struct AnswerScreen {
    watchers: Vec<Watcher>,
    output_limit: u32,
    is_stopped: bool,
}

impl AnswerScreen {
    /// Returns the filters of a response with at most this many tokens; `None` if there are none.
    pub fn new(passed: FilterResult, output_limit: u32) -> Option<Self> {
        (!passed.watchers.is_empty()).then_some(Self {
            watchers: passed.watchers,
            output_limit,
            is_stopped: false,
        })
    }

    /// Whether a filter ended the response.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Passes events through the filters, and returns the client's events.
    ///
    /// # Errors
    ///
    /// [`ExchangeError::Filter`] if a required filter fails.
    pub async fn events(&mut self, mut events: Vec<Event>) -> Result<Vec<Event>, ExchangeError> {
        if self.is_stopped {
            return Ok(Vec::new());
        }
        for watcher in &mut self.watchers {
            let sequence = watcher
                .sequence
                .get_or_insert_with(|| Sequence::new(self.output_limit));
            let Some(watching) = &mut watcher.watching else {
                continue;
            };
            let begun = Instant::now();
            let mut look = FilterPass {
                watching,
                sequence,
                held_back: &mut watcher.held_back,
                has_changed: &mut watcher.has_changed,
                is_restarted: std::mem::take(&mut watcher.is_restarted),
                made: Vec::new(),
                is_stopped: false,
            };
            let shown = std::mem::take(&mut events);
            // Only optional filters need a copy: events that a failed filter has consumed must reach the client.
            let spare = match watcher.on_failure {
                OnFailure::Allow => shown.clone(),
                OnFailure::Refuse => Vec::new(),
            };
            watcher.has_seen = true;
            let outcome = look.show(shown).await;
            let FilterPass {
                made, is_stopped, ..
            } = look;
            watcher.watch.took += begun.elapsed();
            watcher.watch.effects.changed |= watcher.has_changed && !is_stopped;
            watcher.watch.effects.stopped |= is_stopped;
            match outcome {
                Ok(()) => events = made,
                Err(fault) => {
                    let error = watcher.watch.failed(&fault, watcher.body_bytes);
                    if watcher.on_failure == OnFailure::Refuse || watcher.has_changed {
                        return Err(error);
                    }
                    watcher.watching = None;
                    events = spare;
                }
            }
            self.is_stopped |= is_stopped;
        }
        Ok(events)
    }

    /// Checks that the filtered response is complete.
    pub fn end(&mut self) -> Result<(), ExchangeError> {
        for watcher in &mut self.watchers {
            let ended = watcher.sequence.as_ref().map_or(Ok(()), Sequence::end);
            if let (Err(error), Some(_)) = (ended, &watcher.watching) {
                return Err(watcher.watch.failed(&error.into(), watcher.body_bytes));
            }
        }
        Ok(())
    }

    /// Resets the filters for a new attempt, before the client received anything.
    pub fn restart(&mut self) {
        for watcher in &mut self.watchers {
            watcher.is_restarted = watcher.has_seen;
            watcher.sequence = None;
            watcher.held_back = 0;
            watcher.has_changed = false;
        }
    }
}

/// One filter's processing of a batch of events.
struct FilterPass<'a> {
    watching: &'a mut FilterWatcher,
    sequence: &'a mut Sequence,
    held_back: &'a mut usize,
    has_changed: &'a mut bool,
    is_restarted: bool,
    made: Vec<Event>,
    is_stopped: bool,
}

impl FilterPass<'_> {
    async fn show(&mut self, events: Vec<Event>) -> Result<(), FilterFault> {
        if self.is_restarted {
            self.watching.restart().await?;
        }
        // Most batches hold events of one kind only.
        if events.iter().all(is_shown) {
            return self.show_all(events).await;
        }
        let mut run = Vec::new();
        for event in events {
            if is_shown(&event) {
                run.push(event);
                continue;
            }
            self.show_all(std::mem::take(&mut run)).await?;
            if self.is_stopped {
                return Ok(());
            }
            self.follow(vec![event])?;
        }
        self.show_all(run).await
    }

    async fn show_all(&mut self, events: Vec<Event>) -> Result<(), FilterFault> {
        if events.is_empty() {
            return Ok(());
        }
        let bytes = events.iter().map(spoken_bytes).sum();
        match self.watching.events(&events, bytes).await? {
            Screened::Pass => {
                *self.held_back = 0;
                self.follow(events)
            }
            Screened::Replace(made) => {
                if !made.iter().all(is_shown) {
                    return Err(FilterFault::Forged);
                }
                *self.held_back = match made.iter().any(|event| spoken_bytes(event) > 0) {
                    true => 0,
                    false => *self.held_back + bytes,
                };
                if *self.held_back > LOOK_BEHIND_BYTES {
                    return Err(FilterFault::HeldBack);
                }
                self.follow(made)?;
                *self.has_changed = true;
                Ok(())
            }
            Screened::Stop => {
                *self.has_changed = true;
                self.is_stopped = true;
                let ends = self.sequence.cut(FinishReason::ContentFilter);
                self.follow(ends)
            }
        }
    }

    fn follow(&mut self, events: Vec<Event>) -> Result<(), FilterFault> {
        for event in &events {
            self.sequence.follow(event)?;
        }
        self.made.extend(events);
        Ok(())
    }
}
