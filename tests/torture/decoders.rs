//! F1: each adapter in the sandbox, with corrupted responses to chats and to each other kind of request that it serves.
//!
//! A seed chooses the recorded response of `tests/conformance/answers`, its corruption, and its pieces. A folder of an
//! adapter there has the responses to chats, and a folder in it those to the kind of its name. The latter have the
//! fields of openai-python 3.52.0, cohere-python 7.3.1, python-genai 3.6.1 and Ollama's API documentation. For any
//! bytes, these must hold: the component does not trap and stays within its limits of memory and processor time; its
//! events form a valid response, as far as they go; their number is bounded by the received bytes; and they are the
//! same for any pieces.
//!
//! `FUZZ_SECONDS` is the duration for each adapter and kind, 600 by default; `FUZZ_SEED` is the first seed, to repeat a failed
//! case.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::json;
use tests::sandbox::{load, request, sandbox};
use weir_bundled::BUNDLE;
use weir_sandbox::adapter::bindings::adapter::{HttpResponseHead, Progress};
use weir_sandbox::adapter::bindings::chat::Event;
use weir_sandbox::adapter::{
    AdapterCallError, AdapterRequest, GuestExchange, LoadedAdapter, OtherRequest,
};
use weir_sdk::testing::{AnswerFixture, Mutator, recorded};
use weir_upstream::media::MediaPieces;
use weir_upstream::sequence::Sequence;

/// Adapters under test at once.
const THREADS: usize = 2;

/// Memory that two adapters may keep in MiB, beyond that of the first seconds.
const MEMORY_MIB: usize = 64;

/// Time until the process has allocated its working memory.
const WARM_UP: Duration = Duration::from_secs(5);

/// Period of cases that are also read in one piece.
const COMPARED_EVERY: u64 = 8;

/// Maximum cases in the search for the smallest input.
const SHRINKING_CASES: usize = 5_000;

const STATUSES: [u16; 9] = [200, 201, 204, 301, 400, 401, 404, 429, 529];

const TYPES: [&str; 6] = [
    "application/json",
    "text/event-stream",
    "application/x-ndjson",
    "text/plain",
    "text/html",
    "",
];

pub(crate) fn run() -> bool {
    let duration = Duration::from_secs(setting("FUZZ_SECONDS").unwrap_or(600));
    let first_seed: u64 = setting("FUZZ_SEED").unwrap_or(1);
    let answers = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/answers");
    let names = BUNDLE.adapters.iter().map(|(name, _)| *name);
    let subjects = names.flat_map(|name| subjects(name, &answers.join(name)));
    let waiting = Mutex::new(subjects.collect::<Vec<_>>());
    let verdicts = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let next = || waiting.lock().expect("nobody panics").pop();
                while let Some(subject) = next() {
                    let verdict = Fuzzer::try_all(subject, first_seed, duration);
                    verdicts.lock().expect("nobody panics").push(verdict);
                }
            });
        }
    });
    let verdicts = verdicts.into_inner().expect("nobody panics");
    !verdicts.is_empty() && verdicts.into_iter().all(|is_sound| is_sound)
}

fn setting<T: FromStr<Err: Debug>>(name: &str) -> Option<T> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("a number"))
}

/// A corrupted response, and its pieces.
#[derive(Clone)]
struct Case {
    head: HttpResponseHead,
    body: Vec<u8>,
    piece_bytes: usize,
    is_compared: bool,
}

/// An adapter and the request whose responses it reads.
struct Subject {
    adapter: &'static str,
    /// The names of the adapter and the kind.
    name: String,
    request: AdapterRequest,
    folder: PathBuf,
}

