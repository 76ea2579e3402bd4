//! Provider adapters: translation between the gateway's vocabulary and one upstream API.
//!
//! An adapter does no I/O. It returns the request to send, and receives the response: the host drives it, one
//! [`GuestExchange`] an attempt, each in a guest of its own.
//!
//! An adapter may serve other kinds of requests than chats and images: each kind is an optional interface with a function
//! that begins an exchange ([`OtherRequest`]). A component must export the interface of each kind that its capabilities
//! name, with the types of the contract.
//!
//! The long texts of a chat stay with the host if the adapter has the capability for it ([`long_texts`]).
//!
//! The rules for its requests are in [`http_rules`]; its description and the check of it are in [`description`]. To add a
//! kind, edit `kinds`.

pub mod bindings;
mod call_error;
pub mod description;
pub mod http_rules;
pub mod kinds;
pub mod long_texts;

use wasmtime::component::{InstancePre, ResourceAny};

use self::bindings::adapter::{
    Begun, BodyPart, Description, Failure, HttpResponseHead, Progress, RefusedSetting, Request,
    Setting, Step, Task,
};
use self::bindings::chat;
pub use self::call_error::AdapterCallError;
use self::kinds::{KindExports, stock_client};
pub use self::kinds::{OtherRequest, WorkKind};
use self::long_texts::{LongTextExports, LongTexts};
use crate::configuration::{self, ConfigureError};
use crate::exports::exports;
use crate::guest::{Guest, GuestError};
use crate::load_error::LoadError;
use crate::printable::printable;
use crate::world::{Instance, LoadedCode, Program, World};

exports! {
    /// The functions of an adapter.
    pub AdapterExports of "weir:plugin/adapter@0.2.3" {
        describe: Describe = "describe" () -> (Description,);
        configure: Configure = "configure" (&'a [Setting]) -> (Result<Vec<u8>, RefusedSetting>,);
        begin: Begin = "[static]exchange.begin" (&'a Request, &'a [u8]) -> (Result<Begun, Failure>,);
        next: Next = "[method]exchange.next" (ResourceAny) -> (Result<Step, Failure>,);
        head: Head = "[method]exchange.head" (ResourceAny, &'a HttpResponseHead) -> (Result<(), Failure>,);
        body: Body = "[method]exchange.body" (ResourceAny, &'a [u8]) -> (Progress,);
        end: End = "[method]exchange.end" (ResourceAny) -> (Progress,);
    }
}

/// The functions of an adapter, with those of its optional interfaces.
#[derive(Clone, Copy)]
pub struct AllExports {
    adapter: AdapterExports,
    kinds: KindExports,
    long_texts: Option<LongTextExports>,
}

/// The worlds `provider` and `versatile-provider`.
#[derive(Debug)]
pub enum ProviderWorld {}

impl World for ProviderWorld {
    type Host = ();
    type Exports = AllExports;
    type Plugin = LoadedAdapter;

    const NAME: &'static str = "weir:plugin/provider@0.2";
    const EXPORT: &'static str = "weir:plugin/adapter";
    const IMPORTS: &'static [&'static str] = &["weir:plugin/chat@0.2.", "weir:plugin/log@0.2."];

    fn find_exports(component: &InstancePre<Guest<()>>) -> wasmtime::Result<AllExports> {
        Ok(AllExports {
            adapter: AdapterExports::find(component)?,
            kinds: KindExports::find(component)?,
            long_texts: long_texts::find(component)?,
        })
    }

    async fn admit(program: Program<Self>) -> Result<LoadedAdapter, LoadError> {
        let mut instance = program.start(()).await.map_err(LoadError::Describe)?;
        let (described,) = instance
            .call(|all| all.adapter.describe, ())
            .await
            .map_err(LoadError::Describe)?;
        let exports = program.exports();
        description::check(&described)
            .and_then(|()| exports.kinds.check(&described))
            .and_then(|()| long_texts::check(exports.long_texts, &described))
            .map_err(LoadError::Description)?;
        let adapter = LoadedAdapter {
            description: described,
            program,
        };
        adapter.test_itself().await.map_err(LoadError::SelfTest)?;
        Ok(adapter)
    }
}

/// A request of any kind.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "most requests are chats, and a box would cost each an allocation"
)]
pub enum AdapterRequest {
    /// A chat, or images.
    Task(Request),
    /// A request of another kind.
    Other(OtherRequest),
}

/// A borrowed request of any kind.
#[derive(Debug, Clone, Copy)]
pub enum RequestRef<'a> {
    /// A chat, or images.
    Task(&'a Request),
    /// A request of another kind.
    Other(&'a OtherRequest),
}

impl<'a> From<&'a Request> for RequestRef<'a> {
    fn from(request: &'a Request) -> Self {
        Self::Task(request)
    }
}

impl<'a> From<&'a AdapterRequest> for RequestRef<'a> {
    fn from(request: &'a AdapterRequest) -> Self {
        match request {
            AdapterRequest::Task(request) => Self::Task(request),
            AdapterRequest::Other(request) => Self::Other(request),
        }
    }
}

