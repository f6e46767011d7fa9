//! Schemas adapted to each provider, and arguments mapped back.

use super::*;
use SchemaDialect::{Anthropic, Any, Gemini, Openai};

/// Adapted schema, then the added description, then the notes for operators.
fn shown(schema: Value, provider: SchemaDialect) -> String {
    let adapted = adapt_definition("", &schema, provider);
    let mut out = adapted.schema.to_string();
    for line in std::iter::once(adapted.description).chain(adapted.notes).filter(|line| !line.is_empty()) {
        out.push_str(&format!("\n{line}"));
    }
    out
}

/// Arguments mapped back to the original schema.
fn restore(schema: Value, provider: SchemaDialect, arguments: Value) -> Value {
    adapt_definition("", &schema, provider).mapping.restore(arguments)
}

#[test]
fn valid_schema_is_unchanged() {
    let schema = json!({
        "type": "object",
        "properties": { "a": { "type": "string", "format": "email" }, "b": { "anyOf": [{ "type": "integer" }, { "type": "null" }] } },
        "required": ["a"],
        "additionalProperties": false,
    });
    for provider in [Openai, Anthropic] {
        let adapted = adapt_definition("Does it.", &schema, provider);
        assert_eq!((adapted.schema, adapted.description.as_str()), (schema.clone(), "Does it."));
        assert!(adapted.mapping.is_empty() && adapted.notes.is_empty());
    }
}

