//! `toolgate init [DIR]`: writes the quickstart project.

use std::path::Path;

use anyhow::Context as _;
use serde_json::json;

use crate::DONE;
use crate::cli::{InitArgs, ProjectArgs};
use crate::output::{Output, display_path, error_with_hint, toolgate_command};

/// Files of `examples/quickstart`. A test checks that the project is valid.
const FILES: [(&str, &str); 6] = [
    ("toolgate.yaml", include_str!("../../../../examples/quickstart/toolgate.yaml")),
    ("mcp.json", include_str!("../../../../examples/quickstart/mcp.json")),
    ("tools/tools.json", include_str!("../../../../examples/quickstart/tools/tools.json")),
    ("tools/word_count.py", include_str!("../../../../examples/quickstart/tools/word_count.py")),
    ("tools/disk_usage.sh", include_str!("../../../../examples/quickstart/tools/disk_usage.sh")),
    (".gitignore", include_str!("../../../../examples/quickstart/.gitignore")),
];

/// The file that a repository may have already.
const GITIGNORE: &str = ".gitignore";

pub(crate) fn run(args: &InitArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let folder = match &args.into {
        Some(folder) => project.folder.join(folder),
        None => project.folder.clone(),
    };
    // All or nothing: files of two projects must not be mixed. A `.gitignore` belongs to the repository and is extended.
    let is_taken = |name: &&str| *name != GITIGNORE && folder.join(name).exists();
    let taken: Vec<_> = FILES.iter().map(|(name, _)| *name).filter(is_taken).collect();
    if !taken.is_empty() {
        let (names, are) = (taken.join("`, `"), if taken.len() == 1 { "is" } else { "are" });
        let message = format!("`{names}` {are} already in `{}`; nothing was written", display_path(&folder));
        return Err(error_with_hint(message, "name another folder: `toolgate init DIR`"));
    }
    let project_name = project_name(&folder);
    for (name, text) in FILES {
        let path = folder.join(name);
        let text = if name == "toolgate.yaml" {
            text.replacen("name: quickstart\n", &format!("name: {project_name}\n"), 1)
        } else {
            text.to_owned()
        };
        let verb =
            if name == GITIGNORE { extend(&path, &text) } else { write(&path, &text).map(|()| "wrote") };
        let verb =
            verb.with_context(|| format!("the project could not be written to `{}`", display_path(&folder)))?;
        if !output.json {
            output.message(&format!("{verb} {}\n", display_path(&path)));
        }
    }
    if output.json {
        let files: Vec<_> = FILES.iter().map(|(name, _)| *name).collect();
        output.document(&json!({ "ok": true, "project": display_path(&folder), "files": files }))?;
    }
    let toolgate = toolgate_command(&folder);
    output.next_step(&format!(
        "run `{toolgate} check` to see the project; add your MCP servers with `{toolgate} import CLIENT`"
    ));
    Ok(DONE)
}

/// Returns a name for the project, in YAML: that of its folder.
fn project_name(folder: &Path) -> String {
    let whole = fs_err::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let name = whole.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| "quickstart".to_owned());
    // A JSON string is valid YAML. A plain word needs no quotes.
    let is_word = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    let is_plain = is_word && name.starts_with(|c: char| c.is_ascii_alphabetic()) && !is_yaml_word(&name);
    if is_plain { name } else { serde_json::Value::String(name).to_string() }
}

/// Returns true for words that YAML does not read as a string.
fn is_yaml_word(name: &str) -> bool {
    ["null", "true", "false", "yes", "no", "on", "off", "y", "n"].contains(&name.to_lowercase().as_str())
}

/// Adds the missing lines to a `.gitignore`. Returns the verb for the message.
fn extend(path: &Path, text: &str) -> anyhow::Result<&'static str> {
    if !path.is_file() {
        return write(path, text).map(|()| "wrote");
    }
    let before = fs_err::read_to_string(path)?;
    let is_missing = |line: &&str| !before.lines().any(|known| known.trim() == line.trim());
    // A comment alone is not worth a line.
    if !text.lines().filter(|line| !line.starts_with('#')).any(|line| is_missing(&line)) {
        return Ok("kept");
    }
    let mut after = before.clone();
    if !after.is_empty() && !after.ends_with('\n') {
        after.push('\n');
    }
    text.lines().filter(is_missing).for_each(|line| after.push_str(&format!("{line}\n")));
    fs_err::write(path, after)?;
    Ok("extended")
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let folder = path.parent().context("a file is in a folder")?;
    fs_err::create_dir_all(folder)?;
    fs_err::write(path, text)?;
    #[cfg(unix)]
    if path.extension().is_some_and(|end| end == "sh") {
        use std::os::unix::fs::PermissionsExt;
        fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}
