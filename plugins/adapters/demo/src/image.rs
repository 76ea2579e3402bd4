//! A picture for each prompt: eight by eight squares of two colours, chosen by a hash of its words.
//!
//! This module writes PNG itself, uncompressed within the format, and needs no library.

use weir_sdk::adapter::{Event, Failure, FailureKind, Step};
use weir_sdk::chat::{FinishReason, ImageRequest, Media, NamedCount, Usage};
use weir_sdk::fields::is_advisory;

/// Pixels of a side.
const SIDE: u32 = 64;

/// Tokens that an image counts as.
const IMAGE_TOKENS: u64 = 64;

/// Returns the complete response, and the names of omitted fields.
pub(crate) fn answer(image: &ImageRequest) -> Result<(Step, Vec<String>), Failure> {
    let ignored = ignored(image)?;
    if image.prompt.starts_with("/refuse") {
        return Err(
            Failure::new(FailureKind::Filtered, "The demo model was told to refuse.")
                .with_code("moderation_blocked"),
        );
    }
    let mut events: Vec<_> = (0..image.count)
        .map(|number| {
            Event::Media(Media {
                media_type: "image/png".to_owned(),
                data: picture(hash(&image.prompt, number)),
                bytes_before: None,
                url: None,
                revised_prompt: None,
                is_preview: false,
            })
        })
        .collect();
    let image_tokens = IMAGE_TOKENS * image.inputs.len() as u64;
    let has_inputs = image_tokens > 0;
    events.push(Event::Usage(Usage {
        input_tokens: Some(image.prompt.len().div_ceil(4) as u64 + image_tokens),
        cache_read_tokens: None,
        cache_write_short_tokens: None,
        cache_write_long_tokens: None,
        output_tokens: Some(IMAGE_TOKENS * u64::from(image.count)),
        reasoning_tokens: None,
        images: Some(image.count),
        other: Vec::from_iter(has_inputs.then(|| NamedCount {
            name: "image-input-tokens".to_owned(),
            count: image_tokens,
        })),
    }));
    events.push(Event::Finish(FinishReason::Stop));
    Ok((Step::Emit(events), ignored))
}

/// Returns the names of fields that do not change the picture. Requests for pictures that the model cannot make are
/// refused.
fn ignored(image: &ImageRequest) -> Result<Vec<String>, Failure> {
    let refuse = |name: &str| Err(Failure::unsupported(name).with_param(name));
    let is_png = |media_type: &str| media_type == "image/png";
    if !image.media_type.as_deref().is_none_or(is_png) {
        return refuse("output_format");
    }
    if image
        .background
        .as_deref()
        .is_some_and(|background| background == "transparent")
    {
        return refuse("background");
    }
    let mut names = Vec::new();
    for (name, is_set) in [
        ("size", image.size.is_some()),
        ("quality", image.quality.is_some()),
    ] {
        if is_set {
            names.push(name.to_owned());
        }
    }
    for (name, json) in &image.extra {
        match name.as_str() {
            "response_format" if json == "\"b64_json\"" => {}
            "moderation" | "output_compression" | "style" | "input_fidelity" | "partial_images" => {
                names.push(name.clone());
            }
            _ if is_advisory(name) => names.push(name.clone()),
            _ => return refuse(name),
        }
    }
    Ok(names)
}

/// The FNV-1a hash.
fn hash(prompt: &str, number: u32) -> u64 {
    let bytes = prompt.bytes().chain(number.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn picture(hash: u64) -> Vec<u8> {
    let squares = hash.to_be_bytes();
    // Each row: no filter, then one bit a pixel.
    let rows = (0..SIDE).flat_map(|y| {
        let squares = squares[(y * 8 / SIDE) as usize];
        let pixels = (0..8).map(move |square| match squares >> (7 - square) & 1 {
            0 => 0x00,
            _ => 0xff,
        });
        std::iter::once(0).chain(pixels)
    });
    let rows: Vec<u8> = rows.collect();
    let [red, green, blue, ..] = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = Vec::new();
    header.extend_from_slice(&SIDE.to_be_bytes());
    header.extend_from_slice(&SIDE.to_be_bytes());
    // One bit a pixel, which is an index into the palette.
    header.extend_from_slice(&[1, 3, 0, 0, 0]);
    chunk(b"IHDR", &header, &mut png);
    // A light colour, and a dark one.
    let palette = [0xf5, 0xf5, 0xf0, red / 2, green / 2, blue / 2];
    chunk(b"PLTE", &palette, &mut png);
    chunk(b"IDAT", &stored(&rows), &mut png);
    chunk(b"IEND", &[], &mut png);
    png
}

fn chunk(kind: &[u8; 4], data: &[u8], png: &mut Vec<u8>) {
    let length = u32::try_from(data.len()).expect("a picture is small");
    png.extend_from_slice(&length.to_be_bytes());
    let start = png.len();
    png.extend_from_slice(kind);
    png.extend_from_slice(data);
    let check = crc32(&png[start..]);
    png.extend_from_slice(&check.to_be_bytes());
}

/// Wraps data in zlib's format (RFC 1950) as one uncompressed block.
fn stored(data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).expect("a picture is small");
    let mut zlib = vec![0x78, 0x01, 0x01];
    zlib.extend_from_slice(&length.to_le_bytes());
    zlib.extend_from_slice(&(!length).to_le_bytes());
    zlib.extend_from_slice(data);
    let (low, high) = data.iter().fold((1_u32, 0_u32), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % 65_521;
        (low, (high + low) % 65_521)
    });
    zlib.extend_from_slice(&(high << 16 | low).to_be_bytes());
    zlib
}

fn crc32(data: &[u8]) -> u32 {
    let crc = data.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            crc >> 1 ^ (0xedb8_8320 * (crc & 1))
        })
    });
    !crc
}
