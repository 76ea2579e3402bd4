//! The demo model as the host drives it.

use weir_adapter_demo::translate::{Demo, HELP};
use weir_sdk::adapter::{Event, Exchange, Failure, Request, Step};
use weir_sdk::chat::{
    BlockKind, ChatRequest, Content, File, FinishReason, Image, ImageSource, JsonSchema, Message,
    Part, ReasoningRequest, ResponseFormat, Role, ToolChoice, ToolContent, ToolDefinition,
    ToolResult, Usage,
};

fn message(role: Role, content: Content) -> Message {
    Message {
        role,
        name: None,
        parts: vec![Part {
            content,
            cache: None,
            signature: None,
        }],
    }
}

fn chat(text: &str) -> ChatRequest {
    ChatRequest {
        model: "demo".to_owned(),
        messages: vec![message(Role::User, Content::Text(text.to_owned()))],
        tools: Vec::new(),
        tool_choice: ToolChoice::Auto,
        parallel_tool_calls: None,
        response_format: ResponseFormat::Text,
        reasoning: ReasoningRequest::Unspecified,
        max_output_tokens: 100_000,
        temperature: None,
        top_p: None,
        top_k: None,
        presence_penalty: None,
        frequency_penalty: None,
        seed: None,
        stop: Vec::new(),
        extra: Vec::new(),
        stream: false,
    }
}

/// A chat request that defines the tools `look` and `wait`.
fn chat_with_tools(text: &str) -> ChatRequest {
    let tool = |name: &str| ToolDefinition {
        name: name.to_owned(),
        description: None,
        input_schema: r#"{"type":"object"}"#.to_owned(),
        strict: None,
        cache: None,
    };
    ChatRequest {
        tools: vec![tool("look"), tool("wait")],
        ..chat(text)
    }
}

/// All steps but the last, `done`.
fn steps(chat: ChatRequest) -> Result<Vec<Step>, Failure> {
    let mut exchange = Demo::begin(Request::Chat(chat), Vec::new())?;
    let mut steps = Vec::new();
    loop {
        match exchange.next()? {
            Step::Done => break,
            step => steps.push(step),
        }
    }
    assert!(steps.len() < 64, "the host allows no more");
    Ok(steps)
}

/// An answer, read as a client would.
#[derive(Debug, Default, PartialEq)]
struct Answer {
    reasoning: String,
    text: String,
    /// Name and arguments.
    calls: Vec<(String, String)>,
    usage: Option<Usage>,
    finish: Option<FinishReason>,
}

fn answer(chat: ChatRequest) -> Answer {
    let mut answer = Answer::default();
    let mut block = None;
    for step in steps(chat).expect("an answer") {
        let Step::Emit(events) = step else { continue };
        for event in events {
            assert_eq!(answer.finish, None, "nothing follows the finish");
            match event {
                Event::BlockStart(kind) => block = Some(kind),
                Event::Text(text) => {
                    assert_eq!(block, Some(BlockKind::Text));
                    answer.text += &text;
                }
                Event::Reasoning(text) => {
                    assert_eq!(block, Some(BlockKind::Reasoning));
                    answer.reasoning += &text;
                }
                Event::ToolCall(start) => answer.calls.push((start.name, String::new())),
                Event::ToolCallFragment(text) => {
                    assert_eq!(block, Some(BlockKind::ToolCall));
                    answer.calls.last_mut().expect("a call").1 += &text;
                }
                Event::Usage(usage) => answer.usage = Some(usage),
                Event::Finish(reason) => answer.finish = Some(reason),
                other => panic!("unexpected {other:?}"),
            }
        }
    }
    answer
}

fn rejection(chat: ChatRequest) -> String {
    match steps(chat) {
        Err(Failure::Rejected(why)) => why,
        other => panic!("expected a rejection, got {other:?}"),
    }
}

fn called(name: &str, arguments: &str) -> Vec<(String, String)> {
    vec![(name.to_owned(), arguments.to_owned())]
}

#[test]
fn repeats_what_it_was_told_and_counts_it() {
    let answer = answer(chat("Grüße, weir"));
    assert_eq!(answer.text, "You said: Grüße, weir");
    assert_eq!(answer.finish, Some(FinishReason::Stop));
    let usage = answer.usage.expect("usage");
    // 13 and 23 bytes.
    assert_eq!(usage.input_tokens, Some(4));
    assert_eq!(usage.output_tokens, Some(6));
    assert_eq!(usage.reasoning_tokens, Some(0));
}

#[test]
fn answers_the_same_streamed_and_not() {
    for text in [
        "hello",
        "/long 1000",
        "/reason why",
        "/help",
        "/tool look {\"a b\": 1}",
    ] {
        let streamed = ChatRequest {
            stream: true,
            ..chat_with_tools(text)
        };
        assert_eq!(answer(streamed.clone()), answer(chat_with_tools(text)));
        assert_eq!(steps(streamed.clone()), steps(streamed));
    }
}

