//! `toolgate completions SHELL`: scripts that ask this executable for the words that fit.
//!
//! A script starts `toolgate` with [`VARIABLE`] set; [`complete`] answers and ends the process. Invariant: completing starts
//! no server and writes nothing.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use serde_json::json;
use toolgate_app::{NameKind, Project, StateFolder, known_names};
use toolgate_config::Environment;

use crate::cli::{Cli, CompletionsArgs};
use crate::output::{Output, display_path, error_with_hint};
use crate::{DONE, owner_key};

/// Set by the scripts, to the name of their shell.
const VARIABLE: &str = "TOOLGATE_COMPLETE";
const PROGRAM: &str = "toolgate";

/// Answers a script and ends the process, if a script started it.
pub(crate) fn complete() {
    CompleteEnv::with_factory(command).var(VARIABLE).bin(PROGRAM).completer(PROGRAM).complete();
}

pub(crate) fn run(args: &CompletionsArgs, output: &Output) -> anyhow::Result<u8> {
    if !args.install && !args.uninstall {
        output.result(&script(args.shell)?);
        return Ok(DONE);
    }
    let place = install_path(args.shell, &owner_key::environment())?;
    if args.uninstall {
        match fs_err::remove_file(&place) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    } else {
        if let Some(folder) = place.parent() {
            fs_err::create_dir_all(folder)?;
        }
        fs_err::write(&place, script(args.shell)?)?;
    }
    let path = display_path(&place);
    if output.json {
        output.document(&json!({ "ok": true, "path": path, "installed": args.install }))?;
        return Ok(DONE);
    }
    if args.uninstall {
        output.message(&format!("removed {path}\n"));
        return Ok(DONE);
    }
    output.message(&format!("wrote {path}\n"));
    let folder = place.parent().map(display_path).unwrap_or_default();
    output.next_step(&match args.shell {
        Shell::Zsh => {
            format!("add `fpath=({folder} $fpath)` to ~/.zshrc, before `compinit`, and open a new shell")
        }
        Shell::Bash => "open a new shell; completion in bash needs the package bash-completion".to_owned(),
        _ => "open a new shell".to_owned(),
    });
    Ok(DONE)
}

/// Returns the script for a shell.
fn script(shell: Shell) -> anyhow::Result<String> {
    let shells = Shells::builtins();
    let completer = shells.completer(&shell.to_string()).context("every shell has a script")?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)?;
    let mut script = String::from_utf8(script)?;
    if shell == Shell::Zsh {
        // If zsh loads the file because of the first completion, it expects the file to answer.
        script.push_str(
            "if [ \"$funcstack[1]\" = \"_toolgate\" ]; then _clap_dynamic_completer_toolgate \"$@\"; fi\n",
        );
    }
    Ok(script)
}

/// Returns the file that a shell loads completions of `toolgate` from.
fn install_path(shell: Shell, environment: &Environment) -> anyhow::Result<PathBuf> {
    let folder = |variable: &str, usual: &str| {
        let named = environment.variables.get(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        named.or_else(|| environment.home.as_ref().map(|home| home.join(usual))).context("HOME is not set")
    };
    Ok(match shell {
        Shell::Bash => folder("XDG_DATA_HOME", ".local/share")?.join("bash-completion/completions/toolgate"),
        Shell::Zsh => folder("XDG_DATA_HOME", ".local/share")?.join("toolgate/completions/_toolgate"),
        Shell::Fish => folder("XDG_CONFIG_HOME", ".config")?.join("fish/completions/toolgate.fish"),
        other => {
            return Err(error_with_hint(
                format!("{other} has no folder for completions"),
                format!("print the script with `toolgate completions {other}`, and load it in your profile"),
            ));
        }
    })
}

/// Returns the command line with the names of the project as candidates. Hidden commands are left out.
fn command() -> Command {
    let all = Cli::command();
    let shown = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let root = Command::new(PROGRAM).args(all.get_arguments().cloned());
    root.subcommands(shown.map(|command| with_names(command, "")))
}

/// Adds candidates to the arguments of a command and of its subcommands.
fn with_names(command: Command, parent: &str) -> Command {
    let name = command.get_name().to_owned();
    let command = command.mut_args(|argument| match kind_of(argument.get_id().as_str(), &name, parent) {
        Some(kind) => argument.add(ArgValueCandidates::new(move || candidates(kind))),
        None => argument,
    });
    command.mut_subcommands(|sub| with_names(sub, &name))
}

/// Returns the kind of names that an argument takes. Commands that add something take a new name.
fn kind_of(argument: &str, command: &str, parent: &str) -> Option<NameKind> {
    let is_new = matches!(command, "add" | "new") && parent != "keys";
    match (argument, parent) {
        ("caller", _) => Some(NameKind::Caller),
        ("id", "callers" | "keys") if !is_new => Some(NameKind::Caller),
        ("server", _) => Some(NameKind::Server),
        ("name", "servers") if !is_new => Some(NameKind::Server),
        ("tool", _) => Some(NameKind::Tool),
        ("name", "tools") if !is_new => Some(NameKind::Tool),
        ("profile", _) => Some(NameKind::Profile),
        _ => None,
    }
}

/// Returns the names of the project that the command line selects. A project that cannot be loaded has none.
fn candidates(kind: NameKind) -> Vec<CompletionCandidate> {
    // The script passes the words of the command line after `--`.
    let mut words = std::env::args_os().skip_while(|word| word != "--").skip(1);
    let folder = project_folder(&mut words).unwrap_or_else(|| ".".into());
    let Ok(project) = Project::load(&folder, None, owner_key::environment()) else { return Vec::new() };
    let names = known_names(&project.config, &StateFolder::of(&folder), kind);
    names.into_iter().map(CompletionCandidate::new).collect()
}

fn project_folder(words: &mut impl Iterator<Item = OsString>) -> Option<PathBuf> {
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        if text == "-C" || text == "--project" {
            return words.next().map(PathBuf::from);
        }
        if let Some(folder) = text.strip_prefix("--project=") {
            return Some(folder.into());
        }
    }
    None
}
