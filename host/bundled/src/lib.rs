//! The plugins, samples and recordings that the `weir` program embeds.
//!
//! `build.rs` builds the plugins to Wasm and lists the files. Only this crate is compiled again when one of them changes.

use weir_plugins::bundled::Bundle;

/// All files that the program embeds.
pub static BUNDLE: Bundle = Bundle {
    adapters: include!(concat!(env!("OUT_DIR"), "/adapters.rs")),
    tools: include!(concat!(env!("OUT_DIR"), "/tools.rs")),
    filters: include!(concat!(env!("OUT_DIR"), "/filters.rs")),
    samples: include!(concat!(env!("OUT_DIR"), "/samples.rs")),
    sdk: include!(concat!(env!("OUT_DIR"), "/sdk.rs")),
    requests: include!(concat!(env!("OUT_DIR"), "/requests.rs")),
    responses: include!(concat!(env!("OUT_DIR"), "/responses.rs")),
    commit: env!("BUNDLED_COMMIT"),
    sbom: include_bytes!(concat!(env!("OUT_DIR"), "/sbom")),
};
