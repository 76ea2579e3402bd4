//! Calls of tools at once: of the node, and of each account, so that none leaves nothing to the others.

use std::sync::Arc;

use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use weir_ledger::AccountId;

use crate::shares::{Share, Shares};

/// The turns of a node.
pub(super) struct Turns {
    node: Semaphore,
    accounts: Arc<Accounts>,
    per_account: u32,
}

#[derive(Default)]
struct Accounts {
    shares: Arc<Shares>,
    /// Some account has one call less.
    freed: Notify,
}

/// An account's right to a call. Given back when dropped.
pub struct AccountTurn {
    share: Option<Share>,
    accounts: Arc<Accounts>,
}

impl Drop for AccountTurn {
    fn drop(&mut self) {
        self.share = None;
        self.accounts.freed.notify_waiters();
    }
}

impl Turns {
    /// So many calls at once, and so many of one account.
    pub(super) fn new(at_once: u32, per_account: u32) -> Self {
        Self {
            node: Semaphore::new(at_once as usize),
            accounts: Arc::default(),
            per_account,
        }
    }

    /// Calls of one account at once.
    pub(super) fn per_account(&self) -> u32 {
        self.per_account
    }

    /// An account's turn; `None` if it has its share.
    pub(super) fn try_take(&self, account: &AccountId) -> Option<AccountTurn> {
        let share = self
            .accounts
            .shares
            .take_one(&account.0, self.per_account)?;
        Some(AccountTurn {
            share: Some(share),
            accounts: self.accounts.clone(),
        })
    }

    /// The same, waiting for the account's other calls.
    pub(super) async fn take(&self, account: &AccountId) -> AccountTurn {
        loop {
            let freed = self.accounts.freed.notified();
            tokio::pin!(freed);
            // Whatever is freed from here on is heard of.
            freed.as_mut().enable();
            if let Some(turn) = self.try_take(account) {
                return turn;
            }
            freed.await;
        }
    }

    /// A place among all calls of the node; `None` is never returned while the node runs.
    pub(super) async fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.node.acquire().await.ok()
    }
}
