//! The ledger's tables in both databases: columns, the sources of their values, and the parsers of rows.
//!
//! To add a column, add it to its table here and to its reader, in the same position. Columns of usage counts are added
//! to [`COUNTS`] only.

use std::borrow::Cow;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use sqlx::Row as _;
use sqlx::any::AnyRow;
use weir_storage::clock::Millis;
use weir_storage::ids::Hex;

use crate::account::{
    Account, Block, EndedHold, EntryHash, Hold, LedgerEntry, Pools, RecordedOperation, UsageDelta,
};
use crate::budgets::BudgetPart;
use crate::credits::Credits;
use crate::keys::IdempotencyKey;
use crate::operation::{
    AccountId, BlockKey, BootId, HoldId, HoldState, OpenHold, OperationEffect, OperationId,
    OperationRequest, RequestSource,
};
use crate::plans::Period;
use crate::usage::{COUNTS, Count, RequestUsage, Unit, UsageCounts, UsageSums};

/// A table and its columns, in the order of reads and writes.
pub(super) struct TableLayout<T: 'static> {
    pub name: &'static str,
    /// The primary key's columns.
    pub key: Columns<T>,
    /// Columns that rarely or never change.
    pub fixed: Columns<T>,
    /// Columns that often change.
    pub changing: Columns<T>,
    /// Columns of usage counts, which change as often.
    pub counts: Columns<T>,
}

pub(super) type Columns<T> = &'static [Column<T>];

pub(super) struct Column<T> {
    pub name: &'static str,
    /// Its type in PostgreSQL.
    pub kind: &'static str,
    value: Get<T>,
}

enum Get<T> {
    Value(ValueOf<T>),
    Count(CountsOf<T>, &'static Count),
}

type ValueOf<T> = for<'a> fn(&AccountRow<'a, T>) -> Value<'a>;
type CountsOf<T> = fn(&T) -> Option<UsageCounts>;

// Written by hand, because a column can be copied for any type of rows.
impl<T> Clone for Column<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Column<T> {}

impl<T> Clone for Get<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Get<T> {}

/// The account of a row, and the source of its values.
pub(super) type AccountRow<'a, T> = (&'a AccountId, &'a T);

/// A value on its way to the database.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Value<'a> {
    Null,
    Integer(i64),
    Text(Cow<'a, str>),
    #[serde(serialize_with = "as_hex")]
    Bytes(&'a [u8]),
}

/// Serialises bytes in the text format of PostgreSQL.
fn as_hex<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("\\x{}", Hex(bytes)))
}

/// A row has an unexpected format.
#[derive(Debug, thiserror::Error)]
#[error("a row cannot be read: {0}")]
pub(super) struct UnreadableRow(String);

pub(super) const ACCOUNTS: TableLayout<Account> = TableLayout {
    name: "accounts",
    key: &[text("id", |(_, account)| (&*account.id.0).into())],
    fixed: &[
        text("plan", |(_, account)| account.plan.name().into()),
        integer("period_start", |(_, account)| account.period.start.0.into()),
        integer("period_end", |(_, account)| account.period.end.0.into()),
        integer("period_number", |(_, account)| account.period_number.into()),
        integer("cancelled_at", |(_, account)| {
            account.cancelled_at.map(|at| at.0).into()
        }),
        integer("low_below", |(_, account)| {
            account.low_below.map(Credits::micro).into()
        }),
    ],
    changing: &[
        integer("plan_credits", |(_, account)| account.balance.plan.into()),
        integer("top_up_credits", |(_, account)| {
            account.balance.top_up.into()
        }),
        integer("plan_held", |(_, account)| account.held.plan.into()),
        integer("top_up_held", |(_, account)| account.held.top_up.into()),
        integer("owed", |(_, account)| account.owed.into()),
        integer("low_since", |(_, account)| {
            account.low_since.map(|at| at.0).into()
        }),
        integer("budget_alert_at", |(_, account)| {
            account.alert_at.map(|at| at.0).into()
        }),
        integer("entries", |(_, account)| account.entries.into()),
        bytes("last_hash", |(_, account)| Value::Bytes(&account.last_hash)),
        text("budgets", |(_, account)| match &account.budgets {
            None => Value::Null,
            Some(budgets) => Value::Text(json(budgets).into()),
        }),
    ],
    counts: &[],
};

