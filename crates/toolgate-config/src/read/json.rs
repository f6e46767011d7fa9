//! JSON, with the comments and trailing commas that editors allow in their files.

use jsonc_parser::ast::Value as Ast;
use jsonc_parser::common::Ranged;
use jsonc_parser::errors::ParseErrorKind;
use jsonc_parser::tokens::Token;
use jsonc_parser::{CollectOptions, Scanner, ScannerOptions, parse_to_ast};
use toolgate_store::text::OPTIONS;

use super::{check_unique_keys, clamp_span, too_deep, too_many};
use crate::node::{MAX_DEPTH, MAX_NODES, MapEntry, Node, Scalar, ScalarKind, Value, is_json_number};
use crate::problem::Problem;
use crate::source::{SourceId, Span};

pub(crate) fn read(text: &str, id: SourceId) -> Result<Node, Problem> {
    if let Some(at) = too_many_at(text, MAX_NODES) {
        return Err(too_many(clamp_span(text, id, at, at + 1)));
    }
    let parsed = parse_to_ast(text, &CollectOptions::default(), &OPTIONS).map_err(|error| {
        let range = error.range();
        if matches!(error.kind(), ParseErrorKind::NestingDepthExceeded) {
            return too_deep(clamp_span(text, id, range.start, range.start + 1));
        }
        // For a long unfinished object the start shows best where to look.
        let end = if range.end - range.start > 80 { range.start + 1 } else { range.end };
        let what = error.kind().to_string();
        let lower = what.get(..1).map(str::to_ascii_lowercase).unwrap_or_default()
            + what.get(1..).unwrap_or_default();
        let problem =
            Problem::error(clamp_span(text, id, range.start, end), format!("not valid JSON: {lower}"));
        if lower.starts_with("unterminated") { problem.hint("this is never closed") } else { problem }
    })?;
    match parsed.value {
        Some(value) => to_node(value, text, id, 0),
        None => Err(Problem::error(Span::new(id, 0, 0), "not valid JSON: the file is empty")
            .hint("write at least `{}` with the keys that are needed, or remove the file")),
    }
}

/// Returns where a text exceeds the maximum number of values. Counts tokens first, since parsing allocates for
/// each value. A value takes at least two bytes, so short texts are not scanned.
pub(super) fn too_many_at(text: &str, most: usize) -> Option<usize> {
    if text.len() <= 2 * most {
        return None;
    }
    let mut scanner = Scanner::new(text, &ScannerOptions::default());
    let mut nodes = 1;
    // The parser reports invalid tokens.
    while let Ok(Some(token)) = scanner.scan() {
        nodes += usize::from(matches!(token, Token::Comma | Token::OpenBrace | Token::OpenBracket));
        if nodes > most {
            return Some(scanner.token_start());
        }
    }
    None
}

fn to_node(ast: Ast<'_>, text: &str, id: SourceId, depth: usize) -> Result<Node, Problem> {
    let range = ast.range();
    let span = clamp_span(text, id, range.start, range.end);
    if depth > MAX_DEPTH {
        return Err(too_deep(span));
    }
    let value = match ast {
        Ast::StringLit(lit) => {
            Value::Scalar(Scalar { kind: ScalarKind::String, text: lit.value.into_owned() })
        }
        Ast::NumberLit(lit) if is_json_number(lit.value) => {
            Value::Scalar(Scalar { kind: ScalarKind::Number, text: lit.value.to_owned() })
        }
        Ast::NumberLit(_) => return Err(Problem::error(span, "not valid JSON: this is not a number")),
        Ast::BooleanLit(lit) => Value::Scalar(Scalar { kind: ScalarKind::Bool, text: lit.value.to_string() }),
        Ast::NullKeyword(_) => Value::Scalar(Scalar { kind: ScalarKind::Null, text: "null".to_owned() }),
        Ast::Array(array) => Value::List(
            array
                .elements
                .into_iter()
                .map(|item| to_node(item, text, id, depth + 1))
                .collect::<Result<_, _>>()?,
        ),
        Ast::Object(object) => {
            let mut entries = Vec::with_capacity(object.properties.len());
            for property in object.properties {
                let range = property.name.range();
                let key_span = clamp_span(text, id, range.start, range.end);
                let key = property.name.into_string();
                entries.push(MapEntry { key, key_span, node: to_node(property.value, text, id, depth + 1)? });
            }
            check_unique_keys(&entries)?;
            Value::Map(entries)
        }
    };
    Ok(Node { span, value })
}
