//! Registry entries with their secrets masked, for people to read and to send back.
//!
//! A masked entry can be edited and sent back: a string that is still masked keeps its stored value. Invariant: a stored
//! secret returns only to the place that it is stored at, and only while the entry leads to the same hosts: no change moves
//! it to another key, or sends it to another server.

use serde_json::{Map, Value as Json};
use toolgate_redact::{mask, mask_config};
use toolgate_types::Secret;
use toolgate_types::secret::MASK;

use super::Runtime;

/// Keys of a program on this machine. Callers that may change them could read its secrets anyway.
const PROGRAM_KEYS: [&str; 2] = ["args", "env"];

/// A stored secret cannot be put back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MaskedValue {
    /// A masked string at a place where no such string is stored.
    #[error("the value of `{0}` is masked, and no such value is stored")]
    Unknown(String),
    /// The secrets of an entry would be sent to another host.
    #[error("`{0}` leads to another host, so the stored secrets of the entry must be sent again")]
    Moved(String),
}

impl Runtime {
    /// Returns an entry with its secrets masked.
    pub fn masked_entry(&self, entry: &Map<String, Json>) -> Map<String, Json> {
        masked_entry(entry, &self.secrets())
    }

    /// Returns the places of the secrets of an entry, such as `env.API_KEY` or `args[1]`.
    pub fn secret_places(&self, entry: &Map<String, Json>) -> Vec<String> {
        secret_places(entry, &self.secrets())
    }

    /// Puts the stored values back in place of masked strings. With `merge`, the entry is merged into the stored one.
    ///
    /// # Errors
    /// If a masked string has no stored value at its place, or stored secrets would go to another host.
    pub fn restore_masked(
        &self,
        entry: &mut Map<String, Json>,
        stored: Option<&Map<String, Json>>,
        merge: bool,
    ) -> Result<(), MaskedValue> {
        restore_entry(entry, stored, merge, &self.secrets())
    }
}

fn restore_entry(
    entry: &mut Map<String, Json>,
    stored: Option<&Map<String, Json>>,
    merge: bool,
    known: &[Secret],
) -> Result<(), MaskedValue> {
    let masked = stored.map(|stored| masked_entry(stored, known));
    if let (Some(stored), Some(masked)) = (stored, &masked)
        && let Some(place) = entry
            .iter()
            .filter(|(key, _)| !PROGRAM_KEYS.contains(&key.as_str()))
            .find_map(|(key, value)| moved_url(value, stored.get(key).unwrap_or(&Json::Null), key))
        && keeps_members(stored, masked, entry, merge)
    {
        return Err(MaskedValue::Moved(place));
    }
    restore_members(entry, stored, masked.as_ref(), "")
}

/// Finds a URL of an entry that has another origin than the one stored at its place.
fn moved_url(entry: &Json, stored: &Json, path: &str) -> Option<String> {
    match entry {
        Json::String(text) => {
            let origin = origin(text)?;
            let before = stored.as_str().and_then(self::origin);
            (before != Some(origin)).then(|| path.to_owned())
        }
        Json::Array(items) => items.iter().enumerate().find_map(|(at, item)| {
            moved_url(item, stored.get(at).unwrap_or(&Json::Null), &format!("{path}[{at}]"))
        }),
        Json::Object(members) => members.iter().find_map(|(key, value)| {
            moved_url(value, stored.get(key).unwrap_or(&Json::Null), &format!("{path}.{key}"))
        }),
        _ => None,
    }
}

/// The part of a URL before its path. `None` for other strings.
fn origin(text: &str) -> Option<&str> {
    let start = text.find("://")? + 3;
    let length = text[start..].find(['/', '?', '#']).unwrap_or(text.len() - start);
    Some(&text[..start + length])
}

/// Returns true if a stored secret would be part of the entry after the change.
fn keeps_members(
    stored: &Map<String, Json>,
    masked: &Map<String, Json>,
    entry: &Map<String, Json>,
    merge: bool,
) -> bool {
    let masked = |key: &str| masked.get(key).unwrap_or(&Json::Null);
    stored.iter().any(|(key, stored)| match entry.get(key) {
        Some(given) => keeps(stored, masked(key), given, merge),
        None => merge && stored != masked(key),
    })
}

