//! The events of responses, non-streamed and streamed.

use weir_sdk::adapter::{Event, Failure, FailureKind};
use weir_sdk::chat::{
    Block, BlockStart, CallKind, Citation, FinishReason, Fragment, NamedCount, Span, Started,
    ToolCallStart, Usage,
};

use weir_sdk::testing::lines;

use crate::{EVENT_STREAM, JSON, receive};

const NO_USAGE: Usage = Usage {
    input_tokens: None,
    cache_read_tokens: None,
    cache_write_short_tokens: None,
    cache_write_long_tokens: None,
    output_tokens: None,
    reasoning_tokens: None,
    images: None,
    other: Vec::new(),
};

/// Joins adjacent fragments of each block, as a non-streamed response has them.
fn joined(events: Vec<Event>) -> Vec<Event> {
    let mut joined: Vec<Event> = Vec::new();
    for event in events {
        match (joined.last_mut(), &event) {
            (Some(Event::Fragment(known)), Event::Fragment(more)) if known.index == more.index => {
                known.text.push_str(&more.text);
            }
            _ => joined.push(event),
        }
    }
    joined
}

fn whole(message: &str, finish_reason: &str) -> Result<Vec<Event>, Failure> {
    let body = format!(
        r#"{{"choices":[{{"index":0,"message":{message},"finish_reason":{finish_reason}}}]}}"#
    );
    receive(200, JSON, [body.as_bytes()])
}

/// A stream of these chunks, ended as OpenAI ends it.
fn stream(chunks: &[&str]) -> Result<Vec<Event>, Failure> {
    let stream: String = chunks
        .iter()
        .chain(&["[DONE]"])
        .map(|chunk| format!("data: {chunk}\n\n"))
        .collect();
    receive(200, EVENT_STREAM, [stream.as_bytes()])
}

/// A stream of these deltas with this finish reason.
fn deltas(deltas: &[&str], finish_reason: &str) -> Vec<Event> {
    let mut chunks: Vec<String> = deltas
        .iter()
        .map(|delta| {
            format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#)
        })
        .collect();
    chunks.push(format!(
        r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{finish_reason}"}}]}}"#
    ));
    let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
    stream(&chunks).expect("an answer")
}

fn start(index: u32, block: Block) -> Event {
    Event::BlockStart(BlockStart { index, block })
}

fn fragment(index: u32, text: &str) -> Event {
    let text = text.to_owned();
    Event::Fragment(Fragment { index, text })
}

/// The events of a complete block.
fn block(index: u32, block: Block, text: &str) -> [Event; 3] {
    [
        start(index, block),
        fragment(index, text),
        Event::BlockEnd(index),
    ]
}

fn called(id: &str, name: &str, kind: CallKind) -> Block {
    Block::ToolCall(ToolCallStart {
        id: id.to_owned(),
        name: name.to_owned(),
        kind,
    })
}

fn function(id: &str, name: &str) -> Block {
    called(id, name, CallKind::Function)
}

/// The events of a response with these blocks; calls end after all other blocks.
fn answer<const N: usize>(blocks: [(Block, &str); N], reason: FinishReason) -> Vec<Event> {
    let (mut events, mut ends) = (Vec::new(), Vec::new());
    for (index, (block, text)) in (0..).zip(blocks) {
        let is_call = matches!(block, Block::ToolCall(_));
        events.extend([start(index, block), fragment(index, text)]);
        if is_call {
            ends.push(Event::BlockEnd(index));
        } else {
            events.push(Event::BlockEnd(index));
        }
    }
    events.extend(ends);
    events.push(finish(reason));
    events
}

fn finish(reason: FinishReason) -> Event {
    Event::Finish(reason)
}

