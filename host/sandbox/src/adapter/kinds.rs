//! The kinds of work, and the interfaces of those besides chats and images. Each of these has an optional interface of the
//! contract, whose only function begins an exchange.
//!
//! To add a kind, add a row to the table below, with its interface in `wit/`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wasmtime::component::InstancePre;

use super::bindings::adapter::{Begun, Client, Description, Failure};
use super::bindings::chat::{Attachment, ExtraField};
use super::bindings::{embeddings, moderation, rerank, speech, transcription};
use super::call_error::{AdapterCallError, incapable};
use crate::exports::Interface;
use crate::guest::Guest;
use crate::world::{Instance, World};

/// Declares the kinds with an interface of their own. The example is a request with this number of files that any component
/// of the kind can process.
macro_rules! kinds {
    ($(
        $(#[$about:meta])*
        $kind:ident of $interface:ident, with $files:literal files: $example:expr;
    )*) => {
        mod interfaces {
            $(
                pub(super) mod $interface {
                    use crate::adapter::bindings::adapter::{Begun, Failure};
                    use crate::adapter::bindings::$interface::Request;
                    use crate::exports::exports;

                    exports! {
                        /// The interface of the kind.
                        pub(in crate::adapter::kinds) Exports of (concat!("weir:plugin/", stringify!($interface), "@0.2.3")) {
                            begin: Begin = "begin" (&'a Request, &'a [u8]) -> (Result<Begun, Failure>,);
                        }
                    }
                }
            )*
        }

        /// The kind of a model's requests.
        ///
        /// Its name is also the capability that an adapter needs for it.
        #[derive(
            Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
        )]
        #[serde(rename_all = "lowercase")]
        #[schema(as = ModelKind)]
        pub enum WorkKind {
            /// Chats, and images if the price is per image.
            #[default]
            Chat,
            /// Images. In a catalog, their models are of the kind `chat`.
            #[serde(skip)]
            Images,
            $(
                $(#[$about])*
                $kind,
            )*
        }

        impl WorkKind {
            /// All kinds.
            pub const ALL: &[Self] = &[Self::Chat, Self::Images, $(Self::$kind,)*];

            /// Returns its name.
            pub const fn name(self) -> &'static str {
                match self {
                    Self::Chat => "chat",
                    Self::Images => "images",
                    $(Self::$kind => stringify!($interface),)*
                }
            }
        }

        /// The files of the contract with the interfaces.
        pub const CONTRACT: &[&str] = &[
            include_str!("../../../../wit/long-texts.wit"),
            $(include_str!(concat!("../../../../wit/", stringify!($interface), ".wit")),)*
        ];

        /// The optional functions of an adapter.
        #[derive(Clone, Copy)]
        pub(super) struct KindExports {
            $($interface: Option<interfaces::$interface::Exports>,)*
        }

        /// A request of one of these kinds.
        #[derive(Debug, Clone, PartialEq)]
        pub enum OtherRequest {
            $(
                $(#[$about])*
                $kind($interface::Request),
            )*
        }

        impl KindExports {
            /// Finds the interfaces that a component exports, and checks their types.
            pub(super) fn find(component: &InstancePre<Guest<()>>) -> wasmtime::Result<Self> {
                let has = |interface| Interface::is_exported(component, interface);
                Ok(Self {
                    $($interface: match has(concat!("weir:plugin/", stringify!($interface))) {
                        true => Some(interfaces::$interface::Exports::find(component)?),
                        false => None,
                    },)*
                })
            }

            fn has(&self, kind: WorkKind) -> bool {
                match kind {
                    WorkKind::Chat | WorkKind::Images => true,
                    $(WorkKind::$kind => self.$interface.is_some(),)*
                }
            }

            /// Begins an exchange in an instance of the component.
            pub(super) async fn begin<W: World<Host = ()>>(
                self,
                instance: &mut Instance<W>,
                request: &OtherRequest,
                bytes: usize,
                configuration: &[u8],
            ) -> Result<(Result<Begun, Failure>,), AdapterCallError> {
                let kind = request.kind().name();
                match request {
                    $(OtherRequest::$kind(request) => {
                        let export = self.$interface.ok_or_else(|| incapable(kind))?;
                        let parameters = (request, configuration);
                        let called = instance.call_with(bytes, |_| export.begin, parameters);
                        Ok(called.await?)
                    })*
                }
            }
        }

        impl OtherRequest {
            /// Returns its kind.
            pub fn kind(&self) -> WorkKind {
                match self {
                    $(Self::$kind(_) => WorkKind::$kind,)*
                }
            }

            /// Returns the example of each kind, with the number of its files.
            pub fn examples() -> Vec<(Self, u32)> {
                vec![$((Self::$kind($example), $files),)*]
            }

            /// Returns its sender.
            pub fn client(&self) -> &Client {
                match self {
                    $(Self::$kind(request) => &request.client,)*
                }
            }

            /// Returns its sender, to change it.
            pub fn client_mut(&mut self) -> &mut Client {
                match self {
                    $(Self::$kind(request) => &mut request.client,)*
                }
            }

            /// Returns the name of its model.
            pub fn model(&self) -> &str {
                match self {
                    $(Self::$kind(request) => &request.task.model,)*
                }
            }

            /// Returns the name of its model, to change it.
            pub fn model_mut(&mut self) -> &mut String {
                match self {
                    $(Self::$kind(request) => &mut request.task.model,)*
                }
            }

            /// Returns its fields beyond the vocabulary.
            pub fn extra(&self) -> &[ExtraField] {
                match self {
                    $(Self::$kind(request) => &request.task.extra,)*
                }
            }

            pub(super) fn begin_attempt(&mut self, number: u32, deadline_ms: u64) {
                match self {
                    $(Self::$kind(request) => {
                        (request.attempt, request.deadline_ms) = (number, deadline_ms);
                    })*
                }
            }
        }
    };
}

