//! A filter that meddles on command, to show the power of filters and the host's defences.
//!
//! The last user message, or the prompt of an image request, contains the command after `meddle `, a word of
//! [`obey`]'s or of [`Watcher::obey`]'s. A message without a command passes, unwatched. An unknown word is a trap: a
//! typo in a test must not pass for good behaviour.
//!
//! With the option `always`, each request is treated as if it had that command; `about` is annotated unchanged. Words of
//! [`obey_in_steps`] are for the optional interface `filter-steps`.

#[cfg(target_family = "wasm")]
mod guest {
    use std::cell::RefCell;

    mod bindings {
        wit_bindgen::generate!({
            path: "../../../wit",
            world: "stepwise-filter",
        });
    }

    use bindings::export;
    use bindings::exports::weir::plugin::filter::{
        Answer, Description, Event, Guest, GuestAnswer, Refusal, RefusedSetting, Request, Screened,
        Setting, Task, Verdict,
    };
    use bindings::exports::weir::plugin::filter_steps::{
        Begun, Context, Guest as StepGuest, GuestScreening, Screening, Step,
    };
    use bindings::weir::plugin::chat::{
        Block, BlockStart, Content, FinishReason, Fragment, Image, Media, Opaque, OpaqueBlock,
        Role, Source, Usage,
    };

    struct Meddling;

    export!(Meddling with_types_in bindings);

    struct Watcher {
        word: String,
        state: RefCell<State>,
    }

    #[derive(Default)]
    struct State {
        calls: u32,
        restarts: u32,
        held: Vec<Event>,
    }

    impl Guest for Meddling {
        type Answer = Watcher;

        fn describe() -> Description {
            Description {
                name: "meddling".to_owned(),
                version: "0.1.0".to_owned(),
                options: vec!["always".to_owned(), "about".to_owned()],
            }
        }

        fn configure(options: Vec<Setting>) -> Result<Vec<u8>, RefusedSetting> {
            let mut lines = [String::new(), String::new()];
            for (name, value) in options {
                if value == "nonsense" {
                    let why = "must not be nonsense".to_owned();
                    return Err(RefusedSetting { name, why });
                }
                lines[usize::from(name == "about")] = value;
            }
            Ok(lines.join("\n").into_bytes())
        }

        fn screen(request: Request, configuration: Vec<u8>) -> Result<Verdict, Refusal> {
            let (word, about) = command(&request, configuration);
            let mut verdict = match word {
                Some(word) => obey(&word, request)?,
                None => pass(),
            };
            if !about.is_empty() {
                verdict.annotations.push(("about".to_owned(), about));
            }
            Ok(verdict)
        }
    }

    impl StepGuest for Meddling {
        type Screening = Asking;
    }

    struct Asking {
        word: String,
    }

    impl GuestScreening for Asking {
        fn begin(
            request: Request,
            context: Context,
            configuration: Vec<u8>,
        ) -> Result<Begun, Refusal> {
            let (word, _) = command(&request, configuration.clone());
            let word = word.unwrap_or_default();
            let step = match obey_in_steps(&word, &request, &context) {
                Some(step) => step,
                None => Step::Decide(<Meddling as Guest>::screen(request, configuration)?),
            };
            let screening = Screening::new(Self { word });
            Ok(Begun { screening, step })
        }

        /// Obeys the service, whose response has a word like the client's message.
        fn replied(&self, body: Vec<u8>) -> Result<Step, Refusal> {
            let text = String::from_utf8_lossy(&body).into_owned();
            match &*self.word {
                "ask-forever" => return Ok(Step::AskService(body)),
                "ask-trap" => panic!("asked to"),
                _ => {}
            }
            if text == "refuse" {
                return Err(Refusal {
                    why: "is not what the service likes".to_owned(),
                    param: None,
                });
            }
            if text == "respond" {
                return Ok(Step::Respond(response("the service responds")));
            }
            let shown = text.replace(|one: char| !one.is_ascii_alphanumeric() && one != '.', "-");
            let mut verdict = pass();
            verdict.annotations = vec![("reply".to_owned(), shown)];
            Ok(Step::Decide(verdict))
        }
    }