/// The events of [`STREAM`] and of [`WHOLE`], which are equal.
fn rich_answer() -> Vec<Event> {
    let usage = Event::Usage(Usage {
        input_tokens: Some(20),
        cache_read_tokens: Some(16),
        output_tokens: Some(12),
        reasoning_tokens: Some(3),
        ..NO_USAGE
    });
    let citation = r#"{"type":"url_citation","url_citation":{"url":"https://example.com/a","title":"A","start_index":4,"end_index":12}}"#;
    let mut events = vec![Event::Started(Started {
        id: Some("x".to_owned()),
        model: Some("gpt-test-1".to_owned()),
    })];
    events.extend(block(0, Block::Reasoning, "Größe?"));
    events.extend([
        start(1, Block::Text),
        fragment(1, "Ich schaue 🦫 nach."),
        Event::Citation(Citation {
            index: 1,
            source: Some("https://example.com/a".to_owned()),
            title: Some("A".to_owned()),
            cited_text: None,
            span: Some(Span { start: 4, end: 12 }),
            json: Some(citation.to_owned()),
        }),
        Event::BlockEnd(1),
        start(2, function("call_a", "look")),
        fragment(2, r#"{"at":"🦫"}"#),
        start(3, function("call_b", "wait")),
    ]);
    events.extend([
        usage,
        Event::BlockEnd(2),
        fragment(3, "{}"),
        Event::BlockEnd(3),
        finish(FinishReason::ToolCalls),
    ]);
    events
}

const STREAM: &str = concat!(
    ": a comment\r\n\r\n",
    "data: {\"id\":\"x\",\"model\":\"gpt-test-1\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},\"finish_reason\":null}],\"usage\":null}\r\n\r\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"Grö\",\"content\":null}}]}\r\n\r\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"ße?\"}}]}\r\n\r\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Ich schaue 🦫\"}},{\"index\":1,\"delta\":{\"content\":\"other\"}}]}\r\n\r\n",
    "data: {\"choices\":[{\"index\":0,\r\ndata: \"delta\":{\"content\":\" nach.\"}}]}\r\n\r\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"annotations\":[{\"type\":\"url_citation\",\"url_citation\":{\"url\":\"https://example.com/a\",\"title\":\"A\",\"start_index\":4,\"end_index\":12}}]}}]}\r\n\r\n",
    ": ping\r\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"call_a\",\"type\":\"function\",\"function\":{\"name\":\"look\",\"arguments\":\"\"}}]}}]}\r\n\r\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"at\\\":\"}}]}}]}\r\n\r\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"\\\"\\ud83e\\uddab\\\"}\"}}]}}]}\r\n\r\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":1,\"id\":\"call_b\",\"function\":{\"name\":\"wait\",\"arguments\":\"\"}}]}}]}\r\n\r\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\r\n\r\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":12,\"total_tokens\":32,\"prompt_tokens_details\":{\"cached_tokens\":16},\"completion_tokens_details\":{\"reasoning_tokens\":3}}}\r\n\r\n",
    "data: [DONE]\r\n\r\n",
);

const WHOLE: &str = r#"{"id":"x","model":"gpt-test-1","object":"chat.completion","choices":[{"index":0,"message":
    {"role":"assistant","reasoning_content":"Größe?","content":"Ich schaue 🦫 nach.","refusal":null,
    "annotations":[{"type":"url_citation","url_citation":{"url":"https://example.com/a","title":"A","start_index":4,"end_index":12}}],
    "tool_calls":[
        {"id":"call_a","type":"function","function":{"name":"look","arguments":"{\"at\":\"🦫\"}"}},
        {"id":"call_b","type":"function","function":{"name":"wait","arguments":""}}
    ]},"finish_reason":"tool_calls"}],
    "usage":{"prompt_tokens":20,"completion_tokens":12,"total_tokens":32,
    "prompt_tokens_details":{"cached_tokens":16},"completion_tokens_details":{"reasoning_tokens":3}}}"#;

#[test]
fn gives_the_same_events_whole_and_streamed_and_wherever_it_is_cut() {
    for (headers, body) in [(EVENT_STREAM, STREAM), (JSON, WHOLE)] {
        let bytes = body.as_bytes();
        let uncut = receive(200, headers, [bytes]).expect("an answer");
        assert_eq!(joined(uncut.clone()), rich_answer());
        for at in 0..=bytes.len() {
            let (first, second) = bytes.split_at(at);
            let cut = receive(200, headers, [first, second]);
            assert_eq!(cut.as_ref(), Ok(&uncut), "cut at {at}");
        }
        assert_eq!(receive(200, headers, bytes.chunks(1)), Ok(uncut));
    }
}

