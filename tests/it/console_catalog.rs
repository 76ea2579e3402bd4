//! Administrators change the catalog in the console: each change is reviewed, applied and undone.

use serde_json::json;
use tests::{Gateway, Reply, Upstream};

use crate::console::{Browser, location, page};

const HISTORY: &str = "/console/admin/catalog/history";

/// A browser of an administrator.
async fn administrator(gateway: &Gateway) -> Browser {
    gateway.admin("root").await;
    Browser::of(gateway, "root").await
}

/// Returns the value of a hidden field.
fn hidden(html: &str, name: &str) -> String {
    let (_, rest) = html
        .split_once(&format!("name=\"{name}\" value=\""))
        .unwrap_or_else(|| panic!("no {name}: {html}"));
    let value = rest.split('"').next().expect("a value");
    value.replace("&#34;", "\"").replace("&#38;", "&")
}

/// Sends a form, which must lead to the review of a change. Returns the review.
async fn review(browser: &mut Browser, path: &str, fields: &[(&str, &str)]) -> String {
    let base_version = hidden(&browser.page(path).await, "base_version");
    let mut fields = fields.to_vec();
    fields.push(("base_version", &base_version));
    let answer = browser.post(path, &fields).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    page(&answer)
}

/// Confirms a reviewed change. Returns the history.
async fn confirm(browser: &mut Browser, review: &str) -> String {
    let fields =
        ["base_version", "contents", "summary"].map(|name| (name, hidden_or_input(review, name)));
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| (*name, &**value))
        .collect();
    let answer = browser.post("/console/admin/catalog/apply", &fields).await;
    assert_eq!(location(&answer), HISTORY);
    browser.page(HISTORY).await
}

fn hidden_or_input(html: &str, name: &str) -> String {
    match name {
        "summary" => {
            let (_, rest) = html.split_once("name=\"summary\"").expect("the field");
            let (_, rest) = rest.split_once(" value=\"").expect("a value");
            rest.split('"').next().expect("a value").to_owned()
        }
        name => hidden(html, name),
    }
}

/// Sends the form of a button in the history.
async fn undo(browser: &mut Browser, version: &str) -> String {
    let base_version = hidden(&browser.page(HISTORY).await, "base_version");
    let fields = [("base_version", &*base_version), ("version", version)];
    let answer = browser
        .post("/console/admin/catalog/restore", &fields)
        .await;
    assert_eq!(location(&answer), HISTORY);
    browser.page(HISTORY).await
}

async fn charge(gateway: &Gateway, model: &str) -> f64 {
    let answer = gateway.chat(model, "hello").await;
    let credits = answer.json()["usage"]["credits"].as_f64();
    credits.unwrap_or_else(|| panic!("{}", answer.text()))
}

fn is_times(charge: f64, factor: f64, earlier: f64) -> bool {
    (charge - factor * earlier).abs() < 1e-6
}

#[tokio::test]
async fn a_price_of_zero_has_a_checkbox_in_the_review() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    let mut root = administrator(&gateway).await;
    let path = "/console/admin/models/scripted";
    let fields = [
        ("action", "price"),
        ("price_model_input", "0"),
        ("price_model_output", "2"),
        ("price_model_cache_read", ""),
    ];
    let reviewed = review(&mut root, path, &fields).await;
    assert!(
        reviewed
            .contains("These prices become 0: scripted: upstreams[scripted/scripted].price.input"),
        "{reviewed}"
    );
    // A browser does not send the form without the choice.
    let history = confirm(&mut root, &reviewed).await;
    assert!(history.contains("notice bad"), "{history}");
    let (base_version, contents) = (
        hidden(&reviewed, "base_version"),
        hidden(&reviewed, "contents"),
    );
    let fields = [
        ("base_version", &*base_version),
        ("contents", &*contents),
        ("confirm_free", "true"),
    ];
    let answer = root.post("/console/admin/catalog/apply", &fields).await;
    assert_eq!(location(&answer), HISTORY);
    let history = root.page(HISTORY).await;
    assert!(history.contains("Version 1 is active"), "{history}");
    let history = undo(&mut root, "0").await;
    assert!(history.contains("Version 2 is active"), "{history}");
    // To make the price 0 again leads to the review.
    let fields = [("base_version", "2"), ("version", "1")];
    let answer = root.post("/console/admin/catalog/restore", &fields).await;
    assert!(page(&answer).contains("These prices become 0"));
}

