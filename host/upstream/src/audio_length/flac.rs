//! FLAC (RFC 9639): the samples of each frame, from its header.
//!
//! A frame has no length, and decoders that find an error search for the next header. The reader therefore counts each
//! place with a valid header: an upper bound for every decoder. Its checksum makes a header by chance rare: one in some
//! million bytes.

use super::playing_time::in_nanos;

/// The most bytes of a frame's header.
const HEADER_BYTES: usize = 16;

/// Returns the playing time of a FLAC file in nanoseconds.
pub(super) fn file_nanos(file: &[u8]) -> Option<u64> {
    let mut rest = file.strip_prefix(b"fLaC")?;
    let mut rate = None;
    loop {
        let &[kind, high, middle, low] = rest.first_chunk()?;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        let block = rest.get(4..4 + length)?;
        rest = &rest[4 + length..];
        match kind & 0x7f {
            0 if rate.is_none() => rate = stream_rate(block),
            127 => return None,
            _ => {}
        }
        if kind & 0x80 != 0 {
            break;
        }
    }
    frame_samples(rest)?;
    Some(in_nanos(samples(rest), rate?))
}

/// Returns the sample rate of a `STREAMINFO` block; `None` if it is zero.
pub(super) fn stream_rate(block: &[u8]) -> Option<u32> {
    let rate = u32::from_be_bytes(block.get(10..14)?.try_into().ok()?) >> 12;
    (block.len() >= 34 && rate > 0).then_some(rate)
}

/// Returns the samples of all frames whose headers are in these bytes.
pub(super) fn samples(bytes: &[u8]) -> u64 {
    let mut sum = 0;
    for at in memchr::memchr_iter(0xff, bytes) {
        sum += frame_samples(&bytes[at..]).unwrap_or(0);
    }
    sum
}

/// Returns the samples of the frame whose header begins here.
fn frame_samples(bytes: &[u8]) -> Option<u64> {
    let &[0xff, sync, sizes, layout] = bytes.first_chunk()? else {
        return None;
    };
    let (size, rate) = (sizes >> 4, sizes & 15);
    if sync & 0xfe != 0xf8 || size == 0 || rate == 15 || layout >> 4 > 10 || layout & 1 != 0 {
        return None;
    }
    // The number of the frame or of its first sample, as UTF-8 writes numbers.
    let number_bytes = match bytes.get(4)?.leading_ones() {
        0 => 1,
        ones @ 2..=7 => ones as usize,
        _ => return None,
    };
    let mut at = 4 + number_bytes;
    let samples = match size {
        1 => 192,
        2..=5 => 144 << size,
        6 => {
            at += 1;
            u64::from(*bytes.get(at - 1)?) + 1
        }
        7 => {
            at += 2;
            u64::from(u16::from_be_bytes([
                *bytes.get(at - 2)?,
                *bytes.get(at - 1)?,
            ])) + 1
        }
        _ => 1 << size,
    };
    at += match rate {
        12 => 1,
        13 | 14 => 2,
        _ => 0,
    };
    debug_assert!(at < HEADER_BYTES);
    (checksum(bytes.get(..at)?) == *bytes.get(at)?).then_some(samples)
}

/// CRC-8 with the polynomial x⁸ + x² + x + 1.
pub(super) fn checksum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ byte, |sum, _| match sum & 0x80 {
            0 => sum << 1,
            _ => sum << 1 ^ 0x07,
        })
    })
}
