//! Where the bytes end that mean themselves in a string: at a quote, a backslash, a control character, or the end.
//!
//! Sixty-four bytes are looked at together and what was found is kept, so whoever goes through a text from front to
//! back looks at every byte once, however many strings and escapes there are. Invariant: it never gives a place before
//! the one that was asked about.

use wide::u8x16;

/// Bytes that are looked at together: as many as a word has bits.
const BLOCK: usize = 64;

/// Finds ends in a text.
pub struct Ends<'a> {
    bytes: &'a [u8],
    /// Where the block begins that was looked at last.
    start: usize,
    /// A bit for each of its bytes that is an end; the lowest is the first.
    found: u64,
}

impl<'a> Ends<'a> {
    /// Looks at the beginning of a text.
    pub fn new(bytes: &'a [u8]) -> Self {
        let mut ends = Self { bytes, start: 0, found: 0 };
        ends.look(0);
        ends
    }

    /// The first end from here on. Behind the text there is nothing to find, and every place is an end.
    #[inline]
    pub fn from(&mut self, at: usize) -> usize {
        let mut at = at;
        loop {
            if at >= self.bytes.len() {
                return at;
            }
            let within = at.wrapping_sub(self.start);
            let found = if within < BLOCK { self.found >> within } else { self.look(at) };
            if found != 0 {
                return at + found.trailing_zeros() as usize;
            }
            at = self.start + BLOCK;
        }
    }

    /// Looks at the block that begins here.
    fn look(&mut self, at: usize) -> u64 {
        const LAST_CONTROL: u8 = 0x1f;
        let rest = &self.bytes[at..];
        let (parts, tail) = rest[..rest.len().min(BLOCK)].as_chunks();
        let (mut found, mut end) = (0, 0);
        for part in parts {
            let bytes = u8x16::new(*part);
            let is = |byte: u8| bytes.simd_eq(u8x16::splat(byte));
            let control = bytes.min(u8x16::splat(LAST_CONTROL)).simd_eq(bytes);
            found |= u64::from((control | is(b'"') | is(b'\\')).to_bitmask()) << end;
            end += part.len();
        }
        for byte in tail {
            found |= u64::from(matches!(byte, 0..=LAST_CONTROL | b'"' | b'\\')) << end;
            end += 1;
        }
        if end < BLOCK {
            // The end of the text is one, too.
            found |= 1 << end;
        }
        (self.start, self.found) = (at, found);
        found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn many_at_a_time_is_the_same_as_one(
            text in proptest::collection::vec(prop_oneof![0x1d_u8..0x24, 0x5a_u8..0x5e, any::<u8>(), Just(b'a')], 0..300),
            steps in proptest::collection::vec(0..70_usize, 1..12),
        ) {
            let mut ends = Ends::new(&text);
            let mut at = 0;
            for step in steps {
                let end = |byte: &u8| *byte < 0x20 || matches!(byte, b'"' | b'\\');
                let due = text.get(at..).and_then(|rest| rest.iter().position(end)).map_or(text.len().max(at), |found| at + found);
                let found = ends.from(at);
                prop_assert_eq!(found, due);
                at = found + step;
            }
        }
    }

    #[test]
    fn a_text_as_long_as_a_block() {
        for length in [0, 1, 63, 64, 65, 128] {
            let text = vec![b'x'; length];
            assert_eq!(Ends::new(&text).from(0), length);
            assert_eq!(Ends::new(&text).from(length + 1), length + 1);
        }
    }
}
