//! A form from the JSON Schema of a tool, and the arguments from the fields that it sends back.
//!
//! Objects become groups of fields, arrays lists with items to add and remove, and `oneOf` a choice of forms; types that
//! no field can express are entered as JSON. A form is rebuilt from its own fields: the number of items of a list and the
//! chosen alternative are fields, too. Invariant: a field that is left empty is left out of the arguments, and the content
//! of a field has the type that the schema demands.

use serde_json::{Map, Value as Json};

use crate::escape::{is_hidden, json_for_form};
use crate::schema::{alternatives, kind_label, resolve};
use crate::text::brief;

/// Objects, lists and choices inside of each other; deeper ones are entered as JSON.
const MAX_DEPTH: usize = 6;
/// Fields of a form; the rest of a larger schema is entered as JSON.
pub const MAX_FIELDS: usize = 120;
/// Items of a list, and alternatives of a choice.
const MAX_ITEMS: usize = 50;
const MAX_VARIANTS: usize = 20;

/// Input of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    LongText,
    Integer,
    Number,
    /// A value of a list: an enumeration, a boolean, or a constant.
    Choice,
    /// One string per line.
    Lines,
    Json,
    /// Start of an object. The fields up to its [`End`](Self::End) are its members.
    Group,
    /// Start of an array. The fields up to its [`ListEnd`](Self::ListEnd) are its items.
    List,
    /// Start of a choice of forms. The fields up to its [`End`](Self::End) are the chosen form.
    Variants,
    End,
    ListEnd,
}

/// A field of the form, or the start or end of a group of fields.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    pub label: String,
    pub about: String,
    pub kind: Kind,
    pub required: bool,
    /// Type, as the schema has it.
    pub kind_label: String,
    /// Values of a choice, with their labels.
    pub choices: Vec<(String, String)>,
    /// The entered text.
    pub value: String,
    /// JSON pointer of the argument.
    pub pointer: String,
    pub id: String,
    pub nullable: bool,
    pub is_null: bool,
    /// True for an item of a list: it can be removed.
    pub removable: bool,
}

impl Field {
    /// Name of the field in the form.
    pub fn name(&self) -> String {
        let prefix = match self.kind {
            Kind::List => 'n',
            Kind::Variants => 'v',
            _ => 'a',
        };
        format!("{prefix}{}", self.pointer)
    }

    pub fn is_area(&self) -> bool {
        matches!(self.kind, Kind::LongText | Kind::Lines | Kind::Json)
    }

    pub fn is_number(&self) -> bool {
        matches!(self.kind, Kind::Integer | Kind::Number)
    }

    /// Type and duty, beside the name.
    pub fn hint(&self) -> String {
        let how = match self.kind {
            Kind::Lines => ", one per line",
            Kind::Json => ", as JSON",
            _ => "",
        };
        format!(
            "{}{how}{}",
            self.kind_label,
            if self.required && !self.removable { ", required" } else { "" }
        )
    }
}

/// The content of a field does not have its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    pub label: String,
    pub message: String,
}

/// Returns the value of a field that was sent.
pub type SentField<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The form of a tool.
#[derive(Debug, Clone)]
pub struct ToolForm<'a> {
    root: &'a Json,
    node: Node<'a>,
}

/// A value of the form.
#[derive(Debug, Clone)]
struct Node<'a> {
    about: String,
    kind_label: String,
    required: bool,
    nullable: bool,
    is_null: bool,
    content: Content<'a>,
}

