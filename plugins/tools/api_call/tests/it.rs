//! The tool under a host's calls, with scripted responses.

use weir_sdk::tool::{CallContext, Failure, FetchFailure, Integration, Method, Request, Tool};
use weir_tool_api_call::call::ApiCall;

fn sent(arguments: &str) -> Result<Request, Failure> {
    let context = CallContext {
        webhook_urls: Vec::new(),
        integrations: vec![Integration {
            id: "tracker".to_owned(),
            base_url: "https://api.example/v2".to_owned(),
            credential: Some("tracker-token".to_owned()),
        }],
        credentials: vec!["tracker-token".to_owned()],
    };
    let mut asked = None;
    let told = ApiCall::call(arguments, &context, &mut |request| {
        asked = Some(request);
        Err(FetchFailure::Timeout)
    });
    asked.ok_or_else(|| told.expect_err("nothing was told"))
}

#[test]
fn an_integration_is_called_below_its_base_url_with_its_credential() {
    let request = sent(r#"{"integration":"tracker","path":"/items","query":{"q":"a b&c","n":2}}"#)
        .expect("it is sent");
    assert_eq!(request.url, "https://api.example/v2/items?n=2&q=a%20b%26c");
    assert_eq!(request.method, Method::Get);
    assert_eq!(request.credential.as_deref(), Some("tracker-token"));
    let request = sent(r#"{"integration":"tracker","path":"/items?x=1","query":{"y":true},"method":"PATCH","body":{"a":1}}"#)
        .expect("it is sent");
    assert_eq!(request.url, "https://api.example/v2/items?x=1&y=true");
    assert_eq!(request.method, Method::Patch);
    assert_eq!(request.body.as_deref(), Some(&br#"{"a":1}"#[..]));
}

#[test]
fn what_is_no_integration_of_the_agents_is_not_called() {
    for (arguments, told) in [
        (
            r#"{"integration":"other","path":"/"}"#,
            "`integration` must be one of tracker",
        ),
        (
            r#"{"integration":"tracker","path":"@evil.example/"}"#,
            "`path` must begin with a slash",
        ),
        (
            r#"{"integration":"tracker","path":".evil.example/"}"#,
            "`path` must begin with a slash",
        ),
        (
            r#"{"integration":"tracker","path":"/","method":"TRACE"}"#,
            "`method` cannot be TRACE",
        ),
    ] {
        match sent(arguments) {
            Err(Failure::InvalidArguments(why)) => assert!(why.contains(told), "{why}"),
            other => panic!("{arguments}: {other:?}"),
        }
    }
}
