//! The console's pages for administrators: access, effects and audit events.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tests::guests::{bundled, with_custom_section};
use tests::payments::{Payer, Processor};
use tests::{Client, Gateway, Reply, Upstream, patiently};
use weir_identity::lockout::LOCKOUT;

use crate::console::{Browser, location, page};

const PAGES: [&str; 13] = [
    "/console/admin",
    "/console/admin/requests",
    "/console/admin/models",
    "/console/admin/catalog",
    "/console/admin/catalog/history",
    "/console/admin/swarms",
    "/console/admin/tools",
    "/console/admin/vouchers",
    "/console/admin/users",
    "/console/admin/plugins",
    "/console/admin/lockouts",
    "/console/admin/webhooks",
    "/console/admin/audit",
];

/// A browser of an administrator.
async fn administrator(gateway: &Gateway) -> Browser {
    gateway.admin("root").await;
    Browser::of(gateway, "root").await
}

/// Returns the last audit event of a kind.
async fn audited(gateway: &Gateway, kind: &str) -> Value {
    let admin = gateway.admin("root").await;
    let path = format!("/admin/audit?kind={kind}&limit=1");
    admin.get(&path).await.json()["events"][0].clone()
}

/// Installs another component in the slot `demo`, and returns its digest.
async fn install(operator: &Client) -> String {
    let component = with_custom_section(&bundled("demo"), 1);
    let installed = operator
        .put_component("/admin/plugins/demo", &component)
        .await;
    assert_eq!(installed.status, 201, "{}", installed.text());
    let digest = installed.json()["digest"].clone();
    digest.as_str().expect("a digest").to_owned()
}

/// Simulates failures from this address; development mode responds to no other machine.
async fn shut_out(gateway: &Gateway, address: &str) {
    for _ in 0..LOCKOUT.failures.get() {
        let counted = gateway.app().cache.count_failure(address, LOCKOUT).await;
        counted.expect("the cache answers");
    }
}

