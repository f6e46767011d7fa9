//! Documents to tools, and arguments to requests.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use toolgate_types::api::OperationFilter;
use toolgate_types::{ApiDocument, ApiSpec, ConfigString};
use url::Url;

use super::document::{DocumentContents, OperationTool, read_document};
use super::encode::EncodedRequest;

fn spec() -> ApiSpec {
    ApiSpec {
        name: "pets".parse().unwrap(),
        document: ApiDocument::File { path: "pets.yaml".to_owned(), json: "{}".into() },
        base_url: None,
        variables: Default::default(),
        include: OperationFilter::default(),
        exclude: OperationFilter::default(),
        auth: Default::default(),
        headers: Default::default(),
        timeout: None,
        prefix: String::new(),
        allow_networks: Vec::new(),
        strict_output: false,
        cache: "".into(),
    }
}

fn document(paths: Value) -> Value {
    json!({ "openapi": "3.0.3", "info": { "title": "t", "version": "7" },
            "servers": [{ "url": "https://api.test/v1/" }], "paths": paths })
}

fn contents(document: &Value) -> DocumentContents {
    read_document(document, &spec(), None).unwrap()
}

/// The only operation of a document, with these parameters.
fn one(path: &str, parameters: Value) -> OperationTool {
    let operation = json!({ "operationId": "op", "parameters": parameters });
    let mut contents = contents(&document(json!({ path: { "get": operation } })));
    assert_eq!(contents.notes, Vec::<String>::new());
    contents.operations.remove(0)
}

fn request(described: &OperationTool, arguments: &Value) -> Result<EncodedRequest, String> {
    let base = Url::parse("https://api.test/v1").unwrap();
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    described.shape.request(&base, &arguments, &|_| None).map_err(|error| error.to_string())
}

/// The URL after `https://api.test/v1`, or the error.
fn sent(path: &str, parameter: Value, value: Value) -> String {
    let name = parameter["name"].as_str().unwrap().to_owned();
    let described = one(path, json!([parameter]));
    match request(&described, &json!({ name: value })) {
        Ok(request) => request.url.as_str().strip_prefix("https://api.test/v1").unwrap().to_owned(),
        Err(error) => error,
    }
}

#[test]
fn encodes_query_styles() {
    let query = |style: &str, explode: bool, value: Value| {
        let properties = json!({ "a": {}, "b": {} });
        let schema = json!({ "type": "object", "properties": properties });
        sent(
            "/x",
            json!({ "name": "q", "in": "query", "style": style, "explode": explode, "schema": schema }),
            value,
        )
    };
    let (list, object) = (json!(["a b", "c&d"]), json!({ "a": 1, "b": "x=y" }));
    assert_eq!(query("form", true, json!("a/ü?")), "/x?q=a%2F%C3%BC%3F");
    assert_eq!(query("form", true, list.clone()), "/x?q=a%20b&q=c%26d");
    assert_eq!(query("form", false, list.clone()), "/x?q=a%20b,c%26d");
    assert_eq!(query("form", true, object.clone()), "/x?a=1&b=x%3Dy");
    assert_eq!(query("form", false, object.clone()), "/x?q=a,1,b,x%3Dy");
    assert_eq!(query("spaceDelimited", false, list.clone()), "/x?q=a%20b%20c%26d");
    assert_eq!(query("pipeDelimited", false, list.clone()), "/x?q=a%20b%7Cc%26d");
    assert_eq!(query("deepObject", true, object), "/x?q%5Ba%5D=1&q%5Bb%5D=x%3Dy");
    assert_eq!(
        query("deepObject", true, json!({ "a": { "b": [1, 2] } })),
        "/x?q%5Ba%5D%5Bb%5D=1&q%5Ba%5D%5Bb%5D=2"
    );
    assert_eq!(
        query("form", true, json!({ "c": 1 })),
        "argument `q` contains `c`, which the document does not define"
    );
    assert_eq!(query("form", true, json!([[1]])), "argument `q` is nested more deeply than its style allows");
    assert_eq!(query("form", true, Value::Null), "/x");
    let as_json = json!({ "name": "q", "in": "query", "content": { "application/json": { "schema": {} } } });
    assert_eq!(sent("/x", as_json, json!({ "a": [1] })), "/x?q=%7B%22a%22%3A%5B1%5D%7D");
}

