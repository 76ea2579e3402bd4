//! Filters: components that inspect a request before routing, and its response before delivery.
//!
//! An operator configures filters for models and plans (`[[filters]]`). A request passes them in that order, and its
//! response in reverse. Each has its own guest for the request, which lives until the end of the response.
//!
//! A filter may decide in steps ([`FilterStep`]): it asks its service once ([`FilterService`]), responds itself in place of
//! a provider, or gets the whole response at once.
//!
//! **Invariant:** weir checks a filter's output like an adapter's: a change keeps the request's kind and refers to
//! existing attachments, a changed response is valid and within the same limits, and held-back text is bounded.
//! **Invariant:** the charge follows the upstream's usage, independent of filters; a filter's own response costs nothing.
//! **Invariant:** if a filter fails, weir rejects the request, unless the operator has made the filter optional; once an
//! optional filter has changed a response, its failure ends the response.

mod measurement;
mod response;

use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_catalog::filter_service::FilterService;
use weir_catalog::filters::{FilterConfig, OnFailure};
use weir_catalog::{Catalog, Model};
use weir_dialects::{Attachment, plain, take_end_user};
use weir_errors::{ApiError, ErrorCode};
use weir_identity::filter_options::CallerFilterOptions;
use weir_kinds::{KindCall, ScreenedFields, ScreenedResponse};
use weir_ledger::{AccountId, Plan};
use weir_plugins::FilterComponent;
use weir_plugins::slots::ChosenComponent;
use weir_request::context::RequestContext;
use weir_sandbox::adapter::bindings::adapter::Client;
use weir_sandbox::adapter::bindings::chat::{
    Audio, Content, Event, ExtraField, Message, Role, Source,
};
use weir_sandbox::adapter::{OtherRequest, text_chat};
use weir_sandbox::filter::bindings::filter::{Refusal, Request, Task, Upstream};
use weir_sandbox::filter::{FilterStep, FilterVerdict, FilterWatcher, ScreeningContext};
use weir_sandbox::printable;
use weir_upstream::filter_rules::{
    FilterFault, check_annotations, check_change, check_own_response, choose, undecided,
};
use weir_upstream::usage::RequestSize;

use self::measurement::FilterMeasurement;
pub use self::response::AnswerScreen;
use self::response::Watcher;
use super::InferenceParts;
use super::resolve::ProviderChoice;
use super::work::Work;

/// The filters' results besides the changed request.
#[derive(Default)]
pub struct FilterResult {
    /// The allowed upstreams, as indexes into the model's candidates, in order of preference; `None` if no filter has
    /// chosen.
    pub order: Option<Vec<usize>>,
    /// The response of a filter, which passes the filters before that one. No upstream gets the request.
    pub response: Option<Vec<Event>>,
    /// The filters of the response, in processing order.
    watchers: Vec<Watcher>,
}

impl FilterResult {
    /// Returns the filters of a response with at most this many tokens; `None` if there are none.
    pub fn answer_screen(self, output_limit: u32) -> Option<AnswerScreen> {
        AnswerScreen::of(self.watchers, output_limit)
    }
}

/// The caller, as filters see it.
pub struct FilterCaller<'a> {
    /// The account that pays.
    pub account: &'a AccountId,
    /// The account's plan.
    pub plan: Plan,
    /// The options of the key and the account.
    pub options: &'a CallerFilterOptions,
    /// The providers that the request may use.
    pub choice: &'a ProviderChoice<'a>,
    /// The request.
    pub context: &'a RequestContext,
}

/// The reasons for which a filter cannot run.
enum FilterUnavailable {
    /// Its slot has no active component.
    Empty,
    /// It rejects its options, or failed on them.
    Options(String),
    /// It guards, and its component may leave texts unread.
    Unread,
}

/// A filter's decision about a request.
enum FilterDecision {
    Verdict(Box<FilterVerdict>),
    Response(Vec<Event>),
}

