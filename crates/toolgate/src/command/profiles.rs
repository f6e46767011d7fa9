//! Profiles: `toolgate tools list --profile NAME`.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use toolgate_app::App;
use toolgate_app::profile::{CALL_TOOL, DESCRIBE_TOOL, ProfileTool, ProfileView, SEARCH_TOOLS};
use toolgate_redact::printable;
use toolgate_runtime::code_mode::{FIND_FUNCTIONS, RUN_CODE};
use toolgate_types::profile::{SchemaDialect, ToolExposure};
use toolgate_types::{CallerId, Profile};

use crate::cli::{AnswerMode, ListArgs, ProjectArgs};
use crate::command::app::{self, AppChoice};
use crate::output::{BOLD, DIM, Output, error_or_hint, first_line};

/// Tools that the OpenAI API accepts per request.
const OPENAI_MAX_TOOLS: usize = 128;

pub(crate) fn list(
    named: &str,
    args: &ListArgs,
    project: &ProjectArgs,
    output: &Output,
) -> anyhow::Result<u8> {
    app::with_app(project, output, AppChoice::new(AnswerMode::Ask), async |app, errors| {
        let runtime = app.runtime();
        let caller = app::find_caller(app, &args.caller)?;
        let profile = find_profile(app, &caller.id, named)?;
        let view = ProfileView::new(&runtime.catalog(), &profile, None);
        let shown: Vec<_> = view.ready().filter(|shown| runtime.may_see(&caller, &shown.tool)).collect();
        let notes = notes(&view, &shown);
        if output.json {
            let definition = |shown: &&Arc<ProfileTool>| serde_json::from_str::<Json>(&shown.definition);
            let definitions: Vec<Json> = shown.iter().map(definition).collect::<Result<_, _>>()?;
            output.document(&json!({ "profile": &*profile, "tools": definitions, "notes": notes }))?;
        } else {
            print_tools(&profile, &shown, output);
            notes.iter().for_each(|note| output.message(&format!("note: {}\n", printable(note))));
        }
        Ok(app::report_errors(&errors, output))
    })
}

/// Returns the profile of a flag, if the caller may use it.
pub(crate) fn find_profile(app: &App, caller: &CallerId, name: &str) -> anyhow::Result<Arc<Profile>> {
    app.profile(caller, name).map_err(|error| {
        let hint = error.hint.clone();
        error_or_hint(error, Some(hint))
    })
}

fn print_tools(profile: &Profile, shown: &[&Arc<ProfileTool>], output: &Output) {
    if profile.exposure == ToolExposure::Search {
        output.message(&format!(
            "clients see {SEARCH_TOOLS}, {DESCRIBE_TOOL} and {CALL_TOOL}, and reach these tools through them:\n"
        ));
    }
    if profile.exposure == ToolExposure::Code {
        output.message(&format!(
            "clients see {RUN_CODE} and {FIND_FUNCTIONS}, and call these tools in programs:\n"
        ));
    }
    let width = shown.iter().map(|shown| shown.name.len()).max().unwrap_or(0);
    for shown in shown {
        let own = if shown.name == shown.tool.name {
            String::new()
        } else {
            format!("  {DIM}{}{DIM:#}", printable(&shown.tool.name))
        };
        let line = first_line(&shown.description);
        output.result(&format!("{BOLD}{:width$}{BOLD:#}  {line}{own}\n", printable(&shown.name)));
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
