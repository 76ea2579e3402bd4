//! The JSON of a request: its objects, and the types of their fields.
//!
//! Google reads protocol buffers' JSON, so each name of several words has two spellings. A part is parsed from raw JSON
//! after its content: a part of an unknown type is passed on unchanged.

use serde_json::Value;

use crate::json::{
    BoundedList, ExtraFields, IgnoredField, MAX_EXTRA, MAX_EXTRA_WITHIN, MAX_ID_CHARS,
    MAX_MESSAGES, MAX_PARTS, MAX_STOPS, MAX_TOOLS, Raw, RefusedFields, Text, UnsupportedField,
    object,
};
use crate::schema::{Described as _, FurtherFields, KnownFields, Schemas};

/// The maximum modalities of a response.
const MAX_MODALITIES: usize = 8;

/// The maximum characters of a stop sequence.
pub(super) const MAX_STOP_CHARS: usize = 1_024;
/// The maximum characters of a modality's name.
pub(super) const MAX_MODALITY_CHARS: usize = 32;
/// The maximum characters of a function's name.
pub(super) const MAX_NAME_CHARS: usize = 128;
/// The maximum characters of a file's name.
pub(super) const MAX_FILE_NAME_CHARS: usize = 256;

/// Fields of Google's servers (google-genai 3.6.1, `models.py`).
const PASSED_ON: KnownFields = &[
    (
        "cachedContent",
        "The name of a beginning that the provider's cache keeps.",
    ),
    (
        "labels",
        "An object with texts, for the provider's own records.",
    ),
    ("modelArmorConfig", "The provider's own checks of content."),
    (
        "safetySettings",
        "A list of the provider's limits of harmful content.",
    ),
    ("serviceTier", "The provider's class of service."),
    ("store", "Whether the provider keeps the response."),
];

/// Fields of Google's servers (google-genai 3.6.1, `types.py`: `GenerationConfig`).
const SETTINGS: KnownFields = &[
    (
        "audioTimestamp",
        "Whether the model sees times of recordings.",
    ),
    (
        "audioTranscriptionConfig",
        "The settings of the transcription of recordings.",
    ),
    (
        "enableAffectiveDialog",
        "Whether the model reacts to the user's mood.",
    ),
    (
        "enableEnhancedCivicAnswers",
        "Whether the response uses civic information.",
    ),
    ("imageConfig", "The settings of images in the response."),
    (
        "logprobs",
        "The number of likeliest alternatives for each token.",
    ),
    (
        "mediaResolution",
        "The detail in which the model sees files.",
    ),
    ("modelSelectionConfig", "The provider's choice of a model."),
    (
        "responseLogprobs",
        "Whether the response has the log probabilities of its tokens.",
    ),
    ("routingConfig", "The provider's choice of a route."),
    ("speechConfig", "The settings of speech in the response."),
    ("translationConfig", "The settings of translation."),
];

/// Fields of Google's servers (google-genai 3.6.1, `types.py`: `Part`).
const PARTS: KnownFields = &[
    (
        "codeExecutionResult",
        "The result of code that the provider has run.",
    ),
    ("executableCode", "Code that the provider runs."),
    (
        "mediaResolution",
        "The detail in which the model sees the file.",
    ),
    ("partMetadata", "An object with facts about the part."),
    ("toolCall", "The call of a tool of the provider."),
    ("toolResponse", "The result of a tool of the provider."),
    (
        "videoMetadata",
        "The stretch of a video that the model sees.",
    ),
];

/// Fields of Google's servers (google-genai 3.6.1, `types.py`: `Tool`).
const TOOLS: KnownFields = &[
    ("codeExecution", "The provider runs code."),
    ("computerUse", "The provider uses a computer."),
    (
        "enterpriseWebSearch",
        "The provider searches the web, for enterprises.",
    ),
    ("exaAiSearch", "The provider searches with Exa."),
    ("fileSearch", "The provider searches files."),
    ("googleMaps", "The provider searches Google Maps."),
    ("googleSearch", "The provider searches the web."),
    (
        "googleSearchRetrieval",
        "The earlier form of `googleSearch`.",
    ),
    ("mcpServers", "The MCP servers that the provider calls."),
    ("parallelAiSearch", "The provider searches with Parallel."),
    ("retrieval", "The provider reads a data store."),
    ("urlContext", "The provider reads pages by URL."),
];

