//! Voucher codes: 25 random characters in groups of five, such as `7ZK4M-…`.
//!
//! The alphabet is Crockford's base 32 (<https://www.crockford.com/base32.html>), which has no I, L, O or U. Case,
//! spaces and hyphens are ignored, and I, L and O count as 1, 1 and 0, so that a person can type a code from paper.

use std::fmt;

use hmac::Mac;
use weir_storage::secrets::{SecretKey, random_bytes};

const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Characters of a code: 125 random bits.
const CHARACTERS: usize = 25;

/// Characters of a group.
const GROUP: usize = 5;

/// The code of a voucher. Prints masked.
pub struct VoucherCode([u8; CHARACTERS]);

impl VoucherCode {
    pub fn generate() -> Self {
        let mut bits = u128::from_be_bytes(random_bytes());
        Self(std::array::from_fn(|_| {
            let character = ALPHABET[(bits % 32) as usize];
            bits /= 32;
            character
        }))
    }

    /// Parses a code as a person types it; `None` if it is not a code.
    pub fn parse(text: &str) -> Option<Self> {
        let mut code = [0; CHARACTERS];
        let mut length = 0;
        for character in text.chars() {
            let character = match character.to_ascii_uppercase() {
                '-' | ' ' => continue,
                'I' | 'L' => '1',
                'O' => '0',
                other => other,
            };
            let byte = u8::try_from(character).ok()?;
            if !ALPHABET.contains(&byte) {
                return None;
            }
            *code.get_mut(length)? = byte;
            length += 1;
        }
        (length == CHARACTERS).then_some(Self(code))
    }

    /// Returns the code in groups, for a single display.
    pub fn expose(&self) -> String {
        let groups = self.0.chunks(GROUP).map(String::from_utf8_lossy);
        groups.collect::<Vec<_>>().join("-")
    }

    /// Returns the HMAC under a pepper, the only stored form.
    pub fn hash(&self, pepper: &SecretKey) -> Vec<u8> {
        let mut mac = pepper.mac(b"weir voucher v1\0");
        mac.update(&self.0);
        mac.finalize().into_bytes().to_vec()
    }
}

impl fmt::Debug for VoucherCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("VoucherCode(…)")
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_read_as_people_type_it() {
        let code = VoucherCode(*b"0123456789ABCDEFGHJKMNPQR");
        assert_eq!(code.expose(), "01234-56789-ABCDE-FGHJK-MNPQR");
        let key = SecretKey::new([7; 32]);
        for typed in [
            "01234-56789-ABCDE-FGHJK-MNPQR",
            "0123456789abcdefghjkmnpqr",
            " O1234 56789 abcde fghjk mnpqr ",
            "oi234-56789-ABCDE-FGHJK-MNPQR",
            "ol234-56789-ABCDE-FGHJK-MNPQR",
        ] {
            let read = VoucherCode::parse(typed).unwrap();
            assert_eq!(read.hash(&key), code.hash(&key), "{typed}");
        }
        assert_ne!(code.hash(&key), code.hash(&SecretKey::new([8; 32])));
        for wrong in [
            "",
            "01234",
            "0123456789ABCDEFGHJKMNPQRS",
            "0123456789ABCDEFGHJKMNPQU",
            "0123456789ABCDEFGHJKMNPQ\u{660}",
            "0123456789ABCDEFGHJKMNPQ\0",
        ] {
            assert!(VoucherCode::parse(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn codes_differ_and_print_masked() {
        let [one, other] = [(); 2].map(|()| VoucherCode::generate());
        assert_ne!(one.expose(), other.expose());
        assert_eq!(
            VoucherCode::parse(&one.expose()).unwrap().expose(),
            one.expose()
        );
        assert_eq!(format!("{one:?}"), "VoucherCode(…)");
    }
}
