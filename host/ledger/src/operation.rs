//! What can be asked of the ledger, and what it answers.

use std::fmt;

use serde::{Deserialize, Serialize};

use weir_storage::clock::Millis;
use weir_storage::ids;

use crate::budgets::{Exceeded, SetBudgets};
use crate::credits::Credits;
use crate::plans::{Period, Plan};
use crate::usage::RequestUsage;

/// One thing to do to one account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The account that it is about.
    pub account: AccountId,
    /// The moment at which it was asked for. However late it is done, it counts as of then.
    pub at: Millis,
    /// The change that is asked for.
    pub action: Action,
}

/// What to do. Whoever asks names it, so that asking again is safe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Reserve credits.
    Open {
        /// The request that they are for, and how many.
        open: Open,
        /// The run of a node that will end the hold.
        boot_id: BootId,
        /// The idempotency key of the request, to be claimed with it.
        claim: Option<Box<Claim>>,
    },
    /// End a hold: so much was used.
    Settle(Settle),
    /// End a hold: nothing was used.
    Release {
        /// The hold, open or expired.
        hold: HoldId,
        /// What served the request, and what a provider asks for it although nothing was delivered: a cost that nobody pays.
        cost: Option<Box<RequestUsage>>,
    },
    /// End a hold whose node is gone: as much was used as its last checkpoint says.
    Expire {
        /// The open hold.
        hold: HoldId,
    },
    /// Note what was used so far.
    Checkpoint(Checkpoint),
    /// Begin the next period, if it is due. Opening a hold does so too.
    ResetPeriod,
    /// Begin a period that was paid for, or raise the plan of the current one.
    Grant(Grant),
    /// Add credits that were bought.
    TopUp(TopUp),
    /// Take credits back. What is spent already is owed.
    Refund(Refund),
    /// Put right what went wrong.
    Adjust(Adjust),
    /// Note whether the paid plan goes on after its period: with a grace for the payment, or not at all.
    Renewal {
        /// Whether it goes on.
        renews: bool,
    },
    /// Note below how many credits the account is low.
    Watch {
        /// The bound, which is not low itself; `None` for an account that is never low.
        below: Option<Credits>,
    },
    /// Set how much the account, or one of its keys, may spend in which time.
    SetBudgets(Box<SetBudgets>),
    /// End an idempotency key whose request is over.
    EndKey(EndKey),
}

/// What an entry keeps of an operation that has an id, to tell a repeat from something else under the same id.
///
/// It is stored as JSON and read by later versions, and by earlier ones while nodes are upgraded: a field that is added
/// has `#[serde(default)]`, a default that says what was done without it, and an earlier text in the test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// A period that was paid for.
    Grant(Grant),
    /// Credits that were bought.
    TopUp(TopUp),
    /// Credits to be taken back.
    Refund(Refund),
    /// What an operator has put right.
    Adjust(Adjust),
}

/// Reserves credits for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// The new hold's id, made up by the caller; see [`weir_storage::ids::hold_id`].
    pub hold: HoldId,
    /// The most that the request can cost.
    pub amount: Credits,
    /// The id of the request that it is for.
    pub request_id: String,
    /// The hold to draw on, instead of the account.
    pub parent: Option<HoldId>,
    /// Where the request came from.
    pub source: RequestSource,
    /// The key or task, if any.
    pub source_id: Option<String>,
    /// The id of the key whose budgets it is held against, besides the account's. Of a hold that is there: if it has any; of
    /// one that draws on another, that one's.
    pub key_id: Option<String>,
    /// The model that was asked for.
    pub model: String,
}

/// Bytes of an idempotency key.
pub const MAX_KEY_BYTES: usize = 255;

/// An idempotency key that a request brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The key, of 1 to [`MAX_KEY_BYTES`] bytes.
    pub key: String,
    /// SHA-256 of all that tells the request from another one.
    pub request_digest: [u8; 32],
}

/// Why a request is not served: an earlier one has brought its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// The earlier request was another one.
    OtherRequest,
    /// The earlier one is still being served: worth asking again.
    InProgress,
    /// The earlier one was served.
    Served(Served),
}