pub(super) const HOLDS: TableLayout<Hold> = TableLayout {
    name: "holds",
    key: &[
        text("id", |(_, hold)| (&*hold.open.hold.0).into()),
        text("account_id", |(account, _)| (&*account.0).into()),
    ],
    fixed: &[
        text("request_id", |(_, hold)| (&*hold.open.request_id).into()),
        text("boot_id", |(_, hold)| hold.boot_id.as_str().into()),
        text("parent_id", |(_, hold)| {
            hold.open.parent.as_ref().map(|parent| &*parent.0).into()
        }),
        text("source", |(_, hold)| hold.open.source.name().into()),
        text("source_id", |(_, hold)| {
            hold.open.source_id.as_deref().into()
        }),
        text("budget_key", |(_, hold)| parts_of(&hold.open)),
        text("model", |(_, hold)| (&*hold.open.model).into()),
        integer("amount", |(_, hold)| hold.open.amount.into()),
        integer("top_up_only_at", |(_, hold)| {
            hold.open.top_up_only.then_some(hold.opened_at.0).into()
        }),
        integer("opened_at", |(_, hold)| hold.opened_at.0.into()),
        integer("period_start", |(_, hold)| hold.period_start.0.into()),
        integer("period_number", |(_, hold)| hold.period_number.into()),
    ],
    changing: &[
        integer("expired_at", |(_, hold)| {
            hold.expired_at.map(|at| at.0).into()
        }),
        integer("plan_reserved", |(_, hold)| hold.reserved.plan.into()),
        integer("top_up_reserved", |(_, hold)| hold.reserved.top_up.into()),
        integer("checkpoint", |(_, hold)| hold.checkpoint.into()),
        integer("plan_posted", |(_, hold)| hold.posted.plan.into()),
        integer("top_up_posted", |(_, hold)| hold.posted.top_up.into()),
        integer("overrun", |(_, hold)| hold.overrun.into()),
        text("usage", |(_, hold)| match &hold.usage {
            None => Value::Null,
            Some(usage) => Value::Text(json(usage).into()),
        }),
    ],
    counts: &[],
};

/// The database assigns entries' numbers.
pub(super) const ENTRIES: TableLayout<LedgerEntry> = TableLayout {
    name: "entries",
    key: &[
        text("account_id", |(account, _)| (&*account.0).into()),
        integer("sequence", |(_, entry)| entry.sequence.into()),
    ],
    fixed: &[
        integer("at", |(_, entry)| entry.at.0.into()),
        text("kind", |(_, entry)| entry.kind.name().into()),
        integer("plan_delta", |(_, entry)| entry.plan_delta.into()),
        integer("top_up_delta", |(_, entry)| entry.top_up_delta.into()),
        integer("overrun", |(_, entry)| entry.overrun.into()),
        integer("owed", |(_, entry)| entry.owed.into()),
        integer("period_start", |(_, entry)| entry.period_start.0.into()),
        text("operation_id", |(_, entry)| {
            entry.recorded.as_ref().map(|asked| &*asked.id().0).into()
        }),
        text("operation", |(_, entry)| match &entry.recorded {
            None => Value::Null,
            Some(asked) => Value::Text(json(asked).into()),
        }),
        text("hold_id", |row| of_hold(row, |hold| (&*hold.hold.0).into())),
        text("request_id", |row| {
            of_hold(row, |hold| (&*hold.request_id).into())
        }),
        text("parent_id", |row| {
            of_hold(row, |hold| {
                hold.parent.as_ref().map(|parent| &*parent.0).into()
            })
        }),
        text("source", |row| {
            of_hold(row, |hold| hold.source.name().into())
        }),
        text("source_id", |row| {
            of_hold(row, |hold| hold.source_id.as_deref().into())
        }),
        text("budget_key", |row| of_hold(row, parts_of)),
        text("model", |row| of_hold(row, |hold| (&*hold.model).into())),
        integer("amount", |row| of_hold(row, |hold| hold.amount.into())),
        text("provider", |(_, entry)| {
            entry.usage.as_ref().map(|usage| &*usage.provider).into()
        }),
        text("adapter_digest", |(_, entry)| {
            entry
                .usage
                .as_ref()
                .map(|usage| &*usage.adapter_digest)
                .into()
        }),
        text("unit", |(_, entry)| {
            let unit = entry.usage.as_ref().and_then(|usage| usage.unit);
            unit.map(Unit::name).into()
        }),
        integer("requests", |(_, entry)| {
            entry.usage.as_ref().map(|usage| usage.requests).into()
        }),
        integer("latency_ms", |(_, entry)| {
            entry.usage.as_ref().map(|usage| usage.latency_ms).into()
        }),
        integer("attempts", |(_, entry)| {
            entry.usage.as_ref().map(|usage| usage.attempts).into()
        }),
        integer("estimated_at", |(_, entry)| {
            let estimated = entry.usage.as_ref().filter(|usage| usage.estimated);
            estimated.map(|_| entry.at.0).into()
        }),
        text("receipt", |(_, entry)| {
            let receipt = entry
                .usage
                .as_ref()
                .and_then(|usage| usage.receipt.as_ref());
            receipt.map_or(Value::Null, |receipt| Value::Text(json(receipt).into()))
        }),
        bytes("previous_hash", |(_, entry)| {
            Value::Bytes(&entry.previous_hash)
        }),
    ],
    changing: &[],
    counts: &counts(|entry: &LedgerEntry| entry.usage.as_ref().map(|usage| usage.counts)),
};

