//! The check of a request's texts by a service.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use weir_sdk::filter::{
    Context, Description, Filter, Refusal, RefusedSetting, Request, ServiceRequest, Setting, Step,
    Task, Unread, Verdict, check_is_readable, text_response,
};
use weir_sdk::walk::{Reader, Text, walk};

const MODEL: &str = "omni-moderation-latest";

/// The service gets names, ids and strings within JSON in texts of about this many bytes: there are many, and most are short.
const PIECES_BYTES: usize = 4 << 10;

/// The option of an account whose requests are not checked: `moderation = off`.
const ACCOUNT_OPTION: (&str, &str) = ("moderation", "off");

/// The filter that asks a moderation service.
pub struct Moderate;

/// The operator's options. As bytes: JSON.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Options {
    model: String,
    /// The categories that count; all if empty.
    categories: Vec<String>,
    /// The response to a flagged request; a rejection if empty.
    response: String,
    /// Kinds of unreadable parts that pass, by name.
    unread: Vec<String>,
}

#[derive(Serialize)]
struct ModerationRequest<'a> {
    model: &'a str,
    input: &'a [String],
}

#[derive(Deserialize)]
struct ModerationResponse {
    results: Vec<ModerationResult>,
}

#[derive(Deserialize)]
struct ModerationResult {
    flagged: bool,
    #[serde(default)]
    categories: BTreeMap<String, Option<bool>>,
}

impl Filter for Moderate {
    fn describe() -> Description {
        let options = ["model", "categories", "response", "unread"];
        Description {
            name: "moderate".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            options: options.map(str::to_owned).to_vec(),
        }
    }

    fn configure(options: &[Setting]) -> Result<Vec<u8>, RefusedSetting> {
        let mut parsed = Options {
            model: MODEL.to_owned(),
            ..Options::default()
        };
        for (name, value) in options {
            let refused = |why: &str| RefusedSetting {
                name: name.clone(),
                why: why.to_owned(),
            };
            if value.is_empty() {
                return Err(refused("must not be empty"));
            }
            match &**name {
                "model" => parsed.model.clone_from(value),
                "response" => parsed.response.clone_from(value),
                "unread" => {
                    let kinds = Unread::parse_list(value).map_err(|why| refused(&why))?;
                    parsed.unread = kinds.iter().map(|kind| kind.name().to_owned()).collect();
                }
                "categories" => {
                    let names = value.split(',').map(str::trim).map(str::to_owned);
                    parsed.categories = names.collect();
                    if parsed.categories.iter().any(String::is_empty) {
                        return Err(refused("must be names with commas between them"));
                    }
                }
                _ => return Err(refused("is not an option of this filter")),
            }
        }
        Ok(serde_json::to_vec(&parsed).expect("it is texts"))
    }

    fn screen(_: Request, _: &[u8]) -> Result<Verdict, Refusal> {
        Err(unchecked())
    }

    fn begin(
        mut request: Request,
        context: Context,
        configuration: &[u8],
    ) -> Result<Step, Refusal> {
        let (name, off) = ACCOUNT_OPTION;
        let mut options = context.account_options.iter();
        if options.any(|(option, value)| option == name && value == off) {
            return Ok(Step::Decide(Verdict::default()));
        }
        if !context.has_service {
            return Err(unchecked());
        }
        let options: Options =
            serde_json::from_slice(configuration).expect("this is of `configure`");
        let is_passed = |kind: &Unread| options.unread.iter().any(|name| name == kind.name());
        let passed: Vec<_> = Unread::ALL.into_iter().filter(is_passed).collect();
        check_is_readable(&mut request.task, &passed)?;
        let texts = texts(&mut request.task);
        if texts.is_empty() {
            return Ok(Step::Decide(Verdict::default()));
        }
        let service_request = ModerationRequest {
            model: &options.model,
            input: &texts,
        };
        let body = serde_json::to_vec(&service_request).expect("it is texts");
        let is_chat = matches!(request.task, Task::Chat(_));
        let then = move |reply: Vec<u8>| judge(&reply, texts.len(), &options, is_chat);
        Ok(Step::AskService(ServiceRequest {
            body,
            then: Box::new(then),
        }))
    }
}

/// The texts of a request, each once; the names, ids and strings within JSON follow in longer texts.
fn texts(task: &mut Task) -> Vec<String> {
    let mut inputs = ModerationInputs::default();
    walk(task, &mut inputs);
    let ModerationInputs {
        mut texts, pieces, ..
    } = inputs;
    texts.extend(pieces);
    texts
}

/// Collects the texts for the service.
#[derive(Default)]
struct ModerationInputs {
    seen: BTreeSet<String>,
    texts: Vec<String>,
    pieces: Vec<String>,
}

