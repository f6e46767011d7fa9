//! Profiles: `toolgate tools list --profile NAME`, and the warnings of `toolgate check`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use toolgate_config::{Config, ProblemEntry, unmatched_patterns};
use toolgate_runtime::Runtime;
use toolgate_runtime::pins::LockFile;
use toolgate_server::profile::{CALL_TOOL, DESCRIBE_TOOL, ProfileTool, ProfileView, SEARCH_TOOLS};
use toolgate_types::Profile;
use toolgate_types::profile::{ProfileName, SchemaDialect, ToolExposure};

use crate::cli::{AnswerMode, ListArgs, ProjectArgs};
use crate::command::servers::first_line;
use crate::command::{project_runtime, tools};
use crate::output::{BOLD, DIM, Output, error_with_hint};

/// Tools that the OpenAI API accepts per request.
const OPENAI_MAX_TOOLS: usize = 128;

pub(crate) fn list(
    named: &str,
    args: &ListArgs,
    project: &ProjectArgs,
    output: &Output,
) -> anyhow::Result<u8> {
    project_runtime::with_runtime(
        project,
        output,
        AnswerMode::Ask,
        |_| true,
        async |runtime, errors| {
            let caller = tools::find_caller(&runtime, &args.caller)?;
            let profile = find_profile(&runtime, &caller.id, named)?;
            let view = ProfileView::new(&runtime.catalog(), &profile, None);
            let shown: Vec<_> = view.ready().filter(|shown| runtime.may_see(&caller, &shown.tool)).collect();
            let notes = notes(&view, &shown);
            if output.json {
                let definition = |shown: &&Arc<ProfileTool>| serde_json::from_str::<Json>(&shown.definition);
                let definitions: Vec<Json> = shown.iter().map(definition).collect::<Result<_, _>>()?;
                output.document(&json!({ "profile": &*profile, "tools": definitions, "notes": notes }))?;
            } else {
                print_tools(&profile, &shown, output);
                notes.iter().for_each(|note| output.message(&format!("note: {note}\n")));
            }
            Ok(project_runtime::report_errors(&errors, output))
        },
    )
}

/// Returns a profile by name, if the caller may use it.
pub(crate) fn find_profile(
    runtime: &Runtime,
    caller: &toolgate_types::CallerId,
    name: &str,
) -> anyhow::Result<Arc<Profile>> {
    let profiles = runtime.profiles();
    if let Ok(Some(profile)) = profiles.resolve(caller, Some(name)) {
        return Ok(Arc::clone(profile));
    }
    let usable = |profile: &&Arc<Profile>| profiles.resolve(caller, Some(profile.name.as_str())).is_ok();
    let names: Vec<_> =
        profiles.all.iter().filter(usable).map(|profile| format!("`{}`", profile.name)).collect();
    let hint = match names.as_slice() {
        [] => "define profiles in `profiles` of toolgate.yaml; see docs/profiles.md".to_owned(),
        names => format!("available: {}", names.join(", ")),
    };
    Err(error_with_hint(format!("there is no profile `{name}`"), hint))
}

/// Validates the profile name of a flag.
pub(crate) fn validate_name(
    runtime: &Runtime,
    caller: &toolgate_types::CallerId,
    name: Option<&str>,
) -> anyhow::Result<Option<ProfileName>> {
    name.map(|name| find_profile(runtime, caller, name).map(|profile| profile.name.clone())).transpose()
}

fn print_tools(profile: &Profile, shown: &[&Arc<ProfileTool>], output: &Output) {
    if profile.exposure == ToolExposure::Search {
        output.message(&format!(
            "clients see {SEARCH_TOOLS}, {DESCRIBE_TOOL} and {CALL_TOOL}, and reach these tools through them:\n"
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

/// Returns notes for the user about a profile.
fn notes(view: &ProfileView, shown: &[&Arc<ProfileTool>]) -> Vec<String> {
    let profile = &view.profile;
    let mut notes: Vec<String> =
        view.unmatched_patterns().into_iter().map(|word| format!("`{word}` matches no tool")).collect();
    for shown in shown {
        notes.extend(shown.notes.iter().map(|note| format!("`{}`: {note}", shown.name)));
    }
    let most = matches!(profile.provider, Some(SchemaDialect::Openai | SchemaDialect::Any));
    if most && profile.exposure == ToolExposure::Full && shown.len() > OPENAI_MAX_TOOLS {
        notes.push(format!(
            "OpenAI accepts at most {OPENAI_MAX_TOOLS} tools, this profile has {}; `exposure: search` exposes three",
            shown.len()
        ));
    }
    notes
}

/// Returns patterns of profiles that match no tool, according to the pinned definitions.
pub(crate) fn unmatched(config: &Config) -> Vec<ProblemEntry> {
    // Errors of the lock file are reported when the servers start.
    let pins = LockFile::in_project(&config.project).read().unwrap_or_default();
    let mut pinned = BTreeMap::new();
    for server in &config.servers {
        let names: Vec<String> = pins.tool_names(&server.name).map(str::to_owned).collect();
        if !names.is_empty() {
            pinned.insert(server.name.prefix(), names);
        }
    }
    unmatched_patterns(config, &pinned)
}