pub(super) const KEYS: TableLayout<IdempotencyKey> = TableLayout {
    name: "idempotency_keys",
    key: &[
        text("account_id", |(account, _)| (&*account.0).into()),
        text("key", |(_, key)| (&*key.name).into()),
    ],
    fixed: &[],
    changing: &[
        bytes("request_digest", |(_, key)| {
            Value::Bytes(&key.request_digest)
        }),
        text("request_id", |(_, key)| (&*key.request_id).into()),
        text("hold_id", |(_, key)| (&*key.hold.0).into()),
        text("boot_id", |(_, key)| key.boot_id.as_str().into()),
        integer("created_at", |(_, key)| key.created_at.0.into()),
        integer("expires_at", |(_, key)| key.expires_at.0.into()),
        integer("completed_at", |(_, key)| {
            key.completed_at.map(|at| at.0).into()
        }),
        bytes("answer", |(_, key)| match &key.answer {
            None => Value::Null,
            Some(answer) => Value::Bytes(answer),
        }),
    ],
    counts: &[],
};

pub(super) const BLOCKS: TableLayout<Block> = TableLayout {
    name: "blocks",
    key: &[
        text("account_id", |(account, _)| (&*account.0).into()),
        text("boot_id", |(_, block)| block.key.boot_id.as_str().into()),
        text("parts", |(_, block)| {
            Value::Text(
                BudgetPart::join(&block.key.parts)
                    .unwrap_or_default()
                    .into(),
            )
        }),
        integer("top_up_only", |(_, block)| {
            i64::from(block.key.top_up_only).into()
        }),
    ],
    fixed: &[],
    changing: &[
        integer("period_start", |(_, block)| block.period_start.0.into()),
        integer("period_number", |(_, block)| block.period_number.into()),
        integer("plan_reserved", |(_, block)| block.reserved.plan.into()),
        integer("top_up_reserved", |(_, block)| block.reserved.top_up.into()),
        integer("used_at", |(_, block)| block.used_at.0.into()),
    ],
    counts: &[],
};

/// Returns the parts with budgets for which a hold counts.
fn parts_of(hold: &OpenHold) -> Value<'_> {
    match BudgetPart::join(&hold.parts) {
        None => Value::Null,
        Some(parts) => Value::Text(parts.into()),
    }
}

fn of_hold<'a>(
    (_, entry): &AccountRow<'a, LedgerEntry>,
    value: fn(&'a OpenHold) -> Value<'a>,
) -> Value<'a> {
    entry.hold.as_ref().map_or(Value::Null, value)
}

const fn text<T>(name: &'static str, value: ValueOf<T>) -> Column<T> {
    Column {
        name,
        kind: "TEXT",
        value: Get::Value(value),
    }
}

const fn integer<T>(name: &'static str, value: ValueOf<T>) -> Column<T> {
    Column {
        name,
        kind: "BIGINT",
        value: Get::Value(value),
    }
}

