//! Plain-text secrets in another program's file: each is replaced by a reference, and its value becomes a line
//! for `.env`.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value as Json;
use toolgate_redact::{config_secret_ranges, looks_secret};
use toolgate_types::Secret;

/// Authentication schemes before the credential in a header.
const SCHEMES: [&str; 3] = ["Bearer ", "Basic ", "Token "];

/// Moves secrets out of entries. Collects the lines for `.env` and avoids names already taken.
pub(super) struct SecretExtractor<'a> {
    /// Variables of the process. They take precedence over `.env`.
    pub(super) environment: &'a BTreeMap<String, String>,
    /// Variables already in `.env`.
    pub(super) dotenv: BTreeMap<String, String>,
    /// Lines to add to `.env`.
    pub(super) lines: Vec<(String, Secret)>,
}

impl SecretExtractor<'_> {
    /// Replaces every plain-text secret in a server's entry.
    pub(super) fn extract(&mut self, server: &str, entry: &mut Json) {
        for (name, value) in fields(entry, "env") {
            self.extract_value(name, name, value);
        }
        for key in ["headers", "oauth"] {
            for (name, value) in fields(entry, key) {
                self.extract_value(&format!("{server}_{name}"), name, value);
            }
        }
        self.extract_arguments(server, entry);
        for key in ["command", "server", "url"] {
            if let Some(Json::String(text)) = entry.get_mut(key) {
                self.extract_parts(server, text);
            }
        }
        if let Some(config) = entry.get_mut("config") {
            self.extract_tree(server, "config", config);
        }
    }

    fn extract_arguments(&mut self, server: &str, entry: &mut Json) {
        let Some(Json::Array(arguments)) = entry.get_mut("args") else { return };
        let mut flag = String::new();
        for argument in arguments {
            let Json::String(text) = argument else { continue };
            let name = std::mem::take(&mut flag);
            if text.starts_with('-') && !text.contains('=') {
                text.trim_start_matches('-').clone_into(&mut flag);
            } else if looks_secret(&name) && !text.is_empty() && !text.contains("${") {
                *text = self.add_reference(&format!("{server}_{name}"), text);
            } else {
                self.extract_parts(server, text);
            }
        }
    }

    /// Handles values of any shape below `config`.
    fn extract_tree(&mut self, server: &str, name: &str, value: &mut Json) {
        match value {
            Json::Array(items) => items.iter_mut().for_each(|item| self.extract_tree(server, name, item)),
            Json::Object(fields) => {
                fields.iter_mut().for_each(|(name, value)| self.extract_tree(server, name, value));
            }
            value => self.extract_value(&format!("{server}_{name}"), name, value),
        }
    }

    /// Replaces a value if its name or its content marks it as a secret.
    fn extract_value(&mut self, preferred_name: &str, name: &str, value: &mut Json) {
        let text = match value {
            Json::String(text) => text.clone(),
            Json::Number(number) if looks_secret(name) => number.to_string(),
            _ => return,
        };
        if text.is_empty() || text.contains("${") {
            return;
        }
        if looks_secret(name) || !config_secret_ranges(&text, &[]).is_empty() {
            let scheme = SCHEMES.into_iter().find(|scheme| text.starts_with(scheme)).unwrap_or_default();
            let reference = self.add_reference(preferred_name, &text[scheme.len()..]);
            *value = Json::String(format!("{scheme}{reference}"));
        }
    }

    /// Replaces secrets inside a string, such as `https://ann:PASSWORD@host` and `--token=TOKEN`.
    fn extract_parts(&mut self, server: &str, text: &mut String) {
        for range in config_secret_ranges(text, &[]).into_iter().rev() {
            let reference =
                self.add_reference(&format!("{server}_{}", secret_name(text, &range)), &text[range.clone()]);
            text.replace_range(range, &reference);
        }
    }

    /// Returns `${NAME}` for a value, and reuses the name if the same value occurs again.
    fn add_reference(&mut self, preferred: &str, value: &str) -> String {
        let mut preferred_name: String = preferred
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
            .collect();
        if !preferred_name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            preferred_name.insert(0, '_');
        }
        let mut name = preferred_name.clone();
        let mut number = 2;
        while self.is_taken(&name, value) {
            name = format!("{preferred_name}_{number}");
            number += 1;
        }
        let known = self.dotenv.contains_key(&name) || self.lines.iter().any(|(line, _)| *line == name);
        if !known {
            self.lines.push((name.clone(), Secret::new(value)));
        }
        format!("${{{name}}}")
    }

    /// Returns true if the name already stands for another value.
    fn is_taken(&self, name: &str, value: &str) -> bool {
        let lines = self.lines.iter().filter(|(line, _)| line == name).map(|(_, secret)| secret.expose());
        let set = self.environment.get(name).into_iter().chain(self.dotenv.get(name)).map(String::as_str);
        lines.chain(set).any(|other| other != value)
    }
}

