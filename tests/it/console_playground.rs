//! The playground of the console.

use serde_json::json;
use tests::{Gateway, Reply, Upstream, chat};

use crate::console::Browser;

const CHAT: &str = "/console/playground/chat";

#[tokio::test]
async fn the_playground_sends_a_users_request_at_their_cost() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    let mut alice = Browser::of(&gateway, "alice").await;
    let html = alice.page("/console/playground").await;
    assert!(html.contains("<option value=\"scripted\""), "{html}");
    // Models without chats are not offered.
    assert!(!html.contains("demo-embeddings"), "{html}");
    let script = html
        .split('"')
        .find(|text| text.contains("/assets/playground."));
    let script = alice.get(script.expect("a script")).await;
    assert!(script.text().contains("/console/playground/chat"));

    let client = alice.script(None).await;
    upstream.will(Reply::chat_with_usage("A weir.", 8, 3));
    let answer = client.post(CHAT, &chat("scripted", "hello")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.content(), "A weir.");
    assert!(answer.json()["usage"]["credits"].as_f64() > Some(0.0));
    upstream.will_stream(["A ", "weir."]);
    let stream = client.stream(CHAT, &chat("scripted", "hello")).await;
    assert_eq!(stream.status, 200);
    assert!(stream.is_whole().await);

    // Both are among the user's own requests.
    let admin = gateway.admin("root").await;
    let id = gateway.web_user_id("alice").await;
    let list = admin
        .get(&format!("/admin/users/{id}/usage/requests"))
        .await;
    let list = list.json()["requests"].clone();
    let list = list.as_array().expect("a list");
    assert_eq!(list.len(), 2);
    assert!(
        list.iter().all(|request| request["model"] == "scripted"),
        "{list:?}"
    );

    // An error is the API's, for the script to show.
    let mut wrong = chat("scripted", "hello");
    wrong["temperature"] = json!("hot");
    let refused = client.post(CHAT, &wrong).await;
    let error = refused.error(400, "INVALID_REQUEST");
    assert_eq!(error["param"], "temperature");
}

#[tokio::test]
async fn only_the_sessions_own_page_sends_requests() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    let body = chat("scripted", "hello");
    // A key is no session.
    for client in [gateway.stranger(), gateway.client()] {
        let refused = client.post(CHAT, &body).await;
        refused.error(403, "FORM_NOT_ACCEPTED");
        let origin = format!("http://{}", client.address());
        let page = client.with_header("origin", &origin);
        assert_eq!(page.post(CHAT, &body).await.status, 303);
    }

    let mut alice = Browser::of(&gateway, "alice").await;
    let elsewhere = alice.script(Some("https://evil.example")).await;
    let refused = elsewhere.post(CHAT, &body).await;
    refused.error(403, "FORM_NOT_ACCEPTED");
    let mut bob = Browser::of(&gateway, "bob").await;
    let token = bob.form_token().await;
    let other = alice.script(None).await.with_header("x-form-token", &token);
    other
        .post(CHAT, &body)
        .await
        .error(403, "FORM_NOT_ACCEPTED");
    assert_eq!(upstream.count(), 0);
}
