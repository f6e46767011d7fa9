//! Reads the output of `strace -c`: the number of system calls by name.
//!
//! Invariant: pure functions over the text of a summary.

use std::collections::BTreeMap;

/// Number of system calls by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SyscallSummary(BTreeMap<String, u64>);

impl SyscallSummary {
    /// Parses a summary. Returns `None` until its last line is written.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut counts = BTreeMap::new();
        for line in text.lines() {
            // `% time`, `seconds`, `usecs/call`, `calls`, `errors` (absent if there are none), `syscall`
            let fields: Vec<_> = line.split_whitespace().collect();
            let (Some(name), Some(Ok(calls))) = (fields.last(), fields.get(3).map(|field| field.parse()))
            else {
                continue;
            };
            if *name == "total" {
                return Some(Self(counts));
            }
            counts.insert((*name).to_owned(), calls);
        }
        None
    }

    /// Returns the system calls per call, most first: the difference to a summary with fewer calls.
    pub(super) fn per_call(&self, fewer: &Self, calls: u64) -> Vec<(String, f64)> {
        let difference = |(name, count): (&String, &u64)| {
            let before = fewer.0.get(name).copied().unwrap_or(0);
            (name.clone(), (*count as f64 - before as f64) / calls.max(1) as f64)
        };
        let mut list: Vec<_> = self.0.iter().map(difference).collect();
        list.sort_by(|left, right| right.1.total_cmp(&left.1));
        list
    }
}

#[cfg(test)]
const SAMPLE: &str = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 61.54    0.000512           2       200           sendto
 38.46    0.000320           1       300        12 recvfrom
------ ----------- ----------- --------- --------- ----------------
100.00    0.000832           1       500        12 total
";

#[test]
fn reads_a_whole_summary_only() {
    let summary = SyscallSummary::parse(SAMPLE).unwrap();
    assert_eq!(summary.0, [("recvfrom".to_owned(), 300), ("sendto".to_owned(), 200)].into());
    assert_eq!(SyscallSummary::parse(SAMPLE.rsplit_once("100.00").unwrap().0), None);
}

#[test]
fn subtracts_the_run_with_fewer_calls() {
    let fewer = SyscallSummary([("recvfrom".to_owned(), 100)].into());
    let calls = SyscallSummary::parse(SAMPLE).unwrap().per_call(&fewer, 100);
    assert_eq!(calls, [("recvfrom".to_owned(), 2.0), ("sendto".to_owned(), 2.0)]);
}