/// Returns what an adapter is tested with: chats, and the kinds whose folders are in its own.
fn subjects(adapter: &'static str, folder: &Path) -> Vec<Subject> {
    if !folder.exists() {
        return Vec::new();
    }
    let kinds = OtherRequest::examples().into_iter().map(|(request, _)| {
        let kind = request.kind().name();
        (kind, folder.join(kind), AdapterRequest::Other(request))
    });
    // The calls are a function's, and a free-text tool's.
    let asked = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": true,
        "max_tokens": 1000, "tools": [{"type": "custom", "custom": {"name": "patch"}}]});
    let chats = (
        "chat",
        folder.to_owned(),
        AdapterRequest::Task(request(&asked)),
    );
    std::iter::once(chats)
        .chain(kinds.filter(|(_, folder, _)| folder.exists()))
        .map(|(kind, folder, request)| Subject {
            adapter,
            name: format!("{adapter}-{kind}"),
            request,
            folder,
        })
        .collect()
}

struct Fuzzer {
    adapter: LoadedAdapter,
    configuration: Vec<u8>,
    request: AdapterRequest,
    answers: Vec<AnswerFixture>,
}

/// An adapter's result for a response.
#[derive(Debug, PartialEq)]
struct Outcome {
    events: Vec<Event>,
    failed: bool,
}

