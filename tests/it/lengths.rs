//! Files that lie about their length: weir charges as much as a decoder or a reader finds, or refuses the file. It reads them
//! in a child process, after it has looked at the balance, and the child ends with its request.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use miniz_oxide::deflate::compress_to_vec_zlib;
use serde_json::{Value, json};
use tests::client::Answer;
use tests::gateway::{Builder, weir_program};
use tests::recording::{
    FORM, Mp4Track, OPUS_PACKETS_IN_3_S, element, flac, form, mp3, mp4_aac, ogg_opus, wav,
    wav_with_size, webm_opus,
};
use tests::{Client, Gateway, Reply, Upstream, chat, patiently};
use weir_ledger::Credits;

use crate::billing::{is_settled, leave};

/// A gateway with the model `ear` at 0.6 USD a minute, so that a second costs 14 credits, and `reader` at 1 USD a million
/// tokens of input.
fn gateway_of(upstream: &Upstream) -> Builder {
    let models = "[models.ear]\nkind = \"transcription\"\ncontext_window = 1000\nprice = { minute = 0.6 }\n\
                  upstreams = [{ provider = \"scripted\" }]\n\
                  [models.reader]\ncontext_window = 400000\nmax_output_tokens = 1000\ndefault_output_tokens = 100\n\
                  max_image_tokens = 100\nsupports_vision = true\nprice = { input = 1, output = 1 }\n\
                  upstreams = [{ provider = \"scripted\" }]\n";
    Gateway::builder()
        .provider("scripted", "openai", Some(upstream))
        .tables(models)
}

async fn transcribe(client: &Client, file: &[u8]) -> Answer {
    let body = form(file, &[("model", "ear")]);
    client
        .send(Method::POST, "/v1/audio/transcriptions", Some(FORM), body)
        .await
}

/// A transcript with the usage of a model that is paid by the minute (openai-python 3.52.0, `types/audio/transcription.py`,
/// `UsageDuration`).
fn transcript(seconds: Option<f64>) -> Reply {
    let usage = seconds.map(|seconds| json!({ "type": "duration", "seconds": seconds }));
    Reply::json(200, &json!({ "text": "A weir.", "usage": usage }))
}

/// Returns the seconds of a transcript's charge.
fn seconds(heard: &Answer) -> u64 {
    assert_eq!(heard.status, 200, "{}", heard.text());
    let usage = &heard.json()["usage"];
    let seconds = usage["seconds"].as_u64().expect("seconds");
    assert_eq!(usage["credits"].as_f64(), Some(14.0 * seconds as f64));
    seconds
}

const ONE: Mp4Track = Mp4Track {
    frames: 8,
    said: 1_024,
    edits: 1,
};

/// AAC frames of 600 seconds at 8 kHz.
const FRAMES: u32 = 600 * 8_000 / 1_024;

#[tokio::test]
async fn recordings_that_lie_are_charged_by_what_a_decoder_plays() {
    let upstream = Upstream::start().await;
    upstream.always(transcript(None));
    let gateway = gateway_of(&upstream).start().await;
    let client = gateway.client();
    let of_seconds = |seconds: usize| seconds * OPUS_PACKETS_IN_3_S / 3;
    let chained: Vec<u8> = (0..10)
        .flat_map(|serial| ogg_opus(serial, of_seconds(60)))
        .collect();
    let silent = |frames: u32| Mp4Track {
        frames,
        said: 0,
        edits: 1,
    };
    let repeated = Mp4Track {
        frames: 16,
        said: 1_024,
        edits: 293,
    };
    for (what, file) in [
        ("pages of Ogg that say zero", ogg_opus(1, of_seconds(600))),
        ("ten chained streams of Ogg", chained),
        (
            "a second default track of WebM, at zero",
            webm_opus(&[of_seconds(1), of_seconds(599)]),
        ),
        ("a second track of MP4", mp4_aac(&[ONE, silent(FRAMES - 8)])),
        ("a table of MP4 that says zero", mp4_aac(&[silent(FRAMES)])),
        (
            "an MP4 whose edits repeat two seconds",
            mp4_aac(&[repeated]),
        ),
        ("a WAV of unknown length", wav_with_size(600, u32::MAX)),
        (
            "a WAV whose length was never written",
            wav_with_size(600, 0),
        ),
        ("an MP3 without a head", mp3(600_000 / 72)),
        ("a FLAC that says one sample", flac(600 * 8_000 / 4_096)),
    ] {
        let charged = seconds(&transcribe(&client, &file).await);
        assert!((570..=630).contains(&charged), "{what}: {charged} s");
    }
}

