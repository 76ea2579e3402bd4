//! Bindings for the interfaces that several worlds of `weir:plugin@0.2.3` share. Generated names stop here.

mod generated {
    wasmtime::component::bindgen!({
        path: "../../wit",
        inline: "package weir:vocabulary; world vocabulary { \
                 import weir:plugin/chat@0.2.3; import weir:plugin/log@0.2.3; }",
        imports: { default: async | trappable },
        // Stored conversations are JSON.
        additional_derives: [PartialEq, serde::Serialize, serde::Deserialize],
    });
}

pub use generated::weir::plugin::{chat, log};
