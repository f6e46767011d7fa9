//! `toolgate init [DIR]`: writes the example project of this repository.

use std::path::Path;

use anyhow::Context as _;
use serde_json::json;

use crate::DONE;
use crate::cli::{InitArgs, Project};
use crate::output::{Output, hinted, shown_path, toolgate_in};

/// The files of `examples/quickstart`, which a test keeps good.
const FILES: [(&str, &str); 6] = [
    ("toolgate.yaml", include_str!("../../../../examples/quickstart/toolgate.yaml")),
    ("mcp.json", include_str!("../../../../examples/quickstart/mcp.json")),
    ("tools/tools.json", include_str!("../../../../examples/quickstart/tools/tools.json")),
    ("tools/word_count.py", include_str!("../../../../examples/quickstart/tools/word_count.py")),
    ("tools/disk_usage.sh", include_str!("../../../../examples/quickstart/tools/disk_usage.sh")),
    (".gitignore", include_str!("../../../../examples/quickstart/.gitignore")),
];

pub(crate) fn run(args: &InitArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    let folder = match &args.into {
        Some(folder) => project.folder.join(folder),
        None => project.folder.clone(),
    };
    // All or nothing: a project half written over another one helps nobody.
    let taken: Vec<_> =
        FILES.iter().map(|(name, _)| *name).filter(|name| folder.join(name).exists()).collect();
    if !taken.is_empty() {
        let (names, are) = (taken.join("`, `"), if taken.len() == 1 { "is" } else { "are" });
        let message =
            format!("`{names}` {are} in `{}` already, and nothing was written", shown_path(&folder));
        return Err(hinted(message, "name another folder: `toolgate init DIR`"));
    }
    for (name, text) in FILES {
        write(&folder.join(name), text)
            .with_context(|| format!("the project could not be written to `{}`", shown_path(&folder)))?;
        if !output.json {
            output.message(&format!("wrote {}\n", shown_path(&folder.join(name))));
        }
    }
    if output.json {
        let files: Vec<_> = FILES.iter().map(|(name, _)| *name).collect();
        output.document(&json!({ "ok": true, "project": shown_path(&folder), "files": files }))?;
    }
    let toolgate = toolgate_in(&folder);
    output.next(&format!(
        "`{toolgate} check` shows what the project means; `{toolgate} import CLIENT` adds MCP servers you have"
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
