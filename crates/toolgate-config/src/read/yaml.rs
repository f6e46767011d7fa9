//! YAML 1.2, one document. Anchors, aliases and merge keys (`<<`) are resolved here.

use std::collections::{HashMap, HashSet};

use granit_parser::{Event, Parser, ScalarStyle, Span as YamlSpan};

use super::{check_unique_keys, clamp_span, too_deep, too_many};
use crate::node::{MAX_DEPTH, MAX_NODES, MapEntry, Node, Scalar, ScalarKind, Value, plain_kind};
use crate::problem::Problem;
use crate::source::{SourceId, Span};

pub(crate) fn read(text: &str, id: SourceId) -> Result<Node, Problem> {
    TreeBuilder {
        text,
        id,
        anchors: HashMap::new(),
        anchored_nodes: 0,
        stack: Vec::new(),
        root: None,
        nodes: 0,
        documents: 0,
    }
    .build()
}

struct TreeBuilder<'a> {
    text: &'a str,
    id: SourceId,
    /// Completed nodes by anchor.
    anchors: HashMap<usize, AnchoredNode>,
    /// Nodes stored for anchors. A nested anchor counts for itself and for each anchor around it.
    anchored_nodes: usize,
    stack: Vec<OpenCollection>,
    root: Option<Node>,
    nodes: usize,
    documents: usize,
}

/// The node of an anchor.
struct AnchoredNode {
    node: Node,
    /// Number of nodes, itself included.
    weight: usize,
    /// Levels of nesting: aliases of aliases can be deeper than the file itself.
    depth: usize,
}

/// A list or map that is not closed yet.
struct OpenCollection {
    span: Span,
    anchor: usize,
    /// Number of nodes before it, to count the nodes inside it.
    nodes_before: usize,
    kind: OpenContents,
}

enum OpenContents {
    List(Vec<Node>),
    Map { entries: Vec<MapEntry>, merged: Vec<MapEntry>, key: Option<(String, Span)> },
}

impl<'a> TreeBuilder<'a> {
    fn build(mut self) -> Result<Node, Problem> {
        for next in Parser::new_from_str(self.text) {
            let (event, span) = next.map_err(|error| {
                let at = error.marker().byte_offset().unwrap_or(self.text.len());
                self.syntax_error(at, &error.info())
            })?;
            self.handle_event(event, &span)?;
        }
        let empty = Span::new(self.id, 0, 0);
        Ok(self.root.unwrap_or_else(|| Node::scalar(empty, ScalarKind::Null, "")))
    }

    fn syntax_error(&self, at: usize, what: &str) -> Problem {
        let span = clamp_span(self.text, self.id, at, at + 1);
        let problem = Problem::error(span, format!("not valid YAML: {what}"));
        let before = &self.text[self.text[..span.start].rfind('\n').map_or(0, |line| line + 1)..span.start];
        let after = self.text[span.start..].lines().next().unwrap_or_default();
        // Hints for common mistakes that parsers do not explain.
        if before.trim().is_empty() && before.contains('\t') || after.starts_with('\t') {
            problem.hint("indent with spaces; YAML does not take tabs")
        } else if (before.contains("${") || before.ends_with('$')) && before.contains(['[', '{']) {
            problem.hint("inside `[…]` and `{…}` a string with `${…}` needs quotes: \"${NAME}\"")
        } else if what.contains("quoted scalar") {
            problem.hint("look for a quote before this that is not closed")
        } else if what.contains("unknown anchor") {
            problem.hint("`*name` refers to the anchor `&name`; a string that starts with `*` needs quotes")
        } else if has_open_brackets(&self.text[..span.start]) {
            problem.hint("look for a `[` or `{` before this that is not closed")
        } else {
            problem
        }
    }