impl Reader for ModerationInputs {
    fn text(&mut self, Text { text, is_piece, .. }: Text<'_>) -> Option<String> {
        let is_empty = match is_piece {
            // A number alone says nothing.
            true => !text.contains(char::is_alphabetic),
            false => text.trim().is_empty(),
        };
        if is_empty || !self.seen.insert(text.to_owned()) {
            return None;
        }
        if !is_piece {
            self.texts.push(text.to_owned());
            return None;
        }
        match self.pieces.last_mut() {
            Some(last) if last.len() + text.len() < PIECES_BYTES => {
                last.push('\n');
                last.push_str(text);
            }
            _ => self.pieces.push(text.to_owned()),
        }
        None
    }
}

fn unchecked() -> Refusal {
    Refusal {
        why: "needs a check by a moderation service, which is not configured".to_owned(),
        param: None,
    }
}

/// Decides by the service's response, which must have a result for each text.
fn judge(reply: &[u8], texts: usize, options: &Options, is_chat: bool) -> Result<Step, Refusal> {
    let response: ModerationResponse = match serde_json::from_slice(reply) {
        Ok(response) => response,
        Err(error) => return Ok(Step::Fail(format!("the service's response: {error}"))),
    };
    if response.results.len() != texts {
        let results = response.results.len();
        return Ok(Step::Fail(format!(
            "the service's response has {results} results for {texts} texts"
        )));
    }
    let counts = |name: &String| options.categories.is_empty() || options.categories.contains(name);
    let mut found: Vec<_> = response
        .results
        .iter()
        .flat_map(|result| &result.categories)
        .filter(|(name, flagged)| **flagged == Some(true) && counts(name))
        .map(|(name, _)| name.as_str())
        .collect();
    found.sort_unstable();
    found.dedup();
    let any_counts = options.categories.is_empty();
    let is_flagged =
        !found.is_empty() || any_counts && response.results.iter().any(|result| result.flagged);
    if !is_flagged {
        return Ok(Step::Decide(Verdict::default()));
    }
    if is_chat && !options.response.is_empty() {
        return Ok(Step::Respond(text_response(&options.response)));
    }
    let why = match &*found {
        [] => "is not allowed by the moderation service".to_owned(),
        found => format!(
            "is not allowed by the moderation service: {}",
            found.join(", ")
        ),
    };
    Err(Refusal { why, param: None })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use weir_sdk::adapter::Task as AnyTask;
    use weir_sdk::chat::{Content, Event, Fragment, Image, Role, Source, ToolKind};
    use weir_sdk::testing::{
        chat, function, image_request, message, screened, text, with_messages,
    };

    use super::*;

    fn setting(name: &str, value: &str) -> Setting {
        (name.to_owned(), value.to_owned())
    }

    fn context(has_service: bool, account_options: &[Setting]) -> Context {
        Context {
            key_options: Vec::new(),
            account_options: account_options.to_vec(),
            has_service,
            whole_bytes: 0,
        }
    }

    fn begin(task: AnyTask, context: Context, options: &[Setting]) -> Result<Step, Refusal> {
        let configuration = Moderate::configure(options).expect("they are its own");
        Moderate::begin(screened(task, &["a"], 1), context, &configuration)
    }

    /// Returns the body for the service, and the step after this response.
    fn asked(task: AnyTask, options: &[Setting], reply: &str) -> (Value, Result<Step, Refusal>) {
        match begin(task, context(true, &[]), options) {
            Ok(Step::AskService(ServiceRequest { body, then })) => {
                let body = serde_json::from_slice(&body).expect("JSON");
                (body, then(reply.as_bytes().to_vec()))
            }
            _ => panic!("it asks the service"),
        }
    }

    fn result(flagged: bool, categories: &Value) -> Value {
        json!({ "flagged": flagged, "categories": categories, "category_scores": {} })
    }

    /// A response of the service, in the shape of `ModerationCreateResponse` of the Python package openai 3.57.0.
    fn reply(results: &[Value]) -> String {
        json!({ "id": "modr-1", "model": MODEL, "results": results }).to_string()
    }

    #[test]
    fn each_text_is_checked_once() {
        let messages = vec![
            message(Role::System, vec![text("be kind")]),
            message(Role::User, vec![text("hello"), text(" "), text("hello")]),
        ];
        let fine = result(false, &json!({ "hate": false, "illicit": null }));
        let reply = reply(&[fine.clone(), fine]);
        let task = AnyTask::Chat(with_messages(messages));
        let (body, step) = asked(task, &[setting("model", "own")], &reply);
        assert_eq!(
            body,
            json!({ "model": "own", "input": ["be kind", "hello"] })
        );
        let Ok(Step::Decide(verdict)) = step else {
            panic!("it is fine");
        };
        assert!(verdict.change.is_none() && verdict.answer.is_none());
    }

    #[test]
    fn names_and_schemas_are_checked_in_one_text() {
        let mut request = chat("hello");
        let mut tool = function("look_up");
        if let ToolKind::Function(function) = &mut tool.kind {
            function.description = Some("Finds a word.".to_owned());
            function.input_schema =
                r#"{"properties":{"word":{"enum":["a\u0062c", "word"],"minLength":3}}}"#.to_owned();
        }
        request.tools = vec![tool];
        let fine = result(false, &json!({}));
        let replied = reply(&[fine.clone(), fine.clone(), fine]);
        let (body, step) = asked(AnyTask::Chat(request), &[], &replied);
        assert_eq!(
            body["input"],
            json!([
                "Finds a word.",
                "hello",
                "look_up\nproperties\nword\nenum\nabc\nminLength"
            ])
        );
        assert!(matches!(step, Ok(Step::Decide(_))));
    }

    #[test]
    fn images_are_refused_unless_the_operator_lets_them_pass() {
        let task = || {
            let source = Source::Url("https://example.com/a.png".to_owned());
            let image = Content::Image(Image {
                source,
                detail: None,
            });
            AnyTask::Chat(with_messages(vec![message(Role::User, vec![image])]))
        };
        let refused = begin(task(), context(true, &[]), &[]).err();
        let why = "has an image, which the filter cannot read";
        assert_eq!(refused.map(|refusal| refusal.why).as_deref(), Some(why));
        let passed = begin(task(), context(true, &[]), &[setting("unread", "image")]);
        assert!(matches!(passed, Ok(Step::AskService(_))));
    }

    #[test]
    fn a_flagged_request_is_refused_or_gets_the_operators_response() {
        let categories = json!({ "hate": true, "violence": true, "sexual": false });
        let flagged = reply(&[result(true, &categories)]);
        let of = |options: &[Setting]| asked(AnyTask::Chat(chat("x")), options, &flagged).1;
        let why = |step: Result<Step, Refusal>| step.err().map(|refusal| refusal.why);
        assert_eq!(
            why(of(&[])).as_deref(),
            Some("is not allowed by the moderation service: hate, violence")
        );
        let some = why(of(&[setting("categories", "sexual, hate")]));
        assert!(some.is_some_and(|why| why.ends_with("service: hate")));
        let other = of(&[setting("categories", "sexual,illicit")]);
        assert!(matches!(other, Ok(Step::Decide(_))));
        let Ok(Step::Respond(events)) = of(&[setting("response", "Please, no.")]) else {
            panic!("it responds");
        };
        let text = "Please, no.".to_owned();
        assert!(events.contains(&Event::Fragment(Fragment { index: 0, text })));
        // The service need not name a category.
        let unnamed = reply(&[result(true, &json!({}))]);
        let step = asked(AnyTask::Chat(chat("x")), &[], &unnamed).1;
        assert_eq!(
            why(step).as_deref(),
            Some("is not allowed by the moderation service")
        );
        // A request for images has no text as a response.
        let task = AnyTask::Image(image_request("x"));
        let step = asked(task, &[setting("response", "no")], &flagged).1;
        assert!(step.is_err());
    }

    #[test]
    fn a_response_that_cannot_be_read_is_a_failure() {
        for reply in ["", "{}", &reply(&[]), "{\"results\":[{}]}"] {
            let step = asked(AnyTask::Chat(chat("x")), &[], reply).1;
            assert!(matches!(step, Ok(Step::Fail(_))), "{reply}");
        }
    }

    #[test]
    fn without_a_service_nothing_passes_except_for_accounts_that_are_not_checked() {
        let task = || AnyTask::Chat(chat("x"));
        assert!(begin(task(), context(false, &[]), &[]).is_err());
        assert!(Moderate::screen(screened(task(), &["a"], 1), &[]).is_err());
        for has_service in [false, true] {
            let off = context(has_service, &[setting("moderation", "off")]);
            assert!(matches!(begin(task(), off, &[]), Ok(Step::Decide(_))));
        }
        let other = context(true, &[setting("moderation", "on")]);
        assert!(matches!(begin(task(), other, &[]), Ok(Step::AskService(_))));
    }

    #[test]
    fn options_are_checked() {
        for (name, value) in [
            ("model", ""),
            ("categories", "hate,,"),
            ("response", ""),
            ("unread", "picture"),
        ] {
            let refused = Moderate::configure(&[setting(name, value)]);
            assert_eq!(refused.expect_err("it is refused").name, name);
        }
    }
}
