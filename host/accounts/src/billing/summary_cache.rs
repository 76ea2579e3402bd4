//! The copies of usage summaries in the cache.

use std::time::Duration;

use weir_ledger::AccountId;
use weir_storage::Cache;

/// How long a summary is shown.
pub const SUMMARY_TTL: Duration = Duration::from_secs(60);

/// Drops the summary of an account. The change of the account must be durable before.
pub async fn drop_summary(cache: &Cache, account: &AccountId) {
    // The cache logs its errors. The summary then expires after its lifetime.
    let _ = cache.drop_value(&name(account), SUMMARY_TTL).await;
}

/// Drops the summary of an account soon after a request. The charge must be durable before.
pub fn drop_summary_soon(cache: &Cache, account: &AccountId) {
    cache.drop_value_soon(&name(account), SUMMARY_TTL);
}

/// The name of an account's summary in the cache.
pub(super) fn name(account: &AccountId) -> String {
    format!("usage:{account}")
}
