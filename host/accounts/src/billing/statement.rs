//! An account's statement: each change of its credits, with the balance after it; as pages of JSON, or complete as CSV.
//! For the user, for administrators, and for an operator's terminal.
//!
//! **Invariant:** each line's balance is the previous line's balance plus its own change: a statement omits only
//! entries without a change.

use axum::Json;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::HeaderMap;
use serde::Serialize;
use utoipa::ToSchema;
use weir_errors::ApiError;
use weir_ledger::account::Pools;
use weir_ledger::store::statement::{
    StatementFilter, StatementLine, StatementPage, StatementPlace,
};
use weir_ledger::{AccountId, Credits, LedgerStore, RequestSource};
use weir_request::csv_export::{self, CsvLines, ExportPlace, Exports};
use weir_request::query::ListQuery;

use super::history::{DAY_MS, UsageQuery, check_span, failed, moment};

/// Entries per read of a complete export.
const READ_AT_ONCE: u32 = 1_000;

/// The headings of a statement in CSV.
pub const CSV_HEADINGS: &str = "at,kind,plan_credits,topup_credits,plan_balance,topup_balance,source,source_id,model,\
                                request_id,reference,owed_credits,reason";

/// A page of a statement.
#[derive(Debug, Serialize, ToSchema)]
pub struct TransactionList {
    /// Transactions, newest first.
    pub transactions: Vec<TransactionItem>,
    /// The `before` of the next page; null on the last page.
    pub next: Option<String>,
    /// Requests before this time may be in the archive: one line, `opening`, has their sum. Purchases and other operations
    /// stay and come below it; their balances leave the archived requests out. Null if nothing is archived.
    pub archived_before: Option<String>,
}

/// A line of a statement.
#[derive(Debug, Serialize, ToSchema)]
pub struct TransactionItem {
    /// The time of the request or the action behind the line.
    pub at: String,
    /// The kind: `settlement`, `expiry`, `late_settlement`, `late_release`, `grant`, `lapse`, `top_up`, `refund`,
    /// `owed_collected`, `adjustment` or `opening`.
    pub kind: String,
    /// The change of the plan's credits.
    #[schema(value_type = f64)]
    pub plan_credits: Credits,
    /// The change of the bought credits.
    #[schema(value_type = f64)]
    pub topup_credits: Credits,
    /// The change of the owed credits: a refund of spent credits increases it, and later credits reduce it.
    #[schema(value_type = f64)]
    pub owed_credits: Credits,
    /// The balance after the line.
    pub balance: BalanceItem,
    /// `api_key`, `web` or `agent`; null for a line without a request.
    pub source: Option<&'static str>,
    /// The key's id or hash, or the task's id.
    pub source_id: Option<String>,
    /// The requested model.
    pub model: Option<String>,
    /// The request's id.
    pub request_id: Option<String>,
    /// The id of a grant, a top-up, a refund or an adjustment.
    pub reference: Option<String>,
    /// The reason of an adjustment.
    pub reason: Option<String>,
}

/// A balance, including held credits.
#[derive(Debug, Serialize, ToSchema)]
pub struct BalanceItem {
    /// The plan's credits.
    #[schema(value_type = f64)]
    pub plan: Credits,
    /// The bought credits.
    #[schema(value_type = f64)]
    pub topup: Credits,
    /// The sum of both.
    #[schema(value_type = f64)]
    pub total: Credits,
}

impl UsageQuery<'_> {
    /// Returns the account's statement in the format of the request's headers: a page of JSON, or all of it as CSV.
    pub async fn transactions(
        &self,
        exports: &Exports,
        headers: &HeaderMap,
        mut query: ListQuery,
    ) -> Result<Response, ApiError> {
        if !csv_export::is_wanted(headers) {
            return Ok(Json(self.list_transactions(query).await?).into_response());
        }
        let reader = self.reader(&mut query)?;
        query.finish()?;
        let place = exports.begin(&self.account.0)?;
        whole(place, reader).await
    }

    /// Returns a page of the account's statement.
    pub async fn list_transactions(
        &self,
        mut query: ListQuery,
    ) -> Result<TransactionList, ApiError> {
        let limit = query.limit()?;
        let before = place(&mut query)?;
        let mut reader = self.reader(&mut query)?;
        query.finish()?;
        reader.limit = limit;
        reader.filter.before = before;
        let page = reader.read().await.map_err(failed)?;
        Ok(TransactionList {
            next: page.next.map(name),
            archived_before: page.archived_before.map(|moment| moment.iso()),
            transactions: page.lines.into_iter().map(item).collect(),
        })
    }

    /// Returns a reader of the requested period.
    fn reader(&self, query: &mut ListQuery) -> Result<StatementReader, ApiError> {
        let store = LedgerStore::new(self.database.clone());
        let mut reader = StatementReader::new(store, self.account.clone());
        reader.filter.from = moment(query, "from", 0)?;
        reader.filter.to = moment(query, "to", DAY_MS)?;
        check_span(reader.filter.from, reader.filter.to)?;
        Ok(reader)
    }
}

