//! The language rules of `cargo xtask tidy`: words to avoid, duplicate type names, long commit subjects.
//!
//! Words are counted per crate and rule, and compared with `xtask/language-baseline.txt`. A count above its baseline
//! fails; `cargo xtask tidy --update` lowers the baseline after an improvement and never raises it.
//! Invariant: pure functions over the text files of the tree; only [`long_subjects`] asks git.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Problem, TextFile};
use crate::program;

/// The file with the counts that the tree must not exceed.
pub(super) const BASELINE: &str = "xtask/language-baseline.txt";

/// Longer subjects are cut off by `git log --oneline` and by most review tools.
const MAX_SUBJECT: usize = 72;

/// Commits before this day are not checked: their subjects can no longer be changed.
const SUBJECTS_SINCE: &str = "2026-11-18T00:00:00Z";

/// Openings of a doc comment that hide its subject. A doc comment begins with a verb or a noun phrase.
const WH_OPENINGS: [&str; 11] = [
    "What",
    "Who",
    "Whether",
    "How",
    "Where",
    "Why",
    concat!("Who", "ever"),
    "Whom",
    "Which",
    "When",
    "Whatever",
];

/// Relative pronouns that stand in for a noun.
const WH_WORDS: [&str; 6] = ["what", "who", "whom", concat!("who", "ever"), "whatever", "which"];

/// Words and phrases that name no actor, or no thing. Split, so that this file does not contain them.
const VAGUE_PHRASES: [&str; 11] = [
    concat!("who", "ever"),
    concat!("him", "self"),
    concat!("no", "body"),
    concat!("some", "body"),
    concat!("one's", " own"),
    concat!("is", " told"),
    concat!("are", " told"),
    concat!("was", " told"),
    concat!("cannot be", " had"),
    concat!("on its way", " out"),
    concat!("in one", " go"),
];

/// Metaphors that have a standard term: gateway or endpoint, pipeline, question queue.
const METAPHORS: [&str; 3] = [concat!("do", "or"), concat!("ro", "ad"), concat!("de", "sk")];

/// Counts by crate and rule, and for each the places, in the order of the files.
pub(super) type Counts = BTreeMap<(String, &'static str), Vec<String>>;

/// Counts every rule in every crate.
pub(super) fn count(files: &[TextFile]) -> Counts {
    let mut counts = Counts::new();
    for TextFile { path, text } in files.iter().filter(|file| is_counted(&file.path)) {
        let crate_name = crate_of(path);
        let mut add = |rule: &'static str, line: usize, times: usize| {
            let places = counts.entry((crate_name.to_owned(), rule)).or_default();
            places.extend(std::iter::repeat_n(format!("{path}:{line}"), times));
        };
        let mut in_doc = false;
        for (index, line) in text.lines().enumerate() {
            let (number, line) = (index + 1, line.trim_start());
            let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
            if let Some(first) = doc.filter(|_| !in_doc).and_then(|doc| doc.split_whitespace().next()) {
                add("wh-opening", number, usize::from(WH_OPENINGS.contains(&first)));
            }
            in_doc = doc.is_some();
            let prose = doc.or_else(|| line.strip_prefix("// "));
            match prose {
                Some(comment) => {
                    add("wh-word", number, words(comment, &WH_WORDS));
                    add("metaphor", number, words(comment, &METAPHORS));
                    add("vague", number, phrases(comment));
                }
                None => {
                    for literal in string_literals(line) {
                        add("vague", number, phrases(literal));
                        add("metaphor", number, words(literal, &METAPHORS));
                    }
                }
            }
        }
    }
    counts.retain(|_, places| !places.is_empty());
    counts
}

