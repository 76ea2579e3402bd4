//! The endpoints and the development folder of plugins; [`weir_plugins`] decides which component serves.

pub mod routes;
pub mod watch;
