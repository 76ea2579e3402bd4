//! The pages of the local processor: plain HTML and forms, without a script.

use std::fmt::Write as _;

use http::{HeaderName, HeaderValue, Response, header};
use url::Url;
use weir_ledger::Plan;
use weir_storage::clock::Millis;

use super::customers::{LocalCustomer, Session, SessionStatus};
use crate::offers::{PurchaseItem, TopUpTier, thousands};
use crate::settings::PaymentSettings;

/// A page as an HTTP response.
pub type LocalPage = Response<String>;

/// The style sheet of the pages.
pub(super) const STYLE: &str = include_str!("style.css");

const REFERRER_POLICY: HeaderName = HeaderName::from_static("referrer-policy");

pub(super) fn checkout(id: &str, session: &Session, now: Millis) -> LocalPage {
    let item = item(session);
    let title = item.map_or_else(|| session.item.clone(), PurchaseItem::title);
    let price = dollars(session.price_cents);
    let (each, gives) = match item {
        Some(PurchaseItem::Plan(plan)) => (" <small>a month</small>", {
            format!("{} credits each month", thousands(plan.monthly_credits()))
        }),
        Some(PurchaseItem::TopUp(tier)) => (
            "",
            match bonus(tier) {
                0 => "They stay until you use them".to_owned(),
                percent => format!("With a bonus of {percent}%; they stay until you use them"),
            },
        ),
        None => ("", String::new()),
    };
    let mut body = format!(
        "<p class=\"kind\">Checkout</p><h1>{title}</h1><p class=\"price\">{price}{each}</p>\
         <p class=\"gives\">{gives}</p>",
        title = escape(&title),
    );
    match session.status(now) {
        SessionStatus::Open => {
            if session.is_declined {
                body.push_str(
                    "<p class=\"notice bad\" role=\"alert\">Your card was declined. Nothing was charged; \
                     try another one.</p>",
                );
            }
            form(
                &mut body,
                "checkout",
                id,
                "pay",
                "main",
                &format!("Pay {price}"),
            );
            form(
                &mut body,
                "checkout",
                id,
                "decline",
                "",
                "Pay with a card that fails",
            );
            form(&mut body, "checkout", id, "cancel", "quiet", "Cancel");
        }
        SessionStatus::Complete => {
            body.push_str("<p class=\"notice good\">This is paid. Thank you!</p>");
            link(&mut body, &session.success_url, "Continue");
        }
        SessionStatus::Expired => {
            body.push_str("<p class=\"notice\">This page has lapsed. Nothing was charged.</p>");
            link(&mut body, &session.cancel_url, "Go back");
        }
    }
    page(
        &format!("Checkout: {title}"),
        &body,
        &[&session.success_url, &session.cancel_url],
    )
}

pub(super) fn portal(
    id: &str,
    book: &LocalCustomer,
    settings: &PaymentSettings,
    back: &str,
    now: Millis,
) -> LocalPage {
    let mut body = "<p class=\"kind\">Billing portal</p>".to_owned();
    let subscription = book.subscription.as_ref();
    match subscription.filter(|subscription| !subscription.is_over(now)) {
        None => body.push_str(
            "<h1>No plan</h1><p class=\"gives\">You have no paid plan. Credits that you have bought stay \
             yours.</p>",
        ),
        Some(subscription) => {
            let plan = subscription.plan;
            let _ = write!(
                body,
                "<h1>{title}</h1><p class=\"price\">{price} <small>a month</small></p>\
                 <p class=\"gives\">{credits} credits each month</p>",
                title = PurchaseItem::Plan(plan).title(),
                price = dollars(subscription.price_cents),
                credits = thousands(plan.monthly_credits()),
            );
            let end = day(subscription.period.end);
            let is_cancelled = subscription.cancelled_at.is_some();
            let _ = match is_cancelled {
                true => write!(body, "<p class=\"notice\">Cancelled: it ends on {end}.</p>"),
                false => write!(body, "<p class=\"notice good\">Renews on {end}.</p>"),
            };
            for other in [Plan::Guru, Plan::Pro] {
                let offer = settings.offer(PurchaseItem::Plan(other));
                if let Some(offer) = offer.filter(|_| other != plan) {
                    let price = dollars(offer.price_cents);
                    let title = PurchaseItem::Plan(other).title();
                    let label = format!("Switch to the {title}, {price}");
                    form(&mut body, "portal", id, other.name(), "main", &label);
                }
            }
            match is_cancelled {
                true => form(&mut body, "portal", id, "resume", "", "Keep the plan"),
                false => {
                    let label = "Cancel at the end of the month";
                    form(&mut body, "portal", id, "cancel", "", label);
                }
            }
            form(&mut body, "portal", id, "end", "quiet", "End it now");
        }
    }
    body.push_str("<hr>");
    link(&mut body, back, "Go back");
    page("Billing portal", &body, &[])
}