fn fields<'j>(entry: &'j mut Json, key: &str) -> impl Iterator<Item = (&'j String, &'j mut Json)> {
    entry.get_mut(key).and_then(Json::as_object_mut).into_iter().flatten()
}

/// Returns a name for the secret: the name before it, or a generic word.
fn secret_name<'t>(text: &'t str, range: &Range<usize>) -> &'t str {
    if text[range.end..].starts_with('@') {
        return "password";
    }
    let before = text[..range.start].trim_end_matches(['=', ':', ' ', '"', '\'']);
    let start = before.rfind(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-'));
    let name = &before[start.map_or(0, |at| at + 1)..].trim_start_matches('-');
    if name.is_empty() || before.len() == range.start { "secret" } else { name }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(mut entry: Json, expected: Json, lines: &[(&str, &str)]) {
        let environment = BTreeMap::from([("TAKEN_TOKEN".to_owned(), "other".to_owned())]);
        let dotenv = BTreeMap::from([("KNOWN_TOKEN".to_owned(), "known".to_owned())]);
        let mut moved = SecretExtractor { environment: &environment, dotenv, lines: Vec::new() };
        moved.extract("my server", &mut entry);
        assert_eq!(entry, expected);
        let moved: Vec<_> = moved.lines.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
        assert_eq!(moved, lines);
    }

    #[test]
    fn extracts_secrets_everywhere() {
        check(
            json!({
                "env": { "API_TOKEN": "a1", "PIN": 1234, "DEBUG": "true", "REF": "${REF}" },
                "headers": { "Authorization": "Bearer b1", "X-Api-Key": "b2", "Accept": "*/*" },
                "oauth": { "clientId": "f1", "clientSecret": "f2" },
                "args": ["--token", "c1", "--password=c2", "-v", "plain", "ghp_0123456789abcdefghij"],
                "url": "https://ann:d1@example.com/mcp?apiKey=d2&x=y",
                "config": { "db": { "password": "e1", "host": "h" } },
            }),
            json!({
                "env": { "API_TOKEN": "${API_TOKEN}", "PIN": "${PIN}", "DEBUG": "true", "REF": "${REF}" },
                "headers": {
                    "Authorization": "Bearer ${MY_SERVER_AUTHORIZATION}",
                    "X-Api-Key": "${MY_SERVER_X_API_KEY}",
                    "Accept": "*/*",
                },
                "oauth": { "clientId": "f1", "clientSecret": "${MY_SERVER_CLIENTSECRET}" },
                "args": [
                    "--token", "${MY_SERVER_TOKEN}", "--password=${MY_SERVER_PASSWORD}", "-v", "plain",
                    "${MY_SERVER_SECRET}",
                ],
                "url": "https://ann:${MY_SERVER_PASSWORD_2}@example.com/mcp?apiKey=${MY_SERVER_APIKEY}&x=y",
                "config": { "db": { "password": "${MY_SERVER_PASSWORD_3}", "host": "h" } },
            }),
            &[
                ("API_TOKEN", "a1"),
                ("PIN", "1234"),
                ("MY_SERVER_AUTHORIZATION", "b1"),
                ("MY_SERVER_X_API_KEY", "b2"),
                ("MY_SERVER_CLIENTSECRET", "f2"),
                ("MY_SERVER_TOKEN", "c1"),
                ("MY_SERVER_PASSWORD", "c2"),
                ("MY_SERVER_SECRET", "ghp_0123456789abcdefghij"),
                ("MY_SERVER_APIKEY", "d2"),
                ("MY_SERVER_PASSWORD_2", "d1"),
                ("MY_SERVER_PASSWORD_3", "e1"),
            ],
        );
    }

    #[test]
    fn does_not_reuse_taken_names() {
        check(
            json!({ "env": { "TAKEN_TOKEN": "mine", "KNOWN_TOKEN": "known" } }),
            json!({ "env": { "TAKEN_TOKEN": "${TAKEN_TOKEN_2}", "KNOWN_TOKEN": "${KNOWN_TOKEN}" } }),
            &[("TAKEN_TOKEN_2", "mine")],
        );
    }
}