object! {
    /// A request in Google's Gemini API. Each name may also be in snake case, such as `system_instruction`. Fields that
    /// weir does not know go on to the provider.
    struct GenerateRequestBody<'de> as "GeminiRequest" {
        /// The model of the path; it may be absent.
        "model": model: Text<'de>,
        /// The conversation so far.
        "contents": contents: Contents<'de> = [Required, Items(1)],
        /// The system instruction, as parts with texts.
        "systemInstruction" | "system_instruction": system_instruction: GeminiContent<'de>,
        /// The tools that the model may call.
        "tools": tools: GeminiTools<'de>,
        /// The choice of a function; the model chooses unless set.
        "toolConfig" | "tool_config": tool_config: ToolConfig<'de>,
        /// The settings of the response.
        "generationConfig" | "generation_config": generation_config: GenerationConfig<'de>,
        "session_id": session_id: UnsupportedField,
        others: ExtraFields<'de, MAX_EXTRA> = PASSED_ON,
    }
}

object! {
    /// A request to count tokens: contents alone, or a complete request.
    struct CountRequestBody<'de> as "GeminiCountRequest" {
        /// The model of the path; it may be absent.
        "model": model: Text<'de>,
        /// The conversation so far.
        "contents": contents: Contents<'de> = [Items(1)],
        /// A complete request, instead of `contents`.
        "generateContentRequest" | "generate_content_request": request: GenerateRequestBody<'de>,
        others: RefusedFields,
    }
}

/// The contents of a body.
pub(super) type Contents<'de> = BoundedList<GeminiContent<'de>, MAX_MESSAGES>;

/// The tools of a body; one entry may declare many functions.
pub(super) type GeminiTools<'de> = BoundedList<GeminiTool<'de>, MAX_TOOLS>;

object! {
    /// A turn of a conversation.
    struct GeminiContent<'de> as "GeminiContent" {
        /// The author's role; default: `user`. `function` is an earlier role of results.
        "role": role: Text<'de> = [OneOf(&["user", "model", "function"])],
        /// The parts. Only the model's turn may have none.
        "parts": parts: BoundedList<Raw<'de>, MAX_PARTS> = [Is(parts_schema)],
        others: RefusedFields,
    }
}

object! {
    /// A part of a turn. One of its fields has the data. A part of a kind that weir does not know goes on to the
    /// provider.
    struct GeminiPart<'de> as "GeminiPart" {
        /// A text.
        "text": text: String,
        /// Whether the text is the model's thought.
        "thought": thought: bool,
        /// The provider's proof of the part. Send it back unchanged.
        "thoughtSignature" | "thought_signature": thought_signature: Text<'de>,
        /// A file with its bytes.
        "inlineData" | "inline_data": inline_data: Blob<'de>,
        /// A file by its URL.
        "fileData" | "file_data": file_data: FileData<'de>,
        /// A call of a function, by the model.
        "functionCall" | "function_call": function_call: FunctionCall<'de>,
        /// The result of a call, by the user.
        "functionResponse" | "function_response": function_response: FunctionResponse<'de>,
        others: ExtraFields<'de, MAX_EXTRA_WITHIN> = PARTS,
    }
}

object! {
    /// A file with its bytes.
    struct Blob<'de> as "GeminiBlob" {
        /// The media type, such as `image/png`.
        "mimeType" | "mime_type": mime_type: Text<'de> = [Required],
        /// The bytes in base64.
        "data": data: Text<'de> = [Required],
        /// The name of the file.
        "displayName" | "display_name": display_name: String = [Chars(0, MAX_FILE_NAME_CHARS)],
        others: RefusedFields,
    }
}

