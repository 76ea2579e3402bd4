//! Vouchers: codes that operators create and users redeem for top-up credits.
//!
//! A redemption has three steps. One transaction writes the redemption and counts the use. Then the ledger adds the
//! credits, with an id from the voucher and the user. Then the redemption is marked as applied. If a node stops in
//! between, another one finishes ([`run`]): the ledger accepts each id once.
//!
//! **Invariant:** an account and a person redeem a voucher at most once, the person for any account, and all accounts
//! together at most `uses` times, under any concurrency on any number of nodes. Guesses of codes count by person, too.
//! **Invariant:** weir stores only a keyed hash of a code, and shows the code once.
//!
//! To change the format of codes, edit [`code`]; to change operators' settings, [`admin`].

pub mod admin;
pub mod code;
pub mod routes;
pub mod store;

use std::ops::Deref;
use std::time::Duration;

use tokio::time::Instant;
use weir_errors::{ApiError, ErrorCode};
use weir_identity::pepper::Peppers;
use weir_ledger::{
    AccountId, Action, Credits, Ledger, LedgerError, LedgerRefusal, OperationId, TopUp,
};
use weir_request::audit::{Actor, AuditEvent};
use weir_request::node::Core;
use weir_storage::clock::Millis;
use weir_storage::ids;

use self::code::VoucherCode;
use self::store::{Redemption, Voucher, VoucherClaim};
use crate::billing;

/// Unknown codes that a user may send within [`GUESS_WINDOW`].
pub const MOST_GUESSES: i64 = 10;

/// The window of the count, from the first unknown code.
pub const GUESS_WINDOW: Duration = Duration::from_secs(3_600);

/// Time limit of the ledger for a top-up.
const LEDGER_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval between a node's searches for unfinished redemptions.
const SWEEP_EVERY: Duration = Duration::from_secs(15);

/// Minimum age of a redemption that a sweep finishes: longer than the duration of its request.
const SWEEP_AFTER: Duration = Duration::from_secs(15);

/// Maximum redemptions of one sweep.
const SWEEP_MOST: i64 = 100;

/// The parts of a gateway that redemptions use. Cheap to clone.
#[derive(Clone)]
pub struct VoucherParts {
    /// The stores, the clock and the audit.
    pub core: Core,
    pub ledger: Ledger,
    pub key_peppers: Peppers,
}

