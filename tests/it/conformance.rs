//! Snapshots of the requests that each adapter sends, and of its events for recorded responses of its provider.
//!
//! `tests/conformance` has the requests. `tests/conformance/answers` has a folder of responses for each adapter that
//! calls a provider. Each `.snap` file is the output of `weir plugin try`.
//! `WEIR_ACCEPT=1 cargo test -p tests --test it conformance` writes new and changed snapshots. Review them: providers
//! get these requests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::HeaderMap;
use tests::sandbox::{load, sandbox};
use weir_author::recording::RecordedResponse;
use weir_author::trial::{BodyCuts, Trial};
use weir_bundled::BUNDLE;
use weir_dialects::{self as dialect, ChatCall, anthropic_messages};
use weir_errors::ApiError;
use weir_plugins::Component;

/// Larger than every recorded response.
const WHOLE: NonZeroUsize = NonZeroUsize::MAX;

/// The end of the name of a request in the Messages dialect. `POST /chat` cannot express these requests.
const MESSAGES: &str = ".messages";

/// The snapshots of one test: the known files, and the differences.
#[derive(Default)]
struct Snapshots {
    known: BTreeSet<PathBuf>,
    wrong: Vec<String>,
}

impl Snapshots {
    fn compare(&mut self, file: PathBuf, printed: &str) {
        let expected = fs::read_to_string(&file).unwrap_or_default();
        if expected != printed {
            if std::env::var_os("WEIR_ACCEPT").is_some() {
                fs::write(&file, printed).expect("the folder can be written");
            } else {
                self.wrong.push(difference(&file, &expected, printed));
            }
        }
        self.known.insert(file);
    }

    /// Fails if a snapshot differs or belongs to no request.
    fn check(mut self, folder: &Path) {
        let stale = files(folder, "snap").into_iter();
        for file in stale.filter(|file| !self.known.contains(file)) {
            self.wrong
                .push(format!("{} belongs to nothing", file.display()));
        }
        assert!(
            self.wrong.is_empty(),
            "{}\n\n{} snapshots differ; WEIR_ACCEPT=1 accepts them",
            self.wrong.join("\n\n"),
            self.wrong.len()
        );
    }
}

/// The lines that only one of the two texts has.
fn difference(file: &Path, expected: &str, printed: &str) -> String {
    let only = |mark: char, these: &str, those: &str| -> String {
        let those: BTreeSet<&str> = those.lines().collect();
        let only = these.lines().filter(|line| !those.contains(line));
        only.map(|line| format!("{mark} {line}\n")).collect()
    };
    let (gone, new) = (only('-', expected, printed), only('+', printed, expected));
    format!("{}:\n{gone}{new}", file.display())
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance")
}

/// The files of a folder with this extension, sorted.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    files
}

fn stem(file: &Path) -> &str {
    file.file_stem()
        .and_then(|name| name.to_str())
        .expect("UTF-8")
}

/// Every bundled adapter by name.
async fn adapters() -> Vec<(String, Component)> {
    let sandbox = sandbox(4);
    let mut loaded = Vec::new();
    for (name, bytes) in BUNDLE.adapters {
        let component = load(&sandbox, name, bytes).await;
        let component = Component::new(component.expect("it loads"), Arc::default());
        loaded.push(((*name).to_owned(), component));
    }
    loaded
}

/// Reads the body of a request in the dialect that the end of its name selects.
fn read(name: &str, body: &[u8]) -> Result<ChatCall, ApiError> {
    if name.ends_with(MESSAGES) {
        anthropic_messages::read(body, &HeaderMap::new())
    } else {
        dialect::read_own(body)
    }
}

fn request(file: &Path) -> ChatCall {
    let body = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let read = read(stem(file), &body);
    let mut call = read.unwrap_or_else(|error| panic!("{}: {}", file.display(), error.message()));
    call.request.max_output_tokens = call.output_limit.expect("each file sets one");
    call
}

