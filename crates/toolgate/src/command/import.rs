//! `toolgate import FILE|CLIENT`: takes over the MCP servers of another program.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::json;
use toolgate_config::{Client, Environment, Import, ImportedServer, add_servers, plan_import};
use toolgate_store::document::{Document, Kind};
use toolgate_store::file::disk::RealDisk;
use toolgate_store::file::{Files, Paths};
use toolgate_types::Secret;
use toolgate_types::redact::printable;

use crate::DONE;
use crate::cli::{ImportArgs, Project};
use crate::output::{BOLD, Output, hinted, mask_strings, shown_path, toolgate_in};

pub(crate) fn run(args: &ImportArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    let environment = Environment::of_process();
    let files = files(&args.from, &project.folder, &environment)?;
    let import = plan_import(&project.folder, &files, &environment);
    output.message(&import.report.render());
    if import.report.has_errors() || import.servers.is_empty() {
        let broken = import.report.has_errors();
        let hint = if broken {
            "mend what is above, or name another file"
        } else {
            "name another file, or another client"
        };
        return Err(hinted(format!("nothing was taken over from {}", args.from), hint));
    }
    let target = &import.registry;
    if target.is_dir() {
        let message = format!("{} is a folder, and nothing was written", shown_path(target));
        return Err(hinted(message, "servers are kept in a file; name it in `registries` of toolgate.yaml"));
    }
    let before = target.is_file().then(|| fs_err::read_to_string(target)).transpose()?;
    let blank = Document::blank(Kind::Server);
    let (after, left) = add_servers(before.as_deref().unwrap_or(&blank), &import, args.replace)
        .with_context(|| format!("{} cannot be added to, and nothing was written", shown_path(target)))?;
    let env_path = project.folder.join(".env");
    let taken: Vec<_> = import.servers.iter().filter(|server| !left.contains(&server.name)).collect();
    let env_lines = env_lines(&import, &taken);
    if !args.dry_run && !taken.is_empty() {
        // The values first: a variable too many hurts nobody, a missing one stops everything.
        append_private(&env_path, &env_lines)?;
        write_whole(target, before.as_deref(), &after)?;
    }
    let variables: Vec<_> = env_lines.iter().map(|(name, _)| name).collect();
    if output.json {
        let server = |server: &&ImportedServer| {
            let mut entry = server.entry.clone();
            mask_strings(&mut entry, &|text| import.report.mask(text));
            json!({ "name": server.name, "from": server.from, "entry": entry })
        };
        output.document(&json!({
            "ok": true,
            "taken": taken.iter().map(server).collect::<Vec<_>>(),
            "left": left,
            "variables": variables,
            "notes": import.report.entries(),
            "written": !args.dry_run && !taken.is_empty(),
            "file": shown_path(target),
        }))?;
    } else if args.dry_run {
        // What is there already may hold secrets, too.
        output.result(&import.report.mask(&after));
    }
    let verb = if args.dry_run { "would add" } else { "added" };
    for server in &taken {
        let name = printable(&server.name);
        output.message(&format!("{verb} {BOLD}{name}{BOLD:#} from {}\n", printable(&server.from)));
    }
    for name in &left {
        let name = printable(name);
        let file = shown_path(target);
        output.message(&format!("left {BOLD}{name}{BOLD:#} as it is in {file}; `--replace` overwrites it\n"));
    }
    if !variables.is_empty() {
        let values = if variables.len() == 1 { "value" } else { "values" };
        let names = variables.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let verb = if args.dry_run { "would go" } else { "went" };
        let file = shown_path(&env_path);
        output.message(&format!("the {values} of {names} {verb} to {file}: keep that file to yourself\n"));
        warn_if_open(&env_path, output);
    }
    output.next(&next(args.dry_run, &import, &toolgate_in(&project.folder)));
    Ok(DONE)
}

fn next(dry_run: bool, import: &Import, toolgate: &str) -> String {
    match &import.unnamed_in {
        _ if dry_run => "run it again without `--dry-run` to write this".to_owned(),
        None => format!("`{toolgate} check` shows what the servers mean"),
        Some(file) if file.ends_with("toolgate.yaml") || file.ends_with("toolgate.yml") => {
            format!("add `registries: {{ mcp: mcp.json }}` to {}, then `{toolgate} check`", shown_path(file))
        }
        Some(file) => format!(
            "as long as there is {}, that is the project; `{toolgate} --file mcp.json check` shows the servers",
            shown_path(file)
        ),
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
        let message = format!("`{from}` is neither a file nor a client that we know");
        return Err(hinted(message, format!("clients are {names}")));
    };
    let places = client.files(project, environment);
    let found: Vec<_> = places.iter().filter(|path| path.is_file()).cloned().collect();
    if found.is_empty() {
        let places: Vec<_> = places.iter().map(|path| shown_path(path)).collect();
        let message = format!("{from} has no configuration here");
        return Err(hinted(message, format!("name the file; looked for {}", places.join(", "))));
    }
    Ok(found)
}

/// The values that the servers refer to.
fn env_lines(import: &Import, taken: &[&ImportedServer]) -> Vec<(String, Secret)> {
    let used = |(name, _): &&(String, Secret)| {
        let reference = format!("${{{name}}}");
        taken.iter().any(|server| server.entry.to_string().contains(&reference))
    };
    import.secrets.iter().filter(used).cloned().collect()
}

/// All of the new text or none of it: a torn registry would stop everything.
pub(crate) fn write_whole(path: &Path, before: Option<&str>, text: &str) -> anyhow::Result<()> {
    let wrote = || format!("{} could not be written", shown_path(path));
    // A link stays one.
    let real = fs_err::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let paths = Paths { tools: None, servers: Some(real) };
    Files::open(RealDisk, paths)
        .and_then(|mut files| files.overwrite(Kind::Server, before, text))
        .with_context(wrote)
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
        text.push_str(&format!("{name}=\"{}\"\n", escaped(value.expose())));
    }
    file.write_all(text.as_bytes())?;
    Ok(())
}

/// As `.env` files spell a text in double quotes.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    text.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t")
}

/// A file that was there before keeps its mode, which may be too generous for what it holds now.
fn warn_if_open(path: &Path, output: &Output) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        if fs_err::metadata(path).is_ok_and(|data| data.permissions().mode() & 0o077 != 0) {
            let file = shown_path(path);
            output.message(&format!("others can read {file}; `chmod 600 {file}` changes that\n"));
        }
    }
    #[cfg(not(unix))]
    let _ = (path, output);
}
