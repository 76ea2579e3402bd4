//! The shared parts of the rows about money: a price with known sums, and reads of the ledger.

use std::collections::HashMap;

use sqlx::{AssertSqlSafe, Row};
use tests::Gateway;
use weir_ledger::verify::verify;
use weir_ledger::{
    AccountId, Action, Budget, BudgetPart, BudgetWindow, Credits, LedgerStore, Operation,
    SetBudgets, commit_one,
};
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::Snapshot;
use weir_storage::secrets::SecretUrl;

/// The user who pays for all requests.
pub(crate) const USER: &str = tests::gateway::USER;

/// The organisation whose members' requests it pays for.
pub(crate) const ORGANISATION: &str = "org_load";

const PROJECT: &str = "prj_load";

/// Credits that no row spends.
const MORE_THAN_ANY_ROW: Credits = Credits::whole(1_000_000_000);

/// The text of every request.
pub(crate) const TEXT: &str = "pay!";

/// Maximum accepted input count for [`TEXT`]: twice half its bytes and 16 for the message.
pub(crate) const TOKENS_INPUT: u64 = 36;

/// Maximum accepted output count of a response: the output limit of [`model`] and 64 more.
pub(crate) const TOKENS_OUTPUT: u64 = 1_064;

/// Hold of a request, and its charge if [`TOKENS_INPUT`] and [`TOKENS_OUTPUT`] are reported: 36 × 5 USD + 1,064 × 10
/// USD a million, times 1.4.
pub(crate) const HOLD: Credits = Credits::from_micro(15_148_000);

/// Returns the charge for these tokens.
pub(crate) const fn price(input: u64, output: u64) -> Credits {
    Credits::from_micro((input * 7_000 + output * 14_000) as i64)
}

/// The table of a model that a provider of the same name serves.
pub(crate) fn model(name: &str) -> String {
    format!(
        "[models.{name}]\ncontext_window = 100000\nmax_output_tokens = 1000\n\
         default_output_tokens = 1000\nupstreams = [{{ provider = {name:?} }}]\n\
         price = {{ input = 5, output = 10 }}\n"
    )
}

/// All holds ever: open holds, and holds in entries.
const HOLDS: &str = "SELECT request_id, 'open' AS state, 0 AS credits, 0 AS overrun, 0 AS tokens FROM holds \
     WHERE expired_at IS NULL UNION ALL SELECT MIN(request_id), \
     CASE SUM(CASE kind WHEN 'expiry' THEN 1 WHEN 'late_settlement' THEN 2 WHEN 'late_release' THEN 4 \
     WHEN 'release' THEN 8 ELSE 0 END) WHEN 0 THEN 'settled' WHEN 3 THEN 'settled' WHEN 1 THEN 'expired' \
     ELSE 'released' END, CAST(-SUM(plan_delta + top_up_delta) AS BIGINT), CAST(SUM(overrun) AS BIGINT), \
     CAST(COALESCE(SUM(tokens_output), 0) AS BIGINT) FROM entries WHERE hold_id IS NOT NULL GROUP BY hold_id";

/// The ledger, read from its tables.
pub(crate) struct Books(Database);

/// The number of holds by their end, and their cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// All holds.
    pub holds: i64,
    /// Open holds, and rows of logs that accounts do not have yet.
    pub open: i64,
    /// Charged holds.
    pub charged: i64,
    /// Holds that a sweep has settled.
    pub expired: i64,
    pub credits: i64,
    pub overrun: i64,
}

impl Books {
    pub(crate) async fn open(url: &SecretUrl) -> Self {
        Self(Database::open(url).await.expect("a database"))
    }

    pub(crate) async fn close(self) {
        self.0.close().await;
    }

    pub(crate) fn of(gateway: &Gateway) -> Self {
        Self(gateway.app().database.clone())
    }

    pub(crate) async fn totals(&self) -> Totals {
        let row = self
            .row(
                "SELECT CAST(COUNT(*) AS BIGINT), \
                 CAST(COALESCE(SUM(CASE WHEN state = 'open' THEN 1 ELSE 0 END), 0) AS BIGINT) \
                 + (SELECT CAST(COUNT(*) AS BIGINT) FROM ledger_log), \
                 CAST(COALESCE(SUM(CASE WHEN credits > 0 THEN 1 ELSE 0 END), 0) AS BIGINT), \
                 CAST(COALESCE(SUM(CASE WHEN state = 'expired' THEN 1 ELSE 0 END), 0) AS BIGINT), \
                 CAST(COALESCE(SUM(credits), 0) AS BIGINT), \
                 CAST(COALESCE(SUM(overrun), 0) AS BIGINT) FROM (HOLDS) AS holds",
            )
            .await;
        Totals {
            holds: row.get(0),
            open: row.get(1),
            charged: row.get(2),
            expired: row.get(3),
            credits: row.get(4),
            overrun: row.get(5),
        }
    }

    /// Returns an account's credits, held or not.
    pub(crate) async fn balance(&self, account: &str) -> Credits {
        let sql =
            format!("SELECT plan_credits + top_up_credits FROM accounts WHERE id = '{account}'");
        Credits::from_micro(self.row(&sql).await.get(0))
    }

