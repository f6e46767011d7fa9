//! Texts in the place of files: what a project would be, and which registries commands may change.

use std::collections::BTreeMap;
use std::sync::Arc;

use toolgate_config::{Loaded, Registries, load_over};

use crate::{environment, project};

const TOOL: &str = r#"{"tools": [{"name": "a", "description": "x", "input_schema": {"type": "object"}}]}"#;

fn loaded(files: &[(&str, &str)], texts: &[(&str, &str)]) -> (Loaded, tempfile::TempDir) {
    let folder = project(files);
    let texts: BTreeMap<_, Arc<str>> =
        texts.iter().map(|(name, text)| (folder.path().join(name), (*text).into())).collect();
    (load_over(folder.path(), None, &environment(&[]), texts), folder)
}

#[test]
fn a_text_counts_more_than_the_file() {
    let yaml = ("toolgate.yaml", "registries: { tools: tools.json, mcp: mcp.json }\n");
    let files = [yaml, ("tools.json", "{\"tools\": ["), ("mcp.json", "{\"servers\": {}}")];
    let (good, folder) = loaded(&files, &[("tools.json", TOOL)]);
    let config = good.config.expect("the broken file is not read");
    assert_eq!(config.tools.len(), 1);
    let registries = Registries {
        tools: Some(folder.path().join("tools.json")),
        servers: Some(folder.path().join("mcp.json")),
    };
    assert_eq!(config.registries, registries);
    // A file that is not there yet, and places in a text.
    let (good, _folder) = loaded(&[yaml, ("mcp.json", "{\"servers\": {}}")], &[("tools.json", TOOL)]);
    assert!(good.config.is_some());
    let (bad, _folder) = loaded(&files, &[("tools.json", "{\n  \"tools\": 1\n}")]);
    assert!(
        bad.config.is_none() && bad.report.render().contains("tools.json:2:12"),
        "{}",
        bad.report.render()
    );
}

#[test]
fn registries_that_can_be_changed() {
    let names = |files: &[(&str, &str)]| {
        let (loaded, folder) = loaded(files, &[]);
        let Registries { tools, servers } = loaded.config.expect("it is good").registries;
        [tools, servers]
            .map(|path| path.map(|path| path.strip_prefix(folder.path()).unwrap().display().to_string()))
    };
    let some = |name: &str| Some(name.to_owned());
    let servers = "{\"servers\": {}}";
    assert_eq!(names(&[("toolgate.yaml", "name: x\n")]), [None, None]);
    assert_eq!(names(&[("mcp.json", servers)]), [some("tools.json"), some("mcp.json")]);
    assert_eq!(
        names(&[(".mcp.json", servers), ("tools/x.py", "")]),
        [some("tools/tools.json"), some(".mcp.json")]
    );
    // What another program keeps in its own form is for that program to change.
    let codex = [
        ("toolgate.yaml", "registries: { mcp: config.toml }\n"),
        ("config.toml", "[mcp_servers.a]\ncommand = \"a\"\n"),
    ];
    assert_eq!(names(&codex), [None, None]);
}
