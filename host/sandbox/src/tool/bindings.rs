//! Bindings for the `swarm-tool` world of `weir:plugin@0.2.3`. Generated names stop here.

mod generated {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "swarm-tool",
        imports: { default: async | trappable },
        exports: { default: async },
        additional_derives: [PartialEq],
        with: { "weir:plugin/log": crate::vocabulary::log },
    });
}

pub use generated::exports::weir::plugin::tool;
pub use generated::weir::plugin::outbound;
