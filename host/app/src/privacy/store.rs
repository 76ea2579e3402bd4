//! The SQL of exports and erasures, over the tables of all features.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sqlx::Row;
use sqlx::any::AnyRow;
use weir_identity::members::count_owners;
use weir_identity::store::lock_account;
use weir_ledger::store::history::UsageGroup;
use weir_ledger::{AccountId, Credits, LedgerStore, UsageSums};
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::{SqlDialect, Transaction};
use weir_swarms::swarm::store::delete_run;

/// A table of an export.
pub(super) struct Table {
    /// The field of the document.
    pub(super) name: &'static str,
    /// Parameters: the user, the last row's place, the number of rows. The first column is the place.
    sql: &'static str,
    /// The place before the first row.
    first: &'static str,
    columns: &'static [(&'static str, Column)],
}

/// The type of a column. Each may be null.
#[derive(Clone, Copy)]
enum Column {
    Text,
    Number,
    Time,
    /// Micro-credits.
    Credits,
    Json,
}

use Column::{Json, Number, Text, Time};

/// The tables with a person's data, apart from those with sealed values.
pub(super) const TABLES: [Table; 15] = [
    Table {
        name: "memberships",
        sql: "SELECT m.organisation_id AS place, m.organisation_id, u.name AS organisation, m.role, \
              m.created_at AS joined_at FROM members m JOIN users u ON u.id = m.organisation_id \
              WHERE m.user_id = $1 AND m.organisation_id > $2 ORDER BY m.organisation_id LIMIT $3",
        first: "",
        columns: &[
            ("organisation_id", Text),
            ("organisation", Text),
            ("role", Text),
            ("joined_at", Time),
        ],
    },
    Table {
        name: "directory",
        sql: "SELECT id AS place, issuer, document AS attributes, created_at, updated_at FROM directory_resources \
              WHERE id = $1 AND id > $2 ORDER BY id LIMIT $3",
        first: "",
        columns: &[
            ("issuer", Text),
            ("attributes", Json),
            ("created_at", Time),
            ("updated_at", Time),
        ],
    },
    Table {
        name: "invitations",
        sql: "SELECT id AS place, id AS invitation_id, organisation_id, email, role, created_at, expires_at, ended_at \
              FROM invitations WHERE id IN (SELECT id FROM invitations WHERE accepted_by = $1 \
              UNION SELECT id FROM invitations WHERE email = (SELECT email FROM users WHERE id = $1)) AND id > $2 \
              ORDER BY id LIMIT $3",
        first: "",
        columns: &[
            ("invitation_id", Text),
            ("organisation_id", Text),
            ("email", Text),
            ("role", Text),
            ("created_at", Time),
            ("expires_at", Time),
            ("ended_at", Time),
        ],
    },
    Table {
        name: "api_keys",
        sql: "SELECT id AS place, id AS key_id, user_id AS account_id, project_id, name, prefix, created_at, expires_at, \
              disabled_at AS revoked_at, last_used_at, models, filter_options, data_limits, content_log FROM api_keys \
              WHERE ((user_id = $1 AND holder_id IS NULL) OR holder_id = $1) AND id > $2 ORDER BY id LIMIT $3",
        first: "",
        columns: &[
            ("key_id", Text),
            ("account_id", Text),
            ("project_id", Text),
            ("name", Text),
            ("prefix", Text),
            ("created_at", Time),
            ("expires_at", Time),
            ("revoked_at", Time),
            ("last_used_at", Time),
            ("models", Json),
            ("filter_options", Json),
            ("data_limits", Json),
            ("content_log", Number),
        ],
    },
    Table {
        name: "swarms",
        sql: "SELECT id AS place, id AS execution_id, swarm_id, task_id, status, agents_completed, agents_total, credits, \
              created_at, ended_at FROM swarm_runs WHERE user_id = $1 AND id > $2 ORDER BY id LIMIT $3",
        first: "",
        columns: &[
            ("execution_id", Text),
            ("swarm_id", Text),
            ("task_id", Text),
            ("status", Text),
            ("agents_completed", Number),
            ("agents_total", Number),
            ("credits", Column::Credits),
            ("created_at", Time),
            ("ended_at", Time),
        ],
    },
    Table {
        name: "failed_request_counts",
        sql: "SELECT CAST(minute AS TEXT) AS place, minute AS at, requests FROM failed_request_counts \
              WHERE account_id = $1 AND minute > CAST($2 AS BIGINT) ORDER BY minute LIMIT $3",
        first: "-1",
        columns: &[("at", Time), ("requests", Number)],
    },
    Table {
        name: "notices",
        sql: "SELECT id AS place, id, kind, data, created_at, delivered_at FROM notices \
              WHERE user_id = $1 AND id > $2 ORDER BY id LIMIT $3",
        first: "",
        columns: &[
            ("id", Text),
            ("kind", Text),
            ("data", Json),
            ("created_at", Time),
            ("delivered_at", Time),
        ],
    },
    Table {
        name: "payment_customers",
        sql: "SELECT customer_id AS place, customer_id, linked_at FROM payment_customers \
              WHERE user_id = $1 AND customer_id > $2 ORDER BY customer_id LIMIT $3",
        first: "",
        columns: &[("customer_id", Text), ("linked_at", Time)],
    },
    Table {
        name: "checkouts",
        sql: "SELECT id AS place, id, purpose, item, session_id, created_at, expires_at, closed_at FROM payment_checkouts \
              WHERE user_id = $1 AND id > $2 ORDER BY id LIMIT $3",
        first: "",
        columns: &[
            ("id", Text),
            ("purpose", Text),
            ("item", Text),
            ("session_id", Text),
            ("created_at", Time),
            ("expires_at", Time),
            ("closed_at", Time),
        ],
    },
    Table {
        name: "payments",
        sql: "SELECT id AS place, id, kind, credits, amount AS amount_cents, currency, period_start, period_end, paid_at, \
              refunded AS refunded_cents FROM payments WHERE user_id = $1 AND id > $2 ORDER BY id LIMIT $3",
        first: "",
        columns: &[
            ("id", Text),
            ("kind", Text),
            ("credits", Column::Credits),
            ("amount_cents", Number),
            ("currency", Text),
            ("period_start", Time),
            ("period_end", Time),
            ("paid_at", Time),
            ("refunded_cents", Number),
        ],
    },
    Table {
        name: "subscriptions",
        sql: "SELECT id AS place, id, plan, status, period_start, period_end, cancelled_at, payment_failed_at \
              FROM payment_subscriptions WHERE user_id = $1 AND id > $2 ORDER BY id LIMIT $3",
        first: "",
        columns: &[
            ("id", Text),
            ("plan", Text),
            ("status", Text),
            ("period_start", Time),
            ("period_end", Time),
            ("cancelled_at", Time),
            ("payment_failed_at", Time),
        ],
    },
    Table {
        name: "auto_top_up",
        sql: "SELECT tier AS place, tier, threshold, enabled_at, changed_at FROM auto_top_ups \
              WHERE user_id = $1 AND tier > $2 ORDER BY tier LIMIT $3",
        first: "",
        columns: &[
            ("tier", Text),
            ("threshold", Column::Credits),
            ("enabled_at", Time),
            ("changed_at", Time),
        ],
    },
    Table {
        name: "auto_top_up_charges",
        sql: "SELECT id AS place, id, tier, payment_id, created_at, ended_at, outcome FROM auto_top_up_charges \
              WHERE user_id = $1 AND id > $2 ORDER BY id LIMIT $3",
        first: "",
        columns: &[
            ("id", Text),
            ("tier", Text),
            ("payment_id", Text),
            ("created_at", Time),
            ("ended_at", Time),
            ("outcome", Text),
        ],
    },
    Table {
        name: "vouchers",
        sql: "SELECT voucher_id AS place, voucher_id, credits, redeemed_at FROM voucher_redemptions \
              WHERE user_id = $1 AND voucher_id > $2 ORDER BY voucher_id LIMIT $3",
        first: "",
        columns: &[
            ("voucher_id", Text),
            ("credits", Column::Credits),
            ("redeemed_at", Time),
        ],
    },
    // Without the actor, who may be another person.
    Table {
        name: "audit_events",
        sql: "SELECT CAST(number AS TEXT) AS place, at, count, kind, method, reason, key_id FROM audit_events \
              WHERE user_id = $1 AND number > CAST($2 AS BIGINT) ORDER BY number LIMIT $3",
        first: "0",
        columns: &[
            ("at", Time),
            ("count", Number),
            ("kind", Text),
            ("method", Text),
            ("reason", Text),
            ("key_id", Text),
        ],
    },
];

