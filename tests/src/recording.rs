//! Recordings, the form that sends them, and small writers of their containers: a file can lie about its length in each of
//! its tables.
//!
//! Opus packets are of silence (RFC 6716, 3.1). AAC samples have random content, because nothing decodes them here.

use bytes::Bytes;

/// The media type of a [`form`].
pub const FORM: &str = "multipart/form-data; boundary=b";

/// An Opus packet of one frame of 60 ms: SILK at 8 kHz, mono.
pub const OPUS_60_MS: [u8; 3] = [3 << 3, 0x0b, 0xe4];

/// The packets of an Opus stream in a second, almost: 50 in three seconds.
pub const OPUS_PACKETS_IN_3_S: usize = 50;

/// An AAC frame of 1,024 samples, as far as a container sees it.
const AAC_FRAME: [u8; 6] = [0x01, 0x18, 0x20, 0x07, 0x11, 0x22];

/// The `AudioSpecificConfig` of AAC LC at 8 kHz, mono.
const AAC_8_KHZ: [u8; 2] = [0x15, 0x88];

/// A recording of silence in RIFF's form, of this many seconds.
pub fn wav(seconds: u32) -> Vec<u8> {
    wav_with_size(seconds, seconds * 8_000)
}

/// The same, whose head says this many bytes of samples.
pub fn wav_with_size(seconds: u32, said: u32) -> Vec<u8> {
    let rate = 8_000_u32;
    let samples = vec![128; (seconds * rate) as usize];
    let parts: [&[u8]; 8] = [
        b"RIFF",
        &said.saturating_add(36).to_le_bytes(),
        b"WAVEfmt \x10\0\0\0\x01\0\x01\0",
        &rate.to_le_bytes(),
        &rate.to_le_bytes(),
        b"\x01\0\x08\0data",
        &said.to_le_bytes(),
        &samples,
    ];
    parts.concat()
}

/// Writes a form of fields and the file `said.wav`, which comes first.
pub fn form(file: &[u8], fields: &[(&str, &str)]) -> Bytes {
    let mut body =
        b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"said.wav\"\r\n\
                     Content-Type: audio/x-wav\r\n\r\n"
            .to_vec();
    body.extend_from_slice(file);
    for (name, text) in fields {
        let part =
            format!("\r\n--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{text}");
        body.extend_from_slice(part.as_bytes());
    }
    body.extend_from_slice(b"\r\n--b--\r\n");
    body.into()
}

/// An Ogg stream of Opus with this many packets, whose pages all say the time zero.
pub fn ogg_opus(serial: u32, packets: usize) -> Vec<u8> {
    let head = b"OpusHead\x01\x01\0\0\x40\x1f\0\0\0\0\0";
    let tags = b"OpusTags\0\0\0\0\0\0\0\0";
    let mut file = ogg_page(serial, 0, 2, &[head]);
    file.extend(ogg_page(serial, 1, 0, &[tags]));
    let mut left = packets;
    let mut number = 2;
    while left > 0 {
        let count = left.min(255);
        left -= count;
        let flags = if left == 0 { 4 } else { 0 };
        file.extend(ogg_page(
            serial,
            number,
            flags,
            &vec![&OPUS_60_MS[..]; count],
        ));
        number += 1;
    }
    file
}

/// A page of packets of less than 255 bytes.
pub fn ogg_page(serial: u32, number: u32, flags: u8, packets: &[&[u8]]) -> Vec<u8> {
    let mut page = b"OggS\0".to_vec();
    page.push(flags);
    page.extend([0; 8]);
    page.extend(serial.to_le_bytes());
    page.extend(number.to_le_bytes());
    page.extend([0; 4]);
    page.push(packets.len() as u8);
    page.extend(packets.iter().map(|packet| packet.len() as u8));
    page.extend(packets.concat());
    let mut sum = 0_u32;
    for byte in &page {
        sum ^= u32::from(*byte) << 24;
        for _ in 0..8 {
            sum = if sum >> 31 == 1 {
                sum << 1 ^ 0x04c1_1db7
            } else {
                sum << 1
            };
        }
    }
    page[22..26].copy_from_slice(&sum.to_le_bytes());
    page
}

/// A WebM file with tracks of so many Opus packets, whose blocks all have the time zero. The lengths of segment and clusters
/// are unknown, as browsers write them.
pub fn webm_opus(tracks: &[usize]) -> Vec<u8> {
    let mut entries = Vec::new();
    for (index, _) in tracks.iter().enumerate() {
        let number = index as u8 + 1;
        let track = [
            element(&[0xd7], &[number]),
            element(&[0x73, 0xc5], &[number]),
            element(&[0x83], &[2]),
            // Each track is a default one.
            element(&[0x88], &[1]),
            element(&[0x86], b"A_OPUS"),
            element(&[0x63, 0xa2], b"OpusHead\x01\x01\0\0\x40\x1f\0\0\0\0\0"),
            element(
                &[0xe1],
                &[
                    element(&[0xb5], &8_000_f32.to_be_bytes()),
                    element(&[0x9f], &[1]),
                ]
                .concat(),
            ),
        ];
        entries.extend(element(&[0xae], &track.concat()));
    }
    let mut file = element(&[0x1a, 0x45, 0xdf, 0xa3], &element(&[0x42, 0x82], b"webm"));
    file.extend(b"\x18\x53\x80\x67\x01\xff\xff\xff\xff\xff\xff\xff");
    file.extend(element(&[0x16, 0x54, 0xae, 0x6b], &entries));
    for (index, packets) in tracks.iter().enumerate() {
        file.extend(b"\x1f\x43\xb6\x75\x01\xff\xff\xff\xff\xff\xff\xff");
        file.extend(element(&[0xe7], &[0]));
        let block = [&[0x81 + index as u8, 0, 0, 0x80][..], &OPUS_60_MS].concat();
        file.extend(element(&[0xa3], &block).repeat(*packets));
    }
    file
}

