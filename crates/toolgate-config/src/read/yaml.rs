//! YAML 1.2, one document. Anchors, aliases and merge keys (`<<`) are resolved here.

use std::collections::{HashMap, HashSet};

use granit_parser::{Event, Parser, ScalarStyle, Span as YamlSpan};

use super::{clamp, too_deep, too_many, unique};
use crate::node::{DEEPEST, Entry, Kind, MOST_NODES, Node, Scalar, Value, plain_kind};
use crate::problem::Problem;
use crate::source::{SourceId, Span};

pub(crate) fn read(text: &str, id: SourceId) -> Result<Node, Problem> {
    Builder {
        text,
        id,
        anchors: HashMap::new(),
        kept: 0,
        stack: Vec::new(),
        root: None,
        nodes: 0,
        documents: 0,
    }
    .build()
}

struct Builder<'a> {
    text: &'a str,
    id: SourceId,
    /// Finished nodes by anchor.
    anchors: HashMap<usize, Anchored>,
    /// Nodes that are kept for anchors: an anchor inside of an anchor is kept with both.
    kept: usize,
    stack: Vec<Open>,
    root: Option<Node>,
    nodes: usize,
    documents: usize,
}

/// What an alias stands for.
struct Anchored {
    node: Node,
    /// Nodes in it, itself included.
    weight: usize,
    /// Levels in it: aliases of aliases can be deeper than anything that is written.
    depth: usize,
}

/// A list or map whose end is still to come.
struct Open {
    span: Span,
    anchor: usize,
    /// Nodes before it, to know how many it holds.
    before: usize,
    kind: OpenKind,
}

enum OpenKind {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, merged: Vec<Entry>, key: Option<(String, Span)> },
}

impl<'a> Builder<'a> {
    fn build(mut self) -> Result<Node, Problem> {
        for next in Parser::new_from_str(self.text) {
            let (event, span) = next.map_err(|error| {
                let at = error.marker().byte_offset().unwrap_or(self.text.len());
                self.syntax(at, &error.info())
            })?;
            self.take(event, &span)?;
        }
        let empty = Span::new(self.id, 0, 0);
        Ok(self.root.unwrap_or_else(|| Node::scalar(empty, Kind::Null, "")))
    }

    fn syntax(&self, at: usize, what: &str) -> Problem {
        let span = clamp(self.text, self.id, at, at + 1);
        let problem = Problem::error(span, format!("not valid YAML: {what}"));
        let before = &self.text[self.text[..span.start].rfind('\n').map_or(0, |line| line + 1)..span.start];
        let after = self.text[span.start..].lines().next().unwrap_or_default();
        // The mistakes that everybody makes, and that no parser explains.
        if before.trim().is_empty() && before.contains('\t') || after.starts_with('\t') {
            problem.hint("indent with spaces; YAML does not take tabs")
        } else if (before.contains("${") || before.ends_with('$')) && before.contains(['[', '{']) {
            problem.hint("inside of `[…]` and `{…}` a text with `${…}` needs quotes: \"${NAME}\"")
        } else if what.contains("quoted scalar") {
            problem.hint("look for a quote before this that is not closed")
        } else if what.contains("unknown anchor") {
            problem.hint(
                "`*name` stands for what has `&name` before it; a text that starts with `*` needs quotes",
            )
        } else if brackets_open(&self.text[..span.start]) {
            problem.hint("look for a `[` or `{` before this that is not closed")
        } else {
            problem
        }
    }