    /// Makes a user's key that of a member of [`ORGANISATION`], in a project.
    pub(crate) async fn hire(&self, user: &str) {
        for sql in [
            format!(
                "INSERT INTO users (id, kind, created_at) VALUES ('{ORGANISATION}', 'organisation', 1) \
                 ON CONFLICT DO NOTHING"
            ),
            format!(
                "INSERT INTO members (organisation_id, user_id, role, created_at) VALUES ('{ORGANISATION}', '{user}', 'owner', 1)"
            ),
            format!(
                "INSERT INTO projects (id, organisation_id, name, created_at) VALUES ('{PROJECT}', '{ORGANISATION}', 'load', 1) \
                 ON CONFLICT DO NOTHING"
            ),
            format!(
                "UPDATE api_keys SET user_id = '{ORGANISATION}', holder_id = '{user}', project_id = '{PROJECT}' \
                 WHERE user_id = '{user}'"
            ),
        ] {
            let changed = sqlx::query(AssertSqlSafe(sql))
                .execute(self.0.writer())
                .await;
            changed.expect("the database answers");
        }
    }

    /// Gives [`ORGANISATION`], and each part of it that a user's requests count for, a budget.
    pub(crate) async fn set_budgets(&self, user: &str) {
        let sql = format!("SELECT id FROM api_keys WHERE holder_id = '{user}'");
        let key = self.row(&sql).await.get(0);
        let store = LedgerStore::new(self.0.clone());
        for part in [
            BudgetPart::Organisation(ORGANISATION.to_owned()),
            BudgetPart::Project(PROJECT.to_owned()),
            BudgetPart::Member(user.to_owned()),
            BudgetPart::Model("plain".to_owned()),
            BudgetPart::Model("stream".to_owned()),
            BudgetPart::Key(key),
        ] {
            let budget = Budget {
                window: BudgetWindow::Total,
                credits: MORE_THAN_ANY_ROW,
            };
            let set = SetBudgets {
                part: Some(part),
                until: None,
                budgets: vec![budget],
                ended: Vec::new(),
            };
            let operation = Operation {
                account: AccountId(ORGANISATION.to_owned()),
                at: Millis::now(),
                action: Action::SetBudgets(Box::new(set)),
            };
            let done = commit_one(&store, operation).await;
            done.expect("the ledger takes budgets");
        }
    }

    /// Returns the charge of each settled request.
    pub(crate) async fn charges(&self) -> HashMap<String, Charge> {
        let sql = "SELECT request_id, state, credits, tokens FROM (HOLDS) AS holds";
        let sql = AssertSqlSafe(sql.replace("HOLDS", HOLDS));
        let mut snapshot = self.snapshot().await;
        let rows = sqlx::query(sql).fetch_all(&mut *snapshot).await;
        rows.expect("the database answers")
            .iter()
            .map(|row| {
                let charge = Charge {
                    is_settled: row.get::<String, _>(1) == "settled",
                    credits: Credits::from_micro(row.get(2)),
                    tokens_output: row.get(3),
                };
                (row.get(0), charge)
            })
            .collect()
    }

    /// Returns the delay of the latest settlement by a sweep after its node's lease, in milliseconds.
    pub(crate) async fn latest_expiry_ms(&self) -> i64 {
        let sql = "SELECT CAST(COALESCE(MAX(expired_at - lease_until), 0) AS BIGINT) FROM holds \
                   JOIN node_leases ON node_leases.boot_id = holds.boot_id";
        self.row(sql).await.get(0)
    }

    /// Counts a model's holds that were settled at this charge, by the upstream's count or by an estimate.
    pub(crate) async fn settled(&self, model: &str, credits: Credits, estimated: bool) -> i64 {
        let estimated = if estimated { "NOT NULL" } else { "NULL" };
        let sql = format!(
            "SELECT CAST(COUNT(*) AS BIGINT) FROM entries WHERE model = '{model}' AND kind = 'settlement' \
             AND -(plan_delta + top_up_delta) = {} AND overrun = 0 AND estimated_at IS {estimated}",
            credits.micro()
        );
        self.row(&sql).await.get(0)
    }

    /// Verifies the ledger and prints its faults.
    pub(crate) async fn are_sound(&self) -> bool {
        let violations = verify(&self.0, Millis::now()).await;
        let violations = violations.expect("the database answers");
        for violation in &violations {
            println!("{violation:?}");
        }
        violations.is_empty()
    }

    async fn row(&self, sql: &str) -> sqlx::any::AnyRow {
        let store = LedgerStore::new(self.0.clone());
        store.fold_for_reader(None).await;
        sqlx::query(AssertSqlSafe(sql.replace("HOLDS", HOLDS)))
            .fetch_one(&mut *self.snapshot().await)
            .await
            .expect("the database answers")
    }

    /// Begins a snapshot whose statements may take longer than a request's.
    async fn snapshot(&self) -> Snapshot {
        self.0.snapshot().await.expect("the database answers")
    }
}

/// The end of a request's hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Charge {
    pub is_settled: bool,
    pub credits: Credits,
    pub tokens_output: i64,
}