#[derive(Debug, Clone)]
enum Content<'a> {
    Input { kind: Kind, text: String, choices: Vec<(String, String)> },
    Group(Vec<(String, Node<'a>)>),
    List { item: &'a Json, items: Vec<Node<'a>> },
    Variants { labels: Vec<String>, chosen: Option<usize>, inner: Option<Box<Node<'a>>> },
}

/// A schema, limited to one of its types if it has several.
#[derive(Debug, Clone, Copy)]
struct TypedSchema<'a> {
    schema: &'a Json,
    kind: Option<&'a str>,
}

/// Origin of the content of a form.
#[derive(Clone, Copy)]
enum Source<'a, 's> {
    /// Arguments, or the defaults of the schema.
    Value { value: Option<&'a Json>, defaults: bool },
    /// The fields that a form sent.
    Sent(SentField<'s>),
}

impl<'a> Source<'a, '_> {
    fn member(self, name: &str) -> Self {
        match self {
            Self::Value { value, defaults } => {
                Self::Value { value: value.and_then(|value| value.get(name)), defaults }
            }
            sent => sent,
        }
    }

    fn item(self, at: usize) -> Self {
        match self {
            Self::Value { value, .. } => {
                Self::Value { value: value.and_then(|value| value.get(at)), defaults: false }
            }
            sent => sent,
        }
    }

    fn with_default(self, default: &'a Json) -> Self {
        match self {
            Self::Value { value: None, defaults: true } if !default.is_null() => {
                Self::Value { value: Some(default), defaults: false }
            }
            source => source,
        }
    }
}

impl<'a> ToolForm<'a> {
    /// The form with the defaults of the schema.
    pub fn new(schema: &'a Json) -> Self {
        Self::build(schema, Source::Value { value: None, defaults: true })
    }

    /// The form with arguments.
    pub fn filled(schema: &'a Json, arguments: &'a Json) -> Self {
        Self::build(schema, Source::Value { value: Some(arguments), defaults: false })
    }

    /// The form with the fields that it sent.
    pub fn sent(schema: &'a Json, sent: SentField<'_>) -> Self {
        Self::build(schema, Source::Sent(sent))
    }

    fn build(root: &'a Json, source: Source<'a, '_>) -> Self {
        let schema = TypedSchema { schema: resolve(root, root), kind: None };
        let mut builder = Builder { root, left: MAX_FIELDS };
        let members = builder.members(schema.schema, "", source, 0);
        let content = Content::Group(members);
        let (about, kind_label) = (String::new(), String::new());
        let node = Node { about, kind_label, required: true, nullable: false, is_null: false, content };
        Self { root, node }
    }

    /// Adds an item to a list (`add:POINTER`), or removes one (`remove:POINTER`). Other actions change nothing.
    pub fn change(&mut self, action: &str) {
        let root = self.root;
        if let Some(list) = action.strip_prefix("add:")
            && let Some(Node { content: Content::List { item, items }, .. }) = find(&mut self.node, list)
            && items.len() < MAX_ITEMS
        {
            let mut builder = Builder { root, left: MAX_FIELDS };
            let source = Source::Value { value: None, defaults: true };
            let depth = list.matches('/').count() + 1;
            items.push(builder.node(TypedSchema { schema: item, kind: None }, "", source, true, depth));
        }
        if let Some((list, at)) = action.strip_prefix("remove:").and_then(|item| item.rsplit_once('/'))
            && let Some(Node { content: Content::List { items, .. }, .. }) = find(&mut self.node, list)
            && let Ok(at) = at.parse::<usize>()
            && at < items.len()
        {
            items.remove(at);
        }
    }

    /// The arguments that the fields express.
    ///
    /// # Errors
    /// If a value does not have the type of its field.
    pub fn arguments(&self) -> Result<Json, FieldError> {
        let value = self.node.value("", true)?;
        Ok(value.unwrap_or_else(|| Json::Object(Map::new())))
    }

    /// Returns true if the form shows arguments without a change to them.
    pub fn can_show(&self, arguments: &Json) -> bool {
        !has_hidden(arguments) && self.arguments().as_ref() == Ok(arguments)
    }

    /// The fields in the order of the page.
    pub fn fields(&self) -> Vec<Field> {
        let mut fields = Vec::new();
        if let Content::Group(members) = &self.node.content {
            for (name, member) in members {
                member.add_fields(&child(name), name, false, &mut fields);
            }
        }
        fields
    }
}

/// A JSON pointer to a member.
fn child(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// Finds the node of a pointer. A choice has the pointer of its form.
fn find<'n, 'a>(node: &'n mut Node<'a>, pointer: &str) -> Option<&'n mut Node<'a>> {
    if pointer.is_empty() && !matches!(node.content, Content::Variants { .. }) {
        return Some(node);
    }
    match &mut node.content {
        Content::Input { .. } => None,
        Content::Variants { inner, .. } => find(inner.as_mut()?, pointer),
        Content::Group(members) => members.iter_mut().find_map(|(name, member)| {
            let rest = pointer.strip_prefix(child(name).as_str())?;
            (rest.is_empty() || rest.starts_with('/')).then(|| find(member, rest)).flatten()
        }),
        Content::List { items, .. } => {
            let first = pointer.strip_prefix('/')?;
            let (at, rest) = first.split_at(first.find('/').unwrap_or(first.len()));
            find(items.get_mut(at.parse::<usize>().ok()?)?, rest)
        }
    }
}

/// Builds the nodes of a form.
struct Builder<'a> {
    root: &'a Json,
    /// Fields that the form may still get.
    left: usize,
}

impl<'a> Builder<'a> {
    fn members(
        &mut self,
        schema: &'a Json,
        pointer: &str,
        source: Source<'a, '_>,
        depth: usize,
    ) -> Vec<(String, Node<'a>)> {
        let required = |name: &str| {
            schema["required"].as_array().is_some_and(|names| names.iter().any(|needed| needed == name))
        };
        let mut members = Vec::new();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            if self.left == 0 {
                break;
            }
            let pointer = format!("{pointer}{}", child(name));
            let (property, source) = (TypedSchema { schema: property, kind: None }, source.member(name));
            let member = self.node(property, &pointer, source, required(name), depth + 1);
            members.push((name.clone(), member));
        }
        members
    }

    fn node(
        &mut self,
        TypedSchema { schema: outer, kind }: TypedSchema<'a>,
        pointer: &str,
        source: Source<'a, '_>,
        required: bool,
        depth: usize,
    ) -> Node<'a> {
        self.left = self.left.saturating_sub(1);
        let schema = resolve(self.root, outer);
        let described = [outer, schema].into_iter().find_map(|one| one["description"].as_str());
        let about = described.map(|text| brief(text, 300)).unwrap_or_default();
        let kind_label = kind.map_or_else(|| kind_label(self.root, outer), str::to_owned);
        let default = if outer["default"].is_null() { &schema["default"] } else { &outer["default"] };
        let source = source.with_default(default);
        let (mut variants, mut nullable) = self.variants(TypedSchema { schema, kind });
        let is_null = match source {
            Source::Value { value, .. } => nullable && value.is_some_and(Json::is_null),
            Source::Sent(sent) => nullable && sent(&format!("z{pointer}")).is_some(),
        };
        let content = match variants.len() {
            0 => {
                nullable = false;
                self.input(Kind::Json, schema, pointer, source)
            }
            1 => self.single(variants.remove(0), pointer, source, depth),
            _ if depth >= MAX_DEPTH => self.input(Kind::Json, schema, pointer, source),
            _ => self.choice(&variants, pointer, source, depth),
        };
        Node { about, kind_label, required, nullable, is_null, content }
    }

    /// The alternatives of a schema, without `null`, and whether `null` is one. A schema without any is the only one.
    fn variants(&self, TypedSchema { schema, kind }: TypedSchema<'a>) -> (Vec<TypedSchema<'a>>, bool) {
        let only = (vec![TypedSchema { schema, kind }], false);
        if kind.is_some() || schema["enum"].is_array() {
            return only;
        }
        if let Some(kinds) = schema["type"].as_array() {
            let names = kinds.iter().filter_map(Json::as_str);
            let variants: Vec<_> = names
                .filter(|name| *name != "null")
                .take(MAX_VARIANTS)
                .map(|name| TypedSchema { schema, kind: Some(name) })
                .collect();
            let nullable = kinds.iter().any(|name| name == "null");
            return (variants, nullable);
        }
        let all = alternatives(schema);
        // Alternatives beside properties only restrict their combinations.
        if all.is_empty() || all.len() > MAX_VARIANTS || schema["properties"].is_object() {
            return only;
        }
        let is_null = |one: &&Json| resolve(self.root, one)["type"] == "null";
        let variants = all.iter().filter(|one| !is_null(one));
        let variants = variants.map(|schema| TypedSchema { schema, kind: None }).collect();
        (variants, all.iter().any(|one| is_null(&one)))
    }

    fn single(
        &mut self,
        TypedSchema { schema, kind }: TypedSchema<'a>,
        pointer: &str,
        source: Source<'a, '_>,
        depth: usize,
    ) -> Content<'a> {
        let schema = resolve(self.root, schema);
        let kind = kind.or_else(|| schema["type"].as_str());
        let has_members = schema["properties"].as_object().is_some_and(|members| !members.is_empty());
        let input = match kind {
            _ if schema["enum"].is_array() || !schema["const"].is_null() => Kind::Choice,
            Some("boolean") => Kind::Choice,
            Some("integer") => Kind::Integer,
            Some("number") => Kind::Number,
            Some("string") if schema["maxLength"].as_u64().is_some_and(|length| length > 200) => {
                Kind::LongText
            }
            Some("string") => Kind::Text,
            Some("array") if self.is_plain_string(&schema["items"]) => Kind::Lines,
            Some("array") if depth < MAX_DEPTH && schema["items"].is_object() => {
                return self.list(&schema["items"], pointer, source, depth);
            }
            Some("object") | None if depth < MAX_DEPTH && has_members => {
                return Content::Group(self.members(schema, pointer, source, depth));
            }
            _ => Kind::Json,
        };
        self.input(input, schema, pointer, source)
    }

    fn is_plain_string(&self, schema: &'a Json) -> bool {
        let schema = resolve(self.root, schema);
        schema["type"] == "string" && !schema["enum"].is_array() && schema["const"].is_null()
    }

    fn input(&self, kind: Kind, schema: &Json, pointer: &str, source: Source<'a, '_>) -> Content<'a> {
        let choices = if kind == Kind::Choice { choices_of(schema) } else { Vec::new() };
        let text = match source {
            Source::Value { value: Some(value), .. } => text_of(kind, value),
            Source::Value { value: None, .. } => String::new(),
            Source::Sent(sent) => sent(&format!("a{pointer}")).unwrap_or_default(),
        };
        Content::Input { kind, text, choices }
    }

    fn list(&mut self, item: &'a Json, pointer: &str, source: Source<'a, '_>, depth: usize) -> Content<'a> {
        let count = match source {
            Source::Value { value, .. } => value.and_then(Json::as_array).map_or(0, Vec::len),
            Source::Sent(sent) => {
                sent(&format!("n{pointer}")).and_then(|count| count.parse().ok()).unwrap_or_default()
            }
        };
        let mut items = Vec::new();
        for at in 0..count.min(MAX_ITEMS) {
            if self.left == 0 {
                break;
            }
            let (schema, pointer) = (TypedSchema { schema: item, kind: None }, format!("{pointer}/{at}"));
            items.push(self.node(schema, &pointer, source.item(at), true, depth + 1));
        }
        Content::List { item, items }
    }

    fn choice(
        &mut self,
        variants: &[TypedSchema<'a>],
        pointer: &str,
        source: Source<'a, '_>,
        depth: usize,
    ) -> Content<'a> {
        let chosen = match source {
            Source::Value { value, .. } => {
                value.and_then(|value| variants.iter().position(|one| self.fits(*one, value)))
            }
            Source::Sent(sent) => sent(&format!("v{pointer}")).and_then(|at| at.parse().ok()),
        };
        let chosen = chosen.filter(|at| *at < variants.len());
        let inner = chosen.map(|at| Box::new(self.node(variants[at], pointer, source, true, depth + 1)));
        let labels = variants.iter().enumerate().map(|(at, one)| self.label(*one, at)).collect();
        Content::Variants { labels, chosen, inner }
    }

    /// The name of an alternative: its title, the name of its definition, a constant in it, or its type.
    fn label(&self, TypedSchema { schema, kind }: TypedSchema<'a>, at: usize) -> String {
        let resolved = resolve(self.root, schema);
        let title = [schema, resolved].into_iter().find_map(|one| one["title"].as_str());
        let defined = || schema["$ref"].as_str()?.rsplit('/').next();
        let constant =
            || resolved["properties"].as_object()?.values().find_map(|property| property["const"].as_str());
        let name = kind.or(title).or_else(defined).or_else(constant);
        match name {
            Some(name) => brief(name, 60),
            None => match kind_label(self.root, schema) {
                label if label == "object" || label == "any" => format!("{label} {}", at + 1),
                label => label,
            },
        }
    }

    /// Returns true if a value may be one of an alternative, as far as a form needs to know.
    fn fits(&self, TypedSchema { schema, kind }: TypedSchema<'a>, value: &Json) -> bool {
        let schema = resolve(self.root, schema);
        if let Some(values) = schema["enum"].as_array() {
            return values.contains(value);
        }
        if !schema["const"].is_null() {
            return schema["const"] == *value;
        }
        match (kind.or_else(|| schema["type"].as_str()), value) {
            (Some("string"), Json::String(_))
            | (Some("boolean"), Json::Bool(_))
            | (Some("number"), Json::Number(_))
            | (Some("array"), Json::Array(_)) => true,
            (Some("integer"), Json::Number(number)) => !number.is_f64(),
            (Some("object") | None, Json::Object(members)) => {
                let needed = schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str);
                let has_needed = needed.into_iter().all(|name| members.contains_key(name));
                let constants = schema["properties"].as_object().into_iter().flatten();
                has_needed
                    && constants.into_iter().all(|(name, property)| {
                        property["const"].is_null()
                            || members.get(name).is_none_or(|value| *value == property["const"])
                    })
            }
            _ => false,
        }
    }
}

