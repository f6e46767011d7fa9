//! A registry file: the entries of `tools.json` or `mcp.json`, by name.
//!
//! Invariant: no two entries touched by changes have the same name, and an unchanged document renders to exactly the
//! text it was parsed from.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value as Json};

use crate::text::{self, EntryList, TextError, parse_value};

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A tool defined in the project, in `tools.json`.
    Tool,
    /// An MCP server, in `mcp.json`.
    Server,
}

impl EntryKind {
    /// Returns the name used in messages.
    pub fn label(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Server => "MCP server",
        }
    }

    /// Returns the top-level keys that may hold the entries; the first one is used if there is none yet.
    fn roots(self) -> &'static [&'static str] {
        match self {
            Self::Tool => &["tools"],
            Self::Server => &["servers", "mcpServers", "mcp_servers"],
        }
    }

    fn empty(self) -> Json {
        match self {
            Self::Tool => Json::Array(Vec::new()),
            Self::Server => Json::Object(Map::new()),
        }
    }
}

/// A change of one entry.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryOp {
    pub kind: EntryKind,
    pub name: String,
    pub action: EntryAction,
}

#[derive(Debug, Clone, PartialEq)]
pub enum EntryAction {
    Add(Map<String, Json>),
    Replace(Map<String, Json>),
    /// Changes some keys and leaves the rest as it is written: a JSON Merge Patch (RFC 7396), in which `null` removes a
    /// key.
    Patch(Map<String, Json>),
    Remove,
}

/// Reason why a change cannot be applied to the current entries.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EntryError {
    #[error("there is a {} `{name}` already", kind.label())]
    Exists { kind: EntryKind, name: String },
    #[error("there is no {} `{name}`", kind.label())]
    Missing { kind: EntryKind, name: String },
    /// The `name` in the entry differs from the name of the change.
    #[error("the entry is called {found}, not `{name}`")]
    NameMismatch {
        /// Name of the change.
        name: String,
        /// Name in the entry.
        found: String,
    },
    /// The file cannot be changed.
    #[error(transparent)]
    File(#[from] DocumentError),
}

/// Reason why a text is not a registry file.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DocumentError {
    /// The text is not JSON, or not an object.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The value that should hold the entries has the wrong type.
    #[error("`{0}` must be {shape}", shape = if .0 == "tools" { "an array" } else { "an object" })]
    Shape(String),
    /// Two keys could hold the entries.
    #[error("it has both `{0}` and `{1}`; keep one")]
    AmbiguousRoot(String, String),
    #[error("the project has no file for this kind of entry")]
    NoFile,
}

/// A registry file, split into its entries.
#[derive(Debug, Clone)]
pub struct RegistryDocument {
    kind: EntryKind,
    top: EntryList,
    root: &'static str,
    list: EntryList,
    /// Names of the entries, in order.
    names: Vec<Arc<str>>,
}

impl RegistryDocument {
    /// Splits a text into its entries.
    pub fn parse(kind: EntryKind, text: &str) -> Result<Self, DocumentError> {
        let mut top = EntryList::parse(text)?;
        if !top.is_object() {
            return Err(TextError::Shape.into());
        }
        let mut roots = kind.roots().iter().filter(|root| top.position(root).is_some());
        let root = match (roots.next(), roots.next()) {
            (Some(first), Some(second)) => {
                return Err(DocumentError::AmbiguousRoot((*first).to_owned(), (*second).to_owned()));
            }
            (Some(root), None) => root,
            (None, _) => {
                top.push(Some(kind.roots()[0]), &kind.empty());
                kind.roots()[0]
            }
        };
        let shape = || DocumentError::Shape(root.to_owned());
        let list = top.inner(root).ok_or_else(shape)?.map_err(|_| shape())?;
        let right = if kind == EntryKind::Tool { '[' } else { '{' };
        if !top.get(root).is_some_and(|text| text.starts_with(right)) {
            return Err(shape());
        }
        let names = match kind {
            EntryKind::Server => list.keys().map(Into::into).collect(),
            EntryKind::Tool => list.values().map(name_of).collect(),
        };
        Ok(Self { kind, top, root, list, names })
    }

    /// Returns the text of a file without entries.
    pub fn empty_text(kind: EntryKind) -> String {
        let (root, empty) = (kind.roots()[0], kind.empty());
        format!("{{\n  \"{root}\": {empty}\n}}\n")
    }

    /// Renders the file.
    pub fn text(&self) -> String {
        let mut top = self.top.clone();
        top.put_inner(self.root, &self.list);
        top.text()
    }

