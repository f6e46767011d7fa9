//! Every key documented in the schemas is read, under each of its names.
//!
//! `fixtures/every-key` sets keys to values other than their defaults. If a key can be removed without any effect,
//! nothing reads it. For a key that the fixture does not set, a value is made up from its schema. Values
//! such as files and names cannot be made up, so the fixture must set their keys.

use std::path::Path;

use serde_json::{Map, Value as Json, json};
use toolgate_config::{SchemaKind, load, schema};

use super::{environment, fixtures, project};

/// Files with a schema. The project file is written in the JSON subset of YAML.
const FILES: [(&str, SchemaKind); 3] = [
    ("toolgate.yaml", SchemaKind::Project),
    ("tools/tools.json", SchemaKind::Tools),
    ("mcp.json", SchemaKind::Mcp),
];
const BESIDE: [&str; 10] = [
    "api.yaml",
    "project.env",
    "program.env",
    "rules/rules.cedar",
    "tools/script.py",
    "tls/ca.pem",
    "tls/cert.pem",
    "tls/key.pem",
    "tls/crl.pem",
    "tls/keys.json",
];

/// A key and the path to it: names of keys, `[]` for entries of a list, `*` for entries of a map.
struct DocumentedKey {
    path: Vec<String>,
    name: String,
    is_alias: bool,
    schema: Json,
}

/// Collects every key of a schema.
fn collect_keys(schema: &Json, root: &Json, path: &[String], found: &mut Vec<DocumentedKey>) {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
        return collect_keys(&root["$defs"][name], root, path, found);
    }
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        // Used by editors only.
        if name == "$schema" {
            continue;
        }
        // Only the first name of a key has a description.
        let is_alias = inner.get("description").is_none();
        found.push(DocumentedKey {
            path: path.to_vec(),
            name: name.clone(),
            is_alias,
            schema: inner.clone(),
        });
        if !is_alias {
            collect_keys(inner, root, &[path, std::slice::from_ref(name)].concat(), found);
        }
    }
    for inner in schema["anyOf"].as_array().into_iter().flatten() {
        collect_keys(inner, root, path, found);
    }
    for (step, inner) in [("[]", &schema["items"]), ("*", &schema["additionalProperties"])] {
        if inner.is_object() {
            collect_keys(inner, root, &[path, &[step.to_owned()]].concat(), found);
        }
    }
}

/// Makes up a value that is not the default. Returns `None` if the schema does not say enough.
fn sample_value(schema: &Json) -> Option<Json> {
    let default = &schema["default"];
    let listed = schema["enum"].as_array().or(schema["examples"].as_array());
    if let Some(values) = listed {
        return values.iter().find(|value| *value != default).cloned();
    }
    if schema.get("pattern").is_some() || schema.get("format").is_some() {
        return None;
    }
    let kind = if schema["type"].is_array() { &schema["type"][0] } else { &schema["type"] };
    match kind.as_str()? {
        "boolean" => Some((default != true).into()),
        "integer" => Some((default.as_u64().or(schema["minimum"].as_u64()).unwrap_or(0) + 1).into()),
        "number" => Some(0.25.into()),
        "string" => Some("sample".into()),
        "array" => Some(vec![sample_value(&schema["items"])?].into()),
        _ => None,
    }
}