#[test]
fn encodes_path_styles() {
    let path = |style: &str, explode: bool, value: Value| {
        sent(
            "/a/{p}/b",
            json!({ "name": "p", "in": "path", "required": true, "style": style, "explode": explode }),
            value,
        )
    };
    let (list, object) = (json!(["x", "y"]), json!({ "k": 1, "l": 2 }));
    assert_eq!(path("simple", false, json!("a/b?#;ü")), "/a/a%2Fb%3F%23%3B%C3%BC/b");
    assert_eq!(path("simple", false, list.clone()), "/a/x,y/b");
    assert_eq!(path("simple", false, object.clone()), "/a/k,1,l,2/b");
    assert_eq!(path("simple", true, object.clone()), "/a/k=1,l=2/b");
    assert_eq!(path("label", false, json!("x")), "/a/.x/b");
    assert_eq!(path("label", true, list.clone()), "/a/.x.y/b");
    assert_eq!(path("matrix", false, list.clone()), "/a/;p=x,y/b");
    assert_eq!(path("matrix", true, list), "/a/;p=x;p=y/b");
    assert_eq!(path("matrix", true, object), "/a/;k=1;l=2/b");
    for bad in [
        json!(".."),
        json!("."),
        json!("../x"),
        json!("x/.."),
        json!("..\\x"),
        json!("%2e%2E"),
        json!("a\r\nb"),
    ] {
        let error = path("simple", false, bad.clone());
        assert!(error.starts_with("argument `p` "), "{bad}: {error}");
    }
    for empty in [json!(""), json!([]), json!({}), Value::Null, json!(["a", ""])] {
        assert_eq!(path("simple", false, empty), "argument `p` is empty, but it is part of the path");
    }
    // Two values that are harmless alone would form `..` together.
    let two = json!([{ "name": "p", "in": "path" }, { "name": "q", "in": "path" }]);
    let described = one("/a/{p}{q}", two);
    assert_eq!(
        request(&described, &json!({ "p": "x", "q": "." })).unwrap_err(),
        "argument `q` contains characters that no path allows"
    );
    let label = json!({ "name": "p", "in": "path", "style": "label" });
    assert_eq!(sent("/a/{p}", label, json!(["", ""])), "argument `p` is empty, but it is part of the path");
}

#[test]
fn encodes_headers_and_cookies() {
    let described = one(
        "/x",
        json!([
            { "name": "X-List", "in": "header", "schema": { "type": "array" } },
            { "name": "Authorization", "in": "header" },
            { "name": "c", "in": "cookie" },
        ]),
    );
    let encoded = request(&described, &json!({ "X-List": [1, "b"], "c": "a; d=e" })).unwrap();
    assert_eq!(encoded.headers, [("X-List".to_owned(), "1,b".to_owned())]);
    assert_eq!(encoded.cookies, [("c".to_owned(), "a%3B%20d%3De".to_owned())]);
    for bad in ["a\r\nX-Admin: 1", "a\nb", "\u{0}", "ü"] {
        let error = request(&described, &json!({ "X-List": bad })).unwrap_err();
        assert_eq!(error, "argument `X-List` contains a character that no header allows", "{bad:?}");
    }
    // Headers that control how a request is parsed are never arguments.
    let contents = contents(&document(json!({ "/x": { "get": {
        "parameters": [{ "name": "Host", "in": "header" }, { "name": "content-length", "in": "header" }],
    } } })));
    assert_eq!(contents.operations[0].definition["inputSchema"]["properties"], json!({}));
    assert_eq!(contents.notes.len(), 2, "{:?}", contents.notes);
}

