//! Vendors' dialects, loosely: the fields that weir looks at itself. All others go to the provider as they are, and what
//! they mean is in the vendor's own documents.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A request in OpenAI's Chat Completions. Other fields of OpenAI's go to the provider.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(example = json!({ "model": "demo", "messages": [{ "role": "user", "content": "Hello, weir!" }] }))]
pub struct ChatCompletionRequest {
    /// The id of a model, as `GET /models` lists them.
    #[schema(min_length = 1, max_length = 256)]
    pub model: String,
    /// What was said so far.
    #[schema(min_items = 1)]
    pub messages: Vec<ChatMessage>,
    /// Whether the answer comes in pieces, as server-sent events.
    pub stream: Option<bool>,
    /// The most tokens of the answer.
    #[schema(minimum = 1, maximum = 4_294_967_295_i64)]
    pub max_completion_tokens: Option<i64>,
    /// How much is left to chance.
    #[schema(minimum = 0, maximum = 2)]
    pub temperature: Option<f64>,
}

/// A request of another service's, in OpenAI's Chat Completions, for the user who pays.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(example = json!({ "user_id": "usr_0", "model": "demo", "messages": [{ "role": "user", "content": "Hello, weir!" }] }))]
pub struct AgentCompletionRequest {
    /// The user who pays; unless set, the `execution_id` says it.
    #[schema(min_length = 1, max_length = 256)]
    pub user_id: Option<String>,
    /// The task that it is for.
    #[schema(min_length = 1, max_length = 256)]
    pub task_id: Option<String>,
    /// The swarm that it is for, whose user, task and budget it draws on.
    pub execution_id: Option<String>,
    /// The id of a model, as `GET /models` lists them.
    #[schema(min_length = 1, max_length = 256)]
    pub model: String,
    /// What was said so far.
    #[schema(min_items = 1)]
    pub messages: Vec<ChatMessage>,
}

/// A message. `assistant` ones may have `tool_calls`, and `tool` ones have the `tool_call_id` that they answer.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ChatMessage {
    /// Who says it.
    pub role: ChatRole,
    /// A text; parts of texts, images and files are taken, too.
    pub content: String,
}

/// Who says something.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChatRole {
    /// Whoever runs the app; `developer` says the same.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
}

/// What a model has answered, in Chat Completions.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ChatCompletion {
    /// The answer's id.
    pub id: String,
    /// `chat.completion`.
    pub object: String,
    /// When it was made, in seconds since 1970.
    pub created: i64,
    /// The model that was asked for.
    pub model: String,
    /// The answer: one choice.
    #[schema(value_type = Vec<Object>, min_items = 1)]
    pub choices: Vec<Value>,
    /// The tokens that it came to.
    #[schema(value_type = Object)]
    pub usage: Value,
}

/// A request in OpenAI's Responses. Other fields of OpenAI's go to the provider.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(example = json!({ "model": "demo", "input": "Hello, weir!" }))]
pub struct ResponsesRequest {
    /// The id of a model.
    #[schema(min_length = 1, max_length = 256)]
    pub model: String,
    /// A text; lists of items are taken, too.
    #[schema(min_length = 1)]
    pub input: String,
    /// What stands before it.
    pub instructions: Option<String>,
    /// Whether the answer comes in pieces, as server-sent events.
    pub stream: Option<bool>,
}

/// What a model has answered, in Responses.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ResponsesAnswer {
    /// The answer's id, which the next request may name as `previous_response_id`.
    pub id: String,
    /// `response`.
    pub object: String,
    /// `completed` or `incomplete`.
    pub status: String,
    /// The model that was asked for.
    pub model: String,
    /// What it has answered, item by item.
    #[schema(value_type = Vec<Object>)]
    pub output: Vec<Value>,
}

/// A request in Anthropic's Messages. Other fields of Anthropic's go to the provider.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(example = json!({ "model": "demo", "max_tokens": 100, "messages": [{ "role": "user", "content": "Hello, weir!" }] }))]
pub struct MessagesRequest {
    /// The id of a model.
    #[schema(min_length = 1, max_length = 256)]
    pub model: String,
    /// The most tokens of the answer.
    #[schema(minimum = 1, maximum = 4_294_967_295_i64)]
    pub max_tokens: i64,
    /// What was said so far.
    #[schema(min_items = 1)]
    pub messages: Vec<AnthropicMessage>,
    /// What stands before it.
    pub system: Option<String>,
    /// Whether the answer comes in pieces, as server-sent events.
    pub stream: Option<bool>,
}

/// A message in Anthropic's Messages whose tokens are to be counted.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(example = json!({ "model": "demo", "messages": [{ "role": "user", "content": "Hello, weir!" }] }))]
pub struct CountTokensRequest {
    /// The id of a model.
    #[schema(min_length = 1, max_length = 256)]
    pub model: String,
    /// What was said so far.
    #[schema(min_items = 1)]
    pub messages: Vec<AnthropicMessage>,
    /// What stands before it.
    pub system: Option<String>,
}

/// A message of Anthropic's.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct AnthropicMessage {
    /// Who says it: `user` or `assistant`.
    pub role: AnthropicRole,
    /// A text; blocks are taken, too.
    pub content: String,
}

/// Who says something.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AnthropicRole {
    /// The user.
    User,
    /// The model.
    Assistant,
}

