//! The audit log of security events: failed authentications, rate limits, creation and revocation of keys.
//!
//! A request puts its event into a bounded queue and continues. One task gathers the events of a second, counts equal
//! ones, and writes them in one transaction. Repeatable events are aggregated for ten minutes ([`sums`]): a stranger
//! cannot fill the table, and the log has a line only for such a row. The log counts the events of a flood that exceeds
//! the queue. weir keeps events for `audit_days` ([`retention`]).
//!
//! **Invariant:** no personal data and no secrets: opaque user and key ids, never an address, a token or a
//! key.
//!
//! [`log`] reads stored events.
//!
//! To record another kind of event, add a variant to [`AuditEvent`].

mod actor;
pub mod log;
pub mod retention;
mod sums;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

pub use self::actor::Actor;
use self::sums::Sums;
use weir_storage::Database;
use weir_storage::clock::Millis;

/// Events in the queue; further events are counted and dropped.
const QUEUE: usize = 4_096;

/// Time for which events are gathered before they are written.
const GATHER: Duration = Duration::from_secs(1);

/// A security event, as its database row has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AuditEvent {
    /// A request's authentication failed.
    AuthenticationFailed {
        /// `api_key`, `web`, `service` or `link`.
        method: &'static str,
        /// The reason, from a fixed vocabulary.
        reason: &'static str,
    },
    /// weir locked out a client address after too many failures.
    LockedOut,
    /// An operator ended the lockout of an address.
    LockoutCleared,
    /// A request exceeded a rate limit.
    RateLimited {
        /// The limited user; unknown for a limited address.
        user_id: Option<String>,
        /// `address`, `caller` or `voucher`.
        scope: &'static str,
    },
    /// A key was made.
    KeyCreated {
        /// The key's owner.
        user_id: String,
        /// The key's id.
        key_id: String,
    },
    /// A key was revoked.
    KeyRevoked {
        /// The key's owner.
        user_id: String,
        /// The key's id.
        key_id: String,
    },
    /// An operator disabled a user.
    UserDisabled {
        /// The user's id.
        user_id: String,
    },
    /// An operator enabled a disabled user.
    UserEnabled {
        /// The user's id.
        user_id: String,
    },
    /// An operator made a user an administrator.
    AdminGranted {
        /// The user's id.
        user_id: String,
    },
    /// An operator revoked a user's administrator role.
    AdminRevoked {
        /// The user's id.
        user_id: String,
    },
    /// A person signed in to the console.
    ConsoleSignedIn {
        /// The user's id.
        user_id: String,
        /// `web`, `development` or `link`.
        method: &'static str,
    },
    /// An operator created a one-time link to the console.
    ConsoleLinkCreated,
    /// A component failed to load into a slot.
    PluginRefused {
        /// The slot and the load step that it failed.
        reason: String,
    },
    /// An operator set the policy of a slot, or released or rejected a component in quarantine.
    PluginPolicySet {
        /// The slot and its policy.
        reason: String,
    },
    /// An operator put a user on a plan.
    PlanSet {
        /// The user's id.
        user_id: String,
        /// The plan's name.
        plan: &'static str,
    },
    /// An operator gave a user credits.
    ToppedUp {
        /// The user's id.
        user_id: String,
        /// The number of credits, and the gift's id.
        credits: String,
    },
    /// An operator set a user's budgets.
    BudgetsSet {
        /// The user's id.
        user_id: String,
        /// The budgets, with their windows.
        budgets: String,
    },
    /// An operator corrected a user's credits.
    Adjusted {
        /// The user's id.
        user_id: String,
        /// The number of credits, the pool and the reason.
        reason: String,
    },
    /// An operator has made a voucher.
    VoucherCreated {
        /// The voucher's id, credits, uses and expiry.
        reason: String,
    },
    /// An operator has revoked a voucher.
    VoucherRevoked {
        /// The voucher's id.
        voucher_id: String,
    },
    /// A user has redeemed a voucher.
    VoucherRedeemed {
        /// The user's id.
        user_id: String,
        /// The voucher's id.
        voucher_id: String,
    },
    /// An operator retried a webhook of the payment processor.
    PaymentEventRetried {
        /// The event's id.
        event_id: String,
    },
    /// An operator has cancelled a user's swarm.
    SwarmCancelled {
        /// The swarm's user.
        user_id: String,
        /// The swarm's id.
        execution_id: String,
    },
    /// An administrator started or stopped a recording of a slot, or fetched or deleted it.
    Recorded {
        /// `recording.started` and so on.
        kind: &'static str,
        /// The slot.
        reason: String,
    },
    /// A remote tool changed at its server, or an administrator approved the change.
    RemoteTool {
        /// `mcp_tool.changed` or `mcp_tool.approved`.
        kind: &'static str,
        /// The server and the tool.
        reason: String,
    },
}

