//! References in strings: `${NAME}`, `${NAME:-default}`, `${env:NAME}`, `${input:ID}`, `$$`.
//!
//! All dialects share this grammar. A `$` that does not start a reference is literal, so `$HOME` and `^\d+$` are
//! unchanged. Invariant: the value of a variable is never expanded again.

use std::ops::Range;

use crate::read::dotenv::is_name;

/// Maximum length of an expanded string.
const MAX_EXPANDED_BYTES: usize = 1 << 20;
/// Maximum nesting of defaults: `${A:-${B:-c}}`.
const MAX_DEFAULT_DEPTH: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VariableReference<'a> {
    /// An environment variable.
    Variable(&'a str),
    /// An input the user is asked for.
    Input(&'a str),
    /// A path variable of the editor that wrote the file: `workspaceFolder`, `userHome` and others.
    Place(&'a str),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExpansionError {
    #[error("`${{` is not closed")]
    Unclosed,
    #[error("`{0}` is not a valid variable name")]
    BadName(String),
    #[error("environment variable `{0}` is not set")]
    Unset(String),
    #[error("input `{0}` is not declared")]
    UnknownInput(String),
    #[error("the expanded string is longer than {MAX_EXPANDED_BYTES} bytes")]
    TooLong,
}

impl ExpansionError {
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Unclosed => "close it with `}`, or write `$${` for a literal `${`".to_owned(),
            Self::BadName(name) => match name.split_once(':') {
                Some((name, default)) if is_name(name) => {
                    format!("write `${{{name}:-{default}}}` for a default")
                }
                _ => "write `$${` for a literal `${`".to_owned(),
            },
            Self::Unset(name) => {
                format!("set it in the environment or in `.env`, or write `${{{name}:-default}}`")
            }
            Self::UnknownInput(id) => format!("add an entry with `\"id\": \"{id}\"` to `inputs`"),
            Self::TooLong => "a configuration value is short; use a file for more".to_owned(),
        }
    }
}

/// A string with its references resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expansion {
    pub(crate) value: String,
    /// True if part of it came from outside the file.
    pub(crate) is_external: bool,
}

/// An error and the range of the reference that caused it.
pub(crate) type LocatedError = (Range<usize>, ExpansionError);

/// Resolves every reference, or returns an error for each that cannot be resolved.
pub(crate) fn expand(
    text: &str,
    lookup: &mut dyn FnMut(VariableReference<'_>) -> Option<String>,
) -> Result<Expansion, Vec<LocatedError>> {
    let mut expander = Expander { lookup, errors: Vec::new(), is_external: false };
    let value = expander.expand(text, 0, 0);
    if expander.errors.is_empty() {
        Ok(Expansion { value, is_external: expander.is_external })
    } else {
        Err(expander.errors)
    }
}

struct Expander<'a> {
    lookup: &'a mut dyn FnMut(VariableReference<'_>) -> Option<String>,
    errors: Vec<LocatedError>,
    is_external: bool,
}

impl Expander<'_> {
    /// Expands `text`. `offset` is where it starts in the whole string, for the ranges of errors.
    fn expand(&mut self, text: &str, offset: usize, depth: usize) -> String {
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        while let Some(dollar) = text[at..].find('$').map(|found| at + found) {
            out.push_str(&text[at..dollar]);
            let rest = &text[dollar + 1..];
            if rest.starts_with('$') {
                out.push('$');
                at = dollar + 2;
            } else if rest.starts_with('{') {
                let Some(length) = closing_brace_end(rest) else {
                    self.errors.push((offset + dollar..offset + text.len(), ExpansionError::Unclosed));
                    return out;
                };
                let end = dollar + 1 + length;
                let value =
                    self.resolve_reference(&text[dollar + 2..end - 1], offset + dollar, offset + end, depth);
                out.push_str(&value);
                at = end;
            } else {
                out.push('$');
                at = dollar + 1;
            }
            if out.len() > MAX_EXPANDED_BYTES {
                self.errors.push((offset..offset + text.len(), ExpansionError::TooLong));
                return String::new();
            }
        }
        out.push_str(&text[at..]);
        out
    }

    /// Resolves the reference between `${` and `}`.
    fn resolve_reference(&mut self, body: &str, start: usize, end: usize, depth: usize) -> String {
        let mut fault = |fault| {
            self.errors.push((start..end, fault));
            String::new()
        };
        if let Some(id) = body.strip_prefix("input:") {
            return match (self.lookup)(VariableReference::Input(id)) {
                Some(value) => self.mark_external(value),
                None => fault(ExpansionError::UnknownInput(id.to_owned())),
            };
        }
        if let Some(value) = (self.lookup)(VariableReference::Place(body)) {
            return value;
        }
        let (name, default) = match body.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (body, None),
        };
        let name = name.strip_prefix("env:").unwrap_or(name);
        if !is_name(name) || depth > MAX_DEFAULT_DEPTH {
            return fault(ExpansionError::BadName(body.to_owned()));
        }
        // With a default, an empty variable counts as unset, as in a shell.
        match ((self.lookup)(VariableReference::Variable(name)), default) {
            (Some(value), None) => self.mark_external(value),
            (Some(value), Some(_)) if !value.is_empty() => self.mark_external(value),
            (_, Some(default)) => self.expand(default, end - 1 - default.len(), depth + 1),
            (None, None) => fault(ExpansionError::Unset(name.to_owned())),
        }
    }

    fn mark_external(&mut self, value: String) -> String {
        self.is_external = true;
        value
    }
}