impl Fuzzer {
    /// Tests one adapter and kind for this long, prints its faults, and returns whether there are none.
    fn try_all(subject: Subject, first_seed: u64, duration: Duration) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime starts");
        runtime.block_on(async {
            let name = subject.name.clone();
            let name = &*name;
            let fuzzer = Self::new(subject).await;
            let started = Instant::now();
            let mut memory_mib = None;
            let mut slowest = Duration::ZERO;
            let mut cases = 0;
            while started.elapsed() < duration {
                let seed = first_seed + cases;
                let case = fuzzer.case(seed);
                let began = Instant::now();
                if let Err(complaint) = fuzzer.check(&case).await {
                    fuzzer.report(name, seed, case, &complaint).await;
                    return false;
                }
                slowest = slowest.max(began.elapsed());
                cases += 1;
                if memory_mib.is_none() && started.elapsed() > WARM_UP {
                    memory_mib = Some(super::resident_mib());
                }
            }
            let now_mib = super::resident_mib();
            let grown_mib = now_mib.saturating_sub(memory_mib.unwrap_or(now_mib));
            println!(
                "F1: {name}: {cases} broken answers from seed {first_seed} in {duration:.0?}, {:.0}/s; the slowest took \
                 {slowest:.1?}; memory grew by {grown_mib} MiB (limit {MEMORY_MIB} MiB)",
                cases as f64 / started.elapsed().as_secs_f64(),
            );
            grown_mib <= MEMORY_MIB
        })
    }

    async fn new(subject: Subject) -> Self {
        let mut bundled = BUNDLE.adapters.iter();
        let component = bundled.find(|(known, _)| *known == subject.adapter);
        let (_, bytes) = component.expect("it was listed");
        let adapter = load(&sandbox(4), subject.adapter, bytes).await;
        let adapter = adapter.expect("it loads");
        let configuration = adapter.configure(&[]).await.expect("no options");
        Self {
            adapter,
            configuration,
            request: subject.request,
            answers: recorded(subject.folder.to_str().expect("UTF-8")),
        }
    }

    /// Returns the case of a seed.
    fn case(&self, seed: u64) -> Case {
        let mut mutator = Mutator::new(seed);
        let bodies: Vec<&[u8]> = self.answers.iter().map(|answer| &*answer.body).collect();
        let answer = &self.answers[mutator.below(self.answers.len())];
        let mut status = answer.status;
        if mutator.below(16) == 0 {
            status = STATUSES[mutator.below(STATUSES.len())];
        }
        let mut headers = answer.headers.clone();
        if mutator.below(16) == 0 {
            let media_type = TYPES[mutator.below(TYPES.len())].to_owned();
            headers = vec![("content-type".to_owned(), media_type)];
        }
        let body = mutator.mutated(&answer.body, &bodies);
        // Many pieces of many bytes take long to pass, and show nothing new.
        let fewest = 1 + body.len() / 2_000;
        let longest = if mutator.below(2) == 0 { 64 } else { 4_096 };
        let piece_bytes = fewest + mutator.below(longest);
        Case {
            head: HttpResponseHead { status, headers },
            body,
            piece_bytes,
            is_compared: seed.is_multiple_of(COMPARED_EVERY),
        }
    }

    /// Describes the fault of the adapter's result for a case.
    async fn check(&self, case: &Case) -> Result<(), String> {
        let outcome = self.read(case, case.piece_bytes).await?;
        if case.is_compared {
            let whole = self.read(case, case.body.len()).await?;
            if whole != outcome {
                return Err(format!("in pieces {outcome:?}\nand whole {whole:?}"));
            }
        }
        Ok(())
    }

    async fn read(&self, case: &Case, piece_bytes: usize) -> Result<Outcome, String> {
        let guest = |error: weir_sandbox::GuestError| format!("the guest was given up: {error}");
        let begun = GuestExchange::begin(&self.adapter, &self.request, 1_000, &self.configuration);
        let mut exchange = begun.await.map_err(|error| error.to_string())?.exchange;
        // 64 KiB, and 48 bytes for each received byte.
        let input_bytes = u32::try_from(case.body.len()).expect("few bytes");
        let mut sequence = Sequence::new(input_bytes);
        let mut events = Vec::new();
        let mut take = |progress: Progress| {
            for event in &progress.events {
                let followed = sequence.follow(event);
                followed.map_err(|error| format!("{error}: {event:?}"))?;
            }
            events.extend(progress.events);
            Ok::<bool, String>(progress.failure.is_some())
        };
        let failed = match exchange.head(&case.head).await {
            Ok(()) => {
                let mut failed = false;
                for piece in case.body.chunks(piece_bytes.max(1)) {
                    failed = take(exchange.body(piece).await.map_err(guest)?)?;
                    if failed {
                        break;
                    }
                }
                failed || take(exchange.end().await.map_err(guest)?)?
            }
            Err(AdapterCallError::Failure(_)) => true,
            Err(AdapterCallError::Guest(error)) => return Err(guest(error)),
        };
        if !failed {
            sequence.end().map_err(|error| error.to_string())?;
        }
        // The number of an image's pieces may differ.
        let events = MediaPieces::default().assemble(events);
        Ok(Outcome { events, failed })
    }

    async fn report(&self, name: &str, seed: u64, case: Case, complaint: &str) {
        let smallest = self.smallest(case).await;
        let file = std::env::temp_dir().join(format!("weir-fuzz-{name}-{seed}.http"));
        let mut recording = format!("HTTP/1.1 {} X\r\n", smallest.head.status);
        for (name, value) in &smallest.head.headers {
            recording.push_str(&format!("{name}: {value}\r\n"));
        }
        let mut recording = (recording + "\r\n").into_bytes();
        recording.extend_from_slice(&smallest.body);
        let written = std::fs::write(&file, recording);
        println!(
            "F1: {name}: seed {seed}: {complaint}\nF1: {name}: the smallest such answer, of {} bytes, is in {} ({written:?}); \
             pieces of {} bytes",
            smallest.body.len(),
            file.display(),
            smallest.piece_bytes
        );
    }

    /// Removes all parts of a case that its failure does not need.
    async fn smallest(&self, mut case: Case) -> Case {
        let mut cases = 0;
        let mut length = case.body.len().div_ceil(2);
        while length > 0 {
            let mut at = 0;
            while at < case.body.len() && cases < SHRINKING_CASES {
                cases += 1;
                let mut smaller = case.clone();
                smaller.body.drain(at..(at + length).min(case.body.len()));
                if self.check(&smaller).await.is_err() {
                    case = smaller;
                } else {
                    at += length;
                }
            }
            length /= 2;
        }
        case
    }
}