/// Runs the filters of a request.
pub async fn screen(
    parts: &InferenceParts,
    catalog: &Catalog,
    asker: FilterCaller<'_>,
    work: Work,
) -> Result<(Work, FilterResult), ApiError> {
    let Some(screening) = RequestScreening::of(parts, catalog, asker, work.model())? else {
        return Ok((work, FilterResult::default()));
    };
    let counting = screening.model.image_counting();
    Ok(match work {
        Work::Chat(mut call) => {
            let size = RequestSize::of(&call.request, &call.attachments, counting);
            let screening = screening.sized(size, call.body_bytes, call.text_bytes());
            let task = Task::Chat(call.request);
            let screened = screen_task(screening, task, &call.attachments, &mut call.client);
            let (Task::Chat(request), passed) = screened.await? else {
                return Err(ApiError::internal());
            };
            call.request = request;
            (Work::Chat(call), passed)
        }
        Work::Images(mut call) => {
            let size = RequestSize::of_images(&call.request, &call.attachments, counting);
            let screening = screening.sized(size, call.body_bytes, call.text_bytes());
            let task = Task::Image(call.request);
            let screened = screen_task(screening, task, &call.attachments, &mut call.client);
            let (Task::Image(request), passed) = screened.await? else {
                return Err(ApiError::internal());
            };
            call.request = request;
            (Work::Images(call), passed)
        }
        Work::Other(mut call) => {
            let passed = screen_kind(screening, &mut call).await?;
            (Work::Other(call), passed)
        }
    })
}

/// Runs the filters of a chat or of images, and takes over the id of the end user from the changed fields. A filter changes
/// neither the model nor whether the client wants a stream.
async fn screen_task(
    screening: RequestScreening<'_>,
    mut task: Task,
    attachments: &[Attachment],
    client: &mut Client,
) -> Result<(Task, FilterResult), ApiError> {
    let (model, stream, _) = fields(&mut task);
    let (wanted_model, wants_stream) = (model.clone(), *stream);
    let request = screening.request(task, attachments, client.dialect.clone());
    let (mut task, passed) = Box::pin(screening.run(request)).await?;
    let (model, stream, extra) = fields(&mut task);
    *model = wanted_model;
    *stream = wants_stream;
    take_end_user(client, extra);
    Ok((task, passed))
}

/// Returns the model, whether the client wants a stream, and the fields beyond the vocabulary.
fn fields(task: &mut Task) -> (&mut String, &mut bool, &[ExtraField]) {
    match task {
        Task::Chat(request) => (&mut request.model, &mut request.stream, &request.extra),
        Task::Image(request) => (&mut request.model, &mut request.stream, &request.extra),
    }
}

/// Runs the filters of a request of another kind. They see its texts, that it has a recording, and a response of text, but no
/// other data.
async fn screen_kind(
    screening: RequestScreening<'_>,
    call: &mut KindCall,
) -> Result<FilterResult, ApiError> {
    let rules = weir_kinds::kind(&call.request);
    rules.check_screened()?;
    let (size, response) = (rules.size(), rules.screened_response());
    let screening = screening.sized(size, call.body_bytes, call.text_bytes());
    let mut passed = screen_fields(screening, &mut call.request, call.attachments.first()).await?;
    let extra = call.request.extra().to_vec();
    take_end_user(call.request.client_mut(), &extra);
    match response {
        ScreenedResponse::None if passed.response.is_some() => return Err(no_place()),
        ScreenedResponse::None => passed.watchers.clear(),
        ScreenedResponse::TimedText if !passed.watchers.is_empty() => {
            let message = "response_format must not be verbose_json, because a filter checks responses of this model.";
            return Err(ApiError::invalid_request("response_format", message));
        }
        ScreenedResponse::TimedText | ScreenedResponse::Text => {}
    }
    Ok(passed)
}

