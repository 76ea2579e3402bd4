//! Security events, kept: who failed to prove themselves, who was limited, whose keys came and went.
//!
//! Events are written behind: a request hands its event to a bounded queue and goes on. One task gathers what
//! comes within a second, counts what is alike, and writes it in one transaction. What anybody can bring about again and
//! again is summed up for ten minutes ([`sums`]): no stranger fills the table, and the log has a line for such a row only.
//! A flood that outruns even that is counted in the log. Events are kept for `audit_days` ([`retention`]).
//!
//! **Invariant:** no personal data and no secrets: opaque user and key ids, never an address, a token or a
//! key.
//!
//! What is kept is read through [`log`].
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

/// Events that wait to be written; more are counted and dropped.
const QUEUE: usize = 4_096;

/// How long events are gathered before they are written.
const GATHER: Duration = Duration::from_secs(1);

/// A security event, as its row in the database has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AuditEvent {
    /// A request did not prove who sent it.
    AuthenticationFailed {
        /// `api_key`, `web`, `service` or `link`.
        method: &'static str,
        /// The reason, in a fixed vocabulary.
        reason: &'static str,
    },
    /// A client address failed too often and is blocked for a while.
    LockedOut,
    /// An operator let an address in again that was blocked.
    LockoutCleared,
    /// A request came too soon after others.
    RateLimited {
        /// The limited user; unknown where the address was limited.
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
    /// An operator lets a user do nothing from now on.
    UserDisabled {
        /// The user's id.
        user_id: String,
    },
    /// A user who was disabled is no longer.
    UserEnabled {
        /// The user's id.
        user_id: String,
    },
    /// A user was made an administrator.
    AdminGranted {
        /// The user's id.
        user_id: String,
    },
    /// A user is no longer an administrator.
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
    /// Somebody made a one-time link to the console.
    ConsoleLinkCreated,
    /// A component was not taken into a slot.
    PluginRefused {
        /// The slot and the load step that it failed.
        reason: String,
    },
    /// An operator has set what a slot may serve with, and what becomes of it in quarantine.
    PluginPolicySet {
        /// The slot and its policy.
        reason: String,
    },
    /// A user was put on a plan.
    PlanSet {
        /// The user's id.
        user_id: String,
        /// The plan's name.
        plan: &'static str,
    },
    /// A user was given credits.
    ToppedUp {
        /// The user's id.
        user_id: String,
        /// How many, and as which gift.
        credits: String,
    },
    /// An operator has set how much a user may spend.
    BudgetsSet {
        /// The user's id.
        user_id: String,
        /// How much in which time.
        budgets: String,
    },
    /// An operator has put a user's credits right.
    Adjusted {
        /// The user's id.
        user_id: String,
        /// How many credits of which pool, and why.
        reason: String,
    },
    /// An operator has made a voucher.
    VoucherCreated {
        /// The voucher's id, credits, uses and end.
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
    /// An operator has an event of the payment processor's be applied again.
    PaymentEventRetried {
        /// The event's id.
        event_id: String,
    },
    /// An operator has cancelled a user's swarm.
    SwarmCancelled {
        /// Whose it is.
        user_id: String,
        /// The swarm's id.
        execution_id: String,
    },
    /// An administrator has exchanges of a slot recorded, or no longer, or has fetched or forgotten them.
    Recorded {
        /// `recording.started` and so on.
        kind: &'static str,
        /// The slot.
        reason: String,
    },
    /// A remote tool has changed at its server, or an administrator has approved that.
    RemoteTool {
        /// `mcp_tool.changed` or `mcp_tool.approved`.
        kind: &'static str,
        /// The server and the tool.
        reason: String,
    },
}

/// Takes events. Cheap to clone.
#[derive(Clone)]
pub struct Audit {
    queue: mpsc::Sender<Queued>,
    dropped: Arc<AtomicU64>,
}

enum Queued {
    Event(Millis, Occurrence),
    /// Somebody waits until all events before this one are written.
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

    /// Records an event that nobody is known to have brought about.
    pub fn record(&self, event: AuditEvent) {
        self.send(Occurrence { event, actor: None });
    }

    /// Records what somebody did.
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

/// An event, and who brought it about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Occurrence {
    event: AuditEvent,
    actor: Option<Actor>,
}

/// Events that are alike, each with all of them.
type Gathered = HashMap<Occurrence, Alike>;

/// Rows, in the order in which they are written.
type Rows = Vec<(Occurrence, Alike)>;

#[derive(Debug, Clone, Copy)]
struct Alike {
    /// Which of all that were gathered came first: they are written in that order.
    order: usize,
    /// When the first came.
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
        // As many rows as the queue has places are enough for one transaction.
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
            tracing::error!(
                events = dropped,
                "audit events are lost: more than can be written"
            );
        }
        if let Some(flush) = flush {
            let _ = flush.send(());
        }
    }
}

/// Adds an event to those gathered, or returns who waits for them to be written.
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
        tracing::warn!(addresses, "locked out; `weir lockout list` shows them");
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

/// An event as its row has it.
#[derive(Default)]
struct EventColumns<'a> {
    kind: &'static str,
    method: Option<&'static str>,
    reason: Option<&'a str>,
    user_id: Option<&'a str>,
    key_id: Option<&'a str>,
}

impl AuditEvent {
    /// Whether anybody can bring it about as often as they like.
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
