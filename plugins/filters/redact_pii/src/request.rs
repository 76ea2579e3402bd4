//! The filter itself: its options, and its changes to a request.

use weir_sdk::filter::{
    Description, Filter, Refusal, RefusedSetting, Request, Setting, Verdict, each_text,
};

use crate::answer::Redacting;
use crate::kinds::{DEFAULT_KINDS, KINDS, Redactor};

/// The filter that removes personal data.
pub struct RedactPii;

/// The operator's options. As bytes: the kinds, one bit each, and whether responses are redacted.
struct Options {
    kinds: u8,
    answers: bool,
}

impl Filter for RedactPii {
    fn describe() -> Description {
        Description {
            name: "redact-pii".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            options: vec!["kinds".to_owned(), "answers".to_owned()],
        }
    }

    fn configure(options: &[Setting]) -> Result<Vec<u8>, RefusedSetting> {
        let mut read = Options {
            kinds: DEFAULT_KINDS,
            answers: true,
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
                _ => return Err(refused("is not an option of this filter".to_owned())),
            }
        }
        Ok(vec![read.kinds, read.answers.into()])
    }

    fn screen(mut request: Request, configuration: &[u8]) -> Result<Verdict, Refusal> {
        let &[kinds, answers] = configuration else {
            panic!("this is not of `configure`");
        };
        let redactor = Redactor::new(kinds);
        let mut found = Vec::new();
        each_text(&mut request.task, |text| {
            found.extend(redactor.redact(text))
        });
        let annotations = KINDS.iter().filter_map(|kind| {
            let count = found.iter().filter(|name| **name == kind.name).count();
            (count > 0).then(|| (kind.name.to_owned(), count.to_string()))
        });
        let mut verdict = Verdict {
            annotations: annotations.collect(),
            ..Verdict::default()
        };
        if !found.is_empty() {
            verdict.change = Some(request.task);
        }
        if answers != 0 {
            verdict.answer = Some(Box::new(Redacting::new(redactor)));
        }
        Ok(verdict)
    }
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
    use weir_sdk::adapter::Task;
    use weir_sdk::chat::{Role, ToolContent};
    use weir_sdk::testing::{chat, image_request, message, result, screened, text, with_messages};

    use super::*;

    fn setting(name: &str, value: &str) -> Setting {
        (name.to_owned(), value.to_owned())
    }

    fn screen(task: Task, options: &[Setting]) -> Verdict {
        let configuration = RedactPii::configure(options).expect("they are its own");
        let request = screened(task, &["a"], 1);
        RedactPii::screen(request, &configuration).expect("it refuses nothing")
    }

    fn texts(verdict: &mut Verdict) -> Vec<String> {
        let mut texts = Vec::new();
        if let Some(task) = &mut verdict.change {
            each_text(task, |text| texts.push(text.clone()));
        }
        texts
    }

    #[test]
    fn a_request_is_redacted_and_what_was_found_is_counted() {
        let found = vec![ToolContent::Text("219-09-9999 and c@d.org".into())];
        let messages = vec![
            message(Role::User, vec![text("I am a@b.co"), text("as before")]),
            message(Role::Tool, vec![result("1", found, false)]),
        ];
        let mut verdict = screen(Task::Chat(with_messages(messages)), &[]);
        assert_eq!(
            texts(&mut verdict),
            ["I am [e-mail]", "as before", "[ssn] and [e-mail]"]
        );
        assert_eq!(
            verdict.annotations,
            [setting("e-mail", "2"), setting("ssn", "1")]
        );
        assert!(verdict.answer.is_some());
        let mut verdict = screen(Task::Image(image_request("a@b.co smiling")), &[]);
        assert_eq!(texts(&mut verdict), ["[e-mail] smiling"]);
    }

    #[test]
    fn what_has_nothing_in_it_stays_as_it_is() {
        let mut verdict = screen(Task::Chat(chat("hello")), &[]);
        assert!(texts(&mut verdict).is_empty() && verdict.annotations.is_empty());
    }

    #[test]
    fn options_say_which_kinds_and_whether_answers_are_redacted() {
        let options = [setting("kinds", "ip, phone"), setting("answers", "false")];
        let said = "a@b.co at 10.0.0.1, +49 30 1234567";
        let mut verdict = screen(Task::Chat(chat(said)), &options);
        assert_eq!(texts(&mut verdict), ["a@b.co at [ip], [phone]"]);
        assert!(verdict.answer.is_none());
        for (name, value, why) in [
            ("kinds", "e-mail,name", "must be a list of e-mail, card"),
            ("kinds", "", "must be a list of"),
            ("answers", "yes", "must be true or false"),
        ] {
            let refused = RedactPii::configure(&[setting(name, value)]);
            let refused = refused.expect_err("it is refused");
            assert_eq!(refused.name, name);
            assert!(refused.why.starts_with(why), "{}", refused.why);
        }
    }
}