#[test]
fn top_level_unions_become_one_object() {
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
    {"properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["a","b"],"type":"object","additionalProperties":false}
    not: {"required":["a","b"]}.
    "#);
}

#[test]
fn argument_names_are_restored() {
    let schema = json!({
        "type": "object",
        "properties": { "filter[name]": { "type": "object", "properties": { "$eq": { "type": "string" } } }, "list": { "type": "array", "items": { "type": "object", "properties": { "a b": {} } } } },
        "required": ["filter[name]"],
    });
    let text = shown(schema.clone(), Anthropic);
    insta::assert_snapshot!(text, @r#"{"type":"object","properties":{"filter_name__259d80":{"type":"object","properties":{"__eq_9c2eee":{"type":"string"}}},"list":{"type":"array","items":{"type":"object","properties":{"a_b_c8687a":{}}}}},"required":["filter_name__259d80"]}"#);
    let adapted = adapt_definition("", &schema, Anthropic);
    let name = adapted.mapping.names.keys().next().unwrap().clone();
    let inner = adapted.mapping.fields[&name].names.keys().next().unwrap().clone();
    assert_eq!(
        restore(schema.clone(), Anthropic, json!({ &name: { &inner: "x" } })),
        json!({ "filter[name]": { "$eq": "x" } })
    );
    // OpenAI accepts these names, so they stay.
    assert!(super::adapt_definition("", &schema, Openai).mapping.names.is_empty());
}

#[test]
fn unsupported_gemini_keywords_are_rewritten() {
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
    let adapted = adapt_definition("", &schema, Gemini);
    insta::assert_snapshot!(serde_json::to_string_pretty(&adapted.schema).unwrap(), @r#"
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
          "description": "A JSON object, as a string. Its values: {\"type\":\"string\"}."
        },
        "free": {
          "type": "string",
          "description": "Any value, as a string that holds JSON."
        },
        "list": {
          "type": "array",
          "items": {
            "type": "string",
            "description": "Any value, as a string that holds JSON."
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
    let expected =
        json!({ "labels": { "a": "b" }, "free": [1], "list": [{}, "x"], "mail": "{}", "size": "3" });
    assert_eq!(restore(schema.clone(), Gemini, arguments), expected);
    assert_eq!(super::adapt_definition("", &schema, Any).schema, adapted.schema);
}

#[test]
fn recursive_schemas_become_json_text() {
    let schema = json!({
        "type": "object",
        "properties": { "tree": { "$ref": "#/$defs/Node" } },
        "$defs": { "Node": { "type": "object", "properties": { "name": { "type": "string" }, "child": { "$ref": "#/$defs/Node" } } } },
    });
    insta::assert_snapshot!(shown(schema.clone(), Openai), @r#"{"type":"object","properties":{"tree":{"type":"object","properties":{"name":{"type":"string"},"child":{"type":"string","description":"Same as the enclosing `Node`. Any value, as a string that holds JSON."}},"additionalProperties":false}},"additionalProperties":false}"#);
    insta::assert_snapshot!(shown(schema.clone(), Gemini), @r#"{"type":"object","properties":{"tree":{"type":"object","properties":{"name":{"type":"string"},"child":{"type":"string","description":"Same as the enclosing `Node`. Any value, as a string that holds JSON."}}}}}"#);
    let arguments = json!({ "tree": { "name": "a", "child": "{\"name\":\"b\"}" } });
    assert_eq!(
        restore(schema, Gemini, arguments),
        json!({ "tree": { "name": "a", "child": { "name": "b" } } })
    );
}

#[test]
fn unsupported_schema_accepts_any_arguments() {
    let mut deep = json!({ "type": "string" });
    for _ in 0..60 {
        deep = json!({ "type": "array", "items": deep });
    }
    let schema = json!({ "type": "object", "properties": { "deep": deep } });
    insta::assert_snapshot!(shown(schema.clone(), Openai), @r#"
    {"type":"object","properties":{"arguments":{"type":"string","description":"All arguments, as a string that holds a JSON object."}}}
    Its input schema is not shown: its schema is nested too deeply. Its errors describe invalid arguments.
    it is shown with a schema that accepts any arguments: its schema is nested too deeply
    "#);
    insta::assert_snapshot!(shown(schema.clone(), Gemini), @r#"
    {"type":"object","properties":{"arguments":{"type":"string","description":"All arguments, as a string that holds a JSON object."}}}
    Its input schema is not shown: its schema is nested too deeply. Its errors describe invalid arguments.
    it is shown with a schema that accepts any arguments: its schema is nested too deeply
    "#);
    assert_eq!(restore(schema, Gemini, json!({ "arguments": "{\"deep\":1}" })), json!({ "deep": 1 }));
    insta::assert_snapshot!(shown(json!({ "type": "array" }), Anthropic), @r#"
    {"type":"object","properties":{},"additionalProperties":true}
    Its input schema is not shown: its arguments are not an object. Its errors describe invalid arguments.
    it is shown with a schema that accepts any arguments: its arguments are not an object
    "#);
    insta::assert_snapshot!(shown(json!(true), Anthropic), @r#"{"type":"object","properties":{}}"#);
}

#[test]
fn long_descriptions_are_truncated_for_providers_with_a_limit() {
    let (long, schema) = ("ä".repeat(1_500), json!({ "type": "object" }));
    for (provider, expected) in [(Openai, 1_024), (Any, 1_024), (Anthropic, 1_500), (Gemini, 1_500)] {
        assert_eq!(
            adapt_definition(&long, &schema, provider).description.chars().count(),
            expected,
            "{provider:?}"
        );
    }
}

/// Generates random schemas from few keywords, so that they interact.
struct SchemaGenerator(u64);

impl SchemaGenerator {
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

/// Checks that a schema uses only keywords Gemini supports.
fn check_gemini_schema(schema: &Value) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{what}: {schema}"));
    let Value::Object(members) = schema else { return wrong("no schema") };
    if let Some(branches) = members.get("anyOf") {
        let all = branches.as_array().filter(|all| !all.is_empty() && members.len() == 1);
        return all.map_or_else(|| wrong("beside anyOf"), |all| all.iter().try_for_each(check_gemini_schema));
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
                        check_gemini_schema(schema)
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
            ("items", "array") => check_gemini_schema(value)?,
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
fn random_schemas_become_valid_provider_schemas() {
    let mut generator = SchemaGenerator(7);
    for round in 0..1_500 {
        let mut schema = generator.schema(4);
        if let Value::Object(members) = &mut schema {
            members.insert("$defs".to_owned(), json!({ "A": generator.schema(3) }));
        }
        let value = generator.schema(2);
        for provider in [Openai, Anthropic, Gemini, Any] {
            let adapted = adapt_definition("", &schema, provider);
            let top = &adapted.schema;
            assert_eq!(top["type"], "object", "{round} {provider:?} {schema}\n{top}");
            for keyword in ["anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref", "$defs"] {
                assert!(top.get(keyword).is_none(), "{round} {provider:?} {schema}\n{top}");
            }
            if matches!(provider, Gemini | Any) {
                check_gemini_schema(top)
                    .unwrap_or_else(|why| panic!("{round} {provider:?} {schema}\n{top}\n{why}"));
            }
            adapted.mapping.restore(value.clone());
        }
    }
}
