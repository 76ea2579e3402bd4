//! The filter itself: its options, and its changes to a request.

use weir_sdk::filter::{
    Description, Filter, Refusal, RefusedSetting, Request, Setting, Task, Unread, Verdict,
    check_is_readable, each_text,
};
use weir_sdk::walk::{Access, Reader, Text, walk};

use crate::kinds::{DEFAULT_KINDS, KINDS, Redactor};
use crate::placeholders::Placeholders;
use crate::response::ResponseRedactor;

pub struct RedactPii;

/// The operator's options. As bytes: the kinds, one bit each; whether responses are redacted; and the kinds of unreadable
/// parts that pass, one bit each.
struct Options {
    kinds: u8,
    answers: bool,
    unread: u8,
}

impl Filter for RedactPii {
    fn describe() -> Description {
        Description {
            name: "redact-pii".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            options: ["kinds", "answers", "unread"].map(str::to_owned).to_vec(),
        }
    }

    fn configure(options: &[Setting]) -> Result<Vec<u8>, RefusedSetting> {
        let mut read = Options {
            kinds: DEFAULT_KINDS,
            answers: true,
            unread: 0,
        };
        for (name, value) in options {
            let refused = |why: String| RefusedSetting {
                name: name.clone(),
                why,
            };
            match &**name {
                "kinds" => read.kinds = kinds(value).map_err(refused)?,
                "answers" => {
                    let answers = value.parse();
                    read.answers =
                        answers.map_err(|_| refused("must be true or false".to_owned()))?;
                }
                "unread" => {
                    let kinds = Unread::parse_list(value).map_err(refused)?;
                    read.unread = kinds.into_iter().map(bit).fold(0, |all, bit| all | bit);
                }
                _ => return Err(refused("is not an option of this filter".to_owned())),
            }
        }
        Ok(vec![read.kinds, read.answers.into(), read.unread])
    }

    fn screen(mut request: Request, configuration: &[u8]) -> Result<Verdict, Refusal> {
        let &[kinds, answers, unread] = configuration else {
            panic!("this is not of `configure`");
        };
        let passed = Unread::ALL
            .into_iter()
            .filter(|kind| unread & bit(*kind) != 0);
        check_is_readable(&mut request.task, &passed.collect::<Vec<_>>())?;
        let mut redactor = Redactor::new(kinds);
        let (placeholders, found) = hide(&mut request.task, &redactor)?;
        let annotations = KINDS.iter().filter_map(|kind| {
            let count = found.iter().filter(|name| **name == kind.name).count();
            (count > 0).then(|| (kind.name.to_owned(), count.to_string()))
        });
        let mut verdict = Verdict {
            annotations: annotations.collect(),
            ..Verdict::default()
        };
        if answers == 0 {
            redactor = Redactor::new(0);
        }
        if !placeholders.is_empty() {
            verdict.change = Some(request.task);
        }
        if answers != 0 || !placeholders.is_empty() {
            verdict.answer = Some(Box::new(ResponseRedactor::new(redactor, placeholders)));
        }
        Ok(verdict)
    }
}

/// Replaces the personal data of a request, and returns the names of the found kinds. Refuses a request with personal data
/// in a place that cannot change.
fn hide(
    task: &mut Task,
    redactor: &Redactor,
) -> Result<(Placeholders, Vec<&'static str>), Refusal> {
    let mut placeholders = Placeholders::default();
    each_text(task, |text| placeholders.reserve(text));
    let mut hiding = RequestRedactor {
        redactor,
        placeholders,
        found: Vec::new(),
        refused: None,
        has_proven: false,
    };
    walk(task, &mut hiding);
    let RequestRedactor {
        placeholders,
        found,
        mut refused,
        has_proven,
        ..
    } = hiding;
    if has_proven {
        let mut restoring = SignedTextRedactor {
            redactor,
            placeholders: &placeholders,
            refused: None,
        };
        walk(task, &mut restoring);
        refused = refused.or(restoring.refused);
    }
    match refused {
        None => Ok((placeholders, found)),
        Some(why) => Err(Refusal { why, param: None }),
    }
}

/// Replaces the personal data of texts that may change.
struct RequestRedactor<'a> {
    redactor: &'a Redactor,
    placeholders: Placeholders,
    found: Vec<&'static str>,
    refused: Option<String>,
    has_proven: bool,
}

