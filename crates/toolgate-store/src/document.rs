//! A registry file: the entries of `tools.json`, or those of `mcp.json`, by their names.
//!
//! Invariant: no two entries that a change touched have one name, and a text that was not changed is the
//! text that was read.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value as Json};

use crate::text::{List, TextError};

/// What an entry describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A tool of one's own, in `tools.json`.
    Tool,
    /// An MCP server, in `mcp.json`.
    Server,
}

impl Kind {
    /// What people call it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Server => "MCP server",
        }
    }

    /// The keys at the top of a file that its entries may stand under; the first where there is none yet.
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

/// One change of one entry.
#[derive(Debug, Clone, PartialEq)]
pub struct Op {
    /// What the entry describes.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// What becomes of it.
    pub act: Act,
}

/// What becomes of an entry.
#[derive(Debug, Clone, PartialEq)]
pub enum Act {
    /// It is new.
    Add(Map<String, Json>),
    /// It is written anew.
    Replace(Map<String, Json>),
    /// Some of its keys change, the rest stays as it is written: a merge patch of RFC 7396, in which
    /// `null` takes a key away.
    Patch(Map<String, Json>),
    /// It goes.
    Remove,
}

/// Why a change does not fit what is there.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Unfit {
    /// The name is taken.
    #[error("there is a {} `{name}` already", kind.label())]
    Exists {
        /// What it is.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// There is nothing by that name.
    #[error("there is no {} `{name}`", kind.label())]
    Missing {
        /// What it would be.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// The entry has another name than the change.
    #[error("the entry is called {found}, not `{name}`")]
    OtherName {
        /// The name of the change.
        name: String,
        /// What the entry has.
        found: String,
    },
    /// The file is not one that can be changed.
    #[error(transparent)]
    File(#[from] DocumentError),
}

/// Why a text is not a registry.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DocumentError {
    /// It is not JSON, or no object.
    #[error(transparent)]
    Text(#[from] TextError),
    /// What should hold the entries is something else.
    #[error("`{0}` is not what it should be")]
    Shape(String),
    /// Entries could stand in two places.
    #[error("it has both `{0}` and `{1}`; keep one")]
    Twice(String, String),
    /// There is no such file.
    #[error("the project has no file for it")]
    NoFile,
}

/// A registry file, cut at its entries.
#[derive(Debug, Clone)]
pub struct Document {
    kind: Kind,
    top: List,
    root: &'static str,
    list: List,
    /// The names of the entries, in their order.
    names: Vec<Arc<str>>,
}

impl Document {
    /// Cuts a text at its entries.
    pub fn parse(kind: Kind, text: &str) -> Result<Self, DocumentError> {
        let mut top = List::parse(text)?;
        if !top.is_object() {
            return Err(TextError::Shape.into());
        }
        let mut roots = kind.roots().iter().filter(|root| top.at(root).is_some());
        let root = match (roots.next(), roots.next()) {
            (Some(first), Some(second)) => {
                return Err(DocumentError::Twice((*first).to_owned(), (*second).to_owned()));
            }
            (Some(root), None) => root,
            (None, _) => {
                top.push(Some(kind.roots()[0]), &kind.empty());
                kind.roots()[0]
            }
        };
        let shape = || DocumentError::Shape(root.to_owned());
        let list = top.inner(root).ok_or_else(shape)?.map_err(|_| shape())?;
        let right = if kind == Kind::Tool { '[' } else { '{' };
        if !top.get(root).is_some_and(|text| text.starts_with(right)) {
            return Err(shape());
        }
        let names = match kind {
            Kind::Server => list.keys().map(Into::into).collect(),
            Kind::Tool => list.values().map(name_of).collect(),
        };
        Ok(Self { kind, top, root, list, names })
    }

    /// The text of a file without entries.
    pub fn blank(kind: Kind) -> String {
        let (root, empty) = (kind.roots()[0], kind.empty());
        format!("{{\n  \"{root}\": {empty}\n}}\n")
    }

    /// The text.
    pub fn text(&self) -> String {
        let mut top = self.top.clone();
        top.put_inner(self.root, &self.list);
        top.text()
    }

    /// The names of the entries, in their order.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.names.iter()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// An entry as it is written.
    pub fn entry(&self, name: &str) -> Option<&str> {
        self.list.values().nth(self.at(name)?)
    }

    fn at(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|own| **own == *name)
    }

    /// A text that holds these of the entries and nothing else.
    pub fn only(&self, names: &[&str]) -> String {
        let entries = names.iter().filter_map(|name| Some((name, self.entry(name)?)));
        let (open, close) = if self.kind == Kind::Tool { ("[", "]") } else { ("{", "}") };
        let entries = entries.map(|(name, text)| match self.kind {
            Kind::Tool => text.to_owned(),
            Kind::Server => format!("{}: {text}", Json::from(*name)),
        });
        format!("{{\"{}\": {open}{}{close}}}", self.root, entries.collect::<Vec<_>>().join(",\n"))
    }

    /// Makes a change, or says why it does not fit. Whether the entry is any good is not looked at.
    pub fn apply(&mut self, name: &str, act: &Act) -> Result<(), Unfit> {
        let kind = self.kind;
        let at = self.at(name);
        let known = || at.ok_or_else(|| Unfit::Missing { kind, name: name.to_owned() });
        match act {
            Act::Add(_) if at.is_some() => return Err(Unfit::Exists { kind, name: name.to_owned() }),
            Act::Add(entry) => {
                let entry = self.named(name, entry)?;
                self.list.push((kind == Kind::Server).then_some(name), &entry);
                self.names.push(name.into());
            }
            Act::Replace(entry) => {
                let (at, entry) = (known()?, self.named(name, entry)?);
                self.list.replace(at, &entry);
            }
            Act::Patch(patch) => {
                let at = known()?;
                if kind == Kind::Tool && patch.contains_key("name") {
                    self.named(name, patch)?;
                }
                let text = patched(&self.list, at, patch)?;
                self.list.put(at, text);
            }
            Act::Remove => {
                let at = known()?;
                self.list.remove(at);
                self.names.remove(at);
            }
        }
        Ok(())
    }

    /// The entry with its name in it, where that is where names are.
    fn named(&self, name: &str, entry: &Map<String, Json>) -> Result<Json, Unfit> {
        match entry.get("name") {
            _ if self.kind == Kind::Server => Ok(Json::Object(entry.clone())),
            Some(Json::String(own)) if own == name => Ok(Json::Object(entry.clone())),
            Some(own) => Err(Unfit::OtherName { name: name.to_owned(), found: format!("`{own}`") }),
            None => {
                let named = std::iter::once(("name".to_owned(), Json::from(name)));
                Ok(Json::Object(named.chain(entry.clone()).collect()))
            }
        }
    }
}

/// The name of a tool as its entry has it.
fn name_of(entry: &str) -> Arc<str> {
    let list = List::cut(entry).ok();
    let name = list.as_ref().and_then(|list| serde_json::from_str::<String>(list.get("name")?).ok());
    name.unwrap_or_default().into()
}

/// The text of an entry with some of its keys changed.
fn patched(list: &List, at: usize, patch: &Map<String, Json>) -> Result<String, DocumentError> {
    let mut entry = list.inner_at(at)?;
    for (key, value) in patch {
        match (value, entry.at(key)) {
            (Json::Null, Some(at)) => entry.remove(at),
            (Json::Null, None) => {}
            (Json::Object(inner), Some(at)) if entry.is_object_at(at) => {
                let text = patched(&entry, at, inner)?;
                entry.put(at, text);
            }
            (value, _) => entry.set(key, &without_nulls(value)),
        }
    }
    Ok(entry.text())
}

/// In a patch `null` means absent, on every level.
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

    fn changed(kind: Kind, text: &str, name: &str, act: &Act) -> Result<String, Unfit> {
        let mut document = Document::parse(kind, text)?;
        assert_eq!(document.text(), text);
        document.apply(name, act)?;
        Ok(document.text())
    }

    #[test]
    fn only_the_entry_changes() {
        let patch = Act::Patch(map(json!({ "limits": { "b": null, "c": 3 }, "version": "2" })));
        let after = changed(Kind::Tool, TOOLS, "sum", &patch).unwrap();
        let expected =
            TOOLS.replace(r#"{ "a": 1, "b": 2 }"#, "{ \"a\": 1, \"c\": 3 },\n      \"version\": \"2\"");
        assert_eq!(after, expected);
        let after = changed(Kind::Tool, TOOLS, "sum", &Act::Remove).unwrap();
        let expected = TOOLS.replace(
            ", // kept\n    {\n      \"name\": \"sum\", // adds\n      \"limits\": { \"a\": 1, \"b\": 2 }\n    }\n",
            " // kept\n",
        );
        assert_eq!(after, expected);
        let after = changed(Kind::Tool, TOOLS, "echo", &Act::Replace(map(json!({ "v": 1 })))).unwrap();
        let start = TOOLS.find("{\"name\": \"echo\"").unwrap();
        let end = TOOLS.find(", // kept").unwrap();
        assert_eq!(after, format!("{}{}{}", &TOOLS[..start], r#"{ "name": "echo", "v": 1 }"#, &TOOLS[end..]));
    }

    #[test]
    fn names_are_unique_and_known() {
        let add = Act::Add(map(json!({ "command": "x" })));
        let text = "{\"mcpServers\": {\"a\": {}}}";
        let fails = |name: &str, act: &Act| changed(Kind::Server, text, name, act).unwrap_err().to_string();
        assert_eq!(fails("a", &add), "there is a MCP server `a` already");
        assert_eq!(fails("b", &Act::Remove), "there is no MCP server `b`");
        assert_eq!(
            changed(Kind::Server, text, "b", &add).unwrap(),
            "{\"mcpServers\": {\"a\": {}, \"b\": { \"command\": \"x\" }}}"
        );
        let other = Act::Add(map(json!({ "name": "y" })));
        assert_eq!(
            changed(Kind::Tool, TOOLS, "x", &other).unwrap_err().to_string(),
            "the entry is called `\"y\"`, not `x`"
        );
    }

    #[test]
    fn files_of_other_shapes() {
        for (kind, text) in [
            (Kind::Tool, "[]"),
            (Kind::Tool, "{\"tools\": {}}"),
            (Kind::Server, "{\"servers\": []}"),
            (Kind::Server, "{\"servers\": {}, \"mcpServers\": {}}"),
            (Kind::Server, "{"),
        ] {
            assert!(Document::parse(kind, text).is_err(), "{text}");
        }
        for kind in [Kind::Tool, Kind::Server] {
            let mut document = Document::parse(kind, "{}").unwrap();
            document.apply("a", &Act::Add(Map::new())).unwrap();
            let again = Document::parse(kind, &document.text()).unwrap();
            assert_eq!(again.names().map(|name| name.to_string()).collect::<Vec<_>>(), ["a"]);
            assert_eq!(Document::parse(kind, &Document::blank(kind)).unwrap().len(), 0);
        }
    }

    #[test]
    fn some_of_the_entries() {
        let document = Document::parse(Kind::Tool, TOOLS).unwrap();
        let only = Document::parse(Kind::Tool, &document.only(&["sum", "none"])).unwrap();
        assert_eq!((only.len(), only.entry("sum")), (1, document.entry("sum")));
    }
}