fn keeps(stored: &Json, masked: &Json, given: &Json, merge: bool) -> bool {
    match (stored, masked, given) {
        (Json::Object(stored), Json::Object(masked), Json::Object(given)) => {
            keeps_members(stored, masked, given, merge)
        }
        (Json::Array(stored), Json::Array(masked), Json::Array(given)) => {
            let both = stored.iter().zip(masked).zip(given);
            both.into_iter().any(|((stored, masked), given)| keeps(stored, masked, given, merge))
        }
        (stored, masked, given) => stored != masked && given == masked,
    }
}

fn masked_entry(entry: &Map<String, Json>, known: &[Secret]) -> Map<String, Json> {
    let mut entry = Json::Object(entry.clone());
    visit_strings(&mut entry, &|text| mask(text, known));
    // A value under the name of a secret is always one. Names are found line by line.
    let text = serde_json::to_string_pretty(&entry).unwrap_or_default();
    match serde_json::from_str(&mask_config(&text, known)) {
        Ok(masked) => masked,
        Err(_) => {
            visit_strings(&mut entry, &|_| MASK.to_owned());
            entry.as_object().cloned().unwrap_or_default()
        }
    }
}

fn secret_places(entry: &Map<String, Json>, known: &[Secret]) -> Vec<String> {
    let (whole, masked) = (Json::Object(entry.clone()), Json::Object(masked_entry(entry, known)));
    let mut places = Vec::new();
    collect_changes(&whole, &masked, "", &mut places);
    places
}

/// Collects the places of strings that are masked.
fn collect_changes(whole: &Json, masked: &Json, path: &str, places: &mut Vec<String>) {
    match (whole, masked) {
        (Json::Object(whole), Json::Object(masked)) => {
            for (key, value) in whole {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                collect_changes(value, masked.get(key).unwrap_or(&Json::Null), &path, places);
            }
        }
        (Json::Array(whole), Json::Array(masked)) => {
            for (at, value) in whole.iter().enumerate() {
                collect_changes(
                    value,
                    masked.get(at).unwrap_or(&Json::Null),
                    &format!("{path}[{at}]"),
                    places,
                );
            }
        }
        (whole, masked) if whole != masked => places.push(path.to_owned()),
        _ => {}
    }
}

fn visit_strings(value: &mut Json, change: &impl Fn(&str) -> String) {
    match value {
        Json::String(text) => *text = change(text),
        Json::Array(items) => items.iter_mut().for_each(|item| visit_strings(item, change)),
        Json::Object(members) => members.values_mut().for_each(|value| visit_strings(value, change)),
        _ => {}
    }
}

fn restore_members(
    entry: &mut Map<String, Json>,
    stored: Option<&Map<String, Json>>,
    masked: Option<&Map<String, Json>>,
    path: &str,
) -> Result<(), MaskedValue> {
    for (key, value) in entry {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        restore(value, stored.and_then(|of| of.get(key)), masked.and_then(|of| of.get(key)), &path)?;
    }
    Ok(())
}

