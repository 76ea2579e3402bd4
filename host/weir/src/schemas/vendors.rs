//! Vendors' dialects, described loosely: only the fields that weir itself reads. All other fields go to the provider
//! unchanged; the vendor's own documents describe them.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A request in OpenAI's Chat Completions. weir forwards OpenAI's other fields to the provider.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(example = json!({ "model": "demo", "messages": [{ "role": "user", "content": "Hello, weir!" }] }))]
pub struct ChatCompletionRequest {
    /// The id of a model, as `GET /models` lists them.
    #[schema(min_length = 1, max_length = 256)]
    pub model: String,
    /// The conversation so far.
    #[schema(min_items = 1)]
    pub messages: Vec<ChatMessage>,
    /// Whether weir streams the response as server-sent events.
    pub stream: Option<bool>,
    /// Maximum tokens of the response.
    #[schema(minimum = 1, maximum = 4_294_967_295_i64)]
    pub max_completion_tokens: Option<i64>,
    /// The sampling temperature.
    #[schema(minimum = 0, maximum = 2)]
    pub temperature: Option<f64>,
}

/// A service's request in OpenAI's Chat Completions, for the user who pays.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(example = json!({ "user_id": "usr_0", "model": "demo", "messages": [{ "role": "user", "content": "Hello, weir!" }] }))]
pub struct AgentCompletionRequest {
    /// The user who pays; default: the user of the `execution_id`.
    #[schema(min_length = 1, max_length = 256)]
    pub user_id: Option<String>,
    /// The task behind the request.
    #[schema(min_length = 1, max_length = 256)]
    pub task_id: Option<String>,
    /// The swarm behind the request; the request uses its user, task and budget.
    pub execution_id: Option<String>,
    /// The id of a model, as `GET /models` lists them.
    #[schema(min_length = 1, max_length = 256)]
    pub model: String,
    /// The conversation so far.
    #[schema(min_items = 1)]
    pub messages: Vec<ChatMessage>,
}

/// A message. `assistant` messages may have `tool_calls`, and `tool` messages have the `tool_call_id` to which they
/// respond.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ChatMessage {
    /// The author's role.
    pub role: ChatRole,
    /// A text; parts with texts, images and files are also valid.
    pub content: String,
}

/// The author's role.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChatRole {
    /// The operator of the app; `developer` is equivalent.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
}

/// A model's response in Chat Completions.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ChatCompletion {
    /// The response's id.
    pub id: String,
    /// `chat.completion`.
    pub object: String,
    /// The time of the response, in seconds since 1970.
    pub created: i64,
    /// The requested model.
    pub model: String,
    /// The response, as one choice.
    #[schema(value_type = Vec<Object>, min_items = 1)]
    pub choices: Vec<Value>,
    /// The token usage.
    #[schema(value_type = Object)]
    pub usage: Value,
}

/// A request in OpenAI's Completions. weir forwards OpenAI's other fields to the provider.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(example = json!({ "model": "demo", "prompt": "def add(a, b):", "suffix": "\n\nprint(add(1, 2))" }))]
pub struct CompletionRequest {
    /// The id of a model, as `GET /models` lists them.
    #[schema(min_length = 1, max_length = 256)]
    pub model: String,
    /// The text before the completion.
    #[schema(min_length = 1)]
    pub prompt: String,
    /// The text after the completion, for models that fill text in.
    pub suffix: Option<String>,
    /// Whether weir streams the response as server-sent events.
    pub stream: Option<bool>,
    /// Maximum tokens of the response.
    #[schema(minimum = 1, maximum = 4_294_967_295_i64)]
    pub max_tokens: Option<i64>,
    /// The sampling temperature.
    #[schema(minimum = 0, maximum = 2)]
    pub temperature: Option<f64>,
}

/// A model's response in Completions.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct TextCompletion {
    /// The response's id.
    pub id: String,
    /// `text_completion`.
    pub object: String,
    /// The time of the response, in seconds since 1970.
    pub created: i64,
    /// The requested model.
    pub model: String,
    /// The response, as one choice with `text`.
    #[schema(value_type = Vec<Object>, min_items = 1)]
    pub choices: Vec<Value>,
    /// The token usage.
    #[schema(value_type = Object)]
    pub usage: Value,
}

/// A request in OpenAI's Responses. weir forwards OpenAI's other fields to the provider.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(example = json!({ "model": "demo", "input": "Hello, weir!" }))]
pub struct ResponsesRequest {
    /// The id of a model.
    #[schema(min_length = 1, max_length = 256)]
    pub model: String,
    /// A text; lists of items are also valid.
    #[schema(min_length = 1)]
    pub input: String,
    /// The system instructions.
    pub instructions: Option<String>,
    /// Whether weir streams the response as server-sent events.
    pub stream: Option<bool>,
}

