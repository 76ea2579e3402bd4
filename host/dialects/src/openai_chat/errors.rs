//! Errors in OpenAI's format: its codes, its types, and the sentences that agents recognise.
//!
//! An agent that reads `context_length_exceeded`, or "This model's maximum context length is …", shortens its
//! conversation; any other error makes it give up. weir adds its own code as `weir_code`; without an equivalent code of
//! OpenAI's, `code` is null, as in OpenAI's own errors.

use std::borrow::Cow;

use http::StatusCode;
use serde_json::{Value, json};
use weir_sandbox::printable;

use weir_errors::ApiError;

/// The types of errors that the client's request causes, in the words of OpenAI and compatible servers.
const UPSTREAM_TYPES: [&str; 4] = [
    "invalid_request_error",
    "image_generation_user_error",
    "BadRequestError",
    "bad_request",
];

/// The maximum bytes of an upstream's message for its client.
const MAX_UPSTREAM_BYTES: usize = 1_024;

/// OpenAI's status for an error.
pub(crate) fn status(error: &ApiError) -> StatusCode {
    match error.code() {
        "UNKNOWN_MODEL" => StatusCode::NOT_FOUND,
        _ => error.status(),
    }
}

/// An error in the format of OpenAI's SDKs.
pub(crate) fn body(error: &ApiError, request_id: &str) -> Value {
    let mut fields = error.details().clone();
    let said = error.upstream().and_then(UpstreamErrorBody::read);
    let said = said.filter(|said| !is_context_length(error) || names_the_limit(&said.message));
    let (message, kind, param) = match said {
        Some(said) => (said.message.into(), said.kind, said.param),
        None => (
            message(error),
            kind(error).into(),
            error.param().map(str::to_owned),
        ),
    };
    fields.insert("message".into(), message.into());
    fields.insert("type".into(), kind.into());
    fields.insert("param".into(), param.into());
    fields.insert("code".into(), code(error).into());
    fields.insert("weir_code".into(), error.code().into());
    fields.insert("request_id".into(), request_id.into());
    json!({ "error": fields })
}

/// The error of an upstream with the same dialect: agents depend on its wording. [`code`] determines the code in any
/// case.
struct UpstreamErrorBody {
    message: String,
    kind: String,
    param: Option<String>,
}

impl UpstreamErrorBody {
    fn read(error: &Value) -> Option<Self> {
        let error = error.get("error")?;
        let text = |name: &str| Some(printable(error.get(name)?.as_str()?, MAX_UPSTREAM_BYTES));
        Some(Self {
            message: text("message").filter(|message| !message.is_empty())?,
            kind: UPSTREAM_TYPES
                .into_iter()
                .find(|kind| text("type").as_deref() == Some(kind))?
                .to_owned(),
            param: text("param"),
        })
    }
}

fn is_context_length(error: &ApiError) -> bool {
    error.code() == "CONTEXT_LENGTH_EXCEEDED"
}

/// Whether a message about the context length has the words that agents recognise.
fn names_the_limit(message: &str) -> bool {
    message.contains("maximum context length is")
}

fn code(error: &ApiError) -> Option<&str> {
    Some(match error.code() {
        // OpenAI's code for a project that may not use a model.
        "UNKNOWN_MODEL" | "MODEL_NOT_ALLOWED" | "NO_PERMITTED_PROVIDER" => "model_not_found",
        "CONTEXT_LENGTH_EXCEEDED" => "context_length_exceeded",
        "PREVIOUS_RESPONSE_NOT_FOUND" => "previous_response_not_found",
        "UNAUTHENTICATED" => "invalid_api_key",
        "QUOTA_EXCEEDED" | "BUDGET_EXCEEDED" => "insufficient_quota",
        // Images have their own codes.
        "CONTENT_FILTERED" => match error.detail("upstream_code").and_then(Value::as_str) {
            Some(code @ ("moderation_blocked" | "content_policy_violation")) => code,
            _ => "content_filter",
        },
        "UNSUPPORTED_PARAMETER" => "unsupported_parameter",
        "MODEL_NOT_SUPPORTED" | "VISION_NOT_SUPPORTED" => "unsupported_value",
        "OUTPUT_LIMIT_EXCEEDED" => "invalid_value",
        "PAYLOAD_TOO_LARGE" => "request_too_large",
        _ if error.status() == StatusCode::TOO_MANY_REQUESTS => "rate_limit_exceeded",
        // The provider's own code.
        _ => return error.detail("upstream_code")?.as_str(),
    })
}

fn kind(error: &ApiError) -> &'static str {
    match (error.code(), error.status().as_u16()) {
        ("QUOTA_EXCEEDED" | "BUDGET_EXCEEDED", _) => "insufficient_quota",
        _ if code(error) == Some("moderation_blocked") => "image_generation_user_error",
        (_, 429) => "requests",
        (_, 400..=499) => "invalid_request_error",
        _ => "server_error",
    }
}

fn message(error: &ApiError) -> Cow<'_, str> {
    let said = error.message();
    match error.code() {
        "UNKNOWN_MODEL" => match error.detail("model").and_then(Value::as_str) {
            Some(model) => {
                let mut text = format!(
                    "The model `{model}` does not exist or you do not have access to it. GET /v1/models lists all \
                     models."
                );
                if let Some(remedy) = error.detail("remedy").and_then(Value::as_str) {
                    text = format!("{text} {remedy}");
                }
                text.into()
            }
            None => said.into(),
        },
        "CONTEXT_LENGTH_EXCEEDED" if !names_the_limit(said) => {
            match error.detail("context_window") {
                Some(window) => {
                    format!("This model's maximum context length is {window} tokens. {said}").into()
                }
                None => format!("This model's maximum context length is exceeded. {said}").into(),
            }
        }
        "QUOTA_EXCEEDED" | "BUDGET_EXCEEDED" => format!(
            "You exceeded your current quota, please check your plan and billing details. {said}"
        )
        .into(),
        "UNSUPPORTED_PARAMETER" => match error.param() {
            Some(param) => {
                format!("Unsupported parameter: '{param}' is not supported with this model. {said}")
                    .into()
            }
            None => said.into(),
        },
        _ => said.into(),
    }
}

#[cfg(test)]
mod tests {
    use weir_errors::ErrorCode;

    use super::*;

    #[test]
    fn a_context_length_is_named_in_the_words_that_agents_look_for() {
        let error = |message: &str| ApiError::new(ErrorCode::ContextLengthExceeded, message);
        let told = |error: &ApiError| body(error, "r")["error"]["message"].clone();
        let own = "This model's maximum context length is 10 tokens. However, …";
        assert_eq!(told(&error(own)), own);
        let providers = error("The request is too long: prompt is too long");
        assert_eq!(
            told(&providers.with_detail("context_window", 10)),
            "This model's maximum context length is 10 tokens. The request is too long: prompt is too long"
        );
    }

    #[test]
    fn what_has_no_code_has_a_null_and_its_own_beside_it() {
        let error = ApiError::invalid_request("n", "It must be 1.");
        let said = &body(&error, "r")["error"];
        assert_eq!(said["code"], Value::Null);
        assert_eq!(said["weir_code"], "INVALID_REQUEST");
        assert_eq!(said["type"], "invalid_request_error");
        assert_eq!(said["param"], "n");
    }
}
