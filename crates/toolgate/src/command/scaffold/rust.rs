//! `toolgate tools new --lang rust`: a crate with one tool, its test, and the server that it is.
//!
//! What is written is a crate of this workspace with another name, so that it compiles is a fact. Invariant:
//! nothing is written over, and what could not be finished is taken away again.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use serde_json::{Map, Value as Json, json};
use toolgate_config::{Environment, load};
use toolgate_store::document::{Act, Kind};
use toolgate_types::contract;

use crate::cli::{NewToolArgs, Project};
use crate::command::change;
use crate::output::{Output, hinted, shown_path, toolgate_in};
use crate::{DONE, REFUSED};

const FILES: [(&str, &str); 3] = [
    ("src/lib.rs", include_str!("../../../templates/say-hello/src/lib.rs")),
    ("src/main.rs", include_str!("../../../templates/say-hello/src/main.rs")),
    ("tests/tools.rs", include_str!("../../../templates/say-hello/tests/tools.rs")),
];
/// What the template says of itself.
const DESCRIPTION: &str =
    "What say-hello does, when to use it, and what it returns: models choose by this text.";

pub(super) fn run(args: &NewToolArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    let name = args.name.as_str();
    if !contract::is_verb_noun(name) || !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        let hint =
            "a tool in Rust keeps the full contract: a verb and a noun in kebab-case, such as `create-card`";
        return Err(hinted(format!("`{name}` is not a name for it"), hint));
    }
    // One line of a comment.
    let line = |text: &str| {
        text.split(|c: char| c.is_whitespace() || c.is_control())
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    };
    let description = args.description.as_deref().map(line);
    if description.as_deref().is_some_and(|text| !contract::is_description(text)) {
        let hint = "a tool in Rust keeps the full contract: at least 50 characters, which say what it does, when to use it and what it returns";
        return Err(hinted("the description is too short", hint));
    }
    let sdk = dependency(args.sdk.as_deref())?;
    let loaded = load(&project.folder, project.file.as_deref(), &Environment::of_process());
    let Some(config) = loaded.config else {
        output.message(&loaded.report.render());
        output.next("`toolgate check` shows what is wrong; nothing was written");
        return Ok(REFUSED);
    };
    if config.registries.servers.is_none() {
        return Err(change::no_file(Kind::Server));
    }
    let below = config.registries.tools.as_deref().and_then(Path::parent).unwrap_or(&config.project);
    let folder = below.join(name);
    let shown = folder.strip_prefix(&config.project).map_or_else(|_| shown_path(&folder), shown_path);
    fs_err::create_dir_all(below)?;
    fs_err::create_dir(&folder).with_context(|| format!("{shown} was not written"))?;
    let code = write(&folder, name, description.as_deref(), &sdk).and_then(|()| {
        let act = Act::Add(entry(&format!("{shown}/target/debug/{name}")));
        change::submit(Kind::Server, name.to_owned(), act, &args.change, project, output)
    });
    if !matches!(code, Ok(DONE)) {
        // Half of a tool helps nobody.
        let _ = fs_err::remove_dir_all(&folder);
        return code;
    }
    let toolgate = toolgate_in(&project.folder);
    let manifest = shown_path(&project.folder.join(&shown).join("Cargo.toml"));
    output.message(&format!("wrote {shown}\n"));
    output.next(&format!(
        "`cargo build --manifest-path {manifest}`, then `{toolgate} tools call {name} text=hello`; then change {shown}/src/lib.rs, and `cargo test --manifest-path {manifest}`"
    ));
    Ok(DONE)
}

/// Where the SDK is, as a line of a manifest. It is not on crates.io, and where a user has it nobody can guess.
fn dependency(given: Option<&str>) -> anyhow::Result<String> {
    let Some(given) = given else {
        let hint = "`--sdk FOLDER` (a checkout of Toolgate) or `--sdk URL` (its git repository), or the same in the variable `TOOLGATE_SDK`";
        return Err(hinted("toolgate-sdk is not on crates.io: say where it is", hint));
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

# Not a part of a workspace that it may stand in.
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

/// The server, by where it is built.
fn entry(command: &str) -> Map<String, Json> {
    Map::from_iter([("command".to_owned(), json!(format!("./{command}")))])
}

#[test]
fn the_template_is_what_is_written() {
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