#[tokio::test]
async fn administrators_pages_are_theirs_alone() {
    let gateway = Gateway::start().await;
    let alice_id = gateway.web_user_id("alice").await;
    let one = [
        format!("/console/admin/users/{alice_id}"),
        "/console/admin/plugins/demo".to_owned(),
        "/console/admin/models/demo".to_owned(),
        "/console/admin/providers/demo".to_owned(),
    ];
    let all = || PAGES.into_iter().chain(one.iter().map(String::as_str));
    let mut alice = Browser::of(&gateway, "alice").await;
    assert!(!alice.page("/console").await.contains("/console/admin"));
    for path in all() {
        let answer = alice.get(path).await;
        assert_eq!(answer.status, 403, "{path}");
        let nobody = Browser::new(&gateway).get(path).await;
        let sign_in = location(&nobody);
        assert!(sign_in.starts_with("/console/sign-in"), "{path}: {sign_in}");
    }
    let key = json!({ "user_id": alice_id, "name": "hers" });
    let operator = gateway.admin("root").await;
    let key = operator.post("/admin/keys", &key).await.json();
    let (key, key_id) = (&key["api_key"], &key["key_id"]);
    let client = gateway.stranger().with_key(key.as_str().expect("a key"));
    let digest = &*install(&operator).await;
    let address = "203.0.113.8";
    shut_out(&gateway, address).await;
    let acts = [
        format!("/console/admin/users/{alice_id}/disable"),
        format!(
            "/console/admin/users/{alice_id}/keys/{}/revoke",
            key_id.as_str().expect("an id")
        ),
        format!("/console/admin/users/{alice_id}/enable"),
        format!("/console/admin/users/{alice_id}/credits"),
        format!("/console/admin/users/{alice_id}/plan"),
        format!("/console/admin/users/{alice_id}/budget"),
        format!("/console/admin/users/{alice_id}/administrator"),
        "/console/admin/vouchers".to_owned(),
        "/console/admin/vouchers/vou_0/revoke".to_owned(),
        "/console/admin/swarms/x/cancel".to_owned(),
        "/console/admin/tools/a/b/approve".to_owned(),
        "/console/admin/plugins/demo/activate".to_owned(),
        "/console/admin/plugins/demo/rollback".to_owned(),
        format!("/console/admin/lockouts/{address}/clear"),
        "/console/admin/webhooks/evt_0/retry".to_owned(),
        "/console/admin/models/demo".to_owned(),
        "/console/admin/providers/demo".to_owned(),
        "/console/admin/catalog".to_owned(),
        "/console/admin/catalog/apply".to_owned(),
        "/console/admin/catalog/restore".to_owned(),
    ];
    let standing = async || {
        let (slot, lockouts) = ("/admin/plugins/demo", "/admin/lockouts");
        let slot = operator.get(slot).await.json()["active"].clone();
        let lockouts = operator.get(lockouts).await.json();
        (
            client.get("/models").await.status,
            slot,
            lockouts["lockouts"][0]["address"].clone(),
        )
    };
    let before = standing().await;
    assert_eq!((before.0.as_u16(), &before.2), (200, &json!(address)));
    assert_ne!(before.1, digest);
    for path in &acts {
        let answer = alice.post(path, &[("digest", digest)]).await;
        assert_eq!(answer.status, 403, "{path}: {}", answer.text());
    }
    let mut root = administrator(&gateway).await;
    for path in all() {
        let html = root.page(path).await;
        assert!(html.contains("Administration"), "{path}: {html}");
    }
    // Even an administrator needs the form's token.
    for path in &acts {
        let fields = [("form_token", "other"), ("digest", digest)];
        let answer = root.post_bare(path, &fields).await;
        assert_eq!(answer.status, 403, "{path}: {}", answer.text());
    }
    assert_eq!(standing().await, before);
    let unknown = root.get("/console/admin/users/usr_nobody").await;
    assert_eq!(unknown.status, 404);
    for nothing in ["plugins/none", "models/none", "providers/none"] {
        let answer = root.get(&format!("/console/admin/{nothing}")).await;
        assert_eq!(answer.status, 404, "{nothing}");
    }
    let mistyped = root.get("/console/admin/users?plann=pro").await;
    assert_eq!(mistyped.status, 400);
}

#[tokio::test]
async fn a_user_who_is_disabled_there_is_out_until_they_are_let_in_again() {
    let gateway = Gateway::start().await;
    let web = gateway.web("alice");
    let made = web
        .post("/api-keys", &json!({ "name": "hers" }))
        .await
        .json();
    let (key, key_id) = (made["api_key"].as_str(), made["key_id"].as_str());
    let client = gateway.stranger().with_key(key.expect("a key"));
    assert_eq!(client.get("/models").await.status, 200);
    let user_id = gateway.web_user_id("alice").await;
    let path = format!("/console/admin/users/{user_id}");
    let mut root = administrator(&gateway).await;
    let found = root
        .page("/console/admin/users?subject=alice&plan=free")
        .await;
    assert!(found.contains(&user_id), "{found}");
    let found = root.page("/console/admin/users?disabled=true").await;
    assert!(!found.contains(&user_id), "{found}");

    let answer = root.post(&format!("{path}/disable"), &[]).await;
    assert_eq!(location(&answer), path);
    let html = root.page(&path).await;
    assert!(
        html.contains("The user is disabled") && html.contains("hers"),
        "{html}"
    );
    assert_eq!(client.get("/models").await.status, 403);
    let root_id = gateway.web_user_id("root").await;
    let event = audited(&gateway, "user.disabled").await;
    assert_eq!(event["user_id"], *user_id, "{event}");
    assert_eq!(event["actor"], format!("user:{root_id}"), "{event}");

    let answer = root.post(&format!("{path}/enable"), &[]).await;
    assert_eq!(location(&answer), path);
    assert_eq!(client.get("/models").await.status, 200);
    let key_id = key_id.expect("an id");
    let answer = root
        .post(&format!("{path}/keys/{key_id}/revoke"), &[])
        .await;
    assert_eq!(location(&answer), path);
    assert_eq!(client.get("/models").await.status, 401);
    // The same page reports that a resource is missing or another user's.
    let mine = gateway.stranger().with_key(gateway.key());
    let keys = gateway.admin("root").await.get("/admin/keys").await.json();
    let keys = keys["keys"].as_array().expect("keys").iter();
    let others = keys.filter(|key| key["user_id"] != *user_id);
    let others: Vec<_> = others.map(|key| key["key_id"].clone()).collect();
    assert!(!others.is_empty());
    for key_id in others.iter().filter_map(Value::as_str).chain(["key_0"]) {
        let answer = root
            .post(&format!("{path}/keys/{key_id}/revoke"), &[])
            .await;
        assert_eq!(location(&answer), path);
        assert!(root.page(&path).await.contains("class=\"notice bad\""));
    }
    assert_eq!(mine.get("/models").await.status, 200);

    let path = format!("/console/admin/users/{root_id}");
    let answer = root.post(&format!("{path}/disable"), &[]).await;
    assert_eq!(location(&answer), path);
    let html = root.page(&path).await;
    assert!(html.contains("class=\"notice bad\""), "{html}");
}