/// A model's response in Responses.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ResponsesAnswer {
    /// The response's id, for `previous_response_id` in the next request.
    pub id: String,
    /// `response`.
    pub object: String,
    /// `completed` or `incomplete`.
    pub status: String,
    /// The requested model.
    pub model: String,
    /// The response's items.
    #[schema(value_type = Vec<Object>)]
    pub output: Vec<Value>,
}

/// A request in Anthropic's Messages. weir forwards Anthropic's other fields to the provider.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(example = json!({ "model": "demo", "max_tokens": 100, "messages": [{ "role": "user", "content": "Hello, weir!" }] }))]
pub struct MessagesRequest {
    /// The id of a model.
    #[schema(min_length = 1, max_length = 256)]
    pub model: String,
    /// Maximum tokens of the response.
    #[schema(minimum = 1, maximum = 4_294_967_295_i64)]
    pub max_tokens: i64,
    /// The conversation so far.
    #[schema(min_items = 1)]
    pub messages: Vec<AnthropicMessage>,
    /// The system prompt.
    pub system: Option<String>,
    /// Whether weir streams the response as server-sent events.
    pub stream: Option<bool>,
}

/// A request in Anthropic's Messages to count tokens.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(example = json!({ "model": "demo", "messages": [{ "role": "user", "content": "Hello, weir!" }] }))]
pub struct CountTokensRequest {
    /// The id of a model.
    #[schema(min_length = 1, max_length = 256)]
    pub model: String,
    /// The conversation so far.
    #[schema(min_items = 1)]
    pub messages: Vec<AnthropicMessage>,
    /// The system prompt.
    pub system: Option<String>,
}

/// A message in Anthropic's format.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct AnthropicMessage {
    /// The author's role: `user` or `assistant`.
    pub role: AnthropicRole,
    /// A text; blocks are also valid.
    pub content: String,
}

/// The author's role.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AnthropicRole {
    /// The user.
    User,
    /// The model.
    Assistant,
}

/// A model's response in Messages.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct MessagesAnswer {
    /// The response's id.
    pub id: String,
    /// `message`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `assistant`.
    pub role: String,
    /// The requested model.
    pub model: String,
    /// The response's blocks.
    #[schema(value_type = Vec<Object>)]
    pub content: Vec<Value>,
    /// The token usage.
    #[schema(value_type = Object)]
    pub usage: Value,
}

/// The tokens of a request's input.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct TokenCount {
    /// weir's own estimate.
    pub input_tokens: i64,
}

/// A request in OpenAI's Images. weir forwards OpenAI's other fields to the provider.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(example = json!({ "model": "demo-image", "prompt": "A weir at dawn." }))]
pub struct ImageRequest {
    /// The id of a model that makes images.
    #[schema(min_length = 1, max_length = 256)]
    pub model: String,
    /// The description of the image.
    #[schema(min_length = 1)]
    pub prompt: String,
    /// Number of images, up to the model's limit.
    #[schema(minimum = 1, maximum = 10)]
    pub n: Option<i64>,
    /// Whether weir streams previews as server-sent events.
    pub stream: Option<bool>,
}

/// A request that edits images.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ImageEditRequest {
    /// The id of a model that makes images.
    #[schema(min_length = 1, max_length = 256)]
    pub model: String,
    /// The description of the image.
    #[schema(min_length = 1)]
    pub prompt: String,
    /// The source images: each an object with an `image_url`, which may be a data URL.
    #[schema(min_items = 1, max_items = 16)]
    pub images: Vec<ImageReference>,
}

/// An image at a URL, or in a data URL.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ImageReference {
    /// The image's URL.
    pub image_url: String,
}

/// A request that edits images, as a form.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ImageEditForm {
    /// The id of a model that makes images.
    pub model: String,
    /// The description of the image.
    pub prompt: String,
    /// The source image.
    #[schema(value_type = String, format = Binary)]
    pub image: Vec<u8>,
}

/// Generated images.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ImagesAnswer {
    /// The time of generation, in seconds since 1970.
    pub created: i64,
    /// The images, each in `b64_json`.
    #[schema(value_type = Vec<Object>)]
    pub data: Vec<Value>,
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