const fn bytes<T>(name: &'static str, value: ValueOf<T>) -> Column<T> {
    Column {
        name,
        kind: "BYTEA",
        value: Get::Value(value),
    }
}

const fn counts<T>(of: CountsOf<T>) -> [Column<T>; COUNTS.len()] {
    let column = Column {
        name: "",
        kind: "BIGINT",
        value: Get::Count(of, &COUNTS[0]),
    };
    let mut columns = [column; COUNTS.len()];
    // Constant functions can loop only with `while`.
    let mut index = 0;
    while index < columns.len() {
        columns[index].name = COUNTS[index].column;
        columns[index].value = Get::Count(of, &COUNTS[index]);
        index += 1;
    }
    columns
}

impl<T> TableLayout<T> {
    pub(super) fn columns(&self) -> impl Iterator<Item = &'static Column<T>> {
        self.key.iter().chain(self.fixed).chain(self.added())
    }

    /// Returns the columns that often change.
    fn added(&self) -> impl Iterator<Item = &'static Column<T>> {
        self.changing.iter().chain(self.counts)
    }

    pub(super) fn names(&self) -> String {
        list(self.columns(), |name| name.to_owned())
    }
}

/// Writes a text for each column, separated by commas.
pub(super) fn list<T: 'static>(
    columns: impl IntoIterator<Item = &'static Column<T>>,
    each: impl Fn(&str) -> String,
) -> String {
    let columns: Vec<_> = columns
        .into_iter()
        .map(|column| each(column.name))
        .collect();
    columns.join(", ")
}

impl<T> Column<T> {
    pub(super) fn value<'a>(&self, row: &AccountRow<'a, T>) -> Value<'a> {
        match self.value {
            Get::Value(value) => value(row),
            Get::Count(counts, count) => counts(row.1).map(|counts| count.of(counts)).into(),
        }
    }
}

/// Returns rows of a table as a JSON array of objects.
pub(super) fn json_of<T>(table: &'static TableLayout<T>, rows: &[AccountRow<'_, T>]) -> String {
    struct Object<'a, T: 'static>(&'static TableLayout<T>, &'a AccountRow<'a, T>);

    impl<T> Serialize for Object<'_, T> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut object = serializer.serialize_map(None)?;
            for column in self.0.columns() {
                object.serialize_entry(column.name, &column.value(self.1))?;
            }
            object.end()
        }
    }

    let objects: Vec<_> = rows.iter().map(|row| Object(table, row)).collect();
    json(&objects)
}

pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain structs serialize")
}

impl From<i64> for Value<'_> {
    fn from(integer: i64) -> Self {
        Self::Integer(integer)
    }
}

impl From<Credits> for Value<'_> {
    fn from(credits: Credits) -> Self {
        Self::Integer(credits.micro())
    }
}

impl From<Option<i64>> for Value<'_> {
    fn from(integer: Option<i64>) -> Self {
        integer.map_or(Self::Null, Self::Integer)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text.into())
    }
}

impl<'a> From<Option<&'a str>> for Value<'a> {
    fn from(text: Option<&'a str>) -> Self {
        text.map_or(Self::Null, Self::from)
    }
}

/// A row of either database.
pub(super) trait DatabaseRow {
    fn text(&self, column: usize) -> Result<Option<&str>, UnreadableRow>;
    fn integer(&self, column: usize) -> Result<Option<i64>, UnreadableRow>;
    fn bytes(&self, column: usize) -> Result<Option<Vec<u8>>, UnreadableRow>;
}

impl DatabaseRow for AnyRow {
    fn text(&self, column: usize) -> Result<Option<&str>, UnreadableRow> {
        self.try_get(column).map_err(UnreadableRow::because)
    }

    fn integer(&self, column: usize) -> Result<Option<i64>, UnreadableRow> {
        self.try_get(column).map_err(UnreadableRow::because)
    }

    fn bytes(&self, column: usize) -> Result<Option<Vec<u8>>, UnreadableRow> {
        self.try_get(column).map_err(UnreadableRow::because)
    }
}

