//! What an answer becomes, whole and streamed.

use weir_sdk::adapter::{Event, Failure};
use weir_sdk::chat::{BlockKind, FinishReason, ToolCallStart, Usage};

use crate::{EVENT_STREAM, JSON, receive};

const NO_USAGE: Usage = Usage {
    input_tokens: None,
    cache_read_tokens: None,
    cache_write_short_tokens: None,
    cache_write_long_tokens: None,
    output_tokens: None,
    reasoning_tokens: None,
    images: None,
};

/// The events with the fragments of each block joined, which is what a whole answer gives.
fn joined(events: Vec<Event>) -> Vec<Event> {
    let mut joined: Vec<Event> = Vec::new();
    for event in events {
        match (joined.last_mut(), &event) {
            (Some(Event::Text(text)), Event::Text(more))
            | (Some(Event::Reasoning(text)), Event::Reasoning(more))
            | (Some(Event::ToolCallFragment(text)), Event::ToolCallFragment(more)) => {
                text.push_str(more);
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

/// A stream of these deltas that ends for this reason.
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

fn start(kind: BlockKind) -> Event {
    Event::BlockStart(kind)
}

fn text(text: &str) -> Event {
    Event::Text(text.to_owned())
}

fn reasoning(text: &str) -> Event {
    Event::Reasoning(text.to_owned())
}

fn call(id: &str, name: &str, arguments: &str) -> [Event; 3] {
    [
        start(BlockKind::ToolCall),
        Event::ToolCall(ToolCallStart {
            id: id.to_owned(),
            name: name.to_owned(),
        }),
        Event::ToolCallFragment(arguments.to_owned()),
    ]
}

fn finish(reason: FinishReason) -> Event {
    Event::Finish(reason)
}

/// The answer of [`STREAM`] and [`WHOLE`], which both say it.
fn rich_answer() -> Vec<Event> {
    let mut events = vec![
        start(BlockKind::Reasoning),
        reasoning("Größe?"),
        start(BlockKind::Text),
        text("Ich schaue 🦫 nach."),
        Event::Citation("https://example.com/a".to_owned()),
    ];
    events.extend(call("call_a", "look", r#"{"at":"🦫"}"#));
    events.extend(call("call_b", "wait", "{}"));
    events.push(Event::Usage(Usage {
        input_tokens: Some(20),
        cache_read_tokens: Some(16),
        output_tokens: Some(12),
        reasoning_tokens: Some(3),
        ..NO_USAGE
    }));
    events.push(finish(FinishReason::ToolCalls));
    events
}

const STREAM: &str = concat!(
    ": a comment\r\n\r\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},\"finish_reason\":null}],\"usage\":null}\r\n\r\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"Grö\",\"content\":null}}]}\r\n\r\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"ße?\"}}]}\r\n\r\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Ich schaue 🦫\"}},{\"index\":1,\"delta\":{\"content\":\"other\"}}]}\r\n\r\n",
    "data: {\"choices\":[{\"index\":0,\r\ndata: \"delta\":{\"content\":\" nach.\"}}]}\r\n\r\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"annotations\":[{\"type\":\"url_citation\",\"url_citation\":{\"url\":\"https://example.com/a\"}}]}}]}\r\n\r\n",
    ": ping\r\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"call_a\",\"type\":\"function\",\"function\":{\"name\":\"look\",\"arguments\":\"\"}}]}}]}\r\n\r\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"at\\\":\"}}]}}]}\r\n\r\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"\\\"\\ud83e\\uddab\\\"}\"}}]}}]}\r\n\r\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":1,\"id\":\"call_b\",\"function\":{\"name\":\"wait\",\"arguments\":\"\"}}]}}]}\r\n\r\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\r\n\r\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":12,\"total_tokens\":32,\"prompt_tokens_details\":{\"cached_tokens\":16},\"completion_tokens_details\":{\"reasoning_tokens\":3}}}\r\n\r\n",
    "data: [DONE]\r\n\r\n",
);

const WHOLE: &str = r#"{"id":"x","object":"chat.completion","choices":[{"index":0,"message":
    {"role":"assistant","reasoning_content":"Größe?","content":"Ich schaue 🦫 nach.","refusal":null,
    "annotations":[{"type":"url_citation","url_citation":{"url":"https://example.com/a"}}],
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
    for (reason, finished) in [
        ("\"stop\"", FinishReason::Stop),
        ("\"length\"", FinishReason::Length),
        ("\"tool_calls\"", FinishReason::ToolCalls),
        ("\"function_call\"", FinishReason::ToolCalls),
        ("\"content_filter\"", FinishReason::ContentFilter),
        ("\"eos\"", FinishReason::Stop),
        ("\"\"", FinishReason::Stop),
        ("null", FinishReason::Stop),
    ] {
        let events = whole(r#"{"content":"a"}"#, reason).expect("an answer");
        assert_eq!(events.last(), Some(&finish(finished)), "{reason}");
    }
    assert_eq!(
        whole("{}", "\"error\""),
        Err(Failure::Unavailable("finish_reason error".to_owned()))
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
fn emits_a_refusal_as_text_that_finishes_as_one() {
    let expected = [
        start(BlockKind::Text),
        text("I can't."),
        finish(FinishReason::Refusal),
    ];
    let events = whole(r#"{"content":null,"refusal":"I can't."}"#, "\"stop\"");
    assert_eq!(events.expect("an answer"), expected);
    let events = deltas(&[r#"{"refusal":"I "}"#, r#"{"refusal":"can't."}"#], "stop");
    assert_eq!(joined(events), expected);
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
        assert_eq!(
            events,
            [
                start(BlockKind::Reasoning),
                reasoning("hm"),
                start(BlockKind::Text),
                text("yes"),
                finish(FinishReason::Stop),
            ],
            "{delta}"
        );
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
        // All at once.
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
    ] {
        let mut expected = call("a", "f", r#"{"x":1}"#).to_vec();
        expected.push(finish(FinishReason::ToolCalls));
        assert_eq!(joined(deltas(pieces, "tool_calls")), expected, "{pieces:?}");
    }
}

#[test]
fn puts_interleaved_calls_one_after_the_other() {
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
    let mut expected = vec![start(BlockKind::Text), text("Both.")];
    expected.extend(call("a", "f", r#"{"x":1}"#));
    expected.extend(call("b", "g", r#"{"y":2}"#));
    expected.extend([
        start(BlockKind::Text),
        text("Done."),
        finish(FinishReason::ToolCalls),
    ]);
    assert_eq!(joined(events), expected);
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
        let mut expected = call("a", "f", r#"{"x":1}"#).to_vec();
        expected.extend(call("b", "f", r#"{"x":2}"#));
        expected.push(finish(FinishReason::ToolCalls));
        assert_eq!(events, expected);
    }
}

#[test]
fn gives_ids_to_calls_that_have_none() {
    let message = r#"{"tool_calls":[{"function":{"name":"f","arguments":"{}"}},{"function":{"name":"g","arguments":"{}"}}]}"#;
    let mut expected = call("call_0", "f", "{}").to_vec();
    expected.extend(call("call_1", "g", "{}"));
    expected.push(finish(FinishReason::ToolCalls));
    assert_eq!(whole(message, "\"tool_calls\""), Ok(expected));
}

#[test]
fn refuses_calls_without_a_name_and_calls_without_end() {
    let nameless = whole(r#"{"tool_calls":[{"id":"a"}]}"#, "\"tool_calls\"");
    assert!(matches!(nameless, Err(Failure::Malformed(_))));
    let calls = vec![r#"{"id":"a","function":{"name":"f"}}"#; 257].join(",");
    let endless = whole(&format!(r#"{{"tool_calls":[{calls}]}}"#), "\"tool_calls\"");
    assert!(matches!(endless, Err(Failure::Malformed(_))));
}

#[test]
fn streams_the_first_call_as_it_comes() {
    let events = deltas(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}"#,
        ],
        "tool_calls",
    );
    let fragments = events
        .iter()
        .filter(|event| matches!(event, Event::ToolCallFragment(_)))
        .count();
    assert_eq!(fragments, 2);
}

#[test]
fn ends_without_the_last_marker_if_the_answer_has_ended() {
    let cut = br#"data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}"#;
    assert_eq!(
        receive(200, EVENT_STREAM, [&cut[..]]),
        Ok(vec![
            start(BlockKind::Text),
            text("a"),
            finish(FinishReason::Stop)
        ])
    );
}

#[test]
fn ignores_what_follows_the_last_marker() {
    let events = stream(&[
        r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}"#,
        "[DONE]",
        r#"{"choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}]}"#,
    ]);
    assert_eq!(events.expect("an answer").len(), 3);
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
            start(BlockKind::Text),
            text("a"),
            counted(None),
            text("a"),
            text("a"),
            counted(Some(2)),
            finish(FinishReason::Stop),
        ]
    );
}