    fn handle_event(&mut self, event: Event<'a>, span: &YamlSpan) -> Result<(), Problem> {
        let place = self.span(span);
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(Problem::error(place, "a second document in one file")
                        .hint("a configuration is one document: remove `---` and everything after it"));
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = matches!(style, ScalarStyle::Plain) && tag.is_none();
                let kind = if plain { plain_kind(&text) } else { ScalarKind::String };
                let node =
                    Node { span: place, value: Value::Scalar(Scalar { kind, text: text.into_owned() }) };
                self.add_node(node, anchor, 1)?;
            }
            Event::SequenceStart(_, anchor, _) => self.open(place, anchor, OpenContents::List(Vec::new()))?,
            Event::MappingStart(_, anchor, _) => {
                self.open(
                    place,
                    anchor,
                    OpenContents::Map { entries: Vec::new(), merged: Vec::new(), key: None },
                )?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(place)?,
            Event::Alias(anchor) => {
                let Some(AnchoredNode { node, weight, depth }) = self.anchors.get(&anchor) else {
                    return Err(Problem::error(place, "this alias refers to the node that contains it"));
                };
                // Checked before copying: a few lines of aliases can expand to more than fits in memory.
                if self.nodes.saturating_add(*weight) > MAX_NODES {
                    return Err(too_many(place));
                }
                if self.stack.len() + depth > MAX_DEPTH {
                    return Err(too_deep(place));
                }
                // Uses the location of the alias, so that a problem points at its use.
                let (node, weight) = (Node { span: place, ..node.clone() }, *weight);
                self.add_node(node, 0, weight)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn span(&self, span: &YamlSpan) -> Span {
        let range = span.byte_range().unwrap_or(0..0);
        clamp_span(self.text, self.id, range.start, range.end)
    }

    fn open(&mut self, span: Span, anchor: usize, kind: OpenContents) -> Result<(), Problem> {
        if self.stack.len() >= MAX_DEPTH {
            return Err(too_deep(span));
        }
        if let Some(OpenCollection { kind: OpenContents::Map { key: key @ None, .. }, .. }) =
            self.stack.last_mut()
        {
            *key = None;
            return Err(
                Problem::error(span, "a list or map cannot be a key").hint("write the key as a plain string")
            );
        }
        self.stack.push(OpenCollection { span, anchor, nodes_before: self.nodes, kind });
        Ok(())
    }

    fn close(&mut self, end: Span) -> Result<(), Problem> {
        let open = self.stack.pop().expect("the parser closes what it opened");
        let value = match open.kind {
            OpenContents::List(items) => Value::List(items),
            OpenContents::Map { mut entries, merged, .. } => {
                check_unique_keys(&entries)?;
                // The map's own keys take precedence over merged keys, and earlier merged maps over later ones.
                if !merged.is_empty() {
                    let mut known: HashSet<String> = entries.iter().map(|own| own.key.clone()).collect();
                    entries.extend(merged.into_iter().filter(|entry| known.insert(entry.key.clone())));
                }
                Value::Map(entries)
            }
        };
        let span = Span::new(self.id, open.span.start, end.end.max(open.span.end));
        let weight = self.nodes - open.nodes_before + 1;
        self.nodes = open.nodes_before;
        self.add_node(Node { span, value }, open.anchor, weight)
    }

    fn add_node(&mut self, node: Node, anchor: usize, weight: usize) -> Result<(), Problem> {
        self.nodes = self.nodes.saturating_add(weight);
        if self.nodes > MAX_NODES {
            return Err(too_many(node.span));
        }
        if anchor > 0 {
            self.anchored_nodes = self.anchored_nodes.saturating_add(weight);
            if self.anchored_nodes > MAX_NODES {
                return Err(too_many(node.span));
            }
            self.anchors.insert(anchor, AnchoredNode { node: node.clone(), weight, depth: node.depth() });
        }
        match self.stack.last_mut().map(|open| &mut open.kind) {
            None => self.root = Some(node),
            Some(OpenContents::List(items)) => items.push(node),
            Some(OpenContents::Map { entries, merged, key }) => match key.take() {
                None => {
                    let Value::Scalar(scalar) = node.value else {
                        return Err(Problem::error(node.span, "a list or map cannot be a key"));
                    };
                    *key = Some((scalar.text, node.span));
                }
                Some((name, place)) if name == "<<" => merge(node, place, merged)?,
                Some((key, key_span)) => entries.push(MapEntry { key, key_span, node }),
            },
        }
        Ok(())
    }
}

/// Returns true if more brackets open than close. A heuristic: brackets in strings and comments count too.
fn has_open_brackets(text: &str) -> bool {
    text.matches(['[', '{']).count() > text.matches([']', '}']).count()
}

/// Merges `<<: *defaults` or `<<: [*a, *b]`. Earlier maps take precedence.
fn merge(node: Node, place: Span, merged: &mut Vec<MapEntry>) -> Result<(), Problem> {
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