impl DatabaseRow for rusqlite::Row<'_> {
    fn text(&self, column: usize) -> Result<Option<&str>, UnreadableRow> {
        let value = self.get_ref(column).map_err(UnreadableRow::because)?;
        value.as_str_or_null().map_err(UnreadableRow::because)
    }

    fn integer(&self, column: usize) -> Result<Option<i64>, UnreadableRow> {
        let value = self.get_ref(column).map_err(UnreadableRow::because)?;
        value.as_i64_or_null().map_err(UnreadableRow::because)
    }

    fn bytes(&self, column: usize) -> Result<Option<Vec<u8>>, UnreadableRow> {
        let value = self.get_ref(column).map_err(UnreadableRow::because)?;
        let bytes = value.as_blob_or_null().map_err(UnreadableRow::because)?;
        Ok(bytes.map(<[u8]>::to_vec))
    }
}

impl UnreadableRow {
    pub(super) fn unknown(name: &str) -> Self {
        Self(format!("the name {name:?} is unknown"))
    }

    fn because(error: impl std::error::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<UnreadableRow> for sqlx::Error {
    fn from(unreadable: UnreadableRow) -> Self {
        Self::Decode(unreadable.into())
    }
}

/// A reader of a row's values, one after the other.
struct Values<'r, R> {
    row: &'r R,
    next: usize,
}

impl<'r, R: DatabaseRow> Values<'r, R> {
    fn of(row: &'r R) -> Self {
        Self { row, next: 0 }
    }

    fn text_or_null(&mut self) -> Result<Option<&'r str>, UnreadableRow> {
        self.next += 1;
        self.row.text(self.next - 1)
    }

    fn text(&mut self) -> Result<&'r str, UnreadableRow> {
        self.text_or_null()?.ok_or_else(|| self.missing())
    }

    fn owned(&mut self) -> Result<String, UnreadableRow> {
        self.text().map(str::to_owned)
    }

    fn integer_or_null(&mut self) -> Result<Option<i64>, UnreadableRow> {
        self.next += 1;
        self.row.integer(self.next - 1)
    }

    fn integer(&mut self) -> Result<i64, UnreadableRow> {
        self.integer_or_null()?.ok_or_else(|| self.missing())
    }

    fn bytes_or_null(&mut self) -> Result<Option<Vec<u8>>, UnreadableRow> {
        self.next += 1;
        self.row.bytes(self.next - 1)
    }

    fn hash_or_null(&mut self) -> Result<Option<EntryHash>, UnreadableRow> {
        let hash = self.bytes_or_null()?.map(EntryHash::try_from);
        hash.transpose().map_err(|_| self.missing())
    }

    fn credits(&mut self) -> Result<Credits, UnreadableRow> {
        self.integer().map(Credits::from_micro)
    }

    fn pools(&mut self) -> Result<Pools, UnreadableRow> {
        let plan = self.credits()?;
        let top_up = self.credits()?;
        Ok(Pools { plan, top_up })
    }

    fn named<T>(&mut self, of: impl FnOnce(&str) -> Option<T>) -> Result<T, UnreadableRow> {
        let name = self.text()?;
        of(name).ok_or_else(|| UnreadableRow::unknown(name))
    }

    fn missing(&self) -> UnreadableRow {
        UnreadableRow(format!("column {} is null", self.next - 1))
    }
}

/// Reads an account without its holds from a row that begins with the columns of [`ACCOUNTS`] and `created_at`.
pub(super) fn read_account(row: &impl DatabaseRow) -> Result<Account, UnreadableRow> {
    let mut values = Values::of(row);
    let mut account = Account::new(AccountId(values.owned()?), Millis(0));
    account.plan = values.named(|name| name.parse().ok())?;
    account.period = Period {
        start: Millis(values.integer()?),
        end: Millis(values.integer()?),
    };
    account.period_number = values.integer()?;
    account.cancelled_at = values.integer_or_null()?.map(Millis);
    account.low_below = values.integer_or_null()?.map(Credits::from_micro);
    account.balance = values.pools()?;
    account.held = values.pools()?;
    account.owed = values.credits()?;
    account.low_since = values.integer_or_null()?.map(Millis);
    account.alert_at = values.integer_or_null()?.map(Millis);
    account.entries = values.integer()?;
    account.last_hash = values.hash_or_null()?.unwrap_or_default();
    let budgets = values.text_or_null()?.map(serde_json::from_str);
    account.budgets = budgets.transpose().map_err(UnreadableRow::because)?;
    account.created_at = Millis(values.integer()?);
    Ok(account)
}

