//! How long things took, in few numbers: 32 classes for each doubling, so a percentile is off by 3 % at most.
//!
//! Invariant: its size is fixed, whatever is counted.

const SUB_BITS: u32 = 5;
const SUB: u64 = 1 << SUB_BITS;
/// Enough for 2^40 microseconds, twelve days; what took longer counts as that.
const CLASSES: usize = ((40 - SUB_BITS + 1) as usize) << SUB_BITS;

/// Counts of values, by their size.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; CLASSES], total: 0 }
    }
}

impl Histogram {
    pub(crate) fn add(&mut self, value: u64) {
        self.counts[class(value)] += 1;
        self.total += 1;
    }

    /// The value that this share of all values does not exceed.
    pub(crate) fn percentile(&self, share: f64) -> u64 {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank"
        )]
        let rank = ((self.total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (class, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return top(class);
            }
        }
        0
    }
}

fn class(value: u64) -> usize {
    if value < SUB {
        return usize::try_from(value).unwrap_or_default();
    }
    let shift = value.ilog2() - SUB_BITS;
    let class = (u64::from(shift + 1) << SUB_BITS) + ((value >> shift) - SUB);
    usize::try_from(class).unwrap_or(CLASSES).min(CLASSES - 1)
}

/// The largest value of a class.
fn top(class: usize) -> u64 {
    let class = class as u64;
    if class < SUB {
        return class;
    }
    let shift = (class >> SUB_BITS) - 1;
    (((class & (SUB - 1)) + SUB + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn percentiles_of_a_thousand() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|value| histogram.add(value));
        for (share, exact) in [(0.5, 500), (0.9, 900), (0.99, 990), (1.0, 1000)] {
            let found = histogram.percentile(share);
            assert!((exact..=exact + exact / 32).contains(&found), "{share}: {found}");
        }
        assert_eq!(Histogram::default().percentile(0.5), 0);
    }

    proptest! {
        #[test]
        fn a_value_is_in_its_class(value in 0_u64..1 << 40) {
            let top = top(class(value));
            prop_assert!(top >= value && top - value <= value / 32, "{} {}", value, top);
        }
    }
}
