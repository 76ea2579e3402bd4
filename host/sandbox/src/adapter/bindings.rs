//! Bindings for the `provider` world of `weir:plugin@0.2.0`.
//!
//! Generated names stop here. When the contract breaks, its old files are frozen under
//! `wit/since-v0.2.0/` and a module like this one maps them to the latest.

#[expect(
    missing_docs,
    reason = "generated from wit/, where the documentation is"
)]
mod generated {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "provider",
        imports: { default: async | trappable },
        exports: { default: async },
        additional_derives: [PartialEq],
    });
}

pub use generated::exports::weir::plugin::adapter;
pub use generated::weir::plugin::{chat, log};
pub use generated::{Provider, ProviderPre};
