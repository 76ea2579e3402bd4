//! The events of responses, non-streamed and streamed.

use weir_adapter_anthropic::translate::Anthropic;
use weir_sdk::chat::{ChatRequest, CustomTool, ToolKind};
use weir_sdk::testing::{
    EVENT_STREAM, JSON, check_every_cut, check_every_truncation, check_mutations, lines, read,
    receive, streamed, tool,
};

/// A response with each kind of block: signed and redacted thinking, a server's search and its results, a text that
/// cites it, and two calls, one of them without arguments.
const STREAM: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-test-1","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":20,"cache_creation_input_tokens":30,"cache_read_input_tokens":100,"cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20},"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: ping
data: {"type": "ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Grö"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"ße?"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"c2VhbGVk"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"query\": \"be"}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"aver 🦫\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: content_block_start
data: {"type":"content_block_start","index":3,"content_block":{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","url":"https://example.com/a"}]}}

event: content_block_stop
data: {"type":"content_block_stop","index":3}

event: content_block_start
data: {"type":"content_block_start","index":4,"content_block":{"type":"text","text":"","citations":[]}}

event: content_block_delta
data: {"type":"content_block_delta","index":4,"delta":{"type":"text_delta","text":"Ein 🦫."}}

event: content_block_delta
data: {"type":"content_block_delta","index":4,"delta":{"type":"citations_delta","citation":{"type":"web_search_result_location","cited_text":"A beaver.","url":"https://example.com/a","title":"A","encrypted_index":"x"}}}

event: content_block_stop
data: {"type":"content_block_stop","index":4}

event: content_block_start
data: {"type":"content_block_start","index":5,"content_block":{"type":"tool_use","id":"toolu_1","name":"look","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":5,"delta":{"type":"input_json_delta","partial_json":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":5,"delta":{"type":"input_json_delta","partial_json":"{\"at\":"}}

event: content_block_delta
data: {"type":"content_block_delta","index":5,"delta":{"type":"input_json_delta","partial_json":"\"🦫\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":5}

event: content_block_start
data: {"type":"content_block_start","index":6,"content_block":{"type":"tool_use","id":"toolu_2","name":"wait","input":{}}}

event: content_block_stop
data: {"type":"content_block_stop","index":6}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":40,"output_tokens_details":{"thinking_tokens":7},"server_tool_use":{"web_search_requests":1}}}

event: message_stop
data: {"type":"message_stop"}

"#;

/// The same response, non-streamed.
const WHOLE: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-test-1","content":[
    {"type":"thinking","thinking":"Größe?","signature":"c2ln"},
    {"type":"redacted_thinking","data":"c2VhbGVk"},
    {"id":"srvtoolu_1","input":{"query": "beaver 🦫"},"name":"web_search","type":"server_tool_use"},
    {"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","url":"https://example.com/a"}]},
    {"type":"text","text":"Ein 🦫.","citations":[{"type":"web_search_result_location","cited_text":"A beaver.","url":"https://example.com/a","title":"A","encrypted_index":"x"}]},
    {"type":"tool_use","id":"toolu_1","name":"look","input":{"at":"🦫"}},
    {"type":"tool_use","id":"toolu_2","name":"wait","input":{}}
    ],"stop_reason":"tool_use","stop_sequence":null,
    "usage":{"input_tokens":20,"cache_creation_input_tokens":30,"cache_read_input_tokens":100,"cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20},"output_tokens":40,"output_tokens_details":{"thinking_tokens":7},"server_tool_use":{"web_search_requests":1}}}"#;

const BLOCKS: [&str; 20] = [
    "0 reasoning",
    "0: Größe?",
    "0 signature: c2ln",
    "0 ends",
    "1 reasoning",
    "1 sealed: c2VhbGVk",
    "1 ends",
    r#"2 server_tool_use {"id":"srvtoolu_1","input":{"query": "beaver 🦫"},"name":"web_search","type":"server_tool_use"}"#,
    r#"3 web_search_tool_result {"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","url":"https://example.com/a"}]}"#,
    "4 text",
    "4: Ein 🦫.",
    "4 cites https://example.com/a A A beaver.",
    "4 ends",
    "5 call toolu_1 look",
    "5: {\"at\":\"🦫\"}",
    "5 ends",
    "6 call toolu_2 wait",
    "6: {}",
    "6 ends",
    "usage in=150 read=100 write=10 write-long=20 out=40 reasoning=7 web-searches=1",
];

/// A stream of these blocks with this end.
fn said(blocks: &str, end: &str) -> String {
    format!(
        "event: message_start\ndata: {{\"type\":\"message_start\",\"message\":{{\"content\":[],\"usage\":{{\"input_tokens\":5,\"output_tokens\":1}}}}}}\n\n\
         {blocks}\
         event: message_delta\ndata: {{\"type\":\"message_delta\",\"delta\":{end},\"usage\":{{\"output_tokens\":2}}}}\n\n\
         event: message_stop\ndata: {{\"type\":\"message_stop\"}}\n\n"
    )
}

const TEXT: &str = "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n\
    event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\n\
    event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n";

#[test]
fn gives_the_same_blocks_whole_and_streamed() {
    let started = "started msg_1 claude-test-1";
    let streamed = read::<Anthropic>(EVENT_STREAM, STREAM);
    assert_eq!(
        streamed[..2],
        [
            started,
            "usage in=150 read=100 write=10 write-long=20 out=1"
        ]
    );
    assert_eq!(streamed[2..22], BLOCKS);
    assert_eq!(streamed[22..], ["finish ToolCalls"]);
    let whole = read::<Anthropic>(JSON, WHOLE);
    assert_eq!(whole[0], started);
    assert_eq!(whole[1..21], BLOCKS);
    assert_eq!(whole[21..], ["finish ToolCalls"]);
}

#[test]
fn gives_the_same_events_wherever_it_is_cut() {
    check_every_cut::<Anthropic>(EVENT_STREAM, STREAM);
    check_every_cut::<Anthropic>(JSON, WHOLE);
}

#[test]
fn takes_no_beginning_for_the_whole() {
    let last = "\"web_search_requests\":1}}}";
    check_every_truncation::<Anthropic>(EVENT_STREAM, STREAM, last);
    check_every_truncation::<Anthropic>(JSON, WHOLE, "}");
}

#[test]
fn survives_any_bytes() {
    check_mutations::<Anthropic>(
        EVENT_STREAM,
        &[STREAM, &said(TEXT, "{\"stop_reason\":\"end_turn\"}")],
    );
    check_mutations::<Anthropic>(JSON, &[WHOLE]);
}

#[test]
fn keeps_an_empty_block_that_is_signed() {
    let whole = r#"{"content":[{"type":"thinking","thinking":"","signature":"c2ln"},{"type":"text","text":"a"}],"stop_reason":"end_turn"}"#;
    assert_eq!(
        read::<Anthropic>(JSON, whole),
        [
            "0 reasoning",
            "0 signature: c2ln",
            "0 ends",
            "1 text",
            "1: a",
            "1 ends",
            "finish Stop"
        ]
    );
}

#[test]
fn names_every_reason_to_finish() {
    for (end, finish) in [
        (r#"{"stop_reason":"end_turn"}"#, "finish Stop"),
        (r#"{"stop_reason":"compaction"}"#, "finish Stop"),
        (
            r#"{"stop_reason":"stop_sequence","stop_sequence":"END"}"#,
            "finish StopSequence(\"END\")",
        ),
        (r#"{"stop_reason":"max_tokens"}"#, "finish Length"),
        (r#"{"stop_reason":"tool_use"}"#, "finish ToolCalls"),
        (r#"{"stop_reason":"pause_turn"}"#, "finish PauseTurn"),
        (r#"{"stop_reason":"refusal"}"#, "finish Refusal"),
        (
            r#"{"stop_reason":"model_context_window_exceeded"}"#,
            "finish ContextWindow",
        ),
        (r#"{"stop_reason":"tired"}"#, "finish Other(\"tired\")"),
    ] {
        let lines = read::<Anthropic>(EVENT_STREAM, &said(TEXT, end));
        assert_eq!(lines.last().map(String::as_str), Some(finish));
    }
}

#[test]
fn takes_a_stop_sequence_that_leaves_no_block() {
    let end = r#"{"stop_reason":"stop_sequence","stop_sequence":"END"}"#;
    let lines = read::<Anthropic>(EVENT_STREAM, &said("", end));
    assert_eq!(
        lines,
        [
            "usage in=5 out=1",
            "usage in=5 out=2",
            "finish StopSequence(\"END\")"
        ]
    );
}

#[test]
fn says_why_the_model_declined() {
    let end = r#"{"stop_reason":"refusal","stop_details":{"type":"refusal","category":"cyber","explanation":"No."}}"#;
    assert_eq!(
        read::<Anthropic>(EVENT_STREAM, &said(TEXT, end))[4..],
        [
            "usage in=5 out=2",
            "1 refusal",
            "1: No.",
            "1 ends",
            "finish Refusal"
        ]
    );
}

#[test]
fn keeps_blocks_that_the_vocabulary_has_not() {
    let blocks = "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"compaction\",\"content\":null}}\n\n\
        data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"compaction_delta\",\"content\":\"So far: \\\"hi\\\"\"}}\n\n\
        data: {\"type\":\"content_block_stop\",\"index\":0}\n\n\
        data: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"novelty\",\"text\":7}}\n\n\
        data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"novelty_delta\",\"shape\":7}}\n\n\
        data: {\"type\":\"content_block_stop\",\"index\":1}\n\n\
        event: novel\ndata: {\"type\":\"novel\"}\n\n";
    assert_eq!(
        read::<Anthropic>(
            EVENT_STREAM,
            &said(blocks, "{\"stop_reason\":\"end_turn\"}")
        )[1..3],
        [
            r#"0 compaction {"content":"So far: \"hi\"","type":"compaction"}"#,
            r#"1 novelty {"type":"novelty","text":7}"#,
        ]
    );
}

#[test]
fn cites_documents_by_title() {
    let whole = r#"{"content":[{"type":"text","text":"a","citations":[
        {"type":"char_location","cited_text":"x","document_index":0,"document_title":"facts.txt","start_char_index":0,"end_char_index":1},
        {"type":"search_result_location","cited_text":"y","source":"kb/1","title":"T"}, 7]}],"stop_reason":"end_turn"}"#;
    assert_eq!(
        read::<Anthropic>(JSON, whole)[2..4],
        ["0 cites - facts.txt x", "0 cites kb/1 T y"]
    );
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
    let blocks = "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"patch\",\"input\":{}}}\n\n\
        data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"input\\\":\"}}\n\n\
        data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"\\\"*** Begin\\\"}\"}}\n\n";
    let stream = said(blocks, "{\"stop_reason\":\"tool_use\"}");
    let (events, result) = receive::<Anthropic>(chat, 200, EVENT_STREAM, [stream.as_bytes()]);
    assert_eq!(result, Ok(()));
    assert_eq!(
        lines(&events)[1..],
        [
            "0 call t patch with free text",
            "usage in=5 out=2",
            "0: *** Begin",
            "0 ends",
            "finish ToolCalls"
        ]
    );
}

#[test]
fn counts_what_is_billed() {
    for (usage, counted) in [
        // A cache write without a lifetime counts as minutes.
        (
            r#"{"input_tokens":1,"cache_creation_input_tokens":5,"output_tokens":2}"#,
            "usage in=6 write=5 out=2",
        ),
        // A breakdown that lags behind the total.
        (
            r#"{"input_tokens":1,"cache_creation_input_tokens":5,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"output_tokens":2}"#,
            "usage in=6 write=5 write-long=0 out=2",
        ),
        // The summary of the conversation is billed, but only listed.
        (
            r#"{"input_tokens":10,"output_tokens":2,"cache_read_input_tokens":0,"iterations":[
                {"type":"compaction","input_tokens":100,"output_tokens":20,"cache_read_input_tokens":50},
                {"type":"message","input_tokens":10,"output_tokens":2,"cache_read_input_tokens":0}]}"#,
            "usage in=160 read=50 out=22",
        ),
        // A refusal before any output is not billed.
        (
            r#"{"input_tokens":10,"output_tokens":2,"iterations":[
                {"type":"message","input_tokens":8,"output_tokens":0},
                {"type":"fallback_message","input_tokens":10,"output_tokens":2}]}"#,
            "usage in=10 out=2",
        ),
        // Another model took part.
        (
            r#"{"input_tokens":10,"output_tokens":2,"iterations":[
                {"type":"message","input_tokens":10,"output_tokens":2},
                {"type":"advisor_message","input_tokens":7,"output_tokens":3}]}"#,
            "usage in=10 out=2 advisor-input-tokens=7 advisor-output-tokens=3",
        ),
        (r#"{"input_tokens":-1,"output_tokens":"x"}"#, "usage"),
    ] {
        let whole = format!(r#"{{"content":[],"stop_reason":"end_turn","usage":{usage}}}"#);
        assert_eq!(read::<Anthropic>(JSON, &whole)[0], counted);
    }
}

/// Values of other types than usual, kinds of later versions, and halves of characters cost nothing else of an answer.
#[test]
fn survives_odd_values() {
    let whole = r#"{"content":[{},{"type":"text","text":"So\ud83e"},{"type":"novelty","x":1},{"type":null},
        {"type":"text","text":{"x":1}},{"type":"text","text":"\uddab!","citations":"x"}],
        "stop_reason":"end_turn","stop_details":"x","usage":null}"#;
    let stream = r#"data: {"type":"message_start","message":{"id":null,"content":null,"usage":7}}

data: {"type":"novelty","index":"x"}

data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":null}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"So\ud83e"}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":{"x":1}}}

data: {"type":"content_block_delta","index":0,"delta":{}}

data: {"type":"content_block_delta","index":0}

data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\uddab!"}}

data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_details":[]}}

data: {"type":"message_stop"}

"#;
    for (headers, answer) in [(JSON, whole), (EVENT_STREAM, stream)] {
        let lines = read::<Anthropic>(headers, answer);
        let said: String = lines
            .iter()
            .filter_map(|line| line.split_once(": "))
            .map(|(_, text)| text)
            .collect();
        assert_eq!(said, "So🦫!", "{lines:?}");
    }
}
