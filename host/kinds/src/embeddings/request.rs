//! The JSON of a request, and its translation to the plugins' vocabulary.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde_json::{Value, json};
use weir_dialects::json::{
    self, BoundedList, ExtraFields, FieldFault, MAX_EXTRA, Text, check_length, check_not_empty,
    required,
};
use weir_dialects::object;
use weir_dialects::openai::{MAX_MODEL_CHARS, client};
use weir_dialects::schema::{Described, KnownFields, Schemas};
use weir_errors::ApiError;
use weir_sandbox::adapter::OtherRequest;
use weir_sandbox::adapter::bindings::embeddings::{EmbeddingRequest, Input, Request};

use super::EmbeddingForm;
use crate::KindCall;

/// The dialect's name in the contract.
const NAME: &str = "openai-embeddings";
/// The maximum inputs of a request, as with OpenAI.
const MAX_INPUTS: usize = 2_048;
/// The maximum dimensions of a vector; the largest models have a tenth.
const MAX_DIMENSIONS: u32 = 65_536;
/// The maximum characters of an input type.
const MAX_WORD_CHARS: usize = 64;

/// Fields of OpenAI's servers (openai 3.57.0, `types/embedding_create_params.py`).
const PASSED_ON: KnownFields = &[(
    "user",
    "The id of the end user, as a text of at most 512 characters.",
)];

object! {
    /// A request in OpenAI's Embeddings. Fields that weir does not know go on to the provider.
    struct EmbeddingRequestBody<'de> as "EmbeddingRequest" {
        /// The id of a model of the kind `embeddings`, as `GET /models` lists them.
        "model": model: Text<'de> = [Required, Chars(1, MAX_MODEL_CHARS)],
        /// A text, the tokens of a text, or a list of texts or of lists of tokens.
        "input": input: Inputs = [Required],
        /// The number of dimensions; default: the model's.
        "dimensions": dimensions: u32 = [Between(1.0, MAX_DIMENSIONS as f64)],
        /// The form of the vectors: numbers, or base64 of 32-bit floats; default: `float`.
        "encoding_format": encoding_format: Text<'de> = [OneOf(&["float", "base64"])],
        /// The use of the vectors, such as `query` or `document`, for providers that distinguish them.
        "input_type": input_type: String = [Chars(1, MAX_WORD_CHARS)],
        others: ExtraFields<'de, MAX_EXTRA> = PASSED_ON,
    }
}

impl Described for Inputs {
    fn schema(_: &mut Schemas) -> Value {
        let text = json!({ "type": "string", "minLength": 1 });
        let tokens = json!({
            "type": "array", "items": { "type": "integer", "minimum": 0, "maximum": u32::MAX }, "minItems": 1,
        });
        let list = |items: &Value| json!({ "type": "array", "items": items, "minItems": 1, "maxItems": MAX_INPUTS });
        json!({ "anyOf": [text, list(&text), tokens, list(&tokens)] })
    }
}

/// A text, tokens, or a list of texts or of tokens.
pub(super) enum Inputs {
    Text(String),
    Tokens(Vec<u32>),
    List(Vec<Input>),
}

impl<'de> Deserialize<'de> for Inputs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InputsVisitor;

        impl<'de> Visitor<'de> for InputsVisitor {
            type Value = Inputs;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter
                    .write_str("a string, or an array of strings, of tokens or of arrays of tokens")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Inputs, E> {
                Ok(Inputs::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Inputs, A::Error> {
                let Some(first) = items.next_element::<InputItem>()? else {
                    return Ok(Inputs::List(Vec::new()));
                };
                let mut list = match first {
                    // The body's own size bounds the number of tokens: each takes two bytes or more.
                    InputItem::Token(first) => {
                        let mut tokens = vec![first];
                        while let Some(token) = items.next_element()? {
                            tokens.push(token);
                        }
                        return Ok(Inputs::Tokens(tokens));
                    }
                    InputItem::Input(first) => vec![first],
                };
                let BoundedList(rest) = BoundedList::<InputItem, { MAX_INPUTS - 1 }>::read(items)?;
                for (index, item) in rest.into_iter().enumerate() {
                    let InputItem::Input(input) = item else {
                        let at = index + 1;
                        return Err(de::Error::custom(format_args!(
                            "must not mix tokens with texts, as item {at} does"
                        )));
                    };
                    list.push(input);
                }
                Ok(Inputs::List(list))
            }
        }

        deserializer.deserialize_any(InputsVisitor)
    }
}

