//! The names of slots.

/// Maximum length of a slot's name, in bytes.
const SLOT_BYTES: usize = 64;

/// The rule for a slot's name.
pub const SLOT_NAMES: &str = "A slot's name has 1 to 64 lower-case letters, digits, hyphens and underscores, and is \
                              not \"events\".";

/// Returns whether a slot may have this name, which goes into paths, tables of configuration and metrics.
pub fn is_slot_name(slot: &str) -> bool {
    let is_good =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    // The excluded names follow `/admin/plugins/` in other paths.
    (1..=SLOT_BYTES).contains(&slot.len()) && slot.bytes().all(is_good) && slot != "events"
}