object! {
    /// A file by its URL.
    struct FileData<'de> as "GeminiFileData" {
        /// The media type, such as `image/png`.
        "mimeType" | "mime_type": mime_type: Text<'de>,
        /// An `https` URL.
        "fileUri" | "file_uri": file_uri: Text<'de> = [Required],
        /// The name of the file.
        "displayName" | "display_name": display_name: String = [Chars(0, MAX_FILE_NAME_CHARS)],
        others: RefusedFields,
    }
}

object! {
    /// A call of a function.
    struct FunctionCall<'de> as "GeminiFunctionCall" {
        /// The id of the call, which the result repeats.
        "id": id: String = [Chars(0, MAX_ID_CHARS)],
        /// The name of the function.
        "name": name: String = [Required, Chars(1, MAX_ID_CHARS)],
        /// The arguments.
        "args": args: Raw<'de> = [Object],
        others: RefusedFields,
    }
}

object! {
    /// The result of a call.
    struct FunctionResponse<'de> as "GeminiFunctionResponse" {
        /// The id of the call; without it, the name finds the call.
        "id": id: String = [Chars(0, MAX_ID_CHARS)],
        /// The name of the function.
        "name": name: String = [Required, Chars(1, MAX_ID_CHARS)],
        /// The result: an object with `output`, with `error`, or with any fields.
        "response": response: Raw<'de> = [Required, Object],
        /// Files of the result.
        "parts": parts: BoundedList<FunctionResponsePart<'de>, MAX_PARTS>,
        others: RefusedFields,
    }
}

object! {
    /// The fields that determine a result's form.
    struct ResultFields<'de> as "GeminiResultFields" {
        "output": output: Raw<'de>,
        "error": error: Raw<'de>,
        others: OtherFields,
    }
}

/// Notes whether an object has further fields.
#[derive(Default)]
pub(super) struct OtherFields(pub(super) bool);

impl OtherFields {
    pub(super) fn read<'de, A: serde::de::MapAccess<'de>>(
        &mut self,
        _: Text<'de>,
        _: &[&'static str],
        map: &mut A,
    ) -> Result<(), A::Error> {
        self.0 = true;
        map.next_value::<IgnoredField>().map(drop)
    }

    fn described(known: KnownFields) -> FurtherFields {
        FurtherFields::Free(known)
    }
}

object! {
    /// A file of a result, either with its bytes or by its URL.
    struct FunctionResponsePart<'de> as "GeminiFunctionResponsePart" {
        /// A file with its bytes.
        "inlineData" | "inline_data": inline_data: Blob<'de>,
        /// A file by its URL.
        "fileData" | "file_data": file_data: FileData<'de>,
        others: RefusedFields,
    }
}

object! {
    /// Functions of the client, or a tool of the provider.
    struct GeminiTool<'de> as "GeminiTool" {
        /// The functions of the client.
        "functionDeclarations" | "function_declarations": functions: BoundedList<FunctionDeclaration<'de>, MAX_TOOLS>,
        others: ExtraFields<'de, MAX_EXTRA> = TOOLS,
    }
}

object! {
    /// A function of the client.
    struct FunctionDeclaration<'de> as "GeminiFunction" {
        /// The name of the function.
        "name": name: String = [Required, Chars(1, MAX_NAME_CHARS)],
        /// The purpose of the function, for the model.
        "description": description: String,
        /// The parameters, as a schema in Google's form.
        "parameters": parameters: Raw<'de> = [Object],
        /// The parameters, as a JSON schema, instead of `parameters`.
        "parametersJsonSchema" | "parameters_json_schema": parameters_json_schema: Raw<'de> = [Object],
        /// The result, as a schema in Google's form. weir does not read this field: the provider does.
        "response": response: Raw<'de>,
        /// The result, as a JSON schema. weir does not read this field: the provider does.
        "responseJsonSchema" | "response_json_schema": response_json_schema: Raw<'de>,
        others: ExtraFields<'de, MAX_EXTRA_WITHIN>,
    }
}