#[tokio::test]
async fn a_price_is_edited_reviewed_confirmed_and_undone() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("hi", 10, 10));
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables(
            "[models.own]\ncontext_window = 1000\nmax_output_tokens = 100\ndefault_output_tokens = 10\n\
             upstreams = [{ provider = \"scripted\", price = { input = 1, output = 2, search = 3 } }]\n",
        )
        .start()
        .await;
    let mut root = administrator(&gateway).await;
    let cheap = charge(&gateway, "scripted").await;
    let models = root.page("/console/admin/models").await;
    let path = "/console/admin/models/scripted";
    assert!(models.contains(&format!("href=\"{path}\"")), "{models}");
    let html = root.page(path).await;
    assert!(
        html.contains("name=\"price_model_input\" inputmode=\"decimal\" value=\"1\""),
        "{html}"
    );
    let fields = [
        ("action", "price"),
        ("price_model_input", "10"),
        ("price_model_output", "20"),
        ("price_model_cache_read", ""),
    ];
    let reviewed = review(&mut root, path, &fields).await;
    for said in [
        "Changed model scripted",
        "1.0 USD per million tokens",
        "20.0 USD per million tokens",
        "Confirm",
    ] {
        assert!(reviewed.contains(said), "{said}: {reviewed}");
    }
    assert!(is_times(charge(&gateway, "scripted").await, 1.0, cheap));
    let history = confirm(&mut root, &reviewed).await;
    let root_id = gateway.web_user_id("root").await;
    for said in [
        "Version 1 is active",
        &*format!("/console/admin/users/{root_id}"),
        "changes scripted: ",
        "Undo",
        "20.0 USD per million tokens",
    ] {
        assert!(history.contains(said), "{said}: {history}");
    }
    assert!(is_times(charge(&gateway, "scripted").await, 10.0, cheap));
    let audit = root.page("/console/admin/audit?kind=catalog.changed").await;
    assert!(
        audit.contains("version 1: changes scripted") && audit.contains(&root_id),
        "{audit}"
    );

    // The form was open before the change.
    let outdated = [
        ("action", "price"),
        ("base_version", "0"),
        ("price_model_input", "3"),
    ];
    let answer = root.post(path, &outdated).await;
    assert_eq!(location(&answer), path);
    assert!(
        root.page(path)
            .await
            .contains("Another administrator has changed the catalog")
    );
    // So was the review.
    let fields = [("base_version", "0"), ("contents", "{}"), ("summary", "")];
    let answer = root.post("/console/admin/catalog/apply", &fields).await;
    assert_eq!(location(&answer), HISTORY);
    assert!(root.page(HISTORY).await.contains("notice bad"));

    let history = undo(&mut root, "0").await;
    assert!(history.contains("Version 2 is active"), "{history}");
    assert!(is_times(charge(&gateway, "scripted").await, 1.0, cheap));
    let history = undo(&mut root, "1").await;
    assert!(history.contains("undoes version 2: "), "{history}");
    assert!(is_times(charge(&gateway, "scripted").await, 10.0, cheap));

    // A price that an upstream has of its own, with a price that the form removes.
    let path = "/console/admin/models/own";
    let fields = [
        ("action", "price"),
        ("price_0_input", "5"),
        ("price_0_output", "2"),
        ("price_0_search", ""),
    ];
    let reviewed = review(&mut root, path, &fields).await;
    for said in [
        "upstreams[scripted/own].price.input",
        "5.0 USD per million tokens",
        "3.0 USD per search",
        "0.0 USD per search",
    ] {
        assert!(reviewed.contains(said), "{said}: {reviewed}");
    }
    for (fields, said) in [
        (
            [("action", "price"), ("price_0_input", "much")],
            "Enter a number",
        ),
        (
            [("action", "price"), ("price_0_input", "-1")],
            "price in USD",
        ),
    ] {
        let base_version = hidden(&root.page(path).await, "base_version");
        let fields = [&fields[..], &[("base_version", &*base_version)]].concat();
        let answer = root.post(path, &fields).await;
        assert_eq!(location(&answer), path);
        let html = root.page(path).await;
        assert!(html.contains("notice bad") && html.contains(said), "{html}");
    }
}

#[tokio::test]
async fn a_provider_is_taken_out_from_the_home_page_and_put_back() {
    let (p, q) = (Upstream::start().await, Upstream::start().await);
    p.always(Reply::chat("from p"));
    q.always(Reply::chat("from q"));
    let gateway = Gateway::builder()
        .provider("p", "openai", Some(&p))
        .provider("q", "openai", Some(&q))
        .model("both", &["p", "q"])
        .model("only", &["p"])
        .start()
        .await;
    assert_eq!(gateway.chat("both", "hello").await.content(), "from p");
    let mut root = administrator(&gateway).await;
    let path = "/console/admin/providers/p";
    let home = root.page("/console/admin").await;
    assert!(home.contains(&format!("href=\"{path}\"")), "{home}");
    let html = root.page(path).await;
    assert!(
        html.contains("Take provider out") && html.contains("models/only"),
        "{html}"
    );
    let reviewed = review(&mut root, path, &[("action", "disable")]).await;
    assert!(reviewed.contains("No requests go to p."), "{reviewed}");
    assert!(
        reviewed.contains("Clients can no longer request only."),
        "{reviewed}"
    );
    let before = p.count();
    confirm(&mut root, &reviewed).await;
    assert_eq!(gateway.chat("both", "hello").await.content(), "from q");
    gateway
        .chat("only", "hello")
        .await
        .error(503, "UPSTREAM_UNAVAILABLE");
    assert_eq!(p.count(), before);
    let html = root.page(path).await;
    assert!(
        html.contains("Put provider back") && html.contains("it is disabled"),
        "{html}"
    );
    let models = root.page("/console/admin/models").await;
    assert!(
        models.contains("The provider p is left out: it is disabled."),
        "{models}"
    );
    let reviewed = review(&mut root, path, &[("action", "enable")]).await;
    assert!(reviewed.contains("Requests go to p again."), "{reviewed}");
    confirm(&mut root, &reviewed).await;
    assert_eq!(gateway.chat("both", "hello").await.content(), "from p");
    let layer = gateway
        .admin("root")
        .await
        .get("/admin/catalog/layer")
        .await;
    assert_eq!(layer.json()["contents"], json!({}));
}

