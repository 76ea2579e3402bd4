//! Width and height of an image, from the head of its file: nothing is decoded.
//!
//! **Invariant:** a size is one that every reader of the file sees, or there is none. A file that readers could
//! understand in two ways would count as fewer tokens than its provider reports.

/// The width and height of an image in pixels, each at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageSize {
    pub(crate) width: u32,
    pub(crate) height: u32,
}

/// The maximum segments of a JPEG, or blocks of a GIF, before the size. Cameras write some dozen.
const MAX_SEGMENTS: usize = 1_024;

impl ImageSize {
    /// Returns a size; `None` if a side has no pixel.
    pub(crate) fn new(width: u32, height: u32) -> Option<Self> {
        (width > 0 && height > 0).then_some(Self { width, height })
    }

    /// Reads the size of a PNG, a JPEG, a GIF or a WebP file; `None` for other files.
    pub(crate) fn read(file: &[u8]) -> Option<Self> {
        if let Some(png) = file.strip_prefix(b"\x89PNG\r\n\x1a\n") {
            return of_png(png);
        }
        if let Some(segments) = file.strip_prefix(b"\xff\xd8") {
            return of_jpeg(segments);
        }
        if let Some(gif) = file
            .strip_prefix(b"GIF89a")
            .or_else(|| file.strip_prefix(b"GIF87a"))
        {
            return of_gif(gif);
        }
        match (file.get(..4)?, file.get(8..12)?) {
            (b"RIFF", b"WEBP") => of_webp(&file[12..]),
            _ => None,
        }
    }

    /// The longer and the shorter side.
    pub(crate) fn sides(self) -> (u32, u32) {
        (self.width.max(self.height), self.width.min(self.height))
    }
}

/// The first chunk of a PNG is its header.
fn of_png(chunks: &[u8]) -> Option<ImageSize> {
    if chunks.get(..8)? != b"\0\0\0\x0dIHDR" {
        return None;
    }
    let side = |at: usize| Some(u32::from_be_bytes(chunks.get(at..at + 4)?.try_into().ok()?));
    ImageSize::new(side(8)?, side(12)?)
}

/// The size is in the frame header of a JPEG, behind segments with a length.
fn of_jpeg(mut rest: &[u8]) -> Option<ImageSize> {
    for _ in 0..MAX_SEGMENTS {
        let marker = match *rest {
            [0xff, 0xff, ..] => {
                // A fill byte.
                rest = &rest[1..];
                continue;
            }
            [0xff, marker, ..] => marker,
            _ => return None,
        };
        let length = u16::from_be_bytes(rest.get(2..4)?.try_into().ok()?);
        match marker {
            // Frame headers of all processes, but not the tables that share their numbers.
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                let side = |at: usize| {
                    let bytes = rest.get(at..at + 2)?.try_into().ok()?;
                    Some(u32::from(u16::from_be_bytes(bytes)))
                };
                return ImageSize::new(side(7)?, side(5)?);
            }
            // A scan, or an end, before the frame header.
            0xd8..=0xda | 0x00 | 0x01 | 0xd0..=0xd7 => return None,
            _ => rest = rest.get(2 + usize::from(length.max(2))..)?,
        }
    }
    None
}

/// A GIF has a canvas, and its first image may extend beyond it: some readers then extend the canvas.
fn of_gif(gif: &[u8]) -> Option<ImageSize> {
    let number = |bytes: &[u8], at: usize| {
        let bytes = bytes.get(at..at + 2)?.try_into().ok()?;
        Some(u32::from(u16::from_le_bytes(bytes)))
    };
    let flags = *gif.get(4)?;
    let table_bytes = match flags & 0x80 {
        0 => 0,
        _ => 3 << ((flags & 7) + 1),
    };
    let mut rest = gif.get(7 + table_bytes..)?;
    for _ in 0..MAX_SEGMENTS {
        match *rest {
            [0x2c, ref image @ ..] => {
                let side = |canvas: usize, from: usize, length: usize| {
                    let end = number(image, from)? + number(image, length)?;
                    Some(end.max(number(gif, canvas)?))
                };
                return ImageSize::new(side(0, 0, 4)?, side(2, 2, 6)?);
            }
            // An extension: its label, and blocks with a length up to an empty one.
            [0x21, _, ref blocks @ ..] => rest = behind_blocks(blocks)?,
            _ => return None,
        }
    }
    None
}

fn behind_blocks(mut rest: &[u8]) -> Option<&[u8]> {
    for _ in 0..MAX_SEGMENTS {
        let (&length, blocks) = rest.split_first()?;
        if length == 0 {
            return Some(blocks);
        }
        rest = blocks.get(usize::from(length)..)?;
    }
    None
}