fn choices_of(schema: &Json) -> Vec<(String, String)> {
    let label = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let pair = |value: &Json| (json_for_form(&value.to_string()), label(value));
    match (schema["enum"].as_array(), &schema["const"]) {
        (Some(values), _) => values.iter().map(pair).collect(),
        (None, Json::Null) => [Json::Bool(true), Json::Bool(false)].iter().map(pair).collect(),
        (None, constant) => vec![pair(constant)],
    }
}

/// The text of a value in a field.
fn text_of(kind: Kind, value: &Json) -> String {
    match (kind, value) {
        (Kind::Choice, value) => json_for_form(&value.to_string()),
        (_, Json::Null) => String::new(),
        // A page shows hidden characters as marks, and the field would send the marks back.
        (Kind::Text | Kind::LongText | Kind::Lines, value) if has_hidden(value) => String::new(),
        (Kind::Text | Kind::LongText, Json::String(text)) => text.clone(),
        (Kind::Lines, Json::Array(lines)) => {
            lines.iter().filter_map(Json::as_str).collect::<Vec<_>>().join("\n")
        }
        (_, value) => json_for_form(&value.to_string()),
    }
}

/// Returns true if a value has characters that only JSON can show.
fn has_hidden(value: &Json) -> bool {
    match value {
        Json::String(text) => text.contains(is_hidden),
        Json::Array(items) => items.iter().any(has_hidden),
        Json::Object(members) => {
            members.iter().any(|(name, value)| name.contains(is_hidden) || has_hidden(value))
        }
        _ => false,
    }
}

