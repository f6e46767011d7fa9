//! Definitions in the words of each provider, and arguments on their way back.

use super::*;
use Provider::{Anthropic, Any, Gemini, Openai};

/// The schema of a definition, then what was added to its description, then what is told to people.
fn shown(schema: Value, provider: Provider) -> String {
    let written = written("", &schema, provider);
    let mut out = written.schema.to_string();
    for line in std::iter::once(written.description).chain(written.notes).filter(|line| !line.is_empty()) {
        out.push_str(&format!("\n{line}"));
    }
    out
}

/// What arguments become.
fn undone(schema: Value, provider: Provider, arguments: Value) -> Value {
    written("", &schema, provider).undo.undone(arguments)
}

#[test]
fn a_good_schema_stays_as_it_is() {
    let schema = json!({
        "type": "object",
        "properties": { "a": { "type": "string", "format": "email" }, "b": { "anyOf": [{ "type": "integer" }, { "type": "null" }] } },
        "required": ["a"],
        "additionalProperties": false,
    });
    for provider in [Openai, Anthropic] {
        let written = written("Does it.", &schema, provider);
        assert_eq!((written.schema, written.description.as_str()), (schema.clone(), "Does it."));
        assert!(written.undo.is_empty() && written.notes.is_empty());
    }
}

