//! The tool under a host's calls, with scripted responses.

use weir_sdk::tool::{CallContext, Method, Response, Tool};
use weir_tool_http_get::call::HttpGet;

#[test]
fn what_the_model_asks_for_is_fetched_and_told() {
    let context = CallContext {
        webhook_urls: Vec::new(),
        integrations: Vec::new(),
        credentials: Vec::new(),
    };
    let mut asked = Vec::new();
    let arguments =
        r#"{"url":"https://example.com/a","headers":{"accept":"text/html"},"credential":"c"}"#;
    let told = HttpGet::call(arguments, &context, &mut |request| {
        asked.push(request);
        Ok(Response {
            status: 404,
            headers: Vec::new(),
            body: b"Not here".to_vec(),
            truncated: false,
        })
    });
    assert_eq!(told, Ok("HTTP 404\n\nNot here".to_owned()));
    let [request] = &asked[..] else {
        panic!("one request: {asked:?}");
    };
    assert_eq!(request.method, Method::Get);
    assert_eq!(request.url, "https://example.com/a");
    assert_eq!(
        request.headers,
        [("accept".to_owned(), "text/html".to_owned())]
    );
    assert_eq!(request.credential.as_deref(), Some("c"));
}
