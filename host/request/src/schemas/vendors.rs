//! Vendors' dialects. The `dialects` crate describes the requests and responses that it reads and writes: here are their
//! names, for the annotations of handlers. The finish of the document puts the schemas into the document.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// Declares types whose schemas the document adds by their names.
#[macro_export]
macro_rules! schema_names {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        $(
            $(#[doc = $doc])*
            pub struct $name;

            impl ::utoipa::PartialSchema for $name {
                fn schema() -> ::utoipa::openapi::RefOr<::utoipa::openapi::Schema> {
                    ::utoipa::openapi::RefOr::T(::utoipa::openapi::Schema::default())
                }
            }

            impl ::utoipa::ToSchema for $name {}
        )*
    };
}

schema_names! {
    /// A request in OpenAI's Chat Completions.
    ChatCompletionRequest,
    /// The same of a service, for the user who pays.
    AgentCompletionRequest,
    /// A response in Chat Completions.
    ChatCompletion,
    /// A stream in Chat Completions.
    ChatStreamEvent,
    /// A request in OpenAI's Completions.
    CompletionRequest,
    /// A response in Completions.
    TextCompletion,
    /// A stream in Completions.
    TextStreamEvent,
    /// A request in OpenAI's Responses.
    ResponsesRequest,
    /// A response in Responses.
    ResponsesAnswer,
    /// A stream in Responses.
    ResponsesStreamEvent,
    /// A request in Anthropic's Messages.
    MessagesRequest,
    /// The same, to count tokens.
    CountTokensRequest,
    /// A response in Messages.
    MessagesAnswer,
    /// A stream in Messages.
    MessagesStreamEvent,
    /// A request in Google's Gemini API.
    GeminiRequest,
    /// A response in Google's format, or a count of tokens.
    GeminiResult,
    /// A stream in Google's format.
    GeminiStreamEvent,
}

/// The tokens of a request's input.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct TokenCount {
    /// weir's own estimate.
    pub input_tokens: i64,
}

/// Models, in a format for OpenAI's and Anthropic's SDKs.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct VendorModelList {
    /// `list`.
    pub object: String,
    /// The models.
    pub data: Vec<VendorModel>,
    /// Whether more models follow.
    pub has_more: bool,
    /// The first model's id.
    pub first_id: Option<String>,
    /// The last model's id.
    pub last_id: Option<String>,
}

/// A model, in a format for OpenAI's and Anthropic's SDKs.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct VendorModel {
    /// The model's id.
    pub id: String,
    /// `model`.
    pub object: String,
    /// The time from which the gateway serves the model, in seconds since 1970.
    pub created: i64,
    /// The provider.
    pub owned_by: String,
    /// The name that lists show.
    pub display_name: String,
    /// Tokens of input and output together.
    pub max_input_tokens: i64,
    /// The largest output limit, in tokens.
    pub max_tokens: i64,
}

/// The tokens of a request's input, in Google's format.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GeminiTokenCount {
    /// weir's own estimate.
    pub total_tokens: i64,
}

/// Models, in Google's format.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GeminiModelList {
    /// The models.
    pub models: Vec<GeminiModel>,
    /// The next page's token, if more models follow.
    #[schema(nullable = false)]
    pub next_page_token: Option<String>,
}

/// A model, in Google's format.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GeminiModel {
    /// The model's id behind `models/`.
    pub name: String,
    /// The name that lists show.
    pub display_name: String,
    /// Tokens of input and output together.
    pub input_token_limit: i64,
    /// The largest output limit, in tokens.
    pub output_token_limit: i64,
    /// The model's methods.
    pub supported_generation_methods: Vec<String>,
}

/// An error in OpenAI's format.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct OpenAiError {
    /// The error.
    pub error: OpenAiErrorBody,
}

/// The error, in OpenAI's terms.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct OpenAiErrorBody {
    /// The message, for people.
    pub message: String,
    /// OpenAI's class of the error.
    #[serde(rename = "type")]
    pub kind: String,
    /// The path of the invalid field.
    pub param: Option<String>,
    /// OpenAI's code, if it has one.
    pub code: Option<String>,
    /// weir's own code.
    pub weir_code: String,
    /// The request's id.
    pub request_id: String,
}

/// An error in Anthropic's format.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct AnthropicError {
    /// `error`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The error: `type`, `message`, and weir's own code as `weir_code`.
    #[schema(value_type = Object)]
    pub error: Value,
    /// The request's id.
    pub request_id: String,
}

/// An error in Google's format.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct GoogleError {
    /// The error: `code`, `message`, `status`, and weir's own code as the `reason` of the first of the `details`.
    #[schema(value_type = Object)]
    pub error: Value,
}

/// An event of a stream.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ServerSentEvent {
    /// The event's number, in streams that a client can resume.
    #[schema(nullable = false)]
    pub id: Option<String>,
    /// The event's kind.
    #[schema(nullable = false)]
    pub event: Option<String>,
    /// The event's data, as JSON.
    pub data: String,
}

/// A message of the Model Context Protocol, revision 2026-07-28, or an earlier one since 2025-03-26.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(example = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {} }))]
pub struct McpMessage {
    /// `2.0`.
    #[schema(pattern = "^2\\.0$")]
    pub jsonrpc: String,
    /// The message's id, which the response repeats; a notification has none.
    pub id: Option<McpId>,
    /// `server/discover`, `tools/list`, `tools/call`; `initialize` and `ping` for older clients.
    pub method: String,
    /// The method's parameters.
    #[schema(value_type = Option<Object>)]
    pub params: Option<Value>,
}

/// The id of a message: an integer or a text.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum McpId {
    /// An integer.
    Number(i64),
    /// A text.
    Text(String),
}

/// A response of the Model Context Protocol.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct McpAnswer {
    /// `2.0`.
    pub jsonrpc: String,
    /// The request's id.
    pub id: Value,
    /// The method's result.
    #[schema(value_type = Option<Object>)]
    pub result: Option<Value>,
    /// The error, in a response to an older client.
    #[schema(value_type = Option<Object>)]
    pub error: Option<Value>,
}

/// An error of the Model Context Protocol.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct McpError {
    /// `2.0`.
    pub jsonrpc: String,
    /// The request's id; null if it could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Value>,
    /// The error's code, message and details.
    #[schema(value_type = Object)]
    pub error: Value,
}
