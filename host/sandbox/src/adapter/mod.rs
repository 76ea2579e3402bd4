//! Provider adapters: translation between the gateway's vocabulary and one upstream API.
//!
//! An adapter does no I/O. It returns the request to send, and receives the response: the host drives it, one
//! [`GuestExchange`] an attempt, each in a guest of its own.
//!
//! The rules for its requests are in [`http_rules`]; its description and the check of it are in [`description`].

pub mod bindings;
pub mod description;
pub mod http_rules;

use wasmtime::component::{InstancePre, ResourceAny};

use self::bindings::adapter::{
    Begun, BodyPart, Description, Failure, HttpResponseHead, Progress, RefusedSetting, Request,
    Setting, Step, Task,
};
use self::bindings::chat;
use crate::configuration::{self, ConfigureError};
use crate::exports::exports;
use crate::guest::{Guest, GuestError};
use crate::load_error::LoadError;
use crate::printable::printable;
use crate::world::{Instance, LoadedCode, Program, World};

exports! {
    /// The functions of an adapter.
    AdapterExports of "weir:plugin/adapter@0.2.2" {
        describe: Describe = "describe" () -> (Description,);
        configure: Configure = "configure" (&'a [Setting]) -> (Result<Vec<u8>, RefusedSetting>,);
        begin: Begin = "[static]exchange.begin" (&'a Request, &'a [u8]) -> (Result<Begun, Failure>,);
        next: Next = "[method]exchange.next" (ResourceAny) -> (Result<Step, Failure>,);
        head: Head = "[method]exchange.head" (ResourceAny, &'a HttpResponseHead) -> (Result<(), Failure>,);
        body: Body = "[method]exchange.body" (ResourceAny, &'a [u8]) -> (Progress,);
        end: End = "[method]exchange.end" (ResourceAny) -> (Progress,);
    }
}

/// The world `provider`.
#[derive(Debug)]
pub enum ProviderWorld {}

impl World for ProviderWorld {
    type Host = ();
    type Exports = AdapterExports;
    type Plugin = LoadedAdapter;

    const NAME: &'static str = "weir:plugin/provider@0.2";
    const EXPORT: &'static str = "weir:plugin/adapter";
    const IMPORTS: &'static [&'static str] = &["weir:plugin/chat@0.2.", "weir:plugin/log@0.2."];

    fn find_exports(component: &InstancePre<Guest<()>>) -> wasmtime::Result<AdapterExports> {
        AdapterExports::find(component)
    }

    async fn admit(program: Program<Self>) -> Result<LoadedAdapter, LoadError> {
        let mut instance = program.start(()).await.map_err(LoadError::Describe)?;
        let (described,) = instance
            .call(|adapter| adapter.describe, ())
            .await
            .map_err(LoadError::Describe)?;
        description::check(&described).map_err(LoadError::Description)?;
        let adapter = LoadedAdapter {
            description: described,
            program,
        };
        adapter.test_itself().await.map_err(LoadError::SelfTest)?;
        Ok(adapter)
    }
}

/// A component that has passed every load step and can serve exchanges.
pub struct LoadedAdapter {
    /// The adapter's description.
    pub description: Description,
    program: Program<ProviderWorld>,
}

/// The reason that a call into an exchange has no result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AdapterCallError {
    /// The guest was stopped.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// The adapter reports a failure.
    #[error("{}", printable(&.0.text, 200))]
    Failure(Failure),
}

impl LoadedAdapter {
    /// Its code.
    pub fn code(&self) -> &LoadedCode {
        self.program.code()
    }

    /// Returns whether it has a capability, e.g. [`description::CHAT`].
    pub fn is_capable_of(&self, capability: &str) -> bool {
        let capabilities = &self.description.capabilities;
        capabilities.iter().any(|named| named == capability)
    }

    /// Lets the adapter parse a provider's options, once; each exchange with that provider receives the result.
    ///
    /// # Errors
    ///
    /// [`ConfigureError::Refused`] names an unknown or invalid option.
    pub async fn configure(&self, options: &[Setting]) -> Result<Vec<u8>, ConfigureError> {
        configuration::check_names(&self.description.options, options)?;
        let mut instance = self.program.start(()).await?;
        let (configured,) = instance
            .call(|adapter| adapter.configure, (options,))
            .await?;
        configuration::check_made(configured.map_err(|refused| (refused.name, refused.why)))
    }

    /// Translates a stock request: a component that fails it would fail every request.
    async fn test_itself(&self) -> Result<(), String> {
        if !self.is_capable_of(description::CHAT) {
            return Ok(());
        }
        let configuration = match self.configure(&[]).await {
            Ok(configuration) => configuration,
            // The adapter needs settings, which only its provider has.
            Err(ConfigureError::Refused { .. }) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        let begun = GuestExchange::begin(self, &stock_request(), 0, &configuration).await;
        let step = match begun {
            Ok(begun) => begun.step,
            Err(AdapterCallError::Guest(error)) => return Err(error.to_string()),
            Err(AdapterCallError::Failure(failure)) => {
                let failure = printable(&format!("{failure:?}"), 200);
                return Err(format!("a stock request was refused: {failure}"));
            }
        };
        match step {
            Step::Send(request) => {
                if request
                    .body
                    .iter()
                    .any(|part| !matches!(part, BodyPart::Bytes(_)))
                {
                    return Err("a stock request has no attachments".into());
                }
                http_rules::check_path(&request.path, &self.description.path_prefixes).map_err(
                    |why| format!("a stock request goes to a path that is refused: it {why}"),
                )
            }
            Step::Emit(_) | Step::Wait(_) => Ok(()),
            Step::Done => Err("a stock request ended without an HTTP request".into()),
        }
    }
}

/// A running exchange in a guest of its own.
pub struct GuestExchange {
    instance: Instance<ProviderWorld>,
    handle: ResourceAny,
}

/// An exchange that has begun.
pub struct BegunExchange {
    /// The exchange.
    pub exchange: GuestExchange,
    /// Its first step.
    pub step: Step,
    /// The names of advisory fields that the upstream does not support, as the guest gave them.
    pub ignored: Vec<String>,
}

impl GuestExchange {
    /// Creates a fresh instance and begins an exchange in it. `request_bytes` is the approximate size of the request,
    /// and adds to the guest's processor time. The configuration is the result of [`LoadedAdapter::configure`].
    pub async fn begin(
        adapter: &LoadedAdapter,
        request: &Request,
        request_bytes: usize,
        configuration: &[u8],
    ) -> Result<BegunExchange, AdapterCallError> {
        let mut instance = adapter.program.start(()).await?;
        let (begun,) = instance
            .call_with(
                request_bytes,
                |adapter| adapter.begin,
                (request, configuration),
            )
            .await?;
        let begun = begun.map_err(AdapterCallError::Failure)?;
        Ok(BegunExchange {
            exchange: Self {
                instance,
                handle: begun.exchange,
            },
            step: begun.step,
            ignored: begun.ignored,
        })
    }

    /// Bytes of the guest's memories and tables.
    pub fn memory_bytes(&self) -> u64 {
        self.instance.memory_bytes()
    }

    /// Asks the exchange for its next step.
    pub async fn next(&mut self) -> Result<Step, AdapterCallError> {
        let parameters = (self.handle,);
        let (step,) = self
            .instance
            .call(|adapter| adapter.next, parameters)
            .await?;
        step.map_err(AdapterCallError::Failure)
    }

    /// Passes the status and headers of the upstream's response.
    pub async fn head(&mut self, head: &HttpResponseHead) -> Result<(), AdapterCallError> {
        let parameters = (self.handle, head);
        let (taken,) = self
            .instance
            .call(|adapter| adapter.head, parameters)
            .await?;
        taken.map_err(AdapterCallError::Failure)
    }

    /// Passes the next bytes of the upstream's response.
    pub async fn body(&mut self, bytes: &[u8]) -> Result<Progress, GuestError> {
        let parameters = (self.handle, bytes);
        let called = self
            .instance
            .call_with(bytes.len(), |adapter| adapter.body, parameters);
        let (progress,) = called.await?;
        Ok(progress)
    }

    /// Reports that the upstream's response is complete.
    pub async fn end(&mut self) -> Result<Progress, GuestError> {
        let parameters = (self.handle,);
        let (progress,) = self
            .instance
            .call(|adapter| adapter.end, parameters)
            .await?;
        Ok(progress)
    }
}

/// A chat request that any component of its world can process.
pub(crate) fn stock_chat() -> chat::ChatRequest {
    let hello = chat::Part {
        content: chat::Content::Text("Hello".into()),
        cache: None,
        signature: None,
        provider: None,
        extra: Vec::new(),
    };
    let message = chat::Message {
        role: chat::Role::User,
        name: None,
        parts: vec![hello],
        extra: Vec::new(),
    };
    chat::ChatRequest {
        model: "self-test".into(),
        messages: vec![message],
        tools: Vec::new(),
        tool_choice: chat::ToolChoice::Auto,
        parallel_tool_calls: None,
        response_format: chat::ResponseFormat::Text,
        reasoning: chat::ReasoningRequest {
            effort: None,
            budget_tokens: None,
            summary: None,
            adaptive: None,
        },
        modalities: Vec::new(),
        max_output_tokens: 16,
        temperature: None,
        top_p: None,
        top_k: None,
        presence_penalty: None,
        frequency_penalty: None,
        seed: None,
        stop: Vec::new(),
        extra: Vec::new(),
        stream: false,
    }
}

fn stock_request() -> Request {
    Request {
        task: Task::Chat(stock_chat()),
        attachments: Vec::new(),
        client: bindings::adapter::Client {
            dialect: "self-test".into(),
            headers: Vec::new(),
            end_user: None,
        },
        attempt: 1,
        deadline_ms: 60_000,
    }
}