object! {
    /// The choice of a function.
    struct ToolConfig<'de> as "GeminiToolConfig" {
        /// The choice of a function.
        "functionCallingConfig" | "function_calling_config": function_calling: FunctionCallingConfig<'de>,
        others: RefusedFields,
    }
}

object! {
    /// The choice of a function.
    struct FunctionCallingConfig<'de> as "GeminiFunctionCallingConfig" {
        /// `AUTO`, any of the functions, none, or calls that must fit their schemas; default: `AUTO`.
        "mode": mode: Text<'de> = [OneOf(&["MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"])],
        /// With `ANY` or `VALIDATED`: the functions among which the model chooses.
        "allowedFunctionNames" | "allowed_function_names": allowed: BoundedList<String, MAX_TOOLS>,
        others: RefusedFields,
    }
}

object! {
    /// The settings of the response.
    struct GenerationConfig<'de> as "GeminiGenerationConfig" {
        /// The maximum tokens of the response, thoughts included; default: the model's maximum.
        "maxOutputTokens" | "max_output_tokens": max_output_tokens: u32 = [AtLeast(1)],
        /// The sampling temperature: a low one makes the response more predictable.
        "temperature": temperature: f64 = [Between(0.0, 2.0)],
        /// The share of probability from which tokens are sampled.
        "topP" | "top_p": top_p: f64 = [Between(0.0, 1.0)],
        /// The number of likeliest tokens from which one is sampled; a whole number.
        // Google's SDK for Python writes it with a fraction: `40.0`.
        "topK" | "top_k": top_k: f64 = [Between(1.0, u32::MAX as f64)],
        /// A number that makes repeated responses more alike.
        "seed": seed: i64,
        /// Texts before which the response ends.
        "stopSequences" | "stop_sequences": stop_sequences: BoundedList<String, MAX_STOPS> = [EachChars(1, MAX_STOP_CHARS)],
        /// A positive number makes tokens that have occurred less likely.
        "presencePenalty" | "presence_penalty": presence_penalty: f64 = [Between(-2.0, 2.0)],
        /// A positive number makes tokens less likely the more often they have occurred.
        "frequencyPenalty" | "frequency_penalty": frequency_penalty: f64 = [Between(-2.0, 2.0)],
        /// The number of candidates: 1.
        "candidateCount" | "candidate_count": candidate_count: u32 = [Only(1)],
        /// The form of the response's text.
        "responseMimeType" | "response_mime_type": response_mime_type: Text<'de> = [OneOf(&["text/plain", "application/json"])],
        /// The response's schema in Google's form.
        "responseSchema" | "response_schema": response_schema: Raw<'de> = [Object],
        /// The response's JSON schema, instead of `responseSchema`.
        "responseJsonSchema" | "response_json_schema": response_json_schema: Raw<'de> = [Object],
        /// The kinds of the response's content, such as `TEXT` and `IMAGE`.
        "responseModalities" | "response_modalities": response_modalities: BoundedList<Text<'de>, MAX_MODALITIES> = [EachChars(1, MAX_MODALITY_CHARS)],
        /// The settings of the model's thoughts.
        "thinkingConfig" | "thinking_config": thinking: ThinkingConfig<'de>,
        others: ExtraFields<'de, MAX_EXTRA> = SETTINGS,
    }
}

object! {
    /// The settings of the model's thoughts.
    struct ThinkingConfig<'de> as "GeminiThinkingConfig" {
        /// Whether the response has thoughts.
        "includeThoughts" | "include_thoughts": include_thoughts: bool,
        /// The maximum tokens of the thoughts; -1 if the model chooses.
        "thinkingBudget" | "thinking_budget": budget: i64 = [Between(-1.0, u32::MAX as f64)],
        /// The effort of the model's thoughts, instead of `thinkingBudget`.
        "thinkingLevel" | "thinking_level": level: Text<'de> = [OneOf(&["THINKING_LEVEL_UNSPECIFIED", "MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH"])],
        others: RefusedFields,
    }
}

fn parts_schema(schemas: &mut Schemas) -> Value {
    BoundedList::<GeminiPart<'_>, MAX_PARTS>::schema(schemas)
}
