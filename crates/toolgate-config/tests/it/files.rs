//! Whole files: missing, unreadable, behind a symbolic link, or large.

use std::os::unix::fs::symlink;

use toolgate_config::load;

use super::{environment, loaded, project};

/// The registry itself may be behind a symbolic link.
#[test]
fn project_behind_a_symlink() {
    let tools = r#"{"tools": [{"name": "t", "description": "d", "input_schema": {}}]}"#;
    let folder = project(&[("real/tools/tools.json", tools), ("real/tools/t.py", "")]);
    symlink("real", folder.path().join("linked")).unwrap();
    let loaded = load(&folder.path().join("linked"), None, &environment(&[]));
    assert_eq!(super::messages(&loaded), "");
}

#[test]
fn reports_unreadable_files() {
    let folder = project(&[("toolgate.yaml", ""), ("folder.yaml/x", "")]);
    let load = |name: &str| super::messages(&load(folder.path(), Some(name.as_ref()), &environment(&[])));
    assert_eq!(
        load("none.yaml"),
        "error the file `none.yaml` does not exist (paths start at the project folder, which `-C` names)"
    );
    assert_eq!(load("folder.yaml"), "error `folder.yaml` cannot be read: it is a folder");
    fs_err::write(folder.path().join("latin.yaml"), b"a: caf\xe9").unwrap();
    assert_eq!(
        load("latin.yaml"),
        "error latin.yaml:1:7 the file is not UTF-8 from here on (save it as UTF-8)"
    );
    let large = fs_err::File::create(folder.path().join("large.yaml")).unwrap();
    large.set_len((64 << 20) + 1).unwrap();
    assert_eq!(load("large.yaml"), "error `large.yaml` cannot be read: it is larger than 64 MiB");
    // A device has no size and no end.
    assert_eq!(load("/dev/zero"), "error `/dev/zero` cannot be read: it is not a regular file");
}

#[test]
fn reports_missing_project() {
    let folder = project(&[]);
    let messages = super::messages(&load(folder.path(), None, &environment(&[])));
    assert!(messages.contains("there is no project in") && messages.contains("toolgate init"), "{messages}");
    let messages = super::messages(&load(&folder.path().join("none"), None, &environment(&[])));
    assert!(messages.contains("does not exist"), "{messages}");
}

/// A large registry loads fast: no rule compares each tool with every other.
#[test]
fn loads_ten_thousand_tools_fast() {
    let tool = |number: usize| {
        format!(
            r#"{{"name":"tool-{number}","description":"Tool number {number}.","input_schema":{{"type":"object","properties":{{"a":{{"type":"string"}}}}}},"script_path":"t.py","tags":["x"]}}"#
        )
    };
    let tools: Vec<_> = (0..10_000).map(tool).collect();
    let settings: String =
        (0..10_000).map(|number| format!("{{name: tool-{number}, timeout: 5s}}, ")).collect();
    let text = format!("{{\"tools\":[{}]}}", tools.join(","));
    let project = format!("registries: {{tools: tools.json}}\ntoolbox: {{tools: [{settings}]}}");
    let loaded = loaded(&[("toolgate.yaml", &project), ("tools.json", &text), ("t.py", "")], &[]);
    assert_eq!(loaded.config.unwrap().tools.len(), 10_000);
}
