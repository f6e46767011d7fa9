//! Size limits for rules, checked before parsing: Cedar's parser recurses as deeply as the rules are nested, and a
//! stack overflow would abort the process.
//!
//! Invariant: one pass over the source, and only its size is checked here.

use crate::rules::RuleError;

/// Bytes of all rules together, enough for thousands.
const MAX_BYTES: usize = 1 << 20;
/// Nesting of brackets. Twice as much overflows a stack of 2 MiB.
const MAX_DEPTH: usize = 16;
/// `if`s in one rule; each may be nested in the `else` of the one before.
const MAX_IFS: usize = 64;
/// Operator characters in one rule: `&& || + - * .`. Each makes the expression longer.
const MAX_OPERATORS: usize = 4_096;

/// The size of one rule, as far as it has been read.
#[derive(Default)]
struct RuleSize {
    depth: usize,
    ifs: usize,
    operators: usize,
}

/// Rejects rules that are too large or too deeply nested to parse, at the position of the excess.
pub(crate) fn check(text: &str) -> Result<(), RuleError> {
    if text.len() > MAX_BYTES {
        return Err(limit_error(format!("the rules are larger than {} MiB", MAX_BYTES >> 20), 0));
    }
    let bytes = text.as_bytes();
    let (mut at, mut counts) = (0, RuleSize::default());
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
            b';' => counts = RuleSize::default(),
            _ if is_word(byte) => {
                at = bytes[at..].iter().position(|byte| !is_word(*byte)).map_or(bytes.len(), |end| at + end);
                counts.ifs += usize::from(&bytes[start..at] == b"if");
            }
            _ => {}
        }
        for (count, most, unit) in [
            (counts.depth, MAX_DEPTH, "nested brackets"),
            (counts.ifs, MAX_IFS, "`if`s in one rule"),
            (counts.operators, MAX_OPERATORS, "operators in one rule"),
        ] {
            if count > most {
                return Err(limit_error(format!("more than {most} {unit}"), start));
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

fn limit_error(message: String, at: usize) -> RuleError {
    RuleError { message, hint: Some("split it into several rules, or use sets".to_owned()), at: Some(at..at) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::RuleSet;

    fn rule(condition: &str) -> String {
        format!("permit(principal, action, resource) when {{ {condition} }};")
    }

    /// The error message for a rule that repeats these parts `count` times.
    fn error_for(before: &str, middle: &str, after: &str, count: usize) -> String {
        let text = rule(&format!("{}{middle}{}", before.repeat(count), after.repeat(count)));
        check(&text).err().map(|error| error.message).unwrap_or_default()
    }

    #[test]
    fn rejects_deep_and_long_rules() {
        assert_eq!(error_for("(", "true", ")", 15), "");
        assert_eq!(error_for("(", "true", ")", 16), "more than 16 nested brackets");
        assert_eq!(error_for("[", "", "]", 100_000), "more than 16 nested brackets");
        assert_eq!(error_for("if true then true else ", "true", "", 65), "more than 64 `if`s in one rule");
        assert_eq!(error_for("true && ", "true", "", 100_000), "more than 4096 operators in one rule");
        assert_eq!(error_for("context", "", ".x", 5_000), "more than 4096 operators in one rule");
        assert!(check(&" ".repeat(MAX_BYTES + 1)).is_err());
    }

    #[test]
    fn ignores_brackets_in_strings_and_comments() {
        assert_eq!(error_for("", r#"resource.name like "((((((((((((((((((((*""#, "", 1), "");
        assert_eq!(error_for("", "true // ((((((((((((((((((((((\n", "", 1), "");
        assert_eq!(error_for("", r#""\"((((((((((((((((((((" == "\\""#, "", 1), "");
        assert_eq!(check(&rule("((((true))))").repeat(1_000)), Ok(()));
        assert_eq!(error_for("", r#"principal.permissions.contains("(((((("#, "", 1), "");
    }

    /// Rules within the limits can be parsed on the stack of a thread.
    #[test]
    fn accepted_rules_do_not_overflow_the_stack() {
        let ifs = "if true then true else ".repeat(MAX_IFS);
        let deep = format!("{}{ifs}true{}", "(".repeat(MAX_DEPTH - 1), ")".repeat(MAX_DEPTH - 1));
        for condition in
            [deep, "true && ".repeat(MAX_OPERATORS / 2) + "true", "1 + ".repeat(MAX_OPERATORS) + "1 > 0"]
        {
            let text = rule(&condition);
            assert_eq!(check(&text), Ok(()));
            let _ = RuleSet::new(&text);
        }
    }
}