impl Table {
    /// Returns rows of a user in order, each with its place.
    pub(super) async fn page(
        &self,
        database: &Database,
        user_id: &str,
        after: Option<&str>,
        rows: u32,
    ) -> sqlx::Result<Vec<(String, Value)>> {
        let found = sqlx::query(self.sql)
            .bind(user_id)
            .bind(after.unwrap_or(self.first))
            .bind(i64::from(rows))
            .fetch_all(database.reader())
            .await?;
        found
            .iter()
            .map(|row| Ok((row.try_get("place")?, show(row, self.columns)?)))
            .collect()
    }
}

fn show(row: &AnyRow, columns: &[(&'static str, Column)]) -> sqlx::Result<Value> {
    let mut shown = Map::new();
    for (name, column) in columns {
        let number = || row.try_get::<Option<i64>, _>(*name);
        let text = || row.try_get::<Option<String>, _>(*name);
        let value = match column {
            Text => json!(text()?),
            Number => json!(number()?),
            Time => json!(number()?.map(|at| Millis(at).iso())),
            Column::Credits => json!(number()?.map(Credits::from_micro)),
            Json => match text()? {
                None => Value::Null,
                Some(text) => serde_json::from_str(&text)
                    .map_err(|error| sqlx::Error::Decode(error.into()))?,
            },
        };
        shown.insert((*name).to_owned(), value);
    }
    Ok(Value::Object(shown))
}

/// Returns the record of a person for an export.
pub(super) async fn show_user(database: &Database, user_id: &str) -> sqlx::Result<Option<Value>> {
    let row = sqlx::query(
        "SELECT id AS user_id, issuer, subject, email, name, plan, created_at, admin_since, disabled_at, \
         deleted_at AS erased_at FROM users WHERE id = $1 AND kind = 'person'",
    )
    .bind(user_id)
    .fetch_optional(database.reader())
    .await?;
    let columns = [
        ("user_id", Text),
        ("issuer", Text),
        ("subject", Text),
        ("email", Text),
        ("name", Text),
        ("plan", Text),
        ("created_at", Time),
        ("admin_since", Time),
        ("disabled_at", Time),
        ("erased_at", Time),
    ];
    row.map(|row| show(&row, &columns)).transpose()
}

/// Returns the sums of an account's requests.
pub(super) async fn usage_totals(database: &Database, user_id: &str) -> sqlx::Result<Value> {
    let account = AccountId(user_id.to_owned());
    let ever = [Millis(i64::MIN), Millis(i64::MAX)];
    let store = LedgerStore::new(database.clone());
    let models = store.find_usage(&account, UsageGroup::Model, ever).await?;
    let mut total = UsageSums::default();
    let mut quantities = BTreeMap::new();
    for (_, sums) in models {
        total = total.plus(sums);
        if let Some(quantity) = sums.quantity.known() {
            *quantities.entry(quantity.unit.name()).or_insert(0) += quantity.count;
        }
    }
    Ok(json!({
        "requests": total.requests,
        "credits": total.credits,
        "tokens_input": total.counts.tokens_input,
        "tokens_output": total.counts.tokens_output,
        "images": total.counts.images,
        "quantities": quantities,
    }))
}

pub(super) struct Person {
    /// The time of the erasure.
    pub(super) erased_at: Option<Millis>,
    /// The issuer, and its name of the person; `None` for a user with API keys only.
    pub(super) name_at_issuer: Option<(String, String)>,
}

/// Returns a person; organisations and service accounts are none.
pub(super) async fn find_person(
    database: &Database,
    user_id: &str,
) -> sqlx::Result<Option<Person>> {
    let row = sqlx::query(
        "SELECT issuer, subject, deleted_at FROM users WHERE id = $1 AND kind = 'person'",
    )
    .bind(user_id)
    .fetch_optional(database.reader())
    .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    let issuer: Option<String> = row.try_get("issuer")?;
    Ok(Some(Person {
        erased_at: row.try_get::<Option<i64>, _>("deleted_at")?.map(Millis),
        name_at_issuer: issuer.zip(row.try_get("subject")?),
    }))
}

/// The result of the transaction that ends a user.
pub(super) enum EndOfUser {
    /// The user ended at this time.
    Done(Millis),
    /// A concurrent request ended the user at this time.
    DoneBefore(Millis),
    /// The user has swarms in progress.
    Works,
    /// An organisation would have no owner.
    LastOwner { id: String, name: String },
}

/// Ends a user: disables them for ever, revokes their keys, ends their memberships, and blanks their personal data.
pub(super) async fn end(
    database: &Database,
    user_id: &str,
    now: Millis,
) -> sqlx::Result<EndOfUser> {
    let mut transaction = database.begin().await?;
    lock_account(&mut transaction, user_id).await?;
    let erased_at: Option<i64> = sqlx::query_scalar("SELECT deleted_at FROM users WHERE id = $1")
        .bind(user_id)
        .fetch_one(&mut transaction)
        .await?;
    if let Some(erased_at) = erased_at {
        return Ok(EndOfUser::DoneBefore(Millis(erased_at)));
    }
    if has_open_swarms(&mut transaction, user_id).await? {
        return Ok(EndOfUser::Works);
    }
    for (id, name) in owned(&mut transaction, user_id).await? {
        // Concurrent changes of the members wait.
        lock_account(&mut transaction, &id).await?;
        let before = count_owners(&mut transaction, &id).await?;
        sqlx::query("DELETE FROM members WHERE organisation_id = $1 AND user_id = $2")
            .bind(&id)
            .bind(user_id)
            .execute(&mut transaction)
            .await?;
        let after = count_owners(&mut transaction, &id).await?;
        if before.has_lost_last(after) {
            let name = name.unwrap_or_default();
            return Ok(EndOfUser::LastOwner { id, name });
        }
    }
    overwrite(database, &mut transaction).await?;
    // The address is needed until it is blank.
    sqlx::query(
        "UPDATE invitations SET email = '', ended_at = COALESCE(ended_at, $2) \
         WHERE accepted_by = $1 OR email = (SELECT email FROM users WHERE id = $1)",
    )
    .bind(user_id)
    .bind(now.0)
    .execute(&mut transaction)
    .await?;
    clear_in(&mut transaction, user_id, now).await?;
    commit(database, transaction).await?;
    Ok(EndOfUser::Done(now))
}

async fn has_open_swarms(transaction: &mut Transaction, user_id: &str) -> sqlx::Result<bool> {
    let open: i64 = sqlx::query_scalar(
        "SELECT CAST(COUNT(*) AS BIGINT) FROM swarm_runs WHERE user_id = $1 AND ended_at IS NULL",
    )
    .bind(user_id)
    .fetch_one(transaction)
    .await?;
    Ok(open > 0)
}

/// Returns the organisations that a user owns, with their names, in one order for all transactions.
async fn owned(
    transaction: &mut Transaction,
    user_id: &str,
) -> sqlx::Result<Vec<(String, Option<String>)>> {
    sqlx::query_as(
        "SELECT u.id, u.name FROM members m JOIN users u ON u.id = m.organisation_id \
         WHERE m.user_id = $1 AND m.role = 'owner' AND u.deleted_at IS NULL ORDER BY u.id",
    )
    .bind(user_id)
    .fetch_all(transaction)
    .await
}

/// Statements that delete or blank personal data. Parameter: the user.
const CLEARING: [&str; 13] = [
    "DELETE FROM task_credentials WHERE task_id IN (SELECT id FROM tasks WHERE user_id = $1)",
    "DELETE FROM task_starts WHERE task_id IN (SELECT id FROM tasks WHERE user_id = $1)",
    "DELETE FROM tasks WHERE user_id = $1",
    "DELETE FROM notices WHERE user_id = $1",
    "DELETE FROM auto_top_ups WHERE user_id = $1",
    "DELETE FROM voucher_guesses WHERE user_id = $1",
    "DELETE FROM failed_requests WHERE user_id = $1",
    "DELETE FROM failed_request_counts WHERE account_id = $1",
    "DELETE FROM traffic_hours WHERE organisation_id = $1",
    "DELETE FROM members WHERE user_id = $1",
    "DELETE FROM directory_members WHERE user_id = $1",
    "DELETE FROM directory_resources WHERE id = $1",
    "UPDATE payment_checkouts SET url = NULL WHERE user_id = $1 AND url IS NOT NULL",
];

/// Statements with the time as second parameter.
const ENDING: [&str; 2] = [
    "UPDATE api_keys SET name = '', filter_options = NULL, disabled_at = COALESCE(disabled_at, $2) \
     WHERE ((user_id = $1 AND holder_id IS NULL) OR holder_id = $1) AND (name <> '' OR disabled_at IS NULL)",
    "UPDATE users SET issuer = NULL, subject = NULL, email = NULL, name = NULL, rates = NULL, filter_options = NULL, \
     admin_since = NULL, admin_granted_by = NULL, disabled_at = COALESCE(disabled_at, $2), deleted_at = COALESCE(deleted_at, $2) \
     WHERE id = $1",
];

/// Deletes and blanks the data of an erased user in the small tables.
pub(super) async fn clear(database: &Database, user_id: &str, now: Millis) -> sqlx::Result<()> {
    let mut transaction = database.begin().await?;
    lock_account(&mut transaction, user_id).await?;
    overwrite(database, &mut transaction).await?;
    clear_in(&mut transaction, user_id, now).await?;
    commit(database, transaction).await
}

/// Makes SQLite overwrite the pages that become free in a transaction, too. The pages cost more writes, so other
/// transactions only overwrite values within their page. After a failure, the connection continues to overwrite pages
/// until the next erasure.
async fn overwrite(database: &Database, transaction: &mut Transaction) -> sqlx::Result<()> {
    if database.dialect() == SqlDialect::Sqlite {
        let pragma = sqlx::query("PRAGMA secure_delete = ON");
        pragma.execute(transaction).await?;
    }
    Ok(())
}

/// Commits a transaction that overwrites pages.
async fn commit(database: &Database, mut transaction: Transaction) -> sqlx::Result<()> {
    if database.dialect() == SqlDialect::Sqlite {
        let pragma = sqlx::query("PRAGMA secure_delete = FAST");
        pragma.execute(&mut transaction).await?;
    }
    transaction.commit().await
}

async fn clear_in(transaction: &mut Transaction, user_id: &str, now: Millis) -> sqlx::Result<()> {
    for text in CLEARING {
        let statement = sqlx::query(text).bind(user_id);
        statement.execute(&mut *transaction).await?;
    }
    for text in ENDING {
        let statement = sqlx::query(text).bind(user_id).bind(now.0);
        statement.execute(&mut *transaction).await?;
    }
    Ok(())
}

/// Deletes the finished swarms of a user, each in its own transaction.
pub(super) async fn delete_swarms(database: &Database, user_id: &str) -> sqlx::Result<()> {
    let ended: Vec<String> =
        sqlx::query_scalar("SELECT id FROM swarm_runs WHERE user_id = $1 AND ended_at IS NOT NULL")
            .bind(user_id)
            .fetch_all(database.reader())
            .await?;
    for id in &ended {
        let mut transaction = database.begin().await?;
        overwrite(database, &mut transaction).await?;
        delete_run(&mut transaction, id).await?;
        commit(database, transaction).await?;
    }
    Ok(())
}

/// Prompts and responses that one transaction deletes: each may have half a MiB.
const CONTENTS: u64 = 100;

/// Deletes the prompts and responses of a user's requests, in all accounts.
pub(super) async fn delete_contents(database: &Database, user_id: &str) -> sqlx::Result<()> {
    loop {
        let mut transaction = database.begin().await?;
        overwrite(database, &mut transaction).await?;
        let deleted = sqlx::query(
            "DELETE FROM content_logs WHERE request_id IN \
             (SELECT request_id FROM content_logs WHERE user_id = $1 LIMIT $2)",
        )
        .bind(user_id)
        .bind(CONTENTS as i64)
        .execute(&mut transaction)
        .await?;
        commit(database, transaction).await?;
        if deleted.rows_affected() < CONTENTS {
            return Ok(());
        }
    }
}

/// Returns the users that were erased after a time.
pub(super) async fn erased_since(database: &Database, since: Millis) -> sqlx::Result<Vec<String>> {
    // The first condition is the one of an index.
    sqlx::query_scalar(
        "SELECT id FROM users WHERE disabled_at IS NOT NULL AND deleted_at > $1 AND kind = 'person' ORDER BY id",
    )
    .bind(since.0)
    .fetch_all(database.reader())
    .await
}