/// The first request of a key, which was served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// The request's id.
    pub request_id: String,
    /// Its charge.
    pub charged: Credits,
    /// Its answer, sealed, if that is kept.
    pub answer: Option<Vec<u8>>,
    /// The moment at which the key lapses.
    pub expires_at: Millis,
}

/// Ends an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndKey {
    /// The key.
    pub key: String,
    /// The request that has claimed it. The key of another one is left alone.
    pub request_id: String,
    /// The request's answer, sealed, if it is to be given again.
    pub answer: Option<Vec<u8>>,
}

/// Who pays for a request, and through what it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payer {
    /// The account whose credits are spent.
    pub account: AccountId,
    /// Where the request came from.
    pub source: RequestSource,
    /// The key's hash or the task's id.
    pub source_id: Option<String>,
    /// The id of the key whose budgets apply, besides the account's.
    pub key_id: Option<String>,
    /// The hold to draw on, instead of the account.
    pub parent: Option<HoldId>,
}

/// Ends a hold: so much was used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settle {
    /// The hold, open or expired.
    pub hold: HoldId,
    /// What the request costs; more than the hold is taken from what is available.
    pub credits: Credits,
    /// What served the request, and what it used.
    pub usage: RequestUsage,
    /// The request's idempotency key, to be ended with it. Its answer says what was charged: where that cannot all be
    /// paid, the key does not end yet.
    pub end: Option<Box<EndKey>>,
}

/// Notes what was used so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The open hold.
    pub hold: HoldId,
    /// What the request would cost if it ended now.
    pub credits: Credits,
    /// What serves the request, and what it has used.
    pub usage: RequestUsage,
}

/// Begins a period: what is left of the plan's credits lapses, and `credits` take its place.
///
/// If the account is in a paid period that began at the same moment, the grant amends that period: the higher plan counts, the
/// last end counts, and no credits are added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Unique for ever, e.g. made of subscription and period start.
    pub id: OperationId,
    /// The plan from here on.
    pub plan: Plan,
    /// The period that was paid for.
    pub period: Period,
    /// What the plan's pool then holds.
    pub credits: Credits,
}

/// Adds credits that were bought.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopUp {
    /// Unique for ever, e.g. the payment's id.
    pub id: OperationId,
    /// The credits that were bought.
    pub credits: Credits,
    /// If the payment was for a higher plan within a period: a moment in that period. While the account is in that period, the
    /// credits are plan credits and lapse with it; else they are bought credits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Millis>,
}

/// Takes credits back, as far as they are there and not held. The rest is owed: the next credits pay for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refund {
    /// Unique for ever, e.g. the refund's id.
    pub id: OperationId,
    /// The pool that they are taken from.
    pub pool: Pool,
    /// How many.
    pub credits: Credits,
}

/// Puts right what went wrong: gives credits, or takes some that are there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adjust {
    /// Unique for ever.
    pub id: OperationId,
    /// Whether the account gets credits or gives some.
    pub way: Way,
    /// The pool that they come to, or are taken from.
    pub pool: Pool,
    /// How many. They are taken all or none.
    pub credits: Credits,
    /// Why, in the operator's words.
    pub reason: String,
    /// The operator.
    pub actor: String,
}

/// Which way credits go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// To the account.
    Give,
    /// From it.
    Take,
}

/// The two kinds of credits of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pool {
    /// The plan's, which lapse with their period.
    Plan,
    /// The bought ones.
    TopUp,
}

/// Where a request came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestSource {
    /// The web application.
    Web,
    /// A client with an API key.
    ApiKey,
    /// The executor.
    Agent,
}

/// A hold is open once, and ends once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldState {
    /// It reserves credits.
    Open,
    /// The price of what was used is posted.
    Settled,
    /// It is void: nothing was used.
    Released,
    /// Its node went away, and the last checkpoint is posted. A settlement can still come.
    Expired,
}

/// The answer to an operation.
pub type Outcome = Result<Done, Refusal>;

