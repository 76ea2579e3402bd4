//! The events of responses, non-streamed and streamed.

use weir_adapter_gemini::translate::Gemini;
use weir_sdk::chat::{ChatRequest, CustomTool, ToolKind};
use weir_sdk::testing::{
    EVENT_STREAM, JSON, check_every_cut, check_every_truncation, check_mutations, lines, read,
    receive, streamed, tool,
};

/// Thoughts, a text with a source, code that the upstream ran, calls with and without an id, one of them signed, and
/// a separate signature.
const STREAM: &str = "data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"Grö\",\"thought\": true}],\"role\": \"model\"},\"index\": 0}],\"usageMetadata\": {\"promptTokenCount\": 8,\"totalTokenCount\": 10,\"thoughtsTokenCount\": 2},\"modelVersion\": \"gemini-test-1\",\"responseId\": \"r1\"}\r\n\r\n\
data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"ße?\",\"thought\": true}],\"role\": \"model\"},\"index\": 0}],\"responseId\": \"r1\"}\r\n\r\n\
data: {\"candidates\": [{\"content\": {\"parts\": [{\"executableCode\": {\"language\": \"PYTHON\",\"code\": \"1\"}},{\"codeExecutionResult\": {\"outcome\": \"OUTCOME_OK\"}}]},\"index\": 0}]}\r\n\r\n\
data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"Ein \"}]},\"index\": 0}]}\r\n\r\n\
data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"🦫.\"},{\"text\": \"\",\"thoughtSignature\": \"c2ln\"}]},\"index\": 0}]}\r\n\r\n\
data: {\"candidates\": [{\"content\": {\"parts\": [{\"functionCall\": {\"name\": \"look\",\"args\": {\"at\":\"🦫\"}},\"thoughtSignature\": \"c2lnMg==\"},{\"functionCall\": {\"id\": \"c7\",\"name\": \"wait\"}}]},\"index\": 0}]}\r\n\r\n\
data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"\"}]},\"finishReason\": \"STOP\",\"index\": 0}],\"usageMetadata\": {\"promptTokenCount\": 8,\"cachedContentTokenCount\": 4,\"candidatesTokenCount\": 5,\"thoughtsTokenCount\": 3,\"toolUsePromptTokenCount\": 7,\"totalTokenCount\": 23}}\r\n\r\n";

/// The same response, non-streamed.
const WHOLE: &str = r#"{"candidates":[{"content":{"role":"model","parts":[
    {"text":"Größe?","thought":true},
    {"executableCode": {"language": "PYTHON","code": "1"}},{"codeExecutionResult": {"outcome": "OUTCOME_OK"}},
    {"text":"Ein 🦫.","thoughtSignature":"c2ln"},
    {"functionCall":{"name":"look","args":{"at":"🦫"}},"thoughtSignature":"c2lnMg=="},
    {"functionCall":{"id":"c7","name":"wait","args":null}}]},"finishReason":"STOP","index":0}],
    "usageMetadata":{"promptTokenCount":8,"cachedContentTokenCount":4,"candidatesTokenCount":5,"thoughtsTokenCount":3,"toolUsePromptTokenCount":7,"totalTokenCount":23},
    "modelVersion":"gemini-test-1","responseId":"r1"}"#;

const BLOCKS: [&str; 19] = [
    "0 reasoning",
    "0: Größe?",
    "0 ends",
    r#"1 executableCode {"executableCode": {"language": "PYTHON","code": "1"}}"#,
    r#"2 codeExecutionResult {"codeExecutionResult": {"outcome": "OUTCOME_OK"}}"#,
    "3 text",
    "3: Ein 🦫.",
    "3 signature: c2ln",
    "3 ends",
    "4 call gemini_r1_0 look",
    r#"4: {"at":"🦫"}"#,
    "4 signature: c2lnMg==",
    "4 ends",
    "5 call c7 wait",
    "5: {}",
    "5 ends",
    "usage in=15 read=4 out=8 reasoning=3",
    "finish ToolCalls",
    "",
];

/// A non-streamed response of these parts with this finish reason and these other fields.
fn whole(parts: &str, reason: &str, more: &str) -> String {
    format!(
        r#"{{"candidates":[{{"content":{{"parts":[{parts}]}},"finishReason":"{reason}"{more}}}]}}"#
    )
}

#[test]
fn gives_the_same_blocks_whole_and_streamed() {
    let started = "started r1 gemini-test-1";
    let streamed = read::<Gemini>(EVENT_STREAM, STREAM);
    // Usage also arrives early.
    let streamed: Vec<_> = streamed
        .iter()
        .filter(|line| *line != "usage in=8 out=2 reasoning=2")
        .collect();
    assert_eq!(streamed[0], started);
    // The signature arrived between two thoughts, which are one.
    assert_eq!(streamed[1..4], ["0 reasoning", "0: Grö", "0: ße?"]);
    assert_eq!(streamed[4..], BLOCKS[2..18]);
    let whole = read::<Gemini>(JSON, WHOLE);
    assert_eq!(whole[0], started);
    assert_eq!(whole[1..], BLOCKS[..18]);
}

