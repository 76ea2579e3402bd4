//! Ogg (RFC 3533): pages of streams, one after another (chained) and beside one another.
//!
//! Times of pages (granule positions) are not used: a decoder plays each packet.
//!
//! **Invariant:** a file with a gap, or with a page whose checksum is wrong, is refused: decoders search such places for
//! pages.

use std::collections::HashMap;

use super::codec::Codec;
use super::flac;

/// The most streams beside one another in a chain's link.
const MAX_STREAMS: usize = 64;

/// The most bytes of a header packet. Pictures may be in the second one.
const HEADER_BYTES: usize = 16 << 20;

/// The bytes of an audio packet that tell its time.
const PACKET_BYTES: usize = 32;

#[derive(Default)]
struct LogicalStream {
    /// The beginning of a packet that continues on the next page.
    packet: Vec<u8>,
    /// The first header.
    first: Vec<u8>,
    packets: u64,
    kind: StreamKind,
}

#[derive(Default)]
enum StreamKind {
    /// The headers are missing so far.
    #[default]
    New,
    /// Headers of Vorbis.
    Vorbis,
    /// A decoder plays the packets after this many headers.
    Sound { codec: Codec, headers: u64 },
    /// Video, or a table of contents.
    Silent,
}

/// Returns the playing time of all streams in nanoseconds.
pub(super) fn nanos(mut rest: &[u8]) -> Option<u64> {
    let mut streams: HashMap<u32, LogicalStream> = HashMap::new();
    let mut sum = 0_u64;
    while !rest.is_empty() {
        let segments = usize::from(*rest.get(26)?);
        let lengths = rest.get(27..27 + segments)?;
        let body = lengths
            .iter()
            .map(|length| usize::from(*length))
            .sum::<usize>();
        let (head, end) = (27 + segments, 27 + segments + body);
        let page = rest.get(..end)?;
        if !page.starts_with(b"OggS\0") || checksum(page) != page[22..26] {
            return None;
        }
        let flags = page[5];
        let serial = u32::from_le_bytes(page[14..18].try_into().ok()?);
        if flags & 2 != 0 {
            if streams.len() >= MAX_STREAMS {
                return None;
            }
            streams.insert(serial, LogicalStream::default());
        }
        let stream = streams.get_mut(&serial)?;
        // The rest of a packet whose beginning is missing.
        if flags & 1 == 0 {
            stream.packet.clear();
        }
        let mut at = head;
        for &length in lengths {
            let next = at + usize::from(length);
            stream.collect(&page[at..next])?;
            at = next;
            if length < 255 {
                sum = sum.saturating_add(stream.end_packet()?);
            }
        }
        if flags & 4 != 0 {
            streams.remove(&serial);
        }
        rest = &rest[end..];
    }
    Some(sum)
}

impl LogicalStream {
    fn collect(&mut self, piece: &[u8]) -> Option<()> {
        let most = match self.kind {
            StreamKind::New | StreamKind::Vorbis => HEADER_BYTES,
            StreamKind::Sound { .. } | StreamKind::Silent => PACKET_BYTES,
        };
        let room = most.saturating_sub(self.packet.len());
        self.packet
            .extend_from_slice(&piece[..piece.len().min(room)]);
        (most == PACKET_BYTES || room >= piece.len()).then_some(())
    }

    /// Processes a complete packet. Returns its playing time.
    fn end_packet(&mut self) -> Option<u64> {
        let packet = std::mem::take(&mut self.packet);
        self.packets += 1;
        match &mut self.kind {
            StreamKind::New => {
                self.kind = kind(&packet)?;
                self.first = packet;
            }
            StreamKind::Vorbis if self.packets == 3 => {
                let codec = Codec::vorbis(&self.first, &packet)?;
                self.kind = StreamKind::Sound { codec, headers: 3 };
            }
            StreamKind::Sound { codec, headers } if self.packets > *headers => {
                let nanos = codec.nanos(&packet);
                // The packet's memory is of use for the next one.
                self.packet = packet;
                self.packet.clear();
                return nanos;
            }
            StreamKind::Vorbis | StreamKind::Sound { .. } | StreamKind::Silent => {}
        }
        Some(0)
    }
}

/// Returns the kind of a stream by its first packet; `None` for a codec whose packets have no known time.
fn kind(first: &[u8]) -> Option<StreamKind> {
    if first.starts_with(b"\x01vorbis") {
        return Some(StreamKind::Vorbis);
    }
    if first.starts_with(b"OpusHead") {
        let codec = Codec::Opus;
        return Some(StreamKind::Sound { codec, headers: 2 });
    }
    if let Some(mapping) = first.strip_prefix(b"\x7fFLAC") {
        let headers = u16::from_be_bytes(mapping.get(2..4)?.try_into().ok()?);
        // Without a number, decoders tell headers from frames by their first byte.
        if headers == 0 {
            return None;
        }
        let rate = flac::stream_rate(mapping.get(4..)?.strip_prefix(b"fLaC")?.get(4..)?)?;
        let (codec, headers) = (Codec::Flac { rate }, 1 + u64::from(headers));
        return Some(StreamKind::Sound { codec, headers });
    }
    let is_silent = first.starts_with(b"\x80theora") || first.starts_with(b"fishead\0");
    is_silent.then_some(StreamKind::Silent)
}

/// The remainders of all bytes for the page's checksum: CRC-32 with the polynomial `04c11db7`, most significant bit first.
const REMAINDERS: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = (byte as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum >> 31 == 1 {
                sum << 1 ^ 0x04c1_1db7
            } else {
                sum << 1
            };
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
};

/// Returns the checksum of a page, whose own bytes count as zeros.
fn checksum(page: &[u8]) -> [u8; 4] {
    let take = |sum: u32, byte: &u8| sum << 8 ^ REMAINDERS[((sum >> 24) as u8 ^ byte) as usize];
    let sum = page[..22].iter().fold(0, take);
    let sum = [0; 4].iter().fold(sum, take);
    page[26..].iter().fold(sum, take).to_le_bytes()
}