impl Deref for VoucherParts {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

pub struct NewVoucher {
    /// The operators' name of the voucher.
    pub name: String,
    /// Credits for each account, more than 0.
    pub credits: Credits,
    /// Number of accounts that may redeem the voucher, from 1.
    pub uses: i64,
    /// Days until the voucher expires, from 1.
    pub days: i64,
}

/// Creates a voucher. Only this function's result contains the code.
pub async fn create(
    core: &Core,
    peppers: &Peppers,
    new: NewVoucher,
    now: Millis,
    by: &Actor,
) -> Result<(Voucher, VoucherCode), ApiError> {
    let code = VoucherCode::generate();
    let voucher = Voucher {
        id: ids::voucher_id(),
        name: new.name,
        credits: new.credits,
        uses: new.uses,
        redeemed: 0,
        created_at: now,
        created_by: by.as_str().to_owned(),
        expires_at: now.plus_days(new.days),
        revoked_at: None,
    };
    let hash = code.hash(&peppers.current().key);
    store::insert(&core.database, &voucher, hash)
        .await
        .map_err(|error| ApiError::of_database(&error, "storing a voucher"))?;
    let event = AuditEvent::VoucherCreated {
        reason: format!(
            "{}: {} credits, {} uses, until {}",
            voucher.id,
            voucher.credits,
            voucher.uses,
            voucher.expires_at.iso()
        ),
    };
    core.audit.record_by(by, event);
    Ok((voucher, code))
}

/// Revokes a voucher: no account can redeem it afterwards. Redeemed credits stay.
pub async fn revoke(core: &Core, id: &str, now: Millis, by: &Actor) -> Result<(), ApiError> {
    let failed = |error| ApiError::of_database(&error, "revoking a voucher");
    let is_new = store::revoke(&core.database, id, now)
        .await
        .map_err(failed)?;
    if is_new {
        let voucher_id = id.to_owned();
        core.audit
            .record_by(by, AuditEvent::VoucherRevoked { voucher_id });
        return Ok(());
    }
    match store::find(&core.database, id).await.map_err(failed)? {
        Some(_) => Ok(()),
        None => {
            let what = format!("Voucher {id} does not exist.");
            let error = ApiError::new(ErrorCode::NotFound, what);
            Err(error.with_param("voucher_id"))
        }
    }
}

/// Redeems a code for an account, in the name of a person.
pub async fn redeem(
    parts: &VoucherParts,
    (account, person): (&str, &str),
    code: &str,
) -> Result<Redemption, ApiError> {
    let failed = |error| ApiError::of_database(&error, "redeeming a voucher");
    let code = VoucherCode::parse(code).ok_or_else(|| {
        let what =
            "A voucher code has 25 letters and digits, such as 01234-56789-ABCDE-FGHJK-MNPQR.";
        ApiError::invalid_request("code", what)
    })?;
    let (database, now) = (&parts.database, parts.ledger.now());
    let window_ms = GUESS_WINDOW.as_millis() as i64;
    // The count precedes the look-up: concurrent guesses are limited like sequential ones.
    let (guesses, since) = store::count_guess(database, person, now, window_ms)
        .await
        .map_err(failed)?;
    if guesses > MOST_GUESSES {
        let left_ms = (since.0 + window_ms - now.0).max(1);
        return Err(too_many_guesses(parts, person, left_ms as u64));
    }
    let voucher = find_by_code(parts, &code).await.map_err(failed)?;
    let voucher = voucher.ok_or_else(unknown_code)?;
    store::forget_guess(database, person)
        .await
        .map_err(failed)?;
    let claim = store::claim(database, &voucher, (account, person), now)
        .await
        .map_err(failed)?;
    let redemption = match claim {
        VoucherClaim::Claimed(redemption) => redemption,
        VoucherClaim::Refused => {
            let current = store::find(database, &voucher.id).await.map_err(failed)?;
            return Err(not_redeemable(&current.unwrap_or(voucher), now));
        }
    };
    let is_new = apply(parts, &redemption).await?;
    match is_new && redemption.user_id == account {
        true => Ok(redemption),
        false => Err(already_redeemed(&redemption)),
    }
}

/// Finishes redemptions that a stopped node left open, for as long as it is polled. It may be dropped at any moment.
pub async fn run(parts: &VoucherParts) {
    loop {
        if let Err(error) = sweep(parts).await {
            tracing::warn!(%error, "cannot search for unfinished redemptions of vouchers");
        }
        tokio::time::sleep(SWEEP_EVERY).await;
    }
}

/// Finishes the redemptions that stopped nodes have left open so far.
pub async fn sweep(parts: &VoucherParts) -> sqlx::Result<()> {
    let before = Millis(parts.ledger.now().0 - SWEEP_AFTER.as_millis() as i64);
    for redemption in store::open_redemptions(&parts.database, before, SWEEP_MOST).await? {
        if let Err(error) = apply(parts, &redemption).await {
            let Redemption {
                voucher_id,
                user_id,
                ..
            } = &redemption;
            tracing::error!(
                code = error.code(),
                voucher_id,
                user_id,
                "a redemption waits for the next sweep"
            );
        }
    }
    Ok(())
}

async fn find_by_code(parts: &VoucherParts, code: &VoucherCode) -> sqlx::Result<Option<Voucher>> {
    for pepper in parts.key_peppers.all() {
        let found = store::find_by_hash(&parts.database, code.hash(&pepper.key)).await?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Adds the credits of a redemption in the ledger. Returns whether this call has finished it, rather than an earlier
/// one.
async fn apply(parts: &VoucherParts, redemption: &Redemption) -> Result<bool, ApiError> {
    let Redemption {
        user_id,
        voucher_id,
        credits,
        ..
    } = redemption;
    let account = AccountId(user_id.clone());
    let top_up = TopUp {
        id: OperationId(format!("voucher:{voucher_id}:{user_id}")),
        credits: *credits,
        within: None,
    };
    let deadline = Instant::now() + LEDGER_TIMEOUT;
    let done = parts
        .ledger
        .submit(&account, Action::TopUp(top_up), deadline)
        .await;
    billing::summary_cache::drop_summary(&parts.cache, &account).await;
    match done {
        Ok(_) => {}
        Err(LedgerError::Refused(LedgerRefusal::OutOfRange)) => {
            let what = "The account has the maximum of credits; weir adds the voucher's credits once the balance permits.";
            return Err(ApiError::new(ErrorCode::NotPossible, what));
        }
        Err(error) => {
            tracing::error!(%error, voucher_id, "cannot add the credits of a voucher");
            return Err(ApiError::store_unavailable());
        }
    }
    let is_new = store::mark_applied(&parts.database, redemption, parts.ledger.now())
        .await
        .map_err(|error| ApiError::of_database(&error, "redeeming a voucher"))?;
    if is_new {
        let event = AuditEvent::VoucherRedeemed {
            user_id: user_id.clone(),
            voucher_id: voucher_id.clone(),
        };
        parts.audit.record_by(&Actor::user(user_id), event);
    }
    Ok(is_new)
}

fn too_many_guesses(parts: &VoucherParts, user_id: &str, left_ms: u64) -> ApiError {
    parts.audit.record(AuditEvent::RateLimited {
        user_id: Some(user_id.to_owned()),
        scope: "voucher",
    });
    let what = format!(
        "You have sent {MOST_GUESSES} unknown voucher codes within an hour; try again later."
    );
    ApiError::new(ErrorCode::TooManyGuesses, what)
        .with_param("code")
        .with_retry_after(Duration::from_millis(left_ms))
}

fn unknown_code() -> ApiError {
    let what = "No voucher has this code; check it for typing errors.";
    ApiError::new(ErrorCode::UnknownVoucher, what).with_param("code")
}

fn not_redeemable(voucher: &Voucher, now: Millis) -> ApiError {
    let (code, what) = if voucher.revoked_at.is_some() {
        (ErrorCode::VoucherRevoked, "This voucher is revoked.")
    } else if voucher.expires_at <= now {
        (ErrorCode::VoucherExpired, "This voucher has expired.")
    } else {
        (ErrorCode::VoucherUsedUp, "This voucher has no uses left.")
    };
    ApiError::new(code, what).with_param("code").with_no_retry()
}

fn already_redeemed(redemption: &Redemption) -> ApiError {
    let what =
        "You or this account have already redeemed this voucher; its credits are in the balance.";
    ApiError::new(ErrorCode::VoucherAlreadyRedeemed, what)
        .with_param("code")
        .with_no_retry()
        .with_detail("voucher_id", redemption.voucher_id.clone())
        .with_detail("credits", redemption.credits.to_json())
        .with_detail("redeemed_at", redemption.redeemed_at.iso())
}
