//! Two definitions side by side, line by line.

use serde_json::Value as Json;

use crate::text::{MAX_SHOWN, cut};

/// Longest list of lines that is compared line by line; of longer ones, only equal beginnings and ends are matched.
const MAX_LINES: usize = 400;

/// A pair of lines. One of them may be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DifferenceRow {
    /// `same`, `gone`, `new` or `changed`.
    pub kind: &'static str,
    pub was: String,
    pub is: String,
}

/// Compares two values as indented JSON.
pub fn compare(was: Option<&Json>, is: Option<&Json>) -> Vec<DifferenceRow> {
    let lines = |value: Option<&Json>| -> Vec<String> {
        let text = value.map(|value| serde_json::to_string_pretty(value).unwrap_or_default());
        cut(text.unwrap_or_default(), MAX_SHOWN).lines().map(str::to_owned).collect()
    };
    compare_lines(&lines(was), &lines(is))
}

fn compare_lines(was: &[String], is: &[String]) -> Vec<DifferenceRow> {
    let same = |line: &String| DifferenceRow { kind: "same", was: line.clone(), is: line.clone() };
    let head = was.iter().zip(is).take_while(|(one, other)| one == other).count();
    let (old, new) = (&was[head..], &is[head..]);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(one, other)| one == other).count();
    let (old, new) = (&old[..old.len() - tail], &new[..new.len() - tail]);
    let mut rows: Vec<_> = was[..head].iter().map(same).collect();
    let common = if old.len().max(new.len()) <= MAX_LINES { common_lines(old, new) } else { Vec::new() };
    let (mut from, mut to) = (0, 0);
    for (at, other) in common.into_iter().chain([(old.len(), new.len())]) {
        changed(&old[from..at], &new[to..other], &mut rows);
        rows.extend(old.get(at).map(same));
        (from, to) = (at + 1, other + 1);
    }
    rows.extend(was[was.len() - tail..].iter().map(same));
    rows
}

/// Adds lines that have no equal ones on the other side.
fn changed(old: &[String], new: &[String], rows: &mut Vec<DifferenceRow>) {
    for at in 0..old.len().max(new.len()) {
        let kind = match (old.get(at), new.get(at)) {
            (Some(_), Some(_)) => "changed",
            (Some(_), None) => "gone",
            _ => "new",
        };
        let line = |lines: &[String]| lines.get(at).cloned().unwrap_or_default();
        rows.push(DifferenceRow { kind, was: line(old), is: line(new) });
    }
}

/// Positions of the longest common subsequence.
fn common_lines(old: &[String], new: &[String]) -> Vec<(usize, usize)> {
    let mut lengths = vec![vec![0_u16; new.len() + 1]; old.len() + 1];
    for at in (0..old.len()).rev() {
        for other in (0..new.len()).rev() {
            lengths[at][other] = if old[at] == new[other] {
                lengths[at + 1][other + 1] + 1
            } else {
                lengths[at + 1][other].max(lengths[at][other + 1])
            };
        }
    }
    let (mut at, mut other, mut common) = (0, 0, Vec::new());
    while at < old.len() && other < new.len() {
        if old[at] == new[other] {
            common.push((at, other));
            (at, other) = (at + 1, other + 1);
        } else if lengths[at + 1][other] >= lengths[at][other + 1] {
            at += 1;
        } else {
            other += 1;
        }
    }
    common
}

#[test]
fn lines_are_matched() {
    let check = |was: &str, is: &str, expected: &str| {
        let lines =
            |text: &str| text.split(' ').filter(|it| !it.is_empty()).map(str::to_owned).collect::<Vec<_>>();
        let rows = compare_lines(&lines(was), &lines(is));
        let shown: Vec<_> = rows.iter().map(|row| format!("{}:{}/{}", row.kind, row.was, row.is)).collect();
        assert_eq!(shown.join(" "), expected, "{was} | {is}");
    };
    check("a b c", "a b c", "same:a/a same:b/b same:c/c");
    check("a b c", "a x c", "same:a/a changed:b/x same:c/c");
    check("a c", "a b c d", "same:a/a new:/b same:c/c new:/d");
    check("a b c d e", "b x d", "gone:a/ same:b/b changed:c/x same:d/d gone:e/");
    check("", "a", "new:/a");
}
