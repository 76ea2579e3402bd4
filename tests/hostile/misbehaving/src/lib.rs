//! An adapter that misbehaves on command, to show what the host withstands.
//!
//! The last user message (or the prompt of an image request) holds the command, a JSON object such
//! as `{"behave": "spin", "in": "body"}`, so that one component serves every test. [`command`]
//! lists them all. A message that is no such object is answered healthily, with `ok`; a command
//! that this crate does not know is refused as unsupported, so that a slip in a test cannot pass
//! for good behaviour. What the healthy answer is like, tests change in the component's bytes: see [`habits`].
//!
//! No request reaches `configure`, so there the value of the option named `option` is the command; see
//! [`configure`].
//!
//! What compiled Rust cannot do to the host, such as hanging while it is instantiated or lying
//! about a length, the `.wat` guests beside this crate do.

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
        // It holds a handle, which is neither equal to anything nor written anywhere.
        additional_derives_ignore: ["begun"],
    });

    /// What the standard library never asks for, such as many random bytes at once; [`crate::fault`] does.
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