impl Reader for RequestRedactor<'_> {
    fn text(&mut self, Text { text, access, .. }: Text<'_>) -> Option<String> {
        match access {
            Access::Free => {
                let count = |name| self.found.push(name);
                self.placeholders.hide(self.redactor, text, count)
            }
            Access::Proven => {
                self.has_proven = true;
                None
            }
            Access::Fixed => {
                let found = self.redactor.find(None, text).into_iter().next();
                let place = "a name, an id, a schema or a grammar";
                self.refused = self
                    .refused
                    .take()
                    .or(found.map(|one| stays(one.name, place)));
                None
            }
        }
    }
}

/// Hides the values that already have a placeholder, in signed texts: a provider's own text had the placeholder.
struct SignedTextRedactor<'a> {
    redactor: &'a Redactor,
    placeholders: &'a Placeholders,
    refused: Option<String>,
}

impl Reader for SignedTextRedactor<'_> {
    fn text(&mut self, Text { text, access, .. }: Text<'_>) -> Option<String> {
        if access != Access::Proven {
            return None;
        }
        let hidden = self.placeholders.hide_known(self.redactor, text);
        let rest = self.redactor.find(None, hidden.as_deref().unwrap_or(text));
        if let Some(one) = rest.first() {
            self.refused = Some(stays(one.name, "signed reasoning"));
        }
        hidden
    }
}

/// Completes a sentence about a request with personal data of this kind in a place that cannot change.
fn stays(kind: &str, place: &str) -> String {
    format!("has personal data ({kind}) in {place}, where the filter cannot replace it")
}

fn bit(kind: Unread) -> u8 {
    1 << kind as u8
}

fn kinds(list: &str) -> Result<u8, String> {
    let mut kinds = 0;
    for name in list.split(',').map(str::trim) {
        let Some(bit) = KINDS.iter().position(|kind| kind.name == name) else {
            let names: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
            return Err(format!("must be a list of {}", names.join(", ")));
        };
        kinds |= 1 << bit;
    }
    Ok(kinds)
}

#[cfg(test)]
mod tests {
    use weir_sdk::adapter::Task as AnyTask;
    use weir_sdk::chat::{
        CallKind, ChatRequest, Content, CustomTool, JsonSchema, Message, Opaque, Part,
        ResponseFormat, Role, Source, ToolCall, ToolContent, ToolKind,
    };
    use weir_sdk::testing::{
        call, chat, file, function, image_request, message, part, reasoning, result, screened,
        text, tool, with_messages,
    };

    use super::*;

    fn setting(name: &str, value: &str) -> Setting {
        (name.to_owned(), value.to_owned())
    }

    fn screen(task: AnyTask, options: &[Setting]) -> Verdict {
        let configuration = RedactPii::configure(options).expect("they are its own");
        let request = screened(task, &["a"], 1);
        RedactPii::screen(request, &configuration).expect("it refuses nothing")
    }

    fn refused(task: AnyTask, options: &[Setting]) -> String {
        let configuration = RedactPii::configure(options).expect("they are its own");
        let screened = RedactPii::screen(screened(task, &["a"], 1), &configuration);
        screened.map(|_| ()).expect_err("it is refused").why
    }

    fn texts(verdict: &mut Verdict) -> Vec<String> {
        let mut texts = Vec::new();
        if let Some(task) = &mut verdict.change {
            each_text(task, |text| texts.push(text.clone()));
        }
        texts
    }

    fn changed(chat: ChatRequest) -> ChatRequest {
        match screen(AnyTask::Chat(chat), &[]).change {
            Some(Task::Chat(chat)) => chat,
            _ => panic!("it has personal data"),
        }
    }

    fn sent(contents: Vec<Content>) -> Vec<Content> {
        let chat = changed(with_messages(vec![message(Role::User, contents)]));
        let parts = chat.messages.into_iter().flat_map(|each| each.parts);
        parts.map(|part| part.content).collect()
    }

