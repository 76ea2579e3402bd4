//! Speech without a voice, and transcripts of recordings that nobody hears.
//!
//! A spoken text is silence: a twentieth of a second for each character.

use serde_json::json;
use weir_sdk::adapter::{
    Event, Failure, SpeechRequest, Step, TranscriptForm, TranscriptRequest, Voice,
};
use weir_sdk::blocks::Blocks;
use weir_sdk::chat::{Block, FinishReason, Media, MediaBytes, Usage};
use weir_sdk::media::json_media;
use weir_sdk::wire::{leave_out_fields, refuse};

const RECORDING_ID: u32 = 0;

/// The most bytes of a piece.
const PIECE_BYTES: usize = 16 << 10;

/// Characters of a second.
const CHARS_PER_SECOND: usize = 20;

/// Samples of a second, each of one byte: as little as a telephone has.
const SAMPLES_PER_SECOND: usize = 8_000;

/// A silent frame of MPEG 1 Layer III: 32 kbit/s, 44.1 kHz, mono. Its side information of zeros says that no bit codes a
/// sample.
const FRAME_HEAD: [u8; 4] = [0xff, 0xfb, 0x10, 0xc0];
const FRAME_BYTES: usize = 104;
const FRAMES_PER_SECOND: usize = 38;

/// Output tokens of a second.
const TOKENS_PER_SECOND: usize = 20;

/// Returns the complete response, and the names of omitted fields.
pub(crate) fn speak(task: &SpeechRequest) -> Result<(Step, Vec<String>), Failure> {
    let mut ignored = leave_out_fields(&task.extra)?;
    ignored.extend(
        task.instructions
            .as_ref()
            .map(|_| "instructions".to_owned()),
    );
    ignored.extend(task.speed.map(|_| "speed".to_owned()));
    if let Voice::Id(_) = task.voice {
        return Err(refuse("voice", "voice: the demo has no custom voices"));
    }
    let chars = task.input.chars().count();
    let seconds = |per_second: usize| (chars * per_second).div_ceil(CHARS_PER_SECOND);
    let (media_type, bytes) = match task.format.as_str() {
        "mp3" => ("audio/mpeg", mp3(seconds(FRAMES_PER_SECOND))),
        "wav" => ("audio/wav", wav(seconds(SAMPLES_PER_SECOND))),
        "pcm" => ("audio/pcm", vec![0; 2 * seconds(24_000)]),
        _ => {
            let text = "response_format: the demo makes mp3, wav and pcm";
            return Err(refuse("response_format", text));
        }
    };
    let mut events: Vec<_> = bytes
        .chunks(PIECE_BYTES)
        .map(|piece| {
            Event::MediaBytes(MediaBytes {
                id: RECORDING_ID,
                data: piece.to_vec(),
            })
        })
        .collect();
    events.push(Event::Media(Media {
        media_type: media_type.to_owned(),
        data: Vec::new(),
        bytes_before: Some(RECORDING_ID),
        url: None,
        revised_prompt: None,
        is_preview: false,
    }));
    events.push(usage(task.input.len() / 4 + 1, seconds(TOKENS_PER_SECOND)));
    events.push(Event::Finish(FinishReason::Stop));
    Ok((Step::Emit(events), ignored))
}

/// Returns the complete response, and the names of omitted fields.
pub(crate) fn transcribe(request: &TranscriptRequest) -> Result<(Step, Vec<String>), Failure> {
    let task = &request.task;
    let mut ignored = leave_out_fields(&task.extra)?;
    ignored.extend(task.temperature.map(|_| "temperature".to_owned()));
    let recording = &request.recording;
    let text = format!(
        "This is the demo's transcript of {}: {} bytes of {}.",
        task.file_name, recording.size_bytes, recording.media_type
    );
    let transcript = match task.form {
        TranscriptForm::Text | TranscriptForm::Timed => text.clone(),
        TranscriptForm::Srt => format!("1\n00:00:00,000 --> 00:00:01,000\n{text}\n"),
        TranscriptForm::Vtt => format!("WEBVTT\n\n00:00.000 --> 00:01.000\n{text}\n"),
    };
    let (mut blocks, mut events) = (Blocks::default(), Vec::new());
    for piece in transcript.split_inclusive(' ') {
        blocks.say(Block::Text, piece.to_owned(), &mut events);
    }
    blocks.end_run(&mut events);
    if task.form == TranscriptForm::Timed {
        let words: Vec<_> = text
            .split(' ')
            .map(|word| json!({ "word": word, "start": 0.0, "end": 1.0 }))
            .collect();
        let mut timings = json!({
            "language": task.language.as_deref().unwrap_or("english"),
            "segments": [{ "id": 0, "start": 0.0, "end": 1.0, "text": text }],
        });
        if task.timings.iter().any(|timing| timing == "word") {
            timings["words"] = words.into();
        }
        events.push(json_media(timings.to_string().into_bytes()));
    }
    let prompt = task.prompt.as_ref().map_or(0, String::len);
    events.push(usage(prompt / 4 + 1, transcript.len() / 4 + 1));
    events.push(Event::Finish(FinishReason::Stop));
    Ok((Step::Emit(events), ignored))
}

fn usage(input: usize, output: usize) -> Event {
    Event::Usage(Usage {
        input_tokens: Some(input as u64),
        cache_read_tokens: None,
        cache_write_short_tokens: None,
        cache_write_long_tokens: None,
        output_tokens: Some(output as u64),
        reasoning_tokens: None,
        images: None,
        other: Vec::new(),
    })
}

fn mp3(frames: usize) -> Vec<u8> {
    let mut frame = [0; FRAME_BYTES];
    frame[..4].copy_from_slice(&FRAME_HEAD);
    frame.repeat(frames)
}

/// Returns a file in RIFF's form, of samples of 8 bits, in which silence is 128.
fn wav(samples: usize) -> Vec<u8> {
    let rate = SAMPLES_PER_SECOND as u32;
    let length = samples as u32;
    let mut file = b"RIFF".to_vec();
    file.extend((36 + length).to_le_bytes());
    file.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    file.extend(rate.to_le_bytes());
    file.extend(rate.to_le_bytes());
    file.extend(b"\x01\0\x08\0data");
    file.extend(length.to_le_bytes());
    file.resize(file.len() + samples, 128);
    file
}
