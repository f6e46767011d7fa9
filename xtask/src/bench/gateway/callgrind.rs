//! Reads the output of `valgrind --tool=callgrind`: instructions per function, and calls of the allocator.
//!
//! Invariant: pure functions over the text of a profile. The format is described in the manual of Valgrind, "Callgrind
//! Format Specification".

use std::collections::{BTreeMap, HashMap};

/// Functions that allocate memory: those of the C library, and those of mimalloc.
const ALLOCATORS: [&str; 14] = [
    "malloc",
    "calloc",
    "realloc",
    "aligned_alloc",
    "posix_memalign",
    "memalign",
    "mi_malloc",
    "mi_calloc",
    "mi_zalloc",
    "mi_realloc",
    "mi_malloc_aligned",
    "mi_zalloc_aligned",
    "mi_realloc_aligned",
    "mi_heap_malloc",
];

/// Parts of the names of SHA-256 block functions, in lower case: of the crate `sha2` and of AWS-LC.
const SHA256_NAMES: [&str; 2] = ["sha256", "sha2::"];

/// The profile of one process.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Profile {
    /// Instructions of each function, without those of the functions it calls.
    instructions: BTreeMap<String, u64>,
    /// Calls of functions that allocate memory.
    allocations: u64,
}

/// The difference of two profiles, per call.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct CallProfile {
    /// Instructions without those of SHA-256: Valgrind hides the processor's own instructions for it, so it looks slow.
    pub(super) instructions: f64,
    pub(super) sha256_instructions: f64,
    pub(super) allocations: f64,
    /// Instructions of each function, most first.
    pub(super) functions: Vec<(String, f64)>,
}

impl Profile {
    /// Parses an output file.
    pub(super) fn parse(text: &str) -> Self {
        let mut profile = Self::default();
        let mut names: HashMap<&str, &str> = HashMap::new();
        let (mut function, mut callee) = ("", "");
        let mut positions = 1;
        let mut is_call_cost = false;
        for line in text.lines() {
            if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
                // The line after `calls=` has the cost of the called function; that is counted there.
                if !std::mem::take(&mut is_call_cost) {
                    let cost = line.split_whitespace().nth(positions).and_then(|cost| cost.parse().ok());
                    *profile.instructions.entry(function.to_owned()).or_default() += cost.unwrap_or(0);
                }
                continue;
            }
            let Some((key, value)) = line.split_once(['=', ':']) else { continue };
            match key {
                "fn" => function = function_name(&mut names, value),
                "cfn" => callee = function_name(&mut names, value),
                "calls" => {
                    is_call_cost = true;
                    // An allocator may be built on another one.
                    if is_allocator(callee) && !is_allocator(function) {
                        let calls = value.split_whitespace().next().and_then(|calls| calls.parse().ok());
                        profile.allocations += calls.unwrap_or(0);
                    }
                }
                "positions" => positions = value.split_whitespace().count(),
                _ => {}
            }
        }
        profile
    }

    /// Returns the cost of a call: the difference to a profile with fewer calls. All costs that do not depend on the
    /// number of calls, such as startup, cancel out.
    pub(super) fn per_call(&self, fewer: &Self, calls: u64) -> CallProfile {
        let calls = calls.max(1) as f64;
        let difference = |more: u64, fewer: u64| (more as f64 - fewer as f64) / calls;
        let mut functions: Vec<(String, f64)> = self
            .instructions
            .iter()
            .map(|(name, cost)| {
                let before = fewer.instructions.get(name).copied().unwrap_or(0);
                (name.clone(), difference(*cost, before))
            })
            .collect();
        functions.sort_by(|left, right| right.1.total_cmp(&left.1));
        let (sha256, others): (Vec<_>, Vec<_>) = functions.iter().partition(|(name, _)| is_sha256(name));
        // The sum of nothing is -0.0.
        let sum = |functions: Vec<&(String, f64)>| functions.iter().map(|(_, cost)| cost).sum::<f64>() + 0.0;
        CallProfile {
            instructions: sum(others),
            sha256_instructions: sum(sha256),
            allocations: difference(self.allocations, fewer.allocations),
            functions,
        }
    }
}

/// Resolves a compressed name: `(ID) NAME` defines it and `(ID)` refers to it.
fn function_name<'a>(names: &mut HashMap<&'a str, &'a str>, value: &'a str) -> &'a str {
    let Some((id, name)) = value.split_once(')').filter(|_| value.starts_with('(')) else { return value };
    match name.trim_start() {
        "" => names.get(id).copied().unwrap_or("unknown"),
        name => {
            names.insert(id, name);
            name
        }
    }
}

fn is_allocator(name: &str) -> bool {
    ALLOCATORS.contains(&name)
}

fn is_sha256(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SHA256_NAMES.iter().any(|part| name.contains(part))
}

#[cfg(test)]
fn sample(main: u32, allocations: u32) -> String {
    format!(
        "# callgrind format\nversion: 1\npositions: line\nevents: Ir\nsummary: 1\n\n\
         ob=(1) /bin/program\nfl=(1) main.rs\nfn=(1) main\n16 {main}\n\
         cob=(2) libc.so\ncfi=(2) malloc.c\ncfn=(2) malloc\ncalls={allocations} 50\n16 400\n+1 5\n\
         fn=(3) sha2::sha256::compress\n0 1000\n\n\
         ob=(2)\nfl=(2)\nfn=(2)\n50 300\ncfn=(4) realloc\ncalls=7 60\n* 100\nfn=(4)\n60 100\ntotals: 1\n"
    )
}

#[test]
fn counts_each_instruction_once_and_nested_allocators_not_at_all() {
    let profile = Profile::parse(&sample(20, 3));
    let instructions: Vec<_> =
        profile.instructions.iter().map(|(name, cost)| (name.as_str(), *cost)).collect();
    let expected = [("main", 25), ("malloc", 300), ("realloc", 100), ("sha2::sha256::compress", 1000)];
    assert_eq!(instructions, expected);
    assert_eq!(profile.allocations, 3);
}

#[test]
fn the_cost_of_a_call_is_the_difference_of_two_runs() {
    let (fewer, more) = (Profile::parse(&sample(20, 3)), Profile::parse(&sample(220, 13)));
    let call = more.per_call(&fewer, 10);
    assert_eq!((call.instructions, call.sha256_instructions, call.allocations), (20.0, 0.0, 1.0));
    assert_eq!(call.functions.first(), Some(&("main".to_owned(), 20.0)));
    assert!(Profile::default().per_call(&fewer, 1).instructions.is_sign_positive());
    let all = more.per_call(&Profile::default(), 1);
    assert_eq!((all.instructions, all.sha256_instructions), (625.0, 1000.0));
}
