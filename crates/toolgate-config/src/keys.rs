//! Definitions of the keys of a file. A struct in [`keys!`] defines the reader, the JSON Schema and the reference
//! page of a map; an enum in [`choice!`] does the same for a word.
//!
//! Reading collects problems and continues: an invalid field is `None`, and the rest is still read. Invariant:
//! the reader and the schema have the same keys.

use std::num::NonZeroU32;

use serde_json::{Map as JsonMap, Value as Json, json};
use toolgate_types::{ByteSize, ConfigString, HumanDuration};

use crate::context::{Context, FileOwner};
use crate::node::{MapEntry, Node, ScalarKind, Value};
use crate::problem::Problem;
use crate::source::Span;

/// A type of value in a file.
pub(crate) trait ConfigValue: Sized {
    /// Reads the value. Reports a problem and returns `None` if it is invalid.
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self>;
    /// Returns the JSON Schema; named definitions are added to `parts`.
    fn schema(parts: &mut JsonMap<String, Json>) -> Json;
    /// Returns the name of the type for the reference page.
    fn label() -> String;
    /// Adds the maps it contains to the reference page.
    fn tables(_out: &mut Vec<KeyTable>) {}
}

/// A value with its location in a file.
#[derive(Debug, Clone)]
pub(crate) struct Spanned<T> {
    pub(crate) value: T,
    pub(crate) span: Span,
    pub(crate) key_span: Span,
}

/// Drops the location of a value.
pub(crate) fn into_value<T>(written: Option<Spanned<T>>) -> Option<T> {
    written.map(|at| at.value)
}

/// Drops the locations of a list and its items.
pub(crate) fn into_values<T>(written: Option<Spanned<Vec<Spanned<T>>>>) -> Option<Vec<T>> {
    written.map(|at| at.value.into_iter().map(|at| at.value).collect())
}

/// A section of the reference page: one map and its keys.
pub(crate) struct KeyTable {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) doc: String,
    pub(crate) keys: Vec<KeyDoc>,
}