    #[test]
    fn a_request_is_redacted_and_what_was_found_is_counted() {
        let found = vec![ToolContent::Text("219-09-9999 and c@d.org".into())];
        let messages = vec![
            message(Role::System, vec![text("Ask c@d.org")]),
            message(Role::User, vec![text("I am a@b.co"), text("as before")]),
            message(Role::Tool, vec![result("1", found, false)]),
        ];
        let mut verdict = screen(AnyTask::Chat(with_messages(messages)), &[]);
        assert_eq!(
            texts(&mut verdict),
            [
                "Ask [e-mail-1]",
                "I am [e-mail-2]",
                "as before",
                "1",
                "[ssn-1] and [e-mail-1]"
            ]
        );
        assert_eq!(
            verdict.annotations,
            [setting("e-mail", "3"), setting("ssn", "1")]
        );
        assert!(verdict.answer.is_some());
        let mut verdict = screen(AnyTask::Image(image_request("a@b.co smiling")), &[]);
        assert_eq!(texts(&mut verdict), ["[e-mail-1] smiling"]);
    }

    #[test]
    fn calls_and_their_results_keep_their_json() {
        let arguments = r#"{"to":["\na@b.co"],"card":4111111111111111,"a@b.co":1}"#;
        let found = r#"{"line":"1\na@b.co","n":7}"#;
        let custom = |arguments: &str| {
            Content::ToolCall(ToolCall {
                id: "2".into(),
                name: "send".into(),
                kind: CallKind::Custom,
                arguments: arguments.into(),
            })
        };
        let contents = vec![
            call("1", "f", arguments),
            result("1", vec![ToolContent::Text(found.into())], false),
            custom("\"a@b.co"),
        ];
        let expected = vec![
            call(
                "1",
                "f",
                r#"{"to":["\n[e-mail-1]"],"card":"[card-1]","[e-mail-1]":1}"#,
            ),
            result(
                "1",
                vec![ToolContent::Text(
                    r#"{"line":"1\n[e-mail-1]","n":7}"#.into(),
                )],
                false,
            ),
            custom("\"[e-mail-1]"),
        ];
        assert_eq!(sent(contents), expected);
    }

    #[test]
    fn documents_are_redacted() {
        let block = |json: &str| Opaque {
            kind: "document".into(),
            json: json.into(),
        };
        let of = |data: &str| {
            let json = r#"{"type":"document","source":{"type":"text","data":"DATA"}}"#;
            block(&json.replace("DATA", data))
        };
        let about = |who: &str| {
            let mut pdf = file(Source::Attachment(0));
            pdf.name = Some(format!("{who}.pdf"));
            pdf.title = Some(format!("About {who}"));
            pdf.context = Some(format!("By {who}"));
            pdf
        };
        let contents = |who: &str, name: &str| {
            let mut pdf = about(who);
            pdf.name = Some(name.to_owned());
            let inner = vec![ToolContent::Opaque(of(who)), ToolContent::File(pdf.clone())];
            vec![
                Content::Opaque(of(who)),
                result("1", inner, false),
                Content::File(pdf),
            ]
        };
        let expected = contents("[ssn-1]", "[ssn-1].pdf");
        let contents = contents("219-09-9999", "219-09-9999.pdf");
        let request = || with_messages(vec![message(Role::User, contents.clone())]);
        let why = refused(AnyTask::Chat(request()), &[]);
        assert!(why.starts_with("has a file, which"), "{why}");
        let passed = [setting("unread", "file")];
        let Some(Task::Chat(chat)) = screen(AnyTask::Chat(request()), &passed).change else {
            panic!("it has personal data");
        };
        let parts = chat.messages.into_iter().flat_map(|each| each.parts);
        let sent: Vec<_> = parts.map(|part| part.content).collect();
        assert_eq!(sent, expected);
    }

