//! The adapter's side of the contract, as one trait and one macro.

use std::cell::RefCell;

use crate::bindings::exports::weir::plugin::adapter as exported;

pub use exported::{
    CredentialSlot, Description, Failure, Header, HttpRequest, HttpResponseHead, Request, Setting,
    Step,
};

pub use crate::chat::Event;

/// One attempt at one request, from translation to the end of the answer.
///
/// The host calls [`next`](Self::next) until it says [`Step::Done`]. After each [`Step::Send`]
/// it calls [`head`](Self::head) once, [`body`](Self::body) for each piece as it arrives (in
/// pieces of any size, cut anywhere) and [`end`](Self::end) when the response is complete. After
/// a failure it calls nothing more.
pub trait Exchange: Sized + 'static {
    /// Says what this adapter is. Called once, when it is loaded.
    fn describe() -> Description;

    /// Takes the request and what the operator set for this upstream.
    ///
    /// What the upstream can't express is refused here, by name, before anything is sent.
    fn begin(request: Request, options: Vec<Setting>) -> Result<Self, Failure>;

    /// What the exchange wants next.
    fn next(&mut self) -> Result<Step, Failure>;

    /// The status and headers of the response to the last [`Step::Send`].
    fn head(&mut self, head: HttpResponseHead) -> Result<(), Failure>;

    /// The next bytes of that response's body, and the events that they complete.
    fn body(&mut self, bytes: &[u8]) -> Result<Vec<Event>, Failure>;

    /// The response is complete; what is still due comes now.
    fn end(&mut self) -> Result<Vec<Event>, Failure>;
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
            type Exported = $crate::adapter::Glue<$exchange>;
    $crate::bindings::export_provider!(Exported with_types_in $crate::bindings);
        };
    };
}

/// Carries an [`Exchange`] across the generated traits.
///
/// WIT methods take `&self`, hence the cell. The host makes one call at a time and an exchange
/// can't reach itself, so it is never borrowed twice.
#[doc(hidden)]
pub struct Glue<E>(RefCell<E>);

impl<E: Exchange> exported::Guest for Glue<E> {
    type Exchange = Self;

    fn describe() -> Description {
        E::describe()
    }
}

impl<E: Exchange> exported::GuestExchange for Glue<E> {
    fn begin(request: Request, options: Vec<Setting>) -> Result<exported::Exchange, Failure> {
        E::begin(request, options)
            .map(|exchange| exported::Exchange::new(Self(RefCell::new(exchange))))
    }

    fn next(&self) -> Result<Step, Failure> {
        self.0.borrow_mut().next()
    }

    fn head(&self, head: HttpResponseHead) -> Result<(), Failure> {
        self.0.borrow_mut().head(head)
    }

    fn body(&self, bytes: Vec<u8>) -> Result<Vec<Event>, Failure> {
        self.0.borrow_mut().body(&bytes)
    }

    fn end(&self) -> Result<Vec<Event>, Failure> {
        self.0.borrow_mut().end()
    }
}
