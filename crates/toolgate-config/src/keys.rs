//! The keys of a file, defined once: a struct in [`keys!`] is the reader, the JSON Schema and the
//! reference page of a map; an enum in [`choice!`] is the same for a word.
//!
//! Reading collects problems and goes on: a field that is wrong is `None`, and the rest is still
//! read. Invariant: no key is read that the schema does not have, and the other way round.

use std::num::NonZeroU32;

use serde_json::{Map as JsonMap, Value as Json, json};
use toolgate_types::{ByteSize, HumanDuration, Text};

use crate::context::{Context, Whose};
use crate::node::{Entry, Kind, Node, Value};
use crate::problem::Problem;
use crate::source::Span;

/// Something that can stand in a file.
pub(crate) trait Read: Sized {
    /// The value, or `None` when it is wrong, which was told.
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self>;
    /// Its JSON Schema; named parts go to `parts`.
    fn schema(parts: &mut JsonMap<String, Json>) -> Json;
    /// What it is, for the reference page.
    fn label() -> String;
    /// Adds the maps in it to the reference page.
    fn tables(_out: &mut Vec<Table>) {}
}

/// A value that was written, with its place.
#[derive(Debug, Clone)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) span: Span,
    pub(crate) key_span: Span,
}

/// A map on the reference page.
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) doc: String,
    pub(crate) keys: Vec<Key>,
}

/// A key on the reference page.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) aliases: &'static [&'static str],
    pub(crate) label: String,
    pub(crate) default: Option<&'static str>,
    pub(crate) required: bool,
    pub(crate) doc: String,
}