    #[test]
    fn tools_schemas_and_further_fields_are_redacted() {
        let schema = |at: &str| {
            r#"{"properties":{"to":{"description":"AT"}},"required":["to"]}"#.replace("AT", at)
        };
        let request = |at: &str| {
            let mut chat = chat("hello");
            let mut found = function("send");
            found.extra = vec![("input_examples".into(), format!(r#"[{{"to":"{at}"}}]"#))];
            if let ToolKind::Function(function) = &mut found.kind {
                function.description = Some(format!("Asks {at}"));
                function.input_schema = schema(at);
            }
            let custom = tool(ToolKind::Custom(CustomTool {
                name: "tell".into(),
                description: Some(format!("Tells {at}")),
                format: None,
            }));
            chat.tools = vec![found, custom];
            chat.response_format = ResponseFormat::JsonSchema(JsonSchema {
                name: None,
                description: Some(format!("Names {at}")),
                strict: None,
                schema: schema(at),
            });
            chat.stop = vec![at.to_owned()];
            chat.messages[0].name = Some(at.to_owned());
            let json = format!(r#"[{{"cited_text":"{at}"}}]"#);
            let extra = vec![("citations".to_owned(), json)];
            chat.messages[0].extra.clone_from(&extra);
            chat.messages[0].parts[0].extra = extra;
            chat.extra = vec![("user".to_owned(), format!(r#""{at}""#))];
            chat
        };
        assert_eq!(changed(request("a@b.co")), request("[e-mail-1]"));
    }

    #[test]
    fn personal_data_that_cannot_change_is_refused() {
        let with_tool = |kind| {
            let mut chat = chat("hello");
            chat.tools = vec![tool(kind)];
            chat
        };
        let mut schema = function("send");
        if let ToolKind::Function(function) = &mut schema.kind {
            function.input_schema = r#"{"properties":{"a\u0040b.co":{}}}"#.to_owned();
        }
        let named = vec![call("1", "a@b.co", "{}")];
        let identified = vec![result("a@b.co", Vec::new(), false)];
        let of = |contents| with_messages(vec![message(Role::Assistant, contents)]);
        for request in [
            with_tool(schema.kind),
            with_tool(function("a@b.co").kind),
            with_tool(ToolKind::Custom(CustomTool {
                name: "tell".into(),
                description: None,
                format: Some(r#"{"definition":"a@b.co"}"#.into()),
            })),
            of(named),
            of(identified),
        ] {
            let why = refused(AnyTask::Chat(request), &[]);
            assert!(
                why.starts_with("has personal data (e-mail) in a name,"),
                "{why}"
            );
        }
    }

    #[test]
    fn reasoning_goes_back_as_its_provider_wrote_it() {
        let thought = |signed: &str, unsigned: &str| {
            let signed = Part {
                signature: Some("s".into()),
                ..part(reasoning(signed))
            };
            Message {
                parts: vec![signed, part(reasoning(unsigned))],
                ..message(Role::Assistant, Vec::new())
            }
        };
        let messages = |at: &str, other: &str| {
            let said = message(Role::User, vec![text(at)]);
            with_messages(vec![said, thought(at, other)])
        };
        let expected = messages("[e-mail-1]", "[e-mail-2]");
        assert_eq!(changed(messages("a@b.co", "c@d.org")), expected);
        let unknown = with_messages(vec![thought("x@y.org", "hello")]);
        let why = refused(AnyTask::Chat(unknown), &[]);
        assert!(
            why.starts_with("has personal data (e-mail) in signed reasoning,"),
            "{why}"
        );
    }

    #[test]
    fn a_placeholder_of_the_clients_own_stays_its_own() {
        let mut chat = chat("[e-mail-1] or a@b.co?");
        chat.extra = vec![("x".to_owned(), r#"["[e-mail-2]"]"#.to_owned())];
        let chat = changed(chat);
        assert_eq!(
            chat.messages[0].parts[0].content,
            text("[e-mail-1] or [e-mail-3]?")
        );
    }

    #[test]
    fn what_has_nothing_in_it_stays_as_it_is() {
        let mut verdict = screen(AnyTask::Chat(chat("hello")), &[]);
        assert!(texts(&mut verdict).is_empty() && verdict.annotations.is_empty());
    }

    #[test]
    fn options_say_which_kinds_and_whether_answers_are_redacted() {
        let options = [setting("kinds", "ip, phone"), setting("answers", "false")];
        let said = "a@b.co at 10.0.0.1, +49 30 1234567";
        let mut verdict = screen(AnyTask::Chat(chat(said)), &options);
        assert_eq!(texts(&mut verdict), ["a@b.co at [ip-1], [phone-1]"]);
        assert!(verdict.answer.is_some());
        let verdict = screen(AnyTask::Chat(chat("a@b.co")), &options);
        assert!(verdict.answer.is_none());
        for (name, value, why) in [
            ("kinds", "e-mail,name", "must be a list of e-mail, card"),
            ("kinds", "", "must be a list of"),
            ("answers", "yes", "must be true or false"),
            ("unread", "picture", "must be a list of image, audio"),
        ] {
            let refused = RedactPii::configure(&[setting(name, value)]);
            let refused = refused.expect_err("it is refused");
            assert_eq!(refused.name, name);
            assert!(refused.why.starts_with(why), "{}", refused.why);
        }
    }
}
