//! Texts as the content of JSON strings.

/// Appends a text as the content of a JSON string.
pub(crate) fn append_escaped(text: &str, to: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut rest = text.as_bytes();
    loop {
        let (plain, after) = rest.split_at(plain_bytes(rest));
        to.extend_from_slice(plain);
        let Some((&byte, after)) = after.split_first() else {
            return;
        };
        let short = match byte {
            0x08 => b'b',
            b'\t' => b't',
            b'\n' => b'n',
            0x0c => b'f',
            b'\r' => b'r',
            byte => byte,
        };
        match short {
            0..0x20 => {
                let digits = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
                to.extend_from_slice(b"\\u00");
                to.extend_from_slice(&digits);
            }
            short => to.extend_from_slice(&[b'\\', short]),
        }
        rest = after;
    }
}

/// Returns the number of bytes before the first one that JSON escapes.
fn plain_bytes(text: &[u8]) -> usize {
    let is_escaped =
        |byte: u8| u8::from(byte < 0x20) | u8::from(byte == b'"') | u8::from(byte == b'\\');
    let mut plain = 0;
    // Without a branch for each byte, the compiler compares vectors of bytes.
    for block in text.as_chunks::<32>().0 {
        let mut flags = [0; 32];
        for (flag, byte) in flags.iter_mut().zip(block) {
            *flag = is_escaped(*byte);
        }
        let (words, _) = flags.as_chunks::<8>();
        for word in words {
            let found = u64::from_le_bytes(*word);
            if found != 0 {
                return plain + found.trailing_zeros() as usize / 8;
            }
            plain += 8;
        }
    }
    let found = text[plain..].iter().position(|byte| is_escaped(*byte) != 0);
    found.map_or(text.len(), |found| plain + found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_as_serde_json_does() {
        let every = (0..=127_u8).map(char::from).collect::<String>();
        let texts = [
            String::new(),
            "plain ".repeat(100),
            "\u{1}".repeat(300),
            "\u{80}é€𝄞\u{1f}\u{7f}\"\\\n".repeat(20),
            every.repeat(3),
        ];
        for text in &texts {
            for from in (0..text.len().min(40)).filter(|from| text.is_char_boundary(*from)) {
                let text = &text[from..];
                let mut escaped = b"\"".to_vec();
                append_escaped(text, &mut escaped);
                escaped.push(b'"');
                assert_eq!(escaped, serde_json::to_vec(text).expect("JSON"));
            }
        }
    }
}
