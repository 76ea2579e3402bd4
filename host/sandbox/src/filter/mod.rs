//! Filters: plugins that inspect a request before its routing, and its response before the client gets it.
//!
//! A filter does no I/O, like an adapter. Each request has a guest of its own. The guest lives on as [`FilterWatcher`] if
//! the filter inspects the response, and is dropped at once otherwise. A filter's description and the check of it are
//! in [`description`].

pub mod bindings;
pub mod description;

use wasmtime::component::{InstancePre, ResourceAny};

use self::bindings::filter::{
    Annotation, Description, Refusal, RefusedSetting, Request, Screened, Setting, Task, Upstream,
    Verdict,
};
use crate::adapter::stock_chat;
use crate::configuration::{self, ConfigureError};
use crate::exports::exports;
use crate::guest::{Guest, GuestError};
use crate::load_error::LoadError;
use crate::vocabulary::chat::Event;
use crate::world::{Instance, LoadedCode, Program, World};

exports! {
    /// The functions of a filter.
    FilterExports of "weir:plugin/filter@0.2.1" {
        describe: Describe = "describe" () -> (Description,);
        configure: Configure = "configure" (&'a [Setting]) -> (Result<Vec<u8>, RefusedSetting>,);
        screen: Screen = "screen" (&'a Request, &'a [u8]) -> (Result<Verdict, Refusal>,);
        events: Events = "[method]answer.events" (ResourceAny, &'a [Event]) -> (Screened,);
        restart: Restart = "[method]answer.restart" (ResourceAny) -> ();
    }
}

/// The world `request-filter`.
#[derive(Debug)]
pub enum FilterWorld {}

impl World for FilterWorld {
    type Host = ();
    type Exports = FilterExports;
    type Plugin = LoadedFilter;

    const NAME: &'static str = "weir:plugin/request-filter@0.2";
    const EXPORT: &'static str = "weir:plugin/filter";
    const IMPORTS: &'static [&'static str] = &["weir:plugin/chat@0.2.", "weir:plugin/log@0.2."];

    fn find_exports(component: &InstancePre<Guest<()>>) -> wasmtime::Result<FilterExports> {
        FilterExports::find(component)
    }

    async fn admit(program: Program<Self>) -> Result<LoadedFilter, LoadError> {
        let mut instance = program.start(()).await.map_err(LoadError::Describe)?;
        let (described,) = instance
            .call(|filter| filter.describe, ())
            .await
            .map_err(LoadError::Describe)?;
        description::check(&described).map_err(LoadError::Description)?;
        let filter = LoadedFilter {
            description: described,
            program,
        };
        filter.test_itself().await.map_err(LoadError::SelfTest)?;
        Ok(filter)
    }
}

/// A component that has passed every load step and can inspect requests.
pub struct LoadedFilter {
    /// The filter's description.
    pub description: Description,
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
}

impl LoadedFilter {
    /// Its code.
    pub fn code(&self) -> &LoadedCode {
        self.program.code()
    }

    /// Lets the filter parse an operator's options, once; each request carries the result.
    ///
    /// # Errors
    ///
    /// [`ConfigureError::Refused`] names an unknown or invalid option.
    pub async fn configure(&self, options: &[Setting]) -> Result<Vec<u8>, ConfigureError> {
        configuration::check_names(&self.description.options, options)?;
        let mut instance = self.program.start(()).await?;
        let (configured,) = instance.call(|filter| filter.configure, (options,)).await?;
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
        configuration: &[u8],
    ) -> Result<Result<FilterVerdict, Refusal>, GuestError> {
        let mut instance = self.program.start(()).await?;
        let (verdict,) = instance
            .call_with(
                request_bytes,
                |filter| filter.screen,
                (request, configuration),
            )
            .await?;
        Ok(verdict.map(|verdict| FilterVerdict {
            change: verdict.change,
            upstreams: verdict.upstreams,
            annotations: verdict.annotations,
            watching: verdict
                .answer
                .map(|handle| FilterWatcher { instance, handle }),
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
        let screened = self.screen(&stock_request(), 0, &configuration).await;
        screened.map(drop).map_err(|error| error.to_string())
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
            .call_with(bytes, |filter| filter.events, parameters);
        let (screened,) = called.await?;
        Ok(screened)
    }

    /// Reports that the response begins anew.
    pub async fn restart(&mut self) -> Result<(), GuestError> {
        let parameters = (self.handle,);
        self.instance
            .call(|filter| filter.restart, parameters)
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
