//! Bindings for the `request-filter` world of `weir:plugin@0.2.1`, generated once for all filters.
//!
//! Public for [`export_filter!`](crate::export_filter) alone; everyone else uses the names in
//! [`filter`](crate::filter) and [`chat`](crate::chat).

#[expect(
    missing_docs,
    reason = "generated from wit/, where the documentation is"
)]
mod generated {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "request-filter",
        with: {
            "weir:plugin/chat@0.2.1": crate::bindings::weir::plugin::chat,
            "weir:plugin/log@0.2.1": crate::bindings::weir::plugin::log,
        },
        additional_derives: [PartialEq],
        // It holds a handle, which equals nothing.
        additional_derives_ignore: ["verdict"],
        pub_export_macro: true,
        export_macro_name: "export_request_filter",
    });
}

pub use generated::*;