impl Node<'_> {
    /// The value that the fields express. `None` if it is left out; with `kept`, that is an empty value.
    fn value(&self, label: &str, kept: bool) -> Result<Option<Json>, FieldError> {
        if self.is_null {
            return Ok(Some(Json::Null));
        }
        match &self.content {
            Content::Input { kind, text, .. } => input_value(*kind, text, kept)
                .map_err(|message| FieldError { label: label.to_owned(), message }),
            Content::Group(members) => {
                let mut object = Map::new();
                for (name, member) in members {
                    if let Some(value) = member.value(&joined(label, name), false)? {
                        object.insert(name.clone(), value);
                    }
                }
                // An object without required members may be meant to be empty.
                let meant = kept || self.required && members.iter().all(|(_, member)| !member.required);
                Ok((meant || !object.is_empty()).then_some(Json::Object(object)))
            }
            Content::List { items, .. } => {
                let value = |(at, item): (usize, &Self)| {
                    let label = format!("{label}[{at}]");
                    let message = || "is empty; enter a value, or remove the item".to_owned();
                    let value = item.value(&label, true)?;
                    value.ok_or_else(|| FieldError { label, message: message() })
                };
                let values = items.iter().enumerate().map(value).collect::<Result<Vec<_>, _>>()?;
                Ok((kept || self.required || !values.is_empty()).then_some(Json::Array(values)))
            }
            Content::Variants { inner, .. } => match inner {
                Some(inner) => inner.value(label, true),
                None => Ok(None),
            },
        }
    }

    /// Adds the fields of this value.
    fn add_fields(&self, pointer: &str, label: &str, removable: bool, fields: &mut Vec<Field>) {
        let field = |kind: Kind, value: String, choices: Vec<(String, String)>| Field {
            label: label.to_owned(),
            about: self.about.clone(),
            kind,
            required: self.required,
            kind_label: self.kind_label.clone(),
            choices,
            value,
            pointer: pointer.to_owned(),
            id: format!("a{}", fields.len()),
            nullable: self.nullable,
            is_null: self.is_null,
            removable,
        };
        match &self.content {
            Content::Input { kind, text, choices } => {
                fields.push(field(*kind, text.clone(), choices.clone()));
            }
            Content::Group(members) => {
                fields.push(field(Kind::Group, String::new(), Vec::new()));
                self.add_members(members, pointer, label, fields);
                fields.push(end(Kind::End, pointer, label));
            }
            Content::List { items, .. } => {
                fields.push(field(Kind::List, items.len().to_string(), Vec::new()));
                for (at, item) in items.iter().enumerate() {
                    item.add_fields(&format!("{pointer}/{at}"), &format!("{label}[{at}]"), true, fields);
                }
                fields.push(end(Kind::ListEnd, pointer, label));
            }
            Content::Variants { labels, chosen, inner } => {
                let choices = labels.iter().enumerate().map(|(at, label)| (at.to_string(), label.clone()));
                let value = chosen.map(|at| at.to_string()).unwrap_or_default();
                fields.push(field(Kind::Variants, value, choices.collect()));
                match inner.as_deref() {
                    // The group of the choice is enough.
                    Some(Node { content: Content::Group(members), .. }) => {
                        self.add_members(members, pointer, label, fields);
                    }
                    Some(inner) => inner.add_fields(pointer, label, false, fields),
                    None => {}
                }
                fields.push(end(Kind::End, pointer, label));
            }
        }
    }

    fn add_members(&self, members: &[(String, Self)], pointer: &str, label: &str, fields: &mut Vec<Field>) {
        for (name, member) in members {
            member.add_fields(&format!("{pointer}{}", child(name)), &joined(label, name), false, fields);
        }
    }
}

