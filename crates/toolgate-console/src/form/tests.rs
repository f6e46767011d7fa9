//! Forms from schemas: fields, arguments, lists, alternatives and `null`.

use serde_json::json;

use super::*;

fn schema() -> Json {
    json!({ "type": "object", "required": ["to", "size"], "properties": {
        "to": { "type": "string", "description": "Address." },
        "size": { "type": "integer" },
        "loud": { "type": "boolean", "default": false },
        "mode": { "enum": ["a", 2, null] },
        "tags": { "type": "array", "items": { "type": "string" } },
        "place": { "type": "object", "required": ["x"], "properties": { "x": { "type": "number" }, "n/m": { "type": "string" } } },
        "any": {},
    } })
}

/// A schema as Pydantic writes it: references, lists of objects, alternatives with a constant, and `null`.
fn nested() -> Json {
    json!({ "type": "object", "properties": {
        "note": { "anyOf": [{ "type": "string" }, { "type": "null" }], "default": null },
        "lines": { "type": "array", "items": { "$ref": "#/$defs/Line" } },
        "target": { "oneOf": [{ "$ref": "#/$defs/Mail" }, { "$ref": "#/$defs/File" }, { "type": "string", "title": "A name" }] },
        "limit": { "type": ["integer", "string", "null"] },
    }, "$defs": {
        "Line": { "type": "object", "required": ["text"], "properties": {
            "text": { "type": "string" }, "sizes": { "type": "array", "items": { "type": "integer" } } } },
        "Mail": { "type": "object", "required": ["kind", "to"], "properties": { "kind": { "const": "mail" }, "to": { "type": "string" } } },
        "File": { "type": "object", "required": ["kind"], "properties": { "kind": { "const": "file" }, "path": { "type": "string" } } },
    } })
}

fn shown(form: &ToolForm<'_>) -> Vec<String> {
    let line = |field: Field| match field.kind {
        Kind::End | Kind::ListEnd => format!("{:?}", field.kind),
        kind => format!("{:?} {} {} = {}", kind, field.name(), field.hint(), field.value),
    };
    form.fields().into_iter().map(line).collect()
}

/// The form that a browser sends for the fields of a form, with changes.
fn resent<'a>(schema: &'a Json, form: &ToolForm<'_>, changes: &[(&str, &str)]) -> ToolForm<'a> {
    let sent = |name: &str| {
        let changed = changes.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let fields = form.fields();
        let known = || fields.iter().find(|field| field.name() == name).map(|field| field.value.clone());
        let null = || {
            fields
                .iter()
                .any(|field| field.is_null && name == format!("z{}", field.pointer))
                .then(String::new)
        };
        changed.or_else(known).or_else(null)
    };
    ToolForm::sent(schema, &sent)
}

#[test]
fn fields_have_the_types_of_the_schema() {
    let schema = schema();
    assert_eq!(
        shown(&ToolForm::new(&schema)),
        [
            "Text a/to string, required = ",
            "Integer a/size integer, required = ",
            "Choice a/loud boolean = false",
            "Choice a/mode one of 3 = ",
            "Lines a/tags list of string, one per line = ",
            "Group a/place object = ",
            "Number a/place/x number, required = ",
            "Text a/place/n~1m string = ",
            "End",
            "Json a/any any, as JSON = ",
        ]
    );
}

