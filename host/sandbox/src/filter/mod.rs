//! Filters: plugins that inspect a request before its routing, and its response before the client gets it.
//!
//! A filter does no I/O, like an adapter. Each request has a guest of its own. The guest lives on as [`FilterWatcher`] if
//! the filter inspects the response, and is dropped at once otherwise. A filter's description and the check of it are
//! in [`description`].
//!
//! A filter that exports the optional interface `filter-steps` decides in steps ([`FilterStep`]). A component that exports
//! it with other types is refused: without its steps, it could pass requests that it means to stop.
//!
//! A filter that exports the optional interface `filter-walk` names the version of its walk over a request. One without it,
//! or with an earlier version than [`WALK_VERSION`], may let a text pass unread ([`LoadedFilter::reads_all`]).

pub mod bindings;
pub mod description;

use wasmtime::component::{InstancePre, ResourceAny};

use self::bindings::filter::{
    Annotation, Description, Refusal, RefusedSetting, Request, Screened, Setting, Task, Upstream,
    Verdict,
};
use self::bindings::filter_steps::{Begun, Context, Step};
use crate::adapter::stock_chat;
use crate::configuration::{self, ConfigureError};
use crate::exports::{Export, Interface, exports};
use crate::guest::{Guest, GuestError};
use crate::load_error::LoadError;
use crate::vocabulary::chat::Event;
use crate::world::{Instance, LoadedCode, Program, World};

