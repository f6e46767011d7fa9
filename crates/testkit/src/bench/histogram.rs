//! Latency histogram with logarithmic buckets, each at most 1.6 % wide.
//!
//! Invariant: adding a value allocates nothing, so that measuring does not distort the measurement.

/// Buckets per power of two.
const STEPS: u64 = 64;
/// Buckets for every 64-bit number.
const BUCKETS: usize = 64 * STEPS as usize;

pub(super) struct Histogram {
    counts: Vec<u64>,
    all: u64,
    sum: u128,
    longest: u64,
}

impl Histogram {
    pub(super) fn new() -> Self {
        Self { counts: vec![0; BUCKETS], all: 0, sum: 0, longest: 0 }
    }

    pub(super) fn add(&mut self, nanoseconds: u64) {
        self.counts[bucket(nanoseconds)] += 1;
        self.all += 1;
        self.sum += u128::from(nanoseconds);
        self.longest = self.longest.max(nanoseconds);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
        self.all += other.all;
        self.sum += other.sum;
        self.longest = self.longest.max(other.longest);
    }

    /// Number of values added.
    pub(super) fn count(&self) -> u64 {
        self.all
    }

    pub(super) fn mean(&self) -> f64 {
        if self.all == 0 { 0.0 } else { self.sum as f64 / self.all as f64 }
    }

    pub(super) fn longest(&self) -> u64 {
        self.longest
    }

    /// Returns the value that this share of all values, from 0 to 1, does not exceed.
    pub(super) fn quantile(&self, share: f64) -> u64 {
        let wanted = (share * self.all as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return highest(bucket).min(self.longest);
            }
        }
        self.longest
    }
}

fn bucket(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let shift = u64::from(value.ilog2()) - u64::from(STEPS.ilog2());
    (shift * STEPS + (value >> shift)) as usize
}

/// Returns the largest number of a bucket.
fn highest(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * STEPS {
        return bucket;
    }
    let shift = bucket / STEPS - 1;
    ((bucket - shift * STEPS + 1) << shift) - 1
}

#[test]
fn bucket_ends_just_above_value() {
    for power in 0..63 {
        for offset in [0, 1, 3, 17] {
            let value = (1_u64 << power) + offset;
            let end = highest(bucket(value));
            assert!(end >= value && end - value <= value / STEPS, "{value} is in a bucket up to {end}");
        }
    }
}

#[test]
fn computes_quantiles() {
    let (mut odd, mut even) = (Histogram::new(), Histogram::new());
    (1..=1000).for_each(|n| if n % 2 == 0 { even.add(n) } else { odd.add(n) });
    odd.merge(&even);
    assert_eq!((odd.count(), odd.mean(), odd.longest()), (1000, 500.5, 1000));
    assert!((500..=508).contains(&odd.quantile(0.5)), "{}", odd.quantile(0.5));
    assert!((990..=1000).contains(&odd.quantile(0.99)), "{}", odd.quantile(0.99));
}
