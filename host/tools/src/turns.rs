//! Limits on concurrent tool calls: of the node, and of each account, so that no account takes all.

use std::sync::Arc;

use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use weir_ledger::AccountId;
use weir_request::shares::{Share, Shares};

/// The permits of a node.
pub(super) struct Turns {
    node: Semaphore,
    accounts: Arc<Accounts>,
    per_account: u32,
}

#[derive(Default)]
struct Accounts {
    shares: Arc<Shares>,
    /// Notified when a call of any account ends.
    freed: Notify,
}

/// The permit of an account's call. It is released on drop.
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
    /// Returns the permits with a limit for all calls, and one for each account.
    pub(super) fn new(at_once: u32, per_account: u32) -> Self {
        Self {
            node: Semaphore::new(at_once as usize),
            accounts: Arc::default(),
            per_account,
        }
    }

    /// The maximum concurrent calls of one account.
    pub(super) fn per_account(&self) -> u32 {
        self.per_account
    }

    /// Returns an account's permit; `None` if it has its share.
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

    /// Waits for an account's permit.
    pub(super) async fn take(&self, account: &AccountId) -> AccountTurn {
        loop {
            let freed = self.accounts.freed.notified();
            tokio::pin!(freed);
            // The registration precedes the check, so that no release is missed.
            freed.as_mut().enable();
            if let Some(turn) = self.try_take(account) {
                return turn;
            }
            freed.await;
        }
    }

    /// Waits for a permit of the node; `None` only after the node has stopped.
    pub(super) async fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.node.acquire().await.ok()
    }
}
