//! A tool that schemes on command, to show the host's defences.
//!
//! The arguments are the command, a JSON object such as `{"behave": "spin"}`; [`command::Command`] lists them all.
//! Tools that tests build commit faults without a command, such as an invalid result of `describe`.

#[cfg(target_family = "wasm")]
mod command;

#[cfg(target_family = "wasm")]
mod bindings {
    wit_bindgen::generate!({
        path: "../../../wit",
        world: "swarm-tool",
    });

    export!(Tool);

    pub(crate) use crate::command::Tool;
}
