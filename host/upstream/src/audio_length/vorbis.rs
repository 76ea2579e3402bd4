//! The block sizes of Vorbis, from its headers (Vorbis I specification, 4.2).
//!
//! The modes are at the end of the setup header, behind tables without a length. A search for them from the end can find
//! modes that no decoder sees, so this reader goes through the tables.

/// The block sizes of a stream, by mode.
#[derive(Debug)]
pub(super) struct VorbisModes {
    /// Samples per second.
    pub(super) rate: u32,
    /// The block size of each mode in samples.
    blocks: Vec<u64>,
    /// The bits of a mode's number in a packet.
    mode_bits: u32,
}

impl VorbisModes {
    /// Reads the identification header and the setup header.
    pub(super) fn read(identification: &[u8], setup: &[u8]) -> Option<Self> {
        let head = identification.strip_prefix(b"\x01vorbis")?;
        let channels = u32::from(*head.get(4)?);
        let rate = u32::from_le_bytes(head.get(5..9)?.try_into().ok()?);
        let sizes = *head.get(21)?;
        let (short, long) = (1_u64 << (sizes & 15), 1_u64 << (sizes >> 4));
        let is_valid = channels > 0
            && rate > 0
            && (64..=8_192).contains(&short)
            && (short..=8_192).contains(&long);
        if !is_valid {
            return None;
        }
        let mut bits = LsbBits::new(setup.strip_prefix(b"\x05vorbis")?);
        skip_codebooks(&mut bits)?;
        // Placeholders of a transform in time.
        for _ in 0..=bits.read(6)? {
            bits.read(16)?;
        }
        skip_floors(&mut bits)?;
        skip_residues(&mut bits)?;
        skip_mappings(&mut bits, channels)?;
        let modes = bits.read(6)? + 1;
        let mut blocks = Vec::new();
        for _ in 0..modes {
            blocks.push(match bits.read(1)? {
                0 => short,
                _ => long,
            });
            bits.skip(16 + 16 + 8)?;
        }
        (bits.read(1)? == 1).then_some(Self {
            rate,
            blocks,
            mode_bits: bits_of(modes - 1),
        })
    }

    /// Returns the block size of an audio packet.
    pub(super) fn block(&self, packet: &[u8]) -> Option<u64> {
        let mut bits = LsbBits::new(packet);
        if bits.read(1)? != 0 {
            return None;
        }
        let mode = bits.read(self.mode_bits)?;
        self.blocks.get(mode as usize).copied()
    }
}

fn skip_codebooks(bits: &mut LsbBits<'_>) -> Option<()> {
    for _ in 0..=bits.read(8)? {
        if bits.read(24)? != 0x0056_4342 {
            return None;
        }
        let (dimensions, entries) = (bits.read(16)?, bits.read(24)?);
        if bits.read(1)? == 1 {
            let (mut entry, mut length) = (0, bits.read(5)? + 1);
            while entry < entries {
                if length > 32 {
                    return None;
                }
                entry += bits.read(bits_of(entries - entry))?;
                length += 1;
            }
        } else {
            let is_sparse = bits.read(1)? == 1;
            for _ in 0..entries {
                if !is_sparse || bits.read(1)? == 1 {
                    bits.read(5)?;
                }
            }
        }
        let values = match bits.read(4)? {
            0 => continue,
            1 => lattice_values(entries, dimensions)?,
            2 => u64::from(entries) * u64::from(dimensions),
            _ => return None,
        };
        bits.skip(32 + 32)?;
        let value_bits = u64::from(bits.read(4)?) + 1;
        bits.read(1)?;
        bits.skip(values * value_bits)?;
    }
    Some(())
}

/// Returns the greatest number whose power with this exponent is at most `entries` (9.2.3).
fn lattice_values(entries: u32, dimensions: u32) -> Option<u64> {
    if dimensions == 0 {
        return None;
    }
    let is_within = |base: u64| {
        let power = base.checked_pow(dimensions);
        power.is_some_and(|power| power <= u64::from(entries))
    };
    let (mut least, mut beyond) = (0, u64::from(entries) + 1);
    while least + 1 < beyond {
        let middle = least + (beyond - least) / 2;
        match is_within(middle) {
            true => least = middle,
            false => beyond = middle,
        }
    }
    Some(least)
}

fn skip_floors(bits: &mut LsbBits<'_>) -> Option<()> {
    for _ in 0..=bits.read(6)? {
        match bits.read(16)? {
            0 => {
                bits.skip(8 + 16 + 16 + 6 + 8)?;
                let books = bits.read(4)? + 1;
                bits.skip(8 * u64::from(books))?;
            }
            1 => skip_floor_of_lines(bits)?,
            _ => return None,
        }
    }
    Some(())
}

fn skip_floor_of_lines(bits: &mut LsbBits<'_>) -> Option<()> {
    let mut classes = Vec::new();
    for _ in 0..bits.read(5)? {
        classes.push(bits.read(4)? as usize);
    }
    let mut dimensions = Vec::new();
    for _ in 0..classes.iter().max().map_or(0, |last| last + 1) {
        dimensions.push(u64::from(bits.read(3)?) + 1);
        let subclasses = bits.read(2)?;
        if subclasses > 0 {
            bits.read(8)?;
        }
        bits.skip(8 << subclasses)?;
    }
    bits.read(2)?;
    let range_bits = u64::from(bits.read(4)?);
    for class in classes {
        bits.skip(dimensions[class] * range_bits)?;
    }
    Some(())
}

fn skip_residues(bits: &mut LsbBits<'_>) -> Option<()> {
    for _ in 0..=bits.read(6)? {
        if bits.read(16)? > 2 {
            return None;
        }
        bits.skip(24 + 24 + 24)?;
        let classifications = bits.read(6)? + 1;
        bits.read(8)?;
        let mut books = 0;
        for _ in 0..classifications {
            books += bits.read(3)?.count_ones();
            if bits.read(1)? == 1 {
                books += bits.read(5)?.count_ones();
            }
        }
        bits.skip(8 * u64::from(books))?;
    }
    Some(())
}

fn skip_mappings(bits: &mut LsbBits<'_>, channels: u32) -> Option<()> {
    for _ in 0..=bits.read(6)? {
        if bits.read(16)? != 0 {
            return None;
        }
        let submaps = match bits.read(1)? {
            0 => 1,
            _ => bits.read(4)? + 1,
        };
        if bits.read(1)? == 1 {
            let steps = u64::from(bits.read(8)?) + 1;
            bits.skip(steps * 2 * u64::from(bits_of(channels - 1)))?;
        }
        bits.read(2)?;
        if submaps > 1 {
            bits.skip(4 * u64::from(channels))?;
        }
        bits.skip(u64::from(submaps) * (8 + 8 + 8))?;
    }
    Some(())
}

/// Returns the bits of a number without leading zeros.
fn bits_of(number: u32) -> u32 {
    u32::BITS - number.leading_zeros()
}

/// Bits from the least significant one of each byte.
struct LsbBits<'a> {
    bytes: &'a [u8],
    at: u64,
}

impl<'a> LsbBits<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Reads up to 32 bits.
    fn read(&mut self, bits: u32) -> Option<u32> {
        let mut number = 0;
        for place in 0..bits {
            let byte = *self.bytes.get(usize::try_from(self.at / 8).ok()?)?;
            number |= u32::from(byte >> (self.at % 8) & 1) << place;
            self.at += 1;
        }
        Some(number)
    }

    fn skip(&mut self, bits: u64) -> Option<()> {
        self.at = self.at.checked_add(bits)?;
        (self.at <= 8 * self.bytes.len() as u64).then_some(())
    }
}
