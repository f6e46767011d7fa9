//! Doors for the fuzz targets: each feeds one reader and checks what must hold for any input.

use crate::node::{DEEPEST, Node};
use crate::problem::{Problem, Report};
use crate::read::{Format, dotenv, read};
use crate::source::Sources;
use crate::variable::expand;

/// Any text as YAML.
pub fn yaml(text: &str) {
    tree(text, Format::Yaml);
}

/// Any text as JSON. What is taken as strict JSON must mean what `serde_json` says it means.
pub fn json(text: &str) {
    let node = tree(text, Format::Json);
    if let (Some(node), Ok(expected)) = (node, serde_json::from_str::<serde_json::Value>(text)) {
        let ours: serde_json::Value =
            serde_json::from_str(node.to_json().get()).expect("a node is valid JSON");
        assert_eq!(ours, expected);
    }
}

/// Any text as TOML.
pub fn toml(text: &str) {
    tree(text, Format::Toml);
}

/// Any text with references in it.
pub fn variable(text: &str) {
    let mut lookup = |_: crate::variable::Reference<'_>| Some("value".to_owned());
    if let Err(broken) = expand(text, &mut lookup) {
        assert!(
            broken.iter().all(|(range, _)| text.get(range.clone()).is_some()),
            "a place outside of the text"
        );
    }
}

/// Any text as a `.env` file.
pub fn dotenv(text: &str) {
    let mut sources = Sources::default();
    let id = sources.add("fuzz", text, Some("fuzz".into()));
    let (variables, problems) = dotenv::read(text, id);
    assert!(variables.iter().all(|variable| dotenv::is_name(&variable.name)), "a name that is none");
    render(sources, problems);
}

fn tree(text: &str, format: Format) -> Option<Node> {
    let mut sources = Sources::default();
    let id = sources.add("fuzz", text, Some("fuzz".into()));
    match read(&sources, id, format) {
        Ok(node) => {
            assert!(node.depth() <= DEEPEST + 2, "deeper than any walk over a tree allows for");
            let _ = node.to_json();
            Some(node)
        }
        Err(problem) => {
            render(sources, vec![problem]);
            None
        }
    }
}

/// Whatever a reader complains about can be shown.
fn render(sources: Sources, problems: Vec<Problem>) {
    let report = Report::new(sources, problems, Vec::new());
    let _ = (report.render(), report.entries());
}
