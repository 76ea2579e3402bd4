//! The components that are compiled into the binary; `build.rs` makes the list from `plugins/`.

use std::borrow::Cow;

/// A component that comes with a slot's name.
#[derive(Debug, Clone)]
pub struct Bundled {
    /// The slot it fills, e.g. `openai`.
    pub name: Cow<'static, str>,
    /// The component's bytes.
    pub bytes: Cow<'static, [u8]>,
}

/// The bundled adapters.
pub fn adapters() -> Vec<Bundled> {
    include!(concat!(env!("OUT_DIR"), "/bundled_adapters.rs"))
}
