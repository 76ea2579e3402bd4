//! Payments: users buy plans and credits from a payment processor, and its events change their accounts.
//!
//! - [`checkout`]: the page on which a user pays.
//! - [`inbox`]: stores the events of the processor and applies them; [`effects`] changes the accounts.
//! - [`auto_top_up`]: charges a card if an account is low on credits.
//! - [`notices`]: messages for users, for example about a failed payment.
//! - [`reconcile`]: compares payments with the ledger.
//!
//! **Invariant:** only signed events of the processor, and its responses to charges, give credits. A visit to a checkout page
//! gives none.
//! **Invariant:** every request that the processor must carry out once has an idempotency key. The database stores the key before the
//! request, so a repeat sends the same key.
//!
//! To sell another item, edit [`offers`]; to change its price, [`settings`]; to add a processor, [`processor`].

mod account_caches;
pub mod arrivals;
pub mod auto_top_up;
pub mod budget_alerts;
pub mod charges;
pub mod checkout;
pub mod effects;
pub mod event_store;
pub mod events;
pub mod inbox;
mod keyed_tasks;
pub mod local;
pub mod metrics;
pub mod notices;
pub mod offers;
mod payments;
pub mod processor;
pub mod reconcile;
pub mod settings;
pub mod signature;
mod spans;
pub mod store;
pub mod stripe;
pub mod terms;

pub use self::account_caches::AccountCaches;
pub use self::payments::{BuyingPages, PaymentParts, PaymentState, Payments};
