//! The tool as the host calls it, on a scripted answer.

use acme::call::Lookup;
use weir_sdk::tool::{CallContext, Response, Tool};

#[test]
fn a_customer_is_asked_for_by_number() {
    let context = CallContext {
        webhook_urls: Vec::new(),
        integrations: Vec::new(),
        credentials: vec!["acme".to_owned()],
    };
    let mut asked = Vec::new();
    let told = Lookup::call(r#"{"number":7}"#, &context, &mut |request| {
        asked.push((request.url, request.credential));
        Ok(Response {
            status: 200,
            headers: Vec::new(),
            body: b"Zo\xc3\xab".to_vec(),
            truncated: false,
        })
    });
    assert_eq!(told, Ok("HTTP 200\n\nZoë".to_owned()));
    let url = "https://crm.example.com/v2/customers/7".to_owned();
    assert_eq!(asked, [(url, Some("acme".to_owned()))]);
}
