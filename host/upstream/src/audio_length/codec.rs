//! The playing time of packets, by codec. The times in their container do not count: a
//! decoder makes samples from packets.

use super::playing_time::in_nanos;
use super::vorbis::VorbisModes;
use super::{flac, mpeg};

/// The sample rates of AAC by index (ISO/IEC 14496-3, table 1.18).
const AAC_RATES: [u32; 13] = [
    96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000,
    7_350,
];

/// A codec, as far as the time of its packets needs it.
#[derive(Debug)]
pub(super) enum Codec {
    /// The first byte of a packet tells its time (RFC 6716, 3.1).
    Opus,
    /// Two sizes of blocks.
    Vorbis {
        modes: VorbisModes,
        /// The size of the previous block: two blocks overlap.
        previous: Option<u64>,
    },
    /// Frames of the same number of samples.
    Constant { samples: u64, rate: u32 },
    /// The header of each frame has its samples.
    Flac { rate: u32 },
    /// MPEG audio: the header of each frame has its samples and its rate.
    Mpeg,
    /// Samples without compression.
    Pcm { bytes: u64, rate: u32 },
}

impl Codec {
    /// Vorbis with these identification and setup headers.
    pub(super) fn vorbis(identification: &[u8], setup: &[u8]) -> Option<Self> {
        let modes = VorbisModes::read(identification, setup)?;
        Some(Self::Vorbis {
            modes,
            previous: None,
        })
    }

    /// AAC with this `AudioSpecificConfig` (ISO/IEC 14496-3, 1.6.2.1).
    pub(super) fn aac(config: &[u8]) -> Option<Self> {
        let mut bits = MsbBits::new(config);
        let mut object = bits.read(5)?;
        let mut rate = aac_rate(&mut bits)?;
        bits.read(4)?;
        if matches!(object, 5 | 29) {
            // A frame of the core has as much time as its extension to the double rate.
            aac_rate(&mut bits)?;
            object = bits.read(5)?;
        }
        // Main, LC, SSR and LTP. Other objects have frames of other lengths.
        if !matches!(object, 1..=4) {
            return None;
        }
        rate = rate.max(1);
        let samples = match bits.read(1)? {
            0 => 1_024,
            _ => 960,
        };
        Some(Self::Constant { samples, rate })
    }

    /// Returns the playing time of a packet in nanoseconds; `None` if a decoder could see another time.
    pub(super) fn nanos(&mut self, packet: &[u8]) -> Option<u64> {
        match self {
            Self::Opus => opus_samples(packet).map(|samples| in_nanos(samples, 48_000)),
            Self::Vorbis { modes, previous } => {
                let block = modes.block(packet)?;
                let samples = previous.map_or(0, |previous| (previous + block) / 4);
                *previous = Some(block);
                Some(in_nanos(samples, modes.rate))
            }
            Self::Constant { samples, rate } => Some(in_nanos(*samples, *rate)),
            Self::Flac { rate } => Some(in_nanos(flac::samples(packet), *rate)),
            Self::Mpeg => mpeg::nanos(packet),
            Self::Pcm { bytes, rate } => Some(in_nanos(packet.len() as u64 / *bytes, *rate)),
        }
    }
}

/// Returns the samples of an Opus packet at 48 kHz.
fn opus_samples(packet: &[u8]) -> Option<u64> {
    let Some(&head) = packet.first() else {
        return Some(0);
    };
    let configuration = usize::from(head >> 3);
    let frame = match configuration {
        0..=11 => [480, 960, 1_920, 2_880][configuration & 3],
        12..=15 => [480, 960][configuration & 1],
        _ => [120, 240, 480, 960][configuration & 3],
    };
    let frames = match head & 3 {
        0 => 1,
        1 | 2 => 2,
        _ => u64::from(packet.get(1)? & 0x3f),
    };
    Some(frames * frame)
}

fn aac_rate(bits: &mut MsbBits<'_>) -> Option<u32> {
    match bits.read(4)? {
        15 => bits.read(24),
        index => AAC_RATES.get(index as usize).copied(),
    }
}

/// Bits from the most significant one of each byte.
pub(super) struct MsbBits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> MsbBits<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Reads up to 32 bits.
    pub(super) fn read(&mut self, bits: u32) -> Option<u32> {
        let mut number = 0;
        for _ in 0..bits {
            let byte = *self.bytes.get(self.at / 8)?;
            let bit = byte >> (7 - self.at % 8) & 1;
            number = number << 1 | u32::from(bit);
            self.at += 1;
        }
        Some(number)
    }
}
