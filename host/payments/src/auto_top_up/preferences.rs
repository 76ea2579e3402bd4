//! Auto top-up preferences of users: read and change them.

use http::StatusCode;
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::{AccountId, Action, Credits, LedgerError, LedgerRefusal, Plan};

use super::CREDIT_TIMEOUT;
use crate::charges::{self, MOST_A_DAY, PastCharge, TopUpPreferences};
use crate::offers::TopUpTier;
use crate::payments::Payments;

/// The highest threshold that a user can set.
const MAX_THRESHOLD: Credits = Credits::whole(1_000_000);

/// The highest default threshold.
const MAX_DEFAULT_THRESHOLD: Credits = Credits::whole(500);

/// The default threshold is the monthly credits of the plan, divided by this.
const DEFAULT_THRESHOLD_PART: i64 = 5;

/// Fields that a user changes; `None` keeps the present value.
#[derive(Debug, Clone, Default)]
pub struct PreferenceChange {
    /// Whether weir buys credits automatically.
    pub enabled: Option<bool>,
    /// Name of the tier.
    pub tier: Option<String>,
    /// weir buys below this balance.
    pub threshold: Option<Credits>,
}

/// The auto top-up preferences of a user, and the last charge.
#[derive(Debug, Serialize, ToSchema)]
pub struct AutoTopUp {
    /// Whether weir buys credits automatically.
    pub enabled: bool,
    /// `small`, `medium` or `large`.
    pub tier: &'static str,
    /// weir buys below this balance.
    #[schema(value_type = f64)]
    pub threshold: Credits,
    /// Number of charges that weir can still make within 24 hours.
    pub charges_left_today: i64,
    /// End of the pause after a failed charge.
    pub cooldown_until: Option<String>,
    /// The last charge.
    pub last_charge: Option<AutoTopUpCharge>,
}

/// A charge.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Charge)]
pub struct AutoTopUpCharge {
    /// The tier.
    pub tier: String,
    /// Start of the charge.
    pub created_at: String,
    /// `succeeded`, `failed`, `abandoned`, or `open` until the result is known.
    pub outcome: String,
    /// The processor's code of the failure.
    pub error: Option<String>,
}

pub async fn show(payments: &Payments, user_id: &str) -> Result<AutoTopUp, ApiError> {
    let now = payments.ledger.now();
    // The charge comes first: weir stores a cooldown before it stores that the charge failed.
    let (last, counted) = charges::find_past(&payments.database, user_id, now)
        .await
        .map_err(|error| ApiError::of_database(&error, "asked for charges"))?;
    let wish = match find_wish(payments, user_id).await? {
        Some(wish) => wish,
        None => TopUpPreferences {
            enabled: false,
            tier: TopUpTier::Small,
            threshold: find_default_threshold(payments, user_id).await?,
            cooldown_until: None,
        },
    };
    let cooldown_until = wish.cooldown_until.filter(|until| *until > now);
    Ok(AutoTopUp {
        enabled: wish.enabled,
        tier: wish.tier.name(),
        threshold: wish.threshold,
        charges_left_today: (MOST_A_DAY - counted).max(0),
        cooldown_until: cooldown_until.map(|until| until.iso()),
        last_charge: last.map(AutoTopUpCharge::from),
    })
}

impl From<PastCharge> for AutoTopUpCharge {
    fn from(past: PastCharge) -> Self {
        Self {
            tier: past.tier,
            created_at: past.created_at.iso(),
            outcome: past.outcome.unwrap_or_else(|| "open".to_owned()),
            error: past.error,
        }
    }
}

/// Changes the preferences of a user, and returns them.
pub async fn change(
    payments: &Payments,
    user_id: &str,
    change: PreferenceChange,
) -> Result<AutoTopUp, ApiError> {
    let before = find_wish(payments, user_id).await?;
    let wish = merge(payments, user_id, before, change).await?;
    if wish.enabled {
        require_customer(payments, user_id).await?;
    }
    charges::put_wish(&payments.database, user_id, &wish, payments.ledger.now())
        .await
        .map_err(|error| ApiError::of_database(&error, "keeping what a user wants bought"))?;
    // Also if auto top-up is off: the user still gets a notice of a low balance.
    watch(payments, user_id, wish.threshold).await?;
    show(payments, user_id).await
}

async fn merge(
    payments: &Payments,
    user_id: &str,
    before: Option<TopUpPreferences>,
    change: PreferenceChange,
) -> Result<TopUpPreferences, ApiError> {
    let tier = match &change.tier {
        Some(name) => name.parse().map_err(|_| {
            ApiError::new(ErrorCode::InvalidTier, "A tier is small, medium or large.")
                .with_param("tier")
        })?,
        None => before.as_ref().map_or(TopUpTier::Small, |wish| wish.tier),
    };
    let named = change.threshold;
    let threshold = match named.or(before.as_ref().map(|wish| wish.threshold)) {
        Some(threshold) => threshold,
        None => find_default_threshold(payments, user_id).await?,
    };
    if threshold <= Credits::ZERO || threshold > MAX_THRESHOLD {
        return Err(ApiError::invalid_request(
            "threshold",
            format!("A threshold is more than 0 and at most {MAX_THRESHOLD} credits."),
        ));
    }
    let enabled = change.enabled;
    Ok(TopUpPreferences {
        enabled: enabled.unwrap_or(before.is_some_and(|wish| wish.enabled)),
        tier,
        threshold,
        cooldown_until: None,
    })
}

async fn require_customer(payments: &Payments, user_id: &str) -> Result<(), ApiError> {
    let customer = payments.store.customer_of(user_id).await;
    let customer =
        customer.map_err(|error| ApiError::of_database(&error, "asked for a payment customer"))?;
    match customer {
        Some(_) => Ok(()),
        None => Err(ApiError::new(
            ErrorCode::NoPaymentCustomer,
            "There is no card to charge yet: buy a plan or credits once, then turn auto top-up on.",
        )
        .with_status(StatusCode::CONFLICT)),
    }
}

async fn watch(payments: &Payments, user_id: &str, below: Credits) -> Result<(), ApiError> {
    let watch = Action::Watch { below: Some(below) };
    let account = AccountId(user_id.to_owned());
    let deadline = Instant::now() + CREDIT_TIMEOUT;
    match payments.ledger.submit(&account, watch, deadline).await {
        Ok(_) => Ok(()),
        Err(LedgerError::Refused(LedgerRefusal::UnknownAccount)) => Err(ApiError::internal()),
        Err(error) => {
            tracing::error!(%error, "watching an account");
            Err(ApiError::store_unavailable())
        }
    }
}

async fn find_default_threshold(payments: &Payments, user_id: &str) -> Result<Credits, ApiError> {
    let account = AccountId(user_id.to_owned());
    let account = payments.ledger.find_account(&account).await;
    let account =
        account.map_err(|error| ApiError::of_database(&error, "asked for a user's plan"))?;
    let plan = account.map_or(Plan::Free, |account| account.plan);
    Ok(default_threshold(plan))
}

/// The threshold of users who have set none: a fifth of the monthly credits of the plan, at most 500.
fn default_threshold(plan: Plan) -> Credits {
    let part = plan.monthly_credits().micro() / DEFAULT_THRESHOLD_PART;
    Credits::from_micro(part).min(MAX_DEFAULT_THRESHOLD)
}

async fn find_wish(
    payments: &Payments,
    user_id: &str,
) -> Result<Option<TopUpPreferences>, ApiError> {
    charges::find_wish(&payments.database, user_id)
        .await
        .map_err(|error| ApiError::of_database(&error, "asked what a user wants bought"))
}