/// A request in Google's Gemini API. weir forwards some of Google's other fields to the provider.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({ "contents": [{ "role": "user", "parts": [{ "text": "Hello, weir!" }] }] }))]
pub struct GeminiRequest {
    /// The conversation so far.
    #[schema(min_items = 1)]
    pub contents: Vec<GeminiContent>,
    /// The system instruction.
    pub system_instruction: Option<GeminiContent>,
    /// The settings of the response.
    #[schema(value_type = Option<Object>)]
    pub generation_config: Option<Value>,
}

/// A turn of a conversation in Google's format.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct GeminiContent {
    /// The author's role: `user` or `model`.
    pub role: Option<GeminiRole>,
    /// The parts: texts, files, function calls and their results.
    #[schema(min_items = 1)]
    pub parts: Vec<GeminiPart>,
}

/// The author's role.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum GeminiRole {
    /// The user.
    User,
    /// The model.
    Model,
}

/// A text; other parts are also valid.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct GeminiPart {
    /// The text.
    pub text: String,
}

/// A model's response in Google's format, or the tokens of a request's input, in `totalTokens`.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GeminiAnswer {
    /// The response, as one candidate.
    #[schema(value_type = Option<Vec<Object>>)]
    pub candidates: Option<Vec<Value>>,
    /// The token usage.
    #[schema(value_type = Option<Object>)]
    pub usage_metadata: Option<Value>,
    /// The requested model.
    pub model_version: Option<String>,
    /// The response's id.
    pub response_id: Option<String>,
    /// weir's own estimate of the input.
    pub total_tokens: Option<i64>,
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

/// An event of a streamed response.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ServerSentEvent {
    /// The event's number, in streams that a client can resume.
    #[schema(nullable = false)]
    pub id: Option<String>,
    /// The event's kind.
    #[schema(nullable = false)]
    pub event: Option<String>,
    /// The event's data: JSON, or `[DONE]`.
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

/// A request in OpenAI's Embeddings. weir forwards other fields to the provider.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(example = json!({ "model": "demo-embedding", "input": "Hello, weir!" }))]
pub struct EmbeddingRequest {
    /// The id of a model of the kind `embeddings`, as `GET /models` lists them.
    #[schema(min_length = 1, max_length = 256)]
    pub model: String,
    /// A text; lists of texts, tokens and lists of tokens are also valid, up to 2,048 items.
    #[schema(min_length = 1)]
    pub input: String,
    /// The number of dimensions; default: the model's.
    #[schema(minimum = 1, maximum = 65_536)]
    pub dimensions: Option<i64>,
    /// `float` or `base64`; default: `float`.
    #[schema(pattern = "^(float|base64)$")]
    pub encoding_format: Option<String>,
    /// The use of the vectors, such as `query` or `document`, for providers that distinguish them.
    #[schema(min_length = 1, max_length = 64)]
    pub input_type: Option<String>,
}

/// The vectors of a request's texts.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct EmbeddingList {
    /// `list`.
    pub object: String,
    /// The vectors, in the order of the texts: objects with `index` and `embedding`.
    #[schema(value_type = Vec<Object>, min_items = 1)]
    pub data: Vec<Value>,
    /// The requested model.
    pub model: String,
    /// The token usage.
    #[schema(value_type = Object)]
    pub usage: Value,
}

/// A request in Cohere's Rerank. weir forwards other fields to the provider.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(example = json!({ "model": "demo-rerank", "query": "weir", "documents": ["A weir is a low dam.", "A cat sleeps."] }))]
pub struct RerankRequest {
    /// The id of a model of the kind `rerank`, as `GET /models` lists them.
    #[schema(min_length = 1, max_length = 256)]
    pub model: String,
    /// The query.
    #[schema(min_length = 1)]
    pub query: String,
    /// The documents; objects with a `text` are also valid.
    #[schema(min_items = 1, max_items = 10_000)]
    pub documents: Vec<String>,
    /// The number of documents in the response; default: all.
    #[schema(minimum = 1, maximum = 4_294_967_295_i64)]
    pub top_n: Option<i64>,
    /// Whether the response repeats the documents.
    pub return_documents: Option<bool>,
}

/// Documents in the order of their relevance.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct RankingAnswer {
    /// The response's id.
    pub id: String,
    /// The requested model.
    pub model: String,
    /// The documents: objects with `index` and `relevance_score`.
    #[schema(value_type = Vec<Object>)]
    pub results: Vec<Value>,
    /// The token usage.
    #[schema(value_type = Object)]
    pub usage: Value,
}

