//! `toolgate import FILE|CLIENT`: takes over the MCP servers of another program.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::json;
use toolgate_config::{Client, Environment, Import, add_servers, plan_import};
use toolgate_types::Secret;

use crate::cli::{ImportArgs, Project};
use crate::output::{BOLD, Output};
use crate::{DONE, FAILED};

const EMPTY: &str = "{\n  \"servers\": {}\n}\n";

pub(crate) fn run(args: &ImportArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    let environment = Environment::of_process();
    let files = files(&args.from, &project.folder, &environment)?;
    let import = plan_import(&project.folder, &files, &environment);
    output.message(&import.report.render());
    if import.report.has_errors() || import.servers.is_empty() {
        bail!("nothing was taken over from `{}`", args.from);
    }
    let target = project.folder.join("mcp.json");
    let before = if target.is_file() { fs_err::read_to_string(&target)? } else { EMPTY.to_owned() };
    let (after, left) = add_servers(&before, &import, args.replace).with_context(|| {
        format!("`{}` cannot be added to; `toolgate check` says where it is wrong", target.display())
    })?;
    let env_path = project.folder.join(".env");
    let env_lines = env_lines(&env_path, &import, &left)?;
    if !args.dry_run {
        write_whole(&target, &after)?;
        append_private(&env_path, &env_lines)?;
    }
    let taken: Vec<_> = import.servers.iter().filter(|server| !left.contains(&server.name)).collect();
    let variables: Vec<_> = env_lines.iter().map(|(name, _)| name).collect();
    if output.json {
        let servers: Vec<_> = taken
            .iter()
            .map(|server| json!({ "name": server.name, "from": server.from, "entry": server.entry }))
            .collect();
        output.document(&json!({
            "taken": servers,
            "left": left,
            "variables": variables,
            "notes": import.report.entries(),
            "written": !args.dry_run,
            "file": target,
        }))?;
    } else if args.dry_run {
        output.result(&after);
    }
    let verb = if args.dry_run { "would add" } else { "added" };
    for server in &taken {
        output.message(&format!("{verb} {BOLD}{}{BOLD:#} from {}\n", server.name, server.from));
    }
    for name in &left {
        output.message(&format!(
            "left {BOLD}{name}{BOLD:#} as it is in {}; `--replace` overwrites it\n",
            target.display()
        ));
    }
    if !variables.is_empty() {
        let names = variables.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let verb = if args.dry_run { "would go" } else { "went" };
        output.message(&format!("{names} {verb} to {}: keep that file to yourself\n", env_path.display()));
    }
    output.next(next(args.dry_run, &project.folder));
    Ok(if taken.is_empty() && left.is_empty() { FAILED } else { DONE })
}

fn next(dry_run: bool, folder: &Path) -> &'static str {
    let project_file =
        ["toolgate.yaml", "toolgate.yml"].iter().map(|name| folder.join(name)).find(|path| path.is_file());
    let names_registry = project_file
        .and_then(|path| fs_err::read_to_string(path).ok())
        .is_none_or(|text| text.lines().any(|line| line.trim_start().starts_with("mcp:")));
    match (dry_run, names_registry) {
        (true, _) => "run it again without `--dry-run` to write this",
        (false, true) => "`toolgate check` shows what the servers mean",
        (false, false) => "add `registries: { mcp: mcp.json }` to toolgate.yaml, then `toolgate check`",
    }
}

/// The files to read: those of a client that exist, or the one that was named.
fn files(from: &str, project: &Path, environment: &Environment) -> anyhow::Result<Vec<PathBuf>> {
    let Some((_, client)) = Client::ALL.into_iter().find(|(name, _)| *name == from) else {
        let path = PathBuf::from(from);
        if path.is_file() {
            return Ok(vec![path]);
        }
        let names = Client::ALL.map(|(name, _)| name).join(", ");
        bail!("`{from}` is neither a file nor a client we know ({names})");
    };
    let places = client.files(project, environment);
    let found: Vec<_> = places.iter().filter(|path| path.is_file()).cloned().collect();
    if found.is_empty() {
        let places: Vec<_> = places.iter().map(|path| path.display().to_string()).collect();
        bail!("{from} has no configuration here; looked for {}", places.join(", "));
    }
    Ok(found)
}

/// The variables that `.env` does not have yet. One that differs is not touched: that is told.
fn env_lines(path: &Path, import: &Import, left: &[String]) -> anyhow::Result<Vec<(String, Secret)>> {
    let text = if path.is_file() { fs_err::read_to_string(path)? } else { String::new() };
    let used = |name: &str| {
        let reference = format!("${{{name}}}");
        let uses = |entry: &serde_json::Value| entry.to_string().contains(&reference);
        import.servers.iter().any(|server| !left.contains(&server.name) && uses(&server.entry))
    };
    let set = |name: &str| {
        text.lines()
            .any(|line| line.trim_start().trim_start_matches("export ").starts_with(&format!("{name}=")))
    };
    let mut lines = Vec::new();
    for (name, value) in import.secrets.iter().filter(|(name, _)| used(name)) {
        if set(name) {
            continue;
        }
        lines.push((name.clone(), value.clone()));
    }
    Ok(lines)
}

/// All of the new text or none of it: a torn registry would stop everything.
fn write_whole(path: &Path, text: &str) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let wrote = || format!("`{}` could not be written", path.display());
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(wrote)?;
    file.write_all(text.as_bytes()).with_context(wrote)?;
    file.as_file().sync_all().with_context(wrote)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs_err::metadata(path).map_or(0o644, |before| before.permissions().mode());
        file.as_file().set_permissions(std::fs::Permissions::from_mode(mode)).with_context(wrote)?;
    }
    file.persist(path).with_context(wrote)?;
    Ok(())
}

/// Adds lines to a file that only its owner can read.
fn append_private(path: &Path, lines: &[(String, Secret)]) -> anyhow::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut options = fs_err::OpenOptions::new();
    options.create(true).append(true).read(true);
    #[cfg(unix)]
    {
        use fs_err::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    let before = if path.is_file() { fs_err::read_to_string(path)? } else { String::new() };
    let mut file = options.open(path)?;
    let mut text = String::new();
    if !before.is_empty() && !before.ends_with('\n') {
        text.push('\n');
    }
    for (name, value) in lines {
        let value = value.expose().replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        text.push_str(&format!("{name}=\"{value}\"\n"));
    }
    file.write_all(text.as_bytes())?;
    Ok(())
}