fn joined(label: &str, name: &str) -> String {
    if label.is_empty() { name.to_owned() } else { format!("{label}.{name}") }
}

/// The end of a group of fields.
fn end(kind: Kind, pointer: &str, label: &str) -> Field {
    Field {
        label: label.to_owned(),
        about: String::new(),
        kind,
        required: false,
        kind_label: String::new(),
        choices: Vec::new(),
        value: String::new(),
        pointer: pointer.to_owned(),
        id: String::new(),
        nullable: false,
        is_null: false,
        removable: false,
    }
}

/// The value of a field. An empty string is a value only where one is needed.
fn input_value(kind: Kind, text: &str, kept: bool) -> Result<Option<Json>, String> {
    let text = text.replace("\r\n", "\n");
    let value = match kind {
        Kind::Text | Kind::LongText if kept => Json::String(text),
        Kind::Lines if kept && text.is_empty() => Json::Array(Vec::new()),
        _ if text.is_empty() => return Ok(None),
        Kind::Text | Kind::LongText => Json::String(text),
        Kind::Lines => text.lines().map(Json::from).collect(),
        Kind::Integer | Kind::Number => match serde_json::from_str::<Json>(text.trim()) {
            Ok(number @ Json::Number(_)) => number,
            _ => return Err(format!("`{}` is not a number", brief(&text, 40))),
        },
        _ => serde_json::from_str(&text).map_err(|error| format!("invalid JSON: {error}"))?,
    };
    Ok(Some(value))
}

#[cfg(test)]
mod tests;
