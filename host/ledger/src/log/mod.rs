//! The log: the end of a request that was opened in memory is one record in a row that only its own node writes. No
//! settlement waits for an account's lock, which another node may keep across a disk write, or writes the pages of accounts.
//!
//! A *record* is in the account's *tail* from the request's end to its *fold*: the transaction that applies the record to the
//! account, with all others of that account. Each transaction of a run on an account folds the run's tail of the account first,
//! and a task folds tails a second later. The caller gets its answer as soon as the record is durable.
//!
//! The answer is certain before the fold, because the account, or on PostgreSQL the request's block, still reserves the charge:
//! see [`Openings::end`](crate::openings::Openings::end). A charge that they do not cover, and the end of a hold with a row,
//! take the way through a batch.
//!
//! An append names the run's *fence*. Other nodes raise it before they fold the log of a run without a lease, and return its
//! blocks only afterwards; so nothing is appended behind their back. The records of a refused append take the way through a
//! batch, as late settlements.
//!
//! On PostgreSQL, row 0 of a log has no records, but the holds in memory whose requests have used something, at most half a second
//! old: a checkpoint locks no account, either. Other nodes settle these holds at their checkpoints, after they have folded the other
//! rows of an ended run.
//!
//! On SQLite, a new run raises the fences of all earlier runs and folds their logs before it serves. A command of another
//! process folds the log and raises all fences, in the transaction of its own operations: the process that serves then knows
//! that its accounts may have changed, and that its records may be folded.
//!
//! Holds have ids, so a record that is folded twice changes nothing the second time. The rows of a log therefore need not leave
//! it in the transaction of the fold: the next append deletes them.
//!
//! **Invariant:** a record leaves the log only after the transaction of its fold.
//! **Invariant:** for each block, the holds in memory and the charges of records that are not folded never exceed it.

mod queue;

use serde::{Deserialize, Serialize};
use weir_storage::clock::Millis;

pub use self::queue::{Append, LogAction, LogInput, LogQueue, Refused};
use crate::account::Pools;
use crate::budgets::BudgetPart;
use crate::credits::Credits;
use crate::operation::{
    AccountId, Action, BootId, Checkpoint, HoldId, OpenHold, Operation, OperationEffect,
    OperationOutcome, PersistHold, RequestSource, Settle,
};
use crate::usage::RequestUsage;

/// The end of a request, as the log has it. The names are short, because each request writes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRecord {
    #[serde(rename = "of")]
    account: AccountId,
    hold: HoldId,
    #[serde(rename = "req")]
    request_id: String,
    #[serde(rename = "src")]
    source: RequestSource,
    #[serde(rename = "src_id", default, skip_serializing_if = "Option::is_none")]
    source_id: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    parts: Vec<BudgetPart>,
    #[serde(default, skip_serializing_if = "is_false")]
    top_up_only: bool,
    model: String,
    /// The amount of the hold.
    amount: Credits,
    opened: Millis,
    ended: Millis,
    /// The charge, by pool.
    #[serde(default, skip_serializing_if = "is_zero")]
    plan: Credits,
    #[serde(default, skip_serializing_if = "is_zero")]
    top_up: Credits,
    /// Whether nothing was delivered. Usage is then a cost without a payer.
    #[serde(default, skip_serializing_if = "is_false")]
    released: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usage: Option<RequestUsage>,
}

/// A hold in memory, and what its request has used so far. If the run ends before the request, the request is charged for that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogCheckpoint {
    /// The hold with its credits, and the usage until the checkpoint.
    hold: LogRecord,
    used: Credits,
}

impl LogCheckpoint {
    /// Makes the checkpoint of a hold with these credits; `None` for other operations.
    pub(crate) fn new(
        open: &OpenHold,
        opened: Millis,
        reserved: Pools,
        checkpoint: &Operation,
    ) -> Option<Self> {
        let Action::Checkpoint(Checkpoint { credits, usage, .. }) = &checkpoint.action else {
            return None;
        };
        let mut hold = LogRecord::of_hold(open, &checkpoint.account, opened, reserved);
        hold.ended = checkpoint.at;
        hold.usage = Some(usage.clone());
        Some(Self {
            hold,
            used: *credits,
        })
    }

    /// Returns the operation that stores the hold with its checkpoint.
    pub fn operation(&self, run: &BootId) -> Operation {
        let checkpoint = Action::Checkpoint(Checkpoint {
            hold: self.hold.hold.clone(),
            credits: self.used,
            usage: self.hold.usage.clone().unwrap_or_default(),
        });
        let checkpoint = Operation {
            account: self.hold.account.clone(),
            at: self.hold.ended,
            action: checkpoint,
        };
        self.hold.persist(run, Some(checkpoint))
    }

    pub fn account(&self) -> &AccountId {
        &self.hold.account
    }

    pub fn hold(&self) -> &HoldId {
        &self.hold.hold
    }

