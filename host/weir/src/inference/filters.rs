//! Filters: what looks at a request before it is routed, and at its answer before the client has it.
//!
//! An operator says which filters there are, for which models and plans (`[[filters]]`). A request goes through them in
//! that order, and its answer in the other one. Each has a guest of its own for the request, which lives on while it
//! watches the answer.
//!
//! **Invariant:** a filter's word is checked like an adapter's: a change keeps the request's kind and refers to what there
//! is, what it makes of an answer is an answer and within the same bounds, and what it holds back of one is bounded.
//! **Invariant:** the charge follows what the upstream has said, whatever filters make of it.
//! **Invariant:** a request whose filter fails is refused, unless the operator has said that it goes on without: but once
//! the filter has changed something of the answer, that ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_dialects::{Attachment, ChatCall, ImageCall};
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::{AccountId, Plan};
use weir_plugins::canary::samples::Sampler;
use weir_plugins::counters::{Ended, FilterEffects};
use weir_plugins::oversight::{Noted, Oversight};
use weir_plugins::slots::Chosen;
use weir_plugins::{FilterComponent, Plugin};
use weir_sandbox::adapter::bindings::chat::{Event, FinishReason};
use weir_sandbox::filter::bindings::filter::{Refusal, Request, Screened, Task, Upstream};
use weir_sandbox::filter::{Verdict, Watching};
use weir_sandbox::{GuestError, printable};
use weir_upstream::error::{ExchangeError, LARGE_REQUEST_BYTES, can_be_of_size};
use weir_upstream::filter_rules::{
    FilterFault, LOOK_BEHIND_BYTES, check_annotations, check_change, choose, is_shown, spoken_bytes,
};
use weir_upstream::sequence::Sequence;
use weir_upstream::usage::RequestSize;

use super::resolve;
use crate::app::App;
use crate::catalog::filters::{FilterConfig, OnFailure};
use crate::catalog::{Catalog, Model};
use crate::context::RequestContext;

/// What filters have made of a request, beside what is asked now.
#[derive(Default)]
pub struct Passed {
    /// The upstreams that may serve it, by their index among the model's candidates, in the order in which they are asked;
    /// `None` where no filter has chosen.
    pub order: Option<Vec<usize>>,
    /// Who watches the answer, in the order in which it is shown to them.
    watchers: Vec<Watcher>,
}

/// Who asks, as far as filters are concerned.
pub struct Asker<'a> {
    /// Whose request it is.
    pub account: &'a AccountId,
    /// That account's plan.
    pub plan: Plan,
    /// The request.
    pub context: &'a RequestContext,
}

/// Why a filter cannot look at anything at all.
enum Unready {
    /// Nothing serves in its slot.
    Empty,
    /// It does not take its options, or failed over them.
    Options(String),
}

/// Has the filters of a chat look at it.
pub async fn screen_chat(
    app: &App,
    catalog: &Catalog,
    asker: Asker<'_>,
    call: ChatCall,
) -> Result<(ChatCall, Passed), ApiError> {
    let Some(mut screening) = Screening::of(app, catalog, asker, &call.request.model)? else {
        return Ok((call, Passed::default()));
    };
    screening.body_bytes = call.body_bytes;
    screening.text_bytes = call.text_bytes();
    let (model, stream) = (call.request.model.clone(), call.request.stream);
    let size = RequestSize::of(&call.request, &call.attachments);
    let dialect = call.client.dialect.clone();
    let request = screening.request(Task::Chat(call.request), &call.attachments, dialect, size);
    let (Task::Chat(mut request), passed) = screening.run(request).await? else {
        return Err(ApiError::internal());
    };
    request.model = model;
    request.stream = stream;
    Ok((ChatCall { request, ..call }, passed))
}

/// Has the filters of a request for images look at it.
pub async fn screen_images(
    app: &App,
    catalog: &Catalog,
    asker: Asker<'_>,
    call: ImageCall,
) -> Result<(ImageCall, Passed), ApiError> {
    let Some(mut screening) = Screening::of(app, catalog, asker, &call.request.model)? else {
        return Ok((call, Passed::default()));
    };
    screening.body_bytes = call.body_bytes;
    screening.text_bytes = call.text_bytes();
    let (model, stream) = (call.request.model.clone(), call.request.stream);
    let size = RequestSize::of_images(&call.request);
    let dialect = call.client.dialect.clone();
    let request = screening.request(Task::Image(call.request), &call.attachments, dialect, size);
    let (Task::Image(mut request), passed) = screening.run(request).await? else {
        return Err(ApiError::internal());
    };
    request.model = model;
    request.stream = stream;
    Ok((ImageCall { request, ..call }, passed))
}

