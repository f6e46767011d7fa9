//! Every key that the schemas document is read by something, under each of its names.
//!
//! `fixtures/every-key` sets all of them to values that are not their defaults. A key that can be taken
//! away without a trace is documented and read by nothing.

use std::path::Path;

use serde_json::{Map, Value as Json};
use toolgate_config::{SchemaOf, load, schema};

use super::{environment, fixtures, project};

/// The files with a schema. The project file is written in the part of YAML that is JSON.
const FILES: [(&str, SchemaOf); 3] = [
    ("toolgate.yaml", SchemaOf::Project),
    ("tools/tools.json", SchemaOf::Tools),
    ("mcp.json", SchemaOf::Mcp),
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

/// A key with the way to it: names of keys, `[]` for the entries of a list, `*` for those of a map.
struct Documented {
    way: Vec<String>,
    name: String,
    is_alias: bool,
}

/// Every key of a schema.
fn documented(schema: &Json, root: &Json, way: &[String], found: &mut Vec<Documented>) {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
        return documented(&root["$defs"][name], root, way, found);
    }
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        // For editors, not for us.
        if name == "$schema" {
            continue;
        }
        // Only the first name of a key has its description.
        let is_alias = inner.get("description").is_none();
        found.push(Documented { way: way.to_vec(), name: name.clone(), is_alias });
        if !is_alias {
            documented(inner, root, &[way, std::slice::from_ref(name)].concat(), found);
        }
    }
    for inner in schema["anyOf"].as_array().into_iter().flatten() {
        documented(inner, root, way, found);
    }
    for (step, inner) in [("[]", &schema["items"]), ("*", &schema["additionalProperties"])] {
        if inner.is_object() {
            documented(inner, root, &[way, &[step.to_owned()]].concat(), found);
        }
    }
}

/// JSON pointers to the maps that a way leads to.
fn maps(json: &Json, way: &[String], at: String) -> Vec<String> {
    let Some((step, rest)) = way.split_first() else { return vec![at] };
    match (step.as_str(), json) {
        ("[]", Json::Array(items)) => {
            let inner = |(index, item)| maps(item, rest, format!("{at}/{index}"));
            items.iter().enumerate().flat_map(inner).collect()
        }
        ("*", Json::Object(map)) => {
            map.iter().flat_map(|(key, value)| maps(value, rest, format!("{at}/{key}"))).collect()
        }
        (key, Json::Object(map)) => {
            map.get(key).map(|value| maps(value, rest, format!("{at}/{key}"))).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

/// The fixture in a folder of its own, where one file after the other is changed.
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

    /// What comes of the fixture when one map in one of its files is changed. `None`: it is refused.
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

#[test]
fn every_documented_key_is_read() {
    let fixture = Fixture::new();
    let base = fixture.load().expect("the fixture is good");
    let mut wrong = Vec::new();
    for (file, (file_name, of)) in FILES.into_iter().enumerate() {
        let schema = schema(of);
        let mut keys = Vec::new();
        documented(&schema, &schema, &[], &mut keys);
        for Documented { way, name, is_alias } in &keys {
            let maps = maps(&fixture.texts[file], way, String::new());
            let holds =
                |map: &&String, name: &String| fixture.texts[file].pointer(map).unwrap().get(name).is_some();
            let read = if *is_alias {
                // Under its other name a value means the same.
                let first_names = keys.iter().filter(|key| key.way == *way && !key.is_alias);
                first_names.into_iter().any(|first| {
                    let rename = |map: &mut Map<String, Json>| {
                        let value = map.remove(&first.name).unwrap();
                        map.insert(name.clone(), value);
                    };
                    let map = maps.iter().find(|map| holds(map, &first.name));
                    map.is_some_and(|map| fixture.with(file, map, rename).as_ref() == Some(&base))
                })
            } else {
                // There is one kind of tool, so it can only be seen that no other is taken.
                let change = |map: &mut Map<String, Json>| match (file_name, name.as_str()) {
                    ("tools/tools.json", "type") => {
                        map.insert(name.clone(), "other".into());
                    }
                    // It stands in place of `file`, which the fixture has.
                    ("toolgate.yaml", "inline") => {
                        map.remove("file");
                        map.insert(name.clone(), "Be kind.".into());
                    }
                    _ => {
                        map.remove(name);
                    }
                };
                let replaces = name == "inline";
                let held = if replaces { "file".to_owned() } else { name.clone() };
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
                    way.iter().map(|step| format!("{step}.")).collect::<String>()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "documented, and read by nothing (or not in the fixture): {wrong:#?}");
}

/// The fixture is what its name says: a schema for editors finds nothing wrong with it.
#[test]
fn the_schemas_take_what_is_good() {
    for (name, of) in FILES {
        let text = fs_err::read_to_string(Path::new(&fixtures("every-key")).join(name)).unwrap();
        let validator = jsonschema::validator_for(&schema(of)).unwrap();
        let json: Json = serde_json::from_str(&text).unwrap();
        let wrong: Vec<_> = validator.iter_errors(&json).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "{name}: {wrong:?}");
    }
}