/// A handle that takes events. Cheap to clone.
#[derive(Clone)]
pub struct Audit {
    queue: mpsc::Sender<Queued>,
    dropped: Arc<AtomicU64>,
}

enum Queued {
    Event(Millis, Occurrence),
    /// A caller waits until all events before this one are written.
    Flush(oneshot::Sender<()>),
}

impl Audit {
    /// Starts the writer.
    pub fn start(database: Database) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        tokio::spawn(write(database, waiting, dropped.clone()));
        Self { queue, dropped }
    }

    /// Waits until all events so far are written, or lost.
    pub async fn flush(&self) {
        let (done, written) = oneshot::channel();
        if self.queue.send(Queued::Flush(done)).await.is_ok() {
            let _ = written.await;
        }
    }

    /// Records an event without a known actor.
    pub fn record(&self, event: AuditEvent) {
        self.send(Occurrence { event, actor: None });
    }

    /// Records an event of an actor.
    pub fn record_by(&self, actor: &Actor, event: AuditEvent) {
        let actor = Some(actor.clone());
        self.send(Occurrence { event, actor });
    }

    fn send(&self, occurrence: Occurrence) {
        let queued = Queued::Event(Millis::now(), occurrence);
        if self.queue.try_send(queued).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// An event and its actor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Occurrence {
    event: AuditEvent,
    actor: Option<Actor>,
}

/// Equal events, each with its count.
type Gathered = HashMap<Occurrence, Alike>;

/// Rows, in the order in which they are written.
type Rows = Vec<(Occurrence, Alike)>;

#[derive(Debug, Clone, Copy)]
struct Alike {
    /// The position among all gathered events: they are written in that order.
    order: usize,
    /// The time of the first.
    at: Millis,
    count: i64,
}

async fn write(database: Database, mut waiting: mpsc::Receiver<Queued>, dropped: Arc<AtomicU64>) {
    let mut sums = Sums::default();
    loop {
        let first = match sums.next_due() {
            None => waiting.recv().await,
            Some(due) => match tokio::time::timeout_at(due, waiting.recv()).await {
                Ok(first) => first,
                Err(_) => {
                    let rows = sums.take_due(Instant::now());
                    insert_or_report(&database, &rows).await;
                    continue;
                }
            },
        };
        let Some(first) = first else {
            return;
        };
        let mut gathered = Gathered::new();
        let mut flush = gather(&mut gathered, first);
        let until = Instant::now() + GATHER;
        // A full queue's number of rows is enough for one transaction.
        while flush.is_none() && gathered.len() < QUEUE {
            match tokio::time::timeout_at(until, waiting.recv()).await {
                Ok(Some(next)) => flush = gather(&mut gathered, next),
                Ok(None) | Err(_) => break,
            }
        }
        let mut rows = sums.add(gathered, Instant::now());
        if flush.is_some() {
            rows.extend(sums.take_all(Instant::now()));
        }
        insert_or_report(&database, &rows).await;
        let dropped = dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            tracing::error!(events = dropped, "audit events are lost: the queue is full");
        }
        if let Some(flush) = flush {
            let _ = flush.send(());
        }
    }
}

/// Adds an event to the gathered ones, or returns the caller that waits for them.
fn gather(gathered: &mut Gathered, waiting: Queued) -> Option<oneshot::Sender<()>> {
    match waiting {
        Queued::Event(at, occurrence) => {
            let order = gathered.len();
            let first = Alike {
                order,
                at,
                count: 0,
            };
            gathered.entry(occurrence).or_insert(first).count += 1;
            None
        }
        Queued::Flush(done) => Some(done),
    }
}

async fn insert_or_report(database: &Database, rows: &Rows) {
    let locked_out = rows.iter().filter_map(|(occurrence, alike)| {
        (occurrence.event == AuditEvent::LockedOut).then_some(alike.count)
    });
    let addresses: i64 = locked_out.sum();
    if addresses > 0 {
        tracing::warn!(
            addresses,
            "locked out addresses; `weir lockout list` shows them"
        );
    }
    if let Err(error) = insert(database, rows).await {
        tracing::error!(%error, events = rows.len(), "audit events are lost");
    }
}