#[test]
fn encodes_bodies() {
    let body = |kind: &str, schema: Value, value: Value| {
        let operation =
            json!({ "requestBody": { "required": true, "content": { kind: { "schema": schema } } } });
        let contents = contents(&document(json!({ "/x": { "post": operation } })));
        let described = &contents.operations[0];
        assert_eq!(described.definition["inputSchema"]["required"], json!(["body"]));
        let (kind, bytes) = request(described, &json!({ "body": value })).unwrap().body.unwrap();
        (kind, String::from_utf8(bytes).unwrap())
    };
    let (kind, text) = body("application/vnd.x+json", json!({}), json!({ "a": [1.0] }));
    assert_eq!((kind.as_str(), text.as_str()), ("application/vnd.x+json", r#"{"a":[1.0]}"#));
    let (_, text) =
        body("application/x-www-form-urlencoded", json!({}), json!({ "a&b": "c d", "l": [1, 2], "n": null }));
    assert_eq!(text, "a%26b=c%20d&l=1&l=2");
    let (_, text) = body("text/plain", json!({}), json!("hello"));
    assert_eq!(text, "hello");
    let (_, text) = body("application/octet-stream", json!({}), json!("aGVsbG8="));
    assert_eq!(text, "hello");
    let schema = json!({ "properties": { "file": { "type": "string", "format": "binary" } } });
    let (kind, text) = body("multipart/form-data", schema, json!({ "file": "aGVsbG8=", "na\"me\r\n": "x" }));
    let boundary = kind.strip_prefix("multipart/form-data; boundary=").unwrap();
    let expected = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"file\"\r\n\
         Content-Type: application/octet-stream\r\n\r\nhello\r\n--{boundary}\r\n\
         Content-Disposition: form-data; name=\"na%22me%0D%0A\"\r\n\r\nx\r\n--{boundary}--\r\n"
    );
    assert_eq!(text, expected);
}

#[test]
fn translates_3_0_schemas_and_keeps_cycles() {
    let mut document = document(json!({ "/x": { "post": {
        "requestBody": { "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Node" } } } },
        "responses": { "200": { "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Node" } } } } },
    } } }));
    document["components"] = json!({ "schemas": { "Node": {
        "type": "object",
        "required": ["id", "next"],
        "properties": {
            "id": { "type": "integer", "readOnly": true },
            "next": { "$ref": "#/components/schemas/Node" },
            "size": { "type": "number", "nullable": true, "minimum": 0, "exclusiveMinimum": true, "example": 3 },
            "kind": { "nullable": true, "enum": ["a"], "type": "string", "x-mine": 1 },
            "other": { "nullable": true, "allOf": [{ "$ref": "#/components/schemas/Node" }] },
            "word": { "type": "string", "pattern": "(?=a)b" },
        },
    } } });
    let contents = contents(&document);
    assert_eq!(contents.notes, Vec::<String>::new());
    let definition = &contents.operations[0].definition;
    let node = &definition["inputSchema"]["$defs"]["Node"];
    assert_eq!(definition["inputSchema"]["properties"]["body"], json!({ "$ref": "#/$defs/Node" }));
    assert_eq!(node["required"], json!(["next"]));
    let properties = json!({
        "id": { "type": "integer", "readOnly": true },
        "next": { "$ref": "#/$defs/Node" },
        "size": { "type": ["number", "null"], "exclusiveMinimum": 0 },
        "kind": { "enum": ["a", null], "type": ["string", "null"] },
        "other": { "anyOf": [{ "allOf": [{ "$ref": "#/$defs/Node" }] }, { "type": "null" }] },
        "word": { "type": "string" },
    });
    assert_eq!(node["properties"], properties);
    let output = &definition["outputSchema"];
    assert_eq!((&output["$ref"], &output["type"]), (&json!("#/$defs/Node"), &json!("object")));
    assert_eq!(output["$defs"]["Node"]["required"], json!(["id", "next"]));
    let check = toolgate_policy::schema::check;
    assert!(check(output).is_ok() && check(&definition["inputSchema"]).is_ok());
}

