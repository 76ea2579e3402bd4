//! A tool that schemes on command, to show what the host withstands.
//!
//! The arguments are the command, a JSON object such as `{"behave": "spin"}`; [`command::Command`] lists them all. What no
//! command can do, such as nonsense from `describe`, tools that tests make up do.

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
