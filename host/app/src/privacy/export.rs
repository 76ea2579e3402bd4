//! The export of a person's data: one JSON document, written while it is read.
//!
//! The document has an object of the user and one of their account, and then a list for each table, of tasks, of failed
//! requests, and of prompts and responses. Ledger entries are in
//! `/usage/export` and `/billing/transactions`; the account has their totals.

use axum::response::Response;
use futures_util::stream;
use serde_json::{Value, json};
use weir_errors::ApiError;
use weir_ledger::{AccountId, LedgerStore};
use weir_request::csv_export;
use weir_storage::clock::Millis;

use super::store::{self, TABLES};
use super::{PrivacyParts, failed, unknown_user};

/// Rows of a table in one piece.
const ROWS: u32 = 500;

/// Tasks in one piece: a definition has up to 256 KiB.
const TASKS: u32 = 10;

/// Prompts and responses in one piece: each has up to half a MiB.
const CONTENTS: i64 = 10;

/// The lists after those of the tables.
const SEALED_LISTS: [&str; 3] = ["tasks", "failed_requests", "request_contents"];

/// The place in a document of its next piece.
struct Progress {
    parts: PrivacyParts,
    user_id: String,
    /// The number of the table; [`SEALED_LISTS`] follow the last table.
    table: usize,
    /// The last row of the previous piece; `None` at the start of the table.
    after: Option<String>,
}

/// Rows of a list, and the place after them, if there are more.
struct Page {
    rows: Vec<Value>,
    next: Option<String>,
}

/// Returns the export of a person.
///
/// # Errors
///
/// 404 for an unknown user, 429 or 503 if there are too many exports.
pub(super) async fn answer(parts: PrivacyParts, user_id: String) -> Result<Response, ApiError> {
    let place = parts.core.exports.begin(&user_id)?;
    let opening = opening(&parts, &user_id).await?;
    let file = format!("{user_id}.json");
    let progress = Progress {
        parts,
        user_id,
        table: 0,
        after: None,
    };
    // The opening is a piece of its own.
    let start = (Some(opening), progress);
    let pieces = stream::try_unfold(start, async |(opening, mut progress)| {
        let piece = match opening {
            Some(opening) => Some(opening),
            None => progress.piece().await?,
        };
        Ok(piece.map(|piece| (piece, (None, progress))))
    });
    csv_export::json_attachment(place, &file, pieces).await
}

/// Returns the beginning of the document, with an open brace.
async fn opening(parts: &PrivacyParts, user_id: &str) -> Result<String, ApiError> {
    let core = &parts.core;
    let user = store::show_user(&core.database, user_id).await;
    let user = user.map_err(failed)?.ok_or_else(unknown_user)?;
    let opening = json!({
        "exported_at": core.clock.now().iso(),
        "user": user,
        "account": account(parts, user_id).await.map_err(failed)?,
        "elsewhere": {
            "usage": "/usage/export?period=YYYY-MM",
            "requests": "/usage/requests",
            "transactions": "/billing/transactions",
            "sessions": "/session/{id}/history",
        },
    });
    let mut text = opening.to_string();
    text.pop();
    Ok(text)
}

/// Returns the balance of the personal account, and the totals of its ledger entries.
async fn account(parts: &PrivacyParts, user_id: &str) -> sqlx::Result<Value> {
    let id = AccountId(user_id.to_owned());
    let ledger = LedgerStore::new(parts.core.database.clone());
    let Some(mut account) = ledger.find_account(&id).await? else {
        return Ok(Value::Null);
    };
    account.begin_due_period(parts.core.clock.now());
    Ok(json!({
        "plan": account.plan.name(),
        "plan_credits_remaining": account.balance.plan,
        "topup_balance": account.balance.top_up,
        "owed_credits": account.owed,
        "cycle_start": account.period.start.iso(),
        "cycle_end": account.period.end.iso(),
        "cancelled_at": account.cancelled_at.map(Millis::iso),
        "ledger_entries": account.entries,
        "totals": store::usage_totals(&parts.core.database, user_id).await?,
    }))
}

