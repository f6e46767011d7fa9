//! Contents in place of files: the resulting project, and the registries that commands may change.

use std::collections::BTreeMap;
use std::sync::Arc;

use toolgate_config::{LoadOutcome, RegistryPaths, load_with_overlay};

use crate::{environment, project};

const TOOL: &str = r#"{"tools": [{"name": "a", "description": "x", "input_schema": {"type": "object"}}]}"#;

fn loaded(files: &[(&str, &str)], overlay: &[(&str, &str)]) -> (LoadOutcome, tempfile::TempDir) {
    let folder = project(files);
    let overlay: BTreeMap<_, Arc<str>> =
        overlay.iter().map(|(name, text)| (folder.path().join(name), (*text).into())).collect();
    (load_with_overlay(folder.path(), None, &environment(&[]), overlay), folder)
}

#[test]
fn overlay_replaces_file() {
    let yaml = ("toolgate.yaml", "registries: { tools: tools.json, mcp: mcp.json }\n");
    let files = [yaml, ("tools.json", "{\"tools\": ["), ("mcp.json", "{\"servers\": {}}")];
    let (good, folder) = loaded(&files, &[("tools.json", TOOL)]);
    let config = good.config.expect("the broken file is not read");
    assert_eq!(config.tools.len(), 1);
    let registries = RegistryPaths {
        tools: Some(folder.path().join("tools.json")),
        servers: Some(folder.path().join("mcp.json")),
    };
    assert_eq!(config.registries, registries);
    // A file that does not exist yet, and locations in its contents.
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
fn lists_changeable_registries() {
    let names = |files: &[(&str, &str)]| {
        let (loaded, folder) = loaded(files, &[]);
        let RegistryPaths { tools, servers } = loaded.config.expect("it is good").registries;
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
    // Files in another program's format are left to that program.
    let codex = [
        ("toolgate.yaml", "registries: { mcp: config.toml }\n"),
        ("config.toml", "[mcp_servers.a]\ncommand = \"a\"\n"),
    ];
    assert_eq!(names(&codex), [None, None]);
}
