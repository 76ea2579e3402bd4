//! WebM and Matroska (RFC 8794, RFC 9559): blocks of packets in clusters. Their times are not used.
//!
//! **Invariant:** a file with an element that does not fit into its parent, or with bytes behind its elements, is refused:
//! decoders search such places for clusters.

use super::codec::Codec;
use super::flac;

/// The most tracks of a file.
const MAX_TRACKS: usize = 64;

const HEADER: u32 = 0x1a45_dfa3;
const SEGMENT: u32 = 0x1853_8067;
const CLUSTER: u32 = 0x1f43_b675;
const BLOCK_GROUP: u32 = 0xa0;
const BLOCK: u32 = 0xa1;
const ENCRYPTED_BLOCK: u32 = 0xaf;
const SIMPLE_BLOCK: u32 = 0xa3;
const TRACKS: u32 = 0x1654_ae6b;
const TRACK: u32 = 0xae;
const TRACK_NUMBER: u32 = 0xd7;
const CODEC: u32 = 0x86;
const CODEC_PRIVATE: u32 = 0x63a2;
const CONTENT_ENCODINGS: u32 = 0x6d80;
const AUDIO: u32 = 0xe1;
const SAMPLING_FREQUENCY: u32 = 0xb5;
const CHANNELS: u32 = 0x9f;
const BIT_DEPTH: u32 = 0x6264;

#[derive(Default)]
struct Track<'a> {
    number: u64,
    codec_id: &'a [u8],
    private: &'a [u8],
    rate: f64,
    channels: u64,
    bit_depth: u64,
    is_encoded: bool,
    /// Present from the first block.
    codec: Option<Codec>,
}

/// Returns the playing time of all tracks in nanoseconds.
pub(super) fn nanos(file: &[u8]) -> Option<u64> {
    let mut tracks: Vec<Track<'_>> = Vec::new();
    let mut parents: Vec<Element> = Vec::new();
    let (mut at, mut sum) = (0, 0_u64);
    while at < file.len() {
        while parents.last().is_some_and(|parent| at >= parent.end) {
            parents.pop();
        }
        let end = parents.last().map_or(file.len(), |parent| parent.end);
        let element = Element::read(file, at, end)?;
        // Only elements beside a cluster have ids of four bytes: they end one without a length.
        if element.id > 0xff_ffff
            && parents
                .pop_if(|parent| parent.id == CLUSTER && parent.is_open)
                .is_some()
        {
            continue;
        }
        let content = &file[element.content..element.end];
        at = element.end;
        let parent = parents.last().map(|parent| parent.id);
        match (element.id, parent) {
            (SEGMENT, None)
            | (TRACKS | CLUSTER, Some(SEGMENT))
            | (BLOCK_GROUP, Some(CLUSTER))
            | (AUDIO, Some(TRACK)) => {
                at = element.content;
                parents.push(element);
            }
            (TRACK, Some(TRACKS)) => {
                at = element.content;
                parents.push(element);
                tracks.push(Track {
                    channels: 1,
                    rate: 8_000.0,
                    ..Track::default()
                });
                if tracks.len() > MAX_TRACKS {
                    return None;
                }
            }
            (HEADER, None) => tracks.clear(),
            (SIMPLE_BLOCK, Some(CLUSTER)) | (BLOCK, Some(BLOCK_GROUP)) => {
                sum = sum.saturating_add(block_nanos(&mut tracks, content)?);
            }
            // Readers disagree about these in another place.
            (
                HEADER | SEGMENT | TRACKS | TRACK | AUDIO | CLUSTER | BLOCK_GROUP | BLOCK
                | SIMPLE_BLOCK | ENCRYPTED_BLOCK,
                _,
            ) => return None,
            (id, Some(TRACK | AUDIO)) => tracks.last_mut()?.take(id, content),
            _ => {}
        }
    }
    Some(sum)
}

impl<'a> Track<'a> {
    fn take(&mut self, id: u32, content: &'a [u8]) {
        match id {
            TRACK_NUMBER => self.number = unsigned(content),
            CODEC => self.codec_id = content,
            CODEC_PRIVATE => self.private = content,
            CONTENT_ENCODINGS => self.is_encoded = true,
            SAMPLING_FREQUENCY => {
                self.rate = match *content {
                    [a, b, c, d] => f32::from_be_bytes([a, b, c, d]).into(),
                    [a, b, c, d, e, f, g, h] => f64::from_be_bytes([a, b, c, d, e, f, g, h]),
                    _ => 0.0,
                };
            }
            CHANNELS => self.channels = unsigned(content),
            BIT_DEPTH => self.bit_depth = unsigned(content),
            _ => {}
        }
    }

