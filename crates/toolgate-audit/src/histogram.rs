//! A histogram of durations with 32 buckets per power of two, so a percentile is off by at most 3 %.
//!
//! Invariant: its size is fixed, however many values are added.

const SUB_BITS: u32 = 5;
const SUB: u64 = 1 << SUB_BITS;
/// Enough for 2^40 microseconds, twelve days; longer durations count in the last bucket.
const BUCKETS: usize = ((40 - SUB_BITS + 1) as usize) << SUB_BITS;

/// Counts of values per bucket.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0 }
    }
}

impl Histogram {
    pub(crate) fn add(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.total += 1;
    }

    /// Returns the value that the given share of all values does not exceed.
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
                return bucket_max(class);
            }
        }
        0
    }
}

fn bucket(value: u64) -> usize {
    if value < SUB {
        return usize::try_from(value).unwrap_or_default();
    }
    let shift = value.ilog2() - SUB_BITS;
    let class = (u64::from(shift + 1) << SUB_BITS) + ((value >> shift) - SUB);
    usize::try_from(class).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

/// Returns the largest value of a bucket.
fn bucket_max(class: usize) -> u64 {
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
    fn percentiles_are_within_3_percent() {
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
        fn value_is_within_its_bucket(value in 0_u64..1 << 40) {
            let top = bucket_max(bucket(value));
            prop_assert!(top >= value && top - value <= value / 32, "{} {}", value, top);
        }
    }
}
