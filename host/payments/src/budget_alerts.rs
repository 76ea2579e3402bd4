//! Notices of budgets that have reached 80 or 100 % of their limit.
//!
//! The ledger marks an account in the transaction of the charge. A sweep stores the notices, and then removes the mark
//! unless another charge has renewed it. A crash in between repeats the sweep; the notices have ids, so none is stored
//! twice.

use std::time::Duration;

use serde_json::json;
use sqlx::Row;
use tokio::time::MissedTickBehavior;
use weir_ledger::{BudgetAlert, BudgetPart, Budgets};
use weir_storage::Database;
use weir_storage::clock::Millis;

use crate::notices::{self, NoticeKind, UserNotice};
use crate::payments::Payments;

/// Accounts of one sweep.
const AT_ONCE: i64 = 32;

/// Pause between two sweeps.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Stores due notices until the future is dropped. The future can be dropped at any time, like a crash.
pub async fn run(payments: &Payments) {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = payments.ledger.now();
        if let Err(error) = look(&payments.database, now).await {
            tracing::warn!(%error, "looking for alerts of budgets");
        }
    }
}

/// Stores the due notices.
async fn look(database: &Database, now: Millis) -> sqlx::Result<()> {
    let rows = sqlx::query(
        "SELECT id, budgets, budget_alert_at FROM accounts WHERE budget_alert_at IS NOT NULL \
         ORDER BY budget_alert_at LIMIT $1",
    )
    .bind(AT_ONCE)
    .fetch_all(database.reader())
    .await?;
    for row in &rows {
        let (account, marked_at): (String, i64) = (row.try_get(0)?, row.try_get(2)?);
        let budgets: Option<String> = row.try_get(1)?;
        let budgets = budgets.map(|budgets| serde_json::from_str::<Budgets>(&budgets));
        let budgets = budgets.transpose();
        let budgets = budgets.map_err(|error| sqlx::Error::Decode(error.into()))?;
        for alert in budgets.unwrap_or_default().alerts(now) {
            notices::put(database, &notice(&account, &alert), now).await?;
        }
        sqlx::query(
            "UPDATE accounts SET budget_alert_at = NULL WHERE id = $1 AND budget_alert_at = $2",
        )
        .bind(&account)
        .bind(marked_at)
        .execute(database.writer())
        .await?;
    }
    Ok(())
}

fn notice(account: &str, alert: &BudgetAlert) -> UserNotice {
    let BudgetAlert {
        part,
        percent,
        window_start,
        state,
    } = alert;
    let window = state.budget.window.name();
    let subject = part
        .as_ref()
        .map_or_else(String::new, BudgetPart::to_string);
    let limit = state.budget.credits.micro();
    let start = window_start.0;
    // Another limit is another budget.
    let about = format!("{account}:{subject}:{window}:{limit}:{start}:{percent}");
    let data = json!({
        "of": part.as_ref().map_or("account", BudgetPart::kind),
        "id": part.as_ref().map(BudgetPart::id),
        "window": window,
        "percent": percent,
        "budget_credits": state.budget.credits,
        "used_credits": state.spent,
        "resets_at": state.resets_at.map(Millis::iso),
    });
    UserNotice::new(NoticeKind::BudgetAlert, account, &about, data)
}
