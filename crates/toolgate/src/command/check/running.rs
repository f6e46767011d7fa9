//! `toolgate check --running`: shows if the running gateway uses the files as they are.

use serde_json::Value as Json;
use toolgate_app::socket::{self, Method};
use toolgate_redact::printable;

use crate::cli::ProjectArgs;
use crate::output::{BOLD, Output, error_with_hint};
use crate::{DONE, INVALID_CONFIG};

pub(super) fn run(project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let state = project.state_folder();
    let asked = socket::send_request(&state, Method::GET, "/v1/configuration", None);
    let Some((status, document)) = tokio.block_on(asked)? else {
        let hint = "start one with `toolgate serve`, or leave out `--running` to check the files";
        return Err(error_with_hint("no gateway of this project is running".to_owned(), hint));
    };
    if !status.is_success() {
        anyhow::bail!("the gateway responded with {status}");
    }
    let rejected = document["rejected"].as_array().map(Vec::as_slice).unwrap_or_default();
    if output.json {
        output.document(&document)?;
    } else {
        output.result(&text(&document, rejected));
    }
    Ok(if rejected.is_empty() { DONE } else { INVALID_CONFIG })
}

fn text(document: &Json, rejected: &[Json]) -> String {
    let member = |of: &Json, name: &str| of[name].as_str().map(printable);
    let mut text = String::new();
    for problem in rejected {
        let message = member(problem, "message").unwrap_or_default();
        text.push_str(&format!("{BOLD}error{BOLD:#}: {message}\n"));
        if let Some(place) = member(problem, "place") {
            text.push_str(&format!("  --> {place}\n"));
        }
        if let Some(hint) = member(problem, "hint") {
            text.push_str(&format!("hint: {hint}\n"));
        }
    }
    let restart = document["needsRestart"].as_array().into_iter().flatten().filter_map(Json::as_str);
    let restart: Vec<_> = restart.map(|section| format!("`{}`", printable(section))).collect();
    if !restart.is_empty() {
        text.push_str(&format!("{BOLD}needs a restart{BOLD:#}: {}\n", restart.join(", ")));
    }
    let policy = member(document, "policy").unwrap_or_default();
    let verdict = if rejected.is_empty() {
        format!("{BOLD}in use{BOLD:#}: the files as they are; policy {policy}\n")
    } else {
        format!("{BOLD}refused{BOLD:#}: the gateway uses the files as they were before; policy {policy}\n")
    };
    text.push_str(&verdict);
    text
}
