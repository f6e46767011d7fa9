//! Forms of the console: their fields, and the JSON body of an operation that is made from them.
//!
//! The name of a field tells its type: `name` is a string, `name?` one that is left out if it is empty,
//! `name:json` any JSON, `name:list` a list of words; `$body` is the whole body as JSON. Other names with `$` are for the
//! console itself. Invariant: a form changes nothing without the token of its session.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::auth::HttpError;

/// Largest number of fields.
const MAX_FIELDS: usize = 1_000;

/// A message for the next page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Notice {
    pub(crate) failed: bool,
    pub(crate) text: String,
    pub(crate) hint: Option<String>,
}

/// The fields of a form, as sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Form(Vec<(String, String)>);

impl Form {
    pub(crate) fn parse(body: &Bytes) -> Result<Self, HttpError> {
        let fields: Vec<(String, String)> = serde_urlencoded::from_bytes(body)
            .map_err(|error| HttpError::invalid(format!("the form is invalid: {error}")))?;
        if fields.len() > MAX_FIELDS {
            return Err(HttpError::invalid(format!("the form has more than {MAX_FIELDS} fields")));
        }
        Ok(Self(fields))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The value of a field, empty if it is missing.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// The page to go to afterwards: one of this gateway.
    pub(crate) fn back(&self) -> &str {
        local_path(self.text("$back"))
    }

    /// Builds the body of an operation. `None` if no field is for it.
    pub(crate) fn body(&self) -> Result<Option<Json>, HttpError> {
        if let Some(whole) = self.get("$body") {
            return parse_json("body", whole).map(Some);
        }
        let mut members = Map::new();
        for (name, value) in self.0.iter().filter(|(name, _)| !name.starts_with('$')) {
            let value = value.replace("\r\n", "\n");
            match name.rsplit_once(':') {
                Some((name, "json")) if value.trim().is_empty() => drop(members.remove(name)),
                Some((name, "json")) => drop(members.insert(name.to_owned(), parse_json(name, &value)?)),
                Some((name, "list")) => {
                    let words = value.split([' ', '\n', ',']).filter(|word| !word.is_empty());
                    members.insert(name.to_owned(), words.map(Json::from).collect());
                }
                _ => match name.strip_suffix('?') {
                    Some(_) if value.trim().is_empty() => {}
                    Some(name) => drop(members.insert(name.to_owned(), value.trim().into())),
                    None => drop(members.insert(name.clone(), value.into())),
                },
            }
        }
        Ok((!members.is_empty()).then_some(Json::Object(members)))
    }
}

pub(crate) fn parse_json(name: &str, text: &str) -> Result<Json, HttpError> {
    serde_json::from_str(text)
        .map_err(|error| HttpError::invalid(format!("invalid JSON in `{name}`: {error}")))
}

/// A path of this gateway, or `/`. A browser takes `//host` and `/\host` for other hosts.
pub(crate) fn local_path(path: &str) -> &str {
    let is_local = path.starts_with('/')
        && !path[1..].starts_with(['/', '\\'])
        && path.bytes().all(|byte| (0x21..0x7f).contains(&byte) && byte != b'\\');
    if is_local { path } else { "/" }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_of_fields_say_their_types() {
        let form = "$csrf=x&id=ann&description%3F=&expires%3F=90d&permissions%3Alist=a%3Ab%0D%0Ac%2C+d&approve%3Ajson=true&gone%3Ajson=";
        let form = Form::parse(&Bytes::from_static(form.as_bytes())).unwrap();
        let body =
            json!({ "id": "ann", "expires": "90d", "permissions": ["a:b", "c", "d"], "approve": true });
        assert_eq!(form.body().unwrap(), Some(body));
        let whole = Form::parse(&Bytes::from_static(b"%24body=%7B%22a%22%3A1%7D&b=2")).unwrap();
        assert_eq!(whole.body().unwrap(), Some(json!({ "a": 1 })));
        let bad = Form::parse(&Bytes::from_static(b"tools%3Ajson=%7B")).unwrap().body().unwrap_err();
        assert!(bad.message.starts_with("invalid JSON in `tools`"), "{bad:?}");
        assert_eq!(Form::default().body().unwrap(), None);
    }

    #[test]
    fn forms_lead_to_pages_of_this_gateway_only() {
        for path in ["/", "/tools/a%20b?x=1#try"] {
            assert_eq!(local_path(path), path);
        }
        for path in [
            "",
            "//evil.example",
            "/\\evil.example",
            "https://evil.example",
            "/a\r\nSet-Cookie: x",
            "/a\tb",
            "/ü",
        ] {
            assert_eq!(local_path(path), "/", "{path:?}");
        }
    }
}