/// What a model has answered, in Messages.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct MessagesAnswer {
    /// The answer's id.
    pub id: String,
    /// `message`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `assistant`.
    pub role: String,
    /// The model that was asked for.
    pub model: String,
    /// What it has answered, block by block.
    #[schema(value_type = Vec<Object>)]
    pub content: Vec<Value>,
    /// The tokens that it came to.
    #[schema(value_type = Object)]
    pub usage: Value,
}

/// The tokens of a message's input.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct TokenCount {
    /// By weir's own estimate.
    pub input_tokens: i64,
}

/// A request in OpenAI's Images. Other fields of OpenAI's go to the provider.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(example = json!({ "model": "demo-image", "prompt": "A weir at dawn." }))]
pub struct ImageRequest {
    /// The id of a model that makes images.
    #[schema(min_length = 1, max_length = 256)]
    pub model: String,
    /// What is to be seen.
    #[schema(min_length = 1)]
    pub prompt: String,
    /// How many images; what the model allows.
    #[schema(minimum = 1, maximum = 10)]
    pub n: Option<i64>,
    /// Whether previews come first, as server-sent events.
    pub stream: Option<bool>,
}

/// The same with images to begin with.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ImageEditRequest {
    /// The id of a model that makes images.
    #[schema(min_length = 1, max_length = 256)]
    pub model: String,
    /// What is to be seen.
    #[schema(min_length = 1)]
    pub prompt: String,
    /// The images: each an object with an `image_url`, which may be a data URL.
    #[schema(min_items = 1, max_items = 16)]
    pub images: Vec<ImageReference>,
}

/// An image that is elsewhere, or in a data URL.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ImageReference {
    /// Where it is.
    pub image_url: String,
}

/// The same as a form.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ImageEditForm {
    /// The id of a model that makes images.
    pub model: String,
    /// What is to be seen.
    pub prompt: String,
    /// The image to begin with.
    #[schema(value_type = String, format = Binary)]
    pub image: Vec<u8>,
}

/// Images that were made.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ImagesAnswer {
    /// When they were, in seconds since 1970.
    pub created: i64,
    /// The images, each in `b64_json`.
    #[schema(value_type = Vec<Object>)]
    pub data: Vec<Value>,
}

/// Models as OpenAI's SDKs and Anthropic's read them.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct VendorModelList {
    /// `list`.
    pub object: String,
    /// The models.
    pub data: Vec<VendorModel>,
    /// Whether there are more.
    pub has_more: bool,
    /// The first one's id.
    pub first_id: Option<String>,
    /// The last one's id.
    pub last_id: Option<String>,
}

/// A model as OpenAI's SDKs and Anthropic's read it.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct VendorModel {
    /// Its id.
    pub id: String,
    /// `model`.
    pub object: String,
    /// When the gateway began to serve it, in seconds since 1970.
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

/// An error in OpenAI's words.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct OpenAiError {
    /// What is wrong.
    pub error: OpenAiErrorBody,
}

/// What is wrong, in OpenAI's words.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct OpenAiErrorBody {
    /// For people.
    pub message: String,
    /// OpenAI's word for this class of error.
    #[serde(rename = "type")]
    pub kind: String,
    /// The path of the field that is wrong.
    pub param: Option<String>,
    /// OpenAI's code, if it has one.
    pub code: Option<String>,
    /// weir's own code.
    pub weir_code: String,
    /// The request's id.
    pub request_id: String,
}

/// An error in Anthropic's words.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct AnthropicError {
    /// `error`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What is wrong: `type`, `message`, and weir's own code as `weir_code`.
    #[schema(value_type = Object)]
    pub error: Value,
    /// The request's id.
    pub request_id: String,
}

/// One of the events of an answer that comes in pieces.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ServerSentEvent {
    /// Its number, where a client can come back for what is behind it.
    #[schema(nullable = false)]
    pub id: Option<String>,
    /// Its kind.
    #[schema(nullable = false)]
    pub event: Option<String>,
    /// What it says: JSON, or `[DONE]`.
    pub data: String,
}

/// A message of the Model Context Protocol, revision 2026-07-28, or of those before it from 2025-03-26 on.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(example = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {} }))]
pub struct McpMessage {
    /// `2.0`.
    #[schema(pattern = "^2\\.0$")]
    pub jsonrpc: String,
    /// The response has the same; a notification has none.
    pub id: Option<McpId>,
    /// `server/discover`, `tools/list`, `tools/call`; `initialize` and `ping` for older clients.
    pub method: String,
    /// What the method takes.
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

/// An answer of the Model Context Protocol.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct McpAnswer {
    /// `2.0`.
    pub jsonrpc: String,
    /// The request's.
    pub id: Value,
    /// What the method answers.
    #[schema(value_type = Option<Object>)]
    pub result: Option<Value>,
    /// Why it does not, where an older client asks.
    #[schema(value_type = Option<Object>)]
    pub error: Option<Value>,
}

/// An error in the words of the Model Context Protocol.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct McpError {
    /// `2.0`.
    pub jsonrpc: String,
    /// The request's; null where it could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Value>,
    /// Its code, a message, and more of it.
    #[schema(value_type = Object)]
    pub error: Value,
}
