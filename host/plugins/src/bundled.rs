//! The files that the `weir` program embeds beside the library: plugins, samples and recordings.
//!
//! The crate `weir-bundled` builds and embeds the files. This crate does not depend on it, so that a change of a plugin does not
//! recompile the gateway.

use std::borrow::Cow;

/// A file that the program embeds: its name or path, and its text.
pub type TextFile = (&'static str, &'static str);

/// All files that the program embeds.
#[derive(Debug)]
pub struct Bundle {
    pub adapters: &'static [BundledBytes],
    pub tools: &'static [BundledBytes],
    pub filters: &'static [BundledBytes],
    /// The files of sample plugins, by their paths below `plugins/samples`.
    pub samples: &'static [TextFile],
    /// The files of the Rust SDK, by their paths below `plugins/sdk`.
    pub sdk: &'static [TextFile],
    /// Chat requests as JSON that `weir plugin check` tries adapters with.
    pub requests: &'static [TextFile],
    /// Recorded provider responses, as `curl -i` prints them: provider, name, bytes.
    pub responses: &'static [(&'static str, &'static str, &'static [u8])],
    /// The commit of the sources, or `unknown`.
    pub commit: &'static str,
    /// The bill of materials as CycloneDX JSON, compressed with DEFLATE.
    pub sbom: &'static [u8],
}

/// A component's slot name, and its bytes.
pub type BundledBytes = (&'static str, &'static [u8]);

/// A component and the slot that it fills.
#[derive(Debug, Clone)]
pub struct BundledComponent {
    /// The slot's name, e.g. `openai`, `http_get` or `redact-pii`.
    pub name: Cow<'static, str>,
    pub bytes: Cow<'static, [u8]>,
}

impl Bundle {
    pub fn plugins(&self) -> Vec<BundledComponent> {
        let all = [self.adapters, self.tools, self.filters];
        all.concat()
            .into_iter()
            .map(BundledComponent::from)
            .collect()
    }
}

impl From<BundledBytes> for BundledComponent {
    fn from((name, bytes): BundledBytes) -> Self {
        Self {
            name: Cow::Borrowed(name),
            bytes: Cow::Borrowed(bytes),
        }
    }
}
