//! The tool under a host's calls, with scripted responses.

use weir_sdk::tool::{CallContext, Failure, Response, Tool};
use weir_tool_webhook::call::Webhook;

fn sent_to(arguments: &str, urls: &[&str]) -> Result<String, Failure> {
    let context = CallContext {
        webhook_urls: urls.iter().map(|&url| url.to_owned()).collect(),
        integrations: Vec::new(),
        credentials: Vec::new(),
    };
    let mut sent = None;
    Webhook::call(arguments, &context, &mut |request| {
        assert_eq!(request.body.as_deref(), Some(&br#"{"a":1}"#[..]));
        assert_eq!(
            request.headers,
            [("content-type".to_owned(), "application/json".to_owned())]
        );
        sent = Some(request.url);
        Ok(Response {
            status: 204,
            headers: Vec::new(),
            body: Vec::new(),
            truncated: false,
        })
    })?;
    Ok(sent.expect("it was sent"))
}

#[test]
fn only_the_agents_own_webhooks_are_told() {
    let (a, b) = ("https://a.example/hook", "https://b.example/hook");
    assert_eq!(sent_to(r#"{"body":{"a":1}}"#, &[a]), Ok(a.to_owned()));
    let second = r#"{"url":"https://b.example/hook","body":{"a":1}}"#;
    assert_eq!(sent_to(second, &[a, b]), Ok(b.to_owned()));
    let told = "`url` must be one of https://a.example/hook";
    assert_eq!(
        sent_to(second, &[a]),
        Err(Failure::InvalidArguments(told.to_owned()))
    );
    let unclear = sent_to(r#"{"body":{"a":1}}"#, &[a, b]);
    assert!(
        matches!(unclear, Err(Failure::InvalidArguments(_))),
        "{unclear:?}"
    );
    assert!(matches!(
        sent_to(r#"{"body":{"a":1}}"#, &[]),
        Err(Failure::Failed(_))
    ));
}