#[tokio::test]
async fn recordings_that_decoders_read_in_two_ways_are_refused() {
    let upstream = Upstream::start().await;
    let gateway = gateway_of(&upstream).start().await;
    let client = gateway.client();
    let long = || mp3(1_000);
    let hidden = {
        let mut tag = b"ID3\x04\0\0\0\x04\x39\x40".to_vec();
        tag.extend(long());
        [mp3(14), tag, mp3(14)].concat()
    };
    let mut damaged = ogg_opus(1, 500);
    damaged[22] ^= 1;
    let mut void = webm_opus(&[17]);
    void.extend(element(&[0xec], &[0; 9]));
    void.truncate(void.len() - 5);
    let mut unknown = mp4_aac(&[ONE]);
    let at = unknown
        .windows(4)
        .position(|kind| kind == b"mp4a")
        .expect("an entry");
    unknown[at..at + 4].copy_from_slice(b"ac-4");
    for (what, file) in [
        ("frames within a tag of an MP3", hidden),
        (
            "an MP3 with a gap",
            [mp3(14), b"gap".to_vec(), long()].concat(),
        ),
        ("a page of Ogg with a wrong checksum", damaged),
        (
            "bytes behind the pages",
            [ogg_opus(1, 17), vec![1; 100]].concat(),
        ),
        ("an element of WebM beyond its end", void),
        (
            "bytes behind the boxes of MP4",
            [mp4_aac(&[ONE]), vec![1; 100]].concat(),
        ),
        ("a codec without a known time", unknown),
        ("samples behind those of a WAV", {
            let mut file = wav_with_size(600, 8_000);
            file[44 + 8_000..].fill(0x80);
            file
        }),
    ] {
        let refused = transcribe(&client, &file).await;
        assert_eq!(refused.status, 400, "{what}: {}", refused.text());
        assert_eq!(refused.json()["error"]["param"], "file", "{what}");
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn the_larger_of_measured_and_reported_seconds_is_charged() {
    let upstream = Upstream::start().await;
    let gateway = gateway_of(&upstream).start().await;
    let client = gateway.client();
    let opus = ogg_opus(1, 100 * OPUS_PACKETS_IN_3_S / 3);
    for (reported, charged) in [
        (None, 100),
        (Some(99.5), 100),
        (Some(600.4), 601),
        (Some(1e9), 1_000),
    ] {
        upstream.will(transcript(reported));
        assert_eq!(
            seconds(&transcribe(&client, &opus).await),
            charged,
            "{reported:?}"
        );
    }
    // Nobody can find more in samples of one size.
    upstream.will(transcript(Some(900.0)));
    assert_eq!(seconds(&transcribe(&client, &wav(3)).await), 3);

    // A second beyond the hold is charged as far as credits are left.
    leave(&gateway, Credits::from_micro(1_405_000_000)).await;
    upstream.will(transcript(Some(101.0)));
    let heard = transcribe(&client, &opus).await;
    assert_eq!(heard.status, 200, "{}", heard.text());
    is_settled(&gateway).await;
    let last = &client.get("/usage/requests?limit=1").await.json()["requests"][0];
    assert_eq!(
        (&last["held_credits"], &last["credits"]),
        (&json!(1_400), &json!(1_405))
    );
}

/// A PDF of one page whose content stream has these bytes, compressed by Flate, and more objects.
fn pdf(content: &[u8], filter: &str, more: &str) -> Vec<u8> {
    let head = format!(
        "%PDF-1.4\n1 0 obj << /Type /Catalog /Pages 2 0 R >> endobj\n\
         2 0 obj << /Type /Pages /Count 1 /Kids [3 0 R] >> endobj\n\
         3 0 obj << /Type /Page /Parent 2 0 R /Contents 4 0 R >> endobj\n{more}\
         4 0 obj << {filter} /Length {} >>\nstream\n",
        content.len()
    );
    let tail = b"\nendstream endobj\ntrailer << /Root 1 0 R >>\n%%EOF";
    [head.as_bytes(), content, tail].concat()
}

async fn read(client: &Client, pdf: &[u8]) -> Answer {
    let data = format!("data:application/pdf;base64,{}", STANDARD.encode(pdf));
    let mut body = chat("reader", "");
    body["messages"][0]["content"] =
        json!([{ "type": "file", "file": { "filename": "a.pdf", "file_data": data } }]);
    client.post("/chat", &body).await
}

#[tokio::test]
async fn a_page_with_a_hidden_prompt_is_charged_as_reported() {
    const TOKENS: u64 = 197_222;
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("read", TOKENS, 5));
    let gateway = gateway_of(&upstream).start().await;
    let client = gateway.client();
    let prompt = format!("BT ({}) Tj ET", "a weir is a low dam ".repeat(40_000));
    let flate = compress_to_vec_zlib(prompt.as_bytes(), 6);
    let flate_filter = "/Filter /FlateDecode";
    let form =
        "5 0 obj << /Type /XObject /Subtype /Form /Length 1 >>\nstream\n0\nendstream endobj\n";
    let small = compress_to_vec_zlib(b"BT (a weir) Tj ET", 6);
    let twice = compress_to_vec_zlib(&flate, 6);
    for (what, file) in [
        ("a compressed stream", pdf(&flate, flate_filter, "")),
        (
            "an escaped filter",
            pdf(&flate, "/#46ilter [ /Flate#44ecode ]", ""),
        ),
        ("a plain stream", pdf(prompt.as_bytes(), "", "")),
        (
            "a form that is drawn many times",
            pdf(&small, flate_filter, form),
        ),
        (
            "two filters",
            pdf(&twice, "/Filter [/FlateDecode /FlateDecode]", ""),
        ),
        (
            "a stream that does not inflate",
            pdf(&flate[..flate.len() / 2], flate_filter, ""),
        ),
    ] {
        let answer = read(&client, &file).await;
        assert_eq!(answer.status, 200, "{what}: {}", answer.text());
        assert_eq!(answer.json()["usage"]["prompt_tokens"], TOKENS, "{what}");
    }
    // A page with little text has a small hold, and a report beyond it is not believed.
    let answer = read(&client, &pdf(&small, flate_filter, "")).await;
    let counted = answer.json()["usage"]["prompt_tokens"].as_u64();
    assert!(counted.is_some_and(|tokens| tokens < 4_000), "{counted:?}");
}

#[tokio::test]
async fn no_file_is_read_for_a_caller_without_balance() {
    let upstream = Upstream::start().await;
    let gateway = gateway_of(&upstream).credits(0).start().await;
    let client = gateway.client();
    leave(&gateway, Credits::from_micro(1)).await;
    // These bytes would be refused as no recording.
    let refused = transcribe(&client, b"no sound").await;
    assert_eq!(
        refused.json()["error"]["weir_code"],
        "QUOTA_EXCEEDED",
        "{}",
        refused.text()
    );
    read(&client, &pdf(b"", "", ""))
        .await
        .error(429, "QUOTA_EXCEEDED");
    leave(&gateway, Credits::from_micro(14_000_000)).await;
    let refused = transcribe(&client, b"no sound").await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    // One second can be paid, two cannot.
    let refused = transcribe(&client, &wav(2)).await;
    let error = &refused.json()["error"];
    assert_eq!(
        (&error["weir_code"], &error["required_credits"]),
        (&json!("QUOTA_EXCEEDED"), &json!(28))
    );
    upstream.will(transcript(None));
    assert_eq!(seconds(&transcribe(&client, &wav(1)).await), 1);
    let list: Value = client.get("/usage/requests").await.json();
    assert_eq!(list["requests"].as_array().map(Vec::len), Some(1), "{list}");
}

/// A program that reads files without end, and writes its id into `children`.
fn endless_reader(folder: &Path) -> std::path::PathBuf {
    let program = folder.join("endless");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = read-files ] || exec '{}' \"$@\"\necho $$ >>'{}'\nexec sleep 1000\n",
        weir_program().display(),
        folder.join("children").display(),
    );
    std::fs::write(&program, script).expect("a file");
    std::fs::set_permissions(&program, Permissions::from_mode(0o700)).expect("an executable file");
    program
}

/// Waits for the child of a reading, and returns its id.
async fn child(folder: &Path, index: usize) -> String {
    patiently(async {
        loop {
            let children = std::fs::read_to_string(folder.join("children")).unwrap_or_default();
            if let Some(child) = children.lines().nth(index) {
                return child.to_owned();
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

async fn until_gone(child: &str) {
    patiently(async {
        while Path::new("/proc").join(child).exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_reading_ends_with_its_request_and_with_the_gateway() {
    let upstream = Upstream::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = gateway_of(&upstream)
        .tables("[limits]\nshutdown_ms = 100\n")
        .program(&endless_reader(folder.path()))
        .start()
        .await;
    let client = gateway.client();
    let request = tokio::spawn(async move { transcribe(&client, &wav(1)).await });
    let first = child(folder.path(), 0).await;
    // The client hangs up.
    request.abort();
    until_gone(&first).await;

    let client = gateway.client();
    let request = tokio::spawn(async move { transcribe(&client, &wav(1)).await });
    let second = child(folder.path(), 1).await;
    gateway.stop().await;
    until_gone(&second).await;
    let refused = request.await.expect("a response");
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(upstream.count(), 0);
}