fn restore(
    value: &mut Json,
    stored: Option<&Json>,
    masked: Option<&Json>,
    path: &str,
) -> Result<(), MaskedValue> {
    match value {
        Json::String(text) if text.contains(MASK) => match (stored, masked) {
            (Some(stored), Some(Json::String(masked))) if masked == text => {
                *value = stored.clone();
                Ok(())
            }
            _ => Err(MaskedValue::Unknown(path.to_owned())),
        },
        Json::Array(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                let path = format!("{path}[{at}]");
                restore(item, stored.and_then(|of| of.get(at)), masked.and_then(|of| of.get(at)), &path)?;
            }
            Ok(())
        }
        Json::Object(members) => {
            let (stored, masked) = (stored.and_then(Json::as_object), masked.and_then(Json::as_object));
            restore_members(members, stored, masked, path)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Json) -> Map<String, Json> {
        value.as_object().unwrap().clone()
    }

    fn stored() -> Map<String, Json> {
        map(json!({
            "command": "server",
            "args": ["--token", "a-long-known-secret", "x"],
            "env": { "API_KEY": "short1", "LEVEL": "debug", "REF": "${TOKEN}" },
        }))
    }

    fn masked() -> Map<String, Json> {
        masked_entry(&stored(), &[Secret::new("a-long-known-secret")])
    }

    #[test]
    fn secrets_are_masked_by_value_and_by_name() {
        let masked = Json::Object(masked());
        assert_eq!(masked["args"], json!(["--token", "***", "x"]));
        assert_eq!(masked["env"], json!({ "API_KEY": "***", "LEVEL": "debug", "REF": "${TOKEN}" }));
        assert_eq!(masked["command"], "server");
    }

    #[test]
    fn places_of_secrets_are_named() {
        let known = [Secret::new("a-long-known-secret")];
        assert_eq!(secret_places(&stored(), &known), ["args[1]", "env.API_KEY"]);
        assert!(secret_places(&masked(), &known).is_empty(), "masked strings are no secrets");
        let token = format!("Bearer ghp_{}", "aB3d".repeat(9));
        let entry = map(json!({ "url": "https://a.test/mcp", "headers": { "Authorization": token } }));
        assert_eq!(secret_places(&entry, &[]), ["headers.Authorization"]);
        let entry =
            map(json!({ "url": "https://a.test/mcp", "headers": { "Authorization": "Bearer ${TOKEN}" } }));
        assert!(secret_places(&entry, &[]).is_empty());
    }

    #[test]
    fn an_edited_entry_keeps_its_secrets() {
        let mut edited = masked();
        edited["env"]["LEVEL"] = "info".into();
        restore_members(&mut edited, Some(&stored()), Some(&masked()), "").unwrap();
        let mut expected = stored();
        expected["env"]["LEVEL"] = "info".into();
        assert_eq!(edited, expected);
    }

    #[test]
    fn a_secret_returns_to_its_place_only() {
        for (moved, path) in [
            (json!({ "url": "***" }), "url"),
            (json!({ "env": { "LEVEL": "***" } }), "env.LEVEL"),
            (json!({ "args": ["***"] }), "args[0]"),
            (json!({ "env": { "API_KEY": "x ***" } }), "env.API_KEY"),
        ] {
            let refused = restore_members(&mut map(moved), Some(&stored()), Some(&masked()), "");
            assert_eq!(refused, Err(MaskedValue::Unknown(path.to_owned())));
        }
        let new = restore_members(&mut map(json!({ "env": { "API_KEY": "***" } })), None, None, "");
        assert_eq!(new, Err(MaskedValue::Unknown("env.API_KEY".to_owned())));
    }

    /// Callers that may write entries, but not read their secrets, do not get them by a change of the URL.
    #[test]
    fn secrets_are_not_sent_to_another_host() {
        let token = format!("ghp_{}", "aB3d".repeat(9));
        let stored = map(json!({
            "url": "https://a.test/mcp",
            "headers": { "Authorization": format!("Bearer {token}"), "X-Team": "blue" },
        }));
        let change = |entry: Json, merge| {
            let mut entry = map(entry);
            restore_entry(&mut entry, Some(&stored), merge, &[]).map(|()| entry)
        };
        let masked = masked_entry(&stored, &[])["headers"]["Authorization"].clone();
        let headers = json!({ "Authorization": masked });
        let moved = || Err(MaskedValue::Moved("url".to_owned()));
        for url in
            ["https://b.test/mcp", "https://a.test@b.test/mcp", "https://a.test:444/mcp", "http://a.test/mcp"]
        {
            assert_eq!(change(json!({ "url": url, "headers": headers }), false), moved(), "{url}");
            assert_eq!(change(json!({ "url": url }), true), moved(), "the header stays: {url}");
        }
        let other = json!({ "headers": { "X-Team": "red" }, "oauth": { "token_url": "https://b.test/" } });
        assert_eq!(change(other, true), Err(MaskedValue::Moved("oauth.token_url".to_owned())));
        let allowed = change(json!({ "url": "https://a.test/v2", "headers": headers }), false).unwrap();
        assert_eq!(
            allowed["headers"]["Authorization"],
            format!("Bearer {token}"),
            "another path of the host"
        );
        // Without the stored secret, the entry may lead anywhere.
        let new = json!({ "url": "https://b.test/", "headers": { "Authorization": "Bearer other" } });
        assert!(change(new.clone(), false).is_ok() && change(new, true).is_ok());
        assert!(change(json!({ "url": "https://b.test/" }), false).is_ok());
        assert!(change(json!({ "url": "https://b.test/", "headers": null }), true).is_ok());
    }
}