/// Defines a map: `key ("alias") : Type = "default" ; required`, each with a doc comment.
macro_rules! keys {
    (
        $(#[doc = $doc:literal])*
        struct $name:ident as $what:literal {
            $(
                $(#[doc = $key_doc:literal])*
                $key:ident $(($($alias:literal),+))? : $type:ty $(= $default:literal)? $(; $required:ident)?,
            )*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Debug, Clone)]
        pub(crate) struct $name {
            /// Where the map is.
            #[allow(dead_code, clippy::allow_attributes, reason = "not every map has rules between its keys")]
            pub(crate) span: $crate::source::Span,
            /// The keys that were written, the wrong ones included.
            #[allow(dead_code, clippy::allow_attributes, reason = "not every map has rules between its keys")]
            pub(crate) given: Vec<&'static str>,
            $($(#[doc = $key_doc])* pub(crate) $key: Option<$crate::keys::At<$type>>,)*
        }

        impl $crate::keys::Read for $name {
            fn read(node: &$crate::node::Node, cx: &mut $crate::context::Context<'_>) -> Option<Self> {
                let mut map = $crate::keys::OpenMap::open(node, $what, cx)?;
                $(
                    let key = $crate::keys::KeyName {
                        name: $crate::keys::plain(stringify!($key)),
                        aliases: &[$($($alias),+)?],
                        required: $crate::keys::is_required(&[$(stringify!($required))?]),
                    };
                    let $key = map.take::<$type>(key, cx);
                )*
                let span = node.span;
                let given = map.close(cx);
                Some(Self { span, given, $($key,)* })
            }

            fn schema(parts: &mut serde_json::Map<String, serde_json::Value>) -> serde_json::Value {
                let name = stringify!($name);
                if !parts.contains_key(name) {
                    // Its place is taken first, so that a map can hold itself.
                    parts.insert(name.to_owned(), serde_json::Value::Null);
                    let schema = $crate::keys::map_schema(&Self::table(), vec![$(<$type>::schema(parts)),*]);
                    parts.insert(name.to_owned(), schema);
                }
                serde_json::json!({ "$ref": format!("#/$defs/{name}") })
            }

            fn label() -> String {
                format!("[{}](#{})", $what, $crate::keys::anchor($what))
            }

            fn tables(out: &mut Vec<$crate::keys::Table>) {
                if !out.iter().any(|table| table.name == stringify!($name)) {
                    out.push(Self::table());
                    $(<$type>::tables(out);)*
                }
            }
        }

        impl $name {
            /// A map in which nothing is written.
            #[allow(dead_code, clippy::allow_attributes, reason = "only dialects that build an entry need it")]
            pub(crate) fn empty(span: $crate::source::Span) -> Self {
                Self { span, given: Vec::new(), $($key: None,)* }
            }

            /// Every key that was written and is good, with the place of its value.
            #[allow(dead_code, clippy::allow_attributes, reason = "the top of a file has no origins of its own")]
            pub(crate) fn written(&self) -> Vec<(&'static str, $crate::source::Span)> {
                let keys = [$(($crate::keys::plain(stringify!($key)), self.$key.as_ref().map(|at| at.span)),)*];
                keys.into_iter().filter_map(|(key, span)| Some((key, span?))).collect()
            }

            fn table() -> $crate::keys::Table {
                $crate::keys::Table {
                    name: stringify!($name),
                    what: $what,
                    doc: $crate::keys::prose(&[$($doc),*]),
                    keys: vec![$($crate::keys::Key {
                        name: $crate::keys::plain(stringify!($key)),
                        aliases: &[$($($alias),+)?],
                        label: <$type as $crate::keys::Read>::label(),
                        default: [None, $(Some($default))?].into_iter().flatten().next(),
                        required: $crate::keys::is_required(&[$(stringify!($required))?]),
                        doc: $crate::keys::prose(&[$($key_doc),*]),
                    },)*],
                }
            }
        }
    };
}
pub(crate) use keys;

/// Defines a word: `Variant = "word" | "other spelling"`, each with a doc comment.
macro_rules! choice {
    (
        $(#[doc = $doc:literal])*
        enum $name:ident as $what:literal {
            $($(#[doc = $word_doc:literal])* $variant:ident = $word:literal $(| $synonym:literal)*,)+
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name { $($(#[doc = $word_doc])* $variant,)+ }

        impl $crate::keys::Read for $name {
            fn read(node: &$crate::node::Node, cx: &mut $crate::context::Context<'_>) -> Option<Self> {
                let text = $crate::keys::scalar(node, $what, cx)?;
                match text.as_str() {
                    $($word $(| $synonym)* => Some(Self::$variant),)+
                    _ => {
                        let words = [$($word),+];
                        let hint = match $crate::keys::closest(&text, words) {
                            Some(word) => format!("did you mean `{word}`?"),
                            None => format!("{} is expected", $crate::keys::listed(&words, "or")),
                        };
                        cx.error(node.span, format!("`{text}` is not {}{}", $what, cx.whereabouts()), hint);
                        None
                    }
                }
            }

            fn schema(_parts: &mut serde_json::Map<String, serde_json::Value>) -> serde_json::Value {
                serde_json::json!({ "enum": [$($word, $($synonym,)*)+] })
            }

            fn label() -> String {
                $crate::keys::listed(&[$($word),+], "or")
            }
        }
    };
}
pub(crate) use choice;

/// A key with its other spellings.
pub(crate) struct KeyName {
    pub(crate) name: &'static str,
    pub(crate) aliases: &'static [&'static str],
    pub(crate) required: bool,
}

/// A map while it is read: what is left at its end is unknown.
pub(crate) struct OpenMap<'n> {
    entries: Vec<&'n Entry>,
    known: Vec<&'static str>,
    given: Vec<&'static str>,
    span: Span,
    top: bool,
}

impl<'n> OpenMap<'n> {
    pub(crate) fn open(node: &'n Node, what: &str, cx: &mut Context<'_>) -> Option<Self> {
        let Value::Map(entries) = &node.value else {
            wrong_kind(node, "a map of keys and values is expected", cx);
            return None;
        };
        let top = cx.labels.is_empty();
        let name =
            cx.next_name.take().or_else(|| node.get("name").and_then(Node::as_text).map(str::to_owned));
        let name = name.filter(|name| !name.is_empty());
        cx.labels.push(name.map_or_else(|| what.to_owned(), |name| format!("{what} `{name}`")));
        let start = entries.first().map_or(node.span, |entry| entry.key_span);
        Some(Self {
            entries: entries.iter().collect(),
            known: Vec::new(),
            given: Vec::new(),
            span: start,
            top,
        })
    }

    pub(crate) fn take<T: Read>(&mut self, key: KeyName, cx: &mut Context<'_>) -> Option<At<T>> {
        self.known.push(key.name);
        let mut found: Option<&Entry> = None;
        for name in std::iter::once(&key.name).chain(key.aliases) {
            let Some(at) = self.entries.iter().position(|entry| entry.key == *name) else { continue };
            let entry = self.entries.remove(at);
            match found {
                None => found = Some(entry),
                Some(first) => cx.error(
                    entry.key_span,
                    format!("`{}` and `{}` are the same key{}", first.key, entry.key, cx.whereabouts()),
                    "keep one of the two",
                ),
            }
        }
        // An empty value is as good as none: `tools:` with everything commented out.
        match found.filter(|entry| key.required || !entry.node.is_null()) {
            Some(entry) => {
                self.given.push(key.name);
                let outer = cx.key.replace(entry.key.clone());
                let value = T::read(&entry.node, cx);
                cx.key = outer;
                value.map(|value| At { value, span: entry.node.span, key_span: entry.key_span })
            }
            None => {
                if key.required {
                    let message = format!("missing key `{}`{}", key.name, cx.whereabouts());
                    cx.error(self.span, message, format!("add `{}`: {}", key.name, unlinked(&T::label())));
                }
                None
            }
        }
    }

    /// Tells which keys are unknown; returns those that were written.
    pub(crate) fn close(self, cx: &mut Context<'_>) -> Vec<&'static str> {
        for entry in &self.entries {
            // `$schema` tells an editor which schema to use; `x-…` is where YAML anchors are kept.
            if self.top && (entry.key == "$schema" || entry.key.starts_with("x-")) {
                continue;
            }
            let hint = self.hint(&entry.key, cx.whose);
            let whereabouts = if self.top { String::new() } else { cx.whereabouts() };
            let problem = match cx.whose {
                Whose::Ours => {
                    Problem::error(entry.key_span, format!("unknown key `{}`{whereabouts}", entry.key))
                }
                Whose::Others => {
                    Problem::note(entry.key_span, format!("`{}`{whereabouts} is not used", entry.key))
                }
            };
            cx.push(match hint {
                Some(hint) => problem.hint(hint),
                None => problem,
            });
        }
        cx.labels.pop();
        self.given
    }

    /// The way out of an unknown key.
    fn hint(&self, wrong: &str, whose: Whose) -> Option<String> {
        match closest(wrong, self.known.iter().copied()) {
            Some(key) => Some(format!("did you mean `{key}`?")),
            None if whose == Whose::Others => None,
            None if let Some(home) = crate::schema::home_of(wrong) => Some(home),
            None if self.known.len() <= FEW_KEYS => Some(format!("there is {}", listed(&self.known, "and"))),
            None => Some("`toolgate schema --reference` shows every key".to_owned()),
        }
    }
}

/// As many keys as a hint can list.
const FEW_KEYS: usize = 6;

pub(crate) fn map_schema(table: &Table, schemas: Vec<Json>) -> Json {
    let mut properties = JsonMap::new();
    for (key, mut schema) in table.keys.iter().zip(schemas) {
        for alias in key.aliases {
            properties.insert((*alias).to_owned(), schema.clone());
        }
        if let Json::Object(schema) = &mut schema {
            schema.insert("description".to_owned(), key.doc.clone().into());
            if let Some(default) = key.default {
                let default = serde_json::from_str(default).unwrap_or_else(|_| default.into());
                schema.insert("default".to_owned(), default);
            }
        }
        properties.insert(key.name.to_owned(), schema);
    }
    // A key that may be spelled two ways is required in neither.
    let required: Vec<_> =
        table.keys.iter().filter(|key| key.required && key.aliases.is_empty()).map(|key| key.name).collect();
    json!({
        "description": table.doc,
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
        "required": required,
    })
}

/// The name of a field without the `r#` that Rust needs.
pub(crate) fn plain(field: &'static str) -> &'static str {
    field.strip_prefix("r#").unwrap_or(field)
}

pub(crate) fn is_required(words: &[&str]) -> bool {
    assert!(words.iter().all(|word| *word == "required"), "`required` is the only word after a key's `;`");
    !words.is_empty()
}

/// A doc comment as one text.
pub(crate) fn prose(lines: &[&str]) -> String {
    let lines: Vec<_> = lines.iter().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    lines.join("\n").trim().to_owned()
}

/// The fragment that GitHub gives a heading.
pub(crate) fn anchor(heading: &str) -> String {
    heading
        .to_lowercase()
        .replace(' ', "-")
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_'))
        .collect()
}

/// The word that was probably meant.
pub(crate) fn closest<'w>(wrong: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    // Far longer than any word of ours, and comparing takes the product of the two lengths.
    if wrong.len() > 64 {
        return None;
    }
    let wrong = wrong.to_lowercase();
    let measured = words.into_iter().map(|word| (strsim::damerau_levenshtein(&wrong, word), word));
    // A third of a word may be wrong, and one letter of a short one.
    let near = measured.filter(|(distance, word)| *distance <= (word.chars().count() / 3).max(1));
    near.min_by_key(|(distance, _)| *distance).map(|(_, word)| word)
}

/// "`a`, `b` or `c`".
pub(crate) fn listed(words: &[&str], between: &str) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} {between} {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// The text of a scalar with its references resolved; anything else is told to be wrong.
pub(crate) fn scalar(node: &Node, what: &str, cx: &mut Context<'_>) -> Option<String> {
    match &node.value {
        Value::Scalar(scalar) if scalar.kind != Kind::Null => cx.resolve(node).map(|resolved| resolved.value),
        _ => {
            wrong_kind(node, &format!("{what} is expected"), cx);
            None
        }
    }
}

pub(crate) fn wrong_kind(node: &Node, hint: &str, cx: &mut Context<'_>) {
    let span = match &node.value {
        // The first line of a map or list says enough.
        Value::Map(entries) => entries.first().map_or(node.span, |entry| entry.key_span),
        _ => node.span,
    };
    let place = cx.key.as_ref().map_or_else(|| "here".to_owned(), |key| format!("`{key}`"));
    let message = format!("{} does not fit {place}{}", node.describe(), cx.whereabouts());
    cx.error(span, message, hint);
}

/// Reads a scalar by its `FromStr`.
fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
    node: &Node,
    what: &str,
    cx: &mut Context<'_>,
) -> Option<T> {
    let text = scalar(node, what, cx)?;
    match text.parse() {
        Ok(value) => Some(value),
        Err(error) => {
            cx.error(node.span, format!("`{text}` is not {what}{}", cx.whereabouts()), format!("{error}"));
            None
        }
    }
}

macro_rules! read_by_parsing {
    ($($type:ty: $what:literal, $schema:tt;)+) => {$(
        impl Read for $type {
            fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
                parsed(node, $what, cx)
            }

            fn schema(_parts: &mut JsonMap<String, Json>) -> Json {
                json!($schema)
            }

            fn label() -> String {
                $what.to_owned()
            }
        }
    )+};
}

read_by_parsing! {
    toolgate_types::agent::Amount: "an amount", { "type": ["number", "string"], "minimum": 0 };
    HumanDuration: "a duration", { "type": ["string", "number"], "examples": ["30s", "500ms", "PT30S", 30] };
    ByteSize: "a size", { "type": ["string", "integer"], "examples": ["4MiB", "64KiB", 4096] };
    std::num::NonZeroU16: "a port", { "type": "integer", "minimum": 1, "maximum": 65535 };
    toolgate_types::ToolName: "a tool's name", { "type": "string", "pattern": "^[A-Za-z0-9_.-]{1,128}$" };
    toolgate_types::ServerName: "a server's name", { "type": "string", "minLength": 1, "maxLength": 64 };
    std::net::SocketAddr: "an address with a port", { "type": "string", "examples": ["127.0.0.1:7332", "[::1]:7332"] };
    toolgate_types::KeyHash: "the SHA-256 of a key", { "type": "string", "pattern": "^[0-9A-Fa-f]{64}$" };
    crate::file::door::Fingerprint: "the SHA-256 of a certificate", { "type": "string", "pattern": "^[0-9A-Fa-f:]{64,95}$" };
    toolgate_types::door::HostName: "the name of a host", { "type": "string", "pattern": "^[A-Za-z0-9.-]{1,253}$" };
    toolgate_types::network::Network: "a network", { "type": "string", "examples": ["10.1.0.0/16", "fd00::/8"] };
    toolgate_types::CallerId: "a caller's id", { "type": "string", "pattern": "^[A-Za-z0-9._@:/-]{1,128}$" };
    toolgate_types::caller::PermissionPattern: "a permission pattern", { "type": "string", "pattern": "^(\\*|[A-Za-z0-9_.-]+):(\\*|[A-Za-z0-9_.-]+)$" };
    toolgate_types::redact::Pattern: "a pattern", { "type": "string", "format": "regex", "minLength": 1, "maxLength": 1000 };
    toolgate_types::audit::Reserve: "a size or `none`", { "type": ["string", "integer"], "examples": ["64MiB", "none"] };
    toolgate_types::tool::Permission: "a permission", { "type": "string", "pattern": "^[A-Za-z0-9_.-]+:[A-Za-z0-9_.-]+$" };
}

impl Read for NonZeroU32 {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        let text = scalar(node, "a positive whole number", cx)?;
        let number = text.parse::<u32>().ok().and_then(Self::new);
        if number.is_none() {
            let message = format!("`{text}` is not a positive whole number{}", cx.whereabouts());
            cx.error(node.span, message, "write a whole number from 1 on");
        }
        number
    }

    fn schema(_parts: &mut JsonMap<String, Json>) -> Json {
        json!({ "type": ["integer", "string"], "minimum": 1 })
    }

    fn label() -> String {
        "a positive whole number".to_owned()
    }
}

impl Read for bool {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        let text = scalar(node, "`true` or `false`", cx)?;
        match text.to_ascii_lowercase().as_str() {
            "true" => Some(true),
            "false" => Some(false),
            _ => {
                let message = format!("`{text}` is neither `true` nor `false`{}", cx.whereabouts());
                cx.error(node.span, message, "write `true` or `false`");
                None
            }
        }
    }

    fn schema(_parts: &mut JsonMap<String, Json>) -> Json {
        json!({ "type": ["boolean", "string"] })
    }

    fn label() -> String {
        "`true` or `false`".to_owned()
    }
}

impl Read for String {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        scalar(node, "a text", cx)
    }

    fn schema(_parts: &mut JsonMap<String, Json>) -> Json {
        json!({ "type": ["string", "number", "boolean"] })
    }

    fn label() -> String {
        "a text".to_owned()
    }
}

impl Read for Text {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        match &node.value {
            Value::Scalar(scalar) if scalar.kind != Kind::Null => cx.resolve_text(node),
            _ => {
                wrong_kind(node, "a text is expected", cx);
                None
            }
        }
    }

    fn schema(parts: &mut JsonMap<String, Json>) -> Json {
        String::schema(parts)
    }

    fn label() -> String {
        String::label()
    }
}

/// A value where nothing means something: `null` keeps a variable away from a child.
impl<T: Read> Read for Option<T> {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        if node.is_null() { Some(None) } else { T::read(node, cx).map(Some) }
    }

    fn schema(parts: &mut JsonMap<String, Json>) -> Json {
        json!({ "anyOf": [T::schema(parts), { "type": "null" }] })
    }

    fn label() -> String {
        format!("{} or nothing", T::label())
    }
}

impl<T: Read> Read for Vec<At<T>> {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        let Value::List(items) = &node.value else {
            wrong_kind(node, &unlinked(&format!("a list of {} is expected", plural(&T::label()))), cx);
            return None;
        };
        // Every item is read, so that each gets its problems told.
        let read =
            |item: &Node| T::read(item, cx).map(|value| At { value, span: item.span, key_span: item.span });
        Some(items.iter().filter_map(read).collect())
    }

    fn schema(parts: &mut JsonMap<String, Json>) -> Json {
        json!({ "type": "array", "items": T::schema(parts) })
    }

    fn label() -> String {
        format!("list of {}", plural(&T::label()))
    }

    fn tables(out: &mut Vec<Table>) {
        T::tables(out);
    }
}

fn plural(label: &str) -> String {
    let label = label.strip_prefix("a ").or_else(|| label.strip_prefix("an ")).unwrap_or(label);
    if label.starts_with('[') || label.ends_with('`') { label.to_owned() } else { format!("{label}s") }
}

/// A label without the link that the reference page has: `list of [tool](#tool)` is "list of tools".
fn unlinked(label: &str) -> String {
    let Some((before, link)) = label.split_once('[') else { return label.to_owned() };
    let Some((name, target)) = link.split_once("](#") else { return label.to_owned() };
    let after = target.split_once(')').map_or("", |(_, after)| after);
    let many = if before.ends_with("of ") && !name.ends_with('s') { "s" } else { "" };
    format!("{before}{name}{many}{}", unlinked(after))
}

/// A map from names to values, in the order of the file.
#[derive(Debug, Clone)]
pub(crate) struct Named<T>(pub(crate) Vec<(String, At<T>)>);

impl<T: Read> Read for Named<T> {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        let Value::Map(entries) = &node.value else {
            wrong_kind(node, "a map from names to values is expected", cx);
            return None;
        };
        let mut read = Vec::with_capacity(entries.len());
        for entry in entries {
            cx.next_name = Some(entry.key.clone());
            let value = T::read(&entry.node, cx);
            cx.next_name = None;
            if let Some(value) = value {
                let at = At { value, span: entry.node.span, key_span: entry.key_span };
                read.push((entry.key.clone(), at));
            }
        }
        Some(Self(read))
    }

    fn schema(parts: &mut JsonMap<String, Json>) -> Json {
        json!({ "type": "object", "additionalProperties": T::schema(parts) })
    }

    fn label() -> String {
        format!("map of {}", plural(&T::label()))
    }

    fn tables(out: &mut Vec<Table>) {
        T::tables(out);
    }
}