/// Returns the length of the `{…}` at the start of the text, with nested braces matched.
fn closing_brace_end(text: &str) -> Option<usize> {
    let mut open = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => open += 1,
            b'}' => {
                open -= 1;
                if open == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lookup(reference: VariableReference<'_>) -> Option<String> {
        match reference {
            VariableReference::Variable("A") => Some("alpha".to_owned()),
            VariableReference::Variable("EMPTY") => Some(String::new()),
            VariableReference::Variable("TRICK") => Some("${A}".to_owned()),
            VariableReference::Input("key") => Some("typed".to_owned()),
            VariableReference::Place("workspaceFolder") => Some("/project".to_owned()),
            _ => None,
        }
    }

    fn check(text: &str, expected: Result<&str, &str>) {
        let shown = match expand(text, &mut lookup) {
            Ok(expansion) => Ok(expansion.value),
            Err(errors) => {
                let one = |(range, fault): &LocatedError| format!("{}: {fault}", &text[range.clone()]);
                Err(errors.iter().map(one).collect::<Vec<_>>().join("; "))
            }
        };
        assert_eq!(shown.as_deref().map_err(String::as_str), expected, "{text}");
    }

    #[test]
    fn resolves_references() {
        check("plain", Ok("plain"));
        check("a ${A} b", Ok("a alpha b"));
        check("${env:A}/${A}", Ok("alpha/alpha"));
        check("${B:-beta}", Ok("beta"));
        check("${B:-}", Ok(""));
        check("${EMPTY:-beta}${EMPTY}", Ok("beta"));
        check("${B:-${A}}", Ok("alpha"));
        check("${input:key}", Ok("typed"));
        check("${workspaceFolder}/data", Ok("/project/data"));
        check("${TRICK}", Ok("${A}"));
    }

    #[test]
    fn keeps_literal_dollars() {
        check("$$", Ok("$"));
        check("$${A}", Ok("${A}"));
        check("$HOME costs 5$", Ok("$HOME costs 5$"));
        check(r"^\d+$", Ok(r"^\d+$"));
    }

    #[test]
    fn reports_every_error() {
        check(
            "${B} ${C}",
            Err("${B}: environment variable `B` is not set; ${C}: environment variable `C` is not set"),
        );
        check("x ${A", Err("${A: `${` is not closed"));
        check("${}", Err("${}: `` is not a valid variable name"));
        check("${a b}", Err("${a b}: `a b` is not a valid variable name"));
        check("${B:-${C}}", Err("${C}: environment variable `C` is not set"));
        check("${input:other}", Err("${input:other}: input `other` is not declared"));
    }

    proptest! {
        #[test]
        fn never_panics_and_ranges_are_valid(text in "(\\PC|\\$|\\{|\\}|:-|A){0,40}") {
            if let Err(errors) = expand(&text, &mut lookup) {
                for (range, _) in errors {
                    prop_assert!(text.get(range).is_some());
                }
            }
        }

        #[test]
        fn text_without_dollar_is_unchanged(text in "[^$]{0,40}") {
            prop_assert_eq!(expand(&text, &mut lookup).unwrap().value, text);
        }
    }
}
