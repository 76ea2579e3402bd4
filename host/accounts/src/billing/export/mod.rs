//! The costs and payments of a month for other tools: in the columns of FOCUS, the FinOps Open Cost and Usage
//! Specification (1.0, <https://focus.finops.org>), day by day.
//!
//! Credits are prepaid. FOCUS puts the money of a prepaid purchase on the purchase, and its value on the usage that the
//! purchase covers: `BilledCost` and `EffectiveCost`. A month therefore has three kinds of lines:
//!
//! | Lines | Source | `BilledCost` | `EffectiveCost` | `x_BalanceChange` |
//! |---|---|---|---|---|
//! |[`usage`] | requests, by day, model, provider and key | 0 | the charge | the charge, negative |
//! | [`payments`] | payments, bonuses and refunds | the money | 0 | 0 |
//! |[`changes`] | entries of the ledger without a request | 0 | 0 | the entry's |
//!
//! weir's own columns begin with `x_`, as FOCUS requires. Amounts are exact: a credit is 0.001 USD, and a micro-credit
//! a nano-USD.
//!
//! **Invariant:** `EffectiveCost` adds up to the month's charges in `GET /usage/me?group=day`; `BilledCost` to the
//! payments of the month less its refunds; `x_BalanceChange` to the change of the balance.

mod changes;
mod line;
mod payments;
mod usage;

use axum::response::Response;
use futures_util::stream;
use weir_errors::ApiError;
use weir_ledger::{AccountId, Period, plans};
use weir_request::csv_export::{self, CsvLines, Exports};
use weir_request::query::ListQuery;
use weir_storage::Database;
use weir_storage::clock::Millis;

use self::line::{COLUMNS, ChargeDay, ExportLine};

const DAY_MS: i64 = 86_400_000;

/// The scope of an export.
pub struct Export {
    pub database: Database,
    /// The account; all accounts if `None`, with the operator's costs.
    pub account: Option<AccountId>,
    /// The current time; its month is the default.
    pub now: Millis,
}

impl Export {
    /// Returns the month in `period`, in the requested `format`.
    ///
    /// # Errors
    ///
    /// 400 with the invalid parameter; 429 or 503 if there are too many exports; the database's error in the first day.
    pub async fn answer(
        self,
        exports: &Exports,
        mut query: ListQuery,
    ) -> Result<Response, ApiError> {
        match query.text("format")?.as_deref() {
            None | Some("focus") => {}
            Some(_) => {
                return Err(ApiError::invalid_request(
                    "format",
                    "The format must be focus.",
                ));
            }
        }
        let period = match query.text("period")? {
            None => Some(Period::of_calendar_month(self.now)),
            Some(month) => month_named(&month),
        };
        query.finish()?;
        let period = period.ok_or_else(|| {
            let what = "The period must be a month as YYYY-MM, such as 2026-01.";
            ApiError::invalid_request("period", what)
        })?;
        let of = self.account.as_ref().map_or("*", |account| &account.0);
        let place = exports.begin(of)?;
        let month = plans::day(period.start);
        let file = format!("usage-{}.csv", &month[.."YYYY-MM".len()]);
        let headings = CsvLines::of(&self.columns().join(","));
        let days = stream::try_unfold(
            (self, period.start),
            move |(export, day): (Self, Millis)| async move {
                if day >= period.end {
                    return Ok(None);
                }
                let lines = export.day(period, day).await?;
                Ok(Some((lines, (export, Millis(day.0 + DAY_MS)))))
            },
        );
        csv_export::attachment(place, &file, headings, days).await
    }

    fn columns(&self) -> &'static [&'static str] {
        match self.account {
            None => &COLUMNS,
            Some(_) => &COLUMNS[..COLUMNS.len() - 1],
        }
    }

    /// Returns the lines of a day.
    async fn day(&self, period: Period, day: Millis) -> sqlx::Result<String> {
        let account = self.account.as_ref();
        let charge_day = ChargeDay {
            period,
            start: day,
            end: Millis(day.0 + DAY_MS),
        };
        let (database, mut lines) = (&self.database, CsvLines::default());
        self.write(
            &mut lines,
            payments::lines(database, account, charge_day).await?,
        );
        self.write(
            &mut lines,
            changes::lines(database, account, charge_day).await?,
        );
        self.write(
            &mut lines,
            usage::lines(database, account, charge_day).await?,
        );
        Ok(lines.finish())
    }

    fn write(&self, text: &mut CsvLines, lines: Vec<ExportLine>) {
        let shown = self.columns().len();
        for line in lines {
            let cells = line.cells();
            text.add(cells.iter().take(shown).map(String::as_str));
        }
    }
}

fn month_named(month: &str) -> Option<Period> {
    let [first, _] = plans::days_of_month(month).filter(|_| month.len() == "YYYY-MM".len())?;
    Some(Period::of_calendar_month(first))
}
