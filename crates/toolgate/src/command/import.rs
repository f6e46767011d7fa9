//! `toolgate import FILE|CLIENT`: imports the MCP servers of another program.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::json;
use toolgate_config::{
    ClientProgram, Environment, ImportPlan, ImportSource, ImportedServer, add_servers, plan_import,
};
use toolgate_redact::printable;
use toolgate_store::document::{EntryKind, RegistryDocument};
use toolgate_types::Secret;

use crate::DONE;
use crate::cli::{ConnectArgs, ConnectClient, ConnectScope, ImportArgs, ProjectArgs};
use crate::command::take_over;
use crate::output::{BOLD, Output, display_path, error_with_hint, mask_strings, toolgate_command};
use crate::owner_key;

pub(crate) fn run(args: &ImportArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let environment = owner_key::environment();
    let folders = client_folders(project)?;
    if args.take_over {
        return take_over_all(args, &folders, &environment, project, output);
    }
    let (from, files) = match &args.from {
        Some(from) => (from.clone(), source_files(from, &folders, &environment)?),
        None => ("any client".to_owned(), all_client_files(&folders, &environment)),
    };
    let import = plan_import(&project.folder, &files, &folders, &environment);
    output.message(&import.report.render());
    if import.report.has_errors() || import.servers.is_empty() {
        let broken = import.report.has_errors();
        let hint = if broken {
            "fix the problems above, or name another file"
        } else {
            "name another file, or another client"
        };
        return Err(error_with_hint(format!("no servers imported from {from}"), hint));
    }
    let target = &import.registry;
    if target.is_dir() {
        let message = format!("{} is a folder; nothing was written", display_path(target));
        return Err(error_with_hint(message, "name a file in `registries` of toolgate.yaml"));
    }
    let before = target.is_file().then(|| fs_err::read_to_string(target)).transpose()?;
    let blank = RegistryDocument::empty_text(EntryKind::Server);
    let (after, left) = add_servers(before.as_deref().unwrap_or(&blank), &import, args.replace)
        .with_context(|| format!("cannot add to {}; nothing was written", display_path(target)))?;
    let env_path = project.folder.join(".env");
    let taken: Vec<_> = import.servers.iter().filter(|server| !left.contains(&server.name)).collect();
    let env_lines = env_lines(&import, &taken);
    if !args.dry_run && !taken.is_empty() {
        // Values first: an unused variable is harmless, a missing one makes the configuration invalid.
        append_private(&env_path, &env_lines)?;
        write_atomically(target, before.as_deref(), &after)?;
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
            "file": display_path(target),
        }))?;
    } else if args.dry_run {
        // The existing part of the file may contain secrets, too.
        output.result(&import.report.mask(&after));
    }
    let verb = if args.dry_run { "would add" } else { "added" };
    for server in &taken {
        let name = printable(&server.name);
        output.message(&format!("{verb} {BOLD}{name}{BOLD:#} from {}\n", printable(&server.from)));
    }
    for name in &left {
        let name = printable(name);
        let file = display_path(target);
        output.message(&format!(
            "skipped {BOLD}{name}{BOLD:#}, which is already in {file}; use `--replace` to overwrite it\n"
        ));
    }
    if !variables.is_empty() {
        let values = if variables.len() == 1 { "value" } else { "values" };
        let names = variables.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let verb = if args.dry_run { "would write" } else { "wrote" };
        let file = display_path(&env_path);
        output.message(&format!("{verb} the {values} of {names} to {file}: do not commit that file\n"));
        warn_if_open(&env_path, output);
    }
    output.next_step(&next_step(args.dry_run, &import, &toolgate_command(&project.folder)));
    Ok(DONE)
}

fn next_step(dry_run: bool, import: &ImportPlan, toolgate: &str) -> String {
    match &import.unlinked_project_file {
        _ if dry_run => "run it again without `--dry-run` to write this".to_owned(),
        None => format!("run `{toolgate} check` to see the servers"),
        Some(file) if file.ends_with("toolgate.yaml") || file.ends_with("toolgate.yml") => {
            format!(
                "add `registries: {{ mcp: mcp.json }}` to {}, then `{toolgate} check`",
                display_path(file)
            )
        }
        Some(file) => format!(
            "{} takes precedence over mcp.json; run `{toolgate} --file mcp.json check` to see the servers",
            display_path(file)
        ),
    }
}

/// Returns the folders that clients may have a configuration for: that of the project, and the current one.
pub(crate) fn client_folders(project: &ProjectArgs) -> anyhow::Result<Vec<PathBuf>> {
    let here = std::env::current_dir().context("there is no current folder")?;
    let folder = fs_err::canonicalize(&project.folder).unwrap_or_else(|_| here.join(&project.folder));
    let mut folders = vec![folder];
    if !folders.contains(&here) {
        folders.push(here);
    }
    Ok(folders)
}

