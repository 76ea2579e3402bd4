//! What the ledger is held against: an [`oracle`] of its rules, and a [`simulation`] of everything that can
//! happen to its committer. `tests/it/ledger.rs` runs a little of both, `cargo torture L1 L2` a lot.

pub mod oracle;
pub mod random;
pub mod simulation;

use weir::storage::Database;

/// Makes users, as somebody who signs in does.
pub async fn create_users(database: &Database, ids: impl Iterator<Item = &str>, created_at: i64) {
    for id in ids {
        sqlx::query("INSERT INTO users (id, created_at) VALUES ($1, $2)")
            .bind(id)
            .bind(created_at)
            .execute(database.writer())
            .await
            .expect("a user can be made");
    }
}