#[test]
fn streams_a_long_answer_in_several_steps_and_a_whole_one_in_one() {
    let streamed = ChatRequest {
        stream: true,
        ..chat("/long 20000")
    };
    let count = steps(streamed).expect("an answer").len();
    assert!(count > 20, "{count}");
    assert_eq!(steps(chat("/long 20000")).expect("an answer").len(), 2);
}

#[test]
fn answers_with_as_many_words_as_asked() {
    for (asked, given) in [(0, 0), (1, 1), (100, 100), (9_999_999, 20_000)] {
        let text = answer(chat(&format!("/long {asked}"))).text;
        assert_eq!(text.split_whitespace().count(), given);
    }
    assert_eq!(rejection(chat("/long x")), "/long: \"x\" is not a number");
    assert_eq!(rejection(chat("/long")), "/long: \"\" is not a number");
}

#[test]
fn waits_between_slow_words() {
    let slow = steps(chat("/slow 3 50")).expect("an answer");
    let waits = slow.iter().filter(|step| **step == Step::Wait(50)).count();
    assert_eq!(waits, 2);
    assert_eq!(slow.len(), 3 + 2 + 1);
    assert_eq!(
        answer(chat("/slow 500 1")).text,
        answer(chat("/long 500")).text
    );
}

#[test]
fn thinks_first_when_asked_to() {
    let thinking = answer(chat("/reason Yes indeed."));
    assert_eq!(thinking.text, "Yes indeed.");
    assert!(!thinking.reasoning.is_empty());
    let usage = thinking.usage.expect("usage");
    assert!(usage.reasoning_tokens > Some(0) && usage.reasoning_tokens < usage.output_tokens);
    let asked = answer(ChatRequest {
        reasoning: ReasoningRequest::Low,
        ..chat("hello")
    });
    assert_eq!(asked.reasoning, thinking.reasoning);
    let off = answer(ChatRequest {
        reasoning: ReasoningRequest::Off,
        ..chat("hello")
    });
    assert_eq!(off.reasoning, "");
}