/// Runs the filters of a request of texts. They see a chat with a message of the user for each text, and one for a
/// recording, so that every filter guards such requests, too.
async fn screen_fields(
    screening: RequestScreening<'_>,
    request: &mut OtherRequest,
    recording: Option<&Attachment>,
) -> Result<FilterResult, ApiError> {
    let (model, dialect) = (request.model().to_owned(), request.client().dialect.clone());
    let ScreenedFields {
        texts,
        words,
        extra,
    } = weir_kinds::kind_mut(request).screened_mut();
    let mut chat = text_chat(model, texts.iter().map(|text| (**text).clone()));
    chat.messages.extend(recording.map(|_| recording_message()));
    chat.extra = words
        .iter()
        .map(|(name, word)| word_field(name, word))
        .collect();
    chat.extra.extend_from_slice(extra);
    let names: Vec<_> = chat.extra.iter().map(|(name, _)| name.clone()).collect();
    let attachments = recording.map(std::slice::from_ref).unwrap_or_default();
    let request = screening.request(Task::Chat(chat), attachments, dialect);
    let (Task::Chat(mut chat), passed) = Box::pin(screening.run(request)).await? else {
        return Err(ApiError::internal());
    };
    let failed = || ApiError::new(ErrorCode::FilterFailed, "A required filter failed.");
    if recording.is_some() && chat.messages.pop() != Some(recording_message()) {
        return Err(failed());
    }
    let changed: Option<Vec<String>> = chat.messages.into_iter().map(only_text).collect();
    let changed = changed.ok_or_else(failed)?;
    let has_all_fields = chat.extra.iter().map(|(name, _)| name).eq(&names);
    if changed.len() != texts.len() || !has_all_fields {
        return Err(failed());
    }
    for (text, changed) in texts.into_iter().zip(changed) {
        *text = changed;
    }
    let others = chat.extra.split_off(words.len());
    for ((_, word), (_, json)) in words.into_iter().zip(chat.extra) {
        *word = serde_json::from_str(&json).map_err(|_| failed())?;
    }
    *extra = others;
    Ok(passed)
}

/// Returns the message that stands for the request's recording.
fn recording_message() -> Message {
    Message {
        role: Role::User,
        name: None,
        parts: vec![plain(Content::Audio(Audio {
            source: Source::Attachment(0),
            format: None,
        }))],
        extra: Vec::new(),
    }
}

fn word_field(name: &str, word: &str) -> ExtraField {
    (name.to_owned(), serde_json::Value::from(word).to_string())
}

fn no_place() -> ApiError {
    let message =
        "A filter responds to this request with a text, which this endpoint has no place for.";
    ApiError::new(ErrorCode::ContentFiltered, message)
}

/// Returns the text of a message with one part.
fn only_text(message: Message) -> Option<String> {
    let mut parts = message.parts.into_iter();
    match (parts.next()?.content, parts.next()) {
        (Content::Text(text), None) if !text.is_empty() => Some(text),
        _ => None,
    }
}

