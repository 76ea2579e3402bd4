//! An adapter that misbehaves on command, to show the host's defences.
//!
//! The last user message (or the prompt of an image request) contains the command, a JSON object such as `{"behave":
//! "spin", "in": "body"}`, so that one component serves every test. [`command`] lists them all. A message that is no
//! such object gets a healthy response, `ok`; an unknown command is refused as unsupported: a typo in a test must not
//! pass for good behaviour. Tests change the healthy response in the component's bytes: see [`habits`].
//!
//! No request reaches `configure`: there the value of the option named `option` is the command; see [`configure`].
//!
//! The `.wat` guests beside this crate commit faults that compiled Rust cannot, such as hanging during instantiation
//! or a false length.

#[cfg(target_family = "wasm")]
mod command;
#[cfg(target_family = "wasm")]
mod configure;
#[cfg(target_family = "wasm")]
mod exchange;
#[cfg(target_family = "wasm")]
mod fault;
#[cfg(target_family = "wasm")]
mod habits;

#[cfg(target_family = "wasm")]
mod bindings {
    wit_bindgen::generate!({
        path: "../../../wit",
        world: "provider",
        additional_derives: [PartialEq, serde::Deserialize, serde::Serialize],
        // It contains a handle, which is never compared or serialized.
        additional_derives_ignore: ["begun"],
    });

    /// Imports that the standard library never uses, such as many random bytes at once; for [`crate::fault`].
    pub(crate) mod wasi {
        wit_bindgen::generate!({
            inline: "
                package hostile:misbehaving;

                world guest {
                    import wasi:random/random@0.2.0;
                    import wasi:io/poll@0.2.0;
                    import wasi:clocks/monotonic-clock@0.2.0;
                }

                package wasi:io@0.2.0 {
                    interface poll {
                        resource pollable {
                            ready: func() -> bool;
                            block: func();
                        }
                        poll: func(in: list<borrow<pollable>>) -> list<u32>;
                    }
                }

                package wasi:clocks@0.2.0 {
                    interface monotonic-clock {
                        use wasi:io/poll@0.2.0.{pollable};
                        type instant = u64;
                        type duration = u64;
                        now: func() -> instant;
                        resolution: func() -> duration;
                        subscribe-instant: func(when: instant) -> pollable;
                        subscribe-duration: func(when: duration) -> pollable;
                    }
                }

                package wasi:random@0.2.0 {
                    interface random {
                        get-random-bytes: func(len: u64) -> list<u8>;
                        get-random-u64: func() -> u64;
                    }
                }
            ",
            generate_all,
        });
    }

    export!(Adapter);

    pub(crate) use crate::exchange::Adapter;
}
