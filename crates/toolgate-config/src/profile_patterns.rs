//! Profile patterns that match no known tool.
//!
//! Loading reports the patterns that the files alone prove wrong; this module also knows the tools that servers
//! listed when they were last connected. Invariant: a pattern is only reported if every tool it could match is known.

use std::collections::BTreeMap;

use toolgate_types::wildcard;

use crate::config::Config;
use crate::keys::closest_match;
use crate::problem::{ProblemEntry, Severity};

/// Separator between a server's prefix and a tool's name.
const SEPARATOR: &str = "__";

/// Returns a warning for each pattern that matches no tool. `seen` maps server prefixes to the tools last listed.
pub fn unmatched_patterns(config: &Config, seen: &BTreeMap<String, Vec<String>>) -> Vec<ProblemEntry> {
    let prefixes: Vec<String> = config.servers.iter().map(|server| server.name.prefix()).collect();
    let all_seen = config.apis.is_empty() && prefixes.iter().all(|prefix| seen.contains_key(prefix));
    let mut names: Vec<String> = config.tools.iter().map(|tool| tool.name.to_string()).collect();
    let own = names.len();
    for (prefix, tools) in seen {
        names.extend(tools.iter().map(|tool| format!("{prefix}{SEPARATOR}{tool}")));
        names.extend(tools.iter().cloned());
    }
    let fits = |word: &str| names.iter().any(|name| wildcard::matches(word, name));
    let mut out = Vec::new();
    for profile in config.profiles.all.iter().filter(|_| !prefixes.is_empty()) {
        for word in profile.tools.patterns().filter(|word| *word != "*" && !fits(word)) {
            let decided = match word.split_once(SEPARATOR) {
                Some((prefix, _)) => seen.contains_key(prefix),
                // Built-in tools are checked during loading.
                None => all_seen && !BUILTIN_TOOLS.iter().any(|name| wildcard::matches(word, name)),
            };
            if decided {
                let hint = match closest_match(
                    word,
                    names.iter().skip(if word.contains(SEPARATOR) { own } else { 0 }).map(String::as_str),
                ) {
                    Some(name) => format!("did you mean `{name}`?"),
                    None => "`toolgate tools list` shows them all".to_owned(),
                };
                let message = format!(
                    "`{word}` in profile `{}` matches no tool that any server has listed",
                    profile.name
                );
                out.push(entry(
                    message,
                    hint,
                    config.origins.get(&format!("profiles.{}.tools", profile.name)),
                ));
            }
        }
    }
    out
}

/// Built-in tools that the configuration may enable.
pub(crate) const BUILTIN_TOOLS: [&str; 4] =
    ["request_human_input", "web_search", "code_execution", "read_result"];

fn entry(message: String, hint: String, place: Option<&String>) -> ProblemEntry {
    let mut parts = place.map(|place| place.rsplitn(3, ':')).into_iter().flatten();
    let (column, line) = (parts.next(), parts.next());
    ProblemEntry {
        severity: Severity::Warning,
        message,
        file: parts.next().map(str::to_owned),
        line: line.and_then(|line| line.parse().ok()),
        column: column.and_then(|column| column.parse().ok()),
        hint: Some(hint),
    }
}
