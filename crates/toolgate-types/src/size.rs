//! Sizes as people write them: `64KiB`, `10MB`, `4096`.
//!
//! Invariant: more than zero. `k`, `M` and `G` alone are rejected, because they are ambiguous: some readers take them
//! for powers of ten, others for powers of two.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// Units, largest first. `Display` uses the first one that divides the size.
const UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("B", 1),
];

/// Reason why a string is not a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Not a number with a known unit.
    #[error("a number of bytes, or one with `KiB`, `MiB`, `GiB`, `KB`, `MB` or `GB` is expected")]
    Malformed,
    /// Zero or negative.
    #[error("a size must be more than zero")]
    NotPositive,
    /// Does not fit into 64 bits.
    #[error("the size is too large")]
    TooLarge,
}

/// Number of bytes, more than zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(NonZeroU64);

impl ByteSize {
    /// Creates a size, for defaults in code.
    ///
    /// # Panics
    /// If `count` is zero.
    pub const fn from_bytes(count: u64) -> Self {
        match NonZeroU64::new(count) {
            Some(bytes) => Self(bytes),
            None => panic!("a size is more than zero"),
        }
    }

    /// Creates a size in mebibytes, for defaults in code.
    ///
    /// # Panics
    /// If `count` is zero.
    pub const fn from_mib(count: u32) -> Self {
        Self::from_bytes((count as u64) << 20)
    }

    /// Number of bytes, saturated at `usize::MAX`.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0.get()).unwrap_or(usize::MAX)
    }

    /// Number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0.get()
    }
}

impl FromStr for ByteSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let text = text.trim();
        if text.starts_with('-') {
            return Err(SizeError::NotPositive);
        }
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let unit = unit.trim_start();
        if number.is_empty() {
            return Err(SizeError::Malformed);
        }
        let factor = match UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
            Some((_, factor)) => *factor,
            None if unit.is_empty() => 1,
            None => return Err(SizeError::Malformed),
        };
        let number: u64 = number.parse().map_err(|_| SizeError::TooLarge)?;
        let bytes = number.checked_mul(factor).ok_or(SizeError::TooLarge)?;
        NonZeroU64::new(bytes).map(Self).ok_or(SizeError::NotPositive)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes();
        let fits = UNITS.iter().find(|(_, factor)| bytes.is_multiple_of(*factor));
        let (name, factor) = fits.expect("every number is divided by one");
        write!(f, "{}{name}", bytes / factor)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: Result<&str, SizeError>) {
        let parsed = text.parse::<ByteSize>().map(|size| size.to_string());
        assert_eq!(parsed.as_deref(), expected.as_ref().map(|text| *text), "{text:?}");
    }

    #[test]
    fn parses_spellings() {
        check("4096", Ok("4KiB"));
        check("64KiB", Ok("64KiB"));
        check("1 mib", Ok("1MiB"));
        check("10MB", Ok("10MB"));
        check("1025", Ok("1025B"));
        check("", Err(SizeError::Malformed));
        check("4k", Err(SizeError::Malformed));
        check("MiB", Err(SizeError::Malformed));
        check("0", Err(SizeError::NotPositive));
        check("-1", Err(SizeError::NotPositive));
        check("99999999999GiB", Err(SizeError::TooLarge));
    }

    proptest! {
        #[test]
        fn display_round_trips(bytes in 1_u64..) {
            let size = ByteSize(NonZeroU64::new(bytes).unwrap());
            prop_assert_eq!(size.to_string().parse(), Ok(size));
        }
    }
}
