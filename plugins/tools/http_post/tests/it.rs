//! The tool under a host's calls, with scripted responses.

use weir_sdk::tool::{CallContext, Failure, FetchFailure, Method, Tool};
use weir_tool_http_post::call::HttpPost;

#[test]
fn what_the_model_writes_is_posted_as_json_or_text() {
    let context = CallContext {
        webhook_urls: Vec::new(),
        integrations: Vec::new(),
        credentials: Vec::new(),
    };
    for (arguments, body, media_type) in [
        (
            r#"{"url":"https://example.com/","body":{"a":[1]}}"#,
            Some(r#"{"a":[1]}"#),
            Some("application/json"),
        ),
        (
            r#"{"url":"https://example.com/","body":"a=1","headers":{"content-type":"text/csv"}}"#,
            Some("a=1"),
            Some("text/csv"),
        ),
        (r#"{"url":"https://example.com/"}"#, None, None),
    ] {
        let mut asked = None;
        let told = HttpPost::call(arguments, &context, &mut |request| {
            asked = Some(request);
            Err(FetchFailure::Timeout)
        });
        assert!(matches!(told, Err(Failure::Failed(_))), "{told:?}");
        let request = asked.expect("it asked");
        assert_eq!(request.method, Method::Post);
        assert_eq!(request.body.as_deref(), body.map(str::as_bytes));
        assert_eq!(
            request.headers.first().map(|(_, value)| &**value),
            media_type
        );
    }
}