#[test]
fn reads_a_stream_that_is_a_list() {
    let chunks: Vec<&str> = STREAM
        .split("\r\n\r\n")
        .filter_map(|event| event.strip_prefix("data: "))
        .collect();
    let list = format!("[{}]\n", chunks.join(",\r\n"));
    assert_eq!(
        read::<Gemini>(JSON, &list),
        read::<Gemini>(EVENT_STREAM, STREAM)
    );
    check_every_truncation::<Gemini>(JSON, &list, "]");
}

#[test]
fn gives_the_same_events_wherever_it_is_cut() {
    check_every_cut::<Gemini>(EVENT_STREAM, STREAM);
    check_every_cut::<Gemini>(JSON, WHOLE);
}

#[test]
fn takes_no_beginning_for_the_whole() {
    check_every_truncation::<Gemini>(EVENT_STREAM, STREAM, "\"totalTokenCount\": 23}}");
    check_every_truncation::<Gemini>(JSON, WHOLE, "}");
}

#[test]
fn survives_any_bytes() {
    check_mutations::<Gemini>(EVENT_STREAM, &[STREAM, PIECES]);
    check_mutations::<Gemini>(JSON, &[WHOLE, GROUNDED]);
}

#[test]
fn reads_on_behind_a_reason_that_stands_in_every_chunk() {
    let chunk = |text: &str| {
        format!(
            "data: {}\n\n",
            whole(&format!(r#"{{"text":"{text}"}}"#), "STOP", "")
        )
    };
    let stream = format!("{}{}{}", chunk("a"), chunk("b"), chunk("c"));
    assert_eq!(
        read::<Gemini>(EVENT_STREAM, &stream),
        ["0 text", "0: abc", "0 ends", "finish Stop"]
    );
}

#[test]
fn names_every_reason_to_finish() {
    for (reason, finish) in [
        ("STOP", "finish Stop"),
        ("MAX_TOKENS", "finish Length"),
        ("SAFETY", "finish ContentFilter"),
        ("RECITATION", "finish ContentFilter"),
        ("PROHIBITED_CONTENT", "finish ContentFilter"),
        ("IMAGE_SAFETY", "finish ContentFilter"),
    ] {
        let lines = read::<Gemini>(JSON, &whole(r#"{"text":"a"}"#, reason, ""));
        assert_eq!(lines.last().map(String::as_str), Some(finish));
    }
}

#[test]
fn says_that_a_prompt_was_held_back() {
    let blocked = r#"{"promptFeedback":{"blockReason":"SAFETY","safetyRatings":[]},"usageMetadata":{"promptTokenCount":4,"totalTokenCount":4}}"#;
    assert_eq!(
        read::<Gemini>(JSON, blocked),
        ["usage in=4 out=0", "finish ContentFilter"]
    );
    let stream = format!("data: {blocked}\n\n");
    assert_eq!(
        read::<Gemini>(EVENT_STREAM, &stream),
        ["usage in=4 out=0", "finish ContentFilter"]
    );
}

#[test]
fn tells_signatures_of_one_kind_apart() {
    let parts = r#"{"text":"a","thoughtSignature":"one"},{"text":"b","thoughtSignature":"two"},{"thoughtSignature":"three"}"#;
    assert_eq!(
        read::<Gemini>(JSON, &whole(parts, "STOP", "")),
        [
            "0 text",
            "0: a",
            "0 signature: one",
            "0 ends",
            "1 text",
            "1: b",
            "1 signature: two",
            "1 ends",
            "2 text",
            "2 signature: three",
            "2 ends",
            "finish Stop"
        ]
    );
}

#[test]
fn hands_images_out() {
    let answer = r#"{"candidates":[{"content":{"parts":[
        {"inlineData":{"mimeType":"image/png","data":"dHJpZWQ="},"thought":true},
        {"text":"Here: "},{"inlineData":{"mimeType":"image/png","data":"aW1hZ2U="}}]},"finishReason":"STOP"}],
        "usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":1290,"candidatesTokensDetails":[{"modality":"IMAGE","tokenCount":1290}]}}"#;
    assert_eq!(
        read::<Gemini>(JSON, answer),
        [
            "0 text",
            "0: Here: ",
            "media image/png of 5 bytes",
            "usage in=3 out=1290 images=1 image-output-tokens=1290",
            "0 ends",
            "finish Stop"
        ]
    );
}

