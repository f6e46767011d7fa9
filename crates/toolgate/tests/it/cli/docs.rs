//! The docs match the executable: examples, schemas, the reference page, the README.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::support::program::Program;

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(super) fn read(name: &str) -> String {
    fs_err::read_to_string(root().join(name)).expect("the file is part of the repository")
}

/// Checks that a file equals the output of a command.
fn fresh(name: &str, arguments: &str) {
    let printed = Program::new(&[]).run(arguments).stdout;
    assert!(
        read(name) == printed,
        "{name} is stale\nhint: cargo run -- {arguments} > {name}\n(cargo xtask test runs this test again)"
    );
}

#[test]
fn the_reference_pages_are_current() {
    fresh("docs/configuration.md", "schema --reference");
    for page in ["commands", "rest", "permissions", "metrics", "records", "errors"] {
        fresh(&format!("docs/reference/{page}.md"), &format!("schema --reference={page}"));
    }
}

#[test]
fn the_schemas_are_current() {
    fresh("docs/schema/toolgate.schema.json", "schema project");
    fresh("docs/schema/tools.schema.json", "schema tools");
    fresh("docs/schema/mcp.schema.json", "schema mcp");
    fresh("docs/schema/agent.schema.json", "schema agent");
}

#[test]
fn every_example_is_valid() {
    let mut count = 0;
    for entry in fs_err::read_dir(root().join("examples")).unwrap() {
        let folder = entry.unwrap().path();
        if !folder.is_dir() {
            continue;
        }
        let run = Program::new(&[]).run_list(&["-C", folder.to_str().unwrap(), "check"]);
        assert_eq!(run.code, 0, "{}\n{run}", folder.display());
        count += 1;
    }
    assert!(count > 0, "there are no examples");
}

#[test]
fn the_example_matches_its_schema() {
    let schema: Json = serde_json::from_str(&read("docs/schema/tools.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let mut tools: Json = serde_json::from_str(&read("examples/quickstart/tools/tools.json")).unwrap();
    if let Err(error) = validator.validate(&tools) {
        panic!("{error} at {}", error.instance_path());
    }
    tools["tools"][0]["descriptoin"] = "a typo".into();
    assert!(!validator.is_valid(&tools), "the schema lets an unknown key pass");
}

/// Every message in docs/troubleshooting.md exists. `…` stands for the parts that differ.
#[test]
fn the_messages_to_look_for_exist() {
    let mut sources = String::new();
    let mut folders = vec![root().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("tests") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources += &fs_err::read_to_string(path).unwrap();
            }
        }
    }
    // Long strings are continued on the next line.
    let sources = regex::Regex::new(r"\\\n\s*").unwrap().replace_all(&sources, "").into_owned();
    let page = read("docs/troubleshooting.md");
    let messages: Vec<_> =
        page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |")).collect();
    assert!(messages.len() > 15, "{messages:?}");
    for (message, _) in messages {
        for part in message.split('…').map(str::trim) {
            assert!(sources.contains(part), "no message has `{part}`");
        }
    }
}