#[test]
fn a_bad_operation_affects_no_other() {
    let contents = contents(&document(json!({
        "/good": { "get": { "operationId": "good" } },
        "/net": { "get": { "operationId": "net", "parameters": [{ "$ref": "https://evil.test/x#/y" }] } },
        "/none": { "get": { "operationId": "none", "parameters": [{ "$ref": "#/components/parameters/None" }] } },
        "/odd/{id}": { "get": { "operationId": "odd" } },
        "/up/../x": { "get": { "operationId": "up" } },
        "/circle": { "$ref": "#/paths/~1circle" },
        "/text": { "get": "text" },
        "/elsewhere": { "get": { "servers": [{ "url": "https://other.test" }] } },
    })));
    let names: Vec<_> =
        contents.operations.iter().map(|one| one.definition["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["good"]);
    insta::assert_snapshot!(contents.notes.join("\n"), @"
    `GET /net` is left out: it refers to `https://evil.test/x#/y`, which is outside of the document and is not fetched
    `GET /none` is left out: it refers to `#/components/parameters/None`, which is not in the document
    `GET /odd/{id}` is left out: its path contains `{id}`, which no parameter defines
    `GET /up/../x` is left out: its path contains `.` or `..`
    `/circle` is left out: its references form a cycle
    `GET /text` is left out: it is not an object
    `GET /elsewhere` is left out: it overrides `servers`; set `base_url` to use it anyway
    ");
}

#[test]
fn picks_unique_tool_names() {
    let named = |id: Option<&str>| id.map_or_else(|| json!({}), |id| json!({ "operationId": id }));
    let contents = contents(&document(json!({
        "/pets": { "get": named(Some("list pets!")), "post": named(None) },
        "/pets/{id}": { "get": { "operationId": "list_pets_", "parameters": [{ "name": "id", "in": "path" }] } },
    })));
    let names: Vec<_> =
        contents.operations.iter().map(|one| one.definition["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["list_pets_", "post_pets", "get_pets_id"]);
    assert_eq!(
        contents.notes,
        ["`GET /pets/{id}`: its name `list_pets_` is taken or too long; the tool is called `get_pets_id`"]
    );
    assert_eq!(contents.version, "7");
}

#[test]
fn resolves_the_base_url() {
    let base = |servers: Value, spec: &ApiSpec, origin: Option<&str>| {
        let document = json!({ "openapi": "3.1.0", "servers": servers });
        let origin = origin.map(|origin| Url::parse(origin).unwrap());
        match read_document(&document, spec, origin.as_ref()) {
            Ok(contents) => contents.base.to_string(),
            Err(error) => error.to_string(),
        }
    };
    let mut spec = spec();
    let fetched = Some("https://api.test/openapi.json");
    assert_eq!(base(json!([{ "url": "https://a.test/x" }]), &spec, None), "https://a.test/x");
    assert_eq!(base(json!([{ "url": "/v2" }]), &spec, fetched), "https://api.test/v2");
    assert_eq!(base(json!([]), &spec, fetched), "https://api.test/");
    assert_eq!(base(json!([]), &spec, None), "it has no base URL; set `base_url`");
    assert!(
        base(json!([{ "url": "https://evil.test" }]), &spec, fetched)
            .contains("fetched from https://api.test")
    );
    assert!(
        base(json!([{ "url": "//evil.test" }]), &spec, fetched).contains("fetched from https://api.test")
    );
    for bad in ["/v2", "ftp://a.test", "https://u:p@a.test", "https://a.test/?x=1", "https://a.test/{x"] {
        assert!(base(json!([{ "url": bad }]), &spec, None).contains("set `base_url`"), "{bad}");
    }
    let variables = json!({ "where": { "default": "eu", "enum": ["eu", "us"] } });
    let server = json!([{ "url": "https://{where}.a.test", "variables": variables }]);
    assert_eq!(base(server.clone(), &spec, None), "https://eu.a.test/");
    spec.variables.insert("where".to_owned(), "us".to_owned());
    assert_eq!(base(server.clone(), &spec, None), "https://us.a.test/");
    spec.variables.insert("where".to_owned(), "evil.test/".to_owned());
    assert!(base(server, &spec, None).contains("set it in `variables`"));
    spec.base_url = Some(ConfigString::plain("http://b.test/api"));
    assert_eq!(base(json!([{ "url": "https://evil.test" }]), &spec, fetched), "http://b.test/api");
}

#[test]
fn notes_unencrypted_credentials() {
    let notes = |address: &str, networks: &[&str]| {
        let mut spec = spec();
        spec.headers.insert("X-Team".to_owned(), ConfigString::hidden("secret"));
        spec.allow_networks = networks.iter().map(|network| network.parse().unwrap()).collect();
        let document = json!({ "openapi": "3.1.0", "servers": [{ "url": address }] });
        read_document(&document, &spec, None).unwrap().notes.len()
    };
    assert_eq!(notes("http://a.test", &[]), 1);
    assert_eq!((notes("https://a.test", &[]), notes("http://a.test", &["10.0.0.0/8"])), (0, 0));
}

#[test]
fn rejects_other_documents() {
    let error = |document: Value| read_document(&document, &spec(), None).unwrap_err().to_string();
    assert_eq!(error(json!([])), "it is not an OpenAPI 3.0 or 3.1 document");
    assert_eq!(error(json!({ "swagger": "2.0" })), "OpenAPI 2.0 is not supported (supported: 3.0, 3.1)");
    assert_eq!(error(json!({ "openapi": "4.0.0" })), "OpenAPI 4.0.0 is not supported (supported: 3.0, 3.1)");
    let many: Map<String, Value> = (0..6_000).map(|at| (format!("/p{at}"), json!({ "get": {} }))).collect();
    assert!(error(document(Value::Object(many))).starts_with("it has more than 5000 operations"));
}

#[test]
fn exploding_schemas_are_bounded() {
    let mut schemas = Map::new();
    for level in 0..30 {
        let below = json!({ "$ref": format!("#/components/schemas/S{}", level + 1) });
        schemas.insert(format!("S{level}"), json!({ "allOf": [below.clone(), below] }));
    }
    schemas.insert("S30".to_owned(), json!({ "type": "string" }));
    let response =
        json!({ "content": { "application/json": { "schema": { "$ref": "#/components/schemas/S0" } } } });
    let mut document =
        document(json!({ "/x": { "get": { "operationId": "x", "responses": { "200": response } } } }));
    document["components"] = json!({ "schemas": schemas });
    let contents = contents(&document);
    assert!(contents.operations[0].definition.get("outputSchema").is_none());
    assert!(contents.notes[0].starts_with("`GET /x`: its result is not checked: "), "{:?}", contents.notes);
}

#[test]
fn no_argument_replaces_a_credential() {
    let mut spec = spec();
    spec.auth.insert("k".to_owned(), ConfigString::hidden("secret"));
    spec.headers.insert("X-Team".to_owned(), ConfigString::hidden("secret"));
    let object = json!({ "type": "object", "properties": { "key": {}, "a": {} } });
    let mut document =
        document(json!({ "/x": { "get": { "operationId": "x", "security": [{}, { "k": [] }], "parameters": [
        { "name": "key", "in": "query" },
        { "name": "x-team", "in": "header" },
        { "name": "o", "in": "query", "schema": object },
    ] } } }));
    document["components"] =
        json!({ "securitySchemes": { "k": { "type": "apiKey", "in": "query", "name": "key" } } });
    let contents = read_document(&document, &spec, None).unwrap();
    assert_eq!(contents.notes, Vec::<String>::new());
    let described = &contents.operations[0];
    let properties = described.definition["inputSchema"]["properties"].as_object().unwrap();
    assert_eq!(properties.keys().collect::<Vec<_>>(), ["o"]);
    assert!(request(described, &json!({ "o": { "a": 1 } })).is_ok());
    let error = request(described, &json!({ "o": { "key": "mine" } })).unwrap_err();
    assert_eq!(error, "argument `o` contains `key`, which the document does not define");
    assert!(!format!("{described:?}").contains("secret"));
}

/// Any JSON value.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[./\\\\%2eE?#&=;:@\r\n\u{0}]{0,8}".prop_map(Value::from),
        Just(Value::from("//evil.test/")),
        Just(Value::from("http://evil.test")),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((any::<String>(), inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// For all arguments, the request goes to the documented host and path, and contains no other names.
    #[test]
    fn no_argument_changes_the_target(
        values in proptest::collection::vec(any_value(), 9),
        style in prop::sample::select(vec!["simple", "label", "matrix"]),
        explode in any::<bool>(),
    ) {
        let query = |name: &str, style: &str, explode: bool| json!({
            "name": name, "in": "query", "style": style, "explode": explode,
            "schema": { "properties": { "a": {}, "b": {} } },
        });
        let described = one("/x/{p}/y{q}z/w", json!([
            { "name": "p", "in": "path", "style": style, "explode": explode },
            { "name": "q", "in": "path" },
            query("f", "form", true), query("g", "form", false), query("s", "spaceDelimited", false),
            query("d", "deepObject", true),
            { "name": "j", "in": "query", "content": { "application/json": {} } },
            { "name": "X-H", "in": "header", "explode": explode },
            { "name": "c", "in": "cookie" },
        ]));
        let names = ["p", "q", "f", "g", "s", "d", "j", "X-H", "c"];
        let arguments: Map<String, Value> =
            names.iter().map(ToString::to_string).zip(values).collect();
        if let Ok(encoded) = request(&described, &Value::Object(arguments)) {
            prop_assert_eq!(encoded.url.origin(), Url::parse("https://api.test").unwrap().origin());
            prop_assert_eq!(encoded.url.username(), "");
            prop_assert_eq!(encoded.url.fragment(), None);
            let segments: Vec<_> = encoded.url.path_segments().unwrap().collect();
            prop_assert_eq!(segments.len(), 5);
            prop_assert_eq!((segments[0], segments[1], segments[4]), ("v1", "x", "w"));
            let allowed: BTreeSet<&str> = ["f", "a", "b", "g", "s", "j"].into();
            for (name, _) in encoded.url.query_pairs() {
                prop_assert!(allowed.contains(&*name) || name == "d" || name.starts_with("d["), "{}", name);
            }
            for (name, value) in &encoded.headers {
                prop_assert_eq!(name, "X-H");
                prop_assert!(!value.chars().any(|c| c.is_control() && c != '\t'));
            }
            for (name, value) in &encoded.cookies {
                prop_assert_eq!(name, "c");
                prop_assert!(value.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';'));
            }
        }
    }

    /// For all documents, reading ends, and every resulting tool has a schema.
    #[test]
    fn any_document_can_be_read(value in any_value(), other in any_value(), key in "[a-zA-Z$]{1,12}") {
        let mut document = document(json!({
            "/x/{a}": { "get": { "operationId": value, "parameters": [other, { "in": "path", "name": "a", "schema": value }] },
                        "parameters": value },
            "/y": { "post": { "requestBody": { "content": { "application/json": { "schema": { key: other } } } },
                              "responses": other, "security": value } },
        }));
        document["components"] = json!({ "schemas": other, "securitySchemes": value });
        let contents = contents(&document);
        for described in contents.operations {
            prop_assert!(described.definition["inputSchema"]["properties"].is_object());
        }
    }
}
