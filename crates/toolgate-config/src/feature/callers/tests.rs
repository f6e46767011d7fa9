//! Callers: permissions and credentials.

use toolgate_types::KeyHash;

use crate::LoadOutcome;
use crate::test_support::{config, loaded, messages};

const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn callers(entries: &str) -> LoadOutcome {
    callers_with(entries, &[])
}

fn callers_with(entries: &str, variables: &[(&str, &str)]) -> LoadOutcome {
    loaded(&[("toolgate.yaml", &format!("callers:\n{entries}"))], variables)
}

#[test]
fn callers_have_configured_permissions() {
    let loaded = callers(
        "  - {id: owner, permissions: [\"*:*\"]}\n  - {id: ci/nightly, description: The build, permissions: [files:*, \"*:read\"]}\n  - id: nobody\n",
    );
    let config = config(&loaded);
    insta::assert_snapshot!(format!("{} {}", config["callers"], config["caller_descriptions"]), @r#"[{"id":"owner","permissions":["*:*"]},{"id":"ci/nightly","permissions":["files:*","*:read"]},{"id":"nobody","permissions":[]}] {"ci/nightly":"The build"}"#);
    assert_eq!(messages(&loaded), "");
    assert_eq!(config["origins"]["callers.ci/nightly.permissions"], "toolgate.yaml:3:59");
}

/// No `owner` is added: the command line adds it.
#[test]
fn project_without_callers_has_none() {
    let loaded = loaded(&[("toolgate.yaml", "name: x\n")], &[]);
    assert!(loaded.config.unwrap().callers.is_empty());
}

#[test]
fn reports_every_mistake_with_location() {
    let entries = "
  - {id: ann, permissions: [files, \"car*:read\", \"a:b:c\", files:read]}
  - {id: a b}
  - {permissions: []}
  - {id: ann}
  - {id: bob, permissions: files:read}
  - {id: eve, permisions: [files:read]}
  - someone
";
    insta::assert_snapshot!(messages(&callers(entries)), @"
    error toolgate.yaml:3:29 `files` is not a permission pattern in caller (a permission is given as `resource:action`, each a word or `*`, such as `cards:*`)
    error toolgate.yaml:3:36 `car*:read` is not a permission pattern in caller (a permission is given as `resource:action`, each a word or `*`, such as `cards:*`)
    error toolgate.yaml:3:49 `a:b:c` is not a permission pattern in caller (a permission is given as `resource:action`, each a word or `*`, such as `cards:*`)
    error toolgate.yaml:4:10 `a b` is not a caller's id in caller (the id of a caller has 1 to 128 letters, digits and `. _ - @ : /`)
    error toolgate.yaml:5:6 missing key `id` in caller (add `id`: a caller's id)
    error toolgate.yaml:6:10 caller `ann` is named twice (the other is at toolgate.yaml:3:10; keep one)
    error toolgate.yaml:7:28 a string does not fit `permissions` in caller (a list of permission patterns is expected)
    error toolgate.yaml:8:15 unknown key `permisions` in caller (did you mean `permissions`?)
    error toolgate.yaml:9:5 a string does not fit `callers` in project file (a map of keys and values is expected)
    ");
}

#[test]
fn stores_keys_as_hashes() {
    let entries = format!("  - {{id: ci, api_key: \"${{CI_KEY}}\"}}\n  - {{id: ann, key_sha256: {HASH}}}\n");
    let loaded = callers_with(&entries, &[("CI_KEY", "the-key-of-ci")]);
    assert_eq!(messages(&loaded), "");
    let config = loaded.config.as_ref().unwrap();
    let keys: Vec<_> = config.caller_keys.iter().map(|(id, key)| (id.as_str(), *key)).collect();
    assert_eq!(keys, [("ci", KeyHash::of("the-key-of-ci")), ("ann", KeyHash::of("abc"))]);
    let shown = format!("{config:?}{}", serde_json::to_string(config).unwrap());
    assert!(!shown.contains("the-key-of-ci") && !shown.contains(HASH), "{shown}");
    assert!(config.secrets.iter().any(|secret| secret.expose() == "the-key-of-ci"), "it is masked elsewhere");
}

/// Keys are hidden in every message and everywhere in the file.
#[test]
fn reports_mistakes_in_keys() {
    let entries = "
  - {id: a, api_key: changeme}
  - {id: b, api_key: the-blue-heron}
  - {id: c, api_key: the-blue-heron}
  - {id: d, key_sha256: the-red-heron}
  - {id: e, api_key: [the-grey-heron]}
  - {id: f, key_sha256: 4813494d137e1631bba301d5acab6e7bb7aa74ce1185d456565ef51d737677b2}
";
    let loaded = callers(entries);
    insta::assert_snapshot!(messages(&loaded), @"
    error toolgate.yaml:3:22 the key of caller `a` is a well-known weak key (generate one: `openssl rand -hex 32`)
    error toolgate.yaml:5:22 caller `c` has the key of caller `b` (a key is for one caller; give each its own)
    error toolgate.yaml:6:25 `***` is not the SHA-256 of a key in caller (the SHA-256 of a key has 64 hexadecimal digits; `printf %s KEY | sha256sum` prints it)
    error toolgate.yaml:7:22 a list does not fit `api_key` in caller (a string is expected)
    error toolgate.yaml:8:25 the key of caller `f` is a well-known weak key (generate one: `openssl rand -hex 32`)
    ");
    let report = loaded.report.render();
    assert!(!report.contains("heron") && !report.contains("changeme"), "{report}");
}
