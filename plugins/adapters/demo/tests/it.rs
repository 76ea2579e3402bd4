//! The demo model under a host's calls.

use weir_adapter_demo::translate::{Demo, HELP};
use weir_sdk::adapter::{
    Attachment, Client, Event, Exchange, Failure, FailureKind, Request, StartedExchange, Step, Task,
};
use weir_sdk::chat::{
    AllowedTools, Audio, Block, BuiltInTool, CacheLifetime, CallKind, ChatRequest, Citation,
    Content, CustomTool, File, FinishReason, FunctionTool, Image, ImageRequest, JsonSchema,
    Message, Opaque, Part, ReasoningEffort, ReasoningRequest, ResponseFormat, Role, Source, Span,
    Tool, ToolChoice, ToolContent, ToolKind, ToolResult, Usage,
};

use weir_sdk::testing::image_request;

const NO_REASONING: ReasoningRequest = ReasoningRequest {
    effort: None,
    budget_tokens: None,
    summary: None,
    adaptive: None,
};

fn part(content: Content) -> Part {
    Part {
        content,
        cache: None,
        signature: None,
        provider: None,
        extra: Vec::new(),
    }
}

fn message(role: Role, content: Content) -> Message {
    Message {
        role,
        name: None,
        parts: vec![part(content)],
        extra: Vec::new(),
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
        reasoning: NO_REASONING,
        modalities: Vec::new(),
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

fn tool(kind: ToolKind) -> Tool {
    Tool {
        kind,
        cache: None,
        extra: Vec::new(),
    }
}

/// A chat request that defines the functions `look` and `wait` and the free-text tool `sing`.
fn chat_with_tools(text: &str) -> ChatRequest {
    let function = |name: &str| {
        tool(ToolKind::Function(FunctionTool {
            name: name.to_owned(),
            description: None,
            input_schema: r#"{"type":"object"}"#.to_owned(),
            strict: None,
        }))
    };
    let sing = tool(ToolKind::Custom(CustomTool {
        name: "sing".to_owned(),
        description: None,
        format: None,
    }));
    ChatRequest {
        tools: vec![function("look"), function("wait"), sing],
        ..chat(text)
    }
}

fn begin(chat: ChatRequest) -> Result<StartedExchange<Demo>, Failure> {
    let request = Request {
        task: Task::Chat(chat),
        attachments: vec![Attachment {
            media_type: "image/png".to_owned(),
            size_bytes: 4,
        }],
        client: Client {
            dialect: "openai-chat".to_owned(),
            headers: Vec::new(),
            end_user: Some("somebody".to_owned()),
        },
        attempt: 1,
        deadline_ms: 60_000,
    };
    Demo::begin(request, &[])
}

/// Returns all steps except the last, `done`.
fn steps(chat: ChatRequest) -> Result<Vec<Step>, Failure> {
    let StartedExchange {
        mut exchange, step, ..
    } = begin(chat)?;
    let mut steps = Vec::new();
    let mut next = step;
    while next != Step::Done {
        steps.push(next);
        next = exchange.next()?;
    }
    assert!(steps.len() < 64, "the host allows no more");
    Ok(steps)
}

/// Returns all events, in order.
fn events(chat: ChatRequest) -> Vec<Event> {
    let steps = steps(chat).expect("an answer").into_iter();
    steps
        .flat_map(|step| match step {
            Step::Emit(events) => events,
            _ => Vec::new(),
        })
        .collect()
}

/// A response as a client would assemble it.
#[derive(Debug, Default, PartialEq)]
struct Answer {
    reasoning: String,
    text: String,
    refusal: String,
    /// Names and arguments.
    calls: Vec<(String, String)>,
    opaque: Vec<Opaque>,
    citations: Vec<Citation>,
    /// Signatures and sealed forms of reasoning.
    proofs: Vec<String>,
    usage: Option<Usage>,
    finish: Option<FinishReason>,
}

fn answer(chat: ChatRequest) -> Answer {
    let mut answer = Answer::default();
    // By index: the block's kind, the place of its call, and whether it is open.
    let mut blocks: Vec<(Block, usize, bool)> = Vec::new();
    for (position, event) in events(chat).into_iter().enumerate() {
        assert_eq!(answer.finish, None, "nothing follows the finish");
        match event {
            Event::Started(started) => {
                assert_eq!(position, 0);
                assert_eq!(started.model.as_deref(), Some("demo"));
            }
            Event::BlockStart(start) => {
                assert_eq!(start.index as usize, blocks.len());
                if let Block::ToolCall(call) = &start.block {
                    answer.calls.push((call.name.clone(), String::new()));
                }
                blocks.push((start.block, answer.calls.len().saturating_sub(1), true));
            }
            Event::Fragment(fragment) => {
                let (block, call, is_open) = &blocks[fragment.index as usize];
                assert!(is_open);
                let said = match block {
                    Block::Text => &mut answer.text,
                    Block::Refusal => &mut answer.refusal,
                    Block::Reasoning => &mut answer.reasoning,
                    Block::ToolCall(_) => &mut answer.calls[*call].1,
                };
                said.push_str(&fragment.text);
            }
            Event::Signature(fragment) | Event::Sealed(fragment) => {
                let (block, _, is_open) = &blocks[fragment.index as usize];
                assert!(*is_open && *block == Block::Reasoning);
                answer.proofs.push(fragment.text);
            }
            Event::Citation(citation) => {
                let (block, _, is_open) = &blocks[citation.index as usize];
                assert!(*is_open && *block == Block::Text);
                answer.citations.push(citation);
            }
            Event::BlockEnd(index) => {
                assert!(std::mem::take(&mut blocks[index as usize].2));
            }
            Event::Opaque(opaque) => {
                assert_eq!(opaque.index as usize, blocks.len());
                blocks.push((Block::Text, 0, false));
                answer.opaque.push(opaque.block);
            }
            Event::Usage(usage) => answer.usage = Some(usage),
            Event::Finish(reason) => {
                assert!(blocks.iter().all(|(.., is_open)| !is_open));
                answer.finish = Some(reason);
            }
            other => panic!("unexpected {other:?}"),
        }
    }
    answer
}

fn rejection(chat: ChatRequest) -> String {
    match steps(chat) {
        Err(failure) if failure.kind == FailureKind::Rejected => failure.text,
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
    // The texts have 13 and 23 bytes.
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
        "/tools {\"a b\": 1}",
        "/seal why",
        "/cite",
        "/opaque",
        "/refuse",
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
    // No pause lasts for weeks.
    assert!(steps(chat("/slow 28 1111")).is_ok());
    for too_slow in ["/slow 28 1112", "/slow 2 4000000000"] {
        let refused = steps(chat(too_slow)).expect_err("too slow");
        assert_eq!(refused.kind, FailureKind::Rejected, "{too_slow}");
    }
}

#[test]
fn thinks_first_when_asked_to() {
    let thinking = answer(chat("/reason Yes indeed."));
    assert_eq!(thinking.text, "Yes indeed.");
    assert!(!thinking.reasoning.is_empty());
    let usage = thinking.usage.as_ref().expect("usage");
    assert!(usage.reasoning_tokens > Some(0) && usage.reasoning_tokens < usage.output_tokens);
    let asked = answer(ChatRequest {
        reasoning: ReasoningRequest {
            effort: Some(ReasoningEffort::Low),
            ..NO_REASONING
        },
        ..chat("hello")
    });
    assert_eq!(asked.reasoning, thinking.reasoning);
    let off = answer(ChatRequest {
        reasoning: ReasoningRequest {
            effort: Some(ReasoningEffort::Off),
            budget_tokens: Some(100),
            ..NO_REASONING
        },
        ..chat("hello")
    });
    assert_eq!(off.reasoning, "");
    for reasoning in [
        ReasoningRequest {
            budget_tokens: Some(100),
            ..NO_REASONING
        },
        ReasoningRequest {
            adaptive: Some(true),
            ..NO_REASONING
        },
    ] {
        let asked = answer(ChatRequest {
            reasoning,
            ..chat("hello")
        });
        assert_eq!(asked.reasoning, thinking.reasoning);
    }
    assert_eq!(thinking.proofs, [""; 0]);
    let sealed = answer(chat("/seal Yes indeed."));
    assert_eq!(sealed.proofs, ["signed-by-demo", "sealed-by-demo"]);
    assert_eq!(sealed.reasoning, thinking.reasoning);
    assert_eq!(sealed.text, thinking.text);
}

#[test]
fn calls_the_tool_that_a_command_names() {
    for (command, name, arguments) in [
        ("/tool", "look", "{}"),
        ("/tool wait", "wait", "{}"),
        (r#"/tool wait {"for": "me"}"#, "wait", r#"{"for": "me"}"#),
        ("/tool sing", "sing", "please"),
        ("/tool sing a song", "sing", "a song"),
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
fn calls_all_functions_at_once_in_turns() {
    let request = chat_with_tools(r#"/tools {"a": 1}"#);
    let mut expected = called("look", r#"{"a": 1}"#);
    expected.extend(called("wait", r#"{"a": 1}"#));
    assert_eq!(answer(request.clone()).calls, expected);
    let turns: Vec<u32> = events(request.clone())
        .iter()
        .filter_map(|event| match event {
            Event::Fragment(fragment) => Some(fragment.index),
            _ => None,
        })
        .collect();
    assert_eq!(turns, [0, 1, 0, 1]);
    let ids: Vec<(String, CallKind)> = events(request.clone())
        .into_iter()
        .filter_map(|event| match event {
            Event::BlockStart(start) => match start.block {
                Block::ToolCall(call) => Some((call.id, call.kind)),
                _ => None,
            },
            _ => None,
        })
        .collect();
    let function = |id: &str| (id.to_owned(), CallKind::Function);
    assert_eq!(ids, [function("call_1"), function("call_1_1")]);
    let one = ChatRequest {
        parallel_tool_calls: Some(false),
        ..request
    };
    assert_eq!(answer(one).calls, called("look", r#"{"a": 1}"#));
    assert_eq!(answer(chat("/tools")).text, "I have no tool.");
    assert_eq!(
        rejection(chat_with_tools("/tools x")),
        "/tools: the arguments are not a JSON object"
    );
}

#[test]
fn calls_no_tool_that_is_not_allowed() {
    let among = |names: &[&str], required, text: &str| ChatRequest {
        tool_choice: ToolChoice::Among(AllowedTools {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            required,
        }),
        ..chat_with_tools(text)
    };
    assert_eq!(
        answer(among(&["wait"], true, "hi")).calls,
        called("wait", "{}")
    );
    assert_eq!(
        answer(among(&["wait"], true, "/tool look")).calls,
        called("wait", "{}")
    );
    assert_eq!(
        answer(among(&["wait"], true, "/tools")).calls,
        called("wait", "{}")
    );
    assert_eq!(answer(among(&["wait"], false, "hi")).calls, []);
    assert_eq!(
        answer(among(&["wait"], false, "/tool look")).text,
        "I have no tool look."
    );
    assert_eq!(
        rejection(among(&["fly"], true, "hi")),
        "tool_choice: the request does not define any of the allowed tools"
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
fn looks_up_what_it_is_asked_to_research() {
    let get = |description: &str| {
        tool(ToolKind::Function(FunctionTool {
            name: "http_get".to_owned(),
            description: Some(description.to_owned()),
            input_schema: r#"{"type":"object","properties":{"url":{"type":"string"}}}"#.to_owned(),
            strict: None,
        }))
    };
    let calls = |role: &str, task: &str, description: &str, tool_choice: ToolChoice| {
        let mut chat = chat_with_tools(task);
        chat.tools.push(get(description));
        chat.messages
            .insert(0, message(Role::System, Content::Text(role.to_owned())));
        chat.tool_choice = tool_choice;
        answer(chat).calls
    };
    let page = "Fetches a page, e.g. (http://a.example/page).";
    for (role, task, url) in [
        ("", "Research trends.", "http://a.example/page"),
        (
            "You know https://b.example/?q=1.",
            "Find trends",
            "https://b.example/?q=1",
        ),
        (
            "See https://b.example",
            "Analyse <http://c.example/x>, please",
            "http://c.example/x",
        ),
    ] {
        let arguments = format!(r#"{{"url":"{url}"}}"#);
        let called = called("http_get", &arguments);
        assert_eq!(calls(role, task, page, ToolChoice::Auto), called, "{task}");
    }
    for (task, description, choice) in [
        ("Write a post.", page, ToolChoice::Auto),
        ("Research trends.", "Fetches a page.", ToolChoice::Auto),
        ("Research trends.", page, ToolChoice::None),
    ] {
        assert_eq!(calls("", task, description, choice), []);
    }
}

#[test]
fn hands_on_what_the_agent_before_said() {
    let role =
        "You write.\n--- CONTEXT FROM PREVIOUS AGENT ---\nIt rains.\n--- END CONTEXT ---\nBriefly.";
    let mut chat = chat("Write a post.");
    chat.messages
        .insert(0, message(Role::System, Content::Text(role.to_owned())));
    let said = "You said: Write a post.\nThe agent before me said: It rains.";
    assert_eq!(answer(chat.clone()).text, said);
    let Content::Text(role) = &mut chat.messages[0].parts[0].content else {
        panic!("a text");
    };
    *role = role.replace("It rains.", "");
    assert_eq!(answer(chat).text, "You said: Write a post.");
}

#[test]
fn answers_in_text_after_tool_results() {
    let mut request = chat_with_tools("/tool look");
    request.tool_choice = ToolChoice::Required;
    request.messages.push(message(
        Role::Tool,
        Content::ToolResult(ToolResult {
            call_id: "call_1".to_owned(),
            tool_name: None,
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
        Err(Failure::unsupported("response_format json_schema"))
    );
}

#[test]
fn counts_tokens_images_and_files() {
    assert_eq!(answer(chat("/count")).text, "Your request has 2 tokens.");
    let mut request = chat("look");
    let mut said = |content| {
        request.messages[0].parts.push(part(content));
        answer(request.clone()).text
    };
    let image = Content::Image(Image {
        source: Source::Url("https://example.com/a.png".to_owned()),
        detail: None,
    });
    assert_eq!(said(image), "You said: look (images: 1)");
    let file = Content::File(File {
        source: Source::Attachment(0),
        name: None,
        media_type: Some("application/pdf".to_owned()),
        title: None,
        context: None,
        cite: None,
    });
    assert_eq!(said(file), "You said: look (images: 1, files: 1)");
    let audio = Content::Audio(Audio {
        source: Source::Attachment(0),
        format: None,
    });
    said(audio);
    let opaque = Content::Opaque(Opaque {
        kind: "note".to_owned(),
        json: "{}".to_owned(),
    });
    assert_eq!(
        said(opaque),
        "You said: look (images: 1, recordings: 1, files: 1, opaque blocks: 1)"
    );
}

#[test]
fn cites_a_source() {
    let answer = answer(chat("/cite"));
    let json = r#"{"title":"On weirs","type":"demo_citation","url":"https://example.com/weir"}"#;
    assert_eq!(
        answer.citations,
        [Citation {
            index: 0,
            source: Some("https://example.com/weir".to_owned()),
            title: Some("On weirs".to_owned()),
            cited_text: Some("A weir is a low dam.".to_owned()),
            span: Some(Span { start: 0, end: 24 }),
            json: Some(json.to_owned()),
        }]
    );
    assert_eq!(answer.text.len(), 24);
}

#[test]
fn shows_a_block_that_nobody_else_knows() {
    let answer = answer(chat("/opaque"));
    assert_eq!(
        answer.opaque,
        [Opaque {
            kind: "demo_gauge".to_owned(),
            json: r#"{"level_cm":42,"type":"demo_gauge"}"#.to_owned(),
        }]
    );
    assert_eq!(answer.text, "The gauge says 42.");
}

#[test]
fn finishes_for_any_reason_on_command() {
    for (word, reason) in [
        ("", FinishReason::Stop),
        ("length", FinishReason::Length),
        ("content-filter", FinishReason::ContentFilter),
        ("pause-turn", FinishReason::PauseTurn),
        ("context-window", FinishReason::ContextWindow),
        ("malformed-call", FinishReason::MalformedCall),
        ("tired", FinishReason::Other("tired".to_owned())),
    ] {
        assert_eq!(
            answer(chat(&format!("/finish {word}"))).finish,
            Some(reason)
        );
    }
}

#[test]
fn refuses_and_helps_on_command() {
    let refusal = answer(chat("/refuse"));
    assert_eq!(refusal.finish, Some(FinishReason::Refusal));
    assert_eq!(refusal.refusal, "I would rather not answer that.");
    assert_eq!(refusal.text, "");
    assert_eq!(answer(chat("/help")).text, HELP);
    assert_eq!(answer(chat("/etc/hosts")).text, "You said: /etc/hosts");
}

#[test]
fn fails_in_every_way_on_command() {
    for (name, kind) in [
        ("unsupported", FailureKind::Unsupported),
        ("rejected", FailureKind::Rejected),
        ("model-not-found", FailureKind::ModelNotFound),
        ("context-length", FailureKind::ContextLength),
        ("filtered", FailureKind::Filtered),
        ("unauthorized", FailureKind::Unauthorized),
        ("rate-limited", FailureKind::RateLimited),
        ("unavailable", FailureKind::Unavailable),
        ("malformed", FailureKind::Malformed),
    ] {
        let mut failure = Failure::new(kind, "because /error asked for it");
        failure.retry_after_ms = (name == "rate-limited").then_some(1000);
        assert!(HELP.contains(name));
        assert_eq!(steps(chat(&format!("/error {name}"))), Err(failure));
    }
    assert_eq!(
        rejection(chat("/error sideways")),
        "/error: \"sideways\" is none of those that /help lists"
    );
}

#[test]
fn fails_after_as_many_words_as_asked() {
    let mut begun = begin(chat("/error unavailable 5")).expect("a plan");
    let Step::Emit(events) = begun.step else {
        panic!("expected words");
    };
    // The start, the block's start, and the words; the block is still open.
    assert_eq!(events.len(), 1 + 1 + 5);
    assert!(!matches!(events.last(), Some(Event::BlockEnd(_))));
    let failure = begun.exchange.next().expect_err("a failure");
    assert_eq!(failure.kind, FailureKind::Unavailable);
}

#[test]
fn names_what_it_ignores_and_refuses_other_fields_and_options_by_name() {
    let with = |name: &str| ChatRequest {
        extra: vec![(name.to_owned(), "1".to_owned())],
        ..chat("hello")
    };
    assert_eq!(answer(with("user")), answer(chat("hello")));
    assert_eq!(begin(with("user")).expect("a plan").ignored, ["user"]);
    let refused = |name: &str| Err(Failure::unsupported(name).with_param(name));
    assert_eq!(steps(with("n")), refused("n"));
    let setting = ("colour".to_owned(), "blue".to_owned());
    let refused_setting = Demo::configure(&[setting]).expect_err("no options");
    assert_eq!(refused_setting.name, "colour");
    assert_eq!(Demo::configure(&[]), Ok(Vec::new()));

    let mut advisory = chat_with_tools("hello");
    advisory.messages[0].parts[0].cache = Some(CacheLifetime::Short);
    advisory.tools[0].cache = Some(CacheLifetime::Long);
    advisory.reasoning.summary = Some("auto".to_owned());
    advisory.reasoning.adaptive = Some(false);
    assert_eq!(
        begin(advisory).expect("a plan").ignored,
        ["cache_control", "reasoning.summary", "reasoning.adaptive"]
    );

    let extra = vec![("x".to_owned(), "1".to_owned())];
    let mut requests = [(); 3].map(|()| chat_with_tools("hello"));
    requests[0].messages[0].extra = extra.clone();
    requests[1].messages[0].parts[0].extra = extra.clone();
    requests[2].tools[0].extra = extra;
    for request in requests {
        assert_eq!(steps(request), refused("x"));
    }
    let search = tool(ToolKind::BuiltIn(BuiltInTool {
        kind: "web_search".to_owned(),
        name: None,
        configuration: "{}".to_owned(),
    }));
    let request = ChatRequest {
        tools: vec![search],
        ..chat("hello")
    };
    assert_eq!(steps(request), refused("web_search"));
    let spoken = ChatRequest {
        modalities: vec!["text".to_owned(), "audio".to_owned()],
        ..chat("hello")
    };
    assert_eq!(steps(spoken), refused("modalities"));
}

#[test]
fn answers_when_told_nothing() {
    let silent = ChatRequest {
        messages: Vec::new(),
        ..chat("")
    };
    assert_eq!(answer(silent).text, "You said nothing. Try /help.");
}

/// Returns the demo model's events for an image request, and the names of omitted fields.
fn images(image: ImageRequest) -> Result<(Vec<Event>, Vec<String>), Failure> {
    let request = weir_sdk::testing::request_of(Task::Image(image));
    let mut begun = Demo::begin(request, &[])?;
    let Step::Emit(events) = begun.step else {
        panic!("it answers at once");
    };
    assert_eq!(begun.exchange.next(), Ok(Step::Done));
    Ok((events, begun.ignored))
}

#[test]
fn makes_a_picture_of_each_prompt_the_same_each_time() {
    let asked = |prompt: &str| ImageRequest {
        count: 2,
        size: Some("1024x1024".to_owned()),
        ..image_request(prompt)
    };
    let pictures = |prompt: &str| -> Vec<Vec<u8>> {
        let (events, ignored) = images(asked(prompt)).expect("pictures");
        assert_eq!(ignored, ["size"]);
        let said = weir_sdk::testing::lines(&events);
        assert_eq!(said[2..], ["usage in=2 out=128 images=2", "finish Stop"]);
        let media = events.into_iter().filter_map(|event| match event {
            Event::Media(media) => Some(media.data),
            _ => None,
        });
        media.collect()
    };
    let cat = pictures("a cat");
    assert_eq!(pictures("a cat"), cat);
    assert_ne!(cat[0], cat[1]);
    assert_ne!(pictures("a dog"), cat);
    // Decoded by another reader of the format.
    let png = &cat[0];
    assert_eq!(png[..8], *b"\x89PNG\r\n\x1a\n");
    assert_eq!(
        png[8..29],
        *b"\0\0\0\x0dIHDR\0\0\0\x40\0\0\0\x40\x01\x03\0\0\0"
    );
    assert_eq!(png[png.len() - 12..], *b"\0\0\0\0IEND\xae\x42\x60\x82");
}

#[test]
fn no_other_picture_is_made_in_place_of_one_that_cannot_be() {
    let refused = |image: ImageRequest| {
        let failure = images(image).expect_err("a refusal");
        (failure.kind, failure.param, failure.code)
    };
    let jpeg = ImageRequest {
        media_type: Some("image/jpeg".to_owned()),
        ..image_request("a cat")
    };
    let field = (
        FailureKind::Unsupported,
        Some("output_format".to_owned()),
        None,
    );
    assert_eq!(refused(jpeg), field);
    let code = Some("moderation_blocked".to_owned());
    let told_to = (FailureKind::Filtered, None, code);
    assert_eq!(refused(image_request("/refuse")), told_to);
}
