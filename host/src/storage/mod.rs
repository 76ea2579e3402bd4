//! Where weir keeps what must last, and what is quick to ask for. Each feature keeps its SQL to itself,
//! in its own `store.rs`.

pub mod cache;
pub mod database;

pub use self::cache::Cache;
pub use self::database::Database;