/// An item of a list of inputs: an input, or a token of the only input.
enum InputItem {
    Input(Input),
    Token(u32),
}

impl<'de> Deserialize<'de> for InputItem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ItemVisitor;

        impl<'de> Visitor<'de> for ItemVisitor {
            type Value = InputItem;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string, a token or an array of tokens")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<InputItem, E> {
                Ok(InputItem::Input(Input::Text(text.to_owned())))
            }

            fn visit_u64<E: de::Error>(self, token: u64) -> Result<InputItem, E> {
                let token = u32::try_from(token).map_err(|_| E::custom("must be a token"))?;
                Ok(InputItem::Token(token))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<InputItem, A::Error> {
                let mut tokens = Vec::new();
                while let Some(token) = items.next_element()? {
                    tokens.push(token);
                }
                Ok(InputItem::Input(Input::Tokens(tokens)))
            }
        }

        deserializer.deserialize_any(ItemVisitor)
    }
}

/// Reads an Embeddings request.
///
/// # Errors
///
/// 400 `INVALID_REQUEST`, with the path of the field as `param` unless the body is not JSON.
pub fn read(body: &[u8]) -> Result<KindCall, ApiError> {
    let (request, form) = parse(body)?;
    Ok(KindCall::new(
        OtherRequest::Embeddings(request),
        body.len(),
        form,
    ))
}

/// Returns the request, and the form of its response.
pub(super) fn parse(body: &[u8]) -> Result<(Request, EmbeddingForm), ApiError> {
    Ok(translate(json::read(body)?)?)
}

fn translate(body: EmbeddingRequestBody<'_>) -> Result<(Request, EmbeddingForm), FieldFault> {
    let model = required(body.model, "model")?.into_string();
    check_length(&model, MAX_MODEL_CHARS, "model")?;
    let inputs = match required(body.input, "input")? {
        Inputs::Text(text) => vec![Input::Text(text)],
        Inputs::Tokens(tokens) => vec![Input::Tokens(tokens)],
        Inputs::List(list) if list.is_empty() => {
            return Err(FieldFault::new("input", "must not be empty"));
        }
        Inputs::List(list) => list,
    };
    let is_alone = inputs.len() == 1;
    for (index, input) in inputs.iter().enumerate() {
        let is_empty = match input {
            Input::Text(text) => text.is_empty(),
            Input::Tokens(tokens) => tokens.is_empty(),
        };
        if is_empty {
            let fault = FieldFault::new("", "must not be empty");
            return Err(match is_alone {
                true => fault.within("input"),
                false => fault.at(index).within("input"),
            });
        }
    }
    let dimensions = body.dimensions;
    if dimensions.is_some_and(|count| !(1..=MAX_DIMENSIONS).contains(&count)) {
        let what = format!("must be from 1 to {MAX_DIMENSIONS}");
        return Err(FieldFault::new("dimensions", what));
    }
    let base64 = match body.encoding_format.as_ref().map(Text::as_str) {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => {
            return Err(FieldFault::new(
                "encoding_format",
                "must be float or base64",
            ));
        }
    };
    if let Some(word) = &body.input_type {
        check_not_empty(word, "input_type")?;
        check_length(word, MAX_WORD_CHARS, "input_type")?;
    }
    let extra = body.others.into_fields();
    let form = EmbeddingForm {
        base64,
        inputs: inputs.len(),
        dimensions,
    };
    let request = Request {
        client: client(NAME, &extra)?,
        task: EmbeddingRequest {
            model,
            inputs,
            dimensions,
            input_type: body.input_type,
            base64,
            extra,
        },
        attempt: 0,
        deadline_ms: 0,
    };
    Ok((request, form))
}
