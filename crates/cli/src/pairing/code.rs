// SPDX-License-Identifier: Apache-2.0
//! The code of a pairing: eight digits, of which the first two are public.

use rand_core::RngCore;
use std::fmt;
use std::str::FromStr;

const DIGITS: usize = 8;
const CODES: u32 = 100_000_000;
/// Number of codes with the same selector, so that 19.9 bits are secret.
const CODES_PER_SELECTOR: u32 = 1_000_000;

/// A code such as `4821-7390`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Code(u32);

/// Text that is no code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "found '{0}'; allowed: the eight digits that 'tautline pair' prints at the base, such as 4821-7390"
)]
pub struct InvalidCode(String);

impl Code {
    /// Draws a code.
    pub fn draw(random: &mut impl RngCore) -> Self {
        // Numbers from the largest multiple of `CODES` on are drawn again, so that all codes are equally
        // likely.
        let limit = u32::MAX - u32::MAX % CODES;
        loop {
            let drawn = random.next_u32();
            if drawn < limit {
                return Self(drawn % CODES);
            }
        }
    }

    /// The first two digits. They are public: a query carries them, so that a robot does not use
    /// up the tries of another base on the same network.
    pub fn selector(self) -> u8 {
        (self.0 / CODES_PER_SELECTOR) as u8
    }

    /// The password of the key agreement: all digits, as ASCII.
    pub fn password(self) -> [u8; DIGITS] {
        let mut rest = self.0;
        let mut digits = [0; DIGITS];
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        digits
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:04}", self.0 / 10_000, self.0 % 10_000)
    }
}

/// Logs and errors do not show codes.
impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Code(..)")
    }
}

/// Whether a text was probably meant as a code: it has digits, and separators between them.
pub fn looks_like_code(text: &str) -> bool {
    text.contains(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || matches!(c, '-' | ' '))
}

impl FromStr for Code {
    type Err = InvalidCode;

    fn from_str(text: &str) -> Result<Self, InvalidCode> {
        let digits: String = text.trim().chars().filter(|c| !matches!(c, '-' | ' ')).collect();
        let is_code = digits.len() == DIGITS && digits.bytes().all(|it| it.is_ascii_digit());
        let shown = || InvalidCode(tautline_gateway::plain::plain(text, 40));
        digits.parse().ok().filter(|_| is_code).map(Self).ok_or_else(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::OsRng;

    #[test]
    fn codes_are_read_as_written_and_with_other_separators() {
        for _ in 0..1000 {
            let code = Code::draw(&mut OsRng);
            assert_eq!(code.to_string().parse(), Ok(code));
            assert_eq!(code.to_string().replace('-', "").parse(), Ok(code));
            assert_eq!(code.to_string().as_bytes()[..4], code.password()[..4]);
        }
        let code: Code = " 0421 7390\n".parse().unwrap();
        assert_eq!((code.selector(), code.to_string().as_str()), (4, "0421-7390"));
        assert_eq!(&code.password(), b"04217390");
        assert_eq!(format!("{code:?}"), "Code(..)");
    }

    #[test]
    fn other_text_is_refused() {
        for wrong in ["", "4821-739", "4821-73901", "4821-739a", "robot@10.0.0.1", "+4821739"] {
            assert!(wrong.parse::<Code>().is_err(), "{wrong}");
        }
        assert!(looks_like_code("4821-739") && !looks_like_code("robot1") && !looks_like_code("-"));
    }
}
