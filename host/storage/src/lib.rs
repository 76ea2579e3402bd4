//! The base of weir's crates: databases, caches, clocks, ids, secrets and sealing.
//!
//! - [`database`]: SQLite or PostgreSQL, its schema up to date; [`cache`]: in process or Redis.
//! - [`expiring`]: values that last for a limited time.
//! - [`secrets`]: values that must not be shown; [`sealing`]: stored values that only weir may read.
//! - [`file_lock`]: locks between processes.
//! - [`background`]: work that a node repeats.
//! - [`clock`] and [`ids`]: time and names, which arrive as parameters everywhere else.
//!
//! **Architecture invariant:** no code here knows a feature: no account, no plugin, no request. Each feature keeps
//! its SQL to itself, in its own `store.rs`.

pub mod background;
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
