//! Registry entries with their secrets masked, for people to read and to send back.
//!
//! A masked entry can be edited and sent back: a string that is still masked keeps its stored value. Invariant: a stored
//! secret returns only to the place that it is stored at, so no change moves it to another key.

use serde_json::{Map, Value as Json};
use toolgate_redact::{mask, mask_config};
use toolgate_types::Secret;
use toolgate_types::secret::MASK;

use super::Runtime;

/// A masked string at a place where no such string is stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the value of `{0}` is masked, and no such value is stored")]
pub struct MaskedValue(pub String);

impl Runtime {
    /// Returns an entry with its secrets masked.
    pub fn masked_entry(&self, entry: &Map<String, Json>) -> Map<String, Json> {
        masked_entry(entry, &self.secrets())
    }

    /// Returns the places of the secrets of an entry, such as `env.API_KEY` or `args[1]`.
    pub fn secret_places(&self, entry: &Map<String, Json>) -> Vec<String> {
        secret_places(entry, &self.secrets())
    }

    /// Puts the stored values back in place of masked strings.
    ///
    /// # Errors
    /// If a masked string has no stored value at its place.
    pub fn restore_masked(
        &self,
        entry: &mut Map<String, Json>,
        stored: Option<&Map<String, Json>>,
    ) -> Result<(), MaskedValue> {
        let masked = stored.map(|stored| self.masked_entry(stored));
        restore_members(entry, stored, masked.as_ref(), "")
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
            _ => Err(MaskedValue(path.to_owned())),
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
            assert_eq!(refused, Err(MaskedValue(path.to_owned())));
        }
        let new = restore_members(&mut map(json!({ "env": { "API_KEY": "***" } })), None, None, "");
        assert_eq!(new, Err(MaskedValue("env.API_KEY".to_owned())));
    }
}
