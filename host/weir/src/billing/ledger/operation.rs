//! What can be asked of the ledger, and what it answers.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::account::HoldState;
use crate::billing::pricing::Charge;
use crate::billing::{Credits, Period, Plan};
use crate::inference::usage::CheckedUsage;
use weir_storage::clock::Millis;

/// One thing to do to one account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Whose account.
    pub account: AccountId,
    /// When it was asked for; however late it is done, it counts as of then.
    pub at: Millis,
    /// What.
    pub action: Action,
}

/// What to do. Whoever asks names it, so that asking again is safe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Action {
    /// Reserve credits.
    Open(Open),
    /// End a hold: so much was used.
    Settle(Settle),
    /// End a hold: nothing was used.
    Release {
        /// Which.
        hold: HoldId,
    },
    /// End a hold whose node is gone: as much was used as its last checkpoint says.
    Expire {
        /// Which.
        hold: HoldId,
    },
    /// Note what was used so far.
    Checkpoint(Checkpoint),
    /// Begin the next period, if it is due. Opening a hold does so too.
    ResetPeriod,
    /// Begin a period that was paid for.
    Grant(Grant),
    /// Add credits that were bought.
    TopUp(TopUp),
    /// Take credits back, as far as they are there.
    Refund(Refund),
}

/// Reserves credits for a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Open {
    /// The new hold's id, made up by the caller; see [`weir_storage::ids::hold_id`].
    pub hold: HoldId,
    /// How much: the worst case.
    pub amount: Credits,
    /// The request that it is for.
    pub request_id: String,
    /// The run of a node that will end it. [`Ledger::open`](super::Ledger::open) fills it in.
    pub boot_id: String,
    /// The hold to draw on, instead of the account.
    pub parent: Option<HoldId>,
    /// Where the request came from.
    pub source: Source,
    /// The key or task, if any.
    pub source_id: Option<String>,
    /// The model that was asked for.
    pub model: String,
}

/// Ends a hold: so much was used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Settle {
    /// Which.
    pub hold: HoldId,
    /// How much; more than the hold is taken from what is available.
    pub credits: Credits,
    /// For what.
    pub usage: Usage,
}

/// Notes what was used so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Checkpoint {
    /// By which hold.
    pub hold: HoldId,
    /// How much.
    pub credits: Credits,
    /// For what.
    pub usage: Usage,
}

/// Begins a period: what is left of the plan's credits lapses, and `credits` take its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TopUp {
    /// Unique for ever, e.g. the payment's id.
    pub id: OperationId,
    /// How many.
    pub credits: Credits,
}

/// Takes credits back, as far as they are there and not held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refund {
    /// Unique for ever, e.g. the refund's id.
    pub id: OperationId,
    /// From where.
    pub pool: Pool,
    /// How many at most.
    pub credits: Credits,
}

/// Where credits are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pool {
    /// Of the plan; they lapse with their period.
    Plan,
    /// Bought.
    TopUp,
}

/// Where a request came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The web application.
    Web,
    /// A client with an API key.
    ApiKey,
    /// The executor.
    Agent,
}

/// What served a request, for the reports. Holds no content of messages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// The upstream that answered.
    pub provider: String,
    /// The adapter that translated.
    pub adapter_digest: String,
    /// Tokens of input, cached ones included.
    pub tokens_input: u64,
    /// Those read from the provider's cache.
    pub tokens_cache_read: u64,
    /// Those written to it.
    pub tokens_cache_write: u64,
    /// Tokens of output.
    pub tokens_output: u64,
    /// Images made.
    pub images: u64,
    /// What the provider asks, in nano-USD.
    pub provider_cost_nano_usd: u64,
    /// From the request to the end of the answer.
    pub latency_ms: u64,
    /// Whether the counts are the host's own estimate.
    pub estimated: bool,
}

/// What came of an operation.
pub type Outcome = Result<Done, Refusal>;

