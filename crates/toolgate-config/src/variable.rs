//! References in texts: `${NAME}`, `${NAME:-default}`, `${env:NAME}`, `${input:ID}`, `$$`.
//!
//! One grammar for every dialect. A `$` that starts no reference is a `$`, so `$HOME` and `^\d+$`
//! mean what they say. Invariant: what comes out of a variable is never read for references again.

use std::ops::Range;

use crate::read::dotenv::is_name;

/// The longest text that references may grow to.
const LONGEST: usize = 1 << 20;
/// Defaults within defaults: `${A:-${B:-c}}`.
const DEEPEST_DEFAULT: usize = 8;

/// What a reference asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reference<'a> {
    /// An environment variable.
    Variable(&'a str),
    /// Something the person is asked for.
    Input(&'a str),
    /// A place of the editor that wrote the file: `workspaceFolder`, `userHome` and the like.
    Place(&'a str),
}

/// Why a reference cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("`${{` is not closed")]
    Unclosed,
    #[error("`{0}` is not the name of a variable")]
    BadName(String),
    #[error("environment variable `{0}` is not set")]
    Unset(String),
    #[error("input `{0}` is not declared")]
    UnknownInput(String),
    #[error("the text grows past {LONGEST} bytes")]
    TooLong,
}

impl Fault {
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Unclosed => "close it with `}`, or write `$${` for the text `${`".to_owned(),
            Self::BadName(name) => match name.split_once(':') {
                Some((name, default)) if is_name(name) => {
                    format!("write `${{{name}:-{default}}}` for a default")
                }
                _ => "write `$${` for the text `${`".to_owned(),
            },
            Self::Unset(name) => {
                format!("set it in the environment or in `.env`, or write `${{{name}:-default}}`")
            }
            Self::UnknownInput(id) => format!("add an entry with `\"id\": \"{id}\"` to `inputs`"),
            Self::TooLong => "a configuration value is short; use a file for more".to_owned(),
        }
    }
}

/// A text after its references were resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expansion {
    pub(crate) value: String,
    /// Whether anything in it came from outside of the file.
    pub(crate) resolved: bool,
}

/// A reference that could not be resolved, and where it is in the text.
pub(crate) type Broken = (Range<usize>, Fault);

/// Resolves every reference, or says what is wrong with each of those that cannot be.
pub(crate) fn expand(
    text: &str,
    lookup: &mut dyn FnMut(Reference<'_>) -> Option<String>,
) -> Result<Expansion, Vec<Broken>> {
    let mut expander = Expander { lookup, broken: Vec::new(), resolved: false };
    let value = expander.expand(text, 0, 0);
    if expander.broken.is_empty() {
        Ok(Expansion { value, resolved: expander.resolved })
    } else {
        Err(expander.broken)
    }
}

struct Expander<'a> {
    lookup: &'a mut dyn FnMut(Reference<'_>) -> Option<String>,
    broken: Vec<Broken>,
    resolved: bool,
}

impl Expander<'_> {
    /// `offset` is where `text` starts in the whole, for the places of faults.
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
                let Some(length) = closing(rest) else {
                    self.broken.push((offset + dollar..offset + text.len(), Fault::Unclosed));
                    return out;
                };
                let end = dollar + 1 + length;
                let value = self.reference(&text[dollar + 2..end - 1], offset + dollar, offset + end, depth);
                out.push_str(&value);
                at = end;
            } else {
                out.push('$');
                at = dollar + 1;
            }
            if out.len() > LONGEST {
                self.broken.push((offset..offset + text.len(), Fault::TooLong));
                return String::new();
            }
        }
        out.push_str(&text[at..]);
        out
    }

    /// What stands between `${` and `}`.
    fn reference(&mut self, body: &str, start: usize, end: usize, depth: usize) -> String {
        let mut fault = |fault| {
            self.broken.push((start..end, fault));
            String::new()
        };
        if let Some(id) = body.strip_prefix("input:") {
            return match (self.lookup)(Reference::Input(id)) {
                Some(value) => self.resolve(value),
                None => fault(Fault::UnknownInput(id.to_owned())),
            };
        }
        if let Some(value) = (self.lookup)(Reference::Place(body)) {
            return value;
        }
        let (name, default) = match body.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (body, None),
        };
        let name = name.strip_prefix("env:").unwrap_or(name);
        if !is_name(name) || depth > DEEPEST_DEFAULT {
            return fault(Fault::BadName(body.to_owned()));
        }
        // An empty variable counts as unset where there is a default, as in a shell.
        match ((self.lookup)(Reference::Variable(name)), default) {
            (Some(value), None) => self.resolve(value),
            (Some(value), Some(_)) if !value.is_empty() => self.resolve(value),
            (_, Some(default)) => self.expand(default, end - 1 - default.len(), depth + 1),
            (None, None) => fault(Fault::Unset(name.to_owned())),
        }
    }

    fn resolve(&mut self, value: String) -> String {
        self.resolved = true;
        value
    }
}

/// The length of a `{…}` that the text starts with, braces inside counted.
fn closing(text: &str) -> Option<usize> {
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

    fn lookup(reference: Reference<'_>) -> Option<String> {
        match reference {
            Reference::Variable("A") => Some("alpha".to_owned()),
            Reference::Variable("EMPTY") => Some(String::new()),
            Reference::Variable("TRICK") => Some("${A}".to_owned()),
            Reference::Input("key") => Some("typed".to_owned()),
            Reference::Place("workspaceFolder") => Some("/project".to_owned()),
            _ => None,
        }
    }

    fn check(text: &str, expected: Result<&str, &str>) {
        let shown = match expand(text, &mut lookup) {
            Ok(expansion) => Ok(expansion.value),
            Err(broken) => {
                let one = |(range, fault): &Broken| format!("{}: {fault}", &text[range.clone()]);
                Err(broken.iter().map(one).collect::<Vec<_>>().join("; "))
            }
        };
        assert_eq!(shown.as_deref().map_err(String::as_str), expected, "{text}");
    }

    #[test]
    fn what_resolves() {
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
    fn dollars_that_are_dollars() {
        check("$$", Ok("$"));
        check("$${A}", Ok("${A}"));
        check("$HOME costs 5$", Ok("$HOME costs 5$"));
        check(r"^\d+$", Ok(r"^\d+$"));
    }

    #[test]
    fn every_fault_is_told() {
        check(
            "${B} ${C}",
            Err("${B}: environment variable `B` is not set; ${C}: environment variable `C` is not set"),
        );
        check("x ${A", Err("${A: `${` is not closed"));
        check("${}", Err("${}: `` is not the name of a variable"));
        check("${a b}", Err("${a b}: `a b` is not the name of a variable"));
        check("${B:-${C}}", Err("${C}: environment variable `C` is not set"));
        check("${input:other}", Err("${input:other}: input `other` is not declared"));
    }

    proptest! {
        #[test]
        fn no_text_panics_and_places_are_good(text in "(\\PC|\\$|\\{|\\}|:-|A){0,40}") {
            if let Err(broken) = expand(&text, &mut lookup) {
                for (range, _) in broken {
                    prop_assert!(text.get(range).is_some());
                }
            }
        }

        #[test]
        fn without_dollars_nothing_changes(text in "[^$]{0,40}") {
            prop_assert_eq!(expand(&text, &mut lookup).unwrap().value, text);
        }
    }
}
