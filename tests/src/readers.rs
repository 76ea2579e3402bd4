//! Readers of strangers' bytes, with input that a careless reader takes quadratic time for: twice the bytes may cost at most
//! 2.3 times the time.

use std::hint::black_box;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::FutureExt as _;
use miniz_oxide::deflate::compress_to_vec_zlib;
use rustix::time::{ClockId, clock_gettime};
use weir_kinds::transcription::{self, TranscriptionKind};
use weir_sdk::sse::Sse;
use weir_upstream::image_tokens::ImageCounting;
use weir_upstream::redact::{Redactor, redact_shapes};
use weir_upstream::usage::RequestSize;
use weir_upstream::{audio_length, file_reader};

use crate::recording::{
    Mp4Track, OPUS_60_MS, element, flac, form, mp3, mp4_aac, ogg_opus, ogg_page, wav, webm_opus,
};

/// The most times for twice the bytes.
pub const MOST: f64 = 2.3;

/// Runs of each size; the fastest counts.
const RUNS: usize = 5;

/// Attempts before a ratio counts: other programs share the caches.
const ATTEMPTS: usize = 6;

/// A reader with its input.
pub struct Case {
    /// The reader and its input.
    pub name: String,
    make: Box<dyn Fn(usize) -> Vec<u8>>,
    read: fn(&[u8]),
}

/// The result of a case.
pub struct Measured {
    /// The bytes of the smaller input.
    pub bytes: usize,
    /// Its time.
    pub time: Duration,
    /// The time of the larger input, as a multiple.
    pub ratio: f64,
}

impl Case {
    fn new(name: &str, read: fn(&[u8]), make: impl Fn(usize) -> Vec<u8> + 'static) -> Self {
        Self {
            name: name.to_owned(),
            make: Box::new(make),
            read,
        }
    }

    /// Measures input of some size and of twice that size: from `least` bytes, as many as take `least_time`, and up to
    /// `most` bytes.
    pub fn measure(&self, least: usize, least_time: Duration, most: usize) -> Measured {
        let mut bytes = least;
        while bytes < most / 2 && self.time(&(self.make)(bytes), 1) < least_time {
            bytes *= 2;
        }
        let (small, large) = ((self.make)(bytes), (self.make)(2 * bytes));
        let mut best = Measured {
            bytes,
            time: Duration::ZERO,
            ratio: f64::INFINITY,
        };
        for _ in 0..ATTEMPTS {
            let time = self.time(&small, RUNS);
            let ratio = self.time(&large, RUNS).as_secs_f64() / time.as_secs_f64();
            // The inputs' own sizes may differ from the wanted ones by a packet.
            let ratio = ratio * 2.0 * small.len() as f64 / large.len() as f64;
            if ratio < best.ratio {
                best = Measured {
                    time,
                    ratio,
                    ..best
                };
            }
            if best.ratio <= MOST {
                break;
            }
        }
        best
    }

    fn time(&self, input: &[u8], runs: usize) -> Duration {
        let runs = (0..runs).map(|_| {
            let begun = thread_time();
            (self.read)(black_box(input));
            thread_time() - begun
        });
        runs.min().unwrap_or_default()
    }
}

/// Returns the processor time of this thread: other programs use the machine, too.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}

/// All readers.
pub fn cases() -> Vec<Case> {
    let mut cases = recordings();
    cases.extend(documents());
    cases.extend(texts());
    cases.extend(bodies());
    cases
}

fn audio(file: &[u8]) {
    black_box(audio_length::read(file));
}