/// An element of EBML with a length of four bytes.
pub fn element(id: &[u8], content: &[u8]) -> Vec<u8> {
    let length = content.len() as u32 | 0x1000_0000;
    [id, &length.to_be_bytes(), content].concat()
}

/// A track of an MP4 file: AAC at 8 kHz.
#[derive(Clone, Copy)]
pub struct Mp4Track {
    /// Frames of 1,024 samples.
    pub frames: u32,
    /// The duration of each frame in 8,000ths of a second, by the table of times.
    pub said: u32,
    /// The edits of all frames, one after another.
    pub edits: u32,
}

/// An MP4 file with these tracks, whose head says a second.
pub fn mp4_aac(tracks: &[Mp4Track]) -> Vec<u8> {
    let mut file = mp4_box(b"ftyp", &[&b"M4A \0\0\0\0isom"[..]]);
    let mut places = Vec::new();
    let mut data = Vec::new();
    for track in tracks {
        places.push((file.len() + 8 + data.len()) as u32);
        data.extend(AAC_FRAME.repeat(track.frames as usize));
    }
    file.extend(mp4_box(b"mdat", &[&data]));
    // A version and flags, two times, the scale, and the length.
    let header = |scale: u32, length: u32| {
        [&[0; 12][..], &scale.to_be_bytes(), &length.to_be_bytes()].concat()
    };
    let mut movie = mp4_box(b"mvhd", &[&header(1_000, 1_000), &[0; 80]]);
    for (index, (track, place)) in tracks.iter().zip(places).enumerate() {
        let descriptor = [
            &b"\x03\x19\0\0\0\x04\x11\x40\x15\0\0\0\0\0\0\0\0\0\0\0\x05\x02"[..],
            &AAC_8_KHZ,
            b"\x06\x01\x02",
        ];
        let entry = mp4_box(
            b"mp4a",
            &[
                b"\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\x01\0\x10\0\0\0\0\x1f\x40\0\0",
                &mp4_box(b"esds", &[&[0; 4], &descriptor.concat()]),
            ],
        );
        let table = |kind: &[u8; 4], numbers: &[u32]| {
            let numbers: Vec<u8> = numbers
                .iter()
                .flat_map(|number| number.to_be_bytes())
                .collect();
            mp4_box(kind, &[&[0; 4], &numbers])
        };
        let tables = [
            mp4_box(b"stsd", &[&[0, 0, 0, 0, 0, 0, 0, 1], &entry]),
            table(b"stts", &[1, track.frames, track.said]),
            table(b"stsc", &[1, 1, track.frames, 1]),
            table(b"stsz", &[AAC_FRAME.len() as u32, track.frames]),
            table(b"stco", &[1, place]),
        ];
        let media = [
            mp4_box(b"mdhd", &[&header(8_000, 8_000), &[0; 4]]),
            mp4_box(b"hdlr", &[&[0; 8], b"soun", &[0; 13]]),
            mp4_box(b"minf", &[&mp4_box(b"stbl", &[&tables.concat()])]),
        ];
        let length = track.frames.saturating_mul(1_024 / 8);
        let edit = [length, 0, 0x0001_0000];
        let edits: Vec<u32> = std::iter::once(track.edits)
            .chain(edit.repeat(track.edits as usize))
            .collect();
        let parts = [
            mp4_box(
                b"tkhd",
                &[&[0; 12], &(index as u32 + 1).to_be_bytes(), &[0; 68]],
            ),
            mp4_box(b"edts", &[&table(b"elst", &edits)]),
            mp4_box(b"mdia", &[&media.concat()]),
        ];
        movie.extend(mp4_box(b"trak", &[&parts.concat()]));
    }
    file.extend(mp4_box(b"moov", &[&movie]));
    file
}

/// A box of MP4.
pub fn mp4_box(kind: &[u8; 4], content: &[&[u8]]) -> Vec<u8> {
    let content = content.concat();
    [
        &(content.len() as u32 + 8).to_be_bytes(),
        &kind[..],
        &content,
    ]
    .concat()
}

/// MP3 frames of layer 3 at 8 kHz and 8 kilobits a second: 72 ms in 72 bytes.
pub fn mp3(frames: usize) -> Vec<u8> {
    let mut frame = [0; 72];
    frame[..4].copy_from_slice(&[0xff, 0xe3, 0x18, 0xc4]);
    frame.repeat(frames)
}

/// A FLAC file of frames with 4,096 samples of silence at 8 kHz, whose head says one sample.
pub fn flac(frames: u32) -> Vec<u8> {
    let mut file = b"fLaC\x80\0\0\x22\x10\0\x10\0\0\0\0\0\0\0".to_vec();
    // The rate in 20 bits, one channel, 8 bits a sample, one sample.
    file.extend([0x01, 0xf4, 0x00, 0x70, 0, 0, 0, 1]);
    file.extend([0; 16]);
    for frame in 0..frames {
        let mut header = vec![0xff, 0xf8, 0xc4, 0x02];
        header.extend(
            char::from_u32(frame % 0x800)
                .expect("a number of at most two bytes")
                .to_string()
                .bytes(),
        );
        header.push(crc8(&header));
        file.extend(header);
        // A constant subframe, and a checksum that nothing checks here.
        file.extend([0, 0, 0, 0]);
    }
    file
}

fn crc8(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ byte, |sum, _| {
            if sum & 0x80 == 0 {
                sum << 1
            } else {
                sum << 1 ^ 7
            }
        })
    })
}
