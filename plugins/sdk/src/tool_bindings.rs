//! Bindings for the `swarm-tool` world of `weir:plugin@0.2.0`, generated once for all tools.
//!
//! Public for [`export_tool!`](crate::export_tool) alone; everyone else uses the names in [`tool`](crate::tool).

#[expect(
    missing_docs,
    reason = "generated from wit/, where the documentation is"
)]
mod generated {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "swarm-tool",
        additional_derives: [PartialEq],
        pub_export_macro: true,
        export_macro_name: "export_swarm_tool",
    });
}

pub use generated::*;
