//! Runs a fuzz target in plain tests, on its seeds and some thousand deterministic mutants of them. Included by the
//! tests of the crates that have targets; `cargo xtask fuzz` runs the real fuzzer.

/// Bytes with a meaning in some input format.
const SPECIAL_BYTES: &[u8] = b"\0\"\\{}[]:,\n\r $#=\x80\xff0e-+";
/// Mutants per seed.
const MUTANTS: u64 = 400;

/// Runs a target on all of its inputs. Panics with the first input that fails.
pub(crate) fn run(name: &str, target: impl Fn(&[u8]) + std::panic::RefUnwindSafe) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(name);
    let mut files: Vec<_> = fs_err::read_dir(folder)
        .expect("the target has seeds")
        .map(|file| file.expect("the seed is readable").path())
        .collect();
    files.sort();
    let seeds: Vec<Vec<u8>> =
        files.iter().map(|file| fs_err::read(file).expect("the seed is readable")).collect();
    let mut random_state = 0x9e37_79b9_7f4a_7c15_u64;
    for seed in &seeds {
        for round in 0..MUTANTS {
            let mut input = seed.clone();
            for _ in 0..round.min(4) {
                mutate(&mut input, &seeds, &mut random_state);
            }
            let outcome = std::panic::catch_unwind(|| target(&input));
            assert!(outcome.is_ok(), "`{name}` fails with {}", input.escape_ascii());
        }
    }
}

/// Applies one mutation: changes a byte, removes or duplicates a piece, or inserts a piece of another seed.
fn mutate(input: &mut Vec<u8>, seeds: &[Vec<u8>], random_state: &mut u64) {
    let mut next = |below: usize| {
        *random_state ^= *random_state << 13;
        *random_state ^= *random_state >> 7;
        *random_state ^= *random_state << 17;
        usize::try_from(*random_state % below.max(1) as u64).unwrap_or(0)
    };
    let (at, length) = (next(input.len() + 1), next(16) + 1);
    let end = (at + length).min(input.len());
    let begin = at.min(end);
    match next(5) {
        0 => input.insert(at, SPECIAL_BYTES[next(SPECIAL_BYTES.len())]),
        1 => drop(input.drain(begin..end)),
        2 => {
            let piece = input[begin..end].to_vec();
            input.splice(at..at, piece);
        }
        3 => {
            let other = &seeds[next(seeds.len())];
            let from = next(other.len());
            let piece = other[from..(from + length).min(other.len())].to_vec();
            input.splice(at..at, piece);
        }
        _ => {
            if let Some(byte) = input.get_mut(begin) {
                *byte ^= 1 << next(8);
            }
        }
    }
}
