//! What a target of the fuzzer gets in plain tests: its seeds, and some thousand mutants of them, always the same.
//! Included by the tests of the crates that have targets; `cargo xtask fuzz` looks further.

/// Bytes that mean something to some reader.
const ODD: &[u8] = b"\0\"\\{}[]:,\n\r $#=\x80\xff0e-+";
/// Mutants of each seed.
const MUTANTS: u64 = 400;

/// Runs a target on all of its inputs. One that fails is shown.
pub(crate) fn run(name: &str, target: impl Fn(&[u8]) + std::panic::RefUnwindSafe) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(name);
    let mut files: Vec<_> = fs_err::read_dir(folder)
        .expect("it has seeds")
        .map(|file| file.expect("it can be read").path())
        .collect();
    files.sort();
    let seeds: Vec<Vec<u8>> = files.iter().map(|file| fs_err::read(file).expect("it can be read")).collect();
    let mut chance = 0x9e37_79b9_7f4a_7c15_u64;
    for seed in &seeds {
        for round in 0..MUTANTS {
            let mut input = seed.clone();
            for _ in 0..round.min(4) {
                mutate(&mut input, &seeds, &mut chance);
            }
            let outcome = std::panic::catch_unwind(|| target(&input));
            assert!(outcome.is_ok(), "`{name}` fails with {}", input.escape_ascii());
        }
    }
}

/// One change: a byte, a piece that goes or comes twice, or a piece of another seed.
fn mutate(input: &mut Vec<u8>, seeds: &[Vec<u8>], chance: &mut u64) {
    let mut next = |below: usize| {
        *chance ^= *chance << 13;
        *chance ^= *chance >> 7;
        *chance ^= *chance << 17;
        usize::try_from(*chance % below.max(1) as u64).unwrap_or(0)
    };
    let (at, length) = (next(input.len() + 1), next(16) + 1);
    let end = (at + length).min(input.len());
    let begin = at.min(end);
    match next(5) {
        0 => input.insert(at, ODD[next(ODD.len())]),
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