#[test]
fn tells_a_stream_from_a_whole_answer_by_its_label_and_then_by_what_was_asked() {
    for headers in [&[][..], &[("content-type", "text/plain")]] {
        let events = receive(200, headers, [STREAM.as_bytes()]).expect("an answer");
        assert_eq!(joined(events), rich_answer());
    }
}

#[test]
fn names_every_reason_to_finish() {
    let other = || FinishReason::Other("Tired".to_owned());
    for (reason, finished) in [
        ("\"stop\"", FinishReason::Stop),
        ("\"length\"", FinishReason::Length),
        ("\"max_tokens\"", FinishReason::Length),
        ("\"tool_calls\"", FinishReason::ToolCalls),
        ("\"function_call\"", FinishReason::ToolCalls),
        ("\"content_filter\"", FinishReason::ContentFilter),
        ("\"refusal\"", FinishReason::Refusal),
        ("\"pause_turn\"", FinishReason::PauseTurn),
        (
            "\"model_context_window_exceeded\"",
            FinishReason::ContextWindow,
        ),
        ("\"MALFORMED_FUNCTION_CALL\"", FinishReason::MalformedCall),
        ("\"eos\"", FinishReason::Stop),
        ("\"end_turn\"", FinishReason::Stop),
        ("\"stop_sequence\"", FinishReason::Stop),
        ("\"STOP\"", FinishReason::Stop),
        ("\"Tired\"", other()),
        ("\"\"", FinishReason::Stop),
        ("null", FinishReason::Stop),
    ] {
        let events = whole(r#"{"content":"a"}"#, reason).expect("an answer");
        assert_eq!(events.last(), Some(&finish(finished)), "{reason}");
    }
    assert_eq!(
        whole("{}", "\"error\""),
        Err(Failure::unavailable("finish_reason error"))
    );
}

#[test]
fn calls_a_stop_after_calls_what_it_is() {
    let message =
        r#"{"content":null,"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]}"#;
    let events = whole(message, "\"stop\"").expect("an answer");
    assert_eq!(events.last(), Some(&finish(FinishReason::ToolCalls)));
}

#[test]
fn emits_a_refusal_as_a_block_that_finishes_as_one() {
    let expected = answer([(Block::Refusal, "I can't.")], FinishReason::Refusal);
    let events = whole(r#"{"content":null,"refusal":"I can't."}"#, "\"stop\"");
    assert_eq!(events.expect("an answer"), expected);
    let events = deltas(&[r#"{"refusal":"I "}"#, r#"{"refusal":"can't."}"#], "stop");
    assert_eq!(joined(events), expected);
    // A truncated refusal is still a refusal.
    let events = deltas(&[r#"{"refusal":"I "}"#], "length");
    assert_eq!(events.last(), Some(&finish(FinishReason::Length)));
    let events = deltas(&[r#"{"content":"Well. "}"#, r#"{"refusal":"No."}"#], "stop");
    let expected = [(Block::Text, "Well. "), (Block::Refusal, "No.")];
    assert_eq!(events, answer(expected, FinishReason::Refusal));
}

#[test]
fn names_the_upstreams_answer_and_model_before_all_else_or_not_at_all() {
    let started = |id: Option<&str>, model: Option<&str>| {
        Event::Started(Started {
            id: id.map(str::to_owned),
            model: model.map(str::to_owned),
        })
    };
    let end =
        r#"{"id":"b","model":"n","choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#;
    for (chunk, first) in [
        (r#"{"id":"a","model":"m"}"#, started(Some("a"), Some("m"))),
        (r#"{"id":"a","model":7}"#, started(Some("a"), None)),
        (r#"{"model":"m"}"#, started(None, Some("m"))),
        // Azure's first chunk, which has neither name.
        (
            r#"{"id":"","model":"","choices":[],"prompt_filter_results":[]}"#,
            started(Some("b"), Some("n")),
        ),
        (
            r#"{"choices":[{"delta":{"content":"x"}}]}"#,
            start(0, Block::Text),
        ),
    ] {
        let events = stream(&[chunk, end]).expect("an answer");
        assert_eq!(events[0], first, "{chunk}");
        let is_started = |event: &&Event| matches!(event, Event::Started(_));
        assert!(events.iter().filter(is_started).count() <= 1);
    }
}

fn citations(events: &[Event]) -> Vec<(u32, Option<Span>)> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::Citation(citation) => Some((citation.index, citation.span)),
            _ => None,
        })
        .collect()
}

#[test]
fn counts_the_span_of_a_citation_from_the_start_of_its_block() {
    let cite = |start: &str, end: &str| {
        format!(
            r#"{{"annotations":[{{"type":"url_citation","url_citation":{{"url":"u","start_index":{start},"end_index":{end}}}}}]}}"#
        )
    };
    let spanned = |start: &str, end: &str| {
        let events = deltas(
            &[
                r#"{"content":"Hé🦫"}"#,
                r#"{"reasoning":"hm"}"#,
                r#"{"content":"one two"}"#,
                &cite(start, end),
            ],
            "stop",
        );
        citations(&events)
    };
    let span = |start, end| vec![(2, Some(Span { start, end }))];
    assert_eq!(spanned("3", "6"), span(0, 3));
    assert_eq!(spanned("7", "10"), span(4, 7));
    // Outside the block's content so far, or no span at all.
    for (start, end) in [("0", "6"), ("7", "11"), ("4", "4"), ("6", "5"), ("-1", "4")] {
        assert_eq!(spanned(start, end), [(2, None)], "{start} {end}");
    }
    assert_eq!(spanned("null", "6"), [(2, None)]);

    // Before any text, as OpenRouter sends them.
    let events = deltas(&[&cite("0", "0"), r#"{"content":"a"}"#], "stop");
    assert_eq!(citations(&events), [(0, None)]);
    let is_start = |event: &&Event| matches!(event, Event::BlockStart(_));
    assert_eq!(events.iter().filter(is_start).count(), 1);
    // Annotations of another kind, and unreadable ones.
    let events = deltas(
        &[r#"{"content":"a","annotations":[{"type":"file"},7,{"url_citation":{"url":1}}]}"#],
        "stop",
    );
    assert_eq!(citations(&events), []);
}

#[test]
fn reads_reasoning_under_each_of_its_names_once() {
    for delta in [
        r#"{"reasoning_content":"hm"}"#,
        r#"{"reasoning":"hm"}"#,
        r#"{"reasoning_content":"hm","reasoning":"hm"}"#,
        r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}"#,
    ] {
        let events = deltas(
            &[delta, r#"{"content":[{"type":"text","text":"yes"}]}"#],
            "stop",
        );
        let expected = [(Block::Reasoning, "hm"), (Block::Text, "yes")];
        assert_eq!(events, answer(expected, FinishReason::Stop), "{delta}");
    }
}

#[test]
fn takes_a_call_in_whatever_pieces_it_comes() {
    for pieces in [
        // OpenAI.
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\""}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}"#,
        ][..],
        // All in one piece.
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}]}"#,
        ],
        // Id and name repeated.
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":":1}"}}]}"#,
        ],
        // No index.
        &[
            r#"{"tool_calls":[{"id":"a","function":{"name":"f"}}]}"#,
            r#"{"tool_calls":[{"function":{"arguments":"{\"x\":1}"}}]}"#,
        ],
        // The name after the id, and nulls for what is not there.
        &[
            r#"{"content":null,"tool_calls":[{"index":0,"id":"a","function":null}]}"#,
            r#"{"tool_calls":[{"index":0,"id":null,"function":{"name":"f","arguments":null}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"","function":{"name":null,"arguments":"{\"x\":1}"}}]}"#,
        ],
        // An object where there should be a string.
        &[r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":{"x":1}}}]}"#],
        // The arguments before the name.
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{\"x\""}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"name":"f","arguments":":1}"}}]}"#,
        ],
        // A custom tool's fields beside the function's, empty (Snowflake).
        &[
            r#"{"tool_calls":[{"id":"a","custom":{"name":"","input":""},"function":{"name":"f","arguments":"{\"x\":1}"}}],"function_call":{"name":"","arguments":""}}"#,
        ],
    ] {
        let expected = answer(
            [(function("a", "f"), r#"{"x":1}"#)],
            FinishReason::ToolCalls,
        );
        assert_eq!(joined(deltas(pieces, "tool_calls")), expected, "{pieces:?}");
    }
}

#[test]
fn takes_no_arguments_for_an_empty_object() {
    for arguments in [
        "",
        r#","arguments":"""#,
        r#","arguments":null"#,
        r#","arguments":"null""#,
    ] {
        let delta =
            format!(r#"{{"tool_calls":[{{"id":"a","function":{{"name":"f"{arguments}}}}}]}}"#);
        let expected = answer([(function("a", "f"), "{}")], FinishReason::ToolCalls);
        assert_eq!(deltas(&[&delta], "tool_calls"), expected, "{arguments}");
    }
}

#[test]
fn reads_what_calls_were_before_there_could_be_several() {
    let expected = answer([(function("call_0", "f"), "{}")], FinishReason::ToolCalls);
    let message = r#"{"content":null,"function_call":{"name":"f","arguments":"{}"}}"#;
    assert_eq!(whole(message, "\"function_call\""), Ok(expected.clone()));
    let pieces = [
        r#"{"function_call":{"name":"f","arguments":""}}"#,
        r#"{"function_call":{"arguments":"{"}}"#,
        r#"{"function_call":{"arguments":"}"}}"#,
    ];
    assert_eq!(joined(deltas(&pieces, "function_call")), expected);
}

#[test]
fn reads_calls_of_custom_tools() {
    let expected = |input: &str| {
        let sing = called("a", "sing", CallKind::Custom);
        let mut events = vec![start(0, sing)];
        if !input.is_empty() {
            events.push(fragment(0, input));
        }
        events.extend([Event::BlockEnd(0), finish(FinishReason::ToolCalls)]);
        events
    };
    let message = r#"{"tool_calls":[{"id":"a","type":"custom","custom":{"name":"sing","input":"la \"la\""}}]}"#;
    assert_eq!(whole(message, "\"tool_calls\""), Ok(expected("la \"la\"")));
    let pieces = [
        r#"{"tool_calls":[{"index":0,"id":"a","type":"custom","custom":{"name":"sing","input":""}}]}"#,
        r#"{"tool_calls":[{"index":0,"custom":{"input":"la "}}]}"#,
        r#"{"tool_calls":[{"index":0,"custom":{"input":"la"}}]}"#,
    ];
    assert_eq!(joined(deltas(&pieces, "tool_calls")), expected("la la"));
    // Free text may be empty, and may be `null`.
    assert_eq!(deltas(&pieces[..1], "tool_calls"), expected(""));
    let message = r#"{"tool_calls":[{"id":"a","custom":{"name":"sing","input":"null"}}]}"#;
    assert_eq!(whole(message, "\"tool_calls\""), Ok(expected("null")));
}

#[test]
fn streams_interleaved_calls_as_they_come() {
    let events = deltas(
        &[
            r#"{"content":"Both."}"#,
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}},{"index":1,"id":"b","function":{"name":"g","arguments":"{\"y\""}}]}"#,
            r#"{"tool_calls":[{"index":1,"function":{"arguments":":2}"}}]}"#,
            r#"{"content":"Done."}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}"#,
        ],
        "tool_calls",
    );
    let mut expected = block(0, Block::Text, "Both.").to_vec();
    expected.extend([
        start(1, function("a", "f")),
        fragment(1, r#"{"x""#),
        start(2, function("b", "g")),
        fragment(2, r#"{"y""#),
        fragment(2, ":2}"),
        start(3, Block::Text),
        fragment(3, "Done."),
        fragment(1, ":1}"),
        Event::BlockEnd(3),
        Event::BlockEnd(1),
        Event::BlockEnd(2),
        finish(FinishReason::ToolCalls),
    ]);
    assert_eq!(events, expected);
}

#[test]
fn tells_calls_apart_by_id_where_the_index_does_not() {
    for index in [r#""index":0,"#, ""] {
        let delta = |id: &str, argument: u8| {
            format!(
                r#"{{"tool_calls":[{{{index}"id":"{id}","function":{{"name":"f","arguments":"{{\"x\":{argument}}}"}}}}]}}"#
            )
        };
        let events = deltas(&[&delta("a", 1), &delta("b", 2)], "tool_calls");
        let calls = [
            (function("a", "f"), r#"{"x":1}"#),
            (function("b", "f"), r#"{"x":2}"#),
        ];
        assert_eq!(events, answer(calls, FinishReason::ToolCalls));
    }
}

#[test]
fn gives_ids_to_calls_that_have_none() {
    let message = r#"{"tool_calls":[{"function":{"name":"f","arguments":"{}"}},{"function":{"name":"g","arguments":"{}"}}]}"#;
    let calls = || {
        [
            (function("call_0", "f"), "{}"),
            (function("call_1", "g"), "{}"),
        ]
    };
    let expected = answer(calls(), FinishReason::ToolCalls);
    assert_eq!(whole(message, "\"tool_calls\""), Ok(expected.clone()));
    assert_eq!(deltas(&[message], "tool_calls"), expected);
    // A name after the first argument is too late.
    let events = deltas(
        &[
            r#"{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{"}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"late","function":{"arguments":"}"}}]}"#,
        ],
        "tool_calls",
    );
    let expected = answer([(function("call_0", "f"), "{}")], FinishReason::ToolCalls);
    assert_eq!(joined(events), expected);
}

#[test]
fn refuses_calls_without_a_name_and_calls_without_end() {
    let nameless = whole(r#"{"tool_calls":[{"id":"a"}]}"#, "\"tool_calls\"");
    assert!(is_malformed(nameless));
    let calls = vec![r#"{"id":"a","function":{"name":"f"}}"#; 257].join(",");
    let endless = whole(&format!(r#"{{"tool_calls":[{calls}]}}"#), "\"tool_calls\"");
    assert!(is_malformed(endless));
}

fn is_malformed(answer: Result<Vec<Event>, Failure>) -> bool {
    matches!(answer, Err(failure) if failure.kind == FailureKind::Malformed)
}

#[test]
fn streams_a_call_as_it_comes() {
    let events = deltas(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}"#,
        ],
        "tool_calls",
    );
    let fragments = events
        .iter()
        .filter(|event| matches!(event, Event::Fragment(_)))
        .count();
    assert_eq!(fragments, 2);
}

#[test]
fn ends_without_the_last_marker_if_the_answer_has_ended() {
    let cut = br#"data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}"#;
    assert_eq!(
        receive(200, EVENT_STREAM, [&cut[..]]),
        Ok(answer([(Block::Text, "a")], FinishReason::Stop))
    );
}

#[test]
fn ignores_what_follows_the_last_marker() {
    let events = stream(&[
        r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}"#,
        "[DONE]",
        r#"{"choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}]}"#,
    ]);
    let expected = answer([(Block::Text, "a")], FinishReason::Stop);
    assert_eq!(events, Ok(expected));
}

fn usage(json: &str) -> Option<Usage> {
    let body = format!(
        r#"{{"choices":[{{"message":{{"content":"a"}},"finish_reason":"stop"}}],"usage":{json}}}"#
    );
    let events = receive(200, JSON, [body.as_bytes()]).expect("usage never costs the answer");
    events.into_iter().find_map(|event| match event {
        Event::Usage(usage) => Some(usage),
        _ => None,
    })
}

#[test]
fn takes_nonsense_in_usage_for_nothing() {
    for nonsense in [
        "null",
        "7",
        "\"many\"",
        "[]",
        "{}",
        r#"{"prompt_tokens":-1,"completion_tokens":1.5}"#,
        r#"{"prompt_tokens":1e999,"completion_tokens":99999999999999999999999}"#,
        r#"{"prompt_tokens":"1","completion_tokens":null}"#,
        r#"{"prompt_tokens_details":7,"completion_tokens_details":{"reasoning_tokens":{}}}"#,
    ] {
        assert_eq!(usage(nonsense), None, "{nonsense}");
    }
    assert_eq!(
        usage(
            r#"{"prompt_tokens":5,"completion_tokens":-2,"prompt_tokens_details":{"cached_tokens":18446744073709551615}}"#
        ),
        Some(Usage {
            input_tokens: Some(5),
            cache_read_tokens: Some(u64::MAX),
            ..NO_USAGE
        })
    );
}

#[test]
fn reads_what_some_prices_count_apart() {
    let read = usage(
        r#"{"prompt_tokens":9,"completion_tokens":8,"prompt_tokens_details":{"audio_tokens":1,"cache_write_tokens":5},
            "completion_tokens_details":{"audio_tokens":2,"accepted_prediction_tokens":3,"rejected_prediction_tokens":0}}"#,
    );
    let count = |name: &str, count| NamedCount {
        name: name.to_owned(),
        count,
    };
    assert_eq!(
        read,
        Some(Usage {
            input_tokens: Some(9),
            cache_write_short_tokens: Some(5),
            output_tokens: Some(8),
            other: vec![
                count("audio-input-tokens", 1),
                count("audio-output-tokens", 2),
                count("accepted-prediction-tokens", 3),
            ],
            ..NO_USAGE
        })
    );
}

#[test]
fn reads_usage_in_every_place_that_servers_put_it() {
    let cached = |field: &str| usage(&format!(r#"{{"prompt_tokens":5,{field}}}"#));
    let expected = Usage {
        input_tokens: Some(5),
        cache_read_tokens: Some(4),
        ..NO_USAGE
    };
    assert_eq!(
        cached(r#""prompt_tokens_details":{"cached_tokens":4}"#),
        Some(expected.clone())
    );
    assert_eq!(
        cached(r#""prompt_cache_hit_tokens":4"#),
        Some(expected.clone())
    );
    assert_eq!(cached(r#""num_cached_tokens":4"#), Some(expected.clone()));
    let events = stream(&[
        r#"{"choices":[{"delta":{"content":"a"}}],"x_groq":{"id":"r"}}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"x_groq":{"id":"r","usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":4}}}}"#,
    ]);
    let events = events.expect("an answer");
    assert!(events.contains(&Event::Usage(expected)));
}

#[test]
fn counts_reasoning_as_output_where_the_upstream_counts_it_beside() {
    let with_total = |total: u64| {
        usage(&format!(
            r#"{{"prompt_tokens":10,"completion_tokens":5,"total_tokens":{total},"completion_tokens_details":{{"reasoning_tokens":7}}}}"#
        ))
        .and_then(|usage| usage.output_tokens)
    };
    assert_eq!(with_total(22), Some(12));
    assert_eq!(with_total(15), Some(5));
    assert_eq!(with_total(u64::MAX), Some(5));
    assert_eq!(
        usage(r#"{"prompt_tokens":18446744073709551615,"completion_tokens":18446744073709551615,"total_tokens":1,"completion_tokens_details":{"reasoning_tokens":18446744073709551615}}"#)
            .and_then(|usage| usage.output_tokens),
        Some(u64::MAX)
    );
}

#[test]
fn says_usage_when_it_changes_and_before_it_finishes() {
    let chunk = |usage: &str, finish_reason: &str| {
        format!(
            r#"{{"choices":[{{"index":0,"delta":{{"content":"a"}},"finish_reason":{finish_reason}}}],"usage":{usage}}}"#
        )
    };
    let events = stream(&[
        &chunk(r#"{"prompt_tokens":3}"#, "null"),
        &chunk(r#"{"prompt_tokens":3}"#, "null"),
        &chunk("null", "\"stop\""),
        r#"{"choices":[],"usage":{"completion_tokens":2}}"#,
    ])
    .expect("an answer");
    let counted = |output_tokens| {
        Event::Usage(Usage {
            input_tokens: Some(3),
            output_tokens,
            ..NO_USAGE
        })
    };
    assert_eq!(
        events,
        [
            start(0, Block::Text),
            fragment(0, "a"),
            counted(None),
            fragment(0, "a"),
            fragment(0, "a"),
            counted(Some(2)),
            Event::BlockEnd(0),
            finish(FinishReason::Stop),
        ]
    );
}

#[test]
fn reads_reasoning_from_details_with_its_proofs() {
    let message = r#"{"reasoning":null,"reasoning_details":[{"type":"reasoning.summary","summary":"Hm."},
        {"type":"reasoning.encrypted","data":"x"},7,{"type":"reasoning.text","text":" So."},
        {"type":"reasoning.text","text":"","signature":"s1"},{"type":"reasoning.text","signature":"s2"}],"content":"a"}"#;
    let expected = [
        "0 reasoning",
        "0: Hm.",
        r#"0 sealed: {"type":"reasoning.encrypted","data":"x"}"#,
        "0 ends",
        "1 reasoning",
        "1:  So.",
        "1 signature: s1",
        "1 ends",
        "2 reasoning",
        "2 signature: s2",
        "2 ends",
        "3 text",
        "3: a",
        "3 ends",
        "finish Stop",
    ];
    assert_eq!(
        lines(&whole(message, "\"stop\"").expect("an answer")),
        expected
    );
    // Details beside the text repeat it.
    let message = message.replace("null", "\"Hm. So.\"");
    assert_eq!(
        lines(&whole(&message, "\"stop\"").expect("an answer")),
        expected
    );
    // If the details are unreadable, the text is used.
    let message = r#"{"reasoning":"Hm.","reasoning_details":[{"type":"reasoning.encrypted","data":"x"}],"content":""}"#;
    assert_eq!(
        lines(&whole(message, "\"stop\"").expect("an answer"))[..4],
        [
            "0 reasoning",
            "0: Hm.",
            r#"0 sealed: {"type":"reasoning.encrypted","data":"x"}"#,
            "0 ends",
        ]
    );
}

#[test]
fn an_object_as_the_content_is_its_json_text() {
    // Cloudflare's Workers AI for a response with a schema.
    let events = whole(
        r#"{"role":"assistant","content":{"b":1.50,"a":{"c":"x"}}}"#,
        "\"stop\"",
    );
    let events = events.expect("a response");
    assert!(lines(&events).contains(&r#"0: {"b":1.50,"a":{"c":"x"}}"#.to_owned()));
    let part = whole(
        r#"{"content":{"type":"text","text":"Hi","more":1}}"#,
        "\"stop\"",
    );
    assert!(lines(&part.expect("a response")).contains(&"0: Hi".to_owned()));
}

#[test]
fn the_sources_of_a_whole_text_are_cited_once_at_its_end() {
    // Perplexity's fields (docs.perplexity.ai, Chat Completions), which each chunk repeats.
    let sources = r#""citations":["https://a.example/"],"search_results":[{"title":"A","url":"https://a.example/","date":null}]"#;
    let chunk = |text: &str, finish: &str| {
        format!(
            r#"{{"choices":[{{"index":0,"delta":{{"content":"{text}"}},"finish_reason":{finish}}}],{sources}}}"#
        )
    };
    let streamed = stream(&[&chunk("It is", "null"), &chunk(" so[1].", "\"stop\"")]);
    let expected = [
        "0 text",
        "0: It is so[1].",
        "0 cites https://a.example/ A -",
        "0 ends",
        "finish Stop",
    ];
    assert_eq!(lines(&streamed.expect("a response")), expected);
    let body = format!(
        r#"{{"choices":[{{"index":0,"message":{{"content":"It is so[1]."}},"finish_reason":"stop"}}],{sources}}}"#
    );
    let events = receive(200, JSON, [body.as_bytes()]).expect("a response");
    assert_eq!(lines(&events), expected);
    let bare = body.replace("search_results", "other");
    let events = receive(200, JSON, [bare.as_bytes()]).expect("a response");
    assert_eq!(lines(&events)[2], "0 cites https://a.example/ - -");
}
