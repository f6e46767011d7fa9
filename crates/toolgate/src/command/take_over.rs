//! `connect CLIENT --take-over` and `--undo`: moves the servers of a client behind Toolgate, and back.
//!
//! Invariant: nothing is written unless all servers can be moved; the files as they were are kept until the undo.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use toolgate_config::connect::{self, Scope};
use toolgate_config::{ClientProgram, ImportPlan, add_servers, plan_import};
use toolgate_state::StateDir;
use toolgate_store::document::{EntryAction, EntryKind, RegistryDocument};

use crate::DONE;
use crate::cli::{ConnectArgs, ConnectScope, ProjectArgs};
use crate::command::connect::{connect_error, connect_method, difference};
use crate::command::import::{append_private, client_files, client_folders, env_lines, write_atomically};
use crate::output::{BOLD, Output, display_path, error_with_hint, toolgate_command};
use crate::owner_key;

/// Largest file with the texts for an undo.
const MAX_UNDO_BYTES: u64 = 64 << 20;

/// A file before and after its change.
#[derive(Debug, Serialize, Deserialize)]
struct ChangedFile {
    path: PathBuf,
    /// `None` if the file did not exist.
    before: Option<String>,
    after: String,
}

/// Texts for an undo. They may have secrets in plain text, as the files have.
#[derive(Debug, Serialize, Deserialize)]
struct UndoRecord {
    files: Vec<ChangedFile>,
    registry: ChangedFile,
    /// Servers that were added to the registry.
    servers: Vec<String>,
}

fn undo_name(client: ClientProgram) -> String {
    format!("take-over-{}.json", client.label())
}

pub(crate) fn run(args: &ConnectArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let client = args.client.client();
    let environment = owner_key::environment();
    let folders = client_folders(project)?;
    let sources = client_files(client, &folders, &environment);
    let mut import = plan_import(&project.folder, &sources, &folders, &environment);
    output.message(&import.report.render());
    if import.report.has_errors() {
        return Err(error_with_hint(
            format!("nothing was taken over from {}", client.label()),
            "fix the problems above",
        ));
    }
    import.servers.retain(|server| !connect::is_toolgate_entry(&server.entry));
    import.duplicates.retain(|server| server.name != args.name);
    check_plan(&import, project)?;
    let (registry, taken) = plan_registry(&import, args)?;
    let files = plan_files(args, client, &import, &folders, project)?;
    let changed: Vec<&ChangedFile> =
        files.iter().filter(|file| file.before.as_ref() != Some(&file.after)).collect();
    let shown = |file: &ChangedFile| {
        let text = difference(file.before.as_deref().unwrap_or_default(), &file.after);
        import.report.mask(&format!("--- {}\n{text}", display_path(&file.path)))
    };
    let is_registry_changed = registry.before.as_ref() != Some(&registry.after) && !taken.is_empty();
    let diff: String = is_registry_changed
        .then(|| shown(&registry))
        .into_iter()
        .chain(changed.iter().map(|file| shown(file)))
        .collect();
    if !args.dry_run && (is_registry_changed || !changed.is_empty()) {
        let new: Vec<_> = import.servers.iter().filter(|server| taken.contains(&server.name)).collect();
        let env_lines = env_lines(&import, &new);
        let record = UndoRecord { files, registry, servers: taken.clone() };
        write_all(client, &record, is_registry_changed, project, || {
            append_private(&project.folder.join(".env"), &env_lines)
        })?;
    }
    print_result(args, client, &import, &diff, project, output)
}

/// Checks that every server can be moved.
fn check_plan(import: &ImportPlan, project: &ProjectArgs) -> anyhow::Result<()> {
    if let Some(file) = &import.unlinked_project_file {
        let toolgate = toolgate_command(&project.folder);
        return Err(error_with_hint(
            format!("{} does not use mcp.json; nothing was written", display_path(file)),
            format!("add `registries: {{ mcp: mcp.json }}` to it, then `{toolgate} check`"),
        ));
    }
    if let Some(other) = import.duplicates.iter().find(|server| !server.is_same) {
        return Err(error_with_hint(
            format!(
                "`{}` is in several files with different settings, one of them {}; nothing was written",
                other.name,
                display_path(&other.path)
            ),
            "rename one of them in the client",
        ));
    }
    Ok(())
}