#[test]
fn arguments_come_back_with_their_types() {
    let schema = schema();
    let sent = [
        ("a/to", "ann\r\nbob"),
        ("a/size", " 12 "),
        ("a/loud", "true"),
        ("a/mode", "null"),
        ("a/tags", "x\r\ny"),
        ("a/place/n~1m", "1"),
        ("a/any", r#"{"k":[1]}"#),
    ];
    let find = |name: &str| sent.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    let form = ToolForm::sent(&schema, &find);
    let expected = json!({ "to": "ann\nbob", "size": 12, "loud": true, "mode": null, "tags": ["x", "y"],
        "place": { "n/m": "1" }, "any": { "k": [1] } });
    assert_eq!(form.arguments(), Ok(expected.clone()));
    let filled = ToolForm::filled(&schema, &expected);
    assert!(filled.can_show(&expected));
    for (reason, other) in [
        ("a member without a field", json!({ "unknown": 1 })),
        ("the field would change it", json!({ "to": "a\u{202E}b" })),
        ("the field would leave it out", json!({ "to": "" })),
        ("no field says that it is empty", json!({ "tags": [] })),
    ] {
        assert!(!ToolForm::filled(&schema, &other).can_show(&other), "{reason}");
    }
    let many = |name: &str| (name == "a/size").then(|| "many".to_owned());
    let bad = ToolForm::sent(&schema, &many).arguments();
    assert_eq!(bad.map_err(|error| error.message), Err("`many` is not a number".to_owned()));
}

#[test]
fn empty_fields_are_left_out() {
    let schema = schema();
    assert_eq!(ToolForm::sent(&schema, &|_| None).arguments(), Ok(json!({})));
}

#[test]
fn items_are_added_and_removed() {
    let schema = nested();
    let mut form = ToolForm::new(&schema);
    form.change("add:/lines");
    form.change("add:/lines");
    form.change("add:/lines/1/sizes");
    form.change("remove:/lines/7");
    form.change("add:/nowhere");
    let lines: Vec<_> = shown(&form).into_iter().filter(|line| line.contains("/lines")).collect();
    assert_eq!(
        lines,
        [
            "List n/lines list of object = 2",
            "Group a/lines/0 object = ",
            "Text a/lines/0/text string, required = ",
            "List n/lines/0/sizes list of integer = 0",
            "Group a/lines/1 object = ",
            "Text a/lines/1/text string, required = ",
            "List n/lines/1/sizes list of integer = 1",
            "Integer a/lines/1/sizes/0 integer = ",
        ]
    );
    let mut form = resent(&schema, &form, &[("a/lines/0/text", "gone"), ("a/lines/1/text", "kept")]);
    let empty = form.arguments().unwrap_err();
    assert_eq!((empty.label.as_str(), empty.message.contains("is empty")), ("lines[1].sizes[0]", true));
    form.change("remove:/lines/0");
    let form = resent(&schema, &form, &[("a/lines/0/sizes/0", "7")]);
    let expected = json!({ "lines": [{ "text": "kept", "sizes": [7] }] });
    assert_eq!(form.arguments(), Ok(expected.clone()));
    assert!(ToolForm::filled(&schema, &expected).can_show(&expected));
}

#[test]
fn alternatives_are_a_choice_of_forms() {
    let schema = nested();
    let form = ToolForm::filled(&schema, &Json::Null);
    let choice = form.fields().into_iter().find(|field| field.pointer == "/target").unwrap();
    let labels: Vec<_> = choice.choices.iter().map(|(_, label)| label.as_str()).collect();
    assert_eq!(labels, ["Mail", "File", "A name"]);
    let form = resent(&schema, &form, &[("v/target", "1"), ("v/limit", "0")]);
    let lines = shown(&form);
    assert!(lines.contains(&"Choice a/target/kind \"file\", required = ".to_owned()), "{lines:?}");
    assert!(lines.contains(&"Integer a/limit integer, required = ".to_owned()), "{lines:?}");
    let changes = [("a/target/kind", "\"file\""), ("a/target/path", "x"), ("a/limit", "3")];
    let expected = json!({ "target": { "kind": "file", "path": "x" }, "limit": 3 });
    assert_eq!(resent(&schema, &form, &changes).arguments(), Ok(expected));
    for arguments in [
        json!({ "target": { "kind": "mail", "to": "ann" } }),
        json!({ "target": { "kind": "file" } }),
        json!({ "target": "plain" }),
        json!({ "limit": "many", "note": null }),
        json!({ "limit": null, "note": "text" }),
    ] {
        assert!(ToolForm::filled(&schema, &arguments).can_show(&arguments), "{arguments}");
    }
    let other = json!({ "target": 7 });
    assert!(!ToolForm::filled(&schema, &other).can_show(&other), "no alternative fits");
}

#[test]
fn null_is_a_value_of_its_own() {
    let schema = nested();
    assert_eq!(ToolForm::new(&schema).arguments(), Ok(json!({})), "leaving it out is the default");
    let null = |name: &str| (name == "z/note").then(|| "1".to_owned());
    assert_eq!(ToolForm::sent(&schema, &null).arguments(), Ok(json!({ "note": null })));
    assert_eq!(ToolForm::sent(&schema, &|_| None).arguments(), Ok(json!({})));
}

#[test]
fn hostile_schemas_stay_bounded() {
    let mut deep = json!({ "type": "string" });
    for _ in 0..200 {
        deep = json!({ "type": "object", "properties": { "a": deep } });
    }
    assert!(ToolForm::new(&deep).fields().len() < 20);
    let wide = json!({ "properties": (0..5_000).map(|at| (at.to_string(), json!({ "type": "string" }))).collect::<Map<_, _>>() });
    assert_eq!(ToolForm::new(&wide).fields().len(), MAX_FIELDS);
    let own = json!({ "properties": { "next": { "$ref": "#" }, "all": { "type": "array", "items": { "$ref": "#" } } } });
    assert!(ToolForm::new(&own).fields().len() <= 4 * MAX_FIELDS);
    let count = |name: &str| name.starts_with('n').then(|| "4000000000".to_owned());
    assert!(ToolForm::sent(&own, &count).fields().len() <= 4 * MAX_FIELDS);
    let twice = json!({ "properties": { "a": { "oneOf": vec![json!({ "$ref": "#" }); 30] } } });
    assert!(ToolForm::new(&twice).fields().len() <= 4);
}
