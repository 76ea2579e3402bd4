//! The filter's side of the contract: two traits and one macro, and helpers for filters that look at texts.
//!
//! A filter is plain functions of a request and of events: native tests call the traits themselves.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::chat::{Block, BlockStart, FinishReason, Fragment};
use crate::filter_bindings::exports::weir::plugin::{
    filter as exported, filter_steps as steps, filter_walk as walk_version,
};

pub use crate::chat::{Attachment, Event};
pub use crate::filter_bindings::exports::weir::plugin::filter_steps::Context;
pub use crate::walk::{Unread, check_is_readable, each_text};
pub use exported::{
    Annotation, Description, Refusal, RefusedSetting, Request, Screened, Setting, Task, Upstream,
};

/// A check of each request before routing.
pub trait Filter: 'static {
    /// Describes this filter. The host calls it when it loads the component, and expects the same description each time.
    fn describe() -> Description;

    /// Checks the operator's options, and turns them into the bytes that [`screen`](Self::screen) gets. A filter without
    /// options keeps the default.
    ///
    /// # Errors
    ///
    /// The first invalid option, and the reason.
    fn configure(options: &[Setting]) -> Result<Vec<u8>, RefusedSetting> {
        match options.first() {
            None => Ok(Vec::new()),
            Some((name, _)) => Err(RefusedSetting {
                name: name.clone(),
                why: "is not an option of this filter".to_owned(),
            }),
        }
    }

    /// Looks at a request, with the bytes that [`configure`](Self::configure) returned.
    ///
    /// # Errors
    ///
    /// The reason for the client, if the filter rejects the request.
    fn screen(request: Request, configuration: &[u8]) -> Result<Verdict, Refusal>;

    /// Looks at a request, and decides in steps. By default, the only step is the verdict of [`screen`](Self::screen),
    /// which hosts before contract 0.2.2 call.
    ///
    /// # Errors
    ///
    /// The reason for the client, if the filter rejects the request.
    fn begin(request: Request, _: Context, configuration: &[u8]) -> Result<Step, Refusal> {
        Self::screen(request, configuration).map(Step::Decide)
    }
}

/// A response on its way to the client.
pub trait AnswerFilter {
    /// Decides about the next events. A filter that holds text back releases it with the end of its block at the latest.
    fn events(&mut self, events: Vec<Event>) -> Screened;

    /// Forgets all earlier events: none has reached the client, and the response begins again.
    fn restart(&mut self);
}

/// A filter's decision about a request. The default lets the request pass and does not watch the response.
#[derive(Default)]
pub struct Verdict {
    /// The request that replaces the client's, of the same kind.
    pub change: Option<Task>,
    /// Indexes of the upstreams that may serve the request, in order; all upstreams if empty.
    pub upstreams: Vec<u32>,
    /// At most 16.
    pub annotations: Vec<Annotation>,
    /// Watches the response.
    pub answer: Option<Box<dyn AnswerFilter>>,
}

/// A filter's next step.
pub enum Step {
    /// The decision. The response passes the verdict's `answer` as it arrives.
    Decide(Verdict),
    /// The decision. The verdict's `answer` gets the whole response at once, before the client.
    DecideOnWhole(Verdict),
    /// The response to a chat request, in place of a provider's; see [`text_response`].
    Respond(Vec<Event>),
    /// A request to the filter's service, at most one.
    AskService(ServiceRequest),
    /// The filter cannot decide, for this reason for the operator's log.
    Fail(String),
}

/// A request to the filter's service.
pub struct ServiceRequest {
    /// The request's body.
    pub body: Vec<u8>,
    /// Makes the next step from the body of the response.
    pub then: Box<ServiceReply>,
}

/// Makes the next step from the body of a service's response.
pub type ServiceReply = dyn FnOnce(Vec<u8>) -> Result<Step, Refusal>;

/// Returns the events of a response that consists of this text.
pub fn text_response(text: &str) -> Vec<Event> {
    let (index, block, text) = (0, Block::Text, text.to_owned());
    vec![
        Event::BlockStart(BlockStart { index, block }),
        Event::Fragment(Fragment { index, text }),
        Event::BlockEnd(index),
        Event::Finish(FinishReason::Stop),
    ]
}

/// Makes a type that implements [`Filter`] the component's export.
///
/// It expands to nothing on other targets, as [`export_adapter!`](crate::export_adapter) does.
#[macro_export]
macro_rules! export_filter {
    ($filter:ty) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            type Exported = $crate::filter::FilterGlue<$filter>;
    $crate::filter_bindings::export_request_filter!(Exported with_types_in $crate::filter_bindings);
        };
    };
}

/// Carries a [`Filter`] across the generated traits.
#[doc(hidden)]
pub struct FilterGlue<F>(std::marker::PhantomData<F>);

/// Carries an [`AnswerFilter`] across the generated traits. WIT methods take `&self`, hence the cell; the host makes one call at a time.
#[doc(hidden)]
pub struct AnswerGlue(RefCell<Box<dyn AnswerFilter>>);

impl<F: Filter> exported::Guest for FilterGlue<F> {
    type Answer = AnswerGlue;

    fn describe() -> Description {
        F::describe()
    }

    fn configure(options: Vec<Setting>) -> Result<Vec<u8>, RefusedSetting> {
        F::configure(&options)
    }

