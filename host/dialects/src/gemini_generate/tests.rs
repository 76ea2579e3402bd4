//! Tests of request parsing, and of responses: plain ones and streams must agree.
//!
//! Requests have the form of google-genai 3.6.1 for Python, responses the form of its types.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use serde_json::{Value, json};
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::{Credits, Quantity, TokenCounts};
use weir_sandbox::adapter::bindings::chat::{
    Block, BlockStart, CallKind, Citation, Content, Event, FinishReason, Fragment, Media, Opaque,
    OpaqueBlock, Part, ReasoningEffort, ResponseFormat, Role, Source, Span, ToolCallStart,
    ToolChoice, ToolContent, ToolKind,
};

use super::{ContentStream, GeneratedContent, ModelMethod, errors, field, read, read_count};
use crate::schema_tests::{check_events, checked};
use crate::{AnswerHead, BilledUsage, ChatCall, Dialect, ErrorFormat, MessageOrigin, StreamForm};

/// Fields that invalidate a good request, and the expected complete message; its first word is the path.
const REFUSALS: &str = r##"
{"model": "models/another"}
    model must be the model of the path.
{"contents": null}
    contents is required.
{"contents": []}
    contents must not be empty.
{"contents": [{"role": "system", "parts": [{"text": "x"}]}]}
    contents[0].role must be one of user, model.
{"contents": [{"parts": []}]}
    contents[0].parts must not be empty.
{"contents": [{"parts": [{}]}]}
    contents[0].parts[0] must hold text, inlineData, fileData, functionCall or functionResponse.
{"contents": [{"parts": [{"text": "x", "inline_data": {}}]}]}
    contents[0].parts[0] must have only one field with data.
{"contents": [{"parts": [{"text": 5}]}]}
    contents[0].parts[0].text must be a string, not an integer.
{"contents": [{"parts": [{"inlineData": {"mimeType": "image/png", "data": "?"}}]}]}
    contents[0].parts[0].inlineData.data must hold valid base64.
{"contents": [{"parts": [{"inlineData": {"mimeType": "png", "data": "aGk="}}]}]}
    contents[0].parts[0].inlineData.mimeType must be a media type, e.g. image/png.
{"contents": [{"parts": [{"fileData": {"fileUri": "gs://a/b"}}]}]}
    contents[0].parts[0].fileData.fileUri must be an https URL.
{"contents": [{"parts": [{"functionCall": {"name": "f"}}]}]}
    contents[0].parts[0].functionCall is for the role model only.
{"contents": [{"role": "model", "parts": [{"functionCall": {"name": "f", "args": []}}]}]}
    contents[0].parts[0].functionCall.args must be an object.
{"contents": [{"parts": [{"functionResponse": {"name": "f", "response": {}}}]}]}
    contents[0].parts[0].functionResponse.name must be the name of an earlier call without a result, or there must be an id.
{"systemInstruction": {"parts": [{"inlineData": {"mimeType": "image/png", "data": "aGk="}}]}}
    systemInstruction.parts[0].text is required.
{"tools": [{"functionDeclarations": [{"description": "d"}]}]}
    tools[0].functionDeclarations[0].name is required.
{"tools": [{"functionDeclarations": [{"name": "f", "parameters": {"properties": {"a": 1}}}]}]}
    tools[0].functionDeclarations[0].parameters.properties.a must be an object.
{"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}
    toolConfig.functionCallingConfig.mode must not be ANY without tools.
{"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}}}
    toolConfig.functionCallingConfig.allowedFunctionNames[0] must be the name of one of the functions.
{"toolConfig": {"retrievalConfig": {}}}
    toolConfig.retrievalConfig is not supported.
{"generationConfig": {"maxOutputTokens": 0}}
    generationConfig.maxOutputTokens must be at least 1.
{"generationConfig": {"maxoutputtokens": 5}}
    generationConfig.maxoutputtokens must be written maxOutputTokens.
{"generationConfig": {"maxOutputTokens": 5, "max_output_tokens": 6}}
    generationConfig.max_output_tokens is given more than once.
{"generationConfig": {"candidateCount": 2}}
    generationConfig.candidateCount must be 1.
{"generationConfig": {"topK": 1.5}}
    generationConfig.topK must be a whole number of at least 1.
{"generationConfig": {"temperature": 3}}
    generationConfig.temperature must be from 0 to 2.
{"generationConfig": {"responseMimeType": "text/x.enum"}}
    generationConfig.responseMimeType must be one of text/plain, application/json.
{"generationConfig": {"responseSchema": {}, "responseJsonSchema": {}}}
    generationConfig.responseSchema must not be given together with responseJsonSchema.
{"generationConfig": {"thinkingConfig": {"thinkingLevel": "HIGHER"}}}
    generationConfig.thinkingConfig.thinkingLevel must be one of MINIMAL, LOW, MEDIUM, HIGH, XHIGH.
{"generationConfig": {"thinkingConfig": {"thinkingBudget": -2}}}
    generationConfig.thinkingConfig.thinkingBudget must be -1, or an integer from 0 to 4294967295.
{"session_id": "s"}
    session_id is not supported.
"##;

fn request(fields: &Value) -> Value {
    let mut body = json!({ "contents": [{"role": "user", "parts": [{"text": "Hi"}]}] });
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn call(fields: &Value) -> ChatCall {
    read(request(fields).to_string().as_bytes(), "m", None).unwrap()
}

#[test]
fn each_mistake_is_refused_with_its_field() {
    let mut lines = REFUSALS.lines().filter(|line| !line.is_empty());
    while let (Some(fields), Some(message)) = (lines.next(), lines.next()) {
        let fields: Value = serde_json::from_str(fields).unwrap();
        let body = request(&fields).to_string();
        let error = read(body.as_bytes(), "m", None).unwrap_err();
        let message = message.trim();
        assert_eq!(error.message(), message, "{fields}");
        assert_eq!(error.param(), message.split_whitespace().next());
    }
}

#[test]
fn settings_are_translated_and_the_rest_goes_on_as_it_came() {
    let call = call(&json!({
        "model": "models/m",
        "systemInstruction": {"role": "user", "parts": [{"text": "Be brief."}]},
        "generationConfig": {
            "maxOutputTokens": 100, "temperature": 1.5, "topP": 0.5, "topK": 40.0, "seed": 7,
            "stopSequences": ["END"], "presencePenalty": 1, "frequencyPenalty": -1, "candidateCount": 1,
            "responseModalities": ["TEXT", "IMAGE"], "responseMimeType": "application/json",
            "thinkingConfig": {"thinkingBudget": 1024, "includeThoughts": true},
            "speechConfig": {"languageCode": "pl-PL"},
        },
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
        "labels": {"team": "a"},
    }));
    let request = &call.request;
    assert_eq!(request.messages[0].role, Role::System);
    assert_eq!(
        call.origins,
        [MessageOrigin::Apart, MessageOrigin::Listed(0)]
    );
    assert_eq!(
        (call.output_limit, request.top_k, request.seed),
        (Some(100), Some(40), Some(7))
    );
    assert_eq!((request.temperature, request.top_p), (Some(1.5), Some(0.5)));
    assert_eq!(
        (request.presence_penalty, request.frequency_penalty),
        (Some(1.0), Some(-1.0))
    );
    assert_eq!(request.stop, ["END"]);
    assert_eq!(request.modalities, ["text", "image"]);
    assert_eq!(request.response_format, ResponseFormat::Json);
    assert_eq!(request.reasoning.budget_tokens, Some(1024));
    assert_eq!(request.reasoning.summary.as_deref(), Some("auto"));
    let names: Vec<_> = request.extra.iter().map(|(name, _)| &**name).collect();
    assert_eq!(
        names,
        ["labels", "safetySettings", "generationConfig.speechConfig"]
    );
    assert_eq!(call.client.dialect, "gemini-generate-content");
    assert!(!request.stream);
}

#[test]
fn each_form_of_reasoning_is_translated() {
    let asked = |thinking: Value| {
        let config = json!({ "generation_config": { "thinking_config": thinking } });
        call(&config).request.reasoning
    };
    assert_eq!(asked(json!({ "thinking_budget": -1 })).adaptive, Some(true));
    let off = asked(json!({ "thinkingBudget": 0, "includeThoughts": false }));
    assert_eq!(off.effort, Some(ReasoningEffort::Off));
    assert_eq!(off.summary.as_deref(), Some("omitted"));
    for (word, effort) in [
        ("MINIMAL", Some(ReasoningEffort::Minimal)),
        ("XHIGH", Some(ReasoningEffort::Highest)),
        ("THINKING_LEVEL_UNSPECIFIED", None),
    ] {
        assert_eq!(asked(json!({ "thinkingLevel": word })).effort, effort);
    }
}

#[test]
fn a_schema_of_googles_form_becomes_json_schema_in_the_given_order() {
    let parameters = json!({
        "type": "OBJECT", "propertyOrdering": ["z", "a"], "required": ["z"], "nullable": false,
        "properties": {
            "a": {"type": "STRING", "format": "enum", "enum": ["x"], "nullable": true},
            "nullable": {"type": "array", "items": {"type": "INTEGER"}, "min_items": "1"},
            "type": {"any_of": [{"type": "NUMBER"}, {"type": "BOOLEAN"}], "nullable": true},
            "z": {"type": "TYPE_UNSPECIFIED", "description": "STRING"},
        },
    });
    let call = call(&json!({
        "tools": [{"functionDeclarations": [
            {"name": "f", "description": "d", "parameters": parameters, "response_json_schema": {}},
            {"name": "g", "parametersJsonSchema": {"type": "object", "x": 1}},
            {"name": "h"},
        ]}, {"googleSearch": {}}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f", "g"]}},
    }));
    let schemas: Vec<_> = call
        .request
        .tools
        .iter()
        .filter_map(|tool| match &tool.kind {
            ToolKind::Function(function) => Some(function.input_schema.as_str()),
            _ => None,
        })
        .collect();
    let expected = json!({
        "type": "object", "required": ["z"],
        "properties": {
            "z": {"description": "STRING"},
            "a": {"type": ["string", "null"], "enum": ["x", null]},
            "nullable": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
            "type": {"anyOf": [{"type": "number"}, {"type": "boolean"}, {"type": "null"}]},
        },
    });
    assert_eq!(serde_json::from_str::<Value>(schemas[0]).unwrap(), expected);
    let place = |name: &str| schemas[0].find(name).unwrap();
    assert!(place("\"z\":{") < place("\"a\":{"), "{}", schemas[0]);
    assert_eq!(
        schemas[1..],
        [
            r#"{"type":"object","x":1}"#,
            r#"{"type":"object","properties":{}}"#
        ]
    );
    assert_eq!(
        call.request.tools[0].extra,
        [("responseJsonSchema".into(), "{}".into())]
    );
    let last = call.request.tools.last().unwrap();
    assert!(matches!(&last.kind, ToolKind::BuiltIn(tool) if tool.kind == "googleSearch"));
    assert!(matches!(&call.request.tool_choice,
        ToolChoice::Among(among) if among.required && among.names == ["f", "g"]));
}

#[test]
fn a_response_schema_is_translated_unless_it_is_json_schema() {
    let schema = |config: Value| match call(&json!({ "generationConfig": config }))
        .request
        .response_format
    {
        ResponseFormat::JsonSchema(format) => format.schema,
        other => panic!("{other:?}"),
    };
    let google =
        json!({"responseMimeType": "application/json", "responseSchema": {"type": "STRING"}});
    assert_eq!(schema(google), r#"{"type":"string"}"#);
    let own = json!({"responseJsonSchema": {"type": "STRING"}});
    assert_eq!(schema(own), r#"{"type":"STRING"}"#);
}

#[test]
fn files_are_read_by_their_media_type_in_either_alphabet() {
    let data = |kind: &str, data: &str| json!({"inlineData": {"mimeType": kind, "data": data}});
    let call = call(&json!({"contents": [{"parts": [
        data("image/png", "-_8="), data("audio/mpeg", "+/8="), data("application/pdf", "aGk"),
        {"file_data": {"file_uri": "https://a.example/b", "mime_type": "image/jpeg"}},
        {"fileData": {"fileUri": "https://a.example/c"}},
    ]}]}));
    let parts = &call.request.messages[0].parts;
    assert!(
        matches!(&parts[0].content, Content::Image(image) if image.source == Source::Attachment(0))
    );
    assert!(
        matches!(&parts[1].content, Content::Audio(audio) if audio.format.as_deref() == Some("mp3"))
    );
    assert!(
        matches!(&parts[2].content, Content::File(file) if file.media_type.as_deref() == Some("application/pdf"))
    );
    assert!(
        matches!(&parts[3].content, Content::Image(image) if image.source == Source::Url("https://a.example/b".into()))
    );
    assert!(matches!(&parts[4].content, Content::File(file) if file.media_type.is_none()));
    assert_eq!(call.attachments[0].data, call.attachments[1].data);
    assert_eq!(call.attachments[2].data, "hi");
}

/// The parts of a message, each as its role and its content.
fn parts(call: &ChatCall) -> Vec<(Role, &Part)> {
    let messages = call.request.messages.iter();
    messages
        .flat_map(|message| message.parts.iter().map(|part| (message.role, part)))
        .collect()
}

#[test]
fn calls_and_results_without_ids_belong_together_by_name() {
    let result = |response: Value| json!({"functionResponse": {"name": "f", "response": response}});
    let call = call(&json!({"contents": [
        {"parts": [{"text": "Hi"}]},
        {"role": "model", "parts": [
            {"functionCall": {"name": "f", "args": {"a": 1}}},
            {"functionCall": {"name": "f"}},
            {"functionCall": {"name": "f", "id": "c"}},
            {"executableCode": {"code": "1"}, "thoughtSignature": "c2ln"},
            {"text": ""},
        ]},
        {"role": "user", "parts": [
            result(json!({"output": "so"})),
            result(json!({"error": "no"})),
            {"functionResponse": {"name": "f", "id": "c", "response": {"result": 5}, "parts": [
                {"inlineData": {"mimeType": "image/png", "data": "aGk="}},
            ]}},
            {"text": "Well?"},
        ]},
        {"role": "model", "parts": [{"text": ""}]},
    ]}));
    let parts = parts(&call);
    let ids: Vec<_> = parts
        .iter()
        .filter_map(|(_, part)| match &part.content {
            Content::ToolCall(call) => Some((call.id.as_str(), call.arguments.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(
        ids,
        [("gemini_0", r#"{"a":1}"#), ("gemini_1", "{}"), ("c", "{}")]
    );
    assert!(matches!(&parts[4].1.content, Content::Opaque(opaque)
        if opaque.kind == "executableCode" && opaque.json.contains("\"code\"")));
    assert_eq!(parts[4].1.signature.as_deref(), Some("c2ln"));
    let results: Vec<_> = parts
        .iter()
        .filter_map(|(role, part)| match &part.content {
            Content::ToolResult(result) => {
                assert_eq!(*role, Role::Tool);
                assert_eq!(result.tool_name.as_deref(), Some("f"));
                let ToolContent::Text(text) = &result.content[0] else {
                    panic!("{result:?}");
                };
                Some((&*result.call_id, &**text, result.is_error))
            }
            _ => None,
        })
        .collect();
    assert_eq!(
        results,
        [
            ("gemini_0", "so", false),
            ("gemini_1", "no", true),
            ("c", r#"{"result":5}"#, false)
        ]
    );
    assert_eq!(call.request.messages.last().unwrap().role, Role::User);
    let tool_origin = call
        .request
        .messages
        .iter()
        .position(|m| m.role == Role::Tool);
    let origin = call.origins[tool_origin.unwrap()];
    assert_eq!(call.dialect.place(origin), "contents[2]");
    assert_eq!(call.dialect.content_place(origin), "contents[2].parts");
}

#[test]
fn a_count_takes_contents_or_a_complete_request() {
    let contents = json!([{"parts": [{"text": "Hi"}]}]);
    let whole = json!({"model": "models/m", "contents": contents, "systemInstruction": {"parts": [{"text": "x"}]}});
    for (body, messages) in [
        (json!({"contents": contents}), 1),
        (json!({"generateContentRequest": whole}), 2),
    ] {
        let call = read_count(body.to_string().as_bytes(), "m").unwrap();
        assert_eq!(call.request.messages.len(), messages);
    }
    let both = json!({"contents": contents, "generateContentRequest": whole}).to_string();
    let error = read_count(both.as_bytes(), "m").unwrap_err();
    assert_eq!(error.param(), Some("contents"));
}

#[test]
fn a_path_has_a_model_and_a_method() {
    for (target, expected) in [
        ("m:generateContent", Some(("m", ModelMethod::Generate))),
        (
            "models/a/b-1.5:free:streamGenerateContent",
            Some(("a/b-1.5:free", ModelMethod::Stream)),
        ),
        ("m:countTokens", Some(("m", ModelMethod::CountTokens))),
        ("m:embedContent", None),
        ("m", None),
    ] {
        assert_eq!(ModelMethod::of(target), expected);
    }
    let format = |path: &str| ErrorFormat::of(path, &http::HeaderMap::new());
    for path in [
        "/v1beta/models",
        "/v1beta/x",
        "/v1/models/m:generateContent",
    ] {
        assert_eq!(format(path), ErrorFormat::Google, "{path}");
    }
    assert_eq!(format("/v1/models/m:free"), ErrorFormat::OpenAi);
}

fn text(index: u32, text: &str) -> Event {
    Event::Fragment(Fragment {
        index,
        text: text.into(),
    })
}

fn signed(index: u32, text: &str) -> Event {
    Event::Signature(Fragment {
        index,
        text: text.into(),
    })
}

fn begin(index: u32, block: Block) -> Event {
    Event::BlockStart(BlockStart { index, block })
}

fn tool(id: &str, kind: CallKind) -> Block {
    Block::ToolCall(ToolCallStart {
        id: id.into(),
        name: "look".into(),
        kind,
    })
}

/// A response of every kind of part; two calls interleave.
fn events() -> Vec<Event> {
    let image = Media {
        media_type: "image/png".into(),
        data: b"hi".to_vec(),
        bytes_before: None,
        url: None,
        revised_prompt: None,
        is_preview: false,
    };
    let citation = Citation {
        index: 1,
        source: Some("https://a.example".into()),
        title: Some("A".into()),
        cited_text: None,
        span: Some(Span { start: 0, end: 4 }),
        json: None,
    };
    let opaque = |kind: &str, json: &str| {
        Event::Opaque(OpaqueBlock {
            index: 9,
            block: Opaque {
                kind: kind.into(),
                json: json.into(),
            },
        })
    };
    vec![
        begin(0, Block::Reasoning),
        text(0, "Hm"),
        text(0, "."),
        signed(0, "c2"),
        signed(0, "ln"),
        Event::BlockEnd(0),
        begin(1, Block::Text),
        text(1, "żół"),
        text(1, "w!"),
        Event::Citation(citation),
        signed(1, "dGV4dA=="),
        Event::BlockEnd(1),
        begin(2, tool("t1", CallKind::Function)),
        begin(3, tool("t2", CallKind::Custom)),
        text(2, "{\"a\":"),
        text(3, "free"),
        text(2, "1}"),
        signed(2, "Y2FsbA=="),
        Event::BlockEnd(2),
        Event::BlockEnd(3),
        opaque("executableCode", r#"{"executableCode":{"code":"1"}}"#),
        opaque("server_tool_use", r#"{"type":"server_tool_use"}"#),
        Event::Media(image),
        begin(4, Block::Reasoning),
        Event::Sealed(Fragment {
            index: 4,
            text: "sealed".into(),
        }),
        Event::BlockEnd(4),
        Event::Finish(FinishReason::ToolCalls),
    ]
}

fn head() -> AnswerHead {
    AnswerHead {
        id: "0".repeat(32),
        created: 0,
        model: "m".into(),
    }
}

fn billed() -> BilledUsage {
    BilledUsage {
        quantity: Quantity::default(),
        tokens: TokenCounts {
            input: 10,
            cache_read: 4,
            output: 7,
            reasoning: 2,
            ..TokenCounts::default()
        },
        credits: Credits::from_micro(1_500_000),
    }
}

fn plain(events: Vec<Event>) -> Value {
    let mut answer = GeneratedContent::new(head());
    answer.answered_by("p");
    for event in &events {
        answer.push(event);
    }
    checked("GeminiAnswer", &answer.into_body(&billed()))
}

fn streamed(events: &[Event], form: StreamForm) -> String {
    let mut stream = ContentStream::new(head(), form);
    stream.answered_by("p");
    let mut out = Vec::new();
    for event in events {
        stream.event(event, &mut out);
    }
    stream.finish(&billed(), &mut out);
    if form == StreamForm::Events {
        check_events("GeminiAnswer", &out);
    }
    String::from_utf8(out).unwrap()
}

/// The chunks of a stream in either form.
fn chunks(stream: &str, form: StreamForm) -> Vec<Value> {
    let json = |text: &str| serde_json::from_str(text).unwrap();
    match form {
        StreamForm::Events => {
            let events = stream.strip_suffix("\n\n").unwrap().split("\n\n");
            events
                .map(|event| json(event.strip_prefix("data: ").unwrap()))
                .collect()
        }
        StreamForm::List => serde_json::from_str(stream).unwrap(),
    }
}

/// Joins the parts of chunks as a client does: a text continues a text, and a signature ends it.
fn joined(chunks: &[Value]) -> Vec<Value> {
    let mut parts: Vec<Value> = Vec::new();
    for chunk in chunks {
        for part in chunk["candidates"][0]["content"]["parts"]
            .as_array()
            .unwrap()
        {
            let signature = &part["thoughtSignature"];
            match parts.last_mut() {
                Some(last)
                    if part["text"].is_string()
                        && last["text"].is_string()
                        && last["thought"] == part["thought"]
                        && last["thoughtSignature"].is_null() =>
                {
                    let both =
                        last["text"].as_str().unwrap().to_owned() + part["text"].as_str().unwrap();
                    last["text"] = both.into();
                    if !signature.is_null() {
                        last["thoughtSignature"] = signature.clone();
                    }
                }
                _ if part["text"] == "" && signature.is_null() => {}
                _ => parts.push(part.clone()),
            }
        }
    }
    parts
}

#[test]
fn the_chunks_of_a_stream_add_up_to_the_plain_response() {
    let whole = plain(events());
    for form in [StreamForm::Events, StreamForm::List] {
        let stream = streamed(&events(), form);
        let chunks = chunks(&stream, form);
        assert_eq!(
            Value::from(joined(&chunks)),
            whole["candidates"][0]["content"]["parts"]
        );
        let (last, others) = chunks.split_last().unwrap();
        let mut end = last.clone();
        let mut expected = whole.clone();
        for body in [&mut end, &mut expected] {
            body["candidates"][0]["content"]["parts"] = Value::Null;
        }
        assert_eq!(end, expected);
        for chunk in others {
            assert_eq!(chunk["candidates"][0]["finishReason"], Value::Null);
            assert_eq!(chunk["responseId"], whole["responseId"]);
            let parts = chunk["candidates"][0]["content"]["parts"].as_array();
            assert_eq!(parts.map(Vec::len), Some(1));
        }
    }
}

#[test]
fn a_response_has_googles_form() {
    let whole = plain(events());
    let candidate = &whole["candidates"][0];
    let parts = candidate["content"]["parts"].as_array().unwrap();
    assert_eq!(candidate["content"]["role"], "model");
    assert_eq!(candidate["finishReason"], "STOP");
    assert_eq!(
        (&parts[0]["text"], &parts[0]["thought"]),
        (&json!("Hm."), &json!(true))
    );
    assert_eq!(
        (&parts[1]["text"], &parts[1]["thought"]),
        (&json!("żółw!"), &Value::Null)
    );
    assert_eq!(
        parts[2]["functionCall"],
        json!({"id": "t1", "name": "look", "args": {"a": 1}})
    );
    assert_eq!(parts[3]["functionCall"]["args"], json!({"input": "free"}));
    assert_eq!(parts[4], json!({"executableCode": {"code": "1"}}));
    assert_eq!(
        parts[5],
        json!({"inlineData": {"mimeType": "image/png", "data": "aGk="}})
    );
    assert_eq!(
        candidate["groundingMetadata"],
        json!({
            "groundingChunks": [{"web": {"uri": "https://a.example", "title": "A"}}],
            "groundingSupports": [{
                "segment": {"startIndex": 0, "endIndex": 7, "text": "żółw"},
                "groundingChunkIndices": [0],
            }],
        })
    );
    assert_eq!(
        whole["usageMetadata"],
        json!({
            "promptTokenCount": 10, "cachedContentTokenCount": 4, "candidatesTokenCount": 5,
            "thoughtsTokenCount": 2, "totalTokenCount": 17, "credits": 1.5,
        })
    );
    assert_eq!(
        (&whole["modelVersion"], &whole["responseId"]),
        (&json!("m"), &json!("0".repeat(32)))
    );
}

/// Google's SDK for Python reads a signature as bytes, and writes it with the other alphabet.
fn url_safe(parts: &[Value]) -> Vec<Value> {
    let mut parts = parts.to_vec();
    for part in &mut parts {
        if let Some(signature) = part["thoughtSignature"].as_str() {
            part["thoughtSignature"] = signature.replace('+', "-").replace('/', "_").into();
        }
    }
    parts
}

#[test]
fn a_response_that_is_sent_back_has_its_signatures_and_their_provider() {
    let whole = plain(events())["candidates"][0]["content"]["parts"].clone();
    let whole = whole.as_array().unwrap().clone();
    let stream = chunks(&streamed(&events(), StreamForm::Events), StreamForm::Events);
    let pieces = stream.iter();
    let pieces = pieces.flat_map(|chunk| chunk["candidates"][0]["content"]["parts"].as_array());
    let pieces: Vec<Value> = pieces.flatten().cloned().collect();
    for sent in [url_safe(&whole), url_safe(&pieces), whole] {
        let call = call(&json!({"contents": [
            {"parts": [{"text": "Hi"}]}, {"role": "model", "parts": sent},
        ]}));
        let signed: Vec<_> = parts(&call)
            .into_iter()
            .filter_map(|(_, part)| {
                let proof = part.signature.as_deref();
                let of = match &part.content {
                    Content::Reasoning(reasoning) => match &reasoning.sealed {
                        Some(sealed) => format!("sealed {sealed}"),
                        None => format!("thought {}", reasoning.text),
                    },
                    Content::ToolCall(call) => format!("call {}", call.id),
                    // A stream's signature has a part of its own.
                    Content::Text(_) if proof.is_some() => "text".to_owned(),
                    _ => return None,
                };
                Some((of, proof, part.provider.as_deref()))
            })
            .collect();
        let of = |of: &str, proof, provider| (of.to_owned(), proof, provider);
        assert_eq!(
            signed,
            [
                of("thought Hm.", Some("c2ln"), Some("p")),
                of("text", Some("dGV4dA=="), Some("p")),
                of("call t1", Some("Y2FsbA=="), Some("p")),
                of("call t2", None, None),
                of("sealed sealed", None, Some("p")),
            ]
        );
    }
}

#[test]
fn a_signature_of_another_server_goes_on_as_it_came() {
    for foreign in ["skip_thought_signature_validator", "CpIB/a+b=", "?"] {
        let call = call(&json!({"contents": [
            {"parts": [{"text": "Hi"}]},
            {"role": "model", "parts": [{"text": "So", "thought_signature": foreign}]},
        ]}));
        let part = &call.request.messages[1].parts[0];
        assert_eq!(part.signature.as_deref(), Some(foreign));
        assert_eq!(part.provider, None);
    }
}

#[test]
fn each_end_has_its_word_and_an_empty_response_has_a_part() {
    for (reason, word) in [
        (FinishReason::Stop, "STOP"),
        (FinishReason::StopSequence("END".into()), "STOP"),
        (FinishReason::PauseTurn, "STOP"),
        (FinishReason::Length, "MAX_TOKENS"),
        (FinishReason::ContextWindow, "MAX_TOKENS"),
        (FinishReason::ContentFilter, "SAFETY"),
        (FinishReason::Refusal, "SAFETY"),
        (FinishReason::MalformedCall, "MALFORMED_FUNCTION_CALL"),
        (FinishReason::Other("new".into()), "OTHER"),
    ] {
        let whole = plain(vec![Event::Finish(reason)]);
        assert_eq!(whole["candidates"][0]["finishReason"], word);
        assert_eq!(
            whole["candidates"][0]["content"]["parts"],
            json!([{"text": ""}])
        );
    }
}

#[test]
fn a_call_that_was_cut_short_has_no_arguments() {
    let whole = plain(vec![
        begin(0, tool("t", CallKind::Function)),
        text(0, "{\"a\":"),
        Event::BlockEnd(0),
        Event::Finish(FinishReason::Length),
    ]);
    let call = &whole["candidates"][0]["content"]["parts"][0]["functionCall"];
    assert_eq!(call["args"], json!({}));
}

#[test]
fn an_abandoned_attempt_leaves_nothing() {
    let mut answer = GeneratedContent::new(head());
    for event in &events()[..8] {
        answer.push(event);
    }
    answer.clear();
    let body: Value = checked("GeminiAnswer", &answer.into_body(&billed()));
    assert_eq!(
        body["candidates"][0]["content"]["parts"],
        json!([{"text": ""}])
    );
}

#[test]
fn an_error_ends_either_form_of_a_stream() {
    let error = json!({"error": {"code": 503}});
    for (form, first, later) in [
        (
            StreamForm::Events,
            "data: {\"error\":{\"code\":503}}\n\n",
            "data: {\"error\":{\"code\":503}}\n\n",
        ),
        (
            StreamForm::List,
            "[{\"error\":{\"code\":503}}\n]",
            ",\n{\"error\":{\"code\":503}}\n]",
        ),
    ] {
        let mut out = Vec::new();
        ContentStream::new(head(), form).error(&error, &mut out);
        assert_eq!(out, first.as_bytes());
        let mut stream = ContentStream::new(head(), form);
        let mut before = Vec::new();
        for event in [begin(0, Block::Text), text(0, "So")] {
            stream.event(&event, &mut before);
        }
        let mut out = Vec::new();
        stream.error(&error, &mut out);
        assert_eq!(out, later.as_bytes());
    }
}

#[test]
fn errors_have_googles_statuses_and_details() {
    let invalid = ApiError::invalid_request("top_k", "It must be 1.")
        .with_retry_after(std::time::Duration::from_millis(1_500))
        .with_detail("limit", 5);
    assert_eq!(
        errors::body(&invalid, "r"),
        json!({"error": {
            "code": 400, "message": "It must be 1.", "status": "INVALID_ARGUMENT",
            "details": [
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": "INVALID_REQUEST", "domain": "weir",
                    "metadata": {"limit": "5", "request_id": "r"},
                },
                {
                    "@type": "type.googleapis.com/google.rpc.BadRequest",
                    "fieldViolations": [{"field": "generationConfig.topK", "description": "It must be 1."}],
                },
                {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2s"},
            ],
        }})
    );
    for (code, status, word) in [
        (ErrorCode::Unauthenticated, 401, "UNAUTHENTICATED"),
        (ErrorCode::Forbidden, 403, "PERMISSION_DENIED"),
        (ErrorCode::UnknownModel, 404, "NOT_FOUND"),
        (ErrorCode::QuotaExceeded, 429, "RESOURCE_EXHAUSTED"),
        (ErrorCode::Internal, 500, "INTERNAL"),
        (ErrorCode::Overloaded, 503, "UNAVAILABLE"),
    ] {
        let body = errors::body(&ApiError::new(code, "So."), "r");
        assert_eq!(
            (&body["error"]["code"], &body["error"]["status"]),
            (&json!(status), &json!(word))
        );
    }
    let said = json!({"error": {"code": 400, "message": "Theirs.", "status": "INVALID_ARGUMENT"}});
    let rejected = ApiError::new(ErrorCode::UpstreamRejected, "Ours.").with_upstream(Some(said));
    assert_eq!(errors::body(&rejected, "r")["error"]["message"], "Theirs.");
}

#[test]
fn fields_have_the_dialects_names() {
    for (name, own) in [
        (
            "response_format.json_schema.schema",
            "generationConfig.responseSchema.schema",
        ),
        ("messages[3]", "contents"),
        ("labels", "labels"),
        ("reasoning", "thought"),
    ] {
        assert_eq!(field(name), own);
    }
    let stream = |form| Dialect::GeminiGenerate(form).stream_type();
    assert_eq!(stream(StreamForm::Events), "text/event-stream");
    assert_eq!(stream(StreamForm::List), "application/json");
}
