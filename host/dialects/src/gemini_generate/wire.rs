//! The JSON of a request: its objects, and the types of their fields.
//!
//! Google reads protocol buffers' JSON, so each name of several words has two spellings. A part is parsed from raw JSON
//! after its content: a part of an unknown type is passed on unchanged.

use crate::json::{
    BoundedList, ExtraFields, IgnoredField, MAX_EXTRA, MAX_EXTRA_WITHIN, MAX_MESSAGES, MAX_PARTS,
    MAX_STOPS, MAX_TOOLS, Raw, RefusedFields, Text, UnsupportedField, object,
};

/// The maximum modalities of a response.
const MAX_MODALITIES: usize = 8;

object! {
    struct GenerateRequestBody<'de> {
        "model": model: Text<'de>,
        "contents": contents: Contents<'de>,
        "systemInstruction" | "system_instruction": system_instruction: GeminiContent<'de>,
        "tools": tools: GeminiTools<'de>,
        "toolConfig" | "tool_config": tool_config: ToolConfig<'de>,
        "generationConfig" | "generation_config": generation_config: GenerationConfig<'de>,
        "session_id": session_id: UnsupportedField,
        others: ExtraFields<'de, MAX_EXTRA>,
    }
}

object! {
    /// A request to count tokens: contents alone, or a complete request.
    struct CountRequestBody<'de> {
        "model": model: Text<'de>,
        "contents": contents: Contents<'de>,
        "generateContentRequest" | "generate_content_request": request: GenerateRequestBody<'de>,
        others: RefusedFields,
    }
}

/// The contents of a body.
pub(super) type Contents<'de> = BoundedList<GeminiContent<'de>, MAX_MESSAGES>;

/// The tools of a body; one entry may declare many functions.
pub(super) type GeminiTools<'de> = BoundedList<GeminiTool<'de>, MAX_TOOLS>;

object! {
    struct GeminiContent<'de> {
        "role": role: Text<'de>,
        "parts": parts: BoundedList<Raw<'de>, MAX_PARTS>,
        others: RefusedFields,
    }
}

object! {
    /// A part; one of its fields has the data.
    struct GeminiPart<'de> {
        "text": text: String,
        "thought": thought: bool,
        "thoughtSignature" | "thought_signature": thought_signature: Text<'de>,
        "inlineData" | "inline_data": inline_data: Blob<'de>,
        "fileData" | "file_data": file_data: FileData<'de>,
        "functionCall" | "function_call": function_call: FunctionCall<'de>,
        "functionResponse" | "function_response": function_response: FunctionResponse<'de>,
        others: ExtraFields<'de, MAX_EXTRA_WITHIN>,
    }
}

object! {
    struct Blob<'de> {
        "mimeType" | "mime_type": mime_type: Text<'de>,
        "data": data: Text<'de>,
        "displayName" | "display_name": display_name: String,
        others: RefusedFields,
    }
}

object! {
    struct FileData<'de> {
        "mimeType" | "mime_type": mime_type: Text<'de>,
        "fileUri" | "file_uri": file_uri: Text<'de>,
        "displayName" | "display_name": display_name: String,
        others: RefusedFields,
    }
}

object! {
    struct FunctionCall<'de> {
        "id": id: String,
        "name": name: String,
        "args": args: Raw<'de>,
        others: RefusedFields,
    }
}

object! {
    struct FunctionResponse<'de> {
        "id": id: String,
        "name": name: String,
        "response": response: Raw<'de>,
        "parts": parts: BoundedList<FunctionResponsePart<'de>, MAX_PARTS>,
        others: RefusedFields,
    }
}

object! {
    /// The fields that determine a result's form.
    struct ResultFields<'de> {
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
}

object! {
    struct FunctionResponsePart<'de> {
        "inlineData" | "inline_data": inline_data: Blob<'de>,
        "fileData" | "file_data": file_data: FileData<'de>,
        others: RefusedFields,
    }
}

object! {
    /// Functions of the client; a tool of the upstream is an unknown field.
    struct GeminiTool<'de> {
        "functionDeclarations" | "function_declarations": functions: BoundedList<FunctionDeclaration<'de>, MAX_TOOLS>,
        others: ExtraFields<'de, MAX_EXTRA>,
    }
}

object! {
    struct FunctionDeclaration<'de> {
        "name": name: String,
        "description": description: String,
        "parameters": parameters: Raw<'de>,
        "parametersJsonSchema" | "parameters_json_schema": parameters_json_schema: Raw<'de>,
        "response": response: Raw<'de>,
        // Google's SDK for Python writes it for each function of the program.
        "responseJsonSchema" | "response_json_schema": response_json_schema: Raw<'de>,
        others: ExtraFields<'de, MAX_EXTRA_WITHIN>,
    }
}

object! {
    struct ToolConfig<'de> {
        "functionCallingConfig" | "function_calling_config": function_calling: FunctionCallingConfig<'de>,
        others: RefusedFields,
    }
}

object! {
    struct FunctionCallingConfig<'de> {
        "mode": mode: Text<'de>,
        "allowedFunctionNames" | "allowed_function_names": allowed: BoundedList<String, MAX_TOOLS>,
        others: RefusedFields,
    }
}

object! {
    struct GenerationConfig<'de> {
        "maxOutputTokens" | "max_output_tokens": max_output_tokens: u32,
        "temperature": temperature: f64,
        "topP" | "top_p": top_p: f64,
        // Google's SDK for Python writes it with a fraction: `40.0`.
        "topK" | "top_k": top_k: f64,
        "seed": seed: i64,
        "stopSequences" | "stop_sequences": stop_sequences: BoundedList<String, MAX_STOPS>,
        "presencePenalty" | "presence_penalty": presence_penalty: f64,
        "frequencyPenalty" | "frequency_penalty": frequency_penalty: f64,
        "candidateCount" | "candidate_count": candidate_count: u32,
        "responseMimeType" | "response_mime_type": response_mime_type: Text<'de>,
        "responseSchema" | "response_schema": response_schema: Raw<'de>,
        "responseJsonSchema" | "response_json_schema": response_json_schema: Raw<'de>,
        "responseModalities" | "response_modalities": response_modalities: BoundedList<Text<'de>, MAX_MODALITIES>,
        "thinkingConfig" | "thinking_config": thinking: ThinkingConfig<'de>,
        others: ExtraFields<'de, MAX_EXTRA>,
    }
}

object! {
    struct ThinkingConfig<'de> {
        "includeThoughts" | "include_thoughts": include_thoughts: bool,
        "thinkingBudget" | "thinking_budget": budget: i64,
        "thinkingLevel" | "thinking_level": level: Text<'de>,
        others: RefusedFields,
    }
}
