//! Finds the end of the unescaped bytes in a JSON string: a quote, a backslash, a control character, or the end of
//! input.
//!
//! Scans 64 bytes at a time and keeps the resulting bitmask, so that a front-to-back pass reads every byte once,
//! however many strings and escapes there are. Invariant: never returns a position before the one asked about.

use wide::u8x16;

/// Bytes scanned at a time: one per bit of the mask.
const BLOCK: usize = 64;

/// Finds string ends in a byte slice.
pub struct StringEnds<'a> {
    bytes: &'a [u8],
    /// Start of the block scanned last.
    start: usize,
    /// Bitmask of the ends in that block; the lowest bit is the first byte.
    found: u64,
}

impl<'a> StringEnds<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        let mut ends = Self { bytes, start: 0, found: 0 };
        ends.scan_block(0);
        ends
    }

    /// Returns the first end at or after `at`. Past the input, every position is an end.
    #[inline]
    pub fn find_from(&mut self, at: usize) -> usize {
        let mut at = at;
        loop {
            if at >= self.bytes.len() {
                return at;
            }
            let within = at.wrapping_sub(self.start);
            let found = if within < BLOCK { self.found >> within } else { self.scan_block(at) };
            if found != 0 {
                return at + found.trailing_zeros() as usize;
            }
            at = self.start + BLOCK;
        }
    }

    /// Scans the block that starts at `at`.
    fn scan_block(&mut self, at: usize) -> u64 {
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
            // The end of the input is an end, too.
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
        fn agrees_with_bytewise_search(
            text in proptest::collection::vec(prop_oneof![0x1d_u8..0x24, 0x5a_u8..0x5e, any::<u8>(), Just(b'a')], 0..300),
            steps in proptest::collection::vec(0..70_usize, 1..12),
        ) {
            let mut ends = StringEnds::new(&text);
            let mut at = 0;
            for step in steps {
                let end = |byte: &u8| *byte < 0x20 || matches!(byte, b'"' | b'\\');
                let due = text.get(at..).and_then(|rest| rest.iter().position(end)).map_or(text.len().max(at), |found| at + found);
                let found = ends.find_from(at);
                prop_assert_eq!(found, due);
                at = found + step;
            }
        }
    }

    #[test]
    fn handles_block_boundaries() {
        for length in [0, 1, 63, 64, 65, 128] {
            let text = vec![b'x'; length];
            assert_eq!(StringEnds::new(&text).find_from(0), length);
            assert_eq!(StringEnds::new(&text).find_from(length + 1), length + 1);
        }
    }
}