/// A request during filtering.
struct RequestScreening<'a> {
    parts: &'a InferenceParts,
    asker: FilterCaller<'a>,
    filters: Vec<(&'a FilterConfig, Option<&'a FilterService>)>,
    model: &'a Model,
    /// The remaining candidates, in order.
    allowed: Vec<usize>,
    is_chosen: bool,
    size: RequestSize,
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
            .filter(|(filter, _)| filter.is_for(&model.id, asker.plan))
            .collect();
        if filters.is_empty() {
            return Ok(None);
        }
        let allowed = asker.choice.narrow(model)?;
        Ok(Some(Self {
            parts,
            asker,
            filters,
            model,
            allowed,
            is_chosen: false,
            size: RequestSize::default(),
            body_bytes: 0,
            text_bytes: 0,
        }))
    }

    /// Sets the size of the request, and the bytes of its body with and without files.
    fn sized(self, size: RequestSize, body_bytes: usize, text_bytes: usize) -> Self {
        Self {
            size,
            body_bytes,
            text_bytes,
            ..self
        }
    }

    fn request(&self, task: Task, attachments: &[Attachment], dialect: String) -> Request {
        Request {
            task,
            attachments: attachments.iter().map(Attachment::described).collect(),
            dialect,
            plan: self.asker.plan.name().to_owned(),
            input_tokens: self.size.estimated_tokens(),
            upstreams: self.upstreams(),
        }
    }

    fn upstreams(&self) -> Vec<Upstream> {
        let candidates = self.allowed.iter().map(|at| &self.model.candidates[*at]);
        candidates
            .map(|candidate| Upstream {
                provider: candidate.upstream().name.clone(),
                model: candidate.model.clone(),
            })
            .collect()
    }

    async fn run(mut self, mut request: Request) -> Result<(Task, FilterResult), ApiError> {
        let (mut watchers, mut response) = (Vec::new(), None);
        for (filter, service) in std::mem::take(&mut self.filters) {
            let slot = &filter.slot;
            let (chosen, configuration) = match self.ready(filter).await {
                Ok(ready) => ready,
                Err(unready) => {
                    let why = match &unready {
                        FilterUnavailable::Empty => "its slot has no active component",
                        FilterUnavailable::Options(why) => why,
                        FilterUnavailable::Unread => "its component may leave texts unread",
                    };
                    tracing::error!(slot, why, "a filter is unavailable");
                    match filter.on_failure {
                        OnFailure::Allow => continue,
                        OnFailure::Refuse => return Err(unavailable()),
                    }
                }
            };
            let (oversight, account) = (&self.parts.oversight, self.asker.account);
            let mut watch = FilterMeasurement::new(oversight, chosen, filter.on_failure, account);
            let begun = Instant::now();
            let component = &watch.component;
            let context = self.context(filter, service);
            let screened = self.decide(component, service, &request, &context, &configuration);
            let screened = screened.await;
            watch.took += begun.elapsed();
            let judged = match screened {
                Ok(Ok(FilterDecision::Verdict(verdict))) => {
                    let is_change = verdict.change.is_some();
                    let whole_bytes = verdict.is_on_whole.then_some(filter.whole_bytes);
                    let taken = self.take(&mut request, &watch.component, *verdict, whole_bytes);
                    watch.effects.changed = is_change && taken.is_ok();
                    taken.map(|watching| watching.map(|watching| (watching, whole_bytes)))
                }
                Ok(Ok(FilterDecision::Response(events))) => {
                    watch.effects.answered = true;
                    response = Some(events);
                    break;
                }
                Ok(Err(refusal)) => {
                    watch.effects.refused = true;
                    return Err(refused(slot, refusal));
                }
                Err(fault) => Err(fault),
            };
            match judged {
                Ok(Some((watching, whole_bytes))) => watchers.push(Watcher::new(
                    watch,
                    watching,
                    filter.on_failure,
                    self.body_bytes,
                    whole_bytes,
                )),
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
        watchers.reverse();
        let passed = FilterResult {
            order: self.is_chosen.then_some(self.allowed),
            response,
            watchers,
        };
        Ok((request.task, passed))
    }

    fn context(&self, filter: &FilterConfig, service: Option<&FilterService>) -> ScreeningContext {
        ScreeningContext {
            key_options: self.asker.options.key.pairs(),
            account_options: self.asker.options.account.pairs(),
            has_service: service.is_some(),
            whole_bytes: filter.whole_bytes,
        }
    }

    /// Runs a filter to its decision. The filter may ask its service once.
    async fn decide(
        &self,
        component: &FilterComponent,
        service: Option<&FilterService>,
        request: &Request,
        context: &ScreeningContext,
        configuration: &[u8],
    ) -> Result<Result<FilterDecision, Refusal>, FilterFault> {
        let screening = component.screen(request, self.text_bytes, context, configuration);
        let mut step = screening.await?;
        if let Ok(FilterStep::AskService(body, pending)) = step {
            let service = service.ok_or(FilterFault::NoService)?;
            let reply = service.ask(&self.parts.guard, body).await?;
            step = pending.replied(&reply).await?;
        }
        Ok(match step {
            Ok(FilterStep::Decide(verdict)) => Ok(FilterDecision::Verdict(verdict)),
            Ok(FilterStep::Respond(events)) => {
                check_own_response(&request.task, &events)?;
                Ok(FilterDecision::Response(events))
            }
            Ok(FilterStep::AskService(..)) => return Err(FilterFault::AskedTwice),
            Ok(FilterStep::Fail(why)) => return Err(undecided(&why)),
            Err(refusal) => Err(refusal),
        })
    }

    /// Returns the account's active component in a filter's slot, with its configuration.
    async fn ready(
        &self,
        filter: &FilterConfig,
    ) -> Result<(ChosenComponent<FilterComponent>, Arc<[u8]>), FilterUnavailable> {
        let plugins = &self.parts.plugins;
        let chosen = plugins.filter_for(&filter.slot, self.asker.account);
        let chosen = chosen.ok_or(FilterUnavailable::Empty)?;
        if filter.guard && !chosen.component.reads_all() {
            return Err(FilterUnavailable::Unread);
        }
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
        whole_bytes: Option<u32>,
    ) -> Result<Option<FilterWatcher>, FilterFault> {
        if whole_bytes == Some(0) {
            return Err(FilterFault::NoWhole);
        }
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