impl AdapterRequest {
    /// The chat or image request.
    pub fn task(&self) -> Option<&Request> {
        match self {
            Self::Task(request) => Some(request),
            Self::Other(_) => None,
        }
    }

    /// The kind of the request.
    pub fn kind(&self) -> WorkKind {
        match self {
            Self::Task(request) => match request.task {
                Task::Chat(_) => WorkKind::Chat,
                Task::Image(_) => WorkKind::Images,
            },
            Self::Other(request) => request.kind(),
        }
    }

    /// The chat, if it is one.
    pub fn chat(&self) -> Option<&chat::ChatRequest> {
        match self {
            Self::Task(Request {
                task: Task::Chat(chat),
                ..
            }) => Some(chat),
            _ => None,
        }
    }

    /// The chat, to change it.
    pub fn chat_mut(&mut self) -> Option<&mut chat::ChatRequest> {
        match self {
            Self::Task(Request {
                task: Task::Chat(chat),
                ..
            }) => Some(chat),
            _ => None,
        }
    }

    /// The sender of the request.
    pub fn client(&self) -> &bindings::adapter::Client {
        match self {
            Self::Task(request) => &request.client,
            Self::Other(request) => request.client(),
        }
    }

    /// Sets the number of the attempt, and the milliseconds left for the request.
    pub fn begin_attempt(&mut self, number: u32, deadline_ms: u64) {
        match self {
            Self::Task(request) => {
                (request.attempt, request.deadline_ms) = (number, deadline_ms);
            }
            Self::Other(request) => request.begin_attempt(number, deadline_ms),
        }
    }

    /// Sets the upstream's name of the model.
    pub fn set_model(&mut self, name: &str) {
        let model = match self {
            Self::Task(request) => match &mut request.task {
                Task::Chat(chat) => &mut chat.model,
                Task::Image(image) => &mut image.model,
            },
            Self::Other(request) => request.model_mut(),
        };
        name.clone_into(model);
    }
}

/// A component that has passed every load step and can serve exchanges.
pub struct LoadedAdapter {
    pub description: Description,
    program: Program<ProviderWorld>,
}

impl LoadedAdapter {
    pub fn code(&self) -> &LoadedCode {
        self.program.code()
    }

    /// Returns whether it serves a kind of work.
    pub fn serves(&self, kind: WorkKind) -> bool {
        self.description.serves(kind)
    }

    /// Returns the functions for chats whose long texts stay with the host, if the adapter has the capability.
    fn moves_texts(&self) -> Option<LongTextExports> {
        let exports = self.program.exports().long_texts;
        exports.filter(|_| self.description.claims(long_texts::CAPABILITY))
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
            .call(|all| all.adapter.configure, (options,))
            .await?;
        configuration::check_made(configured.map_err(|refused| (refused.name, refused.why)))
    }