    fn new_codec(&self) -> Option<Codec> {
        let id = std::str::from_utf8(self.codec_id)
            .ok()?
            .trim_end_matches('\0');
        Some(match id {
            _ if self.is_encoded => return None,
            "A_OPUS" => Codec::Opus,
            "A_VORBIS" => {
                let [first, _, setup] = three_packets(self.private)?;
                Codec::vorbis(first, setup)?
            }
            "A_FLAC" => {
                let block = self.private.strip_prefix(b"fLaC")?.get(4..)?;
                let rate = flac::stream_rate(block)?;
                Codec::Flac { rate }
            }
            "A_MPEG/L1" | "A_MPEG/L2" | "A_MPEG/L3" => Codec::Mpeg,
            "A_AAC" => Codec::aac(self.private)?,
            "A_PCM/INT/LIT" | "A_PCM/INT/BIG" | "A_PCM/FLOAT/IEEE" => {
                let bytes = self.channels.checked_mul(self.bit_depth.div_ceil(8))?;
                let rate = self.rate as u32;
                (bytes > 0 && rate > 0).then_some(Codec::Pcm { bytes, rate })?
            }
            _ => return None,
        })
    }
}

/// Returns the playing time of a block's packets; 0 of a track without sound.
fn block_nanos(tracks: &mut [Track<'_>], block: &[u8]) -> Option<u64> {
    let (number, behind) = vint(block)?;
    let mut of_number = tracks.iter_mut().filter(|track| track.number == number);
    let (Some(track), None) = (of_number.next(), of_number.next()) else {
        return None;
    };
    if track.codec_id.starts_with(b"V_") || track.codec_id.starts_with(b"S_") {
        return Some(0);
    }
    if track.codec.is_none() {
        track.codec = Some(track.new_codec()?);
    }
    let codec = track.codec.as_mut()?;
    let flags = *block.get(behind + 2)?;
    let mut sum = 0_u64;
    for packet in packets(&block[behind + 3..], flags >> 1 & 3)? {
        sum = sum.saturating_add(codec.nanos(packet)?);
    }
    Some(sum)
}

/// Splits a block into packets by its lacing.
fn packets(block: &[u8], lacing: u8) -> Option<Vec<&[u8]>> {
    if lacing == 0 {
        return Some(vec![block]);
    }
    let (&last, mut rest) = block.split_first()?;
    let count = usize::from(last) + 1;
    let mut sizes = Vec::with_capacity(count);
    match lacing {
        1 => {
            for _ in 1..count {
                let (size, behind) = xiph_size(rest)?;
                sizes.push(size);
                rest = behind;
            }
        }
        2 => {
            if rest.len() % count != 0 {
                return None;
            }
            sizes = vec![rest.len() / count; count - 1];
        }
        _ => {
            let mut size = 0_i64;
            for index in 1..count {
                let (number, bytes) = vint(rest)?;
                let number = i64::try_from(number).ok()?;
                // The first size, then differences around zero.
                size = match index {
                    1 => number,
                    _ => size + number - ((1_i64 << (7 * bytes - 1)) - 1),
                };
                sizes.push(usize::try_from(size).ok()?);
                rest = &rest[bytes..];
            }
        }
    }
    let mut packets = Vec::with_capacity(count);
    for size in sizes {
        let (packet, behind) = rest.split_at_checked(size)?;
        packets.push(packet);
        rest = behind;
    }
    packets.push(rest);
    Some(packets)
}

/// Splits the private data of Vorbis into its three headers.
fn three_packets(private: &[u8]) -> Option<[&[u8]; 3]> {
    let rest = private.strip_prefix(b"\x02")?;
    let (first, rest) = xiph_size(rest)?;
    let (second, rest) = xiph_size(rest)?;
    let (first, rest) = rest.split_at_checked(first)?;
    let (second, third) = rest.split_at_checked(second)?;
    Some([first, second, third])
}

/// Reads a size as a sum of bytes. The last byte is below 255.
fn xiph_size(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let full = bytes.iter().take_while(|byte| **byte == 255).count();
    let last = usize::from(*bytes.get(full)?);
    Some((255 * full + last, &bytes[full + 1..]))
}

struct Element {
    id: u32,
    content: usize,
    end: usize,
    /// Whether the element has no length.
    is_open: bool,
}

impl Element {
    fn read(file: &[u8], at: usize, parent_end: usize) -> Option<Self> {
        let bytes = &file[at..parent_end];
        let id_bytes = bytes.first()?.leading_zeros() as usize + 1;
        if id_bytes > 4 {
            return None;
        }
        let id = bytes.get(..id_bytes)?.iter();
        let id = id.fold(0, |id, byte| id << 8 | u32::from(*byte));
        let (size, size_bytes) = vint(&bytes[id_bytes..])?;
        let content = at + id_bytes + size_bytes;
        let is_open = size == (1 << (7 * size_bytes)) - 1;
        let end = match is_open {
            // Only these may have no length.
            true => (matches!(id, SEGMENT | CLUSTER)).then_some(parent_end)?,
            false => content.checked_add(usize::try_from(size).ok()?)?,
        };
        (end <= parent_end).then_some(Self {
            id,
            content,
            end,
            is_open,
        })
    }
}

/// Reads a number with its length in its first bits. Returns the bytes that it takes, too.
fn vint(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = first.leading_zeros() as usize + 1;
    let rest = bytes.get(1..length).filter(|_| length <= 8)?;
    let head = u64::from(first) & ((1 << (8 - length)) - 1);
    let number = rest
        .iter()
        .fold(head, |number, byte| number << 8 | u64::from(*byte));
    Some((number, length))
}

fn unsigned(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}