fn recordings() -> Vec<Case> {
    let mut cases = vec![
        Case::new("WAV", audio, |bytes| wav((bytes / 8_000) as u32)),
        Case::new("WAV, empty chunks", audio, |bytes| {
            [wav(0), b"LIST\0\0\0\0".repeat(bytes / 8)].concat()
        }),
        Case::new("MP3", audio, |bytes| mp3(bytes / 72)),
        Case::new("MP3, tags", audio, |bytes| {
            let unit = [mp3(1), b"ID3\x04\0\0\0\0\0\0".to_vec()].concat();
            unit.repeat(bytes / unit.len())
        }),
        Case::new("FLAC", audio, |bytes| flac((bytes / 10) as u32)),
        Case::new("Ogg", audio, |bytes| ogg_opus(1, bytes / 4)),
        Case::new("Ogg, chained", audio, |bytes| {
            let stream = ogg_opus(1, 1);
            stream.repeat(bytes / stream.len())
        }),
        Case::new("Ogg, a packet on many pages", audio, |bytes| {
            let page = ogg_page(1, 1, 1, &vec![&[0; 255][..]; 255]);
            let head = ogg_page(1, 0, 2, &[b"OpusHead"]);
            [head, page.repeat(bytes / page.len())].concat()
        }),
        Case::new("WebM", audio, |bytes| webm_opus(&[bytes / 12])),
        Case::new("WebM, empty elements", audio, |bytes| {
            [webm_opus(&[1]), element(&[0xec], b"").repeat(bytes / 5)].concat()
        }),
        Case::new("WebM, clusters", audio, |bytes| {
            let cluster = b"\x1f\x43\xb6\x75\x01\xff\xff\xff\xff\xff\xff\xff";
            [webm_opus(&[1]), cluster.repeat(bytes / cluster.len())].concat()
        }),
        Case::new("WebM, laced", audio, |bytes| {
            let block = [&b"\x81\0\0\x86\xff"[..], &OPUS_60_MS.repeat(256)].concat();
            let block = element(&[0xa3], &block);
            [webm_opus(&[1]), block.repeat(bytes / block.len())].concat()
        }),
        Case::new("MP4, one chunk", audio, |bytes| {
            mp4_aac(&[Mp4Track {
                frames: (bytes / 6) as u32,
                said: 0,
                edits: 1,
            }])
        }),
        Case::new("MP4, edits", audio, |bytes| {
            mp4_aac(&[Mp4Track {
                frames: 1,
                said: 0,
                edits: (bytes / 12) as u32,
            }])
        }),
        Case::new("MP4, tracks", audio, |bytes| {
            let track = Mp4Track {
                frames: (bytes / 48) as u32,
                said: 0,
                edits: 1,
            };
            mp4_aac(&[track; 8])
        }),
    ];
    // Beginnings of containers, and what a search for a beginning stumbles on.
    for unit in [
        &b"OggS"[..],
        b"fLaC",
        b"RIFF",
        b"ID3",
        b"\xff\xfb",
        b"ftyp",
        b"\x1a\x45\xdf\xa3",
        b"moof",
        b"\0",
    ] {
        let name = format!(
            "recording, {} again and again",
            String::from_utf8_lossy(unit)
        );
        cases.push(Case::new(&name, audio, |bytes| {
            unit.repeat(bytes / unit.len())
        }));
    }
    cases
}

fn documents() -> Vec<Case> {
    fn document(file: &[u8]) {
        black_box(file_reader::document_size(file));
    }
    let mut cases = vec![Case::new("PDF, a compressed page", document, |bytes| {
        let text: Vec<u8> = (0..bytes).map(|at| (at * at / 7) as u8).collect();
        let content = compress_to_vec_zlib(&text, 1);
        let head = b"%PDF-1.4 << /Pages 2 0 R >> << /Kids [3 0 R] >> \
                     3 0 obj << /Type /Page /Contents 4 0 R >> endobj 4 0 obj << /Filter /FlateDecode >> stream\n";
        [head, &*content, b" endstream"].concat()
    })];
    for unit in [
        "/",
        "/Kids[",
        "/Page ",
        "/Kids [1 0 R] ",
        "/Pages 1 0 R ",
        "/#",
        "/W [1 ",
        "obj ",
        "1 0 obj ",
        "1 0 obj << ",
        "stream\n",
        "stream\n endstream ",
        "/Contents [ ",
        "/Contents 1 0 R ",
        "/ToUnicode 1 0 R ",
        "(",
        " ",
        "1 ",
        "1 0 obj <</Length 0>> stream\n endstream ",
        "/Contents 1 0 R 1 0 obj <</Length 1>> stream\n endstream ",
    ] {
        let name = format!("PDF, {unit:?} again and again");
        cases.push(Case::new(&name, document, move |bytes| {
            format!("%PDF-1.4 {}", unit.repeat(bytes / unit.len())).into_bytes()
        }));
    }
    cases
}