impl Progress {
    /// Returns the next piece of the document; `None` at its end.
    async fn piece(&mut self) -> sqlx::Result<Option<String>> {
        let tables = TABLES.iter().map(|table| table.name);
        let Some(name) = tables.chain(SEALED_LISTS).nth(self.table) else {
            return Ok(None);
        };
        let page = self.page().await?;
        let rows: Vec<_> = page.rows.iter().map(Value::to_string).collect();
        let mut text = match self.after {
            None => format!(",\n\"{name}\":["),
            // A page that is not the first has a predecessor with rows.
            Some(_) if rows.is_empty() => String::new(),
            Some(_) => ",".to_owned(),
        };
        text += &rows.join(",\n");
        self.after = page.next;
        if self.after.is_none() {
            text += "]";
            self.table += 1;
            if self.table == TABLES.len() + SEALED_LISTS.len() {
                text += "}\n";
            }
        }
        Ok(Some(text))
    }

    async fn page(&self) -> sqlx::Result<Page> {
        let Some(table) = TABLES.get(self.table) else {
            return match self.table - TABLES.len() {
                0 => self.tasks().await,
                1 => self.failures().await,
                _ => self.contents().await,
            };
        };
        let after = self.after.as_deref();
        let database = &self.parts.core.database;
        let mut rows = table.page(database, &self.user_id, after, ROWS).await?;
        let next = match rows.len() < ROWS as usize {
            true => None,
            false => rows.last().map(|(place, _)| place.clone()),
        };
        let rows = rows.drain(..).map(|(_, row)| row).collect();
        Ok(Page { rows, next })
    }

    /// Returns failed requests, without the texts of providers.
    async fn failures(&self) -> sqlx::Result<Page> {
        let after = self.after.as_deref().unwrap_or_default();
        let failures = &self.parts.failures;
        let found = failures.list_of_user(&self.user_id, after, ROWS).await?;
        let next = match found.len() < ROWS as usize {
            true => None,
            false => found.last().map(|failure| failure.request_id.clone()),
        };
        let rows = found.into_iter().map(|failure| {
            json!({
                "request_id": failure.request_id,
                "account_id": failure.account_id,
                "key_id": failure.key_id,
                "project_id": failure.project_id,
                "model": failure.model,
                "provider": failure.provider,
                "code": failure.code,
                "status": failure.status,
                "param": failure.error.param,
                "limit": failure.error.limit,
                "message": failure.error.message,
                "latency_ms": failure.latency_ms,
                "attempts": failure.attempts,
                "trace_id": failure.trace_id,
                "at": failure.at.iso(),
            })
        });
        Ok(Page {
            rows: rows.collect(),
            next,
        })
    }

    /// Returns stored prompts and responses.
    async fn contents(&self) -> sqlx::Result<Page> {
        let Some(log) = &self.parts.content_log else {
            return Ok(Page {
                rows: Vec::new(),
                next: None,
            });
        };
        let after = self.after.as_deref().unwrap_or_default();
        let found = log.list_of_user(&self.user_id, after, CONTENTS).await?;
        let rows = found.iter().map(|stored| {
            json!({
                "request_id": stored.request_id,
                "at": stored.at.iso(),
                "account_id": stored.account_id,
                "key_id": stored.key_id,
                "content": log.open(stored),
            })
        });
        Ok(Page {
            rows: rows.collect(),
            next: match found.len() < CONTENTS as usize {
                true => None,
                false => found.last().map(|stored| stored.request_id.clone()),
            },
        })
    }

    /// Returns tasks, with the names and targets of their credentials.
    async fn tasks(&self) -> sqlx::Result<Page> {
        let tasks = &self.parts.tasks;
        let found = tasks
            .list(&self.user_id, self.after.as_deref(), TASKS)
            .await;
        let found = found.map_err(|error| sqlx::Error::Decode(error.into()))?;
        let mut rows = Vec::with_capacity(found.len());
        for task in &found {
            rows.push(json!({
                "task_id": task.id,
                "definition": task.definition,
                "credentials": self.parts.credentials.list(&task.id).await?,
                "created_at": task.created_at.iso(),
                "updated_at": task.updated_at.iso(),
            }));
        }
        let next = match found.len() < TASKS as usize {
            true => None,
            false => found.last().map(|task| task.id.clone()),
        };
        Ok(Page { rows, next })
    }
}
