//! The script of a tool: its location, environment and memory.

use std::path::{Component, Path, PathBuf};

use toolgate_types::tool::ScriptSpec;
use toolgate_types::{ByteSize, ToolName};

use super::{ToolFile, ToolKindName};
use crate::context::Context;
use crate::feature::checks::resolve_env;
use crate::keys::{Spanned, keys};
use crate::problem::Problem;

keys! {
    /// Location of a tool's script.
    struct ScriptFile as "tool config" {
        /// Script file in the folder of `tools.json` or below it. Default: the tool's name with `.py`.
        script_path ("scriptPath"): String,
        /// Function to call in a Python script.
        entrypoint ("function"): String = "run",
    }
}

/// Maximum length of a file name on common file systems.
const MAX_FILE_NAME_BYTES: usize = 255;

/// Minimum memory for an interpreter to start.
const MIN_MEMORY: ByteSize = ByteSize::from_mib(32);

pub(super) fn resolve_script(
    file: &mut ToolFile,
    name: &Spanned<ToolName>,
    folder: &Path,
    cx: &mut Context<'_>,
) -> Option<ScriptSpec> {
    // `local` is the only kind of tool so far.
    match file.r#type.as_ref().map(|at| at.value) {
        Some(ToolKindName::Local) | None => {}
    }
    let (mut path, mut entrypoint) = (file.script_path.take(), file.entrypoint.take());
    if let Some(config) = file.config.take() {
        for (key, outer, inner) in [
            ("script_path", &mut path, config.value.script_path),
            ("entrypoint", &mut entrypoint, config.value.entrypoint),
        ] {
            match (&outer, inner) {
                (Some(_), Some(inner)) => {
                    let message =
                        format!("`{key}` is given inside and outside of `config`{}", cx.location_suffix());
                    cx.error(inner.key_span, message, "keep one of the two");
                }
                (None, inner) => *outer = inner,
                (Some(_), None) => {}
            }
        }
    }
    let entrypoint = entrypoint.map_or_else(|| ScriptSpec::DEFAULT_ENTRYPOINT.to_owned(), |at| at.value);
    let (written, span) = match path {
        Some(path) => (path.value, path.span),
        None => (format!("{}.py", name.value), name.span),
    };
    let script_path = match relative_path(&written)
        .map(|path| folder.join(path))
        .and_then(|path| check_symlinks(path, folder))
    {
        Ok(path) => path,
        Err(why) => {
            let message = format!("`{written}` cannot be the script{}: {why}", cx.location_suffix());
            cx.error(span, message, "scripts are files in the folder of the registry, or in a folder there");
            return None;
        }
    };
    let (env, max_memory) = (resolve_env(file.env.take(), cx), resolve_memory(file.max_memory.take(), cx));
    if !script_path.is_file() {
        // A warning only: the tool exists, and calls of it report the missing script.
        let message = format!("the script `{written}` of tool `{}` does not exist", name.value);
        let hint = "create it, or correct `script_path`; until then calls fail with `tool_execution_error`";
        cx.push(Problem::warning(span, message).hint(hint));
    }
    let (folder, project) = (folder.to_owned(), cx.project.to_owned());
    Some(ScriptSpec { script_path, entrypoint, env, max_memory, folder, project })
}

/// Resolves the memory limit of a script and reports values too low for an interpreter.
fn resolve_memory(file: Option<Spanned<ByteSize>>, cx: &mut Context<'_>) -> ByteSize {
    let Some(at) = file else { return ScriptSpec::DEFAULT_MEMORY };
    if at.value < MIN_MEMORY {
        let message = format!("`{}` is too little memory{}", at.value, cx.location_suffix());
        cx.error(at.span, message, format!("programs need `{MIN_MEMORY}` to start"));
    }
    at.value
}

/// Checks that a path cannot leave the folder it is joined to.
fn relative_path(written: &str) -> Result<PathBuf, &'static str> {
    let path = Path::new(written);
    if written.is_empty() || written.contains('\0') {
        return Err("it is not the name of a file");
    }
    if written.trim() != written || written.split('/').any(|part| part.trim() != part) {
        return Err("it has white space at an end");
    }
    if written.split('/').any(|part| part.len() > MAX_FILE_NAME_BYTES) {
        return Err("it is too long");
    }
    if path.components().all(|part| matches!(part, Component::Normal(_))) && !written.contains("/./") {
        Ok(path.to_owned())
    } else {
        Err("it points outside the folder")
    }
}

/// Rejects a path with a symbolic link out of the folder. A dangling link is treated as a missing file.
fn check_symlinks(path: PathBuf, folder: &Path) -> Result<PathBuf, &'static str> {
    let below = path.ancestors().take_while(|part| *part != folder);
    if !below.into_iter().any(Path::is_symlink) {
        return Ok(path);
    }
    match (fs_err::canonicalize(&path), fs_err::canonicalize(folder)) {
        (Ok(real), Ok(folder)) if !real.starts_with(&folder) => Err("a link in it points outside the folder"),
        _ => Ok(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_paths_stay_in_folder() {
        for good in ["a.py", "sub/a.py", "a.b.sh"] {
            assert!(relative_path(good).is_ok(), "{good}");
        }
        let long = format!("{}.py", "x".repeat(300));
        for bad in ["../../bin/sh", "a/../b", "/bin/sh", "x\0.py", "con.py ", "", ".", "./a.py", &long] {
            assert!(relative_path(bad).is_err(), "{bad:?}");
        }
    }
}
