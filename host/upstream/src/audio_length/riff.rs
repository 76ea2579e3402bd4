//! WAV: samples in chunks of RIFF's form.

use super::playing_time::{AudioLength, in_nanos};

/// Formats of samples with a constant size: integers, floating point, and companded telephone sound.
const CONSTANT: [u16; 4] = [1, 3, 6, 7];

/// The format whose real number is in an extension.
const EXTENSIBLE: u16 = 0xfffe;

/// A sample's bytes in all channels, and the samples per second.
#[derive(Clone, Copy)]
struct SampleFormat {
    bytes: u32,
    rate: u32,
}

/// Returns the length of a WAV file. It is exact, because each sample has the same size.
pub(super) fn length(file: &[u8]) -> Option<AudioLength> {
    let is_riff = file.starts_with(b"RIFF") || file.starts_with(b"RF64");
    let mut rest = file.get(8..).filter(|_| is_riff)?.strip_prefix(b"WAVE")?;
    let (mut format, mut bytes) = (None, 0);
    while rest.len() >= 8 {
        let (id, size) = (&rest[..4], u32::from_le_bytes(rest[4..8].try_into().ok()?));
        let content = &rest[8..];
        // Recorders that cannot go back to the head write no size, or the greatest one.
        let is_open = id == b"data" && matches!(size, 0 | u32::MAX);
        let size = match is_open {
            true => content.len(),
            false => size as usize,
        };
        match id {
            b"fmt " if format.is_none() => format = Some(sample_format(content.get(..size)?)?),
            // A second format would change the time of samples.
            b"fmt " => return None,
            // A file that was cut ends within its samples.
            b"data" => bytes += size.min(content.len()),
            _ if size > content.len() || !id.iter().all(|byte| (b' '..=b'~').contains(byte)) => {
                return None;
            }
            _ => {}
        }
        // Chunks begin at even places.
        rest = content.get(size + size % 2..).unwrap_or_default();
    }
    let format = format?;
    let samples = bytes as u64 / u64::from(format.bytes);
    Some(AudioLength {
        nanos: in_nanos(samples, format.rate),
        is_exact: true,
    })
}

fn sample_format(chunk: &[u8]) -> Option<SampleFormat> {
    let number = |at: usize| Some(u16::from_le_bytes(chunk.get(at..at + 2)?.try_into().ok()?));
    let mut tag = number(0)?;
    if tag == EXTENSIBLE {
        tag = number(24)?;
    }
    let (channels, bits) = (u32::from(number(2)?), u32::from(number(14)?));
    let rate = u32::from_le_bytes(chunk.get(4..8)?.try_into().ok()?);
    let bytes = u32::from(number(12)?);
    // Readers compute the size of a sample in either way.
    let is_sure = bytes == channels * bits.div_ceil(8);
    (CONSTANT.contains(&tag) && rate > 0 && bytes > 0 && is_sure)
        .then_some(SampleFormat { bytes, rate })
}