/// A request in OpenAI's Moderations. weir forwards other fields to the provider.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(example = json!({ "model": "demo-moderation", "input": "Hello, weir!" }))]
pub struct ModerationRequest {
    /// The id of a model of the kind `moderation`, as `GET /models` lists them; default: `omni-moderation-latest`.
    #[schema(min_length = 1, max_length = 256)]
    pub model: Option<String>,
    /// A text; a list of up to 1,024 texts is also valid.
    #[schema(min_length = 1)]
    pub input: String,
}

/// The verdicts on a request's texts.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ModerationAnswer {
    /// The response's id.
    pub id: String,
    /// The requested model.
    pub model: String,
    /// The verdicts, in the order of the texts: objects with `flagged`, `categories` and `category_scores`.
    #[schema(value_type = Vec<Object>, min_items = 1)]
    pub results: Vec<Value>,
    /// The token usage.
    #[schema(value_type = Object)]
    pub usage: Value,
}

/// A request in OpenAI's Speech. weir forwards other fields to the provider.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(example = json!({ "model": "demo-speech", "input": "Hello, weir!", "voice": "alloy" }))]
pub struct SpeechRequest {
    /// The id of a model of the kind `speech`, as `GET /models` lists them.
    #[schema(min_length = 1, max_length = 256)]
    pub model: String,
    /// The text.
    #[schema(min_length = 1, max_length = 1_048_576)]
    pub input: String,
    /// The name of a voice; an object with the `id` of a custom voice is also valid.
    #[schema(min_length = 1, max_length = 256)]
    pub voice: String,
    /// The manner of speaking, in words.
    #[schema(max_length = 16_384)]
    pub instructions: Option<String>,
    /// `mp3`, `opus`, `aac`, `flac`, `wav` or `pcm`; default: `mp3`.
    #[schema(pattern = "^(mp3|opus|aac|flac|wav|pcm)$")]
    pub response_format: Option<String>,
    /// The speed; default: 1.
    #[schema(minimum = 0.25, maximum = 4)]
    pub speed: Option<f64>,
    /// `audio` for bytes, or `sse` for events; default: `audio`.
    #[schema(pattern = "^(audio|sse)$")]
    pub stream_format: Option<String>,
}

/// The bytes of a recording.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(value_type = String, format = Binary)]
pub struct Recording(pub Vec<u8>);

/// A request for the words of a recording, as a form.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct TranscriptionForm {
    /// The id of a model of the kind `transcription`, as `GET /models` lists them.
    pub model: String,
    /// The recording: flac, mp3, mp4, ogg, wav or webm.
    #[schema(value_type = String, format = Binary)]
    pub file: Vec<u8>,
    /// The language of the recording, such as `en`.
    pub language: Option<String>,
    /// A text that goes before the recording's, or names words of it.
    pub prompt: Option<String>,
    /// `json`, `text`, `verbose_json`, `srt` or `vtt`; default: `json`.
    pub response_format: Option<String>,
    /// The randomness; 0 to 1.
    pub temperature: Option<f64>,
    /// The timings of `verbose_json`: `word`, `segment`.
    #[serde(rename = "timestamp_granularities[]")]
    pub timings: Option<Vec<String>>,
    /// Whether the response is a stream of events.
    pub stream: Option<bool>,
}

/// A request for the words of a recording in English, as a form.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct TranslationForm {
    /// The id of a model of the kind `transcription`, as `GET /models` lists them.
    pub model: String,
    /// The recording: flac, mp3, mp4, ogg, wav or webm.
    #[schema(value_type = String, format = Binary)]
    pub file: Vec<u8>,
    /// An English text that goes before the recording's, or names words of it.
    pub prompt: Option<String>,
    /// `json`, `text`, `verbose_json`, `srt` or `vtt`; default: `json`.
    pub response_format: Option<String>,
    /// The randomness; 0 to 1.
    pub temperature: Option<f64>,
}

/// The words of a recording.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct TranscriptAnswer {
    /// The words.
    pub text: String,
    /// In `verbose_json`: the language.
    pub language: Option<String>,
    /// In `verbose_json`: the length in seconds.
    pub duration: Option<f64>,
    /// In `verbose_json`: the parts with their times.
    #[schema(value_type = Option<Vec<Object>>)]
    pub segments: Option<Vec<Value>>,
    /// In `verbose_json`: the words with their times.
    #[schema(value_type = Option<Vec<Object>>)]
    pub words: Option<Vec<Value>>,
    /// The used tokens or seconds.
    #[schema(value_type = Object)]
    pub usage: Value,
}

/// The words of a recording as text or subtitles.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct TranscriptText(pub String);