/// `weir plugin check` tries components with the same requests and responses.
#[test]
fn the_program_embeds_every_request_and_response() {
    assert!(BUNDLE.requests.len() > 40, "{}", BUNDLE.requests.len());
    for (name, body) in BUNDLE.requests {
        assert!(read(name, body.as_bytes()).is_ok(), "{name}");
    }
    for provider in &tests::source::provider_adapters() {
        let of_provider = BUNDLE
            .responses
            .iter()
            .filter(|(of, ..)| *of == provider.as_str());
        let responses: Vec<_> = of_provider.collect();
        assert!(
            responses.len() > 20,
            "{provider} has {} recorded responses; add more to tests/conformance/answers/{provider}/",
            responses.len()
        );
        for (_, name, bytes) in responses {
            assert!(RecordedResponse::parse(bytes).is_ok(), "{provider}/{name}");
        }
    }
}

/// The output of `weir plugin try`.
async fn printed(
    component: &Component,
    call: ChatCall,
    recordings: Vec<RecordedResponse>,
    chunk: NonZeroUsize,
) -> String {
    let trial = Trial {
        component,
        cut: BodyCuts::Pieces(chunk),
        // All texts stay with the host, if the adapter can do without them: its requests are the same.
        most_text_bytes: 0,
        response_bytes: u64::MAX,
    };
    let mut out = Vec::new();
    // The last line of the output reports a failure.
    let _ = trial.run(call, &[], recordings, &mut out).await;
    String::from_utf8(out).expect("UTF-8")
}

/// Splits a request into lines, so that a diff of a snapshot shows each change.
fn indented(line: &str) -> String {
    let mut text = String::new();
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    let mut characters = line.chars().peekable();
    let new_line = |text: &mut String, depth: usize| {
        text.push('\n');
        text.push_str(&"  ".repeat(depth));
    };
    while let Some(character) = characters.next() {
        if in_string {
            text.push(character);
            in_string = is_escaped || character != '"';
            is_escaped = character == '\\' && !is_escaped;
            continue;
        }
        match character {
            '{' | '[' => {
                text.push(character);
                if let Some(end) = characters.next_if(|next| matches!(next, '}' | ']')) {
                    text.push(end);
                } else {
                    depth += 1;
                    new_line(&mut text, depth);
                }
            }
            '}' | ']' => {
                depth -= 1;
                new_line(&mut text, depth);
                text.push(character);
            }
            ',' => {
                text.push(character);
                new_line(&mut text, depth);
            }
            ':' => text.push_str(": "),
            ' ' => {}
            _ => {
                in_string = character == '"';
                text.push(character);
            }
        }
    }
    text
}

#[tokio::test]
async fn every_request_becomes_what_its_snapshots_say() {
    let mut snapshots = Snapshots::default();
    let adapters = adapters().await;
    for file in files(&folder(), "json") {
        for (adapter, component) in &adapters {
            let printed = printed(component, request(&file), Vec::new(), WHOLE).await;
            let lines = printed.lines().map(|line| match line {
                sent if sent.starts_with("{\"send\"") => indented(sent) + "\n",
                other => format!("{other}\n"),
            });
            let snapshot = file.with_extension(format!("{adapter}.snap"));
            snapshots.compare(snapshot, &lines.collect::<String>());
        }
    }
    snapshots.check(&folder());
}

#[tokio::test]
async fn every_recorded_answer_becomes_the_events_of_its_snapshot() {
    let components: BTreeMap<_, _> = adapters().await.into_iter().collect();
    let folders =
        tests::source::for_each_provider_adapter("tests/conformance/answers/", |adapter| {
            let folder = folder().join("answers").join(adapter);
            folder.is_dir().then_some(folder)
        });
    for (adapter, folder) in folders {
        let component = &components[&adapter];
        let mut snapshots = Snapshots::default();
        for file in files(&folder, "http") {
            let asked = if stem(&file).ends_with("-stream") {
                "streamed.json"
            } else {
                "basic.json"
            };
            let events = async |chunk| {
                let bytes = fs::read(&file).expect("it was listed");
                let recording = RecordedResponse::parse(&bytes).expect("as curl -i prints it");
                let call = request(&self::folder().join(asked));
                let printed = printed(component, call, vec![recording], chunk).await;
                let lines = printed
                    .lines()
                    .filter(|line| !line.starts_with("{\"send\""));
                lines.map(|line| format!("{line}\n")).collect::<String>()
            };
            let whole = events(WHOLE).await;
            let pieces = events(const { NonZeroUsize::new(7).expect("more than 0") }).await;
            assert_eq!(pieces, whole, "{} in pieces", file.display());
            snapshots.compare(file.with_extension("snap"), &whole);
        }
        snapshots.check(&folder);
    }
}
