//! Money: the plan, credit purchases, automatic purchases, notices, and the statement.

use askama::Template;
use axum::extract::{FromRef as _, State};
use axum::response::Response;
use http::HeaderMap;
use weir_accounts::billing::BillingParts;
use weir_accounts::billing::history::UsageQuery;
use weir_accounts::billing::statement::TransactionItem;
use weir_accounts::billing::usage::{self, Balances};
use weir_accounts::payments::notices::{self, NoticeItem};
use weir_accounts::vouchers::{self, VoucherParts};
use weir_app::App;
use weir_errors::ApiError;
use weir_ledger::{Credits, Plan};
use weir_payments::auto_top_up::preferences::{self, AutoTopUp, PreferenceChange};
use weir_payments::checkout::ReturnPages;
use weir_payments::offers::{PurchaseItem, TopUpTier};
use weir_request::csv_export::preferring_csv;
use weir_request::query::ListQuery;
use weir_storage::clock::Millis;

use super::form::{ConsoleForm, FormError};
use super::format::{self, DisplayTime};
use super::frame::{Flash, Frame, MONEY};
use super::respond;
use super::session::{self, ConsoleUser};

/// Lines of the statement on a page, and notices.
const LINES: u32 = 50;
const NOTICES: u32 = 10;

#[derive(Template)]
#[template(path = "console/money.html")]
struct MoneyPage {
    frame: Frame,
    balances: Balances,
    plans: Vec<ConsoleProduct>,
    tiers: Vec<ConsoleProduct>,
    auto_top_up: AutoTopUp,
    threshold: String,
    notices: Vec<ConsoleNotice>,
    transactions: Vec<TransactionItem>,
    next: Option<String>,
    refused: FormError,
    /// The outcome with which the payment page has led back, as the browser says: `paid` or `cancelled`.
    came: Option<String>,
    now: Millis,
}

struct ConsoleProduct {
    name: &'static str,
    title: String,
    price: String,
    credits: Credits,
}

struct ConsoleNotice {
    text: String,
    is_good: bool,
    when: DisplayTime,
}

/// `GET /console/money`
pub(super) async fn show_money(
    State(app): State<App>,
    user: ConsoleUser,
    mut query: ListQuery,
) -> Result<Response, ApiError> {
    let before = query.text("before")?.unwrap_or_default();
    let came = query.text("came")?;
    query.finish()?;
    let mut page = page(&app, &user, before, FormError::default()).await?;
    page.came = came;
    user.show(&page)
}

/// `GET /console/money/statement.csv`: returns the complete statement as a file.
pub(super) async fn download_statement(
    State(app): State<App>,
    user: ConsoleUser,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = UsageQuery {
        database: &app.database,
        account: user.account(),
        now: app.ledger.now(),
    };
    asked
        .transactions(&app.exports, &preferring_csv(), query)
        .await
}

/// `POST /console/money/plan`: redirects the browser to the payment page of a plan.
pub(super) async fn buy_plan(
    State(app): State<App>,
    headers: HeaderMap,
    ConsoleForm { user, fields }: ConsoleForm,
) -> Result<Response, ApiError> {
    let back = Some(back(&app, &headers)?);
    let url = app
        .payments
        .plan_url(&user.caller.account.0, fields.text("plan"), back)
        .await;
    leave_to(&app, &user, url).await
}

/// `POST /console/money/top-up`: redirects the browser to the payment page for credits.
pub(super) async fn buy_credits(
    State(app): State<App>,
    headers: HeaderMap,
    ConsoleForm { user, fields }: ConsoleForm,
) -> Result<Response, ApiError> {
    let back = Some(back(&app, &headers)?);
    let url = app
        .payments
        .tier_url(&user.caller.account.0, fields.text("tier"), back)
        .await;
    leave_to(&app, &user, url).await
}

/// `POST /console/money/portal`: redirects the browser to the page that manages plan, cards and invoices.
pub(super) async fn open_portal(
    State(app): State<App>,
    headers: HeaderMap,
    ConsoleForm { user, .. }: ConsoleForm,
) -> Result<Response, ApiError> {
    let back = session::own_url(&headers, &app, MONEY.path)?;
    let url = app
        .payments
        .portal(&user.caller.account.0, Some(back))
        .await;
    leave_to(&app, &user, url.map_err(ApiError::from)).await
}

/// Returns the pages to which the payment page leads back.
fn back(app: &App, headers: &HeaderMap) -> Result<ReturnPages, ApiError> {
    let page = |came: &str| session::own_url(headers, app, &format!("{}?came={came}", MONEY.path));
    Ok(ReturnPages {
        paid: page("paid")?,
        cancelled: page("cancelled")?,
    })
}

