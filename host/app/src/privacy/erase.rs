//! Erasure: the end of a user, and the deletion of their data.
//!
//! One transaction ends the user and blanks or deletes the small tables; from then on, every node rejects the user. The
//! large tables follow in batches. If they fail, or a request that began before writes once more,
//! [`finish_for_ever`] deletes the rest.

use std::time::Duration;

use weir_accounts::billing::summary_cache::drop_summary;
use weir_errors::{ApiError, ErrorCode};
use weir_identity::{users, web_session};
use weir_ledger::{AccountId, Credits, LedgerStore, Plan};
use weir_payments::effects::store::has_renewing_subscription;
use weir_request::audit::{Actor, AuditEvent};
use weir_request::node::Core;
use weir_storage::background::Periodic;

use super::store::{self, EndOfUser, Person};
use super::{Erasure, failed, unknown_user};

/// Interval between sweeps, and the delay of the first one after the start, because requests take precedence.
const EVERY: Duration = Duration::from_secs(3_600);
const FIRST_AFTER: Duration = Duration::from_secs(60);

/// The days after an erasure in which sweeps delete late writes.
const SWEPT_DAYS: i64 = 30;

/// A request to erase a user.
pub(super) struct ErasureRequest<'a> {
    pub(super) user_id: &'a str,
    /// Whether bought credits may be lost.
    pub(super) forfeits_credits: bool,
    /// The user, or an operator.
    pub(super) by: &'a Actor,
}

/// Erases a user. A repeat deletes remaining data.
///
/// # Errors
///
/// 404 for an unknown user, 409 if the user pays, works or is the last owner of an organisation, 503 if a store does not
/// respond.
pub(super) async fn erase(core: &Core, request: &ErasureRequest<'_>) -> Result<Erasure, ApiError> {
    let user_id = request.user_id;
    let person = store::find_person(&core.database, user_id).await;
    let person = person.map_err(failed)?.ok_or_else(unknown_user)?;
    let erased_at = match person.erased_at {
        Some(erased_at) => {
            finish(core, user_id).await.map_err(failed)?;
            erased_at
        }
        None => {
            require_settled(core, request).await?;
            users::drop_cached_keys(core, user_id).await?;
            let end = store::end(&core.database, user_id, core.clock.now()).await;
            match end.map_err(failed)? {
                EndOfUser::Done(erased_at) => {
                    clean_up(core, request, &person).await;
                    erased_at
                }
                EndOfUser::DoneBefore(erased_at) => erased_at,
                EndOfUser::Works => {
                    return Err(refused(
                        "Swarms are in progress; cancel them, or retry later.",
                    ));
                }
                EndOfUser::LastOwner { id, name } => {
                    let what = format!(
                        "The user is the last owner of the organisation {name:?} ({id}); transfer or delete it first."
                    );
                    return Err(ApiError::new(ErrorCode::LastOwner, what).with_no_retry());
                }
            }
        }
    };
    Ok(Erasure {
        user_id: user_id.to_owned(),
        erased_at: erased_at.iso(),
    })
}

/// Refuses to erase a user with a paid plan, requests in progress or bought credits.
async fn require_settled(core: &Core, request: &ErasureRequest<'_>) -> Result<(), ApiError> {
    let renews = has_renewing_subscription(&core.database, request.user_id).await;
    let renews = renews.map_err(failed)?;
    let store = LedgerStore::new(core.database.clone());
    let id = AccountId(request.user_id.to_owned());
    let mut account = store.find_account(&id).await.map_err(failed)?;
    if let Some(account) = &mut account {
        account.begin_due_period(core.clock.now());
    }
    let is_paid = account
        .as_ref()
        .is_some_and(|account| account.plan != Plan::Free && account.cancelled_at.is_none());
    if renews || is_paid {
        return Err(refused("The user has a paid plan; cancel it first."));
    }
    let Some(account) = account else {
        return Ok(());
    };
    if account.held.total() > Credits::ZERO {
        return Err(refused(
            "Requests are in progress; retry when they have ended.",
        ));
    }
    if account.balance.top_up > Credits::ZERO && !request.forfeits_credits {
        return Err(refused(
            "The user has bought credits; spend them, or set `forfeit_credits=true`.",
        ));
    }
    Ok(())
}

/// Records the erasure, and deletes the data outside of its transaction. Sweeps repeat a failed deletion.
async fn clean_up(core: &Core, request: &ErasureRequest<'_>, person: &Person) {
    let user_id = request.user_id.to_owned();
    core.audit
        .record_by(request.by, AuditEvent::UserErased { user_id });
    if let Some((issuer, subject)) = &person.name_at_issuer
        && let Err(error) = web_session::end_all(core, issuer, subject).await
    {
        tracing::warn!(
            code = error.code(),
            "cannot end the console sessions of an erased user"
        );
    }
    drop_summary(&core.cache, &AccountId(request.user_id.to_owned())).await;
    if let Err(error) = finish(core, request.user_id).await {
        tracing::warn!(%error, "cannot delete all data of an erased user yet");
    }
}

/// Deletes the data of an erased user that remains.
async fn finish(core: &Core, user_id: &str) -> sqlx::Result<()> {
    store::clear(&core.database, user_id, core.clock.now()).await?;
    store::delete_swarms(&core.database, user_id).await?;
    store::delete_contents(&core.database, user_id).await?;
    let account = AccountId(user_id.to_owned());
    let ledger = LedgerStore::new(core.database.clone());
    ledger.forget_keys_of(&account).await
}

/// Deletes remaining data of erased users for ever: of an interrupted erasure, or of a request that began before it.
pub async fn finish_for_ever(core: Core) {
    let periodic = Periodic {
        name: "delete the remaining data of erased users",
        every: EVERY,
        first_after: FIRST_AFTER,
    };
    core.background.repeat(periodic, || sweep(&core)).await;
}

/// Deletes the remaining data of all recently erased users.
pub async fn sweep(core: &Core) -> sqlx::Result<()> {
    let since = core.clock.now().plus_days(-SWEPT_DAYS);
    for user_id in store::erased_since(&core.database, since).await? {
        finish(core, &user_id).await?;
    }
    Ok(())
}

fn refused(what: &str) -> ApiError {
    ApiError::new(ErrorCode::NotPossible, what).with_no_retry()
}