/// The page after a checkout or a portal in development mode, if no URL is configured.
pub(super) fn landing(name: &str) -> Option<LocalPage> {
    let (title, text) = match name {
        "paid" => (
            "Thank you!",
            "It is paid. Your credits are there as soon as the payment is confirmed: <code>GET /usage/me</code>.",
        ),
        "cancelled" => (
            "Not paid",
            "You have left the checkout. Nothing was charged.",
        ),
        "done" => ("All done", "You have left the billing portal."),
        _ => return None,
    };
    let body = format!(
        "<p class=\"kind\">weir</p><h1>{title}</h1><p class=\"gives\">{text}</p>\
         <p class=\"gives\">You can close this page.</p>"
    );
    Some(page(title, &body, &[]))
}

/// Renders a page. Its forms post only to weir, which may redirect to the origins of `leads_to`.
fn page(title: &str, body: &str, leads_to: &[&str]) -> LocalPage {
    let title = escape(title);
    let html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title}</title><link rel=\"stylesheet\" href=\"/dev/payments/style.css\"></head>\
         <body><main>{body}</main><footer><strong>Development</strong> This is a page of weir itself. No card is \
         asked for, and nothing is charged.</footer></body></html>"
    );
    // Browsers also apply `form-action` to redirects after a form.
    let mut policy = "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
        .to_owned();
    for url in leads_to {
        if let Ok(url) = Url::parse(url) {
            let _ = write!(policy, " {}", url.origin().ascii_serialization());
        }
    }
    let mut response = Response::new(html);
    let headers = response.headers_mut();
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, html);
    if let Ok(policy) = HeaderValue::try_from(policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    // The URL of the page authorizes payments, so it must not leave in a `Referer`.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

fn form(body: &mut String, kind: &str, id: &str, act: &str, class: &str, label: &str) {
    let _ = write!(
        body,
        "<form method=\"post\" action=\"/dev/payments/{kind}/{id}/{act}\">\
         <button class=\"{class}\">{label}</button></form>",
        id = escape(id),
        label = escape(label),
    );
}

fn link(body: &mut String, url: &str, label: &str) {
    let _ = write!(
        body,
        "<a class=\"button\" rel=\"noreferrer\" href=\"{}\">{label}</a>",
        escape(url)
    );
}

fn item(session: &Session) -> Option<PurchaseItem> {
    match session.purpose.as_str() {
        "plan" => session.item.parse().ok().map(PurchaseItem::Plan),
        _ => session.item.parse().ok().map(PurchaseItem::TopUp),
    }
}

/// The bonus of a tier over its price, in percent.
fn bonus(tier: TopUpTier) -> u8 {
    match tier {
        TopUpTier::Small => 0,
        TopUpTier::Medium => 10,
        TopUpTier::Large => 25,
    }
}

fn dollars(cents: u32) -> String {
    format!("${}.{:02}", cents / 100, cents % 100)
}

fn day(moment: Millis) -> String {
    let iso = moment.iso();
    iso.split('T').next().unwrap_or_default().to_owned()
}

/// Escapes a text for HTML, between tags or in a quoted attribute.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_do_not_become_markup() {
        let text = "<a href=\"x\" title='&'>";
        let escaped = "&lt;a href=&quot;x&quot; title=&#39;&amp;&#39;&gt;";
        assert_eq!(escape(text), escaped);
    }

    #[test]
    fn cents_are_shown_as_dollars() {
        assert_eq!(dollars(2_500), "$25.00");
        assert_eq!(dollars(5), "$0.05");
    }
}
