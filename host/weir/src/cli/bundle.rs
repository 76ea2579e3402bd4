//! The files that the program embeds. They are the same throughout its life.

use std::sync::OnceLock;

use weir_plugins::bundled::Bundle;

static BUNDLE: OnceLock<&'static Bundle> = OnceLock::new();

/// Sets the files, once.
pub(super) fn set(bundle: &'static Bundle) {
    BUNDLE.get_or_init(|| bundle);
}

/// Returns the files.
pub(super) fn bundle() -> &'static Bundle {
    BUNDLE.get().expect("`run` has set it")
}
