//! The JSON of a request, and its translation to the plugins' vocabulary.

use weir_errors::ApiError;
use weir_sandbox::adapter::bindings::chat::ChatRequest;
use weir_sandbox::adapter::text_chat;

use crate::json::{
    self, ExtraFields, FieldFault, MAX_EXTRA, Text, TextOr, UnsupportedField, between,
    check_length, object, required,
};
use crate::openai::{
    MAX_MODEL_CHARS, Stop, StreamOptions, client, preferences, says_nothing, stop, stop_schema,
};
use crate::schema::KnownFields;
use crate::{ChatCall, Dialect, MessageOrigin};

/// The dialect's name in the contract.
const NAME: &str = "openai-completions";

/// Fields of OpenAI's servers (openai 3.57.0, `types/completion_create_params.py`).
const PASSED_ON: KnownFields = &[
    (
        "logit_bias",
        "An object that makes tokens more or less likely.",
    ),
    (
        "user",
        "The id of the end user, as a text of at most 512 characters.",
    ),
];

object! {
    /// A request in OpenAI's Completions. Fields that weir does not know go on to the provider.
    struct CompletionRequestBody<'de> as "CompletionRequest" {
        /// The id of a model, as `GET /models` lists them.
        "model": model: Text<'de> = [Required, Chars(1, MAX_MODEL_CHARS)],
        /// The text before the completion, alone or in a list. It may be empty only with a `suffix`.
        // A client that completes several prompts at once sends a list, which has one prompt here.
        "prompt": prompt: TextOr<String, 1> = [Required, Items(1)],
        /// The text after the completion, for models that fill text in.
        "suffix": suffix: String,
        /// The maximum tokens of the response; default: the model's maximum.
        "max_tokens": max_tokens: u32 = [AtLeast(1)],
        /// The sampling temperature: a low one makes the response more predictable.
        "temperature": temperature: f64 = [Between(0.0, 2.0)],
        /// The share of probability from which tokens are sampled.
        "top_p": top_p: f64 = [Between(0.0, 1.0)],
        /// A positive number makes tokens that have occurred less likely.
        "presence_penalty": presence_penalty: f64 = [Between(-2.0, 2.0)],
        /// A positive number makes tokens less likely the more often they have occurred.
        "frequency_penalty": frequency_penalty: f64 = [Between(-2.0, 2.0)],
        /// A number that makes repeated responses more alike.
        "seed": seed: i64,
        /// A text, or a list of texts, before which the response ends.
        "stop": stop: Stop = [Is(stop_schema)],
        /// Whether weir streams the response as server-sent events.
        "stream": stream: bool,
        /// The settings of a stream.
        "stream_options": stream_options: StreamOptions<'de>,
        /// The number of choices: 1.
        "n": n: u32 = [Only(1)],
        /// The number of attempts: 1.
        "best_of": best_of: u32 = [Only(1)],
        /// Whether the response repeats the prompt, which is not supported: `false`.
        "echo": echo: bool = [Always(false)],
        "logprobs": logprobs: UnsupportedField,
        "session_id": session_id: UnsupportedField,
        others: ExtraFields<'de, MAX_EXTRA> = PASSED_ON,
    }
}

/// Reads a Completions request.
///
/// # Errors
///
/// 400 `INVALID_REQUEST`, with the path of the field as `param` unless the body is not JSON.
pub fn read(body: &[u8]) -> Result<ChatCall, ApiError> {
    Ok(call(json::read(body)?, body.len())?)
}

fn call(body: CompletionRequestBody<'_>, body_bytes: usize) -> Result<ChatCall, FieldFault> {
    for (name, count) in [("n", body.n), ("best_of", body.best_of)] {
        if count.is_some_and(|count| count != 1) {
            let what = "must be 1: more than one choice is not supported";
            return Err(FieldFault::new(name, what));
        }
    }
    if body.echo == Some(true) {
        return Err(FieldFault::new("echo", "must be false"));
    }
    if body.max_tokens == Some(0) {
        return Err(FieldFault::new("max_tokens", "must be at least 1"));
    }
    let model = required(body.model, "model")?.into_string();
    check_length(&model, MAX_MODEL_CHARS, "model")?;
    let prompt = match required(body.prompt, "prompt")? {
        TextOr::Text(text) => text,
        TextOr::List(list) => required(list.0.into_iter().next(), "prompt[0]")?,
    };
    let suffix = body.suffix.filter(|suffix| !suffix.is_empty());
    if prompt.is_empty() && suffix.is_none() {
        return Err(FieldFault::new("prompt", "must not be empty"));
    }
    let preferences = preferences(body.stream_options)?;
    let mut extra = body.others.into_fields();
    extra.retain(|(name, json)| !says_nothing(name, json));
    extra.extend(suffix.map(|suffix| ("suffix".to_owned(), serde_json::json!(suffix).to_string())));
    let request = ChatRequest {
        max_output_tokens: 0,
        temperature: between(body.temperature, 0, 2, "temperature")?,
        top_p: between(body.top_p, 0, 1, "top_p")?,
        presence_penalty: between(body.presence_penalty, -2, 2, "presence_penalty")?,
        frequency_penalty: between(body.frequency_penalty, -2, 2, "frequency_penalty")?,
        seed: body.seed,
        stop: stop(body.stop)?,
        extra,
        stream: body.stream == Some(true),
        ..text_chat(model, [prompt])
    };
    Ok(ChatCall {
        client: client(NAME, &request.extra)?,
        request,
        attachments: Vec::new(),
        origins: vec![MessageOrigin::Apart],
        body_bytes,
        output_limit: body.max_tokens,
        output_limit_param: "max_tokens",
        needs_tools: false,
        chain: None,
        dialect: Dialect::OpenAiCompletions(preferences),
    })
}
