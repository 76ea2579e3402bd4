//! An account's statement: what has changed its credits, line by line, with the balance after each; as JSON in parts, or
//! whole as CSV. For themselves, for administrators, and on an operator's terminal.
//!
//! **Invariant:** a line's balance is the line's before it and its own change: nothing is left out between the two but
//! entries that change nothing.

use std::fmt::Write as _;

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
use weir_ledger::{AccountId, Credits, RequestSource, Store};

use super::history::{Asked, DAY_MS, check_span, failed, moment};
use crate::csv_export::{self as csv, ExportPlace, Exports};
use crate::query::ListQuery;

/// Entries that are read at once where all are wanted.
const READ_AT_ONCE: u32 = 1_000;

/// What a statement in CSV begins with.
pub const CSV_HEADINGS: &str = "at,kind,plan_credits,topup_credits,plan_balance,topup_balance,source,source_id,model,\
                                request_id,reference,owed_credits,reason\r\n";

/// A part of a statement.
#[derive(Debug, Serialize, ToSchema)]
pub struct TransactionList {
    /// The last one is first.
    pub transactions: Vec<TransactionItem>,
    /// The `before` of the next part; null if this is the last.
    pub next: Option<String>,
    /// Transactions before this moment may have left for the archive: their sum is one line, `opening`. Null if none has.
    pub archived_before: Option<String>,
}

/// A line of a statement.
#[derive(Debug, Serialize, ToSchema)]
pub struct TransactionItem {
    /// When what it is for was asked for.
    pub at: String,
    /// What it is for: `settlement`, `expiry`, `late_settlement`, `late_release`, `grant`, `lapse`, `top_up`, `refund`,
    /// `owed_collected`, `adjustment` or `opening`.
    pub kind: String,
    /// The change of the plan's credits.
    #[schema(value_type = f64)]
    pub plan_credits: Credits,
    /// The change of the bought ones.
    #[schema(value_type = f64)]
    pub topup_credits: Credits,
    /// The change of what is owed: more with a refund of what was spent, less with what is taken of later credits.
    #[schema(value_type = f64)]
    pub owed_credits: Credits,
    /// What there is after it.
    pub balance: BalanceItem,
    /// `api_key`, `web` or `agent`; null for what is no request's.
    pub source: Option<&'static str>,
    /// The key's id or hash, or the task's id.
    pub source_id: Option<String>,
    /// The model that was asked for.
    pub model: Option<String>,
    /// The request's id.
    pub request_id: Option<String>,
    /// Of a grant, a top-up, a refund or an adjustment, the id that it was made under.
    pub reference: Option<String>,
    /// Of an adjustment, why it was made.
    pub reason: Option<String>,
}

/// A balance, what is held at the moment included.
#[derive(Debug, Serialize, ToSchema)]
pub struct BalanceItem {
    /// The plan's credits.
    #[schema(value_type = f64)]
    pub plan: Credits,
    /// The bought ones.
    #[schema(value_type = f64)]
    pub topup: Credits,
    /// Both.
    #[schema(value_type = f64)]
    pub total: Credits,
}

impl Asked<'_> {
    /// The account's statement, as the headers want it: in parts as JSON, or all of it as CSV.
    pub async fn transactions(
        &self,
        exports: &Exports,
        headers: &HeaderMap,
        mut query: ListQuery,
    ) -> Result<Response, ApiError> {
        if !csv::is_wanted(headers) {
            return Ok(Json(self.list_transactions(query).await?).into_response());
        }
        let reader = self.reader(&mut query)?;
        query.finish()?;
        let place = exports.begin(&self.account.0)?;
        whole(place, reader).await
    }

    /// A part of the account's statement.
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

    /// What reads the time that is asked for.
    fn reader(&self, query: &mut ListQuery) -> Result<StatementReader, ApiError> {
        let store = Store::new(self.database.clone());
        let mut reader = StatementReader::new(store, self.account.clone());
        reader.filter.from = moment(query, "from", 0)?;
        reader.filter.to = moment(query, "to", DAY_MS)?;
        check_span(reader.filter.from, reader.filter.to)?;
        Ok(reader)
    }
}

/// Reads an account's statement, from the last line to the first.
pub struct StatementReader {
    store: Store,
    account: AccountId,
    filter: StatementFilter,
    limit: u32,
}

impl StatementReader {
    /// Of all of it.
    pub fn new(store: Store, account: AccountId) -> Self {
        Self {
            store,
            account,
            filter: StatementFilter::default(),
            limit: READ_AT_ONCE,
        }
    }

    /// The first part.
    pub async fn read(&self) -> sqlx::Result<StatementPage> {
        self.store
            .find_statement(&self.account, &self.filter, self.limit)
            .await
    }

    /// The part after the one that has named this place.
    pub async fn read_before(&mut self, place: StatementPlace) -> sqlx::Result<StatementPage> {
        self.filter.before = Some(place);
        self.read().await
    }
}

/// All of a statement, as it is read.
async fn whole(place: ExportPlace, reader: StatementReader) -> Result<Response, ApiError> {
    let lines = stream::try_unfold(Some(reader), async |reader| {
        let Some(mut reader) = reader else {
            return Ok::<_, sqlx::Error>(None);
        };
        let page = reader.read().await?;
        let mut lines = String::new();
        for line in page.lines {
            csv_line(&mut lines, &item(line));
        }
        reader.filter.before = page.next;
        Ok(Some((lines, page.next.map(|_| reader))))
    });
    csv::attachment(place, "transactions.csv", CSV_HEADINGS, lines).await
}

/// Adds a line to a statement in CSV.
pub fn csv_line(lines: &mut String, item: &TransactionItem) {
    let _ = write!(
        lines,
        "{},{},{},{},{},{}",
        item.at,
        item.kind,
        item.plan_credits,
        item.topup_credits,
        item.balance.plan,
        item.balance.topup
    );
    for text in [
        item.source,
        item.source_id.as_deref(),
        item.model.as_deref(),
        item.request_id.as_deref(),
        item.reference.as_deref(),
    ] {
        lines.push(',');
        csv::cell(lines, text.unwrap_or_default());
    }
    let _ = write!(lines, ",{},", item.owed_credits);
    csv::cell(lines, item.reason.as_deref().unwrap_or_default());
    lines.push_str("\r\n");
}

/// A line as it is shown.
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

/// A place as a part's `next` names it.
fn name(place: StatementPlace) -> String {
    let Pools { plan, top_up } = place.balance;
    format!("{}_{}_{}", place.sequence, plan.micro(), top_up.micro())
}

/// Takes the place that a part has named.
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
            let what = "It is the `next` of the part before.";
            Err(ApiError::invalid_request("before", what))
        }
    }
}
