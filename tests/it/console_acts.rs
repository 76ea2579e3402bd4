//! Acts of administrators in the console: credits, plans, budgets, administrators and vouchers.

use serde_json::{Value, json};
use tests::Gateway;

use crate::console::{Browser, location};

/// A gateway with an administrator's browser, and alice's page.
async fn start() -> (Gateway, Browser, String) {
    let gateway = Gateway::start().await;
    gateway.admin("root").await;
    let root = Browser::of(&gateway, "root").await;
    let user_id = gateway.web_user_id("alice").await;
    (gateway, root, format!("/console/admin/users/{user_id}"))
}

/// Sends a form of a page, and returns the page afterwards.
async fn act(browser: &mut Browser, page: &str, form: &str, fields: &[(&str, &str)]) -> String {
    let answer = browser.post(&format!("{page}/{form}"), fields).await;
    assert_eq!(location(&answer), page, "{}", answer.text());
    browser.page(page).await
}

async fn user(gateway: &Gateway) -> Value {
    let id = gateway.web_user_id("alice").await;
    let admin = gateway.admin("root").await;
    admin.get(&format!("/admin/users/{id}")).await.json()
}

async fn kinds_of_events(gateway: &Gateway) -> String {
    gateway.app().audit.flush().await;
    let admin = gateway.admin("root").await;
    admin.get("/admin/audit").await.text()
}

#[tokio::test]
async fn credits_change_once_for_each_form_and_for_a_reason() {
    let (gateway, mut root, page) = start().await;
    let html = root.page(&page).await;
    let (_, rest) = html.split_once("name=\"id\" value=\"").expect("a form");
    let id = rest.split('"').next().expect("an id");
    let fields = [("credits", "500"), ("reason", "A gift."), ("id", id)];
    for _ in 0..2 {
        let html = act(&mut root, &page, "credits", &fields).await;
        assert!(html.contains("The credits are changed."), "{html}");
        assert_eq!(user(&gateway).await["account"]["topup_balance"], 500);
    }
    let fields = [("credits", "-200.5"), ("reason", "A correction.")];
    act(&mut root, &page, "credits", &fields).await;
    assert_eq!(user(&gateway).await["account"]["topup_balance"], 299.5);
    for (credits, reason, message) in [
        ("much", "x", "Credits: enter a number"),
        ("0", "x", "Credits: enter a number"),
        ("1", "", "1 to 500 characters"),
        ("-1000", "x", "credits"),
    ] {
        let fields = [("credits", credits), ("reason", reason)];
        let html = act(&mut root, &page, "credits", &fields).await;
        assert!(html.contains("notice bad"), "{credits}: {html}");
        assert!(html.contains(message), "{credits}: {html}");
        assert_eq!(user(&gateway).await["account"]["topup_balance"], 299.5);
    }
    assert!(kinds_of_events(&gateway).await.contains("A correction."));
}

#[tokio::test]
async fn plans_budgets_and_administrators_are_set_there() {
    let (gateway, mut root, page) = start().await;
    act(&mut root, &page, "plan", &[("plan", "pro")]).await;
    assert_eq!(user(&gateway).await["plan"], "pro");
    let html = act(&mut root, &page, "plan", &[("plan", "best")]).await;
    assert!(html.contains("Choose a plan."), "{html}");

    let fields = [("budget_credits", "50"), ("window", "day")];
    let html = act(&mut root, &page, "budget", &fields).await;
    assert!(html.contains("<th scope=\"row\">day</th>"), "{html}");
    let budgets = user(&gateway).await["account"]["budgets"].clone();
    assert_eq!(budgets[0]["credits"], 50);
    assert_eq!(budgets[0]["window"], "day");
    act(&mut root, &page, "budget", &[]).await;
    assert_eq!(user(&gateway).await["account"]["budgets"], json!([]));

    let made = [("administrator", "true")];
    act(&mut root, &page, "administrator", &made).await;
    assert!(user(&gateway).await["admin_since"].is_string());
    let mut alice = Browser::of(&gateway, "alice").await;
    alice.page("/console/admin").await;
    let ended = [("administrator", "false")];
    act(&mut root, &page, "administrator", &ended).await;
    assert_eq!(user(&gateway).await["admin_since"], Value::Null);
    assert_eq!(alice.get("/console/admin").await.status, 403);
    // An administrator cannot end the own role there.
    let own = gateway.web_user_id("root").await;
    let own = format!("/console/admin/users/{own}");
    let html = act(&mut root, &own, "administrator", &ended).await;
    assert!(html.contains("You cannot end your own role"), "{html}");
    root.page("/console/admin").await;
    let events = kinds_of_events(&gateway).await;
    for kind in ["plan", "budgets", "admin"] {
        assert!(events.contains(kind), "{kind}: {events}");
    }
}

#[tokio::test]
async fn a_voucher_is_created_shown_once_redeemed_and_revoked() {
    let (gateway, mut root, _) = start().await;
    let page = "/console/admin/vouchers";
    let html = root.page(page).await;
    assert!(html.contains("No voucher exists."), "{html}");
    let fields = [("credits", "25"), ("uses", "2"), ("name", "Fair")];
    let created = root.post(page, &fields).await;
    let made = location(&created).to_owned();
    let html = root.page(&made).await;
    let (_, rest) = html.split_once("id=\"code\">").expect("a code");
    let code = rest.split('<').next().expect("a code");
    // The code is there once.
    let again = root.get(&made).await;
    assert_eq!(location(&again), page);
    assert!(!root.page(page).await.contains(code));

    let mut alice = Browser::of(&gateway, "alice").await;
    alice
        .post("/console/money/voucher", &[("code", code)])
        .await;
    assert_eq!(user(&gateway).await["account"]["topup_balance"], 25);
    let html = root.page(page).await;
    assert!(html.contains("Fair") && html.contains("1 of 2"), "{html}");

    let id = html
        .split('<')
        .find_map(|part| part.strip_prefix("code>vou_"));
    let id = format!("vou_{}", id.expect("an id"));
    let revoked = root.post(&format!("{page}/{id}/revoke"), &[]).await;
    assert_eq!(location(&revoked), page);
    let mut bob = Browser::of(&gateway, "bob").await;
    bob.post("/console/money/voucher", &[("code", code)]).await;
    let html = root.page(page).await;
    assert!(
        html.contains("revoked") && html.contains("1 of 2"),
        "{html}"
    );

    for (field, value) in [("credits", "no"), ("uses", "x"), ("expires_in_days", "900")] {
        let mut fields = vec![(field, value)];
        if field != "credits" {
            fields.push(("credits", "1"));
        }
        let refused = root.post(page, &fields).await;
        assert_eq!(location(&refused), page);
        let html = root.page(page).await;
        assert!(html.contains("notice bad"), "{field}: {html}");
    }
    let listed = gateway.admin("root").await.get("/admin/vouchers").await;
    assert_eq!(listed.json()["vouchers"].as_array().map(Vec::len), Some(1));
}