kinds! {
    /// Vectors of texts.
    Embeddings of embeddings, with 0 files: embeddings::Request {
        task: embeddings::EmbeddingRequest {
            model: MODEL.into(),
            inputs: vec![embeddings::Input::Text(TEXT.into())],
            dimensions: None,
            input_type: None,
            base64: false,
            extra: Vec::new(),
        },
        client: stock_client(),
        attempt: 1,
        deadline_ms: DEADLINE_MS,
    };
    /// An order of documents.
    Rerank of rerank, with 0 files: rerank::Request {
        task: rerank::RerankRequest {
            model: MODEL.into(),
            query: TEXT.into(),
            documents: vec![TEXT.into()],
            top_n: None,
            extra: Vec::new(),
        },
        client: stock_client(),
        attempt: 1,
        deadline_ms: DEADLINE_MS,
    };
    /// Harmful content in texts.
    Moderation of moderation, with 0 files: moderation::Request {
        task: moderation::ModerationRequest {
            model: MODEL.into(),
            inputs: vec![TEXT.into()],
            extra: Vec::new(),
        },
        client: stock_client(),
        attempt: 1,
        deadline_ms: DEADLINE_MS,
    };
    /// A spoken text.
    Speech of speech, with 0 files: speech::Request {
        task: speech::SpeechRequest {
            model: MODEL.into(),
            input: TEXT.into(),
            voice: speech::Voice::Name("alloy".into()),
            instructions: None,
            format: "wav".into(),
            speed: None,
            extra: Vec::new(),
        },
        client: stock_client(),
        attempt: 1,
        deadline_ms: DEADLINE_MS,
    };
    /// The words of a recording.
    Transcription of transcription, with 1 files: transcription::Request {
        task: transcription::TranscriptionRequest {
            model: MODEL.into(),
            file_name: "self-test.wav".into(),
            translate: false,
            language: None,
            prompt: None,
            temperature: None,
            form: transcription::TranscriptForm::Text,
            timings: Vec::new(),
            extra: Vec::new(),
            stream: false,
        },
        recording: Attachment {
            media_type: "audio/wav".into(),
            size_bytes: 1_000,
        },
        client: stock_client(),
        attempt: 1,
        deadline_ms: DEADLINE_MS,
    };
}

/// The values of examples.
const MODEL: &str = "self-test";
const TEXT: &str = "Hello";
const DEADLINE_MS: u64 = 60_000;

impl KindExports {
    /// Checks that a component exports the interface of each kind that it claims to serve.
    pub(super) fn check(&self, description: &Description) -> Result<(), String> {
        for kind in WorkKind::ALL {
            let name = kind.name();
            if !self.has(*kind) && description.claims(name) {
                return Err(format!(
                    "its capabilities include {name}, but it does not export weir:plugin/{name}"
                ));
            }
        }
        Ok(())
    }
}

/// Returns a client that no request needs.
pub(super) fn stock_client() -> Client {
    Client {
        dialect: MODEL.into(),
        headers: Vec::new(),
        end_user: None,
    }
}