exports! {
    /// The functions of a filter.
    pub FilterExports of "weir:plugin/filter@0.2.3" {
        describe: Describe = "describe" () -> (Description,);
        configure: Configure = "configure" (&'a [Setting]) -> (Result<Vec<u8>, RefusedSetting>,);
        screen: Screen = "screen" (&'a Request, &'a [u8]) -> (Result<Verdict, Refusal>,);
        events: Events = "[method]answer.events" (ResourceAny, &'a [Event]) -> (Screened,);
        restart: Restart = "[method]answer.restart" (ResourceAny) -> ();
    }
}

exports! {
    /// The functions of the optional interface.
    pub StepExports of "weir:plugin/filter-steps@0.2.3" {
        begin: Begin = "[static]screening.begin" (&'a Request, &'a Context, &'a [u8]) -> (Result<Begun, Refusal>,);
        replied: Replied = "[method]screening.replied" (ResourceAny, &'a [u8]) -> (Result<Step, Refusal>,);
    }
}

exports! {
    /// The function of the optional interface about the walk over a request.
    pub WalkExports of "weir:plugin/filter-walk@0.2.3" {
        version: WalkVersion = "version" () -> (u32,);
    }
}

/// The current version of the walk over a request; see `wit/filter-walk.wit`.
pub const WALK_VERSION: u32 = 1;

/// The functions of a filter, with or without steps.
#[derive(Clone, Copy)]
pub struct AllExports {
    filter: FilterExports,
    steps: Option<StepExports>,
    walk: Option<WalkExports>,
}

/// The worlds `request-filter`, `stepwise-filter`, `walking-filter` and `guarding-filter`.
#[derive(Debug)]
pub enum FilterWorld {}

impl World for FilterWorld {
    type Host = ();
    type Exports = AllExports;
    type Plugin = LoadedFilter;

    const NAME: &'static str = "weir:plugin/request-filter@0.2";
    const EXPORT: &'static str = "weir:plugin/filter";
    const IMPORTS: &'static [&'static str] = &["weir:plugin/chat@0.2.", "weir:plugin/log@0.2."];

    fn find_exports(component: &InstancePre<Guest<()>>) -> wasmtime::Result<AllExports> {
        let has_steps = Interface::is_exported(component, "weir:plugin/filter-steps");
        let has_walk = Interface::is_exported(component, "weir:plugin/filter-walk");
        Ok(AllExports {
            filter: FilterExports::find(component)?,
            steps: has_steps
                .then(|| StepExports::find(component))
                .transpose()?,
            walk: has_walk.then(|| WalkExports::find(component)).transpose()?,
        })
    }

    async fn admit(program: Program<Self>) -> Result<LoadedFilter, LoadError> {
        let mut instance = program.start(()).await.map_err(LoadError::Describe)?;
        let (described,) = instance
            .call(|all| all.filter.describe, ())
            .await
            .map_err(LoadError::Describe)?;
        description::check(&described).map_err(LoadError::Description)?;
        let walk_version = match program.exports().walk {
            Some(walk) => {
                let called = instance.call(|_| walk.version, ()).await;
                called.map_err(LoadError::Describe)?.0
            }
            None => 0,
        };
        let filter = LoadedFilter {
            description: described,
            walk_version,
            program,
        };
        filter.test_itself().await.map_err(LoadError::SelfTest)?;
        Ok(filter)
    }
}

/// A component that has passed every load step and can inspect requests.
pub struct LoadedFilter {
    pub description: Description,
    /// The version of its walk over a request; 0 if it names none. It is not part of the stored description, which nodes of
    /// earlier releases compare.
    pub walk_version: u32,
    program: Program<FilterWorld>,
}

/// A filter's verdict on a request.
pub struct FilterVerdict {
    /// The changed request, if the filter changes it.
    pub change: Option<Task>,
    /// The upstreams that may serve the request, by index, as the guest gave them.
    pub upstreams: Vec<u32>,
    /// The guest's annotations.
    pub annotations: Vec<Annotation>,
    /// The filter's watch on the response, if it wants one.
    pub watching: Option<FilterWatcher>,
    /// Whether the watch gets the whole response at once.
    pub is_on_whole: bool,
}

/// A filter's next step.
pub enum FilterStep {
    Decide(Box<FilterVerdict>),
    /// The response to the request, in place of a provider's.
    Respond(Vec<Event>),
    /// The body of a request to its service, and the guest that waits for the response.
    AskService(Vec<u8>, Box<PendingScreening>),
    /// The reason that it cannot decide.
    Fail(String),
}

/// The facts that a filter gets beside the request.
pub type ScreeningContext = Context;

impl LoadedFilter {
    pub fn code(&self) -> &LoadedCode {
        self.program.code()
    }

    /// Whether it reads all places of a request whose text a model reads.
    pub fn reads_all(&self) -> bool {
        self.walk_version >= WALK_VERSION
    }

    /// Lets the filter parse an operator's options, once; each request carries the result.
    ///
    /// # Errors
    ///
    /// [`ConfigureError::Refused`] names an unknown or invalid option.
    pub async fn configure(&self, options: &[Setting]) -> Result<Vec<u8>, ConfigureError> {
        configuration::check_names(&self.description.options, options)?;
        let mut instance = self.program.start(()).await?;
        let (configured,) = instance
            .call(|all| all.filter.configure, (options,))
            .await?;
        configuration::check_made(configured.map_err(|refused| (refused.name, refused.why)))
    }

    /// Inspects a request of about this many bytes in a fresh instance. The configuration is the result of
    /// [`LoadedFilter::configure`].
    ///
    /// # Errors
    ///
    /// Returns the reason that the guest was stopped. A refusal of the request is a result.
    pub async fn screen(
        &self,
        request: &Request,
        request_bytes: usize,
        context: &ScreeningContext,
        configuration: &[u8],
    ) -> Result<Result<FilterStep, Refusal>, GuestError> {
        let mut instance = self.program.start(()).await?;
        let Some(steps) = self.program.exports().steps else {
            let (verdict,) = instance
                .call_with(
                    request_bytes,
                    |all| all.filter.screen,
                    (request, configuration),
                )
                .await?;
            return Ok(verdict.map(|verdict| FilterStep::decide(instance, verdict, false)));
        };
        let (begun,) = instance
            .call_with(
                request_bytes,
                |_| steps.begin,
                (request, context, configuration),
            )
            .await?;
        Ok(begun.map(|begun| {
            let pending = PendingScreening {
                instance,
                handle: begun.screening,
                replied: steps.replied,
            };
            pending.take(begun.step)
        }))
    }

    /// Inspects a stock request: a component that fails it would fail every request.
    async fn test_itself(&self) -> Result<(), String> {
        let configuration = match self.configure(&[]).await {
            Ok(configuration) => configuration,
            // The filter needs settings, which only its operator has.
            Err(ConfigureError::Refused { .. }) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        let context = ScreeningContext {
            key_options: Vec::new(),
            account_options: Vec::new(),
            has_service: false,
            whole_bytes: 0,
        };
        let (request, bytes) = (stock_request(), 0);
        let screened = self.screen(&request, bytes, &context, &configuration).await;
        screened.map(drop).map_err(|error| error.to_string())
    }
}

impl FilterStep {
    fn decide(instance: Instance<FilterWorld>, verdict: Verdict, is_on_whole: bool) -> Self {
        Self::Decide(Box::new(FilterVerdict {
            change: verdict.change,
            upstreams: verdict.upstreams,
            annotations: verdict.annotations,
            watching: verdict
                .answer
                .map(|handle| FilterWatcher { instance, handle }),
            is_on_whole,
        }))
    }
}

/// A filter's guest that waits for the response of its service.
pub struct PendingScreening {
    instance: Instance<FilterWorld>,
    handle: ResourceAny,
    replied: Export<Replied>,
}

impl PendingScreening {
    /// Passes the service's response, and returns the next step.
    pub async fn replied(mut self, body: &[u8]) -> Result<Result<FilterStep, Refusal>, GuestError> {
        let (handle, replied) = (self.handle, self.replied);
        let (step,) = self
            .instance
            .call_with(body.len(), |_| replied, (handle, body))
            .await?;
        Ok(step.map(|step| self.take(step)))
    }

    fn take(self, step: Step) -> FilterStep {
        match step {
            Step::Decide(verdict) => FilterStep::decide(self.instance, verdict, false),
            Step::DecideOnWhole(verdict) => FilterStep::decide(self.instance, verdict, true),
            Step::Respond(events) => FilterStep::Respond(events),
            Step::AskService(body) => FilterStep::AskService(body, Box::new(self)),
            Step::Fail(why) => FilterStep::Fail(why),
        }
    }
}

/// A filter's guest that inspects a response.
pub struct FilterWatcher {
    instance: Instance<FilterWorld>,
    handle: ResourceAny,
}

impl FilterWatcher {
    /// Passes the next events, of about this many bytes.
    pub async fn events(&mut self, events: &[Event], bytes: usize) -> Result<Screened, GuestError> {
        let parameters = (self.handle, events);
        let called = self
            .instance
            .call_with(bytes, |all| all.filter.events, parameters);
        let (screened,) = called.await?;
        Ok(screened)
    }

    /// Reports that the response begins anew.
    pub async fn restart(&mut self) -> Result<(), GuestError> {
        let parameters = (self.handle,);
        self.instance
            .call(|all| all.filter.restart, parameters)
            .await
    }
}

fn stock_request() -> Request {
    Request {
        task: Task::Chat(stock_chat()),
        attachments: Vec::new(),
        dialect: "self-test".into(),
        plan: "self-test".into(),
        input_tokens: 1,
        upstreams: vec![Upstream {
            provider: "self-test".into(),
            model: "self-test".into(),
        }],
    }
}