#[tokio::test]
async fn a_model_is_edited_taken_away_and_put_back_and_the_layer_is_a_text() {
    let (p, q) = (Upstream::start().await, Upstream::start().await);
    p.always(Reply::chat("from p"));
    q.always(Reply::chat("from q"));
    let gateway = Gateway::builder()
        .provider("p", "openai", Some(&p))
        .provider("q", "openai", Some(&q))
        .model("both", &["p", "q"])
        .start()
        .await;
    let mut root = administrator(&gateway).await;
    let path = "/console/admin/models/both";
    let edited = [
        ("action", "model"),
        ("name", "Both of them"),
        ("aliases", "each, either"),
        ("ends_on", "2031-01-31"),
        ("route", "weight"),
        ("context_window", "8000000"),
        ("max_output_tokens", "2000"),
        ("default_output_tokens", "1000"),
        ("supports_vision", "true"),
        ("place_0", "2"),
        ("provider_0", "p"),
        ("place_1", "1"),
        ("provider_1", "q"),
        ("upstream_model_1", "theirs"),
        ("provider_2", ""),
    ];
    let reviewed = review(&mut root, path, &edited).await;
    for said in [
        "Both of them",
        "each, either",
        "2031-01-31",
        "2000 tokens",
        "p/both, q/both",
        "q/theirs, p/both",
    ] {
        assert!(reviewed.contains(said), "{said}: {reviewed}");
    }
    confirm(&mut root, &reviewed).await;
    assert_eq!(gateway.chat("either", "hello").await.content(), "from q");
    assert_eq!(q.next_request().await.json()["model"], "theirs");
    let layer = gateway
        .admin("root")
        .await
        .get("/admin/catalog/layer")
        .await;
    let contents = json!({ "models": { "both": {
        "name": "Both of them", "aliases": ["each", "either"], "ends_on": "2031-01-31", "max_output_tokens": 2000,
        "supports_tools": false, "upstreams": [{ "provider": "q", "model": "theirs" }, { "provider": "p" }],
    } } });
    assert_eq!(layer.json()["contents"], contents);

    let reviewed = review(&mut root, path, &[("action", "disable")]).await;
    assert!(
        reviewed.contains("Clients can no longer request both."),
        "{reviewed}"
    );
    confirm(&mut root, &reviewed).await;
    gateway
        .chat("both", "hello")
        .await
        .error(400, "UNKNOWN_MODEL");
    let html = root.page(path).await;
    assert!(html.contains("Put model back"), "{html}");
    let models = root.page("/console/admin/models").await;
    assert!(models.contains(&format!("href=\"{path}\"")), "{models}");
    let reviewed = review(&mut root, path, &[("action", "enable")]).await;
    confirm(&mut root, &reviewed).await;
    assert_eq!(gateway.chat("both", "hello").await.content(), "from q");

    let path = "/console/admin/catalog";
    let html = root.page(path).await;
    assert!(
        html.contains("[models.both]") && html.contains("[[models.both.upstreams]]"),
        "{html}"
    );
    let base_version = hidden(&html, "base_version");
    for (text, said) in [
        ("[models", "no valid TOML"),
        (
            "[providers.p]\r\nbase_url = \"http://127.0.0.1:9\"",
            "belongs to the configuration file",
        ),
    ] {
        let answer = root
            .post(path, &[("base_version", &base_version), ("text", text)])
            .await;
        assert_eq!(answer.status, 400);
        let html = page(&answer);
        assert!(html.contains(said) && html.contains(&text[..7]), "{html}");
    }
    let text = "[models.both]\r\nmax_output_tokens = 4000\r\n";
    let answer = root
        .post(path, &[("base_version", "0"), ("text", text)])
        .await;
    assert_eq!(answer.status, 409);
    assert!(page(&answer).contains("max_output_tokens = 4000"));
    let reviewed = review(&mut root, path, &[("text", text)]).await;
    assert!(reviewed.contains("4000 tokens"), "{reviewed}");
    confirm(&mut root, &reviewed).await;
    assert_eq!(gateway.chat("both", "hello").await.content(), "from p");
}