    /// Returns the names of the entries, in order.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.names.iter()
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns an entry as it is written.
    pub fn entry(&self, name: &str) -> Option<&str> {
        self.list.values().nth(self.position(name)?)
    }

    /// Returns an entry as a value, without its comments.
    pub fn entry_value(&self, name: &str) -> Option<Map<String, Json>> {
        match text::parse_json(self.entry(name)?)? {
            Json::Object(entry) => Some(entry),
            _ => None,
        }
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|own| **own == *name)
    }

    /// Renders a file that contains only these entries.
    pub fn render_only(&self, names: &[&str]) -> String {
        let entries = names.iter().filter_map(|name| Some((name, self.entry(name)?)));
        let (open, close) = if self.kind == EntryKind::Tool { ("[", "]") } else { ("{", "}") };
        let entries = entries.map(|(name, text)| match self.kind {
            EntryKind::Tool => text.to_owned(),
            EntryKind::Server => format!("{}: {text}", Json::from(*name)),
        });
        format!("{{\"{}\": {open}{}{close}}}", self.root, entries.collect::<Vec<_>>().join(",\n"))
    }

    /// Applies a change. The entry itself is not validated.
    pub fn apply(&mut self, name: &str, act: &EntryAction) -> Result<(), EntryError> {
        let kind = self.kind;
        let at = self.position(name);
        let known = || at.ok_or_else(|| EntryError::Missing { kind, name: name.to_owned() });
        match act {
            EntryAction::Add(_) if at.is_some() => {
                return Err(EntryError::Exists { kind, name: name.to_owned() });
            }
            EntryAction::Add(entry) => {
                let entry = self.with_name(name, entry)?;
                self.list.push((kind == EntryKind::Server).then_some(name), &entry);
                self.names.push(name.into());
            }
            EntryAction::Replace(entry) => {
                let (at, entry) = (known()?, self.with_name(name, entry)?);
                self.list.replace(at, &entry);
            }
            EntryAction::Patch(patch) => {
                let at = known()?;
                if kind == EntryKind::Tool && patch.contains_key("name") {
                    self.with_name(name, patch)?;
                }
                let text = patch_entry(&self.list, at, patch)?;
                self.list.put_text(at, text);
            }
            EntryAction::Remove => {
                let at = known()?;
                self.list.remove(at);
                self.names.remove(at);
            }
        }
        Ok(())
    }

    /// Adds the name to an entry of `tools.json`; in `mcp.json` the key is the name.
    fn with_name(&self, name: &str, entry: &Map<String, Json>) -> Result<Json, EntryError> {
        match entry.get("name") {
            _ if self.kind == EntryKind::Server => Ok(Json::Object(entry.clone())),
            Some(Json::String(own)) if own == name => Ok(Json::Object(entry.clone())),
            Some(own) => Err(EntryError::NameMismatch { name: name.to_owned(), found: format!("`{own}`") }),
            None => {
                let named = std::iter::once(("name".to_owned(), Json::from(name)));
                Ok(Json::Object(named.chain(entry.clone()).collect()))
            }
        }
    }
}

/// Returns the name in the entry of a tool.
fn name_of(entry: &str) -> Arc<str> {
    let entry = parse_value(entry).ok();
    let name = entry.as_ref().and_then(|entry| entry.as_object()?.get_string("name"));
    name.map_or_else(|| "".into(), |name| (*name.value).into())
}

/// Renders an entry with some of its keys changed.
fn patch_entry(list: &EntryList, at: usize, patch: &Map<String, Json>) -> Result<String, DocumentError> {
    let mut entry = list.inner_at(at)?;
    for (key, value) in patch {
        match (value, entry.position(key)) {
            (Json::Null, Some(at)) => entry.remove(at),
            (Json::Null, None) => {}
            (Json::Object(inner), Some(at)) if entry.is_object_at(at) => {
                let text = patch_entry(&entry, at, inner)?;
                entry.put_text(at, text);
            }
            (value, _) => entry.set(key, &without_nulls(value)),
        }
    }
    Ok(entry.text())
}

