//! The components that are compiled into the binary; `build.rs` makes the list from `plugins/`.

use std::borrow::Cow;

/// A component that comes with a slot's name.
#[derive(Debug, Clone)]
pub struct Bundled {
    /// The slot it fills, e.g. `openai`, `http_get` or `redact-pii`.
    pub name: Cow<'static, str>,
    /// The component's bytes.
    pub bytes: Cow<'static, [u8]>,
}

/// All bundled components.
pub fn plugins() -> Vec<Bundled> {
    let mut plugins = adapters();
    plugins.extend(tools());
    plugins.extend(filters());
    plugins
}

/// The bundled adapters.
pub fn adapters() -> Vec<Bundled> {
    include!(concat!(env!("OUT_DIR"), "/bundled_adapters.rs"))
}

/// The bundled tools.
pub fn tools() -> Vec<Bundled> {
    include!(concat!(env!("OUT_DIR"), "/bundled_tools.rs"))
}

/// The bundled filters.
pub fn filters() -> Vec<Bundled> {
    include!(concat!(env!("OUT_DIR"), "/bundled_filters.rs"))
}