    /// Applies a command of the optional interface; `None` for another command.
    fn obey_in_steps(word: &str, request: &Request, context: &Context) -> Option<Step> {
        let step = match word {
            "respond" => Step::Respond(response("made here")),
            "respond-nonsense" => Step::Respond(vec![Event::BlockEnd(7)]),
            "respond-incomplete" => {
                let mut events = response("cut");
                events.pop();
                Step::Respond(events)
            }
            "respond-nothing" => Step::Respond(Vec::new()),
            "respond-forged" => {
                let usage = Event::Usage(Usage {
                    input_tokens: Some(1),
                    cache_read_tokens: None,
                    cache_write_short_tokens: None,
                    cache_write_long_tokens: None,
                    output_tokens: Some(1),
                    reasoning_tokens: None,
                    images: None,
                    other: Vec::new(),
                });
                Step::Respond([vec![usage], response("forged")].concat())
            }
            "respond-opaque" => {
                let block = Opaque {
                    kind: "search".to_owned(),
                    json: "{}".to_owned(),
                };
                let opaque = Event::Opaque(OpaqueBlock { index: 0, block });
                Step::Respond(vec![opaque, Event::Finish(FinishReason::Stop)])
            }
            "respond-much" => Step::Respond(response(&"x".repeat(1 << 20))),
            "ask" | "ask-forever" | "ask-trap" => {
                Step::AskService(format!("{{\"dialect\":\"{}\"}}", request.dialect).into_bytes())
            }
            "fail" => Step::Fail("cannot\ndecide".to_owned()),
            "ask-much" => Step::AskService(vec![b'x'; (256 << 10) + 1]),
            "ask-flood" => Step::AskService(vec![b'x'; 9 << 20]),
            "context" => {
                let mut verdict = pass();
                verdict.annotations = vec![
                    ("service".to_owned(), context.has_service.to_string()),
                    ("whole".to_owned(), context.whole_bytes.to_string()),
                ];
                for (of, options) in [
                    ("key", &context.key_options),
                    ("account", &context.account_options),
                ] {
                    let options = options.iter();
                    let noted =
                        options.map(|(name, value)| (format!("{of}.{name}"), value.clone()));
                    verdict.annotations.extend(noted);
                }
                Step::Decide(verdict)
            }
            "whole-upper" => Step::DecideOnWhole(watching("upper")),
            word if word.starts_with("whole-") => {
                Step::DecideOnWhole(watching(&word.replace("whole-", "answer-")))
            }
            _ => return None,
        };
        Some(step)
    }

    fn watching(word: &str) -> Verdict {
        Verdict {
            answer: watch(word),
            ..pass()
        }
    }

    fn response(text: &str) -> Vec<Event> {
        vec![
            Event::BlockStart(BlockStart {
                index: 0,
                block: Block::Text,
            }),
            Event::Fragment(Fragment {
                index: 0,
                text: text.to_owned(),
            }),
            Event::BlockEnd(0),
            Event::Finish(FinishReason::Stop),
        ]
    }

    /// The command for a request, and the text of the option `about`.
    fn command(request: &Request, configuration: Vec<u8>) -> (Option<String>, String) {
        let configuration = String::from_utf8(configuration).expect("it was a text");
        let (always, about) = configuration.split_once('\n').unwrap_or_default();
        let word = match always {
            "" => word(&request.task),
            always => Some(always.to_owned()),
        };
        (word, about.to_owned())
    }

    fn pass() -> Verdict {
        Verdict {
            change: None,
            upstreams: Vec::new(),
            annotations: Vec::new(),
            answer: None,
        }
    }

    fn word(task: &Task) -> Option<String> {
        let text = match task {
            Task::Chat(chat) => {
                let last = chat
                    .messages
                    .iter()
                    .rfind(|message| message.role == Role::User)?;
                last.parts.iter().find_map(|part| match &part.content {
                    Content::Text(text) => Some(text),
                    _ => None,
                })?
            }
            Task::Image(image) => &image.prompt,
        };
        let word = text.strip_prefix("meddle ")?;
        Some(word.split(' ').next().unwrap_or_default().to_owned())
    }

