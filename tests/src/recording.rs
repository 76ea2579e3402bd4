//! A recording, and the form that sends it.

use bytes::Bytes;

/// The media type of a [`form`].
pub const FORM: &str = "multipart/form-data; boundary=b";

/// A recording of silence in RIFF's form, of this many seconds.
pub fn wav(seconds: u32) -> Vec<u8> {
    let rate = 8_000_u32;
    let samples = vec![128; (seconds * rate) as usize];
    let length = samples.len() as u32;
    let parts: [&[u8]; 8] = [
        b"RIFF",
        &(36 + length).to_le_bytes(),
        b"WAVEfmt \x10\0\0\0\x01\0\x01\0",
        &rate.to_le_bytes(),
        &rate.to_le_bytes(),
        b"\x01\0\x08\0data",
        &length.to_le_bytes(),
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
