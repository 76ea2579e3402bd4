//! The adapter's side of the contract, as one trait and one macro.

use std::cell::RefCell;

use crate::bindings::exports::weir::plugin::adapter as exported;
use crate::bindings::exports::weir::plugin::long_texts;
use crate::bindings::exports::weir::plugin::{
    embeddings, moderation, rerank, speech, transcription,
};

pub use exported::{
    BodyPart, Client, CredentialSlot, Description, Failure, FailureKind, Header, HttpRequest,
    HttpResponseHead, RefusedSetting, Request, Setting, Step, Task,
};

pub use crate::chat::{Attachment, Event};
pub use embeddings::{EmbeddingRequest, Input};
pub use long_texts::LongText;
pub use moderation::ModerationRequest;
pub use rerank::RerankRequest;
pub use speech::{SpeechRequest, Voice};
pub use transcription::{TranscriptForm, TranscriptionRequest};

/// A request for vectors of texts.
pub type EmbeddingsRequest = embeddings::Request;

/// A request for an order of documents.
pub type RankingRequest = rerank::Request;

/// A request to find harmful content in texts.
pub type HarmRequest = moderation::Request;

/// A request to speak a text.
pub type SpokenRequest = speech::Request;

/// A request to write down the words of a recording.
pub type TranscriptRequest = transcription::Request;

/// One attempt at one request, from translation to the end of the response.
///
/// After each [`Step::Send`] the host calls [`head`](Self::head) once, [`body`](Self::body) for
/// each piece as it arrives (in pieces of any size, cut anywhere) and [`end`](Self::end) when the
/// response is complete. After that, [`Step::Emit`] and [`Step::Wait`] it calls
/// [`next`](Self::next), until that says [`Step::Done`]. After a failure it calls nothing more.
pub trait Exchange: Sized + 'static {
    /// Describes this adapter. The host calls it when it loads the component, and expects the same
    /// description each time.
    fn describe() -> Description;

    /// Checks the options of an upstream, and turns them into the bytes that
    /// [`begin`](Self::begin) gets. An adapter without options keeps the default.
    ///
    /// # Errors
    ///
    /// The first invalid option, and the reason.
    fn configure(options: &[Setting]) -> Result<Vec<u8>, RefusedSetting> {
        no_options(options)
    }

    /// Takes a request and the bytes that [`configure`](Self::configure) returned for the upstream. If the adapter has the
    /// capability `long-texts`, the request may have [placeholders](crate::long_texts).
    ///
    /// # Errors
    ///
    /// [`FailureKind::Unsupported`] with the name of a field that the upstream does not support. Return
    /// it here, before anything is sent.
    fn begin(request: Request, configuration: &[u8]) -> Result<StartedExchange<Self>, Failure>;

    /// Takes a request for vectors of texts, if the capabilities of the adapter include `embeddings`.
    ///
    /// # Errors
    ///
    /// As for [`begin`](Self::begin).
    fn begin_embeddings(_: EmbeddingsRequest, _: &[u8]) -> Result<StartedExchange<Self>, Failure> {
        Err(Failure::unsupported("embeddings"))
    }

    /// Takes a request for an order of documents, if the capabilities of the adapter include `rerank`.
    ///
    /// # Errors
    ///
    /// As for [`begin`](Self::begin).
    fn begin_rerank(_: RankingRequest, _: &[u8]) -> Result<StartedExchange<Self>, Failure> {
        Err(Failure::unsupported("rerank"))
    }

    /// Takes a request to find harmful content in texts, if the capabilities of the adapter include `moderation`.
    ///
    /// # Errors
    ///
    /// As for [`begin`](Self::begin).
    fn begin_moderation(_: HarmRequest, _: &[u8]) -> Result<StartedExchange<Self>, Failure> {
        Err(Failure::unsupported("moderation"))
    }

    /// Takes a request to speak a text, if the capabilities of the adapter include `speech`.
    ///
    /// # Errors
    ///
    /// As for [`begin`](Self::begin).
    fn begin_speech(_: SpokenRequest, _: &[u8]) -> Result<StartedExchange<Self>, Failure> {
        Err(Failure::unsupported("speech"))
    }

    /// Takes a request to write down the words of a recording, if the capabilities of the adapter include `transcription`.
    ///
    /// # Errors
    ///
    /// As for [`begin`](Self::begin).
    fn begin_transcription(
        _: TranscriptRequest,
        _: &[u8],
    ) -> Result<StartedExchange<Self>, Failure> {
        Err(Failure::unsupported("transcription"))
    }

    /// Returns the next step of the exchange.
    ///
    /// # Errors
    ///
    /// Any failure. Earlier events stay valid.
    fn next(&mut self) -> Result<Step, Failure>;

    /// Takes the status and headers of the response to the last [`Step::Send`].
    ///
    /// # Errors
    ///
    /// A failure that the status and headers show. The host then does not read the body.
    fn head(&mut self, head: HttpResponseHead) -> Result<(), Failure>;

    /// Takes the next bytes of that response's body, and adds the events that they complete.
    ///
    /// # Errors
    ///
    /// A failure within the response. Events that were added before it reach the host together with
    /// it.
    fn body(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), Failure>;

    /// Ends the response and adds the last events.
    ///
    /// # Errors
    ///
    /// As for [`body`](Self::body), and if the response is incomplete.
    fn end(&mut self, events: &mut Vec<Event>) -> Result<(), Failure>;
}