    /// Applies a command to a request.
    fn obey(word: &str, mut request: Request) -> Result<Verdict, Refusal> {
        let mut verdict = pass();
        match word {
            "pass" => {}
            "refuse" => {
                return Err(Refusal {
                    why: "is what this filter is for".to_owned(),
                    param: Some("messages".to_owned()),
                });
            }
            "loop" => spin(),
            "trap" => panic!("asked to"),
            "grow" => grow(),
            "upper" => {
                each_text(&mut request.task, |text| *text = text.to_uppercase());
                verdict.change = Some(request.task);
                verdict.answer = watch(word);
            }
            // The host keeps its own fields.
            "usurp" => {
                if let Task::Chat(chat) = &mut request.task {
                    chat.model = "another".to_owned();
                    chat.stream = !chat.stream;
                    chat.max_output_tokens = u32::MAX;
                }
                verdict.change = Some(request.task);
            }
            "lengthen" => {
                each_text(&mut request.task, |text| *text = text.repeat(100_000));
                verdict.change = Some(request.task);
            }
            "flood" => {
                each_text(&mut request.task, |text| *text = "x".repeat(9 << 20));
                verdict.change = Some(request.task);
            }
            "empty" => {
                if let Task::Chat(chat) = &mut request.task {
                    chat.messages.clear();
                }
                verdict.change = Some(request.task);
            }
            "attach" => {
                if let Task::Chat(chat) = &mut request.task {
                    let image = Image {
                        source: Source::Attachment(7),
                        detail: None,
                    };
                    chat.messages[0].parts[0].content = Content::Image(image);
                }
                verdict.change = Some(request.task);
            }
            "last" => verdict.upstreams = vec![request.upstreams.len() as u32 - 1],
            "backwards" => verdict.upstreams = (0..request.upstreams.len() as u32).rev().collect(),
            "nowhere" => verdict.upstreams = vec![99],
            "twice" => verdict.upstreams = vec![0, 0],
            "annotate" => {
                let plan = ("plan".to_owned(), request.plan);
                let provider = ("provider".to_owned(), request.upstreams[0].provider.clone());
                let is_counted = request.input_tokens > 0;
                let counted = ("counted".to_owned(), is_counted.to_string());
                let dialect = ("dialect".to_owned(), request.dialect);
                verdict.annotations = vec![plan, provider, counted, dialect];
            }
            "header" => {
                let name = "a\r\nset-cookie: b".to_owned();
                verdict.annotations = vec![(name, "c".to_owned())];
            }
            "chatter" => {
                verdict.annotations = vec![("a".to_owned(), "b".to_owned()); 17];
            }
            word if word.starts_with("answer-") => verdict.answer = watch(word),
            word => panic!("there is no command {word}"),
        }
        Ok(verdict)
    }

    fn watch(word: &str) -> Option<Answer> {
        Some(Answer::new(Watcher {
            word: word.to_owned(),
            state: RefCell::default(),
        }))
    }

    impl GuestAnswer for Watcher {
        fn events(&self, events: Vec<Event>) -> Screened {
            let mut state = self.state.borrow_mut();
            state.calls += 1;
            self.obey(&mut state, events)
        }

        fn restart(&self) {
            let mut state = self.state.borrow_mut();
            let restarts = state.restarts + 1;
            *state = State {
                restarts,
                ..State::default()
            };
        }
    }

