//! Recorded answers: files as `curl -i` prints answers, which adapters' own tests share with those of the components
//! and with the fuzzing.

use std::fs;
use std::path::Path;

use super::{Mutator, assembled, lines, receive, streamed};
use crate::adapter::{Event, Exchange, Failure, FailureKind};

/// A recorded answer.
#[derive(Debug)]
pub struct AnswerFixture {
    /// Its file's, without the extension.
    pub name: String,
    /// Its status.
    pub status: u16,
    /// Its headers.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
}

/// The answers of a folder: all of its `.http` files, by name.
///
/// # Panics
///
/// If one cannot be read, or there is none.
pub fn recorded(folder: &str) -> Vec<AnswerFixture> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    let mut found: Vec<AnswerFixture> = paths
        .filter(|path| path.extension().is_some_and(|found| found == "http"))
        .map(|path| AnswerFixture::read(&path))
        .collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    assert!(!found.is_empty(), "{folder} has no answers");
    found
}

impl AnswerFixture {
    fn read(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let blank = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let end = blank.expect("an empty line ends the headers");
        let head = str::from_utf8(&bytes[..end]).expect("UTF-8");
        let mut lines = head.split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let header = |line: &str| {
            let (name, value) = line.split_once(": ").expect("a header");
            (name.to_owned(), value.to_owned())
        };
        Self {
            name: path
                .file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned(),
            status: status.expect("a status"),
            headers: lines.map(header).collect(),
            body: bytes[end + 4..].to_vec(),
        }
    }

    /// The events and the result of an adapter that reads these pieces.
    fn received<'a, E: Exchange>(
        &self,
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> (Vec<Event>, Result<(), Failure>) {
        let headers = self.headers.iter();
        let headers: Vec<_> = headers.map(|(name, value)| (&**name, &**value)).collect();
        let (events, result) = receive::<E>(streamed(""), self.status, &headers, pieces);
        (assembled(events), result)
    }
}

/// Checks that each answer gives the same events, and the same failure, however it is cut: byte by byte, and in pieces
/// whose edges are, taken together, at every byte.
///
/// # Panics
///
/// If one does not.
pub fn check_every_cut_of_recorded<E: Exchange>(folder: &str) {
    const PIECE_BYTES: usize = 24;
    for answer in recorded(folder) {
        let body = &answer.body[..];
        let uncut = answer.received::<E>([body]);
        for first_bytes in 0..PIECE_BYTES.min(body.len()) {
            let (first, rest) = body.split_at(first_bytes);
            let pieces = std::iter::once(first).chain(rest.chunks(PIECE_BYTES));
            let name = &answer.name;
            assert_eq!(
                answer.received::<E>(pieces),
                uncut,
                "{name} cut at {first_bytes}"
            );
        }
        assert_eq!(
            answer.received::<E>(body.chunks(1)),
            uncut,
            "{}",
            answer.name
        );
    }
}

/// Checks that no beginning of an answer passes for the whole, unless all that it lacks is usage: it fails as malformed,
/// and what it gave until then is what the whole gives, too. Answers that fail anyhow say nothing about that, and of
/// those in `doubtful` nobody can know it.
///
/// # Panics
///
/// If one does.
pub fn check_every_beginning_of_recorded<E: Exchange>(folder: &str, doubtful: &[&str]) {
    for answer in recorded(folder) {
        let whole = answer.received::<E>([&answer.body[..]]);
        if whole.1.is_err() || doubtful.contains(&&*answer.name) {
            continue;
        }
        let body = &answer.body[..];
        // At, before and behind each line's end, and here and there within.
        let ends = (0..body.len()).filter(|end| {
            let around = &body[end.saturating_sub(2)..(end + 2).min(body.len())];
            around.contains(&b'\n') || end % 7 == 0 || end + 16 > body.len()
        });
        for end in ends {
            let at = || format!("{} cut off at {end}", answer.name);
            let (events, result) = answer.received::<E>([&body[..end]]);
            match result {
                Ok(()) => assert_eq!(without_usage(&events), without_usage(&whole.0), "{}", at()),
                Err(failure) => {
                    assert_eq!(failure.kind, FailureKind::Malformed, "{}", at());
                    assert!(whole.0.starts_with(&events), "{}: {events:?}", at());
                }
            }
        }
    }
}

fn without_usage(events: &[Event]) -> Vec<String> {
    let is_other = |event: &&Event| !matches!(event, Event::Usage(_));
    let events: Vec<Event> = events.iter().filter(is_other).cloned().collect();
    lines(&events)
}

/// Reads each answer broken in some ways, which must give events in order or a failure, the same in any pieces, and
/// never panic. The same ways each time; `cargo torture` does many more.
///
/// # Panics
///
/// If one is read otherwise.
pub fn check_mutations_of_recorded<E: Exchange>(folder: &str) {
    const TIMES: u64 = 40;
    let answers = recorded(folder);
    let bodies: Vec<&[u8]> = answers.iter().map(|answer| &*answer.body).collect();
    for (number, answer) in (0..).zip(&answers) {
        for time in 0..TIMES {
            let seed = number * TIMES + time;
            let mut mutator = Mutator::new(seed);
            let bytes = mutator.mutated(&answer.body, &bodies);
            let piece_bytes = 1 + mutator.below(64);
            let (events, result) = answer.received::<E>(bytes.chunks(piece_bytes));
            let whole = answer.received::<E>([&bytes[..]]);
            let name = &answer.name;
            assert_eq!(
                (events, result.is_ok()),
                (whole.0, whole.1.is_ok()),
                "{name}, seed {seed}"
            );
        }
    }
}
