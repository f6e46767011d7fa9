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

pub(crate) fn run(args: &InitArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let folder = match &args.into {
        Some(folder) => project.folder.join(folder),
        None => project.folder.clone(),
    };
    // All or nothing: files of two projects must not be mixed.
    let taken: Vec<_> =
        FILES.iter().map(|(name, _)| *name).filter(|name| folder.join(name).exists()).collect();
    if !taken.is_empty() {
        let (names, are) = (taken.join("`, `"), if taken.len() == 1 { "is" } else { "are" });
        let message = format!("`{names}` {are} already in `{}`; nothing was written", display_path(&folder));
        return Err(error_with_hint(message, "name another folder: `toolgate init DIR`"));
    }
    for (name, text) in FILES {
        write(&folder.join(name), text)
            .with_context(|| format!("the project could not be written to `{}`", display_path(&folder)))?;
        if !output.json {
            output.message(&format!("wrote {}\n", display_path(&folder.join(name))));
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