/// Reads a hold and its account from a row with the columns of [`HOLDS`]. Fields are in the order of the columns.
pub(super) fn read_hold(row: &impl DatabaseRow) -> Result<(AccountId, Hold), UnreadableRow> {
    let mut values = Values::of(row);
    let hold = HoldId(values.owned()?);
    let account = AccountId(values.owned()?);
    let request_id = values.owned()?;
    let boot_id = values.named(BootId::of)?;
    let open = OpenHold {
        hold,
        request_id,
        parent: values.text_or_null()?.map(|id| HoldId(id.to_owned())),
        source: values.named(RequestSource::of)?,
        source_id: values.text_or_null()?.map(str::to_owned),
        parts: BudgetPart::split(values.text_or_null()?),
        model: values.owned()?,
        amount: values.credits()?,
        top_up_only: values.integer_or_null()?.is_some(),
    };
    let hold = Hold {
        open,
        boot_id,
        opened_at: Millis(values.integer()?),
        period_start: Millis(values.integer()?),
        period_number: values.integer()?,
        expired_at: values.integer_or_null()?.map(Millis),
        reserved: values.pools()?,
        checkpoint: values.credits()?,
        posted: values.pools()?,
        overrun: values.credits()?,
        usage: values
            .text_or_null()?
            .map(serde_json::from_str::<RequestUsage>)
            .transpose()
            .map_err(UnreadableRow::because)?,
    };
    Ok((account, hold))
}

/// Returns the start of the query for [`read_block`]; a condition on the account's id follows.
pub(super) fn find_blocks() -> String {
    format!(
        "SELECT {}, called_at FROM blocks WHERE account_id",
        BLOCKS.names()
    )
}

/// Reads a block, its account, and whether it was called back, from a row with the columns of [`BLOCKS`] and
/// `called_at`, from this column on.
pub(super) fn read_block(
    row: &impl DatabaseRow,
    next: usize,
) -> Result<(AccountId, Block, bool), UnreadableRow> {
    let mut values = Values { row, next };
    let account = AccountId(values.owned()?);
    let key = BlockKey {
        boot_id: values.named(BootId::of)?,
        parts: BudgetPart::split(Some(values.text()?).filter(|parts| !parts.is_empty())),
        top_up_only: values.integer()? != 0,
    };
    let block = Block {
        key,
        period_start: Millis(values.integer()?),
        period_number: values.integer()?,
        reserved: values.pools()?,
        used_at: Millis(values.integer()?),
    };
    let is_called = values.integer_or_null()?.is_some();
    Ok((account, block, is_called))
}

/// Returns the columns for [`read_end`].
pub(super) fn end_columns() -> String {
    let counts = list(ENTRIES.counts, str::to_owned);
    format!(
        "account_id, hold_id, request_id, parent_id, source, source_id, budget_key, model, amount, kind, plan_delta, \
         top_up_delta, overrun, provider, adapter_digest, unit, requests, latency_ms, attempts, \
         estimated_at, receipt, {counts}"
    )
}

/// Reads an entry's hold, its account, and its reported usage.
pub(super) fn read_end(
    row: &impl DatabaseRow,
) -> Result<(AccountId, EndedHold, Option<UsageDelta>), UnreadableRow> {
    let mut values = Values::of(row);
    let account = AccountId(values.owned()?);
    let open = OpenHold {
        hold: HoldId(values.owned()?),
        request_id: values.owned()?,
        parent: values.text_or_null()?.map(|id| HoldId(id.to_owned())),
        source: values.named(RequestSource::of)?,
        source_id: values.text_or_null()?.map(str::to_owned),
        parts: BudgetPart::split(values.text_or_null()?),
        model: values.owned()?,
        amount: values.credits()?,
        // An ended hold takes no more credits.
        top_up_only: false,
    };
    let state = values.named(|kind| match kind {
        "settlement" | "late_settlement" => Some(HoldState::Settled),
        "release" | "late_release" => Some(HoldState::Released),
        "expiry" => Some(HoldState::Expired),
        _ => None,
    })?;
    let delta = values.pools()?;
    let ended = EndedHold {
        open,
        state,
        posted: delta.negated(),
        overrun: values.credits()?,
        usage: None,
    };
    let Some(provider) = values.text_or_null()?.map(str::to_owned) else {
        return Ok((account, ended, None));
    };
    let mut usage = UsageDelta {
        provider,
        adapter_digest: values.owned()?,
        unit: values.text_or_null()?.and_then(Unit::of),
        requests: values.integer()?,
        latency_ms: values.integer()?,
        // Entries from before attempts were counted have none.
        attempts: values.integer_or_null()?.unwrap_or_default(),
        estimated: values.integer_or_null()?.is_some(),
        receipt: values
            .text_or_null()?
            .map(serde_json::from_str)
            .transpose()
            .map_err(UnreadableRow::because)?,
        counts: UsageCounts::default(),
    };
    for count in &COUNTS {
        count.set(&mut usage.counts, values.integer()?);
    }
    Ok((account, ended, Some(usage)))
}

