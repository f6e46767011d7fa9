//! `toolgate tools new`: creates a working tool from a template.

mod rust;

use std::path::Path;

use anyhow::{Context as _, anyhow};
use serde_json::{Map, Value as Json, json};
use toolgate_config::load;
use toolgate_store::document::{EntryAction, EntryKind};
use toolgate_types::ToolName;

use crate::cli::{Language, NewToolArgs, ProjectArgs};
use crate::command::change;
use crate::output::{Output, display_path, error_with_hint, toolgate_command};
use crate::owner_key;
use crate::{DONE, INVALID_CONFIG};

const PYTHON: &str = r#""""DESCRIPTION"""


def run(args):
    """Receives the arguments as a dictionary and returns the result.

    Use `run(args, context)` to also receive the context of the call. The function may be `async`. An
    exception becomes the error of the call; printed text goes to the log.
    """
    text = args["text"]
    return {"text": text, "length": len(text)}
"#;

const SHELL: &str = r#"#!/bin/sh
# DESCRIPTION
# Receives the arguments as JSON on stdin and prints the result; text on stderr explains a failure.
set -eu
arguments=$(cat)
text=$(printf '%s' "$arguments" | sed -n 's/.*"text" *: *"\([^"\\]*\)".*/\1/p')
printf '{"text": "%s", "length": %s}\n' "$text" "${#text}"
"#;

pub(crate) fn run(args: &NewToolArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let (end, text) = match args.lang {
        Language::Python => ("py", PYTHON),
        Language::Sh => ("sh", SHELL),
        Language::Rust => return rust::run(args, project, output),
    };
    let name: ToolName =
        args.name.parse().map_err(|error| anyhow!("invalid tool name `{}`: {error}", args.name))?;
    let loaded = load(&project.folder, project.file.as_deref(), &owner_key::environment());
    let Some(config) = loaded.config else {
        output.message(&loaded.report.render());
        output.next_step("run `toolgate check` to see the problems; nothing was written");
        return Ok(INVALID_CONFIG);
    };
    let Some(registry) = config.registries.tools else {
        return Err(change::missing_registry(EntryKind::Tool));
    };
    if config.tools.iter().any(|tool| tool.name == name) {
        return Err(error_with_hint(format!("tool `{name}` already exists"), "choose another name"));
    }
    let description = args.description.clone().unwrap_or_else(|| {
        format!(
            "Describe what {name} does, when to use it and what it returns: models choose tools by this text."
        )
    });
    let file = format!("{name}.{end}");
    let folder = registry.parent().map_or_else(|| project.folder.clone(), Path::to_owned);
    let script = folder.join(&file);
    let shown = script.strip_prefix(&config.project).map_or_else(|_| display_path(&script), display_path);
    // The description goes into a one-line comment or docstring, which it must not close.
    let line: String = description.chars().filter(|c| !c.is_control() && !matches!(c, '"' | '\\')).collect();
    write(&script, &text.replace("DESCRIPTION", &line))
        .with_context(|| format!("{shown} was not written"))?;
    let act = EntryAction::Add(entry(&name, &description, &file));
    let code = change::submit(EntryKind::Tool, name.to_string(), act, &args.change, project, output);
    if !matches!(code, Ok(DONE)) {
        // Remove the script of a tool that was not registered.
        let _ = fs_err::remove_file(&script);
        return code;
    }
    let toolgate = toolgate_command(&project.folder);
    output.message(&format!("wrote {shown}\n"));
    output.next_step(&format!(
        "try `{toolgate} tools call {name} text=hello`; edit {shown}, its schema and its example, then run `{toolgate} tools test {name}`"
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

/// Writes a new script. Fails if the file exists.
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