    fn screen(request: Request, configuration: Vec<u8>) -> Result<exported::Verdict, Refusal> {
        F::screen(request, &configuration).map(Verdict::into_exported)
    }
}

impl<F: Filter> walk_version::Guest for FilterGlue<F> {
    fn version() -> u32 {
        crate::walk::VERSION
    }
}

impl<F: Filter> steps::Guest for FilterGlue<F> {
    type Screening = ScreeningGlue<F>;
}

/// The state between two steps of a [`Filter`], across the generated traits.
#[doc(hidden)]
pub struct ScreeningGlue<F> {
    then: RefCell<Option<Box<ServiceReply>>>,
    filter: std::marker::PhantomData<F>,
}

impl<F: Filter> steps::GuestScreening for ScreeningGlue<F> {
    fn begin(
        request: Request,
        context: Context,
        configuration: Vec<u8>,
    ) -> Result<steps::Begun, Refusal> {
        let (step, then) = F::begin(request, context, &configuration)?.into_exported();
        let screening = steps::Screening::new(Self {
            then: RefCell::new(then),
            filter: std::marker::PhantomData,
        });
        Ok(steps::Begun { screening, step })
    }

    fn replied(&self, body: Vec<u8>) -> Result<steps::Step, Refusal> {
        let then = self.then.take().expect("the filter asked its service");
        let (step, then) = then(body)?.into_exported();
        *self.then.borrow_mut() = then;
        Ok(step)
    }
}

impl Step {
    fn into_exported(self) -> (steps::Step, Option<Box<ServiceReply>>) {
        match self {
            Self::Decide(verdict) => (steps::Step::Decide(verdict.into_exported()), None),
            Self::DecideOnWhole(verdict) => {
                (steps::Step::DecideOnWhole(verdict.into_exported()), None)
            }
            Self::Respond(events) => (steps::Step::Respond(events), None),
            Self::AskService(ServiceRequest { body, then }) => {
                (steps::Step::AskService(body), Some(then))
            }
            Self::Fail(why) => (steps::Step::Fail(why), None),
        }
    }
}

impl Verdict {
    fn into_exported(self) -> exported::Verdict {
        let watching = self
            .answer
            .map(|answer| exported::Answer::new(AnswerGlue(RefCell::new(answer))));
        exported::Verdict {
            change: self.change,
            upstreams: self.upstreams,
            annotations: self.annotations,
            answer: watching,
        }
    }
}

impl exported::GuestAnswer for AnswerGlue {
    fn events(&self, events: Vec<Event>) -> Screened {
        self.0.borrow_mut().events(events)
    }

    fn restart(&self) {
        self.0.borrow_mut().restart();
    }
}

/// Tracks the open blocks of a response, and their kinds.
///
/// ```
/// # use weir_sdk::chat::{Block, BlockStart, Event};
/// # use weir_sdk::filter::OpenBlocks;
/// let mut open = OpenBlocks::default();
/// open.follow(&Event::BlockStart(BlockStart { index: 0, block: Block::Text }));
/// assert_eq!(open.get(0), Some(&Block::Text));
/// open.follow(&Event::BlockEnd(0));
/// assert_eq!(open.get(0), None);
/// ```
#[derive(Debug, Default)]
pub struct OpenBlocks(BTreeMap<u32, Block>);

impl OpenBlocks {
    /// Takes note of an event that begins or ends a block.
    pub fn follow(&mut self, event: &Event) {
        match event {
            Event::BlockStart(start) => {
                self.0.insert(start.index, start.block.clone());
            }
            Event::BlockEnd(index) => {
                self.0.remove(index);
            }
            _ => {}
        }
    }

    /// The kind of the open block with this index.
    pub fn get(&self, index: u32) -> Option<&Block> {
        self.0.get(&index)
    }

    /// Whether the open block of this index is for people to read: text, a refusal or reasoning, and no call's arguments.
    pub fn is_prose(&self, index: u32) -> bool {
        matches!(
            self.get(index),
            Some(Block::Text | Block::Refusal | Block::Reasoning)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{CallKind, ToolCallStart};

    struct Plain;

    impl Filter for Plain {
        fn describe() -> Description {
            Description {
                name: "plain".to_owned(),
                version: "0.1.0".to_owned(),
                options: Vec::new(),
            }
        }

        fn screen(_: Request, _: &[u8]) -> Result<Verdict, Refusal> {
            Ok(Verdict::default())
        }
    }

    #[test]
    fn a_filter_without_options_takes_none() {
        assert_eq!(Plain::configure(&[]), Ok(Vec::new()));
        let refused = Plain::configure(&[("loud".to_owned(), "1".to_owned())]);
        assert_eq!(refused.expect_err("it has no options").name, "loud");
    }

    #[test]
    fn open_blocks_are_told_apart_by_index() {
        let mut open = OpenBlocks::default();
        let call = Block::ToolCall(ToolCallStart {
            id: "1".into(),
            name: "f".into(),
            kind: CallKind::Function,
        });
        let blocks = [Block::Reasoning, call.clone(), Block::Refusal];
        for (index, block) in (0..).zip(blocks) {
            open.follow(&Event::BlockStart(BlockStart { index, block }));
        }
        open.follow(&Event::BlockEnd(0));
        assert_eq!(open.get(0), None);
        assert_eq!(open.get(1), Some(&call));
        assert!(!open.is_prose(0) && !open.is_prose(1) && open.is_prose(2));
    }
}
