//! How long a wrong key takes does not depend on how much of it is right.
//!
//! As dudect does it: keys of two classes come in an order that nobody can foresee, and Welch's test says whether
//! their times differ. A busy machine makes both slower; only a difference that stays counts.

use std::net::Ipv4Addr;
use std::time::Instant;

use futures_util::FutureExt as _;
use hyper::Request;

use super::*;

const KEY: &str = "tg_0123456789abcdefghijklmnopqrstuvwxyz-ABCDEFG";
/// Samples of both classes together, fewer than addresses are remembered; and how often a difference has to be seen to
/// be one.
const SAMPLES: u32 = 9_000;
const ATTEMPTS: usize = 6;
/// What chance alone does not reach.
const THRESHOLD: f64 = 4.5;

/// A wrong key whose beginning is right.
fn wrong(right: usize) -> Parts {
    let mut key = KEY.as_bytes().to_vec();
    key[right..].fill(b'!');
    let request = Request::builder().uri("/").header("host", "localhost").header("x-api-key", key);
    request.body(()).unwrap().into_parts().0
}

/// Welch's t of two samples.
fn welch(samples: &[Vec<f64>; 2]) -> f64 {
    let [(n, mean, variance), (m, other_mean, other_variance)] = samples.each_ref().map(|times| {
        let n = times.len() as f64;
        let mean = times.iter().sum::<f64>() / n;
        (n, mean, times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / (n - 1.0))
    });
    (mean - other_mean) / (variance / n + other_variance / m).sqrt()
}

/// The times of two classes, without the longest tenth, which belong to the machine.
#[expect(clippy::disallowed_methods, reason = "time is what is measured")]
fn times(classes: &[Parts; 2], refuse: impl Fn(&Gate, &Parts, IpAddr) -> bool) -> [Vec<f64>; 2] {
    let (gate, mut random) = (gate(), fastrand::Rng::new());
    let mut samples = [Vec::new(), Vec::new()];
    for number in 0..SAMPLES {
        let class = usize::from(random.bool());
        // Each comes from an address of its own: who guesses twice is not looked at any more.
        let peer = Ipv4Addr::from_bits(0x0a00_0000 + number).into();
        let start = Instant::now();
        let refused = refuse(&gate, &classes[class], peer);
        samples[class].push(start.elapsed().as_nanos() as f64);
        assert!(refused);
    }
    let mut all: Vec<_> = samples.iter().flatten().copied().collect();
    all.sort_unstable_by(f64::total_cmp);
    let longest = all[all.len() * 9 / 10];
    samples.map(|times| times.into_iter().filter(|time| *time < longest).collect())
}

/// Whether the times differ, one time after the other that one looks.
fn differs(
    classes: &[Parts; 2],
    refuse: impl Fn(&Gate, &Parts, IpAddr) -> bool,
) -> impl Iterator<Item = bool> {
    (0..ATTEMPTS).map(move |_| welch(&times(classes, &refuse)).abs() >= THRESHOLD)
}

fn gate() -> Gate {
    let known = Known {
        callers: vec![Caller { id: "ann".parse().unwrap(), permissions: Vec::new() }],
        keys: vec![("ann".parse().unwrap(), KeyHash::of(KEY))],
        ..Known::default()
    };
    Gate::new(&DoorRules::default(), known).unwrap()
}

#[test]
fn a_wrong_key_takes_as_long_however_much_of_it_is_right() {
    for right in [1, KEY.len() / 2, KEY.len() - 1] {
        let refuse = |gate: &Gate, parts: &Parts, peer: IpAddr| {
            let ends = Ends { peer, local: peer, secure: false };
            gate.recognised(parts, ends, None, tokio::time::Instant::now()).now_or_never().unwrap().is_err()
        };
        let classes = [wrong(0), wrong(right)];
        assert!(!differs(&classes, refuse).all(|differs| differs), "{right} of {} bytes", KEY.len());
    }
}

/// The test sees what it looks for: a comparison that ends with the first byte that is wrong.
#[test]
fn a_comparison_that_ends_early_is_seen() {
    let refuse = |_: &Gate, parts: &Parts, _: IpAddr| {
        let shown = parts.headers["x-api-key"].as_bytes();
        let equal = shown.iter().zip(KEY.as_bytes()).take_while(|(one, other)| one == other).count();
        std::hint::black_box(equal) < KEY.len()
    };
    let classes = [wrong(0), wrong(KEY.len() - 1)];
    assert!(differs(&classes, refuse).any(|differs| differs));
}

/// Every beginning, and a key that is like none: a hundred thousand of each, and the middle of their times.
#[test]
#[ignore = "takes a minute"]
#[expect(clippy::disallowed_methods, reason = "time is what is measured")]
fn every_wrong_key_takes_as_long() {
    const EACH: usize = 100_000;
    let mut classes: Vec<_> = (0..=32).map(wrong).collect();
    let unknown =
        Request::builder().uri("/").header("host", "localhost").header("x-api-key", "y".repeat(KEY.len()));
    classes.push(unknown.body(()).unwrap().into_parts().0);
    let mut samples = vec![Vec::with_capacity(EACH + EACH / 10); classes.len()];
    let mut random = fastrand::Rng::new();
    for _ in 0..EACH * classes.len() / SAMPLES as usize {
        let gate = gate();
        for number in 0..SAMPLES {
            let class = random.usize(..classes.len());
            let peer = Ipv4Addr::from_bits(0x0a00_0000 + number).into();
            let ends = Ends { peer, local: peer, secure: false };
            let start = Instant::now();
            let known =
                gate.recognised(&classes[class], ends, None, tokio::time::Instant::now()).now_or_never();
            samples[class].push(start.elapsed().as_nanos() as f64);
            assert!(known.unwrap().is_err());
        }
    }
    let mut all: Vec<_> = samples.iter().flatten().copied().collect();
    all.sort_unstable_by(f64::total_cmp);
    let longest = all[all.len() * 9 / 10];
    samples.iter_mut().for_each(|times| times.sort_unstable_by(f64::total_cmp));
    let middles: Vec<_> = samples.iter().map(|times| times[times.len() / 2]).collect();
    samples.iter_mut().for_each(|times| times.retain(|time| *time < longest));
    let first = samples[0].clone();
    let t = samples[1..].iter().map(|times| welch(&[first.clone(), times.clone()]).abs()).fold(0.0, f64::max);
    let (least, most) =
        middles.iter().fold((f64::MAX, 0.0), |(least, most), time| (time.min(least), time.max(most)));
    eprintln!("medians {least} to {most} ns, bar: 2000 apart; the largest t {t:.1}, bar: {THRESHOLD}");
    assert!(most - least <= 2_000.0, "{middles:?}");
}