fn texts() -> Vec<Case> {
    fn shapes(text: &[u8]) {
        let mut text = String::from_utf8_lossy(text).into_owned();
        redact_shapes(&mut text);
        black_box(text);
    }
    fn secret(bytes: &[u8]) {
        let mut redactor = Redactor::new(Some("sk-aaaaaaaaaaaaaaaa/\"b"));
        for piece in bytes.chunks(1_000) {
            black_box(redactor.push(Bytes::copy_from_slice(piece)));
        }
        black_box(redactor.finish());
    }
    fn events(bytes: &[u8]) {
        let mut events = Sse::default();
        for piece in bytes.chunks(1_000) {
            events.push(piece);
            loop {
                match events.next() {
                    Ok(Some(event)) => {
                        black_box(event);
                    }
                    Ok(None) => break,
                    // An event that is too long ends the exchange, in every adapter.
                    Err(_) => return,
                }
            }
        }
        let _ = black_box(events.finish());
    }
    let mut cases = Vec::new();
    for unit in [
        "bearer=",
        "bearer ",
        "bearer.a",
        "eyJ-",
        "eyJ.",
        "eyJaaaaaaaaaaaa-",
        "sk-",
        "sk- ",
        "PRIVATE KEY-----",
        "-----BEGIN ",
        "-----BEGIN PRIVATE KEY-----",
        "://",
        "://a:",
        ":",
        "a@",
        "\\n",
        "%aa",
        "secret_access_key=",
        "a",
        "_",
    ] {
        let name = format!("redaction of shapes, {unit:?} again and again");
        cases.push(Case::new(&name, shapes, move |bytes| {
            unit.repeat(bytes / unit.len()).into()
        }));
    }
    for unit in ["a", "sk-a", "sk-aaaaaaaaaaaaaaa"] {
        let name = format!("redaction of a secret, {unit:?} again and again");
        cases.push(Case::new(&name, secret, move |bytes| {
            unit.repeat(bytes / unit.len()).into()
        }));
    }
    for unit in [
        "data: x\n\n",
        "data: x\n",
        "data:\n",
        "\n",
        "\r",
        "x",
        "event: a\n",
        ":\n",
        "{\"error\":\n",
    ] {
        let name = format!("events, {unit:?} again and again");
        cases.push(Case::new(&name, events, move |bytes| {
            unit.repeat(bytes / unit.len()).into()
        }));
    }
    cases
}

