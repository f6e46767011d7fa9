//! What profiles show: `toolgate tools list --profile NAME`, and what `toolgate check` finds in them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use toolgate_config::{Config, ProblemEntry, idle_words};
use toolgate_runtime::Runtime;
use toolgate_runtime::pins::LockFile;
use toolgate_server::profile::{CALL_TOOL, DESCRIBE_TOOL, SEARCH_TOOLS, ShownTool, View};
use toolgate_types::Profile;
use toolgate_types::profile::{Exposure, ProfileName, Provider};

use crate::cli::{Answers, ListArgs, Project};
use crate::command::servers::first_line;
use crate::command::{live, tools};
use crate::output::{BOLD, DIM, Output, hinted};

/// As many tools as OpenAI takes at once.
const MOST_OF_OPENAI: usize = 128;

pub(crate) fn list(named: &str, args: &ListArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    live::with(
        project,
        output,
        Answers::Ask,
        |_| true,
        async |runtime, errors| {
            let caller = tools::caller(&runtime, &args.caller)?;
            let profile = find(&runtime, &caller.id, named)?;
            let view = View::new(&runtime.catalog(), &profile, None);
            let shown: Vec<_> = view.ready().filter(|shown| runtime.may_see(&caller, &shown.tool)).collect();
            let notes = notes(&view, &shown);
            if output.json {
                let definition = |shown: &&Arc<ShownTool>| serde_json::from_str::<Json>(&shown.definition);
                let definitions: Vec<Json> = shown.iter().map(definition).collect::<Result<_, _>>()?;
                output.document(&json!({ "profile": &*profile, "tools": definitions, "notes": notes }))?;
            } else {
                told(&profile, &shown, output);
                notes.iter().for_each(|note| output.message(&format!("note: {note}\n")));
            }
            Ok(live::tell(&errors, output))
        },
    )
}

/// The profile of this name that a caller may use.
pub(crate) fn find(
    runtime: &Runtime,
    caller: &toolgate_types::CallerId,
    name: &str,
) -> anyhow::Result<Arc<Profile>> {
    let profiles = runtime.profiles();
    if let Ok(Some(profile)) = profiles.of(caller, Some(name)) {
        return Ok(Arc::clone(profile));
    }
    let usable = |profile: &&Arc<Profile>| profiles.of(caller, Some(profile.name.as_str())).is_ok();
    let names: Vec<_> =
        profiles.all.iter().filter(usable).map(|profile| format!("`{}`", profile.name)).collect();
    let hint = match names.as_slice() {
        [] => "`profiles` in toolgate.yaml names them; docs/profiles.md".to_owned(),
        names => format!("there is {}", names.join(", ")),
    };
    Err(hinted(format!("there is no profile `{name}`"), hint))
}

/// The name of a profile that a flag gives, where one is and there is such a profile.
pub(crate) fn named(
    runtime: &Runtime,
    caller: &toolgate_types::CallerId,
    name: Option<&str>,
) -> anyhow::Result<Option<ProfileName>> {
    name.map(|name| find(runtime, caller, name).map(|profile| profile.name.clone())).transpose()
}

fn told(profile: &Profile, shown: &[&Arc<ShownTool>], output: &Output) {
    if profile.exposure == Exposure::Search {
        output.message(&format!(
            "clients see {SEARCH_TOOLS}, {DESCRIBE_TOOL} and {CALL_TOOL}, and come to these by them:\n"
        ));
    }
    let width = shown.iter().map(|shown| shown.name.len()).max().unwrap_or(0);
    for shown in shown {
        let own = if shown.name == shown.tool.name {
            String::new()
        } else {
            format!("  {DIM}{}{DIM:#}", shown.tool.name)
        };
        let line = first_line(&shown.description);
        output.result(&format!("{BOLD}{:width$}{BOLD:#}  {line}{own}\n", shown.name));
    }
}

/// What people should know of a profile.
fn notes(view: &View, shown: &[&Arc<ShownTool>]) -> Vec<String> {
    let profile = &view.profile;
    let mut notes: Vec<String> =
        view.idle_words().into_iter().map(|word| format!("`{word}` fits no tool")).collect();
    for shown in shown {
        notes.extend(shown.notes.iter().map(|note| format!("`{}`: {note}", shown.name)));
    }
    let most = matches!(profile.provider, Some(Provider::Openai | Provider::Any));
    if most && profile.exposure == Exposure::Full && shown.len() > MOST_OF_OPENAI {
        notes.push(format!(
            "OpenAI takes {MOST_OF_OPENAI} tools at once, and these are {}; `exposure: search` shows three",
            shown.len()
        ));
    }
    notes
}

/// Words of profiles that fit no tool, as far as what servers offered is remembered.
pub(crate) fn idle(config: &Config) -> Vec<ProblemEntry> {
    // A file that cannot be read is told about when servers start.
    let pins = LockFile::of(&config.project).read().unwrap_or_default();
    let mut seen = BTreeMap::new();
    for server in &config.servers {
        let names: Vec<String> = pins.names(&server.name).map(str::to_owned).collect();
        if !names.is_empty() {
            seen.insert(server.name.prefix(), names);
        }
    }
    idle_words(config, &seen)
}