/// One value or a list of them.
#[derive(Debug, Clone)]
pub(crate) struct OneOrMany<T>(pub(crate) Vec<At<T>>);

impl<T: Read> Read for OneOrMany<T> {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        if matches!(node.value, Value::List(_)) {
            return Vec::read(node, cx).map(Self);
        }
        T::read(node, cx).map(|value| Self(vec![At { value, span: node.span, key_span: node.span }]))
    }

    fn schema(parts: &mut JsonMap<String, Json>) -> Json {
        json!({ "anyOf": [T::schema(parts), Vec::<At<T>>::schema(parts)] })
    }

    fn label() -> String {
        format!("{} or a {}", T::label(), Vec::<At<T>>::label())
    }
}

/// Any JSON, kept as it is written: schemas, examples. References in it are left alone.
#[derive(Debug, Clone)]
pub(crate) struct Free(pub(crate) Node);

impl Read for Free {
    fn read(node: &Node, _cx: &mut Context<'_>) -> Option<Self> {
        Some(Self(node.clone()))
    }

    fn schema(_parts: &mut JsonMap<String, Json>) -> Json {
        json!({})
    }

    fn label() -> String {
        "any value".to_owned()
    }
}

/// A JSON Schema.
#[derive(Debug, Clone)]
pub(crate) struct SchemaNode(pub(crate) Node);