#[test]
fn unions_at_the_top_become_one_object() {
    let schema = json!({
        "type": "object",
        "properties": { "id": { "type": "integer" } },
        "required": ["id"],
        "additionalProperties": false,
        "anyOf": [
            { "properties": { "name": { "type": "string" }, "way": { "const": "a" } }, "required": ["name", "way"] },
            { "properties": { "mail": { "type": "string" }, "way": { "const": "b" } }, "required": ["mail", "way"] },
        ],
    });
    insta::assert_snapshot!(shown(schema.clone(), Anthropic), @r#"
    {"type":"object","properties":{"id":{"type":"integer"},"name":{"type":"string"},"way":{"anyOf":[{"const":"a"},{"const":"b"}]},"mail":{"type":"string"}},"required":["id","way"]}
    It needs name and way, or mail and way.
    "#);
    insta::assert_snapshot!(shown(schema, Gemini), @r#"
    {"type":"object","required":["id","way"],"properties":{"id":{"type":"integer"},"name":{"type":"string"},"way":{"type":"string","enum":["a","b"]},"mail":{"type":"string"}}}
    It needs name and way, or mail and way.
    "#);
    let schema = json!({
        "allOf": [{ "$ref": "#/$defs/A" }, { "properties": { "b": { "type": "string" } }, "required": ["b"] }],
        "not": { "required": ["a", "b"] },
        "$defs": { "A": { "type": "object", "properties": { "a": { "type": "string" } }, "required": ["a"] } },
    });
    insta::assert_snapshot!(shown(schema, Openai), @r#"
    {"properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["a","b"],"type":"object"}
    not: {"required":["a","b"]}.
    "#);
}

#[test]
fn names_of_arguments_come_back() {
    let schema = json!({
        "type": "object",
        "properties": { "filter[name]": { "type": "object", "properties": { "$eq": { "type": "string" } } }, "list": { "type": "array", "items": { "type": "object", "properties": { "a b": {} } } } },
        "required": ["filter[name]"],
    });
    let text = shown(schema.clone(), Anthropic);
    insta::assert_snapshot!(text, @r#"{"type":"object","properties":{"filter_name__259d80":{"type":"object","properties":{"__eq_9c2eee":{"type":"string"}}},"list":{"type":"array","items":{"type":"object","properties":{"a_b_c8687a":{}}}}},"required":["filter_name__259d80"]}"#);
    let written = written("", &schema, Anthropic);
    let name = written.undo.names.keys().next().unwrap().clone();
    let inner = written.undo.fields[&name].names.keys().next().unwrap().clone();
    assert_eq!(
        undone(schema.clone(), Anthropic, json!({ &name: { &inner: "x" } })),
        json!({ "filter[name]": { "$eq": "x" } })
    );
    // Others take them, so nothing is changed for them.
    assert!(super::written("", &schema, Openai).undo.is_empty());
}

#[test]
fn what_gemini_refuses_is_written_otherwise() {
    let schema = json!({
        "type": "object",
        "properties": {
            "mail": { "type": "string", "format": "email", "description": "Whose." },
            "when": { "type": ["string", "null"], "format": "date-time" },
            "level": { "type": "integer", "enum": [1, 2], "exclusiveMinimum": 0 },
            "mode": { "oneOf": [{ "const": "fast" }, { "const": "slow" }] },
            "size": { "type": ["string", "integer"], "description": "How large." },
            "maybe": { "anyOf": [{ "type": "integer" }, { "type": "null" }], "default": 3 },
            "labels": { "type": "object", "additionalProperties": { "type": "string" } },
            "free": {},
            "list": { "type": "array" },
            "pair": { "type": "array", "prefixItems": [{ "type": "string" }, { "type": "integer" }], "items": false },
            "never": false,
            "empty": { "enum": ["", "a"] },
        },
        "required": ["mail", "gone"],
        "additionalProperties": false,
        "$schema": "https://json-schema.org/draft/2020-12/schema",
    });
    let written = written("", &schema, Gemini);
    insta::assert_snapshot!(serde_json::to_string_pretty(&written.schema).unwrap(), @r#"
    {
      "type": "object",
      "required": [
        "mail"
      ],
      "properties": {
        "mail": {
          "type": "string",
          "description": "Whose. format: email."
        },
        "when": {
          "type": "string",
          "format": "date-time",
          "nullable": true
        },
        "level": {
          "type": "integer",
          "description": "exclusiveMinimum: 0. One of 1, 2."
        },
        "mode": {
          "type": "string",
          "enum": [
            "fast",
            "slow"
          ]
        },
        "size": {
          "anyOf": [
            {
              "type": "string",
              "description": "How large."
            },
            {
              "type": "integer",
              "description": "How large."
            }
          ]
        },
        "maybe": {
          "type": "integer",
          "description": "default: 3.",
          "nullable": true
        },
        "labels": {
          "type": "string",
          "description": "A JSON object, as text. Its values: {\"type\":\"string\"}."
        },
        "free": {
          "type": "string",
          "description": "Any value, as the text of its JSON."
        },
        "list": {
          "type": "array",
          "items": {
            "type": "string",
            "description": "Any value, as the text of its JSON."
          }
        },
        "pair": {
          "type": "array",
          "items": {
            "anyOf": [
              {
                "type": "string"
              },
              {
                "type": "integer"
              }
            ]
          }
        },
        "empty": {
          "type": "string",
          "enum": [
            "a"
          ],
          "description": "One of \"\", \"a\"."
        }
      }
    }
    "#);
    let arguments =
        json!({ "labels": "{\"a\":\"b\"}", "free": "[1]", "list": ["{}", "x"], "mail": "{}", "size": "3" });
    let due = json!({ "labels": { "a": "b" }, "free": [1], "list": [{}, "x"], "mail": "{}", "size": "3" });
    assert_eq!(undone(schema.clone(), Gemini, arguments), due);
    assert_eq!(super::written("", &schema, Any).schema, written.schema);
}

#[test]
fn what_leads_back_to_itself_is_taken_as_text() {
    let schema = json!({
        "type": "object",
        "properties": { "tree": { "$ref": "#/$defs/Node" } },
        "$defs": { "Node": { "type": "object", "properties": { "name": { "type": "string" }, "child": { "$ref": "#/$defs/Node" } } } },
    });
    insta::assert_snapshot!(shown(schema.clone(), Openai), @r#"{"type":"object","properties":{"tree":{"type":"object","properties":{"name":{"type":"string"},"child":{"description":"Again the same as `Node` around it."}}}}}"#);
    insta::assert_snapshot!(shown(schema.clone(), Gemini), @r#"{"type":"object","properties":{"tree":{"type":"object","properties":{"name":{"type":"string"},"child":{"type":"string","description":"Again the same as `Node` around it. Any value, as the text of its JSON."}}}}}"#);
    let arguments = json!({ "tree": { "name": "a", "child": "{\"name\":\"b\"}" } });
    assert_eq!(
        undone(schema, Gemini, arguments),
        json!({ "tree": { "name": "a", "child": { "name": "b" } } })
    );
}

#[test]
fn one_that_cannot_be_written_takes_anything() {
    let mut deep = json!({ "type": "string" });
    for _ in 0..60 {
        deep = json!({ "type": "array", "items": deep });
    }
    let schema = json!({ "type": "object", "properties": { "deep": deep } });
    insta::assert_snapshot!(shown(schema.clone(), Openai), @r#"
    {"type":"object","properties":{},"additionalProperties":true}
    What it takes is not shown: its schema is nested too deeply. It says what is wrong.
    it is shown as one that takes any arguments: its schema is nested too deeply
    "#);
    insta::assert_snapshot!(shown(schema.clone(), Gemini), @r#"
    {"type":"object","properties":{"arguments":{"type":"string","description":"All arguments, as the text of a JSON object."}}}
    What it takes is not shown: its schema is nested too deeply. It says what is wrong.
    it is shown as one that takes any arguments: its schema is nested too deeply
    "#);
    assert_eq!(undone(schema, Gemini, json!({ "arguments": "{\"deep\":1}" })), json!({ "deep": 1 }));
    insta::assert_snapshot!(shown(json!({ "type": "array" }), Anthropic), @r#"
    {"type":"object","properties":{},"additionalProperties":true}
    What it takes is not shown: its arguments are no object. It says what is wrong.
    it is shown as one that takes any arguments: its arguments are no object
    "#);
    insta::assert_snapshot!(shown(json!(true), Anthropic), @r#"{"type":"object","properties":{}}"#);
}

#[test]
fn long_descriptions_are_cut_for_who_refuses_them() {
    let (long, schema) = ("ä".repeat(1_500), json!({ "type": "object" }));
    for (provider, due) in [(Openai, 1_024), (Any, 1_024), (Anthropic, 1_500), (Gemini, 1_500)] {
        assert_eq!(written(&long, &schema, provider).description.chars().count(), due, "{provider:?}");
    }
}

/// Schemas of any shape, of few words so that they meet.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }

    fn schema(&mut self, depth: usize) -> Value {
        const KINDS: [&str; 8] = ["object", "array", "string", "integer", "number", "boolean", "null", "odd"];
        if depth == 0 || self.below(12) == 0 {
            return [json!({}), json!(true), json!(false), json!(7), json!({ "$ref": "#/$defs/A" })]
                [self.below(5)]
            .clone();
        }
        let mut out = Map::new();
        for _ in 0..self.below(4) + 1 {
            let (keyword, value) = match self.below(16) {
                0 | 1 => ("type", json!(KINDS[self.below(8)])),
                2 => ("type", json!([KINDS[self.below(8)], KINDS[self.below(8)]])),
                3..=5 => {
                    let names = ["a", "b c", "filter[x]", "$d", ""];
                    let mut all = Map::new();
                    for _ in 0..self.below(4) {
                        let name = names[self.below(5)].to_owned();
                        all.insert(name, self.schema(depth - 1));
                    }
                    ("properties", all.into())
                }
                6 => ("items", self.schema(depth - 1)),
                7 => ("prefixItems", json!([self.schema(depth - 1), self.schema(depth - 1)])),
                8 => ("anyOf", json!([self.schema(depth - 1), self.schema(depth - 1)])),
                9 => ("oneOf", json!([self.schema(depth - 1), { "type": "null" }])),
                10 => ("allOf", json!([self.schema(depth - 1)])),
                11 => (
                    "enum",
                    [json!([1, "x", ""]), json!(["x"]), json!([]), json!("x")][self.below(4)].clone(),
                ),
                12 => ("required", [json!(["a", "b c"]), json!("a"), json!([1])][self.below(3)].clone()),
                13 => ("additionalProperties", self.schema(depth - 1)),
                14 => ("$ref", json!("#/$defs/A")),
                _ => ("description", json!("Words.")),
            };
            out.insert(keyword.to_owned(), value);
        }
        out.into()
    }
}

/// Whether a schema has only what Gemini knows.
fn known_to_gemini(schema: &Value) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{what}: {schema}"));
    let Value::Object(members) = schema else { return wrong("no schema") };
    if let Some(branches) = members.get("anyOf") {
        let all = branches.as_array().filter(|all| !all.is_empty() && members.len() == 1);
        return all.map_or_else(|| wrong("beside anyOf"), |all| all.iter().try_for_each(known_to_gemini));
    }
    let kind = members.get("type").and_then(Value::as_str).unwrap_or_default();
    for (keyword, value) in members {
        match (keyword.as_str(), kind) {
            ("type" | "description" | "title" | "nullable" | "format", _) => {}
            ("enum", "string") => {
                let good = |one: &Value| one.as_str().is_some_and(|one| !one.is_empty());
                if !value.as_array().is_some_and(|all| !all.is_empty() && all.iter().all(good)) {
                    return wrong("enum");
                }
            }
            ("properties", "object") => {
                value.as_object().into_iter().flatten().try_for_each(|(name, schema)| {
                    if *name == safe_argument(name) {
                        known_to_gemini(schema)
                    } else {
                        Err(format!("name {name}"))
                    }
                })?
            }
            ("required", "object") => {
                let there =
                    |name: &Value| members["properties"].get(name.as_str().unwrap_or_default()).is_some();
                if !value.as_array().is_some_and(|all| all.iter().all(there)) {
                    return wrong("required");
                }
            }
            ("items", "array") => known_to_gemini(value)?,
            ("minLength" | "maxLength" | "pattern", "string") => {}
            ("minimum" | "maximum", "integer" | "number") => {}
            ("minItems" | "maxItems", "array") => {}
            _ => return wrong(keyword),
        }
    }
    let fits = match kind {
        "array" => members.contains_key("items"),
        "object" => members.contains_key("properties"),
        "string" | "integer" | "number" | "boolean" => true,
        _ => false,
    };
    if fits { Ok(()) } else { wrong("type") }
}

#[test]
fn whatever_a_schema_is_something_good_comes_of_it() {
    let mut chance = Chance(7);
    for round in 0..1_500 {
        let mut schema = chance.schema(4);
        if let Value::Object(members) = &mut schema {
            members.insert("$defs".to_owned(), json!({ "A": chance.schema(3) }));
        }
        let value = chance.schema(2);
        for provider in [Openai, Anthropic, Gemini, Any] {
            let written = written("", &schema, provider);
            let top = &written.schema;
            assert_eq!(top["type"], "object", "{round} {provider:?} {schema}\n{top}");
            for keyword in ["anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref", "$defs"] {
                assert!(top.get(keyword).is_none(), "{round} {provider:?} {schema}\n{top}");
            }
            if matches!(provider, Gemini | Any) {
                known_to_gemini(top)
                    .unwrap_or_else(|why| panic!("{round} {provider:?} {schema}\n{top}\n{why}"));
            }
            written.undo.undone(value.clone());
        }
    }
}