/// Returns the registry with the servers added, and the names of those that are new.
fn plan_registry(import: &ImportPlan, args: &ConnectArgs) -> anyhow::Result<(ChangedFile, Vec<String>)> {
    let path = import.registry.clone();
    let before = path.is_file().then(|| fs_err::read_to_string(&path)).transpose()?;
    let blank = RegistryDocument::empty_text(EntryKind::Server);
    let text = before.as_deref().unwrap_or(&blank);
    let refused = || format!("cannot add to {}; nothing was written", display_path(&path));
    let document = RegistryDocument::parse(EntryKind::Server, text).with_context(refused)?;
    let (after, left) = add_servers(text, import, args.replace).with_context(refused)?;
    for name in &left {
        let known = document.entry(name).and_then(|entry| serde_json::from_str::<Json>(entry).ok());
        let server = import.servers.iter().find(|server| server.name == *name);
        if known.as_ref() != server.map(|server| &server.entry) {
            return Err(error_with_hint(
                format!(
                    "`{name}` is already in {} with other settings; nothing was written",
                    display_path(&path)
                ),
                "use `--replace` to overwrite it, or rename it in the client",
            ));
        }
    }
    let names = import.servers.iter().map(|server| server.name.clone());
    let taken = names.filter(|name| !left.contains(name)).collect();
    Ok((ChangedFile { path, before, after }, taken))
}

/// Returns the files of the client: without the servers, and one of them with Toolgate.
fn plan_files(
    args: &ConnectArgs,
    client: ClientProgram,
    import: &ImportPlan,
    folders: &[PathBuf],
    project: &ProjectArgs,
) -> anyhow::Result<Vec<ChangedFile>> {
    let environment = owner_key::environment();
    let scope = match args.scope {
        ConnectScope::User => Scope::User,
        ConnectScope::Project => Scope::Project,
    };
    let here = std::env::current_dir().context("there is no current folder")?;
    let own = connect::config_path(client, scope, &here, &environment)
        .map_err(|error| connect_error(error, args))?;
    let servers = import.servers.iter().map(|server| (&server.path, &server.name));
    let servers: Vec<_> =
        servers.chain(import.duplicates.iter().map(|server| (&server.path, &server.name))).collect();
    let mut paths: Vec<PathBuf> = vec![own.clone()];
    for (path, _) in &servers {
        if !paths.contains(path) {
            paths.push((*path).clone());
        }
    }
    let mut files = Vec::new();
    for path in paths {
        let before = path.is_file().then(|| fs_err::read_to_string(&path)).transpose()?;
        let of_file = servers.iter().filter(|(from, _)| **from == path);
        let names: Vec<String> = of_file.map(|(_, name)| (*name).clone()).collect();
        let text = before.as_deref().unwrap_or_default();
        let failed = |error| connect_error(error, args);
        let unchanged = || format!("{} cannot be changed; nothing was written", display_path(&path));
        let mut after =
            connect::remove_servers(client, text, &names, folders).map_err(failed).with_context(unchanged)?;
        if path == own {
            let method = connect_method(args, project).map_err(failed)?;
            after = connect::connect(client, &after, &args.name, &method, args.force)
                .map_err(failed)
                .with_context(unchanged)?;
        }
        files.push(ChangedFile { path, before, after });
    }
    Ok(files)
}

/// Writes the texts for the undo, then the registry, then the files of the client. A server may then be there twice for a
/// moment, and never nowhere.
fn write_all(
    client: ClientProgram,
    record: &UndoRecord,
    is_registry_changed: bool,
    project: &ProjectArgs,
    write_variables: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let state = StateDir::create(project.state_folder().path())?;
    state.replace(&undo_name(client), &serde_json::to_vec(record)?)?;
    write_variables()?;
    if is_registry_changed {
        write(&record.registry)?;
    }
    record.files.iter().filter(|file| file.before.as_ref() != Some(&file.after)).try_for_each(write)
}

