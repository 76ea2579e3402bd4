//! Tools: functions that an agent's model can call, each call in a guest of its own.
//!
//! A tool reaches the outside through [`Outbound`] alone, which the caller passes with the call: the sandbox knows
//! nothing of policies, credentials or HTTP. A tool's description and the check of it are in [`description`]; the
//! schema of its arguments is in [`schema`].

pub mod bindings;
pub mod description;
pub mod http_rules;
pub mod schema;

use std::pin::Pin;
use std::time::Duration;

use wasmtime::component::{HasSelf, InstancePre, Linker};

use self::bindings::outbound;
use self::bindings::tool::{CallContext, Description, Failure};
use self::schema::ToolSchema;
use crate::exports::exports;
use crate::guest::{Guest, GuestError};
use crate::load_error::LoadError;
use crate::world::{LoadedCode, Program, World};

/// The outside that one call of a tool may reach.
pub trait Outbound: Send + Sync {
    /// Performs a request, or returns the reason of its failure. Dropped at the end of the call's time.
    fn fetch(&self, request: outbound::Request) -> OutboundFuture<'_>;
}

/// A tool's request under way.
pub type OutboundFuture<'a> =
    Pin<Box<dyn Future<Output = Result<outbound::Response, outbound::Failure>> + Send + 'a>>;

/// The channel of a guest's requests.
pub struct OutboundChannel(Box<dyn Outbound>);

/// The outside of a tool that is only being loaded.
struct NoOutbound;

impl Outbound for NoOutbound {
    fn fetch(&self, _: outbound::Request) -> OutboundFuture<'_> {
        Box::pin(async {
            let why = "a tool cannot send requests while it is being loaded";
            Err(outbound::Failure::Blocked(why.to_owned()))
        })
    }
}

exports! {
    /// The functions of a tool.
    pub ToolExports of "weir:plugin/tool@0.2.3" {
        describe: Describe = "describe" () -> (Description,);
        call: Call = "call" (&'a str, &'a CallContext) -> (Result<String, Failure>,);
    }
}

/// The world `swarm-tool`.
#[derive(Debug)]
pub enum ToolWorld {}

impl World for ToolWorld {
    type Host = OutboundChannel;
    type Exports = ToolExports;
    type Plugin = LoadedTool;

    const NAME: &'static str = "weir:plugin/swarm-tool@0.2";
    const EXPORT: &'static str = "weir:plugin/tool";
    const IMPORTS: &'static [&'static str] = &["weir:plugin/log@0.2.", "weir:plugin/outbound@0.2."];

    fn link(linker: &mut Linker<Guest<OutboundChannel>>) -> wasmtime::Result<()> {
        outbound::add_to_linker::<_, HasSelf<_>>(linker, |guest| guest)
    }

    fn find_exports(
        component: &InstancePre<Guest<OutboundChannel>>,
    ) -> wasmtime::Result<ToolExports> {
        ToolExports::find(component)
    }

    async fn admit(program: Program<Self>) -> Result<LoadedTool, LoadError> {
        let started = program.start(OutboundChannel(Box::new(NoOutbound))).await;
        let mut instance = started.map_err(LoadError::Describe)?;
        let (described,) = instance
            .call(|tool| tool.describe, ())
            .await
            .map_err(LoadError::Describe)?;
        description::check(&described).map_err(LoadError::Description)?;
        let schema = ToolSchema::parse(&described.input_schema)
            .map_err(|why| LoadError::SelfTest(format!("its input schema {why}")))?;
        Ok(LoadedTool {
            description: described,
            schema,
            program,
        })
    }
}

impl outbound::Host for Guest<OutboundChannel> {
    async fn fetch(
        &mut self,
        request: outbound::Request,
    ) -> wasmtime::Result<Result<outbound::Response, outbound::Failure>> {
        Ok(self.host.0.fetch(request).await)
    }
}

/// A component that has passed every load step and can be called.
pub struct LoadedTool {
    pub description: Description,
    pub schema: ToolSchema,
    program: Program<ToolWorld>,
}

/// The reason that a call has no result.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolError {
    /// The guest was stopped.
    Guest(GuestError),
    /// The tool reports a failure.
    Failure(Failure),
}

impl From<GuestError> for ToolError {
    fn from(error: GuestError) -> Self {
        Self::Guest(error)
    }
}

impl LoadedTool {
    pub fn code(&self) -> &LoadedCode {
        self.program.code()
    }

    /// Calls the tool once, in a fresh instance, within this wall-clock time, including its requests. Returns its
    /// text for the model.
    ///
    /// # Errors
    ///
    /// Returns the tool's failure, or the reason that its guest was stopped.
    pub async fn call(
        &self,
        arguments: &str,
        context: &CallContext,
        outside: impl Outbound + 'static,
        within: Duration,
    ) -> Result<String, ToolError> {
        let mut instance = self
            .program
            .start(OutboundChannel(Box::new(outside)))
            .await?;
        instance.set_call_timeout(within);
        let (result,) = instance
            .call_with(arguments.len(), |tool| tool.call, (arguments, context))
            .await?;
        result.map_err(ToolError::Failure)
    }
}