    fn take(&mut self, event: Event<'a>, span: &YamlSpan) -> Result<(), Problem> {
        let place = self.span(span);
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(Problem::error(place, "a second document in one file")
                        .hint("a configuration is one document: remove `---` and what follows it"));
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = matches!(style, ScalarStyle::Plain) && tag.is_none();
                let kind = if plain { plain_kind(&text) } else { Kind::String };
                let node =
                    Node { span: place, value: Value::Scalar(Scalar { kind, text: text.into_owned() }) };
                self.put(node, anchor, 1)?;
            }
            Event::SequenceStart(_, anchor, _) => self.open(place, anchor, OpenKind::List(Vec::new()))?,
            Event::MappingStart(_, anchor, _) => {
                self.open(
                    place,
                    anchor,
                    OpenKind::Map { entries: Vec::new(), merged: Vec::new(), key: None },
                )?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(place)?,
            Event::Alias(anchor) => {
                let Some(Anchored { node, weight, depth }) = self.anchors.get(&anchor) else {
                    return Err(Problem::error(place, "this alias is inside of what it stands for"));
                };
                // Before anything is copied: a few lines of aliases can stand for more than fits in memory.
                if self.nodes.saturating_add(*weight) > MOST_NODES {
                    return Err(too_many(place));
                }
                if self.stack.len() + depth > DEEPEST {
                    return Err(too_deep(place));
                }
                // The place of the alias, so that a problem points at its use.
                let (node, weight) = (Node { span: place, ..node.clone() }, *weight);
                self.put(node, 0, weight)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn span(&self, span: &YamlSpan) -> Span {
        let range = span.byte_range().unwrap_or(0..0);
        clamp(self.text, self.id, range.start, range.end)
    }

    fn open(&mut self, span: Span, anchor: usize, kind: OpenKind) -> Result<(), Problem> {
        if self.stack.len() >= DEEPEST {
            return Err(too_deep(span));
        }
        if let Some(Open { kind: OpenKind::Map { key: key @ None, .. }, .. }) = self.stack.last_mut() {
            *key = None;
            return Err(
                Problem::error(span, "a list or map cannot be a key").hint("write the key as a plain text")
            );
        }
        self.stack.push(Open { span, anchor, before: self.nodes, kind });
        Ok(())
    }

    fn close(&mut self, end: Span) -> Result<(), Problem> {
        let open = self.stack.pop().expect("the parser closes what it opened");
        let value = match open.kind {
            OpenKind::List(items) => Value::List(items),
            OpenKind::Map { mut entries, merged, .. } => {
                unique(&entries)?;
                // What is written in the map itself counts more than what is merged into it, and what
                // is merged first more than what is merged later.
                if !merged.is_empty() {
                    let mut known: HashSet<String> = entries.iter().map(|own| own.key.clone()).collect();
                    entries.extend(merged.into_iter().filter(|entry| known.insert(entry.key.clone())));
                }
                Value::Map(entries)
            }
        };
        let span = Span::new(self.id, open.span.start, end.end.max(open.span.end));
        let weight = self.nodes - open.before + 1;
        self.nodes = open.before;
        self.put(Node { span, value }, open.anchor, weight)
    }

    fn put(&mut self, node: Node, anchor: usize, weight: usize) -> Result<(), Problem> {
        self.nodes = self.nodes.saturating_add(weight);
        if self.nodes > MOST_NODES {
            return Err(too_many(node.span));
        }
        if anchor > 0 {
            self.kept = self.kept.saturating_add(weight);
            if self.kept > MOST_NODES {
                return Err(too_many(node.span));
            }
            self.anchors.insert(anchor, Anchored { node: node.clone(), weight, depth: node.depth() });
        }
        match self.stack.last_mut().map(|open| &mut open.kind) {
            None => self.root = Some(node),
            Some(OpenKind::List(items)) => items.push(node),
            Some(OpenKind::Map { entries, merged, key }) => match key.take() {
                None => {
                    let Value::Scalar(scalar) = node.value else {
                        return Err(Problem::error(node.span, "a list or map cannot be a key"));
                    };
                    *key = Some((scalar.text, node.span));
                }
                Some((name, place)) if name == "<<" => merge(node, place, merged)?,
                Some((key, key_span)) => entries.push(Entry { key, key_span, node }),
            },
        }
        Ok(())
    }
}

/// Whether more brackets open than close. A guess: those in texts and comments count too.
fn brackets_open(text: &str) -> bool {
    text.matches(['[', '{']).count() > text.matches([']', '}']).count()
}

/// `<<: *defaults` or `<<: [*a, *b]`, where the first counts more.
fn merge(node: Node, place: Span, merged: &mut Vec<Entry>) -> Result<(), Problem> {
    let wrong = || Problem::error(place, "`<<` takes a map, or a list of maps");
    let maps = match node.value {
        Value::Map(entries) => vec![entries],
        Value::List(items) => {
            let entries = |item: Node| match item.value {
                Value::Map(entries) => Ok(entries),
                _ => Err(wrong()),
            };
            items.into_iter().map(entries).collect::<Result<_, _>>()?
        }
        Value::Scalar(_) => return Err(wrong()),
    };
    merged.extend(maps.into_iter().flatten());
    Ok(())
}
