//! Bindings for the `stepwise-filter` world of `weir:plugin@0.2.3`. Generated names stop here.

mod generated {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "stepwise-filter",
        imports: { default: async | trappable },
        exports: { default: async },
        additional_derives: [PartialEq],
        with: {
            "weir:plugin/chat": crate::vocabulary::chat,
            "weir:plugin/log": crate::vocabulary::log,
        },
    });
}

pub use generated::exports::weir::plugin::{filter, filter_steps};