/// Two sources with spans of the text, counted in bytes, and one without.
const GROUNDED: &str = r#"{"candidates":[{"content":{"parts":[{"text":"Ein 🦫. Zwei."}]},"finishReason":"STOP",
    "groundingMetadata":{"groundingChunks":[{"web":{"uri":"https://example.com/a","title":"A"}},{"retrievedContext":{"title":"B","text":"Two."}},{"web":{"uri":"https://example.com/c"}}],
    "groundingSupports":[{"segment":{"endIndex":9,"text":"x"},"groundingChunkIndices":[0]},{"segment":{"startIndex":10,"endIndex":15},"groundingChunkIndices":[1,9]}]},
    "citationMetadata":{"citationSources":[{"startIndex":0,"endIndex":3,"uri":"https://example.com/d","license":""}]}}]}"#;

#[test]
fn cites_its_sources() {
    assert_eq!(
        read::<Gemini>(JSON, GROUNDED)[2..],
        [
            "0 cites https://example.com/a A - 0..6",
            "0 cites - B Two. 7..12",
            "0 cites https://example.com/c - -",
            "0 cites https://example.com/d - - 0..3",
            "0 ends",
            "finish Stop"
        ]
    );
}

/// Calls whose arguments arrive piece by piece.
const PIECES: &str = r#"data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"look","willContinue":true}}]}}]}

data: {"candidates":[{"content":{"parts":[{"functionCall":{"partialArgs":[{"jsonPath":"$.at","stringValue":"he","willContinue":true}],"willContinue":true}}]}}]}

data: {"candidates":[{"content":{"parts":[{"functionCall":{"partialArgs":[{"jsonPath":"$.at","stringValue":"re"},{"jsonPath":"$.list[1].x","numberValue":1.5},{"jsonPath":"$['list'][0]","boolValue":true},{"jsonPath":"$.none","nullValue":"NULL_VALUE"}],"willContinue":true}}]}}]}

data: {"candidates":[{"content":{"parts":[{"functionCall":{}}]}}]}

data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"wait","willContinue":true},"thoughtSignature":"c2ln"}]},"finishReason":"STOP"}]}

"#;

#[test]
fn puts_arguments_together_that_come_in_pieces() {
    assert_eq!(
        read::<Gemini>(EVENT_STREAM, PIECES),
        [
            "0 call gemini_0 look",
            r#"0: {"at":"here","list":[true,{"x":1.5}],"none":null}"#,
            "0 ends",
            "1 call gemini_1 wait",
            "1: {}",
            "1 signature: c2ln",
            "1 ends",
            "finish ToolCalls"
        ]
    );
}

#[test]
fn refuses_arguments_without_bounds() {
    for piece in [
        r#"{"jsonPath":"$.list[99999999]","boolValue":true}"#,
        r#"{"jsonPath":"list","boolValue":true}"#,
        r#"{"jsonPath":"$[","boolValue":true}"#,
    ] {
        let part = format!(r#"{{"functionCall":{{"name":"look","partialArgs":[{piece}]}}}}"#);
        let (_, failure) = weir_sdk::testing::fails::<Gemini>(JSON, &whole(&part, "STOP", ""));
        assert_eq!(failure.kind, weir_sdk::adapter::FailureKind::Malformed);
    }
}

#[test]
fn reads_free_text_out_of_a_functions_input() {
    let chat = ChatRequest {
        tools: vec![tool(ToolKind::Custom(CustomTool {
            name: "patch".to_owned(),
            description: None,
            format: None,
        }))],
        ..streamed("")
    };
    let answer = whole(
        r#"{"functionCall":{"name":"patch","args":{"input":"*** Begin"}}}"#,
        "STOP",
        "",
    );
    let (events, result) = receive::<Gemini>(chat, 200, JSON, [answer.as_bytes()]);
    assert_eq!(result, Ok(()));
    assert_eq!(
        lines(&events),
        [
            "0 call gemini_0 patch with free text",
            "0: *** Begin",
            "0 ends",
            "finish ToolCalls"
        ]
    );
}

#[test]
fn reads_an_envelope_and_the_first_candidate_alone() {
    let answer = r#"{"response":{"candidates":[{"index":1,"content":{"parts":[{"text":"other"}]}},{"index":0,"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}}"#;
    assert_eq!(
        read::<Gemini>(JSON, answer),
        ["0 text", "0: a", "0 ends", "finish Stop"]
    );
}

/// Values of other types than usual, kinds of later versions, and halves of characters cost nothing else of an answer.
#[test]
fn survives_odd_values() {
    let stream = r#"data: {"novelty":1}

data: {"candidates":[{"content":{"parts":[{"text":"So\ud83e","thought":"x"},{"text":7},{"novelty":{"x":1}},{}]},"index":"x"}]}

data: {"candidates":[{"content":{"parts":[{"text":"\uddab!"}]},"finishReason":"STOP","finishMessage":{}}],"usageMetadata":null}

"#;
    let lines = read::<Gemini>(EVENT_STREAM, stream);
    let said: String = lines
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(_, text)| text)
        .collect();
    assert_eq!(said, "So🦫!", "{lines:?}");
}