fn write(ChangedFile { path, before, after }: &ChangedFile) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        fs_err::create_dir_all(folder)?;
    }
    write_atomically(path, before.as_deref(), after)
}

fn print_result(
    args: &ConnectArgs,
    client: ClientProgram,
    import: &ImportPlan,
    diff: &str,
    project: &ProjectArgs,
    output: &Output,
) -> anyhow::Result<u8> {
    let names: Vec<_> = import.servers.iter().map(|server| server.name.as_str()).collect();
    if output.json {
        output.document(&json!({
            "ok": true,
            "client": client.label(),
            "servers": names,
            "changed": !diff.is_empty(),
            "written": !diff.is_empty() && !args.dry_run,
            "diff": diff,
        }))?;
    } else {
        output.result(diff);
    }
    let toolgate = toolgate_command(&project.folder);
    let label = client.label();
    match (diff.is_empty(), args.dry_run) {
        (true, _) => output.message(&format!("all servers of {label} are behind Toolgate already\n")),
        (false, true) => output.next_step("run it again without `--dry-run` to write this"),
        (false, false) => {
            let count = names.len();
            let what = if count == 1 { "1 server".to_owned() } else { format!("{count} servers") };
            output.message(&format!("{BOLD}{what}{BOLD:#} of {label} moved behind Toolgate\n"));
            output.next_step(&format!(
                "restart the client; `{toolgate} connect {label} --undo` moves them back"
            ));
        }
    }
    Ok(DONE)
}

/// Restores the files of a client as they were before the take-over.
pub(crate) fn undo(client: ClientProgram, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let label = client.label();
    let state = StateDir::create(project.state_folder().path())?;
    let Ok(text) = state.read(&undo_name(client), MAX_UNDO_BYTES) else {
        return Err(error_with_hint(
            format!("nothing was taken over from {label} here"),
            "run it in the project of the take-over, or name it with `-C`",
        ));
    };
    let UndoRecord { files, registry, servers } = serde_json::from_slice(&text)?;
    let read = |path: &Path| path.is_file().then(|| fs_err::read_to_string(path)).transpose();
    for ChangedFile { path, after, .. } in &files {
        if read(path)?.as_ref() != Some(after) {
            return Err(error_with_hint(
                format!("{} changed since; nothing was written", display_path(path)),
                format!(
                    "undo your change first, or edit it by hand: the old text is in .toolgate/{}",
                    undo_name(client)
                ),
            ));
        }
    }
    for ChangedFile { path, before, after } in files {
        restore(&path, before, &after)?;
    }
    // Other servers may have been added meanwhile.
    match read(&registry.path)? {
        Some(now) if now == registry.after => restore(&registry.path, registry.before, &registry.after)?,
        Some(now) => {
            let mut document = RegistryDocument::parse(EntryKind::Server, &now)?;
            for name in &servers {
                if document.entry(name).is_some() && document.apply(name, &EntryAction::Remove).is_err() {
                    bail!("`{name}` could not be removed from {}", display_path(&registry.path));
                }
            }
            write_atomically(&registry.path, Some(&now), &document.text())?;
        }
        None => {}
    }
    state.remove(&undo_name(client))?;
    if output.json {
        output.document(&json!({ "ok": true, "client": label, "servers": servers }))?;
    } else {
        output.message(&format!("the configuration of {label} is as it was before\n"));
    }
    output.next_step("restart the client");
    Ok(DONE)
}

fn restore(path: &Path, before: Option<String>, after: &str) -> anyhow::Result<()> {
    match before {
        Some(before) if before == after => Ok(()),
        Some(before) => write_atomically(path, Some(after), &before),
        None => Ok(fs_err::remove_file(path)?),
    }
}
