//! `toolgate tools new`: a tool that works, to be made one's own.

mod rust;

use std::path::Path;

use anyhow::{Context as _, anyhow};
use serde_json::{Map, Value as Json, json};
use toolgate_config::{Environment, load};
use toolgate_store::document::{Act, Kind};
use toolgate_types::ToolName;

use crate::cli::{Language, NewToolArgs, Project};
use crate::command::change;
use crate::output::{Output, hinted, shown_path, toolgate_in};
use crate::{DONE, REFUSED};

const PYTHON: &str = r#""""DESCRIPTION"""


def run(args):
    """Gets the arguments as a dictionary, and returns the result.

    `run(args, context)` would get what the call belongs to, too. It may be `async`. An exception becomes
    the error of the call; what is printed goes to the log.
    """
    text = args["text"]
    return {"text": text, "length": len(text)}
"#;

const SHELL: &str = r#"#!/bin/sh
# DESCRIPTION
# The arguments come as JSON on stdin, the result goes to stdout; what is written to stderr explains a failure.
set -eu
arguments=$(cat)
text=$(printf '%s' "$arguments" | sed -n 's/.*"text" *: *"\([^"\\]*\)".*/\1/p')
printf '{"text": "%s", "length": %s}\n' "$text" "${#text}"
"#;

pub(crate) fn run(args: &NewToolArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    let (end, text) = match args.lang {
        Language::Python => ("py", PYTHON),
        Language::Sh => ("sh", SHELL),
        Language::Rust => return rust::run(args, project, output),
    };
    let name: ToolName =
        args.name.parse().map_err(|error| anyhow!("`{}` is not a name: {error}", args.name))?;
    let loaded = load(&project.folder, project.file.as_deref(), &Environment::of_process());
    let Some(config) = loaded.config else {
        output.message(&loaded.report.render());
        output.next("`toolgate check` shows what is wrong; nothing was written");
        return Ok(REFUSED);
    };
    let Some(registry) = config.registries.tools else { return Err(change::no_file(Kind::Tool)) };
    if config.tools.iter().any(|tool| tool.name == name) {
        return Err(hinted(format!("there is a tool `{name}` already"), "choose another name"));
    }
    let description = args.description.clone().unwrap_or_else(|| {
        format!("What {name} does, when to use it, and what it returns: models choose by this text.")
    });
    let file = format!("{name}.{end}");
    let folder = registry.parent().map_or_else(|| project.folder.clone(), Path::to_owned);
    let script = folder.join(&file);
    let shown = script.strip_prefix(&config.project).map_or_else(|_| shown_path(&script), shown_path);
    // One line in a comment, and no way out of it.
    let line: String = description.chars().filter(|c| !c.is_control() && !matches!(c, '"' | '\\')).collect();
    write(&script, &text.replace("DESCRIPTION", &line))
        .with_context(|| format!("{shown} was not written"))?;
    let act = Act::Add(entry(&name, &description, &file));
    let code = change::submit(Kind::Tool, name.to_string(), act, &args.change, project, output);
    if !matches!(code, Ok(DONE)) {
        // Half of a tool helps nobody.
        let _ = fs_err::remove_file(&script);
        return code;
    }
    let toolgate = toolgate_in(&project.folder);
    output.message(&format!("wrote {shown}\n"));
    output.next(&format!(
        "`{toolgate} tools call {name} text=hello`; then change {shown}, its schema and its example, and `{toolgate} tools test {name}`"
    ));
    Ok(DONE)
}

fn entry(name: &ToolName, description: &str, file: &str) -> Map<String, Json> {
    let entry = json!({
        "name": name,
        "description": description,
        "input_schema": {
            "type": "object",
            "properties": { "text": { "type": "string", "description": "A text." } },
            "required": ["text"],
            "additionalProperties": false,
        },
        "output_schema": {
            "type": "object",
            "properties": { "text": { "type": "string" }, "length": { "type": "integer" } },
            "required": ["text", "length"],
        },
        "config": { "script_path": file },
        "category": "analysis",
        "timeout": "10s",
        "idempotent": true,
        "examples": [{
            "description": "A short text",
            "params": { "text": "hello" },
            "expected_result": { "text": "hello", "length": 5 },
        }],
    });
    match entry {
        Json::Object(entry) => entry,
        _ => Map::new(),
    }
}

/// Writes a script that was not there before.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    if let Some(folder) = path.parent() {
        fs_err::create_dir_all(folder)?;
    }
    let mut file = fs_err::OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())?;
    let bits = if path.extension().is_some_and(|end| end == "sh") { 0o755 } else { 0o644 };
    fs_err::set_permissions(path, std::fs::Permissions::from_mode(bits))?;
    Ok(())
}
