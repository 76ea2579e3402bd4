//! The endpoints and the development folder of plugins; [`weir_plugins`] chooses the active component.

pub mod routes;
pub mod watch;