    impl Watcher {
        /// Applies a command to a response.
        fn obey(&self, state: &mut State, events: Vec<Event>) -> Screened {
            let has_text = events
                .iter()
                .any(|event| matches!(event, Event::Fragment(_)));
            match &*self.word {
                "answer-pass" => Screened::Pass,
                "answer-again" => Screened::Replace(events),
                "upper" => Screened::Replace(events.into_iter().map(upper).collect()),
                "answer-restarts" => {
                    let say = |event| match event {
                        Event::Fragment(Fragment { index, .. }) => Event::Fragment(Fragment {
                            index,
                            text: format!("{} ", state.restarts),
                        }),
                        event => event,
                    };
                    Screened::Replace(events.into_iter().map(say).collect())
                }
                "answer-loop" if has_text => spin(),
                "answer-trap" if has_text => panic!("asked to"),
                "answer-grow" if has_text => grow(),
                "answer-stop" if has_text => Screened::Stop,
                // After the first change.
                "answer-trap-late" => {
                    if has_text && state.calls > 2 {
                        panic!("asked to");
                    }
                    Screened::Replace(events)
                }
                "answer-nonsense" if has_text => Screened::Replace(vec![Event::BlockEnd(7)]),
                "answer-swallow" => Screened::Replace(Vec::new()),
                // Shows how many fragments came in this call.
                "answer-count" => {
                    let is_piece = |event: &&Event| matches!(event, Event::Fragment(_));
                    let count = events.iter().filter(is_piece).count();
                    let say = |event| match event {
                        Event::Fragment(Fragment { index, text }) => Event::Fragment(Fragment {
                            index,
                            text: format!("{text} ({count} of {})", state.calls),
                        }),
                        event => event,
                    };
                    Screened::Replace(events.into_iter().map(say).collect())
                }
                // A secret may be anywhere in the text.
                "answer-judge" => {
                    let text: String = events
                        .iter()
                        .filter_map(|event| match event {
                            Event::Fragment(piece) => Some(&*piece.text),
                            _ => None,
                        })
                        .collect();
                    match text.contains("bad") {
                        true => Screened::Stop,
                        false => Screened::Pass,
                    }
                }
                "answer-flood" if has_text => {
                    let start = Event::BlockStart(BlockStart {
                        index: 1,
                        block: Block::Text,
                    });
                    let long = Event::Fragment(Fragment {
                        index: 1,
                        text: "x".repeat(4 << 20),
                    });
                    let all = events.into_iter().chain([start, long]);
                    Screened::Replace(all.collect())
                }
                "answer-forge" if has_text => Screened::Replace(vec![Event::Usage(Usage {
                    input_tokens: Some(0),
                    cache_read_tokens: None,
                    cache_write_short_tokens: None,
                    cache_write_long_tokens: None,
                    output_tokens: Some(0),
                    reasoning_tokens: None,
                    images: None,
                    other: Vec::new(),
                })]),
                "answer-picture" if has_text => Screened::Replace(vec![Event::Media(Media {
                    media_type: "image/png".to_owned(),
                    data: vec![0],
                    bytes_before: None,
                    url: None,
                    revised_prompt: None,
                    is_preview: false,
                })]),
                // Held until the end of its block, up to the host's limit.
                "answer-hold" => {
                    let mut out = Vec::new();
                    for event in events {
                        match event {
                            Event::Fragment(_) => state.held.push(event),
                            Event::BlockEnd(_) => {
                                out.append(&mut state.held);
                                out.push(event);
                            }
                            event => out.push(event),
                        }
                    }
                    Screened::Replace(out)
                }
                word if word.starts_with("answer-") => Screened::Pass,
                word => panic!("there is no command {word}"),
            }
        }
    }

    fn upper(event: Event) -> Event {
        match event {
            Event::Fragment(Fragment { index, text }) => Event::Fragment(Fragment {
                index,
                text: text.to_uppercase(),
            }),
            event => event,
        }
    }

    fn each_text(task: &mut Task, change: impl Fn(&mut String)) {
        match task {
            Task::Chat(chat) => {
                let parts = chat
                    .messages
                    .iter_mut()
                    .flat_map(|message| &mut message.parts);
                for part in parts {
                    if let Content::Text(text) = &mut part.content {
                        change(text);
                    }
                }
            }
            Task::Image(image) => change(&mut image.prompt),
        }
    }

    fn spin() -> ! {
        let mut count = 0u64;
        loop {
            count = std::hint::black_box(count.wrapping_add(1));
        }
    }

    fn grow() -> ! {
        let mut all = Vec::new();
        loop {
            all.push(std::hint::black_box(vec![1u8; 1 << 20]));
        }
    }
}