/// It is done: now, or when it was asked for before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// The credits are reserved.
    Opened,
    /// The hold is settled.
    Settled {
        /// The credits that the account paid.
        charged: Credits,
        /// The rest of the price, which it could not pay.
        overrun: Credits,
    },
    /// The hold is void.
    Released,
    /// The hold is settled at its last checkpoint.
    Expired {
        /// The credits that the account paid.
        charged: Credits,
        /// The rest of the price, which it could not pay.
        overrun: Credits,
    },
    /// The checkpoint, or a later one, is kept.
    Checkpointed,
    /// The account is in its current period.
    PeriodReset,
    /// The period has begun.
    Granted {
        /// The plan's credits in it.
        credits: Credits,
    },
    /// The bought credits are there.
    ToppedUp {
        /// The credits that were added.
        credits: Credits,
    },
    /// The credits are gone, or owed.
    Refunded {
        /// The credits that were there to be taken.
        credits: Credits,
    },
    /// It is put right.
    Adjusted {
        /// The credits that came, or went.
        credits: Credits,
    },
    /// It is known whether the plan goes on.
    RenewalNoted,
    /// It is known when the account is low.
    Watched,
    /// The budgets apply.
    BudgetsSet,
    /// The key says what became of its request, or is free again.
    KeyEnded,
}

/// It is not done, and nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Too few credits are available.
    #[error("{required} credits are required and {available} available")]
    Insufficient {
        /// The amount that was to be held.
        required: Credits,
        /// The credits that are there to be held, on the account or its parent hold.
        available: Credits,
    },
    /// A budget of the account or the key does not allow it.
    #[error("{} credits are required, and a budget has {} left", .0.required, .0.standing.left)]
    OverBudget(Box<Exceeded>),
    /// There is no such user.
    #[error("there is no such account")]
    UnknownAccount,
    /// The account has no such hold.
    #[error("there is no such hold")]
    UnknownHold,
    /// The hold has ended otherwise.
    #[error("the hold is {} already", .0.name())]
    Ended(HoldState),
    /// Something else was done under this id.
    #[error("the id was used for something else")]
    Conflict,
    /// The period is over.
    #[error("the period is over")]
    Outdated,
    /// The period was paid for already, at this plan or a higher one.
    #[error("the period was granted already")]
    Granted,
    /// A later period was paid for already.
    #[error("a later period was paid for already")]
    OlderPeriod,
    /// An earlier request has brought the idempotency key.
    #[error("the idempotency key is taken")]
    KeyTaken(Taken),
    /// It is not known yet what becomes of the hold.
    #[error("the hold is still open")]
    StillOpen,
    /// The amount is negative, or more than anybody has; or the period has no days.
    #[error("the amount is out of range")]
    OutOfRange,
}

impl Asked {
    /// The id that it was asked for under.
    pub fn id(&self) -> &OperationId {
        match self {
            Self::Grant(grant) => &grant.id,
            Self::TopUp(top_up) => &top_up.id,
            Self::Refund(refund) => &refund.id,
            Self::Adjust(adjust) => &adjust.id,
        }
    }
}

impl Operation {
    /// The id, if it is one that an entry keeps.
    pub fn id(&self) -> Option<&OperationId> {
        match &self.action {
            Action::Grant(grant) => Some(&grant.id),
            Action::TopUp(top_up) => Some(&top_up.id),
            Action::Refund(refund) => Some(&refund.id),
            Action::Adjust(adjust) => Some(&adjust.id),
            _ => None,
        }
    }

    /// The holds that it names.
    pub(crate) fn holds(&self) -> impl Iterator<Item = &HoldId> {
        let (hold, parent) = match &self.action {
            Action::Open { open, .. } => (Some(&open.hold), open.parent.as_ref()),
            Action::Settle(Settle { hold, .. })
            | Action::Checkpoint(Checkpoint { hold, .. })
            | Action::Release { hold, .. }
            | Action::Expire { hold } => (Some(hold), None),
            _ => (None, None),
        };
        hold.into_iter().chain(parent)
    }

    /// What an entry keeps of it, if it has an id.
    pub(crate) fn asked(&self) -> Option<Asked> {
        match &self.action {
            Action::Grant(grant) => Some(Asked::Grant(grant.clone())),
            Action::TopUp(top_up) => Some(Asked::TopUp(top_up.clone())),
            Action::Refund(refund) => Some(Asked::Refund(refund.clone())),
            Action::Adjust(adjust) => Some(Asked::Adjust(adjust.clone())),
            _ => None,
        }
    }

