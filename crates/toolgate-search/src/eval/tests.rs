//! Tests of the counting, on a few tools and lines of which the outcome is plain.

use serde_json::json;

use super::*;

fn tools() -> BTreeMap<String, Vec<Entry>> {
    let path = json!({"properties": {"path": {"type": "string"}}, "required": ["path"]});
    let tools = json!([
        {"name": "read_file", "description": "Read a file from the disk", "inputSchema": path},
        {"name": "play_song", "description": "Play a song"},
        {"name": "send_mail", "description": "Send an e-mail to somebody"},
        {"description": "has no name"},
    ]);
    catalogs(&tools).unwrap()
}

fn lines(texts: &[(&str, &str, Expected)]) -> Vec<Line> {
    let line = |(query, tool, kind): &(&str, &str, Expected)| Line {
        query: (*query).to_owned(),
        tools: vec![(*tool).to_owned()],
        kind: *kind,
        suite: "small".to_owned(),
        catalog: String::new(),
        lang: "en".to_owned(),
    };
    texts.iter().map(line).collect()
}

#[test]
fn answers_are_counted() {
    let lines = lines(&[
        ("read the file ./a.txt", "read_file", Expected::Tool),
        ("play a song", "send_mail", Expected::Tool),
        ("why do we dream, and what did philosophers think of it?", "", Expected::None),
        ("read a file from the disk", "request_human_input", Expected::Ask),
    ]);
    let mut done = 0;
    let answers = answers(&tools(), &lines, None, |count| done = count).unwrap();
    assert_eq!(done, 4);
    let report = Report::of(&answers);
    let Figures { n, top1, recall5, tool, none, ask, confusion, .. } = &report.all;
    assert_eq!((*n, *top1), (4, Some(0.75)));
    assert_eq!((tool.n, tool.top1, tool.first), (2, Some(0.5), Some(0.5)));
    assert_eq!(*recall5, tool.recall5);
    assert_eq!((none.n, none.precision, none.recall), (1, Some(1.0), Some(1.0)));
    assert_eq!((ask.n, ask.precision, ask.recall), (1, Some(1.0), Some(1.0)));
    assert_eq!(confusion[&Expected::Tool], BTreeMap::from([("tool", 1), ("other tool", 1)]));
    assert_eq!(report.suites["small"], report.all);
    assert_eq!(report.all.multi.top1, None);
}

#[test]
fn small_catalogs_hold_the_right_tool_and_depend_on_the_seed_alone() {
    let many: Vec<Entry> =
        (0..50).map(|at| Entry { name: format!("tool_{at}"), ..Entry::default() }).collect();
    let line = &lines(&[("x", "tool_7", Expected::Tool)])[0];
    let names = |seed, at| {
        let index = drawn(&many, line, Sample { size: 20, seed }, at);
        index.entries().map(|entry| entry.name.clone()).collect::<BTreeSet<_>>()
    };
    assert_eq!(names(1, 0).len(), 20);
    assert!(names(1, 0).contains("tool_7"));
    assert_eq!(names(1, 0), names(1, 0));
    assert_ne!(names(1, 0), names(2, 0));
    assert_ne!(names(1, 0), names(1, 1));
}

#[test]
fn a_catalog_that_is_not_there_is_told() {
    let mut two = tools();
    two.insert("other".to_owned(), Vec::new());
    let mut lines = lines(&[("x", "y", Expected::Tool)]);
    lines[0].catalog = "third".to_owned();
    let error = answers(&two, &lines, None, |_| {}).unwrap_err();
    assert_eq!(error, NoCatalog { line: 1, catalog: "third".to_owned() });
    assert_eq!(catalogs(&json!("tools")), None);
    assert_eq!(catalogs(&json!({"catalogs": {"a": 3}})), None);
}