/// Compares the counts with the baseline.
pub(super) fn check(counts: &Counts, baseline: &str) -> Vec<Problem> {
    let allowed = parse(baseline);
    let over = counts.iter().filter_map(|((crate_name, rule), places)| {
        let limit = allowed.get(&(crate_name.as_str(), *rule)).copied().unwrap_or(0);
        (places.len() > limit).then(|| Problem {
            message: format!(
                "{} of rule `{rule}` in `{crate_name}`, at most {limit} are allowed",
                places.len()
            ),
            place: places.last().cloned().unwrap_or_default(),
            hint: format!("{}; `git diff` shows the lines you added", advice(rule)),
        })
    });
    over.collect()
}

/// The baseline after an improvement: each count is the lower one of the file and the tree.
pub(super) fn lowered(counts: &Counts, baseline: &str) -> String {
    let mut text = String::from(HEADER);
    for ((crate_name, rule), limit) in parse(baseline) {
        let found = counts.iter().find(|((name, r), _)| name == crate_name && *r == rule);
        let now = found.map_or(0, |(_, places)| places.len()).min(limit);
        if now > 0 {
            let _ = writeln!(text, "{crate_name} {rule} {now}");
        }
    }
    text
}

const HEADER: &str = "# Words counted by `cargo xtask tidy` (rules in xtask/src/tidy/language.rs). A count may only fall;\n\
                      # `cargo xtask tidy --update` lowers it.\n";

fn parse(baseline: &str) -> BTreeMap<(&str, &str), usize> {
    let lines = baseline.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
            [crate_name, rule, count] => Some(((crate_name, rule), count.parse().ok()?)),
            _ => None,
        })
        .collect()
}

fn advice(rule: &str) -> &'static str {
    match rule {
        "wh-opening" => {
            "begin a doc comment with a verb or a noun: \"Returns true if …\", \"The number of …\""
        }
        "wh-word" => "name the thing in place of what, who or which",
        "metaphor" => "use the standard term: gateway, endpoint, pipeline, question queue",
        _ => "name the actor: the caller, the client, the server, the operator",
    }
}

/// Two types of one name within a crate send a reader to the wrong one.
pub(super) fn duplicate_types(files: &[TextFile]) -> Vec<Problem> {
    let mut types: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for TextFile { path, text } in files.iter().filter(|file| is_counted(&file.path)) {
        for (index, line) in text.lines().enumerate() {
            if let Some(name) = type_name(line) {
                types.entry((crate_of(path), name)).or_default().push(format!("{path}:{}", index + 1));
            }
        }
    }
    let repeated = types.into_iter().filter(|(_, places)| places.len() > 1);
    repeated
        .map(|((crate_name, name), places)| Problem {
            message: format!("two types called `{name}` in `{crate_name}`: {}", places.join(", ")),
            place: places[1].clone(),
            hint: "give each a name that tells them apart".to_owned(),
        })
        .collect()
}

/// The name of a type that is defined at the beginning of this line.
fn type_name(line: &str) -> Option<&str> {
    let rest = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.strip_prefix(' ')?,
        None => line,
    };
    let rest =
        ["struct ", "enum ", "trait ", "union "].iter().find_map(|keyword| rest.strip_prefix(keyword))?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    Some(&rest[..end]).filter(|name| !name.is_empty())
}

/// Subjects of recent commits that are too long.
pub(super) fn long_subjects() -> anyhow::Result<Vec<Problem>> {
    let since = format!("--since={SUBJECTS_SINCE}");
    let log = program::stdout(program::git(["log", "--no-merges", "--format=%h %s", &since]))?;
    Ok(log.lines().filter_map(long_subject).collect())
}

fn long_subject(line: &str) -> Option<Problem> {
    let (commit, subject) = line.split_once(' ')?;
    let length = subject.chars().count();
    (length > MAX_SUBJECT).then(|| Problem {
        message: format!(
            "commit subject of {length} characters, at most {MAX_SUBJECT} are allowed: {subject}"
        ),
        place: commit.to_owned(),
        hint: "shorten it with `git commit --amend` or `git rebase`; details go into the body".to_owned(),
    })
}