/// Returns the existing config files of a client.
pub(crate) fn client_files(
    client: ClientProgram,
    folders: &[PathBuf],
    environment: &Environment,
) -> Vec<ImportSource> {
    let mut files: Vec<ImportSource> = Vec::new();
    for path in folders.iter().flat_map(|folder| client.files(folder, environment)) {
        if path.is_file() && !files.iter().any(|known| known.path == path) {
            files.push(ImportSource { path, client: Some(client) });
        }
    }
    files
}

/// Returns the existing config files of all clients.
fn all_client_files(folders: &[PathBuf], environment: &Environment) -> Vec<ImportSource> {
    let clients = ClientProgram::ALL.into_iter();
    clients.flat_map(|(_, client)| client_files(client, folders, environment)).collect()
}

/// Takes over the servers of one client, or of all that have some.
fn take_over_all(
    args: &ImportArgs,
    folders: &[PathBuf],
    environment: &Environment,
    project: &ProjectArgs,
    output: &Output,
) -> anyhow::Result<u8> {
    let is_meant = |name: &str, client| match &args.from {
        Some(from) => from == name,
        None => !client_files(client, folders, environment).is_empty(),
    };
    let clients = ClientProgram::ALL.into_iter().filter(|(name, client)| is_meant(name, *client));
    let clients: Vec<_> = clients.filter_map(|(_, client)| ConnectClient::find(client)).collect();
    if clients.is_empty() {
        let from = args.from.as_deref().unwrap_or("any client");
        let hint = "name a client that `toolgate connect` knows";
        return Err(error_with_hint(format!("nothing can be taken over from {from}"), hint));
    }
    for client in clients {
        let connect = ConnectArgs {
            client,
            http: None,
            profile: None,
            scope: ConnectScope::User,
            name: "toolgate".to_owned(),
            remove: false,
            force: false,
            take_over: true,
            replace: args.replace,
            undo: false,
            dry_run: args.dry_run,
        };
        take_over::run(&connect, project, output)?;
    }
    Ok(DONE)
}

/// Returns the files to read: the existing config files of a client, or the named file.
fn source_files(
    from: &str,
    folders: &[PathBuf],
    environment: &Environment,
) -> anyhow::Result<Vec<ImportSource>> {
    let Some((_, client)) = ClientProgram::ALL.into_iter().find(|(name, _)| *name == from) else {
        let path = PathBuf::from(from);
        if path.is_file() {
            return Ok(vec![ImportSource { path, client: None }]);
        }
        let names = ClientProgram::ALL.map(|(name, _)| name).join(", ");
        let message = format!("`{from}` is neither a file nor a known client");
        return Err(error_with_hint(message, format!("known clients: {names}")));
    };
    let found = client_files(client, folders, environment);
    if found.is_empty() {
        let places = folders.iter().flat_map(|folder| client.files(folder, environment));
        let mut places: Vec<_> = places.map(|path| display_path(&path)).collect();
        let mut seen = std::collections::HashSet::new();
        places.retain(|place| seen.insert(place.clone()));
        let message = format!("{from} has no configuration here");
        return Err(error_with_hint(message, format!("name the file; looked for {}", places.join(", "))));
    }
    Ok(found)
}

/// Returns the variables that the imported servers refer to.
pub(crate) fn env_lines(import: &ImportPlan, taken: &[&ImportedServer]) -> Vec<(String, Secret)> {
    let used = |(name, _): &&(String, Secret)| {
        let reference = format!("${{{name}}}");
        taken.iter().any(|server| server.entry.to_string().contains(&reference))
    };
    import.secrets.iter().filter(used).cloned().collect()
}

/// Replaces a file atomically: a partly written registry would be invalid.
pub(crate) fn write_atomically(path: &Path, before: Option<&str>, text: &str) -> anyhow::Result<()> {
    toolgate_app::replace_file(path, before, text)
        .with_context(|| format!("{} could not be written", display_path(path)))
}

/// Appends variables to a file, created with mode 0600.
pub(crate) fn append_private(path: &Path, lines: &[(String, Secret)]) -> anyhow::Result<()> {
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

/// Escapes a value for double quotes in a `.env` file.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    text.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t")
}

/// Warns about an existing file that other users can read; its mode is not changed.
fn warn_if_open(path: &Path, output: &Output) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        if fs_err::metadata(path).is_ok_and(|data| data.permissions().mode() & 0o077 != 0) {
            let file = display_path(path);
            output.message(&format!("warning: other users can read {file}; run `chmod 600 {file}`\n"));
        }
    }
    #[cfg(not(unix))]
    let _ = (path, output);
}