    /// Translates a stock request: a component that fails it would fail every request.
    async fn test_itself(&self) -> Result<(), String> {
        let mut stock = Vec::new();
        if self.serves(WorkKind::Chat) {
            stock.push((AdapterRequest::Task(stock_request()), 0));
        }
        for (request, files) in OtherRequest::examples() {
            if self.serves(request.kind()) {
                stock.push((AdapterRequest::Other(request), files));
            }
        }
        if stock.is_empty() {
            return Ok(());
        }
        let configuration = match self.configure(&[]).await {
            Ok(configuration) => configuration,
            // The adapter needs settings, which only its provider has.
            Err(ConfigureError::Refused { .. }) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        for (request, files) in &stock {
            let begun = GuestExchange::begin(self, request, 0, &configuration).await;
            self.check_first_step(begun, *files)?;
        }
        if self.serves(WorkKind::Chat) && self.moves_texts().is_some() {
            let request = &mut stock_request();
            let begun =
                GuestExchange::begin_without_texts(self, request, 0, 0, &configuration).await;
            self.check_first_step(begun, 1)?;
        }
        Ok(())
    }

    /// Checks the first step of a stock request with this number of files and texts that stay with the host.
    fn check_first_step(
        &self,
        begun: Result<BegunExchange, AdapterCallError>,
        files: u32,
    ) -> Result<(), String> {
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
                let is_there = |part: &BodyPart| match part {
                    BodyPart::Bytes(_) => true,
                    BodyPart::Attached(index) => *index < files,
                    _ => false,
                };
                if !request.body.iter().all(is_there) {
                    return Err("it has no such attachment in a stock request".into());
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

pub struct GuestExchange {
    instance: Instance<ProviderWorld>,
    handle: ResourceAny,
}

pub struct BegunExchange {
    pub exchange: GuestExchange,
    pub step: Step,
    /// The places of the texts that stay with the host. The parts of a body count them behind the attachments.
    pub long_texts: LongTexts,
    /// The names of advisory fields that the upstream does not support, as the guest gave them.
    pub ignored: Vec<String>,
}

impl GuestExchange {
    /// Creates a fresh instance and begins an exchange in it. `request_bytes` is the approximate size of the request,
    /// and adds to the guest's processor time. The configuration is the result of [`LoadedAdapter::configure`].
    ///
    /// # Errors
    ///
    /// Also a failure if the adapter does not have the capability for the request.
    pub async fn begin<'a>(
        adapter: &LoadedAdapter,
        request: impl Into<RequestRef<'a>>,
        request_bytes: usize,
        configuration: &[u8],
    ) -> Result<BegunExchange, AdapterCallError> {
        let mut instance = adapter.program.start(()).await?;
        let bytes = request_bytes;
        let (begun,) = match request.into() {
            RequestRef::Task(request) => {
                let parameters = (request, configuration);
                let called = instance.call_with(bytes, |all| all.adapter.begin, parameters);
                called.await?
            }
            RequestRef::Other(request) => {
                let kinds = adapter.program.exports().kinds;
                kinds
                    .begin(&mut instance, request, bytes, configuration)
                    .await?
            }
        };
        let begun = begun.map_err(AdapterCallError::Failure)?;
        Ok(Self::begun(instance, begun, LongTexts::default()))
    }

    /// The same for a chat whose texts of more than `most_bytes` stay with the host, if the adapter can do without them. The
    /// request is the same after the call.
    ///
    /// # Errors
    ///
    /// As for [`Self::begin`].
    pub async fn begin_without_texts(
        adapter: &LoadedAdapter,
        request: &mut Request,
        most_bytes: usize,
        request_bytes: usize,
        configuration: &[u8],
    ) -> Result<BegunExchange, AdapterCallError> {
        if let Some(exports) = adapter.moves_texts()
            && let Task::Chat(chat) = &request.task
        {
            let texts = LongTexts::find(chat, most_bytes);
            if !texts.is_empty() {
                let mut instance = adapter.program.start(()).await?;
                let handed = (request, texts, request_bytes);
                let begun = long_texts::begin(exports, &mut instance, handed, configuration);
                let (begun, texts) = begun.await?;
                return Ok(Self::begun(instance, begun, texts));
            }
        }
        Self::begin(adapter, &*request, request_bytes, configuration).await
    }

    fn begun(
        instance: Instance<ProviderWorld>,
        begun: Begun,
        long_texts: LongTexts,
    ) -> BegunExchange {
        BegunExchange {
            exchange: Self {
                instance,
                handle: begun.exchange,
            },
            step: begun.step,
            long_texts,
            ignored: begun.ignored,
        }
    }

    /// Bytes of the guest's memories and tables.
    pub fn memory_bytes(&self) -> u64 {
        self.instance.memory_bytes()
    }

    pub async fn next(&mut self) -> Result<Step, AdapterCallError> {
        let parameters = (self.handle,);
        let (step,) = self
            .instance
            .call(|all| all.adapter.next, parameters)
            .await?;
        step.map_err(AdapterCallError::Failure)
    }

    /// Passes the status and headers of the upstream's response.
    pub async fn head(&mut self, head: &HttpResponseHead) -> Result<(), AdapterCallError> {
        let parameters = (self.handle, head);
        let (taken,) = self
            .instance
            .call(|all| all.adapter.head, parameters)
            .await?;
        taken.map_err(AdapterCallError::Failure)
    }

    /// Passes the next bytes of the upstream's response.
    pub async fn body(&mut self, bytes: &[u8]) -> Result<Progress, GuestError> {
        let parameters = (self.handle, bytes);
        let called = self
            .instance
            .call_with(bytes.len(), |all| all.adapter.body, parameters);
        let (progress,) = called.await?;
        Ok(progress)
    }

    /// Reports that the upstream's response is complete.
    pub async fn end(&mut self) -> Result<Progress, GuestError> {
        let parameters = (self.handle,);
        let (progress,) = self
            .instance
            .call(|all| all.adapter.end, parameters)
            .await?;
        Ok(progress)
    }
}

/// A chat request that any component of its world can process.
pub(crate) fn stock_chat() -> chat::ChatRequest {
    chat::ChatRequest {
        max_output_tokens: 16,
        ..text_chat("self-test".into(), ["Hello".into()])
    }
}

/// Returns a chat request of these texts of the user, each in a message, that sets nothing else. Its output limit is 1.
pub fn text_chat(model: String, texts: impl IntoIterator<Item = String>) -> chat::ChatRequest {
    let message = |text| chat::Message {
        role: chat::Role::User,
        name: None,
        parts: vec![chat::Part {
            content: chat::Content::Text(text),
            cache: None,
            signature: None,
            provider: None,
            extra: Vec::new(),
        }],
        extra: Vec::new(),
    };
    chat::ChatRequest {
        model,
        messages: texts.into_iter().map(message).collect(),
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
        max_output_tokens: 1,
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
        client: stock_client(),
        attempt: 1,
        deadline_ms: 60_000,
    }
}
