//! Checks that the time to reject a wrong key does not depend on its matching prefix.
//!
//! Like dudect: keys of two classes arrive in random order, and Welch's t-test compares their times. A busy machine
//! slows down both classes; only a repeated difference counts.

use std::net::Ipv4Addr;
use std::time::Instant;

use futures_util::FutureExt as _;
use http::Request;

use super::*;

const KEY: &str = "tg_0123456789abcdefghijklmnopqrstuvwxyz-ABCDEFG";
/// Samples of both classes together, fewer than the failure table holds. A difference must appear in every attempt.
const SAMPLES: u32 = 9_000;
const ATTEMPTS: usize = 6;
/// Threshold that chance alone does not reach.
const THRESHOLD: f64 = 4.5;

/// A wrong key with a matching prefix of this length.
fn wrong_key(right: usize) -> Parts {
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

/// Times of two classes, without the slowest tenth, which is noise of the machine.
#[expect(clippy::disallowed_methods, reason = "this test measures time")]
fn times(classes: &[Parts; 2], reject: impl Fn(&Authenticator, &Parts, IpAddr) -> bool) -> [Vec<f64>; 2] {
    let (authenticator, mut random) = (authenticator(), fastrand::Rng::new());
    let mut samples = [Vec::new(), Vec::new()];
    for number in 0..SAMPLES {
        let class = usize::from(random.bool());
        // Each sample has its own address, so that all of them get the same response.
        let peer = Ipv4Addr::from_bits(0x0a00_0000 + number).into();
        let start = Instant::now();
        let rejected = reject(&authenticator, &classes[class], peer);
        samples[class].push(start.elapsed().as_nanos() as f64);
        assert!(rejected);
    }
    let mut all: Vec<_> = samples.iter().flatten().copied().collect();
    all.sort_unstable_by(f64::total_cmp);
    let longest = all[all.len() * 9 / 10];
    samples.map(|times| times.into_iter().filter(|time| *time < longest).collect())
}

/// Yields, for each attempt, true if the times differ.
fn differs(
    classes: &[Parts; 2],
    reject: impl Fn(&Authenticator, &Parts, IpAddr) -> bool,
) -> impl Iterator<Item = bool> {
    (0..ATTEMPTS).map(move |_| welch(&times(classes, &reject)).abs() >= THRESHOLD)
}

fn authenticator() -> Authenticator {
    let known = CallerDirectory {
        callers: vec![Caller::new("ann".parse().unwrap(), Vec::new())],
        keys: vec![("ann".parse().unwrap(), KeyHash::of(KEY), "test".to_owned())],
        ..CallerDirectory::default()
    };
    Authenticator::new(&ServeConfig::default(), known).unwrap()
}

#[test]
fn wrong_key_time_does_not_depend_on_the_matching_prefix() {
    for right in [1, KEY.len() / 2, KEY.len() - 1] {
        let reject = |authenticator: &Authenticator, parts: &Parts, peer: IpAddr| {
            let ends = ConnectionEnds { peer, client: peer, local: peer, secure: false };
            authenticator
                .identify(&authenticator.state.load(), parts, ends, None, tokio::time::Instant::now())
                .now_or_never()
                .unwrap()
                .is_err()
        };
        let classes = [wrong_key(0), wrong_key(right)];
        assert!(!differs(&classes, reject).all(|differs| differs), "{right} of {} bytes", KEY.len());
    }
}

/// The test detects a comparison that stops at the first wrong byte.
#[test]
fn detects_an_early_exit_comparison() {
    let reject = |_: &Authenticator, parts: &Parts, _: IpAddr| {
        let shown = parts.headers["x-api-key"].as_bytes();
        let equal = shown.iter().zip(KEY.as_bytes()).take_while(|(one, other)| one == other).count();
        std::hint::black_box(equal) < KEY.len()
    };
    let classes = [wrong_key(0), wrong_key(KEY.len() - 1)];
    assert!(differs(&classes, reject).any(|differs| differs));
}

/// Every prefix length, and an unrelated key: a hundred thousand samples each, compared by their medians.
#[test]
#[ignore = "takes a minute"]
#[expect(clippy::disallowed_methods, reason = "this test measures time")]
fn every_wrong_key_takes_the_same_time() {
    const EACH: usize = 100_000;
    let mut classes: Vec<_> = (0..=32).map(wrong_key).collect();
    let unknown =
        Request::builder().uri("/").header("host", "localhost").header("x-api-key", "y".repeat(KEY.len()));
    classes.push(unknown.body(()).unwrap().into_parts().0);
    let mut samples = vec![Vec::with_capacity(EACH + EACH / 10); classes.len()];
    let mut random = fastrand::Rng::new();
    for _ in 0..EACH * classes.len() / SAMPLES as usize {
        let authenticator = authenticator();
        for number in 0..SAMPLES {
            let class = random.usize(..classes.len());
            let peer = Ipv4Addr::from_bits(0x0a00_0000 + number).into();
            let ends = ConnectionEnds { peer, client: peer, local: peer, secure: false };
            let start = Instant::now();
            let known = authenticator
                .identify(
                    &authenticator.state.load(),
                    &classes[class],
                    ends,
                    None,
                    tokio::time::Instant::now(),
                )
                .now_or_never();
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
