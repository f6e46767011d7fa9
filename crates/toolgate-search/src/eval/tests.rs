//! Tests of the metrics on a few tools and lines.

use serde_json::json;

use super::*;

fn tools() -> BTreeMap<String, Vec<ToolEntry>> {
    let path = json!({"properties": {"path": {"type": "string"}}, "required": ["path"]});
    let tools = json!([
        {"name": "read_file", "description": "Read a file from the disk", "inputSchema": path},
        {"name": "play_song", "description": "Play a song"},
        {"name": "send_mail", "description": "Send an e-mail to somebody"},
        {"description": "has no name"},
    ]);
    parse_catalogs(&tools).unwrap()
}

fn lines(texts: &[(&str, &str, ExpectedKind)]) -> Vec<GoldLine> {
    let line = |(query, tool, kind): &(&str, &str, ExpectedKind)| GoldLine {
        call: None,
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
fn computes_metrics() {
    let lines = lines(&[
        ("read the file ./a.txt", "read_file", ExpectedKind::Tool),
        ("play a song", "send_mail", ExpectedKind::Tool),
        ("why do we dream, and what did philosophers think of it?", "", ExpectedKind::None),
        ("read a file from the disk", "request_human_input", ExpectedKind::Ask),
    ]);
    let mut done = 0;
    let answers = evaluate(&tools(), &lines, None, |count| done = count).unwrap();
    assert_eq!(done, 4);
    let report = EvalReport::compute(&answers);
    let EvalMetrics { n, top1, recall5, tool, none, ask, confusion, .. } = &report.all;
    assert_eq!((*n, *top1), (4, Some(0.75)));
    assert_eq!((tool.n, tool.top1, tool.first), (2, Some(0.5), Some(0.5)));
    assert_eq!(*recall5, tool.recall5);
    assert_eq!((none.n, none.precision, none.recall), (1, Some(1.0), Some(1.0)));
    assert_eq!((ask.n, ask.precision, ask.recall), (1, Some(1.0), Some(1.0)));
    assert_eq!(confusion[&ExpectedKind::Tool], BTreeMap::from([("tool", 1), ("other tool", 1)]));
    assert_eq!(report.suites["small"], report.all);
    assert_eq!(report.all.multi.top1, None);
}

#[test]
fn sampled_catalogs_contain_the_correct_tool_and_depend_on_the_seed() {
    let many: Vec<ToolEntry> =
        (0..50).map(|at| ToolEntry { name: format!("tool_{at}"), ..ToolEntry::default() }).collect();
    let line = &lines(&[("x", "tool_7", ExpectedKind::Tool)])[0];
    let names = |seed, at| {
        let index = sample_catalog(&many, line, CatalogSample { size: 20, seed }, at);
        index.entries().map(|entry| entry.name.clone()).collect::<BTreeSet<_>>()
    };
    assert_eq!(names(1, 0).len(), 20);
    assert!(names(1, 0).contains("tool_7"));
    assert_eq!(names(1, 0), names(1, 0));
    assert_ne!(names(1, 0), names(2, 0));
    assert_ne!(names(1, 0), names(1, 1));
}

#[test]
fn reports_an_unknown_catalog() {
    let mut two = tools();
    two.insert("other".to_owned(), Vec::new());
    let mut lines = lines(&[("x", "y", ExpectedKind::Tool)]);
    lines[0].catalog = "third".to_owned();
    let error = evaluate(&two, &lines, None, |_| {}).unwrap_err();
    assert_eq!(error, UnknownCatalog { line: 1, catalog: "third".to_owned() });
    assert_eq!(parse_catalogs(&json!("tools")), None);
    assert_eq!(parse_catalogs(&json!({"catalogs": {"a": 3}})), None);
}
