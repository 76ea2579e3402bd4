//! The length of a recording, from its own bytes: models that are paid by the minute need a bound before the call.
//!
//! The file is untrusted. Lengths and times in its containers are not believed, except those that can only make it longer:
//! the length is the playing time of all packets of all its tracks and streams, by their codec, as a decoder plays them. A
//! file whose bytes decoders could read in two ways is refused.
//!
//! **Invariant:** the time of a reader is proportional to the bytes of the file. Generic readers look up each packet in
//! tables; weir has its own, because a stranger chooses the tables.

mod codec;
mod flac;
mod mp4;
mod mpeg;
mod ogg;
mod playing_time;
mod riff;
mod vorbis;
mod webm;

use self::playing_time::{AudioLength, SECOND};

/// The silence that encoders add at both ends of a recording, and that decoders cut off, at most: a tenth of a second.
const PADDING_NANOS: u64 = SECOND / 10;

/// The length of a recording for its price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RecordingLength {
    /// Seconds, rounded up; at least 1.
    pub seconds: u64,
    /// Whether each provider must find this length, because all samples have the same size.
    pub is_exact: bool,
}

/// Returns the length of a recording; `None` for bytes in none of the containers flac, mp3, mp4, ogg, wav and webm, for a
/// codec without a known time, without sound, or if decoders could read the bytes in two ways.
pub fn read(file: &[u8]) -> Option<RecordingLength> {
    let AudioLength { nanos, is_exact } = length(file)?;
    let padding = if is_exact { 0 } else { PADDING_NANOS };
    let seconds = nanos.saturating_sub(padding).div_ceil(SECOND).max(1);
    (nanos > 0).then_some(RecordingLength { seconds, is_exact })
}

fn length(file: &[u8]) -> Option<AudioLength> {
    if matches!(file.get(..4)?, b"RIFF" | b"RF64") {
        return riff::length(file);
    }
    let nanos = match file.get(..4)? {
        b"fLaC" => flac::file_nanos(file),
        b"OggS" => ogg::nanos(file),
        b"\x1a\x45\xdf\xa3" => webm::nanos(file),
        _ if is_mp4(file) => mp4::nanos(file),
        _ => mpeg::nanos(file),
    }?;
    Some(AudioLength {
        nanos,
        is_exact: false,
    })
}

/// Whether a file begins with a box of MP4 or QuickTime.
fn is_mp4(file: &[u8]) -> bool {
    let kind = file.get(4..8).unwrap_or_default();
    matches!(
        kind,
        b"ftyp" | b"styp" | b"moov" | b"mdat" | b"free" | b"skip" | b"wide"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tones of 1.2 seconds, made by ffmpeg 9.0.2 (`-f lavfi -i sine=frequency=440:duration=1.2:sample_rate=8000 -ac 1`).
    const TONES: [(&str, &[u8]); 6] = [
        ("flac", include_bytes!("tone.flac")),
        ("mp3", include_bytes!("tone.mp3")),
        ("mp4", include_bytes!("tone.mp4")),
        ("opus", include_bytes!("tone.ogg")),
        ("vorbis", include_bytes!("tone-vorbis.ogg")),
        ("webm", include_bytes!("tone.webm")),
    ];

    /// A file in RIFF's form with a second of samples for each of `seconds`, whose head says `said` bytes of samples.
    fn wav(seconds: u32, said: u32) -> Vec<u8> {
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
        parts.concat()
    }

    fn seconds(file: &[u8]) -> Option<u64> {
        read(file).map(|length| length.seconds)
    }

    #[test]
    fn each_container_has_a_length() {
        for (name, tone) in TONES {
            assert_eq!(seconds(tone), Some(2), "{name}");
            let nanos = length(tone).expect("a length").nanos;
            let excess = nanos.saturating_sub(1_200 * SECOND / 1_000);
            // MP3 at 8 kHz has long frames.
            assert!(
                nanos >= 1_200 * SECOND / 1_000 && excess < SECOND / 4,
                "{name}: {nanos}"
            );
        }
        assert_eq!(seconds(&wav(3, 3 * 8_000)), Some(3));
    }

    /// A client could otherwise pay for a second and have an hour transcribed.
    #[test]
    fn a_head_that_says_too_little_is_not_believed() {
        let frames = include_bytes!("tone.mp3");
        // The head of an mp3 is a frame with the number of frames; the same frames follow several times.
        let measured = seconds(&frames.repeat(5)).expect("a length");
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
            assert_eq!(read(bytes), None, "{bytes:?}");
        }
    }

    /// No cut and no flipped byte makes a reader panic.
    #[test]
    fn broken_files_do_no_harm() {
        for (_, tone) in TONES {
            for at in 0..tone.len() {
                let _ = read(&tone[..at]);
                let mut flipped = tone.to_vec();
                flipped[at] ^= 0xff;
                let _ = read(&flipped);
            }
        }
    }
}