/// Sources of the product and of `xtask`; tests, benches and test servers may say what they like.
fn is_counted(path: &str) -> bool {
    let skipped = ["/tests/", "/benches/", "/templates/", "crates/testkit/", "crates/conformance-server/"];
    path.ends_with(".rs")
        && (path.starts_with("crates/") || path.starts_with("xtask/"))
        && !path.ends_with("/tests.rs")
        && !skipped.iter().any(|part| path.contains(part))
}

fn crate_of(path: &str) -> &str {
    let mut parts = path.split('/');
    match (parts.next(), parts.next()) {
        (Some("crates"), Some(name)) => name,
        (Some(first), _) => first,
        _ => path,
    }
}

/// Counts these words, whatever their case.
fn words(text: &str, listed: &[&str]) -> usize {
    let all = text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '\'');
    all.filter(|word| listed.iter().any(|listed| word.eq_ignore_ascii_case(listed))).count()
}

fn phrases(text: &str) -> usize {
    let spaced: String = text
        .chars()
        .map(|c| if c.is_alphanumeric() || c == '\'' { c.to_ascii_lowercase() } else { ' ' })
        .collect();
    let spaced = format!(" {} ", spaced.split_whitespace().collect::<Vec<_>>().join(" "));
    VAGUE_PHRASES.iter().map(|phrase| spaced.matches(&format!(" {phrase} ")).count()).sum()
}

/// The contents of the string literals on a line. A literal that spans lines counts from its first line only, which
/// is enough for a count that may only fall.
fn string_literals(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut start, mut escaped) = (None, false);
    for (at, byte) in line.bytes().enumerate() {
        match (byte, start) {
            _ if escaped => escaped = false,
            (b'\\', Some(_)) => escaped = true,
            (b'"', Some(from)) => {
                found.push(&line[from..at]);
                start = None;
            }
            (b'"', None) => start = Some(at + 1),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Vec<TextFile> {
        vec![TextFile { path: "crates/toolgate-x/src/a.rs".to_owned(), text: text.to_owned() }]
    }

    #[track_caller]
    fn check_counts(text: &str, expected: &[(&str, usize)]) {
        let counts = count(&source(text));
        let found: Vec<_> = counts.iter().map(|((_, rule), places)| (*rule, places.len())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn counts_openings_words_and_phrases() {
        check_counts("/// What it is.\n/// Which one.\nstruct A;\n", &[("wh-opening", 1), ("wh-word", 2)]);
        check_counts("// Returns the first match.\nfn a() {}\n", &[]);
        check_counts(concat!("let a = \"who", "ever it is\";"), &[("vague", 1)]);
        check_counts(concat!("let a = \"say \\\"the do", "or\\\"\";"), &[("metaphor", 1)]);
        check_counts("let which = 1;", &[]);
    }

    #[test]
    fn a_count_may_fall_and_not_rise() {
        let counts = count(&source("/// What it is.\n\n/// Which one.\n"));
        assert_eq!(check(&counts, "toolgate-x wh-opening 2\ntoolgate-x wh-word 2\n").len(), 0);
        let problems = check(&counts, "toolgate-x wh-opening 1\ntoolgate-x wh-word 2\n");
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].message, "2 of rule `wh-opening` in `toolgate-x`, at most 1 are allowed");
        let lowered = lowered(&counts, "toolgate-x wh-opening 9\ntoolgate-x wh-word 1\ntoolgate-y vague 3\n");
        assert_eq!(lowered, format!("{HEADER}toolgate-x wh-opening 2\ntoolgate-x wh-word 1\n"));
    }

    #[test]
    fn finds_two_types_of_one_name() {
        let text =
            "pub(crate) struct Line<'a> {\n}\nenum Other {}\npub trait Line {}\nimpl Line for Other {}\n";
        let problems = duplicate_types(&source(text));
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].place, "crates/toolgate-x/src/a.rs:4");
    }

    #[test]
    fn a_subject_has_at_most_72_characters() {
        assert!(long_subject(&format!("abc1234 {}", "é".repeat(72))).is_none());
        assert!(long_subject(&format!("abc1234 {}", "x".repeat(73))).is_some());
    }
}
