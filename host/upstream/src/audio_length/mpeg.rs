//! MPEG audio (MP3): a chain of frames, each with a header that tells its length.
//!
//! Decoders that lose the chain search for a header, each in its own way. A file whose chain has a gap is therefore
//! refused: the gap could hide frames.

use super::playing_time::in_nanos;

/// Kilobits per second by index: of version 1 in the layers 1 to 3, and of the later versions in layer 1, and 2 or 3.
const BIT_RATES: [[u32; 15]; 5] = [
    [
        0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448,
    ],
    [
        0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384,
    ],
    [
        0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320,
    ],
    [
        0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256,
    ],
    [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
];

#[derive(Clone, Copy, PartialEq, Eq)]
struct FrameHeader {
    /// Version, layer and sample rate: the same in all frames of a stream.
    kind: [u8; 3],
    bytes: usize,
    samples: u64,
    rate: u32,
}

impl FrameHeader {
    fn read(bytes: &[u8]) -> Option<Self> {
        let &[0xff, second, third, _] = bytes.first_chunk()? else {
            return None;
        };
        let (version, layer) = (second >> 3 & 3, second >> 1 & 3);
        let (bit_rate, rate, padding) = (third >> 4, third >> 2 & 3, third >> 1 & 1);
        // A reserved version, layer or rate, and frames without a length.
        if second < 0xe0 || version == 1 || layer == 0 || rate == 3 || matches!(bit_rate, 0 | 15) {
            return None;
        }
        let is_first_version = version == 3;
        let layer = 4 - layer;
        let rate = [44_100, 48_000, 32_000][usize::from(rate)]
            >> match version {
                3 => 0,
                2 => 1,
                _ => 2,
            };
        let table = match (is_first_version, layer) {
            (true, layer) => usize::from(layer) - 1,
            (false, 1) => 3,
            (false, _) => 4,
        };
        let bits = 1_000 * BIT_RATES[table][usize::from(bit_rate)];
        let (samples, bytes) = match (layer, is_first_version) {
            (1, _) => (384, (12 * bits / rate + u32::from(padding)) * 4),
            (3, false) => (576, 72 * bits / rate + u32::from(padding)),
            _ => (1_152, 144 * bits / rate + u32::from(padding)),
        };
        Some(Self {
            kind: [version, layer, third >> 2 & 3],
            bytes: bytes as usize,
            samples,
            rate,
        })
    }
}

/// Returns the playing time of a chain of frames in nanoseconds; `None` if it has a gap.
pub(super) fn nanos(bytes: &[u8]) -> Option<u64> {
    let mut rest = without_last_tags(bytes);
    let (mut samples, mut first): (u64, Option<FrameHeader>) = (0, None);
    while !rest.is_empty() {
        if let Some(header) = FrameHeader::read(rest) {
            let first = first.get_or_insert(header);
            if first.kind != header.kind {
                return None;
            }
            samples += header.samples;
            // The last frame may be cut.
            rest = rest.get(header.bytes..).unwrap_or_default();
        } else {
            let behind = behind_tag(rest)?;
            let tag = &rest[..rest.len() - behind.len()];
            rest = behind;
            // Decoders skip the tags before the first frame, but may search further ones for frames.
            if first.is_some_and(|first| has_frame(tag, first)) {
                return None;
            }
        }
    }
    let first = first?;
    let last_tags = &bytes[without_last_tags(bytes).len()..];
    (!has_frame(last_tags, first)).then(|| in_nanos(samples, first.rate))
}

/// Whether a frame like this one could begin in these bytes.
fn has_frame(bytes: &[u8], first: FrameHeader) -> bool {
    memchr::memchr_iter(0xff, bytes)
        .filter_map(|at| FrameHeader::read(&bytes[at..]))
        .any(|header| header.kind == first.kind)
}

/// Skips zeros, or a tag with data about the recording.
fn behind_tag(bytes: &[u8]) -> Option<&[u8]> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    if zeros > 0 {
        return Some(&bytes[zeros..]);
    }
    if !bytes.starts_with(b"ID3") {
        return None;
    }
    let size = bytes.get(6..10)?.iter();
    let size = size.fold(0, |size, byte| size << 7 | usize::from(byte & 0x7f));
    let footer = match bytes[5] & 0x10 {
        0 => 0,
        _ => 10,
    };
    bytes.get(10 + size + footer..)
}

/// Cuts off the tags at the end of a file: of ID3's first version, and of APE.
fn without_last_tags(bytes: &[u8]) -> &[u8] {
    let cut = |bytes: usize, from: usize| bytes.checked_sub(from);
    let mut end = bytes.len();
    if let Some(tag) = cut(end, 128)
        && bytes[tag..].starts_with(b"TAG")
    {
        end = tag;
    }
    if let Some(footer) = cut(end, 32)
        && let Some(footer) = bytes[footer..end].strip_prefix(b"APETAGEX")
    {
        let number = |at: usize| {
            footer
                .get(at..at + 4)
                .and_then(|bytes| bytes.try_into().ok())
                .map_or(0, u32::from_le_bytes)
        };
        let header = match number(12) >> 31 {
            0 => 0,
            _ => 32,
        };
        let size = number(4) as usize + header;
        end = cut(end, size).unwrap_or(end);
    }
    &bytes[..end]
}