/// A request on its way through its filters.
struct Screening<'a> {
    app: &'a App,
    asker: Asker<'a>,
    filters: Vec<&'a FilterConfig>,
    model: &'a Model,
    /// The candidates that may still serve it, in order.
    allowed: Vec<usize>,
    is_chosen: bool,
    body_bytes: usize,
    text_bytes: usize,
}

impl<'a> Screening<'a> {
    /// `None` where no filter is for such requests, or there is no such model, which is refused later.
    fn of(
        app: &'a App,
        catalog: &'a Catalog,
        asker: Asker<'a>,
        model: &str,
    ) -> Result<Option<Self>, ApiError> {
        let filters: Vec<_> = catalog
            .filters()
            .iter()
            .filter(|filter| filter.is_for(model, asker.plan))
            .collect();
        let Some(model) = catalog.model(model).filter(|_| !filters.is_empty()) else {
            return Ok(None);
        };
        let allowed = resolve::narrow(model, asker.context.wanted_provider())?;
        Ok(Some(Self {
            app,
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
            input_tokens: size.estimated_tokens(self.model.max_image_tokens.into()),
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

    async fn run(mut self, mut request: Request) -> Result<(Task, Passed), ApiError> {
        let mut watchers = Vec::new();
        for filter in std::mem::take(&mut self.filters) {
            let slot = &filter.slot;
            let (chosen, configuration) = match self.ready(filter).await {
                Ok(ready) => ready,
                Err(unready) => {
                    let why = match &unready {
                        Unready::Empty => "nothing serves in its slot",
                        Unready::Options(why) => why,
                    };
                    tracing::error!(slot, why, "a filter is out of service");
                    match filter.on_failure {
                        OnFailure::Allow => continue,
                        OnFailure::Refuse => return Err(unavailable()),
                    }
                }
            };
            let mut watch = Watch::new(self.app, chosen, filter.on_failure, self.asker.account);
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
        // What the client has last is what its filters have seen first.
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
        let passed = Passed {
            order: self.is_chosen.then_some(self.allowed),
            watchers: watchers.collect(),
        };
        Ok((request.task, passed))
    }

    /// What serves the account in a filter's slot, and what it made of its options.
    async fn ready(
        &self,
        filter: &FilterConfig,
    ) -> Result<(Chosen<FilterComponent>, Arc<[u8]>), Unready> {
        let plugins = &self.app.plugins;
        let chosen = plugins.filter_for(&filter.slot, self.asker.account);
        let chosen = chosen.ok_or(Unready::Empty)?;
        let configuration = chosen.component.configuration(&filter.options).await;
        match configuration {
            Ok(configuration) => Ok((chosen, configuration)),
            Err(error) => Err(Unready::Options(error.to_string())),
        }
    }

    /// Takes a filter's word, as far as it makes sense.
    fn take(
        &mut self,
        request: &mut Request,
        component: &FilterComponent,
        verdict: Verdict,
    ) -> Result<Option<Watching>, FilterFault> {
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
        let slot = component.name();
        for (name, value) in &verdict.annotations {
            let context = self.asker.context;
            context.note_annotation(format!("{slot}.{name}={value}"));
        }
        Ok(verdict.watching)
    }
}

fn refused(slot: &str, refusal: Refusal) -> ApiError {
    let why = printable(&refusal.why, 300);
    let message = format!("The filter {slot} refuses this request: it {why}.");
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
        "A filter that this request must pass is out of service.",
    )
    .with_retry_after(Duration::from_secs(10))
}

/// What a filter has cost a request, and how it fared: counted when the request lets go of it.
struct Watch {
    component: Arc<FilterComponent>,
    sampler: Option<Sampler>,
    oversight: Oversight,
    account: AccountId,
    is_guard: bool,
    took: Duration,
    effects: FilterEffects,
    ended: Ended,
}

impl Watch {
    fn new(
        app: &App,
        chosen: Chosen<FilterComponent>,
        on_failure: OnFailure,
        account: &AccountId,
    ) -> Self {
        Self {
            component: chosen.component,
            sampler: chosen.sampler,
            oversight: app.oversight.clone(),
            account: account.clone(),
            is_guard: on_failure == OnFailure::Refuse,
            took: Duration::ZERO,
            effects: FilterEffects::default(),
            ended: Ended::Well,
        }
    }

    /// Notes that it has failed on a request with so large a body.
    fn failed(&mut self, fault: &FilterFault, body_bytes: usize) -> ExchangeError {
        let is_of_size = body_bytes > LARGE_REQUEST_BYTES
            && matches!(fault, FilterFault::Guest(error) if can_be_of_size(error));
        let error = match fault {
            FilterFault::Guest(GuestError::NoRoom) => ExchangeError::Guest(GuestError::NoRoom),
            _ if is_of_size => ExchangeError::TooLargeToFilter,
            _ => ExchangeError::Filter(self.component.name().clone()),
        };
        // No client may take a filter from all others by the size of what it sends.
        self.ended = match fault {
            FilterFault::Guest(GuestError::NoRoom) => Ended::InError,
            _ if is_of_size => Ended::InError,
            FilterFault::Guest(_) => Ended::InTrap,
            _ => Ended::InFault,
        };
        // What gave a guest up is in the log already, with its last words.
        if !matches!(fault, FilterFault::Guest(_)) {
            let slot = self.component.name();
            tracing::warn!(slot = &**slot, error = %fault, "a filter failed");
        }
        error
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let plugin = Plugin::Filter(self.component.clone());
        let noted = Noted {
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

/// A filter that watches an answer.
struct Watcher {
    watch: Watch,
    /// `None` once it has failed, and the answer goes on without it.
    watching: Option<Watching>,
    on_failure: OnFailure,
    body_bytes: usize,
    /// Follows what it makes of the answer.
    sequence: Option<Sequence>,
    /// Bytes of text that it was shown since anything came of it.
    held_back: usize,
    has_seen: bool,
    /// Whether the answer begins anew with the next events.
    is_restarted: bool,
    has_changed: bool,
}

/// Those who watch an answer.
pub struct AnswerScreen {
    watchers: Vec<Watcher>,
    output_limit: u32,
    is_stopped: bool,
}

impl AnswerScreen {
    /// For an answer of so many tokens at most; `None` where nobody watches it.
    pub fn new(passed: Passed, output_limit: u32) -> Option<Self> {
        (!passed.watchers.is_empty()).then_some(Self {
            watchers: passed.watchers,
            output_limit,
            is_stopped: false,
        })
    }

    /// Whether a filter has ended the answer.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// What is left of events for the client.
    ///
    /// # Errors
    ///
    /// [`ExchangeError::Filter`] where a filter fails that the answer does not go on without.
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
            let mut look = Look {
                watching,
                sequence,
                held_back: &mut watcher.held_back,
                has_changed: &mut watcher.has_changed,
                is_restarted: std::mem::take(&mut watcher.is_restarted),
                made: Vec::new(),
                is_stopped: false,
            };
            let shown = std::mem::take(&mut events);
            // What has been shown can't be had back of the ones who may fail: they are the exception.
            let spare = match watcher.on_failure {
                OnFailure::Allow => shown.clone(),
                OnFailure::Refuse => Vec::new(),
            };
            watcher.has_seen = true;
            let outcome = look.show(shown).await;
            let Look {
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

    /// Checks that what is left of the answer is complete.
    pub fn end(&mut self) -> Result<(), ExchangeError> {
        for watcher in &mut self.watchers {
            let ended = watcher.sequence.as_ref().map_or(Ok(()), Sequence::end);
            if let (Err(error), Some(_)) = (ended, &watcher.watching) {
                return Err(watcher.watch.failed(&error.into(), watcher.body_bytes));
            }
        }
        Ok(())
    }

    /// The answer begins anew: nothing of it has come to the client.
    pub fn restart(&mut self) {
        for watcher in &mut self.watchers {
            watcher.is_restarted = watcher.has_seen;
            watcher.sequence = None;
            watcher.held_back = 0;
            watcher.has_changed = false;
        }
    }
}

/// One filter's look at what has come.
struct Look<'a> {
    watching: &'a mut Watching,
    sequence: &'a mut Sequence,
    held_back: &'a mut usize,
    has_changed: &'a mut bool,
    is_restarted: bool,
    made: Vec<Event>,
    is_stopped: bool,
}

impl Look<'_> {
    async fn show(&mut self, events: Vec<Event>) -> Result<(), FilterFault> {
        if self.is_restarted {
            self.watching.restart().await?;
        }
        // Most often they are all of one kind.
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
