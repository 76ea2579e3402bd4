//! The chain of an account's entries: each names the hash of the one before it, and the account that of the last one. An entry
//! that was changed later no longer has the hash that the next one names.
//!
//! The hash is over the columns that are not null, in the order of [`ENTRIES`]: columns are added at the end of a list, so the
//! hashes of earlier entries stay the same. The number of an entry is left out, because the database assigns it; openings of the
//! archive, and entries of nodes of an earlier release during an upgrade, are not in the chain.

use sha2::{Digest as _, Sha256};
use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::rows::{AccountRow, DatabaseRow as _, ENTRIES, Value};
use crate::account::{EntryHash, LedgerEntry};

/// An entry in the database, and its hash.
pub(crate) struct ChainLink {
    pub account: String,
    pub sequence: i64,
    /// `None` if the entry is not in the chain.
    pub previous: Option<Vec<u8>>,
    pub hash: EntryHash,
}

/// Returns the hash of a new entry with its previous hash.
pub(super) fn hash_of_entry(row: &AccountRow<'_, LedgerEntry>) -> EntryHash {
    let values = ENTRIES
        .columns()
        .map(|column| (column.name, column.value(row)));
    hash(values)
}

/// Reads an entry from a row with the columns of [`ENTRIES`].
pub(crate) fn read_link(row: &AnyRow) -> sqlx::Result<ChainLink> {
    let previous: Option<Vec<u8>> = row.try_get("previous_hash")?;
    let mut values = Vec::with_capacity(32);
    for (index, column) in ENTRIES.columns().enumerate() {
        let value = match column.kind {
            "TEXT" => row.text(index)?.into(),
            "BIGINT" => row.integer(index)?.into(),
            _ => previous.as_deref().map_or(Value::Null, Value::Bytes),
        };
        values.push((column.name, value));
    }
    Ok(ChainLink {
        account: row.try_get("account_id")?,
        sequence: row.try_get("sequence")?,
        hash: hash(values.into_iter()),
        previous,
    })
}

/// Returns the query for [`read_link`]; a condition follows.
pub(crate) fn find_links() -> String {
    format!("SELECT {} FROM entries", ENTRIES.names())
}

fn hash<'a>(values: impl Iterator<Item = (&'static str, Value<'a>)>) -> EntryHash {
    let mut framed = Vec::with_capacity(1_024);
    for (name, value) in values {
        let mut frame = |kind, content: &[u8]| {
            framed.extend_from_slice(name.as_bytes());
            framed.extend_from_slice(&[0, kind]);
            framed.extend_from_slice(&(content.len() as u64).to_be_bytes());
            framed.extend_from_slice(content);
        };
        match value {
            Value::Null => {}
            Value::Integer(integer) => frame(b'i', &integer.to_be_bytes()),
            Value::Text(text) => frame(b't', text.as_bytes()),
            Value::Bytes(bytes) => frame(b'b', bytes),
        }
    }
    Sha256::digest(framed).into()
}

#[cfg(test)]
mod tests {
    use weir_storage::clock::Millis;
    use weir_storage::ids::Hex;

    use super::*;
    use crate::account::EntryKind;
    use crate::credits::Credits;
    use crate::operation::AccountId;

    /// Entries in databases have these hashes: neither columns nor their order may change.
    #[test]
    fn the_hash_of_an_entry_stays_the_same() {
        let mut entry = LedgerEntry {
            sequence: 2,
            at: Millis(1_750_000_000_000),
            kind: EntryKind::Settlement,
            plan_delta: Credits::from_micro(-7),
            top_up_delta: Credits::ZERO,
            overrun: Credits::ZERO,
            owed: Credits::ZERO,
            period_start: Millis(0),
            recorded: None,
            hold: None,
            usage: None,
            previous_hash: [1; 32],
        };
        let account = AccountId("usr_1".to_owned());
        let hash = |entry: &LedgerEntry| Hex(&hash_of_entry(&(&account, entry))).to_string();
        let first = hash(&entry);
        assert_eq!(
            first,
            "1fdd52db3e943449054ebf1afce0e625798da30c0817f35cdeb9575f284c7e1f"
        );
        entry.previous_hash = [2; 32];
        assert_ne!(hash(&entry), first);
    }
}