/// It is done: now, or when it was asked for before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// The credits are reserved.
    Opened,
    /// The hold is settled.
    Settled {
        /// What the account paid.
        charged: Credits,
        /// What it could not pay.
        overrun: Credits,
    },
    /// The hold is void.
    Released,
    /// The hold is settled at its last checkpoint.
    Expired {
        /// What the account paid.
        charged: Credits,
        /// What it could not pay.
        overrun: Credits,
    },
    /// The checkpoint, or a later one, is kept.
    Checkpointed,
    /// The account is in its current period.
    PeriodReset,
    /// The period has begun.
    Granted {
        /// The plan's credits.
        credits: Credits,
    },
    /// The credits are there.
    ToppedUp {
        /// How many.
        credits: Credits,
    },
    /// The credits are gone.
    Refunded {
        /// How many were there to be taken.
        credits: Credits,
    },
}

/// It is not done, and nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Too few credits are available.
    #[error("{required} credits are required and {available} available")]
    Insufficient {
        /// What was asked for.
        required: Credits,
        /// What there is, on the account or its parent hold.
        available: Credits,
    },
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
    /// The amount is negative, or more than anybody has; or the period has no days.
    #[error("the amount is out of range")]
    OutOfRange,
}

/// No count of one request is believed beyond this; their sums stay within an i64.
const MAX_COUNT: u64 = 1_000_000_000_000;

impl Usage {
    /// What the host has checked, as the ledger keeps it.
    pub fn new(
        provider: impl Into<String>,
        adapter_digest: impl Into<String>,
        checked: &CheckedUsage,
        images: u32,
        charge: &Charge,
        latency_ms: u64,
    ) -> Self {
        let tokens = &checked.tokens;
        Self {
            provider: provider.into(),
            adapter_digest: adapter_digest.into(),
            tokens_input: tokens.input,
            tokens_cache_read: tokens.cache_read,
            tokens_cache_write: tokens
                .cache_write_short
                .saturating_add(tokens.cache_write_long),
            tokens_output: tokens.output,
            images: u64::from(images),
            provider_cost_nano_usd: u64::try_from(charge.provider_cost_nano_usd).unwrap_or(0),
            latency_ms,
            estimated: checked.estimated,
        }
    }

    pub(super) fn bounded(mut self) -> Self {
        for count in [
            &mut self.tokens_input,
            &mut self.tokens_cache_read,
            &mut self.tokens_cache_write,
            &mut self.tokens_output,
            &mut self.images,
            &mut self.latency_ms,
        ] {
            *count = (*count).min(MAX_COUNT);
        }
        let cost = &mut self.provider_cost_nano_usd;
        *cost = (*cost).min(Credits::MAX.0.unsigned_abs());
        self
    }
}

impl Operation {
    /// The id, if it is one that an entry keeps.
    pub fn id(&self) -> Option<&OperationId> {
        match &self.action {
            Action::Grant(grant) => Some(&grant.id),
            Action::TopUp(top_up) => Some(&top_up.id),
            Action::Refund(refund) => Some(&refund.id),
            _ => None,
        }
    }

    /// The holds that it names.
    pub(super) fn holds(&self) -> impl Iterator<Item = &HoldId> {
        let (hold, parent) = match &self.action {
            Action::Open(open) => (Some(&open.hold), open.parent.as_ref()),
            Action::Settle(Settle { hold, .. })
            | Action::Checkpoint(Checkpoint { hold, .. })
            | Action::Release { hold }
            | Action::Expire { hold } => (Some(hold), None),
            _ => (None, None),
        };
        hold.into_iter().chain(parent)
    }

    /// What it asks for and of whom, as text that differs wherever that differs.
    pub fn content(&self) -> String {
        serde_json::to_string(&(&self.account, &self.action)).expect("plain structs serialize")
    }
}

impl Source {
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

/// A grant, a top-up or a refund.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperationId(pub String);

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
