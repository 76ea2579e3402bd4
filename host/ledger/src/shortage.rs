//! Operations for which nodes' blocks reserve the credits that they need.
//!
//! A batch that misses credits of its own run's blocks is not done: the node stores its holds, returns the blocks, and
//! tries again. A refusal for which other runs' blocks reserve the credits calls these back and becomes
//! [`LedgerRefusal::Blocked`]: the caller tries again. So does the caller of an operation that [waits for
//! blocks](waits_for_blocks).

use std::collections::{BTreeMap, BTreeSet};

use crate::account::{Account, Pools};
use crate::credits::Credits;
use crate::operation::{
    AccountId, Action, BlockKey, BootId, LedgerRefusal, Operation, OperationOutcome, Pool,
};

type Accounts = BTreeMap<AccountId, Account>;

/// The decision about a batch.
#[derive(Debug)]
pub enum Decision {
    /// The batch must not be done: the run's own blocks reserve needed credits of these accounts.
    Short(BTreeSet<AccountId>),
    /// The batch can be committed.
    Done {
        outcomes: Vec<OperationOutcome>,
        /// The accounts whose blocks at other nodes must be called back.
        called: BTreeSet<AccountId>,
    },
}

/// Decides about a batch of a run, or of a command, after it was applied to its accounts with these outcomes.
pub fn decide(
    accounts: &Accounts,
    operations: &[&Operation],
    mut outcomes: Vec<OperationOutcome>,
    run: Option<&BootId>,
) -> Decision {
    if let Some(run) = run {
        let short = short_accounts(accounts, operations, &outcomes, run);
        if !short.is_empty() {
            return Decision::Short(short);
        }
    }
    let mut called = BTreeSet::new();
    for (operation, outcome) in operations.iter().zip(&mut outcomes) {
        let Some(account) = accounts.get(&operation.account) else {
            continue;
        };
        let is_blocked = *outcome == Err(LedgerRefusal::Blocked);
        if is_blocked || look_at_others(account, operation, outcome, run) {
            *outcome = Err(LedgerRefusal::Blocked);
            called.insert(operation.account.clone());
        } else if run.is_some_and(|run| misses_plan(account, operation, run)) {
            called.insert(operation.account.clone());
        }
    }
    Decision::Done { outcomes, called }
}

/// Returns whether an operation must wait until other runs have returned their blocks: it needs an exact balance, or lowers
/// what they may spend. Until then it is [`LedgerRefusal::Blocked`]. The blocks of a silent node are returned after its lease.
pub fn waits_for_blocks(operation: &Operation, account: &Account, run: Option<&BootId>) -> bool {
    let mut blocks = account.blocks.iter();
    operation.action.needs_returned_blocks()
        && blocks
            .any(|(key, block)| Some(&key.boot_id) != run && block.reserved.total() > Credits::ZERO)
}

/// Returns whether an action would return the blocks of one of these runs, which may still use them, although it must not: the
/// run has come back since another node looked for it.
pub fn spares_blocks(action: &Action, leased: &BTreeSet<BootId>) -> bool {
    let Action::EndBlocks {
        boot_id,
        unless_leased: true,
    } = action
    else {
        return false;
    };
    leased.contains(boot_id)
}

/// Returns the accounts for which the run's own blocks may have changed an outcome.
fn short_accounts(
    accounts: &Accounts,
    operations: &[&Operation],
    outcomes: &[OperationOutcome],
    run: &BootId,
) -> BTreeSet<AccountId> {
    let both = operations.iter().zip(outcomes);
    let short = both.filter(|(operation, outcome)| {
        let Some(account) = accounts.get(&operation.account) else {
            return false;
        };
        let is_own = |key: &BlockKey| key.boot_id == *run;
        account.journal.drew_beside_blocks && account.blocks.keys().any(is_own)
            || is_refused(operation, outcome)
                && blocked(account, outcome, is_own).total() > Credits::ZERO
    });
    short
        .map(|(operation, _)| operation.account.clone())
        .collect()
}

/// Returns whether the blocks of other runs reserve the credits for which an operation was refused. If they do not
/// suffice, the refusal counts them as available.
fn look_at_others(
    account: &Account,
    operation: &Operation,
    outcome: &mut OperationOutcome,
    run: Option<&BootId>,
) -> bool {
    if !is_refused(operation, outcome) {
        return false;
    }
    let blocked = blocked(account, outcome, |key| Some(&key.boot_id) != run);
    match outcome {
        Err(LedgerRefusal::Insufficient {
            required,
            available,
        }) => {
            let blocked = match top_up_only(&operation.action) {
                true => blocked.top_up,
                false => blocked.total(),
            };
            *available = available.saturating_add(blocked);
            available >= required
        }
        Err(LedgerRefusal::OverBudget(exceeded)) => {
            let standing = &mut exceeded.standing;
            standing.held = standing.held.saturating_sub(blocked.total());
            standing.left = standing.left.saturating_add(blocked.total());
            standing.left >= exceeded.required
        }
        _ => false,
    }
}

/// Returns whether other runs' blocks have credits of the plan, while the next hold would have bought credits.
fn misses_plan(account: &Account, operation: &Operation, run: &BootId) -> bool {
    let takes_plan = match &operation.action {
        Action::Open { open, .. } => open.parent.is_none() && !open.top_up_only,
        Action::FillBlock(fill) => !fill.block.top_up_only,
        _ => false,
    };
    let mut blocks = account.blocks.iter();
    takes_plan
        && account.available().plan == Credits::ZERO
        && blocks.any(|(key, block)| key.boot_id != *run && block.reserved.plan > Credits::ZERO)
}

/// Returns whether an operation was refused for credits that blocks may reserve. A parent's credits are in no block, but
/// blocks do count in the budgets of a request's own parts.
fn is_refused(operation: &Operation, outcome: &OperationOutcome) -> bool {
    match outcome {
        Err(LedgerRefusal::Insufficient { .. }) => !operation.action.draws_on_parent(),
        Err(LedgerRefusal::OverBudget(_)) => true,
        _ => false,
    }
}

/// Returns the credits in those blocks of an account that count for a refusal.
fn blocked(account: &Account, outcome: &OperationOutcome, of: impl Fn(&BlockKey) -> bool) -> Pools {
    let part = match outcome {
        Err(LedgerRefusal::OverBudget(exceeded)) => exceeded.part.as_ref(),
        _ => None,
    };
    let counts = |key: &BlockKey| part.is_none_or(|part| key.parts.contains(part));
    let blocks = account.blocks.iter();
    let blocks = blocks.filter(|(key, _)| of(key) && counts(key));
    blocks.fold(Pools::default(), |sum, (_, block)| sum.plus(block.reserved))
}

/// Returns whether only bought credits count for an operation.
fn top_up_only(action: &Action) -> bool {
    match action {
        Action::Open { open, .. } => open.top_up_only,
        Action::Adjust(adjust) => adjust.pool == Pool::TopUp,
        _ => false,
    }
}