/// The columns for [`read_recorded`].
pub(super) const RECORDED: &str = "operation_id, account_id, operation, plan_delta, top_up_delta";

/// Reads an operation's id and its outcome from a row with the columns of [`RECORDED`].
pub(super) fn read_recorded(
    row: &impl DatabaseRow,
) -> Result<(OperationId, RecordedOperation), UnreadableRow> {
    let mut values = Values::of(row);
    let id = OperationId(values.owned()?);
    let account = AccountId(values.owned()?);
    let asked =
        serde_json::from_str::<OperationRequest>(values.text()?).map_err(UnreadableRow::because)?;
    let delta = values.pools()?;
    let outcome = match &asked {
        OperationRequest::Grant(_) => OperationEffect::Granted {
            credits: delta.plan,
        },
        // Credits of an upgrade are plan credits.
        OperationRequest::TopUp(_) => OperationEffect::ToppedUp {
            credits: delta.total(),
        },
        OperationRequest::Refund(_) => OperationEffect::Refunded {
            credits: delta.negated().total(),
        },
        OperationRequest::Adjust(adjust) => OperationEffect::Adjusted {
            credits: adjust.credits,
        },
    };
    let recorded = RecordedOperation {
        account,
        asked,
        outcome,
    };
    Ok((id, recorded))
}

/// Returns the query for keys, with the lease of the run that serves each key's request; a condition follows.
pub(super) fn find_keys() -> String {
    let columns = list(KEYS.columns(), |name| format!("keys.{name}"));
    format!(
        "SELECT {columns}, lease_until FROM idempotency_keys AS keys \
         LEFT JOIN node_leases ON node_leases.boot_id = keys.boot_id"
    )
}

/// Reads a key and its account from a row of [`find_keys`].
pub(super) fn read_key(
    row: &impl DatabaseRow,
) -> Result<(AccountId, IdempotencyKey), UnreadableRow> {
    let mut values = Values::of(row);
    let account = AccountId(values.owned()?);
    let name = values.owned()?;
    let digest = values.bytes_or_null()?.unwrap_or_default();
    let key = IdempotencyKey {
        name,
        request_digest: digest.try_into().map_err(|_| values.missing())?,
        request_id: values.owned()?,
        hold: HoldId(values.owned()?),
        boot_id: values.named(BootId::of)?,
        created_at: Millis(values.integer()?),
        expires_at: Millis(values.integer()?),
        completed_at: values.integer_or_null()?.map(Millis),
        answer: values.bytes_or_null()?,
        leased_until: values.integer_or_null()?.map(Millis),
    };
    Ok((account, key))
}

/// Reads the sums of a row with [`UsageSums::columns`] and a unit.
pub(super) fn read_sums(row: &AnyRow) -> sqlx::Result<UsageSums> {
    let unit: String = row.try_get("unit")?;
    UsageSums::read(&unit, |column| row.try_get(column))
}

/// Adds the sums of one unit to those of the same part, which are next to each other.
pub(super) fn add_sums<P: PartialEq>(parts: &mut Vec<(P, UsageSums)>, part: P, sums: UsageSums) {
    match parts.last_mut().filter(|(last, _)| *last == part) {
        Some((_, all)) => *all = all.plus(sums),
        None => parts.push((part, sums)),
    }
}