#[test]
fn calls_the_tool_that_a_command_names() {
    for (command, name, arguments) in [
        ("/tool", "look", "{}"),
        ("/tool wait", "wait", "{}"),
        (r#"/tool wait {"for": "me"}"#, "wait", r#"{"for": "me"}"#),
    ] {
        let answer = answer(chat_with_tools(command));
        assert_eq!(answer.calls, called(name, arguments));
        assert_eq!(answer.finish, Some(FinishReason::ToolCalls));
    }
    assert_eq!(answer(chat("/tool look")).text, "I have no tool look.");
    assert_eq!(answer(chat("/tool")).text, "I have no tool.");
    let forbidden = ChatRequest {
        tool_choice: ToolChoice::None,
        ..chat_with_tools("/tool look")
    };
    assert_eq!(answer(forbidden).calls, []);
    assert_eq!(
        rejection(chat_with_tools("/tool look [1]")),
        "/tool: the arguments are not a JSON object"
    );
}

#[test]
fn calls_the_tool_that_the_client_chose() {
    for (choice, text, name) in [
        (ToolChoice::Required, "hello", "look"),
        (ToolChoice::Required, "/tool wait", "wait"),
        (ToolChoice::Named("wait".to_owned()), "/tool look", "wait"),
    ] {
        let request = ChatRequest {
            tool_choice: choice,
            ..chat_with_tools(text)
        };
        assert_eq!(answer(request).calls, called(name, "{}"));
    }
    let unknown = ChatRequest {
        tool_choice: ToolChoice::Named("fly".to_owned()),
        ..chat_with_tools("hello")
    };
    assert_eq!(
        rejection(unknown),
        "tool_choice: the request does not define fly"
    );
}

#[test]
fn answers_in_text_after_tool_results() {
    let mut request = chat_with_tools("/tool look");
    request.tool_choice = ToolChoice::Required;
    request.messages.push(message(
        Role::Tool,
        Content::ToolResult(ToolResult {
            call_id: "call_1".to_owned(),
            content: vec![ToolContent::Text("a cat".to_owned())],
            is_error: false,
        }),
    ));
    let answer = answer(request);
    assert_eq!(answer.text, "The tool said: a cat");
    assert_eq!(answer.calls, []);
}

#[test]
fn stops_at_the_output_limit() {
    for (text, max_output_tokens) in [("Grüße", 3), ("/long 100", 20), ("/reason x", 2)] {
        let limited = answer(ChatRequest {
            max_output_tokens,
            ..chat(text)
        });
        assert_eq!(limited.finish, Some(FinishReason::Length));
        let usage = limited.usage.expect("usage");
        assert_eq!(usage.output_tokens, Some(u64::from(max_output_tokens)));
    }
    let exact = answer(ChatRequest {
        max_output_tokens: 3,
        ..chat("hi")
    });
    assert_eq!(exact.text, "You said: hi");
    assert_eq!(exact.finish, Some(FinishReason::Stop));
}

#[test]
fn stops_at_the_first_stop_sequence() {
    let stopped = answer(ChatRequest {
        stop: vec!["c".to_owned(), String::new(), "b".to_owned()],
        ..chat("a b c")
    });
    assert_eq!(stopped.text, "You said: a ");
    assert_eq!(
        stopped.finish,
        Some(FinishReason::StopSequence("b".to_owned()))
    );
}

#[test]
fn answers_in_json_when_asked_to() {
    let json = answer(ChatRequest {
        response_format: ResponseFormat::Json,
        ..chat("a \"quote\"")
    });
    assert_eq!(json.text, r#"{"answer":"You said: a \"quote\""}"#);
    let schema = ChatRequest {
        response_format: ResponseFormat::JsonSchema(JsonSchema {
            name: None,
            description: None,
            strict: None,
            schema: "{}".to_owned(),
        }),
        ..chat("hello")
    };
    assert_eq!(
        steps(schema),
        Err(Failure::Unsupported(
            "response_format json_schema".to_owned()
        ))
    );
}

#[test]
fn counts_tokens_images_and_files() {
    assert_eq!(answer(chat("/count")).text, "Your request has 2 tokens.");
    let mut request = chat("look");
    let image = Content::Image(Image {
        source: ImageSource::Url("https://example.com/a.png".to_owned()),
        detail: None,
    });
    let file = Content::File(File {
        name: None,
        media_type: "application/pdf".to_owned(),
        data: Vec::new(),
    });
    let attached = |content| message(Role::User, content).parts;
    request.messages[0].parts.extend(attached(image));
    assert_eq!(answer(request.clone()).text, "You said: look (images: 1)");
    request.messages[0].parts.extend(attached(file));
    assert_eq!(answer(request).text, "You said: look (images: 1, files: 1)");
}

#[test]
fn refuses_and_helps_on_command() {
    let refusal = answer(chat("/refuse"));
    assert_eq!(refusal.finish, Some(FinishReason::Refusal));
    assert_eq!(answer(chat("/help")).text, HELP);
    assert_eq!(answer(chat("/etc/hosts")).text, "You said: /etc/hosts");
}

#[test]
fn fails_in_every_way_on_command() {
    let text = || "because /error asked for it".to_owned();
    for (kind, failure) in [
        ("unsupported", Failure::Unsupported(text())),
        ("rejected", Failure::Rejected(text())),
        ("context-length", Failure::ContextLength(text())),
        ("filtered", Failure::Filtered(text())),
        ("unauthorized", Failure::Unauthorized(text())),
        ("rate-limited", Failure::RateLimited(Some(1000))),
        ("unavailable", Failure::Unavailable(text())),
        ("malformed", Failure::Malformed(text())),
    ] {
        assert!(HELP.contains(kind));
        assert_eq!(steps(chat(&format!("/error {kind}"))), Err(failure));
    }
    assert_eq!(
        rejection(chat("/error sideways")),
        "/error: \"sideways\" is none of those that /help lists"
    );
}

#[test]
fn fails_after_as_many_words_as_asked() {
    let request = Request::Chat(chat("/error unavailable 5"));
    let mut exchange = Demo::begin(request, Vec::new()).expect("a plan");
    let Ok(Step::Emit(events)) = exchange.next() else {
        panic!("expected words");
    };
    assert_eq!(events.len(), 1 + 5);
    assert!(matches!(exchange.next(), Err(Failure::Unavailable(_))));
}

#[test]
fn accepts_labels_and_refuses_other_fields_and_options_by_name() {
    let with = |name: &str| ChatRequest {
        extra: vec![(name.to_owned(), "1".to_owned())],
        ..chat("hello")
    };
    assert_eq!(answer(with("user")), answer(chat("hello")));
    assert_eq!(
        steps(with("store")),
        Err(Failure::Unsupported("store".to_owned()))
    );
    let setting = ("colour".to_owned(), "blue".to_owned());
    let refused = Demo::begin(Request::Chat(chat("hello")), vec![setting]);
    assert_eq!(
        refused.expect_err("no options"),
        Failure::Unsupported("option colour".to_owned())
    );
}

#[test]
fn answers_when_told_nothing() {
    let silent = ChatRequest {
        messages: Vec::new(),
        ..chat("")
    };
    assert_eq!(answer(silent).text, "You said nothing. Try /help.");
}
