//! The references for the ledger: an [`oracle`] of its rules, and a [`simulation`] of failures of its committer.
//! `tests/it/ledger.rs` runs a little of both, `cargo torture L1 L2` a lot. Reports are compared with the requests of
//! [`Served`].

pub mod oracle;
pub mod random;
pub mod simulation;

use weir_app::App;
use weir_ledger::{
    AccountId, Action, Credits, HoldId, LedgerStore, OpenHold, Operation, RequestSource,
    RequestUsage, Settle, Unit, UsageCounts,
};
use weir_storage::Database;
use weir_storage::ids;

/// Creates users, as a sign-in does.
pub async fn create_users(database: &Database, ids: impl Iterator<Item = &str>, created_at: i64) {
    for id in ids {
        sqlx::query("INSERT INTO users (id, created_at) VALUES ($1, $2)")
            .bind(id)
            .bind(created_at)
            .execute(database.writer())
            .await
            .expect("a user can be made");
    }
}

/// A served request, as the ledger records it.
#[derive(Debug, Clone, Copy)]
pub struct Served<'a> {
    /// The user who sent the request.
    pub user: &'a str,
    /// The model.
    pub model: &'a str,
    /// The provider that responded.
    pub provider: &'a str,
    /// The charge, in micro-credits.
    pub credits: i64,
    /// The provider's cost, in nano-USD.
    pub cost: i64,
}

/// Opens a hold at this moment, before a request is served. Returns its id.
pub async fn hold(app: &App, request: Served<'_>) -> HoldId {
    let (id, open) = opening(app, request);
    commit(app, request.user, open).await;
    id
}

fn opening(app: &App, request: Served<'_>) -> (HoldId, Action) {
    let request_id = ids::request_id();
    let id = HoldId(ids::hold_of_request(&request_id).expect("an id of weir's"));
    // A run with a lease, so that no sweep ends the hold.
    let boot_id = app.ledger.boot_id().clone();
    let open = OpenHold {
        hold: id.clone(),
        amount: Credits::from_micro(request.credits),
        request_id,
        parent: None,
        source: RequestSource::ApiKey,
        source_id: None,
        parts: Vec::new(),
        top_up_only: false,
        model: request.model.to_owned(),
    };
    let open = Action::Open {
        open,
        boot_id,
        claim: None,
    };
    (id, open)
}

/// Settles a hold at this moment: ten tokens of input and twenty of output.
pub async fn settle(app: &App, hold: HoldId, request: Served<'_>) {
    commit(app, request.user, settlement(hold, request)).await;
}

fn settlement(hold: HoldId, request: Served<'_>) -> Action {
    Action::Settle(Settle {
        end: None,
        hold,
        credits: Credits::from_micro(request.credits),
        usage: RequestUsage {
            provider: request.provider.to_owned(),
            unit: Some(Unit::Tokens),
            counts: UsageCounts {
                tokens_input: 10,
                tokens_output: 20,
                provider_cost_nano_usd: request.cost,
                ..UsageCounts::default()
            },
            ..RequestUsage::default()
        },
    })
}

/// Serves a request at this moment, from hold to settlement.
pub async fn serve(app: &App, request: Served<'_>) {
    let hold = hold(app, request).await;
    settle(app, hold, request).await;
}

/// Serves as many requests in a few transactions.
pub async fn serve_many(app: &App, request: Served<'_>, mut count: usize) {
    while count > 0 {
        let batch = count.min(250);
        let (holds, opens): (Vec<_>, Vec<_>) = (0..batch).map(|_| opening(app, request)).unzip();
        commit_all(app, request.user, opens).await;
        let settlements = holds.into_iter().map(|hold| settlement(hold, request));
        commit_all(app, request.user, settlements.collect()).await;
        count -= batch;
    }
}

/// Applies an action to an account at this moment, which must succeed.
pub async fn commit(app: &App, user: &str, action: Action) {
    commit_all(app, user, vec![action]).await;
}

async fn commit_all(app: &App, user: &str, actions: Vec<Action>) {
    let at = app.clock.now();
    let operations = actions.into_iter().map(|action| Operation {
        account: AccountId(user.to_owned()),
        at,
        action,
    });
    let operations: Vec<_> = operations.collect();
    let outcomes = LedgerStore::new(app.database.clone())
        .commit(&operations)
        .await;
    let outcomes = outcomes.expect("the database answers");
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
}
