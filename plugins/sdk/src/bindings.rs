//! Bindings for the `versatile-provider` world of `weir:plugin@0.2.3`, generated once for all adapters.
//!
//! Public for [`export_adapter!`](crate::export_adapter) alone; everyone else uses the names in
//! [`adapter`](crate::adapter) and [`chat`](crate::chat).

#[expect(
    missing_docs,
    reason = "generated from wit/, where the documentation is"
)]
mod generated {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "versatile-provider",
        additional_derives: [PartialEq],
        // It holds a handle, which equals nothing.
        additional_derives_ignore: ["begun", "beginning"],
        pub_export_macro: true,
        export_macro_name: "export_provider",
    });
}

pub use generated::*;
