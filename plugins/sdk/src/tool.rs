//! The tool's side of the contract: one trait and one macro, and helpers for tools that speak HTTP.
//!
//! A tool is a plain function of its arguments and of the responses to its requests: native tests hand it a closure as
//! `fetch`.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::tool_bindings::exports::weir::plugin::tool as exported;
use crate::tool_bindings::weir::plugin::outbound;

pub use exported::{CallContext, Description, Failure, Integration};
pub use outbound::{Failure as FetchFailure, Header, Method, Request, Response};

/// Sends a request through the host's guard, and waits for its answer.
pub type Fetch<'a> = dyn FnMut(Request) -> Result<Response, FetchFailure> + 'a;

/// A tool that an agent's model can call.
pub trait Tool {
    /// Describes this tool. The host calls it when it loads the component, and expects the same description each time.
    fn describe() -> Description;

    /// Runs the tool once. The arguments are a JSON object that fits the description's schema. Returns the result for the
    /// model.
    ///
    /// # Errors
    ///
    /// The explanation for the model.
    fn call(
        arguments: &str,
        context: &CallContext,
        fetch: &mut Fetch<'_>,
    ) -> Result<String, Failure>;
}

/// Makes a type that implements [`Tool`] the component's export.
///
/// It expands to nothing on other targets, as [`export_adapter!`](crate::export_adapter) does.
#[macro_export]
macro_rules! export_tool {
    ($tool:ty) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            type Exported = $crate::tool::ToolGlue<$tool>;
    $crate::tool_bindings::export_swarm_tool!(Exported with_types_in $crate::tool_bindings);
        };
    };
}

/// Carries a [`Tool`] across the generated traits.
#[doc(hidden)]
pub struct ToolGlue<T>(std::marker::PhantomData<T>);

impl<T: Tool> exported::Guest for ToolGlue<T> {
    fn describe() -> Description {
        T::describe()
    }

    fn call(arguments: String, context: CallContext) -> Result<String, Failure> {
        T::call(&arguments, &context, &mut |request| {
            outbound::fetch(&request)
        })
    }
}

/// Reads arguments that the host has checked against the schema.
///
/// # Errors
///
/// The mismatch, if they do not fit the type all the same.
pub fn arguments<T: DeserializeOwned>(text: &str) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|error| Failure::InvalidArguments(error.to_string()))
}

/// The headers of a request, from arguments.
pub fn headers(headers: BTreeMap<String, String>) -> Vec<Header> {
    headers.into_iter().collect()
}

/// The body of a request, from arguments: a text unchanged, other values as JSON. Adds `content-type` to the headers, unless
/// they have one.
pub fn body(body: &Value, headers: &mut Vec<Header>) -> Vec<u8> {
    let (media_type, bytes) = match body {
        Value::String(text) => ("text/plain; charset=utf-8", text.clone()),
        json => ("application/json", json.to_string()),
    };
    let is_typed = |(name, _): &Header| name.eq_ignore_ascii_case("content-type");
    if !headers.iter().any(is_typed) {
        headers.push(("content-type".to_owned(), media_type.to_owned()));
    }
    bytes.into_bytes()
}

/// A response as text for the model: the status, the headers, and the body if it is text.
///
/// # Errors
///
/// The reason for the model, if there is no response.
pub fn told(answer: Result<Response, FetchFailure>) -> Result<String, Failure> {
    let failed = |text: String| Err(Failure::Failed(text));
    let response = match answer {
        Ok(response) => response,
        Err(FetchFailure::Blocked(why)) => {
            return failed(format!("The request is refused: {why}."));
        }
        Err(FetchFailure::Timeout) => {
            return failed(
                "The request took too long; whether it has arrived is not known.".to_owned(),
            );
        }
        Err(FetchFailure::Unreachable(why)) => {
            return failed(format!("The request failed: {why}."));
        }
    };
    let mut text = format!("HTTP {}\n", response.status);
    for (name, value) in &response.headers {
        text.push_str(&format!("{name}: {value}\n"));
    }
    if !response.body.is_empty() {
        text.push('\n');
        text.push_str(&readable(&response));
    }
    if response.truncated {
        text.push_str("\n[cut: the answer is longer than is read]");
    }
    Ok(text)
}

/// A body as text, or the size of a body that is no text.
fn readable(response: &Response) -> String {
    let media_type = response
        .headers
        .iter()
        .find(|(name, _)| name == "content-type")
        .map(|(_, value)| value.to_ascii_lowercase());
    let is_text = |media_type: String| {
        ["text/", "json", "xml", "javascript", "yaml", "urlencoded"]
            .iter()
            .any(|text| media_type.contains(text))
    };
    match std::str::from_utf8(&response.body) {
        Ok(text) => text.to_owned(),
        // Also one that was cut within a character.
        Err(_) if media_type.is_some_and(is_text) => {
            String::from_utf8_lossy(&response.body).into_owned()
        }
        Err(_) => format!("[{} bytes that are no text]", response.body.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(media_type: &str, body: &[u8]) -> Response {
        Response {
            status: 200,
            headers: vec![("content-type".into(), media_type.into())],
            body: body.to_vec(),
            truncated: false,
        }
    }

    #[test]
    fn an_answer_is_told_with_status_headers_and_body() {
        let page = response("text/html", b"<p>Hi");
        let text = told(Ok(page.clone())).expect("it is an answer");
        assert_eq!(text, "HTTP 200\ncontent-type: text/html\n\n<p>Hi");
        let cut = Response {
            truncated: true,
            ..page
        };
        assert!(told(Ok(cut)).expect("an answer").ends_with("than is read]"));
        let latin = response("text/plain; charset=latin1", b"caf\xe9");
        assert!(told(Ok(latin)).expect("an answer").ends_with("caf\u{fffd}"));
        let image = response("image/png", &[0xff, 0xd8]);
        assert!(
            told(Ok(image))
                .expect("an answer")
                .ends_with("[2 bytes that are no text]")
        );
    }

    #[test]
    fn why_there_is_no_answer_is_said() {
        for (failure, said) in [
            (
                FetchFailure::Blocked("no; nothing was sent".into()),
                "refused: no; nothing",
            ),
            (FetchFailure::Timeout, "too long"),
            (FetchFailure::Unreachable("gone".into()), "failed: gone"),
        ] {
            let Err(Failure::Failed(text)) = told(Err(failure)) else {
                panic!("it is a failure");
            };
            assert!(text.contains(said), "{text}");
        }
    }

    #[test]
    fn a_body_is_text_or_json_and_says_so_unless_the_model_did() {
        let mut headers = Vec::new();
        assert_eq!(body(&"a".into(), &mut headers), b"a");
        assert_eq!(headers[0].1, "text/plain; charset=utf-8");
        let mut headers = vec![("Content-Type".to_owned(), "text/csv".to_owned())];
        assert_eq!(
            body(&serde_json::json!({"a": 1}), &mut headers),
            b"{\"a\":1}"
        );
        assert_eq!(headers.len(), 1);
    }
}
