//! Entry points of the fuzz targets. Each feeds one reader and checks its invariants for any input.

use crate::node::{MAX_DEPTH, Node};
use crate::problem::{Problem, Report};
use crate::read::{FileFormat, dotenv, read};
use crate::source::SourceMap;
use crate::variable::expand;

/// Reads any string as YAML.
pub fn yaml(text: &str) {
    tree(text, FileFormat::Yaml);
}

/// Reads any string as JSON. Strict JSON must have the same meaning as in `serde_json`.
pub fn json(text: &str) {
    let node = tree(text, FileFormat::Json);
    if let (Some(node), Ok(expected)) = (node, serde_json::from_str::<serde_json::Value>(text)) {
        let ours: serde_json::Value =
            serde_json::from_str(node.to_json().get()).expect("a node is valid JSON");
        assert_eq!(ours, expected);
    }
}

/// Reads any string as TOML.
pub fn toml(text: &str) {
    tree(text, FileFormat::Toml);
}

/// Expands any string with references.
pub fn variable(text: &str) {
    let mut lookup = |_: crate::variable::VariableReference<'_>| Some("value".to_owned());
    if let Err(errors) = expand(text, &mut lookup) {
        assert!(
            errors.iter().all(|(range, _)| text.get(range.clone()).is_some()),
            "a range outside the string"
        );
    }
}

/// Reads any string as a `.env` file.
pub fn dotenv(text: &str) {
    let mut sources = SourceMap::default();
    let id = sources.add("fuzz", text, Some("fuzz".into()));
    let (variables, problems) = dotenv::read(text, id);
    assert!(variables.iter().all(|variable| dotenv::is_name(&variable.name)), "an invalid name");
    render(sources, problems);
}

fn tree(text: &str, format: FileFormat) -> Option<Node> {
    let mut sources = SourceMap::default();
    let id = sources.add("fuzz", text, Some("fuzz".into()));
    match read(&sources, id, format) {
        Ok(node) => {
            assert!(node.depth() <= MAX_DEPTH + 2, "deeper than recursion over a tree allows for");
            let _ = node.to_json();
            Some(node)
        }
        Err(problem) => {
            render(sources, vec![problem]);
            None
        }
    }
}

/// Renders the problems of a reader. Must not panic.
fn render(sources: SourceMap, problems: Vec<Problem>) {
    let report = Report::new(sources, problems, Vec::new());
    let _ = (report.render(), report.entries());
}
