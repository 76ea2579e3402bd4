//! The content log: prompts and responses of the requests of those who chose it, for a few days.
//!
//! A key's user chooses it for the key, an administrator of an organisation for the organisation, and only if the
//! gateway's configuration allows it ([`settings`]). A request collects its content ([`content`]) and puts it into a queue
//! when it ends ([`crate::write_behind`]); the writer redacts credentials, seals the content and stores it
//! ([`store`]). An account has a limited number of rows an hour, over all nodes; a metric counts the others.
//!
//! **Invariant:** no content leaves memory unredacted or unsealed, and no log line or error has any.
//! **Invariant:** a row belongs to one request of one account: it opens only with both ids.

pub mod content;
mod queue;
mod reading;
mod response;
pub mod settings;
pub mod store;

pub use self::content::{LoggedError, LoggedRequest};
pub use self::queue::{ContentLog, EndedContent};
pub use self::response::ResponseContent;
pub use self::settings::ContentLogChoice;