/// The configuration of an adapter without options.
pub(crate) fn no_options(options: &[Setting]) -> Result<Vec<u8>, RefusedSetting> {
    match options.first() {
        None => Ok(Vec::new()),
        Some((name, _)) => Err(RefusedSetting {
            name: name.clone(),
            why: "is not an option of this adapter".to_owned(),
        }),
    }
}

impl HttpRequest {
    /// Makes a request with a JSON body.
    pub fn post_json(path: String, body: Vec<BodyPart>) -> Self {
        Self {
            method: "POST".to_owned(),
            path,
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            body,
        }
    }
}

/// An exchange that has begun.
#[derive(Debug)]
pub struct StartedExchange<E> {
    /// The exchange.
    pub exchange: E,
    /// The first step.
    pub step: Step,
    /// The names of omitted advisory fields, each once.
    pub ignored: Vec<String>,
}

/// Makes a type that implements [`Exchange`] the component's export.
///
/// It expands to nothing on other targets: wit-bindgen's export names contain `@`, `:` and `#`,
/// which native linkers may refuse, and native tests call the trait itself.
#[macro_export]
macro_rules! export_adapter {
    ($exchange:ty) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            type Exported = $crate::adapter::ExchangeGlue<$exchange>;
    $crate::bindings::export_provider!(Exported with_types_in $crate::bindings);
        };
    };
}

/// Carries an [`Exchange`] across the generated traits.
///
/// WIT methods take `&self`, hence the cell. The host makes one call at a time and an exchange
/// can't reach itself, so it is never borrowed twice.
#[doc(hidden)]
pub struct ExchangeGlue<E>(RefCell<E>);

impl<E: Exchange> exported::Guest for ExchangeGlue<E> {
    type Exchange = Self;

    fn describe() -> Description {
        E::describe()
    }

    fn configure(options: Vec<Setting>) -> Result<Vec<u8>, RefusedSetting> {
        E::configure(&options)
    }
}

impl<E: Exchange> long_texts::Guest for ExchangeGlue<E> {
    fn begin(
        request: Request,
        texts: Vec<LongText>,
        configuration: Vec<u8>,
    ) -> Result<long_texts::Beginning, Failure> {
        let begun =
            crate::long_texts::begin(request, &texts, |request| E::begin(request, &configuration));
        match begun {
            Ok(begun) => begun.map(|begun| long_texts::Beginning::Begun(Self::exported(begun))),
            Err(must_read) => Ok(long_texts::Beginning::Read(must_read)),
        }
    }
}

impl<E: Exchange> embeddings::Guest for ExchangeGlue<E> {
    fn begin(
        request: EmbeddingsRequest,
        configuration: Vec<u8>,
    ) -> Result<exported::Begun, Failure> {
        E::begin_embeddings(request, &configuration).map(Self::exported)
    }
}

impl<E: Exchange> rerank::Guest for ExchangeGlue<E> {
    fn begin(request: RankingRequest, configuration: Vec<u8>) -> Result<exported::Begun, Failure> {
        E::begin_rerank(request, &configuration).map(Self::exported)
    }
}

impl<E: Exchange> moderation::Guest for ExchangeGlue<E> {
    fn begin(request: HarmRequest, configuration: Vec<u8>) -> Result<exported::Begun, Failure> {
        E::begin_moderation(request, &configuration).map(Self::exported)
    }
}

impl<E: Exchange> speech::Guest for ExchangeGlue<E> {
    fn begin(request: SpokenRequest, configuration: Vec<u8>) -> Result<exported::Begun, Failure> {
        E::begin_speech(request, &configuration).map(Self::exported)
    }
}

impl<E: Exchange> transcription::Guest for ExchangeGlue<E> {
    fn begin(
        request: TranscriptRequest,
        configuration: Vec<u8>,
    ) -> Result<exported::Begun, Failure> {
        E::begin_transcription(request, &configuration).map(Self::exported)
    }
}

impl<E: Exchange> ExchangeGlue<E> {
    fn exported(begun: StartedExchange<E>) -> exported::Begun {
        exported::Begun {
            exchange: exported::Exchange::new(Self(RefCell::new(begun.exchange))),
            step: begun.step,
            ignored: begun.ignored,
        }
    }
}

impl<E: Exchange> exported::GuestExchange for ExchangeGlue<E> {
    fn begin(request: Request, configuration: Vec<u8>) -> Result<exported::Begun, Failure> {
        E::begin(request, &configuration).map(Self::exported)
    }

    fn next(&self) -> Result<Step, Failure> {
        self.0.borrow_mut().next()
    }

    fn head(&self, head: HttpResponseHead) -> Result<(), Failure> {
        self.0.borrow_mut().head(head)
    }

    fn body(&self, bytes: Vec<u8>) -> exported::Progress {
        progress(|events| self.0.borrow_mut().body(&bytes, events))
    }

    fn end(&self) -> exported::Progress {
        progress(|events| self.0.borrow_mut().end(events))
    }
}

fn progress(read: impl FnOnce(&mut Vec<Event>) -> Result<(), Failure>) -> exported::Progress {
    let mut events = Vec::new();
    let failure = read(&mut events).err();
    exported::Progress { events, failure }
}
