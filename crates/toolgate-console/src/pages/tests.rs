//! Pages with hostile values, and the parts of results.

use serde_json::json;

use super::result::parts;
use super::*;
use crate::frame::Section;

fn frame() -> Frame {
    Frame {
        title: "Test".to_owned(),
        section: Section::Tools,
        caller: "ann".to_owned(),
        theme: Theme::Auto,
        csrf: "token".to_owned(),
        here: "/tools".to_owned(),
        operations: ["call", "why"].into(),
        notice: None,
        waiting: None,
        rest: Vec::new(),
        commands: Vec::new(),
        live: "",
    }
}

const HOSTILE: &str = "\"><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}\u{202E}\u{1b}[2J'";

/// Text from a server stays text: no element and no attribute comes from it.
#[test]
fn hostile_tools_are_inert() {
    let tool = Tool {
        name: HOSTILE.to_owned(),
        title: Some(HOSTILE.to_owned()),
        description: HOSTILE.to_owned(),
        server: Some(HOSTILE.to_owned()),
        tags: vec![HOSTILE.to_owned()],
        state: HOSTILE.to_owned(),
        input_schema: json!({ "properties": { HOSTILE: { "type": HOSTILE, "description": HOSTILE, "enum": [HOSTILE] } } }),
        ..Tool::default()
    };
    let outcome = Outcome {
        status: HOSTILE.to_owned(),
        data: json!({ "content": [
            { "type": "text", "text": HOSTILE },
            { "type": "image", "mimeType": "image/svg+xml", "data": "PHN2ZyBvbmxvYWQ9YWxlcnQoMSk+" },
            { "type": "resource_link", "uri": "javascript:alert(1)" },
        ] }),
        ..Outcome::default()
    };
    let page = ToolPage {
        frame: frame(),
        fields: crate::form::ToolForm::new(&tool.input_schema).fields(),
        schema: crate::schema::table(&tool.input_schema),
        tool,
        figures: None,
        failure: None,
        as_json: false,
        arguments: String::new(),
        why_for: HOSTILE.to_owned(),
        why: None,
        outcome: Some(outcome),
        callers: None,
        calls: None,
    };
    let html = page.render().expect("the page renders");
    assert_eq!(html.matches("<script").count(), 1, "only the module");
    for part in [
        "<img src=x",
        "onerror=alert(2)>{{7*7}}\u{202E}",
        "src=\"data:image/svg",
        "href=\"javascript",
        "\u{202E}",
        "\u{1b}",
    ] {
        assert!(!html.contains(part), "{part}");
    }
    assert!(html.contains("⟦U+202E⟧⟦U+001B⟧[2J"));
    assert!(html.contains("/resource?uri=javascript%3Aalert%281%29"));
}

#[test]
fn no_template_leaves_the_escaper_out() {
    for file in TEMPLATES {
        for part in ["|safe", "| safe", "escape none", " style=", " onclick", "javascript:"] {
            assert!(!file.contains(part), "{part} in {file}");
        }
    }
}

#[test]
fn results_become_parts() {
    let png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB";
    let data = json!({ "content": [
        { "type": "text", "text": "plain" },
        { "type": "text", "text": "[{\"a\":1},{\"a\":2,\"b\":\"x\"}]" },
        { "type": "image", "mimeType": "image/jpeg", "data": png },
        { "type": "image", "mimeType": "image/png", "data": "AAAA" },
    ], "structuredContent": { "rows": [{ "n": 1 }, { "n": null }] } });
    let found = parts(&data);
    assert_eq!(found[0], Part::Text("plain".to_owned()));
    let Part::Table(table) = &found[1] else { panic!("{:?}", found[1]) };
    assert_eq!((table.columns.join(" "), table.rows[1].join(" ")), ("a b".to_owned(), "2 x".to_owned()));
    assert!(
        matches!(&found[2], Part::Image(image) if image.kind == "image/png"),
        "by its bytes, not by its name"
    );
    assert!(matches!(&found[3], Part::Note(note) if note.contains("not of a known type")));
    assert!(matches!(&found[4], Part::Table(table) if table.columns == ["n"]));
    let [Part::Json(tree)] = &parts(&json!({ "a": [1, { "b": null }], "c": "x" }))[..] else {
        panic!("a tree")
    };
    let rows: Vec<_> =
        tree.rows.iter().map(|row| format!("{:?} {} {}", row.kind, row.key, row.value)).collect();
    let expected = [
        "Open  2 members",
        "Open a 2 items",
        "Leaf 0 1",
        "Open 1 1 member",
        "Leaf b null",
        "Close  ",
        "Close  ",
    ];
    assert_eq!(rows[..7], expected);
    // Deeper JSON is not parsed.
    let mut deep = json!(1);
    for _ in 0..60 {
        deep = json!({ "d": [deep] });
    }
    let wide = json!({ "w": vec![json!({ "x": 1 }); 5_000], "more": 1 });
    for large in [deep, wide] {
        let [Part::Json(tree)] = &parts(&large)[..] else { panic!("a tree") };
        let opened = tree.rows.iter().filter(|row| row.kind == TreeRowKind::Open).count();
        let closed = tree.rows.iter().filter(|row| row.kind == TreeRowKind::Close).count();
        assert!(opened == closed && tree.rows.len() < 1_300, "{} rows", tree.rows.len());
    }
    assert_eq!(parts(&json!("only text")), [Part::Text("only text".to_owned())]);
}

#[test]
fn waterfalls_keep_their_proportions() {
    let step =
        |stage: &str, start, micros| Step { stage: stage.to_owned(), start, micros, ..Step::default() };
    let bars = waterfall(&[step("resolve", 0, 10), step("invoke", 10, 990)]);
    assert_eq!((bars[0].x, bars[0].width, bars[1].x, bars[1].width), (0, 10, 10, 990));
    assert!(waterfall(&[]).is_empty());
}
