//! What weir's crates stand on: what must last, what is quick to ask for, and what both are kept under.
//!
//! - [`database`]: SQLite or PostgreSQL, its schema up to date; [`cache`]: in process or Redis.
//! - [`expiring`]: what must last for a time only.
//! - [`secrets`]: what must not be shown; [`sealing`]: what only weir may read of what lasts.
//! - [`file_lock`]: what processes keep one another out by.
//! - [`clock`] and [`ids`]: time and names, which arrive as parameters everywhere else.
//!
//! **Architecture invariant:** nothing here knows a feature: no account, no plugin, no request. Each feature keeps its
//! SQL to itself, in its own `store.rs`.

pub mod cache;
pub mod clock;
pub mod database;
pub mod expiring;
pub mod file_lock;
pub mod ids;
pub mod sealing;
pub mod secrets;

pub use self::cache::Cache;
pub use self::database::Database;
