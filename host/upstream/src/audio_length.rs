//! The length of a recording, from its own bytes: models that are paid by the minute need a bound before the call.
//!
//! The file is untrusted. A length in its head may be wrong, so the packets count, too; the longer length is the
//! recording's.

use std::io::Cursor;

use bytes::Bytes;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType};
use symphonia::core::io::MediaSourceStream;
use symphonia::core::meta::MetadataOptions;
use symphonia::core::units::{Duration, TimeBase};

/// Returns the length of a recording in seconds, rounded up; `None` for bytes in none of the containers flac, mp3, mp4, ogg,
/// wav and webm, or without sound. It takes time in proportion to the bytes.
pub fn seconds(recording: Bytes) -> Option<u64> {
    let source = MediaSourceStream::new(Box::new(Cursor::new(recording)), Default::default());
    let mut reader = symphonia::default::get_probe()
        .probe(
            &Hint::new(),
            source,
            FormatOptions::default(),
            MetadataOptions::default(),
        )
        .ok()?;
    let track = reader.default_track(TrackType::Audio)?;
    let (id, base) = (track.id, track.time_base?);
    let said = track.duration.map_or(0, Duration::get);
    let played = played(&mut *reader, id);
    let seconds = in_seconds(said.max(played), base);
    (seconds > 0).then_some(seconds)
}

/// Returns the length of a track's packets. A cut file ends with its last whole packet.
fn played(reader: &mut dyn FormatReader, track: u32) -> u64 {
    let (mut sum, mut end) = (0_u64, 0_u64);
    while let Ok(Some(packet)) = reader.next_packet() {
        if packet.track_id == track {
            let length = packet.dur.get();
            sum = sum.saturating_add(length);
            // Packets of some containers have no length.
            let start = u64::try_from(packet.pts.get()).unwrap_or(0);
            end = end.max(start.saturating_add(length));
        }
    }
    sum.max(end)
}

fn in_seconds(ticks: u64, base: TimeBase) -> u64 {
    let (numer, denom) = (u128::from(base.numer.get()), u128::from(base.denom.get()));
    let seconds = (u128::from(ticks) * numer).div_ceil(denom);
    u64::try_from(seconds).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tones of 1.2 seconds, made by ffmpeg 9.0.2 (`-f lavfi -i sine=frequency=440:duration=1.2:sample_rate=8000 -ac 1`).
    const TONES: [(&str, &[u8]); 6] = [
        ("flac", include_bytes!("audio_length/tone.flac")),
        ("mp3", include_bytes!("audio_length/tone.mp3")),
        ("mp4", include_bytes!("audio_length/tone.mp4")),
        ("opus", include_bytes!("audio_length/tone.ogg")),
        ("vorbis", include_bytes!("audio_length/tone-vorbis.ogg")),
        ("webm", include_bytes!("audio_length/tone.webm")),
    ];

    /// A file in RIFF's form with a second of samples for each of `seconds`, whose head says `said` bytes of samples.
    fn wav(seconds: u32, said: u32) -> Bytes {
        let rate = 8_000_u32;
        let samples = vec![128; (seconds * rate) as usize];
        let parts: [&[u8]; 8] = [
            b"RIFF",
            &(36 + said).to_le_bytes(),
            b"WAVEfmt \x10\0\0\0\x01\0\x01\0",
            &rate.to_le_bytes(),
            &rate.to_le_bytes(),
            b"\x01\0\x08\0data",
            &said.to_le_bytes(),
            &samples,
        ];
        parts.concat().into()
    }

    #[test]
    fn each_container_has_a_length() {
        for (name, tone) in TONES {
            assert_eq!(seconds(Bytes::from_static(tone)), Some(2), "{name}");
        }
        assert_eq!(seconds(wav(3, 3 * 8_000)), Some(3));
    }

    /// A client could otherwise pay for a second and have an hour transcribed.
    #[test]
    fn a_head_that_says_too_little_is_not_believed() {
        let frames = include_bytes!("audio_length/tone.mp3");
        // The head of an mp3 is a frame with the number of frames; the same frames follow several times.
        let long = frames.repeat(5);
        let measured = seconds(long.into()).expect("a length");
        assert!((6..=8).contains(&measured), "{measured}");
    }

    #[test]
    fn other_bytes_have_no_length() {
        for bytes in [
            &b""[..],
            b"no sound",
            b"RIFF\x24\0\0\0WAVEfmt ",
            b"%PDF-1.7",
            &[0; 4_096],
        ] {
            assert_eq!(seconds(bytes.to_vec().into()), None, "{bytes:?}");
        }
    }

    /// No cut and no flipped byte makes the reader panic or take long.
    #[test]
    fn broken_files_do_no_harm() {
        for (name, tone) in TONES {
            for at in (0..tone.len()).step_by(7) {
                let _ = seconds(Bytes::copy_from_slice(&tone[..at]));
                let mut flipped = tone.to_vec();
                flipped[at] ^= 0xff;
                let began = std::time::Instant::now();
                let _ = seconds(flipped.into());
                let took = began.elapsed();
                assert!(took.as_secs() < 5, "{name} at {at}: {took:?}");
            }
        }
    }
}
