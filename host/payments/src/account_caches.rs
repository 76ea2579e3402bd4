//! Copies of accounts in the cache, which belong to other features.

use futures_util::future::BoxFuture;
use weir_ledger::AccountId;
use weir_storage::Cache;
use weir_storage::cache::CacheError;

/// Functions that drop the copies of an account. Other features own the copies, so the functions arrive as parameters.
#[derive(Clone, Copy)]
pub struct AccountCaches {
    /// Drops the copies of a user's plan. Payments call it before the plan changes.
    pub drop_plan: for<'a> fn(&'a Cache, &'a str) -> BoxFuture<'a, Result<(), CacheError>>,
    /// Drops the usage summary of an account. Payments call it after the credits have changed.
    pub drop_summary: for<'a> fn(&'a Cache, &'a AccountId) -> BoxFuture<'a, ()>,
}
