//! Words of profiles that fit no tool that servers were seen to have.
//!
//! What can be known from the files alone is told when they are loaded; this is for who knows what servers offered
//! when they were last asked. Invariant: a word is told of only where all that could fit it is known.

use std::collections::BTreeMap;

use toolgate_types::wildcard;

use crate::config::Config;
use crate::keys::closest;
use crate::problem::{ProblemEntry, Severity};

/// What stands between a server's prefix and a tool's name.
const SEPARATOR: &str = "__";

/// Words that fit nothing, each with its way out. `seen` has the tools of each server that was seen, by its prefix.
pub fn idle_words(config: &Config, seen: &BTreeMap<String, Vec<String>>) -> Vec<ProblemEntry> {
    let prefixes: Vec<String> = config.servers.iter().map(|server| server.name.prefix()).collect();
    let all_seen = config.apis.is_empty() && prefixes.iter().all(|prefix| seen.contains_key(prefix));
    let mut names: Vec<String> = config.tools.iter().map(|tool| tool.name.to_string()).collect();
    let own = names.len();
    for (prefix, tools) in seen {
        names.extend(tools.iter().map(|tool| format!("{prefix}{SEPARATOR}{tool}")));
        names.extend(tools.iter().cloned());
    }
    let fits = |word: &str| names.iter().any(|name| wildcard::fits(word, name));
    let mut out = Vec::new();
    for profile in config.profiles.all.iter().filter(|_| !prefixes.is_empty()) {
        for word in profile.tools.words().filter(|word| *word != "*" && !fits(word)) {
            let decided = match word.split_once(SEPARATOR) {
                Some((prefix, _)) => seen.contains_key(prefix),
                // What Toolgate brings along is known when files are loaded.
                None => all_seen && !BROUGHT.iter().any(|name| wildcard::fits(word, name)),
            };
            if decided {
                let hint = match closest(
                    word,
                    names.iter().skip(if word.contains(SEPARATOR) { own } else { 0 }).map(String::as_str),
                ) {
                    Some(name) => format!("did you mean `{name}`?"),
                    None => "`toolgate tools list` shows them all".to_owned(),
                };
                let message =
                    format!("`{word}` in profile `{}` fits no tool that was ever seen", profile.name);
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

/// The tools that Toolgate brings along, where keys ask for them.
const BROUGHT: [&str; 4] = ["request_human_input", "web_search", "code_execution", "read_result"];

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
