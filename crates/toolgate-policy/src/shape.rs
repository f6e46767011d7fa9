//! The shape of rules, looked at before they are parsed: the parser of Cedar goes as deep as they do, and a
//! stack that is used up ends the process.
//!
//! Invariant: one pass over the text, and nothing else is judged here than how much there is of it.

use crate::rules::RuleError;

/// The most bytes of rules: thousands of them.
const LARGEST: usize = 1 << 20;
/// Brackets in brackets. Twice as many are too much for a stack of 2 MiB.
const DEEPEST: usize = 16;
/// `if` in one rule; each may be in the `else` of the one before.
const MOST_IFS: usize = 64;
/// Characters in one rule that make an expression longer: `&& || + - * .`.
const MOST_OPERATORS: usize = 4_096;

/// What is counted of one rule.
#[derive(Default)]
struct Counts {
    depth: usize,
    ifs: usize,
    operators: usize,
}

/// Rules that are too large or too deep to be parsed are told, at the place where they get so.
pub(crate) fn check(text: &str) -> Result<(), RuleError> {
    if text.len() > LARGEST {
        return Err(too_much(format!("the rules are larger than {} MiB", LARGEST >> 20), 0));
    }
    let bytes = text.as_bytes();
    let (mut at, mut counts) = (0, Counts::default());
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        at += 1;
        match byte {
            b'"' => at = end_of_string(bytes, at),
            b'/' if bytes.get(at) == Some(&b'/') => {
                at = bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| at + end);
            }
            b'(' | b'[' | b'{' => counts.depth += 1,
            b')' | b']' | b'}' => counts.depth = counts.depth.saturating_sub(1),
            b'&' | b'|' | b'+' | b'-' | b'*' | b'.' => counts.operators += 1,
            b';' => counts = Counts::default(),
            _ if is_word(byte) => {
                at = bytes[at..].iter().position(|byte| !is_word(*byte)).map_or(bytes.len(), |end| at + end);
                counts.ifs += usize::from(&bytes[start..at] == b"if");
            }
            _ => {}
        }
        for (count, most, what) in [
            (counts.depth, DEEPEST, "brackets in brackets"),
            (counts.ifs, MOST_IFS, "`if`s in one rule"),
            (counts.operators, MOST_OPERATORS, "operators in one rule"),
        ] {
            if count > most {
                return Err(too_much(format!("more than {most} {what}"), start));
            }
        }
    }
    Ok(())
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn end_of_string(bytes: &[u8], mut at: usize) -> usize {
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn too_much(message: String, at: usize) -> RuleError {
    RuleError { message, hint: Some("make more rules of it, or use sets".to_owned()), at: Some(at..at) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Rules;

    fn rule(condition: &str) -> String {
        format!("permit(principal, action, resource) when {{ {condition} }};")
    }

    /// What is told of a rule that repeats something this often.
    fn told(before: &str, middle: &str, after: &str, count: usize) -> String {
        let text = rule(&format!("{}{middle}{}", before.repeat(count), after.repeat(count)));
        check(&text).err().map(|error| error.message).unwrap_or_default()
    }

    #[test]
    fn what_is_too_deep_is_told() {
        assert_eq!(told("(", "true", ")", 15), "");
        assert_eq!(told("(", "true", ")", 16), "more than 16 brackets in brackets");
        assert_eq!(told("[", "", "]", 100_000), "more than 16 brackets in brackets");
        assert_eq!(told("if true then true else ", "true", "", 65), "more than 64 `if`s in one rule");
        assert_eq!(told("true && ", "true", "", 100_000), "more than 4096 operators in one rule");
        assert_eq!(told("context", "", ".x", 5_000), "more than 4096 operators in one rule");
        assert!(check(&" ".repeat(LARGEST + 1)).is_err());
    }

    #[test]
    fn what_only_looks_deep_is_not() {
        assert_eq!(told("", r#"resource.name like "((((((((((((((((((((*""#, "", 1), "");
        assert_eq!(told("", "true // ((((((((((((((((((((((\n", "", 1), "");
        assert_eq!(told("", r#""\"((((((((((((((((((((" == "\\""#, "", 1), "");
        assert_eq!(check(&rule("((((true))))").repeat(1_000)), Ok(()));
        assert_eq!(told("", r#"principal.permissions.contains("(((((("#, "", 1), "");
    }

    /// What passes can be parsed on the stack of a thread.
    #[test]
    fn what_passes_does_not_use_up_the_stack() {
        let ifs = "if true then true else ".repeat(MOST_IFS);
        let deep = format!("{}{ifs}true{}", "(".repeat(DEEPEST - 1), ")".repeat(DEEPEST - 1));
        for condition in
            [deep, "true && ".repeat(MOST_OPERATORS / 2) + "true", "1 + ".repeat(MOST_OPERATORS) + "1 > 0"]
        {
            let text = rule(&condition);
            assert_eq!(check(&text), Ok(()));
            let _ = Rules::new(&text);
        }
    }
}
