//! Responses broken on purpose, in the same ways for the same seed.

/// The largest answer that is made, in bytes.
const MAX_BYTES: usize = 256 * 1024;

/// Texts of providers, and texts that must not confuse a decoder.
const TOKENS: [&[u8]; 64] = [
    b"null",
    b"true",
    b"{}",
    b"[]",
    b"\"\"",
    b"0",
    b"-1",
    b"1e999",
    b"0.5",
    b"18446744073709551615",
    b"99999999999999999999",
    b"\n",
    b"\r\n",
    b"\r",
    b"\n\n",
    b"\r\n\r\n",
    b"data: ",
    b"data:",
    b"data",
    b"event: error\n",
    b"event: ",
    b"id: 1\n",
    b"retry: 1\n",
    b": \n",
    b"data: [DONE]\n\n",
    b"[DONE]",
    b"\xEF\xBB\xBF",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b",",
    b":",
    b"\\",
    b"\\u0000",
    b"\\ud83e",
    b"\\udd3b",
    b"\\\"",
    b"\xFF",
    b"\xF0\x9F",
    b"\xE2\x80\xA8",
    b"\0",
    b"\t",
    b" ",
    b"\"error\":{\"message\":\"m\",\"code\":500}",
    b"{\"error\":\"e\"}",
    b"\"index\":0,",
    b"\"index\":4294967295,",
    b"\"index\":-1,",
    b"\"id\":\"\",",
    b"\"id\":null,",
    b"\"name\":\"\",",
    b"\"type\":\"novel\",",
    b"\"usage\":{},",
    b"\"finish_reason\":\"stop\"",
    b"\"finish_reason\":\"\"",
    b"\"stop_reason\":\"tool_use\"",
    b"\"finishReason\":\"STOP\"",
    b"\"done\":true",
    b"\"arguments\":null",
    b"\"content\":[null,1,\"a\",{\"type\":\"text\"}]",
    b"\"partialArgs\":[{\"jsonPath\":\"$.a[1000].b\",\"stringValue\":\"x\"}]",
    b"\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]",
];

/// Breaks responses. The result depends on the seed and the inputs alone.
#[derive(Debug, Clone)]
pub struct Mutator(u64);

impl Mutator {
    /// One that goes by this seed.
    pub fn new(seed: u64) -> Self {
        // Seeds that follow one another should not begin alike; and zero would stay zero.
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below a bound; 0 below 0.
    pub fn below(&mut self, bound: usize) -> usize {
        // Xorshift: enough to break things.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound.max(1) as u64).unwrap_or_default()
    }

    /// An answer made of this one, with pieces of others in it; at times of none.
    pub fn mutated(&mut self, answer: &[u8], others: &[&[u8]]) -> Vec<u8> {
        if self.below(64) == 0 {
            return self.noise(4096);
        }
        let mut bytes = answer.to_vec();
        for _ in 0..=self.below(6) {
            self.mutate(&mut bytes, others);
            bytes.truncate(MAX_BYTES);
        }
        bytes
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>, others: &[&[u8]]) {
        let start = self.below(bytes.len() + 1);
        let longest = if self.below(4) == 0 { bytes.len() } else { 40 };
        let end = start + self.below((bytes.len() - start).min(longest) + 1);
        match self.below(12) {
            0 => bytes.truncate(start),
            1 => drop(bytes.drain(start..end)),
            2 => {
                let again = bytes[start..end].repeat(1 + self.below(3));
                bytes.splice(start..start, again);
            }
            3 | 4 => {
                let token = TOKENS[self.below(TOKENS.len())];
                bytes.splice(start..start, token.iter().copied());
            }
            5 => {
                let token = TOKENS[self.below(TOKENS.len())];
                bytes.splice(start..end, token.iter().copied());
            }
            6 => {
                if let Some(byte) = bytes.get_mut(start) {
                    *byte ^= 1 << self.below(8);
                }
            }
            7 => drop(bytes.splice(start..end, self.noise(16))),
            8 => {
                // The beginning of this one, and the end of another.
                let other = self.other(others);
                bytes.truncate(start);
                bytes.extend_from_slice(&other[self.below(other.len() + 1)..]);
            }
            9 => {
                let other = self.other(others);
                let from = self.below(other.len() + 1);
                let to = from + self.below((other.len() - from).min(400) + 1);
                bytes.splice(start..end, other[from..to].iter().copied());
            }
            10 => self.move_line(bytes),
            _ => {
                // Much of one thing: deep nesting, long texts, long numbers, many lines.
                let one =
                    [&b"["[..], b"{\"a\":", b"x", b"9", b"\n", b"\\u00e9", b"{},"][self.below(7)];
                let count = 1 << self.below(14);
                bytes.splice(start..start, one.repeat(count));
            }
        }
    }

    fn noise(&mut self, longest: usize) -> Vec<u8> {
        (0..self.below(longest))
            .map(|_| self.below(256).to_le_bytes()[0])
            .collect()
    }

    fn other<'a>(&mut self, others: &[&'a [u8]]) -> &'a [u8] {
        others
            .get(self.below(others.len()))
            .copied()
            .unwrap_or_default()
    }

    /// Moves a line elsewhere, or writes it twice.
    fn move_line(&mut self, bytes: &mut Vec<u8>) {
        let mut lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
        if lines.is_empty() {
            return;
        }
        let from = self.below(lines.len());
        let line = lines[from];
        if self.below(2) == 0 {
            lines.remove(from);
        }
        lines.insert(self.below(lines.len() + 1), line);
        *bytes = lines.concat();
    }
}
