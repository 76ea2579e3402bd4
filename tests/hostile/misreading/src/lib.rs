//! An adapter that misuses the long texts of a chat on command, to show the host's defences.
//!
//! The last message has the command, a short JSON object: [`Command`]. Without `parts`, the response is the input of `begin`
//! as JSON: the request's `texts`, and `long`, the texts that stay with the host.

#[cfg(target_family = "wasm")]
mod adapter;

#[cfg(target_family = "wasm")]
mod bindings {
    wit_bindgen::generate!({
        path: "../../../wit",
        world: "text-moving-provider",
        additional_derives: [serde::Serialize],
        // They contain a handle.
        additional_derives_ignore: ["begun", "beginning"],
    });

    use crate::adapter::Adapter;

    export!(Adapter);
}
