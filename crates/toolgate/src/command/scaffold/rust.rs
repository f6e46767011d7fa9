//! `toolgate tools new --lang rust`: creates a crate with one tool, its test, and its MCP server.
//!
//! The template is a crate of this workspace, so CI compiles it. Invariant: existing files are not overwritten, and an
//! incomplete crate is removed.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use serde_json::{Map, Value as Json, json};
use toolgate_config::load;
use toolgate_store::document::{EntryAction, EntryKind};
use toolgate_types::contract;

use crate::cli::{NewToolArgs, ProjectArgs};
use crate::command::change;
use crate::output::{Output, display_path, error_with_hint, toolgate_command};
use crate::owner_key;
use crate::{DONE, INVALID_CONFIG};

const FILES: [(&str, &str); 3] = [
    ("src/lib.rs", include_str!("../../../templates/say-hello/src/lib.rs")),
    ("src/main.rs", include_str!("../../../templates/say-hello/src/main.rs")),
    ("tests/tools.rs", include_str!("../../../templates/say-hello/tests/tools.rs")),
];
/// Description in the template, replaced by the given one.
const DESCRIPTION: &str =
    "Describe what say-hello does, when to use it and what it returns: models choose tools by this text.";

pub(super) fn run(args: &NewToolArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let name = args.name.as_str();
    if !contract::is_verb_noun(name) || !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        let hint = "tools in Rust follow the full contract: a verb and a noun in kebab-case, for example `create-card`";
        return Err(error_with_hint(format!("invalid tool name `{name}`"), hint));
    }
    // The description becomes a doc comment of one line.
    let line = |text: &str| {
        text.split(|c: char| c.is_whitespace() || c.is_control())
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    };
    let description = args.description.as_deref().map(line);
    if description.as_deref().is_some_and(|text| !contract::is_sufficient_description(text)) {
        let hint = "tools in Rust follow the full contract: at least 50 characters on what the tool does, when to use it and what it returns";
        return Err(error_with_hint("the description is too short", hint));
    }
    let sdk = dependency(args.sdk.as_deref())?;
    let loaded = load(&project.folder, project.file.as_deref(), &owner_key::environment());
    let Some(config) = loaded.config else {
        output.message(&loaded.report.render());
        output.next_step("run `toolgate check` to see the problems; nothing was written");
        return Ok(INVALID_CONFIG);
    };
    if config.registries.servers.is_none() {
        return Err(change::missing_registry(EntryKind::Server));
    }
    let below = config.registries.tools.as_deref().and_then(Path::parent).unwrap_or(&config.project);
    let folder = below.join(name);
    let shown = folder.strip_prefix(&config.project).map_or_else(|_| display_path(&folder), display_path);
    fs_err::create_dir_all(below)?;
    fs_err::create_dir(&folder).with_context(|| format!("{shown} was not written"))?;
    let code = write(&folder, name, description.as_deref(), &sdk).and_then(|()| {
        let act = EntryAction::Add(entry(&format!("{shown}/target/debug/{name}")));
        change::submit(EntryKind::Server, name.to_owned(), act, &args.change, project, output)
    });
    if !matches!(code, Ok(DONE)) {
        // Remove the crate of a tool that was not registered.
        let _ = fs_err::remove_dir_all(&folder);
        return code;
    }
    let toolgate = toolgate_command(&project.folder);
    let manifest = display_path(&project.folder.join(&shown).join("Cargo.toml"));
    output.message(&format!("wrote {shown}\n"));
    output.next_step(&format!(
        "run `cargo build --manifest-path {manifest}`, then try `{toolgate} tools call {name} text=hello`; edit {shown}/src/lib.rs, then run `cargo test --manifest-path {manifest}`"
    ));
    Ok(DONE)
}

/// Returns the dependency on the SDK for Cargo.toml. The SDK is not on crates.io, so its location must be given.
fn dependency(given: Option<&str>) -> anyhow::Result<String> {
    let Some(given) = given else {
        let hint = "pass `--sdk FOLDER` (a checkout of Toolgate) or `--sdk URL` (its git repository), or set `TOOLGATE_SDK`";
        return Err(error_with_hint("toolgate-sdk is not on crates.io: its location is needed", hint));
    };
    if given.contains("://") || given.starts_with("git@") {
        return Ok(format!("{{ git = {} }}", json!(given)));
    }
    let manifest = |folder: &Path| {
        let text = fs_err::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        text.lines().any(|line| line.trim() == "name = \"toolgate-sdk\"")
    };
    let folders = [PathBuf::from(given), Path::new(given).join("crates/toolgate-sdk")];
    let folder =
        folders.iter().find(|folder| manifest(folder)).and_then(|folder| fs_err::canonicalize(folder).ok());
    match folder.as_deref().and_then(Path::to_str) {
        Some(folder) => Ok(format!("{{ path = {} }}", json!(folder))),
        None => Err(anyhow!("there is no toolgate-sdk in `{given}`")),
    }
}

fn manifest(name: &str, sdk: &str) -> String {
    format!(
        r#"[package]
name = "{name}"
version = "0.1.0"
edition = "2024"
publish = false

[dependencies]
schemars = "1.2"
serde = {{ version = "1", features = ["derive"] }}
tokio = {{ version = "1", features = ["macros", "rt-multi-thread"] }}
toolgate-sdk = {sdk}

# Keeps the crate out of an enclosing workspace.
[workspace]
"#
    )
}

fn write(folder: &Path, name: &str, description: Option<&str>, sdk: &str) -> anyhow::Result<()> {
    fs_err::create_dir(folder.join("src"))?;
    fs_err::create_dir(folder.join("tests"))?;
    fs_err::write(folder.join("Cargo.toml"), manifest(name, sdk))?;
    fs_err::write(folder.join(".gitignore"), "/target\n")?;
    let ident = name.replace('-', "_");
    for (file, text) in FILES {
        let named = |text: &str| text.replace("say-hello", name).replace("say_hello", &ident);
        let text = match description {
            Some(description) => named(text).replace(&named(DESCRIPTION), description),
            None => named(text),
        };
        fs_err::write(folder.join(file), text)?;
    }
    Ok(())
}

/// Returns the server entry for the built binary.
fn entry(command: &str) -> Map<String, Json> {
    Map::from_iter([("command".to_owned(), json!(format!("./{command}")))])
}

#[test]
fn template_matches_generated_crate() {
    let text = FILES[0].1;
    assert!(text.contains(&format!("/// {DESCRIPTION}")));
    assert!(FILES.iter().all(|(_, text)| text.contains("say_hello") || text.contains("say-hello")));
    let own = include_str!("../../../templates/say-hello/Cargo.toml");
    let names = |manifest: &str| -> Vec<String> {
        let lines = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
        let name = |line: &str| line.split(['.', ' ']).next().unwrap_or_default().to_owned();
        lines.take_while(|line| !line.is_empty()).map(name).collect()
    };
    assert_eq!(names(own), names(&manifest("a-b", "{ path = \"x\" }")));
}