/// The first chunk of a WebP has the size, in one of three forms.
fn of_webp(chunk: &[u8]) -> Option<ImageSize> {
    let (kind, data) = (chunk.get(..4)?, chunk.get(8..)?);
    match kind {
        b"VP8X" => {
            let side = |at: usize| {
                let bytes = data.get(at..at + 3)?;
                Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]) + 1)
            };
            ImageSize::new(side(4)?, side(7)?)
        }
        b"VP8L" => {
            if *data.first()? != 0x2f {
                return None;
            }
            let bits = u32::from_le_bytes(data.get(1..5)?.try_into().ok()?);
            ImageSize::new((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1)
        }
        b"VP8 " => {
            if data.get(3..6)? != b"\x9d\x01\x2a" {
                return None;
            }
            let side = |at: usize| {
                let bytes = data.get(at..at + 2)?.try_into().ok()?;
                Some(u32::from(u16::from_le_bytes(bytes) & 0x3fff))
            };
            ImageSize::new(side(6)?, side(8)?)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &[u8]) -> Option<(u32, u32)> {
        ImageSize::read(file).map(|size| (size.width, size.height))
    }

    fn png(width: u32, height: u32) -> Vec<u8> {
        let sides = [width.to_be_bytes(), height.to_be_bytes()].concat();
        [
            b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".as_slice(),
            &*sides,
            b"\x08\x06\0\0\0",
        ]
        .concat()
    }

    /// A JPEG of 300 × 200 pixels, with a thumbnail of another size in its first segment.
    fn jpeg() -> Vec<u8> {
        let frame = b"\xff\xc2\0\x11\x08\0\xc8\x01\x2c\x03";
        let thumbnail = [b"\xff\xe1\0\x12Exif\0\0".as_slice(), frame].concat();
        [
            b"\xff\xd8",
            &*thumbnail,
            b"\xff\xdb\0\x03\0\xff\xff",
            &frame[1..],
        ]
        .concat()
    }

    fn gif(image: &[u8]) -> Vec<u8> {
        let canvas = b"GIF89a\x40\0\x20\0\x80\0\0\0\0\0\xff\xff\xff";
        let comment = b"\x21\xfe\x02Hi\0";
        [canvas.as_slice(), comment, b"\x2c", image].concat()
    }

    #[test]
    fn the_head_of_each_format_has_the_size() {
        assert_eq!(read(&png(1_920, 1_080)), Some((1_920, 1_080)));
        assert_eq!(read(&jpeg()), Some((300, 200)));
        assert_eq!(read(&gif(b"\0\0\0\0\x40\0\x20\0\0")), Some((64, 32)));
        // The image extends beyond the canvas.
        assert_eq!(read(&gif(b"\x08\0\0\0\0\x10\x20\0\0")), Some((4_104, 32)));
        let webp = |chunk: &[u8]| [b"RIFF\0\0\0\0WEBP".as_slice(), chunk].concat();
        let extended = webp(b"VP8X\x0a\0\0\0\0\0\0\0\x7f\x07\0\x37\x04\0");
        assert_eq!(read(&extended), Some((1_920, 1_080)));
        let bits = ((1_920_u32 - 1) | ((1_080 - 1) << 14)).to_le_bytes();
        let lossless = webp(&[b"VP8L\0\0\0\0\x2f".as_slice(), &bits].concat());
        assert_eq!(read(&lossless), Some((1_920, 1_080)));
        let lossy = webp(b"VP8 \0\0\0\0\0\0\0\x9d\x01\x2a\x80\x07\x38\x04");
        assert_eq!(read(&lossy), Some((1_920, 1_080)));
    }

    #[test]
    fn a_file_without_a_size_that_is_sure_has_none() {
        let endless = [
            b"\xff\xd8".as_slice(),
            &b"\xff\xe0\0\x02".repeat(MAX_SEGMENTS + 1),
        ]
        .concat();
        for file in [
            b"".as_slice(),
            b"<svg width='10' height='10'/>",
            b"\0\0\0\x18ftypheic",
            &png(0, 10),
            b"\x89PNG\r\n\x1a\n\0\0\0\x04CgBI",
            b"\xff\xd8\xff\xda\0\x02",
            &gif(b"\0\0"),
            b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\0",
            &endless,
        ] {
            assert_eq!(read(file), None, "{file:?}");
        }
        // A file that ends early.
        for whole in [png(9, 9), jpeg(), gif(b"\0\0\0\0\x40\0\x20\0\0")] {
            for end in 0..whole.len() {
                let _ = read(&whole[..end]);
            }
        }
    }
}