    /// The idempotency key that it names.
    pub(crate) fn key(&self) -> Option<&str> {
        match &self.action {
            Action::Open { claim, .. } => claim.as_ref().map(|claim| &*claim.key),
            Action::Settle(settle) => settle.end.as_ref().map(|end| &*end.key),
            Action::EndKey(end) => Some(&end.key),
            _ => None,
        }
    }
}

impl Open {
    /// Whether both are of one request. Whose budgets a hold counts for is settled when it is opened.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        let Self {
            hold,
            amount,
            request_id,
            parent,
            source,
            source_id,
            key_id: _,
            model,
        } = self;
        *hold == other.hold
            && *amount == other.amount
            && *request_id == other.request_id
            && *parent == other.parent
            && *source == other.source
            && *source_id == other.source_id
            && *model == other.model
    }
}

impl HoldState {
    /// Its name, for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Settled => "settled",
            Self::Released => "released",
            Self::Expired => "expired",
        }
    }
}

impl RequestSource {
    /// Its name in the API and the database.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Web => "web",
            Self::ApiKey => "api_key",
            Self::Agent => "agent",
        }
    }

    /// The source of this name.
    pub fn of(name: &str) -> Option<Self> {
        [Self::Web, Self::ApiKey, Self::Agent]
            .into_iter()
            .find(|source| source.name() == name)
    }
}

/// An account: the id of its user.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AccountId(pub String);

/// A hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HoldId(pub String);

/// A run of a node, from its start to its end. Never empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootId(String);

/// A grant, a top-up, a refund or an adjustment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperationId(pub String);

impl BootId {
    /// An id for a run that begins.
    pub fn fresh() -> Self {
        Self(ids::boot_id())
    }

    /// The run of this name, unless that is empty.
    pub fn of(name: &str) -> Option<Self> {
        (!name.is_empty()).then(|| Self(name.to_owned()))
    }

    /// As it is stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AccountId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Display for HoldId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn what_entries_have_stored_stays_readable() {
        let grant = Asked::Grant(Grant {
            id: OperationId("sub_1:1".to_owned()),
            plan: Plan::Guru,
            period: Period {
                start: Millis(1),
                end: Millis(2),
            },
            credits: Credits::from_micro(10_000_500_000),
        });
        let top_up = Asked::TopUp(TopUp {
            id: OperationId("pay_1".to_owned()),
            credits: Credits::from_micro(1),
            within: None,
        });
        let upgrade = Asked::TopUp(TopUp {
            id: OperationId("upgrade:sub_1:2:1".to_owned()),
            credits: Credits::from_micro(1),
            within: Some(Millis(1)),
        });
        let refund = Asked::Refund(Refund {
            id: OperationId("re_1".to_owned()),
            pool: Pool::TopUp,
            credits: Credits::whole(5),
        });
        let adjust = Asked::Adjust(Adjust {
            id: OperationId("adjust:1".to_owned()),
            way: Way::Take,
            pool: Pool::TopUp,
            credits: Credits::from_micro(1_500_000),
            reason: "twice".to_owned(),
            actor: "ops".to_owned(),
        });
        for (asked, stored) in [
            (
                grant,
                r#"{"grant":{"id":"sub_1:1","plan":"guru","period":{"start":1,"end":2},"credits":10000.5}}"#,
            ),
            (top_up, r#"{"top_up":{"id":"pay_1","credits":0.000001}}"#),
            (
                upgrade,
                r#"{"top_up":{"id":"upgrade:sub_1:2:1","credits":0.000001,"within":1}}"#,
            ),
            (
                refund,
                r#"{"refund":{"id":"re_1","pool":"top_up","credits":5}}"#,
            ),
            (
                adjust,
                r#"{"adjust":{"id":"adjust:1","way":"take","pool":"top_up","credits":1.5,"reason":"twice","actor":"ops"}}"#,
            ),
        ] {
            assert_eq!(serde_json::from_str::<Asked>(stored).unwrap(), asked);
            assert_eq!(serde_json::to_string(&asked).unwrap(), stored);
            // What a later version has stored, while nodes are upgraded.
            let later = stored.replace("}}", r#","occasion":"gift"}}"#);
            assert_eq!(serde_json::from_str::<Asked>(&later).unwrap(), asked);
        }
    }
}