async fn insert(database: &Database, rows: &Rows) -> sqlx::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut transaction = database.begin().await?;
    for (Occurrence { event, actor }, Alike { at, count, .. }) in rows {
        let columns = event.columns();
        sqlx::query(
            "INSERT INTO audit_events (at, count, kind, actor, method, reason, user_id, key_id) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        )
        .bind(at.0)
        .bind(*count)
        .bind(columns.kind)
        .bind(actor.as_ref().map(Actor::as_str))
        .bind(columns.method)
        .bind(columns.reason)
        .bind(columns.user_id)
        .bind(columns.key_id)
        .execute(&mut transaction)
        .await?;
    }
    transaction.commit().await
}

/// An event's columns.
#[derive(Default)]
struct EventColumns<'a> {
    kind: &'static str,
    method: Option<&'static str>,
    reason: Option<&'a str>,
    user_id: Option<&'a str>,
    key_id: Option<&'a str>,
}

impl AuditEvent {
    /// Returns whether strangers can cause the event at will.
    fn is_repeatable(&self) -> bool {
        matches!(
            self,
            Self::AuthenticationFailed { .. }
                | Self::LockedOut
                | Self::RateLimited { .. }
                | Self::PluginRefused { .. }
        )
    }

    fn columns(&self) -> EventColumns<'_> {
        let of = |kind, user_id| EventColumns {
            kind,
            user_id,
            ..EventColumns::default()
        };
        match self {
            Self::AuthenticationFailed { method, reason } => EventColumns {
                method: Some(method),
                reason: Some(reason),
                ..of("authentication.failed", None)
            },
            Self::LockedOut => of("address.locked_out", None),
            Self::LockoutCleared => of("address.lockout_cleared", None),
            Self::RateLimited { user_id, scope } => EventColumns {
                reason: Some(scope),
                ..of("rate_limit.hit", user_id.as_deref())
            },
            Self::KeyCreated { user_id, key_id } => EventColumns {
                key_id: Some(key_id),
                ..of("api_key.created", Some(user_id))
            },
            Self::KeyRevoked { user_id, key_id } => EventColumns {
                key_id: Some(key_id),
                ..of("api_key.revoked", Some(user_id))
            },
            Self::UserDisabled { user_id } => of("user.disabled", Some(user_id)),
            Self::UserEnabled { user_id } => of("user.enabled", Some(user_id)),
            Self::AdminGranted { user_id } => of("user.admin_granted", Some(user_id)),
            Self::AdminRevoked { user_id } => of("user.admin_revoked", Some(user_id)),
            Self::ConsoleSignedIn { user_id, method } => EventColumns {
                method: Some(method),
                ..of("console.signed_in", Some(user_id))
            },
            Self::ConsoleLinkCreated => of("console.link_created", None),
            Self::PluginPolicySet { reason } => EventColumns {
                reason: Some(reason),
                ..of("plugin.policy_set", None)
            },
            Self::PluginRefused { reason } => EventColumns {
                reason: Some(reason),
                ..of("plugin.refused", None)
            },
            Self::PlanSet { user_id, plan } => EventColumns {
                reason: Some(plan),
                ..of("user.plan_set", Some(user_id))
            },
            Self::ToppedUp { user_id, credits } => EventColumns {
                reason: Some(credits),
                ..of("user.topped_up", Some(user_id))
            },
            Self::BudgetsSet { user_id, budgets } => EventColumns {
                reason: Some(budgets),
                ..of("user.budgets_set", Some(user_id))
            },
            Self::Adjusted { user_id, reason } => EventColumns {
                reason: Some(reason),
                ..of("user.adjusted", Some(user_id))
            },
            Self::VoucherCreated { reason } => EventColumns {
                reason: Some(reason),
                ..of("voucher.created", None)
            },
            Self::VoucherRevoked { voucher_id } => EventColumns {
                reason: Some(voucher_id),
                ..of("voucher.revoked", None)
            },
            Self::VoucherRedeemed {
                user_id,
                voucher_id,
            } => EventColumns {
                reason: Some(voucher_id),
                ..of("voucher.redeemed", Some(user_id))
            },
            Self::PaymentEventRetried { event_id } => EventColumns {
                reason: Some(event_id),
                ..of("payment_event.retried", None)
            },
            Self::SwarmCancelled {
                user_id,
                execution_id,
            } => EventColumns {
                reason: Some(execution_id),
                ..of("swarm.cancelled", Some(user_id))
            },
            Self::Recorded { kind, reason } | Self::RemoteTool { kind, reason } => EventColumns {
                reason: Some(reason),
                ..of(kind, None)
            },
        }
    }
}
