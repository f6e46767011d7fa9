//! Lists prompts and resources of servers.

use serde_json::{Value as Json, json};
use toolgate_redact::printable;
use toolgate_runtime::{OfferedItem, ServerOffer};

use crate::cli::{AnswerMode, ProjectArgs};
use crate::command::app::{self, AppChoice};
use crate::output::{BOLD, DIM, Output, first_line};

/// Lists the items that `of` selects from each server. `key` is the JSON field of their id.
pub(crate) fn list(
    key: &str,
    of: impl Fn(&ServerOffer) -> Vec<(&'static str, &OfferedItem)>,
    project: &ProjectArgs,
    output: &Output,
) -> anyhow::Result<u8> {
    app::with_app(project, output, AppChoice::new(AnswerMode::Ask), async |app, errors| {
        let runtime = app.runtime();
        let mut all: Vec<Json> = Vec::new();
        for (server, offer) in runtime.offers() {
            for (kind, OfferedItem { id, title, description, definition, fault }) in of(&offer) {
                if let Some(fault) = fault {
                    let (id, fault) = (printable(id), printable(&fault.to_string()));
                    output.message(&format!("{kind} `{id}` of {server} is quarantined: {fault}\n"));
                    continue;
                }
                let mut one = json!({ "kind": kind, "server": server, "title": title, "description": description, "definition": definition });
                one[key] = json!(id);
                all.push(one);
            }
        }
        if output.json {
            output.document(&all)?;
        } else {
            for one in &all {
                let text = |name: &str| one[name].as_str().unwrap_or_default();
                let (id, server) = (text(key), printable(text("server")));
                // Without a description, show the title, unless it only repeats the name.
                let about = [text("description"), text("title")].into_iter().find(|text| !text.is_empty());
                let about = about.filter(|about| *about != id).map(first_line).unwrap_or_default();
                let id = printable(id);
                output.result(&format!("{BOLD}{id}{BOLD:#} {DIM}of {server}{DIM:#}  {about}\n"));
            }
        }
        Ok(app::report_errors(&errors, output))
    })
}