/// Returns JSON pointers to the maps that a path matches.
fn find_maps(json: &Json, path: &[String], at: String) -> Vec<String> {
    let Some((step, rest)) = path.split_first() else { return vec![at] };
    match (step.as_str(), json) {
        ("[]", Json::Array(items)) => {
            let inner = |(index, item)| find_maps(item, rest, format!("{at}/{index}"));
            items.iter().enumerate().flat_map(inner).collect()
        }
        ("*", Json::Object(map)) => {
            map.iter().flat_map(|(key, value)| find_maps(value, rest, format!("{at}/{key}"))).collect()
        }
        (key, Json::Object(map)) => {
            map.get(key).map(|value| find_maps(value, rest, format!("{at}/{key}"))).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

/// A copy of the fixture, in which one file after the other is changed.
struct Fixture {
    folder: tempfile::TempDir,
    texts: Vec<Json>,
}

impl Fixture {
    fn new() -> Self {
        let text = |name: &str| fs_err::read_to_string(fixtures("every-key").join(name)).unwrap();
        let names = FILES.iter().map(|(name, _)| *name).chain(BESIDE);
        let files: Vec<(&str, String)> = names.map(|name| (name, text(name))).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let texts = FILES.iter().map(|(name, _)| serde_json::from_str(&text(name)).unwrap()).collect();
        Self { folder: project(&files), texts }
    }

    /// Loads the fixture with one map changed. Returns `None` if it is rejected.
    fn with(&self, file: usize, map: &str, change: impl FnOnce(&mut Map<String, Json>)) -> Option<Json> {
        let mut text = self.texts[file].clone();
        change(text.pointer_mut(map).and_then(Json::as_object_mut).unwrap());
        let path = self.folder.path().join(FILES[file].0);
        fs_err::write(&path, text.to_string()).unwrap();
        let config = self.load();
        fs_err::write(&path, self.texts[file].to_string()).unwrap();
        config
    }

    fn load(&self) -> Option<Json> {
        let config = load(self.folder.path(), None, &environment(&[])).config?;
        let mut json = serde_json::to_value(config).unwrap();
        json.as_object_mut().unwrap().remove("origins");
        Some(json)
    }
}

/// The key of the fixture that a key is used in place of, and a value for it.
fn replaced_key(path: &[String], name: &str) -> Option<(&'static str, Json)> {
    match (path, name) {
        (_, "inline") => Some(("file", "Be kind.".into())),
        ([section], "key") if section == "credentials" => Some(("key_file", "0123".into())),
        ([section], "key_command") if section == "credentials" => {
            Some(("key_file", serde_json::json!(["true"])))
        }
        _ => None,
    }
}

#[test]
fn every_documented_key_is_read() {
    let fixture = Fixture::new();
    let base = fixture.load().expect("the fixture is good");
    let mut wrong = Vec::new();
    for (file, (file_name, of)) in FILES.into_iter().enumerate() {
        let schema = schema(of);
        let mut keys = Vec::new();
        collect_keys(&schema, &schema, &[], &mut keys);
        keys.retain(|key| !is_of_cluster(key));
        for DocumentedKey { path, name, is_alias, schema } in &keys {
            let maps = find_maps(&fixture.texts[file], path, String::new());
            let holds =
                |map: &&String, name: &String| fixture.texts[file].pointer(map).unwrap().get(name).is_some();
            let is_set = maps.iter().any(|map| holds(&map, name));
            let read = if *is_alias {
                // An alias has the same meaning.
                let first_names = keys.iter().filter(|key| key.path == *path && !key.is_alias);
                first_names.into_iter().any(|first| {
                    let rename = |map: &mut Map<String, Json>| {
                        let value = map.remove(&first.name).unwrap();
                        map.insert(name.clone(), value);
                    };
                    let map = maps.iter().find(|map| holds(map, &first.name));
                    map.is_some_and(|map| fixture.with(file, map, rename).as_ref() == Some(&base))
                })
            } else if let Some(value) =
                sample_value(schema).filter(|_| !is_set && replaced_key(path, name).is_none())
            {
                maps.iter().any(|map| {
                    let add = |keys: &mut Map<String, Json>| drop(keys.insert(name.clone(), value.clone()));
                    fixture.with(file, map, add).is_some_and(|changed| changed != base)
                })
            } else {
                // There is only one kind of tool, so the test can only check that others are rejected.
                let change = |map: &mut Map<String, Json>| match (file_name, name.as_str()) {
                    ("tools/tools.json", "type") => {
                        map.insert(name.clone(), "other".into());
                    }
                    _ => match replaced_key(path, name) {
                        Some((other, value)) => {
                            map.remove(other);
                            map.insert(name.clone(), value);
                        }
                        None => drop(map.remove(name)),
                    },
                };
                let replaced = replaced_key(path, name);
                let replaces = replaced.is_some();
                let held = replaced.map_or_else(|| name.clone(), |(other, _)| other.to_owned());
                let mut holding = maps.iter().filter(|map| holds(map, &held)).peekable();
                holding.peek().is_some()
                    && holding.any(|map| {
                        let changed = fixture.with(file, map, change);
                        changed.as_ref() != Some(&base) && (changed.is_some() || !replaces)
                    })
            };
            if !read {
                wrong.push(format!(
                    "{file_name}: {}{name}",
                    path.iter().map(|step| format!("{step}.")).collect::<String>()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "documented, and read by nothing (or not in the fixture): {wrong:#?}");
}

/// True for `cluster` and its keys. A cluster rejects much of the fixture, so they have a project of their own.
fn is_of_cluster(key: &DocumentedKey) -> bool {
    key.path.first().unwrap_or(&key.name) == "cluster"
}

#[test]
fn every_key_of_a_cluster_is_read() {
    let cluster = json!({
        "database": "postgres://us@db.example.com/tools", "secret": "0123456789abcdef0123456789abcdef",
        "name": "first", "ca": "ca.pem", "stale_keys": "9m",
    });
    let loaded = |cluster: &Json| {
        let text = json!({ "cluster": cluster }).to_string();
        let folder = project(&[("toolgate.yaml", &text), ("ca.pem", "")]);
        let config = load(folder.path(), None, &environment(&[])).config?;
        let mut json = serde_json::to_value(config.cluster).unwrap();
        // Each project has a folder of its own.
        if let Some(ca) = json.get_mut("ca") {
            *ca = "ca.pem".into();
        }
        Some(json)
    };
    let base = loaded(&cluster);
    assert!(base.as_ref().is_some_and(|base| base["name"] == "first"), "{base:?}");
    let schema = schema(SchemaKind::Project);
    let mut keys = Vec::new();
    collect_keys(&schema, &schema, &[], &mut keys);
    let names: Vec<_> = keys.iter().filter(|key| key.path == ["cluster"]).map(|key| &key.name).collect();
    assert_eq!(names.len(), cluster.as_object().unwrap().len(), "{names:?}");
    for name in names {
        let mut changed = cluster.clone();
        assert!(changed.as_object_mut().unwrap().remove(name).is_some(), "{name} is in the project");
        assert_ne!(loaded(&changed), base, "{name}");
    }
}

/// The schemas for editors accept the fixture.
#[test]
fn schemas_accept_the_fixture() {
    for (name, of) in FILES {
        let text = fs_err::read_to_string(Path::new(&fixtures("every-key")).join(name)).unwrap();
        let validator = jsonschema::validator_for(&schema(of)).unwrap();
        let json: Json = serde_json::from_str(&text).unwrap();
        let wrong: Vec<_> = validator.iter_errors(&json).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "{name}: {wrong:?}");
    }
}
