//! The JSON of a request, and its translation to the plugins' vocabulary.

use serde_json::{Value, json};
use weir_dialects::json::{
    self, BoundedList, ExtraFields, FieldFault, MAX_EXTRA, Text, TextOr, check_length,
    check_not_empty, required,
};
use weir_dialects::object;
use weir_dialects::openai::{MAX_MODEL_CHARS, client};
use weir_dialects::schema::Schemas;
use weir_errors::ApiError;
use weir_sandbox::adapter::OtherRequest;
use weir_sandbox::adapter::bindings::moderation::{ModerationRequest, Request};

use super::ModerationForm;
use crate::KindCall;

/// The dialect's name in the contract.
const NAME: &str = "openai-moderation";
/// The model of a request that names none, as with OpenAI.
const DEFAULT_MODEL: &str = "omni-moderation-latest";
/// The maximum inputs of a request.
const MAX_INPUTS: usize = 1_024;

object! {
    /// A request in OpenAI's Moderations. Fields that weir does not know go on to the provider.
    struct ModerationRequestBody<'de> as "ModerationRequest" {
        /// The id of a model of the kind `moderation`, as `GET /models` lists them; default: `omni-moderation-latest`.
        "model": model: Text<'de> = [Chars(1, MAX_MODEL_CHARS)],
        /// A text, or a list of texts.
        "input": input: TextOr<String, MAX_INPUTS> = [Required, Is(input_schema)],
        others: ExtraFields<'de, MAX_EXTRA>,
    }
}

fn input_schema(_: &mut Schemas) -> Value {
    let text = json!({ "type": "string", "minLength": 1 });
    json!({ "anyOf": [text, { "type": "array", "items": text, "minItems": 1, "maxItems": MAX_INPUTS }] })
}

/// Reads a Moderations request.
///
/// # Errors
///
/// 400 `INVALID_REQUEST`, with the path of the field as `param` unless the body is not JSON.
pub fn read(body: &[u8]) -> Result<KindCall, ApiError> {
    let (request, form) = parse(body)?;
    Ok(KindCall::new(
        OtherRequest::Moderation(request),
        body.len(),
        form,
    ))
}

/// Returns the request, and the form of its response.
pub(super) fn parse(body: &[u8]) -> Result<(Request, ModerationForm), ApiError> {
    Ok(translate(json::read(body)?)?)
}

fn translate(body: ModerationRequestBody<'_>) -> Result<(Request, ModerationForm), FieldFault> {
    let model = body.model.map(Text::into_string);
    let model = model.unwrap_or_else(|| DEFAULT_MODEL.to_owned());
    check_length(&model, MAX_MODEL_CHARS, "model")?;
    let inputs = match required(body.input, "input")? {
        TextOr::Text(text) => {
            check_not_empty(&text, "input")?;
            vec![text]
        }
        TextOr::List(BoundedList(list)) => list,
    };
    if inputs.is_empty() {
        return Err(FieldFault::new("input", "must not be empty"));
    }
    if let Some(index) = inputs.iter().position(String::is_empty) {
        let fault = FieldFault::new("", "must not be empty");
        return Err(fault.at(index).within("input"));
    }
    let extra = body.others.into_fields();
    let form = ModerationForm {
        inputs: inputs.len(),
    };
    let request = Request {
        client: client(NAME, &extra)?,
        task: ModerationRequest {
            model,
            inputs,
            extra,
        },
        attempt: 0,
        deadline_ms: 0,
    };
    Ok((request, form))
}
