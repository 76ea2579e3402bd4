//! Where weir keeps what must last. Each feature keeps its SQL to itself, in its own `store.rs`.

pub mod database;

pub use self::database::Database;
