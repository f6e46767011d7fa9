//! `callers` in the project file: callers and their permissions.

use super::{config, loaded, messages};

fn callers(entries: &str) -> toolgate_config::LoadOutcome {
    loaded(&[("toolgate.yaml", &format!("callers:\n{entries}"))], &[])
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
