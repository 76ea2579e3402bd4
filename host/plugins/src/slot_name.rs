//! What slots may be called.

/// Bytes of the longest name of a slot.
const SLOT_BYTES: usize = 64;

/// What names a slot may have.
pub const SLOT_NAMES: &str = "A slot's name has 1 to 64 lower-case letters, digits, hyphens and underscores, and is \
                              not \"events\".";

/// Whether a slot may have this name, which goes into paths, tables of configuration and metrics.
pub fn is_slot_name(slot: &str) -> bool {
    let is_good =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    // What follows `/admin/plugins/` in another path.
    (1..=SLOT_BYTES).contains(&slot.len()) && slot.bytes().all(is_good) && slot != "events"
}