#[tokio::test]
async fn all_keys_of_a_user_are_there_page_by_page_and_those_that_work_by_themselves() {
    let gateway = Gateway::start().await;
    let operator = gateway.admin("root").await;
    let mut ids = Vec::new();
    for number in 0..60 {
        let key = json!({ "user_id": "many", "name": format!("key {number}") });
        let made = operator.post("/admin/keys", &key).await.json();
        ids.push(made["key_id"].as_str().expect("an id").to_owned());
    }
    for key_id in &ids[..15] {
        let revoked = operator.delete(&format!("/admin/keys/{key_id}")).await;
        assert_eq!(revoked.status, 204, "{}", revoked.text());
    }
    let mut root = administrator(&gateway).await;
    let path = "/console/admin/users/many";
    let names = |html: &str| html.matches("<th scope=\"row\">key ").count();
    let first = root.page(path).await;
    assert_eq!(names(&first), 50);
    let (before, _) = first.split_once("\">More</a>").expect("there are more");
    let (_, next) = before.rsplit_once("href=\"").expect("a link");
    assert!(next.starts_with(path), "{next}");
    let second = root.page(next).await;
    assert_eq!(names(&second), 10);
    assert!(second.contains(">key 59<") && !second.contains(">More</a>"));
    let working = root.page(&format!("{path}?active=true")).await;
    assert_eq!(names(&working), 45);
    assert!(working.contains("Show all keys"), "{working}");
    assert!(!working.contains(">revoked<"), "{working}");
}

#[tokio::test]
async fn a_slot_is_swapped_by_way_of_a_canary_and_rolled_back() {
    let gateway = Gateway::start().await;
    let operator = gateway.admin("root").await;
    let digest = &*install(&operator).await;
    let serving = async || operator.get("/admin/plugins/demo").await.json();
    let before = serving().await["active"].clone();

    let mut root = Browser::of(&gateway, "root").await;
    let path = "/console/admin/plugins/demo";
    assert!(root.page(path).await.contains(digest));
    let activate = format!("{path}/activate");
    for (percent, why) in [("some", "number of percent"), ("200", "share")] {
        let fields = [("digest", digest), ("percent", percent)];
        let answer = root.post(&activate, &fields).await;
        assert_eq!(location(&answer), path);
        let html = root.page(path).await;
        assert!(html.contains("notice bad") && html.contains(why), "{html}");
    }
    assert_eq!(serving().await["active"], before);

    let answer = root
        .post(&activate, &[("digest", digest), ("percent", "25")])
        .await;
    assert_eq!(location(&answer), path);
    let slot = serving().await;
    assert_eq!(
        (
            &slot["canary"]["digest"],
            &slot["canary"]["share"],
            &slot["active"]
        ),
        (&json!(digest), &json!(0.25), &before)
    );
    assert!(root.page(path).await.contains("25.00 % of the accounts"));
    let answer = root.post(&activate, &[("digest", digest)]).await;
    assert_eq!(location(&answer), path);
    let html = root.page(path).await;
    assert!(html.contains("serves all accounts"), "{html}");
    assert_eq!(serving().await["active"], *digest);
    assert_eq!(gateway.chat("demo", "hello").await.status, 200);

    let answer = root.post(&format!("{path}/rollback"), &[]).await;
    assert_eq!(location(&answer), path);
    assert_eq!(serving().await["active"], before);
    let html = root.page(path).await;
    let root_id = gateway.web_user_id("root").await;
    for said in ["canary started", "canary promoted", "rolled back", &root_id] {
        assert!(html.contains(said), "{said} in {html}");
    }
}

