//! Bindings for the `versatile-provider` world of `weir:plugin@0.2.3`.
//!
//! Generated names stop here. The bindings also serve components of 0.2.0, whose interfaces are the same
//! (`wit/since-v0.2.0/`). If the contract breaks, a module like this one maps its old files to the latest.

mod generated {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "versatile-provider",
        imports: { default: async | trappable },
        exports: { default: async },
        additional_derives: [PartialEq],
        with: {
            "weir:plugin/chat": crate::vocabulary::chat,
            "weir:plugin/log": crate::vocabulary::log,
        },
    });
}

pub use generated::exports::weir::plugin::*;

pub use crate::vocabulary::{chat, log};