/// A row of the reference page.
pub(crate) struct KeyDoc {
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
            /// Location of the map.
            #[allow(dead_code, clippy::allow_attributes, reason = "not every map has rules between its keys")]
            pub(crate) span: $crate::source::Span,
            /// Keys that are present, including those with invalid values.
            #[allow(dead_code, clippy::allow_attributes, reason = "not every map has rules between its keys")]
            pub(crate) present_keys: Vec<&'static str>,
            $($(#[doc = $key_doc])* pub(crate) $key: Option<$crate::keys::Spanned<$type>>,)*
        }

        impl $crate::keys::ConfigValue for $name {
            fn read(node: &$crate::node::Node, cx: &mut $crate::context::Context<'_>) -> Option<Self> {
                let mut map = $crate::keys::MapReader::open(node, $what, cx)?;
                $(
                    let key = $crate::keys::KeyName {
                        name: $crate::keys::strip_raw_prefix(stringify!($key)),
                        aliases: &[$($($alias),+)?],
                        required: $crate::keys::is_required(&[$(stringify!($required))?]),
                    };
                    let $key = map.take::<$type>(key, cx);
                )*
                let span = node.span;
                let present_keys = map.close(cx);
                Some(Self { span, present_keys, $($key,)* })
            }

            fn schema(parts: &mut serde_json::Map<String, serde_json::Value>) -> serde_json::Value {
                let name = stringify!($name);
                if !parts.contains_key(name) {
                    // Reserves the name first, so that a map can contain itself.
                    parts.insert(name.to_owned(), serde_json::Value::Null);
                    let schema = $crate::keys::map_schema(&Self::table(), vec![$(<$type>::schema(parts)),*]);
                    parts.insert(name.to_owned(), schema);
                }
                serde_json::json!({ "$ref": format!("#/$defs/{name}") })
            }

            fn label() -> String {
                format!("[{}](#{})", $what, $crate::keys::anchor($what))
            }

            fn tables(out: &mut Vec<$crate::keys::KeyTable>) {
                if !out.iter().any(|table| table.name == stringify!($name)) {
                    out.push(Self::table());
                    $(<$type>::tables(out);)*
                }
            }
        }

        impl $name {
            /// Creates a map without keys.
            #[allow(dead_code, clippy::allow_attributes, reason = "only dialects that build an entry need it")]
            pub(crate) fn empty(span: $crate::source::Span) -> Self {
                Self { span, present_keys: Vec::new(), $($key: None,)* }
            }

            /// Returns every key with a valid value, and the location of the value.
            #[allow(dead_code, clippy::allow_attributes, reason = "the top of a file has no origins of its own")]
            pub(crate) fn value_spans(&self) -> Vec<(&'static str, $crate::source::Span)> {
                let keys = [$(($crate::keys::strip_raw_prefix(stringify!($key)), self.$key.as_ref().map(|at| at.span)),)*];
                keys.into_iter().filter_map(|(key, span)| Some((key, span?))).collect()
            }

            fn table() -> $crate::keys::KeyTable {
                $crate::keys::KeyTable {
                    name: stringify!($name),
                    what: $what,
                    doc: $crate::keys::join_doc_lines(&[$($doc),*]),
                    keys: vec![$($crate::keys::KeyDoc {
                        name: $crate::keys::strip_raw_prefix(stringify!($key)),
                        aliases: &[$($($alias),+)?],
                        label: <$type as $crate::keys::ConfigValue>::label(),
                        default: [None, $(Some($default))?].into_iter().flatten().next(),
                        required: $crate::keys::is_required(&[$(stringify!($required))?]),
                        doc: $crate::keys::join_doc_lines(&[$($key_doc),*]),
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

        impl $crate::keys::ConfigValue for $name {
            fn read(node: &$crate::node::Node, cx: &mut $crate::context::Context<'_>) -> Option<Self> {
                let text = $crate::keys::read_scalar(node, $what, cx)?;
                match text.as_str() {
                    $($word $(| $synonym)* => Some(Self::$variant),)+
                    _ => {
                        let words = [$($word),+];
                        let hint = match $crate::keys::closest_match(&text, words) {
                            Some(word) => format!("did you mean `{word}`?"),
                            None => format!("{} is expected", $crate::keys::join_quoted(&words, "or")),
                        };
                        cx.error(node.span, format!("`{text}` is not {}{}", $what, cx.location_suffix()), hint);
                        None
                    }
                }
            }

            fn schema(_parts: &mut serde_json::Map<String, serde_json::Value>) -> serde_json::Value {
                serde_json::json!({ "enum": [$($word, $($synonym,)*)+] })
            }

            fn label() -> String {
                $crate::keys::join_quoted(&[$($word),+], "or")
            }
        }
    };
}
pub(crate) use choice;

/// A key and its aliases.
pub(crate) struct KeyName {
    pub(crate) name: &'static str,
    pub(crate) aliases: &'static [&'static str],
    pub(crate) required: bool,
}

/// Reads a map key by key. Entries left at the end are unknown keys.
pub(crate) struct MapReader<'n> {
    entries: Vec<&'n MapEntry>,
    known: Vec<&'static str>,
    present_keys: Vec<&'static str>,
    span: Span,
    top: bool,
}

impl<'n> MapReader<'n> {
    pub(crate) fn open(node: &'n Node, what: &str, cx: &mut Context<'_>) -> Option<Self> {
        let Value::Map(entries) = &node.value else {
            report_wrong_kind(node, "a map of keys and values is expected", cx);
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
            present_keys: Vec::new(),
            span: start,
            top,
        })
    }

    pub(crate) fn take<T: ConfigValue>(&mut self, key: KeyName, cx: &mut Context<'_>) -> Option<Spanned<T>> {
        self.known.push(key.name);
        let mut found: Option<&MapEntry> = None;
        for name in std::iter::once(&key.name).chain(key.aliases) {
            let Some(at) = self.entries.iter().position(|entry| entry.key == *name) else { continue };
            let entry = self.entries.remove(at);
            match found {
                None => found = Some(entry),
                Some(first) => cx.error(
                    entry.key_span,
                    format!("`{}` and `{}` are the same key{}", first.key, entry.key, cx.location_suffix()),
                    "keep one of the two",
                ),
            }
        }
        // An empty value counts as absent: `tools:` with everything below it commented out.
        match found.filter(|entry| key.required || !entry.node.is_null()) {
            Some(entry) => {
                self.present_keys.push(key.name);
                let outer = cx.key.replace(entry.key.clone());
                let value = T::read(&entry.node, cx);
                cx.key = outer;
                value.map(|value| Spanned { value, span: entry.node.span, key_span: entry.key_span })
            }
            None => {
                if key.required {
                    let message = format!("missing key `{}`{}", key.name, cx.location_suffix());
                    cx.error(self.span, message, format!("add `{}`: {}", key.name, strip_links(&T::label())));
                }
                None
            }
        }
    }

    /// Reports unknown keys and returns the keys that are present.
    pub(crate) fn close(self, cx: &mut Context<'_>) -> Vec<&'static str> {
        for entry in &self.entries {
            // `$schema` names the schema for editors; YAML anchors are kept in `x-…` keys.
            if self.top && (entry.key == "$schema" || entry.key.starts_with("x-")) {
                continue;
            }
            let hint = self.hint(&entry.key, cx.file_owner);
            let location = if self.top { String::new() } else { cx.location_suffix() };
            let problem = match cx.file_owner {
                FileOwner::Toolgate => {
                    Problem::error(entry.key_span, format!("unknown key `{}`{location}", entry.key))
                }
                FileOwner::OtherProgram => {
                    Problem::note(entry.key_span, format!("`{}`{location} is not used", entry.key))
                }
            };
            cx.push(match hint {
                Some(hint) => problem.hint(hint),
                None => problem,
            });
        }
        cx.labels.pop();
        self.present_keys
    }

    /// Returns the hint for an unknown key.
    fn hint(&self, wrong: &str, whose: FileOwner) -> Option<String> {
        match closest_match(wrong, self.known.iter().copied()) {
            Some(key) => Some(format!("did you mean `{key}`?")),
            None if whose == FileOwner::OtherProgram => None,
            None if let Some(home) = crate::schema::misplaced_key_hint(wrong) => Some(home),
            None if self.known.len() <= MAX_LISTED_KEYS => {
                Some(format!("there is {}", join_quoted(&self.known, "and")))
            }
            None => Some("`toolgate schema --reference` shows every key".to_owned()),
        }
    }
}

/// Maximum number of keys listed in a hint.
const MAX_LISTED_KEYS: usize = 6;
/// Maximum number of entries in a list or map of the configuration: enough for 100,000 tools.
const MAX_ENTRIES: usize = 1 << 17;

pub(crate) fn map_schema(table: &KeyTable, schemas: Vec<Json>) -> Json {
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
    // A key with aliases cannot be required in the schema, since any of its spellings is valid.
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

/// Removes the `r#` of a raw identifier.
pub(crate) fn strip_raw_prefix(field: &'static str) -> &'static str {
    field.strip_prefix("r#").unwrap_or(field)
}

pub(crate) fn is_required(words: &[&str]) -> bool {
    assert!(words.iter().all(|word| *word == "required"), "`required` is the only word after a key's `;`");
    !words.is_empty()
}

/// Joins the lines of a doc comment.
pub(crate) fn join_doc_lines(lines: &[&str]) -> String {
    let lines: Vec<_> = lines.iter().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    lines.join("\n").trim().to_owned()
}

/// Returns the fragment that GitHub generates for a heading.
pub(crate) fn anchor(heading: &str) -> String {
    heading
        .to_lowercase()
        .replace(' ', "-")
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_'))
        .collect()
}

/// Returns the word that was probably meant.
pub fn closest_match<'w>(wrong: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    // Longer than any of our words, and the cost of comparing is the product of the two lengths.
    if wrong.len() > 64 {
        return None;
    }
    let wrong = wrong.to_lowercase();
    let measured = words.into_iter().map(|word| (strsim::damerau_levenshtein(&wrong, word), word));
    // Allows a third of the word to be wrong, and one letter of a short word.
    let near = measured.filter(|(distance, word)| *distance <= (word.chars().count() / 3).max(1));
    near.min_by_key(|(distance, _)| *distance).map(|(_, word)| word)
}

/// Joins words as "`a`, `b` or `c`".
pub(crate) fn join_quoted(words: &[&str], between: &str) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} {between} {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// Returns the text of a scalar with its references resolved. Reports any other kind of node.
pub(crate) fn read_scalar(node: &Node, what: &str, cx: &mut Context<'_>) -> Option<String> {
    match &node.value {
        Value::Scalar(scalar) if scalar.kind != ScalarKind::Null => {
            cx.resolve(node).map(|resolved| resolved.value)
        }
        _ => {
            report_wrong_kind(node, &format!("{what} is expected"), cx);
            None
        }
    }
}

pub(crate) fn report_wrong_kind(node: &Node, hint: &str, cx: &mut Context<'_>) {
    let span = match &node.value {
        // The first key is enough; the whole map would underline many lines.
        Value::Map(entries) => entries.first().map_or(node.span, |entry| entry.key_span),
        _ => node.span,
    };
    let place = cx.key.as_ref().map_or_else(|| "here".to_owned(), |key| format!("`{key}`"));
    let message = format!("{} does not fit {place}{}", node.kind_name(), cx.location_suffix());
    cx.error(span, message, hint);
}

/// Parses a scalar with its `FromStr`.
pub(crate) fn parse_scalar<T: std::str::FromStr<Err: std::fmt::Display>>(
    node: &Node,
    what: &str,
    cx: &mut Context<'_>,
) -> Option<T> {
    let text = read_scalar(node, what, cx)?;
    match text.parse() {
        Ok(value) => Some(value),
        Err(error) => {
            cx.error(
                node.span,
                format!("`{text}` is not {what}{}", cx.location_suffix()),
                format!("{error}"),
            );
            None
        }
    }
}

/// Reads types with their `FromStr`: `Type: "name for messages", { JSON Schema };`.
macro_rules! read_by_parsing {
    ($($type:ty: $what:literal, $schema:tt;)+) => {$(
        impl $crate::keys::ConfigValue for $type {
            fn read(node: &$crate::node::Node, cx: &mut $crate::context::Context<'_>) -> Option<Self> {
                $crate::keys::parse_scalar(node, $what, cx)
            }

            fn schema(_parts: &mut serde_json::Map<String, serde_json::Value>) -> serde_json::Value {
                serde_json::json!($schema)
            }

            fn label() -> String {
                $what.to_owned()
            }
        }
    )+};
}
pub(crate) use read_by_parsing;

read_by_parsing! {
    HumanDuration: "a duration", { "type": ["string", "number"], "examples": ["30s", "500ms", "PT30S", 30] };
    ByteSize: "a size", { "type": ["string", "integer"], "examples": ["4MiB", "64KiB", 4096] };
    toolgate_types::network::Network: "a network", { "type": "string", "examples": ["10.1.0.0/16", "fd00::/8"] };
}

impl ConfigValue for NonZeroU32 {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        let text = read_scalar(node, "a positive whole number", cx)?;
        let number = text.parse::<u32>().ok().and_then(Self::new);
        if number.is_none() {
            let message = format!("`{text}` is not a positive whole number{}", cx.location_suffix());
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

impl ConfigValue for bool {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        let text = read_scalar(node, "`true` or `false`", cx)?;
        match text.to_ascii_lowercase().as_str() {
            "true" => Some(true),
            "false" => Some(false),
            _ => {
                let message = format!("`{text}` is neither `true` nor `false`{}", cx.location_suffix());
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

impl ConfigValue for String {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        read_scalar(node, "a string", cx)
    }

    fn schema(_parts: &mut JsonMap<String, Json>) -> Json {
        json!({ "type": ["string", "number", "boolean"] })
    }

    fn label() -> String {
        "a string".to_owned()
    }
}

impl ConfigValue for ConfigString {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        match &node.value {
            Value::Scalar(scalar) if scalar.kind != ScalarKind::Null => cx.resolve_text(node),
            _ => {
                report_wrong_kind(node, "a string is expected", cx);
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

/// An optional value: `null` unsets a variable of a child process.
impl<T: ConfigValue> ConfigValue for Option<T> {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        if node.is_null() { Some(None) } else { T::read(node, cx).map(Some) }
    }

    fn schema(parts: &mut JsonMap<String, Json>) -> Json {
        json!({ "anyOf": [T::schema(parts), { "type": "null" }] })
    }

    fn label() -> String {
        format!("{} or null", T::label())
    }
}

impl<T: ConfigValue> ConfigValue for Vec<Spanned<T>> {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        let Value::List(items) = &node.value else {
            report_wrong_kind(
                node,
                &strip_links(&format!("a list of {} is expected", plural(&T::label()))),
                cx,
            );
            return None;
        };
        if !check_length(items.len(), node, cx) {
            return None;
        }
        // Reads every item, so that the problems of each are reported.
        let read = |item: &Node| {
            T::read(item, cx).map(|value| Spanned { value, span: item.span, key_span: item.span })
        };
        Some(items.iter().filter_map(read).collect())
    }

    fn schema(parts: &mut JsonMap<String, Json>) -> Json {
        json!({ "type": "array", "items": T::schema(parts) })
    }

    fn label() -> String {
        format!("list of {}", plural(&T::label()))
    }

    fn tables(out: &mut Vec<KeyTable>) {
        T::tables(out);
    }
}

/// Reports a list or map with too many entries: each takes far more memory than its text.
fn check_length(length: usize, node: &Node, cx: &mut Context<'_>) -> bool {
    let fits = length <= MAX_ENTRIES;
    if !fits {
        let message =
            format!("{length} entries, at most {MAX_ENTRIES} are supported{}", cx.location_suffix());
        cx.error(
            Span::new(node.span.source, node.span.start, node.span.start),
            message,
            "remove some of them",
        );
    }
    fits
}

fn plural(label: &str) -> String {
    let label = label.strip_prefix("a ").or_else(|| label.strip_prefix("an ")).unwrap_or(label);
    if label.starts_with('[') || label.ends_with(['`', 's']) {
        return label.to_owned();
    }
    // The label of an optional value.
    match label.strip_suffix(" or null") {
        Some(value) => format!("{value}s or null"),
        None => format!("{label}s"),
    }
}

/// Removes links for use in a message: `list of [tool](#tool)` becomes "list of tools".
fn strip_links(label: &str) -> String {
    let Some((before, link)) = label.split_once('[') else { return label.to_owned() };
    let Some((name, target)) = link.split_once("](#") else { return label.to_owned() };
    let after = target.split_once(')').map_or("", |(_, after)| after);
    let many = if before.ends_with("of ") && !name.ends_with('s') { "s" } else { "" };
    format!("{before}{name}{many}{}", strip_links(after))
}

/// A map from names to values, in file order.
#[derive(Debug, Clone)]
pub(crate) struct NamedMap<T>(pub(crate) Vec<(String, Spanned<T>)>);

impl<T: ConfigValue> ConfigValue for NamedMap<T> {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        let Value::Map(entries) = &node.value else {
            report_wrong_kind(node, "a map from names to values is expected", cx);
            return None;
        };
        if !check_length(entries.len(), node, cx) {
            return None;
        }
        let mut read = Vec::with_capacity(entries.len());
        for entry in entries {
            cx.next_name = Some(entry.key.clone());
            let value = T::read(&entry.node, cx);
            cx.next_name = None;
            if let Some(value) = value {
                let at = Spanned { value, span: entry.node.span, key_span: entry.key_span };
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

    fn tables(out: &mut Vec<KeyTable>) {
        T::tables(out);
    }
}

/// A value or a list of values.
#[derive(Debug, Clone)]
pub(crate) struct OneOrMany<T>(pub(crate) Vec<Spanned<T>>);

impl<T: ConfigValue> ConfigValue for OneOrMany<T> {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        if matches!(node.value, Value::List(_)) {
            return Vec::read(node, cx).map(Self);
        }
        T::read(node, cx).map(|value| Self(vec![Spanned { value, span: node.span, key_span: node.span }]))
    }

    fn schema(parts: &mut JsonMap<String, Json>) -> Json {
        json!({ "anyOf": [T::schema(parts), Vec::<Spanned<T>>::schema(parts)] })
    }

    fn label() -> String {
        format!("{} or a {}", T::label(), Vec::<Spanned<T>>::label())
    }
}

/// Any JSON value, such as an example. References in it are not resolved.
#[derive(Debug, Clone)]
pub(crate) struct AnyValue(pub(crate) Node);

impl ConfigValue for AnyValue {
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

#[derive(Debug, Clone)]
pub(crate) struct SchemaNode(pub(crate) Node);

impl ConfigValue for SchemaNode {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        match node.value {
            Value::Map(_) => Some(Self(node.clone())),
            _ => {
                report_wrong_kind(node, "a JSON Schema is a map, such as `{\"type\": \"object\"}`", cx);
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

/// A map that is passed on to another program, with references in its strings resolved.
#[derive(Debug, Clone)]
pub(crate) struct PassthroughMap(pub(crate) Node);

impl ConfigValue for PassthroughMap {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        if !matches!(node.value, Value::Map(_)) {
            report_wrong_kind(node, "a map is expected", cx);
            return None;
        }
        let mut node = node.clone();
        let problems_before = cx.problems.len();
        resolve_strings(&mut node, cx);
        (cx.problems.len() == problems_before).then_some(Self(node))
    }

    fn schema(_parts: &mut JsonMap<String, Json>) -> Json {
        json!({ "type": "object" })
    }

    fn label() -> String {
        "a map of any values".to_owned()
    }
}

fn resolve_strings(node: &mut Node, cx: &mut Context<'_>) {
    let text = match &node.value {
        Value::Scalar(scalar) if scalar.kind == ScalarKind::String => {
            cx.resolve(node).map(|resolved| resolved.value)
        }
        _ => None,
    };
    match &mut node.value {
        Value::Scalar(scalar) => scalar.text = text.unwrap_or_else(|| std::mem::take(&mut scalar.text)),
        Value::List(items) => items.iter_mut().for_each(|item| resolve_strings(item, cx)),
        Value::Map(entries) => entries.iter_mut().for_each(|entry| resolve_strings(&mut entry.node, cx)),
    }
}