#[tokio::test]
async fn exchanges_of_a_slot_are_recorded_until_an_administrator_stops() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("fine"));
    let gateway = Gateway::with_upstream(&upstream).await;
    let mut root = administrator(&gateway).await;
    let path = "/console/admin/plugins/openai";
    let record = format!("{path}/record");
    assert!(root.page(path).await.contains("This slot has no recording"));
    for (percent, minutes, why) in [("some", "1", "number of percent"), ("1", "2000", "seconds")] {
        let fields = [("percent", percent), ("minutes", minutes), ("MiB", "1")];
        assert_eq!(location(&root.post(&record, &fields).await), path);
        let html = root.page(path).await;
        assert!(html.contains("notice bad") && html.contains(why), "{html}");
    }
    let fields = [("percent", "100"), ("minutes", "5"), ("MiB", "1")];
    assert_eq!(location(&root.post(&record, &fields).await), path);
    let html = root.page(path).await;
    assert!(
        html.contains("100.00 %") && html.contains("0 of at most 1,048,576"),
        "{html}"
    );
    assert_eq!(gateway.chat("scripted", "hello").await.status, 200);
    let operator = gateway.admin("root").await;
    patiently(async {
        let exchanges = async || {
            let shown = operator.get("/admin/recordings/openai").await.json();
            shown["exchanges"].clone()
        };
        while exchanges().await != 1 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(
        location(&root.post(&format!("{record}/stop"), &[]).await),
        path
    );
    let html = root.page(path).await;
    assert!(html.contains("The recording has ended"), "{html}");
    assert_eq!(
        audited(&gateway, "recording.stopped").await["reason"],
        "openai"
    );
    assert_eq!(
        location(&root.post(&format!("{record}/forget"), &[]).await),
        path
    );
    assert!(root.page(path).await.contains("This slot has no recording"));
}

#[tokio::test]
async fn lockouts_are_cleared_and_events_of_payments_retried_there() {
    let gateway = Gateway::start().await;
    let address = "203.0.113.7";
    shut_out(&gateway, address).await;
    let mut root = administrator(&gateway).await;
    let path = "/console/admin/lockouts";
    assert!(root.page(path).await.contains(address));
    let answer = root.post(&format!("{path}/{address}/clear"), &[]).await;
    assert_eq!(location(&answer), path);
    let html = root.page(path).await;
    assert!(
        html.contains("No address is locked out.") && html.contains("is ended"),
        "{html}"
    );

    let web = gateway.web("alice");
    let bought = web
        .post("/billing/topup", &json!({ "tier": "small" }))
        .await
        .json();
    let url = bought["checkout_url"].as_str().expect("a URL");
    let at = url.find("/dev/").expect("a page of development mode");
    let form = Some("application/x-www-form-urlencoded");
    let pay = format!("{}/pay", &url[at..]);
    let paid = gateway
        .stranger()
        .send(Method::POST, &pay, form, "".into())
        .await;
    assert_eq!(paid.status, 303, "{}", paid.text());
    let path = "/console/admin/webhooks";
    let event_id = patiently(async {
        loop {
            let applied = root.get(&format!("{path}?state=applied")).await;
            if let Some((_, rest)) = page(&applied).split_once("/console/admin/webhooks/") {
                break rest.split('/').next().expect("an id").to_owned();
            }
        }
    })
    .await;
    let balance = async || web.get("/usage/me").await.json()["topup_balance"].clone();
    let before = balance().await;
    let answer = root.post(&format!("{path}/{event_id}/retry"), &[]).await;
    assert_eq!(location(&answer), path);
    assert!(root.page(path).await.contains("applied again"));
    let event = audited(&gateway, "payment_event.retried").await;
    assert!(event["reason"].to_string().contains(&event_id), "{event}");
    assert_eq!(balance().await, before);
    let processor = Processor::new(gateway.stranger(), gateway.app());
    let (payer, then) = (Payer("kim".to_owned()), "2026-03-01T00:00:00Z");
    let operator = gateway.admin("root").await;
    let made = json!({ "user_id": payer.0, "name": "theirs" });
    let made = operator.post("/admin/keys", &made).await;
    assert_eq!(made.status, 201, "{}", made.text());
    processor.tell(&payer.customer_created(then)).await;
    let failed = payer.payment_is("succeeded", "f", then, "q", "huge");
    processor.tell(&failed).await;
    let event_id = failed["id"].as_str().expect("an id");
    let html = root.page(&format!("{path}?state=failed")).await;
    assert!(
        html.contains(event_id) && html.contains("no tier"),
        "{html}"
    );
    let attempts = async || -> i64 {
        sqlx::query_scalar("SELECT attempts FROM payment_events WHERE id = $1")
            .bind(event_id)
            .fetch_one(gateway.app().database.reader())
            .await
            .expect("the database answers")
    };
    let tried = attempts().await;
    let answer = root.post(&format!("{path}/{event_id}/retry"), &[]).await;
    assert_eq!(location(&answer), path);
    assert!(root.page(path).await.contains("applied again"));
    patiently(async {
        while attempts().await == tried {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let unknown = root.post(&format!("{path}/evt_none/retry"), &[]).await;
    assert_eq!(location(&unknown), path);
    assert!(root.page(path).await.contains("notice bad"));
}

#[tokio::test]
async fn the_documentation_begins_with_base_urls_a_key_and_examples_that_work() {
    let gateway = Gateway::start().await;
    let html = Browser::new(&gateway).get("/docs").await;
    let html = page(&html).replace("&#34;", "\"").replace("&#39;", "'");
    let (start, _) = html
        .split_once("aria-label=\"Operations\"")
        .expect("the reference");
    let base = format!("http://{}", gateway.stranger().address());
    for text in [
        format!("<code>{base}/v1</code>"),
        format!("<code>{base}</code>"),
        "href=\"/console/keys\"".to_owned(),
        format!("curl {base}/v1/chat/completions"),
        format!("OpenAI(base_url=\"{base}/v1\", api_key=\"inf_YOUR_KEY\")"),
        format!("Anthropic(base_url=\"{base}\", api_key=\"inf_YOUR_KEY\")"),
    ] {
        assert!(start.contains(&text), "{text}");
    }
    // The example of curl is a request that the gateway serves.
    let (_, body) = start.split_once("-d '").expect("the body of the example");
    let (body, _) = body.split_once('\'').expect("the end of the body");
    let body: Value = serde_json::from_str(body).expect("JSON");
    let answer = gateway.client().post("/v1/chat/completions", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[tokio::test]
async fn the_documentation_is_a_page_that_names_every_operation() {
    let gateway = Gateway::start().await;
    let document = gateway.stranger().get("/openapi.json").await.json();
    let html = Browser::new(&gateway).get("/docs").await;
    let html = page(&html);
    let paths = document["paths"].as_object().expect("paths");
    let operations = paths.values().filter_map(Value::as_object).flatten();
    for (_, operation) in operations {
        let id = operation["operationId"].as_str().expect("an id");
        assert!(html.contains(&format!("id=\"{id}\"")), "{id}");
    }
    // Every link has a target.
    for link in html.split("href=\"#").skip(1) {
        let name = link.split('"').next().expect("a name");
        assert!(html.contains(&format!("id=\"{name}\"")), "{name}");
    }
}