/// Removes `null` members on every level: in a patch they mean absent.
fn without_nulls(value: &Json) -> Json {
    match value {
        Json::Object(fields) => {
            let there = fields.iter().filter(|(_, value)| !value.is_null());
            Json::Object(there.map(|(key, value)| (key.clone(), without_nulls(value))).collect())
        }
        value => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TOOLS: &str = r#"// ours
{
  "tools": [
    // says what it hears
    {"name": "echo", "description": "Echo.", "input_schema": {"type": "object"}}, // kept
    {
      "name": "sum", // adds
      "limits": { "a": 1, "b": 2 }
    }
  ]
}
"#;

    fn map(value: Json) -> Map<String, Json> {
        value.as_object().unwrap().clone()
    }

    fn changed(kind: EntryKind, text: &str, name: &str, act: &EntryAction) -> Result<String, EntryError> {
        let mut document = RegistryDocument::parse(kind, text)?;
        assert_eq!(document.text(), text);
        document.apply(name, act)?;
        Ok(document.text())
    }

    #[test]
    fn change_touches_only_its_entry() {
        let patch = EntryAction::Patch(map(json!({ "limits": { "b": null, "c": 3 }, "version": "2" })));
        let after = changed(EntryKind::Tool, TOOLS, "sum", &patch).unwrap();
        let expected =
            TOOLS.replace(r#"{ "a": 1, "b": 2 }"#, "{ \"a\": 1, \"c\": 3 },\n      \"version\": \"2\"");
        assert_eq!(after, expected);
        let after = changed(EntryKind::Tool, TOOLS, "sum", &EntryAction::Remove).unwrap();
        let expected = TOOLS.replace(
            ", // kept\n    {\n      \"name\": \"sum\", // adds\n      \"limits\": { \"a\": 1, \"b\": 2 }\n    }\n",
            " // kept\n",
        );
        assert_eq!(after, expected);
        let after =
            changed(EntryKind::Tool, TOOLS, "echo", &EntryAction::Replace(map(json!({ "v": 1 })))).unwrap();
        let start = TOOLS.find("{\"name\": \"echo\"").unwrap();
        let end = TOOLS.find(", // kept").unwrap();
        assert_eq!(after, format!("{}{}{}", &TOOLS[..start], r#"{ "name": "echo", "v": 1 }"#, &TOOLS[end..]));
    }

    #[test]
    fn entries_are_read_without_their_comments() {
        let text = r#"{"servers": {"a": { // ours
            "command": "x\u00e4", /* big */ "n": [1.50, null, true], }, "b": 7}}"#;
        let document = RegistryDocument::parse(EntryKind::Server, text).unwrap();
        let entry = document.entry_value("a").unwrap();
        assert_eq!(Json::Object(entry), json!({ "command": "xä", "n": [1.5, null, true] }));
        assert_eq!((document.entry_value("b"), document.entry_value("c")), (None, None));
    }

    #[test]
    fn rejects_duplicate_and_unknown_names() {
        let add = EntryAction::Add(map(json!({ "command": "x" })));
        let text = "{\"mcpServers\": {\"a\": {}}}";
        let fails = |name: &str, act: &EntryAction| {
            changed(EntryKind::Server, text, name, act).unwrap_err().to_string()
        };
        assert_eq!(fails("a", &add), "there is a MCP server `a` already");
        assert_eq!(fails("b", &EntryAction::Remove), "there is no MCP server `b`");
        assert_eq!(
            changed(EntryKind::Server, text, "b", &add).unwrap(),
            "{\"mcpServers\": {\"a\": {}, \"b\": { \"command\": \"x\" }}}"
        );
        let other = EntryAction::Add(map(json!({ "name": "y" })));
        assert_eq!(
            changed(EntryKind::Tool, TOOLS, "x", &other).unwrap_err().to_string(),
            "the entry is called `\"y\"`, not `x`"
        );
    }

    #[test]
    fn rejects_files_of_other_shapes() {
        for (kind, text) in [
            (EntryKind::Tool, "[]"),
            (EntryKind::Tool, "{\"tools\": {}}"),
            (EntryKind::Server, "{\"servers\": []}"),
            (EntryKind::Server, "{\"servers\": {}, \"mcpServers\": {}}"),
            (EntryKind::Server, "{"),
        ] {
            assert!(RegistryDocument::parse(kind, text).is_err(), "{text}");
        }
        for kind in [EntryKind::Tool, EntryKind::Server] {
            let mut document = RegistryDocument::parse(kind, "{}").unwrap();
            document.apply("a", &EntryAction::Add(Map::new())).unwrap();
            let again = RegistryDocument::parse(kind, &document.text()).unwrap();
            assert_eq!(again.names().map(|name| name.to_string()).collect::<Vec<_>>(), ["a"]);
            assert_eq!(RegistryDocument::parse(kind, &RegistryDocument::empty_text(kind)).unwrap().len(), 0);
        }
    }

    #[test]
    fn renders_selected_entries() {
        let document = RegistryDocument::parse(EntryKind::Tool, TOOLS).unwrap();
        let only = RegistryDocument::parse(EntryKind::Tool, &document.render_only(&["sum", "none"])).unwrap();
        assert_eq!((only.len(), only.entry("sum")), (1, document.entry("sum")));
    }
}
