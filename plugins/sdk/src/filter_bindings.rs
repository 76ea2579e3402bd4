//! Bindings for the `guarding-filter` world of `weir:plugin@0.2.3`, generated once for all filters.
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
        world: "guarding-filter",
        with: {
            "weir:plugin/chat@0.2.3": crate::bindings::weir::plugin::chat,
            "weir:plugin/log@0.2.3": crate::bindings::weir::plugin::log,
        },
        additional_derives: [PartialEq],
        // They hold handles, which equal nothing.
        additional_derives_ignore: ["verdict", "step", "begun"],
        pub_export_macro: true,
        export_macro_name: "export_request_filter",
    });
}

pub use generated::*;