    /// Returns what the request has used.
    pub fn used(&self) -> Credits {
        self.used
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(credits: &Credits) -> bool {
    *credits == Credits::ZERO
}

impl LogRecord {
    /// Makes the record of the end of a hold, which is paid with `charged`; `None` for other operations.
    pub(crate) fn new(
        open: &OpenHold,
        opened: Millis,
        end: &Operation,
        charged: Pools,
    ) -> Option<Self> {
        let (released, usage) = match &end.action {
            Action::Settle(settle) => (false, Some(settle.usage.clone())),
            Action::Release { cost, .. } => (true, cost.as_deref().cloned()),
            _ => return None,
        };
        let mut record = Self::of_hold(open, &end.account, opened, charged);
        record.ended = end.at;
        record.released = released;
        record.usage = usage;
        Some(record)
    }

    /// Makes a record of a hold with these credits.
    fn of_hold(open: &OpenHold, account: &AccountId, opened: Millis, credits: Pools) -> Self {
        Self {
            account: account.clone(),
            hold: open.hold.clone(),
            request_id: open.request_id.clone(),
            source: open.source,
            source_id: open.source_id.clone(),
            parts: open.parts.clone(),
            top_up_only: open.top_up_only,
            model: open.model.clone(),
            amount: open.amount,
            opened,
            ended: opened,
            plan: credits.plan,
            top_up: credits.top_up,
            released: false,
            usage: None,
        }
    }

    /// Returns the operation that applies it to its account: the hold, with the credits of the charge only, and its end.
    pub fn operation(&self, run: &BootId) -> Operation {
        self.persist(run, Some(self.end()))
    }

    /// Returns the operation that stores the hold, with the credits of the charge only.
    pub(crate) fn hold_operation(&self, run: &BootId) -> Operation {
        self.persist(run, None)
    }

    /// Returns the request's end.
    pub fn end(&self) -> Operation {
        let hold = self.hold.clone();
        let end = match self.released {
            true => Action::Release {
                hold,
                cost: self.usage.clone().map(Box::new),
            },
            false => Action::Settle(Settle {
                hold,
                credits: self.charged().total(),
                usage: self.usage.clone().unwrap_or_default(),
                end: None,
            }),
        };
        Operation {
            account: self.account.clone(),
            at: self.ended,
            action: end,
        }
    }

    /// Returns the operation that stores the hold with the record's credits, and with its checkpoint or its end.
    fn persist(&self, run: &BootId, then: Option<Operation>) -> Operation {
        let open = OpenHold {
            hold: self.hold.clone(),
            amount: self.amount,
            request_id: self.request_id.clone(),
            parent: None,
            source: self.source,
            source_id: self.source_id.clone(),
            parts: self.parts.clone(),
            top_up_only: self.top_up_only,
            model: self.model.clone(),
        };
        Operation {
            account: self.account.clone(),
            at: self.opened,
            action: Action::Persist(Box::new(PersistHold {
                open,
                boot_id: run.clone(),
                reserved: self.charged(),
                then,
            })),
        }
    }

    pub fn account(&self) -> &AccountId {
        &self.account
    }

    pub fn hold(&self) -> &HoldId {
        &self.hold
    }

    /// Returns the key of its run's block: the stored form of its parts, and whether it has bought credits only.
    pub(crate) fn block(&self) -> (String, bool) {
        let parts = BudgetPart::join(&self.parts).unwrap_or_default();
        (parts, self.top_up_only)
    }

    /// Returns the credits that the block pays.
    pub fn charged(&self) -> Pools {
        Pools {
            plan: self.plan,
            top_up: self.top_up,
        }
    }

    /// Reports a fold that has not had the effect which the caller was told.
    pub(crate) fn check(&self, outcome: &OperationOutcome) {
        let told = Ok(self.effect());
        if *outcome != told {
            tracing::error!(
                account = %self.account,
                hold = %self.hold,
                ?told,
                ?outcome,
                "a settlement in the ledger's log cannot be applied; its credits stay reserved"
            );
        }
        debug_assert_eq!(*outcome, told, "{self:?}");
    }

    /// Returns the effect of the end, which is certain once the record is in the log.
    pub fn effect(&self) -> OperationEffect {
        match self.released {
            true => OperationEffect::Released,
            false => OperationEffect::Settled {
                charged: self.charged().total(),
                overrun: Credits::ZERO,
            },
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// Rows of the log are read by nodes of later releases, and of earlier ones during an upgrade.
    #[test]
    fn stored_records_stay_readable() {
        let settled = r#"{"of":"usr_1","hold":"h1","req":"req_1","src":"api_key","src_id":"k","parts":["key_1","model:m"],"top_up_only":true,"model":"m","amount":2,"opened":5,"ended":7,"top_up":1.5,"usage":{"provider":"p"}}"#;
        let released = r#"{"of":"usr_1","hold":"h2","req":"req_2","src":"web","model":"m","amount":0.000001,"opened":5,"ended":7,"released":true}"#;
        let records =
            [settled, released].map(|text| serde_json::from_str::<LogRecord>(text).unwrap());
        assert_eq!(records[0].charged().total(), Credits::from_micro(1_500_000));
        assert_eq!(records[0].parts.len(), 2);
        assert_eq!(records[1].effect(), OperationEffect::Released);
        for record in &records {
            let again = serde_json::to_string(record).unwrap();
            assert_eq!(serde_json::from_str::<LogRecord>(&again).unwrap(), *record);
            let later = again.replacen('{', r#"{"occasion":"gift","#, 1);
            assert_eq!(serde_json::from_str::<LogRecord>(&later).unwrap(), *record);
        }
        assert_eq!(serde_json::to_string(&records[1]).unwrap(), released);
        let noted = format!(r#"{{"hold":{settled},"used":0.25}}"#);
        let checkpoint = serde_json::from_str::<LogCheckpoint>(&noted).unwrap();
        assert_eq!(checkpoint.used().micro(), 250_000);
        let again = serde_json::to_string(&checkpoint).unwrap();
        assert_eq!(
            serde_json::from_str::<LogCheckpoint>(&again).unwrap(),
            checkpoint
        );
    }
}