fn bodies() -> Vec<Case> {
    fn chat(body: &[u8]) {
        let Ok(call) = weir_dialects::read_own(body) else {
            return;
        };
        let counting = ImageCounting {
            family: None,
            max_tokens: 100,
        };
        black_box(RequestSize::of(&call.request, &call.attachments, counting));
    }
    fn messages(body: &[u8]) {
        black_box(weir_dialects::read_messages(body).is_ok());
    }
    fn responses(body: &[u8]) {
        black_box(weir_dialects::openai_responses::read(body).is_ok());
    }
    fn contents(body: &[u8]) {
        black_box(weir_dialects::gemini_generate::read(body, "m", None).is_ok());
    }
    fn upload(body: &[u8]) {
        let body = Bytes::copy_from_slice(body);
        let reading = transcription::read(body, "b", TranscriptionKind::Transcription);
        black_box(reading.now_or_never().is_some_and(|read| read.is_ok()));
    }
    let repeated = |before: &'static str, unit: &'static str, after: &'static str| {
        move |bytes: usize| {
            let units = vec![unit; bytes / (unit.len() + 1)].join(",");
            format!("{before}{units}{after}").into_bytes()
        }
    };
    let nested = |bytes: usize| vec![b'['; bytes];
    let mut cases = vec![
        Case::new(
            "chat, messages",
            chat,
            repeated(
                r#"{"model":"m","messages":["#,
                r#"{"role":"user","content":"x"}"#,
                "]}",
            ),
        ),
        Case::new(
            "chat, calls and results",
            chat,
            repeated(
                r#"{"model":"m","messages":["#,
                r#"{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"x"}"#,
                "]}",
            ),
        ),
        Case::new(
            "chat, tools",
            chat,
            repeated(
                r#"{"model":"m","messages":[{"role":"user","content":"x"}],"tools":["#,
                r#"{"type":"function","function":{"name":"f","parameters":{}}}"#,
                "]}",
            ),
        ),
        Case::new("chat, unknown fields", chat, |bytes| {
            let fields: String = (0..bytes / 16)
                .map(|at| format!(r#","f{at:08}":1"#))
                .collect();
            format!(r#"{{"model":"m","messages":[{{"role":"user","content":"x"}}]{fields}}}"#)
                .into()
        }),
        Case::new("chat, escapes", chat, |bytes| {
            let text = r"\u00e4".repeat(bytes / 6);
            format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{text}"}}]}}"#).into()
        }),
        Case::new("JSON, nested", chat, nested),
        Case::new(
            "messages",
            messages,
            repeated(
                r#"{"model":"m","max_tokens":1,"messages":["#,
                r#"{"role":"user","content":"x"}"#,
                "]}",
            ),
        ),
        Case::new(
            "messages, blocks",
            messages,
            repeated(
                r#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":["#,
                r#"{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"x"}]}"#,
                "]}]}",
            ),
        ),
        Case::new(
            "responses",
            responses,
            repeated(
                r#"{"model":"m","input":["#,
                r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"x"}"#,
                "]}",
            ),
        ),
        Case::new(
            "contents",
            contents,
            repeated(
                r#"{"contents":["#,
                r#"{"role":"model","parts":[{"functionCall":{"name":"f","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"name":"f","response":{}}}]}"#,
                "]}",
            ),
        ),
        Case::new("form, a file", upload, |bytes| {
            form(&vec![b'x'; bytes], &[("model", "m")]).to_vec()
        }),
        Case::new(
            "form, a file of beginnings of boundaries",
            upload,
            |bytes| form(&b"\r\n--".repeat(bytes / 4), &[("model", "m")]).to_vec(),
        ),
        Case::new("form, a long field", upload, |bytes| {
            let prompt = "\r\n-".repeat(bytes / 3);
            form(b"x", &[("model", "m"), ("prompt", &prompt)]).to_vec()
        }),
    ];
    for (name, head, unit) in [
        ("JPEG, segments", &b"\xff\xd8"[..], &b"\xff\xe0\0\x02"[..]),
        ("JPEG, fill bytes", b"\xff\xd8", b"\xff"),
        ("GIF, blocks", b"GIF89a\0\0\0\0\0\0\0\x21\xfe", b"\x01x"),
        ("PNG", b"\x89PNG\r\n\x1a\n", b"\0\0\0\0tEXt"),
        ("WebP", b"RIFF\0\0\0\0WEBP", b"JUNK\0\0\0\0"),
    ] {
        cases.push(Case::new(name, chat, move |bytes| {
            let image = [head, &unit.repeat(bytes / unit.len() * 3 / 4)].concat();
            let url = format!("data:image/png;base64,{}", STANDARD.encode(image));
            let part = format!(r#"{{"type":"image_url","image_url":{{"url":"{url}"}}}}"#);
            format!(r#"{{"model":"m","messages":[{{"role":"user","content":[{part}]}}]}}"#).into()
        }));
    }
    cases
}