impl Read for SchemaNode {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        match node.value {
            Value::Map(_) => Some(Self(node.clone())),
            _ => {
                wrong_kind(node, "a JSON Schema is a map, such as `{\"type\": \"object\"}`", cx);
                None
            }
        }
    }

    fn schema(_parts: &mut JsonMap<String, Json>) -> Json {
        json!({ "type": "object" })
    }

    fn label() -> String {
        "a JSON Schema".to_owned()
    }
}

/// A map whose texts may hold references, for programs that we only hand it to.
#[derive(Debug, Clone)]
pub(crate) struct Handed(pub(crate) Node);

impl Read for Handed {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        if !matches!(node.value, Value::Map(_)) {
            wrong_kind(node, "a map is expected", cx);
            return None;
        }
        let mut node = node.clone();
        let told = cx.problems.len();
        resolve_all(&mut node, cx);
        (cx.problems.len() == told).then_some(Self(node))
    }

    fn schema(_parts: &mut JsonMap<String, Json>) -> Json {
        json!({ "type": "object" })
    }

    fn label() -> String {
        "a map of any values".to_owned()
    }
}

fn resolve_all(node: &mut Node, cx: &mut Context<'_>) {
    let text = match &node.value {
        Value::Scalar(scalar) if scalar.kind == Kind::String => {
            cx.resolve(node).map(|resolved| resolved.value)
        }
        _ => None,
    };
    match &mut node.value {
        Value::Scalar(scalar) => scalar.text = text.unwrap_or_else(|| std::mem::take(&mut scalar.text)),
        Value::List(items) => items.iter_mut().for_each(|item| resolve_all(item, cx)),
        Value::Map(entries) => entries.iter_mut().for_each(|entry| resolve_all(&mut entry.node, cx)),
    }
}