/// Reads an account's statement, from the last line to the first.
pub struct StatementReader {
    store: LedgerStore,
    account: AccountId,
    filter: StatementFilter,
    limit: u32,
}

impl StatementReader {
    pub fn new(store: LedgerStore, account: AccountId) -> Self {
        Self {
            store,
            account,
            filter: StatementFilter::default(),
            limit: READ_AT_ONCE,
        }
    }

    /// Reads the first page.
    pub async fn read(&self) -> sqlx::Result<StatementPage> {
        self.store
            .find_statement(&self.account, &self.filter, self.limit)
            .await
    }

    /// Reads the page that begins at this position.
    pub async fn read_before(&mut self, place: StatementPlace) -> sqlx::Result<StatementPage> {
        self.filter.before = Some(place);
        self.read().await
    }
}

async fn whole(place: ExportPlace, reader: StatementReader) -> Result<Response, ApiError> {
    let lines = stream::try_unfold(Some(reader), async |reader| {
        let Some(mut reader) = reader else {
            return Ok::<_, sqlx::Error>(None);
        };
        let page = reader.read().await?;
        let mut lines = CsvLines::default();
        for line in page.lines {
            csv_line(&mut lines, &item(line));
        }
        reader.filter.before = page.next;
        Ok(Some((lines.finish(), page.next.map(|_| reader))))
    });
    let headings = CsvLines::of(CSV_HEADINGS);
    csv_export::attachment(place, "transactions.csv", headings, lines).await
}

/// Adds a line to a statement in CSV, in the order of [`CSV_HEADINGS`].
pub fn csv_line(lines: &mut CsvLines, item: &TransactionItem) {
    lines.add([
        &*item.at,
        &item.kind,
        &item.plan_credits.to_string(),
        &item.topup_credits.to_string(),
        &item.balance.plan.to_string(),
        &item.balance.topup.to_string(),
        item.source.unwrap_or_default(),
        item.source_id.as_deref().unwrap_or_default(),
        item.model.as_deref().unwrap_or_default(),
        item.request_id.as_deref().unwrap_or_default(),
        item.reference.as_deref().unwrap_or_default(),
        &item.owed_credits.to_string(),
        item.reason.as_deref().unwrap_or_default(),
    ]);
}

/// Converts a line for a response.
pub fn item(line: StatementLine) -> TransactionItem {
    let Pools { plan, top_up } = line.balance;
    TransactionItem {
        at: line.at.iso(),
        kind: line.kind,
        plan_credits: line.change.plan,
        topup_credits: line.change.top_up,
        balance: BalanceItem {
            plan,
            topup: top_up,
            total: line.balance.total(),
        },
        source: line.source.map(RequestSource::name),
        source_id: line.source_id,
        model: line.model,
        request_id: line.request_id,
        reference: line.operation_id,
        owed_credits: line.owed,
        reason: line.reason,
    }
}

/// Formats a position as the `next` of a page.
fn name(place: StatementPlace) -> String {
    let Pools { plan, top_up } = place.balance;
    format!("{}_{}_{}", place.sequence, plan.micro(), top_up.micro())
}

/// Parses the position from a page's `next`.
fn place(query: &mut ListQuery) -> Result<Option<StatementPlace>, ApiError> {
    let Some(text) = query.text("before")? else {
        return Ok(None);
    };
    let numbers: Option<Vec<i64>> = text.split('_').map(|number| number.parse().ok()).collect();
    match numbers.as_deref() {
        Some(&[sequence, plan, top_up]) if sequence > 0 => Ok(Some(StatementPlace {
            sequence,
            balance: Pools {
                plan: Credits::from_micro(plan),
                top_up: Credits::from_micro(top_up),
            },
        })),
        _ => {
            let what = "The value must be the `next` of the previous page.";
            Err(ApiError::invalid_request("before", what))
        }
    }
}