/// `POST /console/money/auto-top-up`
pub(super) async fn set_auto_top_up(
    State(app): State<App>,
    ConsoleForm { user, fields }: ConsoleForm,
) -> Result<Response, ApiError> {
    let changed = async {
        let threshold = Credits::parse(fields.text("threshold")).ok_or_else(|| {
            let what = "Enter a number of credits.";
            ApiError::invalid_request("threshold", what)
        })?;
        let change = PreferenceChange {
            enabled: Some(fields.is_checked("enabled")),
            tier: Some(fields.text("tier").to_owned()),
            threshold: Some(threshold),
        };
        preferences::change(&app.payments, &user.caller.account.0, change).await
    };
    match changed.await {
        Ok(wish) => {
            let done = match wish.enabled {
                true => "weir buys credits automatically when the balance is low.",
                false => "Automatic purchases are off.",
            };
            Ok(user.go(MONEY.path, Flash::good(done)))
        }
        Err(error) => refuse(&app, &user, error).await,
    }
}

/// `POST /console/money/voucher`: redeems a voucher's code.
pub(super) async fn redeem_voucher(
    State(app): State<App>,
    ConsoleForm { user, fields }: ConsoleForm,
) -> Result<Response, ApiError> {
    match vouchers::redeem(
        &VoucherParts::from_ref(&app),
        (&user.caller.account.0, &user.caller.user_id),
        fields.text("code"),
    )
    .await
    {
        Ok(redeemed) => {
            let done = format!(
                "The voucher gave you {} credits.",
                format::credits(redeemed.credits)
            );
            Ok(user.go(MONEY.path, Flash::good(done)))
        }
        Err(error) => refuse(&app, &user, error).await,
    }
}

async fn leave_to(
    app: &App,
    user: &ConsoleUser,
    url: Result<String, ApiError>,
) -> Result<Response, ApiError> {
    match url {
        Ok(url) => respond::onward(&url),
        Err(error) => refuse(app, user, error).await,
    }
}

/// Shows an error on the page, including an unavailable payment processor, because the rest of the page works without
/// it.
async fn refuse(app: &App, user: &ConsoleUser, error: ApiError) -> Result<Response, ApiError> {
    let page = page(app, user, String::new(), FormError::by(&error)).await?;
    user.show_refused(error, &page)
}

async fn page(
    app: &App,
    user: &ConsoleUser,
    before: String,
    refused: FormError,
) -> Result<MoneyPage, ApiError> {
    let now = app.ledger.now();
    let account = user.account();
    let balances = usage::sync(&BillingParts::from_ref(app), &account).await?;
    let asked = UsageQuery {
        database: &app.database,
        account,
        now,
    };
    let list = asked
        .list_transactions(ListQuery::filled([
            ("before", before),
            ("limit", LINES.to_string()),
        ]))
        .await?;
    let notices = ListQuery::from([("limit", NOTICES.to_string())]);
    let notices = notices::list(&app.database, &user.caller.account.0, notices).await?;
    let auto_top_up = preferences::show(&app.payments, &user.caller.account.0).await?;
    let offer = |item: PurchaseItem| {
        let offer = app.payments.settings.offer(item)?;
        let cents = offer.price_cents;
        Some(ConsoleProduct {
            name: item.name(),
            title: item.title(),
            price: format!("${}.{:02}", cents / 100, cents % 100),
            credits: item.credits(),
        })
    };
    let plans = [Plan::Guru, Plan::Pro].map(PurchaseItem::Plan);
    let tiers = TopUpTier::ALL.map(PurchaseItem::TopUp);
    Ok(MoneyPage {
        frame: user.frame("Money", MONEY),
        balances,
        plans: plans.into_iter().filter_map(offer).collect(),
        tiers: tiers.into_iter().filter_map(offer).collect(),
        threshold: auto_top_up.threshold.to_string(),
        auto_top_up,
        notices: notices
            .notices
            .iter()
            .map(|notice| read_notice(notice, now))
            .collect(),
        transactions: list.transactions,
        next: list.next,
        refused,
        came: None,
        now,
    })
}

fn read_notice(notice: &NoticeItem, now: Millis) -> ConsoleNotice {
    let (text, is_good) = match &*notice.kind {
        "trial_ending" => ("The trial of your plan ends soon.", true),
        "payment_failed" => ("A payment has failed.", false),
        "auto_top_up_done" => (
            "Credits were bought automatically because the balance was low.",
            true,
        ),
        "auto_top_up_failed" => (
            "The automatic purchase of credits has failed; the balance is low.",
            false,
        ),
        "low_balance" => ("The balance is low.", false),
        "budget_alert" => ("A budget is nearly or completely used.", false),
        other => (other, true),
    };
    ConsoleNotice {
        text: text.to_owned(),
        is_good,
        when: DisplayTime::read(&notice.created_at, now),
    }
}
